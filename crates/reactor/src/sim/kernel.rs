//! The simulated kernel of one worker: the calls of `Kernel` on the shared `World`, with faults.
//! In: the driver's calls. Out: results that a real kernel could have returned.
//! Never: injects a fault that a real kernel cannot show.
//! Invariant: after a fault withholds bytes, room or an edge, an edge follows, so that no
//! connection waits forever.

use std::io;

use tidegate_base::{Address, Moment, Span};

use super::SimNet;
use super::datagrams::DatagramEndId;
use super::world::{EndId, Link, Owner, Segment, Source, World};
use crate::driver::Loop;
use crate::interface::{CloseReason, DatagramFault, DatagramSent, ListenOptions, Peer, Shortage};
use crate::kernel::{
    Accepting, ConnectFault, Kernel, Ready, Receiving, ReceivingDatagram, Relaying, Sending, Watch,
};
use crate::waker::Waker;

/// The reactor on a simulated network.
pub type SimReactor = Loop<Sim>;

/// One worker's simulated kernel.
pub struct Sim {
    net: SimNet,
    /// Index of this worker in `World::workers`.
    worker: usize,
    /// The edges of the last wait.
    edges: Vec<Ready>,
}

/// A socket of the simulated kernel.
#[derive(Debug)]
pub struct SimHandle(Socket);

#[derive(Clone, Copy, Debug)]
enum Socket {
    End(EndId),
    Listener(usize),
    Datagrams(DatagramEndId),
}

impl Loop<Sim> {
    /// Creates a worker's reactor on `net` for at most `socks_max` connections. Several may share one
    /// network.
    #[must_use]
    pub fn new(net: &SimNet, socks_max: usize) -> Self {
        let worker = net.with(|world| {
            world.workers.push(Default::default());
            world.workers.len() - 1
        });
        let kernel = Sim { net: net.clone(), worker, edges: Vec::new() };
        Self::over(kernel, Waker::without_event(), socks_max)
    }
}

impl SimHandle {
    fn end(&self) -> EndId {
        match self.0 {
            Socket::End(id) => id,
            Socket::Listener(_) | Socket::Datagrams(_) => EndId::NONE,
        }
    }
}

impl Drop for Sim {
    fn drop(&mut self) {
        self.net.with(|world| world.workers[self.worker] = Default::default());
    }
}

impl Kernel for Sim {
    type Handle = SimHandle;

    fn clock(&self) -> Moment {
        self.net.now()
    }

    fn unix_millis(&self) -> u64 {
        1_700_000_000_000 + self.net.now().as_nanos() / 1_000_000
    }

    fn listen(
        &mut self,
        address: &Address,
        options: &ListenOptions,
    ) -> io::Result<(SimHandle, Address)> {
        let owner = Owner::Worker(self.worker);
        self.net.with(|world| {
            let address = world.resolve_port(address);
            if !options.reuse_port && world.open_listener_at(&address).is_some() {
                return Err(io::ErrorKind::AddrInUse.into());
            }
            let listener = world.add_listener(owner, address.clone(), options.backlog as usize);
            Ok((SimHandle(Socket::Listener(listener)), address))
        })
    }

    /// Does nothing: the simulator has no process that takes over.
    fn steer_away(&mut self, _listener: &SimHandle, _own_count: u32) {}

    fn steer_evenly(&mut self, _listener: &SimHandle) {}

    fn has_backlog(&mut self, listener: &SimHandle) -> bool {
        let Socket::Listener(listener) = listener.0 else { return false };
        self.net.with(|world| !world.listeners[listener].backlog.is_empty())
    }

