//! The report for programs, as JSON. These names are stable: `requests`, `errors`, `rate_per_s`, `latency_us`,
//! `service_us`, `client_cpu_us_per_request`, `saturated`.
//! In: runs. Out: one JSON object; for several candidates, one object each under `candidates`.

use super::Run;
use super::ratios::FIGURES;
use crate::histogram::{PERCENTILES, Times};
use crate::machine;
use crate::plan::{Pace, Protocol};
use crate::tally::Tally;
use serde_json::{Map, Value, json};
use tidegate_base::statistics::Estimate;

/// The report of `runs` as JSON.
#[must_use]
pub fn to_json(runs: &[Run], command: &str) -> Value {
    let mut object = match runs {
        [run] => run_to_json(run),
        _ => {
            let mut object = Map::new();
            let candidates = runs.iter().map(|run| Value::Object(run_to_json(run)));
            object.insert("candidates".to_owned(), candidates.collect());
            object.insert("ratios".to_owned(), ratios_to_json(runs));
            object
        }
    };
    let environment: Map<String, Value> = machine::environment()
        .into_iter()
        .map(|(name, text)| (name.replace(' ', "_"), Value::String(text)))
        .collect();
    object.insert("environment".to_owned(), Value::Object(environment));
    object.insert("command".to_owned(), json!(command));
    Value::Object(object)
}

fn run_to_json(run: &Run) -> Map<String, Value> {
    let outcome = &run.outcome;
    let tally = &outcome.tally;
    let mut object = Map::new();
    let mut put = |name: &str, value: Value| {
        object.insert(name.to_owned(), value);
    };
    put("name", json!(run.name));
    put("url", json!(run.url));
    put("loop", json!(if run.plan.pace == Pace::Closed { "closed" } else { "open" }));
    put("saturated", json!(!outcome.saturated.is_empty()));
    put("saturated_because", json!(outcome.saturated));
    put("disturbed", json!(!outcome.disturbed.is_empty()));
    put("disturbed_because", json!(outcome.disturbed));
    put("blocked", json!(!outcome.blocked.is_empty()));
    put("blocked_because", json!(outcome.blocked));
    put("silent_since_s", json!(outcome.silent_since.map(|since| since.as_secs_f64())));
    put("stopped_early", json!(outcome.was_stopped));
    put("gave_up", json!(tally.gave_up));
    put("warm_up_only", json!(!outcome.has_counted));
    put("connections", json!(run.plan.connections));
    put("threads", json!(run.plan.threads));
    put("seconds", json!(outcome.counted.as_secs_f64()));
    put("requests", json!(tally.requests));
    put("errors", errors_to_json(tally));
    put("first_error", first_errors(tally));
    put("unanswered", json!(tally.unanswered));
    put("unconnected", json!(tally.unconnected));
    put("planned_rate_per_s", planned_rate(run));
    put("rate_per_s", json!(outcome.rate_per_s()));
    put("unsent", json!(tally.unsent));
    put("waited_for_connection", json!(tally.waited_for_connection));
    put("status", statuses(run));
    put("bytes_received", json!(tally.bytes_received));
    put("body_bytes", json!(tally.body_bytes));
    put("connects", json!(tally.connects));
    put("latency_us", times_to_json(&tally.latency));
    put("service_us", times_to_json(&tally.service));
    put("first_byte_us", times_to_json(&tally.first_byte));
    put("connect_us", times_to_json(&tally.connect));
    if tally.handshakes() > 0 {
        put("handshake_us", times_to_json(&tally.handshake));
        put("handshakes_full", json!(tally.handshakes_full));
        put("handshakes_resumed", json!(tally.handshakes_resumed));
        put("negotiated", json!(tally.negotiated));
    }
    if run.plan.protocol == Protocol::Http2 {
        put("streams", json!(run.plan.pipeline));
        put("streams_allowed", json!(tally.streams_allowed));
        put("goaways", json!(tally.goaways));
    }
    put("schedule_error_us", times_to_json(&tally.schedule_error));
    put("requests_of_slowest_connection", json!(tally.fairness.map(|(slowest, _)| slowest)));
    put("requests_of_fastest_connection", json!(tally.fairness.map(|(_, fastest)| fastest)));
    put("client_cpu_us_per_request", json!(outcome.client_cpu_us_per_request()));
    put("server_cpu_us_per_request", json!(run.server_cpu_us_per_request()));
    if let Some(server) = outcome.server {
        put("server_process_cpu_s", json!(server.cpu.as_secs_f64()));
        put("server_resident_bytes", json!(server.resident_bytes));
        put("server_context_switches", json!(server.context_switches));
    }
    if let Some(busy) = outcome.server_busy {
        put("server_busy_s", json!(busy.as_secs_f64()));
    }
    if let Some(reference) = &outcome.reference {
        put("reference_requests", json!(reference.requests));
        put("reference_errors", errors_to_json(reference));
        put("reference_first_error", first_errors(reference));
        if reference.requests > 0 {
            put("reference_latency_us", times_to_json(&reference.latency));
        }
        if reference.requests > 0 && tally.requests > 0 {
            put("added_latency_us", added(&tally.latency, &reference.latency));
        }
    }
    put("per_second", points(run));
    object
}

