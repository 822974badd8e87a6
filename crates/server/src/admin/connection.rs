//! A connection of the admin interface, and the places that connections take.
//! In: accepted sockets. Out: bytes until a deadline; the close of a connection that a new one displaces.
//! Never: lets a client without the token keep a place: until its first request or line and its token are complete, a
//! client has `REQUEST_SPAN` in all, and its connection is closed for a new one if all places are taken.
//! Limits: `CONNECTIONS_MAX` connections, as many more whose commands wait or have waited and are being answered, and as many more that
//! are ending.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use tidegate_wire::tls::TlsSession;

use crate::secured::Secured;

/// Connections at once.
pub(super) const CONNECTIONS_MAX: usize = 16;
/// How long a client has from its connection until its first request or line, and its token, are complete.
const REQUEST_SPAN: Duration = Duration::from_secs(10);
/// How long a client without the token may take after that to read the refusal.
const REFUSAL_SPAN: Duration = Duration::from_secs(1);
/// How long a client may take to read a reply.
const REPLY_SPAN: Duration = Duration::from_secs(30);

/// How many bytes of a client are decrypted while its command runs.
const EARLY_BYTES_MAX: usize = 16 * 1024;

/// How long a process that is about to exit waits until replies are sent.
const REPLIES_SPAN: Duration = Duration::from_secs(1);
/// How often the process checks whether they are sent.
const POLL_EVERY: Duration = Duration::from_millis(2);

/// A socket of a client.
pub(super) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Stream {
    fn set_timeout(&self, is_read: bool, span: Duration) -> io::Result<()> {
        match (self, is_read) {
            (Self::Tcp(stream), true) => stream.set_read_timeout(Some(span)),
            (Self::Tcp(stream), false) => stream.set_write_timeout(Some(span)),
            (Self::Unix(stream), true) => stream.set_read_timeout(Some(span)),
            (Self::Unix(stream), false) => stream.set_write_timeout(Some(span)),
        }
    }

    /// Ends the connection, which unblocks a thread that reads from it or writes to it.
    fn end(&self) {
        // The client may have disconnected already.
        let _ = match self {
            Self::Tcp(stream) => stream.shutdown(Shutdown::Both),
            Self::Unix(stream) => stream.shutdown(Shutdown::Both),
        };
    }
}

/// The state in which a connection waits, in the order in which connections are closed for a new one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Phase {
    /// For the rest of the first request or line, or for the token.
    Unauthenticated,
    /// For the next line of a session.
    Idle,
    /// For the end of a command `wait`.
    Waiting,
    /// For the thread that reloads, which makes an edit or reads the file for a command.
    Pending,
    /// For nothing: the connection is being served, and is not closed for another one. Its place is that which it had before.
    Served,
    /// It has been ended, but its thread has not noticed yet.
    Ended,
}

impl Phase {
    /// Whether a command waits: its connection leaves its place to others.
    fn waits(self) -> bool {
        match self {
            Self::Waiting | Self::Pending => true,
            Self::Unauthenticated | Self::Idle | Self::Served | Self::Ended => false,
        }
    }
}

/// A connection.
struct Holder {
    /// Distinguishes the connection from others; later connections have higher numbers.
    number: u64,
    /// The state in which the connection waits.
    phase: Phase,
    /// It has one of the places of commands that wait, until the reply to its command is sent.
    is_aside: bool,
    /// The connection's socket.
    stream: Arc<Stream>,
}

/// The connections, oldest first.
#[derive(Default)]
struct Held {
    /// The connections that have a place, and those that were ended and whose threads have not noticed yet: in each of the two groups
    /// of places, and among those that were ended, at most `CONNECTIONS_MAX`.
    holders: Vec<Holder>,
    /// How many connections there have been.
    accepted: u64,
    /// How many were closed, or never served, because the places were taken.
    displaced: u64,
}

impl Held {
    /// How many connections have places of one group, of all or (`true`) of those whose commands wait.
    fn count(&self, is_aside: bool) -> usize {
        let open = self.holders.iter().filter(|of| of.phase != Phase::Ended);
        open.filter(|of| of.is_aside == is_aside).count()
    }

