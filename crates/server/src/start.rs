//! Starts the service from a validated configuration, and stops it on a signal.
//! In: a configuration, options. Out: one pinned worker thread for each CPU, each with its own descriptor
//! table, and listeners opened in CPU order; one line on stderr for each listener.
//! Never: serves with a listener missing: a listener that cannot be opened ends the start.
//! Limits: `WORKERS_MAX` threads.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::{Instant, SystemTime};

use tidegate_base::{Address, Span, limits};
use tidegate_config::arrange::{Arranged, Generation};
use tidegate_config::findings::Finding;
use tidegate_config::model::{self, Bind, Config};
use tidegate_gate::inventory::Inventory;
use tidegate_gate::process_state::ProcessState;
use tidegate_reactor::inherited::{ListenerPost, ListenerReceiver};
use tidegate_reactor::{Mailbox, Sender, Waker, make_wakers, signals, worker as thread_setup};
use tidegate_secure::TlsPlan;

use crate::action::lua::mail::LuaPost;
use crate::action::push::PushPost;
use crate::admin::{self, LeaveSignal, Operations};
use crate::apply_settings::InUse;
use crate::apps::Scripts;
use crate::certificates::TlsLoader;
use crate::configuration::{self, ConfigSource, Configuration, Listening, ReadConfig};
use crate::counters::Accounts;
use crate::cpus::{steers, worker_cpus};
use crate::descriptor_budget;
use crate::dictionary_files::DictionaryFiles;
use crate::drain::{self, Drain};
use crate::events::{self, EventKind};
use crate::file_reader::FileDoor;
use crate::handover::{Handover, Rehearsal};
use crate::health::{Checks, Roster, ServerStatuses};
use crate::inheritance::Inheritance;
use crate::inspection::Inspection;
use crate::key_fetcher::KeyFetcher;
use crate::known_names::KnownNames;
use crate::listening_sockets;
use crate::live_edits::LiveEdits;
use crate::log;
use crate::memory_watch::MemoryWatch;
use crate::name_follower::NameFollower;
use crate::name_servers;
use crate::outlets::{OutletWakers, Outlets};
use crate::passwords::{JobSender, PasswordResult, VerifierThreads};
use crate::permits::PermitPost;
use crate::ports::{self, StartTurn};
use crate::predecessor::{self, Heritage, Predecessor};
use crate::randomness::random_seed;
use crate::reload::{self, ReloadSignal, Reloader};
use crate::resolve::{self, Addresses, Found, Lookups, Resolution, Unresolved};
use crate::scripts;
use crate::service_manager;
use crate::slots::{NameFacts, SlotAddresses};
use crate::snapshot::Numbers;
use crate::staged_certificates::StagedCertificates;
pub use crate::start_error::StartError;
use crate::state_transfer::StateTransfer;
use crate::stats::Registry;
use crate::stop::Leaving;
use crate::successor::{Successor, TransferSource};
use crate::threads::{self, Ended};
use crate::tokens;
use crate::unix_listeners::{SharedListener, open_unix_listeners, share, unlink_unix_listeners};
use crate::worker_thread::{Counts, Links, Plan, WorkerThread, start_worker, stop_all};

