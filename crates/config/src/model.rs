//! The checked configuration that all other crates read. Immutable after it is built.
//! In: built by `parse` from text, or directly by tests. Out: plain data.
//! Never: refers to pools or listeners by name; references are indexes that were checked when it was built.
//! Invariant: every index is in range; every route has exactly one action; limits are within the ceilings of
//! `tidegate_base::limits`.

use core::net::IpAddr;
use tidegate_base::{Span, limits};

mod admin;
mod answers;
mod auth;
mod bandwidth;
mod certificate;
mod choice;
mod client_fields;
mod conditions;
mod count_table;
mod drain;
mod eject;
mod handling;
mod health;
mod identity;
mod mirror;
mod networks;
mod origins;
mod proxy_sources;
mod rate;
mod remote_address;
mod resolver;
mod retry_on;
mod reuse;
mod route_timeouts;
mod server;
mod sticky;
mod tcp;
mod text_map;
mod traces;
mod upstream;

pub use crate::lua::{LuaApp, LuaLayer, LuaSetting};
pub use crate::push::{
    Deltas, Namespace, Permit, PublishRate, Push, PushRoute, Slow, Subscribe, is_channel_pattern,
    is_event_name,
};
pub use crate::push_backend::{BackendEvent, BackendTarget, PushBackend};
pub use crate::text_test::{TextFault, TextKind, TextTest};

pub use admin::{Admin, AdminTls};
pub use answers::{Cors, ErrorPage, Maintenance, Page};
pub use auth::{AskAuth, BasicAuth, JwtAuth, KeyContent, PublicKeys, Users};
pub use bandwidth::Bandwidth;
pub use certificate::{CertificatePaths, GivenCertificate};
pub use choice::{MapChoice, PoolChoice, Split};
pub use client_fields::CLIENT_ADDRESS_HEADERS;
pub use conditions::{Conditions, HeaderCondition, HeaderTest, NamedTest};
pub use count_table::{
    COUNT_TABLES_MAX, COUNTS_MAX, Comparison, Count, CountTable, CountTest, Counted, TableTest,
};
pub use drain::DrainTimes;
pub use eject::{Eject, RetryBudget};
pub use handling::{FieldEdits, Handling, Hooks, Placeholder, Template, TemplatePiece};
pub use health::{
    AgentCheck, BodyCheck, CheckKind, CheckMethod, GrpcCheck, HealthCheck, HttpCheck,
    WebSocketCheck,
};
pub use identity::{ID_FIELD_BYTES_MAX, Keep, RequestIds, Trace};
pub use mirror::Mirror;
pub use networks::{AddressSet, Addresses, NetworkSet, RANGES_MAX};
pub use origins::{Origin, Origins, Stated};
pub use proxy_sources::ProxySources;
pub use rate::{Rate, RateExcess};
pub use remote_address::RemoteAddress;
pub use resolver::{Families, Hold, Resolver};
pub use retry_on::{RETRY_STATUSES, RetryOn};
pub use reuse::{Reuse, Unretriable};
pub use route_timeouts::RouteTimeouts;
pub use server::{MemoryMax, Overload, Server};
pub use sticky::{SameSite, Stay, Sticky};
pub use tcp::Forward;
pub use text_map::{KEY_BYTES_MAX, MapEntry, MapFault, MapKind, TextMap, ValueMap, entries_max};
pub use traces::Traces;
pub use upstream::{SLOTS_MAX, ServerAddress, Slot, SlotSource, Upstream};

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
    /// `[push.NAME]`, in file order.
    pub push: Vec<Push>,
    /// `[websocket]`.
    pub websocket: WebSocket,
    /// `[set.NAME]`, in file order.
    pub sets: Vec<AddressSet>,
    /// `[map.NAME]`, in file order.
    pub maps: Vec<ValueMap>,
    /// `[table.NAME]`, in file order.
    pub tables: Vec<CountTable>,
    /// `[lua.NAME]`, in file order.
    pub lua: Vec<LuaApp>,
    /// `[log]`.
    pub log: Log,
    /// `[admin]`; `None`: there is no admin interface.
    pub admin: Option<Admin>,
    /// `[resolver]`; `None`: the system resolves the names of servers.
    pub resolver: Option<Resolver>,
    /// `[traces]`; `None`: no spans are recorded.
    pub traces: Option<Traces>,
    /// Which routes and pools commands have added and removed.
    pub origins: Origins,
}

