//! Warnings about hosts, paths and methods of a route whose requests earlier routes take.
//! Limits: a route is compared with the first `COMPARED_ROUTES_MAX` routes, and only if it has up to `COMBINATIONS_MAX`
//! combinations of a host, a path and a method.
//! Invariant: an entry is reported only if each combination with it is certainly taken by one earlier route.

use super::{Parts, Step, place, vain};
use crate::model::Route;
use crate::report::{Kind, Note, Notes};
use crate::unreachable_routes::{
    COMPARED_ROUTES_MAX, covers, covers_each, covers_host, covers_more, covers_path,
};

/// Combinations of a host, a path and a method of one route that are examined.
const COMBINATIONS_MAX: usize = 1024;

/// The largest number of hosts, paths or methods of a route that is examined: each has a bit.
const ENTRIES_MAX: usize = u128::BITS as usize;

/// Notes a warning for each entry of `host`, `path` and `method` that brings a route no request.
pub(super) fn check(parts: &Parts<'_>, index: usize, route: &Route, notes: &mut Notes) {
    let sizes = [route.hosts.len(), route.paths.len(), route.methods.len()].map(|len| len.max(1));
    let count: usize = sizes.iter().product();
    if !(2..=COMBINATIONS_MAX).contains(&count) || sizes.iter().any(|len| *len > ENTRIES_MAX) {
        return;
    }
    let takers = takers(parts, index, route, sizes);
    let Some(table) = parts.row("route", index) else { return };
    if takers.iter().all(Option::is_some) {
        // One route that matches all of it is reported by `unreachable_routes.rs`.
        let only_one = parts.listeners.listeners.len() == 1;
        let mut earlier = parts.routes.iter().take(index.min(COMPARED_ROUTES_MAX));
        if !earlier.any(|(early, _)| covers(early, route, only_one)) {
            let what = format!(
                "no request reaches route {} of the file: earlier routes together match all of its requests",
                index + 1
            );
            let at = parts.routes.get(index).map_or(0..0, |(_, place)| place.clone());
            let note = Note::new(Kind::Unreachable, at, what);
            notes.warn(note.help("move the more specific route before the others"));
        }
        return;
    }
    let names = ["host", "path", "method"];
    for (dimension, (name, size)) in names.into_iter().zip(sizes).enumerate() {
        for entry in (0..size).filter(|_| size > 1) {
            let own = takers.iter().enumerate();
            let mut own = own
                .filter(|(at, _)| position(*at, sizes)[dimension] == entry)
                .map(|(_, taker)| taker);
            let Some(taker) = own.next().copied().flatten() else { continue };
            let others: Vec<_> = own.collect();
            if !others.iter().all(|other| other.is_some()) {
                continue;
            }
            let by = match others.iter().all(|other| **other == Some(taker)) {
                true => format!("route {} matches all of these requests", taker + 1),
                false => "earlier routes match all of these requests".to_owned(),
            };
            let what = format!("this `{name}` has no effect: {by}");
            let at = place(table, &[Step::Key(name), Step::Entry(entry)]);
            notes.warn(vain(at, what, "remove it, or move the route before the other"));
        }
    }
}

/// By combination: the first earlier route that takes all of its requests.
fn takers(parts: &Parts<'_>, index: usize, route: &Route, sizes: [usize; 3]) -> Vec<Option<usize>> {
    let mut takers = vec![None; sizes.iter().product()];
    let only_one = parts.listeners.listeners.len() == 1;
    let earlier = parts.routes.iter().take(index.min(COMPARED_ROUTES_MAX)).enumerate();
    for (number, (early, _)) in earlier {
        if !covers_more(early, route, only_one) {
            continue;
        }
        let hosts = covered(&route.hosts, |host| covers_each(&early.hosts, host, covers_host));
        if hosts == 0 {
            continue;
        }
        let paths = covered(&route.paths, |path| covers_each(&early.paths, path, covers_path));
        let methods = covered(&route.methods, |method| {
            early.methods.is_empty() || method.iter().any(|own| early.methods.contains(own))
        });
        if paths == 0 || methods == 0 {
            continue;
        }
        for (at, taker) in takers.iter_mut().enumerate() {
            let [host, path, method] = position(at, sizes);
            if (hosts >> host) & (paths >> path) & (methods >> method) & 1 == 1 {
                taker.get_or_insert(number);
            }
        }
    }
    takers
}

/// A bit for each entry that is covered; for an empty list one bit, whether everything is.
fn covered<T>(list: &[T], is_covered: impl Fn(&[T]) -> bool) -> u128 {
    match list {
        [] => u128::from(is_covered(&[])),
        list => {
            let bits = list.chunks(1).enumerate();
            bits.fold(0, |bits, (at, entry)| bits | u128::from(is_covered(entry)) << at)
        }
    }
}

/// The host, the path and the method of a combination.
fn position(at: usize, [_, paths, methods]: [usize; 3]) -> [usize; 3] {
    [at / (paths * methods), at / methods % paths, at % methods]
}
