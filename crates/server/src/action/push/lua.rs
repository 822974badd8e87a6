//! Calls of Lua applications to push hubs: the server API, called without HTTP.
//! In: `Effect::Push` of a script; replies of the workers that a call concerns. Out: the result, for the VM.
//! Never: requires an API key: scripts are the operator's code.
//! Limits: those of the API; a VM has a bounded number of operations.
//! Invariant: a call ends when its last reply has arrived, whether or not its script still waits.

use std::sync::Arc;

use tidegate_base::Id;
use tidegate_lua::OperationId;
use tidegate_push::api::{ApiCall, Node};
use tidegate_push::mail::{Reply, ReplyTo};
use tidegate_reactor::Reactor;

use crate::action::push::Key;
use crate::worker::Worker;

/// A call whose replies are being collected.
pub(crate) struct LuaCall {
    /// The index of the application.
    app: u16,
    /// Which start of the application's VM made the call: a number that grows whenever the VM is started again.
    life: u32,
    /// The VM's identifier of the call.
    operation: OperationId,
    /// The replies.
    exchange: ApiCall,
}

impl LuaCall {
    /// Notes that a reload has changed the index of an application.
    pub(in crate::action) fn rename_app(&mut self, from: usize, to: usize) {
        if usize::from(self.app) == from {
            self.app = to as u16;
        }
    }
}

impl Worker {
    /// Carries out `Effect::Push`.
    pub(in crate::action) fn call_hub<R: Reactor>(
        &mut self,
        reactor: &mut R,
        app: usize,
        operation: OperationId,
        (hub, method, arguments): (&[u8], &[u8], &[u8]),
    ) {
        let life = self.lua.apps.life(app);
        let hubs = Arc::clone(&self.push.settings);
        let text = core::str::from_utf8;
        let settings = text(hub).ok().and_then(|name| hubs.find(name));
        let settings = settings.and_then(|index| Some((index, hubs.get(index)?)));
        let Some(settings) = settings else {
            let why = "this hub is available only after a restart of the process";
            return self.lua.apps.complete(app, life, operation, Err(why));
        };
        let method = text(method).unwrap_or_default();
        let begun = text(arguments).ok().map(|body| ApiCall::begin(settings, method, body));
        let Some(Ok((exchange, calls))) = begun else {
            let why = "the arguments do not have the form that this method requires";
            return self.lua.apps.complete(app, life, operation, Err(why));
        };
        let call = LuaCall { app: app as u16, life, operation, exchange };
        let Ok(id) = self.lua.calls.insert(call) else {
            return self.lua.apps.complete(
                app,
                life,
                operation,
                Err("too many calls are in progress"),
            );
        };
        for (number, call) in calls.into_iter().enumerate() {
            let (at, number) = (self.instance(reactor), number as u32);
            let waiter = ReplyTo::Caller { key: Key::of_call(id), number };
            let replies = self.push.hub.replies_of(&call);
            let reply = self.push.hub.call(&hubs, waiter, call, at);
            let Some(entry) = self.lua.calls.get_mut(id) else { return };
            entry.exchange.expect(replies);
            if let Some(reply) = reply {
                entry.exchange.take(number, reply.clone());
                self.count_reply(&reply);
            }
        }
        self.finish_call_of_hub(id);
    }

    /// Another worker has replied to a call.
    pub(super) fn take_lua_reply(&mut self, id: Id<LuaCall>, number: u32, reply: Reply) {
        self.count_reply(&reply);
        let Some(call) = self.lua.calls.get_mut(id) else { return };
        call.exchange.take(number, reply);
        self.finish_call_of_hub(id);
    }

    /// Gives the result of a complete call to its VM.
    fn finish_call_of_hub(&mut self, id: Id<LuaCall>) {
        let is_complete = |call: &LuaCall| call.exchange.is_complete();
        if !self.lua.calls.get(id).is_some_and(is_complete) {
            return;
        }
        let Some(call) = self.lua.calls.remove(id) else { return };
        let snapshot = self.settings.newest();
        let node = Node { name: &snapshot.config.server.via, version: env!("CARGO_PKG_VERSION") };
        let mut text = self.buffers.take();
        call.exchange.encode(&mut text, &node);
        self.lua.apps.complete(usize::from(call.app), call.life, call.operation, Ok(&text));
        self.buffers.put(text);
    }
}
