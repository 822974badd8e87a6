//! Starts the service from a validated configuration, and stops it on a signal.
//! In: a configuration, options. Out: one pinned worker thread for each CPU, each with its own descriptor
//! table, and listeners opened in CPU order; one line on stderr for each listener.
//! Never: serves with a listener missing: a listener that cannot be opened ends the start.
//! Limits: `WORKERS_MAX` threads.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::RawFd;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use tidegate_base::{Span, limits};
use tidegate_config::arrange::Arranged;
use tidegate_config::findings::Finding;
use tidegate_config::model::{self, Bind, Config};
use tidegate_gate::basic::CredentialSecret;
use tidegate_gate::inventory::Inventory;
use tidegate_gate::permits;
use tidegate_gate::process_state::ProcessState;
use tidegate_reactor::inherited::{self, ListenerPost, ListenerReceiver};
use tidegate_reactor::{
    EpollReactor, Mailbox, Reactor, Sender, Waker, make_wakers, signals, worker as thread_setup,
};
use tidegate_secure::{TlsLayer, TlsPlan};

use crate::action::lua::mail::LuaPost;
use crate::action::push::PushPost;
use crate::admin::{self, Operations};
use crate::apply_settings::InUse;
use crate::apps::{self, Meter, Scripts};
use crate::certificates::TlsLoader;
use crate::configuration::{self, Bound, ConfigSource, Configuration, Listening, WorkerLink};
use crate::counters::Accounts;
use crate::cpus::{steers, worker_cpus};
use crate::drain::{self, Drain};
use crate::events::{self, EventKind};
use crate::handover::{Handover, Rehearsal, change_settings, rehearse};
use crate::health::{Checks, Roster, Standings};
use crate::inheritance::Inheritance;
use crate::inspection::Inspection;
use crate::key_fetcher::KeyFetcher;
use crate::known_names::KnownNames;
use crate::listening_sockets;
use crate::log;
use crate::outlets::{OutletWakers, Outlets, WorkerOutlets};
use crate::passwords::{JobSender, PasswordResult, Verifiers};
use crate::permits::PermitPost;
use crate::ports;
use crate::predecessor::{Heritage, Predecessor};
use crate::randomness::{random_bytes, random_seed};
use crate::reload::{self, Reloader};
use crate::resolve::{self, Addresses};
use crate::service_manager;
use crate::snapshot::{Numbers, Snapshot};
use crate::state_transfer::{PassedServer, StateTransfer};
use crate::stats::Registry;
use crate::stop::Leaving;
use crate::successor::{Knowledge, Successor};
use crate::threads::{self, Ended};
use crate::tokens;
use crate::unix_listeners::{SharedListener, open_unix_listeners, share, unlink_unix_listeners};
use crate::worker::{Worker, WorkerLimits};

/// The options of the command line.
#[derive(Clone, Debug, Default)]
pub struct RunOptions {
    /// `--workers`: the number of worker threads, in place of the configured one.
    pub workers: Option<u16>,
    /// `--takeover`: listen on addresses on which a process of the same user listens already.
    pub takeover: bool,
    /// Lines to print before those of the start. The log's thread prints them, so that a stderr that is not read does
    /// not delay the start.
    pub notes: String,
}

/// Why the service could not start.
#[derive(Debug)]
pub enum StartError {
    /// Certificates, keys, revocation lists or names of servers cannot be used; never empty.
    Values(Vec<Finding>),
    /// A listener could not be opened.
    Listen(String),
    /// Another process listens on these addresses; each text states the address, the process and the fix.
    Taken(Vec<String>),
    /// The access log or the admin interface cannot be opened.
    Open(String),
    /// A system call that the start needs has failed.
    System {
        /// What failed, such as "starting a worker thread".
        what: &'static str,
        /// The kernel's error.
        cause: io::Error,
    },
}

