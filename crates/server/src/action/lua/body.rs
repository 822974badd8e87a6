//! `on_body` of the applications that routes name in `hooks`: bodies of servers' responses on their way to clients.
//! In: heads and pieces of responses of servers; what scripts write. Out: pieces and ends of responses for clients.
//! Never: completes a response that the server, the hook or its VM has not completed: the client's connection or stream is
//! cut instead. Never runs a callback while a piece is handed over: callbacks run in their share of a turn.
//! Limits: those of `tidegate_lua` for bytes that wait for a script; the server is not read while there is no room.
//! Invariant: an exchange with a hook and the request of that hook name each other until one of the two has ended. If the
//! exchange ends first, the request becomes the running action of its requester.

use tidegate_base::Id;
use tidegate_lua::{ReplyHead, Vm};
use tidegate_reactor::Reactor;
use tidegate_wire::message::{OwnedResponse, ResponseHead};

use crate::action::Running;
use crate::action::lua::held::HeldHead;
use crate::action::lua::response::ResponseHook;
use crate::action::lua::{ScriptedRequest, id_of, tag_of};
use crate::action::proxy::Failure;
use crate::action::proxy::exchange::Exchange;
use crate::requester::Requester;
use crate::worker::Worker;

/// What a request of `on_body` needs to know about its response.
#[derive(Debug)]
pub(crate) struct BodyHook {
    /// The exchange; `Id::NONE` after its end.
    exchange: Id<Exchange>,
    /// The trailers, once the response of the server is complete.
    pub(super) end: Option<Vec<u8>>,
    /// The head, while `on_response` waits.
    pub(super) held: Option<HeldHead>,
}

/// The hook of an exchange whose response it changes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ExchangeHook {
    /// The request of the hook.
    pub(in crate::action) request: Id<ScriptedRequest>,
    /// The server is not read until the script has read.
    pub(in crate::action) is_full: bool,
}

impl BodyHook {
    pub(super) fn new(exchange: Id<Exchange>) -> Self {
        Self { exchange, end: None, held: None }
    }

    /// For a response whose head is held.
    pub(super) fn holding(exchange: Id<Exchange>, held: HeldHead) -> Self {
        Self { held: Some(held), ..Self::new(exchange) }
    }

    /// The exchange, if it has not ended.
    pub(crate) fn exchange(&self) -> Option<Id<Exchange>> {
        (!self.exchange.is_none()).then_some(self.exchange)
    }
}

/// Responses of servers.
impl Worker {
    /// Lets `on_body` run for the body of a response. Returns the head that the client gets; `None` if there are too many
    /// requests of applications, or too many changed fields.
    pub(super) fn begin_body_hook(
        &mut self,
        id: Id<Exchange>,
        hook: ResponseHook,
        head: &ResponseHead<'_>,
        mut reply: Box<ReplyHead>,
    ) -> Option<OwnedResponse> {
        reply.describe_changed_body().ok()?;
        let changed = OwnedResponse::changed(head, reply.status, &reply.changes).streamed();
        let exchange = self.exchanges.get_mut(id)?;
        let to = exchange.requester;
        let request = ScriptedRequest::of_body(to, hook.app, hook.handle, BodyHook::new(id));
        let request = self.lua.requests.insert(request).ok()?;
        exchange.body_hook = Some(ExchangeHook { request, is_full: false });
        if let Some(vm) = self.lua.apps.present(hook.app) {
            vm.begin_body(hook.handle, tag_of(request), reply);
        }
        self.lua.share.put_off(to.sock, request);
        Some(changed)
    }

    /// How many bytes of the body the hook of a response takes now. After 0, `Effect::BodyRoom` resumes the server.
    pub(in crate::action) fn body_hook_room(&mut self, id: Id<Exchange>) -> usize {
        let hook = self.exchanges.find(id).and_then(|exchange| exchange.body_hook);
        let Some(hook) = hook else { return usize::MAX };
        let room = match self.is_head_held(hook.request) {
            true => 0,
            false => self.in_vm(hook.request, Vm::body_room).unwrap_or(usize::MAX),
        };
        if let Some(exchange) = self.exchanges.find_mut(id) {
            exchange.body_hook = Some(ExchangeHook { is_full: room == 0, ..hook });
        }
        room
    }

    /// Hands a piece of a body to its hook, and the trailers at the end.
    pub(in crate::action) fn feed_body_hook(
        &mut self,
        id: Id<ScriptedRequest>,
        data: &[u8],
        end: Option<&[u8]>,
    ) {
        let hook = self.lua.requests.get_mut(id).and_then(ScriptedRequest::body_hook_mut);
        if let (Some(hook), Some(trailers)) = (hook, end) {
            hook.end = Some(trailers.to_vec());
        }
        self.in_vm(id, |vm, handle| {
            vm.feed_body(handle, data);
            if end.is_some() {
                vm.end_body(handle);
            }
        });
    }

