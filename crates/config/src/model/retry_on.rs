//! Which failures of an attempt are retried: `retry-on` of a pool.

/// The statuses of responses that `retry-on` may contain.
pub const RETRY_STATUSES: core::ops::RangeInclusive<u16> = 400..=599;

/// The failures after which a request is sent again, if that is safe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetryOn {
    /// The connection could not be established.
    pub connect: bool,
    /// The connection ended before the first byte of the response.
    pub reset: bool,
    /// The response did not begin within `timeouts.response-head`.
    pub timeout: bool,
    /// The head of the response could not be read: it was malformed or cut off.
    pub malformed: bool,
    /// The response has one of these statuses.
    pub statuses: Vec<u16>,
}

impl Default for RetryOn {
    fn default() -> Self {
        Self { connect: true, reset: true, timeout: false, malformed: false, statuses: Vec::new() }
    }
}