    /// Ends the oldest connection of a group of places that waits for something, unless too many are ending.
    fn end_oldest(&mut self, is_aside: bool) -> bool {
        let ending = self.holders.iter().filter(|of| of.phase == Phase::Ended).count();
        let open = self.holders.iter_mut();
        let waits = open.filter(|of| of.is_aside == is_aside && of.phase < Phase::Served);
        let oldest = waits.min_by_key(|holder| (holder.phase, holder.number));
        let Some(oldest) = oldest.filter(|_| ending < CONNECTIONS_MAX) else { return false };
        oldest.phase = Phase::Ended;
        oldest.stream.end();
        true
    }

    /// A connection enters a phase. If its command begins to wait, it gets one of the places for this: the oldest one there that waits
    /// is ended if there is none, and if all there are being answered, the connection keeps its own place. A session that waits for its
    /// next line gives such a place back.
    fn enter(&mut self, number: u64, phase: Phase) {
        let Some(at) = self.holders.iter().position(|of| of.number == number) else { return };
        let was_aside = self.holders[at].is_aside;
        if self.holders[at].phase == Phase::Ended {
            return;
        }
        self.holders[at].phase = phase;
        if phase.waits() && !was_aside {
            let is_full = self.count(true) >= CONNECTIONS_MAX;
            self.displaced += u64::from(is_full);
            self.holders[at].is_aside = !is_full || self.end_oldest(true);
        } else if phase == Phase::Idle && was_aside {
            self.holders[at].is_aside = false;
            if self.count(false) > CONNECTIONS_MAX {
                self.displaced += 1;
                self.end_oldest(false);
            }
        }
    }
}

/// The places of all connections.
#[derive(Clone, Default)]
pub(crate) struct Places(Arc<Mutex<Held>>);

impl Places {
    fn lock(&self) -> MutexGuard<'_, Held> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives a place to a new connection. If no place is free, the oldest connection that is not being served is ended;
    /// `None` if all are being served.
    pub(super) fn take(&self, stream: Stream) -> Option<Connection> {
        let mut held = self.lock();
        if held.count(false) >= CONNECTIONS_MAX {
            held.displaced += 1;
            held.end_oldest(false).then_some(())?;
        }
        let (number, stream) = (held.accepted, Arc::new(stream));
        held.accepted += 1;
        let (phase, is_aside) = (Phase::Unauthenticated, false);
        held.holders.push(Holder { number, phase, is_aside, stream: Arc::clone(&stream) });
        drop(held);
        let deadline = Instant::now() + REQUEST_SPAN;
        let timed = Timed { stream, deadline };
        let refused_until = deadline + REFUSAL_SPAN;
        Some(Connection { timed, secured: None, number, refused_until, places: self.clone() })
    }

    /// Ends all connections.
    #[cfg(test)]
    pub(super) fn end_all(&self) {
        for holder in &mut self.lock().holders {
            holder.phase = Phase::Ended;
            holder.stream.end();
        }
    }

    /// Waits until all replies are sent, for `REPLIES_SPAN` at most, because the process is about to exit. If `with_new`, waits
    /// also for clients that have connected but not sent their request yet: the next process does not have their connections.
    pub(crate) fn wait_for_replies(&self, with_new: bool) {
        let deadline = Instant::now() + REPLIES_SPAN;
        let is_open = |phase| match phase {
            Phase::Served | Phase::Pending => true,
            Phase::Unauthenticated => with_new,
            Phase::Idle | Phase::Waiting | Phase::Ended => false,
        };
        while self.lock().holders.iter().any(|holder| is_open(holder.phase))
            && Instant::now() < deadline
        {
            std::thread::sleep(POLL_EVERY);
        }
    }

    /// How many connections were closed because the places were taken.
    pub(super) fn displaced(&self) -> u64 {
        self.lock().displaced
    }

    /// How many places are taken.
    pub(super) fn open(&self) -> u64 {
        self.lock().holders.len() as u64
    }
}

