//! The DNS servers of the system, which Lua applications (`tide.dns`) and lookups of servers' names query.
//! In: `name-servers` of the configuration, or else /etc/resolv.conf. Out: addresses; the names that may be meant by a short one.
//! Never: reads the file on a worker: a snapshot holds the addresses for applications, read at start and at each reload.
//! Limits: `SERVERS_MAX` addresses, `SEARCHES_MAX` suffixes of names, `FILE_BYTES_MAX` bytes of the file.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::path::Path;

use rustix::net::{AddressFamily, SocketType, netdevice, socket};
use tidegate_config::model::Config;

use crate::{files, log};

const FILE: &str = "/etc/resolv.conf";
const FILE_BYTES_MAX: u64 = 64 * 1024;
/// As many as the resolver of the system uses (resolv.conf(5)).
const SERVERS_MAX: usize = 3;
const DNS_PORT: u16 = 53;
/// Suffixes of `search`.
const SEARCHES_MAX: usize = 6;
/// The most dots that `ndots` may demand (resolv.conf(5)).
const DOTS_MAX: usize = 15;

/// The servers of a configuration. Empty if no application could query them.
pub(crate) fn of(config: &Config) -> Vec<SocketAddr> {
    if !uses_file(config) {
        return config.server.name_servers.clone();
    }
    of_system().0
}

/// The servers of the system, and how it completes names.
pub(crate) fn of_system() -> (Vec<SocketAddr>, Searched) {
    let Named { mut servers, searched, .. } = Named::read();
    if servers.is_empty() {
        // resolv.conf(5)
        servers.push(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), DNS_PORT));
    }
    (servers, searched)
}

/// How names are completed (`search` and `ndots` of resolv.conf(5)).
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Searched {
    /// The suffixes, in the order of the file.
    suffixes: Vec<String>,
    /// A name with this many dots is first looked up as it is.
    dots: usize,
}

impl Default for Searched {
    fn default() -> Self {
        Self { suffixes: Vec::new(), dots: 1 }
    }
}

impl Searched {
    /// The names that `name` may mean, in the order in which they are looked up.
    pub(crate) fn candidates(&self, name: &str) -> Vec<String> {
        let mut found: Vec<String> =
            self.suffixes.iter().map(|suffix| format!("{name}.{suffix}")).collect();
        let is_first = name.matches('.').count() >= self.dots;
        found.insert(if is_first { 0 } else { found.len() }, name.to_owned());
        found
    }
}

/// Logs a warning if the file names servers, but none that can be queried.
pub(crate) fn warn_of_unusable(config: &Config) {
    if uses_file(config)
        && let Some(warning) = Named::read().warning()
    {
        log::warning(format_args!("{warning}"));
    }
}

/// Whether the servers are those of the file.
fn uses_file(config: &Config) -> bool {
    !config.lua.is_empty() && config.server.name_servers.is_empty()
}

/// The servers that a file names.
#[derive(Default)]
struct Named {
    servers: Vec<SocketAddr>,
    searched: Searched,
    /// Texts that are no addresses, or that name an interface which does not exist.
    unusable: Vec<String>,
}

impl Named {
    fn read() -> Self {
        let text = files::read(Path::new(FILE), FILE_BYTES_MAX).unwrap_or_default();
        Self::in_text(&String::from_utf8_lossy(&text), index_of_interface)
    }

    fn in_text(text: &str, index_of: impl Fn(&str) -> Option<u32>) -> Self {
        let mut named = Self::default();
        for line in text.lines() {
            let mut words = line.split_ascii_whitespace();
            let first = words.next();
            if let Some("search") = first {
                let suffixes = words.clone().take(SEARCHES_MAX);
                let suffixes = suffixes.map(|suffix| suffix.trim_end_matches('.').to_owned());
                // The last such line counts.
                named.searched.suffixes = suffixes.filter(|suffix| !suffix.is_empty()).collect();
            }
            if let Some("options") = first
                && let Some(dots) = words.clone().find_map(|word| word.strip_prefix("ndots:"))
            {
                named.searched.dots = dots.parse().map_or(1, |dots: usize| dots.min(DOTS_MAX));
            }
            let (Some("nameserver"), Some(word)) = (first, words.next()) else { continue };
            match server_at(word, &index_of) {
                Some(server) if named.servers.len() < SERVERS_MAX => named.servers.push(server),
                Some(_) => {}
                None => named.unusable.push(word.to_owned()),
            }
        }
        named
    }

