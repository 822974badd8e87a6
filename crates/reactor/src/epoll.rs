//! The Linux kernel through epoll: edge-triggered, registered once per socket and never per request. Only a socket whose bytes
//! are relayed is level-triggered for a time (`watch`).
//! In: the calls of `Kernel`. Out: their results, with each errno mapped to its meaning.
//! Never: blocks, except in `wait`; calls epoll_ctl for a request.
//! Limits: `EDGES_MAX` edges for each wait; the others stay in the kernel's list for the next wait.
//! Invariant: a handle is the only owner of its descriptor, so closing it also ends its registration.

use std::io::{self, IoSlice};

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown, SocketAddrAny,
    SocketAddrUnix, SocketFlags, SocketType, sockopt,
};
use rustix::time::{ClockId, Timespec, clock_gettime};
use tidegate_base::{Address, Moment, Span};

use crate::driver::Loop;
use crate::inherited::ListenerReceiver;
use crate::interface::{
    CloseReason, DatagramFault, DatagramSent, ListenOptions, ListenerId, Peer, Shortage,
};
use crate::kernel::{
    Accepting, ConnectFault, Kernel, Ready, Receiving, ReceivingDatagram, Relaying, Sending,
    WAKER_TOKEN, Watch,
};
use crate::pipe::Pipe;
use crate::waker::Waker;
use crate::{outq, source, steering};

/// Maximum number of edges that one wait returns.
const EDGES_MAX: usize = 512;

/// The reactor on real sockets.
pub type EpollReactor = Loop<Epoll>;

/// One epoll instance.
pub struct Epoll {
    epoll: OwnedFd,
    /// The edges of the last wait; at most `EDGES_MAX`.
    edges: Vec<epoll::Event>,
    /// For relays; made when the first one begins.
    pipe: Option<Pipe>,
}

impl Loop<Epoll> {
    /// Creates a reactor on real sockets for the calling thread. A worker with its own descriptor table calls
    /// this after `worker::unshare_descriptor_table`; its `waker` must have been made before that.
    ///
    /// # Errors
    /// If the kernel cannot create an epoll instance (descriptor limit, memory).
    pub fn new(socks_max: usize, waker: Waker) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        if let Some(event) = waker.event() {
            let data = EventData::new_u64(WAKER_TOKEN);
            epoll::add(&epoll, event, data, EventFlags::IN | EventFlags::ET)?;
        }
        let kernel = Epoll { epoll, edges: Vec::with_capacity(EDGES_MAX), pipe: None };
        Ok(Self::over(kernel, waker, socks_max))
    }
}

impl EpollReactor {
    /// Accepts from a socket that was bound elsewhere. Workers share a unix listener in this way, because
    /// SO_REUSEPORT does not work with paths. Each worker passes its own descriptor.
    ///
    /// # Errors
    /// If the socket cannot listen, or the kernel cannot watch it.
    pub fn adopt_listener(
        &mut self,
        listener: OwnedFd,
        address: &Address,
        backlog: u32,
    ) -> io::Result<ListenerId> {
        rustix::io::ioctl_fionbio(&listener, true)?;
        if let Address::Tcp(_) = address {
            // Accepted sockets inherit this option. A service manager may not have set it.
            sockopt::set_tcp_nodelay(&listener, true)?;
        }
        rustix::net::listen(&listener, i32::try_from(backlog).unwrap_or(i32::MAX))?;
        self.add_listener(listener, address.clone(), backlog)
    }

    /// Sends copies of all listeners of the worker with this index.
    ///
    /// # Errors
    /// The kernel refused it.
    pub fn pass_listeners(&self, entrance: ListenerReceiver, worker: u16) -> io::Result<()> {
        let handles: Vec<_> = self.listener_handles().map(AsFd::as_fd).collect();
        entrance.send(worker, &handles)
    }
}

impl Kernel for Epoll {
    type Handle = OwnedFd;

