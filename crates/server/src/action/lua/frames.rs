//! `on_frame` of the applications that routes name in `hooks`: messages of forwarded WebSockets.
//! In: bytes of both sides of a tunnel. Out: whole messages for the other side; calls of `on_frame` and `on_frame_end`.
//! Never: forwards a message that the hook has not seen; runs two calls for a tunnel at once; sends anything after a Close frame.
//! Limits: those of `[websocket]` for each message, and `QUEUE_BYTES_MAX`. While a call waits, or a side does not read, no side
//! whose messages would follow is read: its lane holds what the last read has brought. Callbacks run in their share of a turn.
//! Invariant: a tunnel whose hook fails, or whose application is gone, is closed on both sides.

use tidegate_base::Id;
use tidegate_lua::{CallbackEnd, FrameDecision, FrameKind, TunnelId};
use tidegate_reactor::Reactor;
use tidegate_wire::websocket::{
    Close, CloseCode, Decoder, FrameRules, Incoming, Kind, Limits, Message, Role, encode_close,
    encode_message, encode_ping, encode_pong,
};

use crate::action::lua::response::{HOOK_FAILED, HOOK_FULL, ResponseHook};
use crate::action::proxy::Failure;
use crate::action::proxy::exchange::Exchange;
use crate::action::proxy::tunnel::Side;
use crate::requester::Requester;
use crate::worker::Worker;

/// Bytes that may wait for a side when a script sends it a message of its own. With more, the tunnel is closed with 1013.
const QUEUE_BYTES_MAX: usize = 1024 * 1024;
/// RFC 6455 section 7.1.5: the codes for the end of a connection without a Close frame, and for a Close frame without a code.
const ABNORMAL: u16 = 1006;
const NO_CODE: u16 = 1005;
/// The failure of a request whose server has switched to another protocol: its bytes would pass the hook.
const NO_FRAMES: Failure = Failure::new(
    502,
    "the server switched to a protocol whose messages the application cannot see",
);

/// The hook of a tunnel.
#[derive(Debug)]
pub(crate) struct FrameHook {
    /// The index of the application.
    app: usize,
    /// The number of the VM that keeps the tunnel.
    life: u32,
    /// The VM's id of the tunnel; `Id::NONE` once the VM has forgotten it.
    handle: TunnelId,
    /// The limits of messages.
    limits: Limits,
    /// The messages of the client, and those of the server. `None` while they are being handled.
    lanes: [Option<Box<Lane>>; 2],
    /// The message whose call of `on_frame` waits.
    waiting: Option<Held>,
    /// A call of `on_frame` is in progress, or its effects are carried out.
    is_calling: bool,
    /// The messages wait for the next share of a turn.
    is_put_off: bool,
    /// Tidegate itself closes both sides. Messages are dropped.
    is_closing: bool,
    /// The sides that have got a Close frame, by `Side`.
    was_told: [bool; 2],
    /// The sides that have sent a Close frame or ended their direction, by `Side`.
    has_left: [bool; 2],
    /// The code and the reason of the first Close frame.
    close: Option<(u16, String)>,
}

/// The messages of one side.
#[derive(Debug)]
struct Lane {
    decoder: Decoder,
    /// The message in progress, if it arrives in pieces. Without capacity between messages.
    message: Vec<u8>,
    /// Bytes that were not decoded yet. Without capacity if there are none.
    held: Vec<u8>,
    /// The side has ended its direction after the bytes in `held`.
    is_finished: bool,
}

/// A message that waits for the decision of a script.
#[derive(Debug)]
struct Held {
    from: Side,
    kind: FrameKind,
    data: Vec<u8>,
}

/// A tunnel that has ended, and whose VM has not been told.
#[derive(Debug)]
pub(crate) struct EndedTunnel {
    app: usize,
    life: u32,
    handle: TunnelId,
    close: Option<(u16, String)>,
}

