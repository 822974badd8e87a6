//! The addresses of servers change while the process serves.
//! In: results of the thread "names"; the configuration in force. Out: mail to the workers and to the prober, server states, log
//! lines; in a worker, connections to former addresses that end.
//! Never: changes settings, statistics or the health of a server; ends a request: a connection to a former address closes when it
//! is idle.
//! Invariant: a worker uses the addresses that its settings came with, or later ones for the same settings.

use std::sync::Arc;

use tidegate_base::Address;
use tidegate_config::arrange::{Arranged, Generation};
use tidegate_gate::name_book::HostPort;
use tidegate_reactor::Reactor;

use crate::configuration::Configuration;
use crate::connection::ServerCarrier;
use crate::name_follower::Names;
use crate::resolve::{Addresses, name_of};
use crate::worker::Worker;

impl Configuration {
    /// The names of the configuration in force are resolved from now on.
    pub(crate) fn follow_names(&mut self) {
        let names = names_of(&self.arranged, &self.addresses);
        self.names.follow(&self.arranged.config, names);
    }

    /// Uses the addresses that were found since the last call. Returns them if the workers must get them.
    pub(crate) fn take_addresses(&mut self) -> Option<(Generation, Arc<Addresses>)> {
        let found = self.names.take()?;
        let state_of = |pool: usize, server: usize| {
            let server = &self.arranged.config.pools.get(pool)?.servers.get(server)?.address;
            found.get(&name_of(server)?)
        };
        let mut next = (*self.addresses).clone();
        for (pool, servers) in next.iter_mut().enumerate() {
            for (at, addresses) in servers.iter_mut().enumerate() {
                let is_gone =
                    self.arranged.pools.get(pool).is_none_or(|life| life.is_server_gone(at));
                if let Some((found, _)) = state_of(pool, at).filter(|_| !is_gone) {
                    *addresses = found.iter().copied().map(Address::Tcp).collect();
                }
            }
        }
        self.checks.note_unresolved(|pool, at| state_of(pool, at).is_some_and(|(_, is)| !is));
        if next == *self.addresses {
            return None;
        }
        self.addresses = Arc::new(next);
        self.checks.change_addresses(&self.arranged, &self.addresses);
        Some((self.arranged.generation, Arc::clone(&self.addresses)))
    }
}

/// The names of the servers, with their addresses.
fn names_of(arranged: &Arranged, addresses: &Addresses) -> Names {
    let servers = arranged.servers().filter_map(|((pool, at), server)| {
        let name: HostPort = name_of(&server.address)?;
        let known = addresses.get(pool)?.get(at)?.iter().filter_map(|address| match address {
            Address::Tcp(address) => Some(*address),
            Address::Unix(_) => None,
        });
        Some((name, known.collect()))
    });
    servers.collect()
}

impl Worker {
    /// Connects to these addresses from now on, if they are for the settings in force.
    pub(crate) fn change_addresses<R: Reactor>(
        &mut self,
        reactor: &mut R,
        generation: Generation,
        addresses: &Arc<Addresses>,
    ) {
        if self.settings.newest().generation != generation {
            return;
        }
        let earlier = core::mem::replace(&mut self.addresses, Arc::clone(addresses));
        for (pool, (before, after)) in earlier.iter().zip(addresses.iter()).enumerate() {
            for (server, (before, after)) in before.iter().zip(after).enumerate() {
                if before == after {
                    continue;
                }
                if let Some(preferred) =
                    self.pools.get_mut(pool).and_then(|of| of.preferred_address.get_mut(server))
                {
                    *preferred = 0;
                }
                if before.iter().any(|address| !after.contains(address)) {
                    self.leave_former_addresses(reactor, (pool as u16, server as u16));
                }
            }
        }
        self.settle(reactor);
    }

    /// Ends the connections to a server that has lost an address, when they are idle. Those to its other addresses end, too: a
    /// connection does not know its address.
    fn leave_former_addresses<R: Reactor>(&mut self, reactor: &mut R, server: (u16, u16)) {
        for sock in self.conns.upstream_ids() {
            // Closing one connection may close another.
            let Some(up) = self.conns.upstream(sock) else { continue };
            if (up.pool, up.server) != server {
                continue;
            }
            up.is_outdated = true;
            match (up.is_idle(), &up.carrier) {
                (true, _) => self.retire_upstream(reactor, sock),
                (false, ServerCarrier::Http2(_)) => self.retire_http2_server(sock),
                (false, ServerCarrier::Http1(_)) => {}
            }
        }
    }
}
