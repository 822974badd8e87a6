//! TLS on simulated sockets: a worker under the layer, clients of the codec's own, virtual time, faults.
//! In: seeds, of the net and of all keys. Out: the same bytes each time; the same answers whatever the net
//! does; counters; nothing left behind.

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
use tidegate_wire::http1::DateField;
use tidegate_wire::proxy_protocol::{self, Endpoints, Extension};
use tidegate_wire::tls::{
    Acceptor, AcceptorSettings, CIPHER_NAMES, Connector, ConnectorSettings, GROUP_NAMES,
    Randomness, Roots, TicketKeys, TlsClock, TlsSession, Version,
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
name = "told"
bind = "10.0.0.1:445"
proxy-protocol = { from = ["0.0.0.0/0"] }
tls = "self-signed"
[[route]]
listener = "told"
proxy = "plain"
[[route]]
path = "/told"
proxy = "told"
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
[pool.told]
servers = ["10.0.0.1:445"]
proxy-protocol = "v2"
tls = { server-name = "a.example" }
[pool.plain]
servers = ["10.0.2.1:80"]
proxy-protocol = "v2"
"#;

/// What a house is made of.
struct Plot {
    seed: u64,
    faults: Faults,
    /// What clients and servers speak.
    version_max: Version,
    randomness: Randomness,
    /// The day on which the certificate of all is good no more.
    expires: Option<(i32, u8, u8)>,
}

impl Plot {
    fn of(seed: u64) -> Self {
        let (faults, version_max) = (Faults::none(), Version::Tls13);
        Self { seed, faults, version_max, randomness: Randomness::seeded(seed), expires: None }
    }
}

struct House {
    net: SimNet,
    reactor: SimReactor,
    worker: Worker,
    layer: TlsLayer<Arc<Accounts>>,
    accounts: Arc<Accounts>,
    connector: Connector,
    tickets: Arc<TicketKeys>,
    clock: TlsClock,
}

impl House {
    fn new(seed: u64, faults: Faults) -> Self {
        Self::built(Plot { faults, ..Plot::of(seed) })
    }

    fn built(plot: Plot) -> Self {
        let Plot { seed, faults, version_max, randomness, expires } = plot;
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

    /// Goes on until `done`, at most for two minutes of virtual time.
    fn run(&mut self, clients: &mut [Client], done: impl Fn(&[Client]) -> bool) {
        let end = self.net.now().after(Span::from_secs(120));
        while !done(clients) {
            self.turn();
            let moved = clients.iter_mut().map(Client::step).filter(|moved| *moved).count() > 0;
            if !moved {
                assert!(self.net.advance_to_next_event(), "nothing will ever happen");
            }
            assert!(self.net.now() < end, "it takes too long");
        }
    }

    fn counters(&self) -> &WorkerCounters {
        &self.accounts.counters
    }

    /// Lets everything time out, and looks for what is left.
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

struct Client {
    peer: SimPeer,
    session: TlsSession,
    /// Sealed bytes on their way out.
    out: Vec<u8>,
    to_say: Vec<u8>,
    heard: Vec<u8>,
    closed: bool,
    begun: bool,
}

impl Client {
    fn new(peer: SimPeer, session: TlsSession) -> Self {
        let (out, to_say, heard) = (Vec::new(), Vec::new(), Vec::new());
        Self { peer, session, out, to_say, heard, closed: false, begun: false }
    }

    fn say(&mut self, text: &str) {
        self.to_say.extend_from_slice(text.as_bytes());
    }

    fn step(&mut self) -> bool {
        let mut came = self.peer.receive();
        let mut moved = !came.is_empty() || !self.begun;
        if moved {
            self.begun = true;
            let outcome = self.session.handle_bytes(&mut came, &mut self.heard, &mut self.out);
            self.closed |= outcome.expect("an honest server").peer_closed;
        }
        if self.session.is_established() && !self.to_say.is_empty() {
            let said = core::mem::take(&mut self.to_say);
            self.session.seal(&said, &mut self.out).unwrap();
            moved = true;
        }
        let sent = self.peer.send(&self.out);
        self.out.drain(..sent);
        moved || sent > 0
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.heard).into_owned()
    }
}

const HOUR_SECONDS: u64 = 3600;

impl House {
    /// One client's request on a connection of its own; the answer, and whether its session was resumed.
    fn ask(&mut self, connector: &Connector, path: &str) -> (String, bool) {
        let session = connector.connect("a.example").unwrap();
        let mut clients = [Client::new(self.net.dial(&server()).unwrap(), session)];
        clients[0].say(&format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"));
        self.run(&mut clients, |clients| clients[0].closed);
        let resumed = clients[0].session.facts().unwrap().resumed;
        (clients[0].text(), resumed)
    }

    /// Lets time pass, with whatever has its time meanwhile.
    fn pass_hours(&mut self, hours: u64) {
        let end = self.net.now().after(Span::from_secs(hours * HOUR_SECONDS));
        while self.net.next_event_at().is_some_and(|at| at < end) {
            self.net.advance_to_next_event();
            self.turn();
        }
        self.net.advance_to(end);
        // The second begins with the clock that the first read.
        self.turn();
        self.turn();
    }
}

#[test]
fn a_ticket_is_good_for_its_time_on_the_nets_clock() {
    for version_max in [Version::Tls12, Version::Tls13] {
        let mut house = House::built(Plot { version_max, ..Plot::of(1) });
        let connector = house.connector.clone();
        assert!(!house.ask(&connector, "/json").1, "nothing to resume");
        house.pass_hours(1);
        assert!(house.ask(&connector, "/json").1, "{version_max:?}: after an hour");
        // Tickets say 16 hours.
        house.pass_hours(17);
        assert!(!house.ask(&connector, "/json").1, "{version_max:?}: after 17 hours");
        assert!(house.ask(&connector, "/json").1, "{version_max:?}: by a new ticket");
        house.assert_empty();
    }
}

#[test]
fn ticket_keys_rotate_and_open_what_they_sealed_for_their_time() {
    let mut house = House::new(1, Faults::none());
    let connector = house.connector.clone();
    house.ask(&connector, "/json");
    house.pass_hours(9);
    assert!(house.tickets.rotate(house.reactor.unix_seconds()), "the key is 9 hours old");
    assert!(house.ask(&connector, "/json").1, "the older key opens");
    // A ticket of the second key, and two further ones: the second is past its time, the ticket is not.
    let now = house.reactor.unix_seconds();
    for hours in [9, 18, 27] {
        assert!(house.tickets.rotate(now + hours * HOUR_SECONDS));
    }
    let (text, resumed) = house.ask(&connector, "/json");
    assert!(text.starts_with("HTTP/1.1 200 ") && !resumed, "{text}");
    assert!(house.ask(&connector, "/json").1, "by the newest key");
    house.assert_empty();
}

#[test]
fn a_servers_certificate_that_expires_meanwhile_is_believed_no_more() {
    for version_max in [Version::Tls12, Version::Tls13] {
        // The net's clock begins an hour and 46 minutes before.
        let plot = Plot { version_max, expires: Some((2023, 11, 15)), ..Plot::of(1) };
        let mut house = House::built(plot);
        let settings = ConnectorSettings { roots: Roots::Nobody, ..Default::default() };
        let careless = Connector::new(&settings, house.clock.clone()).unwrap();
        for _ in 0..2 {
            let (text, _) = house.ask(&careless, "/proxied");
            assert!(text.starts_with("HTTP/1.1 200 "), "{version_max:?}: {text}");
            assert_eq!(house.counters().tls_certificate_refusals.load(), 0);
            house.pass_hours(1);
        }
        let connects = house.counters().upstream_connects.load();
        assert_eq!(connects, 2, "the one before was idle for too long");
        let (text, _) = house.ask(&careless, "/proxied");
        assert!(text.starts_with("HTTP/1.1 502 "), "{version_max:?}: {text}");
        assert!(house.counters().tls_certificate_refusals.load() > 0);
        house.assert_empty();
    }
}

/// Plays a conversation of several clients and servers, first and resumed sessions, on the net of `seed`;
/// the hash of all that was on the wire.
fn traced(version: Version, seed: u64, randomness: Randomness) -> u64 {
    let faults = Faults::swarm_harmless(&mut Prng::new(seed));
    let plot = Plot { faults, version_max: version, randomness, ..Plot::of(seed) };
    let mut house = House::built(plot);
    for _ in 0..2 {
        let mut clients = [house.client(), house.client()];
        for client in &mut clients {
            client.say("GET /proxied HTTP/1.1\r\nHost: a\r\n\r\n");
            client.say("GET /synthetic?s=40k HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        }
        house.run(&mut clients, |clients| clients.iter().all(|client| client.closed));
    }
    assert!(house.counters().tls_resumptions.load() > 0);
    let hash = house.net.trace_hash();
    house.assert_empty();
    hash
}

#[test]
fn a_seed_repeats_every_byte_on_the_wire_and_other_keys_give_others() {
    let mut seen = BTreeSet::new();
    for version in [Version::Tls12, Version::Tls13] {
        for seed in 0..8 {
            let hash = traced(version, seed, Randomness::seeded(seed));
            assert_eq!(hash, traced(version, seed, Randomness::seeded(seed)), "{version:?} {seed}");
            let others = [Randomness::seeded(seed + 100), Randomness::system()];
            let others = others.map(|randomness| traced(version, seed, randomness));
            seen.insert(hash);
            seen.extend(others);
        }
    }
    assert_eq!(seen.len(), 2 * 8 * 3, "no run is like another");
}

/// Set, this process is another one's second opinion, and only says what it saw.
const SECOND_OPINION: &str = "TIDEGATE_TLS_SECOND_OPINION";

#[test]
fn a_seed_gives_the_same_bytes_in_another_process() {
    let name = "a_seed_gives_the_same_bytes_in_another_process";
    let hashes =
        [Version::Tls12, Version::Tls13].map(|version| traced(version, 7, Randomness::seeded(7)));
    let seen = format!("it saw {hashes:?}.");
    if std::env::var_os(SECOND_OPINION).is_some() {
        eprintln!("{seen}");
        return;
    }
    let mut other = std::process::Command::new(std::env::current_exe().unwrap());
    other.args(["--exact", name, "--nocapture"]).env(SECOND_OPINION, "1");
    let said = String::from_utf8(other.output().unwrap().stderr).unwrap();
    assert!(said.contains(&seen), "{seen} The other: {said}");
}

#[test]
fn answers_are_the_same_whatever_the_net_does_to_the_records() {
    for seed in 0..30 {
        let mut house = House::new(seed, Faults::swarm_harmless(&mut Prng::new(seed)));
        let mut clients: Vec<Client> = (0..4).map(|_| house.client()).collect();
        for (at, client) in clients.iter_mut().enumerate() {
            client.say("GET /json HTTP/1.1\r\nHost: a\r\n\r\n");
            client.say("GET /proxied HTTP/1.1\r\nHost: a\r\n\r\n");
            client.say(&format!("GET /synthetic?s={}k HTTP/1.1\r\nHost: a\r\n", 40 * at + 1));
            client.say("Connection: close\r\n\r\n");
        }
        house.run(&mut clients, |clients| clients.iter().all(|client| client.closed));
        for (at, client) in clients.iter().enumerate() {
            let text = client.text();
            assert!(text.contains("\r\n\r\nHello, World!"), "{seed}: {text}");
            assert!(text.contains("\r\n\r\nFrom the origin"), "{seed}: {text}");
            let long = text.rsplit("\r\n\r\n").next().unwrap().len();
            assert_eq!(long, (40 * at + 1) * 1024, "{seed}");
        }
        assert!(house.counters().upstream_connects.load() > 0);
        drop(clients);
        house.assert_empty();
    }
}

#[test]
fn what_a_file_may_name_is_what_can_be_offered_in_the_same_order() {
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
fn a_server_of_another_name_is_502_and_counted() {
    let mut house = House::new(1, Faults::none());
    let mut clients = [house.client()];
    clients[0].say("GET /wrong HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    house.run(&mut clients, |clients| clients[0].closed);
    assert!(clients[0].text().starts_with("HTTP/1.1 502 "), "{}", clients[0].text());
    assert!(house.counters().tls_certificate_refusals.load() > 0);
    drop(clients);
    house.assert_empty();
}

#[test]
fn plain_http_is_answered_in_plain() {
    let mut house = House::new(1, Faults::none());
    let peer = house.net.dial(&server()).unwrap();
    peer.send(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    let mut answer = Vec::new();
    for _ in 0..50 {
        house.turn();
        answer.extend(peer.receive());
        house.net.advance_by(Span::from_millis(1));
    }
    let text = String::from_utf8(answer).unwrap();
    assert!(text.starts_with("HTTP/1.1 400 ") && text.contains("https://"), "{text}");
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    assert!(head.contains(&format!("Content-Length: {}", body.len())), "{text}");
    let date = DateField::new(house.reactor.unix_seconds());
    let date = core::str::from_utf8(date.as_bytes()).unwrap();
    assert!(head.contains(&format!("\r\nDate: {date}\r\n")), "{text}");
    assert_eq!(house.counters().tls_plain_http.load(), 1);
    drop(peer);
    house.assert_empty();
}

#[test]
fn who_only_holds_the_door_is_sent_away_in_time() {
    let mut house = House::new(1, Faults::none());
    let peer = house.net.dial(&server()).unwrap();
    peer.send(b"\x16\x03\x01\x02\x00\x01");
    house.turn();
    house.net.advance_by(Span::from_secs(4));
    house.turn();
    assert!(!peer.is_finished_by_other());
    house.net.advance_by(Span::from_secs(2));
    house.turn();
    house.net.advance_by(Span::from_secs(1));
    house.turn();
    assert!(peer.is_finished_by_other() || peer.was_reset());
    assert_eq!(house.counters().tls_handshake_timeouts.load(), 1);
    drop(peer);
    house.assert_empty();
}

#[test]
fn a_slow_handshake_leaves_the_head_its_whole_time() {
    let mut house = House::new(1, Faults::none());
    let mut clients = [house.client()];
    house.turn();
    // Of the 5 s of a handshake and the 10 s of a head; together more than either.
    house.net.advance_by(Span::from_secs(4));
    house.run(&mut clients, |clients| clients[0].session.is_established());
    house.turn();
    house.net.advance_by(Span::from_secs(7));
    house.turn();
    clients[0].say("GET /json HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    house.run(&mut clients, |clients| clients[0].closed);
    assert!(clients[0].text().contains("\r\n\r\nHello, World!"), "{}", clients[0].text());

    // It does run.
    let mut clients = [house.client()];
    house.run(&mut clients, |clients| clients[0].session.is_established());
    house.run(&mut clients, |clients| clients[0].closed);
    assert_eq!(house.counters().tls_handshake_timeouts.load(), 0);
    drop(clients);
    house.assert_empty();
}

#[test]
fn an_end_without_close_notify_is_told_from_a_clean_one() {
    let mut house = House::new(1, Faults::none());
    let mut clients = [house.client(), house.client()];
    clients.iter_mut().for_each(|client| client.say("GET /json HTTP/1.1\r\nHost: a\r\n\r\n"));
    house.run(&mut clients, |clients| clients.iter().all(|client| !client.heard.is_empty()));
    let [mut clean, cut] = clients;
    clean.session.close_notify(&mut clean.out);
    clean.step();
    clean.peer.finish();
    cut.peer.finish();
    for _ in 0..50 {
        house.turn();
        house.net.advance_by(Span::from_millis(1));
    }
    clean.step();
    assert!(clean.closed, "the farewell is answered");
    assert_eq!(house.counters().tls_truncations.load(), 1);
    drop((clean, cut));
    house.assert_empty();
}

#[test]
fn a_flood_of_handshakes_is_spread_over_turns() {
    let mut house = House::new(1, Faults::none());
    let mut clients: Vec<Client> = (0..40).map(|_| house.client()).collect();
    for client in &mut clients {
        client.say("GET /json HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    }
    house.run(&mut clients, |clients| clients.iter().all(|client| client.closed));
    assert!(clients.iter().all(|client| client.text().ends_with("Hello, World!")));
    assert!(house.counters().tls_handshakes_put_off.load() > 0);
    drop(clients);
    house.assert_empty();
}

fn dial_from(house: &House, address: &str) -> Client {
    let peer = tidegate_reactor::Peer::Tcp(address.parse().unwrap());
    let session = house.connector.connect("a.example").unwrap();
    Client::new(house.net.dial_as(&server(), peer).unwrap(), session)
}

#[test]
fn a_proxy_header_comes_before_the_handshake_and_goes_on_before_the_next_one() {
    for seed in 0..10 {
        let mut house = House::new(seed, Faults::swarm_harmless(&mut Prng::new(seed)));
        let origin = house.net.serve(&Address::Tcp("10.0.2.1:80".parse().unwrap())).unwrap();
        let mut clients = [dial_from(&house, "10.9.0.1:4000")];
        clients[0].out = b"PROXY TCP4 203.0.113.7 198.51.100.1 4660 443\r\n".to_vec();
        clients[0].say("GET /told HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        let heard = std::cell::RefCell::new((None::<SimPeer>, Vec::new()));
        house.run(&mut clients, |clients| {
            let (peer, bytes) = &mut *heard.borrow_mut();
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
        let (_, bytes) = heard.into_inner();
        let (header, consumed) = proxy_protocol::decode(&bytes).unwrap().unwrap();
        let Endpoints::Ip { source, destination, .. } = header.endpoints else { panic!("an IP") };
        assert_eq!(source, "203.0.113.7:4660".parse().unwrap(), "through both hops");
        assert_eq!(destination, "198.51.100.1:443".parse().unwrap());
        let said: Vec<_> = header.extensions.collect();
        assert_eq!(said[0], Extension::Authority(b"a.example"));
        let Extension::Tls(tls) = said[1] else { panic!("{said:?}") };
        assert!(tls.in_use && !tls.certificate_here && !tls.verified);
        assert_eq!(tls.version, Some(&b"TLSv1.3"[..]));
        assert_eq!(tls.cipher, Some(&b"TLS_AES_256_GCM_SHA384"[..]));
        let request = String::from_utf8_lossy(&bytes[consumed..]);
        assert!(request.contains("X-Forwarded-For: 203.0.113.7\r\n"), "{request}");
        assert_eq!(house.counters().proxy_headers.load(), 2);
        drop((clients, origin));
        house.assert_empty();
    }
}

#[test]
fn a_handshake_where_a_header_must_be_is_refused_and_the_reverse() {
    let mut house = House::new(1, Faults::none());
    let trusted = dial_from(&house, "10.9.0.1:4000").peer;
    trusted.send(b"\x16\x03\x01\x02\x00\x01");
    let stranger = dial_from(&house, "10.10.0.1:4000").peer;
    stranger.send(b"PROXY TCP4 203.0.113.7 198.51.100.1 4660 443\r\n");
    for _ in 0..50 {
        house.turn();
        house.net.advance_by(Span::from_millis(1));
    }
    assert!(trusted.is_finished_by_other() || trusted.was_reset());
    assert!(trusted.receive().is_empty());
    assert_eq!(house.counters().proxy_header_faults.load(), 1);
    assert_eq!(house.counters().proxy_headers.load(), 0);
    let said = String::from_utf8(stranger.receive()).unwrap();
    assert!(said.starts_with("HTTP/1.1 400 "), "taken for plain HTTP: {said}");
    drop((trusted, stranger));
    house.assert_empty();
}

#[test]
fn an_https_uri_is_answered_over_tls() {
    let mut house = House::new(1, Faults::none());
    let mut clients = [house.client()];
    clients[0].say("GET https://a/json HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    house.run(&mut clients, |clients| clients[0].closed);
    assert!(clients[0].text().starts_with("HTTP/1.1 200 "), "{}", clients[0].text());
    drop(clients);
    house.assert_empty();
}

#[test]
fn browsers_are_told_to_come_by_https_on_each_answer_over_tls() {
    let mut house = House::new(1, Faults::none());
    let mut clients = [house.client()];
    for path in ["/json", "/own", "/proxied", "/wrong", "/nowhere", "/synthetic"] {
        clients[0].say(&format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
    }
    clients[0].say("GET /\x01 HTTP/1.1\r\n\r\n");
    house.run(&mut clients, |clients| clients[0].closed);
    let text = clients[0].text();
    let told =
        |value: &str| text.matches(&format!("Strict-Transport-Security: {value}\r\n")).count();
    assert_eq!(told("max-age=9; includeSubDomains"), 6, "{text}");
    assert_eq!(told("max-age=0"), 1, "{text}");
    let plain = Address::Tcp("10.0.0.1:80".parse().unwrap());
    let peer = house.net.dial(&plain).unwrap();
    peer.send(b"GET /a?b HTTP/1.1\r\nHost: site.example\r\nConnection: close\r\n\r\n");
    let mut answer = Vec::new();
    for _ in 0..50 {
        house.turn();
        answer.extend(peer.receive());
        house.net.advance_by(Span::from_millis(1));
    }
    let answer = String::from_utf8(answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 301 "), "{answer}");
    assert!(answer.contains("\r\nLocation: https://site.example:8443/a?b\r\n"), "{answer}");
    assert!(!answer.contains("Strict-Transport-Security"), "not in plain: {answer}");
    drop((clients, peer));
    house.assert_empty();
}
