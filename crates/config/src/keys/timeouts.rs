//! The settings of timeouts of routes.
//! In: nothing. Out: the section `[route.timeouts]`.

use super::Preset::Value;
use super::Shape::{self, NoNumber, OneOf};
use super::{Section, TIMEOUT, key};

const OWN: Shape = OneOf(&[NoNumber("pool"), TIMEOUT]);
const REASON: &str = "Most routes of a pool need the same timeouts.";

/// `timeouts = { ... }` of a route.
pub static ROUTE_TIMEOUTS: Section = Section {
    path: "[route.timeouts]",
    about: "Timeouts for servers that replace those of the pool for the requests of this route, such as a longer timeout for \
            reports. Only for `proxy`. \"pool\" applies the timeout of the pool.",
    keys: &[
        key(
            "response-head",
            OWN,
            Value("\"pool\""),
            "Time from the end of the request to the head of the response. When it expires, the client gets a 504 \
             response.",
            REASON,
        ),
        key(
            "body",
            OWN,
            Value("\"pool\""),
            "Time without a byte of a body, in the direction that is being transferred.",
            REASON,
        ),
        key(
            "tunnel",
            OWN,
            Value("\"pool\""),
            "Time without a byte in either direction of a tunnel, such as a WebSocket connection.",
            REASON,
        ),
    ],
    later: &[],
};
