//! The driver: turns readiness into completions, with the same logic over every `Kernel`.
//! In: the operations of `Reactor`, edges, and the keys that are due in the timer wheels.
//! Out: completions, in `turn`.
//! Never: calls the handler from within an operation; allocates per request in the steady state.
//! Limits: `socks_max`, `ACCEPTS_PER_TURN_MAX`, `RECEIVE_BYTES_PER_TURN_MAX`.
//! Invariant: a connection with work for the handler that no edge will announce is in `queue`, and the next
//! turn does not wait.

mod accept;
mod close;
mod datagrams;
mod output_progress;
mod outputs;
mod receive;
mod relay;
mod send;
mod slots;

use std::sync::Arc;

use tidegate_base::limits::READ_BUFFER_BYTES;
use tidegate_base::wheel::Wheel;
use tidegate_base::{Address, Moment, Span};

use crate::interface::{
    CloseReason, Completion, DatagramId, DatagramSent, Driver, Handler, LastWait, ListenError,
    ListenOptions, ListenerId, OutputProgress, Reactor, Shortage, SockId,
};
use crate::kernel::{ConnectFault, Kernel, Ready, WAKER_TOKEN};
use crate::steering::LeavingListeners;
use crate::waker::Waker;

use accept::ListenerSlot;
use close::Lingering;
use datagrams::DatagramSockets;
use output_progress::Looks;
use outputs::Outputs;
use relay::Relays;
use slots::{Guard, NO_OUTPUT, SendSide, Slots, State};

pub use close::{CLOSE_OUTPUT_MAX, LINGER_MAX, UNREAD_SPAN};
pub use send::WRITE_THROUGH_BYTES_MIN;

/// A token whose index has this bit set belongs to a listener.
const LISTENER_INDEX: u32 = 1 << 31;
/// A token whose index has this bit set, and not that of listeners, belongs to a socket for datagrams.
const DATAGRAM_INDEX: u32 = 1 << 30;

/// A wait that found something ready lasts at most this long, and `EDGE_SPAN_MAX` for each edge.
const AT_ONCE_MAX: Span = Span::from_micros(20);
const EDGE_SPAN_MAX: Span = Span::from_nanos(500);

/// One worker's reactor over the kernel `K`.
pub struct Loop<K: Kernel> {
    kernel: K,
    /// The connections.
    slots: Slots<K::Handle>,
    /// The pending outputs of connections.
    outputs: Outputs,
    /// The latest checks of outputs that peers take slowly.
    looks: Looks,
    /// The connections whose bytes are forwarded to another connection inside the kernel.
    relays: Relays,
    /// The listeners, by index. The slot of a closed listener is reused.
    listeners: Vec<ListenerSlot<K::Handle>>,
    /// The sockets for datagrams.
    datagrams: DatagramSockets<K::Handle>,
    /// When accepting resumes after a shortage; `NEVER` while accepting is not paused.
    accept_again_at: Moment,
    /// How long the next pause of accepting is. It doubles from pause to pause, until one accept succeeds.
    accept_pause: Span,
    /// The listener that accepts first in the next turn: the listener after the one at which accepting ended early in the last
    /// turn.
    accept_first: usize,
    /// The closed connections that wait for their peers.
    lingering: Lingering,
    /// The deadlines of connections, by slot index.
    deadlines: Wheel,
    /// The handler's timers, by their number.
    timers: Wheel,
    /// Slots whose output is flushed at the end of the turn. A slot is in this list while its `dirty` is set.
    dirty: Vec<u32>,
    /// Slots to serve in the next turn without an edge. A slot is in this list while its `queued` is set.
    queue: Vec<u32>,
    /// The queue of the current turn; empty between turns and kept for its capacity.
    served: Vec<u32>,
    /// The keys that are due in the current turn; empty between turns and kept for its capacity.
    due: Vec<u32>,
    /// The worker's only read buffer, of `READ_BUFFER_BYTES`.
    read_buffer: Vec<u8>,
    waker: Waker,
    /// The monotonic clock, read after the last wait.
    now: Moment,
    /// The last wait.
    last_wait: LastWait,
    /// The wall clock in milliseconds since 1970, read together with `now`.
    unix_millis: u64,
}

