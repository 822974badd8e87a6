//! Limits of the rate of requests.
//! In: the reader of routes. Out: plain data.

use tidegate_base::Span;

use super::{Placeholder, Template};

/// `rate`: how many requests with the same key a route serves.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rate {
    /// The number of requests in each period; at least 1.
    pub count: u32,
    /// The period.
    pub per: Span,
    /// How many requests may arrive at once; at least 1.
    pub burst: u32,
    /// The key: the values of the request that are counted together. Empty values are replaced by the client's address.
    pub key: Template,
    /// The number of keys that are counted at the same time.
    pub keys_max: u32,
    /// What happens to a request above the limit.
    pub then: RateExcess,
    /// How long a request waits for its 429 response. Only with `RateExcess::Tarpit`.
    pub wait: Span,
    /// How many requests wait at the same time, in all workers together. Only with `RateExcess::Tarpit`.
    pub waiting_max: u32,
}

impl Rate {
    /// Whether a claim of the token is a part of the key, so that the token must be verified first.
    #[must_use]
    pub fn needs_token(&self) -> bool {
        self.key.placeholders().any(|part| matches!(part, Placeholder::Claim(_)))
    }
}

/// What happens to a request above the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RateExcess {
    /// It gets a 429 response.
    Deny,
    /// It waits, and then gets a 429 response.
    Tarpit,
    /// Its connection is closed, or its stream reset, without a response.
    Drop,
}
