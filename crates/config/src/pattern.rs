//! The small languages inside strings: hosts, paths, redirect targets, addresses, networks, field names.
//! In: one string. Out: its checked form, or a `Complaint`: what is wrong and what to write.
//! Never: looks a name up.
//! Limits: `UNIX_PATH_BYTES_MAX`, `HOST_BYTES_MAX`.

use core::net::{IpAddr, SocketAddr};

use crate::model::{
    Bind, HostPattern, Network, PathPattern, RedirectPiece, Segment, ServerAddress,
};

/// Bytes of a unix socket's path: `sun_path` without its closing zero.
pub(crate) const UNIX_PATH_BYTES_MAX: usize = 107;
/// Bytes of a host name (RFC 1035 section 2.3.4).
const HOST_BYTES_MAX: usize = 253;

/// What is wrong with a string, and what to write instead.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Complaint {
    pub(crate) what: String,
    pub(crate) mend: String,
}

fn complain<T>(what: impl Into<String>, mend: impl Into<String>) -> Result<T, Complaint> {
    Err(Complaint { what: what.into(), mend: mend.into() })
}

/// `listener.bind`.
pub(crate) fn parse_bind(text: &str) -> Result<Bind, Complaint> {
    if let Some(path) = text.strip_prefix("unix:") {
        return parse_unix(path).map(Bind::Unix);
    }
    if let Ok(address) = text.parse::<SocketAddr>() {
        return Ok(Bind::Tcp(address));
    }
    if text.parse::<IpAddr>().is_ok() {
        return complain("it has no port", format!("write \"{}\"", with_port(text, 8080)));
    }
    if let Some(port) = text.strip_prefix("*:").or_else(|| text.strip_prefix(':')) {
        return complain(
            "it names no address",
            format!("write \"0.0.0.0:{port}\" for all IPv4 addresses, \"[::]:{port}\" for IPv6"),
        );
    }
    if let Some(port) = text.strip_prefix("localhost:") {
        return complain("a listener takes no name", format!("write \"127.0.0.1:{port}\""));
    }
    complain(
        "it is no address",
        "write \"127.0.0.1:8080\", \"[::]:8080\" or \"unix:/run/web.sock\"",
    )
}

/// A server's address in a pool.
pub(crate) fn parse_server(text: &str) -> Result<ServerAddress, Complaint> {
    if let Some(path) = text.strip_prefix("unix:") {
        return parse_unix(path).map(ServerAddress::Unix);
    }
    for scheme in ["http://", "https://"] {
        if let Some(rest) = text.strip_prefix(scheme) {
            let host = rest.split('/').next().unwrap_or_default();
            let mend = match host.parse::<SocketAddr>().is_ok() || host.contains(':') {
                true => format!("write {host:?}"),
                false => format!("write \"{}\"", with_port(host, 80)),
            };
            return complain("a server is an address, not a URL", mend);
        }
    }
    if let Ok(address) = text.parse::<SocketAddr>() {
        return match address.port() {
            0 => complain("port 0 cannot be connected to", "write the server's port"),
            _ => Ok(ServerAddress::Ip(address)),
        };
    }
    if text.parse::<IpAddr>().is_ok() {
        return complain("it has no port", format!("write \"{}\"", with_port(text, 8000)));
    }
    let Some((name, port)) = text.rsplit_once(':') else {
        return complain("it has no port", format!("write \"{text}:8000\""));
    };
    match port.parse::<u16>() {
        Ok(port) if port > 0 && is_host_name(name) => {
            Ok(ServerAddress::Name(name.to_owned(), port))
        }
        Ok(port) if port > 0 => complain(
            format!("{name:?} is no host name"),
            "write \"10.0.0.1:8000\", \"app.internal:8000\" or \"unix:/run/app.sock\"",
        ),
        Ok(_) | Err(_) => complain(format!("{port:?} is no port"), "write a port from 1 to 65535"),
    }
}

fn parse_unix(path: &str) -> Result<String, Complaint> {
    if !path.starts_with('/') {
        return complain("the path is not absolute", "write \"unix:/run/tidegate/web.sock\"");
    }
    if path.len() > UNIX_PATH_BYTES_MAX {
        let what = format!("the path has {} bytes", path.len());
        return complain(what, format!("the kernel takes {UNIX_PATH_BYTES_MAX} at most"));
    }
    if path.contains('\0') {
        return complain("the path has a NUL in it", "write it without");
    }
    Ok(path.to_owned())
}

fn with_port(host: &str, port: u16) -> String {
    match host.contains(':') {
        true => format!("[{host}]:{port}"),
        false => format!("{host}:{port}"),
    }
}

