//! The few non-blocking system calls that the driver uses. `driver` turns their results into completions.
//! In: one call on one handle. Out: its result, with each errno mapped to its meaning here.
//! Never: blocks, except in `wait`; knows what a connection is used for.
//! Invariant: readiness is edge-triggered. Each change causes one edge, and so does the state found at
//! `register`. A receive shorter than its buffer means "empty until the next edge", unless `hangup` came.

use tidegate_base::{Address, Moment, Span};

use crate::interface::{CloseReason, DatagramFault, DatagramSent, ListenOptions, Peer, Shortage};

/// The result of `accept`.
#[derive(Debug)]
pub enum Accepting<H> {
    /// A connection, which is not registered yet.
    Accepted(H, Peer),
    /// The connection failed while it was in the backlog; the next one may be fine.
    Lost,
    /// The backlog is empty. The next connection causes an edge.
    Empty,
    /// No descriptor or no memory. The connection stays in the backlog and causes no further edge.
    Short(Shortage),
}

/// The result of `receive`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Receiving {
    /// This many bytes were received, at least one.
    Bytes(usize),
    /// The peer has sent FIN, and all bytes before it were received.
    End,
    /// There is nothing to receive now. An edge announces the next bytes.
    Empty,
    /// The connection is broken.
    Broken,
}

/// The result of `receive_datagram`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReceivingDatagram {
    /// A datagram of this many bytes, which may be 0. Bytes that exceed the buffer are lost.
    Bytes(usize),
    /// A datagram that was sent has not arrived (ICMP). The socket remains usable.
    Failed(DatagramFault),
    /// There is nothing to receive now. An edge announces the next datagram.
    Empty,
}

/// The result of `send`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sending {
    /// The kernel took this many bytes, at least one.
    Sent(usize),
    /// The send buffer is full. An edge comes when there is room.
    Full,
    /// The connection is broken.
    Broken,
}

/// The result of `relay`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Relaying {
    /// Bytes were moved.
    Sent {
        /// How many, at least one.
        count: usize,
        /// There is nothing more to receive now, unless `hangup` came, or the next wait reports the rest (`Watch::Level`).
        is_empty: bool,
    },
    /// `taken` bytes have left the first connection. The send buffer of the second one is full: the last `held` of them are in
    /// the buffer. An edge comes when there is room.
    Held {
        /// Bytes that were received, at least one.
        taken: usize,
        /// Bytes in the buffer, at least one.
        held: usize,
    },
    /// There is nothing to receive now. An edge announces the next bytes.
    Empty,
    /// The first connection is broken.
    Broken,
    /// The second connection is broken. This many bytes have left the first one, at least one.
    Lost(usize),
    /// Nothing was moved: the stream has ended, which `receive` reports, or the kernel cannot relay between these connections.
    Receive,
}

/// Why `connect` failed at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ConnectFault {
    /// This side lacks a resource.
    Short(Shortage),
    /// The connection was refused, or the address is unreachable.
    Refused(CloseReason),
}

/// One edge of one registered handle.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Ready {
    /// The token passed to `register`.
    pub token: u64,
    /// There may be something to receive or to accept.
    pub readable: bool,
    /// There may be room to send.
    pub writable: bool,
    /// The peer has ended its stream: receive until `End` or an error.
    pub hangup: bool,
    /// The socket has a pending error.
    pub error: bool,
}

/// When `wait` reports a registered handle.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Watch {
    /// At each change: bytes arrive, the peer ends, there is room to send again.
    Edges,
    /// At each wait while there is something to receive, or after a hangup or an error. Never because there is room to send.
    Level,
}

/// The token of the waker's eventfd.
pub const WAKER_TOKEN: u64 = u64::MAX;

/// The system calls. The caller owns each handle and returns it with `close` or `reset`.
pub trait Kernel {
    /// One socket.
    type Handle;

    /// Reads the monotonic (or virtual) clock.
    fn clock(&self) -> Moment;
    /// Wall-clock milliseconds since 1970, from a coarse clock.
    fn unix_millis(&self) -> u64;

