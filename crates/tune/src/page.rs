//! A report as one self-contained HTML page, without scripts, external fonts or images.
//! In: a `Report`. Out: HTML.
//! Never: writes text of the host into the page unescaped.

use crate::check::{Entry, Report};
use crate::finding::State;
use crate::item::Risk;
use crate::report::gain_text;
use std::fmt::Write;

/// The style sheet, shared with the page of `prove`.
pub(crate) const STYLE: &str = include_str!("page.css");

/// The report as a page.
#[must_use]
pub fn html(report: &Report) -> String {
    let mut out = String::new();
    head(&mut out, "tidegate tune check");
    let _ = write!(
        out,
        "<header><div class=score style=\"--score:{score}\"><b>{score}</b><span>of 100</span></div>\
         <div><h1>Host tuning report</h1><p>for <b>{kind}</b>, {connections} connections</p>\
         <p class=quiet>{line}</p></div></header>",
        score = report.score,
        kind = report.workload.kind.name(),
        connections = report.workload.connections(),
        line = escape(&report.environment.line()),
    );
    tiles(&mut out, report);
    if !report.plan.is_empty() {
        out.push_str("<section><h2>Plan for the connections</h2><ul class=plan>");
        for line in &report.plan {
            let _ = write!(out, "<li>{}", escape(line));
        }
        out.push_str("</ul></section>");
    }
    let sections = [
        ("costs", "Items that cost performance, largest gain first"),
        ("blocked", "Items that cost performance and cannot be changed from here"),
    ];
    for (state, title) in sections {
        if report.in_state(state).next().is_some() {
            let _ = write!(out, "<section><h2>{title}</h2>");
            for entry in report.in_state(state) {
                card(&mut out, entry);
            }
            out.push_str("</section>");
        }
    }
    for (state, title) in [("good", "Good"), ("skipped", "Skipped")] {
        let _ = write!(out, "<section><h2>{title}</h2><table>");
        for entry in report.in_state(state) {
            let text = match &entry.finding.state {
                State::Skipped(reason) => reason,
                _ => &entry.finding.found,
            };
            let _ = write!(
                out,
                "<tr><th>{}<td title=\"{}\">{}",
                entry.item.id,
                escape(entry.item.mechanism),
                escape(text)
            );
        }
        out.push_str("</table></section>");
    }
    out.push_str(
        "<footer>Made by <code>tidegate tune check --html</code>. Gains are published figures; \
         <code>tidegate tune prove</code> measures them on this host.</footer>",
    );
    out
}

/// The beginning of a page, up to its body.
pub(crate) fn head(out: &mut String, title: &str) {
    let _ = write!(
        out,
        "<!doctype html><html lang=en><meta charset=utf-8>\
         <meta name=viewport content=\"width=device-width,initial-scale=1\">\
         <title>{title}</title><style>{STYLE}</style><body>"
    );
}

/// Escapes text for use inside elements and quoted attributes.
#[must_use]
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

fn tiles(out: &mut String, report: &Report) {
    out.push_str("<div class=tiles>");
    for (state, label) in [
        ("costs", "cost performance"),
        ("blocked", "cannot be changed from here"),
        ("good", "good"),
        ("skipped", "skipped"),
    ] {
        let count = report.in_state(state).count();
        let _ = write!(out, "<div class={state}><b>{count}</b> {label}</div>");
    }
    out.push_str("</div>");
}

fn card(out: &mut String, entry: &Entry) {
    let (item, finding) = (entry.item, &entry.finding);
    let risk = match item.risk {
        Risk::None => "",
        Risk::Trade => "<span class=trade>trade-off</span>",
        Risk::SecurityTrade => "<span class=security>security trade-off</span>",
    };
    let _ = write!(
        out,
        "<article><div class=gain>{}</div><div><h3>{} <code>{}</code> {risk}</h3><p class=found>{}</p>",
        escape(&gain_text(entry)),
        escape(item.title),
        item.id,
        escape(&finding.found)
    );
    if let State::Blocked(reason) = &finding.state {
        let _ = write!(out, "<p class=found>Blocked: {}</p>", escape(reason));
    }
    if !finding.why.is_empty() {
        let _ = write!(out, "<p>On this host: {}.</p>", escape(&finding.why));
    }
    let _ = write!(out, "<p>{}</p>", escape(item.mechanism));
    if !finding.actions.is_empty() {
        out.push_str("<pre>");
        for command in finding.commands() {
            let _ = writeln!(out, "{}", escape(&command));
        }
        let accepted = match item.risk {
            Risk::SecurityTrade => format!(" --accept-risk {}", item.id),
            Risk::None | Risk::Trade => String::new(),
        };
        let _ = write!(
            out,
            "</pre><p class=quiet>applied by <code>tidegate tune apply {}{accepted} --yes</code></p>",
            item.id
        );
    }
    for line in &finding.advice {
        let _ = write!(out, "<p class=hand>{}</p>", escape(line));
    }
    let _ = write!(
        out,
        "<p class=quiet>Caution: {} Source: {}.</p></div></article>",
        escape(item.avoid),
        escape(item.gain.source)
    );
}