impl FrameHook {
    fn new(hook: ResponseHook, handle: TunnelId, limits: Limits) -> Self {
        // The worker is the server of the client and the client of the server.
        let lane = |role| {
            let decoder = Decoder::new(FrameRules { role, allows_deflate: false });
            let lane = Lane { decoder, message: Vec::new(), held: Vec::new(), is_finished: false };
            Some(Box::new(lane))
        };
        Self {
            app: hook.app,
            life: hook.life,
            handle,
            limits,
            lanes: [lane(Role::Server), lane(Role::Client)],
            waiting: None,
            is_calling: false,
            is_put_off: false,
            is_closing: false,
            was_told: [false; 2],
            has_left: [false; 2],
            close: None,
        }
    }

    /// The VM with the index `from` now has the index `to`.
    pub(super) fn rename_app(&mut self, from: usize, to: usize) {
        if self.app == from {
            self.app = to;
        }
    }

    /// What the VM is told at the end of the tunnel; `None` if it has forgotten the tunnel.
    pub(crate) fn end(self) -> Option<EndedTunnel> {
        let Self { app, life, handle, close, .. } = self;
        (!handle.is_none()).then_some(EndedTunnel { app, life, handle, close })
    }

    /// Whether the messages of both sides have to wait.
    fn is_busy(&self) -> bool {
        !self.is_closing && (self.waiting.is_some() || self.is_put_off)
    }

    /// Whether a call for a message of this side waits.
    fn is_deciding(&self, from: Side) -> bool {
        !self.is_closing && self.waiting.as_ref().is_some_and(|held| held.from == from)
    }

    /// Whether a call waits. It has a deadline of its own.
    pub(in crate::action) fn is_waiting(&self) -> bool {
        !self.is_closing && self.waiting.is_some()
    }

    /// Whether the client has got a Close frame.
    pub(in crate::action) fn has_told_client(&self) -> bool {
        self.was_told[Side::Client as usize]
    }

    fn note_close(&mut self, code: u16, reason: &str) {
        self.close.get_or_insert_with(|| (code, reason.to_owned()));
    }
}

impl Side {
    fn other(self) -> Self {
        match self {
            Self::Client => Self::Server,
            Self::Server => Self::Client,
        }
    }
}

/// Start and end of a tunnel.
impl Worker {
    /// Lets the hook of a request see the messages of its WebSocket, if the hook wants to. `is_websocket`: the request opens one.
    /// `Err`: the server's response must not be forwarded.
    pub(in crate::action) fn hook_frames(
        &mut self,
        id: Id<Exchange>,
        hook: ResponseHook,
        is_websocket: bool,
    ) -> Result<Option<Box<FrameHook>>, Failure> {
        if !hook.sees_frames {
            // `on_response` does not change a switch of protocols: the VM keeps the request no longer.
            self.close_response_hook(hook);
            return Ok(None);
        }
        if !is_websocket || !self.lua.apps.is_running(hook.app, hook.life) {
            self.close_response_hook(hook);
            return Err(if is_websocket { HOOK_FAILED } else { NO_FRAMES });
        }
        let Some(exchange) = self.exchanges.find(id) else { return Err(HOOK_FAILED) };
        let limits = self.settings.of(exchange.era).websockets.get(hook.endpoint).limits;
        let vm = self.lua.apps.present(hook.app);
        match vm.and_then(|vm| vm.open_tunnel(hook.handle, tag_of(id))) {
            Some(handle) => Ok(Some(Box::new(FrameHook::new(hook, handle, limits)))),
            None => {
                self.close_response_hook(hook);
                Err(HOOK_FULL)
            }
        }
    }

    /// Runs `on_frame_end` for the tunnels that have ended. Returns whether there were any.
    pub(crate) fn end_hooked_tunnels<R: Reactor>(&mut self, reactor: &mut R) -> bool {
        let mut has_ended = false;
        while let Some(ended) = self.lua.ended_tunnels.pop() {
            has_ended = true;
            self.tell_end(reactor, ended);
        }
        has_ended
    }

