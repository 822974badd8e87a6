//! The address of a listener or a server, as plain data.
//! In: text or numbers. Out: an `Address`. Never: resolves a name.

use core::fmt;
use core::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

/// The resolved address of a stream socket.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Address {
    /// An IP address and a port.
    Tcp(SocketAddr),
    /// A path in the file system, at most 107 bytes long (`sun_path`).
    Unix(String),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => write!(f, "{address}"),
            Self::Unix(path) => write!(f, "unix:{path}"),
        }
    }
}

/// The addresses of `localhost` and the names below it, which mean this host even if nothing resolves them
/// (RFC 6761 section 6.3), as on a machine without `/etc/hosts`. `None` for other names.
#[must_use]
pub fn loopback_addresses(name: &str, port: u16) -> Option<[SocketAddr; 2]> {
    let name = name.strip_suffix('.').unwrap_or(name);
    let last = name.rsplit('.').next()?;
    last.eq_ignore_ascii_case("localhost")
        .then(|| [(Ipv4Addr::LOCALHOST, port).into(), (Ipv6Addr::LOCALHOST, port).into()])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_localhost_and_names_below_it_mean_this_host() {
        for name in ["localhost", "LocalHost.", "app.localhost"] {
            let addresses = loopback_addresses(name, 80).expect(name);
            assert_eq!(addresses.map(|address| address.to_string()), ["127.0.0.1:80", "[::1]:80"]);
        }
        for name in ["", ".", "localhost.example", "notlocalhost", "127.0.0.1"] {
            assert_eq!(loopback_addresses(name, 80), None, "{name}");
        }
    }
}
