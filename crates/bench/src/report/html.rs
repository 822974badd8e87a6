//! The report as one self-contained page.
//! In: runs. Out: HTML with inline SVG, without scripts and without external resources.
//! Invariant: all text from the operator or the server is escaped.

use super::chart::{self, Axis, Scale, Series, Stroke, escape};
use super::ratios::FIGURES;
use super::{Run, longest, paired_rounds, percentile};
use crate::histogram::{PERCENTILES, Times};
use crate::machine;
use crate::quantity::{counted, micros, short};
use core::fmt::Write as _;

/// Number of line colours in the page's style.
const COLOURS: usize = 8;

/// The page.
#[must_use]
pub fn page(runs: &[Run], command: &str) -> String {
    let title = match runs {
        [run] => run.name.clone(),
        _ => runs.iter().map(|run| run.name.as_str()).collect::<Vec<_>>().join(" · "),
    };
    let mut body = String::new();
    // Writing to a String cannot fail.
    let _ = write!(body, "<header><p class=\"mark\">tidegate bench</p><h1>{}</h1>", escape(&title));
    if let Some(run) = runs.first() {
        let mut load = run.load_in_words();
        if let Some(negotiated) = &run.outcome.tally.negotiated {
            let _ = write!(load, ", {negotiated}");
        }
        let _ = write!(body, "<p class=\"load\">{}</p>", escape(&load));
    }
    body.push_str("</header>");
    for run in runs {
        body.push_str(&verdict(run));
    }
    body.push_str(&cards(runs));
    if runs.len() > 1 {
        body.push_str(&ratios(runs));
    }
    body.push_str(&percentile_chart(runs));
    body.push_str(&rate_chart(runs));
    body.push_str(&latency_chart(runs));
    body.push_str(&cpu_chart(runs));
    body.push_str(&percentile_table(runs));
    body.push_str(&environment(command));
    format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\
         <title>{}</title><style>{STYLE}</style></head><body><main>{body}</main></body></html>\n",
        escape(&title)
    )
}

fn verdict(run: &Run) -> String {
    let mut text = String::new();
    if !run.outcome.saturated.is_empty() {
        let _ = write!(
            text,
            "<p class=\"warning\"><b>Client saturated</b> ({}): {}. The server may be faster than \
             these figures show: give the client more CPU time or lower the load.</p>",
            escape(&run.name),
            escape(&run.outcome.saturated.join("; "))
        );
    }
    for words in run.caveats() {
        let _ = write!(text, "<p class=\"warning\">{}: {}</p>", escape(&run.name), escape(&words));
    }
    let outcome = &run.outcome;
    for (name, tally) in [("", Some(&outcome.tally)), (" (reference)", outcome.reference.as_ref())]
    {
        for (class, count, words) in tally.iter().flat_map(|tally| tally.failures()) {
            let _ = write!(
                text,
                "<p class=\"warning\">{}{name}: {count} × {class}: {}</p>",
                escape(&run.name),
                escape(words)
            );
        }
    }
    text
}

fn cards(runs: &[Run]) -> String {
    let mut text = String::new();
    for (index, run) in runs.iter().enumerate() {
        let latency = &run.outcome.tally.latency;
        let mut values = vec![
            ("requests/s", short(run.outcome.rate_per_s())),
            ("median", percentile(latency, 50.0)),
            ("p99", percentile(latency, 99.0)),
            ("p99.9", percentile(latency, 99.9)),
            ("max", longest(latency)),
        ];
        if let Some(cpu) = run.server_cpu_us_per_request() {
            values.push(("CPU/request", micros(cpu)));
        }
        let tally = &run.outcome.tally;
        if tally.handshakes() > 0 {
            values.push(("full handshakes", short(tally.handshakes_full as f64)));
            values.push(("resumed handshakes", short(tally.handshakes_resumed as f64)));
        }
        values.push(("errors", tally.errors.total().to_string()));
        text.push_str("<section class=\"cards\">");
        if runs.len() > 1 {
            let _ = write!(
                text,
                "<h3><i class=\"key solid b{}\"></i>{}</h3>",
                index % COLOURS,
                escape(&run.name)
            );
        }
        for (name, value) in values {
            let _ = write!(text, "<div class=\"card\"><b>{value}</b><span>{name}</span></div>");
        }
        text.push_str("</section>");
    }
    text
}