    fn tell_end<R: Reactor>(&mut self, reactor: &mut R, ended: EndedTunnel) {
        let EndedTunnel { app, life, handle, close } = ended;
        if !self.lua.apps.is_running(app, life) {
            return;
        }
        let (code, reason) = close.unwrap_or((ABNORMAL, String::new()));
        self.call_app(reactor, app, "on_frame_end", None, |vm| {
            vm.end_tunnel(handle, code, &reason)
        });
    }

    /// The tunnels of an application whose calls wait, with their requesters and the sizes of their messages.
    pub(super) fn waiting_tunnels(&self, app: usize) -> Vec<(Id<Exchange>, Requester, usize)> {
        let waiting = |(id, exchange): (Id<Exchange>, &Exchange)| {
            let hook = exchange.frame_hook().filter(|hook| hook.app == app)?;
            Some((id, exchange.requester, hook.waiting.as_ref()?.data.len()))
        };
        self.exchanges.iter().filter_map(waiting).collect()
    }

    /// Closes a tunnel whose call waits, in order to free the memory of the call. `on_frame_end` runs later.
    pub(super) fn evict_tunnel<R: Reactor>(&mut self, reactor: &mut R, id: Id<Exchange>) {
        let Some(hook) = self.frame_hook(id) else { return };
        hook.waiting = None;
        let (app, life, handle) = (hook.app, hook.life, hook.handle);
        if self.lua.apps.is_running(app, life)
            && let Some(vm) = self.lua.apps.present(app)
        {
            vm.cancel_frame(handle);
        }
        self.close_frames(reactor, id, Close::new(CloseCode::INTERNAL_ERROR));
        let Some(hook) = self.frame_hook(id) else { return };
        // What has arrived is still to be examined: it may include the Close frames of the sides.
        let is_put_off = core::mem::replace(&mut hook.is_put_off, true);
        let handle = core::mem::replace(&mut hook.handle, Id::NONE);
        let (life, close) = (hook.life, hook.close.clone());
        if !is_put_off {
            self.lua.put_off_tunnels.push_back(id);
        }
        if !handle.is_none() {
            self.lua.ended_tunnels.push(EndedTunnel { app, life, handle, close });
        }
    }

    /// Closes the tunnels of an application whose VM ends.
    pub(super) fn abandon_tunnels<R: Reactor>(
        &mut self,
        reactor: &mut R,
        app: usize,
        (code, reason): (CloseCode, &'static str),
    ) {
        let of_app = |(id, exchange): (Id<Exchange>, &Exchange)| {
            (exchange.frame_hook()?.app == app).then_some(id)
        };
        let tunnels: Vec<_> = self.exchanges.iter().filter_map(of_app).collect();
        for id in tunnels {
            self.close_frames(reactor, id, Close { code, reason });
            let Some(hook) = self.frame_hook(id) else { continue };
            let handle = core::mem::replace(&mut hook.handle, Id::NONE);
            let (life, close) = (hook.life, hook.close.clone());
            if !handle.is_none() {
                self.tell_end(reactor, EndedTunnel { app, life, handle, close });
            }
        }
    }

    /// The tunnels that VMs keep. For tests.
    pub(crate) fn hooked_tunnels(&self) -> usize {
        let hooks = self.exchanges.iter().filter_map(|(_, exchange)| exchange.frame_hook());
        hooks
            .filter(|hook| !hook.handle.is_none() && self.lua.apps.is_running(hook.app, hook.life))
            .count()
    }

    /// The largest number of bytes of one side of a tunnel that wait for its hook. For tests.
    #[must_use]
    pub fn hooked_frame_bytes_max(&self) -> usize {
        let hooks = self.exchanges.iter().filter_map(|(_, exchange)| exchange.frame_hook());
        let lanes = hooks.flat_map(|hook| hook.lanes.iter().flatten());
        lanes.map(|lane| lane.held.len()).max().unwrap_or(0)
    }

    fn frame_hook(&mut self, id: Id<Exchange>) -> Option<&mut FrameHook> {
        self.exchanges.find_mut(id)?.frames.as_deref_mut()?.hook.as_deref_mut()
    }
}

/// Bytes of both sides.
impl Worker {
    /// Takes bytes of one side of a tunnel with a hook.
    pub(in crate::action) fn frames_received<R: Reactor>(
        &mut self,
        reactor: &mut R,
        id: Id<Exchange>,
        from: Side,
        bytes: &[u8],
    ) {
        let buffer = self.buffers.take();
        let Some(lane) = self.frame_hook(id).and_then(|hook| hook.lanes[from as usize].as_mut())
        else {
            return self.buffers.put(buffer);
        };
        let unused = match lane.held.capacity() {
            0 => core::mem::replace(&mut lane.held, buffer),
            _ => buffer,
        };
        lane.held.extend_from_slice(bytes);
        self.buffers.put(unused);
        self.serve_lane(reactor, id, from);
        if self.has_frame_hook(id) {
            self.arm_tunnel(reactor, id);
        }
    }

