//! Heads and trailers: the fields of a header block, checked as a message (RFC 9113 section 8).
//! In: decoded fields, one by one. Out: `Request`, `ResponseHead`, trailers; or the first fault.
//! Never: repairs a message. Fields are checked by the same functions as in HTTP/1 (`message::syntax`,
//! `target`, `length`), so that whatever is accepted here can be forwarded there.
//! Limits: those of the header block decoder; `HOST_BYTES_MAX`, `PRIORITY_BYTES_MAX`.
//! Invariant: all cookie fields of a request are joined into one (RFC 9113 section 8.2.3).

use super::bounds::COOKIE_CRUMBS_MAX;
use super::connection::Config;
use super::fault::FaultKind;
use super::hpack::static_table::{self, is_same};
use super::hpack::{self, Known};
use super::latest::LatestBlock;
use super::priority::Priority;
use crate::message::field::{FieldTable, Packed, PackedField};
use crate::message::length::content_length;
use crate::message::request::expects_continue;
use crate::message::syntax::{are_text, is_lower_token, is_token};
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
    /// The scheme that the client sends: http or https, in any case.
    pub scheme: &'a str,
}

/// The kind of a header block.
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

/// A pseudo-header field.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Pseudo {
    Method,
    Scheme,
    Authority,
    Path,
    Protocol,
    Status,
}

impl Pseudo {
    /// The names, in the order of the variants.
    const NAMES: [(&'static str, Self); 6] = [
        (":method", Self::Method),
        (":scheme", Self::Scheme),
        (":authority", Self::Authority),
        (":path", Self::Path),
        (":protocol", Self::Protocol),
        (":status", Self::Status),
    ];

    fn of(name: &[u8]) -> Option<Self> {
        let found = Self::NAMES.iter().find(|(known, _)| known.as_bytes() == name);
        found.map(|(_, pseudo)| *pseudo)
    }

    /// The fault of an invalid value of this field.
    const fn fault(self) -> FaultKind {
        match self {
            Self::Method => FaultKind::MethodInvalid,
            Self::Scheme => FaultKind::SchemeInvalid,
            Self::Authority => FaultKind::AuthorityInvalid,
            Self::Path => FaultKind::PathInvalid,
            Self::Protocol => FaultKind::ProtocolNotEnabled,
            Self::Status => FaultKind::StatusInvalid,
        }
    }
}

/// The kind of a valid name. The decoder keeps it, as a number, with the entries of its tables, so that the name and the value of
/// a repeated field are not examined again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Subject {
    /// A pseudo-header field.
    Pseudo(Pseudo),
    /// Any other field.
    Regular(FieldName),
}

/// The note about the first name that is no pseudo-header field.
const REGULAR_NOTE: u16 = 1 + Pseudo::NAMES.len() as u16;

impl Subject {
    /// The number of a subject; never 0.
    const fn note(self) -> u16 {
        match self {
            Self::Pseudo(pseudo) => 1 + pseudo as u16,
            Self::Regular(id) => REGULAR_NOTE + id as u16,
        }
    }

    /// The subject with this number.
    #[inline]
    fn of_note(note: u16) -> Option<Self> {
        if let Some(number) = note.checked_sub(REGULAR_NOTE) {
            return FieldName::of_number(number).map(Self::Regular);
        }
        let (_, pseudo) = Pseudo::NAMES.get(usize::from(note).wrapping_sub(1))?;
        Some(Self::Pseudo(*pseudo))
    }

    /// The kind of a name of the static table.
    const fn of_static(name: &[u8]) -> Self {
        let mut at = 0;
        while at < Pseudo::NAMES.len() {
            if is_same(Pseudo::NAMES[at].0.as_bytes(), name) {
                return Self::Pseudo(Pseudo::NAMES[at].1);
            }
            at += 1;
        }
        at = 0;
        while at < FieldName::ALL.len() {
            if is_same(FieldName::ALL[at].as_str().as_bytes(), name) {
                return Self::Regular(FieldName::ALL[at]);
            }
            at += 1;
        }
        Self::Regular(FieldName::Other)
    }
}

