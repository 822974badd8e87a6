//! The command line: `tidegate tune check | apply | undo | prove`.
//! In: parsed arguments. Out: results on standard output, errors on standard error, an exit code
//! (0: done, 1: something failed or is left to do, 2: usage error).
//! Never: changes anything without `apply --yes`, `undo` or `prove`.

use crate::action::Action;
use crate::apply::apply;
use crate::check::{Entry, Report, check, detect};
use crate::cpu_list::parse_list;
use crate::finding::State;
use crate::host::Host;
use crate::item::{Group, Risk};
use crate::items;
use crate::journal::{self, Journal, STATE_FOLDER};
use crate::persist::kept_actions;
use crate::prove;
use crate::report::wrapped;
use crate::undo::{UndoResult, undo};
use crate::workload::{CONNECTIONS_MAX, For, Workload};
use crate::{page, report};
use core::net::IpAddr;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Maximum number of source addresses in one command.
const ADDRESSES_MAX: usize = 256;
/// Everything was done.
const DONE: u8 = 0;
/// Something failed or is left to do.
const LEFT_OVER: u8 = 1;
/// The command line is invalid.
const USAGE: u8 = 2;

/// Arguments of `tidegate tune`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Check this host without changing it: what costs performance, how to fix it, the expected gain
    Check(CheckArgs),
    /// Show the exact changes; with --yes make them (undo restores the previous values)
    Apply(ApplyArgs),
    /// Undo all changes of apply and prove, newest first
    Undo(UndoArgs),
    /// Measure the gain of each change on this host; all changes are undone unless --keep is given
    Prove(Box<prove::ProveArgs>),
    /// One run of the connection-capacity demonstration (started by prove, in a network namespace)
    #[command(hide = true)]
    Capacity(prove::CapacityArgs),
}

/// The planned work and the host to check.
#[derive(Clone, Debug, clap::Args)]
pub struct WorkloadArgs {
    /// The kind of work
    #[arg(long = "for", value_enum, default_value_t = For::All)]
    kind: For,
    /// Connections open at the same time: adds a plan with the limits and memory that they need
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=CONNECTIONS_MAX))]
    connections: Option<u64>,
    /// Worker threads to plan for [default: one per usable CPU]
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=1024))]
    workers: Option<u64>,
    /// CPUs of the workers (server.cpus of the configuration), e.g. 16-61: the interrupts of the network card go
    /// to the other CPUs
    #[arg(long, value_name = "LIST", value_parser = parse_cpus)]
    worker_cpus: Option<CpuList>,
    /// Local addresses that outgoing connections use: ADDR or ADDR-ADDR, comma-separated
    #[arg(long = "source", value_name = "ADDR[,ADDR..]", value_parser = parse_addresses)]
    sources: Option<AddressList>,
    /// Interface in the data path; may be repeated [default: all with a device]
    #[arg(long = "interface", value_name = "NAME")]
    interfaces: Vec<String>,
    /// Check the limits of this process instead of those of this command
    #[arg(long)]
    pid: Option<u32>,
    /// Check a recorded host (a directory made by record.sh) instead of this one
    #[arg(long, value_name = "FOLDER")]
    root: Option<PathBuf>,
}

impl WorkloadArgs {
    /// The host to check.
    #[must_use]
    pub fn host(&self) -> Host {
        let host = self.root.as_deref().map_or_else(Host::live, Host::recorded);
        match self.pid {
            Some(pid) => host.with_process(pid),
            None => host,
        }
    }

    /// The directory of the recorded host, if one was given.
    #[must_use]
    pub fn root(&self) -> Option<&Path> {
        self.root.as_deref()
    }

    /// An error message if an argument names a host, interface or process that does not exist.
    #[must_use]
    pub fn invalid_argument(&self) -> Option<String> {
        invalid_root(self.root())
            .or_else(|| self.absent_interface())
            .or_else(|| self.absent_process())
    }

    fn absent_interface(&self) -> Option<String> {
        let folder = "/sys/class/net";
        let known = self.host().list(folder).unwrap_or_default();
        let name = self.interfaces.iter().find(|name| !known.contains(name))?;
        Some(format!("--interface {name}: no such interface; allowed: {}", known.join(", ")))
    }

