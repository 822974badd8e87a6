//! `tidegate bench http`: turns the command line into runs and their reports.
//! In: arguments. Out: a report on stdout, progress on stderr, an exit code.
//! Never: starts a candidate on a port that is in use; leaves a candidate running, however the command ends.
//! Limits: those of `plan`.

mod args;
mod candidates;

pub use args::HttpArgs;

use crate::drive::{self, Job, Outcome, Reference, Tick};
use crate::interrupt;
use crate::machine;
use crate::plan::Plan;
use crate::report::{self, Lines, Live, RoundFigures, Run};
use crate::target::{RequestMix, Target, Url};
use candidates::Candidate;
use core::sync::atomic::Ordering;
use std::io::{self, IsTerminal as _, Write as _};
use std::path::Path;
use std::process::ExitCode;

/// Runs `tidegate bench http`.
#[must_use]
pub fn run(args: &HttpArgs) -> ExitCode {
    match run_all(args) {
        Ok(code) => code,
        Err(why) => {
            eprintln!("tidegate: {why}");
            ExitCode::from(2)
        }
    }
}

fn run_all(args: &HttpArgs) -> Result<ExitCode, String> {
    let plan = args.plan()?;
    check_names(args)?;
    let urls = args.urls()?;
    let is_comparison = urls.len() > 1;
    let mut jobs = Vec::new();
    for (url, name) in &urls {
        jobs.push((name.clone(), url.clone(), job(args, &plan, url)?));
    }
    // Registered before the first candidate is started, so that every signal stops the candidates.
    let stop = interrupt::stop_on_signal();
    // The candidates run until the end of this function, even if a round fails.
    let mut candidates = Vec::new();
    for (index, (name, url, job)) in jobs.iter_mut().enumerate() {
        let command = args.start.get(index).map(String::as_str);
        let candidate = Candidate::new(name, url, command, &args.server_cpus, stop)?;
        if stop.load(Ordering::Relaxed) {
            eprintln!("tidegate: stopped by a signal before the measurement began");
            return Ok(ExitCode::FAILURE);
        }
        job.server_pids.extend(candidate.pid());
        candidates.push(candidate);
    }
    let rounds = if is_comparison { args.rounds() } else { 1 };
    let mut runs: Vec<Option<Run>> = jobs.iter().map(|_| None).collect();
    let mut progress = Progress::new(args, &plan);
    // In a comparison round 0 is the warm-up, which is not measured.
    let first = u32::from(!is_comparison);
    for round in first..=rounds {
        for ((name, url, job), run) in jobs.iter().zip(&mut runs) {
            if stop.load(Ordering::Relaxed) && run.is_some() {
                continue;
            }
            let label = match round {
                _ if !is_comparison => String::new(),
                0 => format!("{name} warm-up"),
                _ => format!("{name} {round}/{rounds}"),
            };
            let outcome = drive::run(job, stop, &mut |tick| progress.show(&label, tick))?;
            progress.clear();
            let is_stopped = stop.load(Ordering::Relaxed);
            // A round that ended in its warm-up or ramp is not added to measured rounds.
            if (round > 0 || is_stopped) && (run.is_none() || outcome.has_counted) {
                let is_whole_round = is_comparison && round > 0 && !outcome.was_stopped;
                merge(run, name, url, &plan, outcome, is_whole_round);
            }
        }
        if stop.load(Ordering::Relaxed) {
            break;
        }
    }
    let ended: Vec<String> = candidates.iter().filter_map(Candidate::ended).collect();
    drop(candidates);
    let runs: Vec<Run> = runs.into_iter().flatten().collect();
    let lost = publish(args, &runs);
    for why in lost.iter().chain(&ended) {
        // A closed stderr is ignored, because the report has been written.
        let _ = writeln!(io::stderr(), "tidegate: {why}");
    }
    let is_well = lost.is_empty() && ended.is_empty();
    Ok(if is_well { exit_code(args, &runs) } else { ExitCode::FAILURE })
}

