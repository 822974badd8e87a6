//! The head of a request, and the judgement of one that a carrier delivers in separate parts, as HTTP/2 does.
//! In: the parts and fields of a request. Out: `RequestHead`, or the semantic fault.
//! Never: repairs a request; it is accepted or rejected as a whole.
//! Invariant: `host` is safe to route by: the authority of the target takes precedence over the Host field.

use core::str::from_utf8;

use tidegate_base::limits::HOST_BYTES_MAX;

use super::fault::{Fault, FaultKind};
use super::field::{FieldName, FieldTable, field_accessors};
use super::length::{BodyLength, content_length};
use super::method::Method;
use super::syntax::is_token;
use super::target::{Target, TargetForm, parse_host};
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
    /// where a request says nothing about its connection.
    pub persistent: bool,
    /// Whether the client waits for a 100 (Continue) response before it sends the body (RFC 9110 section
    /// 10.1.1).
    pub expect_continue: bool,
    /// Whether the client asks for another protocol (RFC 9110 section 7.8): HTTP/1.1, an Upgrade
    /// field, `upgrade` listed in Connection, and no body.
    pub upgrade: bool,
    /// The fields, classified.
    pub(crate) fields: FieldTable<'a>,
}

/// The parts of a request other than its fields, from a carrier that delivers them separately (RFC 9113
/// section 8.3.1). The carrier guarantees that each part occurred once, before the fields, and that no other
/// pseudo-header field occurred; it judges `:scheme`. Everything else is judged by
/// [`RequestHead::from_parts`].
#[derive(Clone, Copy, Debug)]
pub struct RequestParts<'a> {
    /// `:method`.
    pub method: &'a [u8],
    /// `:path`; `None` if there is none, as CONNECT requires.
    pub path: Option<&'a [u8]>,
    /// `:authority`; `None` if there is none.
    pub authority: Option<&'a [u8]>,
    /// Whether the message ends with its head (END_STREAM), so that it has no body.
    pub is_ended: bool,
}

impl<'a> RequestHead<'a> {
    /// Judges a request of HTTP/2 with the same rules as HTTP/1 has for targets, hosts and lengths, and with
    /// those of RFC 9113 sections 8.1.1, 8.2.2 and 8.3.1. `fields` are the fields without the pseudo-header
    /// fields, in lower case.
    ///
    /// The head has no claim about the connection: `persistent` is true and `upgrade` is false. If `length`
    /// is `Length(0)`, the end of the stream may still follow; the carrier counts the bytes of a body against
    /// `length`.
    ///
    /// # Errors
    /// The request is malformed. The fault concerns one stream, not the connection.
    pub fn from_parts(parts: &RequestParts<'a>, fields: FieldTable<'a>) -> Result<Self, Fault> {
        if !is_token(parts.method) {
            return Err(FaultKind::MethodInvalid.into());
        }
        let method = from_utf8(parts.method).map_err(|_| FaultKind::MethodInvalid)?;
        let method = Method::from_token(method);
        check_connection_fields(&fields)?;
        let authority = parts.authority.map(parse_authority).transpose()?;
        let (target, parsed) = match (parts.path, &method) {
            (None, Method::Connect) => {
                let target = authority.ok_or(FaultKind::TargetAuthorityInvalid)?;
                (target, Target::parse(&method, target)?)
            }
            (Some(path), _) => {
                let path = from_utf8(path).map_err(|_| FaultKind::TargetInvalid)?;
                (path, Target::parse_path(&method, path)?)
            }
            (None, _) => return Err(FaultKind::TargetFormInvalid.into()),
        };
        let host = effective_host(authority, &fields)?;
        let length = stream_length(&fields, parts.is_ended)?;
        Ok(Self {
            method,
            target,
            form: parsed.form,
            path: parsed.path,
            query: parsed.query,
            host,
            version: Version::Http2,
            length,
            persistent: true,
            expect_continue: expects_continue(&fields),
            upgrade: false,
            fields,
        })
    }
}

