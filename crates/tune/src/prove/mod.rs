//! `tidegate tune prove`: measures the gain of each change on this host.
//! In: arguments. Out: a report with confidence intervals; the host as it was, unless --keep is given.
//! Never: tries a security trade-off that was not named; leaves a change behind when it ends (after a kill,
//! `tune undo` finds the changes in the journal).

pub mod demonstration;
pub mod load;
pub mod trial;
pub mod waterfall;

use crate::action::Action;
use crate::apply::apply;
use crate::check::{Entry, check};
use crate::cli::{WorkloadArgs, print_error, undo_command, unknown_name, write_file};
use crate::cpu_list::{list_text, parse_list};
use crate::environment::{Environment, allowed_cpus};
use crate::finding::State;
use crate::host::{Host, find_tool, run_tool};
use crate::item::{Group, Risk, Scope};
use crate::journal::{Journal, STATE_FOLDER};
use demonstration::Limit;
use load::{Client, Load, Server};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::env;
use std::fs;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use trial::{Bench, Candidate, experiment};
use waterfall::ProofReport;

/// Minimum number of rounds for a meaningful interval.
const ROUNDS_MIN: i64 = 5;
/// The configuration file of the Tidegate server, in the directory of the journal while `prove` runs.
const CONFIG_FILE: &str = "prove.toml";

/// Arguments of `tidegate tune prove`.
#[derive(Debug, clap::Args)]
pub struct ProveArgs {
    /// Items or groups to try [default: every item that costs performance and has an effect under this load]
    #[arg(value_name = "ITEM")]
    items: Vec<String>,
    #[command(flatten)]
    workload: WorkloadArgs,
    /// Also try this kernel setting, for example net.core.busy_poll=50; may be repeated
    #[arg(long, value_name = "NAME=VALUE")]
    sysctl: Vec<String>,
    /// Send the load to a server that is already running (pin it to CPUs yourself and name them with --server-cpus)
    #[arg(long, conflicts_with = "server")]
    url: Option<String>,
    /// Start this server; {port} is replaced by the port [default: tidegate run]
    #[arg(long, value_name = "COMMAND")]
    server: Option<String>,
    /// The tidegate binary to use for `run` and `bench http` [default: this one]
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
    /// Create the load with this command, for example "ssh HOST tidegate bench http {url} --connections
    /// {connections} --duration {seconds}s --json". Items of the network card can only be measured this way
    #[arg(long, value_name = "COMMAND", requires = "url")]
    client: Option<String>,
    /// Path of the URL on a started server
    #[arg(long, default_value = "/json")]
    path: String,
    /// CPUs of the server; their CPU time is measured [default: the first usable CPU]
    #[arg(long, value_name = "LIST")]
    server_cpus: Option<String>,
    /// CPUs of the client [default: the other usable CPUs]
    #[arg(long, value_name = "LIST")]
    client_cpus: Option<String>,
    /// Connections to keep open
    #[arg(long = "held", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..))]
    held: u32,
    /// Pairs of rounds for each change
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(ROUNDS_MIN..1000))]
    rounds: u32,
    /// Seconds per round
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..3600))]
    seconds: u32,
    /// Also try the security trade-off of this item; may be repeated
    #[arg(long, value_name = "ITEM")]
    accept_risk: Vec<String>,
    /// Keep the changes that helped (undo restores the previous values later)
    #[arg(long)]
    keep: bool,
    /// Write the report as one self-contained HTML page
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Write the waterfall chart as an SVG image
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Directory of the journal
    #[arg(long, value_name = "FOLDER", default_value = STATE_FOLDER)]
    state: PathBuf,
}

/// Arguments of one capacity run: the hidden command by which `prove` demonstrates a limit (`demonstration.rs`).
#[derive(Debug, clap::Args)]
pub struct CapacityArgs {
    #[arg(long, value_enum)]
    limit: Limit,
    #[arg(long)]
    value: String,
    #[arg(long)]
    wanted: u32,
}

