//! Edits of routes: routes that commands add, remove, and switch off and on.
//! In: a configuration, the name of a route, its settings as TOML. Out: the edited configuration, or why it cannot be edited.
//! Never: adds a route that no request reaches.
//! Limits: `ADDED_MAX` routes are added; `COMPARED_MAX` routes before a new one are compared with it.

use std::sync::Arc;

use super::{EditFiles, LiveEdit, listed, stated};
use crate::arrange::INDEXES_MAX;
use crate::model::{Config, Origin, Route, Stated};
use crate::names::{distinct, route_name, route_names};
use crate::routes::check_limits;
use crate::unreachable_routes::{COMPARED_ROUTES_MAX as COMPARED_MAX, covers};

/// Maximum number of routes that commands add.
pub(super) const ADDED_MAX: usize = 1000;

/// Adds a route: before the route of this name, or after all others.
pub(super) fn add(
    config: &mut Config,
    text: &str,
    before: Option<&str>,
    files: &EditFiles<'_>,
) -> Result<bool, String> {
    let names = route_names(config);
    let at = match before {
        None => config.routes.len(),
        Some(name) => find(&names, name)?,
    };
    let added = config.origins.routes.iter().flatten();
    if added.filter(|origin| matches!(origin, Origin::Command(_))).count() >= ADDED_MAX {
        return Err(format!(
            "commands have added {ADDED_MAX} routes already; help: write them into the file, and reload it"
        ));
    }
    if config.routes.len() >= INDEXES_MAX {
        return Err(format!("there are {INDEXES_MAX} routes already"));
    }
    let route = stated::read_route(text, config, files)?;
    let only_one = config.listeners.len() == 1;
    let mut earlier = config.routes.iter().take(at.min(COMPARED_MAX)).zip(&names);
    let taker = earlier.find(|(other, _)| !other.is_off && covers(other, &route, only_one));
    if let Some((_, taker)) = taker {
        return Err(format!(
            "no request would reach the route: route {taker} before it matches all of its requests; help: append `before {taker}`"
        ));
    }
    config.routes.insert(at, route);
    if let Err((_, what, allowed)) = check_limits(config.routes.iter(), &config.listeners) {
        config.routes.remove(at);
        return Err(format!("{what}; allowed: {allowed}"));
    }
    let origin = Origin::Command(Arc::new(Stated { text: text.to_owned(), part: () }));
    config.origins.routes(config.routes.len() - 1).insert(at, origin);
    Ok(true)
}

/// Removes a route.
pub(super) fn remove(config: &mut Config, name: &str) -> Result<bool, String> {
    let at = find(&route_names(config), name)?;
    config.origins.routes(config.routes.len()).remove(at);
    config.routes.remove(at);
    Ok(true)
}

/// Switches a route off or on.
pub(super) fn switch(config: &mut Config, name: &str, on: bool) -> Result<bool, String> {
    let at = find(&route_names(config), name)?;
    let is_changed = config.routes[at].is_off == on;
    config.routes[at].is_off = !on;
    Ok(is_changed)
}

fn find(names: &[String], name: &str) -> Result<usize, String> {
    names.iter().position(|known| known == name).ok_or_else(|| {
        format!("no route {name:?}; the routes are: {}", listed(names.iter().cloned()))
    })
}

/// Adds the edits that remove routes of the file.
pub(super) fn compare_removed(file: &Config, edited: &Config, edits: &mut Vec<LiveEdit>) {
    let Some(origins) = &edited.origins.routes else { return };
    let mut names: Vec<String> = file.routes.iter().map(route_name).collect();
    // From the last one, so that the names before it stay as they are.
    for at in (0..file.routes.len()).rev().filter(|at| !is_kept(origins, *at)) {
        edits.push(LiveEdit::RemoveRoute { route: name_at(&names, at) });
        names.remove(at);
    }
}

/// Adds the edits that add routes, and those that switch routes off, after those of `compare_removed`.
pub(super) fn compare(file: &Config, edited: &Config, edits: &mut Vec<LiveEdit>) {
    if let Some(origins) = &edited.origins.routes {
        let kept = file.routes.iter().enumerate().filter(|(at, _)| is_kept(origins, *at));
        let mut names: Vec<String> = kept.map(|(_, route)| route_name(route)).collect();
        for (at, (origin, route)) in origins.iter().zip(&edited.routes).enumerate() {
            let Origin::Command(stated) = origin else { continue };
            let before = (at < names.len()).then(|| name_at(&names, at));
            edits.push(LiveEdit::AddRoute { text: stated.text.clone(), before });
            names.insert(at, route_name(route));
        }
    }
    for (at, (route, name)) in edited.routes.iter().zip(route_names(edited)).enumerate() {
        if route.is_off != was_off(file, edited, at, route) {
            edits.push(LiveEdit::SwitchRoute { route: name, on: !route.is_off });
        }
    }
}

/// Whether a route was off before it was edited.
fn was_off(file: &Config, edited: &Config, at: usize, route: &Route) -> bool {
    let in_file = match &edited.origins.routes {
        None => Some(at),
        Some(origins) => match origins.get(at) {
            Some(Origin::File(of)) => Some(*of),
            Some(Origin::Command(_)) | None => return false,
        },
    };
    in_file.and_then(|at| file.routes.get(at)).map_or(route.is_off, |before| before.is_off)
}

fn is_kept(origins: &[Origin<()>], at: usize) -> bool {
    origins.iter().any(|origin| matches!(origin, Origin::File(of) if *of == at))
}

/// The name of the route at an index, if the routes have these names without numbers.
fn name_at(names: &[String], at: usize) -> String {
    distinct(names.iter().take(at + 1).cloned()).pop().unwrap_or_default()
}
