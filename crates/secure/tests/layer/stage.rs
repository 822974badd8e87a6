//! The fixture of these tests: the layer on a simulated net, with a handler above it that records everything.
//! In: settings, and TLS peers that use the codec directly. Out: what the handler and the observer received.
//! Limits: `TURNS_MAX` turns for each awaited condition.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use tidegate_base::{Address, CertificateChoice, Moment, Span};
use tidegate_reactor::{
    CloseReason, Completion, Faults, ListenOptions, Peer, Reactor, SimNet, SimPeer, SimReactor,
    SimServer, SockId,
};
use tidegate_secure::{
    Event, Hello, LayerHandler, ListenerPlan, PoolPlan, SecureView, ServerKey, ServerPlan,
    TlsLayer, TlsObserver, TlsPlan,
};
use tidegate_wire::tls::{
    Acceptor, AcceptorSettings, CertificateFiles, ClientAuth, Connector, ConnectorSettings, Fault,
    Progress, Randomness, Roots, TicketKeys, TlsClock, TlsSession, Version,
};

const TURNS_MAX: u32 = 20_000;
pub const HANDSHAKE_TIMEOUT: Span = Span::from_secs(5);

/// An observer that stores all events and log lines in their order.
#[derive(Clone, Default)]
pub struct Notes(Rc<RefCell<Vec<Event>>>, Rc<RefCell<Vec<String>>>);

impl Notes {
    pub fn count_of(&self, event: Event) -> usize {
        self.0.borrow().iter().filter(|noted| **noted == event).count()
    }

    /// The log lines.
    pub fn lines(&self) -> Vec<String> {
        self.1.borrow().clone()
    }

    pub fn faults(&self) -> Vec<Fault> {
        let fault = |event: &Event| match event {
            Event::Failed(fault) => Some(*fault),
            _ => None,
        };
        self.0.borrow().iter().filter_map(fault).collect()
    }
}

impl TlsObserver for Notes {
    fn count(&self, event: Event) {
        self.0.borrow_mut().push(event);
    }

    fn log(&self, line: core::fmt::Arguments<'_>) {
        self.1.borrow_mut().push(line.to_string());
    }
}

/// What the handler received for one connection, other than bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Seen {
    Accepted,
    Established,
    Connected,
    Finished,
    Drained,
    Faulted(Fault),
    Closed(CloseReason),
}

/// Everything that the handler received for one connection.
#[derive(Default)]
pub struct ConnLog {
    pub seen: Vec<Seen>,
    pub bytes: Vec<u8>,
}

/// The handler above the layer. It records what it receives and behaves as its flags specify.
#[derive(Default)]
pub struct Recorder {
    /// By index and generation of the id.
    pub conns: BTreeMap<(u32, u32), ConnLog>,
    /// The accepted connections, in order.
    pub accepted: Vec<SockId>,
    /// Echoes received bytes.
    pub echoes: bool,
    /// Pauses receiving after each `Received`.
    pub pauses: bool,
    /// Closes a connection when the peer's end arrives.
    pub closes: bool,
    /// Sends close_notify directly through each session, unnoticed by the layer. Sealing then fails, as it does with
    /// used-up keys.
    pub breaks_sealing: bool,
    /// The connections for which the handler was asked to choose a certificate, and the names that they request.
    pub asked: Vec<(SockId, Option<String>)>,
    /// The choice that the handler makes at once.
    pub choice: Option<CertificateChoice>,
}

impl Recorder {
    pub fn of(&self, sock: SockId) -> &ConnLog {
        &self.conns[&(sock.index, sock.generation)]
    }

    fn note(&mut self, sock: SockId, seen: Seen) {
        let conn = self.conns.entry((sock.index, sock.generation)).or_default();
        let over = |seen: &Seen| matches!(seen, Seen::Closed(_));
        assert!(!conn.seen.iter().any(over), "{seen:?} after Closed");
        conn.seen.push(seen);
    }
}

