//! Heads and trailers: the fields of a header block, checked as a message (RFC 9113 section 8).
//! In: decoded fields, one by one. Out: `Request`, `ResponseHead`, trailers; or the first fault.
//! Never: repairs a message. Fields are checked by the same functions as in HTTP/1 (`message::syntax`,
//! `target`, `length`), so that whatever is accepted here can be forwarded there.
//! Limits: those of the header block decoder; `HOST_BYTES_MAX`, `PRIORITY_BYTES_MAX`.
//! Invariant: all cookie fields of a request are joined into one (RFC 9113 section 8.2.3).

use super::bounds::COOKIE_CRUMBS_MAX;
use super::connection::Config;
use super::fault::FaultKind;
use super::hpack;
use super::priority::Priority;
use crate::message::field::{FieldTable, Packed, PackedField};
use crate::message::length::content_length;
use crate::message::request::expects_continue;
use crate::message::syntax::{is_text, is_token_char};
use crate::message::target::{Target, parse_host};
use crate::message::{
    BodyLength, FieldName, Fields, Method, RequestHead, RequestKind, ResponseHead, TargetForm,
    Version, is_trailer_forbidden,
};
use core::ops::ControlFlow;
use core::str::from_utf8;
use tidegate_base::limits::{HEADER_FIELDS_MAX, HOST_BYTES_MAX, TRAILER_BYTES_MAX};

/// The head of a request.
#[derive(Clone, Debug)]
pub struct Request<'a> {
    /// The head as an HTTP/1 decoder would return it. A body whose length is not stated is `Streamed`.
    pub head: RequestHead<'a>,
    /// The scheme that the client states: http or https, in any case.
    pub scheme: &'a str,
}

/// What a header block contains.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum BlockKind {
    /// The head of a request.
    Request,
    /// The head of a response, interim or final.
    Response,
    /// Trailers.
    Trailers,
    /// A block of any kind for a stream that is gone. It is decoded only to keep the compression in step.
    Discarded,
}

/// Where a pseudo-header field is stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Pseudo {
    Method,
    Scheme,
    Authority,
    Path,
    Protocol,
    Status,
}

/// Memory for the fields of one header block. One per worker is enough; an event borrows from it.
#[derive(Debug)]
pub struct Scratch {
    /// Memory of the header block decoder.
    pub(super) hpack: hpack::Scratch,
    /// The fields of the latest block.
    pub(super) fields: FieldArena,
}

impl Scratch {
    /// Creates empty memory; it grows at the first use.
    #[must_use]
    pub const fn new() -> Self {
        Self { hpack: hpack::Scratch::new(), fields: FieldArena::new() }
    }
}

impl Default for Scratch {
    fn default() -> Self {
        Self::new()
    }
}

/// The fields of one header block.
#[derive(Debug)]
pub(super) struct FieldArena {
    /// What the block contains.
    kind: BlockKind,
    /// The names of the fields and the values of the pseudo-header fields, one after the other.
    names: String,
    /// The values of the fields, one after the other.
    values: Vec<u8>,
    /// The fields, without pseudo-header fields.
    fields: Vec<PackedField>,
    /// Where the values of the pseudo-header fields are in `names`.
    pseudo: [Option<(u32, u32)>; 6],
    /// The index of the cookie field in `fields`.
    cookie_at: Option<usize>,
    /// The crumbs of the cookie joined, if there are more than one.
    cookie: Vec<u8>,
    /// The priority that the fields state.
    pub(super) priority: Option<Priority>,
    /// The first fault.
    fault: Option<FaultKind>,
}

impl FieldArena {
    const fn new() -> Self {
        Self {
            kind: BlockKind::Discarded,
            names: String::new(),
            values: Vec::new(),
            fields: Vec::new(),
            pseudo: [None; 6],
            cookie_at: None,
            cookie: Vec::new(),
            priority: None,
            fault: None,
        }
    }

