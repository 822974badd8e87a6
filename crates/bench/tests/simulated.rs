//! Complete plans in virtual time against a scripted server: percentiles, counts and failures are exact.

use core::net::IpAddr;
use std::collections::BinaryHeap;
use tidegate_base::{Address, Moment, Prng, Span};
use tidegate_bench::client::{Client, ClientOutcome, Shared};
use tidegate_bench::histogram::Times;
use tidegate_bench::plan::{Arrivals, Pace, Plan};
use tidegate_bench::target::{RequestMix, RequestOptions, Target, Url};
use tidegate_reactor::sim::{Faults, SimNet, SimPeer, SimReactor, SimServer};
use tidegate_reactor::{Completion, Driver, Handler, ListenOptions, Peer, Reactor};

/// Step of the clock between two turns of both sides: the error of every time below.
const TICK: Span = Span::from_micros(20);
const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
const MS: fn(u64) -> Span = Span::from_millis;

/// The server's reaction to a request.
#[derive(Clone)]
enum Act {
    /// Sends a response after this time.
    Answer(Span),
    /// Sends these bytes after this time.
    Send(Span, Vec<u8>),
    /// Sends these bytes one by one, at this interval.
    Drip(Span, Vec<u8>),
    /// Sends these bytes and ends the connection.
    SendAndFinish(Vec<u8>),
    /// Resets the connection.
    Reset,
    /// Sends nothing.
    Nothing,
}

struct Connection {
    peer: Option<SimPeer>,
    input: Vec<u8>,
}

type Due = (core::cmp::Reverse<(Moment, u64)>, usize, Vec<u8>);

/// A scripted server: `act` is called for each request, with its number and the time.
struct Server<'a> {
    listener: Option<SimServer>,
    connections: Vec<Connection>,
    act: Box<dyn FnMut(u64, Moment) -> Act + 'a>,
    requests: u64,
    /// Bytes to send: the time (reversed, for the heap), the order, the connection, and the bytes.
    due: BinaryHeap<Due>,
    order: u64,
}

impl<'a> Server<'a> {
    fn new(listener: Option<SimServer>, act: impl FnMut(u64, Moment) -> Act + 'a) -> Self {
        Self {
            listener,
            connections: Vec::new(),
            act: Box::new(act),
            requests: 0,
            due: BinaryHeap::new(),
            order: 0,
        }
    }

    fn send_at(&mut self, at: Moment, connection: usize, bytes: Vec<u8>) {
        self.order += 1;
        self.due.push((core::cmp::Reverse((at, self.order)), connection, bytes));
    }

    fn poll(&mut self, now: Moment) {
        while let Some(peer) = self.listener.as_ref().and_then(SimServer::accept) {
            self.connections.push(Connection { peer: Some(peer), input: Vec::new() });
        }
        for index in 0..self.connections.len() {
            self.serve(index, now);
        }
        while self.due.peek().is_some_and(|(core::cmp::Reverse((at, _)), _, _)| *at <= now) {
            let Some((_, index, bytes)) = self.due.pop() else { break };
            if let Some(peer) = &self.connections[index].peer {
                assert!(peer.was_reset() || peer.send(&bytes) == bytes.len());
            }
        }
    }

    fn serve(&mut self, index: usize, now: Moment) {
        let connection = &mut self.connections[index];
        let Some(peer) = &connection.peer else { return };
        connection.input.extend(peer.receive());
        if peer.is_finished_by_other() || peer.was_reset() {
            if let Some(peer) = connection.peer.take() {
                peer.close();
            }
            return;
        }
        while let Some(end) =
            self.connections[index].input.windows(4).position(|w| w == b"\r\n\r\n")
        {
            self.connections[index].input.drain(..end + 4);
            self.requests += 1;
            match (self.act)(self.requests, now) {
                Act::Answer(delay) => self.send_at(now.after(delay), index, ANSWER.to_vec()),
                Act::Send(delay, bytes) => self.send_at(now.after(delay), index, bytes),
                Act::Drip(every, bytes) => {
                    for (number, byte) in bytes.into_iter().enumerate() {
                        self.send_at(now.after(every * number as u32), index, vec![byte]);
                    }
                }
                Act::SendAndFinish(bytes) => {
                    if let Some(peer) = self.connections[index].peer.take() {
                        peer.send(&bytes);
                        peer.close();
                    }
                    return;
                }
                Act::Reset => {
                    if let Some(peer) = self.connections[index].peer.take() {
                        peer.reset();
                    }
                    return;
                }
                Act::Nothing => {}
            }
        }
    }
}

