//! A worker ready for a test: on a reactor, listening, with its counters within reach.
//! In: a configuration, a reactor. Out: turns; what the worker still holds when nothing is connected.

use std::rc::Rc;
use std::sync::Arc;

use tidegate_base::{Address, Span};
use tidegate_config::model::{
    AccessFilter, AccessFormat, AccessLog, AccessTarget, CaptureNames, Config, SAMPLE_ALL,
    ServerAddress,
};
use tidegate_reactor::kernel::Kernel;
use tidegate_reactor::{ListenerId, Loop, Mailbox, Reactor, SimNet, SimReactor};
use tidegate_secure::{TlsLayer, TlsPlan};
use tidegate_server::access_log::{LineSender, SharedBatch};
use tidegate_server::apply_settings::{ChangeError, InUse};
use tidegate_server::apps::{self, Meter, Scripts};
use tidegate_server::counters::{Accounts, HandlerKind};
use tidegate_server::permits::{PermitMail, PermitPost};
use tidegate_server::stats::Registry;
use tidegate_server::{
    Leftovers, LuaPost, PushMail, PushPost, Snapshot, Worker, WorkerLimits, no_bytes_in_flight,
};

/// The budget of a callback: the same in every run.
const CALLBACK_INSTRUCTIONS: u64 = 200_000;

/// A worker, its reactor and, optionally, its TLS layer.
pub struct Harness<R> {
    pub worker: Worker,
    pub reactor: R,
    pub accounts: Arc<Accounts>,
    /// The counters of listeners, routes and servers, if the worker counts them.
    pub registry: Registry,
    /// The TLS layer, if the plan has any TLS.
    layer: Option<TlsLayer<Arc<Accounts>>>,
    /// The worker's listeners, in the order of the configuration.
    listeners: Vec<ListenerId>,
    /// The addresses that the listeners are bound to.
    pub bound: Vec<Address>,
    /// The removed parts of the configuration that the worker uses.
    pub in_use: InUse,
    /// The lines of the access log, if the worker records its requests.
    pub log: Option<Arc<SharedBatch>>,
}

impl Harness<SimReactor> {
    /// A worker on a simulated network. It records its requests.
    pub fn simulated(net: &SimNet, config: &Config, socks_max: usize, seed: u64) -> Self {
        Self::new(SimReactor::new(net, socks_max), config, socks_max, seed).recording()
    }

    /// The workers of a process with Lua applications on a simulated network.
    pub fn process(net: &SimNet, config: &Config, workers: u32, socks_max: usize) -> Vec<Self> {
        let scripts = apps::read(config).unwrap_or_else(|what| panic!("{what:?}"));
        let worker = |own| {
            let reactor = SimReactor::new(net, socks_max);
            Self::placed(reactor, config, &scripts, (own, workers), socks_max, u64::from(own))
        };
        let mut harnesses: Vec<Self> = (0..workers).map(worker).collect();
        let wakers: Vec<_> = harnesses.iter().map(|harness| harness.reactor.waker()).collect();
        for (post, harness) in LuaPost::for_workers(config, &wakers).into_iter().zip(&mut harnesses)
        {
            harness.worker.join_apps(post);
        }
        harnesses
    }
}

impl<K: Kernel> Harness<Loop<K>> {
    /// A worker on `reactor`, listening.
    pub fn new(reactor: Loop<K>, config: &Config, socks_max: usize, seed: u64) -> Self {
        let scripts = apps::read(config).unwrap_or_else(|what| panic!("{what:?}"));
        Self::placed(reactor, config, &scripts, (0, 1), socks_max, seed)
    }

    /// Worker `own` of `workers`.
    fn placed(
        mut reactor: Loop<K>,
        config: &Config,
        scripts: &Scripts,
        (own, workers): (u32, u32),
        socks_max: usize,
        seed: u64,
    ) -> Self {
        let accounts = Arc::new(Accounts::default());
        let registry = Registry::new(1);
        let snapshot = Snapshot::new(config.clone(), addresses(config)).counted_in(&registry, 0);
        let snapshot = Rc::new(snapshot);
        let limits = WorkerLimits { exchanges_max: socks_max, workers, steer_by_cpu: false };
        let mut worker = Worker::new(snapshot, Arc::clone(&accounts), limits, seed);
        let meter = Meter::Instructions(CALLBACK_INSTRUCTIONS);
        let loaded = worker.load_apps(scripts, meter, own, seed);
        let started = loaded.and_then(|()| worker.start_apps(&mut reactor));
        started.unwrap_or_else(|what| panic!("{what:?}"));
        let listeners = match worker.listen(&mut reactor) {
            Ok(listeners) => listeners,
            Err(error) => panic!("{error}"),
        };
        let bound = listeners.iter().filter_map(|id| reactor.listener_address(*id)).collect();
        let in_use = InUse::default();
        worker.publish_in_use(Arc::clone(&in_use));
        Self {
            worker,
            reactor,
            accounts,
            registry,
            layer: None,
            listeners,
            bound,
            in_use,
            log: None,
        }
    }

    /// Makes the worker record its requests. In debug builds, a request that ends without a cause is a panic then.
    #[must_use]
    pub fn recording(mut self) -> Self {
        let settings = AccessLog {
            to: AccessTarget::Stdout,
            format: AccessFormat::Json,
            captures: CaptureNames {
                request_headers: vec!["x-id".to_owned()],
                response_headers: vec!["date".to_owned()],
                ..CaptureNames::default()
            },
            only: AccessFilter::All,
            slow: None,
            sample: SAMPLE_ALL,
        };
        let (sender, batch) = LineSender::without_writer(&settings);
        self.worker.record_to(sender);
        self.worker.count_requests();
        self.log = Some(batch);
        self
    }

