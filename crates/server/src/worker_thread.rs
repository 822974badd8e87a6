//! A worker on its thread: from its creation to its end.
//! In: the settings of all workers, the connections of this worker with other threads; its mail. Out: a worker that serves.
//! Never: returns before the listeners of the worker are open, so that they are opened in CPU order.

use std::collections::BTreeMap;
use std::os::fd::RawFd;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use tidegate_base::{Span, limits};
use tidegate_config::arrange::Arranged;
use tidegate_gate::basic::CredentialSecret;
use tidegate_gate::process_state::ProcessState;
use tidegate_reactor::inherited;
use tidegate_reactor::{EpollReactor, Mailbox, Reactor, Sender, Waker, worker as thread_setup};
use tidegate_secure::{TlsLayer, TlsPlan};

use crate::action::lua::mail::LuaPost;
use crate::action::push::PushPost;
use crate::apply_settings::InUse;
use crate::apps::{Meter, Scripts};
use crate::configuration::{Bound, WorkerLink};
use crate::counters::Accounts;
use crate::descriptor_budget;
use crate::drain::Drain;
use crate::file_reader::FileDoor;
use crate::handover::{change_settings, rehearse};
use crate::health::ServerStatuses;
use crate::log;
use crate::outlets::WorkerOutlets;
use crate::passwords::Verifiers;
use crate::permits::PermitPost;
use crate::randomness::{random_bytes, random_seed};
use crate::resolve::{Addresses, Unresolved};
use crate::slots::NameFacts;
use crate::snapshot::{Numbers, Snapshot};
use crate::start::{Mail, StartError, system};
use crate::state_transfer::PassedServer;
use crate::stats::Registry;
use crate::stop::Leaving;
use crate::threads::{self, Ended};
use crate::unix_listeners::SharedListener;
use crate::worker::{Worker, WorkerLimits};

/// A worker, as other threads see it.
pub(crate) struct WorkerThread {
    pub(crate) handle: thread::JoinHandle<()>,
    pub(crate) sender: Sender<Mail>,
    pub(crate) in_use: InUse,
}

impl WorkerThread {
    /// The parts of the worker that reloads need.
    pub(crate) fn link(&self) -> WorkerLink {
        WorkerLink { sender: self.sender.clone(), in_use: Arc::clone(&self.in_use) }
    }
}

/// The channels between a worker and other threads.
pub(crate) struct Links {
    /// Mail from the main thread and from cold threads.
    pub(crate) mailbox: Mailbox<Mail>,
    /// Permits from and for other workers.
    pub(crate) post: Option<PermitPost>,
    /// Messages about channels from and for other workers.
    pub(crate) push_post: Option<PushPost>,
    /// Mail of Lua applications from and for other workers.
    pub(crate) lua_post: Option<LuaPost>,
    /// The threads that read files for Lua applications.
    pub(crate) file_door: FileDoor,
    /// The threads that verify passwords.
    pub(crate) verifiers: Verifiers,
    /// The number of workers that have not stopped.
    pub(crate) running: Arc<AtomicUsize>,
    /// The removed parts of the configuration that the worker still uses.
    pub(crate) in_use: InUse,
    /// The destination of its records of requests.
    pub(crate) outlets: WorkerOutlets,
    /// The counters of the worker.
    pub(crate) counts: Counts,
    /// By inherited socket: its listener, if the worker takes it.
    pub(crate) inherits: Vec<Option<usize>>,
}

/// The counters of a worker.
pub(crate) struct Counts {
    /// Events.
    pub(crate) accounts: Arc<Accounts>,
    /// Requests by listener, route and server; `None`: they are not counted.
    pub(crate) registry: Option<Arc<Registry>>,
}