impl core::fmt::Display for StartError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Values(findings) => {
                for (index, Finding { subject, what, .. }) in findings.iter().enumerate() {
                    let lead = if index == 0 { "" } else { "\ntidegate: " };
                    write!(f, "{lead}{subject}: {what}")?;
                }
                Ok(())
            }
            Self::Listen(text) | Self::Open(text) => write!(f, "{text}"),
            Self::Taken(texts) => write!(f, "{}", texts.join("\ntidegate: ")),
            Self::System { what, cause } => write!(f, "{what} failed: {cause}"),
        }
    }
}
impl std::error::Error for StartError {}

/// Messages from other threads to a worker.
#[derive(Clone)]
pub(crate) enum Mail {
    /// Finish the requests in progress, then end. Connections still open after the span are reset.
    Stop(Span, Leaving, Drain),
    /// Use this plan for new TLS sessions.
    Tls(Arc<TlsPlan>),
    /// Prepare the applications of settings that follow.
    Prepare(Arc<Rehearsal>),
    /// Drop these applications: the settings were refused.
    DropPrepared,
    /// Use these settings.
    Settings(Arc<Handover>),
    /// Which servers take requests.
    Standings(Arc<Standings>),
    /// A thread has verified the password of a request.
    PasswordResult(PasswordResult),
    /// Answer a question of the admin interface.
    Inspect(Arc<Inspection>),
    /// Send copies of the listeners for a process that replaces this one.
    PassListeners(ListenerReceiver),
}

struct WorkerThread {
    handle: thread::JoinHandle<()>,
    sender: Sender<Mail>,
    in_use: InUse,
}

/// Keeps a SIGHUP that arrives while the configuration is read for the first time: it becomes a reload after the start.
/// Called before any thread starts.
///
/// # Errors
/// The signal mask cannot be set.
pub fn hold_reloads() -> std::io::Result<()> {
    signals::hold_hang_up()
}

/// Serves `config` until SIGTERM or SIGINT, then finishes the requests in progress.
///
/// # Errors
/// A server's name could not be resolved, or a listener, a TLS file or a system call failed. All threads have
/// ended then.
pub fn run(config: Config, options: RunOptions) -> Result<(), StartError> {
    run_from(None, config, options)
}

/// As [`run`]. On SIGHUP the configuration is read again from `source`.
///
/// # Errors
/// As [`run`].
pub fn run_from(
    source: Option<Box<dyn ConfigSource>>,
    config: Config,
    options: RunOptions,
) -> Result<(), StartError> {
    signals::block().map_err(system("blocking signals"))?;
    log::start().map_err(system("starting the log"))?;
    options.notes.lines().for_each(|line| log::banner(format_args!("{line}")));
    let result = threads::guard_main(|| serve_until_stopped(source, config, options));
    log::flush();
    result
}

