//! The action `lua`: requests that an application answers.
//! In: a request, its body, the effects of the application's callbacks. Out: calls of callbacks; responses.
//! Never: asks which protocol the client speaks; runs Lua code while it carries out the effects of a callback.
//! Limits: a body of `body-max` of the application; the share of a turn (`TurnShare`); those of `tidegate_lua`.
//!
//! - `state.rs`: what a worker holds of all applications
//! - `socket.rs`, `mail.rs`: WebSocket connections, and messages between workers
//! - `hook.rs`, `balance.rs`, `response.rs`, `held.rs`, `body.rs`, `frames.rs`: hooks on requests, responses and WebSockets of
//!   other actions
//! - `certificate.rs`: certificates of handshakes
//! - `upload.rs`: request bodies that scripts read in pieces
//! - `request.rs`, `tcp.rs`, `datagrams.rs`, `lookups.rs`, `files.rs`: requests, sockets, lookups and reads of files that
//!   applications begin
//! - `reload.rs`: new code; `relief.rs`: an application that has used up its memory
//!
//! Invariant: each request that a VM keeps has an entry in `LuaState::requests`, and the reverse.

mod balance;
pub(crate) mod body;
pub(crate) mod certificate;
mod datagrams;
pub(crate) mod files;
pub(crate) mod frames;
mod held;
mod hook;
pub(crate) mod lookups;
pub(crate) mod mail;
mod relief;
mod reload;
mod request;
pub(crate) mod response;
pub(crate) mod socket;
pub(crate) mod state;
mod tcp;
mod upload;

use tidegate_base::{Id, Moment};
use tidegate_config::findings::Finding;
use tidegate_gate::access::Cause;
use tidegate_gate::path_parameters::path_parameters;
use tidegate_gate::scheme::Scheme;
use tidegate_lua::{
    CallbackEnd, CallbackOwner, Effect, Excess, Handler, Level, Origin, Outbox, Resumed, Vm,
};
use tidegate_reactor::Reactor;
use tidegate_wire::message::{BodyLength, Method, RequestHead};
use tidegate_wire::websocket::CloseCode;

use crate::action::intake::Intake;
use crate::action::lua::body::BodyHook;
use crate::action::lua::hook::Hook;
use crate::action::lua::socket::LuaClient;
use crate::action::lua::upload::{Upload, is_streamed};
use crate::action::proxy::Failure;
use crate::action::proxy::exchange::Exchange;
use crate::action::websocket::Outlet;
use crate::action::{NO_WEBSOCKET, Running};
use crate::answer::{Answer, Head};
use crate::carrier::{Progress, Rest};
use crate::log;
use crate::requester::Requester;
use crate::timers::WorkerTimer;
use crate::worker::Worker;

/// The reason in the log and the error response of a request whose callback has failed.
const APPLICATION_FAILED: &str = "the application failed";

/// A request that an application answers.
pub(crate) struct ScriptedRequest {
    /// Where the response goes.
    requester: Requester,
    /// The index of the application.
    app: u16,
    /// The VM's id of the request.
    handle: tidegate_lua::ScriptRequestId,
    /// The progress of the request body.
    pub(crate) intake: Intake,
    /// The body has not arrived completely, and no callback has run.
    expects_body: bool,
    /// The response has a body.
    has_body: bool,
    /// The values for the edits of the response; empty if there are none, and once the response begins.
    values: Vec<u8>,
    /// The context of a request of `on_access`; `None` for other handlers.
    hook: Option<Hook>,
    /// The response of a request of `on_body`, or of `on_response` that waits; `None` for other handlers.
    body_hook: Option<Box<BodyHook>>,
    /// The request body of `on_upload`; `None` for other handlers.
    upload: Option<Upload>,
}

impl ScriptedRequest {
    /// The requester of the response.
    pub(crate) fn requester(&self) -> Requester {
        self.requester
    }

    /// The index of the application.
    pub(crate) fn app(&self) -> usize {
        usize::from(self.app)
    }

    /// The VM with the index `from` now has the index `to`.
    pub(super) fn rename_app(&mut self, from: usize, to: usize) {
        if self.app() == from {
            self.app = to as u16;
        }
    }

    /// The body has not arrived completely, and no callback has run.
    pub(super) fn expects_body(&self) -> bool {
        self.expects_body
    }