/// The settings that every worker is created from.
#[derive(Clone)]
pub(crate) struct Plan {
    pub(crate) arranged: Arc<Arranged>,
    pub(crate) process: ProcessState,
    pub(crate) addresses: Arc<Addresses>,
    /// What is known about the names of servers, for the thread that reloads.
    pub(crate) name_facts: NameFacts,
    /// The names that could not be resolved.
    pub(crate) unresolved: Vec<Unresolved>,
    pub(crate) tls: Arc<TlsPlan>,
    pub(crate) scripts: Scripts,
    pub(crate) workers: u32,
    pub(crate) steer_by_cpu: bool,
    pub(crate) descriptors: u64,
    /// The numbers of the inherited sockets in the table of the main thread.
    pub(crate) inherited: Arc<[RawFd]>,
    /// The numbers of the descriptors there that keep the turn to start.
    pub(crate) turn: Arc<[RawFd]>,
    /// Which servers take requests.
    pub(crate) statuses: Arc<ServerStatuses>,
    /// The states of servers, as an earlier process has passed them.
    pub(crate) earlier_servers: Arc<BTreeMap<(String, String), PassedServer>>,
}

/// Starts one worker and waits until its listeners are open, so that they are opened in CPU order.
pub(crate) fn start_worker(
    index: usize,
    cpu: Option<usize>,
    plan: &Plan,
    waker: Waker,
    links: Links,
    shared: Vec<SharedListener>,
) -> Result<(thread::JoinHandle<()>, Bound), StartError> {
    let plan = plan.clone();
    let (report, reported) = mpsc::sync_channel(1);
    let sockets = (shared, links.inherits);
    let work = move || match prepare(index, cpu, &plan, waker, &links.counts, sockets) {
        Ok(mut prepared) => {
            let bound = core::mem::take(&mut prepared.bound);
            if let Some(post) = links.post {
                prepared.worker.join(post);
            }
            prepared.worker.publish_in_use(links.in_use);
            prepared.worker.passwords.verifiers = Some(links.verifiers);
            prepared.worker.secret = CredentialSecret::new(&random_bytes());
            prepared.worker.seed_lookups(random_seed());
            if let Some(post) = links.push_post {
                prepared.worker.join_hubs(post);
            }
            prepared.worker.read_files_by(links.file_door);
            if let Some(post) = links.lua_post {
                prepared.worker.join_apps(post);
            }
            prepared.worker.record_in(links.outlets);
            links.running.fetch_add(1, Ordering::Relaxed);
            let _ = report.send(Ok(bound));
            serve(&mut prepared, &links.mailbox, index as u16);
            prepared.worker.accounts().has_stopped.store(true, Ordering::Relaxed);
            // Another worker that sees this also sees the mail of this one.
            links.running.fetch_sub(1, Ordering::Release);
            lend_until_all_stopped(&mut prepared, &links.running);
            prepared.worker.deliver_last_lines();
            Ended::AsPlanned
        }
        Err(error) => {
            let _ = report.send(Err(error));
            Ended::AsPlanned
        }
    };
    let handle = threads::spawn(format!("worker-{index}"), work)
        .map_err(system("starting a worker thread"))?;
    match reported.recv() {
        Ok(Ok(bound)) => Ok((handle, bound)),
        Ok(Err(error)) => {
            let _ = handle.join();
            Err(error)
        }
        Err(_) => Err(StartError::Listen(format!("worker {index} ended during its start"))),
    }
}

/// A worker that is ready to serve.
struct Prepared {
    reactor: EpollReactor,
    worker: Worker,
    /// The TLS layer; `None` if nothing uses TLS, and the worker runs on the reactor directly.
    tls: Option<TlsLayer<Arc<Accounts>>>,
    bound: Bound,
}

