//! The result of a comparison: a table for people, and a JSON line for the record.
//! In: samples of paired rounds. Out: medians, ratios taken within rounds, and their spread.
//! Invariant: ratios are taken between samples of the same round, never between medians.

use super::load::Counted;
use crate::machine;
use crate::report::SPREAD_SEED;
use core::fmt;
use core::time::Duration;
use serde_json::{Map, Value, json};
use tidegate_base::statistics::{Estimate, median};

/// Largest fraction of the measured CPUs' busy time that may be spent outside the contender's processes. It leaves
/// room for soft interrupts and the timer tick, but not for a second program.
const FOREIGN_MAX: f64 = 0.25;

/// The value by which contenders are compared. Lower is better for all measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Measure {
    /// Non-idle time of the server's CPU per request, µs.
    CpuPerRequest,
    /// Non-idle time of the server's CPU per KiB of body, ns.
    CpuPerByte,
    /// User and system time of the server per request, µs.
    ProcessPerRequest,
    /// User and system time of the server per KiB of body, ns.
    ProcessPerByte,
    /// User and system time of the client per request, µs.
    ClientCpuPerRequest,
    /// Non-idle time of the server's CPU per connection with a handshake and one request, µs.
    CpuPerHandshake,
    /// The p99.9 of the latency, µs.
    Tail,
    /// The p99 during a flood of handshakes, divided by the p99 without it.
    Flooded,
    /// User and system time of the server per message that a subscriber receives, µs.
    CpuPerDelivery,
    /// User memory per connection, bytes.
    MemoryPerConnection,
    /// Time from start to first response, ms.
    StartTime,
}

impl Measure {
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::CpuPerRequest => "CPU µs/request",
            Self::CpuPerByte => "CPU ns/KiB",
            Self::ProcessPerRequest => "process µs/request",
            Self::ProcessPerByte => "process ns/KiB",
            Self::ClientCpuPerRequest => "client CPU µs/request",
            Self::CpuPerHandshake => "CPU µs/handshake",
            Self::Tail => "p99.9 µs",
            Self::Flooded => "p99 in flood ÷ quiet",
            Self::CpuPerDelivery => "CPU µs/delivery",
            Self::MemoryPerConnection => "bytes/connection",
            Self::StartTime => "ms to 1st response",
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::CpuPerRequest => "cpu_us_per_request",
            Self::CpuPerByte => "cpu_ns_per_kib",
            Self::ProcessPerRequest => "process_us_per_request",
            Self::ProcessPerByte => "process_ns_per_kib",
            Self::ClientCpuPerRequest => "client_cpu_us_per_request",
            Self::CpuPerHandshake => "cpu_us_per_handshake",
            Self::Tail => "p99_9_us",
            Self::Flooded => "p99_flooded_over_quiet",
            Self::CpuPerDelivery => "cpu_us_per_delivery",
            Self::MemoryPerConnection => "bytes_per_connection",
            Self::StartTime => "start_ms",
        }
    }
}

/// The figures of one contender in one round.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sample {
    pub(crate) requests: u64,
    pub(crate) errors: u64,
    pub(crate) rate_per_s: f64,
    /// Non-idle time of the measured CPUs, seconds.
    pub(crate) busy_s: f64,
    /// User and system time of the contender alone, seconds.
    pub(crate) own_s: f64,
    pub(crate) body_bytes: u64,
    /// p50, p99 and p99.9 in microseconds; `None` if the client does not report it, or if there are too few responses for it.
    pub(crate) latency_us: [Option<f64>; 3],
    /// The value, if the measure is not computed from requests (memory, times, latency).
    pub(crate) value: f64,
    /// Whether the client itself limited the figures.
    pub(crate) saturated: bool,
}

impl Sample {
    pub(crate) fn new(counted: &Counted, busy: Duration, own: Duration) -> Self {
        Self {
            requests: counted.requests,
            errors: counted.errors,
            rate_per_s: counted.requests as f64 / counted.seconds,
            busy_s: busy.as_secs_f64(),
            own_s: own.as_secs_f64(),
            body_bytes: counted.body_bytes,
            latency_us: counted.latency_us,
            value: 0.0,
            saturated: counted.saturated,
        }
    }

