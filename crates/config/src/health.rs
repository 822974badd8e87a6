//! Reads `health` of a pool.
//! In: the table of a pool, and what the pool speaks. Out: checked settings.
//! Limits: `RANGES_MAX` ranges of statuses; `TEXT_BYTES_MAX` bytes of the expected text, and of the name of a gRPC service.
//! Invariant: a check passes with at least one status; its times and counts are in the ranges of the table of settings.

use tidegate_base::Span;

use crate::listeners::refused;
use crate::model::{
    BodyCheck, CheckKind, CheckMethod, GrpcCheck, HealthCheck, HttpCheck, Pool, WebSocketCheck,
};
use crate::pattern::{self, ValueError, complain};
use crate::report::{Kind, Note, Notes};
use crate::table::{Located, Table};

/// Maximum number of ranges in `status`.
const RANGES_MAX: usize = 32;
/// Maximum number of bytes of the expected text, and of the name of a gRPC service.
const TEXT_BYTES_MAX: usize = 1024;
/// How many bytes of a body are searched for the expected text, unless the file has another number.
const BODY_BYTES_MAX: usize = 64 * 1024;
/// The settings that each select a kind of check.
const KINDS: [&str; 4] = ["http", "tcp", "grpc", "websocket"];
/// The settings of a request, and the kinds of checks that have them.
const OF_REQUESTS: [(&str, &[&str]); 6] = [
    ("host", &["http", "grpc", "websocket"]),
    ("method", &["http"]),
    ("status", &["http"]),
    ("keep-alive", &["http"]),
    ("body", &["http"]),
    ("body-max", &["http"]),
];
/// The statuses that a final response can have.
const STATUS: core::ops::RangeInclusive<u16> = 200..=599;

/// Reads the health checks of `pool`, whose other settings were read; `None` if there are none.
pub(crate) fn read(pool: &Pool, table: &Table<'_>, notes: &mut Notes) -> Option<HealthCheck> {
    let value = table.value("health")?;
    if value.get_ref().as_str().is_some() {
        let target = read_target("health", table, notes)?;
        check_protocol(pool, table, notes);
        return Some(preset(pool, http(target)));
    }
    if value.get_ref().as_bool() == Some(true) {
        let note = Note::new(Kind::Type, value.span(), "`health` cannot be true");
        notes.error(note.help("write health = \"/healthz\", or health = { tcp = true }"));
        return None;
    }
    let settings = table.open_table("health", notes)?;
    let mut health = preset(pool, CheckKind::Tcp);
    read_times(&settings, &mut health, notes);
    if let Some(secured) = settings.is_true("tls", notes) {
        if secured && pool.tls.is_none() {
            let what = "`tls` has no effect: the pool has no `tls` settings to use";
            let note = Note::new(Kind::Conflict, settings.key_place("tls"), what);
            notes.error(note.help("remove `tls` here, or add `tls` to the pool"));
        }
        health.is_secured = secured;
    }
    let kinds: Vec<&str> = KINDS.into_iter().filter(|key| settings.value(key).is_some()).collect();
    settings.flag("tcp", notes);
    let request = read_request(&settings, notes);
    let service = read_service(&settings, notes);
    let target = read_target("http", &settings, notes);
    let socket = read_target("websocket", &settings, notes);
    match *kinds.as_slice() {
        [kind] => {
            refuse_for(kind, &settings, notes);
            let host = request.host.clone();
            health.kind = match kind {
                "tcp" => CheckKind::Tcp,
                "grpc" => CheckKind::Grpc(GrpcCheck { service: service?, host }),
                "websocket" => {
                    check_protocol(pool, table, notes);
                    CheckKind::WebSocket(WebSocketCheck { target: socket?, host })
                }
                _ => {
                    check_protocol(pool, table, notes);
                    CheckKind::Http(HttpCheck { target: target?, ..request })
                }
            };
        }
        [first, second, ..] => {
            let what = format!("`{first}` and `{second}` cannot be used together");
            let note = Note::new(Kind::Conflict, settings.key_place(second), what);
            let help = format!("remove one of them: a check by `{first}` also opens a connection");
            notes.error(note.help(help));
        }
        [] => {
            let note = Note::new(Kind::Missing, value.span(), "`health` selects no check");
            let help = "add http = \"/healthz\", tcp = true, grpc = \"\" or websocket = \"/ws\"";
            notes.error(note.help(help));
        }
    }
    Some(health)
}

fn read_times(settings: &Table<'_>, health: &mut HealthCheck, notes: &mut Notes) {
    settings.set_duration("every", &mut health.every, notes);
    settings.set_duration("fast-every", &mut health.fast_every, notes);
    health.fast_every = health.fast_every.min(health.every);
    settings.set_duration("timeout", &mut health.timeout, notes);
    settings.set_number("rise", &mut health.rise, notes);
    settings.set_number("fall", &mut health.fall, notes);
    settings.set_timeout("keep-alive", &mut health.keep_alive, notes);
    let mut port = 0_u16;
    settings.set_number("port", &mut port, notes);
    health.port = Some(port).filter(|port| *port > 0);
}

/// Refuses settings that a check of this kind does not have.
fn refuse_for(kind: &str, settings: &Table<'_>, notes: &mut Notes) {
    for (key, kinds) in OF_REQUESTS {
        if settings.value(key).is_some() && !kinds.contains(&kind) {
            let what = format!("`{key}` is for checks by `{}`", kinds.join("`, `"));
            let note = Note::new(Kind::Conflict, settings.key_place(key), what);
            notes.error(note.help(format!("remove `{key}`, or write http = \"/healthz\"")));
        }
    }
}