/// The options of the command line.
#[derive(Clone, Debug, Default)]
pub struct RunOptions {
    /// `--workers`: the number of worker threads, in place of the configured one.
    pub workers: Option<u16>,
    /// `--takeover`: listen on addresses on which a process of the same user listens already.
    pub takeover: bool,
    /// Lines to print before those of the start. The thread of the log prints them, so that the start does not wait for a
    /// reader of stderr.
    pub notes: String,
}

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
    ServerStatuses(Arc<ServerStatuses>),
    /// The addresses of servers, for the settings of this generation.
    Addresses(Generation, Arc<Addresses>),
    /// A thread has verified the password of a request.
    PasswordResult(PasswordResult),
    /// Answer a question of the admin interface.
    Inspect(Arc<Inspection>),
    /// Send copies of the listeners for a process that replaces this one.
    PassListeners(ListenerReceiver),
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
    let read = ReadConfig::new(Arc::clone(&arranged.config));
    let files = Files::read(&mut loader, &arranged)?;
    name_servers::warn_of_unusable(&arranged.config);
    let mut inherited = InheritedParts::take(&arranged, options.takeover)?;
    let unix_listeners = open_unix_listeners(&arranged.config, &inherited.inheritance)?;
    let (mut plan, cpus) = make_plan((arranged, files), &inherited, options.workers, descriptors)?;
    let running =
        RunningWorkers::start(&mut plan, &cpus, &mut inherited, &unix_listeners, options.takeover)?;
    let reading = Reading { source, read, loader, seen, takeover: options.takeover };
    let service = running.begin_service(plan, inherited, reading, inventory)?;
    service.run_until_stopped(unix_listeners);
    Ok(())
}

/// The contents of the files, and the addresses of the names, of a configuration.
struct Files {
    tls: TlsPlan,
    /// The addresses of the names.
    found: Found,
    names: Resolution,
    scripts: Scripts,
}

impl Files {
    fn read(loader: &mut TlsLoader, arranged: &Arranged) -> Result<Self, StartError> {
        let loaded = loader.load_arranged(arranged, reload::unix_seconds());
        let config = &arranged.config;
        let found = resolve::find_all(arranged);
        let resolved = resolve::resolve_first(arranged, &found, &SlotAddresses::new());
        let (tls, names) = match (loaded, resolved) {
            (Ok(tls), Ok(names)) => (tls, names),
            (tls, names) => {
                let faults = tls.err().unwrap_or_default().into_iter().map(Finding::from);
                let unresolved = names.err().unwrap_or_default();
                return Err(StartError::Values(faults.chain(unresolved).collect()));
            }
        };
        let unusable = tokens::check(config);
        if !unusable.is_empty() {
            return Err(StartError::Values(unusable));
        }
        let scripts = scripts::read_with_dictionaries(config).map_err(StartError::Values)?;
        names.unresolved.iter().for_each(|name| log::warning(format_args!("{name}")));
        Ok(Self { tls, found, names, scripts })
    }

    /// Gives slots the addresses that they had in the process that is replaced, if the names still have these.
    fn keep_slots(&mut self, arranged: &Arranged, slots: &SlotAddresses) {
        if !slots.is_empty()
            && let Ok(names) = resolve::resolve_first(arranged, &self.found, slots)
        {
            self.names = names;
        }
    }
}

/// The sockets and states that the process takes over from the service manager and from the process that it replaces.
struct InheritedParts {
    inheritance: Inheritance,
    /// The files of unix sockets belong to the service manager.
    keeps_files: bool,
    /// The addresses whose sockets the service manager has, too.
    managed: Vec<Address>,
    /// By `[[listener]]`: the inodes of the sockets of older processes on its address.
    earlier: Vec<Vec<u64>>,
    /// The process that is replaced.
    predecessor: Option<Predecessor>,
    /// The statistics and server states that the predecessor passed at the start; empty without a predecessor.
    first_transfer: StateTransfer,
    /// The servers, with the states that the predecessor passed.
    roster: Arc<Roster>,
    /// Held until the workers listen.
    turn: StartTurn,
}

impl InheritedParts {
    fn take(arranged: &Arranged, takeover: bool) -> Result<Self, StartError> {
        let config = &arranged.config;
        let mut inheritance = Inheritance::take(config);
        let (keeps_files, managed) = (inheritance.is_of_manager(), inheritance.managed());
        let turn = if takeover { StartTurn::default() } else { StartTurn::take(config) };
        ports::refuse_taken_ports(config, takeover, &inheritance)?;
        let earlier = earlier_listeners(config, &inheritance);
        let mut predecessor = inheritance.take_predecessor();
        let first_transfer = predecessor.as_mut().map(Predecessor::first).unwrap_or_default();
        let roster = Arc::new(Roster::new(arranged, Vec::new()));
        roster.inherit_states(&first_transfer);
        roster.inherit_counts(&first_transfer, &StateTransfer::default());
        Ok(Self {
            inheritance,
            keeps_files,
            managed,
            earlier,
            predecessor,
            first_transfer,
            roster,
            turn,
        })
    }
}

