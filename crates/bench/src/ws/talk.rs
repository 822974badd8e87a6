//! The connections of one thread: each sends messages and waits for their echoes.
//! In: readiness of sockets, the times of the run. Out: messages; times, failures.
//! Never: sends a message beyond `outstanding` on a connection; counts an echo that differs from its message.
//! Limits: `OPENING_MAX` connections are being established at once; of received bytes only incomplete heads and control
//! frames are kept (`KEPT_BYTES_MAX`), and compressed echoes, which are compared when they are complete.
//! Invariant: the echoes of a connection arrive in the order of its messages, so the next one has the number `received`.

use super::message::{MASK, Message, SIZE_MAX};
use super::{EchoOutcome, EchoPlan, Pace, Shared, TargetHandshake};
use crate::input::{self, Connections, Input};
use crate::machine;
use crate::plan::{Arrivals, Schedule, Share};
use crate::socket::{self, EVENTS_MAX};
use crate::tls::fault_in_words;
use core::sync::atomic::Ordering::Relaxed;
use core::time::Duration;
use rustix::event::epoll::{self, EventFlags};
use rustix::fd::OwnedFd;
use std::collections::{HashMap, VecDeque};
use std::io;
use tidegate_base::Span;
use tidegate_wire::tls::{Fault, TlsSession};
use tidegate_wire::websocket::{
    Deflater, Effort, FrameHead, FrameRules, Inflater, Kind, Limits, Opcode, Role, WINDOW_BITS_MAX,
    encode_pong,
};

/// How many connections of a thread are being established at once.
const OPENING_MAX: usize = 64;
/// Bytes that are kept of an incomplete head.
const KEPT_BYTES_MAX: usize = 32 * 1024;
/// How long a thread waits for events before it checks the times of the run.
const WAIT_MAX: Duration = Duration::from_millis(50);
/// How much longer than its message a compressed echo may be.
const DEFLATED_EXCESS_MAX: usize = 1024;
/// An echo has the size of its message, however well that compresses.
const LIMITS: Limits = Limits {
    frame_bytes_max: u32::MAX,
    message_bytes_max: SIZE_MAX as u32,
    fragments_max: u32::MAX,
    inflate_ratio_max: u32::MAX,
};

/// A connection.
struct Line {
    /// `Some` from `Connecting` to `Open`.
    socket: Option<OwnedFd>,
    state: State,
    /// Messages that were sent.
    sent: u32,
    /// Echoes that were received.
    received: u32,
    /// Echoes that were received in the measured time.
    counted: u32,
    /// The echo that is being received.
    echo: Echo,
    /// `None` without TLS.
    tls: Option<Box<TlsSession>>,
    /// Messages may be compressed.
    deflates: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// Not begun, or over.
    Absent,
    /// The TCP connection is pending since this time.
    Connecting(Duration),
    /// The TLS handshake is pending since then.
    Securing(Duration),
    /// The response to the handshake is pending since then.
    Greeting(Duration),
    /// Messages can be sent.
    Open,
}

/// How much of an echo has arrived.
#[derive(Clone, Copy, Default)]
struct Echo {
    /// Bytes of the message so far.
    offset: usize,
    /// Bytes of the current frame that have not arrived.
    frame_left: usize,
    /// A frame of the message has begun, and its last one has not ended.
    is_begun: bool,
    /// The current frame is the last one.
    is_last: bool,
    /// The message is compressed; `offset` counts its compressed bytes.
    is_deflated: bool,
}

/// When a message was sent, since the start of the run.
#[derive(Clone, Copy, Default)]
struct SentAt {
    /// When it was due.
    planned: Duration,
    sent: Duration,
}

