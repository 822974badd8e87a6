//! Accepting: a budget for each turn, a pause after a shortage, and draining before a listener closes.
//! In: edges of listeners. Out: `Accepted`, `AcceptPaused`.
//! Never: decides which connection is closed to make room (the handler does); spins; keeps a spare descriptor to
//! accept and close connections. During a shortage that the handler cannot end, connections stay in the kernel's
//! backlog, where they wait or are refused by the kernel's rules.
//! Limits: `ACCEPTS_PER_TURN_MAX` for each listener and turn; pauses of `PAUSE_MIN` to `PAUSE_MAX` after a
//! shortage. The listeners take turns after each pause.
//! Invariant: `backlogged` stays set until the kernel reports an empty backlog, so no connection is left
//! waiting there without an edge.

use std::io;
use std::sync::Arc;

use tidegate_base::limits::ACCEPTS_PER_TURN_MAX;
use tidegate_base::{Address, Moment, Span};

use super::slots::State;
use super::{LISTENER_INDEX, Loop};
use crate::interface::{Completion, Handler, ListenOptions, ListenerId, Room, Shortage, SockId};
use crate::kernel::{Accepting, Kernel};
use crate::steering::LeavingListeners;

/// How long accepting pauses after a shortage, unless a connection is freed earlier. A short pause lets a
/// waiting client in soon after another connection may be closed for it.
pub(super) const PAUSE_MIN: Span = Span::from_millis(1);
/// The longest pause. Each pause is twice as long as the one before, up to this.
const PAUSE_MAX: Span = Span::from_millis(100);

/// One listener.
pub(super) struct ListenerSlot<H> {
    /// The generation of the listener's id.
    generation: u32,
    /// `None` once the listener is closed; the slot may then be reused.
    pub(super) handle: Option<H>,
    /// The actual address, with the assigned port.
    pub(super) address: Address,
    /// Whether the kernel may have connections waiting.
    backlogged: bool,
    /// Maximum number of connections that may wait in the kernel.
    backlog: u32,
    /// After `stop_listening`: how many connections the listener may still accept. It starts at the size of
    /// the backlog. Without this limit, new clients could keep a stopped listener open indefinitely.
    last_accepts: Option<u32>,
    /// After `steer_away`: this process's listeners in the group, from which connections are steered away.
    leaving: Option<Arc<LeavingListeners>>,
}

impl<K: Kernel> Loop<K> {
    pub(super) fn open_listener(
        &mut self,
        address: &Address,
        options: &ListenOptions,
    ) -> io::Result<ListenerId> {
        let (handle, address) = self.kernel.listen(address, options)?;
        self.add_listener(handle, address, options.backlog)
    }

