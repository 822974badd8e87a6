//! One run: workers, origins and clients on one simulated network, until all have ended or the run is stuck.
//! In: a seed, and for canaries the fault that origins inject. Out: the oracle, or the first violation.
//! Limits: those of `Progress`; `MAILS_MAX` and `MAILS_PER_SECOND_MAX`.
//! Invariant: after the run no worker holds anything.

use tidegate_base::limits::{OUTPUT_BYTES_MAX, READ_BUFFER_BYTES};
use tidegate_base::{Address, Moment, Prng, Span};
use tidegate_config::model::{Config, Pool};
use tidegate_reactor::{Reactor, SimNet, SimReactor};

use crate::asked::Asked;
use crate::client::Client;
use crate::copies::MirrorServer;
use crate::http2::{Http2Client, has_websockets};
use crate::http2_origin::Http2Origin;
use crate::oracle::Oracle;
use crate::origin::{InjectedFault, Origin};
use crate::peer::harness::Harness;
use crate::plan::{LISTEN, Plan};
use crate::progress::Progress;
use crate::records::Records;
use crate::reload::Reloads;
use crate::secured::Keys;

/// Calls of the handler of mail, in all workers: a number for the requests of a run, and for each second the mail
/// of workers that have no room for a connection. Runs have far fewer, and workers in a loop far more.
const MAILS_MAX: u64 = 1000;
const MAILS_PER_SECOND_MAX: u64 = 1000;
/// Turns in which workers answer each other's mail before the clock advances.
const MAIL_TURNS_MAX: usize = 8;
/// Received bytes that one connection may hold: two reads.
const INPUT_BYTES_MAX: usize = 2 * READ_BUFFER_BYTES;

/// A run in progress.
struct Run {
    net: SimNet,
    /// One for each worker.
    harnesses: Vec<Harness<SimReactor>>,
    /// The configuration at the start.
    config: Config,
    /// The changes of the configuration, if the run has any.
    reloads: Option<Reloads>,
    keys: Keys,
    origins: Vec<Origin>,
    http2_origins: Vec<Http2Origin>,
    /// The server that is asked about requests, in runs that have one.
    asked: Option<Asked>,
    /// The server that gets copies of requests, in runs that have one.
    copies: Option<MirrorServer>,
    clients: Vec<Client>,
    http2_clients: Vec<Http2Client>,
    oracle: Oracle,
    /// The access log.
    records: Records,
    /// Chooses the order of the workers in each step.
    prng: Prng,
    /// When all workers are told to stop, and with which grace period; `None` afterwards.
    stop: Option<(Moment, Span)>,
    /// When all workers must have stopped.
    stopped_by: Option<Moment>,
    /// Steps so far; in each one every worker takes a turn.
    turns: u64,
    /// Whether the run can still end.
    progress: Progress,
}

/// Plays the run of `seed`; an error is its first violation.
pub fn play(
    seed: u64,
    traces: bool,
    injected_fault: Option<InjectedFault>,
) -> Result<Oracle, String> {
    let plan = Plan::new(seed);
    let mut run = Run::new(seed, plan, traces, injected_fault)?;
    if injected_fault == Some(InjectedFault::Bug) {
        run.harnesses[0].accounts.counters.bugs.add(1);
    }
    let outcome = run.run_to_end();
    let mut oracle = core::mem::take(&mut run.oracle);
    oracle.trace_hash = run.net.trace_hash();
    for harness in &run.harnesses {
        let counters = &harness.accounts.counters;
        oracle.handshakes += counters.tls_handshakes.load();
        oracle.permits += counters.permits_received.load();
        oracle.resumptions += counters.tls_resumptions.load();
        oracle.truncations += counters.tls_truncations.load();
        let evicted = [
            &counters.evicted_upstream,
            &counters.evicted_lingering,
            &counters.evicted_silent,
            &counters.evicted_unfinished,
            &counters.evicted_idle,
            &counters.evicted_tunnels,
            &counters.evicted_for_listener,
        ];
        oracle.evicted += evicted.iter().map(|counter| counter.load()).sum::<u64>();
    }
    outcome.map(|()| oracle)
}

