//! The body of a server's response on its way through `on_body`, and request bodies that `on_upload` reads.
//! In: pieces of the body. Out: what the script reads; whether there is room for more.
//! Never: loses a byte: `take_rest` returns what the script has not read.
//! Limits: `BODY_BYTES_MAX` of a body wait for the script; then the server has to wait. A hook waits for anything but the
//! body and the client for up to `HOOK_WAIT_MAX` between two pieces that it reads or writes.

use tidegate_base::{Moment, Span};

use crate::engine::Entry;
use crate::exchange::{AtReturn, Response};
use crate::host::{Effect, Host, ScriptRequestId};
use crate::reply::ReplyHead;
use crate::schedule::{Owner, TaskId, Wait, Wake};
use crate::vm::{CallbackEnd, Vm, numbers};

/// How long a hook waits for anything but the body and the client before it reads or writes again, and how long `on_response`
/// may take. The server and the client wait meanwhile, and hold a connection each. As long as `on_access` may wait.
pub(crate) const HOOK_WAIT_MAX: Span = Span::from_secs(60);
/// Bytes of a body that wait for the script.
const BODY_BYTES_MAX: usize = 64 * 1024;
/// The error of a body whose response has ended.
const ENDED: &str = "the response has ended";
/// The error of a request body whose rest the script does not get.
const BEGUN: &str = "the response has begun";
/// The error of a request whose handler gets the whole body.
const NOT_STREAMED: &str = "only on_upload reads the body in pieces";

/// A body on its way; see the module header.
#[derive(Debug)]
pub(crate) struct BodyFlow {
    /// Bytes that have arrived and were not read.
    unread: Vec<u8>,
    /// The body is complete.
    is_complete: bool,
    /// The server waits until the script has read.
    is_full: bool,
    /// The deadline of the hook, unless it reads or writes before.
    deadline: Moment,
    /// The coroutine that waits for more. It may be stale.
    pub(crate) reader: TaskId,
    /// It is the body of a request, which `on_upload` reads.
    pub(crate) is_upload: bool,
}

impl BodyFlow {
    fn new(deadline: Moment, is_upload: bool) -> Self {
        let (unread, reader) = (Vec::new(), tidegate_base::Id::NONE);
        Self { unread, is_complete: false, is_full: false, deadline, reader, is_upload }
    }
}

/// What a script reads next.
pub(crate) enum Portion<'a> {
    /// These bytes.
    Bytes(&'a [u8]),
    /// Nothing has arrived yet.
    Nothing,
    /// The body is complete.
    End,
}

impl Host {
    fn body_flow(&mut self, id: ScriptRequestId) -> Result<&mut BodyFlow, &'static str> {
        self.exchanges.get_mut(id).and_then(|exchange| exchange.flow.as_deref_mut()).ok_or(ENDED)
    }

    /// Fails unless the body of a request can be read in pieces now.
    pub(crate) fn check_upload(&self, id: ScriptRequestId) -> Result<(), &'static str> {
        let exchange = self.exchanges.get(id).ok_or(ENDED)?;
        match (&exchange.flow, exchange.response) {
            (Some(flow), Response::Expected) if flow.is_upload => Ok(()),
            (Some(flow), Response::Begun | Response::Relayed) if flow.is_upload => Err(BEGUN),
            (Some(flow), Response::Ended) if flow.is_upload => Err(ENDED),
            _ => Err(NOT_STREAMED),
        }
    }

    /// The part of a body that has arrived. `note_body_read` removes it.
    pub(crate) fn unread_body(&mut self, id: ScriptRequestId) -> Result<Portion<'_>, &'static str> {
        let flow = self.body_flow(id)?;
        Ok(match (flow.unread.is_empty(), flow.is_complete) {
            (false, _) => Portion::Bytes(&flow.unread),
            (true, false) => Portion::Nothing,
            (true, true) => Portion::End,
        })
    }

    /// The deadline of the hook on a response, an event, a message or a handshake that runs `owner`'s coroutine; `None` if the hook
    /// waits for the body or the client, whose own timeouts apply, and for other handlers.
    pub(crate) fn hook_deadline(&mut self, owner: Owner, wait: Wait) -> Option<Moment> {
        let id = match owner {
            Owner::Request(id) => id,
            Owner::Event(id) => return self.events.get(id).map(|event| event.by),
            Owner::Tunnel(id) => return self.tunnels.get(id).map(|tunnel| tunnel.by),
            Owner::Hello(id) => return self.hellos.get(id).map(|hello| hello.by),
            Owner::Client(_)
            | Owner::Job(_)
            | Owner::Broadcast
            | Owner::Log
            | Owner::Application => return None,
        };
        match wait {
            Wait::Body(_) | Wait::Drain(_) => {
                if let Ok(flow) = self.body_flow(id) {
                    flow.deadline = Moment::NEVER;
                }
                None
            }
            Wait::Nothing
            | Wait::End
            | Wait::Until(_)
            | Wait::Job(..)
            | Wait::Operation(_)
            | Wait::Socket(..)
            | Wait::Datagram(..)
            | Wait::Queue(..) => {
                let exchange = self.exchanges.get(id)?;
                let of_body = exchange.flow.as_ref().map(|flow| flow.deadline);
                of_body.or_else(|| exchange.reply.as_ref().map(|reply| reply.decide_by))
            }
        }
    }

    /// A hook reads or writes.
    pub(crate) fn note_hook_progress(&mut self, id: ScriptRequestId) {
        let deadline = self.now().after(HOOK_WAIT_MAX);
        if let Ok(flow) = self.body_flow(id)
            && flow.deadline != Moment::NEVER
        {
            flow.deadline = deadline;
        }
    }

    /// The coroutine of a handler continues. If it is a hook that has waited for the body or the client, it gets a new deadline.
    pub(crate) fn note_hook_resumed(&mut self, id: ScriptRequestId) {
        let deadline = self.now().after(HOOK_WAIT_MAX);
        if let Ok(flow) = self.body_flow(id)
            && flow.deadline == Moment::NEVER
            && !flow.is_upload
        {
            flow.deadline = deadline;
        }
    }

    /// The script has read the part that had arrived.
    pub(crate) fn note_body_read(&mut self, id: ScriptRequestId) {
        self.note_hook_progress(id);
        let Some(exchange) = self.exchanges.get_mut(id) else { return };
        let Some(flow) = exchange.flow.as_deref_mut() else { return };
        flow.unread.clear();
        if core::mem::take(&mut flow.is_full) {
            self.outbox.effects.push(Effect::BodyRoom { tag: exchange.tag });
        }
    }

    /// Sends what the script has written. Returns what its coroutine waits for until more of the body has arrived.
    pub(crate) fn await_body(&mut self, id: ScriptRequestId) -> Result<Wait, &'static str> {
        if !self.body_flow(id)?.is_upload {
            self.flush(id)?;
        }
        let reader = self.body_flow(id)?.reader;
        match self.schedule.has_task(reader) {
            true => Err("another coroutine reads the body"),
            false => Ok(Wait::Body(id)),
        }
    }

    /// A coroutine waits for more of a body.
    pub(crate) fn suspend_for_body(&mut self, id: ScriptRequestId, task: TaskId) {
        match self.body_flow(id) {
            Ok(flow) if flow.unread.is_empty() && !flow.is_complete => flow.reader = task,
            Ok(_) => self.schedule.wake(task, Wake::Done),
            Err(_) => self.schedule.wake(task, Wake::Ended),
        }
    }
}

