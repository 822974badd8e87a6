//! The subscribers of one thread: many WebSocket connections that mostly wait.
//! In: readiness of sockets, the phase of the run. Out: receipts, times, failures.
//! Never: allocates for a connection that waits; sends anything but handshakes, Pongs, Close frames and the messages of talkers.
//! Limits: `OPENING_MAX` connections are being established at once; a connection holds 24 bytes (16 of them asserted here, 8 in
//! `fairness.rs`), and up to `KEPT_BYTES_MAX` while a frame or a head arrives in pieces.
//! Invariant: a member has a socket exactly while its state is not `Absent`.

use super::fairness::{Account, Fairness};
use super::payload::{Payload, SIZE_MAX};
use super::secured::{Sessions, SubscriberTls};
use super::sequence::{Receipt, Receipts, SequenceWindow};
use super::talkers::{SENT_PER_TURN_MAX, Talkers, Talks};
use super::{Phase, PushPlan, Shared};
use crate::handshake::Handshake;
use crate::histogram::Times;
use crate::input::{self, Connections, Input};
use crate::machine;
use crate::plan::{Schedule, Share};
use crate::report::sockets::ThreadTime;
use crate::socket::{self, EVENTS_MAX};
use core::net::SocketAddr;
use core::sync::atomic::Ordering::Relaxed;
use rustix::event::epoll::{self, EventFlags};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::time::{Duration, Instant};
use tidegate_base::Span;
use tidegate_wire::websocket::{
    Close, CloseCode, FrameHead, FrameRules, Kind, Opcode, Role, encode_close_reply,
    encode_message, encode_pong,
};

/// How many connections of a thread are being established at once, unless a rate limits them.
const OPENING_MAX: usize = 32;
/// How many connections a thread begins before it handles the events of its other connections.
const OPENINGS_PER_TURN_MAX: usize = 32;
/// Bytes that are kept of an incomplete frame or head.
const KEPT_BYTES_MAX: usize = SIZE_MAX + 32 * 1024;
/// How long a thread waits for events before it checks the phase of the run.
const WAIT_MAX: Duration = Duration::from_millis(250);
/// The key of the frames that subscribers send. It need not be random: a random key protects proxies from scripts in browsers.
const MASK: [u8; 4] = [0x5a, 0xa5, 0x3c, 0xc3];
/// Server frames have no key, and no extension was offered.
const RULES: FrameRules = FrameRules { role: Role::Client, allows_deflate: false };

/// A subscriber.
struct Member {
    /// The connection; `None` exactly in the state `Absent`.
    socket: Option<OwnedFd>,
    state: State,
}

const _: () = assert!(size_of::<Member>() <= 16);

/// The state of a subscriber.
#[derive(Clone, Copy)]
enum State {
    /// The connection was not begun, could not be established, or has ended.
    Absent,
    /// The TCP connection is pending since this time, in microseconds from the start.
    Connecting(u32),
    /// The TLS handshake is pending. The time is that of the connection attempt.
    Securing(u32),
    /// The response to the handshake is pending. The time is that of the connection attempt.
    Greeting(u32),
    /// The reply to the subscription is pending, in the client protocol. The time is that of the connection attempt.
    Joining(u32),
    /// Subscribed.
    Open(SequenceWindow),
}

impl State {
    /// When the connection was begun, if it is not established.
    const fn since(self) -> Option<u32> {
        match self {
            Self::Connecting(at) | Self::Securing(at) | Self::Greeting(at) | Self::Joining(at) => {
                Some(at)
            }
            Self::Absent | Self::Open(_) => None,
        }
    }
}

/// When the receipts of one publication came, in nanoseconds from the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spread {
    /// The number of receipts.
    pub count: u64,
    /// The first one.
    pub first: u64,
    /// The last one.
    pub last: u64,
}

impl Spread {
    /// Adds receipts.
    pub fn add(&mut self, other: Self) {
        if other.count == 0 {
            return;
        }
        self.first = if self.count == 0 { other.first } else { self.first.min(other.first) };
        self.last = self.last.max(other.last);
        self.count += other.count;
    }
}