/// Runs `tune prove`.
///
/// # Errors
/// The output cannot be written, the journal cannot be opened, or the load does not run.
pub fn run(args: &ProveArgs) -> io::Result<u8> {
    if let Some(message) = invalid_argument(args) {
        print_error(&message);
        return Ok(2);
    }
    let host = Host::live();
    let load = match load_of(args, &host) {
        Ok(load) => load,
        Err(message) => {
            print_error(&message);
            return Ok(2);
        }
    };
    let (candidates, not_tried) = match candidates(args, &host) {
        Ok(found) => found,
        Err(message) => {
            print_error(&message);
            return Ok(2);
        }
    };
    // Registered before the first change: from here on, a signal only requests a stop.
    let stop_requested = Arc::new(AtomicBool::new(false));
    for signal in stop_signals(&fs::read_to_string("/proc/self/status").unwrap_or_default()) {
        signal_hook::flag::register(signal, Arc::clone(&stop_requested))?;
    }
    let mut journal = Journal::open(&args.state).map_err(io::Error::other)?;
    if !journal.outstanding().is_empty() {
        print_error(&format!(
            "the journal contains changes that were not undone; help: run `{}` first",
            undo_command(Some(&args.state), None)
        ));
        return Ok(1);
    }
    let demonstrations = demonstration::demonstrate_all(&own_command());
    let method = method_of(args, &load);
    let mut load = load;
    let show_progress = io::stderr().is_terminal();
    let mut bench = Bench {
        host: &host,
        journal: &mut journal,
        measure: &mut load,
        rounds: args.rounds as usize,
        stopped: &|| stop_requested.load(Ordering::Relaxed),
        progress: &mut |line| {
            if show_progress {
                let _ = writeln!(io::stderr().lock(), "... {line}");
            }
        },
    };
    let result = experiment(&mut bench, &candidates);
    let _ = fs::remove_file(args.state.join(CONFIG_FILE));
    let proof = result.map_err(io::Error::other)?;
    let interrupted = proof.interrupted;
    let environment = Environment::of(&host).line();
    let report = ProofReport { environment, method, proof, not_tried, demonstrations };
    let mut out = io::stdout().lock();
    out.write_all(waterfall::text(&report).as_bytes())?;
    if let Some(file) = &args.html {
        write_file(file, &waterfall::html(&report))?;
    }
    if let Some(file) = &args.svg {
        write_file(file, &waterfall::svg(&report.proof))?;
    }
    if interrupted {
        return Ok(1);
    }
    let kept = report.proof.kept();
    if args.keep && kept.is_empty() {
        writeln!(out, "\nNo change helped, so all changes were undone.")?;
    } else if args.keep {
        for candidate in candidates.iter().filter(|one| kept.contains(&one.id.as_str())) {
            apply(&host, &mut journal, &candidate.id, &candidate.actions, &mut |_| false)
                .map_err(io::Error::other)?;
            writeln!(out, "kept: {}", candidate.id)?;
        }
        let command = undo_command(Some(&args.state), None);
        writeln!(out, "`{command}` restores the previous values.")?;
    } else {
        writeln!(
            out,
            "\nAll changes were undone. To keep those that helped, use --keep or tidegate tune apply."
        )?;
    }
    Ok(0)
}

/// Performs one capacity run: prints the number of connections that were established.
///
/// # Errors
/// The run cannot be set up.
pub fn run_capacity(args: &CapacityArgs) -> io::Result<u8> {
    let count = demonstration::count_connections(args.limit, &args.value, args.wanted)
        .map_err(io::Error::other)?;
    writeln!(io::stdout().lock(), "{count}")?;
    Ok(0)
}

/// The signals that request a stop: not SIGINT or SIGHUP if this process was started with them ignored, as nohup(1)
/// and shells without job control do. `status` is its /proc/self/status; field SigIgn has bit 0 for signal 1.
fn stop_signals(status: &str) -> Vec<i32> {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    let is_ignored = |signal: i32| signal != SIGTERM && mask >> (signal - 1) & 1 == 1;
    [SIGINT, SIGTERM, SIGHUP].into_iter().filter(|signal| !is_ignored(*signal)).collect()
}

