//! The command line: `tidegate tune check | apply | undo | prove`.
//! In: parsed arguments. Out: results on standard output, errors on standard error, an exit code
//! (0 done, 1 something was found or left over, 2 usage).
//! Never: changes anything without `apply --yes`, `undo` or `prove`.

use crate::action::Action;
use crate::apply::apply;
use crate::check::{Entry, Report, check, detect};
use crate::finding::State;
use crate::host::Host;
use crate::item::{Group, Risk};
use crate::items;
use crate::journal::{self, Journal, STATE_FOLDER};
use crate::persist::kept_actions;
use crate::prove;
use crate::undo::{Fate, undo};
use crate::workload::{CONNECTIONS_MAX, For, Workload};
use crate::{page, report};
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Everything was done.
const DONE: u8 = 0;
/// Something failed or was left over.
const LEFT_OVER: u8 = 1;
/// The command line does not make sense.
const USAGE: u8 = 2;

/// Arguments of `tidegate tune`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Look only: what this host costs, what would change it, what it may gain
    Check(CheckArgs),
    /// Show the exact changes; with --yes make them, journaled so that undo restores them
    Apply(ApplyArgs),
    /// Put back everything that apply or prove changed, newest first
    Undo(UndoArgs),
    /// Measure what each change gains here, keep nothing that does not help, draw the waterfall
    Prove(Box<prove::ProveArgs>),
    /// One run of the connection-capacity demonstration (made by prove, in a network namespace)
    #[command(hide = true)]
    Capacity(prove::CapacityArgs),
}

/// What the advice is for.
#[derive(Clone, Debug, clap::Args)]
pub struct WorkloadArgs {
    /// The kind of work
    #[arg(long = "for", value_enum, default_value_t = For::All)]
    kind: For,
    /// Connections to hold at once: adds a plan with the memory arithmetic
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=CONNECTIONS_MAX))]
    connections: Option<u64>,
    /// Worker threads to plan for [default: one per usable CPU]
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=1024))]
    workers: Option<u64>,
    /// Interfaces in the data's path [default: all with a device behind them]
    #[arg(long = "interface", value_name = "NAME")]
    interfaces: Vec<String>,
    /// Look at the limits of this process instead of our own
    #[arg(long)]
    pid: Option<u32>,
    /// Look at a recorded host (a tree made by record.sh) instead of this one
    #[arg(long, value_name = "FOLDER")]
    root: Option<PathBuf>,
}

impl WorkloadArgs {
    /// The host that is looked at.
    #[must_use]
    pub fn host(&self) -> Host {
        let host = self.root.as_deref().map_or_else(Host::live, Host::recorded);
        match self.pid {
            Some(pid) => host.with_process(pid),
            None => host,
        }
    }

    /// The recorded host that was named, if one was.
    #[must_use]
    pub fn root(&self) -> Option<&Path> {
        self.root.as_deref()
    }

    /// What these arguments name that does not exist, in words.
    #[must_use]
    pub fn refusal(&self) -> Option<String> {
        not_recorded(self.root())
            .or_else(|| self.absent_interface())
            .or_else(|| self.absent_process())
    }

    fn absent_interface(&self) -> Option<String> {
        let folder = "/sys/class/net";
        let known = self.host().list(folder).unwrap_or_default();
        let name = self.interfaces.iter().find(|name| !known.contains(name))?;
        Some(format!(
            "--interface {name}: there is no such interface; there are: {}",
            known.join(", ")
        ))
    }

    fn absent_process(&self) -> Option<String> {
        let pid = self.pid.filter(|_| !self.host().exists(&self.host().process_path("status")))?;
        Some(format!("--pid {pid}: there is no such process"))
    }

    /// The workload.
    #[must_use]
    pub fn workload(&self) -> Workload {
        Workload {
            kind: self.kind,
            asked_connections: self.connections,
            interfaces: self.interfaces.clone(),
            workers: self.workers,
        }
    }
}