fn serve_until_stopped(
    source: Option<Box<dyn ConfigSource>>,
    config: Config,
    options: RunOptions,
) -> Result<(), StartError> {
    let descriptors =
        thread_setup::raise_descriptor_limit().map_err(system("reading RLIMIT_NOFILE"))?;
    let mut loader = TlsLoader::default();
    let seen = reload::Signature::of(&config);
    let inventory = Inventory::of(&config);
    let arranged = Arranged::first(config);
    let loaded = loader.load_arranged(&arranged, reload::unix_seconds());
    let config = &arranged.config;
    let (tls, addresses) = match (loaded, resolve::resolve_all(config)) {
        (Ok(tls), Ok(addresses)) => (tls, addresses),
        (tls, addresses) => {
            let faults = tls.err().unwrap_or_default().into_iter().map(Finding::from);
            let unresolved = addresses.err().unwrap_or_default();
            return Err(StartError::Values(faults.chain(unresolved).collect()));
        }
    };
    let unusable = tokens::check(config);
    if !unusable.is_empty() {
        return Err(StartError::Values(unusable));
    }
    let scripts = apps::read(config).map_err(StartError::Values)?;
    let mut inheritance = Inheritance::take(config);
    let keeps_files = inheritance.is_of_manager();
    ports::refuse_taken_ports(config, options.takeover, &inheritance)?;
    let earlier = earlier_listeners(config, &inheritance);
    let mut predecessor = inheritance.take_predecessor();
    let first_transfer = predecessor.as_mut().map(Predecessor::first).unwrap_or_default();
    let roster = Arc::new(Roster::new(&arranged, Vec::new()));
    roster.inherit_states(&first_transfer);
    roster.inherit_counts(&first_transfer, &StateTransfer::default());
    let unix_listeners = open_unix_listeners(config, &inheritance)?;
    let allowed = thread_setup::allowed_cpus().map_err(system("reading the CPU affinity"))?;
    let cpus = worker_cpus(allowed, config.server.cpus.as_deref())?;
    let count = usize::from(options.workers.or(config.server.workers).unwrap_or(0));
    let count = if count == 0 { cpus.len() } else { count }.clamp(1, limits::WORKERS_MAX);
    let steer_by_cpu = steers(config, &cpus, count);
    let mut plan = Plan {
        process: ProcessState::new(&arranged.config, random_seed()),
        arranged: Arc::new(arranged),
        addresses: Arc::new(addresses),
        tls: Arc::new(tls),
        scripts,
        workers: count as u32,
        steer_by_cpu,
        descriptors,
        inherited: inheritance.numbers().into(),
        standings: Arc::new(roster.standings()),
        earlier_servers: Arc::new(first_transfer.servers.clone()),
    };

    // All wakers are created before the first worker gets its own descriptor table, so that each worker's
    // table holds a copy of every waker's descriptor under the same number.
    let wakers = make_wakers(count).map_err(system("creating the workers' wakers"))?;
    let posts = PermitPost::for_workers(&wakers);
    let listener_post = ListenerPost::new().map_err(system("creating the listener channel"))?;
    let config = &plan.arranged.config;
    let needs_passwords = config.routes.iter().any(|route| route.handling.auth.is_some());
    let entrance = match needs_passwords {
        true => Some(JobSender::open().map_err(system("starting a thread for passwords"))?),
        false => None,
    };
    let push_posts = PushPost::for_workers(config, &wakers);
    let mut outlets = Outlets::open(config).map_err(StartError::Open)?;
    let interface = config.admin.as_ref();
    let open = |admin| admin::Interface::open(admin, options.takeover, inheritance.take_admin());
    let mut interface = interface.map(open).transpose().map_err(StartError::Open)?;
    let admin_socket = interface.as_mut().and_then(admin::Interface::take_doorbell);
    let registry = interface.as_ref().map(|_| Arc::new(Registry::new(count)));
    let accounts: Vec<Arc<Accounts>> = (0..count).map(|_| Arc::default()).collect();
    let running = Arc::new(AtomicUsize::new(0));
    let mut workers: Vec<WorkerThread> = Vec::with_capacity(count);
    let posts = posts.into_iter().zip(push_posts);
    let mut lua_posts = LuaPost::for_workers(config, &wakers).into_iter();
    for ((index, waker), post) in wakers.into_iter().enumerate().zip(posts) {
        let cpu = (count <= cpus.len()).then(|| cpus[index]);
        let mailbox = Mailbox::new(limits::MAILBOX_LENGTH_MAX, waker.clone());
        let sender = mailbox.sender();
        let verifiers = entrance.as_ref().map(|entrance| entrance.for_worker(sender.clone()));
        let running = Arc::clone(&running);
        let in_use = InUse::default();
        let counts = Counts { accounts: Arc::clone(&accounts[index]), registry: registry.clone() };
        let (post, push_post) = post;
        let links = Links {
            mailbox,
            post,
            push_post,
            lua_post: lua_posts.next(),
            verifiers,
            running,
            in_use: Arc::clone(&in_use),
            outlets: outlets.of_worker(),
            counts,
            inherits: inheritance.share_of(index, count),
        };
        let started = share(&unix_listeners)
            .and_then(|shared| start_worker(index, cpu, &plan, waker, links, shared));
        match started {
            Ok((handle, bound)) => {
                workers.push(WorkerThread { handle, sender, in_use });
                // Port 0 has become a real port, which the other workers must share.
                Arc::make_mut(&mut plan.arranged).set_bound(&bound);
            }
            Err(error) => {
                // The paths still belong to the process that was to be replaced.
                if !inheritance.replaces() && !keeps_files {
                    unlink_unix_listeners(&plan.arranged.config);
                }
                stop_all(workers, Span::ZERO, &Leaving::default(), Drain::default());
                return Err(error);
            }
        }
    }
    inheritance.release();
    let outlets =
        outlets.start().map_err(system("starting the threads of the access log and of spans"))?;
    announce(&plan.arranged.config, count);
    roster.connect(workers.iter().map(|worker| worker.sender.clone()).collect());
    let heritage = Heritage { registry: registry.clone(), roster: Arc::clone(&roster) };
    let (opens, opening) = mpsc::channel();
    let opening = predecessor.is_some().then_some(opening);
    let beating = accounts.clone();
    let counts = (registry, accounts, Arc::clone(&roster));
    let shown = (&plan.arranged.config, inventory, plan.process.clone());
    let senders = workers.iter().map(|worker| worker.sender.clone()).collect();
    let parts = (&plan.tls, &*plan.addresses);
    let operations = start_admin(interface, shown, counts, parts, (senders, opening))?;
    let knowledge = Knowledge { operations: operations.clone(), roster: Arc::clone(&roster) };
    let checks = Checks::start(roster, &plan.arranged, &plan.addresses, &plan.tls)
        .map_err(system("starting the thread of the health checks"))?;
    let listening = Arc::new(Mutex::new(Listening {
        config: Arc::clone(&plan.arranged.config),
        lives: plan.arranged.listeners.clone(),
        earlier,
        is_stopping: false,
    }));
    let mut keys = KeyFetcher::default();
    keys.follow(&plan.process.keys).map_err(system("starting the thread that fetches keys"))?;
    let configuration = Configuration {
        keys,
        source,
        arranged: (*plan.arranged).clone(),
        addresses: Arc::clone(&plan.addresses),
        numbers: Numbers::of(&plan.arranged.config),
        process: plan.process.clone(),
        seed: random_seed(),
        verifies_passwords: entrance.is_some(),
        scripts: Arc::clone(&plan.scripts),
        refused: Vec::new(),
        has_lua_post: !plan.arranged.config.lua.is_empty(),
        workers: workers.iter().map(WorkerThread::link).collect(),
        listening: Arc::clone(&listening),
        takeover: options.takeover,
        operations: operations.clone(),
        checks,
    };
    let watching = Reloader::new(configuration, loader, seen).watch();
    let bell = watching.map_err(system("starting the thread that reloads"))?;
    service_manager::start_watchdog(beating).map_err(system("starting the watchdog"))?;
    let senders = workers.iter().map(|worker| worker.sender.clone()).collect();
    let successor = Arc::new(Successor::new(senders, listener_post, admin_socket, knowledge));
    events::note(EventKind::Process, format_args!("started with {count} workers"));
    service_manager::ready();
    if let Some(predecessor) = predecessor {
        heritage.follow(predecessor, first_transfer, opens);
    }
    let rings = (|| bell.ring(), || successor.begin());
    if let Err(error) = wait_for_stop(&outlets, rings) {
        log::error(format_args!("waiting for a signal failed, so the process stops: {error}"));
    }
    let is_replaced = successor.serves();
    if !is_replaced {
        service_manager::stopping();
    }
    events::note(EventKind::Process, format_args!("the process stops"));
    if let Some(operations) = &operations {
        operations.is_stopping.store(true, Ordering::SeqCst);
        operations.reloads.stop();
    }
    // If connections are steered by CPU, the program of the new process already steers the whole group.
    let handover = match (is_replaced, steer_by_cpu && count > 1) {
        (true, _) => Leave::Passed,
        (false, true) => Leave::Closed,
        (false, false) => Leave::Steered,
    };
    if !is_replaced && !keeps_files {
        // Unlink unix sockets first, so that new clients fail fast instead of hanging.
        let config = Arc::clone(&listening.lock().unwrap_or_else(PoisonError::into_inner).config);
        unlink_unix_listeners(&config);
    }
    stop(workers, &listening, handover, unix_listeners, &outlets);
    if is_replaced {
        successor.send_transfer();
    }
    Ok(())
}

