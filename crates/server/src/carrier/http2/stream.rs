//! One stream of a client connection: the remaining steps of its request and its response.
//! In: the records of `clients.rs` and `response.rs`. Out: the same state.
//! Never: outlives its connection; holds a buffer unless its action or its client is slow.
//! Limits: `input` holds at most the stream's receive window; `output` at most one piece above the pause.

use tidegate_base::Moment;
use tidegate_gate::handling::FilterId;
use tidegate_reactor::SockId;

use crate::action::Running;
use crate::buffers::Input;
use crate::carrier::Progress;
use crate::record::NO_RECORD;
use crate::settings::Era;

/// The state of an extended CONNECT (RFC 8441).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Connect {
    /// The request is another one.
    No,
    /// The request has no response yet. Bytes that the client sends after it wait.
    Requested,
    /// The stream belongs to its action. `is_paused`: the action takes no bytes of the client.
    Switched { is_paused: bool },
}

/// One stream. `Http2Clients` holds it from its request until its action has ended and the client's windows have
/// admitted the whole response.
pub(crate) struct Http2Stream {
    /// The connection.
    pub(super) sock: SockId,
    /// The number of the stream on the connection.
    pub(super) number: u32,
    /// The action that serves the request; `Running::None` before it has begun something that lasts, and after
    /// it has ended.
    pub(super) action: Running,
    /// The generation of settings that the request began with.
    pub(crate) era: Era,
    /// The filters of the response.
    pub(in crate::carrier) filters: FilterId,
    /// The record of the request, or `NO_RECORD`.
    pub(super) record: u32,
    /// The method is HEAD, so the response has no body.
    pub(super) is_head: bool,
    /// The request is a call of gRPC, whose errors are sent in the form of gRPC.
    pub(super) is_call: bool,
    /// Whether the request is an extended CONNECT, and what it has become.
    pub(super) connect: Connect,
    /// The client waits for 100 (Continue), which was not sent, and no byte of the body has arrived.
    pub(super) awaits_continue: bool,
    /// The request has ended, although its end may follow `input`.
    pub(super) has_request_ended: bool,
    /// The action has received the end of the request, or does not read it.
    pub(super) is_request_done: bool,
    /// How far the action has sent the response.
    pub(super) progress: Progress,
    /// The action has been told to pause, and is resumed once `output` is empty.
    pub(super) is_held: bool,
    /// The action has ended.
    pub(super) is_released: bool,
    /// Bytes of the request body that the action does not take yet.
    pub(super) input: Input,
    /// The trailers of the request, as lines; behind `input`.
    pub(super) request_trailers: Vec<u8>,
    /// Bytes of the response body that the client's windows do not admit yet.
    pub(super) output: Input,
    /// The trailers of the response, as lines; behind `output`.
    pub(super) response_trailers: Vec<u8>,
    /// Bytes admitted since the deadline of a slow client was last extended.
    pub(super) admitted_bytes: usize,
    /// When the client's windows last admitted bytes, or when bytes began to wait.
    pub(super) moved_at: Moment,
    /// When something must have happened: the body's deadline, the action's, or the end of the client's patience.
    pub(super) due_at: Moment,
}

impl Http2Stream {
    /// A stream whose head has just arrived. `ends`: the request has no body.
    pub(super) fn new(sock: SockId, era: Era, number: u32, is_head: bool, ends: bool) -> Self {
        Self {
            sock,
            number,
            action: Running::None,
            era,
            filters: 0,
            record: NO_RECORD,
            is_head,
            is_call: false,
            connect: Connect::No,
            awaits_continue: false,
            has_request_ended: ends,
            is_request_done: ends,
            progress: Progress::Expected,
            is_held: false,
            is_released: false,
            input: Input::default(),
            request_trailers: Vec::new(),
            output: Input::default(),
            response_trailers: Vec::new(),
            admitted_bytes: 0,
            moved_at: Moment::ZERO,
            due_at: Moment::NEVER,
        }
    }

    /// Whether the stream belongs to its action, as after an upgrade of HTTP/1.1.
    pub(crate) fn is_switched(&self) -> bool {
        matches!(self.connect, Connect::Switched { .. })
    }

    /// Whether the stream belongs to an action that itself decides when the client is too slow.
    pub(super) fn is_tunnel(&self) -> bool {
        self.is_switched() && self.action.is_duplex()
    }

    /// Notes how many bytes the client's windows have admitted.
    pub(super) fn note_admitted(&mut self, admitted: usize, now: Moment) {
        self.admitted_bytes += admitted;
        if admitted > 0 {
            self.moved_at = now;
        }
    }

    /// Whether the client has not taken all that was sent.
    pub(super) fn is_behind(&self) -> bool {
        !self.output.is_empty() || !self.response_trailers.is_empty()
    }

    /// Bytes that wait for the client.
    pub(in crate::carrier) fn pending(&self) -> usize {
        self.output.len()
    }

    /// Bytes that wait for the action or for the client.
    pub(super) fn held_bytes(&self) -> usize {
        self.input.len() + self.output.len()
    }

    /// The record of the request, or `NO_RECORD`.
    pub(crate) fn record(&self) -> u32 {
        self.record
    }

    /// The number of the stream on its connection.
    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    /// Sets the record of the request.
    pub(crate) fn set_record(&mut self, record: u32) {
        self.record = record;
    }

    /// Records which action serves the request.
    pub(crate) fn set_action(&mut self, action: Running) {
        self.action = action;
    }

    /// The action that serves the request.
    pub(crate) fn running(&self) -> Running {
        self.action
    }

    /// Records the filters of the response.
    pub(crate) fn set_filters(&mut self, filters: FilterId) {
        self.filters = filters;
    }

    /// Whether the request is a call of gRPC.
    pub(crate) fn is_call(&self) -> bool {
        self.is_call
    }

    /// How far the action has sent the response.
    pub(crate) fn progress(&self) -> Progress {
        self.progress
    }

    /// Whether the rest of the request may never arrive, because the client waits for 100 (Continue).
    pub(crate) fn awaits_continue(&self) -> bool {
        self.awaits_continue
    }

    /// Whether the response is suspended.
    pub(crate) fn is_held(&self) -> bool {
        self.is_held
    }
}
