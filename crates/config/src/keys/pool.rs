//! The settings of pools and their servers, except those of TLS.
//! In: nothing. Out: the section `[pool.NAME]`, which `FILE` refers to, and its tables.

use super::Preset::{Absent, Required, Value};
use super::Shape::{
    Boolean, Duration, List, NoNumber, Number, OneOf, Size, Table, Text, True, Word,
};
use super::agent::AGENT;
use super::eject::EJECT;
use super::health::HEALTH;
use super::retry_budget::RETRY_BUDGET;
use super::sticky::STICKY;
use super::{COUNT_OR_UNLIMITED, POOL_TLS, Section, TIMEOUT, TIMEOUT_MS_MAX, key};
use crate::model::{Balance, ProxyVersion, SLOTS_MAX, Unretriable};
use crate::words::{AtStart, Keyword as _};
use tidegate_base::limits;

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
            OneOf(&[Word(Balance::WORDS), Table(&BALANCE)]),
            Value("\"random\""),
            "How the server for a request is chosen. \"random\" draws two servers at random by weight and \
             takes the less loaded one, \"round-robin\" takes the servers in turn by weight, \
             \"least-connections\" takes the least loaded server by weight, and a table chooses by a key of \
             the request. Each worker counts its own requests: with few long requests or connections, servers may get \
             unequal numbers; `connections-max` of a server limits those of all workers.",
            "Two random choices spread the load nearly as well as comparing all servers, and never send all \
             requests to the same server.",
        ),
        key(
            "sticky",
            Table(&STICKY),
            Absent,
            "Keeps the requests of a client on one server, by a cookie or by a table of keys.",
            "",
        ),
        key(
            "health",
            OneOf(&[Text("a path, such as \"/healthz\""), Table(&HEALTH)]),
            Absent,
            "Checks the servers. A string is the path of `http`. Without this setting, servers are not checked; if a \
             connection fails, another server is tried (`retries`).",
            "",
        ),
        key(
            "agent",
            Table(&AGENT),
            Absent,
            "Asks an agent on each server for the server's weight and state.",
            "",
        ),
        key(
            "eject",
            OneOf(&[True, Table(&EJECT)]),
            Absent,
            "Avoids servers whose requests fail. `true` uses the defaults. Without this setting, a server is avoided for a \
             second after a failed connect.",
            "",
        ),
        key(
            "slow-start",
            Duration(0, TIMEOUT_MS_MAX),
            Value("\"0s\""),
            "How long a server that is up again gets fewer requests than its weight implies: its share begins at a twentieth and \
             grows in equal steps. This does not apply at the start of the process, nor with `balance = { hash = ... }`.",
            "Most servers can take their full load at once. Set it for servers that must first fill caches or compile code.",
        ),
        key("timeouts", Table(&SERVER_TIMEOUTS), Absent, "Timeouts for servers.", ""),
        key("reuse", Table(&REUSE), Absent, "Reuse of connections to servers.", ""),
        key(
            "retries",
            Number(0, 10),
            Value("2"),
            "How many further attempts are made after the first one failed: with another server at once, or, if \
             every server was tried, with any of them after `retry-pause`. A request is tried again only if that \
             is safe: no part of a response has arrived, and the request can be sent again.",
            "Enough to skip one dead server or to wait for a restart, and too few to turn an outage into a storm \
             of requests.",
        ),
        key(
            "retry-budget",
            OneOf(&[Text("a percentage, such as \"20%\""), Table(&RETRY_BUDGET)]),
            Absent,
            "Limits the retries to a share of the requests. A string is its `share`. Without this setting, each request may be tried \
             again as often as `retries` says.",
            "",
        ),
        key(
            "retry-on",
            List(&OneOf(&[
                Text("\"connect\", \"reset\", \"timeout\" or \"malformed\""),
                Number(400, 599),
            ])),
            Value("[\"connect\", \"reset\"]"),
            "The failures after which a request is sent again: \"connect\" (no connection), \"reset\" (the connection ended \
             before the response began), \"timeout\" (`timeouts.response-head`), \"malformed\" (the head of the response is \
             malformed, or the connection ended within it), or a status from 400 to 599: the client gets a response with this \
             status only if no attempt is left. Only \"connect\" applies to all requests. The other failures apply only to \
             requests with an idempotent method, and only while Tidegate holds the whole body that it has sent. After a \
             reset of a fresh connection or a malformed head, a request is sent again only once.",
            "After a timeout or an error, a server may be overloaded, and more requests make it worse.",
        ),
        key(
            "retry-pause",
            TIMEOUT,
            Value("\"1s\""),
            "Time before servers are tried again after an attempt has failed with every server; at most \
             `timeouts.connect`. During the pause, the request is not in the queue.",
            "A server that restarts refuses connections for a moment. Most are back within a second, and an \
             error would come too early.",
        ),
        key(
            "queue-max",
            Number(0, 1_000_000),
            Value("1024"),
            "Maximum number of requests of the process that wait until a server has fewer requests than its `connections-max`. \
             Further requests get a 503 response. Each worker has an equal share, rounded up, so N workers together may exceed \
             the number by up to N - 1. A worker whose share is used up asks the other workers for their unused `connections-max`, for \
             up to 50 ms, before it refuses a request.",
            "Waiting requests occupy memory. Beyond this number, an immediate error is better than a longer \
             wait.",
        ),
        key(
            "request-buffer",
            Size(0, limits::REQUEST_BUFFER_BYTES_MAX as u64),
            Value("\"16KiB\""),
            "How much of a request's body must have arrived before the request is assigned to a server or enters the queue. A \
             shorter body must have arrived completely. A request without a body is not delayed, and neither is a request with \
             `Expect: 100-continue`, because its server decides whether the client sends the body. 0B forwards the head at \
             once. Set 0B for applications that respond before the client has sent the body.",
            "A slow upload does not occupy a connection of a server before enough of it has arrived. 16 KiB hold most \
             forms and API calls completely.",
        ),
        key(
            "queue-half-closed",
            Boolean,
            Value("false"),
            "Keeps a request in the queue after its client has ended its direction of the connection \
             (half-closed it). `false` removes the request and closes the connection. A request that has been \
             sent to a server always continues.",
            "Most clients that end their direction have left, so the server's work would be wasted. \
             Enable it for clients that half-close after a request and then read the response, such as \
             some scripts.",
        ),
        key(
            "proxy-protocol",
            Word(ProxyVersion::WORDS),
            Absent,
            "Sends the client's address to servers in a PROXY protocol header; \"v2\" also describes how \
             the client used TLS. Such a connection serves one client: it is kept for the next request \
             of that client and not used for other clients. Without this setting, no header is sent.",
            "",
        ),
        key(
            "trailers",
            Boolean,
            Value("false"),
            "Forwards the trailer fields of chunked requests to servers that speak HTTP/1.1. Trailer fields of \
             responses, and those of requests to servers that speak HTTP/2, are always forwarded.",
            "Several HTTP/1.1 servers do not read the trailers of a request and take them for the next \
             request on that connection. Enable it only for servers known to read them.",
        ),
        key(
            "strict",
            Boolean,
            Value("false"),
            "Rejects a response (502) if it deviates from HTTP's grammar, even if it can be read in \
             only one way: empty lines before the head, lines of the head that end with LF alone, \
             blanks after a chunk size, a status from 600 to 999, the same Content-Length twice. \
             Without it, such a response is forwarded in canonical form. A response whose length could \
             be read in two ways is always rejected.",
            "Some servers and CGI programs are careless but harmless, and other proxies forward their \
             responses. Enable it for servers that copy parts of requests into response fields: there \
             a line that ends with LF alone may come from a client.",
        ),
        key(
            "tls",
            OneOf(&[True, Table(&POOL_TLS)]),
            Absent,
            "Speaks TLS to the servers. `true` verifies their certificates against the system's certificate authorities. \
             Without this setting, connections use plain HTTP.",
            "",
        ),
        key(
            "h2c",
            True,
            Absent,
            "Speaks HTTP/2 to the servers without TLS (prior knowledge). For a pool with `tls`, `alpn` decides.",
            "",
        ),
        key("http2", Table(&POOL_HTTP2), Absent, "Connections to servers that speak HTTP/2.", ""),
    ],
    later: &[],
};

