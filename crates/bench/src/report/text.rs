//! The report for people, and the percentile dump for plotting scripts.
//! In: runs. Out: text. Invariant: if the client was saturated, the first line reports it.

use super::ratios::FIGURES;
use super::{NOTHING, Run, longest, paired_rounds, percentile};
use crate::histogram::{PERCENTILES, Times};
use crate::quantity::{counted, micros, short};
use core::fmt::Write as _;

/// The report fits a terminal of this many columns.
const COLUMNS: usize = 80;
/// How many percentiles fit into a line of the table, in addition to the longest time.
const PERCENTILE_COLUMNS_MAX: usize = 6;

/// The report of `runs` as text.
#[must_use]
pub fn to_text(runs: &[Run]) -> String {
    let mut text = String::new();
    for run in runs.iter().filter(|run| !run.outcome.saturated.is_empty()) {
        let name = if runs.len() > 1 { format!(" ({})", run.name) } else { String::new() };
        let reasons = run.outcome.saturated.join("; ");
        write_wrapped(
            &mut text,
            "",
            &format!(
                "CLIENT SATURATED{name}: {reasons}. The server may be faster than these figures show: give the \
                 client more CPU time or lower the load."
            ),
        );
    }
    for run in runs {
        // Writing to a String cannot fail.
        let _ = write_run(&mut text, run);
    }
    if runs.len() > 1 {
        let _ = write_ratios(&mut text, runs);
    }
    text
}

fn write_run(text: &mut String, run: &Run) -> core::fmt::Result {
    let outcome = &run.outcome;
    let tally = &outcome.tally;
    for words in run.caveats() {
        write_wrapped(text, "", &words);
    }
    writeln!(text, "{}", run.name)?;
    if run.name != run.url {
        writeln!(text, "  {}", run.url)?;
    }
    write_wrapped(text, "  ", &run.load_in_words());
    let seconds = outcome.counted.as_secs_f64().max(1e-9);
    writeln!(
        text,
        "  requests    {}   {}/s   {}B/s received",
        tally.requests,
        short(outcome.rate_per_s()),
        short(tally.bytes_in_time as f64 / seconds)
    )?;
    write_offered(text, run)?;
    write_tls(text, run)?;
    write_errors(text, run)?;
    writeln!(text)?;
    write_times(text, run)?;
    writeln!(text)?;
    write_spent(text, run)
}

fn write_offered(text: &mut String, run: &Run) -> core::fmt::Result {
    let tally = &run.outcome.tally;
    if run.is_open_loop() {
        writeln!(
            text,
            "  plan        {} sent late because no connection was free, {} never sent",
            tally.waited_for_connection, tally.unsent
        )?;
    }
    Ok(())
}

fn write_tls(text: &mut String, run: &Run) -> core::fmt::Result {
    let tally = &run.outcome.tally;
    if tally.handshakes() > 0 {
        writeln!(
            text,
            "  tls         {}\n  handshakes  {} full, {} resumed",
            tally.negotiated.as_deref().unwrap_or("TLS"),
            tally.handshakes_full,
            tally.handshakes_resumed
        )?;
    }
    if tally.goaways > 0 {
        writeln!(text, "  http/2      {} ended by GOAWAY", counted(tally.goaways, "connection"))?;
    }
    Ok(())
}

fn write_errors(text: &mut String, run: &Run) -> core::fmt::Result {
    let tally = &run.outcome.tally;
    let statuses = ["?", "1xx", "2xx", "3xx", "4xx", "5xx"];
    let seen: Vec<String> = statuses
        .iter()
        .zip(tally.statuses)
        .filter(|(_, count)| *count > 0)
        .map(|(name, count)| format!("{name} {count}"))
        .collect();
    writeln!(
        text,
        "  status      {}",
        if seen.is_empty() { "none".into() } else { seen.join("  ") }
    )?;
    if tally.errors.total() == 0 {
        let is_all = tally.left_over_in_words().is_empty();
        writeln!(
            text,
            "  errors      none{}",
            if is_all { "" } else { ", but see the warnings at the top" }
        )?;
    }
    for (class, count, words) in tally.failures() {
        write_wrapped(text, "  ", &format!("errors      {class} {count}: {words}"));
    }
    if let Some(reference) = &run.outcome.reference {
        for (class, count, words) in reference.failures() {
            write_wrapped(text, "  ", &format!("reference   {class} {count}: {words}"));
        }
        if reference.requests == 0 {
            writeln!(text, "  reference   no response, so the added latency is unknown")?;
        }
    }
    Ok(())
}

