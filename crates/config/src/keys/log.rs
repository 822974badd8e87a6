//! The settings of the access log.
//! In: nothing. Out: the section `[log]`, which `FILE` refers to.

use super::Preset::{Absent, Required, Value};
use super::Shape::{Boolean, Duration, List, NoNumber, OneOf, Table, Text, Word};
use super::{Section, TIMEOUT_MS_MAX, key};
use crate::model::{AccessFilter, AccessFormat};
use crate::words::Keyword as _;

/// `[log]`.
pub static LOG: Section = Section {
    path: "[log]",
    about: "What is written about requests. Messages of the process itself always go to stderr.",
    keys: &[key(
        "access",
        Table(&ACCESS),
        Absent,
        "The access log: one line for each request. Without it, there is no access log.",
        "",
    )],
    later: &[("level", "messages of the process go to stderr, whatever their level")],
};

/// `log.access`.
pub static ACCESS: Section = Section {
    path: "[log.access]",
    about: "The access log: one line for each request, written when its response has ended. A separate thread writes the \
             lines, so a slow reader or a full disk delays no request: lines that cannot be written are lost and counted.",
    keys: &[
        key(
            "to",
            Text(
                "\"stdout\", \"file:PATH\", \"syslog:IP:PORT\", \"syslog:tcp:IP:PORT\" or \"syslog:unix:PATH\"",
            ),
            Required,
            "Where the lines go. \"syslog:127.0.0.1:514\" sends each line as a datagram of RFC 5424 over UDP, \
             \"syslog:tcp:127.0.0.1:601\" over a TCP connection with the length before each line (RFC 6587), \
             \"syslog:unix:/dev/log\" to a unix socket, with facility local0. A relative path starts \
             from the folder of the configuration file. Lines are appended to the file, which is created if it does not \
             exist (readable by its owner and group). SIGUSR1 opens the file again, after it was renamed by \
             logrotate(8).",
            "",
        ),
        key(
            "format",
            Word(AccessFormat::WORDS),
            Value("\"json\""),
            "The form of a line. \"json\" is an object, \"http\" has the fields of HAProxy's `option httplog`.",
            "Programs read JSON without a pattern, and new fields do not break them.",
        ),
        key(
            "only",
            Word(AccessFilter::WORDS),
            Value("\"all\""),
            "The requests that are logged. \"errors\" leaves out requests with a status below 400 that ended normally.",
            "A log that leaves requests out cannot prove that a request did not arrive.",
        ),
        key(
            "slow",
            OneOf(&[NoNumber("off"), Duration(1, TIMEOUT_MS_MAX)]),
            Value("\"off\""),
            "A request that took at least this long is always logged, regardless of `only` and `sample`.",
            "Which requests are slow depends on the service.",
        ),
        key(
            "sample",
            Text("a percentage such as \"10%\""),
            Value("\"100%\""),
            "The share that is logged of the requests that ended normally with a status below 400, chosen at random. Errors \
             and slow requests are always logged. Up to three decimals, such as \"0.1%\".",
            "A log that leaves requests out cannot prove that a request did not arrive.",
        ),
        key(
            "client-certificate",
            Boolean,
            Value("false"),
            "Whether each line contains the subject of the client's verified certificate, such as \"CN=alice,O=Example\", up \
             to 256 bytes. If a proxy in front has verified the certificate (PROXY protocol), the line contains only the \
             common name.",
            "Most clients have no certificate.",
        ),
        key(
            "cookies",
            List(&Text("the name of a cookie, such as \"session\"")),
            Value("[]"),
            "Names of cookies of the request whose values are in each line. Up to 4 cookies, and up to 256 bytes of each \
             value. The value of a session cookie is a secret, which is then in the log.",
            "",
        ),
        key(
            "request-headers",
            List(&Text("the name of a field, such as \"user-agent\"")),
            Value("[]"),
            "Names of request fields whose values are in each line. Up to 16 fields, and up to 256 bytes of each \
             value. Fields such as Authorization and Cookie contain secrets, which are then in the log.",
            "",
        ),
        key(
            "response-cookies",
            List(&Text("the name of a cookie, such as \"session\"")),
            Value("[]"),
            "Names of cookies that responses set (Set-Cookie) whose values are in each line. Up to 4 cookies, and up to 256 \
             bytes of each value. The value of a session cookie is a secret, which is then in the log.",
            "",
        ),
        key(
            "response-headers",
            List(&Text("the name of a field, such as \"content-type\"")),
            Value("[]"),
            "Names of response fields whose values are in each line, as the client gets them. Up to 16 fields, and up to 256 \
             bytes of each value. Set-Cookie contains secrets, which are then in the log.",
            "",
        ),
    ],
    later: &[],
};
