//! Which web pages may open a WebSocket (RFC 6455 sections 4.2.2 and 10.2, RFC 6454).
//! In: the list of the configuration, the Origin field of a request. Out: whether the origin is allowed.
//! Never: rejects a request without an Origin field: browsers always send one, and other clients could forge it.
//! Limits: none of its own; the list is configuration and the field is part of a bounded head.
//! Invariant: scheme and host are compared without regard to case, ports by number with the scheme's default.

use core::fmt;

/// A list of allowed origins.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Origins {
    /// Whether every origin is allowed.
    allows_any: bool,
    /// Whether pages of the requested host are allowed.
    allows_same: bool,
    /// The allowed origins, in lower case.
    patterns: Vec<Pattern>,
}

/// An entry of the list is not an origin.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OriginInvalid {
    /// The entry.
    pub entry: String,
}

impl fmt::Display for OriginInvalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let entry = &self.entry;
        write!(
            f,
            "{entry:?} is not an origin; help: write \"same-origin\", \"https://example.com\", \"https://*.example.com\", \"null\" or \"*\""
        )
    }
}

impl core::error::Error for OriginInvalid {}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Pattern {
    /// The origin "null" of pages without an origin, such as local files.
    Null,
    /// One host, or all names below it.
    Host { scheme: String, host: String, port: Option<u16>, below: bool },
}

impl Origins {
    /// Allows every origin.
    #[must_use]
    pub const fn any() -> Self {
        Self { allows_any: true, allows_same: false, patterns: Vec::new() }
    }

    /// Reads a list. `https://*.example.com` allows all names below `example.com`, but not that name itself.
    ///
    /// # Errors
    /// An entry that is not an origin.
    pub fn parse<'e>(entries: impl IntoIterator<Item = &'e str>) -> Result<Self, OriginInvalid> {
        let mut origins = Self::default();
        for entry in entries {
            match entry {
                "*" => origins.allows_any = true,
                "same-origin" => origins.allows_same = true,
                "null" => origins.patterns.push(Pattern::Null),
                _ => {
                    let invalid = || OriginInvalid { entry: entry.to_owned() };
                    origins.patterns.push(pattern_of(entry).ok_or_else(invalid)?);
                }
            }
        }
        Ok(origins)
    }

    /// Whether a request with this Origin field is allowed; `None` if it has none. `host` is the host that the
    /// request names, with its port.
    ///
    /// "same-origin" compares host and port, but not the scheme: a proxy in front may have removed the TLS. A host
    /// without a port has the default port of the origin's scheme.
    #[must_use]
    pub fn allows(&self, origin: Option<&[u8]>, host: Option<&str>) -> bool {
        let Some(origin) = origin else { return true };
        if self.allows_any {
            return true;
        }
        let Ok(origin) = core::str::from_utf8(origin) else { return false };
        (self.allows_same && host.is_some_and(|host| is_same(origin, host)))
            || self.patterns.iter().any(|pattern| pattern.matches(origin))
    }
}

impl Pattern {
    fn matches(&self, origin: &str) -> bool {
        match self {
            Self::Null => origin == "null",
            Self::Host { scheme, host, port, below } => {
                let Some(given) = Parts::of(origin) else { return false };
                given.scheme.eq_ignore_ascii_case(scheme)
                    && given.port == *port
                    && if *below {
                        is_below(given.host, host)
                    } else {
                        given.host.eq_ignore_ascii_case(host)
                    }
            }
        }
    }
}

/// Whether the page of `origin` is at `host`.
fn is_same(origin: &str, host: &str) -> bool {
    let Some(page) = Parts::of(origin) else { return false };
    let Some((name, port)) = split_port(host) else { return false };
    page.host.eq_ignore_ascii_case(name) && page.port == port.or_else(|| default_port(page.scheme))
}

/// Splits a host from its port. `None` if the port is malformed.
fn split_port(authority: &str) -> Option<(&str, Option<u16>)> {
    // The colons of an IPv6 address are within brackets.
    let name_end = authority.rfind(']').map_or(0, |at| at + 1);
    let Some(at) = authority[name_end..].rfind(':') else { return Some((authority, None)) };
    let (host, port) = authority.split_at(name_end + at);
    let port = &port[1..];
    let is_number = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    if is_number { Some((host, Some(port.parse().ok()?))) } else { None }
}

fn pattern_of(entry: &str) -> Option<Pattern> {
    let parts = Parts::of(entry)?;
    let (below, host) = match parts.host.strip_prefix("*.") {
        Some(host) => (true, host),
        None => (false, parts.host),
    };
    if host.is_empty() || host.contains('*') || parts.scheme.contains('*') {
        return None;
    }
    let (scheme, host) = (parts.scheme.to_ascii_lowercase(), host.to_ascii_lowercase());
    Some(Pattern::Host { scheme, host, port: parts.port, below })
}

