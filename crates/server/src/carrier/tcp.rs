//! Clients whose bytes are forwarded without being read (`forward` of a listener, TCP mode).
//! In: bytes and events of client connections. Out: what precedes the forwarded bytes (a PROXY header, a TLS handshake
//! here, the server name in a TLS handshake with the server), then calls of `action/proxy/tcp.rs` and `tunnel.rs`.
//! Never: decodes HTTP; takes bytes from the client while no server takes them, except those that arrived with what
//! precedes them.
//! Limits: `proxy_protocol::BINARY_BYTES_MAX` and `PEEK_BYTES_MAX` bytes of what precedes, within `timeouts.head` of the
//! listener (`tls.handshake-timeout` for a handshake here).
//! Invariant: in `TcpStage::Forwarded`, the exchange exists and names the client.

use tidegate_base::Id;
use tidegate_gate::access::Cause;
use tidegate_reactor::{Reactor, SockId};
use tidegate_secure::Refused;
use tidegate_wire::tls::{HelloPeek, PEEK_BYTES_MAX, Peeked};

use crate::action::Running;
use crate::action::proxy::exchange::{Exchange, Stage};
use crate::action::proxy::tunnel::Side;
use crate::buffers::Input;
use crate::connection::ClientCarrier;
use crate::record::CLIENT_LEFT;
use crate::requester::Requester;
use crate::worker::Worker;

/// The state of a client connection in TCP mode.
pub(crate) struct TcpClient {
    /// Bytes that no server has taken yet. Empty (and without a buffer) in a tunnel.
    pub(crate) input: Input,
    /// The next expected input of the connection.
    pub(crate) stage: TcpStage,
    /// The client has ended its direction.
    pub(crate) finished: bool,
}

/// The next expected input of a client connection in TCP mode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TcpStage {
    /// The PROXY header.
    ProxyHeader,
    /// The end of the TLS handshake with the layer below.
    Handshake,
    /// The ClientHello whose server name chooses the pool.
    Hello(HelloPeek),
    /// Nothing: the pool can be chosen.
    Ready,
    /// A server, or bytes for it: the connection belongs to this exchange.
    Forwarded(Id<Exchange>),
    /// The exchange has ended, and the connection is about to be closed.
    Ended,
}

impl TcpClient {
    /// A connection that was just accepted and begins at `stage`.
    pub(crate) fn new(stage: TcpStage) -> Self {
        Self { input: Input::default(), stage, finished: false }
    }

    /// The action that the connection belongs to.
    pub(crate) fn running(&self) -> Running {
        match self.stage {
            TcpStage::Forwarded(id) => Running::Proxy(id),
            TcpStage::ProxyHeader
            | TcpStage::Handshake
            | TcpStage::Hello(_)
            | TcpStage::Ready
            | TcpStage::Ended => Running::None,
        }
    }

    /// Whether the client has sent nothing yet.
    pub(crate) fn has_nothing_under_way(&self) -> bool {
        self.input.is_empty() && self.running() == Running::None
    }
}

/// The result of reading the start of a connection.
enum Beginning {
    /// More bytes are needed.
    Incomplete,
    /// The pool of the connection.
    Pool(u16),
    /// There is no pool for it.
    Unmatched,
}

impl Worker {
    /// The carrier of a connection that was just accepted; `None` if its listener serves HTTP.
    pub(in crate::carrier) fn tcp_carrier(
        &self,
        listener: u16,
        has_header: bool,
    ) -> Option<ClientCarrier> {
        let snapshot = self.settings.newest();
        let targets = snapshot.tcp_targets(listener)?;
        let is_secured = snapshot.listener(listener).tls.is_some();
        let stage = match (is_secured, has_header) {
            (true, _) => TcpStage::Handshake,
            (false, true) => TcpStage::ProxyHeader,
            (false, false) if targets.only().is_some() => TcpStage::Ready,
            (false, false) => TcpStage::Hello(HelloPeek::default()),
        };
        Some(ClientCarrier::Tcp(TcpClient::new(stage)))
    }

    /// The TLS handshake of a client is complete.
    pub(crate) fn note_tcp_session(&mut self, sock: SockId) {
        if let Some(tcp) = self.tcp_client(sock).filter(|tcp| tcp.stage == TcpStage::Handshake) {
            tcp.stage = TcpStage::Ready;
            self.resume_request(Requester::connection(sock));
        }
    }

