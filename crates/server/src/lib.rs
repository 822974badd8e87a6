//! The server: workers, connections and exchanges; start, reload and stop. Read `flow.rs` first.
//! In: a validated configuration. Out: a serving process.
//! Never: interprets HTTP (`wire`), decides where a request goes (`gate`) or makes system calls for
//! connections (`reactor`).
//! Limits: `tidegate_base::limits`, and the limits of the configuration.
#![forbid(unsafe_code)]

mod buffers;
pub mod certificates;
mod client;
mod connection;
pub mod counters;
mod delivery;
mod dispatch;
mod downstream;
mod eviction;
mod exchange;
mod flow;
pub mod fuzz;
mod listening_sockets;
mod log;
pub mod names;
pub mod permits;
pub mod ports;
mod reload;
mod reuse;
mod shortage;
pub mod snapshot;
pub mod start;
mod synthetic;
mod threads;
mod tunnel;
mod upstream;
pub mod worker;

pub use snapshot::Snapshot;
pub use start::{RunOptions, StartError, run};
pub use worker::{Leftovers, Worker, WorkerLimits};