/// The defaults.
fn preset(pool: &Pool, kind: CheckKind) -> HealthCheck {
    HealthCheck {
        kind,
        every: Span::from_secs(2),
        fast_every: Span::from_secs(1),
        timeout: Span::from_secs(1),
        rise: 2,
        fall: 3,
        port: None,
        is_secured: pool.tls.is_some(),
        keep_alive: None,
    }
}

fn http(target: String) -> CheckKind {
    let (host, method, status) = (None, CheckMethod::Get, vec![(200, 399)]);
    CheckKind::Http(HttpCheck { target, host, method, status, body: None })
}

/// Refuses requests of checks to servers that speak only HTTP/2.
fn check_protocol(pool: &Pool, table: &Table<'_>, notes: &mut Notes) {
    if !pool.may_speak_http1() {
        let what = "a check by `http` or `websocket` uses HTTP/1.1, which the servers of this pool do not speak";
        let note = Note::new(Kind::Conflict, table.key_place("health"), what);
        notes.error(note.help(
            "write health = { grpc = \"\" } for servers of gRPC, or health = { tcp = true }",
        ));
    }
}

/// The settings of a request, without its path.
fn read_request(settings: &Table<'_>, notes: &mut Notes) -> HttpCheck {
    let mut check = HttpCheck {
        target: String::new(),
        host: None,
        method: CheckMethod::Get,
        status: vec![(200, 399)],
        body: read_body(settings, notes),
    };
    settings.set_word("method", &mut check.method, notes);
    if check.body.is_some() && check.method == CheckMethod::Head {
        let what = "a response to HEAD has no body";
        let note = Note::new(Kind::Conflict, settings.key_place("body"), what);
        notes.error(note.help("remove `body`, or write method = \"GET\""));
    }
    check.host = read_host(settings, notes);
    if let Some(status) = read_status(settings, notes) {
        check.status = status;
    }
    check
}

fn read_host(settings: &Table<'_>, notes: &mut Notes) -> Option<String> {
    let text = settings.text("host", notes)?;
    match pattern::parse_authority(&text.text) {
        Ok(host) => Some(host),
        Err(complaint) => {
            let help = "write host = \"app.example\"".to_owned();
            notes.error(refused("host", &text, ValueError { help, ..complaint }));
            None
        }
    }
}

/// The text that the body must contain.
fn read_body(settings: &Table<'_>, notes: &mut Notes) -> Option<BodyCheck> {
    let mut bytes_max = BODY_BYTES_MAX;
    settings.set_size("body-max", &mut bytes_max, notes);
    let Some(text) = settings.text("body", notes) else {
        if settings.value("body-max").is_some() && settings.value("body").is_none() {
            let what = "`body-max` has no effect without `body`";
            let note = Note::new(Kind::Conflict, settings.key_place("body-max"), what);
            notes.error(note.help("remove `body-max`, or add body = \"ok\""));
        }
        return None;
    };
    if text.text.is_empty() || text.text.len() > TEXT_BYTES_MAX {
        let what = format!("not a string of 1 to {TEXT_BYTES_MAX} bytes");
        let help = "write a text that the body of a healthy server contains, such as body = \"ok\"";
        notes.error(refused("body", &text, ValueError { what, help: help.to_owned() }));
        return None;
    }
    Some(BodyCheck { text: text.text, bytes_max })
}

/// The name of a service of gRPC.
fn read_service(settings: &Table<'_>, notes: &mut Notes) -> Option<String> {
    let text = settings.text("grpc", notes)?;
    if text.text.len() > TEXT_BYTES_MAX || text.text.chars().any(char::is_control) {
        let what = format!("not the name of a service, of up to {TEXT_BYTES_MAX} bytes");
        let help = "write grpc = \"shop.Orders\", or grpc = \"\" for the server as a whole";
        notes.error(refused("grpc", &text, ValueError { what, help: help.to_owned() }));
        return None;
    }
    Some(text.text)
}

/// The path of a request.
fn read_target(key: &str, table: &Table<'_>, notes: &mut Notes) -> Option<String> {
    let text = table.text(key, notes)?;
    let is_plain = text.text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#');
    if text.text.starts_with('/') && is_plain {
        return Some(text.text);
    }
    let what = "not a path".to_owned();
    notes.error(refused(
        key,
        &text,
        ValueError { what, help: format!("write {key} = \"/healthz\"") },
    ));
    None
}

fn read_status(settings: &Table<'_>, notes: &mut Notes) -> Option<Vec<(u16, u16)>> {
    let value = settings.value("status")?;
    if value.get_ref().as_str().is_none() {
        let mut status = 0;
        settings.set_number("status", &mut status, notes);
        return (status > 0).then(|| vec![(status, status)]);
    }
    let text = settings.text("status", notes)?;
    match parse_status(&text) {
        Ok(ranges) => Some(ranges),
        Err(complaint) => {
            notes.error(refused("status", &text, complaint));
            None
        }
    }
}

fn parse_status(text: &Located) -> Result<Vec<(u16, u16)>, ValueError> {
    const HELP: &str = "write status = \"200-399\" or \"200,204\"; statuses are from 200 to 599";
    let mut ranges = Vec::new();
    for part in text.text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let number = |text: &str| text.trim().parse::<u16>().ok().filter(|n| STATUS.contains(n));
        match (number(first), number(last)) {
            (Some(first), Some(last)) if first <= last => ranges.push((first, last)),
            _ => return complain("not a list of statuses", HELP),
        }
    }
    match ranges.len() > RANGES_MAX {
        true => complain(format!("more than {RANGES_MAX} ranges"), HELP),
        false => Ok(ranges),
    }
}
