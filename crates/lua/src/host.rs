//! The data that a VM's scripts work on: requests, responses in progress, and the effects that the scripts cause.
//! In: requests from the worker; calls of native functions. Out: `Effect`s, which the worker carries out in order.
//! Never: sends a byte; keeps a request after its response.
//! Limits: `EXCHANGES_MAX` requests at once; those of `exchange.rs`; `OUTPUT_BYTES_MAX` of bodies and messages between two
//! waits; `LOG_LINES_MAX` lines of log between two waits; those of `schedule.rs`. `write` sends by itself, and waits for the
//! client, once `WRITTEN_BYTES_MAX` are collected.
//! Invariant: an id of an ended exchange matches nothing. A response is answered, or begun and ended, exactly once.

use core::fmt;
use core::net::SocketAddr;
use core::ops::Range;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use tidegate_base::{CertificateChoice, Id, Moment, Slab, Span};
use tidegate_wire::dns::Question;
use tidegate_wire::message::RequestHead;
use tidegate_wire::websocket::MaskKey;

use crate::datagrams::{DatagramSocketId, Datagrams};
use crate::events::{EVENTS_MAX, HubEvent};
use crate::exchange::{AtReturn, Origin, Response, ScriptRequest};
use crate::frames::{TUNNELS_MAX, Tunnel};
use crate::hellos::{HELLOS_MAX, TlsHello};
use crate::operations::{OPERATIONS_MAX, Operation, OperationId};
use crate::outgoing::Outgoing;
use crate::queue::Queue;
use crate::regex::Patterns;
use crate::reply::ReplyHead;
use crate::schedule::{Owner, Schedule, TaskId, Wait, Wake};
use crate::shared::Dictionary;
use crate::sockets::{SocketId, Sockets};
use crate::vm::{Bounds, Handler, ON_START, Script};

/// Maximum number of requests that a VM serves at once.
pub const EXCHANGES_MAX: usize = 65_536;
/// Maximum number of WebSocket clients that a VM serves at once.
const CLIENTS_MAX: usize = 1 << 24;
/// Number of bytes of a body that are collected before they are sent.
pub(crate) const WRITTEN_BYTES_MAX: usize = 256 * 1024;
/// Maximum number of bytes that one callback may send without waiting.
pub const OUTPUT_BYTES_MAX: usize = 16 * 1024 * 1024;
/// The error if a callback sends more.
pub(crate) const TOO_MUCH: &str = "a callback may send up to 16 MiB";
/// The size of the dictionaries and queues of tests.
const TEST_DICTIONARY_BYTES: usize = 1024 * 1024;
/// Maximum number of lines that one callback may log.
const LOG_LINES_MAX: u32 = 100;
/// Maximum number of bytes of one line of the log.
const LOG_BYTES_MAX: usize = 2048;
/// Maximum number of ended exchanges that are kept for their buffers.
const SPARE_MAX: usize = 64;

/// Names an exchange of a VM.
pub type ScriptRequestId = Id<Box<ScriptRequest>>;

/// The severity of a line of the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Level {
    /// Something failed.
    Error,
    /// Something unexpected.
    Warning,
    /// A fact.
    Info,
}

