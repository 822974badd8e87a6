//! Responses by the proxy itself: fixed responses, errors, redirects, and those of a final recipient.
//! In: the configuration, the request, the date. Out: complete responses, given to the client's sink.
//! Never: copies bytes of a request into a head without checking or escaping them.
//! Limits: a redirect's `Location` is at most as long as the configured target and one request line together.
//! Invariant: every response has exactly one length.

use tidegate_config::model::{Action, Config, HttpsRedirect, Redirect, Respond};
use tidegate_wire::http1::{ResponseEncoder, encode_field, encode_field_u64, encode_status_line};
use tidegate_wire::message::{
    BodyLength, FieldName, Method, RequestHead, ResponseSink, Version, reason_phrase,
};

use crate::filter::hsts::HSTS;
use crate::location;
use crate::scheme::Scheme;
use crate::template::Values;

/// Length of the value of `Date`.
pub const DATE_BYTES: usize = 29;
/// The methods that a final recipient lists in `Allow` (RFC 9110 section 10.2.1).
const ALLOW: &[u8] = b"GET, HEAD, POST, PUT, DELETE, OPTIONS, TRACE, PATCH";

/// The properties of a response other than its content.
#[derive(Clone, Copy, Debug)]
pub struct AnswerContext<'a> {
    /// The current date, as in the `Date` field.
    pub date: &'a [u8; DATE_BYTES],
    /// The value of the `Server` field. The field is omitted if this is empty.
    pub server: &'a str,
    /// The request's method is HEAD, so no content is sent (RFC 9110 section 9.3.2).
    pub is_head: bool,
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
            Action::Redirect(_)
            | Action::Synthetic
            | Action::Echo
            | Action::Push(_)
            | Action::Lua(_)
            | Action::Proxy(_) => None,
        };
        Self { prepared: config.routes.iter().map(|route| prepare(&route.action)).collect() }
    }

    /// The fixed response of `route`, if the route has one.
    #[must_use]
    pub fn prepared(&self, route: usize) -> Option<&Prepared> {
        self.prepared.get(route)?.as_ref()
    }
}

/// A fixed response, complete except for its date: in parts, and as bytes of HTTP/1.1.
pub struct Prepared {
    status: u16,
    /// The fields other than Content-Length and Date.
    fields: Vec<(String, Vec<u8>)>,
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
        let mut fields = Vec::new();
        let names = |wanted: &str| {
            respond.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case(wanted))
        };
        if !server.is_empty() && !names("server") {
            fields.push(("Server".to_owned(), server.as_bytes().to_vec()));
        }
        for (name, value) in &respond.headers {
            fields.push((name.clone(), value.as_bytes().to_vec()));
        }
        let mut whole = Vec::new();
        encode_status_line(&mut whole, respond.status);
        for (name, value) in &fields {
            encode_field(&mut whole, name, value);
        }
        let content: &[u8] =
            if allows_content(respond.status) { respond.body.as_slice() } else { b"" };
        if states_length(respond.status) {
            encode_field_u64(&mut whole, "Content-Length", content.len() as u64);
        }
        whole.extend_from_slice(b"Date: ");
        let date_at = whole.len();
        whole.extend_from_slice(&[b' '; DATE_BYTES]);
        whole.extend_from_slice(b"\r\n\r\n");
        let content_at = whole.len();
        whole.extend_from_slice(content);
        let has_hsts = names(HSTS);
        Self { status: respond.status, fields, whole, date_at, content_at, has_hsts }
    }

    /// The status code.
    #[must_use]
    pub const fn status(&self) -> u16 {
        self.status
    }

    /// Whether the configured fields include Strict-Transport-Security, which then takes the place of the
    /// policy's.
    #[must_use]
    pub const fn has_hsts(&self) -> bool {
        self.has_hsts
    }

    /// The content.
    #[must_use]
    pub fn content(&self) -> &[u8] {
        self.whole.get(self.content_at..).unwrap_or_default()
    }
}

