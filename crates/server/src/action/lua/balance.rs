//! `on_balance` of the applications that routes name in `hooks`: the server of a request.
//! In: requests that are about to get a server. Out: the server that the script prefers, for `kept_server`.
//! Never: lets a script send a request to a server that takes none; waits.
//! Limits: the budget of a callback for each attempt; the attempts of a request are bounded by `retries` of its pool.
//! Invariant: a request whose hook fails, exceeds its budget or chooses no server goes to the server that the pool chooses.

use tidegate_base::Id;
use tidegate_lua::{BalanceParts, CallbackEnd, Handler};
use tidegate_reactor::Reactor;

use crate::action::proxy::exchange::Exchange;
use crate::worker::Worker;

impl Worker {
    /// Asks the hook of a request which server its next attempt should use.
    pub(in crate::action) fn ask_for_server<R: Reactor>(
        &mut self,
        reactor: &mut R,
        id: Id<Exchange>,
    ) {
        let now = reactor.now();
        let Some(exchange) = self.exchanges.get_mut(id) else { return };
        exchange.preferred = None;
        let Some(hook) = exchange.response_hook.as_deref().copied() else { return };
        // Authentication requests have a pool of their own.
        let is_asked = exchange.auth_request.is_none()
            && self.lua.apps.is_running(hook.app, hook.life)
            && self.lua.apps.peek(hook.app).is_some_and(|vm| vm.has(Handler::Balance));
        if !is_asked {
            return;
        }
        let (pool, number) = (usize::from(exchange.pool), exchange.attempts.count() + 1);
        let (mut servers, mut count) = (self.buffers.take(), 0);
        let names = &self.settings.newest().names;
        let (state, tried) = (&self.pools[pool].state, exchange.attempts.tried());
        while count < state.len() {
            let digit = |is: bool| if is { b'1' } else { b'0' };
            servers.extend_from_slice(names.server(pool, count).1.as_bytes());
            servers.push(b'\t');
            servers.push(digit(state.has_room_at(count, tried, now)));
            servers.push(digit(tried.contains(count)));
            servers.push(b'\n');
            count += 1;
        }
        let name = names.server(pool, 0).0.to_owned();
        let parts = BalanceParts { pool: &name, number, servers: &servers, count };
        let handle = hook.handle;
        let verdict =
            self.call_app(reactor, hook.app, "on_balance", None, |vm| vm.balance(handle, &parts));
        self.buffers.put(servers);
        if verdict != Some(CallbackEnd::Done) {
            return;
        }
        let chosen = self.lua.apps.present(hook.app).and_then(|vm| vm.take_choice(handle));
        if let Some(exchange) = self.exchanges.find_mut(id) {
            exchange.preferred = chosen.and_then(|server| u16::try_from(server).ok());
        }
    }
}
