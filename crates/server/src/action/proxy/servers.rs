//! Servers that take no requests for a time: their checks fail, or an operator has taken them out.
//! In: the statuses of its servers, results of requests. Out: the states of the pools; queued requests that can continue.
//! Never: ends an exchange: those with a server that is marked down are completed.

use std::collections::BTreeMap;

use tidegate_base::{Moment, Span};
use tidegate_gate::eject::EjectReason;
use tidegate_reactor::Reactor;

use crate::events::{self, EventKind};
use crate::health::ServerStatuses;
use crate::inspection::NamedEjection;
use crate::log;
use crate::state_transfer::PassedServer;
use crate::worker::Worker;

impl Worker {
    /// Applies the states of servers that checks, agents and operators have set.
    pub(crate) fn apply_server_statuses<R: Reactor>(
        &mut self,
        reactor: &mut R,
        statuses: &ServerStatuses,
    ) {
        for (pool, statuses) in statuses.iter().enumerate() {
            let now = reactor.now();
            if self
                .pools
                .get_mut(pool)
                .is_some_and(|pool| pool.state.apply_server_statuses(statuses, now))
            {
                self.note_unserved(pool as u16);
            }
        }
        self.settle(reactor);
    }

    /// The servers that this worker avoids because their requests have failed.
    pub(crate) fn ejections(&self, now: Moment) -> Vec<NamedEjection> {
        let names = &self.settings.newest().names;
        let pools = self.pools.iter().enumerate();
        let of_pools = pools.flat_map(|(pool, own)| {
            let ejections = own.state.ejections(now);
            ejections.map(move |(server, ejection)| {
                let (pool, server) = names.server(pool, server);
                ((pool.to_owned(), server.to_owned()), ejection)
            })
        });
        of_pools.collect()
    }

    /// Avoids the servers that the worker `own` of an earlier process avoided.
    pub(crate) fn resume_ejections(
        &mut self,
        own: usize,
        servers: &BTreeMap<(String, String), PassedServer>,
        now: Moment,
    ) {
        let names = &self.settings.newest().names;
        let ejected =
            servers.iter().filter_map(|(name, server)| Some((name, server.ejected.get(&own)?)));
        for ((pool_name, server_name), ejection) in ejected {
            let Some((pool, server)) = names.find_server(pool_name, server_name) else { continue };
            if let Some(pool) = self.pools.get_mut(pool) {
                pool.state.resume_ejection(server, *ejection, now);
            }
        }
    }

    /// Notes the result of a request. The server may be avoided for a while because of it (`eject`).
    /// `result`: whether it failed, and how long the response took, if there was one.
    pub(crate) fn note_result(
        &mut self,
        (pool, server): (u16, u16),
        result: (bool, Option<Span>),
        now: Moment,
    ) {
        let Some(state) = self.pools.get_mut(usize::from(pool)) else { return };
        let ejected = state.state.note_result(usize::from(server), result, now);
        let Some((span, reason)) = ejected else { return };
        self.accounts.counters.ejections.add(1);
        let names = &self.settings.newest().names;
        let (pool, server) = names.server(usize::from(pool), usize::from(server));
        let reason = match reason {
            EjectReason::Failures => "its requests fail",
            EjectReason::Latency => {
                "its responses take much longer than those of the other servers"
            }
        };
        let line =
            format_args!("pool {pool}: server {server} is ejected for {span:?}, because {reason}");
        log::warning(line);
        events::note(EventKind::Ejection, line);
    }
}
