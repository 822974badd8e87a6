//! Warnings about requests that a route takes and for which the map of its pools has no key, once the files of maps are read.
//! In: the configuration. Out: findings.
//! Limits: `KEYS_MAX` keys of a route are looked up.
//! Invariant: a key is reported only if it follows from the route's own conditions, and no earlier route takes its requests.

use std::collections::BTreeMap;

use crate::choice::GAP;
use crate::findings::{Finding, Owner};
use crate::model::{
    Action, Config, HeaderTest, HostPattern, MapChoice, PathPattern, Placeholder, PoolChoice,
    Proxy, Route, Template, TemplatePiece, ValueMap,
};
use crate::report::Kind;
use crate::unreachable_routes::{COMPARED_ROUTES_MAX, covers};

/// How many keys of a route are looked up.
const KEYS_MAX: usize = 1024;

/// The values of one request that the key of a map depends on.
type Values<'r> = BTreeMap<&'r Placeholder, &'r str>;

/// A warning for each route with such requests.
pub(crate) fn gaps(config: &Config) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (index, route) in config.routes.iter().enumerate() {
        let Action::Proxy(Proxy { pool: PoolChoice::Map(choice), .. }) = &route.action else {
            continue;
        };
        let Some(map) = config.maps.get(choice.map).filter(|_| choice.default.is_none()) else {
            continue;
        };
        let what = match map.table.is_empty() {
            true => {
                format!("map {:?} has no entry, so every request gets a 404 response", map.name)
            }
            false => match absent(config, index, route, (choice, map)) {
                Some(what) => what,
                None => continue,
            },
        };
        let help = Some("add the key to the map, or add `default` to `pool`".to_owned());
        let (owner, subject) = (Owner::Route(index), GAP.to_owned());
        findings.push(Finding { kind: Kind::Missing, owner, subject, what, help });
    }
    findings
}

/// A message about the keys of the route that the map does not have.
fn absent(
    config: &Config,
    index: usize,
    route: &Route,
    (choice, map): (&MapChoice, &ValueMap),
) -> Option<String> {
    let earlier = config.routes.get(..index.min(COMPARED_ROUTES_MAX)).unwrap_or_default();
    let only_one = config.listeners.len() == 1;
    let is_reached = |values: &Values<'_>| {
        let narrow = narrowed(route, values);
        !earlier.iter().any(|early| covers(early, &narrow, only_one))
    };
    let requests = requests(route, &choice.key)?;
    let mut absent: Vec<String> = Vec::new();
    for values in requests {
        let Some(key) = key_of(&choice.key, &values) else { continue };
        let is_known = map.table.find(&mut key.clone().into_bytes()).is_some();
        if !is_known && !absent.contains(&key) && is_reached(&values) {
            absent.push(key);
        }
    }
    let is_host = choice.key.pieces == [TemplatePiece::Value(Placeholder::Host)];
    let (first, others) = absent.split_first()?;
    let name = &map.name;
    Some(match (is_host, others.len()) {
        (true, 0) => {
            format!("map {name:?} has no key for {first}, whose requests get a 404 response")
        }
        (true, more) => format!(
            "map {name:?} has no key for {first} and for {more} more of the route's hosts, whose requests get a 404 response"
        ),
        (false, 0) => {
            format!("map {name:?} has no key {first:?}, whose requests get a 404 response")
        }
        (false, more) => format!(
            "map {name:?} has no key {first:?}, and lacks {more} more that the conditions of the route allow; such requests \
             get a 404 response"
        ),
    })
}

/// The values of requests that the route's conditions name, of all placeholders of `key`; `None` if the conditions do not name
/// the values of one of them.
fn requests<'r>(route: &'r Route, key: &'r Template) -> Option<Vec<Values<'r>>> {
    let mut requests: Vec<Values<'r>> = vec![Values::new()];
    for placeholder in key.placeholders() {
        let named = named_values(route, placeholder);
        if named.is_empty() || requests.len().saturating_mul(named.len()) > KEYS_MAX {
            return None;
        }
        let with = |values: &Values<'r>, value: &'r str| {
            let mut values = values.clone();
            values.insert(placeholder, value);
            values
        };
        if !requests.iter().any(|values| values.contains_key(placeholder)) {
            let all =
                requests.iter().flat_map(|values| named.iter().map(|value| with(values, value)));
            requests = all.collect();
        }
    }
    Some(requests)
}

/// The values of a placeholder that the conditions of a route name. Requests with further values may meet the conditions.
fn named_values<'r>(route: &'r Route, placeholder: &Placeholder) -> Vec<&'r str> {
    let of_test = |test: &'r HeaderTest| match test {
        HeaderTest::Text(test) => test.only_value(),
        HeaderTest::Present | HeaderTest::Absent => None,
    };
    let conditions = &route.conditions;
    let of = |tests: &'r [crate::model::NamedTest], name: &str| {
        let own = tests.iter().filter(|test| test.name == *name);
        own.filter_map(|test| of_test(&test.test)).collect()
    };
    match placeholder {
        Placeholder::Host => {
            let exact = route.hosts.iter().filter_map(|host| match host {
                HostPattern::Exact(host) => Some(host.as_str()),
                HostPattern::Below(_) => None,
            });
            exact.collect()
        }
        Placeholder::Path => {
            let exact = route.paths.iter().filter_map(|path| match path {
                PathPattern::Exact(path) => Some(path.as_str()),
                PathPattern::Below(_) | PathPattern::Segments { .. } => None,
            });
            exact.collect()
        }
        Placeholder::Method => route.methods.iter().map(String::as_str).collect(),
        Placeholder::QueryValue(name) => of(&conditions.query, name),
        Placeholder::Cookie(name) => of(&conditions.cookies, name),
        Placeholder::Header(name) => {
            let own = route.headers.iter().filter(|header| header.name == *name);
            own.filter_map(|header| of_test(&header.test)).collect()
        }
        Placeholder::Client
        | Placeholder::Scheme
        | Placeholder::Rest
        | Placeholder::Query
        | Placeholder::Segment(_)
        | Placeholder::ServerName
        | Placeholder::AllowedOrigin
        | Placeholder::CredentialsIfAllowed
        | Placeholder::User
        | Placeholder::Claim(_)
        | Placeholder::RequestId => Vec::new(),
    }
}

/// The route with the conditions that requests with these values meet.
fn narrowed(route: &Route, values: &Values<'_>) -> Route {
    let mut narrow = route.clone();
    if let Some(host) = values.get(&Placeholder::Host) {
        narrow.hosts = vec![HostPattern::Exact((*host).to_owned())];
    }
    if let Some(path) = values.get(&Placeholder::Path) {
        narrow.paths = vec![PathPattern::Exact((*path).to_owned())];
    }
    if let Some(method) = values.get(&Placeholder::Method) {
        narrow.methods = vec![(*method).to_owned()];
    }
    narrow
}

/// The text that is looked up for requests with these values.
fn key_of(key: &Template, values: &Values<'_>) -> Option<String> {
    let piece = |piece: &TemplatePiece| match piece {
        TemplatePiece::Text(text) => Some(text.clone()),
        TemplatePiece::Value(placeholder) => Some((*values.get(placeholder)?).to_owned()),
    };
    key.pieces.iter().map(piece).collect()
}
