//! Heads passed on, as an intermediary must: RFC 9110 sections 7.6 to 7.8, RFC 9112 section 3.2.
//! In: a decoded head and what it is passed on with. Out: a canonical head, appended, or a fault.
//! Never: passes framing, Host, Via or X-Forwarded-* on as they came; they are written anew.
//! Limits: `VIA_REPEATS_MAX` times through this server, then it is a loop.
//! Invariant: what is appended decodes to the same body length and has no field of the other hop.

use core::net::IpAddr;
use std::io::Write;

use tidegate_base::limits::HEADER_FIELDS_MAX;
use tidegate_config::model::UpstreamHost;
use tidegate_wire::http1::{
    BodyLength, CERTIFICATE_CLAIM, FORWARDING_CLAIM, Field, FieldName, Fields, Method, RequestHead,
    ResponseHead, Version, encode_field, encode_field_u64, encode_request_line, encode_status_line,
    is_claim,
};

use crate::respond::{HSTS, encode_connection};
use crate::scheme::Scheme;

/// How often `Via` may name this server before a request is taken to go round in circles (RFC 9110
/// section 7.6 asks for protection); a chain of servers that share the default name is shorter.
pub const VIA_REPEATS_MAX: usize = 8;

/// Room that the fields of our own take in a head, about.
const ADDED_BYTES: usize = 512;

/// What a request is passed on with.
#[derive(Clone, Copy, Debug)]
pub struct RequestContext<'a> {
    /// The client's address; `None` on a unix socket.
    pub peer: Option<IpAddr>,
    /// The client is one whose X-Forwarded-* and Forwarded fields are believed.
    pub trusted: bool,
    /// How the client's connection came.
    pub scheme: Scheme,
    /// The certificate that the client proved to have; its fields replace any that came.
    pub client_certificate: Option<ClientCertificate<'a>>,
    /// This server's name in `Via`; empty: none is added.
    pub via: &'a str,
    /// What the server sees as Host.
    pub host: &'a UpstreamHost,
    /// The server receives the request's trailer fields.
    pub trailers: bool,
    /// The server's connection ends after its response: the request says `Connection: close`.
    pub close: bool,
}

/// Who a client proved to be, as servers are told.
#[derive(Clone, Copy, Debug)]
pub enum ClientCertificate<'a> {
    /// By a certificate that was verified here.
    Verified {
        /// Its subject (RFC 4514, printable ASCII): `X-Client-Cert-Subject`.
        subject: &'a str,
        /// SHA-256 of it in hexadecimal digits: `X-Client-Cert-Sha256`.
        fingerprint: &'a str,
    },
    /// By one that a proxy in front verified. Of it only the subject's common name is known (printable
    /// ASCII), which names neither an issuer nor one certificate: `X-Client-Cert-Cn`.
    VerifiedInFront {
        /// The common name.
        common_name: &'a str,
    },
}

/// Why a request is not passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForwardFault {
    /// OPTIONS or TRACE whose Max-Forwards is 0: it is to be answered here
    /// (`respond::encode_final_recipient`), whether or not there is a server.
    AnswerHere,
    /// OPTIONS or TRACE whose Max-Forwards is not a number, or is there twice.
    MaxForwardsInvalid,
    /// The request has been here [`VIA_REPEATS_MAX`] times.
    Loop,
}

impl ForwardFault {
    /// The status that answers it.
    #[must_use]
    pub const fn status(self) -> u16 {
        match self {
            Self::AnswerHere => 200,
            Self::MaxForwardsInvalid => 400,
            Self::Loop => 508,
        }
    }

    /// What the client is told.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::AnswerHere => "",
            Self::MaxForwardsInvalid => "Max-Forwards must be one number",
            Self::Loop => "the request has passed through this server too often",
        }
    }
}

