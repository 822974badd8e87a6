//! A small, seeded, repeatable generator: the only source of randomness except for seeds and secrets.
//! In: a seed (from the operating system at start, a fixed number in tests). Out: numbers.
//! Never: used for secrets. Algorithm: SplitMix64 (Steele, Lea, Flood 2014).

/// A seeded generator. The same seed gives the same numbers on every machine.
#[derive(Clone, Debug)]
pub struct Prng {
    /// The current SplitMix64 counter.
    state: u64,
}

impl Prng {
    /// Creates a generator from `seed`.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// Returns the next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix64(self.state)
    }

    /// Returns a number in `0..bound`, or 0 if `bound` is 0. The bias is below 2⁻³² for bounds below 2³².
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// Returns true with a probability of `parts_per_million` in a million.
    pub fn chance(&mut self, parts_per_million: u32) -> bool {
        self.below(1_000_000) < u64::from(parts_per_million)
    }
}

/// Mixes one number into 64 evenly distributed bits: a cheap, fixed hash for numbers.
#[must_use]
pub const fn mix64(value: u64) -> u64 {
    let mut z = value;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// FNV-1a over `bytes`, then mixed: a fixed hash for short keys. An attacker who
/// chooses the keys can force collisions.
#[must_use]
pub fn hash_bytes(bytes: &[u8]) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for &byte in bytes {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    mix64(hash)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_seed_gives_same_numbers() {
        let (mut a, mut b) = (Prng::new(7), Prng::new(7));
        for _ in 0..100 {
            assert_eq!(a.next_u64(), b.next_u64());
        }
        assert_eq!(
            Prng::new(0).next_u64(),
            0xe220_a839_7b1d_cdaf,
            "the first value differs from the published one"
        );
    }

    #[test]
    fn below_stays_in_range_and_reaches_every_value() {
        let mut prng = Prng::new(1);
        let mut seen = [0_u32; 10];
        for _ in 0..10_000 {
            seen[prng.below(10) as usize] += 1;
        }
        assert!(seen.iter().all(|&n| n > 800), "{seen:?}");
        assert_eq!(prng.below(0), 0);
    }
}
