//! The table of every setting. The parser, the JSON Schema and the reference documentation all use it.
//! In: nothing. Out: `FILE`, the root section, which refers to all other sections.
//! Never: contains a limit or timeout without a default and the reason for it.
//! Limits: the ranges of numbers, durations and sizes are defined here and nowhere else.

/// A table of the file and the settings that it may contain.
pub struct Section {
    /// Name of the section in messages, written as in the file.
    pub path: &'static str,
    /// Description of the section for the reference.
    pub about: &'static str,
    /// Settings that the section may contain.
    pub keys: &'static [Key],
    /// Settings that later versions add: the name, and what this version does instead.
    pub later: &'static [(&'static str, &'static str)],
}

/// One setting.
pub struct Key {
    /// Name of the setting.
    pub name: &'static str,
    /// Values that the setting accepts.
    pub shape: Shape,
    /// The default if the setting is absent.
    pub preset: Preset,
    /// What the setting does; ends with a period.
    pub about: &'static str,
    /// Why the default has its value; empty if no reason is given.
    pub reason: &'static str,
}

/// The default if a setting is absent.
pub enum Preset {
    /// The setting is required.
    Required,
    /// There is no default value; `about` describes the behaviour without the setting.
    Absent,
    /// This default, written as a TOML value.
    Value(&'static str),
}

/// The type and range of a setting's value.
pub enum Shape {
    /// `true` or `false`.
    Boolean,
    /// Only `true`.
    True,
    /// A string; the text describes its form in messages.
    Text(&'static str),
    /// One of the words of a [`Keyword`](crate::Keyword) type.
    Word(&'static [&'static str]),
    /// Only this string, which means that no number is set: "unlimited" or "auto".
    NoNumber(&'static str),
    /// One of these names, which another crate defines, such as cipher suites.
    Name(&'static [&'static str]),
    /// An integer within these bounds, inclusive.
    Number(u64, u64),
    /// A duration string within these bounds, inclusive, in milliseconds.
    Duration(u64, u64),
    /// A size string within these bounds, inclusive, in bytes.
    Size(u64, u64),
    /// Any of several shapes.
    OneOf(&'static [Shape]),
    /// An array of values of one shape.
    List(&'static Shape),
    /// A table whose keys the user chooses, such as header field names.
    Fields(&'static Shape),
    /// A table with the settings of one section.
    Table(&'static Section),
    /// An array of tables, `[[x]]`.
    Rows(&'static Section),
    /// Tables by name, `[x.NAME]`.
    Named(&'static Section),
}

mod admin;
mod agent;
mod answers;
mod auth;
mod bandwidth;
mod choice;
mod count_table;
mod drain;
mod edits;
mod eject;
mod health;
mod https;
mod identity;
mod listener;
mod log;
mod lua;
mod mirror;
mod overload;
mod pool;
mod push;
mod push_backend;
mod rate;
mod resolver;
mod retry_budget;
mod route;
mod server;
mod set;
mod sticky;
mod tcp;
mod timeouts;
mod tls;
mod traces;
mod websocket;

pub use admin::{ADMIN, ADMIN_TLS};
pub use agent::AGENT;
pub use answers::{CORS, MAINTENANCE};
pub use auth::{AUTH, JWT};
pub use bandwidth::BANDWIDTH;
pub(crate) use choice::WEIGHT_MAX;
pub use choice::{CHOICE, MAP, SPLIT};
pub use count_table::COUNT_TABLE;
pub use drain::DRAIN;
pub use edits::{REQUEST_EDITS, RESPONSE_EDITS};
pub use eject::EJECT;
pub use health::HEALTH;
pub use https::{HSTS, HTTPS_REDIRECT};
pub use identity::{REQUEST_ID, TRACE};
pub use listener::{CLIENT_TIMEOUTS, LIMITS, LISTENER, LISTENER_PROXY};
pub use log::{ACCESS, LOG};
pub(crate) use lua::{DICTIONARY, QUEUE, SHARED_FILE};
pub use lua::{HOOKS, LUA, LUA_PHASES};
pub use mirror::MIRROR;
pub use overload::OVERLOAD;
pub use pool::{BALANCE, POOL, POOL_HTTP2, REUSE, SERVER_TIMEOUTS, UPSTREAM};
pub use push::{NAMESPACE, PUSH, ROUTE_PUSH};
pub use push_backend::BACKEND;
pub use rate::RATE;
pub use resolver::{HOLD, RESOLVER};
pub use retry_budget::RETRY_BUDGET;
pub use route::{FIELD, PROXY, REDIRECT, RESPOND, ROUTE, ROUTE_CERTIFICATE};
pub use server::SERVER;
pub use set::SET;
pub use sticky::STICKY;
pub use tcp::FORWARD;
pub use timeouts::ROUTE_TIMEOUTS;
pub use tls::{CERTIFICATE, CLIENT_CERTIFICATE, LISTENER_TLS, POOL_TLS};
pub(crate) use tls::{CLIENT_PROTOCOLS, SERVER_PROTOCOLS};
pub use traces::TRACES;
pub use websocket::WEBSOCKET;

use Preset::{Absent, Required};
use Shape::{
    Boolean, Duration, Fields, List, Name, Named, NoNumber, Number, OneOf, Rows, Size, Table, Text,
    True, Word,
};

const fn key(
    name: &'static str,
    shape: Shape,
    preset: Preset,
    about: &'static str,
    reason: &'static str,
) -> Key {
    Key { name, shape, preset, about, reason }
}

/// The part of a configuration that a command contains.
pub(crate) static COMMAND: Section = Section {
    path: "the command",
    about: "",
    keys: &[key("route", Rows(&ROUTE), Absent, "", ""), key("pool", Named(&POOL), Absent, "", "")],
    later: &[],
};

/// Maximum of a timeout setting.
const TIMEOUT_MS_MAX: u64 = 24 * 3_600_000;
/// Minimum of a timeout setting: about one tick of the timer wheel.
const TIMEOUT_MS_MIN: u64 = 10;
const TIMEOUT: Shape = Duration(TIMEOUT_MS_MIN, TIMEOUT_MS_MAX);
const COUNT_OR_UNLIMITED: Shape = OneOf(&[NoNumber("unlimited"), Number(1, 1_000_000_000)]);

/// The whole file.
pub static FILE: Section = Section {
    path: "the file",
    about: "The whole configuration file.",
    keys: &[
        key(
            "include",
            List(&Text("the path of a file; its last part may contain * and ?")),
            Absent,
            "Files with further tables, such as [\"conf.d/*.toml\"]. They are read in this order, as if they were \
             written at the end of this file; files that match the same pattern are read in the order of their names. \
             Relative paths, even those in these files, start from the folder of this file.",
            "",
        ),
        key("server", Table(&SERVER), Absent, "Settings of the whole process.", ""),
        key("listener", Rows(&LISTENER), Required, "Addresses that accept connections.", ""),
        key(
            "route",
            Rows(&ROUTE),
            Absent,
            "Rules that select requests and define what happens to them. The first matching route in file \
             order wins. A request that matches no route gets a 404 response.",
            "",
        ),
        key("pool", Named(&POOL), Absent, "Groups of servers that do the same work, by name.", ""),
        key(
            "resolver",
            Table(&RESOLVER),
            Absent,
            "How the names of pools' servers are resolved.",
            "",
        ),
        key("push", Named(&PUSH), Absent, "Push hubs, by name.", ""),
        key("lua", Named(&LUA), Absent, "Lua applications, by name.", ""),
        key(
            "set",
            Named(&SET),
            Absent,
            "Sets of IP addresses, by name. Routes refer to them as \"set:NAME\".",
            "",
        ),
        key("map", Named(&MAP), Absent, "Maps that routes look up values in, by name.", ""),
        key(
            "table",
            Named(&COUNT_TABLE),
            Absent,
            "Tables that count what clients do, by name.",
            "",
        ),
        key(
            "websocket",
            Table(&WEBSOCKET),
            Absent,
            "Settings of the WebSocket connections that Tidegate serves itself.",
            "",
        ),
        key("log", Table(&LOG), Absent, "What is written about requests.", ""),
        key("admin", Table(&ADMIN), Absent, "The admin interface.", ""),
        key(
            "traces",
            Table(&TRACES),
            Absent,
            "Where spans of requests go (OpenTelemetry). Without it, no spans are recorded.",
            "",
        ),
    ],
    later: &[],
};

impl Section {
    /// Finds a setting by its name.
    #[must_use]
    pub fn key(&self, name: &str) -> Option<&'static Key> {
        self.keys.iter().find(|key| key.name == name)
    }

    /// The names of all settings, separated by commas, for messages.
    #[must_use]
    pub fn names(&self) -> String {
        self.keys.iter().map(|key| key.name).collect::<Vec<_>>().join(", ")
    }
}

impl Shape {
    /// The section of the table that this shape accepts; `None` if it accepts no table of settings.
    #[must_use]
    pub fn section(&self) -> Option<&'static Section> {
        match self {
            Table(section) | Rows(section) | Named(section) => Some(section),
            OneOf(shapes) => shapes.iter().find_map(Self::section),
            List(shape) | Fields(shape) => shape.section(),
            Boolean | True | Text(_) | Word(_) | NoNumber(_) | Name(_) | Number(..)
            | Duration(..) | Size(..) => None,
        }
    }
}

/// Every section once, the root first, in the order of the reference.
#[must_use]
pub fn sections() -> Vec<&'static Section> {
    let mut found = vec![&FILE];
    let mut next = 0;
    while let Some(&section) = found.get(next) {
        next += 1;
        let mut inner: Vec<&'static Section> = Vec::new();
        for section in section.keys.iter().filter_map(|key| key.shape.section()) {
            let is_known = |known: &&Section| known.path == section.path;
            if !found.iter().any(is_known) && !inner.iter().any(is_known) {
                inner.push(section);
            }
        }
        found.splice(next..next, inner);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::Preset::Value;
    use super::*;

    #[test]
    fn limits_and_timeouts_have_a_default_and_a_reason() {
        for section in sections() {
            for key in section.keys {
                let bounded = match &key.shape {
                    Duration(..) | Size(..) => true,
                    OneOf(shapes) => shapes.iter().any(|shape| matches!(shape, Number(..))),
                    _ => key.name.ends_with("-max"),
                };
                if bounded {
                    assert!(matches!(key.preset, Value(_)), "{} {}", section.path, key.name);
                    assert!(!key.reason.is_empty(), "{} {}", section.path, key.name);
                }
            }
        }
    }

    #[test]
    fn setting_names_are_unique_and_described() {
        let paths: Vec<_> = sections().iter().map(|section| section.path).collect();
        assert_eq!(paths.len(), 64, "{paths:?}");
        for section in sections() {
            for (index, key) in section.keys.iter().enumerate() {
                assert!(key.about.ends_with('.'), "{}: {}", section.path, key.name);
                let twins = section.keys.iter().skip(index + 1).any(|k| k.name == key.name);
                assert!(!twins, "{}: {} is listed twice", section.path, key.name);
            }
        }
    }
}