    /// A request of `on_access`. The VM does not know it yet.
    fn of_hook(requester: Requester, app: usize, hook: Hook, has_body: bool) -> Self {
        Self {
            requester,
            app: app as u16,
            handle: Id::NONE,
            intake: Intake::NONE,
            expects_body: false,
            has_body,
            values: Vec::new(),
            hook: Some(hook),
            body_hook: None,
            upload: None,
        }
    }

    /// A request of `on_body`, or of `on_response` that waits, which the VM knows.
    pub(super) fn of_body(
        requester: Requester,
        app: usize,
        handle: tidegate_lua::ScriptRequestId,
        body_hook: BodyHook,
    ) -> Self {
        Self {
            requester,
            app: app as u16,
            handle,
            intake: Intake::NONE,
            expects_body: false,
            has_body: true,
            values: Vec::new(),
            hook: None,
            body_hook: Some(Box::new(body_hook)),
            upload: None,
        }
    }

    /// Whether `on_response` of the request waits.
    pub(super) fn holds_head(&self) -> bool {
        self.body_hook.as_ref().is_some_and(|hook| hook.held.is_some())
    }

    /// Keeps the values for the edits of a response whose head is held.
    pub(super) fn keep_values(&mut self, values: Vec<u8>) {
        self.values = values;
    }

    /// The response of a request of `on_body`.
    pub(super) fn body_hook_mut(&mut self) -> Option<&mut BodyHook> {
        self.body_hook.as_deref_mut()
    }

    /// The exchange of a request of `on_body`, if it has not ended.
    pub(crate) fn exchange(&self) -> Option<Id<Exchange>> {
        self.body_hook.as_ref()?.exchange()
    }

    /// The request body of `on_upload`.
    fn upload(&self) -> Option<Upload> {
        self.upload
    }

    fn upload_mut(&mut self) -> Option<&mut Upload> {
        self.upload.as_mut()
    }

    /// The context of a request of `on_access`.
    fn hook(&self) -> Option<Hook> {
        self.hook
    }

    /// The VM knows the request by this name.
    pub(super) fn set_handle(&mut self, handle: tidegate_lua::ScriptRequestId, values: Vec<u8>) {
        (self.handle, self.values) = (handle, values);
    }

    /// The VM's id of the request.
    pub(super) fn handle(&self) -> tidegate_lua::ScriptRequestId {
        self.handle
    }
}

/// Requests.
impl Worker {
    /// Hands a request to the application `app`: at once, or when its body is complete.
    pub(super) fn begin_lua<R: Reactor>(
        &mut self,
        reactor: &mut R,
        to: Requester,
        head: &RequestHead<'_>,
        (route, app): (usize, usize),
        (scheme, user): (Scheme, Option<&str>),
    ) {
        let (now, seconds) = (reactor.now(), reactor.unix_seconds());
        let Some(vm) = self.lua.apps.vm(app, now, seconds) else {
            return self.answer_error(reactor, to, 503, "the application is not running", false);
        };
        let serves_sockets = vm.has(Handler::Message) || vm.has(Handler::Open);
        let serves_requests = vm.has(Handler::Request) || vm.has(Handler::Upload);
        let has_body = !matches!(head.length, BodyLength::None | BodyLength::Length(0));
        let is_streamed = is_streamed(vm, has_body);
        let sender = (scheme == Scheme::Https, user);
        if serves_sockets && (head.upgrade || !serves_requests) {
            return self.begin_lua_socket(reactor, to, head, (route, app), sender);
        }
        if head.protocol.is_some() {
            return self.answer_error(reactor, to, 501, NO_WEBSOCKET, false);
        }
        let body_bytes_max = self.lua.apps.settings(app).map_or(0, |app| app.body_bytes_max) as u64;
        let is_too_large =
            matches!(head.length, BodyLength::Length(length) if length > body_bytes_max);
        if is_too_large && !is_streamed {
            let text = "the request body exceeds the application's limit";
            return self.answer_error(reactor, to, 413, text, true);
        }
        let expects_body = has_body && !is_streamed;
        let request = ScriptedRequest {
            requester: to,
            app: app as u16,
            handle: Id::NONE,
            intake: Intake::NONE,
            expects_body,
            has_body: !matches!(head.method, Method::Head),
            values: self.values.take(to),
            hook: None,
            body_hook: None,
            upload: is_streamed
                .then_some(Upload { awaits_continue: head.expect_continue, is_over: !has_body }),
        };
        let full = "the proxy is handling too many requests";
        let Ok(id) = self.lua.requests.insert(request) else {
            return self.answer_error(reactor, to, 503, full, true);
        };
        let handle = self.open_in_vm(to, head, (route, app), sender, tag_of(id));
        let (Some(handle), Some(request)) = (handle, self.lua.requests.get_mut(id)) else {
            self.lua.requests.remove(id);
            return self.answer_error(reactor, to, 503, full, true);
        };
        request.handle = handle;
        if is_streamed {
            self.begin_upload(id, has_body);
        }
        if !expects_body {
            return self.run_request(reactor, id);
        }
        self.set_running(to, Running::Lua(id));
        if head.expect_continue {
            // RFC 9110 section 10.1.1: a recipient that wants the body must request it with 100.
            self.send_continue(reactor, to);
        }
    }

