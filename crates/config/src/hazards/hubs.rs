//! Warnings about push hubs that every client may use to send messages to every other client.

use toml::de::DeTable;

use super::{Step, open, place};
use crate::push::{Namespace, Permit, Push, Subscribe};
use crate::push_backend::BackendEvent;
use crate::report::Notes;

/// Channels that any client may subscribe to and publish to.
pub(super) fn check(hub: &Push, table: &DeTable<'_>, notes: &mut Notes) {
    if !hub.anonymous {
        return;
    }
    let is_open = |namespace: &Namespace| {
        namespace.subscribe == Subscribe::Anyone
            && matches!(namespace.publish, Permit::Anyone | Permit::Subscribers)
            && !namespace.sends(BackendEvent::Subscribe)
            && !namespace.sends(BackendEvent::Publish)
    };
    let what =
        "any client, even without a token, may send messages to all clients of these channels";
    let help = "write publish = \"api\" or \"users\", or remove `anonymous`";
    if is_open(&hub.channels) {
        notes.warn(open(place(table, &[Step::Key("publish")]), what, help));
    }
    for namespace in hub.namespaces.iter().filter(|namespace| is_open(namespace)) {
        let steps = [Step::Key("namespace"), Step::Key(&namespace.name), Step::Key("publish")];
        notes.warn(open(place(table, &steps), what, help));
    }
}
