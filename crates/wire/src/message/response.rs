//! The head of a response, and the judgement of one that a carrier delivers in separate parts, as HTTP/2
//! does.
//! In: the status, the fields and the kind of the request. Out: `ResponseHead`, or a fault.
//! Never: accepts a 101 in HTTP/2, which has no upgrades.

use super::fault::{Fault, FaultKind};
use super::field::{FieldTable, field_accessors};
use super::length::{BodyLength, RequestKind, content_length, response_length};
use super::request::check_connection_fields;
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
    /// The length in Content-Length, also if the response has no body: then it is the length that the body
    /// of a response to GET would have (RFC 9110 section 8.6).
    pub content_length: Option<u64>,
    /// Whether the server keeps the connection open after this response (RFC 9112 section 9.3).
    /// Also false if the body ends with the connection, and if a response that cannot have a body
    /// states a length, since body bytes may follow anyway. Always true in HTTP/2, where a response says
    /// nothing about its connection.
    pub persistent: bool,
    /// Whether the connection is no longer HTTP after this head: a 101, or a 2xx to CONNECT.
    pub upgrade: bool,
    /// The fields, classified.
    pub(crate) fields: FieldTable<'a>,
}

/// The parts of a response other than its fields, from a carrier that delivers them separately (RFC 9113
/// section 8.3.2). The carrier guarantees that `:status` occurred once, before the fields, and no other
/// pseudo-header field.
#[derive(Clone, Copy, Debug)]
pub struct ResponseParts {
    /// `:status`.
    pub status: u16,
    /// Whether the message ends with its head (END_STREAM), so that it has no body.
    pub is_ended: bool,
    /// The kind of the request that the response belongs to.
    pub request: RequestKind,
}

impl<'a> ResponseHead<'a> {
    /// Judges a response of HTTP/2 with the same rules as HTTP/1 has for lengths, and with those of RFC 9113
    /// sections 8.1.1, 8.2.2 and 8.6. `fields` are the fields without `:status`, in lower case.
    ///
    /// `length` is `None` for a response that must not have a body, whether or not the stream has ended; the
    /// carrier rejects a body there, and counts the bytes of a body against `length`.
    ///
    /// # Errors
    /// The response is malformed. The fault concerns one stream, not the connection.
    pub fn from_parts(parts: &ResponseParts, fields: FieldTable<'a>) -> Result<Self, Fault> {
        let ResponseParts { status, is_ended, request } = *parts;
        if !matches!(status, 100..=599) {
            return Err(FaultKind::StatusInvalid.into());
        }
        if status == 101 {
            return Err(FaultKind::SwitchNotRequested.into());
        }
        check_connection_fields(&fields)?;
        let content_length = content_length(&fields, true)?;
        let stated = content_length.map_or(BodyLength::Streamed, BodyLength::Length);
        let length = match response_length(stated, status, request).0 {
            BodyLength::Length(1..) if is_ended => {
                return Err(FaultKind::ContentLengthUnmet.into());
            }
            BodyLength::Streamed if is_ended => BodyLength::None,
            length => length,
        };
        Ok(Self {
            version: Version::Http2,
            status,
            reason: "",
            length,
            content_length,
            persistent: true,
            upgrade: request.is_connect && matches!(status, 200..=299),
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

#[cfg(test)]
mod tests {
    use super::super::field::ResponseFieldList;
    use super::*;

    fn judge(
        status: u16,
        is_ended: bool,
        is_head: bool,
        fields: &[(&str, &str)],
    ) -> Result<(BodyLength, Option<u64>), FaultKind> {
        let mut list = ResponseFieldList::new();
        for (name, value) in fields {
            list.push(name.as_bytes(), value.as_bytes()).map_err(|fault| fault.kind)?;
        }
        let request = RequestKind { is_head, ..RequestKind::default() };
        let parts = ResponseParts { status, is_ended, request };
        let head = ResponseHead::from_parts(&parts, list.table()).map_err(|fault| fault.kind)?;
        assert!(head.version == Version::Http2 && head.persistent && !head.upgrade);
        Ok((head.length, head.content_length))
    }

    #[test]
    fn separate_parts_are_judged_as_a_status_line_is() {
        use BodyLength::{Length, None as Bodyless, Streamed};
        let five = &[("content-length", "5")][..];
        for (status, is_ended, is_head, fields, wanted) in [
            (200, false, false, &[][..], Ok((Streamed, None))),
            (200, true, false, &[], Ok((Bodyless, None))),
            (200, false, false, five, Ok((Length(5), Some(5)))),
            (200, true, false, five, Err(FaultKind::ContentLengthUnmet)),
            (200, true, true, five, Ok((Bodyless, Some(5)))),
            (304, true, false, five, Ok((Bodyless, Some(5)))),
            (204, true, false, &[], Ok((Bodyless, None))),
            (103, false, false, &[], Ok((Bodyless, None))),
            (101, false, false, &[], Err(FaultKind::SwitchNotRequested)),
            (99, true, false, &[], Err(FaultKind::StatusInvalid)),
            (600, true, false, &[], Err(FaultKind::StatusInvalid)),
            (200, true, false, &[("keep-alive", "x")], Err(FaultKind::ConnectionFieldForbidden)),
        ] {
            assert_eq!(judge(status, is_ended, is_head, fields), wanted, "{status} {fields:?}");
        }
    }
}
