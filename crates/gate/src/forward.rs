//! Forwards heads as an intermediary must: RFC 9110 sections 7.6 to 7.8, RFC 9112 section 3.2.
//! In: a decoded head and the context of its forwarding. Out: a canonical request head, appended to a buffer;
//! a response head, given to a sink; or a fault.
//! Never: copies framing fields, Host, Via or X-Forwarded-*; they are rewritten.
//! Limits: a request that has passed through this proxy `VIA_REPEATS_MAX` times is rejected as a loop.
//! Invariant: the appended head decodes to the same body length, and has no hop-by-hop field of the other
//! hop.

use core::net::IpAddr;
use std::io::Write;

use tidegate_base::limits::{HEADER_FIELDS_MAX, RESPONSE_FIELDS_MAX};
use tidegate_config::model::{Reuse, UpstreamHost};
use tidegate_wire::http1::{encode_field, encode_field_u64, encode_request_line};
use tidegate_wire::message::{
    BodyLength, CERTIFICATE_CLAIM, FORWARDING_CLAIM, Field, FieldName, Fields, Method, RequestHead,
    ResponseHead, ResponseSink, Version, is_claim,
};
use tidegate_wire::websocket::ClientKey;

use crate::chain::{self, Node, Stated};
use crate::changes::Changes;
use crate::client_fields::ClientAddressFields;
use crate::framing::encode_length;
use crate::scheme::Scheme;
use crate::sticky;
use crate::template::{PlaceFault, check_path, render_path};

/// A request is considered a loop if `Via` contains this proxy's name this many times (RFC 9110 section 7.6
/// requires protection against loops). A legitimate chain of proxies that share the default name is shorter.
pub const VIA_REPEATS_MAX: usize = 8;

/// The approximate size of the fields that the proxy adds to a head.
const ADDED_BYTES: usize = 512;

/// The context of forwarding a request.
#[derive(Clone, Copy, Debug)]
pub struct RequestContext<'a> {
    /// The client's address; `None` for a unix socket.
    pub peer: Option<IpAddr>,
    /// The client's X-Forwarded-* and Forwarded fields are trusted.
    pub trusted: bool,
    /// Fields that are forwarded only if they are trusted, and lookalikes of fields in conditions.
    pub client_address_fields: &'a ClientAddressFields,
    /// The scheme of the client's connection.
    pub scheme: Scheme,
    /// The client's verified certificate. Its fields replace received ones.
    pub client_certificate: Option<ClientCertificate<'a>>,
    /// This proxy's name in `Via`. No entry is added if it is empty.
    pub via: &'a str,
    /// The Host field for the server.
    pub host: &'a UpstreamHost,
    /// Trailer fields of the request are forwarded to the server.
    pub trailers: bool,
    /// The upstream connection ends after the response, so the request contains `Connection: close`.
    pub close: bool,
    /// The key for the server of an extended CONNECT (RFC 8441), whose request has none.
    pub websocket_key: Option<ClientKey>,
    /// The changes of the route; `None` for most routes.
    pub changes: Option<Changes<'a>>,
}

/// A client's verified certificate, as it is forwarded to servers.
#[derive(Clone, Copy, Debug)]
pub enum ClientCertificate<'a> {
    /// A certificate that this process verified.
    Verified {
        /// The subject (RFC 4514, printable ASCII), sent as `X-Client-Cert-Subject`.
        subject: &'a str,
        /// The SHA-256 fingerprint in hexadecimal digits, sent as `X-Client-Cert-Sha256`.
        fingerprint: &'a str,
    },
    /// A certificate that a proxy in front verified. Only the subject's common name is known (printable
    /// ASCII), which identifies neither the issuer nor a single certificate. Sent as `X-Client-Cert-Cn`.
    VerifiedInFront {
        /// The common name.
        common_name: &'a str,
    },
}

/// Why a request is not forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForwardFault {
    /// OPTIONS or TRACE whose Max-Forwards is 0. The proxy must answer the request itself
    /// (`respond::encode_final_recipient`), whether or not a server is available.
    AnswerHere,
    /// OPTIONS or TRACE whose Max-Forwards is not a number or occurs twice.
    MaxForwardsInvalid,
    /// The request has passed through this proxy [`VIA_REPEATS_MAX`] times.
    Loop,
    /// A value of the request cannot be placed where the route places it.
    Value(PlaceFault),
}

impl ForwardFault {
    /// The status of the response.
    #[must_use]
    pub const fn status(self) -> u16 {
        match self {
            Self::AnswerHere => 200,
            Self::MaxForwardsInvalid => 400,
            Self::Loop => 508,
            Self::Value(fault) => fault.status(),
        }
    }

