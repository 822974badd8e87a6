//! Header fields: the names that Tidegate acts on, and views of the fields of one head.
//! In: names and values from the tokenizer of HTTP/1, or one by one from the decoder of another protocol.
//! Out: `Field`s, each classified once.
//! Never: copies or changes a name or a value.
//! Limits: `HEADER_FIELDS_MAX` fields in a request head, `RESPONSE_FIELDS_MAX` in a response head.
//! Invariant: classifying a name takes one table look-up; no two names share a slot.

use super::claim::is_alike;
use super::fault::{Fault, FaultKind};
use super::syntax::{is_text, is_token, trim_ows};
use core::mem::MaybeUninit;
use core::str::from_utf8;
use tidegate_base::limits::{HEADER_FIELDS_MAX, RESPONSE_FIELDS_MAX};

/// One header field.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Field<'a> {
    /// The classified name.
    pub id: FieldName,
    /// The name as received: a token, in any case.
    pub name: &'a str,
    /// The value as received, without the whitespace around it.
    pub value: &'a [u8],
}

/// Storage for the fields of one request head, or of any head with at most `FIELDS` fields, which the
/// tokenizer of HTTP/1 fills. Keep it on the stack; creating it is almost free. Decoders that get names and
/// values one by one use a [`FieldList`].
pub struct FieldStorage<'b, const FIELDS: usize = HEADER_FIELDS_MAX> {
    /// Storage that the tokenizer writes names and values into.
    pub(crate) headers: [MaybeUninit<httparse::Header<'b>>; FIELDS],
    /// The classified names, in the order of the fields.
    pub(crate) ids: [FieldName; FIELDS],
    /// Fields of a head that the tokenizer does not support: one with a minor version above 1.
    /// Otherwise without memory.
    pub(crate) rare: Vec<httparse::Header<'b>>,
}

/// Storage for the fields of one response head.
pub type ResponseStorage<'b> = FieldStorage<'b, RESPONSE_FIELDS_MAX>;

impl<const FIELDS: usize> FieldStorage<'_, FIELDS> {
    /// Creates storage for `FIELDS` fields.
    #[must_use]
    #[inline]
    pub const fn new() -> Self {
        Self {
            headers: [const { MaybeUninit::uninit() }; FIELDS],
            ids: [FieldName::Other; FIELDS],
            rare: Vec::new(),
        }
    }
}

impl<const FIELDS: usize> Default for FieldStorage<'_, FIELDS> {
    fn default() -> Self {
        Self::new()
    }
}

/// The fields of one head from a decoder that gets names and values one by one, as that of HTTP/2 does. Keep
/// it on the stack; creating it writes `FIELDS` empty fields.
pub struct FieldList<'b, const FIELDS: usize = HEADER_FIELDS_MAX> {
    /// Names and values; the first `count` are in use.
    headers: [httparse::Header<'b>; FIELDS],
    /// The classified names, in the order of the fields.
    ids: [FieldName; FIELDS],
    /// The number of fields; at most `FIELDS`.
    count: usize,
    /// As `FieldTable::seen`.
    seen: u64,
    /// As `FieldTable::repeated`.
    repeated: u64,
}

/// The fields of one response head, as a [`FieldList`].
pub type ResponseFieldList<'b> = FieldList<'b, RESPONSE_FIELDS_MAX>;

impl<'b, const FIELDS: usize> FieldList<'b, FIELDS> {
    /// Creates an empty list.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            headers: [httparse::EMPTY_HEADER; FIELDS],
            ids: [FieldName::Other; FIELDS],
            count: 0,
            seen: 0,
            repeated: 0,
        }
    }

    /// Appends a field after judging its name and value as HTTP/1 does. The caller judges what only its
    /// protocol forbids, such as upper case in the names of HTTP/2.
    ///
    /// # Errors
    /// The name is not a token; the value contains a control character, or begins or ends with whitespace;
    /// the list is full. The message must be rejected.
    pub fn push(&mut self, name: &'b [u8], value: &'b [u8]) -> Result<(), Fault> {
        if name.is_empty() {
            return Err(FaultKind::FieldNameEmpty.into());
        }
        if !is_token(name) {
            return Err(FaultKind::FieldNameInvalid.into());
        }
        if !value.iter().all(|&byte| is_text(byte)) {
            return Err(FaultKind::ControlByte.into());
        }
        if trim_ows(value).len() != value.len() {
            return Err(FaultKind::FieldValuePadded.into());
        }
        let (Some(header), Some(id)) =
            (self.headers.get_mut(self.count), self.ids.get_mut(self.count))
        else {
            return Err(FaultKind::TooManyFields.into());
        };
        *id = FieldName::classify(name);
        let name = from_utf8(name).map_err(|_| FaultKind::FieldNameInvalid)?;
        *header = httparse::Header { name, value };
        self.repeated |= self.seen & id.bit();
        self.seen |= id.bit();
        self.count += 1;
        Ok(())
    }

    /// The fields so far.
    #[must_use]
    pub fn table(&self) -> FieldTable<'_> {
        FieldTable {
            headers: self.headers.get(..self.count).unwrap_or_default(),
            ids: self.ids.get(..self.count).unwrap_or_default(),
            seen: self.seen,
            repeated: self.repeated,
        }
    }
}

