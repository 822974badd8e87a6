//! Chooses the pool of a request, by weights or by a map.
//! In: the values of a request, a random number. Out: the index of a pool.
//! Never: lets a client choose the pool by the form of its host or its path; allocates, unless a path that is looked up has an
//! unusual form.
//! Limits: `POOLS_MAX` pools of a split (a limit of the configuration).
//! Invariant: a split by a key depends on the key, and on the names and the weights of the pools only: all workers and
//! all instances agree. If weights change, a value either keeps its pool or gets one whose share has grown (weighted
//! rendezvous hashing, the logarithmic method of Schindelhauer and Schomaker, "Weighted Distributed Hash Tables", 2005).

use tidegate_base::prng::{hash_bytes, mix64};
use tidegate_config::model::{Config, Placeholder, PoolChoice, Template, TemplatePiece};

use crate::live_map::MapReaders;
use crate::path::{Normalized, Reach, normalize_path};
use crate::rate_key;
use crate::router::host_name;
use crate::template::{Values, push_plain};

/// How a route chooses the pool of a request, prepared.
#[derive(Debug)]
pub struct PoolChooser(ChoiceMethod);

#[derive(Debug)]
enum ChoiceMethod {
    Split {
        /// The pools with a weight above 0.
        shares: Vec<Share>,
        /// The values that decide; empty: a random number.
        key: Template,
    },
    Map {
        /// The index of the map.
        map: usize,
        key: Template,
        /// The pool of other requests.
        default: Option<u16>,
    },
}

/// The share of a pool.
#[derive(Debug)]
struct Share {
    /// The index of the pool.
    pool: u16,
    /// The hash of its name.
    name: u64,
    weight: f64,
}

impl PoolChooser {
    /// Prepares `choice`; `None` if all requests have the same pool.
    pub(crate) fn new(choice: &PoolChoice, config: &Config) -> Option<Self> {
        match choice {
            PoolChoice::One(_) => None,
            PoolChoice::Split(split) => {
                let share = |(pool, weight): &(usize, u32)| {
                    let name = config.pools.get(*pool).map_or("", |pool| pool.name.as_str());
                    Share {
                        pool: *pool as u16,
                        name: hash_bytes(name.as_bytes()),
                        weight: f64::from(*weight),
                    }
                };
                let shares = split.pools.iter().filter(|(_, weight)| *weight > 0).map(share);
                Some(Self(ChoiceMethod::Split { shares: shares.collect(), key: split.key.clone() }))
            }
            PoolChoice::Map(choice) => Some(Self(ChoiceMethod::Map {
                map: choice.map,
                key: choice.key.clone(),
                default: choice.default.map(|pool| pool as u16),
            })),
        }
    }

    /// The pool of a request; `None` if the map has none for it. `is_present`: whether the configuration of the request has
    /// the pool with this index. `random` makes a random number. `scratch` is overwritten.
    pub(crate) fn choose(
        &self,
        values: &Values<'_>,
        (maps, is_present): (&MapReaders, impl FnOnce(u16) -> bool),
        random: impl FnOnce() -> u64,
        scratch: &mut Vec<u8>,
    ) -> Option<u16> {
        match &self.0 {
            ChoiceMethod::Split { shares, key } => {
                let hash = match key.pieces.is_empty() {
                    true => random(),
                    false => rate_key::hash_key(key, values, 0, scratch),
                };
                share_of(shares, hash)
            }
            ChoiceMethod::Map { map, key, default } => {
                scratch.clear();
                push_key(scratch, key, values);
                let found = maps.find(*map, scratch);
                // The map belongs to all configurations: a later one may have more pools, or lack this one.
                found.filter(|pool| is_present(*pool)).or(*default)
            }
        }
    }

    /// The pools and their shares of all requests, if requests are divided at random.
    #[must_use]
    pub fn random_shares(&self) -> Option<Vec<(u16, f64)>> {
        match &self.0 {
            ChoiceMethod::Split { shares, key } if key.pieces.is_empty() => {
                let total: f64 = shares.iter().map(|share| share.weight).sum();
                Some(shares.iter().map(|share| (share.pool, share.weight / total)).collect())
            }
            ChoiceMethod::Split { .. } | ChoiceMethod::Map { .. } => None,
        }
    }
}

/// The hash of a pool's name.
pub(crate) fn name_hash(name: &str) -> u64 {
    hash_bytes(name.as_bytes())
}

/// Whether a pool that gets `parts` of a million values, and no pool the others, has the hash. The decision is that of a
/// split.
pub(crate) fn wins_share(name: u64, parts: u32, hash: u64) -> bool {
    let share = |pool, name, parts: u32| Share { pool, name, weight: f64::from(parts) };
    let others = share(1, 0, 1_000_000_u32.saturating_sub(parts));
    share_of(&[share(0, name, parts), others], hash) == Some(0)
}