    /// A client sent bytes.
    pub(in crate::carrier) fn tcp_client_received<R: Reactor>(
        &mut self,
        reactor: &mut R,
        sock: SockId,
        bytes: &mut [u8],
    ) {
        self.conns.note_bytes(sock);
        self.conns.note_tunnel_bytes(sock);
        let Some(tcp) = self.tcp_client(sock) else { return self.note_bug(reactor, sock) };
        if let TcpStage::Forwarded(id) = tcp.stage
            && self.is_tunnel(id)
        {
            let taken = self.tunnel_received(reactor, id, Side::Client, bytes);
            return self.note_bytes_in(Requester::connection(sock), taken);
        }
        if let Some(ClientCarrier::Tcp(tcp)) = self.conns.downstream(sock).map(|d| &mut d.carrier) {
            tcp.input.push(bytes, &mut self.buffers);
            if tcp.running() != Running::None {
                // `has_left_silently` asked whether there are any. The kernel keeps the others.
                reactor.set_receiving(sock, false);
            }
        }
        self.resume_tcp_client(reactor, sock);
    }

    /// Reads the bytes that precede the forwarded ones, as far as they have arrived.
    pub(in crate::carrier) fn resume_tcp_client<R: Reactor>(
        &mut self,
        reactor: &mut R,
        sock: SockId,
    ) {
        loop {
            // The last step may have closed the connection.
            let Some(tcp) = self.tcp_client(sock) else { return };
            match tcp.stage {
                TcpStage::ProxyHeader => {
                    if !self.read_proxy_header(reactor, sock) {
                        return;
                    }
                }
                TcpStage::Hello(_) | TcpStage::Ready => {
                    return self.choose_pool(reactor, sock);
                }
                TcpStage::Handshake | TcpStage::Forwarded(_) | TcpStage::Ended => return,
            }
        }
    }

    /// Reads the PROXY header. Returns whether it is complete.
    fn read_proxy_header<R: Reactor>(&mut self, reactor: &mut R, sock: SockId) -> bool {
        let Some(tcp) = self.tcp_client(sock) else { return false };
        let mut input = core::mem::take(&mut tcp.input);
        let decoded = self.decode_proxy_header(sock, input.as_slice());
        input.consume(decoded.ok().flatten().unwrap_or_default());
        match self.tcp_client(sock) {
            Some(tcp) if !input.is_empty() => tcp.input = input,
            _ => input.release(&mut self.buffers),
        }
        if let Some(tcp) = self.tcp_client(sock)
            && matches!(decoded, Ok(Some(_)))
        {
            tcp.stage = TcpStage::Hello(HelloPeek::default());
            return true;
        }
        if let Err(Refused) = decoded {
            self.close_client(reactor, sock);
        }
        false
    }

    /// Hands the connection over to its pool, once the first bytes show which pool that is.
    fn choose_pool<R: Reactor>(&mut self, reactor: &mut R, sock: SockId) {
        let mut scratch = self.buffers.take();
        let mut name = None;
        match self.look_at_beginning(sock, &mut scratch, &mut name) {
            Beginning::Incomplete => {}
            Beginning::Pool(pool) => self.begin_forward(reactor, sock, pool, name.as_deref()),
            Beginning::Unmatched => {
                self.accounts.counters.tcp_unmatched.add(1);
                self.conns.note_request(sock);
                self.begin_tcp_record(reactor, sock, name.as_deref());
                let text = "no pool is set for this server name";
                self.blame(Requester::connection(sock), Cause::Refused, text);
                self.close_client(reactor, sock);
            }
        }
        self.buffers.put(scratch);
    }

    /// Finds the pool of a connection. `name` becomes the server name that the client requests, if it is recorded.
    fn look_at_beginning(
        &mut self,
        sock: SockId,
        scratch: &mut Vec<u8>,
        name: &mut Option<String>,
    ) -> Beginning {
        let records = self.recorder.is_on();
        let Some(down) = self.conns.downstream(sock) else { return Beginning::Incomplete };
        // A reload may have removed `forward` since the connection was accepted.
        let Some(targets) = self.settings.of(down.era()).tcp_targets(down.listener) else {
            return Beginning::Unmatched;
        };
        if let Some(pool) = targets.only() {
            return Beginning::Pool(pool);
        }
        let ClientCarrier::Tcp(tcp) = &mut down.carrier else { return Beginning::Incomplete };
        let mut peek = match tcp.stage {
            TcpStage::Hello(peek) => peek,
            _ => HelloPeek::default(),
        };
        let bytes = tcp.input.as_slice();
        let found = match peek.look(bytes, scratch) {
            Peeked::Incomplete if bytes.len() < PEEK_BYTES_MAX => {
                tcp.stage = TcpStage::Hello(peek);
                return Beginning::Incomplete;
            }
            Peeked::Hello(asked) => {
                *name = asked.filter(|_| records).map(str::to_owned);
                targets.find(asked)
            }
            Peeked::NotTls => targets.find(None),
            Peeked::Incomplete | Peeked::Malformed => {
                self.accounts.counters.tcp_hello_faults.add(1);
                targets.find(None)
            }
        };
        found.map_or(Beginning::Unmatched, Beginning::Pool)
    }