    fn absent_process(&self) -> Option<String> {
        let pid = self.pid.filter(|_| !self.host().exists(&self.host().process_path("status")))?;
        Some(format!("--pid {pid}: no such process"))
    }

    /// The workload.
    #[must_use]
    pub fn workload(&self) -> Workload {
        Workload {
            kind: self.kind,
            requested_connections: self.connections,
            interfaces: self.interfaces.clone(),
            workers: self.workers,
            worker_cpus: self.worker_cpus.clone().unwrap_or_default().0,
            source_addresses: self.sources.clone().unwrap_or_default().0,
        }
    }
}

/// A list of CPUs on the command line.
#[derive(Clone, Debug, Default)]
struct CpuList(Vec<u32>);

fn parse_cpus(text: &str) -> Result<CpuList, String> {
    let cpus = parse_list(text).filter(|cpus| !cpus.is_empty());
    cpus.map(CpuList).ok_or_else(|| format!("`{text}` is not a list of CPUs; write 2-5,8"))
}

/// A list of addresses on the command line.
#[derive(Clone, Debug, Default)]
struct AddressList(Vec<IpAddr>);

fn parse_addresses(text: &str) -> Result<AddressList, String> {
    let address = |text: &str| {
        text.trim().parse::<IpAddr>().map_err(|_| {
            format!("`{text}` is not an IP address; write 192.0.2.10 or 192.0.2.10-192.0.2.13")
        })
    };
    let mut addresses = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        match (address(first)?, address(last)?) {
            (IpAddr::V4(first), IpAddr::V4(last)) if first <= last => {
                let range = u32::from(first)..=u32::from(last);
                addresses.extend(range.take(ADDRESSES_MAX + 1).map(|bits| IpAddr::V4(bits.into())));
            }
            (first, last) if first == last => addresses.push(first),
            _ => return Err(format!("`{part}` is not an ascending range of IPv4 addresses")),
        }
        if addresses.len() > ADDRESSES_MAX {
            return Err(format!("more than {ADDRESSES_MAX} addresses; give fewer"));
        }
    }
    Ok(AddressList(addresses))
}