/// The pool for the hash: the pool with the smallest score. A score is an exponentially distributed number divided by the weight,
/// so each pool has the smallest score with a probability in proportion to its weight.
fn share_of(shares: &[Share], hash: u64) -> Option<u16> {
    let score = |share: &Share| {
        // 53 bits of the hash: a number above 0 and up to 1.
        let number = ((mix64(hash ^ share.name) >> 11) + 1) as f64 / (1_u64 << 53) as f64;
        -number.ln() / share.weight
    };
    let scores = shares.iter().map(|share| (score(share), share.pool));
    scores.min_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, pool)| pool)
}

/// Appends the text that is looked up: host and path in the normalized form in which they are compared.
fn push_key(out: &mut Vec<u8>, key: &Template, values: &Values<'_>) {
    for piece in &key.pieces {
        match piece {
            TemplatePiece::Text(text) => out.extend_from_slice(text.as_bytes()),
            TemplatePiece::Value(Placeholder::Host) => {
                let host = host_name(values.head.host.unwrap_or_default());
                out.extend(host.bytes().map(|byte| byte.to_ascii_lowercase()));
            }
            TemplatePiece::Value(Placeholder::Path) => push_path(out, values.head.path),
            TemplatePiece::Value(other) => push_plain(out, other, values),
        }
    }
}

/// Appends a path in the normalized form in which routes compare it.
fn push_path(out: &mut Vec<u8>, path: &str) {
    let mut scratch = Vec::new();
    let mut push = |text: &str| out.extend_from_slice(text.as_bytes());
    match normalize_path(path, Reach::UNLIMITED, &mut scratch) {
        Normalized::Same => push(path),
        Normalized::Equivalent(text) | Normalized::Changed { resolved: text, .. } => push(text),
        Normalized::Ambiguous(mut readings) => push(readings.next().unwrap_or_default()),
        // Such a request has no route.
        Normalized::Refused(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_base::Prng;

    fn shares(weights: &[(&str, u32)]) -> Vec<Share> {
        let share = |(pool, (name, weight)): (usize, &(&str, u32))| Share {
            pool: pool as u16,
            name: hash_bytes(name.as_bytes()),
            weight: f64::from(*weight),
        };
        weights.iter().enumerate().map(share).collect()
    }

    /// The number of the hashes 0 to 99,999, mixed, that each pool has.
    fn counts(shares: &[Share]) -> Vec<usize> {
        let mut counts = vec![0; shares.len()];
        for number in 0..100_000 {
            counts[usize::from(share_of(shares, mix64(number)).expect("a pool"))] += 1;
        }
        counts
    }

    #[test]
    fn shares_are_in_proportion_to_the_weights() {
        for weights in [&[95, 5][..], &[1, 1, 1], &[1000, 1], &[7], &[50, 30, 20]] {
            let names = ["stable", "canary", "next"];
            let named: Vec<(&str, u32)> = names.into_iter().zip(weights.iter().copied()).collect();
            let total: u32 = weights.iter().sum();
            for (count, weight) in counts(&shares(&named)).into_iter().zip(weights) {
                let expected = 100_000.0 * f64::from(*weight) / f64::from(total);
                let deviation = (count as f64 - expected).abs();
                assert!(deviation < 5.0 * expected.sqrt(), "{weights:?}: {count} {expected}");
            }
        }
        // The same for numbers of the generator that workers use.
        let (stable, mut prng) = (shares(&[("stable", 95), ("canary", 5)]), Prng::new(7));
        let canary = (0..100_000).filter(|_| share_of(&stable, prng.next_u64()) == Some(1)).count();
        assert!((4_600..5_400).contains(&canary), "{canary}");
    }

    #[test]
    fn larger_share_contains_every_key_of_a_smaller_share() {
        let name = name_hash("next");
        let count = |parts| (0..100_000).filter(|n| wins_share(name, parts, mix64(*n))).count();
        assert_eq!((count(0), count(1_000_000)), (0, 100_000));
        assert!((4_700..5_300).contains(&count(50_000)), "{}", count(50_000));
        let all_stay = (0..100_000).map(mix64).filter(|n| wins_share(name, 50_000, *n));
        assert!(all_stay.into_iter().all(|n| wins_share(name, 80_000, n)));
    }

    #[test]
    fn value_changes_its_pool_only_if_weights_make_it_necessary() {
        let before = shares(&[("stable", 95), ("canary", 5), ("next", 0)]);
        let before: Vec<Share> = before.into_iter().filter(|share| share.weight > 0.0).collect();
        // The order in the file does not matter.
        let mut after = shares(&[("stable", 80), ("canary", 20)]);
        after.reverse();
        let mut moved = 0;
        for number in 0..100_000 {
            let hash = mix64(number);
            match (share_of(&before, hash), share_of(&after, hash)) {
                (Some(0), Some(1)) => moved += 1,
                (old, new) => assert_eq!(old, new, "only stable's values move, to canary"),
            }
        }
        assert!((14_000..16_000).contains(&moved), "{moved}");
        assert_eq!(share_of(&[], 1), None);
    }
}
