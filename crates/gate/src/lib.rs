//! Decisions about requests: where they go, what we answer ourselves, how they are passed on.
//! In: decoded heads, configuration, time and random numbers as arguments. Out: values, and bytes
//! appended to the caller's buffer. Never: a socket, a clock, a file, the system's randomness.
//! Invariant: what a peer sent is re-emitted only in canonical form.
#![forbid(unsafe_code)]

pub mod balance;
pub mod forward;
pub mod hsts;
pub mod idle;
pub mod path;
pub mod queue;
pub mod respond;
pub mod retry;
pub mod router;
pub mod scheme;
pub mod synthetic;
mod table;
