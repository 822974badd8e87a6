//! The bytes of a health check by HTTP/1: its request, and the meaning of the response. `talk.rs` has all kinds of checks.
//! In: the settings of checks; bytes of a server. Out: bytes to send; the result once it is known.
//! Never: reads a body if no text is expected in it; guesses: a response that is not valid HTTP/1 fails the check.
//! Limits: `HEAD_BYTES_MAX` bytes of a response's head, `RESPONSE_FIELDS_MAX` fields, the setting `body-max`.

mod grpc;
mod talk;
mod websocket;

use tidegate_config::model::{BodyCheck, CheckMethod, HttpCheck, ProxyVersion, ServerAddress};
use tidegate_wire::http1::{
    BodyDecoder, HeadDecoder, ResponseLimits, encode_field, encode_request_line,
};
use tidegate_wire::message::{BodyLength, RequestKind, ResponseStorage};
use tidegate_wire::proxy_protocol::{Endpoints, encode_binary, encode_text};

pub use self::talk::{Talk, TalkStart};
use crate::health::{Outcome, Stage};

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
    let host = host_of(check.host.as_deref(), server);
    encode_field(out, "Host", host.as_bytes());
    encode_field(out, "User-Agent", USER_AGENT);
    out.extend_from_slice(CLOSING);
}

/// The host that a check names: the one of the settings, or else the address of the server.
#[must_use]
pub fn host_of(host: Option<&str>, server: &ServerAddress) -> String {
    match (host, server) {
        (Some(host), _) => host.to_owned(),
        (None, ServerAddress::Ip(address)) => address.to_string(),
        (None, ServerAddress::Name(name, port)) => format!("{name}:{port}"),
        (None, ServerAddress::Unix(_)) => "localhost".to_owned(),
        (None, ServerAddress::Slot(slot)) => slot.source.host(),
    }
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
    /// Searches the body; `None`: its head is not complete, or the body does not matter.
    search: Option<Search>,
    /// Reads the rest of the response; `None`: the connection must not be used again, or the head is not complete.
    rest: Option<RestReader>,
}

/// The search for a text in a body.
#[derive(Debug)]
struct Search {
    /// The status of the response, with which the check passes.
    status: u16,
    /// The connection may be used again after the body.
    is_persistent: bool,
    /// Decodes the body.
    body: BodyDecoder,
    /// The last bytes of the body so far: the text may begin in them.
    tail: Vec<u8>,
    /// How many bytes of the body have been searched.
    searched: usize,
}

impl Search {
    /// Takes bytes of the body. Returns the result once it is known, and whether the rest of the response may be read from the
    /// connection.
    fn read(&mut self, check: &BodyCheck, bytes: &[u8]) -> Option<(Outcome, Option<RestReader>)> {
        let text = check.text.as_bytes();
        let mut used = 0;
        loop {
            let Ok(step) = self.body.decode(&bytes[used..]) else {
                return Some((Outcome::Malformed, None));
            };
            used += step.consumed;
            let allowed = check.bytes_max.saturating_sub(self.searched).min(step.data.len());
            self.tail.extend_from_slice(&step.data[..allowed]);
            self.searched += allowed;
            let is_found = self.tail.windows(text.len()).any(|part| part == text);
            if is_found {
                let mut rest = RestReader { body: core::mem::replace(&mut self.body, NO_BODY) };
                let is_usable = self.is_persistent && rest.read(&bytes[used..]);
                return Some((Outcome::Passed(self.status), is_usable.then_some(rest)));
            }
            if step.done || self.searched >= check.bytes_max {
                return Some((Outcome::Body(self.status), None));
            }
            // After each piece, so that a body of many small chunks is not searched again and again.
            let before = self.tail.len().saturating_sub(text.len().saturating_sub(1));
            self.tail.drain(..before);
            if used == bytes.len() {
                return None;
            }
        }
    }
}

/// A body without bytes.
const NO_BODY: BodyDecoder = BodyDecoder::new(BodyLength::None);

impl ResponseReader {
    /// Takes bytes of the response. Returns the result once the head of the final response is complete or cannot be
    /// one, or else once its body is known to contain the expected text or not. The reader takes no more bytes after that.
    pub fn read(&mut self, check: &HttpCheck, bytes: &[u8]) -> Option<Outcome> {
        if self.search.is_some() {
            return self.search_body(check, bytes);
        }
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

    /// The server has ended the connection before the result was known.
    #[must_use]
    pub fn ended(&self) -> Outcome {
        match &self.search {
            Some(search) => Outcome::Body(search.status),
            None => Outcome::Closed(Stage::Response),
        }
    }

    fn search_body(&mut self, check: &HttpCheck, bytes: &[u8]) -> Option<Outcome> {
        let (search, expected) = (self.search.as_mut()?, check.body.as_ref()?);
        let (outcome, rest) = search.read(expected, bytes)?;
        self.rest = rest;
        Some(outcome)
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
                    let passes =
                        |&(first, last): &(u16, u16)| (first..=last).contains(&head.status);
                    let has_passed = check.status.iter().any(passes);
                    let (body, is_persistent) = (BodyDecoder::new(head.length), head.persistent);
                    if has_passed && check.body.is_some() {
                        let (status, tail, searched) = (head.status, Vec::new(), 0);
                        self.search = Some(Search { status, is_persistent, body, tail, searched });
                        return (self.search_body(check, &rest[length..]), bytes.len());
                    }
                    let mut reader = RestReader { body };
                    let is_usable = is_persistent && reader.read(&rest[length..]);
                    self.rest = is_usable.then_some(reader);
                    let outcome = match has_passed {
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
