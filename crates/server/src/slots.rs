//! The slots of templates: addresses of names on their way to servers, and what is known about the names.
//! In: the configuration, the addresses that its servers have, answers. Out: the next addresses; for each server, whether it lacks an
//! address, and its part by SRV records.
//! Never: resolves a name; gives an address to a removed server.

use core::net::SocketAddr;
use std::collections::{BTreeMap, BTreeSet};

use tidegate_base::Address;
use tidegate_config::arrange::{Arranged, PoolLife};
use tidegate_config::model::{Pool, ServerAddress};
use tidegate_gate::slots::{self, Marks, Share};

use crate::resolve::{Addresses, Server, name_of};

/// By name: what its SRV records state.
pub(crate) type KnownMarks = BTreeMap<Server, Marks>;

/// By the name of the pool and the name of the server: the address that a slot had in an earlier process.
pub(crate) type SlotAddresses = BTreeMap<(String, String), SocketAddr>;

/// The facts about the names of servers that decide whether and how they are used.
#[derive(Clone, Default)]
pub(crate) struct NameFacts {
    /// What SRV records state.
    pub(crate) marks: KnownMarks,
    /// The names whose addresses are not in use.
    pub(crate) lost: BTreeSet<Server>,
}

/// The state of a server by its name.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct NameState {
    /// It has no address, or none that may be used.
    pub(crate) is_unresolved: bool,
    /// Its part by its SRV record.
    pub(crate) share: Option<Share>,
    /// It is a slot of a template, with this address.
    pub(crate) slot: Option<Option<SocketAddr>>,
}

/// A template of a pool.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct Template {
    /// The name.
    pub(crate) name: Server,
    /// The indexes of its slots, in their order.
    pub(crate) slots: Vec<usize>,
}

/// The templates of a pool. Removed slots are left out.
pub(crate) fn templates(pool: &Pool, life: &PoolLife) -> Vec<Template> {
    let mut found: BTreeMap<(&str, Server), Vec<(u16, usize)>> = BTreeMap::new();
    for (at, server) in pool.servers.iter().enumerate() {
        let ServerAddress::Slot(slot) = &server.address else { continue };
        let Some(name) = name_of(&server.address).filter(|_| !life.is_server_gone(at)) else {
            continue;
        };
        found.entry((&*slot.prefix, name)).or_default().push((slot.number, at));
    }
    let template = |((_, name), mut slots): ((&str, Server), Vec<(u16, usize)>)| {
        slots.sort_unstable();
        Template { name, slots: slots.into_iter().map(|(_, at)| at).collect() }
    };
    found.into_iter().map(template).collect()
}

/// Gives the addresses that were found to the slots of a template. Returns how many have no slot.
pub(crate) fn fill(
    servers: &mut [Vec<Address>],
    slots: &[usize],
    (found, marks): (&[SocketAddr], &Marks),
) -> usize {
    let current: Vec<Option<SocketAddr>> =
        slots.iter().map(|at| socket_addresses(&servers[*at]).next()).collect();
    let next = slots::assign(&current, found, marks);
    let held = next.iter().flatten().count();
    for (at, address) in slots.iter().zip(next) {
        servers[*at] = address.into_iter().map(Address::Tcp).collect();
    }
    found.iter().collect::<BTreeSet<_>>().len() - held
}

/// The addresses with a port.
pub(crate) fn socket_addresses(addresses: &[Address]) -> impl Iterator<Item = SocketAddr> {
    addresses.iter().filter_map(|address| match address {
        Address::Tcp(address) => Some(*address),
        Address::Unix(_) => None,
    })
}

impl NameFacts {
    /// The state of each server, by pool.
    pub(crate) fn states(&self, arranged: &Arranged, addresses: &Addresses) -> Vec<Vec<NameState>> {
        let pools = arranged.config.pools.iter().zip(&arranged.pools).zip(addresses);
        let of_pool = |((pool, life), addresses): ((&Pool, &PoolLife), &Vec<Vec<Address>>)| {
            let state = |(server, addresses): (&ServerAddress, &Vec<Address>)| {
                let name = name_of(server);
                let is_unresolved =
                    addresses.is_empty() || name.is_some_and(|name| self.lost.contains(&name));
                let is_slot = matches!(server, ServerAddress::Slot(_));
                let slot = is_slot.then(|| socket_addresses(addresses).next());
                NameState { is_unresolved, share: None, slot }
            };
            let servers = pool.servers.iter().map(|server| &server.address).zip(addresses);
            let mut states: Vec<NameState> = servers.map(state).collect();
            for template in templates(pool, life) {
                let Some(marks) = self.marks.get(&template.name) else { continue };
                let held = |at: &usize| socket_addresses(&addresses[*at]).next();
                let all: Vec<SocketAddr> = template.slots.iter().filter_map(held).collect();
                let shares = slots::shares(marks, &all);
                for at in &template.slots {
                    states[*at].share = held(at).and_then(|own| shares.get(&own).copied());
                }
            }
            states
        };
        pools.map(of_pool).collect()
    }

    /// Drops the facts about names that the configuration no longer has.
    pub(crate) fn retain(&mut self, names: &BTreeSet<Server>) {
        self.marks.retain(|name, _| names.contains(name));
        self.lost.retain(|name| names.contains(name));
    }
}
