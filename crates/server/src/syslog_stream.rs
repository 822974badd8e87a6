//! Syslog over TCP: each message with its length before it (RFC 6587 section 3.4.1, octet counting).
//! In: messages. Out: a stream of bytes; how many messages were lost.
//! Never: runs on a worker; sends a part of a message and then another message: after an incomplete write the connection is closed;
//! waits longer than `CONNECT_WAIT` for a connection or `WRITE_WAIT` for a receiver that does not read.
//! Limits: after a failure, messages are lost for `RETRY_MIN`, then twice as long with each further failure, up to `RETRY_MAX`.
//! Invariant: a message that was not handed to the kernel is counted as lost. Bytes that the kernel holds when a connection breaks are
//! lost without notice: the protocol has no acknowledgements.

use std::io::{self, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// How long a connect may take.
const CONNECT_WAIT: Duration = Duration::from_millis(500);
/// How long a write waits for a receiver that does not read.
const WRITE_WAIT: Duration = Duration::from_millis(100);
/// The pause after the first failure in a row.
const RETRY_MIN: Duration = Duration::from_secs(1);
/// The longest pause.
const RETRY_MAX: Duration = Duration::from_secs(30);

/// The way to a receiver.
pub(crate) struct SyslogStream {
    address: SocketAddr,
    /// `None`: not connected.
    stream: Option<TcpStream>,
    /// When a connect is tried again.
    retry_at: Option<Instant>,
    /// The pause after the next failure.
    pause: Duration,
    /// Messages with their lengths, which are being sent together.
    frames: Vec<u8>,
    /// Where each of them ends.
    ends: Vec<usize>,
}

impl SyslogStream {
    /// A way that connects when the first messages are sent: a receiver that is absent at the start may come later.
    pub(crate) fn new(address: SocketAddr) -> Self {
        let (stream, retry_at, pause) = (None, None, RETRY_MIN);
        Self { address, stream, retry_at, pause, frames: Vec::new(), ends: Vec::new() }
    }

    /// Adds a message to those that are sent next.
    pub(crate) fn push(&mut self, message: &[u8]) {
        // Writing to a vector cannot fail.
        let _ = write!(self.frames, "{} ", message.len());
        self.frames.extend_from_slice(message);
        self.ends.push(self.frames.len());
    }

    /// Sends the messages that were added. Returns how many were lost.
    pub(crate) fn flush(&mut self, now: Instant) -> u64 {
        let (frames, ends) = (core::mem::take(&mut self.frames), core::mem::take(&mut self.ends));
        let mut sent = self.write(&frames, now);
        if sent == 0 && self.stream.is_none() && self.retry_at.is_none_or(|at| at <= now) {
            // The receiver has closed the connection, perhaps because it was started again.
            sent = self.write(&frames, now);
        }
        let lost = ends.iter().filter(|end| **end > sent).count() as u64;
        (self.frames, self.ends) = (frames, ends);
        self.frames.clear();
        self.ends.clear();
        lost
    }

    /// Writes bytes. Returns how many the kernel has taken.
    fn write(&mut self, bytes: &[u8], now: Instant) -> usize {
        if bytes.is_empty() {
            return 0;
        }
        let Some(stream) = self.connected(now) else { return 0 };
        let mut written = 0;
        while written < bytes.len() {
            match stream.write(&bytes[written..]) {
                Ok(0) => break,
                Ok(count) => written += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    // A receiver that does not read is given time; one that is gone may be back at once.
                    if is_timeout(&error) {
                        self.note_failure(now);
                    }
                    break;
                }
            }
        }
        if written < bytes.len() {
            self.stream = None;
        } else {
            self.pause = RETRY_MIN;
        }
        written
    }

    /// The connection, if there is one or one can be opened now.
    fn connected(&mut self, now: Instant) -> Option<&mut TcpStream> {
        if self.stream.as_ref().is_some_and(is_closed) {
            self.stream = None;
        }
        if self.stream.is_none() {
            if self.retry_at.is_some_and(|at| at > now) {
                return None;
            }
            match connect(&self.address) {
                Ok(stream) => (self.stream, self.retry_at) = (Some(stream), None),
                Err(_) => {
                    self.note_failure(now);
                    return None;
                }
            }
        }
        self.stream.as_mut()
    }

    fn note_failure(&mut self, now: Instant) {
        self.retry_at = Some(now + self.pause);
        self.pause = (self.pause * 2).min(RETRY_MAX);
    }
}

