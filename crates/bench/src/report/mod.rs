//! The results of a run, for people and for programs.
//! In: runs. Out: text, one JSON object, lines over time, one HTML page.
//! Never: shows a latency without the point from which it is measured.

mod chart;
pub mod html;
mod json;
mod lines;
mod live;
mod ratios;
pub mod sockets;
mod text;

pub use json::to_json;
pub use lines::Lines;
pub use live::Live;
pub use text::{percentile_dump, to_text};

use crate::client::unreachable_max;
use crate::drive::Outcome;
use crate::histogram::Times;
use crate::plan::{Arrivals, Pace, Plan, Protocol};
use crate::quantity::{counted, micros, short};
use crate::tally::Tally;

/// Seed of the resampling from which spreads are computed, fixed so that the same rounds give the same report.
pub(crate) const SPREAD_SEED: u64 = 0x7469_6465;
/// Shown in tables where nothing was measured.
const NOTHING: &str = "-";

/// One candidate's run, with its request and load.
#[derive(Clone, Debug)]
pub struct Run {
    /// The name in tables; the URL if no name was given.
    pub name: String,
    /// The requested URL.
    pub url: String,
    /// The load.
    pub plan: Plan,
    /// The result.
    pub outcome: Outcome,
    /// The figures of each complete paired round; empty for a single run.
    pub rounds: Vec<RoundFigures>,
}

/// The figures of one paired round.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RoundFigures {
    /// Responses per second.
    pub rate_per_s: f64,
    /// CPU time of the server per response, µs; 0 if it was not measured.
    pub server_cpu_us: f64,
    /// Median latency, µs.
    pub p50_us: f64,
    /// 99th percentile of the latency, µs.
    pub p99_us: f64,
    /// 99.9th percentile of the latency, µs.
    pub p99_9_us: f64,
}

impl Run {
    /// CPU time of the server per response, µs: the busy time of the CPUs if `--cpu` was given, otherwise the
    /// time of the processes. `None` without a response.
    #[must_use]
    pub fn server_cpu_us_per_request(&self) -> Option<f64> {
        let spent = self.outcome.server_busy.or(self.outcome.server.map(|server| server.cpu))?;
        let requests = self.outcome.tally.requests;
        (requests > 0).then(|| spent.as_secs_f64() * 1e6 / requests as f64)
    }

    /// The figures of the reference probe, if it got a response.
    #[must_use]
    pub fn answered_reference(&self) -> Option<&Tally> {
        self.outcome.reference.as_ref().filter(|reference| reference.requests > 0)
    }

    /// The sentence about a run that ended early because no connection could be established.
    fn gave_up_in_words(&self) -> Option<String> {
        self.outcome.tally.gave_up.then(|| {
            format!(
                "Given up: no connection was open for {:.0} s; the figures cover the time until then.",
                unreachable_max(&self.plan).as_secs_f64()
            )
        })
    }

    /// Warnings that are printed before the figures, except the one about a saturated client.
    #[must_use]
    pub fn caveats(&self) -> Vec<String> {
        let mut lines = Vec::new();
        if self.outcome.had_fatal_error {
            lines.push(
                "Stopped at the first error: no request was sent after it. Responses to requests that were in flight \
                 are counted."
                    .to_owned(),
            );
        } else if self.outcome.was_stopped {
            lines.push(
                "Stopped early: the figures cover the time until the run was stopped.".to_owned(),
            );
        }
        lines.extend(self.gave_up_in_words());
        lines.extend(self.outcome.silence_in_words());
        if !self.outcome.disturbed.is_empty() {
            lines.push(format!(
                "Host disturbed: {}. The figures include delays that are not the server's: give client and server \
                 separate CPUs (--client-cpus, --cpu), or use a quiet host.",
                self.outcome.disturbed.join("; ")
            ));
        }
        if !self.outcome.blocked.is_empty() {
            lines.push(format!(
                "Plan not kept: {}. The figures do not include them: use more --connections or a lower --rate.",
                self.outcome.blocked.join("; ")
            ));
        }
        if !self.outcome.has_counted {
            lines.push(
                "Nothing counted: the run ended during warm-up or ramp; the figures cover only that time."
                    .to_owned(),
            );
        }
        lines.extend(self.outcome.tally.left_over_in_words());
        if let Some(allowed) = self.outcome.tally.streams_allowed {
            lines.push(format!(
                "Fewer streams: the server allows only {} at once on a connection.",
                counted(u64::from(allowed), "stream")
            ));
        }
        let redirects = self.outcome.tally.statuses[3];
        if redirects > 0 {
            lines.push(format!(
                "Redirected: {} had a 3xx status, and redirects are not followed: use the URL in the Location \
                 field.",
                counted(redirects, "response")
            ));
        }
        lines
    }

