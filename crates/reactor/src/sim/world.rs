//! The simulated network: ends of connections, listeners, a virtual clock and the segments in flight.
//! In: operations of the simulated kernel and of the test's peers. Out: bytes, faults, and
//! edges: readiness as epoll reports it once (EPOLLET).
//! Never: reads a real clock, or iterates over an unordered collection. So the same seed repeats a run exactly.
//! Limits: each direction holds at most its window, in flight or unread.
//! Invariant: segments sent to an end arrive in order, at times that never go back.

use std::collections::{BTreeMap, VecDeque};

use tidegate_base::prng::{hash_bytes, mix64};
use tidegate_base::{Address, Id, Moment, Prng, Slab, Span};

use super::datagrams::{DatagramEnd, DatagramEndId};
use super::faults::Faults;
use crate::interface::{CloseReason, Peer, Shortage};
use crate::kernel::Watch;

pub(super) type EndId = Id<End>;

/// The owner of an end or of a listener.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Owner {
    /// The simulated kernel of this worker.
    Worker(usize),
    /// A `SimPeer` or a `SimServer`.
    Test,
}

/// The state of a connection attempt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Link {
    Connecting,
    Refused(CloseReason),
    Up,
}

/// One end of a connection.
pub(super) struct End {
    pub(super) owner: Owner,
    /// The other end of the connection; stale once that end is closed.
    pub(super) other: EndId,
    pub(super) link: Link,
    /// The client's address, for `accept`.
    pub(super) peer: Peer,
    /// This end's own address, if it has one.
    pub(super) local: Option<core::net::SocketAddr>,
    /// The number that the kernel reports with its edges; `None` until it is registered with epoll.
    pub(super) token: Option<u64>,
    /// The owner holds this end: it is not waiting in a backlog.
    pub(super) held: bool,
    /// Bytes that have arrived and are unread.
    pub(super) inbound: VecDeque<u8>,
    /// How many times the other end has sent bytes that have arrived.
    pub(super) arrivals: u64,
    /// Bytes in flight to this end.
    in_flight_bytes: usize,
    /// Maximum number of bytes that may be in flight to this end or unread.
    window_bytes: usize,
    /// The other end's FIN has arrived.
    pub(super) finish_arrived: bool,
    /// A reset has arrived.
    pub(super) reset_arrived: bool,
    /// Whether the reset was not reported to the owner yet.
    pub(super) error_pending: bool,
    /// This end has sent FIN.
    pub(super) send_finished: bool,
    /// A send found the window full: its owner gets a writable edge when there is room.
    pub(super) starved: bool,
    /// When the last segment sent to this end arrives; later segments arrive no earlier.
    last_arrival: Moment,
    /// An edge of this end is in its worker's queue.
    edge_queued: bool,
    /// When its worker's `wait` reports it.
    pub(super) watch: Watch,
}

impl End {
    /// Whether the peer's FIN or a reset has arrived.
    pub(super) fn is_over(&self) -> bool {
        self.finish_arrived || self.reset_arrived
    }
}

pub(super) struct Listener {
    pub(super) owner: Owner,
    pub(super) address: Address,
    /// The server ends of connections that wait for `accept`.
    pub(super) backlog: VecDeque<EndId>,
    pub(super) backlog_max: usize,
    /// The number that the kernel reports with its edges; `None` until it is registered with epoll.
    pub(super) token: Option<u64>,
    pub(super) is_open: bool,
    /// An edge of this listener is in its worker's queue.
    edge_queued: bool,
}

/// The bytes that one end sends to the other.
pub(super) enum Segment {
    Bytes(Vec<u8>),
    Finish,
    Reset,
}

/// Something that happens at a later time.
pub(super) enum Event {
    /// A segment arrives.
    Arrive { to: EndId, segment: Segment },
    /// An edge is raised.
    Edge { end: EndId },
    /// A connection attempt reaches its listener.
    Connect { client: EndId, server: EndId, listener: usize },
    /// A connection attempt fails.
    Refuse { client: EndId, reason: CloseReason },
    /// A datagram arrives at an address.
    Datagram { to: core::net::SocketAddr, from: core::net::SocketAddr, bytes: Vec<u8> },
    /// The host of a peer reports that nothing receives at its address.
    DatagramRefused { to: core::net::SocketAddr, from: core::net::SocketAddr },
    /// An edge of a socket for datagrams is raised.
    DatagramEdge { end: DatagramEndId },
}