impl Run {
    fn new(
        seed: u64,
        plan: Plan,
        traces: bool,
        injected_fault: Option<InjectedFault>,
    ) -> Result<Self, String> {
        let net = SimNet::new(seed, plan.faults.clone());
        net.set_window_bytes(plan.window_bytes);
        let mut text = plan.config.clone();
        if injected_fault == Some(InjectedFault::Silence) {
            // "8s" becomes "3008s".
            text = text.replace("response-head = \"", "response-head = \"300");
        }
        let config = tidegate_config::parse(&text, "the plan")
            .map_err(|errors| format!("{errors}\n{text}"))?;
        let keys = Keys::new(seed, plan.version_max);
        let servers: Vec<usize> = config.pools.iter().map(|pool| pool.servers.len()).collect();
        let mut tls = keys.plan(plan.secured, &plan.secured_pools, &servers);
        for (pool, is_http2) in tls.pools.iter_mut().zip(&plan.http2_pools) {
            if let Some(pool) = pool.as_mut().filter(|_| *is_http2) {
                pool.connector = keys.http2_connector.clone();
            }
        }
        let mut harnesses: Vec<Harness<SimReactor>> = (0..plan.workers as u64)
            .map(|at| Harness::simulated(&net, &config, plan.socks_max, seed ^ at).secured(&tls))
            .collect();
        // Some mailboxes hold so few messages that they are often full.
        Harness::join_all(&mut harnesses, if seed.is_multiple_of(2) { 1000 } else { 2 });
        let records = Records::of(&harnesses);
        let reloads = Reloads::new(seed, &plan, &config)
            .filter(|_| injected_fault != Some(InjectedFault::Silence));
        let (mut origins, mut http2_origins) = (Vec::new(), Vec::new());
        for (index, (address, behaviour)) in plan.origins.into_iter().enumerate() {
            let Some(mut behaviour) = behaviour else { continue };
            behaviour.injected_fault = injected_fault;
            let server = net.serve(&address).ok_or("two origins have the same address")?;
            let acceptor = behaviour.secured.then(|| keys.acceptor.clone());
            let seed = seed ^ (index as u64 + 1000);
            match behaviour.http2.take() {
                None => origins.push(Origin::new(index, server, seed, behaviour, acceptor)),
                Some(http2) => {
                    let behaviour = (behaviour, http2);
                    http2_origins.push(Http2Origin::new(index, server, seed, behaviour, acceptor));
                }
            }
        }
        let asked = plan.asks.then(|| Asked::new(&net, seed)).flatten();
        let copies = plan.mirrors.then(|| MirrorServer::new(&net, seed)).flatten();
        let pools = config.pools.iter().enumerate();
        let pools_of_origins =
            pools.flat_map(|(at, pool)| pool.servers.iter().map(move |_| at)).collect();
        let (ip, port) = LISTEN;
        let listen = Address::Tcp((ip, port).into());
        let http2_clients = plan
            .http2_clients
            .into_iter()
            .map(|script| {
                let connector = plan.secured.then(|| keys.http2_connector.clone());
                Http2Client::new(listen.clone(), script, connector, net.now())
            })
            .collect();
        let clients = plan
            .clients
            .into_iter()
            .enumerate()
            .map(|(at, script)| {
                let connector = plan.secured.then(|| keys.connector.clone());
                Client::new(at, listen.clone(), script, connector)
            })
            .collect();
        let mut oracle = Oracle {
            now: net.now(),
            is_calm: plan.is_calm,
            is_crowded: plan.is_crowded,
            tries_max: plan.tries_max,
            pools_of_origins,
            traces,
            asks: plan.asks,
            closes_tunnels: has_websockets(seed) && (plan.stop.is_some() || reloads.is_some()),
            ..Oracle::default()
        };
        oracle.requests = plan.requests.into_iter().map(|request| (request.id, request)).collect();
        oracle.trace(|| format!("calm: {}, {:?}\n{}", plan.is_calm, plan.faults, text));
        let progress = Progress::new(net.now(), plan.is_calm);
        Ok(Self {
            net,
            harnesses,
            config,
            reloads,
            keys,
            origins,
            http2_origins,
            asked,
            copies,
            clients,
            http2_clients,
            oracle,
            records,
            prng: Prng::new(seed ^ 0x72_756e),
            stop: plan.stop,
            stopped_by: None,
            turns: 0,
            progress,
        })
    }