/// The notes about the entries of the static table. All of them are valid.
static STATIC_NOTES: [u16; static_table::LENGTH] = {
    let mut notes = [0; static_table::LENGTH];
    let mut at = 0;
    while at < notes.len() {
        notes[at] = Subject::of_static(static_table::TABLE[at].0).note();
        at += 1;
    }
    notes
};

/// Memory for the fields of one header block. One per worker is enough; an event borrows from it.
#[derive(Debug)]
pub struct Scratch {
    /// Memory of the header block decoder.
    pub(super) hpack: hpack::Scratch,
    /// The fields of the latest block.
    pub(super) fields: FieldArena,
    /// The latest block itself, if the same bytes mean the same fields.
    pub(super) latest: LatestBlock,
}

impl Scratch {
    /// Creates empty memory; it grows at the first use.
    #[must_use]
    pub const fn new() -> Self {
        Self { hpack: hpack::Scratch::new(), fields: FieldArena::new(), latest: LatestBlock::new() }
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
    /// The kind of the block.
    kind: BlockKind,
    /// The names of the fields and the values of the pseudo-header fields, one after the other, until the block is
    /// complete. All of them are ASCII.
    collected: Vec<u8>,
    /// `collected`, once the block is complete.
    names: String,
    /// The values of the fields, one after the other.
    values: Vec<u8>,
    /// The fields, without pseudo-header fields.
    fields: Vec<PackedField>,
    /// The offsets in `names` of the values of the pseudo-header fields.
    pseudo: [Option<(u32, u32)>; 6],
    /// The index of the cookie field in `fields`.
    cookie_at: Option<usize>,
    /// The crumbs of the cookie joined, if there are more than one.
    cookie: Vec<u8>,
    /// The priority that the fields state.
    pub(super) priority: Option<Priority>,
    /// The first fault.
    fault: Option<FaultKind>,
    /// The kind of the latest field (`Subject::note`).
    note: u16,
}

impl FieldArena {
    const fn new() -> Self {
        Self {
            kind: BlockKind::Discarded,
            collected: Vec::new(),
            names: String::new(),
            values: Vec::new(),
            fields: Vec::new(),
            pseudo: [None; 6],
            cookie_at: None,
            cookie: Vec::new(),
            priority: None,
            fault: None,
            note: 0,
        }
    }

    /// Empties the arena for a block.
    pub(super) fn begin(&mut self, kind: BlockKind) {
        self.kind = kind;
        self.collected = core::mem::take(&mut self.names).into_bytes();
        self.collected.clear();
        self.values.clear();
        self.fields.clear();
        self.pseudo = [None; 6];
        self.cookie_at = None;
        self.cookie.clear();
        self.priority = None;
        self.fault = None;
        self.note = 0;
    }

    /// The first fault of the fields.
    pub(super) const fn fault(&self) -> Option<FaultKind> {
        self.fault
    }