/// Creates a worker on its own thread: pins it, unshares its descriptor table, opens its listeners.
fn prepare(
    index: usize,
    cpu: Option<usize>,
    plan: &Plan,
    waker: Waker,
    counts: &Counts,
    (shared, inherits): (Vec<SharedListener>, Vec<Option<usize>>),
) -> Result<Prepared, StartError> {
    if let Some(cpu) = cpu {
        thread_setup::pin_to_cpu(cpu).map_err(system("pinning a worker to its CPU"))?;
    }
    thread_setup::unshare_descriptor_table().map_err(system("unsharing the descriptor table"))?;
    counts.accounts.set_thread();
    let taken = inherited::take_copies(&plan.inherited, |at| inherits[at].is_some());
    drop(inherited::take_copies(&plan.turn, |_| false));
    let place = (index, plan.workers as usize);
    let socks_max =
        descriptor_budget::connections_max(&plan.arranged.config, place, plan.descriptors);
    let mut reactor =
        EpollReactor::new(socks_max, waker).map_err(system("creating the event queue"))?;
    let mut snapshot = Snapshot::arranged(
        (*plan.arranged).clone(),
        Arc::clone(&plan.addresses),
        plan.process.clone(),
        &mut Numbers::default(),
    );
    if let Some(registry) = &counts.registry {
        snapshot = snapshot.counted_in(registry, index);
    }
    let limits = WorkerLimits {
        exchanges_max: socks_max,
        workers: plan.workers,
        steer_by_cpu: plan.steer_by_cpu,
    };
    let seed = random_seed();
    let accounts = Arc::clone(&counts.accounts);
    let mut worker =
        Worker::new(Rc::new(snapshot), Arc::clone(&accounts), limits, seed ^ index as u64);
    if counts.registry.is_some() {
        worker.count_requests();
    }
    let loaded = worker.load_apps(&plan.scripts, Meter::Time, index as u32, random_seed());
    loaded.and_then(|()| worker.start_apps(&mut reactor)).map_err(StartError::Values)?;
    worker.apply_server_statuses(&mut reactor, &plan.statuses);
    worker.resume_ejections(index, &plan.earlier_servers, reactor.now());
    let mut adopted = Vec::new();
    for SharedListener { place, address, backlog, socket } in shared {
        let id = reactor
            .adopt_listener(socket, &address, backlog)
            .map_err(system("sharing a unix listener"))?;
        adopted.push((place, id));
    }
    for (place, socket) in inherits.into_iter().flatten().zip(taken) {
        let listener = &plan.arranged.config.listeners[place];
        let address = inherited::address(&socket).map_err(system("reading a socket's address"))?;
        let id = reactor
            .adopt_listener(socket, &address, listener.backlog)
            .map_err(system("listening on an inherited socket"))?;
        adopted.push((place, id));
    }
    worker
        .listen_with_shared(&mut reactor, &adopted)
        .map_err(|error| StartError::Listen(error.to_string()))?;
    let listeners = worker.listeners();
    let mut bound = vec![None; plan.arranged.config.listeners.len()];
    for (id, index) in &listeners {
        bound[usize::from(*index)] = reactor.listener_address(*id);
    }
    let tls = (!plan.tls.is_empty()).then(|| {
        let mut layer = TlsLayer::new(&plan.tls, Vec::new(), accounts);
        layer.set_listeners(listeners);
        layer
    });
    Ok(Prepared { reactor, worker, tls, bound })
}