/// Makes the plan of the workers. Also returns the CPUs that they may use.
fn make_plan(
    (arranged, mut files): (Arranged, Files),
    inherited: &InheritedParts,
    workers: Option<u16>,
    descriptors: u64,
) -> Result<(Plan, Vec<usize>), StartError> {
    let config = &arranged.config;
    let allowed = thread_setup::allowed_cpus().map_err(system("reading the CPU affinity"))?;
    let cpus = worker_cpus(allowed, config.server.cpus.as_deref())?;
    let count = usize::from(workers.or(config.server.workers).unwrap_or(0));
    let count = if count == 0 { cpus.len() } else { count }.clamp(1, limits::WORKERS_MAX);
    let steer_by_cpu = steers(config, &cpus, count);
    if let Some(warning) = descriptor_budget::warning(config, count, descriptors) {
        log::warning(format_args!("{warning}"));
    }
    files.keep_slots(&arranged, &inherited.first_transfer.slots());
    let Resolution { addresses, marks, unresolved } = files.names;
    let name_facts = NameFacts { marks, lost: BTreeSet::new() };
    inherited.roster.note_names(&name_facts.states(&arranged, &addresses));
    let process = ProcessState::new(config, random_seed());
    process.switches.resume(&inherited.first_transfer.switches);
    let plan = Plan {
        name_facts,
        unresolved,
        process,
        arranged: Arc::new(arranged),
        addresses: Arc::new(addresses),
        tls: Arc::new(files.tls),
        scripts: files.scripts,
        workers: count as u32,
        steer_by_cpu,
        descriptors,
        inherited: inherited.inheritance.numbers().into(),
        turn: inherited.turn.numbers().into(),
        statuses: Arc::new(inherited.roster.statuses()),
        earlier_servers: Arc::new(
            inherited.first_transfer.servers_as_in(&inherited.roster.passed()),
        ),
    };
    Ok((plan, cpus))
}

/// The workers, and the state that they share with the other threads.
struct RunningWorkers {
    workers: Vec<WorkerThread>,
    /// By worker: its counters.
    accounts: Vec<Arc<Accounts>>,
    /// The statistics of listeners, routes and servers; `None` without an admin interface: requests are not counted.
    registry: Option<Arc<Registry>>,
    interface: Option<admin::Interface>,
    admin_socket: Option<(OwnedFd, LeaveSignal)>,
    outlets: OutletWakers,
    listener_post: ListenerPost,
    /// The threads that verify passwords.
    passwords: VerifierThreads,
}

