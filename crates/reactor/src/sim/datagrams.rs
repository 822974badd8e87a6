//! Datagrams in the simulated network: sockets of reactors, each connected to one peer, and sockets of the test.
//! In: datagrams to send. Out: datagrams that arrive late, twice, in another order or not at all; refusals, as by ICMP, if no
//! socket has the address.
//! Limits: `INBOUND_MAX` datagrams wait in a socket; further ones are lost.
//! Invariant: a socket that is connected receives datagrams of its peer only.

use core::net::SocketAddr;
use std::collections::VecDeque;

use tidegate_base::prng::{hash_bytes, mix64};
use tidegate_base::{Id, Span};

use super::SimNet;
use super::world::{Event, Owner, Source, World};
use crate::interface::{DatagramFault, DatagramSent};

/// Datagrams that wait in a socket.
const INBOUND_MAX: usize = 256;
/// The longest datagram over IPv4.
const DATAGRAM_BYTES_MAX: usize = 65_507;

pub(super) type DatagramEndId = Id<DatagramEnd>;

/// A datagram socket.
pub(super) struct DatagramEnd {
    owner: Owner,
    local: SocketAddr,
    /// The address that the socket is connected to; `None` if it is not connected.
    peer: Option<SocketAddr>,
    /// The number that the kernel reports with its edges; `None` until it is registered with epoll.
    pub(super) token: Option<u64>,
    /// Datagrams that have arrived, and their senders.
    pub(super) inbound: VecDeque<(SocketAddr, Vec<u8>)>,
    /// A refusal has arrived that was not reported to the owner yet.
    pub(super) is_refused: bool,
    /// An edge of this socket is in its worker's queue.
    pub(super) edge_queued: bool,
}

impl World {
    /// Opens a socket. `None` if the address is in use.
    pub(super) fn open_datagram_end(
        &mut self,
        owner: Owner,
        local: SocketAddr,
        peer: Option<SocketAddr>,
    ) -> Option<DatagramEndId> {
        if self.datagrams.iter().any(|(_, end)| end.local == local) {
            return None;
        }
        let inbound = VecDeque::new();
        let (token, is_refused, edge_queued) = (None, false, false);
        let end = DatagramEnd { owner, local, peer, token, inbound, is_refused, edge_queued };
        self.datagrams.insert(end).ok()
    }

    /// Sends a datagram to `to`, or to the peer of the socket.
    pub(super) fn send_datagram(
        &mut self,
        id: DatagramEndId,
        to: Option<SocketAddr>,
        bytes: &[u8],
    ) -> DatagramSent {
        let Some(end) = self.datagrams.get_mut(id) else { return DatagramSent::Closed };
        if core::mem::replace(&mut end.is_refused, false) {
            return DatagramSent::Failed(DatagramFault::Refused);
        }
        let (from, Some(to)) = (end.local, to.or(end.peer)) else {
            return DatagramSent::Failed(DatagramFault::Unreachable);
        };
        if bytes.len() > DATAGRAM_BYTES_MAX {
            return DatagramSent::TooLong;
        }
        for part in [self.now.as_nanos(), u64::from(id.index), hash_bytes(bytes)] {
            self.trace_hash = mix64(self.trace_hash.wrapping_add(3) ^ part);
        }
        let is_repeated = self.chance(self.faults.datagram_repeated_ppm);
        for _ in 0..=usize::from(is_repeated) {
            if !self.chance(self.faults.datagram_lost_ppm) {
                let at = self.now.after(self.latency());
                self.add_event(at, Event::Datagram { to, from, bytes: bytes.to_vec() });
            }
        }
        DatagramSent::Sent
    }

    pub(super) fn arrive_datagram(&mut self, to: SocketAddr, from: SocketAddr, bytes: Vec<u8>) {
        let Some(id) = self.datagram_end_at(to) else {
            let at = self.now.after(self.latency());
            return self.add_event(at, Event::DatagramRefused { to: from, from: to });
        };
        if let Some(end) = self.datagrams.get_mut(id)
            && end.peer.is_none_or(|peer| peer == from)
            && end.inbound.len() < INBOUND_MAX
        {
            end.inbound.push_back((from, bytes));
            self.raise_datagram_edge(id);
        }
    }

    /// Nothing receives at `from`. As in Linux, only a connected socket is notified of that.
    pub(super) fn refuse_datagram(&mut self, to: SocketAddr, from: SocketAddr) {
        if let Some(id) = self.datagram_end_at(to)
            && let Some(end) = self.datagrams.get_mut(id)
            && end.peer == Some(from)
        {
            end.is_refused = true;
            self.raise_datagram_edge(id);
        }
    }

    pub(super) fn raise_datagram_edge(&mut self, id: DatagramEndId) {
        let Some(end) = self.datagrams.get_mut(id) else { return };
        if let (Owner::Worker(worker), Some(_), false) = (end.owner, end.token, end.edge_queued) {
            end.edge_queued = true;
            self.workers[worker].edges.push_back(Source::Datagrams(id));
        }
    }

    /// As `World::raise_edge_later`.
    pub(super) fn raise_datagram_edge_later(&mut self, end: DatagramEndId) {
        let at = self.now.after(self.latency()).after(Span::from_micros(1));
        self.add_event(at, Event::DatagramEdge { end });
    }

    fn datagram_end_at(&self, local: SocketAddr) -> Option<DatagramEndId> {
        self.datagrams.iter().find(|(_, end)| end.local == local).map(|(id, _)| id)
    }
}

/// A socket for datagrams, operated by the test. Dropping it closes it.
pub struct SimDatagrams {
    net: SimNet,
    id: DatagramEndId,
}

impl SimDatagrams {
    pub(super) fn new(net: SimNet, id: DatagramEndId) -> Self {
        Self { net, id }
    }

    /// Takes the next datagram that has arrived, and its sender.
    #[must_use]
    pub fn receive(&self) -> Option<(SocketAddr, Vec<u8>)> {
        self.net.with(|world| {
            world.run_until(world.now);
            world.datagrams.get_mut(self.id)?.inbound.pop_front()
        })
    }

    /// Sends a datagram.
    pub fn send(&self, to: SocketAddr, bytes: &[u8]) {
        self.net.with(|world| {
            world.send_datagram(self.id, Some(to), bytes);
        });
    }
}

impl Drop for SimDatagrams {
    fn drop(&mut self) {
        self.net.with(|world| world.datagrams.remove(self.id));
    }
}
