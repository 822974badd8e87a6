//! The result of `prove` as text, as an SVG chart and as an HTML page.
//! In: a `Proof` and the results of the capacity demonstration. Out: strings.

use crate::page::{escape, head};
use crate::prove::demonstration::Demonstration;
use crate::prove::trial::{Proof, Trial};
use std::fmt::Write;

/// Noise, as a ratio, above which the report warns about it.
const NOISY: f64 = 0.05;

/// The content of a report of `prove`.
#[derive(Clone, Debug)]
pub struct ProofReport {
    /// The environment of the measurement.
    pub environment: String,
    /// The method: client, server, CPUs, rounds.
    pub method: String,
    /// The result of the experiment.
    pub proof: Proof,
    /// Items that were not tried, with the reason.
    pub not_tried: Vec<(String, String)>,
    /// The results of the capacity runs.
    pub demonstrations: Vec<Demonstration>,
}

impl ProofReport {
    /// The result in one sentence.
    #[must_use]
    pub fn verdict(&self) -> String {
        let kept = self.proof.kept();
        let tried = self.proof.alone.len();
        if tried == 0 && self.proof.interrupted {
            return "Interrupted before the first change was measured.".to_owned();
        }
        if tried == 0 {
            return "No change can be tried under this load.".to_owned();
        }
        if kept.is_empty() {
            return format!(
                "None of the {tried} measured changes saves more CPU per request on this host than the noise."
            );
        }
        let left: f64 = self
            .proof
            .in_order
            .iter()
            .filter(|trial| trial.helps)
            .map(|trial| trial.ratio.median)
            .product();
        let gain = (1.0 / left - 1.0) * 100.0;
        format!(
            "{} of {tried} changes help on this host: {} ({gain:+.1} % requests per CPU second in total).",
            kept.len(),
            kept.join(", ")
        )
    }
}