impl RunningWorkers {
    /// Starts the workers. They serve when this returns.
    fn start(
        plan: &mut Plan,
        cpus: &[usize],
        inherited: &mut InheritedParts,
        unix_listeners: &[SharedListener],
        takeover: bool,
    ) -> Result<Self, StartError> {
        let count = plan.workers as usize;
        // All wakers are created before the first worker gets its own descriptor table, so that each worker's
        // table holds a copy of every waker's descriptor under the same number.
        let wakers = make_wakers(count).map_err(system("creating the workers' wakers"))?;
        let listener_post = ListenerPost::new().map_err(system("creating the listener channel"))?;
        let config = &plan.arranged.config;
        let open = |settings| {
            admin::Interface::open(settings, takeover, inherited.inheritance.take_admin())
        };
        let outlets = Outlets::open(config).map_err(StartError::Open)?;
        let mut interface =
            config.admin.as_ref().map(open).transpose().map_err(StartError::Open)?;
        let admin_socket = interface.as_mut().and_then(admin::Interface::share_socket);
        let registry = interface.as_ref().map(|_| Arc::new(Registry::new(count)));
        let mut equipment = WorkerSupplies::new(config, &wakers, outlets, registry.clone())?;
        let workers = start_workers(plan, cpus, wakers, &mut equipment, inherited, unix_listeners)?;
        inherited.inheritance.release();
        let WorkerSupplies { outlets, accounts, passwords, .. } = equipment;
        let outlets = outlets
            .start()
            .map_err(system("starting the threads of the access log and of spans"))?;
        announce(&plan.arranged.config, count);
        inherited.roster.connect(workers.iter().map(|worker| worker.sender.clone()).collect());
        Ok(Self {
            workers,
            accounts,
            registry,
            interface,
            admin_socket,
            outlets,
            listener_post,
            passwords,
        })
    }

    /// Starts the threads other than the workers, and reports that the process serves.
    fn begin_service(
        self,
        plan: Plan,
        inherited: InheritedParts,
        reading: Reading,
        inventory: Inventory,
    ) -> Result<Service, StartError> {
        let senders = || self.workers.iter().map(|worker| worker.sender.clone()).collect();
        let InheritedParts {
            roster,
            predecessor,
            first_transfer,
            keeps_files,
            earlier,
            managed,
            inheritance: _,
            turn: _turn,
        } = inherited;
        let switches = plan.process.switches.clone();
        let heritage =
            Heritage { registry: self.registry.clone(), roster: Arc::clone(&roster), switches };
        let (opens, opening) = mpsc::channel();
        let opening = predecessor.is_some().then_some(opening);
        let beating = self.accounts.clone();
        let counts = (self.registry.clone(), self.accounts.clone(), Arc::clone(&roster));
        let shown = (&*plan.arranged, inventory, plan.process.clone());
        let parts = (&plan.tls, (&*plan.addresses, &plan.unresolved[..]));
        let operations = start_admin(self.interface, shown, counts, parts, (senders(), opening))?;
        let dictionaries = Arc::<DictionaryFiles>::default();
        dictionaries
            .follow(&plan.arranged.config, &plan.scripts)
            .map_err(system("starting the thread that writes dictionaries"))?;
        let transfer_source = TransferSource {
            operations: operations.clone(),
            roster: Arc::clone(&roster),
            dictionaries: Arc::clone(&dictionaries),
        };
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
        let mut memory = MemoryWatch::default();
        memory
            .follow(&plan.process.memory)
            .map_err(system("starting the thread that measures memory"))?;
        let Reading { source, read, loader, seen, takeover } = reading;
        let configuration = Configuration {
            keys,
            memory,
            source,
            read,
            arranged: (*plan.arranged).clone(),
            addresses: Arc::clone(&plan.addresses),
            numbers: Numbers::of(&plan.arranged.config),
            process: plan.process.clone(),
            seed: random_seed(),
            passwords: self.passwords,
            scripts: Arc::clone(&plan.scripts),
            dictionaries: Arc::clone(&dictionaries),
            refused: Vec::new(),
            has_lua_post: !plan.arranged.config.lua.is_empty(),
            workers: self.workers.iter().map(WorkerThread::link).collect(),
            listening: Arc::clone(&listening),
            takeover,
            operations: operations.clone(),
            checks,
            lookups: Lookups::default(),
            names: NameFollower::default(),
            name_facts: plan.name_facts.clone(),
            unplaced: BTreeMap::new(),
            managed: managed.clone(),
        };
        let watching = Reloader::new(configuration, loader, seen).watch();
        let reload = watching.map_err(system("starting the thread that reloads"))?;
        service_manager::start_watchdog(beating).map_err(system("starting the watchdog"))?;
        let successor = Successor::new(
            senders(),
            self.listener_post,
            self.admin_socket,
            transfer_source,
            managed,
        );
        let count = self.workers.len();
        events::note(EventKind::Process, format_args!("started; workers: {count}"));
        service_manager::ready();
        let earlier_ends =
            predecessor.map(|predecessor| heritage.follow(predecessor, first_transfer, opens));
        Ok(Service {
            earlier_ends,
            is_steered: plan.steer_by_cpu && count > 1,
            workers: self.workers,
            outlets: self.outlets,
            dictionaries,
            reload,
            successor: Arc::new(successor),
            operations,
            listening,
            keeps_files,
        })
    }
}

