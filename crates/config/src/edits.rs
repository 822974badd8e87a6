//! Reads `request-headers` and `response-headers` of a route, and `path` of its `proxy`.
//! In: the table of a route, its paths. Out: checked edits and templates.
//! Never: accepts an edit of a field that frames a message, describes a connection or says what Tidegate verified.
//! Limits: `EDITS_MAX` edits in each direction.

use crate::listeners::refused;
use crate::model::{FieldEdits, Template};
use crate::report::{Kind, Note, Notes};
use crate::table::{Located, Table, texts_of};
use crate::template::{self, Paths, Place};

/// Maximum number of edits of one route in one direction.
const EDITS_MAX: usize = 64;

/// Which messages the edits apply to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    /// Requests on their way to servers.
    Requests,
    /// Responses on their way to clients.
    Responses,
}

impl Direction {
    fn key(self) -> &'static str {
        match self {
            Self::Requests => "request-headers",
            Self::Responses => "response-headers",
        }
    }
}

const FRAMING: &str = "it frames the message, and a wrong value could split one message into two";
const CONNECTION: &str = "it describes the connection, which Tidegate controls";

/// Fields that cannot be edited, and why.
const REFUSED: [(&str, &str); 13] = [
    ("connection", CONNECTION),
    ("content-length", FRAMING),
    ("expect", "it requests a 100 (Continue) response, which Tidegate controls"),
    ("http2-settings", CONNECTION),
    ("keep-alive", CONNECTION),
    ("max-forwards", "Tidegate decrements it"),
    ("proxy-connection", CONNECTION),
    ("te", CONNECTION),
    ("trailer", FRAMING),
    ("transfer-encoding", FRAMING),
    ("upgrade", CONNECTION),
    ("via", "it protects against loops; its name is set by `via` in [server]"),
    ("date", "it says when the response was created"),
];

/// Prefix of the fields that carry the certificate which Tidegate verified.
const CERTIFICATE: &str = "x-client-cert-";

/// Why `name` (lower case) cannot be edited; `None` if it can.
fn refusal(name: &str, direction: Direction) -> Option<&'static str> {
    // Servers that pass fields to programs as variables take "_" for "-".
    let name = name.replace('_', "-");
    if let Some((_, reason)) = REFUSED.iter().find(|(refused, _)| *refused == name) {
        return Some(reason);
    }
    match direction {
        Direction::Requests if name == "host" => Some(
            "it is set by `host` of `proxy`: proxy = { pool = \"NAME\", host = \"app.internal\" }",
        ),
        Direction::Requests if name.starts_with(CERTIFICATE) => {
            Some("it describes the client certificate that Tidegate verified")
        }
        Direction::Responses if name == "strict-transport-security" => Some("it is set by `hsts`"),
        Direction::Requests | Direction::Responses => None,
    }
}

/// Reads the edits of one direction.
pub(crate) fn read(
    route: &Table<'_>,
    direction: Direction,
    paths: Paths<'_>,
    notes: &mut Notes,
) -> FieldEdits {
    let mut edits = FieldEdits::default();
    if route.value(direction.key()).is_none() {
        return edits;
    }
    let Some(table) = route.open_table(direction.key(), notes) else { return edits };
    let subject = format!("`{}` cannot edit", direction.key());
    for (key, fields) in [("set", &mut edits.set), ("add", &mut edits.add)] {
        for (name, value) in table.open_fields(key, notes) {
            let Some(field) = read_name(&name, &subject, direction, notes) else { continue };
            for text in texts_of(&format!("`{field}`"), value, notes) {
                match template::parse(&text.text, Place::Field, paths) {
                    Ok(template) => fields.push((field.clone(), template)),
                    Err(complaint) => notes.error(refused(&field, &text, complaint)),
                }
            }
        }
    }
    for name in table.texts("remove", notes) {
        if let Some(field) = read_name(&name, &subject, direction, notes) {
            edits.remove.push(field);
        }
    }
    check_conflicts(&edits, &table, notes);
    edits
}

fn check_conflicts(edits: &FieldEdits, table: &Table<'_>, notes: &mut Notes) {
    if edits.set.len() + edits.add.len() + edits.remove.len() > EDITS_MAX {
        let note = Note::new(Kind::Value, table.place.clone(), "the route has too many edits");
        notes.error(note.allowed(format!("up to {EDITS_MAX} fields")));
    }
    let is_set = |name: &String| edits.set.iter().any(|(field, _)| field == name);
    if let Some(name) = edits.remove.iter().find(|name| is_set(name)) {
        let what = format!("{name:?} is both set and removed");
        let note = Note::new(Kind::Conflict, table.key_place("remove"), what);
        notes.error(note.help("keep `set`: it removes the received fields of this name"));
    }
}

/// The name of a field, in lower case. Notes an error if `direction` forbids that a setting writes it; `subject` begins
/// the message, as in "`copy` cannot copy".
pub(crate) fn read_name(
    name: &Located,
    subject: &str,
    direction: Direction,
    notes: &mut Notes,
) -> Option<String> {
    let field = name.field_name(notes)?.to_ascii_lowercase();
    if let Some(reason) = refusal(&field, direction) {
        let what = format!("{subject} {field:?}: {reason}");
        notes.error(Note::new(Kind::Value, name.place.clone(), what).help("remove it"));
        return None;
    }
    Some(field)
}

/// Reads `path` of `proxy`; `None` if the path is forwarded as the client sent it.
pub(crate) fn read_path(
    proxy: &Table<'_>,
    paths: Paths<'_>,
    notes: &mut Notes,
) -> Option<Template> {
    let text = proxy.text("path", notes)?;
    match template::parse(&text.text, Place::Path, paths) {
        Ok(template) => Some(template),
        Err(complaint) => {
            notes.error(refused("path", &text, complaint));
            None
        }
    }
}