/// Checks arguments whose errors would otherwise appear only in the report.
fn check_names(args: &HttpArgs) -> Result<(), String> {
    for &pid in &args.server_pids {
        if machine::spent(pid).is_none() {
            return Err(format!("--server-pid {pid}: no such process"));
        }
    }
    let online = machine::online_cpus();
    for (option, cpus) in [("--cpu", &args.server_cpus), ("--client-cpus", &args.client_cpus)] {
        let missing = cpus.iter().find(|cpu| !online.is_empty() && !online.contains(cpu));
        if let Some(cpu) = missing {
            return Err(format!(
                "{option} {cpu}: no such CPU; this machine has {}",
                ranges(&online)
            ));
        }
    }
    for (option, path) in [("--html", &args.html), ("--percentiles", &args.percentiles)] {
        let Some(path) = path else { continue };
        try_to_write(path).map_err(|error| format!("{option} {}: {error}", path.display()))?;
    }
    Ok(())
}

/// Checks that a file can be written. An existing file keeps its content until the report is written; a new
/// file is removed again, so that a run that cannot start leaves nothing behind.
fn try_to_write(path: &Path) -> io::Result<()> {
    let was_there = path.symlink_metadata().is_ok();
    std::fs::OpenOptions::new().create(true).append(true).open(path)?;
    if was_there { Ok(()) } else { std::fs::remove_file(path) }
}

fn ranges(cpus: &[usize]) -> String {
    let mut words: Vec<(usize, usize)> = Vec::new();
    for &cpu in cpus {
        match words.last_mut() {
            Some((_, last)) if *last + 1 == cpu => *last = cpu,
            _ => words.push((cpu, cpu)),
        }
    }
    let word = |(first, last): &(usize, usize)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    };
    words.iter().map(word).collect::<Vec<String>>().join(",")
}

fn job(args: &HttpArgs, plan: &Plan, url: &Url) -> Result<Job, String> {
    let options = args.request_options()?;
    let mix = match &args.urls_file {
        None => RequestMix::single(url, &options)?,
        Some(path) => {
            let text = std::fs::read_to_string(path)
                .map_err(|error| format!("--urls {}: {error}", path.display()))?;
            RequestMix::parse(&text, url, &options)
                .map_err(|why| format!("--urls {}: {why}", path.display()))?
        }
    };
    let tls = if args.http2 { args.tls.for_http2() } else { args.tls.clone() };
    let reference = match &args.reference {
        None => None,
        Some(text) => {
            let url = Url::parse(text)?;
            let mix = RequestMix::single(&url, &options)?;
            Some(Reference {
                targets: targets(&mix)?,
                tls: args.tls.without_name().plan(mix.authorities(), plan.connections)?,
                mix,
                per_second: args.reference_rate,
            })
        }
    };
    Ok(Job {
        plan: plan.clone(),
        targets: targets(&mix)?,
        tls: tls.plan(mix.authorities(), plan.connections)?,
        mix,
        cpus: args.client_cpus.clone(),
        reference,
        stops_at_error: args.stop_at_error,
        server_pids: args.server_pids.clone(),
        server_cpus: args.server_cpus.clone(),
    })
}

fn targets(mix: &RequestMix) -> Result<Vec<Target>, String> {
    let target = |url: &Url| Ok(Target { address: url.resolve()?, is_secure: url.is_secure });
    mix.authorities().iter().map(target).collect()
}

/// Adds one round to the candidate's earlier rounds.
fn merge(
    run: &mut Option<Run>,
    name: &str,
    url: &Url,
    plan: &Plan,
    outcome: Outcome,
    is_whole_round: bool,
) {
    let one = Run {
        name: name.to_owned(),
        url: url.to_string(),
        plan: plan.clone(),
        outcome,
        rounds: Vec::new(),
    };
    let latency = &one.outcome.tally.latency;
    let figures = RoundFigures {
        rate_per_s: one.outcome.rate_per_s(),
        server_cpu_us: one.server_cpu_us_per_request().unwrap_or(0.0),
        // An unknown figure is NaN, so its ratio is NaN and is not shown.
        p50_us: latency.reportable_us(50.0).unwrap_or(f64::NAN),
        p99_us: latency.reportable_us(99.0).unwrap_or(f64::NAN),
        p99_9_us: latency.reportable_us(99.9).unwrap_or(f64::NAN),
    };
    let all = match run {
        Some(all) => {
            all.outcome.add(&one.outcome);
            all
        }
        None => run.insert(one),
    };
    // A ratio with an incomplete round or a warm-up would be meaningless.
    if is_whole_round {
        all.rounds.push(figures);
    }
}