/// The data that a reload needs to read the configuration again.
struct Reading {
    source: Option<Box<dyn ConfigSource>>,
    read: ReadConfig,
    loader: TlsLoader,
    seen: reload::Signature,
    takeover: bool,
}

/// A process that serves.
struct Service {
    /// Ends with the process that this one has replaced; `None`: it has replaced none.
    earlier_ends: Option<mpsc::Receiver<()>>,
    workers: Vec<WorkerThread>,
    outlets: OutletWakers,
    dictionaries: Arc<DictionaryFiles>,
    reload: ReloadSignal,
    successor: Arc<Successor>,
    operations: Option<Arc<Operations>>,
    listening: Arc<Mutex<Listening>>,
    /// Connections are steered to the worker of a CPU.
    is_steered: bool,
    /// The files of unix sockets belong to the service manager.
    keeps_files: bool,
}

impl Service {
    /// Waits for a signal that stops the process, and stops the process.
    fn run_until_stopped(self, unix_listeners: Vec<SharedListener>) {
        let notifiers = (|| self.reload.notify(), || self.successor.begin());
        if let Err(error) = wait_for_stop(&self.outlets, notifiers) {
            log::error(format_args!("waiting for a signal failed, so the process stops: {error}"));
        }
        let is_replaced = self.successor.stop();
        if !is_replaced {
            service_manager::stopping();
        }
        events::note(EventKind::Process, format_args!("the process stops"));
        if let Some(operations) = &self.operations {
            operations.is_stopping.store(true, Ordering::SeqCst);
            operations.reloads.stop();
        }
        // If connections are steered by CPU, the BPF program of the process that took over already steers the whole SO_REUSEPORT
        // group.
        let handover = match (is_replaced, self.is_steered) {
            (true, _) => ListenerFate::Passed,
            (false, true) => ListenerFate::Closed,
            (false, false) => ListenerFate::Steered,
        };
        if !is_replaced && !self.keeps_files {
            // Unlink unix sockets first, so that new clients fail fast instead of hanging.
            let listening = self.listening.lock().unwrap_or_else(PoisonError::into_inner);
            let config = Arc::clone(&listening.config);
            drop(listening);
            unlink_unix_listeners(&config);
        }
        let grace_ends =
            stop(self.workers, &self.listening, handover, unix_listeners, &self.outlets);
        self.dictionaries.save();
        if is_replaced {
            // Only this process knows the way of its results to the new one.
            predecessor::wait_for_end(self.earlier_ends.as_ref(), grace_ends);
            self.successor.send_transfer();
        }
        if let Some(operations) = &self.operations {
            operations.places.wait_for_replies(is_replaced);
        }
    }
}

/// The data that each worker receives when it starts.
struct WorkerSupplies {
    /// By worker: its mailbox for permits, and the senders to the mailboxes of the other workers.
    posts: std::vec::IntoIter<Option<PermitPost>>,
    push_posts: std::vec::IntoIter<Option<PushPost>>,
    lua_posts: std::vec::IntoIter<LuaPost>,
    file_doors: std::vec::IntoIter<FileDoor>,
    accounts: Vec<Arc<Accounts>>,
    /// The queue of passwords to verify, shared by all workers.
    verifiers: JobSender,
    /// Its threads.
    passwords: VerifierThreads,
    outlets: Outlets,
    registry: Option<Arc<Registry>>,
    running: Arc<AtomicUsize>,
}

