//! Parses the syntax inside strings: hosts, paths, redirect targets, addresses, networks, field names.
//! In: one string. Out: its checked form, or a `ValueError`: what is wrong and what to write instead.
//! Never: resolves a name.
//! Limits: `UNIX_PATH_BYTES_MAX`, `HOST_BYTES_MAX`.

use core::net::{IpAddr, SocketAddr};

use crate::foreign_paths;
use crate::model::{
    Bind, HostPattern, Network, PathPattern, RedirectPiece, Segment, ServerAddress,
};
use crate::template::{self, Paths};

/// Maximum length of a unix socket's path in bytes: `sun_path` without the terminating NUL.
pub(crate) const UNIX_PATH_BYTES_MAX: usize = 107;
/// Maximum length of a host name in bytes (RFC 1035 section 2.3.4).
const HOST_BYTES_MAX: usize = 253;

/// What is wrong with a string, and what to write instead.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ValueError {
    /// What is wrong with the string.
    pub(crate) what: String,
    /// The suggested fix.
    pub(crate) help: String,
}

pub(crate) fn complain<T>(
    what: impl Into<String>,
    help: impl Into<String>,
) -> Result<T, ValueError> {
    Err(ValueError { what: what.into(), help: help.into() })
}

/// `listener.bind`.
pub(crate) fn parse_bind(text: &str) -> Result<Bind, ValueError> {
    if let Some(path) = text.strip_prefix("unix:") {
        return parse_unix(path).map(Bind::Unix);
    }
    if let Ok(address) = text.parse::<SocketAddr>() {
        return Ok(Bind::Tcp(address));
    }
    if text.parse::<IpAddr>().is_ok() {
        return complain("the port is missing", format!("write \"{}\"", with_port(text, 8080)));
    }
    if let Some(port) = port_above_limit(text) {
        return complain(format!("port {port} is above 65535"), "write a port from 1 to 65535");
    }
    if !text.is_empty() && text.parse::<u16>().is_ok() {
        let help = format!(
            "write \"0.0.0.0:{text}\" for all IPv4 addresses, or \"127.0.0.1:{text}\" for this machine only"
        );
        return complain("the IP address is missing", help);
    }
    if text.contains("://") {
        return complain(
            "a listener needs an address, not a URL",
            "write \"0.0.0.0:80\" or \"0.0.0.0:443\"",
        );
    }
    if let Some(port) = text.strip_prefix("*:").or_else(|| text.strip_prefix(':')) {
        return complain(
            "the IP address is missing",
            format!(
                "write \"0.0.0.0:{port}\" for all IPv4 addresses, or \"[::]:{port}\" for all IPv6 addresses"
            ),
        );
    }
    if let Some(port) = text.strip_prefix("localhost:") {
        return complain(
            "a listener needs an IP address, not a name",
            format!("write \"127.0.0.1:{port}\""),
        );
    }
    complain("not an address", "write \"127.0.0.1:8080\", \"[::]:8080\" or \"unix:/run/web.sock\"")
}

/// A server's address in a pool.
pub(crate) fn parse_server(text: &str) -> Result<ServerAddress, ValueError> {
    if let Some(path) = text.strip_prefix("unix:") {
        return parse_unix(path).map(ServerAddress::Unix);
    }
    if let Some((scheme, rest)) = text.split_once("://") {
        return Err(url_instead_of_server(&scheme.to_ascii_lowercase(), rest));
    }
    if let Ok(address) = text.parse::<SocketAddr>() {
        return match address.port() {
            0 => complain("port 0 is not a valid port of a server", "write the server's port"),
            _ => Ok(ServerAddress::Ip(address)),
        };
    }
    if text.parse::<IpAddr>().is_ok() {
        return complain("the port is missing", format!("write \"{}\"", with_port(text, 8000)));
    }
    if text.starts_with('/') {
        let path = if text.ends_with('/') { "/run/app.sock" } else { text };
        let help = format!("write {:?}", format!("unix:{path}"));
        return complain("the address of a unix socket begins with unix:", help);
    }
    let Some((name, port)) = text.rsplit_once(':') else {
        return complain("the port is missing", format!("write \"{text}:8000\""));
    };
    match parse_port(port) {
        Some(port) if is_host_name(name) => Ok(ServerAddress::Name(name.to_owned(), port)),
        Some(_) => complain(
            format!("{name:?} is not a host name"),
            "write \"10.0.0.1:8000\", \"app.internal:8000\" or \"unix:/run/app.sock\"",
        ),
        None => {
            if let Some(port) = port_above_limit(text) {
                return complain(
                    format!("port {port} is above 65535"),
                    "write a port from 1 to 65535",
                );
            }
            let help = match text.split_once(char::is_whitespace) {
                // Other programs write the weight and other options after the address.
                Some((address, _)) => {
                    format!("write options as {{ address = {address:?}, weight = 2 }}")
                }
                None => "write a port from 1 to 65535".to_owned(),
            };
            complain(format!("{port:?} is not a port"), help)
        }
    }
}