    /// Adds a listener with a handle that is already listening.
    pub(crate) fn add_listener(
        &mut self,
        handle: K::Handle,
        address: Address,
        backlog: u32,
    ) -> io::Result<ListenerId> {
        let free = self.listeners.iter().position(|slot| slot.handle.is_none());
        let index = free.unwrap_or(self.listeners.len()) as u32;
        let generation = free.map_or(1, |free| self.listeners[free].generation.wrapping_add(1));
        let token = token(index | LISTENER_INDEX, generation);
        if self.kernel.register(&handle, token).is_err() {
            self.kernel.close(handle);
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        let slot = ListenerSlot {
            generation,
            handle: Some(handle),
            address,
            backlogged: false,
            backlog,
            last_accepts: None,
            leaving: None,
        };
        match free {
            Some(free) => self.listeners[free] = slot,
            None => self.listeners.push(slot),
        }
        Ok(ListenerId::new(index, generation))
    }

    /// The handles of the open listeners.
    pub(crate) fn listener_handles(&self) -> impl Iterator<Item = &K::Handle> {
        self.listeners.iter().filter_map(|slot| slot.handle.as_ref())
    }

    pub(super) fn find_listener(&self, listener: ListenerId) -> Option<&ListenerSlot<K::Handle>> {
        let slot = self.listeners.get(listener.index as usize)?;
        (slot.generation == listener.generation && slot.handle.is_some()).then_some(slot)
    }

    pub(super) fn stop_listener(&mut self, listener: ListenerId) {
        if self.find_listener(listener).is_some() {
            let slot = &mut self.listeners[listener.index as usize];
            slot.last_accepts = Some(slot.backlog);
            slot.backlogged = true;
        }
    }

    pub(super) fn steer_listener_away(
        &mut self,
        listener: ListenerId,
        own: &Arc<LeavingListeners>,
    ) {
        if self.find_listener(listener).is_some() {
            let slot = &mut self.listeners[listener.index as usize];
            if let Some(handle) = &slot.handle {
                self.kernel.steer_away(handle, own.count());
            }
            slot.leaving = Some(Arc::clone(own));
        }
    }

    /// Notes an edge of a listener.
    pub(super) fn note_backlog(&mut self, index: u32, generation: u32) {
        if let Some(slot) = self.listeners.get_mut(index as usize) {
            slot.backlogged |= slot.generation == generation && slot.handle.is_some();
        }
    }

    /// Whether there may be connections to accept. The next turn then must not wait.
    pub(super) fn can_accept(&self) -> bool {
        self.accept_again_at == Moment::NEVER && self.listeners.iter().any(|slot| slot.backlogged)
    }

    pub(super) fn accept_all<H: Handler<Self>>(&mut self, handler: &mut H) {
        if self.accept_again_at <= self.now {
            self.accept_again_at = Moment::NEVER;
        }
        let (first, count) = (self.accept_first, self.listeners.len());
        for index in (0..count).map(|at| (first + at) % count) {
            if self.can_accept() && self.listeners[index].backlogged {
                self.accept_some(handler, index);
                if self.accept_again_at != Moment::NEVER {
                    // The next listener begins, so that a flood of one listener does not use up all room.
                    self.accept_first = index + 1;
                }
            }
        }
    }

    fn accept_some<H: Handler<Self>>(&mut self, handler: &mut H, index: usize) {
        let listener = ListenerId::new(index as u32, self.listeners[index].generation);
        let mut lost = 0;
        let mut made_room = false;
        for _ in 0..ACCEPTS_PER_TURN_MAX {
            let slot = &self.listeners[index];
            if slot.handle.is_none() {
                return;
            }
            if slot.last_accepts == Some(0) {
                return self.close_listener(index);
            }
            if self.slots.is_full() || !handler.has_room(self) {
                if !self.has_backlog(index) {
                    return self.end_backlog(index);
                }
                match handler.make_room(self, Shortage::Slots) {
                    Room::Made if !self.slots.is_full() => {}
                    Room::Soon => return self.rest(),
                    Room::Made | Room::None => {
                        return self.pause_accepting(handler, listener, Shortage::Slots);
                    }
                }
            }
            let slot = &mut self.listeners[index];
            let Some(handle) = &slot.handle else { return };
            match self.kernel.accept(handle) {
                Accepting::Accepted(handle, peer) => {
                    slot.last_accepts = slot.last_accepts.map(|left| left - 1);
                    self.accept_pause = PAUSE_MIN;
                    made_room = false;
                    let sock = self.slots.insert(Some(handle), State::Open);
                    match self.register(sock) {
                        Ok(()) => {
                            handler.handle(self, Completion::Accepted { listener, sock, peer });
                        }
                        Err(shortage) => return self.pause_accepting(handler, listener, shortage),
                    }
                }
                Accepting::Lost => lost += 1,
                Accepting::Empty => return self.end_backlog(index),
                // Closing one connection did not help, so closing more would not help either.
                Accepting::Short(shortage) if made_room => {
                    return self.pause_accepting(handler, listener, shortage);
                }
                Accepting::Short(shortage) => match handler.make_room(self, shortage) {
                    Room::Made => made_room = true,
                    Room::Soon => return self.rest(),
                    Room::None => return self.pause_accepting(handler, listener, shortage),
                },
            }
        }
        if lost == ACCEPTS_PER_TURN_MAX {
            // Every connection failed: the listener itself rejects them (a security module can cause this).
            // Retrying at once would spin.
            self.accept_again_at = self.now.after(PAUSE_MAX);
        }
    }

    fn has_backlog(&mut self, index: usize) -> bool {
        let handle = &self.listeners[index].handle;
        handle.as_ref().is_some_and(|handle| self.kernel.has_backlog(handle))
    }

    /// Notes that the backlog is empty: an edge announces the next connection.
    fn end_backlog(&mut self, index: usize) {
        let slot = &mut self.listeners[index];
        slot.backlogged = false;
        if slot.last_accepts.is_some() {
            self.close_listener(index);
        }
    }

    /// Pauses accepting for `PAUSE_MIN`, because the handler can make room soon. Not reported as a shortage.
    fn rest(&mut self) {
        self.accept_again_at = self.now.after(PAUSE_MIN);
    }

    fn pause_accepting<H: Handler<Self>>(
        &mut self,
        handler: &mut H,
        listener: ListenerId,
        shortage: Shortage,
    ) {
        self.accept_again_at = self.now.after(self.accept_pause);
        self.accept_pause = (2 * self.accept_pause).min(PAUSE_MAX);
        handler.handle(self, Completion::AcceptPaused { listener, shortage });
    }

    pub(super) fn close_listener(&mut self, index: usize) {
        let slot = &mut self.listeners[index];
        slot.backlogged = false;
        if let Some(handle) = slot.handle.take() {
            // Otherwise the group's program would keep skipping the listeners of this process, which no longer exist.
            if slot.leaving.take().is_some_and(|own| own.closes_last()) {
                self.kernel.steer_evenly(&handle);
            }
            self.kernel.close(handle);
        }
    }

    /// Registers a new connection for edges. If the kernel has no memory for that, the connection is reset.
    pub(super) fn register(&mut self, sock: SockId) -> Result<(), Shortage> {
        let Some(handle) = &self.slots.at(sock.index).handle else {
            return Ok(());
        };
        let registered = self.kernel.register(handle, token(sock.index, sock.generation));
        if registered.is_err() {
            self.free_with_reset(sock.index);
        }
        registered
    }
}

/// The token of a slot, or of a listener if `LISTENER_INDEX` is in `index`.
pub(super) fn token(index: u32, generation: u32) -> u64 {
    u64::from(generation) << 32 | u64::from(index)
}
