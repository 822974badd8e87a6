//! Reads `[log]`.
//! In: the table of the file. Out: checked settings.
//! Limits: `HEADERS_MAX` fields and `COOKIES_MAX` cookies of each message in a line of the access log.

use crate::findings::Owner;
use crate::model::{
    AccessFilter, AccessFormat, AccessLog, AccessTarget, CaptureNames, Log, SAMPLE_ALL,
    SyslogAddress,
};
use crate::pattern::is_token;
use crate::report::{Kind, Note, Notes, quoted};
use crate::table::Table;

/// Maximum number of fields of a message in a line.
const HEADERS_MAX: usize = 16;
/// Maximum number of cookies of a message in a line.
const COOKIES_MAX: usize = 4;
const TARGETS: &str =
    "\"stdout\", \"file:PATH\", \"syslog:IP:PORT\", \"syslog:tcp:IP:PORT\" or \"syslog:unix:PATH\"";

/// Reads `[log]` of the file.
pub(crate) fn read(file: &Table<'_>, notes: &mut Notes) -> Log {
    let mut log = Log::default();
    let Some(table) = file.open_table("log", notes) else { return log };
    log.access = read_access(&table, notes);
    log
}

fn read_access(table: &Table<'_>, notes: &mut Notes) -> Option<AccessLog> {
    let table = table.open_table("access", notes)?;
    let mut access = AccessLog {
        to: AccessTarget::Stdout,
        format: AccessFormat::Json,
        captures: CaptureNames {
            request_headers: read_fields(&table, "request-headers", notes),
            cookies: read_cookies(&table, "cookies", notes),
            response_headers: read_fields(&table, "response-headers", notes),
            response_cookies: read_cookies(&table, "response-cookies", notes),
            client_certificate: table.flag("client-certificate", notes),
        },
        only: AccessFilter::All,
        slow: None,
        sample: SAMPLE_ALL,
    };
    table.set_timeout("slow", &mut access.slow, notes);
    if let Some(text) = table.text("sample", notes) {
        match parts_per_million(&text.text) {
            Some(parts) => access.sample = parts,
            None => {
                let what = format!("`sample` cannot be {}", quoted(&text.text));
                let allowed = "a percentage from \"0.001%\" to \"100%\"";
                notes.error(Note::new(Kind::Value, text.place, what).allowed(allowed));
            }
        }
    }
    table.set_word("format", &mut access.format, notes);
    table.set_word("only", &mut access.only, notes);
    let to = table.text("to", notes)?;
    match (to.text.as_str(), to.text.strip_prefix("file:")) {
        ("stdout", _) => {}
        (_, Some(path)) if !path.is_empty() && !path.ends_with('/') && !path.contains('\0') => {
            let path = notes.resolve(path);
            notes.places.mark(path.clone(), to.place);
            notes.places.assign(Owner::Log);
            access.to = AccessTarget::File(path);
        }
        (text, _) if text.starts_with("syslog:") => match syslog_address(&text[7..]) {
            Some(address) => access.to = AccessTarget::Syslog(address),
            None => {
                let what = format!("`to` cannot be {}", quoted(text));
                let allowed = "\"syslog:\" or \"syslog:tcp:\" with an IP address and a port, or \"syslog:unix:PATH\"";
                notes.error(Note::new(Kind::Value, to.place, what).allowed(allowed));
            }
        },
        (text, _) => {
            let what = format!("`to` cannot be {}", quoted(text));
            let note = Note::new(Kind::Value, to.place, what).allowed(TARGETS);
            notes.error(match text.starts_with('/') {
                true => note.help(format!("write \"file:{text}\"")),
                false => note,
            });
        }
    }
    Some(access)
}

fn syslog_address(text: &str) -> Option<SyslogAddress> {
    if let Some(address) = text.strip_prefix("tcp:") {
        return address.parse().ok().map(SyslogAddress::Tcp);
    }
    match text.strip_prefix("unix:") {
        Some(path) if path.starts_with('/') => Some(SyslogAddress::Unix(path.to_owned())),
        Some(_) => None,
        None => text.parse().ok().map(SyslogAddress::Udp),
    }
}

impl core::fmt::Display for SyslogAddress {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Udp(address) => write!(f, "syslog:{address}"),
            Self::Tcp(address) => write!(f, "syslog:tcp:{address}"),
            Self::Unix(path) => write!(f, "syslog:unix:{path}"),
        }
    }
}

/// The parts per million of a percentage with up to three decimals.
pub(crate) fn parts_per_million(text: &str) -> Option<u32> {
    let number = text.strip_suffix('%')?;
    let (whole, decimals) = number.split_once('.').unwrap_or((number, ""));
    let digits = whole.bytes().chain(decimals.bytes()).all(|byte| byte.is_ascii_digit());
    if !digits || whole.is_empty() || whole.len() > 3 || decimals.len() > 3 {
        return None;
    }
    let thousandths: u32 = format!("{whole}{decimals:0<3}").parse().ok()?;
    Some(thousandths * 10).filter(|parts| (1..=SAMPLE_ALL).contains(parts))
}

fn read_cookies(table: &Table<'_>, key: &str, notes: &mut Notes) -> Vec<String> {
    let form = "write the name of a cookie, such as \"session\"";
    let full = format!("remove a cookie: up to {COOKIES_MAX} are allowed");
    read_names(table, key, (COOKIES_MAX, form, &full), str::to_owned, notes)
}

fn read_fields(table: &Table<'_>, key: &str, notes: &mut Notes) -> Vec<String> {
    let form = "write a name such as \"user-agent\"";
    let full = format!("remove a field: up to {HEADERS_MAX} are allowed");
    read_names(table, key, (HEADERS_MAX, form, &full), str::to_ascii_lowercase, notes)
}

/// Reads a list of different tokens. `bounds`: how many are allowed, and the help for other strings and for more.
fn read_names(
    table: &Table<'_>,
    key: &str,
    bounds: (usize, &str, &str),
    unify: fn(&str) -> String,
    notes: &mut Notes,
) -> Vec<String> {
    let (names_max, form, full) = bounds;
    let mut names: Vec<String> = Vec::new();
    for text in table.texts(key, notes) {
        let name = unify(&text.text);
        let help = match is_token(&name) {
            false => form,
            true if names.contains(&name) => "remove the duplicate",
            true if names.len() == names_max => full,
            true => {
                names.push(name);
                continue;
            }
        };
        let what = format!("`{key}` cannot contain {}", quoted(&text.text));
        notes.error(Note::new(Kind::Value, text.place, what).help(help));
    }
    names
}
