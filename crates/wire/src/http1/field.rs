//! Header fields: the names the house acts on, and views of the fields of one head.
//! In: names and values that the tokenizer has found. Out: `Field`s, classified once.
//! Never: copies a name or a value; changes either.
//! Limits: `HEADER_FIELDS_MAX` fields a head.
//! Invariant: a `FieldName` is found with one table look-up; two names never share a slot.

use core::mem::MaybeUninit;
use tidegate_base::limits::HEADER_FIELDS_MAX;

/// One header field.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Field<'a> {
    /// What the name means to this house.
    pub id: FieldName,
    /// The name as it came: a token, in any case.
    pub name: &'a str,
    /// The value as it came, without the white space around it.
    pub value: &'a [u8],
}

/// Room for the fields of one head: put it on the stack, it costs nothing to make.
pub struct FieldStorage<'b> {
    pub(super) headers: [MaybeUninit<httparse::Header<'b>>; HEADER_FIELDS_MAX],
    pub(super) ids: [FieldName; HEADER_FIELDS_MAX],
    /// Only for heads that the tokenizer will not take: a minor version above 1.
    pub(super) rare: Vec<httparse::Header<'b>>,
}

impl FieldStorage<'_> {
    /// Room for `HEADER_FIELDS_MAX` fields.
    #[must_use]
    #[inline]
    pub const fn new() -> Self {
        Self {
            headers: [const { MaybeUninit::uninit() }; HEADER_FIELDS_MAX],
            ids: [FieldName::Other; HEADER_FIELDS_MAX],
            rare: Vec::new(),
        }
    }
}

impl Default for FieldStorage<'_> {
    fn default() -> Self {
        Self::new()
    }
}

/// The fields of one head, in their order.
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
pub(super) struct FieldTable<'a> {
    headers: &'a [httparse::Header<'a>],
    ids: &'a [FieldName],
    /// Bit `id` is set when a field of that name is in.
    seen: u64,
    /// Bit `id` is set when two fields of that name are in.
    repeated: u64,
}

impl<'a> FieldTable<'a> {
    /// Classifies every name of `headers` into `ids`, which has room for them.
    #[inline]
    pub(super) fn new(headers: &'a [httparse::Header<'a>], ids: &'a mut [FieldName]) -> Self {
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
    pub(super) fn iter(&self) -> Fields<'a> {
        Fields { pairs: self.headers.iter().zip(self.ids.iter()) }
    }

    #[inline]
    pub(super) const fn has(&self, id: FieldName) -> bool {
        self.seen & id.bit() != 0
    }

    #[inline]
    pub(super) const fn is_repeated(&self, id: FieldName) -> bool {
        self.repeated & id.bit() != 0
    }

    /// The first value of that name.
    #[inline]
    pub(super) fn find(&self, id: FieldName) -> Option<&'a [u8]> {
        if !self.has(id) {
            return None;
        }
        self.iter().find(|field| field.id == id).map(|field| field.value)
    }

    /// The first value of a field named `name_lower`, whatever the name's case.
    pub(super) fn find_named(&self, name_lower: &str) -> Option<&'a [u8]> {
        self.iter().find(|field| field.name.eq_ignore_ascii_case(name_lower)).map(|f| f.value)
    }

    /// Every element of every field of that name, list syntax undone (RFC 9110 section 5.6.1):
    /// without the white space around it, possibly empty.
    pub(super) fn elements(&self, id: FieldName) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let fields = if self.has(id) { Some(self.iter()) } else { None };
        fields
            .into_iter()
            .flatten()
            .filter(move |field| field.id == id)
            .flat_map(|field| field.value.split(|&byte| byte == b','))
            .map(trim_ows)
    }

    /// Whether a Connection field names `name` (RFC 9110 section 7.6.1).
    pub(super) fn is_nominated(&self, name: &str) -> bool {
        self.elements(FieldName::Connection).any(|e| e.eq_ignore_ascii_case(name.as_bytes()))
    }
}

/// `bytes` without the spaces and tabs around it (OWS of RFC 9110 section 5.6.3).
pub(super) const fn trim_ows(mut bytes: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] = bytes {
        bytes = rest;
    }
    while let [rest @ .., b' ' | b'\t'] = bytes {
        bytes = rest;
    }
    bytes
}

macro_rules! field_names {
    ($($name:ident $lower:literal,)*) => {
        /// The names of fields that something in the house acts on. All others are `Other`.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[repr(u8)]
        pub enum FieldName {
            $(#[doc = $lower] $name,)*
            /// Any name that is not in this list.
            Other,
        }

        impl FieldName {
            /// Every name but `Other`.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];
            const LOWER: [&'static str; Self::ALL.len() + 1] = [$($lower,)* ""];
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
    /// What `name` means, whatever its case.
    #[must_use]
    #[inline]
    pub fn classify(name: &[u8]) -> Self {
        let Some(slot) = slot(name) else {
            return Self::Other;
        };
        let id = SLOTS[slot as usize];
        if id.as_str().as_bytes().eq_ignore_ascii_case(name) { id } else { Self::Other }
    }

    /// The name in lower case; empty for `Other`.
    #[must_use]
    #[inline]
    pub const fn as_str(self) -> &'static str {
        Self::LOWER[self as usize]
    }

    /// This name's bit in a set of names; none for `Other`.
    #[inline]
    const fn bit(self) -> u64 {
        if matches!(self, Self::Other) { 0 } else { 1 << (self as u8) }
    }
}

const _: () = assert!(FieldName::ALL.len() <= 64, "a set of names is one u64");

/// Where a name stands in `SLOTS`; `None` for names shorter than all known ones. The factors were
/// searched for so that no two names meet; `slots` proves it at compile time.
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
        assert!(matches!(table[place as usize], FieldName::Other), "two names meet in a slot");
        table[place as usize] = id;
        index += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_known_in_any_case_and_no_neighbour_is() {
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
        for name in ["", "a", "x-other", "content_length"] {
            assert_eq!(FieldName::classify(name.as_bytes()), FieldName::Other, "{name}");
        }
    }

    #[test]
    fn ows_is_taken_off_both_ends_only() {
        for (given, wanted) in [(" \ta b\t ", "a b"), ("", ""), (" ", ""), ("a", "a")] {
            assert_eq!(trim_ows(given.as_bytes()), wanted.as_bytes());
        }
    }
}
