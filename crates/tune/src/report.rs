//! A report as text for people and as JSON for scripts.
//! In: a `Report`. Out: strings. `page` makes the HTML page.

use crate::check::{ChangedBy, Entry, Report};
use crate::finding::State;
use crate::item::{Published, Risk};
use serde_json::{Value, json};
use std::fmt::Write;

/// Width of the text report in columns.
const TEXT_COLUMNS: usize = 80;

/// The report for a terminal.
#[must_use]
pub fn text(report: &Report) -> String {
    let mut out = String::new();
    let count = |name| report.in_state(name).count();
    wrapped(&mut out, "", 0, &report.environment.line());
    let summary = format!(
        "Score for \"{}\": {} of 100. Items: {} cost performance, {} cannot be changed from here, {} \
            are good, {} were skipped.",
        report.workload.kind.name(),
        report.score,
        count("costs"),
        count("blocked"),
        count("good"),
        count("skipped")
    );
    wrapped(&mut out, "", 0, &summary);
    if !report.environment.root {
        out.push_str("Not running as root: items that need root are skipped.\n");
    }
    if count("costs") > 0 {
        out.push_str("\nItems that cost performance, largest gain first\n");
    }
    for entry in report.in_state("costs") {
        costs_text(&mut out, entry);
    }
    if count("blocked") > 0 {
        out.push_str("\nItems that cost performance and cannot be changed from here\n");
    }
    for entry in report.in_state("blocked") {
        head_line(&mut out, entry);
        paragraph(&mut out, "found", &entry.finding.found);
        if let State::Blocked(reason) = &entry.finding.state {
            paragraph(&mut out, "blocked", reason);
        }
    }
    if !report.plan.is_empty() {
        out.push_str("\nPlan for the connections\n");
        for line in &report.plan {
            wrapped(&mut out, "  ", 4, line);
        }
    }
    out.push_str("\nGood\n");
    for entry in report.in_state("good") {
        listed(&mut out, entry.item.id, &entry.finding.found);
    }
    if count("skipped") > 0 {
        out.push_str("\nSkipped\n");
    }
    for entry in report.in_state("skipped") {
        if let State::Skipped(reason) = &entry.finding.state {
            listed(&mut out, entry.item.id, reason);
        }
    }
    out
}

/// The gain in short form: the published figure if it applies to this host, otherwise the name of the benefit.
#[must_use]
pub fn gain_text(entry: &Entry) -> String {
    let gain = &entry.item.gain;
    match gain.published {
        Published::Step(percent) if entry.percent() == percent => format!("+{percent:.0} %"),
        Published::PartOfStep(percent) => format!("part of +{percent:.0} %"),
        Published::Step(_) | Published::No => gain.benefit.name().to_owned(),
    }
}

/// The published gain, for scripts: the percentage of the item itself, and the percentage of the step of which the
/// item is one part.
fn published_json(entry: &Entry) -> (Option<f64>, Option<f64>) {
    match entry.item.gain.published {
        Published::Step(percent) if entry.percent() == percent => (Some(percent), None),
        Published::PartOfStep(percent) => (None, Some(percent)),
        Published::Step(_) | Published::No => (None, None),
    }
}

/// The report for scripts.
#[must_use]
pub fn json(report: &Report) -> Value {
    json!({
        "environment": {
            "line": report.environment.line(),
            "kernel": report.environment.kernel,
            "hypervisor": report.environment.hypervisor,
            "container": report.environment.container,
            "cpus": report.environment.cpus.len(),
            "memory_bytes": report.environment.memory_bytes,
            "root": report.environment.root,
        },
        "for": report.workload.kind.name(),
        "connections": report.workload.connections(),
        "score": report.score,
        "plan": report.plan,
        "items": report.entries.iter().map(entry_json).collect::<Vec<_>>(),
    })
}

fn entry_json(entry: &Entry) -> Value {
    let (item, finding) = (entry.item, &entry.finding);
    let (percent, step_percent) = published_json(entry);
    let reason = match &finding.state {
        State::Blocked(reason) | State::Skipped(reason) => Some(reason),
        State::Good | State::Costs => None,
    };
    json!({
        "id": item.id,
        "group": item.group.name(),
        "title": item.title,
        "state": finding.state.name(),
        "reason": reason,
        "found": finding.found,
        "why": finding.why,
        "mechanism": item.mechanism,
        "avoid": item.avoid,
        "gain": {
            "benefit": item.gain.benefit.name(),
            "percent": percent,
            "step_percent": step_percent,
            "weight": entry.percent(),
            "source": item.gain.source,
        },
        "risk": item.risk.name(),
        "can": entry.changed_by().name(),
        "commands": finding.commands(),
        "by_hand": finding.advice,
    })
}

fn costs_text(out: &mut String, entry: &Entry) {
    head_line(out, entry);
    paragraph(out, "found", &entry.finding.found);
    let why = if entry.finding.why.is_empty() { entry.item.mechanism } else { &entry.finding.why };
    paragraph(out, "why", why);
    let commands = entry.finding.commands();
    for (position, command) in commands.iter().enumerate() {
        let label = if position == 0 { "apply" } else { "" };
        match position {
            0..4 => paragraph(out, label, command),
            4 => paragraph(out, label, &format!("and {} more", commands.len() - 4)),
            _ => {}
        }
    }
    for (position, line) in entry.finding.advice.iter().enumerate() {
        paragraph(out, if position == 0 { "by hand" } else { "" }, line);
    }
    if entry.item.risk != Risk::None {
        paragraph(out, "caution", entry.item.avoid);
    }
    paragraph(out, "source", entry.item.gain.source);
}

fn head_line(out: &mut String, entry: &Entry) {
    let risk = match entry.item.risk {
        Risk::None => String::new(),
        risk => format!(" [{}]", risk.label()),
    };
    let hand = match entry.changed_by() {
        ChangedBy::Operator if entry.finding.state == State::Costs => " [by hand]",
        ChangedBy::Operator | ChangedBy::Apply | ChangedBy::Tidegate | ChangedBy::Nothing => "",
    };
    out.push('\n');
    let head = format!("{}: {}{risk}{hand}", entry.item.id, entry.item.title);
    wrapped(out, &format!("  {:<13} ", gain_text(entry)), 16, &head);
}

/// The name of an item and a message about it.
fn listed(out: &mut String, id: &str, text: &str) {
    wrapped(out, &format!("  {id:<24} "), 27, text);
}

/// A labelled paragraph, wrapped and indented.
fn paragraph(out: &mut String, label: &str, body: &str) {
    wrapped(out, &format!("    {label:<8} "), 13, body);
}

/// Writes `lead` and `body` in lines of `TEXT_COLUMNS`; lines after the first are indented.
pub(crate) fn wrapped(out: &mut String, lead: &str, indent: usize, body: &str) {
    let mut line = lead.to_owned();
    let mut is_empty = true;
    for word in body.split_whitespace() {
        if !is_empty && line.chars().count() + 1 + word.chars().count() > TEXT_COLUMNS {
            let _ = writeln!(out, "{}", line.trim_end());
            line = " ".repeat(indent);
            is_empty = true;
        }
        if !is_empty {
            line.push(' ');
        }
        line.push_str(word);
        is_empty = false;
    }
    let _ = writeln!(out, "{}", line.trim_end());
}
