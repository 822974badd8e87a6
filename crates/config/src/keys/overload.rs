//! The settings of the admission of requests under overload.
//! In: nothing. Out: the section `[server.overload]`.

use super::Preset::Value;
use super::Shape::Duration;
use super::{Section, key};

/// `overload = { ... }` of `[server]`.
pub static OVERLOAD: Section = Section {
    path: "[server.overload]",
    about: "Refuses a share of the new requests while a worker is overloaded, with a 503 response and Retry-After, so that the others are \
             served in time. A request that arrives during a turn of its worker waits for the end of the turn. If every turn of an \
             interval is longer than `turn-target`, the share grows by a sixteenth, up to fifteen sixteenths; otherwise it falls by an \
             eighth. Not refused: requests of routes with `respond`, `redirect` or `shed = false`, messages of WebSocket connections, \
             connections that `forward` forwards, and the admin interface.",
    keys: &[
        key(
            "turn-target",
            Duration(1, 10_000),
            Value("\"20ms\""),
            "The longest turn that does not count as overload. A turn handles up to 512 sockets that are ready; `show \
             activity` shows how long events wait.",
            "A worker that is fully busy with ordinary requests has turns of a few milliseconds.",
        ),
        key(
            "interval",
            Duration(10, 60_000),
            Value("\"100ms\""),
            "The time during which every turn must exceed `turn-target` before requests are refused. A single long turn does \
             not count as overload.",
            "Long enough for bursts, and shorter than clients notice.",
        ),
    ],
    later: &[],
};
