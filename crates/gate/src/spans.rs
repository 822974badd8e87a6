//! Spans of requests, in the binary format of OpenTelemetry (OTLP 1.x, `opentelemetry/proto/trace/v1/trace.proto`).
//! In: the data of a request whose exchange has ended, the numbers of its spans. Out: its spans as fields of a `ScopeSpans`,
//! appended to a buffer; around them, a request to a collector.
//! Never: contains fields of messages, or the query of a request that `shown_target` leaves out.
//! Limits: those of the strings in an `Entry`.
//! Invariant: the spans of several requests, one after another, are again fields of a `ScopeSpans`.

use tidegate_config::model::Traces;
use tidegate_wire::message::Version;

use crate::access::{Cause, Entry};
use crate::identity::SpanIds;

/// The version of the conventions that names of attributes follow.
const SCHEMA_URL: &str = "https://opentelemetry.io/schemas/1.27.0";
/// Methods that attributes contain by name (RFC 9110 section 9, RFC 5789); others may be anything.
const METHODS: [&str; 9] =
    ["GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"];

/// Wire types of fields (protobuf).
const VARINT: u32 = 0;
const FIXED64: u32 = 1;
const BYTES: u32 = 2;
const FIXED32: u32 = 5;

/// `Span.kind`.
const KIND_SERVER: u64 = 2;
const KIND_CLIENT: u64 = 3;
/// `Status.code` of an error.
const STATUS_ERROR: u64 = 2;
/// `Span.flags`: the flags of the trace (sampled), and that it is known whether the parent is another process's.
const FLAGS_SAMPLED: u32 = 1;
const FLAGS_PARENT_KNOWN: u32 = 0x100;
const FLAGS_PARENT_REMOTE: u32 = 0x200;

/// The field of a `ScopeSpans` that contains a span.
const SPANS_FIELD: u32 = 2;

/// Encodes spans. Keeps its buffers, so that a span needs no allocation.
#[derive(Clone, Debug, Default)]
pub struct SpanEncoder {
    /// The span that is being encoded.
    span: Vec<u8>,
}

impl SpanEncoder {
    /// Appends the spans of a request: its own, and if a server was chosen, that of the last attempt. Returns how many.
    /// `is_secure`: the client uses https.
    pub fn encode(
        &mut self,
        entry: &Entry<'_>,
        ids: &SpanIds,
        is_secure: bool,
        out: &mut Vec<u8>,
    ) -> u64 {
        let began = entry.unix_millis * 1_000_000;
        let ended = began + entry.timers.total.as_nanos() as u64;
        self.span.clear();
        start(&mut self.span, ids, ids.request, (ids.parent, FLAGS_PARENT_REMOTE));
        request_span(&mut self.span, entry, is_secure);
        times(&mut self.span, began, ended);
        bytes_field(out, SPANS_FIELD, &self.span);
        let Some((pool, server)) = entry.server else { return 1 };
        let waited = entry.timers.request + entry.timers.queue.unwrap_or_default();
        self.span.clear();
        start(&mut self.span, ids, ids.upstream, (Some(ids.request), 0));
        upstream_span(&mut self.span, entry, pool, server);
        times(&mut self.span, (began + waited.as_nanos() as u64).min(ended), ended);
        bytes_field(out, SPANS_FIELD, &self.span);
        2
    }
}

/// The source of the spans: the parts of an export request that are the same for all spans.
#[derive(Clone, Debug)]
pub struct SpanSource {
    /// `ResourceSpans.resource`, as a field.
    resource: Vec<u8>,
    /// `ScopeSpans.scope`, as a field.
    scope: Vec<u8>,
}

impl SpanSource {
    /// The process: the settings, its version, the name of its host, and a string that no other process has.
    #[must_use]
    pub fn new(settings: &Traces, version: &str, host: &str, instance: &str) -> Self {
        let mut attributes = Vec::new();
        let own = [
            ("service.name", settings.service.as_str()),
            ("service.version", version),
            ("service.instance.id", instance),
            ("host.name", host),
            ("telemetry.sdk.name", "tidegate"),
            ("telemetry.sdk.language", "rust"),
            ("telemetry.sdk.version", version),
        ];
        let given = settings.attributes.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        // The attributes in the file take precedence: a name must occur once.
        let is_given = |name: &str| settings.attributes.iter().any(|(given, _)| given == name);
        for (name, value) in own.into_iter().filter(|(name, _)| !is_given(name)).chain(given) {
            let mut attribute = Vec::new();
            text_attribute(&mut attribute, 1, name, value.as_bytes());
            attributes.extend_from_slice(&attribute);
        }
        let mut scope = Vec::new();
        bytes_field(&mut scope, 1, b"tidegate");
        bytes_field(&mut scope, 2, version.as_bytes());
        let field = |content: &[u8]| {
            let mut field = Vec::new();
            bytes_field(&mut field, 1, content);
            field
        };
        Self { resource: field(&attributes), scope: field(&scope) }
    }

