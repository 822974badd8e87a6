//! The table of a worker's connections, indexed like the reactor's sockets.
//! In: the reactor's socket ids. Out: the downstream or upstream state of exactly that socket.
//! Never: holds a buffer while the connection is idle.
//! Invariant: `slots[sock.index]` belongs to that socket as long as its id is live; a stale id finds nothing. A client without
//! a complete request is in exactly one `WaitingList`.
//! Limits: a slot is at most 128 bytes (asserted). It is the largest part of an idle connection's user
//! memory.

use core::net::{Ipv4Addr, SocketAddr, SocketAddrV6};

use tidegate_base::{Id, Moment, Span};
use tidegate_config::arrange::Generation;
use tidegate_gate::scheme::Scheme;
use tidegate_reactor::{Peer, SockId};

use crate::action::Running;
use crate::action::proxy::exchange::Exchange;
use crate::carrier::http1::client::{Http1Client, Phase};
use crate::carrier::http1::server::Http1Server;
use crate::carrier::http2::client::Http2Client;
use crate::carrier::http2::server::Http2Server;
use crate::carrier::tcp::{TcpClient, TcpStage};
use crate::client::ClientFacts;
use crate::record::NO_RECORD;
use crate::settings::Era;

/// A connection with a client.
pub(crate) struct Downstream {
    /// The client's address: the socket's peer address, or the source address in a PROXY header.
    peer: PackedPeer,
    /// Index of the listener that accepted the connection. Never changes.
    pub(crate) listener: u16,
    /// The scheme of the client's connection: to this process, or to a proxy in front that sent it in a PROXY
    /// header.
    pub(crate) scheme: Scheme,
    /// The generation of settings that the connection uses, and whether the client has sent a byte. In one byte,
    /// because a slot has no other byte left.
    marks: Marks,
    /// Requests decoded on this connection, the current one included. A client with 0 is in a `WaitingList`.
    pub(crate) requests: u32,
    /// Before the first request: the index of the next client in its `WaitingList`, or `NO_SLOT`. After it: the index of the
    /// record of the current request of a connection without streams, or `NO_RECORD`.
    link: u32,
    /// When the connection was accepted, in microseconds of the reactor's clock, modulo 2^32.
    accepted_us: u32,
    /// Further facts about the client; `None` for most clients.
    pub(crate) facts: Option<Box<ClientFacts>>,
    /// The protocol that the client speaks, and its state.
    pub(crate) carrier: ClientCarrier,
}

/// A `Peer` in 24 bytes. The flow label of IPv6 is left out: nothing uses it.
#[derive(Clone, Copy)]
struct PackedPeer {
    /// An IPv4 address is in the first 4 bytes.
    address: [u8; 16],
    scope: u32,
    port: u16,
    family: Family,
}

const _: () = assert!(size_of::<PackedPeer>() <= 24);

#[derive(Clone, Copy)]
enum Family {
    V4,
    V6,
    Local,
}

impl PackedPeer {
    fn new(peer: Peer) -> Self {
        let mut packed = Self { address: [0; 16], scope: 0, port: 0, family: Family::Local };
        match peer {
            Peer::Tcp(SocketAddr::V4(v4)) => {
                packed.address[..4].copy_from_slice(&v4.ip().octets());
                (packed.port, packed.family) = (v4.port(), Family::V4);
            }
            Peer::Tcp(SocketAddr::V6(v6)) => {
                packed.address = v6.ip().octets();
                packed.scope = v6.scope_id();
                (packed.port, packed.family) = (v6.port(), Family::V6);
            }
            Peer::Local => {}
        }
        packed
    }

    fn unpack(self) -> Peer {
        let [a, b, c, d, ..] = self.address;
        Peer::Tcp(match self.family {
            Family::V4 => (Ipv4Addr::new(a, b, c, d), self.port).into(),
            Family::V6 => SocketAddrV6::new(self.address.into(), self.port, 0, self.scope).into(),
            Family::Local => return Peer::Local,
        })
    }
}

/// An era, and whether the client has sent a byte, which determines its `WaitingList`.
#[derive(Clone, Copy)]
struct Marks(u8);

