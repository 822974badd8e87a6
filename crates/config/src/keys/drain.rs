//! The settings of how WebSocket connections are closed.
//! In: nothing. Out: the section `[server.drain]`.

use super::Preset::Value;
use super::Shape::Duration;
use super::{Section, key};

const MS_MAX: u64 = 3_600_000;

/// `drain = { ... }` of `[server]`.
pub static DRAIN: Section = Section {
    path: "[server.drain]",
    about: "WebSocket connections, including those that are forwarded to servers, end with a Close frame that advises their \
             clients to connect again. The closes are spread over these times, so that the clients do not all connect again at \
             the same moment. \"0s\" closes all of them at once. At a stop and at an upgrade, this includes clients of push hubs \
             without WebSocket (streams of events, HTTP streaming), whose responses end.",
    keys: &[
        key(
            "stop",
            Duration(0, MS_MAX),
            Value("\"0s\""),
            "Time over which the closes are spread when the process stops. At most half of `shutdown-grace`.",
            "If no other machine takes over the clients, spreading the closes only delays the stop.",
        ),
        key(
            "reload",
            Duration(0, MS_MAX),
            Value("\"15s\""),
            "Time over which the closes are spread when a reload removes the listener of the connections, or the server to \
             which they are forwarded.",
            "Their clients connect to the remaining servers, which need time for thousands of handshakes.",
        ),
        key(
            "upgrade",
            Duration(0, MS_MAX),
            Value("\"15s\""),
            "Time over which the closes are spread when another process replaces this process. At most half of `shutdown-grace`.",
            "The new process needs time for thousands of handshakes, and the clients need the rest of the grace period to \
             close.",
        ),
    ],
    later: &[],
};
