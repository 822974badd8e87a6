//! The commands that show what each worker does: its counters, its CPU time, and the cost of its handlers.
//! In: the counters of the workers, the kernel's accounts of their threads. Out: text with one line for each thing.

use std::fmt::Write as _;
use std::sync::Arc;

use serde_json::{Value, json};
use tidegate_base::histogram::Durations;

use super::Operations;
use super::command::Outcome;
use super::command::Reply::Shown;
use super::profile::cpu_ms;
use super::rows::wants_json;
use crate::counters::{Accounts, HandlerKind};

/// A duration beyond the bounds of the histogram.
const LONGER: &str = ">67ms";
/// The shown quantiles, in thousandths, and their names.
const QUANTILES: [(u64, &str); 3] = [(500, "p50"), (900, "p90"), (990, "p99")];

/// Fails if there are arguments.
fn no_arguments(command: &str, arguments: &[&str]) -> Result<(), String> {
    match arguments.is_empty() {
        true => Ok(()),
        false => {
            Err(format!("`{command}` does not accept {:?}; usage: {command}", arguments.join(" ")))
        }
    }
}

/// Shows each counter: the sum, and the values of the workers, as HAProxy's `show activity`.
pub(super) fn show_activity(arguments: &[&str], operations: &Operations) -> Outcome {
    no_arguments("show activity", arguments)?;
    let workers: Vec<_> =
        operations.accounts.iter().map(|accounts| accounts.counters.all()).collect();
    let mut text = String::new();
    for (at, (name, _)) in workers.first().into_iter().flatten().enumerate() {
        let values =
            workers.iter().filter_map(|counters| counters.get(at)).map(|(_, value)| *value);
        let shown: Vec<String> = values.clone().map(|value| value.to_string()).collect();
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{name}: {} [ {} ]", values.sum::<u64>(), shown.join(" "));
    }
    Ok(Shown(text))
}

/// Shows the threads of the workers: their thread ids, CPU time, requests and connections.
pub(super) fn show_threads(arguments: &[&str], operations: &Operations) -> Outcome {
    no_arguments("show threads", arguments)?;
    let mut text = String::from(
        "# worker thread user_ms kernel_ms turns accepted requests downstream_now upstream_now exchanges_now\n",
    );
    for (at, accounts) in operations.accounts.iter().enumerate() {
        let thread = accounts.thread.get();
        let (user_ms, kernel_ms) = thread.map(cpu_ms).unwrap_or_default();
        let number = thread.map_or_else(|| "-".to_owned(), |thread| thread.number.to_string());
        let counters = &accounts.counters;
        let _ = write!(text, "{at} {number} {user_ms} {kernel_ms}");
        for counter in [
            &counters.turns,
            &counters.accepted,
            &counters.requests,
            &counters.downstream_now,
            &counters.upstream_now,
            &counters.exchanges_now,
        ] {
            let _ = write!(text, " {}", counter.load());
        }
        text.push('\n');
    }
    Ok(Shown(text))
}

/// The cost of one kind of handler in all workers.
#[derive(Default)]
struct Cost {
    calls: u64,
    sampled: u64,
    busy_ns: u64,
    wait_ns: u64,
    /// The timed calls.
    busy: Durations,
    /// How long their events waited.
    wait: Durations,
}

impl Cost {
    fn of(kind: HandlerKind, all: &[Arc<Accounts>]) -> Self {
        let mut sum = Self::default();
        for handler in all.iter().filter_map(|accounts| accounts.handlers.get(kind as usize)) {
            sum.calls += handler.calls.load();
            sum.sampled += handler.sampled.load();
            sum.busy_ns += handler.sampled_busy_ns.load();
            sum.wait_ns += handler.sampled_wait_ns.load();
            sum.busy.add(&handler.busy);
            sum.wait.add(&handler.wait);
        }
        sum
    }

    /// The mean time of the calls that were timed, and the estimated total time of all calls.
    fn mean_and_all(&self, sampled_ns: u64) -> (u64, u64) {
        let mean = sampled_ns.checked_div(self.sampled).unwrap_or(0);
        let all = u128::from(sampled_ns) * u128::from(self.calls);
        let all = all.checked_div(u128::from(self.sampled)).unwrap_or(0);
        (mean, u64::try_from(all).unwrap_or(u64::MAX))
    }
}

