//! Sockets for datagrams, each connected to one peer.
//! In: orders of the handler, edges. Out: completions.
//! Never: keeps a datagram that the kernel does not take: the handler is notified at once.
//! Limits: `DATAGRAM_SOCKETS_MAX` of a reactor; `DATAGRAMS_PER_TURN_MAX` that one socket hands over in a turn.
//! Invariant: a socket that may have more to receive, without an edge to come, is in `queue`, and the next turn does not wait.
//!
//! These sockets are not connections, so they have a separate table: the slots of connections stay small, and the path of a
//! request has no branch for them.

use core::net::SocketAddr;
use std::collections::VecDeque;

use tidegate_base::{Id, Slab};

use super::{DATAGRAM_INDEX, Loop, accept};
use crate::interface::{CloseReason, Completion, DatagramId, DatagramSent, Handler, Shortage};
use crate::kernel::{Kernel, ReceivingDatagram};

/// Sockets for datagrams of one reactor.
const DATAGRAM_SOCKETS_MAX: usize = 65_536;
/// Datagrams that one socket hands over in one turn. Further ones wait for the next turn, so that a flood delays the other
/// sockets of the worker by no more than that.
pub(super) const DATAGRAMS_PER_TURN_MAX: usize = 64;

/// One socket.
struct DatagramSlot<H> {
    handle: H,
    /// It is in `DatagramSockets::queue`.
    is_queued: bool,
}

/// The sockets of a reactor.
pub(super) struct DatagramSockets<H> {
    slab: Slab<DatagramSlot<H>>,
    /// The sockets to serve in the next turn without an edge. Some may be stale.
    queue: VecDeque<DatagramId>,
}

impl<H> DatagramSockets<H> {
    pub(super) fn new() -> Self {
        Self { slab: Slab::new(DATAGRAM_SOCKETS_MAX), queue: VecDeque::new() }
    }

    pub(super) fn len(&self) -> usize {
        self.slab.len()
    }

    /// Whether the next turn has something to do without an edge.
    pub(super) fn has_queue(&self) -> bool {
        !self.queue.is_empty()
    }

    fn get_mut(&mut self, id: DatagramId) -> Option<&mut DatagramSlot<H>> {
        self.slab.get_mut(Id::new(id.index, id.generation))
    }
}

impl<K: Kernel> Loop<K> {
    pub(super) fn open_datagram_socket(
        &mut self,
        peer: SocketAddr,
    ) -> Result<DatagramId, CloseReason> {
        let handle = self.kernel.open_datagrams(peer)?;
        let slot = DatagramSlot { handle, is_queued: false };
        let id = match self.datagrams.slab.insert(slot) {
            Ok(id) => DatagramId::new(id.index, id.generation),
            Err(slot) => {
                self.kernel.close(slot.handle);
                return Err(CloseReason::ConnectShortage(Shortage::Slots));
            }
        };
        let Some(slot) = self.datagrams.slab.get(Id::new(id.index, id.generation)) else {
            return Err(CloseReason::ConnectShortage(Shortage::Slots));
        };
        let token = accept::token(id.index | DATAGRAM_INDEX, id.generation);
        if let Err(shortage) = self.kernel.register(&slot.handle, token) {
            self.close_datagram_socket(id);
            return Err(CloseReason::ConnectShortage(shortage));
        }
        Ok(id)
    }

    pub(super) fn send_one_datagram(&mut self, id: DatagramId, bytes: &[u8]) -> DatagramSent {
        match self.datagrams.slab.get(Id::new(id.index, id.generation)) {
            Some(slot) => self.kernel.send_datagram(&slot.handle, bytes),
            None => DatagramSent::Closed,
        }
    }

    pub(super) fn close_datagram_socket(&mut self, id: DatagramId) {
        if let Some(slot) = self.datagrams.slab.remove(Id::new(id.index, id.generation)) {
            self.kernel.close(slot.handle);
        }
    }

    /// Hands over the datagrams that one socket has received.
    pub(super) fn receive_datagrams<H: Handler<Self>>(
        &mut self,
        handler: &mut H,
        buffer: &mut [u8],
        socket: DatagramId,
    ) {
        for _ in 0..DATAGRAMS_PER_TURN_MAX {
            // The handler may have closed it.
            let Some(slot) = self.datagrams.get_mut(socket) else { return };
            match self.kernel.receive_datagram(&slot.handle, buffer) {
                ReceivingDatagram::Bytes(count) => {
                    let bytes = &mut buffer[..count];
                    handler.handle(self, Completion::Datagram { socket, bytes });
                }
                ReceivingDatagram::Failed(fault) => {
                    handler.handle(self, Completion::DatagramFailed { socket, fault });
                }
                ReceivingDatagram::Empty => return,
            }
        }
        if let Some(slot) = self.datagrams.get_mut(socket)
            && !core::mem::replace(&mut slot.is_queued, true)
        {
            self.datagrams.queue.push_back(socket);
        }
    }

    /// Serves the sockets that had more to hand over than fits into one turn.
    pub(super) fn serve_queued_datagrams<H: Handler<Self>>(
        &mut self,
        handler: &mut H,
        buffer: &mut [u8],
    ) {
        // Those that are queued now are served in the next turn.
        for _ in 0..self.datagrams.queue.len() {
            let Some(socket) = self.datagrams.queue.pop_front() else { return };
            if let Some(slot) = self.datagrams.get_mut(socket) {
                slot.is_queued = false;
                self.receive_datagrams(handler, buffer, socket);
            }
        }
    }

    /// Closes all sockets, when the driver is dropped.
    pub(super) fn close_datagram_sockets(&mut self) {
        let sockets = self.datagrams.slab.iter();
        let ids: Vec<DatagramId> =
            sockets.map(|(id, _)| DatagramId::new(id.index, id.generation)).collect();
        for id in ids {
            self.close_datagram_socket(id);
        }
    }
}
