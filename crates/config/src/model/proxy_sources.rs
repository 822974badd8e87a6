//! The proxies whose PROXY headers a listener trusts.
//! In: the reader of listeners. Out: plain data.

use core::net::IpAddr;

use super::Network;

/// `proxy-protocol` of a listener: the proxies whose connections begin with a PROXY header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProxySources {
    /// Addresses of the proxies; empty on a unix socket.
    pub networks: Vec<Network>,
    /// Whether every connection to the unix socket begins with a header; false on an IP listener.
    pub unix: bool,
}

impl ProxySources {
    /// Whether a connection from `address` (`None`: over a unix socket) begins with a header.
    #[must_use]
    pub fn contains(&self, address: Option<IpAddr>) -> bool {
        match address {
            Some(address) => self.networks.iter().any(|network| network.contains(address)),
            None => self.unix,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proxies_are_recognized_by_address_or_unix_socket() {
        let network = Network { address: "10.0.0.0".parse().unwrap(), prefix_bits: 8 };
        let by_address = ProxySources { networks: vec![network], unix: false };
        assert!(by_address.contains(Some("10.9.9.9".parse().unwrap())));
        assert!(
            !by_address.contains(Some("11.0.0.1".parse().unwrap())) && !by_address.contains(None)
        );
        let by_path = ProxySources { networks: Vec::new(), unix: true };
        assert!(by_path.contains(None) && !by_path.contains(Some("10.0.0.1".parse().unwrap())));
    }
}
