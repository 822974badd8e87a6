//! Lines of the access log with the fields of HAProxy's `option httplog`.
//! In: an entry. Out: the fields in HAProxy's order (its configuration manual, section 8.2.3), without the prefix of syslog.
//! Never: reports what happened to a session's cookie: that field is always `--`, even if the pool has `sticky`.

use core::fmt::{self, Write as _};

use tidegate_base::calendar::Civil;
use tidegate_wire::message::Version;

use super::{Captures, Entry, address, escape, number, thousandths};

/// Appends a second in HAProxy's format, without its fraction.
pub(super) fn stamp(out: &mut String, civil: &Civil) -> fmt::Result {
    let Civil { year, month: _, day, hour, minute, second } = civil;
    write!(out, "{day:02}/{}/{year:04}:{hour:02}:{minute:02}:{second:02}", civil.month_name())
}

pub(super) fn encode(entry: &Entry<'_>, stamp: &str, out: &mut Vec<u8>) {
    match &entry.client {
        Some(client) => address(out, client),
        None => out.extend_from_slice(b"unix:0"),
    }
    out.extend_from_slice(b" [");
    out.extend_from_slice(stamp.as_bytes());
    out.extend_from_slice(&thousandths(entry.unix_millis % 1000));
    out.extend_from_slice(b"] ");
    word(out, entry.listener);
    out.push(b' ');
    // If no backend was chosen, HAProxy writes the name of the frontend in its place.
    let (pool, server) = entry.server.unwrap_or((entry.pool.unwrap_or(entry.listener), "<NOSRV>"));
    word(out, pool);
    out.push(b'/');
    word(out, server);
    timers(entry, out);
    match entry.status {
        Some(status) => number(out, status.into()),
        None => out.extend_from_slice(b"-1"),
    }
    out.push(b' ');
    number(out, entry.bytes_out);
    out.push(b' ');
    cookie(entry.captures, out);
    out.push(b' ');
    cookie(entry.response_captures, out);
    out.push(b' ');
    out.extend_from_slice(&entry.termination());
    out.push(b' ');
    let loads = &entry.loads;
    let retries = u64::from(entry.attempts.saturating_sub(1));
    let counts = [loads.clients, loads.exchanges, loads.pool, loads.server, retries];
    joined(out, &counts);
    out.push(b' ');
    joined(out, &[0, loads.queued]);
    captures(entry.captures, entry.subject, out);
    captures(entry.response_captures, None, out);
    request(entry, out);
}

/// Appends the block of the captured fields of a message, with `last` after them. Appends nothing if no field is captured. A
/// value that does not exist is empty, so that the others keep their places.
fn captures(captures: Captures<'_>, last: Option<&[u8]>, out: &mut Vec<u8>) {
    if captures.names.is_empty() && last.is_none() {
        return;
    }
    let mut values = captures.fields().map(|(_, value)| value);
    let known = (0..captures.names.len()).map(|_| values.next().unwrap_or_default());
    for (at, value) in known.chain(last).enumerate() {
        out.extend_from_slice(if at == 0 { &b" {"[..] } else { b"|" });
        escape::haproxy(out, value, true);
    }
    out.push(b'}');
}

/// Appends the field for the captured cookie of a message: name and value of the first captured cookie that the message has.
fn cookie(captures: Captures<'_>, out: &mut Vec<u8>) {
    let mut cookies = captures.cookies();
    let Some((name, value)) = cookies.find(|(_, value)| !value.is_empty()) else {
        return out.push(b'-');
    };
    escape::haproxy(out, name.as_bytes(), true);
    out.push(b'=');
    // A blank would shift the fields after it.
    for part in value.split_inclusive(|byte| *byte == b' ') {
        let (text, blank) = part.strip_suffix(b" ").map_or((part, &b""[..]), |text| (text, b"#20"));
        escape::haproxy(out, text, true);
        out.extend_from_slice(blank);
    }
}

/// Appends a name. Blanks, which would shift the fields after it, become `_`.
fn word(out: &mut Vec<u8>, name: &str) {
    out.extend(name.bytes().map(|byte| if byte.is_ascii_graphic() { byte } else { b'_' }));
}

fn timers(entry: &Entry<'_>, out: &mut Vec<u8>) {
    let timers = &entry.timers;
    let parts =
        [Some(timers.request), timers.queue, timers.connect, timers.response, Some(timers.total)];
    for (at, part) in parts.into_iter().enumerate() {
        out.push(if at == 0 { b' ' } else { b'/' });
        match part {
            Some(span) => number(out, span.as_millis() as u64),
            None => out.extend_from_slice(b"-1"),
        }
    }
    out.push(b' ');
}

fn joined(out: &mut Vec<u8>, numbers: &[u64]) {
    for (at, value) in numbers.iter().enumerate() {
        if at > 0 {
            out.push(b'/');
        }
        number(out, *value);
    }
}

fn request(entry: &Entry<'_>, out: &mut Vec<u8>) {
    let Some(version) = entry.version else { return out.extend_from_slice(b" \"<TCP>\"") };
    let Some(request) = &entry.request else { return out.extend_from_slice(b" \"<BADREQ>\"") };
    out.extend_from_slice(b" \"");
    escape::haproxy(out, request.method, false);
    out.push(b' ');
    escape::haproxy(out, request.target, false);
    out.extend_from_slice(match version {
        Version::Http10 => b" HTTP/1.0\"",
        Version::Http11 => b" HTTP/1.1\"",
        Version::Http2 => b" HTTP/2.0\"",
    });
}
