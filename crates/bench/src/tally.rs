//! The counts of one thread, and their sum over threads.
//! In: events of the client. Out: numbers for the report.
//! Invariant: `requests` counts complete responses. Each request counts exactly once: in `requests`, in an
//! error class other than `status`, or in `unanswered`.

use crate::histogram::Times;
use crate::quantity::counted;
use core::time::Duration;

/// Failures by class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Errors {
    /// Connection attempts that failed.
    pub connect: u64,
    /// Requests whose connection or stream was reset before the response was complete.
    pub reset: u64,
    /// Requests that an HTTP/2 server certainly did not process: refused streams, and streams that GOAWAY
    /// excluded.
    pub refused: u64,
    /// Requests whose connection the server closed normally before the response was complete.
    pub closed: u64,
    /// Requests and connection attempts that took longer than the timeout.
    pub timeout: u64,
    /// Complete responses with a status of 400 or more; they also count as requests.
    pub status: u64,
    /// Responses that are not valid HTTP, and bytes that belong to no request.
    pub framing: u64,
    /// TLS handshakes that failed, and connections that a TLS error ended.
    pub tls: u64,
}

impl Errors {
    /// The name in reports and the count of each class.
    #[must_use]
    pub fn classes(&self) -> [(&'static str, u64); 8] {
        [
            ("connect", self.connect),
            ("reset", self.reset),
            ("refused", self.refused),
            ("closed", self.closed),
            ("timeout", self.timeout),
            ("status", self.status),
            ("framing", self.framing),
            ("tls", self.tls),
        ]
    }

    /// The sum over all classes.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.classes().iter().map(|(_, count)| count).sum()
    }

    fn add(&mut self, other: Self) {
        self.connect += other.connect;
        self.reset += other.reset;
        self.refused += other.refused;
        self.closed += other.closed;
        self.timeout += other.timeout;
        self.status += other.status;
        self.framing += other.framing;
        self.tls += other.tls;
    }
}

/// The name of a failure class, and a description of its first failure for the operator.
pub type Note = (&'static str, String);

/// The counts of one thread.
#[derive(Clone, Debug)]
pub struct Tally {
    /// Complete responses.
    pub requests: u64,
    /// Complete responses that arrived before the plan's end. Equal to `requests` if a number of requests
    /// ended the run.
    pub in_time: u64,
    /// Requests that were sent.
    pub issued: u64,
    /// Requests without a response when the run ended.
    pub unanswered: u64,
    /// Connections of the plan that were still in their first connection attempt when the run ended.
    pub unconnected: u64,
    /// Failures.
    pub errors: Errors,
    /// Responses by the first digit of the status; index 0 is not used by valid statuses.
    pub statuses: [u64; 6],
    /// Bytes of counted responses, heads included.
    pub bytes_received: u64,
    /// Bytes of the responses that `in_time` counts.
    pub bytes_in_time: u64,
    /// Bytes of bodies.
    pub body_bytes: u64,
    /// Connections that were established.
    pub connects: u64,
    /// From the planned send time to the last byte (open loop; a closed loop uses `service`).
    pub latency: Times,
    /// From the actual send to the last byte.
    pub service: Times,
    /// From the actual send to the first byte.
    pub first_byte: Times,
    /// From the start of the connection attempt to the TCP connection, without TLS.
    pub connect: Times,
    /// From the TCP connection to the end of the TLS handshake.
    pub handshake: Times,
    /// Full handshakes, which begin a new session.
    pub handshakes_full: u64,
    /// Handshakes that resumed a session.
    pub handshakes_resumed: u64,
    /// Version, cipher suite and ALPN protocol of the first handshake.
    pub negotiated: Option<String>,
    /// HTTP/2 connections that the server ended with GOAWAY.
    pub goaways: u64,
    /// The lowest limit of concurrent streams that a server set, if it is below the plan's number.
    pub streams_allowed: Option<u32>,
    /// Delay between planned and actual send, for requests that found a free connection.
    pub schedule_error: Times,
    /// Planned requests that were sent late because no connection was free.
    pub waited_for_connection: u64,
    /// Planned requests that were not sent when the run ended.
    pub unsent: u64,
    /// Whether the run ended before its plan because no connection was open for too long.
    pub gave_up: bool,
    /// Complete responses of the slowest and of the fastest connection.
    pub fairness: Option<(u64, u64)>,
    /// The first failure of each class. At most one entry per class.
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
            goaways: 0,
            streams_allowed: None,
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
    /// Adds the counts of another thread.
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
        self.goaways += other.goaways;
        self.note_streams_allowed(other.streams_allowed);
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

    /// Each class with failures: its name, its count, and the description of its first failure.
    pub fn failures(&self) -> impl Iterator<Item = (&'static str, u64, &str)> {
        self.errors.classes().into_iter().filter(|(_, count)| *count > 0).map(|(class, count)| {
            let words = self.notes.iter().find(|(noted, _)| *noted == class);
            (class, count, words.map_or("", |(_, words)| words.as_str()))
        })
    }

    /// Sentences about requests and connections that were unfinished when the run ended.
    #[must_use]
    pub fn left_over_in_words(&self) -> Vec<String> {
        let mut lines = Vec::new();
        if self.unanswered > 0 {
            lines.push(format!(
                "Unanswered: {} had no response when the run ended.",
                counted(self.unanswered, "request")
            ));
        }
        if self.unconnected > 0 {
            lines.push(format!(
                "Not connected: {} could not be established before the run ended.",
                counted(self.unconnected, "connection")
            ));
        }
        lines
    }

    /// Notes a server's limit of concurrent streams; the lowest one is kept.
    pub fn note_streams_allowed(&mut self, allowed: Option<u32>) {
        self.streams_allowed = match (self.streams_allowed, allowed) {
            (Some(known), Some(allowed)) => Some(known.min(allowed)),
            (known, allowed) => known.or(allowed),
        };
    }

    /// Completed TLS handshakes.
    #[must_use]
    pub fn handshakes(&self) -> u64 {
        self.handshakes_full + self.handshakes_resumed
    }

    /// Adds a note for `class` if there is none yet.
    pub fn note(&mut self, class: &'static str, words: impl FnOnce() -> String) {
        if !self.notes.iter().any(|(noted, _)| *noted == class) {
            self.notes.push((class, words()));
        }
    }
}

/// The counts of a short interval, for lines and curves over time.
#[derive(Clone, Debug)]
pub struct Interval {
    /// End of the interval, since the start.
    pub until: Duration,
    /// Complete responses.
    pub requests: u64,
    /// Failures.
    pub errors: u64,
    /// Bytes received.
    pub bytes: u64,
    /// Connections that were established.
    pub connects: u64,
    /// Connections that are open at the end of the interval.
    pub connections: u64,
    /// Responses by the first digit of the status.
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
    /// Adds the counts of another thread or of the next interval, except `connections`.
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

    /// Resets all counts for the next interval.
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
    fn sum_keeps_slowest_fastest_and_first_note() {
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
