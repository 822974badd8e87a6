//! The kernel's send queue of a socket (SIOCOUTQ), which `rustix` does not wrap.
//! In: a stream socket. Out: the bytes that its peer has not acknowledged.
//! Never: blocks or changes the socket.

use rustix::fd::BorrowedFd;
use rustix::ioctl::{self, Getter};

/// SIOCOUTQ has the same value as TIOCOUTQ (linux/sockios.h), which Linux defines for every architecture.
const SIOCOUTQ: ioctl::Opcode = libc::TIOCOUTQ as ioctl::Opcode;

/// The bytes in the send queue of `socket`: sent and not acknowledged, or not sent yet. For a TCP socket, a
/// FIN counts as one byte. For a unix socket, the unit is memory, which the peer frees by reading. 0 if the
/// kernel reports an error.
pub(crate) fn unacknowledged(socket: BorrowedFd<'_>) -> usize {
    // SAFETY: SIOCOUTQ writes one C integer and nothing else (tcp(7), unix(7)).
    let queued = unsafe { ioctl::ioctl(socket, Getter::<SIOCOUTQ, libc::c_int>::new()) };
    queued.map_or(0, |bytes| usize::try_from(bytes).unwrap_or(0))
}