    /// The text of the response.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::AnswerHere => "",
            Self::MaxForwardsInvalid => "Max-Forwards must be a single number",
            Self::Loop => "the request passed through this proxy too many times",
            Self::Value(fault) => fault.text(),
        }
    }
}

/// Appends the request head for the server: the request line, the fields and the empty line.
///
/// - The target is in origin form (or `*`), and the version is HTTP/1.1.
/// - Host is the first field and occurs once. Fields of the client's hop are omitted: Connection and the
///   fields that it names, Keep-Alive, Proxy-Connection, Proxy-Authorization, TE, Transfer-Encoding, Upgrade.
/// - One framing field is written from the decoded length. `TE: trailers` and an upgrade are requested from
///   the server if the client requested them.
/// - Via is extended. Max-Forwards of OPTIONS and TRACE is decremented.
/// - X-Forwarded-For, -Host, -Proto and Forwarded are extended for trusted clients and replaced for other
///   clients, whose other X-Forwarded-* fields are omitted.
///
/// A Connection field cannot remove the fields that are rewritten: Host, framing, Via, Max-Forwards,
/// Forwarded and X-Forwarded-*. All other fields that it names are omitted, as RFC 9110 section 7.6.1
/// requires.
///
/// A route may change the path and edit fields. Edits apply last: a set field replaces the received field and the field that the
/// proxy adds (Forwarded, X-Forwarded-*).
///
/// # Errors
/// The request must not be forwarded. The bytes appended so far must be discarded.
pub fn encode_upstream_request(
    out: &mut Vec<u8>,
    head: &RequestHead<'_>,
    context: &RequestContext<'_>,
) -> Result<(), ForwardFault> {
    let max_forwards = max_forwards(head)?;
    if is_loop(head, context.via) {
        return Err(ForwardFault::Loop);
    }
    let nominated = Nominated::new(head.fields(), head.has(FieldName::Connection));
    out.reserve(head.target.len() + ADDED_BYTES);
    encode_target_line(out, head, context.changes)?;
    encode_host(out, head, context);
    for (index, field) in head.fields().enumerate() {
        let proven = context.client_certificate.is_some();
        let replaced = proven && is_claim(field.name, CERTIFICATE_CLAIM)
            || context.changes.is_some_and(|changes| changes.drops(field.name));
        if passes_upstream(&field, head, context) && !nominated.has(index) && !replaced {
            encode_field(out, field.name, field.value);
        }
    }
    encode_length(out, upstream_length(head));
    if let Some(hops) = max_forwards {
        encode_field_u64(out, "Max-Forwards", hops);
    }
    if head.expect_continue && has_body(head.length) {
        out.extend_from_slice(b"Expect: 100-continue\r\n");
    }
    encode_hop_fields(out, head, context.close);
    if let Some(key) = &context.websocket_key {
        encode_field(out, "Sec-WebSocket-Key", key.as_bytes());
    }
    encode_via_field(out, head, context.via);
    encode_forwarded(out, head, context);
    match context.client_certificate {
        Some(ClientCertificate::Verified { subject, fingerprint }) => {
            encode_field(out, "X-Client-Cert-Subject", subject.as_bytes());
            encode_field(out, "X-Client-Cert-Sha256", fingerprint.as_bytes());
        }
        Some(ClientCertificate::VerifiedInFront { common_name }) => {
            encode_field(out, "X-Client-Cert-Cn", common_name.as_bytes());
        }
        None => {}
    }
    if let Some(changes) = context.changes {
        changes.encode_fields(out).map_err(ForwardFault::Value)?;
    }
    out.extend_from_slice(b"\r\n");
    Ok(())
}

/// Whether the connection to a server may carry another request after this one, as far as the body of this one matters.
#[must_use]
pub fn leaves_reusable(head: &RequestHead<'_>, reuse: &Reuse) -> bool {
    (reuse.after_body || !has_body(upstream_length(head)))
        && (reuse.after_unexpected_body || !has_unexpected_body(head))
}

/// Whether the request has a body that a server may leave unread, because its method is not one of those whose meaning
/// is in the body: POST, PUT and PATCH (RFC 9110 sections 9.3.3 and 9.3.4, RFC 5789). A server that keeps its connection
/// open may take such a body for the next request, so the connection must not carry another request.
#[must_use]
pub fn has_unexpected_body(head: &RequestHead<'_>) -> bool {
    let expects_body = match head.method {
        Method::Post | Method::Put | Method::Patch => true,
        Method::Get
        | Method::Head
        | Method::Delete
        | Method::Options
        | Method::Trace
        | Method::Connect
        | Method::Other(_) => false,
    };
    !expects_body && has_body(upstream_length(head))
}

