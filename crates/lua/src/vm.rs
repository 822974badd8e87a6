//! A VM of an application: its script, its callbacks, and their effects.
//! In: the script, requests, the worker's clock. Out: how callbacks end, and effects (`take_outbox`).
//! Never: reads a file or a clock (except for budgets, see `engine/guard.rs`); moves to another thread.
//! Limits: the budget of each callback, the memory of the VM.
//! Invariant: a VM remains usable after any failure of a script.

use tidegate_base::{Id, Moment};
use tidegate_wire::message::{RequestHead, ResponseHead};

use crate::body::HOOK_WAIT_MAX;
use crate::engine::{Argument, Budget, Coroutine, Engine, Entry, Excess, Failure, Turn};
use crate::events::ON_PUSH;
use crate::exchange::{AtReturn, Origin, Rewritten};
use crate::hellos::ON_CERTIFICATE;
use crate::host::{ClientId, Facts, FindModule, Host, Layer, Level, Outbox, ScriptRequestId};
use crate::operations::{OperationId, Outcome, Reply};
use crate::outgoing::Response;
use crate::reply::ReplyHead;
use crate::schedule::{JobEnd, JobId, Owner, Ready, Task, Wait, Wake};
use crate::sockets::Keeper;

/// The source of an application.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Script {
    /// The name of the file in messages.
    pub file: String,
    /// The source.
    pub text: Vec<u8>,
}

/// The bounds of a VM.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bounds {
    /// How long a callback may run.
    pub budget: Budget,
    /// How long the script may take to load, and `on_start` to run.
    pub load_budget: Budget,
    /// Bytes that the VM may hold.
    pub memory_bytes_max: usize,
    /// Timers and threads of the script that exist at once.
    pub jobs_max: usize,
    /// Requests of the script to servers and sockets that are in progress at once.
    pub requests_max: usize,
}

/// A function that the script exports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Handler {
    /// `on_start`
    Start,
    /// `on_stop`
    Stop,
    /// `on_request`
    Request,
    /// `on_open`
    Open,
    /// `on_message`
    Message,
    /// `on_close`
    Close,
    /// `on_drain`
    Drain,
    /// `on_access`
    Access,
    /// `on_response`
    Response,
    /// `on_log`
    Log,
    /// `on_handover`
    Handover,
    /// `on_retire`
    Retire,
    /// `on_body`
    Body,
    /// The layer takes broadcasts.
    Broadcast,
    /// `on_push`
    Push,
    /// `on_balance`
    Balance,
    /// `on_frame`
    Frame,
    /// `on_frame_end`
    FrameEnd,
    /// `on_certificate`
    Certificate,
    /// `on_upload`
    Upload,
}

/// How a callback ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CallbackEnd {
    /// It has returned.
    Done,
    /// It waits, and continues in `Vm::resume`.
    Waiting,
    /// It was stopped by an error or a budget.
    Failed(Failure),
}

/// The owner of a callback. The tags are those of the worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CallbackOwner {
    /// `on_request` of a request.
    Request {
        /// The request.
        tag: u64,
    },
    /// A handler of a WebSocket client.
    Client {
        /// The client.
        tag: u64,
    },
    /// `on_push` for an event of a push hub.
    Event {
        /// The event.
        tag: u64,
    },
    /// `on_frame` for a message of a tunnel.
    Tunnel {
        /// The tunnel.
        tag: u64,
    },
    /// `on_certificate` for a handshake.
    Hello {
        /// The handshake.
        tag: u64,
    },
    /// The application.
    Application,
}

/// A callback that has continued after a wait, or a timer or thread that has begun.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Resumed {
    /// The owner of the callback.
    pub owner: CallbackOwner,
    /// The name of the callback, for messages.
    pub what: &'static str,
    /// How it ended.
    pub verdict: CallbackEnd,
}

/// How a coroutine continues.
struct Continuation {
    /// The number of its run.
    run: u64,
    coroutine: Coroutine,
    wake: Wake,
    /// The result of the operation that it has waited for.
    reply: Option<Reply>,
}

