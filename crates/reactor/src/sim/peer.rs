//! The test's own ends of simulated connections: they do not go through a reactor and see no faults
//! but latency and resets.
//! In: bytes to send. Out: bytes that arrived, and how the connection ended.
//! Invariant: dropping a peer closes it in order; dropping a server stops listening.

use super::SimNet;
use super::world::{EndId, Link, Segment};

/// One end of a connection, in the test's hand.
pub struct SimPeer {
    net: SimNet,
    id: EndId,
}

/// A listener in the test's hand.
pub struct SimServer {
    net: SimNet,
    listener: usize,
}

impl SimPeer {
    pub(super) fn new(net: SimNet, id: EndId) -> Self {
        Self { net, id }
    }

    /// Sends as much of `bytes` as the window takes, and tells how much that was (0 after a reset).
    pub fn send(&self, bytes: &[u8]) -> usize {
        self.net.with(|world| {
            world.run_until(world.now);
            let room = world.room(self.id);
            let Some(end) = world.ends.get(self.id) else {
                return 0;
            };
            if end.reset_arrived || end.send_finished {
                return 0;
            }
            let count = room.min(bytes.len());
            if count > 0 {
                world.transmit(self.id, Segment::Bytes(bytes[..count].to_vec()));
            }
            count
        })
    }

    /// Bytes that `send` would take now; a great many when the other end is gone.
    #[must_use]
    pub fn room(&self) -> usize {
        self.net.with(|world| {
            world.run_until(world.now);
            world.room(self.id)
        })
    }

    /// All that has arrived.
    #[must_use]
    pub fn receive(&self) -> Vec<u8> {
        self.receive_some(usize::MAX)
    }

    /// At most `count_max` of the bytes that have arrived; the others keep the window closed.
    #[must_use]
    pub fn receive_some(&self, count_max: usize) -> Vec<u8> {
        self.net.with(|world| {
            world.run_until(world.now);
            world.take_inbound(self.id, count_max)
        })
    }

    /// Bytes that have arrived and wait for `receive`.
    #[must_use]
    pub fn arrived_bytes(&self) -> usize {
        self.net.with(|world| {
            world.run_until(world.now);
            world.ends.get(self.id).map_or(0, |end| end.inbound.len())
        })
    }

    /// Ends the sending side (FIN).
    pub fn finish(&self) {
        self.net.with(|world| world.finish(self.id));
    }

    /// Closes with a reset; this end is of no use afterwards.
    pub fn reset(&self) {
        self.net.with(|world| world.close(self.id, true));
    }

    /// Closes in order (with a reset when bytes lie unread, as Linux does).
    pub fn close(self) {
        drop(self);
    }

    /// Bytes this end holds unread, from here on.
    pub fn set_window_bytes(&self, window_bytes: usize) {
        self.net.with(|world| world.set_window(self.id, window_bytes));
    }

    /// Whether the other end has finished and every byte before that was received here.
    #[must_use]
    pub fn is_finished_by_other(&self) -> bool {
        self.net.with(|world| {
            world.run_until(world.now);
            world.ends.get(self.id).is_some_and(|end| {
                end.finish_arrived && !end.reset_arrived && end.inbound.is_empty()
            })
        })
    }

    /// Whether a reset arrived (or this end was reset by its own `reset`).
    #[must_use]
    pub fn was_reset(&self) -> bool {
        self.net.with(|world| {
            world.run_until(world.now);
            world.ends.get(self.id).is_none_or(|end| end.reset_arrived)
        })
    }

    /// Whether the connection is up (waiting in a backlog counts).
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.net.with(|world| {
            world.run_until(world.now);
            world.ends.get(self.id).is_some_and(|end| end.link == Link::Up)
        })
    }
}

impl Drop for SimPeer {
    fn drop(&mut self) {
        self.net.with(|world| world.close(self.id, false));
    }
}

impl SimServer {
    pub(super) fn new(net: SimNet, listener: usize) -> Self {
        Self { net, listener }
    }

    /// The next connection that has come in.
    #[must_use]
    pub fn accept(&self) -> Option<SimPeer> {
        let id = self.net.with(|world| {
            world.run_until(world.now);
            let id = world.listeners[self.listener].backlog.pop_front()?;
            if let Some(end) = world.ends.get_mut(id) {
                end.held = true;
            }
            Some(id)
        })?;
        Some(SimPeer::new(self.net.clone(), id))
    }

    /// Connections that may wait for `accept`; further ones are delayed, as by dropped SYNs.
    pub fn set_backlog_max(&self, backlog_max: usize) {
        self.net.with(|world| world.listeners[self.listener].backlog_max = backlog_max);
    }
}

impl Drop for SimServer {
    fn drop(&mut self) {
        self.net.with(|world| world.close_listener(self.listener));
    }
}