#[derive(Debug, clap::Args)]
struct CheckArgs {
    #[command(flatten)]
    workload: WorkloadArgs,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Write one self-contained page to FILE
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
struct ApplyArgs {
    /// Items or groups to apply [default: all that cost something and have no risk]
    #[arg(value_name = "ITEM")]
    items: Vec<String>,
    #[command(flatten)]
    workload: WorkloadArgs,
    /// Really do it
    #[arg(long)]
    yes: bool,
    /// Also write files that keep the changes over restarts
    #[arg(long)]
    persist: bool,
    /// Accept a security trade, named one by one
    #[arg(long, value_name = "ITEM")]
    accept_risk: Vec<String>,
    /// Folder of the journal [default: /var/lib/tidegate/tune, below --root]
    #[arg(long, value_name = "FOLDER")]
    state: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
struct UndoArgs {
    /// Folder of the journal [default: /var/lib/tidegate/tune, below --root]
    #[arg(long, value_name = "FOLDER")]
    state: Option<PathBuf>,
    /// Leave what was changed since as it is, and forget our changes to it
    #[arg(long)]
    forget: bool,
    /// The recorded host that apply was given
    #[arg(long, value_name = "FOLDER")]
    root: Option<PathBuf>,
}

/// Runs `tidegate tune`.
#[must_use]
pub fn run(args: Args) -> ExitCode {
    let result = match args.command {
        None => usage("say what to do: tidegate tune check | apply | undo | prove (see --help)"),
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
            complain(&error.to_string());
            ExitCode::from(LEFT_OVER)
        }
    }
}

fn run_check(args: &CheckArgs) -> io::Result<u8> {
    if let Some(message) = args.workload.refusal() {
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
        .or_else(|| args.workload.refusal());
    if let Some(message) = wrong {
        return usage(&message);
    }
    let host = args.workload.host();
    let report = check(&host, &args.workload.workload());
    let state = state_folder(args.state.as_deref(), &host);
    let in_place = in_place(&host, &report, args, &state)?;
    let (chosen, mut refused) = choose(&report, args);
    refused.retain(|line| !in_place.iter().any(|(entry, _)| line.starts_with(entry.item.id)));
    let mut out = io::stdout().lock();
    for line in &refused {
        writeln!(out, "{line}")?;
    }
    let trades = trades_left_out(&report, args);
    if !trades.is_empty() {
        writeln!(
            out,
            "Left out, as they trade one thing for another: {}.\nName those that you want; `tidegate tune check` explains them.\n",
            trades.join(", ")
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
        writeln!(
            out,
            "\nNothing was changed. With --yes this is done; `tidegate tune undo` puts it back."
        )?;
        return Ok(DONE);
    }
    let mut journal = Journal::open(&state).map_err(io::Error::other)?;
    journal.is_of(&host.root_name()).map_err(io::Error::other)?;
    let mut works = Works { host: &host, journal: &mut journal, out: &mut out, failed: false };
    for entry in &chosen {
        works.look_again_and_apply(entry, &report, args.persist)?;
    }
    for (entry, actions) in &in_place {
        works.apply(entry, actions)?;
    }
    let failed = works.failed;
    journal.tidy().map_err(io::Error::other)?;
    if journal.outstanding().is_empty() {
        writeln!(out, "\nNothing was changed.")?;
    } else {
        writeln!(out, "\n`tidegate tune undo` puts everything back.")?;
    }
    Ok(if failed || !refused.is_empty() { LEFT_OVER } else { DONE })
}

/// Items being applied, one after the other.
struct Works<'a, W> {
    host: &'a Host,
    journal: &'a mut Journal,
    out: &'a mut W,
    failed: bool,
}

impl<W: Write> Works<'_, W> {
    /// What was done for the items before may have changed what this one finds: a driver places the
    /// interrupts of new queues itself.
    fn look_again_and_apply(
        &mut self,
        before: &Entry,
        report: &Report,
        persist: bool,
    ) -> io::Result<()> {
        let item = before.item;
        let finding = detect(item, self.host, &report.workload, &report.environment);
        let entry = Entry { item, finding };
        if entry.finding.state != State::Costs {
            return writeln!(self.out, "{}: good by now: {}", item.id, entry.finding.found);
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
                writeln!(self.out, "  not done: {error}")
            }
        }
    }
}

