//! Limits of the bandwidth of requests.
//! In: the reader of routes. Out: plain data.

/// `bandwidth` of a route: how fast the bodies of one request are transferred. At least one direction is limited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bandwidth {
    /// Bytes of the response body per second; at least 1024. `None`: unlimited.
    pub down: Option<u64>,
    /// Bytes of the request body per second; at least 1024. `None`: unlimited.
    pub up: Option<u64>,
    /// Bytes of the response body that are sent before `down` applies.
    pub after: u64,
}
