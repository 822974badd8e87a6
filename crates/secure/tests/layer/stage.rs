//! The layer over a simulated net, with a user above it that does as it is told and notes what it hears.
//! In: plans, ends of the codec's own. Out: what the user saw, what was counted.
//! Limits: `TURNS_MAX` turns for each thing awaited.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use tidegate_base::{Address, Moment, Span};
use tidegate_reactor::{
    CloseReason, Completion, Faults, ListenOptions, Peer, Reactor, SimNet, SimPeer, SimReactor,
    SimServer, SockId,
};
use tidegate_secure::{
    Event, Ledger, ListenerPlan, PoolPlan, SecureView, ServerPlan, TlsLayer, TlsPlan, User, profile,
};
use tidegate_wire::tls::{
    Acceptor, AcceptorSettings, CertificateFiles, ClientAuth, Connector, ConnectorSettings, Fault,
    Progress, Randomness, Roots, TicketKeys, TlsClock, TlsSession, Version,
};

const TURNS_MAX: u32 = 20_000;
pub const HANDSHAKE_TIMEOUT: Span = Span::from_secs(5);

/// What is counted, in its order.
#[derive(Clone, Default)]
pub struct Notes(Rc<RefCell<Vec<Event>>>, Rc<RefCell<Vec<String>>>);

impl Notes {
    pub fn count_of(&self, event: Event) -> usize {
        self.0.borrow().iter().filter(|noted| **noted == event).count()
    }

    /// The lines for the operator.
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

impl Ledger for Notes {
    fn count(&self, event: Event) {
        self.0.borrow_mut().push(event);
    }

    fn log(&self, line: core::fmt::Arguments<'_>) {
        self.1.borrow_mut().push(line.to_string());
    }
}

/// What the user heard of one connection, besides bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Heard {
    Accepted,
    Established,
    Connected,
    Finished,
    Drained,
    Faulted(Fault),
    Closed(CloseReason),
}

/// A connection as the user knows it.
#[derive(Default)]
pub struct Known {
    pub heard: Vec<Heard>,
    pub bytes: Vec<u8>,
}

/// Who stands above the layer.
#[derive(Default)]
pub struct Above {
    pub known: BTreeMap<(u32, u32), Known>,
    /// In the order they were accepted.
    pub accepted: Vec<SockId>,
    /// Sends back what comes.
    pub echoes: bool,
    /// Stops receiving with the first bytes.
    pub stops: bool,
    /// Closes with the peer's end.
    pub leaves: bool,
}

impl Above {
    pub fn of(&self, sock: SockId) -> &Known {
        &self.known[&(sock.index, sock.generation)]
    }

    fn note(&mut self, sock: SockId, heard: Heard) {
        let known = self.known.entry((sock.index, sock.generation)).or_default();
        let over = |heard: &Heard| matches!(heard, Heard::Closed(_));
        assert!(!known.heard.iter().any(over), "{heard:?} of one that is gone");
        known.heard.push(heard);
    }
}

impl User for Above {
    fn handle<R: Reactor>(&mut self, reactor: &mut R, completion: Completion<'_>) {
        match completion {
            Completion::Accepted { sock, .. } => {
                self.accepted.push(sock);
                self.note(sock, Heard::Accepted);
            }
            Completion::Connected { sock } => self.note(sock, Heard::Connected),
            Completion::Received { sock, bytes } => {
                let known = self.known.entry((sock.index, sock.generation)).or_default();
                let ready = [Heard::Established, Heard::Connected];
                assert!(known.heard.iter().any(|heard| ready.contains(heard)), "bytes too early");
                assert!(!known.heard.contains(&Heard::Finished), "bytes after the end");
                known.bytes.extend_from_slice(bytes);
                if self.echoes {
                    reactor.send(sock, bytes);
                }
                if self.stops {
                    reactor.set_receiving(sock, false);
                }
            }
            Completion::Finished { sock } => {
                self.note(sock, Heard::Finished);
                if self.leaves {
                    reactor.close(sock);
                }
            }
            Completion::Drained { sock } => self.note(sock, Heard::Drained),
            Completion::Closed { sock, reason } => self.note(sock, Heard::Closed(reason)),
            _ => {}
        }
    }

    fn handle_established(&mut self, sock: SockId, session: &mut TlsSession) {
        assert!(session.was_established() && session.facts().is_some());
        self.note(sock, Heard::Established);
    }

    fn client_of(&mut self, sock: SockId) -> Option<(&str, Peer)> {
        assert!(!self.of(sock).heard.iter().any(|heard| matches!(heard, Heard::Closed(_))));
        Some(("front", Peer::Tcp(([192, 0, 2, 7], 4711).into())))
    }

    fn handle_fault(&mut self, sock: SockId, fault: Fault) {
        self.note(sock, Heard::Faulted(fault));
    }
}

/// A layer on a net, its user, and what its peers need.
pub struct Stage {
    pub net: SimNet,
    pub reactor: SimReactor,
    pub layer: TlsLayer<Notes>,
    pub above: Above,
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

    /// One whose clients must show a certificate of that authority's.
    pub fn requiring(version_max: Version, client_authorities_pem: Vec<u8>) -> Self {
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
            ConnectorSettings { roots: Roots::Nobody, version_max, ..Default::default() };
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
        let above = Above::default();
        Self { net, reactor, layer, above, notes, acceptor, connector }
    }

