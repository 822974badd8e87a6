//! The floor is the CPU time that the kernel takes for a small request. No server can spend less.
//! This module is a server that only receives and sends, so measuring it gives the floor of this machine.
//! In: the address to listen on (and the origin, for the proxy). Out: responses until the process is stopped.
//! Never: routes, checks or limits requests; it must not be reachable from the internet.
//! Limits, for each thread: `CONNECTIONS_MAX` (further connections are closed) and the descriptor limit
//! (further connections wait in the backlog).
//! Invariant: no `epoll_ctl` for a connection after its registration.

mod answer;
mod proxy;
mod push;

use core::net::SocketAddr;
use rustix::event::epoll;
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, SocketFlags, SocketType};
use std::io;
use std::sync::mpsc;
use std::thread;
use tidegate_reactor::worker;

/// A thread closes a new connection whose descriptor number is this or higher.
pub const CONNECTIONS_MAX: usize = 65_536;
/// Largest number of bytes of one receive call.
const READ_BYTES: usize = 256 * 1024;
/// Largest number of events of one wait call.
const EVENTS_MAX: usize = 512;
/// The body of the base case: 27 bytes.
pub const JSON_BODY: &str = "{\"message\":\"Hello, World!\"}";
/// The body of the pipelining case: 13 bytes.
pub const PLAINTEXT_BODY: &str = "Hello, World!";

/// The response of the floor server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Role {
    /// The same response to every request.
    Answer {
        /// Its Content-Type.
        content_type: String,
        /// Its body.
        body: Vec<u8>,
    },
    /// The bytes that this origin sends, over one upstream connection for each downstream connection.
    Proxy(SocketAddr),
}

/// A floor server with an open listener.
pub struct Floor {
    listener: OwnedFd,
    address: SocketAddr,
    role: Role,
}

impl Floor {
    /// Opens the listener, without SO_REUSEPORT: a port that is in use is an error.
    ///
    /// # Errors
    /// The error of socket, bind or listen.
    pub fn listen(address: SocketAddr, role: Role) -> io::Result<Self> {
        let listener = net::socket_with(
            family(address),
            SocketType::STREAM,
            SocketFlags::NONBLOCK | SocketFlags::CLOEXEC,
            None,
        )?;
        net::sockopt::set_socket_reuseaddr(&listener, true)?;
        net::bind(&listener, &address)?;
        net::listen(&listener, 65_535)?;
        let address = SocketAddr::try_from(net::getsockname(&listener)?)?;
        Ok(Self { listener, address, role })
    }

    /// The address of the listener; the actual port if port 0 was requested.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves on this thread until polling fails; a signal ends the process.
    ///
    /// # Errors
    /// The error of epoll.
    pub fn serve(self) -> io::Result<()> {
        let acceptor = Acceptor::open(&self.listener, epoll::EventFlags::IN)?;
        self.serve_at(&acceptor)
    }

    /// Serves on `threads` threads, each with its own descriptor table and therefore its own descriptor
    /// limit.
    ///
    /// # Errors
    /// The error of the first thread that ends.
    pub fn serve_on(&self, threads: u16) -> io::Result<()> {
        let (report, reports) = mpsc::channel();
        thread::scope(|scope| {
            for _ in 0..threads {
                let report = report.clone();
                scope.spawn(move || {
                    // The thread's own descriptor table contains a copy of the listener.
                    let ended = worker::unshare_descriptor_table().and_then(|()| {
                        // EXCLUSIVE: a new connection wakes one of the threads that wait for this listener.
                        let flags = epoll::EventFlags::IN | epoll::EventFlags::EXCLUSIVE;
                        self.serve_at(&Acceptor::open(&self.listener, flags)?)
                    });
                    // The receiver lives until the scope ends.
                    let _ = report.send(ended);
                });
            }
            reports.recv().unwrap_or(Ok(()))
        })
    }

