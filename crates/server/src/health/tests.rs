//! The prober and the roster over simulated sockets and virtual time.

use std::sync::Arc;

use tidegate_base::{Address, Moment, Prng, Span};
use tidegate_config::arrange::Arranged;
use tidegate_reactor::{Faults, Mailbox, SimNet, SimPeer, SimReactor, SimServer, make_wakers};
use tidegate_secure::{TlsLayer, TlsPlan};

use super::prober::Prober;
use super::roster::{Roster, ServerState, View};
use super::target::targets;
use super::{ServerId, Standings};
use crate::start::Mail;

/// What a simulated server does with a connection.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Manner {
    /// It responds with this status and closes.
    Status(u16),
    /// It accepts and is silent.
    Silent,
    /// It closes without a response.
    Close,
    /// It does not listen.
    Down,
}

/// A simulated server.
struct Origin {
    address: Address,
    manner: Manner,
    listener: Option<SimServer>,
    open: Vec<SimPeer>,
    /// Requests that it has received.
    requests: Vec<String>,
}

impl Origin {
    fn serve(&mut self, net: &SimNet) {
        match (self.manner, &self.listener) {
            (Manner::Down, _) => {
                self.listener = None;
                self.open.clear();
            }
            (_, None) => self.listener = net.serve(&self.address),
            (_, Some(_)) => {}
        }
        while let Some(peer) = self.listener.as_ref().and_then(SimServer::accept) {
            self.open.push(peer);
        }
        let (manner, requests) = (self.manner, &mut self.requests);
        self.open.retain(|peer| {
            let ended = peer.is_finished_by_other() || peer.was_reset();
            let got = peer.receive();
            if got.is_empty() {
                return !ended && manner != Manner::Close;
            }
            requests.push(String::from_utf8_lossy(&got).into_owned());
            match manner {
                Manner::Status(status) => {
                    let text = format!("HTTP/1.1 {status} X\r\nContent-Length: 2\r\n\r\nok");
                    peer.send(text.as_bytes());
                    false
                }
                Manner::Silent => true,
                Manner::Close | Manner::Down => false,
            }
        });
    }
}

/// The prober of a process with one worker, which is only a mailbox.
struct Stage {
    net: SimNet,
    reactor: SimReactor,
    layer: TlsLayer<()>,
    prober: Prober,
    roster: Arc<Roster>,
    mailbox: Mailbox<Mail>,
    arranged: Arranged,
    origins: Vec<Origin>,
    /// What the worker was told last.
    told: Option<Arc<Standings>>,
}

fn config(servers: usize, health: &str) -> tidegate_config::model::Config {
    let servers: Vec<String> = (0..servers).map(|at| format!("\"10.0.0.{at}:80\"")).collect();
    let text = format!(
        "[[listener]]\nbind = \"127.0.0.1:80\"\n[[route]]\nproxy = \"p\"\n[pool.p]\nservers = [{}]\n{health}\n",
        servers.join(", ")
    );
    tidegate_config::parse(&text, "the test").unwrap_or_else(|errors| panic!("{errors}"))
}

impl Stage {
    fn new(servers: usize, health: &str, faults: Faults, seed: u64) -> Self {
        let net = SimNet::new(seed, faults);
        let reactor = SimReactor::new(&net, 64);
        let mailbox = Mailbox::new(2, make_wakers(1).expect("a waker").remove(0));
        let arranged = Arranged::first(config(servers, health));
        let roster = Arc::new(Roster::new(&arranged, vec![mailbox.sender()]));
        let prober = Prober::new(Arc::clone(&roster), seed);
        let layer = TlsLayer::new(&TlsPlan::default(), Vec::new(), ());
        let origin = |at: usize| Origin {
            address: address(at),
            manner: Manner::Status(200),
            listener: None,
            open: Vec::new(),
            requests: Vec::new(),
        };
        let origins = (0..8).map(origin).collect();
        let told = None;
        let mut stage =
            Self { net, reactor, layer, prober, roster, mailbox, arranged, origins, told };
        stage.give_targets();
        stage
    }

    /// Gives the prober the targets of the configuration in force.
    fn give_targets(&mut self) {
        let pools = self.arranged.config.pools.iter();
        let addresses: Vec<Vec<Vec<Address>>> = pools
            .map(|pool| (0..pool.servers.len()).map(|at| vec![address(at)]).collect())
            .collect();
        let targets = targets(&self.arranged, &addresses);
        self.layer.between_turns(&mut self.reactor, &mut self.prober, |prober, view| {
            prober.change(view, targets);
        });
    }

