//! The checked configuration: what the rest of the house reads. Immutable once made.
//! In: made by `parse` from text (or by tests directly). Out: plain data.
//! Never: a name that points nowhere: pools and listeners are indexes, checked when it was made.
//! Invariant: every index is in range; every route has exactly one action; limits lie within
//! the ceilings of `tidegate_base::limits`.

use core::net::IpAddr;
use tidegate_base::{Span, limits};

/// A whole configuration.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Config {
    /// `[server]`.
    pub server: Server,
    /// `[[listener]]`, in file order; at least one.
    pub listeners: Vec<Listener>,
    /// `[[route]]`, in file order; the first match wins.
    pub routes: Vec<Route>,
    /// `[pool.NAME]`, in file order.
    pub pools: Vec<Pool>,
}

/// `[server]`: what holds for the whole process.
#[derive(Clone, Debug, PartialEq)]
pub struct Server {
    /// Worker threads; `None` ("auto"): one per CPU this process may use.
    pub workers: Option<u16>,
    /// How long a stop waits for what is in flight.
    pub shutdown_grace: Span,
    /// Connections a worker holds at most; `None`: what its descriptor limit allows.
    pub connections_max: Option<u32>,
    /// Value of the `Server` field; empty: none is sent.
    pub server_name: String,
    /// Pseudonym in `Via` (RFC 9110 section 7.6.3).
    pub via: String,
    /// Whether listeners hand connections to the worker of the CPU that received them.
    pub steer_by_cpu: SteerByCpu,
}

/// `server.steer-by-cpu`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SteerByCpu {
    /// Only where interrupts are spread over the workers' CPUs.
    Auto,
    /// Always.
    On,
    /// Never.
    Off,
}

/// `[[listener]]`: a place where connections come in.
#[derive(Clone, Debug, PartialEq)]
pub struct Listener {
    /// Its name, for routes, logs and counters.
    pub name: String,
    /// Where it listens.
    pub bind: Bind,
    /// Connections that may wait in the kernel.
    pub backlog: u32,
    /// Limits of one request.
    pub limits: RequestLimits,
    /// Timeouts towards clients.
    pub timeouts: ClientTimeouts,
    /// Requests of one connection before it is closed; `None`: no bound.
    pub requests_per_connection_max: Option<u32>,
    /// Peers whose X-Forwarded-* and Forwarded fields are believed and extended; from all others
    /// they are replaced.
    pub trusted: Vec<Network>,
    /// Peers that say by the PROXY protocol whom they connect for; `None`: nobody is heard.
    pub proxy_protocol: Option<ProxySources>,
    /// Sends every request that came in plain to https instead of to a route; only on a listener without
    /// TLS.
    pub redirect_to_https: Option<HttpsRedirect>,
    /// Strict-Transport-Security of its answers; only where [`Listener::may_serve_https`].
    pub hsts: Option<Hsts>,
    /// How it speaks TLS; `None`: it speaks plain HTTP.
    pub tls: Option<ListenerTls>,
}

/// `redirect-to-https` of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HttpsRedirect {
    /// The port to go to.
    pub port: u16,
    /// The status of the answer; `None`: 301 for GET and HEAD, 308 for other methods.
    pub status: Option<u16>,
}

/// `hsts` of a listener or a route (RFC 6797).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Hsts {
    /// How long a browser remembers to come by https alone.
    pub max_age_seconds: u64,
    /// For all names below this one too.
    pub include_subdomains: bool,
    /// The site asks to be on browsers' lists.
    pub preload: bool,
}

impl Default for Hsts {
    fn default() -> Self {
        Self { max_age_seconds: 365 * 24 * 3600, include_subdomains: false, preload: false }
    }
}

/// `proxy-protocol` of a listener: whose connections begin with a PROXY header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProxySources {
    /// Peers by address.
    pub networks: Vec<Network>,
    /// Every peer of a unix socket.
    pub unix: bool,
}