/// The results of the subscribers of one thread, or of all threads.
#[derive(Debug)]
pub struct SubscribersOutcome {
    /// Subscriptions that were established, by channel.
    pub opened: Vec<u64>,
    /// Connections that could not be established, by reason.
    pub failed: BTreeMap<String, u64>,
    /// Subscriptions that ended before the run did, by reason.
    pub lost: BTreeMap<String, u64>,
    /// When the last subscription was established, in nanoseconds from the start.
    pub opened_last: u64,
    /// Times from the connection attempt to the subscription.
    pub setup: Times,
    /// Times from the publish call to the receipt.
    pub latency: Times,
    /// The receipts.
    pub receipts: Receipts,
    /// When each of the first publications was received.
    pub spreads: Vec<Spread>,
    /// How alike the connections were treated.
    pub fairness: Fairness,
    /// The messages that the subscribers have sent.
    pub talks: Talks,
    /// Time that the threads used while publications were sent: on a CPU, waiting for a CPU, and in total.
    pub used: ThreadTime,
    /// The CPU share of the busiest thread while publications were sent, from 0 to 1.
    pub busiest: f64,
}

impl SubscribersOutcome {
    /// An empty outcome of a run with `channels` channels, whose first `tracked` publications have spreads.
    #[must_use]
    pub fn new(channels: usize, tracked: usize) -> Self {
        Self {
            opened: vec![0; channels],
            failed: BTreeMap::new(),
            lost: BTreeMap::new(),
            opened_last: 0,
            setup: Times::fine(),
            latency: Times::fine(),
            receipts: Receipts::default(),
            spreads: vec![Spread::default(); tracked],
            fairness: Fairness::new(),
            talks: Talks::new(),
            used: ThreadTime::default(),
            busiest: 0.0,
        }
    }

    /// Adds the outcome of another thread.
    pub fn add(&mut self, other: &Self) {
        for (sum, count) in self.opened.iter_mut().zip(&other.opened) {
            *sum += count;
        }
        for (all, some) in [(&mut self.failed, &other.failed), (&mut self.lost, &other.lost)] {
            for (reason, count) in some {
                *all.entry(reason.clone()).or_default() += count;
            }
        }
        self.opened_last = self.opened_last.max(other.opened_last);
        self.setup.add(&other.setup);
        self.latency.add(&other.latency);
        self.receipts.add(&other.receipts);
        for (sum, spread) in self.spreads.iter_mut().zip(&other.spreads) {
            sum.add(*spread);
        }
        self.fairness.add(&other.fairness);
        self.talks.add(&other.talks);
        self.used.cpu += other.used.cpu;
        self.used.delay += other.used.delay;
        self.used.wall += other.used.wall;
        self.busiest = self.busiest.max(other.busiest);
    }
}

/// The subscribers of one thread.
pub(super) struct Subscribers<'a> {
    /// The plan of the run.
    plan: &'a PushPlan,
    shared: &'a Shared,
    /// The index of this thread in `Shared::counts`.
    thread: usize,
    /// The server's address.
    address: SocketAddr,
    handshake: &'a Handshake,
    /// Begins TLS sessions; `None` without TLS.
    tls: Option<&'a SubscriberTls>,
    /// The TLS sessions.
    sessions: Sessions,
    /// Decodes the numbers of messages.
    payload: Payload,
    /// The connections of the plan that belong to this thread.
    share: Share,
    /// Reports the events of the members' sockets by their index.
    epoll: OwnedFd,
    /// The subscribers, by their index among those of the thread.
    members: Vec<Member>,
    /// The messages that each of them has received.
    accounts: Vec<Account>,
    /// Those that send messages.
    talkers: Talkers,
    /// Scratch space for the messages of a talker.
    out: Vec<u8>,
    /// How many connections were begun. Members from this index on are `Absent`.
    begun: u32,
    /// When the next member is due, if a rate limits them.
    schedule: Option<(Schedule, Duration)>,
    /// Connections that were begun: member and time in microseconds, oldest first. Some are already established or have ended.
    opening: VecDeque<(u32, u32)>,
    /// How many members are `Connecting` or `Greeting`.
    pending: usize,
    /// The incomplete heads and frames of all members.
    input: Input,
    /// The results so far.
    outcome: SubscribersOutcome,
    /// CPU time, run delay and clock of the thread at the start of the publications; `None` before.
    before: Option<(Duration, Duration, Instant)>,
    /// Subscriptions that were established.
    opened: u64,
    /// Subscriptions that ended before the run.
    lost: u64,
    /// Connections that could not be established.
    failed: u64,
}

