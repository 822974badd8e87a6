//! Edits of a configuration by commands, while the process runs: routes, pools and their servers, listeners and routes that are
//! switched off, and certificates that are used in place of those in files.
//! In: a checked configuration, an edit, arguments of a command. Out: the edited configuration, or why it cannot be edited; how an
//! edited configuration differs from its file, as commands.
//! Never: adds or removes a listener, or leaves a configuration that a file could not contain (except for a
//! listener that is switched off and a given certificate): a pool keeps a server with a weight above 0, and a process a
//! listener. Never shows a private key.
//! Limits: `LISTED_MAX` names in a message; a pool has at most `arrange::INDEXES_MAX` servers.

mod certificate;
mod command_table;
mod pool;
mod route;

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::arrange::{bind_key, server_key};
use crate::keys::{Shape, UPSTREAM};
use crate::model::{
    Bind, Config, GivenCertificate, Listener, Origin, Pool, ServerAddress, Upstream,
};
use crate::names::route_names;
use crate::pattern;

pub use self::certificate::{certificates_of, find_certificate};

/// What an edit needs beyond the configuration: the files that it may name, and the entries of maps, which commands change, too.
pub struct EditFiles<'f> {
    /// The folder from which relative paths start: that of the file of the configuration.
    pub folder: &'f str,
    /// Reads a file, or says why it cannot be read.
    pub read: &'f dyn Fn(&str) -> Result<Vec<u8>, String>,
    /// The maps that name a pool, by the entries in force.
    pub maps_naming: &'f dyn Fn(&str) -> Vec<String>,
}

/// How many names a message lists.
const LISTED_MAX: usize = 20;

/// An edit. Pools are identified by their names, servers by their addresses, listeners by their names or addresses.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LiveEdit {
    /// Adds a server to a pool.
    AddServer {
        /// The pool.
        pool: String,
        /// The server.
        server: Upstream,
    },
    /// Removes a server from a pool.
    RemoveServer {
        /// The pool.
        pool: String,
        /// The address of the server.
        server: String,
    },
    /// Replaces the address of a server.
    SetAddress {
        /// The pool.
        pool: String,
        /// The address that the server has.
        server: String,
        /// The address that it gets.
        address: ServerAddress,
    },
    /// Replaces `connections-max` of a server.
    SetLimit {
        /// The pool.
        pool: String,
        /// The address of the server.
        server: String,
        /// The new limit; `None`: unlimited.
        limit: Option<u32>,
    },
    /// Adds a pool.
    AddPool {
        /// Its name.
        pool: String,
        /// Its settings: a table as TOML.
        text: String,
    },
    /// Removes a pool that nothing uses.
    RemovePool {
        /// Its name.
        pool: String,
    },
    /// Adds a route.
    AddRoute {
        /// Its settings: a table as TOML.
        text: String,
        /// The name of the route before which it is placed; `None`: after all routes.
        before: Option<String>,
    },
    /// Removes a route.
    RemoveRoute {
        /// Its name in logs and statistics.
        route: String,
    },
    /// Switches a listener on or off.
    SwitchListener {
        /// Its name or address.
        listener: String,
        /// Whether it accepts connections.
        on: bool,
    },
    /// Switches a route off or on again.
    SwitchRoute {
        /// Its name in logs and statistics.
        route: String,
        /// Whether it matches requests.
        on: bool,
    },
    /// Uses a certificate and its key in place of those in files, wherever the configuration names these files.
    SetCertificate {
        /// The path of the certificate (`cert`).
        path: String,
        /// The certificate and its key.
        given: Arc<GivenCertificate>,
    },
}

impl LiveEdit {
    /// Edits the configuration. Returns false if the edit would change nothing. `files`: those that a new route may name.
    ///
    /// # Errors
    /// The message says why the edit is refused. The configuration has not changed.
    pub fn apply(&self, config: &mut Config, files: &EditFiles<'_>) -> Result<bool, String> {
        match self {
            Self::AddServer { pool, server } => add_server(find_pool(config, pool)?, server),
            Self::RemoveServer { pool, server } => remove_server(find_pool(config, pool)?, server),
            Self::SetAddress { pool, server, address } => {
                set_address(find_pool(config, pool)?, server, address)
            }
            Self::SetLimit { pool, server, limit } => {
                let pool = find_pool(config, pool)?;
                let at = find_server(pool, server)?;
                let known = &mut pool.servers[at].connections_max;
                Ok(core::mem::replace(known, *limit) != *limit)
            }
            Self::SwitchListener { listener, on } => switch_listener(config, listener, *on),
            Self::AddPool { pool, text } => pool::add(config, pool, text, files),
            Self::RemovePool { pool } => pool::remove(config, pool, files),
            Self::AddRoute { text, before } => route::add(config, text, before.as_deref(), files),
            Self::RemoveRoute { route } => route::remove(config, route),
            Self::SwitchRoute { route, on } => route::switch(config, route, *on),
            Self::SetCertificate { path, given } => certificate::set(config, path, given),
        }
    }
}