/// The source of an edge.
#[derive(Clone, Copy)]
pub(super) enum Source {
    End(EndId),
    Listener(usize),
    Datagrams(DatagramEndId),
}

#[derive(Default)]
pub(super) struct Worker {
    /// Edges that the worker has not taken yet.
    pub(super) edges: VecDeque<Source>,
    /// The ends with `Watch::Level` that the last wait reported. The next wait reports them again if they are still readable.
    pub(super) level: Vec<EndId>,
    /// When the reactor's next deadline is due, as of the end of its last turn.
    pub(super) due: Option<Moment>,
}

/// A connection attempt that finds a full backlog is retried after this time.
const BACKLOG_RETRY: Span = Span::from_millis(50);

/// The state of a simulated network.
pub(super) struct World {
    /// The virtual clock.
    pub(super) now: Moment,
    pub(super) prng: Prng,
    pub(super) faults: Faults,
    /// The addresses to which connects fail, with the reason, and whether they fail late (`SimNet::set_shortage`).
    pub(super) shortages: Vec<(Address, Shortage, bool)>,
    /// How many connects have failed for this reason.
    pub(super) short_connects: u64,
    pub(super) ends: Slab<End>,
    /// The sockets for datagrams.
    pub(super) datagrams: Slab<DatagramEnd>,
    /// All listeners ever opened; closed ones remain.
    pub(super) listeners: Vec<Listener>,
    pub(super) workers: Vec<Worker>,
    /// The window of each direction of new connections.
    pub(super) window_bytes: usize,
    /// Future events by time, then in the order of their creation.
    events: BTreeMap<(Moment, u64), Event>,
    /// The number of events created so far.
    events_made: u64,
    /// A hash over every segment sent so far, with its time and sender.
    pub(super) trace_hash: u64,
    /// The next port to assign.
    pub(super) next_port: u16,
}

impl World {
    pub(super) fn new(seed: u64, faults: Faults) -> Self {
        Self {
            // Not zero, so that the tests notice code that uses an unset moment.
            now: Moment::from_nanos(1_000_000_000),
            prng: Prng::new(seed),
            faults,
            shortages: Vec::new(),
            short_connects: 0,
            ends: Slab::new(u32::MAX as usize),
            datagrams: Slab::new(u32::MAX as usize),
            listeners: Vec::new(),
            workers: Vec::new(),
            window_bytes: 64 * 1024,
            events: BTreeMap::new(),
            events_made: 0,
            trace_hash: 0,
            next_port: 40_000,
        }
    }

    pub(super) fn chance(&mut self, ppm: u32) -> bool {
        ppm > 0 && self.prng.chance(ppm)
    }

    pub(super) fn latency(&mut self) -> Span {
        Span::from_micros(self.prng.below(u64::from(self.faults.latency_us_max) + 1))
    }

    pub(super) fn add_event(&mut self, at: Moment, event: Event) {
        self.events.insert((at, self.events_made), event);
        self.events_made += 1;
    }

    pub(super) fn next_event_at(&self) -> Option<Moment> {
        self.events.keys().next().map(|&(at, _)| at)
    }

    /// Advances the clock (never back) and applies the events that are due by then.
    pub(super) fn run_until(&mut self, at: Moment) {
        let target = at.max(self.now);
        while let Some(entry) = self.events.first_entry() {
            let due = entry.key().0;
            if due > target {
                break;
            }
            let event = entry.remove();
            self.now = due.max(self.now);
            self.apply(event);
        }
        self.now = target;
    }

    fn apply(&mut self, event: Event) {
        match event {
            Event::Arrive { to, segment } => self.arrive(to, segment),
            Event::Edge { end } => self.raise_edge(end),
            Event::Connect { client, server, listener } => {
                self.arrive_at_listener(client, server, listener)
            }
            Event::Refuse { client, reason } => {
                if let Some(end) = self.ends.get_mut(client) {
                    end.link = Link::Refused(reason);
                    self.raise_edge(client);
                }
            }
            Event::Datagram { to, from, bytes } => self.arrive_datagram(to, from, bytes),
            Event::DatagramRefused { to, from } => self.refuse_datagram(to, from),
            Event::DatagramEdge { end } => self.raise_datagram_edge(end),
        }
    }

