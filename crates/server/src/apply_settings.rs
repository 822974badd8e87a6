//! Changes the settings of a running worker: a new snapshot takes the place of the current one between two turns.
//! In: a snapshot whose indexes continue those of the previous one (`config::arrange`). Out: listeners opened and closed;
//! pools with their new servers; connections that use the new settings; the removed parts that are still in use.
//! Never: ends a request. Requests keep the settings that they began with.
//! Limits: settings of `GENERATIONS_MAX` generations; if all are in use, the requests of the oldest continue with the
//! newest settings (`settings_adopted`).
//! Invariant: after a change, only client connections with a request in progress, and streams, use an earlier
//! generation. A removed part is in `removed` until nothing uses it.

use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::{Arc, Mutex};

use tidegate_base::{Moment, Span};
use tidegate_config::arrange::{self, Arranged, Generation, PartIndex};
use tidegate_config::findings::Finding;
use tidegate_config::model::{Bind, Forward, Listener};
use tidegate_gate::overload::Admission;
use tidegate_reactor::{ListenError, ListenOptions, ListenerId, Reactor, SockId};
use tidegate_wire::websocket::Close;

use crate::action::Running;
use crate::carrier::http1::client::Phase;
use crate::client_places::HeldPlaces;
use crate::connection::{ClientCarrier, Downstream, ServerCarrier};
use crate::drain::{self, Drain};
use crate::requester::Requester;
use crate::settings::Era;
use crate::snapshot::Snapshot;
use crate::timers::WorkerTimer;
use crate::worker::{Work, Worker, WorkerPool};

/// How long idle connections of a removed listener stay open. A client that has just received a response may send its
/// next request without knowing of the removal (RFC 9112 section 9.6); that request is still answered.
const LEAVE_IDLE_SPAN: Span = Span::from_millis(250);
/// How often a worker checks whether removed parts are still in use.
const REMOVED_CHECK_SPAN: Span = Span::from_millis(100);

/// The listeners of a worker, and their client connections.
#[derive(Default)]
pub(crate) struct Listening {
    /// The open listeners, by their index in the configuration.
    pub(crate) open: Vec<OpenListener>,
    /// By listener: its client connections.
    pub(crate) users: Vec<u32>,
    /// The places of connections of listeners that limit the connections of each address.
    pub(crate) held_places: HeldPlaces,
}

/// A listener of a worker.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OpenListener {
    /// The listener in the reactor.
    pub(crate) id: ListenerId,
    /// Its index in the configuration.
    pub(crate) index: u16,
    /// The listener was removed and only accepts the connections that wait in its backlog.
    pub(crate) is_closing: bool,
}

/// The removed parts that a worker still uses. Written by the worker, read by the thread that reloads.
pub type InUse = Arc<Mutex<PartsInUse>>;

/// See [`InUse`].
#[derive(Default, Debug)]
pub struct PartsInUse {
    /// The generation of settings that the worker has applied.
    pub generation: Generation,
    /// The removed parts that it uses.
    pub places: BTreeSet<PartIndex>,
}

/// The removed parts of `arranged` that a worker uses or may use.
#[must_use]
pub fn removed_in_use(workers: &[InUse], arranged: &Arranged) -> BTreeSet<PartIndex> {
    let mut in_use = BTreeSet::new();
    for worker in workers {
        match worker.lock() {
            Ok(parts) if parts.generation == arranged.generation => in_use.extend(&parts.places),
            // The worker has not applied the settings yet.
            _ => return arranged.removed().collect(),
        }
    }
    in_use
}

/// Why a worker cannot use other settings.
#[derive(Debug)]
pub enum ChangeError {
    /// The kernel refused a new listener.
    Listener(ListenError),
    /// A script of a Lua application has an error.
    Scripts(Vec<Finding>),
}

