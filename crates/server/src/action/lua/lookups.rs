//! Lookups of names by Lua applications (`tide.dns`).
//! In: `Effect::Lookup`; datagrams of name servers. Out: queries over UDP sockets; results for the VMs.
//! Never: uses a socket for two queries: with a new socket, the kernel chooses another port, so an attacker has to guess the
//! port and the id of the query (RFC 5452).
//! Limits: those of `gate/src/lookups.rs`, which decides what is asked and what is kept.
//! Invariant: between two turns, each lookup in progress has one socket, and each socket belongs to one of them.
//!
//! The worker sends the queries itself, because the resolver of the system would block, and returns neither the time for which a
//! record may be kept nor records other than addresses.

use core::net::SocketAddr;

use serde_json::{Value, json};
use tidegate_base::{Moment, Prng};
use tidegate_gate::lookups::{Asked, Fault, Found, LookupId, Lookups, Query, Step};
use tidegate_lua::OperationId;
use tidegate_reactor::{DatagramId, DatagramSent, Reactor};
use tidegate_wire::dns::{Question, Record};

use crate::carrier::internal_request::AppCaller;
use crate::datagrams::DatagramUser;
use crate::timers::WorkerTimer;
use crate::worker::Worker;

/// The lookups of a worker.
pub(crate) struct LookupState {
    pub(super) table: Lookups<AppCaller>,
    /// The socket of each query in progress.
    sockets: Vec<(LookupId<AppCaller>, DatagramId)>,
    /// The source of query ids. Only name servers see these ids, so no other host can derive the next ids.
    prng: Prng,
}

impl LookupState {
    /// No lookups. `seed` determines the ids of queries.
    pub(crate) fn new(seed: u64) -> Self {
        Self { table: Lookups::default(), sockets: Vec::new(), prng: Prng::new(seed) }
    }

    /// Lookups in progress.
    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }

    /// The sockets of their queries.
    pub(crate) fn sockets(&self) -> usize {
        self.sockets.len()
    }

    /// Newer code of an application is in force: callers that wait belong to the earlier VM, whose index is now `to`.
    pub(crate) fn rename_app(&mut self, from: usize, to: usize) {
        self.table.change_waiting(|caller| {
            if usize::from(caller.app) == from {
                caller.app = to as u16;
            }
        });
    }
}

/// Effects that scripts request.
impl Worker {
    /// Makes the ids of queries unpredictable.
    pub(crate) fn seed_lookups(&mut self, seed: u64) {
        self.lookups = LookupState::new(seed);
    }

    /// Carries out `Effect::Lookup`.
    pub(super) fn look_up<R: Reactor>(
        &mut self,
        reactor: &mut R,
        app: usize,
        operation: OperationId,
        question: &Question,
    ) {
        let now = reactor.now();
        let caller = AppCaller { app: app as u16, life: self.lua.apps.life(app), operation };
        self.accounts.counters.lua_lookups.add(1);
        if self.stopping && self.conns.downstream_count() == 0 {
            return self.tell_found(caller, &Err(Fault::Stopping), now);
        }
        match self.lookups.table.ask(question.clone(), app as u32, caller, now) {
            Asked::Known(found) => self.tell_found(caller, &found, now),
            Asked::Joined => {}
            Asked::Begun(id) => self.send_query(reactor, id),
        }
    }

    /// Sends the next query of a lookup, or ends it.
    fn send_query<R: Reactor>(&mut self, reactor: &mut R, id: LookupId<AppCaller>) {
        let now = reactor.now();
        self.close_query(reactor, id);
        loop {
            let servers = &self.settings.newest().name_servers;
            let number = self.lookups.prng.below(1 << 16) as u16;
            let query = self.lookups.table.next_query(id, servers.len(), number, now);
            let Some(query) = query else {
                let step = self.lookups.table.end(id, now);
                return self.note_lookup(reactor, id, step);
            };
            let server = servers.get(query.server).copied();
            let Some(socket) = server.and_then(|server| send_query_to(reactor, server, &query))
            else {
                self.lookups.table.note_unreachable(id);
                continue;
            };
            self.accounts.counters.dns_queries.add(1);
            self.datagrams.insert(socket, DatagramUser::Lookup(id));
            self.lookups.sockets.push((id, socket));
            return WorkerTimer::Names.set(reactor, self.lookups.table.first_due());
        }
    }

