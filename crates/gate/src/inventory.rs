//! The parts of a configuration with a fingerprint of each, and how two configurations differ.
//! In: configurations; the text of an inventory. Out: an inventory, its text, or a list of differences.
//! Never: contains a setting, because the text is shown by the admin interface and settings may be secrets.
//! Invariant: references between parts count by name, so that a part that has only moved has the same fingerprint.

use core::fmt::{self, Write as _};
use std::collections::BTreeMap;

use tidegate_base::prng::hash_bytes;
use tidegate_config::model::{Action, Addresses, Config, Listener, PoolChoice, Route};

use crate::access::Names;

/// The kind of a part. Differences are listed in this order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Kind {
    /// `[server]`, `[websocket]`, `[log]`, `[admin]` or `[traces]`.
    Section,
    /// A listener, by its address.
    Listener,
    /// A route.
    Route,
    /// A pool, without its servers.
    Pool,
    /// A server of a pool.
    Server,
    /// A set of addresses.
    Set,
    /// A map of values.
    Map,
    /// A table that counts.
    Table,
    /// A Lua application.
    Lua,
    /// A push hub.
    Push,
}

impl Kind {
    const ALL: [Self; 10] = [
        Self::Section,
        Self::Listener,
        Self::Route,
        Self::Pool,
        Self::Server,
        Self::Set,
        Self::Map,
        Self::Table,
        Self::Lua,
        Self::Push,
    ];

    const fn word(self) -> &'static str {
        match self {
            Self::Section => "section",
            Self::Listener => "listener",
            Self::Route => "route",
            Self::Pool => "pool",
            Self::Server => "server",
            Self::Set => "set",
            Self::Map => "map",
            Self::Table => "table",
            Self::Lua => "lua",
            Self::Push => "push",
        }
    }
}

/// A part of a configuration.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Part {
    kind: Kind,
    name: String,
    /// A hash of all its settings.
    fingerprint: u64,
}

/// All parts of a configuration, in file order within each kind.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Inventory(Vec<Part>);

impl Inventory {
    /// The parts of `config`, as it is in the file.
    #[must_use]
    pub fn of(config: &Config) -> Self {
        let names = Names::new(config);
        let mut inventory = Self::default();
        inventory.add(Kind::Section, "[server]", &config.server);
        inventory.add(Kind::Section, "[websocket]", &config.websocket);
        inventory.add(Kind::Section, "[log]", &config.log);
        inventory.add(Kind::Section, "[admin]", &config.admin);
        inventory.add(Kind::Section, "[traces]", &config.traces);
        for listener in &config.listeners {
            let settings = listener_without_indexes(listener, config);
            inventory.add(Kind::Listener, &listener.bind.to_string(), &settings);
        }
        for (index, route) in config.routes.iter().enumerate() {
            let settings = route_without_indexes(route, config);
            inventory.add(Kind::Route, names.route(index), &settings);
        }
        for (index, pool) in config.pools.iter().enumerate() {
            let mut settings = pool.clone();
            settings.servers.clear();
            inventory.add(Kind::Pool, &pool.name, &settings);
            for (at, server) in pool.servers.iter().enumerate() {
                let (pool, name) = names.server(index, at);
                inventory.add(Kind::Server, &format!("{pool}/{name}"), server);
            }
        }
        for set in &config.sets {
            inventory.add(Kind::Set, &set.name, set);
        }
        for map in &config.maps {
            inventory.add(Kind::Map, &map.name, map);
        }
        for table in &config.tables {
            inventory.add(Kind::Table, &table.name, table);
        }
        for app in &config.lua {
            inventory.add(Kind::Lua, &app.name, app);
        }
        for hub in &config.push {
            inventory.add(Kind::Push, &hub.name, hub);
        }
        inventory
    }

    fn add(&mut self, kind: Kind, name: &str, settings: &impl fmt::Debug) {
        let fingerprint = hash_bytes(format!("{settings:?}").as_bytes());
        self.0.push(Part { kind, name: name.to_owned(), fingerprint });
    }

