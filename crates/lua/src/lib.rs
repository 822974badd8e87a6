//! Lua applications: VMs, their budgets, their sandbox and their API.
//! In: scripts, requests, time. Out: effects such as responses and lines of the log, which the worker carries out.
//! Never: opens a socket or a file, starts a thread; asks which protocol a client speaks. Only budgets use a clock
//! (`engine/guard.rs`); in the simulator, budgets count instructions instead.
//! Limits: `Bounds`, and those in the headers of the modules.
//! Invariant: a script never ends the process, never runs longer than its budget, and never reads memory that was freed.
//! `unsafe` is in `engine/` only, because LuaJIT's interface is a C library.
#![deny(unsafe_code)]

mod balance;
mod body;
mod clients;
mod console;
mod datagrams;
mod digest;
mod encoding;
#[allow(unsafe_code)]
mod engine;
mod events;
mod exchange;
mod files;
mod frames;
pub mod fuzz;
mod hellos;
mod host;
mod operations;
mod outgoing;
mod pattern;
mod queue;
mod regex;
mod reply;
mod schedule;
mod server_websocket;
mod shared;
mod sockets;
mod succession;
mod vm;
mod waiting;

pub use balance::BalanceParts;
pub use datagrams::{DatagramSocket, DatagramSocketId};
pub use engine::{Budget, Excess, Failure};
pub use events::{HubEvent, HubEventId, HubEventParts};
pub use exchange::{ClientName, Origin, Rewritten, fields_of};
pub use frames::{FrameDecision, FrameKind, Tunnel, TunnelId};
pub use hellos::{TlsHello, TlsHelloId, TlsHelloParts};
pub use host::{
    ClientId, EXCHANGES_MAX, Effect, Facts, FindModule, Layer, Level, OUTPUT_BYTES_MAX, Outbox,
    Permissions, Randomness, RemoteClient, ScriptRequestId,
};
pub use operations::OperationId;
pub use outgoing::{Outgoing, Response};
pub use queue::Queue;
pub use reply::ReplyHead;
pub use shared::{Dictionary, ENTRY_BYTES_MAX, EntryCursor};
pub use sockets::{Socket, SocketId};
pub use vm::{Bounds, CallbackEnd, CallbackOwner, Handler, Resumed, Script, TEST, Vm};