impl<'a> Subscribers<'a> {
    /// The subscribers of thread `thread`.
    ///
    /// # Errors
    /// If epoll fails.
    pub(super) fn new(
        plan: &'a PushPlan,
        shared: &'a Shared,
        thread: u16,
        address: SocketAddr,
        (handshake, tls): (&'a Handshake, Option<&'a SubscriberTls>),
    ) -> io::Result<Self> {
        let share = plan.share(thread);
        let mut members = Vec::with_capacity(share.connections as usize);
        members.resize_with(share.connections as usize, || Member {
            socket: None,
            state: State::Absent,
        });
        let schedule = plan.setup_rate.map(|rate| {
            let threads = f64::from(plan.threads);
            let phase = f64::from(thread) / threads;
            let mut schedule = Schedule::new(
                rate / threads,
                Span::ZERO,
                crate::plan::Arrivals::Constant,
                phase,
                1,
            );
            let first = Duration::from_secs_f64(schedule.next_arrival().as_secs_f64());
            (schedule, first)
        });
        Ok(Self {
            plan,
            shared,
            thread: usize::from(thread),
            address,
            handshake,
            tls,
            sessions: Sessions::default(),
            payload: plan.payload,
            share,
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            members,
            accounts: vec![Account::default(); share.connections as usize],
            talkers: Talkers::new((share.connection_first, share.connections), plan.talk.as_ref()),
            out: Vec::new(),
            begun: 0,
            schedule,
            opening: VecDeque::new(),
            pending: 0,
            input: Input::new(KEPT_BYTES_MAX),
            outcome: SubscribersOutcome::new(plan.channels as usize, plan.tracked()),
            before: None,
            opened: 0,
            lost: 0,
            failed: 0,
        })
    }

    /// Opens the connections and receives until the run ends.
    ///
    /// # Errors
    /// If epoll fails.
    pub(super) fn run(mut self) -> io::Result<SubscribersOutcome> {
        let mut events = Vec::with_capacity(EVENTS_MAX);
        let mut over_since = None;
        loop {
            let phase = self.shared.phase();
            if phase == Phase::Over {
                // The server may not have read the last messages.
                let since: &Instant = over_since.get_or_insert_with(Instant::now);
                if self.talkers.unread() == 0 || since.elapsed() >= self.plan.timeout {
                    break;
                }
            }
            if phase == Phase::Publishing && self.before.is_none() {
                self.before =
                    Some((machine::thread_cpu_time(), machine::thread_run_delay(), Instant::now()));
            }
            let mut wait = self.open_members();
            if phase == Phase::Publishing {
                wait = wait.min(self.talk());
            }
            socket::wait(&self.epoll, &mut events, wait)?;
            for event in &events {
                self.handle_event(event.data.u64() as u32, event.flags);
            }
            self.give_up_slow();
            self.publish_counts();
        }
        if let Some((cpu, delay, start)) = self.before {
            let used = &mut self.outcome.used;
            used.cpu = machine::thread_cpu_time().saturating_sub(cpu);
            used.delay = machine::thread_run_delay().saturating_sub(delay);
            used.wall = start.elapsed();
            self.outcome.busiest = used.cpu.as_secs_f64() / used.wall.as_secs_f64().max(1e-9);
        }
        self.outcome.talks.unread = self.talkers.unread();
        for (member, account) in self.members.iter().zip(&self.accounts) {
            if let Some(socket) = &member.socket {
                socket::reset_on_close(socket);
                self.outcome.fairness.note(*account);
            }
        }
        Ok(self.outcome)
    }