/// What happens to the listening sockets of a process that stops.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Leave {
    /// They close.
    Closed,
    /// They close after new connections were steered to those of a process that shares their addresses.
    Steered,
    /// A new process has them.
    Passed,
}

/// Stops the workers in order, and waits until they have ended.
fn stop(
    workers: Vec<WorkerThread>,
    listening: &Mutex<Listening>,
    handover: Leave,
    unix_listeners: Vec<SharedListener>,
    outlets: &OutletWakers,
) {
    // A second signal ends the process without waiting for the grace period.
    let for_second = outlets.clone();
    let second = threads::spawn("signals", move || {
        if wait_for_stop(&for_second, (|| {}, || {})).is_err() {
            return Ended::Failed("waiting for a second signal failed");
        }
        for_second.finish();
        log::flush();
        std::process::exit(1)
    });
    if let Err(error) = second {
        log::error(format_args!("cannot wait for a second signal: {error}"));
    }
    let (config, lives, earlier) = {
        let mut listening = listening.lock().unwrap_or_else(PoisonError::into_inner);
        listening.is_stopping = true;
        let earlier = core::mem::take(&mut listening.earlier);
        (Arc::clone(&listening.config), listening.lives.clone(), earlier)
    };
    drop(unix_listeners);
    let count = workers.len() as u32;
    let leaving = match handover {
        Leave::Steered => listening_sockets::leaving(&config, &lives, count, &earlier),
        Leave::Closed | Leave::Passed => Leaving::default(),
    };
    let grace = config.server.shutdown_grace;
    let times = config.server.drain;
    let drain = match handover {
        Leave::Passed => Drain::over(times.upgrade.min(grace / DRAIN_PARTS), drain::RESTARTS),
        Leave::Closed | Leave::Steered => {
            Drain::over(times.stop.min(grace / DRAIN_PARTS), drain::LEAVES)
        }
    };
    stop_all(workers, grace, &leaving, drain);
    outlets.finish();
}

