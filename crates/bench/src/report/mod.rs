//! What a run found, for people and for machines.
//! In: runs. Out: text, one JSON object, lines over time, one HTML page.
//! Never: shows a latency without saying where its clock started.

mod chart;
pub mod html;
mod json;
mod lines;
mod live;
mod text;

pub use json::to_json;
pub use lines::Lines;
pub use live::Live;
pub use text::{percentile_dump, to_text};

use crate::drive::Outcome;
use crate::plan::{Pace, Plan};

/// One candidate's run, with what was asked for.
#[derive(Clone, Debug)]
pub struct Run {
    /// What it is called in tables; its URL when it was given no name.
    pub name: String,
    /// What was asked for.
    pub url: String,
    /// The load.
    pub plan: Plan,
    /// What was found.
    pub outcome: Outcome,
    /// Figures of each paired round; empty when there was one run alone.
    pub rounds: Vec<RoundFigures>,
}

/// The figures of one paired round.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RoundFigures {
    /// Answers a second.
    pub rate_per_s: f64,
    /// CPU time of the server for each answer, µs; 0 when it was not watched.
    pub server_cpu_us: f64,
    /// µs.
    pub p50_us: f64,
    /// µs.
    pub p99_us: f64,
    /// µs.
    pub p99_9_us: f64,
}

impl Run {
    /// CPU time of the server for each answer, µs: by CPU where CPUs were named, else by process.
    #[must_use]
    pub fn server_cpu_us_per_request(&self) -> Option<f64> {
        let spent = self.outcome.server_busy.or(self.outcome.server.map(|server| server.cpu))?;
        Some(spent.as_secs_f64() * 1e6 / self.outcome.tally.requests.max(1) as f64)
    }

    /// Whether latencies count from planned send times.
    #[must_use]
    pub fn is_open_loop(&self) -> bool {
        self.plan.pace != Pace::Closed
    }

    /// The load in one line.
    #[must_use]
    pub fn load_in_words(&self) -> String {
        let plan = &self.plan;
        let mut words = vec![
            counted(u64::from(plan.connections), "connection"),
            counted(u64::from(plan.threads), "thread"),
        ];
        words.push(match plan.pace {
            Pace::Closed => "closed loop".to_owned(),
            Pace::Total { per_second, arrivals } => format!(
                "open loop, {} requests/s, {arrivals:?}",
                crate::quantity::short(per_second)
            )
            .to_lowercase(),
            Pace::PerConnection { per_second, arrivals } => format!(
                "open loop, {} requests/s on each connection, {arrivals:?}",
                crate::quantity::short(per_second)
            )
            .to_lowercase(),
        });
        if plan.pipeline > 1 {
            words.push(format!("{} requests in flight on each", plan.pipeline));
        }
        if !plan.think.is_zero() {
            words.push(format!("{:?} of rest between requests", plan.think));
        }
        if let Some(requests) = plan.requests_per_connection {
            words.push(format!("{} a connection", counted(requests, "request")));
        }
        words.push(format!("{:.2} s", self.outcome.counted.as_secs_f64()));
        words.join(", ")
    }
}

fn counted(count: u64, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}