    /// Detaches an exchange from its response after the server has sent the whole body. If the hook still runs, its request
    /// becomes the running action; otherwise the requester is released.
    pub(in crate::action) fn release_from_exchange<R: Reactor>(
        &mut self,
        reactor: &mut R,
        to: Requester,
        hook: Option<ExchangeHook>,
    ) {
        let Some(hook) = hook else { return self.release_requester(reactor, to) };
        if let Some(own) =
            self.lua.requests.get_mut(hook.request).and_then(ScriptedRequest::body_hook_mut)
        {
            own.exchange = Id::NONE;
        }
        self.set_running(to, Running::Lua(hook.request));
    }

    /// The client of a response has read what was sent.
    pub(in crate::action) fn body_hook_drained(&mut self, id: Id<Exchange>) {
        let hook = self.exchanges.find(id).and_then(|exchange| exchange.body_hook);
        if let Some(hook) = hook {
            self.lua_drained(hook.request);
        }
    }

    pub(super) fn in_vm<T>(
        &mut self,
        id: Id<ScriptedRequest>,
        call: impl FnOnce(&mut Vm, tidegate_lua::ScriptRequestId) -> T,
    ) -> Option<T> {
        let request = self.lua.requests.get(id)?;
        let (app, handle) = (request.app(), request.handle());
        self.lua.apps.present(app).map(|vm| call(vm, handle))
    }
}

/// Effects that scripts request.
impl Worker {
    /// Carries out `Effect::BodyRoom`.
    pub(super) fn resume_body<R: Reactor>(&mut self, reactor: &mut R, tag: u64) {
        let Some(request) = self.lua.requests.find(id_of(tag)) else { return };
        if request.upload().is_some() {
            return self.resume_request(request.requester());
        }
        let Some(id) = request.exchange() else { return };
        let Some(exchange) = self.exchanges.get_mut(id) else { return };
        if let Some(hook) = &mut exchange.body_hook {
            hook.is_full = false;
        }
        let to = exchange.requester;
        // While the client is held, the server is resumed only when the output to the client has drained.
        if !self.is_client_held(to) {
            self.resume_server(reactor, id);
        }
    }

    /// Sends a piece of a body that the hook has written. `is_end`: the hook has returned.
    pub(super) fn send_hooked<R: Reactor>(
        &mut self,
        reactor: &mut R,
        id: Id<ScriptedRequest>,
        data: &[u8],
        is_end: bool,
    ) {
        let Some(request) = self.lua.requests.find_mut(id) else { return };
        let (to, exchange) = (request.requester(), request.exchange());
        if !is_end {
            self.send_data(reactor, to, data);
            return self.hold_body(reactor, to, exchange);
        }
        let end = request.body_hook_mut().and_then(|hook| hook.end.take());
        let rest = self.in_vm(id, Vm::take_rest).unwrap_or_default();
        self.forget_scripted(id);
        if let Some(exchange) = exchange.and_then(|exchange| self.exchanges.get_mut(exchange)) {
            exchange.body_hook = None;
        }
        if !data.is_empty() {
            self.send_data(reactor, to, data);
        }
        match (end, exchange) {
            (Some(trailers), exchange) => {
                self.end_response(reactor, to, &rest, &trailers);
                // While the exchange exists, the rest of the request is still forwarded.
                if exchange.is_none() {
                    self.release_requester(reactor, to);
                }
            }
            (None, exchange) => {
                if !rest.is_empty() {
                    self.send_data(reactor, to, &rest);
                }
                if let Some(exchange) = exchange {
                    self.resume_server(reactor, exchange);
                }
                self.hold_body(reactor, to, exchange);
            }
        }
    }

    /// Stops reading from the server if the client does not take what was sent.
    pub(super) fn hold_body<R: Reactor>(
        &mut self,
        reactor: &mut R,
        to: Requester,
        exchange: Option<Id<Exchange>>,
    ) {
        if let Some(exchange) = exchange
            && self.is_client_blocked(reactor, to)
        {
            self.hold_server(reactor, exchange);
        }
    }

    /// Ends the exchange of a response whose hook has failed.
    pub(super) fn fail_hooked<R: Reactor>(
        &mut self,
        reactor: &mut R,
        id: Id<Exchange>,
        failure: Failure,
    ) {
        if let Some(exchange) = self.exchanges.get_mut(id) {
            exchange.body_hook = None;
        }
        self.fail_served(reactor, id, failure);
    }

    /// The largest number of bytes of one body that wait for a hook. For tests.
    #[must_use]
    pub fn hooked_bytes_max(&self) -> usize {
        let of = |(_, request): (_, &ScriptedRequest)| {
            self.lua.apps.peek(request.app()).map_or(0, |vm| vm.unread_bytes(request.handle()))
        };
        self.lua.requests.iter().map(of).max().unwrap_or(0)
    }

    /// Checks that exchanges and the requests of their hooks name each other. For tests.
    pub(crate) fn check_body_hooks(&self) {
        for (id, exchange) in self.exchanges.iter() {
            let Some(hook) = exchange.body_hook else { continue };
            let request = self.lua.requests.find(hook.request);
            assert_eq!(request.and_then(ScriptedRequest::exchange), Some(id), "the hook of {id:?}");
        }
    }
}
