//! The basic types that other crates use: addresses, choices of certificates, dates, counters, times of handlers, histograms,
//! limits, random numbers, ids (slab), statistics, time, timer wheel, names of TLS algorithms.
//! In: plain values. Out: plain values.
//! Never: uses a socket, a clock, a thread, a file or the operating system's randomness.
//! Limits: the module `limits` names every bound of the data path.
#![forbid(unsafe_code)]

pub mod address;
pub mod calendar;
pub mod certificate_choice;
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
pub use certificate_choice::CertificateChoice;
pub use prng::Prng;
pub use slab::{Id, Slab};
pub use time::{Moment, Span};