impl LayerHandler for Recorder {
    fn handle<R: Reactor>(&mut self, reactor: &mut R, completion: Completion<'_>) {
        match completion {
            Completion::Accepted { sock, .. } => {
                self.accepted.push(sock);
                self.note(sock, Seen::Accepted);
            }
            Completion::Connected { sock } => self.note(sock, Seen::Connected),
            Completion::Received { sock, bytes } => {
                let conn = self.conns.entry((sock.index, sock.generation)).or_default();
                let ready = [Seen::Established, Seen::Connected];
                assert!(
                    conn.seen.iter().any(|seen| ready.contains(seen)),
                    "bytes before the handshake is done"
                );
                assert!(!conn.seen.contains(&Seen::Finished), "bytes after Finished");
                conn.bytes.extend_from_slice(bytes);
                if self.echoes {
                    reactor.send(sock, bytes);
                }
                if self.pauses {
                    reactor.set_receiving(sock, false);
                }
            }
            Completion::Finished { sock } => {
                self.note(sock, Seen::Finished);
                if self.closes {
                    reactor.close(sock);
                }
            }
            Completion::Drained { sock } => self.note(sock, Seen::Drained),
            Completion::Closed { sock, reason } => self.note(sock, Seen::Closed(reason)),
            _ => {}
        }
    }

    fn choose_certificate<R: Reactor>(&mut self, reactor: &mut R, sock: SockId, hello: &Hello<'_>) {
        assert_eq!(hello.certificates.len(), 1);
        self.asked.push((sock, hello.name.map(str::to_owned)));
        if let Some(choice) = &self.choice {
            reactor.choose_certificate(sock, choice.clone());
        }
    }

    fn handle_established(&mut self, sock: SockId, session: &mut TlsSession) {
        assert!(session.was_established() && session.facts().is_some());
        self.note(sock, Seen::Established);
        if self.breaks_sealing {
            session.close_notify(&mut Vec::new());
        }
    }

    fn client_of(&mut self, sock: SockId) -> Option<(&str, Peer)> {
        assert!(!self.of(sock).seen.iter().any(|seen| matches!(seen, Seen::Closed(_))));
        Some(("front", Peer::Tcp(([192, 0, 2, 7], 4711).into())))
    }

    fn handle_fault(&mut self, sock: SockId, fault: Fault) {
        self.note(sock, Seen::Faulted(fault));
    }
}

/// A layer on a simulated net, its handler, and the codecs of its peers.
pub struct Stage {
    pub net: SimNet,
    pub reactor: SimReactor,
    pub layer: TlsLayer<Notes>,
    pub recorder: Recorder,
    pub notes: Notes,
    pub acceptor: Acceptor,
    pub connector: Connector,
}

pub fn front() -> Address {
    Address::Tcp(([10, 0, 0, 1], 443).into())
}

fn origin() -> Address {
    Address::Tcp(([10, 0, 1, 1], 443).into())
}

impl Stage {
    pub fn new(seed: u64, faults: Faults, version_max: Version) -> Self {
        Self::with_settings(seed, faults, version_max, &served())
    }

    /// A stage whose handler chooses the certificate of each connection.
    pub fn choosing(seed: u64, faults: Faults, version_max: Version) -> Self {
        let settings = AcceptorSettings { asks_for_choice: true, ..served() };
        Self::with_settings(seed, faults, version_max, &settings)
    }

    /// A stage whose clients must present a certificate of this authority.
    pub fn requiring_client_certificates(
        version_max: Version,
        client_authorities_pem: Vec<u8>,
    ) -> Self {
        let client_auth = ClientAuth::Required;
        let settings = AcceptorSettings { client_auth, client_authorities_pem, ..served() };
        Self::with_settings(1, Faults::none(), version_max, &settings)
    }

