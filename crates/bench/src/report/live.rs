//! The live view on a terminal: one line, updated a few times a second.
//! In: ticks of a run. Out: text for stderr. Never: shown if stderr is not a terminal.

use core::time::Duration;

use crate::drive::Tick;
use crate::plan::Plan;
use crate::quantity::short;
use crate::report::percentile;

const BAR_CELLS: usize = 12;
/// A remaining time above this is shown as this value, in seconds.
const LEFT_MAX_S: f64 = 8_640_000.0;
/// The line fits a terminal of this many columns.
const COLUMNS: usize = 80;

const RED: &str = "\x1b[31m";
const GREEN: &str = "\x1b[32m";
const DIM: &str = "\x1b[2m";
const PLAIN: &str = "\x1b[0m";

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
    /// Whether the line uses colours.
    has_colour: bool,
}

impl Live {
    /// A view with colours, if the terminal shows them.
    #[must_use]
    pub fn new(has_colour: bool) -> Self {
        Self { has_colour, ..Self::default() }
    }

    /// The line for `tick`, with the control codes that overwrite the previous line.
    pub fn line(&mut self, name: &str, plan: &Plan, tick: &Tick<'_>) -> String {
        // The number of requests of the plan does not include the warm-up.
        if tick.is_counting {
            self.requests += tick.interval.requests;
        }
        self.errors += tick.interval.errors;
        let rate = tick.interval.requests as f64 / tick.over.as_secs_f64().max(1e-3);
        // Smoothed over about a second, so that the digits are readable.
        self.rate_per_s =
            if self.rate_per_s > 0.0 { self.rate_per_s * 0.7 + rate * 0.3 } else { rate };
        if let Some((second, _)) = tick.second {
            self.latencies = format!(
                "p50 {} p99 {}",
                percentile(&second.latency, 50.0),
                percentile(&second.latency, 99.0),
            );
        }
        let progress = self.progress(plan, tick);
        let left = match self.left(plan, tick, progress) {
            Some(left) => format!("{} left", seconds(left)),
            None => String::new(),
        };
        let errors = match self.errors {
            0 => self.coloured(GREEN, "no errors"),
            1 => self.coloured(RED, "1 error"),
            errors => self.coloured(RED, &format!("{} errors", short(errors as f64))),
        };
        let phase = if tick.is_counting { "" } else { "warm-up" };
        let errors_width = match self.errors {
            0 => "no errors".len(),
            1 => "1 error".len(),
            errors => short(errors as f64).len() + " errors".len(),
        };
        let parts = [
            (left.chars().count(), left),
            (errors_width, errors),
            (self.latencies.chars().count(), self.latencies.clone()),
            (phase.len(), self.coloured(DIM, phase)),
        ];
        let bar = bar(progress);
        let rate = format!("{}/s", short(self.rate_per_s));
        // The most important figures are first; figures that do not fit into the line are left out.
        let mut width = bar.chars().count() + 2 + rate.chars().count();
        let mut line = format!("{bar}  {rate}");
        for (columns, text) in parts.into_iter().filter(|(columns, _)| *columns > 0) {
            if width + 2 + columns > COLUMNS {
                continue;
            }
            width += 2 + columns;
            line.push_str("  ");
            line.push_str(&text);
        }
        let name_columns = name.chars().count();
        if name_columns > 0 && width + 2 + name_columns <= COLUMNS {
            line = format!("{name}  {line}");
        }
        // Line wrap (DECAWM) is off while the line is written, so that a narrow terminal cuts it off.
        format!("\r\x1b[K\x1b[?7l{line}\x1b[?7h")
    }

