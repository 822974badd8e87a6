//! The names of listeners, routes, pools and servers in logs and metrics.
//! In: a configuration. Out: a name for each index.
//! Invariant: two routes have different names, and so have two servers of a pool.

use tidegate_config::model::Config;
use tidegate_config::names::{distinct, route_names};

/// The names, by the indexes of the configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    /// The names of routes: the first host and the first path as in the file.
    routes: Vec<String>,
    /// The names of pools, each with the names of its servers.
    pools: Vec<(String, Vec<String>)>,
}

impl Names {
    /// The names of `config`.
    #[must_use]
    pub fn new(config: &Config) -> Self {
        let routes = route_names(config);
        let pools = config.pools.iter().map(|pool| {
            let servers = pool.servers.iter().map(|server| server.address.to_string());
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
