//! Sockets that the WebSocket loads hold themselves, without a reactor: a connection costs them its descriptor and
//! a few bytes.
//! In: addresses. Out: connecting sockets, registered with epoll; received bytes.
//! Never: waits for a socket; leaves a connection in TIME_WAIT.
//! Limits: `READ_BYTES` of one receive call.
//! Invariant: one `epoll_ctl` for each connection. Events are edge-triggered, so `receive` is called until it returns
//! fewer bytes than the buffer holds.

use core::net::{IpAddr, SocketAddr};
use core::time::Duration;
use rustix::event::Timespec;
use rustix::event::epoll::{self, Event, EventData, EventFlags};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, sockopt};
use std::io;

/// Size of the buffer that the connections of a thread share.
pub(crate) const READ_BYTES: usize = 64 * 1024;
/// Largest number of events of one wait call.
pub(crate) const EVENTS_MAX: usize = 512;

/// Begins a connection, and registers it under `key`.
///
/// # Errors
/// The operation that the kernel refused.
pub(crate) fn connect(
    epoll: &OwnedFd,
    address: SocketAddr,
    source: Option<IpAddr>,
    key: u32,
) -> Result<OwnedFd, Errno> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = net::socket_with(family, SocketType::STREAM, flags, None)?;
    if let Some(source) = source {
        tidegate_reactor::source::bind(socket.as_fd(), source)?;
    }
    sockopt::set_tcp_nodelay(&socket, true)?;
    match net::connect(&socket, &address) {
        Ok(()) | Err(Errno::INPROGRESS) => {}
        Err(error) => return Err(error),
    }
    let watched = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
    epoll::add(epoll, &socket, EventData::new_u64(key.into()), watched)?;
    Ok(socket)
}

/// The outcome of a receive call.
pub(crate) enum Received {
    /// So many bytes are in the buffer.
    Bytes(usize),
    /// There are none for now.
    Nothing,
    /// The server has closed the connection.
    End,
    /// The connection is broken.
    Broken(Errno),
}

/// Receives once.
pub(crate) fn receive(socket: &OwnedFd, buffer: &mut [u8]) -> Received {
    loop {
        return match net::recv(socket, &mut *buffer, RecvFlags::empty()) {
            Ok((0, _)) => Received::End,
            Ok((count, _)) => Received::Bytes(count),
            Err(Errno::AGAIN) => Received::Nothing,
            Err(Errno::INTR) => continue,
            Err(error) => Received::Broken(error),
        };
    }
}

/// Sends once, and returns how many bytes the kernel took.
///
/// # Errors
/// Why the connection is broken.
pub(crate) fn send(socket: &OwnedFd, bytes: &[u8]) -> Result<usize, Errno> {
    loop {
        return match net::send(socket, bytes, SendFlags::NOSIGNAL) {
            Ok(count) => Ok(count),
            Err(Errno::AGAIN) => Ok(0),
            Err(Errno::INTR) => continue,
            Err(error) => Err(error),
        };
    }
}

/// Sends the first bytes of a connection, which fit into the empty buffer of its socket.
///
/// # Errors
/// Why the connection cannot be used, for the report.
pub(crate) fn send_first(socket: &OwnedFd, bytes: &[u8]) -> Result<(), String> {
    match send(socket, bytes) {
        Ok(count) if count == bytes.len() => Ok(()),
        Ok(_) => Err("the handshake did not fit into the send buffer of the socket".to_owned()),
        Err(error) => Err(format!("send: {}", io::Error::from(error))),
    }
}

/// Waits for events, at most `EVENTS_MAX`, which replace those in `events`.
///
/// # Errors
/// If epoll fails.
pub(crate) fn wait(epoll: &OwnedFd, events: &mut Vec<Event>, wait: Duration) -> io::Result<()> {
    events.clear();
    let timeout = Timespec { tv_sec: 0, tv_nsec: wait.as_nanos().try_into().unwrap_or(0) };
    match epoll::wait(epoll, rustix::buffer::spare_capacity(events), Some(&timeout)) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// The outcome of a connection attempt whose socket became writable.
///
/// # Errors
/// Why it failed, for the report.
pub(crate) fn outcome(socket: &OwnedFd) -> Result<(), String> {
    sockopt::socket_error(socket)
        .and_then(|outcome| outcome)
        .map_err(|error| format!("connect: {}", io::Error::from(error)))
}

/// Makes closing the socket reset the connection. A million connections in TIME_WAIT would disturb the next run.
pub(crate) fn reset_on_close(socket: &OwnedFd) {
    // Without it the connection is closed in the usual way.
    let _ = sockopt::set_socket_linger(socket, Some(Duration::ZERO));
}
