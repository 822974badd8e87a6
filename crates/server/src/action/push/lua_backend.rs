//! Events of push clients about which an application in Lua decides (`[push.NAME.backend]` with `lua`).
//! In: events (`backend.rs`); decisions and ends of `on_push`. Out: calls of `on_push`; decisions.
//! Never: decides what a decision means (`tidegate_push::client::backend_requests` does).
//! Limits: those of `backend.rs` for events that wait, with `timeout` for each, and the budgets of callbacks. Callbacks run in
//! their share of a turn. If `on_push` fails for an event of a list, the next ones follow in a later turn.
//! Invariant: each event that a VM keeps has an entry in `LuaState::events`, and the reverse, between two callbacks.

use tidegate_base::{Id, Span};
use tidegate_config::model::{BackendEvent, PushBackend};
use tidegate_lua::{CallbackEnd, Handler, HubEventId, HubEventParts};
use tidegate_push::backend::Failure;
use tidegate_reactor::Reactor;

use crate::action::push::backend::{BackendCalls, CallId, HubCall};
use crate::log;
use crate::worker::Worker;

/// An event that waits for its decision.
#[derive(Debug)]
pub(crate) struct LuaEvent {
    /// The index of the application.
    app: u16,
    /// The VM's id of the event.
    handle: HubEventId,
    /// What the event is about.
    call: HubCall,
    /// Maximum size of the decision in bytes.
    reply_bytes_max: usize,
    /// The list of events, if it is one: events without a decision.
    list: Option<Box<EventList>>,
}

/// Events without a decision.
#[derive(Debug)]
struct EventList {
    /// The name of the hub.
    hub: String,
    /// The kind of the events.
    kind: &'static str,
    /// The events, as JSON.
    body: Vec<u8>,
    /// The time for each event.
    timeout: Span,
}

impl LuaEvent {
    /// Notes that a reload has changed the index of an application.
    pub(in crate::action) fn rename_app(&mut self, from: usize, to: usize) {
        if usize::from(self.app) == from {
            self.app = to as u16;
        }
    }
}

impl Worker {
    /// Hands an event to the application of this name. `keep` records the event before it can end.
    pub(super) fn begin_lua_event<R: Reactor>(
        &mut self,
        reactor: &mut R,
        name: &str,
        (backend, event, hub): (&PushBackend, BackendEvent, &str),
        call: HubCall,
        (fields, body): (&[u8], &[u8]),
        keep: impl FnOnce(&mut BackendCalls, CallId),
    ) -> Result<(), Failure> {
        let (now, seconds) = (reactor.now(), reactor.unix_seconds());
        let app = self.lua.apps.named(name).ok_or(Failure::Down)?;
        let vm = self.lua.apps.vm(app, now, seconds).filter(|vm| vm.has(Handler::Push));
        let vm = vm.ok_or(Failure::Down)?;
        let reply_bytes_max = backend.reply_bytes_max;
        let (kind, timeout) = (event.script_name(), backend.timeout);
        let list = || EventList { hub: hub.to_owned(), kind, body: body.to_vec(), timeout };
        let list = matches!(call, HubCall::Notices(..)).then(|| Box::new(list()));
        let entry = LuaEvent { app: app as u16, handle: Id::NONE, call, reply_bytes_max, list };
        let Ok(id) = self.lua.events.insert(entry) else {
            self.accounts.counters.push_backend_refused.add(1);
            return Err(Failure::Busy);
        };
        let by = now.after(timeout);
        let handle = vm.open_event(tag_of(id), by);
        let (Some(handle), Some(entry)) = (handle, self.lua.events.get_mut(id)) else {
            self.lua.events.remove(id);
            self.accounts.counters.push_backend_refused.add(1);
            return Err(Failure::Busy);
        };
        entry.handle = handle;
        self.accounts.counters.push_backend_calls.add(1);
        keep(&mut self.push.backend, CallId::Lua(id));
        let parts = HubEventParts { hub, kind, fields, body, first: 1 };
        let verdict =
            self.call_app(reactor, app, "on_push", None, |vm| vm.hub_event(handle, &parts));
        self.note_event_turn(reactor, tag_of(id), verdict.as_ref());
        Ok(())
    }

