//! TLS 1.2 and 1.3 for clients and servers, behind Tidegate's own interface, which takes bytes and appends its
//! output to the caller's buffers.
//! In: received records, plain bytes to seal. Out: plain bytes, records to send, a `Fault`. RFC 8446, 5246.
//! Never: reads a clock (workers set `TlsClock`) or a file (PEM is passed as bytes); shares a session cache
//! between workers.
//! Limits: `HELD_BYTES_MAX` for incomplete records and handshake messages.
//! Invariant: between two records, a session owns no buffer.

mod acceptor;
mod certificate;
mod chain;
mod choice;
mod clock;
mod connector;
mod der;
mod fault;
mod forward;
pub(crate) mod fuzz;
mod hello;
mod identity;
mod names;
mod peek;
mod randomness;
mod records;
mod refusal;
mod revocation;
mod session;
mod sessions;
mod setup;
mod tickets;

pub use acceptor::{Acceptor, AcceptorSettings, ClientAuth};
pub use certificate::{CertificateFacts, CertificateFiles};
pub use choice::{CIPHER_NAMES, GROUP_NAMES, Version, openssl_cipher_name};
pub use clock::TlsClock;
pub use connector::{Connector, ConnectorSettings, Roots, ServerNameFault};
pub use fault::{CertificateFault, Fault};
pub use identity::{PeerIdentity, common_name_text};
pub use peek::{HelloPeek, PEEK_BYTES_MAX, Peeked};
pub use randomness::Randomness;
pub use session::{Ending, Facts, HELD_BYTES_MAX, Progress, TlsSession, sealed_bytes_max};
pub use setup::{SetupFault, SetupKind};
pub use tickets::{TICKET_KEY_BYTES, TicketKeys};

#[cfg(test)]
mod tests;