/// The connections of one thread.
pub(super) struct Talk<'a> {
    plan: &'a EchoPlan,
    shared: &'a Shared,
    handshakes: &'a [TargetHandshake],
    message: Message,
    share: Share,
    epoll: OwnedFd,
    lines: Vec<Line>,
    /// The outstanding messages of each connection: `plan.outstanding` places each, used in turn.
    moments: Vec<SentAt>,
    /// How many connections were begun.
    begun: u32,
    /// How many connections are `Connecting` or `Greeting`.
    pending: usize,
    /// The next arrival of an open loop, relative to the start of the messages.
    schedule: Option<(Schedule, Duration)>,
    /// In an open loop: the connections that may send. A connection is in it once for each message that it may send.
    free: VecDeque<u32>,
    /// The first messages were sent.
    is_talking: bool,
    /// Messages without an echo.
    outstanding: u64,
    /// The received bytes of all connections.
    input: Input,
    /// Output that the kernel did not take.
    unsent: HashMap<u32, Vec<u8>>,
    /// Scratch space for several messages.
    out: Vec<u8>,
    /// Scratch space for sealed bytes.
    sealed: Vec<u8>,
    /// Opened bytes that are not handled yet, of connections with TLS.
    opened: HashMap<u32, Vec<u8>>,
    /// Compressed echoes that are being received.
    deflated: HashMap<u32, Vec<u8>>,
    deflater: Option<Deflater>,
    inflater: Inflater,
    /// The time of the current event, from the start.
    now: Duration,
    /// The thread's CPU time and run delay at the start of the measured time.
    before: Option<(Duration, Duration)>,
    outcome: EchoOutcome,
}

impl<'a> Talk<'a> {
    /// The connections of thread `thread`.
    ///
    /// # Errors
    /// If epoll fails.
    pub(super) fn new(
        plan: &'a EchoPlan,
        shared: &'a Shared,
        thread: u16,
        handshakes: &'a [TargetHandshake],
    ) -> io::Result<Self> {
        let share = plan.connections.share(thread);
        let count = share.connections as usize;
        let line = || Line {
            socket: None,
            state: State::Absent,
            sent: 0,
            received: 0,
            counted: 0,
            echo: Echo::default(),
            tls: None,
            deflates: false,
        };
        let schedule = match plan.pace {
            Pace::Closed => None,
            Pace::Rate(per_second) => {
                let threads = f64::from(plan.threads);
                let (rate, phase) = (per_second / threads, f64::from(thread) / threads);
                let mut schedule = Schedule::new(rate, Span::ZERO, Arrivals::Constant, phase, 1);
                let first = Duration::from_secs_f64(schedule.next_arrival().as_secs_f64());
                Some((schedule, first))
            }
        };
        Ok(Self {
            plan,
            shared,
            handshakes,
            message: plan.message.clone(),
            share,
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            lines: core::iter::repeat_with(line).take(count).collect(),
            moments: vec![SentAt::default(); count * usize::from(plan.outstanding)],
            begun: 0,
            pending: 0,
            schedule,
            free: VecDeque::new(),
            is_talking: false,
            outstanding: 0,
            input: Input::new(KEPT_BYTES_MAX),
            unsent: HashMap::new(),
            out: Vec::new(),
            sealed: Vec::new(),
            opened: HashMap::new(),
            deflated: HashMap::new(),
            deflater: Deflater::shared(WINDOW_BITS_MAX, Effort::default()),
            inflater: Inflater::shared(),
            now: Duration::ZERO,
            before: None,
            outcome: EchoOutcome::new(),
        })
    }

    /// Opens the connections, and talks until the run ends.
    ///
    /// # Errors
    /// If epoll fails.
    pub(super) fn run(mut self) -> io::Result<EchoOutcome> {
        let mut events = Vec::with_capacity(EVENTS_MAX);
        let mut sweep_at = Duration::ZERO;
        loop {
            self.now = self.shared.start.elapsed();
            self.note_times();
            if self.is_over() {
                break;
            }
            let wait = self.begin_work();
            socket::wait(&self.epoll, &mut events, wait)?;
            for event in &events {
                self.handle_event(event.data.u64() as u32, event.flags);
            }
            if self.now >= sweep_at {
                sweep_at = self.now + WAIT_MAX;
                self.give_up_slow();
            }
        }
        self.outcome.unanswered = self.outstanding;
        if let (Some((schedule, next)), Some(begin)) = (&self.schedule, self.shared.begin()) {
            let span = self.shared.end().saturating_sub(begin);
            let later = schedule.arrivals_before(Span::from_secs_f64(span.as_secs_f64()));
            self.outcome.unsent = u64::from(*next < span) + later;
        }
        for line in &self.lines {
            if let Some(socket) = &line.socket {
                socket::reset_on_close(socket);
                self.outcome.per_connection.push(line.counted);
            }
        }
        Ok(self.outcome)
    }

