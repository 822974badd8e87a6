//! The TLS settings of one worker, by listener and pool.
//! In: settings and certificates, already read. Out: the settings of new sessions.
//! Never: changes; a reload replaces the whole plan.

use tidegate_base::Span;
use tidegate_wire::tls::{Acceptor, Connector, TlsClock};

/// The TLS settings of one worker. Immutable and cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct TlsPlan {
    /// The settings by listener index; `None` for a listener without TLS.
    pub listeners: Vec<Option<ListenerPlan>>,
    /// The settings by pool index; `None` for a pool without TLS.
    pub pools: Vec<Option<PoolPlan>>,
    /// The clock by which certificates are verified.
    pub clock: TlsClock,
}

/// The TLS settings of one listener.
#[derive(Clone, Debug)]
pub struct ListenerPlan {
    /// Creates the sessions of accepted connections.
    pub acceptor: Acceptor,
    /// The longest time from accept to the end of the handshake.
    pub handshake_timeout: Span,
}

/// The TLS settings of one pool.
#[derive(Clone, Debug)]
pub struct PoolPlan {
    /// The pool's name, for the log.
    pub name: String,
    /// Creates the sessions with the pool's servers.
    pub connector: Connector,
    /// The settings by index of the server in the pool.
    pub servers: Vec<ServerPlan>,
}

/// The TLS settings of one server.
#[derive(Clone, Debug)]
pub struct ServerPlan {
    /// The name that is sent as SNI and that the certificate must match.
    pub name: String,
    /// The server's address, for the log.
    pub place: String,
}

impl TlsPlan {
    /// Whether no listener and no pool uses TLS.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.listeners.iter().all(Option::is_none) && self.pools.iter().all(Option::is_none)
    }
}