/// What is wrong with `scheme://rest` as a server.
fn url_instead_of_server(scheme: &str, rest: &str) -> ValueError {
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let (user, host) = match authority.rsplit_once('@') {
        Some((_, host)) => ("; the address has no user and no password", host),
        None => ("", authority),
    };
    let host = if host.is_empty() || host.starts_with(':') { "app.internal" } else { host };
    let what = "a server needs an address, not a URL".to_owned();
    let (port, add) = match scheme {
        "http" | "ws" => (80, ""),
        "https" | "wss" => (443, ", and tls = true in the pool"),
        "h2c" | "grpc" => (80, ", and h2c = true in the pool"),
        "grpcs" => (443, ", and tls = { alpn = [\"h2\"] } in the pool"),
        scheme => {
            let what = format!("servers speak HTTP/1.1 or HTTP/2, not {scheme:?}");
            let help = "write \"10.0.0.1:8000\", \"app.internal:8000\" or \"unix:/run/app.sock\"";
            return ValueError { what, help: help.to_owned() };
        }
    };
    let has_port = host.rsplit_once(':').is_some_and(|(_, port)| !port.contains(']'));
    let address = match has_port {
        true => host.to_owned(),
        false => format!("{host}:{port}"),
    };
    let path = match rest.split_once('/') {
        Some((_, path)) if !path.is_empty() => {
            "; the address has no path: requests are forwarded with the client's path"
        }
        _ => "",
    };
    ValueError { what, help: format!("write {address:?}{add}{user}{path}") }
}

/// The text after the last colon, if it is a number above the highest port.
fn port_above_limit(text: &str) -> Option<&str> {
    let (_, port) = text.rsplit_once(':')?;
    let is_number = !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit());
    (is_number && port.parse::<u16>().is_err()).then_some(port)
}

/// The path of a unix socket. A relative one starts from the folder of the file.
pub(crate) fn parse_unix(path: &str) -> Result<String, ValueError> {
    if path.is_empty() || path.starts_with('@') || path.ends_with('/') {
        return complain("not the path of a socket", "write \"unix:/run/tidegate/web.sock\"");
    }
    if path.len() > UNIX_PATH_BYTES_MAX {
        let what = format!("the path has {} bytes", path.len());
        return complain(
            what,
            format!("shorten it: the kernel allows up to {UNIX_PATH_BYTES_MAX} bytes"),
        );
    }
    if path.contains('\0') {
        return complain("the path contains a NUL character", "remove the NUL character");
    }
    Ok(path.to_owned())
}

fn with_port(host: &str, port: u16) -> String {
    match host.contains(':') {
        true => format!("[{host}]:{port}"),
        false => format!("{host}:{port}"),
    }
}

/// An entry of `server.name-servers`: an address, and the port if it is not that of DNS.
pub(crate) fn parse_name_server(text: &str) -> Result<SocketAddr, ValueError> {
    const DNS_PORT: u16 = 53;
    let address = text.parse::<IpAddr>().map(|address| SocketAddr::new(address, DNS_PORT));
    match address.ok().or_else(|| text.parse().ok()).filter(|address| address.port() != 0) {
        Some(address) => Ok(address),
        None => complain(
            "not the address of a DNS server",
            "write an IP address, such as \"10.0.0.2\", \"10.0.0.2:5353\" or \"[2001:db8::2]:53\"",
        ),
    }
}