impl<const FIELDS: usize> Default for FieldList<'_, FIELDS> {
    fn default() -> Self {
        Self::new()
    }
}

/// An iterator over the fields of one head, in order.
#[derive(Clone, Debug)]
pub struct Fields<'a> {
    pairs: core::iter::Zip<
        core::slice::Iter<'a, httparse::Header<'a>>,
        core::slice::Iter<'a, FieldName>,
    >,
}

impl<'a> Iterator for Fields<'a> {
    type Item = Field<'a>;

    #[inline]
    fn next(&mut self) -> Option<Field<'a>> {
        self.pairs.next().map(|(header, &id)| Field { id, name: header.name, value: header.value })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.pairs.size_hint()
    }
}

impl ExactSizeIterator for Fields<'_> {}

/// The fields of one head with their names classified.
#[derive(Clone, Copy, Debug)]
pub struct FieldTable<'a> {
    /// Names and values, in order.
    headers: &'a [httparse::Header<'a>],
    /// The classified names, in the order of `headers`.
    ids: &'a [FieldName],
    /// Bit `id` is set if at least one field has this name.
    seen: u64,
    /// Bit `id` is set if more than one field has this name.
    repeated: u64,
}

impl<'a> FieldTable<'a> {
    /// Classifies every name in `headers` into `ids`, which must be at least as long.
    #[inline]
    pub(crate) fn new(headers: &'a [httparse::Header<'a>], ids: &'a mut [FieldName]) -> Self {
        let (mut seen, mut repeated) = (0_u64, 0_u64);
        for (header, id) in headers.iter().zip(ids.iter_mut()) {
            *id = FieldName::classify(header.name.as_bytes());
            let bit = id.bit();
            repeated |= seen & bit;
            seen |= bit;
        }
        Self { headers, ids, seen, repeated }
    }

    #[inline]
    pub(crate) fn iter(&self) -> Fields<'a> {
        Fields { pairs: self.headers.iter().zip(self.ids.iter()) }
    }

    #[inline]
    pub(crate) const fn has(&self, id: FieldName) -> bool {
        self.seen & id.bit() != 0
    }

    #[inline]
    pub(crate) const fn is_repeated(&self, id: FieldName) -> bool {
        self.repeated & id.bit() != 0
    }

    /// The value of the first field with this name.
    #[inline]
    pub(crate) fn find(&self, id: FieldName) -> Option<&'a [u8]> {
        if !self.has(id) {
            return None;
        }
        self.iter().find(|field| field.id == id).map(|field| field.value)
    }

    /// The value of the first field named `name_lower`; case is ignored.
    pub(crate) fn find_named(&self, name_lower: &str) -> Option<&'a [u8]> {
        self.iter().find(|field| field.name.eq_ignore_ascii_case(name_lower)).map(|f| f.value)
    }

    /// The list elements of all fields with this name (RFC 9110 section 5.6.1), without the whitespace
    /// around them. Elements may be empty.
    pub(crate) fn elements(&self, id: FieldName) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let fields = if self.has(id) { Some(self.iter()) } else { None };
        fields
            .into_iter()
            .flatten()
            .filter(move |field| field.id == id)
            .flat_map(|field| field.value.split(|&byte| byte == b','))
            .map(trim_ows)
    }

    /// Whether a Connection field lists `name` (RFC 9110 section 7.6.1).
    pub(crate) fn is_nominated(&self, name: &str) -> bool {
        self.elements(FieldName::Connection).any(|e| e.eq_ignore_ascii_case(name.as_bytes()))
    }
}

