//! Servers that are avoided because their requests fail.
//! In: the reader of pools. Out: plain data.

use tidegate_base::Span;

/// `eject` of a pool. At least one of `failures` and `errors` is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Eject {
    /// Failures in a row with which a server is ejected; `None`: any number.
    pub failures: Option<u32>,
    /// Failures in a hundred requests with which a server is ejected; `None`: any.
    pub errors: Option<u8>,
    /// How long a server is avoided the first time.
    pub span: Span,
    /// How many servers in a hundred may be avoided at once.
    pub ejected_max: u8,
    /// How many times as long as those of the other servers its responses take if a server is ejected for that; `None`: any times.
    pub latency: Option<u32>,
    /// If fewer servers in a hundred pass their checks, all are used; `None`: only those.
    pub panic: Option<u8>,
}

/// `retry-budget` of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryBudget {
    /// Retries for a hundred requests.
    pub percent: u8,
    /// Retries within 10 s that are allowed in any case, in all workers together.
    pub min: u32,
}
