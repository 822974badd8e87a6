//! Responses by the proxy itself: fixed responses, errors, redirects, and those of a final recipient.
//! In: the configuration, the request, the date. Out: complete responses, appended to a buffer.
//! Never: copies bytes of a request into a head without checking or escaping them.
//! Limits: a redirect's `Location` is at most as long as the configured target and one request line together.
//! Invariant: every response has exactly one framing, and contains `close` exactly if the connection closes.

use tidegate_config::model::{Action, Config, HttpsRedirect, Redirect, RedirectPiece, Respond};
use tidegate_wire::http1::{
    FieldName, Method, RequestHead, Version, encode_field, encode_field_u64, encode_status_line,
};

use crate::scheme::Scheme;

/// The field that makes browsers use only https (RFC 6797).
pub(crate) const HSTS: &str = "Strict-Transport-Security";
const DATE_BYTES: usize = 29;
/// The methods that a final recipient lists in `Allow` (RFC 9110 section 10.2.1).
const ALLOW: &[u8] = b"Allow: GET, HEAD, POST, PUT, DELETE, OPTIONS, TRACE, PATCH\r\n";

/// The properties of a response other than its content.
#[derive(Clone, Copy, Debug)]
pub struct AnswerContext<'a> {
    /// The current date, as in the `Date` field.
    pub date: &'a [u8; DATE_BYTES],
    /// The value of the `Server` field. The field is omitted if this is empty.
    pub server: &'a str,
    /// The request's method is HEAD, so no content is sent (RFC 9110 section 9.3.2).
    pub is_head: bool,
    /// The HTTP version of the request.
    pub version: Version,
    /// The connection closes after this response.
    pub close: bool,
    /// The value of Strict-Transport-Security. The field is omitted if this is empty.
    pub hsts: &'a str,
}

/// The fixed responses of a configuration, encoded once.
pub struct Answers {
    /// By route; `None` if the route has another action.
    prepared: Vec<Option<Prepared>>,
}

impl Answers {
    /// Encodes the `respond` actions of `config`.
    #[must_use]
    pub fn new(config: &Config) -> Self {
        let prepare = |action: &Action| match action {
            Action::Respond(respond) => Some(Prepared::new(respond, &config.server.server_name)),
            Action::Redirect(_) | Action::Synthetic | Action::Echo | Action::Proxy(_) => None,
        };
        Self { prepared: config.routes.iter().map(|route| prepare(&route.action)).collect() }
    }

    /// The fixed response of `route`, if the route has one.
    #[must_use]
    pub fn prepared(&self, route: usize) -> Option<&Prepared> {
        self.prepared.get(route)?.as_ref()
    }
}

/// A fixed response, complete except for its date.
pub struct Prepared {
    status: u16,
    /// Status line, fields, empty line and content, as sent to an HTTP/1.1 client whose connection stays
    /// open.
    whole: Vec<u8>,
    /// The index of the date in `whole`. Date is the last field of the head.
    date_at: usize,
    /// The index of the content in `whole`.
    content_at: usize,
    /// The configured fields include Strict-Transport-Security.
    has_hsts: bool,
}

impl Prepared {
    /// Encodes `respond`. `server` is the value of `Server`; the field is omitted if it is empty.
    #[must_use]
    pub fn new(respond: &Respond, server: &str) -> Self {
        let mut whole = Vec::new();
        encode_status_line(&mut whole, respond.status);
        let names_server =
            respond.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("server"));
        if !server.is_empty() && !names_server {
            encode_field(&mut whole, "Server", server.as_bytes());
        }
        for (name, value) in &respond.headers {
            encode_field(&mut whole, name, value.as_bytes());
        }
        let content: &[u8] =
            if allows_content(respond.status) { respond.body.as_slice() } else { b"" };
        // RFC 9110 section 8.6: Content-Length is forbidden in 204 and not required in 304.
        if !matches!(respond.status, 204 | 304) {
            encode_field_u64(&mut whole, "Content-Length", content.len() as u64);
        }
        whole.extend_from_slice(b"Date: ");
        let date_at = whole.len();
        whole.extend_from_slice(&[b' '; DATE_BYTES]);
        whole.extend_from_slice(b"\r\n\r\n");
        let content_at = whole.len();
        whole.extend_from_slice(content);
        let has_hsts = respond.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case(HSTS));
        Self { status: respond.status, whole, date_at, content_at, has_hsts }
    }

    /// The status code.
    #[must_use]
    pub const fn status(&self) -> u16 {
        self.status
    }
}

