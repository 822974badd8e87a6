//! The address of a listener or a server, as plain data.
//! In: text or numbers. Out: an `Address`. Never: resolves a name.

use core::fmt;
use core::net::SocketAddr;

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