/// An effect that a script requests. Ranges refer to `Outbox::bytes`.
#[derive(Clone, PartialEq, Debug)]
pub enum Effect {
    /// The complete response of an exchange.
    Answer {
        /// The worker's tag of the exchange.
        tag: u64,
        /// The status.
        status: u16,
        /// The fields: `name: value`, each followed by a line feed.
        fields: Range<usize>,
        /// The content.
        body: Range<usize>,
    },
    /// The head of a response whose body follows in pieces.
    Begin {
        /// The worker's tag of the exchange.
        tag: u64,
        /// The status.
        status: u16,
        /// As in `Answer`.
        fields: Range<usize>,
    },
    /// The end of an exchange without a response, or without the rest of it.
    Drop {
        /// The worker's tag of the exchange.
        tag: u64,
    },
    /// A piece of the body.
    Data {
        /// The worker's tag of the exchange.
        tag: u64,
        /// The bytes.
        body: Range<usize>,
        /// The response is complete.
        is_end: bool,
    },
    /// A message for a WebSocket client.
    Send {
        /// The worker's tag of the client.
        tag: u64,
        /// The message is text, not binary.
        is_text: bool,
        /// The message.
        data: Range<usize>,
    },
    /// The end of a WebSocket connection.
    Close {
        /// The worker's tag of the client.
        tag: u64,
        /// The code of the Close frame.
        code: u16,
        /// The reason in the Close frame.
        reason: Range<usize>,
    },
    /// A message for a client of another worker.
    SendRemote {
        /// The client.
        to: RemoteClient,
        /// The message is text, not binary.
        is_text: bool,
        /// The message.
        data: Range<usize>,
    },
    /// The end of a WebSocket connection of another worker.
    CloseRemote {
        /// The client.
        to: RemoteClient,
        /// The code of the Close frame.
        code: u16,
        /// The reason in the Close frame.
        reason: Range<usize>,
    },
    /// A message for a side of a tunnel.
    SendFrame {
        /// The worker's tag of the tunnel.
        tag: u64,
        /// The message is for the client, not for the server.
        to_client: bool,
        /// The message is text, not binary.
        is_text: bool,
        /// The message.
        data: Range<usize>,
    },
    /// The end of a tunnel.
    CloseTunnel {
        /// The worker's tag of the tunnel.
        tag: u64,
        /// The code of the Close frames.
        code: u16,
        /// The reason in the Close frames.
        reason: Range<usize>,
    },
    /// A request to report when the client of a begun response has read what was sent (`Vm::note_drained`).
    AwaitDrain {
        /// The worker's tag of the exchange.
        tag: u64,
    },
    /// The script of `on_body` has read the part of the server's body for which the server had to wait.
    BodyRoom {
        /// The worker's tag of the request.
        tag: u64,
    },
    /// A message for the subscribers of a channel, in all VMs of all applications.
    Broadcast {
        /// The channel.
        channel: Range<usize>,
        /// The message.
        data: Range<usize>,
    },
    /// A queue has got a value, for which a coroutine of this worker waits.
    QueueFilled {
        /// The worker.
        worker: u32,
        /// The queue, by its place in `Facts::queues`.
        queue: usize,
    },
    /// A call of the server API of a push hub, whose result goes to `Vm::complete`.
    Push {
        /// The VM's id of the call.
        operation: OperationId,
        /// The name of the hub.
        hub: Range<usize>,
        /// The method.
        method: Range<usize>,
        /// Its arguments, as JSON.
        arguments: Range<usize>,
    },
    /// A decision about an event of a push hub.
    Decide {
        /// The worker's tag of the event.
        tag: u64,
        /// The decision, as JSON.
        decision: Range<usize>,
    },
    /// The certificate for a handshake.
    ChooseCertificate {
        /// The worker's tag of the handshake.
        tag: u64,
        /// The choice.
        choice: CertificateChoice,
    },
    /// A request for a server, whose response goes to `Vm::complete_request`.
    Http {
        /// The VM's id of the request.
        operation: OperationId,
        /// The request.
        request: Box<Outgoing>,
    },
    /// A connection to a server of a pool. The worker reports its start, its bytes and its end to the VM (`sockets.rs`).
    Connect {
        /// The VM's id of the socket.
        socket: SocketId,
        /// The pool, by its place in `Facts::pools`.
        pool: usize,
    },
    /// Bytes for the server of a socket.
    SocketSend {
        /// The worker's tag of the socket.
        tag: u64,
        /// The bytes.
        data: Range<usize>,
    },
    /// The script has read from a socket whose server had to wait.
    SocketResume {
        /// The worker's tag of the socket.
        tag: u64,
    },
    /// A socket is kept for later, or is used again.
    SocketIdle {
        /// The worker's tag of the socket.
        tag: u64,
        /// How long it is kept; `None`: it is used again.
        span: Option<Span>,
    },
    /// A lookup of records, whose result goes to `Vm::complete`.
    Lookup {
        /// The VM's id of the lookup.
        operation: OperationId,
        /// The name and the kind of record.
        question: Box<Question>,
    },
    /// A read of a piece of a file, whose result goes to `Vm::complete`: the size of the file, the second of its last change and a tag
    /// of its version as a line, and then the bytes.
    ReadFile {
        /// The VM's id of the read.
        operation: OperationId,
        /// The path below the application's folder.
        path: Range<usize>,
        /// Where the piece begins.
        offset: u64,
        /// The size of the piece, unless the file ends before.
        bytes_max: usize,
    },
    /// A socket for datagrams. The worker reports its opening, its datagrams and its end to the VM (`datagrams.rs`).
    OpenDatagrams {
        /// The VM's id of the socket.
        socket: DatagramSocketId,
        /// The address that it talks to.
        peer: SocketAddr,
    },
    /// A datagram, whose result goes to `Vm::complete`.
    SendDatagram {
        /// The VM's id of the operation.
        operation: OperationId,
        /// The worker's tag of the socket.
        tag: u64,
        /// The bytes.
        data: Range<usize>,
    },
    /// A command for the runner of tests, whose result goes to `Vm::complete`. Only in the VMs of tests.
    Test {
        /// The VM's id of the operation.
        operation: OperationId,
        /// The command.
        method: Range<usize>,
        /// Its arguments, as JSON.
        arguments: Range<usize>,
        /// Its data.
        data: Range<usize>,
    },
    /// A line for the log.
    Log {
        /// The severity.
        level: Level,
        /// The text.
        text: Range<usize>,
    },
}

