//! Chooses the listener of a SO_REUSEPORT group for each connection (SO_ATTACH_REUSEPORT_CBPF): the listener
//! of the receiving CPU, or, while this process stops, a listener of the process that takes over.
//! In: one listener of the group, and the number of this process's listeners in it. Out: the group's program.
//! Never: decides whether steering by CPU is worthwhile (see `interrupts`); checks that this process's listeners
//! are the first of the group. If they are not, `steer_away` would steer connections to this process itself, so
//! the caller must ensure it. (The kernel moves the last listener into the place of a closed one. So with three
//! processes, the newest may be first after the oldest has ended.)
//! Invariant: a program's result is an index into the group, in the order in which the listeners began to
//! listen (open them in CPU order). When steering by CPU, the result is below the count, so the kernel never
//! falls back to its hash. When steering away, the result is at least the count, so the kernel falls back to
//! its hash if no other process is in the group. The program stays with the group after its process has
//! ended, so a process that steered away must reset the program before its last listener closes.

use std::io;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::fd::{AsRawFd, BorrowedFd};

/// The listeners of this process in one group, one in each worker, which are about to close.
#[derive(Debug)]
pub struct LeavingListeners {
    /// How many listeners there were at first.
    count: u32,
    /// How many listeners are still open.
    open: AtomicU32,
}

impl LeavingListeners {
    /// Describes `count` listeners, all of them open.
    #[must_use]
    pub fn new(count: u32) -> Self {
        Self { count, open: AtomicU32::new(count) }
    }

    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    /// Records that one listener is about to close; true if it is the last.
    pub(crate) fn closes_last(&self) -> bool {
        self.open.fetch_sub(1, Ordering::AcqRel) == 1
    }
}

/// Steers by CPU in the group of `listener`, which must have SO_REUSEPORT. A group has one program: setting
/// one replaces the previous one.
///
/// # Errors
/// The error of setsockopt(2) (EINVAL without SO_REUSEPORT).
pub(crate) fn steer_by_cpu(listener: BorrowedFd<'_>, count: u32) -> io::Result<()> {
    attach(listener, &mut by_cpu(count))
}

/// Makes the kernel assign new connections to the listeners of a process that takes over: those that joined
/// the group after the first `count` listeners, which belong to this process. A result beyond the end of
/// the group, because fewer or no listeners have joined, falls back to the kernel's hash.
///
/// # Errors
/// The error of setsockopt(2) (EINVAL without SO_REUSEPORT).
pub(crate) fn steer_away(listener: BorrowedFd<'_>, count: u32) -> io::Result<()> {
    attach(listener, &mut past(count))
}

/// Makes the kernel distribute connections by its hash again, over all remaining listeners of the group.
///
/// # Errors
/// The error of setsockopt(2) (EINVAL without SO_REUSEPORT).
pub(crate) fn steer_evenly(listener: BorrowedFd<'_>) -> io::Result<()> {
    attach(listener, &mut out_of_range())
}

/// A program that returns an index beyond every group, so that the kernel falls back to its hash.
fn out_of_range() -> [libc::sock_filter; 1] {
    [instruction(libc::BPF_RET | libc::BPF_K, u32::MAX)]
}

/// A program that returns the number of the receiving CPU modulo `count`.
fn by_cpu(count: u32) -> [libc::sock_filter; 3] {
    let cpu = (libc::SKF_AD_OFF + libc::SKF_AD_CPU) as u32;
    [
        instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, cpu),
        instruction(libc::BPF_ALU | libc::BPF_MOD | libc::BPF_K, count.max(1)),
        instruction(libc::BPF_RET | libc::BPF_A, 0),
    ]
}

/// A program that returns a random index in `count..2 * count`.
fn past(count: u32) -> [libc::sock_filter; 4] {
    let random = (libc::SKF_AD_OFF + libc::SKF_AD_RANDOM) as u32;
    [
        instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, random),
        instruction(libc::BPF_ALU | libc::BPF_MOD | libc::BPF_K, count.max(1)),
        instruction(libc::BPF_ALU | libc::BPF_ADD | libc::BPF_K, count),
        instruction(libc::BPF_RET | libc::BPF_A, 0),
    ]
}

const fn instruction(code: u32, k: u32) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt: 0, jf: 0, k }
}

/// Sets the program of the listener's group.
fn attach(listener: BorrowedFd<'_>, program: &mut [libc::sock_filter]) -> io::Result<()> {
    let filter =
        libc::sock_fprog { len: program.len() as libc::c_ushort, filter: program.as_mut_ptr() };
    // SAFETY: `filter` points to `program`, which lives until the call returns (the kernel copies it), and
    // the length passed is the size of `sock_fprog`, as socket(7) requires.
    let result = unsafe {
        libc::setsockopt(
            listener.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_REUSEPORT_CBPF,
            (&raw const filter).cast(),
            size_of::<libc::sock_fprog>() as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use std::net::{SocketAddr, TcpListener, TcpStream};

    use rustix::fd::{AsFd, OwnedFd};
    use rustix::net::{AddressFamily, SocketType, sockopt};

    use super::*;

    fn join(address: SocketAddr) -> TcpListener {
        let socket: OwnedFd =
            rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).expect("a socket");
        sockopt::set_socket_reuseport(&socket, true).expect("SO_REUSEPORT is supported");
        rustix::net::bind(&socket, &address).expect("the group's address");
        rustix::net::listen(&socket, 128).expect("the socket is bound");
        let listener = TcpListener::from(socket);
        listener.set_nonblocking(true).expect("a listener can be non-blocking");
        listener
    }

    /// Accepts all waiting connections and returns their number for each listener.
    fn waiting(listeners: &[TcpListener]) -> Vec<usize> {
        listeners
            .iter()
            .map(|listener| core::iter::from_fn(|| listener.accept().ok()).count())
            .collect()
    }

    #[test]
    fn connections_go_to_later_listeners_and_stay_if_there_are_none() {
        const CONNECTIONS: usize = 64;
        let first = join(([127, 0, 0, 1], 0).into());
        let address = first.local_addr().expect("the listener is bound");
        let mut group = vec![first, join(address)];
        steer_away(group[0].as_fd(), 2).expect("the listener has SO_REUSEPORT");
        let dial = || -> Vec<TcpStream> {
            (0..CONNECTIONS)
                .map(|_| TcpStream::connect(address).expect("a listener is open"))
                .collect()
        };
        let clients = dial();
        assert_eq!(
            waiting(&group).iter().sum::<usize>(),
            CONNECTIONS,
            "all connections must arrive without another process"
        );
        drop(clients);
        group.extend([join(address), join(address)]);
        let clients = dial();
        let counts = waiting(&group);
        assert_eq!((counts[0], counts[1]), (0, 0), "{counts:?}");
        assert_eq!(counts.iter().sum::<usize>(), CONNECTIONS);
        drop(clients);
    }
}
