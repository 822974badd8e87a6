//! The few non-blocking system calls that a driver stands on; `driver` makes completions of them.
//! In: one call on one handle. Out: what came of it, each errno named for what it means here.
//! Never: blocks but in `wait`; retries; knows what a connection is for.
//! Invariant: readiness is edge-triggered: an edge comes once per change, also for what was there at
//! `register`. A receive shorter than its buffer means "empty until the next edge", unless `hangup` came.

use tidegate_base::{Address, Moment, Span};

use crate::interface::{CloseReason, ListenOptions, Peer, Shortage};

/// What `accept` brought.
#[derive(Debug)]
pub enum Accepting<H> {
    /// A connection, not registered yet.
    Accepted(H, Peer),
    /// That connection died in the backlog; the next one may be fine.
    Lost,
    /// The backlog is empty; an edge comes with the next connection.
    Empty,
    /// No descriptor or memory; the connection stays in the backlog and no edge comes for it.
    Short(Shortage),
}

/// What `receive` brought.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Receiving {
    /// That many bytes, at least one.
    Bytes(usize),
    /// The peer has finished.
    End,
    /// Nothing now; an edge comes.
    Empty,
    /// The connection is broken.
    Broken,
}

/// What `send` achieved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sending {
    /// That many bytes went, at least one.
    Sent(usize),
    /// No room now; an edge comes.
    Full,
    /// The connection is broken.
    Broken,
}

/// Why `connect` did not even begin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ConnectFault {
    /// This side lacks something.
    Short(Shortage),
    /// The other side said no at once.
    Refused(CloseReason),
}

/// One edge of one registered handle.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Ready {
    /// What was given to `register`.
    pub token: u64,
    /// There may be something to receive or to accept.
    pub readable: bool,
    /// There may be room to send.
    pub writable: bool,
    /// The peer's end of stream is near: read until it is found.
    pub hangup: bool,
    /// An error waits to be read.
    pub error: bool,
}

/// The token of the waker's edge.
pub const WAKER_TOKEN: u64 = u64::MAX;

/// The calls. A handle is owned by the caller and goes back by `close` or `reset`.
pub trait Kernel {
    /// One socket.
    type Handle;

    /// The clock.
    fn clock(&self) -> Moment;
    /// Seconds since 1970, coarse.
    fn unix_seconds(&self) -> u64;

    /// Opens a listener and tells where it really is.
    ///
    /// # Errors
    /// What the kernel said.
    fn listen(
        &mut self,
        address: &Address,
        options: &ListenOptions,
    ) -> std::io::Result<(Self::Handle, Address)>;
    /// Deals new connections to those who joined this listener's group after its first `own_count`.
    fn steer_away(&mut self, listener: &Self::Handle, own_count: u32);
    /// Deals new connections evenly over this listener's group again.
    fn steer_evenly(&mut self, listener: &Self::Handle);
    /// Takes one connection from the backlog.
    fn accept(&mut self, listener: &Self::Handle) -> Accepting<Self::Handle>;
    /// Begins a connection, from the address `source` where one is given; the first writable or error
    /// edge tells that `connect_outcome` is known.
    ///
    /// # Errors
    /// What is known at once.
    fn connect(
        &mut self,
        address: &Address,
        source: Option<core::net::IpAddr>,
    ) -> Result<Self::Handle, ConnectFault>;
    /// How a begun connection ended; `None` while it is still under way.
    fn connect_outcome(&mut self, handle: &Self::Handle) -> Option<Result<(), CloseReason>>;
    /// This end's address of a TCP connection.
    fn local_address(&self, handle: &Self::Handle) -> Option<core::net::SocketAddr>;
    /// Asks for edges with `token`, from now until the handle is closed.
    ///
    /// # Errors
    /// When the kernel has no memory or watch left for it.
    fn register(&mut self, handle: &Self::Handle, token: u64) -> Result<(), Shortage>;

    /// Receives into `buffer`.
    fn receive(&mut self, handle: &Self::Handle, buffer: &mut [u8]) -> Receiving;
    /// Sends `first`, then `second`, as if they were one slice; not both are empty.
    fn send(&mut self, handle: &Self::Handle, first: &[u8], second: &[u8]) -> Sending;
    /// Whether the connection is broken; clears the kernel's note of it.
    fn take_error(&mut self, handle: &Self::Handle) -> bool;
    /// Ends the sending side (FIN).
    fn shutdown_send(&mut self, handle: &Self::Handle);
    /// Closes; a FIN goes out if none went before (a reset, when received bytes were left unread).
    fn close(&mut self, handle: Self::Handle);
    /// Closes with a reset.
    fn reset(&mut self, handle: Self::Handle);

    /// Waits up to `timeout` (`None`: for ever) for edges and tells how many came.
    fn wait(&mut self, timeout: Option<Span>) -> usize;
    /// Edge `index` of the last wait.
    fn ready(&self, index: usize) -> Ready;
    /// Told at a turn's end when the next deadline comes; only a virtual clock wants to know.
    fn note_due(&mut self, due: impl FnOnce() -> Option<Moment>);
}
