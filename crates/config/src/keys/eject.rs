//! The settings of servers that are avoided because their requests fail.
//! In: nothing. Out: the section `[pool.NAME.eject]`.

use super::Preset::Value;
use super::Shape::{NoNumber, Number, OneOf, Text};
use super::{Section, TIMEOUT, key};

/// `eject = { ... }` of a pool.
pub static EJECT: Section = Section {
    path: "[pool.NAME.eject]",
    about: "Ejects a server whose requests fail: other servers get its requests for a while. A request has failed if no \
             connection could be opened, if no valid response came in time, or if the status of the response is 500 or more. \
             501, 505 and 511 do not count, because they concern the request. Sticky sessions stay with an ejected server. \
             Each worker ejects servers by the results of its own requests. If no other server is available, ejected servers \
             get requests.",
    keys: &[
        key(
            "failures",
            OneOf(&[NoNumber("unlimited"), Number(1, 1_000_000)]),
            Value("5"),
            "A server is ejected after this many requests in a row have failed.",
            "A healthy server rarely fails five times in a row.",
        ),
        key(
            "errors",
            Text("\"off\", or a percentage from \"1%\" to \"100%\""),
            Value("\"50%\""),
            "A server is also ejected if at least this share of its requests within 10 s has failed, and there were at least \
             20 requests. \"off\" ignores the share.",
            "A server that fails every other request is broken, although it never fails five times in a row.",
        ),
        key(
            "for",
            TIMEOUT,
            Value("\"10s\""),
            "How long the server is avoided after its first ejection. Each further ejection in a row lasts longer by the same \
             time, up to ten times this time.",
            "Long enough to restart, and short enough that the capacity of the server is soon available again.",
        ),
        key(
            "ejected-max",
            Text("a percentage from \"1%\" to \"100%\""),
            Value("\"50%\""),
            "Largest share of the servers that may be ejected at once, rounded down.",
            "If most servers fail, the cause is elsewhere, and the others would fail from the load.",
        ),
        key(
            "latency",
            OneOf(&[NoNumber("off"), Number(2, 100)]),
            Value("\"off\""),
            "A server is also ejected if the time until its responses begin is this many times as long as that of the other \
             servers: on average over at least 20 requests of the server and 20 of the others, within 10 s, and by at least 20 ms. \
             Requests with a body do not count, because their clients may send it slowly.",
            "Servers of different speeds are common, and \"random\" and \"least-connections\" give a slow server fewer requests. \
             Set it, such as to 5, for equal servers of which one may become slow.",
        ),
        key(
            "panic",
            Text("\"off\", or a percentage from \"1%\" to \"100%\""),
            Value("\"off\""),
            "If a smaller share of the servers passes the checks (`health`), requests go to all servers again, except those that an \
             operator or an agent has taken out of service. Backup servers do not count; while one of them is up, nothing changes.",
            "Failing checks of most servers may be wrong, and the few others would fail from the load; but a server that \
             fails its checks may respond wrongly, so this is a choice.",
        ),
    ],
    later: &[],
};
