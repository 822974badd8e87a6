//! Which requests of a route are copied for another pool (`mirror`).
//! In: the values of a request, a random number. Out: whether it is copied.
//! Never: depends on anything but the key, the name of the pool and the share, if a key decides: all workers and all
//! instances agree, and a greater share adds requests without leaving out others.

use tidegate_config::model::{Config, Mirror, Template};

use crate::choice::{name_hash, wins_share};
use crate::rate_key;
use crate::template::Values;

/// `mirror` of a route, prepared.
#[derive(Debug)]
pub struct Mirroring {
    /// The index of the pool.
    pub pool: u16,
    /// Maximum size in bytes of the body of a copied request.
    pub body_max: usize,
    /// The hash of the pool's name.
    name: u64,
    /// How many of a million requests are copied.
    share: u32,
    /// The values that decide; empty: a random number.
    key: Template,
}

impl Mirroring {
    /// Prepares `mirror` of a route of `config`.
    #[must_use]
    pub fn new(mirror: &Mirror, config: &Config) -> Self {
        let name = config.pools.get(mirror.pool).map_or("", |pool| pool.name.as_str());
        Self {
            pool: mirror.pool as u16,
            body_max: mirror.body_max,
            name: name_hash(name),
            share: mirror.share,
            key: mirror.key.clone(),
        }
    }

    /// The share of requests that are copied, if they are chosen at random, in percent.
    #[must_use]
    pub fn random_percent(&self) -> Option<f64> {
        self.key.pieces.is_empty().then(|| f64::from(self.share) / 10_000.0)
    }

    /// Whether a request is copied. `random` makes a random number. `scratch` is overwritten.
    #[must_use]
    pub fn chooses(
        &self,
        values: &Values<'_>,
        random: impl FnOnce() -> u64,
        scratch: &mut Vec<u8>,
    ) -> bool {
        if self.share >= 1_000_000 {
            return true;
        }
        let hash = match self.key.pieces.is_empty() {
            true => random(),
            false => rate_key::hash_key(&self.key, values, 0, scratch),
        };
        wins_share(self.name, self.share, hash)
    }
}
