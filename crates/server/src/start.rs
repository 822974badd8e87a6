//! From a checked configuration to a serving process, and to its end by signal.
//! In: a configuration, options. Out: one pinned worker thread a CPU, each with its own descriptor table and
//! listeners opened in CPU order; a line on stderr for each listener.
//! Never: serves with some listeners missing: any refusal ends the start.
//! Limits: `WORKERS_MAX` threads.

use std::io::{self, ErrorKind::AddrInUse};
use std::net::{TcpListener, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use tidegate_base::{Address, Span, limits};
use tidegate_config::model::{self, Bind, Config, ServerAddress, SteerByCpu};
use tidegate_reactor::{
    EpollReactor, LeavingListeners, Mailbox, Reactor, Sender, Waker, interrupts, make_wakers,
    signals, worker as thread_setup,
};
use tidegate_secure::{TlsLayer, TlsPlan};

use crate::certificates::{TlsFault, TlsKeeper};
use crate::counters::Accounts;
use crate::neighbours;
use crate::reload::{self, ReloadBell, Reloader};
use crate::snapshot::Snapshot;
use crate::worker::{Leaving, Worker, WorkerLimits};

/// What the command line may override.
#[derive(Clone, Copy, Debug, Default)]
pub struct RunOptions {
    /// `--workers`: threads, instead of the file's number.
    pub workers: Option<u16>,
}

/// Why serving could not begin.
#[derive(Debug)]
pub enum StartError {
    /// A server's name could not be looked up.
    Name {
        /// The pool it is in.
        pool: String,
        /// The name as written.
        name: String,
        /// What the resolver said.
        cause: io::Error,
    },
    /// A listener could not be opened.
    Listen(String),
    /// Certificates, keys or lists cannot be used.
    Tls(Vec<TlsFault>),
    /// A thread, descriptor or signal could not be had.
    System {
        /// What was wanted.
        what: &'static str,
        /// What the kernel said.
        cause: io::Error,
    },
}

impl core::fmt::Display for StartError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Name { pool, name, cause } => {
                write!(f, "pool {pool}: server {name:?} cannot be looked up: {cause}")
            }
            Self::Listen(text) => write!(f, "{text}"),
            Self::Tls(faults) => {
                for (index, fault) in faults.iter().enumerate() {
                    let lead = if index == 0 { "" } else { "\ntidegate: " };
                    write!(f, "{lead}{fault}")?;
                }
                Ok(())
            }
            Self::System { what, cause } => write!(f, "{what}: {cause}"),
        }
    }
}
impl std::error::Error for StartError {}

/// What other threads tell a worker.
#[derive(Clone, Debug)]
pub(crate) enum Mail {
    /// Finish what is in flight, then end; what is left after the span is reset.
    Stop(Span, Leaving),
    /// Begin TLS sessions by this plan from now on.
    Tls(Arc<TlsPlan>),
}

struct WorkerThread {
    handle: thread::JoinHandle<()>,
    sender: Sender<Mail>,
}