fn address() -> Address {
    Address::Tcp("10.0.0.1:80".parse().unwrap())
}

fn mix() -> RequestMix {
    let url = Url::parse("http://10.0.0.1/").unwrap();
    RequestMix::single(&url, &RequestOptions::default()).unwrap()
}

/// Runs `plan` against a server scripted by `act`; returns the client's result and the server's count of
/// requests.
fn run_plan(
    plan: &Plan,
    faults: Faults,
    act: impl FnMut(u64, Moment) -> Act,
) -> (ClientOutcome, u64) {
    let net = SimNet::new(plan.seed, faults);
    let listener = net.serve(&address());
    let mut server = Server::new(listener, act);
    run_plan_with(plan, &net, &mut server)
}

fn run_plan_with(plan: &Plan, net: &SimNet, server: &mut Server<'_>) -> (ClientOutcome, u64) {
    run_plan_share(plan, 0, net, server)
}

fn run_plan_share(
    plan: &Plan,
    thread: u16,
    net: &SimNet,
    server: &mut Server<'_>,
) -> (ClientOutcome, u64) {
    let (mix, shared) = (mix(), Shared::default());
    let targets = [Target { address: address(), is_secure: false }];
    let mut reactor = SimReactor::new(net, 10_000);
    let mut client = Client::new(plan, plan.share(thread), &mix, &targets, &shared, net.now());
    let begun = net.now();
    while client.step(&mut reactor, Span::ZERO) {
        net.advance_by(TICK);
        server.poll(net.now());
        assert!(net.now().since(begun) < Span::from_secs(120), "the run does not end");
    }
    (client.finish(net.now()), server.requests)
}

fn open(per_second: f64, arrivals: Arrivals) -> Pace {
    Pace::Total { per_second, arrivals }
}

/// Asserts that a percentile is `expected`, within the histogram's error and a few ticks.
#[track_caller]
fn assert_is(times: &Times, percent: f64, expected: Span) {
    let found = times.percentile_us(percent);
    let expected = expected.as_secs_f64() * 1e6;
    let room = expected * 0.001 + 4.0 * TICK.as_secs_f64() * 1e6;
    assert!((found - expected).abs() <= room, "p{percent}: {found} µs instead of {expected}");
}

#[test]
fn fixed_delay_gives_equal_percentiles() {
    let plan = Plan { connections: 4, duration: Some(MS(2000)), ..Plan::default() };
    let (outcome, answered) = run_plan(&plan, Faults::none(), |_, _| Act::Answer(MS(10)));
    let tally = outcome.tally;
    assert_eq!((tally.requests, tally.errors.total(), tally.unanswered), (answered, 0, 0));
    for percent in [0.1, 50.0, 99.0, 99.99] {
        assert_is(&tally.service, percent, MS(10));
        assert_is(&tally.first_byte, percent, MS(10));
    }
    assert!(tally.requests.abs_diff(800) <= 4, "{}", tally.requests);
}

#[test]
fn bimodal_delay_shows_both_modes() {
    let plan = Plan {
        connections: 50,
        duration: Some(MS(5000)),
        pace: open(1000.0, Arrivals::Constant),
        ..Plan::default()
    };
    let (outcome, _) = run_plan(&plan, Faults::none(), |number, _| {
        Act::Answer(if number % 20 == 0 { MS(30) } else { MS(3) })
    });
    let tally = outcome.tally;
    assert_eq!((tally.requests, tally.unsent), (5000, 0));
    assert_is(&tally.latency, 50.0, MS(3));
    assert_is(&tally.latency, 94.0, MS(3));
    assert_is(&tally.latency, 96.0, MS(30));
    assert_is(&tally.latency, 100.0, MS(30));
    assert_is(&tally.schedule_error, 99.9, Span::ZERO);
}

/// One second without a response, in the middle of a run of ten seconds.
fn stalling(_: u64, now: Moment) -> Act {
    let at = now.since(Moment::ZERO);
    let stall_over = Span::from_secs(6);
    if at >= Span::from_secs(5) && at < stall_over {
        return Act::Answer(stall_over - at + MS(1));
    }
    Act::Answer(MS(1))
}