    fn warning(&self) -> Option<String> {
        let is_lacking = self.servers.is_empty() && !self.unusable.is_empty();
        is_lacking.then(|| {
            format!(
                "{FILE} names no server that can be asked ({}), so Lua applications ask {}; help: set `name-servers` of [server]",
                self.unusable.join(", "),
                Ipv4Addr::LOCALHOST
            )
        })
    }
}

/// The server that a file names by its address, which may have a scope: the name or the index of an interface (RFC 4007).
fn server_at(text: &str, index_of: impl Fn(&str) -> Option<u32>) -> Option<SocketAddr> {
    if let Ok(address) = text.parse::<IpAddr>() {
        return Some(SocketAddr::new(address, DNS_PORT));
    }
    let (address, scope) = text.split_once('%')?;
    let address = address.parse::<Ipv6Addr>().ok()?;
    let scope = scope.parse().ok().or_else(|| index_of(scope))?;
    Some(SocketAddrV6::new(address, DNS_PORT, 0, scope).into())
}

fn index_of_interface(name: &str) -> Option<u32> {
    let any = socket(AddressFamily::INET6, SocketType::DGRAM, None)
        .or_else(|_| socket(AddressFamily::INET, SocketType::DGRAM, None));
    netdevice::name_to_index(any.ok()?, name).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(text: &str) -> Named {
        Named::in_text(text, |name| (name == "eth0").then_some(7))
    }

    #[test]
    fn servers_of_a_file_are_found() {
        let texts = |text| named(text).servers.iter().map(ToString::to_string).collect::<Vec<_>>();
        let text = "# a comment\nsearch example\nnameserver 10.0.0.2\n nameserver\t2001:db8::2 # second\n\
                    nameserver nobody\nnameserver\n;nameserver 10.0.0.9\nnameserver 10.0.0.3\nnameserver 10.0.0.4\n";
        assert_eq!(texts(text), ["10.0.0.2:53", "[2001:db8::2]:53", "10.0.0.3:53"]);
        assert!(texts("").is_empty());
    }

    #[test]
    fn short_names_are_completed_as_the_file_states() {
        let text = "search a.example\nsearch default.svc.cluster.local svc.cluster.local.\noptions rotate ndots:3\n";
        let searched = named(text).searched;
        assert_eq!(
            searched.candidates("web"),
            ["web.default.svc.cluster.local", "web.svc.cluster.local", "web"]
        );
        assert_eq!(searched.candidates("a.b.c.d")[0], "a.b.c.d");
        assert_eq!(searched.candidates("a.b.c")[2], "a.b.c");
        assert_eq!(named("").searched.candidates("web"), ["web"]);
        assert_eq!(Searched::default().candidates("app.example"), ["app.example"]);
    }

    #[test]
    fn scoped_addresses_are_read() {
        let scopes = |text| -> Vec<(String, u32)> {
            let of = |server: &SocketAddr| match server {
                SocketAddr::V6(v6) => (v6.ip().to_string(), v6.scope_id()),
                SocketAddr::V4(v4) => panic!("{v4}"),
            };
            named(text).servers.iter().map(of).collect()
        };
        let text = "nameserver fe80::1%eth0\nnameserver fe80::2%3\nnameserver fe80::3%eth9\nnameserver 10.0.0.2%eth0\n";
        assert_eq!(scopes(text), [("fe80::1".to_owned(), 7), ("fe80::2".to_owned(), 3)]);
        assert!(index_of_interface("lo").is_some_and(|index| index > 0));
        assert_eq!(index_of_interface("no-such-interface"), None);
    }

    #[test]
    fn file_without_a_usable_server_is_reported() {
        let warning = named("nameserver fe80::3%eth9\nnameserver nobody\n").warning();
        let warning = warning.expect("no server can be asked");
        assert!(warning.contains("(fe80::3%eth9, nobody)") && warning.contains("`name-servers`"));
        for text in ["", "search example\n", "nameserver nobody\nnameserver 10.0.0.2\n"] {
            assert_eq!(named(text).warning(), None, "{text}");
        }
    }
}
