//! The floor: what this machine's kernel asks for a request, with nothing but receive and send.
//! In: where to listen (and the origin, for the proxy). Out: answers until the process is stopped.
//! Never: routes, checks or limits anything; not a server to stand on the open internet.
//! Limits: `CONNECTIONS_MAX`. Invariant: no `epoll_ctl` after a connection's first event.

mod answer;
mod proxy;

use core::net::SocketAddr;
use rustix::event::epoll;
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, SocketFlags, SocketType};
use std::io;

/// Connections beyond this number are closed as they come.
pub const CONNECTIONS_MAX: usize = 65_536;
/// Bytes taken from a socket at once.
const READ_BYTES: usize = 256 * 1024;
/// Events taken from the kernel at once.
const EVENTS_MAX: usize = 512;
/// The base case of MEASURE.md: 27 bytes.
pub const JSON_BODY: &str = "{\"message\":\"Hello, World!\"}";
/// The pipelining case's body: 13 bytes.
pub const PLAINTEXT_BODY: &str = "Hello, World!";

/// What the floor server sends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Role {
    /// The same answer to every request.
    Answer {
        /// Its Content-Type.
        content_type: String,
        /// Its body.
        body: Vec<u8>,
    },
    /// Whatever this origin sends, over one upstream connection for each downstream connection.
    Proxy(SocketAddr),
}

/// A floor server that listens already.
pub struct Floor {
    listener: OwnedFd,
    address: SocketAddr,
    role: Role,
}

impl Floor {
    /// Opens the listener (without SO_REUSEPORT: a taken port is refused).
    ///
    /// # Errors
    /// What the kernel says to socket, bind or listen.
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

    /// Where it listens (with the real port when port 0 was asked).
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves on this thread until the kernel refuses to poll; a signal ends the process.
    ///
    /// # Errors
    /// What the kernel says to epoll.
    pub fn serve(self) -> io::Result<()> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(
            &epoll,
            &self.listener,
            epoll::EventData::new_u64(self.listener.as_raw_fd() as u64),
            epoll::EventFlags::IN,
        )?;
        match self.role {
            Role::Answer { content_type, body } => {
                let answers = answer::Answers::new(&content_type, &body);
                serve_with(&epoll, &self.listener, answers)
            }
            Role::Proxy(origin) => {
                serve_with(&epoll, &self.listener, proxy::Pairs::new(origin, epoll.as_fd()))
            }
        }
    }
}

/// What differs between the two roles.
trait Serve {
    /// A connection came in.
    fn open(&mut self, epoll: &OwnedFd, socket: OwnedFd);
    /// The kernel said that something changed for descriptor `fd`.
    fn handle_event(&mut self, fd: usize, flags: epoll::EventFlags, buffer: &mut [u8]);
    /// A turn begins: `unix_seconds` for the Date field.
    fn begin_turn(&mut self, unix_seconds: u64);
}

fn serve_with(epoll: &OwnedFd, listener: &OwnedFd, mut role: impl Serve) -> io::Result<()> {
    let mut buffer = vec![0; READ_BYTES];
    let mut events = Vec::with_capacity(EVENTS_MAX);
    let listener_fd = listener.as_raw_fd() as u64;
    loop {
        events.clear();
        match epoll::wait(epoll, rustix::buffer::spare_capacity(&mut events), None) {
            Ok(_) => {}
            Err(Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
        }
        role.begin_turn(unix_seconds());
        for event in &events {
            let fd = event.data.u64();
            if fd == listener_fd {
                accept_all(epoll, listener, &mut role);
            } else {
                role.handle_event(fd as usize, event.flags, &mut buffer);
            }
        }
    }
}

fn accept_all(epoll: &OwnedFd, listener: &OwnedFd, role: &mut impl Serve) {
    while let Ok(socket) = net::accept_with(listener, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC)
    {
        if (socket.as_raw_fd() as usize) < CONNECTIONS_MAX {
            // A socket that cannot take the option is about to fail by itself.
            let _ = net::sockopt::set_tcp_nodelay(&socket, true);
            role.open(epoll, socket);
        }
    }
}

/// Registers `socket` once and for all: both directions, edge-triggered.
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