#[test]
fn open_loop_shows_a_stall_that_a_closed_loop_hides() {
    let base = Plan { connections: 2, duration: Some(MS(10_000)), ..Plan::default() };
    let open_plan = Plan { pace: open(500.0, Arrivals::Constant), ..base.clone() };
    let (open_loop, _) = run_plan(&open_plan, Faults::none(), stalling);
    let (closed_loop, _) = run_plan(&base, Faults::none(), stalling);
    // A tenth of all requests are planned during the stall; they wait half a second on average.
    assert_eq!(open_loop.tally.requests, 5000);
    assert!(open_loop.tally.latency.percentile_us(99.0) > 850_000.0);
    assert!(open_loop.tally.latency.percentile_us(95.0) > 400_000.0);
    assert!(open_loop.tally.waited_for_connection > 400);
    // The service time and the closed loop show only two slow requests.
    assert!(open_loop.tally.service.percentile_us(99.0) < 2_000.0);
    assert!(closed_loop.tally.service.percentile_us(99.0) < 2_000.0);
    assert_is(&closed_loop.tally.service, 100.0, MS(1000));
}

#[test]
fn unsent_requests_are_counted_at_any_rate() {
    let base = Plan { connections: 1, duration: Some(Span::from_secs(2)), ..Plan::default() };
    let plan = Plan { pace: open(1000.0, Arrivals::Constant), timeout: MS(9000), ..base };
    let (outcome, _) = run_plan(&plan, Faults::none(), |_, _| Act::Nothing);
    assert_eq!((outcome.tally.issued, outcome.tally.unsent), (1, 1999));
    // Counting so many one by one would take hours.
    let plan = Plan { pace: open(1e13, Arrivals::Constant), ..plan };
    let (outcome, _) = run_plan(&plan, Faults::none(), |_, _| Act::Nothing);
    assert_eq!((outcome.tally.issued, outcome.tally.unsent), (1, 19_999_999_999_999));
}

#[test]
fn requests_planned_after_the_end_are_not_unsent() {
    // The sixth request is planned between the end and the moment at which the client notices it.
    let plan = Plan {
        duration: Some(Span::from_micros(299_990)),
        pace: open(1e6 / 59_999.0, Arrivals::Constant),
        ..Plan::default()
    };
    let (outcome, answered) = run_plan(&plan, Faults::none(), |_, _| Act::Answer(MS(1)));
    assert_eq!((answered, outcome.tally.unsent), (5, 0));
}

#[test]
fn poisson_arrivals_keep_their_rate() {
    let plan = Plan {
        connections: 100,
        duration: Some(MS(10_000)),
        pace: open(1000.0, Arrivals::Poisson),
        ..Plan::default()
    };
    let (outcome, answered) = run_plan(&plan, Faults::none(), |_, _| Act::Answer(MS(2)));
    let tally = outcome.tally;
    assert_eq!((tally.requests, tally.unsent, tally.unanswered), (answered, 0, 0));
    assert!(tally.requests.abs_diff(10_000) < 400, "{}", tally.requests);
    assert_is(&tally.latency, 99.0, MS(2));
}

#[test]
fn each_connection_keeps_its_own_schedule() {
    let plan = Plan {
        connections: 10,
        duration: Some(MS(3000)),
        pace: Pace::PerConnection { per_second: 20.0, arrivals: Arrivals::Constant },
        ..Plan::default()
    };
    let (outcome, _) = run_plan(&plan, Faults::none(), |_, _| Act::Answer(MS(2)));
    assert!(outcome.tally.requests.abs_diff(600) <= 10, "{}", outcome.tally.requests);
    let (slowest, fastest) = outcome.tally.fairness.unwrap();
    assert!(slowest >= 59 && fastest <= 61, "{slowest} to {fastest}");
}

