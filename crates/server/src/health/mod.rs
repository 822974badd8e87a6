//! The health of servers: which of them take requests, by their checks, their agents and the commands of operators.
//!
//! ```text
//!   prober.rs (thread "health")          admin/command.rs (set server)
//!         | results of checks,                 | state, weight
//!         | replies of agents                  |
//!         v                                    v
//!   roster.rs: one entry for each server of the process, whose statuses are mailed to every worker
//!         v
//!   action/proxy/servers.rs -> gate::balance (which server takes a request)
//! ```
//!
//! In: the configuration in force, results, commands. Out: mail to the workers, log lines, views for the admin interface. Never:
//! connects on a worker; ends a request because its server went down.

mod checks;
mod kept;
mod prober;
mod roster;
mod target;
#[cfg(test)]
mod tests;
mod waiting;

pub(crate) use checks::Checks;
pub(crate) use roster::{Agent, Checked, Roster, View};
pub(crate) use tidegate_gate::health::ServerState;

use tidegate_config::arrange::Generation;
use tidegate_gate::balance::ServerStatus;

/// Names a server of the process. An index that was given to another server has another generation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct ServerId {
    /// Index of the pool.
    pub(crate) pool: u16,
    /// Index of the server in the pool.
    pub(crate) server: u16,
    /// The generation in which the server was added.
    pub(crate) since: Generation,
}

/// The states of servers that are sent to the workers, by pool and server.
pub(crate) type ServerStatuses = Vec<Vec<ServerStatus>>;