/// Which part of the grace period a process takes at most to close its WebSocket connections: their clients need the rest.
const DRAIN_PARTS: u32 = 2;

impl WorkerThread {
    fn link(&self) -> WorkerLink {
        WorkerLink { sender: self.sender.clone(), in_use: Arc::clone(&self.in_use) }
    }
}

/// Starts the admin interface, if there is one.
fn start_admin(
    interface: Option<admin::Interface>,
    (config, inventory, process): (&Arc<Config>, Inventory, ProcessState),
    (registry, accounts, roster): (Option<Arc<Registry>>, Vec<Arc<Accounts>>, Arc<Roster>),
    (tls, addresses): (&Arc<TlsPlan>, &Addresses),
    (workers, opening): (Vec<Sender<Mail>>, Option<mpsc::Receiver<()>>),
) -> Result<Option<Arc<Operations>>, StartError> {
    let (Some(interface), Some(registry)) = (interface, registry) else { return Ok(None) };
    let operations = Arc::new(Operations {
        config: Mutex::new(Arc::clone(config)),
        inventory: Mutex::new(inventory),
        process: Mutex::new(process),
        accounts,
        workers,
        tls: Mutex::new(Arc::clone(tls)),
        names: KnownNames::default(),
        is_private: config.admin.as_ref().is_some_and(admin::token::is_private),
        registry,
        roster,
        started: (Instant::now(), SystemTime::now()),
        is_stopping: AtomicBool::new(false),
        places: admin::Places::default(),
        reloads: admin::Reloads::default(),
        profiler: admin::Profiler::default(),
    });
    operations.names.note(config, addresses, &[]);
    log::banner(format_args!("tidegate: admin interface on {}", interface.address()));
    interface
        .start(Arc::clone(&operations), opening)
        .map_err(system("starting the thread of the admin interface"))?;
    Ok(Some(operations))
}

