//! The commands of the admin interface.
//! In: words. Out: text, or an error that names the allowed values.
//! To add a command, add it to `COMMANDS`, with a line of help and an example.

use std::sync::PoisonError;

use rustix::process::{Signal, getpid, kill_process};
use tidegate_config::model::{ServerAddress, SlotSource};
use tidegate_gate::access::Names;
use tidegate_gate::agent::{Operation, WEIGHT_MAX, part_of_weight};

use super::pending::Pending;
use super::profile::{self, Plan};
use super::rows::listed;
use super::wait::Wait;
use super::{
    Operations, activity, certificates, console, edits, errors, events, info, maintenance, map,
    parts, resolvers, sess, set, stat, table, wait,
};
use crate::health::{ServerState, View};

/// The outcome of a command.
#[derive(Debug)]
pub(super) enum Reply {
    /// The command has changed nothing; this is its text.
    Shown(String),
    /// The command has changed something; the text may be empty.
    Changed(String),
    /// Code has run, and may have changed something even if it has failed: its values, or what has failed.
    Ran(Result<String, String>),
    /// A profile is to be taken as long as the client waits for it.
    Profile(Plan),
    /// The client waits for a time or for a server.
    Wait(Wait),
    /// The client waits for the thread that reloads.
    Pending(Pending),
}

pub(super) type Outcome = Result<Reply, String>;

/// A command.
struct Command {
    /// The words that select the command.
    words: &'static [&'static str],
    /// The arguments that may follow the words.
    arguments: &'static str,
    /// The description of the command.
    about: &'static str,
    /// An example.
    example: &'static str,
    /// Runs the command with these arguments.
    run: fn(&[&str], &Operations) -> Outcome,
}

