//! The settings of routes: conditions and actions.
//! In: nothing. Out: the section `[[route]]`, which `FILE` refers to, and its tables.

use super::Preset::{Absent, Required, Value};
use super::Shape::{Boolean, Fields, List, Number, OneOf, Table, Text, True};
use super::answers::{CORS, MAINTENANCE};
use super::auth::AUTH;
use super::bandwidth::BANDWIDTH;
use super::choice::{POOL_SHAPE, SPLIT};
use super::count_table::{COUNTING, ROUTE_COUNT, ROUTE_TABLE, TABLE_TESTS};
use super::edits::{REQUEST_EDITS, RESPONSE_EDITS};
use super::https::{HSTS_ABOUT, HSTS_SHAPE};
use super::lua::{HOOKS, HOOKS_ABOUT, HOOKS_NAME};
use super::mirror::MIRROR;
use super::push::ROUTE_PUSH;
use super::rate::RATE;
use super::timeouts::ROUTE_TIMEOUTS;
use super::websocket::WEBSOCKET;
use super::{COUNT_OR_UNLIMITED, Section, Shape, key};

const HOST: &str = "\"example.com\" or \"*.example.com\"";
const HOSTS: Shape = OneOf(&[Text(HOST), List(&Text(HOST))]);
const PATH: &str = "\"/json\", \"/api/*\" or \"/users/{id}\"";
const PATHS: Shape = OneOf(&[Text(PATH), List(&Text(PATH))]);
const ADDRESS: &str = "\"10.0.0.0/8\", \"192.0.2.1\" or \"set:NAME\"";
pub(super) const ADDRESSES: Shape = OneOf(&[Text(ADDRESS), List(&Text(ADDRESS))]);
const FIELD_TEST: Shape = OneOf(&[Boolean, Text("the whole value"), Table(&FIELD)]);
const FIELD_VALUES: Shape = OneOf(&[Text("a value"), List(&Text("a value"))]);

