//! The settings of the whole process.
//! In: nothing. Out: the section `[server]`, which `FILE` refers to.

use tidegate_base::limits;

use super::Preset::{Absent, Value};
use super::Shape::{Duration, List, NoNumber, Number, OneOf, Table, Text, True, Word};
use super::{DRAIN, OVERLOAD, REQUEST_ID, Section, TRACE, key};
use crate::model::{ReloadOn, SteerByCpu};
use crate::words::Keyword as _;

/// `[server]`.
pub static SERVER: Section = Section {
    path: "[server]",
    about: "Settings of the whole process.",
    keys: &[
        key(
            "workers",
            OneOf(&[NoNumber("auto"), Number(1, limits::WORKERS_MAX as u64)]),
            Value("\"auto\""),
            "Number of worker threads. \"auto\" starts one for each CPU that this process may use.",
            "Workers share almost nothing, so one for each CPU uses the whole machine. More workers would only \
             compete for the same CPUs.",
        ),
        key(
            "cpus",
            Text("\"all\", or CPU numbers such as \"0-15\" or \"2,3,8-11\""),
            Value("\"all\""),
            "CPUs for the worker threads, each of which is pinned to one CPU. CPUs that are not in the list are \
             left to the interrupts of the network card and to other programs.",
            "On most machines workers and interrupts share all CPUs well. At millions of packets per \
             second, separate CPUs for the interrupts allow more requests.",
        ),
        key(
            "reload",
            Word(ReloadOn::WORDS),
            Value("\"signal\""),
            "When the configuration file is read again: with \"signal\", at SIGHUP and `ctl reload`; with \"watch\", \
             also 0.3 s after the file has changed. The files that the configuration names are read again at the same \
             time. \"watch\" also watches the scripts of Lua applications; certificates are always watched.",
            "An editor may save a file that is not complete yet. If programs write the file, watching it is convenient.",
        ),
        key(
            "shutdown-grace",
            Duration(0, 3_600_000),
            Value("\"30s\""),
            "How long a stop waits for exchanges in flight. After this time the remaining connections are \
             reset.",
            "Long enough for ordinary responses, and short enough that a stuck client cannot delay a \
             restart.",
        ),
        key(
            "drain",
            Table(&DRAIN),
            Absent,
            "The times over which WebSocket connections are closed at a stop, a reload and an upgrade.",
            "",
        ),
        key(
            "overload",
            Table(&OVERLOAD),
            Absent,
            "Refuses requests early while workers are overloaded. Without it, all requests are served, however long they wait.",
            "",
        ),
        key(
            "connections-max",
            OneOf(&[NoNumber("auto"), Number(1, 100_000_000)]),
            Value("\"auto\""),
            "Maximum number of connections of the process, with clients and with servers. Each worker has an equal share, and \
             at least 1. A worker that has used up its share closes connections that are not in use, or pauses accepting, even \
             if other workers have room, because the kernel assigns connections to workers. \"auto\" uses what the descriptor \
             limit of each worker allows.",
            "The kernel's descriptor limit cannot be exceeded in any case. Accepting pauses before that \
             limit is reached.",
        ),
        key(
            "server-name",
            Text("visible ASCII characters and spaces; \"\" omits the field"),
            Value("\"tidegate\""),
            "Value of the Server field in responses that Tidegate makes itself. An empty string omits the \
             field.",
            "The name contains no version, so it tells an attacker nothing useful.",
        ),
        key(
            "via",
            Text("a token: letters, digits and !#$%&'*+-.^_`|~"),
            Value("\"tidegate\""),
            "Name of this proxy in the Via field (RFC 9110 section 7.6.3).",
            "A pseudonym does not disclose the host's name.",
        ),
        key(
            "name-servers",
            List(&Text(
                "an IP address, such as \"10.0.0.2\", \"10.0.0.2:5353\" or \"[2001:db8::2]:53\"",
            )),
            Absent,
            "The DNS servers that Lua applications query (`tide.dns`). Without this setting, the servers in /etc/resolv.conf, \
             which is read at start and at each reload. [resolver] defines how the names of pools' servers are resolved.",
            "",
        ),
        key(
            "request-id",
            OneOf(&[True, Table(&REQUEST_ID)]),
            Absent,
            "Gives each request an id, for servers and for the access log. `true` uses the defaults. Without this setting, \
             only requests of routes with {id} have an id.",
            "",
        ),
        key(
            "trace",
            OneOf(&[True, Table(&TRACE)]),
            Absent,
            "Continues or begins a trace (traceparent) for each request. `true` uses the defaults. Without this setting, \
             traceparent is passed on like any other field.",
            "",
        ),
        key(
            "steer-by-cpu",
            Word(SteerByCpu::WORDS),
            Value("\"auto\""),
            "Whether a connection goes to the worker of the CPU that received it. \"auto\" does this only \
             if the network card's interrupts are spread over the workers' CPUs.",
            "Steering helps if interrupts are spread over the CPUs. If they are not, it leaves workers \
             without connections. \"auto\" checks this first.",
        ),
    ],
    later: &[],
};