impl core::fmt::Display for ChangeError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Listener(error) => write!(f, "{error}"),
            Self::Scripts(findings) => {
                let lines = findings.iter().map(|one| format!("{}: {}", one.subject, one.what));
                write!(f, "{}", lines.collect::<Vec<_>>().join("; "))
            }
        }
    }
}
impl std::error::Error for ChangeError {}

/// The removed parts that a worker uses.
#[derive(Default)]
pub(crate) struct RemovedParts {
    /// The parts. A part that is no longer in use is removed within `REMOVED_CHECK_SPAN`.
    places: BTreeSet<PartIndex>,
    /// When the worker checks them again.
    check_at: Moment,
    /// Where they are published; `None` if no thread reloads.
    published: Option<InUse>,
    /// `published` is to be written.
    is_changed: bool,
    /// How WebSockets of removed listeners and servers are closed. Their steps begin with the timer `Leave`.
    drain: Drain,
    /// Steps are in progress.
    is_draining: bool,
    /// When the next step is due.
    step_at: Moment,
    /// More parts were removed during the steps, which begin again after the last one.
    drains_again: bool,
    /// When idle connections of removed listeners are closed at the earliest: before that, a request may be on its way.
    idle_at: Moment,
}

impl RemovedParts {
    /// Writes the parts where the thread that reloads finds them, unless that thread is reading them at this moment.
    fn publish(&mut self, generation: Generation) {
        let Some(published) = self.published.as_ref().filter(|_| self.is_changed) else { return };
        if let Ok(mut parts) = published.try_lock() {
            parts.generation = generation;
            parts.places.clone_from(&self.places);
            self.is_changed = false;
        }
    }
}

/// The change as a whole.
impl Worker {
    /// Uses the settings of `snapshot` from now on. Called between two turns.
    ///
    /// # Errors
    /// The kernel refused a new listener, or a script has an error. Nothing has changed.
    pub fn change_settings<R: Reactor>(
        &mut self,
        reactor: &mut R,
        snapshot: Snapshot,
        adopted: &[(usize, ListenerId)],
    ) -> Result<(), ChangeError> {
        if self.stopping {
            return Ok(());
        }
        let snapshot = Rc::new(snapshot);
        let successors = self.successors(reactor, &snapshot).map_err(ChangeError::Scripts)?;
        self.open_listeners(reactor, &snapshot, adopted).map_err(ChangeError::Listener)?;
        if !self.settings.has_room() {
            self.adopt_requests(self.settings.oldest());
        }
        if snapshot.process.is_held_by_requests() {
            self.recorder.hold_state();
        }
        let earlier = core::mem::replace(&mut self.addresses, Arc::clone(&snapshot.addresses));
        self.settings.replace(Rc::clone(&snapshot));
        if snapshot.config.server.overload.is_none() {
            self.admission = Admission::default();
        }
        self.push.change_keys(&snapshot.hubs);
        self.renew_mirrors();
        self.accounts.counters.settings_changes.add(1);
        self.change_pools(reactor, &snapshot);
        self.adopt_addresses(reactor, &earlier);
        self.close_removed_listeners(reactor, &snapshot);
        self.renew_clients(reactor, &snapshot);
        self.renew_own();
        self.close_stale_idle(reactor, &snapshot);
        self.end_outdated_connections(reactor);
        self.note_gone(&snapshot);
        self.drain_removed(reactor);
        self.change_apps(reactor, successors);
        self.settle(reactor);
        self.move_records();
        Ok(())
    }

    /// From now on, publishes in `published` which removed parts the worker still uses.
    pub fn publish_in_use(&mut self, published: InUse) {
        self.removed.published = Some(published);
    }

    /// The worker's listeners, each with its index in the configuration. Those that were removed are included until
    /// they are closed.
    #[must_use]
    pub fn listeners(&self) -> Vec<(ListenerId, u16)> {
        self.listening.open.iter().map(|listener| (listener.id, listener.index)).collect()
    }
}