/// Appends a fixed response: copies it and writes the date into the copy.
pub fn encode_respond(out: &mut Vec<u8>, prepared: &Prepared, context: &AnswerContext<'_>) {
    let start = out.len();
    let date_at = start + prepared.date_at;
    let adds_hsts = !context.hsts.is_empty() && !prepared.has_hsts;
    if context.version == Version::Http11 && !context.close && !context.is_head && !adds_hsts {
        out.extend_from_slice(&prepared.whole);
        // In bounds: `date_at` + 29 is before the content in the copy of `whole`.
        out[date_at..date_at + DATE_BYTES].copy_from_slice(context.date);
        return;
    }
    let (head, content) = prepared.whole.split_at(prepared.content_at);
    out.extend_from_slice(&head[..prepared.date_at]);
    out.extend_from_slice(context.date);
    out.extend_from_slice(b"\r\n");
    if adds_hsts {
        encode_field(out, HSTS, context.hsts.as_bytes());
    }
    encode_connection(out, context.version, context.close);
    out.extend_from_slice(b"\r\n");
    if !context.is_head {
        out.extend_from_slice(content);
    }
}

/// Appends a response in plain text, such as `502 Bad Gateway: ` and `text`. The response has no content
/// if `text` is empty.
pub fn encode_error(out: &mut Vec<u8>, status: u16, text: &str, context: &AnswerContext<'_>) {
    encode_answer_fields(out, status, context);
    encode_text(out, status, text, context);
}

/// Appends the redirect `redirect` for the request `head`, which was sent by `scheme`. Returns the status
/// of the response, which is 400 if the target needs a host and the request has none.
///
/// A request cannot redirect its client to another host: the host is validated, a path at the start of the
/// target has exactly one leading slash, and characters that are not allowed in a URI are percent-encoded.
pub fn encode_redirect(
    out: &mut Vec<u8>,
    redirect: &Redirect,
    head: &RequestHead<'_>,
    scheme: Scheme,
    context: &AnswerContext<'_>,
) -> u16 {
    if head.host.is_none() && redirect.to.contains(&RedirectPiece::Host) {
        encode_error(out, 400, "this redirect requires a Host field", context);
        return 400;
    }
    encode_answer_fields(out, redirect.status, context);
    out.extend_from_slice(b"Location: ");
    encode_location(out, redirect, head, scheme);
    out.extend_from_slice(b"\r\n");
    encode_text(out, redirect.status, "see Location", context);
    redirect.status
}

/// Appends a redirect of the request `head` to the same URL by https. Returns the status of the response,
/// which is 400 if the request has no host or its host contains characters that host names do not contain.
pub fn encode_https_redirect(
    out: &mut Vec<u8>,
    redirect: HttpsRedirect,
    head: &RequestHead<'_>,
    context: &AnswerContext<'_>,
) -> u16 {
    let Some(host) = head.host.and_then(plain_host) else {
        encode_error(
            out,
            400,
            "the redirect to https requires a Host field with a plain host name",
            context,
        );
        return 400;
    };
    // Old clients may not know 308 (RFC 7538, 2015), but all know 301. Only GET and HEAD are certain to be
    // repeated unchanged after 301 (RFC 9110 section 15.4.2).
    let usual = if matches!(head.method, Method::Get | Method::Head) { 301 } else { 308 };
    let status = redirect.status.unwrap_or(usual);
    encode_answer_fields(out, status, context);
    out.extend_from_slice(b"Location: https://");
    out.extend_from_slice(host.as_bytes());
    if redirect.port != 443 {
        out.push(b':');
        out.extend_from_slice(itoa::Buffer::new().format(redirect.port).as_bytes());
    }
    // A path begins with a slash, so that no part of it can be taken for a part of the host.
    encode_uri(out, if head.path.starts_with('/') { head.path } else { "/" });
    if let Some(query) = head.query {
        out.push(b'?');
        encode_uri(out, query);
    }
    out.extend_from_slice(b"\r\n");
    encode_text(out, status, "see Location", context);
    status
}

/// The host without its port, if it is an IP address or a name of letters, digits, `-`, `_` and `.`.
fn plain_host(host: &str) -> Option<&str> {
    if let Some(rest) = host.strip_prefix('[') {
        let (literal, _) = rest.split_once(']')?;
        let sound = literal.parse::<core::net::Ipv6Addr>().is_ok();
        return if sound { host.get(..literal.len() + 2) } else { None };
    }
    let name = host.split_once(':').map_or(host, |(name, _)| name);
    let sound = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
    (sound && !name.is_empty()).then_some(name)
}