const COMMANDS: &[Command] = &[
    Command {
        words: &["show", "info"],
        arguments: "[json]",
        about: "the process: version, uptime, connections, requests",
        example: "show info",
        run: |arguments, operations| match arguments {
            [] => Ok(Reply::Shown(info::text(operations))),
            ["json"] => Ok(Reply::Shown(info::json(operations) + "\n")),
            _ => Err(allowed("show info", arguments, &["", "json"])),
        },
    },
    Command {
        words: &["show", "stat"],
        arguments: "[POOL|LISTENER|NUMBER TYPES NUMBER] [json]",
        about: "listeners, pools and servers, with HAProxy's columns; filtered as by HAProxy: by the name or the column `iid` of a pool or \
                listener, by a sum of types (1 listeners, 2 pools, 4 servers), by the column `sid` of a server; -1 is all",
        example: "show stat -1 4 -1",
        run: stat::show,
    },
    Command {
        words: &["show", "sess"],
        arguments: "[json] [all] [limit NUMBER] [listener NAME] [route NAME] [server POOL[/SERVER]] [client ADDRESS] \
                    [older DURATION]",
        about: "the connections of clients with a request in progress, or all; what each waits for, and its id",
        example: "show sess server api older 10s",
        run: sess::list,
    },
    Command {
        words: &["show", "conn"],
        arguments: "ID [json]",
        about: "the details of the connection with this id, which `show sess` lists",
        example: "show conn 0.12.5",
        run: sess::show,
    },
    Command {
        words: &["kill", "conn"],
        arguments: "ID",
        about: "resets the connection or the HTTP/2 stream with this id, which `show sess` lists",
        example: "kill conn 0.12.5",
        run: sess::kill,
    },
    Command {
        words: &["shutdown", "sessions", "server"],
        arguments: "POOL/SERVER",
        about: "ends the exchanges with a server: with a 503 response, or with a reset if the response has begun; new exchanges may follow",
        example: "shutdown sessions server api/10.0.0.1:8000",
        run: sess::end_of_server,
    },
    Command {
        words: &["show", "errors"],
        arguments: "[json]",
        about: "the last malformed messages of clients and of servers, with the reason and the offending byte",
        example: "show errors",
        run: errors::show,
    },
    Command {
        words: &["show", "events"],
        arguments: "[NUMBER] [reload|server|ejection|admin|process] [json]",
        about: "recent changes: reloads, servers that went up or down, ejections, commands of operators",
        example: "show events 20 server",
        run: events::show,
    },
    Command {
        words: &["show", "pools"],
        arguments: "[json]",
        about: "the servers of all pools: state, weight, requests in progress and connections of all workers",
        example: "show pools",
        run: parts::pools,
    },
    Command {
        words: &["show", "tls", "cert"],
        arguments: "",
        about: "the paths of the certificates that `set tls cert` can replace, and of those that wait for `commit tls cert`",
        example: "show tls cert",
        run: certificates::show,
    },
    Command {
        words: &["show", "tls"],
        arguments: "[json]",
        about: "the certificates of listeners with names and expiry, tickets, and the counts of handshakes",
        example: "show tls",
        run: parts::tls,
    },
    Command {
        words: &["show", "resolvers"],
        arguments: "[default] [json]",
        about: "the DNS servers of [resolver], with HAProxy's counts of queries; with json, the rows of `show names`",
        example: "show resolvers",
        run: resolvers::show,
    },
    Command {
        words: &["show", "names"],
        arguments: "[json]",
        about: "the names of servers: addresses, when they were resolved, lookups, changes, failures",
        example: "show names",
        run: parts::names,
    },
    Command {
        words: &["show", "push"],
        arguments: "[json]",
        about: "the push hubs: channels, history, subscriptions, users",
        example: "show push",
        run: parts::push,
    },
    Command {
        words: &["show", "lua"],
        arguments: "[json]",
        about: "the Lua applications in each worker: memory, clients, timers, failures, restarts",
        example: "show lua",
        run: parts::lua,
    },
    Command {
        words: &["lua", "eval"],
        arguments: "APPLICATION [worker NUMBER] CODE",
        about: "runs percent-encoded code in a Lua application, as `tidegate lua repl` does, and shows its values",
        example: "lua eval chat tide.now()",
        run: console::evaluate,
    },
    Command {
        words: &["show", "servers", "state"],
        arguments: "[POOL]",
        about: "the state of each server, with HAProxy's columns",
        example: "show servers state api",
        run: show_servers_state,
    },
    Command {
        words: &["show", "config"],
        arguments: "",
        about: "the parts of the configuration with a fingerprint of each, for `tidegate check --against`",
        example: "show config",
        run: |arguments, operations| match arguments {
            [] => {
                let inventory = operations.inventory.lock().unwrap_or_else(PoisonError::into_inner);
                Ok(Reply::Shown(inventory.text()))
            }
            _ => Err(allowed("show config", arguments, &[""])),
        },
    },
    Command {
        words: &["show", "activity"],
        arguments: "",
        about: "each counter: the sum, and the value of each worker",
        example: "show activity",
        run: activity::show_activity,
    },
    Command {
        words: &["show", "threads"],
        arguments: "",
        about: "the threads of the workers: their CPU time, requests and connections",
        example: "show threads",
        run: activity::show_threads,
    },
    Command {
        words: &["show", "profiling"],
        arguments: "[json]",
        about: "the calls, CPU time and queueing delay of each kind of handler: totals, averages and percentiles",
        example: "show profiling",
        run: activity::show_profiling,
    },
    Command {
        words: &["set", "server"],
        arguments: "POOL/SERVER state ready|drain|maint, weight N|N%, agent up|down, address HOST:PORT, or connections-max N|unlimited",
        about: "stops or resumes sending requests to a server, or changes its weight, address or limit; requests in progress complete",
        example: "set server api/10.0.0.1:8000 state drain",
        run: set_server,
    },
    Command {
        words: &["set", "maxconn", "server"],
        arguments: "POOL/SERVER N",
        about: "the same as `set server` with `connections-max`",
        example: "set maxconn server api/10.0.0.1:8000 200",
        run: edits::set_limit,
    },
    Command {
        words: &["add", "server"],
        arguments: "POOL/ADDRESS [weight N] [connections-max N] [backup]",
        about: "adds a server to a pool, until the next reload of the file; it is ready at once",
        example: "add server api/10.0.0.9:8000 weight 2",
        run: edits::add_server,
    },
    Command {
        words: &["del", "server"],
        arguments: "POOL/SERVER",
        about: "removes a server from its pool, until the next reload of the file; requests in progress complete",
        example: "del server api/10.0.0.9:8000",
        run: edits::remove_server,
    },
    Command {
        words: &["disable", "listener"],
        arguments: "NAME|ADDRESS",
        about: "closes a listener, as a reload of a file without it does, until `enable listener` or the next reload of the file",
        example: "disable listener web",
        run: |arguments, _| edits::switch_listener("disable", arguments, false),
    },
    Command {
        words: &["enable", "listener"],
        arguments: "NAME|ADDRESS",
        about: "opens a listener that `disable listener` closed",
        example: "enable listener web",
        run: |arguments, _| edits::switch_listener("enable", arguments, true),
    },
    Command {
        words: &["add", "pool"],
        arguments: "NAME { SETTINGS }",
        about: "adds a pool, until the next reload of the file; the table is TOML, as in [pool.NAME]",
        example: "add pool api { servers = [\"10.0.0.9:8000\"], queue-max = 100 }",
        run: |arguments, _| edits::add_pool(arguments),
    },
    Command {
        words: &["del", "pool"],
        arguments: "NAME",
        about: "removes a pool that no route, listener or application uses, until the next reload of the file",
        example: "del pool api",
        run: |arguments, _| edits::remove_pool(arguments),
    },
    Command {
        words: &["add", "route"],
        arguments: "{ SETTINGS } [before NAME]",
        about: "adds a route after all others or before one of them, until the next reload of the file, and prints its name; the table is \
                TOML, as in [[route]]",
        example: "add route { host = \"a.example\", proxy = \"api\" } before *",
        run: |arguments, _| edits::add_route(arguments),
    },
    Command {
        words: &["del", "route"],
        arguments: "NAME",
        about: "removes a route, until the next reload of the file; requests in progress complete",
        example: "del route a.example",
        run: |arguments, _| edits::remove_route(arguments),
    },
    Command {
        words: &["disable", "route"],
        arguments: "NAME",
        about: "requests no longer match a route, so that the next route that matches takes them, until `enable route` or the next reload \
                of the file",
        example: "disable route a.example/api/*",
        run: |arguments, _| edits::switch_route("disable", arguments, false),
    },
    Command {
        words: &["enable", "route"],
        arguments: "NAME",
        about: "requests match a route again that `disable route` switched off",
        example: "enable route a.example/api/*",
        run: |arguments, _| edits::switch_route("enable", arguments, true),
    },
    Command {
        words: &["set", "tls", "cert"],
        arguments: "PATH|LISTENER <<",
        about: "takes a new certificate with its key: lines of PEM up to an empty line; `commit tls cert` puts it in force",
        example: "set tls cert /etc/tidegate/site.pem <<",
        run: certificates::set_without_lines,
    },
    Command {
        words: &["commit", "tls", "cert"],
        arguments: "PATH|LISTENER",
        about: "uses the certificate of `set tls cert` in place of that in the file, until the next reload of the configuration",
        example: "commit tls cert /etc/tidegate/site.pem",
        run: certificates::commit,
    },
    Command {
        words: &["abort", "tls", "cert"],
        arguments: "PATH|LISTENER",
        about: "drops the certificate of `set tls cert`",
        example: "abort tls cert /etc/tidegate/site.pem",
        run: certificates::abort,
    },
    Command {
        words: &["show", "edits"],
        arguments: "",
        about: "the edits of servers, listeners and certificates since the file was read, as commands that repeat them",
        example: "show edits",
        run: edits::show,
    },
    Command {
        words: &["enable", "server"],
        arguments: "POOL/SERVER",
        about: "the same as `set server` with `state ready`",
        example: "enable server api/10.0.0.1:8000",
        run: |arguments, operations| switch_server("enable", arguments, "ready", operations),
    },
    Command {
        words: &["disable", "server"],
        arguments: "POOL/SERVER",
        about: "the same as `set server` with `state maint`",
        example: "disable server api/10.0.0.1:8000",
        run: |arguments, operations| switch_server("disable", arguments, "maint", operations),
    },
    Command {
        words: &["set", "weight"],
        arguments: "POOL/SERVER N|N%",
        about: "the same as `set server` with `weight`",
        example: "set weight api/10.0.0.1:8000 50%",
        run: |arguments, operations| match arguments {
            [place, weight] => set_server(&[place, "weight", weight], operations),
            _ => Err("usage: set weight POOL/SERVER N|N%".to_owned()),
        },
    },
    Command {
        words: &["wait"],
        arguments: "DURATION [server POOL/SERVER up|down|unused]",
        about: "waits for the duration, or until the server takes requests (up), takes no requests (down) or has no request in progress \
                (unused); fails if the duration ends first",
        example: "wait 30s server api/10.0.0.1:8000 unused",
        run: wait::plan,
    },
    Command {
        words: &["set", "log", "level"],
        arguments: "error|warning|info",
        about: "logs only lines of this level and of more severe levels, until the process exits; does not affect `show events`",
        example: "set log level warning",
        run: set_log_level,
    },
    Command {
        words: &["show", "map"],
        arguments: "[NAME [KEY]]",
        about: "lists the maps, or shows the entries of a map or the value of a key",
        example: "show map hosts",
        run: map::show,
    },
    Command {
        words: &["get", "map"],
        arguments: "NAME TEXT",
        about: "looks up a text in a map, as for a request",
        example: "get map hosts a.example",
        run: map::get,
    },
    Command {
        words: &["set", "map"],
        arguments: "NAME KEY VALUE",
        about: "sets the value of a key of a map; adds the key if the map does not have it",
        example: "set map hosts a.example app",
        run: map::set,
    },
    Command {
        words: &["del", "map"],
        arguments: "NAME KEY",
        about: "removes a key of a map",
        example: "del map hosts a.example",
        run: map::remove,
    },
    Command {
        words: &["clear", "map"],
        arguments: "NAME",
        about: "removes all keys of a map",
        example: "clear map hosts",
        run: map::clear,
    },
    Command {
        words: &["prepare", "map"],
        arguments: "NAME",
        about: "begins a new version of a map; `commit map` replaces all entries of the map with it",
        example: "prepare map hosts",
        run: map::prepare,
    },
    Command {
        words: &["add", "map"],
        arguments: "@VERSION NAME KEY VALUE",
        about: "adds an entry to a version that `prepare map` began",
        example: "add map @1 hosts a.example app",
        run: map::add,
    },
    Command {
        words: &["commit", "map"],
        arguments: "@VERSION NAME",
        about: "replaces the entries of the map with those of the version",
        example: "commit map @1 hosts",
        run: map::commit,
    },
    Command {
        words: &["show", "table"],
        arguments: "[NAME [LIMIT | key KEY]]",
        about: "the tables, the keys of a table with the largest counts, or the counts of a key",
        example: "show table abuse 10",
        run: table::show,
    },
    Command {
        words: &["clear", "table"],
        arguments: "NAME [KEY]",
        about: "sets the counts of a table, or of one key, to zero; requests in progress stay counted",
        example: "clear table abuse 192.0.2.1",
        run: table::clear,
    },
    Command {
        words: &["set", "table"],
        arguments: "NAME KEY mark NUMBER",
        about: "sets the mark of a key, which conditions of routes can test; 0 removes it",
        example: "set table abuse 192.0.2.1 mark 1",
        run: table::set,
    },
    Command {
        words: &["show", "maintenance"],
        arguments: "",
        about: "the names of `maintenance` in routes: what a command has set, the number of routes, and how many are closed",
        example: "show maintenance",
        run: maintenance::show,
    },
    Command {
        words: &["set", "maintenance"],
        arguments: "NAME on|off|default",
        about: "closes or opens the routes whose `maintenance` has this name; default: as the configuration says",
        example: "set maintenance shop on",
        run: maintenance::set,
    },
    Command {
        words: &["show", "set"],
        arguments: "[NAME]",
        about: "the sets of addresses, or the ranges of a set",
        example: "show set office",
        run: set::show,
    },
    Command {
        words: &["get", "set"],
        arguments: "NAME ADDRESS",
        about: "prints the address if it is in the set; fails if it is not",
        example: "get set office 192.0.2.1",
        run: set::get,
    },
    Command {
        words: &["add", "set"],
        arguments: "NAME NETWORK, or @VERSION NAME NETWORK",
        about: "adds the addresses of a range to a set, or to a version that `prepare set` began",
        example: "add set office 192.0.2.0/24",
        run: set::add,
    },
    Command {
        words: &["del", "set"],
        arguments: "NAME NETWORK",
        about: "removes the addresses of a range from a set, even if they were added as part of a larger range",
        example: "del set office 192.0.2.0/24",
        run: set::remove,
    },
    Command {
        words: &["clear", "set"],
        arguments: "NAME",
        about: "removes all addresses of a set",
        example: "clear set office",
        run: set::clear,
    },
    Command {
        words: &["prepare", "set"],
        arguments: "NAME",
        about: "begins a new version of a set; `commit set` replaces all addresses of the set with it",
        example: "prepare set office",
        run: set::prepare,
    },
    Command {
        words: &["commit", "set"],
        arguments: "@VERSION NAME",
        about: "replaces the addresses of the set with those of the version",
        example: "commit set @1 office",
        run: set::commit,
    },
    Command {
        words: &["profile"],
        arguments: "DURATION [worker N] [route NAME] [hertz N] [by perf|timers], or stop",
        about: "samples what the workers execute, as folded stacks; `tidegate ctl profile` draws a flame graph of them",
        example: "profile 10s",
        run: profile::plan,
    },
    Command {
        words: &["reload"],
        arguments: "",
        about: "the same as SIGHUP: reads the configuration and the files that it names again, and waits for the result",
        example: "reload",
        run: reload,
    },
    Command {
        words: &["upgrade"],
        arguments: "",
        about: "the same as SIGUSR2: starts the program again with the same listening sockets, waits until it serves, then stops; \
                if the new process does not serve, the command fails, and this process continues to serve",
        example: "upgrade",
        run: |arguments, _| match arguments {
            [] => Ok(Reply::Pending(Pending::Upgrade)),
            _ => Err(allowed("upgrade", arguments, &[""])),
        },
    },
    Command {
        words: &["shutdown"],
        arguments: "",
        about: "the same as SIGTERM: completes the exchanges in flight, then ends the process",
        example: "shutdown",
        run: |arguments, _| signal("shutdown", arguments, Signal::TERM),
    },
    Command {
        words: &["help"],
        arguments: "",
        about: "lists the commands",
        example: "help",
        run: |_, _| Ok(Reply::Shown(help())),
    },
];

