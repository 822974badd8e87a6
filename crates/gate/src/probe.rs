//! The bytes of a health check: its request, and what the response to it means.
//! In: the settings of checks; bytes of a server. Out: bytes to send; the result once it is known.
//! Never: reads a body; guesses: a response that is not valid HTTP/1 fails the check.
//! Limits: `HEAD_BYTES_MAX` bytes of a response's head, `RESPONSE_FIELDS_MAX` fields.

use tidegate_config::model::{CheckMethod, HttpCheck, ProxyVersion, ServerAddress};
use tidegate_wire::http1::{HeadDecoder, ResponseLimits, encode_field, encode_request_line};
use tidegate_wire::message::{RequestKind, ResponseStorage};
use tidegate_wire::proxy_protocol::{Endpoints, encode_binary, encode_text};

use crate::health::Outcome;

/// The User-Agent of checks, so that a server can leave them out of its log.
const USER_AGENT: &[u8] = b"tidegate-health";

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
    encode_field(out, "Connection", b"close");
    out.extend_from_slice(b"\r\n");
}

/// Reads the response to a check.
#[derive(Debug, Default)]
pub struct ResponseReader {
    /// Decodes the heads of the response.
    decoder: HeadDecoder,
    /// The beginning of a head that is not complete.
    held: Vec<u8>,
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
                Ok(Some((head, _))) => {
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
