//! The settings of listeners, except those of TLS and https.
//! In: nothing. Out: the section `[[listener]]`, which `FILE` refers to, and its tables.

use tidegate_base::limits;

use super::Preset::{Absent, Required, Value};
use super::Shape::{Boolean, List, NoNumber, Number, OneOf, Size, Table, Text, True, Word};
use super::count_table::{COUNTING, LISTENER_COUNT};
use super::https::{HSTS_ABOUT, HSTS_SHAPE, HTTPS_REDIRECT};
use super::tcp::{FORWARD_ABOUT, FORWARD_SHAPE};
use super::{COUNT_OR_UNLIMITED, LISTENER_TLS, Section, TIMEOUT, key};
use crate::words::{Keyword as _, TlsWord};

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
            Text("\"IP:PORT\", \"[IPv6]:PORT\" or \"unix:PATH\""),
            Required,
            "Address to listen on. Port 0 takes any free port, which is printed at start.",
            "",
        ),
        key(
            "backlog",
            Number(1, 65_535),
            Value("4096"),
            "Maximum number of connections that wait in the kernel until they are accepted. The kernel \
             caps the value at net.core.somaxconn.",
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
            "connections-max",
            COUNT_OR_UNLIMITED,
            Value("\"unlimited\""),
            "Maximum number of open connections of this listener, in all workers together, so that the clients of other \
             listeners can still connect. For a further client, the worker that accepts it closes one of its own \
             connections of this listener: one on which the client has not sent a byte, or one that has been idle for \
             long enough. If there is no such connection, the new one is reset before a TLS handshake. A reload that \
             lowers the limit closes no connection.",
            "Without it, the clients of all listeners share `connections-max` of [server], which is enough if no listener \
             is more important than another one.",
        ),
        key(
            "connections-per-address-max",
            COUNT_OR_UNLIMITED,
            Value("\"unlimited\""),
            "Maximum number of open connections of one client address, in all workers together. Further connections are reset \
             before a TLS handshake. IPv6 addresses count by their first 64 bits. For a connection that begins with a PROXY \
             header, the address in the header counts, or that of the proxy if the header has no address; if that address \
             has too many connections, the connection is closed after the header. Behind proxies that report the address in \
             another way, set the limit in the route. Clients of unix sockets have no address and are not limited. Up to about \
             100,000 addresses are counted at the same time, in 1 MiB; further addresses are not limited.",
            "Many clients may share one address, such as that of their router.",
        ),
        key("count", COUNTING, Absent, LISTENER_COUNT, ""),
        key(
            "trusted",
            List(&Text("\"10.0.0.0/8\", \"192.0.2.1\" or \"2001:db8::/32\"")),
            Value("[]"),
            "Addresses of proxies whose X-Forwarded-* and Forwarded fields are trusted and extended. From all other clients \
             these fields are replaced. If only one of X-Forwarded-For and Forwarded is received, the other one is built from \
             it; if they contradict each other, X-Forwarded-* takes precedence. X-Forwarded-Proto (or else the proto of \
             Forwarded) from a trusted address also determines `redirect-to-https`, `hsts` and the scheme of redirects.",
            "No address is trusted by default: anyone can write these fields, so only proxies that you list \
             are trusted.",
        ),
        key(
            "client-address-headers",
            List(&Text("the name of a field, such as \"x-real-ip\"")),
            Value(
                "[\"x-real-ip\", \"x-client-ip\", \"client-ip\", \"true-client-ip\", \
                 \"x-cluster-client-ip\", \"x-original-forwarded-for\", \"x-forwarded\", \
                 \"forwarded-for\", \"x-originating-ip\", \"x-remote-ip\", \"x-remote-addr\", \
                 \"proxy-client-ip\", \"wl-proxy-client-ip\", \"x-envoy-external-address\", \
                 \"cf-connecting-ip\", \"cf-connecting-ipv6\", \"cf-pseudo-ipv4\", \
                 \"fastly-client-ip\", \"fly-client-ip\", \"cloudfront-viewer-address\", \
                 \"x-azure-clientip\", \"x-azure-socketip\", \"x-appengine-user-ip\", \
                 \"x-proxyuser-ip\", \"x-nf-client-connection-ip\", \"do-connecting-ip\", \
                 \"incap-client-ip\", \"x-original-url\", \"x-rewrite-url\"]",
            ),
            "Further fields in which proxies state the client's address, or the URL of its request. They are removed from requests of \
             all clients except `trusted` ones, and from all trailers; \"_\" in a name matches \"-\". \
             X-Forwarded-* and Forwarded are not listed here: they are always replaced.",
            "Applications and their libraries read these fields, and anyone can write them: nginx, \
             Apache, PHP and Akamai (the first four), load balancers and Kubernetes (the next nine), \
             Envoy, and the content delivery networks and platforms in the other names. Some servers (IIS, and \
             frameworks such as Symfony and Zend) take the path from the last two, and so would serve another path \
             than the one that the routes matched.",
        ),
        key(
            "proxy-protocol",
            Table(&LISTENER_PROXY),
            Absent,
            "Proxies in front that send a PROXY protocol header (version 1 or 2) with the client's address at the start of \
             each connection. Without this setting, no client may send a PROXY header.",
            "",
        ),
        key(
            "redirect-to-https",
            OneOf(&[True, Table(&HTTPS_REDIRECT)]),
            Absent,
            "Redirects every request received by plain HTTP to the same URL with https, regardless of \
             the routes. Only for a listener without `tls`. A request is not redirected if a proxy in \
             `trusted` or `proxy-protocol` states that it received the request by https.",
            "",
        ),
        key("hsts", HSTS_SHAPE, Absent, HSTS_ABOUT, ""),
        key("forward", FORWARD_SHAPE, Absent, FORWARD_ABOUT, ""),
        key(
            "tls",
            OneOf(&[Word(TlsWord::WORDS), Table(&LISTENER_TLS)]),
            Absent,
            "Speaks TLS. \"self-signed\" creates a certificate at start, for development. Without this \
             setting, the listener speaks plain HTTP.",
            "",
        ),
        key(
            "h2c",
            Boolean,
            Value("false"),
            "Accepts HTTP/2 without TLS from clients that begin with it (prior knowledge). Other clients are served by \
             HTTP/1.1. Only for a listener without `tls`: with `tls`, `alpn` decides.",
            "Only proxies and gRPC clients in a private network use it; browsers do not.",
        ),
    ],
    later: &[],
};