    /// One line for each part: kind, fingerprint and name.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = String::new();
        for Part { kind, name, fingerprint } in &self.0 {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{} {fingerprint:016x} {name}", kind.word());
        }
        text
    }

    /// Parses the result of `text`; `None` if the text has another format.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let part = |line: &str| {
            let (kind, rest) = line.split_once(' ')?;
            let (fingerprint, name) = rest.split_once(' ')?;
            Some(Part {
                kind: Kind::ALL.into_iter().find(|known| known.word() == kind)?,
                name: name.to_owned(),
                fingerprint: u64::from_str_radix(fingerprint, 16).ok()?,
            })
        };
        text.lines().map(part).collect::<Option<_>>().map(Self)
    }

    /// What changes if `next` replaces this configuration: one line for each part, such as `+ route /new`. `+` is a new
    /// part, `-` one that is removed, `~` one whose settings change. Routes are tried in order, so a new order of routes
    /// is a change, too.
    #[must_use]
    pub fn changes_to(&self, next: &Self) -> Vec<String> {
        let index = |of: &Self| -> BTreeMap<(Kind, String), u64> {
            of.0.iter().map(|part| ((part.kind, part.name.clone()), part.fingerprint)).collect()
        };
        let (before, after) = (index(self), index(next));
        let mut changes = Vec::new();
        for kind in Kind::ALL {
            for part in self.0.iter().filter(|part| part.kind == kind) {
                let key = (kind, part.name.clone());
                match after.get(&key) {
                    None => changes.push(format!("- {} {}", kind.word(), part.name)),
                    Some(fingerprint) if *fingerprint != part.fingerprint => {
                        changes.push(format!("~ {} {}", kind.word(), part.name));
                    }
                    Some(_) => {}
                }
            }
            for part in next.0.iter().filter(|part| part.kind == kind) {
                if !before.contains_key(&(kind, part.name.clone())) {
                    changes.push(format!("+ {} {}", kind.word(), part.name));
                }
            }
            let common = |of: &Self, other: &BTreeMap<(Kind, String), u64>| -> Vec<String> {
                let names = of.0.iter().filter(|part| part.kind == kind).map(|part| &part.name);
                names.filter(|name| other.contains_key(&(kind, (*name).clone()))).cloned().collect()
            };
            if kind == Kind::Route && common(self, &after) != common(next, &before) {
                changes.push("~ order of routes".to_owned());
            }
        }
        changes
    }
}

/// A copy of a listener for its fingerprint: references to pools and tables are names.
fn listener_without_indexes(listener: &Listener, config: &Config) -> (Listener, Vec<String>) {
    let mut settings = listener.clone();
    let mut names = Vec::new();
    if let Some(forward) = &mut settings.forward {
        names = forward.pools().map(|pool| pool_name(config, pool)).collect();
        forward.map_pools(|_| 0);
    }
    names.extend(settings.counting.drain(..).map(|table| table_name(config, table)));
    (settings, names)
}

/// A copy of a route for its fingerprint: its references are names.
fn route_without_indexes(route: &Route, config: &Config) -> (Route, Vec<String>) {
    let mut settings = route.clone();
    let listener = settings.listener.take().and_then(|at| config.listeners.get(at));
    let mut names = vec![listener.map_or_else(String::new, |listener| listener.name.clone())];
    let app_name =
        |app: usize| config.lua.get(app).map_or_else(String::new, |app| app.name.clone());
    match &mut settings.action {
        Action::Proxy(proxy) => {
            if let PoolChoice::Map(choice) = &mut proxy.pool {
                let map = config.maps.get(core::mem::take(&mut choice.map));
                names.extend(map.map(|map| map.name.clone()));
            }
            names.extend(proxy.pool.pools().map(|pool| pool_name(config, pool)));
            proxy.pool.map_pools(|_| 0);
        }
        Action::Lua(app) => names.push(app_name(core::mem::take(app))),
        Action::Push(push) => {
            let hub = config.push.get(core::mem::take(&mut push.hub));
            names.extend(hub.map(|hub| hub.name.clone()));
        }
        Action::Respond(_) | Action::Redirect(_) | Action::Synthetic | Action::Echo => {}
    }
    let handling = &mut settings.handling;
    let except = handling.maintenance.as_mut().and_then(|maintenance| maintenance.except.as_mut());
    let clients = settings.conditions.client.as_mut();
    let lists = [handling.allow.as_mut(), handling.deny.as_mut(), except, clients];
    for list in lists.into_iter().flatten() {
        take_sets(list, config, &mut names);
    }
    names.extend(settings.counting.drain(..).map(|table| table_name(config, table)));
    for test in &mut settings.conditions.tables {
        names.push(table_name(config, core::mem::take(&mut test.table)));
    }
    if let Some(jwt) = &handling.jwt {
        // The text of the settings does not show the content of the file.
        let authorities = jwt.remote.iter().map(|remote| &remote.authorities);
        let contents = core::iter::once(&jwt.content).chain(authorities);
        names.extend(contents.map(|content| format!("{:016x}", hash_bytes(&content.0))));
    }
    if let Some(ask) = &mut handling.ask {
        names.push(pool_name(config, core::mem::take(&mut ask.pool)));
    }
    if let Some(mirror) = &mut handling.mirror {
        names.push(pool_name(config, core::mem::take(&mut mirror.pool)));
    }
    if let Some(hooks) = &mut handling.hooks {
        names.push(app_name(core::mem::take(&mut hooks.app)));
        names.extend(hooks.pools.iter_mut().map(|pool| pool_name(config, core::mem::take(pool))));
    }
    (settings, names)
}