    /// Measures how much CPU time the thread uses from the start to the end of the measured time.
    fn note_times(&mut self) {
        if self.before.is_none() && self.now >= self.shared.counted_from() {
            self.before = Some((machine::thread_cpu_time(), machine::thread_run_delay()));
        }
        if let Some((cpu, delay)) = self.before
            && self.outcome.used.wall.is_zero()
            && self.now >= self.shared.end()
        {
            let used = &mut self.outcome.used;
            used.cpu = machine::thread_cpu_time().saturating_sub(cpu);
            used.delay = machine::thread_run_delay().saturating_sub(delay);
            used.wall = self.now.saturating_sub(self.shared.counted_from());
            self.outcome.busiest = used.cpu.as_secs_f64() / used.wall.as_secs_f64().max(1e-9);
        }
    }

    /// Whether the run has ended, and all echoes have arrived or no more are expected.
    fn is_over(&self) -> bool {
        let end = self.shared.end();
        self.now >= end
            && (self.outstanding == 0
                || self.now >= end.saturating_add(self.plan.timeout)
                || self.shared.is_stopped())
    }

    /// Opens connections, or sends the messages that are due. Returns how long the thread may wait for events.
    fn begin_work(&mut self) -> Duration {
        while self.begun < self.share.connections && self.pending < OPENING_MAX {
            self.open_line();
        }
        if self.shared.begin().is_none() {
            return WAIT_MAX / 10;
        }
        if !self.is_talking {
            self.is_talking = true;
            for index in 0..self.share.connections {
                match self.plan.pace {
                    Pace::Closed => self.send_messages(index, self.plan.outstanding.into()),
                    Pace::Rate(_) => {
                        let times = usize::from(self.plan.outstanding);
                        self.free.extend(core::iter::repeat_n(index, times));
                    }
                }
            }
        }
        self.send_due()
    }

    /// Sends the messages of an open loop that are due. Returns how long the thread may wait for events.
    fn send_due(&mut self) -> Duration {
        let Some(begin) = self.shared.begin() else { return WAIT_MAX };
        let end = self.shared.end();
        while let Some((schedule, at)) = &mut self.schedule {
            let due = begin + *at;
            if due >= end || self.now >= end {
                break;
            }
            if due > self.now {
                return (due - self.now).min(WAIT_MAX);
            }
            // Every connection waits for an echo: the next echo sends this message, late.
            let Some(index) = self.free.pop_front() else { break };
            if self.lines[index as usize].state != State::Open {
                continue;
            }
            *at = Duration::from_secs_f64(schedule.next_arrival().as_secs_f64());
            self.send(index, 1, due);
        }
        WAIT_MAX.min(end.saturating_sub(self.now).max(Duration::from_millis(1)))
    }

    /// Sends `count` messages of a closed loop, unless the run has ended.
    fn send_messages(&mut self, index: u32, count: u32) {
        if self.now < self.shared.end() {
            self.send(index, count, self.now);
        }
    }

