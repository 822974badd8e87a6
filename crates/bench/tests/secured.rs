//! TLS plans in virtual time: handshakes are counted by kind and timed separately, and faults are
//! distinguished.

use std::sync::Arc;
use tidegate_base::{Address, Moment, Span};
use tidegate_bench::client::{Client, ClientOutcome, Shared};
use tidegate_bench::plan::{Plan, Protocol};
use tidegate_bench::target::{RequestMix, RequestOptions, Target, Url};
use tidegate_reactor::sim::{Faults, SimNet, SimPeer, SimReactor, SimServer};
use tidegate_secure::{PoolPlan, ServerPlan, TlsLayer, TlsPlan};
use tidegate_wire::tls::{
    Acceptor, AcceptorSettings, CertificateFiles, Connector, ConnectorSettings, Roots, TicketKeys,
    TlsClock, TlsSession, Version,
};

/// The simulated reactors' time at their start, seconds since 1970.
const NOW: u64 = 1_700_000_000;
const TICK: Span = Span::from_micros(20);
const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
const MS: fn(u64) -> Span = Span::from_millis;

fn clock() -> TlsClock {
    let clock = TlsClock::default();
    clock.set(NOW);
    clock
}

/// A self-signed certificate for `a.example` with the issuer name `name`, valid until 1 January of `last_year`, and
/// its PEM text as the CA certificate that verifies it.
fn issued_by(name: &str, last_year: i32) -> (CertificateFiles, Vec<u8>) {
    let key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::new(vec!["a.example".to_owned()]).unwrap();
    params.distinguished_name.push(rcgen::DnType::CommonName, name);
    params.not_before = rcgen::date_time_ymd(2020, 1, 1);
    params.not_after = rcgen::date_time_ymd(last_year, 1, 1);
    let pem = params.self_signed(&key).unwrap().pem().into_bytes();
    let key_pem = key.serialize_pem().into_bytes();
    (CertificateFiles { chain_pem: pem.clone(), key_pem, ocsp: None }, pem)
}

fn certificate(last_year: i32) -> (CertificateFiles, Vec<u8>) {
    issued_by("itself", last_year)
}

fn acceptor(files: CertificateFiles) -> Acceptor {
    let settings = AcceptorSettings { certificates: vec![files], ..AcceptorSettings::default() };
    let tickets = Arc::new(TicketKeys::random(NOW).unwrap());
    Acceptor::new(&settings, Some(tickets), clock()).unwrap()
}

fn plan_of(settings: &ConnectorSettings, name: &str) -> TlsPlan {
    let connector = Connector::new(settings, clock()).unwrap();
    let servers = vec![ServerPlan { name: name.to_owned(), place: String::new() }];
    let pool = PoolPlan { name: String::new(), connector, servers };
    TlsPlan { listeners: Vec::new(), pools: vec![Some(pool)], clock: clock() }
}

/// The session of a server's connection.
enum Session {
    Secure(Box<TlsSession>),
    /// Responds in plain HTTP to any input.
    Plain,
}

struct Connection {
    peer: SimPeer,
    session: Session,
    received: Vec<u8>,
    out: Vec<u8>,
    /// The server sends nothing before this time.
    not_before: Moment,
}

/// A server that responds to each request at once, but sends nothing on a connection before `delay`.
struct Server {
    listener: SimServer,
    acceptor: Option<Acceptor>,
    delay: Span,
    connections: Vec<Connection>,
    requests: u64,
    handshakes: (u64, u64),
}

impl Server {
    fn poll(&mut self, now: Moment) {
        while let Some(peer) = self.listener.accept() {
            let session = match &self.acceptor {
                Some(acceptor) => Session::Secure(Box::new(acceptor.accept().unwrap())),
                None => Session::Plain,
            };
            let not_before = now.after(self.delay);
            let (received, out) = (Vec::new(), Vec::new());
            self.connections.push(Connection { peer, session, received, out, not_before });
        }
        for connection in &mut self.connections {
            let mut came = connection.peer.receive();
            match &mut connection.session {
                Session::Plain if !came.is_empty() => {
                    connection.out =
                        b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n".to_vec();
                }
                Session::Plain => {}
                Session::Secure(session) => {
                    let was = session.is_established();
                    let (received, out) = (&mut connection.received, &mut connection.out);
                    // Errors are ignored here: the tests check what the client reports about its alerts.
                    let _ = session.handle_bytes(&mut came, received, out);
                    if let (false, Some(facts)) = (was, session.facts()) {
                        let (full, resumed) = &mut self.handshakes;
                        *if facts.resumed { resumed } else { full } += 1;
                    }
                    while let Some(end) = received.windows(4).position(|four| four == b"\r\n\r\n") {
                        received.drain(..end + 4);
                        self.requests += 1;
                        session.seal(ANSWER, out).unwrap();
                    }
                }
            }
            if now >= connection.not_before {
                let sent = connection.peer.send(&connection.out);
                connection.out.drain(..sent);
            }
        }
        self.connections.retain(|one| !one.peer.is_finished_by_other() && !one.peer.was_reset());
    }
}