/// The name of tests in messages, and in `Resumed::what`.
pub const TEST: &str = "the test";
/// The name of `on_start` in messages.
pub(crate) const ON_START: &str = "on_start";
/// The name of `on_frame` in messages.
pub(crate) const ON_FRAME: &str = "on_frame";
/// The name of `on_response` in messages.
const ON_RESPONSE: &str = "on_response";
/// Maximum number of calls of `on_log` and `on_frame_end` that wait.
const WAITING_LOGS_MAX: usize = 1024;
/// The name of jobs in messages.
const JOB: &str = "a function of tide.timer or tide.spawn";

/// A VM; see the module header.
pub struct Vm {
    /// LuaJIT, and the data of its native functions.
    pub(crate) engine: Engine,
}

/// The chunk that only the VMs of tests have. It comes before the last one of the prelude.
const TEST_PRELUDE: (&core::ffi::CStr, &[u8]) = (c"=tidegate", include_bytes!("prelude/test.lua"));

/// The chunk of the layer for LAppS. It comes before the last one of the prelude.
const LAPPS_PRELUDE: (&core::ffi::CStr, &[u8]) = (c"=lapps", include_bytes!("prelude/lapps.lua"));

/// The chunks of the layer for OpenResty. They come before the last one of the prelude.
const NGX_PRELUDE: [(&core::ffi::CStr, &[u8]); 8] = [
    (c"=ngx", include_bytes!("prelude/ngx.lua")),
    (c"=ngx", include_bytes!("prelude/ngx_text.lua")),
    (c"=ngx", include_bytes!("prelude/ngx_request.lua")),
    (c"=ngx", include_bytes!("prelude/ngx_response.lua")),
    (c"=ngx", include_bytes!("prelude/ngx_waits.lua")),
    (c"=ngx", include_bytes!("prelude/ngx_shared.lua")),
    (c"=ngx", include_bytes!("prelude/ngx_re.lua")),
    (c"=ngx", include_bytes!("prelude/ngx_modules.lua")),
];

/// The chunks of the prelude, in order.
const PRELUDE: [(&core::ffi::CStr, &[u8]); 20] = [
    (c"=tidegate", include_bytes!("prelude/sandbox.lua")),
    (c"=tidegate", include_bytes!("prelude/tide.lua")),
    (c"=tidegate", include_bytes!("prelude/crypto.lua")),
    (c"=tidegate", include_bytes!("prelude/http.lua")),
    (c"=tidegate", include_bytes!("prelude/files.lua")),
    (c"=tidegate", include_bytes!("prelude/clients.lua")),
    (c"=tidegate", include_bytes!("prelude/channels.lua")),
    (c"=tidegate", include_bytes!("prelude/shared.lua")),
    (c"=tidegate", include_bytes!("prelude/queues.lua")),
    (c"=tidegate", include_bytes!("prelude/jobs.lua")),
    (c"=tidegate", include_bytes!("prelude/push.lua")),
    (c"=tidegate", include_bytes!("prelude/outgoing.lua")),
    (c"=tidegate", include_bytes!("prelude/sockets.lua")),
    (c"=tidegate", include_bytes!("prelude/redis.lua")),
    (c"=tidegate", include_bytes!("prelude/names.lua")),
    (c"=tidegate", include_bytes!("prelude/datagrams.lua")),
    (c"=tidegate", include_bytes!("prelude/websocket.lua")),
    (c"=tidegate", include_bytes!("prelude/frames.lua")),
    (c"=tidegate", include_bytes!("prelude/handover.lua")),
    (c"=tidegate", include_bytes!("prelude/entries.lua")),
];

impl Vm {
    /// Delivers a broadcast to the subscribers of a channel. The next broadcast must not follow while this one waits
    /// (`is_broadcasting`): it would overtake this one.
    pub fn broadcast(&mut self, channel: &str, data: &[u8]) -> CallbackEnd {
        let arguments = [Argument::Bytes(channel.as_bytes()), Argument::Bytes(data)];
        self.run(Entry::Broadcast, (Owner::Broadcast, "a broadcast"), &arguments)
    }

    /// Whether a broadcast was begun and waits.
    #[must_use]
    pub fn is_broadcasting(&self) -> bool {
        let host = self.engine.peek();
        host.schedule.has_task(host.broadcast)
    }