    fn accept(&mut self, listener: &SimHandle) -> Accepting<SimHandle> {
        let Socket::Listener(listener) = listener.0 else {
            return Accepting::Empty;
        };
        self.net.with(|world| {
            let Some(&id) = world.listeners[listener].backlog.front() else {
                return Accepting::Empty;
            };
            if world.chance(world.faults.accept_shortage_ppm) {
                return Accepting::Short(random_shortage(world));
            }
            world.listeners[listener].backlog.pop_front();
            if world.chance(world.faults.accept_lost_ppm) {
                world.close(id, true);
                return Accepting::Lost;
            }
            let Some(end) = world.ends.get_mut(id) else {
                return Accepting::Lost;
            };
            end.held = true;
            Accepting::Accepted(SimHandle(Socket::End(id)), end.peer)
        })
    }

    fn connect(
        &mut self,
        address: &Address,
        source: Option<core::net::IpAddr>,
    ) -> Result<SimHandle, ConnectFault> {
        let owner = Owner::Worker(self.worker);
        self.net.with(|world| {
            let faults = world.faults.clone();
            let shortage = world.shortages.iter().find(|(of, ..)| of == address);
            world.short_connects += u64::from(shortage.is_some());
            match shortage {
                Some(&(_, shortage, true)) => {
                    let reason = CloseReason::ConnectShortage(shortage);
                    return Ok(SimHandle(Socket::End(world.connect_failing(owner, Some(reason)))));
                }
                Some(&(_, shortage, false)) => return Err(ConnectFault::Short(shortage)),
                None => {}
            }
            if world.chance(faults.connect_shortage_ppm) {
                let ports = matches!(address, Address::Tcp(_)) && world.prng.chance(250_000);
                let shortage = if ports { Shortage::Ports } else { random_shortage(world) };
                return Err(ConnectFault::Short(shortage));
            }
            let refused = CloseReason::ConnectRefused;
            let unreachable = CloseReason::ConnectUnreachable;
            let id = if world.chance(faults.connect_refused_ppm) {
                if world.prng.chance(500_000) {
                    return Err(ConnectFault::Refused(refused));
                }
                world.connect_failing(owner, Some(refused))
            } else if world.chance(faults.connect_unreachable_ppm) {
                world.connect_failing(owner, Some(unreachable))
            } else if world.chance(faults.connect_silent_ppm) {
                world.connect_failing(owner, None)
            } else {
                let delay = world.prng.below(u64::from(faults.connect_delay_ms_max) + 1);
                let peer = match (world.make_peer(address), source) {
                    (Peer::Tcp(made), Some(source)) => Peer::Tcp((source, made.port()).into()),
                    (peer, _) => peer,
                };
                world.connect(owner, address, peer, Span::from_millis(delay))
            };
            Ok(SimHandle(Socket::End(id)))
        })
    }

    fn open_datagrams(&mut self, peer: core::net::SocketAddr) -> Result<SimHandle, CloseReason> {
        let owner = Owner::Worker(self.worker);
        self.net.with(|world| {
            if world.chance(world.faults.connect_shortage_ppm) {
                return Err(CloseReason::ConnectShortage(random_shortage(world)));
            }
            let local = core::net::SocketAddr::from(([127, 0, 0, 1], world.take_port()));
            let opened = world.open_datagram_end(owner, local, Some(peer));
            let id = opened.ok_or(CloseReason::ConnectShortage(Shortage::Ports))?;
            Ok(SimHandle(Socket::Datagrams(id)))
        })
    }

    fn send_datagram(&mut self, handle: &SimHandle, bytes: &[u8]) -> DatagramSent {
        let Socket::Datagrams(id) = handle.0 else { return DatagramSent::Closed };
        self.net.with(|world| {
            if world.chance(world.faults.would_block_ppm) {
                return DatagramSent::Full;
            }
            world.send_datagram(id, None, bytes)
        })
    }

