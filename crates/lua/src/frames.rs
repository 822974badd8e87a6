//! Messages of forwarded WebSockets on their way through `on_frame`.
//! In: messages and Close frames of both sides. Out: what becomes of each; messages and Close frames of the script, as effects.
//! Never: runs two calls of `on_frame` for a tunnel at once: the worker shows the next message when the call has ended.
//! Limits: `TUNNELS_MAX` tunnels at once; a call waits for up to `HOOK_WAIT_MAX`; `OUTPUT_BYTES_MAX` of messages between two
//! waits.
//! Invariant: a tunnel keeps the request that opened it until its end, and names the task of its call exactly while it waits.

use tidegate_base::{Id, Moment};
use tidegate_wire::websocket::MaskKey;

use crate::body::HOOK_WAIT_MAX;
use crate::clients::check_close;
use crate::engine::{Argument, Entry};
use crate::host::{EXCHANGES_MAX, Effect, Host, ScriptRequestId};
use crate::schedule::{Owner, TaskId};
use crate::vm::{CallbackEnd, Handler, ON_FRAME, Vm, numbers};

/// Maximum number of tunnels of a VM. Each keeps a request.
pub(crate) const TUNNELS_MAX: usize = EXCHANGES_MAX;
/// The error of a method of a tunnel that ends or has ended.
const CLOSED: &str = "the connection is closed";

/// A forwarded WebSocket.
#[derive(Debug)]
pub struct Tunnel {
    /// The worker's tag of the tunnel.
    tag: u64,
    /// The request that has opened it.
    request: ScriptRequestId,
    /// The coroutine of `on_frame`, while it waits.
    pub(crate) task: TaskId,
    /// When the current call ends at the latest.
    pub(crate) by: Moment,
    /// The script has not closed it.
    is_open: bool,
    /// What becomes of the message of the current call.
    decision: FrameDecision,
}

impl Tunnel {
    /// The worker's tag.
    pub(crate) fn tag(&self) -> u64 {
        self.tag
    }
}

/// Names a tunnel of a VM.
pub type TunnelId = Id<Tunnel>;

/// What `on_frame` gets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FrameKind {
    /// A text message.
    Text,
    /// A binary message.
    Binary,
    /// A Close frame with this code.
    Close(u16),
}

/// What becomes of a message.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum FrameDecision {
    /// It is forwarded.
    #[default]
    Pass,
    /// It is not forwarded.
    Drop,
    /// This message is forwarded instead.
    Replace {
        /// The message is text, not binary.
        is_text: bool,
        /// The message.
        data: Vec<u8>,
    },
}

/// Calls of scripts.
impl Host {
    fn open_tunnel(&self, id: TunnelId) -> Result<&Tunnel, &'static str> {
        self.tunnels.get(id).filter(|tunnel| tunnel.is_open).ok_or(CLOSED)
    }

    /// Whether a tunnel is open.
    pub(crate) fn is_tunnel_open(&self, id: TunnelId) -> bool {
        self.open_tunnel(id).is_ok()
    }

    /// `on_frame` has decided about a message. `message`: whether the new message is text, and its data.
    pub(crate) fn decide_frame(
        &mut self,
        id: TunnelId,
        message: Option<(bool, &[u8])>,
    ) -> Result<(), &'static str> {
        if let Some((is_text, data)) = message {
            self.check_message(data, is_text)?;
        }
        let tunnel = self.tunnels.get_mut(id).ok_or(CLOSED)?;
        tunnel.decision = match message {
            None => FrameDecision::Drop,
            Some((is_text, data)) => FrameDecision::Replace { is_text, data: data.to_vec() },
        };
        Ok(())
    }

    /// Sends a message to one side of a tunnel.
    pub(crate) fn send_to_side(
        &mut self,
        id: TunnelId,
        to_client: bool,
        (is_text, data): (bool, &[u8]),
    ) -> Result<(), &'static str> {
        let tag = self.open_tunnel(id)?.tag;
        self.check_message(data, is_text)?;
        let data = self.outbox.push(data);
        self.outbox.effects.push(Effect::SendFrame { tag, to_client, is_text, data });
        Ok(())
    }

    /// Ends both sides of a tunnel.
    pub(crate) fn close_tunnel(
        &mut self,
        id: TunnelId,
        code: u32,
        reason: &[u8],
    ) -> Result<(), &'static str> {
        check_close(code, reason)?;
        let tunnel = self.tunnels.get_mut(id).filter(|tunnel| tunnel.is_open).ok_or(CLOSED)?;
        tunnel.is_open = false;
        let tag = tunnel.tag;
        let reason = self.outbox.push(reason);
        self.outbox.effects.push(Effect::CloseTunnel { tag, code: code as u16, reason });
        Ok(())
    }
}

