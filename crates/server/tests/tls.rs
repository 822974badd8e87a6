//! TLS on the simulated network: a worker below the TLS layer, clients with `wire`'s codec, virtual time and
//! network faults.
//! In: seeds for the network and for all keys. Out: the same bytes for the same seed; the same responses
//! whatever the network does; the right counters; no leaks.

#[allow(dead_code, reason = "shared by several tests, each of which uses a part")]
mod peer;

use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;

use tidegate_base::{Address, Moment, Prng, Span};
use tidegate_reactor::{Faults, Reactor, SimNet, SimPeer, SimReactor};
use tidegate_secure::{ListenerPlan, PoolPlan, ServerPlan, TlsLayer, TlsPlan};
use tidegate_server::counters::{Accounts, WorkerCounters};
use tidegate_server::{Leftovers, Snapshot, Worker, WorkerLimits};
use tidegate_wire::message::DateField;
use tidegate_wire::proxy_protocol::{self, Endpoints, Extension};
use tidegate_wire::tls::{
    Acceptor, AcceptorSettings, CIPHER_NAMES, ClientAuth, Connector, ConnectorSettings,
    GROUP_NAMES, Randomness, Roots, TicketKeys, TlsClock, TlsSession, Version,
};

const CONFIG: &str = r#"
[[listener]]
name = "front"
bind = "10.0.0.1:443"
proxy-protocol = { from = ["10.9.0.0/16"] }
tls = "self-signed"
hsts = { max-age = "9s", include-subdomains = true }
[[listener]]
name = "plain"
bind = "10.0.0.1:80"
redirect-to-https = { port = 8443 }
[[listener]]
name = "origin"
bind = "10.0.0.1:444"
tls = "self-signed"
[[listener]]
name = "header"
bind = "10.0.0.1:445"
proxy-protocol = { from = ["0.0.0.0/0"] }
tls = "self-signed"
[[route]]
listener = "header"
proxy = "plain"
[[route]]
path = "/header"
proxy = "header"
[[route]]
path = "/own"
hsts = "0s"
respond = {}
[[route]]
path = "/json"
respond = { body = "Hello, World!" }
[[route]]
path = "/synthetic"
synthetic = true
[[route]]
path = "/wrong"
proxy = "wrong"
[[route]]
listener = "origin"
path = "/proxied"
respond = { body = "From the origin" }
[[route]]
path = "/proxied"
proxy = "origin"
[pool.origin]
servers = ["10.0.0.1:444"]
tls = { server-name = "a.example" }
[pool.wrong]
servers = ["10.0.0.1:444"]
tls = { server-name = "b.example" }
[pool.header]
servers = ["10.0.0.1:445"]
proxy-protocol = "v2"
tls = { server-name = "a.example" }
[pool.plain]
servers = ["10.0.2.1:80"]
proxy-protocol = "v2"
"#;

/// The parameters of a `World`.
struct Setup {
    /// The seed of the network and of the certificate's key.
    seed: u64,
    faults: Faults,
    /// The highest TLS version of connectors.
    version_max: Version,
    /// Where TLS keys and nonces come from.
    randomness: Randomness,
    /// The day on which the certificate expires.
    expires: Option<(i32, u8, u8)>,
}

impl Setup {
    fn of(seed: u64) -> Self {
        let (faults, version_max) = (Faults::none(), Version::Tls13);
        Self { seed, faults, version_max, randomness: Randomness::seeded(seed), expires: None }
    }
}

/// A network with one worker, its TLS layer and the keys that clients need.
struct World {
    net: SimNet,
    reactor: SimReactor,
    worker: Worker,
    layer: TlsLayer<Arc<Accounts>>,
    accounts: Arc<Accounts>,
    /// For clients; it trusts the worker's certificate.
    connector: Connector,
    /// The ticket keys of all listeners.
    tickets: Arc<TicketKeys>,
    /// The clock that TLS reads.
    clock: TlsClock,
}

impl World {
    fn new(seed: u64, faults: Faults) -> Self {
        Self::with(Setup { faults, ..Setup::of(seed) })
    }