/// The report for a terminal.
#[must_use]
pub fn text(report: &ProofReport) -> String {
    let mut out = String::new();
    let proof = &report.proof;
    let _ = writeln!(out, "{}\n{}\n\n{}", report.environment, report.method, report.verdict());
    if proof.interrupted {
        out.push_str(
            "Interrupted: the figures below were measured before the interruption. All changes were undone.\n",
        );
    }
    if let Some(noise) = proof.noise {
        let _ = writeln!(
            out,
            "Noise: the unchanged host against itself gives {} [{}, {}]; only a gain above {:.1} % counts.",
            percent(noise.median),
            percent(noise.low),
            percent(noise.high),
            noise.noise() * 100.0
        );
        if noise.noise() > NOISY {
            out.push_str("The measurements vary widely: more rounds (--rounds) or a quieter machine would show smaller gains.\n");
        }
        let p99 =
            proof.baseline_p99_us.map_or_else(String::new, |p99| format!(", p99 {p99:.0} us"));
        let _ = writeln!(
            out,
            "Unchanged host: {:.2} us CPU per request, {:.0} requests/s{p99}.",
            proof.baseline_us, proof.baseline_requests_per_s
        );
    }
    for (title, trials) in [
        ("Each alone", &proof.alone),
        ("In order, on top of the changes that helped", &proof.in_order),
    ] {
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
    let top = bars.iter().map(|bar| bar.requests_per_cpu_s).fold(1.0, f64::max);
    for bar in bars.iter().filter(|bar| bar.helps) {
        let length = (bar.requests_per_cpu_s / top * 50.0).round() as usize;
        let (label, value) = (bar.label, bar.requests_per_cpu_s);
        let _ = writeln!(out, "  {label:<34} {value:>9.0}  {}", "#".repeat(length));
    }
    for (id, reason) in report.not_tried.iter().chain(&proof.failed) {
        let _ = writeln!(out, "  not measured: {id}: {reason}");
    }
    if !report.demonstrations.is_empty() {
        out.push_str("\nCapacity (each run in its own network namespace)\n");
    }
    for shown in &report.demonstrations {
        let _ = writeln!(out, "  {}", shown.line());
    }
    out
}

/// The report as an HTML page.
#[must_use]
pub fn html(report: &ProofReport) -> String {
    let mut out = String::new();
    head(&mut out, "tidegate tune prove");
    let _ = write!(
        out,
        "<h1>Measured gains on this host</h1><p><b>{}</b></p><p class=quiet>{}<br>{}</p>{}",
        escape(&report.verdict()),
        escape(&report.environment),
        escape(&report.method),
        svg(&report.proof)
    );
    if let Some(noise) = report.proof.noise {
        let _ = write!(
            out,
            "<p>Noise: the unchanged host against itself: {} [{}, {}]. Only a gain above <b>{:.1} %</b> counts.</p>",
            percent(noise.median),
            percent(noise.low),
            percent(noise.high),
            noise.noise() * 100.0
        );
    }
    for (title, trials) in [
        ("Each alone", &report.proof.alone),
        ("In order, on top of the changes that helped", &report.proof.in_order),
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
    for shown in &report.demonstrations {
        let _ = write!(out, "<li>{}", escape(&shown.line()));
    }
    out.push_str("</ul></section>");
    if report.not_tried.is_empty() && report.proof.failed.is_empty() {
        return out;
    }
    out.push_str("<section><h2>Not measured</h2><table>");
    for (id, reason) in report.not_tried.iter().chain(&report.proof.failed) {
        let _ = write!(out, "<tr><th>{}<td>{}", escape(id), escape(reason));
    }
    out.push_str("</table></section>");
    out
}

/// The waterfall chart as SVG: requests per CPU second of the unchanged host and after each change in order.
/// Changes that helped are filled, others are outlined; the line is the interval.
#[must_use]
pub fn svg(proof: &Proof) -> String {
    const WIDTH: f64 = 860.0;
    const LEFT: f64 = 250.0;
    const ROW: f64 = 34.0;
    let rows = bars(proof);
    let top = rows.iter().map(Bar::end).fold(1.0, f64::max);
    let scale = (WIDTH - LEFT - 110.0) / top;
    let height = ROW * rows.len() as f64 + 40.0;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" \
         font-family=\"system-ui,sans-serif\" font-size=\"13\" fill=\"currentColor\">\
         <title>requests per CPU second</title>\
         <text x=\"{LEFT}\" y=\"20\" opacity=\".7\">requests per CPU second</text>"
    );
    for (position, bar) in rows.iter().enumerate() {
        let value = bar.requests_per_cpu_s;
        let y = 32.0 + ROW * position as f64;
        let style = if bar.helps {
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
            escape(bar.label),
            value * scale,
            LEFT + bar.end() * scale + 10.0,
            y + 15.0,
        );
        if let Some((low, high)) = bar.range {
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

/// A bar of the waterfall chart.
struct Bar<'a> {
    label: &'a str,
    requests_per_cpu_s: f64,
    /// 95 % interval; `None` for the unchanged host.
    range: Option<(f64, f64)>,
    helps: bool,
}

impl Bar<'_> {
    /// The right end of the bar, including its interval.
    fn end(&self) -> f64 {
        self.range.map_or(self.requests_per_cpu_s, |(_, high)| high.max(self.requests_per_cpu_s))
    }
}

/// The unchanged host, then each change in order on top of the changes that helped before it. The values are
/// computed from the ratios of neighbouring rounds, because the absolute figures drift with the machine.
fn bars(proof: &Proof) -> Vec<Bar<'_>> {
    let mut level = per_second(proof.baseline_us);
    let mut bars =
        vec![Bar { label: "unchanged", requests_per_cpu_s: level, range: None, helps: true }];
    for trial in &proof.in_order {
        let reached = level / trial.ratio.median;
        bars.push(Bar {
            label: &trial.id,
            requests_per_cpu_s: reached,
            range: Some((level / trial.ratio.high, level / trial.ratio.low)),
            helps: trial.helps,
        });
        if trial.helps {
            level = reached;
        }
    }
    bars
}

fn per_second(cpu_us: f64) -> f64 {
    if cpu_us > 0.0 { 1e6 / cpu_us } else { 0.0 }
}

/// A ratio of CPU per request, as a change in percent.
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
