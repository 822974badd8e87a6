//! Validates request heads: target, host, body length, persistence (RFC 9112 sections 3, 6 and 9).
//! In: syntactically valid tokens. Out: `RequestHead`, or the semantic fault.
//! Never: repairs a request; it is accepted or rejected as a whole.
//! Invariant: `host` is safe to route by: the authority of the target takes precedence over the Host field.

use tidegate_base::limits::HOST_BYTES_MAX;

use super::fault::FaultKind;
use super::field::{FieldName, FieldTable, field_accessors};
use super::framing::{BodyLength, ConnectionOptions, request_length};
use super::method::{Method, Version};
use super::target::{Target, TargetForm, parse_host};

/// The head of a request.
#[derive(Clone, Debug)]
pub struct RequestHead<'a> {
    /// The method.
    pub method: Method<'a>,
    /// The request target as received.
    pub target: &'a str,
    /// The form of the target.
    pub form: TargetForm,
    /// The path of the target. "*" for the asterisk form and for OPTIONS with an absolute form that
    /// has no path (RFC 9112 section 3.2.4); "/" for any other absolute form without a path; empty
    /// for the authority form.
    pub path: &'a str,
    /// The part of the target after the first question mark.
    pub query: Option<&'a str>,
    /// The host, with a port if there is one: the authority of the target, or else the Host field
    /// (RFC 9112 section 3.3). Valid, never empty. `None` if the client names no host: HTTP/1.0 without Host,
    /// or an empty Host.
    pub host: Option<&'a str>,
    /// The version.
    pub version: Version,
    /// How the end of the body is found; never `UntilClose`.
    pub length: BodyLength,
    /// Whether the client wants to keep the connection open (RFC 9112 section 9.3).
    pub persistent: bool,
    /// Whether the client waits for a 100 (Continue) response before it sends the body (RFC 9110 section 10.1.1).
    pub expect_continue: bool,
    /// Whether the client asks for another protocol (RFC 9110 section 7.8): HTTP/1.1, an Upgrade
    /// field, `upgrade` listed in Connection, and no body.
    pub upgrade: bool,
    /// The fields, classified.
    pub(crate) fields: FieldTable<'a>,
}

impl<'a> RequestHead<'a> {
    /// Validates a request whose syntax is valid.
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
}

field_accessors!(RequestHead);

/// The host that a request is for. The Host field must be valid or empty, even if the authority of the target
/// overrides it (RFC 9112 sections 3.2 and 3.2.2). A client sends an empty Host field for a URI
/// without an authority.
#[inline]
fn effective_host<'a>(
    target: &Target<'a>,
    version: Version,
    fields: &FieldTable<'a>,
) -> Result<Option<&'a str>, FaultKind> {
    match host_of_any_length(target, version, fields)? {
        Some(host) if host.len() > HOST_BYTES_MAX => Err(FaultKind::HostTooLong),
        host => Ok(host),
    }
}

/// `effective_host` without the check of the length.
#[inline]
fn host_of_any_length<'a>(
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
        (None, authority) if value.is_empty() => Ok(authority),
        (None, _) => Err(FaultKind::HostInvalid),
    }
}

/// Whether the request has `Expect: 100-continue`. Other expectations are forwarded: RFC 9110
/// section 10.1.1 allows a server to ignore them.
#[inline]
pub(crate) fn expects_continue(fields: &FieldTable<'_>) -> bool {
    fields.elements(FieldName::Expect).any(|element| element.eq_ignore_ascii_case(b"100-continue"))
}