/// Appends a fixed response for a client of HTTP/1: copies it and writes the date into the copy. No filter
/// applies to it.
pub fn encode_respond(
    encoder: &mut ResponseEncoder<'_>,
    prepared: &Prepared,
    context: &AnswerContext<'_>,
) {
    let Some(out) = encoder.whole().filter(|_| !context.is_head) else {
        return encode_respond_parts(encoder, prepared, context);
    };
    let date_at = out.len() + prepared.date_at;
    out.extend_from_slice(&prepared.whole);
    // In bounds: `date_at` + 29 is before the content in the copy of `whole`.
    out[date_at..date_at + DATE_BYTES].copy_from_slice(context.date);
}

/// Gives a fixed response to a sink in its parts.
pub fn encode_respond_parts(
    sink: &mut impl ResponseSink,
    prepared: &Prepared,
    context: &AnswerContext<'_>,
) {
    encode_respond_head(sink, prepared, context);
    let content = prepared.content();
    if !content.is_empty() && !context.is_head {
        sink.content(&[content]);
    }
}

/// Gives the head of a fixed response to a sink.
pub fn encode_respond_head(
    sink: &mut impl ResponseSink,
    prepared: &Prepared,
    context: &AnswerContext<'_>,
) {
    sink.begin(prepared.status, "");
    for (name, value) in &prepared.fields {
        sink.field(name, value);
    }
    let length = prepared.content().len() as u64;
    encode_content_length(sink, prepared.status, length, context.is_head);
    sink.field("Date", context.date);
    sink.end();
}

/// The length of a fixed response, as it is announced to the client.
#[must_use]
pub fn prepared_length(prepared: &Prepared, is_head: bool) -> BodyLength {
    match states_length(prepared.status) && !is_head {
        true => BodyLength::Length(prepared.content().len() as u64),
        false => BodyLength::None,
    }
}

/// Gives the sink a response in plain text, such as `502 Bad Gateway: ` and `text`. The response has no
/// content if `text` is empty.
pub fn encode_error(
    sink: &mut impl ResponseSink,
    status: u16,
    text: &str,
    context: &AnswerContext<'_>,
) {
    encode_answer_fields(sink, status, context);
    encode_text(sink, status, text, None, context);
}

