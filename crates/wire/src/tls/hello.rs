//! Reads from a client's first message the server name that the client requests. rustls reports the name
//! only to the certificate resolver, without the connection.
//! In: the received bytes of a connection. Out: the name (RFC 6066 section 3), if it is present.
//! Never: validates the message; rustls does that and rejects malformed messages.
//! Limits: `NAME_BYTES_MAX`; a message in more than `RECORDS_MAX` records is not read.

/// Bytes of a name: the limit of DNS.
const NAME_BYTES_MAX: usize = 255;
/// Records that the message may be split into; clients use one.
const RECORDS_MAX: usize = 8;

const HANDSHAKE: u8 = 22;
const CLIENT_HELLO: u8 = 1;
const SERVER_NAME: u16 = 0;
const HOST_NAME: u8 = 0;

/// The name in the ClientHello at the start of `records`; `None` if the message has no name or is incomplete.
pub(super) fn read_server_name(records: &[u8]) -> Option<String> {
    let mut message = Vec::new();
    let mut reader = Reader(records);
    for _ in 0..RECORDS_MAX {
        if reader.byte()? != HANDSHAKE {
            return None;
        }
        reader.take(2)?;
        message.extend_from_slice(reader.prefixed_u16()?.0);
        if let Some(&[CLIENT_HELLO, a, b, c]) = message.first_chunk::<4>() {
            let length = u32::from_be_bytes([0, a, b, c]) as usize;
            if let Some(hello) = message.get(4..4 + length) {
                return name_of(Reader(hello));
            }
        }
    }
    None
}

/// The name in the body of a ClientHello (RFC 8446 section 4.1.2).
fn name_of(mut hello: Reader<'_>) -> Option<String> {
    hello.take(2 + 32)?;
    hello.prefixed_u8()?;
    hello.prefixed_u16()?;
    hello.prefixed_u8()?;
    let mut extensions = hello.prefixed_u16()?;
    loop {
        let kind = extensions.number()?;
        let mut content = extensions.prefixed_u16()?;
        if kind != SERVER_NAME {
            continue;
        }
        let mut names = content.prefixed_u16()?;
        if names.byte()? != HOST_NAME {
            return None;
        }
        let name = core::str::from_utf8(names.prefixed_u16()?.0).ok()?;
        let sound = (1..=NAME_BYTES_MAX).contains(&name.len())
            && name.bytes().all(|byte| byte.is_ascii_graphic());
        return sound.then(|| name.to_owned());
    }
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn byte(&mut self) -> Option<u8> {
        self.take(1)?.first().copied()
    }

    fn number(&mut self) -> Option<u16> {
        Some(u16::from_be_bytes(self.take(2)?.try_into().ok()?))
    }

    fn prefixed_u8(&mut self) -> Option<Self> {
        let count = usize::from(self.byte()?);
        self.take(count).map(Self)
    }

    fn prefixed_u16(&mut self) -> Option<Self> {
        let count = usize::from(self.number()?);
        self.take(count).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefixed(bytes: &[u8]) -> Vec<u8> {
        [&(bytes.len() as u16).to_be_bytes()[..], bytes].concat()
    }

    fn hello(name: &str) -> Vec<u8> {
        let entry = [&[HOST_NAME][..], &prefixed(name.as_bytes())].concat();
        let content = prefixed(&prefixed(&entry));
        let extensions = [&[0, 10, 0, 2, 0, 0][..], &[0, 0], &content].concat();
        let body = [
            &[3, 3][..],
            &[7; 32],
            &[1, 9],
            &prefixed(&[0x13, 1]),
            &[1, 0],
            &prefixed(&extensions),
        ]
        .concat();
        [&[CLIENT_HELLO, 0][..], &prefixed(&body)].concat()
    }

    fn record(payload: &[u8]) -> Vec<u8> {
        [&[HANDSHAKE, 3, 1][..], &prefixed(payload)].concat()
    }

    #[test]
    fn name_is_read_from_one_or_several_records() {
        let hello = hello("a.example");
        assert_eq!(read_server_name(&record(&hello)).as_deref(), Some("a.example"));
        let (first, second) = hello.split_at(3);
        let split = [record(first), record(second)].concat();
        assert_eq!(read_server_name(&split).as_deref(), Some("a.example"));
        for at in 0..split.len() {
            assert_eq!(read_server_name(&split[..at]), None, "truncated at {at}");
        }
    }

    #[test]
    fn names_not_allowed_in_a_header_field_are_ignored() {
        for name in ["", "a b", "a\n", "\u{e9}", &"a".repeat(256)] {
            assert_eq!(read_server_name(&record(&hello(name))), None, "{name:?}");
        }
        assert_eq!(read_server_name(b"GET / HTTP/1.1\r\n"), None);
    }
}
