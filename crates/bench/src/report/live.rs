//! The live view on a terminal: one line, rewritten a few times a second.
//! In: ticks of a run. Out: text for stderr. Never: shown where stderr is not a terminal.

use crate::drive::Tick;
use crate::plan::Plan;
use crate::quantity::{micros, short};

const BAR_CELLS: usize = 20;

/// Makes the line.
#[derive(Debug, Default)]
pub struct Live {
    errors: u64,
    requests: u64,
    rate_per_s: f64,
    latencies: String,
}

impl Live {
    /// The line after `tick`, with the codes that rewrite it.
    pub fn line(&mut self, name: &str, plan: &Plan, tick: &Tick<'_>) -> String {
        self.requests += tick.interval.requests;
        self.errors += tick.interval.errors;
        let rate = tick.interval.requests as f64 / tick.over.as_secs_f64().max(1e-3);
        // Smoothed over about a second, so that digits can be read.
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
        // Without line wrap (DECAWM) meanwhile: what a narrow terminal cuts off must not make a new line.
        format!(
            "\r\x1b[K\x1b[?7l{name}{} {}/s  {} errors  {}{phase}\x1b[?7h",
            bar(self.progress(plan, tick)),
            short(self.rate_per_s),
            self.errors,
            self.latencies,
        )
    }

    /// What removes the line.
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