    fn receive_datagram(&mut self, handle: &SimHandle, buffer: &mut [u8]) -> ReceivingDatagram {
        let Socket::Datagrams(id) = handle.0 else { return ReceivingDatagram::Empty };
        self.net.with(|world| {
            if world.chance(world.faults.would_block_ppm) {
                world.raise_datagram_edge_later(id);
                return ReceivingDatagram::Empty;
            }
            let Some(end) = world.datagrams.get_mut(id) else { return ReceivingDatagram::Empty };
            if core::mem::replace(&mut end.is_refused, false) {
                return ReceivingDatagram::Failed(DatagramFault::Refused);
            }
            let Some((_, bytes)) = end.inbound.pop_front() else { return ReceivingDatagram::Empty };
            let count = bytes.len().min(buffer.len());
            buffer[..count].copy_from_slice(&bytes[..count]);
            ReceivingDatagram::Bytes(count)
        })
    }

    fn connect_outcome(&mut self, handle: &SimHandle) -> Option<Result<(), CloseReason>> {
        self.net.with(|world| match world.ends.get(handle.end())?.link {
            Link::Connecting => None,
            Link::Refused(reason) => Some(Err(reason)),
            Link::Up => Some(Ok(())),
        })
    }

    fn local_address(&self, handle: &SimHandle) -> Option<core::net::SocketAddr> {
        let Socket::End(id) = handle.0 else { return None };
        self.net.with(|world| world.ends.get(id)?.local)
    }

    fn register(&mut self, handle: &SimHandle, token: u64) -> Result<(), Shortage> {
        self.net.with(|world| {
            match handle.0 {
                Socket::Listener(listener) => {
                    world.listeners[listener].token = Some(token);
                    world.raise_backlog_edge(listener);
                }
                Socket::End(id) => {
                    if world.chance(world.faults.register_shortage_ppm) {
                        return Err(Shortage::Memory);
                    }
                    if let Some(end) = world.ends.get_mut(id) {
                        end.token = Some(token);
                    }
                    world.raise_edge(id);
                }
                Socket::Datagrams(id) => {
                    if world.chance(world.faults.register_shortage_ppm) {
                        return Err(Shortage::Memory);
                    }
                    if let Some(end) = world.datagrams.get_mut(id) {
                        end.token = Some(token);
                    }
                    world.raise_datagram_edge(id);
                }
            }
            Ok(())
        })
    }

    fn watch(&mut self, handle: &SimHandle, token: u64, watch: Watch) -> bool {
        let id = handle.end();
        self.net.with(|world| {
            let Some(end) = world.ends.get_mut(id) else { return false };
            debug_assert_eq!(end.token, Some(token), "registered with another token");
            end.watch = watch;
            world.raise_edge(id);
            true
        })
    }

    fn receive(&mut self, handle: &SimHandle, buffer: &mut [u8]) -> Receiving {
        let id = handle.end();
        self.net.with(|world| {
            if world.chance(world.faults.reset_ppm) {
                world.break_connection(id);
            }
            let Some(end) = world.ends.get_mut(id) else {
                return Receiving::Broken;
            };
            if end.inbound.is_empty() {
                return if core::mem::replace(&mut end.error_pending, false) {
                    Receiving::Broken
                } else if end.finish_arrived || end.reset_arrived {
                    Receiving::End
                } else {
                    Receiving::Empty
                };
            }
            let there = end.inbound.len().min(buffer.len());
            let watch = end.watch;
            if world.chance(world.faults.would_block_ppm) {
                world.raise_edge_later(id);
                return Receiving::Empty;
            }
            let mut count = there;
            if world.chance(world.faults.short_read_ppm) {
                count = 1 + world.prng.below(there as u64) as usize;
                if watch == Watch::Edges {
                    world.raise_edge_later(id);
                }
            }
            let bytes = world.take_inbound(id, count);
            buffer[..bytes.len()].copy_from_slice(&bytes);
            Receiving::Bytes(bytes.len())
        })
    }

    fn peek(&mut self, handle: &SimHandle) -> Receiving {
        let id = handle.end();
        self.net.with(|world| {
            let Some(end) = world.ends.get_mut(id) else {
                return Receiving::Broken;
            };
            if !end.inbound.is_empty() {
                Receiving::Bytes(1)
            } else if core::mem::replace(&mut end.error_pending, false) {
                Receiving::Broken
            } else if end.finish_arrived || end.reset_arrived {
                Receiving::End
            } else {
                Receiving::Empty
            }
        })
    }