/// Runs the command that `words` begin with.
pub(super) fn run(words: &[&str], operations: &Operations) -> Outcome {
    for command in COMMANDS {
        if let Some(arguments) = words.strip_prefix(command.words) {
            return (command.run)(arguments, operations);
        }
    }
    Err(unknown(words))
}

/// Whether a command changes something, is expensive for the process, or shows requests of clients, which may contain
/// credentials. A client that may only read must not run it.
pub(super) fn needs_all_rights(words: &[&str]) -> bool {
    match words {
        ["show", "errors" | "sess" | "conn", ..] => true,
        ["show" | "get" | "help" | "wait", ..] => false,
        _ => true,
    }
}

/// Whether `words` begin with a command.
pub(super) fn is_known(words: &[&str]) -> bool {
    COMMANDS.iter().any(|command| words.starts_with(command.words))
}

/// The error for words that are not a command.
pub(super) fn unknown(words: &[&str]) -> String {
    format!(
        "unknown command {:?}: no command of the line was executed; the commands are:\n{}",
        words.join(" "),
        help().trim_end()
    )
}

fn help() -> String {
    let mut text = String::new();
    for command in COMMANDS {
        let words = command.words.join(" ");
        let usage = format!("{words} {}", command.arguments);
        text.push_str(&format!("  {}\n      {}\n", usage.trim_end(), command.about));
        if command.example != words {
            text.push_str(&format!("      example: {}\n", command.example));
        }
    }
    text.push_str("  prompt\n      keeps the connection open for further commands\n");
    text.push_str("  set timeout cli TIME\n      sets how long the session waits for its next line: 1s to 24d\n");
    text.push_str("      example: set timeout cli 10m\n");
    text.push_str("  quit\n      closes the connection\n");
    text
}

