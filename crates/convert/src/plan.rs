//! The whole configuration before it is written: settings of the process, listeners with their routes, pools.
//! In: the content of HAProxy's or nginx's file, as its reader has understood it. Out: a document.
//! Invariant: if all listeners of HTTP have the same routes, the routes name no listener.

use std::collections::BTreeSet;

use crate::document::{Block, BlockKind, Document, Value};
use crate::finding::Findings;
use crate::route::{self, Action, Route, TO_HTTPS};

/// A listener and its routes.
pub(crate) struct Listener {
    /// The block; its name is in `name`.
    pub(crate) block: Block,
    pub(crate) name: String,
    pub(crate) is_secure: bool,
    /// The routes, including those that apply only with TLS or only without TLS (`secure`); `None` with `forward`.
    pub(crate) routes: Option<Vec<Route>>,
}

/// The parts of the configuration.
#[derive(Default)]
pub(crate) struct Plan {
    pub(crate) server: Vec<(&'static str, Value, usize)>,
    pub(crate) log: Option<(Value, usize)>,
    pub(crate) admin: Option<(String, usize)>,
    /// `[resolver]`.
    pub(crate) resolver: Option<Block>,
    pub(crate) listeners: Vec<Listener>,
    pub(crate) pools: Vec<Block>,
    /// Maps, sets and tables.
    pub(crate) lookups: Vec<Block>,
    /// The names of pools, maps, sets and tables.
    names: BTreeSet<String>,
    /// The names of listeners.
    listener_names: BTreeSet<String>,
}

impl Plan {
    /// A new name for a pool, map, set or table.
    pub(crate) fn name(&mut self, wanted: &str) -> String {
        new_name(&mut self.names, wanted)
    }

    /// A new name for a listener.
    pub(crate) fn listener_name(&mut self, wanted: &str) -> String {
        new_name(&mut self.listener_names, wanted)
    }

    /// The document. Notes a setting that cannot be expressed.
    pub(crate) fn document(mut self, findings: &mut Findings<'_>) -> Document {
        let mut blocks = Vec::new();
        if !self.server.is_empty() {
            let mut block = Block::new(BlockKind::Process, "[server]", self.server[0].2);
            self.server.iter().for_each(|(key, value, line)| block.set(key, value.clone(), *line));
            blocks.push(block);
        }
        if let Some((access, line)) = self.log.take() {
            let mut block = Block::new(BlockKind::Process, "[log]", line);
            block.set("access", access, line);
            blocks.push(block);
        }
        if let Some((bind, line)) = self.admin.take() {
            let mut block = Block::new(BlockKind::Process, "[admin]", line);
            block.set("bind", bind, line);
            blocks.push(block);
        }
        blocks.extend(self.resolver.take());
        let mut all: Vec<(Block, String, Option<Vec<Route>>)> = Vec::new();
        for mut listener in core::mem::take(&mut self.listeners) {
            let routes = listener.routes.map(|routes| {
                let mut routes = route::for_listener(&routes, listener.is_secure);
                if let Some(value) = redirect_to_https(&routes, listener.is_secure) {
                    listener.block.set("redirect-to-https", value, routes[0].line);
                    routes.clear();
                }
                let (maps, lost) = route::express_regexes(&mut routes, &listener.name);
                for line in lost {
                    findings.untranslated(
                        line,
                        "a route has paths such as \"/api/*\", not regular expressions; a map of regular expressions can replace \
                         them only if the routes differ in nothing but their pool",
                    );
                }
                let known = |map: &Block| self.lookups.iter().any(|own| own.header == map.header);
                let new: Vec<_> = maps.into_iter().filter(|map| !known(map)).collect();
                self.lookups.extend(new);
                route::pruned(routes)
            });
            all.push((listener.block, listener.name, routes));
        }
        let serving: Vec<&Vec<Route>> = all
            .iter()
            .filter_map(|(_, _, routes)| routes.as_ref())
            .filter(|routes| !routes.is_empty())
            .collect();
        let http_count = all.iter().filter(|(_, _, routes)| routes.is_some()).count();
        let is_shared = serving.windows(2).all(|pair| pair[0] == pair[1])
            && (serving.len() == http_count
                || all.iter().all(|(block, _, routes)| {
                    routes.as_ref().is_none_or(|routes| !routes.is_empty())
                        || block.has("redirect-to-https")
                }));
        let shared = match is_shared {
            true => serving.first().map(|routes| (*routes).clone()).unwrap_or_default(),
            false => Vec::new(),
        };
        for (block, name, routes) in all {
            blocks.push(block);
            if !is_shared {
                for route in routes.iter().flatten() {
                    blocks.extend(route::blocks(route, Some(&name)));
                }
            }
        }
        for route in &shared {
            blocks.extend(route::blocks(route, None));
        }
        blocks.extend(self.pools);
        blocks.extend(self.lookups);
        Document { blocks }
    }
}

/// The setting `redirect-to-https`, if a listener without TLS does nothing but redirect.
fn redirect_to_https(routes: &[Route], is_secure: bool) -> Option<Value> {
    let [Route { condition, action: Action::Redirect { to, status }, .. }] = routes else {
        return None;
    };
    if is_secure || !condition.is_empty() || to != TO_HTTPS {
        return None;
    }
    Some(Value::Table(vec![("status".to_owned(), Value::Number((*status).into()))]))
}

/// A name like `wanted` that is not taken yet.
fn new_name(taken: &mut BTreeSet<String>, wanted: &str) -> String {
    let name = clean_name(wanted);
    let mut own = name.clone();
    let mut number = 1;
    while !taken.insert(own.clone()) {
        number += 1;
        own = format!("{name}-{number}");
    }
    own
}

/// `wanted` with the characters and the length that names may have.
pub(crate) fn clean_name(wanted: &str) -> String {
    let good = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let name: String = wanted.chars().take(56).map(|c| if good(c) { c } else { '-' }).collect();
    match name.is_empty() {
        true => "unnamed".to_owned(),
        false => name,
    }
}
