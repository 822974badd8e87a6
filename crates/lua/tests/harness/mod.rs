//! A test harness for scripts: loads a script, sends it requests and carries out its effects.
//! In: the source of a script. Out: verdicts and responses.
#![allow(dead_code)]

use core::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use tidegate_base::{Id, Moment, Span};
use tidegate_lua::{
    Bounds, Budget, CallbackEnd, ClientName, DatagramSocketId, Dictionary, Effect, Facts, Failure,
    Layer, OperationId, Origin, Outbox, Permissions, Queue, Randomness, Resumed, Script,
    ScriptRequestId, SocketId, Vm,
};
use tidegate_wire::http1::{HeadDecoder, HeadLimits};
use tidegate_wire::message::FieldStorage;

/// Bounds as in production, with a short budget.
pub const TIMED: Bounds = Bounds {
    budget: Budget::Time(Span::from_millis(50)),
    load_budget: Budget::Time(Span::from_millis(200)),
    memory_bytes_max: 8 * 1024 * 1024,
    jobs_max: JOBS_MAX,
    requests_max: REQUESTS_MAX,
};
/// Bounds as in the simulator.
pub const COUNTED: Bounds = Bounds {
    budget: Budget::Instructions(2_000_000),
    load_budget: Budget::Instructions(2_000_000),
    memory_bytes_max: 8 * 1024 * 1024,
    jobs_max: JOBS_MAX,
    requests_max: REQUESTS_MAX,
};
/// Timers and threads that exist at once.
pub const JOBS_MAX: usize = 100;
/// Requests to servers that are in progress at once.
pub const REQUESTS_MAX: usize = 3;
/// The size of the dictionary `cache`.
const SHARED_BYTES: usize = 64 * 1024;
/// The time at which an application begins.
const BEGIN_NANOS: u64 = 1_500_000_000;

/// Random bytes that are none: 0, 1, 2 and so on.
fn counting() -> Randomness {
    let next = Cell::new(0_u8);
    Randomness::new(move |bytes| {
        bytes.fill_with(|| next.replace(next.get().wrapping_add(1)));
        true
    })
}

/// An application.
pub struct App {
    pub vm: Vm,
    /// The lines of the log so far.
    pub log: Vec<String>,
    /// The head of the last response: status and fields.
    pub head: (u16, Vec<(String, String)>),
    /// What WebSocket clients got: tag, kind and data.
    pub sent: Vec<String>,
    /// The calls of push hubs.
    pub calls: Vec<(OperationId, String)>,
    /// The decisions about events of push hubs: their tags and the decisions.
    pub decisions: Vec<(u64, String)>,
    /// The requests to servers: pool, method, target, host, fields, body, limits.
    pub requests: Vec<(OperationId, String)>,
    /// The bytes that sockets send.
    pub raw: Vec<u8>,
    /// The effects of sockets: the id of a socket that connects, and a description.
    pub sockets: Vec<(SocketId, String)>,
    /// The effects of sockets for datagrams: the id of a socket that opens, and a description.
    pub datagrams: Vec<(Option<DatagramSocketId>, String)>,
    /// The datagrams that are being sent.
    pub sends: Vec<OperationId>,
    /// The reads of files.
    pub reads: Vec<(OperationId, String)>,
    /// The lookups of names.
    pub lookups: Vec<(OperationId, String)>,
    /// The body of the response in progress.
    body: String,
    /// The response is complete.
    is_complete: bool,
    /// The broadcasts: channels and messages.
    pub broadcasts: Vec<(String, Vec<u8>)>,
    /// The workers that learn of values in queues, and the numbers of the queues.
    pub filled: Vec<(u32, usize)>,
    /// How often a hook on a body has made room.
    pub rooms: usize,
    /// The VM waits for this client to read.
    pub awaits_drain: bool,
    pub now_nanos: u64,
    /// The request that was opened last.
    pub opened: ScriptRequestId,
}

impl App {
    pub fn try_load(text: &str, bounds: &Bounds) -> Result<Self, Failure> {
        Self::load_with(text, bounds, &[])
    }

    pub fn load(text: &str, bounds: &Bounds) -> Self {
        Self::try_load(text, bounds).unwrap_or_else(|failure| panic!("{failure}\n{text}"))
    }

    pub fn load_with(
        text: &str,
        bounds: &Bounds,
        modules: &'static [(&str, &str)],
    ) -> Result<Self, Failure> {
        Self::load_on(text, bounds, modules, &Arc::new(Dictionary::new(SHARED_BYTES)))
    }

