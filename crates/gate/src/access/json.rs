//! Lines of the access log as JSON objects.
//! In: an entry. Out: one object with a fixed order of members. A member whose value does not exist is left out.

use core::fmt::{self, Write as _};

use tidegate_base::Span;
use tidegate_base::calendar::Civil;
use tidegate_wire::message::Version;

use super::{Cause, Entry, address, escape, number, thousandths};

/// Appends a second as in RFC 3339, without its fraction and zone.
pub(super) fn stamp(out: &mut String, civil: &Civil) -> fmt::Result {
    let Civil { year, month, day, hour, minute, second } = civil;
    write!(out, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}")
}

pub(super) fn encode(entry: &Entry<'_>, stamp: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"time\":\"");
    out.extend_from_slice(stamp.as_bytes());
    out.push(b'.');
    thousandths(out, entry.unix_millis % 1000);
    out.extend_from_slice(b"Z\",\"listener\":\"");
    escape::json(out, entry.listener.as_bytes());
    out.extend_from_slice(b"\",\"client\":\"");
    match &entry.client {
        Some(client) => address(out, client),
        None => out.extend_from_slice(b"unix"),
    }
    out.push(b'"');
    if let Some(request) = &entry.request
        && entry.version.is_some()
    {
        text(out, ",\"method\":\"", request.method.as_bytes());
        if !request.host.is_empty() {
            text(out, ",\"host\":\"", request.host.as_bytes());
        }
        text(out, ",\"target\":\"", request.target.as_bytes());
    }
    out.extend_from_slice(match entry.version {
        Some(Version::Http10) => b",\"version\":\"1.0\"",
        Some(Version::Http11) => b",\"version\":\"1.1\"",
        Some(Version::Http2) => b",\"version\":\"2.0\"",
        None => b",\"protocol\":\"tcp\"",
    });
    if entry.version.is_none()
        && let Some(name) = entry.request.map(|request| request.host)
    {
        text(out, ",\"server_name\":\"", name.as_bytes());
    }
    if let Some(status) = entry.status {
        value(out, ",\"status\":", status.into());
    }
    value(out, ",\"bytes_in\":", entry.bytes_in);
    value(out, ",\"bytes_out\":", entry.bytes_out);
    if let Some(route) = entry.route {
        text(out, ",\"route\":\"", route.as_bytes());
    }
    if let Some((pool, server)) = entry.server {
        text(out, ",\"pool\":\"", pool.as_bytes());
        text(out, ",\"server\":\"", server.as_bytes());
        value(out, ",\"attempts\":", entry.attempts.into());
        out.extend_from_slice(if entry.is_reused {
            b",\"reused\":true"
        } else {
            b",\"reused\":false"
        });
    }
    millis(out, ",\"request_ms\":", Some(entry.timers.request));
    millis(out, ",\"queue_ms\":", entry.timers.queue);
    millis(out, ",\"connect_ms\":", entry.timers.connect);
    millis(out, ",\"response_ms\":", entry.timers.response);
    millis(out, ",\"total_ms\":", Some(entry.timers.total));
    out.extend_from_slice(b",\"end\":\"");
    out.extend_from_slice(&entry.termination());
    out.push(b'"');
    if entry.cause != Cause::None {
        text(out, ",\"fault\":\"", entry.cause.fault().as_bytes());
    }
    if !entry.reason.is_empty() {
        text(out, ",\"reason\":\"", entry.reason.as_bytes());
    }
    captures(entry, out);
    out.push(b'}');
}

fn captures(entry: &Entry<'_>, out: &mut Vec<u8>) {
    let mut is_first = true;
    for (name, bytes) in entry.captures.iter().filter(|(_, bytes)| !bytes.is_empty()) {
        let lead = if is_first { ",\"request_headers\":{\"" } else { ",\"" };
        is_first = false;
        out.extend_from_slice(lead.as_bytes());
        escape::json(out, name.as_bytes());
        text(out, "\":\"", bytes);
    }
    if !is_first {
        out.push(b'}');
    }
}

/// A member whose value is a string; `lead` ends with its opening quote.
fn text(out: &mut Vec<u8>, lead: &str, bytes: &[u8]) {
    out.extend_from_slice(lead.as_bytes());
    escape::json(out, bytes);
    out.push(b'"');
}

fn value(out: &mut Vec<u8>, lead: &str, value: u64) {
    out.extend_from_slice(lead.as_bytes());
    number(out, value);
}

/// A member that is a number of milliseconds with three decimals.
fn millis(out: &mut Vec<u8>, lead: &str, span: Option<Span>) {
    let Some(span) = span else { return };
    out.extend_from_slice(lead.as_bytes());
    let micros = span.as_micros() as u64;
    number(out, micros / 1000);
    out.push(b'.');
    thousandths(out, micros % 1000);
}