/// `[log]`: the lines about requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Log {
    /// The access log; `None`: no access log.
    pub access: Option<AccessLog>,
}

/// `log.access`: one line for each request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessLog {
    /// The destination of the lines.
    pub to: AccessTarget,
    /// The form of a line.
    pub format: AccessFormat,
    /// Further contents of the lines.
    pub captures: CaptureNames,
    /// The requests that are logged.
    pub only: AccessFilter,
    /// A request that took at least this long is logged whatever `only` and `sample` are; `None`: the duration does not matter.
    pub slow: Option<Span>,
    /// Share of the requests that ended normally for which a line is written, in parts per million.
    pub sample: u32,
}

/// The parts of the messages and of the client's certificate that lines of the access log contain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CaptureNames {
    /// Names of request fields, in lower case; each once.
    pub request_headers: Vec<String>,
    /// Names of cookies of the request; each once.
    pub cookies: Vec<String>,
    /// Names of response fields, in lower case; each once.
    pub response_headers: Vec<String>,
    /// Names of cookies that the response sets; each once.
    pub response_cookies: Vec<String>,
    /// Lines contain the subject of the client's verified certificate.
    pub client_certificate: bool,
}

/// `sample` of `log.access` for every request.
pub const SAMPLE_ALL: u32 = 1_000_000;

/// `to` of `log.access`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccessTarget {
    /// The standard output stream.
    Stdout,
    /// A file, by its path, to which lines are appended.
    File(String),
    /// A receiver of syslog.
    Syslog(SyslogAddress),
}

/// The address of a receiver of syslog.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SyslogAddress {
    /// Datagrams of UDP.
    Udp(core::net::SocketAddr),
    /// A TCP connection, with the length before each message.
    Tcp(core::net::SocketAddr),
    /// Datagrams to a unix socket, by its path.
    Unix(String),
}

/// `format` of `log.access`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessFormat {
    /// One JSON object.
    Json,
    /// The fields of HAProxy's `option httplog`.
    Http,
}

/// `only` of `log.access`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessFilter {
    /// Every request.
    All,
    /// Requests that failed: a status of 400 or more, or an exchange that did not end normally.
    Errors,
}

/// `[websocket]`: WebSocket connections that Tidegate serves itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebSocket {
    /// The web pages that may connect: "same-origin", "null", "*" or origins such as `https://*.example.com`.
    /// Invariant: every entry is valid.
    pub origins: Vec<String>,
    /// The supported subprotocols: tokens, each once.
    pub subprotocols: Vec<String>,
    /// Compression of messages.
    pub compression: Compression,
    /// The largest window of compression in each direction, in bits: 9 to 15.
    pub window_bits: u8,
    /// Maximum size of a message in bytes, after decompression.
    pub message_bytes_max: u32,
    /// Maximum size of the payload of a frame in bytes; `None`: that of a message.
    pub frame_bytes_max: Option<u32>,
    /// Time without a message, after which the connection is closed; `None`: unlimited.
    pub idle_timeout: Option<Span>,
    /// Time without a byte from the client, after which it gets a Ping; `None`: no Pings.
    pub ping_every: Option<Span>,
    /// Time without a byte from the client after a Ping or a Close frame, after which the connection is closed.
    pub pong_timeout: Span,
}