/// Gives the sink the redirect `redirect` for the request `head`, which was sent by `scheme`. `values` are needed if the target
/// has values ([`location::has_values`]). Returns the status of the response, which is 400 if the target needs a host and the
/// request has no host, or a host that is not a plain name or address, or if a value cannot be placed.
///
/// A request cannot redirect its client to another host: the host is validated, a path at the start of the
/// target has exactly one leading slash, and characters that are not allowed in a URI are percent-encoded.
pub fn encode_redirect(
    sink: &mut impl ResponseSink,
    redirect: &Redirect,
    (head, scheme): (&RequestHead<'_>, Scheme),
    values: Option<&Values<'_>>,
    context: &AnswerContext<'_>,
) -> u16 {
    if location::lacks_host(redirect, head) {
        encode_error(sink, 400, NO_HOST, context);
        return 400;
    }
    let rendered = values.filter(|_| location::has_values(redirect));
    let rendered = rendered.map(|values| self::location(redirect, values));
    if let Some(Err((status, text))) = rendered {
        encode_error(sink, status, text, context);
        return status;
    }
    encode_answer_fields(sink, redirect.status, context);
    if rendered.is_some() {
        encode_cacheability(sink, redirect);
    }
    match rendered {
        Some(Ok(target)) => sink.field("Location", &target),
        _ => sink.field_with("Location", |out| location::encode(out, redirect, head, scheme)),
    }
    encode_text(sink, redirect.status, "see Location", None, context);
    redirect.status
}

/// States for which other requests a cache may use a redirect whose target has values. Caches keep 301 and 308 without
/// being told to (RFC 9110 section 15.1), and send them to other clients.
fn encode_cacheability(sink: &mut impl ResponseSink, redirect: &Redirect) {
    let origins = location::origins(redirect);
    if origins.is_own {
        sink.field("Cache-Control", b"no-store");
    }
    if !origins.fields.is_empty() {
        sink.field("Vary", origins.fields.as_bytes());
    }
}

/// The text of a 400 response.
const NO_HOST: &str = "this redirect requires a Host field with a plain host name";

/// Gives the sink a redirect of the request `head` to the same URL by https. Returns the status of the
/// response, which is 400 if the request has no host or its host contains characters that host names do not
/// contain.
pub fn encode_https_redirect(
    sink: &mut impl ResponseSink,
    redirect: HttpsRedirect,
    head: &RequestHead<'_>,
    context: &AnswerContext<'_>,
) -> u16 {
    let Some(host) = head.host.and_then(plain_host) else {
        encode_error(
            sink,
            400,
            "the redirect to https requires a Host field with a plain host name",
            context,
        );
        return 400;
    };
    let status = https_status(redirect, head);
    encode_answer_fields(sink, status, context);
    sink.field_with("Location", |out| encode_https_location(out, redirect, host, head));
    encode_text(sink, status, "see Location", None, context);
    status
}

/// The host without its port, if it is an IP address or a name of letters, digits, `-`, `_` and `.`, without empty labels
/// except after a dot at the end. The port must not be 0.
pub(crate) fn plain_host(host: &str) -> Option<&str> {
    if let Some(rest) = host.strip_prefix('[') {
        let (literal, port) = rest.split_once(']')?;
        let is_port = port.is_empty() || port.strip_prefix(':').is_some_and(is_port);
        let sound = is_port && literal.parse::<core::net::Ipv6Addr>().is_ok();
        return if sound { host.get(..literal.len() + 2) } else { None };
    }
    let (name, port) = host.split_once(':').unwrap_or((host, ""));
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    let is_label = |label: &str| !label.is_empty() && label.bytes().all(is_plain);
    let mut labels = name.strip_suffix('.').unwrap_or(name).split('.');
    (is_port(port) && labels.all(is_label)).then_some(name)
}

/// Whether the text is a port that a client can connect to, or empty: the default port (RFC 3986 section 3.2.3).
fn is_port(text: &str) -> bool {
    let is_digits = text.bytes().all(|byte| byte.is_ascii_digit());
    text.is_empty() || is_digits && text.parse::<u16>().is_ok_and(|port| port > 0)
}

/// Gives the sink the response to a request whose Max-Forwards is 0 (RFC 9110 section 7.6.2). The response to
/// TRACE contains the received request (section 9.3.8), that to OPTIONS the allowed methods (section 9.3.7).
pub fn encode_final_recipient(
    sink: &mut impl ResponseSink,
    head: &RequestHead<'_>,
    context: &AnswerContext<'_>,
) {
    encode_answer_fields(sink, 200, context);
    if !matches!(head.method, Method::Trace) {
        sink.field("Allow", ALLOW);
        sink.length(BodyLength::Length(0));
        return sink.end();
    }
    let mut echo = Vec::new();
    echo.extend_from_slice(b"TRACE ");
    echo.extend_from_slice(head.target.as_bytes());
    echo.extend_from_slice(b" HTTP/");
    echo.extend_from_slice(head.version.number().as_bytes());
    echo.extend_from_slice(b"\r\n");
    if let (Version::Http2, false, Some(host)) =
        (head.version, head.has(FieldName::Host), head.host)
    {
        encode_field(&mut echo, "Host", host.as_bytes());
    }
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
    sink.field("Content-Type", b"message/http");
    sink.length(BodyLength::Length(echo.len() as u64));
    sink.end();
    sink.content(&[&echo]);
}

/// The status, Date and Server.
pub(crate) fn encode_answer_fields(
    sink: &mut impl ResponseSink,
    status: u16,
    context: &AnswerContext<'_>,
) {
    sink.begin(status, "");
    sink.field("Date", context.date);
    if !context.server.is_empty() {
        sink.field("Server", context.server.as_bytes());
    }
}

/// States the length of the content of a response of that status; with HEAD, the length that the content
/// would have.
pub(crate) fn encode_content_length(
    sink: &mut impl ResponseSink,
    status: u16,
    length: u64,
    is_head: bool,
) {
    match (states_length(status), is_head) {
        (true, false) => sink.length(BodyLength::Length(length)),
        (true, true) => {
            sink.field_u64("Content-Length", length);
            sink.length(BodyLength::None);
        }
        (false, _) => sink.length(BodyLength::None),
    }
}

/// Gives a short text to a sink: its fields, the end of the head, and the text. A 426 names the
/// protocol `upgrade`.
pub(crate) fn encode_text(
    sink: &mut impl ResponseSink,
    status: u16,
    text: &str,
    upgrade: Option<&[u8]>,
    context: &AnswerContext<'_>,
) {
    let text = if allows_content(status) { text } else { "" };
    let mut number = itoa::Buffer::new();
    let number = number.format(status);
    let parts = [number, " ", reason_phrase(status), ": ", text, "\n"].map(str::as_bytes);
    let length: usize = if text.is_empty() { 0 } else { parts.iter().map(|part| part.len()).sum() };
    if length > 0 {
        sink.field("Content-Type", b"text/plain; charset=utf-8");
    }
    encode_content_length(sink, status, length as u64, context.is_head);
    if upgrade.is_some() {
        sink.switch(upgrade.into_iter());
    }
    sink.end();
    if length > 0 && !context.is_head {
        sink.content(&parts);
    }
}

/// The status and the Location of the redirect of `head` to https; `None`: it gets a 400 response.
#[must_use]
pub fn https_redirect(redirect: HttpsRedirect, head: &RequestHead<'_>) -> Option<(u16, Vec<u8>)> {
    let host = head.host.and_then(plain_host)?;
    let mut out = Vec::new();
    encode_https_location(&mut out, redirect, host, head);
    Some((https_status(redirect, head), out))
}

fn https_status(redirect: HttpsRedirect, head: &RequestHead<'_>) -> u16 {
    // Old clients may not know 308 (RFC 7538, 2015), but all know 301. Only GET and HEAD are certain to be
    // repeated unchanged after 301 (RFC 9110 section 15.4.2).
    let usual = if matches!(head.method, Method::Get | Method::Head) { 301 } else { 308 };
    redirect.status.unwrap_or(usual)
}

fn encode_https_location(
    out: &mut Vec<u8>,
    redirect: HttpsRedirect,
    host: &str,
    head: &RequestHead<'_>,
) {
    out.extend_from_slice(b"https://");
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
}

/// The Location of a redirect with these values.
///
/// # Errors
/// The request gets a response with this status and text.
pub fn location(redirect: &Redirect, values: &Values<'_>) -> Result<Vec<u8>, (u16, &'static str)> {
    let mut out = Vec::new();
    if location::lacks_host(redirect, values.head) {
        return Err((400, NO_HOST));
    }
    if !location::has_values(redirect) {
        location::encode(&mut out, redirect, values.head, values.scheme);
        return Ok(out);
    }
    match location::render(&mut out, redirect, values) {
        Ok(()) => Ok(out),
        Err(fault) => Err((fault.status(), fault.text())),
    }
}

/// Appends `text` and percent-encodes characters that are not allowed in a URI (RFC 3986 section 2). These
/// include the backslash, which browsers take for a slash.
pub(crate) fn encode_uri(out: &mut Vec<u8>, text: &str) {
    for &byte in text.as_bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~:/?#[]@!$&'()*+,;=%".contains(&byte) {
            out.push(byte);
        } else {
            location::push_encoded(out, byte);
        }
    }
}

/// Whether a response with that status may have content (RFC 9110 section 6.4.1).
pub(crate) fn allows_content(status: u16) -> bool {
    !matches!(status, 100..=199 | 204 | 205 | 304)
}

/// Whether a response with that status announces the length of its content: Content-Length is forbidden in 204
/// and not required in 304 (RFC 9110 section 8.6).
const fn states_length(status: u16) -> bool {
    !matches!(status, 204 | 304)
}