    fn with_settings(
        seed: u64,
        faults: Faults,
        version_max: Version,
        settings: &AcceptorSettings,
    ) -> Self {
        let net = SimNet::new(seed, faults);
        let clock = TlsClock::default();
        let randomness = Randomness::seeded(seed);
        let mut reactor = SimReactor::new(&net, 200);
        let now = reactor.unix_seconds();
        clock.set(now);
        let tickets = Arc::new(TicketKeys::with_randomness(now, randomness).unwrap());
        let acceptor =
            Acceptor::with_randomness(settings, Some(tickets), clock.clone(), randomness).unwrap();
        let settings =
            ConnectorSettings { roots: Roots::Unverified, version_max, ..Default::default() };
        let connector = Connector::with_randomness(&settings, clock.clone(), randomness).unwrap();
        let listener =
            ListenerPlan { acceptor: acceptor.clone(), handshake_timeout: HANDSHAKE_TIMEOUT };
        let pool = PoolPlan {
            name: "p".to_owned(),
            connector: connector.clone(),
            servers: vec![ServerPlan { name: "a.example".to_owned(), place: String::new() }],
        };
        let plan = TlsPlan { listeners: vec![Some(listener)], pools: vec![Some(pool)], clock };
        let options = ListenOptions { backlog: 100, reuse_port: false, steer_by_cpu_over: None };
        let listener = reactor.listen(&front(), &options).unwrap();
        let notes = Notes::default();
        let layer = TlsLayer::new(&plan, vec![listener], notes.clone());
        let recorder = Recorder::default();
        Self { net, reactor, layer, recorder, notes, acceptor, connector }
    }

    pub fn without_faults(version_max: Version) -> Self {
        Self::new(1, Faults::none(), version_max)
    }

    pub fn turn(&mut self) {
        self.layer.turn(&mut self.reactor, &mut self.recorder, Span::ZERO);
    }

    /// A client that has sent nothing yet.
    pub fn dial(&self) -> TlsPeer {
        let session = self.connector.connect("a.example").unwrap();
        let mut end = TlsPeer::new(self.net.dial(&front()).unwrap(), session);
        end.take(&mut []);
        end
    }

    /// A client that presents the server's own certificate.
    pub fn dial_with_certificate(&self, version_max: Version) -> TlsPeer {
        let client_certificate = served().certificates.pop();
        let settings = ConnectorSettings {
            roots: Roots::Unverified,
            version_max,
            client_certificate,
            ..Default::default()
        };
        let clock = TlsClock::default();
        clock.set(self.reactor.unix_seconds());
        let randomness = Randomness::seeded(2);
        let connector = Connector::with_randomness(&settings, clock, randomness).unwrap();
        let mut end =
            TlsPeer::new(self.net.dial(&front()).unwrap(), connector.connect("a.example").unwrap());
        end.take(&mut []);
        end
    }

    /// A client whose handshake is done, and the id of its connection.
    pub fn established(&mut self) -> (TlsPeer, SockId) {
        let mut end = self.dial();
        let done = self.recorder.accepted.len();
        self.until(&mut [&mut end], |recorder, ends| {
            let seen = recorder.accepted.get(done).map(|sock| &recorder.of(*sock).seen);
            ends[0].session.is_established()
                && seen.is_some_and(|seen| seen.contains(&Seen::Established))
        });
        let sock = *self.recorder.accepted.last().unwrap();
        (end, sock)
    }

    /// Begins a connection to the server opened by `serve`.
    pub fn connect(&mut self) -> SockId {
        self.act(|view| {
            view.connect_secured(&origin(), ServerKey { pool: 0, server: 0, http1_only: false })
                .unwrap()
        })
    }

    pub fn serve(&self) -> SimServer {
        self.net.serve(&origin()).unwrap()
    }

    /// The server's end of the connection begun by `connect`.
    pub fn accept(&mut self, server: &SimServer) -> TlsPeer {
        for _ in 0..TURNS_MAX {
            self.turn();
            if let Some(peer) = server.accept() {
                return TlsPeer::new(peer, self.acceptor.accept().unwrap());
            }
            self.net.advance_to_next_event();
        }
        panic!("no connection arrived");
    }

