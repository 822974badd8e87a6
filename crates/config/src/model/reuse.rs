//! Reuse of connections to servers.
//! In: the reader of pools. Out: plain data.

use tidegate_base::Span;

/// Reuse of upstream connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reuse {
    /// Maximum number of idle connections kept for each server and worker.
    pub idle_max: u32,
    /// How long an idle connection is kept.
    pub idle_timeout: Span,
    /// Number of requests on one connection before it is closed; `None`: unlimited.
    pub requests_max: Option<u32>,
    /// Whether a connection is reused after a request that had a body.
    pub after_body: bool,
    /// Whether a connection is reused after a request whose body the server may not expect, such as a GET with a
    /// body.
    pub after_unexpected_body: bool,
    /// Whether an HTTP/1.1 connection is reused after a request whose body was sent in chunks.
    pub after_chunked_body: bool,
    /// Which idle connections may carry a request that cannot be retried.
    pub unretriable: Unretriable,
}

/// `reuse.unretriable` of a pool: which idle connections may carry a request that cannot be retried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unretriable {
    /// Connections that have been idle for less than half the time that the server is known to keep them open.
    Proven,
    /// All idle connections.
    Always,
    /// No idle connection: each such request opens a new one.
    Never,
}

impl Default for Reuse {
    fn default() -> Self {
        Self {
            idle_max: 16_384,
            idle_timeout: Span::from_secs(30),
            requests_max: None,
            after_body: true,
            after_unexpected_body: false,
            after_chunked_body: false,
            unretriable: Unretriable::Proven,
        }
    }
}
