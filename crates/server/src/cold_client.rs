//! Sends a request of Tidegate itself over http or https, and receives the response, on the thread that calls it.
//! In: an address of the configuration, an encoded request. Out: the response; or why there is none.
//! Never: runs on a worker; follows a redirect; accepts a server whose certificate does not verify against its authorities.
//! Limits: `EXCHANGE_SPAN` for all, `CONNECT_SPAN` and `ADDRESSES_MAX` for connecting, and as many bytes of the response as the
//! caller states.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs as _};
use std::time::{Duration, Instant};

use tidegate_config::model::RemoteAddress;
use tidegate_wire::http1::{
    BodyDecoder, HeadDecoder, ResponseLimits, encode_field, encode_request_line,
};
use tidegate_wire::message::{BodyLength, RequestKind, ResponseStorage};
use tidegate_wire::tls::{Connector, ConnectorSettings, Roots, SetupFault, TlsClock, TlsSession};

use crate::reload::unix_seconds;

/// How long an exchange may take, after the name is resolved.
const EXCHANGE_SPAN: Duration = Duration::from_secs(10);
/// How long a connection to one address may take.
const CONNECT_SPAN: Duration = Duration::from_secs(3);
/// How many addresses of a name are tried.
const ADDRESSES_MAX: usize = 4;

/// A final response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Response {
    /// The status.
    pub(crate) status: u16,
    /// The fields: names in lower case, and values.
    pub(crate) fields: Vec<(String, String)>,
    /// The content.
    pub(crate) content: Vec<u8>,
}

impl Response {
    /// The values of the fields with a name in lower case.
    pub(crate) fn values(&self, name: &str) -> impl Iterator<Item = &str> {
        let found = self.fields.iter().filter(move |(own, _)| own == name);
        found.map(|(_, value)| value.as_str())
    }
}

/// Checks the authorities of an address.
///
/// # Errors
/// They cannot be used.
pub(crate) fn check(remote: &RemoteAddress) -> Result<(), String> {
    connector(remote).map(drop).map_err(|fault| fault.to_string())
}

/// Begins a request: its first line, and the fields of all requests. The caller adds further fields and the empty line. The
/// connection closes after the response.
pub(crate) fn begin_request(remote: &RemoteAddress, method: &str) -> Vec<u8> {
    let mut request = Vec::new();
    encode_request_line(&mut request, method, &remote.target);
    encode_field(&mut request, "Host", remote.authority.as_bytes());
    encode_field(&mut request, "User-Agent", b"tidegate");
    encode_field(&mut request, "Connection", b"close");
    request
}

/// Sends a request to an address. `only_own`: without TLS only to this machine. Up to `content_max` bytes of content are
/// accepted.
///
/// # Errors
/// Why there is no complete response.
pub(crate) fn exchange(
    remote: &RemoteAddress,
    request: &[u8],
    only_own: bool,
    content_max: usize,
) -> Result<Response, String> {
    let place = (remote.host.as_str(), remote.port);
    let addresses = place.to_socket_addrs().map_err(|error| format!("{}: {error}", remote.host))?;
    let deadline = Instant::now() + EXCHANGE_SPAN;
    let is_allowed =
        |address: &SocketAddr| !only_own || remote.is_tls || address.ip().is_loopback();
    let mut why = format!("{} has no address", remote.host);
    for address in addresses.filter(is_allowed).take(ADDRESSES_MAX) {
        match connect(&address, deadline) {
            Ok(stream) => {
                return Exchange::new(stream, remote, deadline, content_max)?.run(request);
            }
            Err(error) => why = format!("{address}: {error}"),
        }
    }
    Err(why)
}

