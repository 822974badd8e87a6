//! The driver under a hostile kernel: under every fault, bytes arrive complete or the cut is visible.
//! In: one seed for each run. Out: a failure that names its seed.
//! `TIDEGATE_SEED=<n> cargo test -p tidegate-reactor --test faults` repeats one run;
//! `TIDEGATE_SEEDS=<n>` sets how many runs there are.

use std::collections::BTreeMap;

use tidegate_base::limits::{OUTPUT_FLUSH_BYTES, READ_BUFFER_BYTES};
use tidegate_base::{Address, Prng, Span};
use tidegate_reactor::*;

const OPTIONS: ListenOptions =
    ListenOptions { backlog: 16, reuse_port: false, steer_by_cpu_over: None };
/// A run that takes this many steps without moving a byte makes no progress. The steps of a whole run have no
/// limit of their own: a window of one byte takes two steps for each byte.
const QUIET_STEPS_MAX: usize = 200_000;
/// A talker sends fewer bytes than this, so no talker may receive more.
const TALK_BYTES_MAX: usize = 1 << 18;

fn address(port: u16) -> Address {
    Address::Tcp(([127, 0, 0, 1], port).into())
}

fn for_each_seed(runs: u64, run: impl Fn(u64)) {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    if let Some(seed) = number("TIDEGATE_SEED") {
        return run(seed);
    }
    for seed in 0..number("TIDEGATE_SEEDS").unwrap_or(runs) {
        if let Err(panic) = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| run(seed))) {
            eprintln!("repeat with TIDEGATE_SEED={seed}");
            std::panic::resume_unwind(panic);
        }
    }
}

/// Forwards received bytes, and pauses the reading side while the writing side cannot keep up.
fn pass_on<R: Reactor>(reactor: &mut R, from: SockId, to: SockId, bytes: &[u8]) {
    reactor.send(to, bytes);
    pause_if_behind(reactor, from, to);
}

/// Pauses the reading side while the writing side cannot keep up.
fn pause_if_behind<R: Reactor>(reactor: &mut R, from: SockId, to: SockId) {
    if reactor.output_pending(to) > OUTPUT_FLUSH_BYTES {
        reactor.flush(to);
        if reactor.output_pending(to) > 0 {
            reactor.set_receiving(from, false);
        }
    }
    assert!(reactor.output_pending(to) <= OUTPUT_FLUSH_BYTES + READ_BUFFER_BYTES);
}

/// Echoes every byte, and finishes when the peer does.
#[derive(Default)]
struct Echo {
    corrupts: bool,
}

impl<R: Reactor> Handler<R> for Echo {
    fn handle(&mut self, reactor: &mut R, completion: Completion<'_>) {
        match completion {
            Completion::Received { sock, bytes } => {
                if self.corrupts && bytes.len() > 1000 {
                    bytes[1000] ^= 1;
                }
                pass_on(reactor, sock, sock, bytes);
            }
            Completion::Drained { sock } => reactor.set_receiving(sock, true),
            Completion::Finished { sock } => reactor.finish(sock),
            Completion::Accepted { .. }
            | Completion::AcceptPaused { .. }
            | Completion::Closed { .. }
            | Completion::Connected { .. }
            | Completion::Datagram { .. }
            | Completion::DatagramFailed { .. }
            | Completion::Due { .. }
            | Completion::HungUp { .. }
            | Completion::Relayed { .. }
            | Completion::Timer { .. }
            | Completion::Woken => {}
        }
    }
}

/// A test's peer that sends `to_send` and finishes, while it reads at random times.
struct Talker {
    peer: SimPeer,
    to_send: Vec<u8>,
    sent: usize,
    got: Vec<u8>,
    finished: bool,
}

impl Talker {
    fn new(peer: SimPeer, prng: &mut Prng) -> Self {
        let scale = prng.below(19);
        let count = prng.below(1 << scale) as usize;
        assert!(count < TALK_BYTES_MAX);
        let to_send = (0..count).map(|_| prng.next_u64() as u8).collect();
        Self { peer, to_send, sent: 0, got: Vec::new(), finished: false }
    }