    /// Makes the workers one process, in which they lend each other permits over mailboxes of `mails` messages.
    pub fn join_all(harnesses: &mut [Self], mails: usize) {
        let mailbox = |harness: &Self| Mailbox::new(mails, harness.reactor.waker());
        let mailboxes: Vec<Mailbox<PermitMail>> = harnesses.iter().map(mailbox).collect();
        let workers: Vec<_> = mailboxes.iter().map(Mailbox::sender).collect();
        for ((own, mailbox), harness) in mailboxes.into_iter().enumerate().zip(harnesses) {
            harness.worker.join(PermitPost::new(own, mailbox, workers.clone()));
        }
    }

    /// Makes the workers one process that shares its push hubs, over mailboxes of `mails` messages.
    pub fn join_hubs(harnesses: &mut [Self], mails: usize) {
        let mailbox = |harness: &Self| Mailbox::new(mails, harness.reactor.waker());
        let mailboxes: Vec<Mailbox<PushMail>> = harnesses.iter().map(mailbox).collect();
        let workers: Vec<_> = mailboxes.iter().map(Mailbox::sender).collect();
        let under_way = no_bytes_in_flight(harnesses.len());
        for ((own, mailbox), harness) in mailboxes.into_iter().enumerate().zip(harnesses) {
            let post = PushPost::new(own, mailbox, workers.clone(), Arc::clone(&under_way));
            harness.worker.join_hubs(post);
        }
    }

    /// Adds the TLS layer that `plan` describes, if it describes any.
    #[must_use]
    pub fn secured(mut self, plan: &TlsPlan) -> Self {
        if !plan.is_empty() {
            let accounts = Arc::clone(&self.accounts);
            self.layer = Some(TlsLayer::new(plan, self.listeners.clone(), accounts));
        }
        self
    }

    pub fn turn(&mut self) {
        match &mut self.layer {
            None => self.worker.turn(&mut self.reactor, Span::ZERO),
            Some(layer) => layer.turn(&mut self.reactor, &mut self.worker, Span::ZERO),
        }
        if cfg!(debug_assertions) {
            self.worker.check_invariants(&self.reactor);
        }
    }

    /// Prepares the applications of settings that follow.
    pub fn prepare(&mut self, config: &Config, scripts: &Scripts) -> Result<(), ChangeError> {
        let worker = &mut self.worker;
        let prepared = match &mut self.layer {
            None => worker.prepare_apps(&mut self.reactor, config, scripts),
            Some(layer) => {
                let mut prepared = Ok(());
                layer.between_turns(&mut self.reactor, worker, |worker, view| {
                    prepared = worker.prepare_apps(view, config, scripts);
                });
                prepared
            }
        };
        prepared.map_err(ChangeError::Scripts)
    }

    /// Changes the settings of the worker. `plan` describes the TLS of the new settings.
    pub fn change(&mut self, snapshot: Snapshot, plan: &TlsPlan) -> Result<(), ChangeError> {
        let snapshot = snapshot.counted_in(&self.registry, 0);
        let worker = &mut self.worker;
        let Some(layer) = &mut self.layer else {
            return worker.change_settings(&mut self.reactor, snapshot, &[]);
        };
        let mut changed = Ok(());
        layer.replace_plan(plan);
        layer.between_turns(&mut self.reactor, worker, |worker, view| {
            changed = worker.change_settings(view, snapshot, &[]);
        });
        layer.set_listeners(worker.listeners());
        changed
    }

    pub fn stop(&mut self, grace: Span) {
        match &mut self.layer {
            None => self.worker.stop(&mut self.reactor, grace),
            Some(layer) => {
                let worker = &mut self.worker;
                layer.between_turns(&mut self.reactor, worker, |worker, view| {
                    worker.stop(view, grace);
                });
            }
        }
    }

    /// How often the worker has handled mail.
    pub fn mails(&self) -> u64 {
        self.accounts.handlers[HandlerKind::Mail as usize].calls.load()
    }

    /// What the worker still holds, or counted as a bug. To be called when nothing is connected.
    pub fn find_leak(&self) -> Option<String> {
        let left = self.worker.leftovers();
        let counters = &self.accounts.counters;
        let gauges = [&counters.downstream_now, &counters.upstream_now, &counters.exchanges_now]
            .map(|gauge| gauge.load());
        let (socks, outputs) = (self.reactor.sock_count(), self.reactor.outputs_count());
        let sessions = self.layer.as_ref().map_or(0, TlsLayer::session_count);
        let tls_gauge = counters.tls_sessions_now.load();
        if sessions > 0 || tls_gauge > 0 {
            return Some(format!("leak: {sessions} TLS sessions, TLS gauge {tls_gauge}"));
        }
        if left != Leftovers::default() || gauges != [0; 3] || socks + outputs > 0 {
            return Some(format!(
                "leak: {left:?}, gauges {gauges:?}, {socks} sockets, {outputs} outputs"
            ));
        }
        (counters.bugs.load() > 0).then(|| "the worker's `bugs` counter is not 0".to_owned())
    }
}

/// The servers' addresses of a configuration that uses no DNS names.
pub fn addresses(config: &Config) -> Vec<Vec<Vec<Address>>> {
    let address = |at: &ServerAddress| match at {
        ServerAddress::Ip(at) => vec![Address::Tcp(*at)],
        ServerAddress::Unix(path) => vec![Address::Unix(path.clone())],
        ServerAddress::Name(..) | ServerAddress::Slot(_) => {
            panic!("{at}: the simulator has no DNS")
        }
    };
    let servers = |pool: &tidegate_config::model::Pool| {
        pool.servers.iter().map(|server| address(&server.address)).collect()
    };
    config.pools.iter().map(servers).collect()
}