/// Events that the worker reports.
impl Vm {
    /// Keeps the head of a response for `on_body` without a call of `on_response`, which the script lacks.
    pub fn note_response(&mut self, id: ScriptRequestId, reply: ReplyHead) {
        if let Ok(exchange) = self.engine.host().exchange(id) {
            exchange.response = Response::Relayed;
            exchange.reply = Some(Box::new(reply));
        }
    }

    /// The body of a response follows, whose head the client gets now. From now on, `tag` is the worker's tag of the request.
    pub fn begin_body(&mut self, id: ScriptRequestId, tag: u64, reply: Box<ReplyHead>) {
        let deadline = self.engine.host().now().after(HOOK_WAIT_MAX);
        let Ok(exchange) = self.engine.host().exchange(id) else { return };
        exchange.tag = tag;
        exchange.response = Response::Begun;
        exchange.reply = Some(reply);
        exchange.flow = Some(Box::new(BodyFlow::new(deadline, false)));
    }

    /// The body of a request follows with `feed_body` and `end_body`, and `on_upload` reads it.
    pub fn begin_upload(&mut self, id: ScriptRequestId) {
        if let Ok(exchange) = self.engine.host().exchange(id) {
            exchange.flow = Some(Box::new(BodyFlow::new(Moment::NEVER, true)));
        }
    }

    /// Runs `on_upload` for a request whose body may not be complete.
    pub fn upload(&mut self, id: ScriptRequestId) -> CallbackEnd {
        self.engine.host().note_handler(id, AtReturn::Completes);
        self.run(Entry::Upload, (Owner::Request(id), "on_upload"), &numbers(id))
    }

    /// Whether more of a body may follow now.
    #[must_use]
    pub fn has_body_room(&self, id: ScriptRequestId) -> bool {
        self.unread_bytes(id) < BODY_BYTES_MAX
    }

    /// Runs `on_body`.
    pub fn body(&mut self, id: ScriptRequestId) -> CallbackEnd {
        self.engine.host().note_handler(id, AtReturn::Completes);
        self.run(Entry::Body, (Owner::Request(id), "on_body"), &numbers(id))
    }

    /// How many bytes of a body may follow now. After 0, `Effect::BodyRoom` reports when more may follow.
    pub fn body_room(&mut self, id: ScriptRequestId) -> usize {
        let Ok(flow) = self.engine.host().body_flow(id) else { return usize::MAX };
        let room = BODY_BYTES_MAX.saturating_sub(flow.unread.len());
        flow.is_full = room == 0;
        room
    }

    /// Appends to a body.
    pub fn feed_body(&mut self, id: ScriptRequestId, data: &[u8]) {
        let host = self.engine.host();
        let Ok(flow) = host.body_flow(id) else { return };
        flow.unread.extend_from_slice(data);
        let reader = flow.reader;
        if !data.is_empty() {
            host.schedule.wake(reader, Wake::Done);
        }
    }

    /// A body is complete.
    pub fn end_body(&mut self, id: ScriptRequestId) {
        let host = self.engine.host();
        let Ok(flow) = host.body_flow(id) else { return };
        flow.is_complete = true;
        let reader = flow.reader;
        host.schedule.wake(reader, Wake::Done);
    }

    /// The bytes of a body that wait for the script.
    #[must_use]
    pub fn unread_bytes(&self, id: ScriptRequestId) -> usize {
        let exchange = self.engine.peek().exchanges.get(id);
        exchange.and_then(|exchange| exchange.flow.as_ref()).map_or(0, |flow| flow.unread.len())
    }

    /// Takes the part of a body that the script has not read.
    pub fn take_rest(&mut self, id: ScriptRequestId) -> Vec<u8> {
        let flow = self.engine.host().body_flow(id);
        flow.map(|flow| core::mem::take(&mut flow.unread)).unwrap_or_default()
    }
}