/// Writes `words` in lines of at most `COLUMNS`; lines after the first are indented by two more columns.
fn write_wrapped(text: &mut String, indent: &str, words: &str) {
    let mut line = indent.to_owned();
    let mut is_empty = true;
    for word in words.split(' ') {
        if !is_empty && line.chars().count() + 1 + word.chars().count() > COLUMNS {
            text.push_str(&line);
            text.push('\n');
            line = format!("{indent}  ");
            is_empty = true;
        }
        if !is_empty {
            line.push(' ');
        }
        line.push_str(word);
        is_empty = false;
    }
    text.push_str(&line);
    text.push('\n');
}

/// Writes the table of percentiles, and below it the meaning of its rows. A percentile for which no row has enough
/// samples has no column. The highest percentiles of a long run appear only in the JSON report.
fn write_times(text: &mut String, run: &Run) -> core::fmt::Result {
    let tally = &run.outcome.tally;
    let columns: Vec<(&str, f64)> = PERCENTILES
        .into_iter()
        .filter(|(_, percent)| *percent <= 50.0 || tally.latency.carries(*percent))
        .take(PERCENTILE_COLUMNS_MAX)
        .collect();
    write!(text, "  {:<10}", "")?;
    for (name, _) in &columns {
        write!(text, "{:>9}", name.replace('_', "."))?;
    }
    writeln!(text, "{:>9}", "max")?;
    let row = |text: &mut String, name: &str, times: &Times| {
        write!(text, "  {name:<10}")?;
        for (_, percent) in &columns {
            write!(text, "{:>9}", percentile(times, *percent))?;
        }
        writeln!(text, "{:>9}", longest(times))
    };
    row(text, "latency", &tally.latency)?;
    if run.is_open_loop() {
        row(text, "service", &tally.service)?;
        row(text, "send lag", &tally.schedule_error)?;
    }
    row(text, "first byte", &tally.first_byte)?;
    row(text, "connect", &tally.connect)?;
    if tally.handshakes() > 0 {
        row(text, "handshake", &tally.handshake)?;
    }
    if let Some(reference) = run.answered_reference() {
        row(text, "reference", &reference.latency)?;
    }
    if let Some(reference) = run.answered_reference().filter(|_| tally.requests > 0) {
        write!(text, "  {:<10}", "added")?;
        for (_, percent) in &columns {
            let both = tally
                .latency
                .reportable_us(*percent)
                .zip(reference.latency.reportable_us(*percent));
            let added = both.map_or_else(
                || NOTHING.to_owned(),
                |(load, probe)| {
                    let sign = if load < probe { "-" } else { "+" };
                    format!("{sign}{}", micros((load - probe).abs()))
                },
            );
            write!(text, "{added:>9}")?;
        }
        writeln!(text)?;
    }
    for line in meanings(run) {
        write_wrapped(text, "  ", line);
    }
    Ok(())
}

/// The meaning of the table's rows: the start and the end of each time.
fn meanings(run: &Run) -> Vec<&'static str> {
    let mut lines = Vec::new();
    if run.is_open_loop() {
        lines.push("latency: planned send to last byte; service: actual send to last byte;");
        lines.push("send lag: planned to actual send if a connection was free; first byte: from the actual send.");
    } else {
        lines.push("latency: send to last byte; first byte: send to first byte.");
        lines.push("Stalls are hidden: a closed loop sends nothing while the server stalls; --rate shows them.");
    }
    if run.outcome.tally.handshakes() > 0 {
        lines.push("connect: until the TCP connection; handshake: from there to the end of the TLS handshake.");
    }
    if run.answered_reference().is_some() {
        lines.push("reference: the probe during the load, planned send to last byte; added: latency minus reference.");
    }
    lines
}

