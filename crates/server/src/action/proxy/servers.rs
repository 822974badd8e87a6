//! Servers that an operator takes out of use and puts back.
//! In: changes from the admin interface. Out: the state of the pool; queued requests that can go on.
//! Never: ends an exchange: those with a server that is taken out are completed.

use std::rc::Rc;

use tidegate_reactor::Reactor;

use crate::admin::ServerChange;
use crate::worker::Worker;

impl Worker {
    /// Changes the state of a server, if the current settings have it.
    pub(crate) fn change_server<R: Reactor>(&mut self, reactor: &mut R, change: &ServerChange) {
        let snapshot = Rc::clone(self.settings.newest());
        let pools = &snapshot.config.pools;
        let Some(pool) = pools.iter().position(|pool| pool.name == change.pool) else { return };
        let mut servers = 0..pools[pool].servers.len();
        let named = servers.find(|server| snapshot.names.server(pool, *server).1 == change.server);
        let (Some(server), Some(state)) = (named, self.pools.get_mut(pool)) else { return };
        state.state.set_up(server, change.state.is_up());
        self.note_unserved(pool as u16);
        self.settle(reactor);
    }
}