    fn arrive(&mut self, to: EndId, segment: Segment) {
        let discards = self.chance(self.faults.reset_discards_ppm);
        let Some(end) = self.ends.get_mut(to) else {
            return;
        };
        if end.reset_arrived {
            return;
        }
        match segment {
            Segment::Bytes(bytes) => {
                end.arrivals += 1;
                end.in_flight_bytes -= bytes.len();
                end.inbound.extend(bytes);
            }
            Segment::Finish => end.finish_arrived = true,
            Segment::Reset => {
                end.reset_arrived = true;
                end.error_pending = true;
                end.in_flight_bytes = 0;
                if discards {
                    end.inbound.clear();
                }
            }
        }
        self.raise_edge(to);
    }

    fn arrive_at_listener(&mut self, client: EndId, server: EndId, listener: usize) {
        if self.ends.get(client).is_none() {
            self.ends.remove(server);
            return;
        }
        let entry = &mut self.listeners[listener];
        if !entry.is_open {
            self.ends.remove(server);
            let reason = CloseReason::ConnectRefused;
            return self.apply(Event::Refuse { client, reason });
        }
        if entry.backlog.len() >= entry.backlog_max {
            let event = Event::Connect { client, server, listener };
            return self.add_event(self.now.after(BACKLOG_RETRY), event);
        }
        entry.backlog.push_back(server);
        for id in [client, server] {
            if let Some(end) = self.ends.get_mut(id) {
                end.link = Link::Up;
            }
        }
        self.raise_edge(client);
        self.raise_backlog_edge(listener);
    }

    /// Adds an end. The caller sets `other`.
    fn add_end(&mut self, owner: Owner, peer: Peer) -> EndId {
        let end = End {
            owner,
            other: EndId::NONE,
            link: Link::Connecting,
            peer,
            local: None,
            token: None,
            held: false,
            inbound: VecDeque::new(),
            arrivals: 0,
            in_flight_bytes: 0,
            window_bytes: self.window_bytes,
            finish_arrived: false,
            reset_arrived: false,
            error_pending: false,
            send_finished: false,
            starved: false,
            last_arrival: self.now,
            edge_queued: false,
            watch: Watch::Edges,
        };
        let Ok(id) = self.ends.insert(end) else {
            panic!("the simulated network holds 2^32 ends: a test leaks connections");
        };
        id
    }

    /// One of the open listeners at `address`, chosen at random.
    pub(super) fn open_listener_at(&mut self, address: &Address) -> Option<usize> {
        let found: Vec<usize> = (0..self.listeners.len())
            .filter(|&at| self.listeners[at].is_open && self.listeners[at].address == *address)
            .collect();
        let pick = self.prng.below(found.len() as u64) as usize;
        found.get(pick).copied()
    }

    pub(super) fn add_listener(
        &mut self,
        owner: Owner,
        address: Address,
        backlog_max: usize,
    ) -> usize {
        self.listeners.push(Listener {
            owner,
            address,
            backlog: VecDeque::new(),
            backlog_max: backlog_max.max(1),
            token: None,
            is_open: true,
            edge_queued: false,
        });
        self.listeners.len() - 1
    }

    pub(super) fn close_listener(&mut self, listener: usize) {
        self.listeners[listener].is_open = false;
        while let Some(end) = self.listeners[listener].backlog.pop_front() {
            self.close(end, true);
        }
    }

    /// Adds a client end of `owner` that connects to `address` and appears there as `peer`.
    pub(super) fn connect(
        &mut self,
        owner: Owner,
        address: &Address,
        peer: Peer,
        delay: Span,
    ) -> EndId {
        let client = self.add_end(owner, peer);
        if let Some(end) = self.ends.get_mut(client) {
            end.held = true;
        }
        let at = self.now.after(self.latency()).after(delay);
        match self.open_listener_at(address) {
            None => {
                let reason = match address {
                    Address::Tcp(_) => CloseReason::ConnectRefused,
                    Address::Unix(_) => CloseReason::ConnectUnreachable,
                };
                self.add_event(at, Event::Refuse { client, reason });
            }
            Some(listener) => {
                let server = self.add_end(self.listeners[listener].owner, peer);
                if let (Peer::Tcp(source), Address::Tcp(destination)) = (peer, address) {
                    for (id, local) in [(client, source), (server, *destination)] {
                        if let Some(end) = self.ends.get_mut(id) {
                            end.local = Some(local);
                        }
                    }
                }
                for (id, other) in [(client, server), (server, client)] {
                    if let Some(end) = self.ends.get_mut(id) {
                        end.other = other;
                        // Bytes that the client sends early arrive after its SYN.
                        end.last_arrival = at;
                    }
                }
                self.add_event(at, Event::Connect { client, server, listener });
            }
        }
        client
    }