#[test]
fn unreachable_rate_per_connection_is_reported() {
    let pace = |per_second| Pace::PerConnection { per_second, arrivals: Arrivals::Constant };
    let base = Plan { connections: 10, duration: Some(MS(2000)), ..Plan::default() };
    let kept = Plan { pace: pace(20.0), ..base.clone() };
    let (outcome, _) = run_plan(&kept, Faults::none(), |_, _| Act::Answer(MS(2)));
    let tally = outcome.tally;
    assert_eq!((tally.waited_for_connection, tally.unsent), (0, 0));
    assert_eq!(tally.schedule_error.count(), tally.issued);
    assert_is(&tally.schedule_error, 100.0, Span::ZERO);
    // Each response takes ten times the interval between requests.
    let lost = Plan { pace: pace(1000.0), ..base };
    let (outcome, _) = run_plan(&lost, Faults::none(), |_, _| Act::Answer(MS(10)));
    let tally = outcome.tally;
    assert!(tally.issued + tally.unsent == 20_000 && tally.issued.abs_diff(2000) < 20, "{tally:?}");
    assert!(tally.waited_for_connection + 30 > tally.issued, "{}", tally.waited_for_connection);
}

#[test]
fn connection_opened_late_by_the_ramp_has_no_backlog() {
    let plan = Plan {
        connections: 10,
        duration: Some(MS(1000)),
        ramp: MS(2000),
        pace: Pace::PerConnection { per_second: 20.0, arrivals: Arrivals::Constant },
        ..Plan::default()
    };
    let (outcome, answered) = run_plan(&plan, Faults::none(), |_, _| Act::Answer(MS(2)));
    assert!(
        answered.abs_diff(420) <= 20,
        "half the rate in the ramp, then the full rate: {answered}"
    );
    assert_is(&outcome.tally.latency, 99.0, MS(2));
}

#[test]
fn number_of_requests_starts_after_the_warm_up() {
    let plan = Plan {
        connections: 2,
        requests: Some(50),
        duration: None,
        warm_up: MS(100),
        ..Plan::default()
    };
    let (outcome, answered) = run_plan(&plan, Faults::none(), |_, _| Act::Answer(MS(5)));
    let tally = outcome.tally;
    assert_eq!((tally.requests, tally.issued, tally.unanswered), (50, 50, 0));
    assert!(answered > 80, "{answered}");
}

#[test]
fn warm_up_requests_do_not_count_for_the_number_of_requests() {
    let plan = Plan {
        connections: 50,
        requests: Some(100),
        duration: None,
        warm_up: MS(150),
        timeout: MS(300),
        ..Plan::default()
    };
    let act =
        |act: Act| move |number, _| if number <= 50 { act.clone() } else { Act::Answer(MS(1)) };
    for early in [Act::Answer(MS(200)), Act::Nothing, Act::Reset] {
        let (outcome, _) = run_plan(&plan, Faults::none(), act(early));
        let tally = outcome.tally;
        let (requests, errors) = (tally.requests, tally.errors.total());
        assert_eq!((requests, errors, tally.unanswered), (100, 0, 0), "{:?}", tally.notes);
        assert_eq!(tally.bytes_received, 100 * ANSWER.len() as u64);
    }
}

#[test]
fn stall_that_began_in_the_warm_up_is_in_no_percentile() {
    for pace in [Pace::Closed, open(1000.0, Arrivals::Constant)] {
        let plan = Plan {
            connections: 4,
            duration: Some(MS(2000)),
            warm_up: MS(500),
            pace,
            ..Plan::default()
        };
        let stall_over = MS(600);
        let (outcome, _) = run_plan(&plan, Faults::none(), |_, now| {
            let at = now.since(Moment::ZERO);
            let stalls = at >= MS(100) && at < stall_over;
            Act::Answer(if stalls { stall_over - at } else { MS(1) })
        });
        let times =
            if pace == Pace::Closed { &outcome.tally.service } else { &outcome.tally.latency };
        // Requests planned in the last 0.1 s of the stall count; earlier ones do not.
        assert!(times.percentile_us(100.0) <= 110_000.0, "{}", times.percentile_us(100.0));
        assert!(
            outcome.tally.requests > times.count(),
            "their responses count, their times do not"
        );
    }
}

#[test]
fn byte_rate_covers_the_same_responses_as_the_request_rate() {
    let plan = Plan { connections: 10, duration: Some(MS(100)), ..Plan::default() };
    let (outcome, _) = run_plan(&plan, Faults::none(), |_, _| Act::Answer(MS(30)));
    let tally = outcome.tally;
    assert_eq!((tally.in_time, tally.requests), (30, 40));
    assert_eq!(tally.bytes_in_time, 30 * ANSWER.len() as u64);
    assert_eq!(tally.bytes_received, 40 * ANSWER.len() as u64);
}