/// The effects of callbacks, in order.
#[derive(Default, Debug)]
pub struct Outbox {
    /// The effects.
    pub effects: Vec<Effect>,
    /// The bytes that they refer to.
    pub bytes: Vec<u8>,
    /// Waits, timers and threads that were refused because there were too many.
    pub refusals: u64,
}

impl Outbox {
    /// Removes all effects. Keeps the memory up to 1 MiB.
    pub fn clear(&mut self) {
        self.effects.clear();
        self.bytes.clear();
        self.refusals = 0;
        if self.bytes.capacity() > 1024 * 1024 {
            self.bytes = Vec::new();
        }
    }

    /// The bytes of a range.
    #[must_use]
    pub fn get(&self, range: &Range<usize>) -> &[u8] {
        self.bytes.get(range.clone()).unwrap_or_default()
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) -> Range<usize> {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        start..self.bytes.len()
    }
}

/// The facts that a VM reports to its scripts.
#[derive(Clone, Debug)]
pub struct Facts {
    /// The name of the application.
    pub app: String,
    /// The number of the worker, from 0.
    pub worker: u32,
    /// The number of workers.
    pub workers: u32,
    /// The `settings` of the application, as JSON.
    pub settings: Vec<u8>,
    /// The seed of `math.random`.
    pub seed: u64,
    /// The random bytes of `tide.crypto`.
    pub randomness: Randomness,
    /// The number of the VM among all VMs that this worker has had.
    pub life: u32,
    /// The number in the ids of clients: the number of the first VM in the series of VMs that have handed over these clients.
    pub client_life: u32,
    /// The dictionaries of the application, by name.
    pub shared: Vec<(String, Arc<Dictionary>)>,
    /// The queues that the application uses, by name.
    pub queues: Vec<(String, Arc<Queue>)>,
    /// The names of the push hubs.
    pub hubs: Arc<[String]>,
    /// The names of the pools to which the application may send requests.
    pub pools: Vec<String>,
    /// The script may use the library `io`, and the functions of `os` that reach outside of the process.
    pub permissions: Permissions,
    /// The interface that the script was written for, if it is not the module `tide`.
    pub layer: Option<Layer>,
    /// The scripts of the phases besides the script of the application, by name. Only for the layer `Ngx`.
    pub phases: Vec<(String, Script)>,
}