/// The length of the body as the server gets it. The bytes after an extended CONNECT are not a body (RFC 8441 section 5).
#[must_use]
pub const fn upstream_length(head: &RequestHead<'_>) -> BodyLength {
    if head.protocol.is_some() { BodyLength::None } else { head.length }
}

/// Whether the request's Upgrade field is forwarded, so that a server may answer with 101: it names a
/// protocol other than HTTP or TLS. Those two would bypass the proxy's routes and rules.
#[must_use]
pub fn forwards_upgrade(head: &RequestHead<'_>) -> bool {
    head.upgrade && (head.protocol.is_some() || upgrades(head).next().is_some())
}

/// Whether a 101 response switches to a requested protocol (RFC 9110 section 7.8). `request` begins with the
/// head that [`encode_upstream_request`] appended.
#[must_use]
pub fn switches_as_requested(request: &[u8], head: &ResponseHead<'_>) -> bool {
    let mut lines = request.split(|&byte| byte == b'\n').take_while(|line| *line != b"\r");
    let asked = lines.find_map(|line| line.strip_prefix(b"Upgrade: "));
    let Some(asked) = asked else { return false };
    let name = |protocol: &[u8]| {
        let protocol = protocol.trim_ascii();
        let end = protocol.iter().position(|&byte| byte == b'/').unwrap_or(protocol.len());
        protocol.get(..end).unwrap_or_default().to_ascii_lowercase()
    };
    elements(head.fields(), FieldName::Upgrade).all(|protocol| {
        asked.split(|&byte| byte == b',').any(|asked| name(asked) == name(protocol))
    })
}

/// Whether Connection names a field that must not be forwarded (RFC 9110 section 7.6.1). The field must not be
/// forwarded as a trailer either, so such a message is forwarded without its trailers. The usual options of Connection (such as close
/// and keep-alive) do not count, because they are never trailers.
#[must_use]
pub fn names_fields(fields: Fields<'_>, has_connection: bool) -> bool {
    has_connection && nominations(fields).next().is_some()
}

/// The context of forwarding a response.
#[derive(Clone, Copy, Debug)]
pub struct ResponseContext<'a> {
    /// The current date, for responses without a Date field (RFC 9110 section 6.6.1).
    pub date: &'a [u8; 29],
    /// This proxy's name in `Via`. No entry is added if it is empty.
    pub via: &'a str,
    /// The request's method is HEAD.
    pub request_is_head: bool,
    /// The value of a Set-Cookie field to add; empty: none.
    pub cookie: &'a str,
}

/// Gives the final response head to the client's sink. Fields of the server's hop are omitted as for
/// requests. A body that ends with the server's connection is `Streamed` to the client. In a response without
/// a body, the server's Content-Length is kept if it has the length of the response to GET (HEAD, 304).
pub fn encode_downstream_response(
    sink: &mut impl ResponseSink,
    head: &ResponseHead<'_>,
    context: &ResponseContext<'_>,
) {
    let length = match head.length {
        BodyLength::None if sink.ends_with_head() => BodyLength::None,
        _ => downstream_length(head, context.request_is_head),
    };
    sink.begin(head.status, head.reason);
    let trailers = sink.takes_trailers()
        && (length == BodyLength::Streamed
            || sink.ends_with_head() && admits_trailers(head.version, length));
    match context.cookie {
        "" => encode_response_fields(sink, head, trailers, |_| true),
        cookie => {
            encode_response_fields(sink, head, trailers, |field| !sticky::sets_same(field, cookie))
        }
    }
    if !head.has(FieldName::Date) {
        sink.field("Date", context.date);
    }
    if !context.cookie.is_empty() && !sticky::is_shared(head) {
        sink.field("Set-Cookie", context.cookie.as_bytes());
    }
    if length == BodyLength::None
        && let Some(stated) = stated_length(head, context.request_is_head)
    {
        sink.field_u64("Content-Length", stated);
    }
    sink.length(length);
    sink.field_with("Via", |out| encode_via(out, head.fields(), head.version, context.via));
    if head.status == 426
        && let Some(protocols) = head.find(FieldName::Upgrade)
    {
        // RFC 9110 section 15.5.22: 426 names the required protocols.
        sink.switch(core::iter::once(protocols));
    }
    sink.end();
}