impl ProxySources {
    /// Whether connections from `address` (`None`: by unix socket) begin with a header.
    #[must_use]
    pub fn contains(&self, address: Option<IpAddr>) -> bool {
        match address {
            Some(address) => self.networks.iter().any(|network| network.contains(address)),
            None => self.unix,
        }
    }
}

impl Listener {
    /// How its clients' URLs begin.
    #[must_use]
    pub fn scheme(&self) -> &'static str {
        if self.tls.is_some() { "https" } else { "http" }
    }

    /// Whether a request may have left its client by https: over TLS here, or with a proxy in front that
    /// may say so.
    #[must_use]
    pub fn may_serve_https(&self) -> bool {
        self.tls.is_some() || self.proxy_protocol.is_some() || !self.trusted.is_empty()
    }
}

/// `tls` of a listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenerTls {
    /// What it shows to clients.
    pub identity: TlsIdentity,
    /// Names that no certificate is for are refused instead of shown the first certificate.
    pub strict_sni: bool,
    /// The oldest version spoken.
    pub version_min: TlsVersion,
    /// Cipher suites, the preferred first; empty: all.
    pub ciphers: Vec<String>,
    /// Key exchange groups, the preferred first; empty: all.
    pub curves: Vec<String>,
    /// Application protocols, the preferred first.
    pub alpn: Vec<String>,
    /// Whether clients show certificates.
    pub client_auth: ClientAuth,
    /// Path of the authorities that judge them.
    pub client_ca: Option<String>,
    /// Path of revocation lists.
    pub client_crl: Option<String>,
    /// What seals session tickets.
    pub tickets: TicketSource,
    /// From accept to the end of the handshake.
    pub handshake_timeout: Span,
}

/// What a listener shows to clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TlsIdentity {
    /// A certificate made at start, for development.
    SelfSigned,
    /// Certificates from files, the default first; at least one.
    Files(Vec<CertificatePaths>),
}

/// Where a certificate and its key are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificatePaths {
    /// PEM: the certificate, then intermediate ones.
    pub cert: String,
    /// PEM: its private key.
    pub key: String,
    /// DER: an OCSP response to staple.
    pub ocsp: Option<String>,
}

/// A version of TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsVersion {
    /// 1.2.
    Tls12,
    /// 1.3.
    Tls13,
}

/// Whether clients show certificates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientAuth {
    /// They are not asked.
    Off,
    /// They are asked; one that is shown must be good.
    Optional,
    /// Without a good one there is no connection.
    Required,
}

/// What seals session tickets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TicketSource {
    /// Keys that this process makes, renews and shares among its workers.
    Own,
    /// Keys in a file, which several machines may share.
    File(String),
    /// No tickets.
    Off,
}

/// `tls` of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolTls {
    /// Whether a server's certificate is verified.
    pub verify: bool,
    /// Path of the authorities trusted; `None`: the system's.
    pub ca: Option<String>,
    /// Paths of revocation lists for the servers' certificates.
    pub crl: Vec<String>,
    /// The name asked for and verified; `None`: each server's own, as its address names it.
    pub server_name: Option<String>,
    /// What is shown to servers that ask for a certificate.
    pub client_cert: Option<CertificatePaths>,
    /// The oldest version spoken.
    pub version_min: TlsVersion,
    /// Cipher suites, the preferred first; empty: all.
    pub ciphers: Vec<String>,
    /// Key exchange groups, the preferred first; empty: all.
    pub curves: Vec<String>,
    /// Application protocols asked for; empty: none.
    pub alpn: Vec<String>,
    /// Resume earlier sessions.
    pub resume: bool,
}

/// Where a listener sits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Bind {
    /// An IP address and a port (0: any free one, which start-up prints).
    Tcp(core::net::SocketAddr),
    /// A unix socket's path.
    Unix(String),
}

/// A range of addresses, `10.0.0.0/8` or `::1`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    /// Its first address.
    pub address: IpAddr,
    /// How many leading bits must agree.
    pub prefix_bits: u8,
}