impl Marks {
    /// The bit of a client that has sent a byte. The other bits are the era.
    const SPOKE: u8 = 0x80;

    fn new(era: Era) -> Self {
        Self(era.number())
    }

    fn era(self) -> Era {
        Era::of_number(self.0 & !Self::SPOKE)
    }

    fn spoke(self) -> bool {
        self.0 & Self::SPOKE != 0
    }

    fn note_byte(&mut self) {
        self.0 |= Self::SPOKE;
    }
}

/// The protocol of a client connection.
pub(crate) enum ClientCarrier {
    /// HTTP/1.0 and HTTP/1.1.
    Http1(Http1Client),
    /// HTTP/2.
    Http2(Box<Http2Client>),
    /// Bytes that are forwarded without being read.
    Tcp(TcpClient),
}

/// The protocol of a client connection, without its state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ClientProtocol {
    /// HTTP/1.0 and HTTP/1.1.
    Http1,
    /// HTTP/2.
    Http2,
    /// Bytes that are forwarded without being read.
    Tcp,
}

/// The protocol of a connection to a server.
pub(crate) enum ServerCarrier {
    /// HTTP/1.1.
    Http1(Http1Server),
    /// HTTP/2, or a connection whose handshake may choose it.
    Http2(Box<Http2Server>),
}

/// The protocol of a connection to a server, without its state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ServerProtocol {
    /// HTTP/1.1.
    Http1,
    /// HTTP/2.
    Http2,
}

impl Downstream {
    /// A connection that was just accepted.
    pub(crate) fn new(
        peer: Peer,
        era: Era,
        listener: u16,
        scheme: Scheme,
        carrier: ClientCarrier,
        now: Moment,
    ) -> Self {
        Self {
            peer: PackedPeer::new(peer),
            listener,
            scheme,
            marks: Marks::new(era),
            requests: 0,
            link: NO_SLOT,
            accepted_us: micros(now),
            facts: None,
            carrier,
        }
    }

    /// The client's address.
    pub(crate) fn peer(&self) -> Peer {
        self.peer.unpack()
    }

    /// Replaces the client's address, by that of a PROXY header.
    pub(crate) fn set_peer(&mut self, peer: Peer) {
        self.peer = PackedPeer::new(peer);
    }

    /// The record of the current request of a connection without streams, or `NO_RECORD`.
    pub(crate) fn record(&self) -> u32 {
        if self.requests == 0 { NO_RECORD } else { self.link }
    }

    /// Sets the record of the current request, which was decoded on this connection.
    pub(crate) fn set_record(&mut self, record: u32) {
        debug_assert!(self.requests > 0, "the client has a request");
        self.link = record;
    }

    /// The generation of settings that the connection uses: of HTTP/1, that of its current request.
    pub(crate) fn era(&self) -> Era {
        self.marks.era()
    }

    /// Uses another generation of settings.
    pub(crate) fn set_era(&mut self, era: Era) {
        self.marks = Marks(self.marks.0 & Marks::SPOKE | era.number());
    }

    /// How long the connection has been open. Exact only within the first 71 minutes.
    pub(crate) fn connected_span(&self, now: Moment) -> Span {
        Span::from_micros(u64::from(micros(now).wrapping_sub(self.accepted_us)))
    }

    /// The HTTP/1 state; `None` if the client speaks another protocol.
    pub(crate) fn http1(&mut self) -> Option<&mut Http1Client> {
        match &mut self.carrier {
            ClientCarrier::Http1(http1) => Some(http1),
            ClientCarrier::Http2(_) | ClientCarrier::Tcp(_) => None,
        }
    }

    /// Whether the client has received all its responses, at least one, and has not sent another complete
    /// head.
    pub(crate) fn is_idle(&self) -> bool {
        self.requests > 0
            && match &self.carrier {
                ClientCarrier::Http1(http1) => http1.is_idle(),
                ClientCarrier::Http2(http2) => http2.is_idle(),
                ClientCarrier::Tcp(_) => false,
            }
    }

