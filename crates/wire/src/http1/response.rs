//! A response's head, judged: length and persistence (RFC 9112 sections 4, 6 and 9).
//! In: tokens whose syntax is in order, and what the request was. Out: `ResponseHead`, or a fault.
//! Never: hands on a 101 nobody asked for, or one that does not say to what.

use super::fault::FaultKind;
use super::field::{FieldName, FieldTable, Fields};
use super::framing::{BodyLength, ConnectionOptions, RequestKind, response_length};
use super::method::Version;

/// The head of a response.
#[derive(Clone, Debug)]
pub struct ResponseHead<'a> {
    /// The version.
    pub version: Version,
    /// The status, 100 to 599.
    pub status: u16,
    /// The reason phrase; empty when there is none or when it is not ASCII.
    pub reason: &'a str,
    /// How the end of the body is found: `None` after HEAD, for 1xx, 204, 304 and for a 2xx to
    /// CONNECT, whatever the fields say.
    pub length: BodyLength,
    /// Whether the server keeps the connection after this response (RFC 9112 section 9.3). False
    /// also when the body ends with the connection, and when a response that has no body states
    /// one, since bytes of it may follow.
    pub persistent: bool,
    /// Whether the connection is no longer HTTP after this head: a 101, or a 2xx to CONNECT.
    pub upgrade: bool,
    fields: FieldTable<'a>,
}

impl<'a> ResponseHead<'a> {
    /// Judges a response whose syntax is in order.
    #[inline]
    pub(super) fn new(
        version: Version,
        status: u16,
        reason: &'a str,
        fields: FieldTable<'a>,
        request: RequestKind,
    ) -> Result<Self, FaultKind> {
        if status == 101 && !request.upgrade_asked {
            return Err(FaultKind::SwitchNotAsked);
        }
        if status == 101 && !fields.has(FieldName::Upgrade) {
            return Err(FaultKind::SwitchUnnamed);
        }
        let (length, is_delimited) = response_length(&fields, version, status, request)?;
        let options = ConnectionOptions::new(&fields);
        Ok(Self {
            version,
            status,
            reason,
            length,
            persistent: is_delimited && options.is_persistent(version),
            upgrade: status == 101 || (request.is_connect && matches!(status, 200..=299)),
            fields,
        })
    }

    /// Whether this is an interim response, after which the final one follows
    /// (RFC 9110 section 15.2).
    #[must_use]
    pub const fn is_interim(&self) -> bool {
        self.status < 200 && self.status != 101
    }

    /// The fields in their order.
    #[inline]
    #[must_use]
    pub fn fields(&self) -> Fields<'a> {
        self.fields.iter()
    }

    /// Whether a Connection field names `name`, whatever its case: such a field is for this hop
    /// only (RFC 9110 section 7.6.1).
    #[must_use]
    pub fn is_nominated(&self, name: &str) -> bool {
        self.fields.is_nominated(name)
    }

    /// Whether a field of that name is in. Costs one test.
    #[must_use]
    #[inline]
    pub fn has(&self, id: FieldName) -> bool {
        self.fields.has(id)
    }

    /// The value of the first field of that name.
    #[must_use]
    #[inline]
    pub fn find(&self, id: FieldName) -> Option<&'a [u8]> {
        self.fields.find(id)
    }

    /// The value of the first field named `name_lower`, whatever the field's case.
    #[must_use]
    pub fn find_named(&self, name_lower: &str) -> Option<&'a [u8]> {
        self.fields.find_named(name_lower)
    }
}
