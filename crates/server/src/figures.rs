//! The figures of a worker about its pools, push hubs and Lua applications, for the admin interface.
//! In: the state of the worker. Out: copies of its counts.
//! Never: counts channels, subscribers or clients one by one: their owners keep the counts.

pub use tidegate_push::hub::HubFigures;

use crate::worker::{Worker, WorkerPool};

/// A worker's figures of one pool.
#[derive(Clone, Default, Debug)]
pub struct PoolFigures {
    /// Requests that wait for a server.
    pub queued: u64,
    /// Requests that have begun and not ended.
    pub requests: u64,
    /// The figures of each server.
    pub servers: Vec<ServerFigures>,
}

/// A worker's figures of one server.
#[derive(Clone, Copy, Default, Debug)]
pub struct ServerFigures {
    /// Requests in progress at the server.
    pub requests: u64,
    /// Idle connections that any client may use.
    pub idle: u64,
    /// Idle connections that are kept for one client each.
    pub kept: u64,
    /// Connections of HTTP/2.
    pub shared: u64,
    /// Whether the worker sends requests to the server.
    pub is_up: bool,
}

/// A worker's figures of one Lua application, or of a VM of its earlier code.
#[derive(Clone, Default, Debug)]
pub struct AppFigures {
    /// The name of the application.
    pub name: String,
    /// The VM runs earlier code.
    pub is_earlier: bool,
    /// The application has a VM.
    pub runs: bool,
    /// Bytes that the VM uses.
    pub used_bytes: u64,
    /// Bytes that the VM may use.
    pub bytes_max: u64,
    /// WebSocket clients.
    pub clients: u64,
    /// Requests that expect a response.
    pub requests: u64,
    /// Handlers that wait.
    pub waiting: u64,
    /// Timers and threads.
    pub timers: u64,
    /// Callbacks that failed.
    pub failures: u64,
    /// VMs that were discarded.
    pub restarts: u64,
}

impl Worker {
    /// The figures of each pool of the newest settings.
    pub(crate) fn pool_figures(&self) -> Vec<PoolFigures> {
        let of_pool = |pool: &WorkerPool| PoolFigures {
            queued: pool.queue.len() as u64,
            requests: pool.exchanges.into(),
            servers: (0..pool.state.len())
                .map(|server| ServerFigures {
                    requests: pool.state.in_use(server).into(),
                    idle: pool.idle.count(server) as u64,
                    kept: pool.kept.get(server).map_or(0, |kept| u64::from(*kept)),
                    shared: pool.shared.connection_count(server) as u64,
                    is_up: pool.state.is_up(server),
                })
                .collect(),
        };
        self.pools.iter().map(of_pool).collect()
    }
}
