//! Reloads the code of Lua applications while the worker serves.
//! In: programs that have changed; the VMs of earlier code. Out: new VMs; clients that are handed over or closed; the end of
//! the earlier VMs.
//! Never: ends a request or a connection at once because of a change: the earlier VM continues them (`retired.rs`).
//! Limits: those of `retired.rs`. Clients are handed over within the share of a turn that callbacks have; at most
//! `CLOSES_OF_TURN_MAX` are closed in a turn.
//! Invariant: settings with new code come into force after `on_start` of all new code has succeeded. At the moment of the
//! change, every stored index of the earlier VM is replaced (`rename_app`). So what began with earlier code never reaches the
//! new code, and what begins later never reaches the earlier code.

use std::collections::VecDeque;
use std::sync::Arc;

use tidegate_base::Id;
use tidegate_config::findings::Finding;
use tidegate_config::model::Config;

use tidegate_lua::{CallbackEnd, Handler, Vm};
use tidegate_reactor::Reactor;
use tidegate_wire::websocket::CloseCode;

use crate::action::lua::response::LogHooks;
use crate::action::lua::socket::LuaClient;
use crate::apps::{Scripts, Successor};
use crate::requester::Requester;
use crate::retired::Next;
use crate::snapshot::Snapshot;
use crate::worker::Worker;

/// The code and the reason of the Close frames that a reload sends: "service restart", so that clients connect again
/// (registered with IANA for RFC 6455 section 11.7).
const RESTART: (u16, &str) = (1012, "the application was reloaded");
/// How many clients of earlier code are closed in a turn at most, each with a system call.
const CLOSES_OF_TURN_MAX: usize = 32;
/// The error of a request that the earlier code has not answered in time.
const RELOADED: &str = "the application was reloaded";

/// The change to newer code.
impl Worker {
    /// Loads and starts the applications that `config` and its programs change, and keeps them until these settings come
    /// into force, or until `drop_prepared_apps`. So no worker changes its applications if one worker cannot.
    ///
    /// # Errors
    /// The errors in the scripts. Nothing has changed.
    pub fn prepare_apps<R: Reactor>(
        &mut self,
        reactor: &mut R,
        config: &Config,
        scripts: &Scripts,
    ) -> Result<(), Vec<Finding>> {
        if self.stopping {
            return Ok(());
        }
        let successors = self.load_apps_of(reactor, config, scripts)?;
        self.lua.apps.keep_prepared(Arc::clone(scripts), successors);
        Ok(())
    }

    /// Drops the prepared applications, because another worker cannot use the settings.
    pub fn drop_prepared_apps(&mut self) {
        self.lua.apps.drop_prepared();
    }

    /// Takes the applications that were prepared for these settings, or prepares them.
    ///
    /// # Errors
    /// The errors in the scripts. Nothing has changed.
    pub(crate) fn successors<R: Reactor>(
        &mut self,
        reactor: &mut R,
        snapshot: &Snapshot,
    ) -> Result<Vec<Successor>, Vec<Finding>> {
        let Some(scripts) = &snapshot.scripts else { return Ok(Vec::new()) };
        match self.lua.apps.take_prepared(scripts) {
            Some(successors) => Ok(successors),
            None => self.load_apps_of(reactor, &snapshot.config, scripts),
        }
    }

    fn load_apps_of<R: Reactor>(
        &mut self,
        reactor: &mut R,
        config: &Config,
        scripts: &Scripts,
    ) -> Result<Vec<Successor>, Vec<Finding>> {
        let prepared =
            self.lua.apps.prepare((config, scripts), reactor.now(), reactor.unix_seconds());
        let failures = prepared.as_ref().map_or_else(Vec::len, |_| 0);
        self.accounts.counters.lua_reload_failures.add(failures as u64);
        prepared
    }

    /// Puts the changed applications into force.
    pub(crate) fn change_apps<R: Reactor>(&mut self, reactor: &mut R, successors: Vec<Successor>) {
        if successors.is_empty() {
            return;
        }
        for successor in successors {
            self.change_app(reactor, successor);
        }
        self.lua.log_hooks.set_apps(self.lua.apps.with(Handler::Log));
        if self.lua.log_hooks.are_needed() {
            self.recorder.keep_for_hooks();
        }
        self.arm_apps(reactor);
    }

