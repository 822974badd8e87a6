//! The simulator: the same completions as on real sockets, on virtual time and with injected faults.
//! In: one seed, `Faults`, and the test's peers. Out: a `SimReactor` for each worker of the network.
//! Never: waits; behaves in a way that the seed does not determine.
//! Limits: the window of each direction (`SimNet::set_window_bytes`), the backlog of each listener.
//! Invariant: the same seed and the same sequence of calls give the same run.

mod datagrams;
mod faults;
mod kernel;
mod peer;
mod world;

use std::cell::RefCell;
use std::rc::Rc;

use tidegate_base::{Address, Moment, Span};

use crate::interface::{Peer, Shortage};

pub use datagrams::SimDatagrams;
pub use faults::Faults;
pub use kernel::{Sim, SimHandle, SimReactor};
pub use peer::{SimPeer, SimServer};

use world::{Owner, World};

/// A simulated network, shared by reactors and the test's own peers. All clones refer to the same network.
#[derive(Clone)]
pub struct SimNet(Rc<RefCell<World>>);

impl SimNet {
    /// Creates a network. `seed` determines all of its random choices.
    #[must_use]
    pub fn new(seed: u64, faults: Faults) -> Self {
        Self(Rc::new(RefCell::new(World::new(seed, faults))))
    }

    /// Replaces the faults from now on.
    pub fn set_faults(&self, faults: Faults) {
        self.with(|world| world.faults = faults);
    }

    /// Connects to `address` fail with `shortage` from now on, at once or, if `is_late`, after they have begun. `None`: they succeed.
    pub fn set_shortage(&self, address: &Address, shortage: Option<Shortage>, is_late: bool) {
        self.with(|world| {
            world.shortages.retain(|(of, ..)| of != address);
            world.shortages.extend(shortage.map(|shortage| (address.clone(), shortage, is_late)));
        });
    }

    /// How many connects have failed because of `set_shortage`.
    #[must_use]
    pub fn short_connects(&self) -> u64 {
        self.0.borrow().short_connects
    }

    /// Sets how many bytes, in flight or unread, each direction of a connection may hold. It applies to
    /// connections that begin from now on. The default is 64 KiB.
    pub fn set_window_bytes(&self, window_bytes: usize) {
        self.with(|world| world.window_bytes = window_bytes.max(1));
    }

    /// The virtual clock.
    #[must_use]
    pub fn now(&self) -> Moment {
        self.0.borrow().now
    }

    /// A hash over everything sent so far: each segment with its sender and time. Runs with equal hashes are,
    /// for all practical purposes, equal.
    #[must_use]
    pub fn trace_hash(&self) -> u64 {
        self.0.borrow().trace_hash
    }

    /// Advances the clock to `at` (never back) and delivers everything that is due until then.
    pub fn advance_to(&self, at: Moment) {
        self.with(|world| world.run_until(at));
    }

    /// Advances the clock by `span`.
    pub fn advance_by(&self, span: Span) {
        self.with(|world| world.run_until(world.now.after(span)));
    }

    /// When the next event happens: an arrival, or what a reactor waited for at the end of its last turn (a
    /// deadline or a timer; `now` if it has more work). `None` if there will be no further event.
    #[must_use]
    pub fn next_event_at(&self) -> Option<Moment> {
        let world = self.0.borrow();
        let has_edges = world.workers.iter().any(|worker| !worker.edges.is_empty());
        let due = world.workers.iter().filter_map(|worker| worker.due).min();
        let edges = has_edges.then_some(world.now);
        [world.next_event_at(), due, edges].into_iter().flatten().min().map(|at| at.max(world.now))
    }

    /// Advances the clock to the next event; false if there is none. After that, give each reactor a turn
    /// with a `wait_max` of zero.
    pub fn advance_to_next_event(&self) -> bool {
        let next = self.next_event_at();
        if let Some(at) = next {
            self.advance_to(at);
        }
        next.is_some()
    }

    /// Connects a test's peer to the listener at `address` (of a reactor or a `SimServer`). `None` if nothing
    /// listens there. Bytes may be sent before the listener's side
    /// accepts the connection; they are kept until then.
    #[must_use]
    pub fn dial(&self, address: &Address) -> Option<SimPeer> {
        let peer = self.with(|world| world.make_peer(address));
        self.dial_as(address, peer)
    }

    /// As `dial`, with `peer` as the address that the listener sees.
    #[must_use]
    pub fn dial_as(&self, address: &Address, peer: Peer) -> Option<SimPeer> {
        let id = self.with(|world| {
            world.open_listener_at(address)?;
            Some(world.connect(Owner::Test, address, peer, Span::ZERO))
        })?;
        Some(SimPeer::new(self.clone(), id))
    }

    /// Opens a listener to which reactors can connect. `None` if another listener has the address.
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

    /// Opens a socket for datagrams, operated by the test. `None` if the address is in use.
    #[must_use]
    pub fn serve_datagrams(&self, address: core::net::SocketAddr) -> Option<SimDatagrams> {
        let id = self.with(|world| world.open_datagram_end(Owner::Test, address, None))?;
        Some(SimDatagrams::new(self.clone(), id))
    }

    /// The number of sockets that reactors hold, without listeners. It is 0 after all of them were closed.
    #[must_use]
    pub fn open_sockets(&self) -> usize {
        let world = self.0.borrow();
        world.ends.iter().filter(|(_, end)| end.held && end.owner != Owner::Test).count()
    }

    /// Whether any reactor has an edge that it has not taken yet: its next turn will not wait.
    #[must_use]
    pub fn has_edges(&self) -> bool {
        self.with(|world| {
            world.run_until(world.now);
            world.workers.iter().any(|worker| !worker.edges.is_empty())
        })
    }

    /// The number of open listeners of reactors.
    #[must_use]
    pub fn open_listeners(&self) -> usize {
        let world = self.0.borrow();
        world.listeners.iter().filter(|entry| entry.is_open && entry.owner != Owner::Test).count()
    }

    fn with<T>(&self, act: impl FnOnce(&mut World) -> T) -> T {
        act(&mut self.0.borrow_mut())
    }
}
