//! Answers of our own: prepared ones, errors, redirects, and those of a final recipient.
//! In: what the configuration fixed, the request, the date. Out: whole answers, appended.
//! Never: echoes a request's bytes into a head unless they are checked or escaped.
//! Limits: a redirect's `Location` is at most what the configuration and one request line add up to.
//! Invariant: every answer has exactly one framing, and says `close` exactly when we close.

use tidegate_config::model::{Action, Config, HttpsRedirect, Redirect, RedirectPiece, Respond};
use tidegate_wire::http1::{
    FieldName, Method, RequestHead, Version, encode_field, encode_field_u64, encode_status_line,
};

use crate::scheme::Scheme;

/// The field by which browsers are told to come by https alone (RFC 6797).
pub(crate) const HSTS: &str = "Strict-Transport-Security";
const DATE_BYTES: usize = 29;
/// Methods a final recipient names in `Allow` (RFC 9110 section 10.2.1).
const ALLOW: &[u8] = b"Allow: GET, HEAD, POST, PUT, DELETE, OPTIONS, TRACE, PATCH\r\n";

/// What an answer depends on beside its content.
#[derive(Clone, Copy, Debug)]
pub struct AnswerContext<'a> {
    /// The date now, as `Date` writes it.
    pub date: &'a [u8; DATE_BYTES],
    /// Value of the `Server` field; empty: none is sent.
    pub server: &'a str,
    /// The request's method is HEAD: no content is sent (RFC 9110 section 9.3.2).
    pub is_head: bool,
    /// The client's version.
    pub version: Version,
    /// The connection ends after this answer.
    pub close: bool,
    /// Value of Strict-Transport-Security; empty: none is sent.
    pub hsts: &'a str,
}

/// The fixed answers of a configuration, encoded once.
pub struct Answers {
    prepared: Vec<Option<Prepared>>,
}

impl Answers {
    /// Encodes the `respond` actions of `config`.
    #[must_use]
    pub fn new(config: &Config) -> Self {
        let prepare = |action: &Action| match action {
            Action::Respond(respond) => Some(Prepared::new(respond, &config.server.server_name)),
            Action::Redirect(_) | Action::Synthetic | Action::Proxy(_) => None,
        };
        Self { prepared: config.routes.iter().map(|route| prepare(&route.action)).collect() }
    }

    /// The answer of route `route`, where that is a fixed one.
    #[must_use]
    pub fn prepared(&self, route: usize) -> Option<&Prepared> {
        self.prepared.get(route)?.as_ref()
    }
}

/// A fixed answer, whole but for its date.
pub struct Prepared {
    status: u16,
    /// Status line, fields, empty line, content: as it goes to an HTTP/1.1 client that stays.
    whole: Vec<u8>,
    /// Where the date stands in `whole`; its field is the head's last.
    date_at: usize,
    /// Where the content begins in `whole`.
    content_at: usize,
    /// It says Strict-Transport-Security itself.
    has_hsts: bool,
}

impl Prepared {
    /// Encodes `respond`; `server` is the value of `Server`, empty for none.
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
        // RFC 9110 section 8.6: none in 204, and none needed in 304.
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

    /// Its status.
    #[must_use]
    pub const fn status(&self) -> u16 {
        self.status
    }
}

