//! The publisher: one publication after the other, each a POST on a kept connection.
//! In: the number of a publication. Out: when the call began, how long it took, whether the server accepted it.
//! Never: repeats a publication: a repetition could deliver it twice.
//! Limits: `RESPONSE_BYTES_MAX`; `--timeout` for the connect, and for each read and write.
//! Invariant: the time of a publication is noted before its first byte is sent.

use super::{PushPlan, Shared};
use crate::tls::fault_in_words;
use serde_json::json;
use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};
use tidegate_wire::tls::TlsSession;

/// Largest response to a publication.
const RESPONSE_BYTES_MAX: usize = 64 * 1024;
/// How much is read at once.
const PIECE_BYTES: usize = 4096;
/// A connection that was unused for longer is not used again: the server may be closing it.
const UNUSED_MAX: Duration = Duration::from_secs(2);

/// The publisher's connection.
pub(super) struct Publisher<'a> {
    plan: &'a PushPlan,
    /// The connection, and when it was last used; `None` before the first publication, and after a failure.
    stream: Option<(Channel, Instant)>,
}

/// A connection, with its TLS session if the URL is secure.
struct Channel {
    stream: TcpStream,
    session: Option<Box<TlsSession>>,
}

impl Channel {
    /// A connection that is established, with the TLS handshake that the URL of publications needs.
    fn begin(stream: TcpStream, plan: &PushPlan) -> Result<Self, String> {
        let mut channel = Self { stream, session: None };
        if !plan.publish_url.is_secure {
            return Ok(channel);
        }
        let (connector, _) = plan.tls.connector(1)?;
        let name = plan.tls.name_for(&plan.publish_url)?;
        let mut session = Box::new(connector.connect(&name).map_err(fault_in_words)?);
        let (mut piece, mut count) = ([0; PIECE_BYTES], 0);
        loop {
            let mut sealed = Vec::new();
            let progress = session
                .handle_bytes(&mut piece[..count], &mut Vec::new(), &mut sealed)
                .map_err(fault_in_words)?;
            channel.write(&sealed)?;
            if progress.established {
                channel.session = Some(session);
                return Ok(channel);
            }
            count = channel.read(&mut piece)?;
        }
    }

    fn send(&mut self, bytes: &[u8]) -> Result<(), String> {
        let Some(session) = &mut self.session else { return self.write(bytes) };
        let mut sealed = Vec::new();
        session.seal(bytes, &mut sealed).map_err(fault_in_words)?;
        self.write(&sealed)
    }

    /// Appends the bytes that the server has sent.
    fn receive(&mut self, input: &mut Vec<u8>) -> Result<(), String> {
        let mut piece = [0; PIECE_BYTES];
        let count = self.read(&mut piece)?;
        let Some(session) = &mut self.session else {
            input.extend_from_slice(&piece[..count]);
            return Ok(());
        };
        let mut sealed = Vec::new();
        session.handle_bytes(&mut piece[..count], input, &mut sealed).map_err(fault_in_words)?;
        self.write(&sealed)
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), String> {
        self.stream.write_all(bytes).map_err(|error| format!("cannot send: {error}"))
    }

    fn read(&mut self, piece: &mut [u8]) -> Result<usize, String> {
        match self.stream.read(piece) {
            Ok(0) => Err("the server closed the connection before its response".to_owned()),
            Ok(count) => Ok(count),
            Err(error) => Err(format!("no response: {error}")),
        }
    }
}

impl<'a> Publisher<'a> {
    pub(super) fn new(plan: &'a PushPlan) -> Self {
        Self { plan, stream: None }
    }

    /// Publishes message `number`. Returns how long the call took.
    ///
    /// # Errors
    /// Why the server did not accept the publication, in words.
    pub(super) fn publish(&mut self, number: u32, shared: &Shared) -> Result<Duration, String> {
        let request = self.publication(number);
        let mut begun = Duration::ZERO;
        let note_begin = || begun = shared.note_publication(number);
        let (status, body) = self.exchange(&request, note_begin)?;
        let took = shared.start.elapsed().saturating_sub(begun);
        // The server API reports errors with status 200.
        let is_error = !self.plan.publishes_body && find(&body, b"\"error\"").is_some();
        if !(200..300).contains(&status) || is_error {
            let text = String::from_utf8_lossy(&body[..body.len().min(200)]).into_owned();
            return Err(format!("status {status}: {text}"));
        }
        Ok(took)
    }