#[derive(Debug, clap::Args)]
struct CheckArgs {
    #[command(flatten)]
    workload: WorkloadArgs,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
    /// Write the report as one self-contained HTML page to FILE
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
struct ApplyArgs {
    /// Items or groups to apply [default: all items that cost performance and have no risk]
    #[arg(value_name = "ITEM")]
    items: Vec<String>,
    #[command(flatten)]
    workload: WorkloadArgs,
    /// Make the changes; without it they are only shown
    #[arg(long)]
    yes: bool,
    /// Also write files that keep the changes after a reboot
    #[arg(long)]
    persist: bool,
    /// Accept the security trade-off of this item; may be repeated
    #[arg(long, value_name = "ITEM")]
    accept_risk: Vec<String>,
    /// Directory of the journal [default: /var/lib/tidegate/tune, below --root]
    #[arg(long, value_name = "FOLDER")]
    state: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
struct UndoArgs {
    /// Directory of the journal [default: /var/lib/tidegate/tune, below --root]
    #[arg(long, value_name = "FOLDER")]
    state: Option<PathBuf>,
    /// Leave values as they are if they were changed after apply, and remove them from the journal
    #[arg(long)]
    forget: bool,
    /// The recorded host on which apply was run
    #[arg(long, value_name = "FOLDER")]
    root: Option<PathBuf>,
}

/// Runs `tidegate tune`.
#[must_use]
pub fn run(args: Args) -> ExitCode {
    let result = match args.command {
        None => usage(
            "no command given; help: run tidegate tune check, apply, undo or prove (see tidegate tune --help)",
        ),
        Some(Command::Check(args)) => run_check(&args),
        Some(Command::Apply(args)) => run_apply(&args),
        Some(Command::Undo(args)) => run_undo(&args),
        Some(Command::Prove(args)) => prove::run(&args),
        Some(Command::Capacity(args)) => prove::run_capacity(&args),
    };
    match result {
        Ok(code) => ExitCode::from(code),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::from(DONE),
        Err(error) => {
            print_error(&error.to_string());
            ExitCode::from(LEFT_OVER)
        }
    }
}

fn run_check(args: &CheckArgs) -> io::Result<u8> {
    if let Some(message) = args.workload.invalid_argument() {
        return usage(&message);
    }
    let report = check(&args.workload.host(), &args.workload.workload());
    if let Some(file) = &args.html {
        write_file(file, &page::html(&report))?;
    }
    let mut out = io::stdout().lock();
    if args.json {
        writeln!(out, "{:#}", report::json(&report))?;
    } else if args.html.is_none() {
        out.write_all(report::text(&report).as_bytes())?;
    }
    Ok(DONE)
}

fn run_apply(args: &ApplyArgs) -> io::Result<u8> {
    let wrong = unknown_name(args.items.iter().chain(&args.accept_risk))
        .or_else(|| args.workload.invalid_argument());
    if let Some(message) = wrong {
        return usage(&message);
    }
    let host = args.workload.host();
    let report = check(&host, &args.workload.workload());
    let state = state_folder(args.state.as_deref(), &host);
    let in_place = in_place(&host, &report, args, &state)?;
    let Choice { chosen, mut already_good, refused } = choose(&report, args);
    already_good.retain(|entry| !in_place.iter().any(|(other, _)| other.item.id == entry.item.id));
    let mut out = io::stdout().lock();
    for entry in &already_good {
        put(&mut out, "", &format!("{}: already good ({})", entry.item.id, entry.finding.found))?;
    }
    for line in &refused {
        put(&mut out, "", line)?;
    }
    let trades = trades_left_out(&report, args);
    if !trades.is_empty() {
        let body = format!("{}.", trades.join(", "));
        put(&mut out, "Left out because they are trade-offs: ", &body)?;
        writeln!(
            out,
            "To apply an item, name it; `tidegate tune check` describes each trade-off.\n"
        )?;
    }
    if chosen.is_empty() && in_place.is_empty() {
        writeln!(out, "Nothing to apply.")?;
        return Ok(if refused.is_empty() { DONE } else { LEFT_OVER });
    }
    if !args.yes {
        for entry in &chosen {
            let actions = actions_of(&host, entry, args.persist, &mut out)?;
            show(&mut out, &host, entry, &actions)?;
        }
        for (entry, actions) in &in_place {
            show(&mut out, &host, entry, actions)?;
        }
        writeln!(out)?;
        let command = undo_command(args.state.as_deref(), args.workload.root());
        let words = "Nothing was changed. To make these changes, add --yes. This command restores the previous values:";
        put(&mut out, "", &format!("{words} {command}"))?;
        return Ok(DONE);
    }
    let mut journal = Journal::open(&state).map_err(io::Error::other)?;
    journal.check_root(&host.root_name()).map_err(io::Error::other)?;
    let mut applier = Applier { host: &host, journal: &mut journal, out: &mut out, failed: false };
    for entry in &chosen {
        applier.recheck_and_apply(entry, &report, args.persist)?;
    }
    for (entry, actions) in &in_place {
        applier.apply(entry, actions)?;
    }
    let failed = applier.failed;
    journal.tidy().map_err(io::Error::other)?;
    if journal.outstanding().is_empty() {
        writeln!(out, "\nNothing was changed.")?;
    } else {
        let command = undo_command(args.state.as_deref(), args.workload.root());
        writeln!(out)?;
        put(&mut out, "", &format!("`{command}` restores the previous values."))?;
    }
    Ok(if failed || !refused.is_empty() { LEFT_OVER } else { DONE })
}

/// Applies items one after the other.
struct Applier<'a, W> {
    /// The host to change.
    host: &'a Host,
    /// The open journal of this host.
    journal: &'a mut Journal,
    /// Receives the text for the user.
    out: &'a mut W,
    /// Whether at least one item failed.
    failed: bool,
}

impl<W: Write> Applier<'_, W> {
    /// Checks the item again and applies it. The items applied before may have changed its finding: a driver
    /// places the interrupts of new queues itself.
    fn recheck_and_apply(
        &mut self,
        before: &Entry,
        report: &Report,
        persist: bool,
    ) -> io::Result<()> {
        let item = before.item;
        let finding = detect(item, self.host, &report.workload, &report.environment);
        let entry = Entry { item, finding };
        if entry.finding.state != State::Costs {
            let found = &entry.finding.found;
            let words = format!("{}: already good after the preceding changes: {found}", item.id);
            return put(self.out, "", &words);
        }
        let actions = actions_of(self.host, &entry, persist, self.out)?;
        self.apply(&entry, &actions)
    }

