//! Warnings about `{tls:sni}` where no connection has a TLS handshake.

use toml::de::DeTable;

use super::{Parts, Step, place, vain};
use crate::model::{Action, Placeholder, PoolChoice, RedirectPiece, Route, Template};
use crate::report::Notes;

/// `{tls:sni}` in the strings of a route whose listeners have no TLS, and no proxy in front that states the name.
pub(super) fn check(route: &Route, parts: &Parts<'_>, table: &DeTable<'_>, notes: &mut Notes) {
    let Some(steps) = first_use(route) else { return };
    let mut listeners = parts.listeners_of(route).filter(|one| one.forward.is_none()).peekable();
    if listeners.peek().is_none()
        || listeners.any(|one| one.tls.is_some() || one.proxy_protocol.is_some())
    {
        return;
    }
    let what = "{tls:sni} is always empty here: no listener of the route has `tls`";
    let help = "write {host}, or add `tls` to the listener";
    notes.warn(vain(place(table, &steps), what, help));
}

/// The setting with the first `{tls:sni}`.
fn first_use(route: &Route) -> Option<Vec<Step<'static>>> {
    let is_name = |known: &Placeholder| matches!(known, Placeholder::ServerName);
    let has_name = |text: &Template| text.placeholders().any(is_name);
    for (setting, edits) in [
        ("request-headers", &route.handling.request_headers),
        ("response-headers", &route.handling.response_headers),
    ] {
        for (key, fields) in [("set", &edits.set), ("add", &edits.add)] {
            if fields.iter().any(|(_, text)| has_name(text)) {
                return Some(vec![Step::Key(setting), Step::Key(key)]);
            }
        }
    }
    match &route.action {
        Action::Proxy(proxy) if proxy.path.as_ref().is_some_and(has_name) => {
            Some(vec![Step::Key("proxy"), Step::Key("path")])
        }
        Action::Proxy(proxy) if PoolChoice::map_key(&proxy.pool).is_some_and(has_name) => {
            Some(vec![Step::Key("proxy"), Step::Key("pool"), Step::Key("key")])
        }
        Action::Redirect(redirect) => {
            let uses = |piece: &RedirectPiece| match piece {
                RedirectPiece::Value(known) => is_name(known),
                _ => false,
            };
            redirect.to.iter().any(uses).then(|| vec![Step::Key("redirect"), Step::Key("to")])
        }
        _ => None,
    }
}
