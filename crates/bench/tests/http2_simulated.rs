//! HTTP/2 plans in virtual time: every request is counted once, whatever the network and the server do.

use tidegate_base::{Address, Moment, Prng, Span};
use tidegate_bench::client::{Client, ClientOutcome, Shared};
use tidegate_bench::plan::{Arrivals, Pace, Plan, Protocol};
use tidegate_bench::target::{RequestMix, RequestOptions, Target, Url};
use tidegate_reactor::sim::{Faults, SimNet, SimPeer, SimReactor, SimServer};
use tidegate_wire::http2::{Config, Connection, ErrorCode, Event, Scratch};

const TICK: Span = Span::from_micros(50);
const MS: fn(u64) -> Span = Span::from_millis;

struct Link {
    peer: SimPeer,
    connection: Connection,
    out: Vec<u8>,
    /// The TCP connection ends when `out` is sent.
    is_ending: bool,
}

/// The server's reaction to a request.
#[derive(Clone, Copy)]
enum Act {
    Respond,
    Cancel,
    Refuse,
    /// Announces with GOAWAY that this was the last request.
    GoAway,
    /// Resets the TCP connection.
    End,
    Ignore,
}

/// Responds to most requests; refuses, resets or ignores the others, or ends the connection with them.
fn act_at_random(_: u64, prng: &mut Prng) -> Act {
    match prng.below(200) {
        0 => Act::Cancel,
        1..4 => Act::Refuse,
        4 => Act::GoAway,
        5 => Act::End,
        6 => Act::Ignore,
        _ => Act::Respond,
    }
}

/// A server that calls `act` for each request, with the number of the request from 0.
struct Server {
    listener: SimServer,
    config: Config,
    act: fn(u64, &mut Prng) -> Act,
    prng: Prng,
    scratch: Scratch,
    links: Vec<Link>,
    requests: u64,
    responses: u64,
}

impl Server {
    fn poll(&mut self, now: Moment) {
        while let Some(peer) = self.listener.accept() {
            let mut connection = Connection::new(self.config, now);
            let mut out = Vec::new();
            connection.start(&mut out);
            self.links.push(Link { peer, connection, out, is_ending: false });
        }
        for link in &mut self.links {
            let came = link.peer.receive();
            let mut input = &came[..];
            while let Ok(Some(event)) =
                link.connection.receive(now, &mut input, &mut self.scratch, &mut link.out)
            {
                let (stream, ends) = match event {
                    Event::Request { stream, ends, .. } => (stream, ends),
                    Event::Data { stream, bytes, ends, .. } => {
                        let count = bytes.len();
                        link.connection.release(&mut link.out, stream, count);
                        (stream, ends)
                    }
                    _ => continue,
                };
                if !ends {
                    continue;
                }
                let act = (self.act)(self.requests, &mut self.prng);
                self.requests += 1;
                match act {
                    Act::Cancel => {
                        link.connection.reset(&mut link.out, stream, ErrorCode::CANCEL);
                    }
                    Act::Refuse => {
                        link.connection.reset(&mut link.out, stream, ErrorCode::REFUSED_STREAM);
                    }
                    Act::GoAway => link.connection.stop_now(&mut link.out),
                    Act::End => link.is_ending = true,
                    Act::Ignore => {}
                    Act::Respond => {
                        self.responses += 1;
                        link.connection.send_response(&mut link.out, stream, 200, false, |_| {});
                        link.connection.send_data(now, &mut link.out, stream, b"hello", true);
                    }
                }
            }
            let sent = link.peer.send(&link.out);
            link.out.drain(..sent);
            if link.out.is_empty() {
                link.connection.output_drained();
                if link.is_ending {
                    link.peer.reset();
                }
            }
        }
        self.links.retain(|link| !link.peer.is_finished_by_other() && !link.peer.was_reset());
        self.links.retain(|link| !(link.is_ending && link.out.is_empty()));
    }
}