    /// One side of a tunnel with a hook has ended its direction. Returns whether the tunnel takes that over.
    pub(in crate::action) fn frames_finished<R: Reactor>(
        &mut self,
        reactor: &mut R,
        id: Id<Exchange>,
        by: Side,
    ) -> bool {
        let Some(hook) = self.frame_hook(id) else { return false };
        if hook.is_closing {
            self.note_left(reactor, id, by);
            return true;
        }
        let is_deciding = hook.is_deciding(by);
        let Some(lane) = hook.lanes[by as usize].as_mut() else { return false };
        // The messages before the end come first.
        lane.is_finished = is_deciding || !lane.held.is_empty();
        let waits = lane.is_finished;
        hook.has_left[by as usize] |= !waits;
        waits
    }

    /// Whether a tunnel has a hook for its messages.
    pub(in crate::action) fn has_frame_hook(&self, id: Id<Exchange>) -> bool {
        self.exchanges.find(id).is_some_and(|exchange| exchange.frame_hook().is_some())
    }

    /// Continues with the messages of both sides, and reads from the sides that need not wait.
    pub(in crate::action) fn continue_frames<R: Reactor>(
        &mut self,
        reactor: &mut R,
        id: Id<Exchange>,
    ) {
        for side in [Side::Client, Side::Server] {
            self.serve_lane(reactor, id, side);
        }
        for side in [Side::Client, Side::Server] {
            self.let_read(reactor, id, side);
        }
        if self.has_frame_hook(id) {
            self.arm_tunnel(reactor, id);
        }
    }

    /// Continues the tunnels that have waited for a share of a turn.
    pub(super) fn resume_put_off_tunnels<R: Reactor>(&mut self, reactor: &mut R) {
        for _ in 0..self.lua.put_off_tunnels.len() {
            if self.lua.share.is_used_up() {
                return;
            }
            let Some(id) = self.lua.put_off_tunnels.pop_front() else { return };
            if let Some(hook) = self.frame_hook(id) {
                hook.is_put_off = false;
                self.continue_frames(reactor, id);
            }
        }
    }