    fn with(setup: Setup) -> Self {
        let Setup { seed, faults, version_max, randomness, expires } = setup;
        let net = SimNet::new(seed, faults);
        let clock = TlsClock::default();
        let files = peer::keys::certificate(seed, "a.example", |params| {
            if let Some((year, month, day)) = expires {
                params.not_after = rcgen::date_time_ymd(year, month, day);
            }
        });
        let roots = Roots::Authorities(files.chain_pem.clone());
        let settings =
            AcceptorSettings { certificates: vec![files], keeps_names: true, ..Default::default() };
        let mut reactor = SimReactor::new(&net, 64);
        let tickets =
            Arc::new(TicketKeys::with_randomness(reactor.unix_seconds(), randomness).unwrap());
        let sealed_by = Some(Arc::clone(&tickets));
        let acceptor =
            Acceptor::with_randomness(&settings, sealed_by, clock.clone(), randomness).unwrap();
        let settings = ConnectorSettings { roots, version_max, ..ConnectorSettings::default() };
        let connector = Connector::with_randomness(&settings, clock.clone(), randomness).unwrap();
        let pool = |name: &str| {
            let servers = vec![ServerPlan { name: name.to_owned(), place: String::new() }];
            Some(PoolPlan { name: name.to_owned(), connector: connector.clone(), servers })
        };
        let listener = ListenerPlan { acceptor, handshake_timeout: Span::from_secs(5) };
        let plan = TlsPlan {
            listeners: vec![Some(listener.clone()), None, Some(listener.clone()), Some(listener)],
            pools: vec![pool("a.example"), pool("b.example"), pool("a.example"), None],
            clock: clock.clone(),
        };
        let config = tidegate_config::parse(CONFIG, "the test").unwrap();
        let at = |address: &str| vec![vec![Address::Tcp(address.parse().unwrap())]];
        let origin = at("10.0.0.1:444");
        let addresses = vec![origin.clone(), origin, at("10.0.0.1:445"), at("10.0.2.1:80")];
        let snapshot = Snapshot::new(config, addresses);
        let accounts = Arc::new(Accounts::default());
        let limits = WorkerLimits { exchanges_max: 64, workers: 1, steer_by_cpu: false };
        let mut worker = Worker::new(Rc::new(snapshot), Arc::clone(&accounts), limits, seed);
        let listeners = worker.listen(&mut reactor).unwrap();
        let layer = TlsLayer::new(&plan, listeners, Arc::clone(&accounts));
        Self { net, reactor, worker, layer, accounts, connector, tickets, clock }
    }

    fn turn(&mut self) {
        self.layer.turn(&mut self.reactor, &mut self.worker, Span::ZERO);
    }

    fn client(&self) -> Client {
        let session = self.connector.connect("a.example").unwrap();
        Client::new(self.net.dial(&server()).unwrap(), session)
    }

    /// Runs until `done`, for at most two minutes of virtual time.
    fn run(&mut self, clients: &mut [Client], done: impl Fn(&[Client]) -> bool) {
        let end = self.net.now().after(Span::from_secs(120));
        while !done(clients) {
            self.turn();
            let moved = clients.iter_mut().map(Client::step).filter(|moved| *moved).count() > 0;
            if !moved {
                assert!(self.net.advance_to_next_event(), "deadlock: no event is left");
            }
            assert!(self.net.now() < end, "timed out");
        }
    }

    fn counters(&self) -> &WorkerCounters {
        &self.accounts.counters
    }

    /// Lets everything time out, and checks that nothing is left.
    fn assert_empty(mut self) {
        let end: Moment = self.net.now().after(Span::from_secs(600));
        while self.net.now() < end && self.net.advance_to_next_event() {
            self.turn();
        }
        self.turn();
        assert_eq!(self.worker.leftovers(), Leftovers::default());
        assert_eq!(self.layer.session_count(), 0);
        assert_eq!(self.reactor.sock_count(), 0);
        assert_eq!(self.counters().tls_sessions_now.load(), 0);
        assert_eq!(self.counters().bugs.load(), 0);
    }
}

