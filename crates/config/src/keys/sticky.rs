//! The settings of sessions that stay with a server.
//! In: nothing. Out: the section `[pool.NAME.sticky]`.

use super::Preset::{Absent, Value};
use super::Shape::{Boolean, Duration, List, Number, OneOf, Text, Word};
use super::rate::KEY_OR_CLAIM;
use super::{Section, key};
use crate::model::SameSite;
use crate::words::Keyword as _;

/// `sticky = { ... }` of a pool.
pub static STICKY: Section = Section {
    path: "[pool.NAME.sticky]",
    about: "Keeps the requests of a client on one server: the response to the first request sets a cookie that names the server. \
             If that server is down, was just unreachable or has as many requests as `connections-max` allows, another server \
             gets the request. If the named server is down, the cookie then names that other server. A server with weight 0 \
             keeps its sessions and gets no new ones. With `by` in place of `cookie`, a table that all workers share keeps the \
             server of each key; a reload keeps the table, a restart does not. Exactly one of `cookie` and `by` is required; \
             `for` and `entries-max` are only for `by`, the other settings only for `cookie`.",
    keys: &[
        key(
            "cookie",
            Text("the name of a cookie, such as \"SRV\""),
            Absent,
            "Name of the cookie. Its value is a hash of the pool's name and the server's address, the same in all \
             processes with this configuration. Servers receive the cookie too.",
            "",
        ),
        key(
            "secure",
            Boolean,
            Value("false"),
            "Whether browsers send the cookie only over https.",
            "With `true`, browsers would never send the cookie on a site without https.",
        ),
        key(
            "same-site",
            Word(SameSite::WORDS),
            Value("\"lax\""),
            "The requests from other sites with which browsers send the cookie. \"strict\": no requests; \"lax\": those that \
             open a page; \"none\": all requests (only with `secure`).",
            "Browsers treat cookies without this attribute in the same way.",
        ),
        key(
            "path",
            Text("a path, such as \"/app\""),
            Value("\"/\""),
            "The paths to which browsers send the cookie.",
            "",
        ),
        key(
            "domain",
            Text("a domain, such as \"example.com\""),
            Absent,
            "The domain to whose hosts browsers send the cookie. Without it, only to the host that set it.",
            "",
        ),
        key(
            "lifetime",
            Duration(0, 400 * 24 * 3_600_000),
            Value("\"0s\""),
            "How long browsers keep the cookie; \"0s\": until the browser is closed.",
            "A session usually ends with the browser.",
        ),
        key(
            "idle",
            Duration(0, 400 * 24 * 3_600_000),
            Value("\"0s\""),
            "How long a session without requests stays with its server; \"0s\": as long as the browser sends the cookie. With \
             a time above \"0s\", the cookie also contains when the session began and when it was last used: a session that is \
             older than `lifetime`, or was not used for `idle`, begins again, perhaps on another server, even if the browser \
             still sends the cookie. The time of the last use is updated once an eighth of `idle` has passed. A client can \
             change both times, for itself only.",
            "Most servers end unused sessions themselves; after that, any server can serve the client.",
        ),
        key(
            "by",
            OneOf(&[Text(KEY_OR_CLAIM), List(&Text(KEY_OR_CLAIM))]),
            Absent,
            "The values of a request that form its key, written as `by` of `rate`; \"claim:NAME\" is a claim of a token that \
             the route verifies. Requests with the same key go to the server that responded to the first of them. If the only \
             value is \"cookie:NAME\", the server whose response sets this cookie (Set-Cookie) gets the requests with its new \
             value, too, so that a session stays with the server that began the session. A request without exactly one of each \
             value goes to any server. Connections in TCP mode have only \"client-address\".",
            "",
        ),
        key(
            "for",
            Duration(1000, 30 * 24 * 3_600_000),
            Value("\"30m\""),
            "How long a key without requests keeps its server.",
            "Sessions of most applications end after half an hour without a request.",
        ),
        key(
            "entries-max",
            Number(8, 16_777_216),
            Value("131072"),
            "How many keys the table can hold, rounded up to a power of two; each key takes 16 bytes. If the table is full, a new \
             key replaces another key: first keys that were seen only once, then the keys that have been unused for longest \
             (`sticky_evictions`).",
            "The table takes 2 MiB.",
        ),
    ],
    later: &[],
};