impl<K: Kernel> Loop<K> {
    /// Creates a reactor over `kernel` for at most `socks_max` connections, including closing ones.
    pub(crate) fn over(kernel: K, waker: Waker, socks_max: usize) -> Self {
        let now = kernel.clock();
        // Each list holds each slot about once. Its memory is reserved but not touched, so that no list has to grow under load,
        // however late the first peak occurs.
        let reserved = socks_max.min(slots::RESERVED_MAX);
        let list = || Vec::with_capacity(reserved);
        Self {
            slots: Slots::new(socks_max),
            outputs: Outputs::default(),
            looks: Looks::default(),
            relays: Relays::default(),
            listeners: Vec::new(),
            datagrams: DatagramSockets::new(),
            accept_again_at: Moment::NEVER,
            accept_pause: accept::PAUSE_MIN,
            accept_first: 0,
            lingering: Lingering::default(),
            deadlines: Wheel::with_capacity(now, reserved),
            timers: Wheel::new(now),
            dirty: list(),
            queue: list(),
            served: list(),
            due: list(),
            read_buffer: Vec::with_capacity(READ_BUFFER_BYTES),
            waker,
            now,
            last_wait: LastWait::default(),
            unix_millis: kernel.unix_millis(),
            kernel,
        }
    }

    /// A waker that wakes this reactor from any thread.
    #[must_use]
    pub fn waker(&self) -> Waker {
        self.waker.clone()
    }

    /// The number of output buffers in use: one for each connection with bytes to send.
    #[must_use]
    pub fn outputs_count(&self) -> usize {
        self.outputs.taken()
    }

    /// Waits for edges, until the first deadline or timer at most, and returns their number. Reads the clock.
    fn wait(&mut self, wait_max: Span) -> usize {
        let mut timeout = wait_max;
        let mut began = self.now;
        if !self.queue.is_empty() || self.datagrams.has_queue() || self.can_accept() {
            timeout = Span::ZERO;
        } else if !timeout.is_zero() {
            began = self.kernel.clock();
            if let Some(due) = self.next_due() {
                timeout = timeout.min(due.since(began));
            }
        }
        if timeout.is_zero() || !self.waker.fall_asleep() {
            timeout = Span::ZERO;
        }
        let limit = (timeout != Span::MAX).then_some(timeout);
        let count = self.kernel.wait(limit);
        self.waker.wake_up();
        self.now = self.kernel.clock();
        self.unix_millis = self.kernel.unix_millis();
        self.note_wait(count, if timeout.is_zero() { self.now } else { began });
        count
    }

    /// Notes what a wait shows that may have slept since `began` and has returned `count` edges.
    fn note_wait(&mut self, count: usize, began: Moment) {
        let span = self.now.since(began);
        let idle = span >= AT_ONCE_MAX + EDGE_SPAN_MAX * count as u32;
        let edges_max = self.kernel.edges_max();
        // Each socket is in the kernel's list once at most.
        let rest = self.slots.count().saturating_sub(count).div_ceil(edges_max);
        self.last_wait = LastWait {
            idle: if idle { span } else { Span::ZERO },
            behind: if count < edges_max { 0 } else { rest.max(1) as u32 },
        };
    }

    /// When the next deadline, timer or accept retry is due.
    fn next_due(&self) -> Option<Moment> {
        let again = (self.accept_again_at != Moment::NEVER).then_some(self.accept_again_at);
        [self.deadlines.next_due(), self.timers.next_due(), again].into_iter().flatten().min()
    }

