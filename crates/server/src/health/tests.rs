//! The prober and the roster over simulated sockets and virtual time.

mod shortages;

use std::sync::Arc;

use tidegate_base::{Address, Moment, Prng, Span};
use tidegate_config::arrange::Arranged;
use tidegate_reactor::{Faults, Mailbox, SimNet, SimPeer, SimReactor, SimServer, make_wakers};
use tidegate_secure::{TlsLayer, TlsPlan};

use super::prober::Prober;
use super::roster::{Roster, View};
use super::target::targets;
use super::{ServerId, ServerState, ServerStatuses};
use crate::resolve::Addresses;
use crate::slots::NameState;
use crate::start::Mail;
use crate::state_transfer::{StateTransfer, TransferReader};

/// The behaviour of a simulated server on a connection.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Manner {
    /// It responds with this status and closes.
    Status(u16),
    /// It responds with this status and this text after the status line, and keeps the connection.
    Keep(u16, &'static str),
    /// As `Keep` with an empty body, on connections that are open: it accepts no more.
    Deaf,
    /// It responds to the first request of a connection, and resets or closes the connection at the second one.
    KeepOnce,
    /// It responds with an empty body, and never closes.
    Lingers,
    /// It accepts and is silent.
    Silent,
    /// It closes without a response.
    Close,
    /// It does not listen.
    Down,
    /// It is an agent: it sends this text at once and closes.
    Agent(&'static [u8]),
    /// It is an agent that sends this text and keeps the connection.
    Stuck(&'static [u8]),
}

/// A simulated server.
struct Origin {
    address: Address,
    manner: Manner,
    listener: Option<SimServer>,
    /// Open connections, each with the number of its requests.
    open: Vec<(SimPeer, usize)>,
    /// Connections that it has accepted.
    accepted: usize,
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
            (Manner::Deaf, _) => self.listener = None,
            (_, None) => self.listener = net.serve(&self.address),
            (_, Some(_)) => {}
        }
        while let Some(peer) = self.listener.as_ref().and_then(SimServer::accept) {
            self.accepted += 1;
            match self.manner {
                Manner::Agent(text) => {
                    peer.send(text);
                }
                Manner::Stuck(text) => {
                    peer.send(text);
                    self.open.push((peer, 0));
                }
                _ => self.open.push((peer, 0)),
            }
        }
        let (manner, requests) = (self.manner, &mut self.requests);
        self.open.retain_mut(|(peer, count)| {
            let ended = peer.is_finished_by_other() || peer.was_reset();
            let got = peer.receive();
            if got.is_empty() {
                return !ended && manner != Manner::Close;
            }
            let text = String::from_utf8_lossy(&got).into_owned();
            let asks_to_close = text.contains("Connection: close");
            requests.push(text);
            *count += 1;
            let keep = |status: u16, rest: &str| {
                peer.send(format!("HTTP/1.1 {status} X\r\n{rest}").as_bytes());
                !asks_to_close
            };
            match manner {
                Manner::Status(status) => {
                    let text = format!("HTTP/1.1 {status} X\r\nContent-Length: 2\r\n\r\nok");
                    peer.send(text.as_bytes());
                    false
                }
                Manner::Keep(status, rest) => keep(status, rest),
                Manner::Lingers => {
                    keep(200, EMPTY);
                    true
                }
                Manner::Deaf => keep(200, EMPTY),
                Manner::KeepOnce => *count == 1 && keep(200, EMPTY),
                Manner::Silent | Manner::Stuck(_) => true,
                Manner::Close | Manner::Down | Manner::Agent(_) => false,
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
    /// Their agents.
    agents: Vec<Origin>,
    /// The latest message to the worker.
    told: Option<Arc<ServerStatuses>>,
}

fn config(servers: usize, health: &str) -> tidegate_config::model::Config {
    let servers: Vec<String> = (0..servers).map(|at| format!("\"{}\"", address(at))).collect();
    let text = format!(
        "[[listener]]\nbind = \"127.0.0.1:80\"\n[[route]]\nproxy = \"p\"\n[pool.p]\nservers = [{}]\n{health}\n",
        servers.join(", ")
    );
    tidegate_config::parse(&text, "the test").unwrap_or_else(|errors| panic!("{errors}"))
}

impl Stage {
    fn new(servers: usize, health: &str, faults: Faults, seed: u64) -> Self {
        Self::with_slots(servers, health, (faults, seed), 64)
    }

    fn with_slots(
        servers: usize,
        health: &str,
        (faults, seed): (Faults, u64),
        slots: usize,
    ) -> Self {
        let net = SimNet::new(seed, faults);
        let reactor = SimReactor::new(&net, slots);
        let mailbox = Mailbox::new(2, make_wakers(1).expect("a waker").remove(0));
        let arranged = Arranged::first(config(servers, health));
        let roster = Arc::new(Roster::new(&arranged, vec![mailbox.sender()]));
        let prober = Prober::new(Arc::clone(&roster), seed, slots);
        let layer = TlsLayer::new(&TlsPlan::default(), Vec::new(), ());
        let origin = |address, manner| Origin {
            address,
            manner,
            listener: None,
            open: Vec::new(),
            accepted: 0,
            requests: Vec::new(),
        };
        let origins = (0..8).map(|at| origin(address(at), Manner::Status(200))).collect();
        let agents = (0..8).map(|at| origin(agent_address(at), Manner::Down)).collect();
        let told = None;
        let mut stage =
            Self { net, reactor, layer, prober, roster, mailbox, arranged, origins, agents, told };
        stage.give_targets();
        stage
    }

    /// Gives the prober the targets of the configuration in force.
    fn give_targets(&mut self) {
        let pools = self.arranged.config.pools.iter();
        let addresses: Vec<Vec<Vec<Address>>> = pools
            .map(|pool| (0..pool.servers.len()).map(|at| vec![address(at)]).collect())
            .collect();
        self.give_targets_at(&addresses);
    }

    /// As `give_targets`, with the addresses of each server of each pool.
    fn give_targets_at(&mut self, addresses: &Addresses) {
        let targets = targets(&self.arranged, addresses);
        self.layer.between_turns(&mut self.reactor, &mut self.prober, |prober, view| {
            prober.change(view, targets);
        });
    }

    fn reload(&mut self, servers: usize, health: &str) {
        self.reload_with(config(servers, health));
    }

    fn reload_with(&mut self, config: tidegate_config::model::Config) {
        let in_use = std::collections::BTreeSet::new();
        self.arranged = self.arranged.next(config, &in_use).expect("there are indexes");
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
        for origin in self.origins.iter_mut().chain(&mut self.agents) {
            origin.serve(&self.net);
        }
        self.layer.turn(&mut self.reactor, &mut self.prober, Span::ZERO);
        while let Some(mail) = self.mailbox.take() {
            if let Mail::ServerStatuses(statuses) = mail {
                self.told = Some(statuses);
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
        self.told.as_ref().is_none_or(|statuses| statuses[0][server].is_up)
    }
}

fn address(at: usize) -> Address {
    Address::Tcp(([10, 0, (at / 250) as u8, (at % 250) as u8], 80).into())
}

fn agent_address(at: usize) -> Address {
    Address::Tcp(format!("10.0.0.{at}:9999").parse().expect("an address"))
}

const HTTP: &str = "health = { http = \"/up\", host = \"app.example\", timeout = \"500ms\" }";

#[test]
fn failing_server_goes_down_and_is_up_again_after_rise_checks() {
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
fn all_servers_are_used_while_too_few_pass() {
    let settings = "health = { http = \"/up\", timeout = \"500ms\" }\neject = { panic = \"50%\" }";
    let mut stage = Stage::new(4, settings, Faults::none(), 7);
    stage.run(Span::from_secs(5));
    let up = |stage: &Stage| (0..4).map(|at| stage.is_up_for_worker(at)).collect::<Vec<_>>();
    for at in 0..2 {
        stage.origins[at].manner = Manner::Status(503);
    }
    stage.run(Span::from_secs(8));
    assert_eq!(up(&stage), [false, false, true, true], "half of them pass");
    stage.roster.set_state("p/10.0.0.3:80", ServerState::Drain).expect("it exists");
    stage.turn();
    assert_eq!(up(&stage), [true, true, true, false], "one of three passes");
    assert_eq!(stage.word(0), "DOWN", "the result of the checks is still shown");
    stage.reload(4, settings);
    stage.turn();
    assert_eq!(up(&stage), [true, true, true, false]);
    stage.roster.set_state("p/10.0.0.3:80", ServerState::Ready).expect("it exists");
    stage.turn();
    assert_eq!(up(&stage), [false, false, true, true]);
    stage.origins[2].manner = Manner::Down;
    stage.origins[3].manner = Manner::Down;
    stage.run(Span::from_secs(8));
    assert_eq!(up(&stage), [true; 4], "no server passes");
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
fn weight_that_an_operator_sets_lasts_until_the_file_has_another() {
    let mut stage = Stage::new(2, "", Faults::none(), 5);
    let told = |stage: &mut Stage| {
        stage.turn();
        stage.told.as_ref().map(|statuses| statuses[0][0].weight)
    };
    stage.roster.set_weight("p/10.0.0.0:80", |configured| configured * 50).expect("it exists");
    assert_eq!((told(&mut stage), stage.view(0).weight), (Some(Some(50)), Some(50)));
    stage.reload(3, HTTP);
    assert_eq!(told(&mut stage), Some(Some(50)));
    let mut changed = config(3, "");
    changed.pools[0].servers[0].weight = 7;
    stage.reload_with(changed);
    assert_eq!((told(&mut stage), stage.view(0).weight), (Some(None), None));
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
    // A server that was removed and is added again has no state.
    stage.reload(1, HTTP);
    assert!(stage.roster.view(0, 1).is_none());
    stage.reload(2, HTTP);
    stage.turn();
    assert!(stage.is_up_for_worker(1) && stage.view(1).state == ServerState::Ready);
    let id = ServerId { pool: 0, server: 0, since: 99 };
    assert!(stage.roster.note(id, tidegate_gate::health::Outcome::Refused, Span::ZERO).is_none());
}

#[test]
fn report_of_an_agent_ends_with_the_address_of_its_slot() {
    let mut stage = Stage::new(1, AGENT, Faults::none(), 7);
    stage.agents[0].manner = Manner::Agent(b"30% drain\n");
    let names = |last: u8| {
        let slot = Some(Some(([10, 0, 0, last], 80).into()));
        [vec![NameState { is_unresolved: false, share: None, slot }]]
    };
    stage.roster.note_names(&names(1));
    stage.run(Span::from_secs(3));
    assert!(!stage.roster.note_names(&names(1)) && !stage.view(0).is_up());
    assert!(stage.roster.note_names(&names(2)), "the workers are told");
    assert!(stage.view(0).is_up());
    assert_eq!(stage.view(0).weight_now(10), 10);
}

#[test]
fn next_process_continues_with_what_this_one_knows() {
    const SLOW_RISE: &str = "health = { http = \"/up\", rise = 1000 }";
    let settings = format!("{SLOW_RISE}\n{AGENT}");
    let mut old = Stage::new(3, &settings, Faults::none(), 6);
    old.agents[1].manner = Manner::Agent(b"30% drain\n");
    old.origins[0].manner = Manner::Status(500);
    old.run(Span::from_secs(3));
    old.origins[0].manner = Manner::Status(200);
    old.roster.set_state("p/10.0.0.2:80", ServerState::Maintenance).expect("it exists");
    old.roster.set_weight("p/10.0.0.2:80", |_| 7).expect("it exists");
    let passed = |stage: &Stage| {
        let servers = stage.roster.passed();
        let (bytes, left_out) = StateTransfer { servers, ..StateTransfer::default() }.encode();
        assert_eq!(left_out, 0);
        TransferReader::default().read(&bytes).expect("a transfer").expect("an end")
    };
    let first = passed(&old);

    let mut new = Stage::new(3, &settings, Faults::none(), 7);
    new.roster.inherit_states(&first);
    new.roster.inherit_counts(&first, &StateTransfer::default());
    assert_eq!(new.roster.statuses(), old.roster.statuses());
    let counts = |stage: &Stage, at| {
        let checked = stage.view(at).checked.expect("it is checked");
        (checked.checks, checked.failures, checked.downs)
    };
    assert_eq!((new.word(0), counts(&new, 0)), (old.word(0), counts(&old, 0)));
    assert!(counts(&new, 0).2 == 1 && new.view(0).last_results() == (None, None));
    assert_eq!((new.view(2).state, new.view(2).weight), (ServerState::Maintenance, Some(7)));
    assert_eq!(new.view(1).weight_now(10), 3);

    // Both check the servers for a while. Commands reach the old process only.
    old.run(Span::from_secs(5));
    new.run(Span::from_secs(5));
    old.roster.set_state("p/10.0.0.2:80", ServerState::Ready).expect("it exists");
    let own = (counts(&new, 0), counts(&old, 0));
    let second = passed(&old);
    new.roster.inherit_counts(&second, &first);
    new.roster.inherit_states(&second);
    let since = own.1.0
        - first.servers[&("p".to_owned(), "10.0.0.0:80".to_owned())]
            .checked
            .expect("checks")
            .checks;
    assert!(since > 0 && counts(&new, 0) == (own.0.0 + since, own.0.1, own.0.2));
    // Its own checks have counted toward `rise`.
    assert!(new.word(0).starts_with("DOWN ") && new.view(2).state == ServerState::Ready);
    assert_eq!((new.view(1).state_now(), new.view(1).is_up()), (ServerState::Drain, false));

    // The file has other weights and no checks now.
    let mut other = config(3, "");
    other.pools[0].servers[2].weight = 5;
    new.reload_with(other);
    new.roster.inherit_states(&second);
    assert_eq!((new.view(2).weight, new.view(0).is_up()), (None, true));
    // A server that is up stays up with another `rise`, and counts of another life are never subtracted.
    new.reload(1, HTTP);
    new.roster.inherit_counts(&first, &second);
    assert_eq!(counts(&new, 0), (0, 0, 0));
    new.roster.inherit_states(&second);
    assert_eq!(new.word(0), "DOWN");
}

#[test]
fn next_process_uses_the_results_of_a_slot_only_for_the_same_address() {
    let settings = "health = { http = \"/up\", rise = 1000 }";
    let mut old = Stage::new(1, settings, Faults::none(), 8);
    old.origins[0].manner = Manner::Status(500);
    let address = |last: u8| Some(([10, 0, 0, last], 80).into());
    let state = |last: u8| NameState { slot: Some(address(last)), ..NameState::default() };
    old.roster.note_names(&[vec![state(1)]]);
    old.run(Span::from_secs(3));
    assert!(!old.view(0).is_up());
    let servers = old.roster.passed();
    let transfer = StateTransfer { servers, ..StateTransfer::default() };
    let slots: Vec<_> = transfer.slots().into_values().map(Some).collect();
    assert_eq!(slots, [address(1)]);
    for (last, is_up) in [(1, false), (2, true)] {
        let new = Stage::new(1, settings, Faults::none(), 9);
        new.roster.inherit_states(&transfer);
        new.roster.note_names(&[vec![state(last)]]);
        assert_eq!(new.view(0).is_up(), is_up, "{last}");
        // The last transfer, too.
        new.roster.inherit_states(&transfer);
        assert_eq!(new.view(0).is_up(), is_up, "{last}");
        let kept = transfer.servers_as_in(&new.roster.passed());
        assert_eq!(kept.len(), usize::from(!is_up), "{last}");
    }
}

const KEEP: &str = "health = { http = \"/up\", timeout = \"500ms\", keep-alive = \"20s\" }";
/// The rest of a response without a body.
const EMPTY: &str = "Content-Length: 0\r\n\r\n";

/// Connections that a server has accepted, requests that it has received, and failures of its checks.
fn counts(stage: &Stage, server: usize) -> (usize, usize, u64) {
    let (origin, checked) = (&stage.origins[server], stage.view(server).checked);
    (origin.accepted, origin.requests.len(), checked.expect("it is checked").failures)
}

#[test]
fn kept_connection_is_used_for_its_time_and_replaced_without_a_failure() {
    let mut stage = Stage::new(1, KEEP, Faults::none(), 11);
    stage.origins[0].manner = Manner::Keep(200, EMPTY);
    stage.run(Span::from_secs(9));
    let (accepted, requests, failures) = counts(&stage, 0);
    assert!((accepted, failures) == (1, 0) && requests >= 4, "{accepted}, {requests}");
    let closes = |stage: &Stage| {
        stage.origins[0].requests.iter().filter(|text| text.contains("Connection: close")).count()
    };
    assert!(closes(&stage) == 0 && stage.origins[0].requests[1].ends_with("health\r\n\r\n"));
    stage.run(Span::from_secs(200));
    let (accepted, requests, failures) = counts(&stage, 0);
    assert!((8..=21).contains(&accepted) && requests > 90 && failures == 0, "{accepted}");
    assert!((accepted - 1..=accepted).contains(&closes(&stage)), "the last request asks to close");
    // A reload that changes or removes the check closes its connection.
    for health in [KEEP.replace("/up", "/other"), String::new()] {
        let open = stage.origins[0].open.len();
        stage.reload(1, &health);
        stage.run(Span::from_millis(10));
        assert!(open == 1 && stage.origins[0].open.is_empty() && stage.net.open_sockets() == 0);
        stage.run(Span::from_secs(5));
    }
    // A target that stays keeps its connection.
    stage.reload(1, KEEP);
    stage.run(Span::from_secs(3));
    let before = counts(&stage, 0);
    stage.reload(2, KEEP);
    stage.run(Span::from_secs(4));
    assert_eq!((counts(&stage, 0).0, counts(&stage, 0).2), (before.0, 0));
}

#[test]
fn server_that_closes_kept_connections_fails_no_check() {
    for (seed, manner) in [(12, Manner::Status(200)), (13, Manner::KeepOnce)] {
        let mut stage = Stage::new(1, KEEP, Faults::none(), seed);
        stage.origins[0].manner = manner;
        stage.run(Span::from_secs(30));
        let (accepted, requests, failures) = counts(&stage, 0);
        assert!(accepted >= 15 && requests >= accepted && failures == 0, "{accepted}, {requests}");
        let checks = stage.view(0).checked.expect("it is checked").checks;
        assert!((accepted as u64).abs_diff(checks) <= 1, "each check has its connection");
    }
    let mut stage = Stage::new(1, KEEP, Faults::none(), 14);
    stage.origins[0].manner = Manner::Keep(200, EMPTY);
    for round in 0..10 {
        stage.run(Span::from_secs(3));
        assert_eq!((counts(&stage, 0).0, counts(&stage, 0).2), (round + 1, 0));
        stage.origins[0].open.clear();
    }
}

#[test]
fn connection_is_used_again_only_after_a_response_that_is_complete() {
    const ONCE: [&str; 6] = [
        "Connection: close\r\nContent-Length: 0\r\n\r\n",
        "\r\nuntil the end",
        "Content-Length: 2\r\n\r\n1",
        "Content-Length: 2\r\n\r\n123",
        "Transfer-Encoding: chunked\r\n\r\nx\r\n",
        "Content-Length: 0\r\n\r\nHTTP/1.1 500 X\r\n",
    ];
    for (seed, rest) in (20..).zip(ONCE) {
        let mut stage = Stage::new(1, KEEP, Faults::none(), seed);
        stage.origins[0].manner = Manner::Keep(200, rest);
        stage.run(Span::from_secs(20));
        let (accepted, requests, failures) = counts(&stage, 0);
        assert_eq!((accepted, failures), (requests, 0), "{rest:?}");
        assert!(requests >= 10 && stage.net.open_sockets() <= 2, "{rest:?}");
    }
    for (seed, rest) in (30..).zip(["Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n", EMPTY])
    {
        let mut stage = Stage::new(1, KEEP, Faults::none(), seed);
        stage.origins[0].manner = Manner::Keep(200, rest);
        stage.run(Span::from_secs(9));
        assert_eq!(counts(&stage, 0).0, 1, "{rest:?}");
    }
}

#[test]
fn slow_body_keeps_its_connection_and_unrequested_bytes_end_it() {
    let health = KEEP.replace(" }", ", every = \"10s\" }");
    let mut stage = Stage::new(1, &health, Faults::none(), 40);
    stage.origins[0].manner = Manner::Keep(200, "Content-Length: 4\r\n\r\n1");
    let until_asked = |stage: &mut Stage, count: usize| {
        for _ in 0..1200 {
            if stage.origins[0].requests.len() == count {
                return;
            }
            stage.run(Span::from_millis(10));
        }
        panic!("there is no check");
    };
    for count in 1..=2 {
        until_asked(&mut stage, count);
        stage.origins[0].open[0].0.send(b"2");
        stage.run(Span::from_millis(300));
        stage.origins[0].open[0].0.send(b"34");
        stage.run(Span::from_millis(800));
        assert_eq!((counts(&stage, 0), stage.net.open_sockets()), ((1, count, 0), 1));
    }
    stage.origins[0].open[0].0.send(b"HTTP/1.1 200 OK\r\n");
    stage.run(Span::from_millis(50));
    assert_eq!((stage.origins[0].open.len(), stage.net.open_sockets()), (0, 0));
    // A body that is not complete a second after the result.
    until_asked(&mut stage, 3);
    stage.run(Span::from_millis(900));
    assert_eq!(stage.origins[0].open.len(), 1);
    stage.run(Span::from_millis(200));
    assert_eq!((counts(&stage, 0), stage.net.open_sockets()), ((2, 3, 0), 0));
}

#[test]
fn server_that_accepts_no_more_is_down_once_its_kept_connection_is_replaced() {
    let mut stage = Stage::new(1, KEEP, Faults::none(), 50);
    stage.origins[0].manner = Manner::Keep(200, EMPTY);
    stage.run(Span::from_secs(3));
    stage.origins[0].manner = Manner::Deaf;
    stage.run(Span::from_secs(5));
    assert_eq!((stage.word(0), counts(&stage, 0).2), ("UP".into(), 0));
    stage.run(Span::from_secs(20));
    assert_eq!((stage.word(0), stage.code(0)), ("DOWN".into(), "L4CON"));
    stage.origins[0].manner = Manner::Keep(200, EMPTY);
    stage.run(Span::from_secs(4));
    assert_eq!(stage.word(0), "UP");
}

#[test]
fn failing_check_closes_its_connection() {
    let mut stage = Stage::new(1, KEEP, Faults::none(), 51);
    stage.origins[0].manner = Manner::Keep(200, EMPTY);
    stage.run(Span::from_secs(5));
    let requests = counts(&stage, 0).1;
    stage.origins[0].manner = Manner::Keep(503, EMPTY);
    stage.run(Span::from_secs(10));
    let (accepted, all, failures) = counts(&stage, 0);
    // The first failure is made sure of over a new connection. Each failure has its own.
    assert_eq!((accepted as u64 - 1, all as u64), (failures, requests as u64 + failures + 1));
    assert_eq!((stage.word(0), stage.code(0)), ("DOWN".into(), "L7STS"));
    stage.origins[0].manner = Manner::Silent;
    stage.run(Span::from_secs(4));
    assert_eq!(stage.code(0), "L7TOUT");
    stage.origins[0].manner = Manner::Keep(200, EMPTY);
    stage.run(Span::from_secs(4));
    let accepted = counts(&stage, 0).0;
    // A timeout counts, also over a kept connection.
    let failures = counts(&stage, 0).2;
    stage.origins[0].manner = Manner::Silent;
    stage.run(Span::from_millis(2_600));
    assert!(counts(&stage, 0).2 > failures && stage.word(0) == "UP 2/3");
    stage.origins[0].manner = Manner::Keep(200, EMPTY);
    stage.run(Span::from_secs(4));
    let renewed = counts(&stage, 0).0 - accepted;
    assert!(renewed >= 2 && stage.word(0) == "UP", "the path is not trusted: {renewed}");
    stage.run(Span::from_secs(210));
    let (accepted, requests, _) = counts(&stage, 0);
    stage.run(Span::from_secs(9));
    let (renewed, asked) = (counts(&stage, 0).0 - accepted, counts(&stage, 0).1 - requests);
    assert!(renewed <= 1 && asked >= 4, "it is trusted again: {renewed}, {asked}");
}

#[test]
fn server_behind_a_path_that_drops_idle_connections_is_up() {
    let health = KEEP.replace(" }", ", fall = 1, rise = 2 }");
    let mut stage = Stage::new(1, &health, Faults::none(), 53);
    let mut up = 0;
    for _ in 0..300 {
        // A new connection is answered, a kept one is not.
        let is_idle = !stage.origins[0].open.is_empty();
        stage.origins[0].manner = if is_idle { Manner::Silent } else { Manner::Keep(200, EMPTY) };
        stage.run(Span::from_millis(100));
        up += usize::from(stage.word(0).starts_with("UP"));
    }
    assert!(up > 200, "{up}");
}

#[test]
fn kept_connections_leave_a_quarter_of_the_slots_to_other_checks() {
    let mut stage = Stage::with_slots(8, KEEP, (Faults::none(), 52), 6);
    for origin in &mut stage.origins {
        origin.manner = Manner::Keep(200, EMPTY);
    }
    stage.run(Span::from_secs(15));
    let open = stage.origins.iter().filter(|origin| !origin.open.is_empty()).count();
    assert!(open <= 4, "{open}");
    for at in 0..8 {
        let checked = stage.view(at).checked.expect("it is checked");
        assert!(checked.checks >= 5 && checked.failures == 0, "{at}: {}", checked.checks);
    }
    // Without descriptors, each check closes its connection.
    stage.net.set_faults(Faults { connect_shortage_ppm: 1_000_000, ..Faults::none() });
    stage.run(Span::from_secs(6));
    assert!(stage.origins.iter().all(|origin| origin.open.is_empty()));
    stage.net.set_faults(Faults::none());
    stage.run(Span::from_secs(20));
    assert!(stage.origins.iter().any(|origin| !origin.open.is_empty()));
    stage.prober.change(&mut stage.reactor, Vec::new());
    stage.run(Span::from_secs(3));
    assert_eq!(stage.net.open_sockets(), 0);
}

const AGENT: &str = "agent = { port = 9999, every = \"1s\", timeout = \"500ms\", send = \"p\" }";

/// The status of a server at the worker, and the result of its agent's last check.
fn told_by_agent(stage: &Stage, server: usize) -> (bool, u16, &'static str) {
    let told = stage.told.as_ref().map(|statuses| statuses[0][server]);
    let (is_up, percent) = told.map_or((true, 100), |told| (told.is_up, told.percent));
    let code = match stage.view(server).agent.expect("it has an agent").last {
        None => "INI",
        Some((Ok(statement), _)) => statement.code(),
        Some((Err(failure), _)) => failure.code(),
    };
    (is_up, percent, code)
}

#[test]
fn texts_of_an_agent_change_the_weight_and_the_state_of_its_server() {
    static LONG: [u8; 2000] = [b' '; 2000];
    let mut stage = Stage::new(2, AGENT, Faults::none(), 6);
    stage.run(Span::from_secs(3));
    assert_eq!(told_by_agent(&stage, 0), (true, 100, "L4CON"), "an agent that does not listen");
    for (manner, expected) in [
        (Manner::Agent(b"75%\r\n"), (true, 75, "L7OK")),
        (Manner::Agent(b"down # its disk is full\n"), (false, 75, "L7STS")),
        (Manner::Down, (false, 75, "L4CON")),
        (Manner::Agent(b"up"), (false, 75, "L7RSP")),
        (Manner::Agent(b"fine\n"), (false, 75, "L7RSP")),
        (Manner::Agent(&LONG), (false, 75, "L7RSP")),
        (Manner::Stuck(b"up"), (false, 75, "L7TOUT")),
        (Manner::Stuck(b"up 50%\nignored"), (true, 50, "L7OK")),
        (Manner::Agent(b"drain\n"), (false, 50, "L7OK")),
        (Manner::Agent(b"0% ready\n"), (true, 0, "L7OK")),
        (Manner::Agent(b"maint 100%\n"), (false, 100, "L7OK")),
        (Manner::Agent(b"ready\n"), (true, 100, "L7OK")),
    ] {
        stage.agents[0].manner = manner;
        stage.agents[0].listener = None;
        stage.agents[0].open.clear();
        stage.run(Span::from_secs(3));
        assert_eq!(told_by_agent(&stage, 0), expected);
        assert_eq!(told_by_agent(&stage, 1), (true, 100, "L4CON"), "it has an agent of its own");
    }
    assert_eq!(stage.agents[0].requests.first().map(String::as_str), Some("p\n"));
}

#[test]
fn agent_and_operator_and_checks_must_agree() {
    let both = format!("{HTTP}\n{AGENT}");
    let place = "p/10.0.0.0:80";
    let mut stage = Stage::new(1, &both, Faults::none(), 7);
    stage.agents[0].manner = Manner::Agent(b"50%\n");
    stage.roster.set_weight(place, |_| 10).expect("it exists");
    stage.run(Span::from_secs(4));
    let state = |stage: &Stage| {
        let view = stage.view(0);
        (told_by_agent(stage, 0).0, view.weight_now(1), view.state_now())
    };
    assert_eq!(state(&stage), (true, 5, ServerState::Ready));
    stage.agents[0].manner = Manner::Agent(b"drain\n");
    stage.run(Span::from_secs(2));
    assert_eq!(state(&stage), (false, 5, ServerState::Drain));
    // An operator ends the drain until the agent reports it again, as when the agent is gone.
    stage.agents[0].manner = Manner::Down;
    stage.roster.set_state(place, ServerState::Ready).expect("it exists");
    stage.run(Span::from_secs(3));
    assert_eq!(state(&stage), (true, 5, ServerState::Ready));
    assert_eq!(stage.roster.set_agent(place, tidegate_gate::agent::Operation::Down), Ok(true));
    stage.run(Span::from_secs(1));
    assert_eq!(state(&stage), (false, 5, ServerState::Ready));
    // An agent cannot end a state that an operator has set.
    stage.agents[0].manner = Manner::Agent(b"up ready\n");
    stage.roster.set_state(place, ServerState::Maintenance).expect("it exists");
    stage.run(Span::from_secs(3));
    assert_eq!(state(&stage), (false, 5, ServerState::Maintenance));
    stage.roster.set_state(place, ServerState::Ready).expect("it exists");
    stage.run(Span::from_secs(1));
    assert_eq!(state(&stage), (true, 5, ServerState::Ready));
    stage.origins[0].manner = Manner::Status(500);
    stage.run(Span::from_secs(6));
    assert_eq!(state(&stage), (false, 5, ServerState::Ready));
    // Without an agent in the file, its earlier reports are void.
    stage.origins[0].manner = Manner::Status(200);
    stage.reload(1, HTTP);
    stage.run(Span::from_secs(6));
    let told = stage.told.as_ref().map(|statuses| statuses[0][0]);
    assert_eq!(
        told.map(|told| (told.is_up, told.weight, told.percent)),
        Some((true, Some(10), 100))
    );
    assert_eq!(stage.roster.set_agent(place, tidegate_gate::agent::Operation::Up), Ok(false));
    assert_eq!(stage.net.open_sockets(), 0);
}

#[test]
fn reload_keeps_what_an_agent_has_stated() {
    let mut stage = Stage::new(2, AGENT, Faults::none(), 8);
    stage.agents[0].manner = Manner::Agent(b"down 30%\n");
    stage.run(Span::from_secs(3));
    assert_eq!(told_by_agent(&stage, 0), (false, 30, "L7STS"));
    stage.agents[0].manner = Manner::Down;
    stage.reload(3, &AGENT.replace("1s", "2s"));
    stage.run(Span::from_secs(5));
    assert_eq!(told_by_agent(&stage, 0), (false, 30, "L4CON"));
    stage.reload(3, "");
    stage.reload(3, AGENT);
    stage.run(Span::from_secs(3));
    assert_eq!(told_by_agent(&stage, 0), (true, 100, "L4CON"), "it starts as a new agent");
}

/// Goal: whatever the network does, a check ends, the next one follows, and states agree with the servers once faults
/// cease; no connection is left behind.
#[test]
fn faults_end_checks_but_not_the_checking() {
    for seed in 0..80 {
        let http = if seed < 40 { HTTP } else { KEEP };
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
        let both = format!("{http}\n{AGENT}");
        let mut stage = Stage::new(8, &both, faults, seed);
        let mut prng = Prng::new(seed);
        for round in 0..20 {
            for (at, agent) in stage.agents.iter_mut().enumerate() {
                let manners = [
                    Manner::Agent(b"up 50%\n"),
                    Manner::Agent(b"stopped"),
                    Manner::Stuck(b"drain"),
                    Manner::Down,
                    Manner::Agent(b"down 10%\n"),
                ];
                agent.manner = manners[(round + at) % manners.len()];
            }
            for origin in &mut stage.origins {
                let manners = [
                    Manner::Status(200),
                    Manner::Status(503),
                    Manner::Silent,
                    Manner::Close,
                    Manner::Down,
                    Manner::Keep(200, EMPTY),
                    Manner::KeepOnce,
                    Manner::Keep(200, "Content-Length: 3\r\n\r\n1"),
                    Manner::Deaf,
                ];
                let count = if seed < 40 { 5 } else { 9 };
                origin.manner = manners[prng.below(count) as usize];
            }
            if round % 7 == 6 {
                stage.reload(2 + prng.below(7) as usize, &both);
            }
            stage.run(Span::from_secs(2));
            assert!(stage.net.open_sockets() <= 64, "seed {seed}");
        }
        stage.net.set_faults(Faults::none());
        stage.reload(8, &both);
        for agent in &mut stage.agents {
            agent.manner = Manner::Agent(b"up ready 90%\n");
            agent.listener = None;
            agent.open.clear();
        }
        for (at, origin) in stage.origins.iter_mut().enumerate() {
            origin.manner = if at % 2 == 0 { Manner::Status(200) } else { Manner::Status(500) };
            origin.open.clear();
        }
        stage.run(Span::from_secs(10));
        for at in 0..8 {
            let expected = if at % 2 == 0 { "UP" } else { "DOWN" };
            assert_eq!(stage.word(at), expected, "seed {seed}, server {at}");
            assert_eq!(stage.is_up_for_worker(at), at % 2 == 0, "seed {seed}, server {at}");
            assert_eq!(told_by_agent(&stage, at).1, 90, "seed {seed}, server {at}");
        }
        stage.prober.change(&mut stage.reactor, Vec::new());
        stage.run(Span::from_secs(3));
        assert_eq!(stage.net.open_sockets(), 0, "seed {seed}");
        assert!(stage.net.now() > Moment::ZERO);
    }
}