impl LiveEdit {
    /// The index that the route has which the edit adds to `config`; `None` if it adds none.
    #[must_use]
    pub fn added_route_at(&self, config: &Config) -> Option<usize> {
        let Self::AddRoute { before, .. } = self else { return None };
        match before {
            None => Some(config.routes.len()),
            Some(before) => route_names(config).iter().position(|name| name == before),
        }
    }

    /// The addresses of servers that the edit adds; empty if its text is invalid, which `apply` reports.
    #[must_use]
    pub fn added_addresses(&self) -> Vec<ServerAddress> {
        match self {
            Self::AddServer { server, .. } => vec![server.address.clone()],
            Self::SetAddress { address, .. } => vec![address.clone()],
            Self::AddPool { pool, text } => {
                let added = command_table::read_pool(pool, text, "").map(|pool| pool.servers);
                added.unwrap_or_default().into_iter().map(|server| server.address).collect()
            }
            Self::RemoveServer { .. }
            | Self::SetLimit { .. }
            | Self::RemovePool { .. }
            | Self::AddRoute { .. }
            | Self::RemoveRoute { .. }
            | Self::SwitchListener { .. }
            | Self::SwitchRoute { .. }
            | Self::SetCertificate { .. } => Vec::new(),
        }
    }
}

/// As the command that makes the edit; of a certificate without its lines.
impl core::fmt::Display for LiveEdit {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::AddServer { pool, server } => {
                write!(f, "add server {pool}/{}", server_key(server))?;
                if server.weight != 1 {
                    write!(f, " weight {}", server.weight)?;
                }
                if let Some(limit) = server.connections_max {
                    write!(f, " connections-max {limit}")?;
                }
                f.write_str(if server.backup { " backup" } else { "" })
            }
            Self::RemoveServer { pool, server } => write!(f, "del server {pool}/{server}"),
            Self::SetAddress { pool, server, address } => {
                write!(f, "set server {pool}/{server} address {}", key_of(address))
            }
            Self::SetLimit { pool, server, limit: Some(limit) } => {
                write!(f, "set server {pool}/{server} connections-max {limit}")
            }
            Self::SetLimit { pool, server, limit: None } => {
                write!(f, "set server {pool}/{server} connections-max unlimited")
            }
            Self::AddPool { pool, text } => write!(f, "add pool {pool} {text}"),
            Self::RemovePool { pool } => write!(f, "del pool {pool}"),
            Self::AddRoute { text, before: None } => write!(f, "add route {text}"),
            Self::AddRoute { text, before: Some(before) } => {
                write!(f, "add route {text} before {before}")
            }
            Self::RemoveRoute { route } => write!(f, "del route {route}"),
            Self::SwitchListener { listener, on: true } => write!(f, "enable listener {listener}"),
            Self::SwitchListener { listener, on: false } => {
                write!(f, "disable listener {listener}")
            }
            Self::SwitchRoute { route, on: true } => write!(f, "enable route {route}"),
            Self::SwitchRoute { route, on: false } => write!(f, "disable route {route}"),
            Self::SetCertificate { path, given } => {
                write!(f, "set tls cert {path} << ({})", given.summary)
            }
        }
    }
}

/// The edits that turn `file` into `edited`, which was made from it by edits. No pool is without servers in between, and none
/// that is used is removed.
#[must_use]
pub fn differences(file: &Config, edited: &Config) -> Vec<LiveEdit> {
    let mut edits = Vec::new();
    route::compare_removed(file, edited, &mut edits);
    pool::compare(file, edited, &mut edits);
    for (before, after) in file.listeners.iter().zip(&edited.listeners) {
        if before.is_off != after.is_off {
            let listener = after.name.clone();
            edits.push(LiveEdit::SwitchListener { listener, on: !after.is_off });
        }
    }
    route::compare(file, edited, &mut edits);
    certificate::compare(edited, &mut edits);
    edits
}