impl Network {
    /// Whether `address` lies in this range; IPv4-mapped IPv6 addresses count as IPv4.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(net), IpAddr::V4(ip)) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(self.prefix_bits)).unwrap_or(0);
                (u32::from(net) ^ u32::from(ip)) & mask == 0
            }
            (IpAddr::V6(net), IpAddr::V6(ip)) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(self.prefix_bits)).unwrap_or(0);
                (u128::from(net) ^ u128::from(ip)) & mask == 0
            }
            _ => false,
        }
    }
}

/// Limits of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestLimits {
    /// Bytes of the request line; more is answered 414.
    pub request_line_bytes_max: usize,
    /// Bytes of the whole head; more is answered 431.
    pub head_bytes_max: usize,
    /// Header fields; more are answered 431.
    pub header_fields_max: usize,
    /// Bytes of the body; more is answered 413. `None`: no bound (bodies are streamed).
    pub body_bytes_max: Option<u64>,
}

/// Timeouts towards clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientTimeouts {
    /// From a request's first byte to the end of its head; then 408.
    pub head: Span,
    /// Between requests of a kept connection; then it is closed in silence.
    pub idle: Span,
    /// Without a byte of the request's body, or without the client taking any of the answer.
    pub body: Span,
}

/// `[[route]]`: which requests, and what happens to them.
#[derive(Clone, Debug, PartialEq)]
pub struct Route {
    /// Index of the only listener it holds for; `None`: all.
    pub listener: Option<usize>,
    /// Which host; `None`: any.
    pub host: Option<HostPattern>,
    /// Which path; `None`: any.
    pub path: Option<PathPattern>,
    /// Which methods, upper case; empty: any.
    pub methods: Vec<String>,
    /// Header conditions, all of which must hold.
    pub headers: Vec<HeaderCondition>,
    /// What must hold of the client's certificate; `None`: nothing.
    pub client_cert: Option<CertificateCondition>,
    /// Strict-Transport-Security of its answers over TLS; `None`: as the listener has it.
    pub hsts: Option<Hsts>,
    /// What happens.
    pub action: Action,
}

/// A route's host: compared without case, without port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostPattern {
    /// `example.com`, lower case.
    Exact(String),
    /// `*.example.com`, kept as `.example.com`: one or more labels before it.
    Below(String),
}

/// A route's path pattern, matched against the percent-decoded-as-written path without the query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathPattern {
    /// `/json`: this path alone.
    Exact(String),
    /// `/api/*`, kept as `/api/`: everything below it, and `/api` itself.
    Below(String),
    /// `/users/{id}/posts`: segments, some of them names for any one segment.
    Segments {
        /// In order, without the slashes.
        segments: Vec<Segment>,
        /// Whether a trailing `/*` lets more segments follow.
        open_end: bool,
    },
}

/// One segment of a path pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Segment {
    /// Must be equal.
    Literal(String),
    /// `{name}`: any one non-empty segment.
    Any(String),
}

/// `headers = { "x-canary" = "yes" }`: a condition on one field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderCondition {
    /// Field name, lower case.
    pub name: String,
    /// What its value must be.
    pub test: HeaderTest,
}

/// What a header condition asks of the value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeaderTest {
    /// The field is there, whatever its value (`true` in the file).
    Present,
    /// The field is not there (`false` in the file).
    Absent,
    /// One field line's value equals this.
    Equals(String),
}

/// `client-cert` of a route: a condition on the certificate of the client that was verified here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CertificateCondition {
    /// There is one, whosever (`true` in the file).
    Present,
    /// There is none (`false` in the file).
    Absent,
    /// It is one of these.
    Is(CertificateTest),
}

/// What a certificate must be; what is empty is not asked for, and one of the two is not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateTest {
    /// Its subject is one of these, as servers are told it.
    pub subjects: Vec<String>,
    /// Its SHA-256 is one of these: 64 lower-case hexadecimal digits.
    pub fingerprints: Vec<String>,
}

