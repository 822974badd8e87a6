//! What one thread counted, and the sum over threads.
//! In: events of the client. Out: numbers for the report.
//! Invariant: `requests` counts whole answers; a request is in it, or in an error class other than
//! `status`, or in `unanswered`, and in one of them only.

use crate::histogram::Times;
use core::time::Duration;

/// What went wrong, by class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Errors {
    /// Connects that failed.
    pub connect: u64,
    /// Connections that broke while an answer was due.
    pub reset: u64,
    /// Connections that the server closed in order before the whole answer was there.
    pub closed: u64,
    /// Requests and connects that took longer than the timeout.
    pub timeout: u64,
    /// Whole answers with a status of 400 or more; they count as requests as well.
    pub status: u64,
    /// Answers that are not HTTP, and bytes that nobody asked for.
    pub framing: u64,
    /// TLS handshakes that failed, and connections that TLS ended.
    pub tls: u64,
}

impl Errors {
    /// Name in reports and count of each class.
    #[must_use]
    pub fn classes(&self) -> [(&'static str, u64); 7] {
        [
            ("connect", self.connect),
            ("reset", self.reset),
            ("closed", self.closed),
            ("timeout", self.timeout),
            ("status", self.status),
            ("framing", self.framing),
            ("tls", self.tls),
        ]
    }

    /// All of them.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.classes().iter().map(|(_, count)| count).sum()
    }

    fn add(&mut self, other: Self) {
        self.connect += other.connect;
        self.reset += other.reset;
        self.closed += other.closed;
        self.timeout += other.timeout;
        self.status += other.status;
        self.framing += other.framing;
        self.tls += other.tls;
    }
}

