//! The settings of agents, which report the weights and states of servers.
//! In: nothing. Out: the section `[pool.NAME.agent]`.

use super::Preset::{Absent, Required, Value};
use super::Shape::{Number, Text};
use super::{Section, TIMEOUT, key};

/// `agent = { ... }` of a pool.
pub static AGENT: Section = Section {
    path: "[pool.NAME.agent]",
    about: "Asks an agent on each server of the pool how much load the server can take: opens a connection to `port` of the \
             server's address, reads one line, and applies its words, as HAProxy's `agent-check` does: \"75%\" \
             (of the weight), \"up\", \"down\", \"fail\", \"stopped\" (each with a reason after #), \"ready\", \"drain\", \"maint\". \
             What a line does not mention (the weight, whether the server is up, or its administrative state) stays unchanged. \
             An agent that cannot be reached changes nothing; `health` notices servers that fail.",
    keys: &[
        key(
            "port",
            Number(1, 65_535),
            Required,
            "Port of the agent, on the address of each server.",
            "",
        ),
        key(
            "every",
            TIMEOUT,
            Value("\"2s\""),
            "Time from the start of a check to the start of the next, shortened at random by up to a tenth.",
            "Follows the load of a server within seconds, and costs a server less than one connection per second.",
        ),
        key(
            "timeout",
            TIMEOUT,
            Value("\"1s\""),
            "Time limit of a whole check, from the start of the connect to the end of the line.",
            "An agent has its line ready or computes it quickly.",
        ),
        key(
            "send",
            Text("a line of printable ASCII"),
            Absent,
            "A line that is sent to the agent first, such as the name of a service. Without this setting, nothing is sent.",
            "",
        ),
    ],
    later: &[],
};