/// The length of a response's body as it is announced to a client of HTTP/1. An HTTP/2 response may end with its head without
/// an announced length, but HTTP/1 requires a length if the method and the status admit a body (RFC 9110 section 6.4.1).
#[must_use]
pub const fn downstream_length(head: &ResponseHead<'_>, request_is_head: bool) -> BodyLength {
    let admits_body = !request_is_head && !matches!(head.status, 100..=199 | 204 | 304);
    match head.length {
        BodyLength::UntilClose => BodyLength::Streamed,
        BodyLength::None if admits_body => BodyLength::Length(0),
        length => length,
    }
}

/// Gives an interim response (1xx) to the client's sink, including 101 with its Upgrade field. The caller
/// must not relay it to an HTTP/1.0 client (RFC 9110 section 15.2), and 101 only if [`forwards_upgrade`] was
/// true for the request.
pub fn encode_interim(sink: &mut impl ResponseSink, head: &ResponseHead<'_>, via: &str) {
    sink.begin(head.status, head.reason);
    encode_response_fields(sink, head, false, |_| true);
    sink.field_with("Via", |out| encode_via(out, head.fields(), head.version, via));
    if head.status == 101 {
        let upgrades = head.fields().filter(|field| field.id == FieldName::Upgrade);
        sink.switch(upgrades.map(|field| field.value));
    }
    sink.end();
}

/// The value of Max-Forwards to forward; `None` if the field does not apply (RFC 9110 section 7.6.2).
fn max_forwards(head: &RequestHead<'_>) -> Result<Option<u64>, ForwardFault> {
    if !head.has(FieldName::MaxForwards) || !matches!(head.method, Method::Options | Method::Trace)
    {
        return Ok(None);
    }
    let mut fields = head.fields().filter(|field| field.id == FieldName::MaxForwards);
    let (Some(field), None) = (fields.next(), fields.next()) else {
        return Err(ForwardFault::MaxForwardsInvalid);
    };
    if field.value.is_empty() || !field.value.iter().all(u8::is_ascii_digit) {
        return Err(ForwardFault::MaxForwardsInvalid);
    }
    // A number of hops that exceeds the type is treated as the largest number of the type.
    let hops = core::str::from_utf8(field.value).unwrap_or_default();
    match hops.parse::<u64>().unwrap_or(u64::MAX).checked_sub(1) {
        Some(left) => Ok(Some(left)),
        None => Err(ForwardFault::AnswerHere),
    }
}

fn is_loop(head: &RequestHead<'_>, via: &str) -> bool {
    if via.is_empty() || !head.has(FieldName::Via) {
        return false;
    }
    let fields = head.fields().filter(|field| field.id == FieldName::Via);
    let members = fields.flat_map(|field| field.value.split(|&byte| byte == b','));
    let ours = members.filter(|member| {
        let mut words = member.split(|&byte| byte == b' ' || byte == b'\t');
        let mut words = words.by_ref().filter(|word| !word.is_empty());
        words.nth(1).is_some_and(|name| name.eq_ignore_ascii_case(via.as_bytes()))
    });
    ours.count() >= VIA_REPEATS_MAX
}

/// Appends the request line, with the target in origin form (RFC 9112 section 3.2.1) or `*` (section 3.2.4).
fn encode_target_line(
    out: &mut Vec<u8>,
    head: &RequestHead<'_>,
    changes: Option<Changes<'_>>,
) -> Result<(), ForwardFault> {
    // "*" names no resource that could have another path.
    let rewritten = changes.filter(|_| head.path != "*");
    let path = rewritten.and_then(|changes| Some((changes.path?, changes.values)));
    let has_new_path = changes.is_some_and(|changes| changes.has_new_path());
    if path.is_none() && head.query.is_none() && !has_new_path {
        encode_request_line(out, head.routed_method().as_str(), head.path);
        return Ok(());
    }
    out.extend_from_slice(head.routed_method().as_str().as_bytes());
    out.push(b' ');
    match path {
        Some((template, values)) => {
            render_path(out, template, values).map_err(ForwardFault::Value)?;
        }
        // A script may have built the path from values of the request.
        None if has_new_path => {
            check_path(head.path).map_err(ForwardFault::Value)?;
            out.extend_from_slice(head.path.as_bytes());
        }
        None => out.extend_from_slice(head.path.as_bytes()),
    }
    if let Some(query) = head.query {
        out.push(b'?');
        out.extend_from_slice(query.as_bytes());
    }
    out.extend_from_slice(b" HTTP/1.1\r\n");
    Ok(())
}

/// Appends Host. It is sent with an empty value if the request has no authority (RFC 9112 section 3.2).
fn encode_host(out: &mut Vec<u8>, head: &RequestHead<'_>, context: &RequestContext<'_>) {
    let host = match context.host {
        UpstreamHost::Keep => head.host.unwrap_or_default(),
        UpstreamHost::Replace(host) => host.as_str(),
    };
    encode_field(out, "Host", host.as_bytes());
}

