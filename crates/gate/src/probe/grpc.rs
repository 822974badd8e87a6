//! A health check by gRPC: a call of `grpc.health.v1.Health/Check` over HTTP/2.
//! In: the name of a service; bytes of the server. Out: the bytes of a connection with one request; the state that the server reports.
//! Never: accepts a response without a final gRPC status, or a compressed message.
//! Limits: `MESSAGE_BYTES_MAX` bytes of the response's message; those of `wire::http2`.

use tidegate_base::Moment;
use tidegate_config::model::GrpcCheck;
use tidegate_wire::http2::{Config, Connection, Event, RequestLine, Scratch};
use tidegate_wire::message::{Field, ResponseHead};

use super::USER_AGENT;
use super::talk::TalkStart;
use crate::health::{Outcome, Stage};

/// Bytes of a message with its prefix. The message of a healthy server has two.
const MESSAGE_BYTES_MAX: usize = 1024;
/// The length of the prefix of a message: whether it is compressed, and its length.
const PREFIX_BYTES: usize = 5;
/// `SERVING` of the health protocol.
const SERVING: u64 = 1;

/// The call of a check.
#[derive(Debug)]
pub struct GrpcTalk {
    connection: Connection,
    /// The message of the response so far, with its prefix.
    message: Vec<u8>,
}

impl GrpcTalk {
    /// Begins the connection, and appends the request.
    pub(super) fn begin(check: &GrpcCheck, start: &TalkStart<'_>, out: &mut Vec<u8>) -> Self {
        let mut connection = Connection::new(Config::client(), start.now);
        connection.start(out);
        let line = RequestLine {
            method: "POST",
            scheme: if start.is_secured { "https" } else { "http" },
            authority: start.host,
            path: "/grpc.health.v1.Health/Check",
            protocol: None,
        };
        let sent = connection.send_request(out, 0, &line, false, |fields| {
            fields.field("content-type", b"application/grpc");
            fields.field("te", b"trailers");
            fields.field("user-agent", USER_AGENT);
        });
        if let Ok(stream) = sent {
            // The first window of a stream holds more than the longest name.
            let _ = connection.send_data(start.now, out, stream, &request(&check.service), true);
        }
        Self { connection, message: Vec::new() }
    }

    pub(super) fn read(&mut self, now: Moment, bytes: &[u8], out: &mut Vec<u8>) -> Option<Outcome> {
        let (mut input, mut scratch) = (bytes, Scratch::default());
        loop {
            let event = match self.connection.receive(now, &mut input, &mut scratch, out) {
                Ok(event) => event?,
                Err(_) => return Some(Outcome::NotGrpc),
            };
            let released = match event {
                Event::Response { head, ends, .. } if !head.is_interim() => {
                    match (head_outcome(&head), ends) {
                        (Some(outcome), _) => return Some(outcome),
                        // A response without a message has its status in the head. Success without a message is none.
                        (None, true) => {
                            let status = status_outcome(head.fields()).unwrap_or(Outcome::NotGrpc);
                            let is_success = status == Outcome::Serving;
                            return Some(if is_success { Outcome::NotGrpc } else { status });
                        }
                        (None, false) => None,
                    }
                }
                Event::Data { stream, bytes, ends, .. } => {
                    if ends || self.message.len() + bytes.len() > MESSAGE_BYTES_MAX {
                        return Some(Outcome::NotGrpc);
                    }
                    self.message.extend_from_slice(bytes);
                    Some((stream, bytes.len()))
                }
                Event::Trailers { fields, .. } => {
                    let status = status_outcome(fields).unwrap_or(Outcome::NotGrpc);
                    return Some(if status == Outcome::Serving {
                        state_of(&self.message)
                    } else {
                        status
                    });
                }
                Event::Reset { .. } => return Some(Outcome::Closed(Stage::Response)),
                Event::Response { .. }
                | Event::Request { .. }
                | Event::RequestTooLarge { .. }
                | Event::Rejected { .. }
                | Event::GoAway { .. }
                | Event::Settings
                | Event::Pong { .. } => None,
            };
            if let Some((stream, count)) = released {
                self.connection.release(out, stream, count);
            }
        }
    }
}

/// The message of the request, with its prefix.
fn request(service: &str) -> Vec<u8> {
    let mut message = Vec::new();
    if !service.is_empty() {
        // Field 1, with a length.
        message.push(1 << 3 | 2);
        encode_varint(&mut message, service.len() as u64);
        message.extend_from_slice(service.as_bytes());
    }
    let mut framed = vec![0];
    framed.extend_from_slice(&(message.len() as u32).to_be_bytes());
    framed.extend_from_slice(&message);
    framed
}

