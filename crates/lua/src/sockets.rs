//! Sockets of scripts (`tide.tcp`): connections to servers of pools, for any protocol.
//! In: calls of scripts; the bytes and the end of each connection. Out: effects; bytes, in the portions that a script requests.
//! Never: chooses an address: a socket goes to a server of a pool that the application may use.
//! Limits: `Bounds::requests_max` sockets and requests of a VM together, idle sockets included; `INPUT_BYTES_MAX` that wait in
//! a socket; then the server must wait; `OUTPUT_BYTES_MAX` that a callback sends; then the script must wait until the server
//! has accepted them.
//! Invariant: a socket belongs to the handler, the client or the application that has connected it, and ends with it; or it is
//! in `idle`. An idle socket has no bytes under way.

use core::ops::Range;

use tidegate_base::{Id, Moment, Slab, Span};

use crate::host::{ClientId, Effect, Host, OUTPUT_BYTES_MAX, TOO_MUCH};
use crate::operations::OPERATIONS_MAX;
use crate::schedule::{Owner, TaskId, Wait, Wake};
use crate::server_websocket::ServerWebSocket;
use crate::vm::Vm;

/// Number of bytes that wait in a socket before reading from the server pauses.
const INPUT_BYTES_MAX: usize = 64 * 1024;
/// Maximum capacity of an input buffer that is kept.
const KEPT_BYTES_MAX: usize = 4 * 1024;
/// The error of a socket that is not connected.
pub(crate) const CLOSED: &str = "closed";
/// The error of a line that is longer than its reader permits.
const LONG_LINE: &str = "line too long";
/// The error of a socket for which another coroutine waits already.
pub(crate) const BUSY: &str = "socket busy";

/// Names a socket of a VM.
pub type SocketId = Id<Socket>;

/// The owner of a socket. The socket ends with its owner.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Keeper {
    /// A run of a handler or a job, by its number.
    Run(u64),
    /// A WebSocket client.
    Client(ClientId),
    /// The application: sockets of `on_start`.
    Application,
    /// No owner: the socket is idle.
    Idle,
}

/// The state of a socket.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Stage {
    /// The socket has no server yet.
    Connecting,
    /// It is connected.
    Open,
    /// The connection has ended, for this reason. Received bytes can still be read.
    Ended(String),
}

/// A socket; see the module header.
pub struct Socket {
    /// The worker's tag of the connection; `None` before it has begun and after its end.
    tag: Option<u64>,
    /// The state.
    stage: Stage,
    /// The owner.
    keeper: Keeper,
    /// The received bytes; those from `taken` on were not read.
    input: Vec<u8>,
    /// Bytes at the start of `input` that were read.
    taken: usize,
    /// The server has to wait until the script has read.
    is_full: bool,
    /// The connection uses TLS.
    is_secured: bool,
    /// The server does not take more output at present.
    is_blocked: bool,
    /// The coroutine that waits for input; the one that waits for the connect or for output.
    reader: TaskId,
    writer: TaskId,
    /// The name under which the socket is kept while it is idle.
    key: Vec<u8>,
    /// How often the idle socket was taken for reuse.
    reuses: u32,
    /// The state of its WebSocket connection, if it is one.
    pub(crate) websocket: Option<Box<ServerWebSocket>>,
}

/// The sockets of a VM.
pub(crate) struct Sockets {
    slab: Slab<Socket>,
    /// The idle sockets; the most recently used one is at the end.
    idle: Vec<SocketId>,
    /// The worker's tags of sockets that must be closed, until `Vm::take_closed_socket`.
    closed: Vec<u64>,
}

impl Default for Sockets {
    fn default() -> Self {
        Self { slab: Slab::new(OPERATIONS_MAX), idle: Vec::new(), closed: Vec::new() }
    }
}

impl Sockets {
    pub(crate) fn get_mut(&mut self, id: SocketId) -> Option<&mut Socket> {
        self.slab.get_mut(id)
    }
}

/// What a script reads next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Portion<'a> {
    /// Up to a line feed, and up to this number of bytes before it.
    Line(usize),
    /// This number of bytes.
    Bytes(usize),
    /// Everything.
    All,
    /// At least one byte, and up to this number.
    Any(usize),
    /// Up to these bytes.
    Until(&'a [u8]),
}

