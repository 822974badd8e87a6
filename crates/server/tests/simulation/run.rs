//! One run: workers, origins and clients on one simulated net, until all is over or a bound is hit.
//! In: a seed, and what a canary spoils. Out: the ledger, or the violation.
//! Limits: `TURNS_MAX`, `TURNS_AT_ONE_MOMENT_MAX`, `TIME_MAX` of virtual time.
//! Invariant: after it, no worker holds anything.

use tidegate_base::limits::{OUTPUT_BYTES_MAX, READ_BUFFER_BYTES};
use tidegate_base::{Address, Moment, Prng, Span};
use tidegate_reactor::{Reactor, SimNet, SimReactor};

use crate::client::Client;
use crate::ledger::Ledger;
use crate::origin::{Lie, Origin};
use crate::peer::seat::Seat;
use crate::plan::{LISTEN, Plan};
use crate::secured::Keys;

const TURNS_MAX: u64 = 3_000_000;
/// A body of 150 kB through a window of a few bytes takes some 25,000 without the clock moving on.
const TURNS_AT_ONE_MOMENT_MAX: u64 = 1_000_000;
const TIME_MAX: Span = Span::from_secs(1200);
/// What one connection may hold of received bytes: two reads.
const INPUT_BYTES_MAX: usize = 2 * READ_BUFFER_BYTES;

/// A run in the middle.
struct Run {
    net: SimNet,
    seats: Vec<Seat<SimReactor>>,
    origins: Vec<Origin>,
    clients: Vec<Client>,
    ledger: Ledger,
    prng: Prng,
    stop: Option<(Moment, Span)>,
    stopped_by: Option<Moment>,
    turns: u64,
    turns_now: u64,
}

/// Plays the run of `seed`; the violation it met, if any.
pub fn play(seed: u64, traces: bool, lie: Option<Lie>) -> Result<Ledger, String> {
    let plan = Plan::new(seed);
    let mut run = Run::new(seed, plan, traces, lie)?;
    let outcome = run.go();
    let mut ledger = core::mem::take(&mut run.ledger);
    ledger.trace_hash = run.net.trace_hash();
    for seat in &run.seats {
        let counters = &seat.accounts.counters;
        ledger.handshakes += counters.tls_handshakes.load();
        ledger.resumptions += counters.tls_resumptions.load();
        ledger.truncations += counters.tls_truncations.load();
    }
    outcome.map(|()| ledger)
}

impl Run {
    fn new(seed: u64, plan: Plan, traces: bool, lie: Option<Lie>) -> Result<Self, String> {
        let net = SimNet::new(seed, plan.faults.clone());
        net.set_window_bytes(plan.window_bytes);
        let config = tidegate_config::parse(&plan.config, "the plan")
            .map_err(|errors| format!("{errors}\n{}", plan.config))?;
        let keys = Keys::new(seed, plan.version_max);
        let servers: Vec<usize> = config.pools.iter().map(|pool| pool.servers.len()).collect();
        let tls = keys.plan(plan.secured, &plan.secured_pools, &servers);
        let seats: Vec<Seat<SimReactor>> = (0..plan.workers as u64)
            .map(|at| Seat::simulated(&net, &config, plan.socks_max, seed ^ at).secured(&tls))
            .collect();
        let mut origins = Vec::new();
        for (index, (address, manner)) in plan.origins.into_iter().enumerate() {
            let Some(mut manner) = manner else { continue };
            manner.lie = lie;
            let server = net.serve(&address).ok_or("two origins at one address")?;
            let acceptor = manner.secured.then(|| keys.acceptor.clone());
            let seed = seed ^ (index as u64 + 1000);
            origins.push(Origin::new(index, server, seed, manner, acceptor));
        }
        let (ip, port) = LISTEN;
        let listen = Address::Tcp((ip, port).into());
        let clients = plan
            .clients
            .into_iter()
            .enumerate()
            .map(|(at, script)| {
                let connector = plan.secured.then(|| keys.connector.clone());
                Client::new(at, listen.clone(), script, connector)
            })
            .collect();
        let mut ledger = Ledger {
            now: net.now(),
            is_calm: plan.is_calm,
            tries_max: plan.tries_max,
            traces,
            ..Ledger::default()
        };
        ledger.requests = plan.requests.into_iter().map(|request| (request.id, request)).collect();
        ledger.trace(|| format!("calm: {}, {:?}\n{}", plan.is_calm, plan.faults, plan.config));
        Ok(Self {
            net,
            seats,
            origins,
            clients,
            ledger,
            prng: Prng::new(seed ^ 0x72_756e),
            stop: plan.stop,
            stopped_by: None,
            turns: 0,
            turns_now: 0,
        })
    }