/// What connects a worker with other threads.
struct Links {
    /// Mail from the main thread and from cold threads.
    mailbox: Mailbox<Mail>,
    /// Permits from and for other workers.
    post: Option<PermitPost>,
    /// Messages about channels from and for other workers.
    push_post: Option<PushPost>,
    /// Mail of Lua applications from and for other workers.
    lua_post: Option<LuaPost>,
    /// The threads that verify passwords.
    verifiers: Option<Verifiers>,
    /// The number of workers that have not stopped.
    running: Arc<AtomicUsize>,
    /// What the worker still uses of what was removed from the configuration.
    in_use: InUse,
    /// Where its records of requests go.
    outlets: WorkerOutlets,
    /// What the worker counts in.
    counts: Counts,
    /// By inherited socket: its listener, if the worker takes it.
    inherits: Vec<Option<usize>>,
}

/// What a worker counts in.
struct Counts {
    /// Events.
    accounts: Arc<Accounts>,
    /// Requests by listener, route and server; `None`: they are not counted.
    registry: Option<Arc<Registry>>,
}

/// The settings that every worker is created from.
#[derive(Clone)]
struct Plan {
    arranged: Arc<Arranged>,
    process: ProcessState,
    addresses: Arc<Addresses>,
    tls: Arc<TlsPlan>,
    scripts: Scripts,
    workers: u32,
    steer_by_cpu: bool,
    descriptors: u64,
    /// The numbers of the inherited sockets in the table of the main thread.
    inherited: Arc<[RawFd]>,
    /// Which servers take requests.
    standings: Arc<Standings>,
    /// What an earlier process knew about its servers.
    earlier_servers: Arc<BTreeMap<(String, String), PassedServer>>,
}

