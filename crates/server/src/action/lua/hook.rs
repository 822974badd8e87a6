//! Hooks of routes: an application decides whether and how a request is forwarded.
//! In: a request that its route has admitted. Out: a call of `on_access`; then the request, as the hook has changed it, on its
//! way to its action, or the response of the hook.
//! Never: takes a byte of a request's body before the hook has decided.
//! Limits: `DECISION_SPAN` for a hook that waits; those of `mod.rs`.
//! Invariant: a request is never forwarded if its hook fails or exceeds a limit, or if its application no longer has
//! `on_access`.

use tidegate_base::{Id, Moment, Span};
use tidegate_config::arrange::Generation;
use tidegate_gate::access::Cause;
use tidegate_gate::changes::HookChanges;
use tidegate_gate::handling::RouteHooks;
use tidegate_gate::path_parameters::path_parameters;
use tidegate_gate::scheme::Scheme;
use tidegate_gate::template::Values;
use tidegate_lua::{Handler, Origin, Vm};
use tidegate_reactor::Reactor;
use tidegate_wire::message::Method;

use crate::action::Running;
use crate::action::handled::Stage;
use crate::action::lua::response::{HOOK_FULL, ResponseHook};
use crate::action::lua::{ScriptedRequest, tag_of};
use crate::carrier::Progress;
use crate::requester::Requester;
use crate::worker::Worker;

/// How long a hook may take to decide or to respond.
const DECISION_SPAN: Span = Span::from_secs(60);
/// The reason in the log and the error response of a request whose hook has waited for too long.
const UNDECIDED: &str = "the application did not decide about the request in time";

/// The reason in the error response of a request whose application has no `on_access` any more.
const UNABLE: &str = "the application cannot decide about the request";

/// The context of a request whose hook runs: needed to forward the request if the hook does not respond itself.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hook {
    /// The route.
    route: u32,
    /// The scheme by which the client sent the request.
    scheme: Scheme,
    /// The random number of the request.
    random: u128,
    /// The deadline of the decision.
    pub(super) by: Moment,
    /// The application has `on_access`; otherwise it has only hooks for responses or the log.
    pub(super) decides: bool,
    /// The settings that `route` belongs to.
    generation: Generation,
}

impl Worker {
    /// Lets the hook of a route decide about a request.
    pub(in crate::action) fn begin_access<R: Reactor>(
        &mut self,
        reactor: &mut R,
        to: Requester,
        (route, hooks): (usize, &RouteHooks),
        values: &Values<'_>,
    ) {
        let (now, seconds, app) = (reactor.now(), reactor.unix_seconds(), hooks.app);
        let Some(vm) = self.lua.apps.vm(app, now, seconds) else {
            return self.answer_error(reactor, to, 503, "the application is not running", false);
        };
        let decides = vm.has(Handler::Access);
        let generation = self.settings_of(to).generation;
        let is_earlier = generation != self.settings.newest().generation;
        if !decides && self.lua.apps.must_decide(app, is_earlier) {
            return self.answer_error(reactor, to, 503, UNABLE, false);
        }
        let hook = Hook {
            route: route as u32,
            scheme: values.scheme,
            random: values.identity.random(),
            by: now.after(DECISION_SPAN),
            decides,
            generation,
        };
        let has_body = !matches!(values.head.method, Method::Head);
        let full = "the proxy is handling too many requests";
        let request = ScriptedRequest::of_hook(to, app, hook, has_body);
        let Ok(id) = self.lua.requests.insert(request) else {
            return self.answer_error(reactor, to, 503, full, true);
        };
        let snapshot = self.settings_of(to);
        let params = path_parameters(&snapshot.route(route).paths, values.head.path);
        let origin = Origin {
            tag: tag_of(id),
            client: values.client().into(),
            user: values.user,
            is_https: values.scheme == Scheme::Https,
            params: &params,
            pools: Some(&hooks.names),
        };
        let vm = self.lua.apps.present(app);
        let handle = vm.and_then(|vm| vm.open_request(values.head, &origin));
        let kept = self.values.take(to);
        let (Some(handle), Some(request)) = (handle, self.lua.requests.get_mut(id)) else {
            self.lua.requests.remove(id);
            self.recall_values(to, kept);
            return self.answer_error(reactor, to, 503, full, true);
        };
        request.set_handle(handle, kept);
        self.run_request(reactor, id);
    }