    /// Whether the client is forwarded in TCP mode, and has never sent a byte.
    pub(crate) fn is_silent_tunnel(&self) -> bool {
        match &self.carrier {
            ClientCarrier::Tcp(tcp) => tcp.running() != Running::None && !self.marks.spoke(),
            ClientCarrier::Http1(_) | ClientCarrier::Http2(_) => false,
        }
    }

    /// Whether the client has sent no part of a request.
    pub(crate) fn has_nothing_under_way(&self) -> bool {
        match &self.carrier {
            ClientCarrier::Http1(http1) => http1.has_nothing_under_way(),
            ClientCarrier::Http2(http2) => http2.is_idle(),
            ClientCarrier::Tcp(tcp) => tcp.has_nothing_under_way(),
        }
    }

    /// Whether a part of the next head has arrived.
    pub(crate) fn has_started_head(&self) -> bool {
        match &self.carrier {
            ClientCarrier::Http1(http1) => http1.has_started_head(),
            ClientCarrier::Http2(_) | ClientCarrier::Tcp(_) => false,
        }
    }

    /// Whether the client has ended its direction of the connection.
    pub(crate) fn has_finished(&self) -> bool {
        match &self.carrier {
            ClientCarrier::Http1(http1) => http1.finished,
            ClientCarrier::Http2(http2) => http2.has_finished(),
            ClientCarrier::Tcp(tcp) => tcp.finished,
        }
    }

    /// The action that serves the current request of a connection without streams.
    pub(crate) fn running(&self) -> Running {
        match &self.carrier {
            ClientCarrier::Http1(http1) => http1.running(),
            ClientCarrier::Http2(_) => Running::None,
            ClientCarrier::Tcp(tcp) => tcp.running(),
        }
    }

    /// Detaches the current request of a connection without streams from its action.
    pub(crate) fn forget_action(&mut self) {
        match &mut self.carrier {
            ClientCarrier::Http1(http1) => http1.phase = Phase::NEXT_HEAD,
            ClientCarrier::Http2(_) => {}
            ClientCarrier::Tcp(tcp) => tcp.stage = TcpStage::Ended,
        }
    }

    /// Bytes received but not processed yet, except those of streams.
    pub(crate) fn held_input_bytes(&self) -> usize {
        match &self.carrier {
            ClientCarrier::Http1(http1) => http1.input.len(),
            ClientCarrier::Http2(http2) => http2.postponed_bytes(),
            ClientCarrier::Tcp(tcp) => tcp.input.len(),
        }
    }
}

fn micros(at: Moment) -> u32 {
    (at.as_nanos() / 1000) as u32
}

/// A connection to a server.
pub(crate) struct Upstream {
    /// Index of the pool in the configuration. Never changes.
    pub(crate) pool: u16,
    /// Index of the server in the pool. Never changes.
    pub(crate) server: u16,
    /// The generation of settings in which the connection was opened.
    pub(crate) generation: Generation,
    /// Requests sent over the connection, compared with `reuse.requests-max`.
    pub(crate) requests: u32,
    /// The exchange that uses the connection; `Id::NONE` while the connection is idle, and with HTTP/2, whose streams
    /// each have an exchange.
    pub(crate) exchange: Id<Exchange>,
    /// The server authenticates this connection (NTLM, Negotiate), so it serves one client only. Once true, it
    /// stays true.
    pub(crate) authenticated: bool,
    /// The name of the server no longer has the address of this connection: no further request uses it.
    pub(crate) is_outdated: bool,
    /// The downstream connection that this idle connection is kept for, if it serves one client only.
    /// `SockId::NONE` while in use, and for connections in the pool's idle list.
    pub(crate) owner: SockId,
    /// The protocol that the server speaks, and its state.
    pub(crate) carrier: ServerCarrier,
}

impl Upstream {
    /// A connection whose connect was just begun.
    pub(crate) fn new(pool: u16, server: u16, generation: Generation) -> Self {
        Self {
            pool,
            server,
            generation,
            requests: 0,
            exchange: Id::NONE,
            authenticated: false,
            is_outdated: false,
            owner: SockId::NONE,
            carrier: ServerCarrier::Http1(Http1Server::new()),
        }
    }

