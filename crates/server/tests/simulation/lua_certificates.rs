//! Certificates that an application chooses (`on_certificate`).
//! In: TLS clients that request names. Out: the certificate that each one gets, and what each test's name says.

use std::sync::Arc;

use tidegate_base::{Address, Span};
use tidegate_reactor::{Faults, SimNet, SimPeer, SimReactor};
use tidegate_secure::{ListenerPlan, TlsPlan};
use tidegate_server::Leftovers;
use tidegate_wire::tls::{
    Acceptor, AcceptorSettings, Connector, ConnectorSettings, Fault, Randomness, Roots, TicketKeys,
    TlsClock, TlsSession, Version,
};

use crate::peer::harness::Harness;
use crate::peer::keys;

const CONFIG: &str = r#"
[[listener]]
name = "front"
bind = "10.0.0.1:443"
tls = { lua = "chooser", handshake-timeout = "10s" }
[[route]]
respond = { body = "hello" }
[lua.chooser]
script = "tests/scripts/certificates.lua"
"#;
const UNIX_SECONDS: u64 = 1_700_000_000;

/// A worker with a TLS listener that has certificates for a.example and b.example.
struct World {
    net: SimNet,
    harness: Harness<SimReactor>,
    connector: Connector,
}

/// A client that requests a name.
struct Client {
    peer: SimPeer,
    session: TlsSession,
    out: Vec<u8>,
    /// The most bytes that are sent in one step.
    piece_bytes: usize,
    fault: Option<Fault>,
}

impl Client {
    fn step(&mut self) -> bool {
        let mut came = self.peer.receive();
        let moved = !came.is_empty();
        if moved && self.fault.is_none() {
            let handled = self.session.handle_bytes(&mut came, &mut Vec::new(), &mut self.out);
            self.fault = handled.err();
        }
        let piece = self.out.len().min(self.piece_bytes);
        let sent = self.peer.send(&self.out[..piece]);
        self.out.drain(..sent);
        moved || sent > 0
    }

    fn is_done(&self) -> bool {
        self.session.is_established() || self.fault.is_some()
    }

    /// The name in the certificate of the worker.
    fn outcome(&self) -> Result<String, Fault> {
        match self.fault {
            Some(fault) => Err(fault),
            None => Ok(self.session.peer_names().expect("a certificate").remove(0)),
        }
    }
}

impl World {
    fn new(version_max: Version) -> Self {
        let net = SimNet::new(1, Faults::none());
        let clock = TlsClock::default();
        clock.set(UNIX_SECONDS);
        let randomness = Randomness::seeded(1);
        let certificate = |(seed, name): (u64, &str)| {
            keys::certificate(seed, name, |params| params.distinguished_name = Default::default())
        };
        let settings = AcceptorSettings {
            certificates: [(1, "a.example"), (2, "b.example")].map(certificate).to_vec(),
            asks_for_choice: true,
            ..AcceptorSettings::default()
        };
        let tickets = TicketKeys::with_randomness(UNIX_SECONDS, randomness).map(Arc::new).ok();
        let acceptor = Acceptor::with_randomness(&settings, tickets, clock.clone(), randomness);
        let listener = ListenerPlan {
            acceptor: acceptor.expect("valid settings"),
            handshake_timeout: Span::from_secs(10),
        };
        let settings =
            ConnectorSettings { roots: Roots::Unverified, version_max, ..Default::default() };
        let connector = Connector::with_randomness(&settings, clock.clone(), randomness);
        let plan = TlsPlan { listeners: vec![Some(listener)], pools: Vec::new(), clock };
        let config = tidegate_config::parse(CONFIG, "the test").expect("a valid file");
        let harness = Harness::simulated(&net, &config, 200, 1).secured(&plan);
        Self { net, harness, connector: connector.expect("valid settings") }
    }

    fn dial(&self, name: &str) -> Client {
        let address = Address::Tcp(([10, 0, 0, 1], 443).into());
        let peer = self.net.dial(&address).expect("the worker listens");
        let session = self.connector.connect(name).expect("a valid name");
        let mut client =
            Client { peer, session, out: Vec::new(), piece_bytes: usize::MAX, fault: None };
        let begun = client.session.handle_bytes(&mut [], &mut Vec::new(), &mut client.out);
        begun.expect("a handshake begins");
        client
    }

    /// Runs until `done`, for at most a minute of virtual time.
    fn run(&mut self, clients: &mut [Client], done: impl Fn(&Self, &[Client]) -> bool) {
        let end = self.net.now().after(Span::from_secs(60));
        loop {
            let step_all = |clients: &mut [Client]| {
                clients.iter_mut().map(Client::step).filter(|moved| *moved).count() > 0
            };
            step_all(clients);
            self.harness.turn();
            if done(self, clients) {
                return;
            }
            // What the turn has sent is read before time passes.
            if !step_all(clients) {
                assert!(self.net.advance_to_next_event(), "deadlock: no event is left");
            }
            assert!(self.net.now() < end, "timed out");
        }
    }

