//! The simulated driver: the same completions as on real sockets, on virtual time, with faults.
//! In: one seed, `Faults`, and the test's peers. Out: a `SimReactor` for each worker of the net.
//! Never: waits, or shows anything that the seed does not decide.
//! Limits: the window of each direction (`SimNet::set_window_bytes`), a listener's backlog.
//! Invariant: one seed and one sequence of calls give one run.

mod faults;
mod kernel;
mod peer;
mod world;

use std::cell::RefCell;
use std::rc::Rc;

use tidegate_base::{Address, Moment, Span};

use crate::interface::Peer;

pub use faults::Faults;
pub use kernel::{Sim, SimHandle, SimReactor};
pub use peer::{SimPeer, SimServer};

use world::{Owner, World};

/// A net that several reactors and the test's own ends share. Clones name the same net.
#[derive(Clone)]
pub struct SimNet(Rc<RefCell<World>>);

impl SimNet {
    /// A net whose every random choice follows from `seed`.
    #[must_use]
    pub fn new(seed: u64, faults: Faults) -> Self {
        Self(Rc::new(RefCell::new(World::new(seed, faults))))
    }

    /// Changes the faults from here on.
    pub fn set_faults(&self, faults: Faults) {
        self.with(|world| world.faults = faults);
    }

    /// Bytes each direction of a connection holds, on the way and unread, for connections begun from
    /// here on (64 KiB at first).
    pub fn set_window_bytes(&self, window_bytes: usize) {
        self.with(|world| world.window_bytes = window_bytes.max(1));
    }

    /// The virtual clock.
    #[must_use]
    pub fn now(&self) -> Moment {
        self.0.borrow().now
    }

    /// A number over all that was sent so far, byte for byte, by whom and when: two runs with the same one
    /// are the same run.
    #[must_use]
    pub fn trace_hash(&self) -> u64 {
        self.0.borrow().trace_hash
    }

    /// Moves the clock on to `at` (never back); what arrives until then has arrived.
    pub fn advance_to(&self, at: Moment) {
        self.with(|world| world.run_until(at));
    }

    /// Moves the clock on by `span`.
    pub fn advance_by(&self, span: Span) {
        self.with(|world| world.run_until(world.now.after(span)));
    }

    /// When the next thing happens: an arrival, or what a reactor waited for when its last turn ended
    /// (a deadline, a timer, `now` if it has more to do at once). `None`: nothing ever will.
    #[must_use]
    pub fn next_event_at(&self) -> Option<Moment> {
        let world = self.0.borrow();
        let has_edges = world.workers.iter().any(|worker| !worker.edges.is_empty());
        let due = world.workers.iter().filter_map(|worker| worker.due).min();
        let edges = has_edges.then_some(world.now);
        [world.next_event_at(), due, edges].into_iter().flatten().min().map(|at| at.max(world.now))
    }

    /// Moves the clock on to the next thing that happens; false when nothing ever will. Then give each
    /// reactor a turn with a `wait_max` of zero.
    pub fn advance_to_next_event(&self) -> bool {
        let next = self.next_event_at();
        if let Some(at) = next {
            self.advance_to(at);
        }
        next.is_some()
    }

    /// Connects a test's end to whoever listens at `address` (a reactor or a `SimServer`); `None` when
    /// nobody does. What it sends waits for the accept.
    #[must_use]
    pub fn dial(&self, address: &Address) -> Option<SimPeer> {
        let peer = self.with(|world| world.make_peer(address));
        self.dial_as(address, peer)
    }

    /// `dial`, appearing to the listener as `peer`.
    #[must_use]
    pub fn dial_as(&self, address: &Address, peer: Peer) -> Option<SimPeer> {
        let id = self.with(|world| {
            world.open_listener_at(address)?;
            Some(world.connect(Owner::Test, address, peer, Span::ZERO))
        })?;
        Some(SimPeer::new(self.clone(), id))
    }

    /// Listens for what reactors connect to; `None` when somebody else listens there.
    #[must_use]
    pub fn serve(&self, address: &Address) -> Option<SimServer> {
        let listener = self.with(|world| {
            if world.open_listener_at(address).is_some() {
                return None;
            }
            Some(world.add_listener(Owner::Test, address.clone(), 4096))
        })?;
        Some(SimServer::new(self.clone(), listener))
    }

    /// Sockets that reactors hold now, listeners not counted: 0 once all was closed in order.
    #[must_use]
    pub fn open_sockets(&self) -> usize {
        let world = self.0.borrow();
        world.ends.iter().filter(|(_, end)| end.held && end.owner != Owner::Test).count()
    }

    /// Listeners that reactors hold now.
    #[must_use]
    pub fn open_listeners(&self) -> usize {
        let world = self.0.borrow();
        world.listeners.iter().filter(|door| door.is_open && door.owner != Owner::Test).count()
    }

    fn with<T>(&self, act: impl FnOnce(&mut World) -> T) -> T {
        act(&mut self.0.borrow_mut())
    }
}