/// Serves `config` until SIGTERM or SIGINT, then finishes what is in flight.
///
/// # Errors
/// When a server's name, a listener or a thread cannot be had; nothing is left running then.
pub fn run(config: Config, options: RunOptions) -> Result<(), StartError> {
    signals::block().map_err(system("blocking signals"))?;
    let descriptors =
        thread_setup::raise_descriptor_limit().map_err(system("reading RLIMIT_NOFILE"))?;
    let mut keeper = TlsKeeper::default();
    let seen = reload::Signature::of(&config);
    let tls = keeper.load(&config, reload::unix_seconds(), true).map_err(StartError::Tls)?;
    let addresses = resolve(&config)?;
    tell_shared_ports(&config);
    let earlier = earlier_listeners(&config);
    let unix_listeners = open_unix_listeners(&config)?;
    let cpus = thread_setup::allowed_cpus().map_err(system("reading the CPU affinity"))?;
    let count = usize::from(options.workers.or(config.server.workers).unwrap_or(0));
    let count = if count == 0 { cpus.len() } else { count }.clamp(1, limits::WORKERS_MAX);
    let steer_by_cpu = steers(&config, &cpus, count);
    let grace = config.server.shutdown_grace;
    let uses_tls = !tls.is_empty();
    let mut plan = Plan {
        config: Arc::new(config),
        addresses: Arc::new(addresses),
        tls: Arc::new(tls),
        workers: count as u32,
        steer_by_cpu,
        descriptors,
    };

    // All wakers exist before the first worker has a descriptor table of its own: each worker's
    // table then holds a copy of every waker's descriptor under the same number.
    let wakers = make_wakers(count).map_err(system("creating the workers' wakers"))?;
    let mut workers: Vec<WorkerThread> = Vec::with_capacity(count);
    for (index, waker) in wakers.into_iter().enumerate() {
        let cpu = (count <= cpus.len()).then(|| cpus[index]);
        let mailbox = Mailbox::new(limits::MAILBOX_LENGTH_MAX, waker.clone());
        let sender = mailbox.sender();
        let started = share(&unix_listeners)
            .and_then(|shared| start_worker(index, cpu, &plan, waker, mailbox, shared));
        match started {
            Ok((handle, bound)) => {
                workers.push(WorkerThread { handle, sender });
                // A port 0 has become a real one, which the other workers must share.
                plan.config = Arc::new(with_addresses(&plan.config, &bound));
            }
            Err(error) => {
                unlink_unix_listeners(&plan.config);
                stop_all(workers, Span::ZERO, &Leaving::default());
                return Err(error);
            }
        }
    }
    announce(&plan.config, count);
    let bell = match uses_tls {
        true => {
            let senders = workers.iter().map(|worker| worker.sender.clone()).collect();
            let reloader = Reloader::new(Arc::clone(&plan.config), keeper, senders, seen);
            let watching = reloader.watch();
            Some(watching.map_err(system("starting the thread that watches certificates"))?)
        }
        false => None,
    };
    wait_for_stop(bell.as_ref());
    // Whoever asks again does not want to wait for the grace.
    thread::spawn(|| {
        wait_for_stop(None);
        std::process::exit(1);
    });
    // Who comes by path from here on must find nobody rather than wait for nobody.
    unlink_unix_listeners(&plan.config);
    drop(unix_listeners);
    // Where connections are steered by CPU the group's program is the new process's by now.
    let leaves = !(plan.steer_by_cpu && count > 1);
    let leaving =
        if leaves { leaving(&plan.config, plan.workers, &earlier) } else { Leaving::default() };
    stop_all(workers, grace, &leaving);
    Ok(())
}

/// What every worker is made from.
#[derive(Clone)]
struct Plan {
    config: Arc<Config>,
    addresses: Arc<Vec<Vec<Vec<Address>>>>,
    tls: Arc<TlsPlan>,
    workers: u32,
    steer_by_cpu: bool,
    descriptors: u64,
}

/// Where a worker's listeners really are, in the configuration's order.
type Bound = Vec<Option<Address>>;

/// Starts one worker and waits until its listeners stand, so that they are opened in CPU order.
fn start_worker(
    index: usize,
    cpu: Option<usize>,
    plan: &Plan,
    waker: Waker,
    mailbox: Mailbox<Mail>,
    shared: Vec<SharedListener>,
) -> Result<(thread::JoinHandle<()>, Bound), StartError> {
    let plan = plan.clone();
    let (report, reported) = mpsc::sync_channel(1);
    let handle = thread::Builder::new()
        .name(format!("worker-{index}"))
        .spawn(move || match prepare(index, cpu, &plan, waker, shared) {
            Ok(mut prepared) => {
                let bound = core::mem::take(&mut prepared.bound);
                let _ = report.send(Ok(bound));
                serve(&mut prepared, &mailbox);
            }
            Err(error) => {
                let _ = report.send(Err(error));
            }
        })
        .map_err(system("starting a worker thread"))?;
    match reported.recv() {
        Ok(Ok(bound)) => Ok((handle, bound)),
        Ok(Err(error)) => {
            let _ = handle.join();
            Err(error)
        }
        Err(_) => Err(StartError::Listen(format!("worker {index} ended while starting"))),
    }
}

