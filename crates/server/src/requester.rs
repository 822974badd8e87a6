//! Who made a request: a connection of HTTP/1, or a stream of a connection.
//! In: the carrier that decoded the request. Out: the id by which an action addresses its response.
//! Never: outlives the request. A stale requester finds nothing.

use tidegate_reactor::SockId;

/// The maker of one request. Actions send responses to it and never ask which protocol it speaks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Requester {
    /// The client's connection.
    pub(crate) sock: SockId,
    /// The stream of the connection; `WHOLE` if the protocol has no streams.
    pub(crate) stream: u32,
}

impl Requester {
    /// The stream number of a connection without streams.
    pub(crate) const WHOLE: u32 = 0;

    /// The requester of a connection that carries one exchange at a time.
    pub(crate) const fn connection(sock: SockId) -> Self {
        Self { sock, stream: Self::WHOLE }
    }
}

const _: () = assert!(size_of::<Requester>() <= 12);