/// The names in a client's certificate.
pub(super) struct Presented {
    /// The subject.
    pub(super) subject: String,
    /// The common names and DNS names; `None` if they cannot be read.
    pub(super) names: Option<Vec<String>>,
}

/// A socket whose reads and writes fail after a deadline.
struct Timed {
    /// The socket.
    stream: Arc<Stream>,
    /// When reads and writes begin to fail.
    deadline: Instant,
}

/// A connection that has a place. Its reads and writes fail after its deadline.
pub(super) struct Connection {
    /// The socket.
    timed: Timed,
    /// TLS; `None` without, and before the handshake.
    secured: Option<Secured>,
    /// The number of the connection (`Holder::number`).
    number: u64,
    /// The latest deadline while the client has not presented the token. Absolute, because each line of a session may be refused.
    refused_until: Instant,
    /// All places; the connection frees its place when it is dropped.
    places: Places,
}

impl Connection {
    /// Completes a handshake. Returns the facts of the client's certificate, if there is one.
    ///
    /// # Errors
    /// The client is refused, has disconnected, or takes too long.
    pub(super) fn secure(&mut self, session: TlsSession) -> io::Result<Option<Presented>> {
        let secured = Secured::establish(session, &mut self.timed)?;
        let presented = secured.session().peer_identity().map(|identity| Presented {
            subject: identity.subject,
            names: secured.session().peer_names(),
        });
        self.secured = Some(secured);
        Ok(presented)
    }

    /// Ends the sending direction, after the last reply.
    pub(super) fn close(&mut self) {
        if let Some(secured) = &mut self.secured {
            // The client may have disconnected already.
            let _ = secured.close(&mut self.timed);
        }
    }

    /// The request, or a line, is complete, and the client has the token if one is needed: the reply follows.
    pub(super) fn mark_served(&mut self) {
        self.enter(Phase::Served, REPLY_SPAN);
    }

    /// The reply to a client that did not present the token follows.
    pub(super) fn mark_refused(&mut self) {
        let deadline = (Instant::now() + REFUSAL_SPAN).min(self.refused_until);
        self.timed.deadline = self.timed.deadline.max(deadline);
    }

    /// The session waits for its next line, for `span` at most.
    pub(super) fn mark_idle(&mut self, span: Duration) {
        self.enter(Phase::Idle, span);
    }

    /// A command waits for longer than other commands may run. Its connection gives up its place, and is closed for a later
    /// connection whose command waits if too many do.
    pub(super) fn mark_waiting(&mut self) {
        self.enter(Phase::Waiting, REPLY_SPAN);
    }

    /// As `mark_waiting`, for the thread that reloads.
    pub(super) fn mark_pending(&mut self) {
        self.enter(Phase::Pending, REPLY_SPAN);
    }

    /// Whether the connection was closed for a new one.
    pub(super) fn was_ended(&self) -> bool {
        let held = self.places.lock();
        let own = held.holders.iter().find(|holder| holder.number == self.number);
        own.is_none_or(|own| own.phase == Phase::Ended)
    }

    fn enter(&mut self, phase: Phase, span: Duration) {
        self.timed.deadline = Instant::now() + span;
        self.places.lock().enter(self.number, phase);
    }

    /// Whether the client has closed its sending side or the connection.
    pub(super) fn has_client_left(&mut self) -> bool {
        let Some(secured) = &mut self.secured else {
            return self.timed.take_now(&mut [0], RecvFlags::PEEK) == Some(0);
        };
        let mut buffer = [0; 4096];
        while !secured.has_ended() && secured.unread() < EARLY_BYTES_MAX {
            match self.timed.take_now(&mut buffer, RecvFlags::empty()) {
                Some(0) => return true,
                Some(count) if secured.handle(&mut buffer[..count], &mut self.timed).is_err() => {
                    return true;
                }
                Some(_) => {}
                None => return false,
            }
        }
        secured.has_ended()
    }
}