#[test]
fn requests_without_a_response_at_the_end_are_unanswered() {
    let plan = Plan { connections: 7, duration: Some(MS(500)), ..Plan::default() };
    let (outcome, _) = run_plan(&plan, Faults::none(), |_, _| Act::Nothing);
    let tally = outcome.tally;
    assert_eq!((tally.requests, tally.errors.total(), tally.unanswered), (0, 0, 7));
    assert_eq!(tally.unconnected, 0);
}

#[test]
fn measured_time_of_a_number_of_requests_ends_with_the_last_response() {
    let plan = Plan { connections: 64, requests: Some(64), duration: None, ..Plan::default() };
    let (outcome, _) = run_plan(&plan, Faults::none(), |_, _| Act::Answer(MS(500)));
    assert_eq!(outcome.tally.in_time, 64);
    assert!(outcome.counted >= MS(500) && outcome.counted < MS(501), "{:?}", outcome.counted);
}

#[test]
fn pause_between_requests_is_kept() {
    let plan = Plan { connections: 5, duration: Some(MS(2000)), think: MS(8), ..Plan::default() };
    let (outcome, _) = run_plan(&plan, Faults::none(), |_, _| Act::Answer(MS(2)));
    assert!(outcome.tally.requests.abs_diff(1000) <= 30, "{}", outcome.tally.requests);
    assert_is(&outcome.tally.service, 99.0, MS(2));
}

#[test]
fn number_of_requests_is_exact_for_all_plans() {
    for (connections, pipeline, per_connection) in
        [(1, 1, None), (7, 1, Some(3)), (3, 16, None), (5, 4, Some(6)), (100, 1, Some(1))]
    {
        let plan = Plan {
            connections,
            pipeline,
            requests_per_connection: per_connection,
            requests: Some(101),
            duration: None,
            ..Plan::default()
        };
        let (outcome, answered) = run_plan(&plan, Faults::none(), |_, _| Act::Answer(MS(1)));
        let tally = outcome.tally;
        assert_eq!((tally.requests, tally.issued, answered), (101, 101, 101), "{plan:?}");
        assert_eq!((tally.errors.total(), tally.unanswered), (0, 0), "{:?}", tally.notes);
    }
}

#[test]
fn warm_up_and_ramp_are_not_measured() {
    let plan = Plan {
        connections: 10,
        duration: Some(MS(1000)),
        ramp: MS(1000),
        pace: open(1000.0, Arrivals::Constant),
        ..Plan::default()
    };
    let (outcome, answered) = run_plan(&plan, Faults::none(), |_, now| {
        let is_ramp = now.since(Moment::ZERO) < MS(990);
        Act::Answer(if is_ramp { MS(5) } else { MS(1) })
    });
    assert_eq!(answered, 1500, "half the rate in the ramp, the full rate after it");
    assert!(outcome.tally.requests.abs_diff(1000) <= 10, "{}", outcome.tally.requests);
    assert_is(&outcome.tally.latency, 98.0, MS(1));
    assert_eq!(outcome.counted, MS(1000));
}

/// Runs fifty requests on two connections against a server that reacts with `act` to every fifth request.
fn run_plan_against(act: &Act) -> ClientOutcome {
    let plan = Plan {
        connections: 2,
        requests: Some(50),
        duration: None,
        timeout: MS(200),
        ..Plan::default()
    };
    let (outcome, _) = run_plan(&plan, Faults::none(), |number, _| {
        if number % 5 == 0 { act.clone() } else { Act::Answer(MS(1)) }
    });
    let tally = &outcome.tally;
    assert_eq!(tally.issued, 50);
    outcome
}

