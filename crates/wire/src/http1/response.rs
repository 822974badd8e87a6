//! Validates response heads: body length, persistence, upgrades (RFC 9112 sections 4, 6 and 9).
//! In: syntactically valid tokens and the kind of the request. Out: `ResponseHead`, or a fault.
//! Never: accepts a 101 that the request did not ask for, or a 101 that names no protocol.

use super::fault::FaultKind;
use super::field::{FieldName, FieldTable, field_accessors};
use super::framing::{BodyLength, ConnectionOptions, RequestKind, response_length, stated_length};
use super::method::Version;
use super::scan::StatusLine;

/// The head of a response.
#[derive(Clone, Debug)]
pub struct ResponseHead<'a> {
    /// The version.
    pub version: Version,
    /// The status: 100 to 599, or up to 999 if the decoder is not strict.
    pub status: u16,
    /// The reason phrase; empty if there is none or if it is not ASCII.
    pub reason: &'a str,
    /// How the end of the body is found. Always `None` after HEAD, for 1xx, 204 and 304, and for a
    /// 2xx to CONNECT, whatever the fields state.
    pub length: BodyLength,
    /// The length in Content-Length, also if the response has no body: then it is the length that the body
    /// of a response to GET would have (RFC 9110 section 8.6).
    pub content_length: Option<u64>,
    /// Whether the server keeps the connection open after this response (RFC 9112 section 9.3).
    /// Also false if the body ends with the connection, and if a response that cannot have a body
    /// states a length, since body bytes may follow anyway.
    pub persistent: bool,
    /// Whether the connection is no longer HTTP after this head: a 101, or a 2xx to CONNECT.
    pub upgrade: bool,
    /// The fields, classified.
    pub(crate) fields: FieldTable<'a>,
}

impl<'a> ResponseHead<'a> {
    /// Validates a response whose syntax is valid.
    #[inline]
    pub(super) fn new(
        version: Version,
        line: &StatusLine<'a>,
        fields: FieldTable<'a>,
        request: RequestKind,
        is_lenient: bool,
    ) -> Result<Self, FaultKind> {
        let StatusLine { status, reason, .. } = *line;
        if status == 101 && !request.upgrade_asked {
            return Err(FaultKind::SwitchNotRequested);
        }
        if status == 101 && !fields.has(FieldName::Upgrade) {
            return Err(FaultKind::SwitchProtocolMissing);
        }
        let stated = stated_length(&fields, version, is_lenient)?;
        let content_length =
            if let BodyLength::Length(bytes) = stated { Some(bytes) } else { None };
        let (length, is_delimited) = response_length(stated, status, request);
        let options = ConnectionOptions::new(&fields);
        Ok(Self {
            version,
            status,
            reason,
            length,
            content_length,
            persistent: is_delimited && options.is_persistent(version),
            upgrade: status == 101 || (request.is_connect && matches!(status, 200..=299)),
            fields,
        })
    }

    /// Whether this is an interim response, which a final response follows (RFC 9110 section 15.2).
    #[must_use]
    pub const fn is_interim(&self) -> bool {
        self.status < 200 && self.status != 101
    }
}

field_accessors!(ResponseHead);
