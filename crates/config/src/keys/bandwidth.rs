//! The settings of the bandwidth of requests.
//! In: nothing. Out: the section `[route.bandwidth]`.

use super::Preset::{Absent, Value};
use super::Shape::{Size, Text};
use super::{Section, key};

const BYTES_PER_SECOND: &str = "\"1MiB/s\"";

/// `bandwidth = { ... }` of a route.
pub static BANDWIDTH: Section = Section {
    path: "[route.bandwidth]",
    about: "Limits how fast the bodies of one request and its response are transferred. Each request has its own limit. On an \
            HTTP/2 connection, the limit of one stream does not slow down other streams. At least one of `down` and `up` is \
            required. Heads are not counted. WebSocket connections and other tunnels are not limited.",
    keys: &[
        key(
            "down",
            Text(BYTES_PER_SECOND),
            Absent,
            "Bytes of the response body per second, from 1KiB/s to 1024GiB/s. Only for `proxy`, `respond` and `synthetic`. \
             Tidegate reads from the server at the same rate. Time in which the limit delays the response does not count \
             toward the timeouts for the server.",
            "",
        ),
        key(
            "up",
            Text(BYTES_PER_SECOND),
            Absent,
            "Bytes of the request body per second, with the same range as `down`. Only for `proxy`. Time in which Tidegate \
             does not read because of the limit counts neither toward the timeouts for the client nor for \
             `limits.body-rate-min` of the listener.",
            "",
        ),
        key(
            "after",
            Size(0, 1 << 40),
            Value("\"0B\""),
            "How many bytes of each response body are sent before `down` applies.",
            "The limit applies from the first byte.",
        ),
    ],
    later: &[],
};
