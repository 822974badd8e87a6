//! Warnings about error pages that are never sent.

use toml::de::DeTable;

use super::{Step, place, vain};
use crate::model::Route;
use crate::report::Notes;

/// Statuses of responses to requests whose head cannot be read, so that they have no route: the request line is too
/// long, the head is too large, the version of HTTP is not supported.
const WITHOUT_ROUTE: [u16; 3] = [414, 431, 505];

/// `errors` for responses that are sent before a route is known.
pub(super) fn check(route: &Route, table: &DeTable<'_>, notes: &mut Notes) {
    for error in route.handling.errors.iter().filter(|page| WITHOUT_ROUTE.contains(&page.status)) {
        let status = error.status.to_string();
        let at = place(table, &[Step::Key("errors"), Step::Key(&status)]);
        let what = format!(
            "this page is never sent: a request that gets the status {status} could not be read, and has no route"
        );
        notes.warn(vain(at, what, "remove it"));
    }
}
