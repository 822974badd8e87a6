//! Two workers that share the permits of a server while neither has room for a connection to it.
//! In: requests that wait for room. Out: what each test's name says.
//! Limits: `MAILS_PER_SECOND_MAX`, one mail in `MAIL_SPAN`.

use tidegate_base::{Address, Moment, Span};
use tidegate_config::arrange::Arranged;
use tidegate_config::model::Config;
use tidegate_gate::process_state::ProcessState;
use tidegate_reactor::{Faults, SimNet, SimPeer, SimReactor};
use tidegate_secure::TlsPlan;
use tidegate_server::Snapshot;
use tidegate_server::apply_settings::{InUse, removed_in_use};
use tidegate_server::snapshot::Numbers;

use crate::peer::harness::{Harness, addresses};
use crate::stage::{GET, OK, assert_status};

/// Servers on Unix sockets: a shortage of ports, which ends at another server, cannot happen.
const SERVER: &str = "/run/server.sock";
const OTHER_SERVER: &str = "/run/other.sock";
/// A request for the other server.
const GET_OTHER: &[u8] = b"GET /other HTTP/1.1\r\nHost: a\r\n\r\n";
/// Room for two clients and a connection to a server.
const SLOTS: usize = 3;
/// Both workers ask for permits up to 50 times in a second. Each time, they may get a permit.
const MAILS_PER_SECOND_MAX: u64 = 2 * 50 * 2;

/// How long a mail takes.
const MAIL_SPAN: Span = Span::from_micros(10);

fn parse(text: &str) -> Config {
    match tidegate_config::parse(text, "the test") {
        Ok(config) => config,
        Err(errors) => panic!("{errors}"),
    }
}

/// A configuration; `connections_max`: the limit of `SERVER`. `pool`: further settings of its pool.
fn text(connections_max: u32, pool: &str) -> String {
    format!(
        "[[listener]]\nbind = \"10.0.0.1:80\"\n\
         [[route]]\npath = \"/other\"\nproxy = \"other\"\n[[route]]\nproxy = \"p\"\n\
         [pool.other]\nservers = [\"unix:{OTHER_SERVER}\"]\n[pool.p]\nservers = \
         [{{ address = \"unix:{SERVER}\", connections-max = {connections_max} }}]\n{pool}\n"
    )
}

/// Two workers of one process.
struct Process {
    net: SimNet,
    workers: Vec<Harness<SimReactor>>,
    config: Config,
}

impl Process {
    /// `connections_max`: the limit of `SERVER`. `pool`: further settings of its pool.
    fn new(connections_max: u32, pool: &str, seed: u64) -> Self {
        let config = parse(&text(connections_max, pool));
        let net = SimNet::new(seed, Faults::none());
        let worker = |at| Harness::simulated(&net, &config, SLOTS, at);
        let mut workers: Vec<_> = (0..2).map(worker).collect();
        Harness::join_all(&mut workers, 100);
        Self { net, workers, config }
    }

    /// All workers apply a configuration whose server has the limit 1.
    fn reload(&mut self, pool: &str) {
        let mut numbers = Numbers::of(&self.config);
        let in_use: Vec<InUse> = self.workers.iter().map(|w| InUse::clone(&w.in_use)).collect();
        let arranged = Arranged::first(self.config.clone());
        let in_use = removed_in_use(&in_use, &arranged);
        let arranged = arranged.next(parse(&text(1, pool)), &in_use).expect("few pools");
        for worker in &mut self.workers {
            let shared = ProcessState::new(&arranged.config, 0);
            let addresses = addresses(&arranged.config);
            let next = Snapshot::arranged(arranged.clone(), addresses, shared, &mut numbers);
            worker.change(next, &TlsPlan::default()).expect("it is valid");
        }
        self.pass(Span::from_millis(10), || {});
    }

