//! What the prober checks: one target for each server of a pool with `health`.
//! In: the configuration in force and the addresses of its servers. Out: targets, ready to be connected to.
//! Invariant: a target has at least one address.

use std::sync::Arc;

use tidegate_base::Address;
use tidegate_config::arrange::Arranged;
use tidegate_config::model::{CheckKind, HealthCheck, Pool, Upstream};
use tidegate_gate::probe;
use tidegate_secure::{PoolPlan, ServerKey, TlsPlan};

use super::ServerId;
use crate::names::Addresses;

/// A server to check.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Target {
    /// Identifies the server.
    pub(crate) id: ServerId,
    /// The settings of its pool's checks.
    pub(crate) check: Arc<HealthCheck>,
    /// The addresses of the server, with the port of the check.
    pub(crate) addresses: Arc<[Address]>,
    /// What is sent before TLS: a PROXY header, or nothing.
    pub(crate) preface: Arc<[u8]>,
    /// The request; empty if only a connection is opened.
    pub(crate) request: Arc<[u8]>,
}

impl Target {
    /// The settings of TLS; `None`: the check does not use it.
    pub(crate) fn key(&self) -> Option<ServerKey> {
        let ServerId { pool, server, .. } = self.id;
        self.check.is_secured.then_some(ServerKey { pool, server, http1_only: false })
    }
}

/// All targets of a configuration.
pub(super) fn targets(arranged: &Arranged, addresses: &Addresses) -> Vec<Target> {
    let mut targets = Vec::new();
    let pools = arranged.config.pools.iter().zip(&arranged.pools).zip(addresses).enumerate();
    for (at, ((pool, life), addresses)) in pools {
        let Some(check) = pool.health.as_ref().filter(|_| !life.life.is_gone()) else { continue };
        let check = Arc::new(check.clone());
        let servers = pool.servers.iter().zip(&life.servers).zip(addresses).enumerate();
        for (server_at, ((server, life), addresses)) in servers {
            if !life.life.is_gone() {
                let (pool_at, server_at) = (at as u16, server_at as u16);
                let id = ServerId { pool: pool_at, server: server_at, since: life.life.since };
                targets.push(target(id, pool, server, &check, addresses));
            }
        }
    }
    targets
}

fn target(
    id: ServerId,
    pool: &Pool,
    server: &Upstream,
    check: &Arc<HealthCheck>,
    addresses: &[Address],
) -> Target {
    let with_port = |address: &Address| match (address, check.port) {
        (Address::Tcp(address), Some(port)) => {
            let mut address = *address;
            address.set_port(port);
            Address::Tcp(address)
        }
        (address, _) => address.clone(),
    };
    let (mut preface, mut request) = (Vec::new(), Vec::new());
    // Another port usually belongs to another program, which expects no PROXY header.
    if let Some(version) = pool.proxy_protocol.filter(|_| check.port.is_none()) {
        probe::encode_proxy_header(&mut preface, version);
    }
    match &check.kind {
        CheckKind::Tcp => {}
        CheckKind::Http(http) => probe::encode_request(&mut request, http, &server.address),
    }
    Target {
        id,
        check: Arc::clone(check),
        addresses: addresses.iter().map(with_port).collect(),
        preface: preface.into(),
        request: request.into(),
    }
}

/// The TLS settings of checks: those of the pools, with HTTP/1.1 as the only protocol of requests.
pub(super) fn plan(arranged: &Arranged, plan: &TlsPlan) -> TlsPlan {
    let pools = plan.pools.iter().zip(&arranged.config.pools).map(|(plan, pool)| {
        let plan = plan.as_ref()?;
        let connector = match pool.health.as_ref().map(|health| &health.kind) {
            Some(CheckKind::Http(_)) => plan.connector.with_http1_only(),
            Some(CheckKind::Tcp) | None => plan.connector.clone(),
        };
        Some(PoolPlan { connector, ..plan.clone() })
    });
    TlsPlan { listeners: Vec::new(), pools: pools.collect(), clock: plan.clock.clone() }
}
