//! gRPC: error responses in the form that clients of gRPC read (PROTOCOL-HTTP2.md of gRPC).
//! In: requests; the status and the text of an error response. Out: a response that ends with its head
//! (`Trailers-Only`), given to a sink.
//! Never: changes a response of a server; gives a gRPC response to a client of HTTP/1, whose protocol gRPC does not use.

use tidegate_wire::message::{BodyLength, FieldName, RequestHead, ResponseSink};

use crate::respond::{AnswerContext, encode_answer_fields};

/// The gRPC codes that correspond to HTTP statuses.
mod code {
    pub(super) const UNKNOWN: &[u8] = b"2";
    pub(super) const PERMISSION_DENIED: &[u8] = b"7";
    pub(super) const UNIMPLEMENTED: &[u8] = b"12";
    pub(super) const INTERNAL: &[u8] = b"13";
    pub(super) const UNAVAILABLE: &[u8] = b"14";
    pub(super) const UNAUTHENTICATED: &[u8] = b"16";
}

/// The longest delay that clients read, which is a 32-bit number.
const PUSHBACK_MS_MAX: u64 = i32::MAX as u64;

/// Whether the request is a call of gRPC: its content type is `application/grpc`, perhaps with a suffix
/// (`+proto`) or parameters. `application/grpc-web` is another protocol.
#[must_use]
pub fn is_call(head: &RequestHead<'_>) -> bool {
    const TYPE: &[u8] = b"application/grpc";
    let Some(value) = head.find(FieldName::ContentType) else { return false };
    let Some((name, rest)) = value.split_at_checked(TYPE.len()) else { return false };
    name.eq_ignore_ascii_case(TYPE) && matches!(rest.first(), None | Some(b'+' | b';' | b' '))
}

/// The code that a client of gRPC derives from a status of HTTP (http-grpc-status-mapping.md of gRPC).
const fn code_of(status: u16) -> &'static [u8] {
    match status {
        400 | 431 => code::INTERNAL,
        401 => code::UNAUTHENTICATED,
        403 => code::PERMISSION_DENIED,
        404 => code::UNIMPLEMENTED,
        429 | 502 | 503 | 504 => code::UNAVAILABLE,
        _ => code::UNKNOWN,
    }
}

/// Gives the sink an error response: the status of HTTP is 200, `grpc-status` contains the error, and `grpc-message`
/// its text. A `retry_after` above 0, in seconds, is sent as `grpc-retry-pushback-ms`, which clients with a retry policy
/// obey (A6-client-retries.md of gRPC). Returns `status`: statistics, tables and logs count the call as the failure that it is.
pub fn encode_error(
    sink: &mut impl ResponseSink,
    (status, text): (u16, &str),
    retry_after: u64,
    context: &AnswerContext<'_>,
) -> u16 {
    encode_answer_fields(sink, 200, context);
    sink.field("Content-Type", b"application/grpc");
    sink.field("grpc-status", code_of(status));
    sink.field_with("grpc-message", |out| encode_message(out, text));
    if retry_after > 0 {
        let pushback_ms = retry_after.saturating_mul(1000).min(PUSHBACK_MS_MAX);
        sink.field_u64("grpc-retry-pushback-ms", pushback_ms);
    }
    sink.length(BodyLength::None);
    sink.end();
    status
}

/// Appends a message: printable ASCII as it is, except for `%`, and all other bytes percent-encoded.
fn encode_message(out: &mut Vec<u8>, text: &str) {
    for &byte in text.as_bytes() {
        match byte {
            b' '..=b'~' if byte != b'%' => out.push(byte),
            _ => {
                let digit = |value: u8| b"0123456789ABCDEF"[usize::from(value & 15)];
                out.extend_from_slice(&[b'%', digit(byte >> 4), digit(byte)]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_have_the_codes_of_the_specification() {
        for (status, code) in [
            (400, "13"),
            (401, "16"),
            (403, "7"),
            (404, "12"),
            (408, "2"),
            (413, "2"),
            (429, "14"),
            (431, "13"),
            (500, "2"),
            (502, "14"),
            (503, "14"),
            (504, "14"),
        ] {
            assert_eq!(code_of(status), code.as_bytes(), "{status}");
        }
    }

    #[test]
    fn message_is_percent_encoded() {
        let mut out = Vec::new();
        encode_message(&mut out, "100 %\u{e9}\n~");
        assert_eq!(String::from_utf8(out).unwrap(), "100 %25%C3%A9%0A~");
    }
}