    /// Connects two clients to each worker; `None` if the network distributes them in another way.
    fn dial(&mut self) -> Option<Vec<[SimPeer; 2]>> {
        let mut clients = vec![Vec::new(), Vec::new()];
        let address = self.workers[0].bound[0].clone();
        for _ in 0..4 {
            let client = self.net.dial(&address).expect("the workers listen");
            self.pass(Span::from_millis(1), || {});
            let accepted = |at: usize| self.workers[at].accounts.counters.accepted.load();
            let at = (0..2).find(|&at| accepted(at) > clients[at].len() as u64)?;
            clients[at].push(client);
        }
        clients.into_iter().map(|clients| clients.try_into().ok()).collect()
    }

    /// Turns the workers for `span`, as long as there is mail or an event. Calls `step` after each turn. Mail is on
    /// its way for `MAIL_SPAN`, so that the clock advances even if mail goes back and forth without end.
    fn pass(&mut self, span: Span, mut step: impl FnMut()) {
        let end: Moment = self.net.now().after(span);
        loop {
            self.workers.iter_mut().for_each(Harness::turn);
            step();
            let mail_at = self.net.now().after(MAIL_SPAN);
            let has_mail = self.workers.iter().any(|worker| worker.worker.has_mail());
            let next = match has_mail {
                true => mail_at,
                false => self.net.next_event_at().unwrap_or(end),
            };
            if next > end {
                return self.net.advance_to(end);
            }
            self.net.advance_to(next);
        }
    }

    /// How often the workers have handled mail.
    fn mails(&self) -> u64 {
        self.workers.iter().map(Harness::mails).sum()
    }
}

/// Two workers, each with two clients.
fn begin(connections_max: u32) -> (Process, Vec<[SimPeer; 2]>) {
    begin_with(connections_max, "")
}

fn begin_with(connections_max: u32, pool: &str) -> (Process, Vec<[SimPeer; 2]>) {
    let begun = (0..100).find_map(|seed| {
        let mut process = Process::new(connections_max, pool, seed);
        process.dial().map(|clients| (process, clients))
    });
    begun.expect("a seed with two clients at each worker")
}

#[test]
fn idle_server_is_used_by_each_worker_although_no_request_may_queue() {
    let (mut process, clients) = begin_with(1, "queue-max = 0");
    let server = process.net.serve(&Address::Unix(SERVER.to_owned())).expect("a free path");
    let mut connections = Vec::new();
    for round in 0..6 {
        let client = &clients[round % 2][0];
        client.send(GET);
        process.pass(Span::from_millis(10), || {});
        connections.extend(server.accept());
        for connection in &connections {
            if connection.receive().ends_with(b"\r\n\r\n") {
                connection.send(OK);
            }
        }
        process.pass(Span::from_millis(10), || {});
        assert_status(200, &String::from_utf8_lossy(&client.receive()));
    }
    // The server is busy, so no worker has a permit.
    clients[0][0].send(GET);
    process.pass(Span::from_millis(10), || {});
    clients[1][0].send(GET);
    process.pass(Span::from_millis(200), || {});
    assert_status(503, &String::from_utf8_lossy(&clients[1][0].receive()));
}

#[test]
fn workers_share_the_queue_of_a_pool() {
    // The server is busy with one request. Each worker has half of the places, rounded up.
    for (queue_max, refused_max) in [(1, 1), (2, 1), (3, 0)] {
        let (mut process, clients) = begin_with(1, &format!("queue-max = {queue_max}"));
        let server = process.net.serve(&Address::Unix(SERVER.to_owned())).expect("a free path");
        clients.iter().flatten().for_each(|client| assert!(client.send(GET) > 0));
        process.pass(Span::from_millis(100), || {});
        let _busy = server.accept().expect("one request is sent");
        let queued: Vec<_> =
            process.workers.iter().map(|worker| worker.worker.leftovers().queued).collect();
        let answers = clients.iter().flatten().map(SimPeer::receive);
        let answers: Vec<_> = answers.filter(|answer| !answer.is_empty()).collect();
        answers.iter().for_each(|answer| assert_status(503, &String::from_utf8_lossy(answer)));
        assert_eq!(answers.len(), refused_max, "queue-max {queue_max}: queued {queued:?}");
        assert_eq!(queued.iter().sum::<usize>(), 3 - refused_max, "queue-max {queue_max}");
    }
}