    /// Completes a block: joins the cookie.
    pub(super) fn finish(&mut self) {
        // It never fails, because names and values of pseudo-header fields are ASCII. One check costs less than one for
        // each field.
        match String::from_utf8(core::mem::take(&mut self.collected)) {
            Ok(names) => self.names = names,
            Err(_) => self.fault = self.fault.or(Some(FaultKind::FieldNameInvalid)),
        }
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

    /// Takes a field. Returns its kind.
    #[inline]
    fn take(&mut self, field: &hpack::Field<'_>, known: Known) -> Result<Subject, FaultKind> {
        let subject = match (Subject::of_note(known.note), field.name) {
            (Some(subject), _) => subject,
            (None, [b':', ..]) => {
                self.check_pseudo_place()?;
                let pseudo = Pseudo::of(field.name).ok_or(FaultKind::PseudoFieldUnknown)?;
                Subject::Pseudo(pseudo)
            }
            (None, name) if is_lower_token(name) => Subject::Regular(FieldName::classify(name)),
            (None, _) => return Err(FaultKind::FieldNameInvalid),
        };
        // The value of an entry without a note was never checked: its field was refused, or followed a refused field.
        let is_valid = known.note != 0 && known.has_value;
        match subject {
            Subject::Pseudo(pseudo) => self.take_pseudo(pseudo, field.value, is_valid)?,
            Subject::Regular(id) => self.take_regular(id, field, is_valid)?,
        }
        Ok(subject)
    }

    /// Pseudo-header fields are first, and never in trailers (RFC 9113 section 8.3).
    fn check_pseudo_place(&self) -> Result<(), FaultKind> {
        match self.fields.is_empty() && self.kind != BlockKind::Trailers {
            true => Ok(()),
            false => Err(FaultKind::PseudoFieldMisplaced),
        }
    }

    /// `is_valid`: the value was checked when it entered a table.
    fn take_pseudo(
        &mut self,
        pseudo: Pseudo,
        value: &[u8],
        is_valid: bool,
    ) -> Result<(), FaultKind> {
        self.check_pseudo_place()?;
        if (pseudo == Pseudo::Status) == (self.kind == BlockKind::Request) {
            return Err(FaultKind::PseudoFieldUnknown);
        }
        if !is_valid && !value.iter().all(u8::is_ascii_graphic) {
            return Err(pseudo.fault());
        }
        let start = self.collected.len() as u32;
        self.collected.extend_from_slice(value);
        match self.pseudo.get_mut(pseudo as usize) {
            Some(place @ None) => {
                *place = Some((start, self.collected.len() as u32));
                Ok(())
            }
            _ => Err(FaultKind::PseudoFieldRepeated),
        }
    }

    /// Takes a field whose name is valid. `is_valid`: the value was checked when it entered a table.
    fn take_regular(
        &mut self,
        id: FieldName,
        field: &hpack::Field<'_>,
        is_valid: bool,
    ) -> Result<(), FaultKind> {
        let hpack::Field { name, value, is_sensitive } = *field;
        if !is_valid {
            check_value(value)?;
        }
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
            FieldName::Other if name == b"priority" => {
                self.priority = Some(Priority::parse(value));
            }
            _ => {}
        }
        let is_forbidden = || from_utf8(name).map_or(true, is_trailer_forbidden);
        if self.kind == BlockKind::Trailers && is_forbidden() {
            return Ok(());
        }
        self.push(id, name, value, is_sensitive);
        Ok(())
    }

