//! The common parts of the reports of the WebSocket loads (`bench push`, `bench ws`).
//! In: times, reasons, the use of the client's CPUs. Out: lines of text, JSON, warnings.
//! Never: reports a percentile that has too few samples; hides that the client or its CPUs limited the figures.

use crate::histogram::{PERCENTILES, Times};
use crate::quantity::micros;
use core::fmt::{self, Write as _};
use core::time::Duration;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// How many percentiles the reports show: up to p99.9.
const PERCENTILES_SHOWN: usize = 4;
/// A client whose threads waited for a CPU for more than this part of their working time adds to the latency.
const DELAYED_MAX: f64 = 0.05;
/// A thread that was on a CPU for more than this part of the time limited the figures.
const BUSY_MAX: f64 = 0.95;

/// Time of threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadTime {
    /// On a CPU.
    pub cpu: Duration,
    /// Ready to run, without a CPU.
    pub delay: Duration,
    /// All of it.
    pub wall: Duration,
}

impl ThreadTime {
    /// A warning if the threads had to wait for a CPU.
    pub(crate) fn delay_in_words(self) -> Option<String> {
        let working = self.cpu + self.delay;
        let delayed = self.delay.as_secs_f64() / working.as_secs_f64().max(1e-9);
        (delayed > DELAYED_MAX).then(|| {
            format!(
                "The client's threads waited for a CPU for {:.0} % of the time in which they had work, because \
                 the server or other programs used the CPUs. The latencies include this waiting time.",
                delayed * 100.0
            )
        })
    }
}

/// A warning if the client limited the figures. `busiest`: the largest part of its time that a thread was on a CPU.
pub(crate) fn busy_in_words(busiest: f64) -> Option<String> {
    (busiest > BUSY_MAX).then(|| {
        format!(
            "CLIENT SATURATED: a thread was busy {:.0} % of the time. The server may be faster than these \
             figures show.",
            busiest * 100.0
        )
    })
}

/// A report for people: the warnings, and its sections in order.
pub(crate) fn to_text(
    caveats: Vec<String>,
    sections: [&dyn Fn(&mut String) -> fmt::Result; 4],
) -> String {
    let mut text = String::new();
    for words in caveats {
        text.push_str(&words);
        text.push('\n');
    }
    for write in sections {
        // Writing to a String cannot fail.
        let _ = write(&mut text);
    }
    text
}

/// Writes a table of percentiles with a row for each kind of time that was measured.
pub(crate) fn write_percentiles(text: &mut String, rows: &[(&str, &Times)]) -> fmt::Result {
    write!(text, "\n  {:<12}", "")?;
    for (name, _) in PERCENTILES.iter().take(PERCENTILES_SHOWN) {
        write!(text, "{:>10}", name.replace('_', "."))?;
    }
    writeln!(text, "{:>10}{:>10}", "max", "mean")?;
    for (name, times) in rows.iter().filter(|(_, times)| times.count() > 0) {
        write!(text, "  {name:<12}")?;
        for (_, percent) in PERCENTILES.iter().take(PERCENTILES_SHOWN) {
            let value = times.reportable_us(*percent).map_or_else(|| "-".to_owned(), micros);
            write!(text, "{value:>10}")?;
        }
        writeln!(text, "{:>10}{:>10}", micros(times.max_us()), micros(times.mean_us()))?;
    }
    Ok(())
}

/// Writes a line for each reason.
pub(crate) fn write_reasons(
    text: &mut String,
    what: &str,
    reasons: &BTreeMap<String, u64>,
) -> fmt::Result {
    for (reason, count) in reasons {
        writeln!(text, "               {what} {count}: {reason}")?;
    }
    Ok(())
}

/// The percentiles, in microseconds; `null` if there are too few times.
pub(crate) fn times_to_json(times: &Times) -> Value {
    let mut object = Map::new();
    for (name, percent) in PERCENTILES {
        object.insert(name.to_owned(), json!(times.reportable_us(percent)));
    }
    let of = |value: f64| (times.count() > 0).then_some(value);
    object.insert("min".to_owned(), json!(of(times.percentile_us(0.0))));
    object.insert("mean".to_owned(), json!(of(times.mean_us())));
    object.insert("max".to_owned(), json!(of(times.max_us())));
    Value::Object(object)
}