    /// Hands the head of a request to the VM of `app`. `is_https`: the client sent it over https; `user`: the user that was verified.
    pub(super) fn open_in_vm(
        &mut self,
        to: Requester,
        head: &RequestHead<'_>,
        (route, app): (usize, usize),
        (is_https, user): (bool, Option<&str>),
        tag: u64,
    ) -> Option<tidegate_lua::ScriptRequestId> {
        let snapshot = self.settings_of(to);
        let client = self.client_ip(to, head).into();
        let params = &path_parameters(&snapshot.route(route).paths, head.path)[..];
        let origin = Origin { tag, client, user, is_https, params, pools: None };
        self.lua.apps.present(app)?.open_request(head, &origin)
    }

    /// Takes bytes of the request body. Calls the application once the body is complete.
    pub(super) fn feed_lua<R: Reactor>(
        &mut self,
        reactor: &mut R,
        id: Id<ScriptedRequest>,
        data: &[u8],
        is_end: bool,
    ) {
        let Some(request) = self.lua.requests.get_mut(id) else { return };
        let (app, handle, to) = (request.app(), request.handle, request.requester);
        if request.upload.is_some() {
            return self.feed_upload(id, data, is_end);
        }
        if !request.expects_body {
            return;
        }
        let body_bytes_max = self.lua.apps.settings(app).map_or(0, |app| app.body_bytes_max);
        let bytes = self.lua.apps.present(app).map_or(0, |vm| vm.add_body(handle, data));
        if bytes > body_bytes_max {
            self.forget_scripted(id);
            let text = "the request body exceeds the application's limit";
            return self.answer_error(reactor, to, 413, text, true);
        }
        if is_end {
            self.run_request(reactor, id);
        }
    }

    /// Whether the application waits for the rest of the request body.
    pub(super) fn lua_expects_body(&self, id: Id<ScriptedRequest>) -> bool {
        self.lua.requests.get(id).is_some_and(|request| request.expects_body)
            || self.awaits_upload(id)
    }

    /// Whether the application cannot complete its response without the rest of the request body.
    pub(super) fn lua_needs_body(&self, id: Id<ScriptedRequest>) -> bool {
        self.lua_expects_body(id) || self.is_hook(id) || self.needs_upload(id)
    }

    /// Runs `on_request` or `on_access`, in a later turn if callbacks have used up their share of this one.
    pub(super) fn run_request<R: Reactor>(&mut self, reactor: &mut R, id: Id<ScriptedRequest>) {
        let Some(request) = self.lua.requests.get_mut(id) else { return };
        request.expects_body = false;
        let to = request.requester;
        if self.lua.share.is_used_up() {
            self.lua.share.put_off(to.sock, id);
            return self.set_running(to, Running::Lua(id));
        }
        self.call_on_request(reactor, id);
    }

    fn call_on_request<R: Reactor>(&mut self, reactor: &mut R, id: Id<ScriptedRequest>) {
        // The client may have left while the request waited.
        let Some(request) = self.lua.requests.find(id) else { return };
        let (app, handle, to) = (request.app(), request.handle, request.requester);
        let (hook, has_body_hook) = (request.hook, request.body_hook.is_some());
        let is_streamed = request.upload.is_some();
        self.mark_requester(to);
        let verdict = match hook {
            None if has_body_hook => {
                self.call_app(reactor, app, "on_body", None, |vm| vm.body(handle))
            }
            None if is_streamed => {
                self.call_app(reactor, app, "on_upload", None, |vm| vm.upload(handle))
            }
            None => self.call_app(reactor, app, "on_request", None, |vm| vm.request(handle)),
            Some(hook) if !hook.decides => Some(CallbackEnd::Done),
            Some(_) => self.call_app(reactor, app, "on_access", None, |vm| vm.access(handle)),
        };
        self.note_request_turn(reactor, id, verdict.as_ref());
    }

