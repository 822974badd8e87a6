//! Reads `[traces]`.
//! In: the table of the file, whether requests belong to traces. Out: checked settings.
//! Limits: `FIELDS_MAX` fields of requests, `ATTRIBUTES_MAX` attributes, `VALUE_BYTES_MAX` bytes of each value.

use crate::findings::Owner;
use crate::listeners::refused;
use crate::model::{Trace, Traces};
use crate::pattern::{ValueError, is_token};
use crate::remote_address::{self, Form};
use crate::report::{Kind, Note, Notes, quoted};
use crate::table::{Table, wrong_type};

/// Maximum number of fields of a request to the collector.
const FIELDS_MAX: usize = 16;
/// Maximum number of attributes.
const ATTRIBUTES_MAX: usize = 32;
/// Maximum length of a name or value in bytes.
const VALUE_BYTES_MAX: usize = 4096;
/// Fields that each request has already.
const OWN_FIELDS: [&str; 7] = [
    "host",
    "user-agent",
    "connection",
    "content-type",
    "content-length",
    "content-encoding",
    "transfer-encoding",
];

/// Reads `[traces]` of the file, and notes in `trace` that spans are recorded.
pub(crate) fn read(
    file: &Table<'_>,
    trace: Option<&mut Trace>,
    notes: &mut Notes,
) -> Option<Traces> {
    let table = file.open_table("traces", notes)?;
    match trace {
        Some(trace) => trace.is_recorded = true,
        None => {
            let what =
                "[traces] has no effect without `trace` in [server]: there are no spans to send";
            let note = Note::new(Kind::Conflict, file.key_place("traces"), what);
            notes.error(note.help("add trace = true to [server]"));
        }
    }
    let form = Form {
        key: "endpoint",
        ca: "ca",
        example: "http://127.0.0.1:4318/v1/traces",
        only_tls: None,
    };
    let headers = read_headers(&table, notes);
    let attributes = read_attributes(&table, notes);
    let service = table.text("service", notes);
    let service = service.map_or_else(|| "tidegate".to_owned(), |service| service.text);
    let Some(text) = table.text("endpoint", notes) else {
        // Without an address, nothing else reads it.
        let _ = table.text("ca", notes);
        return None;
    };
    let endpoint = remote_address::read(&form, &text, &table, notes)?;
    notes.places.assign(Owner::Traces);
    Some(Traces { endpoint, headers, service, attributes })
}

fn read_headers(table: &Table<'_>, notes: &mut Notes) -> Vec<(String, String)> {
    let mut headers = Vec::new();
    for (name, value) in table.open_fields("headers", notes) {
        let Some(text) = value.get_ref().as_str() else {
            notes.error(wrong_type("a value of `headers`", value, "a string"));
            continue;
        };
        let lower = name.text.to_ascii_lowercase();
        let is_text = |byte: u8| matches!(byte, b' '..=b'~' | b'\t');
        let what = match () {
            () if !is_token(&name.text) => "not the name of a field",
            () if OWN_FIELDS.contains(&lower.as_str()) => "Tidegate sets this field itself",
            () if headers.iter().any(|(known, _)| *known == lower) => "the field occurs twice",
            () if headers.len() == FIELDS_MAX => "up to 16 fields are allowed",
            () if text.len() > VALUE_BYTES_MAX => "its value has more than 4096 bytes",
            // The value may be a secret, so that it is not shown.
            () if !text.bytes().all(is_text) => "its value has a character that is not ASCII text",
            () => {
                headers.push((lower, text.to_owned()));
                continue;
            }
        };
        let help = "write a field such as { authorization = \"Bearer ${OTLP_TOKEN}\" }".to_owned();
        notes.error(refused("headers", &name, ValueError { what: what.to_owned(), help }));
    }
    headers
}

fn read_attributes(table: &Table<'_>, notes: &mut Notes) -> Vec<(String, String)> {
    let mut attributes: Vec<(String, String)> = Vec::new();
    for (name, value) in table.open_fields("attributes", notes) {
        let Some(text) = value.get_ref().as_str() else {
            notes.error(wrong_type("a value of `attributes`", value, "a string"));
            continue;
        };
        let is_long = name.text.len().max(text.len()) > VALUE_BYTES_MAX;
        let (what, help) = match name.text.as_str() {
            "service.name" => ("`service` sets this attribute", "write service = \"NAME\""),
            "" => ("a name is empty", "write the name of an attribute"),
            _ if is_long => ("a name or value has more than 4096 bytes", "write a shorter one"),
            _ if attributes.len() == ATTRIBUTES_MAX => {
                ("up to 32 attributes are allowed", "remove some")
            }
            _ => {
                attributes.push((name.text, text.to_owned()));
                continue;
            }
        };
        let what = format!("`attributes` cannot contain {}: {what}", quoted(&name.text));
        notes.error(Note::new(Kind::Value, name.place, what).help(help));
    }
    attributes
}