/// A worker that is ready to serve.
struct Prepared {
    reactor: EpollReactor,
    worker: Worker,
    /// `None`: nothing is TLS, and the worker runs on the bare reactor.
    tls: Option<TlsLayer<Arc<Accounts>>>,
    bound: Bound,
}

fn prepare(
    index: usize,
    cpu: Option<usize>,
    plan: &Plan,
    waker: Waker,
    shared: Vec<SharedListener>,
) -> Result<Prepared, StartError> {
    if let Some(cpu) = cpu {
        thread_setup::pin_to_cpu(cpu).map_err(system("pinning a worker to its CPU"))?;
    }
    thread_setup::unshare_descriptor_table().map_err(system("unsharing the descriptor table"))?;
    let socks_max = connections_max(plan);
    let mut reactor =
        EpollReactor::new(socks_max, waker).map_err(system("creating the event queue"))?;
    let snapshot = Snapshot::new((*plan.config).clone(), (*plan.addresses).clone());
    let limits = WorkerLimits {
        exchanges_max: socks_max,
        workers: plan.workers,
        steer_by_cpu: plan.steer_by_cpu,
    };
    let seed = random_seed();
    let accounts = Arc::new(Accounts::default());
    let mut worker =
        Worker::new(Rc::new(snapshot), Arc::clone(&accounts), limits, seed ^ index as u64);
    let mut adopted = Vec::new();
    for SharedListener { place, address, backlog, socket } in shared {
        let id = reactor
            .adopt_listener(socket, &address, backlog)
            .map_err(system("sharing a unix listener"))?;
        adopted.push((place, id));
    }
    let listeners = worker
        .listen_beside(&mut reactor, &adopted)
        .map_err(|error| StartError::Listen(error.to_string()))?;
    let bound = listeners.iter().map(|id| reactor.listener_address(*id)).collect();
    let tls = (!plan.tls.is_empty()).then(|| TlsLayer::new(&plan.tls, listeners, accounts));
    Ok(Prepared { reactor, worker, tls, bound })
}

/// `config` with the addresses that its listeners really got.
fn with_addresses(config: &Config, bound: &Bound) -> Config {
    let mut config = config.clone();
    for (listener, address) in config.listeners.iter_mut().zip(bound) {
        if let Some(Address::Tcp(address)) = address {
            listener.bind = Bind::Tcp(*address);
        }
    }
    config
}

fn serve(prepared: &mut Prepared, mailbox: &Mailbox<Mail>) {
    let Prepared { reactor, worker, tls, .. } = prepared;
    while !worker.is_stopped(reactor) {
        match tls {
            None => worker.turn(reactor, Span::from_secs(1)),
            Some(layer) => layer.turn(reactor, worker, Span::from_secs(1)),
        }
        for _ in 0..limits::MAILS_PER_TURN_MAX {
            match (mailbox.take(), tls.as_mut()) {
                (Some(Mail::Stop(grace, leaving)), None) => {
                    worker.leave_to_others(leaving);
                    worker.stop(reactor, grace);
                }
                (Some(Mail::Stop(grace, leaving)), Some(layer)) => {
                    worker.leave_to_others(leaving);
                    layer.between_turns(reactor, worker, |worker, view| worker.stop(view, grace));
                }
                (Some(Mail::Tls(plan)), Some(layer)) => layer.replace_plan(&plan),
                (Some(Mail::Tls(_)), None) => {}
                (None, _) => break,
            }
        }
        if !mailbox.is_empty() {
            mailbox.ring_again();
        }
    }
}

/// Connections a worker may hold: what its descriptor limit leaves after the descriptors it needs itself.
fn connections_max(plan: &Plan) -> usize {
    const OWN_DESCRIPTORS: u64 = 64;
    let own = OWN_DESCRIPTORS + plan.config.listeners.len() as u64;
    let most = plan.descriptors.saturating_sub(own).max(1);
    let asked = plan.config.server.connections_max.map_or(u64::MAX, u64::from);
    usize::try_from(most.min(asked)).unwrap_or(usize::MAX)
}