fn ratios(runs: &[Run]) -> String {
    let Some(first) = runs.first() else { return String::new() };
    let mut rows = String::new();
    for run in &runs[1..] {
        let _ = write!(rows, "<tr><th>{}</th>", escape(&run.name));
        for figure in &FIGURES {
            let ratio = figure.ratio(run, first);
            let _ = match ratio.median.is_finite() {
                true => write!(
                    rows,
                    "<td>{:.3} <small>{:.3} to {:.3}</small></td>",
                    ratio.median, ratio.low, ratio.high
                ),
                false => write!(rows, "<td>–</td>"),
            };
        }
        rows.push_str("</tr>");
    }
    let heads: String = FIGURES.iter().map(|figure| format!("<th>{}</th>", figure.name)).collect();
    format!(
        "<figure><h2>Ratios to {} in {}</h2><div class=\"scroll\"><table><tr><th></th>{heads}</tr>{rows}</table></div>\
         <p class=\"note\">Median of the ratios taken within each round; in small print the 95 % interval of the \
          resampled medians.</p></figure>",
        escape(&first.name),
        counted(paired_rounds(runs), "paired round")
    )
}

fn percentile_chart(runs: &[Run]) -> String {
    let mut series = Vec::new();
    for (index, run) in runs.iter().enumerate() {
        let tally = &run.outcome.tally;
        let mut add = |name: String, stroke: Stroke, times: &Times| {
            series.push(Series { name, colour: index % COLOURS, stroke, points: times.curve() });
        };
        let prefix = prefix(runs, run);
        add(format!("{prefix}latency"), Stroke::Solid, &tally.latency);
        if run.is_open_loop() {
            add(format!("{prefix}service time"), Stroke::Dashed, &tally.service);
        }
        if let Some(reference) = run.answered_reference() {
            let points = reference.latency.curve();
            let name = format!("{prefix}reference probe");
            let colour = if runs.len() == 1 { COLOURS - 1 } else { index % COLOURS };
            series.push(Series { name, colour, stroke: Stroke::Dotted, points });
        }
    }
    let x = Axis {
        label: "percentile",
        scale: Scale::Nines,
        write: |percent| {
            format!("{percent:.7}").trim_end_matches('0').trim_end_matches('.').to_owned() + " %"
        },
    };
    let y = Axis { label: "time", scale: Scale::Log, write: micros };
    let clock = if runs.iter().any(Run::is_open_loop) {
        "Latency is measured from the planned send, service time from the actual send."
    } else {
        "Closed loop: latency is measured from the send. Stalls are hidden, because nothing is sent during a stall."
    };
    format!(
        "{}<p class=\"note\">{clock}</p>",
        chart::lines("Latency by percentile", &x, &y, &series)
    )
}

/// The prefix that distinguishes the lines of a run; empty for a single run.
fn prefix(runs: &[Run], run: &Run) -> String {
    if runs.len() == 1 { String::new() } else { format!("{}: ", run.name) }
}

fn seconds_axis() -> Axis {
    Axis {
        label: "seconds since the start",
        scale: Scale::Exact,
        write: |seconds| format!("{seconds:.2} s"),
    }
}

fn rate_chart(runs: &[Run]) -> String {
    let series: Vec<Series> = runs
        .iter()
        .enumerate()
        .map(|(index, run)| Series {
            name: run.name.clone(),
            colour: index % COLOURS,
            stroke: Stroke::Solid,
            points: run.outcome.points.iter().map(|point| (point.at_s, point.rate_per_s)).collect(),
        })
        .collect();
    let y = Axis { label: "requests/s", scale: Scale::Linear, write: short };
    chart::lines("Rate over time", &seconds_axis(), &y, &series)
}

type OfPoint = fn(&crate::drive::Point) -> Option<f64>;