    /// Decodes the bytes of one side, until its messages have to wait.
    fn serve_lane<R: Reactor>(&mut self, reactor: &mut R, id: Id<Exchange>, from: Side) {
        let Some(hook) = self.frame_hook(id) else { return };
        let limits = hook.limits;
        let Some(mut lane) = hook.lanes[from as usize].take() else { return };
        let (mut at, mut fault) = (0, None);
        while at < lane.held.len() && self.takes_message(reactor, id, from) {
            let Lane { decoder, message, held, .. } = &mut *lane;
            match decoder.decode_message(&mut held[at..], &limits, message, None) {
                Ok(step) => {
                    at += step.consumed;
                    if let Some(incoming) = step.incoming {
                        self.take_incoming(reactor, id, from, &incoming);
                    }
                }
                Err(found) => {
                    decoder.fail();
                    (at, fault) = (held.len(), Some(found));
                }
            }
        }
        lane.held.drain(..at);
        if lane.held.is_empty() {
            self.buffers.put(core::mem::take(&mut lane.held));
        }
        if !lane.decoder.is_in_message() {
            self.buffers.put(core::mem::take(&mut lane.message));
        }
        let is_deciding = self.frame_hook(id).is_some_and(|hook| hook.is_deciding(from));
        let is_empty = lane.held.is_empty() && !is_deciding;
        let is_finished = is_empty && core::mem::take(&mut lane.is_finished);
        if let Some(hook) = self.frame_hook(id) {
            hook.lanes[from as usize] = Some(lane);
        }
        if let Some(fault) = fault {
            self.note_frame_fault(
                reactor,
                id,
                from,
                Close { code: fault.kind.code(), reason: fault.kind.reason() },
            );
        }
        self.stop_reading(reactor, id, from);
        if is_finished {
            self.tunnel_finished(reactor, id, from);
        }
    }

    /// Whether the next message of a side is handled now.
    fn takes_message<R: Reactor>(&mut self, reactor: &mut R, id: Id<Exchange>, from: Side) -> bool {
        let Some(hook) = self.frame_hook(id) else { return false };
        if hook.is_closing {
            return true;
        }
        let is_busy = hook.is_calling || hook.is_busy();
        if is_busy || self.is_side_blocked(reactor, id, from.other()) {
            return false;
        }
        if !self.lua.share.is_used_up() {
            return true;
        }
        if let Some(hook) = self.frame_hook(id) {
            hook.is_put_off = true;
            self.lua.put_off_tunnels.push_back(id);
        }
        false
    }

    /// Whether a side does not read what it gets.
    fn is_side_blocked<R: Reactor>(
        &mut self,
        reactor: &mut R,
        id: Id<Exchange>,
        side: Side,
    ) -> bool {
        let Some(exchange) = self.exchanges.find(id) else { return false };
        let (to, up) = (exchange.requester, exchange.attempt.up);
        if exchange.frame_hook().is_none_or(|hook| hook.was_told[side as usize]) {
            // Nothing follows a Close frame: what the other side sends is dropped.
            return false;
        }
        match side {
            Side::Client => self.is_client_blocked(reactor, to),
            Side::Server => self.is_server_blocked(reactor, up),
        }
    }

    /// Stops reading a side whose messages have to wait.
    fn stop_reading<R: Reactor>(&mut self, reactor: &mut R, id: Id<Exchange>, from: Side) {
        let Some(hook) = self.frame_hook(id) else { return };
        let (is_busy, is_closing) = (hook.is_busy(), hook.is_closing);
        if is_closing || !is_busy && !self.is_side_blocked(reactor, id, from.other()) {
            return;
        }
        let Some(exchange) = self.exchanges.find(id) else { return };
        let (to, up) = (exchange.requester, exchange.attempt.up);
        match from {
            Side::Client => self.pause_switched(reactor, to, true),
            Side::Server => {
                self.set_server_receiving(reactor, up, false);
                if !is_busy {
                    self.await_client_drain(to);
                }
            }
        }
    }

