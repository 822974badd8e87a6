//! Reads `request-id` and `trace` of `[server]`.
//! In: the table `[server]`. Out: checked settings.
//! Never: accepts one of the fields that `TAKEN` lists, whose meaning programs rely on.

use crate::edits::{self, Direction};
use crate::listeners::refused;
use crate::log::parts_per_million;
use crate::model::{ID_FIELD_BYTES_MAX, RequestIds, Trace};
use crate::pattern::ValueError;
use crate::report::Notes;
use crate::table::Table;

/// Fields that have a special meaning.
const TAKEN: [&str; 22] = [
    "host",
    "cookie",
    "set-cookie",
    "content-type",
    "content-encoding",
    "authorization",
    "proxy-authorization",
    "www-authenticate",
    "location",
    "range",
    "cache-control",
    "server",
    "date",
    "age",
    "etag",
    "vary",
    "origin",
    "accept",
    "forwarded",
    "via",
    "traceparent",
    "tracestate",
];
/// What the names of further such fields begin with.
const TAKEN_PREFIXES: [&str; 3] = ["x-forwarded-", "sec-", "access-control-"];

/// Reads `request-id`; `None`: requests have no id, except in templates with {id}.
pub(crate) fn read_request_id(server: &Table<'_>, notes: &mut Notes) -> Option<RequestIds> {
    let mut ids = RequestIds::default();
    let value = server.value("request-id")?;
    if value.get_ref().as_bool().is_some() {
        return server.flag("request-id", notes).then_some(ids);
    }
    let table = server.open_table("request-id", notes)?;
    table.set_word("keep", &mut ids.keep, notes);
    table.set_flag("response", &mut ids.response, notes);
    if let Some(name) = read_field(&table, notes) {
        ids.field = name;
    }
    Some(ids)
}

/// The name of the field with the id. Servers and clients get it.
fn read_field(table: &Table<'_>, notes: &mut Notes) -> Option<String> {
    let text = table.text("field", notes)?;
    let subject = "`field` cannot be";
    edits::read_name(&text, subject, Direction::Responses, notes)?;
    let name = edits::read_name(&text, subject, Direction::Requests, notes)?;
    let what = match name.len() {
        _ if is_taken(&name) => "this field is already used for another purpose",
        0..=ID_FIELD_BYTES_MAX => return Some(name),
        _ => "the name has more than 64 bytes",
    };
    let help = "write field = \"x-request-id\"".to_owned();
    notes.error(refused("field", &text, ValueError { what: what.to_owned(), help }));
    None
}

fn is_taken(name: &str) -> bool {
    TAKEN.contains(&name) || TAKEN_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// Reads `trace`; `None`: traceparent is a field like any other.
pub(crate) fn read_trace(server: &Table<'_>, notes: &mut Notes) -> Option<Trace> {
    let mut trace = Trace::default();
    let value = server.value("trace")?;
    if value.get_ref().as_bool().is_some() {
        return server.flag("trace", notes).then_some(trace);
    }
    let table = server.open_table("trace", notes)?;
    table.set_word("keep", &mut trace.keep, notes);
    if let Some(text) = table.text("sampled", notes) {
        match parts_per_million(&text.text) {
            Some(parts) => trace.sampled = parts,
            None => {
                let what = "not a percentage from \"0.001%\" to \"100%\"".to_owned();
                let help = "write sampled = \"10%\"".to_owned();
                notes.error(refused("sampled", &text, ValueError { what, help }));
            }
        }
    }
    Some(trace)
}