    /// Adds a client end whose attempt fails with `reason`, or stays pending forever without one.
    pub(super) fn connect_failing(&mut self, owner: Owner, reason: Option<CloseReason>) -> EndId {
        let client = self.add_end(owner, Peer::Local);
        if let Some(end) = self.ends.get_mut(client) {
            end.held = true;
        }
        if let Some(reason) = reason {
            let at = self.now.after(self.latency());
            self.add_event(at, Event::Refuse { client, reason });
        }
        client
    }

    /// How many bytes `from` may send now. Unlimited if the other end is closed: sending then causes a reset.
    pub(super) fn room(&self, from: EndId) -> usize {
        let other = self.ends.get(from).and_then(|end| self.ends.get(end.other));
        other.map_or(usize::MAX, |other| {
            other.window_bytes.saturating_sub(other.inbound.len() + other.in_flight_bytes)
        })
    }

    /// The bytes that `from` has sent and the other end has not read; 0 if the other end is closed.
    pub(super) fn unread(&self, from: EndId) -> usize {
        let other = self.ends.get(from).and_then(|end| self.ends.get(end.other));
        other.map_or(0, |other| other.inbound.len() + other.in_flight_bytes)
    }

    /// Sends one segment from `from`. The caller must have checked `room`.
    pub(super) fn transmit(&mut self, from: EndId, segment: Segment) {
        self.note_sent(from, &segment);
        let mut at = self.now.after(self.latency());
        let Some(other_id) = self.ends.get(from).map(|end| end.other) else {
            return;
        };
        let Some(other) = self.ends.get_mut(other_id) else {
            // The other end is closed, so it replies to bytes with a reset.
            if matches!(segment, Segment::Bytes(_)) {
                self.add_event(at, Event::Arrive { to: from, segment: Segment::Reset });
            }
            return;
        };
        at = at.max(other.last_arrival);
        other.last_arrival = at;
        if let Segment::Bytes(bytes) = &segment {
            other.in_flight_bytes += bytes.len();
        }
        self.add_event(at, Event::Arrive { to: other_id, segment });
    }

    /// Whether nothing is on the way or unread in either direction of an open connection.
    pub(super) fn is_quiet(&self, id: EndId) -> bool {
        let now = self.now;
        let is_quiet = |end: &End| {
            let over = end.finish_arrived || end.reset_arrived || end.send_finished;
            let in_flight = end.in_flight_bytes > 0 || end.last_arrival > now;
            end.link == Link::Up && !over && !in_flight && end.inbound.is_empty()
        };
        let end = self.ends.get(id);
        let other = end.and_then(|end| self.ends.get(end.other));
        end.is_some_and(is_quiet) && other.is_some_and(is_quiet)
    }

    /// Delivers bytes without latency, if the connection is quiet.
    pub(super) fn deliver_at_once(&mut self, from: EndId, bytes: &[u8]) -> bool {
        let Some(to) = self.ends.get(from).map(|end| end.other) else { return false };
        if !self.is_quiet(from) || self.room(from) < bytes.len() {
            return false;
        }
        let segment = Segment::Bytes(bytes.to_vec());
        self.note_sent(from, &segment);
        if let Some(other) = self.ends.get_mut(to) {
            other.in_flight_bytes += bytes.len();
        }
        self.arrive(to, segment);
        true
    }

    fn note_sent(&mut self, from: EndId, segment: &Segment) {
        let content = match segment {
            Segment::Bytes(bytes) => hash_bytes(bytes),
            Segment::Finish => 1,
            Segment::Reset => 2,
        };
        let end = u64::from(from.index) << 32 | u64::from(from.generation);
        for part in [self.now.as_nanos(), end, content] {
            self.trace_hash = mix64(self.trace_hash.wrapping_add(1) ^ part);
        }
    }