/// Whether the field is forwarded unchanged. Other fields are dropped or rewritten.
fn passes_upstream(
    field: &Field<'_>,
    head: &RequestHead<'_>,
    context: &RequestContext<'_>,
) -> bool {
    match field.id {
        FieldName::Connection
        | FieldName::ContentLength
        | FieldName::Forwarded
        | FieldName::FramingLookalike
        | FieldName::Host
        | FieldName::Http2Settings
        | FieldName::KeepAlive
        | FieldName::ProxyAuthorization
        | FieldName::ProxyConnection
        | FieldName::Te
        | FieldName::TransferEncoding
        | FieldName::Upgrade
        | FieldName::Via
        | FieldName::XForwardedFor
        | FieldName::XForwardedHost
        | FieldName::XForwardedProto => false,
        // The field announces trailers, so it is forwarded only if trailers may follow.
        FieldName::Trailer => context.trailers && admits_trailers(head.version, head.length),
        FieldName::MaxForwards => !matches!(head.method, Method::Options | Method::Trace),
        // HTTP/1.0 has no expectations (RFC 9110 section 10.1.1).
        FieldName::Expect => !head.expect_continue && head.version > Version::Http10,
        FieldName::XForwardedPort => context.trusted,
        // RFC 8441 section 5: the server gets a key of this hop.
        FieldName::Other if head.protocol.is_some() && field.name == "sec-websocket-key" => false,
        _ => {
            let states_client = is_claim(field.name, FORWARDING_CLAIM)
                || is_claim(field.name, CERTIFICATE_CLAIM)
                || context.client_address_fields.contains(field.name);
            // No proxy writes these names with `_`, so a trusted proxy has forwarded such a field from its client.
            let is_admitted = !states_client || context.trusted && !field.name.contains('_');
            is_admitted && !context.client_address_fields.is_lookalike(field.name)
        }
    }
}

/// Whether trailers may follow a body of this length. In HTTP/2 they may follow although the length is announced.
fn admits_trailers(version: Version, length: BodyLength) -> bool {
    match version {
        Version::Http2 => length != BodyLength::None,
        Version::Http10 | Version::Http11 => length == BodyLength::Streamed,
    }
}

fn has_body(length: BodyLength) -> bool {
    !matches!(length, BodyLength::None | BodyLength::Length(0))
}

/// Appends the fields of the upstream hop: close, `TE: trailers` and an upgrade, each listed in Connection
/// (RFC 9110 sections 7.6.1, 7.8 and 10.1.4, RFC 9112 section 9.6).
fn encode_hop_fields(out: &mut Vec<u8>, head: &RequestHead<'_>, close: bool) {
    let trailers = head.has(FieldName::Te)
        && head.version > Version::Http10
        && elements(head.fields(), FieldName::Te)
            .any(|coding| coding.eq_ignore_ascii_case(b"trailers"));
    let upgrade = forwards_upgrade(head);
    let options: &[u8] = match (upgrade, trailers, close) {
        (false, false, false) => return,
        (true, false, false) => b"upgrade",
        (false, true, false) => b"TE",
        (true, true, false) => b"upgrade, TE",
        (false, false, true) => b"close",
        (true, false, true) => b"close, upgrade",
        (false, true, true) => b"close, TE",
        (true, true, true) => b"close, upgrade, TE",
    };
    encode_field(out, "Connection", options);
    if trailers {
        out.extend_from_slice(b"TE: trailers\r\n");
    }
    if upgrade {
        out.extend_from_slice(b"Upgrade: ");
        out.extend_from_slice(head.protocol.unwrap_or_default().as_bytes());
        for (index, protocol) in upgrades(head).enumerate() {
            if index > 0 {
                out.extend_from_slice(b", ");
            }
            out.extend_from_slice(protocol);
        }
        out.extend_from_slice(b"\r\n");
    }
}

/// The requested protocols that a client may upgrade to through the proxy.
fn upgrades<'a>(head: &RequestHead<'a>) -> impl Iterator<Item = &'a [u8]> {
    elements(head.fields(), FieldName::Upgrade).filter(|protocol| {
        let name = protocol.split(|&byte| byte == b'/').next().unwrap_or_default();
        let ours: [&[u8]; 4] = [b"h2c", b"h2", b"http", b"tls"];
        !name.is_empty() && !ours.iter().any(|ours| name.eq_ignore_ascii_case(ours))
    })
}