    fn apply(&mut self, entry: &Entry, actions: &[Action]) -> io::Result<()> {
        show(self.out, self.host, entry, actions)?;
        match apply(self.host, self.journal, entry.item.id, actions, &mut |_| false) {
            Ok(1) => writeln!(self.out, "  done: 1 change"),
            Ok(done) => writeln!(self.out, "  done: {done} changes"),
            Err(error) => {
                self.failed = true;
                put(self.out, "  ", &format!("failed: {error}"))
            }
        }
    }
}

/// Named items that are good because they were applied before. With `--persist`, their files can still be written.
fn in_place<'a>(
    host: &Host,
    report: &'a Report,
    args: &ApplyArgs,
    state: &Path,
) -> io::Result<Vec<(&'a Entry, Vec<Action>)>> {
    if !args.persist || !journal::exists(state).map_err(io::Error::other)? {
        return Ok(Vec::new());
    }
    let journal = Journal::open(state).map_err(io::Error::other)?;
    journal.check_root(&host.root_name()).map_err(io::Error::other)?;
    Ok(report
        .in_state("good")
        .filter(|entry| args.items.iter().any(|name| name == entry.item.id))
        .map(|entry| (entry, journal.actions_of(entry.item.id)))
        .filter(|(_, actions)| !actions.is_empty())
        .map(|(entry, actions)| {
            (entry, kept_actions(host, entry.item.id, &actions, &entry.finding.kept).0)
        })
        .collect())
}

/// The items that an `apply` changes, skips or refuses.
struct Choice<'a> {
    /// The entries to apply, in the order to apply them.
    chosen: Vec<&'a Entry>,
    /// Named entries that need no change.
    already_good: Vec<&'a Entry>,
    /// A message for each entry that the user named, itself or by its group, and that cannot be applied.
    refused: Vec<String>,
}

fn choose<'a>(report: &'a Report, args: &ApplyArgs) -> Choice<'a> {
    let (mut chosen, mut already_good, mut refused) = (Vec::new(), Vec::new(), Vec::new());
    for entry in &report.entries {
        let (id, group) = (entry.item.id, entry.item.group.name());
        let named = args.items.iter().any(|name| name == id);
        let in_group = args.items.iter().any(|name| name == group);
        let accepted = args.accept_risk.iter().any(|name| name == id);
        let wanted = named || in_group || args.items.is_empty();
        if !wanted {
            continue;
        }
        let keeps = args.persist && !entry.finding.kept.is_empty();
        let nothing_to_do = entry.finding.actions.is_empty() && !keeps;
        match (&entry.finding.state, entry.item.risk) {
            (State::Good, _) if named => already_good.push(entry),
            (State::Skipped(reason) | State::Blocked(reason), _) if named => {
                refused.push(format!("{id}: cannot be applied: {reason}"));
            }
            // Before the risk: accepting it would change nothing.
            (State::Costs, _) if nothing_to_do && (named || in_group) => refused.push(format!(
                "{id}: must be changed by hand: {}",
                entry.finding.advice.join("; ")
            )),
            (State::Costs, _) if nothing_to_do => {}
            (State::Costs, Risk::SecurityTrade) if !accepted && (named || in_group) => refused
                .push(format!(
                    "{id}: refused, because it is a security trade-off. {} To apply it anyway, add \
                    --accept-risk {id}",
                    entry.item.avoid
                )),
            (State::Costs, Risk::SecurityTrade) if !accepted => {}
            (State::Costs, Risk::Trade) if args.items.is_empty() => {}
            (State::Costs, _) => chosen.push(entry),
            _ => {}
        }
    }
    let place = |entry: &&Entry| items::ALL.iter().position(|item| item.id == entry.item.id);
    chosen.sort_by_key(place);
    Choice { chosen, already_good, refused }
}

/// The command that undoes the changes, with the options that name the same journal and host.
pub(crate) fn undo_command(state: Option<&Path>, root: Option<&Path>) -> String {
    let mut command = "tidegate tune undo".to_owned();
    for (option, path) in [("--state", state), ("--root", root)] {
        if let Some(path) = path {
            command.push_str(&format!(" {option} {}", path.display()));
        }
    }
    command
}