/// An error: `given` is not one of the allowed arguments.
fn allowed(command: &str, given: &[&str], allowed: &[&str]) -> String {
    let forms: Vec<String> = allowed
        .iter()
        .map(|form| format!("`{}`", format!("{command} {form}").trim_end()))
        .collect();
    format!("`{command}` does not accept {:?}; allowed: {}", given.join(" "), forms.join(", "))
}

/// The line that `show servers state` begins with, after the version of its format.
const STATE_COLUMNS: &str = "# be_id be_name srv_id srv_name srv_addr srv_op_state srv_admin_state srv_uweight \
    srv_iweight srv_time_since_last_change srv_check_status srv_check_result srv_check_health srv_check_state \
    srv_agent_state bk_f_forced_id srv_f_forced_id srv_fqdn srv_port srvrecord srv_use_ssl srv_check_port \
    srv_check_addr srv_agent_addr srv_agent_port";

fn show_servers_state(arguments: &[&str], operations: &Operations) -> Outcome {
    let config = &*operations.config();
    let names = Names::new(config);
    let only = match arguments {
        [] => None,
        [pool] if config.pools.iter().any(|known| known.name == *pool) => Some(*pool),
        _ => {
            let pools: Vec<&str> = config.pools.iter().map(|pool| pool.name.as_str()).collect();
            return Err(format!(
                "no pool {:?}; the pools are: {}",
                arguments.join(" "),
                listed(&pools)
            ));
        }
    };
    let mut text = format!("1\n{STATE_COLUMNS}\n");
    for (at, pool) in config.pools.iter().enumerate() {
        if only.is_some_and(|only| only != pool.name) {
            continue;
        }
        for (server_at, server) in pool.servers.iter().enumerate() {
            let (_, name) = names.server(at, server_at);
            let Some(view) = operations.roster.view(at, server_at) else { continue };
            let source = match &server.address {
                ServerAddress::Slot(slot) => Some(&*slot.source),
                ServerAddress::Ip(_) | ServerAddress::Name(..) | ServerAddress::Unix(_) => None,
            };
            let line = StateLine { pool: (at, &pool.name), server: (server_at, name), source };
            let agent_port = pool.agent.as_ref().map_or(0, |agent| agent.port);
            line.write(&mut text, (server.weight, pool.tls.is_some(), agent_port), &view);
        }
    }
    Ok(Reply::Shown(text))
}

