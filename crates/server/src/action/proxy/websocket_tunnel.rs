//! WebSocket tunnels: if their server or listener is removed, they end with a Close frame for the client.
//! In: the bytes of servers; the wish to end a tunnel. Out: the same bytes, and a Close frame between two frames.
//! Never: changes a frame, or examines a frame of the client: the client's own Close frame tells the server.
//! Limits: a client has `CLOSE_SPAN` from the Close frame on until its connection is closed.
//! Invariant: no bytes of the server follow the Close frame.

use tidegate_base::{Id, Moment, Span};
use tidegate_reactor::Reactor;
use tidegate_wire::websocket::{Close, FrameWalker, encode_close};

use crate::action::Running;
use crate::action::lua::frames::FrameHook;
use crate::action::proxy::exchange::{Exchange, Stage};
use crate::worker::Worker;

/// How long the close handshake of client and server may take.
const CLOSE_SPAN: Span = Span::from_secs(10);

/// The state of the WebSocket in a tunnel.
#[derive(Debug, Default)]
pub(crate) struct TunnelFrames {
    /// Follows the frames of the server.
    walker: FrameWalker,
    /// Whether the tunnel ends.
    close: TunnelClose,
    /// The hook that sees the messages. Then `walker` gets no bytes: the client gets whole frames only.
    pub(in crate::action) hook: Option<Box<FrameHook>>,
}

/// Whether a tunnel ends by a Close frame of Tidegate.
#[derive(Debug, Default)]
enum TunnelClose {
    /// It does not.
    #[default]
    No,
    /// The Close frame follows the frame that is in progress.
    Due(Close<'static>),
    /// The Close frame was sent. Both connections end at this time at the latest.
    Sent(Moment),
}

impl TunnelFrames {
    /// With a hook for the messages, or without one.
    pub(super) fn new(hook: Option<Box<FrameHook>>) -> Self {
        Self { hook, ..Self::default() }
    }

    /// Takes bytes of the server. Returns how many go to the client, and the Close frame that follows them.
    fn take(&mut self, bytes: &[u8]) -> (usize, Option<Close<'static>>) {
        match self.close {
            TunnelClose::Sent(_) => (0, None),
            TunnelClose::No => {
                self.walker.walk(bytes);
                (bytes.len(), None)
            }
            TunnelClose::Due(close) => {
                let count = self.walker.walk_to_end(bytes);
                if self.walker.has_closed() {
                    // The server itself closes the WebSocket.
                    self.close = TunnelClose::No;
                    return (bytes.len(), None);
                }
                (count, self.walker.is_between_frames().then_some(close))
            }
        }
    }

    /// When both connections end at the latest, once the Close frame was sent.
    pub(super) fn ends_at(&self) -> Option<Moment> {
        match self.close {
            TunnelClose::No | TunnelClose::Due(_) => None,
            TunnelClose::Sent(until) => Some(until),
        }
    }
}

impl Worker {
    /// Sends bytes of the server to the client of a tunnel.
    pub(super) fn relay_to_client<R: Reactor>(
        &mut self,
        reactor: &mut R,
        id: Id<Exchange>,
        bytes: &[u8],
    ) {
        let Some(exchange) = self.exchanges.get_mut(id) else { return };
        let to = exchange.requester;
        let Some(frames) = exchange.frames.as_deref_mut() else {
            return self.send_switched(reactor, to, bytes);
        };
        let (count, close) = frames.take(bytes);
        if count > 0 {
            self.send_switched(reactor, to, &bytes[..count]);
        }
        if let Some(close) = close {
            self.send_close(reactor, id, close);
        }
    }

    /// Ends a tunnel, if it is a WebSocket: with a Close frame as soon as no frame of the server is in progress.
    pub(crate) fn stop_tunnel<R: Reactor>(
        &mut self,
        reactor: &mut R,
        id: Id<Exchange>,
        close: Close<'static>,
    ) {
        let Some(exchange) = self.exchanges.get_mut(id) else { return };
        if exchange.stage != Stage::Tunnel || exchange.ended.server {
            return;
        }
        let Some(frames) = exchange.frames.as_deref_mut() else { return };
        let is_told = frames.hook.as_ref().is_some_and(|hook| hook.has_told_client());
        if !matches!(frames.close, TunnelClose::No) || frames.walker.has_closed() || is_told {
            return;
        }
        match frames.walker.is_between_frames() {
            true => self.send_close(reactor, id, close),
            false => frames.close = TunnelClose::Due(close),
        }
    }

    /// Ends a new tunnel if the process is stopping, or if its listener or server was removed: it is not among the tunnels that are
    /// closed in steps.
    pub(super) fn stop_late_tunnel<R: Reactor>(&mut self, reactor: &mut R, id: Id<Exchange>) {
        let Some(exchange) = self.exchanges.get(id) else { return };
        let (to, listener) = (exchange.requester, exchange.listener);
        let close = match self.stopping {
            true => self.stop.drain.is_due(to.sock).then_some(self.stop.drain.close()),
            false => {
                let is_gone = self.settings.newest().is_listener_gone(listener);
                self.close_of_removed(Running::Proxy(id), is_gone)
            }
        };
        if let Some(close) = close {
            self.stop_tunnel(reactor, id, close);
        }
    }

    fn send_close<R: Reactor>(&mut self, reactor: &mut R, id: Id<Exchange>, close: Close<'static>) {
        let until = reactor.now().after(CLOSE_SPAN);
        let Some(exchange) = self.exchanges.get_mut(id) else { return };
        let (to, up) = (exchange.requester, exchange.attempt.up);
        if let Some(frames) = exchange.frames.as_deref_mut() {
            frames.close = TunnelClose::Sent(until);
        }
        self.accounts.counters.tunnels_closed.add(1);
        self.encode_switched(reactor, to, |out| encode_close(out, Some(close), None));
        self.note_tunnel_stopped(id, close);
        // A server that waits for its client to read more would not be notified of the end.
        self.set_server_receiving(reactor, up, true);
        self.arm_tunnel(reactor, id);
    }

    /// A hook closes both sides: limits the time that this may take.
    pub(in crate::action) fn limit_close<R: Reactor>(&mut self, reactor: &mut R, id: Id<Exchange>) {
        let until = reactor.now().after(CLOSE_SPAN);
        let frames =
            self.exchanges.find_mut(id).and_then(|exchange| exchange.frames.as_deref_mut());
        if let Some(frames) = frames
            && !matches!(frames.close, TunnelClose::Sent(_))
        {
            frames.close = TunnelClose::Sent(until);
            self.arm_tunnel(reactor, id);
        }
    }

    /// Ends a tunnel both of whose sides have sent a Close frame: after everything that waits for them was sent.
    pub(in crate::action) fn end_tunnel_gracefully<R: Reactor>(
        &mut self,
        reactor: &mut R,
        id: Id<Exchange>,
    ) {
        let Some(exchange) = self.exchanges.get(id) else { return };
        let (to, up) = (exchange.requester, exchange.attempt.up);
        self.end_tunnel(id);
        self.close_tunnel(reactor, up);
        self.end_switched(reactor, to);
    }

    /// The close handshake took too long: ends both connections.
    pub(super) fn end_closed_tunnel<R: Reactor>(&mut self, reactor: &mut R, id: Id<Exchange>) {
        let Some(exchange) = self.exchanges.get(id) else { return };
        let (to, up) = (exchange.requester, exchange.attempt.up);
        self.end_tunnel(id);
        self.abandon_server(reactor, up);
        self.end_switched(reactor, to);
    }
}