/// Whether `name` ends with a dot and `domain`, with something before.
fn is_below(name: &str, domain: &str) -> bool {
    let Some(split) = name.len().checked_sub(domain.len() + 1) else { return false };
    let (Some(before), Some(end)) = (name.get(..split), name.get(split + 1..)) else {
        return false;
    };
    !before.is_empty() && name.as_bytes()[split] == b'.' && end.eq_ignore_ascii_case(domain)
}

/// The parts of an origin.
struct Parts<'o> {
    scheme: &'o str,
    host: &'o str,
    /// The port, or the default of a known scheme.
    port: Option<u16>,
}

impl<'o> Parts<'o> {
    fn of(origin: &'o str) -> Option<Self> {
        let (scheme, authority) = origin.split_once("://")?;
        let (host, port) = split_port(authority)?;
        let is_plain = |byte: u8| byte.is_ascii_graphic() && !b"/?#@\\\"<> ".contains(&byte);
        if scheme.is_empty() || host.is_empty() || !origin[scheme.len() + 3..].bytes().all(is_plain)
        {
            return None;
        }
        Some(Self { scheme, host, port: port.or_else(|| default_port(scheme)) })
    }
}

fn default_port(scheme: &str) -> Option<u16> {
    if scheme.eq_ignore_ascii_case("https") {
        Some(443)
    } else if scheme.eq_ignore_ascii_case("http") {
        Some(80)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn list_allows_exactly_the_origins_that_it_names() {
        for (list, origin, allowed) in [
            ("*", "https://a.example", true),
            ("https://a.example", "https://a.example", true),
            ("https://A.example:443", "HTTPS://a.Example", true),
            ("https://a.example", "https://a.example:443", true),
            ("http://a.example:80", "http://a.example", true),
            ("https://a.example", "http://a.example", false),
            ("https://a.example", "https://a.example:8443", false),
            ("https://a.example", "https://a.example.evil", false),
            ("https://a.example", "https://xa.example", false),
            ("https://a.example", "https://a.example/", false),
            ("https://a.example", "https://a.example@evil", false),
            ("https://*.a.example", "https://b.a.example", true),
            ("https://*.a.example", "https://c.b.A.example", true),
            ("https://*.a.example", "https://a.example", false),
            ("https://*.a.example", "https://.a.example", false),
            ("https://*.a.example", "https://ba.example", false),
            ("https://*.a.example:8443", "https://b.a.example:8443", true),
            ("https://*.a.example", "https://b.a.example:8443", false),
            ("https://[::1]:8080", "https://[::1]:8080", true),
            ("http://[::1]", "http://[::1]:80", true),
            ("null", "null", true),
            ("https://a.example", "null", false),
            ("https://a.example", "", false),
            ("https://a.example", "é://é", false),
            ("https://*.a.example", "https://é.a.example", false),
            ("app://page", "app://page", true),
        ] {
            let origins = Origins::parse([list]).unwrap();
            assert_eq!(origins.allows(Some(origin.as_bytes()), None), allowed, "{list} {origin}");
            assert!(origins.allows(None, None));
        }
        let both = Origins::parse(["https://a.example", "https://b.example"]).unwrap();
        assert!(both.allows(Some(b"https://b.example"), None) && !both.allows(Some(b"\xff"), None));
        assert!(!Origins::default().allows(Some(b"https://b.example"), None));
    }

    #[test]
    fn pages_of_the_requested_host_are_of_the_same_origin() {
        let origins = Origins::parse(["same-origin"]).unwrap();
        for (origin, host, allowed) in [
            ("https://a.example", "a.example", true),
            ("http://A.example", "a.Example:80", true),
            ("https://a.example:443", "a.example", true),
            ("http://127.0.0.1:8080", "127.0.0.1:8080", true),
            ("http://[::1]:8080", "[::1]:8080", true),
            ("https://a.example", "a.example:80", false),
            ("https://a.example:8443", "a.example", false),
            ("https://a.example.evil", "a.example", false),
            ("https://b.a.example", "a.example", false),
            ("https://a.example", "a.example:x", false),
            ("null", "null", false),
            ("null", "a.example", false),
        ] {
            let found = origins.allows(Some(origin.as_bytes()), Some(host));
            assert_eq!(found, allowed, "{origin} {host}");
        }
        assert!(!origins.allows(Some(b"https://a.example"), None));
        assert!(origins.allows(None, None));
    }

    #[test]
    fn entries_that_are_not_origins_are_rejected() {
        for entry in
            ["", "a.example", "https://", "https://a.example/", "https://a*.example", "https://*"]
        {
            let error = Origins::parse([entry]).unwrap_err();
            assert!(error.to_string().contains("help:"), "{entry}");
        }
        for entry in ["https://*.", "https://a:b", "https://a:70000", "*://a", "https://a:"] {
            assert!(Origins::parse([entry]).is_err(), "{entry}");
        }
    }
}