/// Named items that are good because they were applied before: with `--persist` they can still be kept.
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
    journal.is_of(&host.root_name()).map_err(io::Error::other)?;
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

/// The entries that are to be applied, in the order to apply them, and a line for each that was asked for
/// but is not.
fn choose<'a>(report: &'a Report, args: &ApplyArgs) -> (Vec<&'a Entry>, Vec<String>) {
    let (mut chosen, mut refused) = (Vec::new(), Vec::new());
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
            (State::Good, _) if named => refused.push(format!("{id}: good already ({})", entry.finding.found)),
            (State::Skipped(reason) | State::Blocked(reason), _) if named => {
                refused.push(format!("{id}: cannot be applied: {reason}"));
            }
            (State::Costs, Risk::SecurityTrade) if !accepted && (named || in_group) => refused.push(format!(
                "{id}: refused, it is a security trade. Not when: {} To do it anyway: --accept-risk {id}",
                entry.item.avoid
            )),
            (State::Costs, Risk::SecurityTrade) if !accepted => {}
            (State::Costs, Risk::Trade) if args.items.is_empty() => {}
            (State::Costs, _) if nothing_to_do && named => refused.push(format!(
                "{id}: only by hand: {}",
                entry.finding.advice.join("; ")
            )),
            (State::Costs, _) if !nothing_to_do => chosen.push(entry),
            _ => {}
        }
    }
    let place = |entry: &&Entry| items::ALL.iter().position(|item| item.id == entry.item.id);
    chosen.sort_by_key(place);
    (chosen, refused)
}

/// What could be applied but is left to be named, when no item is named at all.
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
            writeln!(out, "{}: not kept over restarts: {command}{more}", entry.item.id)?;
        }
    }
    Ok(actions)
}

fn show(out: &mut impl Write, host: &Host, entry: &Entry, actions: &[Action]) -> io::Result<()> {
    writeln!(out, "{}: {}", entry.item.id, entry.finding.found)?;
    let beside = actions.iter().filter(|action| !action.acts()).count();
    if beside > 0 {
        writeln!(out, "  saved first: {beside} settings that the driver may set anew with it")?;
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
        writeln!(out, "  {}    ({before})", action.command_text())?;
        if let Action::File { text, .. } = action {
            for line in text.lines() {
                writeln!(out, "    | {line}")?;
            }
        }
    }
    Ok(())
}