/// Runs the turns of a worker and handles its mail until it has stopped. The stacks of profiles begin here.
#[inline(never)]
fn serve(prepared: &mut Prepared, mailbox: &Mailbox<Mail>, index: u16) {
    let Prepared { reactor, worker, tls, .. } = prepared;
    while !worker.is_stopped(reactor) {
        match tls {
            None => worker.turn(reactor, Span::from_secs(1)),
            Some(layer) => layer.turn(reactor, worker, Span::from_secs(1)),
        }
        for _ in 0..limits::MAILS_PER_TURN_MAX {
            match (mailbox.take(), tls.as_mut()) {
                (Some(Mail::Stop(grace, leaving, drain)), None) => {
                    worker.leave_to_others(leaving);
                    worker.close_over(drain);
                    worker.stop(reactor, grace);
                }
                (Some(Mail::Stop(grace, leaving, drain)), Some(layer)) => {
                    worker.leave_to_others(leaving);
                    worker.close_over(drain);
                    layer.between_turns(reactor, worker, |worker, view| worker.stop(view, grace));
                }
                (Some(Mail::PassListeners(entrance)), _) => {
                    if let Err(error) = reactor.pass_listeners(entrance, index) {
                        log::error(format_args!(
                            "upgrade: listening sockets not passed on: {error}"
                        ));
                    }
                }
                (Some(Mail::Inspect(inspection)), _) => worker.begin_inspection(inspection),
                (Some(Mail::Tls(plan)), Some(layer)) => {
                    layer.replace_plan(&plan);
                    layer.between_turns(reactor, worker, |worker, view| {
                        worker.end_outdated_connections(view)
                    });
                }
                (Some(Mail::Tls(_)), None) => {}
                (Some(Mail::Prepare(rehearsal)), None) => {
                    rehearse(reactor, worker, &rehearsal);
                }
                (Some(Mail::Prepare(rehearsal)), Some(layer)) => {
                    layer.between_turns(reactor, worker, |worker, view| {
                        rehearse(view, worker, &rehearsal);
                    });
                }
                (Some(Mail::DropPrepared), _) => worker.drop_prepared_apps(),
                (Some(Mail::Settings(handover)), _) => {
                    change_settings(reactor, worker, tls, &handover);
                }
                (Some(Mail::ServerStatuses(statuses)), None) => {
                    worker.apply_server_statuses(reactor, &statuses)
                }
                (Some(Mail::ServerStatuses(statuses)), Some(layer)) => {
                    layer.between_turns(reactor, worker, |worker, view| {
                        worker.apply_server_statuses(view, &statuses);
                    });
                }
                (Some(Mail::Addresses(generation, addresses)), None) => {
                    worker.change_addresses(reactor, generation, &addresses);
                }
                (Some(Mail::Addresses(generation, addresses)), Some(layer)) => {
                    layer.between_turns(reactor, worker, |worker, view| {
                        worker.change_addresses(view, generation, &addresses);
                    });
                }
                (Some(Mail::PasswordResult(verdict)), None) => {
                    worker.receive_password_result(reactor, verdict)
                }
                (Some(Mail::PasswordResult(verdict)), Some(layer)) => {
                    layer.between_turns(reactor, worker, |worker, view| {
                        worker.receive_password_result(view, verdict);
                    });
                }
                (None, _) => break,
            }
        }
        if !mailbox.is_empty() {
            mailbox.ring_again();
        }
    }
    worker.stop_apps(reactor);
}

/// After the worker has stopped, continues to lend its permits and to own its channels for workers that have not, and to send
/// the events about channels that their clients have left.
fn lend_until_all_stopped(prepared: &mut Prepared, running: &AtomicUsize) {
    let Prepared { reactor, worker, tls, .. } = prepared;
    while (worker.lends() || worker.shares_hubs()) && running.load(Ordering::Acquire) > 0
        || worker.has_unsent_events()
    {
        match tls {
            None => worker.turn(reactor, LEND_TURN_MAX),
            Some(layer) => layer.turn(reactor, worker, LEND_TURN_MAX),
        }
    }
}

/// How long a turn of a worker that only lends permits may wait.
const LEND_TURN_MAX: Span = Span::from_millis(10);

/// Tells all workers to stop, and waits until they have ended.
pub(crate) fn stop_all(workers: Vec<WorkerThread>, grace: Span, leaving: &Leaving, drain: Drain) {
    for worker in &workers {
        // A full mailbox has room again after the worker's turn.
        let mail = || Mail::Stop(grace, Arc::clone(leaving), drain);
        while !worker.handle.is_finished() && worker.sender.send(mail()).is_err() {
            thread::sleep(Duration::from_millis(1));
        }
    }
    for worker in workers {
        let _ = worker.handle.join();
    }
}
