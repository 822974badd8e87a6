//! `show info`: the process.
//! In: the counters of the workers. Out: the fields of HAProxy's `show info` that have a meaning here, and all counters.

use std::sync::atomic::Ordering;

use super::Operations;

/// The fields, in HAProxy's order.
fn fields(operations: &Operations) -> Vec<(&'static str, String)> {
    let counters = operations.counters();
    let counter = |name: &str| counters.get(name).copied().unwrap_or(0).to_string();
    let uptime = operations.started.0.elapsed().as_secs();
    let start = operations.started.1.duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let maxconn =
        operations.config().server.connections_max.map_or(String::new(), |most| most.to_string());
    let uptime_text = format!(
        "{}d {}h{:02}m{:02}s",
        uptime / 86_400,
        uptime / 3600 % 24,
        uptime / 60 % 60,
        uptime % 60
    );
    vec![
        ("Name", "Tidegate".to_owned()),
        ("Version", env!("CARGO_PKG_VERSION").to_owned()),
        ("Nbthread", operations.accounts.len().to_string()),
        ("Nbproc", "1".to_owned()),
        ("Process_num", "1".to_owned()),
        ("Pid", std::process::id().to_string()),
        ("Uptime", uptime_text),
        ("Uptime_sec", uptime.to_string()),
        ("Maxconn", maxconn),
        ("CurrConns", counter("downstream_now")),
        ("CumConns", counter("accepted")),
        ("CumReq", counter("requests")),
        ("CurrSslConns", counter("tls_sessions_now")),
        ("CumSslConns", counter("tls_handshakes")),
        ("Stopping", u8::from(operations.is_stopping.load(Ordering::SeqCst)).to_string()),
        ("Listeners", operations.config().listeners.len().to_string()),
        ("DroppedLogs", counter("access_lines_lost")),
        ("Start_time_sec", start.as_secs().to_string()),
    ]
}

/// The fields as lines.
pub(super) fn text(operations: &Operations) -> String {
    let fields = fields(operations);
    let known = fields.into_iter().map(|(name, value)| format!("{name}: {value}\n"));
    let counters = operations.counters();
    let own = counters.into_iter().map(|(name, value)| format!("{name}: {value}\n"));
    known.chain(own).collect()
}

/// The fields as a JSON object. Numbers are numbers; the counters are in a separate member.
pub(super) fn json(operations: &Operations) -> String {
    let member = |name: &str, value: &str| match value.parse::<u64>() {
        Ok(number) => format!("\"{name}\":{number}"),
        Err(_) => format!("\"{name}\":{}", quoted(value)),
    };
    let fields = fields(operations);
    let known: Vec<String> = fields.iter().map(|(name, value)| member(name, value)).collect();
    let counters = operations.counters();
    let own: Vec<String> =
        counters.iter().map(|(name, value)| format!("\"{name}\":{value}")).collect();
    format!("{{{},\"counters\":{{{}}}}}", known.join(","), own.join(","))
}

/// A JSON string of a name from the configuration.
pub(super) fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            _ if c.is_control() => quoted.push_str(&format!("\\u{:04x}", u32::from(c))),
            _ => quoted.push(c),
        }
    }
    quoted + "\""
}
