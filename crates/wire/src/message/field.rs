//! Header fields: the names that Tidegate acts on, and views of the fields of one head.
//! In: names and values from the tokenizer of HTTP/1, or packed by the decoder of another protocol.
//! Out: `Field`s, each classified once.
//! Never: copies or changes a name or a value.
//! Limits: `HEADER_FIELDS_MAX` fields in a request head, `RESPONSE_FIELDS_MAX` in a response head.
//! Invariant: classifying a name takes one table lookup; no two names share a slot.

use super::claim::is_alike;
use super::syntax::trim_ows;
use core::mem::MaybeUninit;
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
    /// The sender requires that no intermediary puts the field into a compression table (RFC 7541 section 7.1.3). Always false in
    /// HTTP/1.
    pub is_sensitive: bool,
}

/// Storage for the fields of one request head, or of any head with at most `FIELDS` fields, which the
/// tokenizer of HTTP/1 fills. Keep it on the stack; creating it is almost free.
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

/// A field of a head that was not received as text: where its name and value are in [`Packed`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct PackedField {
    /// The classified name.
    pub(crate) id: FieldName,
    /// The start and the end of the name in `Packed::names`.
    pub(crate) name: (u32, u32),
    /// The start and the end of the value in `Packed::values`.
    pub(crate) value: (u32, u32),
    /// As in [`Field`].
    pub(crate) is_sensitive: bool,
}

/// The fields of a head that was not received as text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packed<'a> {
    /// The fields, in order.
    pub(crate) fields: &'a [PackedField],
    /// The names that the fields refer to.
    pub(crate) names: &'a str,
    /// The values that the fields refer to.
    pub(crate) values: &'a [u8],
}

impl<'a> Packed<'a> {
    /// The name and value of `field`.
    #[inline]
    pub(crate) fn unpack(&self, field: &PackedField) -> Field<'a> {
        let (name, value) = (field.name, field.value);
        Field {
            id: field.id,
            name: self.names.get(name.0 as usize..name.1 as usize).unwrap_or_default(),
            value: self.values.get(value.0 as usize..value.1 as usize).unwrap_or_default(),
            is_sensitive: field.is_sensitive,
        }
    }
}

/// An iterator over the fields of one head, in order.
#[derive(Clone, Debug)]
pub struct Fields<'a> {
    /// The fields that are left.
    source: Source<'a>,
}

/// The places of the fields of a head.
#[derive(Clone, Debug)]
enum Source<'a> {
    /// In the text of a head.
    Text(
        core::iter::Zip<
            core::slice::Iter<'a, httparse::Header<'a>>,
            core::slice::Iter<'a, FieldName>,
        >,
    ),
    /// Decoded from another form.
    Packed(Packed<'a>),
}

impl<'a> Iterator for Fields<'a> {
    type Item = Field<'a>;

    #[inline]
    fn next(&mut self) -> Option<Field<'a>> {
        match &mut self.source {
            Source::Text(pairs) => {
                let (header, &id) = pairs.next()?;
                Some(Field { id, name: header.name, value: header.value, is_sensitive: false })
            }
            Source::Packed(packed) => {
                let (first, rest) = packed.fields.split_first()?;
                packed.fields = rest;
                Some(packed.unpack(first))
            }
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        match &self.source {
            Source::Text(pairs) => pairs.size_hint(),
            Source::Packed(packed) => (packed.fields.len(), Some(packed.fields.len())),
        }
    }
}

impl ExactSizeIterator for Fields<'_> {}

/// The fields of one head with their names classified.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FieldTable<'a> {
    /// Names and values of a head received as text, in order; empty for any other head.
    headers: &'a [httparse::Header<'a>],
    /// The classified names, in the order of `headers`.
    ids: &'a [FieldName],
    /// The fields of a head that was not received as text.
    packed: Option<Packed<'a>>,
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
        Self { headers, ids, packed: None, seen, repeated }
    }

    /// The table of a head that was not received as text.
    pub(crate) fn of_packed(packed: Packed<'a>) -> Self {
        let (mut seen, mut repeated) = (0_u64, 0_u64);
        for field in packed.fields {
            let bit = field.id.bit();
            repeated |= seen & bit;
            seen |= bit;
        }
        Self { headers: &[], ids: &[], packed: Some(packed), seen, repeated }
    }

    #[inline]
    pub(crate) fn iter(&self) -> Fields<'a> {
        let source = match self.packed {
            None => Source::Text(self.headers.iter().zip(self.ids.iter())),
            Some(packed) => Source::Packed(packed),
        };
        Fields { source }
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

    /// The name whose number (`as u16`) this is.
    #[inline]
    pub(crate) fn of_number(number: u16) -> Option<Self> {
        const LOOKALIKE: usize = FieldName::FramingLookalike as usize;
        const OTHER: usize = FieldName::Other as usize;
        match usize::from(number) {
            LOOKALIKE => Some(Self::FramingLookalike),
            OTHER => Some(Self::Other),
            number => Self::ALL.get(number).copied(),
        }
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
}