#[test]
fn each_failure_is_counted_in_its_class() {
    let garbage = b"NOT HTTP AT ALL\r\n\r\n".to_vec();
    let cut = b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf".to_vec();
    let not_found = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n".to_vec();
    let twice = [ANSWER, ANSWER].concat();
    let switching = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n".to_vec();
    let cases: [(Act, &str, u64); 9] = [
        (Act::Send(MS(1), garbage), "framing", 40),
        (Act::Send(MS(1), switching), "framing", 40),
        (Act::SendAndFinish(cut.clone()), "closed", 40),
        (Act::SendAndFinish(Vec::new()), "closed", 40),
        (Act::Send(MS(1), cut), "timeout", 40),
        (Act::Nothing, "timeout", 40),
        (Act::Drip(MS(50), ANSWER.to_vec()), "timeout", 40),
        (Act::Reset, "reset", 40),
        (Act::Send(MS(1), not_found), "status", 50),
    ];
    for (act, class, requests) in cases {
        let tally = run_plan_against(&act).tally;
        assert_eq!(tally.requests, requests, "{class}: {tally:?}");
        let count = tally.errors.classes().iter().find(|(name, _)| *name == class).unwrap().1;
        assert_eq!((count, tally.errors.total()), (10, 10), "{class}: {:?}", tally.errors);
        assert_eq!(tally.notes.len(), 1, "{:?}", tally.notes);
    }
    let tally = run_plan_against(&Act::Send(MS(1), twice)).tally;
    assert_eq!(
        (tally.requests, tally.errors.framing),
        (50, 10),
        "the second response has no request"
    );
}

#[test]
fn response_in_single_bytes_is_one_response() {
    let tally = run_plan_against(&Act::Drip(MS(1), ANSWER.to_vec())).tally;
    assert_eq!((tally.requests, tally.errors.total()), (50, 0));
    assert!(tally.first_byte.max_us() < 1100.0 && tally.service.max_us() > 30_000.0);
}

#[test]
fn server_that_closes_each_connection_causes_no_error() {
    let closing = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok".to_vec();
    let until_close = b"HTTP/1.1 200 OK\r\n\r\nok".to_vec();
    for bytes in [closing, until_close] {
        let tally = run_plan_against(&Act::SendAndFinish(bytes)).tally;
        assert_eq!((tally.requests, tally.errors.total()), (50, 0), "{:?}", tally.notes);
        assert!(tally.connects >= 10);
    }
}

#[test]
fn missing_server_gives_only_connect_errors() {
    let plan = Plan { connections: 3, requests: Some(10), duration: None, ..Plan::default() };
    let net = SimNet::new(1, Faults::none());
    let mut server = Server::new(None, |_, _| Act::Nothing);
    let (outcome, _) = run_plan_with(&plan, &net, &mut server);
    let errors = outcome.tally.errors;
    assert!(errors.connect > 0 && errors.total() == errors.connect, "{errors:?}");
    assert_eq!((outcome.tally.requests, outcome.tally.issued), (0, 0));
    assert!(outcome.tally.gave_up, "the requests of the plan were not sent");
}

#[test]
fn run_continues_after_all_connections_were_closed() {
    let plan = Plan {
        connections: 1,
        duration: Some(Span::from_secs(14)),
        pace: open(2.0, Arrivals::Constant),
        requests_per_connection: Some(24),
        ..Plan::default()
    };
    let closing = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok".to_vec();
    let (outcome, answered) = run_plan(&plan, Faults::none(), |number, _| match number {
        24 => Act::SendAndFinish(closing.clone()),
        _ => Act::Answer(MS(1)),
    });
    assert_eq!((outcome.tally.requests, answered, outcome.tally.unsent), (28, 28, 0));
    assert_eq!((outcome.counted, outcome.tally.gave_up), (Span::from_secs(14), false));
}

#[test]
fn last_request_has_its_full_timeout() {
    let plan = Plan { connections: 4, requests: Some(4), duration: None, ..Plan::default() };
    let (outcome, _) =
        run_plan(&plan, Faults::none(), |_, _| Act::Answer(plan.timeout - Span::from_secs(1)));
    let tally = outcome.tally;
    assert_eq!((tally.requests, tally.unanswered, tally.errors.total()), (4, 0, 0));
    let (outcome, _) = run_plan(&plan, Faults::none(), |_, _| Act::Nothing);
    assert!(outcome.counted >= plan.timeout, "{:?}", outcome.counted);
    let tally = outcome.tally;
    assert_eq!((tally.requests, tally.unanswered, tally.errors.timeout), (0, 0, 4));
}

