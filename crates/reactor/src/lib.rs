//! Sockets, polling, buffers, timers, mailboxes: one completion-shaped interface, two drivers.
//! In: operations of `interface::Reactor`. Out: `interface::Completion`s.
//! Never: knows a protocol. The only crate with `unsafe`.
//! Limits: see `tidegate_base::limits`.

pub mod interface;

pub use interface::{
    CloseReason, Completion, Handler, ListenError, ListenOptions, ListenerId, Peer, Reactor,
    Shortage, Sock, SockId,
};
