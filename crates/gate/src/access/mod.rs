//! The access log: the facts about a request whose exchange has ended, and its line.
//! In: an `Entry`. Out: one line, appended to a buffer: a JSON object (`json.rs`), or the fields of HAProxy's `option httplog`
//! (`http.rs`).
//! Never: lets a client write a line of its own: whatever it sent is escaped (`escape.rs`).
//! Limits: `TARGET_BYTES_MAX`, `HOST_BYTES_MAX` and `FIELD_BYTES_MAX` bytes of what the client sent; the rest is cut.
//! Invariant: a line contains exactly one line feed, its last byte.

mod escape;
mod http;
mod json;
mod names;

use core::net::SocketAddr;

use tidegate_base::Span;
use tidegate_base::calendar::Civil;
use tidegate_base::prng::Prng;
use tidegate_config::model::{AccessFilter, AccessFormat, AccessLog, SAMPLE_ALL};
use tidegate_wire::message::Version;

pub use names::Names;

/// Maximum number of bytes of a request target in a line.
pub const TARGET_BYTES_MAX: usize = 2048;
/// Maximum number of bytes of a host in a line.
pub const HOST_BYTES_MAX: usize = 256;
/// Maximum number of bytes of a captured field or cookie in a line.
pub const FIELD_BYTES_MAX: usize = 256;

/// Why an exchange ended, unless it ended as intended. Each cause has one letter in HAProxy's termination state.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Cause {
    /// The exchange ended as intended.
    #[default]
    None,
    /// The client ended or reset its connection, or the stream.
    Client,
    /// The client was too slow.
    ClientTimeout,
    /// The request was malformed, or violated a rule or a limit for requests.
    Refused,
    /// The server could not be reached, ended its connection early or sent a malformed response; or the Lua
    /// application failed.
    Server,
    /// The server was too slow.
    ServerTimeout,
    /// The request waited too long for a server.
    QueueTimeout,
    /// A limit of this process: a full queue, no room for a connection.
    Limit,
    /// The process stopped, or an operator ended the exchange.
    Stopped,
    /// An invariant of this process was broken.
    Bug,
}

impl Cause {
    /// The cause of an error response with this status, if nothing else is known.
    #[must_use]
    pub const fn of_status(status: u16) -> Self {
        match status {
            408 => Self::ClientTimeout,
            400..=499 | 501 | 505 | 508 => Self::Refused,
            502 => Self::Server,
            503 => Self::Limit,
            504 => Self::ServerTimeout,
            500..=599 => Self::Bug,
            _ => Self::None,
        }
    }

    /// Whose fault it was.
    #[must_use]
    pub const fn fault(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Client | Self::ClientTimeout | Self::Refused => "client",
            Self::Server | Self::ServerTimeout => "server",
            Self::QueueTimeout | Self::Limit => "limit",
            Self::Stopped => "stop",
            Self::Bug => "bug",
        }
    }

    /// The first letter of the termination state. `is_local`: no server was involved, and nothing went wrong.
    const fn letter(self, is_local: bool) -> u8 {
        match self {
            Self::None if is_local => b'L',
            Self::None => b'-',
            Self::Client => b'C',
            Self::ClientTimeout => b'c',
            Self::Refused => b'P',
            Self::Server => b'S',
            Self::ServerTimeout | Self::QueueTimeout => b's',
            Self::Limit => b'R',
            Self::Stopped => b'K',
            Self::Bug => b'I',
        }
    }
}

/// How far an exchange had progressed when it ended. The second letter of HAProxy's termination state.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum Phase {
    /// The request was being received, or no server was chosen yet.
    #[default]
    Request,
    /// The request waited for a server.
    Queue,
    /// The connection to the server was being established.
    Connect,
    /// The head of the response was awaited.
    Head,
    /// The body of the response was being transferred.
    Data,
    /// The response was complete, and the client was still receiving it.
    Last,
}

impl Phase {
    const fn letter(self) -> u8 {
        match self {
            Self::Request => b'R',
            Self::Queue => b'Q',
            Self::Connect => b'C',
            Self::Head => b'H',
            Self::Data => b'D',
            Self::Last => b'L',
        }
    }
}

/// How long the parts of an exchange took.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Timers {
    /// From the first byte of the request head to its last.
    pub request: Span,
    /// From the head to the choice of the last server, failed attempts included; `None`: no server was chosen.
    pub queue: Option<Span>,
    /// The connect to that server; zero on a reused connection. `None`: it was not established.
    pub connect: Option<Span>,
    /// From the connection to the response head; `None`: there was no response.
    pub response: Option<Span>,
    /// From the first byte of the request head to the end of the exchange.
    pub total: Span,
}

