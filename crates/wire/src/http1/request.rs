//! Checks request heads of HTTP/1: target, host, body length, persistence (RFC 9112 sections 3, 6 and 9).
//! In: syntactically valid tokens. Out: `RequestHead`, or the semantic fault.
//! Never: repairs a request; it is accepted or rejected as a whole.

use super::framing::{ConnectionOptions, request_length};
use crate::message::field::FieldTable;
use crate::message::request::{check_host_length, expects_continue, host_field};
use crate::message::target::Target;
use crate::message::{BodyLength, FaultKind, FieldName, Method, RequestHead, Version};

/// Validates a request whose syntax is valid.
#[inline]
pub(super) fn validate_request<'a>(
    method: &'a str,
    target: &'a str,
    version: Version,
    fields: FieldTable<'a>,
) -> Result<RequestHead<'a>, FaultKind> {
    let method = Method::from_token(method);
    let parts = Target::parse(&method, target)?;
    let host = check_host_length(effective_host(&parts, version, &fields)?)?;
    let length = request_length(&fields, version)?;
    let options = ConnectionOptions::new(&fields);
    let is_http11 = version == Version::Http11;
    let has_body = !matches!(length, BodyLength::None | BodyLength::Length(0));
    Ok(RequestHead {
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
        protocol: None,
        upgrade: is_http11 && options.upgrade && fields.has(FieldName::Upgrade) && !has_body,
        fields,
    })
}

/// The host that a request is for. The Host field must be valid or empty, even if the authority of the target
/// overrides it (RFC 9112 sections 3.2 and 3.2.2). A client sends an empty Host field for a URI
/// without an authority.
#[inline]
fn effective_host<'a>(
    target: &Target<'a>,
    version: Version,
    fields: &FieldTable<'a>,
) -> Result<Option<&'a str>, FaultKind> {
    if version == Version::Http11 && !fields.has(FieldName::Host) {
        return Err(FaultKind::HostMissing);
    }
    let stated = host_field(fields)?;
    Ok(target.authority.or(stated))
}
