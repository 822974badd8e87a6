//! The floor of a push server: a bare loop of send calls over all connections.
//! In: connections, which are all subscribers until they send something; a publication as `bench push` sends it.
//! Out: the data of the publication as a WebSocket text frame, in one send call for each subscriber.
//! Never: does a handshake, checks a key, keeps a message for a slow client.
//! Limits: `PUBLICATION_BYTES_MAX` of a publication, which must arrive in one read.
//! Invariant: a frame is encoded once for all threads. Each thread sends to its own connections.

use super::{CONNECTIONS_MAX, Floor};
use core::sync::atomic::{AtomicBool, Ordering};
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{self, RecvFlags, SendFlags, SocketFlags, sockopt};
use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use tidegate_reactor::worker;

/// Largest request that publishes.
const PUBLICATION_BYTES_MAX: usize = 80 * 1024;
/// Largest number of events of one wait call.
const EVENTS_MAX: usize = 512;
/// How many connections are accepted before the events of other connections are handled.
const ACCEPTS_PER_TURN_MAX: usize = 64;
/// The data of the thread's own descriptors in epoll. Descriptors of connections are lower.
const LISTENER: u64 = u64::MAX;
const WAKER: u64 = u64::MAX - 1;
const RESPONSE: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 13\r\n\r\n{\"result\":{}}";
const REFUSAL: &[u8] = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n";

/// The frames that all threads have passed to one thread.
struct Inbox {
    /// The frames, oldest first.
    frames: Mutex<VecDeque<Arc<[u8]>>>,
    /// Created before the threads unshare their descriptor tables, so that each table contains it.
    event: OwnedFd,
    /// A wake-up is pending: `event` was written, and `send_frames` has not begun since.
    is_rung: AtomicBool,
}

impl Inbox {
    fn frames(&self) -> MutexGuard<'_, VecDeque<Arc<[u8]>>> {
        // A thread that panicked left the queue as it was.
        self.frames.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Floor {
    /// Serves as the floor of a push server on `threads` threads, until polling fails; a signal ends the process.
    ///
    /// # Errors
    /// The error of epoll that ended the first thread.
    pub fn serve_push(&self, threads: u16) -> io::Result<()> {
        let mut inboxes = Vec::new();
        for _ in 0..threads {
            let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
            let (frames, is_rung) = (Mutex::default(), AtomicBool::new(false));
            inboxes.push(Inbox { frames, event, is_rung });
        }
        let (report, reports) = mpsc::channel();
        thread::scope(|scope| {
            for own in 0..usize::from(threads) {
                let (report, inboxes) = (report.clone(), &inboxes);
                scope.spawn(move || {
                    let ended = worker::unshare_descriptor_table()
                        .and_then(|()| Subscribers::new(&self.listener, inboxes, own)?.serve());
                    // The receiver lives until the scope ends.
                    let _ = report.send(ended);
                });
            }
            reports.recv().unwrap_or(Ok(()))
        })
    }
}

/// The connections of one thread.
struct Subscribers<'a> {
    /// Watches the listener, the connections and the event of the own inbox.
    epoll: OwnedFd,
    /// Accepts connections; shared by all threads.
    listener: &'a OwnedFd,
    /// The inboxes of all threads.
    inboxes: &'a [Inbox],
    /// The index of this thread's inbox.
    own: usize,
    /// The connections, indexed by descriptor number.
    connections: Vec<Option<OwnedFd>>,
    /// The descriptors of connections that have published.
    publishers: Vec<usize>,
    /// The bytes of one read.
    buffer: Vec<u8>,
}

impl<'a> Subscribers<'a> {
    fn new(listener: &'a OwnedFd, inboxes: &'a [Inbox], own: usize) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let exclusive = EventFlags::IN | EventFlags::EXCLUSIVE;
        epoll::add(&epoll, listener, EventData::new_u64(LISTENER), exclusive)?;
        let event = &inboxes[own].event;
        epoll::add(&epoll, event, EventData::new_u64(WAKER), EventFlags::IN | EventFlags::ET)?;
        let (connections, publishers) = (Vec::new(), Vec::new());
        let buffer = vec![0; PUBLICATION_BYTES_MAX];
        Ok(Self { epoll, listener, inboxes, own, connections, publishers, buffer })
    }

    fn serve(mut self) -> io::Result<()> {
        let mut events = Vec::with_capacity(EVENTS_MAX);
        let mut is_full = false;
        loop {
            events.clear();
            match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), None) {
                Ok(_) => {}
                Err(Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            }
            for event in &events {
                match event.data.u64() {
                    LISTENER => {
                        if !is_full && !self.accept() {
                            // Other threads have descriptors left.
                            is_full = true;
                            epoll::delete(&self.epoll, self.listener)?;
                        }
                    }
                    WAKER => self.send_frames(),
                    fd => self.receive(fd as usize),
                }
            }
        }
    }

    /// Accepts connections; false if no descriptor is left.
    fn accept(&mut self) -> bool {
        for _ in 0..ACCEPTS_PER_TURN_MAX {
            match net::accept_with(self.listener, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
                Ok(socket) if (socket.as_raw_fd() as usize) < CONNECTIONS_MAX => {
                    // A socket that rejects this option fails on its next use anyway.
                    let _ = sockopt::set_tcp_nodelay(&socket, true);
                    let fd = socket.as_raw_fd() as usize;
                    let watched = EventFlags::IN | EventFlags::RDHUP | EventFlags::ET;
                    let data = EventData::new_u64(fd as u64);
                    if epoll::add(&self.epoll, &socket, data, watched).is_ok() {
                        if self.connections.len() <= fd {
                            self.connections.resize_with(fd + 1, || None);
                        }
                        self.connections[fd] = Some(socket);
                    }
                }
                Ok(_) | Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(error) => return !matches!(error, Errno::MFILE | Errno::NFILE),
            }
        }
        true
    }

    /// Handles the input of a connection: a publication, or the end of the connection.
    fn receive(&mut self, fd: usize) {
        let Some(Some(socket)) = self.connections.get(fd) else { return };
        loop {
            match net::recv(socket, &mut *self.buffer, RecvFlags::empty()) {
                Ok((length @ 1.., _)) => {
                    if !self.publishers.contains(&fd) {
                        self.publishers.push(fd);
                    }
                    let frame = publication(&self.buffer[..length]).map(encode_frame);
                    if let Some(frame) = &frame {
                        for inbox in self.inboxes {
                            inbox.frames().push_back(Arc::clone(frame));
                            if !inbox.is_rung.swap(true, Ordering::SeqCst) {
                                let _ = rustix::io::write(&inbox.event, &1_u64.to_ne_bytes());
                            }
                        }
                    }
                    let response = if frame.is_some() { RESPONSE } else { REFUSAL };
                    let _ = net::send(socket, response, SendFlags::NOSIGNAL);
                }
                Err(Errno::AGAIN) => return,
                Err(Errno::INTR) => {}
                Ok(_) | Err(_) => break,
            }
        }
        self.connections[fd] = None;
        self.publishers.retain(|publisher| *publisher != fd);
    }

    /// Sends the publications in the inbox: the loop whose time is the floor.
    fn send_frames(&mut self) {
        let inbox = &self.inboxes[self.own];
        // The watch is edge-triggered and each ring writes, so the count need not be read.
        inbox.is_rung.store(false, Ordering::SeqCst);
        loop {
            let Some(frame) = inbox.frames().pop_front() else { return };
            for (fd, socket) in self.connections.iter().enumerate() {
                let Some(socket) = socket else { continue };
                if !self.publishers.contains(&fd) {
                    // A send fails if the client is slow or has disconnected. The next read notices the disconnect.
                    let _ = net::send(socket, &frame, SendFlags::NOSIGNAL);
                }
            }
        }
    }
}

/// The data of a publication: the body's last member, as `bench push` writes it.
fn publication(request: &[u8]) -> Option<&[u8]> {
    const MEMBER: &[u8] = b"\"data\":";
    let at = memchr::memmem::find(request, MEMBER)? + MEMBER.len();
    request[at..].strip_suffix(b"}")
}

/// A text frame of a server (RFC 6455 section 5.2).
fn encode_frame(data: &[u8]) -> Arc<[u8]> {
    let mut frame = Vec::with_capacity(data.len() + 10);
    tidegate_wire::websocket::encode_message(
        &mut frame,
        tidegate_wire::websocket::Kind::Text,
        data,
        None,
    );
    frame.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_of_a_publication_becomes_one_frame() {
        let request = b"POST / HTTP/1.1\r\n\r\n{\"channel\":\"a\",\"data\":1042000000005}";
        assert_eq!(publication(request), Some(&b"1042000000005"[..]));
        assert_eq!(&encode_frame(b"hi")[..], b"\x81\x02hi");
        assert_eq!(publication(b"GET / HTTP/1.1\r\n\r\n"), None);
    }
}