    fn clock(&self) -> Moment {
        let time = clock_gettime(ClockId::Monotonic);
        Moment::from_nanos(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
    }

    fn unix_millis(&self) -> u64 {
        let time = clock_gettime(ClockId::RealtimeCoarse);
        time.tv_sec as u64 * 1000 + time.tv_nsec as u64 / 1_000_000
    }

    fn listen(
        &mut self,
        address: &Address,
        options: &ListenOptions,
    ) -> io::Result<(OwnedFd, Address)> {
        match address {
            Address::Tcp(tcp) => listen_tcp(*tcp, options),
            Address::Unix(path) => listen_unix(path, options),
        }
    }

    fn steer_away(&mut self, listener: &OwnedFd, own_count: u32) {
        // The kernel rejects this for a listener outside a group, such as a unix one. No other process shares
        // such a listener, so there is nothing to steer.
        let _ = steering::steer_away(listener.as_fd(), own_count);
    }

    fn steer_evenly(&mut self, listener: &OwnedFd) {
        let _ = steering::steer_evenly(listener.as_fd());
    }

    fn has_backlog(&mut self, listener: &OwnedFd) -> bool {
        let mut polled = [PollFd::new(listener, PollFlags::IN)];
        // If the call fails, `accept` finds out whether a connection waits.
        poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })) != Ok(0)
    }

    fn accept(&mut self, listener: &OwnedFd) -> Accepting<OwnedFd> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        match rustix::net::acceptfrom_with(listener, flags) {
            Ok((handle, address)) => Accepting::Accepted(handle, peer(address)),
            Err(errno) => accept_fault(errno),
        }
    }

    fn connect(
        &mut self,
        address: &Address,
        source: Option<core::net::IpAddr>,
    ) -> Result<OwnedFd, ConnectFault> {
        let family = match address {
            Address::Tcp(tcp) => family(*tcp),
            Address::Unix(_) => AddressFamily::UNIX,
        };
        let handle = stream_socket(family).map_err(|errno| {
            shortage(errno)
                .map_or(ConnectFault::Refused(CloseReason::ConnectUnreachable), ConnectFault::Short)
        })?;
        let begun = match address {
            Address::Tcp(tcp) => {
                // Without this option, a small request may wait 40 ms for the peer's delayed ACK.
                let _ = sockopt::set_tcp_nodelay(&handle, true);
                if let Some(source) = source {
                    // No port is assigned here, so EADDRNOTAVAIL does not mean a shortage of ports.
                    source::bind(handle.as_fd(), source)
                        .map_err(|_| ConnectFault::Refused(CloseReason::ConnectUnreachable))?;
                }
                rustix::net::connect(&handle, tcp)
            }
            Address::Unix(path) => SocketAddrUnix::new(path.as_str())
                .and_then(|unix| rustix::net::connect(&handle, &unix)),
        };
        match begun {
            Ok(()) | Err(Errno::INPROGRESS | Errno::INTR) => Ok(handle),
            Err(errno) => Err(connect_fault(errno)),
        }
    }

    fn connect_outcome(&mut self, handle: &OwnedFd) -> Option<Result<(), CloseReason>> {
        // Registering a socket with a pending connect causes no edge, so the first edge is the outcome.
        Some(match sockopt::socket_error(handle) {
            Ok(Ok(())) => Ok(()),
            Ok(Err(errno)) | Err(errno) => Err(close_reason(connect_fault(errno))),
        })
    }

    fn open_datagrams(&mut self, peer: core::net::SocketAddr) -> Result<OwnedFd, CloseReason> {
        let opened = socket(family(peer), SocketType::DGRAM).and_then(|handle| {
            rustix::net::connect(&handle, &peer)?;
            Ok(handle)
        });
        opened.map_err(|errno| close_reason(connect_fault(errno)))
    }

    fn send_datagram(&mut self, handle: &OwnedFd, bytes: &[u8]) -> DatagramSent {
        loop {
            return match rustix::net::send(handle, bytes, SendFlags::NOSIGNAL) {
                Ok(_) => DatagramSent::Sent,
                Err(Errno::INTR) => continue,
                // ENOBUFS: the queue of the device is full.
                Err(Errno::AGAIN | Errno::NOBUFS | Errno::NOMEM) => DatagramSent::Full,
                Err(Errno::MSGSIZE) => DatagramSent::TooLong,
                Err(errno) => DatagramSent::Failed(datagram_fault(errno)),
            };
        }
    }

    fn receive_datagram(&mut self, handle: &OwnedFd, buffer: &mut [u8]) -> ReceivingDatagram {
        loop {
            return match rustix::net::recv(handle, &mut *buffer, RecvFlags::empty()) {
                Ok((count, _)) => ReceivingDatagram::Bytes(count),
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => ReceivingDatagram::Empty,
                // A report about a datagram that was sent; each is given once.
                Err(errno) => ReceivingDatagram::Failed(datagram_fault(errno)),
            };
        }
    }

    fn local_address(&self, handle: &OwnedFd) -> Option<core::net::SocketAddr> {
        core::net::SocketAddr::try_from(rustix::net::getsockname(handle).ok()?).ok()
    }

    fn register(&mut self, handle: &OwnedFd, token: u64) -> Result<(), Shortage> {
        epoll::add(&self.epoll, handle, EventData::new_u64(token), event_flags(Watch::Edges))
            .map_err(|errno| shortage(errno).unwrap_or(Shortage::Memory))
    }

    fn watch(&mut self, handle: &OwnedFd, token: u64, watch: Watch) -> bool {
        epoll::modify(&self.epoll, handle, EventData::new_u64(token), event_flags(watch)).is_ok()
    }

    fn receive(&mut self, handle: &OwnedFd, buffer: &mut [u8]) -> Receiving {
        receive_with(handle, buffer, RecvFlags::empty())
    }

    fn peek(&mut self, handle: &OwnedFd) -> Receiving {
        receive_with(handle, &mut [0], RecvFlags::PEEK)
    }

    fn send(&mut self, handle: &OwnedFd, first: &[u8], second: &[u8]) -> Sending {
        loop {
            let sent = match (first, second) {
                (one, []) | ([], one) => rustix::net::send(handle, one, SendFlags::NOSIGNAL),
                (one, two) => rustix::net::sendmsg(
                    handle,
                    &[IoSlice::new(one), IoSlice::new(two)],
                    &mut SendAncillaryBuffer::default(),
                    SendFlags::NOSIGNAL,
                ),
            };
            return match sent {
                Ok(count) => Sending::Sent(count),
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => Sending::Full,
                // ECONNRESET, EPIPE, ETIMEDOUT; also ENOBUFS and ENOMEM, after which no edge would come.
                Err(_) => Sending::Broken,
            };
        }
    }

    fn relay(&mut self, from: &OwnedFd, to: &OwnedFd, buffer: &mut [u8], watch: Watch) -> Relaying {
        if self.pipe.is_none() {
            self.pipe = Pipe::new().ok();
        }
        self.pipe.as_ref().map_or(Relaying::Receive, |pipe| pipe.relay(from, to, buffer, watch))
    }

    fn take_error(&mut self, handle: &OwnedFd) -> bool {
        !matches!(sockopt::socket_error(handle), Ok(Ok(())))
    }

    fn unacknowledged(&self, handle: &OwnedFd) -> usize {
        outq::unacknowledged(handle.as_fd())
    }

    fn shutdown_send(&mut self, handle: &OwnedFd) {
        // This fails only if the connection is already broken; an edge then reports that.
        let _ = rustix::net::shutdown(handle, Shutdown::Write);
    }

    fn close(&mut self, handle: OwnedFd) {
        drop(handle);
    }

    fn reset(&mut self, handle: OwnedFd) {
        let _ = sockopt::set_socket_linger(&handle, Some(Span::ZERO));
        drop(handle);
    }

    fn wait(&mut self, timeout: Option<Span>) -> usize {
        // Round up to whole milliseconds, the unit of epoll_wait. Otherwise a wait would end just before its
        // deadline, and the loop would spin until the deadline.
        let timeout = timeout.map(|span| {
            let millis = span.as_nanos().div_ceil(1_000_000).min(i32::MAX as u128) as i64;
            Timespec { tv_sec: millis / 1000, tv_nsec: millis % 1000 * 1_000_000 }
        });
        self.edges.clear();
        // EINTR is the only possible error of a valid instance; it counts as no edge.
        let _ = epoll::wait(&self.epoll, spare_capacity(&mut self.edges), timeout.as_ref());
        self.edges.len()
    }

    fn edges_max(&self) -> usize {
        EDGES_MAX
    }

    fn ready(&self, index: usize) -> Ready {
        let edge = &self.edges[index];
        let flags = edge.flags;
        Ready {
            token: edge.data.u64(),
            readable: flags.contains(EventFlags::IN),
            writable: flags.contains(EventFlags::OUT),
            hangup: flags.intersects(EventFlags::RDHUP | EventFlags::HUP),
            error: flags.contains(EventFlags::ERR),
        }
    }

    fn note_due(&mut self, _due: impl FnOnce() -> Option<Moment>) {}
}

