//! A request's head, judged: target, host, length, persistence (RFC 9112 sections 3, 6 and 9).
//! In: tokens whose syntax is in order. Out: `RequestHead`, or what is wrong with their meaning.
//! Never: repairs; a request is taken as a whole or refused as a whole.
//! Invariant: `host` is the one a router may believe: the target's authority before the Host field.

use tidegate_base::limits::HOST_BYTES_MAX;

use super::fault::FaultKind;
use super::field::{FieldName, FieldTable, Fields};
use super::framing::{BodyLength, ConnectionOptions, request_length};
use super::method::{Method, Version};
use super::target::{Target, TargetForm, parse_host};

/// The head of a request.
#[derive(Clone, Debug)]
pub struct RequestHead<'a> {
    /// What is to be done.
    pub method: Method<'a>,
    /// The request target as it came.
    pub target: &'a str,
    /// How the target is written.
    pub form: TargetForm,
    /// The target's path: "*" for the asterisk form and for an OPTIONS in absolute form without a
    /// path (RFC 9112 section 3.2.4), "/" for another absolute form without a path, empty for the
    /// authority form.
    pub path: &'a str,
    /// What follows the first question mark of the target.
    pub query: Option<&'a str>,
    /// The host, with a port if there is one: the authority of the target, else the Host field
    /// (RFC 9112 section 3.3). Valid, never empty. `None` only for HTTP/1.0 without Host.
    pub host: Option<&'a str>,
    /// The version.
    pub version: Version,
    /// How the end of the body is found; never `UntilClose`.
    pub length: BodyLength,
    /// Whether the client wants to keep the connection (RFC 9112 section 9.3).
    pub persistent: bool,
    /// Whether the client waits for a 100 before it sends the body (RFC 9110 section 10.1.1).
    pub expect_continue: bool,
    /// Whether the client asks for another protocol (RFC 9110 section 7.8): an Upgrade field that
    /// Connection names, on HTTP/1.1, without a body.
    pub upgrade: bool,
    fields: FieldTable<'a>,
}

impl<'a> RequestHead<'a> {
    /// Judges a request whose syntax is in order.
    #[inline]
    pub(super) fn new(
        method: &'a str,
        target: &'a str,
        version: Version,
        fields: FieldTable<'a>,
    ) -> Result<Self, FaultKind> {
        let method = Method::from_token(method);
        let parts = Target::parse(&method, target)?;
        let host = effective_host(&parts, version, &fields)?;
        let length = request_length(&fields, version)?;
        let options = ConnectionOptions::new(&fields);
        let is_http11 = version == Version::Http11;
        let has_body = !matches!(length, BodyLength::None | BodyLength::Length(0));
        Ok(Self {
            method,
            target,
            form: parts.form,
            path: parts.path,
            query: parts.query,
            host,
            version,
            length,
            persistent: options.is_persistent(version),
            expect_continue: is_http11 && expects_continue(&fields),
            upgrade: is_http11 && options.upgrade && fields.has(FieldName::Upgrade) && !has_body,
            fields,
        })
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

/// The host a request is for. A Host field must be right even where the target's authority is
/// used in its place (RFC 9112 sections 3.2 and 3.2.2); only then may it be empty.
#[inline]
fn effective_host<'a>(
    target: &Target<'a>,
    version: Version,
    fields: &FieldTable<'a>,
) -> Result<Option<&'a str>, FaultKind> {
    match believed_host(target, version, fields)? {
        Some(host) if host.len() > HOST_BYTES_MAX => Err(FaultKind::HostTooLong),
        host => Ok(host),
    }
}

/// The same, however long.
#[inline]
fn believed_host<'a>(
    target: &Target<'a>,
    version: Version,
    fields: &FieldTable<'a>,
) -> Result<Option<&'a str>, FaultKind> {
    let Some(value) = fields.find(FieldName::Host) else {
        if version == Version::Http11 {
            return Err(FaultKind::HostMissing);
        }
        return Ok(target.authority);
    };
    if fields.is_repeated(FieldName::Host) {
        return Err(FaultKind::HostRepeated);
    }
    match (parse_host(value), target.authority) {
        (Some(_), Some(authority)) => Ok(Some(authority)),
        (Some(host), None) => Ok(Some(host)),
        (None, Some(authority)) if value.is_empty() => Ok(Some(authority)),
        (None, _) => Err(FaultKind::HostInvalid),
    }
}

/// Other expectations are passed on: RFC 9110 section 10.1.1 lets a server ignore them.
#[inline]
fn expects_continue(fields: &FieldTable<'_>) -> bool {
    fields.elements(FieldName::Expect).any(|element| element.eq_ignore_ascii_case(b"100-continue"))
}
