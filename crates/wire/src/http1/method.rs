//! Methods and versions: the first and the last word of a request line (RFC 9110 section 9).
//! In: a token that the scanner has accepted. Out: closed enums.
//! Never: changes the case of a method; methods are case-sensitive.

/// The version a message was written for (RFC 9110 section 2.5).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Version {
    /// HTTP/1.0.
    Http10,
    /// HTTP/1.1, and every later minor version: those are read as 1.1.
    Http11,
}

impl Version {
    /// The version of minor number `minor`.
    pub(super) const fn from_minor(minor: u8) -> Self {
        if minor == 0 { Self::Http10 } else { Self::Http11 }
    }
}

/// What the client wants done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Method<'a> {
    /// GET
    Get,
    /// HEAD
    Head,
    /// POST
    Post,
    /// PUT
    Put,
    /// DELETE
    Delete,
    /// CONNECT
    Connect,
    /// OPTIONS
    Options,
    /// TRACE
    Trace,
    /// PATCH (RFC 5789)
    Patch,
    /// Any other token, as it came.
    Other(&'a str),
}

impl<'a> Method<'a> {
    /// The method that `token` names.
    #[must_use]
    #[inline]
    pub fn from_token(token: &'a str) -> Self {
        match token {
            "GET" => Self::Get,
            "HEAD" => Self::Head,
            "POST" => Self::Post,
            "PUT" => Self::Put,
            "DELETE" => Self::Delete,
            "CONNECT" => Self::Connect,
            "OPTIONS" => Self::Options,
            "TRACE" => Self::Trace,
            "PATCH" => Self::Patch,
            other => Self::Other(other),
        }
    }

    /// The token on the wire.
    #[must_use]
    pub const fn as_str(&self) -> &'a str {
        match self {
            Self::Get => "GET",
            Self::Head => "HEAD",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Delete => "DELETE",
            Self::Connect => "CONNECT",
            Self::Options => "OPTIONS",
            Self::Trace => "TRACE",
            Self::Patch => "PATCH",
            Self::Other(token) => token,
        }
    }

    /// Whether it asks for no change on the server (RFC 9110 section 9.2.1). An unknown method is
    /// taken to be unsafe.
    #[must_use]
    pub const fn is_safe(&self) -> bool {
        matches!(self, Self::Get | Self::Head | Self::Options | Self::Trace)
    }

    /// Whether to do it twice is as good as once (RFC 9110 section 9.2.2): such a request may be
    /// repeated by itself. An unknown method is taken not to be.
    #[must_use]
    pub const fn is_idempotent(&self) -> bool {
        self.is_safe() || matches!(self, Self::Put | Self::Delete)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods_keep_their_case_and_their_promises() {
        for (token, safe, idempotent) in [
            ("GET", true, true),
            ("HEAD", true, true),
            ("POST", false, false),
            ("PUT", false, true),
            ("DELETE", false, true),
            ("CONNECT", false, false),
            ("OPTIONS", true, true),
            ("TRACE", true, true),
            ("PATCH", false, false),
            ("get", false, false),
            ("PROPFIND", false, false),
        ] {
            let method = Method::from_token(token);
            assert_eq!(method.as_str(), token);
            assert_eq!((method.is_safe(), method.is_idempotent()), (safe, idempotent), "{token}");
        }
        assert_eq!(Method::from_token("get"), Method::Other("get"));
    }
}
