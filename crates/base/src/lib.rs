//! The basic types that every other crate uses: addresses, ids, limits, time, timer wheel, prng, slab,
//! counters, statistics, dates.
//! In: plain values. Out: plain values.
//! Never: uses a socket, a clock, a thread, a file or the operating system's randomness.
//! Limits: the module `limits` names every bound of the data path.
#![forbid(unsafe_code)]

pub mod address;
pub mod calendar;
pub mod counters;
pub mod handlers;
pub mod histogram;
pub mod limits;
pub mod prng;
pub mod published;
pub mod slab;
pub mod statistics;
pub mod time;
pub mod tls_names;
pub mod wheel;

pub use address::{Address, loopback_addresses};
pub use prng::Prng;
pub use slab::{Id, Slab};
pub use time::{Moment, Span};
