//! The table of a worker's connections, indexed like the reactor's sockets.
//! In: the reactor's socket ids. Out: the downstream or upstream state of exactly that socket.
//! Never: holds a buffer while the connection is idle.
//! Invariant: `slots[sock.index]` belongs to that socket as long as its id is live; a stale id finds nothing.
//! Limits: a slot is at most 160 bytes (asserted). It is the largest part of an idle connection's user
//! memory.

use tidegate_base::Id;
use tidegate_gate::hsts::PolicyId;
use tidegate_gate::scheme::Scheme;
use tidegate_reactor::{Peer, SockId};
use tidegate_wire::http1::{BodyDecoder, HeadDecoder};

use crate::buffers::Input;
use crate::client::ClientFacts;
use crate::exchange::Exchange;
use crate::synthetic::SyntheticResponse;

/// A connection towards a client.
pub(crate) struct Downstream {
    /// The client's address: the socket's peer address, or the source address in a PROXY header.
    pub(crate) peer: Peer,
    /// Index of the listener that accepted the connection. Never changes.
    pub(crate) listener: u16,
    /// The scheme of the client's connection: to this process, or to a proxy in front that sent it in a PROXY
    /// header.
    pub(crate) scheme: Scheme,
    /// The Strict-Transport-Security value for the response to the current request. Set for each request.
    pub(crate) hsts: PolicyId,
    /// Part of a request head is in `input`, and the head timeout is running. False in every other state.
    pub(crate) head_started: bool,
    /// The client does not read its responses fast enough. No further request is decoded until the output has
    /// drained. The deadline is the next look at the output (`next_look`), except in a tunnel.
    pub(crate) blocked: bool,
    /// The client has ended its direction of the connection.
    pub(crate) finished: bool,
    /// Requests decoded on this connection, the current one included.
    pub(crate) requests: u32,
    /// Decodes the next request head. Reset after each head.
    pub(crate) decoder: HeadDecoder,
    /// Bytes received but not processed yet. Empty (and without a buffer) while the connection is idle.
    pub(crate) input: Input,
    /// Further facts about the client; `None` for most clients.
    pub(crate) facts: Option<Box<ClientFacts>>,
    /// What the connection expects next.
    pub(crate) state: DownstreamState,
}

impl Downstream {
    /// Whether decoding is suspended until the client reads its responses. The body of a proxied request is
    /// still forwarded, because a client may read the response only after it has sent the whole request. The
    /// two directions of a tunnel are independent, too.
    pub(crate) fn is_held(&self) -> bool {
        self.blocked
            && !matches!(self.state, DownstreamState::Exchange(_) | DownstreamState::Tunnel(_))
    }

    /// Whether the client has received all its responses, at least one, and has not begun another request.
    pub(crate) fn is_idle(&self) -> bool {
        matches!(self.state, DownstreamState::ExpectHead)
            && self.requests > 0
            && self.input.is_empty()
            && !self.blocked
    }
}

/// What a downstream connection expects next.
pub(crate) enum DownstreamState {
    /// The PROXY header, before anything else.
    ExpectProxyHeader,
    /// The head of the next request.
    ExpectHead,
    /// The rest of an unwanted body, up to `left` bytes of it, and then the next head.
    ExpectDiscard { body: BodyDecoder, left: u64 },
    /// The response of a server, and the rest of the request body until it is complete.
    Exchange(Id<Exchange>),
    /// A synthetic response, and the request body until it is complete.
    Synthetic(Id<SyntheticResponse>),
    /// Bytes for the server at the other end of a tunnel.
    Tunnel(Id<Exchange>),
}

/// A connection towards a server.
pub(crate) struct Upstream {
    /// Index of the pool in the configuration. Never changes.
    pub(crate) pool: u16,
    /// Index of the server in the pool. Never changes.
    pub(crate) server: u16,
    /// Requests sent over the connection, compared with `reuse.requests-max`.
    pub(crate) requests: u32,
    /// The exchange that uses the connection; `Id::NONE` while the connection is idle.
    pub(crate) exchange: Id<Exchange>,
    /// The server authenticates this connection (NTLM, Negotiate), so it serves one client only. Once true, it
    /// stays true.
    pub(crate) authenticated: bool,
    /// The downstream connection that this idle connection is kept for, if it serves one client only.
    /// `SockId::NONE` while in use, and for connections in the pool's idle list.
    pub(crate) owner: SockId,
    /// Decodes the next response head. Reset after each head.
    pub(crate) decoder: HeadDecoder,
    /// Bytes received but not processed yet: the beginning of a response head. Empty while idle.
    pub(crate) input: Input,
}

enum Conn {
    Vacant,
    Downstream(Downstream),
    Upstream(Upstream),
}

