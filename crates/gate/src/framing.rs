//! The framing field of a request head for an HTTP/1.1 server (RFC 9112 section 6).
//! In: the length of a body; a head that was encoded before the length was known. Out: the field; the parts of the head
//! around it.
//! Never: changes a head.
//! Invariant: an encoded head has at most one framing field.

use memchr::memmem;
use tidegate_wire::http1::encode_field_u64;
use tidegate_wire::message::BodyLength;

/// The framing field of a body of unknown length, as a line of a head.
const CHUNKED: &[u8] = b"Transfer-Encoding: chunked\r\n";

/// Appends the framing field (RFC 9112 section 6.3).
pub fn encode_length(out: &mut Vec<u8>, length: BodyLength) {
    match length {
        BodyLength::None | BodyLength::UntilClose => {}
        BodyLength::Length(length) => encode_field_u64(out, "Content-Length", length),
        BodyLength::Streamed => out.extend_from_slice(CHUNKED),
    }
}

/// The parts of an encoded head before and after the framing field of a body of unknown length, so that a field with the
/// length can take its place; `None` if the head has no such field. Only the proxy writes it: a received
/// Transfer-Encoding and fields that resemble it are never forwarded.
#[must_use]
pub fn split_at_chunked(head: &[u8]) -> Option<(&[u8], &[u8])> {
    const LINE: &[u8] = b"\r\nTransfer-Encoding: chunked\r\n";
    let start = memmem::find(head, LINE)? + 2;
    let (before, rest) = head.split_at_checked(start)?;
    Some((before, rest.get(CHUNKED.len()..)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A head, and its parts.
    type Case = (&'static [u8], Option<(&'static [u8], &'static [u8])>);

    #[test]
    fn head_is_split_at_its_framing_field() {
        let cases: [Case; 4] = [
            (
                b"POST /Transfer-Encoding:chunked HTTP/1.1\r\nA: Transfer-Encoding: chunked\r\n\
                  Transfer-Encoding: chunked\r\nVia: 1.1 t\r\n\r\n",
                Some((
                    b"POST /Transfer-Encoding:chunked HTTP/1.1\r\nA: Transfer-Encoding: chunked\r\n",
                    b"Via: 1.1 t\r\n\r\n",
                )),
            ),
            (
                b"PUT / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n",
                Some((b"PUT / HTTP/1.1\r\n", b"\r\n")),
            ),
            (b"PUT / HTTP/1.1\r\nContent-Length: 3\r\n\r\n", None),
            (b"PUT / HTTP/1.1\r\nX-Transfer-Encoding: chunked\r\n\r\n", None),
        ];
        for (head, expected) in cases {
            assert_eq!(split_at_chunked(head), expected, "{}", head.escape_ascii());
        }
    }

    #[test]
    fn written_framing_field_is_found() {
        for (length, is_found) in [
            (BodyLength::Streamed, true),
            (BodyLength::Length(0), false),
            (BodyLength::None, false),
            (BodyLength::UntilClose, false),
        ] {
            let mut head = b"POST / HTTP/1.1\r\n".to_vec();
            encode_length(&mut head, length);
            head.extend_from_slice(b"\r\n");
            assert_eq!(split_at_chunked(&head).is_some(), is_found, "{length:?}");
        }
    }
}
