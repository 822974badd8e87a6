//! The project's performance goals, next to the measured values.
//! In: records. Out: a table with a line for each goal: the goal, the measured value, and whether it was
//! reached.
//! Never: hides a missed goal or one that was not measured.

use super::record::Record;
use core::fmt::Write as _;

/// The value that a goal limits.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Against {
    /// Tidegate's measure divided by this contender's, paired by round.
    Contender(&'static str),
    /// Tidegate's measure itself, in this unit.
    Value(&'static str),
    /// Tidegate's resident memory, MB.
    Resident,
}

/// An upper limit for a measured value.
struct Goal {
    /// The name of the workload, as in `Record::what`.
    what: &'static str,
    against: Against,
    /// The largest value that reaches the goal.
    most: f64,
}

const fn goal(what: &'static str, against: Against, most: f64) -> Goal {
    Goal { what, against, most }
}

/// All goals are upper limits: "2.5 times the requests per CPU second" is 0.4 times the CPU time.
const GOALS: [Goal; 40] = [
    goal("json", Against::Contender("floor"), 1.15),
    goal("json", Against::Contender("nginx"), 0.78),
    goal("proxy", Against::Contender("nginx"), 0.80),
    goal("proxy", Against::Contender("haproxy"), 0.69),
    goal("proxy-fields", Against::Contender("nginx"), 0.80),
    goal("proxy-fields", Against::Contender("haproxy"), 0.69),
    goal("bodies", Against::Contender("nginx"), 1.0),
    goal("bodies", Against::Contender("haproxy"), 1.0),
    goal("pipeline", Against::Contender("nginx"), 1.0 / 2.5),
    goal("latency", Against::Contender("haproxy"), 1.0),
    goal("memory", Against::Value("bytes"), 512.0),
    goal("start", Against::Value("ms"), 50.0),
    goal("start", Against::Resident, 24.0),
    goal("client", Against::Contender("wrk"), 1.0 / 1.15),
    goal("client", Against::Contender("h2load"), 1.0 / 1.5),
    goal("client", Against::Contender("hey"), 1.0 / 3.0),
    goal("tls-proxy", Against::Contender("haproxy"), 0.72),
    goal("tls-proxy", Against::Contender("nginx"), 0.75),
    goal("tls-proxy", Against::Contender("plain"), 1.35),
    goal("tls-handshakes", Against::Contender("haproxy"), 1.0 / 1.5),
    goal("tls-handshakes", Against::Contender("nginx"), 1.0 / 1.5),
    goal("tls-handshakes-rsa", Against::Contender("haproxy"), 1.0 / 1.5),
    goal("tls-handshakes-rsa", Against::Contender("nginx"), 1.0 / 1.5),
    goal("tls-resumed", Against::Contender("haproxy"), 1.0 / 2.0),
    goal("tls-resumed", Against::Contender("nginx"), 1.0 / 2.0),
    goal("tls-bodies", Against::Contender("haproxy"), 1.0 / 1.15),
    goal("tls-bodies", Against::Contender("nginx"), 1.0 / 1.15),
    goal("tls-memory", Against::Value("bytes"), 6.0 * 1024.0),
    goal("tls-flood", Against::Value("ratio"), 3.0),
    goal("h2-json", Against::Contender("nginx"), 0.6),
    goal("h2-json", Against::Contender("h2o"), 0.8),
    goal("h2-proxy", Against::Contender("haproxy"), 0.75),
    goal("h2-proxy", Against::Contender("nginx"), 0.7),
    goal("h2-memory", Against::Value("bytes"), 6.0 * 1024.0),
    goal("h2-client", Against::Contender("h2load"), 1.0 / 1.3),
    goal("ws", Against::Contender("bun"), 1.0),
    goal("ws", Against::Contender("fastwebsockets"), 0.95),
    goal("ws", Against::Contender("actix-ws"), 0.95),
    goal("push", Against::Contender("centrifugo"), 0.5),
    goal("push", Against::Contender("nchan"), 0.7),
];

/// The table of all goals for `records`.
pub(super) fn summary(records: &[Record]) -> String {
    let mut text = format!(
        "{:<18} {:>11}  {:<42} {:>9} {:>16}",
        "", "connections", "measure", "goal", "measured"
    );
    for record in records {
        for goal in GOALS.iter().filter(|goal| goal.what == record.what) {
            let what = match record.message_bytes {
                Some(bytes) => format!("{} {bytes} B", record.what),
                None => record.what.to_owned(),
            };
            // Writing to a String cannot fail.
            let _ = write!(
                text,
                "\n{:<18} {:>11}  {:<42} {:>9} {}",
                what,
                record.connections,
                goal.measure(record),
                format!("≤ {:.2}", goal.most),
                goal.reached(record)
            );
        }
    }
    text
}

impl Goal {
    fn measure(&self, record: &Record) -> String {
        match self.against {
            Against::Contender(name) => format!("{}, tidegate ÷ {name}", record.measure.title()),
            Against::Value(unit) => format!("{} ({unit})", record.measure.title()),
            Against::Resident => "resident memory (MB)".to_owned(),
        }
    }

    fn reached(&self, record: &Record) -> String {
        let found = match self.against {
            Against::Contender(name) => record
                .ours_over(name)
                .map(|ratio| (ratio.median, (ratio.high - ratio.low) / 2.0))
                .ok_or(name),
            Against::Value(_) => record
                .ours_estimate()
                .map(|value| (value.median, (value.high - value.low) / 2.0))
                .ok_or("tidegate"),
            Against::Resident => {
                record.ours().map(|row| (row.resident_bytes as f64 / 1e6, 0.0)).ok_or("tidegate")
            }
        };
        let (median, half) = match found {
            Ok(found) => found,
            Err(absent) => {
                return format!("{:>16}  not measured: {absent} or tidegate is missing", "-");
            }
        };
        let digits = if median < 10.0 { 3 } else { 1 };
        let figure = format!("{median:.digits$} ±{half:.digits$}");
        let verdict = if median <= self.most { "yes" } else { "NO" };
        let doubt = if record.is_disturbed() { " (disturbed)" } else { "" };
        format!("{figure:>16}  {verdict}{doubt}")
    }
}

#[cfg(test)]
mod tests {
    use super::super::record::{Measure, Row, Sample};
    use super::*;

    #[test]
    fn table_shows_goal_and_measured_value() {
        let row = |name, value| {
            let mut row = Row::new(name, "1".to_owned());
            row.resident_bytes = 30_000_000;
            row.samples.push(Sample { value, ..Sample::default() });
            row
        };
        let record = Record {
            what: "start",
            measure: Measure::StartTime,
            connections: 1,
            pipeline: 1,
            rate_per_s: None,
            message_bytes: None,
            rounds: 1,
            seconds: 1.0,
            client: "tidegate",
            server: None,
            rows: vec![row("tidegate", 12.0), row("nginx", 20.0)],
        };
        let table = summary(&[record]);
        assert!(table.contains("12.0 ±0.0  yes"), "{table}");
        assert!(table.contains("30.0 ±0.0  NO"), "{table}");
    }

    #[test]
    fn missing_contender_is_named() {
        let record = Record {
            what: "json",
            measure: Measure::CpuPerRequest,
            connections: 64,
            pipeline: 1,
            rate_per_s: None,
            message_bytes: None,
            rounds: 1,
            seconds: 1.0,
            client: "tidegate",
            server: None,
            rows: vec![Row::new("tidegate", String::new()), Row::new("floor", String::new())],
        };
        let table = summary(&[record]);
        assert!(table.contains("not measured: nginx or tidegate is missing"), "{table}");
    }
}
