//! Encodes the head of a response, and content that the proxy itself generates, for a client of HTTP/1.
//! In: the calls of `ResponseSink`. Out: bytes appended to a buffer; how the body that follows is framed, and
//! whether the connection closes after it.
//! Never: sends two framings; closes a connection without `close` in Connection.

use super::encode::{encode_field, encode_field_u64, encode_status_line};
use crate::message::{BodyLength, ResponseSink, Version};

/// How a body is framed (RFC 9112 section 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyFraming {
    /// There is no body.
    None,
    /// By Content-Length.
    Length,
    /// Chunked transfer coding; not in HTTP/1.0.
    Chunked,
    /// The body ends when the connection closes.
    UntilClose,
}

impl BodyFraming {
    /// How a body of this length is framed for a client of `version`.
    #[must_use]
    #[inline]
    pub const fn of(length: BodyLength, version: Version) -> Self {
        match (length, version) {
            (BodyLength::None, _) => Self::None,
            (BodyLength::Length(_), _) => Self::Length,
            (BodyLength::Streamed, Version::Http11 | Version::Http2) => Self::Chunked,
            (BodyLength::Streamed, Version::Http10) | (BodyLength::UntilClose, _) => {
                Self::UntilClose
            }
        }
    }
}

/// Appends one response.
#[derive(Debug)]
pub struct ResponseEncoder<'a> {
    out: &'a mut Vec<u8>,
    /// The version of the request; never HTTP/2. The status line always contains HTTP/1.1.
    version: Version,
    /// The connection closes after this response.
    close: bool,
    /// How the body is framed, as far as `length` has stated it.
    framing: BodyFraming,
    /// `end` adds no Connection field, because the response is an interim one or already has the field.
    has_connection: bool,
}

impl<'a> ResponseEncoder<'a> {
    /// Creates an encoder for one response to a request of `version`. `close`: the connection closes after
    /// the response, whatever its framing is.
    #[must_use]
    #[inline]
    pub const fn new(out: &'a mut Vec<u8>, version: Version, close: bool) -> Self {
        Self { out, version, close, framing: BodyFraming::None, has_connection: false }
    }

    /// How the body that follows the head is framed.
    #[must_use]
    #[inline]
    pub const fn framing(&self) -> BodyFraming {
        self.framing
    }

    /// Whether the connection closes after the response: because the caller wants it, or because the framing
    /// requires it.
    #[must_use]
    #[inline]
    pub const fn closes(&self) -> bool {
        self.close
    }

    /// The buffer, if the response needs no Connection field: for a client of HTTP/1.1 whose connection stays
    /// open. The caller may append a whole response that was encoded before for such a client.
    #[must_use]
    #[inline]
    pub const fn whole(&mut self) -> Option<&mut Vec<u8>> {
        if self.close || matches!(self.version, Version::Http10) { None } else { Some(self.out) }
    }
}