    /// Whether latencies are measured from planned send times.
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
                "open loop, {} requests/s, {}",
                short(per_second),
                arrivals_in_words(arrivals)
            ),
            Pace::PerConnection { per_second, arrivals } => format!(
                "open loop, {} requests/s on each connection, {}",
                short(per_second),
                arrivals_in_words(arrivals)
            ),
        });
        if plan.protocol == Protocol::Http2 {
            words.push(format!("HTTP/2, {} on each", counted(u64::from(plan.pipeline), "stream")));
        } else if plan.pipeline > 1 {
            words.push(format!("{} requests in flight on each", plan.pipeline));
        }
        if !plan.think.is_zero() {
            words.push(format!("{:?} pause between requests", plan.think));
        }
        if let Some(requests) = plan.requests_per_connection {
            words.push(format!("{} per connection", counted(requests, "request")));
        }
        words.push(format!("{:.2} s", self.outcome.counted.as_secs_f64()));
        words.join(", ")
    }
}

fn arrivals_in_words(arrivals: Arrivals) -> &'static str {
    match arrivals {
        Arrivals::Constant => "constant",
        Arrivals::Poisson => "poisson",
    }
}

/// Number of rounds that all candidates completed.
fn paired_rounds(runs: &[Run]) -> u64 {
    runs.iter().map(|run| run.rounds.len() as u64).min().unwrap_or(0)
}

/// A percentile as tables show it; `-` if there are too few samples for it.
pub(crate) fn percentile(times: &Times, percent: f64) -> String {
    times.reportable_us(percent).map_or_else(|| NOTHING.to_owned(), micros)
}

