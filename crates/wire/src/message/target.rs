//! Request targets and hosts: form, path, query and authority (RFC 9112 section 3.2, RFC 9113 section 8.3.1).
//! In: the second part of a request line or `:path`, the value of Host or `:authority`. Out: parts that
//! borrow from them.
//! Never: decodes percent-encoding, removes dot segments or merges slashes; the router does that.
//! Limits: those of the request line. Lenient only where browsers are: `[]|{}^` and a grave accent
//! are allowed in a path, those, a backslash, quotation marks and angle brackets in a query, and a bare
//! percent sign in both.

use super::fault::FaultKind;
use super::method::Method;
use core::net::Ipv6Addr;
use core::str::from_utf8;

/// The form of a request target.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TargetForm {
    /// `/path?query`: the usual form.
    Origin,
    /// `http://host/path?query`: sent to proxies, but every server must accept it.
    Absolute,
    /// `host:port`: CONNECT only.
    Authority,
    /// `*`: OPTIONS only.
    Asterisk,
}

/// The parts of a request target.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target<'a> {
    /// The form of the target.
    pub(crate) form: TargetForm,
    /// The path as `RequestHead::path` defines it.
    pub(crate) path: &'a str,
    /// The part after the first question mark.
    pub(crate) query: Option<&'a str>,
    /// The host with an optional port; only in absolute and authority form.
    pub(crate) authority: Option<&'a str>,
}

impl<'a> Target<'a> {
    /// Parses `target` in the forms that are allowed with `method`.
    #[inline]
    pub(crate) fn parse(method: &Method<'_>, target: &'a str) -> Result<Self, FaultKind> {
        if matches!(method, Method::Connect) {
            return Self::parse_authority_form(target);
        }
        if target.starts_with('/') {
            let (path, query) = split_query(target)?;
            return Ok(Self { form: TargetForm::Origin, path, query, authority: None });
        }
        if target != "*" {
            return Self::parse_absolute_form(method, target);
        }
        if !matches!(method, Method::Options) {
            return Err(FaultKind::TargetFormInvalid);
        }
        Ok(Self { form: TargetForm::Asterisk, path: "*", query: None, authority: None })
    }

    /// Parses `host:port`; the port is required (RFC 9110 section 9.3.6).
    #[cold]
    fn parse_authority_form(target: &'a str) -> Result<Self, FaultKind> {
        match split_port(target.as_bytes()) {
            Some((host, Some(port))) if !port.is_empty() && is_host(host) && is_port(port) => {}
            _ => return Err(FaultKind::TargetAuthorityInvalid),
        }
        Ok(Self { form: TargetForm::Authority, path: "", query: None, authority: Some(target) })
    }

    /// Parses `http://authority/path?query` (RFC 9112 section 3.2.2). User information is rejected,
    /// as RFC 9110 section 4.2.4 advises.
    #[cold]
    fn parse_absolute_form(method: &Method<'_>, target: &'a str) -> Result<Self, FaultKind> {
        let Some((scheme, rest)) = target.split_once("://") else {
            return Err(FaultKind::TargetFormInvalid);
        };
        if !scheme.eq_ignore_ascii_case("http") && !scheme.eq_ignore_ascii_case("https") {
            return Err(FaultKind::TargetSchemeUnsupported);
        }
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, rest) = rest.split_at(end);
        if !is_authority(authority.as_bytes()) {
            return Err(FaultKind::TargetAuthorityInvalid);
        }
        let (path, query) = match split_query(rest)? {
            // RFC 9112 section 3.2.4: OPTIONS without a path is about the server as a whole.
            ("", None) if matches!(method, Method::Options) => ("*", None),
            ("", query) => ("/", query),
            parts => parts,
        };
        Ok(Self { form: TargetForm::Absolute, path, query, authority: Some(authority) })
    }
}

/// The value of a Host field as text if it is a host with an optional port (RFC 9110 section 7.2).
/// `None` for an empty value: an http URI must not have an empty host (RFC 9110 section 4.2.1).
#[inline]
pub(crate) fn parse_host(value: &[u8]) -> Option<&str> {
    if !is_authority(value) {
        return None;
    }
    from_utf8(value).ok()
}