fn steers(config: &Config, cpus: &[usize], count: usize) -> bool {
    // The program returns a CPU's number modulo the workers: it names the right one only where the
    // workers are exactly the CPUs 0..count.
    let aligned = count == cpus.len() && cpus.iter().enumerate().all(|(at, cpu)| at == *cpu);
    match config.server.steer_by_cpu {
        SteerByCpu::On => true,
        SteerByCpu::Off => false,
        SteerByCpu::Auto => count > 1 && aligned && interrupts::are_spread_over(cpus) == Some(true),
    }
}

fn resolve(config: &Config) -> Result<Vec<Vec<Vec<Address>>>, StartError> {
    let resolve_server = |pool: &str, address: &ServerAddress| match address {
        ServerAddress::Ip(address) => Ok(vec![Address::Tcp(*address)]),
        ServerAddress::Unix(path) => Ok(vec![Address::Unix(path.clone())]),
        ServerAddress::Name(name, port) => {
            let error = |cause| StartError::Name { pool: pool.into(), name: name.clone(), cause };
            let found: Vec<Address> = (name.as_str(), *port)
                .to_socket_addrs()
                .map_err(error)?
                .map(Address::Tcp)
                .collect();
            if found.is_empty() {
                return Err(error(io::Error::other("it has no address")));
            }
            Ok(found)
        }
    };
    config
        .pools
        .iter()
        .map(|pool| pool.servers.iter().map(|s| resolve_server(&pool.name, &s.address)).collect())
        .collect()
}

/// A unix listener, opened once and shared by all workers: SO_REUSEPORT does not work on paths.
struct SharedListener {
    place: usize,
    address: Address,
    backlog: u32,
    socket: OwnedFd,
}

fn open_unix_listeners(config: &Config) -> Result<Vec<SharedListener>, StartError> {
    let mut listeners = Vec::new();
    for (place, listener) in config.listeners.iter().enumerate() {
        let Bind::Unix(path) = &listener.bind else { continue };
        remove_left_behind(path);
        let socket = UnixListener::bind(path).map_err(|cause| {
            StartError::Listen(format!("cannot listen on unix:{path}: {cause}"))
        })?;
        listeners.push(SharedListener {
            place,
            address: Address::Unix(path.clone()),
            backlog: listener.backlog,
            socket: socket.into(),
        });
    }
    Ok(listeners)
}

/// Descriptors of their own for one worker. They are made in this thread's table and copied into the
/// worker's when it unshares; this thread's copies end with the process.
fn share(listeners: &[SharedListener]) -> Result<Vec<SharedListener>, StartError> {
    let copy = |listener: &SharedListener| {
        let socket = listener.socket.try_clone().map_err(system("sharing a unix listener"))?;
        let address = listener.address.clone();
        Ok(SharedListener { place: listener.place, address, backlog: listener.backlog, socket })
    };
    listeners.iter().map(copy).collect()
}

/// A path that an earlier run left behind, on which nobody listens any more, is in the way.
fn remove_left_behind(path: &str) {
    let is_socket = std::fs::symlink_metadata(path).is_ok_and(|meta| meta.file_type().is_socket());
    if is_socket && UnixStream::connect(path).is_err() {
        let _ = std::fs::remove_file(path);
    }
}