    /// The control codes that remove the line.
    #[must_use]
    pub fn clear() -> &'static str {
        "\r\x1b[K"
    }

    /// `text` in a colour, if the terminal shows colours.
    fn coloured(&self, colour: &str, text: &str) -> String {
        if self.has_colour { format!("{colour}{text}{PLAIN}") } else { text.to_owned() }
    }

    /// The remaining time of the plan; estimated from the current rate if a number of requests ends the plan.
    fn left(&self, plan: &Plan, tick: &Tick<'_>, progress: f64) -> Option<Duration> {
        let by_time = plan.ends_at().map(|end| end.saturating_sub(tick.at));
        let by_requests =
            plan.requests.filter(|_| progress > 0.0 && self.rate_per_s > 0.0).map(|requests| {
                let left = requests.saturating_sub(self.requests) as f64 / self.rate_per_s;
                Duration::from_secs_f64(left.min(LEFT_MAX_S))
            });
        [by_time, by_requests].into_iter().flatten().min()
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

/// A remaining time: `7 s`, `2:05`, `1:00:00`.
fn seconds(time: Duration) -> String {
    // Rounded up, so that only a run that has ended shows 0 s.
    let all = time.as_secs() + u64::from(time.subsec_nanos() > 0);
    match (all / 3600, all / 60 % 60, all % 60) {
        (0, 0, seconds) => format!("{seconds} s"),
        (0, minutes, seconds) => format!("{minutes}:{seconds:02}"),
        (hours, minutes, seconds) => format!("{hours}:{minutes:02}:{seconds:02}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tally::Interval;

    fn visible(line: &str) -> String {
        let mut text = String::new();
        let mut rest = line.chars();
        while let Some(c) = rest.next() {
            match c {
                // A control sequence ends with a letter.
                '\x1b' => drop(rest.by_ref().find(char::is_ascii_alphabetic)),
                '\r' => {}
                c => text.push(c),
            }
        }
        text
    }

    fn line(has_colour: bool, errors: u64, plan: &Plan) -> String {
        let mut interval = Interval { requests: 123_456, errors, ..Interval::default() };
        interval.latency.record(Duration::from_micros(123));
        let second = Some((&interval, Duration::from_secs(1)));
        let tick = Tick {
            at: Duration::from_secs(3),
            over: Duration::from_secs(1),
            interval: &interval,
            // Responses of the warm-up are not among those of the plan.
            is_counting: plan.requests.is_some(),
            second,
        };
        Live::new(has_colour).line("a rather long candidate 3/5", plan, &tick)
    }

    #[test]
    fn line_fits_eighty_columns_and_shows_the_remaining_time() {
        let plan = Plan { duration: Some(Duration::from_secs(10)), ..Plan::default() };
        for errors in [0, 1, 123_456_789] {
            let text = visible(&line(true, errors, &plan));
            assert!(text.chars().count() <= COLUMNS, "{text}");
            assert!(text.contains("7 s left") && text.contains("123k/s"), "{text}");
        }
    }

    #[test]
    fn percentile_beyond_the_sample_is_not_shown() {
        let plan = Plan { duration: Some(Duration::from_secs(10)), ..Plan::default() };
        let of = |samples| {
            let mut interval = Interval { requests: samples, ..Interval::default() };
            for _ in 0..samples {
                interval.latency.record(Duration::from_micros(123));
            }
            let second = Some((&interval, Duration::from_secs(1)));
            let tick = Tick {
                at: Duration::from_secs(3),
                over: Duration::from_secs(1),
                interval: &interval,
                is_counting: true,
                second,
            };
            visible(&Live::new(false).line("", &plan, &tick))
        };
        assert!(of(4).contains("p50 - p99 -"), "{}", of(4));
        assert!(of(20).contains("p50 12") && of(20).contains("p99 -"), "{}", of(20));
        assert!(of(299).contains("p99 12"), "{}", of(299));
    }

    #[test]
    fn colour_is_used_only_on_terminals_that_show_it() {
        let plan = Plan { duration: Some(Duration::from_secs(10)), ..Plan::default() };
        assert!(line(true, 1, &plan).contains(RED));
        assert!(!line(false, 1, &plan).contains(RED));
    }

    #[test]
    fn remaining_time_of_a_number_of_requests_follows_the_rate() {
        let plan = Plan { duration: None, requests: Some(3 * 123_456), ..Plan::default() };
        assert!(visible(&line(false, 0, &plan)).contains("2 s left"));
    }

    #[test]
    fn remaining_times_are_rounded_up() {
        let of = |millis| seconds(Duration::from_millis(millis));
        assert_eq!(
            (of(0), of(1), of(59_999), of(60_000)),
            ("0 s".into(), "1 s".into(), "1:00".into(), "1:00".into())
        );
        assert_eq!(of(3_600_000), "1:00:00");
    }
}