/// The members of a list field, from all its field lines (RFC 9110 section 5.6.1).
fn elements(fields: Fields<'_>, id: FieldName) -> impl Iterator<Item = &[u8]> {
    fields
        .filter(move |field| field.id == id)
        .flat_map(|field| field.value.split(|&byte| byte == b','))
        .map(<[u8]>::trim_ascii)
        .filter(|element| !element.is_empty())
}

/// The names in Connection other than its usual options.
fn nominations(fields: Fields<'_>) -> impl Iterator<Item = &[u8]> {
    const USUAL: [&[u8]; 4] = [b"keep-alive", b"close", b"upgrade", b"te"];
    elements(fields, FieldName::Connection)
        .filter(|element| !USUAL.iter().any(|usual| element.eq_ignore_ascii_case(usual)))
}

/// The fields of a head that Connection names (RFC 9110 section 7.6.1), one bit for each field.
struct Nominated([u64; FIELDS_MAX / 64]);

/// Maximum number of fields of a head in either direction.
const FIELDS_MAX: usize = RESPONSE_FIELDS_MAX;
const _: () = assert!(HEADER_FIELDS_MAX <= FIELDS_MAX && FIELDS_MAX.is_multiple_of(64));

impl Nominated {
    /// Usually Connection names no field that would be forwarded, and this function does almost nothing.
    /// Otherwise names are looked up by hash, because comparing each name with each field would take
    /// milliseconds for a head of 16 KiB.
    fn new(fields: Fields<'_>, has_connection: bool) -> Self {
        let mut nominated = Self([0; FIELDS_MAX / 64]);
        if !has_connection {
            return nominated;
        }
        let mut hashes = None;
        for element in nominations(fields.clone()) {
            let hashes = hashes.get_or_insert_with(|| NameHashes::new(fields.clone()));
            nominated.insert_all(hashes.find(element));
        }
        nominated
    }

    /// Adds all fields of a name. If the first of them is in the set already, all of them are, so a Connection field that
    /// repeats a name thousands of times costs no more than its own length.
    fn insert_all(&mut self, fields: &[(u64, u16)]) {
        if fields.first().is_some_and(|&(_, index)| self.has(usize::from(index))) {
            return;
        }
        for &(_, index) in fields {
            if let Some(word) = self.0.get_mut(usize::from(index) / 64) {
                *word |= 1 << (index % 64);
            }
        }
    }

    fn has(&self, index: usize) -> bool {
        self.0.get(index / 64).is_some_and(|word| word >> (index % 64) & 1 == 1)
    }
}

/// The hashes of a head's field names, sorted, with the fields' indexes.
struct NameHashes {
    sorted: [(u64, u16); FIELDS_MAX],
    count: usize,
}

impl NameHashes {
    fn new(fields: Fields<'_>) -> Self {
        let mut sorted = [(0, 0); FIELDS_MAX];
        let mut count = 0;
        for ((place, field), index) in sorted.iter_mut().zip(fields).zip(0_u16..) {
            *place = (hash_lower(field.name.as_bytes()), index);
            count += 1;
        }
        let mut hashes = Self { sorted, count };
        hashes.sorted[..count].sort_unstable();
        hashes
    }

    /// The entries of the fields with that name. If two names have the same hash, both fields are omitted. A
    /// client that constructs such a pair affects only its own request.
    fn find(&self, name: &[u8]) -> &[(u64, u16)] {
        let hash = hash_lower(name);
        let hashes = &self.sorted[..self.count];
        let start = hashes.partition_point(|entry| entry.0 < hash);
        let count = hashes[start..].iter().take_while(|entry| entry.0 == hash).count();
        &hashes[start..start + count]
    }
}

fn hash_lower(name: &[u8]) -> u64 {
    name.iter().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(byte.to_ascii_lowercase())).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// Appends the Via field of a request; nothing if it would be empty.
fn encode_via_field(out: &mut Vec<u8>, head: &RequestHead<'_>, via: &str) {
    let start = out.len();
    out.extend_from_slice(b"Via: ");
    let empty = out.len();
    encode_via(out, head.fields(), head.version, via);
    if out.len() > empty {
        out.extend_from_slice(b"\r\n");
    } else {
        out.truncate(start);
    }
}

/// Appends the value of Via: the received entries, then this proxy with the received HTTP version (RFC 9110
/// section 7.6.3).
pub(crate) fn encode_via<'a>(
    out: &mut Vec<u8>,
    fields: impl Iterator<Item = Field<'a>>,
    version: Version,
    via: &str,
) {
    let empty = out.len();
    for field in fields.filter(|field| field.id == FieldName::Via && !field.value.is_empty()) {
        if out.len() > empty {
            out.extend_from_slice(b", ");
        }
        out.extend_from_slice(field.value);
    }
    if !via.is_empty() {
        if out.len() > empty {
            out.extend_from_slice(b", ");
        }
        out.extend_from_slice(version.number().as_bytes());
        out.push(b' ');
        out.extend_from_slice(via.as_bytes());
    }
}

