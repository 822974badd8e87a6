//! Timeouts of a route that replace those of its pools.
//! In: the reader of routes. Out: plain data.

use tidegate_base::Span;

use super::ServerTimeouts;

/// `timeouts` of a route. `None`: that of the pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct RouteTimeouts {
    /// Time from the end of the request to the head of the response.
    pub response_head: Option<Span>,
    /// Time without a byte of a body.
    pub body: Option<Span>,
    /// Time without a byte in either direction of a tunnel.
    pub tunnel: Option<Span>,
}

impl RouteTimeouts {
    /// The timeouts of a request of the route to a server of a pool with the timeouts `of_pool`.
    #[must_use]
    pub fn over(&self, of_pool: &ServerTimeouts) -> ServerTimeouts {
        ServerTimeouts {
            response_head: self.response_head.unwrap_or(of_pool.response_head),
            body: self.body.unwrap_or(of_pool.body),
            tunnel: self.tunnel.unwrap_or(of_pool.tunnel),
            ..*of_pool
        }
    }
}