    /// Creates a VM on this thread and loads the script.
    ///
    /// # Errors
    /// The script has a syntax error, fails while it loads, or returns no table of handlers.
    pub fn load(
        script: &Script,
        bounds: &Bounds,
        facts: Facts,
        find_module: FindModule,
    ) -> Result<Self, Failure> {
        let mut prelude = PRELUDE.to_vec();
        let layer: &[_] = match facts.layer {
            None => &[],
            Some(Layer::Lapps) => &[LAPPS_PRELUDE],
            Some(Layer::Ngx) => &NGX_PRELUDE,
        };
        let before_last = prelude.len() - 1;
        prelude.splice(before_last..before_last, layer.iter().copied());
        let mut vm = Self::begin(bounds, facts, find_module, &prelude)?;
        vm.load_script(Entry::Load, script)?;
        vm.engine.set_budget(bounds.budget);
        Ok(vm)
    }

    /// Creates a VM for tests, and loads the tests and then the application.
    ///
    /// # Errors
    /// As for `load`.
    pub fn load_tests(
        tests: &Script,
        script: &Script,
        bounds: &Bounds,
        facts: Facts,
        find_module: FindModule,
    ) -> Result<Self, Failure> {
        let mut prelude = PRELUDE.to_vec();
        prelude.insert(prelude.len() - 1, TEST_PRELUDE);
        let mut vm = Self::begin(bounds, facts, find_module, &prelude)?;
        vm.load_script(Entry::LoadTests, tests)?;
        vm.load_script(Entry::Load, script)?;
        vm.engine.set_budget(bounds.budget);
        Ok(vm)
    }

    fn begin(
        bounds: &Bounds,
        facts: Facts,
        find_module: FindModule,
        prelude: &[(&core::ffi::CStr, &[u8])],
    ) -> Result<Self, Failure> {
        let host = Box::new(Host::new(facts, find_module, bounds));
        let mut engine = Engine::new(host, bounds.budget, bounds.memory_bytes_max, prelude)
            .map_err(Failure::plain)?;
        engine.set_budget(bounds.load_budget);
        Ok(Self { engine })
    }

    fn load_script(&mut self, entry: Entry, script: &Script) -> Result<(), Failure> {
        let arguments = [Argument::Bytes(&script.text), Argument::Bytes(script.file.as_bytes())];
        match self.run(entry, (Owner::Application, "the script"), &arguments) {
            CallbackEnd::Done => Ok(()),
            CallbackEnd::Waiting => {
                let what = format!("{}: a script cannot wait while it loads", script.file);
                Err(Failure::plain(what))
            }
            CallbackEnd::Failed(failure) => Err(failure),
        }
    }

    /// The names of the tests, in no order.
    #[must_use]
    pub fn tests(&self) -> &[String] {
        &self.engine.peek().tests
    }

    /// Runs a test.
    pub fn test(&mut self, name: &str) -> CallbackEnd {
        self.run(Entry::Test, (Owner::Application, TEST), &[Argument::Bytes(name.as_bytes())])
    }

    /// Whether the script has this handler.
    #[must_use]
    pub fn has(&self, handler: Handler) -> bool {
        self.engine.peek().handlers & (1 << handler as u32) != 0
    }

    /// Sets the time that scripts see.
    pub fn set_time(&mut self, now: Moment, unix_seconds: f64) {
        let host = self.engine.host();
        host.now_nanos = now.as_nanos();
        host.unix_seconds = unix_seconds;
    }

    /// Bytes that the VM holds.
    #[must_use]
    pub fn used_bytes(&self) -> usize {
        self.engine.used_bytes()
    }

    /// Frees the memory that the script does not hold any more.
    pub fn collect_garbage(&mut self) {
        self.engine.collect();
    }

    /// Runs `on_start`, if there is one.
    pub fn start(&mut self) -> CallbackEnd {
        match self.has(Handler::Start) {
            true => self.run(Entry::Start, (Owner::Application, ON_START), &[]),
            false => CallbackEnd::Done,
        }
    }

    /// The process stops, at `by` at the latest: scripts learn of it (`tide.premature`), and timers that run before their time
    /// rather than never become ready.
    pub fn note_stopping(&mut self, by: Moment) {
        let host = self.engine.host();
        host.stops_at = Some(by);
        host.schedule.call_owed();
    }

