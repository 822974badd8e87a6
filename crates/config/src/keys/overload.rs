//! The settings of the admission of requests under overload.
//! In: nothing. Out: the section `[server.overload]`.

use super::Preset::{Absent, Value};
use super::Shape::{Duration, OneOf, Size, Text};
use super::{Section, key};

/// The form of a share of the memory.
const MEMORY_SHARE: &str = "a percentage from \"1%\" to \"100%\"";

/// `overload = { ... }` of `[server]`.
pub static OVERLOAD: Section = Section {
    path: "[server.overload]",
    about: "Refuses a share of the new requests while a worker is overloaded, with a 503 response and Retry-After, so that the others are \
             served in time. A request that arrives during a turn of its worker waits for the end of the turn, and for later ones if more \
             wait than a turn takes. If requests wait for longer than `turn-target` all the time of an interval, the share grows by a \
             sixteenth, up to fifteen sixteenths; otherwise it falls by an eighth, and ends at once if the worker had little to do. With \
             `memory-max`, all new requests are refused while the process uses too much memory. Not \
             refused: requests of routes with `respond`, `redirect` or `shed = false`, messages of WebSocket connections, \
             connections that `forward` forwards, and the admin interface.",
    keys: &[
        key(
            "turn-target",
            Duration(1, 10_000),
            Value("\"20ms\""),
            "How long requests that have arrived may wait for their worker without overload. A turn takes up to 512 sockets that are \
             ready.",
            "A worker that is fully busy with ordinary requests has turns of a few milliseconds.",
        ),
        key(
            "interval",
            Duration(10, 60_000),
            Value("\"100ms\""),
            "Requests must wait for too long during all of this time before some are refused. A single long turn does not count as \
             overload.",
            "Long enough for bursts, and shorter than clients notice.",
        ),
        key(
            "memory-max",
            OneOf(&[Size(16 << 20, 16 << 40), Text(MEMORY_SHARE)]),
            Absent,
            "While more memory is in use than this, all new requests are refused, until the use is 5 % lower. A size limits the \
             resident memory of the process. A percentage is a share of `memory.max` of its control groups (cgroup v2): all of \
             their processes count, with their kernel memory, but without cached files. If these have no limit, it is a share of \
             the memory of the machine, and the resident memory of the process counts. The memory is measured every second. \
             Without this setting, it is not measured.",
            "",
        ),
    ],
    later: &[],
};