    /// Begins the connections that are due. Returns how long the thread may wait for events.
    fn open_members(&mut self) -> Duration {
        let due_in = |at: Duration, now: Duration| at.saturating_sub(now).min(WAIT_MAX);
        for _ in 0..OPENINGS_PER_TURN_MAX {
            if self.begun >= self.share.connections || self.shared.is_full.load(Relaxed) {
                return if self.pending > 0 { WAIT_MAX / 4 } else { WAIT_MAX };
            }
            let now = self.shared.start.elapsed();
            if let Some((schedule, at)) = &mut self.schedule {
                if *at > now {
                    return due_in(*at, now);
                }
                *at = Duration::from_secs_f64(schedule.next_arrival().as_secs_f64());
            } else if self.pending >= OPENING_MAX {
                return WAIT_MAX / 4;
            }
            self.open_member(now.as_micros() as u32);
        }
        Duration::ZERO
    }

    /// Sends the messages of talkers that are due. Returns how long the thread may wait for events.
    fn talk(&mut self) -> Duration {
        let Some(from) = self.shared.publishing_from() else { return WAIT_MAX };
        for _ in 0..SENT_PER_TURN_MAX {
            let Some(due) = self.talkers.next_due() else { return WAIT_MAX };
            let now = self.shared.start.elapsed();
            if from + due > now {
                return (from + due - now).min(WAIT_MAX);
            }
            let Some((at, index)) = self.talkers.take_turn() else { return WAIT_MAX };
            let member = &self.members[index as usize];
            let (Some(socket), State::Open(_)) = (&member.socket, member.state) else { continue };
            self.out.clear();
            if !self.talkers.encode(at, MASK, &mut self.out) {
                self.outcome.talks.skipped += 1;
                continue;
            }
            let bytes = self.sessions.seal(index, &self.out).unwrap_or(&self.out);
            let length = bytes.len();
            match socket::send(socket, bytes) {
                Ok(taken) if taken == length => {
                    self.outcome.talks.sent += 1;
                    self.talkers.note_sent(at, now.as_nanos() as u64);
                }
                // Nothing was sent, so the frames are still whole. Records are numbered, so a missing record ends a session.
                Ok(0) if self.tls.is_none() => self.outcome.talks.skipped += 1,
                Ok(_) => self.end(index, "the server does not read what a subscriber sends"),
                // A broken connection is seen by the next receive call.
                Err(_) => {}
            }
        }
        Duration::ZERO
    }

    fn note_pong(&mut self, index: u32, payload: &[u8]) {
        if let Some(sent_at) = self.talkers.take_pong(index, payload) {
            let now = self.shared.start.elapsed().as_nanos() as u64;
            self.outcome.talks.times.record(Duration::from_nanos(now.saturating_sub(sent_at)));
        }
    }

    fn open_member(&mut self, now_us: u32) {
        let index = self.begun;
        self.begun += 1;
        let source = self.plan.source(self.share.connection_first + index);
        match socket::connect(&self.epoll, self.address, source, index) {
            Ok(socket) => {
                self.members[index as usize] =
                    Member { socket: Some(socket), state: State::Connecting(now_us) };
                self.opening.push_back((index, now_us));
                self.pending += 1;
            }
            Err(error) => {
                let reason = match error {
                    Errno::ADDRNOTAVAIL => {
                        "no local port or address is left (EADDRNOTAVAIL)".into()
                    }
                    Errno::MFILE => "the descriptor limit of a thread was reached (EMFILE)".into(),
                    _ => format!("connect: {}", io::Error::from(error)),
                };
                *self.outcome.failed.entry(reason).or_default() += 1;
                self.failed += 1;
            }
        }
    }