fn errors_to_json(tally: &Tally) -> Value {
    let classes = tally.errors.classes();
    Value::Object(
        classes.into_iter().map(|(class, count)| (class.to_owned(), json!(count))).collect(),
    )
}

fn first_errors(tally: &Tally) -> Value {
    let failures = tally.failures();
    Value::Object(failures.map(|(class, _, words)| (class.to_owned(), json!(words))).collect())
}

fn planned_rate(run: &Run) -> Value {
    match run.plan.pace {
        Pace::Closed => Value::Null,
        Pace::Total { per_second, .. } => json!(per_second),
        Pace::PerConnection { per_second, .. } => {
            json!(per_second * f64::from(run.plan.connections))
        }
    }
}

fn statuses(run: &Run) -> Value {
    let counts = &run.outcome.tally.statuses;
    json!({ "1xx": counts[1], "2xx": counts[2], "3xx": counts[3], "4xx": counts[4], "5xx": counts[5] })
}

fn times_to_json(times: &Times) -> Value {
    // Values without measurements, and percentiles with too few measurements, are null.
    let figure = |value: f64| if times.count() > 0 { json!(value) } else { Value::Null };
    let mut object = Map::new();
    for (name, percent) in PERCENTILES {
        object.insert(name.to_owned(), json!(times.reportable_us(percent)));
    }
    object.insert("max".to_owned(), figure(times.max_us()));
    object.insert("mean".to_owned(), figure(times.mean_us()));
    object.insert("count".to_owned(), json!(times.count()));
    Value::Object(object)
}

fn added(proxied: &Times, direct: &Times) -> Value {
    let mut object = Map::new();
    for (name, percent) in PERCENTILES {
        let difference = proxied.reportable_us(percent).zip(direct.reportable_us(percent));
        object.insert(name.to_owned(), json!(difference.map(|(proxied, direct)| proxied - direct)));
    }
    Value::Object(object)
}

fn points(run: &Run) -> Value {
    run.outcome
        .points
        .iter()
        .map(|point| {
            json!({
                "at_s": point.at_s,
                "rate_per_s": point.rate_per_s,
                "errors_per_s": point.errors_per_s,
                "p50_us": point.p50_us,
                "p99_us": point.p99_us,
                "p99_9_us": point.p99_9_us,
                "max_us": point.max_us,
            })
        })
        .collect()
}

/// The ratio of each candidate to the first one, taken within rounds.
fn ratios_to_json(runs: &[Run]) -> Value {
    let Some(first) = runs.first() else {
        return Value::Null;
    };
    runs.iter()
        .skip(1)
        .map(|run| {
            let mut of_run = json!({ "name": run.name, "over": first.name });
            for figure in &FIGURES {
                let Estimate { median, low, high } = figure.ratio(run, first);
                of_run[figure.member] = json!({ "median": median, "low": low, "high": high });
            }
            of_run
        })
        .collect()
}