    /// `on_request` or `on_access` has ended or waits.
    fn note_request_turn<R: Reactor>(
        &mut self,
        reactor: &mut R,
        id: Id<ScriptedRequest>,
        verdict: Option<&CallbackEnd>,
    ) {
        // The response may be complete.
        let Some(request) = self.lua.requests.find(id) else { return };
        let (to, hook) = (request.requester, request.hook);
        if request.holds_head() {
            return self.end_held_hook(reactor, id, to, verdict);
        }
        match (verdict, hook) {
            // The running action is the exchange, or already the request.
            (Some(CallbackEnd::Waiting), None) if request.body_hook.is_some() => {}
            (Some(CallbackEnd::Waiting), None) => {
                self.set_running(to, Running::Lua(id));
                self.request_upload(reactor, id, to);
            }
            (Some(CallbackEnd::Waiting), Some(hook)) => {
                self.set_running(to, Running::Lua(id));
                self.set_action_deadline(reactor, to, hook.by);
            }
            (Some(CallbackEnd::Done), Some(hook)) => self.forward_hooked(reactor, id, hook),
            // The callback has failed, or the application is gone.
            _ => {
                debug_assert!(
                    verdict != Some(&CallbackEnd::Done),
                    "on_request completes its response"
                );
                self.fail_scripted(reactor, id, to);
            }
        }
    }

    /// The client has read what was sent.
    pub(super) fn lua_drained(&mut self, id: Id<ScriptedRequest>) {
        let Some(request) = self.lua.requests.get(id) else { return };
        let (app, handle) = (request.app(), request.handle);
        if let Some(vm) = self.lua.apps.present(app) {
            vm.note_drained(handle);
        }
    }

    /// Carries out `Effect::AwaitDrain`.
    fn await_drain<R: Reactor>(&mut self, reactor: &mut R, tag: u64) {
        let Some(to) = self.requester_of(tag) else { return };
        if self.is_client_blocked(reactor, to) {
            return self.hold_client(reactor, to);
        }
        // The callback continues after the turn: a client that reads at once gets no more than its share.
        self.lua_drained(id_of(tag));
    }

    /// Answers a request whose callback has failed.
    pub(super) fn fail_scripted<R: Reactor>(
        &mut self,
        reactor: &mut R,
        id: Id<ScriptedRequest>,
        to: Requester,
    ) {
        self.end_scripted(reactor, (id, to), 500, APPLICATION_FAILED);
    }

    /// Ends a request whose response will not be completed.
    pub(super) fn end_scripted<R: Reactor>(
        &mut self,
        reactor: &mut R,
        (id, to): (Id<ScriptedRequest>, Requester),
        status: u16,
        text: &'static str,
    ) {
        let exchange = self.lua.requests.find(id).and_then(ScriptedRequest::exchange);
        self.recall_scripted(id);
        self.forget_scripted(id);
        self.blame(to, Cause::Server, text);
        if let Some(exchange) = exchange {
            return self.fail_hooked(reactor, exchange, Failure::new(status, text));
        }
        match self.progress(to) {
            Progress::Expected => self.answer_error(reactor, to, status, text, false),
            Progress::Begun | Progress::Ended => self.cut_response(reactor, to),
        }
    }

    /// Releases everything that a request holds here and in its VM.
    pub(super) fn forget_scripted(&mut self, id: Id<ScriptedRequest>) {
        if let Some(request) = self.lua.requests.remove(id)
            && let Some(vm) = self.lua.apps.present(request.app())
        {
            vm.close_request(request.handle);
        }
    }
}

/// Start and stop of applications.
impl Worker {
    /// Runs `on_start` of every application.
    ///
    /// # Errors
    /// The applications whose `on_start` failed.
    pub fn start_apps<R: Reactor>(&mut self, reactor: &mut R) -> Result<(), Vec<Finding>> {
        let mut findings = Vec::new();
        for app in 0..self.lua.apps.len() {
            let verdict = self.call_app(reactor, app, "on_start", None, Vm::start);
            if let Some(CallbackEnd::Failed(failure)) = verdict {
                findings
                    .extend(self.lua.apps.finding(app, format!("on_start: {}", failure.message)));
            }
        }
        if findings.is_empty() { Ok(()) } else { Err(findings) }
    }