    pub fn load_sharing(text: &str, bounds: &Bounds, shared: &Arc<Dictionary>) -> Self {
        let loaded = Self::load_on(text, bounds, &[], shared);
        loaded.unwrap_or_else(|failure| panic!("{failure}\n{text}"))
    }

    fn load_on(
        text: &str,
        bounds: &Bounds,
        modules: &'static [(&str, &str)],
        shared: &Arc<Dictionary>,
    ) -> Result<Self, Failure> {
        let shared = vec![("cache".to_owned(), Arc::clone(shared))];
        Self::load_of(text, bounds, modules, |facts| facts.shared = shared)
    }

    /// Loads a script that shares the queue `jobs`.
    pub fn load_queued(text: &str, queue: &Arc<Queue>) -> Self {
        let queues = vec![("jobs".to_owned(), Arc::clone(queue))];
        let loaded = Self::load_of(text, &TIMED, &[], |facts| facts.queues = queues);
        loaded.unwrap_or_else(|failure| panic!("{failure}\n{text}"))
    }

    /// Loads a script with these permissions.
    pub fn load_permitted(text: &str, permissions: Permissions) -> Self {
        let loaded = Self::load_of(text, &TIMED, &[], |facts| facts.permissions = permissions);
        loaded.unwrap_or_else(|failure| panic!("{failure}\n{text}"))
    }

    /// Loads a service of LAppS with these settings, as JSON.
    pub fn load_service(text: &str, settings: &str) -> Result<Self, Failure> {
        Self::load_of(text, &TIMED, &[], |facts| {
            facts.settings = settings.as_bytes().to_vec();
            (facts.layer, facts.worker) = (Some(Layer::Lapps), 0);
        })
    }

    /// Loads scripts for OpenResty: the script of the content phase, and the scripts of other phases by name.
    pub fn load_ngx(
        text: &str,
        phases: &[(&str, &str)],
        modules: &'static [(&str, &str)],
    ) -> Result<Self, Failure> {
        let shared = vec![("cache".to_owned(), Arc::new(Dictionary::new(SHARED_BYTES)))];
        Self::load_of(text, &TIMED, modules, |facts| {
            facts.settings =
                br#"{"color":"red","127.0.0.1:6379":"api","unix:/s":"other"}"#.to_vec();
            (facts.layer, facts.shared) = (Some(Layer::Ngx), shared);
            let script = |(name, text): &(&str, &str)| {
                let script = Script { file: format!("{name}.lua"), text: text.as_bytes().to_vec() };
                ((*name).to_owned(), script)
            };
            facts.phases = phases.iter().map(script).collect();
        })
    }

    fn load_of(
        text: &str,
        bounds: &Bounds,
        modules: &'static [(&str, &str)],
        change: impl FnOnce(&mut Facts),
    ) -> Result<Self, Failure> {
        let script = Script { file: "app.lua".to_owned(), text: text.as_bytes().to_vec() };
        let mut facts = Facts {
            app: "test".to_owned(),
            worker: 1,
            workers: 4,
            settings: br#"{"greeting":"hello","most":3}"#.to_vec(),
            seed: 7,
            randomness: counting(),
            life: 2,
            client_life: 2,
            shared: Vec::new(),
            queues: vec![("jobs".to_owned(), Arc::new(Queue::new(1024)))],
            hubs: ["live".to_owned()].into(),
            pools: vec!["api".to_owned(), "other".to_owned()],
            permissions: Permissions::default(),
            layer: None,
            phases: Vec::new(),
        };
        change(&mut facts);
        let find_module = move |name: &str| {
            let found = modules.iter().find(|(module, _)| *module == name);
            Ok(found.map(|(module, text)| (format!("{module}.lua"), text.as_bytes().to_vec())))
        };
        let vm = Vm::load(&script, bounds, facts, Box::new(find_module))?;
        let mut app = Self {
            vm,
            log: Vec::new(),
            head: (0, Vec::new()),
            sent: Vec::new(),
            calls: Vec::new(),
            decisions: Vec::new(),
            requests: Vec::new(),
            raw: Vec::new(),
            sockets: Vec::new(),
            datagrams: Vec::new(),
            sends: Vec::new(),
            lookups: Vec::new(),
            reads: Vec::new(),
            body: String::new(),
            is_complete: false,
            broadcasts: Vec::new(),
            filled: Vec::new(),
            rooms: 0,
            awaits_drain: false,
            now_nanos: BEGIN_NANOS,
            opened: Id::NONE,
        };
        app.advance(0);
        Ok(app)
    }

