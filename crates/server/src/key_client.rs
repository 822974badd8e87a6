//! Fetches a set of public keys (RFC 7517) over https, on the thread that calls it.
//! In: an address of the configuration. Out: the content, and how long it may be used; or why there is none.
//! Never: runs on a worker; follows a redirect; accepts a server that its authorities do not vouch for; connects to another
//! machine without TLS.
//! Limits: `FETCH_SPAN` for all, `CONNECT_SPAN` and `ADDRESSES_MAX` for connecting, `RECEIVED_BYTES_MAX`, and
//! `CONTENT_BYTES_MAX` of the content.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs as _};
use std::time::{Duration, Instant};

use tidegate_config::model::RemoteKeys;
use tidegate_wire::http1::{
    BodyDecoder, HeadDecoder, ResponseLimits, encode_field, encode_request_line,
};
use tidegate_wire::jwt::CONTENT_BYTES_MAX;
use tidegate_wire::message::{RequestKind, ResponseHead, ResponseStorage};
use tidegate_wire::tls::{Connector, ConnectorSettings, Roots, SetupFault, TlsClock, TlsSession};

use crate::reload::unix_seconds;

/// How long a fetch may take, after its name is resolved.
const FETCH_SPAN: Duration = Duration::from_secs(10);
/// How long a connection to one address may take.
const CONNECT_SPAN: Duration = Duration::from_secs(3);
/// How many addresses of a name are tried.
const ADDRESSES_MAX: usize = 4;
/// The most bytes of a response: the content, its framing, and the head.
const RECEIVED_BYTES_MAX: usize = 2 * CONTENT_BYTES_MAX;

/// A response.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Fetched {
    /// The content.
    pub(crate) content: Vec<u8>,
    /// How long it may be used, as the server states it (RFC 9111 section 5.2.2).
    pub(crate) usable: Option<Duration>,
}

/// Checks the authorities of an address.
///
/// # Errors
/// They cannot be used.
pub(crate) fn check(remote: &RemoteKeys) -> Result<(), String> {
    connector(remote).map(drop).map_err(|fault| fault.to_string())
}

fn connector(remote: &RemoteKeys) -> Result<Connector, SetupFault> {
    let roots = match &remote.ca {
        Some(_) => Roots::Authorities(remote.authorities.0.to_vec()),
        None => Roots::System(tidegate_secure::system_roots()),
    };
    let alpn = vec!["http/1.1".to_owned()];
    let settings = ConnectorSettings { roots, alpn, resume: false, ..ConnectorSettings::default() };
    let clock = TlsClock::default();
    clock.set(unix_seconds());
    Connector::new(&settings, clock)
}

/// Fetches the content of an address.
///
/// # Errors
/// Why it could not be fetched.
pub(crate) fn fetch(remote: &RemoteKeys) -> Result<Fetched, String> {
    let place = (remote.host.as_str(), remote.port);
    let addresses = place.to_socket_addrs().map_err(|error| format!("{}: {error}", remote.host))?;
    let deadline = Instant::now() + FETCH_SPAN;
    let allowed = addresses.filter(|address| remote.is_tls || address.ip().is_loopback());
    let mut why = format!("{} has no address", remote.host);
    for address in allowed.take(ADDRESSES_MAX) {
        match connect(&address, deadline) {
            Ok(stream) => return KeyFetch::new(stream, remote, deadline)?.run(remote),
            Err(error) => why = format!("{address}: {error}"),
        }
    }
    Err(why)
}

fn connect(address: &SocketAddr, deadline: Instant) -> std::io::Result<TcpStream> {
    TcpStream::connect_timeout(address, left(deadline)?.min(CONNECT_SPAN))
}

/// The time that is left; never zero, which would mean no limit.
fn left(deadline: Instant) -> std::io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    match left.is_zero() {
        true => Err(std::io::ErrorKind::TimedOut.into()),
        false => Ok(left),
    }
}

/// A request on its connection.
struct KeyFetch {
    stream: TcpStream,
    /// `None`: without TLS.
    session: Option<TlsSession>,
    /// What was received, without TLS.
    plain: Vec<u8>,
    deadline: Instant,
}

impl KeyFetch {
    fn new(stream: TcpStream, remote: &RemoteKeys, deadline: Instant) -> Result<Self, String> {
        let session = match remote.is_tls {
            true => {
                let connector = connector(remote).map_err(|fault| fault.to_string())?;
                let session = connector.connect(remote.host.trim_end_matches('.'));
                Some(session.map_err(|fault| fault.text().to_owned())?)
            }
            false => None,
        };
        Ok(Self { stream, session, plain: Vec::new(), deadline })
    }