    /// Empties the arena for a block.
    pub(super) fn begin(&mut self, kind: BlockKind) {
        self.kind = kind;
        self.names.clear();
        self.values.clear();
        self.fields.clear();
        self.pseudo = [None; 6];
        self.cookie_at = None;
        self.cookie.clear();
        self.priority = None;
        self.fault = None;
    }

    /// The first fault of the fields.
    pub(super) const fn fault(&self) -> Option<FaultKind> {
        self.fault
    }

    /// Completes a block: joins the cookie.
    pub(super) fn finish(&mut self) {
        if !self.cookie.is_empty()
            && let Some(field) = self.cookie_at.and_then(|at| self.fields.get_mut(at))
        {
            let start = self.values.len() as u32;
            self.values.extend_from_slice(&self.cookie);
            field.value = (start, self.values.len() as u32);
        }
    }

    /// The fields as a table.
    fn table(&self) -> FieldTable<'_> {
        FieldTable::of_packed(Packed {
            fields: &self.fields,
            names: &self.names,
            values: &self.values,
        })
    }

    /// The fields of trailers.
    pub(super) fn trailers(&self) -> Fields<'_> {
        self.table().iter()
    }

    fn pseudo(&self, name: Pseudo) -> Option<&str> {
        let (start, end) = (*self.pseudo.get(name as usize)?)?;
        self.names.get(start as usize..end as usize)
    }

    fn take_pseudo(&mut self, name: &[u8], value: &[u8]) -> Result<(), FaultKind> {
        if !self.fields.is_empty() || self.kind == BlockKind::Trailers {
            return Err(FaultKind::PseudoFieldMisplaced);
        }
        let is_request = self.kind == BlockKind::Request;
        let (name, fault) = match name {
            b":method" if is_request => (Pseudo::Method, FaultKind::MethodInvalid),
            b":scheme" if is_request => (Pseudo::Scheme, FaultKind::SchemeInvalid),
            b":authority" if is_request => (Pseudo::Authority, FaultKind::AuthorityInvalid),
            b":path" if is_request => (Pseudo::Path, FaultKind::PathInvalid),
            b":protocol" if is_request => (Pseudo::Protocol, FaultKind::ProtocolNotEnabled),
            b":status" if !is_request => (Pseudo::Status, FaultKind::StatusInvalid),
            _ => return Err(FaultKind::PseudoFieldUnknown),
        };
        if !value.iter().all(u8::is_ascii_graphic) {
            return Err(fault);
        }
        let value = from_utf8(value).map_err(|_| fault)?;
        let start = self.names.len() as u32;
        self.names.push_str(value);
        match self.pseudo.get_mut(name as usize) {
            Some(place @ None) => {
                *place = Some((start, self.names.len() as u32));
                Ok(())
            }
            _ => Err(FaultKind::PseudoFieldRepeated),
        }
    }

    fn take_regular(&mut self, field: &hpack::Field<'_>) -> Result<(), FaultKind> {
        let hpack::Field { name, value, is_sensitive } = *field;
        let name = check_name(name)?;
        check_value(value)?;
        let id = FieldName::classify(name.as_bytes());
        match id {
            FieldName::Connection
            | FieldName::KeepAlive
            | FieldName::ProxyConnection
            | FieldName::TransferEncoding
            | FieldName::Upgrade => return Err(FaultKind::ConnectionField),
            FieldName::Te if !value.eq_ignore_ascii_case(b"trailers") => {
                return Err(FaultKind::TeInvalid);
            }
            FieldName::FramingLookalike if self.kind != BlockKind::Response => {
                return Err(FaultKind::FramingFieldMisspelled);
            }
            FieldName::Cookie if self.kind == BlockKind::Request && self.cookie_at.is_some() => {
                self.take_crumb(value, is_sensitive);
                return Ok(());
            }
            FieldName::Cookie => self.cookie_at = Some(self.fields.len()),
            FieldName::Other if name == "priority" => {
                self.priority = Some(Priority::parse(value));
            }
            _ => {}
        }
        if self.kind == BlockKind::Trailers && is_trailer_forbidden(name) {
            return Ok(());
        }
        self.push(id, name, value, is_sensitive);
        Ok(())
    }

    fn push(&mut self, id: FieldName, name: &str, value: &[u8], is_sensitive: bool) {
        let (name_start, value_start) = (self.names.len() as u32, self.values.len() as u32);
        self.names.push_str(name);
        self.values.extend_from_slice(value);
        self.fields.push(PackedField {
            id,
            name: (name_start, self.names.len() as u32),
            value: (value_start, self.values.len() as u32),
            is_sensitive,
        });
    }

    /// Appends a further crumb to the cookie.
    fn take_crumb(&mut self, crumb: &[u8], is_sensitive: bool) {
        let Some(field) = self.cookie_at.and_then(|at| self.fields.get_mut(at)) else { return };
        field.is_sensitive |= is_sensitive;
        if self.cookie.is_empty() {
            let (start, end) = field.value;
            let first = self.values.get(start as usize..end as usize).unwrap_or_default();
            self.cookie.extend_from_slice(first);
        }
        self.cookie.extend_from_slice(b"; ");
        self.cookie.extend_from_slice(crumb);
    }
}