/// An entry of `listener.trusted`.
pub(crate) fn parse_network(text: &str) -> Result<Network, Complaint> {
    let forms = "write \"10.0.0.0/8\", \"192.0.2.1\" or \"2001:db8::/32\"";
    let (address, bits) = match text.split_once('/') {
        Some((address, bits)) => (address, Some(bits)),
        None => (text, None),
    };
    let Ok(address) = address.parse::<IpAddr>() else {
        return complain("it is no range of addresses", forms);
    };
    if address.to_canonical() != address {
        return complain("an IPv4 range is written as IPv4", forms);
    }
    let width = if address.is_ipv4() { 32 } else { 128 };
    let prefix_bits = match bits.map(str::parse::<u8>) {
        None => width,
        Some(Ok(bits)) if bits <= width => bits,
        Some(_) => {
            return complain("its prefix is out of range", format!("write /0 to /{width}"));
        }
    };
    let first = first_address(address, prefix_bits);
    if first != address {
        let what = format!("{address} is not the first address of its range");
        return complain(what, format!("write \"{first}/{prefix_bits}\", or {address} alone"));
    }
    Ok(Network { address, prefix_bits })
}

fn first_address(address: IpAddr, prefix_bits: u8) -> IpAddr {
    let bits = u32::from(prefix_bits);
    match address {
        IpAddr::V4(ip) => {
            let mask = u32::MAX.checked_shl(32 - bits.min(32)).unwrap_or(0);
            IpAddr::V4((u32::from(ip) & mask).into())
        }
        IpAddr::V6(ip) => {
            let mask = u128::MAX.checked_shl(128 - bits.min(128)).unwrap_or(0);
            IpAddr::V6((u128::from(ip) & mask).into())
        }
    }
}

/// `route.host`.
pub(crate) fn parse_host(text: &str) -> Result<HostPattern, Complaint> {
    if text == "*" {
        return complain("\"*\" is no host", "leave `host` out: the route then holds for any");
    }
    if text.contains("://") || text.contains('/') {
        return complain("a host is no URL", "write the name alone: \"example.com\"");
    }
    if !text.is_ascii() {
        return complain("host names travel as ASCII", "write the name's xn-- form");
    }
    let lower = text.to_ascii_lowercase();
    if let Some(below) = lower.strip_prefix("*.") {
        return match is_host_name(below) {
            true => Ok(HostPattern::Below(format!(".{below}"))),
            false => complain("it is no host pattern", "write \"*.example.com\""),
        };
    }
    let bare = lower.rsplit_once(':').filter(|(host, port)| {
        !host.is_empty() && !host.ends_with(':') && port.bytes().all(|b| b.is_ascii_digit())
    });
    if lower.starts_with('[') {
        let inside = lower.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        return match inside.map(|ip| ip.parse::<core::net::Ipv6Addr>()) {
            Some(Ok(_)) => Ok(HostPattern::Exact(lower)),
            Some(Err(_)) | None => {
                complain("it is no host", "write \"[2001:db8::1]\", without port")
            }
        };
    }
    if let Some((host, _)) = bare.filter(|(host, _)| is_host_name(host)) {
        return complain("routes compare hosts without port", format!("write {host:?}"));
    }
    if lower.contains('*') {
        return complain("\"*\" stands for whole labels at the front", "write \"*.example.com\"");
    }
    match is_host_name(&lower) {
        true => Ok(HostPattern::Exact(lower)),
        false => complain("it is no host", "write \"example.com\" or \"*.example.com\""),
    }
}

/// `route.proxy.host`: a host with or without port.
pub(crate) fn parse_authority(text: &str) -> Result<String, Complaint> {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (text, None),
    };
    let ip6 = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let host_is_good = match ip6 {
        Some(ip) => ip.parse::<core::net::Ipv6Addr>().is_ok(),
        None => is_host_name(host),
    };
    let port_is_good = port.is_none_or(|port| port.parse::<u16>().is_ok());
    match host_is_good && port_is_good {
        true => Ok(text.to_owned()),
        false => {
            complain("it is no host", "write \"keep\", \"app.internal\" or \"app.internal:8000\"")
        }
    }
}

fn is_host_name(name: &str) -> bool {
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
    };
    name.len() <= HOST_BYTES_MAX && name.split('.').all(label)
}