struct Slot {
    generation: u32,
    conn: Conn,
}

const _: () = assert!(size_of::<Slot>() <= 160);

/// All connections of a worker.
pub(crate) struct Connections {
    /// By the index of the socket id.
    slots: Vec<Slot>,
    /// The number of downstream connections in `slots`.
    downstream: usize,
    /// The number of upstream connections in `slots`.
    upstream: usize,
    /// The slot before the one where the next search for an idle client begins.
    hand: usize,
}

impl Connections {
    /// Creates an empty table with address space reserved (but not touched) for `count` connections. The
    /// table is therefore never copied while it grows; copies would double the memory of an idle connection.
    pub(crate) fn with_capacity(count: usize) -> Self {
        const RESERVED_MAX: usize = 1 << 20;
        let slots = Vec::with_capacity(count.min(RESERVED_MAX));
        Self { slots, downstream: 0, upstream: 0, hand: 0 }
    }

    pub(crate) fn insert_downstream(&mut self, sock: SockId, conn: Downstream) {
        self.downstream += 1;
        self.insert(sock, Conn::Downstream(conn));
    }

    pub(crate) fn insert_upstream(&mut self, sock: SockId, conn: Upstream) {
        self.upstream += 1;
        self.insert(sock, Conn::Upstream(conn));
    }

    fn insert(&mut self, sock: SockId, conn: Conn) {
        let index = sock.index as usize;
        if index >= self.slots.len() {
            self.slots.resize_with(index + 1, || Slot { generation: 0, conn: Conn::Vacant });
        }
        debug_assert!(matches!(self.slots[index].conn, Conn::Vacant), "slot of {sock:?} is taken");
        self.slots[index] = Slot { generation: sock.generation, conn };
    }

    pub(crate) fn downstream(&mut self, sock: SockId) -> Option<&mut Downstream> {
        match self.slots.get_mut(sock.index as usize) {
            Some(Slot { generation, conn: Conn::Downstream(down) })
                if *generation == sock.generation =>
            {
                Some(down)
            }
            _ => None,
        }
    }

    pub(crate) fn upstream(&mut self, sock: SockId) -> Option<&mut Upstream> {
        match self.slots.get_mut(sock.index as usize) {
            Some(Slot { generation, conn: Conn::Upstream(up) })
                if *generation == sock.generation =>
            {
                Some(up)
            }
            _ => None,
        }
    }

    pub(crate) fn is_upstream(&mut self, sock: SockId) -> bool {
        self.upstream(sock).is_some()
    }

    pub(crate) fn remove_downstream(&mut self, sock: SockId) -> Option<Downstream> {
        self.downstream(sock)?;
        self.downstream -= 1;
        match self.take(sock) {
            Conn::Downstream(down) => Some(down),
            _ => None,
        }
    }

    pub(crate) fn remove_upstream(&mut self, sock: SockId) -> Option<Upstream> {
        self.upstream(sock)?;
        self.upstream -= 1;
        match self.take(sock) {
            Conn::Upstream(up) => Some(up),
            _ => None,
        }
    }

    fn take(&mut self, sock: SockId) -> Conn {
        let slot = &mut self.slots[sock.index as usize];
        slot.generation = 0;
        core::mem::replace(&mut slot.conn, Conn::Vacant)
    }

    /// Finds the next idle client connection, in slot order from the one found last. Looks at up to
    /// `scan_slots_max` slots.
    pub(crate) fn next_idle_downstream(&mut self, scan_slots_max: usize) -> Option<SockId> {
        for _ in 0..scan_slots_max.min(self.slots.len()) {
            self.hand = (self.hand + 1) % self.slots.len();
            let slot = &self.slots[self.hand];
            if let Conn::Downstream(down) = &slot.conn
                && down.is_idle()
            {
                return Some(SockId::new(self.hand as u32, slot.generation));
            }
        }
        None
    }

    /// The number of connections towards clients.
    pub(crate) fn downstream_count(&self) -> usize {
        self.downstream
    }

    /// The number of connections towards servers.
    pub(crate) fn upstream_count(&self) -> usize {
        self.upstream
    }

    /// The ids of all connections towards clients, in slot order.
    pub(crate) fn downstream_ids(&self) -> Vec<SockId> {
        self.ids(|conn| matches!(conn, Conn::Downstream(_)))
    }

    /// The ids of all connections towards servers, in slot order.
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
    use super::*;

    fn upstream() -> Upstream {
        Upstream {
            pool: 0,
            server: 0,
            requests: 0,
            exchange: Id::NONE,
            authenticated: false,
            owner: SockId::NONE,
            decoder: HeadDecoder::default(),
            input: Input::default(),
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