/// `[[route]]`.
pub static ROUTE: Section = Section {
    path: "[[route]]",
    about: "Selects requests and defines what happens to them. A route has exactly one of the actions \
             `respond`, `redirect`, `synthetic`, `echo`, `push`, `lua` and `proxy`.",
    keys: &[
        key(
            "listener",
            Text("the name of a [[listener]]"),
            Absent,
            "The only listener that the route applies to. Without it, the route applies to all listeners.",
            "",
        ),
        key(
            "shed",
            Boolean,
            Value("true"),
            "Whether requests of this route may be refused while a worker is overloaded (`overload` of [server]). Set it to false for \
             health checks and for requests that must not fail. Routes with `respond` or `redirect` never refuse requests for this \
             reason.",
            "An overloaded worker serves fewer requests well rather than all of them too late.",
        ),
        key(
            "host",
            HOSTS,
            Absent,
            "Host of the request, compared without case and port. \"*.\" matches one or more labels. \
             With an array, any of its hosts matches. Without it, any host matches.",
            "",
        ),
        key(
            "path",
            PATHS,
            Absent,
            "Path of the request, without the query. \"/api/*\" matches /api and everything below it; \
             \"{id}\" matches any one segment. With an array, any of its paths matches. Without it, any path \
             matches. Paths are compared in one \
             normalized spelling (\"/%40a\" is \"/@a\", \"/a/./b\" is \"/a/b\") and forwarded as the client \
             sent them. A path that servers could read in different ways gets a 400 response: if merging \
             slashes, decoding \"%2F\" or cutting off \";...\" makes it the path of an earlier route with a \
             different effect, or of a later route that refuses other requests (such as one with `auth`); if \
             leaving \"..\" unresolved makes it the path of any other route with a different effect; if \".\" or \
             \"..\" appears together with one of these forms; or if it \
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
            "Conditions on header fields, all of which must hold. With a string, the field must have \
             exactly this value; with a table, the value must contain, begin with or end with a string, \
             or match a regular expression; with `true`, the field must be present; with `false`, it \
             must be absent. If a request has several fields of this name, the condition holds if any \
             one of them has such a value; the values are not joined, and a list in one value is not \
             split. Names ignore case. A received field whose name differs only by `_` in place of `-` does not \
             meet the condition, so that a client cannot use it to bypass a proxy in front. Such a field is never \
             forwarded, because servers such as CGI read both names as the same field. For a condition on the host, use `host`.",
            "",
        ),
        key(
            "client-cert",
            OneOf(&[Boolean, Table(&ROUTE_CERTIFICATE)]),
            Absent,
            "Condition on the client's certificate. The listener must request certificates (`client-auth`). `true` requires a \
             certificate that was verified by Tidegate, `false` requires that the client has no such certificate, and a table \
             requires certain certificates. A certificate verified only by a proxy in front does not count. Without this \
             setting, clients match with or without a certificate.",
            "",
        ),
        key(
            "client",
            ADDRESSES,
            Absent,
            "Condition on the client's address: it must be one of these addresses or in one of these ranges or sets. \
             Behind a proxy in `trusted` of the listener, the client is the one that the proxy reports. A client of a \
             unix socket has no address. Without it, any client matches.",
            "",
        ),
        key(
            "query",
            Fields(&FIELD_TEST),
            Absent,
            "Conditions on parameters of the query, all of which must hold, written as in `headers`. Names and values \
             are decoded (\"%41\" is \"A\", \"+\" is a space) and distinguish upper and lower case. If a query has \
             several parameters of this name, the condition holds if any one of them has such a value.",
            "",
        ),
        key(
            "cookies",
            Fields(&FIELD_TEST),
            Absent,
            "Conditions on cookies, all of which must hold, written as in `headers`. Names distinguish upper and lower \
             case.",
            "",
        ),
        key("table", TABLE_TESTS, Absent, ROUTE_TABLE, ""),
        key("count", COUNTING, Absent, ROUTE_COUNT, ""),
        key(
            "allow",
            ADDRESSES,
            Absent,
            "The only clients whose requests this route serves, written as in `client`. The requests of other clients get a \
             403 response, and no later route is tried.",
            "",
        ),
        key(
            "deny",
            ADDRESSES,
            Absent,
            "Clients whose requests get a 403 response, written as in `client`. `deny` is tested before `allow`.",
            "",
        ),
        key(
            "auth",
            Table(&AUTH),
            Absent,
            "Serves only users with a password (`basic`), requests with a token (`jwt`), or requests that an \
             authentication server admits (`ask`).",
            "",
        ),
        key(
            "rate",
            OneOf(&[Table(&RATE), List(&Table(&RATE))]),
            Absent,
            "Limits how many requests the route serves, for example for each client.",
            "",
        ),
        key(
            "connections-per-address-max",
            COUNT_OR_UNLIMITED,
            Value("\"unlimited\""),
            "Maximum number of connections of one client address with a request of this route in progress, in all workers \
             together; each HTTP/2 stream counts as a connection, and a WebSocket connection or another tunnel counts until it \
             ends. Further requests get a 429 response. Behind a proxy in `trusted` of the listener, the address is the one \
             that the proxy reports; all requests for which it reports no address are counted together. IPv6 addresses count by \
             their first 64 bits. Clients without an address are not limited. Up to about 100,000 addresses are counted at the \
             same time, in 1 MiB; further addresses are not limited.",
            "Many clients may share one address, such as that of their router.",
        ),
        key(
            "bandwidth",
            Table(&BANDWIDTH),
            Absent,
            "Limits how fast the bodies of each request and its response are transferred.",
            "",
        ),
        key(
            "mirror",
            OneOf(&[Text("the name of a [pool.NAME]"), Table(&MIRROR)]),
            Absent,
            "Sends a copy of each request to another pool, too, and drops the response. Only for `proxy`. A string is the name \
             of the pool.",
            "",
        ),
        key("hooks", OneOf(&[Text(HOOKS_NAME), Table(&HOOKS)]), Absent, HOOKS_ABOUT, ""),
        key(
            "timeouts",
            Table(&ROUTE_TIMEOUTS),
            Absent,
            "Timeouts for servers in place of those of the pool. Only for `proxy`.",
            "",
        ),
        key(
            "maintenance",
            OneOf(&[Boolean, Table(&MAINTENANCE)]),
            Value("false"),
            "Whether all requests get a 503 response, without reaching the action. A table also sets the page and other details.",
            "Routes are in service.",
        ),
        key("cors", Table(&CORS), Absent, "Lets web pages of other origins use the route.", ""),
        key(
            "errors",
            Fields(&Text("the path of a file")),
            Absent,
            "Pages for error responses by Tidegate itself, by status: { 502 = \"errors/502.html\" }. Responses of \
             servers are not replaced. Names of files end with .html, .htm, .json, .txt, .xml or .svg, which decides \
             Content-Type. The files are read at start and at each reload.",
            "",
        ),
        key(
            "security-headers",
            Boolean,
            Value("false"),
            "Whether X-Content-Type-Options: nosniff, X-Frame-Options: SAMEORIGIN and Referrer-Policy: \
             strict-origin-when-cross-origin are added to responses that do not have these fields, and X-Powered-By is \
             removed. Strict-Transport-Security is set by `hsts`.",
            "Some pages must be shown in frames on other sites.",
        ),
        key("hsts", HSTS_SHAPE, Absent, HSTS_ABOUT, ""),
        key(
            "request-headers",
            Table(&REQUEST_EDITS),
            Absent,
            "Edits of the fields that servers receive. Only for `proxy`.",
            "",
        ),
        key(
            "response-headers",
            Table(&RESPONSE_EDITS),
            Absent,
            "Edits of the fields that clients receive.",
            "",
        ),
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
            "echo",
            True,
            Absent,
            "Accepts WebSocket connections and sends each message back, for tests of clients and networks. Other \
             requests get a 426 response.",
            "",
        ),
        key(
            "push",
            OneOf(&[Text("the name of a [push.NAME]"), Table(&ROUTE_PUSH)]),
            Absent,
            "Connects clients to a push hub. A string is the name of the hub; in this case, the path must end in \"/*\", and \
             the route serves everything below it: `connection/websocket`, `subscribe/CHANNEL` and `api/METHOD`.",
            "",
        ),
        key(
            "lua",
            Text("the name of a [lua.NAME]"),
            Absent,
            "Passes the request to a Lua application. The string is the name of the application.",
            "",
        ),
        key(
            "websocket",
            Table(&WEBSOCKET),
            Absent,
            "Settings of this route's WebSocket connections that differ from [websocket]. Only for `echo`, `push` and `lua`.",
            "",
        ),
        key(
            "proxy",
            OneOf(&[Text("the name of a [pool.NAME]"), Table(&PROXY)]),
            Absent,
            "Forwards the request to a server of a pool. A string is the name of the pool.",
            "",
        ),
        key(
            "split",
            Table(&SPLIT),
            Absent,
            "Forwards each request to a server of one of several pools. It is used in place of `proxy`, or in place of `pool` of `proxy`.",
            "",
        ),
    ],
    later: &[(
        "files",
        "a route can use `respond`, `redirect`, `synthetic`, `echo`, `push`, `lua` or `proxy`",
    )],
};

