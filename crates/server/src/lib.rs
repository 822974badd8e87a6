//! The corridor that joins the rooms: worker, connection, flow. Read `flow.rs` first.
//! In: a checked configuration. Out: a serving process.
//! Never: decides what HTTP means (`wire`), where a request goes (`gate`) or how the kernel is asked (`reactor`).
//! Limits: `tidegate_base::limits`, and the configuration's own.
#![forbid(unsafe_code)]

mod buffers;
pub mod certificates;
mod client;
mod connection;
pub mod counters;
mod delivery;
mod dispatch;
mod downstream;
mod exchange;
mod flow;
pub mod fuzz;
mod neighbours;
mod produce;
mod reload;
mod room;
pub mod snapshot;
pub mod start;
mod tunnel;
mod upstream;
pub mod worker;

pub use snapshot::Snapshot;
pub use start::{RunOptions, StartError, run};
pub use worker::{Leftovers, Worker, WorkerLimits};
