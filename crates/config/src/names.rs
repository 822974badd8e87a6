//! The names of routes in commands, logs and metrics.
//! In: a configuration. Out: a name for each route.
//! Invariant: two routes have different names.

use std::collections::BTreeSet;

use crate::model::{Config, HostPattern, PathPattern, Route, Segment};

/// The names of all routes: the first host and the first path as in the file, and "#2", "#3" and so on if these are those of
/// an earlier route.
#[must_use]
pub fn route_names(config: &Config) -> Vec<String> {
    distinct(config.routes.iter().map(route_name))
}

/// Appends "#2", "#3" and so on to names that occurred before.
#[must_use]
pub fn distinct(names: impl Iterator<Item = String>) -> Vec<String> {
    let mut taken = BTreeSet::new();
    names.map(|name| unused(name, |candidate| taken.insert(candidate.to_owned()))).collect()
}

/// The name, with "#2", "#3" and so on until `is_unused` accepts it.
pub(crate) fn unused(name: String, mut is_unused: impl FnMut(&str) -> bool) -> String {
    let mut candidate = name.clone();
    let mut count = 1;
    while !is_unused(&candidate) {
        count += 1;
        candidate = format!("{name}#{count}");
    }
    candidate
}

/// The first host and the first path of a route, "*" if it has no such conditions.
pub(crate) fn route_name(route: &Route) -> String {
    let host = match route.hosts.first() {
        Some(HostPattern::Exact(host)) => host.clone(),
        Some(HostPattern::Below(suffix)) => format!("*{suffix}"),
        None => String::new(),
    };
    let path = route.paths.first().map_or_else(String::new, path_name);
    match (host.as_str(), path.as_str()) {
        ("", "") => "*".to_owned(),
        _ => host + &path,
    }
}

fn path_name(path: &PathPattern) -> String {
    match path {
        PathPattern::Exact(path) => path.clone(),
        PathPattern::Below(prefix) => format!("{prefix}*"),
        PathPattern::Segments { segments, open_end } => {
            let mut name = String::new();
            for segment in segments {
                match segment {
                    Segment::Literal(text) => name.push_str(&format!("/{text}")),
                    Segment::Any(parameter) => name.push_str(&format!("/{{{parameter}}}")),
                }
            }
            name + if *open_end { "/*" } else { "" }
        }
    }
}