/// Which of the `count` parts of a file are still there.
fn kept<T>(origins: &[Origin<T>], count: usize) -> Vec<bool> {
    let mut kept = vec![false; count];
    for origin in origins {
        match origin {
            Origin::File(of) => kept.get_mut(*of).into_iter().for_each(|is_kept| *is_kept = true),
            Origin::Command(_) => {}
        }
    }
    kept
}

fn compare_servers(
    (name, before, after): (&str, &[Upstream], &[Upstream]),
    edits: &mut Vec<LiveEdit>,
) {
    let pool = || name.to_owned();
    let mut earlier: BTreeMap<String, &Upstream> =
        before.iter().map(|server| (server_key(server), server)).collect();
    let (mut added, mut replaced) = (Vec::new(), Vec::new());
    for server in after {
        let key = server_key(server);
        let edit = LiveEdit::AddServer { pool: pool(), server: server.clone() };
        match earlier.remove(&key) {
            None => added.push(edit),
            Some(known) if (known.weight, known.backup) != (server.weight, server.backup) => {
                replaced.push(LiveEdit::RemoveServer { pool: pool(), server: key });
                replaced.push(edit);
            }
            Some(known) if known.connections_max != server.connections_max => {
                let limit = server.connections_max;
                edits.push(LiveEdit::SetLimit { pool: pool(), server: key, limit });
            }
            Some(_) => {}
        }
    }
    edits.append(&mut added);
    edits.append(&mut replaced);
    let removed = earlier.into_keys();
    edits.extend(removed.map(|server| LiveEdit::RemoveServer { pool: pool(), server }));
}

/// Reads a server of a command: its address, and options such as `weight 2`.
///
/// # Errors
/// The message says what is wrong, and what is allowed.
pub fn parse_server(address: &str, mut options: &[&str]) -> Result<Upstream, String> {
    let address = parse_address(address)?;
    let mut server = Upstream::at(address);
    loop {
        options = match options {
            [] => return Ok(server),
            ["backup", rest @ ..] => {
                server.backup = true;
                rest
            }
            ["weight", number, rest @ ..] => {
                let (least, most) = range("weight");
                let known = in_range(number, (least, most));
                server.weight =
                    known.and_then(|known| u16::try_from(known).ok()).ok_or_else(|| {
                        format!("`weight` cannot be {number:?}; allowed: {least} to {most}")
                    })?;
                rest
            }
            [LIMIT | LIMIT_OF_HAPROXY, number, rest @ ..] => {
                server.connections_max = parse_limit(number)?;
                rest
            }
            [word, ..] => {
                return Err(format!(
                    "a server cannot have {word:?}; allowed: weight N, connections-max N, backup"
                ));
            }
        };
    }
}

/// The setting for the limit of a server.
pub const LIMIT: &str = "connections-max";
/// HAProxy's word for it.
pub const LIMIT_OF_HAPROXY: &str = "maxconn";

/// Reads the limit of a server.
///
/// # Errors
/// The message says what is allowed.
pub fn parse_limit(text: &str) -> Result<Option<u32>, String> {
    if text == "unlimited" {
        return Ok(None);
    }
    let (least, most) = range(LIMIT);
    let known = in_range(text, (least, most)).and_then(|known| u32::try_from(known).ok());
    known.map(Some).ok_or_else(|| {
        format!("`connections-max` cannot be {text:?}; allowed: {least} to {most}, or unlimited")
    })
}

/// Reads the address of a server.
///
/// # Errors
/// The message says what is wrong, and how to write it.
pub fn parse_address(text: &str) -> Result<ServerAddress, String> {
    let address = pattern::parse_server(text)
        .map_err(|why| format!("the address cannot be {text:?}: {}; {}", why.what, why.help))?;
    match &address {
        // In the file, such a path starts from the folder of the file.
        ServerAddress::Unix(path) if !path.starts_with('/') => {
            Err(format!("the address cannot be {text:?}: the path must begin with /"))
        }
        ServerAddress::Unix(_)
        | ServerAddress::Ip(_)
        | ServerAddress::Name(..)
        | ServerAddress::Slot(_) => Ok(address),
    }
}