    /// Runs the timers that would be lost, until one exceeds its budget. They cannot wait.
    fn run_owed(&mut self) {
        let now = self.engine.host().now();
        self.note_stopping(now);
        for id in self.engine.host().schedule.pending_jobs() {
            let CallbackEnd::Failed(failure) = self.run_job(id, None).verdict else { continue };
            self.engine.host().log(Level::Error, failure.to_string().as_bytes());
            if failure.is_excess() {
                break;
            }
        }
    }

    /// Runs the timers that would be lost, cancels everything that waits, and runs `on_stop`, if there is one. `on_stop` cannot
    /// wait.
    pub fn stop(&mut self) -> CallbackEnd {
        self.run_owed();
        self.engine.host().schedule.clear();
        self.engine.host().waiting_logs = 0;
        self.forget_dropped();
        let verdict = match self.has(Handler::Stop) {
            true => self.run(Entry::Stop, (Owner::Application, "on_stop"), &[]),
            false => CallbackEnd::Done,
        };
        self.engine.host().schedule.clear();
        self.forget_dropped();
        match verdict {
            CallbackEnd::Waiting => CallbackEnd::Failed(Failure {
                excess: None,
                message: "on_stop cannot wait".to_owned(),
                trace: String::new(),
            }),
            verdict => verdict,
        }
    }

    /// Takes over a request whose body follows with `add_body`. `None` if the VM serves too many.
    pub fn open_request(
        &mut self,
        head: &RequestHead<'_>,
        origin: &Origin<'_>,
    ) -> Option<ScriptRequestId> {
        self.engine.host().open(head, origin)
    }

    /// Appends to the body of a request. Returns the size of the body.
    pub fn add_body(&mut self, id: ScriptRequestId, data: &[u8]) -> usize {
        let exchange = self.engine.host().exchanges.get_mut(id);
        exchange.map_or(0, |exchange| exchange.add_body(data))
    }

    /// Runs `on_request` for a request whose body is complete.
    pub fn request(&mut self, id: ScriptRequestId) -> CallbackEnd {
        self.engine.host().note_handler(id, AtReturn::Completes);
        self.run(Entry::Request, (Owner::Request(id), "on_request"), &numbers(id))
    }

    /// Runs `on_access` for a request that will be forwarded.
    pub fn access(&mut self, id: ScriptRequestId) -> CallbackEnd {
        self.engine.host().note_handler(id, AtReturn::CompletesTouched);
        self.run(Entry::Access, (Owner::Request(id), "on_access"), &numbers(id))
    }

    /// Runs `on_response` for the head of a server's response. If it waits, `hold_response` must follow.
    pub fn response(&mut self, id: ScriptRequestId, head: &ResponseHead<'_>) -> CallbackEnd {
        let mut reply = ReplyHead::new(head);
        reply.decide_by = self.engine.host().now().after(HOOK_WAIT_MAX);
        self.note_response(id, reply);
        self.engine.host().note_handler(id, AtReturn::Nothing);
        self.run(Entry::Response, (Owner::Request(id), ON_RESPONSE), &numbers(id))
    }

    /// `on_response` waits. From now on, `tag` is the worker's tag of the request.
    pub fn hold_response(&mut self, id: ScriptRequestId, tag: u64) {
        if let Ok(exchange) = self.engine.host().exchange(id) {
            exchange.tag = tag;
        }
    }

    /// Takes the head of a response, as `on_response` has changed it.
    pub fn take_reply(&mut self, id: ScriptRequestId) -> Option<Box<ReplyHead>> {
        self.engine.host().exchange(id).ok()?.reply.take()
    }

    /// Whether `on_log` and `on_frame_end` may run: a bounded number of them waits.
    #[must_use]
    pub fn can_log(&self) -> bool {
        self.engine.peek().waiting_logs < WAITING_LOGS_MAX
    }

    /// Runs `on_log` for a request that has ended. `record` is a JSON object. The log phase of the layer `Ngx` cannot wait.
    pub fn log(&mut self, record: &[u8]) -> CallbackEnd {
        let (owner, arguments) = ((Owner::Log, "on_log"), [Argument::Bytes(record)]);
        match self.engine.peek().facts.layer {
            Some(Layer::Ngx) => self.run_at_once(Entry::Log, owner, &arguments),
            Some(Layer::Lapps) | None => self.run(Entry::Log, owner, &arguments),
        }
    }