    fn run(mut self, remote: &RemoteKeys) -> Result<Fetched, String> {
        let mut request = Vec::new();
        encode_request_line(&mut request, "GET", &remote.target);
        encode_field(&mut request, "Host", remote.authority.as_bytes());
        encode_field(&mut request, "User-Agent", b"tidegate");
        encode_field(&mut request, "Accept", b"application/jwk-set+json, application/json");
        encode_field(&mut request, "Connection", b"close");
        request.extend_from_slice(b"\r\n");
        self.handshake()?;
        let sealed = match &mut self.session {
            Some(session) => {
                let mut sealed = Vec::new();
                session.seal(&request, &mut sealed).map_err(|fault| fault.text().to_owned())?;
                sealed
            }
            None => request,
        };
        self.send(&sealed)?;
        loop {
            let has_ended = self.receive()?;
            if let Some(fetched) = read_response(&self.plain, has_ended)? {
                return Ok(fetched);
            }
            if has_ended {
                return Err("the response is incomplete".to_owned());
            }
        }
    }

    /// Completes the handshake, if there is one.
    fn handshake(&mut self) -> Result<(), String> {
        self.handle(&mut [])?;
        while self.session.as_ref().is_some_and(|session| !session.is_established()) {
            if self.receive()? {
                return Err("the server closed the connection during the handshake".to_owned());
            }
        }
        Ok(())
    }

    /// Receives bytes. Returns whether the server has sent all.
    fn receive(&mut self) -> Result<bool, String> {
        let mut buffer = [0; 16 * 1024];
        let io = |error: std::io::Error| match error.kind() {
            std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut => {
                format!("no complete response within {FETCH_SPAN:?}")
            }
            _ => error.to_string(),
        };
        let left = left(self.deadline).map_err(io)?;
        self.stream.set_read_timeout(Some(left)).map_err(io)?;
        let count = self.stream.read(&mut buffer).map_err(io)?;
        let has_closed = self.handle(&mut buffer[..count])?;
        match self.plain.len() {
            0..=RECEIVED_BYTES_MAX => Ok(count == 0 || has_closed),
            _ => Err(format!("the response has more than {} KiB", RECEIVED_BYTES_MAX >> 10)),
        }
    }

    /// Handles received bytes. Returns whether they end what the server sends.
    fn handle(&mut self, bytes: &mut [u8]) -> Result<bool, String> {
        let Some(session) = &mut self.session else {
            self.plain.extend_from_slice(bytes);
            return Ok(false);
        };
        let mut out = Vec::new();
        let handled = session.handle_bytes(bytes, &mut self.plain, &mut out);
        let sent = self.send(&out);
        let progress = handled.map_err(|fault| fault.text().to_owned())?;
        sent.map(|()| progress.peer_closed)
    }

    fn send(&mut self, bytes: &[u8]) -> Result<(), String> {
        if bytes.is_empty() {
            return Ok(());
        }
        let text = |error: std::io::Error| error.to_string();
        let left = left(self.deadline).map_err(text)?;
        self.stream.set_write_timeout(Some(left)).map_err(text)?;
        self.stream.write_all(bytes).map_err(text)
    }
}

/// The response in `bytes`; `None` if it is not complete. `has_ended`: there are no more bytes.
fn read_response(bytes: &[u8], has_ended: bool) -> Result<Option<Fetched>, String> {
    let mut rest = bytes;
    loop {
        let mut storage = ResponseStorage::new();
        let limits = ResponseLimits::default();
        let kind = RequestKind::default();
        let decoded = HeadDecoder::default().decode_response(rest, &limits, kind, &mut storage);
        let malformed = |_| "the response is not valid HTTP".to_owned();
        let Some((head, length)) = decoded.map_err(malformed)? else { return Ok(None) };
        let after = rest.get(length..).unwrap_or_default();
        if head.is_interim() {
            rest = after;
            continue;
        }
        match head.status {
            200 => {}
            300..=399 => {
                return Err(format!("the status is {}: redirects are not followed", head.status));
            }
            status => return Err(format!("the status is {status}")),
        }
        let usable = usable_span(&head);
        let mut decoder = BodyDecoder::new(head.length);
        let ends_with_connection =
            matches!(head.length, tidegate_wire::message::BodyLength::UntilClose);
        let (mut content, mut input) = (Vec::new(), after);
        while !decoder.is_done() && !input.is_empty() {
            let step = decoder.decode(input).map_err(malformed)?;
            content.extend_from_slice(step.data);
            input = input.get(step.consumed..).unwrap_or_default();
            if step.consumed == 0 {
                break;
            }
        }
        if content.len() > CONTENT_BYTES_MAX {
            return Err(format!("the content has more than {} KiB", CONTENT_BYTES_MAX >> 10));
        }
        let is_complete = decoder.is_done() || (ends_with_connection && has_ended);
        return Ok(is_complete.then_some(Fetched { content, usable }));
    }
}