/// `route.path`.
pub(crate) fn parse_path(text: &str) -> Result<PathPattern, Complaint> {
    let Some(rest) = text.strip_prefix('/') else {
        return complain(
            "a path begins with a slash",
            format!("write \"/{}\"", text.escape_debug()),
        );
    };
    if let Some(at) = text.find(['?', '#']) {
        let mend =
            format!("write \"{}\"; `headers` and `host` are the other conditions", &text[..at]);
        return complain("a path pattern has no query and no fragment", mend);
    }
    if let Some(bad) = text.chars().find(|c| !c.is_ascii_graphic() || "\"<>\\^`|".contains(*c)) {
        let what = format!("{bad:?} never stands in a request's path");
        return complain(what, "write it percent-encoded, as browsers send it");
    }
    let (body, open_end) = match rest.strip_suffix('*') {
        Some(body) if body.is_empty() || body.ends_with('/') => (body, true),
        Some(_) | None => (rest, false),
    };
    if body.contains('*') {
        return complain("\"*\" stands for whole segments at the end", "write \"/api/*\"");
    }
    let closed = body.strip_suffix('/').filter(|_| open_end).unwrap_or(body);
    let segments = parse_segments(closed)?;
    if segments.iter().all(|segment| matches!(segment, Segment::Literal(_))) {
        return Ok(match open_end {
            true => PathPattern::Below(format!("/{body}")),
            false => PathPattern::Exact(text.to_owned()),
        });
    }
    Ok(PathPattern::Segments { segments, open_end })
}

fn parse_segments(text: &str) -> Result<Vec<Segment>, Complaint> {
    let mut segments = Vec::new();
    for piece in text.split('/') {
        if piece == "." || piece == ".." {
            return complain(
                "clients resolve dot segments before they ask",
                "write the plain path",
            );
        }
        let name = piece.strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
        let Some(name) = name else {
            if piece.contains(['{', '}']) {
                return complain("\"{...}\" stands for a whole segment", "write \"/users/{id}\"");
            }
            segments.push(Segment::Literal(piece.to_owned()));
            continue;
        };
        if name.is_empty() || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
            return complain(
                "a segment's name is letters, digits and '_'",
                "write \"/users/{id}\"",
            );
        }
        let segment = Segment::Any(name.to_owned());
        if segments.contains(&segment) {
            return complain(
                format!("{{{name}}} stands twice"),
                "give the segments different names",
            );
        }
        segments.push(segment);
    }
    Ok(segments)
}

/// `route.redirect.to`.
pub(crate) fn parse_redirect(text: &str) -> Result<Vec<RedirectPiece>, Complaint> {
    if !(text.starts_with('/') || text.starts_with("http://") || text.starts_with("https://")) {
        let mend = "write \"https://example.com{path}{query}\", \"https://{host}{path}{query}\" or \"/new\"";
        return match text.starts_with("{path}") {
            // A client may ask for "//elsewhere/", which alone would name another host.
            true => complain("a target that begins with {path} can be led to any host", mend),
            false => complain("it begins with neither http://, https:// nor a slash", mend),
        };
    }
    if text.starts_with("/{path}") || text.starts_with("//{path}") {
        let mend = "write \"https://{host}{path}\"; {path} brings its own slash";
        return complain("two slashes before the path would name another host", mend);
    }
    let host_is_missing = text.split_once("://").is_some_and(|(_, rest)| {
        rest.is_empty()
            || rest.starts_with(['/', '?'])
            || rest.starts_with("{path}")
            || rest.starts_with("{query}")
    });
    if host_is_missing {
        return complain("it names no host", "write \"https://example.com{path}{query}\"");
    }
    let mut pieces = Vec::new();
    let mut rest = text;
    while let Some(open) = rest.find('{') {
        let (literal, tail) = rest.split_at(open);
        push_literal(literal, &mut pieces)?;
        let Some(close) = tail.find('}') else {
            return complain("a brace is not closed", "write a literal brace as %7B");
        };
        let (name, after) = tail.split_at(close + 1);
        pieces.push(match name {
            "{host}" => RedirectPiece::Host,
            "{path}" => RedirectPiece::Path,
            "{query}" => RedirectPiece::Query,
            _ => {
                return complain(format!("{name} is unknown"), "write {host}, {path} or {query}");
            }
        });
        rest = after;
    }
    push_literal(rest, &mut pieces)?;
    Ok(pieces)
}

fn push_literal(text: &str, pieces: &mut Vec<RedirectPiece>) -> Result<(), Complaint> {
    if let Some(bad) = text.chars().find(|c| !c.is_ascii_graphic() || "\"<>\\^`|{}".contains(*c)) {
        return complain(format!("{bad:?} never stands in a URL"), "write it percent-encoded");
    }
    if !text.is_empty() {
        pieces.push(RedirectPiece::Text(text.to_owned()));
    }
    Ok(())
}

/// Whether this is a token (RFC 9110 section 5.6.2): a field name or a method, for example.
pub(crate) fn is_token(text: &str) -> bool {
    let special = b"!#$%&'*+-.^_`|~";
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || special.contains(&b))
}

