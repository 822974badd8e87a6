//! TLS of the connections of subscribers.
//! In: established connections, received bytes, bytes to send. Out: plain bytes, sealed bytes.
//! Limits: `KEPT_BYTES_MAX` plain bytes of a connection that are not a whole head or frame yet.
//! Invariant: a connection has a session from its begin until its end, if the server's URL is secure.

use super::PushPlan;
use crate::tls::fault_in_words;
use std::collections::HashMap;
use tidegate_wire::tls::{Connector, Fault, TlsSession};

/// Begins sessions with the server.
pub(super) struct SubscriberTls {
    connector: Connector,
    /// The name that the server must have.
    name: String,
}

impl SubscriberTls {
    /// The tls of a plan; `None` if the server's URL is not secure.
    ///
    /// # Errors
    /// A message for the operator.
    pub(super) fn new(plan: &PushPlan) -> Result<Option<Self>, String> {
        if !plan.url.is_secure {
            return Ok(None);
        }
        let (connector, _) = plan.tls.connector(plan.connections.connections)?;
        Ok(Some(Self { connector, name: plan.tls.name_for(&plan.url)? }))
    }

    /// A session that has sent nothing.
    pub(super) fn begin(&self) -> Result<Box<TlsSession>, String> {
        self.connector.connect(&self.name).map(Box::new).map_err(fault_in_words)
    }
}

/// A session, and the plain bytes that are not handled yet.
struct Secured {
    session: Box<TlsSession>,
    plain: Vec<u8>,
}

/// The result of handling received bytes of a connection.
pub(super) struct Opened {
    /// The plain bytes that are not handled yet.
    pub(super) plain: Vec<u8>,
    /// The session can carry requests since these bytes.
    pub(super) is_established: bool,
    /// The server will send no more.
    pub(super) is_closed: bool,
}

/// The sessions of a thread, by the index of their subscriber.
#[derive(Default)]
pub(super) struct Sessions {
    sessions: HashMap<u32, Secured>,
    /// Scratch space for sealed bytes.
    sealed: Vec<u8>,
}

impl Sessions {
    /// Begins the session of a connection. Returns the bytes that must be sent.
    pub(super) fn begin(&mut self, index: u32, tls: &SubscriberTls) -> Result<&[u8], String> {
        let session = tls.begin()?;
        self.sessions.insert(index, Secured { session, plain: Vec::new() });
        let (_, sealed) = self.open(index, &mut [])?;
        Ok(sealed)
    }

    /// Opens received bytes. Also returns the bytes that must be sent.
    pub(super) fn open(&mut self, index: u32, bytes: &mut [u8]) -> Result<(Opened, &[u8]), String> {
        let Some(Secured { session, plain }) = self.sessions.get_mut(&index) else {
            return Err(fault_in_words(Fault::Bug));
        };
        self.sealed.clear();
        let mut plain = core::mem::take(plain);
        let progress = session.handle_bytes(bytes, &mut plain, &mut self.sealed);
        let progress = progress.map_err(fault_in_words)?;
        let (is_established, is_closed) = (progress.established, progress.peer_closed);
        Ok((Opened { plain, is_established, is_closed }, &self.sealed))
    }

    /// Keeps plain bytes that are no whole head or frame.
    pub(super) fn keep(&mut self, index: u32, rest: Vec<u8>) {
        if let Some(secured) = self.sessions.get_mut(&index) {
            secured.plain = rest;
        }
    }

    /// The encrypted form of these bytes; `None` if the connection has no session.
    pub(super) fn seal(&mut self, index: u32, bytes: &[u8]) -> Option<&[u8]> {
        let Secured { session, .. } = self.sessions.get_mut(&index)?;
        self.sealed.clear();
        // A session that has failed is seen by the next receive call.
        let _ = session.seal(bytes, &mut self.sealed);
        Some(&self.sealed)
    }

    /// The connection has ended.
    pub(super) fn forget(&mut self, index: u32) {
        self.sessions.remove(&index);
    }
}
