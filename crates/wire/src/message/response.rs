//! The head of a response.
//! In: the parts of a response, from the decoder of a protocol. Out: `ResponseHead`.

use super::field::{FieldTable, field_accessors};
use super::length::BodyLength;
use super::version::Version;

/// The head of a response.
#[derive(Clone, Debug)]
pub struct ResponseHead<'a> {
    /// The version.
    pub version: Version,
    /// The status: 100 to 599, or up to 999 if the decoder is not strict.
    pub status: u16,
    /// The reason phrase; empty if there is none, as in HTTP/2, or if it is not ASCII.
    pub reason: &'a str,
    /// How the end of the body is found. Always `None` after HEAD, for 1xx, 204 and 304, and for a
    /// 2xx to CONNECT, whatever the fields state.
    pub length: BodyLength,
    /// The length in Content-Length, even if the response has no body: then it is the length that the body of a
    /// response to GET would have (RFC 9110 section 8.6).
    pub content_length: Option<u64>,
    /// Whether the server keeps the connection open after this response (RFC 9112 section 9.3).
    /// Also false if the body ends with the connection, and if a response that cannot have a body
    /// states a length, since body bytes may follow anyway. Always true in HTTP/2, where a response
    /// does not describe its connection.
    pub persistent: bool,
    /// Whether the connection is no longer HTTP after this head: a 101, or a 2xx to CONNECT.
    pub upgrade: bool,
    /// The fields, classified.
    pub(crate) fields: FieldTable<'a>,
}

impl ResponseHead<'_> {
    /// Whether this is an interim response, which a final response follows (RFC 9110 section 15.2).
    #[must_use]
    pub const fn is_interim(&self) -> bool {
        self.status < 200 && self.status != 101
    }
}

field_accessors!(ResponseHead);
