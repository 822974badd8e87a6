//! The completion-based interface that everything above the kernel is written against.
//! In: operations on sockets, deadlines and timers. Out: completions, handed to a `Handler` in a turn.
//! Never: exposes readiness, errno retry loops or descriptors.
//! Invariant: after `Closed` (or after the handler's own `close` or `abort`) no completion with that id
//! is delivered. Operations on a stale id do nothing.

use std::sync::Arc;

use tidegate_base::{Address, CertificateChoice, Id, Moment, Span};

use crate::steering::LeavingListeners;

/// Marks ids of sockets. A socket's `index` is dense and reused, so a handler may index a table by it.
pub enum Sock {}
/// Names one connection of this reactor.
pub type SockId = Id<Sock>;

/// Marks ids of listeners.
pub enum Listener {}
/// Names one listener of this reactor.
pub type ListenerId = Id<Listener>;

/// Marks ids of sockets for datagrams.
pub enum DatagramSock {}
/// Names one socket for datagrams of this reactor.
pub type DatagramId = Id<DatagramSock>;

/// An event that the kernel (or the simulator) reported. Completions are delivered in the order in which
/// the driver finds them.
#[derive(Debug)]
pub enum Completion<'a> {
    /// A connection was accepted. It receives from now on.
    Accepted {
        /// The listener that accepted it.
        listener: ListenerId,
        /// The new connection.
        sock: SockId,
        /// The address of the client.
        peer: Peer,
    },
    /// A `connect` succeeded. The socket receives from now on.
    Connected {
        /// The id that `connect` returned.
        sock: SockId,
    },
    /// Bytes were received. They are valid only during this call: the handler copies the bytes that it needs later.
    Received {
        /// The connection.
        sock: SockId,
        /// At least one and at most `READ_BUFFER_BYTES` bytes. The handler may change them in place.
        bytes: &'a mut [u8],
    },
    /// Bytes were received and moved to the connection that `relay_to` has set. The part that the other connection did not
    /// take at once is pending there.
    Relayed {
        /// The connection whose bytes were received.
        sock: SockId,
        /// How many bytes, at least one.
        count: usize,
    },
    /// The peer has ended its direction: all its bytes and then its FIN were received. Sending to it is still possible.
    Finished {
        /// The connection.
        sock: SockId,
    },
    /// The peer has ended its direction while receiving is paused; bytes before its FIN may be unread. After
    /// receiving resumes, those bytes and then `Finished` follow. If the receive window is full, the FIN is noticed
    /// only after bytes were read.
    HungUp {
        /// The connection.
        sock: SockId,
    },
    /// All output has been sent. This is delivered only after a `send` or `flush` that could not send everything
    /// at once, so a waiting producer is resumed exactly once.
    Drained {
        /// The connection.
        sock: SockId,
    },
    /// The connection is closed. Its id is already stale during this call. This is not delivered for the
    /// handler's own `close` or `abort`.
    Closed {
        /// The id that the connection had.
        sock: SockId,
        /// The reason.
        reason: CloseReason,
    },
    /// A datagram was received. Its bytes are valid only during this call.
    Datagram {
        /// The socket.
        socket: DatagramId,
        /// The bytes; a datagram may have none.
        bytes: &'a mut [u8],
    },
    /// A datagram that was sent has not arrived. The socket remains open.
    DatagramFailed {
        /// The socket.
        socket: DatagramId,
        /// Why.
        fault: DatagramFault,
    },
    /// The deadline set by `set_deadline` has passed; it is now cleared.
    Due {
        /// The connection.
        sock: SockId,
    },
    /// The timer set by `set_timer` has expired; it is now cleared.
    Timer {
        /// The number given to `set_timer`.
        timer: u32,
    },
    /// The waker was rung, so there may be messages. The handler checks its own mailbox.
    Woken,
    /// A listener could not accept and pauses briefly. Its connections wait in the backlog.
    AcceptPaused {
        /// The listener.
        listener: ListenerId,
        /// The resource that was exhausted.
        shortage: Shortage,
    },
}