/// Appends the response to a request whose Max-Forwards is 0 (RFC 9110 section 7.6.2). The response to
/// TRACE contains the received request (section 9.3.8), that to OPTIONS the allowed methods (section 9.3.7).
pub fn encode_final_recipient(
    out: &mut Vec<u8>,
    head: &RequestHead<'_>,
    context: &AnswerContext<'_>,
) {
    encode_answer_fields(out, 200, context);
    if !matches!(head.method, Method::Trace) {
        out.extend_from_slice(ALLOW);
        encode_field_u64(out, "Content-Length", 0);
        encode_connection(out, context.version, context.close);
        out.extend_from_slice(b"\r\n");
        return;
    }
    let mut echo = Vec::new();
    echo.extend_from_slice(b"TRACE ");
    echo.extend_from_slice(head.target.as_bytes());
    echo.extend_from_slice(match head.version {
        Version::Http10 => b" HTTP/1.0\r\n",
        Version::Http11 => b" HTTP/1.1\r\n",
        Version::Http2 => b" HTTP/2\r\n",
    });
    for field in head.fields() {
        // Section 9.3.8: fields that are likely to contain secrets are omitted.
        let secret = matches!(
            field.id,
            FieldName::Authorization | FieldName::Cookie | FieldName::ProxyAuthorization
        );
        if !secret {
            encode_field(&mut echo, field.name, field.value);
        }
    }
    echo.extend_from_slice(b"\r\n");
    out.extend_from_slice(b"Content-Type: message/http\r\n");
    encode_field_u64(out, "Content-Length", echo.len() as u64);
    encode_connection(out, context.version, context.close);
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(&echo);
}

/// Status line, Date, Server and Strict-Transport-Security.
pub(crate) fn encode_answer_fields(out: &mut Vec<u8>, status: u16, context: &AnswerContext<'_>) {
    encode_status_line(out, status);
    encode_field(out, "Date", context.date);
    if !context.server.is_empty() {
        encode_field(out, "Server", context.server.as_bytes());
    }
    if !context.hsts.is_empty() {
        encode_field(out, HSTS, context.hsts.as_bytes());
    }
}

/// Appends the Connection field for a client of `version`, if it is needed (RFC 9112 section 9.3): HTTP/1.1
/// keeps the connection by default, HTTP/1.0 closes it.
pub(crate) fn encode_connection(out: &mut Vec<u8>, version: Version, close: bool) {
    if close {
        out.extend_from_slice(b"Connection: close\r\n");
    } else if version == Version::Http10 {
        out.extend_from_slice(b"Connection: keep-alive\r\n");
    }
}

/// Appends the fields of a short text, the end of the head, and the text.
pub(crate) fn encode_text(out: &mut Vec<u8>, status: u16, text: &str, context: &AnswerContext<'_>) {
    let text = if allows_content(status) { text } else { "" };
    let reason = tidegate_wire::http1::reason_phrase(status);
    let mut number = itoa::Buffer::new();
    let number = number.format(status);
    let parts = [number, " ", reason, ": ", text, "\n"];
    let length: usize = if text.is_empty() { 0 } else { parts.iter().map(|part| part.len()).sum() };
    if length > 0 {
        out.extend_from_slice(b"Content-Type: text/plain; charset=utf-8\r\n");
    }
    if !matches!(status, 204 | 304) {
        encode_field_u64(out, "Content-Length", length as u64);
    }
    encode_connection(out, context.version, context.close);
    out.extend_from_slice(b"\r\n");
    if length > 0 && !context.is_head {
        for part in parts {
            out.extend_from_slice(part.as_bytes());
        }
    }
}

fn encode_location(out: &mut Vec<u8>, redirect: &Redirect, head: &RequestHead<'_>, scheme: Scheme) {
    for (index, piece) in redirect.to.iter().enumerate() {
        let first = index == 0;
        match piece {
            RedirectPiece::Text(text) => encode_uri(out, text),
            RedirectPiece::Host => {
                if first {
                    encode_uri(out, scheme.as_str());
                    out.extend_from_slice(b"://");
                }
                encode_uri(out, head.host.unwrap_or_default());
            }
            RedirectPiece::Path => {
                // A target that begins with "//other.example/" names another host (RFC 3986 section 4.2).
                let path = if head.path == "*" { "/" } else { head.path };
                if first {
                    out.push(b'/');
                    encode_uri(out, path.trim_start_matches(['/', '\\']));
                } else {
                    encode_uri(out, path);
                }
            }
            RedirectPiece::Query => {
                if let Some(query) = head.query {
                    out.push(b'?');
                    encode_uri(out, query);
                }
            }
        }
    }
}

/// Appends `text` and percent-encodes characters that are not allowed in a URI (RFC 3986 section 2). These
/// include the backslash, which browsers take for a slash.
fn encode_uri(out: &mut Vec<u8>, text: &str) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    for &byte in text.as_bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~:/?#[]@!$&'()*+,;=%".contains(&byte) {
            out.push(byte);
        } else {
            let (high, low) = (usize::from(byte >> 4), usize::from(byte & 15));
            out.extend_from_slice(&[b'%', HEX[high], HEX[low]]);
        }
    }
}

/// Whether a response with that status may have content (RFC 9110 section 6.4.1).
fn allows_content(status: u16) -> bool {
    !matches!(status, 100..=199 | 204 | 205 | 304)
}