/// A part of what a script reads.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Piece {
    /// Where it is in the input.
    pub(crate) place: Range<usize>,
    /// Where the next piece begins.
    end: usize,
    /// The portion is complete.
    pub(crate) is_complete: bool,
}

impl Socket {
    /// The reason of the end, if the connection has ended.
    pub(crate) fn ended(&self) -> Option<&str> {
        match &self.stage {
            Stage::Ended(reason) => Some(reason),
            Stage::Connecting | Stage::Open => None,
        }
    }

    /// The worker's tag of a socket that is open.
    pub(crate) fn open_tag(&self) -> Result<u64, &str> {
        match &self.stage {
            Stage::Ended(reason) => Err(reason),
            Stage::Connecting => Err(CLOSED),
            Stage::Open => self.tag.ok_or(CLOSED),
        }
    }

    /// The bytes that were received and not read, and the state of the WebSocket connection.
    pub(crate) fn received(&mut self) -> (&mut [u8], Option<&mut ServerWebSocket>) {
        let input = self.input.get_mut(self.taken..).unwrap_or_default();
        (input, self.websocket.as_deref_mut())
    }

    fn unread(&self) -> usize {
        self.input.len() - self.taken
    }

    /// The piece of a portion that has arrived.
    fn piece(&self, portion: Portion<'_>) -> Piece {
        let (start, stop) = (self.taken, self.input.len());
        let bytes = self.input.get(start..).unwrap_or_default();
        let piece = |length: usize, end: usize, is_complete| Piece {
            place: start..start + length,
            end: start + end,
            is_complete,
        };
        let has_ended = matches!(self.stage, Stage::Ended(_));
        match portion {
            Portion::Line(most) => {
                let within = bytes.len().min(most.saturating_add(1));
                match memchr::memchr(b'\n', bytes.get(..within).unwrap_or_default()) {
                    Some(at) => piece(at, at + 1, true),
                    None => piece(within, within, false),
                }
            }
            Portion::Bytes(count) => {
                let length = count.min(bytes.len());
                piece(length, length, length == count)
            }
            Portion::All => Piece { place: start..stop, end: stop, is_complete: false },
            Portion::Any(most) => {
                let length = most.min(bytes.len());
                piece(length, length, length > 0)
            }
            Portion::Until(pattern) => match memchr::memmem::find(bytes, pattern) {
                Some(at) => piece(at, at + pattern.len(), true),
                // The end may be the beginning of the pattern.
                None if !has_ended => {
                    let length = bytes.len().saturating_sub(pattern.len().saturating_sub(1));
                    piece(length, length, false)
                }
                None => piece(bytes.len(), bytes.len(), false),
            },
        }
    }
}

/// Calls of scripts.
impl Host {
    /// The owner of a socket that the current callback connects.
    pub(crate) fn keeper(&self) -> Keeper {
        match self.owner {
            Owner::Client(client) => Keeper::Client(client),
            Owner::Application if self.is_starting => Keeper::Application,
            Owner::Application
            | Owner::Broadcast
            | Owner::Log
            | Owner::Request(_)
            | Owner::Event(_)
            | Owner::Tunnel(_)
            | Owner::Hello(_)
            | Owner::Job(_) => Keeper::Run(self.schedule.run),
        }
    }

