//! Methods (RFC 9110 section 9).
//! In: a token that a decoder has accepted. Out: a `Method`; `Other` for methods that are unknown to Tidegate.
//! Never: changes the case of a method; methods are case-sensitive.

/// The method of a request.
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
    /// Any other token, as received.
    Other(&'a str),
}

impl<'a> Method<'a> {
    /// The method with this name.
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

    /// Whether the method is read-only for the server (RFC 9110 section 9.2.1). Unknown methods
    /// count as unsafe.
    #[must_use]
    pub const fn is_safe(&self) -> bool {
        matches!(self, Self::Get | Self::Head | Self::Options | Self::Trace)
    }

    /// Whether repeating the request has the same effect as sending it once (RFC 9110 section
    /// 9.2.2), so that it may be retried automatically. Unknown methods count as not idempotent.
    #[must_use]
    pub const fn is_idempotent(&self) -> bool {
        self.is_safe() || matches!(self, Self::Put | Self::Delete)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods_are_case_sensitive_and_have_the_properties_of_rfc_9110() {
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
