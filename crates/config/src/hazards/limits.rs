//! Warnings about limits that a client evades, or that every request exceeds.

use toml::de::DeTable;

use super::{Parts, Step, open, place, vain};
use crate::model::{Listener, Placeholder, Route};
use crate::report::Notes;

/// Fields with which proxies state the address of the client; a client can send them, too.
const ADDRESS_FIELDS: [&str; 7] = [
    "cf-connecting-ip",
    "forwarded",
    "true-client-ip",
    "x-client-ip",
    "x-cluster-client-ip",
    "x-forwarded-for",
    "x-real-ip",
];

/// `rate` by a field with the address of the client.
pub(super) fn check_rates<'f>(
    route: &'f Route,
    parts: &Parts<'f>,
    table: &DeTable<'_>,
    notes: &mut Notes,
) {
    for (index, rate) in route.handling.rates.iter().enumerate() {
        for (at, value) in rate.key.placeholders().enumerate() {
            let Placeholder::Header(name) = value else { continue };
            let configured = |listener: &Listener| listener.client_address_headers.contains(name);
            if !ADDRESS_FIELDS.contains(&name.as_str())
                && !parts.listeners_of(route).any(configured)
            {
                continue;
            }
            let steps = [Step::Key("rate"), Step::Entry(index), Step::Key("by"), Step::Entry(at)];
            let what = format!("a client can send any value of {name}, and so evade the limit");
            let help = "write \"client-address\": behind the proxies in `trusted`, it is the address of the client";
            notes.warn(open(place(table, &steps), what, help));
        }
    }
}

/// A limit of the body that refuses every body.
pub(super) fn check_body(listener: &Listener, table: &DeTable<'_>, notes: &mut Notes) {
    if listener.limits.body_bytes_max == Some(0) {
        let what = "every request with a body, such as a form, is refused: the limit is 0 bytes";
        let help = "write body = \"unlimited\" or a size; to refuse other methods write method = \"GET\" in the routes";
        notes.warn(vain(place(table, &[Step::Key("limits"), Step::Key("body")]), what, help));
    }
}