/// An entry of `listener.trusted` or of `listener.proxy-protocol.from`.
pub(crate) fn parse_network(text: &str) -> Result<Network, ValueError> {
    let forms = "write \"10.0.0.0/8\", \"192.0.2.1\" or \"2001:db8::/32\"";
    let (address, bits) = match text.split_once('/') {
        Some((address, bits)) => (address, Some(bits)),
        None => (text, None),
    };
    let Ok(address) = address.parse::<IpAddr>() else {
        return complain("not a range of IP addresses", forms);
    };
    if address.to_canonical() != address {
        return complain("an IPv4 range must be written in IPv4 form", forms);
    }
    let width = if address.is_ipv4() { 32 } else { 128 };
    let prefix_bits = match bits.map(str::parse::<u8>) {
        None => width,
        Some(Ok(bits)) if bits <= width => bits,
        Some(_) => {
            return complain(
                "the prefix length is out of range",
                format!("write a prefix length from /0 to /{width}"),
            );
        }
    };
    let first = first_address(address, prefix_bits);
    if first != address {
        let what = format!("{address} is not the first address of the range");
        return complain(
            what,
            format!("write \"{first}/{prefix_bits}\", or \"{address}\" for this one address"),
        );
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
pub(crate) fn parse_host(text: &str) -> Result<HostPattern, ValueError> {
    if text == "*" {
        return complain(
            "\"*\" is not a host",
            "remove `host`: the route then applies to every host",
        );
    }
    if text.contains("://") || text.contains('/') {
        return complain("a host is not a URL", "write only the name: \"example.com\"");
    }
    if !text.is_ascii() {
        return complain("host names must be ASCII", "write the xn-- form of the name");
    }
    let lower = text.to_ascii_lowercase();
    if let Some(below) = lower.strip_prefix("*.") {
        return match is_host_name(below) {
            true => Ok(HostPattern::Below(format!(".{below}"))),
            false => complain("not a host pattern", "write \"*.example.com\""),
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
                complain("not a host", "write \"[2001:db8::1]\", without a port")
            }
        };
    }
    if let Some((host, _)) = bare.filter(|(host, _)| is_host_name(host)) {
        return complain("hosts are compared without the port", format!("write {host:?}"));
    }
    if lower.contains('*') {
        return complain("\"*\" can only be the first label", "write \"*.example.com\"");
    }
    match is_host_name(&lower) {
        true => Ok(HostPattern::Exact(lower)),
        false if text.contains([',', ' ']) => {
            let hosts: Vec<String> = text
                .split([',', ' '])
                .filter(|host| !host.is_empty())
                .map(|host| format!("{host:?}"))
                .collect();
            complain("several hosts in one string", format!("write a list: [{}]", hosts.join(", ")))
        }
        false => complain("not a host", "write \"example.com\" or \"*.example.com\""),
    }
}

/// `route.proxy.host`: a host with or without a port.
pub(crate) fn parse_authority(text: &str) -> Result<String, ValueError> {
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
            complain("not a host", "write \"keep\", \"app.internal\" or \"app.internal:8000\"")
        }
    }
}

/// A port above 0 in its only form: with "080", the address of a server would have two names.
fn parse_port(text: &str) -> Option<u16> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit()) && !text.starts_with('0');
    text.parse().ok().filter(|_| is_plain)
}

pub(crate) fn is_host_name(name: &str) -> bool {
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
    };
    name.len() <= HOST_BYTES_MAX && name.split('.').all(label)
}

