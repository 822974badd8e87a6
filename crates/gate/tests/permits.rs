//! Several workers exchange permits over small mailboxes: never more in use than permitted, none lost, all served.
//! In: random arrivals, ends of requests and deliveries. Out: a failure that names the broken promise.

use std::collections::VecDeque;

use proptest::prelude::*;
use tidegate_base::{Moment, Prng};
use tidegate_config::model::Pool;
use tidegate_gate::balance::{Pick, PoolState, Tried};
use tidegate_gate::permits::{PermitMessage, PermitRequest, Permits, bit, share};

/// Rounds after which every request must have been served.
const ROUNDS_MAX: usize = 2_000;

fn pool(limits: &[u32]) -> Pool {
    let server = |(number, limit): (usize, &u32)| {
        format!("{{ address = \"10.0.0.1:{}\", connections-max = {limit} }}", 8000 + number)
    };
    let servers: Vec<String> = limits.iter().enumerate().map(server).collect();
    let text = format!(
        "[[listener]]\nbind = \"127.0.0.1:80\"\n[[route]]\nproxy = \"p\"\n\
         [pool.p]\nbalance = \"least-connections\"\nservers = [{}]\n",
        servers.join(", ")
    );
    match tidegate_config::parse(&text, "the test") {
        Ok(config) => config.pools[0].clone(),
        Err(errors) => panic!("{errors}"),
    }
}

struct Worker {
    state: PoolState,
    permits: Permits,
    /// The servers that each waiting request was sent to already.
    waiting: VecDeque<Tried>,
    /// The servers of the requests in progress.
    busy: Vec<usize>,
    mailbox: VecDeque<(usize, PermitMessage)>,
    prng: Prng,
    served: usize,
}

impl Worker {
    /// Serves the queue in order, as the server crate does.
    fn serve(&mut self) {
        let mut at = 0;
        while let Some(tried) = self.waiting.get(at) {
            let picked = self.state.pick(Moment::ZERO, &mut self.prng, None, tried);
            let Pick::Server(server) = picked else {
                at += 1;
                continue;
            };
            if self.permits.give_in_turn(&mut self.state, server) {
                continue;
            }
            self.waiting.remove(at);
            self.state.note_start(server);
            self.busy.push(server);
            self.served += 1;
        }
        let usable = self.waiting.iter().flat_map(|tried| self.state.usable(tried));
        let needs = PermitRequest {
            servers: usable.fold(0, |all, server| all | bit(server)),
            count: self.waiting.len() as u32,
        };
        self.permits.settle(&mut self.state, needs);
    }
}

struct Process {
    limits: Vec<u32>,
    workers: Vec<Worker>,
    mailbox_length: usize,
}

impl Process {
    fn new(limits: &[u32], workers: usize, mailbox_length: usize) -> Self {
        let worker = |own| {
            let mut state = PoolState::new(&pool(limits), own as u64);
            state.deal(own, workers);
            Worker {
                state,
                permits: Permits::new(own, workers, limits.len()),
                waiting: VecDeque::new(),
                busy: Vec::new(),
                mailbox: VecDeque::new(),
                prng: Prng::new(own as u64),
                served: 0,
            }
        };
        let workers = (0..workers).map(worker).collect();
        Self { limits: limits.to_vec(), workers, mailbox_length }
    }

    /// A request of worker `at` arrives that was already sent to `tried`.
    fn arrive(&mut self, at: usize, tried: Tried) {
        self.workers[at].waiting.push_back(tried);
        self.workers[at].serve();
        self.send(at);
    }

    /// The oldest request of worker `at` ends.
    fn end(&mut self, at: usize) {
        let worker = &mut self.workers[at];
        if !worker.busy.is_empty() {
            let server = worker.busy.remove(0);
            worker.state.note_end(server);
            worker.serve();
        }
        self.send(at);
    }

    /// Worker `at` takes one message.
    fn take(&mut self, at: usize) {
        let worker = &mut self.workers[at];
        if let Some((from, message)) = worker.mailbox.pop_front() {
            worker.permits.receive(&mut worker.state, from, message);
            worker.serve();
        }
        self.send(at);
    }

    /// Worker `at` sends until a mailbox is full.
    fn send(&mut self, at: usize) {
        while let Some((to, message)) = self.workers[at].permits.next_message() {
            assert_ne!(to, at, "a worker sent a message to itself");
            if self.workers[to].mailbox.len() >= self.mailbox_length {
                self.workers[at].permits.keep(to, message);
                break;
            }
            self.workers[to].mailbox.push_back((at, message));
        }
    }