    /// A request to a collector (`ExportTraceServiceRequest`) with these spans.
    #[must_use]
    pub fn request(&self, spans: &[u8]) -> Vec<u8> {
        let mut schema = Vec::new();
        bytes_field(&mut schema, 3, SCHEMA_URL.as_bytes());
        let scope_bytes = self.scope.len() + spans.len() + schema.len();
        let mut scope_head = Vec::new();
        key(&mut scope_head, 2, BYTES);
        varint(&mut scope_head, scope_bytes as u64);
        let resource_bytes = self.resource.len() + scope_head.len() + scope_bytes;
        let mut out = Vec::with_capacity(resource_bytes + 16);
        key(&mut out, 1, BYTES);
        varint(&mut out, resource_bytes as u64);
        for part in [&self.resource, &scope_head, &self.scope, spans, &schema] {
            out.extend_from_slice(part);
        }
        out
    }
}

/// How many spans a collector has rejected, as its response says (`ExportTraceServiceResponse`), and why.
#[must_use]
pub fn rejected(response: &[u8]) -> (u64, String) {
    let (mut count, mut why) = (0, String::new());
    let partial =
        Fields(response).find(|(number, ..)| *number == 1).map_or(&b""[..], |(_, _, v)| v);
    for (number, value, bytes) in Fields(partial) {
        match number {
            1 => count = value,
            2 => why = String::from_utf8_lossy(bytes).into_owned(),
            _ => {}
        }
    }
    (count, why)
}

/// Writes the fields that each span begins with. `parent`: the number of its parent, and the flag that it is another process's.
fn start(span: &mut Vec<u8>, ids: &SpanIds, own: u64, (parent, remote): (Option<u64>, u32)) {
    bytes_field(span, 1, &ids.trace.to_be_bytes());
    bytes_field(span, 2, &own.to_be_bytes());
    let mut flags = FLAGS_SAMPLED | FLAGS_PARENT_KNOWN;
    if let Some(parent) = parent {
        bytes_field(span, 4, &parent.to_be_bytes());
        flags |= remote;
    }
    key(span, 16, FIXED32);
    span.extend_from_slice(&flags.to_le_bytes());
}

fn times(span: &mut Vec<u8>, began: u64, ended: u64) {
    for (field, nanos) in [(7, began), (8, ended)] {
        key(span, field, FIXED64);
        span.extend_from_slice(&nanos.to_le_bytes());
    }
}

/// The span of the request itself.
fn request_span(span: &mut Vec<u8>, entry: &Entry<'_>, is_secure: bool) {
    let method = method_of(entry);
    let route = entry.route.unwrap_or_default();
    let name_bytes = method.len() + usize::from(!route.is_empty()) + route.len();
    key(span, 5, BYTES);
    varint(span, name_bytes as u64);
    span.extend_from_slice(method.as_bytes());
    if !route.is_empty() {
        span.push(b' ');
        span.extend_from_slice(route.as_bytes());
    }
    kind(span, KIND_SERVER);
    method_attributes(span, entry, method);
    if let Some(request) = entry.request {
        let (path, query) = split(request.target, b'?');
        text_attribute(span, ATTRIBUTES, "url.path", path);
        if let Some(query) = query.filter(|query| !query.is_empty()) {
            text_attribute(span, ATTRIBUTES, "url.query", query);
        }
        if !request.host.is_empty() {
            place(span, request.host);
        }
    }
    text_attribute(span, ATTRIBUTES, "url.scheme", if is_secure { b"https" } else { b"http" });
    if let Some(client) = entry.client {
        use std::io::Write as _;
        let (mut text, ip) = ([0; 48], client.ip());
        let mut rest = &mut text[..];
        // The array has room for every address.
        let _ = write!(rest, "{ip}");
        let used = 48 - rest.len();
        text_attribute(span, ATTRIBUTES, "client.address", &text[..used]);
        number_attribute(span, "client.port", client.port().into());
    }
    let version: &[u8] = match entry.version {
        Some(Version::Http10) => b"1.0",
        Some(Version::Http11) => b"1.1",
        Some(Version::Http2) => b"2",
        None => b"",
    };
    text_attribute(span, ATTRIBUTES, "network.protocol.version", version);
    if !route.is_empty() {
        text_attribute(span, ATTRIBUTES, "http.route", route.as_bytes());
    }
    number_attribute(span, "http.request.body.size", entry.bytes_in);
    number_attribute(span, "http.response.size", entry.bytes_out);
    text_attribute(span, ATTRIBUTES, "tidegate.listener", entry.listener.as_bytes());
    text_attribute(span, ATTRIBUTES, "tidegate.end", &entry.termination());
    if !entry.id.is_empty() && entry.id != entry.trace {
        text_attribute(span, ATTRIBUTES, "tidegate.request.id", entry.id);
    }
    if let Some(status) = entry.status {
        number_attribute(span, "http.response.status_code", status.into());
    }
    // An error of the client is no error of the server (conventions for HTTP spans, section Status).
    let is_own_fault =
        !matches!(entry.cause, Cause::None | Cause::Client | Cause::ClientTimeout | Cause::Refused);
    outcome(span, entry, entry.status.is_some_and(|status| status >= 500) || is_own_fault);
}