/// An error message for invalid arguments, before the host is checked.
fn invalid_argument(args: &ProveArgs) -> Option<String> {
    if args.workload.root().is_some() {
        return Some(
            "prove measures the host on which it runs; --root works only with check, apply and undo".to_owned(),
        );
    }
    unknown_name(args.items.iter().chain(&args.accept_risk))
        .or_else(|| args.workload.invalid_argument())
}

/// The candidates that can be tried under this load, and the items that cannot, with the reason.
type Chosen = (Vec<Candidate>, Vec<(String, String)>);

fn candidates(args: &ProveArgs, host: &Host) -> Result<Chosen, String> {
    let report = check(host, &args.workload.workload());
    // A client on this host reaches each of its addresses over loopback, whatever the URL is.
    let on_loopback = args.client.is_none();
    let (mut found, mut not_tried) = (Vec::new(), Vec::new());
    for entry in &report.entries {
        let id = entry.item.id;
        let is_named = |name: &String| name == id || name == entry.item.group.name();
        if !args.items.is_empty() && !args.items.iter().any(is_named) {
            continue;
        }
        match reason_not_tried(entry, args, on_loopback) {
            None => {
                found.push(Candidate { id: id.to_owned(), actions: entry.finding.actions.clone() })
            }
            Some(reason) if entry.finding.state != State::Good => {
                not_tried.push((id.to_owned(), reason))
            }
            Some(_) => {}
        }
    }
    for setting in &args.sysctl {
        let (name, value) = setting.split_once('=').ok_or_else(|| {
            format!("--sysctl {setting}: expected NAME=VALUE, for example net.core.busy_poll=50")
        })?;
        let path = format!("/proc/sys/{}", name.trim().replace('.', "/"));
        host.read(&path).map_err(|error| format!("--sysctl {setting}: {error}"))?;
        let actions = vec![Action::setting(path, value.trim())];
        found.push(Candidate { id: setting.clone(), actions });
    }
    Ok((found, not_tried))
}

fn reason_not_tried(entry: &Entry, args: &ProveArgs, on_loopback: bool) -> Option<String> {
    let item = entry.item;
    if let State::Skipped(reason) | State::Blocked(reason) = &entry.finding.state {
        return Some(reason.clone());
    }
    if entry.finding.state == State::Good {
        return Some("already good".to_owned());
    }
    if item.risk == Risk::SecurityTrade && !args.accept_risk.iter().any(|name| name == item.id) {
        return Some(format!("security trade-off (add --accept-risk {} to try it)", item.id));
    }
    if entry.finding.actions.is_empty() {
        return Some("must be changed by hand".to_owned());
    }
    if item.group == Group::Capacity && item.id != "capacity-huge-pages" {
        return Some("limits the number of connections, not the cost of a request".to_owned());
    }
    if on_loopback && item.scope == Scope::Card {
        return Some(
            "the load uses loopback and does not reach the network card: use --url, and --client with a \
                client on another host"
                .to_owned(),
        );
    }
    None
}