impl hpack::FieldSink for FieldArena {
    fn take_field(&mut self, field: hpack::Field<'_>) -> ControlFlow<()> {
        let taken = match field.name {
            _ if self.kind == BlockKind::Discarded => return ControlFlow::Break(()),
            [b':', ..] => self.take_pseudo(field.name, field.value),
            _ => self.take_regular(&field),
        };
        match taken {
            Ok(()) => ControlFlow::Continue(()),
            Err(fault) => {
                self.fault = Some(fault);
                ControlFlow::Break(())
            }
        }
    }
}

/// A field name: a token in lower case (RFC 9113 section 8.2.1).
fn check_name(name: &[u8]) -> Result<&str, FaultKind> {
    let is_valid = |&byte: &u8| is_token_char(byte) && !byte.is_ascii_uppercase();
    if name.is_empty() || !name.iter().all(is_valid) {
        return Err(FaultKind::FieldNameInvalid);
    }
    from_utf8(name).map_err(|_| FaultKind::FieldNameInvalid)
}

/// A field value: no control characters, and no blanks around it (RFC 9113 section 8.2.1).
fn check_value(value: &[u8]) -> Result<(), FaultKind> {
    let is_blank = |byte: Option<&u8>| matches!(byte, Some(b' ' | b'\t'));
    if is_blank(value.first()) || is_blank(value.last()) || !value.iter().all(|&b| is_text(b)) {
        return Err(FaultKind::FieldValueInvalid);
    }
    Ok(())
}