#[test]
fn thread_waits_for_a_connection_that_the_ramp_opens_late() {
    let ramp = Span::from_secs(24);
    let base = Plan { connections: 2, threads: 2, ramp, ..Plan::default() };
    let plan = Plan { duration: Some(MS(1000)), think: MS(100), ..base };
    let net = SimNet::new(1, Faults::none());
    let mut server = Server::new(net.serve(&address()), |_, _| Act::Answer(MS(1)));
    let (outcome, _) = run_plan_share(&plan, 1, &net, &mut server);
    assert!(outcome.tally.requests > 0 && !outcome.tally.gave_up, "{:?}", outcome.tally);
}

#[test]
fn each_request_is_counted_once_under_random_faults() {
    for seed in 0..60 {
        let mut prng = Prng::new(seed);
        let plan = Plan {
            connections: 1 + prng.below(20) as u32,
            pipeline: 1 + prng.below(4) as u16,
            requests: Some(200),
            duration: Some(Span::from_secs(5)),
            pace: if prng.chance(500_000) { Pace::Closed } else { open(400.0, Arrivals::Poisson) },
            requests_per_connection: prng.chance(300_000).then(|| 1 + prng.below(9)),
            timeout: MS(300),
            seed,
            ..Plan::default()
        };
        let faults = Faults::swarm(&mut prng);
        let net = SimNet::new(seed, faults);
        let mut server = Server::new(net.serve(&address()), |_, _| Act::Answer(MS(1)));
        let (outcome, seen) = run_plan_with(&plan, &net, &mut server);
        let tally = outcome.tally;
        let errors = tally.errors;
        let failed = errors.reset + errors.closed + errors.timeout + errors.framing;
        assert!(tally.requests <= seen, "seed {seed}: more responses than the server sent");
        assert!(
            tally.requests + tally.unanswered <= tally.issued
                && tally.issued <= tally.requests + tally.unanswered + failed,
            "seed {seed}: {tally:?}"
        );
        assert_eq!(errors.framing, 0, "seed {seed}: {:?}", tally.notes);
    }
}

/// A server that records the source addresses of its connections.
#[derive(Default)]
struct SourceRecorder {
    sources: Vec<IpAddr>,
    requests: u64,
}

impl<R: Reactor> Handler<R> for SourceRecorder {
    fn handle(&mut self, reactor: &mut R, completion: Completion<'_>) {
        match completion {
            Completion::Accepted { peer: Peer::Tcp(peer), .. } => self.sources.push(peer.ip()),
            Completion::Received { sock, bytes } => {
                assert!(bytes.ends_with(b"\r\n\r\n"), "one complete request at a time");
                self.requests += 1;
                reactor.send(sock, ANSWER);
            }
            Completion::Finished { sock } => reactor.close(sock),
            _ => {}
        }
    }
}

#[test]
fn reopened_connections_keep_their_source_address() {
    let sources: Vec<IpAddr> = (2..5).map(|last| [10, 0, 0, last].into()).collect();
    let plan = Plan {
        connections: 12,
        threads: 2,
        requests: Some(72),
        duration: None,
        requests_per_connection: Some(2),
        sources: sources.clone(),
        ..Plan::default()
    };
    for thread in 0..2 {
        let net = SimNet::new(1, Faults::none());
        let (mix, shared) = (mix(), Shared::default());
        let targets = [Target { address: address(), is_secure: false }];
        let (mut near, mut far) = (SimReactor::new(&net, 100), SimReactor::new(&net, 100));
        let options = ListenOptions { backlog: 64, reuse_port: false, steer_by_cpu_over: None };
        far.listen(&address(), &options).unwrap();
        let mut recorder = SourceRecorder::default();
        let share = plan.share(thread);
        let mut client = Client::new(&plan, share, &mix, &targets, &shared, net.now());
        while client.step(&mut near, Span::ZERO) {
            net.advance_by(TICK);
            far.turn(&mut recorder, Span::ZERO);
            assert!(net.now() < Moment::ZERO.after(Span::from_secs(60)), "the run does not end");
        }
        let tally = client.finish(net.now()).tally;
        assert_eq!((tally.requests, recorder.requests, tally.errors.total()), (36, 36, 0));
        // Six connections of this thread, each opened three times: two from each source each time.
        for source in &sources {
            let count = recorder.sources.iter().filter(|seen| *seen == source).count();
            assert_eq!(count, 6, "{source}: {:?}", recorder.sources);
        }
    }
}
