//! TLS as a layer between a reactor and its handler: the handler sees a reactor with plain bytes, the reactor
//! below sees TLS records.
//! In: completions of the reactor, operations of the handler. Out: the same on the other side; events.
//! Never: interprets the plain bytes, or depends on whether the handler is a worker of the server or a load generator.
//! Limits: `layer::HANDSHAKES_PER_TURN_MAX`.
#![forbid(unsafe_code)]

mod handler;
mod layer;
mod plan;
mod refusals;
mod roots;

pub use handler::{Event, Hello, LayerHandler, Refused, TlsObserver};
pub use layer::{SecureView, TlsLayer};
pub use plan::{ListenerPlan, PoolPlan, ServerPlan, TlsPlan};
pub use roots::system_roots;
pub use tidegate_reactor::ServerKey;