fn connect(address: &SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(address, CONNECT_WAIT)?;
    stream.set_write_timeout(Some(WRITE_WAIT))?;
    Ok(stream)
}

/// Whether the receiver has closed the connection: a first write would still succeed. Receivers send nothing.
fn is_closed(stream: &TcpStream) -> bool {
    let mut byte = [0];
    let peeked = stream.set_nonblocking(true).and_then(|()| stream.peek(&mut byte));
    let is_open = match peeked {
        Ok(count) => count > 0,
        Err(error) => error.kind() == io::ErrorKind::WouldBlock,
    };
    !is_open || stream.set_nonblocking(false).is_err()
}

/// Whether the time was up. The kernel reports the end of a write timeout as "would block".
fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock)
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::net::TcpListener;

    use super::*;

    fn receiver() -> (TcpListener, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        (listener, address)
    }

    /// The next `count` bytes of a connection.
    fn read(stream: &mut TcpStream, count: usize) -> String {
        stream.set_read_timeout(Some(Duration::from_secs(30))).expect("a timeout");
        let mut bytes = vec![0; count];
        stream.read_exact(&mut bytes).expect("the bytes");
        String::from_utf8(bytes).expect("a text")
    }

    #[test]
    fn each_message_follows_its_length() {
        let (listener, address) = receiver();
        let mut syslog = SyslogStream::new(address);
        assert_eq!(syslog.flush(Instant::now()), 0, "nothing to send, so no connection");
        syslog.push(b"<134>1 one");
        syslog.push("two \u{e4}".as_bytes());
        assert_eq!(syslog.flush(Instant::now()), 0);
        let (mut stream, _) = listener.accept().expect("a connection");
        assert_eq!(read(&mut stream, 13 + 8), "10 <134>1 one6 two \u{e4}");
    }

    #[test]
    fn receiver_may_be_absent_and_return() {
        let (listener, address) = receiver();
        let mut syslog = SyslogStream::new(address);
        syslog.push(b"one");
        assert_eq!(syslog.flush(Instant::now()), 0);
        let (mut stream, _) = listener.accept().expect("a connection");
        assert_eq!(read(&mut stream, 5), "3 one");
        // The receiver is started again: no message is lost, once the end of the connection has arrived.
        drop(stream);
        syslog.push(b"two");
        assert_eq!(syslog.flush(Instant::now()), 0);
        let (mut stream, _) = listener.accept().expect("a connection");
        assert_eq!(read(&mut stream, 5), "3 two");
        drop((stream, listener));
        let mut now = Instant::now();
        let lose = |syslog: &mut SyslogStream, now| {
            syslog.push(b"lost");
            syslog.push(b"lost");
            syslog.flush(now)
        };
        assert_eq!(lose(&mut syslog, now), 2);
        let listener = TcpListener::bind(address).expect("the port is free again");
        assert_eq!(lose(&mut syslog, now), 2, "it pauses after a failure");
        now += RETRY_MAX;
        syslog.push(b"three");
        assert_eq!(syslog.flush(now), 0);
        let (mut stream, _) = listener.accept().expect("a connection");
        assert_eq!(read(&mut stream, 7), "5 three");
    }

    #[test]
    fn receiver_that_does_not_read_gets_no_part_of_a_message_before_another() {
        let (listener, address) = receiver();
        let mut syslog = SyslogStream::new(address);
        let message = vec![b'a'; 1 << 20];
        let now = Instant::now();
        let mut lost = 0;
        for _ in 0..64 {
            syslog.push(&message);
            lost += syslog.flush(now);
        }
        assert!(lost > 0 && lost < 64, "{lost}");
        let (mut stream, _) = listener.accept().expect("a connection");
        stream.set_read_timeout(Some(Duration::from_secs(30))).expect("a timeout");
        let mut received = Vec::new();
        stream.read_to_end(&mut received).expect("the connection was closed");
        let whole = received.len() / (message.len() + 8);
        assert_eq!(whole as u64, 64 - lost, "what was not counted as lost has arrived");
        assert_eq!(listener.set_nonblocking(true).ok(), Some(()));
        assert!(listener.accept().is_err(), "no further connection during the pause");
    }
}