impl Timed {
    /// Receives bytes that have arrived: `None` if no bytes have arrived, 0 at the end of the input.
    fn take_now(&self, buffer: &mut [u8], flags: RecvFlags) -> Option<usize> {
        let flags = flags | RecvFlags::DONTWAIT;
        let taken = match &*self.stream {
            Stream::Tcp(stream) => recv(stream, buffer, flags),
            Stream::Unix(stream) => recv(stream, buffer, flags),
        };
        match taken {
            Ok((_, count)) => Some(count),
            Err(error) if error == Errno::AGAIN || error == Errno::INTR => None,
            Err(_) => Some(0),
        }
    }

    /// Limits the next read or write to the time that is left.
    fn arm(&self, is_read: bool) -> io::Result<()> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.stream.set_timeout(is_read, left)
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.places.lock().holders.retain(|holder| holder.number != self.number);
    }
}

impl Read for Timed {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.arm(true)?;
        match &*self.stream {
            Stream::Tcp(stream) => (&mut &*stream).read(buffer),
            Stream::Unix(stream) => (&mut &*stream).read(buffer),
        }
    }
}

impl Write for Timed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.arm(false)?;
        match &*self.stream {
            Stream::Tcp(stream) => (&mut &*stream).write(bytes),
            Stream::Unix(stream) => (&mut &*stream).write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for Connection {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match &mut self.secured {
            Some(secured) => secured.read(buffer, &mut self.timed),
            None => self.timed.read(buffer),
        }
    }
}

impl Write for Connection {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.secured {
            Some(secured) => secured.write(bytes, &mut self.timed),
            None => self.timed.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connect(places: &Places) -> (UnixStream, Option<Connection>) {
        let (client, own) = UnixStream::pair().expect("a pair of sockets");
        (client, places.take(Stream::Unix(own)))
    }

    /// Whether the other side has ended the connection.
    fn is_ended(mut client: &UnixStream) -> bool {
        client.set_nonblocking(true).expect("a mode");
        matches!(client.read(&mut [0]), Ok(0))
    }

