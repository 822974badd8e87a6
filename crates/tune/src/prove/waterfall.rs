//! The result of `prove` as text, as a picture and as a page.
//! In: a `Proof`, what was shown of the capacity. Out: strings.

use crate::page::{escape, head};
use crate::prove::demonstration::Shown;
use crate::prove::trial::{Proof, Trial};
use std::fmt::Write;

/// Everything that a report of `prove` says.
#[derive(Clone, Debug)]
pub struct Story {
    /// Where it was measured.
    pub place: String,
    /// How: client, server, CPUs, rounds.
    pub method: String,
    /// The figures.
    pub proof: Proof,
    /// Items that were not tried, with the reason.
    pub not_tried: Vec<(String, String)>,
    /// The capacity runs.
    pub shown: Vec<Shown>,
}

impl Story {
    /// The sentence that says what came out.
    #[must_use]
    pub fn verdict(&self) -> String {
        let kept = self.proof.kept();
        let tried = self.proof.alone.len();
        if tried == 0 {
            return "Nothing here could be tried under this load.".to_owned();
        }
        if kept.is_empty() {
            return format!(
                "None of the {tried} changes tried saves more CPU per request here than the noise."
            );
        }
        let end = self.proof.in_order.iter().rev().find(|trial| trial.helps);
        let end_us = end.map_or(self.proof.baseline_us, |trial| trial.after_us);
        let gain = (self.proof.baseline_us / end_us.max(f64::MIN_POSITIVE) - 1.0) * 100.0;
        format!(
            "{} of {tried} changes help here: {} ({gain:+.1} % requests per CPU second in all).",
            kept.len(),
            kept.join(", ")
        )
    }
}

/// The story for a terminal.
#[must_use]
pub fn text(story: &Story) -> String {
    let mut out = String::new();
    let proof = &story.proof;
    let _ = writeln!(out, "{}\n{}\n\n{}", story.place, story.method, story.verdict());
    if proof.interrupted {
        out.push_str(
            "Interrupted: what follows is what was measured until then. Everything is put back.\n",
        );
    }
    if let Some(noise) = proof.noise {
        let _ = writeln!(
            out,
            "Noise: the host against itself gives {} [{}, {}]; only a gain above {:.1} % counts.",
            percent(noise.median),
            percent(noise.low),
            percent(noise.high),
            noise.noise() * 100.0
        );
        let p99 =
            proof.baseline_p99_us.map_or_else(String::new, |p99| format!(", p99 {p99:.0} us"));
        let _ = writeln!(
            out,
            "As found: {:.2} us CPU per request, {:.0} requests/s{p99}.",
            proof.baseline_us, proof.baseline_requests_per_s
        );
    }
    for (title, trials) in
        [("Each alone", &proof.alone), ("In order, on top of what helped", &proof.in_order)]
    {
        if !trials.is_empty() {
            let _ = writeln!(out, "\n{title} (CPU per request)");
        }
        for trial in trials {
            let _ = writeln!(
                out,
                "  {:<34} {:>8.2} -> {:>7.2} us  {:>8} [{}, {}]  {}",
                trial.id,
                trial.before_us,
                trial.after_us,
                percent(trial.ratio.median),
                percent(trial.ratio.low),
                percent(trial.ratio.high),
                word(trial)
            );
        }
    }
    out.push_str("\nWaterfall (requests per CPU second)\n");
    let bars = bars(proof);
    let top = bars.iter().map(|(_, value)| *value).fold(1.0, f64::max);
    for (label, value) in &bars {
        let length = (value / top * 50.0).round() as usize;
        let _ = writeln!(out, "  {label:<34} {value:>9.0}  {}", "#".repeat(length));
    }
    for (id, reason) in story.not_tried.iter().chain(&proof.failed) {
        let _ = writeln!(out, "  not tried: {id}: {reason}");
    }
    if !story.shown.is_empty() {
        out.push_str("\nCapacity (in a network namespace of its own)\n");
    }
    for shown in &story.shown {
        let _ = writeln!(out, "  {}", shown.line());
    }
    out
}

