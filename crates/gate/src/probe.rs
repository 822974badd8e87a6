//! The bytes of a health check: its request, and the meaning of the response.
//! In: the settings of checks; bytes of a server. Out: bytes to send; the result once it is known.
//! Never: interprets a body; guesses: a response that is not valid HTTP/1 fails the check.
//! Limits: `HEAD_BYTES_MAX` bytes of a response's head, `RESPONSE_FIELDS_MAX` fields.

use tidegate_config::model::{CheckMethod, HttpCheck, ProxyVersion, ServerAddress};
use tidegate_wire::http1::{
    BodyDecoder, HeadDecoder, ResponseLimits, encode_field, encode_request_line,
};
use tidegate_wire::message::{RequestKind, ResponseStorage};
use tidegate_wire::proxy_protocol::{Endpoints, encode_binary, encode_text};

use crate::health::Outcome;

/// The User-Agent of checks, so that a server can omit them from its log.
const USER_AGENT: &[u8] = b"tidegate-health";
/// The end of each request: the server closes the connection after its response.
const CLOSING: &[u8] = b"Connection: close\r\n\r\n";

/// Appends the PROXY header of a connection that carries no client's request.
pub fn encode_proxy_header(out: &mut Vec<u8>, version: ProxyVersion) {
    match version {
        ProxyVersion::V1 => encode_text(out, &Endpoints::Local),
        ProxyVersion::V2 => encode_binary(out, &Endpoints::Local, [], false),
    }
}

/// Appends the request of a check of `server`.
pub fn encode_request(out: &mut Vec<u8>, check: &HttpCheck, server: &ServerAddress) {
    let method = match check.method {
        CheckMethod::Get => "GET",
        CheckMethod::Head => "HEAD",
        CheckMethod::Options => "OPTIONS",
    };
    encode_request_line(out, method, &check.target);
    let own;
    let host = match (&check.host, server) {
        (Some(host), _) => host.as_str(),
        (None, ServerAddress::Ip(address)) => {
            own = address.to_string();
            &own
        }
        (None, ServerAddress::Name(name, port)) => {
            own = format!("{name}:{port}");
            &own
        }
        (None, ServerAddress::Unix(_)) => "localhost",
    };
    encode_field(out, "Host", host.as_bytes());
    encode_field(out, "User-Agent", USER_AGENT);
    out.extend_from_slice(CLOSING);
}

/// The pieces of the same request after which the server keeps the connection open. `request`: from `encode_request`.
#[must_use]
pub fn keeping(request: &[u8]) -> [&[u8]; 2] {
    [request.strip_suffix(CLOSING).unwrap_or(request), b"\r\n"]
}

/// Reads the rest of a response whose connection may be used again.
#[derive(Debug)]
pub struct RestReader {
    body: BodyDecoder,
}

impl RestReader {
    /// Takes further bytes. Returns whether the connection may still be used: false if the body is malformed, or if
    /// the server has sent more than the response.
    pub fn read(&mut self, bytes: &[u8]) -> bool {
        let mut used = 0;
        while used < bytes.len() && !self.is_done() {
            match self.body.decode(&bytes[used..]) {
                Ok(step) => used += step.consumed,
                Err(_) => return false,
            }
        }
        used == bytes.len()
    }

    /// Whether the response is complete.
    #[must_use]
    pub const fn is_done(&self) -> bool {
        self.body.is_done()
    }
}

/// Reads the response to a check.
#[derive(Debug, Default)]
pub struct ResponseReader {
    /// Decodes the heads of the response.
    decoder: HeadDecoder,
    /// The beginning of a head that is not complete.
    held: Vec<u8>,
    /// Reads the rest of the response; `None`: the connection must not be used again, or the head is not complete.
    rest: Option<RestReader>,
}

impl ResponseReader {
    /// Takes bytes of the response. Returns the result once the head of the final response is complete or cannot be
    /// one. The reader takes no more bytes after that.
    pub fn read(&mut self, check: &HttpCheck, bytes: &[u8]) -> Option<Outcome> {
        let mut held = core::mem::take(&mut self.held);
        if held.is_empty() {
            let (outcome, used) = self.decode(check, bytes);
            self.held.extend_from_slice(&bytes[used..]);
            return outcome;
        }
        held.extend_from_slice(bytes);
        let (outcome, used) = self.decode(check, &held);
        held.drain(..used);
        self.held = held;
        outcome
    }

    /// The rest of the response after the final head; `None`: the connection must not be used again.
    #[must_use]
    pub fn into_rest(self) -> Option<RestReader> {
        self.rest
    }

    /// Decodes heads until the final one. Also returns how many bytes were used.
    fn decode(&mut self, check: &HttpCheck, bytes: &[u8]) -> (Option<Outcome>, usize) {
        let kind = RequestKind {
            is_head: check.method == CheckMethod::Head,
            is_connect: false,
            upgrade_asked: false,
        };
        let mut used = 0;
        loop {
            let mut storage = ResponseStorage::new();
            let rest = &bytes[used..];
            let limits = ResponseLimits::default();
            match self.decoder.decode_response(rest, &limits, kind, &mut storage) {
                Ok(None) => return (None, used),
                Ok(Some((head, length))) if head.is_interim() => used += length,
                Ok(Some((head, length))) => {
                    let mut reader = RestReader { body: BodyDecoder::new(head.length) };
                    let is_usable = head.persistent && reader.read(&rest[length..]);
                    self.rest = is_usable.then_some(reader);
                    let passes =
                        |&(first, last): &(u16, u16)| (first..=last).contains(&head.status);
                    let outcome = match check.status.iter().any(passes) {
                        true => Outcome::Passed(head.status),
                        false => Outcome::Status(head.status),
                    };
                    return (Some(outcome), bytes.len());
                }
                Err(_) => return (Some(Outcome::Malformed), bytes.len()),
            }
        }
    }
}