    /// The process stops, at `by` at the latest: scripts learn of it.
    pub(crate) fn note_stop_to_apps<R: Reactor>(&mut self, reactor: &mut R, by: Moment) {
        for place in 0..self.lua.apps.len() {
            let app = self.lua.apps.index_at(place);
            if let Some(vm) = self.lua.apps.present(app) {
                vm.note_stopping(by);
            }
        }
        self.arm_apps(reactor);
    }

    /// Runs code that an operator has typed, in the application of this name. Returns its values as text, or what has failed.
    pub(crate) fn evaluate<R: Reactor>(
        &mut self,
        reactor: &mut R,
        name: &str,
        code: &[u8],
    ) -> Result<String, String> {
        let app =
            self.lua.apps.named(name).ok_or_else(|| format!("there is no application {name:?}"))?;
        let mut shown = String::new();
        let verdict = self.call_app(reactor, app, "the console", None, |vm| {
            let (verdict, text) = vm.evaluate(code);
            shown = text;
            verdict
        });
        match verdict {
            Some(CallbackEnd::Failed(failure)) => Err(failure.to_string()),
            Some(CallbackEnd::Done | CallbackEnd::Waiting) => Ok(shown),
            None => Err("the application is paused after failures".to_owned()),
        }
    }

    /// Runs `on_stop` of every application, after everything else has ended.
    pub fn stop_apps<R: Reactor>(&mut self, reactor: &mut R) {
        self.run_last_log_hooks(reactor);
        for place in 0..self.lua.apps.len() {
            let app = self.lua.apps.index_at(place);
            self.call_app(reactor, app, "on_stop", None, Vm::stop);
        }
    }
}