/// The load that the arguments describe.
fn load_of(args: &ProveArgs, host: &Host) -> Result<Load, String> {
    let usable = allowed_cpus(host);
    let cpus = |list: &Option<String>, default: Vec<u32>| match list {
        None => Ok(default),
        Some(list) => parse_list(list).filter(|cpus| !cpus.is_empty()).ok_or_else(|| {
            format!("{list} is not a list of CPUs; help: write it in the form 0-3,8")
        }),
    };
    let server_cpus = cpus(&args.server_cpus, usable.iter().copied().take(1).collect())?;
    let rest: Vec<u32> = usable.iter().copied().filter(|cpu| !server_cpus.contains(cpu)).collect();
    let client_cpus = cpus(&args.client_cpus, if rest.is_empty() { usable } else { rest })?;
    let binary = match &args.binary {
        Some(binary) => binary.clone(),
        None => env::current_exe().map_err(|error| error.to_string())?,
    };
    let is_tidegate = run_tool(&[&binary.to_string_lossy(), "bench", "http", "--help"]).is_ok();
    let client =
        if let Some(command) = &args.client {
            Client::Command(command.clone())
        } else if is_tidegate {
            Client::Own(binary.clone())
        } else {
            Client::Wrk(find_tool("wrk").ok_or(
                "no load client: this binary has no `bench http`, and wrk is not installed",
            )?)
        };
    let server = match (&args.url, &args.server) {
        (Some(url), _) => Server::Running(url.clone()),
        (None, Some(command)) => {
            Server::Started(shell(&format!("exec {command}")), args.path.clone())
        }
        (None, None) => {
            Server::Started(own_server(&binary, &args.state, server_cpus.len())?, args.path.clone())
        }
    };
    Ok(Load {
        server,
        client,
        server_cpus,
        client_cpus,
        connections: args.held,
        duration_s: args.seconds,
    })
}

/// A Tidegate server with a configuration that answers /json. The configuration file is in the directory of the
/// journal, which only its owner may enter. A shell writes it again for each round, with the port of that round.
fn own_server(binary: &Path, state: &Path, workers: usize) -> Result<Vec<String>, String> {
    if run_tool(&[&binary.to_string_lossy(), "run", "--help"]).is_err() {
        return Err(
            "this binary has no `run`; help: give a server with --server COMMAND or --url URL"
                .to_owned(),
        );
    }
    let config = format!(
        "[server]\\nworkers = {workers}\\n[[listener]]\\nname = \"prove\"\\nbind = \"127.0.0.1:{{port}}\"\\n\
         [[route]]\\npath = \"/json\"\\nrespond = {{ status = 200, headers = {{ \"content-type\" = \
         \"application/json\" }}, \
         body = \"{{\\\\\"message\\\\\":\\\\\"Hello, World!\\\\\"}}\" }}\\n"
    );
    let script = format!(
        "printf '%b' '{config}' > '{file}' && exec '{binary}' run -c '{file}'",
        file = state.join(CONFIG_FILE).display(),
        binary = binary.display()
    );
    Ok(shell(&script))
}

fn shell(script: &str) -> Vec<String> {
    vec!["sh".to_owned(), "-c".to_owned(), script.to_owned()]
}

/// The command line that starts `tidegate tune` again: the binary, and `tune` if it is a subcommand.
fn own_command() -> Vec<String> {
    let mut command: Vec<String> =
        env::current_exe().into_iter().map(|path| path.to_string_lossy().into_owned()).collect();
    if env::args().nth(1).as_deref() == Some("tune") {
        command.push("tune".to_owned());
    }
    command
}

fn method_of(args: &ProveArgs, load: &Load) -> String {
    let client = match &load.client {
        Client::Command(command) => command,
        Client::Own(_) => "tidegate bench http",
        Client::Wrk(_) => "wrk",
    };
    format!(
        "{client}, {} connections, {} pairs of rounds of {} s in alternating order; server on CPUs {}, client on \
         CPUs {}; CPU per request is all non-idle time of the server CPUs",
        load.connections,
        args.rounds,
        load.duration_s,
        list_text(&load.server_cpus),
        list_text(&load.client_cpus)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_signals_do_not_request_a_stop() {
        let status =
            |mask: &str| format!("SigBlk:\t0000000000000000\nSigIgn:\t{mask}\nSigCgt:\t0\n");
        for (mask, signals) in [
            ("0000000000001000", &[SIGINT, SIGTERM, SIGHUP][..]),
            ("0000000000001001", &[SIGINT, SIGTERM]),
            ("0000000000001002", &[SIGTERM, SIGHUP]),
            ("ffffffffffffffff", &[SIGTERM]),
            ("unknown", &[SIGINT, SIGTERM, SIGHUP]),
        ] {
            assert_eq!(stop_signals(&status(mask)), signals, "{mask}");
        }
        assert_eq!(stop_signals(""), [SIGINT, SIGTERM, SIGHUP]);
    }
}
