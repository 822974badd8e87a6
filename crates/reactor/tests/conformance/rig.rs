//! The fixture of a conformance case: a reactor, the far ends of its connections, and its completions.
//! In: a harness for each driver. Out: `Rig`, on which each case is written once.
//! Never: asserts how long something took. `until` only limits how often it checks.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::{AtomicU32, Ordering};

use tidegate_base::{Address, Span};
use tidegate_reactor::*;

/// An owned copy of a completion.
#[derive(Debug, PartialEq, Clone)]
pub enum Seen {
    Accepted(ListenerId, SockId, Peer),
    Connected(SockId),
    Received(SockId, Vec<u8>),
    Relayed(SockId, usize),
    Finished(SockId),
    HungUp(SockId),
    Drained(SockId),
    Closed(SockId, CloseReason),
    Due(SockId),
    Timer(u32),
    Woken,
    AcceptPaused(ListenerId, Shortage),
    Datagram(DatagramId, Vec<u8>),
    DatagramFailed(DatagramId, DatagramFault),
}

/// The far end of a connection; nothing here blocks.
pub trait Far {
    fn send(&mut self, bytes: &[u8]) -> usize;
    /// Takes what has arrived. `is_finished` and `was_reset` report what earlier calls found.
    fn receive(&mut self) -> Vec<u8>;
    fn is_finished(&self) -> bool;
    fn was_reset(&self) -> bool;
    fn finish(&mut self);
    fn reset(&mut self);
}

/// A far socket for datagrams; nothing here blocks.
pub trait FarDatagrams {
    fn send(&self, to: SocketAddr, bytes: &[u8]);
    fn receive(&self) -> Option<(SocketAddr, Vec<u8>)>;
}

/// The parts that differ between the drivers.
pub trait Harness: Sized {
    type R: Driver;
    type Far: Far;
    type Server;
    type Datagrams: FarDatagrams;
    fn start(socks_max: usize) -> (Self, Self::R);
    fn waker(reactor: &Self::R) -> Waker;
    fn dial(&self, address: &Address) -> Self::Far;
    fn serve(&self, address: &Address) -> (Self::Server, Address);
    fn accept(&self, server: &Self::Server) -> Option<Self::Far>;
    /// Opens a far socket for datagrams on a free port.
    fn serve_datagrams(&self) -> (Self::Datagrams, SocketAddr);
    /// Lets what far ends sent over unix sockets arrive, without a turn of the reactor.
    fn deliver(&self);
}