/// Callbacks and their effects.
impl Worker {
    /// Runs a callback of an application and carries out its effects. `None` if the application is paused. `reply`: the
    /// WebSocket client whose message is being handled, and its outlet.
    pub(super) fn call_app<R: Reactor>(
        &mut self,
        reactor: &mut R,
        app: usize,
        what: &str,
        reply: Option<(Id<LuaClient>, &mut Outlet<'_>)>,
        call: impl FnOnce(&mut Vm) -> CallbackEnd,
    ) -> Option<CallbackEnd> {
        let (now, seconds) = (reactor.now(), reactor.unix_seconds());
        let vm = self.lua.apps.vm(app, now, seconds)?;
        let began = reactor.read_clock();
        let verdict = call(vm);
        self.lua.share.note_call(reactor.read_clock().since(began));
        self.finish_call(reactor, app, (what, &verdict), reply);
        Some(verdict)
    }

    /// Carries out the effects of a callback, and notes how the callback ended.
    fn finish_call<R: Reactor>(
        &mut self,
        reactor: &mut R,
        app: usize,
        (what, verdict): (&str, &CallbackEnd),
        reply: Option<(Id<LuaClient>, &mut Outlet<'_>)>,
    ) {
        self.accounts.counters.lua_callbacks.add(1);
        let outbox = self.lua.apps.take_outbox(app);
        self.accounts.counters.lua_refusals.add(outbox.refusals);
        self.lua.last_callback = self.lua.last_callback.wrapping_add(1).max(1);
        self.lua.callback = self.lua.last_callback;
        self.carry_out(reactor, app, &outbox, reply);
        self.lua.callback = 0;
        self.lua.apps.put_outbox(outbox);
        if let CallbackEnd::Failed(failure) = verdict {
            self.accounts.counters.lua_failures.add(1);
            self.accounts.counters.lua_excesses.add(u64::from(failure.is_excess()));
            let is_late = failure.excess == Some(Excess::Wait);
            self.accounts.counters.lua_late_hooks.add(u64::from(is_late));
        }
        if matches!(verdict, CallbackEnd::Failed(failure) if failure.excess == Some(Excess::Memory))
        {
            self.relieve_app(reactor, app);
        }
        if self.lua.apps.note(app, what, verdict, reactor.now()) {
            self.accounts.counters.lua_restarts.add(1);
            self.abandon_app(reactor, app);
        }
        if let Some(due) = self.lua.apps.arm(app) {
            WorkerTimer::Lua.set(reactor, due);
        }
    }

    /// Begins the callbacks of requests that had to wait, continues those whose wait is over, and begins timers and threads
    /// that are due, until their share of the turn is used up.
    pub(crate) fn resume_apps<R: Reactor>(&mut self, reactor: &mut R) {
        let has_waiting = self.lua.share.has_waiting()
            || self.lua.log_hooks.len() > 0
            || !self.lua.put_off_tunnels.is_empty()
            || !self.lua.put_off_choices.is_empty()
            || self.lua.apps.has_broadcasts();
        if self.lua.apps.retired_len() == 0 && !self.lua.apps.has_ready() && !has_waiting {
            return;
        }
        // Clients of earlier code, requests, tunnels, handshakes, `on_log`, broadcasts and threads get a share each, so that none of them
        // delays the others.
        self.lua.share.renew();
        self.serve_retired(reactor);
        while !self.lua.share.is_used_up()
            && let Some(id) = self.lua.share.take_next()
        {
            self.call_on_request(reactor, id);
        }
        self.lua.share.renew();
        self.resume_put_off_tunnels(reactor);
        self.unmark();
        self.lua.share.renew();
        self.resume_put_off_choices(reactor);
        self.lua.share.renew();
        self.run_log_hooks(reactor);
        self.lua.share.renew();
        self.deliver_broadcasts(reactor);
        self.lua.share.renew();
        self.resume_ready(reactor);
        self.arm_apps(reactor);
        self.settle(reactor);
    }

    /// Continues ready coroutines of the applications in rotation, one of each, until the share of the turn is used up. The next turn
    /// begins where this one ended: no application that is always ready keeps the others waiting.
    fn resume_ready<R: Reactor>(&mut self, reactor: &mut R) {
        let mut idle = 0;
        while idle < self.lua.apps.len() && !self.lua.share.is_used_up() {
            let place = self.lua.next_ready % self.lua.apps.len();
            self.lua.next_ready = place + 1;
            let app = self.lua.apps.index_at(place);
            idle = if self.resume_app(reactor, app) { 0 } else { idle + 1 };
        }
    }

    /// `WorkerTimer::Lua` has expired.
    pub(crate) fn collect_due_apps<R: Reactor>(&mut self, reactor: &mut R) {
        self.lua.apps.collect_due(reactor.now(), reactor.unix_seconds());
        self.arm_apps(reactor);
    }

    /// Sets `WorkerTimer::Lua` for the first deadline of the applications.
    pub(super) fn arm_apps<R: Reactor>(&mut self, reactor: &mut R) {
        for place in 0..self.lua.apps.len() {
            if let Some(due) = self.lua.apps.arm(self.lua.apps.index_at(place)) {
                WorkerTimer::Lua.set(reactor, due);
            }
        }
        if let Some(due) = self.lua.apps.next_of_retired()
            && let Some(due) = self.lua.apps.arm_at(due)
        {
            WorkerTimer::Lua.set(reactor, due);
        }
    }

    /// Continues one callback. Returns false if none is ready.
    fn resume_app<R: Reactor>(&mut self, reactor: &mut R, app: usize) -> bool {
        if !self.lua.apps.present(app).is_some_and(|vm| vm.is_ready()) {
            return false;
        }
        if self.route_marks.are_on() {
            self.mark_next_callback(app);
        }
        let (now, seconds) = (reactor.now(), reactor.unix_seconds());
        let began = reactor.read_clock();
        let resumed = self.lua.apps.vm(app, now, seconds).and_then(Vm::resume);
        self.lua.share.note_call(reactor.read_clock().since(began));
        let Some(Resumed { owner, what, verdict }) = resumed else { return false };
        self.finish_call(reactor, app, (what, &verdict), None);
        match owner {
            CallbackOwner::Request { tag } => {
                self.note_request_turn(reactor, id_of(tag), Some(&verdict));
            }
            CallbackOwner::Client { tag } => self.note_client_turn(reactor, tag, verdict),
            CallbackOwner::Event { tag } => self.note_event_turn(reactor, tag, Some(&verdict)),
            CallbackOwner::Tunnel { tag } => self.note_frame_turn(reactor, tag, &verdict),
            CallbackOwner::Hello { tag } => {
                self.note_choice_turn(reactor, tag, Some(&verdict));
            }
            CallbackOwner::Application => {}
        }
        true
    }

    /// Marks the request or the client whose callback is continued next.
    fn mark_next_callback(&mut self, app: usize) {
        let next = self.lua.apps.present(app).map(|vm| vm.next_owner());
        let to = match next {
            Some(CallbackOwner::Request { tag }) => self.requester_of(tag),
            Some(CallbackOwner::Client { tag }) => self.requester_of_client(tag),
            Some(CallbackOwner::Tunnel { tag }) => self.requester_of_tunnel(tag),
            Some(
                CallbackOwner::Event { .. }
                | CallbackOwner::Hello { .. }
                | CallbackOwner::Application,
            )
            | None => None,
        };
        match to {
            Some(to) => self.mark_requester(to),
            None => self.unmark(),
        }
    }

    /// The VM of an application is gone: its requests get an error.
    pub(super) fn abandon_app<R: Reactor>(&mut self, reactor: &mut R, app: usize) {
        let of_app = |(id, request): (Id<ScriptedRequest>, &ScriptedRequest)| {
            (request.app() == app).then_some((id, request.requester))
        };
        let requests: Vec<_> = self.lua.requests.iter().filter_map(of_app).collect();
        for (id, to) in requests {
            self.fail_scripted(reactor, id, to);
        }
        self.fail_events_of(app);
        self.fail_choices_of(reactor, app);
        self.abandon_lua_clients(reactor, app);
        self.abandon_tunnels(reactor, app, (CloseCode::INTERNAL_ERROR, ""));
        self.cancel_own_of(reactor, app);
        self.end_datagrams_of(reactor, app);
    }

    /// Carries out the effects of a callback, in order.
    fn carry_out<R: Reactor>(
        &mut self,
        reactor: &mut R,
        app: usize,
        outbox: &Outbox,
        mut reply: Option<(Id<LuaClient>, &mut Outlet<'_>)>,
    ) {
        for effect in &outbox.effects {
            match effect {
                Effect::Answer { tag, status, fields, body } => {
                    let Some(to) = self.requester_of(*tag) else { continue };
                    self.recall_scripted(id_of(*tag));
                    self.forget_scripted(id_of(*tag));
                    let (fields, body) = (outbox.get(fields), outbox.get(body));
                    let answer = Answer::Scripted { status: *status, fields, body };
                    self.answer(reactor, to, &answer, false);
                }
                Effect::Begin { tag, status, fields } => {
                    let Some(to) = self.requester_of(*tag) else { continue };
                    self.recall_scripted(id_of(*tag));
                    self.set_running(to, Running::Lua(id_of(*tag)));
                    self.end_upload(id_of(*tag));
                    let head = Head::Scripted { status: *status, fields: outbox.get(fields) };
                    self.begin_response(reactor, to, &head, Rest::Discarded);
                }
                Effect::Drop { tag } => self.drop_scripted(reactor, *tag),
                Effect::Data { tag, body, is_end } => {
                    self.send_scripted(reactor, *tag, outbox.get(body), *is_end);
                }
                Effect::Send { tag, is_text, data } => {
                    let message = (*is_text, outbox.get(data));
                    self.send_lua_message(reactor, *tag, message, reply.as_mut());
                }
                Effect::Close { tag, code, reason } => {
                    self.close_by_lua(reactor, *tag, *code, outbox.get(reason));
                }
                Effect::SendRemote { to, is_text, data } => {
                    self.send_lua_remote(reactor, app, *to, (*is_text, outbox.get(data)));
                }
                Effect::CloseRemote { to, code, reason } => {
                    self.close_lua_remote(reactor, app, *to, *code, outbox.get(reason));
                }
                Effect::SendFrame { tag, to_client, is_text, data } => {
                    let message = (*is_text, outbox.get(data));
                    self.send_lua_frame(reactor, (*tag, *to_client), message);
                }
                Effect::CloseTunnel { tag, code, reason } => {
                    self.close_lua_tunnel(reactor, *tag, (*code, outbox.get(reason)));
                }
                Effect::AwaitDrain { tag } => self.await_drain(reactor, *tag),
                Effect::BodyRoom { tag } => self.resume_body(reactor, *tag),
                Effect::Connect { socket, pool } => {
                    self.connect_lua_socket(reactor, app, (*socket, *pool));
                }
                Effect::SocketSend { tag, data } => {
                    self.send_lua_socket(reactor, *tag, outbox.get(data));
                }
                Effect::SocketResume { tag } => self.resume_lua_socket(reactor, *tag),
                Effect::SocketIdle { tag, span } => self.keep_lua_socket(reactor, *tag, *span),
                Effect::Lookup { operation, question } => {
                    self.look_up(reactor, app, *operation, question);
                }
                Effect::ReadFile { operation, path, offset, bytes_max } => {
                    let piece = (outbox.get(path), *offset, *bytes_max);
                    self.read_lua_file(app, *operation, piece);
                }
                Effect::OpenDatagrams { socket, peer } => {
                    self.open_lua_datagrams(reactor, app, (*socket, *peer));
                }
                Effect::SendDatagram { operation, tag, data } => {
                    self.send_lua_datagram(reactor, app, *operation, (*tag, outbox.get(data)));
                }
                // Only the VMs of `tidegate lua test` request this effect.
                Effect::Test { .. } => {}
                Effect::Broadcast { channel, data } => {
                    self.broadcast_lua(outbox.get(channel), outbox.get(data));
                }
                Effect::QueueFilled { worker, queue } => {
                    let queue = self.lua.apps.peek(app).and_then(|vm| vm.queue(*queue)).cloned();
                    if let Some(queue) = queue {
                        self.tell_of_queue(*worker, &queue);
                    }
                }
                Effect::Push { operation, hub, method, arguments } => {
                    let call = (outbox.get(hub), outbox.get(method), outbox.get(arguments));
                    self.call_hub(reactor, app, *operation, call);
                }
                Effect::Decide { tag, decision } => {
                    self.take_lua_decision(*tag, outbox.get(decision));
                }
                Effect::ChooseCertificate { tag, choice } => {
                    self.take_lua_choice(reactor, *tag, choice);
                }
                Effect::Http { operation, request } => {
                    self.send_lua_request(reactor, app, *operation, (request, outbox));
                }
                Effect::Log { level, text } => {
                    let text = String::from_utf8_lossy(outbox.get(text));
                    let name = self.lua.apps.name(app);
                    // The log escapes line breaks, so that a client cannot forge a line.
                    match level {
                        Level::Error => log::error(format_args!("lua {name}: {text}")),
                        Level::Warning => log::warning(format_args!("lua {name}: {text}")),
                        Level::Info => log::info(format_args!("lua {name}: {text}")),
                    }
                }
            }
        }
    }

    /// Makes the values of a request those of the response that begins now.
    pub(super) fn recall_scripted(&mut self, id: Id<ScriptedRequest>) {
        let Some(request) = self.lua.requests.find_mut(id) else { return };
        if request.body_hook.is_some() && !request.holds_head() {
            // Its response has begun.
            return;
        }
        let (to, values) = (request.requester, core::mem::take(&mut request.values));
        self.recall_values(to, values);
    }

    /// Sends a piece of a response body.
    fn send_scripted<R: Reactor>(&mut self, reactor: &mut R, tag: u64, data: &[u8], is_end: bool) {
        let id = id_of(tag);
        let Some(request) = self.lua.requests.find(id) else { return };
        if request.body_hook.is_some() {
            return self.send_hooked(reactor, id, data, is_end);
        }
        let to = request.requester;
        let data = if request.has_body { data } else { b"" };
        match is_end {
            false => {
                if !data.is_empty() {
                    self.send_data(reactor, to, data);
                }
            }
            true => {
                self.forget_scripted(id);
                self.end_response(reactor, to, data, b"");
                self.release_requester(reactor, to);
            }
        }
    }

    /// Ends an exchange without a response, or without the rest of it.
    fn drop_scripted<R: Reactor>(&mut self, reactor: &mut R, tag: u64) {
        let Some(to) = self.requester_of(tag) else { return };
        self.set_running(to, Running::None);
        self.forget_scripted(id_of(tag));
        self.abandon_client(reactor, to, Cause::Refused, "the application dropped the request");
    }

    /// The requester of the request with this tag, unless the request has ended.
    fn requester_of(&self, tag: u64) -> Option<Requester> {
        self.lua.requests.find(id_of(tag)).map(|request| request.requester)
    }
}

/// The tag by which a VM addresses a request.
pub(super) fn tag_of(id: Id<ScriptedRequest>) -> u64 {
    u64::from(id.generation) << 32 | u64::from(id.index)
}

/// The request that a VM addresses by this tag.
pub(super) fn id_of(tag: u64) -> Id<ScriptedRequest> {
    Id::new(tag as u32, (tag >> 32) as u32)
}
