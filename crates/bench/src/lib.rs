//! The load generator: plan, client, report, and the comparison with other servers.
//! In: a command line. Out: figures, and how each was measured.
//! Never: imports `server`, `gate`, `push` or `lua`; reports, without a warning, a figure that was
//! limited by the client.
//! Limits: `plan::CONNECTIONS_MAX`, `plan::THREADS_MAX`, `plan::PIPELINE_MAX`.
#![forbid(unsafe_code)]

pub mod cli;
pub mod client;
pub mod compare;
pub mod drive;
mod fleet;
pub mod floor;
mod handshake;
pub mod histogram;
pub mod http;
mod input;
mod interrupt;
pub mod machine;
pub mod plan;
pub mod process;
pub mod push;
pub mod quantity;
pub mod report;
pub mod scratch;
mod socket;
pub mod tally;
pub mod target;
pub mod tls;
mod verdict;
pub mod ws;
