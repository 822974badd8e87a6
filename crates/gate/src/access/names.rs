//! The names of listeners, routes, pools and servers in logs and metrics.
//! In: a configuration. Out: a text for each index.
//! Invariant: two routes have different names, and so have two servers of a pool.

use std::collections::BTreeSet;

use tidegate_config::model::{Config, HostPattern, PathPattern, Route, Segment, ServerAddress};

/// The names, by the indexes of the configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    /// Of routes: the first host and the first path as in the file.
    routes: Vec<String>,
    /// Of pools and their servers.
    pools: Vec<(String, Vec<String>)>,
}

impl Names {
    /// The names of `config`.
    #[must_use]
    pub fn new(config: &Config) -> Self {
        let routes = distinct(config.routes.iter().map(route_name));
        let pools = config.pools.iter().map(|pool| {
            let servers = pool.servers.iter().map(|server| server_name(&server.address));
            (pool.name.clone(), distinct(servers))
        });
        Self { routes, pools: pools.collect() }
    }

    /// The name of a route.
    #[must_use]
    pub fn route(&self, index: usize) -> &str {
        self.routes.get(index).map_or("", String::as_str)
    }

    /// The names of a pool and one of its servers.
    #[must_use]
    pub fn server(&self, pool: usize, server: usize) -> (&str, &str) {
        let Some((name, servers)) = self.pools.get(pool) else { return ("", "") };
        (name, servers.get(server).map_or("", String::as_str))
    }

    /// The indexes of the pool and the server with these names.
    #[must_use]
    pub fn find_server(&self, pool: &str, server: &str) -> Option<(usize, usize)> {
        let index = self.pools.iter().position(|(name, _)| name == pool)?;
        let (_, servers) = self.pools.get(index)?;
        Some((index, servers.iter().position(|name| name == server)?))
    }
}

/// The first host and the first path of a route, "*" if it has no such conditions.
fn route_name(route: &Route) -> String {
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

/// The address of a server as in the file.
fn server_name(address: &ServerAddress) -> String {
    match address {
        ServerAddress::Ip(address) => address.to_string(),
        ServerAddress::Name(name, port) => format!("{name}:{port}"),
        ServerAddress::Unix(path) => format!("unix:{path}"),
    }
}

/// Appends "#2", "#3" and so on to names that occurred before.
fn distinct(names: impl Iterator<Item = String>) -> Vec<String> {
    let mut taken = BTreeSet::new();
    let mut all = Vec::new();
    for name in names {
        let mut candidate = name.clone();
        let mut count = 1;
        while !taken.insert(candidate.clone()) {
            count += 1;
            candidate = format!("{name}#{count}");
        }
        all.push(candidate);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_as_in_the_file_and_distinct() {
        let text = "[[listener]]\nbind = \"127.0.0.1:0\"\n\
            [[route]]\nhost = \"*.a.example\"\npath = \"/api/*\"\nproxy = \"p\"\n\
            [[route]]\npath = \"/u/{id}/x\"\nproxy = \"p\"\n\
            [[route]]\npath = \"/x\"\nmethod = [\"GET\"]\nproxy = \"p\"\n\
            [[route]]\npath = \"/x\"\nproxy = \"p\"\n\
            [[route]]\nproxy = \"p\"\n\
            [pool.p]\nservers = [\"10.0.0.1:1\", \"[::1]:2\", \"unix:/s\", \"name:3\"]\n";
        let config = match tidegate_config::parse(text, "the test") {
            Ok(config) => config,
            Err(errors) => panic!("{errors}"),
        };
        let names = Names::new(&config);
        let routes: Vec<&str> = (0..5).map(|at| names.route(at)).collect();
        assert_eq!(routes, ["*.a.example/api/*", "/u/{id}/x", "/x", "/x#2", "*"]);
        let servers: Vec<(&str, &str)> = (0..4).map(|at| names.server(0, at)).collect();
        let expected = ["10.0.0.1:1", "[::1]:2", "unix:/s", "name:3"].map(|name| ("p", name));
        assert_eq!(servers, expected);
        assert_eq!((names.route(9), names.server(9, 0)), ("", ("", "")));
    }
}