    /// The number of permits of `server` that are in mailboxes.
    fn travelling(&self, server: usize) -> u32 {
        let messages = self.workers.iter().flat_map(|worker| &worker.mailbox);
        let count = |message: &PermitMessage| match message {
            PermitMessage::Grant { server: of, count, .. } if usize::from(*of) == server => *count,
            PermitMessage::Grant { .. } | PermitMessage::Request(_) => 0,
        };
        messages.map(|(_, message)| count(message)).sum()
    }

    fn check(&self) {
        for (server, &limit) in self.limits.iter().enumerate() {
            let in_use: u32 = self.workers.iter().map(|worker| worker.state.in_use(server)).sum();
            assert!(in_use <= limit, "server {server}: {in_use} in use, {limit} permitted");
            let held: u32 = self.workers.iter().map(|worker| worker.state.permits(server)).sum();
            let unsent: u32 = self.workers.iter().map(|w| w.permits.unsent(server)).sum();
            let all = held + unsent + self.travelling(server);
            assert_eq!(all, limit, "server {server}: a permit was lost or created");
        }
    }

    /// Ends and delivers until no request waits. Returns after how many rounds.
    fn drain(&mut self) -> usize {
        for round in 0..ROUNDS_MAX {
            if self.workers.iter().all(|worker| worker.waiting.is_empty()) {
                return round;
            }
            for at in 0..self.workers.len() {
                self.take(at);
                self.end(at);
                self.check();
            }
        }
        let waiting: Vec<usize> = self.workers.iter().map(|worker| worker.waiting.len()).collect();
        panic!("requests still wait: {waiting:?}");
    }
}

fn tried(servers: &[usize]) -> Tried {
    let mut tried = Tried::default();
    for &server in servers {
        tried.insert(server);
    }
    tried
}

#[test]
fn shares_add_up_to_the_total() {
    for (total, workers) in [(0, 1), (3, 4), (50, 16), (7, 7), (1, 1024), (1000, 3)] {
        for shift in 0..3 {
            let shares = (0..workers).map(|own| share(total, own, workers, shift));
            assert_eq!(shares.sum::<u32>(), total, "{total} among {workers}");
        }
    }
}

#[test]
fn worker_without_a_permit_gets_one_within_two_messages() {
    let mut process = Process::new(&[1], 4, 8);
    process.arrive(3, Tried::default());
    assert_eq!(process.workers[3].served, 0, "worker 0 holds the only permit");
    process.take(0);
    process.take(3);
    assert_eq!(process.workers[3].served, 1);
}

#[test]
fn busy_worker_lends_in_turn_with_its_own_queue() {
    let mut process = Process::new(&[1], 2, 8);
    for _ in 0..6 {
        process.arrive(0, Tried::default());
        process.arrive(1, Tried::default());
    }
    for _ in 0..40 {
        for at in [0, 1] {
            process.take(at);
            process.end(at);
            let [a, b] = [0, 1].map(|at| process.workers[at].served as i32);
            assert!(a.min(b) == 6 || (a - b).abs() <= 2, "{a} and {b} were served");
        }
    }
    assert_eq!(process.drain(), 0);
}

#[test]
fn request_that_needs_a_certain_server_gets_its_permit() {
    let mut process = Process::new(&[1, 1], 3, 8);
    // Worker 2 begins without a permit, and its first request must not go to server 0 again.
    process.arrive(2, tried(&[0]));
    process.arrive(2, tried(&[1]));
    process.drain();
    assert_eq!(process.workers[2].served, 2);
}

proptest! {
    #[test]
    fn no_permit_is_lost_and_every_request_is_served(
        limits in prop::collection::vec(1..5_u32, 1..4),
        workers in 1..6_usize,
        mailbox_length in 1..4_usize,
        steps in prop::collection::vec((0..4_u8, 0..6_usize, 0..4_usize), 0..300),
    ) {
        let mut process = Process::new(&limits, workers, mailbox_length);
        let mut arrived = 0;
        for (what, at, avoided) in steps {
            let at = at % workers;
            match what {
                0 if avoided < limits.len() && limits.len() > 1 => {
                    arrived += 1;
                    process.arrive(at, tried(&[avoided]));
                }
                0 => {
                    arrived += 1;
                    process.arrive(at, Tried::default());
                }
                1 => process.end(at),
                _ => process.take(at),
            }
            process.check();
        }
        process.drain();
        let served: usize = process.workers.iter().map(|worker| worker.served).sum();
        prop_assert_eq!(served, arrived);
    }
}