/// Appends a fixed answer: one copy, and the date over it.
pub fn encode_respond(out: &mut Vec<u8>, prepared: &Prepared, context: &AnswerContext<'_>) {
    let start = out.len();
    let date_at = start + prepared.date_at;
    let adds_hsts = !context.hsts.is_empty() && !prepared.has_hsts;
    if context.version == Version::Http11 && !context.close && !context.is_head && !adds_hsts {
        out.extend_from_slice(&prepared.whole);
        // Inside what was just appended: `date_at` + 29 lies before the content of `whole`.
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

/// Appends a short answer in plain text, `502 Bad Gateway: ` and `text`; with an empty `text` an
/// answer without content.
pub fn encode_error(out: &mut Vec<u8>, status: u16, text: &str, context: &AnswerContext<'_>) {
    encode_answer_fields(out, status, context);
    encode_text(out, status, text, context);
}

/// Appends the redirect `redirect` for the request `head` that came by `scheme`; returns the status
/// sent: 400 where the target needs a host that the request has not.
///
/// A target cannot be led to another host by the request: the host is the validated one, a path that
/// comes first has one leading slash alone, and what may not stand in a URI is percent-encoded.
pub fn encode_redirect(
    out: &mut Vec<u8>,
    redirect: &Redirect,
    head: &RequestHead<'_>,
    scheme: Scheme,
    context: &AnswerContext<'_>,
) -> u16 {
    if head.host.is_none() && redirect.to.contains(&RedirectPiece::Host) {
        encode_error(out, 400, "this redirect needs a Host field", context);
        return 400;
    }
    encode_answer_fields(out, redirect.status, context);
    out.extend_from_slice(b"Location: ");
    encode_location(out, redirect, head, scheme);
    out.extend_from_slice(b"\r\n");
    encode_text(out, redirect.status, "see Location", context);
    redirect.status
}

/// Appends the answer that sends the request `head` to the same URL by https; returns the status sent: 400
/// where the request does not say which host it is for, in letters that a host's name is made of.
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
            "this server sends you to https, and needs a Host for that",
            context,
        );
        return 400;
    };
    // A client that knows no 308 (RFC 7538 is of 2015) knows 301; only GET and HEAD survive it unchanged
    // (RFC 9110 section 15.4.2).
    let usual = if matches!(head.method, Method::Get | Method::Head) { 301 } else { 308 };
    let status = redirect.status.unwrap_or(usual);
    encode_answer_fields(out, status, context);
    out.extend_from_slice(b"Location: https://");
    out.extend_from_slice(host.as_bytes());
    if redirect.port != 443 {
        out.push(b':');
        out.extend_from_slice(itoa::Buffer::new().format(redirect.port).as_bytes());
    }
    // A path begins with its slash, so nothing of it can be taken for part of the host.
    encode_uri(out, if head.path.starts_with('/') { head.path } else { "/" });
    if let Some(query) = head.query {
        out.push(b'?');
        encode_uri(out, query);
    }
    out.extend_from_slice(b"\r\n");
    encode_text(out, status, "see Location", context);
    status
}

/// The host without its port, where it is a name of letters, digits, `-`, `_` and `.`, or an IP address.
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

/// Appends the answer to a request whose Max-Forwards ran out here (RFC 9110 section 7.6.2): TRACE is
/// told what came (section 9.3.8), OPTIONS what is allowed (section 9.3.7).
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
    });
    for field in head.fields() {
        // Section 9.3.8: what is likely to be secret is left out.
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

/// What Connection has to say to a client of `version` (RFC 9112 section 9.3): 1.1 keeps unless told
/// otherwise, 1.0 closes unless told otherwise.
pub(crate) fn encode_connection(out: &mut Vec<u8>, version: Version, close: bool) {
    if close {
        out.extend_from_slice(b"Connection: close\r\n");
    } else if version == Version::Http10 {
        out.extend_from_slice(b"Connection: keep-alive\r\n");
    }
}

fn encode_text(out: &mut Vec<u8>, status: u16, text: &str, context: &AnswerContext<'_>) {
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
                // "//other.example/" at the start would name another host (RFC 3986 section 4.2).
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

/// Percent-encodes what may not stand in a URI (RFC 3986 section 2). A backslash is among it: to
/// browsers it is a slash.
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

/// Whether an answer of that status may have content (RFC 9110 section 6.4.1).
fn allows_content(status: u16) -> bool {
    !matches!(status, 100..=199 | 204 | 205 | 304)
}