/// `proxy-protocol = { ... }` of a listener.
pub static LISTENER_PROXY: Section = Section {
    path: "[listener.proxy-protocol]",
    about: "Proxies in front whose connections begin with a PROXY header, before TLS if TLS is used. The \
             address in the header is the client's address for everything that follows. If a version 2 \
             header says that the client used TLS, its requests count as received by https.",
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
            OneOf(&[NoNumber("unlimited"), Size(0, 1 << 50)]),
            Value("\"unlimited\""),
            "Maximum size of a request body. A larger body gets a 413 response.",
            "Bodies are streamed through two buffers and never stored, so their length costs Tidegate no \
             memory. Your servers may need a limit.",
        ),
        key(
            "body-rate-min",
            Size(0, 1 << 30),
            Value("\"240B\""),
            "Minimum rate of the body of a proxied request, in bytes per second. The client may fall behind this rate \
             by `timeouts.body` in total; then it gets a 408 response, and its connection is closed. Time in \
             which the server does not take the body does not count. 0B sets no minimum: then every byte \
             restarts `timeouts.body`.",
            "Even the slowest mobile uplinks are several times faster. Without a minimum, a client \
             that sends a byte now and then could hold a connection to a server forever.",
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
            "Time from the first byte of a request to the end of its head. When it expires, the client gets a 408 response. If \
             the first byte does not arrive within this time after accept, the connection is closed without a response.",
            "Received bytes do not restart it, so a slow-header attack holds a connection no longer than \
             this.",
        ),
        key(
            "idle",
            TIMEOUT,
            Value("\"60s\""),
            "Time between two requests on a keep-alive connection. When it expires, the connection is \
             closed without a response.",
            "An idle connection holds no buffers, so browsers may keep their connections for a minute.",
        ),
        key(
            "body",
            TIMEOUT,
            Value("\"30s\""),
            "Time without a byte of the request body, or without the client accepting any part of the response. When it \
             expires, the client gets a 408 response or its connection is reset. A single byte counts, even one that only the \
             client's kernel acknowledges. A kernel acknowledges nothing from the moment when its receive buffer is full until \
             the client has read a large part of that buffer: a client that steadily reads 4 KB/s is kept, and one that reads \
             1 KB/s may be reset. Whether a client still accepts its response is checked four times within this time, so the \
             reset may come up to a quarter of this time late.",
            "Tolerates a pause in a mobile network. The buffers of a client that stops reading are \
             freed. A client whose kernel continues to acknowledge bytes holds at most 192 KiB of buffers.",
        ),
    ],
    later: &[],
};