    /// The HTTP/1 state; `None` if the server speaks another protocol.
    pub(crate) fn http1(&mut self) -> Option<&mut Http1Server> {
        match &mut self.carrier {
            ServerCarrier::Http1(http1) => Some(http1),
            ServerCarrier::Http2(_) => None,
        }
    }

    /// Whether no exchange uses the connection.
    pub(crate) fn is_idle(&self) -> bool {
        match &self.carrier {
            ServerCarrier::Http1(_) => self.exchange.is_none(),
            ServerCarrier::Http2(http2) => http2.is_idle(),
        }
    }

    /// Bytes received but not processed yet, except those of streams.
    pub(crate) fn held_input_bytes(&self) -> usize {
        match &self.carrier {
            ServerCarrier::Http1(http1) => http1.input.len(),
            ServerCarrier::Http2(_) => 0,
        }
    }
}

/// A connection in a slot.
pub(crate) enum Side<'a> {
    /// With a client.
    Client(&'a Downstream),
    /// With a server.
    Server(&'a Upstream),
}

/// A connection without a message in progress.
pub(crate) enum Idle<'a> {
    Client(&'a Downstream),
    Server,
    /// A client in TCP mode that has never sent a byte. It may be in a tunnel.
    Tunnel,
}

enum Conn {
    Vacant,
    Downstream(Downstream),
    Upstream(Upstream),
}

struct Slot {
    generation: u32,
    /// The index of the previous client in its `WaitingList`, or `NO_SLOT`. Meaningless for any other connection.
    older: u32,
    conn: Conn,
}

const _: () = assert!(size_of::<Slot>() <= 128);

/// No slot.
const NO_SLOT: u32 = u32::MAX;

/// Maximum number of clients that a search for a client of one listener examines.
const SEARCH_MAX: usize = 256;

/// A list of clients without a complete request, linked by `Slot::older` and `Downstream::link`.
#[derive(Clone, Copy)]
struct WaitingList {
    /// The slot of the client that has been in the list for longest; `NO_SLOT` if the list is empty.
    oldest: u32,
    /// The slot of the client that was added last; `NO_SLOT` if the list is empty.
    newest: u32,
    /// The number of clients in the list.
    count: usize,
}

impl WaitingList {
    const EMPTY: Self = Self { oldest: NO_SLOT, newest: NO_SLOT, count: 0 };
}

/// All connections of a worker.
pub(crate) struct Connections {
    /// By the index of the socket id.
    slots: Vec<Slot>,
    /// The number of downstream connections in `slots`.
    downstream: usize,
    /// The number of upstream connections in `slots`.
    upstream: usize,
    /// The number of upstream connections that have an exchange.
    attached: usize,
    /// Clients that have not sent a byte, in order of arrival.
    silent: WaitingList,
    /// Clients that have sent a part of their first request, or of the bytes before it (a PROXY header, a TLS handshake), in the
    /// order of their first bytes.
    unfinished: WaitingList,
    /// The newest client in `silent` at the end of the last turn, or `NO_SLOT`.
    turn_newest: u32,
    /// The newest client in `silent` for which the reactor has checked since its arrival whether it has sent bytes, or
    /// `NO_SLOT`. The clients after it may have sent bytes already.
    checked_until: u32,
    /// The slot before the start of the next search.
    hand: usize,
}

impl Connections {
    /// Creates an empty table with address space reserved (but not touched) for `count` connections. The
    /// table is therefore never copied while it grows; copies would double the memory of an idle connection.
    pub(crate) fn with_capacity(count: usize) -> Self {
        const RESERVED_MAX: usize = 1 << 20;
        let slots = Vec::with_capacity(count.min(RESERVED_MAX));
        Self {
            slots,
            downstream: 0,
            upstream: 0,
            attached: 0,
            silent: WaitingList::EMPTY,
            unfinished: WaitingList::EMPTY,
            turn_newest: NO_SLOT,
            checked_until: NO_SLOT,
            hand: 0,
        }
    }

    pub(crate) fn insert_downstream(&mut self, sock: SockId, conn: Downstream) {
        self.downstream += 1;
        self.insert(sock, Conn::Downstream(conn));
        self.link_newest(sock.index);
    }

    pub(crate) fn insert_upstream(&mut self, sock: SockId, conn: Upstream) {
        self.upstream += 1;
        self.insert(sock, Conn::Upstream(conn));
    }

    fn insert(&mut self, sock: SockId, conn: Conn) {
        let index = sock.index as usize;
        if index >= self.slots.len() {
            let vacant = || Slot { generation: 0, older: NO_SLOT, conn: Conn::Vacant };
            self.slots.resize_with(index + 1, vacant);
        }
        debug_assert!(matches!(self.slots[index].conn, Conn::Vacant), "slot of {sock:?} is taken");
        self.slots[index] = Slot { generation: sock.generation, older: NO_SLOT, conn };
    }

    pub(crate) fn downstream(&mut self, sock: SockId) -> Option<&mut Downstream> {
        match self.slots.get_mut(sock.index as usize) {
            Some(Slot { generation, conn: Conn::Downstream(down), .. })
                if *generation == sock.generation =>
            {
                Some(down)
            }
            _ => None,
        }
    }

    /// The protocol of a client connection; `None` if `sock` is not a client connection.
    pub(crate) fn client_protocol(&mut self, sock: SockId) -> Option<ClientProtocol> {
        Some(match self.downstream(sock)?.carrier {
            ClientCarrier::Http1(_) => ClientProtocol::Http1,
            ClientCarrier::Http2(_) => ClientProtocol::Http2,
            ClientCarrier::Tcp(_) => ClientProtocol::Tcp,
        })
    }

    /// The HTTP/2 state of a client connection; `None` if the connection has been closed or speaks another protocol.
    pub(crate) fn http2_client(&mut self, sock: SockId) -> Option<&mut Http2Client> {
        match &mut self.downstream(sock)?.carrier {
            ClientCarrier::Http2(http2) => Some(http2),
            ClientCarrier::Http1(_) | ClientCarrier::Tcp(_) => None,
        }
    }

    pub(crate) fn upstream(&mut self, sock: SockId) -> Option<&mut Upstream> {
        match self.slots.get_mut(sock.index as usize) {
            Some(Slot { generation, conn: Conn::Upstream(up), .. })
                if *generation == sock.generation =>
            {
                Some(up)
            }
            _ => None,
        }
    }

    /// The HTTP/2 state of a connection to a server; `None` if the connection has been closed or speaks HTTP/1.
    pub(crate) fn http2_server(&mut self, sock: SockId) -> Option<&mut Http2Server> {
        match &mut self.upstream(sock)?.carrier {
            ServerCarrier::Http2(http2) => Some(http2),
            ServerCarrier::Http1(_) => None,
        }
    }

    /// The protocol of a connection to a server; `None` if `sock` is not such a connection.
    pub(crate) fn server_protocol(&mut self, sock: SockId) -> Option<ServerProtocol> {
        Some(match self.upstream(sock)?.carrier {
            ServerCarrier::Http1(_) => ServerProtocol::Http1,
            ServerCarrier::Http2(_) => ServerProtocol::Http2,
        })
    }

    /// Whether `sock` is a connection in the table.
    pub(crate) fn contains(&mut self, sock: SockId) -> bool {
        self.downstream(sock).is_some() || self.upstream(sock).is_some()
    }

    pub(crate) fn is_upstream(&mut self, sock: SockId) -> bool {
        self.upstream(sock).is_some()
    }

    pub(crate) fn remove_downstream(&mut self, sock: SockId) -> Option<Downstream> {
        if self.downstream(sock)?.requests == 0 {
            self.unlink(sock.index);
        }
        self.downstream -= 1;
        match self.take(sock) {
            Conn::Downstream(down) => Some(down),
            _ => None,
        }
    }

    pub(crate) fn remove_upstream(&mut self, sock: SockId) -> Option<Upstream> {
        let is_attached = !self.upstream(sock)?.is_idle();
        self.attached -= usize::from(is_attached);
        self.upstream -= 1;
        match self.take(sock) {
            Conn::Upstream(up) => Some(up),
            _ => None,
        }
    }

    /// A connection to a server gets its first exchange.
    pub(crate) fn note_attached(&mut self) {
        self.attached += 1;
    }

    /// A connection to a server no longer has an exchange, and stays open.
    pub(crate) fn note_detached(&mut self) {
        self.attached -= 1;
    }

    /// Connections to servers that have an exchange.
    pub(crate) fn attached_count(&self) -> usize {
        self.attached
    }

    fn take(&mut self, sock: SockId) -> Conn {
        let slot = &mut self.slots[sock.index as usize];
        slot.generation = 0;
        core::mem::replace(&mut slot.conn, Conn::Vacant)
    }

    /// Notes that a client that is forwarded in TCP mode has sent bytes.
    pub(crate) fn note_tunnel_bytes(&mut self, sock: SockId) {
        if let Some(down) = self.downstream(sock).filter(|down| down.requests > 0) {
            down.marks.note_byte();
        }
    }

    /// Notes that a client has sent bytes. Decoding them may have closed its connection.
    pub(crate) fn note_bytes(&mut self, sock: SockId) {
        if self.downstream(sock).is_some_and(|down| down.requests == 0 && !down.marks.spoke()) {
            self.unlink(sock.index);
            if let Some(down) = self.downstream(sock) {
                down.marks.note_byte();
            }
            self.link_newest(sock.index);
        }
    }

    /// Counts a complete request head of a client, which then leaves its `WaitingList`.
    pub(crate) fn note_request(&mut self, sock: SockId) {
        // Every caller has just found the client.
        let Some(down) = self.downstream(sock) else { return };
        let is_first = down.requests == 0;
        if is_first {
            self.unlink(sock.index);
        }
        if let Some(down) = self.downstream(sock) {
            down.requests = down.requests.saturating_add(1);
            if is_first {
                down.link = NO_RECORD;
            }
        }
    }

    /// Notes the end of a turn: the next turn first checks all silent clients for bytes.
    pub(crate) fn end_turn(&mut self) {
        self.note_checks();
        self.turn_newest = self.silent.newest;
    }

    /// Notes that this turn has checked all silent clients of the last turn for bytes.
    pub(crate) fn note_checks(&mut self) {
        self.checked_until = self.turn_newest;
    }

    /// The client that has been connected longest without sending a byte, if it was checked for bytes.
    pub(crate) fn oldest_silent(&self) -> Option<SockId> {
        if self.checked_until == NO_SLOT { None } else { self.first_of(&self.silent) }
    }

    /// Whether a client has not sent a byte, as far as this process has seen.
    pub(crate) fn has_silent(&self) -> bool {
        self.silent.count > 0
    }

    /// Whether more clients have an incomplete first request than have not sent a byte.
    pub(crate) fn most_are_unfinished(&self) -> bool {
        self.unfinished.count > self.silent.count
    }

    /// The client that has waited longest since the first bytes of its incomplete first request.
    pub(crate) fn oldest_unfinished(&self) -> Option<SockId> {
        self.first_of(&self.unfinished)
    }

    /// As [`Self::oldest_silent`], of the clients of one listener.
    pub(crate) fn oldest_silent_on(&self, listener: u16) -> Option<SockId> {
        let checked_until = Some(self.checked_until).filter(|at| *at != NO_SLOT)?;
        self.first_on(listener, &self.silent, checked_until)
    }

    /// As [`Self::oldest_unfinished`], of the clients of one listener.
    pub(crate) fn oldest_unfinished_on(&self, listener: u16) -> Option<SockId> {
        self.first_on(listener, &self.unfinished, NO_SLOT)
    }

    /// The first client of the listener up to `last`, if it is among the first `SEARCH_MAX` of the list.
    fn first_on(&self, listener: u16, list: &WaitingList, last: u32) -> Option<SockId> {
        let mut at = list.oldest;
        for _ in 0..SEARCH_MAX {
            let slot = self.slots.get(at as usize)?;
            let Conn::Downstream(down) = &slot.conn else { return None };
            if down.listener == listener {
                return Some(SockId::new(at, slot.generation));
            }
            at = if at == last { NO_SLOT } else { down.link };
        }
        None
    }

    fn first_of(&self, list: &WaitingList) -> Option<SockId> {
        let slot = self.slots.get(list.oldest as usize)?;
        Some(SockId::new(list.oldest, slot.generation))
    }

    /// The client at `index`, for indexes from the lists.
    fn client_at(&mut self, index: u32) -> Option<&mut Downstream> {
        match &mut self.slots.get_mut(index as usize)?.conn {
            Conn::Downstream(down) => Some(down),
            Conn::Vacant | Conn::Upstream(_) => None,
        }
    }

    fn list_of(&mut self, index: u32) -> &mut WaitingList {
        let spoke = self.client_at(index).is_some_and(|down| down.marks.spoke());
        if spoke { &mut self.unfinished } else { &mut self.silent }
    }

    /// Adds a client at the end of its list.
    fn link_newest(&mut self, index: u32) {
        let list = self.list_of(index);
        let before = core::mem::replace(&mut list.newest, index);
        list.count += 1;
        if before == NO_SLOT {
            list.oldest = index;
        }
        self.set_links(before, index);
        self.set_links(index, NO_SLOT);
    }

    /// Removes a client from its list.
    fn unlink(&mut self, index: u32) {
        let older = self.slots.get(index as usize).map_or(NO_SLOT, |slot| slot.older);
        let newer = self.client_at(index).map_or(NO_SLOT, |down| down.link);
        if self.client_at(index).is_some_and(|down| !down.marks.spoke()) {
            for mark in [&mut self.turn_newest, &mut self.checked_until] {
                if *mark == index {
                    *mark = older;
                }
            }
        }
        let list = self.list_of(index);
        list.count -= 1;
        if older == NO_SLOT {
            list.oldest = newer;
        }
        if newer == NO_SLOT {
            list.newest = older;
        }
        self.set_links(older, newer);
    }

    /// Links two neighbours of a list; one of them may be `NO_SLOT`.
    fn set_links(&mut self, older: u32, newer: u32) {
        if let Some(down) = self.client_at(older) {
            down.link = newer;
        }
        if let Some(slot) = self.slots.get_mut(newer as usize) {
            slot.older = older;
        }
    }

    /// The connection in a slot, if there is one.
    pub(crate) fn in_slot(&self, index: usize) -> Option<(SockId, Side<'_>)> {
        let Slot { generation, conn, .. } = self.slots.get(index)?;
        let sock = SockId::new(index as u32, *generation);
        match conn {
            Conn::Vacant => None,
            Conn::Downstream(down) => Some((sock, Side::Client(down))),
            Conn::Upstream(up) => Some((sock, Side::Server(up))),
        }
    }

    /// The number of slots that have ever been used.
    pub(crate) fn slots_used(&self) -> usize {
        self.slots.len()
    }

    /// The idle connection in the next slot, if there is one.
    pub(crate) fn examine_next(&mut self) -> Option<(SockId, Idle<'_>)> {
        self.hand = if self.hand + 1 < self.slots.len() { self.hand + 1 } else { 0 };
        let slot = self.slots.get(self.hand)?;
        let sock = SockId::new(self.hand as u32, slot.generation);
        match &slot.conn {
            Conn::Downstream(down) if down.is_idle() => Some((sock, Idle::Client(down))),
            Conn::Downstream(down) if down.is_silent_tunnel() => Some((sock, Idle::Tunnel)),
            Conn::Upstream(up) if up.is_idle() => Some((sock, Idle::Server)),
            Conn::Vacant | Conn::Downstream(_) | Conn::Upstream(_) => None,
        }
    }

    /// The number of client connections.
    pub(crate) fn downstream_count(&self) -> usize {
        self.downstream
    }

    /// The number of server connections.
    pub(crate) fn upstream_count(&self) -> usize {
        self.upstream
    }

    /// The ids of all client connections, in slot order.
    pub(crate) fn downstream_ids(&self) -> Vec<SockId> {
        self.ids(|conn| matches!(conn, Conn::Downstream(_)))
    }

    /// The ids of all server connections, in slot order.
    pub(crate) fn upstream_ids(&self) -> Vec<SockId> {
        self.ids(|conn| matches!(conn, Conn::Upstream(_)))
    }

    fn ids(&self, wanted: impl Fn(&Conn) -> bool) -> Vec<SockId> {
        self.slots
            .iter()
            .enumerate()
            .filter(|(_, slot)| wanted(&slot.conn))
            .map(|(index, slot)| SockId::new(index as u32, slot.generation))
            .collect()
    }
}

#[cfg(test)]
mod tests {

    use proptest::prelude::*;

    use super::*;

    fn upstream() -> Upstream {
        Upstream::new(0, 0, 0)
    }

    fn downstream() -> Downstream {
        let carrier = ClientCarrier::Http1(Http1Client::new(Phase::NEXT_HEAD));
        Downstream::new(Peer::Local, Era::default(), 0, Scheme::Http, carrier, Moment::ZERO)
    }

    /// The clients of a list, oldest first, as both directions of its links name them.
    fn listed(conns: &mut Connections, list: WaitingList) -> Vec<u32> {
        let (mut found, mut at, mut older) = (Vec::new(), list.oldest, NO_SLOT);
        while at != NO_SLOT {
            assert_eq!(conns.slots[at as usize].older, older);
            found.push(at);
            older = at;
            at = conns.client_at(at).expect("a client").link;
        }
        assert_eq!((list.newest, list.count), (older, found.len()));
        found
    }

    proptest! {
        #[test]
        fn clients_stay_in_order_until_their_first_request(
            steps in prop::collection::vec((0..6_u8, 0..8_u32), 0..200),
        ) {
            let mut conns = Connections::with_capacity(8);
            let (mut silent, mut unfinished) = (Vec::new(), Vec::new());
            // The clients that were accepted before the last turn ended, and before it began.
            let (mut turned, mut checked) = (Vec::new(), Vec::new());
            for (what, index) in steps {
                let sock = SockId::new(index, 1);
                let is_open = conns.downstream(sock).is_some();
                match what {
                    0 if !is_open => {
                        conns.insert_downstream(sock, downstream());
                        silent.push(index);
                    }
                    1 => {
                        conns.note_bytes(sock);
                        if silent.contains(&index) {
                            silent.retain(|other| *other != index);
                            unfinished.push(index);
                        }
                    }
                    2 => {
                        conns.end_turn();
                        checked = turned;
                        turned = silent.clone();
                    }
                    3 => {
                        conns.note_checks();
                        checked = turned.clone();
                    }
                    _ => {
                        match what {
                            4 => conns.note_request(sock),
                            _ => drop(conns.remove_downstream(sock)),
                        }
                        silent.retain(|other| *other != index);
                        unfinished.retain(|other| *other != index);
                    }
                }
                turned.retain(|index| silent.contains(index));
                checked.retain(|index| silent.contains(index));
                let (lists, first) = ((conns.silent, conns.unfinished), conns.oldest_silent());
                prop_assert_eq!(first.map(|sock| sock.index), checked.first().copied());
                prop_assert_eq!(&listed(&mut conns, lists.0), &silent);
                prop_assert_eq!(&listed(&mut conns, lists.1), &unfinished);
            }
        }
    }

    #[test]
    fn stale_id_finds_nothing() {
        let mut conns = Connections::with_capacity(4);
        conns.insert_upstream(SockId::new(2, 1), upstream());
        assert!(conns.upstream(SockId::new(2, 3)).is_none());
        assert!(conns.downstream(SockId::new(2, 1)).is_none(), "the connection is upstream");
        assert!(conns.remove_upstream(SockId::new(2, 1)).is_some());
        assert!(conns.remove_upstream(SockId::new(2, 1)).is_none());
        assert_eq!(conns.upstream_count(), 0);
        assert!(conns.upstream_ids().is_empty());
    }
}
