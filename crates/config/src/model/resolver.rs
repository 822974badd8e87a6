//! How the names of pools' servers are resolved.
//! In: the reader of `[resolver]`. Out: plain data.

use core::net::SocketAddr;

use tidegate_base::Span;

/// `[resolver]`: names are resolved by queries to DNS servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolver {
    /// The DNS servers; empty: those of the system.
    pub name_servers: Vec<SocketAddr>,
    /// How long a server may take for an answer.
    pub timeout: Span,
    /// How often each server is asked before a lookup fails.
    pub attempts: u32,
    /// The kinds of addresses that are asked for.
    pub families: Families,
    /// The shortest time after which a name is resolved again.
    pub ttl_min: Span,
    /// The longest time after which a name is resolved again.
    pub ttl_max: Span,
    /// The largest answer over UDP, in bytes.
    pub udp_payload: u16,
    /// How long addresses stay in use after a lookup that does not confirm them.
    pub hold: Hold,
}

impl Default for Resolver {
    fn default() -> Self {
        Self {
            name_servers: Vec::new(),
            timeout: Span::from_secs(1),
            attempts: 2,
            families: Families::Both,
            ttl_min: Span::from_secs(1),
            ttl_max: Span::from_secs(300),
            udp_payload: 1232,
            hold: Hold::default(),
        }
    }
}

/// `hold` of `[resolver]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hold {
    /// After a valid answer without the address.
    pub valid: Span,
    /// While the name does not exist, or has no records.
    pub nx: Span,
    /// While no server answers in time.
    pub timeout: Span,
    /// While servers answer with errors.
    pub other: Span,
}

impl Default for Hold {
    fn default() -> Self {
        Self {
            valid: Span::ZERO,
            nx: Span::from_secs(30),
            timeout: Span::from_secs(3600),
            other: Span::from_secs(3600),
        }
    }
}

/// `families` of `[resolver]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Families {
    /// IPv4 addresses, then IPv6 addresses.
    Both,
    /// IPv4 addresses.
    Ipv4,
    /// IPv6 addresses.
    Ipv6,
}
