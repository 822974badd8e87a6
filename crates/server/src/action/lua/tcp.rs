//! Sockets of Lua applications (`tide.tcp`): tunnels between a VM and a server of a pool.
//! In: `Effect::Connect` and what follows it; bytes and the end of the connection, from the port towards clients
//! (`carrier/client.rs`). Out: an internal request (`carrier/internal_request.rs`) whose exchange has no HTTP, as in TCP mode
//! (`proxy/tcp.rs`); bytes for the VM.
//! Never: connects to a server of a pool that the application does not list.
//! Limits: `requests-max` of the application; the pool's queue, connections, attempts and timeouts; a socket ends if no byte is
//! transferred for `timeouts.tunnel` of the pool. Input that a script does not read stops its server.
//! Invariant: between two turns, each socket of a VM that has not ended has an internal request, which names the socket.

use tidegate_base::{Id, Span};
use tidegate_gate::access::Phase;
use tidegate_lua::SocketId;
use tidegate_reactor::Reactor;

use crate::action::Running;
use crate::action::proxy::exchange::{Exchange, Stage};
use crate::action::proxy::tunnel::Side;
use crate::carrier::internal_request::{
    AppSocket, Caller, InternalRequest, NO_MEMORY, id_of, tag_of,
};
use crate::requester::Requester;
use crate::worker::Worker;

/// The error of a socket whose connection was closed.
const CLOSED: &str = "closed";

/// Effects that scripts request.
impl Worker {
    /// Carries out `Effect::Connect`.
    pub(super) fn connect_lua_socket<R: Reactor>(
        &mut self,
        reactor: &mut R,
        app: usize,
        (socket, pool): (SocketId, usize),
    ) {
        let life = self.lua.apps.life(app);
        if let Err(why) = self.begin_lua_socket_exchange(reactor, (app, life), (socket, pool)) {
            self.accounts.counters.lua_refused_requests.add(1);
            if let Some(vm) = self.lua.apps.present(app) {
                vm.socket_ended(life, socket, why);
            }
        }
    }

    fn begin_lua_socket_exchange<R: Reactor>(
        &mut self,
        reactor: &mut R,
        (app, life): (usize, u32),
        (socket, place): (SocketId, usize),
    ) -> Result<(), &'static str> {
        let pool = self.pool_of_app(app, place).ok_or("the pool has been removed")?;
        if self.stopping && self.conns.downstream_count() == 0 {
            return Err("the process is stopping");
        }
        let caller = Caller::Socket(AppSocket { app: app as u16, life, socket });
        let own = InternalRequest::of_socket(caller, CLOSED);
        let id = self.open_own(reactor, own).ok_or(NO_MEMORY)?;
        self.accounts.counters.lua_sockets.add(1);
        let is_wanted =
            self.lua.apps.present(app).is_some_and(|vm| vm.socket_begun(socket, tag_of(id)));
        match is_wanted {
            true => self.begin_socket_exchange(reactor, id, pool),
            false => self.cancel_own(reactor, id),
        }
        Ok(())
    }

    /// Carries out `Effect::SocketSend`.
    pub(super) fn send_lua_socket<R: Reactor>(&mut self, reactor: &mut R, tag: u64, data: &[u8]) {
        let id = id_of(tag);
        if let Some(exchange) = self.tunnel_of(id) {
            let taken = self.tunnel_received(reactor, exchange, Side::Client, data);
            self.note_bytes_in(Requester::own(id), taken);
        }
    }

    /// Carries out `Effect::SocketResume`.
    pub(super) fn resume_lua_socket<R: Reactor>(&mut self, reactor: &mut R, tag: u64) {
        let id = id_of(tag);
        self.own.set_full(id, false);
        if let Some(exchange) = self.tunnel_of(id) {
            self.client_drained(reactor, Running::Proxy(exchange));
        }
    }

    /// Carries out `Effect::SocketIdle`.
    pub(super) fn keep_lua_socket<R: Reactor>(
        &mut self,
        reactor: &mut R,
        tag: u64,
        span: Option<Span>,
    ) {
        let by = span.map(|span| reactor.now().after(span));
        self.set_own_end(reactor, id_of(tag), by);
    }

    /// Closes a socket after all queued data was sent.
    pub(crate) fn close_lua_socket<R: Reactor>(
        &mut self,
        reactor: &mut R,
        id: Id<InternalRequest>,
    ) {
        let Some(exchange) = self.tunnel_of(id) else { return self.cancel_own(reactor, id) };
        if let Some(tunnel) = self.exchanges.get_mut(exchange) {
            tunnel.ended.server = true;
        }
        self.tunnel_finished(reactor, exchange, Side::Client);
    }

    /// The tunnel of a socket, if it is connected.
    fn tunnel_of(&self, id: Id<InternalRequest>) -> Option<Id<Exchange>> {
        let Running::Proxy(exchange) = self.own.running(id)? else { return None };
        let is_tunnel = self.exchanges.find(exchange)?.stage == Stage::Tunnel;
        is_tunnel.then_some(exchange)
    }
}

/// Events of the server. The requester of the exchange is an internal request.
impl Worker {
    /// The server is connected.
    pub(in crate::action) fn begin_socket_tunnel<R: Reactor>(
        &mut self,
        reactor: &mut R,
        id: Id<Exchange>,
        own: Id<InternalRequest>,
    ) {
        self.note_phase(Requester::own(own), Phase::Data);
        let mut is_secured = false;
        if let Some(exchange) = self.exchanges.get(id) {
            let up = exchange.attempt.up;
            is_secured = self.settings.of(exchange.era).pool(exchange.pool).tls.is_some();
            self.set_server_receiving(reactor, up, true);
        }
        if let Some(AppSocket { app, life, socket }) = self.own.socket(own)
            && let Some(vm) = self.lua.apps.present(usize::from(app))
        {
            vm.socket_connected(life, socket, is_secured);
        }
        self.arm_tunnel(reactor, id);
    }

    /// Takes bytes of the server.
    pub(crate) fn take_socket_bytes(&mut self, own: Id<InternalRequest>, bytes: &[u8]) {
        if let Some(AppSocket { app, life, socket }) = self.own.socket(own)
            && let Some(vm) = self.lua.apps.present(usize::from(app))
        {
            let has_room = vm.socket_received(life, socket, bytes);
            self.own.set_full(own, !has_room);
        }
    }

    /// The server accepts no bytes at present (`is_paused`), or accepts them again.
    pub(crate) fn pause_socket(&mut self, own: Id<InternalRequest>, is_paused: bool) {
        if let Some(AppSocket { app, life, socket }) = self.own.socket(own)
            && let Some(vm) = self.lua.apps.present(usize::from(app))
        {
            vm.note_socket_blocked(life, socket, is_paused);
        }
    }

    /// The server has ended its direction. A script that reads the end writes nothing more, so the other direction ends, too.
    pub(crate) fn finish_socket(&mut self, own: Id<InternalRequest>) {
        if let Some(Running::Proxy(id)) = self.own.running(own)
            && let Some(exchange) = self.exchanges.get_mut(id)
        {
            exchange.ended.client = true;
        }
    }

    /// Reports to the VM why a connection has ended.
    pub(crate) fn end_socket(&mut self, socket: AppSocket, reason: &str) {
        let AppSocket { app, life, socket } = socket;
        if let Some(vm) = self.lua.apps.present(usize::from(app)) {
            vm.socket_ended(life, socket, reason);
        }
    }
}
