//! Warnings about limits that never refuse a request, because another limit always refuses it first.

use tidegate_base::Span;
use toml::de::DeTable;

use super::{Parts, Step, place, place_of, vain};
use crate::model::{Listener, Rate, Route};
use crate::report::Notes;

/// A burst that takes longer than this to refill limits the total number of requests. Equal to the longest period of a limit.
const RETURN_MAX: Span = Span::from_secs(24 * 3600);

/// A `rate` next to a stricter `rate`, bursts that take too long to refill, and a `connections-per-address-max` of a route that
/// its listeners never reach.
pub(super) fn check_route<'f>(
    route: &'f Route,
    parts: &Parts<'f>,
    table: &DeTable<'_>,
    notes: &mut Notes,
) {
    let rates = &route.handling.rates;
    for (index, rate) in rates.iter().enumerate() {
        let at = |key| place(table, &[Step::Key("rate"), Step::Entry(index), Step::Key(key)]);
        let is_stricter = |(other, stricter): (usize, &Rate)| {
            // Of two limits that are alike, the second one is reported.
            other != index
                && refuses_first(stricter, rate)
                && (other < index || !refuses_first(rate, stricter))
        };
        let mut all = rates.iter().enumerate();
        if let Some(other) = all.position(is_stricter) {
            let what = format!(
                "this limit never refuses a request: limit {} of the route is at least as strict, and its key (`by`) is the key of \
                 this limit or a part of it",
                other + 1
            );
            notes.warn(vain(
                at("limit"),
                what,
                "remove it, lower `limit` or `burst`, or write another `by`",
            ));
        }
        let returns = Span::from_nanos(cost(rate).saturating_mul(u64::from(rate.burst)));
        if returns > RETURN_MAX {
            let days = returns.as_millis() / RETURN_MAX.as_millis();
            let what = format!(
                "at this limit, the burst takes more than {days} days to refill: in effect, it limits the total number of requests"
            );
            notes.warn(vain(at("burst"), what, "write a smaller `burst`, or a higher `limit`"));
        }
    }
    let most = |listener: &Listener| match has_one_request_each(listener) {
        true => [listener.per_address_max, listener.connections_max].into_iter().flatten().min(),
        false => None,
    };
    let mut listeners = parts.listeners_of(route).filter(|one| one.forward.is_none()).peekable();
    if let Some(own) = route.handling.per_address_max
        && listeners.peek().is_some()
        && listeners.all(|listener| most(listener).is_some_and(|most| most <= own))
    {
        let what = "this limit never refuses a request: the listeners of the route admit at most this number of connections, and each \
                    connection has one request in progress at a time";
        let help = "write a smaller number, or remove it";
        notes.warn(vain(place_of(table, "connections-per-address-max"), what, help));
    }
}

/// `connections-per-address-max` of a listener that has no more connections in all.
pub(super) fn check_listener(listener: &Listener, table: &DeTable<'_>, notes: &mut Notes) {
    if let (Some(own), Some(all)) = (listener.per_address_max, listener.connections_max)
        && own >= all
    {
        let what = "this limit never refuses a connection: `connections-max` of the listener is not larger";
        let help = "write a smaller number, or remove it";
        notes.warn(vain(place_of(table, "connections-per-address-max"), what, help));
    }
}

/// Whether `stricter` certainly refuses each request that `rate` would refuse. Requests that one of them refuses do not
/// count for the other.
fn refuses_first(stricter: &Rate, rate: &Rate) -> bool {
    let mut keys = stricter.key.placeholders();
    keys.all(|part| rate.key.placeholders().any(|own| own == part))
        && cost(stricter) >= cost(rate)
        && stricter.burst <= rate.burst
        && stricter.keys_max >= rate.keys_max
}

/// Nanoseconds of the period that one request uses up.
fn cost(rate: &Rate) -> u64 {
    (rate.per.as_nanos() as u64 / u64::from(rate.count)).max(1)
}

/// Whether an address has at most one request in progress on each of its connections.
fn has_one_request_each(listener: &Listener) -> bool {
    let has_http2 = match &listener.tls {
        Some(tls) => tls.alpn.iter().any(|name| name == "h2"),
        None => listener.h2c,
    };
    // Proxies in front state other addresses than those of their connections.
    !has_http2 && listener.trusted.is_empty() && listener.proxy_protocol.is_none()
}
