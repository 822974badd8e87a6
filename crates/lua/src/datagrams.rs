//! Sockets of scripts for datagrams (`tide.udp`), each of which talks to one address.
//! In: calls of scripts; datagrams, refusals and the end of each socket. Out: effects; datagrams, each as a whole.
//! Never: decides whether an application may talk to an address: the worker does.
//! Limits: `Bounds::requests_max` sockets and requests of a VM together; `WAITING_MAX` datagrams and `WAITING_BYTES_MAX` bytes
//! that wait in a socket: further ones are lost, as datagrams may be; `DATAGRAM_BYTES_MAX` of a datagram.
//! Invariant: a socket belongs to the handler, the client or the application that has opened it, and ends with it.

use core::net::SocketAddr;
use std::collections::VecDeque;

use tidegate_base::{Id, Moment, Slab};

use crate::host::{Effect, Host};
use crate::operations::{OPERATIONS_MAX, OperationId, OperationKind};
use crate::schedule::{TaskId, Wait, Wake};
use crate::sockets::{BUSY, CLOSED, Keeper};
use crate::vm::Vm;

/// Maximum number of datagrams that wait in a socket.
const WAITING_MAX: usize = 64;
/// Maximum number of bytes that wait in a socket. One datagram always fits.
const WAITING_BYTES_MAX: usize = 128 * 1024;
/// The longest datagram over IPv4.
const DATAGRAM_BYTES_MAX: usize = 65_507;

/// Names a socket for datagrams of a VM.
pub type DatagramSocketId = Id<DatagramSocket>;

/// The state of a socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// The worker has not opened the socket yet.
    Opening,
    /// The socket is open; this is the worker's tag of it.
    Open(u64),
    /// The socket has ended, for this reason. Received datagrams can still be read.
    Ended(&'static str),
}

/// A socket; see the module header.
pub struct DatagramSocket {
    stage: Stage,
    keeper: Keeper,
    /// The datagrams that wait for the script.
    waiting: VecDeque<Vec<u8>>,
    /// The number of bytes in `waiting`.
    waiting_bytes: usize,
    /// Why a datagram has not arrived; not reported to the script yet.
    fault: Option<&'static str>,
    /// The coroutine that waits for a datagram, or until the socket is open.
    reader: TaskId,
}

/// The sockets for datagrams of a VM.
pub(crate) struct Datagrams {
    slab: Slab<DatagramSocket>,
    /// The worker's tags of sockets that must be closed, until `Vm::take_closed_datagrams`.
    closed: Vec<u64>,
}

impl Default for Datagrams {
    fn default() -> Self {
        Self { slab: Slab::new(OPERATIONS_MAX), closed: Vec::new() }
    }
}

/// Calls of scripts.
impl Host {
    /// Requests a socket that talks to `peer`.
    pub(crate) fn open_datagrams(
        &mut self,
        peer: SocketAddr,
    ) -> Result<DatagramSocketId, &'static str> {
        self.make_room_for_socket()?;
        let (stage, keeper, reader) = (Stage::Opening, self.keeper(), Id::NONE);
        let (waiting, waiting_bytes, fault) = (VecDeque::new(), 0, None);
        let socket = DatagramSocket { stage, keeper, waiting, waiting_bytes, fault, reader };
        let inserted = self.datagrams.slab.insert(socket);
        let id = inserted.map_err(|_| "too many sockets of the application are open")?;
        self.outgoing += 1;
        self.outbox.effects.push(Effect::OpenDatagrams { socket: id, peer });
        Ok(id)
    }

    /// Requests that a datagram is sent. The operation ends when the kernel has taken or refused it.
    pub(crate) fn send_datagram(
        &mut self,
        id: DatagramSocketId,
        data: &[u8],
    ) -> Result<OperationId, &'static str> {
        let tag = match self.datagrams.slab.get(id).map(|socket| socket.stage) {
            Some(Stage::Open(tag)) => tag,
            Some(Stage::Ended(reason)) => return Err(reason),
            Some(Stage::Opening) | None => return Err(CLOSED),
        };
        if data.len() > DATAGRAM_BYTES_MAX {
            return Err("a datagram has up to 65507 bytes");
        }
        let operation = self.start_operation(data.len(), OperationKind::Call)?;
        let data = self.outbox.push(data);
        self.outbox.effects.push(Effect::SendDatagram { operation, tag, data });
        Ok(operation)
    }

    /// Takes the next datagram; `None` if the script has to wait for it.
    pub(crate) fn take_datagram(
        &mut self,
        id: DatagramSocketId,
    ) -> Result<Option<Vec<u8>>, &'static str> {
        let socket = self.datagrams.slab.get_mut(id).ok_or(CLOSED)?;
        if let Some(bytes) = socket.waiting.pop_front() {
            socket.waiting_bytes -= bytes.len();
            return Ok(Some(bytes));
        }
        match socket.stage {
            Stage::Ended(reason) => Err(reason),
            Stage::Opening | Stage::Open(_) => socket.fault.take().map_or(Ok(None), Err),
        }
    }

    /// What a coroutine must wait for until a socket is open, or until a datagram can be taken; `None` if it need not wait.
    pub(crate) fn datagram_wait(
        &self,
        id: DatagramSocketId,
        is_read: bool,
        by: Moment,
    ) -> Result<Option<Wait>, &'static str> {
        let socket = self.datagrams.slab.get(id).ok_or(CLOSED)?;
        match socket.stage {
            Stage::Ended(_) if is_read => return Ok(None),
            Stage::Ended(reason) => return Err(reason),
            Stage::Open(_) if !is_read => return Ok(None),
            Stage::Opening | Stage::Open(_) => {}
        }
        if is_read && (socket.fault.is_some() || !socket.waiting.is_empty()) {
            return Ok(None);
        }
        match self.schedule.has_task(socket.reader) {
            true => Err(BUSY),
            false => Ok(Some(Wait::Datagram(id, by))),
        }
    }

    /// A coroutine waits for a socket.
    pub(crate) fn await_datagram(&mut self, id: DatagramSocketId, task: TaskId) {
        match self.datagrams.slab.get_mut(id) {
            Some(socket) => socket.reader = task,
            None => self.schedule.wake(task, Wake::Done),
        }
    }

    /// Closes a socket. What was sent has left already.
    pub(crate) fn close_datagrams(&mut self, id: DatagramSocketId) {
        let Some(socket) = self.datagrams.slab.remove(id) else { return };
        match socket.stage {
            Stage::Open(tag) => {
                self.datagrams.closed.push(tag);
                self.outgoing -= 1;
            }
            Stage::Opening => self.outgoing -= 1,
            Stage::Ended(_) => {}
        }
        self.schedule.wake(socket.reader, Wake::Done);
    }

    /// Closes the sockets of a keeper that has ended.
    pub(crate) fn end_datagrams_of(&mut self, keeper: Keeper) {
        if self.datagrams.slab.is_empty() {
            return;
        }
        let sockets = self.datagrams.slab.iter();
        let of_keeper = sockets.filter(|(_, socket)| socket.keeper == keeper);
        let ids: Vec<DatagramSocketId> = of_keeper.map(|(id, _)| id).collect();
        for id in ids {
            self.close_datagrams(id);
        }
    }
}