/// Shows what each kind of handler costs: the columns of HAProxy's `show profiling tasks`, then quantiles.
pub(super) fn show_profiling(arguments: &[&str], operations: &Operations) -> Outcome {
    let is_json = wants_json("show profiling", arguments)?;
    let mut costs: Vec<(HandlerKind, Cost)> =
        HandlerKind::ALL.map(|kind| (kind, Cost::of(kind, &operations.accounts))).into();
    costs.retain(|(_, cost)| cost.calls > 0);
    costs.sort_by_key(|(_, cost)| core::cmp::Reverse(cost.mean_and_all(cost.busy_ns).1));
    if is_json {
        let all: Vec<Value> =
            costs.iter().map(|(kind, cost)| profiling_json(*kind, cost)).collect();
        return Ok(Shown(format!("{}\n", Value::Array(all))));
    }
    let mut text = format!(
        "Activity of all workers; one call in {} is timed, and totals are estimates:\n  {:<20}{:>12}",
        tidegate_base::handlers::SAMPLE_EVERY,
        "function",
        "calls",
    );
    let quantiles = |what: &str| QUANTILES.map(|(_, name)| format!("{what}_{name}"));
    let totals = ["cpu_tot", "cpu_avg", "lat_tot", "lat_avg"].map(str::to_owned);
    for name in totals.into_iter().chain(quantiles("cpu")).chain(quantiles("lat")) {
        let _ = write!(text, "{name:>10}");
    }
    text.push('\n');
    for (kind, cost) in &costs {
        let (busy_mean, busy_all) = cost.mean_and_all(cost.busy_ns);
        let (wait_mean, wait_all) = cost.mean_and_all(cost.wait_ns);
        let _ = write!(text, "  {:<20}{:>12}", kind.name(), cost.calls);
        for nanos in [busy_all, busy_mean, wait_all, wait_mean] {
            let _ = write!(text, "{:>10}", duration(nanos));
        }
        for durations in [&cost.busy, &cost.wait] {
            for part in quantiles_of(durations) {
                let shown = match part {
                    Some(nanos) => duration(nanos),
                    None if durations.count() == 0 => "-".to_owned(),
                    None => LONGER.to_owned(),
                };
                let _ = write!(text, "{shown:>10}");
            }
        }
        text.push('\n');
    }
    Ok(Shown(text))
}

fn quantiles_of(durations: &Durations) -> [Option<u64>; QUANTILES.len()] {
    QUANTILES.map(|(per_mille, _)| durations.quantile(per_mille))
}

fn profiling_json(kind: HandlerKind, cost: &Cost) -> Value {
    let figures = |durations: &Durations, sampled_ns| {
        let (mean, all) = cost.mean_and_all(sampled_ns);
        let [p50, p90, p99] = quantiles_of(durations);
        json!({"total_ns": all, "average_ns": mean, "p50_ns": p50, "p90_ns": p90, "p99_ns": p99})
    };
    json!({
        "function": kind.name(),
        "calls": cost.calls,
        "timed": cost.sampled,
        "cpu": figures(&cost.busy, cost.busy_ns),
        "latency": figures(&cost.wait, cost.wait_ns),
    })
}

/// A duration with a unit, as HAProxy writes it.
fn duration(nanos: u64) -> String {
    let value = nanos as f64;
    match nanos {
        0..1_000 => format!("{nanos}ns"),
        1_000..1_000_000 => format!("{:.3}us", value / 1e3),
        1_000_000..1_000_000_000 => format!("{:.3}ms", value / 1e6),
        1_000_000_000..60_000_000_000 => format!("{:.3}s", value / 1e9),
        60_000_000_000..3_600_000_000_000 => format!("{:.3}m", value / 6e10),
        _ => format!("{:.3}h", value / 3.6e12),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_are_estimated_from_the_timed_calls() {
        let accounts = [Arc::new(Accounts::default()), Arc::new(Accounts::default())];
        for (accounts, calls) in accounts.iter().zip([100, 28]) {
            let handler = &accounts.handlers[HandlerKind::Accept as usize];
            handler.calls.add(calls);
            handler.add_sample(300, 10);
        }
        let cost = Cost::of(HandlerKind::Accept, &accounts);
        assert_eq!(cost.mean_and_all(cost.busy_ns), (10, 1280));
        assert_eq!(cost.mean_and_all(cost.wait_ns), (300, 38_400));
        assert_eq!(Cost::default().mean_and_all(0), (0, 0));
    }

    #[test]
    fn durations_have_a_unit() {
        for (nanos, expected) in [
            (0, "0ns"),
            (999, "999ns"),
            (1_500, "1.500us"),
            (12_345_678, "12.346ms"),
            (5_000_000_000, "5.000s"),
            (90_000_000_000, "1.500m"),
            (7_200_000_000_000, "2.000h"),
        ] {
            assert_eq!(duration(nanos), expected);
        }
    }
}
