//! The name that a client asks for, read from its first message: the library tells a certificate's
//! resolver alone, and not for which connection.
//! In: a connection's first bytes, as they came. Out: the name (RFC 6066 section 3), when it is there.
//! Never: judges the message: the library does, and refuses what is malformed.
//! Limits: `NAME_BYTES_MAX`; a message spread over more than `RECORDS_MAX` records is not looked at.

/// Bytes of a name: the most that DNS knows.
const NAME_BYTES_MAX: usize = 255;
/// Records that the message may be spread over; clients use one.
const RECORDS_MAX: usize = 8;

const HANDSHAKE: u8 = 22;
const CLIENT_HELLO: u8 = 1;
const SERVER_NAME: u16 = 0;
const HOST_NAME: u8 = 0;

/// The name in the ClientHello that `records` begin with; `None` where there is none, or not all of it
/// is there yet.
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

/// RFC 8446 section 4.1.2.
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
    fn a_name_is_read_from_one_record_or_several() {
        let hello = hello("a.example");
        assert_eq!(read_server_name(&record(&hello)).as_deref(), Some("a.example"));
        let (first, second) = hello.split_at(3);
        let split = [record(first), record(second)].concat();
        assert_eq!(read_server_name(&split).as_deref(), Some("a.example"));
        for at in 0..split.len() {
            assert_eq!(read_server_name(&split[..at]), None, "cut at {at}");
        }
    }

    #[test]
    fn what_could_not_stand_in_a_header_is_no_name() {
        for name in ["", "a b", "a\n", "\u{e9}", &"a".repeat(256)] {
            assert_eq!(read_server_name(&record(&hello(name))), None, "{name:?}");
        }
        assert_eq!(read_server_name(b"GET / HTTP/1.1\r\n"), None);
    }
}
