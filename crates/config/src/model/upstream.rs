//! The servers of a pool.
//! In: the reader of `servers`. Out: plain data, and the text of each address.
//! Limits: `SLOTS_MAX` slots of a template.

use core::fmt;
use std::sync::Arc;

/// Slots of a template.
pub const SLOTS_MAX: u16 = 1000;

/// A server of a pool (upstream).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upstream {
    /// The address of the server.
    pub address: ServerAddress,
    /// Share of the requests relative to the other servers; 0 drains the server: it gets no new requests.
    pub weight: u16,
    /// Maximum number of connections of the process in use at once; `None`: unlimited.
    pub connections_max: Option<u32>,
    /// Whether the server gets requests only if no other one is available.
    pub backup: bool,
    /// Whether the process starts although the name of the server has no address yet (`at-start`).
    pub may_lack_address: bool,
}

impl Upstream {
    /// A server at this address, with the defaults.
    #[must_use]
    pub const fn at(address: ServerAddress) -> Self {
        Self { address, weight: 1, connections_max: None, backup: false, may_lack_address: false }
    }
}

/// The address of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerAddress {
    /// An IP address and a port.
    Ip(core::net::SocketAddr),
    /// A name, resolved at start, at each reload and again as its records expire, and a port.
    Name(String, u16),
    /// The path of a unix socket.
    Unix(String),
    /// One of the addresses of a name.
    Slot(Slot),
}

/// A slot of a template: it has one of the addresses of a name, or none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slot {
    /// The name.
    pub source: Arc<SlotSource>,
    /// The name of the slot without its number.
    pub prefix: Arc<str>,
    /// The number of the slot, from 1.
    pub number: u16,
}

/// The name that a template is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SlotSource {
    /// Its addresses, with this port.
    Name(String, u16),
    /// The hosts and ports of its SRV records.
    Srv(String),
}

/// The address as in the file; the name of a slot.
impl fmt::Display for ServerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(address) => address.fmt(f),
            Self::Name(name, port) => write!(f, "{name}:{port}"),
            Self::Unix(path) => write!(f, "unix:{path}"),
            Self::Slot(slot) => write!(f, "{}{}", slot.prefix, slot.number),
        }
    }
}

impl fmt::Display for SlotSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name, port) => write!(f, "{name}:{port}"),
            Self::Srv(name) => f.write_str(name),
        }
    }
}

impl SlotSource {
    /// The host that requests to the servers name: of SRV records, the domain of the service (RFC 2782).
    #[must_use]
    pub fn host(&self) -> String {
        match self {
            Self::Name(..) => self.to_string(),
            Self::Srv(name) => {
                let labels = name.split('.').skip_while(|label| label.starts_with('_'));
                labels.collect::<Vec<_>>().join(".")
            }
        }
    }
}