/// The client of an accepted connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Peer {
    /// A TCP peer.
    Tcp(core::net::SocketAddr),
    /// A local peer on a unix socket, which has no address.
    Local,
}

impl Peer {
    /// The address of a TCP peer, without the port.
    #[must_use]
    pub const fn ip(self) -> Option<core::net::IpAddr> {
        match self {
            Self::Tcp(address) => Some(address.ip()),
            Self::Local => None,
        }
    }
}

/// Why a connection ended without the handler's request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CloseReason {
    /// `connect` was refused: no program listens on the address, or the backlog is full.
    ConnectRefused,
    /// `connect` could not reach the address: unreachable, no such path, or timed out in the kernel.
    ConnectUnreachable,
    /// This side lacked a descriptor, port or memory for `connect`.
    ConnectShortage(Shortage),
    /// The connection failed: reset by the peer, broken pipe, or timed out in the kernel.
    Reset,
    /// Both directions ended normally: the peer sent FIN, and so did this side.
    Ended,
    /// The connection failed while `guard_send` was in force: the peer has received no byte of the output.
    Unsent,
}

/// Why a datagram does not arrive, as far as this host knows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DatagramFault {
    /// The peer's host has refused it: no program receives on the port (ECONNREFUSED).
    Refused,
    /// No route leads to the peer, or a router could not deliver it.
    Unreachable,
    /// This host does not permit it, as a firewall does, or the kernel considers it invalid (EPERM, EACCES, EINVAL).
    Rejected,
}

/// The result of sending a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DatagramSent {
    /// The kernel has taken it. It may still be lost.
    Sent,
    /// The kernel's send buffer is full.
    Full,
    /// The datagram is longer than the protocol allows.
    TooLong,
    /// An earlier datagram, or this one, has failed. This datagram was not sent.
    Failed(DatagramFault),
    /// The socket is closed.
    Closed,
}

/// A resource that the kernel or this worker has exhausted.
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

/// Options of `listen`.
#[derive(Clone, Debug)]
pub struct ListenOptions {
    /// Connections that may wait in the kernel. The kernel caps this at `net.core.somaxconn`.
    pub backlog: u32,
    /// Sets SO_REUSEPORT, so that each worker can have its own listener on the same address.
    pub reuse_port: bool,
    /// Chooses the listener of the group by the receiving CPU (SO_ATTACH_REUSEPORT_CBPF): the index is the
    /// CPU number modulo this number of listeners. `None` leaves the choice to the kernel's hash.
    pub steer_by_cpu_over: Option<u32>,
}

/// Why `listen` failed. Its text is for the operator.
#[derive(Debug)]
pub struct ListenError {
    /// The requested address.
    pub address: Address,
    /// The error of the system, such as "Address already in use (os error 98)".
    pub cause: std::io::Error,
}

impl core::fmt::Display for ListenError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "cannot listen on {}: {}", self.address, self.cause)
    }
}
impl std::error::Error for ListenError {}

/// The result of a check of a connection's output; see [`Reactor::check_output_progress`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OutputProgress {
    /// Nothing is pending, and nothing was pending at the previous check.
    Idle,
    /// The peer has taken the last pending byte since the previous check.
    Emptied,
    /// Output is pending.
    Pending {
        /// The time of the latest check at which the peer had taken bytes since the check before it, or of the first
        /// check.
        moved_at: Moment,
    },
}

/// The server that a secured connection goes to. A layer that secures connections finds its settings by this
/// key; the reactor itself does not interpret it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ServerKey {
    /// Index of the pool.
    pub pool: u16,
    /// Index of the server in the pool.
    pub server: u16,
    /// The connection offers HTTP/1.1 only, whatever the settings of the pool offer.
    pub http1_only: bool,
}

/// What a wait for events shows about the load; see [`Reactor::last_wait`].
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct LastWait {
    /// How long the wait lasted because nothing was ready; zero if something was ready when it began.
    pub idle: Span,
    /// After how many more waits each event that was ready at this one is reported; 0: this wait has reported them all.
    pub behind: u32,
}