impl FieldArena {
    /// The block as a request head. `ends` states whether the request ends with it.
    pub(super) fn request(&self, config: &Config, ends: bool) -> Result<Request<'_>, FaultKind> {
        let fields = self.table();
        let token = self.pseudo(Pseudo::Method).ok_or(FaultKind::PseudoFieldMissing)?;
        if token.is_empty() || !token.bytes().all(is_token_char) {
            return Err(FaultKind::MethodInvalid);
        }
        let method = Method::from_token(token);
        let protocol = self.pseudo(Pseudo::Protocol);
        check_connect(&method, protocol, config)?;
        let scheme = self.pseudo(Pseudo::Scheme).ok_or(FaultKind::PseudoFieldMissing)?;
        if !scheme.eq_ignore_ascii_case("http") && !scheme.eq_ignore_ascii_case("https") {
            return Err(FaultKind::SchemeInvalid);
        }
        let path = self.pseudo(Pseudo::Path).ok_or(FaultKind::PseudoFieldMissing)?;
        let target = parse_path(&method, path)?;
        let host = effective_host(self.pseudo(Pseudo::Authority), &fields)?;
        let stated = content_length(&fields, false).map_err(|_| FaultKind::ContentLengthInvalid)?;
        if protocol.is_some() && stated.is_some() {
            // CONNECT has no content (RFC 9110 section 9.3.6): a server of HTTP/1.1 would wait for it.
            return Err(FaultKind::ContentLengthInvalid);
        }
        let head = RequestHead {
            method,
            target: path,
            form: target.form,
            path: target.path,
            query: target.query,
            host: Some(host),
            version: Version::Http2,
            length: body_length(stated, ends)?,
            persistent: true,
            expect_continue: expects_continue(&fields),
            upgrade: protocol.is_some() && !ends,
            protocol,
            fields,
        };
        Ok(Request { head, scheme })
    }

    /// The block as a response head.
    pub(super) fn response(
        &self,
        request: RequestKind,
        ends: bool,
    ) -> Result<ResponseHead<'_>, FaultKind> {
        let fields = self.table();
        let digits = self.pseudo(Pseudo::Status).ok_or(FaultKind::PseudoFieldMissing)?;
        let status = match digits.as_bytes() {
            [b'1'..=b'9', b'0'..=b'9', b'0'..=b'9'] => digits.parse::<u16>().unwrap_or(101),
            _ => 101,
        };
        if status == 101 {
            return Err(FaultKind::StatusInvalid);
        }
        if status < 200 && ends {
            return Err(FaultKind::InterimEndsStream);
        }
        let stated = content_length(&fields, true).map_err(|_| FaultKind::ContentLengthInvalid)?;
        let upgrade = request.is_connect && matches!(status, 200..=299);
        let has_no_body = request.is_head || upgrade || matches!(status, 100..=199 | 204 | 304);
        let length = if has_no_body { BodyLength::None } else { body_length(stated, ends)? };
        Ok(ResponseHead {
            version: Version::Http2,
            status,
            reason: "",
            length,
            content_length: stated,
            persistent: true,
            upgrade,
            fields,
        })
    }
}

/// CONNECT is supported only as the extended CONNECT of RFC 8441, if it is enabled.
fn check_connect(
    method: &Method<'_>,
    protocol: Option<&str>,
    config: &Config,
) -> Result<(), FaultKind> {
    match (method, protocol) {
        (Method::Connect, None) => Err(FaultKind::ConnectUnsupported),
        (_, Some(_)) if !config.connect_protocol => Err(FaultKind::ProtocolNotEnabled),
        (Method::Connect, Some(protocol)) => {
            let is_token = !protocol.is_empty() && protocol.bytes().all(is_token_char);
            if is_token { Ok(()) } else { Err(FaultKind::ProtocolNotEnabled) }
        }
        (_, Some(_)) => Err(FaultKind::PseudoFieldUnknown),
        (_, None) => Ok(()),
    }
}

/// A path begins with a slash, or is `*` for OPTIONS (RFC 9113 section 8.3.1).
fn parse_path<'a>(method: &Method<'_>, path: &'a str) -> Result<Target<'a>, FaultKind> {
    // An extended CONNECT has a path like any other request.
    let method = if matches!(method, Method::Connect) { &Method::Get } else { method };
    let target = Target::parse(method, path).map_err(|_| FaultKind::PathInvalid)?;
    match target.form {
        TargetForm::Origin | TargetForm::Asterisk => Ok(target),
        TargetForm::Absolute | TargetForm::Authority => Err(FaultKind::PathInvalid),
    }
}

/// The host that a request is for. A Host field must be equal to `:authority` (RFC 9113 section 8.3.1).
fn effective_host<'a>(
    authority: Option<&'a str>,
    fields: &FieldTable<'a>,
) -> Result<&'a str, FaultKind> {
    if fields.is_repeated(FieldName::Host) {
        return Err(FaultKind::HostRepeated);
    }
    let host = match (authority, fields.find(FieldName::Host)) {
        (Some(authority), Some(host)) if !authority.as_bytes().eq_ignore_ascii_case(host) => {
            return Err(FaultKind::HostDiffers);
        }
        (Some(authority), _) => authority.as_bytes(),
        (None, Some(host)) => host,
        (None, None) => return Err(FaultKind::PseudoFieldMissing),
    };
    parse_host(host).filter(|host| host.len() <= HOST_BYTES_MAX).ok_or(FaultKind::AuthorityInvalid)
}