    fn serve_at(&self, acceptor: &Acceptor<'_>) -> io::Result<()> {
        match &self.role {
            Role::Answer { content_type, body } => {
                serve_with(acceptor, answer::Answers::new(content_type, body))
            }
            Role::Proxy(origin) => {
                serve_with(acceptor, proxy::Pairs::new(*origin, acceptor.epoll.as_fd()))
            }
        }
    }
}

/// One thread's epoll instance, with the listener registered in it.
struct Acceptor<'a> {
    epoll: OwnedFd,
    listener: &'a OwnedFd,
    /// The events for which the listener is registered.
    flags: epoll::EventFlags,
}

impl<'a> Acceptor<'a> {
    fn open(listener: &'a OwnedFd, flags: epoll::EventFlags) -> io::Result<Self> {
        let acceptor = Self { epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?, listener, flags };
        acceptor.watch_listener()?;
        Ok(acceptor)
    }

    fn watch_listener(&self) -> io::Result<()> {
        let data = epoll::EventData::new_u64(self.listener.as_raw_fd() as u64);
        Ok(epoll::add(&self.epoll, self.listener, data, self.flags)?)
    }

    /// Accepts all connections in the backlog; false if the thread ran out of descriptors.
    fn accept_all(&self, role: &mut impl Serve) -> bool {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        loop {
            match net::accept_with(self.listener, flags) {
                Ok(socket) if (socket.as_raw_fd() as usize) < CONNECTIONS_MAX => {
                    // A socket that rejects this option fails on its next use anyway.
                    let _ = net::sockopt::set_tcp_nodelay(&socket, true);
                    role.open(&self.epoll, socket);
                }
                Ok(_) | Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(error) => return !matches!(error, Errno::MFILE | Errno::NFILE),
            }
        }
    }
}

/// The part of the server that differs between responding and proxying.
trait Serve {
    /// Takes over an accepted connection.
    fn open(&mut self, epoll: &OwnedFd, socket: OwnedFd);
    /// Handles an epoll event of descriptor `fd`.
    fn handle_event(&mut self, fd: usize, flags: epoll::EventFlags, buffer: &mut [u8]);
    /// Begins a turn; `unix_seconds` is the time for the Date field.
    fn begin_turn(&mut self, unix_seconds: u64);
}

fn serve_with(acceptor: &Acceptor<'_>, mut role: impl Serve) -> io::Result<()> {
    let mut buffer = vec![0; READ_BYTES];
    let mut events = Vec::with_capacity(EVENTS_MAX);
    let listener_fd = acceptor.listener.as_raw_fd() as u64;
    // If no descriptor is left, the listener is removed from epoll. Otherwise its backlog would wake this thread
    // over and over.
    let mut is_full = false;
    loop {
        events.clear();
        match epoll::wait(&acceptor.epoll, rustix::buffer::spare_capacity(&mut events), None) {
            Ok(_) => {}
            Err(Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
        }
        role.begin_turn(unix_seconds());
        for event in &events {
            let fd = event.data.u64();
            if fd != listener_fd {
                role.handle_event(fd as usize, event.flags, &mut buffer);
            } else if !is_full && !acceptor.accept_all(&mut role) {
                is_full = true;
                epoll::delete(&acceptor.epoll, acceptor.listener)?;
            }
        }
        // These events may have closed a connection and freed its descriptor.
        if is_full && acceptor.accept_all(&mut role) {
            is_full = false;
            acceptor.watch_listener()?;
        }
    }
}

/// Registers `socket` permanently: both directions, edge-triggered.
fn watch(epoll: impl AsFd, socket: &OwnedFd) -> bool {
    epoll::add(
        epoll,
        socket,
        epoll::EventData::new_u64(socket.as_raw_fd() as u64),
        epoll::EventFlags::IN
            | epoll::EventFlags::OUT
            | epoll::EventFlags::RDHUP
            | epoll::EventFlags::ET,
    )
    .is_ok()
}

fn family(address: SocketAddr) -> AddressFamily {
    if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 }
}

fn unix_seconds() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::RealtimeCoarse);
    u64::try_from(time.tv_sec).unwrap_or(0)
}
