//! The requests of a load: URLs, a request mix, and the bytes of each request.
//! In: text from the operator. Out: addresses, and request bytes that are sent unchanged.
//! Never: resolves a name during a run; sends a field that would break the framing.
//! Limits: `MIX_MAX` requests. Invariant: each request is one complete HTTP/1.1 message.

use core::fmt::Write as _;
use std::net::{SocketAddr, ToSocketAddrs as _};
use tidegate_base::{Address, Prng, loopback_addresses};

/// Largest number of different requests in a mix.
pub const MIX_MAX: usize = 10_000;

/// A parsed `http:` or `https:` URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Url {
    /// Whether it is `https:`.
    pub is_secure: bool,
    /// Host as written, brackets included.
    pub host: String,
    /// Port; 80 (443 with TLS) if the URL has none.
    pub port: u16,
    /// `host` or `host:port`, as in the Host field.
    pub authority: String,
    /// Path and query; `/` if the URL has none.
    pub target: String,
}

impl Url {
    /// Parses `text`.
    ///
    /// # Errors
    /// A message for the operator.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (is_secure, rest) = match text.split_once("://") {
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("http") => (false, rest),
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("https") => (true, rest),
            Some((scheme, _)) => {
                return Err(format!(
                    "{text}: unknown scheme `{scheme}`; use http://HOST[:PORT]/PATH or https://"
                ));
            }
            None => return Err(format!("{text}: no scheme; write http://{text}")),
        };
        let rest = rest.split('#').next().unwrap_or(rest);
        let split = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(split);
        if authority.contains('@') {
            return Err(format!(
                "{text}: user names in URLs are not supported; use --header 'Authorization: ...'"
            ));
        }
        let (host, port) = split_port(authority).map_err(|why| format!("{text}: {why}"))?;
        let port = port.unwrap_or(if is_secure { 443 } else { 80 });
        let target = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
        check_target(&target).map_err(|why| format!("{text}: {why}"))?;
        let (host, authority) = (host.to_owned(), authority.to_owned());
        Ok(Self { is_secure, host, port, authority, target })
    }

    /// The host without brackets.
    #[must_use]
    pub fn host_name(&self) -> &str {
        self.host.trim_start_matches('[').trim_end_matches(']')
    }

    /// Whether requests to both URLs use the same connections.
    fn has_authority_of(&self, other: &Self) -> bool {
        (self.is_secure, self.port) == (other.is_secure, other.port)
            && self.host.eq_ignore_ascii_case(&other.host)
    }

    /// Resolves the host. Called once, before the run.
    ///
    /// # Errors
    /// A message for the operator.
    pub fn resolve(&self) -> Result<Address, String> {
        let host = self.host_name();
        let mut found: Vec<SocketAddr> = (host, self.port)
            .to_socket_addrs()
            .map(Iterator::collect)
            .or_else(|error| loopback_addresses(host, self.port).map(Vec::from).ok_or(error))
            .map_err(|error| format!("cannot resolve host `{host}`: {error}"))?;
        // Names such as localhost often give ::1 first although the server listens on 127.0.0.1 only.
        found.sort_by_key(SocketAddr::is_ipv6);
        let first = found.first().ok_or_else(|| format!("host `{host}` has no address"))?;
        Ok(Address::Tcp(*first))
    }
}

impl core::fmt::Display for Url {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let scheme = if self.is_secure { "https" } else { "http" };
        write!(f, "{scheme}://{}{}", self.authority, self.target)
    }
}

/// The server of an authority.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The address.
    pub address: Address,
    /// Whether it uses TLS.
    pub is_secure: bool,
}

fn split_port(authority: &str) -> Result<(&str, Option<u16>), String> {
    let port_from = match authority.rfind(']') {
        Some(bracket) => authority[bracket..].find(':').map(|at| bracket + at),
        None => authority.find(':'),
    };
    let (host, port) = match port_from {
        Some(at) => (&authority[..at], Some(&authority[at + 1..])),
        None => (authority, None),
    };
    let host_is_fine = !host.is_empty()
        && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._~[]:".contains(&byte));
    if !host_is_fine {
        return Err(format!("`{host}` is not a host name or address"));
    }
    match port {
        None => Ok((host, None)),
        Some(digits) => match digits.parse() {
            Ok(port) if port > 0 => Ok((host, Some(port))),
            _ => Err(format!("`{digits}` is not a port; ports are 1 to 65535")),
        },
    }
}

