//! The client protocol without WebSocket: a client sends in requests, and receives in one endless
//! response.
//! In: messages for a client; the bodies of its requests. Out: pieces of the response; commands, and the session that
//! they are for.
//! Never: lets a request reach a session without the session's secret.
//! Limits: those of the request. Invariant: a piece of a response contains whole messages only, so that no character is
//! split between two pieces.

use serde::Deserialize;

use crate::client::codec::{Codec, Malformed};
use crate::protobuf::{Fields, Value};

/// How the messages of a client are framed in its response.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Framing {
    /// Events of `text/event-stream`, one for each line of JSON.
    Events,
    /// Lines of JSON.
    Lines,
    /// Protocol Buffers, each with its length.
    Protobuf,
}

impl Framing {
    /// The encoding of the messages.
    #[must_use]
    pub const fn codec(self) -> Codec {
        match self {
            Self::Events | Self::Lines => Codec::Json,
            Self::Protobuf => Codec::Protobuf,
        }
    }

    /// The type of the response.
    #[must_use]
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::Events => "text/event-stream",
            Self::Lines => "application/json",
            Self::Protobuf => "application/octet-stream",
        }
    }

    /// The beginning of the response: proxies and browsers see that it has begun.
    #[must_use]
    pub const fn start(self) -> &'static [u8] {
        match self {
            Self::Events => b"\r\n",
            Self::Lines | Self::Protobuf => b"",
        }
    }

    /// Appends messages as the codec encodes them.
    pub fn encode(self, out: &mut Vec<u8>, messages: &[u8]) {
        match self {
            Self::Events => {
                for line in messages.split(|byte| *byte == b'\n') {
                    out.extend_from_slice(b"data: ");
                    out.extend_from_slice(line);
                    out.extend_from_slice(b"\n\n");
                }
            }
            Self::Lines => {
                out.extend_from_slice(messages);
                out.push(b'\n');
            }
            Self::Protobuf => out.extend_from_slice(messages),
        }
    }
}

/// Names a session of a worker. Only the client of the session has the name, which lets a request act for the session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SessionName {
    /// The worker's name for it.
    pub key: (u32, u32),
    /// Random bits.
    pub secret: Secret,
}

/// The secret of a session.
#[derive(Clone, Copy, Debug)]
pub struct Secret(pub [u64; 2]);

impl PartialEq for Secret {
    /// Takes the same time for all secrets.
    fn eq(&self, other: &Self) -> bool {
        let ([a, b], [c, d]) = (self.0, other.0);
        (a ^ c) | (b ^ d) == 0
    }
}

impl Eq for Secret {}

impl SessionName {
    /// The name as text.
    #[must_use]
    pub fn encode(&self) -> String {
        let ((index, generation), [high, low]) = (self.key, self.secret.0);
        format!("{index:08x}{generation:08x}{high:016x}{low:016x}")
    }

    /// The name in `text`; `None` if it is no name of this program.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let is_name = text.len() == 48 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        if !is_name {
            return None;
        }
        let number = |from: usize, to: usize| u64::from_str_radix(&text[from..to], 16).ok();
        let (index, generation) = (number(0, 8)?, number(8, 16)?);
        let secret = Secret([number(16, 32)?, number(32, 48)?]);
        Some(Self { key: (u32::try_from(index).ok()?, u32::try_from(generation).ok()?), secret })
    }
}

/// The commands in a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Request {
    /// The node of the session, as the reply to `connect` contains it.
    pub node: String,
    /// The name of the session.
    pub session: String,
    /// The commands, in the encoding of the session.
    pub data: Vec<u8>,
}

impl Request {
    /// Reads the body of a request in an encoding.
    ///
    /// # Errors
    /// It is no such request.
    pub fn decode(codec: Codec, body: &[u8]) -> Result<Self, Malformed> {
        #[derive(Deserialize)]
        struct Json {
            #[serde(default)]
            session: String,
            #[serde(default)]
            node: String,
            #[serde(default)]
            data: String,
        }
        match codec {
            Codec::Json => {
                let Json { session, node, data } =
                    serde_json::from_slice(body).map_err(|_| Malformed)?;
                Ok(Self { node, session, data: data.into_bytes() })
            }
            Codec::Protobuf => {
                let mut request =
                    Self { node: String::new(), session: String::new(), data: Vec::new() };
                let mut fields = Fields::new(body);
                while let Some((number, value)) = fields.next_field()? {
                    match (number, value) {
                        (1, value) => value.text()?.clone_into(&mut request.node),
                        (2, value) => value.text()?.clone_into(&mut request.session),
                        (3, Value::Bytes(bytes)) => bytes.clone_into(&mut request.data),
                        _ => {}
                    }
                }
                Ok(request)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protobuf::put_bytes;

    #[test]
    fn messages_are_framed_whole() {
        let text = b"{\"id\":1}\n{}";
        for (framing, messages, expected) in [
            (Framing::Events, &text[..], &b"data: {\"id\":1}\n\ndata: {}\n\n"[..]),
            (Framing::Lines, text, b"{\"id\":1}\n{}\n"),
            (Framing::Protobuf, b"\x02\x08\x01\x00", b"\x02\x08\x01\x00"),
        ] {
            let mut out = Vec::new();
            framing.encode(&mut out, messages);
            assert_eq!(out, expected, "{framing:?}");
        }
    }

    #[test]
    fn name_is_read_back_and_nothing_else_is_a_name() {
        let name = SessionName { key: (0x8000_0001, 7), secret: Secret([1, u64::MAX]) };
        let text = name.encode();
        assert_eq!(SessionName::parse(&text), Some(name));
        assert_ne!(Secret([1, 2]), Secret([1, 3]));
        assert_ne!(Secret([0, 2]), Secret([1, 2]));
        for wrong in ["", &text[1..], &format!("{text}0"), &text.replace('f', "g"), &"+".repeat(48)]
        {
            assert_eq!(SessionName::parse(wrong), None, "{wrong}");
        }
        assert_eq!(SessionName::parse(&"é".repeat(24)), None);
    }

    #[test]
    fn requests_are_read_in_both_encodings() {
        let expected =
            Request { node: "3".into(), session: "abc".into(), data: b"{\"id\":2}".to_vec() };
        let json = br#"{"session":"abc","node":"3","data":"{\"id\":2}"}"#;
        assert_eq!(Request::decode(Codec::Json, json).as_ref(), Ok(&expected));
        let mut bytes = Vec::new();
        put_bytes(&mut bytes, 1, b"3");
        put_bytes(&mut bytes, 2, b"abc");
        put_bytes(&mut bytes, 3, b"{\"id\":2}");
        assert_eq!(Request::decode(Codec::Protobuf, &bytes).as_ref(), Ok(&expected));
        for wrong in [&b""[..], b"1", b"{\"data\":{}}", b"{\"session\":1}"] {
            assert_eq!(Request::decode(Codec::Json, wrong), Err(Malformed), "{wrong:?}");
        }
        assert_eq!(Request::decode(Codec::Protobuf, b"\x0a\x05a"), Err(Malformed));
        assert_eq!(Request::decode(Codec::Protobuf, b"\x0a\x01\xff"), Err(Malformed));
    }
}