/// Appends the request as the server is to get it: request line and fields, the empty line included.
///
/// - The target is in origin form (or `*`), the version is our own.
/// - Host comes first, once. Fields of the client's hop are left out: Connection and what it names,
///   Keep-Alive, Proxy-Connection, Proxy-Authorization, TE, Transfer-Encoding, Upgrade.
/// - One framing field, written from the decoded length; `TE: trailers` and an upgrade are asked for
///   anew where the client did.
/// - Via is extended, Max-Forwards of OPTIONS and TRACE counted down.
/// - X-Forwarded-For, -Host, -Proto and Forwarded are extended for trusted clients and replaced for
///   others, whose further X-Forwarded-* fields are left out.
///
/// Connection cannot name away what is written anew: Host, framing, Via, Max-Forwards, Forwarded and
/// X-Forwarded-*. Everything else that it names goes, as RFC 9110 section 7.6.1 demands.
///
/// # Errors
/// The request must not be passed on; nothing has been appended then.
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
    encode_target_line(out, head);
    encode_host(out, head, context);
    for (index, field) in head.fields().enumerate() {
        let proven = context.client_certificate.is_some();
        let replaced = proven && is_claim(field.name, CERTIFICATE_CLAIM);
        if passes_upstream(&field, head, context) && !nominated.has(index) && !replaced {
            encode_field(out, field.name, field.value);
        }
    }
    encode_length(out, head.length);
    if let Some(hops) = max_forwards {
        encode_field_u64(out, "Max-Forwards", hops);
    }
    if head.expect_continue && has_body(head.length) {
        out.extend_from_slice(b"Expect: 100-continue\r\n");
    }
    encode_hop_fields(out, head, context.close);
    encode_via(out, head.fields(), head.version, context.via);
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
    out.extend_from_slice(b"\r\n");
    Ok(())
}

/// Whether the request has a body that a server may leave unread, because its method defines no meaning
/// for one (RFC 9110 sections 9.3.1, 9.3.2, 9.3.5, 9.3.7 and 9.3.8). A server that keeps its connection
/// open takes such a body for the next request, so that connection must not carry another one.
#[must_use]
pub fn has_unexpected_body(head: &RequestHead<'_>) -> bool {
    let expects_none = match head.method {
        Method::Get
        | Method::Head
        | Method::Delete
        | Method::Options
        | Method::Trace
        | Method::Connect => true,
        Method::Post | Method::Put | Method::Patch | Method::Other(_) => false,
    };
    expects_none && has_body(head.length)
}

/// Whether the request's upgrade is passed on, so that a server may answer it with 101: it asks for
/// some other protocol than HTTP or TLS. Those would be spoken past our routes and rules unseen.
#[must_use]
pub fn forwards_upgrade(head: &RequestHead<'_>) -> bool {
    head.upgrade && upgrades(head).next().is_some()
}

/// Whether a 101 switches to what was asked for (RFC 9110 section 7.8): `request` is the head that
/// [`encode_upstream_request`] appended, with or without what follows it.
#[must_use]
pub fn switches_as_asked(request: &[u8], head: &ResponseHead<'_>) -> bool {
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

/// Whether Connection names a field of the message, so that it must not be passed on (RFC 9110 section
/// 7.6.1), not as a trailer either: such a message is passed on without its trailers. What Connection
/// usually names is never a trailer.
#[must_use]
pub fn names_fields(fields: Fields<'_>, has_connection: bool) -> bool {
    has_connection && nominations(fields).next().is_some()
}

/// How a response's body is framed towards the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyFraming {
    /// There is none.
    None,
    /// By Content-Length.
    Length(u64),
    /// In chunks; towards HTTP/1.1 alone.
    Chunked,
    /// Until the connection ends.
    UntilClose,
}

/// What a response is passed on with.
#[derive(Clone, Copy, Debug)]
pub struct ResponseContext<'a> {
    /// The client's version.
    pub client_version: Version,
    /// The client's connection stays open after this response.
    pub keep_alive: bool,
    /// The date now, for responses that have none (RFC 9110 section 6.6.1).
    pub date: &'a [u8; 29],
    /// This server's name in `Via`; empty: none is added.
    pub via: &'a str,
    /// The response answers HEAD.
    pub request_is_head: bool,
    /// How its body is framed.
    pub body: BodyFraming,
    /// Value of Strict-Transport-Security, in place of the server's own; empty: that is passed on.
    pub hsts: &'a str,
}