impl ResponseSink for ResponseEncoder<'_> {
    /// A reason with other characters than ASCII text is replaced by the standard phrase.
    #[inline]
    fn begin(&mut self, status: u16, reason: &str) {
        self.has_connection = status < 200;
        let is_text = |byte: &u8| byte.is_ascii_graphic() || matches!(byte, b' ' | b'\t');
        if reason.is_empty() || !reason.as_bytes().iter().all(is_text) {
            return encode_status_line(self.out, status);
        }
        self.out.extend_from_slice(b"HTTP/1.1 ");
        self.out.extend_from_slice(itoa::Buffer::new().format(status).as_bytes());
        self.out.push(b' ');
        self.out.extend_from_slice(reason.as_bytes());
        self.out.extend_from_slice(b"\r\n");
    }

    #[inline]
    fn field(&mut self, name: &str, value: &[u8]) {
        encode_field(self.out, name, value);
    }

    #[inline]
    fn field_with(&mut self, name: &str, compose: impl FnOnce(&mut Vec<u8>)) {
        let start = self.out.len();
        self.out.extend_from_slice(name.as_bytes());
        self.out.extend_from_slice(b": ");
        let empty = self.out.len();
        compose(self.out);
        if self.out.len() > empty {
            self.out.extend_from_slice(b"\r\n");
        } else {
            self.out.truncate(start);
        }
    }

    #[inline]
    fn length(&mut self, length: BodyLength) {
        self.framing = BodyFraming::of(length, self.version);
        match (self.framing, length) {
            (BodyFraming::Length, BodyLength::Length(length)) => {
                encode_field_u64(self.out, "Content-Length", length);
            }
            (BodyFraming::Chunked, _) => {
                self.out.extend_from_slice(b"Transfer-Encoding: chunked\r\n");
            }
            (BodyFraming::UntilClose, _) => self.close = true,
            (BodyFraming::None | BodyFraming::Length, _) => {}
        }
    }

    #[inline]
    fn takes_trailers(&self) -> bool {
        self.version >= Version::Http11
    }

    fn switch<'v>(&mut self, protocols: impl Iterator<Item = &'v [u8]>) {
        // 101 ends HTTP on the connection, so it does not announce that the connection closes.
        let closes = self.close && !self.has_connection;
        let options: &[u8] = if closes { b"upgrade, close" } else { b"upgrade" };
        encode_field(self.out, "Connection", options);
        protocols.for_each(|protocol| encode_field(self.out, "Upgrade", protocol));
        self.has_connection = true;
    }

    /// Adds the Connection field if it is needed (RFC 9112 section 9.3: HTTP/1.1 keeps the connection by
    /// default, HTTP/1.0 closes it), and the empty line.
    #[inline]
    fn end(&mut self) {
        if self.has_connection {
            // An interim response, or one with `upgrade`.
        } else if self.close {
            self.out.extend_from_slice(b"Connection: close\r\n");
        } else if self.version == Version::Http10 {
            self.out.extend_from_slice(b"Connection: keep-alive\r\n");
        }
        self.out.extend_from_slice(b"\r\n");
    }

    #[inline]
    fn content_with(&mut self, compose: impl FnOnce(&mut Vec<u8>)) {
        compose(self.out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encode(
        version: Version,
        close: bool,
        run: impl FnOnce(&mut ResponseEncoder<'_>),
    ) -> (String, BodyFraming, bool) {
        let mut out = Vec::new();
        let mut encoder = ResponseEncoder::new(&mut out, version, close);
        run(&mut encoder);
        let (framing, closes) = (encoder.framing(), encoder.closes());
        (String::from_utf8(out).unwrap().replace("\r\n", "|"), framing, closes)
    }

    #[test]
    fn length_is_stated_as_the_version_requires() {
        use Version::{Http10, Http11};
        for (version, length, field, framing, closes) in [
            (Http11, BodyLength::None, "", BodyFraming::None, false),
            (Http11, BodyLength::Length(3), "Content-Length: 3|", BodyFraming::Length, false),
            (Http10, BodyLength::Length(0), "Content-Length: 0|", BodyFraming::Length, false),
            (
                Http11,
                BodyLength::Streamed,
                "Transfer-Encoding: chunked|",
                BodyFraming::Chunked,
                false,
            ),
            (Http10, BodyLength::Streamed, "", BodyFraming::UntilClose, true),
            (Http11, BodyLength::UntilClose, "", BodyFraming::UntilClose, true),
        ] {
            for close in [false, true] {
                let (text, found, closed) = encode(version, close, |sink| {
                    sink.begin(200, "");
                    sink.length(length);
                    sink.end();
                });
                let connection = match (close || closes, version) {
                    (true, _) => "Connection: close|",
                    (false, Http10) => "Connection: keep-alive|",
                    (false, _) => "",
                };
                assert_eq!(text, format!("HTTP/1.1 200 OK|{field}{connection}|"));
                assert_eq!((found, closed), (framing, close || closes));
            }
        }
    }

    #[test]
    fn fields_reasons_switches_and_content_are_encoded() {
        let (text, ..) = encode(Version::Http11, false, |sink| {
            sink.begin(200, "Fine");
            sink.field("A", b"b");
            sink.field_u64("N", 7);
            sink.field_with("W", |out| out.extend_from_slice(b"x"));
            sink.field_with("Empty", |_| {});
            sink.length(BodyLength::Length(2));
            sink.end();
            sink.content(&[b"h", b"i"]);
        });
        assert_eq!(text, "HTTP/1.1 200 Fine|A: b|N: 7|W: x|Content-Length: 2||hi");
        let (text, ..) = encode(Version::Http11, true, |sink| {
            sink.begin(426, "\u{e9}");
            sink.length(BodyLength::None);
            sink.switch([&b"websocket"[..]].into_iter());
            sink.end();
        });
        let wanted =
            "HTTP/1.1 426 Upgrade Required|Connection: upgrade, close|Upgrade: websocket||";
        assert_eq!(text, wanted);
        let (text, ..) = encode(Version::Http10, true, |sink| {
            sink.begin(101, "");
            sink.switch([&b"a"[..], b"b"].into_iter());
            sink.end();
        });
        let wanted = "HTTP/1.1 101 Switching Protocols|Connection: upgrade|Upgrade: a|Upgrade: b||";
        assert_eq!(text, wanted);
        let (text, ..) = encode(Version::Http10, true, |sink| (sink.begin(103, ""), sink.end()).1);
        assert_eq!(text, "HTTP/1.1 103 Early Hints||");
    }
}