    /// Ends the connections that were not established within `timeout` of the plan.
    fn give_up_slow(&mut self) {
        let now = self.shared.start.elapsed().as_micros() as u32;
        while let Some(&(index, at)) = self.opening.front() {
            let is_pending = match self.members[index as usize].state {
                State::Connecting(since)
                | State::Securing(since)
                | State::Greeting(since)
                | State::Joining(since) => since == at,
                State::Absent | State::Open(_) => false,
            };
            if is_pending {
                if u128::from(now.wrapping_sub(at)) < self.plan.timeout.as_micros() {
                    break;
                }
                self.end(index, "timed out establishing the connection");
            }
            self.opening.pop_front();
        }
    }

    fn handle_event(&mut self, index: u32, flags: EventFlags) {
        let Some(Member { socket: Some(socket), state }) = self.members.get_mut(index as usize)
        else {
            return;
        };
        if let State::Connecting(since) = *state {
            if let Err(reason) = socket::outcome(socket) {
                return self.end(index, &reason);
            }
            if !flags.contains(EventFlags::OUT) {
                return;
            }
            if self.plan.is_plain {
                *state = State::Greeting(since);
                return self.note_open(index);
            }
            let begun = match self.tls {
                None => self.greet(index, since),
                Some(tls) => self.secure(index, since, tls),
            };
            if let Err(reason) = begun {
                return self.end(index, &reason);
            }
        }
        input::receive_if_ready(self, index, flags);
    }

    /// Begins TLS.
    fn secure(&mut self, index: u32, since: u32, tls: &SubscriberTls) -> Result<(), String> {
        let member = &mut self.members[index as usize];
        member.state = State::Securing(since);
        let hello = self.sessions.begin(index, tls)?;
        member.socket.as_ref().map_or(Ok(()), |socket| socket::send_first(socket, hello))
    }

    /// Sends the request of the handshake.
    fn greet(&mut self, index: u32, since: u32) -> Result<(), String> {
        let mut request = Vec::with_capacity(512);
        let number = self.share.connection_first + index;
        self.handshake.encode(&self.plan.target_of(number), &mut request);
        self.members[index as usize].state = State::Greeting(since);
        self.send_whole(index, &request)
    }

    /// The WebSocket is open: sends the first commands of the client protocol, or is subscribed already.
    fn join(&mut self, index: u32, since: u32) -> Result<(), String> {
        let Some(protocol) = &self.plan.client_protocol else {
            self.note_open(index);
            return Ok(());
        };
        let commands = self.plan.commands_of(self.share.connection_first + index, protocol);
        self.members[index as usize].state = State::Joining(since);
        let mut frame = Vec::with_capacity(commands.len() + 16);
        encode_message(&mut frame, Kind::Text, commands.as_bytes(), Some(MASK));
        self.send_whole(index, &frame)
    }

    /// Sends bytes that a connection begins with, which the kernel takes as a whole.
    fn send_whole(&mut self, index: u32, bytes: &[u8]) -> Result<(), String> {
        let Some(socket) = &self.members[index as usize].socket else { return Ok(()) };
        let bytes = self.sessions.seal(index, bytes).unwrap_or(bytes);
        socket::send_first(socket, bytes)
    }

    /// Sends a control frame or a pong. A broken connection is seen by the next receive call.
    fn send_reply(&mut self, index: u32, frame: &[u8]) {
        let Some(socket) = &self.members[index as usize].socket else { return };
        let bytes = self.sessions.seal(index, frame).unwrap_or(frame);
        let _ = socket::send(socket, bytes);
    }