/// Appends X-Forwarded-For, -Host and -Proto, and Forwarded (RFC 7239). Both forms state the same chain: if a trusted proxy sent
/// only one form, the other one is built from it; if the two contradict each other, Forwarded is built from X-Forwarded-For.
fn encode_forwarded(out: &mut Vec<u8>, head: &RequestHead<'_>, context: &RequestContext<'_>) {
    let stated = if context.trusted { Stated::of(head) } else { Stated::Nothing };
    let peer = context.peer.map(|address| address.to_canonical());
    let peer_node = peer.map_or(Node::Unknown, Node::Address);
    let has_forwarded = matches!(stated, Stated::ForwardedOnly | Stated::Both);
    let host = stated_host(head, context, has_forwarded).or(head.host.map(str::as_bytes));
    let proto = stated_proto(head, context, has_forwarded);
    let proto = proto.unwrap_or(context.scheme.as_str().as_bytes());
    let drops = |name: &str| context.changes.is_some_and(|changes| changes.drops(name));

    let start = out.len();
    let mut list = List::new(out, b"X-Forwarded-For: ");
    match stated {
        Stated::Nothing => {}
        Stated::XForwardedForOnly | Stated::Both => {
            for value in received(head, context, FieldName::XForwardedFor) {
                list.next().extend_from_slice(value);
            }
        }
        Stated::ForwardedOnly => {
            chain::forwarded_nodes(head).for_each(|node| encode_list_node(list.next(), node));
        }
    }
    // A unix socket has no address. It is written as `unknown` if other nodes precede it, and omitted otherwise.
    if peer.is_some() || stated != Stated::Nothing {
        encode_list_node(list.next(), peer_node);
    }
    list.end();
    if drops("x-forwarded-for") {
        out.truncate(start);
    }
    // These two are not lists. The value of the proxy in front is closer to the client, so it is kept.
    if let Some(host) = host.filter(|_| !drops("x-forwarded-host")) {
        encode_field(out, "X-Forwarded-Host", host);
    }
    if !drops("x-forwarded-proto") {
        encode_field(out, "X-Forwarded-Proto", proto);
    }
    if drops("forwarded") {
        return;
    }

    let mut list = List::new(out, b"Forwarded: ");
    match stated {
        // The first element describes the request of the client.
        Stated::Nothing => {
            encode_forwarded_element(list.next(), peer_node, host, Some(proto));
            return list.end();
        }
        Stated::XForwardedForOnly => {
            for (index, node) in chain::list_nodes(head).enumerate() {
                let of_first = |value| if index == 0 { value } else { None };
                let host = of_first(stated_host(head, context, false));
                let proto = of_first(stated_proto(head, context, false));
                encode_forwarded_element(list.next(), node, host, proto);
            }
        }
        Stated::ForwardedOnly | Stated::Both => {
            for value in received(head, context, FieldName::Forwarded) {
                list.next().extend_from_slice(value);
            }
        }
    }
    let host = head.host.map(str::as_bytes);
    let proto = context.scheme.as_str().as_bytes();
    encode_forwarded_element(list.next(), peer_node, host, Some(proto));
    list.end();
}

/// The values of a field, if the client is trusted.
fn received<'a>(
    head: &RequestHead<'a>,
    context: &RequestContext<'_>,
    id: FieldName,
) -> impl Iterator<Item = &'a [u8]> + use<'a> {
    let counts = context.trusted && head.has(id);
    let values = head.fields().filter(move |field| counts && field.id == id);
    values.map(|field| field.value).filter(|value| !value.is_empty())
}

/// The host that a trusted proxy reports.
fn stated_host<'a>(
    head: &RequestHead<'a>,
    context: &RequestContext<'_>,
    has_forwarded: bool,
) -> Option<&'a [u8]> {
    received(head, context, FieldName::XForwardedHost).next().or_else(|| {
        let host = if has_forwarded { chain::first_parameter(head, b"host") } else { None };
        host.filter(|host| !host.is_empty() && !host.contains(&b'\\'))
    })
}

/// The scheme that a trusted proxy reports.
fn stated_proto<'a>(
    head: &RequestHead<'a>,
    context: &RequestContext<'_>,
    has_forwarded: bool,
) -> Option<&'a [u8]> {
    received(head, context, FieldName::XForwardedProto).next().or_else(|| {
        let proto = if has_forwarded { chain::first_parameter(head, b"proto") } else { None };
        proto.filter(|proto| is_scheme(proto))
    })
}