    pub fn calm(version_max: Version) -> Self {
        Self::new(1, Faults::none(), version_max)
    }

    pub fn turn(&mut self) {
        self.layer.turn(&mut self.reactor, &mut self.above, Span::ZERO);
    }

    /// A client that has not said a word.
    pub fn dial(&self) -> End {
        let session = self.connector.connect("a.example").unwrap();
        let mut end = End::new(self.net.dial(&front()).unwrap(), session);
        end.take(&mut []);
        end
    }

    /// A client that shows the certificate which this side shows.
    pub fn dial_showing(&self, version_max: Version) -> End {
        let client_certificate = served().certificates.pop();
        let settings = ConnectorSettings {
            roots: Roots::Nobody,
            version_max,
            client_certificate,
            ..Default::default()
        };
        let clock = TlsClock::default();
        clock.set(self.reactor.unix_seconds());
        let randomness = Randomness::seeded(2);
        let connector = Connector::with_randomness(&settings, clock, randomness).unwrap();
        let mut end =
            End::new(self.net.dial(&front()).unwrap(), connector.connect("a.example").unwrap());
        end.take(&mut []);
        end
    }

    /// A client whose handshake is done, and its connection here.
    pub fn established(&mut self) -> (End, SockId) {
        let mut end = self.dial();
        let done = self.above.accepted.len();
        self.until(&mut [&mut end], |above, ends| {
            let heard = above.accepted.get(done).map(|sock| &above.of(*sock).heard);
            ends[0].session.is_established()
                && heard.is_some_and(|heard| heard.contains(&Heard::Established))
        });
        let sock = *self.above.accepted.last().unwrap();
        (end, sock)
    }

    /// Begins a connection to the server of `serve`.
    pub fn connect(&mut self) -> SockId {
        self.act(|view| view.connect_secured(&origin(), profile(0, 0)).unwrap())
    }

    pub fn serve(&self) -> SimServer {
        self.net.serve(&origin()).unwrap()
    }

    /// The server's end of what was begun.
    pub fn accept(&mut self, server: &SimServer) -> End {
        for _ in 0..TURNS_MAX {
            self.turn();
            if let Some(peer) = server.accept() {
                return End::new(peer, self.acceptor.accept().unwrap());
            }
            self.net.advance_to_next_event();
        }
        panic!("nobody comes");
    }

    /// Has the user do something between two turns.
    pub fn act<T>(&mut self, act: impl FnOnce(&mut SecureView<'_, SimReactor, Notes>) -> T) -> T {
        let above = &mut self.above;
        self.layer.between_turns(&mut self.reactor, above, |_, view| act(view))
    }

    /// Goes on until `done`, with `ends` at work.
    pub fn until(&mut self, ends: &mut [&mut End], done: impl Fn(&Above, &[&mut End]) -> bool) {
        for _ in 0..TURNS_MAX {
            let mut moved = false;
            for end in ends.iter_mut() {
                moved |= end.step();
            }
            self.turn();
            for end in ends.iter_mut() {
                moved |= end.step();
            }
            if done(&self.above, ends) {
                return;
            }
            if !moved {
                self.net.advance_to_next_event();
            }
        }
        let heard: Vec<_> = self.above.known.values().map(|known| &known.heard).collect();
        panic!("it never came: {heard:?}, {:?}", self.notes.0.borrow());
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

    /// With every peer gone, nothing may be left; a fault of this side's own is never to be.
    pub fn end(mut self) {
        let socks = self.above.accepted.clone();
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

/// The other end of a connection: the codec by itself.
pub struct End {
    pub peer: SimPeer,
    pub session: TlsSession,
    /// Sealed bytes on their way out.
    pub out: Vec<u8>,
    /// Plain bytes that came.
    pub heard: Vec<u8>,
    pub fault: Option<Fault>,
    /// The other side said that it sends no more.
    pub told_end: bool,
    /// Bytes sent at once at most.
    pub piece_bytes: usize,
    /// Takes what comes.
    pub reads: bool,
}

impl End {
    fn new(peer: SimPeer, session: TlsSession) -> Self {
        Self {
            peer,
            session,
            out: Vec::new(),
            heard: Vec::new(),
            fault: None,
            told_end: false,
            piece_bytes: usize::MAX,
            reads: true,
        }
    }

    pub fn say(&mut self, plain: &[u8]) {
        self.session.seal(plain, &mut self.out).unwrap();
    }

    pub fn say_end(&mut self) {
        self.session.close_notify(&mut self.out);
    }

    /// Takes and sends what can be now; whether anything moved.
    pub fn step(&mut self) -> bool {
        let moved = self.reads && self.hear();
        let piece = self.out.len().min(self.piece_bytes);
        let sent = self.peer.send(&self.out[..piece]);
        self.out.drain(..sent);
        moved || sent > 0
    }

    /// Takes what came; what it answers waits for the next step.
    pub fn hear(&mut self) -> bool {
        let mut came = self.peer.receive();
        let moved = !came.is_empty();
        if moved {
            self.take(&mut came);
        }
        moved
    }

    fn take(&mut self, bytes: &mut [u8]) {
        match self.session.handle_bytes(bytes, &mut self.heard, &mut self.out) {
            Ok(Progress { peer_closed, .. }) => self.told_end |= peer_closed,
            Err(fault) => self.fault = Some(fault),
        }
    }

    pub fn is_over(&self) -> bool {
        self.peer.is_finished_by_other() || self.peer.was_reset()
    }
}
