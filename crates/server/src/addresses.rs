//! The addresses of servers change while the process serves.
//! In: results of the thread "names"; the configuration in force. Out: mail to the workers and to the prober, server states, log
//! lines; in a worker, connections to former addresses that end.
//! Never: changes settings, statistics or the health of a server; ends a request: a connection to a former address closes when it
//! is idle.
//! Invariant: a worker uses the addresses that its settings came with, or later ones for the same settings.

use std::collections::BTreeMap;
use std::sync::Arc;

use tidegate_base::Address;
use tidegate_config::arrange::{Arranged, Generation};
use tidegate_config::model::ServerAddress;
use tidegate_gate::name_book::text_of;
use tidegate_reactor::{Reactor, SockId};

use crate::configuration::Configuration;
use crate::connection::ServerCarrier;
use crate::events::{self, EventKind};
use crate::log;
use crate::name_follower::{Names, Resolved};
use crate::resolve::{Addresses, name_of};
use crate::slots::{fill, socket_addresses, templates};
use crate::worker::Worker;

impl Configuration {
    /// The names of the configuration in force are resolved from now on. `resolved`: those that were resolved just now.
    pub(crate) fn follow_names(&mut self, resolved: Resolved) {
        let names = names_of(&self.arranged, &self.addresses);
        self.names.follow(&self.arranged.config, names, resolved);
    }

    /// Notes which servers lack an address, and the parts that SRV records state.
    pub(crate) fn note_names(&self) {
        self.checks.note_names(&self.name_facts.states(&self.arranged, &self.addresses));
    }

    /// Uses the addresses that were found since the last call. Returns them if the workers must get them.
    pub(crate) fn take_addresses(&mut self) -> Option<(Generation, Arc<Addresses>)> {
        let found = self.names.take()?;
        let mut next = (*self.addresses).clone();
        let pools = self.arranged.config.pools.iter().zip(&self.arranged.pools);
        let mut unplaced = BTreeMap::new();
        for ((pool, life), servers) in pools.zip(&mut next) {
            for (at, addresses) in servers.iter_mut().enumerate() {
                let ServerAddress::Name(name, port) = &pool.servers[at].address else { continue };
                let of_name = found.get(&(name.clone(), *port));
                if let Some(found) = of_name.filter(|_| !life.is_server_gone(at)) {
                    *addresses = found.addresses.iter().copied().map(Address::Tcp).collect();
                }
            }
            for template in templates(pool, life) {
                // Those of a name that is lost come back into the same slots.
                let Some(found) = found.get(&template.name).filter(|of| of.is_used) else {
                    continue;
                };
                let addresses = (&found.addresses[..], &found.marks);
                let count = fill(servers, &template.slots, addresses);
                unplaced.insert((pool.name.clone(), text_of(&template.name)), count);
            }
        }
        self.log_unplaced(unplaced);
        for (name, found) in found {
            match found.is_used {
                true => self.name_facts.lost.remove(&name),
                false => self.name_facts.lost.insert(name.clone()),
            };
            self.name_facts.marks.insert(name, found.marks);
        }
        let is_other = next != *self.addresses;
        self.addresses = Arc::new(next);
        self.note_names();
        if !is_other {
            return None;
        }
        self.checks.change_addresses(&self.arranged, &self.addresses);
        Some((self.arranged.generation, Arc::clone(&self.addresses)))
    }

    /// Logs that addresses have found no slot, if their number has changed.
    fn log_unplaced(&mut self, unplaced: BTreeMap<(String, String), usize>) {
        for (template, count) in &unplaced {
            if self.unplaced.get(template).copied().unwrap_or_default() == *count {
                continue;
            }
            let (pool, name) = template;
            let line = match count {
                0 => format!("pool {pool}: all addresses of {name} have slots"),
                count => format!(
                    "pool {pool}: addresses of {name} that are not used, because `slots` is too small: {count}"
                ),
            };
            log::warning(format_args!("{line}"));
            events::note(EventKind::Server, format_args!("{line}"));
        }
        self.unplaced.extend(unplaced);
    }
}

/// Whether a server of a pool has an address.
pub(crate) fn has_address(pool: &[Vec<Address>], server: usize) -> bool {
    pool.get(server).is_none_or(|addresses| !addresses.is_empty())
}

/// The names of the servers, with their addresses.
fn names_of(arranged: &Arranged, addresses: &Addresses) -> Names {
    let mut names = Names::new();
    for ((pool, at), server) in arranged.servers() {
        let Some(name) = name_of(&server.address) else { continue };
        let known = names.entry(name).or_default();
        let of_server = addresses.get(pool).and_then(|pool| pool.get(at));
        for address in of_server.into_iter().flat_map(|of| socket_addresses(of)) {
            if !known.contains(&address) {
                known.push(address);
            }
        }
    }
    names
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
        self.adopt_addresses(reactor, &earlier);
        self.settle(reactor);
    }

    /// Uses the addresses in force, after those that were in force before.
    pub(crate) fn adopt_addresses<R: Reactor>(&mut self, reactor: &mut R, earlier: &Addresses) {
        let addresses = Arc::clone(&self.addresses);
        for (pool, servers) in self.pools.iter_mut().zip(addresses.iter()) {
            pool.state.note_addresses(|at| has_address(servers, at), reactor.now());
        }
        for (pool, (before, after)) in earlier.iter().zip(addresses.iter()).enumerate() {
            for (server, (before, after)) in before.iter().zip(after).enumerate() {
                if before == after {
                    continue;
                }
                if let Some(pool) = self.pools.get_mut(pool) {
                    if let Some(preferred) = pool.preferred_address.get_mut(server) {
                        *preferred = 0;
                    }
                    if !after.iter().any(|address| before.contains(address)) {
                        pool.state.forget_results(server);
                    }
                }
                if before.iter().any(|address| !after.contains(address)) {
                    self.leave_former_addresses(reactor, (pool as u16, server as u16));
                }
            }
        }
    }

    /// Ends the connections to a server that has lost an address, when they are idle. Those to its other addresses end, too: a
    /// connection does not know its address.
    fn leave_former_addresses<R: Reactor>(&mut self, reactor: &mut R, server: (u16, u16)) {
        for sock in self.conns.upstream_ids() {
            // Closing one connection may close another.
            let Some(up) = self.conns.upstream(sock) else { continue };
            if (up.pool, up.server) == server {
                self.outdate_upstream(reactor, sock);
            }
        }
    }

    /// Ends a connection to a server after the requests in progress.
    pub(crate) fn outdate_upstream<R: Reactor>(&mut self, reactor: &mut R, sock: SockId) {
        let Some(up) = self.conns.upstream(sock) else { return };
        up.is_outdated = true;
        match (up.is_idle(), &up.carrier) {
            (true, _) => self.retire_upstream(reactor, sock),
            (false, ServerCarrier::Http2(_)) => self.retire_http2_server(sock),
            (false, ServerCarrier::Http1(_)) => {}
        }
    }
}