/// The first failure of a class, in words for the operator.
pub type Note = (&'static str, String);

/// All that one thread counts.
#[derive(Clone, Debug)]
pub struct Tally {
    /// Whole answers.
    pub requests: u64,
    /// Those of them that came in the time that figures count for: before the plan's end, or all where a
    /// number of requests ended the run.
    pub in_time: u64,
    /// Requests sent.
    pub issued: u64,
    /// Requests that had no answer when the run was over.
    pub unanswered: u64,
    /// Connections of the plan that were still being made for the first time when the run was over.
    pub unconnected: u64,
    /// Failures.
    pub errors: Errors,
    /// Answers by the status' first digit; 0: none of them.
    pub statuses: [u64; 6],
    /// Bytes of answers, heads included; what answers a request that does not count is not in it.
    pub bytes_received: u64,
    /// Those of them that came in the time that figures count for, as `in_time`.
    pub bytes_in_time: u64,
    /// Bytes of bodies.
    pub body_bytes: u64,
    /// Connections that were made.
    pub connects: u64,
    /// From the planned send time to the last byte (open loop only; else it is `service`).
    pub latency: Times,
    /// From the send to the last byte.
    pub service: Times,
    /// From the send to the first byte.
    pub first_byte: Times,
    /// From connect to connected, without TLS.
    pub connect: Times,
    /// From connected to the end of the TLS handshake.
    pub handshake: Times,
    /// Handshakes that began a session.
    pub handshakes_full: u64,
    /// Handshakes that resumed one.
    pub handshakes_resumed: u64,
    /// What the first handshake negotiated.
    pub negotiated: Option<String>,
    /// How late requests were sent that a free connection waited for.
    pub schedule_error: Times,
    /// Planned requests that had to wait for a connection, because all were busy.
    pub waited_for_connection: u64,
    /// Planned requests that were not sent when the run was over.
    pub unsent: u64,
    /// Whether the run ended before its plan because no connection was there for too long.
    pub gave_up: bool,
    /// Requests of the slowest and of the fastest connection.
    pub fairness: Option<(u64, u64)>,
    /// First failure of each class in words.
    pub notes: Vec<Note>,
}

impl Default for Tally {
    fn default() -> Self {
        Self {
            requests: 0,
            in_time: 0,
            issued: 0,
            unanswered: 0,
            unconnected: 0,
            errors: Errors::default(),
            statuses: [0; 6],
            bytes_received: 0,
            bytes_in_time: 0,
            body_bytes: 0,
            connects: 0,
            latency: Times::fine(),
            service: Times::fine(),
            first_byte: Times::fine(),
            connect: Times::fine(),
            handshake: Times::fine(),
            handshakes_full: 0,
            handshakes_resumed: 0,
            negotiated: None,
            schedule_error: Times::fine(),
            waited_for_connection: 0,
            unsent: 0,
            gave_up: false,
            fairness: None,
            notes: Vec::new(),
        }
    }
}

impl Tally {
    /// Takes in what another thread counted.
    pub fn add(&mut self, other: &Self) {
        self.requests += other.requests;
        self.in_time += other.in_time;
        self.issued += other.issued;
        self.unanswered += other.unanswered;
        self.unconnected += other.unconnected;
        self.errors.add(other.errors);
        for (sum, count) in self.statuses.iter_mut().zip(other.statuses) {
            *sum += count;
        }
        self.bytes_received += other.bytes_received;
        self.bytes_in_time += other.bytes_in_time;
        self.body_bytes += other.body_bytes;
        self.connects += other.connects;
        self.latency.add(&other.latency);
        self.service.add(&other.service);
        self.first_byte.add(&other.first_byte);
        self.connect.add(&other.connect);
        self.handshake.add(&other.handshake);
        self.handshakes_full += other.handshakes_full;
        self.handshakes_resumed += other.handshakes_resumed;
        if self.negotiated.is_none() {
            self.negotiated.clone_from(&other.negotiated);
        }
        self.schedule_error.add(&other.schedule_error);
        self.waited_for_connection += other.waited_for_connection;
        self.unsent += other.unsent;
        self.gave_up |= other.gave_up;
        self.fairness = match (self.fairness, other.fairness) {
            (Some((low, high)), Some((other_low, other_high))) => {
                Some((low.min(other_low), high.max(other_high)))
            }
            (one, other) => one.or(other),
        };
        for (class, words) in &other.notes {
            self.note(class, || words.clone());
        }
    }

    /// Each class of which there are failures: its name, how many, and the first of them in words.
    pub fn failures(&self) -> impl Iterator<Item = (&'static str, u64, &str)> {
        self.errors.classes().into_iter().filter(|(_, count)| *count > 0).map(|(class, count)| {
            let words = self.notes.iter().find(|(noted, _)| *noted == class);
            (class, count, words.map_or("", |(_, words)| words.as_str()))
        })
    }

    /// What was under way when the run was over and is neither an answer nor a failure, in words.
    #[must_use]
    pub fn left_over_in_words(&self) -> Vec<String> {
        let mut lines = Vec::new();
        if self.unanswered > 0 {
            lines.push(format!(
                "Unanswered: requests that were sent and had no answer when the run was over: {}.",
                self.unanswered
            ));
        }
        if self.unconnected > 0 {
            lines.push(format!(
                "Not connected: connections that were still being made when the run was over: {}.",
                self.unconnected
            ));
        }
        lines
    }

    /// TLS handshakes that came to their end.
    #[must_use]
    pub fn handshakes(&self) -> u64 {
        self.handshakes_full + self.handshakes_resumed
    }

    /// Keeps `words` when they are the first of their class.
    pub fn note(&mut self, class: &'static str, words: impl FnOnce() -> String) {
        if !self.notes.iter().any(|(noted, _)| *noted == class) {
            self.notes.push((class, words()));
        }
    }
}

/// What happened in a short stretch of time, for lines and curves over time.
#[derive(Clone, Debug)]
pub struct Interval {
    /// End of the stretch, since the start.
    pub until: Duration,
    /// Whole answers.
    pub requests: u64,
    /// Failures.
    pub errors: u64,
    /// Bytes received.
    pub bytes: u64,
    /// Connections made.
    pub connects: u64,
    /// Connections that are open at its end.
    pub connections: u64,
    /// Answers by the status' first digit.
    pub statuses: [u64; 6],
    /// Sum of the times to the first byte.
    pub first_byte_sum: Duration,
    /// Latencies (as in the report: from the planned send in an open loop).
    pub latency: Times,
}

impl Default for Interval {
    fn default() -> Self {
        Self {
            until: Duration::ZERO,
            requests: 0,
            errors: 0,
            bytes: 0,
            connects: 0,
            connections: 0,
            statuses: [0; 6],
            first_byte_sum: Duration::ZERO,
            latency: Times::coarse(),
        }
    }
}

impl Interval {
    /// Takes in what another thread, or the next stretch, counted; connections are left alone.
    pub fn add(&mut self, other: &Self) {
        self.until = self.until.max(other.until);
        self.requests += other.requests;
        self.errors += other.errors;
        self.bytes += other.bytes;
        self.connects += other.connects;
        for (sum, count) in self.statuses.iter_mut().zip(other.statuses) {
            *sum += count;
        }
        self.first_byte_sum += other.first_byte_sum;
        self.latency.add(&other.latency);
    }

    /// Begins the next stretch.
    pub fn clear(&mut self) {
        self.until = Duration::ZERO;
        self.requests = 0;
        self.errors = 0;
        self.bytes = 0;
        self.connects = 0;
        self.connections = 0;
        self.statuses = [0; 6];
        self.first_byte_sum = Duration::ZERO;
        self.latency.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adding_keeps_the_slowest_and_the_fastest_and_the_first_note() {
        let mut sum = Tally::default();
        let one = Tally {
            requests: 3,
            fairness: Some((1, 2)),
            notes: vec![("connect", "first".to_owned())],
            ..Tally::default()
        };
        let other = Tally {
            requests: 4,
            fairness: Some((2, 9)),
            notes: vec![("connect", "second".to_owned())],
            ..Tally::default()
        };
        sum.add(&one);
        sum.add(&other);
        assert_eq!((sum.requests, sum.fairness), (7, Some((1, 9))));
        assert_eq!(sum.notes, [("connect", "first".to_owned())]);
    }
}