impl Default for WebSocket {
    fn default() -> Self {
        Self {
            origins: vec![SAME_ORIGIN.to_owned()],
            subprotocols: Vec::new(),
            compression: Compression::Off,
            window_bits: 15,
            message_bytes_max: limits::WEBSOCKET_MESSAGE_BYTES_MAX,
            frame_bytes_max: None,
            idle_timeout: None,
            ping_every: Some(Span::from_secs(30)),
            pong_timeout: Span::from_secs(10),
        }
    }
}

/// The entry of `websocket.origins` for pages of the requested host.
pub const SAME_ORIGIN: &str = "same-origin";

/// `websocket.compression`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// No compression.
    Off,
    /// Each message is compressed independently.
    Shared,
    /// Messages refer to earlier messages of their connection.
    Dedicated,
}

/// `server.reload`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReloadOn {
    /// At SIGHUP and at the command `reload`.
    Signal,
    /// Also when the file has changed.
    Watch,
}

/// `server.steer-by-cpu`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SteerByCpu {
    /// Only if the network card's interrupts are spread over the workers' CPUs.
    Auto,
    /// Always.
    On,
    /// Never.
    Off,
}

/// `[[listener]]`: an address that accepts connections.
#[derive(Clone, Debug, PartialEq)]
pub struct Listener {
    /// Name in routes, logs and counters; unique.
    pub name: String,
    /// The address to listen on.
    pub bind: Bind,
    /// Maximum number of connections that wait in the kernel until they are accepted.
    pub backlog: u32,
    /// Limits of one request.
    pub limits: RequestLimits,
    /// Timeouts for clients.
    pub timeouts: ClientTimeouts,
    /// Number of requests on one connection before it is closed; `None`: unlimited.
    pub requests_per_connection_max: Option<u32>,
    /// `connections-max`: open connections of all clients; `None`: only the limit of the process.
    pub connections_max: Option<u32>,
    /// `connections-per-address-max`: open connections of one client address; `None`: unlimited.
    pub per_address_max: Option<u32>,
    /// `count`: indexes of the tables that count all requests, each once.
    pub counting: Vec<usize>,
    /// Addresses whose X-Forwarded-* and Forwarded fields are trusted and extended; those of other clients are replaced.
    pub trusted: Vec<Network>,
    /// Names of further fields with the client's address, in lower case. They are removed from requests of clients
    /// that are not in `trusted`.
    pub client_address_headers: Vec<String>,
    /// Proxies that send a PROXY header with the client's address; `None`: no peer may send a PROXY header.
    pub proxy_protocol: Option<ProxySources>,
    /// Redirects every plain HTTP request to https before routing. Only present on a listener without TLS.
    pub redirect_to_https: Option<HttpsRedirect>,
    /// Strict-Transport-Security of responses; only present if [`Listener::may_serve_https`] holds.
    pub hsts: Option<Hsts>,
    /// TLS settings; `None`: plain HTTP.
    pub tls: Option<ListenerTls>,
    /// Whether clients may begin with HTTP/2 on a plain connection.
    pub h2c: bool,
    /// The destination to which connections are forwarded without reading HTTP; `None`: the listener serves HTTP.
    pub forward: Option<Forward>,
    /// A command has switched the listener off: it accepts no connection. Always false in a file.
    pub is_off: bool,
}

/// `redirect-to-https` of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HttpsRedirect {
    /// Port of the https URL.
    pub port: u16,
    /// Status of the response; `None`: 301 for GET and HEAD, 308 for other methods.
    pub status: Option<u16>,
}

/// `hsts` of a listener or a route (RFC 6797).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Hsts {
    /// How long a browser uses only https, in seconds.
    pub max_age_seconds: u64,
    /// Whether all subdomains are included.
    pub include_subdomains: bool,
    /// Whether the site requests an entry in the preload lists of browsers.
    pub preload: bool,
}

impl Default for Hsts {
    fn default() -> Self {
        Self { max_age_seconds: 365 * 24 * 3600, include_subdomains: false, preload: false }
    }
}