    /// Closes the oldest idle socket if there is no room for another one.
    pub(crate) fn make_room_for_socket(&mut self) -> Result<(), &'static str> {
        if self.outgoing >= self.requests_max
            && let Some(oldest) = self.sockets.idle.first().copied()
        {
            self.close_socket(oldest);
        }
        if self.outgoing >= self.requests_max {
            self.schedule.refusals += 1;
            return Err("too many sockets and requests of the application are in progress");
        }
        Ok(())
    }

    /// Requests a connection to a server of a pool.
    pub(crate) fn open_socket(&mut self, pool: usize) -> Result<SocketId, &'static str> {
        self.make_room_for_socket()?;
        let socket = Socket {
            tag: None,
            stage: Stage::Connecting,
            keeper: self.keeper(),
            input: Vec::new(),
            taken: 0,
            is_full: false,
            is_secured: false,
            is_blocked: false,
            reader: Id::NONE,
            writer: Id::NONE,
            key: Vec::new(),
            reuses: 0,
            websocket: None,
        };
        let inserted = self.sockets.slab.insert(socket);
        let id = inserted.map_err(|_| "too many sockets of the application are open")?;
        self.outgoing += 1;
        self.outbox.effects.push(Effect::Connect { socket: id, pool });
        Ok(id)
    }

    /// Takes the idle socket of this name that was used last. Returns it, and how often it was taken.
    pub(crate) fn reuse_socket(&mut self, key: &[u8]) -> Option<(SocketId, u32)> {
        let keeper = self.keeper();
        let Sockets { slab, idle, .. } = &mut self.sockets;
        let has_key = |id: &SocketId| slab.get(*id).is_some_and(|socket| socket.key == key);
        let id = idle.remove(idle.iter().rposition(has_key)?);
        let socket = slab.get_mut(id)?;
        socket.keeper = keeper;
        socket.reuses += 1;
        let reuses = socket.reuses;
        if let Some(tag) = socket.tag {
            self.outbox.effects.push(Effect::SocketIdle { tag, span: None });
        }
        Some((id, reuses))
    }

    /// Keeps a socket for reuse, for up to `span`, and up to `most` sockets of the same name.
    pub(crate) fn keep_socket(
        &mut self,
        id: SocketId,
        key: &[u8],
        (span, most): (Span, usize),
    ) -> Result<(), &'static str> {
        let is_leaving = self.retires_at.is_some();
        let socket = self.sockets.slab.get_mut(id).ok_or(CLOSED)?;
        let is_busy =
            self.schedule.has_task(socket.reader) || self.schedule.has_task(socket.writer);
        let error = match &socket.stage {
            Stage::Ended(_) => CLOSED,
            _ if is_busy => BUSY,
            Stage::Open if socket.unread() > 0 => "unread data in buffer",
            Stage::Open if socket.is_blocked => "unsent data in buffer",
            Stage::Connecting => CLOSED,
            Stage::Open => "",
        };
        let Some(tag) = socket.tag.filter(|_| error.is_empty() && !is_leaving && most > 0) else {
            self.close_socket(id);
            return if error.is_empty() { Ok(()) } else { Err(error) };
        };
        (socket.keeper, socket.key, socket.input) = (Keeper::Idle, key.to_vec(), Vec::new());
        socket.taken = 0;
        let Sockets { slab, idle, .. } = &self.sockets;
        let has_key = |id: &&SocketId| slab.get(**id).is_some_and(|socket| socket.key == key);
        let oldest = idle.iter().find(has_key).copied();
        if idle.iter().filter(has_key).count() >= most
            && let Some(oldest) = oldest
        {
            self.close_socket(oldest);
        }
        self.sockets.idle.push(id);
        self.outbox.effects.push(Effect::SocketIdle { tag, span: Some(span) });
        Ok(())
    }

    /// Requests that bytes are sent.
    pub(crate) fn send_socket(&mut self, id: SocketId, data: &[u8]) -> Result<(), &str> {
        let Self { sockets, outbox, .. } = self;
        let Some(socket) = sockets.slab.get(id) else { return Err(CLOSED) };
        let tag = socket.open_tag()?;
        if outbox.bytes.len() + data.len() > OUTPUT_BYTES_MAX {
            return Err(TOO_MUCH);
        }
        let data = outbox.push(data);
        outbox.effects.push(Effect::SocketSend { tag, data });
        Ok(())
    }

    /// The next piece of a portion. `consume` removes it.
    pub(crate) fn socket_piece(
        &self,
        id: SocketId,
        portion: Portion<'_>,
    ) -> Result<(Piece, &[u8]), &str> {
        let Some(socket) = self.sockets.slab.get(id) else { return Err(CLOSED) };
        match &socket.stage {
            Stage::Ended(reason) if socket.unread() == 0 => return Err(reason),
            Stage::Connecting => return Err(CLOSED),
            Stage::Ended(_) | Stage::Open => {}
        }
        let piece = socket.piece(portion);
        if let Portion::Line(most) = portion
            && !piece.is_complete
            && piece.place.len() > most
        {
            return Err(LONG_LINE);
        }
        let bytes = socket.input.get(piece.place.clone()).unwrap_or_default();
        Ok((piece, bytes))
    }

    /// A piece has been read.
    pub(crate) fn consume(&mut self, id: SocketId, piece: &Piece) {
        let taken = self.sockets.slab.get(id).map_or(0, |socket| socket.taken);
        self.consume_bytes(id, piece.end.saturating_sub(taken));
    }

    /// This number of bytes has been read.
    pub(crate) fn consume_bytes(&mut self, id: SocketId, count: usize) {
        let Some(socket) = self.sockets.slab.get_mut(id) else { return };
        socket.taken = (socket.taken + count).min(socket.input.len());
        if socket.unread() == 0 {
            socket.taken = 0;
            match socket.input.capacity() > KEPT_BYTES_MAX {
                true => socket.input = Vec::new(),
                false => socket.input.clear(),
            }
        } else if socket.taken > INPUT_BYTES_MAX {
            socket.input.drain(..socket.taken);
            socket.taken = 0;
        }
        if socket.is_full && socket.unread() < INPUT_BYTES_MAX / 2 {
            socket.is_full = false;
            if let Some(tag) = socket.tag {
                self.outbox.effects.push(Effect::SocketResume { tag });
            }
        }
    }

    /// What a coroutine must wait for until more can be read from a socket, or written to it; `None` if it need not wait.
    pub(crate) fn socket_wait(
        &self,
        id: SocketId,
        is_read: bool,
        by: Moment,
    ) -> Result<Option<Wait>, &str> {
        let Some(socket) = self.sockets.slab.get(id) else { return Err(CLOSED) };
        let waiter = if is_read { socket.reader } else { socket.writer };
        match &socket.stage {
            // What has arrived is read before the end is noticed.
            Stage::Ended(_) if is_read => return Ok(None),
            Stage::Ended(reason) => return Err(reason),
            Stage::Open if !is_read && !socket.is_blocked => return Ok(None),
            Stage::Connecting | Stage::Open => {}
        }
        match self.schedule.has_task(waiter) {
            true => Err(BUSY),
            false => Ok(Some(Wait::Socket(id, is_read, by))),
        }
    }

    /// A coroutine waits for a socket.
    pub(crate) fn await_socket(&mut self, id: SocketId, is_read: bool, task: TaskId) {
        match (self.sockets.slab.get_mut(id), is_read) {
            (Some(socket), true) => socket.reader = task,
            (Some(socket), false) => socket.writer = task,
            (None, _) => self.schedule.wake(task, Wake::Done),
        }
    }

    /// Whether a coroutine waits for a socket.
    pub(crate) fn is_socket_awaited(&self, id: SocketId) -> bool {
        let waiters = self.sockets.slab.get(id).map(|socket| [socket.reader, socket.writer]);
        waiters.is_some_and(|waiters| waiters.iter().any(|task| self.schedule.has_task(*task)))
    }

    /// Closes a socket after all queued data was sent.
    pub(crate) fn close_socket(&mut self, id: SocketId) {
        let Some(socket) = self.sockets.slab.remove(id) else { return };
        self.sockets.idle.retain(|idle| *idle != id);
        if !matches!(socket.stage, Stage::Ended(_)) {
            self.outgoing -= 1;
        }
        self.sockets.closed.extend(socket.tag);
        self.schedule.wake_all(&[socket.reader, socket.writer], Wake::Done);
    }

    /// Whether the connection of a socket uses TLS.
    pub(crate) fn is_secured(&self, id: SocketId) -> bool {
        self.sockets.slab.get(id).is_some_and(|socket| socket.is_secured)
    }

    /// Closes the sockets of a keeper that has ended.
    pub(crate) fn end_sockets_of(&mut self, keeper: Keeper) {
        self.end_datagrams_of(keeper);
        if self.sockets.slab.is_empty() {
            return;
        }
        let of_keeper = self.sockets.slab.iter().filter(|(_, socket)| socket.keeper == keeper);
        let ids: Vec<SocketId> = of_keeper.map(|(id, _)| id).collect();
        for id in ids {
            self.close_socket(id);
        }
    }

    /// The end of a connection: the script gets what has arrived, and then the reason.
    fn note_socket_end(&mut self, id: SocketId, reason: &str) {
        let Some(socket) = self.sockets.slab.get_mut(id) else { return };
        if matches!(socket.stage, Stage::Ended(_)) {
            return;
        }
        (socket.tag, socket.stage) = (None, Stage::Ended(reason.to_owned()));
        (socket.is_full, socket.is_blocked) = (false, false);
        self.outgoing -= 1;
        let (waiters, is_idle) = ([socket.reader, socket.writer], socket.keeper == Keeper::Idle);
        self.schedule.wake_all(&waiters, Wake::Done);
        if is_idle {
            self.close_socket(id);
        }
    }
}

