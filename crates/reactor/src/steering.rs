//! Says which listener of a group a connection goes to (SO_ATTACH_REUSEPORT_CBPF): that of the CPU that
//! received it, or, when this process stops, one of the process that takes over.
//! In: one listener of the group, and how many this process has there. Out: the group's program is set.
//! Never: decides whether steering by CPU pays (see `interrupts`), or whether this process's listeners are
//! the group's first, without which it would steer to itself: who stops knows. (A listener that closes is
//! replaced by the last one: of three processes the newest may stand first when the oldest is gone.)
//! Invariant: a program's result indexes the group in the order in which its listeners began to listen (open
//! them in CPU order). By CPU it is below the count, so the kernel never falls back to its hash; away from
//! here it is past the count, so that with nobody else in the group the kernel does. The program stays with
//! the group when its setter is gone: who steered away takes it back before its last listener closes.

use std::io;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::fd::{AsRawFd, BorrowedFd};

/// The listeners that this process has in one group and is about to close, one in each worker.
#[derive(Debug)]
pub struct LeavingListeners {
    count: u32,
    open: AtomicU32,
}

impl LeavingListeners {
    /// `count` of them, all open.
    #[must_use]
    pub fn new(count: u32) -> Self {
        Self { count, open: AtomicU32::new(count) }
    }

    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    /// One of them is about to close; tells whether it is the last.
    pub(crate) fn closes_last(&self) -> bool {
        self.open.fetch_sub(1, Ordering::AcqRel) == 1
    }
}

/// Sets the program for the whole group of `listener`, which has SO_REUSEPORT. The last one set wins.
///
/// # Errors
/// What the kernel said (EINVAL without SO_REUSEPORT).
pub(crate) fn steer_by_cpu(listener: BorrowedFd<'_>, count: u32) -> io::Result<()> {
    attach(listener, &mut by_cpu(count))
}

/// Makes the kernel deal new connections to the listeners that joined the group after the first `count`
/// of them, which are this process's: those of a process that takes over. Where there are none, or
/// fewer, it goes on to deal by its hash.
///
/// # Errors
/// What the kernel said (EINVAL without SO_REUSEPORT).
pub(crate) fn steer_away(listener: BorrowedFd<'_>, count: u32) -> io::Result<()> {
    attach(listener, &mut past(count))
}

/// Makes the kernel deal by its hash again, to whoever is left in the group.
///
/// # Errors
/// What the kernel said (EINVAL without SO_REUSEPORT).
pub(crate) fn steer_evenly(listener: BorrowedFd<'_>) -> io::Result<()> {
    attach(listener, &mut nobody())
}

/// The program: an index that no group has, which makes the kernel fall back to its hash.
fn nobody() -> [libc::sock_filter; 1] {
    [instruction(libc::BPF_RET | libc::BPF_K, u32::MAX)]
}

/// The program: load the CPU's number, take it modulo the count, return it.
fn by_cpu(count: u32) -> [libc::sock_filter; 3] {
    let cpu = (libc::SKF_AD_OFF + libc::SKF_AD_CPU) as u32;
    [
        instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, cpu),
        instruction(libc::BPF_ALU | libc::BPF_MOD | libc::BPF_K, count.max(1)),
        instruction(libc::BPF_RET | libc::BPF_A, 0),
    ]
}

/// The program: one of `count` listeners by chance, from number `count` on.
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

fn attach(listener: BorrowedFd<'_>, program: &mut [libc::sock_filter]) -> io::Result<()> {
    let filter =
        libc::sock_fprog { len: program.len() as libc::c_ushort, filter: program.as_mut_ptr() };
    // SAFETY: `filter` points to `program`, which lives until the call returns (the kernel copies it),
    // and the length passed is that of `sock_fprog`, as socket(7) asks.
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
        sockopt::set_socket_reuseport(&socket, true).expect("it may share");
        rustix::net::bind(&socket, &address).expect("the group's address");
        rustix::net::listen(&socket, 128).expect("it listens");
        let listener = TcpListener::from(socket);
        listener.set_nonblocking(true).expect("a listener can be non-blocking");
        listener
    }

    /// How many connections wait at each listener.
    fn waiting(listeners: &[TcpListener]) -> Vec<usize> {
        listeners
            .iter()
            .map(|listener| core::iter::from_fn(|| listener.accept().ok()).count())
            .collect()
    }

    #[test]
    fn connections_go_to_those_who_joined_later_and_stay_where_nobody_did() {
        const CONNECTIONS: usize = 64;
        let first = join(([127, 0, 0, 1], 0).into());
        let address = first.local_addr().expect("it is bound");
        let mut group = vec![first, join(address)];
        steer_away(group[0].as_fd(), 2).expect("it shares its port");
        let dial = || -> Vec<TcpStream> {
            (0..CONNECTIONS).map(|_| TcpStream::connect(address).expect("it listens")).collect()
        };
        let clients = dial();
        assert_eq!(waiting(&group).iter().sum::<usize>(), CONNECTIONS, "with nobody else there");
        drop(clients);
        group.extend([join(address), join(address)]);
        let clients = dial();
        let counts = waiting(&group);
        assert_eq!((counts[0], counts[1]), (0, 0), "{counts:?}");
        assert_eq!(counts.iter().sum::<usize>(), CONNECTIONS);
        drop(clients);
    }
}
