//! `on_response` and `on_log` of the applications that routes name in `hooks`.
//! In: heads of servers' responses on their way to clients; records of exchanges that have ended. Out: the heads as the script
//! has changed them, at once or later (`held.rs`); calls of `on_log`.
//! Never: passes on a response whose hook has failed.
//! Limits: `LOG_CALLS_MAX` records that wait for `on_log`, and calls of `on_log` that wait (`Vm::can_log`); more are dropped
//! and counted (`lua_log_drops`). `on_log` has its
//! share of a turn; `on_response` begins when the head arrives, and its time is subtracted from the share of other callbacks.
//! Invariant: a VM keeps the request of an exchange with `on_response` or `on_body` until the head of the response, or the end;
//! for `on_response` that waits, see `held.rs`; for `on_body`, `body.rs`.

use std::collections::VecDeque;

use tidegate_base::{Id, Span};
use tidegate_config::model::AccessFormat;
use tidegate_gate::access::{Entry, LineEncoder};
use tidegate_gate::websocket::EndpointId;
use tidegate_lua::{CallbackEnd, Handler, ReplyHead, ScriptRequestId};
use tidegate_reactor::Reactor;
use tidegate_wire::message::{OwnedResponse, ResponseHead};

use crate::action::proxy::Failure;
use crate::action::proxy::exchange::Exchange;
use crate::worker::Worker;

/// Maximum number of records that wait for `on_log`.
const LOG_CALLS_MAX: usize = 4096;

/// How long a worker calls `on_log` before it ends.
const LAST_LOGS_SPAN: Span = Span::from_secs(1);

/// The failure of a request whose `on_response` has failed.
pub(super) const HOOK_FAILED: Failure = Failure::new(500, "the application failed");

/// The failure of a request for whose hook there is no room.
pub(super) const HOOK_FULL: Failure = Failure::new(503, "the proxy is handling too many requests");

/// The request of an exchange whose response a hook changes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ResponseHook {
    /// The index of the application.
    pub(super) app: usize,
    /// The number of the VM that keeps the request.
    pub(super) life: u32,
    /// The VM's id of the request.
    pub(super) handle: ScriptRequestId,
    /// The hook sees the messages of a WebSocket.
    pub(super) sees_frames: bool,
    /// The limits of these messages.
    pub(super) endpoint: EndpointId,
}

/// What a hook has made of the head of a response.
#[derive(Debug)]
pub(in crate::action) enum HookedHead {
    /// The client gets the head as it is.
    Unchanged,
    /// The client gets this head.
    Changed(OwnedResponse),
    /// The hook waits: the client gets a head later.
    Held,
}

/// What the client gets in place of a response, as its hook has decided.
pub(super) enum Conclusion {
    /// The head as it is, and the body.
    Unchanged,
    /// Another head, and the body.
    Changed(OwnedResponse),
    /// Another head, and the body that `on_body` writes.
    Rewritten,
}

/// The decision of a hook about a response. `Err`: there are too many changed fields.
pub(super) fn conclude(
    head: &ResponseHead<'_>,
    reply: &mut ReplyHead,
    (has_body, is_head, changes_bodies): (bool, bool, bool),
) -> Result<Conclusion, Failure> {
    let changes_bodies = changes_bodies && !reply.keeps_body;
    if has_body && changes_bodies {
        return Ok(Conclusion::Rewritten);
    }
    let describes = reply.describes_changed_body(is_head, head.content_length);
    if !has_body && changes_bodies && describes {
        reply.describe_changed_body().map_err(|_| HOOK_FULL)?;
        let changed = OwnedResponse::changed(head, reply.status, &reply.changes);
        return Ok(Conclusion::Changed(changed.without_length()));
    }
    Ok(match reply.is_changed() {
        true => Conclusion::Changed(OwnedResponse::changed(head, reply.status, &reply.changes)),
        false => Conclusion::Unchanged,
    })
}

impl Worker {
    /// Runs `on_response` for the head of a response, and lets `on_body` run if a body follows. `Err`: the hook has failed,
    /// and so has the exchange.
    pub(in crate::action) fn change_response<R: Reactor>(
        &mut self,
        reactor: &mut R,
        id: Id<Exchange>,
        head: &ResponseHead<'_>,
        has_body: bool,
    ) -> Result<HookedHead, ()> {
        let hook = self.exchanges.get_mut(id).and_then(|exchange| exchange.response_hook.take());
        let Some(hook) = hook else { return Ok(HookedHead::Unchanged) };
        let ResponseHook { app, life, handle, .. } = *hook;
        let is_present = self.lua.apps.is_running(app, life);
        let verdict = match is_present {
            true => self.call_app(reactor, app, "on_response", None, |vm| {
                match vm.has(Handler::Response) {
                    true => vm.response(handle, head),
                    false => {
                        vm.note_response(handle, ReplyHead::new(head));
                        CallbackEnd::Done
                    }
                }
            }),
            false => None,
        };
        if verdict == Some(CallbackEnd::Waiting) {
            if self.hold_head(id, *hook, head, has_body) {
                return Ok(HookedHead::Held);
            }
            return self.fail_hook(reactor, id, *hook, HOOK_FULL);
        }
        let vm = self.lua.apps.present(app).filter(|_| is_present);
        let found = vm.and_then(|vm| vm.take_reply(handle).zip(Some(vm.has(Handler::Body))));
        let Some((mut reply, changes_bodies)) =
            found.filter(|_| verdict == Some(CallbackEnd::Done))
        else {
            return self.fail_hook(reactor, id, *hook, HOOK_FAILED);
        };
        let Some(exchange) = self.exchanges.get_mut(id) else { return Err(()) };
        exchange.is_marked |= reply.is_failed;
        let is_head = exchange.facts.is_head;
        let conclusion = conclude(head, &mut reply, (has_body, is_head, changes_bodies));
        let changed = match conclusion {
            Ok(Conclusion::Unchanged) => HookedHead::Unchanged,
            Ok(Conclusion::Changed(changed)) => HookedHead::Changed(changed),
            Ok(Conclusion::Rewritten) => match self.begin_body_hook(id, *hook, head, reply) {
                Some(changed) => return Ok(HookedHead::Changed(changed)),
                None => return self.fail_hook(reactor, id, *hook, HOOK_FULL),
            },
            Err(failure) => return self.fail_hook(reactor, id, *hook, failure),
        };
        self.close_response_hook(*hook);
        Ok(changed)
    }