/// The numbers of connections and requests of the worker when the exchange ended. This exchange does not count.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Loads {
    /// Connections of clients.
    pub clients: u64,
    /// Proxied requests.
    pub exchanges: u64,
    /// Requests in the servers of the pool.
    pub pool: u64,
    /// Requests in the server.
    pub server: u64,
    /// Requests that wait for a server of the pool.
    pub queued: u64,
}

/// Values of fields and cookies of a message.
#[derive(Clone, Copy, Debug, Default)]
pub struct Captures<'a> {
    /// The names of the fields.
    pub names: &'a [String],
    /// The names of the cookies, whose values follow those of the fields.
    pub cookies: &'a [String],
    /// The values, one after another.
    pub bytes: &'a [u8],
    /// Where each value ends in `bytes`. Empty if there is no head.
    pub ends: &'a [u16],
}

impl<'a> Captures<'a> {
    /// The name and value of each field; a missing field has an empty value.
    fn fields(self) -> impl Iterator<Item = (&'a str, &'a [u8])> {
        self.values(self.names, 0)
    }

    /// The name and value of each cookie; a missing cookie has an empty value.
    fn cookies(self) -> impl Iterator<Item = (&'a str, &'a [u8])> {
        self.values(self.cookies, self.names.len())
    }

    /// The values from the one at `first`.
    fn values(
        self,
        names: &'a [String],
        first: usize,
    ) -> impl Iterator<Item = (&'a str, &'a [u8])> {
        let end_before = |index: usize| self.ends.get(index.checked_sub(1)?);
        let mut start = end_before(first).copied().map_or(0, usize::from);
        names.iter().zip(self.ends.iter().skip(first)).map(move |(name, &end)| {
            let value = self.bytes.get(start..usize::from(end)).unwrap_or_default();
            start = usize::from(end);
            (name.as_str(), value)
        })
    }
}

/// The request line and the host, as far as they are known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RequestLine<'a> {
    /// The method.
    pub method: &'a [u8],
    /// The target as received, without what was cut or left out (`shown_target`).
    pub target: &'a [u8],
    /// The host; empty if the client named none.
    pub host: &'a [u8],
}

/// The facts about a request whose exchange has ended.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    /// When the first byte of the request head arrived, in milliseconds since 1970.
    pub unix_millis: u64,
    /// The client's address; `None` on a unix socket.
    pub client: Option<SocketAddr>,
    /// The listener's name.
    pub listener: &'a str,
    /// The request line; `None` if the head was malformed or incomplete. For a connection in TCP mode, only the host is set:
    /// the server name that the client requested.
    pub request: Option<RequestLine<'a>>,
    /// The id of the request; empty if it has none.
    pub id: &'a [u8],
    /// The id of its trace; empty if there is none.
    pub trace: &'a [u8],
    /// The version of the protocol; `None`: the connection was forwarded without HTTP (TCP mode).
    pub version: Option<Version>,
    /// The route; `None` if no route matched.
    pub route: Option<&'a str>,
    /// The pool and the last server; `None` if no server was chosen.
    pub server: Option<(&'a str, &'a str)>,
    /// The pool, if no server was chosen: the request waited for one, or none was available.
    pub pool: Option<&'a str>,
    /// Attempts to get a response from a server.
    pub attempts: u32,
    /// The last attempt used a connection that had carried a request before.
    pub is_reused: bool,
    /// The status; `None` if no response was sent.
    pub status: Option<u16>,
    /// Bytes of the request body.
    pub bytes_in: u64,
    /// Bytes of the response: head and body, without the framing of HTTP/2.
    pub bytes_out: u64,
    /// How long the parts of the exchange took.
    pub timers: Timers,
    /// Why the exchange ended.
    pub cause: Cause,
    /// How far the exchange had progressed.
    pub phase: Phase,
    /// The message of the error response, or the reason of a failure after the response had begun; empty without a failure.
    pub reason: &'a str,
    /// The load of the worker; zeros if the lines do not contain it.
    pub loads: Loads,
    /// Fields and cookies of the request.
    pub captures: Captures<'a>,
    /// Fields and cookies of the response, as the client got them.
    pub response_captures: Captures<'a>,
    /// The subject of the client's verified certificate; `None`: lines do not contain it; empty: there is none.
    pub subject: Option<&'a [u8]>,
}

impl Entry<'_> {
    /// HAProxy's termination state: two letters for cause and phase, and two for cookies, which are not used.
    #[must_use]
    pub const fn termination(&self) -> [u8; 4] {
        let is_local = self.server.is_none();
        let phase = match self.cause {
            Cause::None if is_local => b'R',
            Cause::None => b'-',
            _ => self.phase.letter(),
        };
        [self.cause.letter(is_local), phase, b'-', b'-']
    }

    /// Whether something went wrong: the exchange did not end as intended, or its status is 400 or more.
    #[must_use]
    pub fn is_error(&self) -> bool {
        let is_error = |status: Option<u16>| status.is_none_or(|status| status >= 400);
        self.cause != Cause::None || self.version.is_some() && is_error(self.status)
    }
}