impl Listener {
    /// The scheme of the URLs that the listener serves.
    #[must_use]
    pub fn scheme(&self) -> &'static str {
        if self.tls.is_some() { "https" } else { "http" }
    }

    /// Whether a client may have sent a request by https: over TLS here, or to a proxy in `trusted` or `proxy-protocol`.
    #[must_use]
    pub fn may_serve_https(&self) -> bool {
        self.tls.is_some() || self.proxy_protocol.is_some() || !self.trusted.is_empty()
    }
}

/// `tls` of a listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenerTls {
    /// The certificates that are presented to clients.
    pub identity: TlsIdentity,
    /// Whether server names that no certificate covers are rejected; otherwise they get the first certificate.
    pub strict_sni: bool,
    /// The oldest TLS version that is accepted.
    pub version_min: TlsVersion,
    /// Cipher suites, in order of preference; empty: all.
    pub ciphers: Vec<String>,
    /// Key exchange groups, in order of preference; empty: all.
    pub curves: Vec<String>,
    /// Application protocols, in order of preference.
    pub alpn: Vec<String>,
    /// Whether clients are asked for a certificate.
    pub client_auth: ClientAuth,
    /// Path of the authorities for client certificates; present unless `client_auth` is `Off`.
    pub client_ca: Option<String>,
    /// Path of the revocation lists for client certificates.
    pub client_crl: Option<String>,
    /// The keys that encrypt session tickets.
    pub tickets: TicketSource,
    /// Time from accepting a connection to the end of its handshake.
    pub handshake_timeout: Span,
    /// The name of the application that chooses the certificate of each connection.
    pub lua: Option<String>,
}

/// The certificates that a listener presents to clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TlsIdentity {
    /// A certificate that is created at start, for development.
    SelfSigned,
    /// Certificates from files, at least one; the first is the default.
    Files(Vec<CertificatePaths>),
}

/// A version of TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsVersion {
    /// TLS 1.2.
    Tls12,
    /// TLS 1.3.
    Tls13,
}

/// Whether clients are asked for a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientAuth {
    /// No certificate is requested.
    Off,
    /// A certificate is requested; if the client presents one, it must be valid.
    Optional,
    /// A valid certificate is required, otherwise the handshake fails.
    Required,
}

/// The keys that encrypt session tickets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TicketSource {
    /// Keys that this process creates and renews, shared by its workers.
    Own,
    /// Keys in the file of this path, which several machines may share.
    File(String),
    /// No tickets are issued.
    Off,
}

/// `tls` of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolTls {
    /// Whether the certificates of servers are verified.
    pub verify: bool,
    /// Path of the trusted authorities; `None`: those of the system.
    pub ca: Option<String>,
    /// Paths of the revocation lists for the certificates of servers.
    pub crl: Vec<String>,
    /// The server name to request and verify; `None`: the name in each server's address.
    pub server_name: Option<String>,
    /// Certificate to present to servers that request one.
    pub client_cert: Option<CertificatePaths>,
    /// The oldest TLS version that is accepted.
    pub version_min: TlsVersion,
    /// Cipher suites, in order of preference; empty: all.
    pub ciphers: Vec<String>,
    /// Key exchange groups, in order of preference; empty: all.
    pub curves: Vec<String>,
    /// Application protocols to offer; empty: none.
    pub alpn: Vec<String>,
    /// Whether earlier sessions are resumed.
    pub resume: bool,
}

/// The address of a listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Bind {
    /// An IP address and a port (0: any free port, which is printed at start).
    Tcp(core::net::SocketAddr),
    /// The path of a unix socket.
    Unix(String),
}

/// A range of addresses, such as `10.0.0.0/8` or `::1`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    /// The first address of the range.
    pub address: IpAddr,
    /// Number of leading bits that must match; up to 32 (IPv4) or 128 (IPv6).
    pub prefix_bits: u8,
}

