//! How a request left its client: by http or by https.
//! In: how the client's connection came, a head, whether its fields are believed. Out: a scheme.
//! Never: concludes from a port: a listener on 443 may be plain.

use tidegate_wire::http1::{FieldName, RequestHead};

/// The beginning of a URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// In plain.
    Http,
    /// Over TLS.
    Https,
}

impl Scheme {
    /// That of a connection with or without TLS.
    #[must_use]
    pub const fn of_connection(secured: bool) -> Self {
        if secured { Self::Https } else { Self::Http }
    }

    /// As a URL has it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }
}

/// The scheme of the request `head`: that of its connection, unless its fields are believed (`trusted`) and
/// X-Forwarded-Proto says which one the proxy in front was asked by.
///
/// It is the first value that counts, as it is passed on. Some proxies name a WebSocket's scheme there;
/// another word says nothing.
#[must_use]
pub fn request_scheme(head: &RequestHead<'_>, connection: Scheme, trusted: bool) -> Scheme {
    if !trusted || !head.has(FieldName::XForwardedProto) {
        return connection;
    }
    let fields = head.fields().filter(|field| field.id == FieldName::XForwardedProto);
    let first = fields.map(|field| field.value).find(|value| !value.is_empty());
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