impl WorkerSupplies {
    fn new(
        config: &Config,
        wakers: &[Waker],
        outlets: Outlets,
        registry: Option<Arc<Registry>>,
    ) -> Result<Self, StartError> {
        let verifiers = JobSender::new();
        let mut passwords = verifiers.threads();
        passwords.follow(config).map_err(system("starting a thread for passwords"))?;
        Ok(Self {
            posts: PermitPost::for_workers(wakers).into_iter(),
            push_posts: PushPost::for_workers(config, wakers).into_iter(),
            lua_posts: LuaPost::for_workers(config, wakers).into_iter(),
            file_doors: FileDoor::for_workers(config, wakers)
                .map_err(system("starting a thread for files"))?
                .into_iter(),
            accounts: wakers.iter().map(|_| Arc::default()).collect(),
            verifiers,
            passwords,
            outlets,
            registry,
            running: Arc::default(),
        })
    }

    /// The channels between the next worker and other threads.
    fn links(
        &mut self,
        index: usize,
        mailbox: Mailbox<Mail>,
        inherits: Vec<Option<usize>>,
    ) -> Links {
        let accounts = Arc::clone(&self.accounts[index]);
        let own = mailbox.sender();
        Links {
            mailbox,
            post: self.posts.next().flatten(),
            push_post: self.push_posts.next().flatten(),
            lua_post: self.lua_posts.next(),
            file_door: self.file_doors.next().unwrap_or(FileDoor::Closed),
            verifiers: self.verifiers.for_worker(own),
            running: Arc::clone(&self.running),
            in_use: InUse::default(),
            outlets: self.outlets.of_worker(),
            counts: Counts { accounts, registry: self.registry.clone() },
            inherits,
        }
    }
}

/// Starts the workers in the order of their CPUs. If a worker cannot start, the workers that have started are stopped.
fn start_workers(
    plan: &mut Plan,
    cpus: &[usize],
    wakers: Vec<Waker>,
    equipment: &mut WorkerSupplies,
    inherited: &InheritedParts,
    unix_listeners: &[SharedListener],
) -> Result<Vec<WorkerThread>, StartError> {
    let count = wakers.len();
    let mut workers: Vec<WorkerThread> = Vec::with_capacity(count);
    for (index, waker) in wakers.into_iter().enumerate() {
        let cpu = (count <= cpus.len()).then(|| cpus[index]);
        let mailbox = Mailbox::new(limits::MAILBOX_LENGTH_MAX, waker.clone());
        let sender = mailbox.sender();
        let links = equipment.links(index, mailbox, inherited.inheritance.share_of(index, count));
        let in_use = Arc::clone(&links.in_use);
        let started = share(unix_listeners)
            .and_then(|shared| start_worker(index, cpu, plan, waker, links, shared));
        match started {
            Ok((handle, bound)) => {
                workers.push(WorkerThread { handle, sender, in_use });
                // Port 0 has become a real port, which the other workers must share.
                Arc::make_mut(&mut plan.arranged).set_bound(&bound);
            }
            Err(error) => {
                // The paths still belong to the process that was to be replaced.
                if !inherited.inheritance.replaces() && !inherited.keeps_files {
                    unlink_unix_listeners(&plan.arranged.config);
                }
                stop_all(workers, Span::ZERO, &Leaving::default(), Drain::default());
                return Err(error);
            }
        }
    }
    Ok(workers)
}

/// The treatment of the listening sockets of a process that stops.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ListenerFate {
    /// The sockets close.
    Closed,
    /// The sockets close after new connections are steered to the sockets of another process that shares their addresses.
    Steered,
    /// A new process has copies of the sockets.
    Passed,
}

