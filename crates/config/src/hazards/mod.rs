//! Warnings about valid files that leave a service open, or whose settings have no effect.
//! In: the checked parts of a file, and its text as parsed. Out: warnings at the settings, with the fix.
//! Limits: `CHECKED_MAX` listeners, routes and pools each; later ones cause no warning.
//! Invariant: a warning is certain: it depends on nothing outside of the file except where its text says so.

mod addresses;
mod bodies;
mod conditions;
mod cookies;
mod counts;
mod entries;
mod hubs;
mod limits;
mod origins;
mod pages;
mod protocols;
mod rates;
mod redirects;
mod server_names;

use core::ops::Range;

use toml::de::{DeTable, DeValue};

use crate::count_tables::CountTables;
use crate::listeners::Listeners;
use crate::model::{AddressSet, Listener, Push, Route};
use crate::pools::Pools;
use crate::report::{Kind, Note, Notes};

/// How many listeners, routes and pools are checked.
const CHECKED_MAX: usize = 10_000;

/// The checked parts of a file.
pub(crate) struct Parts<'f> {
    /// The routes, each with its place in the file.
    pub(crate) routes: &'f [(Route, Range<usize>)],
    /// The listeners.
    pub(crate) listeners: &'f Listeners,
    /// The pools.
    pub(crate) pools: &'f Pools,
    /// The sets of addresses.
    pub(crate) sets: &'f [AddressSet],
    /// The push hubs.
    pub(crate) hubs: &'f [Push],
    /// The tables that count.
    pub(crate) tables: &'f CountTables,
    /// Whether there is an admin interface, which shows tables.
    pub(crate) has_admin: bool,
    /// The file as parsed.
    pub(crate) root: &'f DeTable<'f>,
}

/// Notes a warning for each hazard.
pub(crate) fn check(parts: &Parts<'_>, notes: &mut Notes) {
    for (index, listener) in parts.listeners.listeners.iter().enumerate().take(CHECKED_MAX) {
        let Some(table) = parts.row("listener", index) else { continue };
        addresses::check_listener(listener, table, notes);
        redirects::check(listener, parts, table, notes);
        limits::check_body(listener, table, notes);
        rates::check_listener(listener, table, notes);
    }
    for (index, (route, _)) in parts.routes.iter().enumerate().take(CHECKED_MAX) {
        let Some(table) = parts.row("route", index) else { continue };
        addresses::check_route(route, parts.sets, table, notes);
        limits::check_rates(route, parts, table, notes);
        rates::check_route(route, parts, table, notes);
        entries::check(parts, index, route, notes);
        origins::check(route, table, notes);
        pages::check(route, table, notes);
        bodies::check(route, table, notes);
        conditions::check(route, table, notes);
        counts::check_route(route, parts, table, notes);
        server_names::check(route, parts, table, notes);
    }
    for (index, pool) in parts.pools.pools.iter().enumerate().take(CHECKED_MAX) {
        let Some(table) = parts.named("pool", &pool.name) else { continue };
        cookies::check(pool, parts.serves_https(index), table, notes);
        protocols::check(pool, table, notes);
    }
    counts::check(parts, notes);
    for hub in parts.hubs.iter().take(CHECKED_MAX) {
        let Some(table) = parts.named("push", &hub.name) else { continue };
        hubs::check(hub, table, notes);
    }
}

impl<'f> Parts<'f> {
    /// The table of an entry of `[[name]]`.
    fn row(&self, name: &str, index: usize) -> Option<&'f DeTable<'f>> {
        self.root.get(name)?.get_ref().as_array()?.get(index)?.get_ref().as_table()
    }

    /// The table `[section.name]`.
    fn named(&self, section: &str, name: &str) -> Option<&'f DeTable<'f>> {
        self.root.get(section)?.get_ref().as_table()?.get(name)?.get_ref().as_table()
    }

    /// The listeners that `route` applies to.
    fn listeners_of(&self, route: &'f Route) -> impl Iterator<Item = &'f Listener> + use<'f> {
        let all = self.listeners.listeners.iter().enumerate();
        all.filter(|(at, _)| route.listener.is_none_or(|only| only == *at)).map(|(_, one)| one)
    }

    /// Whether a route sends the pool requests that may have arrived over https, or no route uses the pool.
    fn serves_https(&self, pool: usize) -> bool {
        let uses = |(route, _): &&(Route, Range<usize>)| route.pools().any(|own| own == pool);
        let mut routes = self.routes.iter().filter(uses).peekable();
        routes.peek().is_none()
            || routes.any(|(route, _)| self.listeners_of(route).any(Listener::may_serve_https))
    }
}

/// A step into a value: the setting of a table, or the entry of an array.
#[derive(Clone, Copy)]
enum Step<'s> {
    Key(&'s str),
    Entry(usize),
}

/// The place of the value that `steps` lead to in `table`; that of the last step that exists if there is no such value.
fn place(table: &DeTable<'_>, steps: &[Step<'_>]) -> Range<usize> {
    let Some((Step::Key(first), rest)) = steps.split_first() else { return 0..0 };
    let Some(mut value) = table.get(*first) else { return 0..0 };
    for step in rest {
        let next = match (value.get_ref(), step) {
            (DeValue::Table(table), Step::Key(key)) => table.get(*key),
            (DeValue::Array(entries), Step::Entry(index)) => entries.get(*index),
            // One entry may be written without an array.
            (_, Step::Entry(0)) => Some(value),
            (_, Step::Key(_) | Step::Entry(_)) => None,
        };
        match next {
            Some(next) => value = next,
            None => break,
        }
    }
    value.span()
}

/// The place of the setting `key`.
fn place_of(table: &DeTable<'_>, key: &str) -> Range<usize> {
    place(table, &[Step::Key(key)])
}

/// A warning about a service that is open to more than its author may think.
fn open(place: Range<usize>, what: impl Into<String>, help: impl Into<String>) -> Note {
    Note::new(Kind::Open, place, what).help(help)
}

/// A warning about a setting without the intended effect.
fn vain(place: Range<usize>, what: impl Into<String>, help: impl Into<String>) -> Note {
    Note::new(Kind::NoEffect, place, what).help(help)
}
