//! The head of a request, and the checks that are the same for every version.
//! In: the parts of a request, from the decoder of a protocol. Out: `RequestHead`.
//! Invariant: `host` is safe to route by: the authority of the target takes precedence over the Host field.

use tidegate_base::limits::HOST_BYTES_MAX;

use super::fault::FaultKind;
use super::field::{FieldName, FieldTable, field_accessors};
use super::length::BodyLength;
use super::method::Method;
use super::target::{TargetForm, parse_host};
use super::version::Version;

/// The head of a request.
#[derive(Clone, Debug)]
pub struct RequestHead<'a> {
    /// The method.
    pub method: Method<'a>,
    /// The request target as received; in HTTP/2 `:path`.
    pub target: &'a str,
    /// The form of the target.
    pub form: TargetForm,
    /// The path of the target. "*" for the asterisk form and for OPTIONS with an absolute form that
    /// has no path (RFC 9112 section 3.2.4); "/" for any other absolute form without a path; empty
    /// for the authority form.
    pub path: &'a str,
    /// The part of the target after the first question mark.
    pub query: Option<&'a str>,
    /// The host, with a port if there is one: the authority of the target or `:authority`, or else the Host
    /// field (RFC 9112 section 3.3, RFC 9113 section 8.3.1). Valid, never empty. `None` if the client names
    /// no host: HTTP/1.0 without Host, or an empty Host.
    pub host: Option<&'a str>,
    /// The version.
    pub version: Version,
    /// How the end of the body is found; never `UntilClose`.
    pub length: BodyLength,
    /// Whether the client wants to keep the connection open (RFC 9112 section 9.3). Always true in HTTP/2,
    /// where a request does not describe its connection.
    pub persistent: bool,
    /// Whether the client waits for a 100 (Continue) response before it sends the body (RFC 9110 section
    /// 10.1.1).
    pub expect_continue: bool,
    /// Whether the client requests another protocol (RFC 9110 section 7.8). In HTTP/1.1: an Upgrade
    /// field, `upgrade` listed in Connection, and no body. In HTTP/2: an extended CONNECT whose stream stays open.
    pub upgrade: bool,
    /// The protocol of an extended CONNECT (RFC 8441), such as "websocket". `None` in HTTP/1, and for other methods.
    pub protocol: Option<&'a str>,
    /// The fields, classified. In HTTP/2 without pseudo-header fields, and with one Cookie field at most.
    pub(crate) fields: FieldTable<'a>,
}

field_accessors!(RequestHead);

impl<'a> RequestHead<'a> {
    /// The method that routes and rules compare. An extended CONNECT requests what GET with an Upgrade
    /// field requests in HTTP/1.1 (RFC 8441 section 5).
    #[must_use]
    #[inline]
    pub const fn routed_method(&self) -> Method<'a> {
        if self.protocol.is_some() { Method::Get } else { self.method }
    }

    /// Whether the request is an extended CONNECT for a WebSocket (RFC 8441).
    #[must_use]
    #[inline]
    pub fn connects_websocket(&self) -> bool {
        self.protocol == Some("websocket")
    }
}

/// The value of the Host field: a host, or `None` if there is no field or if it is empty.
#[inline]
pub(crate) fn host_field<'a>(fields: &FieldTable<'a>) -> Result<Option<&'a str>, FaultKind> {
    let Some(value) = fields.find(FieldName::Host) else {
        return Ok(None);
    };
    if fields.is_repeated(FieldName::Host) {
        return Err(FaultKind::HostRepeated);
    }
    match parse_host(value) {
        None if !value.is_empty() => Err(FaultKind::HostInvalid),
        host => Ok(host),
    }
}

/// Accepts a host that is not longer than `HOST_BYTES_MAX`.
#[inline]
pub(crate) fn check_host_length(host: Option<&str>) -> Result<Option<&str>, FaultKind> {
    match host {
        Some(host) if host.len() > HOST_BYTES_MAX => Err(FaultKind::HostTooLong),
        host => Ok(host),
    }
}

/// Whether the request has `Expect: 100-continue`. Other expectations are forwarded: RFC 9110
/// section 10.1.1 allows a server to ignore them.
#[inline]
pub(crate) fn expects_continue(fields: &FieldTable<'_>) -> bool {
    fields.elements(FieldName::Expect).any(|element| element.eq_ignore_ascii_case(b"100-continue"))
}
