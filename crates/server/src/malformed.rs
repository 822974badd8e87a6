//! The last malformed messages of clients and of servers, kept for operators who look for the reason.
//! In: the bytes of a message that was rejected. Out: copies of their beginning.
//! Never: does anything for a message that is not rejected, or unless there is an admin interface.
//! Limits: `KEPT_MAX` messages of clients and as many of servers, each with up to `BYTES_MAX` bytes around the fault.

use std::collections::VecDeque;
use std::sync::Arc;

use tidegate_reactor::{Peer, Reactor, SockId};
use tidegate_wire::message::FaultKind;

use crate::sessions::ConnectionId;
use crate::worker::Worker;

/// The messages of each side that a worker keeps.
pub(crate) const KEPT_MAX: usize = 16;
/// The bytes of a message that are kept.
pub(crate) const BYTES_MAX: usize = 2048;

/// A message that was rejected.
#[derive(Debug)]
pub struct Malformed {
    /// When it was rejected, in milliseconds since 1970.
    pub unix_millis: u64,
    /// The connection.
    pub connection: ConnectionId,
    /// The sender.
    pub sender: MessageSender,
    /// What is wrong.
    pub reason: &'static str,
    /// The bytes; not those before `skipped`, or after the limit.
    pub bytes: Box<[u8]>,
    /// How many bytes precede `bytes`.
    pub skipped: usize,
    /// How many bytes the message had so far.
    pub total: usize,
    /// The place of the fault.
    pub place: FaultPlace,
}

/// The place of the fault in a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FaultPlace {
    /// In a head, with this fault.
    Head(FaultKind),
    /// At this offset.
    At(usize),
    /// Not at a single byte that is known.
    Unknown,
}

/// The sender of a message.
#[derive(Debug)]
pub enum MessageSender {
    /// A client of this listener.
    Client {
        /// The address.
        peer: Peer,
        /// The name of the listener.
        listener: String,
    },
    /// A server.
    Server {
        /// The name of the pool.
        pool: String,
        /// The name of the server.
        server: String,
    },
}

/// The messages that a worker keeps; the oldest first.
#[derive(Default)]
pub(crate) struct MalformedMessages {
    of_clients: VecDeque<Arc<Malformed>>,
    of_servers: VecDeque<Arc<Malformed>>,
}

impl MalformedMessages {
    /// All messages.
    pub(crate) fn all(&self) -> Vec<Arc<Malformed>> {
        self.of_clients.iter().chain(&self.of_servers).cloned().collect()
    }

    fn keep(&mut self, message: Malformed) {
        let side = match message.sender {
            MessageSender::Client { .. } => &mut self.of_clients,
            MessageSender::Server { .. } => &mut self.of_servers,
        };
        if side.len() >= KEPT_MAX {
            side.pop_front();
        }
        side.push_back(Arc::new(message));
    }
}

impl Worker {
    /// Keeps a message that is rejected now, before its connection is closed. `bytes`: the known properties of the message.
    #[cold]
    pub(crate) fn keep_malformed<R: Reactor>(
        &mut self,
        reactor: &R,
        sock: SockId,
        (reason, place): (&'static str, FaultPlace),
        bytes: &[u8],
    ) {
        if !self.recorder.counts() {
            return;
        }
        let sender = match self.conns.in_slot(sock.index as usize) {
            Some((found, side)) if found == sock => self.sender_of(side),
            Some(_) | None => return,
        };
        // A fault far from the beginning is shown with the bytes that precede it.
        let skipped = match place {
            FaultPlace::At(at) => at.saturating_sub(BYTES_MAX / 2).min(bytes.len()),
            FaultPlace::Head(_) | FaultPlace::Unknown => 0,
        };
        let kept = &bytes[skipped..];
        self.malformed.keep(Malformed {
            unix_millis: reactor.unix_millis(),
            connection: ConnectionId { worker: self.place_among_workers().0, sock, stream: None },
            sender,
            reason,
            bytes: kept[..kept.len().min(BYTES_MAX)].into(),
            skipped,
            total: bytes.len(),
            place,
        });
    }

    fn sender_of(&self, side: crate::connection::Side<'_>) -> MessageSender {
        use crate::connection::Side;
        match side {
            Side::Client(down) => {
                let settings = self.settings.of(down.era());
                let listener = settings.config.listeners.get(usize::from(down.listener));
                let listener = listener.map_or_else(String::new, |listener| listener.name.clone());
                MessageSender::Client { peer: down.peer(), listener }
            }
            Side::Server(up) => {
                let names = &self.settings.newest().names;
                let (pool, server) = names.server(up.pool.into(), up.server.into());
                MessageSender::Server { pool: pool.to_owned(), server: server.to_owned() }
            }
        }
    }
}