/// Events that the worker reports. `life` is the number of the VM that has requested the socket.
impl Vm {
    /// The worker has opened a socket; `tag` is its tag. Returns false if the socket is not wanted any more.
    pub fn datagrams_opened(&mut self, life: u32, id: DatagramSocketId, tag: u64) -> bool {
        let Some(host) = self.host_of(life) else { return false };
        let Some(socket) = host.datagrams.slab.get_mut(id) else { return false };
        socket.stage = Stage::Open(tag);
        let reader = socket.reader;
        host.schedule.wake(reader, Wake::Done);
        true
    }

    /// A datagram has arrived. Returns false if it is lost, because too many wait.
    pub fn datagram_received(&mut self, life: u32, id: DatagramSocketId, bytes: &[u8]) -> bool {
        let Some(host) = self.host_of(life) else { return true };
        let Some(socket) = host.datagrams.slab.get_mut(id) else { return true };
        if socket.waiting.len() >= WAITING_MAX
            || socket.waiting_bytes + bytes.len() > WAITING_BYTES_MAX
        {
            return false;
        }
        socket.waiting.push_back(bytes.to_vec());
        socket.waiting_bytes += bytes.len();
        let reader = socket.reader;
        host.schedule.wake(reader, Wake::Done);
        true
    }

    /// A datagram that was sent has not arrived.
    pub fn datagram_failed(&mut self, life: u32, id: DatagramSocketId, why: &'static str) {
        let Some(host) = self.host_of(life) else { return };
        let Some(socket) = host.datagrams.slab.get_mut(id) else { return };
        socket.fault = Some(why);
        let reader = socket.reader;
        host.schedule.wake(reader, Wake::Done);
    }

    /// A socket could not be opened, or has ended.
    pub fn datagrams_ended(&mut self, life: u32, id: DatagramSocketId, reason: &'static str) {
        let Some(host) = self.host_of(life) else { return };
        let Some(socket) = host.datagrams.slab.get_mut(id) else { return };
        if !matches!(socket.stage, Stage::Ended(_)) {
            socket.stage = Stage::Ended(reason);
            let reader = socket.reader;
            host.outgoing -= 1;
            host.schedule.wake(reader, Wake::Done);
        }
    }

    /// Takes the worker's tag of a socket for datagrams that must be closed.
    pub fn take_closed_datagrams(&mut self) -> Option<u64> {
        self.engine.host().datagrams.closed.pop()
    }

    /// The number of sockets for datagrams.
    #[must_use]
    pub fn datagram_sockets(&self) -> usize {
        self.engine.peek().datagrams.slab.len()
    }

    /// The number of open sockets for datagrams.
    #[must_use]
    pub fn open_datagram_sockets(&self) -> usize {
        let sockets = self.engine.peek().datagrams.slab.iter();
        sockets.filter(|(_, socket)| matches!(socket.stage, Stage::Open(_))).count()
    }
}
