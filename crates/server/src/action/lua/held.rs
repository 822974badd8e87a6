//! Heads of servers' responses whose `on_response` waits.
//! In: heads of responses; the end of their hooks. Out: the heads as the hooks have changed them, then the bodies.
//! Never: begins a response before its hook has returned; tries another server because of a hook.
//! Limits: the time of `tidegate_lua` for `on_response`. The body waits where it is: the server is not read meanwhile, beyond
//! what has arrived with the head.
//! Invariant: while a head is held, its exchange is in `Stage::ExpectBody` or later, or has ended because the server's response
//! is complete; then the request of the hook is the running action of its requester (`body.rs`).

use tidegate_base::{Id, Span};
use tidegate_lua::{CallbackEnd, Excess, Handler, ReplyHead};
use tidegate_reactor::Reactor;
use tidegate_wire::message::{OwnedResponse, ResponseHead};

use crate::action::lua::body::{BodyHook, ExchangeHook};
use crate::action::lua::response::{Conclusion, HOOK_FULL, ResponseHook, conclude};
use crate::action::lua::{ScriptedRequest, tag_of};
use crate::action::proxy::Failure;
use crate::action::proxy::exchange::Exchange;
use crate::answer::Head;
use crate::carrier::Rest;
use crate::requester::Requester;
use crate::worker::Worker;

/// The reason in the log and the error response of a request whose `on_response` has waited for too long.
const UNDECIDED: &str = "the application did not decide about the response in time";

/// The pool of a server and its index there; whether the response is a failure, and how long it took.
type ServerResult = ((u16, u16), (bool, Option<Span>));

/// The head of a response that waits for its hook.
#[derive(Debug)]
pub(super) struct HeldHead {
    /// The head as the server has sent it.
    head: OwnedResponse,
    /// A body may follow.
    has_body: bool,
    /// The request is a HEAD request.
    is_head: bool,
    /// The value of a Set-Cookie field to add; empty: none.
    cookie: String,
    /// How the rest of the request is handled while the exchange exists.
    rest: Rest,
    /// The result of the server, until the hook has decided whether the response is a failure.
    result: Option<ServerResult>,
}

impl Worker {
    /// Keeps the head of a response whose hook waits. Returns false if there are too many requests of applications.
    pub(super) fn hold_head(
        &mut self,
        id: Id<Exchange>,
        hook: ResponseHook,
        head: &ResponseHead<'_>,
        has_body: bool,
    ) -> bool {
        let Some(exchange) = self.exchanges.get_mut(id) else { return false };
        let (to, is_head) = (exchange.requester, exchange.facts.is_head);
        let (head, cookie, rest) = (OwnedResponse::new(head), String::new(), Rest::Discarded);
        let held = HeldHead { head, has_body, is_head, cookie, rest, result: None };
        let body_hook = BodyHook::holding(id, held);
        let request = ScriptedRequest::of_body(to, hook.app, hook.handle, body_hook);
        let Ok(request) = self.lua.requests.insert(request) else { return false };
        exchange.body_hook = Some(ExchangeHook { request, is_full: true });
        if let Some(vm) = self.lua.apps.present(hook.app) {
            vm.hold_response(hook.handle, tag_of(request));
        }
        true
    }

    /// Completes what is known about a held head when its exchange has taken it. `values`: those of the edits of the response.
    pub(in crate::action) fn complete_held_head(
        &mut self,
        id: Id<Exchange>,
        values: Vec<u8>,
        (cookie, rest): (&str, Rest),
    ) {
        let hook = self.exchanges.find(id).and_then(|exchange| exchange.body_hook);
        let request = hook.and_then(|hook| self.lua.requests.get_mut(hook.request));
        let Some(request) = request else { return self.buffers.put(values) };
        request.keep_values(values);
        if let Some(held) = request.body_hook_mut().and_then(|hook| hook.held.as_mut()) {
            (held.cookie, held.rest) = (cookie.to_owned(), rest);
        }
    }

    /// Keeps the result of a server until its hook has decided whether the response is a failure.
    pub(in crate::action) fn keep_held_result(
        &mut self,
        id: Id<Exchange>,
        server: (u16, u16),
        result: (bool, Option<Span>),
    ) {
        let hook = self.exchanges.find(id).and_then(|exchange| exchange.body_hook);
        let request = hook.and_then(|hook| self.lua.requests.get_mut(hook.request));
        if let Some(held) = request.and_then(|it| it.body_hook_mut()?.held.as_mut()) {
            held.result = Some((server, result));
        }
    }

