//! `show errors`: the last malformed messages of clients and of servers.
//! In: the reports of the workers. Out: text or JSON, with the offending byte marked.
//! Never: shows the bytes of messages, which may contain secrets, if any user of the machine could be the client: they are
//! shown only over a unix socket, or with a token.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};
use tidegate_reactor::Peer;
use tidegate_wire::http1::locate;

use super::Operations;
use super::command::Outcome;
use super::command::Reply::Shown;
use super::sess::{ask_all, missing_note};
use crate::inspection::{Question, Report};
use crate::log::Stamp;
use crate::malformed::{FaultPlace, Malformed, MessageSender};

/// Bytes of a message in one line.
const LINE_BYTES_MAX: usize = 64;
const HIDDEN: &str = "the bytes are not shown, because they may contain secrets; help: use a unix socket, or set `token-file` in [admin]";

/// Shows the messages, the newest first.
pub(super) fn show(arguments: &[&str], operations: &Operations) -> Outcome {
    let is_json = match arguments {
        [] => false,
        ["json"] => true,
        _ => {
            let given = arguments.join(" ");
            return Err(format!(
                "`show errors` does not accept {given:?}; allowed: `show errors`, `show errors json`"
            ));
        }
    };
    let reports = ask_all(operations, Question::Malformed);
    let missing = missing_note(&reports);
    let mut all: Vec<Arc<Malformed>> = Vec::new();
    for (_, report) in &reports.reports {
        if let Report::Malformed(messages) = report {
            all.extend(messages.iter().cloned());
        }
    }
    all.sort_by_key(|message| core::cmp::Reverse(message.unix_millis));
    let shows_bytes = operations.is_private;
    if is_json {
        let messages: Vec<Value> = all.iter().map(|one| as_json(one, shows_bytes)).collect();
        let value = json!({"messages": messages, "missing_workers": reports.missing});
        return Ok(Shown(format!("{value}\n")));
    }
    let mut text = format!("# malformed messages, newest first: {}\n", all.len());
    if !shows_bytes && !all.is_empty() {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "# {HIDDEN}");
    }
    all.iter().for_each(|message| write(&mut text, message, shows_bytes));
    Ok(Shown(text + &missing))
}

/// The offset of the offending byte in the whole message.
fn offending(message: &Malformed) -> Option<usize> {
    match message.place {
        FaultPlace::Head(fault) => locate(&message.bytes, fault).map(|at| at + message.skipped),
        FaultPlace::At(at) => Some(at).filter(|at| *at < message.total),
        FaultPlace::Unknown => None,
    }
}

/// When it was rejected.
fn time(message: &Malformed) -> Stamp {
    Stamp(SystemTime::UNIX_EPOCH + Duration::from_millis(message.unix_millis))
}

/// The sender, and where it sent the message to.
fn sender(message: &Malformed) -> String {
    match &message.sender {
        MessageSender::Client { peer: Peer::Tcp(address), listener } => {
            format!("client {address} of listener {listener}")
        }
        MessageSender::Client { peer: Peer::Local, listener } => {
            format!("client unix of listener {listener}")
        }
        MessageSender::Server { pool, server } => format!("server {pool}/{server}"),
    }
}

fn write(text: &mut String, message: &Malformed, shows_bytes: bool) {
    let (time, sender) = (time(message), sender(message));
    let at = offending(message);
    let place = at.map_or_else(String::new, |at| format!("; the offending byte is at offset {at}"));
    let _ = writeln!(
        text,
        "\n{time} {sender}, connection {}\n  {}\n  {} bytes{place}",
        message.connection, message.reason, message.total
    );
    if !shows_bytes {
        return;
    }
    let mut offset = message.skipped;
    let ends_line = |byte: &u8| *byte == b'\n';
    for line in message.bytes.split_inclusive(ends_line) {
        for piece in line.chunks(LINE_BYTES_MAX) {
            write_piece(text, piece, offset, at);
            offset += piece.len();
        }
    }
    let rest = message.total - offset;
    if rest > 0 {
        let _ = writeln!(text, "  and {rest} more bytes");
    }
}

/// Writes a line of bytes, and the mark below the offending byte.
fn write_piece(text: &mut String, piece: &[u8], offset: usize, at: Option<usize>) {
    let shown = piece.escape_ascii();
    let _ = writeln!(text, "  {offset:05} {shown}");
    let Some(before) = at.and_then(|at| at.checked_sub(offset)).and_then(|at| piece.get(..at))
    else {
        return;
    };
    if before.len() < piece.len() {
        let width = before.escape_ascii().count();
        let _ = writeln!(text, "        {:width$}^", "");
    }
}

fn as_json(message: &Malformed, shows_bytes: bool) -> Value {
    let mut value = json!({
        "time": time(message).to_string(),
        "connection": message.connection.to_string(),
        "reason": message.reason,
        "bytes_total": message.total,
        "bytes_skipped": message.skipped,
        "offending_byte": offending(message),
    });
    match &message.sender {
        MessageSender::Client { peer, listener } => {
            value["client"] = match peer {
                Peer::Tcp(address) => address.to_string().into(),
                Peer::Local => "unix".into(),
            };
            value["listener"] = listener.as_str().into();
        }
        MessageSender::Server { pool, server } => {
            value["pool"] = pool.as_str().into();
            value["server"] = server.as_str().into();
        }
    }
    if shows_bytes {
        value["bytes"] = message.bytes.escape_ascii().to_string().into();
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_wire::message::FaultKind;

    fn message(bytes: &[u8], place: FaultPlace) -> Malformed {
        Malformed {
            unix_millis: 0,
            connection: "1.2.3".parse().expect("an id"),
            sender: MessageSender::Client { peer: Peer::Local, listener: "web".to_owned() },
            reason: "the reason",
            bytes: bytes.into(),
            skipped: 0,
            total: bytes.len(),
            place,
        }
    }

    #[test]
    fn offending_byte_is_marked_below_its_line() {
        let bytes = b"GET / HTTP/1.1\r\nHost: a\r\nB\xe9d: x\r\n\r\n";
        let mut text = String::new();
        let place = FaultPlace::Head(FaultKind::FieldNameInvalid);
        write(&mut text, &message(bytes, place), true);
        let expected = "  00025 B\\xe9d: x\\r\\n\n         ^\n  00033 \\r\\n\n";
        assert!(text.ends_with(expected), "{text}");
        assert!(text.contains("35 bytes; the offending byte is at offset 26\n"), "{text}");
        let mut hidden = String::new();
        write(&mut hidden, &message(bytes, place), false);
        assert!(hidden.contains("offset 26") && !hidden.contains("Host"), "{hidden}");
        assert!(as_json(&message(bytes, place), false).get("bytes").is_none());
    }

    #[test]
    fn long_lines_and_cut_messages_are_shown() {
        let mut long = message(&[b'a'; 200], FaultPlace::At(130));
        long.total = 1000;
        let mut text = String::new();
        write(&mut text, &long, true);
        let expected = format!("  00128 {}\n          ^\n", "a".repeat(64));
        assert!(text.contains(&expected), "{text}");
        assert!(text.ends_with("  and 800 more bytes\n"), "{text}");
    }
}
