//! The thread "names", which resolves the names of servers again and again.
//! In: the names of the configuration in force. Out: addresses for the thread that reloads, which it wakes; log lines; facts for the
//! admin interface.
//! Never: runs on a worker; starts a thread that no configuration needs; waits for a lookup: others resolve, `HELPERS` at once.
//! Limits: those of `gate/src/name_book.rs` and of `name_client.rs`.

use core::net::SocketAddr;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, mpsc};
use std::time::{Duration, Instant};

use tidegate_base::Moment;
use tidegate_config::model::Config;
use tidegate_gate::name_book::{Change, HostPort, LookedUp, NameBook, Times, text_of};
use tidegate_gate::slots::Marks;

use crate::events::{self, EventKind};
use crate::known_names::KnownNames;
use crate::log;
use crate::name_client::{self, LookUp};
use crate::randomness::random_seed;
use crate::threads::{self, Ended};

/// Lookups in progress at once.
const HELPERS: usize = 8;
/// The longest wait of the thread.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// Names, with the addresses that they have.
pub(crate) type Names = BTreeMap<HostPort, Vec<SocketAddr>>;
/// Names that were resolved just now.
pub(crate) type Resolved = BTreeSet<HostPort>;
/// By name: what is known about it.
pub(crate) type Found = BTreeMap<HostPort, FoundName>;

/// A name as it was resolved last.
#[derive(Clone)]
pub(crate) struct FoundName {
    pub(crate) addresses: Vec<SocketAddr>,
    /// Whether they are in use.
    pub(crate) is_used: bool,
    /// What SRV records state about them.
    pub(crate) marks: Marks,
}

/// What the thread waits for.
enum Order {
    /// The names of another configuration.
    Follow(Times, LookUp, Names, Resolved),
    /// A lookup has ended.
    Done(HostPort, LookedUp),
}

/// What a helper resolves.
type Job = (HostPort, LookUp);

/// The handle of the thread.
#[derive(Default)]
pub(crate) struct NameFollower {
    /// The way to the thread; `None`: there was no name yet.
    orders: Option<Sender<Order>>,
    /// What the thread has found.
    shared: Arc<Shared>,
}

/// What the thread shares with the one that reloads.
#[derive(Default)]
pub(crate) struct Shared {
    /// All names, if one has changed since they were last taken.
    changed: Mutex<Option<Found>>,
    /// Wakes the thread that reloads; set when it starts.
    event: OnceLock<OwnedFd>,
    /// The facts that the admin interface shows; unset without one.
    shown: OnceLock<Arc<KnownNames>>,
}

impl NameFollower {
    /// Shows facts about the names here, from now on.
    pub(crate) fn show_in(&self, names: Arc<KnownNames>) {
        // There is one admin interface.
        let _ = self.shared.shown.set(names);
    }

    /// The thread that reloads takes addresses from now on; `event` wakes it.
    pub(crate) fn connect(&self, event: OwnedFd) {
        // There is one such thread.
        let _ = self.shared.event.set(event);
    }

    /// Resolves these names from now on, of which `resolved` were resolved just now.
    pub(crate) fn follow(&mut self, config: &Config, names: Names, resolved: Resolved) {
        if self.orders.is_none() {
            if names.is_empty() {
                return;
            }
            match start(&self.shared) {
                Ok(orders) => self.orders = Some(orders),
                Err(error) => {
                    return log::error(format_args!(
                        "names of servers are not resolved again: starting a thread failed: {error}"
                    ));
                }
            }
        }
        let times = Times::of(config.resolver.as_ref());
        let order = Order::Follow(times, name_client::of(config), names, resolved);
        if let Some(orders) = &self.orders {
            // The thread runs as long as the process.
            let _ = orders.send(order);
        }
    }

    /// The addresses of all names, if one has changed since the last call.
    pub(crate) fn take(&self) -> Option<Found> {
        lock(&self.shared.changed).take()
    }
}

/// Starts the thread and its helpers.
fn start(shared: &Arc<Shared>) -> io::Result<Sender<Order>> {
    let (orders, received) = mpsc::channel();
    let (jobs, waiting) = mpsc::channel();
    let waiting = Arc::new(Mutex::new(waiting));
    for number in 0..HELPERS {
        let (waiting, done) = (Arc::clone(&waiting), orders.clone());
        threads::spawn(format!("lookup-{number}"), move || help(&waiting, &done))?;
    }
    let shared = Arc::clone(shared);
    threads::spawn("names", move || Follower::new(shared, jobs).run(&received))?;
    Ok(orders)
}

