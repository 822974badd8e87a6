//! Warnings about addresses: proxies that could be anyone, clients that are allowed and denied, empty sets, conditions
//! on clients that are not allowed.

use toml::de::DeTable;

use super::{Step, open, place, place_of, vain};
use crate::model::{AddressSet, Addresses, Listener, Network, Route};
use crate::report::Notes;

/// `trusted` and `proxy-protocol` that contain all addresses.
pub(super) fn check_listener(listener: &Listener, table: &DeTable<'_>, notes: &mut Notes) {
    let all = |networks: &[Network]| networks.iter().position(|network| network.prefix_bits == 0);
    if let Some(at) = all(&listener.trusted) {
        let what = "every client is trusted as if it were a proxy: a client can claim any address, and that it used https";
        let help = "list the addresses of the proxies in front, such as \"10.0.0.0/8\"";
        notes.warn(open(place(table, &[Step::Key("trusted"), Step::Entry(at)]), what, help));
    }
    if let Some(at) = listener.proxy_protocol.as_ref().and_then(|from| all(&from.networks)) {
        let steps = [Step::Key("proxy-protocol"), Step::Key("from"), Step::Entry(at)];
        let what = "every client may send a PROXY header, so a client can claim any address";
        let help = "list the addresses of the proxies in front, such as \"10.0.0.0/8\"";
        notes.warn(open(place(table, &steps), what, help));
    }
}

/// `allow` and `deny` that serve no client, or refuse none.
pub(super) fn check_route(
    route: &Route,
    sets: &[AddressSet],
    table: &DeTable<'_>,
    notes: &mut Notes,
) {
    let (allow, deny) = (&route.handling.allow, &route.handling.deny);
    let client = &route.conditions.client;
    for (key, list, effect) in [
        ("client", client, "no request meets this condition"),
        ("allow", allow, "the route serves no client"),
        ("deny", deny, "the route refuses no client"),
    ] {
        let Some(list) = list else { continue };
        let is_empty = |set: &usize| {
            sets.get(*set).is_some_and(|set| set.file.is_none() && set.networks.is_empty())
        };
        if list.networks.is_empty() && !list.sets.is_empty() && list.sets.iter().all(is_empty) {
            let what = format!("`{key}` names only empty sets: {effect}");
            notes.warn(vain(place_of(table, key), what, "add addresses to the set"));
        }
    }
    if let (Some(client), Some(allow)) = (client, allow)
        && client.sets.is_empty()
        && allow.sets.is_empty()
        && !client.networks.is_empty()
        && !allow.networks.is_empty()
        && client.networks.is_disjoint(&allow.networks)
    {
        let what = "`client` and `allow` have no address in common: every request of the route gets a 403 response";
        let help = "correct `client` or `allow`; without `client`, other addresses get the 403 response, too";
        notes.warn(vain(place_of(table, "allow"), what, help));
    }
    check_refused(route, sets, table, notes);
    if let (Some(allow), Some(deny)) = (allow, deny)
        && !allow.is_empty()
        && is_within(allow, deny, sets)
    {
        let what = "`deny` contains every address of `allow`: the route serves no client";
        notes.warn(vain(
            place_of(table, "deny"),
            what,
            "remove the range from `deny`: with `allow`, other addresses are refused anyway",
        ));
    }
}

/// `client` whose addresses are all in `deny`.
fn check_refused(route: &Route, sets: &[AddressSet], table: &DeTable<'_>, notes: &mut Notes) {
    let (Some(client), Some(deny)) = (&route.conditions.client, &route.handling.deny) else {
        return;
    };
    if !client.is_empty() && is_within(client, deny, sets) {
        let what = "`deny` contains every address of `client`: every request of the route gets a 403 response";
        let help =
            "correct `client` or `deny`; without `client`, `deny` refuses these addresses as well";
        notes.warn(vain(place_of(table, "deny"), what, help));
    }
}

/// Whether every address of `inner` is certainly in `outer`. The contents of the files of sets are unknown.
fn is_within(inner: &Addresses, outer: &Addresses, sets: &[AddressSet]) -> bool {
    let networks = outer.sets.iter().filter_map(|set| sets.get(*set)).map(|set| &set.networks);
    let outers = || networks.clone().chain([&outer.networks]);
    let named = |set: &usize| {
        outer.sets.contains(set)
            || sets.get(*set).is_some_and(|set| {
                set.file.is_none() && outers().any(|outer| outer.covers(&set.networks))
            })
    };
    inner.sets.iter().all(named)
        && (inner.networks.is_empty() || outers().any(|outer| outer.covers(&inner.networks)))
}