    /// Opens a listener and returns it with its actual address.
    ///
    /// # Errors
    /// The error of the system call.
    fn listen(
        &mut self,
        address: &Address,
        options: &ListenOptions,
    ) -> std::io::Result<(Self::Handle, Address)>;
    /// Assigns new connections to the listeners that joined this listener's group after its first
    /// `own_count` listeners.
    fn steer_away(&mut self, listener: &Self::Handle, own_count: u32);
    /// Distributes new connections evenly over this listener's group again.
    fn steer_evenly(&mut self, listener: &Self::Handle);
    /// Whether a connection waits in the backlog.
    fn has_backlog(&mut self, listener: &Self::Handle) -> bool;
    /// Takes one connection from the backlog.
    fn accept(&mut self, listener: &Self::Handle) -> Accepting<Self::Handle>;
    /// Begins a connection, from the address `source` if one is given. After the first writable or error edge,
    /// `connect_outcome` returns the outcome.
    ///
    /// # Errors
    /// If the attempt fails at once.
    fn connect(
        &mut self,
        address: &Address,
        source: Option<core::net::IpAddr>,
    ) -> Result<Self::Handle, ConnectFault>;
    /// Opens a socket that sends datagrams to `peer` and receives those of `peer` only.
    ///
    /// # Errors
    /// This side lacks a resource, or the address is unreachable.
    fn open_datagrams(&mut self, peer: core::net::SocketAddr) -> Result<Self::Handle, CloseReason>;
    /// Sends one datagram.
    fn send_datagram(&mut self, handle: &Self::Handle, bytes: &[u8]) -> DatagramSent;
    /// Receives one datagram into `buffer`.
    fn receive_datagram(&mut self, handle: &Self::Handle, buffer: &mut [u8]) -> ReceivingDatagram;
    /// The outcome of a connection attempt; `None` while it is pending.
    fn connect_outcome(&mut self, handle: &Self::Handle) -> Option<Result<(), CloseReason>>;
    /// The local address of a TCP connection.
    fn local_address(&self, handle: &Self::Handle) -> Option<core::net::SocketAddr>;
    /// Registers the handle for edges (`Watch::Edges`), which carry `token`, until the handle is closed.
    ///
    /// # Errors
    /// If the kernel has no memory left, or this user has reached the limit of epoll watches.
    fn register(&mut self, handle: &Self::Handle, token: u64) -> Result<(), Shortage>;

    /// Changes when `wait` reports the registered handle. The next wait reports the current readiness again. Returns whether the
    /// kernel did it.
    fn watch(&mut self, handle: &Self::Handle, token: u64, watch: Watch) -> bool;

    /// Receives into `buffer`.
    fn receive(&mut self, handle: &Self::Handle, buffer: &mut [u8]) -> Receiving;
    /// The result that `receive` would return now. Takes no bytes, but may take the socket's pending error.
    fn peek(&mut self, handle: &Self::Handle) -> Receiving;
    /// Sends `first`, then `second`, as if they were one slice. At least one of them is not empty.
    fn send(&mut self, handle: &Self::Handle, first: &[u8], second: &[u8]) -> Sending;
    /// Moves up to `buffer.len()` received bytes of `from` to the output of `to` inside the kernel. Bytes that `to` does not take
    /// are in `buffer` afterwards. `watch` is how `from` is watched: with `Watch::Level` no call asks whether `from` has more
    /// bytes.
    fn relay(
        &mut self,
        from: &Self::Handle,
        to: &Self::Handle,
        buffer: &mut [u8],
        watch: Watch,
    ) -> Relaying;
    /// Reads and clears the socket's pending error; true if there was one.
    fn take_error(&mut self, handle: &Self::Handle) -> bool;
    /// Bytes that the kernel has taken from `send` and the peer has not acknowledged. A FIN that is not
    /// acknowledged may count as one byte. The unit may be coarser than a byte, but the value falls only if
    /// the peer takes something.
    fn unacknowledged(&self, handle: &Self::Handle) -> usize;
    /// Ends the sending side (FIN).
    fn shutdown_send(&mut self, handle: &Self::Handle);
    /// Closes the handle. The kernel sends FIN if it was not sent before, or a reset if received bytes are
    /// unread.
    fn close(&mut self, handle: Self::Handle);
    /// Closes the handle with a reset.
    fn reset(&mut self, handle: Self::Handle);

    /// Waits up to `timeout` (`None`: forever) for edges and returns their number.
    fn wait(&mut self, timeout: Option<Span>) -> usize;
    /// Maximum number of edges that one wait returns. The others stay for the next wait, in the order in which they came.
    fn edges_max(&self) -> usize {
        usize::MAX
    }
    /// Edge number `index` of the last wait.
    fn ready(&self, index: usize) -> Ready;
    /// Called at the end of a turn with the time of the next deadline. Only a virtual clock uses it.
    fn note_due(&mut self, due: impl FnOnce() -> Option<Moment>);
}
