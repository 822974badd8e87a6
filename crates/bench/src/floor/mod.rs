//! The floor: what this machine's kernel asks for a request, with nothing but receive and send.
//! In: where to listen (and the origin, for the proxy). Out: answers until the process is stopped.
//! Never: routes, checks or limits anything; not a server to stand on the open internet.
//! Limits: `CONNECTIONS_MAX` and the descriptor limit, a thread; what is above waits in the backlog.
//! Invariant: no `epoll_ctl` after a connection's first event.

mod answer;
mod proxy;

use core::net::SocketAddr;
use rustix::event::epoll;
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, SocketFlags, SocketType};
use std::io;
use std::sync::mpsc;
use std::thread;
use tidegate_reactor::worker;

/// Connections of one thread beyond this number are closed as they come.
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
        let door = Door::open(&self.listener, epoll::EventFlags::IN)?;
        self.serve_at(&door)
    }

    /// Serves on `threads` threads, each with a descriptor table (and so a descriptor limit) of its own.
    ///
    /// # Errors
    /// What the kernel says to the first of them that ends.
    pub fn serve_on(&self, threads: u16) -> io::Result<()> {
        let (report, reports) = mpsc::channel();
        thread::scope(|scope| {
            for _ in 0..threads {
                let report = report.clone();
                scope.spawn(move || {
                    // A thread without a table of its own has a copy of the listener in it all the same.
                    let ended = worker::unshare_descriptor_table().and_then(|()| {
                        // Of the threads that wait for one listener, one is woken.
                        let flags = epoll::EventFlags::IN | epoll::EventFlags::EXCLUSIVE;
                        self.serve_at(&Door::open(&self.listener, flags)?)
                    });
                    // The receiver lives until the scope ends.
                    let _ = report.send(ended);
                });
            }
            reports.recv().unwrap_or(Ok(()))
        })
    }

    fn serve_at(&self, door: &Door<'_>) -> io::Result<()> {
        match &self.role {
            Role::Answer { content_type, body } => {
                serve_with(door, answer::Answers::new(content_type, body))
            }
            Role::Proxy(origin) => serve_with(door, proxy::Pairs::new(*origin, door.epoll.as_fd())),
        }
    }
}

/// One thread's epoll instance with the listener in it.
struct Door<'a> {
    epoll: OwnedFd,
    listener: &'a OwnedFd,
    flags: epoll::EventFlags,
}

impl<'a> Door<'a> {
    fn open(listener: &'a OwnedFd, flags: epoll::EventFlags) -> io::Result<Self> {
        let door = Self { epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?, listener, flags };
        door.watch_listener()?;
        Ok(door)
    }

    fn watch_listener(&self) -> io::Result<()> {
        let data = epoll::EventData::new_u64(self.listener.as_raw_fd() as u64);
        Ok(epoll::add(&self.epoll, self.listener, data, self.flags)?)
    }

    /// Takes what waits in the backlog; false when no descriptor is left for it.
    fn accept_all(&self, role: &mut impl Serve) -> bool {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        loop {
            match net::accept_with(self.listener, flags) {
                Ok(socket) if (socket.as_raw_fd() as usize) < CONNECTIONS_MAX => {
                    // A socket that cannot take the option is about to fail by itself.
                    let _ = net::sockopt::set_tcp_nodelay(&socket, true);
                    role.open(&self.epoll, socket);
                }
                Ok(_) | Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(error) => return !matches!(error, Errno::MFILE | Errno::NFILE),
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

fn serve_with(door: &Door<'_>, mut role: impl Serve) -> io::Result<()> {
    let mut buffer = vec![0; READ_BYTES];
    let mut events = Vec::with_capacity(EVENTS_MAX);
    let listener_fd = door.listener.as_raw_fd() as u64;
    // Full: the listener is not watched, or its connections would wake this thread for ever.
    let mut is_full = false;
    loop {
        events.clear();
        match epoll::wait(&door.epoll, rustix::buffer::spare_capacity(&mut events), None) {
            Ok(_) => {}
            Err(Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
        }
        role.begin_turn(unix_seconds());
        for event in &events {
            let fd = event.data.u64();
            if fd != listener_fd {
                role.handle_event(fd as usize, event.flags, &mut buffer);
            } else if !is_full && !door.accept_all(&mut role) {
                is_full = true;
                epoll::delete(&door.epoll, door.listener)?;
            }
        }
        // One of those events may have closed a connection.
        if is_full && door.accept_all(&mut role) {
            is_full = false;
            door.watch_listener()?;
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
