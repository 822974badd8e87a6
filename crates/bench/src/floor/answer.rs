//! The responses of the floor server: finds the end of each request head and sends the same bytes for each.
//! In: readiness of a socket. Out: one response for each request.
//! Never: examines a request's target; supports requests with a body.
//! Limits: responses to pipelined requests are joined, up to `JOINED_MAX` or `JOINED_BYTES_MAX`.

use super::{READ_BYTES, Serve, watch};
use rustix::event::epoll::EventFlags;
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{self, RecvFlags, SendFlags};
use std::time::{Duration, UNIX_EPOCH};

/// Largest number of responses to pipelined requests that are joined into one send.
const JOINED_MAX: usize = 64;
/// Largest number of bytes that are joined into one send.
const JOINED_BYTES_MAX: usize = 64 * 1024;

/// One client connection.
struct Connection {
    socket: OwnedFd,
    /// How many bytes of `\r\n\r\n` the input so far ends with, 0 to 3.
    end_matched: u8,
    /// Number of responses that are still to be sent, including a partly sent one.
    owed: usize,
    /// Bytes of the first owed response that were sent. Always less than one response.
    sent: usize,
}

/// The connections of a floor server that responds itself.
pub(super) struct Answers {
    /// The connections, indexed by descriptor number.
    connections: Vec<Option<Connection>>,
    /// The response, repeated `joined` times.
    bytes: Vec<u8>,
    /// Length of one response.
    answer_bytes: usize,
    /// Number of responses in `bytes`, at least 1.
    joined: usize,
    /// Offset of the Date field's value in a response.
    date_at: usize,
    /// The second since 1970 that the Date field shows.
    date_second: u64,
}

impl Answers {
    pub(super) fn new(content_type: &str, body: &[u8]) -> Self {
        let mut answer = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\n\
             Server: floor\r\nDate: ",
            body.len()
        )
        .into_bytes();
        let date_at = answer.len();
        answer.extend_from_slice(b"Thu, 01 Jan 1970 00:00:00 GMT\r\n\r\n");
        answer.extend_from_slice(body);
        let joined = (JOINED_BYTES_MAX / answer.len()).clamp(1, JOINED_MAX);
        Self {
            connections: Vec::new(),
            answer_bytes: answer.len(),
            bytes: answer.repeat(joined),
            joined,
            date_at,
            date_second: 0,
        }
    }

    /// Sends the owed responses; false if the connection failed.
    fn send_owed(&mut self, fd: usize) -> bool {
        let Some(Some(connection)) = self.connections.get_mut(fd) else {
            return true;
        };
        while connection.owed > 0 {
            let joined = connection.owed.min(self.joined);
            let bytes = &self.bytes[connection.sent..joined * self.answer_bytes];
            match net::send(&connection.socket, bytes, SendFlags::NOSIGNAL) {
                Ok(count) => {
                    let total = connection.sent + count;
                    connection.owed -= total / self.answer_bytes;
                    connection.sent = total % self.answer_bytes;
                    if count < bytes.len() {
                        return true;
                    }
                }
                Err(Errno::AGAIN) => return true,
                Err(Errno::INTR) => {}
                Err(_) => return false,
            }
        }
        true
    }

    /// Reads until the socket is empty; false if the connection ended.
    fn receive(&mut self, fd: usize, flags: EventFlags, buffer: &mut [u8]) -> bool {
        let ending = flags.intersects(EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR);
        loop {
            let Some(Some(connection)) = self.connections.get_mut(fd) else {
                return true;
            };
            match net::recv(&connection.socket, &mut *buffer, RecvFlags::empty()) {
                Ok((0, _)) => return false,
                Ok((count, _)) => {
                    connection.owed += count_heads(&buffer[..count], &mut connection.end_matched);
                    if !self.send_owed(fd) {
                        return false;
                    }
                    if count < READ_BYTES && !ending {
                        return true;
                    }
                }
                Err(Errno::AGAIN) => return true,
                Err(Errno::INTR) => {}
                Err(_) => return false,
            }
        }
    }
}

impl Serve for Answers {
    fn open(&mut self, epoll: &OwnedFd, socket: OwnedFd) {
        let fd = socket.as_raw_fd() as usize;
        if self.connections.len() <= fd {
            self.connections.resize_with(fd + 1, || None);
        }
        if watch(epoll, &socket) {
            self.connections[fd] = Some(Connection { socket, end_matched: 0, owed: 0, sent: 0 });
        }
    }

    fn handle_event(&mut self, fd: usize, flags: EventFlags, buffer: &mut [u8]) {
        let going_on = (!flags.contains(EventFlags::OUT) || self.send_owed(fd))
            && (!flags.intersects(EventFlags::IN | EventFlags::RDHUP | EventFlags::HUP)
                || self.receive(fd, flags, buffer));
        if !going_on && let Some(slot) = self.connections.get_mut(fd) {
            *slot = None;
        }
    }

    fn begin_turn(&mut self, unix_seconds: u64) {
        if unix_seconds == self.date_second {
            return;
        }
        self.date_second = unix_seconds;
        let date = render_date(unix_seconds);
        for index in 0..self.joined {
            let at = index * self.answer_bytes + self.date_at;
            self.bytes[at..at + date.len()].copy_from_slice(&date);
        }
    }
}

/// Counts the heads that end in `bytes`; `matched` carries a split `\r\n\r\n` from read to read.
fn count_heads(bytes: &[u8], matched: &mut u8) -> usize {
    const END: &[u8; 4] = b"\r\n\r\n";
    let mut heads = 0;
    let mut rest = bytes;
    while *matched > 0
        && let Some((&byte, after)) = rest.split_first()
    {
        rest = after;
        if byte == END[usize::from(*matched)] {
            *matched += 1;
            if *matched == 4 {
                heads += 1;
                *matched = 0;
            }
        } else {
            *matched = u8::from(byte == b'\r');
        }
    }
    while let Some(at) = memchr::memmem::find(rest, END) {
        heads += 1;
        rest = &rest[at + END.len()..];
    }
    if *matched == 0 {
        let tail = (1..END.len()).rev().find(|&length| rest.ends_with(&END[..length]));
        *matched = tail.unwrap_or(0) as u8;
    }
    heads
}

/// `unix_seconds` as an IMF-fixdate (RFC 9110 section 5.6.7).
fn render_date(unix_seconds: u64) -> [u8; 29] {
    let text = httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(unix_seconds));
    let mut date = [b' '; 29];
    let length = text.len().min(date.len());
    date[..length].copy_from_slice(&text.as_bytes()[..length]);
    date
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_are_counted_at_every_split() {
        let input = b"GET / HTTP/1.1\r\nHost: a\r\n\r\nGET /b HTTP/1.1\r\nHost: a\r\n\r\n";
        for first in 0..=input.len() {
            for second in first..=input.len() {
                let mut matched = 0;
                let heads = [&input[..first], &input[first..second], &input[second..]]
                    .iter()
                    .map(|part| count_heads(part, &mut matched))
                    .sum::<usize>();
                assert_eq!((heads, matched), (2, 0), "split at {first} and {second}");
            }
        }
    }

    #[test]
    fn date_of_a_response_is_replaced_in_place() {
        let mut answers = Answers::new("text/plain", b"x");
        let length = answers.bytes.len();
        answers.begin_turn(784_111_777);
        assert_eq!(answers.bytes.len(), length);
        let text = String::from_utf8(answers.bytes[..answers.answer_bytes].to_vec()).unwrap();
        assert!(text.contains("Date: Sun, 06 Nov 1994 08:49:37 GMT\r\n\r\nx"), "{text}");
    }
}