/// A field value as this proxy writes it (RFC 9110 section 5.5), as UTF-8.
pub(crate) fn check_field_value(text: &str) -> Result<(), Complaint> {
    if let Some(bad) = text.chars().find(|c| c.is_control() && *c != '\t') {
        let what = format!("{bad:?} cannot stand in a field value");
        return complain(what, "write it without line breaks and control characters");
    }
    if text.trim_matches([' ', '\t']) != text {
        return complain("blanks around a field value are lost on the way", "write it without");
    }
    Ok(())
}

/// The name of a listener or pool.
pub(crate) fn check_name(text: &str) -> Result<(), Complaint> {
    let good = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
    match (1..=64).contains(&text.len()) && text.bytes().all(good) {
        true => Ok(()),
        false => complain("it is no name", "write letters, digits, '-', '_' and '.', 64 at most"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_lower_case_and_without_port() {
        assert_eq!(parse_host("Example.COM"), Ok(HostPattern::Exact("example.com".into())));
        assert_eq!(parse_host("*.Example.com"), Ok(HostPattern::Below(".example.com".into())));
        assert_eq!(parse_host("[::1]"), Ok(HostPattern::Exact("[::1]".into())));
        assert_eq!(parse_host("example.com:80").unwrap_err().mend, "write \"example.com\"");
        for text in ["", "*", "*.", "a*.b", "a..b", "http://a/", "ä.de", "a b", "[::1]:80"] {
            assert!(parse_host(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn paths_become_the_cheapest_pattern_that_says_the_same() {
        assert_eq!(parse_path("/"), Ok(PathPattern::Exact("/".into())));
        assert_eq!(parse_path("/json"), Ok(PathPattern::Exact("/json".into())));
        assert_eq!(parse_path("/json/"), Ok(PathPattern::Exact("/json/".into())));
        assert_eq!(parse_path("/*"), Ok(PathPattern::Below("/".into())));
        assert_eq!(parse_path("/api/*"), Ok(PathPattern::Below("/api/".into())));
        let users = vec![Segment::Literal("users".into()), Segment::Any("id".into())];
        assert_eq!(
            parse_path("/users/{id}"),
            Ok(PathPattern::Segments { segments: users.clone(), open_end: false })
        );
        assert_eq!(
            parse_path("/users/{id}/*"),
            Ok(PathPattern::Segments { segments: users, open_end: true })
        );
        for text in
            ["", "json", "/a?b", "/a b", "/ä", "/a*", "/*/b", "/{}", "/{a}/{a}", "/x{a}", "/../a"]
        {
            assert!(parse_path(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn redirect_targets_never_let_the_client_choose_the_host() {
        use RedirectPiece::{Host, Path, Query, Text};
        assert_eq!(
            parse_redirect("https://{host}{path}{query}"),
            Ok(vec![Text("https://".into()), Host, Path, Query])
        );
        assert_eq!(parse_redirect("/new{path}"), Ok(vec![Text("/new".into()), Path]));
        for text in [
            "{path}",
            "/{path}",
            "//{path}",
            "https://{path}",
            "new",
            "/a{b}",
            "/a{",
            "/a}",
            "/a b",
            "/\r\n",
        ] {
            assert!(parse_redirect(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn addresses_name_their_port() {
        assert_eq!(parse_bind("[::]:80"), Ok(Bind::Tcp("[::]:80".parse().unwrap())));
        assert_eq!(parse_bind("unix:/a"), Ok(Bind::Unix("/a".into())));
        assert_eq!(parse_bind("::1").unwrap_err().mend, "write \"[::1]:8080\"");
        let long = format!("unix:/{}", "a".repeat(UNIX_PATH_BYTES_MAX));
        for text in ["", ":80", "80", "localhost:80", "unix:a", "10.0.0.1", long.as_str()] {
            assert!(parse_bind(text).is_err(), "{text:?}");
        }
        assert_eq!(parse_server("app:80"), Ok(ServerAddress::Name("app".into(), 80)));
        assert_eq!(parse_server("http://app/").unwrap_err().mend, "write \"app:80\"");
        for text in ["", "app", "app:", "app:0", "app:99999", "a b:80", "10.0.0.1:0", "10.0.0.1"] {
            assert!(parse_server(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_range_of_addresses_begins_at_its_first() {
        assert_eq!(parse_network("::1").map(|network| network.prefix_bits), Ok(128));
        assert_eq!(parse_network("0.0.0.0/0").map(|network| network.prefix_bits), Ok(0));
        assert!(parse_network("10.0.0.1/8").unwrap_err().mend.contains("10.0.0.0/8"));
        for text in ["", "10.0.0.0/33", "::/129", "10.0.0.0/", "10.0.0.0/x", "::ffff:10.0.0.0/104"]
        {
            assert!(parse_network(text).is_err(), "{text:?}");
        }
    }
}
