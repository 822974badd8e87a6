//! Reads the server name from the beginning of a TLS connection that is forwarded without being decrypted.
//! In: everything that the client has sent so far. Out: whether its ClientHello is complete, and the name in it.
//! Never: changes or consumes a byte; decides about the connection.
//! Limits: `PEEK_BYTES_MAX` bytes of records. Each record is examined once, however the bytes arrive.

use super::hello::{CLIENT_HELLO, name_of};
use super::records::{CONTENT_BYTES_MAX, HANDSHAKE, HEADER_BYTES};

/// Bytes of the records that contain a ClientHello. Key shares that resist quantum computers make it 2 KiB; rustls and
/// HAProxy accept about as much.
pub const PEEK_BYTES_MAX: usize = 20 * 1024;
/// Bytes of the header of a handshake message: type and length.
const MESSAGE_HEADER_BYTES: usize = 4;
const _: () = assert!(PEEK_BYTES_MAX <= u16::MAX as usize);

/// The beginning of a connection, as far as it is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Peeked<'a> {
    /// More bytes are needed.
    Incomplete,
    /// The ClientHello is complete; its server name (RFC 6066 section 3), if it has one, as the client wrote it.
    Hello(Option<&'a str>),
    /// The connection does not begin with a TLS handshake.
    NotTls,
    /// A TLS handshake that breaks the rules for records (RFC 8446 section 5.1), or a ClientHello that is too long.
    Malformed,
}

/// Follows the records of a connection until its ClientHello is complete.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct HelloPeek {
    /// Bytes of the records that were followed, from the beginning of the connection.
    followed: u16,
    /// Bytes of content in these records.
    content: u16,
    /// The header of the message, as far as it was in these records.
    header: [u8; MESSAGE_HEADER_BYTES],
}

impl HelloPeek {
    /// Looks at the records that have become complete. `bytes`: everything received so far, at least as much as at the
    /// look before. `scratch` is overwritten if the message is split into several records.
    pub fn look<'a>(&mut self, bytes: &'a [u8], scratch: &'a mut Vec<u8>) -> Peeked<'a> {
        loop {
            let start = usize::from(self.followed);
            let rest = bytes.get(start..).unwrap_or_default();
            match rest {
                [] => return Peeked::Incomplete,
                // The first byte is the type of the record; later records must have the same type.
                [kind, ..] if *kind != HANDSHAKE => return self.foreign(),
                [_, major, ..] if *major != 3 => return self.foreign(),
                _ => {}
            }
            let Some(&[_, _, _, high, low]) = rest.first_chunk::<HEADER_BYTES>() else {
                return Peeked::Incomplete;
            };
            let length = usize::from(u16::from_be_bytes([high, low]));
            let end = start + HEADER_BYTES + length;
            // RFC 8446 section 5.1: a handshake record is not empty.
            if length == 0 || length > CONTENT_BYTES_MAX || end > PEEK_BYTES_MAX {
                return Peeked::Malformed;
            }
            let Some(content) = bytes.get(start + HEADER_BYTES..end) else {
                return Peeked::Incomplete;
            };
            self.note_content(content);
            self.followed = end as u16;
            match self.message_bytes() {
                Some(count) if count > PEEK_BYTES_MAX => return Peeked::Malformed,
                Some(_) if self.header[0] != CLIENT_HELLO => return Peeked::Malformed,
                Some(count) if count <= usize::from(self.content) => {
                    return Peeked::Hello(name_in(&bytes[..end], count, scratch));
                }
                Some(_) | None => {}
            }
        }
    }

    /// The connection, at a record that is not a handshake record.
    fn foreign(&self) -> Peeked<'static> {
        if self.followed == 0 { Peeked::NotTls } else { Peeked::Malformed }
    }

    fn note_content(&mut self, content: &[u8]) {
        let known = usize::from(self.content).min(MESSAGE_HEADER_BYTES);
        for (place, byte) in self.header[known..].iter_mut().zip(content) {
            *place = *byte;
        }
        self.content += content.len() as u16;
    }

    /// Bytes of the message with its header, once the header is known.
    fn message_bytes(&self) -> Option<usize> {
        let [_, a, b, c] = self.header;
        let length = u32::from_be_bytes([0, a, b, c]) as usize;
        (usize::from(self.content) >= MESSAGE_HEADER_BYTES).then_some(MESSAGE_HEADER_BYTES + length)
    }
}

