//! Edits of pools: a pool that a command adds or removes.
//! In: a configuration, the name of a pool, its settings as TOML. Out: the edited configuration, or why it cannot be edited.
//! Never: removes a pool that a part of the configuration uses, or that an entry of a map in force names. Entries of the
//! configuration that a command has removed or replaced do not count.
//! Limits: `POOLS_MAX` pools.

use std::sync::Arc;

use super::{EditFiles, LiveEdit, certificate, command_table, compare_servers, kept, listed};
use crate::arrange::INDEXES_MAX;
use crate::model::{Action, Config, Origin, Pool, PoolChoice, Proxy, Route, Stated};
use crate::names::route_names;

/// Maximum number of pools of a configuration to which a command adds one.
const POOLS_MAX: usize = INDEXES_MAX;

/// Adds a pool after all others.
pub(super) fn add(
    config: &mut Config,
    name: &str,
    text: &str,
    files: &EditFiles<'_>,
) -> Result<bool, String> {
    if config.pools.iter().any(|pool| pool.name == name) {
        return Err(format!("pool {name:?} exists already"));
    }
    if config.pools.len() >= POOLS_MAX {
        return Err(format!("there are {POOLS_MAX} pools already"));
    }
    let mut part = command_table::read_pool(name, text, files.folder)?;
    certificate::share(config, &mut part);
    config
        .origins
        .pools(config.pools.len())
        .push(Origin::Command(Arc::new(Stated { text: text.to_owned(), part: part.clone() })));
    config.pools.push(part);
    Ok(true)
}

/// Removes a pool that nothing uses. The indexes of the pools after it change.
pub(super) fn remove(
    config: &mut Config,
    name: &str,
    files: &EditFiles<'_>,
) -> Result<bool, String> {
    let Some(at) = config.pools.iter().position(|pool| pool.name == name) else {
        let known = config.pools.iter().map(|pool| pool.name.clone());
        return Err(format!("no pool {name:?}; the pools are: {}", listed(known)));
    };
    let mut users = users_of(config, at);
    users.extend((files.maps_naming)(name).into_iter().map(|map| format!("[map.{map}]")));
    if !users.is_empty() {
        return Err(format!(
            "pool {name:?} is used by {}; help: remove these first, such as with del route or del map, or let them use another pool",
            listed(users.into_iter())
        ));
    }
    config.origins.pools(config.pools.len()).remove(at);
    config.pools.remove(at);
    let index_of = |pool: usize| if pool > at { pool - 1 } else { pool };
    for route in &mut config.routes {
        if let Action::Proxy(Proxy { pool: PoolChoice::Map(choice), .. }) = &mut route.action {
            choice.pools.retain(|pool| *pool != at);
        }
        route.map_pools(index_of);
    }
    let forwards = config.listeners.iter_mut().filter_map(|listener| listener.forward.as_mut());
    forwards.for_each(|forward| forward.map_pools(index_of));
    Ok(true)
}

/// The users of a pool.
fn users_of(config: &Config, at: usize) -> Vec<String> {
    let name = &config.pools[at].name;
    let routes = config.routes.iter().zip(route_names(config));
    let uses = |route: &Route| match &route.action {
        // The entries of the map are those in force.
        Action::Proxy(Proxy { pool: PoolChoice::Map(choice), .. }) => choice.default == Some(at),
        Action::Proxy(proxy) => proxy.pool.pools().any(|pool| pool == at),
        Action::Respond(_)
        | Action::Redirect(_)
        | Action::Synthetic
        | Action::Echo
        | Action::Push(_)
        | Action::Lua(_) => false,
    };
    let chosen =
        |route: &Route| route.handling.hooks.as_ref().is_some_and(|of| of.pools.contains(&at));
    let routes = routes.filter(|(route, _)| {
        uses(route) || chosen(route) || route.also_used().any(|pool| pool == at)
    });
    let listeners = config.listeners.iter().filter(|listener| {
        listener.forward.as_ref().is_some_and(|forward| forward.pools().any(|pool| pool == at))
    });
    let apps = config.lua.iter().filter(|app| app.pools.contains(name));
    let hubs = config.push.iter();
    let hubs = hubs.filter(|hub| hub.backend.as_ref().is_some_and(|of| of.uses_pool(name)));
    let mut users: Vec<String> = routes.map(|(_, route)| format!("route {route}")).collect();
    users.extend(listeners.map(|listener| format!("listener {}", listener.name)));
    users.extend(apps.map(|app| format!("[lua.{}]", app.name)));
    users.extend(hubs.map(|hub| format!("[push.{}]", hub.name)));
    users
}

/// Adds the edits of servers, and those that add pools, after those that remove pools.
pub(super) fn compare(file: &Config, edited: &Config, edits: &mut Vec<LiveEdit>) {
    let Some(origins) = &edited.origins.pools else {
        for (before, after) in file.pools.iter().zip(&edited.pools) {
            compare_pools(before, after, edits);
        }
        return;
    };
    let removed = file.pools.iter().zip(kept(origins, file.pools.len()));
    let removed = removed.filter(|(_, is_kept)| !is_kept);
    edits.extend(removed.map(|(pool, _)| LiveEdit::RemovePool { pool: pool.name.clone() }));
    for (origin, after) in origins.iter().zip(&edited.pools) {
        match origin {
            Origin::File(at) => {
                if let Some(before) = file.pools.get(*at) {
                    compare_pools(before, after, edits);
                }
            }
            Origin::Command(stated) => {
                let (pool, text) = (after.name.clone(), stated.text.clone());
                edits.push(LiveEdit::AddPool { pool, text });
                compare_pools(&stated.part, after, edits);
            }
        }
    }
}

fn compare_pools(before: &Pool, after: &Pool, edits: &mut Vec<LiveEdit>) {
    if before.servers != after.servers {
        compare_servers((&after.name, &before.servers, &after.servers), edits);
    }
}
