//! Reads the pool of a route: `pool` of `proxy`, and `split`.
//! In: the table of a route, the checked pools and maps. Out: `PoolChoice`.
//! Invariant: every pool exists; the pools of a map in a file are checked when the file is read (`pools_of`).

use std::collections::BTreeMap;

use crate::findings::{Finding, Owner};
use crate::keys::WEIGHT_MAX;
use crate::listeners::refused;
use crate::maps::Maps;
use crate::model::{
    Action, Config, MapChoice, MapKind, Placeholder, Pool, PoolChoice, Proxy, Split, Template,
    TemplatePiece, TextMap,
};
use crate::nearest::nearest;
use crate::pattern::ValueError;
use crate::pools::Pools;
use crate::rates::parse_key;
use crate::report::{Kind, Note, Notes};
use crate::table::{Located, Table, wrong_type};
use crate::template::{self, Paths, Place};

/// The subject of a finding about the pool of a map.
pub(crate) const GAP: &str = "pool";

/// Maximum number of pools of a split.
const POOLS_MAX: usize = 100;

/// The parts of the file that a pool is chosen from.
#[derive(Clone, Copy)]
pub(crate) struct Choices<'a> {
    pub(crate) pools: &'a Pools,
    pub(crate) maps: &'a Maps,
}

/// Reads `pool` of `proxy`, which is absent if and only if the route has `split`.
pub(crate) fn read(
    route: &Table<'_>,
    proxy: Option<&Table<'_>>,
    choices: Choices<'_>,
    paths: Paths<'_>,
    notes: &mut Notes,
) -> Option<PoolChoice> {
    let pool = proxy.and_then(|proxy| Some((proxy, proxy.value("pool")?)));
    let has_split = route.value("split").is_some();
    match (pool, proxy) {
        (None, _) if has_split => read_split(route, choices.pools, notes).map(PoolChoice::Split),
        (Some((proxy, _)), _) if has_split => {
            let what = "`split` chooses the pool, but `proxy` names a pool as well";
            let note = Note::new(Kind::Conflict, proxy.key_place("pool"), what);
            notes.error(note.help("remove `pool`, or remove `split`"));
            None
        }
        (Some((proxy, value)), _) => match value.get_ref().as_table() {
            Some(_) => {
                let table = proxy.open_table("pool", notes)?;
                read_map(&table, choices, paths, notes).map(PoolChoice::Map)
            }
            None => choices.pools.find(&proxy.text("pool", notes)?, notes).map(PoolChoice::One),
        },
        (None, Some(proxy)) => {
            let note = Note::new(Kind::Missing, proxy.place.clone(), "[route.proxy] has no `pool`");
            notes.error(note.help("add pool = \"NAME\", or `split` in the route"));
            None
        }
        (None, None) => None,
    }
}

fn read_split(route: &Table<'_>, known: &Pools, notes: &mut Notes) -> Option<Split> {
    let table = route.open_table("split", notes)?;
    let mut split = Split { pools: Vec::new(), key: Template::default() };
    let mut is_complete = true;
    for (name, value) in table.open_fields("pools", notes) {
        let weight =
            value.get_ref().as_integer().and_then(|number| number.to_string().parse().ok());
        let weight = weight.filter(|weight| u64::from(*weight) <= WEIGHT_MAX);
        if weight.is_none() {
            let allowed = format!("an integer from 0 to {WEIGHT_MAX}");
            notes.error(wrong_type("a weight of `pools`", value, &allowed));
        }
        match (known.find(&name, notes), weight) {
            (Some(pool), Some(weight)) => split.pools.push((pool, weight)),
            _ => is_complete = false,
        }
    }
    if let Some(value) = table.value("pools").filter(|_| is_complete) {
        if split.pools.iter().all(|(_, weight)| *weight == 0) {
            let what = "no pool of the split has a weight above 0";
            let note = Note::new(Kind::Value, value.span(), what);
            notes.error(note.help("write pools = { stable = 95, canary = 5 }"));
        }
        if split.pools.len() > POOLS_MAX {
            let what = format!("the split has {} pools", split.pools.len());
            let note = Note::new(Kind::Value, value.span(), what);
            notes.error(note.allowed(format!("up to {POOLS_MAX} pools")));
        }
    }
    for text in table.texts("by", notes) {
        if text.text.starts_with("claim:") {
            let what = "the claims of tokens are not known when a pool is chosen".to_owned();
            let help = "write \"header:NAME\", \"cookie:NAME\" or \"client-address\"".to_owned();
            notes.error(refused("by", &text, ValueError { what, help }));
            continue;
        }
        match parse_key(&text.text, false) {
            Ok(placeholder) => split.key.pieces.push(TemplatePiece::Value(placeholder)),
            Err(complaint) => notes.error(refused("by", &text, complaint)),
        }
    }
    Some(split)
}