/// What a script may use besides its sandbox.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Permissions {
    /// The library `io`.
    pub io: bool,
    /// The functions of `os` that reach outside of the process.
    pub os: bool,
}

/// Replaces all bytes by random ones. Returns false if there are none.
type Fill = dyn Fn(&mut [u8]) -> bool;

/// Random bytes that nobody can guess, from the worker.
#[derive(Clone)]
pub struct Randomness(Rc<Fill>);

impl Randomness {
    /// Random bytes by this function, which returns false if it cannot provide any.
    #[must_use]
    pub fn new(fill: impl Fn(&mut [u8]) -> bool + 'static) -> Self {
        Self(Rc::new(fill))
    }

    /// Replaces all bytes by random ones. Returns false if there are none.
    pub(crate) fn fill(&self, bytes: &mut [u8]) -> bool {
        (self.0)(bytes)
    }
}

impl fmt::Debug for Randomness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Randomness")
    }
}

/// An interface besides the module `tide`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Layer {
    /// LAppS.
    Lapps,
    /// OpenResty.
    Ngx,
}

/// A function that finds a module: its file name and its source.
pub type FindModule = Box<dyn Fn(&str) -> Result<Option<(String, Vec<u8>)>, String>>;

/// Names a WebSocket client of a VM.
pub type ClientId = Id<Client>;

/// A client of another worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RemoteClient {
    /// The number of the worker.
    pub worker: u32,
    /// The number in its id (`Facts::client_life`).
    pub life: u32,
    /// The name of the client there.
    pub client: ClientId,
}

/// A WebSocket client.
#[derive(Debug)]
pub struct Client {
    /// The worker's tag of the client.
    pub(crate) tag: u64,
    /// Messages are still delivered.
    pub(crate) is_open: bool,
    /// The client belongs to an earlier VM, which may hand it over. This VM only keeps its id free.
    pub(crate) is_reserved: bool,
    /// The coroutine of its handler, while it waits.
    pub(crate) task: TaskId,
    /// Bytes that wait for the client: the worker's last count, and those sent since.
    pub(crate) queued: usize,
    /// The request that opened the connection, until `on_open` has ended.
    pub(crate) request: ScriptRequestId,
}