/// Stops the workers in order, and waits until they have ended. Returns when the grace period ends.
fn stop(
    workers: Vec<WorkerThread>,
    listening: &Mutex<Listening>,
    handover: ListenerFate,
    unix_listeners: Vec<SharedListener>,
    outlets: &OutletWakers,
) -> Instant {
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
        ListenerFate::Steered => listening_sockets::leaving(&config, &lives, count, &earlier),
        ListenerFate::Closed | ListenerFate::Passed => Leaving::default(),
    };
    let grace = config.server.shutdown_grace;
    let times = config.server.drain;
    let drain = match handover {
        ListenerFate::Passed => {
            Drain::over(times.upgrade.min(grace / DRAIN_PARTS), drain::RESTARTS)
        }
        ListenerFate::Closed | ListenerFate::Steered => {
            Drain::over(times.stop.min(grace / DRAIN_PARTS), drain::LEAVES)
        }
    };
    let grace_ends = Instant::now() + grace;
    stop_all(workers, grace, &leaving, drain);
    outlets.finish();
    grace_ends
}

/// The grace period divided by this number is the most time in which a stopping process closes its WebSocket connections.
/// Their clients need the rest of the grace period.
const DRAIN_PARTS: u32 = 2;

/// Starts the admin interface, if there is one.
fn start_admin(
    interface: Option<admin::Interface>,
    (arranged, inventory, process): (&Arranged, Inventory, ProcessState),
    (registry, accounts, roster): (Option<Arc<Registry>>, Vec<Arc<Accounts>>, Arc<Roster>),
    (tls, (addresses, unresolved)): (&Arc<TlsPlan>, (&Addresses, &[Unresolved])),
    (workers, opening): (Vec<Sender<Mail>>, Option<mpsc::Receiver<()>>),
) -> Result<Option<Arc<Operations>>, StartError> {
    let (Some(interface), Some(registry)) = (interface, registry) else { return Ok(None) };
    let config = &arranged.config;
    let operations = Arc::new(Operations {
        config: Mutex::new(Arc::clone(config)),
        inventory: Mutex::new(inventory),
        process: Mutex::new(process),
        accounts,
        workers,
        tls: Mutex::new(Arc::clone(tls)),
        names: Arc::new(KnownNames::default()),
        is_private: config.admin.as_ref().is_some_and(admin::token::is_private),
        registry,
        roster,
        started: (Instant::now(), SystemTime::now()),
        is_stopping: AtomicBool::new(false),
        places: admin::Places::default(),
        reloads: admin::Reloads::default(),
        upgrades: admin::Reloads::default(),
        edits: LiveEdits::default(),
        staged: StagedCertificates::default(),
        profiler: admin::Profiler::default(),
        process_rates: admin::Rates::default(),
        rates: admin::Rates::default(),
    });
    operations.names.note(arranged, addresses, unresolved);
    operations.edits.note_names(arranged);
    log::banner(format_args!("tidegate: admin interface on {}", interface.address()));
    interface
        .start(Arc::clone(&operations), opening)
        .map_err(system("starting the thread of the admin interface"))?;
    Ok(Some(operations))
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
            signals::Signal::HangUp | signals::Signal::Reload => hang_up(),
            signals::Signal::User2 => upgrade(),
            signals::Signal::User1 => outlets.reopen(),
        }
    }
}

pub(crate) fn system(what: &'static str) -> impl Fn(io::Error) -> StartError {
    move |cause| StartError::System { what, cause }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::thread;
    use std::time::Duration;
    use tidegate_config::arrange::Life;

    #[test]
    fn stop_hands_over_only_after_older_processes_have_ended() {
        let older = TcpListener::bind("127.0.0.1:0").expect("loopback has a port");
        let address = older.local_addr().expect("the listener is bound");
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
        sockopt::set_socket_reuseport(&socket, true).expect("the address may be shared");
        bind(&socket, &address).expect("the address is free");
        listen(&socket, 1).expect("the socket listens");
        socket
    }
}