/// The span of the last attempt at a server.
fn upstream_span(span: &mut Vec<u8>, entry: &Entry<'_>, pool: &str, server: &str) {
    let method = method_of(entry);
    bytes_field(span, 5, method.as_bytes());
    kind(span, KIND_CLIENT);
    method_attributes(span, entry, method);
    place(span, server.as_bytes());
    text_attribute(span, ATTRIBUTES, "tidegate.pool", pool.as_bytes());
    flag_attribute(span, "tidegate.connection.reused", entry.is_reused);
    if entry.attempts > 1 {
        number_attribute(span, "http.request.resend_count", u64::from(entry.attempts) - 1);
    }
    // Without a response of the server, the status is that of Tidegate's own response.
    let status = entry.status.filter(|_| entry.timers.response.is_some());
    if let Some(status) = status {
        number_attribute(span, "http.response.status_code", status.into());
    }
    let is_unanswered = status.is_none() && entry.cause != Cause::None;
    let is_broken = matches!(entry.cause, Cause::Server | Cause::ServerTimeout);
    let is_error = is_unanswered || is_broken || status.is_some_and(|status| status >= 400);
    outcome(span, entry, is_error);
}

/// The error.
fn outcome(span: &mut Vec<u8>, entry: &Entry<'_>, is_error: bool) {
    if !is_error {
        return;
    }
    let mut digits = itoa::Buffer::new();
    let kind = match (entry.cause, entry.status) {
        (Cause::None, Some(status)) => digits.format(status),
        (cause, _) => cause.fault(),
    };
    text_attribute(span, ATTRIBUTES, "error.type", kind.as_bytes());
    // `Status`: the message, and the code.
    let reason = entry.reason.as_bytes();
    let message_bytes =
        if reason.is_empty() { 0 } else { 1 + varint_bytes(reason.len()) + reason.len() };
    key(span, 15, BYTES);
    varint(span, (message_bytes + 2) as u64);
    if !reason.is_empty() {
        bytes_field(span, 2, reason);
    }
    key(span, 3, VARINT);
    varint(span, STATUS_ERROR);
}

fn kind(span: &mut Vec<u8>, kind: u64) {
    key(span, 6, VARINT);
    varint(span, kind);
}

