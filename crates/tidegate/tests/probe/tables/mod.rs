//! The tables: RFC 9112 and RFC 9110, section by section, as vectors.
//! In: nothing. Out: vectors. Never: judges; a row says bytes and wishes.

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

/// A GET with these field lines (each with its CRLF) after Host.
pub fn get(fields: &str) -> String {
    format!("GET /x HTTP/1.1\r\nHost: h\r\n{fields}\r\n")
}

/// A POST with these field lines after Host, and this after the head.
pub fn post(fields: &str, body: &str) -> String {
    format!("POST /x HTTP/1.1\r\nHost: h\r\n{fields}\r\n{body}")
}

/// What would be a request of its own, if the server before it could be led astray.
pub const SMUGGLED: &str = "GET /smuggled HTTP/1.1\r\nHost: h\r\n\r\n";
