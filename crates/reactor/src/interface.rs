//! The completion-shaped interface that everything above the kernel is written against.
//! In: operations on sockets, deadlines, timers. Out: completions, handed to a `Handler` in a turn.
//! Never: shows readiness, errno retry loops or a descriptor to its user.
//! Invariant: after `Closed` (or after the user's own `close`/`abort`) no completion with that id comes;
//! operations on a stale id do nothing.

use std::sync::Arc;

use tidegate_base::{Address, Id, Moment};

use crate::steering::LeavingListeners;

/// Marks ids of sockets. A socket's `index` is dense (reused), so users may keep a table beside it.
pub enum Sock {}
/// Names one connection of this reactor.
pub type SockId = Id<Sock>;

/// Marks ids of listeners.
pub enum Listener {}
/// Names one listener of this reactor.
pub type ListenerId = Id<Listener>;

/// What the kernel (or the simulator) finished; handed over in the order it was found.
#[derive(Debug)]
pub enum Completion<'a> {
    /// A connection came in; it receives from now on.
    Accepted {
        /// Where it came in.
        listener: ListenerId,
        /// The new connection.
        sock: SockId,
        /// The other end.
        peer: Peer,
    },
    /// A `connect` succeeded; the socket receives from now on.
    Connected {
        /// The connection that `connect` named.
        sock: SockId,
    },
    /// Bytes came in. They are the handler's for this call only: what it cannot use now it copies.
    Received {
        /// The connection.
        sock: SockId,
        /// Never empty; at most `READ_BUFFER_BYTES`. The handler may change them in place.
        bytes: &'a mut [u8],
    },
    /// The peer will send no more (FIN after all its bytes). Sending is still possible.
    Finished {
        /// The connection.
        sock: SockId,
    },
    /// Output that could not be sent at once has now left entirely. Comes only after a `send` or
    /// flush that left bytes behind, so a producer that waits for it is woken once.
    Drained {
        /// The connection.
        sock: SockId,
    },
    /// The connection is gone; its id is stale when this is handed over. Not sent for the user's own
    /// `close` or `abort`.
    Closed {
        /// The id it had.
        sock: SockId,
        /// Why.
        reason: CloseReason,
    },
    /// The deadline set by `set_deadline` has come; it is cleared.
    Due {
        /// The connection.
        sock: SockId,
    },
    /// The timer set by `set_timer` has come; it is cleared.
    Timer {
        /// The number given to `set_timer`.
        timer: u32,
    },
    /// The waker was rung: there may be mail. The handler looks into its own mailbox.
    Woken,
    /// A listener could not accept and pauses for a moment; connections wait in its backlog.
    AcceptPaused {
        /// Where.
        listener: ListenerId,
        /// What the kernel had too little of.
        shortage: Shortage,
    },
}

/// The other end of an accepted connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Peer {
    /// A TCP peer.
    Tcp(core::net::SocketAddr),
    /// A local peer (unix socket).
    Local,
}

/// Why a connection ended without the user asking for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CloseReason {
    /// `connect` was refused (no listener there, or its backlog is full).
    ConnectRefused,
    /// `connect` found no way there (unreachable, no such path, timed out in the kernel).
    ConnectUnreachable,
    /// This side had no descriptor, port or memory for `connect`.
    ConnectShortage(Shortage),
    /// The peer reset the connection, or it broke (reset, broken pipe, timed out).
    Reset,
    /// Both directions had ended in order: the peer finished, and so had this side.
    Ended,
}

/// What the kernel (or this worker) had too little of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shortage {
    /// Descriptors of this worker (EMFILE).
    WorkerDescriptors,
    /// Descriptors of the whole system (ENFILE).
    SystemDescriptors,
    /// Kernel memory (ENOBUFS, ENOMEM).
    Memory,
    /// Local ports or addresses (EADDRNOTAVAIL).
    Ports,
    /// Slots of this reactor (its `socks_max`).
    Slots,
}

/// How to listen.
#[derive(Clone, Debug)]
pub struct ListenOptions {
    /// Connections that may wait in the kernel; capped by `net.core.somaxconn`.
    pub backlog: u32,
    /// SO_REUSEPORT, so that each worker has a listener of its own on the same address.
    pub reuse_port: bool,
    /// Index this listener's group by the receiving CPU (SO_ATTACH_REUSEPORT_CBPF): the program returns
    /// the CPU number modulo this many listeners. `None`: the kernel's hash.
    pub steer_by_cpu_over: Option<u32>,
}

/// Why `listen` failed, for the operator.
#[derive(Debug)]
pub struct ListenError {
    /// Where it was to listen.
    pub address: Address,
    /// What the kernel said (e.g. "Address already in use (os error 98)").
    pub cause: std::io::Error,
}

impl core::fmt::Display for ListenError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "cannot listen on {}: {}", self.address, self.cause)
    }
}
impl std::error::Error for ListenError {}

/// The operations of one worker's way to the kernel; see each method for what it promises on both drivers.
pub trait Reactor: Sized {
    /// The clock, read once a turn (after the wait), so that all of a turn happens at one moment.
    fn now(&self) -> Moment;
    /// Wall-clock seconds since 1970, read with `now`; for Date fields and logs, never for deadlines.
    fn unix_seconds(&self) -> u64;
    /// The clock, read now (virtual in the simulator, where it equals `now`): for sampled accounting.
    fn read_clock(&self) -> Moment;