    /// A message of the client protocol: replies, pushes and pings, one in each line.
    fn note_lines(&mut self, index: u32, message: &[u8]) -> Result<(), String> {
        for line in message.split(|byte| *byte == b'\n') {
            match self.members[index as usize].state {
                State::Joining(_) if find(line, b"\"error\"") || find(line, b"\"disconnect\"") => {
                    let text = String::from_utf8_lossy(&line[..line.len().min(200)]);
                    return Err(format!("the server refused the subscription: {text}"));
                }
                State::Joining(_) if find(line, b"\"id\":2") => self.note_open(index),
                State::Open(_) if line != b"{}" => self.note_message(index, line),
                State::Absent
                | State::Connecting(_)
                | State::Securing(_)
                | State::Greeting(_)
                | State::Joining(_)
                | State::Open(_) => {}
            }
            if line == b"{}" {
                let mut frame = Vec::with_capacity(16);
                encode_message(&mut frame, Kind::Text, b"{}", Some(MASK));
                self.send_reply(index, &frame);
            }
        }
        Ok(())
    }

    /// Handles bytes of a connection with TLS.
    fn handle_sealed(&mut self, index: u32, bytes: &[u8]) -> Result<usize, String> {
        let mut sealed = bytes.to_vec();
        let (opened, reply) = self.sessions.open(index, &mut sealed)?;
        if !reply.is_empty()
            && let Some(socket) = &self.members[index as usize].socket
        {
            socket::send_first(socket, reply)?;
        }
        if opened.is_established
            && let State::Securing(since) = self.members[index as usize].state
        {
            self.greet(index, since)?;
        }
        let mut plain = opened.plain;
        let used = self.handle_plain(index, &plain)?;
        plain.drain(..used);
        if plain.len() > KEPT_BYTES_MAX {
            return Err("the server sent a head or a frame that is too long".to_owned());
        }
        self.sessions.keep(index, plain);
        match opened.is_closed {
            true => Err("the server closed the connection".to_owned()),
            false => Ok(bytes.len()),
        }
    }

    /// Handles complete heads and frames at the start of `input`. Returns their length.
    fn handle_plain(&mut self, index: u32, input: &[u8]) -> Result<usize, String> {
        let mut used = 0;
        if let State::Greeting(since) = self.members[index as usize].state {
            match self.handshake.check(input)? {
                Some((length, _)) => used = length,
                None => return Ok(0),
            }
            self.join(index, since)?;
        }
        while let Some((head, start)) = FrameHead::decode(&input[used..], RULES)
            .map_err(|fault| format!("protocol error by the server: {}", fault.reason()))?
        {
            let from = used + start;
            let length = usize::try_from(head.length).unwrap_or(usize::MAX);
            let Some(payload) = from.checked_add(length).and_then(|end| input.get(from..end))
            else {
                if length > KEPT_BYTES_MAX {
                    return Err("the server sent a frame that is too long".to_owned());
                }
                break;
            };
            used = from + length;
            match head.opcode {
                Opcode::Text | Opcode::Binary
                    if head.is_final && self.plan.client_protocol.is_some() =>
                {
                    self.note_lines(index, payload)?;
                }
                Opcode::Text | Opcode::Binary if head.is_final => self.note_message(index, payload),
                Opcode::Text | Opcode::Binary | Opcode::Continuation => {
                    return Err("the server sent a fragmented message".to_owned());
                }
                Opcode::Ping => self.answer_ping(index, payload),
                Opcode::Pong => self.note_pong(index, payload),
                Opcode::Close => return Err(self.answer_close(index, payload)),
            }
        }
        Ok(used)
    }

    fn note_open(&mut self, index: u32) {
        let now = self.shared.start.elapsed();
        let state = &mut self.members[index as usize].state;
        if let Some(since) = state.since() {
            let took = (now.as_micros() as u32).wrapping_sub(since);
            self.outcome.setup.record(Duration::from_micros(took.into()));
            self.pending -= 1;
        }
        *state = State::Open(SequenceWindow::default());
        self.outcome.opened_last = now.as_nanos() as u64;
        let channel = (self.share.connection_first + index) % self.plan.channels;
        self.outcome.opened[channel as usize] += 1;
        self.opened += 1;
    }