    /// Ends an exchange whose hook has failed before its response has begun.
    fn fail_hook<R: Reactor>(
        &mut self,
        reactor: &mut R,
        id: Id<Exchange>,
        hook: ResponseHook,
        failure: Failure,
    ) -> Result<HookedHead, ()> {
        self.close_response_hook(hook);
        self.fail_served(reactor, id, failure);
        Err(())
    }

    /// The VM does not keep the request of an exchange any more.
    pub(crate) fn close_response_hook(&mut self, hook: ResponseHook) {
        if self.lua.apps.life(hook.app) == hook.life
            && let Some(vm) = self.lua.apps.present(hook.app)
        {
            vm.close_request(hook.handle);
        }
    }

    /// Calls `on_log` for records that wait, until the share of the turn is used up.
    pub(super) fn run_log_hooks<R: Reactor>(&mut self, reactor: &mut R) {
        while !self.lua.share.is_used_up()
            && let Some((app, record)) = self.lua.log_hooks.take()
        {
            self.run_log_hook(reactor, app, &record);
        }
    }

    /// Calls `on_log` for the records that wait, before the worker ends. After `LAST_LOGS_SPAN`, the other records are dropped.
    pub(super) fn run_last_log_hooks<R: Reactor>(&mut self, reactor: &mut R) {
        let end = reactor.read_clock().after(LAST_LOGS_SPAN);
        while let Some((app, record)) = self.lua.log_hooks.take() {
            match reactor.read_clock() < end {
                true => self.run_log_hook(reactor, app, &record),
                false => self.accounts.counters.lua_log_drops.add(1),
            }
        }
    }

    fn run_log_hook<R: Reactor>(&mut self, reactor: &mut R, app: usize, record: &[u8]) {
        if self.lua.apps.peek(app).is_some_and(|vm| !vm.has(Handler::Log)) {
            // The code has changed since.
            return;
        }
        if self.lua.apps.peek(app).is_some_and(|vm| !vm.can_log()) {
            return self.accounts.counters.lua_log_drops.add(1);
        }
        if self.call_app(reactor, app, "on_log", None, |vm| vm.log(record)).is_none() {
            // The application is paused after failures.
            self.accounts.counters.lua_log_drops.add(1);
        }
    }

    /// The requests that VMs keep for exchanges. For tests.
    pub(crate) fn kept_for_responses(&self) -> usize {
        let hooks =
            self.exchanges.iter().filter_map(|(_, exchange)| exchange.response_hook.as_ref());
        hooks.filter(|hook| self.lua.apps.is_running(hook.app, hook.life)).count()
    }
}

/// The records that wait for `on_log`.
#[derive(Default)]
pub(crate) struct LogHooks {
    /// The applications that have `on_log`, by their index.
    apps: Vec<bool>,
    /// The records, as JSON objects, each with its application.
    waiting: VecDeque<(usize, Vec<u8>)>,
    /// Encodes the records; `None` if no application has `on_log`.
    encoder: Option<LineEncoder>,
}

impl LogHooks {
    /// For the applications that have `on_log`, by their index.
    pub(crate) fn new(apps: Vec<bool>) -> Self {
        let is_needed = apps.contains(&true);
        let encoder = is_needed.then(|| LineEncoder::new(AccessFormat::Json));
        Self { apps, waiting: VecDeque::new(), encoder }
    }

    /// Whether an application has `on_log`.
    pub(crate) fn are_needed(&self) -> bool {
        self.encoder.is_some()
    }

    /// The number of records that wait.
    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Notes the end of a request to a route whose hooks are those of `app`. Returns false if the record is dropped.
    pub(crate) fn note(&mut self, app: usize, entry: &Entry<'_>) -> bool {
        let Some(encoder) = &mut self.encoder else { return true };
        if self.apps.get(app) != Some(&true) {
            return true;
        }
        if self.waiting.len() >= LOG_CALLS_MAX {
            return false;
        }
        let mut record = Vec::new();
        encoder.encode(entry, &mut record);
        self.waiting.push_back((app, record));
        true
    }

    /// Takes over the records that wait in another list.
    pub(super) fn take_waiting(&mut self, other: Self) {
        self.waiting = other.waiting;
    }

    fn take(&mut self) -> Option<(usize, Vec<u8>)> {
        self.waiting.pop_front()
    }
}
