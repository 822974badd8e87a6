//! The places of connections, of listeners that limit the connections of each address (`connections-per-address-max`).
//! In: accepted connections, and PROXY headers that name their clients. Out: whether the connection may stay.
//! Never: holds memory if no listener has the limit; counts a client without an address (a unix socket).
//! Limits: those of `gate::client_places`.
//! Invariant: each place belongs to the client connection in its slot, and is given back when that ends.

use tidegate_config::model::Listener;
use tidegate_gate::client_places::{ClientPlace, Entry};
use tidegate_reactor::{Peer, SockId};

use crate::worker::Worker;

/// The places that a worker's client connections hold.
#[derive(Default)]
pub(crate) struct HeldPlaces {
    /// By the slot of the connection. Grows only if a listener has the limit.
    by_slot: Vec<Option<ClientPlace>>,
    /// The number of places.
    count: usize,
}

impl HeldPlaces {
    /// The number of places.
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    /// Whether the connection holds a place.
    pub(crate) fn has(&self, sock: SockId) -> bool {
        self.by_slot.get(sock.index as usize).is_some_and(Option::is_some)
    }

    /// The connection holds `place` from now on.
    fn put(&mut self, sock: SockId, place: ClientPlace) {
        let slot = sock.index as usize;
        if self.by_slot.len() <= slot {
            self.by_slot.resize_with(slot + 1, || None);
        }
        if self.by_slot[slot].replace(place).is_none() {
            self.count += 1;
        }
    }

    /// The connection has ended: its place is free.
    pub(crate) fn end(&mut self, sock: SockId) {
        if let Some(place) = self.by_slot.get_mut(sock.index as usize)
            && place.take().is_some()
        {
            self.count -= 1;
        }
    }
}

impl Worker {
    /// Takes a place for a connection of `peer`. Returns whether the connection may stay.
    pub(crate) fn admit_connection(&mut self, listener: u16, sock: SockId, peer: Peer) -> bool {
        let snapshot = self.settings.newest();
        let Listener { per_address_max: Some(most), .. } = snapshot.listener(listener) else {
            return true;
        };
        let (Peer::Tcp(address), Some(places)) =
            (peer, snapshot.process.rates.clients.listener(usize::from(listener)))
        else {
            return true;
        };
        match places.take(address.ip(), *most) {
            Entry::Taken(place) => self.held_places.put(sock, place),
            Entry::Uncounted => self.accounts.counters.clients_uncounted.add(1),
            Entry::Refused => {
                self.accounts.counters.connections_over_address_max.add(1);
                return false;
            }
        }
        true
    }
}