fn check_target(target: &str) -> Result<(), String> {
    match target.chars().find(|char| !char.is_ascii_graphic()) {
        Some(char) => Err(format!("{char:?} is not allowed in a URL; write it percent-encoded")),
        None => Ok(()),
    }
}

/// The options that all requests of a mix share.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestOptions {
    /// Method; empty means GET.
    pub method: String,
    /// Additional fields, in order; a Host field replaces the default one.
    pub headers: Vec<(String, String)>,
    /// The content.
    pub body: Vec<u8>,
    /// Ask the server to close the connection after each response.
    pub close: bool,
}

/// One request, ready to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The message.
    pub bytes: Vec<u8>,
    /// The message with `Connection: close`.
    pub closing_bytes: Vec<u8>,
    /// Whether it is a HEAD request, whose response has no body (RFC 9112 section 6.3).
    pub is_head: bool,
    /// The head for HTTP/2.
    pub(crate) head: Head,
    /// The offset of the content in `bytes`.
    content_at: usize,
}

/// The head of a request, in parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    /// The method.
    pub(crate) method: String,
    /// The host with an optional port, from the URL or from a Host field.
    pub(crate) authority: String,
    /// Path and query.
    pub(crate) path: String,
    /// The other fields, with names in lower case.
    pub(crate) fields: Vec<(String, String)>,
}

/// A set of requests, with their servers and weights.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct RequestMix {
    requests: Vec<Request>,
    /// One URL for each server. Each connection belongs to one authority.
    authorities: Vec<Url>,
    /// The requests of each authority; as long as `authorities`.
    choices: Vec<Choices>,
    /// Cumulative weight of the authorities; as long as `authorities`.
    weights: Vec<u64>,
}

/// The requests to one authority.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
struct Choices {
    /// Their indices in `RequestMix::requests`.
    numbers: Vec<u16>,
    /// Cumulative weight of the requests; as long as `numbers`.
    weights: Vec<u64>,
}

impl RequestMix {
    /// A mix of one request.
    ///
    /// # Errors
    /// A message for the operator.
    pub fn single(url: &Url, options: &RequestOptions) -> Result<Self, String> {
        let mut mix = Self::default();
        mix.push(1, url, Request::new(&url.authority, &url.target, options)?);
        Ok(mix)
    }

    /// Parses a mix from lines of `[WEIGHT] [METHOD] PATH-OR-URL`; `#` begins a comment.
    ///
    /// # Errors
    /// A message that names the line.
    pub fn parse(text: &str, url: &Url, options: &RequestOptions) -> Result<Self, String> {
        let mut mix = Self::default();
        for (index, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or("").trim();
            if line.is_empty() {
                continue;
            }
            let at_line = |why: String| format!("line {}: {why}", index + 1);
            if mix.requests.len() == MIX_MAX {
                return Err(at_line(format!("more than {MIX_MAX} requests; remove some lines")));
            }
            let (weight, url, request) = parse_line(line, url, options).map_err(at_line)?;
            mix.push(weight, &url, request);
        }
        if mix.requests.is_empty() {
            return Err(
                "no requests in the file; write lines of [WEIGHT] [METHOD] PATH-OR-URL".to_owned()
            );
        }
        Ok(mix)
    }

    fn push(&mut self, weight: u64, url: &Url, request: Request) {
        let known = self.authorities.iter().position(|known| known.has_authority_of(url));
        let at = known.unwrap_or_else(|| {
            self.authorities.push(url.clone());
            self.choices.push(Choices::default());
            self.weights.push(self.weights.last().copied().unwrap_or(0));
            self.authorities.len() - 1
        });
        let choices = &mut self.choices[at];
        choices.numbers.push(self.requests.len() as u16);
        choices.weights.push(choices.weights.last().copied().unwrap_or(0) + weight);
        for sum in &mut self.weights[at..] {
            *sum += weight;
        }
        self.requests.push(request);
    }