/// The server that a line of `show servers state` describes.
struct StateLine<'a> {
    /// Index and name of the pool.
    pool: (usize, &'a str),
    /// Index and name of the server in the pool.
    server: (usize, &'a str),
    /// The name whose address a slot has.
    source: Option<&'a SlotSource>,
}

impl StateLine<'_> {
    /// Appends the line of the server. The tuple: the weight in the file, whether the pool uses TLS, the port of the agent.
    fn write(
        &self,
        text: &mut String,
        (weight, is_secured, agent_port): (u16, bool, u16),
        view: &View,
    ) {
        // HAProxy's numbers: 2 running, 0 stopped; 1 forced maintenance, 8 forced drain, 32 maintenance without an address.
        let administrative = match view.state_now() {
            ServerState::Ready => 0,
            ServerState::Drain => 8,
            ServerState::Maintenance => 1,
        } + if view.is_unresolved { 32 } else { 0 };
        let runs = !view.is_unresolved
            && view.state_now() != ServerState::Maintenance
            && view.checked.as_ref().is_none_or(|checked| checked.health.is_up())
            && view.agent.as_ref().is_none_or(|agent| agent.state.works());
        let operational = if runs { 2 } else { 0 };
        let since = view.changed.elapsed().as_secs();
        // Check results: 0 unknown, 2 failed, 3 passed; check states: 0 none, 6 configured and enabled.
        let (status, result, score, state) = match &view.checked {
            None => (0, 0, 0, 0),
            Some(checked) => {
                let result = match checked.last {
                    None => 0,
                    Some((outcome, _)) if outcome.is_success() => 3,
                    Some(_) => 2,
                };
                let status = checked.last.map_or(1, |(outcome, _)| status_number(outcome.code()));
                (status, result, checked.health.numbers().0, 6)
            }
        };
        let ((pool_at, pool), (server_at, name)) = (self.pool, self.server);
        let set = view.weight_now(weight);
        // 22: configured and enabled (6), of an agent (16).
        let agent = if view.agent.is_some() { 22 } else { 0 };
        let (host, port) = match view.slot {
            None => {
                let (host, port) = name.rsplit_once(':').unwrap_or((name, "0"));
                (host.to_owned(), port.to_owned())
            }
            Some(None) => ("-".to_owned(), "0".to_owned()),
            Some(Some(address)) => (address.ip().to_string(), address.port().to_string()),
        };
        let (host_name, service) = match self.source {
            None => ("-", "-"),
            Some(SlotSource::Name(name, _)) => (&name[..], "-"),
            Some(SlotSource::Srv(name)) => ("-", &name[..]),
        };
        text.push_str(&format!(
            "{} {pool} {} {name} {host} {operational} {administrative} {set} {weight} {since} {status} {result} \
             {score} {state} {agent} 0 0 {host_name} {port} {service} {} 0 - - {agent_port}\n",
            pool_at + 1,
            server_at + 1,
            u8::from(is_secured),
        ));
    }
}

