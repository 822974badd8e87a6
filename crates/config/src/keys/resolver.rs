//! The settings of the resolution of names.
//! In: nothing. Out: the section `[resolver]`, which `FILE` refers to, and its table.

use super::Preset::{Absent, Value};
use super::Shape::{Duration, List, Number, Table, Text, Word};
use super::{Section, TIMEOUT, TIMEOUT_MS_MAX, key};
use crate::model::Families;
use crate::words::Keyword as _;

/// `[resolver]`.
pub static RESOLVER: Section = Section {
    path: "[resolver]",
    about: "Resolves the names of pools' servers by DNS, again and again as their records expire. The names in /etc/hosts have the \
             addresses of that file. Without this section, the system's resolver resolves the names every 30 s, and a \
             server keeps its addresses while its name cannot be resolved.",
    keys: &[
        key(
            "name-servers",
            List(&Text(
                "an IP address, such as \"10.0.0.2\", \"10.0.0.2:5353\" or \"[2001:db8::2]:53\"",
            )),
            Absent,
            "The DNS servers, up to three; the first one that answers decides. Without this setting, those in /etc/resolv.conf, with \
             its `search` and `ndots`. The file is read at each lookup.",
            "",
        ),
        key(
            "timeout",
            TIMEOUT,
            Value("\"1s\""),
            "How long a DNS server may take for an answer.",
            "A name server nearby answers within milliseconds, and one that has to ask others usually within a second.",
        ),
        key(
            "attempts",
            Number(1, 10),
            Value("2"),
            "How often each DNS server is asked before the lookup has failed.",
            "A datagram may be lost.",
        ),
        key(
            "families",
            Word(Families::WORDS),
            Value("\"both\""),
            "The addresses that are asked for: IPv4 and then IPv6 (\"both\"), or one of them.",
            "With \"both\", a server with either kind of address is found.",
        ),
        key(
            "ttl-min",
            Duration(100, TIMEOUT_MS_MAX),
            Value("\"1s\""),
            "A name is resolved again when its records expire, but not earlier than after this time.",
            "Records may expire at once, and each lookup costs the DNS server time.",
        ),
        key(
            "ttl-max",
            Duration(100, TIMEOUT_MS_MAX),
            Value("\"5m\""),
            "A name is resolved again after this time at the latest.",
            "Records of a day would hide that a server has moved.",
        ),
        key(
            "udp-payload",
            Number(512, 8192),
            Value("1232"),
            "The largest answer over UDP in bytes, which queries announce. Longer answers are fetched over TCP.",
            "Answers of this size pass each network without fragments, which others could forge.",
        ),
        key(
            "hold",
            Table(&HOLD),
            Absent,
            "How long addresses stay in use although a lookup does not confirm them.",
            "",
        ),
    ],
    later: &[],
};

/// `hold = { ... }`.
pub static HOLD: Section = Section {
    path: "[resolver.hold]",
    about: "How long addresses stay in use although a lookup does not confirm them. After this time the server is down. \
             The time begins with the first such lookup in a row.",
    keys: &[
        key(
            "valid",
            Duration(0, TIMEOUT_MS_MAX),
            Value("\"0s\""),
            "After a valid answer that does not contain the address. Set it if the DNS server lists a random part of \
             the addresses in each answer.",
            "An answer without the address usually means that the server is gone.",
        ),
        key(
            "nx",
            Duration(0, TIMEOUT_MS_MAX),
            Value("\"30s\""),
            "While the name does not exist or has no records.",
            "A name may be absent for a moment while its records are replaced.",
        ),
        key(
            "timeout",
            Duration(0, TIMEOUT_MS_MAX),
            Value("\"1h\""),
            "While no DNS server answers in time.",
            "A broken DNS server says nothing about the servers, which usually still work.",
        ),
        key(
            "other",
            Duration(0, TIMEOUT_MS_MAX),
            Value("\"1h\""),
            "While DNS servers answer with errors or malformed messages, or refuse to answer.",
            "A broken DNS server says nothing about the servers, which usually still work.",
        ),
    ],
    later: &[],
};