/// The events for which epoll watches a socket.
fn event_flags(watch: Watch) -> EventFlags {
    match watch {
        Watch::Edges => EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET,
        Watch::Level => EventFlags::IN | EventFlags::RDHUP,
    }
}

fn receive_with(handle: &OwnedFd, buffer: &mut [u8], flags: RecvFlags) -> Receiving {
    loop {
        return match rustix::net::recv(handle, &mut *buffer, flags) {
            Ok((0, _)) => Receiving::End,
            Ok((count, _)) => Receiving::Bytes(count),
            Err(Errno::INTR) => continue,
            Err(Errno::AGAIN) => Receiving::Empty,
            Err(_) => Receiving::Broken,
        };
    }
}

fn family(address: core::net::SocketAddr) -> AddressFamily {
    if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 }
}

fn stream_socket(family: AddressFamily) -> Result<OwnedFd, Errno> {
    socket(family, SocketType::STREAM)
}

fn socket(family: AddressFamily, of: SocketType) -> Result<OwnedFd, Errno> {
    rustix::net::socket_with(family, of, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC, None)
}

fn listen_tcp(
    address: core::net::SocketAddr,
    options: &ListenOptions,
) -> io::Result<(OwnedFd, Address)> {
    let handle = stream_socket(family(address))?;
    sockopt::set_socket_reuseaddr(&handle, true)?;
    // On Linux, accepted sockets inherit this option, which saves one call for each of them.
    sockopt::set_tcp_nodelay(&handle, true)?;
    if options.reuse_port {
        sockopt::set_socket_reuseport(&handle, true)?;
    }
    rustix::net::bind(&handle, &address)?;
    rustix::net::listen(&handle, backlog(options))?;
    if let Some(count) = options.steer_by_cpu_over {
        steering::steer_by_cpu(handle.as_fd(), count)?;
    }
    let bound = core::net::SocketAddr::try_from(rustix::net::getsockname(&handle)?)?;
    Ok((handle, Address::Tcp(bound)))
}