/// Events that the worker reports.
impl Vm {
    /// Takes over a tunnel, with the request that has opened it. `tag` is the worker's tag. `None` if the VM has too many.
    pub fn open_tunnel(&mut self, request: ScriptRequestId, tag: u64) -> Option<TunnelId> {
        let (task, by, decision) = (Id::NONE, Moment::NEVER, FrameDecision::Pass);
        let tunnel = Tunnel { tag, request, task, by, is_open: true, decision };
        self.engine.host().tunnels.insert(tunnel).ok()
    }

    /// Runs `on_frame`. When it has ended, `take_frame_decision` returns what becomes of the message.
    pub fn frame(
        &mut self,
        id: TunnelId,
        from_client: bool,
        (kind, data): (FrameKind, &[u8]),
    ) -> CallbackEnd {
        let host = self.engine.host();
        let by = host.now().after(HOOK_WAIT_MAX);
        let Some(tunnel) = host.tunnels.get_mut(id) else { return CallbackEnd::Done };
        (tunnel.by, tunnel.decision) = (by, FrameDecision::Pass);
        let ([a, b], [c, d]) = (numbers(id), numbers(tunnel.request));
        let (name, code) = match kind {
            FrameKind::Text => ("text", 0),
            FrameKind::Binary => ("binary", 0),
            FrameKind::Close(code) => ("close", code),
        };
        let (name, code) = (Argument::Bytes(name.as_bytes()), Argument::Number(f64::from(code)));
        let (from, data) = (Argument::Boolean(from_client), Argument::Bytes(data));
        let owner = (Owner::Tunnel(id), ON_FRAME);
        self.run(Entry::Frame, owner, &[a, b, c, d, from, name, data, code])
    }

    /// Takes what becomes of the message whose call has ended.
    pub fn take_frame_decision(&mut self, id: TunnelId) -> FrameDecision {
        let tunnel = self.engine.host().tunnels.get_mut(id);
        tunnel.map_or(FrameDecision::Drop, |tunnel| core::mem::take(&mut tunnel.decision))
    }

    /// Cancels `on_frame` if it waits: its message is not wanted any more.
    pub fn cancel_frame(&mut self, id: TunnelId) {
        let host = self.engine.host();
        if let Some(tunnel) = host.tunnels.get_mut(id) {
            host.schedule.cancel(core::mem::replace(&mut tunnel.task, Id::NONE));
        }
        self.forget_dropped();
    }

    /// A Close frame of the worker was sent to a side of a tunnel: `send` of the script fails from now on.
    pub fn note_tunnel_closing(&mut self, id: TunnelId) {
        if let Some(tunnel) = self.engine.host().tunnels.get_mut(id) {
            tunnel.is_open = false;
        }
    }

    /// Cancels `on_frame` if it waits, runs `on_frame_end` if there is one, and forgets the tunnel and its request. If too many
    /// calls of `on_frame_end` and `on_log` wait, the call is skipped and counted as a refusal.
    pub fn end_tunnel(&mut self, id: TunnelId, code: u16, reason: &str) -> CallbackEnd {
        let host = self.engine.host();
        let Some(tunnel) = host.tunnels.get_mut(id) else { return CallbackEnd::Done };
        tunnel.is_open = false;
        let (task, request) = (core::mem::replace(&mut tunnel.task, Id::NONE), tunnel.request);
        host.schedule.cancel(task);
        let ([a, b], [c, d]) = (numbers(id), numbers(request));
        let is_skipped = !self.can_log() && self.has(Handler::FrameEnd);
        self.engine.host().schedule.refusals += u64::from(is_skipped);
        let code = match is_skipped {
            true => Argument::Boolean(false),
            false => Argument::Number(f64::from(code)),
        };
        let reason = Argument::Bytes(reason.as_bytes());
        let owner = (Owner::Log, "on_frame_end");
        let verdict = self.run(Entry::FrameEnd, owner, &[a, b, c, d, code, reason]);
        let host = self.engine.host();
        host.tunnels.remove(id);
        host.close(request);
        self.forget_dropped();
        verdict
    }

    /// The number of tunnels.
    #[must_use]
    pub fn tunnels(&self) -> usize {
        self.engine.peek().tunnels.len()
    }

    /// A key for a frame to a server (RFC 6455 section 5.3: it must not be predictable).
    pub fn mask_key(&mut self) -> MaskKey {
        self.engine.host().mask_key()
    }
}