/// Implements the public access to the fields of a head, the same for requests and responses. The head must
/// have a `FieldTable` named `fields`.
macro_rules! field_accessors {
    ($head:ident) => {
        impl<'a> $head<'a> {
            /// The fields, in order.
            #[inline]
            #[must_use]
            pub fn fields(&self) -> crate::message::Fields<'a> {
                self.fields.iter()
            }

            /// Whether a Connection field lists `name`; case is ignored. A field listed there is hop-by-hop
            /// (RFC 9110 section 7.6.1).
            #[must_use]
            pub fn is_nominated(&self, name: &str) -> bool {
                self.fields.is_nominated(name)
            }

            /// Whether a field with this name is present. The cost is one bit test.
            #[must_use]
            #[inline]
            pub fn has(&self, id: crate::message::FieldName) -> bool {
                self.fields.has(id)
            }

            /// The value of the first field with this name.
            #[must_use]
            #[inline]
            pub fn find(&self, id: crate::message::FieldName) -> Option<&'a [u8]> {
                self.fields.find(id)
            }

            /// The value of the first field named `name_lower`; case is ignored.
            #[must_use]
            pub fn find_named(&self, name_lower: &str) -> Option<&'a [u8]> {
                self.fields.find_named(name_lower)
            }
        }
    };
}
pub(super) use field_accessors;