    /// The value of `measure`.
    fn measure(&self, measure: Measure) -> f64 {
        let requests = self.requests.max(1) as f64;
        match measure {
            Measure::CpuPerRequest | Measure::CpuPerHandshake => self.busy_s * 1e6 / requests,
            Measure::CpuPerByte => self.busy_s * 1e9 * 1024.0 / self.body_bytes.max(1) as f64,
            Measure::ProcessPerByte => self.own_s * 1e9 * 1024.0 / self.body_bytes.max(1) as f64,
            Measure::ProcessPerRequest | Measure::ClientCpuPerRequest => {
                self.own_s * 1e6 / requests
            }
            Measure::Tail => self.latency_us[2].unwrap_or(f64::NAN),
            Measure::Flooded
            | Measure::CpuPerDelivery
            | Measure::MemoryPerConnection
            | Measure::StartTime => self.value,
        }
    }
}

/// The samples of one contender.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) version: String,
    /// One sample for each round, in the order of the rounds.
    pub(crate) samples: Vec<Sample>,
    /// Resident memory after the last round.
    pub(crate) resident_bytes: u64,
}

impl Row {
    pub(crate) fn new(name: &'static str, version: String) -> Self {
        Self { name, version, samples: Vec::new(), resident_bytes: 0 }
    }

    fn measures(&self, measure: Measure) -> Vec<f64> {
        self.samples.iter().map(|sample| sample.measure(measure)).collect()
    }

    fn median(&self, of: impl Fn(&Sample) -> f64) -> f64 {
        median(&self.samples.iter().map(of).collect::<Vec<f64>>()).unwrap_or(f64::NAN)
    }

    /// The median of a percentile: number `at` of `Sample::latency_us`.
    fn latency_us(&self, at: usize) -> Option<f64> {
        let known = self.samples.iter().filter_map(|sample| sample.latency_us[at]);
        median(&known.collect::<Vec<f64>>())
    }

    /// The fraction of the measured CPUs' busy time spent outside the contender's processes (median of the rounds).
    fn foreign_fraction(&self) -> f64 {
        self.median(|sample| 1.0 - (sample.own_s / sample.busy_s.max(1e-9)).min(1.0))
    }

    fn errors(&self) -> u64 {
        self.samples.iter().map(|sample| sample.errors).sum()
    }
}

/// One comparison.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub(crate) what: &'static str,
    pub(crate) measure: Measure,
    pub(crate) connections: u32,
    pub(crate) pipeline: u16,
    /// Requests per second of an open loop; `None` for a closed loop.
    pub(crate) rate_per_s: Option<f64>,
    /// Bytes of each WebSocket message; `None`: HTTP requests.
    pub(crate) message_bytes: Option<usize>,
    pub(crate) rounds: u32,
    pub(crate) seconds: f64,
    pub(crate) client: &'static str,
    /// The server, if clients are compared.
    pub(crate) server: Option<&'static str>,
    pub(crate) rows: Vec<Row>,
}

impl Record {
    /// The denominator of the ratios: the floor, if it took part.
    fn base(&self) -> Option<&Row> {
        self.row("floor")
    }

    pub(crate) fn ours(&self) -> Option<&Row> {
        self.row("tidegate")
    }

