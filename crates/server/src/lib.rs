//! The server: workers, connections and exchanges; start, reload and stop. Read `flow.rs` first.
//! In: a validated configuration. Out: a serving process.
//! Never: interprets HTTP (`wire`), decides where a request goes (`gate`) or makes system calls for
//! connections (`reactor`).
//! Limits: `tidegate_base::limits`, and the limits of the configuration.
#![forbid(unsafe_code)]

pub mod access_log;
mod action;
mod addresses;
mod admin;
pub mod admin_client;
mod answer;
pub mod apply_settings;
pub mod apps;
mod batches;
mod broadcasts;
mod buffers;
mod captured;
mod carrier;
pub mod certificates;
mod client;
mod client_places;
mod cold_client;
mod cold_thread;
mod configuration;
mod connection;
pub mod counters;
mod counting;
mod cpus;
mod datagrams;
mod delivery;
mod descriptor_budget;
mod dictionary_files;
pub mod drain;
mod events;
mod eviction;
pub mod explain;
pub mod figures;
mod file_reader;
pub mod files;

mod checked_slab;
mod flow;
pub mod fuzz;
mod handover;
mod health;
mod inheritance;
pub mod inspection;
mod invariants;
mod key_client;
mod key_fetcher;
mod known_names;
mod listening_sockets;
mod live_edits;
mod log;
pub mod lua_tests;
pub mod malformed;
mod memory_watch;
mod name_client;
mod name_follower;
mod name_servers;
mod outlets;
mod paces;
mod password_queue;
mod passwords;
pub mod paths;
pub mod permits;
pub mod ports;
mod predecessor;
mod randomness;
mod record;
mod reload;
mod repeats;
mod requester;
pub mod resolve;
mod responder;
mod retired;
mod route_marks;
mod script_check;
mod scripts;
mod state_transfer;

mod sampling;
mod secured;
pub mod sessions;
mod settings;
pub mod slots;
pub mod snapshot;
pub mod span_export;
mod staged_certificates;
pub mod start;
mod start_error;
pub mod stats;
mod stop;
mod stuck;
mod successor;

mod service_manager;
mod syslog;
mod syslog_stream;
mod threads;
mod timers;
pub mod tokens;

mod turn_share;
mod unix_listeners;
pub mod worker;
mod worker_thread;

pub use action::lua::mail::LuaPost;
pub use action::push::{Key, PUSH_MAILS_MAX, PushMail, PushPost, no_bytes_in_flight};
pub use configuration::ConfigSource;
pub use snapshot::Snapshot;
pub use start::{RunOptions, StartError, hold_reloads, run, run_from};
pub use tidegate_gate::inventory::Inventory;
pub use worker::{Leftovers, Worker, WorkerLimits};
