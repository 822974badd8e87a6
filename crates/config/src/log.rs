//! Reads `[log]`.
//! In: the table of the file. Out: checked settings.
//! Limits: `REQUEST_HEADERS_MAX` fields in a line of the access log.

use crate::model::{AccessFilter, AccessFormat, AccessLog, AccessTarget, Log};
use crate::pattern::is_token;
use crate::places::Owner;
use crate::report::{Kind, Note, Notes, quoted};
use crate::table::Table;

/// Maximum number of request fields in a line.
const REQUEST_HEADERS_MAX: usize = 16;
const TARGETS: &str = "\"stdout\" or \"file:PATH\"";

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
        request_headers: read_names(&table, notes),
        only: AccessFilter::All,
    };
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

fn read_names(table: &Table<'_>, notes: &mut Notes) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for text in table.texts("request-headers", notes) {
        let name = text.text.to_ascii_lowercase();
        let help = match is_token(&name) {
            false => "write a name such as \"user-agent\"",
            true if names.contains(&name) => "remove the duplicate",
            true if names.len() == REQUEST_HEADERS_MAX => "remove a field: up to 16 are allowed",
            true => {
                names.push(name);
                continue;
            }
        };
        let what = format!("`request-headers` cannot contain {}", quoted(&text.text));
        notes.error(Note::new(Kind::Value, text.place, what).help(help));
    }
    names
}