/// What a route does.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Action {
    /// A fixed answer.
    Respond(Respond),
    /// 301, 302, 303, 307 or 308 to another place.
    Redirect(Redirect),
    /// Answers made to the URL's order: size, status, delay, ... (for tests and benches).
    Synthetic,
    /// Forwarded to a server of a pool.
    Proxy(Proxy),
}

/// `respond = { status, headers, body }`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Respond {
    /// 200 to 599.
    pub status: u16,
    /// Further fields, in order; framing and connection fields are refused when parsed.
    pub headers: Vec<(String, String)>,
    /// The content.
    pub body: Vec<u8>,
}

/// `redirect = { to, status }`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Redirect {
    /// 301, 302, 303, 307 or 308.
    pub status: u16,
    /// `{host}`, `{path}` and `{query}` stand for the request's; in pieces.
    pub to: Vec<RedirectPiece>,
}

/// A piece of a redirect's target.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RedirectPiece {
    /// As written.
    Text(String),
    /// The request's host, with its port.
    Host,
    /// The request's path.
    Path,
    /// `?` and the request's query, or nothing.
    Query,
}

/// `proxy = "NAME"` or `proxy = { pool = "NAME", ... }`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Proxy {
    /// Index of the pool.
    pub pool: usize,
    /// What the server sees as Host.
    pub host: UpstreamHost,
}

/// What the server sees as Host.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum UpstreamHost {
    /// What the client sent (default).
    Keep,
    /// This.
    Replace(String),
}

/// `[pool.NAME]`: servers that do the same work.
#[derive(Clone, Debug, PartialEq)]
pub struct Pool {
    /// Its name, for routes, logs and counters.
    pub name: String,
    /// Which server is next.
    pub balance: Balance,
    /// At least one.
    pub servers: Vec<Upstream>,
    /// Timeouts towards servers.
    pub timeouts: ServerTimeouts,
    /// Reuse of connections.
    pub reuse: Reuse,
    /// Further servers tried after the first, where that is safe.
    pub retries: u32,
    /// Requests that wait for a server below its `connections-max`, per worker.
    pub queue_max: u32,
    /// How servers are told whom a connection is for; `None`: they are not.
    pub proxy_protocol: Option<ProxyVersion>,
    /// Whether servers receive the trailer fields of requests.
    pub trailers: bool,
    /// How its servers are spoken to in TLS; `None`: in plain HTTP.
    pub tls: Option<PoolTls>,
}

/// `proxy-protocol` of a pool: which form of header servers are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyVersion {
    /// A line of text.
    V1,
    /// A block of bytes, which also says how the client spoke TLS.
    V2,
}

/// `balance`: which server is next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Balance {
    /// Two at random by weight, the less loaded one of them.
    Random,
    /// In turn, by weight.
    RoundRobin,
    /// The least loaded one by weight.
    LeastConnections,
    /// By a key of the request: consistent, with bounded load.
    Hash(HashKey),
}

/// What `balance = { hash = ... }` looks at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HashKey {
    /// The value of this field (lower case name); requests without it are spread at random.
    Header(String),
    /// The path, without the query.
    Path,
    /// The client's address.
    ClientAddress,
}

/// A server of a pool (upstream).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upstream {
    /// Where it is.
    pub address: ServerAddress,
    /// Its share beside the others; 0: none but for what hashes to nobody else.
    pub weight: u16,
    /// Connections in use at once, per worker; `None`: no bound.
    pub connections_max: Option<u32>,
}

/// Where a server is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerAddress {
    /// An IP address and a port.
    Ip(core::net::SocketAddr),
    /// A name, looked up at start, and a port.
    Name(String, u16),
    /// A unix socket's path.
    Unix(String),
}

/// Timeouts towards servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerTimeouts {
    /// Until the connection stands; then another server or 504.
    pub connect: Span,
    /// From the request's end to the answer's head; then 504.
    pub response_head: Span,
    /// Without a byte within a body, in the direction that flows.
    pub body: Span,
    /// In the queue for a server; then 503.
    pub queue: Span,
    /// Without a byte in a tunnel, in both directions.
    pub tunnel: Span,
}