    /// Reads a side again, unless its messages have to wait.
    fn let_read<R: Reactor>(&mut self, reactor: &mut R, id: Id<Exchange>, from: Side) {
        let Some(hook) = self.frame_hook(id) else { return };
        let (is_busy, is_closing) = (hook.is_busy(), hook.is_closing);
        let waits = is_busy || !is_closing && self.is_side_blocked(reactor, id, from.other());
        let Some(exchange) = self.exchanges.find(id).filter(|_| !waits) else { return };
        let (to, up) = (exchange.requester, exchange.attempt.up);
        match from {
            Side::Client => self.pause_switched(reactor, to, false),
            Side::Server => self.set_server_receiving(reactor, up, true),
        }
    }
}

/// Messages.
impl Worker {
    fn take_incoming<R: Reactor>(
        &mut self,
        reactor: &mut R,
        id: Id<Exchange>,
        from: Side,
        incoming: &Incoming<'_>,
    ) {
        let (kind, data) = match incoming {
            Incoming::Message(message @ Message::Text(_)) => (FrameKind::Text, message.bytes()),
            Incoming::Message(message @ Message::Binary(_)) => (FrameKind::Binary, message.bytes()),
            Incoming::Close(close) => {
                let code = close.map_or(NO_CODE, |close| close.code.get());
                (FrameKind::Close(code), close.map_or("", |close| close.reason).as_bytes())
            }
            Incoming::Ping(payload) => {
                return self.send_to_side(reactor, id, from.other(), |out, key| {
                    let sent = encode_ping(out, payload, key);
                    debug_assert!(sent.is_ok(), "a Ping that was received fits");
                });
            }
            Incoming::Pong(payload) => {
                return self.send_to_side(reactor, id, from.other(), |out, key| {
                    let sent = encode_pong(out, payload, key);
                    debug_assert!(sent.is_ok(), "a Pong that was received fits");
                });
            }
        };
        let Some(hook) = self.frame_hook(id) else { return };
        if hook.is_closing {
            if matches!(kind, FrameKind::Close(_)) {
                self.note_left(reactor, id, from);
            }
            return;
        }
        let (app, life, handle) = (hook.app, hook.life, hook.handle);
        hook.is_calling = true;
        hook.has_left[from as usize] |= matches!(kind, FrameKind::Close(_));
        self.mark_tunnel(id);
        let verdict = match self.lua.apps.is_running(app, life) {
            true => self.call_app(reactor, app, "on_frame", None, |vm| {
                vm.frame(handle, from == Side::Client, (kind, data))
            }),
            false => None,
        };
        self.note_frame_call(reactor, id, (from, kind, data), verdict.as_ref());
    }

    /// A call of `on_frame` has ended or waits.
    fn note_frame_call<R: Reactor>(
        &mut self,
        reactor: &mut R,
        id: Id<Exchange>,
        (from, kind, data): (Side, FrameKind, &[u8]),
        verdict: Option<&CallbackEnd>,
    ) {
        // The call may have closed the tunnel.
        let Some(hook) = self.frame_hook(id) else { return };
        let (app, handle) = (hook.app, hook.handle);
        hook.is_calling = false;
        match verdict {
            Some(CallbackEnd::Waiting) => {
                hook.waiting = Some(Held { from, kind, data: data.to_vec() });
                for side in [Side::Client, Side::Server] {
                    self.stop_reading(reactor, id, side);
                }
            }
            Some(CallbackEnd::Done) => {
                let vm = self.lua.apps.present(app);
                let decision = vm.map_or(FrameDecision::Drop, |vm| vm.take_frame_decision(handle));
                self.forward_message(reactor, id, (from, kind, data), &decision);
            }
            Some(CallbackEnd::Failed(_)) | None => {
                self.close_frames(reactor, id, Close::new(CloseCode::INTERNAL_ERROR));
            }
        }
    }

    /// A call of `on_frame` of the tunnel with this tag has continued.
    pub(super) fn note_frame_turn<R: Reactor>(
        &mut self,
        reactor: &mut R,
        tag: u64,
        verdict: &CallbackEnd,
    ) {
        let id = id_of(tag);
        if *verdict == CallbackEnd::Waiting {
            return;
        }
        let Some(Held { from, kind, data }) =
            self.frame_hook(id).and_then(|hook| hook.waiting.take())
        else {
            return;
        };
        self.note_frame_call(reactor, id, (from, kind, &data), Some(verdict));
        self.continue_frames(reactor, id);
    }