    fn row(&self, name: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.name == name)
    }

    /// Tidegate's measure.
    pub(crate) fn ours_estimate(&self) -> Option<Estimate> {
        Some(Estimate::of(&self.ours()?.measures(self.measure), SPREAD_SEED))
    }

    /// Tidegate's measure divided by that of `name`, paired by round.
    pub(crate) fn ours_over(&self, name: &str) -> Option<Estimate> {
        self.ratio(self.ours(), self.row(name))
    }

    fn ratio(&self, these: Option<&Row>, those: Option<&Row>) -> Option<Estimate> {
        let (these, those) = (these?, those?);
        Some(Estimate::of_ratios(
            &these.measures(self.measure),
            &those.measures(self.measure),
            SPREAD_SEED,
        ))
    }

    /// The record as JSON.
    pub(crate) fn to_json(&self) -> Value {
        let environment: Map<String, Value> = machine::environment()
            .into_iter()
            .map(|(name, text)| (name.replace(' ', "_"), Value::String(text)))
            .collect();
        json!({
            "what": self.what,
            "measure": self.measure.name(),
            "unix_seconds": unix_seconds(),
            "connections": self.connections,
            "pipeline": self.pipeline,
            "rate_per_s": self.rate_per_s,
            "message_bytes": self.message_bytes,
            "rounds": self.rounds,
            "seconds": self.seconds,
            "client": self.client,
            "server": self.server,
            "disturbed": self.is_disturbed(),
            "contenders": self.rows.iter().map(|row| self.row_to_json(row)).collect::<Vec<_>>(),
            "environment": environment,
        })
    }

    fn row_to_json(&self, row: &Row) -> Value {
        let estimate = Estimate::of(&row.measures(self.measure), SPREAD_SEED);
        let mut object = Map::new();
        object.insert("name".to_owned(), json!(row.name));
        object.insert("version".to_owned(), json!(row.version));
        object.insert(self.measure.name().to_owned(), estimate_to_json(estimate));
        if let Some(ratio) = self.ratio(Some(row), self.base()) {
            object.insert("over_floor".to_owned(), estimate_to_json(ratio));
        }
        if let Some(ratio) = self.ratio(self.ours(), Some(row)) {
            object.insert("ours_over_this".to_owned(), estimate_to_json(ratio));
        }
        if self.is_of_requests() {
            let own_us = |sample: &Sample| sample.own_s * 1e6 / sample.requests.max(1) as f64;
            object.insert("own_cpu_us_per_request".to_owned(), rounded(row.median(own_us)));
            object.insert("rate_per_s".to_owned(), rounded(row.median(|sample| sample.rate_per_s)));
            for (at, name) in ["p50_us", "p99_us", "p99_9_us"].into_iter().enumerate() {
                object.insert(name.to_owned(), row.latency_us(at).map_or(Value::Null, rounded));
            }
            object.insert("errors".to_owned(), json!(row.errors()));
            let saturated = row.samples.iter().filter(|sample| sample.saturated).count();
            object.insert("rounds_saturated".to_owned(), json!(saturated));
        }
        object.insert("resident_bytes".to_owned(), json!(row.resident_bytes));
        Value::Object(object)
    }

    /// Whether other programs used so much of the measured CPUs that the ratios are unreliable.
    pub(crate) fn is_disturbed(&self) -> bool {
        let of_cpu = [Measure::CpuPerRequest, Measure::CpuPerHandshake, Measure::CpuPerByte];
        of_cpu.contains(&self.measure)
            && self.rows.iter().any(|row| row.foreign_fraction() > FOREIGN_MAX)
    }

    fn is_of_requests(&self) -> bool {
        !matches!(self.measure, Measure::MemoryPerConnection | Measure::StartTime)
    }
}

fn unix_seconds() -> u64 {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}

fn estimate_to_json(estimate: Estimate) -> Value {
    json!({
        "median": rounded(estimate.median),
        "low": rounded(estimate.low),
        "high": rounded(estimate.high),
    })
}