    /// `on_push` has ended or waits. If it has decided, `take_lua_decision` has taken the decision.
    pub(in crate::action) fn note_event_turn<R: Reactor>(
        &mut self,
        reactor: &mut R,
        tag: u64,
        verdict: Option<&CallbackEnd>,
    ) {
        let id = id_of(tag);
        match verdict {
            Some(CallbackEnd::Waiting | CallbackEnd::Done) => {}
            Some(CallbackEnd::Failed(_)) if self.continue_list(reactor, id) => {}
            Some(CallbackEnd::Failed(_)) | None => self.fail_event(id),
        }
    }

    /// `on_push` has failed for an event of a list: continues with the next event, in a later turn. Returns false if there was no
    /// list, or if the list cannot be continued.
    fn continue_list<R: Reactor>(&mut self, reactor: &mut R, id: Id<LuaEvent>) -> bool {
        let Some(event) = self.lua.events.get_mut(id) else { return false };
        let app = usize::from(event.app);
        let Some(list) = event.list.take() else { return false };
        let (now, seconds) = (reactor.now(), reactor.unix_seconds());
        let Some(vm) = self.lua.apps.vm(app, now, seconds) else { return false };
        let failed = vm.failed_place();
        let handle = (failed > 0).then(|| vm.open_event(tag_of(id), now.after(list.timeout)));
        let Some(handle) = handle.flatten() else { return false };
        event.handle = handle;
        self.accounts.counters.push_lost_events.add(1);
        let EventList { hub, kind, body, .. } = &*list;
        let parts = HubEventParts { hub, kind, fields: b"", body, first: failed + 1 };
        // It begins with a wait.
        let verdict =
            self.call_app(reactor, app, "on_push", None, |vm| vm.hub_event(handle, &parts));
        if let Some(event) = self.lua.events.get_mut(id) {
            event.list = Some(list);
        }
        matches!(verdict, Some(CallbackEnd::Waiting | CallbackEnd::Done))
    }

    /// Carries out `Effect::Decide`.
    pub(in crate::action) fn take_lua_decision(&mut self, tag: u64, decision: &[u8]) {
        let Some(event) = self.lua.events.remove(id_of(tag)) else { return };
        let body = match decision.len() <= event.reply_bytes_max {
            true => Ok(decision.to_vec()),
            false => {
                let name = self.lua.apps.name(usize::from(event.app));
                log::error(format_args!(
                    "lua {name}: the decision of on_push is larger than `reply-max`"
                ));
                Err(Failure::Down)
            }
        };
        self.finish_backend_call(event.call, body);
    }

    /// The session of an event has ended.
    pub(super) fn cancel_lua_event(&mut self, id: Id<LuaEvent>) {
        if let Some(event) = self.lua.events.remove(id)
            && let Some(vm) = self.lua.apps.present(usize::from(event.app))
        {
            vm.close_event(event.handle);
        }
    }

    /// The VM of an application is gone: no application decides about its events.
    pub(in crate::action) fn fail_events_of(&mut self, app: usize) {
        let of_app =
            |(id, event): (Id<LuaEvent>, &LuaEvent)| (usize::from(event.app) == app).then_some(id);
        let events: Vec<_> = self.lua.events.iter().filter_map(of_app).collect();
        for id in events {
            self.fail_event(id);
        }
    }

    fn fail_event(&mut self, id: Id<LuaEvent>) {
        let Some(event) = self.lua.events.remove(id) else { return };
        if let Some(vm) = self.lua.apps.present(usize::from(event.app)) {
            vm.close_event(event.handle);
        }
        self.finish_backend_call(event.call, Err(Failure::Down));
    }
}

/// The tag by which a VM addresses an event.
fn tag_of(id: Id<LuaEvent>) -> u64 {
    u64::from(id.generation) << 32 | u64::from(id.index)
}

/// The event that a VM addresses by this tag.
fn id_of(tag: u64) -> Id<LuaEvent> {
    Id::new(tag as u32, (tag >> 32) as u32)
}
