//! `tidegate tune prove`: what each change gains here, measured.
//! In: arguments. Out: a report with intervals; the host as it was, unless --keep.
//! Never: tries a security trade that was not named; leaves a change behind when it ends, however it
//! ends (what a kill leaves, `tune undo` finds in the journal).

pub mod demonstration;
pub mod load;
pub mod statistics;
pub mod trial;
pub mod waterfall;

use crate::action::Action;
use crate::apply::apply;
use crate::check::{Entry, check};
use crate::cli::{WorkloadArgs, complain, unknown_name, write_file};
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
use waterfall::Story;

/// The configuration of our own server, in the journal's folder while `prove` runs.
const CONFIG_FILE: &str = "prove.toml";

/// Arguments of `tidegate tune prove`.
#[derive(Debug, clap::Args)]
pub struct ProveArgs {
    /// Items or groups to try [default: every one that costs something and that this load can show]
    #[arg(value_name = "ITEM")]
    items: Vec<String>,
    #[command(flatten)]
    workload: WorkloadArgs,
    /// Also try a setting of your own, such as net.core.busy_poll=50
    #[arg(long, value_name = "NAME=VALUE")]
    sysctl: Vec<String>,
    /// Load a server that runs already (pin it yourself and give its CPUs)
    #[arg(long, conflicts_with = "server")]
    url: Option<String>,
    /// Start this server instead of our own; {port} is the port [default: tidegate run]
    #[arg(long, value_name = "COMMAND")]
    server: Option<String>,
    /// The tidegate whose `run` and `bench http` are used [default: this one]
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
    /// Load by this command instead, such as "ssh HOST tidegate bench http {url} --connections
    /// {connections} --duration {seconds}s --json": the way to put the network card into the path
    #[arg(long, value_name = "COMMAND", requires = "url")]
    client: Option<String>,
    /// Path of the URL for a started server
    #[arg(long, default_value = "/json")]
    path: String,
    /// CPUs of the server, whose time is counted [default: the first usable one]
    #[arg(long, value_name = "LIST")]
    server_cpus: Option<String>,
    /// CPUs of the client [default: the other usable ones]
    #[arg(long, value_name = "LIST")]
    client_cpus: Option<String>,
    /// Connections held
    #[arg(long = "held", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..))]
    held: u32,
    /// Pairs of rounds for each candidate
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(statistics::ROUNDS_MIN as i64..1000))]
    rounds: u32,
    /// Seconds of a round
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..3600))]
    seconds: u32,
    /// Try a security trade too, named one by one
    #[arg(long, value_name = "ITEM")]
    accept_risk: Vec<String>,
    /// Keep what helped (undo restores it later)
    #[arg(long)]
    keep: bool,
    /// Write the report as one self-contained page
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Write the waterfall as a picture
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Folder of the journal
    #[arg(long, value_name = "FOLDER", default_value = STATE_FOLDER)]
    state: PathBuf,
}

/// Arguments of one capacity run.
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
/// Output that cannot be written, a journal that cannot be opened, a load that does not run.
pub fn run(args: &ProveArgs) -> io::Result<u8> {
    if let Some(message) = refusal_of(args) {
        complain(&message);
        return Ok(2);
    }
    let host = Host::live();
    let load = match load_of(args, &host) {
        Ok(load) => load,
        Err(message) => {
            complain(&message);
            return Ok(2);
        }
    };
    let (candidates, not_tried) = match candidates(args, &host) {
        Ok(found) => found,
        Err(message) => {
            complain(&message);
            return Ok(2);
        }
    };
    // Registered before the first change: from here on, a signal only asks to stop.
    let asked_to_stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&asked_to_stop))?;
    }
    let mut journal = Journal::open(&args.state).map_err(io::Error::other)?;
    if !journal.outstanding().is_empty() {
        complain("an earlier change is still in place; run `tidegate tune undo` first");
        return Ok(1);
    }
    let shown = demonstration::show_all(&own_command());
    let method = method_of(args, &load);
    let mut load = load;
    let show_progress = io::stderr().is_terminal();
    let mut bench = Bench {
        host: &host,
        journal: &mut journal,
        measure: &mut load,
        rounds: args.rounds as usize,
        stopped: &|| asked_to_stop.load(Ordering::Relaxed),
        tell: &mut |line| {
            if show_progress {
                let _ = writeln!(io::stderr().lock(), "... {line}");
            }
        },
    };
    let result = experiment(&mut bench, &candidates);
    let _ = fs::remove_file(args.state.join(CONFIG_FILE));
    let proof = result.map_err(io::Error::other)?;
    let interrupted = proof.interrupted;
    let place = Environment::of(&host).line();
    let story = Story { place, method, proof, not_tried, shown };
    let mut out = io::stdout().lock();
    out.write_all(waterfall::text(&story).as_bytes())?;
    if let Some(file) = &args.html {
        write_file(file, &waterfall::html(&story))?;
    }
    if let Some(file) = &args.svg {
        write_file(file, &waterfall::svg(&story.proof))?;
    }
    if interrupted {
        return Ok(1);
    }
    let kept = story.proof.kept();
    if args.keep && kept.is_empty() {
        writeln!(out, "\nNothing helped, so nothing is kept; everything is as it was.")?;
    } else if args.keep {
        for candidate in candidates.iter().filter(|one| kept.contains(&one.id.as_str())) {
            apply(&host, &mut journal, &candidate.id, &candidate.actions, &mut |_| false)
                .map_err(io::Error::other)?;
            writeln!(out, "kept: {}", candidate.id)?;
        }
        writeln!(out, "`tidegate tune undo` puts it back.")?;
    } else {
        writeln!(
            out,
            "\nEverything is as it was. To keep what helped: --keep, or tidegate tune apply."
        )?;
    }
    Ok(0)
}