/// Reuse of upstream connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reuse {
    /// Idle connections kept per server and worker.
    pub idle_max: u32,
    /// How long one is kept idle.
    pub idle_timeout: Span,
    /// Requests over one connection; `None`: no bound.
    pub requests_max: Option<u32>,
    /// Reuse a connection after a request whose body its server may not expect, such as that of a GET.
    pub after_unexpected_body: bool,
}

impl Default for Server {
    fn default() -> Self {
        Self {
            workers: None,
            shutdown_grace: Span::from_secs(30),
            connections_max: None,
            server_name: "tidegate".to_owned(),
            via: "tidegate".to_owned(),
            steer_by_cpu: SteerByCpu::Auto,
        }
    }
}

impl Default for RequestLimits {
    fn default() -> Self {
        Self {
            request_line_bytes_max: limits::REQUEST_LINE_BYTES_MAX,
            head_bytes_max: limits::HEAD_BYTES_MAX,
            header_fields_max: limits::HEADER_FIELDS_MAX,
            body_bytes_max: None,
        }
    }
}

impl Default for ClientTimeouts {
    fn default() -> Self {
        Self { head: Span::from_secs(10), idle: Span::from_secs(60), body: Span::from_secs(30) }
    }
}

impl Default for ListenerTls {
    fn default() -> Self {
        Self {
            identity: TlsIdentity::SelfSigned,
            strict_sni: false,
            version_min: TlsVersion::Tls12,
            ciphers: Vec::new(),
            curves: Vec::new(),
            alpn: vec!["http/1.1".to_owned()],
            client_auth: ClientAuth::Off,
            client_ca: None,
            client_crl: None,
            tickets: TicketSource::Own,
            handshake_timeout: Span::from_secs(10),
        }
    }
}

impl Default for PoolTls {
    fn default() -> Self {
        Self {
            verify: true,
            ca: None,
            crl: Vec::new(),
            server_name: None,
            client_cert: None,
            version_min: TlsVersion::Tls12,
            ciphers: Vec::new(),
            curves: Vec::new(),
            alpn: Vec::new(),
            resume: true,
        }
    }
}

impl Default for ServerTimeouts {
    fn default() -> Self {
        Self {
            connect: Span::from_secs(3),
            response_head: Span::from_secs(60),
            body: Span::from_secs(60),
            queue: Span::from_secs(10),
            tunnel: Span::from_secs(3600),
        }
    }
}

impl Default for Reuse {
    fn default() -> Self {
        Self {
            idle_max: 16_384,
            idle_timeout: Span::from_secs(30),
            requests_max: None,
            after_unexpected_body: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proxy_is_heard_by_its_address_or_by_its_socket() {
        let network = Network { address: "10.0.0.0".parse().unwrap(), prefix_bits: 8 };
        let by_address = ProxySources { networks: vec![network], unix: false };
        assert!(by_address.contains(Some("10.9.9.9".parse().unwrap())));
        assert!(
            !by_address.contains(Some("11.0.0.1".parse().unwrap())) && !by_address.contains(None)
        );
        let by_path = ProxySources { networks: Vec::new(), unix: true };
        assert!(by_path.contains(None) && !by_path.contains(Some("10.0.0.1".parse().unwrap())));
    }

    #[test]
    fn a_network_holds_its_addresses_alone() {
        let net = Network { address: "10.1.0.0".parse().unwrap(), prefix_bits: 16 };
        assert!(net.contains("10.1.255.255".parse().unwrap()));
        assert!(net.contains("::ffff:10.1.2.3".parse().unwrap()), "mapped counts as IPv4");
        assert!(!net.contains("10.2.0.0".parse().unwrap()));
        let all = Network { address: "::".parse().unwrap(), prefix_bits: 0 };
        assert!(all.contains("2001:db8::1".parse().unwrap()));
        assert!(!all.contains("10.0.0.1".parse().unwrap()));
    }
}