fn listen_unix(path: &str, options: &ListenOptions) -> io::Result<(OwnedFd, Address)> {
    let address = SocketAddrUnix::new(path)?;
    let handle = stream_socket(AddressFamily::UNIX)?;
    if let Err(errno) = rustix::net::bind(&handle, &address) {
        // If a connect is refused, nothing listens on this path: a process that has ended left it behind.
        let is_left_behind = errno == Errno::ADDRINUSE
            && rustix::net::connect(&stream_socket(AddressFamily::UNIX)?, &address)
                == Err(Errno::CONNREFUSED);
        if !is_left_behind {
            return Err(errno.into());
        }
        rustix::fs::unlink(path)?;
        rustix::net::bind(&handle, &address)?;
    }
    rustix::net::listen(&handle, backlog(options))?;
    Ok((handle, Address::Unix(path.to_owned())))
}

fn backlog(options: &ListenOptions) -> i32 {
    i32::try_from(options.backlog).unwrap_or(i32::MAX)
}

fn peer(address: Option<SocketAddrAny>) -> Peer {
    match address.and_then(|any| core::net::SocketAddr::try_from(any).ok()) {
        // An IPv4 client on a dual-stack listener is reported with its IPv4 address.
        Some(tcp) => Peer::Tcp(core::net::SocketAddr::new(tcp.ip().to_canonical(), tcp.port())),
        None => Peer::Local,
    }
}