/// The range of a setting of servers.
fn range(name: &str) -> (u64, u64) {
    fn of(shape: &Shape) -> Option<(u64, u64)> {
        match shape {
            Shape::Number(least, most) => Some((*least, *most)),
            Shape::OneOf(shapes) => shapes.iter().find_map(of),
            Shape::Boolean
            | Shape::True
            | Shape::Text(_)
            | Shape::Word(_)
            | Shape::NoNumber(_)
            | Shape::Name(_)
            | Shape::Duration(..)
            | Shape::Size(..)
            | Shape::List(_)
            | Shape::Fields(_)
            | Shape::Table(_)
            | Shape::Rows(_)
            | Shape::Named(_) => None,
        }
    }
    UPSTREAM.key(name).and_then(|key| of(&key.shape)).unwrap_or_default()
}

fn in_range(text: &str, (least, most): (u64, u64)) -> Option<u64> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|number| is_number && (least..=most).contains(number))
}

fn find_pool<'c>(config: &'c mut Config, name: &str) -> Result<&'c mut Pool, String> {
    match config.pools.iter().position(|pool| pool.name == name) {
        Some(at) => Ok(&mut config.pools[at]),
        None => {
            let known = config.pools.iter().map(|pool| pool.name.clone());
            Err(format!("no pool {name:?}; the pools are: {}", listed(known)))
        }
    }
}

fn find_server(pool: &Pool, key: &str) -> Result<usize, String> {
    pool.servers.iter().position(|server| server_key(server) == key).ok_or_else(|| {
        let known = pool.servers.iter().map(server_key);
        format!("no server {key:?} in pool {:?}; the servers are: {}", pool.name, listed(known))
    })
}