    fn reload(&mut self, servers: usize, health: &str) {
        let in_use = std::collections::BTreeSet::new();
        self.arranged =
            self.arranged.next(config(servers, health), &in_use).expect("there are indexes");
        self.roster.arrange(&self.arranged);
        self.roster.publish();
        self.give_targets();
    }

    fn run(&mut self, span: Span) {
        let end = self.net.now().after(span);
        self.turn();
        while self.net.next_event_at().is_some_and(|at| at <= end) {
            self.net.advance_to_next_event();
            self.turn();
        }
        self.net.advance_to(end);
        self.turn();
    }

    fn turn(&mut self) {
        for origin in &mut self.origins {
            origin.serve(&self.net);
        }
        self.layer.turn(&mut self.reactor, &mut self.prober, Span::ZERO);
        while let Some(mail) = self.mailbox.take() {
            if let Mail::Standings(standings) = mail {
                self.told = Some(standings);
            }
        }
        self.prober.publish();
    }

    fn view(&self, server: usize) -> View {
        self.roster.view(0, server).expect("the server exists")
    }

    fn word(&self, server: usize) -> String {
        self.view(server).checked.expect("it is checked").health.word()
    }

    fn code(&self, server: usize) -> &'static str {
        let checked = self.view(server).checked.expect("it is checked");
        checked.last.expect("it was checked").0.code()
    }

    /// Whether the worker was told that the server takes requests.
    fn is_up_for_worker(&self, server: usize) -> bool {
        self.told.as_ref().is_none_or(|standings| standings[0][server].is_up)
    }
}

fn address(at: usize) -> Address {
    Address::Tcp(format!("10.0.0.{at}:80").parse().expect("an address"))
}

const HTTP: &str = "health = { http = \"/up\", host = \"app.example\", timeout = \"500ms\" }";

#[test]
fn failing_server_goes_down_and_comes_back_within_rise_times_every() {
    let mut stage = Stage::new(2, HTTP, Faults::none(), 1);
    stage.run(Span::from_secs(5));
    assert_eq!((stage.word(0), stage.code(0)), ("UP".into(), "L7OK"));
    assert!(stage.origins[0].requests[0].starts_with("GET /up HTTP/1.1\r\nHost: app.example\r\n"));
    for (manner, code) in [
        (Manner::Status(503), "L7STS"),
        (Manner::Silent, "L7TOUT"),
        (Manner::Close, "L7RSP"),
        (Manner::Down, "L4CON"),
    ] {
        stage.origins[0].manner = manner;
        // The next check may be 2 s away, and two more follow after a second each.
        stage.run(Span::from_millis(4_600));
        assert_eq!((stage.word(0), stage.code(0)), ("DOWN".into(), code));
        assert!(!stage.is_up_for_worker(0) && stage.is_up_for_worker(1));
        stage.origins[0].manner = Manner::Status(204);
        stage.origins[0].open.clear();
        stage.run(Span::from_secs(4));
        assert_eq!(stage.word(0), "UP");
        assert!(stage.is_up_for_worker(0));
    }
    let checked = stage.view(0).checked.expect("it is checked");
    assert_eq!((checked.downs, checked.failures >= 12), (4, true));
    assert_eq!(stage.view(1).checked.map(|checked| checked.failures), Some(0));
}

#[test]
fn first_failure_takes_a_server_out_that_was_never_up() {
    let mut stage = Stage::new(2, "health = { tcp = true }", Faults::none(), 2);
    stage.origins[1].manner = Manner::Down;
    stage.run(Span::from_secs(2));
    assert_eq!((stage.word(0), stage.code(0)), ("UP".into(), "L4OK"));
    assert_eq!((stage.word(1), stage.code(1)), ("DOWN".into(), "L4CON"));
    assert!(stage.origins[0].requests.is_empty(), "nothing is sent");
    stage.prober.change(&mut stage.reactor, Vec::new());
    stage.run(Span::from_secs(2));
    assert_eq!(stage.net.open_sockets(), 0);
}