fn connector(remote: &RemoteAddress) -> Result<Connector, SetupFault> {
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
struct Exchange {
    stream: TcpStream,
    /// `None`: without TLS.
    session: Option<TlsSession>,
    /// The received bytes, without TLS.
    plain: Vec<u8>,
    deadline: Instant,
    content_max: usize,
}

impl Exchange {
    fn new(
        stream: TcpStream,
        remote: &RemoteAddress,
        deadline: Instant,
        content_max: usize,
    ) -> Result<Self, String> {
        let session = match remote.is_tls {
            true => {
                let connector = connector(remote).map_err(|fault| fault.to_string())?;
                let session = connector.connect(remote.host.trim_end_matches('.'));
                Some(session.map_err(|fault| fault.text().to_owned())?)
            }
            false => None,
        };
        Ok(Self { stream, session, plain: Vec::new(), deadline, content_max })
    }

    fn run(mut self, request: &[u8]) -> Result<Response, String> {
        self.handshake()?;
        let sealed = match &mut self.session {
            Some(session) => {
                let mut sealed = Vec::new();
                session.seal(request, &mut sealed).map_err(|fault| fault.text().to_owned())?;
                Some(sealed)
            }
            None => None,
        };
        self.send(sealed.as_deref().unwrap_or(request))?;
        loop {
            let has_ended = self.receive()?;
            if let Some(response) = read_response(&self.plain, has_ended, self.content_max)? {
                return Ok(response);
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
                format!("no complete response within {EXCHANGE_SPAN:?}")
            }
            _ => error.to_string(),
        };
        let left = left(self.deadline).map_err(io)?;
        self.stream.set_read_timeout(Some(left)).map_err(io)?;
        let count = self.stream.read(&mut buffer).map_err(io)?;
        let has_closed = self.handle(&mut buffer[..count])?;
        // The framing and the head may take as much as the content.
        let received_max = 2 * self.content_max;
        match self.plain.len() <= received_max {
            true => Ok(count == 0 || has_closed),
            false => Err(format!("the response has more than {} KiB", received_max >> 10)),
        }
    }

    /// Handles received bytes. Returns whether they are the end of the server's bytes.
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

    fn send(&mut self, mut bytes: &[u8]) -> Result<(), String> {
        let text = |error: std::io::Error| match error.kind() {
            std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut => {
                format!("the server did not read the request within {EXCHANGE_SPAN:?}")
            }
            _ => error.to_string(),
        };
        while !bytes.is_empty() {
            // The timeout is that of one call: a server that takes a few bytes now and then must not renew it.
            let left = left(self.deadline).map_err(text)?;
            self.stream.set_write_timeout(Some(left)).map_err(text)?;
            match self.stream.write(bytes) {
                Ok(0) => return Err("the connection accepts no more bytes".to_owned()),
                Ok(count) => bytes = bytes.get(count..).unwrap_or_default(),
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(text(error)),
            }
        }
        Ok(())
    }
}

/// The response in `bytes`; `None` if it is not complete. `has_ended`: there are no more bytes.
fn read_response(
    bytes: &[u8],
    has_ended: bool,
    content_max: usize,
) -> Result<Option<Response>, String> {
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
        let mut decoder = BodyDecoder::new(head.length);
        let ends_with_connection = matches!(head.length, BodyLength::UntilClose);
        let (mut content, mut input) = (Vec::new(), after);
        while !decoder.is_done() && !input.is_empty() {
            let step = decoder.decode(input).map_err(malformed)?;
            content.extend_from_slice(step.data);
            input = input.get(step.consumed..).unwrap_or_default();
            if step.consumed == 0 {
                break;
            }
        }
        if content.len() > content_max {
            return Err(format!("the content has more than {} KiB", content_max >> 10));
        }
        let is_complete = decoder.is_done() || (ends_with_connection && has_ended);
        let field = |field: tidegate_wire::message::Field<'_>| {
            let value = core::str::from_utf8(field.value).ok()?;
            Some((field.name.to_ascii_lowercase(), value.to_owned()))
        };
        let fields = head.fields().filter_map(field).collect();
        return Ok(is_complete.then_some(Response { status: head.status, fields, content }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONTENT_MAX: usize = 4096;

    #[test]
    fn response_ends_as_its_framing_states() {
        let chunked = "Transfer-Encoding: chunked";
        for (line, framing, rest, has_ended, is_complete) in [
            ("HTTP/1.1 200 OK", "Content-Length: 2", "{}", false, true),
            ("HTTP/1.1 404 No", "Content-Length: 2", "{}", false, true),
            ("HTTP/1.1 200 OK", "Content-Length: 2", "{", true, false),
            ("HTTP/1.1 200 OK", chunked, "2\r\n{}\r\n0\r\n\r\n", false, true),
            ("HTTP/1.1 200 OK", chunked, "2\r\n{}\r\n0\r\n", true, false),
            ("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.0 200 OK", "", "{}", true, true),
            ("HTTP/1.0 200 OK", "", "{}", false, false),
        ] {
            let lines = if framing.is_empty() { String::new() } else { format!("{framing}\r\n") };
            let text = format!("{line}\r\nA: b\r\na: c\r\n{lines}\r\n{rest}");
            let found = read_response(text.as_bytes(), has_ended, CONTENT_MAX);
            let found = found.unwrap_or_else(|why| panic!("{text}: {why}"));
            let status = if line.contains("404") { 404 } else { 200 };
            let content = found.as_ref().map(|response| (response.status, &response.content[..]));
            assert_eq!(content, is_complete.then_some((status, &b"{}"[..])), "{text}");
            let Some(response) = found else { continue };
            assert_eq!(response.values("a").collect::<Vec<_>>(), ["b", "c"], "{text}");
        }
        assert_eq!(read_response(b"HTTP/1.1 200", false, CONTENT_MAX), Ok(None));
    }

    #[test]
    fn request_that_is_taken_slowly_ends_at_the_deadline() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("it is bound");
        let stream = TcpStream::connect(address).expect("it listens");
        let (mut peer, _) = listener.accept().expect("a connection");
        let reader = std::thread::spawn(move || {
            let mut buffer = vec![0; 64 << 10];
            while peer.read(&mut buffer).is_ok_and(|count| count > 0) {
                std::thread::sleep(Duration::from_millis(2));
            }
        });
        let deadline = Instant::now() + Duration::from_millis(200);
        let (plain, content_max) = (Vec::new(), CONTENT_MAX);
        let mut exchange = Exchange { stream, session: None, plain, deadline, content_max };
        // The reader needs two seconds at least, but takes bytes all the time.
        let why = exchange.send(&vec![0; 64 << 20]).expect_err("the time is over");
        assert_eq!(why, "the server did not read the request within 10s");
        drop(exchange);
        reader.join().expect("it ends");
    }

    #[test]
    fn other_protocols_and_long_responses_are_refused() {
        let refused =
            |text: &str| read_response(text.as_bytes(), false, CONTENT_MAX).expect_err(text);
        assert_eq!(refused("SSH-2.0\r\n\r\n"), "the response is not valid HTTP");
        let long = format!("HTTP/1.0 200 OK\r\n\r\n{}", "a".repeat(CONTENT_MAX + 1));
        assert_eq!(refused(&long), "the content has more than 4 KiB");
    }
}