/// The longest time, as tables show it.
fn longest(times: &Times) -> String {
    percentile(times, 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tally::Errors;
    use core::time::Duration;

    fn run(pace: Pace) -> Run {
        let mut tally = Tally { requests: 100, in_time: 100, ..Tally::default() };
        tally.errors = Errors { reset: 2, ..Errors::default() };
        tally.note("reset", || "the server reset the connection".to_owned());
        for micros in 1..=100 {
            tally.latency.record(Duration::from_micros(micros));
            tally.service.record(Duration::from_micros(micros));
        }
        let outcome = Outcome {
            tally,
            reference: None,
            counted: Duration::from_secs(2),
            threads: vec![crate::drive::ThreadUse::default()],
            server: None,
            server_busy: Some(Duration::from_micros(500)),
            saturated: Vec::new(),
            disturbed: Vec::new(),
            blocked: Vec::new(),
            silent_since: None,
            points: Vec::new(),
            was_stopped: false,
            had_fatal_error: false,
            has_counted: true,
        };
        Run {
            name: "one".to_owned(),
            url: "http://h/".to_owned(),
            plan: Plan { pace, ..Plan::default() },
            outcome,
            rounds: Vec::new(),
        }
    }

    #[test]
    fn first_line_reports_a_saturated_client() {
        let mut run = run(Pace::Closed);
        assert!(to_text(core::slice::from_ref(&run)).starts_with("one\n"));
        run.outcome.saturated.push("thread 0 was busy 99 % of the time".to_owned());
        let text = to_text(core::slice::from_ref(&run));
        assert!(text.starts_with("CLIENT SATURATED: thread 0 was busy"), "{text}");
        // The same if the client was saturated while it loaded a candidate other than the first.
        let other = Run { name: "other".to_owned(), ..run.clone() };
        run.outcome.saturated.clear();
        assert!(to_text(&[run, other]).starts_with("CLIENT SATURATED (other): thread 0"));
    }

    #[test]
    fn unsent_requests_of_an_idle_client_are_reported_without_blaming_it() {
        let mut run = run(Pace::Closed);
        run.outcome.blocked.push("9 of 10 planned requests were never sent".to_owned());
        let text = to_text(core::slice::from_ref(&run));
        assert!(
            text.starts_with("Plan not kept: 9 of 10") && !text.contains("SATURATED"),
            "{text}"
        );
        let json = to_json(&[run], "");
        assert_eq!((&json["saturated"], &json["blocked"]), (&false.into(), &true.into()));
        assert_eq!(json["blocked_because"][0], "9 of 10 planned requests were never sent");
    }

    #[test]
    fn warm_up_figures_are_marked() {
        let mut run = run(Pace::Closed);
        run.outcome.has_counted = false;
        assert!(to_text(core::slice::from_ref(&run)).starts_with("Nothing counted: "));
        assert!(html::page(core::slice::from_ref(&run), "").contains("Nothing counted: "));
        assert_eq!(to_json(&[run], "")["warm_up_only"], true);
    }

    #[test]
    fn unit_of_a_rate_keeps_its_case() {
        let pace = Pace::Total { per_second: 2e6, arrivals: Arrivals::Poisson };
        assert!(run(pace).load_in_words().contains("open loop, 2.00M requests/s, poisson"));
    }

    #[test]
    fn abandoned_run_is_marked() {
        let mut run = run(Pace::Closed);
        run.outcome.tally.gave_up = true;
        assert!(to_text(core::slice::from_ref(&run)).starts_with("Given up: no connection"));
        assert!(html::page(core::slice::from_ref(&run), "").contains("Given up: no connection"));
        assert_eq!(to_json(&[run], "")["gave_up"], true);
    }

    #[test]
    fn unanswered_requests_are_reported_before_the_figures() {
        let mut run = run(Pace::Closed);
        run.outcome.tally = Tally { unanswered: 7, unconnected: 3, ..Tally::default() };
        run.outcome.reference = Some(Tally { requests: 1, ..Tally::default() });
        let text = to_text(core::slice::from_ref(&run));
        assert!(!text.contains("0.00 µs") && !text.contains("  added"), "{text}");
        assert!(text.contains("client      0.000 s CPU, no response"), "{text}");
        let first: Vec<&str> = text.lines().take(2).collect();
        assert!(first[0].starts_with("Unanswered: 7 requests "), "{text}");
        assert!(first[1].starts_with("Not connected: 3 connections "), "{text}");
        assert!(text.contains("errors      none, but see the warnings at the top"), "{text}");
        assert!(html::page(core::slice::from_ref(&run), "").contains("Unanswered: 7 requests "));
        let json = to_json(&[run], "");
        assert!(json["latency_us"]["p50"].is_null() && json["added_latency_us"].is_null());
        assert!(json["client_cpu_us_per_request"].is_null());
        assert!(json["server_cpu_us_per_request"].is_null());
        assert_eq!((json["unanswered"].as_u64(), json["unconnected"].as_u64()), (Some(7), Some(3)));
    }

    #[test]
    fn report_states_what_latency_is_measured_from() {
        let closed = to_text(&[run(Pace::Closed)]);
        assert!(closed.contains("a closed loop sends nothing while the server stalls"), "{closed}");
        let pace = Pace::Total { per_second: 50.0, arrivals: Arrivals::Constant };
        let open = to_text(&[run(pace)]);
        assert!(open.contains("planned send to last byte"), "{open}");
        assert!(open.contains("actual send to last byte"), "{open}");
    }

    #[test]
    fn report_fits_eighty_columns() {
        let long = |run: &mut Run| {
            let tally = &mut run.outcome.tally;
            tally.handshakes_full = 1;
            tally.unanswered = 3;
            tally.statuses[3] = 7;
            for times in [&mut tally.latency, &mut tally.service, &mut tally.connect] {
                times.record(Duration::from_millis(1234));
            }
            run.outcome.reference = Some(tally.clone());
        };
        for pace in [Pace::Closed, Pace::Total { per_second: 50.0, arrivals: Arrivals::Constant }] {
            let mut run = run(pace);
            long(&mut run);
            run.outcome.server = Some(crate::machine::Spent::default());
            run.outcome.saturated = vec!["thread 0 was busy 99 % of the time".to_owned()];
            run.outcome.disturbed = vec!["thread 1 waited for its CPU".to_owned()];
            run.outcome.blocked = vec!["9 of 10 planned requests were never sent".to_owned()];
            run.outcome.silent_since = Some(Duration::from_millis(1500));
            for line in to_text(&[run]).lines() {
                assert!(line.chars().count() <= 80, "{line}");
            }
        }
    }

    #[test]
    fn handshakes_are_reported_by_kind_with_the_negotiated_suite() {
        let mut run = run(Pace::Closed);
        assert!(!to_text(core::slice::from_ref(&run)).contains("handshake"));
        let tally = &mut run.outcome.tally;
        (tally.handshakes_full, tally.handshakes_resumed) = (3, 4);
        tally.negotiated = Some("TLSv1.3 TLS_AES_256_GCM_SHA384".to_owned());
        tally.handshake.record(Duration::from_micros(800));
        let text = to_text(core::slice::from_ref(&run));
        assert!(
            text.contains(
                "  tls         TLSv1.3 TLS_AES_256_GCM_SHA384\n  handshakes  3 full, 4 resumed\n"
            ),
            "{text}"
        );
        let json = to_json(&[run], "command");
        assert_eq!(
            (json["handshakes_full"].as_u64(), json["handshakes_resumed"].as_u64()),
            (Some(3), Some(4))
        );
        assert!((json["handshake_us"]["max"].as_f64().unwrap() - 800.0).abs() < 1.0, "{json}");
    }

    #[test]
    fn errors_and_cpu_per_request_are_reported() {
        let text = to_text(&[run(Pace::Closed)]);
        assert!(text.contains("reset 2: the server reset the connection"), "{text}");
        assert!(text.contains("server CPUs 5.00 µs per request"), "{text}");
        let json = to_json(&[run(Pace::Closed)], "command");
        assert_eq!(
            (json["errors"]["reset"].as_u64(), json["rate_per_s"].as_f64()),
            (Some(2), Some(50.0))
        );
        assert_eq!(json["server_cpu_us_per_request"], 5.0);
    }

    #[test]
    fn failed_probe_shows_its_errors_and_no_added_latency() {
        let mut run = run(Pace::Closed);
        let mut probe = Tally::default();
        probe.errors.connect = 3;
        probe.note("connect", || "connection refused".to_owned());
        run.outcome.reference = Some(probe);
        let text = to_text(core::slice::from_ref(&run));
        assert!(text.contains("reference   connect 3: connection refused"), "{text}");
        assert!(!text.contains("  added") && !text.contains("reference   0"), "{text}");
        let page = html::page(core::slice::from_ref(&run), "");
        assert!(page.contains("one (reference): 3 × connect: connection refused"), "{page}");
        let json = to_json(&[run], "");
        assert_eq!(json["reference_errors"]["connect"], 3);
        assert!(
            json.get("added_latency_us").is_none() && json.get("reference_latency_us").is_none()
        );
    }

    #[test]
    fn failure_during_warm_up_gives_no_warning() {
        let mut run = run(Pace::Closed);
        run.outcome.tally.note("status", || "the first such response had status 503".to_owned());
        assert!(!html::page(core::slice::from_ref(&run), "").contains("503"));
        assert!(to_json(&[run], "")["first_error"].get("status").is_none());
    }

    #[test]
    fn percentile_dump_is_ascending() {
        let dump = percentile_dump(&[run(Pace::Closed)]);
        let points: Vec<(f64, f64)> = dump
            .lines()
            .skip(1)
            .map(|line| {
                let columns: Vec<&str> = line.split(' ').collect();
                (columns[0].parse().unwrap(), columns[2].parse().unwrap())
            })
            .collect();
        assert!(points.windows(2).all(|pair| pair[0].0 <= pair[1].0 && pair[0].1 <= pair[1].1));
        assert!((points.last().unwrap().1 - 100.0).abs() < 0.1);
    }

    #[test]
    fn percentile_dump_has_a_named_block_for_each_candidate() {
        let mut other = run(Pace::Closed);
        other.name = "other".to_owned();
        let dump = percentile_dump(&[run(Pace::Closed), other]);
        let blocks: Vec<&str> = dump.split("\n\n\n").collect();
        assert!(blocks[0].starts_with("# one\n#pctl") && blocks[1].starts_with("# other\n#pctl"));
    }

    #[test]
    fn comparison_counts_rounds_that_all_candidates_completed() {
        let (mut one, other) = (run(Pace::Closed), run(Pace::Closed));
        let text = to_text(&[one.clone(), other.clone()]);
        assert!(
            text.contains("(0 rounds") && text.contains("none: no round was completed"),
            "{text}"
        );
        one.rounds = vec![RoundFigures::default(); 2];
        let other = Run { rounds: vec![RoundFigures::default()], ..other };
        let runs = [one, other];
        assert!(to_text(&runs).contains("(1 round, 95 % spread)"));
        assert!(html::page(&runs, "").contains("1 paired round"));
    }

    #[test]
    fn ratios_are_taken_within_rounds() {
        let round = |rate_per_s| RoundFigures { rate_per_s, ..RoundFigures::default() };
        let (mut one, mut other) = (run(Pace::Closed), run(Pace::Closed));
        one.rounds = vec![round(10.0), round(20.0)];
        other.name = "other".to_owned();
        other.rounds = vec![round(20.0), round(40.0)];
        let text = to_text(&[one.clone(), other.clone()]);
        assert!(text.contains("requests/s             2.000   2.000 to 2.000"), "{text}");
        assert_eq!(
            to_json(&[one.clone(), other.clone()], "")["ratios"][0]["rate_per_s"]["median"],
            2.0
        );
        one.outcome.tally.requests = 0;
        assert!(to_text(&[one, other]).contains("none: one of the two got no response"));
    }
}
