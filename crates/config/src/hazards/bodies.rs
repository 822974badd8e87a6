//! Warnings about fixed responses with placeholders, which are sent as they are.
//! Limits: bodies with scripts, in which braces have a meaning, and those of more than `BODY_BYTES_MAX`, which may be
//! documents about placeholders, are not examined.

use toml::de::DeTable;

use super::{Step, place, vain};
use crate::model::{Action, Route};
use crate::report::Notes;
use crate::template::is_known;

/// Maximum length of a body that is examined.
const BODY_BYTES_MAX: usize = 1024;

/// Placeholders in `body` and `headers` of `respond`.
pub(super) fn check(route: &Route, table: &DeTable<'_>, notes: &mut Notes) {
    let Action::Respond(respond) = &route.action else { return };
    if let Ok(body) = core::str::from_utf8(&respond.body)
        && body.len() <= BODY_BYTES_MAX
        && !body.contains("<script")
        && let Some(name) = placeholder(body)
    {
        let at = place(table, &[Step::Key("respond"), Step::Key("body")]);
        let what = format!("{{{name}}} has no value here: the body is sent as it is");
        let help = "remove it; redirect, response-headers and the path of `proxy` can have such values, and a Lua application \
                    can write them into a body";
        notes.warn(vain(at, what, help));
    }
    for (field, value) in &respond.headers {
        let Some(name) = placeholder(value) else { continue };
        let at = place(table, &[Step::Key("respond"), Step::Key("headers"), Step::Key(field)]);
        let what = format!("{{{name}}} has no value here: the field is sent as it is");
        let help =
            format!("write response-headers = {{ set = {{ {field} = {value:?} }} }} in the route");
        notes.warn(vain(at, what, help));
    }
}

/// The name of the first placeholder in a text. Scripts of other languages write `${name}` and `{{name}}`.
fn placeholder(text: &str) -> Option<&str> {
    text.match_indices('{').find_map(|(at, _)| {
        let name = text[at + 1..].split(['}', '{']).next()?;
        let (before, after) = (&text[..at], &text[at + 1 + name.len()..]);
        let is_alone =
            !before.ends_with(['$', '{']) && after.starts_with('}') && !after.starts_with("}}");
        Some(name).filter(|name| is_alone && is_known(name))
    })
}