fn address() -> Address {
    Address::Tcp("10.0.0.1:443".parse().unwrap())
}

/// Runs `plan`; returns the client's result, the number of requests that the server saw, and its handshakes
/// by kind.
fn run_plan(
    plan: &Plan,
    tls: &TlsPlan,
    acceptor: Option<Acceptor>,
    delay: Span,
) -> (ClientOutcome, u64, (u64, u64)) {
    let net = SimNet::new(plan.seed, Faults::none());
    let listener = net.serve(&address()).unwrap();
    let (connections, requests, handshakes) = (Vec::new(), 0, (0, 0));
    let mut server = Server { listener, acceptor, delay, connections, requests, handshakes };
    let url = Url::parse("https://a.example/").unwrap();
    let mix = RequestMix::single(&url, &RequestOptions::default()).unwrap();
    let targets = [Target { address: address(), is_secure: true }];
    let shared = Shared::default();
    let mut reactor = SimReactor::new(&net, 10_000);
    let mut layer = TlsLayer::new(tls, Vec::new(), ());
    let mut client = Client::new(plan, plan.share(0), &mix, &targets, &shared, net.now());
    let begun = net.now();
    while client.step_secured(&mut reactor, &mut layer, Span::ZERO) {
        net.advance_by(TICK);
        server.poll(net.now());
        assert!(net.now().since(begun) < Span::from_secs(120), "the run does not end");
    }
    (client.finish(net.now()), server.requests, server.handshakes)
}

fn requests(requests: u64, per_connection: Option<u64>) -> Plan {
    Plan {
        connections: 8,
        requests: Some(requests),
        duration: None,
        requests_per_connection: per_connection,
        timeout: MS(500),
        ..Plan::default()
    }
}

#[test]
fn handshake_counts_agree_with_the_server() {
    for version in [Version::Tls12, Version::Tls13] {
        for (resume, per_connection, full, resumed) in [
            (true, None, 8, 0_u64),
            (true, Some(1), 8, 72),
            (false, Some(1), 80, 0),
            (true, Some(5), 8, 8),
        ] {
            let (files, pem) = certificate(2040);
            let settings = ConnectorSettings {
                roots: Roots::Authorities(pem),
                version_max: version,
                resume,
                tickets_max: Some(64),
                ..ConnectorSettings::default()
            };
            let tls = plan_of(&settings, "a.example");
            let plan = requests(80, per_connection);
            let (outcome, seen, by_server) =
                run_plan(&plan, &tls, Some(acceptor(files)), Span::ZERO);
            let tally = outcome.tally;
            assert_eq!(
                (tally.requests, seen, tally.errors.total()),
                (80, 80, 0),
                "{:?}",
                tally.notes
            );
            let handshakes = (tally.handshakes_full, tally.handshakes_resumed);
            assert_eq!(handshakes, by_server, "{version:?} {resume} {per_connection:?}");
            assert_eq!(handshakes, (full, resumed), "{version:?} {resume} {per_connection:?}");
            assert_eq!(tally.handshake.count(), full + resumed);
            assert_eq!(tally.connect.count(), full + resumed);
            let negotiated = tally.negotiated.unwrap();
            assert!(negotiated.starts_with(version.name()), "{negotiated}");
        }
    }
}

#[test]
fn handshake_time_is_separate_from_connect_and_service_time() {
    let (files, pem) = certificate(2040);
    let settings =
        ConnectorSettings { roots: Roots::Authorities(pem), ..ConnectorSettings::default() };
    let tls = plan_of(&settings, "a.example");
    let (outcome, ..) = run_plan(&requests(80, None), &tls, Some(acceptor(files)), MS(30));
    let tally = outcome.tally;
    assert!(tally.connect.max_us() < 1_000.0, "{}", tally.connect.max_us());
    assert!(tally.handshake.percentile_us(1.0) > 29_900.0);
    assert!(tally.handshake.max_us() < 31_000.0, "{}", tally.handshake.max_us());
    assert!(tally.service.max_us() < 1_000.0, "{}", tally.service.max_us());
}

#[test]
fn each_tls_fault_has_its_message() {
    let other_ca = issued_by("another CA", 2040).1;
    let cases = [
        ("a.example", 2022, false, "has expired"),
        ("b.example", 2040, false, "another name"),
        ("a.example", 2040, true, "issuer"),
    ];
    for (name, last_year, unknown_issuer, words) in cases {
        let (files, pem) = certificate(last_year);
        let roots = Roots::Authorities(if unknown_issuer { other_ca.clone() } else { pem });
        let settings = ConnectorSettings { roots, ..ConnectorSettings::default() };
        assert_fails(&settings, name, Some(acceptor(files.clone())), words);
        let unverified =
            ConnectorSettings { roots: Roots::Unverified, ..ConnectorSettings::default() };
        let tls = plan_of(&unverified, name);
        let (outcome, ..) = run_plan(&requests(20, None), &tls, Some(acceptor(files)), Span::ZERO);
        assert_eq!((outcome.tally.requests, outcome.tally.errors.total()), (20, 0), "{words}");
    }
    let unverified = ConnectorSettings { roots: Roots::Unverified, ..ConnectorSettings::default() };
    assert_fails(&unverified, "a.example", None, "use http://");
}