fn latency_chart(runs: &[Run]) -> String {
    let mut series = Vec::new();
    for (index, run) in runs.iter().enumerate() {
        let colour = |step: usize| (if runs.len() == 1 { step } else { index }) % COLOURS;
        let measures: [(&str, Stroke, OfPoint); 3] = [
            ("p50", Stroke::Dotted, |point| point.p50_us),
            ("p99", Stroke::Solid, |point| point.p99_us),
            ("p99.9", Stroke::Dashed, |point| point.p99_9_us),
        ];
        for (step, (name, stroke, of)) in measures.into_iter().enumerate() {
            series.push(Series {
                name: if runs.len() == 1 {
                    name.to_owned()
                } else {
                    format!("{}: {name}", run.name)
                },
                colour: colour(step),
                stroke: if runs.len() == 1 { Stroke::Solid } else { stroke },
                // An interval with too few responses for the percentile has no point.
                points: run
                    .outcome
                    .points
                    .iter()
                    .filter_map(|point| Some((point.at_s, of(point)?)))
                    .collect(),
            });
        }
    }
    let y = Axis { label: "latency", scale: Scale::Log, write: micros };
    chart::lines("Latency over time", &seconds_axis(), &y, &series)
}

fn cpu_chart(runs: &[Run]) -> String {
    let mut values = Vec::new();
    for (index, run) in runs.iter().enumerate() {
        if let Some(cpu) = run.server_cpu_us_per_request() {
            let name =
                if runs.len() == 1 { "server".to_owned() } else { format!("{}: server", run.name) };
            values.push((name, cpu, index % COLOURS));
        }
    }
    for run in runs {
        let name = if runs.len() == 1 {
            "client".to_owned()
        } else {
            format!("client, loading {}", run.name)
        };
        let cpu = run.outcome.client_cpu_us_per_request();
        values.extend(cpu.map(|cpu| (name, cpu, COLOURS - 1)));
    }
    chart::bars("CPU time per request", micros, &values)
}

fn percentile_table(runs: &[Run]) -> String {
    let mut head = String::new();
    for (name, _) in PERCENTILES {
        let _ = write!(head, "<th>{}</th>", name.replace('_', "."));
    }
    let mut rows = String::new();
    let mut row = |name: &str, times: &Times| {
        let _ = write!(rows, "<tr><th>{}</th>", escape(name));
        for (_, percent) in PERCENTILES {
            let _ = write!(rows, "<td>{}</td>", percentile(times, percent));
        }
        let _ = write!(rows, "<td>{}</td></tr>", longest(times));
    };
    for run in runs {
        let tally = &run.outcome.tally;
        let prefix = prefix(runs, run);
        row(&format!("{prefix}latency"), &tally.latency);
        if run.is_open_loop() {
            row(&format!("{prefix}service time"), &tally.service);
            row(&format!("{prefix}send lag"), &tally.schedule_error);
        }
        row(&format!("{prefix}first byte"), &tally.first_byte);
        row(&format!("{prefix}connect"), &tally.connect);
        if tally.handshakes() > 0 {
            row(&format!("{prefix}TLS handshake"), &tally.handshake);
        }
        if let Some(reference) = run.answered_reference() {
            row(&format!("{prefix}reference probe"), &reference.latency);
        }
    }
    format!(
        "<figure><h2>Percentiles</h2><div class=\"scroll\"><table><tr><th></th>{head}<th>max</th></tr>\
         {rows}</table></div></figure>"
    )
}

fn environment(command: &str) -> String {
    let made_at = httpdate::fmt_http_date(std::time::SystemTime::now());
    let mut rows = format!(
        "<tr><th>created</th><td class=\"text\">{made_at} by tidegate {}</td></tr>",
        env!("CARGO_PKG_VERSION")
    );
    for (name, text) in machine::environment() {
        let _ = write!(rows, "<tr><th>{name}</th><td class=\"text\">{}</td></tr>", escape(&text));
    }
    let _ = write!(
        rows,
        "<tr><th>command</th><td class=\"text\"><code>{}</code></td></tr>",
        escape(command)
    );
    format!(
        "<figure><h2>Environment</h2><div class=\"scroll\"><table>{rows}</table></div></figure>"
    )
}

const STYLE: &str = include_str!("style.css");