    fn change_app<R: Reactor>(&mut self, reactor: &mut R, successor: Successor) {
        let Successor { index: app, app: next, started } = successor;
        let before = self.lua.apps.install(app, next);
        let old = before.map(|before| self.lua.apps.retire(app, before, reactor.now()));
        if let Some(old) = old {
            self.rename_app(app, old);
        }
        self.accounts.counters.lua_reloads.add(1);
        if let Some(started) = started {
            // Carries out the effects of `on_start`.
            self.call_app(reactor, app, "on_start", None, |_| started);
        }
        let Some(old) = old else { return };
        let clients = self.clients_of_app(old);
        self.lua.apps.set_leaving(old, clients);
        if let Some(by) = self
            .lua
            .apps
            .retired
            .iter()
            .find(|retired| retired.index == old)
            .map(|retired| retired.by)
        {
            self.call_app(reactor, old, "on_retire", None, |vm| vm.retire(by));
        }
        while let Some(oldest) = self.lua.apps.excess_retired(app) {
            self.accounts.counters.lua_reload_cuts.add(1);
            self.end_retired(reactor, oldest);
        }
    }

    /// Gives a VM the index `to` instead of `from`, in everything that stores the index.
    fn rename_app(&mut self, from: usize, to: usize) {
        let requests: Vec<_> = self.lua.requests.iter().map(|(id, _)| id).collect();
        for id in requests {
            if let Some(request) = self.lua.requests.find_mut(id) {
                request.rename_app(from, to);
            }
        }
        let clients: Vec<_> = self.lua.clients.iter().map(|(id, _)| id).collect();
        for id in clients {
            if let Some(client) = self.lua.clients.find_mut(id) {
                client.rename_app(from, to);
            }
        }
        let exchanges: Vec<_> = self.exchanges.iter().map(|(id, _)| id).collect();
        for id in exchanges {
            let Some(exchange) = self.exchanges.find_mut(id) else { continue };
            if let Some(hook) = exchange.response_hook.as_mut().filter(|hook| hook.app == from) {
                hook.app = to;
            }
            if let Some(hook) = exchange.frames.as_mut().and_then(|frames| frames.hook.as_mut()) {
                hook.rename_app(from, to);
            }
        }
        self.own.rename_app(from, to);
        self.datagrams.rename_app(from, to);
        self.lookups.rename_app(from, to);
        let events: Vec<_> = self.lua.events.iter().map(|(id, _)| id).collect();
        for id in events {
            if let Some(event) = self.lua.events.get_mut(id) {
                event.rename_app(from, to);
            }
        }
        let choices: Vec<_> = self.lua.choices.iter().map(|(id, _)| id).collect();
        for id in choices {
            if let Some(choice) = self.lua.choices.get_mut(id) {
                choice.rename_app(from, to);
            }
        }
        let files: Vec<_> = self.lua.files.iter().map(|(id, _)| id).collect();
        for id in files {
            if let Some(file) = self.lua.files.get_mut(id) {
                file.rename_app(from, to);
            }
        }
        let calls: Vec<_> = self.lua.calls.iter().map(|(id, _)| id).collect();
        for id in calls {
            if let Some(call) = self.lua.calls.get_mut(id) {
                call.rename_app(from, to);
            }
        }
    }

    fn clients_of_app(&self, app: usize) -> VecDeque<Id<LuaClient>> {
        let of_app = |(id, client): (Id<LuaClient>, &LuaClient)| {
            (client.app() == app && client.is_in_vm()).then_some(id)
        };
        self.lua.clients.iter().filter_map(of_app).collect()
    }
}

/// The VMs of earlier code.
impl Worker {
    /// Hands over or closes the clients that are next, and ends the VMs whose grace period is over or that have no work left.
    pub(super) fn serve_retired<R: Reactor>(&mut self, reactor: &mut R) {
        if self.lua.apps.retired_len() == 0 {
            return;
        }
        let mut closes = 0;
        while !self.lua.share.is_used_up()
            && closes < CLOSES_OF_TURN_MAX
            && let Some(next) = self.lua.apps.take_leaving(reactor.now())
        {
            match next {
                Next::HandOver(client) => self.hand_over_client(reactor, client),
                Next::Close(client) => {
                    closes += 1;
                    self.close_reloaded(reactor, client);
                }
            }
        }
        self.lua.share.renew();
        while let Some((old, is_late)) = self.lua.apps.ended_retired(reactor.now()) {
            self.accounts.counters.lua_reload_cuts.add(u64::from(is_late));
            self.end_retired(reactor, old);
        }
    }

