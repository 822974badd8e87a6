//! The test's own ends of simulated connections. They do not use a reactor, and the only faults that they
//! see are latency and resets.
//! In: bytes to send. Out: bytes that arrived, and how the connection ended.
//! Invariant: dropping a peer closes it gracefully; dropping a server closes its listener.

use super::SimNet;
use super::world::{EndId, Link, Segment};

/// One end of a connection, operated by the test.
pub struct SimPeer {
    net: SimNet,
    id: EndId,
}

/// A listener, operated by the test.
pub struct SimServer {
    net: SimNet,
    listener: usize,
}

impl SimPeer {
    pub(super) fn new(net: SimNet, id: EndId) -> Self {
        Self { net, id }
    }

    /// Sends as much of `bytes` as the window takes and returns the number of bytes sent (0 after a reset).
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

    /// Sends `bytes` so that they arrive at once. Returns false, without effect, if the connection is not
    /// quiet (something is on the way or unread in either direction), or if the window is too small. After
    /// `true`, whatever the other end sends later was sent when these bytes had arrived.
    #[must_use]
    pub fn send_at_once(&self, bytes: &[u8]) -> bool {
        self.net.with(|world| {
            world.run_until(world.now);
            world.deliver_at_once(self.id, bytes)
        })
    }

    /// Whether nothing is on the way or unread in either direction of the open connection.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.net.with(|world| {
            world.run_until(world.now);
            world.is_quiet(self.id)
        })
    }

    /// The number of bytes that `send` would take now; `usize::MAX` if the other end is closed.
    #[must_use]
    pub fn room(&self) -> usize {
        self.net.with(|world| {
            world.run_until(world.now);
            world.room(self.id)
        })
    }

    /// Takes all bytes that have arrived.
    #[must_use]
    pub fn receive(&self) -> Vec<u8> {
        self.receive_some(usize::MAX)
    }

    /// Takes at most `count_max` of the bytes that have arrived; the others continue to occupy the window.
    #[must_use]
    pub fn receive_some(&self, count_max: usize) -> Vec<u8> {
        self.net.with(|world| {
            world.run_until(world.now);
            world.take_inbound(self.id, count_max)
        })
    }

    /// The number of bytes that have arrived and wait for `receive`.
    #[must_use]
    pub fn arrived_bytes(&self) -> usize {
        self.net.with(|world| {
            world.run_until(world.now);
            world.ends.get(self.id).map_or(0, |end| end.inbound.len())
        })
    }

    /// How many times bytes have arrived: once for each call with which the other end has sent bytes.
    #[must_use]
    pub fn arrivals(&self) -> u64 {
        self.net.with(|world| {
            world.run_until(world.now);
            world.ends.get(self.id).map_or(0, |end| end.arrivals)
        })
    }

    /// Ends the sending side (FIN).
    pub fn finish(&self) {
        self.net.with(|world| world.finish(self.id));
    }

    /// Closes with a reset. This end cannot be used afterwards.
    pub fn reset(&self) {
        self.net.with(|world| world.close(self.id, true));
    }

    /// Closes gracefully, or with a reset if bytes are unread, as Linux does.
    pub fn close(self) {
        drop(self);
    }

    /// Sets how many bytes, in flight or unread, this end accepts from now on.
    pub fn set_window_bytes(&self, window_bytes: usize) {
        self.net.with(|world| world.set_window(self.id, window_bytes));
    }

    /// Whether the other end has sent FIN and all bytes before it were received.
    #[must_use]
    pub fn is_finished_by_other(&self) -> bool {
        self.net.with(|world| {
            world.run_until(world.now);
            world.ends.get(self.id).is_some_and(|end| {
                end.finish_arrived && !end.reset_arrived && end.inbound.is_empty()
            })
        })
    }

    /// Whether a reset arrived, or this end was closed by its own `reset`.
    #[must_use]
    pub fn was_reset(&self) -> bool {
        self.net.with(|world| {
            world.run_until(world.now);
            world.ends.get(self.id).is_none_or(|end| end.reset_arrived)
        })
    }

    /// Whether the connection is open (even while it waits in a backlog).
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

    /// Takes the next connection from the backlog.
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

    /// Sets how many connections may wait for `accept`. Further ones are delayed, as by dropped SYNs.
    pub fn set_backlog_max(&self, backlog_max: usize) {
        self.net.with(|world| world.listeners[self.listener].backlog_max = backlog_max);
    }
}

impl Drop for SimServer {
    fn drop(&mut self) {
        self.net.with(|world| world.close_listener(self.listener));
    }
}
