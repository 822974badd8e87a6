//! Responders: the connection (HTTP/1) or the stream (HTTP/2) over which a request is sent to a server.
//! In: the connection that was chosen for a request. Out: the id by which the action `proxy` addresses that connection.
//! Never: outlives the attempt. A stale responder finds nothing.

use tidegate_base::Id;
use tidegate_reactor::SockId;

use crate::carrier::http2::server_stream::ServerStream;

/// The origin of one response. The counterpart of `Requester`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Responder {
    /// The server's connection.
    pub(crate) sock: SockId,
    /// The stream of the connection; `Id::NONE` if the protocol has no streams.
    pub(crate) stream: Id<ServerStream>,
}

impl Responder {
    /// No connection.
    pub(crate) const NONE: Self = Self::connection(SockId::NONE);

    /// The responder of a connection that carries one exchange at a time.
    pub(crate) const fn connection(sock: SockId) -> Self {
        Self { sock, stream: Id::NONE }
    }

    /// Whether there is no connection.
    pub(crate) fn is_none(self) -> bool {
        self.sock.is_none()
    }

    /// Whether the responder is a stream.
    pub(crate) const fn is_stream(self) -> bool {
        !self.stream.is_none()
    }
}

const _: () = assert!(size_of::<Responder>() <= 16);