/// Whether `text` is the name of a scheme (RFC 3986 section 3.1).
fn is_scheme(text: &[u8]) -> bool {
    text.first().is_some_and(u8::is_ascii_alphabetic)
        && text.iter().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(byte))
}

/// Writes a list field; writes nothing if the list has no element.
struct List<'o> {
    out: &'o mut Vec<u8>,
    name: &'static [u8],
    is_begun: bool,
}

impl<'o> List<'o> {
    fn new(out: &'o mut Vec<u8>, name: &'static [u8]) -> Self {
        Self { out, name, is_begun: false }
    }

    /// The buffer, after the separator of the next element.
    fn next(&mut self) -> &mut Vec<u8> {
        self.out.extend_from_slice(if self.is_begun { b", " } else { self.name });
        self.is_begun = true;
        self.out
    }

    fn end(self) {
        if self.is_begun {
            self.out.extend_from_slice(b"\r\n");
        }
    }
}

/// Appends an element of X-Forwarded-For.
fn encode_list_node(out: &mut Vec<u8>, node: Node) {
    match node {
        Node::Address(address) => encode_address(out, address),
        Node::Unknown => out.extend_from_slice(b"unknown"),
    }
}

/// Appends `for=...;host="...";proto=...` (RFC 7239 sections 4 to 6). Of a list of schemes, the first counts.
fn encode_forwarded_element(
    out: &mut Vec<u8>,
    node: Node,
    host: Option<&[u8]>,
    proto: Option<&[u8]>,
) {
    let is_quoted = matches!(node, Node::Address(IpAddr::V6(_)));
    out.extend_from_slice(if is_quoted { b"for=\"[" } else { b"for=" });
    encode_list_node(out, node);
    if is_quoted {
        out.extend_from_slice(b"]\"");
    }
    // The host is quoted because a port requires quotes. A valid host contains no quote or backslash.
    if let Some(host) = host.filter(|host| !host.iter().any(|byte| b"\"\\".contains(byte))) {
        out.extend_from_slice(b";host=\"");
        out.extend_from_slice(host);
        out.push(b'"');
    }
    let proto = proto.and_then(|proto| proto.split(|&byte| byte == b',').next());
    if let Some(proto) = proto.map(<[u8]>::trim_ascii).filter(|proto| is_scheme(proto)) {
        out.extend_from_slice(b";proto=");
        out.extend_from_slice(proto);
    }
}

fn encode_address(out: &mut Vec<u8>, address: IpAddr) {
    match address {
        IpAddr::V4(address) => {
            let mut number = itoa::Buffer::new();
            for (index, octet) in address.octets().into_iter().enumerate() {
                if index > 0 {
                    out.push(b'.');
                }
                out.extend_from_slice(number.format(octet).as_bytes());
            }
        }
        IpAddr::V6(address) => {
            // Writing into a vector cannot fail.
            let written = write!(out, "{address}");
            debug_assert!(written.is_ok());
        }
    }
}

/// Gives the sink the fields that are forwarded unchanged and for which `wanted` is true. `trailers`: trailer fields may
/// follow the body.
pub(crate) fn encode_response_fields(
    sink: &mut impl ResponseSink,
    head: &ResponseHead<'_>,
    trailers: bool,
    wanted: impl Fn(&Field<'_>) -> bool,
) {
    let nominated = Nominated::new(head.fields(), head.has(FieldName::Connection));
    for (index, field) in head.fields().enumerate() {
        let passes = match field.id {
            FieldName::Connection
            | FieldName::ContentLength
            | FieldName::FramingLookalike
            | FieldName::KeepAlive
            | FieldName::ProxyAuthenticate
            | FieldName::ProxyAuthenticationInfo
            | FieldName::ProxyConnection
            | FieldName::Te
            | FieldName::TransferEncoding
            | FieldName::Upgrade
            | FieldName::Via => false,
            FieldName::Trailer => trailers,
            // Caches in front need Date, so a Connection field cannot remove it.
            FieldName::Date => {
                sink.received(&field);
                false
            }
            _ => true,
        };
        if passes && !nominated.has(index) && wanted(&field) {
            sink.received(&field);
        }
    }
}

/// The server's Content-Length in a response without a body, if it has the length of the response to GET
/// (RFC 9110 section 8.6): in responses to HEAD, and in 304.
fn stated_length(head: &ResponseHead<'_>, request_is_head: bool) -> Option<u64> {
    let may_state = head.status == 304 || (request_is_head && !matches!(head.status, 204 | 205));
    head.content_length.filter(|_| may_state)
}