    /// Opens a listener.
    ///
    /// # Errors
    /// When the kernel refuses the address.
    fn listen(
        &mut self,
        address: &Address,
        options: &ListenOptions,
    ) -> Result<ListenerId, ListenError>;
    /// The address a listener really has (its port, when it was opened on port 0).
    fn listener_address(&self, listener: ListenerId) -> Option<Address>;
    /// Stops accepting: takes what waits in the backlog (handed over as `Accepted` in the next turns
    /// until it is empty), then closes the listener.
    fn stop_listening(&mut self, listener: ListenerId);
    /// Asks the kernel to deal new connections to listeners that others opened on the same address after
    /// those of this process (`own`, which must be the first there): to a process that takes over. This one
    /// goes on to accept, so that what is on its way here already arrives. Nothing changes where there are
    /// no others. When the last of `own` closes the kernel deals evenly again.
    fn steer_away(&mut self, listener: ListenerId, own: &Arc<LeavingListeners>);
    /// Listeners that are open, those included that still take what waits in their backlog.
    fn listener_count(&self) -> usize;

    /// Starts a connection; ends in `Connected` or `Closed`. Output may be queued at once.
    ///
    /// # Errors
    /// When this side lacks something, which is known before anything left.
    fn connect(&mut self, address: &Address) -> Result<SockId, Shortage> {
        self.connect_from(address, None)
    }
    /// `connect` from the local address `source` (`None`: the kernel's choice; nothing to a unix socket).
    /// An address that this host does not have, or of the other IP version, ends in `Closed`
    /// (`ConnectUnreachable`).
    ///
    /// # Errors
    /// As `connect`.
    fn connect_from(
        &mut self,
        address: &Address,
        source: Option<core::net::IpAddr>,
    ) -> Result<SockId, Shortage>;

    /// As `connect`, through a layer that secures the connection by its settings of that number. A bare
    /// reactor has no such layer and refuses, so that nothing goes out in the clear.
    ///
    /// # Errors
    /// As `connect`; `Slots` where there is no such layer.
    fn connect_secured(&mut self, address: &Address, profile: u32) -> Result<SockId, Shortage> {
        self.connect_secured_from(address, None, profile)
    }
    /// `connect_secured` from the local address `source`, as `connect_from`.
    ///
    /// # Errors
    /// As `connect_secured`.
    fn connect_secured_from(
        &mut self,
        _address: &Address,
        _source: Option<core::net::IpAddr>,
        _profile: u32,
    ) -> Result<SockId, Shortage> {
        Err(Shortage::Slots)
    }

    /// The connection's output buffer, to append to; it is sent once, at the turn's end. `None` when the
    /// id is stale or its sending side was ended: the answer has nowhere to go.
    fn output(&mut self, sock: SockId) -> Option<&mut Vec<u8>>;
    /// Appends `bytes` to the output. Large ones go straight to the kernel (after what was pending) and
    /// only what it does not take is copied. Stale ids are ignored.
    fn send(&mut self, sock: SockId, bytes: &[u8]);
    /// Sends the output now instead of at the turn's end. What stays pending after this waits for the
    /// peer, and `Drained` comes when it has left.
    fn flush(&mut self, sock: SockId);
    /// Output bytes that have not left yet (0 for a stale id).
    fn output_pending(&self, sock: SockId) -> usize;

    /// Stops or resumes handing over received bytes (backpressure: the kernel's window closes). `Finished`
    /// waits for a resume too; resets and `Due` come regardless.
    fn set_receiving(&mut self, sock: SockId, receiving: bool);

    /// Ends the sending side once the output has left (FIN). Receiving goes on.
    fn finish(&mut self, sock: SockId);
    /// Closes in order: sends the output, then FIN, then discards what still comes in until the peer
    /// closes or `LINGER_MAX` passes, so that a late byte of the peer's cannot turn the last answer into a
    /// reset (RFC 9112 section 9.6). The id is stale at once. A `connect` under way is cancelled.
    fn close(&mut self, sock: SockId);
    /// Closes with a reset and drops the output: the peer sees that the message was cut. The id is stale at
    /// once.
    fn abort(&mut self, sock: SockId);

    /// Makes `Due` come at `at` (coarse: never early, at most 17 ms late); replaces the earlier deadline.
    /// `Moment::NEVER` clears it. Cheap enough to call for every request.
    fn set_deadline(&mut self, sock: SockId, at: Moment);
    /// Makes `Timer` come at `at`, with the same coarseness; `timer` is a small dense number of the user's.
    fn set_timer(&mut self, timer: u32, at: Moment);

    /// This end's address of a TCP connection; `None` for a stale id, a unix socket, or a connection that
    /// is gone. Costs a system call.
    fn local_address(&self, sock: SockId) -> Option<core::net::SocketAddr>;
    /// As `send`, past the layer that secures the connection: for what must come before its first byte.
    fn send_bare(&mut self, sock: SockId, bytes: &[u8]) {
        self.send(sock, bytes);
    }

    /// Connections that exist now, closing ones included.
    fn sock_count(&self) -> usize;
    /// Whether that id still names a connection.
    fn is_live(&self, sock: SockId) -> bool;
}

/// A reactor that a worker's loop can run: the operations and the pass that completes them. Layers above
/// the kernel offer the operations alone.
pub trait Driver: Reactor {
    /// One pass: waits until something completes, a deadline or timer comes, the waker rings or `wait_max`
    /// passes; hands each completion to `handler`; flushes each output once.
    fn turn<H: Handler<Self>>(&mut self, handler: &mut H, wait_max: tidegate_base::Span);
}

/// Who receives completions.
pub trait Handler<R> {
    /// Takes one completion; may call any operation of `reactor`.
    fn handle(&mut self, reactor: &mut R, completion: Completion<'_>);
}