/// The data of one VM; see the module header.
pub(crate) struct Host {
    /// The facts about the application and the worker that scripts can read.
    pub(crate) facts: Facts,
    /// Finds the source of a module that a script requires.
    pub(crate) find_module: FindModule,
    /// The effects of the callbacks since the last `Vm::take_outbox`.
    pub(crate) outbox: Outbox,
    /// The requests whose responses are in progress.
    pub(crate) exchanges: Slab<Box<ScriptRequest>>,
    /// The events of push hubs that wait for decisions.
    pub(crate) events: Slab<HubEvent>,
    /// The place in its list of the event whose handler has failed last; 0 if it was in no list.
    pub(crate) failed_place: usize,
    /// The forwarded WebSockets of `on_frame`. Each keeps a request.
    pub(crate) tunnels: Slab<Tunnel>,
    /// The handshakes for which the script chooses the certificate.
    pub(crate) hellos: Slab<TlsHello>,
    /// The WebSocket clients.
    pub(crate) clients: Slab<Client>,
    /// How many entries of `clients` are reserved.
    pub(crate) reserved: usize,
    /// The state of the client that is handed over.
    pub(crate) handover_state: Vec<u8>,
    /// When the VM ends; `None` unless other code has taken its place.
    pub(crate) retires_at: Option<Moment>,
    /// When the process stops at the latest, once it does.
    pub(crate) stops_at: Option<Moment>,
    /// Seconds since 1970.
    pub(crate) unix_seconds: f64,
    /// Nanoseconds of the worker's clock.
    pub(crate) now_nanos: u64,
    /// The callback that runs cannot wait.
    pub(crate) cannot_wait: bool,
    /// What the coroutine that yielded waits for.
    pub(crate) wait: Wait,
    /// Coroutines that wait, and jobs.
    pub(crate) schedule: Schedule,
    /// The operations that the worker carries out for coroutines that wait.
    pub(crate) operations: Slab<Operation>,
    /// The number of requests to servers and of open sockets: up to `requests_max`.
    pub(crate) outgoing: usize,
    /// Requests to servers and sockets that may be in progress at once.
    pub(crate) requests_max: usize,
    /// Bytes that the VM may hold.
    pub(crate) memory_bytes_max: usize,
    /// The sockets of scripts.
    pub(crate) sockets: Sockets,
    /// The sockets for datagrams.
    pub(crate) datagrams: Datagrams,
    /// The coroutines that wait for a value of a queue, by the place of the queue, oldest first. Some may be stale.
    pub(crate) queue_waiters: Vec<VecDeque<TaskId>>,
    /// How many digests for keys of WebSocket connections were drawn.
    pub(crate) drawn: u64,
    /// Keys of frames that were drawn and not used.
    pub(crate) mask_keys: Vec<MaskKey>,
    /// The owner of the handler that runs.
    pub(crate) owner: Owner,
    /// The handler that runs is `on_start`.
    pub(crate) is_starting: bool,
    /// The worker's tags of requests whose coroutines were cancelled, until `Vm::take_cancelled`.
    pub(crate) cancelled: Vec<u64>,
    /// Coroutines of `on_log` and `on_frame_end` that wait.
    pub(crate) waiting_logs: usize,
    /// The coroutine of the broadcast that is being delivered, while it waits.
    pub(crate) broadcast: TaskId,
    /// Clients whose `on_open` has not ended: each keeps a request.
    pub(crate) opening: usize,
    /// The handlers of the script: one bit for each handler.
    pub(crate) handlers: u32,
    /// Lines logged in this callback.
    lines: u32,
    /// Exchanges that have ended, for their buffers.
    #[expect(
        clippy::vec_box,
        reason = "a move between this list and `exchanges` copies a pointer"
    )]
    spare: Vec<Box<ScriptRequest>>,
    /// What the code of the console has returned.
    pub(crate) shown: String,
    /// The compiled regular expressions.
    pub(crate) patterns: Patterns,
    /// The names of the tests, in the VMs of tests.
    pub(crate) tests: Vec<String>,
}

impl Host {
    pub(crate) fn new(facts: Facts, find_module: FindModule, bounds: &Bounds) -> Self {
        Self {
            facts,
            find_module,
            outbox: Outbox::default(),
            exchanges: Slab::new(EXCHANGES_MAX),
            events: Slab::new(EVENTS_MAX),
            failed_place: 0,
            tunnels: Slab::new(TUNNELS_MAX),
            hellos: Slab::new(HELLOS_MAX),
            clients: Slab::new(CLIENTS_MAX),
            reserved: 0,
            handover_state: Vec::new(),
            retires_at: None,
            stops_at: None,
            unix_seconds: 0.0,
            now_nanos: 0,
            cannot_wait: false,
            wait: Wait::Nothing,
            schedule: Schedule::new(bounds.jobs_max),
            operations: Slab::new(OPERATIONS_MAX),
            outgoing: 0,
            requests_max: bounds.requests_max,
            memory_bytes_max: bounds.memory_bytes_max,
            sockets: Sockets::default(),
            datagrams: Datagrams::default(),
            queue_waiters: Vec::new(),
            drawn: 0,
            mask_keys: Vec::new(),
            owner: Owner::Application,
            is_starting: false,
            cancelled: Vec::new(),
            waiting_logs: 0,
            broadcast: Id::NONE,
            opening: 0,
            handlers: 0,
            lines: 0,
            spare: Vec::new(),
            shown: String::new(),
            patterns: Patterns::default(),
            tests: Vec::new(),
        }
    }

