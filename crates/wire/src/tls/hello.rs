//! Reads from a client's first message the server name that the client requests. rustls reports the name
//! only to the certificate resolver, without the connection.
//! In: the content of the first handshake records. Out: the name (RFC 6066 section 3), if it is present.
//! Never: validates the message; rustls does that and rejects malformed messages.
//! Limits: `NAME_BYTES_MAX`; `MESSAGE_BYTES_MAX`: rustls rejects longer messages.

/// Bytes of a name: the limit of DNS.
const NAME_BYTES_MAX: usize = 255;
/// Bytes of a message: type, length, body.
const MESSAGE_BYTES_MAX: usize = 4 + 65_535;

pub(super) const CLIENT_HELLO: u8 = 1;
const SERVER_NAME: u16 = 0;
const HOST_NAME: u8 = 0;

/// Collects the ClientHello, which may be split into many records, until its name can be read.
#[derive(Default, Debug)]
pub(super) struct HelloReader {
    /// The message so far; up to `MESSAGE_BYTES_MAX`.
    message: Vec<u8>,
}

impl HelloReader {
    /// Takes the next content of handshake records. `None` as long as the message is incomplete; then its name,
    /// if it has one.
    pub(super) fn take(&mut self, content: &[u8]) -> Option<Option<String>> {
        let missing = MESSAGE_BYTES_MAX - self.message.len();
        self.message.extend_from_slice(content.get(..missing).unwrap_or(content));
        let &[kind, a, b, c] = self.message.first_chunk::<4>()?;
        let length = u32::from_be_bytes([0, a, b, c]) as usize;
        if kind != CLIENT_HELLO || 4 + length > MESSAGE_BYTES_MAX {
            return Some(None);
        }
        Some(name_of(self.message.get(4..4 + length)?).map(str::to_owned))
    }
}

/// The name in the body of a ClientHello (RFC 8446 section 4.1.2).
pub(super) fn name_of(body: &[u8]) -> Option<&str> {
    let mut hello = Reader(body);
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
        return sound.then_some(name);
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

/// A message for tests.
#[cfg(test)]
pub(super) mod test {
    use super::*;

    fn prefixed(bytes: &[u8]) -> Vec<u8> {
        [&(bytes.len() as u16).to_be_bytes()[..], bytes].concat()
    }

    /// A ClientHello with this server name.
    pub(in crate::tls) fn hello(name: &str) -> Vec<u8> {
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
}

#[cfg(test)]
mod tests {
    use super::test::hello;
    use super::*;

    /// Reads the name from content that arrives in pieces of `size`; the number of pieces that it took.
    fn read(content: &[u8], size: usize) -> Option<(Option<String>, usize)> {
        let mut reader = HelloReader::default();
        let mut pieces = content.chunks(size).enumerate();
        pieces.find_map(|(at, piece)| Some((reader.take(piece)?, at + 1)))
    }

    #[test]
    fn name_is_read_when_the_message_is_complete() {
        let hello = hello("a.example");
        for size in [1, 3, hello.len()] {
            let all = hello.len().div_ceil(size);
            assert_eq!(read(&hello, size), Some((Some("a.example".to_owned()), all)));
            assert_eq!(read(&hello[..hello.len() - 1], size), None);
        }
        let with_more = [&hello[..], b"more"].concat();
        assert_eq!(read(&with_more, with_more.len()), Some((Some("a.example".to_owned()), 1)));
    }

    #[test]
    fn other_and_very_long_messages_have_no_name() {
        assert_eq!(read(&[2, 0, 0, 9], 1), Some((None, 4)));
        assert_eq!(read(&[CLIENT_HELLO, 1, 0, 0], 1), Some((None, 4)));
        let longest = [&[CLIENT_HELLO, 0, 0xff, 0xff][..], &[0; 65_535]].concat();
        assert_eq!(read(&longest, 1000), Some((None, 66)));
    }

    #[test]
    fn names_not_allowed_in_a_header_field_are_ignored() {
        for name in ["", "a b", "a\n", "\u{e9}", &"a".repeat(256)] {
            assert_eq!(read(&hello(name), 1 << 20), Some((None, 1)), "{name:?}");
        }
    }
}