/// HAProxy's number of a check's result.
fn status_number(code: &str) -> u8 {
    match code {
        "L4OK" => 6,
        "L4TOUT" => 7,
        "L4CON" => 8,
        "L6OK" => 9,
        "L6TOUT" => 10,
        "L6RSP" => 11,
        "L7TOUT" => 12,
        "L7RSP" => 13,
        "L7OK" => 15,
        "L7STS" => 17,
        _ => 0,
    }
}

fn switch_server(
    command: &str,
    arguments: &[&str],
    state: &str,
    operations: &Operations,
) -> Outcome {
    match arguments {
        [place] => set_server(&[place, "state", state], operations),
        _ => Err(format!("usage: {command} server POOL/SERVER")),
    }
}

fn set_log_level(arguments: &[&str], _: &Operations) -> Outcome {
    let [level] = arguments else {
        return Err("usage: set log level error|warning|info".to_owned());
    };
    crate::log::set_level(level)
        .map_err(|known| format!("the level cannot be {level:?}; allowed: {known}"))?;
    Ok(Reply::Changed(String::new()))
}

fn set_server(arguments: &[&str], operations: &Operations) -> Outcome {
    let usage = "usage: set server POOL/SERVER state ready|drain|maint, weight N|N%, agent up|down, address HOST:PORT, or \
                 connections-max N|unlimited";
    if let Some(outcome) = edits::set_server(arguments, operations) {
        return outcome;
    }
    let [place, what @ ("state" | "weight" | "agent"), word] = arguments else {
        return Err(usage.to_owned());
    };
    let set = match *what {
        "state" => {
            let words = ServerState::WORDS;
            let Some((_, state)) = words.iter().find(|(known, _)| known == word) else {
                return Err(format!("`state` cannot be {word:?}; allowed: ready, drain, maint"));
            };
            operations.roster.set_state(place, *state)
        }
        "agent" => {
            let operation = match *word {
                "up" => Operation::Up,
                "down" => Operation::Down,
                _ => return Err(format!("`agent` cannot be {word:?}; allowed: up, down")),
            };
            let set = operations.roster.set_agent(place, operation);
            if set == Ok(false) {
                return Err(format!(
                    "server {place:?} has no agent; help: add `agent` to its pool"
                ));
            }
            set.map(drop)
        }
        _ => {
            let number = word.strip_suffix('%').unwrap_or(word).parse::<u16>().ok();
            let Some(number) = number.filter(|number| *number <= WEIGHT_MAX) else {
                return Err(format!(
                    "`weight` cannot be {word:?}; allowed: 0 to {WEIGHT_MAX}, or a percentage of the weight in the file, such as 50%"
                ));
            };
            let is_part = word.ends_with('%');
            operations.roster.set_weight(place, |configured| match is_part {
                true => part_of_weight(configured, number),
                false => number,
            })
        }
    };
    set.map_err(|known| {
        let list: Vec<String> = known.into_iter().take(20).collect();
        format!("no server {place:?}; the servers are: {}", listed(&list))
    })?;
    Ok(Reply::Changed(String::new()))
}

/// Reloads the configuration. Fails with the reason if it is refused.
fn reload(arguments: &[&str], _: &Operations) -> Outcome {
    match arguments {
        [] => Ok(Reply::Pending(Pending::Reload)),
        _ => Err(allowed("reload", arguments, &[""])),
    }
}

/// Sends this process a signal, which its main thread handles.
fn signal(command: &str, arguments: &[&str], signal: Signal) -> Outcome {
    if !arguments.is_empty() {
        return Err(allowed(command, arguments, &[""]));
    }
    kill_process(getpid(), signal)
        .map_err(|error| format!("the signal cannot be sent: {error}"))?;
    Ok(Reply::Changed(String::new()))
}
