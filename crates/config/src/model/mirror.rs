//! Copies of requests for another pool.
//! In: the reader of routes. Out: plain data.

use super::Template;

/// `mirror` of a route: copies of its requests are sent to another pool, whose responses are dropped.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mirror {
    /// Index of the pool. It is not a pool of the route itself.
    pub pool: usize,
    /// How many of a million requests are copied.
    pub share: u32,
    /// The values that decide; empty: a random number.
    pub key: Template,
    /// Maximum size in bytes of the body of a copied request.
    pub body_max: usize,
}