    fn note_message(&mut self, index: u32, message: &[u8]) {
        let now = self.shared.start.elapsed().as_nanos() as u64;
        let channels = self.plan.channels;
        let channel = (self.share.connection_first + index) % channels;
        let published = self
            .payload
            .decode(message)
            .filter(|number| number % channels == channel)
            .and_then(|number| Some((number, self.shared.published_at(number)?)));
        let (Some((number, at)), State::Open(window)) =
            (published, &mut self.members[index as usize].state)
        else {
            self.outcome.receipts.foreign += 1;
            return;
        };
        let receipt = window.note(number / channels);
        let latency = Duration::from_nanos(now.saturating_sub(at));
        self.outcome.receipts.note(receipt);
        self.outcome.latency.record(latency);
        match receipt {
            Receipt::New | Receipt::OutOfOrder => self.accounts[index as usize].note(latency),
            Receipt::Duplicate => {}
        }
        if let Some(spread) = self.outcome.spreads.get_mut(number as usize) {
            spread.add(Spread { count: 1, first: now, last: now });
        }
    }

    fn answer_ping(&mut self, index: u32, payload: &[u8]) {
        let mut frame = Vec::with_capacity(16);
        if encode_pong(&mut frame, payload, Some(MASK)).is_ok() {
            self.send_reply(index, &frame);
        }
    }

    /// Replies to a Close frame. Returns why the connection ends.
    fn answer_close(&mut self, index: u32, payload: &[u8]) -> String {
        let code = payload.first_chunk().map(|code| u16::from_be_bytes(*code));
        let text = String::from_utf8_lossy(payload.get(2..).unwrap_or_default()).into_owned();
        let close = code.and_then(CloseCode::new).map(|code| Close { code, reason: "" });
        let mut frame = Vec::with_capacity(16);
        encode_close_reply(&mut frame, close, Some(MASK));
        self.send_reply(index, &frame);
        match code {
            Some(code) if text.is_empty() => {
                format!("the server closed the connection with code {code}")
            }
            Some(code) => format!("the server closed the connection with code {code}: {text}"),
            None => "the server closed the connection without a code".to_owned(),
        }
    }

    fn publish_counts(&self) {
        let counts = &self.shared.counts[self.thread];
        counts.begun.store(self.begun.into(), Relaxed);
        counts.opened.store(self.opened, Relaxed);
        counts.failed.store(self.failed, Relaxed);
        counts.lost.store(self.lost, Relaxed);
        counts.received.store(self.outcome.receipts.received, Relaxed);
    }
}

impl Connections for Subscribers<'_> {
    fn socket(&self, index: u32) -> Option<&OwnedFd> {
        self.members[index as usize].socket.as_ref()
    }

    fn input(&mut self) -> &mut Input {
        &mut self.input
    }

    /// Handles received bytes. Returns how many were handled.
    fn handle_bytes(&mut self, index: u32, input: &[u8]) -> Result<usize, String> {
        match self.tls {
            Some(_) => self.handle_sealed(index, input),
            None => self.handle_plain(index, input),
        }
    }

    /// Ends a member: a failure if it was not established, a loss if it was.
    fn end(&mut self, index: u32, reason: &str) {
        let member = &mut self.members[index as usize];
        member.socket = None;
        self.sessions.forget(index);
        self.input.forget(index);
        match core::mem::replace(&mut member.state, State::Absent) {
            State::Absent => {}
            State::Connecting(_) | State::Securing(_) | State::Greeting(_) | State::Joining(_) => {
                self.pending -= 1;
                self.failed += 1;
                *self.outcome.failed.entry(reason.to_owned()).or_default() += 1;
            }
            State::Open(_) => {
                self.lost += 1;
                *self.outcome.lost.entry(reason.to_owned()).or_default() += 1;
            }
        }
    }
}

fn find(line: &[u8], text: &[u8]) -> bool {
    memchr::memmem::find(line, text).is_some()
}