/// Appends a final response as the client is to get it: status line and fields, the empty line
/// included. The server's hop is left out as for requests; Content-Length of a response without a
/// body stays what the server said where it tells about GET's (HEAD, 304).
pub fn encode_downstream_response(
    out: &mut Vec<u8>,
    head: &ResponseHead<'_>,
    context: &ResponseContext<'_>,
) {
    debug_assert!(
        context.body != BodyFraming::Chunked || context.client_version == Version::Http11,
        "HTTP/1.0 knows no chunks"
    );
    encode_status(out, head);
    let chunked = context.body == BodyFraming::Chunked;
    encode_response_fields(out, head, chunked, !context.hsts.is_empty());
    if !context.hsts.is_empty() {
        encode_field(out, HSTS, context.hsts.as_bytes());
    }
    if !head.has(FieldName::Date) {
        encode_field(out, "Date", context.date);
    }
    match context.body {
        BodyFraming::Length(length) => encode_field_u64(out, "Content-Length", length),
        BodyFraming::Chunked => out.extend_from_slice(b"Transfer-Encoding: chunked\r\n"),
        BodyFraming::UntilClose => {}
        BodyFraming::None => {
            if let Some(length) = stated_length(head, context.request_is_head) {
                encode_field(out, "Content-Length", length);
            }
        }
    }
    encode_via(out, head.fields(), head.version, context.via);
    let close = !context.keep_alive || context.body == BodyFraming::UntilClose;
    match head.find(FieldName::Upgrade) {
        // RFC 9110 section 15.5.22: 426 says what to upgrade to.
        Some(protocols) if head.status == 426 => {
            let options: &[u8] = if close { b"upgrade, close" } else { b"upgrade" };
            encode_field(out, "Connection", options);
            encode_field(out, "Upgrade", protocols);
        }
        _ => encode_connection(out, context.client_version, close),
    }
    out.extend_from_slice(b"\r\n");
}

/// Appends an interim response (1xx), or 101 with its upgrade. The caller relays none to an HTTP/1.0
/// client (RFC 9110 section 15.2), and 101 only where [`forwards_upgrade`] let it be asked for.
pub fn encode_interim(out: &mut Vec<u8>, head: &ResponseHead<'_>, via: &str) {
    encode_status(out, head);
    encode_response_fields(out, head, false, false);
    encode_via(out, head.fields(), head.version, via);
    if head.status == 101 {
        out.extend_from_slice(b"Connection: upgrade\r\n");
        for field in head.fields().filter(|field| field.id == FieldName::Upgrade) {
            encode_field(out, "Upgrade", field.value);
        }
    }
    out.extend_from_slice(b"\r\n");
}

/// Max-Forwards as it is to be passed on; `None` where it plays no part (RFC 9110 section 7.6.2).
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
    // More hops than fit into a number are as good as the most that do.
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

/// Request line in origin form (RFC 9112 section 3.2.1), or `*` (section 3.2.4).
fn encode_target_line(out: &mut Vec<u8>, head: &RequestHead<'_>) {
    let Some(query) = head.query else {
        return encode_request_line(out, head.method.as_str(), head.path);
    };
    out.extend_from_slice(head.method.as_str().as_bytes());
    out.push(b' ');
    out.extend_from_slice(head.path.as_bytes());
    out.push(b'?');
    out.extend_from_slice(query.as_bytes());
    out.extend_from_slice(b" HTTP/1.1\r\n");
}

/// RFC 9112 section 3.2: without an authority, Host is there and empty.
fn encode_host(out: &mut Vec<u8>, head: &RequestHead<'_>, context: &RequestContext<'_>) {
    let host = match context.host {
        UpstreamHost::Keep => head.host.unwrap_or_default(),
        UpstreamHost::Replace(host) => host.as_str(),
    };
    encode_field(out, "Host", host.as_bytes());
}