    fn run_to_end(&mut self) -> Result<(), String> {
        while !self.is_over() {
            let mut moved = self.step_actors();
            self.turn_workers()?;
            self.check_bugs()?;
            self.check_limits()?;
            moved |= self.step_actors();
            if let Some(violation) = self.oracle.violations.first() {
                return Err(violation.clone());
            }
            // A timer may be left that concerns nothing any more.
            if !moved && !self.is_over() {
                self.advance()?;
            }
            self.turns += 1;
            let step = self.progress.note_step(self.net.now(), self.oracle.moved_bytes);
            step.map_err(|why| format!("the run is stuck: {why}: {}", self.describe()))?;
            if self.turns.is_multiple_of(16) {
                self.check_bounds()?;
                self.records.collect();
            }
        }
        self.oracle.trace(|| format!("ended after {} turns", self.turns));
        self.records.check(&self.oracle, &self.harnesses)?;
        if self.net.open_sockets() > 0 {
            return Err(format!("{} sockets are still open", self.net.open_sockets()));
        }
        self.harnesses.iter().find_map(Harness::find_leak).map_or(Ok(()), Err)
    }

    fn is_over(&self) -> bool {
        self.clients.iter().all(|client| client.ended)
            && self.http2_clients.iter().all(|client| client.ended)
            && self.harnesses.iter().all(|harness| harness.reactor.sock_count() == 0)
            && self.stop.is_none()
    }

    fn step_actors(&mut self) -> bool {
        self.oracle.now = self.net.now();
        let mut moved = false;
        for client in &mut self.clients {
            moved |= client.step(&self.net, &mut self.oracle);
        }
        for client in &mut self.http2_clients {
            moved |= client.step(&self.net, &mut self.oracle);
        }
        self.oracle.workers_have_edges = self.net.has_edges();
        for origin in &mut self.http2_origins {
            moved |= origin.step(&mut self.oracle);
        }
        for origin in &mut self.origins {
            moved |= origin.step(&mut self.oracle);
        }
        if let Some(asked) = &mut self.asked {
            moved |= asked.step(self.net.now(), &mut self.oracle);
        }
        if let Some(copies) = &mut self.copies {
            moved |= copies.step(self.net.now());
        }
        moved
    }

    fn turn_workers(&mut self) -> Result<(), String> {
        if let Some((at, grace)) = self.stop
            && self.net.now() >= at
        {
            self.oracle.trace(|| format!("stop, with a grace period of {grace:?}"));
            self.stop = None;
            // 12 s for coarse timers, a stall, and connections that close cleanly; each has its own limit.
            self.stopped_by = Some(self.net.now().after(grace).after(Span::from_secs(12)));
            for harness in &mut self.harnesses {
                harness.stop(grace);
            }
            if let Some(reloads) = &mut self.reloads {
                reloads.end();
            }
        }
        if let Some(reloads) = &mut self.reloads {
            reloads.step(self.net.now(), &self.keys, &mut self.harnesses)?;
            self.oracle.reloads = reloads.applied;
        }
        let first = self.prng.below(self.harnesses.len() as u64) as usize;
        let count = self.harnesses.len();
        for at in 0..count {
            self.harnesses[(first + at) % count].turn();
        }
        // Mail between workers takes no virtual time.
        for _ in 0..MAIL_TURNS_MAX {
            for harness in self.harnesses.iter_mut().filter(|harness| harness.worker.has_mail()) {
                harness.turn();
            }
        }
        Ok(())
    }