    /// Takes one random step; true if any byte or the end moved.
    fn step(&mut self, prng: &mut Prng) -> bool {
        let mut moved = false;
        if prng.chance(700_000) && self.sent < self.to_send.len() {
            let end = self.to_send.len().min(self.sent + 1 + prng.below(1 << 15) as usize);
            let count = self.peer.send(&self.to_send[self.sent..end]);
            self.sent += count;
            moved |= count > 0;
        }
        if self.sent == self.to_send.len() && !self.finished {
            self.peer.finish();
            self.finished = true;
            moved = true;
        }
        if prng.chance(700_000) {
            let some = self.peer.receive_some(1 + prng.below(1 << 15) as usize);
            moved |= !some.is_empty();
            self.got.extend(some);
            assert!(self.got.len() < TALK_BYTES_MAX, "more bytes arrive than any talker sends");
        }
        moved
    }

    fn is_over(&self) -> bool {
        (self.finished && self.peer.is_finished_by_other()) || self.was_cut()
    }

    fn was_cut(&self) -> bool {
        self.peer.was_reset() && self.peer.arrived_bytes() == 0
    }
}

/// Takes further steps; true if any talker can still move. In a single step, all of them may rest by chance.
fn nudge(talkers: &mut [&mut Vec<Talker>], prng: &mut Prng) -> bool {
    (0..20).any(|_| talkers.iter_mut().any(|some| some.iter_mut().any(|one| one.step(prng))))
}

fn echo_run(seed: u64, faults: fn(&mut Prng) -> Faults, corrupts: bool) {
    let mut prng = Prng::new(seed);
    let faults = faults(&mut prng);
    let net = SimNet::new(prng.next_u64(), faults.clone());
    net.set_window_bytes(1 + prng.below(100_000) as usize);
    let mut reactor = SimReactor::new(&net, 1 + prng.below(8) as usize);
    reactor.listen(&address(80), &OPTIONS).expect("a free address");
    let mut echo = Echo { corrupts };
    let mut talkers: Vec<Talker> = (0..1 + prng.below(6))
        .map(|_| Talker::new(net.dial(&address(80)).expect("a listener is open"), &mut prng))
        .collect();
    let mut quiet_steps = 0;
    while quiet_steps < QUIET_STEPS_MAX {
        reactor.turn(&mut echo, Span::ZERO);
        let mut moved = false;
        for talker in &mut talkers {
            moved |= talker.step(&mut prng);
        }
        quiet_steps = if moved { 0 } else { quiet_steps + 1 };
        let is_over = talkers.iter().all(Talker::is_over) && reactor.sock_count() == 0;
        if is_over {
            break;
        }
        if !moved && !net.advance_to_next_event() {
            let moved = nudge(&mut [&mut talkers], &mut prng);
            assert!(moved, "nothing will ever happen with {faults:?}");
        }
    }
    assert!(quiet_steps < QUIET_STEPS_MAX, "no progress with {faults:?}");
    for talker in &talkers {
        let got = &talker.got;
        assert!(talker.to_send.starts_with(got), "other bytes came back with {faults:?}");
        if !talker.was_cut() {
            assert_eq!(got.len(), talker.to_send.len(), "bytes are missing with {faults:?}");
        }
    }
    assert_eq!((net.open_sockets(), reactor.outputs_count()), (0, 0), "a leak with {faults:?}");
    drop(reactor);
    assert_eq!(net.open_listeners(), 0);
}

#[test]
fn every_byte_returns_under_harmless_faults() {
    for_each_seed(300, |seed| echo_run(seed, Faults::swarm_harmless, false));
}

#[test]
fn many_bytes_through_a_window_of_one_byte_are_progress() {
    let seed = 251_525;
    echo_run(seed, Faults::swarm_harmless, false);
    echo_run(seed, Faults::swarm, false);
    relay_run(seed, false);
}

#[test]
fn echo_is_complete_or_visibly_cut_under_any_fault() {
    for_each_seed(300, |seed| echo_run(seed, Faults::swarm, false));
}

#[test]
#[should_panic(expected = "other bytes came back")]
fn canary_changed_byte_is_detected() {
    for seed in 0..50 {
        echo_run(seed, Faults::swarm_harmless, true);
    }
}

