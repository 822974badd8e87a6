//! Forwarded WebSockets in a test: the test plays the client and the server, and `on_frame` sees their messages.
//! In: orders of the test; messages and Close frames of the script. Out: calls of `on_frame` and `on_frame_end`; what each side
//! gets.
//! Never: runs two calls of `on_frame` of a tunnel at once.
//! Invariant: a tunnel is in the list from its beginning to the end of the test; its id of the VM matches nothing after its end.

use std::collections::{BTreeMap, VecDeque};

use serde_json::{Value, json};
use tidegate_lua::{
    CallbackEnd, FrameDecision, FrameKind, Handler, OperationId, ScriptRequestId, TunnelId,
};
use tidegate_wire::websocket::CloseCode;

use super::stage::{NO_TAG, Stage};

/// The tunnels by tag.
pub(super) type Tunnels = BTreeMap<u64, FakeTunnel>;

/// A forwarded WebSocket.
pub(super) struct FakeTunnel {
    handle: TunnelId,
    /// The order of the test that waits for the decision about a message, and the message: whether it is text, and its data.
    pending: Option<(OperationId, bool, Vec<u8>)>,
    /// The messages that the script itself has sent: whether to the client, whether text, and their data.
    sent: VecDeque<(bool, bool, Vec<u8>)>,
    /// The code and the reason of the end.
    closed: Option<(u16, String)>,
}

impl Stage {
    /// Begins a tunnel.
    pub(super) fn open_tunnel(
        &mut self,
        operation: OperationId,
        arguments: &Value,
    ) -> Result<(), String> {
        if !self.vm.has(Handler::Frame) {
            return Err("the application has no on_frame".to_owned());
        }
        let request: ScriptRequestId = self.open(arguments, b"", NO_TAG, false)?;
        let tag = self.take_tag();
        let handle = self.vm.open_tunnel(request, tag).ok_or("too many tunnels")?;
        let tunnel = FakeTunnel { handle, pending: None, sent: VecDeque::new(), closed: None };
        self.tunnels.insert(tag, tunnel);
        self.complete(operation, &json!({ "tunnel": tag }), b"");
        Ok(())
    }

    /// Shows a message, or a Close frame if there is a `code`, to `on_frame`.
    pub(super) fn show_frame(
        &mut self,
        operation: OperationId,
        arguments: &Value,
        data: &[u8],
    ) -> Result<(), String> {
        let tag = arguments["tunnel"].as_u64().unwrap_or_default();
        let tunnel = self.tunnels.get_mut(&tag).ok_or("there is no such tunnel")?;
        if tunnel.closed.is_some() {
            return Err("the connection is closed".to_owned());
        }
        if tunnel.pending.is_some() {
            return Err("on_frame has not returned for the message before".to_owned());
        }
        let is_text = arguments["is_text"] == true;
        let code = arguments["code"].as_u64().map(|code| code as u16);
        let kind = match code {
            Some(code) => FrameKind::Close(code),
            None if is_text => FrameKind::Text,
            None => FrameKind::Binary,
        };
        tunnel.pending = Some((operation, is_text, data.to_vec()));
        if let Some(code) = code {
            tunnel.closed = Some((code, String::from_utf8_lossy(data).into_owned()));
        }
        let (handle, from_client) = (tunnel.handle, arguments["from_client"] == true);
        let verdict = self.vm.frame(handle, from_client, (kind, data));
        self.note_frame(tag, &verdict);
        Ok(())
    }

    /// `on_frame` has ended or waits.
    pub(super) fn note_frame(&mut self, tag: u64, verdict: &CallbackEnd) {
        let failure = self.note_failure("on_frame", verdict);
        self.carry_out();
        if *verdict == CallbackEnd::Waiting {
            return;
        }
        let Some(tunnel) = self.tunnels.get_mut(&tag) else { return };
        if failure.is_some() {
            tunnel.closed = Some((CloseCode::INTERNAL_ERROR.get(), String::new()));
        }
        let (handle, closed) = (tunnel.handle, tunnel.closed.clone());
        let pending = tunnel.pending.take();
        let decision = self.vm.take_frame_decision(handle);
        if let Some((code, reason)) = closed {
            let verdict = self.vm.end_tunnel(handle, code, &reason);
            self.note_failure("on_frame_end", &verdict);
            self.carry_out();
        }
        let Some((operation, is_text, data)) = pending else { return };
        match (failure, decision) {
            (Some(failure), _) => {
                self.complete(operation, &json!({ "failure": failure.message }), b"");
            }
            (None, FrameDecision::Drop) => self.complete(operation, &json!({}), b""),
            (None, FrameDecision::Pass) => {
                self.complete(operation, &json!({ "kind": kind_of(is_text) }), &data);
            }
            (None, FrameDecision::Replace { is_text, data }) => {
                self.complete(operation, &json!({ "kind": kind_of(is_text) }), &data);
            }
        }
    }

    /// The next message that the script itself has sent to a side, and the code and the reason of the end.
    pub(super) fn take_sent(
        &mut self,
        operation: OperationId,
        arguments: &Value,
    ) -> Result<(), String> {
        let tag = arguments["tunnel"].as_u64().unwrap_or_default();
        let tunnel = self.tunnels.get_mut(&tag).ok_or("there is no such tunnel")?;
        let to_client = arguments["to_client"] == true;
        let at = tunnel.sent.iter().position(|(of_client, ..)| *of_client == to_client);
        let message = at.and_then(|at| tunnel.sent.remove(at));
        let closed = tunnel.closed.clone();
        match (message, closed) {
            (Some((_, is_text, data)), _) => {
                self.complete(operation, &json!({ "kind": kind_of(is_text) }), &data);
            }
            (None, Some((code, reason))) => {
                self.complete(operation, &json!({ "code": code, "reason": reason }), b"");
            }
            (None, None) => self.complete(operation, &json!({}), b""),
        }
        Ok(())
    }

    /// `Effect::SendFrame`.
    pub(super) fn keep_sent(&mut self, tag: u64, to_client: bool, (is_text, data): (bool, &[u8])) {
        if let Some(tunnel) = self.tunnels.get_mut(&tag) {
            tunnel.sent.push_back((to_client, is_text, data.to_vec()));
        }
    }

    /// `Effect::CloseTunnel`. The tunnel ends when `on_frame` has returned, or now if none runs.
    pub(super) fn close_tunnel(&mut self, tag: u64, code: u16, reason: &[u8]) {
        let Some(tunnel) = self.tunnels.get_mut(&tag) else { return };
        if tunnel.closed.is_none() {
            tunnel.closed = Some((code, String::from_utf8_lossy(reason).into_owned()));
        }
        if tunnel.pending.is_none() {
            self.note_frame(tag, &CallbackEnd::Done);
        }
    }
}

fn kind_of(is_text: bool) -> &'static str {
    if is_text { "text" } else { "binary" }
}
