//! Warnings about cross-origin settings that other settings of the route defeat.

use toml::de::DeTable;

use super::{Step, place, place_of, vain};
use crate::model::Route;
use crate::report::Notes;

/// `cors` that gets no preflight requests, or whose fields are overwritten.
pub(super) fn check(route: &Route, table: &DeTable<'_>, notes: &mut Notes) {
    if route.handling.cors.is_none() {
        return;
    }
    let is_options = |method: &String| method == "OPTIONS";
    if !route.methods.is_empty() && !route.methods.iter().any(is_options) {
        let what = "`cors` receives no preflight requests: their method is OPTIONS, which `method` does not list";
        notes.warn(vain(place_of(table, "method"), what, "add \"OPTIONS\" to `method`"));
    }
    for (kind, fields) in [
        ("set", &route.handling.response_headers.set),
        ("add", &route.handling.response_headers.add),
    ] {
        for (name, _) in fields.iter().filter(|(name, _)| name.starts_with("access-control-allow-"))
        {
            let at = place(table, &[Step::Key("response-headers"), Step::Key(kind)]);
            let what = format!(
                "`cors` and `response-headers` both write {name}: browsers may refuse the response"
            );
            notes.warn(vain(at, what, "remove the field, and list the origins in `cors`"));
        }
    }
}