#[test]
fn same_seed_gives_same_run() {
    let run = |seed| {
        let mut prng = Prng::new(seed);
        let net = SimNet::new(seed, Faults::swarm(&mut prng));
        let mut reactor = SimReactor::new(&net, 8);
        reactor.listen(&address(80), &OPTIONS).expect("a free address");
        let mut talker =
            Talker::new(net.dial(&address(80)).expect("a listener is open"), &mut prng);
        for _ in 0..300 {
            reactor.turn(&mut Echo::default(), Span::from_millis(1));
            talker.step(&mut prng);
        }
        (talker.sent, talker.got, net.now())
    };
    for seed in 0..20 {
        assert_eq!(run(seed), run(seed), "seed {seed}");
    }
}

/// Relays each accepted connection to a server. A cut on one side is passed on to the other side.
#[derive(Default)]
struct Relay {
    /// Bytes go from one side to the other inside the kernel.
    by_kernel: bool,
    other: BTreeMap<(u32, u32), SockId>,
}

impl Relay {
    fn take_other(&mut self, sock: SockId) -> Option<SockId> {
        let other = self.other.remove(&(sock.index, sock.generation))?;
        self.other.remove(&(other.index, other.generation));
        Some(other)
    }
}

impl<R: Reactor> Handler<R> for Relay {
    fn handle(&mut self, reactor: &mut R, completion: Completion<'_>) {
        let other = |of: SockId| self.other.get(&(of.index, of.generation)).copied();
        match completion {
            Completion::Accepted { sock, .. } => match reactor.connect(&address(81)) {
                Ok(up) => {
                    reactor.set_deadline(up, reactor.now().after(Span::from_secs(20)));
                    self.other.insert((sock.index, sock.generation), up);
                    self.other.insert((up.index, up.generation), sock);
                }
                Err(_) => reactor.abort(sock),
            },
            Completion::Connected { sock } => {
                reactor.set_deadline(sock, tidegate_base::Moment::NEVER);
                if let Some(down) = other(sock).filter(|_| self.by_kernel) {
                    reactor.relay_to(sock, Some(down));
                    reactor.relay_to(down, Some(sock));
                }
            }
            Completion::Received { sock, bytes } => {
                if let Some(to) = other(sock) {
                    pass_on(reactor, sock, to, bytes);
                }
            }
            Completion::Relayed { sock, .. } => {
                if let Some(to) = other(sock) {
                    pause_if_behind(reactor, sock, to);
                }
            }
            Completion::Finished { sock } => {
                if let Some(to) = other(sock) {
                    reactor.finish(to);
                }
            }
            Completion::Drained { sock } => {
                if let Some(from) = other(sock) {
                    reactor.set_receiving(from, true);
                }
            }
            Completion::Closed { sock, reason } => {
                // After an orderly end on this side, the other side ends by itself. Everything else is a cut.
                if reason != CloseReason::Ended
                    && let Some(to) = self.take_other(sock)
                {
                    reactor.abort(to);
                }
            }
            Completion::Due { sock } => {
                if let Some(down) = self.take_other(sock) {
                    reactor.abort(down);
                }
                reactor.abort(sock);
            }
            Completion::AcceptPaused { .. }
            | Completion::Datagram { .. }
            | Completion::DatagramFailed { .. }
            | Completion::HungUp { .. }
            | Completion::Timer { .. }
            | Completion::Woken => {}
        }
    }
}