impl Network {
    /// Whether `address` is in this range. IPv4-mapped IPv6 addresses count as IPv4.
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
    /// Maximum size of the request line in bytes; a longer one gets a 414 response.
    pub request_line_bytes_max: usize,
    /// Maximum size of the whole head in bytes; a larger one gets a 431 response.
    pub head_bytes_max: usize,
    /// Maximum number of header fields; more get a 431 response.
    pub header_fields_max: usize,
    /// Maximum size of the body in bytes; a larger one gets a 413 response. `None`: unlimited.
    pub body_bytes_max: Option<u64>,
    /// Minimum rate of the body in bytes per second, over `timeouts.body`; a slower one gets a 408 response. 0: no minimum.
    pub body_rate_min: usize,
}

/// Timeouts for clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientTimeouts {
    /// Time from the first byte of a request to the end of its head; then a 408 response.
    pub head: Span,
    /// Time between two requests on a keep-alive connection; then it is closed without a response.
    pub idle: Span,
    /// Time without a byte of the request body, or without the client accepting any part of the response.
    pub body: Span,
}

/// `[[route]]`: selects requests and defines what happens to them.
#[derive(Clone, Debug, PartialEq)]
pub struct Route {
    /// Whether its requests may be refused while the worker is overloaded.
    pub shed: bool,
    /// Index of the only listener that the route applies to; `None`: all listeners.
    pub listener: Option<usize>,
    /// The hosts that match; empty: any host.
    pub hosts: Vec<HostPattern>,
    /// The paths that match; empty: any path.
    pub paths: Vec<PathPattern>,
    /// The methods that match, in upper case; empty: any method.
    pub methods: Vec<String>,
    /// Conditions on header fields, all of which must hold.
    pub headers: Vec<HeaderCondition>,
    /// Condition on the client's certificate; `None`: no condition.
    pub client_cert: Option<CertificateCondition>,
    /// Conditions on the client's address, the query, cookies and counts.
    pub conditions: Conditions,
    /// `count`: indexes of the tables that count the route's requests, each once.
    pub counting: Vec<usize>,
    /// Strict-Transport-Security of responses to https requests; `None`: the listener's.
    pub hsts: Option<Hsts>,
    /// Settings of the route's WebSocket connections; `None`: those of [`Config::websocket`].
    pub websocket: Option<WebSocket>,
    /// What happens to the request and its response in addition to the action.
    pub handling: Handling,
    /// The action for the request.
    pub action: Action,
    /// Whether a command has switched the route off: it matches no request.
    pub is_off: bool,
}

impl Route {
    /// Whether the routes select the same requests. The indexes of their listeners must belong to the same arrangement.
    #[must_use]
    pub fn selects_same(&self, other: &Self) -> bool {
        (self.listener, &self.hosts, &self.paths, &self.methods)
            == (other.listener, &other.hosts, &other.paths, &other.methods)
            && (&self.headers, &self.client_cert, &self.conditions)
                == (&other.headers, &other.client_cert, &other.conditions)
    }
}

/// Host pattern of a route, compared without case and port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostPattern {
    /// `example.com`, lower case.
    Exact(String),
    /// `*.example.com`, stored as `.example.com`: one or more labels before the suffix.
    Below(String),
}

/// Path pattern of a route, as written in the file. The router normalizes it and compares it with the path of a
/// request without the query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathPattern {
    /// `/json`: only this path.
    Exact(String),
    /// `/api/*`, stored as `/api/`: everything below it, and `/api` itself.
    Below(String),
    /// `/users/{id}/posts`: segments, some of which match any one segment.
    Segments {
        /// The segments in order, without slashes.
        segments: Vec<Segment>,
        /// Whether a trailing `/*` allows more segments to follow.
        open_end: bool,
    },
}

/// One segment of a path pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Segment {
    /// A segment that must be equal.
    Literal(String),
    /// `{name}`: any one non-empty segment.
    Any(String),
}

/// `client-cert` of a route: a condition on the client's certificate. Only a certificate that was verified by
/// Tidegate itself counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CertificateCondition {
    /// The client has a certificate, with any subject (`true` in the file).
    Present,
    /// The client has no certificate (`false` in the file).
    Absent,
    /// The client has a certificate that passes this test.
    Is(CertificateTest),
}