    fn go(&mut self) -> Result<(), String> {
        let end = self.net.now().after(TIME_MAX);
        while !self.is_over() {
            let mut moved = self.step_actors();
            self.turn_workers();
            moved |= self.step_actors();
            if let Some(violation) = self.ledger.violations.first() {
                return Err(violation.clone());
            }
            if !moved {
                self.advance()?;
            }
            if self.net.now() > end {
                return Err(format!("it is not over after {TIME_MAX:?}: {}", self.describe()));
            }
            self.turns += 1;
            self.turns_now += 1;
            if self.turns > TURNS_MAX || self.turns_now > TURNS_AT_ONE_MOMENT_MAX {
                return Err(format!("it goes in circles: {}", self.describe()));
            }
            if self.turns.is_multiple_of(16) {
                self.check_bounds()?;
            }
        }
        self.ledger.trace(|| format!("over after {} turns", self.turns));
        if self.net.open_sockets() > 0 {
            return Err(format!("{} sockets are open", self.net.open_sockets()));
        }
        self.seats.iter().find_map(Seat::find_leak).map_or(Ok(()), Err)
    }

    fn is_over(&self) -> bool {
        self.clients.iter().all(|client| client.ended)
            && self.seats.iter().all(|seat| seat.reactor.sock_count() == 0)
            && self.stop.is_none()
    }

    fn step_actors(&mut self) -> bool {
        self.ledger.now = self.net.now();
        let mut moved = false;
        for client in &mut self.clients {
            moved |= client.step(&self.net, &mut self.ledger);
        }
        for origin in &mut self.origins {
            moved |= origin.step(&mut self.ledger);
        }
        moved
    }

    fn turn_workers(&mut self) {
        if let Some((at, grace)) = self.stop
            && self.net.now() >= at
        {
            self.ledger.trace(|| format!("stop, with a grace of {grace:?}"));
            self.stop = None;
            // Coarse deadlines, a stall, closing in order: each has its own bound.
            self.stopped_by = Some(self.net.now().after(grace).after(Span::from_secs(12)));
            for seat in &mut self.seats {
                seat.stop(grace);
            }
        }
        let first = self.prng.below(self.seats.len() as u64) as usize;
        let count = self.seats.len();
        for at in 0..count {
            self.seats[(first + at) % count].turn();
        }
    }

    /// Moves the clock on to whatever happens next.
    fn advance(&mut self) -> Result<(), String> {
        let now = self.net.now();
        let clients = self.clients.iter().filter_map(|client| client.next_at(now));
        let origins = self.origins.iter().filter_map(|origin| origin.next_at(now));
        let stop = self.stop.map(|(at, _)| at);
        let net = self.net.next_event_at();
        let next = clients.chain(origins).chain(stop).chain(net).min();
        let Some(next) = next else {
            if self.is_over() {
                return Ok(());
            }
            return Err(format!("nothing will ever happen: {}", self.describe()));
        };
        if next > now {
            self.turns_now = 0;
        }
        self.net.advance_to(next);
        if let Some(by) = self.stopped_by
            && self.net.now() > by
            && let Some(seat) =
                self.seats.iter().find(|seat| !seat.worker.is_stopped(&seat.reactor))
        {
            let left = seat.worker.leftovers();
            return Err(format!("a worker has not stopped in its time: {left:?}"));
        }
        Ok(())
    }

    fn check_bounds(&mut self) -> Result<(), String> {
        for seat in &mut self.seats {
            let (input, output) = seat.worker.held_bytes_max(&seat.reactor);
            if input > INPUT_BYTES_MAX || output > OUTPUT_BYTES_MAX {
                return Err(format!(
                    "a connection holds {input} bytes of input, {output} of output"
                ));
            }
        }
        Ok(())
    }

    fn describe(&self) -> String {
        let alive: Vec<_> =
            self.clients.iter().enumerate().filter(|(_, client)| !client.ended).collect();
        let names: Vec<usize> = alive.iter().map(|(at, _)| *at).collect();
        let left: Vec<_> = self.seats.iter().map(|seat| seat.worker.leftovers()).collect();
        format!("turn {}, clients {names:?} not ended, workers hold {left:?}", self.turns)
    }
}