/// The operations of one worker on its sockets and timers. Every driver has the behaviour that is documented here.
pub trait Reactor: Sized {
    /// The clock, read once a turn after the wait, so that one turn has one time.
    fn now(&self) -> Moment;
    /// Wall-clock milliseconds since 1970, read together with `now`. For Date fields and logs, not for deadlines.
    fn unix_millis(&self) -> u64;
    /// Wall-clock seconds since 1970, as `unix_millis`.
    fn unix_seconds(&self) -> u64 {
        self.unix_millis() / 1000
    }
    /// Reads the clock now, for sampled accounting. The simulator's virtual clock always equals `now`.
    fn read_clock(&self) -> Moment;
    /// The wait with which this turn began.
    fn last_wait(&self) -> LastWait;

    /// Opens a listener.
    ///
    /// # Errors
    /// If the kernel rejects the address.
    fn listen(
        &mut self,
        address: &Address,
        options: &ListenOptions,
    ) -> Result<ListenerId, ListenError>;
    /// The actual address of a listener, with the assigned port if it was opened on port 0.
    fn listener_address(&self, listener: ListenerId) -> Option<Address>;
    /// Stops listening: accepts the connections in the backlog (handed over as `Accepted` in the next turns)
    /// and then closes the listener.
    fn stop_listening(&mut self, listener: ListenerId);
    /// Tells the kernel to assign new connections to the listeners of another process that takes over: those
    /// opened on the same address after the listeners of this process. The listeners of this process are
    /// `own` and must be the first of the group. This listener continues to accept, so connections already
    /// assigned to it are not lost. Nothing changes if no other process listens there. When the last of
    /// `own` closes, the kernel distributes connections evenly again.
    fn steer_away(&mut self, listener: ListenerId, own: &Arc<LeavingListeners>);
    /// Open listeners, including those that only accept the rest of their backlog.
    fn listener_count(&self) -> usize;

    /// Starts a connection. `Connected` or `Closed` follows. Output may be queued at once.
    ///
    /// # Errors
    /// If this side lacks a resource. Nothing was sent in that case.
    fn connect(&mut self, address: &Address) -> Result<SockId, Shortage> {
        self.connect_from(address, None)
    }
    /// As `connect`, from the local address `source`. `None` leaves the choice to the kernel; a unix socket
    /// ignores `source`. If this host does not have the address, or its IP version differs, `Closed` follows
    /// with `ConnectUnreachable`.
    ///
    /// # Errors
    /// As `connect`.
    fn connect_from(
        &mut self,
        address: &Address,
        source: Option<core::net::IpAddr>,
    ) -> Result<SockId, Shortage>;

    /// As `connect`, through a layer that secures the connection with its settings for `server`. A bare
    /// reactor has no such layer and refuses, so that nothing is sent in plaintext.
    ///
    /// # Errors
    /// As `connect`; also `Slots` if there is no such layer.
    fn connect_secured(
        &mut self,
        address: &Address,
        server: ServerKey,
    ) -> Result<SockId, Shortage> {
        self.connect_secured_from(address, None, server)
    }
    /// As `connect_secured`, from the local address `source` as in `connect_from`.
    ///
    /// # Errors
    /// As `connect_secured`.
    fn connect_secured_from(
        &mut self,
        _address: &Address,
        _source: Option<core::net::IpAddr>,
        _server: ServerKey,
    ) -> Result<SockId, Shortage> {
        Err(Shortage::Slots)
    }

    /// Continues the handshake of an accepted connection, for which the layer that secures it has asked the handler to choose a
    /// certificate. Does nothing if the connection does not wait for a choice.
    fn choose_certificate(&mut self, _sock: SockId, _choice: CertificateChoice) {}

    /// Opens a socket that sends datagrams to `peer` and receives datagrams only from `peer`, which are delivered as
    /// `Datagram`. No completion with its id is delivered after `close_datagrams`.
    ///
    /// # Errors
    /// This side lacks a resource, or the address is unreachable.
    fn open_datagrams(&mut self, peer: core::net::SocketAddr) -> Result<DatagramId, CloseReason>;
    /// Sends one datagram at once, or not at all: nothing is queued.
    fn send_datagram(&mut self, socket: DatagramId, bytes: &[u8]) -> DatagramSent;
    /// Closes a socket. Does nothing if the id is stale.
    fn close_datagrams(&mut self, socket: DatagramId);
    /// Open sockets for datagrams. `sock_count` does not include them.
    fn datagram_socket_count(&self) -> usize;