fn server() -> Address {
    Address::Tcp("10.0.0.1:443".parse().unwrap())
}

/// A TLS client and its one connection.
struct Client {
    peer: SimPeer,
    session: TlsSession,
    /// Encrypted bytes that wait to be sent.
    out: Vec<u8>,
    /// Plain bytes that wait for the end of the handshake.
    queued: Vec<u8>,
    /// Plain bytes received.
    received: Vec<u8>,
    /// The worker has sent close_notify.
    closed: bool,
    /// The handshake has begun.
    begun: bool,
}

impl Client {
    fn new(peer: SimPeer, session: TlsSession) -> Self {
        let (out, queued, received) = (Vec::new(), Vec::new(), Vec::new());
        Self { peer, session, out, queued, received, closed: false, begun: false }
    }

    fn send(&mut self, text: &str) {
        self.queued.extend_from_slice(text.as_bytes());
    }

    fn step(&mut self) -> bool {
        let mut came = self.peer.receive();
        let mut moved = !came.is_empty() || !self.begun;
        if moved {
            self.begun = true;
            let outcome = self.session.handle_bytes(&mut came, &mut self.received, &mut self.out);
            self.closed |= outcome.expect("valid TLS from the worker").peer_closed;
        }
        if self.session.is_established() && !self.queued.is_empty() {
            let plain = core::mem::take(&mut self.queued);
            self.session.seal(&plain, &mut self.out).unwrap();
            moved = true;
        }
        let sent = self.peer.send(&self.out);
        self.out.drain(..sent);
        moved || sent > 0
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.received).into_owned()
    }
}

const HOUR_SECONDS: u64 = 3600;

impl World {
    /// Sends one request on a new connection; returns the response, and whether the session was resumed.
    fn request(&mut self, connector: &Connector, path: &str) -> (String, bool) {
        let session = connector.connect("a.example").unwrap();
        let mut clients = [Client::new(self.net.dial(&server()).unwrap(), session)];
        clients[0].send(&format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"));
        self.run(&mut clients, |clients| clients[0].closed);
        let resumed = clients[0].session.facts().unwrap().resumed;
        (clients[0].text(), resumed)
    }

    /// Lets hours pass, with all events of that time.
    fn pass_hours(&mut self, hours: u64) {
        let end = self.net.now().after(Span::from_secs(hours * HOUR_SECONDS));
        while self.net.next_event_at().is_some_and(|at| at < end) {
            self.net.advance_to_next_event();
            self.turn();
        }
        self.net.advance_to(end);
        // The first turn reads the clock, and the second one works with that time.
        self.turn();
        self.turn();
    }
}

impl World {
    /// Replaces the settings of listener 0 (`auth`) and of the pool at index 0 (another authority besides), as after a change of files.
    fn replace_trust(&mut self, auth: Option<ClientAuth>, pool: bool) {
        let files = |seed| peer::keys::certificate(seed, "a.example", |_| {});
        let mut plan = self.layer.plan();
        if let Some(client_auth) = auth {
            let settings = AcceptorSettings {
                certificates: vec![files(1)],
                client_auth,
                client_authorities_pem: files(2).chain_pem,
                ..Default::default()
            };
            let acceptor = Acceptor::new(&settings, None, self.clock.clone()).unwrap();
            plan.listeners[0].as_mut().unwrap().acceptor = acceptor;
        }
        if pool {
            let roots = [files(1).chain_pem, files(2).chain_pem].concat();
            let roots = Roots::Authorities(roots);
            let settings = ConnectorSettings { roots, ..ConnectorSettings::default() };
            let connector = Connector::new(&settings, self.clock.clone()).unwrap();
            plan.pools[0].as_mut().unwrap().connector = connector;
        }
        self.layer.replace_plan(&plan);
    }

