//! The pool of a request: always the same, by weights, or by a map.
//! In: the reader of routes, the contents of map files. Out: plain data.
//! Invariant: every index of a pool is in range; the weights of a split have a sum above 0.

use super::Template;

/// How a route chooses the pool of a request.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PoolChoice {
    /// Always the pool with this index.
    One(usize),
    /// `split`: by weights.
    Split(Split),
    /// `pool = { map = "NAME", ... }`: by a map.
    Map(MapChoice),
}

/// `split`: divides requests between pools.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Split {
    /// The indexes of the pools and their weights, in file order.
    pub pools: Vec<(usize, u32)>,
    /// The values of a request by which it always gets the same pool; empty: each request is divided at random.
    pub key: Template,
}

/// `pool = { map, key, default }`: the pool that a map names for a value of the request.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MapChoice {
    /// The index of the map.
    pub map: usize,
    /// The text that is looked up.
    pub key: Template,
    /// The index of the pool of requests whose text matches no key of the map; `None`: such requests get a 404 response.
    pub default: Option<usize>,
    /// The index of the pool of each value of the map, except of pools that a command has removed. Empty until the map is read.
    pub pools: Vec<usize>,
}

impl PoolChoice {
    /// The index of the pool, if all requests have the same.
    #[must_use]
    pub const fn only(&self) -> Option<usize> {
        match self {
            Self::One(pool) => Some(*pool),
            Self::Split(_) | Self::Map(_) => None,
        }
    }

    /// The indexes of the pools that are known. The contents of a file may name more.
    pub fn pools(&self) -> impl Iterator<Item = usize> {
        let (only, shares, of_map) = match self {
            Self::One(pool) => (Some(*pool), &[][..], &[][..]),
            Self::Split(split) => (None, split.pools.as_slice(), &[][..]),
            Self::Map(map) => (map.default, &[][..], map.pools.as_slice()),
        };
        let shares = shares.iter().map(|(pool, _)| *pool);
        only.into_iter().chain(shares).chain(of_map.iter().copied())
    }

    /// Replaces the index of each pool.
    pub fn map_pools(&mut self, index_of: impl Fn(usize) -> usize) {
        match self {
            Self::One(pool) => *pool = index_of(*pool),
            Self::Split(split) => {
                split.pools.iter_mut().for_each(|(pool, _)| *pool = index_of(*pool))
            }
            Self::Map(map) => {
                map.default = map.default.map(&index_of);
                map.pools.iter_mut().for_each(|pool| *pool = index_of(*pool));
            }
        }
    }

    /// The text that is looked up in a map.
    #[must_use]
    pub const fn map_key(&self) -> Option<&Template> {
        match self {
            Self::Map(map) => Some(&map.key),
            Self::One(_) | Self::Split(_) => None,
        }
    }
}