    /// A client ended its direction of the connection.
    pub(in crate::carrier) fn tcp_client_finished<R: Reactor>(
        &mut self,
        reactor: &mut R,
        sock: SockId,
    ) {
        let Some(tcp) = self.tcp_client(sock) else { return self.note_bug(reactor, sock) };
        tcp.finished = true;
        let stage = tcp.stage;
        match stage {
            TcpStage::Forwarded(id) if self.is_tunnel(id) => {
                self.tunnel_finished(reactor, id, Side::Client);
            }
            // The server is notified after the bytes that wait for it.
            TcpStage::Forwarded(id) => self.leave_queue(reactor, id),
            TcpStage::ProxyHeader
            | TcpStage::Handshake
            | TcpStage::Hello(_)
            | TcpStage::Ready
            | TcpStage::Ended => self.close_client(reactor, sock),
        }
    }

    /// Whether a client that waits for a server has ended its direction without having sent a byte, and so has
    /// probably left. The end of one direction says nothing about a client that has sent something. If bytes may
    /// be before the end, begins to receive them, and `tcp_client_finished` asks again if there are none.
    pub(crate) fn has_left_silently<R: Reactor>(&mut self, reactor: &mut R, sock: SockId) -> bool {
        let Some(tcp) = self.tcp_client(sock) else { return false };
        let (is_silent, finished) = (tcp.input.is_empty(), tcp.finished);
        if is_silent && !finished {
            reactor.set_receiving(sock, true);
        }
        is_silent && finished
    }

    /// A client in TCP mode has ended its direction while receiving is paused.
    pub(in crate::carrier) fn tcp_client_hung_up<R: Reactor>(
        &mut self,
        reactor: &mut R,
        sock: SockId,
    ) {
        let running = self.tcp_client(sock).map(|tcp| tcp.running());
        self.client_half_closed(reactor, running.unwrap_or(Running::None));
    }

    /// A client connection was reset or ended.
    pub(in crate::carrier) fn tcp_client_closed<R: Reactor>(
        &mut self,
        reactor: &mut R,
        sock: SockId,
    ) {
        self.blame(Requester::connection(sock), Cause::Client, CLIENT_LEFT);
        let Some(tcp) = self.tcp_client(sock) else { return self.note_bug(reactor, sock) };
        let running = tcp.running();
        if running != Running::None {
            self.note_departure(running);
            self.accounts.counters.client_aborts.add(1);
        }
        self.drop_client(reactor, sock);
    }

    /// The blocked output to a client has drained.
    pub(in crate::carrier) fn tcp_client_drained<R: Reactor>(
        &mut self,
        reactor: &mut R,
        sock: SockId,
    ) {
        let Some(tcp) = self.tcp_client(sock) else { return self.note_bug(reactor, sock) };
        let running = tcp.running();
        self.client_drained(reactor, running);
    }

    /// The deadline of a client connection expired.
    pub(in crate::carrier) fn tcp_client_due<R: Reactor>(&mut self, reactor: &mut R, sock: SockId) {
        let Some(tcp) = self.tcp_client(sock) else { return self.note_bug(reactor, sock) };
        match tcp.stage {
            TcpStage::Forwarded(id) => {
                let stage = self.exchanges.get(id).map(|exchange| exchange.stage);
                // A connect has its own deadline.
                if stage != Some(Stage::Connecting) {
                    self.action_due(reactor, Running::Proxy(id));
                }
            }
            TcpStage::ProxyHeader
            | TcpStage::Handshake
            | TcpStage::Hello(_)
            | TcpStage::Ready
            | TcpStage::Ended => {
                self.accounts.counters.head_timeouts.add(1);
                self.close_client(reactor, sock);
            }
        }
    }

    /// The connection belongs to no exchange any more.
    pub(in crate::carrier) fn detach_tcp(&mut self, sock: SockId) {
        match self.tcp_client(sock) {
            Some(tcp) => tcp.stage = TcpStage::Ended,
            None => self.note_absent(sock),
        }
    }

    /// The state of the connection; `None` if it has been closed or is not in TCP mode.
    pub(crate) fn tcp_client(&mut self, sock: SockId) -> Option<&mut TcpClient> {
        match &mut self.conns.downstream(sock)?.carrier {
            ClientCarrier::Tcp(tcp) => Some(tcp),
            ClientCarrier::Http1(_) | ClientCarrier::Http2(_) => None,
        }
    }

    /// Whether the bytes of the exchange are relayed.
    fn is_tunnel(&self, id: Id<Exchange>) -> bool {
        self.exchanges.get(id).is_some_and(|exchange| exchange.stage == Stage::Tunnel)
    }
}