fn relay_run(seed: u64, by_kernel: bool) {
    let mut prng = Prng::new(seed);
    let faults = Faults::swarm(&mut prng);
    let net = SimNet::new(prng.next_u64(), faults.clone());
    net.set_window_bytes(1 + prng.below(100_000) as usize);
    let mut reactor = SimReactor::new(&net, 100);
    reactor.listen(&address(80), &OPTIONS).expect("a free address");
    let server = net.serve(&address(81)).expect("a free address");
    let mut relay = Relay { by_kernel, ..Relay::default() };
    let mut clients: Vec<Talker> = (0..1 + prng.below(5))
        .map(|_| Talker::new(net.dial(&address(80)).expect("a listener is open"), &mut prng))
        .collect();
    let mut origins: Vec<Talker> = Vec::new();
    let mut quiet_steps = 0;
    while quiet_steps < QUIET_STEPS_MAX {
        reactor.turn(&mut relay, Span::ZERO);
        origins.extend(server.accept().map(|peer| Talker::new(peer, &mut prng)));
        let mut moved = false;
        for talker in clients.iter_mut().chain(&mut origins) {
            moved |= talker.step(&mut prng);
        }
        quiet_steps = if moved { 0 } else { quiet_steps + 1 };
        if clients.iter().all(Talker::is_over) && reactor.sock_count() == 0 {
            break;
        }
        if !moved && !net.advance_to_next_event() {
            let moved = nudge(&mut [&mut clients, &mut origins], &mut prng);
            assert!(moved, "nothing will ever happen with {faults:?}");
        }
    }
    assert!(quiet_steps < QUIET_STEPS_MAX, "no progress with {faults:?}");
    // Origins may still have to read bytes from their windows after the relay has ended.
    while net.advance_to_next_event() || nudge(&mut [&mut origins], &mut prng) {
        reactor.turn(&mut relay, Span::ZERO);
    }
    for client in &clients {
        let is_prefix = |origin: &Talker| {
            origin.to_send.starts_with(&client.got) && client.to_send.starts_with(&origin.got)
        };
        // An orderly end means for the client that the response is complete; TCP cannot state more.
        let is_whole = |origin: &Talker| {
            is_prefix(origin)
                && client.got.len() == origin.to_send.len()
                && (origin.got.len() == client.to_send.len() || origin.was_cut())
        };
        if client.was_cut() {
            let fits = client.got.is_empty() || origins.iter().any(is_prefix);
            assert!(fits, "bytes that no origin sent, with {faults:?}");
        } else {
            let counts = |one: &Talker| (one.to_send.len(), one.sent, one.got.len(), one.was_cut());
            assert!(
                origins.iter().any(is_whole),
                "an orderly end, but an incomplete stream, with {faults:?}; (to send, sent, got, cut): \
                 client {:?}, origins {:?}",
                counts(client),
                origins.iter().map(counts).collect::<Vec<_>>()
            );
        }
    }
    assert_eq!((net.open_sockets(), reactor.outputs_count()), (0, 0), "a leak with {faults:?}");
}

#[test]
fn relay_delivers_everything_or_shows_the_cut_under_any_fault() {
    for_each_seed(300, |seed| relay_run(seed, false));
}

#[test]
fn kernel_relays_everything_or_shows_the_cut_under_any_fault() {
    for_each_seed(300, |seed| relay_run(seed, true));
}

#[test]
fn accept_shortage_pauses_and_recovers_without_a_leak() {
    let net = SimNet::new(1, Faults { accept_shortage_ppm: 1_000_000, ..Faults::none() });
    let mut reactor = SimReactor::new(&net, 10);
    reactor.listen(&address(80), &OPTIONS).expect("a free address");
    let peer = net.dial(&address(80)).expect("a listener is open");
    struct Counts(u32, u32);
    impl<R: Reactor> Handler<R> for Counts {
        fn handle(&mut self, reactor: &mut R, completion: Completion<'_>) {
            match completion {
                Completion::AcceptPaused { .. } => self.0 += 1,
                Completion::Accepted { sock, .. } => {
                    self.1 += 1;
                    reactor.close(sock);
                }
                _ => {}
            }
        }
    }
    let mut counts = Counts(0, 0);
    let start = net.now();
    for _ in 0..1000 {
        reactor.turn(&mut counts, Span::from_millis(10));
    }
    // Ten virtual seconds have about a hundred pauses, not a thousand: the driver does not spin.
    assert!(net.now().since(start) >= Span::from_secs(9), "the turns did not wait");
    assert!((50..=110).contains(&counts.0), "{} pauses", counts.0);
    assert_eq!(counts.1, 0);
    net.set_faults(Faults::none());
    for _ in 0..20 {
        reactor.turn(&mut counts, Span::from_millis(10));
    }
    assert_eq!(counts.1, 1);
    assert!(peer.is_finished_by_other());
    drop(peer);
    for _ in 0..5 {
        reactor.turn(&mut counts, Span::from_millis(10));
    }
    assert_eq!((net.open_sockets(), reactor.sock_count()), (0, 0));
}