/// Whether the field is passed on as it came; the others are dropped or written anew.
fn passes_upstream(
    field: &Field<'_>,
    head: &RequestHead<'_>,
    context: &RequestContext<'_>,
) -> bool {
    match field.id {
        FieldName::Connection
        | FieldName::ContentLength
        | FieldName::Forwarded
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
        // The field announces trailers, so it is passed on only where trailers may follow.
        FieldName::Trailer => context.trailers && head.length == BodyLength::Chunked,
        FieldName::MaxForwards => !matches!(head.method, Method::Options | Method::Trace),
        // HTTP/1.0 has no expectations (RFC 9110 section 10.1.1).
        FieldName::Expect => !head.expect_continue && head.version == Version::Http11,
        FieldName::XForwardedPort => context.trusted,
        _ => {
            context.trusted
                || !is_claim(field.name, FORWARDING_CLAIM)
                    && !is_claim(field.name, CERTIFICATE_CLAIM)
        }
    }
}

/// The one framing field (RFC 9112 section 6.3).
fn encode_length(out: &mut Vec<u8>, length: BodyLength) {
    match length {
        BodyLength::None | BodyLength::UntilClose => {}
        BodyLength::Length(length) => encode_field_u64(out, "Content-Length", length),
        BodyLength::Chunked => out.extend_from_slice(b"Transfer-Encoding: chunked\r\n"),
    }
}

fn has_body(length: BodyLength) -> bool {
    !matches!(length, BodyLength::None | BodyLength::Length(0))
}

/// What this hop asks for: the connection's end, `TE: trailers` and an upgrade, each named in
/// Connection (RFC 9110 sections 7.6.1, 7.8 and 10.1.4, RFC 9112 section 9.6).
fn encode_hop_fields(out: &mut Vec<u8>, head: &RequestHead<'_>, close: bool) {
    let trailers = head.has(FieldName::Te)
        && head.version == Version::Http11
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
        for (index, protocol) in upgrades(head).enumerate() {
            if index > 0 {
                out.extend_from_slice(b", ");
            }
            out.extend_from_slice(protocol);
        }
        out.extend_from_slice(b"\r\n");
    }
}

/// The protocols a client may upgrade to through us.
fn upgrades<'a>(head: &RequestHead<'a>) -> impl Iterator<Item = &'a [u8]> {
    elements(head.fields(), FieldName::Upgrade).filter(|protocol| {
        let name = protocol.split(|&byte| byte == b'/').next().unwrap_or_default();
        let ours: [&[u8]; 4] = [b"h2c", b"h2", b"http", b"tls"];
        !name.is_empty() && !ours.iter().any(|ours| name.eq_ignore_ascii_case(ours))
    })
}

/// The members of a list field, over all its lines (RFC 9110 section 5.6.1).
fn elements(fields: Fields<'_>, id: FieldName) -> impl Iterator<Item = &[u8]> {
    fields
        .filter(move |field| field.id == id)
        .flat_map(|field| field.value.split(|&byte| byte == b','))
        .map(<[u8]>::trim_ascii)
        .filter(|element| !element.is_empty())
}

/// What Connection names beside what it usually does.
fn nominations(fields: Fields<'_>) -> impl Iterator<Item = &[u8]> {
    const USUAL: [&[u8]; 4] = [b"keep-alive", b"close", b"upgrade", b"te"];
    elements(fields, FieldName::Connection)
        .filter(|element| !USUAL.iter().any(|usual| element.eq_ignore_ascii_case(usual)))
}

/// Which fields of a head Connection names (RFC 9110 section 7.6.1), as a bit for each.
struct Nominated(u128);

const _: () = assert!(HEADER_FIELDS_MAX <= u128::BITS as usize);

impl Nominated {
    /// Usually Connection names no field that would be passed on, and this costs next to nothing. Else
    /// names are looked up by hash: to compare each name with each field would let a head of 16 KiB
    /// cost milliseconds.
    fn new(fields: Fields<'_>, has_connection: bool) -> Self {
        let mut nominated = Self(0);
        if !has_connection {
            return nominated;
        }
        let mut hashes = None;
        for element in nominations(fields.clone()) {
            let hashes = hashes.get_or_insert_with(|| NameHashes::new(fields.clone()));
            nominated.0 |= hashes.find(element);
        }
        nominated
    }