    /// Waits until every worker of the server has taken the subscriptions of the connections that are established: the server API
    /// queries all workers for the response to `info`. A server without that method gets its first publication without the wait.
    pub(super) fn await_subscriptions(&mut self) {
        let target = self.plan.publish_url.target.strip_suffix("/publish");
        if let Some(target) = target.filter(|_| !self.plan.publishes_body) {
            let request = self.request(&format!("{target}/info"), "{}");
            let _ = self.exchange(&request, || {});
        }
    }

    /// Sends a request. Returns the status and the body of the response.
    fn exchange(
        &mut self,
        request: &[u8],
        note_begin: impl FnOnce(),
    ) -> Result<(u16, Vec<u8>), String> {
        let mut stream = match self.stream.take() {
            Some((stream, used_at)) if used_at.elapsed() < UNUSED_MAX => stream,
            _ => {
                let stream = self.connect().map_err(|error| format!("cannot connect: {error}"))?;
                Channel::begin(stream, self.plan)?
            }
        };
        note_begin();
        stream.send(request)?;
        let (status, body, is_kept) = read_response(&mut stream)?;
        if is_kept {
            self.stream = Some((stream, Instant::now()));
        }
        Ok((status, body))
    }

    fn connect(&self) -> io::Result<TcpStream> {
        let url = &self.plan.publish_url;
        let address = url.resolve().map_err(io::Error::other)?;
        let tidegate_base::Address::Tcp(address) = address else {
            return Err(io::Error::other("only TCP is supported"));
        };
        let stream = TcpStream::connect_timeout(&address, self.plan.timeout)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(self.plan.timeout))?;
        stream.set_write_timeout(Some(self.plan.timeout))?;
        Ok(stream)
    }

    fn publication(&self, number: u32) -> Vec<u8> {
        let plan = self.plan;
        let data = plan.payload.encode(number);
        let channel = (number % plan.channels).to_string();
        let body = match plan.publishes_body {
            true => data,
            false => {
                let name = json!(plan.channel.replace("{}", &channel));
                format!("{{\"channel\":{name},\"data\":{data}}}")
            }
        };
        self.request(&plan.publish_url.target.replace("{}", &channel), &body)
    }

    fn request(&self, target: &str, body: &str) -> Vec<u8> {
        let url = &self.plan.publish_url;
        let mut request = format!(
            "POST {target} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n",
            url.authority,
            body.len()
        );
        if let Some(key) = &self.plan.api_key {
            request.push_str("X-API-Key: ");
            request.push_str(key);
            request.push_str("\r\n");
        }
        request.push_str("\r\n");
        request.push_str(body);
        request.into_bytes()
    }
}

/// Reads a response: its status, its body, and whether the connection can be used again.
fn read_response(channel: &mut Channel) -> Result<(u16, Vec<u8>, bool), String> {
    let mut input = Vec::new();
    loop {
        if let Some((status, body, is_kept)) = parse_response(&input) {
            return Ok((status, body.to_vec(), is_kept));
        }
        channel.receive(&mut input)?;
        if input.len() > RESPONSE_BYTES_MAX {
            return Err("the response is too long".to_owned());
        }
    }
}

/// The status, the body so far and whether the connection can be used again, if the response is complete. A response
/// without Content-Length counts as complete after its head; its connection is not used again.
fn parse_response(input: &[u8]) -> Option<(u16, &[u8], bool)> {
    let end = find(input, b"\r\n\r\n")? + 4;
    let head = core::str::from_utf8(&input[..end]).unwrap_or_default().to_ascii_lowercase();
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    let value = |name: &str| head.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let Some(length) = value("content-length:").and_then(|length| length.parse::<usize>().ok())
    else {
        return Some((status, &input[end..], false));
    };
    let body = input.get(end..end.checked_add(length)?)?;
    Some((status, body, value("connection:") != Some("close")))
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    memchr::memmem::find(bytes, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn response_is_complete_with_its_last_byte() {
        let response = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}";
        for length in 0..response.len() {
            assert_eq!(parse_response(&response[..length]), None, "{length} bytes");
        }
        assert_eq!(parse_response(response), Some((200, &b"{}"[..], true)));
        let closing = b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
        assert_eq!(parse_response(closing), Some((202, &b""[..], false)));
        assert_eq!(
            parse_response(b"HTTP/1.1 204 No Content\r\n\r\n"),
            Some((204, &b""[..], false))
        );
    }
}