    /// Sends `count` messages that were due at `planned`.
    fn send(&mut self, index: u32, count: u32, planned: Duration) {
        let line = &mut self.lines[index as usize];
        let (Some(socket), State::Open) = (&line.socket, line.state) else { return };
        let places = usize::from(self.plan.outstanding);
        let first = line.sent;
        line.sent = first.wrapping_add(count);
        self.outstanding += u64::from(count);
        for number in 0..count {
            let place = first.wrapping_add(number) as usize % places;
            self.moments[index as usize * places + place] = SentAt { planned, sent: self.now };
        }
        if count == 1 && line.tls.is_none() && !line.deflates {
            let frames = self.message.frames(first);
            return write(socket, &mut self.unsent, index, frames);
        }
        let mut out = core::mem::take(&mut self.out);
        out.clear();
        for number in 0..count {
            let number = first.wrapping_add(number);
            match self.deflater.as_mut().filter(|_| line.deflates) {
                // Only a bug of the compressor is an error; then the echo does not arrive.
                Some(deflater) => {
                    let _ = self.message.encode_deflated(number, deflater, &mut out);
                }
                None => out.extend_from_slice(self.message.frames(number)),
            }
        }
        if line.deflates {
            self.outcome.compression.sent += u64::from(count);
            self.outcome.compression.sent_bytes += out.len() as u64;
        }
        self.send_bytes(index, &out);
        self.out = out;
    }

    /// Sends bytes of a connection, sealed if it has TLS.
    fn send_bytes(&mut self, index: u32, bytes: &[u8]) {
        let Line { socket: Some(socket), tls, .. } = &mut self.lines[index as usize] else {
            return;
        };
        match tls {
            None => write(socket, &mut self.unsent, index, bytes),
            Some(session) => {
                self.sealed.clear();
                // A session that has failed is seen by the next receive call.
                if session.seal(bytes, &mut self.sealed).is_ok() {
                    write(socket, &mut self.unsent, index, &self.sealed);
                }
            }
        }
    }