/// Events that the worker reports. `life` is the number of the VM that has requested the connection.
impl Vm {
    /// The worker has begun to connect; `tag` is its tag of the socket. Returns false if the socket is not wanted any more.
    pub fn socket_begun(&mut self, id: SocketId, tag: u64) -> bool {
        let Some(socket) = self.engine.host().sockets.slab.get_mut(id) else { return false };
        socket.tag = Some(tag);
        true
    }

    /// The socket is connected, with TLS or without.
    pub fn socket_connected(&mut self, life: u32, id: SocketId, is_secured: bool) {
        let Some(host) = self.host_of(life) else { return };
        let Some(socket) = host.sockets.slab.get_mut(id) else { return };
        (socket.stage, socket.is_secured) = (Stage::Open, is_secured);
        let writer = socket.writer;
        host.schedule.wake(writer, Wake::Done);
    }

    /// Bytes have arrived. Returns false if the server has to wait until `Effect::SocketResume`.
    pub fn socket_received(&mut self, life: u32, id: SocketId, bytes: &[u8]) -> bool {
        let Some(host) = self.host_of(life) else { return true };
        let Some(socket) = host.sockets.slab.get_mut(id) else { return true };
        if socket.keeper == Keeper::Idle {
            // No request is under way, so the next user could mistake these bytes for a response.
            host.close_socket(id);
            return true;
        }
        socket.input.extend_from_slice(bytes);
        socket.is_full = socket.unread() >= INPUT_BYTES_MAX;
        let (reader, is_full) = (socket.reader, socket.is_full);
        host.schedule.wake(reader, Wake::Done);
        !is_full
    }

