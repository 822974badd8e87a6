//! TLS as a layer: whoever stands above it sees a reactor with plain bytes, whoever stands below sees records.
//! In: completions of a reactor, operations of its user. Out: the same on the other side; events to count.
//! Never: knows what the plain bytes mean, or who uses it: the server's workers do, and load generators.
//! Limits: `layer::HANDSHAKES_PER_TURN_MAX`.
#![forbid(unsafe_code)]

mod layer;
mod roots;
mod user;

pub use layer::{ListenerPlan, PoolPlan, SecureView, ServerPlan, TlsLayer, TlsPlan, profile};
pub use roots::system_roots;
pub use user::{Event, Ledger, Refused, User};