/// The certificates that match. An empty list adds no condition. Invariant: at least one of the lists is not empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateTest {
    /// The subject is one of these, in the form that servers receive.
    pub subjects: Vec<String>,
    /// The SHA-256 fingerprint is one of these, each with 64 lower-case hexadecimal digits.
    pub fingerprints: Vec<String>,
}

/// The action of a route.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Action {
    /// Sends a fixed response.
    Respond(Respond),
    /// Redirects the client.
    Redirect(Redirect),
    /// Makes a response as described by the URL: size, status, delay, ... (for tests and benchmarks).
    Synthetic,
    /// Accepts WebSocket connections and sends each message back.
    Echo,
    /// Connects the client with a push hub.
    Push(PushRoute),
    /// Passes the request to the Lua application with this index.
    Lua(usize),
    /// Forwards the request to a server of a pool.
    Proxy(Proxy),
}

/// `respond = { status, headers, body }`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Respond {
    /// Status code, from 200 to 599.
    pub status: u16,
    /// Additional header fields, in order. Invariant: no framing or connection fields.
    pub headers: Vec<(String, String)>,
    /// The content; empty if the status allows no content.
    pub body: Vec<u8>,
}

/// `redirect = { to, status }`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Redirect {
    /// Status code: 301, 302, 303, 307 or 308.
    pub status: u16,
    /// The target in pieces, which are concatenated.
    pub to: Vec<RedirectPiece>,
}

/// A piece of a redirect's target.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RedirectPiece {
    /// Text that is copied as written.
    Text(String),
    /// `{host}`: the request's host with its port.
    Host,
    /// `{path}`: the request's path.
    Path,
    /// `{query}`: `?` and the request's query, or nothing if there is no query.
    Query,
    /// Another value of the request. It is never a part of the host.
    Value(Placeholder),
}

/// `proxy = "NAME"` or `proxy = { pool = "NAME", ... }`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Proxy {
    /// The pool.
    pub pool: PoolChoice,
    /// The Host field that the server receives.
    pub host: UpstreamHost,
    /// The path that the server receives; `None`: as the client sent it.
    pub path: Option<Template>,
}

/// The value of the Host field that a server receives.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum UpstreamHost {
    /// The value that the client sent (default).
    Keep,
    /// This value.
    Replace(String),
}

/// `[pool.NAME]`: servers that do the same work.
#[derive(Clone, Debug, PartialEq)]
pub struct Pool {
    /// Name in routes, logs and counters; unique.
    pub name: String,
    /// How the server for a request is chosen.
    pub balance: Balance,
    /// Sessions that stay with a server; `None`: each request is balanced independently.
    pub sticky: Option<Sticky>,
    /// Keeps requests with the same key on one server; `None`: no table of keys. Not together with `sticky`.
    pub stay: Option<Stay>,
    /// The servers; at least one, and at least one with a weight above 0.
    pub servers: Vec<Upstream>,
    /// How servers are checked; `None`: no checks.
    pub health: Option<HealthCheck>,
    /// How servers' agents are checked; `None`: no agents.
    pub agent: Option<AgentCheck>,
    /// When servers are avoided because their requests fail; `None`: only after a failed connect.
    pub eject: Option<Eject>,
    /// How long the weight of a server that is up again takes to grow to its full value; zero: no time.
    pub slow_start: Span,
    /// Timeouts for servers.
    pub timeouts: ServerTimeouts,
    /// Reuse of connections to the servers.
    pub reuse: Reuse,
    /// How many further attempts are made after the first one failed, if that is safe.
    pub retries: u32,
    /// How many retries are allowed beside the requests; `None`: any number.
    pub retry_budget: Option<RetryBudget>,
    /// The failures after which a further attempt is made.
    pub retry_on: RetryOn,
    /// Time before servers are tried again if all have failed; at most the time to connect.
    pub retry_pause: Span,
    /// Maximum number of requests that wait until a server has fewer requests than its `connections-max`, divided among
    /// the workers.
    pub queue_max: u32,
    /// Whether a request waits in the queue although its client has ended its direction of the connection.
    pub queue_half_closed: bool,
    /// How many bytes of a request body must have arrived before the request is assigned to a server; 0: none.
    pub request_buffer_bytes: usize,
    /// The PROXY header that servers receive; `None`: no header is sent.
    pub proxy_protocol: Option<ProxyVersion>,
    /// Whether servers receive the trailer fields of requests.
    pub trailers: bool,
    /// Whether responses that deviate from HTTP's grammar are rejected even if they can be read in only one way.
    pub strict: bool,
    /// TLS settings; `None`: plain HTTP.
    pub tls: Option<PoolTls>,
    /// The servers speak HTTP/2 without TLS (prior knowledge). Only without `tls`.
    pub h2c: bool,
    /// Connections to servers that speak HTTP/2.
    pub http2: crate::http2::PoolHttp2,
}