fn write_spent(text: &mut String, run: &Run) -> core::fmt::Result {
    let outcome = &run.outcome;
    if let Some((slowest, fastest)) = outcome.tally.fairness {
        writeln!(
            text,
            "  fairness    {slowest} requests on the slowest connection, {fastest} on the fastest"
        )?;
    }
    let wall: f64 = outcome.threads.iter().map(|thread| thread.wall.as_secs_f64()).sum();
    let cpu: f64 = outcome.threads.iter().map(|thread| thread.cpu.as_secs_f64()).sum();
    writeln!(
        text,
        "  client      {}, busy {:.0} % of its threads' time",
        match outcome.client_cpu_us_per_request() {
            Some(each) => format!("{each:.2} µs CPU per request"),
            None => format!("{cpu:.3} s CPU, no response"),
        },
        100.0 * cpu / wall.max(1e-9)
    )?;
    if outcome.tally.requests == 0 {
        return writeln!(text);
    }
    let requests = outcome.tally.requests as f64;
    if let Some(server) = outcome.server {
        writeln!(
            text,
            "  server      {:.2} µs CPU per request (process), {} MiB resident\n              \
             {:.3} context switches per request",
            server.cpu.as_secs_f64() * 1e6 / requests,
            server.resident_bytes / (1024 * 1024),
            server.context_switches as f64 / requests,
        )?;
    }
    if let Some(busy) = outcome.server_busy {
        writeln!(
            text,
            "  server CPUs {:.2} µs per request (all non-idle time)",
            busy.as_secs_f64() * 1e6 / requests
        )?;
    }
    writeln!(text)
}

/// Writes the ratio of each candidate to the first one, taken within rounds, with its spread.
fn write_ratios(text: &mut String, runs: &[Run]) -> core::fmt::Result {
    let Some(first) = runs.first() else {
        return Ok(());
    };
    writeln!(
        text,
        "ratios to {}, paired by round ({}, 95 % spread)",
        first.name,
        counted(paired_rounds(runs), "round")
    )?;
    for run in &runs[1..] {
        writeln!(text, "  {}", run.name)?;
        if run.outcome.tally.requests == 0 || first.outcome.tally.requests == 0 {
            writeln!(text, "    none: one of the two got no response")?;
            continue;
        }
        if run.rounds.is_empty() || first.rounds.is_empty() {
            writeln!(text, "    none: no round was completed")?;
            continue;
        }
        for figure in &FIGURES {
            let ratio = figure.ratio(run, first);
            if ratio.median.is_finite() {
                writeln!(
                    text,
                    "    {:<20} {:>7.3}   {:.3} to {:.3}",
                    figure.name, ratio.median, ratio.low, ratio.high
                )?;
            }
        }
    }
    Ok(())
}

/// The percentile curves, one point per line: `#pctl invtail latency_us service_us first_byte_us`. If there are
/// several runs, each has a block that begins with its name; two empty lines separate blocks (gnuplot's `index`).
#[must_use]
pub fn percentile_dump(runs: &[Run]) -> String {
    match runs {
        [run] => dump_of(run),
        _ => {
            let block = |run: &Run| format!("# {}\n{}", run.name, dump_of(run));
            runs.iter().map(block).collect::<Vec<String>>().join("\n\n")
        }
    }
}

fn dump_of(run: &Run) -> String {
    let tally = &run.outcome.tally;
    let of = |times: &Times, percent| {
        times
            .reportable_us(percent)
            .map_or_else(|| NOTHING.to_owned(), |micros| format!("{micros:.3}"))
    };
    let mut text = "#pctl invtail latency_us service_us first_byte_us\n".to_owned();
    for (percent, latency) in tally.latency.curve() {
        let left = 100.0 - percent;
        let inverse_tail = if left > 0.0 { 100.0 / left } else { f64::INFINITY };
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "{percent:.7} {inverse_tail:.1} {latency:.3} {} {}",
            of(&tally.service, percent),
            of(&tally.first_byte, percent)
        );
    }
    text
}