    /// The connection's output buffer, to append to. It is sent once, at the end of the turn. `None` if the
    /// id is stale or the sending side was ended.
    fn output(&mut self, sock: SockId) -> Option<&mut Vec<u8>>;
    /// Appends `bytes` to the output. Large slices go to the kernel directly, after the pending output, and
    /// only the part that the kernel does not take is copied. Does nothing if the id is stale.
    fn send(&mut self, sock: SockId, bytes: &[u8]);
    /// Sends the output now instead of at the end of the turn. If output remains pending after this, it waits
    /// for the peer, and `Drained` is delivered when all of it has been sent.
    fn flush(&mut self, sock: SockId);
    /// Guards the next output of a connection on which the peer has to wait for that output: a request on a
    /// reused connection. Before the driver sends the first byte, it checks whether received bytes, the
    /// peer's end or an error wait in the kernel. If so, it sends nothing and hands them over first (`Received`,
    /// `Finished`, `Closed`), in the next turn at the latest. If the handler keeps the connection, the output
    /// is sent after that.
    ///
    /// The guard ends when the kernel takes the first byte. Until then `is_guarded` is true, a failure is
    /// reported as `Closed` with `Unsent`, and `close` drops the output.
    ///
    /// Returns false, without effect, if the id is stale, if output is pending, or if the peer's end or a part
    /// of a TLS record was received already. The handler must not use the connection then.
    fn guard_send(&mut self, sock: SockId) -> bool;
    /// Whether `guard_send` is in force: no byte of the output was sent since. False if the id is stale.
    fn is_guarded(&self, sock: SockId) -> bool;
    /// Output bytes that the kernel has not taken yet; 0 if the id is stale.
    fn output_pending(&self, sock: SockId) -> usize;

    /// Checks whether the peer takes the output. Bytes in the kernel's send queue count as pending until the peer
    /// acknowledges them, so this notices progress even before the kernel reports room in the send buffer.
    /// `Idle` if the id is stale. Costs a system call.
    fn check_output_progress(&mut self, sock: SockId) -> OutputProgress;

    /// Pauses or resumes receiving. While it is paused, the kernel's window closes (backpressure). `Finished`
    /// waits for the resume too; resets, `HungUp` and `Due` are delivered regardless.
    fn set_receiving(&mut self, sock: SockId, receiving: bool);
    /// Moves the bytes that `from` receives to the output of `to` inside the kernel, without a copy: `Relayed` is delivered in
    /// place of `Received`. `None` ends that. While output of `to` is pending, or if the kernel cannot move bytes between these
    /// connections, `Received` is delivered nevertheless. This is worthwhile for large pieces; copying a small one is cheaper.
    ///
    /// Without effect if an id is stale, or for connections that a layer secures.
    fn relay_to(&mut self, _from: SockId, _to: Option<SockId>) {}
    /// Whether a layer has secured the connection by other rules for clients than those which it applies to the listener with this
    /// index in the configuration now, or has not secured it although it secures those of the listener now.
    fn is_outdated(&self, _sock: SockId, _listener: u16) -> bool {
        false
    }

    /// Whether a layer has verified the server of an outgoing connection by other rules than those of now.
    fn is_server_outdated(&self, _sock: SockId) -> bool {
        false
    }

    /// Whether the peer has ended its direction, as far as the kernel has reported. Bytes before its FIN may be
    /// unread.
    fn has_hung_up(&self, sock: SockId) -> bool;

