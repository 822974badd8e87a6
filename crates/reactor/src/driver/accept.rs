//! Accepting: a budget a turn, a pause when something is short, a drain before a listener closes.
//! In: edges of listeners. Out: `Accepted`, `AcceptPaused`.
//! Never: drops a connection to make room, or spins. A shortage leaves connections in the kernel's
//! backlog, where they wait or are refused by its own rules; no reserve descriptor is spent on closing.
//! Limits: `ACCEPTS_PER_TURN_MAX` a listener and turn; `ACCEPT_PAUSE` after a shortage.
//! Invariant: `backlogged` stays set until the kernel said "empty", so no queued connection is stranded.

use std::io;
use std::sync::Arc;

use tidegate_base::limits::ACCEPTS_PER_TURN_MAX;
use tidegate_base::{Address, Moment, Span};

use super::slots::State;
use super::{LISTENER_INDEX, Loop};
use crate::interface::{Completion, Handler, ListenOptions, ListenerId, Shortage, SockId};
use crate::kernel::{Accepting, Kernel};
use crate::steering::LeavingListeners;

/// How long accepting pauses after a shortage, unless a connection ends before.
const ACCEPT_PAUSE: Span = Span::from_millis(100);

/// One listener.
pub(super) struct Door<H> {
    generation: u32,
    /// `None` once it is closed; the place may be taken again.
    pub(super) handle: Option<H>,
    pub(super) address: Address,
    /// The kernel may have connections waiting.
    backlogged: bool,
    backlog: u32,
    /// How many it may still accept, once it was told to stop: what the backlog can hold. Later ones
    /// would keep it open as long as clients keep coming.
    last_accepts: Option<u32>,
    /// It steered connections away from this process's listeners, these.
    leaving: Option<Arc<LeavingListeners>>,
}

impl<K: Kernel> Loop<K> {
    pub(super) fn open_door(
        &mut self,
        address: &Address,
        options: &ListenOptions,
    ) -> io::Result<ListenerId> {
        let (handle, address) = self.kernel.listen(address, options)?;
        self.hang_door(handle, address, options.backlog)
    }

    /// Accepts from a handle that listens already.
    pub(crate) fn hang_door(
        &mut self,
        handle: K::Handle,
        address: Address,
        backlog: u32,
    ) -> io::Result<ListenerId> {
        let free = self.doors.iter().position(|door| door.handle.is_none());
        let index = free.unwrap_or(self.doors.len()) as u32;
        let generation = free.map_or(1, |free| self.doors[free].generation.wrapping_add(1));
        let token = token(index | LISTENER_INDEX, generation);
        if self.kernel.register(&handle, token).is_err() {
            self.kernel.close(handle);
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        let door = Door {
            generation,
            handle: Some(handle),
            address,
            backlogged: false,
            backlog,
            last_accepts: None,
            leaving: None,
        };
        match free {
            Some(free) => self.doors[free] = door,
            None => self.doors.push(door),
        }
        Ok(ListenerId::new(index, generation))
    }

    pub(super) fn door(&self, listener: ListenerId) -> Option<&Door<K::Handle>> {
        let door = self.doors.get(listener.index as usize)?;
        (door.generation == listener.generation && door.handle.is_some()).then_some(door)
    }

    pub(super) fn stop_door(&mut self, listener: ListenerId) {
        if self.door(listener).is_some() {
            let door = &mut self.doors[listener.index as usize];
            door.last_accepts = Some(door.backlog);
            door.backlogged = true;
        }
    }

    pub(super) fn leave_door(&mut self, listener: ListenerId, own: &Arc<LeavingListeners>) {
        if self.door(listener).is_some() {
            let door = &mut self.doors[listener.index as usize];
            if let Some(handle) = &door.handle {
                self.kernel.steer_away(handle, own.count());
            }
            door.leaving = Some(Arc::clone(own));
        }
    }

    pub(super) fn note_backlog(&mut self, index: u32, generation: u32) {
        if let Some(door) = self.doors.get_mut(index as usize) {
            door.backlogged |= door.generation == generation && door.handle.is_some();
        }
    }

    /// Whether the next turn has something to accept, so that it must not wait.
    pub(super) fn can_accept(&self) -> bool {
        self.accept_again_at == Moment::NEVER && self.doors.iter().any(|door| door.backlogged)
    }

    pub(super) fn accept_all<H: Handler<Self>>(&mut self, handler: &mut H) {
        if self.accept_again_at <= self.now {
            self.accept_again_at = Moment::NEVER;
        }
        for index in 0..self.doors.len() {
            if self.can_accept() && self.doors[index].backlogged {
                self.accept_some(handler, index);
            }
        }
    }

    fn accept_some<H: Handler<Self>>(&mut self, handler: &mut H, index: usize) {
        let listener = ListenerId::new(index as u32, self.doors[index].generation);
        let mut lost = 0;
        for _ in 0..ACCEPTS_PER_TURN_MAX {
            if self.slots.is_full() {
                return self.pause_accepting(handler, listener, Shortage::Slots);
            }
            let door = &mut self.doors[index];
            let Some(handle) = &door.handle else { return };
            if door.last_accepts == Some(0) {
                return self.close_door(index);
            }
            match self.kernel.accept(handle) {
                Accepting::Accepted(handle, peer) => {
                    door.last_accepts = door.last_accepts.map(|left| left - 1);
                    let sock = self.slots.insert(Some(handle), State::Open);
                    match self.register(sock) {
                        Ok(()) => {
                            handler.handle(self, Completion::Accepted { listener, sock, peer });
                        }
                        Err(shortage) => return self.pause_accepting(handler, listener, shortage),
                    }
                }
                Accepting::Lost => lost += 1,
                Accepting::Empty => {
                    door.backlogged = false;
                    if door.last_accepts.is_some() {
                        self.close_door(index);
                    }
                    return;
                }
                Accepting::Short(shortage) => {
                    return self.pause_accepting(handler, listener, shortage);
                }
            }
        }
        if lost == ACCEPTS_PER_TURN_MAX {
            // Not single connections die, the listener refuses all (a security module does that):
            // trying on at once would spin.
            self.accept_again_at = self.now.after(ACCEPT_PAUSE);
        }
    }

    fn pause_accepting<H: Handler<Self>>(
        &mut self,
        handler: &mut H,
        listener: ListenerId,
        shortage: Shortage,
    ) {
        self.accept_again_at = self.now.after(ACCEPT_PAUSE);
        handler.handle(self, Completion::AcceptPaused { listener, shortage });
    }

    pub(super) fn close_door(&mut self, index: usize) {
        let door = &mut self.doors[index];
        door.backlogged = false;
        if let Some(handle) = door.handle.take() {
            // The program would go on to name indexes past listeners that are no longer there.
            if door.leaving.take().is_some_and(|own| own.closes_last()) {
                self.kernel.steer_evenly(&handle);
            }
            self.kernel.close(handle);
        }
    }

    /// Asks for a new connection's edges; resets it when the kernel has no memory for that.
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

fn token(index: u32, generation: u32) -> u64 {
    u64::from(generation) << 32 | u64::from(index)
}
