//! Changes of the configuration during a run: routes, pools, servers and listeners come, move and go.
//! In: the configuration of a plan, a seed. Out: for each worker, the snapshots that follow.
//! Never: changes what a request may expect: its route leads to servers of the same pool in every variant.
//! Limits: `RELOADS_MAX` changes. The next one begins when every worker has applied the last.

use core::fmt::Write;

use tidegate_base::{Moment, Prng, Span};
use tidegate_config::arrange::Arranged;
use tidegate_config::model::{Config, Pool};
use tidegate_gate::process_state::ProcessState;
use tidegate_reactor::SimReactor;
use tidegate_secure::TlsPlan;
use tidegate_server::Snapshot;
use tidegate_server::apply_settings::{InUse, removed_in_use};
use tidegate_server::snapshot::Numbers;

use crate::peer::harness::{Harness, addresses};
use crate::plan::Plan;
use crate::secured::Keys;

/// Maximum number of changes in one run: more than a worker keeps generations of settings.
const RELOADS_MAX: u64 = 24;
/// The longest time between two changes.
const PAUSE_MAX: Span = Span::from_secs(2);

/// The changes of one run.
pub struct Reloads {
    prng: Prng,
    /// The configuration of the plan, from which all variants are made.
    text: String,
    /// The configuration in force.
    arranged: Arranged,
    numbers: Numbers,
    process: ProcessState,
    /// By pool of the plan: whether its servers use TLS.
    secured_pools: Vec<bool>,
    /// By pool of the plan: whether its servers speak HTTP/2.
    http2_pools: Vec<bool>,
    /// When the next change begins; `None` if none follows.
    next_at: Option<Moment>,
    /// How many changes follow the next one.
    left: u64,
    /// The workers that have not applied the current change, each with its settings.
    pending: Vec<(usize, Snapshot)>,
    /// The TLS settings of the current change.
    tls: TlsPlan,
    /// The changes that all workers have applied.
    pub applied: u64,
    /// The workers stop.
    has_ended: bool,
}

impl Reloads {
    /// The changes of the run of `seed`, in about half of the seeds; `None` in the others.
    pub fn new(seed: u64, plan: &Plan, config: &Config) -> Option<Self> {
        let mut prng = Prng::new(seed ^ 0x7265_6c6f_6164);
        if prng.below(2) == 0 {
            return None;
        }
        let most = 1 + prng.below(RELOADS_MAX);
        let left = prng.below(most);
        let next_at = Some(Moment::from_nanos(prng.below(PAUSE_MAX.as_nanos() as u64)));
        Some(Self {
            prng,
            text: plan.config.clone(),
            arranged: Arranged::first(config.clone()),
            numbers: Numbers::of(config),
            process: ProcessState::new(config, 0),
            secured_pools: plan.secured_pools.clone(),
            http2_pools: plan.http2_pools.clone(),
            next_at,
            left,
            pending: Vec::new(),
            tls: TlsPlan::default(),
            applied: 0,
            has_ended: false,
        })
    }

    /// When something happens next.
    pub fn next_at(&self) -> Option<Moment> {
        self.next_at.filter(|_| self.pending.is_empty())
    }

    /// The configuration in force, unless some workers have applied it and some have not.
    pub fn settled(&self) -> Option<&Config> {
        self.pending.is_empty().then_some(&self.arranged.config)
    }

    /// No change begins any more, and workers that have not applied the current one never will: they stop.
    pub fn end(&mut self) {
        self.next_at = None;
        self.has_ended = true;
    }

    /// Begins a change if it is time. Each worker applies it in its own time.
    pub fn step(
        &mut self,
        now: Moment,
        keys: &Keys,
        harnesses: &mut [Harness<SimReactor>],
    ) -> Result<(), String> {
        if self.next_at().is_some_and(|at| at <= now) {
            self.begin(now, keys, harnesses)?;
        }
        if self.has_ended {
            return Ok(());
        }
        let had_pending = !self.pending.is_empty();
        for (worker, snapshot) in core::mem::take(&mut self.pending) {
            if self.prng.below(2) == 0 {
                self.pending.push((worker, snapshot));
                continue;
            }
            let changed = harnesses[worker].change(snapshot, &self.tls);
            changed.map_err(|error| format!("a change was refused: {error}"))?;
        }
        if had_pending && self.pending.is_empty() {
            self.process.settle(&self.arranged);
            self.applied += 1;
        }
        Ok(())
    }