    /// Calls `act` with the view of the handler between two turns.
    pub fn act<T>(&mut self, act: impl FnOnce(&mut SecureView<'_, SimReactor, Notes>) -> T) -> T {
        let recorder = &mut self.recorder;
        self.layer.between_turns(&mut self.reactor, recorder, |_, view| act(view))
    }

    /// Runs turns and the steps of `ends` until `done`.
    pub fn until(
        &mut self,
        ends: &mut [&mut TlsPeer],
        done: impl Fn(&Recorder, &[&mut TlsPeer]) -> bool,
    ) {
        for _ in 0..TURNS_MAX {
            let mut moved = false;
            for end in ends.iter_mut() {
                moved |= end.step();
            }
            self.turn();
            for end in ends.iter_mut() {
                moved |= end.step();
            }
            if done(&self.recorder, ends) {
                return;
            }
            if !moved {
                self.net.advance_to_next_event();
            }
        }
        let seen: Vec<_> = self.recorder.conns.values().map(|conn| &conn.seen).collect();
        panic!("the condition was never met: {seen:?}, {:?}", self.notes.0.borrow());
    }

    pub fn pass(&mut self, span: Span) {
        let end: Moment = self.net.now().after(span);
        while self.net.next_event_at().is_some_and(|at| at < end) {
            self.net.advance_to_next_event();
            self.turn();
        }
        self.net.advance_to(end);
        self.turn();
    }

    /// Checks, after every peer is gone, that nothing is left and that no `Bug` was counted.
    pub fn end(mut self) {
        let socks = self.recorder.accepted.clone();
        self.act(|view| socks.iter().for_each(|sock| view.close(*sock)));
        self.pass(Span::from_secs(600));
        assert_eq!((self.reactor.sock_count(), self.reactor.outputs_count()), (0, 0));
        assert_eq!(self.layer.session_count(), 0);
        let begun = self.notes.count_of(Event::SessionBegun);
        assert_eq!(self.notes.count_of(Event::SessionGone), begun);
        assert_eq!(self.notes.count_of(Event::Bug), 0);
    }
}

fn served() -> AcceptorSettings {
    let files = CertificateFiles {
        chain_pem: include_bytes!("../../../../fuzz/records/certificate.pem").to_vec(),
        key_pem: include_bytes!("../../../../fuzz/records/key.pem").to_vec(),
        ocsp: None,
    };
    AcceptorSettings { certificates: vec![files], ..Default::default() }
}

/// The other end of a connection, which uses the codec directly.
pub struct TlsPeer {
    pub peer: SimPeer,
    pub session: TlsSession,
    /// Sealed bytes that are not sent yet.
    pub out: Vec<u8>,
    /// Plain bytes received.
    pub received: Vec<u8>,
    pub fault: Option<Fault>,
    /// The other side sent close_notify.
    pub peer_closed: bool,
    /// Maximum number of bytes sent in one step.
    pub piece_bytes: usize,
    /// Whether this end reads.
    pub reads: bool,
}

impl TlsPeer {
    fn new(peer: SimPeer, session: TlsSession) -> Self {
        Self {
            peer,
            session,
            out: Vec::new(),
            received: Vec::new(),
            fault: None,
            peer_closed: false,
            piece_bytes: usize::MAX,
            reads: true,
        }
    }

    pub fn send(&mut self, plain: &[u8]) {
        self.session.seal(plain, &mut self.out).unwrap();
    }

    pub fn send_close_notify(&mut self) {
        self.session.close_notify(&mut self.out);
    }

    /// Receives and sends what is possible now; true if any byte moved.
    pub fn step(&mut self) -> bool {
        let moved = self.reads && self.receive();
        let piece = self.out.len().min(self.piece_bytes);
        let sent = self.peer.send(&self.out[..piece]);
        self.out.drain(..sent);
        moved || sent > 0
    }

    /// Receives what has arrived. The replies are sent in the next step.
    pub fn receive(&mut self) -> bool {
        let mut came = self.peer.receive();
        let moved = !came.is_empty();
        if moved {
            self.take(&mut came);
        }
        moved
    }

    fn take(&mut self, bytes: &mut [u8]) {
        match self.session.handle_bytes(bytes, &mut self.received, &mut self.out) {
            Ok(Progress { peer_closed, .. }) => self.peer_closed |= peer_closed,
            Err(fault) => self.fault = Some(fault),
        }
    }

    pub fn is_over(&self) -> bool {
        self.peer.is_finished_by_other() || self.peer.was_reset()
    }
}