    /// Handles one edge.
    fn handle_ready<H: Handler<Self>>(&mut self, handler: &mut H, buffer: &mut [u8], ready: Ready) {
        if ready.token == WAKER_TOKEN {
            return; // `turn` takes the ring from the waker itself.
        }
        let (index, generation) = (ready.token as u32, (ready.token >> 32) as u32);
        if index & LISTENER_INDEX != 0 {
            self.note_backlog(index & !LISTENER_INDEX, generation);
            return;
        }
        if index & DATAGRAM_INDEX != 0 {
            let socket = DatagramId::new(index & !DATAGRAM_INDEX, generation);
            handler.note_next(None);
            return self.receive_datagrams(handler, buffer, socket);
        }
        if !self.slots.is_current(index, generation) {
            return;
        }
        handler.note_next(Some(SockId::new(index, generation)));
        let slot = self.slots.at(index);
        slot.readable |= ready.readable || ready.hangup || ready.error;
        let hung_up = ready.hangup && !slot.hangup;
        slot.hangup |= ready.hangup || ready.error;
        if slot.state == State::Connecting {
            self.handle_connect(handler, index);
        } else if ready.writable && slot.blocked {
            slot.blocked = false;
            self.send_pending(index);
        }
        self.check_level(index, ready);
        if self.slots.is_current(index, generation) {
            self.serve(handler, buffer, index, ready.error);
        }
        if hung_up {
            self.hand_over_hangup(handler, SockId::new(index, generation));
        }
    }

    /// Hands over `HungUp` if receiving is paused, so that `Finished` has to wait.
    fn hand_over_hangup<H: Handler<Self>>(&mut self, handler: &mut H, sock: SockId) {
        let slot = self.slots.find(sock);
        if slot.is_some_and(|slot| slot.state == State::Open && !slot.receiving && !slot.ended) {
            handler.handle(self, Completion::HungUp { sock });
        }
    }

    /// Does all pending work of one connection: completions that are due, received bytes, its end.
    fn serve<H: Handler<Self>>(
        &mut self,
        handler: &mut H,
        buffer: &mut [u8],
        index: u32,
        error: bool,
    ) {
        let sock = self.slots.id(index);
        match self.slots.at(index).state {
            State::Free | State::Connecting => {}
            State::Failed(reason) => self.end(handler, index, reason),
            State::Closing | State::Lingering => self.discard(buffer, index),
            State::Open => {
                self.hand_over_drained(handler, index);
                if self.is_open(sock) {
                    self.receive(handler, buffer, index);
                }
                if self.is_open(sock) {
                    self.rearm_guard(index);
                }
                if self.is_open(sock) {
                    self.end_if_over(handler, index, error);
                }
            }
        }
    }

    fn is_open(&self, sock: SockId) -> bool {
        self.slots.find(sock).is_some_and(|slot| slot.state == State::Open)
    }

    /// Ends the connection if nothing more can happen on it.
    fn end_if_over<H: Handler<Self>>(&mut self, handler: &mut H, index: u32, error: bool) {
        let slot = self.slots.at(index);
        let nothing_to_receive = !slot.receiving || !slot.readable || slot.ended;
        if !nothing_to_receive {
            return;
        }
        let Some(handle) = &slot.handle else { return };
        if slot.send_side == SendSide::Broken || (error && self.kernel.take_error(handle)) {
            self.end(handler, index, CloseReason::Reset);
        } else if slot.send_side == SendSide::Finished && slot.ended {
            self.end(handler, index, CloseReason::Ended);
        }
    }

    /// Frees the slot, then hands over `Closed` with the reason.
    fn end<H: Handler<Self>>(&mut self, handler: &mut H, index: u32, reason: CloseReason) {
        let sock = self.slots.id(index);
        let guarded = self.slots.at(index).guard != Guard::Off;
        let reason = if guarded { CloseReason::Unsent } else { reason };
        self.free(index);
        handler.handle(self, Completion::Closed { sock, reason });
    }