    fn has(&self, index: usize) -> bool {
        self.0 >> index & 1 == 1
    }
}

/// The hashes of a head's field names, sorted, with the fields' indexes.
struct NameHashes {
    sorted: [(u64, u8); HEADER_FIELDS_MAX],
    count: usize,
}

impl NameHashes {
    fn new(fields: Fields<'_>) -> Self {
        let mut sorted = [(0, 0); HEADER_FIELDS_MAX];
        let mut count = 0;
        for ((place, field), index) in sorted.iter_mut().zip(fields).zip(0_u8..) {
            *place = (hash_lower(field.name.as_bytes()), index);
            count += 1;
        }
        let mut hashes = Self { sorted, count };
        hashes.sorted[..count].sort_unstable();
        hashes
    }

    /// The bits of the fields with that name. Two names with one hash would both go: a client that
    /// seeks out such a pair takes from its own request alone.
    fn find(&self, name: &[u8]) -> u128 {
        let hash = hash_lower(name);
        let hashes = &self.sorted[..self.count];
        let start = hashes.partition_point(|entry| entry.0 < hash);
        let same = hashes[start..].iter().take_while(|entry| entry.0 == hash);
        same.fold(0, |bits, &(_, index)| bits | 1 << index)
    }
}

fn hash_lower(name: &[u8]) -> u64 {
    name.iter().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(byte.to_ascii_lowercase())).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// Via as it came, and ourselves at its end with the version that we received (RFC 9110
/// section 7.6.3).
fn encode_via<'a>(
    out: &mut Vec<u8>,
    fields: impl Iterator<Item = Field<'a>>,
    version: Version,
    via: &str,
) {
    let start = out.len();
    out.extend_from_slice(b"Via: ");
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
        out.extend_from_slice(match version {
            Version::Http10 => b"1.0 ",
            Version::Http11 => b"1.1 ",
        });
        out.extend_from_slice(via.as_bytes());
    }
    if out.len() > empty {
        out.extend_from_slice(b"\r\n");
    } else {
        out.truncate(start);
    }
}

/// X-Forwarded-For, -Host, -Proto, and Forwarded (RFC 7239).
fn encode_forwarded(out: &mut Vec<u8>, head: &RequestHead<'_>, context: &RequestContext<'_>) {
    let before = |id: FieldName| {
        let believed = context.trusted && head.has(id);
        let values = head.fields().filter(move |field| believed && field.id == id);
        values.map(|field| field.value).filter(|value| !value.is_empty())
    };
    let peer = context.peer.map(|address| address.to_canonical());
    encode_list(out, b"X-Forwarded-For: ", before(FieldName::XForwardedFor), |out| {
        if let Some(peer) = peer {
            encode_address(out, peer);
        }
    });
    // These two are not lists: who stood in front knows better than we do.
    let first = before(FieldName::XForwardedHost).next();
    if let Some(host) = first.or(head.host.map(str::as_bytes)) {
        encode_field(out, "X-Forwarded-Host", host);
    }
    let proto =
        before(FieldName::XForwardedProto).next().unwrap_or(context.scheme.as_str().as_bytes());
    encode_field(out, "X-Forwarded-Proto", proto);
    encode_list(out, b"Forwarded: ", before(FieldName::Forwarded), |out| {
        encode_forwarded_element(out, peer, head.host, context.scheme.as_str());
    });
}

/// A list field: the values it had, and what `add` appends; nothing at all where both are empty.
fn encode_list<'a>(
    out: &mut Vec<u8>,
    name: &[u8],
    before: impl Iterator<Item = &'a [u8]>,
    add: impl FnOnce(&mut Vec<u8>),
) {
    let start = out.len();
    out.extend_from_slice(name);
    let empty = out.len();
    for value in before {
        out.extend_from_slice(value);
        out.extend_from_slice(b", ");
    }
    let added = out.len();
    add(out);
    if out.len() == added && added > empty {
        out.truncate(added - b", ".len());
    }
    if out.len() > empty {
        out.extend_from_slice(b"\r\n");
    } else {
        out.truncate(start);
    }
}