fn shortage(errno: Errno) -> Option<Shortage> {
    match errno {
        Errno::MFILE => Some(Shortage::WorkerDescriptors),
        Errno::NFILE => Some(Shortage::SystemDescriptors),
        // ENOSPC: the limit of epoll watches per user.
        Errno::NOBUFS | Errno::NOMEM | Errno::NOSPC => Some(Shortage::Memory),
        Errno::ADDRNOTAVAIL => Some(Shortage::Ports),
        _ => None,
    }
}

fn accept_fault(errno: Errno) -> Accepting<OwnedFd> {
    match errno {
        Errno::AGAIN => Accepting::Empty,
        _ => match shortage(errno) {
            Some(shortage) => Accepting::Short(shortage),
            // ECONNABORTED, EINTR, EPERM from a firewall, and the pending network errors of the new
            // connection that Linux reports here (accept(2)): only this connection is lost.
            None => Accepting::Lost,
        },
    }
}

fn datagram_fault(errno: Errno) -> DatagramFault {
    match errno {
        Errno::CONNREFUSED => DatagramFault::Refused,
        // EPERM: a rule of the firewall; EACCES: a broadcast address; EINVAL: an address of another kind of network.
        Errno::PERM | Errno::ACCESS | Errno::INVAL => DatagramFault::Rejected,
        // ENETUNREACH, EHOSTUNREACH, ENETDOWN, EPROTO and similar errors.
        _ => DatagramFault::Unreachable,
    }
}

fn close_reason(fault: ConnectFault) -> CloseReason {
    match fault {
        ConnectFault::Short(shortage) => CloseReason::ConnectShortage(shortage),
        ConnectFault::Refused(reason) => reason,
    }
}

fn connect_fault(errno: Errno) -> ConnectFault {
    match errno {
        // EAGAIN: the backlog of a unix listener is full.
        Errno::CONNREFUSED | Errno::CONNRESET | Errno::AGAIN => {
            ConnectFault::Refused(CloseReason::ConnectRefused)
        }
        _ => match shortage(errno) {
            Some(shortage) => ConnectFault::Short(shortage),
            // ETIMEDOUT, EHOSTUNREACH, ENETUNREACH, ENOENT, EACCES, EPERM and similar errors.
            None => ConnectFault::Refused(CloseReason::ConnectUnreachable),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_of_datagrams_are_told_apart() {
        for (errno, fault) in [
            (Errno::CONNREFUSED, DatagramFault::Refused),
            (Errno::PERM, DatagramFault::Rejected),
            (Errno::ACCESS, DatagramFault::Rejected),
            (Errno::INVAL, DatagramFault::Rejected),
            (Errno::NETUNREACH, DatagramFault::Unreachable),
            (Errno::HOSTUNREACH, DatagramFault::Unreachable),
            (Errno::NETDOWN, DatagramFault::Unreachable),
        ] {
            assert_eq!(datagram_fault(errno), fault, "{errno}");
        }
    }
}