fn run_undo(args: &UndoArgs) -> io::Result<u8> {
    if let Some(message) = not_recorded(args.root.as_deref()) {
        return usage(&message);
    }
    let host = args.root.as_deref().map_or_else(Host::live, Host::recorded);
    let state = state_folder(args.state.as_deref(), &host);
    let mut out = io::stdout().lock();
    if !journal::exists(&state).map_err(io::Error::other)? {
        writeln!(out, "Nothing to undo: there are no changes in {}.", state.display())?;
        return Ok(DONE);
    }
    let mut journal = Journal::open(&state).map_err(io::Error::other)?;
    let fates = undo(&host, &mut journal).map_err(io::Error::other)?;
    let mut left = 0;
    for undone in &fates {
        let target = undone.step.action.target();
        let since = if undone.restarted { " (the machine was restarted since)" } else { "" };
        let line = match &undone.fate {
            Fate::AlreadyBack => format!("as before already{since}"),
            Fate::Restored => "restored".to_owned(),
            Fate::Failed(reason) => format!("NOT restored: {reason}"),
            Fate::ChangedSince(value) => {
                let before = undone.step.before.as_deref().unwrap_or("(nothing)").trim();
                format!(
                    "left alone: changed since to {:?}{since}; before it was {:?}",
                    apart(value, before),
                    apart(before, value)
                )
            }
        };
        writeln!(out, "{}: {target}: {line}", undone.step.item)?;
        if undone.is_left() {
            left += 1;
            if args.forget {
                journal.forget(undone.step.number).map_err(io::Error::other)?;
            }
        }
    }
    journal.tidy().map_err(io::Error::other)?;
    if left == 0 {
        writeln!(out, "Everything is as it was.")?;
        return Ok(DONE);
    }
    if args.forget {
        writeln!(out, "{left} left as they are, and forgotten.")?;
        return Ok(DONE);
    }
    writeln!(out, "{left} left. To leave them as they are for good: tidegate tune undo --forget")?;
    Ok(LEFT_OVER)
}

/// Lines of a tool's long answer that are shown.
const LINES_SHOWN_MAX: usize = 4;

/// What of `one` is not in `other`: of a tool's answer of many lines those that differ, else all of it.
fn apart(one: &str, other: &str) -> String {
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
        shown.push_str(&format!("; and {} lines more", differing.len() - LINES_SHOWN_MAX));
    }
    shown
}

/// Where the journal lies: a recorded host has its own, inside its tree.
fn state_folder(asked: Option<&Path>, host: &Host) -> PathBuf {
    asked.map_or_else(|| host.locate(STATE_FOLDER), Path::to_owned)
}

/// What is wrong with `--root`: every recorded host has at least some of /proc, and one without any would
/// have nothing to find fault with.
fn not_recorded(root: Option<&Path>) -> Option<String> {
    let root = root.filter(|root| !root.join("proc").is_dir())?;
    Some(format!(
        "--root {}: this is no recorded host, as it has no folder `proc`; give a folder made by record.sh",
        root.display()
    ))
}

/// What is wrong with the names of items and groups.
pub(crate) fn unknown_name<'a>(mut names: impl Iterator<Item = &'a String>) -> Option<String> {
    let name = names.find(|name| !is_known(name))?;
    Some(format!("there is no item or group {name}{}", nearest(name)))
}

fn is_known(name: &str) -> bool {
    items::by_id(name).is_some() || Group::ALL.iter().any(|group| group.name() == name)
}

/// A hint with the items that contain a part of the name.
fn nearest(name: &str) -> String {
    let part = name.rsplit('-').next().unwrap_or(name);
    let near: Vec<&str> =
        items::ALL.iter().map(|item| item.id).filter(|id| id.contains(part)).take(3).collect();
    if near.is_empty() {
        "; `tidegate tune check` lists them".to_owned()
    } else {
        format!("; did you mean {}?", near.join(" or "))
    }
}

/// Writes a result file, naming it when that fails.
pub(crate) fn write_file(file: &Path, text: &str) -> io::Result<()> {
    fs::write(file, text)
        .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", file.display())))
}

/// Prints an error.
pub(crate) fn complain(message: &str) {
    let _ = writeln!(io::stderr().lock(), "tidegate tune: {message}");
}

fn usage(message: &str) -> io::Result<u8> {
    complain(message);
    Ok(USAGE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_long_answer_only_what_differs_is_shown() {
        let (before, now) = ("a: on\n\tb: off\nc: on\n", "a: on\n\tb: on\nc: on\n");
        assert_eq!((apart(now, before), apart(before, now)), ("b: on".into(), "b: off".into()));
        assert_eq!(apart("555", "99"), "555");
        let many: String = (0..9).map(|line| format!("{line}\n")).collect();
        assert_eq!(apart(&many, "x"), "0; 1; 2; 3; and 5 lines more");
    }
}