    /// Closes the connection of a client of earlier code.
    fn close_reloaded<R: Reactor>(&mut self, reactor: &mut R, client: Id<LuaClient>) {
        let is_open = |entry: &LuaClient| {
            let socket = self.websockets.sessions.find(entry.websocket());
            entry.is_in_vm()
                && self.lua.apps.is_retired(entry.app())
                && socket.is_some_and(|socket| !socket.is_closing())
        };
        if self.lua.clients.find(client).is_some_and(is_open) {
            self.accounts.counters.lua_drained_clients.add(1);
            self.close_lua_client(reactor, client, RESTART.0, RESTART.1);
        }
    }

    /// Hands a client of earlier code over to the new code, unless a handler of the client waits: then it is handed over
    /// when the handler has ended.
    pub(super) fn hand_over_client<R: Reactor>(&mut self, reactor: &mut R, id: Id<LuaClient>) {
        let Some(client) = self.lua.clients.find(id) else { return };
        let (old, handle, websocket) = (client.app(), client.handle(), client.websocket());
        let Some(app) = self.lua.apps.handover_target(old) else { return };
        let is_closing =
            self.websockets.sessions.find(websocket).is_none_or(|socket| socket.is_closing());
        if !client.is_in_vm() || client.is_waiting() || is_closing {
            return;
        }
        let mut state = None;
        let release = |vm: &mut Vm| vm.release_client(handle, &mut state);
        let released = self.call_app(reactor, old, "the handover", None, release);
        let Some(state) = state.filter(|_| released == Some(CallbackEnd::Done)) else {
            return self.close_reloaded(reactor, id);
        };
        let Some(client) = self.lua.clients.find_mut(id) else { return };
        client.rename_app(old, app);
        let tag = client.tag(id);
        self.accounts.counters.lua_handovers.add(1);
        let mut is_known = true;
        let verdict = self.call_app(reactor, app, "on_handover", None, |vm| {
            let verdict = vm.adopt_client(handle, tag, &state);
            is_known = verdict.is_some();
            verdict.unwrap_or(CallbackEnd::Done)
        });
        if !is_known && let Some(client) = self.lua.clients.find_mut(id) {
            // The VM of the new code was replaced since the reload, and a later VM has not reserved the client's id.
            client.forget_handle();
            return self.close_lua_client(reactor, id, RESTART.0, RESTART.1);
        }
        self.note_handler_turn(reactor, id, verdict);
        self.note_lua_queue(reactor, id);
    }

    /// Ends a VM of earlier code, with everything that it has not finished.
    fn end_retired<R: Reactor>(&mut self, reactor: &mut R, old: usize) {
        let requests = self.requests_of_app(old);
        for (id, to) in requests {
            self.end_scripted(reactor, (id, to), 503, RELOADED);
        }
        self.fail_events_of(old);
        self.fail_choices_of(reactor, old);
        for id in self.clients_of_app(old) {
            self.close_reloaded(reactor, id);
            self.free_reserved(old, id);
            if let Some(client) = self.lua.clients.find_mut(id) {
                client.forget_handle();
            }
        }
        self.abandon_tunnels(reactor, old, (CloseCode::SERVICE_RESTART, RESTART.1));
        self.call_app(reactor, old, "on_stop", None, Vm::stop);
        self.cancel_own_of(reactor, old);
        self.end_datagrams_of(reactor, old);
        // Responses whose `on_response` can no longer run fail, like the responses of a discarded VM.
        self.lua.apps.take_retired(old);
    }

    /// A client of earlier code has ended: the new code no longer reserves its id.
    pub(super) fn free_reserved(&mut self, app: usize, client: Id<LuaClient>) {
        let handle = self.lua.clients.find(client).map(LuaClient::handle);
        if let Some(handle) = handle {
            self.free_reserved_handle(app, handle);
        }
    }

    /// As `free_reserved`, by the id that the client has in the VM.
    pub(super) fn free_reserved_handle(&mut self, app: usize, handle: tidegate_lua::ClientId) {
        let of = self.lua.apps.base_of(app);
        if of != app
            && self.lua.apps.shares_clients(app, of)
            && let Some(vm) = self.lua.apps.present(of)
        {
            vm.free_reserved(handle);
        }
    }

    /// The requests that a VM has not answered.
    fn requests_of_app(&self, app: usize) -> Vec<(Id<super::ScriptedRequest>, Requester)> {
        let of_app = self.lua.requests.iter().filter(|(_, request)| request.app() == app);
        of_app.map(|(id, request)| (id, request.requester())).collect()
    }
}

impl LogHooks {
    /// The code of applications has changed. Records that wait are kept.
    fn set_apps(&mut self, apps: Vec<bool>) {
        let waiting = core::mem::take(self);
        *self = Self::new(apps);
        self.take_waiting(waiting);
    }
}