    fn begin(
        &mut self,
        now: Moment,
        keys: &Keys,
        harnesses: &[Harness<SimReactor>],
    ) -> Result<(), String> {
        let text = self.vary();
        let config = tidegate_config::parse(&text, "the change")
            .map_err(|errors| format!("{errors}\n{text}"))?;
        let in_use: Vec<InUse> = harnesses.iter().map(|h| InUse::clone(&h.in_use)).collect();
        let in_use = removed_in_use(&in_use, &self.arranged);
        let next = self.arranged.next(config, &in_use).map_err(|error| error.to_string())?;
        (self.process, _) = self.process.after(&next, &self.arranged.config, 0);
        self.arranged = next;
        let config = &self.arranged.config;
        let listeners: Vec<bool> = config.listeners.iter().map(|l| l.tls.is_some()).collect();
        let pools: Vec<bool> =
            config.pools.iter().map(|pool| self.secured_pools[number_of(pool)]).collect();
        let servers: Vec<usize> = config.pools.iter().map(|pool| pool.servers.len()).collect();
        self.tls = keys.plan_of_listeners(&listeners, &pools, &servers);
        for (pool, settings) in self.tls.pools.iter_mut().zip(&config.pools) {
            if let Some(pool) = pool
                && self.http2_pools[number_of(settings)]
            {
                pool.connector = keys.http2_connector.clone();
            }
        }
        for worker in 0..harnesses.len() {
            let arranged = self.arranged.clone();
            let addresses = addresses(&arranged.config);
            let process = self.process.clone();
            self.pending.push((
                worker,
                Snapshot::arranged(arranged, addresses, process, &mut self.numbers),
            ));
        }
        let pause = self.prng.below(PAUSE_MAX.as_nanos() as u64);
        let pause = pause >> self.prng.below(12);
        self.next_at = (self.left > 0).then(|| now.after(Span::from_nanos(pause)));
        self.left = self.left.saturating_sub(1);
        Ok(())
    }

    /// A variant of the configuration.
    fn vary(&mut self) -> String {
        let prng = &mut self.prng;
        let mut text = String::new();
        let renamed: Vec<u64> = self.secured_pools.iter().map(|_| prng.below(3)).collect();
        let mut is_first_route = true;
        for line in self.text.lines() {
            let mut line = line.to_owned();
            if line == "[[route]]" && core::mem::take(&mut is_first_route) {
                for at in 0..prng.below(3) {
                    let _ = writeln!(text, "[[route]]\npath = \"/unused/{at}\"\nrespond = {{}}");
                }
            }
            for (pool, name) in renamed.iter().enumerate() {
                // The same servers under another name are another pool.
                let names = ["proxy = ", "split = ", "auth = ", "entries = "];
                let is_proxied = names.iter().any(|name| line.starts_with(name));
                if *name > 0 && is_proxied {
                    line = line.replace(&format!("\"p{pool}\""), &format!("\"p{pool}-{name}\""));
                } else if *name > 0 && line == format!("[pool.p{pool}]") {
                    line = format!("[pool.p{pool}-{name}]");
                }
            }
            if let Some(servers) = line.strip_prefix("servers = [") {
                line = vary_servers(prng, servers.trim_end_matches(']'));
            }
            text.push_str(&line);
            text.push('\n');
        }
        for port in 81..81 + prng.below(3) {
            let _ = writeln!(text, "[[listener]]\nbind = \"10.0.0.1:{port}\"");
        }
        text
    }
}

/// Another order of a pool's servers, perhaps without one of them.
fn vary_servers(prng: &mut Prng, servers: &str) -> String {
    let mut servers: Vec<&str> = servers.split_inclusive("}").collect();
    let shift = prng.below(servers.len() as u64) as usize;
    servers.rotate_left(shift);
    if servers.len() > 1 && prng.below(2) == 0 {
        servers.pop();
    }
    let servers: Vec<&str> =
        servers.iter().map(|server| server.trim_start_matches([',', ' '])).collect();
    format!("servers = [{}]", servers.join(", "))
}

/// The number of a pool in the plan: its name is `p1` or, renamed, `p1-2`.
fn number_of(pool: &Pool) -> usize {
    let digits = pool.name.trim_start_matches('p').split('-').next();
    digits.and_then(|digits| digits.parse().ok()).unwrap_or_default()
}