/// Listeners.
impl Worker {
    /// Opens the listeners of `snapshot` that are not open. If one is refused, none is opened.
    pub(crate) fn open_listeners<R: Reactor>(
        &mut self,
        reactor: &mut R,
        snapshot: &Snapshot,
        adopted: &[(usize, ListenerId)],
    ) -> Result<(), ListenError> {
        let mut opened = Vec::new();
        for (index, listener) in snapshot.config.listeners.iter().enumerate() {
            if snapshot.is_listener_gone(index as u16) || self.is_open(index as u16) {
                continue;
            }
            // An earlier process with more workers may have passed on several sockets of this address.
            let ids = adopted.iter().filter(|(at, _)| *at == index).map(|(_, id)| *id);
            let before = opened.len();
            opened.extend(ids.map(|id| OpenListener {
                id,
                index: index as u16,
                is_closing: false,
            }));
            if opened.len() > before {
                continue;
            }
            let address = snapshot.listener_address(index);
            match reactor.listen(&address, &self.options_of(listener)) {
                Ok(id) => {
                    opened.push(OpenListener { id, index: index as u16, is_closing: false });
                }
                Err(error) => {
                    opened.into_iter().for_each(|listener| reactor.stop_listening(listener.id));
                    return Err(error);
                }
            }
        }
        self.listening.open.extend(opened);
        self.listening.open.sort_by_key(|listener| listener.index);
        Ok(())
    }

    /// Whether the listener is open and not about to close.
    fn is_open(&self, index: u16) -> bool {
        self.listening.open.iter().any(|listener| listener.index == index && !listener.is_closing)
    }

    fn options_of(&self, listener: &Listener) -> ListenOptions {
        let tcp = matches!(listener.bind, Bind::Tcp(_));
        ListenOptions {
            backlog: listener.backlog,
            reuse_port: tcp,
            steer_by_cpu_over: (tcp && self.steers()).then_some(self.workers()),
        }
    }

    /// Stops the listeners that were removed, after they have accepted the connections in their backlogs.
    fn close_removed_listeners<R: Reactor>(&mut self, reactor: &mut R, snapshot: &Snapshot) {
        self.listening.open.retain(|listener| reactor.listener_address(listener.id).is_some());
        for listener in &mut self.listening.open {
            if snapshot.is_listener_gone(listener.index) && !listener.is_closing {
                listener.is_closing = true;
                reactor.stop_listening(listener.id);
            }
        }
    }

    /// Begins to close the client connections of removed parts, unless no removed part is in use.
    fn drain_removed<R: Reactor>(&mut self, reactor: &mut R) {
        if self.removed.places.is_empty() {
            return;
        }
        self.removed.idle_at = reactor.now().after(LEAVE_IDLE_SPAN);
        if core::mem::replace(&mut self.removed.is_draining, true) {
            self.removed.drains_again = true;
            let at = self.removed.idle_at.min(self.removed.step_at);
            return WorkerTimer::RemovedListeners.set(reactor, at);
        }
        let span = self.settings.newest().config.server.drain.reload;
        self.removed.drain = Drain::over(span, drain::LEAVES);
        self.removed.step_at = self.removed.idle_at;
        WorkerTimer::RemovedListeners.set(reactor, self.removed.idle_at);
    }

