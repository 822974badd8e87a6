//! The settings of what is written about requests.
//! In: nothing. Out: the section `[log]`, which `FILE` refers to.

use super::Preset::{Absent, Required, Value};
use super::Shape::{List, Table, Text, Word};
use super::{Section, key};
use crate::model::{AccessFilter, AccessFormat};
use crate::words::Worded as _;

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
    about: "The access log: one line for each request, written when its response has ended. A thread of its own \
             writes the lines, so a slow reader or a full disk delays no request: lines that cannot be written are \
             lost and counted.",
    keys: &[
        key(
            "to",
            Text("\"stdout\" or \"file:PATH\""),
            Required,
            "Where the lines go. A relative path starts from the folder of the configuration file. Lines are \
             appended to the file, which is created if it does not exist (readable by its owner and group). \
             SIGUSR1 opens the file again, after it was renamed by logrotate(8).",
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
            "The requests that are logged. \"errors\" leaves out requests with a status below 400 that ended as \
             intended.",
            "A log that leaves requests out cannot prove that a request did not arrive.",
        ),
        key(
            "request-headers",
            List(&Text("the name of a field, such as \"user-agent\"")),
            Value("[]"),
            "Names of request fields whose values are in each line. Up to 16 fields, and up to 256 bytes of each \
             value. Fields such as Authorization and Cookie contain secrets, which then are in the log.",
            "",
        ),
    ],
    later: &[],
};