    /// Advances the clock to the next event.
    fn advance(&mut self) -> Result<(), String> {
        let now = self.net.now();
        let clients = self.clients.iter().filter_map(|client| client.next_at(now));
        let http2_clients = self.http2_clients.iter().filter_map(|client| client.next_at(now));
        let clients = clients.chain(http2_clients);
        let origins = self.origins.iter().filter_map(|origin| origin.next_at(now));
        let http2_origins = self.http2_origins.iter().filter_map(|origin| origin.next_at(now));
        let asked = self.asked.as_ref().and_then(|asked| asked.next_at(now));
        let copies = self.copies.as_ref().and_then(|copies| copies.next_at(now));
        let origins = origins.chain(http2_origins).chain(asked).chain(copies);
        let stop = self.stop.map(|(at, _)| at);
        let net = self.net.next_event_at();
        let reload = self.reloads.as_ref().and_then(Reloads::next_at);
        let next = clients.chain(origins).chain(stop).chain(reload).chain(net).min();
        let Some(next) = next else {
            if self.is_over() {
                return Ok(());
            }
            return Err(format!("deadlock, no event is left: {}", self.describe()));
        };
        self.net.advance_to(next);
        if let Some(by) = self.stopped_by
            && self.net.now() > by
            && let Some(harness) =
                self.harnesses.iter().find(|harness| !harness.worker.is_stopped(&harness.reactor))
        {
            let left = harness.worker.leftovers();
            return Err(format!("a worker did not stop in time: {left:?}"));
        }
        Ok(())
    }

    /// No worker may count a bug.
    fn check_bugs(&self) -> Result<(), String> {
        let bugs: u64 = self.harnesses.iter().map(|h| h.accounts.counters.bugs.load()).sum();
        if bugs == 0 { Ok(()) } else { Err(format!("workers have counted {bugs} bugs")) }
    }

    /// No server may have more requests in progress, or more permits, than its limit, in all workers together.
    fn check_limits(&self) -> Result<(), String> {
        let config = match &self.reloads {
            None => &self.config,
            Some(reloads) => match reloads.settled() {
                Some(config) => config,
                None => return Ok(()),
            },
        };
        for (pool, Pool { servers, .. }) in config.pools.iter().enumerate() {
            for (server, settings) in servers.iter().enumerate() {
                let Some(limit) = &settings.connections_max else { continue };
                let uses = self.harnesses.iter().map(|h| h.worker.server_use(pool, server));
                let (in_use, held) =
                    uses.fold((0, 0), |sum, use_| (sum.0 + use_.0, sum.1 + use_.1));
                if in_use > *limit || held > *limit {
                    return Err(format!(
                        "pool {pool}, server {server}: {in_use} in use, {held} permits, limit {limit}"
                    ));
                }
            }
        }
        Ok(())
    }

    fn check_bounds(&mut self) -> Result<(), String> {
        let seconds = self.net.now().since(Moment::ZERO).as_secs();
        let mails: u64 = self.harnesses.iter().map(Harness::mails).sum();
        if mails > MAILS_MAX + seconds * MAILS_PER_SECOND_MAX {
            return Err(format!("workers have handled mail {mails} times in {seconds} s"));
        }
        for harness in &mut self.harnesses {
            let (input, output) = harness.worker.held_bytes_max(&harness.reactor);
            if input > INPUT_BYTES_MAX || output > OUTPUT_BYTES_MAX {
                return Err(format!(
                    "a connection holds {input} bytes of input and {output} of output"
                ));
            }
        }
        Ok(())
    }

    fn describe(&self) -> String {
        let alive: Vec<_> =
            self.clients.iter().enumerate().filter(|(_, client)| !client.ended).collect();
        let names: Vec<usize> = alive.iter().map(|(at, _)| *at).collect();
        let alive = self.http2_clients.iter().filter(|client| !client.ended);
        let http2_clients: Vec<String> = alive.map(Http2Client::describe).collect();
        let left: Vec<_> =
            self.harnesses.iter().map(|harness| harness.worker.leftovers()).collect();
        let socks: Vec<_> = self.harnesses.iter().map(|h| h.reactor.sock_count()).collect();
        format!(
            "turn {}, clients {names:?} {http2_clients:?} have not ended, {socks:?} connections are open, workers hold \
             {left:?}",
            self.turns
        )
    }
}
