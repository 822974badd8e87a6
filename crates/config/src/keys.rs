//! The table of every setting. The parser, the JSON Schema and the reference documentation all use it.
//! In: nothing. Out: `FILE`, the root section, which refers to all other sections.
//! Never: contains a limit or timeout without a default and the reason for it.
//! Limits: the ranges of numbers, durations and sizes are defined here and nowhere else.

use tidegate_base::limits;

/// A table of the file and the settings that it may contain.
pub struct Section {
    /// Name of the section in messages, written as in the file.
    pub path: &'static str,
    /// Description of the section for the reference.
    pub about: &'static str,
    /// Settings that the section may contain.
    pub keys: &'static [Key],
    /// Settings that later versions add: the name, and what this version does instead.
    pub later: &'static [(&'static str, &'static str)],
}

/// One setting.
pub struct Key {
    /// Name of the setting.
    pub name: &'static str,
    /// Values that the setting accepts.
    pub shape: Shape,
    /// What applies if the setting is absent.
    pub preset: Preset,
    /// What the setting does; ends with a period.
    pub about: &'static str,
    /// Why the default has its value; empty if no reason is given.
    pub reason: &'static str,
}

/// What applies if a setting is absent.
pub enum Preset {
    /// The setting is required.
    Required,
    /// No value; `about` states what that means.
    Absent,
    /// This default, written as a TOML value.
    Value(&'static str),
}

/// The type and range of a setting's value.
pub enum Shape {
    /// `true` or `false`.
    Boolean,
    /// Only `true`.
    True,
    /// A string; the text describes its form in messages.
    Text(&'static str),
    /// One of these strings.
    Word(&'static [&'static str]),
    /// An integer within these bounds, inclusive.
    Number(u64, u64),
    /// A duration string within these bounds, inclusive, in milliseconds.
    Duration(u64, u64),
    /// A size string within these bounds, inclusive, in bytes.
    Size(u64, u64),
    /// Any of several shapes.
    OneOf(&'static [Shape]),
    /// An array of values of one shape.
    List(&'static Shape),
    /// A table whose keys the user chooses, such as header field names.
    Fields(&'static Shape),
    /// A table with the settings of one section.
    Table(&'static Section),
    /// An array of tables, `[[x]]`.
    Rows(&'static Section),
    /// Tables by name, `[x.NAME]`.
    Named(&'static Section),
}

mod tls;

pub use tls::{CERTIFICATE, CLIENT_CERTIFICATE, LISTENER_TLS, POOL_TLS};
pub(crate) use tls::{CIPHERS, GROUPS};

use Preset::{Absent, Required, Value};
use Shape::{
    Boolean, Duration, Fields, List, Named, Number, OneOf, Rows, Size, Table, Text, True, Word,
};

const fn key(
    name: &'static str,
    shape: Shape,
    preset: Preset,
    about: &'static str,
    reason: &'static str,
) -> Key {
    Key { name, shape, preset, about, reason }
}

/// Maximum of a timeout setting.
const TIMEOUT_MS_MAX: u64 = 24 * 3_600_000;
/// Minimum of a timeout setting: about one tick of the timer wheel.
const TIMEOUT_MS_MIN: u64 = 10;
const TIMEOUT: Shape = Duration(TIMEOUT_MS_MIN, TIMEOUT_MS_MAX);
const COUNT_OR_UNLIMITED: Shape = OneOf(&[Word(&["unlimited"]), Number(1, 1_000_000_000)]);
const FIELD_TEST: Shape = OneOf(&[Boolean, Text("the required value")]);
const FIELD_VALUES: Shape = OneOf(&[Text("a value"), List(&Text("a value"))]);

/// The whole file.
pub static FILE: Section = Section {
    path: "the file",
    about: "The whole configuration file.",
    keys: &[
        key("server", Table(&SERVER), Absent, "Settings of the whole process.", ""),
        key("listener", Rows(&LISTENER), Required, "Addresses that accept connections.", ""),
        key(
            "route",
            Rows(&ROUTE),
            Absent,
            "Rules that select requests and state what happens to them. The first matching route in file \
             order wins. A request that matches no route gets a 404 response.",
            "",
        ),
        key("pool", Named(&POOL), Absent, "Groups of servers that do the same work, by name.", ""),
    ],
    later: &[
        ("admin", "there is no admin interface"),
        ("log", "process messages go to stderr, and there is no access log"),
        ("push", "a route can use `respond`, `redirect`, `synthetic` or `proxy`"),
        ("lua", "a route can use `respond`, `redirect`, `synthetic` or `proxy`"),
    ],
};

/// `[server]`.
pub static SERVER: Section = Section {
    path: "[server]",
    about: "Settings of the whole process.",
    keys: &[
        key(
            "workers",
            OneOf(&[Word(&["auto"]), Number(1, limits::WORKERS_MAX as u64)]),
            Value("\"auto\""),
            "Number of worker threads. \"auto\" starts one for each CPU that this process may use.",
            "Workers share nothing, so one for each CPU uses the whole machine. More workers would only \
             compete for the same CPUs.",
        ),
        key(
            "shutdown-grace",
            Duration(0, 3_600_000),
            Value("\"30s\""),
            "How long a stop waits for exchanges in flight. After this time the remaining connections are \
             reset.",
            "Long enough for ordinary responses, and short enough that a stuck client cannot delay a \
             restart.",
        ),
        key(
            "connections-max",
            OneOf(&[Word(&["auto"]), Number(1, 100_000_000)]),
            Value("\"auto\""),
            "Maximum number of connections of one worker. \"auto\" uses what the worker's descriptor limit \
             allows.",
            "The kernel's descriptor limit cannot be exceeded in any case. Accepting pauses before that \
             limit is reached.",
        ),
        key(
            "server-name",
            Text("visible ASCII characters and spaces; \"\" omits the field"),
            Value("\"tidegate\""),
            "Value of the Server field in responses that Tidegate makes itself. An empty string omits the \
             field.",
            "The name contains no version, so it tells an attacker nothing useful.",
        ),
        key(
            "via",
            Text("a token: letters, digits and !#$%&'*+-.^_`|~"),
            Value("\"tidegate\""),
            "Name of this proxy in the Via field (RFC 9110 section 7.6.3).",
            "A pseudonym does not disclose the host's name.",
        ),
        key(
            "steer-by-cpu",
            Word(&["auto", "on", "off"]),
            Value("\"auto\""),
            "Whether a connection goes to the worker of the CPU that received it. \"auto\" does this only \
             if the network card's interrupts are spread over the workers' CPUs.",
            "Steering helps if interrupts are spread, and leaves workers without connections if they are \
             not. \"auto\" checks this first.",
        ),
    ],
    later: &[],
};

/// `[[listener]]`.
pub static LISTENER: Section = Section {
    path: "[[listener]]",
    about: "An address that accepts connections.",
    keys: &[
        key(
            "name",
            Text("1 to 64 letters, digits, '-', '_' and '.'"),
            Absent,
            "Name of the listener in routes, logs and counters. Without it, the `bind` address is the name.",
            "",
        ),
        key(
            "bind",
            Text("\"IP:PORT\", \"[IPv6]:PORT\" or \"unix:/PATH\""),
            Required,
            "Address to listen on. Port 0 takes any free port, which is printed at start.",
            "",
        ),
        key(
            "backlog",
            Number(1, 65_535),
            Value("4096"),
            "Maximum number of connections that wait in the kernel until they are accepted. The kernel \
             lowers the value to net.core.somaxconn.",
            "This is the kernel's own default limit. A burst of connections waits instead of being refused.",
        ),
        key("limits", Table(&LIMITS), Absent, "Limits of one request.", ""),
        key("timeouts", Table(&CLIENT_TIMEOUTS), Absent, "Timeouts for clients.", ""),
        key(
            "requests-per-connection-max",
            COUNT_OR_UNLIMITED,
            Value("\"unlimited\""),
            "Number of requests on one connection before it is closed.",
            "The memory of a connection does not grow with its age, so closing it early would only cost \
             handshakes.",
        ),
        key(
            "trusted",
            List(&Text("\"10.0.0.0/8\", \"192.0.2.1\" or \"2001:db8::/32\"")),
            Value("[]"),
            "Addresses of proxies whose X-Forwarded-* and Forwarded fields are trusted and extended. From \
             all other clients these fields are replaced. X-Forwarded-Proto from a trusted address also \
             determines `redirect-to-https`, `hsts` and the scheme of redirects.",
            "No address is trusted by default: anyone can write these fields, so only proxies that you list \
             are trusted.",
        ),
        key(
            "proxy-protocol",
            Table(&LISTENER_PROXY),
            Absent,
            "Proxies in front that state by the PROXY protocol (version 1 or 2) which client each \
             connection is for. Without it, no client may send a PROXY header.",
            "",
        ),
        key(
            "redirect-to-https",
            OneOf(&[True, Table(&HTTPS_REDIRECT)]),
            Absent,
            "Redirects every request received by plain HTTP to the same URL with https, whatever the routes \
             state. Only for a listener without `tls`. A request that reached a proxy in front by https \
             goes on to the routes if that proxy may state so (`trusted`, `proxy-protocol`).",
            "",
        ),
        key("hsts", HSTS_SHAPE, Absent, HSTS_ABOUT, ""),
        key(
            "tls",
            OneOf(&[Word(&["self-signed"]), Table(&LISTENER_TLS)]),
            Absent,
            "Speaks TLS. \"self-signed\" creates a certificate at start, for development. Without this \
             setting, the listener speaks plain HTTP.",
            "",
        ),
    ],
    later: &[],
};

/// Maximum of `max-age`: ten years.
const HSTS_MS_MAX: u64 = 10 * 365 * 24 * 3_600_000;
const HSTS_SHAPE: Shape = OneOf(&[Duration(0, HSTS_MS_MAX), Table(&HSTS)]);
const HSTS_ABOUT: &str = "Tells browsers to use only https for this long (Strict-Transport-Security, RFC 6797); \
     \"0s\" revokes it. Sent only in responses to requests received by https (over TLS here, or by a proxy in front \
     that may state so), where it replaces the field of the server. The value of a route overrides that of its \
     listener. Without this setting, the server's field is passed on.";

/// `hsts = { ... }` of a listener or a route.
pub static HSTS: Section = Section {
    path: "[hsts]",
    about: "Tells browsers to use only https (RFC 6797). Start with a short time: only a later response \
             over https can revoke it.",
    keys: &[
        key(
            "max-age",
            Duration(0, HSTS_MS_MAX),
            Value("\"365d\""),
            "How long browsers remember this after each response.",
            "The preload lists of browsers require one year.",
        ),
        key(
            "include-subdomains",
            Boolean,
            Value("false"),
            "Whether all subdomains of the host are included.",
            "A subdomain without https would become unreachable.",
        ),
        key(
            "preload",
            Boolean,
            Value("false"),
            "Requests an entry in the preload lists that browsers ship. Requires a `max-age` of at least \
             one year and `include-subdomains`.",
            "Removal from such a list takes months.",
        ),
    ],
    later: &[],
};

/// `redirect-to-https = { ... }` of a listener.
pub static HTTPS_REDIRECT: Section = Section {
    path: "[listener.redirect-to-https]",
    about: "The target of redirects to https.",
    keys: &[
        key("port", Number(1, 65_535), Value("443"), "Port of the listener with TLS.", ""),
        key(
            "status",
            Number(301, 308),
            Absent,
            "301, 302, 303, 307 or 308. Without it, 301 for GET and HEAD, which every client knows and \
             caches, and 308 for other methods, which keeps the method and the body.",
            "",
        ),
    ],
    later: &[],
};

/// `proxy-protocol = { ... }` of a listener.
pub static LISTENER_PROXY: Section = Section {
    path: "[listener.proxy-protocol]",
    about: "Proxies in front whose connections begin with a PROXY header, before TLS if TLS is used. The \
             address in the header is the client's address for everything that follows. If a version 2 \
             header states that the client used TLS, its requests count as received by https.",
    keys: &[key(
        "from",
        List(&Text(
            "\"10.0.0.0/8\", \"192.0.2.1\", \"2001:db8::/32\", or \"unix\" on a unix socket",
        )),
        Required,
        "Addresses of the proxies that send the header. A connection from one of them must begin with \
             the header; otherwise it is closed. Connections from other addresses are accepted without it, \
             and a header from them is a malformed request.",
        "",
    )],
    later: &[],
};

/// `limits = { ... }` of a listener.
pub static LIMITS: Section = Section {
    path: "[listener.limits]",
    about: "Limits of one request.",
    keys: &[
        key(
            "request-line",
            Size(64, limits::HEAD_BYTES_CEILING as u64),
            Value("\"8KiB\""),
            "Maximum size of the request line. A longer one gets a 414 response. Must be smaller than \
             `head`.",
            "RFC 9112 section 3 recommends at least 8000 bytes, and real links are shorter.",
        ),
        key(
            "head",
            Size(128, limits::HEAD_BYTES_CEILING as u64),
            Value("\"16KiB\""),
            "Maximum size of the whole head, including the request line. A larger head gets a 431 response.",
            "Leaves room for large cookies and tokens. The head is held in memory, so this limits what a \
             slow client can occupy.",
        ),
        key(
            "header-fields",
            Number(1, limits::HEADER_FIELDS_MAX as u64),
            Value("100"),
            "Maximum number of header fields in a request. More fields get a 431 response.",
            "Browsers send 20 to 40 fields. The work for a request grows with their number.",
        ),
        key(
            "body",
            OneOf(&[Word(&["unlimited"]), Size(0, 1 << 50)]),
            Value("\"unlimited\""),
            "Maximum size of a request body. A larger body gets a 413 response.",
            "Bodies are streamed through two buffers and never stored, so their length costs Tidegate no \
             memory. Your servers may need a limit.",
        ),
    ],
    later: &[],
};

/// `timeouts = { ... }` of a listener.
pub static CLIENT_TIMEOUTS: Section = Section {
    path: "[listener.timeouts]",
    about: "Timeouts for clients.",
    keys: &[
        key(
            "head",
            TIMEOUT,
            Value("\"10s\""),
            "Time from the first byte of a request to the end of its head. When it expires, the client gets \
             a 408 response.",
            "Received bytes do not restart it, so a slow-header attack holds a connection no longer than \
             this.",
        ),
        key(
            "idle",
            TIMEOUT,
            Value("\"60s\""),
            "Time between two requests on a kept connection. When it expires, the connection is closed \
             without a response.",
            "An idle connection holds no buffers, so browsers may keep theirs for a minute.",
        ),
        key(
            "body",
            TIMEOUT,
            Value("\"30s\""),
            "Time without a byte of the request body, or without the client accepting any part of the \
             response. When it expires, the client gets a 408 response or its connection is reset.",
            "Tolerates a pause in a mobile network. A client that stops reading gives its buffers back.",
        ),
    ],
    later: &[],
};

/// `[[route]]`.
pub static ROUTE: Section = Section {
    path: "[[route]]",
    about: "Selects requests and states what happens to them. A route has exactly one of the actions \
             `respond`, `redirect`, `synthetic` and `proxy`.",
    keys: &[
        key(
            "listener",
            Text("the name of a [[listener]]"),
            Absent,
            "The only listener that the route applies to. Without it, the route applies to all listeners.",
            "",
        ),
        key(
            "host",
            Text("\"example.com\" or \"*.example.com\""),
            Absent,
            "Host of the request, compared without case and port. \"*.\" stands for one or more labels. \
             Without it, any host matches.",
            "",
        ),
        key(
            "path",
            Text("\"/json\", \"/api/*\" or \"/users/{id}\""),
            Absent,
            "Path of the request, without the query. \"/api/*\" matches /api and everything below it; \
             \"{id}\" matches any one segment. Without it, any path matches. Paths are compared in one \
             normalized spelling (\"/%40a\" is \"/@a\", \"/a/./b\" is \"/a/b\") and forwarded as the client \
             sent them. A path that servers could read in different ways gets a 400 response: if merging \
             slashes, decoding \"%2F\" or cutting off \";...\" makes it the path of an earlier route with a \
             different effect; if leaving \"..\" unresolved makes it the path of any other route with a \
             different effect; if \".\" or \"..\" appears together with one of these forms; or if it \
             contains both \"%2F\" and \"%5C\".",
            "",
        ),
        key(
            "method",
            OneOf(&[Text("\"GET\""), List(&Text("\"GET\""))]),
            Absent,
            "The method, or several methods. Without it, any method matches.",
            "",
        ),
        key(
            "headers",
            Fields(&FIELD_TEST),
            Absent,
            "Conditions on header fields, all of which must hold. With a string, the field must have this \
             value; with `true`, it must be present; with `false`, it must be absent.",
            "",
        ),
        key(
            "client-cert",
            OneOf(&[Boolean, Table(&ROUTE_CERTIFICATE)]),
            Absent,
            "Condition on the client's certificate. The listener must request certificates (`client-auth`). \
             `true` requires a certificate that was verified by Tidegate, `false` requires that there is \
             none, and a table requires certain certificates. A certificate verified only by a proxy in \
             front does not count. Without this setting, clients match with or without a certificate.",
            "",
        ),
        key("hsts", HSTS_SHAPE, Absent, HSTS_ABOUT, ""),
        key("respond", Table(&RESPOND), Absent, "Sends a fixed response.", ""),
        key(
            "redirect",
            OneOf(&[Text(REDIRECT_TARGET), Table(&REDIRECT)]),
            Absent,
            "Redirects the client. A string is the target.",
            "",
        ),
        key(
            "synthetic",
            True,
            Absent,
            "Makes a response as described by the query of the URL, for tests and benchmarks: \
             `/synthetic?s=20k&t=700`.",
            "",
        ),
        key(
            "proxy",
            OneOf(&[Text("the name of a [pool.NAME]"), Table(&PROXY)]),
            Absent,
            "Forwards the request to a server of a pool. A string is the name of the pool.",
            "",
        ),
    ],
    later: &[
        ("files", "a route can use `respond`, `redirect`, `synthetic` or `proxy`"),
        ("echo", "a route can use `respond`, `redirect`, `synthetic` or `proxy`"),
        ("push", "a route can use `respond`, `redirect`, `synthetic` or `proxy`"),
        ("lua", "a route can use `respond`, `redirect`, `synthetic` or `proxy`"),
    ],
};

const SUBJECT: &str = "\"CN=bob,O=Example\"";
const FINGERPRINT: &str = "64 hexadecimal digits, with or without colons";

/// `client-cert = { ... }` of a route.
pub static ROUTE_CERTIFICATE: Section = Section {
    path: "[route.client-cert]",
    about: "Which client certificates match. At least one of the two settings is required. If a setting \
             has several values, any of them may match; if both settings are present, both must match.",
    keys: &[
        key(
            "subject",
            OneOf(&[Text(SUBJECT), List(&Text(SUBJECT))]),
            Absent,
            "The whole subject, exactly as servers receive it in `X-Client-Cert-Subject` (RFC 4514, the \
             most specific attribute first). Every authority in `client-ca` can issue a certificate with \
             this subject.",
            "",
        ),
        key(
            "sha256",
            OneOf(&[Text(FINGERPRINT), List(&Text(FINGERPRINT))]),
            Absent,
            "The SHA-256 fingerprint. It identifies one certificate, until that certificate is renewed.",
            "",
        ),
    ],
    later: &[],
};

const REDIRECT_TARGET: &str =
    "a URL or an absolute path; {host}, {path} and {query} are replaced by those of the request";

/// `respond = { ... }`.
pub static RESPOND: Section = Section {
    path: "[route.respond]",
    about: "A fixed response.",
    keys: &[
        key("status", Number(200, 599), Value("200"), "The status code.", ""),
        key(
            "headers",
            Fields(&FIELD_VALUES),
            Absent,
            "Additional header fields; an array repeats the field. Fields that frame the message, describe \
             the connection or are set by Tidegate in any case are rejected.",
            "",
        ),
        key("body", Text("any text"), Value("\"\""), "The content, encoded as UTF-8.", ""),
    ],
    later: &[],
};

/// `redirect = { ... }`.
pub static REDIRECT: Section = Section {
    path: "[route.redirect]",
    about: "Redirects the client.",
    keys: &[
        key(
            "to",
            Text(REDIRECT_TARGET),
            Required,
            "Target of the redirect. {host} is the request's host with its port, {path} its path, and \
             {query} its query with the question mark.",
            "",
        ),
        key(
            "status",
            Number(301, 308),
            Value("302"),
            "301, 302, 303, 307 or 308.",
            "A temporary redirect: browsers do not cache a mistake. Use 308 once the redirect is correct.",
        ),
    ],
    later: &[],
};

/// `proxy = { ... }`.
pub static PROXY: Section = Section {
    path: "[route.proxy]",
    about: "Forwards the request to a server of a pool.",
    keys: &[
        key("pool", Text("the name of a [pool.NAME]"), Required, "Name of the pool.", ""),
        key(
            "host",
            Text("\"keep\" or \"app.internal\""),
            Value("\"keep\""),
            "Value of the Host field that the server receives. \"keep\" passes on the client's value.",
            "",
        ),
    ],
    later: &[],
};

/// `[pool.NAME]`.
pub static POOL: Section = Section {
    path: "[pool.NAME]",
    about: "Servers that do the same work.",
    keys: &[
        key(
            "servers",
            List(&OneOf(&[Text(SERVER_ADDRESS), Table(&UPSTREAM)])),
            Required,
            "Servers of the pool, at least one. A string is the server's address.",
            "",
        ),
        key(
            "balance",
            OneOf(&[Word(&["random", "round-robin", "least-connections"]), Table(&BALANCE)]),
            Value("\"random\""),
            "How the server for a request is chosen. \"random\" draws two servers at random by weight and \
             takes the less loaded one, \"round-robin\" takes the servers in turn by weight, \
             \"least-connections\" takes the least loaded server by weight, and a table chooses by a key of \
             the request.",
            "Two random choices spread the load nearly as well as comparing all servers, and never send all \
             requests to the same server.",
        ),
        key("timeouts", Table(&SERVER_TIMEOUTS), Absent, "Timeouts for servers.", ""),
        key("reuse", Table(&REUSE), Absent, "Reuse of connections to servers.", ""),
        key(
            "retries",
            Number(0, 10),
            Value("2"),
            "How many further servers are tried after the first one failed. A request is tried again only \
             if that is safe: no part of a response has arrived, and the request can be sent again.",
            "Enough to skip one dead server, and too few to turn an outage into a storm of requests.",
        ),
        key(
            "queue-max",
            Number(0, 1_000_000),
            Value("1024"),
            "Maximum number of requests of one worker that wait for a server below its `maxconn`. Further \
             requests get a 503 response.",
            "Waiting requests occupy memory. Beyond this number, an immediate error is better than a longer \
             wait.",
        ),
        key(
            "proxy-protocol",
            Word(&["v1", "v2"]),
            Absent,
            "Tells servers the client's address with a PROXY protocol header; \"v2\" also states how the \
             client used TLS. Such a connection serves one client: it is kept for the next request of that \
             client and not used for other clients. Without this setting, no header is sent.",
            "",
        ),
        key(
            "trailers",
            Boolean,
            Value("false"),
            "Forwards the trailer fields of chunked requests to the servers. Trailer fields of responses \
             are always forwarded to the client.",
            "Several HTTP/1.1 servers do not read the trailers of a request and take them for the next \
             request on that connection. Enable it only for servers known to read them.",
        ),
        key(
            "tls",
            OneOf(&[True, Table(&POOL_TLS)]),
            Absent,
            "Speaks TLS to the servers. `true` verifies their certificates by the system's certificate \
             authorities. Without this setting, connections use plain HTTP.",
            "",
        ),
    ],
    later: &[(
        "health",
        "servers are not probed; if a connection fails, another server is tried (`retries`)",
    )],
};

const SERVER_ADDRESS: &str = "\"IP:PORT\", \"NAME:PORT\" or \"unix:/PATH\"";

/// `{ address, ... }` of a pool's servers.
pub static UPSTREAM: Section = Section {
    path: "[pool.NAME.servers]",
    about: "A server of a pool.",
    keys: &[
        key(
            "address",
            Text(SERVER_ADDRESS),
            Required,
            "Address of the server. A name is resolved once, at start.",
            "",
        ),
        key(
            "weight",
            Number(0, 1000),
            Value("1"),
            "Share of the requests relative to the other servers. 0 takes the server out of rotation: it is \
             used only if no other server is available.",
            "",
        ),
        key(
            "maxconn",
            COUNT_OR_UNLIMITED,
            Value("\"unlimited\""),
            "Maximum number of connections in use at once, for each worker. Further requests wait in the \
             queue (`queue-max`).",
            "Only the operator knows how many connections a server can handle.",
        ),
    ],
    later: &[],
};

/// `balance = { ... }`.
pub static BALANCE: Section = Section {
    path: "[pool.NAME.balance]",
    about: "Chooses the server by a key of the request: consistent hashing with bounded load.",
    keys: &[key(
        "hash",
        Text("\"path\", \"client-address\" or \"header:NAME\""),
        Required,
        "The key. Requests with the same key go to the same server while it has capacity.",
        "",
    )],
    later: &[],
};

/// `timeouts = { ... }` of a pool.
pub static SERVER_TIMEOUTS: Section = Section {
    path: "[pool.NAME.timeouts]",
    about: "Timeouts for servers.",
    keys: &[
        key(
            "connect",
            TIMEOUT,
            Value("\"3s\""),
            "Time to establish a connection. When it expires, another server is tried, or the client gets a \
             504 response.",
            "Tolerates one lost SYN packet (the kernel sends it again after a second), but does not wait \
             for a dead host.",
        ),
        key(
            "response-head",
            TIMEOUT,
            Value("\"60s\""),
            "Time from the end of the request to the head of the response. When it expires, the client gets \
             a 504 response.",
            "Slow pages exist, but a stuck server must not hold its connection forever.",
        ),
        key(
            "body",
            TIMEOUT,
            Value("\"60s\""),
            "Time without a byte of a body, in the direction that is being transferred.",
            "Tolerates a pause of the server. A dead server must not hold buffers forever.",
        ),
        key(
            "queue",
            TIMEOUT,
            Value("\"10s\""),
            "Time in the queue for a server. When it expires, the client gets a 503 response.",
            "People do not wait longer, and a queue that is not served within this time only grows.",
        ),
        key(
            "tunnel",
            TIMEOUT,
            Value("\"1h\""),
            "Time without a byte in either direction of a tunnel (WebSocket). When it expires, both \
             connections are closed.",
            "Quiet WebSocket connections are common, and an idle tunnel holds no buffers.",
        ),
    ],
    later: &[],
};

/// `reuse = { ... }`.
pub static REUSE: Section = Section {
    path: "[pool.NAME.reuse]",
    about: "Reuse of connections to servers.",
    keys: &[
        key(
            "idle-max",
            Number(0, 100_000),
            Value("16384"),
            "Maximum number of idle connections kept for each server and worker; 0 keeps none. With \
             `proxy-protocol`, this counts the connections that are each kept for one client.",
            "All connections that a busy moment needed are kept, because a new connection costs several \
             times as much as a request. `idle-timeout` closes them later. Lower the value for servers with \
             few connection slots.",
        ),
        key(
            "idle-timeout",
            TIMEOUT,
            Value("\"30s\""),
            "How long an idle connection is kept.",
            "Shorter than nginx's keep-alive timeout (75 s), so that Tidegate closes the connection first. \
             Set it below the timeout of your servers.",
        ),
        key(
            "requests-max",
            COUNT_OR_UNLIMITED,
            Value("\"unlimited\""),
            "Number of requests on one connection before it is closed.",
            "Servers that want fewer requests close the connection themselves.",
        ),
        key(
            "after-unexpected-body",
            Boolean,
            Value("false"),
            "Reuses a connection after a GET, HEAD, DELETE, OPTIONS or TRACE request that had a body. \
             Otherwise such a request is sent with `Connection: close`.",
            "A server that does not expect a body may leave it unread and take it for the next request. \
             Enable it for servers that read every body, such as search engines queried by GET.",
        ),
    ],
    later: &[],
};

impl Section {
    /// Finds a setting by its name.
    #[must_use]
    pub fn key(&self, name: &str) -> Option<&'static Key> {
        self.keys.iter().find(|key| key.name == name)
    }

    /// The names of all settings, separated by commas, for messages.
    #[must_use]
    pub fn names(&self) -> String {
        self.keys.iter().map(|key| key.name).collect::<Vec<_>>().join(", ")
    }
}

impl Shape {
    /// The section of the table that this shape accepts; `None` if it accepts no table of settings.
    #[must_use]
    pub fn section(&self) -> Option<&'static Section> {
        match self {
            Table(section) | Rows(section) | Named(section) => Some(section),
            OneOf(shapes) => shapes.iter().find_map(Self::section),
            List(shape) => shape.section(),
            Boolean | True | Text(_) | Word(_) | Number(..) | Duration(..) | Size(..)
            | Fields(_) => None,
        }
    }
}

/// Every section once, the root first, in the order of the reference.
#[must_use]
pub fn sections() -> Vec<&'static Section> {
    let mut found = vec![&FILE];
    let mut next = 0;
    while let Some(&section) = found.get(next) {
        next += 1;
        let inner = section.keys.iter().filter_map(|key| key.shape.section());
        let inner: Vec<_> =
            inner.filter(|inner| !found.iter().any(|known| known.path == inner.path)).collect();
        found.splice(next..next, inner);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_and_timeouts_have_a_default_and_a_reason() {
        for section in sections() {
            for key in section.keys {
                let bounded = match &key.shape {
                    Duration(..) | Size(..) => true,
                    OneOf(shapes) => shapes.iter().any(|shape| matches!(shape, Number(..))),
                    _ => key.name.ends_with("-max"),
                };
                if bounded {
                    assert!(matches!(key.preset, Value(_)), "{} {}", section.path, key.name);
                    assert!(!key.reason.is_empty(), "{} {}", section.path, key.name);
                }
            }
        }
    }

    #[test]
    fn setting_names_are_unique_and_described() {
        let paths: Vec<_> = sections().iter().map(|section| section.path).collect();
        assert_eq!(paths.len(), 22, "{paths:?}");
        for section in sections() {
            for (index, key) in section.keys.iter().enumerate() {
                assert!(key.about.ends_with('.'), "{}: {}", section.path, key.name);
                let twins = section.keys.iter().skip(index + 1).any(|k| k.name == key.name);
                assert!(!twins, "{}: {} is listed twice", section.path, key.name);
            }
        }
    }
}
