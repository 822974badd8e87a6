//! The live view on a terminal: one line, updated a few times a second.
//! In: ticks of a run. Out: text for stderr. Never: shown if stderr is not a terminal.

use crate::drive::Tick;
use crate::plan::Plan;
use crate::quantity::{micros, short};

const BAR_CELLS: usize = 20;

/// Writes the line.
#[derive(Debug, Default)]
pub struct Live {
    /// Failures since the start.
    errors: u64,
    /// Complete responses since the start.
    requests: u64,
    /// Smoothed rate; 0 before the first tick with a response.
    rate_per_s: f64,
    /// Percentiles of the last complete second, as text.
    latencies: String,
}

impl Live {
    /// The line for `tick`, with the control codes that overwrite the previous line.
    pub fn line(&mut self, name: &str, plan: &Plan, tick: &Tick<'_>) -> String {
        self.requests += tick.interval.requests;
        self.errors += tick.interval.errors;
        let rate = tick.interval.requests as f64 / tick.over.as_secs_f64().max(1e-3);
        // Smoothed over about a second, so that the digits are readable.
        self.rate_per_s =
            if self.rate_per_s > 0.0 { self.rate_per_s * 0.7 + rate * 0.3 } else { rate };
        if let Some((second, _)) = tick.second {
            self.latencies = format!(
                "p50 {}  p99 {}  max {}",
                micros(second.latency.percentile_us(50.0)),
                micros(second.latency.percentile_us(99.0)),
                micros(second.latency.max_us())
            );
        }
        let phase = if tick.is_counting { "" } else { "  warming up" };
        let name = if name.is_empty() { String::new() } else { format!("{name}  ") };
        // Line wrap (DECAWM) is off while the line is written, so that a narrow terminal cuts it off.
        format!(
            "\r\x1b[K\x1b[?7l{name}{} {}/s  {} errors  {}{phase}\x1b[?7h",
            bar(self.progress(plan, tick)),
            short(self.rate_per_s),
            self.errors,
            self.latencies,
        )
    }

    /// The control codes that remove the line.
    #[must_use]
    pub fn clear() -> &'static str {
        "\r\x1b[K"
    }

    fn progress(&self, plan: &Plan, tick: &Tick<'_>) -> f64 {
        let by_time =
            plan.ends_at().map_or(0.0, |end| tick.at.as_secs_f64() / end.as_secs_f64().max(1e-9));
        let by_requests =
            plan.requests.map_or(0.0, |requests| self.requests as f64 / requests.max(1) as f64);
        by_time.max(by_requests).min(1.0)
    }
}

fn bar(progress: f64) -> String {
    let full = (progress * BAR_CELLS as f64).round() as usize;
    let (full, empty) = ("█".repeat(full), "░".repeat(BAR_CELLS - full.min(BAR_CELLS)));
    format!("{full}{empty} {:>3.0} %", progress * 100.0)
}