/// How long a response may be used: max-age, less its Age; nothing if it must not be stored.
fn usable_span(head: &ResponseHead<'_>) -> Option<Duration> {
    let fields = |name: &'static str| {
        let found = head.fields().filter(move |field| field.name.eq_ignore_ascii_case(name));
        found.filter_map(|field| core::str::from_utf8(field.value).ok())
    };
    let mut usable = None;
    for directive in fields("cache-control").flat_map(|value| value.split(',')).map(str::trim) {
        let (name, value) = directive.split_once('=').unwrap_or((directive, ""));
        if name.eq_ignore_ascii_case("no-store") || name.eq_ignore_ascii_case("no-cache") {
            return Some(Duration::ZERO);
        }
        if name.eq_ignore_ascii_case("max-age") {
            usable = value.trim_matches('"').parse().ok().map(Duration::from_secs);
        }
    }
    let age = fields("age").next().and_then(|age| age.trim().parse().ok()).unwrap_or(0);
    usable.map(|usable: Duration| usable.saturating_sub(Duration::from_secs(age)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn response_ends_as_its_framing_states() {
        let usable = Some(Duration::from_secs(50));
        let complete = Fetched { content: b"{}".to_vec(), usable };
        let age = "Cache-Control: public, max-age=60\r\nAge: 10\r\n";
        for (text, has_ended, expected) in [
            (format!("HTTP/1.1 200 OK\r\n{age}Content-Length: 2\r\n\r\n{{}}"), false, true),
            (format!("HTTP/1.1 200 OK\r\n{age}Content-Length: 2\r\n\r\n{{"), true, false),
            (
                format!(
                    "HTTP/1.1 200 OK\r\n{age}Transfer-Encoding: chunked\r\n\r\n2\r\n{{}}\r\n0\r\n\r\n"
                ),
                false,
                true,
            ),
            (
                format!(
                    "HTTP/1.1 200 OK\r\n{age}Transfer-Encoding: chunked\r\n\r\n2\r\n{{}}\r\n0\r\n"
                ),
                true,
                false,
            ),
            (format!("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.0 200 OK\r\n{age}\r\n{{}}"), true, true),
            (format!("HTTP/1.0 200 OK\r\n{age}\r\n{{}}"), false, false),
            ("HTTP/1.1 200".to_owned(), true, false),
        ] {
            let found = read_response(text.as_bytes(), has_ended);
            assert_eq!(
                found.as_ref().map(Option::as_ref),
                Ok(expected.then_some(&complete)),
                "{text}"
            );
        }
        for (text, why) in [
            (
                "HTTP/1.1 302 Found\r\nLocation: http://169.254.169.254/\r\n\r\n",
                "redirects are not followed",
            ),
            ("HTTP/1.1 404 Not Found\r\n\r\n", "the status is 404"),
            ("SSH-2.0\r\n\r\n", "not valid HTTP"),
        ] {
            let found = read_response(text.as_bytes(), false).expect_err(text);
            assert!(found.contains(why), "{found}");
        }
        let long = format!("HTTP/1.0 200 OK\r\n\r\n{}", "a".repeat(CONTENT_BYTES_MAX + 1));
        assert!(read_response(long.as_bytes(), false).is_err());
    }

    #[test]
    fn cache_control_states_how_long_keys_may_be_used() {
        for (field, expected) in [
            ("X-A: b", None),
            ("Cache-Control: private", None),
            ("cache-control: max-age=\"5\"", Some(5)),
            ("Cache-Control: max-age=5, no-cache", Some(0)),
            ("Cache-Control: No-Store", Some(0)),
            ("Cache-Control: max-age=x", None),
            ("Cache-Control: max-age=5\r\nAge: 7", Some(0)),
        ] {
            let text = format!("HTTP/1.1 200 OK\r\n{field}\r\nContent-Length: 0\r\n\r\n");
            let found = read_response(text.as_bytes(), false).expect(field).expect(field);
            assert_eq!(found.usable, expected.map(Duration::from_secs), "{field}");
        }
    }
}