#[test]
fn workers_share_the_queue_after_a_reload() {
    let (mut process, clients) = begin_with(1, "queue-max = 100");
    let server = process.net.serve(&Address::Unix(SERVER.to_owned())).expect("a free path");
    process.reload("queue-max = 2");
    clients.iter().flatten().for_each(|client| assert!(client.send(GET) > 0));
    process.pass(Span::from_millis(100), || {});
    let _busy = server.accept().expect("one request is sent");
    let answers = clients.iter().flatten().map(SimPeer::receive);
    assert_eq!(answers.filter(|answer| !answer.is_empty()).count(), 1);
}

#[test]
fn worker_that_applies_new_settings_first_gets_a_permit() {
    let (mut process, clients) = begin(1);
    let server = process.net.serve(&Address::Unix(SERVER.to_owned())).expect("a free path");
    let text = format!(
        "[[listener]]\nbind = \"10.0.0.1:80\"\n[[route]]\nproxy = \"new\"\n\
         [pool.new]\nservers = [{{ address = \"unix:{SERVER}\", connections-max = 1 }}]\n"
    );
    let mut numbers = Numbers::of(&process.config);
    let in_use: Vec<InUse> = process.workers.iter().map(|w| InUse::clone(&w.in_use)).collect();
    let arranged = Arranged::first(process.config.clone());
    let in_use = removed_in_use(&in_use, &arranged);
    let arranged = arranged.next(parse(&text), &in_use).expect("few pools");
    // The permit belongs to the first worker, and the second one needs it.
    for at in [1, 0] {
        let shared = ProcessState::new(&arranged.config, 0);
        let addresses = addresses(&arranged.config);
        let next = Snapshot::arranged(arranged.clone(), addresses, shared, &mut numbers);
        process.workers[at].change(next, &TlsPlan::default()).expect("it is valid");
        if at == 1 {
            clients[1][0].send(GET);
        }
        process.pass(Span::from_millis(10), || {});
    }
    let origin = server.accept().expect("the request has the permit");
    origin.send(OK);
    process.pass(Span::from_millis(10), || {});
    assert_status(200, &String::from_utf8_lossy(&clients[1][0].receive()));
}

#[test]
fn workers_without_room_do_not_send_permits_back_and_forth() {
    for (connections_max, shortage) in
        [1, 2, 3, 1000].into_iter().flat_map(|most| [(most, false), (most, true)])
    {
        let (mut process, clients) = begin(connections_max);
        let serve = |path: &str| process.net.serve(&Address::Unix(path.to_owned()));
        let [server, other] = [SERVER, OTHER_SERVER].map(|path| serve(path).expect("a free path"));
        // The other server's connections take the last slots, or connects fail.
        if shortage {
            let connect_shortage_ppm = 1_000_000;
            process.net.set_faults(Faults { connect_shortage_ppm, ..Faults::none() });
        } else {
            clients.iter().for_each(|[first, _]| assert!(first.send(GET_OTHER) > 0));
            process.pass(Span::from_millis(10), || {});
        }
        clients.iter().for_each(|[_, second]| assert!(second.send(GET) > 0));
        process.pass(Span::from_millis(100), || {});
        let queued: Vec<_> =
            process.workers.iter().map(|worker| worker.worker.leftovers().queued).collect();
        assert_eq!(queued, [1, 1], "limit {connections_max}");
        let before = process.mails();
        process.pass(Span::from_secs(1), || {});
        let mails = process.mails() - before;
        assert!(mails <= MAILS_PER_SECOND_MAX, "limit {connections_max}: {mails} mails");
        // When the shortage ends, every request is served soon.
        process.net.set_faults(Faults::none());
        let mut origins: Vec<SimPeer> = core::iter::from_fn(|| other.accept()).collect();
        let mut received = [Vec::new(), Vec::new()];
        process.pass(Span::from_millis(100), || {
            origins.extend(core::iter::from_fn(|| server.accept()));
            for origin in &origins {
                if !origin.receive().is_empty() {
                    origin.send(OK);
                }
            }
            for ([_, second], bytes) in clients.iter().zip(&mut received) {
                bytes.extend(second.receive());
            }
        });
        for bytes in &received {
            assert_status(200, &String::from_utf8_lossy(bytes));
        }
    }
}