const SERVER_ADDRESS: &str = "\"IP:PORT\", \"NAME:PORT\" or \"unix:PATH\"";

/// `http2 = { ... }` of a pool.
pub static POOL_HTTP2: Section = Section {
    path: "[pool.NAME.http2]",
    about: "Connections to servers that speak HTTP/2 (`h2c`, or `alpn` of `tls`).",
    keys: &[
        key(
            "streams-max",
            Number(1, 1000),
            Value("100"),
            "Maximum number of requests on one connection at once. The limit that the server announces also applies. \
             Another connection is opened when every connection to the server has reached its limit.",
            "Servers usually allow 100 or more. A lower number spreads requests over more connections, so that a \
             lost packet delays fewer of them.",
        ),
        key(
            "connections-max",
            Number(1, 10_000),
            Value("256"),
            "Maximum number of HTTP/2 connections of the process to each server. Further requests wait in the \
             queue (`queue-max`). Each worker has an equal share and at least one connection, so a limit below the number of \
             workers (`workers`) means one connection for each worker.",
            "This is more than enough with 100 requests on each connection. A server that allows only one request on each \
             connection must not use up the connections of the process.",
        ),
    ],
    later: &[],
};

/// `{ address, ... }` of a pool's servers.
pub static UPSTREAM: Section = Section {
    path: "[pool.NAME.servers]",
    about: "A server of a pool.",
    keys: &[
        key(
            "address",
            Text(SERVER_ADDRESS),
            Absent,
            "Address of the server. A name is resolved at start, at each reload, and from time to time ([resolver]). All of its \
             addresses are those of one server, unless `slots` is set. Exactly one of `address` and `srv` is required.",
            "",
        ),
        key(
            "srv",
            Text("the name of SRV records, such as \"_http._tcp.app.internal\""),
            Absent,
            "Takes the servers from SRV records (RFC 2782), in place of `address`. Each record contains the host and the port of a \
             server. Servers of the lowest priority get the requests, in the proportion of the weights of their records; \
             the others are backup servers. If a host has IPv4 and IPv6 addresses, its IPv4 addresses are used. Needs [resolver] and \
             `slots`.",
            "",
        ),
        key(
            "slots",
            Number(1, SLOTS_MAX as u64),
            Absent,
            "Makes a server of each address of the name, up to this number. Each address has one slot and keeps it as long as \
             answers contain it, so health, statistics, limits and sticky sessions stay with the server. Slots without an \
             address are down and get no checks. Addresses beyond this number are not used. If the name is resolved to both \
             IPv4 and IPv6 addresses, each address is a server; `families` of [resolver] selects one kind.",
            "The number of servers that the process may get must be known, so that its memory is bounded.",
        ),
        key(
            "prefix",
            Text("a name"),
            Absent,
            "The slots have this name and a number, such as web1 and web2 for prefix = \"web\". Without this setting, the name \
             of the template and `#`, as in app.internal:8000#1.",
            "",
        ),
        key(
            "at-start",
            Word(AtStart::WORDS),
            Value("\"required\""),
            "What happens if the name cannot be resolved at start or at the reload that adds it: with \"required\", the process does \
             not start, and the reload is refused; with \"optional\", the server is down until the name is resolved. A reload \
             never fails because of a name that had addresses before.",
            "A name that cannot be resolved is usually a mistake.",
        ),
        key(
            "weight",
            Number(0, 1000),
            Value("1"),
            "Share of the requests relative to the other servers. 0 drains the server: it gets no new \
             requests, retries or keys of `hash`, even if no other server is available. Requests and tunnels \
             in progress continue.",
            "",
        ),
        key(
            "connections-max",
            COUNT_OR_UNLIMITED,
            Value("\"unlimited\""),
            "Maximum number of requests and tunnels of the process that use the server at once, each on a connection of its \
             own (HTTP/1.1) or on a stream (HTTP/2). Further requests wait in the queue (`queue-max`). The number is never \
             exceeded. Each worker holds a share of the permits, and workers lend each other unused permits, so a request may \
             wait briefly until another worker lends a permit. Idle connections also count, except those that are kept for one \
             client (`proxy-protocol`).",
            "Only the operator knows how many connections a server can handle.",
        ),
        key(
            "backup",
            Boolean,
            Value("false"),
            "Gives the server requests only while every server that is not a backup is down, is taken out of service, or has \
             failed for this request. Several backup servers share these requests.",
            "Servers do the same work unless the operator configures otherwise.",
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
        "The key. Requests with the same key go to the same server while it has capacity. The client's \
         address is the one that `trusted` proxies state: the last in X-Forwarded-For (or else Forwarded) \
         that is not in `trusted` itself.",
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
             a 504 response. While the server still takes the request's body, `body` applies.",
            "Slow pages exist, but a stuck server must not hold its connection forever.",
        ),
        key(
            "body",
            TIMEOUT,
            Value("\"60s\""),
            "Time without a byte of a body, in the direction that is being transferred. Every byte of a \
             request's body that the server takes counts, even one that only its kernel acknowledges. When \
             it expires, the client gets a 504 response, or the response is cut off.",
            "Tolerates a pause of the server. A dead server must not hold buffers forever.",
        ),
        key(
            "queue",
            TIMEOUT,
            Value("\"10s\""),
            "Time in the queue for a server. When it expires, the client gets a 503 response.",
            "People do not wait longer than this, and a queue that is not served within this time only \
             grows.",
        ),
        key(
            "queue-standing",
            OneOf(&[NoNumber("off"), TIMEOUT]),
            Value("\"off\""),
            "Time limit in a standing queue: a queue that has not been empty for as long as `queue`. A queue that becomes empty now \
             and then absorbs bursts; a standing queue only delays every request. When the time expires, the client gets a 503 \
             response with Retry-After, so that the others are served in time.",
            "Only the operator knows how long a response may take to be of use. A tenth of `queue` is a good start.",
        ),
        key(
            "tunnel",
            TIMEOUT,
            Value("\"1h\""),
            "Time without a transferred byte in either direction of a tunnel (WebSocket), or of a \
             connection that `forward` of a listener forwards. A byte of \
             pending output that a slow peer accepts also counts. When it expires, both connections \
             are closed.",
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
            "All connections that a load peak needed are kept, because a new connection costs several \
             times as much as a request. `idle-timeout` closes them later. Lower the value for servers \
             with few connection slots.",
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
            "after-body",
            Boolean,
            Value("true"),
            "Reuses a connection after a request that had a body. Otherwise such a request is sent with `Connection: close`. This also \
             concerns copies of `mirror`.",
            "Servers read the bodies of POST, PUT and PATCH. Disable it for a server that may respond without reading such a body, as \
             Python's http.server does if its program does not read the body: it takes the body for the next request, so that \
             another client may get the response to it.",
        ),
        key(
            "after-unexpected-body",
            Boolean,
            Value("false"),
            "Reuses a connection after a request that had a body and a method other than POST, PUT and PATCH. \
             Otherwise such a request is sent with `Connection: close`.",
            "A server that does not expect a body may leave it unread and take it for the next request. \
             Enable it for servers that read every body, such as search engines queried by GET and WebDAV servers.",
        ),
        key(
            "after-chunked-body",
            Boolean,
            Value("false"),
            "Reuses an HTTP/1.1 connection after a request whose body was sent in chunks: the client stated no length, and the body \
             was longer than `request-buffer`, waited for 100 (Continue), or had trailers that the pool forwards. Otherwise the \
             connection is closed after the response.",
            "A server whose application does not read a body may discard a body with a length, but leave chunks on the connection, as \
             Cheroot does: it takes them for the next request, so that another client gets the error. Enable it for servers that \
             read every body, if uploads of unknown length are frequent and new connections cost too much.",
        ),
        key(
            "unretriable",
            Word(Unretriable::WORDS),
            Value("\"proven\""),
            "Which idle connections may carry a request that cannot be retried if the server closes \
             the connection at that moment. These are requests with a method that is not idempotent \
             (POST, PATCH), with a body of unknown length or of more than about 60 KiB, or to a pool \
             without `retries`. \"proven\" uses a connection only if it has been idle for less than \
             half the time that the server has recently been seen to keep connections open (the \
             longest idle time after which a connection was still open, and the shortest after which \
             the server closed one); otherwise the request gets a new connection. \"always\" uses any \
             idle connection, and \"never\" opens a new connection for each such request. A connection \
             that is kept for one client is always used.",
            "If a server closes idle connections at unknown times, requests that must not be retried \
             would be lost. A server that keeps connections open is recognized within milliseconds, so \
             \"proven\" opens few additional connections.",
        ),
    ],
    later: &[],
};
