//! The DNS servers that Lua applications ask (`tide.dns`).
//! In: `name-servers` of the configuration, or else /etc/resolv.conf. Out: addresses.
//! Never: read while a worker serves: a snapshot holds the addresses, as they are at the start and at each reload.
//! Limits: `SERVERS_MAX` addresses, `FILE_BYTES_MAX` bytes of the file.

use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;

use tidegate_config::model::Config;

use crate::files;

const FILE: &str = "/etc/resolv.conf";
const FILE_BYTES_MAX: u64 = 64 * 1024;
/// As many as the resolver of the system uses (resolv.conf(5)).
const SERVERS_MAX: usize = 3;
const DNS_PORT: u16 = 53;

/// The servers of a configuration. Empty if no application could ask them.
pub(crate) fn of(config: &Config) -> Vec<SocketAddr> {
    if config.lua.is_empty() || !config.server.name_servers.is_empty() {
        return config.server.name_servers.clone();
    }
    let text = files::read(Path::new(FILE), FILE_BYTES_MAX).unwrap_or_default();
    in_file(&String::from_utf8_lossy(&text))
}

/// The servers that a file names; this host if it names none (resolv.conf(5)).
fn in_file(text: &str) -> Vec<SocketAddr> {
    let address = |line: &str| {
        let mut words = line.split_ascii_whitespace();
        let is_server = words.next() == Some("nameserver");
        words.next().filter(|_| is_server)?.parse::<IpAddr>().ok()
    };
    let mut servers: Vec<SocketAddr> = text
        .lines()
        .filter_map(address)
        .take(SERVERS_MAX)
        .map(|address| SocketAddr::new(address, DNS_PORT))
        .collect();
    if servers.is_empty() {
        servers.push(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), DNS_PORT));
    }
    servers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_of_a_file_are_found() {
        let texts = |text| in_file(text).iter().map(ToString::to_string).collect::<Vec<_>>();
        let text = "# a comment\nsearch example\nnameserver 10.0.0.2\n nameserver\t2001:db8::2 # second\n\
                    nameserver nobody\nnameserver\n;nameserver 10.0.0.9\nnameserver 10.0.0.3\nnameserver 10.0.0.4\n";
        assert_eq!(texts(text), ["10.0.0.2:53", "[2001:db8::2]:53", "10.0.0.3:53"]);
        assert_eq!(texts(""), ["127.0.0.1:53"]);
    }
}
