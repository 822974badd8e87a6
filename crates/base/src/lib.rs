//! The toolbox every other crate stands on: ids, limits, time, wheel, prng, slab, counters.
//! In: plain values. Out: plain values.
//! Never: a socket, a clock, a thread, a file, the operating system's randomness.
//! Limits: `limits` names every bound of the data path.
#![forbid(unsafe_code)]

pub mod address;
pub mod counters;
pub mod handlers;
pub mod limits;
pub mod prng;
pub mod slab;
pub mod time;
pub mod wheel;

pub use address::Address;
pub use prng::Prng;
pub use slab::{Id, Slab};
pub use time::{Moment, Span};