/// The name in a ClientHello of `count` bytes, which complete records contain.
fn name_in<'a>(records: &'a [u8], count: usize, scratch: &'a mut Vec<u8>) -> Option<&'a str> {
    let content_of = |record: &'a [u8]| {
        let length = usize::from(u16::from_be_bytes([*record.get(3)?, *record.get(4)?]));
        record.get(HEADER_BYTES..HEADER_BYTES + length)
    };
    let first = content_of(records)?;
    if first.len() >= count {
        return name_of(first.get(MESSAGE_HEADER_BYTES..count)?);
    }
    scratch.clear();
    let mut rest = records;
    while let Some(content) = content_of(rest) {
        scratch.extend_from_slice(content);
        rest = rest.get(HEADER_BYTES + content.len()..).unwrap_or_default();
    }
    name_of(scratch.get(MESSAGE_HEADER_BYTES..count)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tls::hello::test::hello;

    /// `message` in records of `size` bytes each.
    fn records(message: &[u8], size: usize) -> Vec<u8> {
        let record = |content: &[u8]| {
            [&[HANDSHAKE, 3, 1][..], &(content.len() as u16).to_be_bytes(), content].concat()
        };
        message.chunks(size).flat_map(record).collect()
    }

    /// The result of `peek` after each step of `step` bytes, until it is not `Incomplete`.
    fn peek(bytes: &[u8], step: usize) -> (Result<Option<String>, Peeked<'static>>, usize) {
        let (mut state, mut scratch, mut end) = (HelloPeek::default(), Vec::new(), 0);
        loop {
            end = (end + step).min(bytes.len());
            match state.look(&bytes[..end], &mut scratch) {
                Peeked::Incomplete if end < bytes.len() => {}
                Peeked::Hello(name) => return (Ok(name.map(str::to_owned)), end),
                Peeked::Incomplete => return (Err(Peeked::Incomplete), end),
                Peeked::NotTls => return (Err(Peeked::NotTls), end),
                Peeked::Malformed => return (Err(Peeked::Malformed), end),
            }
        }
    }

    #[test]
    fn name_is_found_however_records_and_packets_are_split() {
        let message = hello("a.example");
        for size in [1, 2, 3, 5, 40, 1000] {
            let bytes = records(&message, size);
            for step in [1, 2, 7, bytes.len()] {
                let (found, end) = peek(&bytes, step);
                assert_eq!(found, Ok(Some("a.example".to_owned())), "{size} {step}");
                assert_eq!(end, bytes.len());
                let (found, _) = peek(&bytes[..bytes.len() - 1], step);
                assert_eq!(found, Err(Peeked::Incomplete), "{size} {step}");
            }
        }
    }

    #[test]
    fn bytes_after_the_hello_do_not_matter() {
        let bytes = [&records(&hello("b"), 1000)[..], b"\x16\x03\x03\0\0more"].concat();
        assert_eq!(peek(&bytes, bytes.len()).0, Ok(Some("b".to_owned())));
        assert_eq!(peek(&records(&hello(""), 9), 1).0, Ok(None), "an empty name is no name");
    }

    #[test]
    fn other_protocols_are_recognised_by_their_first_bytes() {
        for bytes in [&b"GET / HTTP/1.1"[..], b"SSH-2.0", b"\x80\x2e\x01\x03\x01", b"\x16\x02"] {
            let (found, end) = peek(bytes, 1);
            assert_eq!((found, end <= 2), (Err(Peeked::NotTls), true), "{bytes:?}");
        }
        assert_eq!(peek(b"\x16", 1).0, Err(Peeked::Incomplete));
    }

    #[test]
    fn malformed_and_oversized_handshakes_are_refused_early() {
        let half = records(&hello("a.example")[..20], 20);
        let cases: [(&str, Vec<u8>, usize); 6] = [
            ("an empty record", vec![HANDSHAKE, 3, 1, 0, 0], 5),
            ("a record above the limit", vec![HANDSHAKE, 3, 1, 0x40, 1], 5),
            ("another message", records(&[2, 0, 0, 1, 0], 9), 10),
            ("an alert in between", [&half[..], &[21]].concat(), half.len() + 1),
            ("a message above the limit", records(&[1, 0, 0x60, 0], 4), 9),
            ("more records than fit", records(&[1, 0, 0x4f, 0xf0], 1).repeat(900), 0),
        ];
        for (what, bytes, end) in cases {
            let (found, read) = peek(&bytes, 1);
            assert_eq!(found, Err(Peeked::Malformed), "{what}");
            assert!(
                end == 0 && read <= PEEK_BYTES_MAX + HEADER_BYTES || read == end,
                "{what}: {read}"
            );
        }
    }
}