fn unlink_unix_listeners(config: &Config) {
    for listener in &config.listeners {
        if let Bind::Unix(path) = &listener.bind {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// SO_REUSEPORT lets a second process of the same user listen on the same port, which is how a new
/// process takes over from an old one. The kernel then deals connections to both, which nobody
/// wants who merely forgot the first: so it is said.
fn tell_shared_ports(config: &Config) {
    for listener in &config.listeners {
        let Bind::Tcp(address) = listener.bind else { continue };
        // A bind that does not offer to share is refused when anybody listens there. Where nobody
        // does, the port is free again before the first client could notice.
        let taken = TcpListener::bind(address).is_err_and(|error| error.kind() == AddrInUse);
        if taken {
            eprintln!(
                "tidegate: {address} is in use by another process; if it is a tidegate of the same user, \
                 both get a share of the connections until one is stopped (SIGTERM)"
            );
        }
    }
}

/// By `[[listener]]`: whose sockets listen there already.
fn earlier_listeners(config: &Config) -> Vec<Vec<u64>> {
    let on = |bind: &Bind| match bind {
        Bind::Tcp(address) => neighbours::listeners_on(*address),
        Bind::Unix(_) => Vec::new(),
    };
    config.listeners.iter().map(|listener| on(&listener.bind)).collect()
}

fn announce(config: &Config, workers: usize) {
    let workers = if workers == 1 { "1 worker".to_owned() } else { format!("{workers} workers") };
    for listener in &config.listeners {
        let place = match &listener.bind {
            Bind::Tcp(address) => format!("{}://{address}/", listener.scheme()),
            Bind::Unix(path) => format!("unix:{path}"),
        };
        eprintln!("tidegate: listening on {place} ({}), {workers}", listener.name);
    }
}

fn wait_for_stop(bell: Option<&ReloadBell>) {
    loop {
        match signals::wait() {
            Ok(signals::Signal::Terminate | signals::Signal::Interrupt) | Err(_) => return,
            Ok(signals::Signal::HangUp) => {
                if let Some(bell) = bell {
                    bell.ring();
                }
            }
            Ok(signals::Signal::User1) => {}
        }
    }
}

/// Which listeners leave new connections to a process that takes over: those on TCP where there is one, and where
/// nobody is left who listened there before this process, for then its listeners are the group's first.
fn leaving(config: &Config, workers: u32, earlier: &[Vec<u64>]) -> Leaving {
    let own = |(listener, earlier): (&model::Listener, &Vec<u64>)| {
        let Bind::Tcp(address) = listener.bind else { return None };
        // Each worker has a listener there. More than those: there are others; fewer: the table is hidden,
        // and there may be.
        let is_alone = neighbours::listeners_on(address).len() == workers as usize;
        let is_first = !neighbours::are_there_still(earlier, address);
        (is_first && !is_alone).then(|| Arc::new(LeavingListeners::new(workers)))
    };
    config.listeners.iter().zip(earlier).map(own).collect()
}

fn stop_all(workers: Vec<WorkerThread>, grace: Span, leaving: &Leaving) {
    for worker in &workers {
        // A mailbox that is full now has room after the worker's turn.
        let mail = || Mail::Stop(grace, Arc::clone(leaving));
        while !worker.handle.is_finished() && worker.sender.send(mail()).is_err() {
            thread::sleep(Duration::from_millis(1));
        }
    }
    for worker in workers {
        let _ = worker.handle.join();
    }
}

/// A seed from the system's randomness: std's hasher keys are drawn from it.
fn random_seed() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    std::collections::hash_map::RandomState::new().build_hasher().finish()
}

fn system(what: &'static str) -> impl Fn(io::Error) -> StartError {
    move |cause| StartError::System { what, cause }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stop_leaves_nothing_to_others_as_long_as_an_older_process_listens() {
        let older = TcpListener::bind("127.0.0.1:0").expect("loopback has a port");
        let address = older.local_addr().expect("it is bound");
        let text = format!(
            "[[listener]]\nbind = \"{address}\"\n[[listener]]\nbind = \"unix:/run/x\"\n\
             [[route]]\nrespond = {{ status = 204 }}\n"
        );
        let Ok(config) = tidegate_config::parse(&text, "the test") else { panic!("{text}") };
        let earlier = earlier_listeners(&config);
        let leaves =
            || leaving(&config, 2, &earlier).iter().map(Option::is_some).collect::<Vec<_>>();
        assert_eq!(leaves(), [false, false]);
        drop(older);
        let listeners = [(); 3].map(|()| share(address));
        assert_eq!(leaves(), [true, false], "two of its own and a newer one");
        drop(listeners);
        let pair = [(); 2].map(|()| share(address));
        assert_eq!(leaves(), [false, false], "it is alone");
        drop(pair);
    }

    /// A listener that others may share the address with.
    fn share(address: std::net::SocketAddr) -> rustix::fd::OwnedFd {
        use rustix::net::{AddressFamily, SocketType, bind, listen, socket, sockopt};
        let socket = socket(AddressFamily::INET, SocketType::STREAM, None).expect("a socket");
        sockopt::set_socket_reuseport(&socket, true).expect("it may be shared");
        bind(&socket, &address).expect("the address is free");
        listen(&socket, 1).expect("it listens");
        socket
    }
}