/// Splits `target` at its first question mark and checks the characters of both parts.
#[inline]
fn split_query(target: &str) -> Result<(&str, Option<&str>), FaultKind> {
    let bytes = target.as_bytes();
    let end = bytes.iter().position(|&byte| !has_class(byte, PATH)).unwrap_or(bytes.len());
    let Some((path, rest)) = target.split_at_checked(end) else {
        return Err(FaultKind::TargetInvalid);
    };
    if rest.is_empty() {
        return Ok((path, None));
    }
    match rest.strip_prefix('?') {
        Some(query) if query.bytes().all(|byte| has_class(byte, QUERY)) => Ok((path, Some(query))),
        _ => Err(FaultKind::TargetInvalid),
    }
}

#[inline]
fn is_authority(value: &[u8]) -> bool {
    match split_port(value) {
        Some((host, None)) => is_host(host),
        Some((host, Some(port))) => is_host(host) && is_port(port),
        None => false,
    }
}

/// Splits off the port; `None` if a bracket or a colon is misplaced.
#[inline]
fn split_port(value: &[u8]) -> Option<(&[u8], Option<&[u8]>)> {
    let start = if value.first() == Some(&b'[') {
        value.iter().position(|&byte| byte == b']')? + 1
    } else {
        value.iter().position(|&byte| byte == b':').unwrap_or(value.len())
    };
    let (host, rest) = value.split_at_checked(start)?;
    match rest {
        [] => Some((host, None)),
        [b':', port @ ..] => Some((host, Some(port))),
        _ => None,
    }
}

/// A host by RFC 3986 section 3.2.2, but without the comma (which would make Host a list) and IPvFuture.
#[inline]
fn is_host(host: &[u8]) -> bool {
    if let [b'[', literal @ .., b']'] = host {
        return from_utf8(literal).is_ok_and(|text| text.parse::<Ipv6Addr>().is_ok());
    }
    let mut rest = host;
    while let [byte, after @ ..] = rest {
        rest = match (byte, after) {
            (b'%', [high, low, after @ ..])
                if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() =>
            {
                after
            }
            _ if has_class(*byte, HOST) => after,
            _ => return false,
        };
    }
    !host.is_empty()
}

/// A port up to 65535; RFC 3986 section 3.2.3 allows an empty port.
fn is_port(port: &[u8]) -> bool {
    port.len() <= 5
        && port.iter().all(u8::is_ascii_digit)
        && port.iter().fold(0, |sum, &byte| sum * 10 + u32::from(byte - b'0')) <= 65535
}

const PATH: u8 = 1;
const QUERY: u8 = 2;
const HOST: u8 = 4;

#[inline]
fn has_class(byte: u8, class: u8) -> bool {
    CLASSES[byte as usize] & class != 0
}

static CLASSES: [u8; 256] = classes();