    /// Closes the idle connections of removed listeners, and the WebSockets that are due in this step. Connections that have had no request
    /// may still send one.
    pub(crate) fn close_idle_of_removed<R: Reactor>(&mut self, reactor: &mut R) {
        let drain = self.removed.drain;
        let now = reactor.now();
        let closes_idle = now >= self.removed.idle_at;
        for sock in self.conns.downstream_ids() {
            let Some(down) = self.conns.downstream(sock) else { continue };
            let is_idle = down.requests > 0 && down.has_nothing_under_way();
            let is_gone = self.settings.newest().is_listener_gone(down.listener);
            match &down.carrier {
                ClientCarrier::Http1(_) if is_idle && is_gone && closes_idle => {
                    self.close_client(reactor, sock);
                }
                ClientCarrier::Http1(http1) if drain.is_due(sock) => {
                    if let Some(running) = http1.switched_to()
                        && let Some(close) = self.close_of_removed(running, is_gone)
                    {
                        self.stop_switched(reactor, running, close);
                    }
                }
                ClientCarrier::Http2(_) if drain.is_due(sock) => {
                    self.stop_switched_streams(reactor, sock, |worker, running| {
                        worker.close_of_removed(running, is_gone)
                    });
                }
                ClientCarrier::Http1(_) | ClientCarrier::Http2(_) | ClientCarrier::Tcp(_) => {}
            }
        }
        if now >= self.removed.step_at {
            match self.removed.drain.advance() {
                Some(wait) => self.removed.step_at = now.after(wait),
                None => self.removed.is_draining = false,
            }
        }
        if self.removed.is_draining {
            return WorkerTimer::RemovedListeners.set(reactor, self.removed.step_at);
        }
        if core::mem::take(&mut self.removed.drains_again) {
            self.drain_removed(reactor);
        }
    }

    /// The Close frame for the client of an upgraded connection whose listener (`is_gone`) or server was removed.
    pub(crate) fn close_of_removed(
        &self,
        running: Running,
        is_gone: bool,
    ) -> Option<Close<'static>> {
        match running {
            _ if is_gone => Some(drain::LEAVES),
            Running::Proxy(id) => {
                let exchange = self.exchanges.find(id)?;
                let (pool, server) = (exchange.pool, exchange.attempt.server);
                let is_removed = self.settings.newest().is_server_gone(pool, server);
                is_removed.then_some(drain::RESTARTS)
            }
            Running::None
            | Running::Synthetic(_)
            | Running::Lua(_)
            | Running::Unverified(_)
            | Running::Tarpit(_)
            | Running::Push(_)
            | Running::WebSocket(_) => None,
        }
    }
}

/// Client connections.
impl Worker {
    /// Lets connections without a request in progress use the current settings, and ends those of removed listeners
    /// after their responses.
    fn renew_clients<R: Reactor>(&mut self, reactor: &mut R, snapshot: &Snapshot) {
        for sock in self.conns.downstream_ids() {
            let Some(down) = self.conns.downstream(sock) else { continue };
            let is_gone = snapshot.is_listener_gone(down.listener);
            let is_http2 = match &mut down.carrier {
                ClientCarrier::Http1(http1) => match &mut http1.phase {
                    Phase::Request(request) => {
                        request.keep &= !is_gone;
                        continue;
                    }
                    // Such a connection may last for days.
                    Phase::Switched(running) => {
                        let running = *running;
                        self.adopt_action(running);
                        false
                    }
                    Phase::ProxyHeader
                    | Phase::Http2
                    | Phase::Head { .. }
                    | Phase::Discard { .. } => false,
                },
                ClientCarrier::Http2(_) => true,
                ClientCarrier::Tcp(tcp) => {
                    let running = tcp.running();
                    self.adopt_action(running);
                    false
                }
            };
            self.renew_client(sock);
            if is_http2 && is_gone {
                self.stop_http2_client(reactor, sock);
            }
        }
    }

    /// Ends the connections whose peers were verified by other rules than those of now (authorities, revocation lists), after the
    /// requests in progress. Further requests of clients on them are refused.
    pub fn end_outdated_connections<R: Reactor>(&mut self, reactor: &mut R) {
        self.end_outdated_clients(reactor);
        self.end_outdated_servers(reactor);
    }

