//! Reads `[websocket]`, and `websocket` of a route.
//! In: a table of the file, and the settings that it changes. Out: checked settings.
//! Invariant: every origin has one of the forms that `wire` accepts; subprotocols are tokens, each once.

use crate::model::{SAME_ORIGIN, WebSocket};
use crate::pattern::{ValueError, is_token};
use crate::report::{Kind, Note, Notes, quoted};
use crate::table::{Table, wrong_type};

/// Reads the settings in `name` of `table` that differ from `base`.
pub(crate) fn read(table: &Table<'_>, base: WebSocket, notes: &mut Notes) -> WebSocket {
    let mut settings = base;
    if let Some(value) =
        table.value("websocket").filter(|value| value.get_ref().as_bool().is_some())
    {
        let note = wrong_type("`websocket`", value, "a table");
        let help = "remove it: WebSocket through `proxy` needs no setting";
        notes.error(note.help(help));
        return settings;
    }
    let Some(table) = table.open_table("websocket", notes) else { return settings };
    if table.value("origins").is_some() {
        settings.origins.clear();
        for origin in table.texts("origins", notes) {
            match check_origin(&origin.text) {
                Ok(()) => settings.origins.push(origin.text),
                Err(complaint) => {
                    notes.error(crate::listeners::refused("origins", &origin, complaint));
                }
            }
        }
    }
    if table.value("subprotocols").is_some() {
        settings.subprotocols.clear();
        for name in table.texts("subprotocols", notes) {
            let help = match name.text.as_str() {
                text if !is_token(text) => "write a token, such as \"chat\"",
                _ if settings.subprotocols.contains(&name.text) => "remove the duplicate",
                _ => {
                    settings.subprotocols.push(name.text);
                    continue;
                }
            };
            let what = format!("`subprotocols` cannot contain {}", quoted(&name.text));
            notes.error(Note::new(Kind::Value, name.place, what).help(help));
        }
    }
    table.set_word("compression", &mut settings.compression, notes);
    table.set_number("window-bits", &mut settings.window_bits, notes);
    let mut message_max = Some(settings.message_bytes_max);
    table.set_bound("message-max", &mut message_max, notes);
    settings.message_bytes_max = message_max.unwrap_or(settings.message_bytes_max);
    table.set_bound("frame-max", &mut settings.frame_bytes_max, notes);
    table.set_timeout("idle-timeout", &mut settings.idle_timeout, notes);
    table.set_timeout("ping-every", &mut settings.ping_every, notes);
    table.set_duration("pong-timeout", &mut settings.pong_timeout, notes);
    settings
}

const ORIGIN_HELP: &str =
    "write \"same-origin\", \"https://example.com\", \"https://*.example.com\", \"null\" or \"*\"";

/// Checks an entry of `origins`: scheme, host and port in ASCII (RFC 6454 section 6.2), or a word.
pub(crate) fn check_origin(text: &str) -> Result<(), ValueError> {
    if matches!(text, SAME_ORIGIN | "null" | "*") {
        return Ok(());
    }
    let complaint = |what: &str| ValueError { what: what.to_owned(), help: ORIGIN_HELP.to_owned() };
    let Some((scheme, authority)) = text.split_once("://") else {
        return Err(complaint("an origin begins with a scheme such as https://"));
    };
    let is_scheme = scheme.starts_with(|first: char| first.is_ascii_alphabetic())
        && scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c));
    if !is_scheme {
        return Err(complaint("its scheme is invalid"));
    }
    if authority.contains('/') {
        return Err(complaint("an origin has no path"));
    }
    let (host, port) = match authority.rfind(':') {
        Some(at) if !authority.ends_with(']') => (&authority[..at], Some(&authority[at + 1..])),
        _ => (authority, None),
    };
    if port.is_some_and(|port| {
        !port.bytes().all(|b| b.is_ascii_digit()) || port.parse::<u16>().is_err()
    }) {
        return Err(complaint("its port is not a number from 0 to 65535"));
    }
    let is_host = match host.strip_prefix('[') {
        Some(rest) => {
            rest.strip_suffix(']').is_some_and(|ip| ip.parse::<core::net::Ipv6Addr>().is_ok())
        }
        None => {
            let name = host.strip_prefix("*.").unwrap_or(host);
            !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "-._".contains(c))
        }
    };
    if is_host { Ok(()) } else { Err(complaint("its host is not a name or an IP address")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_have_scheme_host_and_port_only() {
        for right in [
            "same-origin",
            "null",
            "*",
            "https://a.example",
            "HTTPS://*.a.example:8443",
            "http://[::1]:80",
            "http://10.0.0.1",
            "app+x://page",
        ] {
            assert!(check_origin(right).is_ok(), "{right}");
        }
        for wrong in [
            "",
            "a.example",
            "https://",
            "https://a.example/",
            "https://a*.example",
            "https://*",
            "https://*.",
            "https://a:b",
            "https://a:70000",
            "https://a:+1",
            "https://a:",
            "*://a",
            "1a://b",
            "https://[a]",
            "https://a@b",
            "https://\u{e4}",
        ] {
            assert!(check_origin(wrong).is_err(), "{wrong}");
        }
    }
}
