//! The settings of servers that are avoided because their requests fail.
//! In: nothing. Out: the section `[pool.NAME.eject]`.

use super::Preset::Value;
use super::Shape::{NoNumber, Number, OneOf, Text};
use super::{Section, TIMEOUT, key};

/// `eject = { ... }` of a pool.
pub static EJECT: Section = Section {
    path: "[pool.NAME.eject]",
    about: "Ejects a server whose requests fail: other servers get its requests for a while. A request has failed if no \
             connection could be opened, if no valid response came in time, or if the status is 500 to 599. Each \
             worker decides by its own requests. If no other server is available, an ejected one gets requests all the same.",
    keys: &[
        key(
            "failures",
            OneOf(&[NoNumber("unlimited"), Number(1, 1_000_000)]),
            Value("5"),
            "How many requests in a row must fail.",
            "A server that works fails five times in a row only by chance.",
        ),
        key(
            "errors",
            Text("\"50%\" or \"off\""),
            Value("\"50%\""),
            "Which part of the requests within 10 s must fail, of at least 20 requests. \"off\": the part does not matter.",
            "A server that fails every other request is broken, although it never fails five times in a row.",
        ),
        key(
            "for",
            TIMEOUT,
            Value("\"10s\""),
            "How long the server is avoided. Once more as long for each time that it is ejected again, up to ten times.",
            "Long enough to restart, and short enough that a capacity that is needed comes back soon.",
        ),
        key(
            "ejected-max",
            Text("\"50%\""),
            Value("\"50%\""),
            "Which part of the servers may be avoided at once, rounded down.",
            "If most servers fail, the cause is elsewhere, and the others would fail from the load.",
        ),
    ],
    later: &[("panic", "an ejected server gets requests if no other one is available")],
};