    fn end_outdated_clients<R: Reactor>(&mut self, reactor: &mut R) {
        for sock in self.conns.downstream_ids() {
            let Some(down) = self.conns.downstream(sock) else { continue };
            if !reactor.is_outdated(sock, down.listener) {
                continue;
            }
            let is_idle = down.requests > 0 && down.has_nothing_under_way();
            match &mut down.carrier {
                ClientCarrier::Http1(_) if is_idle => self.close_client(reactor, sock),
                ClientCarrier::Http1(http1) => {
                    if let Phase::Request(request) = &mut http1.phase {
                        request.keep = false;
                    }
                }
                ClientCarrier::Http2(_) => self.stop_http2_client(reactor, sock),
                ClientCarrier::Tcp(_) => {}
            }
        }
    }

    fn end_outdated_servers<R: Reactor>(&mut self, reactor: &mut R) {
        for sock in self.conns.upstream_ids() {
            if reactor.is_server_outdated(sock) {
                self.outdate_upstream(reactor, sock);
            }
        }
    }

    /// Lets a connection use the current settings, because none of its requests uses the settings that it has.
    pub(crate) fn renew_client(&mut self, sock: SockId) {
        let era = self.settings.era();
        if let Some(down) = self.conns.downstream(sock).filter(|down| down.era() != era) {
            self.settings.end_use(down.era());
            down.set_era(self.settings.begin_use());
        }
    }

    /// Lets an action use the current settings.
    pub(crate) fn adopt_action(&mut self, running: Running) {
        let era = self.settings.era();
        match running {
            Running::Proxy(id) => {
                if let Some(exchange) = self.exchanges.get_mut(id) {
                    exchange.adopt(era);
                }
            }
            Running::Unverified(id) => {
                if let Some(request) = self.unverified.get_mut(id) {
                    request.forget_route();
                }
            }
            // These hold no index whose meaning changes.
            Running::None
            | Running::Synthetic(_)
            | Running::Lua(_)
            | Running::Tarpit(_)
            | Running::Push(_)
            | Running::WebSocket(_) => {}
        }
    }

    /// Lets the requests of a generation use the current settings, so that another generation can begin. The meaning of
    /// the indexes of their listeners, pools and servers does not change. Their responses use the filters of the
    /// listener, because the filters of their routes may have changed.
    fn adopt_requests(&mut self, era: Era) {
        let current = self.settings.era();
        for sock in self.conns.downstream_ids() {
            let Some(down) = self.conns.downstream(sock) else { continue };
            let running = down.running();
            let filters = self
                .settings
                .newest()
                .handlings
                .listener_filters(usize::from(down.listener), down.scheme);
            let streams = match &down.carrier {
                ClientCarrier::Http2(http2) => http2.streams().to_vec(),
                ClientCarrier::Http1(_) | ClientCarrier::Tcp(_) => Vec::new(),
            };
            if down.era() == era {
                self.accounts.counters.settings_adopted.add(1);
                self.renew_client(sock);
                self.adopt_action(running);
                self.set_filters(Requester::connection(sock), filters);
            }
            for id in streams {
                let Some(stream) = self.http2_clients.get_mut(id).filter(|s| s.era == era) else {
                    continue;
                };
                stream.era = current;
                stream.set_filters(filters);
                let running = stream.running();
                self.settings.end_use(era);
                self.settings.begin_use();
                self.accounts.counters.settings_adopted.add(1);
                self.adopt_action(running);
            }
        }
    }
}