macro_rules! field_names {
    ($($name:ident $lower:literal,)*) => {
        /// The field names that Tidegate acts on. All other names are `Other`.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[repr(u8)]
        pub enum FieldName {
            $(#[doc = $lower] $name,)*
            /// Content-Length or Transfer-Encoding with `_` for `-`. Gateway interfaces such as CGI map both
            /// spellings to the same variable, so a server may take this field for a statement of the length.
            FramingLookalike,
            /// Any name that is not in this list.
            Other,
        }

        impl FieldName {
            /// Every name but `FramingLookalike` and `Other`.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];
            const LOWER: [&'static str; Self::ALL.len() + 2] = [$($lower,)* "", ""];
        }
    };
}

field_names! {
    Accept "accept",
    AcceptEncoding "accept-encoding",
    AltSvc "alt-svc",
    Authorization "authorization",
    CacheControl "cache-control",
    Connection "connection",
    ContentEncoding "content-encoding",
    ContentLength "content-length",
    ContentRange "content-range",
    ContentType "content-type",
    Cookie "cookie",
    Date "date",
    Etag "etag",
    Expect "expect",
    Forwarded "forwarded",
    Host "host",
    Http2Settings "http2-settings",
    IfRange "if-range",
    KeepAlive "keep-alive",
    Location "location",
    MaxForwards "max-forwards",
    Origin "origin",
    ProxyAuthenticate "proxy-authenticate",
    ProxyAuthenticationInfo "proxy-authentication-info",
    ProxyAuthorization "proxy-authorization",
    ProxyConnection "proxy-connection",
    Range "range",
    Referer "referer",
    SecWebsocketAccept "sec-websocket-accept",
    SecWebsocketExtensions "sec-websocket-extensions",
    SecWebsocketKey "sec-websocket-key",
    SecWebsocketProtocol "sec-websocket-protocol",
    SecWebsocketVersion "sec-websocket-version",
    Server "server",
    SetCookie "set-cookie",
    Te "te",
    Trailer "trailer",
    TransferEncoding "transfer-encoding",
    Upgrade "upgrade",
    UserAgent "user-agent",
    Vary "vary",
    Via "via",
    WwwAuthenticate "www-authenticate",
    XForwardedFor "x-forwarded-for",
    XForwardedHost "x-forwarded-host",
    XForwardedPort "x-forwarded-port",
    XForwardedProto "x-forwarded-proto",
    XRealIp "x-real-ip",
    XRequestId "x-request-id",
}

impl FieldName {
    /// Classifies `name`; case is ignored.
    #[must_use]
    #[inline]
    pub fn classify(name: &[u8]) -> Self {
        let Some(slot) = slot(name) else {
            return Self::Other;
        };
        let id = SLOTS[slot as usize];
        if id.as_str().as_bytes().eq_ignore_ascii_case(name) { id } else { id.lookalike(name) }
    }

    /// Classifies a name that has the slot of `self`, but is not its name. Neither of the two names has a
    /// hyphen among the bytes that choose the slot, so their lookalikes have the same slots.
    #[inline]
    fn lookalike(self, name: &[u8]) -> Self {
        let is_framing = matches!(self, Self::ContentLength | Self::TransferEncoding);
        if is_framing && is_alike(name, self.as_str().as_bytes()) {
            return Self::FramingLookalike;
        }
        Self::Other
    }

    /// The name in lower case; empty for `FramingLookalike` and `Other`.
    #[must_use]
    #[inline]
    pub const fn as_str(self) -> &'static str {
        Self::LOWER[self as usize]
    }

    /// The bit of this name in a set of names; 0 for `Other`.
    #[inline]
    const fn bit(self) -> u64 {
        if matches!(self, Self::Other) { 0 } else { 1 << (self as u8) }
    }
}

const _: () = assert!(FieldName::ALL.len() < 64, "a set of names must fit in a u64");

/// The index of a name in `SLOTS`; `None` for names shorter than all known ones. The factors were
/// chosen by search so that no two names collide; `slots` proves it at compile time.
#[inline]
const fn slot(name: &[u8]) -> Option<u8> {
    if let [first, .., last] = name
        && let [.., second_last, _] = name
    {
        let place = name.len() as u32
            + (*first | 0x20) as u32 * 3
            + (*last | 0x20) as u32 * 10
            + (*second_last | 0x20) as u32;
        Some((place & 0xff) as u8)
    } else {
        None
    }
}

static SLOTS: [FieldName; 256] = slots();

const fn slots() -> [FieldName; 256] {
    let mut table = [FieldName::Other; 256];
    let mut index = 0;
    while index < FieldName::ALL.len() {
        let id = FieldName::ALL[index];
        let Some(place) = slot(id.as_str().as_bytes()) else { panic!("a name is too short") };
        assert!(matches!(table[place as usize], FieldName::Other), "two names share a slot");
        table[place as usize] = id;
        index += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_classified_in_any_case_and_similar_names_are_not() {
        for &id in FieldName::ALL {
            let lower = id.as_str();
            assert_eq!(FieldName::classify(lower.as_bytes()), id);
            assert_eq!(FieldName::classify(lower.to_ascii_uppercase().as_bytes()), id);
            assert_eq!(lower, lower.to_ascii_lowercase());
            for at in 0..lower.len() {
                let mut near = lower.as_bytes().to_vec();
                near[at] ^= 0x03;
                assert_ne!(FieldName::classify(&near), id);
            }
            assert_eq!(FieldName::classify(format!("{lower}x").as_bytes()), FieldName::Other);
        }
        for name in ["content_length", "Content_Length", "TRANSFER_ENCODING", "transfer_encoding"] {
            assert_eq!(FieldName::classify(name.as_bytes()), FieldName::FramingLookalike, "{name}");
        }
        for name in ["", "a", "x-other", "content_type", "content.length", "content_lengthh"] {
            assert_eq!(FieldName::classify(name.as_bytes()), FieldName::Other, "{name}");
        }
    }

    #[test]
    fn pushed_fields_are_judged_and_classified() {
        let mut list: FieldList<'_, 3> = FieldList::new();
        for (name, value, wanted) in [
            (&b""[..], &b"a"[..], FaultKind::FieldNameEmpty),
            (b":path", b"a", FaultKind::FieldNameInvalid),
            (b"a b", b"a", FaultKind::FieldNameInvalid),
            ("\u{e9}".as_bytes(), b"a", FaultKind::FieldNameInvalid),
            (b"a", b"a\r\nb", FaultKind::ControlByte),
            (b"a", b"\0", FaultKind::ControlByte),
            (b"a", b" b", FaultKind::FieldValuePadded),
            (b"a", b"b\t", FaultKind::FieldValuePadded),
        ] {
            assert_eq!(list.push(name, value), Err(wanted.into()), "{name:?}");
        }
        for (name, value) in [(&b"host"[..], &b"h"[..]), (b"x-a", b""), (b"Host", b"\xe9 b")] {
            assert_eq!(list.push(name, value), Ok(()));
        }
        assert_eq!(list.push(b"a", b"b"), Err(FaultKind::TooManyFields.into()));
        let table = list.table();
        let ids: Vec<FieldName> = table.iter().map(|field| field.id).collect();
        assert_eq!(ids, [FieldName::Host, FieldName::Other, FieldName::Host]);
        assert!(table.has(FieldName::Host) && table.is_repeated(FieldName::Host));
        assert!(!table.has(FieldName::Via));
        assert_eq!(table.find(FieldName::Host), Some(&b"h"[..]));
        assert_eq!(table.find_named("x-a"), Some(&b""[..]));
    }
}