/// How long the body is, given Content-Length and whether the head ends the stream.
const fn body_length(stated: Option<u64>, ends: bool) -> Result<BodyLength, FaultKind> {
    match (stated, ends) {
        (Some(0) | None, true) => Ok(BodyLength::None),
        (Some(_), true) => Err(FaultKind::ContentLengthMismatch),
        (Some(length), false) => Ok(BodyLength::Length(length)),
        (None, false) => Ok(BodyLength::Streamed),
    }
}

/// The bounds of a header block.
pub(super) fn limits_of(kind: BlockKind, config: &Config) -> hpack::Limits {
    match kind {
        BlockKind::Trailers => hpack::Limits {
            fields_max: HEADER_FIELDS_MAX,
            crumbs_max: HEADER_FIELDS_MAX,
            list_bytes_max: TRAILER_BYTES_MAX,
        },
        _ => hpack::Limits {
            fields_max: usize::from(config.header_fields_max),
            crumbs_max: COOKIE_CRUMBS_MAX,
            list_bytes_max: config.header_list_bytes_max as usize,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hpack::FieldSink;

    type Pairs<'a> = &'a [(&'a str, &'a str)];

    /// Takes `fields` as a block of `kind`.
    fn arena(kind: BlockKind, fields: Pairs<'_>) -> Result<FieldArena, FaultKind> {
        let mut arena = FieldArena::new();
        arena.begin(kind);
        for (name, value) in fields {
            let (name, value) = (name.as_bytes(), value.as_bytes());
            if arena.take_field(hpack::Field { name, value, is_sensitive: false }).is_break() {
                break;
            }
        }
        arena.finish();
        arena.fault().map_or(Ok(arena), Err)
    }

    /// Takes `fields` as a request and returns what `look` returns.
    fn request<T>(
        fields: Pairs<'_>,
        ends: bool,
        look: impl Fn(&Request<'_>) -> T,
    ) -> Result<T, FaultKind> {
        let arena = arena(BlockKind::Request, fields)?;
        let config = Config { connect_protocol: true, ..Config::server() };
        arena.request(&config, ends).map(|request| look(&request))
    }

    const GET: [(&str, &str); 4] =
        [(":method", "GET"), (":scheme", "https"), (":authority", "a.b"), (":path", "/x?y")];

    #[test]
    fn request_is_split_into_its_parts() {
        let fields =
            [&GET[..], &[("cookie", "a=1"), ("te", "trailers"), ("x", ""), ("cookie", "b=2")]];
        let fields = fields.concat();
        let head = request(&fields, true, |request| {
            let head = &request.head;
            assert_eq!((head.path, head.query, head.host), ("/x", Some("y"), Some("a.b")));
            assert_eq!((head.target, head.length), ("/x?y", BodyLength::None));
            assert_eq!(head.find(FieldName::Cookie), Some(&b"a=1; b=2"[..]));
            head.fields().map(|field| field.name.to_owned()).collect::<Vec<_>>()
        });
        assert_eq!(head.unwrap(), ["cookie", "te", "x"]);
    }

    #[test]
    fn malformed_requests_are_rejected() {
        use FaultKind as F;
        let with = |name: &'static str, value: &'static str| {
            let mut fields = GET.to_vec();
            match fields.iter_mut().find(|field| field.0 == name) {
                Some(field) => field.1 = value,
                None => fields.push((name, value)),
            }
            request(&fields, true, |_| ()).err()
        };
        for (name, value, wanted) in [
            (":method", "", Some(F::MethodInvalid)),
            (":method", "G T", Some(F::MethodInvalid)),
            (":method", "G\r\nX", Some(F::MethodInvalid)),
            (":method", "CONNECT", Some(F::ConnectUnsupported)),
            (":scheme", "ftp", Some(F::SchemeInvalid)),
            (":scheme", "https://a/", Some(F::SchemeInvalid)),
            (":scheme", "HTTP", None),
            (":path", "", Some(F::PathInvalid)),
            (":path", "*", Some(F::PathInvalid)),
            (":path", "x", Some(F::PathInvalid)),
            (":path", "//x", None),
            (":path", "/a b", Some(F::PathInvalid)),
            (":path", "/a#b", Some(F::PathInvalid)),
            (":path", "/a\r\nb", Some(F::PathInvalid)),
            (":path", "http://a.b/", Some(F::PathInvalid)),
            (":authority", "", Some(F::AuthorityInvalid)),
            (":authority", "u@a.b", Some(F::AuthorityInvalid)),
            (":authority", "a.b,c", Some(F::AuthorityInvalid)),
            (":protocol", "websocket", Some(F::PseudoFieldUnknown)),
            (":status", "200", Some(F::PseudoFieldUnknown)),
            (":foo", "", Some(F::PseudoFieldUnknown)),
            ("host", "A.b", None),
            ("host", "c", Some(F::HostDiffers)),
            ("host", "", Some(F::HostDiffers)),
            ("connection", "close", Some(F::ConnectionField)),
            ("proxy-connection", "x", Some(F::ConnectionField)),
            ("keep-alive", "x", Some(F::ConnectionField)),
            ("transfer-encoding", "chunked", Some(F::ConnectionField)),
            ("upgrade", "h2c", Some(F::ConnectionField)),
            ("te", "gzip", Some(F::TeInvalid)),
            ("te", "trailers, gzip", Some(F::TeInvalid)),
            ("content_length", "1", Some(F::FramingFieldMisspelled)),
            ("content-length", "0", None),
            ("content-length", "1", Some(F::ContentLengthMismatch)),
            ("content-length", "+0", Some(F::ContentLengthInvalid)),
            ("content-length", "0, 0", Some(F::ContentLengthInvalid)),
            ("", "x", Some(F::FieldNameInvalid)),
            ("X", "x", Some(F::FieldNameInvalid)),
            ("x:", "x", Some(F::FieldNameInvalid)),
            ("x y", "x", Some(F::FieldNameInvalid)),
            ("x\r\ny", "x", Some(F::FieldNameInvalid)),
            ("x\0", "x", Some(F::FieldNameInvalid)),
            ("\u{e9}", "x", Some(F::FieldNameInvalid)),
            ("x", " x", Some(F::FieldValueInvalid)),
            ("x", "x\t", Some(F::FieldValueInvalid)),
            ("x", "a\r\nb: c", Some(F::FieldValueInvalid)),
            ("x", "a\0", Some(F::FieldValueInvalid)),
            ("x", "a\u{7f}", Some(F::FieldValueInvalid)),
            ("x", "\u{e9} \t x", None),
        ] {
            assert_eq!(with(name, value), wanted, "{name:?}: {value:?}");
        }
    }

    #[test]
    fn pseudo_fields_are_required_once_and_first() {
        use FaultKind as F;
        for at in [0, 1, 3] {
            let mut fields = GET.to_vec();
            fields.remove(at);
            assert_eq!(request(&fields, true, |_| ()).err(), Some(F::PseudoFieldMissing));
        }
        for (at, field) in GET.into_iter().enumerate() {
            let mut fields = GET.to_vec();
            fields.push(field);
            assert_eq!(request(&fields, true, |_| ()).err(), Some(F::PseudoFieldRepeated));
            let mut fields = GET.to_vec();
            let pseudo = fields.remove(at);
            fields.extend([("x", "y"), pseudo]);
            assert_eq!(request(&fields, true, |_| ()).err(), Some(F::PseudoFieldMisplaced));
        }
        let host_only = [GET[0], GET[1], GET[3], ("host", "h:1")];
        let host = request(&host_only, true, |request| request.head.host.map(str::to_owned));
        assert_eq!(host, Ok(Some("h:1".to_owned())));
        let neither = [GET[0], GET[1], GET[3]];
        assert_eq!(request(&neither, true, |_| ()).err(), Some(F::PseudoFieldMissing));
        let twice = [GET[0], GET[1], GET[3], ("host", "h"), ("host", "h")];
        assert_eq!(request(&twice, true, |_| ()).err(), Some(F::HostRepeated));
    }

    #[test]
    fn options_and_extended_connect_have_their_own_rules() {
        let options = [(":method", "OPTIONS"), GET[1], GET[2], (":path", "*")];
        assert_eq!(request(&options, true, |request| request.head.form), Ok(TargetForm::Asterisk));
        let connect = [(":method", "CONNECT"), (":protocol", "websocket"), GET[1], GET[2], GET[3]];
        let protocol = request(&connect, false, |request| request.head.protocol.map(str::to_owned));
        assert_eq!(protocol, Ok(Some("websocket".to_owned())));
        let block = arena(BlockKind::Request, &connect).unwrap();
        let refused = block.request(&Config::server(), false).err();
        assert_eq!(refused, Some(FaultKind::ProtocolNotEnabled));
    }

    #[test]
    fn responses_are_checked_by_status_and_request() {
        let check = |status, length: Option<&str>, is_head, ends| {
            let mut fields = vec![(":status", status)];
            fields.extend(length.map(|length| ("content-length", length)));
            let arena = arena(BlockKind::Response, &fields)?;
            let kind = RequestKind { is_head, ..RequestKind::default() };
            arena.response(kind, ends).map(|head| (head.status, head.length))
        };
        use FaultKind as F;
        for (status, length, is_head, ends, wanted) in [
            ("200", None, false, false, Ok((200, BodyLength::Streamed))),
            ("200", Some("5"), false, false, Ok((200, BodyLength::Length(5)))),
            ("200", Some("5"), false, true, Err(F::ContentLengthMismatch)),
            ("200", Some("5"), true, true, Ok((200, BodyLength::None))),
            ("304", Some("5"), false, true, Ok((304, BodyLength::None))),
            ("204", None, false, false, Ok((204, BodyLength::None))),
            ("200", None, false, true, Ok((200, BodyLength::None))),
            ("103", None, false, false, Ok((103, BodyLength::None))),
            ("103", None, false, true, Err(F::InterimEndsStream)),
            ("101", None, false, false, Err(F::StatusInvalid)),
            ("099", None, false, false, Err(F::StatusInvalid)),
            ("20", None, false, false, Err(F::StatusInvalid)),
            ("2000", None, false, false, Err(F::StatusInvalid)),
            ("2 0", None, false, false, Err(F::StatusInvalid)),
            ("999", None, false, true, Ok((999, BodyLength::None))),
        ] {
            assert_eq!(check(status, length, is_head, ends), wanted, "{status} {length:?}");
        }
        assert_eq!(arena(BlockKind::Response, &GET).err(), Some(F::PseudoFieldUnknown));
        let none = arena(BlockKind::Response, &[]).unwrap();
        let missing = none.response(RequestKind::default(), true).err();
        assert_eq!(missing, Some(F::PseudoFieldMissing));
    }

    #[test]
    fn trailers_have_no_pseudo_fields_and_forbidden_ones_are_dropped() {
        use FaultKind as F;
        for (name, wanted) in
            [(":path", F::PseudoFieldMisplaced), ("connection", F::ConnectionField)]
        {
            assert_eq!(arena(BlockKind::Trailers, &[(name, "x")]).err(), Some(wanted));
        }
        let fields = [("grpc-status", "0"), ("host", "evil"), ("x-forwarded-for", "1.1.1.1")];
        let trailers = arena(BlockKind::Trailers, &fields).unwrap();
        let names: Vec<_> = trailers.trailers().map(|field| field.name).collect();
        assert_eq!(names, ["grpc-status"]);
    }

    #[test]
    fn priority_of_a_request_is_noticed() {
        let fields = [&GET[..], &[("priority", "u=1, i")]].concat();
        let arena = arena(BlockKind::Request, &fields).unwrap();
        assert_eq!(arena.priority, Some(Priority { urgency: 1, incremental: true }));
    }
}