/// The story as a page.
#[must_use]
pub fn html(story: &Story) -> String {
    let mut out = String::new();
    head(&mut out, "tidegate tune prove");
    let _ = write!(
        out,
        "<h1>What tuning gains on this host</h1><p><b>{}</b></p><p class=quiet>{}<br>{}</p>{}",
        escape(&story.verdict()),
        escape(&story.place),
        escape(&story.method),
        svg(&story.proof)
    );
    if let Some(noise) = story.proof.noise {
        let _ = write!(
            out,
            "<p>The host against itself: {} [{}, {}]. Only a gain above <b>{:.1} %</b> counts.</p>",
            percent(noise.median),
            percent(noise.low),
            percent(noise.high),
            noise.noise() * 100.0
        );
    }
    for (title, trials) in [
        ("Each alone", &story.proof.alone),
        ("In order, on top of what helped", &story.proof.in_order),
    ] {
        let _ = write!(
            out,
            "<section><h2>{title}</h2><table><tr><th>change<th>before<th>after<th>CPU per request<th>95 % interval<th>"
        );
        for trial in trials {
            let _ = write!(
                out,
                "<tr><th>{}<td class=number>{:.2} us<td class=number>{:.2} us<td class=number>{}<td class=number>{} to {}<td>{}",
                escape(&trial.id),
                trial.before_us,
                trial.after_us,
                percent(trial.ratio.median),
                percent(trial.ratio.low),
                percent(trial.ratio.high),
                word(trial)
            );
        }
        out.push_str("</table></section>");
    }
    out.push_str("<section><h2>Capacity</h2><ul class=plan>");
    for shown in &story.shown {
        let _ = write!(out, "<li>{}", escape(&shown.line()));
    }
    out.push_str("</ul></section><section><h2>Not tried</h2><table>");
    for (id, reason) in story.not_tried.iter().chain(&story.proof.failed) {
        let _ = write!(out, "<tr><th>{}<td>{}", escape(id), escape(reason));
    }
    out.push_str("</table></section>");
    out
}

/// The waterfall as a picture: requests per CPU second, as found and after each change in order; what
/// helped is filled, what did not is an outline, the line is the interval.
#[must_use]
pub fn svg(proof: &Proof) -> String {
    const WIDTH: f64 = 860.0;
    const LEFT: f64 = 250.0;
    const ROW: f64 = 34.0;
    let mut rows: Vec<Row> =
        vec![("as found".to_owned(), per_second(proof.baseline_us), None, true)];
    for trial in &proof.in_order {
        let range = (
            per_second(trial.before_us * trial.ratio.high),
            per_second(trial.before_us * trial.ratio.low),
        );
        rows.push((trial.id.clone(), per_second(trial.after_us), Some(range), trial.helps));
    }
    let top = rows
        .iter()
        .map(|(_, value, range, _)| range.map_or(*value, |(_, high)| high.max(*value)))
        .fold(1.0, f64::max);
    let scale = (WIDTH - LEFT - 110.0) / top;
    let height = ROW * rows.len() as f64 + 40.0;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" \
         font-family=\"system-ui,sans-serif\" font-size=\"13\" fill=\"currentColor\">\
         <title>requests per CPU second</title>\
         <text x=\"{LEFT}\" y=\"20\" opacity=\".7\">requests per CPU second</text>"
    );
    for (position, (label, value, range, filled)) in rows.iter().enumerate() {
        let y = 32.0 + ROW * position as f64;
        let style = if *filled {
            "fill=\"#0b7285\""
        } else {
            "fill=\"none\" stroke=\"#868e96\" stroke-dasharray=\"4 3\""
        };
        let _ = write!(
            out,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>\
             <rect x=\"{LEFT}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"20\" rx=\"3\" {style}/>\
             <text x=\"{:.1}\" y=\"{:.1}\">{value:.0}</text>",
            LEFT - 10.0,
            y + 15.0,
            escape(label),
            value * scale,
            LEFT + range.map_or(*value, |(_, high)| high.max(*value)) * scale + 10.0,
            y + 15.0,
        );
        if let Some((low, high)) = range {
            let _ = write!(
                out,
                "<path d=\"M{:.1} {m:.1}H{:.1}M{0:.1} {t:.1}v8M{1:.1} {t:.1}v8\" stroke=\"#f08c00\" stroke-width=\"2\"/>",
                LEFT + low * scale,
                LEFT + high * scale,
                m = y + 10.0,
                t = y + 6.0
            );
        }
    }
    out.push_str("</svg>");
    out
}

/// A bar: its label, requests per CPU second, their interval, whether it is filled.
type Row = (String, f64, Option<(f64, f64)>, bool);

/// As found, then after each change that helped.
fn bars(proof: &Proof) -> Vec<(String, f64)> {
    let mut bars = vec![("as found".to_owned(), per_second(proof.baseline_us))];
    for trial in proof.in_order.iter().filter(|trial| trial.helps) {
        bars.push((format!("+ {}", trial.id), per_second(trial.after_us)));
    }
    bars
}

fn per_second(cpu_us: f64) -> f64 {
    if cpu_us > 0.0 { 1e6 / cpu_us } else { 0.0 }
}

/// A ratio of CPU per request as a change in percent.
fn percent(ratio: f64) -> String {
    format!("{:+.1} %", (ratio - 1.0) * 100.0)
}

fn word(trial: &Trial) -> &'static str {
    if trial.helps {
        "helps"
    } else if trial.ratio.low > 1.0 {
        "costs"
    } else {
        "no gain above the noise"
    }
}
