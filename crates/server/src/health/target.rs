//! The servers that the prober checks: one target for each server of a pool with `health`, and one for each agent.
//! In: the configuration in force and the addresses of its servers. Out: targets, ready to be connected to.
//! Invariant: a target has at least one address.

use std::sync::Arc;

use tidegate_base::{Address, Span};
use tidegate_config::arrange::Arranged;
use tidegate_config::model::{AgentCheck, CheckKind, HealthCheck, Pool, Upstream};
use tidegate_gate::probe;
use tidegate_secure::{PoolPlan, ServerKey, TlsPlan};

use super::ServerId;
use crate::resolve::Addresses;

/// The kind of check.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Job {
    /// Whether the server works, with the settings of its pool's checks.
    Health(Arc<HealthCheck>),
    /// A check of the agent.
    Agent(Arc<AgentCheck>),
}

impl Job {
    /// Time for a check.
    pub(crate) fn timeout(&self) -> Span {
        match self {
            Self::Health(check) => check.timeout,
            Self::Agent(check) => check.timeout,
        }
    }

    /// Time from the start of a check to the start of the next, if nothing is in doubt.
    pub(crate) fn every(&self) -> Span {
        match self {
            Self::Health(check) => check.every,
            Self::Agent(check) => check.every,
        }
    }

    /// How long its connections are kept for further checks; `None`: they are not.
    pub(crate) fn keep_alive(&self) -> Option<Span> {
        match self {
            Self::Health(check) => check.keep_alive,
            Self::Agent(_) => None,
        }
    }

    /// Whether an agent is queried.
    pub(crate) fn is_agent(&self) -> bool {
        matches!(self, Self::Agent(_))
    }
}

/// A server to check, or an agent to query.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Target {
    /// Identifies the server.
    pub(crate) id: ServerId,
    /// The kind of check, with its settings.
    pub(crate) job: Job,
    /// The addresses of the server, with the port of the check.
    pub(crate) addresses: Arc<[Address]>,
    /// The bytes that are sent before TLS: a PROXY header, or nothing.
    pub(crate) preface: Arc<[u8]>,
    /// The request; empty if nothing is sent, or if it differs for each connection.
    pub(crate) request: Arc<[u8]>,
    /// The host that the check names.
    pub(crate) host: Arc<str>,
}

impl Target {
    /// The settings of TLS; `None`: the check does not use it.
    pub(crate) fn key(&self) -> Option<ServerKey> {
        let ServerId { pool, server, .. } = self.id;
        let is_secured = matches!(&self.job, Job::Health(check) if check.is_secured);
        is_secured.then_some(ServerKey { pool, server, http1_only: false })
    }
}

/// All targets of a configuration.
pub(super) fn targets(arranged: &Arranged, addresses: &Addresses) -> Vec<Target> {
    let mut targets = Vec::new();
    let pools = arranged.config.pools.iter().zip(&arranged.pools).zip(addresses).enumerate();
    for (at, ((pool, life), addresses)) in pools {
        if life.life.is_gone() {
            continue;
        }
        let health = pool.health.clone().map(Arc::new);
        let agent = pool.agent.clone().map(Arc::new);
        let servers = pool.servers.iter().zip(&life.servers).zip(addresses).enumerate();
        for (server_at, ((server, life), addresses)) in servers {
            // A server without an address is not checked.
            if !life.life.is_gone() && !addresses.is_empty() {
                let (pool_at, server_at) = (at as u16, server_at as u16);
                let id = ServerId { pool: pool_at, server: server_at, since: life.life.since };
                targets
                    .extend(health.iter().map(|c| health_target(id, pool, server, c, addresses)));
                targets.extend(agent.iter().map(|check| agent_target(id, check, addresses)));
            }
        }
    }
    targets
}

/// An address with another port. A path has no port.
fn with_port(address: &Address, port: Option<u16>) -> Address {
    match (address, port) {
        (Address::Tcp(address), Some(port)) => {
            let mut address = *address;
            address.set_port(port);
            Address::Tcp(address)
        }
        (address, _) => address.clone(),
    }
}

fn agent_target(id: ServerId, check: &Arc<AgentCheck>, addresses: &[Address]) -> Target {
    let line = check.send.as_ref().map(|text| format!("{text}\n"));
    Target {
        id,
        job: Job::Agent(Arc::clone(check)),
        addresses: addresses.iter().map(|at| with_port(at, Some(check.port))).collect(),
        preface: Arc::default(),
        request: line.unwrap_or_default().into_bytes().into(),
        host: Arc::from(""),
    }
}

fn health_target(
    id: ServerId,
    pool: &Pool,
    server: &Upstream,
    check: &Arc<HealthCheck>,
    addresses: &[Address],
) -> Target {
    let (mut preface, mut request) = (Vec::new(), Vec::new());
    // Another port usually belongs to another program, which expects no PROXY header.
    if let Some(version) = pool.proxy_protocol.filter(|_| check.port.is_none()) {
        probe::encode_proxy_header(&mut preface, version);
    }
    let host = match &check.kind {
        CheckKind::Tcp => None,
        CheckKind::Http(http) => {
            probe::encode_request(&mut request, http, &server.address);
            http.host.as_deref()
        }
        CheckKind::Grpc(grpc) => grpc.host.as_deref(),
        CheckKind::WebSocket(websocket) => websocket.host.as_deref(),
    };
    Target {
        id,
        job: Job::Health(Arc::clone(check)),
        addresses: addresses.iter().map(|at| with_port(at, check.port)).collect(),
        preface: preface.into(),
        request: request.into(),
        host: probe::host_of(host, &server.address).into(),
    }
}

/// The TLS settings of checks: those of the pools, with the only protocol that their requests use.
pub(super) fn plan(arranged: &Arranged, plan: &TlsPlan) -> TlsPlan {
    let pools = plan.pools.iter().zip(&arranged.config.pools).map(|(plan, pool)| {
        let plan = plan.as_ref()?;
        let connector = match pool.health.as_ref().map(|health| &health.kind) {
            Some(CheckKind::Http(_) | CheckKind::WebSocket(_)) => plan.connector.with_http1_only(),
            Some(CheckKind::Grpc(_)) => plan.connector.with_http2_only(),
            Some(CheckKind::Tcp) | None => plan.connector.clone(),
        };
        Some(PoolPlan { connector, ..plan.clone() })
    });
    TlsPlan { listeners: Vec::new(), pools: pools.collect(), clock: plan.clock.clone() }
}
