//! Edits of routes: routes that commands add, remove, and switch off and on.
//! In: a configuration, the name of a route, its settings as TOML. Out: the edited configuration, or why it cannot be edited.
//! Never: adds a route that no request reaches.
//! Limits: `ADDED_MAX` routes are added; `COMPARED_MAX` routes before a new one are compared with it.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{EditFiles, LiveEdit, command_table, kept, listed};
use crate::arrange::INDEXES_MAX;
use crate::model::{Config, Origin, Stated};
use crate::names::{distinct, route_name, route_names, unused};
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
    let route = command_table::read_route(text, config, files)?;
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
    let is_kept = kept(origins, file.routes.len());
    // From the last one, so that the names before it stay as they are.
    let names = route_names(file).into_iter().zip(is_kept).rev();
    let removed = names.filter(|(_, is_kept)| !is_kept);
    edits.extend(removed.map(|(route, _)| LiveEdit::RemoveRoute { route }));
}

/// Adds the edits that add routes, and those that switch routes off and on, after those of `compare_removed`.
pub(super) fn compare(file: &Config, edited: &Config, edits: &mut Vec<LiveEdit>) {
    let kept = KeptRoutes::of(file, edited);
    let covering = kept.covering(edited);
    for (at, name) in kept.names.iter().enumerate() {
        let is_off = edited.routes[kept.places[at]].is_off || covering.contains(&at);
        if is_off != kept.was_off[at] {
            edits.push(LiveEdit::SwitchRoute { route: name.clone(), on: !is_off });
        }
    }
    kept.add_others(edited, edits);
    for (at, (route, name)) in edited.routes.iter().zip(route_names(edited)).enumerate() {
        let is_off = match kept.places.binary_search(&at) {
            Ok(kept) => route.is_off || covering.contains(&kept),
            Err(_) => false,
        };
        if route.is_off != is_off {
            edits.push(LiveEdit::SwitchRoute { route: name, on: !route.is_off });
        }
    }
}

/// The routes of the file that edits have not removed, in their order.
struct KeptRoutes {
    /// Their indexes in the edited configuration, ascending.
    places: Vec<usize>,
    /// Their names before routes are added.
    names: Vec<String>,
    /// Whether they are off in the file.
    was_off: Vec<bool>,
}

impl KeptRoutes {
    fn of(file: &Config, edited: &Config) -> Self {
        let from_file = |at: usize| match &edited.origins.routes {
            None => Some(at),
            Some(origins) => match origins.get(at) {
                Some(Origin::File(of)) => Some(*of),
                Some(Origin::Command(_)) | None => None,
            },
        };
        let places: Vec<usize> =
            (0..edited.routes.len()).filter(|at| from_file(*at).is_some()).collect();
        let names = distinct(places.iter().map(|at| route_name(&edited.routes[*at])));
        let in_file = |at: &usize| from_file(*at).and_then(|of| file.routes.get(of));
        let was_off = places.iter().map(|at| in_file(at).is_some_and(|route| route.is_off));
        Self { was_off: was_off.collect(), places, names }
    }

    /// The routes that cover an added one: they were off when it was added, or it would have been refused.
    fn covering(&self, edited: &Config) -> BTreeSet<usize> {
        let mut found = BTreeSet::new();
        let Some(origins) = &edited.origins.routes else { return found };
        let only_one = edited.listeners.len() == 1;
        let mut before = 0;
        for (route, origin) in edited.routes.iter().zip(origins) {
            match origin {
                Origin::File(_) => before += 1,
                Origin::Command(_) => found.extend((0..before.min(COMPARED_MAX)).filter(|at| {
                    let other = &edited.routes[self.places[*at]];
                    !other.is_off && covers(other, route, only_one)
                })),
            }
        }
        found
    }

    /// Adds the edits that add routes, from the last one: each is compared with routes of the file only, as those that
    /// were added later may cover it.
    fn add_others(&self, edited: &Config, edits: &mut Vec<LiveEdit>) {
        let Some(origins) = &edited.origins.routes else { return };
        // The names of the routes before this one: when it is added, all of them are of the file.
        let mut earlier: BTreeSet<&str> = self.names.iter().map(String::as_str).collect();
        let mut unnamed = self.names.iter().rev();
        let mut after: Option<String> = None;
        for (route, origin) in edited.routes.iter().zip(origins).rev() {
            after = match origin {
                Origin::File(_) => {
                    let name = unnamed.next();
                    name.inspect(|name| _ = earlier.remove(name.as_str())).cloned()
                }
                Origin::Command(stated) => {
                    let (text, before) = (stated.text.clone(), after);
                    edits.push(LiveEdit::AddRoute { text, before });
                    Some(unused(route_name(route), |name| !earlier.contains(name)))
                }
            };
        }
    }
}