/// `proxy-protocol` of a pool: the version of the PROXY header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyVersion {
    /// Version 1: a line of text.
    V1,
    /// Version 2: a binary block, which also describes how the client used TLS.
    V2,
}

/// `balance`: how the server for a request is chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Balance {
    /// The less loaded one of two servers drawn at random by weight.
    Random,
    /// Each server in turn, by weight.
    RoundRobin,
    /// The least loaded server, by weight.
    LeastConnections,
    /// By a key of the request: consistent hashing with bounded load.
    Hash(HashKey),
}

/// The key of `balance = { hash = ... }`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HashKey {
    /// The value of the field with this name (lower case). Requests without the field are spread at random.
    Header(String),
    /// The path, without the query.
    Path,
    /// The client's address.
    ClientAddress,
}

/// Timeouts for servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerTimeouts {
    /// Time to establish a connection; then another server is tried, or a 504 response is sent.
    pub connect: Span,
    /// Time from the end of the request to the head of the response; then a 504 response.
    pub response_head: Span,
    /// Time without a byte of a body, in the direction that is being transferred.
    pub body: Span,
    /// Time in the queue for a server; then a 503 response.
    pub queue: Span,
    /// The same, if the queue was not empty for as long as `queue`; `None`: `queue`.
    pub queue_standing: Option<Span>,
    /// Time without a byte in either direction of a tunnel; then both connections are closed.
    pub tunnel: Span,
}

impl Default for RequestLimits {
    fn default() -> Self {
        Self {
            request_line_bytes_max: limits::REQUEST_LINE_BYTES_MAX,
            head_bytes_max: limits::HEAD_BYTES_MAX,
            header_fields_max: limits::HEADER_FIELDS_MAX,
            body_bytes_max: None,
            body_rate_min: 240,
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
            alpn: ["h2", "http/1.1", "http/1.0"].map(str::to_owned).to_vec(),
            client_auth: ClientAuth::Off,
            client_ca: None,
            client_crl: None,
            tickets: TicketSource::Own,
            handshake_timeout: Span::from_secs(10),
            lua: None,
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
            queue_standing: None,
            tunnel: Span::from_secs(3600),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn network_contains_only_its_addresses() {
        let net = Network { address: "10.1.0.0".parse().unwrap(), prefix_bits: 16 };
        assert!(net.contains("10.1.255.255".parse().unwrap()));
        assert!(
            net.contains("::ffff:10.1.2.3".parse().unwrap()),
            "a mapped address counts as IPv4"
        );
        assert!(!net.contains("10.2.0.0".parse().unwrap()));
        let all = Network { address: "::".parse().unwrap(), prefix_bits: 0 };
        assert!(all.contains("2001:db8::1".parse().unwrap()));
        assert!(!all.contains("10.0.0.1".parse().unwrap()));
    }
}