/// Runs `plan` against a server that does `act`; returns the client's result and the number of responses that the
/// server sent.
fn run_plan(
    plan: &Plan,
    faults: Faults,
    options: &RequestOptions,
    act: fn(u64, &mut Prng) -> Act,
) -> (ClientOutcome, u64) {
    let net = SimNet::new(plan.seed, faults);
    let address = Address::Tcp("10.0.0.1:80".parse().unwrap());
    let mut prng = Prng::new(plan.seed + 1000);
    let mut server = Server {
        listener: net.serve(&address).unwrap(),
        config: Config { streams_max: 1 + prng.below(12) as u32, ..Config::server() },
        act,
        prng,
        scratch: Scratch::new(),
        links: Vec::new(),
        requests: 0,
        responses: 0,
    };
    let mix = RequestMix::single(&Url::parse("http://a.example/").unwrap(), options).unwrap();
    let targets = [Target { address, is_secure: false }];
    let shared = Shared::default();
    let mut reactor = SimReactor::new(&net, 1000);
    let mut client = Client::new(plan, plan.share(0), &mix, &targets, &shared, net.now());
    while client.step(&mut reactor, Span::ZERO) {
        net.advance_by(TICK);
        server.poll(net.now());
        assert!(net.now() < Moment::ZERO.after(Span::from_secs(60)), "the run does not end");
    }
    (client.finish(net.now()), server.responses)
}

#[test]
fn each_request_is_counted_once_under_random_faults() {
    let mut all = 0;
    for seed in 0..60 {
        let mut prng = Prng::new(seed);
        let is_closed = prng.chance(500_000);
        let plan = Plan {
            connections: 1 + prng.below(8) as u32,
            protocol: Protocol::Http2,
            pipeline: 1 + prng.below(16) as u16,
            requests: Some(300),
            duration: Some(Span::from_secs(3)),
            pace: match is_closed {
                true => Pace::Closed,
                false => Pace::Total { per_second: 400.0, arrivals: Arrivals::Poisson },
            },
            requests_per_connection: prng.chance(300_000).then(|| 1 + prng.below(30)),
            timeout: MS(300),
            seed,
            ..Plan::default()
        };
        let body = if prng.chance(300_000) { vec![b'x'; 100_000] } else { Vec::new() };
        let options = RequestOptions { body, ..RequestOptions::default() };
        let (outcome, sent) = run_plan(&plan, Faults::swarm(&mut prng), &options, act_at_random);
        let tally = outcome.tally;
        let errors = tally.errors;
        let failed = errors.reset + errors.closed + errors.timeout + errors.refused;
        assert!(tally.requests <= sent, "seed {seed}: more responses than the server sent");
        assert!(
            tally.requests + tally.unanswered + errors.refused <= tally.issued
                && tally.issued <= tally.requests + tally.unanswered + failed,
            "seed {seed}: {tally:?}"
        );
        assert_eq!(errors.framing, 0, "seed {seed}: {:?}", tally.notes);
        all += tally.requests;
    }
    assert!(all > 3000, "the servers sent {all} responses only");
}

#[test]
fn request_without_a_response_is_cancelled_alone() {
    let ignore_each_tenth = |number: u64, _: &mut Prng| {
        if number.is_multiple_of(10) { Act::Ignore } else { Act::Respond }
    };
    // A request each 10 ms: other responses arrive during the timeout of the ignored one.
    let plan = Plan {
        connections: 1,
        protocol: Protocol::Http2,
        pipeline: 3,
        requests: Some(40),
        duration: None,
        pace: Pace::Total { per_second: 100.0, arrivals: Arrivals::Constant },
        timeout: MS(150),
        ..Plan::default()
    };
    let options = RequestOptions::default();
    let (outcome, sent) = run_plan(&plan, Faults::none(), &options, ignore_each_tenth);
    let tally = outcome.tally;
    assert_eq!((tally.requests, sent), (36, 36), "{:?}", tally.notes);
    assert_eq!((tally.errors.timeout, tally.errors.total(), tally.unanswered), (4, 4, 0));
    assert_eq!(tally.connects, 1, "the connection is kept");
}