    /// The handshakes with the target of connection `index` of the thread.
    fn handshake_of(&self, index: u32) -> &'a TargetHandshake {
        let number = (self.share.connection_first + index) as usize;
        &self.handshakes[number % self.handshakes.len()]
    }

    fn open_line(&mut self) {
        let index = self.begun;
        self.begun += 1;
        let source = self.plan.connections.source(self.share.connection_first + index);
        let number = (self.share.connection_first + index) as usize;
        let address = self.plan.targets[number % self.plan.targets.len()].address;
        let line = &mut self.lines[index as usize];
        match socket::connect(&self.epoll, address, source, index) {
            Ok(socket) => {
                line.socket = Some(socket);
                line.state = State::Connecting(self.now);
                self.pending += 1;
            }
            Err(error) => {
                let reason = format!("connect: {}", io::Error::from(error));
                *self.outcome.failed.entry(reason).or_default() += 1;
                self.shared.failed.fetch_add(1, Relaxed);
            }
        }
    }

    /// Ends connections that were not established in time, or whose oldest message got no echo in time.
    fn give_up_slow(&mut self) {
        let places = usize::from(self.plan.outstanding);
        for index in 0..self.begun {
            let line = &self.lines[index as usize];
            let (since, reason) = match line.state {
                State::Absent => continue,
                State::Connecting(since) | State::Securing(since) | State::Greeting(since) => {
                    (since, "timed out establishing the connection")
                }
                State::Open if line.sent == line.received => continue,
                State::Open => {
                    let place = line.received as usize % places;
                    (
                        self.moments[index as usize * places + place].sent,
                        "timed out waiting for the echo",
                    )
                }
            };
            if self.now.saturating_sub(since) >= self.plan.timeout {
                self.end(index, reason);
            }
        }
    }

    fn handle_event(&mut self, index: u32, flags: EventFlags) {
        let line = &mut self.lines[index as usize];
        let Some(socket) = &line.socket else { return };
        if let State::Connecting(since) = line.state {
            if let Err(reason) = socket::outcome(socket) {
                return self.end(index, &reason);
            }
            if !flags.contains(EventFlags::OUT) {
                return;
            }
            if let Err(reason) = self.begin_line(index, since) {
                return self.end(index, &reason);
            }
        } else if flags.contains(EventFlags::OUT) && !self.unsent.is_empty() {
            self.send_rest(index);
        }
        input::receive_if_ready(self, index, flags);
    }

    /// Begins TLS, or the handshake, on a connection that is established.
    fn begin_line(&mut self, index: u32, since: Duration) -> Result<(), String> {
        let Some((connector, name)) = &self.handshake_of(index).tls else {
            self.greet(index, since);
            return Ok(());
        };
        let session = connector.connect(name).map_err(fault_in_words)?;
        let line = &mut self.lines[index as usize];
        line.tls = Some(Box::new(session));
        line.state = State::Securing(since);
        self.open_bytes(index, &mut [], &mut Vec::new()).map(|_| ())
    }

    /// Sends the request of the handshake.
    fn greet(&mut self, index: u32, since: Duration) {
        let mut request = Vec::with_capacity(512);
        let number = (self.share.connection_first + index) as usize;
        let target = &self.plan.targets[number % self.plan.targets.len()].url.target;
        self.handshake_of(index).handshake.encode(target, &mut request);
        self.lines[index as usize].state = State::Greeting(since);
        self.send_bytes(index, &request);
    }

    /// Opens received bytes, and appends the plain ones to `plain`. Returns whether the server will send no more.
    fn open_bytes(
        &mut self,
        index: u32,
        bytes: &mut [u8],
        plain: &mut Vec<u8>,
    ) -> Result<bool, String> {
        let Line { socket: Some(socket), tls: Some(session), .. } = &mut self.lines[index as usize]
        else {
            return Err(fault_in_words(Fault::Bug));
        };
        self.sealed.clear();
        let progress = session.handle_bytes(bytes, plain, &mut self.sealed);
        if !self.sealed.is_empty() {
            write(socket, &mut self.unsent, index, &self.sealed);
        }
        let progress = progress.map_err(fault_in_words)?;
        if progress.established
            && let State::Securing(since) = self.lines[index as usize].state
        {
            self.greet(index, since);
        }
        Ok(progress.peer_closed)
    }

    /// Handles bytes of a connection with TLS.
    fn handle_sealed(&mut self, index: u32, bytes: &[u8]) -> Result<usize, String> {
        let mut sealed = bytes.to_vec();
        let mut plain = self.opened.remove(&index).unwrap_or_default();
        let is_closed = self.open_bytes(index, &mut sealed, &mut plain)?;
        if !plain.is_empty() {
            let used = self.handle_plain(index, &plain)?;
            plain.drain(..used);
        }
        if plain.len() > KEPT_BYTES_MAX {
            return Err("the server sent a head or a frame that is too long".to_owned());
        }
        if !plain.is_empty() {
            self.opened.insert(index, plain);
        }
        if is_closed { Err("the server closed the connection".to_owned()) } else { Ok(bytes.len()) }
    }

    /// Sends the bytes that the kernel did not take before.
    fn send_rest(&mut self, index: u32) {
        let Some(rest) = self.unsent.get_mut(&index) else { return };
        let Some(socket) = &self.lines[index as usize].socket else { return };
        match socket::send(socket, rest) {
            Ok(taken) if taken < rest.len() => {
                rest.drain(..taken);
            }
            // A broken connection is seen by the next receive call.
            Ok(_) | Err(_) => {
                self.unsent.remove(&index);
            }
        }
    }

    /// Reads the complete frames at the start of `input`. Returns their length.
    fn read_input(&mut self, index: u32, input: &[u8]) -> Result<usize, String> {
        let mut used = 0;
        if let State::Greeting(since) = self.lines[index as usize].state {
            let deflates = match self.handshake_of(index).handshake.check(input)? {
                Some((length, agreed)) => {
                    used = length;
                    agreed.deflate.is_some()
                }
                None => return Ok(0),
            };
            let line = &mut self.lines[index as usize];
            (line.state, line.deflates) = (State::Open, deflates);
            self.outcome.compression.connections += u64::from(deflates);
            self.outcome.setup.record(self.now.saturating_sub(since));
            self.outcome.opened += 1;
            self.outcome.opened_last = self.now;
            self.pending -= 1;
            self.shared.opened.fetch_add(1, Relaxed);
        }
        loop {
            used += self.take_piece(index, &input[used..])?;
            if self.lines[index as usize].echo.frame_left > 0 {
                return Ok(used);
            }
            let allows_deflate = self.lines[index as usize].deflates;
            // Server frames have no key.
            let rules = FrameRules { role: Role::Client, allows_deflate };
            let head = FrameHead::decode(&input[used..], rules)
                .map_err(|fault| format!("protocol error by the server: {}", fault.reason()))?;
            let Some((head, start)) = head else { return Ok(used) };
            let length = usize::try_from(head.length).unwrap_or(usize::MAX);
            if head.opcode.is_control() {
                let from = used + start;
                let Some(payload) = input.get(from..from + length) else { return Ok(used) };
                self.handle_control(index, head.opcode, payload)?;
                used = from + length;
            } else {
                self.begin_frame(index, &head, length)?;
                used += start;
                if length == 0 {
                    self.end_frame(index)?;
                }
            }
        }
    }

    /// Takes the part of the current frame that is in `input`. Returns its length.
    fn take_piece(&mut self, index: u32, input: &[u8]) -> Result<usize, String> {
        let line = &mut self.lines[index as usize];
        let length = line.echo.frame_left.min(input.len());
        if length == 0 {
            return Ok(0);
        }
        if line.echo.is_deflated {
            self.deflated.entry(index).or_default().extend_from_slice(&input[..length]);
        } else if !self.message.matches(line.received, line.echo.offset, &input[..length]) {
            return Err("an echo differs from its message".to_owned());
        }
        line.echo.offset += length;
        line.echo.frame_left -= length;
        if line.echo.frame_left == 0 {
            self.end_frame(index)?;
        }
        Ok(length)
    }

    fn begin_frame(&mut self, index: u32, head: &FrameHead, length: usize) -> Result<(), String> {
        let line = &mut self.lines[index as usize];
        let echo = &mut line.echo;
        let expected = match (echo.is_begun, self.message.kind()) {
            (true, _) => Opcode::Continuation,
            (false, Kind::Text) => Opcode::Text,
            (false, Kind::Binary) => Opcode::Binary,
        };
        if line.sent == line.received {
            return Err("the server sent a message although no echo was due".to_owned());
        }
        let is_deflated = if echo.is_begun { echo.is_deflated } else { head.is_deflated };
        let excess = if is_deflated { DEFLATED_EXCESS_MAX } else { 0 };
        let most = (self.message.size() + excess).saturating_sub(echo.offset);
        if head.opcode != expected || length > most {
            return Err("an echo differs from its message".to_owned());
        }
        (echo.is_begun, echo.is_deflated) = (true, is_deflated);
        echo.frame_left = length;
        echo.is_last = head.is_final;
        Ok(())
    }

    /// The current frame is complete.
    fn end_frame(&mut self, index: u32) -> Result<(), String> {
        let line = &mut self.lines[index as usize];
        if !line.echo.is_last {
            return Ok(());
        }
        let Echo { offset, is_deflated, .. } = core::mem::take(&mut line.echo);
        let is_same = match is_deflated {
            false => offset == self.message.size(),
            true => {
                let deflated = self.deflated.remove(&index).unwrap_or_default();
                let data = self.inflater.inflate_message(&deflated, &LIMITS);
                let data = data
                    .map_err(|fault| format!("protocol error by the server: {}", fault.reason()))?;
                data.len() == self.message.size() && self.message.matches(line.received, 0, data)
            }
        };
        if !is_same {
            return Err("an echo differs from its message".to_owned());
        }
        if line.deflates {
            let compression = &mut self.outcome.compression;
            compression.received += 1;
            compression.received_deflated += u64::from(is_deflated);
            compression.received_bytes += offset as u64;
        }
        let places = usize::from(self.plan.outstanding);
        let moment = self.moments[index as usize * places + line.received as usize % places];
        line.received = line.received.wrapping_add(1);
        self.outstanding -= 1;
        if self.now >= self.shared.counted_from() && self.now < self.shared.end() {
            line.counted += 1;
            self.outcome.messages += 1;
            self.outcome.latency.record(self.now.saturating_sub(moment.planned));
            if self.schedule.is_some() {
                self.outcome.service.record(self.now.saturating_sub(moment.sent));
            }
        }
        Ok(())
    }

    fn handle_control(&mut self, index: u32, opcode: Opcode, payload: &[u8]) -> Result<(), String> {
        match opcode {
            Opcode::Ping => {
                let mut frame = Vec::with_capacity(16);
                let encoded = encode_pong(&mut frame, payload, Some(MASK));
                if encoded.is_err() {
                    return Ok(());
                }
                self.send_bytes(index, &frame);
                Ok(())
            }
            Opcode::Close => {
                let code = payload.first_chunk().map(|code| u16::from_be_bytes(*code));
                Err(code.map_or_else(
                    || "the server closed the connection without a code".to_owned(),
                    |code| format!("the server closed the connection with code {code}"),
                ))
            }
            Opcode::Pong | Opcode::Text | Opcode::Binary | Opcode::Continuation => Ok(()),
        }
    }
}

