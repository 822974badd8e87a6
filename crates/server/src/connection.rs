//! What a worker remembers of each connection, in a table beside the reactor's sockets.
//! In: the reactor's ids. Out: the downstream or upstream state of exactly that tenancy.
//! Never: holds a buffer while the connection is idle.
//! Invariant: `conns[sock.index]` is that socket's while its id is live; a stale id finds nothing.
//! Limits: a slot is at most 160 bytes (asserted), the largest part of an idle connection's user memory.

use tidegate_base::Id;
use tidegate_gate::hsts::PolicyId;
use tidegate_gate::scheme::Scheme;
use tidegate_reactor::{Peer, SockId};
use tidegate_wire::http1::{BodyDecoder, HeadDecoder};

use crate::buffers::Input;
use crate::client::ClientFacts;
use crate::exchange::Exchange;
use crate::produce::Produce;

/// A connection towards a client.
pub(crate) struct Downstream {
    /// The client: the socket's peer, or whom a proxy named.
    pub(crate) peer: Peer,
    pub(crate) listener: u16,
    /// How its client speaks: to us, or to a proxy in front that says so.
    pub(crate) scheme: Scheme,
    /// Strict-Transport-Security of the answer to the request that is worked on.
    pub(crate) hsts: PolicyId,
    /// The head came in part and its deadline runs.
    pub(crate) head_started: bool,
    /// The client is not taking its answers; no further request is decoded until it does.
    pub(crate) blocked: bool,
    /// The client will send no more.
    pub(crate) finished: bool,
    /// Requests answered or under way on this connection.
    pub(crate) requests: u32,
    pub(crate) decoder: HeadDecoder,
    pub(crate) input: Input,
    /// What else is known of the client.
    pub(crate) facts: Option<Box<ClientFacts>>,
    pub(crate) state: DownstreamState,
}

impl Downstream {
    /// Whether nothing more is decoded until the client takes its answers. A request under way is
    /// passed on regardless: its client may read only once it has sent all of it.
    pub(crate) fn is_held(&self) -> bool {
        self.blocked && !matches!(self.state, DownstreamState::Exchange(_))
    }

    /// Whether it was answered, took its answers and has not begun to ask again.
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
    /// The rest of a body nobody wants, `left` bytes of it at most, before the next head.
    ExpectDiscard { body: BodyDecoder, left: u64 },
    /// What the exchange with a server brings (and the request's body, until it is complete).
    Exchange(Id<Exchange>),
    /// That its own answer is produced.
    Produce(Id<Produce>),
    /// Bytes for the other end of a tunnel.
    Tunnel(Id<Exchange>),
}

/// A connection towards a server.
pub(crate) struct Upstream {
    pub(crate) pool: u16,
    pub(crate) server: u16,
    /// Requests sent over it.
    pub(crate) requests: u32,
    /// Whose answer it brings; `Id::NONE` while idle.
    pub(crate) exchange: Id<Exchange>,
    /// While idle: the client that it is kept for, where it serves one alone.
    pub(crate) owner: SockId,
    pub(crate) decoder: HeadDecoder,
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
    slots: Vec<Slot>,
    downstream: usize,
    upstream: usize,
    /// Where the next search for an idle client begins.
    hand: usize,
}

impl Connections {
    /// An empty table with room reserved (not touched) for `count` connections, so that it is never
    /// copied while it grows: the copies would double an idle connection's memory.
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

    /// The next connection, in slot order from the last one found, of a client that was answered and asks
    /// nothing now; of `looks_max` slots.
    pub(crate) fn next_idle_downstream(&mut self, looks_max: usize) -> Option<SockId> {
        for _ in 0..looks_max.min(self.slots.len()) {
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

    /// How many connections towards clients there are.
    pub(crate) fn downstream_count(&self) -> usize {
        self.downstream
    }

    /// How many connections towards servers there are.
    pub(crate) fn upstream_count(&self) -> usize {
        self.upstream
    }

    /// Every connection towards a client, in slot order.
    pub(crate) fn downstream_ids(&self) -> Vec<SockId> {
        self.ids(|conn| matches!(conn, Conn::Downstream(_)))
    }

    /// Every connection towards a server, in slot order.
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
            owner: SockId::NONE,
            decoder: HeadDecoder::default(),
            input: Input::default(),
        }
    }

    #[test]
    fn a_stale_id_finds_nothing() {
        let mut conns = Connections::with_capacity(4);
        conns.insert_upstream(SockId::new(2, 1), upstream());
        assert!(conns.upstream(SockId::new(2, 3)).is_none());
        assert!(conns.downstream(SockId::new(2, 1)).is_none(), "of the other kind");
        assert!(conns.remove_upstream(SockId::new(2, 1)).is_some());
        assert!(conns.remove_upstream(SockId::new(2, 1)).is_none());
        assert_eq!(conns.upstream_count(), 0);
        assert!(conns.upstream_ids().is_empty());
    }
}