    /// Whether `on_response` of this request waits.
    pub(super) fn is_head_held(&self, id: Id<ScriptedRequest>) -> bool {
        self.lua.requests.find(id).is_some_and(ScriptedRequest::holds_head)
    }

    /// `on_response` has ended after a wait.
    pub(super) fn end_held_hook<R: Reactor>(
        &mut self,
        reactor: &mut R,
        id: Id<ScriptedRequest>,
        to: Requester,
        verdict: Option<&CallbackEnd>,
    ) {
        match verdict {
            Some(CallbackEnd::Waiting) => {}
            Some(CallbackEnd::Done) => self.relay_held_head(reactor, id, to),
            Some(CallbackEnd::Failed(failure)) if failure.excess == Some(Excess::Wait) => {
                self.end_scripted(reactor, (id, to), 504, UNDECIDED);
            }
            Some(CallbackEnd::Failed(_)) | None => self.fail_scripted(reactor, id, to),
        }
    }

    /// Begins the response that has waited for its hook.
    fn relay_held_head<R: Reactor>(
        &mut self,
        reactor: &mut R,
        id: Id<ScriptedRequest>,
        to: Requester,
    ) {
        let reply = self.in_vm(id, |vm, handle| (vm.take_reply(handle), vm.has(Handler::Body)));
        let Some((Some(mut reply), changes_bodies)) = reply else {
            return self.fail_scripted(reactor, id, to);
        };
        // The edits of the route apply to the changed head.
        self.recall_scripted(id);
        let Some(hook) = self.lua.requests.find_mut(id).and_then(ScriptedRequest::body_hook_mut)
        else {
            return;
        };
        let (exchange, has_ended) = (hook.exchange(), hook.end.is_some());
        let Some(held) = hook.held.take() else { return };
        if let Some((server, (is_failure, took))) = held.result {
            self.note_result(server, (is_failure || reply.is_failed, took), reactor.now());
        }
        let head = held.head.lend();
        let facts = (held.has_body, held.is_head, changes_bodies);
        let changed = match conclude(&head, &mut reply, facts) {
            Ok(Conclusion::Unchanged) => None,
            Ok(Conclusion::Changed(changed)) => Some((changed, None)),
            Ok(Conclusion::Rewritten) => match reply.describe_changed_body() {
                Ok(()) => {
                    let changed = OwnedResponse::changed(&head, reply.status, &reply.changes);
                    Some((changed.streamed(), Some(reply)))
                }
                Err(_) => {
                    let Failure { status, text, .. } = HOOK_FULL;
                    return self.end_scripted(reactor, (id, to), status, text);
                }
            },
            Err(failure) => {
                return self.end_scripted(reactor, (id, to), failure.status, failure.text);
            }
        };
        let (changed, reply) = changed.unzip();
        let lent = changed.as_ref().map(OwnedResponse::lend);
        // The exchange has ended because the request was complete, or because the server takes no more of it.
        let rest = if exchange.is_some() { held.rest } else { Rest::Unwanted };
        let head = Head::Relayed(lent.as_ref().unwrap_or(&head), &held.cookie);
        self.begin_response(reactor, to, &head, rest);
        match reply.flatten() {
            Some(reply) => self.rewrite_held_body(reactor, (id, to), exchange, reply, has_ended),
            // Nothing of the body has passed the hook.
            None => self.send_hooked(reactor, id, b"", true),
        }
    }

    /// Lets `on_body` run for the body of a response whose head was held.
    fn rewrite_held_body<R: Reactor>(
        &mut self,
        reactor: &mut R,
        (id, to): (Id<ScriptedRequest>, Requester),
        exchange: Option<Id<Exchange>>,
        reply: Box<ReplyHead>,
        has_ended: bool,
    ) {
        self.in_vm(id, |vm, handle| {
            vm.begin_body(handle, tag_of(id), reply);
            if has_ended {
                vm.end_body(handle);
            }
        });
        self.lua.share.put_off(to.sock, id);
        let Some(exchange) = exchange else { return };
        if let Some(exchange) = self.exchanges.get_mut(exchange) {
            exchange.body_hook = Some(ExchangeHook { request: id, is_full: false });
        }
        self.resume_server(reactor, exchange);
        self.hold_body(reactor, to, Some(exchange));
    }
}