    fn push(&mut self, id: FieldName, name: &[u8], value: &[u8], is_sensitive: bool) {
        let (name_start, value_start) = (self.collected.len() as u32, self.values.len() as u32);
        self.collected.extend_from_slice(name);
        self.values.extend_from_slice(value);
        self.fields.push(PackedField {
            id,
            name: (name_start, self.collected.len() as u32),
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
        self.take_known(field, Known::default())
    }

    #[inline]
    fn take_known(&mut self, field: hpack::Field<'_>, known: Known) -> ControlFlow<()> {
        if self.kind == BlockKind::Discarded {
            return ControlFlow::Break(());
        }
        match self.take(&field, known) {
            Ok(subject) => {
                self.note = subject.note();
                ControlFlow::Continue(())
            }
            Err(fault) => {
                self.fault = Some(fault);
                ControlFlow::Break(())
            }
        }
    }

    #[inline]
    fn note(&self) -> u16 {
        self.note
    }

    #[inline]
    fn static_note(index: usize) -> u16 {
        STATIC_NOTES.get(index).copied().unwrap_or_default()
    }
}

/// A field value: no control characters, and no blanks around it (RFC 9113 section 8.2.1).
fn check_value(value: &[u8]) -> Result<(), FaultKind> {
    let is_blank = |byte: Option<&u8>| matches!(byte, Some(b' ' | b'\t'));
    if is_blank(value.first()) || is_blank(value.last()) || !are_text(value) {
        return Err(FaultKind::FieldValueInvalid);
    }
    Ok(())
}

impl FieldArena {
    /// The block as a request head. `ends` says whether the request ends with it.
    pub(super) fn request(&self, config: &Config, ends: bool) -> Result<Request<'_>, FaultKind> {
        let fields = self.table();
        let token = self.pseudo(Pseudo::Method).ok_or(FaultKind::PseudoFieldMissing)?;
        if !is_token(token.as_bytes()) {
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
            if is_token(protocol.as_bytes()) {
                Ok(())
            } else {
                Err(FaultKind::ProtocolNotEnabled)
            }
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

    /// Takes `fields` as a request and returns the result of `look`.
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

    /// Takes fields without its notes about them.
    struct Forgetful<'a>(&'a mut FieldArena);

    impl FieldSink for Forgetful<'_> {
        fn take_field(&mut self, field: hpack::Field<'_>) -> ControlFlow<()> {
            self.0.take_field(field)
        }
    }

    #[test]
    fn notes_about_fields_of_tables_change_no_block() {
        const NAMES: [&[u8]; 14] = [
            b":method",
            b":path",
            b":status",
            b":authority",
            b":unknown",
            b"te",
            b"cookie",
            b"connection",
            b"content_length",
            b"priority",
            b"x-a",
            b"X-B",
            b"",
            b"x y",
        ];
        const VALUES: [&[u8]; 8] =
            [b"GET", b"/", b"200", b"trailers", b" blank", b"a\0b", b"caf\xc3\xa9", b"a=1; b=2"];
        let mut prng = tidegate_base::Prng::new(7);
        let mut below = |bound: usize| (prng.next_u64() >> 11) as usize % bound;
        let limits = limits_of(BlockKind::Request, &Config::server());
        let mut noted = 0;
        for _ in 0..200 {
            let mut encoder = hpack::Encoder::new(4096);
            let mut decoders = [hpack::Decoder::new(), hpack::Decoder::new()];
            let mut arenas = [FieldArena::new(), FieldArena::new()];
            let mut scratch = hpack::Scratch::new();
            for _ in 0..40 {
                let mut bytes = Vec::new();
                let mut block = encoder.begin(&mut bytes);
                for _ in 0..below(6) {
                    let (name, value) = (NAMES[below(NAMES.len())], VALUES[below(VALUES.len())]);
                    block.encode_field(name, value, hpack::Indexing::Auto);
                }
                let kinds = [BlockKind::Request, BlockKind::Response, BlockKind::Trailers];
                let kind = kinds.get(below(4)).copied().unwrap_or(BlockKind::Discarded);
                let [with_notes, without] = &mut arenas;
                with_notes.begin(kind);
                without.begin(kind);
                let [first, second] = &mut decoders;
                let decoded = first.decode(&bytes, &limits, &mut scratch, with_notes);
                let mut forgetful = Forgetful(without);
                assert_eq!(second.decode(&bytes, &limits, &mut scratch, &mut forgetful), decoded);
                with_notes.finish();
                without.finish();
                assert_eq!(format!("{with_notes:?}"), format!("{without:?}"));
                noted += usize::from(with_notes.note > 0);
            }
        }
        assert!(noted > 1000, "{noted}");
    }

    #[test]
    fn every_entry_of_the_static_table_is_known() {
        for (&(name, _), &note) in static_table::TABLE.iter().zip(&STATIC_NOTES) {
            let expected = match Pseudo::of(name) {
                Some(pseudo) => Subject::Pseudo(pseudo),
                None => Subject::Regular(FieldName::classify(name)),
            };
            assert_eq!(Subject::of_note(note), Some(expected), "{}", name.escape_ascii());
        }
        assert_eq!(Subject::of_note(0), None);
        for id in [FieldName::FramingLookalike, FieldName::Other] {
            assert_eq!(Subject::of_note(Subject::Regular(id).note()), Some(Subject::Regular(id)));
        }
        for (pseudo, at) in Pseudo::NAMES.iter().zip(0..) {
            assert_eq!(pseudo.1 as usize, at, "the table is in the order of the variants");
        }
    }

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