/// Writes the report in all requested forms. Returns an error message for each form that could not be
/// written.
fn publish(args: &HttpArgs, runs: &[Run]) -> Vec<String> {
    let mut lost = Vec::new();
    let command = std::env::args().collect::<Vec<String>>().join(" ");
    let text = if args.json {
        format!("{:#}\n", report::to_json(runs, &command))
    } else {
        report::to_text(runs)
    };
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        // A closed pipe is not a failure: the reader wanted no more output.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            lost.push(format!("could not write the whole report to stdout: {error}"));
        }
        _ => {}
    }
    let mut write = |option: &str, path: &Path, text: String| {
        if let Err(error) = std::fs::write(path, text) {
            lost.push(format!("{option} {}: {error}", path.display()));
        }
    };
    if let Some(path) = &args.html {
        write("--html", path, report::html::page(runs, &command));
    }
    if let Some(path) = &args.percentiles {
        write("--percentiles", path, report::percentile_dump(runs));
    }
    lost
}

/// The exit code: 1 if anything failed (including the probe), if no response arrived, if the run was given
/// up, or if one of the `-n` requests has no response; with `--strict` also if the client or a disturbed host
/// limited the figures, or the plan was not kept.
fn exit_code(args: &HttpArgs, runs: &[Run]) -> ExitCode {
    let failed = runs.iter().any(|run| {
        let tally = &run.outcome.tally;
        let lost = tally.unanswered > 0 && run.plan.requests.is_some() && !run.outcome.was_stopped;
        let probe = run.outcome.reference.as_ref();
        let probe_failed =
            probe.is_some_and(|probe| probe.errors.total() > 0 || probe.requests == 0);
        tally.errors.total() > 0 || tally.requests == 0 || tally.gave_up || lost || probe_failed
    });
    let doubtful = runs.iter().any(|run| {
        let outcome = &run.outcome;
        [&outcome.saturated, &outcome.disturbed, &outcome.blocked].iter().any(|why| !why.is_empty())
    });
    if failed || (args.strict && doubtful) { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// Shows the progress of a run: a line each second on stdout, or one updated line on stderr.
struct Progress<'a> {
    args: &'a HttpArgs,
    plan: &'a Plan,
    lines: Lines,
    live: Live,
    /// Whether the updated line is shown: stderr is a terminal and `--lines` is not given.
    is_live: bool,
}

impl<'a> Progress<'a> {
    fn new(args: &'a HttpArgs, plan: &'a Plan) -> Self {
        if args.lines > 0 {
            // A closed pipe is not a failure: the reader wanted no more output.
            let _ = writeln!(io::stdout(), "{}", Lines::header());
        }
        Self {
            args,
            plan,
            lines: Lines::default(),
            live: Live::new(has_colour()),
            is_live: args.lines == 0 && io::stderr().is_terminal(),
        }
    }

    fn show(&mut self, label: &str, tick: &Tick<'_>) {
        if self.args.lines > 0 {
            let ramp = self.plan.ramp.as_secs_f64();
            let throttle = if ramp > 0.0 { (tick.at.as_secs_f64() / ramp).min(1.0) } else { 1.0 };
            let unix_seconds = std::time::SystemTime::now()
                .duration_since(std::time::UNIX_EPOCH)
                .map_or(0, |since| since.as_secs());
            let throttle_percent = (throttle * 100.0) as u32;
            let network = machine::NetworkUse::now();
            if let Some(line) = self.lines.line(tick, unix_seconds, throttle_percent, network) {
                let _ = writeln!(io::stdout(), "{line}");
            }
        }
        if self.is_live {
            show_on_terminal(&self.live.line(label, self.plan, tick));
        }
    }

    fn clear(&mut self) {
        if self.is_live {
            show_on_terminal(Live::clear());
        }
        self.live = Live::new(has_colour());
    }
}

/// Whether stderr shows colours: it is a terminal, and the user has not turned colours off (no-color.org).
fn has_colour() -> bool {
    let is_off = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let is_dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
    io::stderr().is_terminal() && !is_off && !is_dumb
}

/// Writes to the terminal. Errors are ignored: the terminal may be closed (SIGHUP), and the report does not depend
/// on it.
fn show_on_terminal(text: &str) {
    let _ = io::stderr().write_all(text.as_bytes());
}
