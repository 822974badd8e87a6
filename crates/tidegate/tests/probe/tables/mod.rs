//! The tables: RFC 9112 and RFC 9110, section by section, as vectors.
//! In: nothing. Out: vectors.
//! Never: runs or checks anything: a row states the bytes to send and what is expected.

pub mod chunked;
pub mod connection;
pub mod fields;
pub mod forwarding;
pub mod framing;
pub mod limits;
pub mod local;
pub mod response_body;
pub mod response_head;
pub mod start_line;
pub mod switching;
pub mod target;

/// A GET with `fields` after Host. Each field line includes its CRLF.
pub fn get(fields: &str) -> String {
    format!("GET /x HTTP/1.1\r\nHost: h\r\n{fields}\r\n")
}

/// A POST with `fields` after Host, and `body` after the head.
pub fn post(fields: &str, body: &str) -> String {
    format!("POST /x HTTP/1.1\r\nHost: h\r\n{fields}\r\n{body}")
}

/// Bytes that are a request only to a server that misreads the length of the request before them.
pub const SMUGGLED: &str = "GET /smuggled HTTP/1.1\r\nHost: h\r\n\r\n";