/// Pools.
impl Worker {
    /// Gives every pool its new settings. Its load, its queue and its idle connections stay.
    fn change_pools<R: Reactor>(&mut self, reactor: &mut R, snapshot: &Snapshot) {
        for (index, settings) in snapshot.config.pools.iter().enumerate() {
            let life = &snapshot.pool_lives[index];
            let (own, workers) = self.place_among_workers();
            let known = self.pools.get(index).is_some_and(|pool| pool.since == life.life.since);
            if known && life.life.is_gone() {
                continue;
            }
            if !known {
                let mut pool = WorkerPool::new(settings, self.seed);
                pool.since = life.life.since;
                pool.share(own, workers);
                match self.pools.get_mut(index) {
                    Some(place) => pool.permits.succeed(&mut place.permits),
                    None => self.take_early_requests(index as u16, &mut pool),
                }
                pool.change(settings, &life.servers, own, workers);
                // Other workers may request its permits.
                pool.unserved = true;
                self.work.push(Work::ServeQueue(index as u16));
                match self.pools.get_mut(index) {
                    Some(place) => {
                        // `short_pools` may still contain the index.
                        pool.is_short = place.is_short;
                        *place = pool;
                    }
                    None => self.pools.push(pool),
                }
                continue;
            }
            self.pools[index].change(settings, &life.servers, own, workers);
            for server in 0..settings.servers.len() {
                self.trim_idle(reactor, index as u16, server);
                while self.pools[index].idle.has_excess(server)
                    && let Some(sock) = self.pools[index].idle.pop_oldest(server, reactor.now())
                {
                    self.close_upstream(reactor, sock);
                }
            }
            if !core::mem::replace(&mut self.pools[index].unserved, true) {
                // A waiting request may be able to use a new server.
                self.work.push(Work::ServeQueue(index as u16));
            }
        }
    }

    /// Closes the idle connections to servers that were removed, or whose connection settings (TLS, PROXY header) have changed.
    fn close_stale_idle<R: Reactor>(&mut self, reactor: &mut R, snapshot: &Snapshot) {
        for sock in self.conns.upstream_ids() {
            // Closing one connection may close another.
            let Some(up) = self.conns.upstream(sock) else { continue };
            if snapshot.may_keep(up.pool, up.server, up.generation) {
                continue;
            }
            match (up.is_idle(), &up.carrier) {
                (true, _) => self.retire_upstream(reactor, sock),
                // The requests on the connection continue.
                (false, ServerCarrier::Http2(_)) => self.retire_http2_server(sock),
                (false, ServerCarrier::Http1(_)) => {}
            }
        }
    }
}

/// Removed parts.
impl Worker {
    /// Notes which parts were removed, if they are still in use.
    fn note_gone(&mut self, snapshot: &Snapshot) {
        let removed = arrange::removed(&snapshot.listener_lives, &snapshot.pool_lives);
        self.removed.places = removed.filter(|place| self.is_in_use(*place)).collect();
        self.removed.is_changed = true;
        self.removed.publish(snapshot.generation);
    }

    /// Checks which removed parts are still in use, if it is time to check.
    pub(crate) fn check_removed<R: Reactor>(&mut self, reactor: &R) {
        if self.removed.places.is_empty() && !self.removed.is_changed
            || reactor.now() < self.removed.check_at
        {
            return;
        }
        self.removed.check_at = reactor.now().after(REMOVED_CHECK_SPAN);
        self.listening.open.retain(|listener| reactor.listener_address(listener.id).is_some());
        let before = self.removed.places.len();
        let mut places = core::mem::take(&mut self.removed.places);
        places.retain(|place| self.is_in_use(*place));
        self.removed.is_changed |= places.len() < before;
        self.removed.places = places;
        let generation = self.settings.newest().generation;
        self.removed.publish(generation);
    }

    /// How many removed parts are in use.
    pub(crate) fn count_removed_in_use(&self) -> usize {
        let in_use = |place: &&PartIndex| match place {
            // A listener that is about to close does not count as in use.
            PartIndex::Listener(index) => self.has_listener_users(*index),
            PartIndex::Pool(_) | PartIndex::Server(..) => self.is_in_use(**place),
        };
        self.removed.places.iter().filter(in_use).count()
    }

    /// Whether a client connection of this listener is open.
    fn has_listener_users(&self, index: u16) -> bool {
        self.listening.users.get(usize::from(index)).is_some_and(|users| *users > 0)
    }