    /// Begins the action of a request that the hook has not answered.
    pub(super) fn forward_hooked<R: Reactor>(
        &mut self,
        reactor: &mut R,
        id: Id<ScriptedRequest>,
        hook: Hook,
    ) {
        let Some(request) = self.lua.requests.get(id) else { return };
        let (to, app, handle) = (request.requester(), request.app(), request.handle());
        let mut rewritten = core::mem::take(&mut self.lua.rewritten);
        if let Some(vm) = self.lua.apps.present(app) {
            vm.take_request(handle, &mut rewritten);
        }
        if let Some(vm) = self.lua.apps.present(app).filter(|vm| vm.has(Handler::Balance)) {
            // The request may get a server before the VM has it back.
            vm.copy_request(handle, &rewritten);
        }
        // The values of the response are rendered again, for the changed request.
        self.recall_scripted(id);
        let is_upgrade = rewritten.head.lend().upgrade || rewritten.head.lend().protocol.is_some();
        let sees_frames =
            is_upgrade && self.lua.apps.peek(app).is_some_and(|vm| vm.has(Handler::Frame));
        self.keep_for_response(id, (hook.route as usize, sees_frames));
        self.set_running(to, Running::None);
        let (snapshot, route) = (self.settings_of(to), hook.route as usize);
        if snapshot.generation != hook.generation {
            // So many reloads have happened that the request has newer settings (`adopt_requests`).
            self.lua.rewritten = rewritten;
            self.drop_response_hook();
            let text = "the configuration changed while the request waited for the application";
            return self.answer_error(reactor, to, 503, text, false);
        }
        // The hook sees uncompressed messages only: no extension is negotiated.
        if sees_frames && rewritten.fields.remove("sec-websocket-extensions").is_err() {
            self.lua.rewritten = rewritten;
            self.drop_response_hook();
            return self.answer_error(reactor, to, 503, HOOK_FULL.text, false);
        }
        let hooks = snapshot.handlings.of_route(route).and_then(|handling| handling.hooks.as_ref());
        let chosen = rewritten.pool.zip(hooks).and_then(|(at, hooks)| hooks.pools.get(at));
        let changes = HookChanges {
            fields: &rewritten.fields,
            has_path: rewritten.has_path,
            pool: chosen.copied(),
        };
        let head = rewritten.head.lend();
        let stage = Stage::Hooked(changes, hook.random);
        self.begin_handled(reactor, to, &head, (route, hook.scheme), stage);
        if let Some(vm) = self.lua.apps.present(app) {
            // For `on_response`, which gets the request.
            vm.restore_request(handle, &mut rewritten);
        }
        self.lua.rewritten = rewritten;
        self.drop_response_hook();
        // The body follows, if the hook has waited.
        self.resume_request(to);
    }

    /// Ends a request of `on_access`. Its VM keeps it if there is an `on_balance`, `on_response` or `on_body`, or an `on_frame` that
    /// may see messages.
    fn keep_for_response(&mut self, id: Id<ScriptedRequest>, (route, sees_frames): (usize, bool)) {
        let Some(request) = self.lua.requests.get(id) else { return };
        let (app, handle, to) = (request.app(), request.handle(), request.requester());
        let endpoint = self.settings_of(to).websockets.of_route(route);
        let is_needed = |vm: &mut Vm| {
            let later = [Handler::Balance, Handler::Response, Handler::Body];
            later.into_iter().any(|handler| vm.has(handler))
        };
        if !sees_frames && !self.lua.apps.present(app).is_some_and(is_needed) {
            return self.forget_scripted(id);
        }
        self.lua.requests.remove(id);
        self.lua.response_hook = Some(ResponseHook {
            app,
            life: self.lua.apps.life(app),
            handle,
            sees_frames,
            endpoint,
        });
    }

    /// Drops the hook of a request that was answered instead of forwarded.
    fn drop_response_hook(&mut self) {
        if let Some(hook) = self.lua.response_hook.take() {
            self.close_response_hook(hook);
        }
    }

    /// Whether a request that began with earlier settings waits for the decision of a hook.
    pub(crate) fn is_earlier_hook_waiting(&self) -> bool {
        let newest = self.settings.newest().generation;
        let mut hooks = self.lua.requests.iter().filter_map(|(_, request)| request.hook());
        hooks.any(|hook| hook.generation != newest)
    }

    /// Whether a request waits for the decision of a hook.
    pub(in crate::action) fn is_hook(&self, id: Id<ScriptedRequest>) -> bool {
        self.lua.requests.get(id).is_some_and(|request| request.hook().is_some())
    }

    /// How many bytes of the request body an application takes: 0 before a hook has decided.
    pub(in crate::action) fn lua_body_room(&mut self, id: Id<ScriptedRequest>) -> usize {
        if self.is_hook(id) { 0 } else { self.upload_room(id) }
    }

    /// The deadline of a hook has passed.
    pub(in crate::action) fn hook_due<R: Reactor>(
        &mut self,
        reactor: &mut R,
        id: Id<ScriptedRequest>,
    ) {
        let Some(request) = self.lua.requests.get(id) else { return };
        let to = request.requester();
        if request.hook().is_none() {
            return;
        }
        self.accounts.counters.lua_late_hooks.add(1);
        self.recall_scripted(id);
        self.forget_scripted(id);
        self.blame(to, Cause::Server, UNDECIDED);
        match self.progress(to) {
            Progress::Expected => self.answer_error(reactor, to, 504, UNDECIDED, true),
            Progress::Begun | Progress::Ended => self.cut_response(reactor, to),
        }
    }
}