field_accessors!(RequestHead);

/// The host that a request of HTTP/2 is for. A Host field that names another host than `:authority` makes the
/// request malformed (RFC 9113 section 8.3.1).
fn effective_host<'a>(
    authority: Option<&'a str>,
    fields: &FieldTable<'a>,
) -> Result<Option<&'a str>, FaultKind> {
    let stated = host_field(fields)?;
    match (authority, stated) {
        (Some(authority), Some(host)) if !authority.eq_ignore_ascii_case(host) => {
            Err(FaultKind::HostsDiffer)
        }
        (authority, stated) => check_host_length(authority.or(stated)),
    }
}

fn parse_authority(value: &[u8]) -> Result<&str, FaultKind> {
    parse_host(value).ok_or(FaultKind::TargetAuthorityInvalid)
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

/// Rejects the fields of HTTP/1's connections (RFC 9113 section 8.2.2), and lookalikes of framing fields,
/// which a server behind this proxy may read as such.
pub(super) fn check_connection_fields(fields: &FieldTable<'_>) -> Result<(), FaultKind> {
    const FORBIDDEN: [FieldName; 5] = [
        FieldName::Connection,
        FieldName::KeepAlive,
        FieldName::ProxyConnection,
        FieldName::TransferEncoding,
        FieldName::Upgrade,
    ];
    let is_te_allowed = |element: &[u8]| element.eq_ignore_ascii_case(b"trailers");
    if FORBIDDEN.iter().any(|&id| fields.has(id))
        || !fields.elements(FieldName::Te).all(is_te_allowed)
    {
        return Err(FaultKind::ConnectionFieldForbidden);
    }
    if fields.has(FieldName::FramingLookalike) {
        return Err(FaultKind::FramingFieldMisspelled);
    }
    Ok(())
}

/// The length of the body of a message whose end is the end of its stream (RFC 9113 section 8.1.1).
fn stream_length(fields: &FieldTable<'_>, is_ended: bool) -> Result<BodyLength, FaultKind> {
    match (content_length(fields, false)?, is_ended) {
        (Some(0), _) => Ok(BodyLength::Length(0)),
        (Some(_), true) => Err(FaultKind::ContentLengthUnmet),
        (Some(length), false) => Ok(BodyLength::Length(length)),
        (None, true) => Ok(BodyLength::None),
        (None, false) => Ok(BodyLength::Streamed),
    }
}

/// Whether the request has `Expect: 100-continue`. Other expectations are forwarded: RFC 9110
/// section 10.1.1 allows a server to ignore them.
#[inline]
pub(crate) fn expects_continue(fields: &FieldTable<'_>) -> bool {
    fields.elements(FieldName::Expect).any(|element| element.eq_ignore_ascii_case(b"100-continue"))
}

#[cfg(test)]
mod tests {
    use super::super::field::FieldList;
    use super::*;

    type Fields<'a> = &'a [(&'a str, &'a str)];

    fn judge(
        parts: (&str, Option<&str>, Option<&str>, bool),
        fields: Fields<'_>,
    ) -> Result<String, FaultKind> {
        let (method, path, authority, is_ended) = parts;
        let mut list: FieldList<'_> = FieldList::new();
        for (name, value) in fields {
            list.push(name.as_bytes(), value.as_bytes()).map_err(|fault| fault.kind)?;
        }
        let parts = RequestParts {
            method: method.as_bytes(),
            path: path.map(str::as_bytes),
            authority: authority.map(str::as_bytes),
            is_ended,
        };
        let head = RequestHead::from_parts(&parts, list.table()).map_err(|fault| fault.kind)?;
        assert!(head.version == Version::Http2 && head.persistent && !head.upgrade);
        let (method, path, host) = (head.method.as_str(), head.path, head.host.unwrap_or("-"));
        let expect = if head.expect_continue { " expects" } else { "" };
        Ok(format!("{method} {path} {:?} {host} {:?}{expect}", head.query, head.length))
    }

    #[test]
    fn separate_parts_are_judged_as_a_request_line_is() {
        let (path, host) = (Some("/a?b"), Some("h:1"));
        for (parts, fields, wanted) in [
            (("GET", path, host, true), &[][..], "GET /a Some(\"b\") h:1 None"),
            (("GET", path, None, true), &[("host", "h")], "GET /a Some(\"b\") h None"),
            (("GET", path, Some("H"), true), &[("host", "h")], "GET /a Some(\"b\") H None"),
            (("GET", path, None, true), &[], "GET /a Some(\"b\") - None"),
            (("OPTIONS", Some("*"), host, true), &[], "OPTIONS * None h:1 None"),
            (("CONNECT", None, host, false), &[], "CONNECT  None h:1 Streamed"),
            (
                ("POST", Some("/"), host, false),
                &[("content-length", "5"), ("expect", "100-continue"), ("te", "trailers")],
                "POST / None h:1 Length(5) expects",
            ),
            (
                ("POST", Some("/"), host, true),
                &[("content-length", "0")],
                "POST / None h:1 Length(0)",
            ),
        ] {
            assert_eq!(judge(parts, fields), Ok(wanted.to_owned()), "{parts:?} {fields:?}");
        }
    }

    #[test]
    fn malformed_parts_are_rejected() {
        let (path, host) = (Some("/"), Some("h"));
        let long = "h".repeat(HOST_BYTES_MAX + 1);
        for (parts, fields, wanted) in [
            (("G T", path, host, true), &[][..], FaultKind::MethodInvalid),
            (("", path, host, true), &[], FaultKind::MethodInvalid),
            (("GET", None, host, true), &[], FaultKind::TargetFormInvalid),
            (("GET", Some(""), host, true), &[], FaultKind::TargetFormInvalid),
            (("GET", Some("*"), host, true), &[], FaultKind::TargetFormInvalid),
            (("GET", Some("http://h/"), host, true), &[], FaultKind::TargetFormInvalid),
            (("CONNECT", path, host, true), &[], FaultKind::TargetFormInvalid),
            (("GET", Some("/a b"), host, true), &[], FaultKind::TargetInvalid),
            (("GET", Some("/\u{e9}"), host, true), &[], FaultKind::TargetInvalid),
            (("GET", path, Some("u@h"), true), &[], FaultKind::TargetAuthorityInvalid),
            (("GET", path, Some(""), true), &[], FaultKind::TargetAuthorityInvalid),
            (("CONNECT", None, None, true), &[], FaultKind::TargetAuthorityInvalid),
            (("CONNECT", None, host, true), &[], FaultKind::TargetAuthorityInvalid),
            (("GET", path, Some(&*long), true), &[], FaultKind::HostTooLong),
            (("GET", path, host, true), &[("host", "x")], FaultKind::HostsDiffer),
            (("GET", path, host, true), &[("host", "x/")], FaultKind::HostInvalid),
            (("GET", path, host, true), &[("host", "h"), ("host", "h")], FaultKind::HostRepeated),
            (
                ("GET", path, host, true),
                &[("connection", "close")],
                FaultKind::ConnectionFieldForbidden,
            ),
            (("GET", path, host, true), &[("te", "gzip")], FaultKind::ConnectionFieldForbidden),
            (
                ("GET", path, host, true),
                &[("transfer-encoding", "chunked")],
                FaultKind::ConnectionFieldForbidden,
            ),
            (
                ("GET", path, host, true),
                &[("content_length", "1")],
                FaultKind::FramingFieldMisspelled,
            ),
            (("GET", path, host, true), &[("content-length", "1")], FaultKind::ContentLengthUnmet),
            (
                ("GET", path, host, false),
                &[("content-length", "1, 1")],
                FaultKind::ContentLengthRepeated,
            ),
        ] {
            assert_eq!(judge(parts, fields), Err(wanted), "{parts:?} {fields:?}");
        }
    }
}