#[test]
fn operator_and_checks_must_both_agree() {
    let mut stage = Stage::new(1, HTTP, Faults::none(), 3);
    stage.run(Span::from_secs(3));
    stage.roster.set_state("p/10.0.0.0:80", ServerState::Maintenance).expect("it exists");
    stage.turn();
    assert!(!stage.is_up_for_worker(0) && !stage.view(0).is_up());
    stage.origins[0].manner = Manner::Status(500);
    stage.run(Span::from_secs(6));
    stage.roster.set_state("p/10.0.0.0:80", ServerState::Ready).expect("it exists");
    stage.turn();
    assert!(!stage.is_up_for_worker(0), "its checks fail");
    stage.origins[0].manner = Manner::Status(200);
    stage.run(Span::from_secs(4));
    assert!(stage.is_up_for_worker(0));
    let unknown = stage.roster.set_state("p/x", ServerState::Drain);
    assert_eq!(unknown, Err(vec!["p/10.0.0.0:80".to_owned()]));
}

#[test]
fn reload_keeps_the_state_of_servers_that_stay() {
    let mut stage = Stage::new(2, HTTP, Faults::none(), 4);
    stage.origins[0].manner = Manner::Status(500);
    stage.roster.set_state("p/10.0.0.1:80", ServerState::Drain).expect("it exists");
    stage.run(Span::from_secs(3));
    let checks = |stage: &Stage, at| stage.view(at).checked.map(|checked| checked.checks);
    let before = checks(&stage, 0);
    stage.reload(3, HTTP);
    assert_eq!((stage.word(0), checks(&stage, 0)), ("DOWN".into(), before));
    stage.turn();
    assert!(!stage.is_up_for_worker(0) && !stage.is_up_for_worker(1) && stage.is_up_for_worker(2));
    // Without checks, nothing is known that speaks against the server.
    stage.reload(3, "");
    stage.turn();
    assert!(stage.is_up_for_worker(0) && !stage.is_up_for_worker(1));
    let requests = stage.origins[2].requests.len();
    stage.run(Span::from_secs(10));
    assert_eq!((stage.origins[2].requests.len(), stage.net.open_sockets()), (requests, 0));
    // A server that was removed and comes back has no state.
    stage.reload(1, HTTP);
    assert!(stage.roster.view(0, 1).is_none());
    stage.reload(2, HTTP);
    stage.turn();
    assert!(stage.is_up_for_worker(1) && stage.view(1).state == ServerState::Ready);
    let id = ServerId { pool: 0, server: 0, since: 99 };
    assert!(stage.roster.note(id, tidegate_gate::health::Outcome::Refused, Span::ZERO).is_none());
}

/// Goal: whatever the network does, a check ends, the next one follows, and states agree with the servers once faults
/// cease; no connection is left behind.
#[test]
fn faults_end_checks_but_not_the_checking() {
    for seed in 0..40 {
        let faults = Faults {
            short_read_ppm: 200_000,
            short_write_ppm: 200_000,
            would_block_ppm: 100_000,
            reset_ppm: 30_000,
            register_shortage_ppm: 50_000,
            connect_shortage_ppm: 100_000,
            connect_refused_ppm: 50_000,
            connect_silent_ppm: 50_000,
            connect_delay_ms_max: 700,
            latency_us_max: 50_000,
            reorder_ppm: 200_000,
            partial_wait_ppm: 200_000,
            ..Faults::none()
        };
        let mut stage = Stage::new(8, HTTP, faults, seed);
        let mut prng = Prng::new(seed);
        for round in 0..20 {
            for origin in &mut stage.origins {
                let manners = [
                    Manner::Status(200),
                    Manner::Status(503),
                    Manner::Silent,
                    Manner::Close,
                    Manner::Down,
                ];
                origin.manner = manners[prng.below(5) as usize];
            }
            if round % 7 == 6 {
                stage.reload(2 + prng.below(7) as usize, HTTP);
            }
            stage.run(Span::from_secs(2));
            assert!(stage.net.open_sockets() <= 64, "seed {seed}");
        }
        stage.net.set_faults(Faults::none());
        stage.reload(8, HTTP);
        for (at, origin) in stage.origins.iter_mut().enumerate() {
            origin.manner = if at % 2 == 0 { Manner::Status(200) } else { Manner::Status(500) };
            origin.open.clear();
        }
        stage.run(Span::from_secs(10));
        for at in 0..8 {
            let expected = if at % 2 == 0 { "UP" } else { "DOWN" };
            assert_eq!(stage.word(at), expected, "seed {seed}, server {at}");
            assert_eq!(stage.is_up_for_worker(at), at % 2 == 0, "seed {seed}, server {at}");
        }
        stage.prober.change(&mut stage.reactor, Vec::new());
        stage.run(Span::from_secs(3));
        assert_eq!(stage.net.open_sockets(), 0, "seed {seed}");
        assert!(stage.net.now() > Moment::ZERO);
    }
}