const fn classes() -> [u8; 256] {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        table[byte] = match byte as u8 {
            // unreserved, and sub-delims without the comma (RFC 3986 sections 2.2 and 2.3)
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                PATH | QUERY | HOST
            }
            b'!' | b'$' | b'&' | b'\'' | b'(' | b')' | b'*' | b'+' | b';' | b'=' => {
                PATH | QUERY | HOST
            }
            b',' | b':' | b'@' | b'/' | b'%' => PATH | QUERY,
            b'[' | b']' | b'|' | b'{' | b'}' | b'^' | b'`' => PATH | QUERY,
            b'?' | b'\\' | b'"' | b'<' | b'>' => QUERY,
            _ => 0,
        };
        byte += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_and_addresses_are_hosts() {
        for good in [
            "a",
            "example.com",
            "EXAMPLE.com:80",
            "127.0.0.1:8080",
            "[::1]",
            "[::1]:443",
            "a:",
            "a_b-c.~d",
            "xn--nxasmq6b",
            "a%2Db",
            "[2001:db8::1.2.3.4]:1",
            "a:65535",
            "a:00080",
        ] {
            assert_eq!(parse_host(good.as_bytes()), Some(good));
        }
        for bad in [
            "",
            ":80",
            "a b",
            "a,b",
            "a/b",
            "a@b",
            "u:p@h",
            "a:b",
            "a:65536",
            "a:-1",
            "a:1:2",
            "[::1",
            "::1",
            "[::1]x",
            "[]",
            "[g::1]",
            "[fe80::1%eth0]",
            "a%",
            "a%2",
            "a%zz",
            "a#",
            "a?b",
            "a\\b",
            "[v1.x]",
            "http://a",
            "a:000080",
            "\u{e9}",
            "a\"",
            "<a>",
            "a:80,",
        ] {
            assert_eq!(parse_host(bad.as_bytes()), None, "{bad}");
        }
    }

    fn parts(method: &str, target: &str) -> Option<(TargetForm, String, Option<String>, String)> {
        let parsed = Target::parse(&Method::from_token(method), target).ok()?;
        Some((
            parsed.form,
            parsed.path.to_owned(),
            parsed.query.map(str::to_owned),
            parsed.authority.unwrap_or("-").to_owned(),
        ))
    }

    #[test]
    fn valid_targets_are_split_into_parts() {
        use TargetForm::{Absolute, Asterisk, Authority, Origin};
        for (method, target, form, path, query, authority) in [
            ("GET", "/", Origin, "/", None, "-"),
            ("GET", "/a?b", Origin, "/a", Some("b"), "-"),
            ("GET", "/a?", Origin, "/a", Some(""), "-"),
            ("GET", "/a?b?c", Origin, "/a", Some("b?c"), "-"),
            ("GET", "//h/a", Origin, "//h/a", None, "-"),
            ("GET", "/[x]|{y}^`", Origin, "/[x]|{y}^`", None, "-"),
            ("GET", "/?\\", Origin, "/", Some("\\"), "-"),
            ("GET", "/100%", Origin, "/100%", None, "-"),
            ("GET", "/?q=\"<a>\"", Origin, "/", Some("q=\"<a>\""), "-"),
            ("GET", "http://h", Absolute, "/", None, "h"),
            ("GET", "HTTPS://h:1/a?b", Absolute, "/a", Some("b"), "h:1"),
            ("GET", "http://h?b", Absolute, "/", Some("b"), "h"),
            ("GET", "http://h:80?b", Absolute, "/", Some("b"), "h:80"),
            ("GET", "http://h:/a", Absolute, "/a", None, "h:"),
            ("OPTIONS", "http://h:8001", Absolute, "*", None, "h:8001"),
            ("OPTIONS", "http://h/", Absolute, "/", None, "h"),
            ("OPTIONS", "*", Asterisk, "*", None, "-"),
            ("CONNECT", "h:443", Authority, "", None, "h:443"),
            ("CONNECT", "[::1]:443", Authority, "", None, "[::1]:443"),
        ] {
            let wanted = Some((form, path.into(), query.map(str::to_owned), authority.into()));
            assert_eq!(parts(method, target), wanted, "{method} {target}");
        }
    }

    #[test]
    fn malformed_targets_are_rejected() {
        for (method, target) in [
            ("GET", "*"),
            ("GET", "a"),
            ("GET", "h:80"),
            ("GET", "/a#b"),
            ("GET", "/\"a\""),
            ("GET", "/<a>"),
            ("GET", "/a\\b"),
            ("GET", "/\u{e9}"),
            ("GET", "http://"),
            ("GET", "http:///a"),
            ("GET", "http://u@h/"),
            ("GET", "http://h:x/"),
            ("GET", "http://h#f"),
            ("GET", "http://u:p@h:80/"),
            ("GET", "http://:"),
            ("GET", "http://:80/"),
            ("GET", "*/test"),
            ("GET", "h/a/b"),
            ("GET", "ftp://h/"),
            ("GET", "http:/h"),
            ("CONNECT", "h"),
            ("CONNECT", "h:"),
            ("CONNECT", "/"),
            ("CONNECT", "http://h:1/"),
            ("CONNECT", "u@h:1"),
            ("OPTIONS", "**"),
            ("OPTIONS", "*/test"),
        ] {
            assert_eq!(parts(method, target), None, "{method} {target}");
        }
    }
}
