//! Bodies whose every byte follows from a seed and an offset, so that no test has to store them.
//! In: a seed, an offset. Out: the bytes; whether received bytes are the right ones; a hash of bytes.

use tidegate_base::prng::mix64;

/// `count` bytes of body `seed`, starting at `offset`.
pub fn make(seed: u64, offset: u64, count: usize) -> Vec<u8> {
    (offset..offset + count as u64).map(|at| byte(seed, at)).collect()
}

/// Whether `bytes` are the bytes of body `seed` that start at `offset`.
pub fn matches(seed: u64, offset: u64, bytes: &[u8]) -> bool {
    bytes.iter().enumerate().all(|(at, found)| *found == byte(seed, offset + at as u64))
}

/// An FNV-1a hash that is fed piece by piece.
#[derive(Clone, Copy)]
pub struct Hash(u64);

impl Hash {
    pub const fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    pub fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }

    pub const fn value(self) -> u64 {
        self.0
    }
}

fn byte(seed: u64, at: u64) -> u8 {
    (mix64(seed ^ (at / 8)) >> (8 * (at % 8))) as u8
}