/// Moves the sets of a list, as names, to `names`.
fn take_sets(list: &mut Addresses, config: &Config, names: &mut Vec<String>) {
    for set in &mut list.sets {
        let set = config.sets.get(core::mem::take(set));
        names.push(set.map_or_else(String::new, |set| set.name.clone()));
    }
}

fn table_name(config: &Config, table: usize) -> String {
    config.tables.get(table).map_or_else(String::new, |table| table.name.clone())
}

fn pool_name(config: &Config, pool: usize) -> String {
    config.pools.get(pool).map_or_else(String::new, |pool| pool.name.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: &str = "[[listener]]\nbind = \"127.0.0.1:1\"\n\
        [[route]]\npath = \"/a/*\"\nproxy = \"p\"\n[[route]]\npath = \"/b\"\nproxy = \"q\"\n\
        [pool.p]\nservers = [\"10.0.0.1:1\", \"10.0.0.2:1\"]\n[pool.q]\nservers = [\"10.0.0.3:1\"]\n";

    fn inventory(text: &str) -> Inventory {
        match tidegate_config::parse(text, "the test") {
            Ok(config) => Inventory::of(&config),
            Err(errors) => panic!("{errors}"),
        }
    }

    #[test]
    fn each_change_is_listed_once() {
        let pools = "[pool.q]\nservers = [\"10.0.0.3:1\"]\n";
        let moved = BASE.replace(pools, "").replace("[pool.p]", &format!("{pools}[pool.p]"));
        let swapped = BASE.replace("/a/*", "/x").replace("/b", "/a/*").replace("/x", "/b");
        for (text, expected) in [
            (BASE.to_owned(), &[][..]),
            (moved, &[]),
            (swapped, &["~ route /a/*", "~ route /b", "~ order of routes"]),
            (
                BASE.replace(":1\"\n[[route]]", ":2\"\n[[route]]"),
                &["- listener 127.0.0.1:1", "+ listener 127.0.0.1:2"],
            ),
            (
                BASE.replace("10.0.0.2:1", "10.0.0.9:1"),
                &["- server p/10.0.0.2:1", "+ server p/10.0.0.9:1"],
            ),
            (BASE.replace("/b\"\n", "/b\"\nmethod = \"GET\"\n"), &["~ route /b"]),
            (BASE.replace("[pool.q]\n", "[pool.q]\nretries = 0\n"), &["~ pool q"]),
            (format!("{BASE}[server]\nworkers = 7\n"), &["~ section [server]"]),
            (BASE.replace("proxy = \"p\"", "proxy = \"q\""), &["~ route /a/*"]),
        ] {
            if let Ok(config) = tidegate_config::parse(&text, "the test") {
                let next = Inventory::of(&config);
                assert_eq!(inventory(BASE).changes_to(&next), expected, "{text}");
            } else {
                panic!("{text}");
            }
        }
    }

    /// Routes with every kind of reference from a part to another one.
    const REFERENCES: &str = "[[listener]]\nname = \"l1\"\nbind = \"127.0.0.1:1\"\n\
        [[listener]]\nname = \"l2\"\nbind = \"127.0.0.1:2\"\n\
        [[listener]]\nname = \"l3\"\nbind = \"127.0.0.1:3\"\nforward = \"p1\"\n\
        [[route]]\nlistener = \"l1\"\npath = \"/a\"\nproxy = \"p1\"\nallow = [\"set:s1\"]\n\
        deny = [\"set:s2\"]\nauth = { ask = \"p2\", path = \"/ask\" }\n\
        hooks = { lua = \"a1\", pools = [\"p2\"] }\nmaintenance = { except = [\"set:s1\"] }\n\
        [[route]]\nlistener = \"l2\"\npath = \"/b\"\nclient = [\"set:s2\"]\n\
        proxy = { pool = { map = \"m1\", key = \"{host}\", default = \"p2\" } }\n\
        [[route]]\nlistener = \"l1\"\npath = \"/c/*\"\npush = \"h1\"\n\
        [[route]]\nlistener = \"l2\"\npath = \"/d\"\nlua = \"a2\"\n\
        [[route]]\nlistener = \"l2\"\npath = \"/e\"\nproxy = { pool = { map = \"m2\", key = \"{host}\" } }\n\
        [[route]]\nlistener = \"l2\"\npath = \"/f/*\"\npush = \"h2\"\n\
        [[route]]\nlistener = \"l1\"\npath = \"/g\"\nsplit = { pools = { p1 = 1, p2 = 2 } }\n";

    /// Two parts of each kind that others refer to. `first`: the number of those that are first.
    fn references(routes: &str, first: u8) -> Inventory {
        let both = |part: &dyn Fn(u8) -> String| part(first) + &part(3 - first);
        let parts = [
            both(&|n| format!("[pool.p{n}]\nservers = [\"10.0.0.{n}:1\"]\n")),
            both(&|n| format!("[set.s{n}]\naddresses = [\"10.0.0.{n}\"]\n")),
            both(&|n| format!("[map.m{n}]\nentries = {{ x = \"p{n}\" }}\n")),
            both(&|n| format!("[lua.a{n}]\nscript = \"{n}.lua\"\n")),
            both(&|n| format!("[push.h{n}]\ntoken-secret = \"secret-of-the-hub-{n}\"\n")),
        ];
        inventory(&(routes.to_owned() + &parts.concat()))
    }

    #[test]
    fn references_count_by_name() {
        let before = references(REFERENCES, 1);
        let moved = before.changes_to(&references(REFERENCES, 2));
        assert_eq!(moved, [""; 0], "parts that only moved");
        for (route, from, to) in [
            ("route /a", "allow = [\"set:s1\"]", "allow = [\"set:s2\"]"),
            ("route /a", "deny = [\"set:s2\"]", "deny = [\"set:s1\"]"),
            ("route /a", "ask = \"p2\"", "ask = \"p1\""),
            ("route /a", "lua = \"a1\"", "lua = \"a2\""),
            ("route /a", "pools = [\"p2\"]", "pools = [\"p1\"]"),
            ("route /a", "except = [\"set:s1\"]", "except = [\"set:s2\"]"),
            ("route /b", "client = [\"set:s2\"]", "client = [\"set:s1\"]"),
            ("route /b", "default = \"p2\"", "default = \"p1\""),
            ("route /b", "map = \"m1\"", "map = \"m2\""),
            ("route /c/*", "push = \"h1\"", "push = \"h2\""),
            ("route /d", "lua = \"a2\"", "lua = \"a1\""),
            ("route /g", "p1 = 1, p2 = 2", "p1 = 2, p2 = 1"),
            ("listener 127.0.0.1:3", "forward = \"p1\"", "forward = \"p2\""),
        ] {
            assert_eq!(REFERENCES.matches(from).count(), 1, "{from}");
            let changed = REFERENCES.replace(from, to);
            for first in [1, 2] {
                let changes = before.changes_to(&references(&changed, first));
                assert_eq!(changes, [format!("~ {route}")], "{to}, {first}");
            }
        }
    }

    #[test]
    fn content_of_a_key_file_counts() {
        let auth = "/b\"\nauth = { jwt = { secret-file = \"a.key\" } }\n";
        let of = |content: &[u8]| {
            let text = BASE.replace("/b\"\n", auth);
            let mut config = tidegate_config::parse(&text, "the test").expect("valid");
            tidegate_config::supply(&mut config, |_| Ok(content.to_vec())).expect("a secret");
            Inventory::of(&config)
        };
        let [before, after] =
            [b"0123456789abcdef0123456789abcdef", b"fedcba9876543210fedcba9876543210"]
                .map(|key| of(key));
        assert_eq!(before.changes_to(&after), ["~ route /b"]);
        assert!(before.changes_to(&before).is_empty());
    }

    #[test]
    fn text_describes_the_inventory_without_settings() {
        let secret =
            BASE.replace("/b\"\n", "/b\"\nrequest-headers = { set = { a = \"s3cret\" } }\n");
        let inventory = inventory(&secret);
        assert!(!inventory.text().contains("s3cret"));
        assert_eq!(Inventory::parse(&inventory.text()), Some(inventory));
        for other in ["x", "route zz a", "route 1", "unknown command"] {
            assert_eq!(Inventory::parse(other), None, "{other}");
        }
    }
}
