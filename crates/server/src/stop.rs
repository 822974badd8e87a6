//! The stop of a worker: listeners, idle connections, and the connections that are open at the end of the grace period.
//! In: the grace period; the process that takes over, if there is one. Out: closed listeners and connections.
//! Never: cuts off a response within the grace period.
//! Limits: the grace period; `EVENTS_SPAN_MAX` after it for events about the clients that were cut off at its end.

use std::sync::Arc;

use tidegate_base::Span;
use tidegate_gate::access::Cause;
use tidegate_reactor::{LeavingListeners, Reactor};

use crate::drain::Drain;
use crate::timers::WorkerTimer;
use crate::worker::Worker;

/// How long a stop keeps the listeners open while new connections are steered to a process that takes over.
/// The kernel resets a connection whose TCP handshake is in progress when its listener closes.
const STOP_LISTENERS_SPAN: Span = Span::from_millis(125);
/// How long a stop keeps idle connections open. A client that has just received a response may send its next
/// request without knowing of the stop (RFC 9112 section 9.6); that request is still answered.
const STOP_IDLE_SPAN: Span = Span::from_millis(250);
const _: () = assert!(STOP_LISTENERS_SPAN.as_nanos() < STOP_IDLE_SPAN.as_nanos());
/// How long the users' backends may take after the grace period to receive the events of disconnected push clients.
const EVENTS_SPAN_MAX: Span = Span::from_secs(2);

/// By `[[listener]]`: this process's listeners on the address, if a stop steers new connections to the
/// listeners of another process.
pub(crate) type Leaving = Arc<[Option<Arc<LeavingListeners>>]>;

/// The progress of a stop, and how it continues.
#[derive(Default)]
pub(crate) struct Stop {
    /// Which WebSocket connections and streams of push hubs the stop has ended so far.
    pub(crate) drain: Drain,
    /// The grace period has ended, and the connections of clients were reset. Events about them are still sent.
    is_sending_events: bool,
    /// Everything has ended. The worker stops without waiting until the kernel has sent the bytes that it holds.
    is_grace_over: bool,
    /// By listener: the listeners that close together, if a stop leaves new connections to another process.
    leaving: Leaving,
}

impl Stop {
    /// Whether everything has ended, so that nothing more is sent.
    pub(crate) fn is_grace_over(&self) -> bool {
        self.is_grace_over
    }
}

impl Worker {
    /// Sets, before a stop, on which listeners new connections are steered to a process that takes over.
    pub fn leave_to_others(&mut self, leaving: Leaving) {
        self.stop.leaving = leaving;
    }

    /// Sets, before a stop, how WebSocket connections and streams of push hubs end.
    pub fn close_over(&mut self, drain: Drain) {
        self.stop.drain = drain;
    }

    /// Begins to stop. New connections are steered to the process that takes over, if there is one. The
    /// listeners close after `STOP_LISTENERS_SPAN`, or at once if no process takes over. Idle connections
    /// close after `STOP_IDLE_SPAN`, busy ones after their response. Connections that are still open after
    /// `grace` are reset.
    pub fn stop<R: Reactor>(&mut self, reactor: &mut R, grace: Span) {
        if self.stopping {
            return;
        }
        self.stopping = true;
        let now = reactor.now();
        WorkerTimer::Grace.set(reactor, now.after(grace));
        WorkerTimer::Idle.set(reactor, now.after(STOP_IDLE_SPAN.min(grace)));
        self.note_stop_to_apps(reactor, now.after(grace));
        if self.stop.leaving.iter().all(Option::is_none) {
            return self.close_listeners(reactor);
        }
        for listener in &self.listening.open {
            if let Some(Some(own)) = self.stop.leaving.get(usize::from(listener.index)) {
                reactor.steer_away(listener.id, own);
            }
        }
        WorkerTimer::Listeners.set(reactor, now.after(STOP_LISTENERS_SPAN.min(grace)));
    }

    /// Closes the listeners after accepting the connections in their backlogs.
    pub(crate) fn close_listeners<R: Reactor>(&mut self, reactor: &mut R) {
        for listener in &self.listening.open {
            reactor.stop_listening(listener.id);
        }
        if self.conns.downstream_count() == 0 {
            self.close_idle(reactor);
        }
    }

    /// Whether a stop is complete: every connection and listener is closed, or the grace period has ended and all events about
    /// clients were sent.
    #[must_use]
    pub fn is_stopped<R: Reactor>(&self, reactor: &R) -> bool {
        let all_closed = reactor.sock_count() == 0 && reactor.listener_count() == 0;
        let is_done = all_closed || self.stop.is_sending_events;
        self.stopping && (self.stop.is_grace_over || is_done && !self.has_unsent_events())
    }

    /// The grace period has ended: resets every connection that is still open, after the backends of push hubs have learned of
    /// the clients that were cut off.
    pub(crate) fn end_grace<R: Reactor>(&mut self, reactor: &mut R) {
        self.end_mirrors(reactor);
        for sock in self.conns.downstream_ids() {
            self.blame_connection(sock, Cause::Stopped, "the process stopped");
            self.drop_client(reactor, sock);
            reactor.abort(sock);
        }
        if self.has_unsent_events() && !self.stop.is_sending_events {
            self.stop.is_sending_events = true;
            self.end_own(reactor);
            self.retire_idle_servers(reactor);
            return WorkerTimer::Grace.set(reactor, reactor.now().after(EVENTS_SPAN_MAX));
        }
        self.abort_rest(reactor);
    }

    /// Ends the remaining work, with the connections to servers.
    fn abort_rest<R: Reactor>(&mut self, reactor: &mut R) {
        self.stop.is_grace_over = true;
        self.end_own(reactor);
        self.drop_events();
        for sock in self.conns.upstream_ids() {
            self.discard_upstream(reactor, sock);
        }
        self.work.clear();
        for pool in &mut self.pools {
            pool.unserved = false;
        }
    }
}