    /// The name in the certificate that a client gets.
    fn get(&mut self, name: &str) -> Result<String, Fault> {
        let mut clients = [self.dial(name)];
        self.run(&mut clients, |_, clients| clients[0].is_done());
        clients[0].outcome()
    }

    fn counts(&self) -> (u64, u64) {
        let counters = &self.harness.accounts.counters;
        (counters.lua_certificates.load(), counters.lua_certificate_failures.load())
    }

    /// Lets everything time out, and checks that nothing is left.
    fn end(mut self) {
        let end = self.net.now().after(Span::from_secs(600));
        while self.net.now() < end && self.net.advance_to_next_event() {
            self.harness.turn();
        }
        self.harness.turn();
        assert_eq!(self.harness.worker.leftovers(), Leftovers::default());
        assert_eq!(self.harness.accounts.counters.tls_sessions_now.load(), 0);
        assert_eq!(self.harness.accounts.counters.bugs.load(), 0);
    }
}

#[test]
fn script_chooses_the_certificate_at_once_or_later() {
    for version_max in [Version::Tls12, Version::Tls13] {
        let mut world = World::new(version_max);
        for (name, expected, chosen) in [
            ("a.example", "a.example", 0),
            ("b.example", "b.example", 0),
            ("facts.example", "a.example", 0),
            ("other.example", "b.example", 1),
            ("second.example", "b.example", 2),
            ("later.example", "b.example", 3),
            // A resumed session, too, has the name of the first one.
            ("later.example", "b.example", 4),
        ] {
            assert_eq!(world.get(name).as_deref(), Ok(expected), "{name}");
            assert_eq!(world.counts(), (chosen, 0), "{name}");
        }
        world.end();
    }
}

#[test]
fn requested_name_selects_the_certificate_if_the_hook_fails() {
    let mut world = World::new(Version::Tls13);
    let names = ["fails", "loops", "missing", "third", "wrong", "never"];
    for (name, failures) in names.into_iter().zip(1..) {
        let began = world.net.now();
        assert_eq!(world.get(&format!("{name}.example")).as_deref(), Ok("a.example"), "{name}");
        assert_eq!(world.counts(), (0, failures), "{name}");
        let seconds = world.net.now().since(began).as_secs();
        assert!(seconds <= 4, "{name}: {seconds} s");
    }
    let counters = &world.harness.accounts.counters;
    assert_eq!(counters.lua_failures.load(), 6);
    assert_eq!(counters.lua_late_hooks.load(), 1);
    assert_eq!(world.get("other.example").as_deref(), Ok("b.example"));
    world.end();
}

#[test]
fn script_may_refuse_a_handshake() {
    let mut world = World::new(Version::Tls13);
    assert!(matches!(world.get("refused.example"), Err(Fault::Alert(_))));
    assert_eq!(world.counts(), (1, 0));
    assert_eq!(world.get("b.example").as_deref(), Ok("b.example"));
    world.end();
}

#[test]
fn hello_may_arrive_in_pieces() {
    let mut world = World::new(Version::Tls13);
    let mut clients = [world.dial("later.example")];
    clients[0].piece_bytes = 7;
    world.run(&mut clients, |_, clients| clients[0].is_done());
    assert_eq!(clients[0].outcome().as_deref(), Ok("b.example"));
    world.end();
}

#[test]
fn client_that_leaves_cancels_the_hook() {
    let mut world = World::new(Version::Tls13);
    let mut clients = [world.dial("later.example"), world.dial("never.example")];
    let waits = |world: &World, _: &[Client]| world.harness.worker.leftovers().lua_waiting == 2;
    world.run(&mut clients, waits);
    for client in &clients {
        client.peer.reset();
    }
    world.run(&mut [], |world, _| world.harness.worker.leftovers().lua_waiting == 0);
    assert_eq!(world.counts(), (0, 0));
    world.end();
}

#[test]
fn many_handshakes_get_their_certificates() {
    let mut world = World::new(Version::Tls13);
    let names = ["a.example", "other.example", "later.example", "fails.example"];
    let mut clients: Vec<Client> = (0..100).map(|at| world.dial(names[at % 4])).collect();
    world.run(&mut clients, |_, clients| clients.iter().all(Client::is_done));
    for (at, client) in clients.iter().enumerate() {
        let expected = ["a.example", "b.example", "b.example", "a.example"][at % 4];
        assert_eq!(client.outcome().as_deref(), Ok(expected), "client {at}");
    }
    assert_eq!(world.counts(), (50, 25));
    world.end();
}

#[test]
fn bytes_that_are_no_hello_are_refused_as_without_a_hook() {
    let mut world = World::new(Version::Tls13);
    let address = Address::Tcp(([10, 0, 0, 1], 443).into());
    let peer = world.net.dial(&address).expect("the worker listens");
    peer.send(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    world.run(&mut [], |_, _| peer.arrived_bytes() > 0);
    assert!(peer.receive().starts_with(b"HTTP/1.1 400 "));
    drop(peer);
    world.end();
}
