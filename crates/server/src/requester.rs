//! Requesters: the owner of a request: an HTTP/1 connection, an HTTP/2 stream, or Tidegate itself.
//! In: the carrier that decoded the request. Out: the id by which an action addresses its response.
//! Never: outlives the request. A stale requester finds nothing.

use tidegate_base::Id;
use tidegate_reactor::SockId;

use crate::carrier::http2::stream::Http2Stream;
use crate::carrier::internal_request::InternalRequest;

/// The bit that the index of a socket never has.
const OWN: u32 = 1 << 31;

/// The origin of one request. Actions send responses to it, whichever protocol it speaks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Requester {
    /// The client's connection. For a request of Tidegate's own, the id of the request, with the bit `OWN`.
    pub(crate) sock: SockId,
    /// The stream of the connection; `Id::NONE` if the protocol has no streams.
    pub(crate) stream: Id<Http2Stream>,
}

impl Requester {
    /// No requester.
    pub(crate) const NONE: Self = Self::connection(SockId::NONE);

    /// The requester of a connection that carries one exchange at a time.
    pub(crate) const fn connection(sock: SockId) -> Self {
        Self { sock, stream: Id::NONE }
    }

    /// The requester of a request of Tidegate's own.
    pub(crate) const fn own(id: Id<InternalRequest>) -> Self {
        Self { sock: SockId::new(id.index | OWN, id.generation), stream: Id::NONE }
    }

    /// The request of Tidegate's own, if this is its requester.
    #[inline]
    pub(crate) const fn as_own(self) -> Option<Id<InternalRequest>> {
        match self.sock.index & OWN != 0 && !self.sock.is_none() {
            true => Some(Id::new(self.sock.index & !OWN, self.sock.generation)),
            false => None,
        }
    }

    /// Whether the requester is a stream.
    pub(crate) const fn is_stream(self) -> bool {
        !self.stream.is_none()
    }
}

const _: () = assert!(size_of::<Requester>() <= 16);
