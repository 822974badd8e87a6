//! Operations that a script starts and whose results its coroutine awaits.
//! In: operations that scripts start, results of the worker. Out: effects; results, each taken once.
//! Never: waits for the worker: a result may come in any later turn.
//! Limits: `OPERATIONS_MAX` operations of a VM; those of `outgoing.rs` for requests.
//! Invariant: an operation ends when its coroutine continues or is cancelled; a later result matches nothing. If the worker has
//! begun a request and its coroutine is cancelled, the worker gets the tag of the request (`take_cancelled`).

use tidegate_base::Id;
use tidegate_wire::dns::Question;

use crate::host::{Effect, Host, OUTPUT_BYTES_MAX, TOO_MUCH};
use crate::outgoing::Response;
use crate::schedule::{TaskId, Wait, Wake};

/// Maximum number of operations of a VM in progress.
pub(crate) const OPERATIONS_MAX: usize = 65_536;

/// Names an operation.
pub type OperationId = Id<Operation>;

/// The result of an operation that has succeeded.
pub(crate) enum Outcome {
    /// Bytes.
    Bytes(Vec<u8>),
    /// The response of a server.
    Response(Response),
}

/// The result of an operation, or why it has failed.
pub(crate) type Reply = Result<Outcome, String>;

/// The kind of an operation.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum OperationKind {
    /// A call whose result comes soon, and is dropped if the coroutine is gone.
    Call,
    /// A request to a server, which is cancelled with its coroutine.
    Request,
}

/// An operation in progress.
pub struct Operation {
    /// The kind.
    kind: OperationKind,
    /// The worker's tag of a request that has begun and not ended.
    tag: Option<u64>,
    /// The coroutine that waits for it; `Id::NONE` before it waits.
    task: TaskId,
    /// The result, until the coroutine continues.
    reply: Option<Reply>,
}

impl Host {
    /// Starts a call of the server API of a push hub. The arguments are JSON.
    pub(crate) fn start_push_call(
        &mut self,
        hub: &[u8],
        method: &[u8],
        arguments: &[u8],
    ) -> Result<OperationId, &'static str> {
        let operation = self.start_operation(arguments.len(), OperationKind::Call)?;
        let hub = self.outbox.push(hub);
        let method = self.outbox.push(method);
        let arguments = self.outbox.push(arguments);
        self.outbox.effects.push(Effect::Push { operation, hub, method, arguments });
        Ok(operation)
    }

    /// Starts the lookup of a name.
    pub(crate) fn start_lookup(&mut self, question: Question) -> Result<OperationId, &'static str> {
        let operation = self.start_operation(0, OperationKind::Call)?;
        self.outbox.effects.push(Effect::Lookup { operation, question: Box::new(question) });
        Ok(operation)
    }

    /// Starts a command of the runner of tests. The arguments are JSON.
    pub(crate) fn start_test_call(
        &mut self,
        method: &[u8],
        arguments: &[u8],
        data: &[u8],
    ) -> Result<OperationId, &'static str> {
        let operation = self.start_operation(arguments.len() + data.len(), OperationKind::Call)?;
        let method = self.outbox.push(method);
        let arguments = self.outbox.push(arguments);
        let data = self.outbox.push(data);
        self.outbox.effects.push(Effect::Test { operation, method, arguments, data });
        Ok(operation)
    }

    /// Starts an operation with this number of bytes of arguments.
    pub(crate) fn start_operation(
        &mut self,
        bytes: usize,
        kind: OperationKind,
    ) -> Result<OperationId, &'static str> {
        if self.outbox.bytes.len() + bytes > OUTPUT_BYTES_MAX {
            return Err(TOO_MUCH);
        }
        if !self.schedule.has_room() {
            return Err("too many coroutines wait");
        }
        let operation = Operation { kind, tag: None, task: Id::NONE, reply: None };
        self.operations.insert(operation).map_err(|_| {
            self.schedule.refusals += 1;
            "too many operations of the application are in progress"
        })
    }

    /// A coroutine waits for an operation.
    pub(crate) fn await_operation(&mut self, id: OperationId, task: TaskId) {
        self.schedule.set_operation(task, id);
        if let Some(operation) = self.operations.get_mut(id) {
            operation.task = task;
        }
    }

    /// The worker has begun a request; `tag` is its tag. Returns false if the operation has ended before.
    pub(crate) fn note_begun(&mut self, id: OperationId, tag: u64) -> bool {
        let Some(operation) = self.operations.get_mut(id) else { return false };
        if operation.task.is_none() {
            // Its coroutine failed before it waited.
            self.remove_operation(id);
            return false;
        }
        operation.tag = Some(tag);
        true
    }

    /// The worker has carried out an operation, which may have ended before.
    pub(crate) fn complete(&mut self, id: OperationId, reply: Reply) {
        if self.operations.get(id).is_some_and(|operation| operation.task.is_none()) {
            self.remove_operation(id);
        }
        if let Some(operation) = self.operations.get_mut(id)
            && operation.reply.is_none()
        {
            operation.tag = None;
            operation.reply = Some(reply);
            let task = operation.task;
            self.schedule.wake(task, Wake::Done);
        }
    }

    /// The result for a coroutine that continues; `None` if it has not waited for an operation.
    pub(crate) fn take_reply(&mut self, id: OperationId) -> Option<Reply> {
        self.remove_operation(id)?.reply
    }

    /// Ends the operations whose coroutines were cancelled.
    pub(crate) fn end_abandoned(&mut self) {
        while let Some(id) = self.schedule.take_abandoned() {
            self.abandon_operation(id);
        }
    }

    /// Ends an operation whose coroutine does not continue. Does nothing if there is none.
    pub(crate) fn abandon_operation(&mut self, id: OperationId) {
        let tag = self.remove_operation(id).and_then(|operation| operation.tag);
        self.cancelled.extend(tag);
    }

    /// The coroutine that has begun to wait last cannot be suspended.
    pub(crate) fn cancel_wait(&mut self) {
        if let Wait::Operation(id) = core::mem::replace(&mut self.wait, Wait::Nothing) {
            self.abandon_operation(id);
        }
    }

    fn remove_operation(&mut self, id: OperationId) -> Option<Operation> {
        let operation = self.operations.remove(id)?;
        self.outgoing -= usize::from(operation.kind == OperationKind::Request);
        Some(operation)
    }
}