/// Trade-offs that could be applied but have to be named. Empty if the user named any item.
fn trades_left_out(report: &Report, args: &ApplyArgs) -> Vec<&'static str> {
    if !args.items.is_empty() {
        return Vec::new();
    }
    let is_left_out = |entry: &&Entry| {
        entry.item.risk == Risk::Trade
            && matches!(entry.finding.state, State::Costs)
            && !entry.finding.actions.is_empty()
    };
    report.entries.iter().filter(is_left_out).map(|entry| entry.item.id).collect()
}

/// Writes `body` after `lead` in lines of 80 columns; lines after the first are indented further.
fn put(out: &mut impl Write, lead: &str, body: &str) -> io::Result<()> {
    let mut text = String::new();
    let spaces = lead.chars().take_while(|&letter| letter == ' ').count();
    wrapped(&mut text, lead, spaces + 2, body);
    out.write_all(text.as_bytes())
}

fn actions_of(
    host: &Host,
    entry: &Entry,
    persist: bool,
    out: &mut impl Write,
) -> io::Result<Vec<Action>> {
    let mut actions = entry.finding.actions.clone();
    if persist {
        let (kept, not_kept) =
            kept_actions(host, entry.item.id, &entry.finding.actions, &entry.finding.kept);
        actions.extend(kept);
        let more = match not_kept.len().saturating_sub(1) {
            0 => String::new(),
            more => format!(" (and {more} more)"),
        };
        if let Some(command) = not_kept.first() {
            let words = format!("{}: not kept after a reboot: {command}{more}", entry.item.id);
            put(out, "", &words)?;
        }
    }
    Ok(actions)
}

fn show(out: &mut impl Write, host: &Host, entry: &Entry, actions: &[Action]) -> io::Result<()> {
    put(out, "", &format!("{}: {}", entry.item.id, entry.finding.found))?;
    let saved = actions.iter().filter(|action| !action.acts()).count();
    if saved > 0 {
        put(
            out,
            "  ",
            &format!("saved first: {saved} settings that the driver may change with it"),
        )?;
    }
    for action in actions.iter().filter(|action| action.acts()) {
        let before = match action.state(host) {
            Ok(None) => "does not exist yet".to_owned(),
            Ok(Some(_)) if !matches!(action, Action::Setting { .. }) => "saved first".to_owned(),
            Ok(Some(text)) => {
                format!("now {}", text.split_whitespace().collect::<Vec<_>>().join(" "))
            }
            Err(error) => error.to_string(),
        };
        put(out, "  ", &format!("{} ({before})", action.command_text()))?;
        if let Action::File { text, .. } = action {
            for line in text.lines() {
                writeln!(out, "    | {line}")?;
            }
        }
    }
    Ok(())
}

fn run_undo(args: &UndoArgs) -> io::Result<u8> {
    if let Some(message) = invalid_root(args.root.as_deref()) {
        return usage(&message);
    }
    let host = args.root.as_deref().map_or_else(Host::live, Host::recorded);
    let state = state_folder(args.state.as_deref(), &host);
    let mut out = io::stdout().lock();
    if !journal::exists(&state).map_err(io::Error::other)? {
        put(&mut out, "", &format!("Nothing to undo: {} contains no changes.", state.display()))?;
        return Ok(DONE);
    }
    let mut journal = Journal::open(&state).map_err(io::Error::other)?;
    let fates = undo(&host, &mut journal).map_err(io::Error::other)?;
    let mut left = 0;
    for undone in &fates {
        let target = undone.step.action.target();
        let since = if undone.restarted { " (the machine was rebooted since)" } else { "" };
        let line = match &undone.fate {
            UndoResult::AlreadyBack => format!("already as before{since}"),
            UndoResult::Restored => "restored".to_owned(),
            UndoResult::Failed(reason) => format!("NOT restored: {reason}"),
            UndoResult::ChangedSince(value) => {
                let before = undone.step.before.as_deref().unwrap_or("(nothing)").trim();
                format!(
                    "not restored: the value was changed to {:?} afterwards{since}; the previous value was {:?}",
                    difference(value, before),
                    difference(before, value)
                )
            }
        };
        put(&mut out, "", &format!("{}: {target}: {line}", undone.step.item))?;
        if undone.is_left() {
            left += 1;
            if args.forget {
                journal.forget(undone.step.number).map_err(io::Error::other)?;
            }
        }
    }
    journal.tidy().map_err(io::Error::other)?;
    if left == 0 {
        writeln!(out, "All changes were undone.")?;
        return Ok(DONE);
    }
    if args.forget {
        writeln!(out, "Changes left as they are and removed from the journal: {left}.")?;
        return Ok(DONE);
    }
    let command = undo_command(args.state.as_deref(), args.root.as_deref());
    let words = format!(
        "Changes not undone: {left}. To keep these values and remove them from the journal:"
    );
    put(&mut out, "", &format!("{words} {command} --forget"))?;
    Ok(LEFT_OVER)
}