    fn end_outdated(&mut self) {
        self.layer.between_turns(&mut self.reactor, &mut self.worker, |worker, view| {
            worker.end_outdated_connections(view);
        });
    }
}

#[test]
fn connections_from_before_new_rules_for_clients_serve_no_request() {
    const REQUEST: &str = "GET /json HTTP/1.1\r\nHost: a\r\n\r\n";
    let is_served = |client: &Client| client.text().ends_with("Hello, World!");
    let mut world = World::new(1, Faults::none());
    let mut clients = [world.client(), world.client(), world.client()];
    for client in &mut clients[..2] {
        client.send(REQUEST);
    }
    world
        .run(&mut clients, |all| all[..2].iter().all(is_served) && all[2].session.is_established());
    // Other certificates are no other rules.
    world.replace_trust(Some(ClientAuth::Off), false);
    clients[0].received.clear();
    clients[0].send(REQUEST);
    world.run(&mut clients, |all| is_served(&all[0]));
    world.replace_trust(Some(ClientAuth::Optional), false);
    for client in &mut clients {
        client.received.clear();
    }
    clients[0].send(REQUEST);
    clients[2].send(REQUEST);
    world.run(&mut clients, |all| all[0].closed && all[2].closed);
    assert!(clients[0].text().starts_with("HTTP/1.1 421 "), "{}", clients[0].text());
    assert!(clients[2].text().starts_with("HTTP/1.1 421 "), "{}", clients[2].text());
    assert!(!clients[1].closed);
    world.end_outdated();
    world.run(&mut clients, |all| all[1].closed);
    let connector = world.connector.clone();
    assert!(world.request(&connector, "/json").0.starts_with("HTTP/1.1 200 "));
    world.assert_empty();
}

#[test]
fn idle_connections_to_servers_that_were_verified_by_other_rules_are_closed() {
    let mut world = World::new(1, Faults::none());
    let connector = world.connector.clone();
    assert!(world.request(&connector, "/proxied").0.ends_with("From the origin"));
    // Both ends of the connection to the server, which is the same process.
    assert_eq!(world.layer.session_count(), 2);
    world.replace_trust(None, false);
    world.end_outdated();
    world.turn();
    assert_eq!(world.layer.session_count(), 2);
    world.replace_trust(None, true);
    world.end_outdated();
    for _ in 0..4 {
        world.turn();
        world.net.advance_to_next_event();
    }
    assert_eq!(world.layer.session_count(), 0);
    assert!(world.request(&connector, "/proxied").0.ends_with("From the origin"));
    world.assert_empty();
}

#[test]
fn ticket_lifetime_follows_the_simulated_clock() {
    for version_max in [Version::Tls12, Version::Tls13] {
        let mut world = World::with(Setup { version_max, ..Setup::of(1) });
        let connector = world.connector.clone();
        assert!(!world.request(&connector, "/json").1, "nothing to resume");
        world.pass_hours(1);
        assert!(world.request(&connector, "/json").1, "{version_max:?}: after an hour");
        // Tickets have a lifetime of 16 hours.
        world.pass_hours(17);
        assert!(!world.request(&connector, "/json").1, "{version_max:?}: after 17 hours");
        assert!(world.request(&connector, "/json").1, "{version_max:?}: with a new ticket");
        world.assert_empty();
    }
}

#[test]
fn rotated_ticket_keys_decrypt_older_tickets_until_they_expire() {
    let mut world = World::new(1, Faults::none());
    let connector = world.connector.clone();
    world.request(&connector, "/json");
    world.pass_hours(9);
    assert!(world.tickets.rotate(world.reactor.unix_seconds()), "the key is 9 hours old");
    assert!(world.request(&connector, "/json").1, "the older key still decrypts");
    // The ticket is from the second key. Three rotations later that key has expired, the ticket has not.
    let now = world.reactor.unix_seconds();
    for hours in [9, 18, 27] {
        assert!(world.tickets.rotate(now + hours * HOUR_SECONDS));
    }
    let (text, resumed) = world.request(&connector, "/json");
    assert!(text.starts_with("HTTP/1.1 200 ") && !resumed, "{text}");
    assert!(world.request(&connector, "/json").1, "with a ticket of the newest key");
    world.assert_empty();
}

#[test]
fn server_certificate_that_expires_during_the_run_is_refused() {
    for version_max in [Version::Tls12, Version::Tls13] {
        // The simulated clock starts one hour and 46 minutes before the certificate expires.
        let setup = Setup { version_max, expires: Some((2023, 11, 15)), ..Setup::of(1) };
        let mut world = World::with(setup);
        let settings = ConnectorSettings { roots: Roots::Unverified, ..Default::default() };
        let lenient = Connector::new(&settings, world.clock.clone()).unwrap();
        for _ in 0..2 {
            let (text, _) = world.request(&lenient, "/proxied");
            assert!(text.starts_with("HTTP/1.1 200 "), "{version_max:?}: {text}");
            assert_eq!(world.counters().tls_certificate_refusals.load(), 0);
            world.pass_hours(1);
        }
        let connects = world.counters().upstream_connects.load();
        assert_eq!(connects, 2, "the first connection was idle for too long");
        let (text, _) = world.request(&lenient, "/proxied");
        assert!(text.starts_with("HTTP/1.1 502 "), "{version_max:?}: {text}");
        assert!(world.counters().tls_certificate_refusals.load() > 0);
        world.assert_empty();
    }
}

/// Plays requests of several clients, with full and resumed handshakes, on the network of `seed`; returns
/// the hash of everything on the network.
fn trace_hash(version: Version, seed: u64, randomness: Randomness) -> u64 {
    let faults = Faults::swarm_harmless(&mut Prng::new(seed));
    let setup = Setup { faults, version_max: version, randomness, ..Setup::of(seed) };
    let mut world = World::with(setup);
    for _ in 0..2 {
        let mut clients = [world.client(), world.client()];
        for client in &mut clients {
            client.send("GET /proxied HTTP/1.1\r\nHost: a\r\n\r\n");
            client.send("GET /synthetic?s=40k HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        }
        world.run(&mut clients, |clients| clients.iter().all(|client| client.closed));
    }
    assert!(world.counters().tls_resumptions.load() > 0);
    let hash = world.net.trace_hash();
    world.assert_empty();
    hash
}

#[test]
fn seed_repeats_every_byte_and_other_keys_give_other_bytes() {
    let mut seen = BTreeSet::new();
    for version in [Version::Tls12, Version::Tls13] {
        for seed in 0..8 {
            let hash = trace_hash(version, seed, Randomness::seeded(seed));
            assert_eq!(
                hash,
                trace_hash(version, seed, Randomness::seeded(seed)),
                "{version:?} {seed}"
            );
            let others = [Randomness::seeded(seed + 100), Randomness::system()];
            let others = others.map(|randomness| trace_hash(version, seed, randomness));
            seen.insert(hash);
            seen.extend(others);
        }
    }
    assert_eq!(seen.len(), 2 * 8 * 3, "two runs with different keys are equal");
}

/// If set, this process was started by the test below, and only prints its hashes.
const HASHES_ONLY: &str = "TIDEGATE_TLS_HASHES_ONLY";

#[test]
fn seed_gives_the_same_bytes_in_another_process() {
    let name = "seed_gives_the_same_bytes_in_another_process";
    let hashes = [Version::Tls12, Version::Tls13]
        .map(|version| trace_hash(version, 7, Randomness::seeded(7)));
    let seen = format!("trace hashes {hashes:?}.");
    if std::env::var_os(HASHES_ONLY).is_some() {
        eprintln!("{seen}");
        return;
    }
    let mut other = tidegate_testing::command(std::env::current_exe().unwrap());
    other.args(["--exact", name, "--nocapture"]).env(HASHES_ONLY, "1");
    let printed = String::from_utf8(tidegate_testing::run(&mut other).stderr).unwrap();
    assert!(printed.contains(&seen), "{seen} The other process printed: {printed}");
}

#[test]
fn network_faults_do_not_change_responses() {
    for seed in 0..30 {
        let mut world = World::new(seed, Faults::swarm_harmless(&mut Prng::new(seed)));
        let mut clients: Vec<Client> = (0..4).map(|_| world.client()).collect();
        for (at, client) in clients.iter_mut().enumerate() {
            client.send("GET /json HTTP/1.1\r\nHost: a\r\n\r\n");
            client.send("GET /proxied HTTP/1.1\r\nHost: a\r\n\r\n");
            client.send(&format!("GET /synthetic?s={}k HTTP/1.1\r\nHost: a\r\n", 40 * at + 1));
            client.send("Connection: close\r\n\r\n");
        }
        world.run(&mut clients, |clients| clients.iter().all(|client| client.closed));
        for (at, client) in clients.iter().enumerate() {
            let text = client.text();
            assert!(text.contains("\r\n\r\nHello, World!"), "{seed}: {text}");
            assert!(text.contains("\r\n\r\nFrom the origin"), "{seed}: {text}");
            let long = text.rsplit("\r\n\r\n").next().unwrap().len();
            assert_eq!(long, (40 * at + 1) * 1024, "{seed}");
        }
        assert!(world.counters().upstream_connects.load() > 0);
        drop(clients);
        world.assert_empty();
    }
}

#[test]
fn configurable_ciphers_and_curves_are_the_supported_ones_in_order() {
    let schema = tidegate_config::schema();
    for tls in [
        "/properties/listener/items/properties/tls/anyOf/1/properties",
        "/properties/pool/additionalProperties/properties/tls/anyOf/1/properties",
    ] {
        for (key, offered) in [("ciphers", CIPHER_NAMES), ("curves", GROUP_NAMES)] {
            let words = schema.pointer(&format!("{tls}/{key}/items/enum"));
            let words = words.and_then(|words| words.as_array()).expect("a list of words");
            let named: Vec<_> = words.iter().filter_map(|word| word.as_str()).collect();
            assert_eq!(named, offered, "{tls}/{key}");
        }
    }
}

#[test]
fn server_certificate_for_another_name_is_502_and_counted() {
    let mut world = World::new(1, Faults::none());
    let mut clients = [world.client()];
    clients[0].send("GET /wrong HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    world.run(&mut clients, |clients| clients[0].closed);
    assert!(clients[0].text().starts_with("HTTP/1.1 502 "), "{}", clients[0].text());
    assert!(world.counters().tls_certificate_refusals.load() > 0);
    drop(clients);
    world.assert_empty();
}

#[test]
fn plain_http_on_a_tls_listener_gets_a_plain_response() {
    let mut world = World::new(1, Faults::none());
    let peer = world.net.dial(&server()).unwrap();
    peer.send(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    let mut answer = Vec::new();
    for _ in 0..50 {
        world.turn();
        answer.extend(peer.receive());
        world.net.advance_by(Span::from_millis(1));
    }
    let text = String::from_utf8(answer).unwrap();
    assert!(text.starts_with("HTTP/1.1 400 ") && text.contains("https://"), "{text}");
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    assert!(head.contains(&format!("Content-Length: {}", body.len())), "{text}");
    let date = DateField::new(world.reactor.unix_seconds());
    let date = core::str::from_utf8(date.as_bytes()).unwrap();
    assert!(head.contains(&format!("\r\nDate: {date}\r\n")), "{text}");
    assert_eq!(world.counters().tls_plain_http.load(), 1);
    drop(peer);
    world.assert_empty();
}

#[test]
fn unfinished_handshake_times_out() {
    let mut world = World::new(1, Faults::none());
    let peer = world.net.dial(&server()).unwrap();
    peer.send(b"\x16\x03\x01\x02\x00\x01");
    world.turn();
    world.net.advance_by(Span::from_secs(4));
    world.turn();
    assert!(!peer.is_finished_by_other());
    world.net.advance_by(Span::from_secs(2));
    world.turn();
    world.net.advance_by(Span::from_secs(1));
    world.turn();
    assert!(peer.is_finished_by_other() || peer.was_reset());
    assert_eq!(world.counters().tls_handshake_timeouts.load(), 1);
    drop(peer);
    world.assert_empty();
}

#[test]
fn slow_handshake_does_not_shorten_the_head_timeout() {
    let mut world = World::new(1, Faults::none());
    let mut clients = [world.client()];
    world.turn();
    // 4 s of the 5 s for the handshake, then 7 s of the 10 s for the head: together more than either.
    world.net.advance_by(Span::from_secs(4));
    world.run(&mut clients, |clients| clients[0].session.is_established());
    world.turn();
    world.net.advance_by(Span::from_secs(7));
    world.turn();
    clients[0].send("GET /json HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    world.run(&mut clients, |clients| clients[0].closed);
    assert!(clients[0].text().contains("\r\n\r\nHello, World!"), "{}", clients[0].text());

    // Without a request the head timeout does end the connection.
    let mut clients = [world.client()];
    world.run(&mut clients, |clients| clients[0].session.is_established());
    world.run(&mut clients, |clients| clients[0].closed);
    assert_eq!(world.counters().tls_handshake_timeouts.load(), 0);
    drop(clients);
    world.assert_empty();
}

#[test]
fn end_without_close_notify_counts_as_truncation() {
    let mut world = World::new(1, Faults::none());
    let mut clients = [world.client(), world.client()];
    clients.iter_mut().for_each(|client| client.send("GET /json HTTP/1.1\r\nHost: a\r\n\r\n"));
    world.run(&mut clients, |clients| clients.iter().all(|client| !client.received.is_empty()));
    let [mut clean, cut] = clients;
    clean.session.close_notify(&mut clean.out);
    clean.step();
    clean.peer.finish();
    cut.peer.finish();
    for _ in 0..50 {
        world.turn();
        world.net.advance_by(Span::from_millis(1));
    }
    clean.step();
    assert!(clean.closed, "close_notify is answered");
    assert_eq!(world.counters().tls_truncations.load(), 1);
    drop((clean, cut));
    world.assert_empty();
}

#[test]
fn many_handshakes_are_spread_over_turns() {
    let mut world = World::new(1, Faults::none());
    let mut clients: Vec<Client> = (0..40).map(|_| world.client()).collect();
    for client in &mut clients {
        client.send("GET /json HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    }
    world.run(&mut clients, |clients| clients.iter().all(|client| client.closed));
    assert!(clients.iter().all(|client| client.text().ends_with("Hello, World!")));
    assert!(world.counters().tls_handshakes_postponed.load() > 0);
    drop(clients);
    world.assert_empty();
}

fn dial_from(world: &World, address: &str) -> Client {
    let peer = tidegate_reactor::Peer::Tcp(address.parse().unwrap());
    let session = world.connector.connect("a.example").unwrap();
    Client::new(world.net.dial_as(&server(), peer).unwrap(), session)
}

#[test]
fn proxy_header_precedes_the_handshake_downstream_and_upstream() {
    for seed in 0..10 {
        let mut world = World::new(seed, Faults::swarm_harmless(&mut Prng::new(seed)));
        let origin = world.net.serve(&Address::Tcp("10.0.2.1:80".parse().unwrap())).unwrap();
        let mut clients = [dial_from(&world, "10.9.0.1:4000")];
        clients[0].out = b"PROXY TCP4 203.0.113.7 198.51.100.1 4660 443\r\n".to_vec();
        clients[0].send("GET /header HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        let received = std::cell::RefCell::new((None::<SimPeer>, Vec::new()));
        world.run(&mut clients, |clients| {
            let (peer, bytes) = &mut *received.borrow_mut();
            *peer = peer.take().or_else(|| origin.accept());
            if let Some(peer) = peer {
                bytes.extend(peer.receive());
                let text = String::from_utf8_lossy(bytes);
                if text.contains(" HTTP/1.1\r\n") && text.ends_with("\r\n\r\n") {
                    peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
                    bytes.push(b'.');
                }
            }
            clients[0].closed
        });
        assert!(clients[0].text().ends_with("ok"), "{}", clients[0].text());
        let (_, bytes) = received.into_inner();
        let (header, consumed) = proxy_protocol::decode(&bytes).unwrap().unwrap();
        let Endpoints::Ip { source, destination, .. } = header.endpoints else { panic!("an IP") };
        assert_eq!(source, "203.0.113.7:4660".parse().unwrap(), "the address survives both hops");
        assert_eq!(destination, "198.51.100.1:443".parse().unwrap());
        let extensions: Vec<_> = header.extensions.collect();
        assert_eq!(extensions[0], Extension::Authority(b"a.example"));
        let Extension::Tls(tls) = extensions[1] else { panic!("{extensions:?}") };
        assert!(tls.in_use && !tls.certificate_here && !tls.verified);
        assert_eq!(tls.version, Some(&b"TLSv1.3"[..]));
        assert_eq!(tls.cipher, Some(&b"TLS_AES_256_GCM_SHA384"[..]));
        let request = String::from_utf8_lossy(&bytes[consumed..]);
        assert!(request.contains("X-Forwarded-For: 203.0.113.7\r\n"), "{request}");
        assert_eq!(world.counters().proxy_headers.load(), 2);
        drop((clients, origin));
        world.assert_empty();
    }
}

#[test]
fn handshake_instead_of_a_proxy_header_is_refused_and_vice_versa() {
    let mut world = World::new(1, Faults::none());
    let trusted = dial_from(&world, "10.9.0.1:4000").peer;
    trusted.send(b"\x16\x03\x01\x02\x00\x01");
    let untrusted = dial_from(&world, "10.10.0.1:4000").peer;
    untrusted.send(b"PROXY TCP4 203.0.113.7 198.51.100.1 4660 443\r\n");
    for _ in 0..50 {
        world.turn();
        world.net.advance_by(Span::from_millis(1));
    }
    assert!(trusted.is_finished_by_other() || trusted.was_reset());
    assert!(trusted.receive().is_empty());
    assert_eq!(world.counters().proxy_header_faults.load(), 1);
    assert_eq!(world.counters().proxy_headers.load(), 0);
    let answer = String::from_utf8(untrusted.receive()).unwrap();
    assert!(answer.starts_with("HTTP/1.1 400 "), "not treated as plain HTTP: {answer}");
    drop((trusted, untrusted));
    world.assert_empty();
}

#[test]
fn https_uri_is_accepted_over_tls() {
    let mut world = World::new(1, Faults::none());
    let mut clients = [world.client()];
    clients[0].send("GET https://a/json HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    world.run(&mut clients, |clients| clients[0].closed);
    assert!(clients[0].text().starts_with("HTTP/1.1 200 "), "{}", clients[0].text());
    drop(clients);
    world.assert_empty();
}

#[test]
fn every_response_over_tls_has_hsts() {
    let mut world = World::new(1, Faults::none());
    let mut clients = [world.client()];
    for path in ["/json", "/own", "/proxied", "/wrong", "/nowhere", "/synthetic"] {
        clients[0].send(&format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
    }
    clients[0].send("GET /\x01 HTTP/1.1\r\n\r\n");
    world.run(&mut clients, |clients| clients[0].closed);
    let text = clients[0].text();
    let count =
        |value: &str| text.matches(&format!("Strict-Transport-Security: {value}\r\n")).count();
    assert_eq!(count("max-age=9; includeSubDomains"), 6, "{text}");
    assert_eq!(count("max-age=0"), 1, "{text}");
    let plain = Address::Tcp("10.0.0.1:80".parse().unwrap());
    let peer = world.net.dial(&plain).unwrap();
    peer.send(b"GET /a?b HTTP/1.1\r\nHost: site.example\r\nConnection: close\r\n\r\n");
    let mut answer = Vec::new();
    for _ in 0..50 {
        world.turn();
        answer.extend(peer.receive());
        world.net.advance_by(Span::from_millis(1));
    }
    let answer = String::from_utf8(answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 301 "), "{answer}");
    assert!(answer.contains("\r\nLocation: https://site.example:8443/a?b\r\n"), "{answer}");
    assert!(!answer.contains("Strict-Transport-Security"), "HSTS over plain HTTP: {answer}");
    drop((clients, peer));
    world.assert_empty();
}