    /// The requester of the tunnel with this tag.
    pub(super) fn requester_of_tunnel(&self, tag: u64) -> Option<Requester> {
        self.exchanges.find(id_of(tag)).map(|exchange| exchange.requester)
    }

    fn mark_tunnel(&mut self, id: Id<Exchange>) {
        if let Some(to) = self.exchanges.find(id).map(|exchange| exchange.requester) {
            self.mark_requester(to);
        }
    }

    /// Sends to the other side what `on_frame` has decided.
    fn forward_message<R: Reactor>(
        &mut self,
        reactor: &mut R,
        id: Id<Exchange>,
        (from, kind, data): (Side, FrameKind, &[u8]),
        decision: &FrameDecision,
    ) {
        let Some(hook) = self.frame_hook(id).filter(|hook| !hook.is_closing) else { return };
        let to = from.other();
        let (is_text, data) = match (decision, kind) {
            (_, FrameKind::Close(code)) => {
                let reason = core::str::from_utf8(data).unwrap_or_default();
                hook.note_close(code, reason);
                let close = CloseCode::new(code).map(|code| Close { code, reason });
                return self.send_close_frame(reactor, id, to, close);
            }
            (FrameDecision::Drop, _) => return,
            (FrameDecision::Pass, kind) => (kind == FrameKind::Text, data),
            (FrameDecision::Replace { is_text, data }, _) => (*is_text, &data[..]),
        };
        let kind = if is_text { Kind::Text } else { Kind::Binary };
        self.send_to_side(reactor, id, to, |out, key| encode_message(out, kind, data, key));
    }

    /// Carries out `Effect::SendFrame`.
    pub(super) fn send_lua_frame<R: Reactor>(
        &mut self,
        reactor: &mut R,
        (tag, to_client): (u64, bool),
        (is_text, data): (bool, &[u8]),
    ) {
        let id = id_of(tag);
        let Some(exchange) = self.exchanges.find(id) else { return };
        let (to, up) = (exchange.requester, exchange.attempt.up);
        let (side, pending) = match to_client {
            true => (Side::Client, self.client_pending(reactor, to)),
            false => (Side::Server, self.request_pending(reactor, up)),
        };
        if pending > QUEUE_BYTES_MAX {
            self.accounts.counters.lua_slow_clients.add(1);
            return self.close_frames(reactor, id, Close::new(CloseCode::TRY_AGAIN_LATER));
        }
        let kind = if is_text { Kind::Text } else { Kind::Binary };
        self.send_to_side(reactor, id, side, |out, key| encode_message(out, kind, data, key));
        self.stop_reading(reactor, id, side.other());
    }

    /// Carries out `Effect::CloseTunnel`.
    pub(super) fn close_lua_tunnel<R: Reactor>(
        &mut self,
        reactor: &mut R,
        tag: u64,
        (code, reason): (u16, &[u8]),
    ) {
        let reason = core::str::from_utf8(reason).unwrap_or_default();
        if let Some(code) = CloseCode::new(code) {
            self.close_frames(reactor, id_of(tag), Close { code, reason });
        }
    }

    /// Sends a frame to a side that has got no Close frame.
    fn send_to_side<R: Reactor>(
        &mut self,
        reactor: &mut R,
        id: Id<Exchange>,
        side: Side,
        encode: impl FnOnce(&mut Vec<u8>, Option<[u8; 4]>),
    ) {
        let Some(hook) = self.frame_hook(id).filter(|hook| !hook.was_told[side as usize]) else {
            return;
        };
        let app = hook.app;
        let Some(exchange) = self.exchanges.find(id) else { return };
        let (to, up) = (exchange.requester, exchange.attempt.up);
        match side {
            Side::Client => self.encode_switched(reactor, to, |out| encode(out, None)),
            Side::Server => {
                // Without a VM, only a Close frame of Tidegate follows, whose contents no client chooses.
                let key = self.lua.apps.present(app).map_or([0; 4], |vm| vm.mask_key());
                let mut out = self.buffers.take();
                encode(&mut out, Some(key));
                self.send_tunnel(reactor, up, &out);
                self.buffers.put(out);
            }
        }
        self.arm_tunnel(reactor, id);
    }
}

/// Close frames.
impl Worker {
    /// Sends a Close frame to a side that has got none.
    fn send_close_frame<R: Reactor>(
        &mut self,
        reactor: &mut R,
        id: Id<Exchange>,
        side: Side,
        close: Option<Close<'_>>,
    ) {
        self.send_to_side(reactor, id, side, |out, key| encode_close(out, close, key));
        self.note_told(id, side);
    }