    #[test]
    fn process_that_exits_waits_for_replies() {
        let places = Places::default();
        let (_client, connection) = connect(&places);
        let mut connection = connection.expect("a place");
        let begin = Instant::now();
        places.wait_for_replies(false);
        connection.mark_served();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| places.wait_for_replies(false));
            drop(connection);
            waiting.join().expect("it ends");
        });
        let (_client, new) = connect(&places);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| places.wait_for_replies(true));
            drop(new);
            waiting.join().expect("it ends");
        });
        assert!(begin.elapsed() < Duration::from_secs(60));
        let (_client, mut silent) = connect(&places);
        silent.as_mut().expect("a place").mark_served();
        let begin = Instant::now();
        places.wait_for_replies(false);
        assert!(begin.elapsed() >= REPLIES_SPAN, "the reply is still under way");
    }

    #[test]
    fn oldest_connection_without_a_request_gives_way_then_the_oldest_session() {
        let places = Places::default();
        let mut all: Vec<_> = (0..CONNECTIONS_MAX).map(|_| connect(&places)).collect();
        for (_, connection) in &mut all[..2] {
            connection.as_mut().expect("a place").mark_served();
        }
        all[2].1.as_mut().expect("a place").mark_idle(REQUEST_SPAN);
        // Each new connection is being served, so that it is not closed for the next one.
        for expected in (3..CONNECTIONS_MAX).chain([2]) {
            let (client, mut new) = connect(&places);
            new.as_mut().expect("a place").mark_served();
            let ended: Vec<usize> =
                (0..CONNECTIONS_MAX).filter(|at| is_ended(&all[*at].0)).collect();
            assert!(ended.contains(&expected), "{expected}: {ended:?}");
            assert_eq!(all[expected].1.as_mut().expect("a place").read(&mut [0]).ok(), Some(0));
            all[expected].1 = None;
            all.push((client, new));
        }
        let (client, refused) = connect(&places);
        assert!(refused.is_none() && is_ended(&client), "all are being served");
        assert!(!is_ended(&all[0].0) && !is_ended(&all[1].0));
        assert_eq!((places.open(), places.displaced()), (16, 15));
        all.clear();
        assert!(places.open() == 0 && connect(&places).1.is_some());
    }

    #[test]
    fn connections_whose_commands_wait_leave_their_places_to_others() {
        let places = Places::default();
        let open = |phase: Phase| {
            let mut connection = connect(&places).1.expect("a place");
            connection.enter(phase, REPLY_SPAN);
            connection
        };
        let waits = |number| if number % 2 == 0 { Phase::Pending } else { Phase::Waiting };
        let mut waiting: Vec<_> = (0..CONNECTIONS_MAX).map(|number| open(waits(number))).collect();
        let mut served: Vec<_> = (0..CONNECTIONS_MAX).map(|_| open(Phase::Served)).collect();
        assert!(!waiting.iter().any(Connection::was_ended));
        assert!(connect(&places).1.is_none(), "all places are taken by those that are served");
        // As many wait as may: one more ends one, first of those that change nothing.
        let mut last = served.pop().expect("one");
        last.mark_waiting();
        assert_eq!(waiting.iter().position(Connection::was_ended), Some(1));
        waiting.remove(1);
        waiting.push(last);
        // They are answered, and new connections have their places.
        waiting.iter_mut().for_each(Connection::mark_served);
        served.push(open(Phase::Served));
        assert!(!waiting.iter().chain(&served).any(Connection::was_ended));
        // While all of them are being answered, a connection whose command waits keeps its own place.
        served[3].mark_waiting();
        assert!(!waiting.iter().chain(&served).any(Connection::was_ended));
        let new = open(Phase::Served);
        assert!(served[3].was_ended() && connect(&places).1.is_none());
        served[3] = new;
        // Sessions that wait for their next lines take the places of others again.
        served.drain(..4);
        waiting.iter_mut().for_each(|session| session.mark_idle(REQUEST_SPAN));
        assert_eq!(waiting.iter().filter(|of| !of.was_ended()).count(), 4);
        assert_eq!((places.displaced(), waiting[15].was_ended()), (17, false));
    }

    #[test]
    fn number_of_connections_is_bounded_however_they_wait() {
        let places = Places::default();
        let mut all = Vec::new();
        for _ in 0..10 {
            let new: Vec<_> = (0..2 * CONNECTIONS_MAX).filter_map(|_| connect(&places).1).collect();
            all.extend(new);
            all.iter_mut().for_each(Connection::mark_waiting);
            all.retain(|connection| !connection.was_ended());
            assert!(all.len() <= 2 * CONNECTIONS_MAX, "{}", all.len());
            all.iter_mut().for_each(Connection::mark_served);
            assert!(places.open() <= 3 * CONNECTIONS_MAX as u64);
        }
        let asides = places.lock().count(true);
        assert_eq!(asides, CONNECTIONS_MAX);
    }

    #[test]
    fn connections_that_are_ending_are_bounded() {
        let places = Places::default();
        let all: Vec<_> = (0..3 * CONNECTIONS_MAX).map(|_| connect(&places)).collect();
        let served = all.iter().filter(|(_, connection)| connection.is_some()).count();
        assert_eq!(served, 2 * CONNECTIONS_MAX);
    }

    #[test]
    fn refusals_extend_the_deadline_once() {
        let (_client, connection) = connect(&Places::default());
        let mut connection = connection.expect("a place");
        let latest = connection.timed.deadline + REFUSAL_SPAN;
        for _ in 0..3 {
            connection.timed.deadline = latest;
            connection.mark_refused();
            assert_eq!(connection.timed.deadline, latest);
        }
        connection.refused_until = Instant::now();
        connection.timed.deadline = connection.refused_until;
        connection.mark_refused();
        assert_eq!(connection.timed.deadline, connection.refused_until);
    }

    #[test]
    fn deadline_is_absolute() {
        let places = Places::default();
        let (mut client, connection) = connect(&places);
        let mut connection = connection.expect("a place");
        client.write_all(b"x").expect("room");
        assert_eq!(connection.read(&mut [0]).ok(), Some(1));
        connection.timed.deadline = Instant::now();
        client.write_all(b"x").expect("room");
        let error = connection.read(&mut [0]).expect_err("the deadline has passed");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        connection.mark_served();
        assert_eq!(connection.read(&mut [0]).ok(), Some(1));
    }
}
