//! What a message to all subscribers of a channel costs push servers.
//! In: contenders of `Work::Push`. Out: the CPU time of the server for each message that a subscriber receives.
//! Never: counts the time in which subscribers connect.
//! Limits: the descriptors of a process. Invariant: each round opens its own subscribers, and closes them before the next contender's
//! turn.

use super::Bench;
use super::contender::{Contender, RAW, Work};
use super::record::{Measure, Record, Row, Sample};
use crate::{machine, process};
use serde_json::Value;
use std::process::Command;

/// Messages in a round.
const BROADCASTS: u32 = 20;
/// How many subscribers connect in a second, at most.
const SETUP_RATE_PER_S: u32 = 10_000;
/// Descriptors that a process needs for other purposes.
const DESCRIPTORS_SPARE: u64 = 200;
/// The key of the server API in the configurations of the contenders.
const API_KEY: &str = "change-me-0123456789";

impl Bench {
    /// The CPU time of each contender for the delivery of a message of `message_bytes` to one subscriber.
    pub(super) fn push_rounds(
        &self,
        subscribers: u32,
        message_bytes: usize,
    ) -> Result<Record, String> {
        let limit = machine::raise_descriptor_limit();
        let needed = u64::from(subscribers) + DESCRIPTORS_SPARE;
        if limit < needed {
            return Err(format!(
                "{subscribers} subscribers need {needed} descriptors but the hard limit is {limit}; \
                 use --connections {} or raise the limit (ulimit -Hn)",
                limit.saturating_sub(DESCRIPTORS_SPARE)
            ));
        }
        let mut contenders = self.start_all(Work::Push)?;
        let mut rows: Vec<Row> = contenders
            .iter()
            .map(|contender| Row::new(contender.name, contender.version.clone()))
            .collect();
        // Round 0 is the warm-up.
        for round in 0..=self.rounds {
            for (contender, row) in contenders.iter_mut().zip(&mut rows) {
                self.show_progress(round, contender.name);
                let sample = self.push_once(contender, subscribers, message_bytes);
                let sample = sample.map_err(|why| {
                    let ended = contender.running.ended();
                    let ended = ended.map_or(String::new(), |ended| format!("; {ended}"));
                    format!("{}: {why}{ended}", contender.name)
                })?;
                if round > 0 {
                    row.samples.push(sample);
                    let spent = machine::spent(contender.running.pid()).unwrap_or_default();
                    row.resident_bytes = spent.resident_bytes;
                }
            }
        }
        let record = self.record("push", Measure::CpuPerDelivery, subscribers, rows);
        Ok(Record { message_bytes: Some(message_bytes), ..record })
    }

    fn push_once(
        &self,
        contender: &Contender,
        subscribers: u32,
        message_bytes: usize,
    ) -> Result<Sample, String> {
        let mut command = Command::new(&self.own.bench);
        command
            .args(["bench", "push"])
            .args(way_of(contender))
            .args(["-c", &subscribers.to_string(), "--size", &message_bytes.to_string()])
            .args(["--broadcasts", &BROADCASTS.to_string(), "--pause", "10ms"])
            .args(["--setup-rate", &SETUP_RATE_PER_S.to_string()])
            .args(["--server-pid", &contender.running.pid().to_string(), "--json"]);
        let (_, stdout, stderr) = process::Running::output(&mut command, &self.client_cpus)
            .map_err(|error| error.to_string())?;
        sample_of(&stdout).ok_or_else(|| match stderr.trim() {
            "" => "no message arrived".to_owned(),
            why => why.to_owned(),
        })
    }
}

/// How subscribers connect to a contender, and how messages are published: arguments of `bench push`.
fn way_of(contender: &Contender) -> Vec<String> {
    let at = contender.address;
    let arguments = |list: &[&str]| list.iter().map(|&one| one.to_owned()).collect::<Vec<_>>();
    let by_protocol = |folder: &str, publish: &str| {
        let mut all = vec![format!("ws://{at}{folder}/connection/websocket")];
        all.extend(arguments(&["--client-protocol", "--channel", "room", "--api-key", API_KEY]));
        all.extend(["--publish-url".to_owned(), format!("http://{at}{publish}")]);
        all
    };
    match contender.name {
        "tidegate" => by_protocol("/push", "/push/api/publish"),
        RAW => {
            let mut all = vec![format!("ws://{at}/push/subscribe/room")];
            all.extend(arguments(&["--api-key", API_KEY]));
            all
        }
        "nchan" => {
            let mut all = vec![format!("ws://{at}/sub/room")];
            all.extend(arguments(&["--publish-body", "--publish-url"]));
            all.push(format!("http://{at}/pub/room"));
            all
        }
        _ => by_protocol("", "/api/publish"),
    }
}

/// The figures of a report of `bench push`; `None` if it has none.
fn sample_of(report: &str) -> Option<Sample> {
    let report: Value = serde_json::from_str(report).ok()?;
    let count = |name: &str| report[name].as_u64().unwrap_or(0);
    let received = count("received");
    let wrong = ["setup_failed", "publish_failed", "lost", "duplicated", "out_of_order", "foreign"];
    let latency = |at: &str| report["latency_us"][at].as_f64();
    let cpu_us = report["server_cpu_us_per_message"].as_f64()?;
    let seconds = report["publishing_s"].as_f64()?.max(1e-9);
    (received > 0).then(|| Sample {
        requests: received,
        errors: wrong.into_iter().map(count).sum(),
        rate_per_s: received as f64 / seconds,
        own_s: cpu_us * received as f64 / 1e6,
        busy_s: cpu_us * received as f64 / 1e6,
        latency_us: ["p50", "p99", "p99_9"].map(latency),
        value: cpu_us,
        ..Sample::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn report_of_bench_push_becomes_a_sample() {
        let report = r#"{"received":200,"lost":2,"duplicated":1,"publishing_s":0.5,
            "server_cpu_us_per_message":12.5,"latency_us":{"p50":1.0,"p99":2.0,"p99_9":3.0}}"#;
        let sample = sample_of(report).expect("a sample");
        assert_eq!((sample.requests, sample.errors), (200, 3));
        assert!((sample.value - 12.5).abs() < 1e-9 && (sample.rate_per_s - 400.0).abs() < 1e-6);
        assert!((sample.own_s - 0.0025).abs() < 1e-9);
        assert_eq!(sample.latency_us, [1.0, 2.0, 3.0].map(Some));
        for wrong in
            ["", "{}", r#"{"received":0,"publishing_s":1.0,"server_cpu_us_per_message":1.0}"#]
        {
            assert!(sample_of(wrong).is_none(), "{wrong}");
        }
    }
}
