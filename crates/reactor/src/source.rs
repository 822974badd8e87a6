//! Binds a socket to a source address before it connects, and leaves the choice of the port to `connect`.
//! In: an unbound socket. Out: the socket, bound to the address and port 0.
//! Invariant: with IP_BIND_ADDRESS_NO_PORT, the kernel chooses the port when it knows the destination, so
//! that each pair of source and destination has the whole port range (ip(7)).

use core::net::{IpAddr, SocketAddr};

use rustix::fd::{AsRawFd, BorrowedFd};
use rustix::io::Errno;

/// Binds `socket` to `source`.
///
/// # Errors
/// The error of bind(2): EADDRNOTAVAIL if no interface has that address.
pub fn bind(socket: BorrowedFd<'_>, source: IpAddr) -> Result<(), Errno> {
    let is_on: libc::c_int = 1;
    // SAFETY: the pointer refers to `is_on`, which lives until the call returns, and the length is the size
    // of `is_on`, as ip(7) requires.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_IP,
            libc::IP_BIND_ADDRESS_NO_PORT,
            (&raw const is_on).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    // A kernel without this option chooses the port in `bind`. The only effect is that ports run out sooner.
    let _ = result;
    rustix::net::bind(socket, &SocketAddr::new(source, 0))
}