/// Starts one worker and waits until its listeners are open, so that they are opened in CPU order.
fn start_worker(
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
            prepared.worker.passwords.verifiers = links.verifiers;
            prepared.worker.secret = CredentialSecret::new(&random_bytes());
            prepared.worker.seed_lookups(random_seed());
            if let Some(post) = links.push_post {
                prepared.worker.join_hubs(post);
            }
            if let Some(post) = links.lua_post {
                prepared.worker.join_apps(post);
            }
            prepared.worker.record_in(links.outlets);
            links.running.fetch_add(1, Ordering::Relaxed);
            let _ = report.send(Ok(bound));
            serve(&mut prepared, &links.mailbox, index as u16);
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
    let socks_max = connections_max(plan, index);
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
    worker.apply_standings(&mut reactor, &plan.standings);
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
                (Some(Mail::Tls(plan)), Some(layer)) => layer.replace_plan(&plan),
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
                (Some(Mail::Standings(standings)), None) => {
                    worker.apply_standings(reactor, &standings)
                }
                (Some(Mail::Standings(standings)), Some(layer)) => {
                    layer.between_turns(reactor, worker, |worker, view| {
                        worker.apply_standings(view, &standings);
                    });
                }
                (Some(Mail::PasswordResult(verdict)), None) => {
                    worker.receive_verdict(reactor, verdict)
                }
                (Some(Mail::PasswordResult(verdict)), Some(layer)) => {
                    layer.between_turns(reactor, worker, |worker, view| {
                        worker.receive_verdict(view, verdict);
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

/// The most connections of a worker: its share of `connections-max`, and no more than its descriptor limit less
/// the descriptors that the worker itself needs.
fn connections_max(plan: &Plan, index: usize) -> usize {
    const OWN_DESCRIPTORS: u64 = 64;
    let own = OWN_DESCRIPTORS + plan.arranged.config.listeners.len() as u64;
    let most = plan.descriptors.saturating_sub(own).max(1);
    let share = |total| permits::share(total, index, plan.workers as usize, 0).max(1);
    let configured =
        plan.arranged.config.server.connections_max.map_or(u64::MAX, |max| share(max).into());
    usize::try_from(most.min(configured)).unwrap_or(usize::MAX)
}

/// By `[[listener]]`: the inodes of the sockets of other processes that listen on its address already.
fn earlier_listeners(config: &Config, inheritance: &Inheritance) -> Vec<Vec<u64>> {
    let earlier = |(place, listener): (usize, &model::Listener)| match inheritance.has(place) {
        true => Vec::new(),
        false => configuration::earlier_on(&listener.bind),
    };
    config.listeners.iter().enumerate().map(earlier).collect()
}

/// Prints one line for each listener.
fn announce(config: &Config, workers: usize) {
    let workers = if workers == 1 { "1 worker".to_owned() } else { format!("{workers} workers") };
    for listener in &config.listeners {
        let place = match &listener.bind {
            Bind::Tcp(address) if listener.forward.is_some() => format!("tcp://{address}"),
            Bind::Tcp(address) => format!("{}://{address}/", listener.scheme()),
            Bind::Unix(path) => format!("unix:{path}"),
        };
        log::banner(format_args!("tidegate: listening on {place} ({}), {workers}", listener.name));
    }
}

/// Waits for SIGTERM or SIGINT. Calls `hang_up` on SIGHUP and `upgrade` on SIGUSR2, and opens the access log again on
/// SIGUSR1.
fn wait_for_stop(
    outlets: &OutletWakers,
    (hang_up, upgrade): (impl Fn(), impl Fn()),
) -> io::Result<()> {
    loop {
        match signals::wait()? {
            signals::Signal::Terminate | signals::Signal::Interrupt => return Ok(()),
            signals::Signal::HangUp => hang_up(),
            signals::Signal::User2 => upgrade(),
            signals::Signal::User1 => outlets.reopen(),
        }
    }
}

/// Tells all workers to stop, and waits until they have ended.
fn stop_all(workers: Vec<WorkerThread>, grace: Span, leaving: &Leaving, drain: Drain) {
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

pub(crate) fn system(what: &'static str) -> impl Fn(io::Error) -> StartError {
    move |cause| StartError::System { what, cause }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use tidegate_config::arrange::Life;

    #[test]
    fn stop_hands_over_only_after_older_processes_have_ended() {
        let older = TcpListener::bind("127.0.0.1:0").expect("loopback has a port");
        let address = older.local_addr().expect("it is bound");
        let text = format!(
            "[[listener]]\nbind = \"{address}\"\n[[listener]]\nbind = \"unix:/run/x\"\n\
             [[route]]\nrespond = {{ status = 204 }}\n"
        );
        let Ok(config) = tidegate_config::parse(&text, "the test") else { panic!("{text}") };
        let earlier = earlier_listeners(&config, &Inheritance::default());
        let leaves = || {
            listening_sockets::leaving(&config, &[Life::default(); 2], 2, &earlier)
                .iter()
                .map(Option::is_some)
                .collect::<Vec<_>>()
        };
        assert_eq!(leaves(), [false, false]);
        drop(older);
        await_free(address);
        let listeners = [(); 3].map(|()| share(address));
        assert_eq!(leaves(), [true, false], "two listeners of this process and a newer one");
        drop(listeners);
        await_free(address);
        let pair = [(); 2].map(|()| share(address));
        assert_eq!(leaves(), [false, false], "no other process listens");
        drop(pair);
    }

    /// Waits until no socket listens on `address`. A child process that another test starts holds copies of the
    /// sockets for a moment.
    fn await_free(address: std::net::SocketAddr) {
        let begin = std::time::Instant::now();
        while !listening_sockets::listeners_on(address).is_empty() {
            assert!(begin.elapsed().as_secs() < 30, "the listener is still open");
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Opens a listener whose address other sockets may share.
    fn share(address: std::net::SocketAddr) -> rustix::fd::OwnedFd {
        use rustix::net::{AddressFamily, SocketType, bind, listen, socket, sockopt};
        let socket = socket(AddressFamily::INET, SocketType::STREAM, None).expect("a socket");
        sockopt::set_socket_reuseport(&socket, true).expect("it may be shared");
        bind(&socket, &address).expect("the address is free");
        listen(&socket, 1).expect("it listens");
        socket
    }
}