/// Resolves names until the process ends.
fn help(waiting: &Mutex<Receiver<Job>>, done: &Sender<Order>) -> Ended {
    loop {
        let Ok((name, look_up)) = lock(waiting).recv() else { return Ended::AsPlanned };
        let found = look_up(&name);
        if done.send(Order::Done(name, found)).is_err() {
            return Ended::AsPlanned;
        }
    }
}

/// The state of the thread.
struct Follower {
    book: NameBook,
    look_up: Option<LookUp>,
    shared: Arc<Shared>,
    jobs: Sender<Job>,
    /// Lookups that helpers have not ended.
    running: usize,
    began: Instant,
}

impl Follower {
    fn new(shared: Arc<Shared>, jobs: Sender<Job>) -> Self {
        let (book, began) = (NameBook::new(Times::of(None)), Instant::now());
        Self { book, look_up: None, shared, jobs, running: 0, began }
    }

    fn now(&self) -> Moment {
        Moment::ZERO.after(self.began.elapsed())
    }

    fn run(mut self, orders: &Receiver<Order>) -> Ended {
        loop {
            self.begin_lookups();
            let wait = match self.running < HELPERS {
                true => self.book.first_due().since(self.now()).min(WAIT_MAX),
                false => WAIT_MAX,
            };
            match orders.recv_timeout(wait) {
                Ok(Order::Follow(times, look_up, names, resolved)) => {
                    self.look_up = Some(look_up);
                    let now = self.now();
                    let is_found = self.book.follow(times, &names, &resolved, now);
                    // A server that was added with the name of others; or the loss may have been published just before.
                    if is_found || self.book.has_lost() {
                        self.publish();
                    }
                }
                Ok(Order::Done(name, found)) => self.end_lookup(&name, &found),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Ended::AsPlanned,
            }
        }
    }

    fn begin_lookups(&mut self) {
        let Some(look_up) = self.look_up.clone() else { return };
        while self.running < HELPERS
            && let Some(name) = self.book.next_due(self.now())
        {
            self.running += 1;
            // The helpers run as long as this thread.
            let _ = self.jobs.send((name, Arc::clone(&look_up)));
        }
    }

    fn end_lookup(&mut self, name: &HostPort, found: &LookedUp) {
        self.running -= 1;
        let change = self.book.note(name, found, self.now(), random_seed());
        let Some((addresses, is_used)) = self.book.addresses(name) else { return };
        if let Some(shown) = self.shared.shown.get() {
            shown.note_lookup(name, (addresses, is_used), found.as_ref().err().map(|of| of.text()));
        }
        match change {
            Change::None => return,
            Change::Addresses | Change::Found => log_addresses(name, addresses),
            Change::Lost => log_loss(name, found),
        }
        self.publish();
    }

    /// Hands all addresses to the thread that reloads.
    fn publish(&self) {
        let all = self.book.names().filter_map(|name| {
            let (addresses, is_used) = self.book.addresses(name)?;
            let marks = self.book.marks(name)?.clone();
            Some((name.clone(), FoundName { addresses: addresses.to_vec(), is_used, marks }))
        });
        *lock(&self.shared.changed) = Some(all.collect());
        if let Some(event) = self.shared.event.get() {
            // A write fails only if the counter is full, and then the thread wakes anyway.
            let _ = rustix::io::write(event, &1_u64.to_ne_bytes());
        }
    }
}

fn log_addresses(name: &HostPort, addresses: &[SocketAddr]) {
    let texts: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    let line = format!("the addresses of {} are now {}", text_of(name), texts.join(", "));
    log::info(format_args!("{line}"));
    events::note(EventKind::Server, format_args!("{line}"));
}

fn log_loss(name: &HostPort, found: &LookedUp) {
    let why = found.as_ref().err().map_or("", |failure| failure.text());
    let name = text_of(name);
    let line = format!("{name} has no address any more, so its servers are down: {why}");
    log::warning(format_args!("{line}"));
    events::note(EventKind::Server, format_args!("{line}"));
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