/// `route.path`.
pub(crate) fn parse_path(text: &str) -> Result<PathPattern, ValueError> {
    if let Some(help) = foreign_paths::help(text) {
        return complain("this is the syntax of another program", help);
    }
    if is_regex_like(text) {
        return complain(
            "a path cannot contain a regular expression, `**` or `:name`",
            without_regex(text),
        );
    }
    if text.trim_end_matches('*').contains('*') || text.starts_with('*') && text != "*" {
        return complain("\"*\" can only be the last segment", without_stars(text));
    }
    let Some(rest) = text.strip_prefix('/') else {
        let path = format!("/{text}");
        let help = match parse_path(&path) {
            Ok(_) => format!("write {path:?}"),
            Err(_) => PATH_FORMS.to_owned(),
        };
        return complain("a path must begin with a slash", help);
    };
    if let Some(at) = text.find(['?', '#']) {
        let help = format!("write \"{}\"; a route can also test `headers` and `host`", &text[..at]);
        return complain("a path pattern cannot contain a query or a fragment", help);
    }
    if let Some(bad) = text.chars().find(|c| !c.is_ascii_graphic() || "\"<>\\^`|".contains(*c)) {
        let what = format!("{bad:?} cannot appear in the path of a request");
        return complain(what, "write it percent-encoded, as browsers send it");
    }
    let (body, open_end) = match rest.strip_suffix('*') {
        Some(body) if body.is_empty() || body.ends_with('/') => (body, true),
        Some(_) | None => (rest, false),
    };
    if body.contains('*') {
        return complain("\"*\" can only be the last segment", without_stars(text));
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

/// Whether a path looks like a regular expression, or like a pattern of another program.
fn is_regex_like(text: &str) -> bool {
    text.starts_with(['^', '~'])
        || text.ends_with("$")
        || text.contains(['\\', '[', ']', '|'])
        || [".*", ".+", "(?", "**", "/:"].iter().any(|part| text.contains(part))
}

/// The possible forms of path patterns, for expressions that have no counterpart.
pub(crate) const PATH_FORMS: &str = "list the paths, such as path = [\"/a\", \"/b/*\"]; a path can end with \"/*\" and have \
                          segments such as \"/{id}\"";

/// The fix for a path that is a regular expression, or a pattern of another program. It matches only paths that begin with the
/// literal start of the expression.
fn without_regex(text: &str) -> String {
    let text = text.trim_start_matches(['^', '~', ' ']).trim_start_matches(['*', ' ']);
    let text = text.trim_start_matches('^');
    // A backslash takes the meaning from punctuation; before a letter it begins a class.
    let mut literal = String::new();
    let mut rest = text;
    let end = loop {
        let at = rest.find(['\\', '(', '[', '|', '*', '+', '?', '$', '.']).unwrap_or(rest.len());
        literal.push_str(&rest[..at]);
        rest = &rest[at..];
        let escaped = rest.strip_prefix('\\').and_then(|after| after.chars().next());
        match escaped.filter(char::is_ascii_punctuation) {
            Some(escaped) => {
                literal.push(escaped);
                rest = &rest[2..];
            }
            // A dot that nothing repeats is almost always meant literally.
            None if rest.starts_with('.') && !rest[1..].starts_with(['*', '+', '?', '{']) => {
                literal.push('.');
                rest = &rest[1..];
            }
            None => break rest,
        }
    };
    let is_open = !end.is_empty() && end != "$";
    let means_any = ["", "/"].contains(&literal.as_str())
        && [".*", ".*$", "(.*)", "(.*)$", ".+", "*", "**"].contains(&end);
    let mut path: String = literal
        .split('/')
        .map(|segment| match segment.strip_prefix(':') {
            Some(name) if !name.is_empty() => format!("{{{name}}}"),
            _ => segment.to_owned(),
        })
        .collect::<Vec<_>>()
        .join("/");
    if is_open {
        // The part of a segment before the expression cannot be kept.
        path.truncate(path.rfind('/').map_or(0, |at| at + 1));
        path.push('*');
    }
    if !path.starts_with('/') {
        path.insert(0, '/');
    }
    // An expression that does not begin at the start of the path has no counterpart.
    let is_sound = means_any || literal.starts_with('/') && path != "/*";
    match is_sound && !is_regex_like(&path) && parse_path(&path).is_ok() {
        true => format!(
            "write {path:?}; a path can end with \"/*\" and have segments such as \"/{{id}}\""
        ),
        false => PATH_FORMS.to_owned(),
    }
}

/// The fix for a path with `*` in another place than its last segment.
fn without_stars(text: &str) -> String {
    let Some(rest) = text.strip_prefix('/') else { return PATH_FORMS.to_owned() };
    let last = rest.rsplit('/').next().unwrap_or_default();
    let is_prefix = last.len() > 1 && last.find('*') == Some(last.len() - 1);
    let is_part = |segment: &str| segment.contains('*') && segment != "*";
    let inner = rest.strip_suffix(last).unwrap_or_default();
    let named = |names: &mut dyn Iterator<Item = u32>| {
        let segment = |segment: &str| match segment {
            "*" => names.next().map_or_else(String::new, |number| format!("{{part{number}}}")),
            other => other.to_owned(),
        };
        inner.split('/').map(segment).collect::<Vec<_>>().join("/")
    };
    // A part of a segment cannot be tested, so there is no pattern that matches the same paths.
    if inner.split('/').any(is_part) || is_part(last) && !is_prefix {
        return PATH_FORMS.to_owned();
    }
    let last =
        if is_prefix { format!("{}/*", last.trim_end_matches('*')) } else { last.to_owned() };
    let path = format!("/{}{last}", named(&mut (1..)));
    match parse_path(&path) {
        Ok(_) => {
            format!("write {path:?}; \"*\" matches whole segments, {{name}} matches one segment")
        }
        Err(_) => PATH_FORMS.to_owned(),
    }
}

fn parse_segments(text: &str) -> Result<Vec<Segment>, ValueError> {
    let mut segments = Vec::new();
    for piece in text.split('/') {
        // An encoded dot is a dot (RFC 3986 section 6.2.2.2).
        let decoded = piece.to_ascii_lowercase().replace("%2e", ".");
        if decoded == "." || decoded == ".." {
            return complain(
                "clients remove dot segments before they send a path",
                "write the path without \".\" and \"..\"",
            );
        }
        let name = piece.strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
        let Some(name) = name else {
            if piece.contains(['{', '}']) {
                return complain("\"{...}\" must be a whole segment", "write \"/users/{id}\"");
            }
            segments.push(Segment::Literal(piece.to_owned()));
            continue;
        };
        if name.is_empty() || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
            return complain(
                "the name of a segment can only contain letters, digits and '_'",
                "write \"/users/{id}\"",
            );
        }
        let segment = Segment::Any(name.to_owned());
        if segments.contains(&segment) {
            return complain(
                format!("{{{name}}} appears twice"),
                "give the segments different names",
            );
        }
        segments.push(segment);
    }
    Ok(segments)
}

/// Variables in the redirects of other programs, which would otherwise be sent to clients as they are.
const FOREIGN_VARIABLES: [&str; 9] = [
    "$host",
    "$http_host",
    "$server_name",
    "$request_uri",
    "$uri",
    "$scheme",
    "${",
    "$1",
    "{http.",
];

/// Maximum number of placeholders of a redirect other than {host}, {path} and {query}.
const REDIRECT_VALUES_MAX: usize = 32;

/// `route.redirect.to` of a route with these `paths`.
pub(crate) fn parse_redirect(
    text: &str,
    paths: Paths<'_>,
) -> Result<Vec<RedirectPiece>, ValueError> {
    if let Some(variable) = FOREIGN_VARIABLES.iter().find(|variable| text.contains(**variable)) {
        return complain(
            format!("{variable:?} is a variable of another program"),
            "write {host}, {path} and {query}: \"https://{host}{path}{query}\"",
        );
    }
    if !(text.starts_with('/') || text.starts_with("http://") || text.starts_with("https://")) {
        let help = "write \"https://example.com{path}{query}\", \"https://{host}{path}{query}\" or \"/new\"";
        return match text.starts_with("{path}") {
            // A client may request the path "//elsewhere/", which as a target would name another host.
            true => {
                complain("a target that begins with {path} lets the client choose the host", help)
            }
            false => complain("the target must begin with http://, https:// or a slash", help),
        };
    }
    if text.starts_with("/{path}") || text.starts_with("//{path}") {
        let help = "write \"https://{host}{path}\"; {path} begins with a slash";
        return complain("two slashes at the start would make the path name a host", help);
    }
    let host_is_missing = text.split_once("://").is_some_and(|(_, rest)| {
        rest.is_empty()
            || rest.starts_with(['/', '?'])
            || rest.starts_with("{path}")
            || rest.starts_with("{query}")
    });
    if host_is_missing {
        return complain("the host is missing", "write \"https://example.com{path}{query}\"");
    }
    let mut pieces = Vec::new();
    let mut rest = text;
    // The host ends at the first slash or question mark after the scheme, and at a path, which begins with a slash.
    let mut host_start =
        ["http://", "https://", "//"].into_iter().find(|start| text.starts_with(start));
    let mut is_host = host_start.is_some();
    while let Some(open) = rest.find('{') {
        let (literal, tail) = rest.split_at(open);
        let after_scheme = literal.strip_prefix(host_start.take().unwrap_or_default());
        is_host = is_host && !after_scheme.unwrap_or(literal).contains(['/', '?', '#']);
        push_literal(literal, &mut pieces)?;
        let Some(close) = tail.find('}') else {
            return complain("a brace is not closed", "close it, or write a literal brace as %7B");
        };
        let (name, after) = tail.split_at(close + 1);
        pieces.push(match name {
            "{host}" => RedirectPiece::Host,
            "{path}" => {
                is_host = false;
                RedirectPiece::Path
            }
            "{query}" => RedirectPiece::Query,
            _ if is_host => {
                let what = format!("{name} in this place lets the client choose the host");
                return complain(
                    what,
                    "write {host} or a name, and a slash before other placeholders",
                );
            }
            _ => RedirectPiece::Value(template::parse_name(&name[1..close], paths)?),
        });
        rest = after;
    }
    push_literal(rest, &mut pieces)?;
    let values = pieces.iter().filter(|piece| matches!(piece, RedirectPiece::Value(_))).count();
    match values {
        0..=REDIRECT_VALUES_MAX => Ok(pieces),
        _ => complain(format!("more than {REDIRECT_VALUES_MAX} placeholders"), "write fewer"),
    }
}

fn push_literal(text: &str, pieces: &mut Vec<RedirectPiece>) -> Result<(), ValueError> {
    if let Some(bad) = text.chars().find(|c| !c.is_ascii_graphic() || "\"<>\\^`|{}".contains(*c)) {
        return complain(format!("{bad:?} cannot appear in a URL"), "write it percent-encoded");
    }
    if !text.is_empty() {
        pieces.push(RedirectPiece::Text(text.to_owned()));
    }
    Ok(())
}

/// Whether the text is a token (RFC 9110 section 5.6.2), such as a field name or a method.
pub(crate) fn is_token(text: &str) -> bool {
    let special = b"!#$%&'*+-.^_`|~";
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || special.contains(&b))
}