#[test]
fn freed_slot_resumes_accepting_at_once() {
    let net = SimNet::new(1, Faults::none());
    let mut reactor = SimReactor::new(&net, 1);
    reactor.listen(&address(80), &OPTIONS).expect("a free address");
    let peers: Vec<_> = (0..2).filter_map(|_| net.dial(&address(80))).collect();
    #[derive(Default)]
    struct Accepts(Vec<SockId>);
    impl<R: Reactor> Handler<R> for Accepts {
        fn handle(&mut self, _: &mut R, completion: Completion<'_>) {
            if let Completion::Accepted { sock, .. } = completion {
                self.0.push(sock);
            }
        }
    }
    let mut accepts = Accepts::default();
    reactor.turn(&mut accepts, Span::ZERO);
    let (start, first) = (net.now(), accepts.0[0]);
    reactor.abort(first);
    reactor.turn(&mut accepts, Span::from_secs(1));
    assert_eq!((accepts.0.len(), net.now()), (2, start));
    drop(peers);
}

#[test]
fn listener_that_loses_every_connection_does_not_spin() {
    let net = SimNet::new(1, Faults { accept_lost_ppm: 1_000_000, ..Faults::none() });
    let mut reactor = SimReactor::new(&net, 10);
    let options = ListenOptions { backlog: 1000, ..OPTIONS };
    reactor.listen(&address(80), &options).expect("a free address");
    let peers: Vec<_> = (0..200).filter_map(|_| net.dial(&address(80))).collect();
    let start = net.now();
    for _ in 0..20 {
        reactor.turn(&mut Echo::default(), Span::from_millis(1000));
    }
    assert!(
        net.now().since(start) > Span::from_millis(250),
        "accepting did not pause between budgets"
    );
    assert!(peers.iter().all(SimPeer::was_reset));
}

#[test]
fn closed_connection_is_reset_if_its_peer_never_reads() {
    let net = SimNet::new(1, Faults::none());
    let mut reactor = SimReactor::new(&net, 10);
    reactor.listen(&address(80), &OPTIONS).expect("a free address");
    let peer = net.dial(&address(80)).expect("a listener is open");
    struct SendAndClose;
    impl<R: Reactor> Handler<R> for SendAndClose {
        fn handle(&mut self, reactor: &mut R, completion: Completion<'_>) {
            if let Completion::Accepted { sock, .. } = completion {
                reactor.send(sock, &[7; 1_000_000]);
                reactor.close(sock);
            }
        }
    }
    let start = net.now();
    while net.now().since(start) < driver::CLOSE_OUTPUT_MAX + Span::from_millis(50) {
        assert!(net.advance_to_next_event() || reactor.sock_count() == 0);
        reactor.turn(&mut SendAndClose, Span::from_millis(100));
    }
    assert!(peer.was_reset(), "a truncated response must not look complete");
    assert_eq!((reactor.sock_count(), net.open_sockets(), reactor.outputs_count()), (0, 0, 0));
}

#[test]
fn two_workers_share_a_net() {
    let net = SimNet::new(3, Faults::none());
    let mut server = SimReactor::new(&net, 10);
    let mut client = SimReactor::new(&net, 10);
    server.listen(&address(80), &OPTIONS).expect("a free address");
    let sock = client.connect(&address(80)).expect("no shortage");
    client.send(sock, b"over");
    #[derive(Default)]
    struct Keep(Vec<u8>);
    impl<R: Reactor> Handler<R> for Keep {
        fn handle(&mut self, _: &mut R, completion: Completion<'_>) {
            if let Completion::Received { bytes, .. } = completion {
                self.0.extend_from_slice(bytes);
            }
        }
    }
    let mut kept = Keep::default();
    loop {
        client.turn(&mut kept, Span::ZERO);
        server.turn(&mut Echo::default(), Span::ZERO);
        if kept.0 == b"over" || !net.advance_to_next_event() {
            break;
        }
    }
    assert_eq!(kept.0, b"over");
}
