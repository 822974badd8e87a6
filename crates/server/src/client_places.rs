//! The places of connections, of listeners that limit all their connections (`connections-max`) or those of each address
//! (`connections-per-address-max`).
//! In: accepted connections, and PROXY headers that name their clients. Out: whether the connection may stay; log lines.
//! Never: holds memory if no listener has a limit; counts a client without an address (a unix socket) by its address.
//! Limits: those of `gate::client_places`; a worker logs a full listener once in `LOG_SPAN`.
//! Invariant: each place belongs to the client connection in its slot, and is given back when that ends.

use tidegate_base::{Moment, Span};
use tidegate_config::model::Listener;
use tidegate_gate::bounded_places::Place;
use tidegate_gate::client_places::{ClientPlace, Entry};
use tidegate_reactor::{Peer, Reactor, SockId};

use crate::log;
use crate::worker::Worker;

/// How often a worker logs that a listener is full.
const LOG_SPAN: Span = Span::from_secs(10);

/// The places that a worker's client connections hold.
#[derive(Default)]
pub(crate) struct HeldPlaces {
    /// By the slot of the connection. Grows only if a listener has a limit.
    by_slot: Vec<Held>,
    /// The number of connections that hold places.
    count: usize,
    /// When the worker logged last that a listener is full; `None`: never.
    logged: Option<Moment>,
}

/// The places of a connection.
#[derive(Default)]
struct Held {
    of_address: Option<ClientPlace>,
    of_listener: Option<Place>,
}

impl Held {
    fn is_empty(&self) -> bool {
        self.of_address.is_none() && self.of_listener.is_none()
    }
}

impl HeldPlaces {
    /// The number of connections that hold places.
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    /// Whether the connection holds a place.
    pub(crate) fn has(&self, sock: SockId) -> bool {
        self.by_slot.get(sock.index as usize).is_some_and(|held| !held.is_empty())
    }

    /// The state that the connection holds; the caller adds a place to it.
    fn growing(&mut self, sock: SockId) -> &mut Held {
        let slot = sock.index as usize;
        if self.by_slot.len() <= slot {
            self.by_slot.resize_with(slot + 1, Held::default);
        }
        let held = &mut self.by_slot[slot];
        self.count += usize::from(held.is_empty());
        held
    }

    /// The connection has ended: its places are free.
    pub(crate) fn end(&mut self, sock: SockId) {
        if let Some(held) = self.by_slot.get_mut(sock.index as usize)
            && !held.is_empty()
        {
            *held = Held::default();
            self.count -= 1;
        }
    }
}

impl Worker {
    /// Takes one of the places of the listener for a new connection, and closes another connection for it if all are taken.
    /// Returns whether the connection may stay.
    pub(crate) fn admit_to_listener<R: Reactor>(
        &mut self,
        reactor: &mut R,
        listener: u16,
        sock: SockId,
    ) -> bool {
        let mut place = self.listener_place(listener);
        if place.is_err() && self.make_room_on_listener(reactor, listener) {
            place = self.listener_place(listener);
        }
        match place {
            Ok(None) => true,
            Ok(Some(place)) => {
                self.listening.held_places.growing(sock).of_listener = Some(place);
                true
            }
            Err(most) => {
                self.note_full(reactor.now(), listener, most);
                false
            }
        }
    }

    /// A place of the listener; `None` if it has no limit.
    ///
    /// # Errors
    /// The limit of the listener, whose places are all taken.
    fn listener_place(&self, listener: u16) -> Result<Option<Place>, u32> {
        let snapshot = self.settings.newest();
        let Some(most) = snapshot.listener(listener).connections_max else { return Ok(None) };
        match snapshot.process.rates.clients.total(usize::from(listener)) {
            None => Ok(None),
            Some(places) => places.take_of(most).map(Some).ok_or(most),
        }
    }

    /// Counts a connection for which the listener has no place, and logs it from time to time.
    fn note_full(&mut self, now: Moment, listener: u16, most: u32) {
        self.accounts.counters.connections_over_listener_max.add(1);
        if self.listening.held_places.logged.is_some_and(|at| now.since(at) < LOG_SPAN) {
            return;
        }
        self.listening.held_places.logged = Some(now);
        let name = &self.settings.newest().listener(listener).name;
        log::warning(format_args!(
            "listener {name:?} has {most} connections, as many as its connections-max: further ones are reset"
        ));
    }

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
            Entry::Taken(place) => {
                self.listening.held_places.growing(sock).of_address = Some(place)
            }
            Entry::Uncounted => self.accounts.counters.clients_uncounted.add(1),
            Entry::Refused => {
                self.accounts.counters.connections_over_address_max.add(1);
                return false;
            }
        }
        true
    }
}