    fn send(&mut self, handle: &SimHandle, first: &[u8], second: &[u8]) -> Sending {
        let id = handle.end();
        self.net.with(|world| {
            if world.chance(world.faults.reset_ppm) {
                world.break_connection(id);
            }
            let room = world.room(id);
            let Some(end) = world.ends.get_mut(id) else {
                return Sending::Broken;
            };
            if end.reset_arrived || end.send_finished {
                end.error_pending = false;
                return Sending::Broken;
            }
            if room == 0 {
                end.starved = true;
                return Sending::Full;
            }
            if world.chance(world.faults.would_block_ppm) {
                world.raise_edge_later(id);
                return Sending::Full;
            }
            let mut count = room.min(first.len() + second.len());
            if world.chance(world.faults.short_write_ppm) {
                count = 1 + world.prng.below(count as u64) as usize;
            }
            let from_first = count.min(first.len());
            let mut bytes = first[..from_first].to_vec();
            bytes.extend_from_slice(&second[..count - from_first]);
            world.transmit(id, Segment::Bytes(bytes));
            Sending::Sent(count)
        })
    }

    fn relay(
        &mut self,
        from: &SimHandle,
        to: &SimHandle,
        buffer: &mut [u8],
        _watch: Watch,
    ) -> Relaying {
        let taken = match self.receive(from, buffer) {
            Receiving::Bytes(taken) => taken,
            Receiving::Empty => return Relaying::Empty,
            Receiving::Broken => return Relaying::Broken,
            // `receive` reports it again.
            Receiving::End => return Relaying::Receive,
        };
        let mut sent = 0;
        while sent < taken {
            match self.send(to, &buffer[sent..taken], &[]) {
                Sending::Sent(count) => sent += count,
                Sending::Full => {
                    buffer.copy_within(sent..taken, 0);
                    return Relaying::Held { taken, held: taken - sent };
                }
                Sending::Broken => return Relaying::Lost(taken),
            }
        }
        Relaying::Sent { count: taken, is_empty: taken < buffer.len() }
    }

    fn take_error(&mut self, handle: &SimHandle) -> bool {
        self.net.with(|world| {
            let end = world.ends.get_mut(handle.end());
            end.is_none_or(|end| core::mem::replace(&mut end.error_pending, false))
        })
    }

    fn unacknowledged(&self, handle: &SimHandle) -> usize {
        self.net.with(|world| world.unread(handle.end()))
    }

    fn shutdown_send(&mut self, handle: &SimHandle) {
        self.net.with(|world| world.finish(handle.end()));
    }

    fn close(&mut self, handle: SimHandle) {
        self.net.with(|world| match handle.0 {
            Socket::End(id) => world.close(id, false),
            Socket::Listener(listener) => world.close_listener(listener),
            Socket::Datagrams(id) => {
                world.datagrams.remove(id);
            }
        });
    }

    fn reset(&mut self, handle: SimHandle) {
        self.net.with(|world| world.close(handle.end(), true));
    }

    fn wait(&mut self, timeout: Option<Span>) -> usize {
        let (worker, edges) = (self.worker, &mut self.edges);
        edges.clear();
        self.net.with(|world| {
            let limit = timeout.map_or(Moment::NEVER, |span| world.now.after(span));
            world.run_until(world.now);
            loop {
                take_edges(world, worker, edges);
                if !edges.is_empty() {
                    break;
                }
                match world.next_event_at().filter(|&at| at <= limit) {
                    Some(at) => world.run_until(at),
                    None if limit == Moment::NEVER => break,
                    None => {
                        world.run_until(limit);
                        break;
                    }
                }
            }
            if world.chance(world.faults.stall_ppm) {
                let stall = world.prng.below(u64::from(world.faults.stall_ms_max) + 1);
                world.run_until(world.now.after(Span::from_millis(stall)));
            }
            edges.len()
        })
    }