    /// Ends the sending side: sends FIN after the pending output. Receiving continues.
    fn finish(&mut self, sock: SockId);
    /// Closes gracefully: sends the output, then FIN, then discards received bytes until the peer closes or
    /// `LINGER_MAX` passes after the peer has taken everything. So a late byte from the peer cannot cause a reset
    /// that destroys the last response (RFC 9112 section 9.6). The wait ends if the peer takes no output for
    /// `CLOSE_OUTPUT_MAX`. The id is stale at once. A pending `connect` is cancelled.
    fn close(&mut self, sock: SockId);
    /// Sends the output, and closes with a reset `UNREAD_SPAN` later. Until then nothing is read and no FIN is sent, so that a
    /// peer that sends without a pause must wait, instead of connecting again at once. The id is stale at once.
    fn close_unread(&mut self, sock: SockId);
    /// Closes with a reset and drops the output, so the peer sees that the message is incomplete. The id is
    /// stale at once.
    fn abort(&mut self, sock: SockId);
    /// As `close`, except that the slot is free at once: the kernel sends FIN, or a reset if the peer's bytes
    /// are unread. Output that the kernel does not take at once is lost. For connections whose last message
    /// was sent some time ago, when slots are needed.
    fn close_at_once(&mut self, sock: SockId);
    /// If more than `kept` closed connections have sent all their output and wait for their peers to close too, frees
    /// the slot of one that has waited longest, but only if its peer has taken all output. Returns whether a slot was
    /// freed.
    fn free_lingering(&mut self, kept: usize) -> bool;

    /// Sets the deadline to `at`, when `Due` is delivered (never early, at most 17 ms late). It replaces an earlier
    /// deadline; `Moment::NEVER` clears it. Cheap enough to call for every request.
    fn set_deadline(&mut self, sock: SockId, at: Moment);
    /// Sets a timer: `Timer` is delivered at `at`, with the same precision. `timer` is a small dense number that the
    /// caller chooses; `Moment::NEVER` clears it.
    fn set_timer(&mut self, timer: u32, at: Moment);

    /// The local address of a TCP connection. `None` for a stale id, a unix socket or a connection that no
    /// longer exists. Costs a system call.
    fn local_address(&self, sock: SockId) -> Option<core::net::SocketAddr>;
    /// As `send`, but bypasses the layer that secures the connection. For bytes that must come before the
    /// first TLS record (a PROXY header).
    fn send_bare(&mut self, sock: SockId, bytes: &[u8]) {
        self.send(sock, bytes);
    }

    /// Open connections, including those that are closing.
    fn sock_count(&self) -> usize;
    /// Whether `sock` still names a connection.
    fn is_live(&self, sock: SockId) -> bool;
    /// The deadline that `set_deadline` set; `Moment::NEVER` if there is none or the id is stale.
    fn deadline(&self, sock: SockId) -> Moment;
}

/// A reactor that a worker's loop can run: the operations, and the turn that completes them. The view that a
/// layer such as TLS gives its handler has only the operations.
pub trait Driver: Reactor {
    /// Runs one turn: waits until something completes, a deadline or timer is due, the waker is rung or
    /// `wait_max` passes; then hands each completion to `handler` and flushes each output once.
    fn turn<H: Handler<Self>>(&mut self, handler: &mut H, wait_max: Span);

    /// Tells a simulated kernel when the next turn is due, after work between two turns. `has_work`: the caller will not
    /// wait. Without effect on Linux.
    fn note_due(&mut self, has_work: bool);
}

/// Receives completions, and decides which connections are closed if there is no room for a new one.
pub trait Handler<R> {
    /// Takes one completion; may call any operation of `reactor`.
    fn handle(&mut self, reactor: &mut R, completion: Completion<'_>);

    /// The reactor is about to receive from a connection, or to send to it, or to do something that belongs to no connection.
    /// Profiles of a part of the work need this.
    fn note_next(&mut self, _sock: Option<SockId>) {}

    /// Whether another connection may be accepted without making room first. Called before each accept.
    fn has_room(&self, _reactor: &R) -> bool {
        true
    }

    /// Closes connections so that a waiting one can be accepted, which `shortage` prevents. Called only if a
    /// connection waits.
    fn make_room(&mut self, _reactor: &mut R, _shortage: Shortage) -> Room {
        Room::None
    }
}

/// The result of [`Handler::make_room`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Room {
    /// A connection was closed, so accepting can continue now.
    Made,
    /// A connection can be closed soon, so accepting continues after a millisecond.
    Soon,
    /// No connection can be closed, so accepting pauses.
    None,
}