type Hook<R> = Box<dyn FnMut(&mut R, &mut Completion<'_>)>;
type MakeRoom<R> = Box<dyn FnMut(&mut R, Shortage) -> Room>;

pub struct Rig<H: Harness> {
    pub harness: H,
    pub reactor: H::R,
    pub recorder: Recorder<H::R>,
}

pub struct Recorder<R> {
    pub seen: Vec<Seen>,
    pub hook: Option<Hook<R>>,
    /// Makes room for each connection before it is accepted; `None`: there is always room.
    pub room: Option<MakeRoom<R>>,
}

impl<R: Reactor> Handler<R> for Recorder<R> {
    fn handle(&mut self, reactor: &mut R, mut completion: Completion<'_>) {
        self.seen.push(match &completion {
            Completion::Accepted { listener, sock, peer } => {
                Seen::Accepted(*listener, *sock, *peer)
            }
            Completion::Connected { sock } => Seen::Connected(*sock),
            Completion::Received { sock, bytes } => {
                assert!(!bytes.is_empty(), "an empty Received");
                Seen::Received(*sock, bytes.to_vec())
            }
            Completion::Relayed { sock, count } => {
                assert!(*count > 0, "an empty Relayed");
                Seen::Relayed(*sock, *count)
            }
            Completion::Finished { sock } => Seen::Finished(*sock),
            Completion::HungUp { sock } => Seen::HungUp(*sock),
            Completion::Drained { sock } => Seen::Drained(*sock),
            Completion::Closed { sock, reason } => {
                assert!(!reactor.is_live(*sock), "the id is not stale in Closed");
                Seen::Closed(*sock, *reason)
            }
            Completion::Due { sock } => Seen::Due(*sock),
            Completion::Timer { timer } => Seen::Timer(*timer),
            Completion::Woken => Seen::Woken,
            Completion::AcceptPaused { listener, shortage } => {
                Seen::AcceptPaused(*listener, *shortage)
            }
            Completion::Datagram { socket, bytes } => Seen::Datagram(*socket, bytes.to_vec()),
            Completion::DatagramFailed { socket, fault } => Seen::DatagramFailed(*socket, *fault),
        });
        if let Some(hook) = &mut self.hook {
            hook(reactor, &mut completion);
        }
    }

    fn has_room(&self, _: &R) -> bool {
        self.room.is_none()
    }

    fn make_room(&mut self, reactor: &mut R, shortage: Shortage) -> Room {
        self.room.as_mut().map_or(Room::None, |room| room(reactor, shortage))
    }
}

pub const OPTIONS: ListenOptions =
    ListenOptions { backlog: 128, reuse_port: false, steer_by_cpu_over: None };

pub fn loopback() -> Address {
    Address::Tcp(([127, 0, 0, 1], 0).into())
}

pub fn unix_path() -> Address {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let name = format!("tidegate-conformance-{}-{number}.sock", std::process::id());
    Address::Unix(std::env::temp_dir().join(name).to_string_lossy().into_owned())
}

impl<H: Harness> Rig<H> {
    pub fn new() -> Self {
        Self::with_socks_max(1000)
    }

    pub fn with_socks_max(socks_max: usize) -> Self {
        let (harness, reactor) = H::start(socks_max);
        let recorder = Recorder { seen: Vec::new(), hook: None, room: None };
        Self { harness, reactor, recorder }
    }

    pub fn hook(&mut self, hook: impl FnMut(&mut H::R, &mut Completion<'_>) + 'static) {
        self.recorder.hook = Some(Box::new(hook));
    }

    pub fn turn(&mut self) {
        self.reactor.turn(&mut self.recorder, Span::from_millis(5));
    }

    /// Runs turns until `done`; fails if that never happens.
    pub fn until(&mut self, what: &str, mut done: impl FnMut(&mut Self) -> bool) {
        for _ in 0..6000 {
            if done(self) {
                return;
            }
            self.turn();
        }
        let seen = &self.recorder.seen;
        panic!(
            "never happened: {what}; last seen: {:.2000?}",
            &seen[seen.len().saturating_sub(8)..]
        );
    }

    pub fn until_seen(&mut self, wanted: &Seen) {
        self.until(&format!("{wanted:?}"), |rig| rig.recorder.seen.contains(wanted));
    }

    /// Runs a few more turns, to show that something does not happen.
    pub fn settle(&mut self) {
        for _ in 0..6 {
            self.turn();
        }
    }

    /// Opens a listener and returns it with its address.
    pub fn listen(&mut self, address: &Address) -> (ListenerId, Address) {
        let listener = self.reactor.listen(address, &OPTIONS).expect("a free address");
        let address = self.reactor.listener_address(listener).expect("the listener is open");
        (listener, address)
    }

    /// An accepted connection and its far end.
    pub fn accepted(&mut self) -> (SockId, H::Far) {
        let (_, address) = self.listen(&loopback());
        self.dialled(&address)
    }

    /// Connects a far end to `address`, and returns the accepted connection with it.
    pub fn dialled(&mut self, address: &Address) -> (SockId, H::Far) {
        let before = self.accepts().len();
        let far = self.harness.dial(address);
        self.until("an accept", |rig| rig.accepts().len() > before);
        (self.accepts()[before], far)
    }

    /// A connection made by this reactor, and its far end.
    pub fn connected(&mut self) -> (SockId, H::Far) {
        self.connected_to(&loopback())
    }

    /// As `connected`, over a unix socket.
    pub fn connected_locally(&mut self) -> (SockId, H::Far) {
        let path = unix_path();
        let connected = self.connected_to(&path);
        if let Address::Unix(path) = path {
            let _ = std::fs::remove_file(path);
        }
        connected
    }

    fn connected_to(&mut self, address: &Address) -> (SockId, H::Far) {
        let (server, address) = self.harness.serve(address);
        let sock = self.reactor.connect(&address).expect("no shortage");
        self.until_seen(&Seen::Connected(sock));
        let mut far = None;
        self.until("the far accept", |rig| {
            far = rig.harness.accept(&server);
            far.is_some()
        });
        (sock, far.expect("accepted above"))
    }

    pub fn accepts(&self) -> Vec<SockId> {
        self.recorder
            .seen
            .iter()
            .filter_map(|seen| match seen {
                Seen::Accepted(_, sock, _) => Some(*sock),
                _ => None,
            })
            .collect()
    }

    /// All bytes received on `sock` so far.
    pub fn received(&self, sock: SockId) -> Vec<u8> {
        let mut all = Vec::new();
        for seen in &self.recorder.seen {
            if let Seen::Received(of, bytes) = seen
                && *of == sock
            {
                all.extend_from_slice(bytes);
            }
        }
        all
    }

    pub fn until_received(&mut self, sock: SockId, bytes: &[u8]) {
        self.until("the bytes", |rig| rig.received(sock).len() >= bytes.len());
        assert!(self.received(sock) == bytes, "wrong bytes received");
    }

    /// Runs turns until the far end has received exactly `bytes`.
    pub fn until_far_got(&mut self, far: &mut H::Far, bytes: &[u8]) {
        let mut got = Vec::new();
        self.until("the bytes at the far end", |_| {
            got.extend(far.receive());
            got.len() >= bytes.len()
        });
        assert!(got == bytes, "the far end received wrong bytes");
    }

    /// Sends all of `bytes` from the far end, while the reactor runs.
    pub fn far_sends(&mut self, far: &mut H::Far, bytes: &[u8]) {
        let mut sent = 0;
        self.until("the far end's sending", |_| {
            sent += far.send(&bytes[sent..]);
            sent == bytes.len()
        });
    }

    pub fn count(&self, wanted: impl Fn(&Seen) -> bool) -> usize {
        self.recorder.seen.iter().filter(|seen| wanted(seen)).count()
    }
}

/// Bytes whose values depend on their position.
pub fn pattern(count: usize) -> Vec<u8> {
    (0..count).map(|at| (at ^ (at >> 8) ^ (at >> 16)) as u8).collect()
}

/// The harness for real sockets.
pub struct Real;

pub enum RealServer {
    Tcp(TcpListener),
    Unix(UnixListener),
}

enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

pub struct RealFar {
    stream: Option<Stream>,
    finished: bool,
    reset: bool,
}

impl RealFar {
    fn new(stream: Stream) -> Self {
        match &stream {
            Stream::Tcp(tcp) => tcp.set_nonblocking(true).expect("a socket can be non-blocking"),
            Stream::Unix(unix) => unix.set_nonblocking(true).expect("as above"),
        }
        Self { stream: Some(stream), finished: false, reset: false }
    }
}

impl Harness for Real {
    type R = EpollReactor;
    type Far = RealFar;
    type Server = RealServer;
    type Datagrams = UdpSocket;

    fn start(socks_max: usize) -> (Self, EpollReactor) {
        let waker = make_wakers(1).expect("an eventfd").remove(0);
        (Self, EpollReactor::new(socks_max, waker).expect("an epoll instance"))
    }

    fn waker(reactor: &EpollReactor) -> Waker {
        reactor.waker()
    }

    fn dial(&self, address: &Address) -> RealFar {
        RealFar::new(match address {
            Address::Tcp(tcp) => Stream::Tcp(TcpStream::connect(tcp).expect("a listener is open")),
            Address::Unix(path) => Stream::Unix(UnixStream::connect(path).expect("as above")),
        })
    }

    fn serve(&self, address: &Address) -> (RealServer, Address) {
        match address {
            Address::Tcp(tcp) => {
                let server = TcpListener::bind(tcp).expect("a free port");
                server.set_nonblocking(true).expect("a socket can be non-blocking");
                let address = Address::Tcp(server.local_addr().expect("the listener is bound"));
                (RealServer::Tcp(server), address)
            }
            Address::Unix(path) => {
                let server = UnixListener::bind(path).expect("a free path");
                server.set_nonblocking(true).expect("a socket can be non-blocking");
                (RealServer::Unix(server), address.clone())
            }
        }
    }

    fn serve_datagrams(&self) -> (UdpSocket, SocketAddr) {
        let socket = UdpSocket::bind(("127.0.0.1", 0)).expect("a free port");
        socket.set_nonblocking(true).expect("a socket can be non-blocking");
        let address = socket.local_addr().expect("the socket is bound");
        (socket, address)
    }

    /// The kernel delivers over a unix socket before the sending call returns.
    fn deliver(&self) {}

    fn accept(&self, server: &RealServer) -> Option<RealFar> {
        Some(RealFar::new(match server {
            RealServer::Tcp(server) => Stream::Tcp(server.accept().ok()?.0),
            RealServer::Unix(server) => Stream::Unix(server.accept().ok()?.0),
        }))
    }
}

impl FarDatagrams for UdpSocket {
    fn send(&self, to: SocketAddr, bytes: &[u8]) {
        assert_eq!(self.send_to(bytes, to).ok(), Some(bytes.len()));
    }

    fn receive(&self) -> Option<(SocketAddr, Vec<u8>)> {
        let mut buffer = vec![0; 65_536];
        let (count, from) = self.recv_from(&mut buffer).ok()?;
        Some((from, buffer[..count].to_vec()))
    }
}

impl Far for RealFar {
    fn send(&mut self, bytes: &[u8]) -> usize {
        let sent = match &mut self.stream {
            Some(Stream::Tcp(tcp)) => tcp.write(bytes),
            Some(Stream::Unix(unix)) => unix.write(bytes),
            None => return 0,
        };
        match sent {
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
            Err(_) => {
                self.reset = true;
                0
            }
        }
    }

    fn receive(&mut self) -> Vec<u8> {
        let mut all = Vec::new();
        let mut buffer = vec![0; 256 * 1024];
        while !self.finished && !self.reset {
            let got = match &mut self.stream {
                Some(Stream::Tcp(tcp)) => tcp.read(&mut buffer),
                Some(Stream::Unix(unix)) => unix.read(&mut buffer),
                None => break,
            };
            match got {
                Ok(0) => self.finished = true,
                Ok(count) => all.extend_from_slice(&buffer[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(_) => self.reset = true,
            }
        }
        all
    }

    fn is_finished(&self) -> bool {
        self.finished
    }

    fn was_reset(&self) -> bool {
        self.reset
    }

    fn finish(&mut self) {
        match &self.stream {
            Some(Stream::Tcp(tcp)) => {
                tcp.shutdown(Shutdown::Write).expect("the connection is open")
            }
            Some(Stream::Unix(unix)) => {
                unix.shutdown(Shutdown::Write).expect("the connection is open")
            }
            None => {}
        }
    }

    fn reset(&mut self) {
        if let Some(Stream::Tcp(tcp)) = self.stream.take() {
            rustix::net::sockopt::set_socket_linger(&tcp, Some(Span::ZERO))
                .expect("SO_LINGER is supported");
        }
    }
}

/// The harness for the simulated network, without faults.
pub struct Simulated {
    pub net: SimNet,
}

pub struct SimFar {
    peer: SimPeer,
    finished: bool,
    reset: bool,
}

impl Harness for Simulated {
    type R = SimReactor;
    type Far = SimFar;
    type Server = SimServer;
    type Datagrams = SimDatagrams;

    fn start(socks_max: usize) -> (Self, SimReactor) {
        let net = SimNet::new(1, Faults::none());
        let reactor = SimReactor::new(&net, socks_max);
        (Self { net }, reactor)
    }

    fn waker(reactor: &SimReactor) -> Waker {
        reactor.waker()
    }

    fn dial(&self, address: &Address) -> SimFar {
        let peer = self.net.dial(address).expect("a listener is open");
        SimFar { peer, finished: false, reset: false }
    }

    fn serve(&self, address: &Address) -> (SimServer, Address) {
        let address = match address {
            Address::Tcp(tcp) => Address::Tcp((tcp.ip(), 9).into()),
            Address::Unix(_) => address.clone(),
        };
        (self.net.serve(&address).expect("a free address"), address)
    }

    fn serve_datagrams(&self) -> (SimDatagrams, SocketAddr) {
        let ports = (9..).map(|port| SocketAddr::from(([127, 0, 0, 2], port)));
        let mut opened = ports.map(|address| (self.net.serve_datagrams(address), address));
        let found = opened.find_map(|(socket, address)| Some((socket?, address)));
        found.expect("a free port")
    }

    fn deliver(&self) {
        self.net.advance_by(Span::from_millis(1));
    }

    fn accept(&self, server: &SimServer) -> Option<SimFar> {
        server.accept().map(|peer| SimFar { peer, finished: false, reset: false })
    }
}

impl FarDatagrams for SimDatagrams {
    fn send(&self, to: SocketAddr, bytes: &[u8]) {
        SimDatagrams::send(self, to, bytes);
    }

    fn receive(&self) -> Option<(SocketAddr, Vec<u8>)> {
        SimDatagrams::receive(self)
    }
}

impl Far for SimFar {
    fn send(&mut self, bytes: &[u8]) -> usize {
        self.reset |= self.peer.was_reset();
        self.peer.send(bytes)
    }

    fn receive(&mut self) -> Vec<u8> {
        let bytes = self.peer.receive();
        self.reset |= self.peer.was_reset();
        self.finished |= self.peer.is_finished_by_other();
        bytes
    }

    fn is_finished(&self) -> bool {
        self.finished
    }

    fn was_reset(&self) -> bool {
        self.reset
    }

    fn finish(&mut self) {
        self.peer.finish();
    }

    fn reset(&mut self) {
        self.peer.reset();
    }
}