    /// Frees the slot and everything it holds. Its id is stale afterwards. Paused accepting resumes.
    fn free(&mut self, index: u32) {
        let slot = self.slots.at(index);
        let (output, lingers) = (slot.output, slot.state == State::Lingering);
        if output != NO_OUTPUT {
            self.outputs.give_back(output);
        }
        if lingers {
            self.lingering.forget();
        }
        self.looks.forget(index);
        self.relays.forget(index);
        if let Some(handle) = self.slots.remove(index) {
            self.kernel.close(handle);
        }
        if self.accept_again_at != Moment::NEVER {
            self.accept_again_at = self.now;
        }
    }

    /// As `free`, but closes the connection with a reset.
    fn free_with_reset(&mut self, index: u32) {
        if let Some(handle) = self.slots.at(index).handle.take() {
            self.kernel.reset(handle);
        }
        self.free(index);
    }

    /// Lets the next turn serve the slot without an edge.
    fn enqueue(&mut self, index: u32) {
        let slot = self.slots.at(index);
        if !slot.queued {
            slot.queued = true;
            self.queue.push(index);
        }
    }

    /// Lets the end of this turn flush the slot's output.
    fn mark_dirty(&mut self, index: u32) {
        let slot = self.slots.at(index);
        if !slot.dirty {
            slot.dirty = true;
            self.dirty.push(index);
        }
    }

    /// Hands over the outcome of a pending `connect`.
    fn handle_connect<H: Handler<Self>>(&mut self, handler: &mut H, index: u32) {
        let slot = self.slots.at(index);
        let Some(handle) = &slot.handle else { return };
        match self.kernel.connect_outcome(handle) {
            None => {}
            Some(Err(reason)) => self.end(handler, index, reason),
            Some(Ok(())) => {
                slot.state = State::Open;
                if slot.output != NO_OUTPUT || slot.send_side == SendSide::Finishing {
                    self.mark_dirty(index);
                }
                let sock = self.slots.id(index);
                handler.handle(self, Completion::Connected { sock });
            }
        }
    }

    fn serve_queue<H: Handler<Self>>(
        &mut self,
        handler: &mut H,
        buffer: &mut [u8],
        served: &mut Vec<u32>,
    ) {
        for index in served.drain(..) {
            // If the slot was freed in the meantime, its mark is cleared and this entry is skipped.
            if core::mem::replace(&mut self.slots.at(index).queued, false) {
                handler.note_next(Some(self.slots.id(index)));
                self.serve(handler, buffer, index, false);
            }
        }
    }

    /// Sets the deadline of slot `index` to `at`. The wheel is changed only if it would fire later than `at`. If it
    /// fires earlier, the slot is then rescheduled. So postponing a deadline is a store and a look, and the wheel changes
    /// once per elapsed period instead of once per request.
    fn schedule(&mut self, index: u32, at: Moment) {
        self.slots.at(index).deadline = at;
        if at != Moment::NEVER {
            self.deadlines.schedule_by(index, at);
        }
    }

    /// Hands over the deadlines and timers that are due.
    fn fire_deadlines<H: Handler<Self>>(&mut self, handler: &mut H) {
        let mut due = core::mem::take(&mut self.due);
        self.deadlines.advance(self.now, |index| due.push(index));
        for &index in &due {
            let now = self.now;
            let slot = self.slots.at(index);
            if slot.deadline > now {
                let deadline = slot.deadline;
                self.schedule(index, deadline);
                continue;
            }
            slot.deadline = Moment::NEVER;
            match slot.state {
                State::Free => {}
                State::Closing | State::Lingering => self.give_up_closing(index),
                State::Connecting | State::Failed(_) | State::Open => {
                    let sock = self.slots.id(index);
                    handler.handle(self, Completion::Due { sock });
                }
            }
        }
        due.clear();
        self.timers.advance(self.now, |timer| due.push(timer));
        for timer in due.drain(..) {
            handler.handle(self, Completion::Timer { timer });
        }
        self.due = due;
    }
}