    /// Adds a dictionary that a test uses. Returns its index.
    pub(crate) fn add_dictionary(&mut self, name: String) -> usize {
        self.facts.shared.push((name, Arc::new(Dictionary::new(TEST_DICTIONARY_BYTES))));
        self.facts.shared.len() - 1
    }

    /// Adds a queue that a test uses. Returns its number.
    pub(crate) fn add_queue(&mut self, name: String) -> usize {
        self.facts.queues.push((name, Arc::new(Queue::new(TEST_DICTIONARY_BYTES))));
        self.facts.queues.len() - 1
    }

    /// The time that scripts see.
    pub(crate) fn now(&self) -> Moment {
        Moment::from_nanos(self.now_nanos)
    }

    /// Requests whose responses the worker expects.
    pub(crate) fn requests(&self) -> usize {
        self.exchanges.len() - self.opening - self.tunnels.len()
    }

    /// A callback begins, or continues after a wait.
    pub(crate) fn begin_callback(&mut self, owner: Owner, what: &str) {
        (self.owner, self.is_starting) = (owner, what == ON_START);
        self.lines = 0;
        self.wait = Wait::Nothing;
    }

    /// Takes over a request. `None` if there are too many.
    pub(crate) fn open(
        &mut self,
        head: &RequestHead<'_>,
        origin: &Origin<'_>,
    ) -> Option<ScriptRequestId> {
        let mut exchange = self.spare.pop().unwrap_or_default();
        exchange.set(head, origin);
        if origin.pools.is_some() && self.handlers & (1 << Handler::Body as u32) != 0 {
            exchange.remove_ranges();
        }
        self.exchanges.insert(exchange).ok()
    }

    /// Forgets an exchange. Its handler is cancelled if it waits, unless the response is complete.
    pub(crate) fn close(&mut self, id: ScriptRequestId) {
        let Some(mut exchange) = self.exchanges.remove(id) else { return };
        match exchange.response {
            Response::Ended => self.schedule.detach(exchange.task),
            Response::Expected | Response::Relayed | Response::Begun => {
                self.schedule.cancel(exchange.task);
            }
        }
        self.schedule.wake_all(&exchange.waiters, Wake::Ended);
        if let Some(flow) = &exchange.flow {
            self.schedule.wake(flow.reader, Wake::Ended);
        }
        if self.spare.len() < SPARE_MAX {
            exchange.clear();
            self.spare.push(exchange);
        }
    }

    /// Logs a line.
    pub(crate) fn log(&mut self, level: Level, text: &[u8]) {
        self.lines += 1;
        if self.lines > LOG_LINES_MAX {
            return;
        }
        let text = match self.lines == LOG_LINES_MAX {
            true => b"this callback logs too many lines; its further lines are dropped",
            false => &text[..text.len().min(LOG_BYTES_MAX)],
        };
        let text = self.outbox.push(text);
        self.outbox.effects.push(Effect::Log { level, text });
    }