    /// The servers of the requests, with one URL for each.
    #[must_use]
    pub fn authorities(&self) -> &[Url] {
        &self.authorities
    }

    /// The authority to which connection number `connection` of `connections` belongs. Authorities share the
    /// connections by weight. Adjacent connections get different authorities, so that each thread and each part of
    /// a ramp covers all of them.
    #[must_use]
    pub fn authority_of(&self, connection: u32, connections: u32) -> u16 {
        let (Some(&sum), 2..) = (self.weights.last(), self.weights.len()) else {
            return 0;
        };
        let count = u64::from(connections.max(1));
        let scattered = u64::from(connection) * stride(count) % count;
        let point =
            (u128::from(2 * scattered + 1) * u128::from(sum) / u128::from(2 * count)) as u64;
        self.weights.partition_point(|&until| until <= point) as u16
    }

    /// Number of `connections` that each authority has.
    ///
    /// # Errors
    /// A message for the operator if an authority has no connection.
    pub fn connections_of(&self, connections: u32) -> Result<Vec<u32>, String> {
        let mut counts = vec![0; self.authorities.len()];
        if let [count] = &mut counts[..] {
            *count = connections;
            return Ok(counts);
        }
        for connection in 0..connections {
            counts[usize::from(self.authority_of(connection, connections))] += 1;
        }
        if let Some(at) = counts.iter().position(|count| *count == 0) {
            return Err(format!(
                "{connections} connections are too few: {} gets none by its weight; use more --connections or \
                 weights that differ less",
                self.authorities[at].authority
            ));
        }
        Ok(counts)
    }

    /// Picks the next request for `authority`, by weight.
    pub fn pick(&self, authority: u16, prng: &mut Prng) -> u16 {
        let choices = &self.choices[usize::from(authority)];
        match (&choices.numbers[..], choices.weights.last()) {
            (&[only], _) => only,
            (numbers, Some(&sum)) => {
                let point = prng.below(sum);
                numbers[choices.weights.partition_point(|&until| until <= point)]
            }
            (_, None) => 0,
        }
    }

    /// The request with the number that `pick` returned.
    #[must_use]
    pub fn request(&self, number: u16) -> &Request {
        &self.requests[usize::from(number)]
    }

    /// Number of different requests.
    #[must_use]
    pub fn len(&self) -> usize {
        self.requests.len()
    }

    /// Whether the mix is empty; a mix that was created by `single` or `parse` never is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }
}

/// A step that is coprime to `count` and near `count` divided by the golden ratio. Stepping by it modulo `count`
/// visits each number once, in large jumps.
fn stride(count: u64) -> u64 {
    let divisor = |mut a: u64, mut b: u64| {
        while b > 0 {
            (a, b) = (b, a % b);
        }
        a
    };
    let near = (count * 618 / 1000).max(1);
    (near..=count).find(|&step| divisor(step, count) == 1).unwrap_or(1)
}

fn parse_line(
    line: &str,
    url: &Url,
    options: &RequestOptions,
) -> Result<(u64, Url, Request), String> {
    let mut words: Vec<&str> = line.split_ascii_whitespace().collect();
    let mut weight = 1;
    if let Some(number) = words.first().and_then(|word| word.parse::<u32>().ok()) {
        if number == 0 {
            return Err("weight 0 would never be sent; remove the line".to_owned());
        }
        weight = u64::from(number);
        words.remove(0);
    }
    let mut options = options.clone();
    let target = match words[..] {
        [target] => target,
        [method, target] => {
            method.clone_into(&mut options.method);
            target
        }
        _ => return Err(format!("`{line}` is not [WEIGHT] [METHOD] PATH-OR-URL")),
    };
    let url = if target.starts_with('/') {
        check_target(target)?;
        Url { target: target.to_owned(), ..url.clone() }
    } else {
        Url::parse(target)?
    };
    let request = Request::new(&url.authority, &url.target, &options)?;
    Ok((weight, url, request))
}