impl<K: Kernel> Reactor for Loop<K> {
    fn now(&self) -> Moment {
        self.now
    }

    fn unix_millis(&self) -> u64 {
        self.unix_millis
    }

    fn read_clock(&self) -> Moment {
        self.kernel.clock()
    }

    fn last_wait(&self) -> LastWait {
        self.last_wait
    }

    fn listen(
        &mut self,
        address: &Address,
        options: &ListenOptions,
    ) -> Result<ListenerId, ListenError> {
        self.open_listener(address, options)
            .map_err(|cause| ListenError { address: address.clone(), cause })
    }

    fn listener_address(&self, listener: ListenerId) -> Option<Address> {
        self.find_listener(listener).map(|slot| slot.address.clone())
    }

    fn stop_listening(&mut self, listener: ListenerId) {
        self.stop_listener(listener);
    }

    fn steer_away(&mut self, listener: ListenerId, own: &Arc<LeavingListeners>) {
        self.steer_listener_away(listener, own);
    }

    fn listener_count(&self) -> usize {
        self.listeners.iter().filter(|slot| slot.handle.is_some()).count()
    }

    fn connect_from(
        &mut self,
        address: &Address,
        source: Option<core::net::IpAddr>,
    ) -> Result<SockId, Shortage> {
        if self.slots.is_full() {
            return Err(Shortage::Slots);
        }
        match self.kernel.connect(address, source) {
            Ok(handle) => {
                let sock = self.slots.insert(Some(handle), State::Connecting);
                self.register(sock)?;
                Ok(sock)
            }
            Err(ConnectFault::Short(shortage)) => Err(shortage),
            Err(ConnectFault::Refused(reason)) => {
                let sock = self.slots.insert(None, State::Failed(reason));
                self.enqueue(sock.index);
                Ok(sock)
            }
        }
    }

    fn output(&mut self, sock: SockId) -> Option<&mut Vec<u8>> {
        self.output_of(sock)
    }

    fn send(&mut self, sock: SockId, bytes: &[u8]) {
        self.send_bytes(sock, bytes);
    }

    fn flush(&mut self, sock: SockId) {
        if self.slots.find(sock).is_some() {
            self.flush_output(sock.index);
        }
    }

    fn guard_send(&mut self, sock: SockId) -> bool {
        let Some(slot) = self.slots.find_mut(sock) else { return false };
        let usable = slot.state == State::Open
            && slot.send_side == SendSide::Open
            && slot.output == NO_OUTPUT
            && !slot.ended;
        if usable {
            slot.guard = Guard::Armed;
        }
        usable
    }

    fn is_guarded(&self, sock: SockId) -> bool {
        self.slots.find(sock).is_some_and(|slot| slot.guard != Guard::Off)
    }

    fn output_pending(&self, sock: SockId) -> usize {
        self.slots.find(sock).map_or(0, |slot| self.outputs.pending_bytes(slot.output))
    }

    fn check_output_progress(&mut self, sock: SockId) -> OutputProgress {
        match self.slots.find(sock) {
            Some(_) => self.look(sock.index),
            None => OutputProgress::Idle,
        }
    }

    fn set_receiving(&mut self, sock: SockId, receiving: bool) {
        let Some(slot) = self.slots.find_mut(sock) else {
            return;
        };
        slot.receiving = receiving;
        if receiving && slot.readable {
            self.enqueue(sock.index);
        }
    }

    fn relay_to(&mut self, from: SockId, to: Option<SockId>) {
        if self.slots.find(from).is_some() {
            self.relays.set(from.index, to);
        }
    }

    fn has_hung_up(&self, sock: SockId) -> bool {
        self.slots.find(sock).is_some_and(|slot| slot.hangup || slot.ended)
    }

    fn finish(&mut self, sock: SockId) {
        self.finish_sending(sock);
    }

