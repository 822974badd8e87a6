//! The table of every setting: one table, three uses: reading, the JSON Schema, the user's reference.
//! In: nothing. Out: `FILE`, the root section, from which all others hang.
//! Never: a limit or timeout without a default and the reason for it.
//! Limits: numbers, durations and sizes carry their range here and nowhere else.

use tidegate_base::limits;

/// A table of the file and what may stand in it.
pub struct Section {
    /// How messages name it, as the file would write it.
    pub path: &'static str,
    /// What it is for.
    pub about: &'static str,
    /// Its settings.
    pub keys: &'static [Key],
    /// Settings that later versions bring: name, and what this version has instead.
    pub later: &'static [(&'static str, &'static str)],
}

/// One setting.
pub struct Key {
    /// Its name.
    pub name: &'static str,
    /// What may stand there.
    pub shape: Shape,
    /// What holds when it is not there.
    pub preset: Preset,
    /// What it does.
    pub about: &'static str,
    /// Why the default is what it is; empty where there is nothing to say.
    pub reason: &'static str,
}

/// What holds when a setting is not there.
pub enum Preset {
    /// It must be there.
    Required,
    /// Nothing; `about` says what that means.
    Absent,
    /// This TOML value.
    Value(&'static str),
}

/// What may stand as a setting's value.
pub enum Shape {
    /// `true` or `false`.
    Boolean,
    /// `true` alone.
    True,
    /// A string; what it must look like is said here for messages.
    Text(&'static str),
    /// One of these strings.
    Word(&'static [&'static str]),
    /// A whole number within these bounds.
    Number(u64, u64),
    /// A duration string within these bounds, in milliseconds.
    Duration(u64, u64),
    /// A size string within these bounds, in bytes.
    Size(u64, u64),
    /// One of several.
    OneOf(&'static [Shape]),
    /// An array.
    List(&'static Shape),
    /// A table whose keys the user chooses: header field names, for example.
    Fields(&'static Shape),
    /// A table.
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

/// Longest timeout that may be set.
const TIMEOUT_MS_MAX: u64 = 24 * 3_600_000;
/// Shortest timeout that may be set: about one tick of the timer wheel.
const TIMEOUT_MS_MIN: u64 = 10;
const TIMEOUT: Shape = Duration(TIMEOUT_MS_MIN, TIMEOUT_MS_MAX);
const COUNT_OR_UNLIMITED: Shape = OneOf(&[Word(&["unlimited"]), Number(1, 1_000_000_000)]);
const FIELD_TEST: Shape = OneOf(&[Boolean, Text("the value to equal")]);
const FIELD_VALUES: Shape = OneOf(&[Text("a value"), List(&Text("a value"))]);

/// The whole file.
pub static FILE: Section = Section {
    path: "the file",
    about: "Configuration of Tidegate.",
    keys: &[
        key("server", Table(&SERVER), Absent, "What holds for the whole process.", ""),
        key("listener", Rows(&LISTENER), Required, "Places where connections come in.", ""),
        key(
            "route",
            Rows(&ROUTE),
            Absent,
            "Which requests, and what happens to them. The first match in file order wins; a \
             request that matches none is answered 404.",
            "",
        ),
        key("pool", Named(&POOL), Absent, "Servers that do the same work, by name.", ""),
    ],
    later: &[
        ("admin", "there is no operator's view yet"),
        ("log", "messages of the process go to stderr, and there is no access log"),
        ("push", "routes can respond, redirect, be synthetic or proxy"),
        ("lua", "routes can respond, redirect, be synthetic or proxy"),
    ],
};

/// `[server]`.
pub static SERVER: Section = Section {
    path: "[server]",
    about: "What holds for the whole process.",
    keys: &[
        key(
            "workers",
            OneOf(&[Word(&["auto"]), Number(1, limits::WORKERS_MAX as u64)]),
            Value("\"auto\""),
            "Worker threads. \"auto\": one for each CPU this process may use.",
            "Workers share nothing, so one a CPU uses the machine fully and more only take turns.",
        ),
        key(
            "shutdown-grace",
            Duration(0, 3_600_000),
            Value("\"30s\""),
            "How long a stop waits for what is in flight; then connections are closed.",
            "Long enough for ordinary answers, short enough that a stuck client cannot hold up a \
             restart.",
        ),
        key(
            "connections-max",
            OneOf(&[Word(&["auto"]), Number(1, 100_000_000)]),
            Value("\"auto\""),
            "Connections one worker holds at most. \"auto\": what its descriptor limit allows.",
            "The kernel's own limit is the one that cannot be exceeded; accepting pauses before \
             it is hit.",
        ),
        key(
            "server-name",
            Text("visible ASCII characters and spaces; \"\" for none"),
            Value("\"tidegate\""),
            "Value of the Server field of answers made here; an empty string sends none.",
            "It carries no version, so it tells an attacker nothing of use.",
        ),
        key(
            "via",
            Text("a token: letters, digits and !#$%&'*+-.^_`|~"),
            Value("\"tidegate\""),
            "Name under which this proxy enters itself in Via (RFC 9110 section 7.6.3).",
            "A pseudonym keeps the host's name to itself.",
        ),
        key(
            "steer-by-cpu",
            Word(&["auto", "on", "off"]),
            Value("\"auto\""),
            "Whether a connection goes to the worker of the CPU that received it. \"auto\": only \
             where the network card's interrupts are spread over the workers' CPUs.",
            "Steering helps when interrupts are spread and starves workers when they are not; \
             \"auto\" looks first.",
        ),
    ],
    later: &[],
};

/// `[[listener]]`.
pub static LISTENER: Section = Section {
    path: "[[listener]]",
    about: "A place where connections come in.",
    keys: &[
        key(
            "name",
            Text("letters, digits, '-', '_' and '.', 64 at most"),
            Absent,
            "Its name, for routes, logs and counters; without one it is called by its address.",
            "",
        ),
        key(
            "bind",
            Text("\"IP:PORT\", \"[IPv6]:PORT\" or \"unix:/PATH\""),
            Required,
            "Where it listens. Port 0 takes any free port, which is printed at start.",
            "",
        ),
        key(
            "backlog",
            Number(1, 65_535),
            Value("4096"),
            "Connections that may wait in the kernel to be accepted; the kernel lowers it to \
             net.core.somaxconn.",
            "The kernel's own default bound: a burst waits here rather than being turned away.",
        ),
        key("limits", Table(&LIMITS), Absent, "Limits of one request.", ""),
        key("timeouts", Table(&CLIENT_TIMEOUTS), Absent, "Timeouts towards clients.", ""),
        key(
            "requests-per-connection-max",
            COUNT_OR_UNLIMITED,
            Value("\"unlimited\""),
            "Requests over one connection before it is closed.",
            "Connections hold no memory that grows with their age, so closing them only costs \
             handshakes.",
        ),
        key(
            "trusted",
            List(&Text("\"10.0.0.0/8\", \"192.0.2.1\" or \"2001:db8::/32\"")),
            Value("[]"),
            "Peers whose X-Forwarded-* and Forwarded fields are believed and extended; from all \
             others they are replaced. X-Forwarded-Proto from them also decides about redirect-to-https, \
             hsts and the scheme of redirects.",
            "Nobody: anyone can write these fields, so they are believed only from proxies that \
             you name.",
        ),
        key(
            "proxy-protocol",
            Table(&LISTENER_PROXY),
            Absent,
            "Proxies in front that say by the PROXY protocol (version 1 or 2) whom they connect for. \
             Without it, nobody is heard.",
            "",
        ),
        key(
            "redirect-to-https",
            OneOf(&[True, Table(&HTTPS_REDIRECT)]),
            Absent,
            "Sends every request that came by plain HTTP to the same URL by https, whatever the routes say. \
             Only on a listener without `tls`; what came by https to a proxy in front that may say so \
             (`trusted`, `proxy-protocol`) goes on to the routes.",
            "",
        ),
        key("hsts", HSTS_SHAPE, Absent, HSTS_ABOUT, ""),
        key(
            "tls",
            OneOf(&[Word(&["self-signed"]), Table(&LISTENER_TLS)]),
            Absent,
            "Speaks TLS. \"self-signed\" makes a certificate at start, for development. Without it, \
             plain HTTP.",
            "",
        ),
    ],
    later: &[],
};

/// Longest time that browsers are told: ten years.
const HSTS_MS_MAX: u64 = 10 * 365 * 24 * 3_600_000;
const HSTS_SHAPE: Shape = OneOf(&[Duration(0, HSTS_MS_MAX), Table(&HSTS)]);
const HSTS_ABOUT: &str = "Tells browsers to come by https alone from now on, for so long (Strict-Transport-Security, \
     RFC 6797); \"0s\" takes it back. Sent to requests by https only (over TLS here, or to a proxy in front \
     that may say so), in place of a server's own. A route's comes before its listener's. Without it, what a server says is passed on.";

/// `hsts = { ... }` of a listener or a route.
pub static HSTS: Section = Section {
    path: "[hsts]",
    about: "That browsers come by https alone (RFC 6797). Begin with a short time: nothing takes it back \
            but an answer over https.",
    keys: &[
        key(
            "max-age",
            Duration(0, HSTS_MS_MAX),
            Value("\"365d\""),
            "How long browsers remember it, from each answer on.",
            "A year is what browsers' own lists ask for.",
        ),
        key(
            "include-subdomains",
            Boolean,
            Value("false"),
            "For all names below this one too.",
            "A name below that has no https would be out of reach.",
        ),
        key(
            "preload",
            Boolean,
            Value("false"),
            "Asks to be on the lists that browsers ship; needs max-age of a year and include-subdomains.",
            "Leaving such a list takes months.",
        ),
    ],
    later: &[],
};

/// `redirect-to-https = { ... }` of a listener.
pub static HTTPS_REDIRECT: Section = Section {
    path: "[listener.redirect-to-https]",
    about: "Where plain requests are sent.",
    keys: &[
        key("port", Number(1, 65_535), Value("443"), "The port of the listener with TLS.", ""),
        key(
            "status",
            Number(301, 308),
            Absent,
            "301, 302, 303, 307 or 308. Without it, 301 for GET and HEAD, which every client knows and \
             remembers, and 308 for other methods, which keeps method and body.",
            "",
        ),
    ],
    later: &[],
};

/// `proxy-protocol = { ... }` of a listener.
pub static LISTENER_PROXY: Section = Section {
    path: "[listener.proxy-protocol]",
    about: "Proxies in front whose connections begin with a PROXY header, before TLS too. The address in \
            it is the client's in all that follows, and so is the TLS that it tells of (version 2): such \
            requests came by https.",
    keys: &[key(
        "from",
        List(&Text(
            "\"10.0.0.0/8\", \"192.0.2.1\", \"2001:db8::/32\", or \"unix\" on a unix socket",
        )),
        Required,
        "Peers that send the header. Their connections must begin with it and are closed otherwise; \
         connections of all others are taken as they are, and a header from them is a malformed request.",
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
            "Size of the request line; longer ones are answered 414. Smaller than `head`.",
            "RFC 9112 section 3 asks for 8000 bytes at least; nobody's links need more.",
        ),
        key(
            "head",
            Size(128, limits::HEAD_BYTES_CEILING as u64),
            Value("\"16KiB\""),
            "Size of the whole head, the request line included; larger ones are answered 431.",
            "Room for large cookies and tokens; a head is held in memory, so this bounds what a \
             slow client can pin.",
        ),
        key(
            "header-fields",
            Number(1, limits::HEADER_FIELDS_MAX as u64),
            Value("100"),
            "Header fields of one request; more are answered 431.",
            "Browsers send twenty to forty; the work a request makes grows with the number.",
        ),
        key(
            "body",
            OneOf(&[Word(&["unlimited"]), Size(0, 1 << 50)]),
            Value("\"unlimited\""),
            "Size of the body; larger ones are answered 413.",
            "Bodies stream through two buffers and are never stored, so their length costs this \
             process nothing; the server behind may want a bound.",
        ),
    ],
    later: &[],
};

/// `timeouts = { ... }` of a listener.
pub static CLIENT_TIMEOUTS: Section = Section {
    path: "[listener.timeouts]",
    about: "Timeouts towards clients.",
    keys: &[
        key(
            "head",
            TIMEOUT,
            Value("\"10s\""),
            "From a request's first byte to the end of its head; then 408.",
            "It runs on however the bytes drip, so a slow-head attack holds a connection no \
             longer than this.",
        ),
        key(
            "idle",
            TIMEOUT,
            Value("\"60s\""),
            "Between requests of a kept connection; then it is closed in silence.",
            "An idle connection holds no buffers, so browsers may keep theirs for a minute.",
        ),
        key(
            "body",
            TIMEOUT,
            Value("\"30s\""),
            "Without a byte of the request's body, or without the client taking any of the answer.",
            "Survives a mobile network's pause; a client that stops reading gives its buffers \
             back.",
        ),
    ],
    later: &[],
};

/// `[[route]]`.
pub static ROUTE: Section = Section {
    path: "[[route]]",
    about: "Which requests, and what happens to them. Exactly one of `respond`, `redirect`, \
            `synthetic` and `proxy` must be there.",
    keys: &[
        key(
            "listener",
            Text("the name of a [[listener]]"),
            Absent,
            "The only listener it holds for; without it, all.",
            "",
        ),
        key(
            "host",
            Text("\"example.com\" or \"*.example.com\""),
            Absent,
            "The host asked for, compared without case and port; \"*.\" stands for one or more \
             labels. Without it, any.",
            "",
        ),
        key(
            "path",
            Text("\"/json\", \"/api/*\" or \"/users/{id}\""),
            Absent,
            "The path, without the query, in one spelling: \"/%40a\" is \"/@a\", \"/a/./b\" is \"/a/b\"; \
             it is forwarded as it came. \"/api/*\" is everything below /api and /api itself; \
             \"{id}\" is any one segment. Without it, any. Refused (400) is a path that servers could \
             read as one of another route that does something else: an earlier route's where they \
             merge slashes, decode \"%2F\" or cut off \";...\", any other's where they leave \"..\" \
             alone; and \".\" or \"..\" beside any of those; and both \"%2F\" and \"%5C\" in one path.",
            "",
        ),
        key(
            "method",
            OneOf(&[Text("\"GET\""), List(&Text("\"GET\""))]),
            Absent,
            "The method, or several. Without it, any.",
            "",
        ),
        key(
            "headers",
            Fields(&FIELD_TEST),
            Absent,
            "Conditions on header fields, all of which must hold: a string is the value to \
             equal, `true` that the field is there, `false` that it is not.",
            "",
        ),
        key(
            "client-cert",
            OneOf(&[Boolean, Table(&ROUTE_CERTIFICATE)]),
            Absent,
            "A condition on the client's certificate, which the listener must ask for (`client-auth`): `true` that one \
             was verified here, `false` that none was, a table which. One that a proxy in front verified is none. \
             Without it, any or none.",
            "",
        ),
        key("hsts", HSTS_SHAPE, Absent, HSTS_ABOUT, ""),
        key("respond", Table(&RESPOND), Absent, "Answers with this.", ""),
        key(
            "redirect",
            OneOf(&[Text(REDIRECT_TARGET), Table(&REDIRECT)]),
            Absent,
            "Sends the client elsewhere; a string is the target.",
            "",
        ),
        key(
            "synthetic",
            True,
            Absent,
            "Answers to the order of the URL's query, for tests and benches: \
             `/synthetic?s=20k&t=700`.",
            "",
        ),
        key(
            "proxy",
            OneOf(&[Text("the name of a [pool.NAME]"), Table(&PROXY)]),
            Absent,
            "Forwards to a server of a pool; a string is the pool's name.",
            "",
        ),
    ],
    later: &[
        ("files", "routes can respond, redirect, be synthetic or proxy"),
        ("echo", "routes can respond, redirect, be synthetic or proxy"),
        ("push", "routes can respond, redirect, be synthetic or proxy"),
        ("lua", "routes can respond, redirect, be synthetic or proxy"),
    ],
};

const SUBJECT: &str = "\"CN=bob,O=Example\"";
const FINGERPRINT: &str = "64 hexadecimal digits, colons between them or not";

/// `client-cert = { ... }` of a route.
pub static ROUTE_CERTIFICATE: Section = Section {
    path: "[route.client-cert]",
    about: "Which client certificates; at least one of the two. Of several values any may match; where both are given, \
            both must.",
    keys: &[
        key(
            "subject",
            OneOf(&[Text(SUBJECT), List(&Text(SUBJECT))]),
            Absent,
            "The whole subject, letter by letter as servers are told it by `X-Client-Cert-Subject` (RFC 4514, the most \
             specific attribute first). Every authority in `client-ca` can make such a certificate.",
            "",
        ),
        key(
            "sha256",
            OneOf(&[Text(FINGERPRINT), List(&Text(FINGERPRINT))]),
            Absent,
            "The SHA-256 fingerprint: one certificate, until it is renewed.",
            "",
        ),
    ],
    later: &[],
};

const REDIRECT_TARGET: &str =
    "a URL or an absolute path; {host}, {path} and {query} stand for the request's";

/// `respond = { ... }`.
pub static RESPOND: Section = Section {
    path: "[route.respond]",
    about: "A fixed answer.",
    keys: &[
        key("status", Number(200, 599), Value("200"), "The status code.", ""),
        key(
            "headers",
            Fields(&FIELD_VALUES),
            Absent,
            "Further header fields; an array repeats the field. Those that frame the message, \
             describe the connection or are set here anyway are refused.",
            "",
        ),
        key("body", Text("any text"), Value("\"\""), "The content, as UTF-8.", ""),
    ],
    later: &[],
};

/// `redirect = { ... }`.
pub static REDIRECT: Section = Section {
    path: "[route.redirect]",
    about: "Sends the client elsewhere.",
    keys: &[
        key(
            "to",
            Text(REDIRECT_TARGET),
            Required,
            "The target. {host} is the request's host with its port, {path} its path, {query} \
             its query with the question mark.",
            "",
        ),
        key(
            "status",
            Number(301, 308),
            Value("302"),
            "301, 302, 303, 307 or 308.",
            "Temporary: browsers do not remember a mistake. Use 308 once it is right.",
        ),
    ],
    later: &[],
};

/// `proxy = { ... }`.
pub static PROXY: Section = Section {
    path: "[route.proxy]",
    about: "Forwards to a server of a pool.",
    keys: &[
        key("pool", Text("the name of a [pool.NAME]"), Required, "The pool.", ""),
        key(
            "host",
            Text("\"keep\" or \"app.internal\""),
            Value("\"keep\""),
            "What the server sees as Host: \"keep\" passes on what the client sent.",
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
            "At least one; a string is the address.",
            "",
        ),
        key(
            "balance",
            OneOf(&[Word(&["random", "round-robin", "least-connections"]), Table(&BALANCE)]),
            Value("\"random\""),
            "Which server is next. \"random\": two by chance and weight, the less loaded one of \
             them.",
            "Two choices spread load nearly as well as looking at all servers, and never send \
             everyone to the same one.",
        ),
        key("timeouts", Table(&SERVER_TIMEOUTS), Absent, "Timeouts towards servers.", ""),
        key("reuse", Table(&REUSE), Absent, "Reuse of connections.", ""),
        key(
            "retries",
            Number(0, 10),
            Value("2"),
            "Further servers tried after the first, where that is safe: nothing of an answer \
             came, and the request can be sent again.",
            "Enough to step over one dead server, too few to turn an outage into a storm.",
        ),
        key(
            "queue-max",
            Number(0, 1_000_000),
            Value("1024"),
            "Requests that wait for a server below its `maxconn`, for each worker; more are \
             answered 503.",
            "Waiting requests hold memory; beyond this, saying no at once is kinder.",
        ),
        key(
            "proxy-protocol",
            Word(&["v1", "v2"]),
            Absent,
            "Tells servers by the PROXY protocol whom a connection is for; \"v2\" also how the client \
             spoke TLS. Such a connection serves one client: it is kept for that client's next request \
             and for nobody else's. Without it, servers are not told.",
            "",
        ),
        key(
            "trailers",
            Boolean,
            Value("false"),
            "Sends the trailer fields of chunked requests on to the servers. Trailer fields of responses \
             always reach the client.",
            "Several HTTP/1.1 servers do not read the trailers of a request and take them for the next \
             request on that connection. Turn it on only for servers known to read them.",
        ),
        key(
            "tls",
            OneOf(&[True, Table(&POOL_TLS)]),
            Absent,
            "Speaks TLS to the servers; `true` verifies them by the system's authorities. Without \
             it, plain HTTP.",
            "",
        ),
    ],
    later: &[(
        "health",
        "servers are not probed; a failed connection is tried elsewhere (`retries`)",
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
            "Where it is. A name is looked up once, at start.",
            "",
        ),
        key(
            "weight",
            Number(0, 1000),
            Value("1"),
            "Its share beside the others; 0 takes it out of turn.",
            "",
        ),
        key(
            "maxconn",
            COUNT_OR_UNLIMITED,
            Value("\"unlimited\""),
            "Connections in use at once, for each worker; requests beyond that wait (`queue-max`).",
            "What a server bears only its operator knows.",
        ),
    ],
    later: &[],
};

/// `balance = { ... }`.
pub static BALANCE: Section = Section {
    path: "[pool.NAME.balance]",
    about: "By a key of the request: consistent, with bounded load.",
    keys: &[key(
        "hash",
        Text("\"path\", \"client-address\" or \"header:NAME\""),
        Required,
        "What decides: requests that agree in it go to the same server while it has room.",
        "",
    )],
    later: &[],
};

/// `timeouts = { ... }` of a pool.
pub static SERVER_TIMEOUTS: Section = Section {
    path: "[pool.NAME.timeouts]",
    about: "Timeouts towards servers.",
    keys: &[
        key(
            "connect",
            TIMEOUT,
            Value("\"3s\""),
            "Until the connection stands; then another server, or 504.",
            "Outlives one lost SYN (the kernel sends again after a second) but not a dead host.",
        ),
        key(
            "response-head",
            TIMEOUT,
            Value("\"60s\""),
            "From the request's end to the answer's head; then 504.",
            "Slow pages exist; a stuck server still gives its connection back.",
        ),
        key(
            "body",
            TIMEOUT,
            Value("\"60s\""),
            "Without a byte within a body, in the direction that flows.",
            "Survives a pause of the server; a dead one does not hold buffers for ever.",
        ),
        key(
            "queue",
            TIMEOUT,
            Value("\"10s\""),
            "In the queue for a server; then 503.",
            "A person waits no longer, and a queue that is not served within that time only grows.",
        ),
        key(
            "tunnel",
            TIMEOUT,
            Value("\"1h\""),
            "Without a byte in a tunnel (WebSocket), in both directions.",
            "Quiet sockets are usual there, and a tunnel at rest holds no buffers.",
        ),
    ],
    later: &[],
};

/// `reuse = { ... }`.
pub static REUSE: Section = Section {
    path: "[pool.NAME.reuse]",
    about: "Reuse of connections.",
    keys: &[
        key(
            "idle-max",
            Number(0, 100_000),
            Value("16384"),
            "Idle connections kept for each server and worker; 0 keeps none. With `proxy-protocol` those kept for one client each.",
            "As many as a busy moment needed are kept, for reconnecting costs several times a request; \
             idle-timeout gives them back. Lower it for servers with few connection slots of their own.",
        ),
        key(
            "idle-timeout",
            TIMEOUT,
            Value("\"30s\""),
            "How long one is kept idle.",
            "Shorter than nginx's keep-alive (75 s), so it is this side that closes; set it \
             below your server's own.",
        ),
        key(
            "requests-max",
            COUNT_OR_UNLIMITED,
            Value("\"unlimited\""),
            "Requests over one connection.",
            "Servers that want fewer close it themselves.",
        ),
        key(
            "after-unexpected-body",
            Boolean,
            Value("false"),
            "Reuses a connection after a GET, HEAD, DELETE, OPTIONS or TRACE request that had a body. \
             Otherwise such a request is sent with `Connection: close`.",
            "A server that does not expect a body may leave it unread and take it for the next request. \
             Turn it on for servers that read every body, such as search engines queried by GET.",
        ),
    ],
    later: &[],
};

impl Section {
    /// The setting of that name.
    #[must_use]
    pub fn key(&self, name: &str) -> Option<&'static Key> {
        self.keys.iter().find(|key| key.name == name)
    }

    /// Their names, separated by commas, for messages.
    #[must_use]
    pub fn names(&self) -> String {
        self.keys.iter().map(|key| key.name).collect::<Vec<_>>().join(", ")
    }
}

impl Shape {
    /// Whether a table of the user's settings may stand here, and which.
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

/// Every section, the root first, each once, in the order in which the file names them.
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
    fn every_limit_and_timeout_has_a_default_and_its_reason() {
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
    fn every_setting_is_named_once_and_described() {
        let paths: Vec<_> = sections().iter().map(|section| section.path).collect();
        assert_eq!(paths.len(), 22, "{paths:?}");
        for section in sections() {
            for (index, key) in section.keys.iter().enumerate() {
                assert!(key.about.ends_with('.'), "{}: {}", section.path, key.name);
                let twins = section.keys.iter().skip(index + 1).any(|k| k.name == key.name);
                assert!(!twins, "{}: {} stands twice", section.path, key.name);
            }
        }
    }
}