/// Checks a field value (RFC 9110 section 5.5), encoded as UTF-8.
pub(crate) fn check_field_value(text: &str) -> Result<(), ValueError> {
    if let Some(bad) = text.chars().find(|c| c.is_control() && *c != '\t') {
        let what = format!("{bad:?} is not allowed in a field value");
        return complain(what, "remove line breaks and control characters");
    }
    if text.trim_matches([' ', '\t']) != text {
        return complain(
            "whitespace around a field value is not transmitted",
            "remove the whitespace",
        );
    }
    Ok(())
}

/// Checks the name of a listener or pool.
pub(crate) fn check_name(text: &str) -> Result<(), ValueError> {
    let good = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
    match (1..=64).contains(&text.len()) && text.bytes().all(good) {
        true => Ok(()),
        false => complain("not a valid name", "use 1 to 64 letters, digits, '-', '_' and '.'"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_lower_case_without_port() {
        assert_eq!(parse_host("Example.COM"), Ok(HostPattern::Exact("example.com".into())));
        assert_eq!(parse_host("*.Example.com"), Ok(HostPattern::Below(".example.com".into())));
        assert_eq!(parse_host("[::1]"), Ok(HostPattern::Exact("[::1]".into())));
        assert_eq!(parse_host("example.com:80").unwrap_err().help, "write \"example.com\"");
        for text in ["", "*", "*.", "a*.b", "a..b", "http://a/", "ä.de", "a b", "[::1]:80"] {
            assert!(parse_host(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn paths_become_the_cheapest_equivalent_pattern() {
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
    fn values_of_redirects_are_never_a_part_of_the_host() {
        let path = parse_path("/old/{n}/*").expect("a path");
        let read = |text: &str| parse_redirect(text, Paths(core::slice::from_ref(&path)));
        for text in [
            "/{rest}",
            "//cdn.example/{rest}",
            "https://a.example/{n}/{rest}?q={query:x}",
            "https://{host}{path}/{header:x}",
            "https://{host}?{cookie:c}",
            "https://{host}:8443/{client}",
            "/{user}/{claim:sub}",
        ] {
            assert!(read(text).is_ok(), "{text:?}: {:?}", read(text));
        }
        for text in [
            "https://{n}.example/",
            "https://a.example{rest}",
            "https://a.example{query}{rest}",
            "https://a.example:{query:port}/",
            "//{header:x}/",
            "https://{header:x}{path}",
            "{rest}",
            "https://{user}/",
            "/{nothing}",
        ] {
            assert!(read(text).is_err(), "{text:?}");
        }
        assert!(parse_redirect("/{rest}", Paths(&[parse_path("/a").expect("a path")])).is_err());
        assert!(read(&format!("/{}", "{id}".repeat(REDIRECT_VALUES_MAX + 1))).is_err());
    }

    #[test]
    fn redirect_target_cannot_let_the_client_choose_the_host() {
        use RedirectPiece::{Host, Path, Query, Text};
        assert_eq!(
            parse_redirect("https://{host}{path}{query}", Paths(&[])),
            Ok(vec![Text("https://".into()), Host, Path, Query])
        );
        assert_eq!(parse_redirect("/new{path}", Paths(&[])), Ok(vec![Text("/new".into()), Path]));
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
            assert!(parse_redirect(text, Paths(&[])).is_err(), "{text:?}");
        }
    }

    #[test]
    fn addresses_require_a_port() {
        assert_eq!(parse_bind("[::]:80"), Ok(Bind::Tcp("[::]:80".parse().unwrap())));
        assert_eq!(parse_bind("unix:/a"), Ok(Bind::Unix("/a".into())));
        assert_eq!(parse_bind("::1").unwrap_err().help, "write \"[::1]:8080\"");
        let long = format!("unix:/{}", "a".repeat(UNIX_PATH_BYTES_MAX));
        for text in ["", ":80", "80", "localhost:80", "unix:", "unix:@a", "10.0.0.1", long.as_str()]
        {
            assert!(parse_bind(text).is_err(), "{text:?}");
        }
        assert_eq!(parse_server("app:80"), Ok(ServerAddress::Name("app".into(), 80)));
        assert_eq!(parse_server("http://app/").unwrap_err().help, "write \"app:80\"");
        for text in ["", "app", "app:", "app:0", "app:99999", "a b:80", "10.0.0.1:0", "10.0.0.1"] {
            assert!(parse_server(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn network_must_be_written_with_its_first_address() {
        assert_eq!(parse_network("::1").map(|network| network.prefix_bits), Ok(128));
        assert_eq!(parse_network("0.0.0.0/0").map(|network| network.prefix_bits), Ok(0));
        assert!(parse_network("10.0.0.1/8").unwrap_err().help.contains("10.0.0.0/8"));
        for text in ["", "10.0.0.0/33", "::/129", "10.0.0.0/", "10.0.0.0/x", "::ffff:10.0.0.0/104"]
        {
            assert!(parse_network(text).is_err(), "{text:?}");
        }
    }
}
