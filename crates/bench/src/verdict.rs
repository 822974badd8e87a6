//! Detects causes other than the server's speed that affected the figures of a run: a client that was too slow, a host that
//! gave the client too little CPU time, or a plan that the server could not follow.
//! In: the counts and the times that the client's threads used. Out: sentences for the report.
//! Never: blames the client for the time that other programs or the hypervisor took from it.

use core::time::Duration;

use crate::drive::ThreadUse;
use crate::tally::Tally;

/// A thread that was busy for more than this fraction of its time limited the figures.
const BUSY_MAX: f64 = 0.95;
/// A thread that waited for its CPU for more than this fraction of its time was disturbed.
const DELAYED_MAX: f64 = 0.05;
/// A thread that waited less than this in total gets no warning, even in a short run.
const DELAY_MIN: Duration = Duration::from_millis(20);
/// A late send is the client's own fault if one of its threads was busier than this fraction.
const BUSY_LATE_MIN: f64 = 0.70;
/// An open loop whose p99 send lag is above this did not keep to its plan.
const LATE_MAX_US: f64 = 1000.0;
/// An open loop that left more than this fraction of its requests unsent did not keep to its plan, whatever the
/// cause.
const UNSENT_MAX: f64 = 0.01;

/// The causes other than the server that affected the figures.
pub(crate) struct Verdict {
    /// Reasons why the client itself limited the figures.
    pub(crate) saturated: Vec<String>,
    /// Reasons why other users of the host delayed the client.
    pub(crate) disturbed: Vec<String>,
    /// Reasons why requests of the plan were not sent although the client had time.
    pub(crate) blocked: Vec<String>,
}

impl Verdict {
    /// A late send is the client's fault if its thread was busy. A thread that was ready but waited for its
    /// CPU, or that was late although it was mostly idle, was delayed by other programs or by the hypervisor.
    /// If the server stopped responding, unsent requests are attributed to the server. Requests that a mostly idle client
    /// did not send waited for a connection.
    pub(crate) fn new(
        tally: &Tally,
        threads: &[ThreadUse],
        reference: Option<&Tally>,
        silent_since: Option<Duration>,
    ) -> Self {
        let mut verdict =
            Self { saturated: Vec::new(), disturbed: Vec::new(), blocked: Vec::new() };
        for (number, thread) in threads.iter().enumerate() {
            let (busy, delayed) = (thread.busy(), thread.delayed());
            if busy > BUSY_MAX {
                let words = format!("thread {number} was busy {:.0} % of the time", busy * 100.0);
                verdict.saturated.push(words);
            } else if delayed > DELAYED_MAX && thread.run_delay >= DELAY_MIN {
                verdict.disturbed.push(format!(
                    "thread {number} was busy {:.0} % and waited for its CPU {:.0} % of the time",
                    busy * 100.0,
                    delayed * 100.0
                ));
            }
        }
        let busiest = threads.iter().map(ThreadUse::busy).fold(0.0, f64::max);
        let probe = reference.map_or(0.0, |probe| probe.schedule_error.percentile_us(99.0));
        for (late_us, what) in [
            (tally.schedule_error.percentile_us(99.0), "requests"),
            (probe, "probe's requests, which the reference latency includes,"),
        ] {
            if late_us > LATE_MAX_US {
                let words = format!(
                    "1 % of the {what} were sent {late_us:.0} µs or more later than planned"
                );
                if busiest > BUSY_LATE_MIN {
                    let busy = busiest * 100.0;
                    verdict.saturated.push(format!("{words} while a thread was busy {busy:.0} %"));
                } else {
                    let busy = busiest * 100.0;
                    verdict
                        .disturbed
                        .push(format!("{words} although no thread was busier than {busy:.0} %"));
                }
            }
        }
        let planned = tally.issued + tally.unsent;
        if silent_since.is_none() && tally.unsent as f64 > UNSENT_MAX * planned as f64 {
            let words = format!("{} of {planned} planned requests were never sent", tally.unsent);
            if busiest > BUSY_LATE_MIN {
                let busy = busiest * 100.0;
                verdict.saturated.push(format!("{words} while a thread was busy {busy:.0} %"));
            } else {
                verdict
                    .blocked
                    .push(format!("{words} because all connections waited for the server"));
            }
        }
        verdict
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn thread(busy: f64, delayed: f64) -> ThreadUse {
        ThreadUse {
            cpu: Duration::from_secs_f64(10.0 * busy),
            run_delay: Duration::from_secs_f64(10.0 * delayed),
            wall: Duration::from_secs(10),
            answered: 1,
        }
    }

    fn late() -> Tally {
        let mut tally = Tally { issued: 1, ..Tally::default() };
        tally.schedule_error.record(Duration::from_millis(5));
        tally
    }

    #[test]
    fn unsent_requests_are_reported_above_one_percent() {
        let verdict = |issued, unsent, busy, silent_since| {
            let tally = Tally { issued, unsent, ..Tally::default() };
            let verdict = Verdict::new(&tally, &[thread(busy, 0.0)], None, silent_since);
            (verdict.saturated, verdict.blocked)
        };
        assert_eq!(verdict(10_000, 0, 0.02, None), (vec![], vec![]));
        assert_eq!(verdict(10_000, 3, 0.02, None), (vec![], vec![]));
        let words = "1000 of 10000 planned requests were never sent";
        let waited = format!("{words} because all connections waited for the server");
        assert_eq!(verdict(9000, 1000, 0.02, None), (vec![], vec![waited]));
        let busy = format!("{words} while a thread was busy 90 %");
        assert_eq!(verdict(9000, 1000, 0.90, None), (vec![busy], vec![]));
        let gone = Some(Duration::from_millis(1500));
        assert_eq!(verdict(9000, 1000, 0.02, gone), (vec![], vec![]), "the server is to blame");
    }

    #[test]
    fn busy_thread_saturates_and_waiting_thread_is_disturbed() {
        let of = |thread| {
            let verdict = Verdict::new(&Tally::default(), &[thread], None, None);
            (verdict.saturated.len(), verdict.disturbed.len())
        };
        assert_eq!(of(thread(0.99, 0.0)), (1, 0));
        assert_eq!(of(thread(0.60, 0.30)), (0, 1));
        assert_eq!(of(thread(0.02, 0.01)), (0, 0));
    }

    #[test]
    fn late_sends_of_an_idle_client_are_a_disturbance() {
        let of = |busy| {
            let verdict = Verdict::new(&late(), &[thread(busy, 0.0)], None, None);
            (verdict.saturated.len(), verdict.disturbed.len())
        };
        assert_eq!(of(0.02), (0, 1));
        assert_eq!(of(0.90), (1, 0));
    }

    #[test]
    fn late_probe_has_a_verdict_of_its_own() {
        let verdict = Verdict::new(&Tally::default(), &[thread(0.02, 0.0)], Some(&late()), None);
        assert!(verdict.disturbed[0].contains("probe"), "{:?}", verdict.disturbed);
    }
}