const EXAMPLE: &str = "a value as clients send it";
const IN_THE_VALUE: &str = "a string of at least one character";

/// `headers = { NAME = { ... } }` of a route.
pub static FIELD: Section = Section {
    path: "[route.headers.NAME]",
    about: "What the value of a header field, a parameter or a cookie must be. Exactly one of `equals`, `contains`, `prefix`, `suffix` \
             and `regex` is required; its value may have up to 1024 bytes.",
    keys: &[
        key("equals", Text("any string"), Absent, "The whole value.", ""),
        key("contains", Text(IN_THE_VALUE), Absent, "A string that appears in the value.", ""),
        key("prefix", Text(IN_THE_VALUE), Absent, "The text that the value begins with.", ""),
        key("suffix", Text(IN_THE_VALUE), Absent, "The text that the value ends with.", ""),
        key(
            "regex",
            Text("a regular expression"),
            Absent,
            "A regular expression that matches a part of the value; `^` and `$` match the start and the \
             end of the value. The syntax is that of Rust's regex crate, without Unicode classes, \
             look-around and backreferences. It is compiled once, and an expression whose compiled form \
             exceeds 1 MiB is rejected. An expression that matches no text, such as `a^b`, causes a warning.",
            "",
        ),
        key(
            "example",
            OneOf(&[Text(EXAMPLE), List(&Text(EXAMPLE))]),
            Absent,
            "A value that meets the condition, or several values. If a value does not meet the condition, the file is \
             rejected. The examples have no effect on requests.",
            "",
        ),
        key(
            "ignore-case",
            Boolean,
            Value("false"),
            "Whether upper and lower case ASCII letters are equal.",
            "Most field values distinguish upper and lower case.",
        ),
    ],
    later: &[],
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

const REDIRECT_TARGET: &str = "a URL or an absolute path; {host}, {path}, {query}, {rest} and others are replaced by values of the request";

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
            "Additional header fields; an array repeats the field. Fields that frame the message, \
             describe the connection or are always set by Tidegate are rejected.",
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
             {query} its query with the question mark. Other [placeholders](#placeholders) are possible, such as \
             {rest} and the named segments of the route's `path`, or {user} and {claim:NAME} with `jwt` of the route; their \
             values are percent-encoded, and cannot be a part of the host. If one of them has a control character, or makes the \
             target begin with two slashes or have a segment `.` or `..`, the request gets a 400 response. The Vary \
             field of the response names the fields whose values the target contains. With {client}, {tls:sni}, \
             {id}, {user} or {claim:NAME}, the response has `Cache-Control: no-store`.",
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
        key(
            "pool",
            POOL_SHAPE,
            Absent,
            "Name of the pool; a table looks it up in a map. Required unless the route has `split`.",
            "",
        ),
        key(
            "host",
            Text("\"keep\", or a host such as \"app.internal\""),
            Value("\"keep\""),
            "Value of the Host field that the server receives. \"keep\" passes on the client's value.",
            "",
        ),
        key(
            "path",
            Text("a path with placeholders, such as \"/internal/{rest}\""),
            Absent,
            "The path that the server receives, in place of the client's; the query is kept. It may have \
             [placeholders](#placeholders): {rest} is the part that `*` at the end of the route's `path` matches, so with \
             path = \"/api/*\", \"/{rest}\" removes the prefix /api. Characters of a value that are not allowed in \
             a path are percent-encoded. A request gets a 400 response if the new path would have a segment \".\" or \
             \"..\", or begin with two slashes. Without it, the path is forwarded as the client sent it.",
            "",
        ),
    ],
    later: &[],
};
