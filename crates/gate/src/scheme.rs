//! The scheme by which the client sent a request: http or https.
//! In: the scheme of the client's connection, a head, whether its fields are trusted. Out: a scheme.
//! Never: derives the scheme from a port: a listener on 443 may be plain.

use tidegate_wire::message::{FieldName, RequestHead};

use crate::chain;

/// The scheme of a URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// Plain HTTP.
    Http,
    /// HTTP over TLS.
    Https,
}

impl Scheme {
    /// The scheme of a connection with or without TLS.
    #[must_use]
    pub const fn of_connection(secured: bool) -> Self {
        if secured { Self::Https } else { Self::Http }
    }

    /// The scheme as it appears in a URL.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }
}

/// The scheme of the request `head`: the scheme of its connection, unless its fields are `trusted` and
/// X-Forwarded-Proto, or else the first element of Forwarded that has a scheme, states the scheme by which the
/// proxy in front received it.
///
/// The first value counts, and it is the one that is forwarded. Some proxies send a WebSocket scheme here
/// (`ws`, `wss`). Any other value is ignored.
#[must_use]
pub fn request_scheme(head: &RequestHead<'_>, connection: Scheme, trusted: bool) -> Scheme {
    if !trusted || !(head.has(FieldName::XForwardedProto) || head.has(FieldName::Forwarded)) {
        return connection;
    }
    let fields = head.fields().filter(|field| field.id == FieldName::XForwardedProto);
    let first = fields.map(|field| field.value).find(|value| !value.is_empty());
    let first = first.or_else(|| chain::trusted_parameter(head, b"proto"));
    let first = first.and_then(|value| value.split(|&byte| byte == b',').next());
    let is = |word: &[u8]| first.is_some_and(|first| first.trim_ascii().eq_ignore_ascii_case(word));
    if is(b"https") || is(b"wss") {
        Scheme::Https
    } else if is(b"http") || is(b"ws") {
        Scheme::Http
    } else {
        connection
    }
}