fn read_map(
    table: &Table<'_>,
    Choices { pools, maps }: Choices<'_>,
    paths: Paths<'_>,
    notes: &mut Notes,
) -> Option<MapChoice> {
    notes.places.mark(GAP, table.place.clone());
    let default = table.text("default", notes).and_then(|name| pools.find(&name, notes));
    let key = table.text("key", notes).map(|text| read_key(&text, paths, notes));
    let map = maps.find(&table.text("map", notes)?, notes)?;
    let values = maps.values(map);
    let has_pool = |name: &Located| pools.pools.iter().any(|pool| pool.name == name.text);
    let known = values.iter().filter(|name| !maps.is_checked || has_pool(name));
    let of_values = known.filter_map(|name| pools.find(name, notes)).collect();
    Some(MapChoice { map, key: key?, default, pools: of_values })
}

/// Reads the text that is looked up.
fn read_key(text: &Located, paths: Paths<'_>, notes: &mut Notes) -> Template {
    let template = match template::parse(&text.text, Place::Field, paths) {
        Ok(template) => template,
        Err(complaint) => {
            notes.error(refused("key", text, complaint));
            return Template::default();
        }
    };
    let is_late = |known: &Placeholder| matches!(known, Placeholder::User | Placeholder::Claim(_));
    if template.placeholders().any(is_late) {
        let what = "the pool is chosen before the user is known";
        let note = Note::new(Kind::Value, text.place.clone(), what);
        notes.error(note.help("remove {user} and {claim:NAME}"));
    } else if template.literal().is_some() {
        let what = "`key` is the same string for each request";
        let note = Note::new(Kind::Value, text.place.clone(), what);
        notes.error(note.help("write a placeholder, such as key = \"{host}\""));
    }
    template
}

/// The indexes of the pools that the values of a map name, by the numbers of the values.
///
/// # Errors
/// The line of a value that is not the name of a pool.
pub(crate) fn pools_of(table: &TextMap, pools: &[Pool]) -> Result<Vec<usize>, String> {
    let by_name: BTreeMap<&str, usize> =
        pools.iter().enumerate().map(|(index, pool)| (pool.name.as_str(), index)).collect();
    let index = |(name, line): &(String, usize)| {
        by_name.get(name.as_str()).copied().ok_or_else(|| {
            let near = nearest(name, pools.iter().map(|pool| pool.name.as_str()));
            let near = near.map(|near| format!("; write {near:?}")).unwrap_or_default();
            format!("line {line}: there is no pool {name:?}{near}")
        })
    };
    table.values().iter().map(index).collect()
}

/// Warnings about keys of maps that no request has, because {host} is in lower case, and has neither a port nor a dot at
/// the end. For maps of which it is the whole key.
pub(crate) fn unmatchable_keys(config: &Config) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (index, route) in config.routes.iter().enumerate() {
        let Action::Proxy(Proxy { pool: PoolChoice::Map(choice), .. }) = &route.action else {
            continue;
        };
        let is_host = choice.key.pieces == [TemplatePiece::Value(Placeholder::Host)];
        let Some(map) =
            config.maps.get(choice.map).filter(|map| is_host && map.kind == MapKind::Exact)
        else {
            continue;
        };
        let is_hopeless = |key: &str| {
            let has_port = match key.rsplit_once(']') {
                Some((_, port)) => !port.is_empty(),
                None => key.contains(':'),
            };
            let is_upper = !map.ignore_case && key.bytes().any(|byte| byte.is_ascii_uppercase());
            has_port || is_upper || key.ends_with('.')
        };
        let mut keys = map.table.entries().map(|(key, _)| key).filter(|key| is_hopeless(key));
        let Some(first) = keys.next() else { continue };
        let others = match keys.count() {
            0 => String::new(),
            count => format!(" or {count} more of its keys"),
        };
        let what = format!(
            "no request can match the key {first:?} of map {:?}{others}: {{host}} is in lower case, without a port and \
             without a dot at the end",
            map.name
        );
        let help = Some("write the key in lower case and without the port".to_owned());
        let (owner, subject) = (Owner::Route(index), GAP.to_owned());
        findings.push(Finding { kind: Kind::NoEffect, owner, subject, what, help });
    }
    findings
}