    fn close_query<R: Reactor>(&mut self, reactor: &mut R, id: LookupId<AppCaller>) {
        let sockets = &mut self.lookups.sockets;
        if let Some(at) = sockets.iter().position(|(of, _)| *of == id) {
            let (_, socket) = sockets.swap_remove(at);
            self.close_datagram_socket(reactor, socket);
        }
    }

    /// Carries out the next step of a lookup after an event.
    fn note_lookup<R: Reactor>(
        &mut self,
        reactor: &mut R,
        id: LookupId<AppCaller>,
        step: Step<AppCaller>,
    ) {
        match step {
            Step::Waits => {}
            Step::Again => self.send_query(reactor, id),
            Step::Ended(waiting, found) => {
                self.close_query(reactor, id);
                for caller in waiting {
                    self.tell_found(caller, &found, reactor.now());
                }
                WorkerTimer::Names.set(reactor, self.lookups.table.first_due());
            }
        }
    }

    /// Gives a result to a VM.
    fn tell_found(&mut self, caller: AppCaller, found: &Found, now: Moment) {
        let AppCaller { app, life, operation } = caller;
        let text = found.as_ref().map(|found| {
            let records: Vec<Value> = found.records.iter().map(value_of).collect();
            json!({ "records": records, "seconds": found.until.since(now).as_secs() }).to_string()
        });
        let result = text.as_ref().map(String::as_bytes).map_err(|fault| fault.text());
        self.lua.apps.complete(usize::from(app), life, operation, result);
    }
}

/// Events of name servers and of the timer.
impl Worker {
    /// A datagram has arrived for a lookup.
    pub(super) fn take_dns_answer<R: Reactor>(
        &mut self,
        reactor: &mut R,
        id: LookupId<AppCaller>,
        bytes: &[u8],
    ) {
        let step = self.lookups.table.take_answer(id, bytes, reactor.now());
        self.note_lookup(reactor, id, step);
    }

    /// The host of a name server has refused a query.
    pub(super) fn dns_query_refused<R: Reactor>(
        &mut self,
        reactor: &mut R,
        id: LookupId<AppCaller>,
    ) {
        self.lookups.table.note_unreachable(id);
        self.send_query(reactor, id);
    }

    /// `WorkerTimer::Names` has expired.
    pub(crate) fn lookups_due<R: Reactor>(&mut self, reactor: &mut R) {
        while let Some(id) = self.lookups.table.next_late(reactor.now()) {
            self.send_query(reactor, id);
        }
        WorkerTimer::Names.set(reactor, self.lookups.table.first_due());
    }

    /// Ends all lookups at the end of a stop.
    pub(super) fn end_lookups<R: Reactor>(&mut self, reactor: &mut R) {
        while let Some((id, step)) = self.lookups.table.end_next(reactor.now()) {
            self.note_lookup(reactor, id, step);
        }
    }
}

/// Sends a query over a socket of its own. `None` if this host cannot send it.
fn send_query_to<R: Reactor>(
    reactor: &mut R,
    server: SocketAddr,
    query: &Query,
) -> Option<DatagramId> {
    let socket = reactor.open_datagrams(server).ok()?;
    if reactor.send_datagram(socket, &query.bytes) != DatagramSent::Sent {
        reactor.close_datagrams(socket);
        return None;
    }
    Some(socket)
}

/// A record as scripts get it.
fn value_of(record: &Record) -> Value {
    match record {
        Record::A(address) => json!(address.to_string()),
        Record::Aaaa(address) => json!(address.to_string()),
        Record::Srv { priority, weight, port, target } => {
            json!({ "priority": priority, "weight": weight, "port": port, "target": target })
        }
        Record::Txt(text) => json!(String::from_utf8_lossy(text)),
    }
}