impl Request {
    /// Writes the request for `target` on `authority`.
    ///
    /// # Errors
    /// A message for the operator if a field or the method would break the framing.
    pub fn new(authority: &str, target: &str, options: &RequestOptions) -> Result<Self, String> {
        let method = if options.method.is_empty() { "GET" } else { &options.method };
        if !is_token(method) {
            return Err(format!("`{method}` is not a method name"));
        }
        if method == "CONNECT" {
            return Err("CONNECT is not supported, because it opens a tunnel".to_owned());
        }
        let mut head = format!("{method} {target} HTTP/1.1\r\n");
        if !options.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
            // Writing to a String cannot fail.
            let _ = write!(head, "Host: {authority}\r\n");
        }
        for (name, value) in &options.headers {
            check_field(name, value)?;
            let _ = write!(head, "{name}: {value}\r\n");
        }
        if states_length(method, options) {
            let _ = write!(head, "Content-Length: {}\r\n", options.body.len());
        }
        let message = |last_field: &str| {
            let mut bytes = format!("{head}{last_field}\r\n").into_bytes();
            bytes.extend_from_slice(&options.body);
            bytes
        };
        let closing_bytes = message("Connection: close\r\n");
        let bytes = if options.close { closing_bytes.clone() } else { message("") };
        let content_at = bytes.len() - options.body.len();
        let head = Head::new(method, authority, target, options);
        Ok(Self { bytes, closing_bytes, is_head: method == "HEAD", head, content_at })
    }

    /// The content.
    #[must_use]
    pub fn content(&self) -> &[u8] {
        &self.bytes[self.content_at..]
    }
}

impl Head {
    fn new(method: &str, authority: &str, path: &str, options: &RequestOptions) -> Self {
        let mut authority = authority.to_owned();
        let mut fields = Vec::new();
        for (name, value) in &options.headers {
            match name.to_ascii_lowercase() {
                // HTTP/2 has `:authority` instead (RFC 9113 section 8.3.1).
                name if name == "host" => authority.clone_from(value),
                name => fields.push((name, value.clone())),
            }
        }
        if states_length(method, options) {
            fields.push(("content-length".to_owned(), options.body.len().to_string()));
        }
        Self { method: method.to_owned(), authority, path: path.to_owned(), fields }
    }
}

/// Whether a request has Content-Length. RFC 9110 section 8.6: these methods anticipate content, so an empty one
/// is given.
fn states_length(method: &str, options: &RequestOptions) -> bool {
    !options.body.is_empty() || matches!(method, "POST" | "PUT" | "PATCH")
}

fn is_token(text: &str) -> bool {
    !text.is_empty()
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
}