    /// Tidegate has sent the client a Close frame because of a stop or a reload (`websocket_tunnel.rs`).
    pub(in crate::action) fn note_tunnel_stopped(&mut self, id: Id<Exchange>, close: Close<'_>) {
        if let Some(hook) = self.frame_hook(id) {
            hook.note_close(close.code.get(), close.reason);
        }
        self.note_told(id, Side::Client);
    }

    /// A side has got a Close frame: `send` of the script fails from now on.
    fn note_told(&mut self, id: Id<Exchange>, side: Side) {
        let Some(hook) = self.frame_hook(id) else { return };
        hook.was_told[side as usize] = true;
        let (app, life, handle) = (hook.app, hook.life, hook.handle);
        if self.lua.apps.is_running(app, life)
            && let Some(vm) = self.lua.apps.present(app)
        {
            vm.note_tunnel_closing(handle);
        }
    }

    /// Closes both sides.
    fn close_frames<R: Reactor>(&mut self, reactor: &mut R, id: Id<Exchange>, close: Close<'_>) {
        let Some(hook) = self.frame_hook(id).filter(|hook| !hook.is_closing) else { return };
        hook.is_closing = true;
        hook.note_close(close.code.get(), close.reason);
        for side in [Side::Client, Side::Server] {
            self.send_close_frame(reactor, id, side, Some(close));
        }
        self.limit_close(reactor, id);
        for side in [Side::Client, Side::Server] {
            self.let_read(reactor, id, side);
        }
        self.end_if_both_left(reactor, id);
    }

    /// A side has violated the protocol, or exceeds a limit.
    fn note_frame_fault<R: Reactor>(
        &mut self,
        reactor: &mut R,
        id: Id<Exchange>,
        from: Side,
        close: Close<'_>,
    ) {
        let Some(hook) = self.frame_hook(id) else { return };
        hook.has_left[from as usize] = true;
        hook.note_close(close.code.get(), close.reason);
        self.send_close_frame(reactor, id, from, Some(close));
        // It is not the fault of the other side.
        self.close_frames(reactor, id, Close::new(CloseCode::GOING_AWAY));
        self.end_if_both_left(reactor, id);
    }

    /// A side has sent its Close frame, or has ended its direction, while Tidegate closes both sides.
    fn note_left<R: Reactor>(&mut self, reactor: &mut R, id: Id<Exchange>, side: Side) {
        if let Some(hook) = self.frame_hook(id) {
            hook.has_left[side as usize] = true;
        }
        self.end_if_both_left(reactor, id);
    }

    fn end_if_both_left<R: Reactor>(&mut self, reactor: &mut R, id: Id<Exchange>) {
        let Some(hook) = self.frame_hook(id) else { return };
        if hook.is_closing && hook.has_left == [true; 2] {
            self.end_tunnel_gracefully(reactor, id);
        }
    }
}

/// The tag by which a VM addresses a tunnel.
fn tag_of(id: Id<Exchange>) -> u64 {
    u64::from(id.generation) << 32 | u64::from(id.index)
}

fn id_of(tag: u64) -> Id<Exchange> {
    Id::new(tag as u32, (tag >> 32) as u32)
}