/// Selects the entries for which lines are written.
#[derive(Clone, Debug)]
pub struct Selection {
    only: AccessFilter,
    slow: Option<Span>,
    /// Parts per million of the entries that are neither errors nor slow.
    sample: u32,
    prng: Prng,
}

impl Selection {
    /// The selection that `settings` describe. `seed` need not be secret: a sample is not a defence.
    #[must_use]
    pub fn new(settings: &AccessLog, seed: u64) -> Self {
        let AccessLog { only, slow, sample, .. } = settings;
        Self { only: *only, slow: *slow, sample: *sample, prng: Prng::new(seed) }
    }

    /// Whether a line of the entry is written.
    #[inline]
    pub fn takes(&mut self, entry: &Entry<'_>) -> bool {
        if self.sample >= SAMPLE_ALL && self.only == AccessFilter::All {
            return true;
        }
        if entry.is_error() || self.slow.is_some_and(|slow| entry.timers.total >= slow) {
            return true;
        }
        match self.only {
            AccessFilter::All => self.prng.chance(self.sample),
            AccessFilter::Errors => false,
        }
    }
}

/// Encodes entries as lines. Keeps the formatted time of the current second.
#[derive(Clone, Debug)]
pub struct LineEncoder {
    /// The format of the lines.
    format: AccessFormat,
    /// The time that `stamp` contains, in seconds since 1970.
    second: u64,
    /// The formatted time, without the fraction of the second.
    stamp: String,
}

impl LineEncoder {
    /// An encoder of lines in this format.
    #[must_use]
    pub fn new(format: AccessFormat) -> Self {
        Self { format, second: u64::MAX, stamp: String::new() }
    }

    /// Appends the line of an entry.
    pub fn encode(&mut self, entry: &Entry<'_>, out: &mut Vec<u8>) {
        let second = entry.unix_millis / 1000;
        if second != self.second {
            self.second = second;
            self.stamp.clear();
            let civil = Civil::of_unix(second);
            // Writing to a String cannot fail.
            let _ = match self.format {
                AccessFormat::Json => json::stamp(&mut self.stamp, &civil),
                AccessFormat::Http => http::stamp(&mut self.stamp, &civil),
            };
        }
        match self.format {
            AccessFormat::Json => json::encode(entry, &self.stamp, out),
            AccessFormat::Http => http::encode(entry, &self.stamp, out),
        }
        out.push(b'\n');
    }
}

/// The longest beginning of `text` that has up to `bytes_max` bytes.
#[must_use]
pub fn cut(text: &str, bytes_max: usize) -> &str {
    let mut end = text.len().min(bytes_max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// The part of a target that a line contains: the query of `connection/sse` is a command of a push client with its token, so
/// the query is left out.
#[must_use]
#[inline]
pub fn shown_target(target: &str) -> &str {
    match target.split_once('?') {
        Some((path, _)) if path.ends_with("/connection/sse") => path,
        _ => target,
    }
}

#[inline]
fn number(out: &mut Vec<u8>, number: u64) {
    let digit = |value: u64| b'0' + (value % 10) as u8;
    // Most numbers are small, and the compiler copies a known number of digits without a call.
    match number {
        0..10 => out.push(digit(number)),
        10..100 => out.extend_from_slice(&[digit(number / 10), digit(number)]),
        100..1000 => {
            out.extend_from_slice(&[digit(number / 100), digit(number / 10), digit(number)]);
        }
        _ => out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes()),
    }
}

/// A point and three digits of a fraction.
#[inline]
fn thousandths(fraction: u64) -> [u8; 4] {
    let fraction = fraction as u32;
    let digit = |value: u32| b'0' + (value % 10) as u8;
    [b'.', digit(fraction / 100), digit(fraction / 10), digit(fraction)]
}

/// Maximum number of bytes of an IPv4 address with its port.
const V4_BYTES_MAX: usize = "255.255.255.255:65535".len();

fn address(out: &mut Vec<u8>, address: &SocketAddr) {
    match address {
        SocketAddr::V4(v4) => {
            // Assembled here, so that `out` is extended once.
            let (mut text, mut length) = ([0; V4_BYTES_MAX], 0);
            let mut put = |byte: u8| {
                text[length] = byte;
                length += 1;
            };
            for (octet, end) in v4.ip().octets().into_iter().zip(*b"...:") {
                if octet >= 100 {
                    put(b'0' + octet / 100);
                }
                if octet >= 10 {
                    put(b'0' + octet / 10 % 10);
                }
                put(b'0' + octet % 10);
                put(end);
            }
            out.extend_from_slice(&text[..length]);
            number(out, v4.port().into());
        }
        SocketAddr::V6(v6) => {
            use std::io::Write as _;
            // Writing to a Vec cannot fail.
            let _ = write!(out, "[{}]:{}", v6.ip(), v6.port());
        }
    }
}