fn encode_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// The failure that the head of a response shows.
fn head_outcome(head: &ResponseHead<'_>) -> Option<Outcome> {
    if head.status != 200 {
        return Some(Outcome::Status(head.status));
    }
    let is_grpc = |field: Field<'_>| {
        field.name.eq_ignore_ascii_case("content-type")
            && field.value.starts_with(b"application/grpc")
    };
    (!head.fields().any(is_grpc)).then_some(Outcome::NotGrpc)
}

/// The outcome of the field `grpc-status`; `None` without a valid one. Success: `Serving`, if the message says so.
fn status_outcome<'f>(mut fields: impl Iterator<Item = Field<'f>>) -> Option<Outcome> {
    let field = fields.find(|field| field.name.eq_ignore_ascii_case("grpc-status"))?;
    let status = core::str::from_utf8(field.value).ok()?.parse::<u16>().ok()?;
    Some(if status == 0 { Outcome::Serving } else { Outcome::GrpcStatus(status) })
}

/// The state in the message of a successful response.
fn state_of(framed: &[u8]) -> Outcome {
    let Some((prefix, message)) = framed.split_at_checked(PREFIX_BYTES) else {
        return Outcome::NotGrpc;
    };
    let length = prefix[1..].iter().fold(0, |length, byte| length << 8 | usize::from(*byte));
    if prefix[0] != 0 || length != message.len() {
        return Outcome::NotGrpc;
    }
    match decode_state(message) {
        Some(SERVING) => Outcome::Serving,
        Some(_) => Outcome::NotServing,
        None => Outcome::NotGrpc,
    }
}

/// Field 1 of a message of Protocol Buffers; 0 if it is missing. `None`: the message is malformed.
fn decode_state(message: &[u8]) -> Option<u64> {
    let (mut rest, mut state) = (message, 0);
    while !rest.is_empty() {
        let key = decode_varint(&mut rest)?;
        let length = match key & 7 {
            0 => {
                let value = decode_varint(&mut rest)?;
                state = if key >> 3 == 1 { value } else { state };
                0
            }
            1 => 8,
            2 => usize::try_from(decode_varint(&mut rest)?).ok()?,
            5 => 4,
            _ => return None,
        };
        rest = rest.get(length..)?;
    }
    Some(state)
}

fn decode_varint(rest: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (byte, after) = rest.split_first()?;
        *rest = after;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_the_health_protocol_are_understood() {
        for (message, expected) in [
            (&[0, 0, 0, 0, 2, 8, 1][..], Outcome::Serving),
            (&[0, 0, 0, 0, 2, 8, 2], Outcome::NotServing),
            (&[0, 0, 0, 0, 2, 8, 0], Outcome::NotServing),
            // The default of the field is UNKNOWN.
            (&[0, 0, 0, 0, 0], Outcome::NotServing),
            // Unknown fields of each type, then the state.
            (&[0, 0, 0, 0, 9, 0x10, 0x80, 1, 0x1a, 2, 7, 7, 8, 1], Outcome::Serving),
            (&[0, 0, 0, 0, 7, 0x25, 1, 2, 3, 4, 8, 1], Outcome::Serving),
            (&[0, 0, 0, 0, 3, 8, 1], Outcome::NotGrpc),
            (&[1, 0, 0, 0, 2, 8, 1], Outcome::NotGrpc),
            (&[0, 0, 0, 0, 1, 8], Outcome::NotGrpc),
            (&[0, 0, 0, 0, 2, 0x1a, 9], Outcome::NotGrpc),
            (&[0, 0, 0, 0, 1, 0x0f], Outcome::NotGrpc),
            (&[0, 0, 0], Outcome::NotGrpc),
            (&[], Outcome::NotGrpc),
        ] {
            assert_eq!(state_of(message), expected, "{message:?}");
        }
    }

    #[test]
    fn request_names_the_service() {
        assert_eq!(request(""), [0, 0, 0, 0, 0]);
        assert_eq!(request("ab"), [0, 0, 0, 0, 4, 0x0a, 2, b'a', b'b']);
        let long = request(&"x".repeat(300));
        assert_eq!(long[..8], [0, 0, 0, 1, 47, 0x0a, 0xac, 2]);
        assert_eq!(long.len(), 5 + 3 + 300);
    }
}