/// Rounds to four decimals: more digits are noise.
fn rounded(value: f64) -> Value {
    json!((value * 1e4).round() / 1e4)
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {} connections", self.what, self.connections)?;
        if self.pipeline > 1 {
            write!(f, ", {} requests in flight on each", self.pipeline)?;
        }
        if let Some(rate) = self.rate_per_s {
            write!(f, ", {rate:.0} requests/s (open loop)")?;
        }
        if let Some(bytes) = self.message_bytes {
            write!(f, ", messages of {bytes} bytes")?;
        }
        if self.is_of_requests() {
            write!(f, "; {} rounds of {} s, ", self.rounds, self.seconds)?;
            match self.server {
                Some(server) => write!(f, "server {server}")?,
                None => write!(f, "client {}", self.client)?,
            }
        }
        writeln!(f)?;
        write!(
            f,
            "{:<14} {:>21} {:>17} {:>15} {:>15}",
            "",
            self.measure.title(),
            "spread (95 %)",
            "× floor",
            "tidegate ÷ this"
        )?;
        if self.is_of_requests() {
            write!(
                f,
                " {:>9} {:>11} {:>8} {:>8} {:>8} {:>6}",
                "own µs", "requests/s", "p50 µs", "p99 µs", "p99.9 µs", "errors"
            )?;
        } else {
            write!(f, " {:>10}", "RSS KiB")?;
        }
        for row in &self.rows {
            writeln!(f)?;
            self.fmt_row(row, f)?;
        }
        if self.is_disturbed() {
            write!(
                f,
                "\nDISTURBED: other programs used the server's CPU, and their time is part of the CPU time above; \
                 repeat on an idle machine, or use --by process"
            )?;
        }
        Ok(())
    }
}

impl Record {
    fn fmt_row(&self, row: &Row, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let estimate = Estimate::of(&row.measures(self.measure), SPREAD_SEED);
        let ratio = |ratio: Option<Estimate>| {
            ratio.map_or_else(
                || "-".to_owned(),
                |ratio| {
                    let half = (ratio.high - ratio.low) / 2.0;
                    format!("{:.3} ±{half:.3}", ratio.median)
                },
            )
        };
        write!(
            f,
            "{:<14} {:>21.3} {:>17} {:>15} {:>15}",
            row.name,
            estimate.median,
            format!("{:.2}–{:.2}", estimate.low, estimate.high),
            ratio(self.ratio(Some(row), self.base())),
            ratio(self.ratio(self.ours(), Some(row))),
        )?;
        if self.is_of_requests() {
            let own_us = |sample: &Sample| sample.own_s * 1e6 / sample.requests.max(1) as f64;
            let latency =
                |at| row.latency_us(at).map_or_else(|| "-".to_owned(), |us| format!("{us:.0}"));
            write!(
                f,
                " {:>9.3} {:>11.0} {:>8} {:>8} {:>8} {:>6}",
                row.median(own_us),
                row.median(|sample| sample.rate_per_s),
                latency(0),
                latency(1),
                latency(2),
                row.errors(),
            )?;
            if row.samples.iter().any(|sample| sample.saturated) {
                write!(f, "  client saturated")?;
            }
        } else {
            write!(f, " {:>10}", row.resident_bytes / 1024)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &'static str, busy_s: &[f64]) -> Row {
        let mut row = Row::new(name, "1".to_owned());
        for &busy_s in busy_s {
            let own_s = busy_s * 0.9;
            row.samples.push(Sample { requests: 1_000_000, busy_s, own_s, ..Sample::default() });
        }
        row
    }

    #[test]
    fn ratios_are_paired_and_relative_to_the_floor() {
        let record = Record {
            what: "json",
            measure: Measure::CpuPerRequest,
            connections: 64,
            pipeline: 1,
            rate_per_s: None,
            message_bytes: None,
            rounds: 3,
            seconds: 2.0,
            client: "wrk",
            server: None,
            rows: vec![row("tidegate", &[6.0, 12.0, 6.6]), row("floor", &[5.0, 10.0, 5.5])],
        };
        let line = record.to_json();
        assert_eq!(line["contenders"][0]["over_floor"]["median"], 1.2);
        assert_eq!(line["contenders"][1]["ours_over_this"]["low"], 1.2);
        assert_eq!(line["contenders"][1]["cpu_us_per_request"]["median"], 5.5);
        assert!(!line.to_string().contains('\n'));
        let table = record.to_string();
        assert!(table.contains("1.200 ±0.000"), "{table}");
        assert!(!table.contains("DISTURBED"), "{table}");
    }
}