    fn close(&mut self, sock: SockId) {
        self.close_gracefully(sock, true);
    }

    fn close_unread(&mut self, sock: SockId) {
        self.close_gracefully(sock, false);
    }

    fn abort(&mut self, sock: SockId) {
        if self.slots.find(sock).is_some() {
            self.free_with_reset(sock.index);
        }
    }

    fn close_at_once(&mut self, sock: SockId) {
        self.close_without_lingering(sock);
    }

    fn free_lingering(&mut self, kept: usize) -> bool {
        self.free_longest_lingering(kept)
    }

    fn set_deadline(&mut self, sock: SockId, at: Moment) {
        if self.slots.find(sock).is_some() {
            self.schedule(sock.index, at);
        }
    }

    fn set_timer(&mut self, timer: u32, at: Moment) {
        if at == Moment::NEVER {
            self.timers.cancel(timer);
        } else {
            self.timers.schedule(timer, at);
        }
    }

    fn local_address(&self, sock: SockId) -> Option<core::net::SocketAddr> {
        self.kernel.local_address(self.slots.find(sock)?.handle.as_ref()?)
    }

    fn open_datagrams(&mut self, peer: core::net::SocketAddr) -> Result<DatagramId, CloseReason> {
        self.open_datagram_socket(peer)
    }

    fn send_datagram(&mut self, socket: DatagramId, bytes: &[u8]) -> DatagramSent {
        self.send_one_datagram(socket, bytes)
    }

    fn close_datagrams(&mut self, socket: DatagramId) {
        self.close_datagram_socket(socket);
    }

    fn datagram_socket_count(&self) -> usize {
        self.datagrams.len()
    }

    fn sock_count(&self) -> usize {
        self.slots.count()
    }

    fn is_live(&self, sock: SockId) -> bool {
        self.slots.find(sock).is_some()
    }

    fn deadline(&self, sock: SockId) -> Moment {
        self.slots.find(sock).map_or(Moment::NEVER, |slot| slot.deadline)
    }
}

impl<K: Kernel> Driver for Loop<K> {
    fn turn<H: Handler<Self>>(&mut self, handler: &mut H, wait_max: Span) {
        // Output queued between two turns (a first request, a last response) must not wait for an edge.
        self.flush_dirty(handler);
        handler.note_next(None);
        let count = self.wait(wait_max);
        let mut buffer = core::mem::take(&mut self.read_buffer);
        buffer.resize(READ_BUFFER_BYTES, 0);
        let mut served = core::mem::take(&mut self.served);
        core::mem::swap(&mut served, &mut self.queue);

        if self.waker.take() {
            handler.handle(self, Completion::Woken);
        }
        // Before the edges, which may queue sockets for the next turn.
        self.serve_queued_datagrams(handler, &mut buffer);
        for edge in 0..count {
            let ready = self.kernel.ready(edge);
            self.handle_ready(handler, &mut buffer, ready);
        }
        self.serve_queue(handler, &mut buffer, &mut served);
        handler.note_next(None);
        self.accept_all(handler);
        self.fire_deadlines(handler);
        self.flush_dirty(handler);
        handler.note_next(None);

        self.served = served;
        self.read_buffer = buffer;
        self.note_due(false);
    }

    fn note_due(&mut self, has_work: bool) {
        let due = self.next_due();
        let has_queue =
            !self.queue.is_empty() || !self.dirty.is_empty() || self.datagrams.has_queue();
        let is_busy = has_work || has_queue || self.can_accept() || self.waker.is_pending();
        let now = self.now;
        self.kernel.note_due(|| if is_busy { Some(now) } else { due });
    }
}

impl<K: Kernel> Drop for Loop<K> {
    fn drop(&mut self) {
        for handle in self.slots.drain() {
            self.kernel.close(handle);
        }
        for index in 0..self.listeners.len() {
            self.close_listener(index);
        }
        self.close_datagram_sockets();
    }
}