    /// Runs a callback that cannot wait.
    pub(crate) fn run_at_once(
        &mut self,
        entry: Entry,
        owner: (Owner, &'static str),
        arguments: &[Argument<'_>],
    ) -> CallbackEnd {
        self.engine.host().cannot_wait = true;
        let verdict = self.run(entry, owner, arguments);
        self.engine.host().cannot_wait = false;
        verdict
    }

    /// Swaps a request that `on_access` has changed, and not answered, with `into`, which provides buffers.
    pub fn take_request(&mut self, id: ScriptRequestId, into: &mut Rewritten) {
        into.fields.clear();
        if let Some(exchange) = self.engine.host().exchanges.get_mut(id) {
            exchange.take(into);
        }
    }

    /// Puts a request that was taken back, for `on_response`.
    pub fn restore_request(&mut self, id: ScriptRequestId, from: &mut Rewritten) {
        if let Ok(exchange) = self.engine.host().exchange(id) {
            exchange.take(from);
        }
    }

    /// Forgets a request: its response is complete, or its client has left.
    pub fn close_request(&mut self, id: ScriptRequestId) {
        self.engine.host().close(id);
        self.forget_dropped();
    }

    /// The client of a begun response has read what was sent: `response:flush` returns.
    pub fn note_drained(&mut self, id: ScriptRequestId) {
        self.engine.host().note_drained(id);
    }

    /// The number of requests whose responses the worker expects.
    #[must_use]
    pub fn requests(&self) -> usize {
        self.engine.peek().requests()
    }

    /// The number of handlers of requests and clients that wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.engine.peek().schedule.owned()
    }

    /// The number of timers and threads.
    #[must_use]
    pub fn jobs(&self) -> usize {
        self.engine.peek().schedule.jobs()
    }

    /// Takes over a WebSocket client. `None` if the VM serves too many.
    pub fn open_client(&mut self, tag: u64) -> Option<ClientId> {
        self.engine.host().open_client(tag)
    }

    /// Runs `on_open` for a client and the request that opened its connection, which ends with the handler.
    pub fn opened(&mut self, client: ClientId, request: ScriptRequestId) -> CallbackEnd {
        self.engine.host().begin_opening(client, request);
        let ([a, b], [c, d]) = (numbers(client), numbers(request));
        self.run(Entry::Open, (Owner::Client(client), "on_open"), &[a, b, c, d])
    }

    /// Runs `on_message`.
    pub fn message(&mut self, client: ClientId, data: &[u8], is_text: bool) -> CallbackEnd {
        let [index, _] = numbers(client);
        let arguments = [index, Argument::Bytes(data), Argument::Boolean(is_text)];
        self.run(Entry::Message, (Owner::Client(client), "on_message"), &arguments)
    }

    /// Cancels the handler of a client if one waits, runs `on_close` and forgets the client.
    pub fn closed(&mut self, client: ClientId, code: u16, reason: &str) -> CallbackEnd {
        self.engine.host().cancel_handler(client);
        self.engine.host().note_closed(client);
        let [index, _] = numbers(client);
        let code = Argument::Number(f64::from(code));
        let arguments = [index, code, Argument::Bytes(reason.as_bytes())];
        let verdict = self.run(Entry::Close, (Owner::Application, "on_close"), &arguments);
        let host = self.engine.host();
        host.end_sockets_of(Keeper::Client(client));
        host.clients.remove(client);
        verdict
    }

    /// Forgets the client with this tag, without a callback.
    pub fn abandon_client(&mut self, tag: u64) {
        let host = self.engine.host();
        let found = host.clients.iter().find(|(_, client)| client.tag == tag).map(|(id, _)| id);
        if let Some(id) = found {
            host.cancel_handler(id);
            host.end_sockets_of(Keeper::Client(id));
            if let Some(client) = host.clients.remove(id) {
                host.reserved -= usize::from(client.is_reserved);
            }
            self.forget_dropped();
        }
    }

    /// A Close frame was sent to a client, so that no more messages are delivered to it. `on_close` runs later.
    pub fn note_closing(&mut self, client: ClientId) {
        self.engine.host().note_closed(client);
    }

    /// Notes how many bytes wait for a client.
    pub fn note_queued(&mut self, client: ClientId, bytes: usize) {
        if let Some(client) = self.engine.host().clients.get_mut(client) {
            client.queued = bytes;
        }
    }

    /// Runs `on_drain` for a client that has read the bytes that waited for it.
    pub fn drained(&mut self, client: ClientId) -> CallbackEnd {
        let [index, _] = numbers(client);
        // Another handler of the client may wait, so this one belongs to the application.
        self.run(Entry::Drain, (Owner::Application, "on_drain"), &[index])
    }

    /// The worker's tag of a client, if it is open. `life`: the number in the client's id.
    #[must_use]
    pub fn tag_of(&self, life: u32, client: ClientId) -> Option<u64> {
        let host = self.engine.peek();
        if host.facts.client_life != life {
            return None;
        }
        host.client(client).ok()
    }

    /// The worker has carried out an operation of the VM with the number `life`.
    pub fn complete(&mut self, life: u32, id: OperationId, reply: Result<&[u8], &str>) {
        let reply = reply.map(|bytes| Outcome::Bytes(bytes.to_vec())).map_err(str::to_owned);
        self.complete_with(life, id, reply);
    }

    /// The worker has a response to a request of the VM with the number `life`, or the request has failed.
    pub fn complete_request(&mut self, life: u32, id: OperationId, reply: Result<Response, &str>) {
        self.complete_with(life, id, reply.map(Outcome::Response).map_err(str::to_owned));
    }

    fn complete_with(&mut self, life: u32, id: OperationId, reply: Reply) {
        let host = self.engine.host();
        if host.facts.life == life {
            host.complete(id, reply);
        }
    }

    /// The worker has begun a request; `tag` is its tag. Returns false if the request is not wanted any more.
    pub fn note_begun(&mut self, id: OperationId, tag: u64) -> bool {
        self.engine.host().note_begun(id, tag)
    }

    /// Takes the worker's tag of a request that is not wanted any more.
    pub fn take_cancelled(&mut self) -> Option<u64> {
        self.engine.host().cancelled.pop()
    }

    /// The number of operations in progress.
    #[must_use]
    pub fn operations(&self) -> usize {
        self.engine.peek().operations.len()
    }

    /// The number of WebSocket clients.
    #[must_use]
    pub fn clients(&self) -> usize {
        let host = self.engine.peek();
        host.clients.len() - host.reserved
    }

    /// Swaps an empty outbox with the one that contains the effects since the last call.
    pub fn take_outbox(&mut self, outbox: &mut Outbox) {
        let host = self.engine.host();
        host.outbox.refusals = core::mem::take(&mut host.schedule.refusals);
        core::mem::swap(outbox, &mut host.outbox);
    }

    pub(crate) fn run(
        &mut self,
        entry: Entry,
        owner: (Owner, &'static str),
        arguments: &[Argument<'_>],
    ) -> CallbackEnd {
        let host = self.engine.host();
        host.schedule.begin_run();
        host.begin_callback(owner.0, owner.1);
        let turn = self.engine.call(entry, arguments);
        self.finish_turn(owner, turn)
    }

    /// Keeps a coroutine that waits, and notes the end of one that has ended.
    fn finish_turn(&mut self, (owner, what): (Owner, &'static str), turn: Turn) -> CallbackEnd {
        let verdict = match turn {
            Turn::Returned(coroutine) => {
                self.engine.keep(coroutine);
                if let Owner::Request(id) = owner {
                    self.engine.host().note_returned(id);
                }
                CallbackEnd::Done
            }
            Turn::Suspended(coroutine) if self.engine.host().wait == Wait::End => {
                // The coroutine has ended itself, and its stack is not needed any more.
                self.engine.host().wait = Wait::Nothing;
                self.engine.forget(coroutine);
                if let Owner::Request(id) = owner {
                    self.engine.host().note_left(id);
                }
                CallbackEnd::Done
            }
            Turn::Suspended(coroutine) => {
                match self.engine.host().suspend(coroutine, owner, what) {
                    true => CallbackEnd::Waiting,
                    false => CallbackEnd::Failed(Failure {
                        excess: None,
                        message: "attempt to yield outside of a coroutine".to_owned(),
                        trace: String::new(),
                    }),
                }
            }
            Turn::Failed(failure) => CallbackEnd::Failed(failure),
        };
        if verdict != CallbackEnd::Waiting {
            let host = self.engine.host();
            host.end_sockets_of(Keeper::Run(host.schedule.run));
            match owner {
                Owner::Job(_)
                | Owner::Request(_)
                | Owner::Tunnel(_)
                | Owner::Broadcast
                | Owner::Log
                | Owner::Application => {}
                Owner::Client(client) => self.engine.host().end_opening(client),
                Owner::Event(event) => {
                    // Its handler has failed, or has decided.
                    let host = self.engine.host();
                    host.failed_place = host.events.remove(event).map_or(0, |event| event.place);
                }
                Owner::Hello(hello) => drop(self.engine.host().hellos.remove(hello)),
            }
        }
        self.forget_dropped();
        verdict
    }

    /// Frees the coroutines of cancelled tasks.
    pub(crate) fn forget_dropped(&mut self) {
        while let Some((coroutine, run)) = self.engine.host().schedule.take_dropped() {
            self.engine.forget(coroutine);
            self.engine.host().end_sockets_of(Keeper::Run(run));
        }
        self.engine.host().end_abandoned();
    }
}

/// Callbacks that wait, timers and threads.
impl Vm {
    /// When `collect_due` has something to do next.
    #[must_use]
    pub fn next_due(&mut self) -> Option<Moment> {
        self.engine.host().schedule.next_due()
    }

    /// Makes ready what is due at the time of `set_time`.
    pub fn collect_due(&mut self) {
        let host = self.engine.host();
        let now = host.now();
        host.schedule.collect(now);
    }

    /// Whether `resume` has something to do.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.engine.peek().schedule.is_ready()
    }

    /// The owner of the callback that [`Vm::resume`] would continue now.
    #[must_use]
    pub fn next_owner(&self) -> CallbackOwner {
        let host = self.engine.peek();
        let owner = host.schedule.next_owner();
        owner.map_or(CallbackOwner::Application, |owner| host.callback_owner(owner))
    }

    /// Continues one callback, or begins one timer or thread. `None` if nothing is ready.
    pub fn resume(&mut self) -> Option<Resumed> {
        loop {
            match self.engine.host().schedule.take_ready()? {
                Ready::Task(id, wake) => {
                    if let Some(task) = self.engine.host().schedule.take_task(id) {
                        return Some(self.resume_task(task, wake));
                    }
                }
                Ready::Job(id) => {
                    if self.engine.host().schedule.has_job(id) {
                        return Some(self.run_job(id, None));
                    }
                }
            }
        }
    }

    fn resume_task(&mut self, task: Task, wake: Wake) -> Resumed {
        if wake == Wake::Overdue {
            return self.give_up(task);
        }
        let Task { coroutine, owner, what, operation, run, .. } = task;
        let host = self.engine.host();
        let next = Continuation { run, coroutine, wake, reply: host.take_reply(operation) };
        if let Owner::Job(id) = owner {
            return self.run_job(id, Some(next));
        }
        let host = self.engine.host();
        host.note_resumed(owner);
        host.schedule.run = run;
        host.begin_callback(owner, what);
        let callback_owner = host.callback_owner(owner);
        let turn = self.continue_with(next);
        Resumed { owner: callback_owner, what, verdict: self.finish_turn((owner, what), turn) }
    }

    /// Ends a handler that has waited for too long.
    fn give_up(&mut self, task: Task) -> Resumed {
        let Task { coroutine, owner, what, operation, run, .. } = task;
        let host = self.engine.host();
        host.note_resumed(owner);
        host.schedule.run = run;
        host.abandon_operation(operation);
        let callback_owner = host.callback_owner(owner);
        self.engine.forget(coroutine);
        let seconds = HOOK_WAIT_MAX.as_secs();
        let message = match what {
            ON_RESPONSE | ON_FRAME => format!("{what} has waited for {seconds} s"),
            ON_PUSH => format!("{what} has not decided within the timeout of the hub"),
            ON_CERTIFICATE => format!("{what} has not chosen in time"),
            _ => format!("{what} has neither read nor written for {seconds} s"),
        };
        let failure = Failure { excess: Some(Excess::Wait), message, trace: String::new() };
        Resumed {
            owner: callback_owner,
            what,
            verdict: self.finish_turn((owner, what), Turn::Failed(failure)),
        }
    }

    /// Begins or continues a job.
    fn run_job(&mut self, id: JobId, suspended: Option<Continuation>) -> Resumed {
        let host = self.engine.host();
        host.schedule.running = id;
        match &suspended {
            None => host.schedule.begin_run(),
            Some(next) => host.schedule.run = next.run,
        }
        host.begin_callback(Owner::Job(id), JOB);
        let turn = match suspended {
            None => self.engine.call(Entry::Job, &numbers(id)[..1]),
            Some(next) => self.continue_with(next),
        };
        let verdict = self.finish_turn((Owner::Job(id), JOB), turn);
        let host = self.engine.host();
        host.schedule.running = Id::NONE;
        let now = host.now();
        if verdict != CallbackEnd::Waiting
            && host.schedule.finish_job(id, now) == JobEnd::Over
            && let CallbackEnd::Failed(failure) = &verdict
        {
            let message = Argument::Bytes(failure.message.as_bytes());
            // The prelude's own code: a failure here means that there is no memory, and the job is forgotten.
            if let Turn::Returned(coroutine) =
                self.engine.call(Entry::JobFailed, &[numbers(id)[0], message])
            {
                self.engine.keep(coroutine);
            }
        }
        Resumed { owner: CallbackOwner::Application, what: JOB, verdict }
    }

    /// Continues a coroutine, whose operation returns true and its result, or false and an error.
    fn continue_with(&mut self, next: Continuation) -> Turn {
        let Continuation { coroutine, wake, reply, .. } = next;
        let is_done = Argument::Boolean(true);
        let failed =
            |text: &'static str| [Argument::Boolean(false), Argument::Bytes(text.as_bytes())];
        if let Some(reply) = reply {
            return match &reply {
                Ok(Outcome::Bytes(bytes)) => {
                    self.engine.run(coroutine, &[is_done, Argument::Bytes(bytes)])
                }
                Ok(Outcome::Response(Response { status, fields, body })) => {
                    let status = Argument::Number(f64::from(*status));
                    let (body, fields) = (Argument::Bytes(body), Argument::Bytes(fields));
                    self.engine.run(coroutine, &[is_done, body, status, fields])
                }
                Err(text) => {
                    let text = Argument::Bytes(text.as_bytes());
                    self.engine.run(coroutine, &[Argument::Boolean(false), text])
                }
            };
        }
        match wake {
            Wake::Done => self.engine.run(coroutine, &[is_done]),
            Wake::Slept => self.engine.run(coroutine, &[is_done]),
            Wake::Due => self.engine.run(coroutine, &failed("timeout")),
            Wake::Ended => self.engine.run(coroutine, &failed("the response has ended")),
            Wake::Premature => self.engine.run(coroutine, &failed("premature")),
            // Unreachable: `give_up` has ended the coroutine.
            Wake::Overdue => self.engine.run(coroutine, &failed("timeout")),
        }
    }
}

/// An id as arguments.
pub(crate) fn numbers<T: ?Sized>(id: Id<T>) -> [Argument<'static>; 2] {
    [Argument::Number(f64::from(id.index)), Argument::Number(f64::from(id.generation))]
}

impl Failure {
    /// A failure without a traceback.
    fn plain(message: String) -> Self {
        Self { excess: None, message, trace: String::new() }
    }

    /// Whether a budget of time or memory was exceeded. Such failures count towards the restart of the VM.
    #[must_use]
    pub fn is_excess(&self) -> bool {
        match self.excess {
            Some(Excess::Time | Excess::Memory) => true,
            Some(Excess::Wait) | None => false,
        }
    }
}

impl core::fmt::Display for Failure {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(&self.message)?;
        if !self.trace.is_empty() {
            write!(f, "\n{}", self.trace)?;
        }
        Ok(())
    }
}
