//! The settings of sessions that stay with a server.
//! In: nothing. Out: the section `[pool.NAME.sticky]`.

use super::Preset::{Absent, Required, Value};
use super::Shape::{Boolean, Duration, Text, Word};
use super::{Section, key};
use crate::model::SameSite;
use crate::words::Worded as _;

/// `sticky = { ... }` of a pool.
pub static STICKY: Section = Section {
    path: "[pool.NAME.sticky]",
    about: "Requests of a client stay with one server: the response to the first request sets a cookie that names the \
             server. If that server is down, was just unreachable or has as many requests as `connections-max` allows, \
             another server gets the request; if it is down, the cookie then names the other one. A server with weight 0 \
             keeps its sessions and gets no new ones. Without cookies, use balance = { hash = \"client-address\" }.",
    keys: &[
        key(
            "cookie",
            Text("\"SRV\""),
            Required,
            "Name of the cookie. Its value is a hash of the pool's name and the server's address, the same in all \
             processes with this configuration. Servers receive the cookie too.",
            "",
        ),
        key(
            "secure",
            Boolean,
            Value("false"),
            "Whether browsers send the cookie only by https.",
            "It would never be sent on a site without https.",
        ),
        key(
            "same-site",
            Word(SameSite::WORDS),
            Value("\"lax\""),
            "To which requests from other sites browsers add the cookie: \"strict\": none, \"lax\": those that open a \
             page, \"none\": all (only with `secure`).",
            "What browsers do with cookies that do not state it.",
        ),
        key(
            "path",
            Text("\"/app\""),
            Value("\"/\""),
            "The paths to which browsers send the cookie.",
            "",
        ),
        key(
            "domain",
            Text("\"example.com\""),
            Absent,
            "The domain to whose hosts browsers send the cookie. Without it, only to the host that set it.",
            "",
        ),
        key(
            "lifetime",
            Duration(0, 400 * 24 * 3_600_000),
            Value("\"0s\""),
            "How long browsers keep the cookie; \"0s\": until they are closed.",
            "A session usually ends with the browser.",
        ),
    ],
    later: &[
        (
            "by",
            "write balance = { hash = \"header:x-user\" }: all requests with the same value go to the same server",
        ),
        ("idle", "write `lifetime`"),
    ],
};