    /// Whether the server takes no more output at present.
    pub fn note_socket_blocked(&mut self, life: u32, id: SocketId, is_blocked: bool) {
        let Some(host) = self.host_of(life) else { return };
        let Some(socket) = host.sockets.slab.get_mut(id) else { return };
        socket.is_blocked = is_blocked;
        let writer = socket.writer;
        if !is_blocked && socket.stage == Stage::Open {
            host.schedule.wake(writer, Wake::Done);
        }
    }

    /// The connection has ended.
    pub fn socket_ended(&mut self, life: u32, id: SocketId, reason: &str) {
        if let Some(host) = self.host_of(life) {
            host.note_socket_end(id, reason);
        }
    }

    /// Takes the worker's tag of a socket that must be closed.
    pub fn take_closed_socket(&mut self) -> Option<u64> {
        self.engine.host().sockets.closed.pop()
    }

    /// The number of sockets.
    #[must_use]
    pub fn sockets(&self) -> usize {
        self.engine.peek().sockets.slab.len()
    }

    /// The number of sockets whose connections have begun and not ended.
    #[must_use]
    pub fn open_sockets(&self) -> usize {
        let sockets = self.engine.peek().sockets.slab.iter();
        sockets.filter(|(_, socket)| socket.tag.is_some()).count()
    }

    pub(crate) fn host_of(&mut self, life: u32) -> Option<&mut Host> {
        let host = self.engine.host();
        (host.facts.life == life).then_some(host)
    }

    /// Closes the idle sockets: other code has taken the place of the VM.
    pub(crate) fn close_idle_sockets(&mut self) {
        self.engine.host().end_sockets_of(Keeper::Idle);
    }
}