impl Connections for Talk<'_> {
    fn socket(&self, index: u32) -> Option<&OwnedFd> {
        self.lines[index as usize].socket.as_ref()
    }

    fn input(&mut self) -> &mut Input {
        &mut self.input
    }

    fn handle_bytes(&mut self, index: u32, bytes: &[u8]) -> Result<usize, String> {
        match self.lines[index as usize].tls.is_some() {
            true => self.handle_sealed(index, bytes),
            false => self.handle_plain(index, bytes),
        }
    }

    /// Ends a connection: a failure if it was not established, a loss if it was.
    fn end(&mut self, index: u32, reason: &str) {
        let line = &mut self.lines[index as usize];
        (line.socket, line.tls) = (None, None);
        self.input.forget(index);
        self.unsent.remove(&index);
        self.opened.remove(&index);
        self.deflated.remove(&index);
        let counts = match core::mem::replace(&mut line.state, State::Absent) {
            State::Absent => return,
            State::Connecting(_) | State::Securing(_) | State::Greeting(_) => {
                self.pending -= 1;
                self.shared.failed.fetch_add(1, Relaxed);
                &mut self.outcome.failed
            }
            State::Open => {
                let lost = u64::from(line.sent.wrapping_sub(line.received));
                self.outstanding -= lost;
                self.outcome.lost_messages += lost;
                &mut self.outcome.lost
            }
        };
        *counts.entry(reason.to_owned()).or_default() += 1;
    }
}

impl Talk<'_> {
    /// Reads the echoes, and continues to talk.
    fn handle_plain(&mut self, index: u32, bytes: &[u8]) -> Result<usize, String> {
        self.now = self.shared.start.elapsed();
        let before = self.lines[index as usize].received;
        let used = self.read_input(index, bytes)?;
        let count = self.lines[index as usize].received.wrapping_sub(before);
        match self.plan.pace {
            _ if count == 0 => {}
            Pace::Closed => self.send_messages(index, count),
            Pace::Rate(_) => {
                self.free.extend(core::iter::repeat_n(index, count as usize));
                self.send_due();
            }
        }
        Ok(used)
    }
}

/// Sends `bytes` after those that the kernel did not take before, and keeps those that it does not take now.
fn write(socket: &OwnedFd, unsent: &mut HashMap<u32, Vec<u8>>, index: u32, bytes: &[u8]) {
    if !unsent.is_empty()
        && let Some(unsent) = unsent.get_mut(&index)
    {
        return unsent.extend_from_slice(bytes);
    }
    // A broken connection is seen by the next receive call.
    let taken = socket::send(socket, bytes).unwrap_or(bytes.len());
    if taken < bytes.len() {
        unsent.insert(index, bytes[taken..].to_vec());
    }
}
