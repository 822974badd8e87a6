//! Gives a socket its source address before it connects, and leaves the port to `connect`.
//! In: a socket that is not bound. Out: it is bound to the address, port 0.
//! Invariant: with IP_BIND_ADDRESS_NO_PORT the kernel picks the port when it knows the other end, so
//! each destination has the whole port range of each source (ip(7)).

use core::net::{IpAddr, SocketAddr};

use rustix::fd::{AsRawFd, BorrowedFd};
use rustix::io::Errno;

/// Binds `socket` to `source`.
///
/// # Errors
/// What the kernel said: EADDRNOTAVAIL when no interface has that address.
pub(crate) fn bind(socket: BorrowedFd<'_>, source: IpAddr) -> Result<(), Errno> {
    let is_on: libc::c_int = 1;
    // SAFETY: the pointer is to `is_on`, which lives until the call returns, and the length is its size,
    // as ip(7) asks.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_IP,
            libc::IP_BIND_ADDRESS_NO_PORT,
            (&raw const is_on).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    // A kernel without the option picks the port in `bind`: it runs out of ports sooner, no more.
    let _ = result;
    rustix::net::bind(socket, &SocketAddr::new(source, 0))
}