/// The first names of a list.
fn listed(names: impl Iterator<Item = String>) -> String {
    let mut names: Vec<String> = names.take(LISTED_MAX + 1).collect();
    if names.len() > LISTED_MAX {
        names[LISTED_MAX] = "...".to_owned();
    }
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

fn key_of(address: &ServerAddress) -> String {
    address.to_string()
}

/// Refuses an address that a server of the pool has, or that the pool cannot use.
fn check_address(pool: &Pool, address: &ServerAddress) -> Result<(), String> {
    if pool.servers.iter().any(|server| server.address == *address) {
        return Err(format!("server {}/{} exists already", pool.name, key_of(address)));
    }
    match matches!(address, ServerAddress::Unix(_)) && pool.agent.is_some() {
        true => Err(format!(
            "pool {:?} has an `agent`, which listens on a port of its server's address; a server at a unix socket has no port",
            pool.name
        )),
        false => Ok(()),
    }
}

/// Refuses to edit a slot of a template.
fn check_fixed(pool: &Pool, at: usize) -> Result<(), String> {
    match &pool.servers[at].address {
        ServerAddress::Slot(slot) => Err(format!(
            "server {}/{} is a slot for an address of {}; help: `set server` takes it out of service",
            pool.name, pool.servers[at].address, slot.source
        )),
        ServerAddress::Ip(_) | ServerAddress::Name(..) | ServerAddress::Unix(_) => Ok(()),
    }
}

fn add_server(pool: &mut Pool, server: &Upstream) -> Result<bool, String> {
    check_address(pool, &server.address)?;
    pool.servers.push(server.clone());
    Ok(true)
}

fn remove_server(pool: &mut Pool, key: &str) -> Result<bool, String> {
    let at = find_server(pool, key)?;
    check_fixed(pool, at)?;
    let mut others = pool.servers.iter().enumerate().filter(|(index, _)| *index != at);
    if !others.any(|(_, server)| server.weight > 0) {
        return Err(format!(
            "server {}/{key} is the only one of its pool with a weight above 0; help: add another server first, or use disable \
             server",
            pool.name
        ));
    }
    pool.servers.remove(at);
    Ok(true)
}

fn set_address(pool: &mut Pool, key: &str, address: &ServerAddress) -> Result<bool, String> {
    let at = find_server(pool, key)?;
    if pool.servers[at].address == *address {
        return Ok(false);
    }
    check_fixed(pool, at)?;
    check_address(pool, address)?;
    pool.servers[at].address = address.clone();
    Ok(true)
}

/// The listener with this name or address.
fn find_listener(listeners: &[Listener], name: &str) -> Option<usize> {
    let by_name = listeners.iter().position(|listener| listener.name == name);
    by_name.or_else(|| listeners.iter().position(|listener| bind_key(&listener.bind) == name))
}

fn switch_listener(config: &mut Config, name: &str, on: bool) -> Result<bool, String> {
    let listeners = &mut config.listeners;
    let Some(at) = find_listener(listeners, name) else {
        let known = listeners.iter().map(|listener| listener.name.clone());
        return Err(format!("no listener {name:?}; the listeners are: {}", listed(known)));
    };
    if listeners[at].is_off != on {
        return Ok(false);
    }
    if !on {
        check_switch(listeners, at)?;
    }
    listeners[at].is_off = !on;
    Ok(true)
}

/// Refuses to switch off a listener that could not be switched on again, and the only one.
fn check_switch(listeners: &[Listener], at: usize) -> Result<(), String> {
    let name = &listeners[at].name;
    if let Bind::Unix(path) = &listeners[at].bind {
        return Err(format!(
            "listener {name:?} cannot be disabled: unix sockets are opened only at start, so unix:{path} could not be enabled again"
        ));
    }
    let mut others = listeners.iter().enumerate().filter(|(index, _)| *index != at);
    if others.all(|(_, listener)| listener.is_off) {
        return Err(format!(
            "listener {name:?} is the only one that is enabled; help: to stop the process, use shutdown"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod parts_tests;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse;

    const FILE: &str = "[[listener]]\nname = \"web\"\nbind = \"127.0.0.1:80\"\n\
        [[listener]]\nbind = \"127.0.0.1:81\"\n[[listener]]\nname = \"local\"\nbind = \"unix:/run/a\"\n\
        [[route]]\nproxy = \"p\"\n[[route]]\npath = \"/q/*\"\nproxy = \"q\"\n\
        [pool.p]\nservers = [\"10.0.0.1:1\", { address = \"10.0.0.2:1\", weight = 0 }]\n\
        [pool.q]\nservers = [\"app.internal:1\"]\nagent = { port = 9 }\n";

    /// Files that no edit can read.
    pub(super) fn no_files() -> EditFiles<'static> {
        EditFiles {
            folder: "/etc",
            read: &|path| Err(format!("no {path} in a test")),
            maps_naming: &|_| Vec::new(),
        }
    }

    fn file() -> Config {
        parse(FILE, "the test").expect("it is valid")
    }

    fn add(pool: &str, address: &str, options: &[&str]) -> LiveEdit {
        let server = parse_server(address, options).expect("it is a server");
        LiveEdit::AddServer { pool: pool.to_owned(), server }
    }

    fn remove(pool: &str, server: &str) -> LiveEdit {
        LiveEdit::RemoveServer { pool: pool.to_owned(), server: server.to_owned() }
    }

    fn set_address(pool: &str, server: &str, address: &str) -> LiveEdit {
        let address = parse_address(address).expect("it is an address");
        LiveEdit::SetAddress { pool: pool.to_owned(), server: server.to_owned(), address }
    }

    fn set_limit(server: &str, limit: &str) -> LiveEdit {
        let limit = parse_limit(limit).expect("it is a limit");
        LiveEdit::SetLimit { pool: "p".to_owned(), server: server.to_owned(), limit }
    }

    fn switch(listener: &str, on: bool) -> LiveEdit {
        LiveEdit::SwitchListener { listener: listener.to_owned(), on }
    }

    fn switch_route(route: &str, on: bool) -> LiveEdit {
        LiveEdit::SwitchRoute { route: route.to_owned(), on }
    }

    /// The commands that the differences of the edited file consist of.
    fn differences_after(edits: &[LiveEdit]) -> Vec<String> {
        let (file, mut edited) = (file(), file());
        for edit in edits {
            assert_eq!(edit.apply(&mut edited, &no_files()), Ok(true), "{edit}");
        }
        let differences = differences(&file, &edited);
        let mut again = file;
        for edit in &differences {
            assert_eq!(edit.apply(&mut again, &no_files()), Ok(true), "{edit}");
        }
        let sorted = |config: &Config| {
            let mut all: Vec<String> = config
                .pools
                .iter()
                .flat_map(|pool| &pool.servers)
                .map(|s| format!("{s:?}"))
                .collect();
            all.sort();
            (all, config.listeners.clone(), config.routes.clone())
        };
        assert_eq!(sorted(&again), sorted(&edited));
        differences.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn differences_are_the_commands_that_repeat_the_edits() {
        let none: [String; 0] = [];
        assert_eq!(differences_after(&[]), none);
        assert_eq!(
            differences_after(&[
                add("p", "[::1]:3", &["weight", "2", "maxconn", "7", "backup"]),
                set_limit("10.0.0.1:1", "5"),
                switch("web", false),
                switch_route("/q/*", false),
            ]),
            [
                "set server p/10.0.0.1:1 connections-max 5",
                "add server p/[::1]:3 weight 2 connections-max 7 backup",
                "disable listener web",
                "disable route /q/*",
            ]
        );
        assert_eq!(
            differences_after(&[set_address("q", "app.internal:1", "10.0.0.9:1")]),
            ["add server q/10.0.0.9:1", "del server q/app.internal:1"]
        );
        let other = [
            add("p", "10.0.0.3:1", &[]),
            remove("p", "10.0.0.1:1"),
            add("p", "10.0.0.1:1", &["weight", "3"]),
        ];
        assert_eq!(
            differences_after(&other),
            [
                "add server p/10.0.0.3:1",
                "del server p/10.0.0.1:1",
                "add server p/10.0.0.1:1 weight 3"
            ]
        );
    }

    #[test]
    fn edits_that_are_undone_leave_no_difference() {
        let none: [String; 0] = [];
        assert_eq!(
            differences_after(&[add("p", "10.0.0.3:1", &[]), remove("p", "10.0.0.3:1")]),
            none
        );
        assert_eq!(
            differences_after(&[switch("127.0.0.1:81", false), switch("127.0.0.1:81", true)]),
            none
        );
        assert_eq!(
            differences_after(&[
                set_limit("10.0.0.1:1", "5"),
                set_limit("10.0.0.1:1", "unlimited")
            ]),
            none
        );
    }

    #[test]
    fn edit_without_effect_is_none() {
        let mut config = file();
        for edit in [
            set_limit("10.0.0.1:1", "unlimited"),
            set_address("p", "10.0.0.1:1", "10.0.0.1:1"),
            switch("web", true),
            switch_route("*", true),
        ] {
            assert_eq!(edit.apply(&mut config, &no_files()), Ok(false), "{edit}");
        }
        assert_eq!(config.pools, file().pools);
    }

    #[test]
    fn refusals_name_what_exists_and_change_nothing() {
        let mut config = file();
        assert_eq!(switch("web", false).apply(&mut config, &no_files()), Ok(true));
        let before = config.clone();
        for (edit, expected) in [
            (add("x", "10.0.0.3:1", &[]), "no pool \"x\"; the pools are: p, q"),
            (add("p", "10.0.0.1:1", &[]), "server p/10.0.0.1:1 exists already"),
            (add("q", "unix:/run/b", &[]), "has an `agent`"),
            (remove("p", "10.0.0.3:1"), "the servers are: 10.0.0.1:1, 10.0.0.2:1"),
            (remove("p", "10.0.0.1:1"), "the only one of its pool with a weight above 0"),
            (remove("q", "app.internal:1"), "add another server first"),
            (set_address("p", "10.0.0.1:1", "10.0.0.2:1"), "exists already"),
            (set_address("q", "app.internal:1", "unix:/run/b"), "has an `agent`"),
            (set_limit("10.0.0.3:1", "5"), "no server \"10.0.0.3:1\" in pool \"p\""),
            (switch_route("/x", false), "no route \"/x\"; the routes are: *, /q/*"),
            (switch("x", false), "the listeners are: web, 127.0.0.1:81, local"),
            (switch("local", false), "could not be enabled again"),
        ] {
            let refusal = edit.apply(&mut config, &no_files()).expect_err("it is refused");
            assert!(refusal.contains(expected), "{edit}: {refusal}");
            assert_eq!(config, before, "{edit}");
        }
        let mut one = file();
        one.listeners.truncate(1);
        let refusal =
            switch("web", false).apply(&mut one, &no_files()).expect_err("it is the only one");
        assert!(refusal.contains("the only one that is enabled"), "{refusal}");
    }

    #[test]
    fn texts_outside_of_the_range_of_a_setting_are_refused() {
        for (address, options, expected) in [
            ("10.0.0.1", &[][..], "the port is missing"),
            ("http://a/", &[], "not a URL"),
            ("unix:run/a", &[], "must begin with /"),
            ("10.0.0.1:1", &["weight", "1001"], "allowed: 0 to 1000"),
            ("10.0.0.1:1", &["weight", "+1"], "allowed: 0 to 1000"),
            ("10.0.0.1:1", &["weight"], "allowed: weight N, connections-max N, backup"),
            ("10.0.0.1:1", &["connections-max", "0"], "allowed: 1 to 1000000000, or unlimited"),
            ("10.0.0.1:1", &["check"], "allowed: weight N"),
        ] {
            let refusal = parse_server(address, options).expect_err("it is refused");
            assert!(refusal.contains(expected), "{address} {options:?}: {refusal}");
        }
    }
}