    /// Sets the status of a response.
    pub(crate) fn set_status(
        &mut self,
        id: ScriptRequestId,
        status: u16,
    ) -> Result<(), &'static str> {
        let exchange = self.exchanges.get_mut(id).ok_or(ENDED)?;
        if exchange.response != Response::Expected {
            return Err(HEAD_SENT);
        }
        exchange.status = status;
        exchange.is_touched = true;
        Ok(())
    }

    /// Removes the response's fields of this name, and adds one if there is a value.
    pub(crate) fn set_field(
        &mut self,
        id: ScriptRequestId,
        name: &[u8],
        value: Option<&[u8]>,
        replaces: bool,
    ) -> Result<(), String> {
        let exchange = self.exchanges.get_mut(id).ok_or(ENDED)?;
        exchange.set_answer_field(name, value, replaces)
    }

    /// The exchange of a request that is changed.
    pub(crate) fn exchange(
        &mut self,
        id: ScriptRequestId,
    ) -> Result<&mut ScriptRequest, &'static str> {
        self.exchanges.get_mut(id).map(Box::as_mut).ok_or(ENDED)
    }

    /// The head of the server's response to a request, during `on_response` and `on_body`.
    pub(crate) fn reply(&mut self, id: ScriptRequestId) -> Result<&mut ReplyHead, &'static str> {
        let exchange = self.exchanges.get_mut(id).ok_or(ENDED)?;
        exchange.reply.as_deref_mut().ok_or(HEAD_SENT)
    }

    /// The same, during `on_response`.
    pub(crate) fn changeable_reply(
        &mut self,
        id: ScriptRequestId,
    ) -> Result<&mut ReplyHead, &'static str> {
        match self.exchange(id)?.flow {
            None => self.reply(id),
            Some(_) => Err(HEAD_SENT),
        }
    }

    /// Adds to the body of a response. `flush` sends it.
    pub(crate) fn write(&mut self, id: ScriptRequestId, data: &[u8]) -> Result<(), &'static str> {
        let total = self.outbox.bytes.len() + data.len();
        let exchange = self.exchanges.get_mut(id).ok_or(ENDED)?;
        match exchange.response {
            Response::Expected | Response::Begun => {}
            Response::Relayed => return Err(OF_SERVER),
            Response::Ended => return Err(ENDED),
        }
        if total + exchange.written.len() > OUTPUT_BYTES_MAX {
            return Err(TOO_MUCH);
        }
        exchange.written.extend_from_slice(data);
        exchange.is_touched = true;
        self.note_hook_progress(id);
        Ok(())
    }

    /// Takes the part of a body that was written and not sent. The caller appends to it and puts it back.
    pub(crate) fn take_written(&mut self, id: ScriptRequestId) -> Option<Vec<u8>> {
        let exchange = self.exchanges.get_mut(id)?;
        let is_open = matches!(exchange.response, Response::Expected | Response::Begun);
        is_open.then(|| core::mem::take(&mut exchange.written))
    }

    /// Puts back what `take_written` returned, to which JSON was added.
    pub(crate) fn put_written_json(&mut self, id: ScriptRequestId, written: Vec<u8>) {
        if let Some(exchange) = self.exchanges.get_mut(id) {
            exchange.written = written;
            exchange.is_touched = true;
            exchange.set_default_type(b"application/json");
        }
    }

    /// Whether so much was written that it has to be sent.
    pub(crate) fn must_flush(&self, id: ScriptRequestId) -> bool {
        let exchange = self.exchanges.get(id);
        exchange.is_some_and(|exchange| exchange.written.len() > WRITTEN_BYTES_MAX)
    }

    /// Sends what was written.
    pub(crate) fn flush(&mut self, id: ScriptRequestId) -> Result<(), &'static str> {
        let Self { exchanges, outbox, .. } = self;
        let exchange = exchanges.get_mut(id).ok_or(ENDED)?;
        match exchange.response {
            Response::Ended => return Err(ENDED),
            Response::Relayed => return Err(OF_SERVER),
            Response::Expected => {
                exchange.is_touched = true;
                exchange.set_default_type(b"text/plain; charset=utf-8");
                exchange.response = Response::Begun;
                let fields = outbox.push(&exchange.answer_fields);
                let (tag, status) = (exchange.tag, exchange.status);
                outbox.effects.push(Effect::Begin { tag, status, fields });
            }
            Response::Begun => {}
        }
        if !exchange.written.is_empty() {
            let body = outbox.push(&exchange.written);
            exchange.written.clear();
            outbox.effects.push(Effect::Data { tag: exchange.tag, body, is_end: false });
        }
        Ok(())
    }

    /// Completes a response.
    pub(crate) fn finish(&mut self, id: ScriptRequestId) -> Result<(), &'static str> {
        let Self { exchanges, outbox, .. } = self;
        let exchange = exchanges.get_mut(id).ok_or(ENDED)?;
        let tag = exchange.tag;
        match exchange.response {
            Response::Ended => return Err(ENDED),
            Response::Relayed => return Err(OF_SERVER),
            Response::Expected => {
                if !exchange.written.is_empty() {
                    exchange.set_default_type(b"text/plain; charset=utf-8");
                }
                let fields = outbox.push(&exchange.answer_fields);
                let body = outbox.push(&exchange.written);
                let status = exchange.status;
                outbox.effects.push(Effect::Answer { tag, status, fields, body });
            }
            Response::Begun => {
                let body = outbox.push(&exchange.written);
                outbox.effects.push(Effect::Data { tag, body, is_end: true });
            }
        }
        exchange.response = Response::Ended;
        exchange.written.clear();
        Ok(())
    }

    /// Ends an exchange without a response, or without the rest of it.
    pub(crate) fn drop_response(&mut self, id: ScriptRequestId) -> Result<(), &'static str> {
        let exchange = self.exchanges.get_mut(id).ok_or(ENDED)?;
        match exchange.response {
            Response::Ended => return Err(ENDED),
            Response::Relayed => return Err(OF_SERVER),
            Response::Expected | Response::Begun
                if exchange.flow.as_ref().is_some_and(|flow| !flow.is_upload) =>
            {
                return Err(HEAD_SENT);
            }
            Response::Expected | Response::Begun => {}
        }
        exchange.response = Response::Ended;
        exchange.written.clear();
        self.outbox.effects.push(Effect::Drop { tag: exchange.tag });
        Ok(())
    }

    /// A handler of a request begins. `at_return`: the effect of its return.
    pub(crate) fn note_handler(&mut self, id: ScriptRequestId, at_return: AtReturn) {
        if let Some(exchange) = self.exchanges.get_mut(id) {
            exchange.at_return = at_return;
        }
    }

    /// A handler of a request has returned.
    pub(crate) fn note_returned(&mut self, id: ScriptRequestId) {
        let Some(exchange) = self.exchanges.get_mut(id) else { return };
        let completes = match core::mem::take(&mut exchange.at_return) {
            AtReturn::Nothing => false,
            AtReturn::Completes => true,
            AtReturn::CompletesTouched => exchange.is_touched,
        };
        if completes {
            // Fails if the script has completed the response.
            let _ = self.finish(id);
        }
    }

    /// A handler of a request has ended itself (`ngx.exit`). Changes by `on_access` count only at its return.
    pub(crate) fn note_left(&mut self, id: ScriptRequestId) {
        let Some(exchange) = self.exchanges.get_mut(id) else { return };
        match core::mem::take(&mut exchange.at_return) {
            AtReturn::Completes => {
                // Fails if the script has completed the response.
                let _ = self.finish(id);
            }
            AtReturn::Nothing | AtReturn::CompletesTouched => {}
        }
    }

    /// Whether the response of an exchange is complete, or the exchange is gone.
    pub(crate) fn has_ended(&self, id: ScriptRequestId) -> bool {
        self.exchanges.get(id).is_none_or(|exchange| exchange.response == Response::Ended)
    }
}

/// The error of an operation on a response that is complete or whose client has left.
const ENDED: &str = "the response has ended";
/// The error of a response to a request that a server has answered.
const OF_SERVER: &str = "a server has responded: on_response can only change its head";
/// The error of a change of a head that was sent.
const HEAD_SENT: &str = "the head of the response has been sent";