fn check_field(name: &str, value: &str) -> Result<(), String> {
    if !is_token(name) {
        return Err(format!("`{name}` is not a header name; write --header 'name: value'"));
    }
    if value.bytes().any(|byte| byte < b' ' && byte != b'\t' || byte == 0x7f) {
        return Err(format!("control character in the value of --header {name}; remove it"));
    }
    let owned = ["content-length", "transfer-encoding", "connection", "upgrade", "expect"];
    if owned.iter().any(|one| name.eq_ignore_ascii_case(one)) {
        return Err(format!(
            "--header {name} is not allowed, because the load generator sets it: use --body or --body-file for \
             content, --close to close connections"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> Url {
        Url::parse(text).unwrap()
    }

    #[test]
    fn url_is_parsed() {
        let cases = [
            ("http://a/", "a", 80, "a", "/"),
            ("https://a/", "a", 443, "a", "/"),
            ("HTTPS://a:8443/x", "a", 8443, "a:8443", "/x"),
            ("http://a:81", "a", 81, "a:81", "/"),
            ("HTTP://1.2.3.4:8080/x?y=z#f", "1.2.3.4", 8080, "1.2.3.4:8080", "/x?y=z"),
            ("http://[::1]:8080/", "[::1]", 8080, "[::1]:8080", "/"),
            ("http://a?q", "a", 80, "a", "/?q"),
        ];
        for (text, host, port, authority, target) in cases {
            let parsed = url(text);
            assert_eq!((parsed.host.as_str(), parsed.port), (host, port), "{text}");
            assert_eq!((parsed.authority.as_str(), parsed.target.as_str()), (authority, target));
        }
    }

    #[test]
    fn wrong_url_names_the_fix() {
        let cases = [
            ("ftp://a/", "unknown scheme `ftp`"),
            ("a:80/x", "write http://a:80/x"),
            ("http://a:0/", "ports are 1 to 65535"),
            ("http://a:99999/", "ports are 1 to 65535"),
            ("http:///x", "is not a host"),
            ("http://u@a/", "use --header"),
            ("http://a/b c", "percent-encoded"),
        ];
        for (text, words) in cases {
            let error = Url::parse(text).unwrap_err();
            assert!(error.contains(words), "{text}: {error}");
        }
    }

    #[test]
    fn request_is_one_complete_message() {
        let options = RequestOptions {
            method: "POST".to_owned(),
            headers: vec![("x-a".to_owned(), "1".to_owned())],
            body: b"abc".to_vec(),
            close: false,
        };
        let request = Request::new("h:1", "/p", &options).unwrap();
        assert_eq!(
            String::from_utf8(request.bytes).unwrap(),
            "POST /p HTTP/1.1\r\nHost: h:1\r\nx-a: 1\r\nContent-Length: 3\r\n\r\nabc"
        );
        assert!(
            String::from_utf8(request.closing_bytes).unwrap().contains("Connection: close\r\n")
        );
    }

    #[test]
    fn fields_that_break_the_framing_are_rejected() {
        for (name, value) in [
            ("a b", "1"),
            ("", "1"),
            ("x", "1\r\ny: 2"),
            ("Content-Length", "5"),
            ("connection", "x"),
        ] {
            let options = RequestOptions {
                headers: vec![(name.to_owned(), value.to_owned())],
                ..RequestOptions::default()
            };
            assert!(Request::new("h", "/", &options).is_err(), "{name}: {value}");
        }
    }

    #[test]
    fn mix_keeps_its_weights() {
        let text = "# three\n9 GET /a\nHEAD /b # rare\n\nhttp://h:1/c\n";
        let mix = RequestMix::parse(text, &url("http://h:1/"), &RequestOptions::default()).unwrap();
        assert_eq!(mix.len(), 3);
        assert!(mix.request(1).is_head);
        let mut prng = Prng::new(3);
        let mut seen = [0_u32; 3];
        for _ in 0..11_000 {
            seen[usize::from(mix.pick(0, &mut prng))] += 1;
        }
        assert!(seen[0].abs_diff(9000) < 300 && seen[1].abs_diff(1000) < 200, "{seen:?}");
    }

    #[test]
    fn wrong_mix_names_its_line() {
        let base = url("http://h/");
        let options = RequestOptions::default();
        for (text, words) in [
            ("/a\n0 /b", "line 2: weight 0"),
            ("1 2 3 4", "line 1:"),
            ("httq://other/", "line 1: httq://other/: unknown scheme"),
            ("# nothing\n", "no requests in the file"),
        ] {
            let error = RequestMix::parse(text, &base, &options).unwrap_err();
            assert!(error.contains(words), "{text}: {error}");
        }
    }

    #[test]
    fn authorities_share_connections_by_weight() {
        let text = "6 /a\n3 GET http://other:81/b\nhttps://h/c\n2 /d\n";
        let mix = RequestMix::parse(text, &url("http://h/"), &RequestOptions::default()).unwrap();
        let hosts: Vec<String> = mix.authorities().iter().map(ToString::to_string).collect();
        assert_eq!(hosts, ["http://h/a", "http://other:81/b", "https://h/c"]);
        assert_eq!(mix.connections_of(120).unwrap(), [80, 30, 10]);
        for thread in 0..10 {
            let own = (0..12).map(|at| mix.authority_of(thread * 12 + at, 120));
            assert!(own.filter(|authority| *authority == 0).count() >= 6, "thread {thread}");
        }
        let mut prng = Prng::new(1);
        for _ in 0..100 {
            assert!([0, 3].contains(&mix.pick(0, &mut prng)));
            assert_eq!((mix.pick(1, &mut prng), mix.pick(2, &mut prng)), (1, 2));
        }
        let error = mix.connections_of(3).unwrap_err();
        assert!(error.contains("too few: h gets none"), "{error}");
        let text = String::from_utf8(mix.request(1).bytes.clone()).unwrap();
        assert!(text.contains("Host: other:81\r\n"), "{text}");
    }
}