    /// Sends `GET target`. Returns the status and body, if there was a complete response.
    pub fn get(&mut self, target: &str) -> (CallbackEnd, Option<(u16, String)>) {
        self.send(&format!("GET {target} HTTP/1.1\r\nHost: example.com\r\n\r\n"), b"")
    }

    pub fn send(&mut self, head: &str, body: &[u8]) -> (CallbackEnd, Option<(u16, String)>) {
        let id = self.open(head);
        self.vm.add_body(id, body);
        let mut verdict = self.vm.request(id);
        let mut response = self.effects();
        while verdict == CallbackEnd::Waiting && core::mem::take(&mut self.awaits_drain) {
            self.vm.note_drained(id);
            verdict = self.vm.resume().expect("the request is ready to continue").verdict;
            response = self.effects();
        }
        self.vm.close_request(id);
        (verdict, response)
    }

    /// Lets time pass, and runs the callbacks that are due. Returns their results.
    pub fn advance(&mut self, millis: u64) -> Vec<Resumed> {
        self.now_nanos += millis * 1_000_000;
        let seconds = (self.now_nanos - BEGIN_NANOS) as f64 / 1e9;
        self.vm.set_time(Moment::from_nanos(self.now_nanos), 1_700_000_000.25 + seconds);
        self.vm.collect_due();
        let mut resumed = Vec::new();
        while let Some(callback) = self.vm.resume() {
            resumed.push(callback);
            assert!(resumed.len() < 10_000, "the VM never becomes idle");
        }
        resumed
    }

    /// Milliseconds until the next callback is due.
    pub fn due_in(&mut self) -> Option<u64> {
        let due = self.vm.next_due()?.as_nanos();
        Some(due.saturating_sub(self.now_nanos) / 1_000_000)
    }

    pub fn open(&mut self, head: &str) -> ScriptRequestId {
        self.open_as(head, None)
    }

    /// Opens a request for `on_access`, which may choose these pools.
    pub fn open_hook(&mut self, head: &str, pools: &[&str]) -> ScriptRequestId {
        self.open_as(head, Some(pools.iter().map(|name| (*name).to_owned()).collect()))
    }

    fn open_as(&mut self, head: &str, pools: Option<Arc<[String]>>) -> ScriptRequestId {
        let mut storage = FieldStorage::new();
        let mut bytes = head.as_bytes().to_vec();
        let decoded =
            HeadDecoder::default().decode_request(&bytes, &HeadLimits::default(), &mut storage);
        let (head, _) = decoded.expect("the head is valid").expect("the head is complete");
        let params = [("id".to_owned(), "4 2".to_owned())];
        let origin = Origin {
            tag: 9,
            client: ClientName::Text("192.0.2.1"),
            user: None,
            is_https: false,
            params: &params,
            pools: pools.as_ref(),
        };
        let id = self.vm.open_request(&head, &origin).expect("there is room");
        bytes.clear();
        self.opened = id;
        id
    }

    /// The part of the response in progress that the client has got.
    pub fn partial(&self) -> &str {
        &self.body
    }