/// The method in names of spans: strings of clients would give them any number of names.
fn method_of(entry: &Entry<'_>) -> &'static str {
    let method = entry.request.map_or(&b""[..], |request| request.method);
    METHODS.into_iter().find(|known| known.as_bytes() == method).unwrap_or("HTTP")
}

fn method_attributes(span: &mut Vec<u8>, entry: &Entry<'_>, method: &str) {
    let Some(request) = entry.request else { return };
    if method == "HTTP" {
        text_attribute(span, ATTRIBUTES, "http.request.method", b"_OTHER");
        text_attribute(span, ATTRIBUTES, "http.request.method_original", request.method);
    } else {
        text_attribute(span, ATTRIBUTES, "http.request.method", method.as_bytes());
    }
}

/// The host and the port of an address such as `a.example:8080`, `[::1]:80` or `unix:/run/a`.
fn place(span: &mut Vec<u8>, address: &[u8]) {
    let colon = address.iter().rposition(|byte| *byte == b':');
    let port =
        colon.and_then(|at| core::str::from_utf8(&address[at + 1..]).ok()?.parse::<u16>().ok());
    let host = match (colon, port) {
        (Some(at), Some(_)) => &address[..at],
        _ => address.strip_prefix(b"unix:").unwrap_or(address),
    };
    let bare = host.strip_prefix(b"[").and_then(|host| host.strip_suffix(b"]")).unwrap_or(host);
    text_attribute(span, ATTRIBUTES, "server.address", bare);
    if let Some(port) = port {
        number_attribute(span, "server.port", port.into());
    }
}

/// The part before the first `mark`, and that after it.
fn split(text: &[u8], mark: u8) -> (&[u8], Option<&[u8]>) {
    match text.iter().position(|byte| *byte == mark) {
        Some(at) => (&text[..at], Some(&text[at + 1..])),
        None => (text, None),
    }
}

/// The field of a `Span` that contains an attribute.
const ATTRIBUTES: u32 = 9;

/// An attribute (`KeyValue`) with a string, as the field `number`. Bytes that are not UTF-8, which protobuf excludes, become U+FFFD.
fn text_attribute(out: &mut Vec<u8>, number: u32, name: &str, value: &[u8]) {
    let lossy;
    let value = match core::str::from_utf8(value) {
        Ok(_) => value,
        Err(_) => {
            lossy = String::from_utf8_lossy(value).into_owned();
            lossy.as_bytes()
        }
    };
    attribute(out, number, name, 1 + varint_bytes(value.len()) + value.len());
    bytes_field(out, 1, value);
}

fn number_attribute(out: &mut Vec<u8>, name: &str, value: u64) {
    attribute(out, ATTRIBUTES, name, 1 + varint_length(value));
    key(out, 3, VARINT);
    varint(out, value);
}

fn flag_attribute(out: &mut Vec<u8>, name: &str, value: bool) {
    attribute(out, ATTRIBUTES, name, 2);
    key(out, 2, VARINT);
    varint(out, value.into());
}

/// The beginning of an attribute whose value (`AnyValue`) has `bytes` bytes, which the caller appends.
fn attribute(out: &mut Vec<u8>, number: u32, name: &str, bytes: usize) {
    let name_bytes = 1 + varint_bytes(name.len()) + name.len();
    key(out, number, BYTES);
    varint(out, (name_bytes + 1 + varint_bytes(bytes) + bytes) as u64);
    bytes_field(out, 1, name.as_bytes());
    key(out, 2, BYTES);
    varint(out, bytes as u64);
}

fn bytes_field(out: &mut Vec<u8>, number: u32, bytes: &[u8]) {
    key(out, number, BYTES);
    varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn key(out: &mut Vec<u8>, number: u32, wire_type: u32) {
    varint(out, u64::from(number << 3 | wire_type));
}

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

const fn varint_length(value: u64) -> usize {
    (64 - (value | 1).leading_zeros() as usize).div_ceil(7)
}

const fn varint_bytes(length: usize) -> usize {
    varint_length(length as u64)
}

/// The fields of a message: the number, and the value or the bytes. Ends before a field that is malformed.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for at in 0..10 {
            let (byte, rest) = self.0.split_first()?;
            self.0 = rest;
            value |= u64::from(byte & 0x7f) << (7 * at);
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = (u32, u64, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let key = u32::try_from(self.varint()?).ok()?;
        let (value, length) = match key & 7 {
            VARINT => (self.varint()?, 0),
            FIXED64 => (0, 8),
            BYTES => (0, usize::try_from(self.varint()?).ok()?),
            FIXED32 => (0, 4),
            _ => return None,
        };
        let (bytes, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some((key >> 3, value, bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_the_length_that_is_stated() {
        for value in [0, 1, 127, 128, 16_383, 16_384, u64::from(u32::MAX), u64::MAX] {
            let mut out = Vec::new();
            varint(&mut out, value);
            assert_eq!(out.len(), varint_length(value), "{value}");
            assert_eq!(Fields(&out).varint(), Some(value));
        }
    }

    #[test]
    fn rejected_spans_are_read_from_a_response() {
        assert_eq!(rejected(b""), (0, String::new()));
        let mut partial = Vec::new();
        key(&mut partial, 1, VARINT);
        varint(&mut partial, 300);
        bytes_field(&mut partial, 2, b"full");
        let mut response = Vec::new();
        bytes_field(&mut response, 1, &partial);
        assert_eq!(rejected(&response), (300, "full".to_owned()));
        // A truncated response, and bytes of another format, are read up to the first malformed field.
        for end in 0..response.len() {
            let _ = rejected(&response[..end]);
        }
        assert_eq!(rejected(b"{\"partialSuccess\":{}}"), (0, String::new()));
    }
}