/// `for=...;host="...";proto=...` (RFC 7239 sections 4 to 6).
fn encode_forwarded_element(
    out: &mut Vec<u8>,
    peer: Option<IpAddr>,
    host: Option<&str>,
    scheme: &str,
) {
    match peer {
        Some(IpAddr::V4(_)) | None => out.extend_from_slice(b"for="),
        Some(IpAddr::V6(_)) => out.extend_from_slice(b"for=\"["),
    }
    match peer {
        Some(peer) => encode_address(out, peer),
        None => out.extend_from_slice(b"unknown"),
    }
    if matches!(peer, Some(IpAddr::V6(_))) {
        out.extend_from_slice(b"]\"");
    }
    // Quoted, for a port needs it; what would end the quotes is in no valid host.
    if let Some(host) = host.filter(|host| !host.contains(['"', '\\'])) {
        out.extend_from_slice(b";host=\"");
        out.extend_from_slice(host.as_bytes());
        out.push(b'"');
    }
    out.extend_from_slice(b";proto=");
    out.extend_from_slice(scheme.as_bytes());
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

/// Our own version, the server's status and reason; the standard reason where it gave none.
fn encode_status(out: &mut Vec<u8>, head: &ResponseHead<'_>) {
    let is_text = |byte: &u8| byte.is_ascii_graphic() || matches!(byte, b' ' | b'\t');
    if head.reason.is_empty() || !head.reason.as_bytes().iter().all(is_text) {
        return encode_status_line(out, head.status);
    }
    out.extend_from_slice(b"HTTP/1.1 ");
    out.extend_from_slice(itoa::Buffer::new().format(head.status).as_bytes());
    out.push(b' ');
    out.extend_from_slice(head.reason.as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// The fields that are passed on as they came; `own_hsts`: Strict-Transport-Security is ours to say, and
/// must be there once (RFC 6797 section 7.1).
fn encode_response_fields(
    out: &mut Vec<u8>,
    head: &ResponseHead<'_>,
    chunked: bool,
    own_hsts: bool,
) {
    let nominated = Nominated::new(head.fields(), head.has(FieldName::Connection));
    for (index, field) in head.fields().enumerate() {
        let passes = match field.id {
            FieldName::Connection
            | FieldName::ContentLength
            | FieldName::KeepAlive
            | FieldName::ProxyAuthenticate
            | FieldName::ProxyAuthenticationInfo
            | FieldName::ProxyConnection
            | FieldName::Te
            | FieldName::TransferEncoding
            | FieldName::Upgrade
            | FieldName::Via => false,
            FieldName::Trailer => chunked,
            // Date is needed by caches on the way; a server cannot name it away.
            FieldName::Date => {
                encode_field(out, field.name, field.value);
                false
            }
            _ => !own_hsts || !field.name.eq_ignore_ascii_case(HSTS),
        };
        if passes && !nominated.has(index) {
            encode_field(out, field.name, field.value);
        }
    }
}

/// Content-Length of a response without a body that tells about the one GET would have (RFC 9110
/// section 8.6): after HEAD, and in 304. Kept where it is one number.
fn stated_length<'a>(head: &ResponseHead<'a>, request_is_head: bool) -> Option<&'a [u8]> {
    let may_state = head.status == 304 || (request_is_head && !matches!(head.status, 204 | 205));
    if !may_state || !head.has(FieldName::ContentLength) {
        return None;
    }
    let mut fields = head.fields().filter(|field| field.id == FieldName::ContentLength);
    let (Some(field), None) = (fields.next(), fields.next()) else {
        return None;
    };
    let is_number = (1..=19).contains(&field.value.len())
        && field.value.iter().all(u8::is_ascii_digit)
        && !head.has(FieldName::TransferEncoding);
    is_number.then_some(field.value)
}
