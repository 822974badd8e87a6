//! Builds the bytes of frames by hand, independent of the code under test.
//! In: parts of frames. Out: bytes.

/// Frames of one side, one after the other.
#[derive(Clone, Default)]
pub struct Frames(pub Vec<u8>);

pub const END_STREAM: u8 = 1;
pub const ACK: u8 = 1;
pub const END_HEADERS: u8 = 4;
pub const PADDED: u8 = 8;
pub const PRIORITY: u8 = 32;

impl Frames {
    pub fn new() -> Self {
        Self::default()
    }

    /// What a client sends first.
    pub fn client() -> Self {
        Self(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec()).settings(&[])
    }

    /// What a server sends first.
    pub fn server() -> Self {
        Self::new().settings(&[])
    }

    pub fn raw(mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Self {
        self.0.extend_from_slice(&(payload.len() as u32).to_be_bytes()[1..]);
        self.0.extend_from_slice(&[kind, flags]);
        self.0.extend_from_slice(&stream.to_be_bytes());
        self.0.extend_from_slice(payload);
        self
    }

    pub fn data(self, stream: u32, flags: u8, payload: &[u8]) -> Self {
        self.raw(0, flags, stream, payload)
    }

    /// A whole header block in one frame.
    pub fn headers(self, stream: u32, flags: u8, fields: &[(&str, &str)]) -> Self {
        self.raw(1, flags | END_HEADERS, stream, &block(fields))
    }

    pub fn priority(self, stream: u32, payload: &[u8]) -> Self {
        self.raw(2, 0, stream, payload)
    }

    pub fn reset(self, stream: u32, code: u32) -> Self {
        self.raw(3, 0, stream, &code.to_be_bytes())
    }

    pub fn settings(self, entries: &[(u16, u32)]) -> Self {
        let mut payload = Vec::new();
        for (id, value) in entries {
            payload.extend_from_slice(&id.to_be_bytes());
            payload.extend_from_slice(&value.to_be_bytes());
        }
        self.raw(4, 0, 0, &payload)
    }

    pub fn settings_ack(self) -> Self {
        self.raw(4, ACK, 0, b"")
    }

    pub fn ping(self, flags: u8, payload: &[u8]) -> Self {
        self.raw(6, flags, 0, payload)
    }

    pub fn goaway(self, last: u32, code: u32) -> Self {
        self.raw(7, 0, 0, &[last.to_be_bytes(), code.to_be_bytes()].concat())
    }

    pub fn window(self, stream: u32, increment: u32) -> Self {
        self.raw(8, 0, stream, &increment.to_be_bytes())
    }

    pub fn continuation(self, stream: u32, flags: u8, fragment: &[u8]) -> Self {
        self.raw(9, flags, stream, fragment)
    }

    pub fn priority_update(self, stream: u32, value: &[u8]) -> Self {
        self.raw(0x10, 0, 0, &[&stream.to_be_bytes(), value].concat())
    }

    /// A GET request without body.
    pub fn get(self, stream: u32) -> Self {
        self.headers(stream, END_STREAM, &GET)
    }

    /// The head of a POST request.
    pub fn post(self, stream: u32) -> Self {
        self.headers(stream, 0, &POST)
    }
}

pub const GET: [(&str, &str); 4] =
    [(":method", "GET"), (":scheme", "http"), (":authority", "a"), (":path", "/")];
pub const POST: [(&str, &str); 4] =
    [(":method", "POST"), (":scheme", "http"), (":authority", "a"), (":path", "/")];

/// A header block: literal fields without indexing and without Huffman coding.
pub fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (name, value) in fields {
        bytes.push(0);
        for text in [name, value] {
            integer(&mut bytes, text.len());
            bytes.extend_from_slice(text.as_bytes());
        }
    }
    bytes
}

/// An integer with a prefix of 7 bits (RFC 7541 section 5.1).
fn integer(bytes: &mut Vec<u8>, mut value: usize) {
    if value < 127 {
        bytes.push(value as u8);
        return;
    }
    bytes.push(127);
    value -= 127;
    while value >= 128 {
        bytes.push(value as u8 | 128);
        value >>= 7;
    }
    bytes.push(value as u8);
}
