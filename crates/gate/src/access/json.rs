//! Lines of the access log as JSON objects.
//! In: an entry. Out: one object with a fixed order of members. A member whose value does not exist is left out.

use core::fmt::{self, Write as _};

use tidegate_base::Span;
use tidegate_base::calendar::Civil;
use tidegate_wire::message::Version;

use super::{Cause, Entry, Timers, address, escape, number, thousandths};

/// The size of most lines, in bytes.
const LINE_BYTES_USUAL: usize = 640;

/// Appends a second as in RFC 3339, without its fraction and zone.
pub(super) fn stamp(out: &mut String, civil: &Civil) -> fmt::Result {
    let Civil { year, month, day, hour, minute, second } = civil;
    write!(out, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}")
}

pub(super) fn encode(entry: &Entry<'_>, stamp: &str, out: &mut Vec<u8>) {
    // Enough for most lines, so that the buffer grows at most once.
    out.reserve(LINE_BYTES_USUAL);
    out.extend_from_slice(b"{\"time\":\"");
    out.extend_from_slice(stamp.as_bytes());
    out.extend_from_slice(&thousandths(entry.unix_millis % 1000));
    text(out, b"Z\",\"listener\":\"", entry.listener.as_bytes());
    out.extend_from_slice(b",\"client\":\"");
    match &entry.client {
        Some(client) => address(out, client),
        None => out.extend_from_slice(b"unix"),
    }
    match entry.version {
        Some(version) => request(entry, version, out),
        None => {
            out.extend_from_slice(b"\",\"protocol\":\"tcp\"");
            if let Some(request) = entry.request {
                text(out, b",\"server_name\":\"", request.host);
            }
        }
    }
    if !entry.id.is_empty() {
        text(out, b",\"id\":\"", entry.id);
    }
    if !entry.trace.is_empty() {
        text(out, b",\"trace_id\":\"", entry.trace);
    }
    if let Some(status) = entry.status {
        value(out, b",\"status\":", status.into());
    }
    value(out, b",\"bytes_in\":", entry.bytes_in);
    value(out, b",\"bytes_out\":", entry.bytes_out);
    if let Some(route) = entry.route {
        text(out, b",\"route\":\"", route.as_bytes());
    }
    if let Some(pool) = entry.pool {
        text(out, b",\"pool\":\"", pool.as_bytes());
    }
    if let Some((pool, server)) = entry.server {
        text(out, b",\"pool\":\"", pool.as_bytes());
        text(out, b",\"server\":\"", server.as_bytes());
        value(out, b",\"attempts\":", entry.attempts.into());
        match entry.is_reused {
            true => out.extend_from_slice(b",\"reused\":true"),
            false => out.extend_from_slice(b",\"reused\":false"),
        }
    }
    timers(&entry.timers, out);
    out.extend_from_slice(b",\"end\":\"");
    out.extend_from_slice(&entry.termination());
    out.push(b'"');
    if entry.cause != Cause::None {
        text(out, b",\"fault\":\"", entry.cause.fault().as_bytes());
    }
    if !entry.reason.is_empty() {
        text(out, b",\"reason\":\"", entry.reason.as_bytes());
    }
    captures(entry.captures.fields(), b",\"request_headers\":{", out);
    captures(entry.captures.cookies(), b",\"cookies\":{", out);
    captures(entry.response_captures.fields(), b",\"response_headers\":{", out);
    captures(entry.response_captures.cookies(), b",\"response_cookies\":{", out);
    if let Some(subject) = entry.subject.filter(|subject| !subject.is_empty()) {
        text(out, b",\"client_certificate\":\"", subject);
    }
    out.push(b'}');
}

/// Appends the request. The closing quote of the client's address is still missing.
#[inline]
fn request(entry: &Entry<'_>, version: Version, out: &mut Vec<u8>) {
    match &entry.request {
        Some(request) => {
            text(out, b"\",\"method\":\"", request.method);
            if !request.host.is_empty() {
                text(out, b",\"host\":\"", request.host);
            }
            text(out, b",\"target\":\"", request.target);
        }
        None => out.push(b'"'),
    }
    match version {
        Version::Http10 => out.extend_from_slice(b",\"version\":\"1.0\""),
        Version::Http11 => out.extend_from_slice(b",\"version\":\"1.1\""),
        Version::Http2 => out.extend_from_slice(b",\"version\":\"2.0\""),
    }
}

#[inline]
fn timers(timers: &Timers, out: &mut Vec<u8>) {
    let (zero, queue, connect) = (Some(Span::ZERO), timers.queue, timers.connect);
    if timers.request.is_zero() && (queue, connect) == (zero, zero) {
        // Most requests: the server has an idle connection. One copy replaces six.
        out.extend_from_slice(b",\"request_ms\":0.000,\"queue_ms\":0.000,\"connect_ms\":0.000");
    } else {
        millis(out, b",\"request_ms\":", Some(timers.request));
        millis(out, b",\"queue_ms\":", queue);
        millis(out, b",\"connect_ms\":", connect);
    }
    millis(out, b",\"response_ms\":", timers.response);
    millis(out, b",\"total_ms\":", Some(timers.total));
}

/// Appends the values that are not empty, as an object after `lead`.
fn captures<'a, const N: usize>(
    values: impl Iterator<Item = (&'a str, &'a [u8])>,
    lead: &[u8; N],
    out: &mut Vec<u8>,
) {
    let mut is_first = true;
    for (name, bytes) in values.filter(|(_, bytes)| !bytes.is_empty()) {
        match is_first {
            true => out.extend_from_slice(lead),
            false => out.push(b','),
        }
        is_first = false;
        text(out, b"\"", name.as_bytes());
        text(out, b":\"", bytes);
    }
    if !is_first {
        out.push(b'}');
    }
}

/// Appends a member whose value is a string; `lead` ends with its opening quote. The length of a lead is known to the compiler,
/// which then copies it with a few instructions, without a call.
#[inline]
fn text<const N: usize>(out: &mut Vec<u8>, lead: &[u8; N], bytes: &[u8]) {
    out.extend_from_slice(lead);
    escape::json(out, bytes);
    out.push(b'"');
}

#[inline]
fn value<const N: usize>(out: &mut Vec<u8>, lead: &[u8; N], value: u64) {
    out.extend_from_slice(lead);
    number(out, value);
}

/// Appends a member that is a number of milliseconds with three decimals.
#[inline]
fn millis<const N: usize>(out: &mut Vec<u8>, lead: &[u8; N], span: Option<Span>) {
    let Some(span) = span else { return };
    out.extend_from_slice(lead);
    if span.is_zero() {
        // All events of one turn have the same time, so 0 is the most frequent value.
        return out.extend_from_slice(b"0.000");
    }
    let micros = span.as_secs() * 1_000_000 + u64::from(span.subsec_micros());
    number(out, micros / 1000);
    out.extend_from_slice(&thousandths(micros % 1000));
}