    /// Takes up to `count_max` arrived bytes. A sender that waits for room gets an edge.
    pub(super) fn take_inbound(&mut self, id: EndId, count_max: usize) -> Vec<u8> {
        let Some(end) = self.ends.get_mut(id) else {
            return Vec::new();
        };
        let count = count_max.min(end.inbound.len());
        let bytes = end.inbound.drain(..count).collect();
        let other_id = end.other;
        let at = self.now.after(self.latency());
        if let Some(other) = self.ends.get_mut(other_id)
            && count > 0
            && core::mem::replace(&mut other.starved, false)
        {
            self.add_event(at, Event::Edge { end: other_id });
        }
        bytes
    }

    pub(super) fn set_window(&mut self, id: EndId, window_bytes: usize) {
        let Some(end) = self.ends.get_mut(id) else {
            return;
        };
        end.window_bytes = window_bytes;
        let other_id = end.other;
        if let Some(other) = self.ends.get_mut(other_id)
            && core::mem::replace(&mut other.starved, false)
        {
            self.add_event(self.now, Event::Edge { end: other_id });
        }
    }

    /// Ends the sending side of `id`.
    pub(super) fn finish(&mut self, id: EndId) {
        if let Some(end) = self.ends.get_mut(id)
            && !end.send_finished
            && !end.reset_arrived
        {
            end.send_finished = true;
            self.transmit(id, Segment::Finish);
        }
    }

    /// Closes an end: with a reset if requested or if bytes are unread (as Linux does), otherwise gracefully.
    pub(super) fn close(&mut self, id: EndId, with_reset: bool) {
        let Some(end) = self.ends.get(id) else { return };
        if !end.reset_arrived {
            if with_reset || !end.inbound.is_empty() {
                self.transmit(id, Segment::Reset);
            } else {
                self.finish(id);
            }
        }
        // Bytes still in flight to this end arrive after its close, so their sender gets a reset.
        let has_late_bytes = self.ends.get(id).is_some_and(|end| end.in_flight_bytes > 0);
        if has_late_bytes {
            self.transmit(id, Segment::Reset);
        }
        self.ends.remove(id);
    }

    /// Breaks the connection: both ends find a reset now.
    pub(super) fn break_connection(&mut self, id: EndId) {
        let other = self.ends.get(id).map(|end| end.other);
        self.arrive(id, Segment::Reset);
        if let Some(other) = other {
            self.arrive(other, Segment::Reset);
        }
    }

    /// Raises an edge of `end` a little later, because an injected fault suppressed it before.
    pub(super) fn raise_edge_later(&mut self, end: EndId) {
        let at = self.now.after(self.latency()).after(Span::from_micros(1));
        self.add_event(at, Event::Edge { end });
    }

    pub(super) fn raise_edge(&mut self, id: EndId) {
        let Some(end) = self.ends.get_mut(id) else {
            return;
        };
        if let (Owner::Worker(worker), Some(_), false) = (end.owner, end.token, end.edge_queued) {
            end.edge_queued = true;
            self.workers[worker].edges.push_back(Source::End(id));
        }
    }

    /// Lets the next wait report again the sockets that are still readable.
    pub(super) fn raise_level(&mut self, worker: usize) {
        for id in core::mem::take(&mut self.workers[worker].level) {
            let is_readable = |end: &End| !end.inbound.is_empty() || end.is_over();
            let is_level = |end: &End| end.watch == Watch::Level;
            if self.ends.get(id).is_some_and(|end| is_level(end) && is_readable(end)) {
                self.raise_edge(id);
            }
        }
    }

    pub(super) fn raise_backlog_edge(&mut self, listener: usize) {
        let entry = &mut self.listeners[listener];
        if let (Owner::Worker(worker), Some(_), false) =
            (entry.owner, entry.token, entry.edge_queued)
        {
            entry.edge_queued = true;
            self.workers[worker].edges.push_back(Source::Listener(listener));
        }
    }

    /// Marks the edge as taken from the queue, so that the next change queues it again.
    pub(super) fn lower_edge(&mut self, source: Source) {
        match source {
            Source::End(id) => {
                if let Some(end) = self.ends.get_mut(id) {
                    end.edge_queued = false;
                }
            }
            Source::Listener(listener) => self.listeners[listener].edge_queued = false,
            Source::Datagrams(id) => {
                if let Some(end) = self.datagrams.get_mut(id) {
                    end.edge_queued = false;
                }
            }
        }
    }
}