    fn ready(&self, index: usize) -> Ready {
        self.edges[index]
    }

    fn note_due(&mut self, due: impl FnOnce() -> Option<Moment>) {
        let (worker, due) = (self.worker, due());
        self.net.with(|world| {
            world.workers[worker].due = due;
            world.raise_level(worker);
        });
    }
}

/// Takes this worker's edges. As with epoll, each edge reports the state at the time when it is taken.
fn take_edges(world: &mut World, worker: usize, edges: &mut Vec<Ready>) {
    let mut count = world.workers[worker].edges.len();
    if count > 1 && world.chance(world.faults.reorder_ppm) {
        for at in (1..count).rev() {
            let with = world.prng.below(at as u64 + 1) as usize;
            world.workers[worker].edges.swap(at, with);
        }
    }
    if count > 1 && world.chance(world.faults.partial_wait_ppm) {
        count = 1 + world.prng.below(count as u64) as usize;
    }
    for _ in 0..count {
        let Some(source) = world.workers[worker].edges.pop_front() else {
            return;
        };
        world.lower_edge(source);
        let ready = readiness(world, source);
        if let (Some(_), Source::End(id)) = (ready, source)
            && world.ends.get(id).is_some_and(|end| end.watch == Watch::Level)
        {
            world.workers[worker].level.push(id);
        }
        edges.extend(ready);
    }
}

/// The current state of `source` as an edge; `None` if there is nothing to report.
fn readiness(world: &World, source: Source) -> Option<Ready> {
    let ready = match source {
        Source::Listener(listener) => {
            let entry = &world.listeners[listener];
            let token = entry.token.filter(|_| entry.is_open)?;
            Ready { token, readable: !entry.backlog.is_empty(), ..Ready::default() }
        }
        Source::End(id) => {
            let end = world.ends.get(id)?;
            let token = end.token?;
            match end.link {
                Link::Connecting => return None,
                Link::Refused(_) => {
                    Ready { token, writable: true, hangup: true, error: true, readable: true }
                }
                Link::Up => {
                    let is_over = end.is_over();
                    Ready {
                        token,
                        readable: !end.inbound.is_empty() || is_over,
                        writable: end.watch == Watch::Edges
                            && (end.reset_arrived || world.room(id) > 0),
                        hangup: is_over,
                        error: end.error_pending,
                    }
                }
            }
        }
        Source::Datagrams(id) => {
            let end = world.datagrams.get(id)?;
            let readable = end.is_refused || !end.inbound.is_empty();
            Ready { token: end.token?, readable, ..Ready::default() }
        }
    };
    (ready.readable || ready.writable || ready.hangup || ready.error).then_some(ready)
}

fn random_shortage(world: &mut World) -> Shortage {
    let all = [Shortage::WorkerDescriptors, Shortage::SystemDescriptors, Shortage::Memory];
    all[world.prng.below(all.len() as u64) as usize]
}

impl World {
    /// Replaces port 0 by a free port.
    fn resolve_port(&mut self, address: &Address) -> Address {
        match address {
            Address::Tcp(tcp) if tcp.port() == 0 => {
                Address::Tcp(core::net::SocketAddr::new(tcp.ip(), self.take_port()))
            }
            Address::Tcp(_) | Address::Unix(_) => address.clone(),
        }
    }

    pub(super) fn take_port(&mut self) -> u16 {
        let port = self.next_port;
        self.next_port = if port == u16::MAX { 40_000 } else { port + 1 };
        port
    }

    /// The address with which a new client appears to the listener at `address`.
    pub(super) fn make_peer(&mut self, address: &Address) -> Peer {
        match address {
            Address::Tcp(_) => {
                Peer::Tcp(core::net::SocketAddr::from(([127, 0, 0, 1], self.take_port())))
            }
            Address::Unix(_) => Peer::Local,
        }
    }
}