/// Runs one capacity run: prints how many connections came in.
///
/// # Errors
/// What cannot be set up.
pub fn run_capacity(args: &CapacityArgs) -> io::Result<u8> {
    let count = demonstration::count_connections(args.limit, &args.value, args.wanted)
        .map_err(io::Error::other)?;
    writeln!(io::stdout().lock(), "{count}")?;
    Ok(0)
}

/// What is wrong with the arguments, before anything is looked at.
fn refusal_of(args: &ProveArgs) -> Option<String> {
    if args.workload.root().is_some() {
        return Some(
            "prove measures the host it runs on; --root is for check, apply and undo".to_owned(),
        );
    }
    unknown_name(args.items.iter().chain(&args.accept_risk)).or_else(|| args.workload.refusal())
}

/// What can be tried under this load, and what cannot, with the reason.
type Chosen = (Vec<Candidate>, Vec<(String, String)>);

fn candidates(args: &ProveArgs, host: &Host) -> Result<Chosen, String> {
    let report = check(host, &args.workload.workload());
    // A client on this host reaches every address of it over loopback, whatever the URL says.
    let on_loopback = args.client.is_none();
    let (mut found, mut not_tried) = (Vec::new(), Vec::new());
    for entry in &report.entries {
        let id = entry.item.id;
        let is_named = |name: &String| name == id || name == entry.item.group.name();
        if !args.items.is_empty() && !args.items.iter().any(is_named) {
            continue;
        }
        match reason_against(entry, args, on_loopback) {
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
            format!("--sysctl {setting}: write NAME=VALUE, such as net.core.busy_poll=50")
        })?;
        let path = format!("/proc/sys/{}", name.trim().replace('.', "/"));
        host.read(&path).map_err(|error| format!("--sysctl {setting}: {error}"))?;
        let actions = vec![Action::setting(path, value.trim())];
        found.push(Candidate { id: setting.clone(), actions });
    }
    Ok((found, not_tried))
}

fn reason_against(entry: &Entry, args: &ProveArgs, on_loopback: bool) -> Option<String> {
    let item = entry.item;
    if let State::Skipped(reason) | State::Blocked(reason) = &entry.finding.state {
        return Some(reason.clone());
    }
    if entry.finding.state == State::Good {
        return Some("good already".to_owned());
    }
    if item.risk == Risk::SecurityTrade && !args.accept_risk.iter().any(|name| name == item.id) {
        return Some(format!("a security trade (--accept-risk {} tries it)", item.id));
    }
    if entry.finding.actions.is_empty() {
        return Some("only by hand".to_owned());
    }
    if item.group == Group::Capacity && item.id != "capacity-huge-pages" {
        return Some("bounds the number of connections, not the cost of a request".to_owned());
    }
    if on_loopback && item.scope == Scope::Card {
        return Some(
            "the load goes over loopback, past the card: use --url with --client on another host"
                .to_owned(),
        );
    }
    None
}

/// The load that the arguments ask for.
fn load_of(args: &ProveArgs, host: &Host) -> Result<Load, String> {
    let usable = allowed_cpus(host);
    let cpus = |asked: &Option<String>, default: Vec<u32>| match asked {
        None => Ok(default),
        Some(list) => parse_list(list)
            .filter(|cpus| !cpus.is_empty())
            .ok_or_else(|| format!("{list} is not a list of CPUs such as 0-3,8")),
    };
    let server_cpus = cpus(&args.server_cpus, usable.iter().copied().take(1).collect())?;
    let rest: Vec<u32> = usable.iter().copied().filter(|cpu| !server_cpus.contains(cpu)).collect();
    let client_cpus = cpus(&args.client_cpus, if rest.is_empty() { usable } else { rest })?;
    let binary = match &args.binary {
        Some(binary) => binary.clone(),
        None => env::current_exe().map_err(|error| error.to_string())?,
    };
    let is_tidegate = run_tool(&[&binary.to_string_lossy(), "bench", "http", "--help"]).is_ok();
    let client = if let Some(command) = &args.client {
        Client::Command(command.clone())
    } else if is_tidegate {
        Client::Own(binary.clone())
    } else {
        Client::Wrk(
            find_tool("wrk")
                .ok_or("no client: this binary has no `bench http`, and wrk is not installed")?,
        )
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

/// Our own server on a configuration that answers /json. The file lies in the journal's folder, which
/// only its owner may enter; a shell writes it anew for each round, with the round's port.
fn own_server(binary: &Path, state: &Path, workers: usize) -> Result<Vec<String>, String> {
    if run_tool(&[&binary.to_string_lossy(), "run", "--help"]).is_err() {
        return Err(
            "this binary has no `run`; give a server with --server COMMAND or --url URL".to_owned()
        );
    }
    let config = format!(
        "[server]\\nworkers = {workers}\\n[[listener]]\\nname = \"prove\"\\nbind = \"127.0.0.1:{{port}}\"\\n\
         [[route]]\\npath = \"/json\"\\nrespond = {{ status = 200, headers = {{ \"content-type\" = \"application/json\" }}, \
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

/// How to start this very command again: the binary, and `tune` when it is a subcommand of it.
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
        "{client}, {} connections, {} pairs of {} s in alternating order; server on CPUs {}, client on CPUs {}; \
         CPU per request is all non-idle time of the server's CPUs",
        load.connections,
        args.rounds,
        load.duration_s,
        list_text(&load.server_cpus),
        list_text(&load.client_cpus)
    )
}
