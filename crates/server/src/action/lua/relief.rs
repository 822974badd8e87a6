//! Frees memory of the VM of an application that has reached `memory-max`, by ending handlers that wait.
//! In: the failure of a callback. Out: failed requests of the connections with the most waiting handlers.
//! Never: ends the handlers of a connection while another connection has more of them.
//! Limits: ends handlers until half of `memory-max` is free.
//!
//! Otherwise the VM would be discarded, which ends all clients of the application on this worker. One connection with many
//! streams whose handlers wait could then end all others.

use core::cmp::Reverse;
use std::collections::BTreeMap;

use tidegate_base::Id;
use tidegate_reactor::Reactor;

use crate::action::lua::ScriptedRequest;
use crate::log;
use crate::requester::Requester;
use crate::worker::Worker;

impl Worker {
    /// If the VM would be discarded because of its memory, ends waiting handlers of requests, beginning with the connection
    /// that has the most of them.
    pub(super) fn relieve_app<R: Reactor>(&mut self, reactor: &mut R, app: usize) {
        if !self.lua.apps.would_be_discarded(app) {
            return;
        }
        let most = self.lua.apps.settings(app).map_or(0, |app| app.memory_bytes_max) / 2;
        let mut ended = 0;
        for requests in self.waiting_by_connection(app) {
            for (id, to) in requests {
                ended += 1;
                self.fail_scripted(reactor, id, to);
            }
            let Some(vm) = self.lua.apps.present(app) else { break };
            vm.collect_garbage();
            if vm.used_bytes() <= most {
                break;
            }
        }
        if ended > 0 {
            self.accounts.counters.lua_evictions.add(ended);
            let held = self.lua.apps.present(app).map_or(0, |vm| vm.used_bytes());
            let name = self.lua.apps.name(app);
            log::error(format_args!(
                "lua {name}: the VM reached memory-max; waiting handlers ended: {ended}; memory still in use: {held} bytes"
            ));
        }
    }

    /// The requests whose handlers wait or are about to begin, by connection. The connection with the most requests is first.
    fn waiting_by_connection(&self, app: usize) -> Vec<Vec<(Id<ScriptedRequest>, Requester)>> {
        let mut by_slot: BTreeMap<u32, Vec<_>> = BTreeMap::new();
        for (id, request) in self.lua.requests.iter() {
            if request.app() == app && !request.expects_body() {
                let to = request.requester();
                by_slot.entry(to.sock.index).or_default().push((id, to));
            }
        }
        let mut all: Vec<_> = by_slot.into_values().collect();
        all.sort_by_key(|requests| Reverse(requests.len()));
        all
    }
}
