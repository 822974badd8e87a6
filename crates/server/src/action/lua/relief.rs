//! Frees memory of the VM of an application that has reached `memory-max`, by ending handlers that wait.
//! In: the failure of a callback. Out: failed requests, and closed tunnels, of the connections whose waiting handlers hold the most.
//! Never: ends the handlers of a connection while those of another connection hold more, as far as their sizes are known.
//! Limits: ends handlers until half of `memory-max` is free.
//!
//! Otherwise the VM would be discarded, which ends all clients of the application on this worker. One connection with many
//! streams whose handlers wait, or many connections with one large message each, could then end all others.

use core::cmp::Reverse;
use std::collections::BTreeMap;

use tidegate_base::Id;
use tidegate_reactor::Reactor;

use crate::action::lua::ScriptedRequest;
use crate::action::proxy::exchange::Exchange;
use crate::log;
use crate::requester::Requester;
use crate::worker::Worker;

/// About what the VM holds for a request whose handler waits: its head and a coroutine. A tunnel holds its message, too.
const WAITING_COST_BYTES: usize = 2 * 1024;

/// A handler that waits.
enum Waiting {
    /// `on_request` or a hook of this request.
    Request(Id<ScriptedRequest>, Requester),
    /// `on_frame` of this tunnel.
    Tunnel(Id<Exchange>),
}

/// The handlers of a connection that wait.
#[derive(Default)]
struct OfConnection {
    handlers: Vec<Waiting>,
    /// About what they hold.
    bytes: usize,
}

impl Worker {
    /// If the VM would be discarded because of its memory, ends waiting handlers of requests and tunnels, beginning with the
    /// connection whose handlers hold the most.
    pub(super) fn relieve_app<R: Reactor>(&mut self, reactor: &mut R, app: usize) {
        if !self.lua.apps.would_be_discarded(app) {
            return;
        }
        let most = self.lua.apps.settings(app).map_or(0, |app| app.memory_bytes_max) / 2;
        let (mut ended, mut connections, mut check_at) = (0, 0, 1);
        let waiting = self.waiting_by_connection(app);
        let all = waiting.len();
        for OfConnection { handlers, .. } in waiting {
            for handler in handlers {
                ended += 1;
                match handler {
                    Waiting::Request(id, to) => self.fail_scripted(reactor, id, to),
                    Waiting::Tunnel(id) => self.evict_tunnel(reactor, id),
                }
            }
            connections += 1;
            if connections < check_at && connections < all {
                continue;
            }
            // To collect the garbage after each of very many connections would hold up the worker.
            check_at = connections + 1 + connections / 8;
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

    /// The handlers that wait or are about to begin, by connection. The connection whose handlers hold the most is first.
    fn waiting_by_connection(&self, app: usize) -> Vec<OfConnection> {
        let mut by_slot: BTreeMap<u32, OfConnection> = BTreeMap::new();
        let mut add = |to: Requester, handler, bytes: usize| {
            let of = by_slot.entry(to.sock.index).or_default();
            of.handlers.push(handler);
            of.bytes += WAITING_COST_BYTES + bytes;
        };
        for (id, request) in self.lua.requests.iter() {
            if request.app() == app && !request.expects_body() {
                let to = request.requester();
                add(to, Waiting::Request(id, to), 0);
            }
        }
        for (id, to, bytes) in self.waiting_tunnels(app) {
            add(to, Waiting::Tunnel(id), bytes);
        }
        let mut all: Vec<_> = by_slot.into_values().collect();
        all.sort_by_key(|of| Reverse(of.bytes));
        all
    }
}
