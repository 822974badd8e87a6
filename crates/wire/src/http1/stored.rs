//! A request head that this proxy encoded and stored for retries, in parts again, for a carrier that encodes
//! it in another form.
//! In: bytes that begin with a head in the canonical form of HTTP/1.1. Out: method, target, fields; the
//! length.
//! Never: checks the parts again; they were checked when the request was decoded.

use crate::message::{Field, FieldName};
use core::str::from_utf8;
use memchr::memchr;

/// A stored request head.
#[derive(Clone, Copy, Debug)]
pub struct StoredHead<'a> {
    /// The method.
    pub method: &'a str,
    /// The target, in origin form or `*`.
    pub target: &'a str,
    /// The length of the head in bytes, with its empty line. The bytes that follow are the stored part of the body, as HTTP/1.1
    /// frames it.
    pub bytes: usize,
    /// The field lines, each with its CRLF.
    lines: &'a [u8],
}

impl<'a> StoredHead<'a> {
    /// Splits the head at the start of `stored`. `None` if `stored` does not begin with a head in canonical
    /// form.
    #[must_use]
    pub fn parse(stored: &'a [u8]) -> Option<Self> {
        let (line, fields) = split_line(stored)?;
        let mut words = from_utf8(line).ok()?.split(' ');
        let (method, target, version) = (words.next()?, words.next()?, words.next()?);
        if version != "HTTP/1.1" || method.is_empty() || target.is_empty() || words.next().is_some()
        {
            return None;
        }
        let mut rest = fields;
        loop {
            let (line, after) = split_line(rest)?;
            if line.is_empty() {
                let lines = fields.get(..fields.len() - rest.len())?;
                return Some(Self { method, target, bytes: stored.len() - after.len(), lines });
            }
            split_field(line)?;
            rest = after;
        }
    }

    /// The fields, in order. Whether one was sensitive is not stored. Among them are those of HTTP/1's
    /// connections: Connection, TE, Transfer-Encoding and Upgrade.
    pub fn fields(&self) -> impl Iterator<Item = Field<'a>> + use<'a> {
        let mut rest = self.lines;
        core::iter::from_fn(move || {
            let (line, after) = split_line(rest)?;
            rest = after;
            split_field(line)
        })
    }
}

/// Splits off the first line, without its CRLF.
fn split_line(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = memchr(b'\n', bytes)?;
    let (line, rest) = bytes.split_at_checked(end + 1)?;
    Some((line.strip_suffix(b"\r\n")?, rest))
}

/// Splits a field line in canonical form, without its CRLF.
fn split_field(line: &[u8]) -> Option<Field<'_>> {
    let (name, value) = line.split_at_checked(memchr(b':', line)?)?;
    let name = from_utf8(name).ok().filter(|name| !name.is_empty())?;
    let (id, value) = (FieldName::classify(name.as_bytes()), value.strip_prefix(b": ")?);
    Some(Field { id, name, value, is_sensitive: false })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_head_is_split_into_its_parts() {
        let head = b"POST /a?b HTTP/1.1\r\nHost: h:1\r\nX: a: b\r\nEmpty: \r\nTransfer-Encoding: chunked\r\n\r\n";
        let stored = [&head[..], b"2\r\nhi\r\n"].concat();
        let parsed = StoredHead::parse(&stored).unwrap();
        assert_eq!((parsed.method, parsed.target, parsed.bytes), ("POST", "/a?b", head.len()));
        let fields: Vec<_> =
            parsed.fields().map(|field| (field.id, field.name, field.value)).collect();
        let wanted = [
            (FieldName::Host, "Host", &b"h:1"[..]),
            (FieldName::Other, "X", b"a: b"),
            (FieldName::Other, "Empty", b""),
            (FieldName::TransferEncoding, "Transfer-Encoding", b"chunked"),
        ];
        assert_eq!(fields, wanted);
        let bare = StoredHead::parse(b"OPTIONS * HTTP/1.1\r\n\r\n").unwrap();
        assert_eq!((bare.method, bare.target, bare.fields().count()), ("OPTIONS", "*", 0));
    }

    #[test]
    fn other_bytes_are_not_a_stored_head() {
        for text in [
            "",
            "GET / HTTP/1.1\r\n",
            "GET / HTTP/1.1\r\nHost: h\r\n",
            "GET / HTTP/1.0\r\n\r\n",
            "GET /  HTTP/1.1\r\n\r\n",
            "GET HTTP/1.1\r\n\r\n",
            "GET / HTTP/1.1\n\n",
            "GET / HTTP/1.1\r\nHost:h\r\n\r\n",
            "GET / HTTP/1.1\r\n: h\r\n\r\n",
            "GET / HTTP/1.1\r\nHost\r\n\r\n",
        ] {
            assert!(StoredHead::parse(text.as_bytes()).is_none(), "{text:?}");
        }
    }
}