/// Maximum number of lines shown of a tool's output.
const LINES_SHOWN_MAX: usize = 4;

/// The lines of `one` that are not in `other`, if `one` has several lines; otherwise all of `one`.
fn difference(one: &str, other: &str) -> String {
    let differing: Vec<&str> = one
        .lines()
        .filter(|line| !other.lines().any(|known| known == *line))
        .map(str::trim)
        .collect();
    if one.lines().count() <= 1 || differing.is_empty() {
        return one.to_owned();
    }
    let mut shown = differing.iter().take(LINES_SHOWN_MAX).copied().collect::<Vec<_>>().join("; ");
    if differing.len() > LINES_SHOWN_MAX {
        shown.push_str(&format!("; and {} more lines", differing.len() - LINES_SHOWN_MAX));
    }
    shown
}

/// The directory of the journal. A recorded host has its own journal, inside its tree.
fn state_folder(given: Option<&Path>, host: &Host) -> PathBuf {
    given.map_or_else(|| host.locate(STATE_FOLDER), Path::to_owned)
}

/// An error message if `--root` is not a recorded host. Every recorded host has at least some files of /proc;
/// without them every item would be skipped.
fn invalid_root(root: Option<&Path>) -> Option<String> {
    let root = root.filter(|root| !root.join("proc").is_dir())?;
    Some(format!(
        "--root {}: not a recorded host, because it has no directory `proc`; help: give a directory made \
            by record.sh",
        root.display()
    ))
}

/// An error message if a name is neither an item nor a group.
pub(crate) fn unknown_name<'a>(mut names: impl Iterator<Item = &'a String>) -> Option<String> {
    let name = names.find(|name| !is_known(name))?;
    Some(format!("no item or group is named {name}{}", nearest(name)))
}

fn is_known(name: &str) -> bool {
    items::by_id(name).is_some() || Group::ALL.iter().any(|group| group.name() == name)
}

/// A hint that lists items with a similar name.
fn nearest(name: &str) -> String {
    let part = name.rsplit('-').next().unwrap_or(name);
    let near: Vec<&str> =
        items::ALL.iter().map(|item| item.id).filter(|id| id.contains(part)).take(3).collect();
    if near.is_empty() {
        "; help: `tidegate tune check` lists all items".to_owned()
    } else {
        format!("; help: did you mean {}?", near.join(" or "))
    }
}

/// Writes a result file; an error names the file.
pub(crate) fn write_file(file: &Path, text: &str) -> io::Result<()> {
    fs::write(file, text)
        .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", file.display())))
}

/// Prints an error message.
pub(crate) fn print_error(message: &str) {
    let _ = writeln!(io::stderr().lock(), "tidegate: {message}");
}

fn usage(message: &str) -> io::Result<u8> {
    print_error(message);
    Ok(USAGE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_differing_lines_of_long_output_are_shown() {
        let (before, now) = ("a: on\n\tb: off\nc: on\n", "a: on\n\tb: on\nc: on\n");
        assert_eq!(
            (difference(now, before), difference(before, now)),
            ("b: on".into(), "b: off".into())
        );
        assert_eq!(difference("555", "99"), "555");
        let many: String = (0..9).map(|line| format!("{line}\n")).collect();
        assert_eq!(difference(&many, "x"), "0; 1; 2; 3; and 5 more lines");
    }
}
