//! HTTP/2 for both roles (RFC 9113, RFC 7541, RFC 8441, RFC 9218): a connection with its streams.
//! In: received bytes, heads and data to send, the time. Out: `Event`s that borrow from the input, encoded
//! frames, or a `Fault`.
//! Never: guesses about the length of a message, copies the data of a body that it receives, or keeps memory
//! for an idle connection that has a use elsewhere.
//! Limits: `bounds`, `flood`, `Config`.
//! Invariant: how the input is split into pieces changes neither the messages nor the fault.

pub mod bounds;
mod connection;
mod dispatch;
mod fault;
pub mod flood;
mod flow;
pub mod frame;
pub(crate) mod fuzz;
mod head;
pub mod hpack;
mod latest;
mod priority;
mod queue;
mod reader;
mod receive;
mod repeat;
mod send;
mod settings;
mod stream;
mod table;
mod writer;

pub use connection::{Config, Connection, Role};
pub use fault::{Blame, ErrorCode, Fault, FaultKind, Scope};
pub use frame::PREFACE;
pub use head::{Request, Scratch};
pub use priority::Priority;
pub use receive::{Event, ResetCause};
pub use repeat::RepeatedHead;
pub use send::{OpenFault, RequestLine};
pub use settings::Settings;
pub use stream::StreamState;
pub use writer::FieldWriter;
