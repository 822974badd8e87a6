//! TLS 1.2 and 1.3 for both roles behind a seam of our own: caller's bytes in, caller's buffers out.
//! In: received records, plain bytes to seal. Out: plain bytes, records to send, a `Fault`. RFC 8446, 5246.
//! Never: a clock (`TlsClock` is fed), a file (PEM comes as bytes), a cache that two workers share.
//! Limits: `HELD_BYTES_MAX` of a record or handshake message that came in part.
//! Invariant: a session between two records holds no buffer of its own.

mod acceptor;
mod certificate;
mod choice;
mod clock;
mod connector;
mod der;
mod fault;
pub(crate) mod fuzz;
mod hello;
mod identity;
mod randomness;
mod refusal;
mod session;
mod sessions;
mod setup;
mod tickets;

pub use acceptor::{Acceptor, AcceptorSettings, ClientAuth};
pub use certificate::CertificateFiles;
pub use choice::{CIPHER_NAMES, GROUP_NAMES, Version, openssl_cipher_name};
pub use clock::TlsClock;
pub use connector::{Connector, ConnectorSettings, Roots, ServerNameFault};
pub use fault::{CertificateFault, Fault};
pub use identity::{PeerIdentity, common_name_text};
pub use randomness::Randomness;
pub use session::{Ending, Facts, HELD_BYTES_MAX, Progress, TlsSession, sealed_bytes_max};
pub use setup::{SetupFault, SetupKind};
pub use tickets::{TICKET_KEY_BYTES, TicketKeys};

#[cfg(test)]
mod tests;
