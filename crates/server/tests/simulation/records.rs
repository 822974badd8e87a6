//! The access log of a run, compared with what clients sent and received.
//! In: the lines of all workers, the oracle, the workers' counters and statistics. Out: the first difference.
//! Invariant: each request that was begun has exactly one line, with the status that its client received.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;
use tidegate_reactor::SimReactor;
use tidegate_server::access_log::SharedBatch;
use tidegate_server::stats::Subject;

use crate::oracle::Oracle;
use crate::peer::harness::Harness;

/// The lines of one run.
#[derive(Default)]
pub struct Records {
    /// One for each worker.
    batches: Vec<Arc<SharedBatch>>,
    /// The lines so far.
    lines: String,
}

impl Records {
    /// The records of `harnesses`.
    pub fn of(harnesses: &[Harness<SimReactor>]) -> Self {
        let batches = harnesses.iter().filter_map(|harness| harness.log.clone());
        Self { batches: batches.collect(), lines: String::new() }
    }

    /// Takes the lines that the workers have written.
    pub fn collect(&mut self) {
        for batch in &self.batches {
            self.lines.push_str(&batch.take_string());
        }
    }

    /// Compares the lines with what happened. Called after the end of the run.
    pub fn check(
        &mut self,
        oracle: &Oracle,
        workers: &[Harness<SimReactor>],
    ) -> Result<(), String> {
        self.collect();
        let mut of_id: BTreeMap<u64, (u64, String)> = BTreeMap::new();
        let (mut decoded, mut classes) = (0, [0_u64; 6]);
        for line in self.lines.lines() {
            let value: Value =
                serde_json::from_str(line).map_err(|error| format!("{error}: {line}"))?;
            let status = value["status"].as_u64().unwrap_or(0);
            decoded += u64::from(value["method"].is_string());
            classes[(status / 100) as usize] += 1;
            if value["fault"] == "bug" {
                return Err(format!("a request ended without a cause: {line}"));
            }
            check_timers(&value).ok_or_else(|| format!("the timers disagree: {line}"))?;
            if !names_its_queue(&value) {
                return Err(format!("neither pool nor queueing time: {line}"));
            }
            // Each final response has a date, whichever way it takes to the client; except that of a tunnel.
            let has_date = value["response_headers"]["date"].is_string();
            let needs_date = value["method"].is_string() && value["method"] != "CONNECT";
            if !has_date && status >= 200 && needs_date {
                return Err(format!("the response was not captured: {line}"));
            }
            let id = value["request_headers"]["x-id"].as_str().and_then(|id| id.parse().ok());
            let Some(id) = id else { continue };
            if !oracle.requests.get(&id).is_some_and(|request| request.begun) {
                return Err(format!("no client sent this request: {line}"));
            }
            if let Some((_, before)) = of_id.insert(id, (status, line.to_owned())) {
                return Err(format!("r{id} has two lines:\n{before}\n{line}"));
            }
        }
        for (id, request) in &oracle.requests {
            let Some(got) = request.status else { continue };
            match of_id.get(id) {
                Some((status, _)) if *status == u64::from(got) => {}
                Some((_, line)) => return Err(format!("r{id} got {got}: {line}")),
                // The head took too long, so its fields are unknown.
                None if got == 408 => {}
                None => return Err(format!("r{id} got {got} and has no line")),
            }
        }
        let sum = |count: fn(&Harness<SimReactor>) -> u64| workers.iter().map(count).sum::<u64>();
        let counted = [
            sum(|worker| worker.accounts.counters.requests.load()),
            sum(|worker| worker.accounts.counters.answers_2xx.load()),
            sum(|worker| worker.accounts.counters.answers_3xx.load()),
            sum(|worker| worker.accounts.counters.answers_4xx.load()),
            sum(|worker| worker.accounts.counters.answers_5xx.load()),
        ];
        let logged = [decoded, classes[2], classes[3], classes[4], classes[5]];
        if logged != counted {
            return Err(format!("lines: {logged:?}, counters: {counted:?} (heads, 2xx to 5xx)"));
        }
        check_statistics(self.lines.lines().count() as u64, workers)
    }
}

/// What began has ended, on each listener, route and server; and each line was counted by its listener.
fn check_statistics(lines: u64, workers: &[Harness<SimReactor>]) -> Result<(), String> {
    let mut of_listeners = 0;
    for (subject, totals) in workers.iter().flat_map(|worker| worker.registry.totals()) {
        let [begun, ended, retries, now] =
            ["begun", "ended", "retries", "under_way_now"].map(|name| totals.get(name));
        if totals.get("queued_now") != 0 {
            return Err(format!("{subject:?}: requests are counted as waiting"));
        }
        if now != 0 || begun != ended + retries || totals.latency.count() != ended {
            return Err(format!(
                "{subject:?}: {begun} begun, {ended} ended, {retries} retries, {now} now"
            ));
        }
        if matches!(subject, Subject::Listener(_)) {
            of_listeners += ended;
        }
    }
    match of_listeners == lines {
        true => Ok(()),
        false => Err(format!("{lines} lines, {of_listeners} requests of listeners")),
    }
}

/// Whether the line of a request that got no server names the pool, and how long the request waited.
fn names_its_queue(line: &Value) -> bool {
    const REASONS: [&str; 3] =
        ["the request queue is full", "timed out in the request queue", "no server is available"];
    let reason = line["reason"].as_str().unwrap_or_default();
    !REASONS.contains(&reason) || line["pool"].is_string() && line["queue_ms"].is_f64()
}

/// The parts of an exchange take no longer than the whole.
fn check_timers(line: &Value) -> Option<()> {
    let millis = |name: &str| line[name].as_f64().unwrap_or(0.0);
    let parts = ["request_ms", "queue_ms", "connect_ms", "response_ms"].map(millis);
    let is_known = line["total_ms"].is_f64() && line["request_ms"].is_f64();
    let rounding = 0.005;
    (is_known && parts.iter().sum::<f64>() <= millis("total_ms") + rounding).then_some(())
}