#[track_caller]
fn assert_fails(settings: &ConnectorSettings, name: &str, acceptor: Option<Acceptor>, words: &str) {
    let tls = plan_of(settings, name);
    let plan = Plan { duration: Some(MS(300)), ..requests(20, None) };
    let (outcome, seen, _) = run_plan(&plan, &tls, acceptor, Span::ZERO);
    let tally = outcome.tally;
    assert_eq!((tally.requests, tally.issued, seen), (0, 0, 0), "{words}");
    assert!(tally.errors.tls > 0 && tally.errors.total() == tally.errors.tls, "{:?}", tally.errors);
    let [("tls", note)] = &tally.notes[..] else { panic!("{:?}", tally.notes) };
    assert!(note.contains(words), "{note}");
}

#[test]
fn server_that_does_not_negotiate_http2_is_reported() {
    let alpn = vec!["h2".to_owned()];
    let settings =
        ConnectorSettings { roots: Roots::Unverified, alpn, ..ConnectorSettings::default() };
    let tls = plan_of(&settings, "a.example");
    let plan = Plan { protocol: Protocol::Http2, duration: Some(MS(300)), ..requests(20, None) };
    let (outcome, seen, _) = run_plan(&plan, &tls, Some(acceptor(certificate(2040).0)), Span::ZERO);
    let tally = outcome.tally;
    assert_eq!((tally.requests, tally.issued, seen), (0, 0, 0));
    assert!(tally.errors.tls > 0 && tally.errors.total() == tally.errors.tls, "{:?}", tally.errors);
    let [("tls", note)] = &tally.notes[..] else { panic!("{:?}", tally.notes) };
    assert!(note.contains("did not negotiate HTTP/2"), "{note}");
}

#[test]
fn handshake_without_a_response_times_out() {
    let (files, pem) = certificate(2040);
    let settings =
        ConnectorSettings { roots: Roots::Authorities(pem), ..ConnectorSettings::default() };
    let tls = plan_of(&settings, "a.example");
    let plan = Plan { duration: Some(MS(900)), ..requests(20, None) };
    let (outcome, ..) = run_plan(&plan, &tls, Some(acceptor(files)), MS(10_000));
    let tally = outcome.tally;
    assert!(tally.errors.timeout >= 8, "{:?}", tally.errors);
    let [("timeout", note)] = &tally.notes[..] else { panic!("{:?}", tally.notes) };
    assert!(note.contains("TLS handshake took longer than 500 ms"), "{note}");
}

#[test]
fn unfinished_handshakes_are_counted_as_unconnected() {
    let (files, pem) = certificate(2040);
    let settings =
        ConnectorSettings { roots: Roots::Authorities(pem), ..ConnectorSettings::default() };
    let tls = plan_of(&settings, "a.example");
    let plan = Plan { connections: 8, duration: Some(MS(300)), ..Plan::default() };
    for (delay, unconnected) in [(Span::from_secs(60), 8), (MS(30), 0)] {
        let (outcome, ..) = run_plan(&plan, &tls, Some(acceptor(files.clone())), delay);
        let tally = outcome.tally;
        assert_eq!((tally.unconnected, tally.errors.total()), (unconnected, 0));
        assert_eq!(tally.requests == 0, unconnected > 0);
    }
}

#[test]
fn hanging_handshake_fails_before_the_run_is_given_up() {
    let plan = Plan { connections: 2, duration: Some(Span::from_secs(40)), ..Plan::default() };
    let net = SimNet::new(1, Faults::none());
    let address = Address::Tcp("10.0.0.1:443".parse().unwrap());
    let url = Url::parse("https://10.0.0.1/").unwrap();
    let mix = RequestMix::single(&url, &RequestOptions::default()).unwrap();
    let (targets, shared) =
        ([Target { address: address.clone(), is_secure: true }], Shared::default());
    // The server accepts connections and sends nothing.
    let _listener = net.serve(&address).unwrap();
    let mut reactor = SimReactor::new(&net, 100);
    let settings = ConnectorSettings { roots: Roots::Unverified, ..ConnectorSettings::default() };
    let tls = plan_of(&settings, "a.example");
    let mut layer = TlsLayer::new(&tls, Vec::new(), ());
    let mut client = Client::new(&plan, plan.share(0), &mix, &targets, &shared, net.now());
    while client.step_secured(&mut reactor, &mut layer, Span::ZERO) {
        net.advance_by(MS(1));
    }
    let tally = client.finish(net.now()).tally;
    assert_eq!((tally.errors.timeout, tally.errors.total(), tally.gave_up), (2, 2, true));
}
