//! A worker in its seat: on a reactor, listening, with its counters at hand.
//! In: a configuration, a driver. Out: turns; what is left once nothing is connected.

use std::rc::Rc;
use std::sync::Arc;

use tidegate_base::{Address, Span};
use tidegate_config::model::{Config, ServerAddress};
use tidegate_reactor::kernel::Kernel;
use tidegate_reactor::{ListenerId, Loop, Reactor, SimNet, SimReactor};
use tidegate_secure::{TlsLayer, TlsPlan};
use tidegate_server::counters::Accounts;
use tidegate_server::{Leftovers, Snapshot, Worker, WorkerLimits};

/// A worker and its reactor.
pub struct Seat<R> {
    pub worker: Worker,
    pub reactor: R,
    pub accounts: Arc<Accounts>,
    layer: Option<TlsLayer<Arc<Accounts>>>,
    listeners: Vec<ListenerId>,
    /// Where its listeners really are.
    pub bound: Vec<Address>,
}

impl Seat<SimReactor> {
    /// A worker on a simulated net.
    pub fn simulated(net: &SimNet, config: &Config, socks_max: usize, seed: u64) -> Self {
        Self::new(SimReactor::new(net, socks_max), config, socks_max, seed)
    }
}

impl<K: Kernel> Seat<Loop<K>> {
    /// A worker over `reactor`, listening.
    pub fn new(mut reactor: Loop<K>, config: &Config, socks_max: usize, seed: u64) -> Self {
        let accounts = Arc::new(Accounts::default());
        let snapshot = Rc::new(Snapshot::new(config.clone(), addresses(config)));
        let limits = WorkerLimits { exchanges_max: socks_max, workers: 1, steer_by_cpu: false };
        let mut worker = Worker::new(snapshot, Arc::clone(&accounts), limits, seed);
        let listeners = match worker.listen(&mut reactor) {
            Ok(listeners) => listeners,
            Err(error) => panic!("{error}"),
        };
        let bound = listeners.iter().filter_map(|id| reactor.listener_address(*id)).collect();
        Self { worker, reactor, accounts, layer: None, listeners, bound }
    }

    /// With TLS by `plan`, where that has any.
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

    /// What is wrong with the worker now that nothing is connected.
    pub fn find_leak(&self) -> Option<String> {
        let left = self.worker.leftovers();
        let counters = &self.accounts.counters;
        let gauges = [&counters.downstream_now, &counters.upstream_now, &counters.exchanges_now]
            .map(|gauge| gauge.load());
        let (socks, outputs) = (self.reactor.sock_count(), self.reactor.outputs_count());
        let sessions = self.layer.as_ref().map_or(0, TlsLayer::session_count);
        let tls_gauge = counters.tls_sessions_now.load();
        if sessions > 0 || tls_gauge > 0 {
            return Some(format!("a worker still holds {sessions} sessions, gauge {tls_gauge}"));
        }
        if left != Leftovers::default() || gauges != [0; 3] || socks + outputs > 0 {
            return Some(format!(
                "a worker still holds {left:?}, gauges {gauges:?}, {socks} socks, {outputs} outputs"
            ));
        }
        (counters.bugs.load() > 0).then(|| "a worker counted a bug of its own".to_owned())
    }
}

/// The addresses that a configuration without names stands for.
pub fn addresses(config: &Config) -> Vec<Vec<Vec<Address>>> {
    let address = |at: &ServerAddress| match at {
        ServerAddress::Ip(at) => vec![Address::Tcp(*at)],
        ServerAddress::Unix(path) => vec![Address::Unix(path.clone())],
        ServerAddress::Name(name, _) => panic!("{name}: there are no names in the simulator"),
    };
    let servers = |pool: &tidegate_config::model::Pool| {
        pool.servers.iter().map(|server| address(&server.address)).collect()
    };
    config.pools.iter().map(servers).collect()
}