    /// Whether a connection or a request refers to the part.
    fn is_in_use(&self, place: PartIndex) -> bool {
        let pool = |index: u16| self.pools.get(usize::from(index));
        match place {
            PartIndex::Listener(index) => {
                self.listening.open.iter().any(|listener| listener.index == index)
                    || self.has_listener_users(index)
            }
            PartIndex::Pool(_) | PartIndex::Server(..) if self.is_earlier_request_unsent() => true,
            PartIndex::Pool(index) => pool(index).is_some_and(|pool| {
                let mut servers = 0..pool.state.len();
                pool.exchanges > 0
                    || servers.any(|server| pool.shared.connection_count(server) > 0)
                    || self.is_forwarded_to(index)
            }),
            PartIndex::Server(index, server) => pool(index).is_some_and(|pool| {
                let server = usize::from(server);
                pool.state.in_use(server) > 0
                    || pool.idle.count(server) > 0
                    || pool.shared.connection_count(server) > 0
                    || pool.kept.get(server).is_some_and(|kept| *kept > 0)
            }),
        }
    }

    /// Whether a removed listener that still has connections, or accepts those of its backlog, forwards to the pool.
    fn is_forwarded_to(&self, pool: u16) -> bool {
        let snapshot = self.settings.newest();
        let mut listeners = (0..).zip(&snapshot.config.listeners);
        listeners.any(|(at, listener)| {
            let names = |of: &Forward| of.pools().any(|known| known == usize::from(pool));
            listener.forward.as_ref().is_some_and(names)
                && snapshot.is_listener_gone(at)
                && self.is_in_use(PartIndex::Listener(at))
        })
    }

    /// Whether a request that began with earlier settings has not begun its action yet. It may still be forwarded to any
    /// pool of them.
    fn is_earlier_request_unsent(&self) -> bool {
        self.is_earlier_hook_waiting() || self.is_earlier_request_unverified()
    }

    /// A client connection of this listener was accepted.
    pub(crate) fn note_listener_user(&mut self, listener: u16) {
        let at = usize::from(listener);
        if at >= self.listening.users.len() {
            self.listening.users.resize(at + 1, 0);
        }
        self.listening.users[at] += 1;
    }

    /// A client connection has ended.
    pub(crate) fn end_listener_user(&mut self, down: &Downstream) {
        if let Some(users) = self.listening.users.get_mut(usize::from(down.listener)) {
            debug_assert!(*users > 0, "a connection of a listener has ended twice");
            *users = users.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use tidegate_gate::overload::Turn;
    use tidegate_reactor::{Faults, SimNet, SimReactor};

    use super::*;
    use crate::counters::Accounts;
    use crate::worker::WorkerLimits;

    #[test]
    fn without_the_setting_no_request_is_refused_because_of_overload() {
        let snapshot = |server: &str| {
            let text = format!(
                "{server}[[listener]]\nbind = \"10.0.0.1:80\"\n[[route]]\nsynthetic = true\n"
            );
            let config = tidegate_config::parse(&text, "the test").expect("it is valid");
            Snapshot::new(config, Vec::new())
        };
        let limits = WorkerLimits { exchanges_max: 16, workers: 1, steer_by_cpu: false };
        let first = Rc::new(snapshot("[server]\noverload = {}\n"));
        let overload = first.config.server.overload.expect("it is set");
        let mut worker = Worker::new(first, Arc::new(Accounts::default()), limits, 1);
        let mut reactor = SimReactor::new(&SimNet::new(1, Faults::none()), 32);
        for turn in 1..20 {
            let began = Moment::ZERO.after(overload.interval * turn);
            let turn = Turn { began, idle: Span::ZERO, behind: 0, is_put_off: false };
            worker.admission.note_turn(&overload, turn);
        }
        assert!(worker.admission.is_refusing());
        assert!(worker.change_settings(&mut reactor, snapshot(""), &[]).is_ok());
        assert!(!worker.admission.is_refusing());
    }
}