    /// Carries out the effects. Returns the response if it is complete.
    pub fn effects(&mut self) -> Option<(u16, String)> {
        let mut outbox = Outbox::default();
        self.vm.take_outbox(&mut outbox);
        for effect in &outbox.effects {
            match effect {
                Effect::Answer { status, fields, body, .. } => {
                    self.note_head(*status, outbox.get(fields));
                    self.body.push_str(&String::from_utf8_lossy(outbox.get(body)));
                    self.is_complete = true;
                }
                Effect::Begin { status, fields, .. } => self.note_head(*status, outbox.get(fields)),
                Effect::Decide { tag, decision } => {
                    let decision = String::from_utf8_lossy(outbox.get(decision)).into_owned();
                    self.decisions.push((*tag, decision));
                }
                Effect::ChooseCertificate { tag, choice } => {
                    self.sent.push(format!("{tag} {choice:?}"));
                }
                Effect::Drop { tag } => self.sent.push(format!("{tag} dropped")),
                Effect::Data { body, is_end, .. } => {
                    self.body.push_str(&String::from_utf8_lossy(outbox.get(body)));
                    self.is_complete |= is_end;
                }
                Effect::Send { tag, is_text, data } => {
                    let data = String::from_utf8_lossy(outbox.get(data)).into_owned();
                    let kind = if *is_text { "text" } else { "binary" };
                    self.sent.push(format!("{tag} {kind} {data}"));
                }
                Effect::Close { tag, code, reason } => {
                    let reason = String::from_utf8_lossy(outbox.get(reason)).into_owned();
                    self.sent.push(format!("{tag} close {code} {reason}"));
                }
                Effect::SendRemote { to, is_text, data } => {
                    let data = String::from_utf8_lossy(outbox.get(data)).into_owned();
                    let kind = if *is_text { "text" } else { "binary" };
                    self.sent.push(format!("{to:?} {kind} {data}"));
                }
                Effect::CloseRemote { to, code, .. } => {
                    self.sent.push(format!("{to:?} close {code}"));
                }
                Effect::SendFrame { tag, to_client, is_text, data } => {
                    let to = if *to_client { "client" } else { "server" };
                    let data = String::from_utf8_lossy(outbox.get(data));
                    self.sent.push(format!("{tag} {to} {is_text} {data}"));
                }
                Effect::CloseTunnel { tag, code, reason } => {
                    let reason = String::from_utf8_lossy(outbox.get(reason));
                    self.sent.push(format!("{tag} tunnel {code} {reason}"));
                }
                Effect::AwaitDrain { .. } => self.awaits_drain = true,
                Effect::BodyRoom { .. } => self.rooms += 1,
                Effect::Broadcast { channel, data } => {
                    let channel = String::from_utf8_lossy(outbox.get(channel)).into_owned();
                    self.broadcasts.push((channel, outbox.get(data).to_vec()));
                }
                Effect::QueueFilled { worker, queue } => {
                    self.filled.push((*worker, *queue));
                }
                Effect::Test { .. } => panic!("this VM has no tests"),
                Effect::Push { operation, hub, method, arguments } => {
                    let text = |range| String::from_utf8_lossy(outbox.get(range)).into_owned();
                    self.calls.push((
                        *operation,
                        format!("{} {} {}", text(hub), text(method), text(arguments)),
                    ));
                }
                Effect::Http { operation, request } => {
                    let text = |range| String::from_utf8_lossy(outbox.get(range)).into_owned();
                    let (method, target) = (text(&request.method), text(&request.target));
                    let (host, fields) = (text(&request.host), text(&request.fields));
                    let body = request.body.as_ref().map(text);
                    self.requests.push((
                        *operation,
                        format!(
                            "{} {method} {target} {host:?} {fields:?} {body:?} {} {:?}",
                            request.pool, request.body_bytes_max, request.timeout
                        ),
                    ));
                }
                Effect::Connect { socket, pool } => {
                    self.sockets.push((*socket, format!("connect {pool}")));
                }
                Effect::SocketSend { tag, data } => {
                    self.raw.extend_from_slice(outbox.get(data));
                    let data = String::from_utf8_lossy(outbox.get(data)).into_owned();
                    self.sockets.push((Id::NONE, format!("{tag} send {data}")));
                }
                Effect::SocketResume { tag } => {
                    self.sockets.push((Id::NONE, format!("{tag} resume")));
                }
                Effect::SocketIdle { tag, span } => {
                    self.sockets.push((Id::NONE, format!("{tag} idle {span:?}")));
                }
                Effect::Lookup { operation, question } => {
                    let what = format!("{} {}", question.kind().name(), question.name());
                    self.lookups.push((*operation, what));
                }
                Effect::ReadFile { operation, path, offset, bytes_max } => {
                    let path = String::from_utf8_lossy(outbox.get(path)).into_owned();
                    self.reads.push((*operation, format!("{path} {offset} {bytes_max}")));
                }
                Effect::OpenDatagrams { socket, peer } => {
                    self.datagrams.push((Some(*socket), format!("open {peer}")));
                }
                Effect::SendDatagram { operation, tag, data } => {
                    let data = String::from_utf8_lossy(outbox.get(data)).into_owned();
                    self.datagrams.push((None, format!("{tag} send {data}")));
                    self.sends.push(*operation);
                }
                Effect::Log { level, text } => {
                    let text = String::from_utf8_lossy(outbox.get(text)).into_owned();
                    self.log.push(format!("{level:?} {text}"));
                }
            }
        }
        let is_complete = core::mem::take(&mut self.is_complete);
        is_complete.then(|| (self.head.0, core::mem::take(&mut self.body)))
    }

    fn note_head(&mut self, status: u16, fields: &[u8]) {
        let fields = tidegate_lua::fields_of(fields)
            .map(|(name, value)| (name.to_owned(), String::from_utf8_lossy(value).into_owned()));
        self.head = (status, fields.collect());
    }
}

/// The CPU time of this thread.
pub fn cpu_time() -> Duration {
    // The first number is the CPU time of the thread in nanoseconds.
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux has it");
    let nanos = text.split(' ').next().and_then(|n| n.parse().ok()).expect("a number");
    Duration::from_nanos(nanos)
}
