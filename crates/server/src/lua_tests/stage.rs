//! One test: its VM, its fake clients and its time.
//! In: calls of the test, effects of the application. Out: requests and messages for the application, results for the test.
//! Never: lets two handlers of a client run at once.
//! Limits: those of `mod.rs`.
//! Invariant: time passes only while no coroutine can continue.

use std::collections::{BTreeMap, VecDeque};

use serde_json::{Value, json};
use tidegate_base::{Moment, Span};
use tidegate_lua::{
    CallbackEnd, CallbackOwner, ClientId, ClientName, Effect, Excess, Failure, Handler, HubEventId,
    OperationId, Origin, Outbox, ReplyHead, Resumed, Rewritten, ScriptRequestId, TEST, Vm,
    fields_of,
};
use tidegate_wire::http1::{HeadDecoder, HeadLimits, ResponseLimits};
use tidegate_wire::message::{FieldStorage, RequestKind, ResponseStorage};

use super::sockets::Links;
use super::tunnels::Tunnels;
use super::{SPAN_MAX, STEPS_MAX, text_of};

/// The time at which each test begins: after the start of the clock, and in seconds since 1970.
const BEGIN: Moment = Moment::from_nanos(1_000_000_000);
const BEGIN_UNIX_SECONDS: f64 = 1_700_000_000.0;
/// A request that opens a WebSocket has no response.
pub(super) const NO_TAG: u64 = u64::MAX;

/// A request in progress.
struct Request {
    exchange: ScriptRequestId,
    /// The order of the test that gets the response.
    operation: OperationId,
    /// `on_access` decides about it.
    is_access: bool,
    /// Its `on_response` waits.
    is_held: bool,
    /// The names of the pools that may be chosen.
    pools: Vec<String>,
    status: u16,
    fields: Vec<u8>,
    body: Vec<u8>,
    /// The pieces of a server's body that `on_body` has not got.
    pieces: VecDeque<Vec<u8>>,
}

/// A fake WebSocket client.
struct Client {
    handle: ClientId,
    /// A handler of the client waits.
    is_waiting: bool,
    /// Messages for a handler.
    backlog: VecDeque<(bool, Vec<u8>)>,
    /// Messages for the client: whether they are text, and their data.
    inbox: VecDeque<(bool, Vec<u8>)>,
    /// The order of the test that waits for a message, and how long.
    receiver: Option<(OperationId, Moment)>,
    /// The code and the reason of the end.
    closed: Option<(u16, String)>,
}

/// See the module.
pub(super) struct Stage {
    pub(super) vm: Vm,
    pub(super) now: Moment,
    /// Connections of the application to the servers that the test plays.
    pub(super) links: Links,
    requests: BTreeMap<u64, Request>,
    clients: BTreeMap<u64, Client>,
    /// Events of hubs that wait for decisions, and the orders of the test that get them.
    pub(super) events: BTreeMap<u64, (HubEventId, OperationId)>,
    /// Handshakes that wait for certificates, and the orders of the test that get the choices.
    pub(super) hellos: BTreeMap<u64, OperationId>,
    /// Forwarded WebSockets.
    pub(super) tunnels: Tunnels,
    /// Publications that wait for their delivery: channels and data.
    broadcasts: VecDeque<(String, Vec<u8>)>,
    /// The name of the next request or client.
    next_tag: u64,
    /// Calls of push hubs.
    calls: Vec<Value>,
    log: Vec<String>,
    /// How the test ended.
    end: Option<Result<(), String>>,
}

impl Stage {
    pub(super) fn new(vm: Vm) -> Self {
        let mut stage = Self {
            vm,
            now: BEGIN,
            links: Links::new(),
            requests: BTreeMap::new(),
            clients: BTreeMap::new(),
            events: BTreeMap::new(),
            hellos: BTreeMap::new(),
            tunnels: Tunnels::new(),
            broadcasts: VecDeque::new(),
            next_tag: 1,
            calls: Vec::new(),
            log: Vec::new(),
            end: None,
        };
        stage.set_time(BEGIN);
        stage
    }

    /// Runs a test. The error is what failed.
    pub(super) fn run(&mut self, name: &str) -> Result<(), String> {
        if let CallbackEnd::Failed(failure) = self.vm.start() {
            return Err(format!("on_start: {}", text_of(&failure)));
        }
        let verdict = self.vm.test(name);
        self.note_test(verdict);
        for _ in 0..STEPS_MAX {
            self.carry_out();
            if let Some(end) = self.end.take() {
                return end;
            }
            match self.vm.resume() {
                Some(resumed) => self.note_resumed(resumed),
                None => self.pass_time()?,
            }
        }
        Err(format!("the test never ends: its coroutines continued {STEPS_MAX} times"))
    }

    /// The virtual time that the test took, and the log.
    pub(super) fn end(mut self) -> (Span, Vec<String>) {
        self.vm.stop();
        self.carry_out();
        (self.now.since(BEGIN), self.log)
    }

    fn set_time(&mut self, now: Moment) {
        self.now = now;
        let seconds = now.since(BEGIN).as_nanos() as f64 / 1e9;
        self.vm.set_time(now, BEGIN_UNIX_SECONDS + seconds);
    }

    /// Lets time pass until something is due.
    fn pass_time(&mut self) -> Result<(), String> {
        if self.feed_bodies() {
            return Ok(());
        }
        let receivers = self.clients.values().filter_map(|client| client.receiver);
        let others = self.vm.next_due().into_iter().chain(self.next_expiry());
        let due = receivers.map(|(_, due)| due).chain(others).min();
        let Some(due) = due else {
            return Err("the test waits for something that never happens".to_owned());
        };
        if due.since(BEGIN) > SPAN_MAX {
            return Err("the test takes longer than 24 h of virtual time".to_owned());
        }
        self.set_time(due.max(self.now));
        self.vm.collect_due();
        self.expire_sockets();
        if self.vm.is_ready() {
            // What happens now comes before the end of a wait.
            return Ok(());
        }
        let late = |(tag, client): (&u64, &Client)| {
            client.receiver.is_some_and(|(_, by)| by <= due).then_some(*tag)
        };
        let late: Vec<u64> = self.clients.iter().filter_map(late).collect();
        for tag in late {
            if let Some(client) = self.clients.get_mut(&tag)
                && let Some((operation, _)) = client.receiver.take()
            {
                self.complete(operation, &json!({ "what": "timeout" }), b"");
            }
        }
        Ok(())
    }

    fn note_resumed(&mut self, resumed: Resumed) {
        let Resumed { owner, what, verdict } = resumed;
        match owner {
            CallbackOwner::Request { tag } => self.note_request(tag, verdict),
            CallbackOwner::Client { tag } => self.note_client(tag, verdict),
            CallbackOwner::Event { tag } => self.note_event(tag, &verdict),
            CallbackOwner::Hello { tag } => self.note_hello(tag, &verdict),
            CallbackOwner::Tunnel { tag } => self.note_frame(tag, &verdict),
            CallbackOwner::Application if what == TEST => self.note_test(verdict),
            CallbackOwner::Application => {
                self.note_failure(what, &verdict);
            }
        }
    }

    fn note_test(&mut self, verdict: CallbackEnd) {
        self.end = match verdict {
            CallbackEnd::Done => Some(Ok(())),
            CallbackEnd::Waiting => None,
            CallbackEnd::Failed(failure) => Some(Err(text_of(&failure))),
        };
    }

    pub(super) fn note_failure(&mut self, what: &str, verdict: &CallbackEnd) -> Option<Failure> {
        let CallbackEnd::Failed(failure) = verdict else { return None };
        self.log.push(format!("error: {what}: {}", text_of(failure)));
        Some(failure.clone())
    }

    pub(super) fn complete(&mut self, operation: OperationId, result: &Value, data: &[u8]) {
        let mut reply = result.to_string().into_bytes();
        reply.push(0);
        reply.extend_from_slice(data);
        self.vm.complete(0, operation, Ok(&reply));
    }

    /// Carries out what the scripts have ordered, and what follows from it.
    pub(super) fn carry_out(&mut self) {
        let mut outbox = Outbox::default();
        loop {
            outbox.clear();
            self.vm.take_outbox(&mut outbox);
            for effect in &outbox.effects {
                self.apply(effect, &outbox);
            }
            let has_delivered = self.deliver_broadcasts();
            if !self.end_closed_sockets() && outbox.effects.is_empty() && !has_delivered {
                return;
            }
        }
    }

    /// Delivers publications to subscribers, one after the other. Returns whether there was one.
    fn deliver_broadcasts(&mut self) -> bool {
        if self.vm.is_broadcasting() {
            return false;
        }
        let Some((channel, data)) = self.broadcasts.pop_front() else { return false };
        let verdict = self.vm.broadcast(&channel, &data);
        self.note_failure("a publication", &verdict);
        true
    }

    fn apply(&mut self, effect: &Effect, outbox: &Outbox) {
        match effect {
            Effect::Answer { tag, status, fields, body } => {
                self.begin_response(*tag, *status, outbox.get(fields));
                self.add_to_response(*tag, outbox.get(body), true);
            }
            Effect::Begin { tag, status, fields } => {
                self.begin_response(*tag, *status, outbox.get(fields));
            }
            Effect::Drop { tag } => {
                let reply = json!({ "status": 0, "dropped": true, "forwarded": false });
                self.finish(*tag, &reply);
            }
            Effect::Data { tag, body, is_end } => {
                self.add_to_response(*tag, outbox.get(body), *is_end);
            }
            Effect::Send { tag, is_text, data } => self.deliver(*tag, *is_text, outbox.get(data)),
            Effect::Close { tag, code, reason } => {
                let reason = String::from_utf8_lossy(outbox.get(reason)).into_owned();
                self.close(*tag, *code, reason);
            }
            // A test has one worker.
            Effect::SendRemote { .. } | Effect::CloseRemote { .. } => {}
            // The pieces of a test are fed one after the other.
            Effect::BodyRoom { .. } => {}
            Effect::SendFrame { tag, to_client, is_text, data } => {
                self.keep_sent(*tag, *to_client, (*is_text, outbox.get(data)));
            }
            Effect::CloseTunnel { tag, code, reason } => {
                self.close_tunnel(*tag, *code, outbox.get(reason));
            }
            Effect::Broadcast { channel, data } => {
                let channel = String::from_utf8_lossy(outbox.get(channel)).into_owned();
                self.broadcasts.push_back((channel, outbox.get(data).to_vec()));
            }
            Effect::QueueFilled { queue, .. } => {
                if let Some(queue) = self.vm.queue(*queue).cloned() {
                    self.vm.note_queue(&queue);
                }
            }
            Effect::AwaitDrain { tag } => {
                if let Some(request) = self.requests.get(tag) {
                    self.vm.note_drained(request.exchange);
                }
            }
            Effect::Push { operation, hub, method, arguments } => {
                let text = |range| String::from_utf8_lossy(outbox.get(range)).into_owned();
                let arguments: Value =
                    serde_json::from_slice(outbox.get(arguments)).unwrap_or_default();
                self.calls.push(
                    json!({ "hub": text(hub), "method": text(method), "arguments": arguments }),
                );
                self.vm.complete(0, *operation, Ok(b"{\"result\":{}}"));
            }
            Effect::Decide { tag, decision } => {
                if let Some((_, operation)) = self.events.remove(tag) {
                    self.complete(operation, &json!({}), outbox.get(decision));
                }
            }
            Effect::ChooseCertificate { tag, choice } => self.note_certificate(*tag, choice),
            // `tide.test.http` takes the place of servers.
            Effect::Http { operation, .. } => {
                self.vm.complete_request(0, *operation, Err("a test has no servers"));
            }
            Effect::Connect { socket, .. } => self.connect_socket(*socket),
            Effect::SocketSend { tag, data } => self.send_over_socket(*tag, outbox.get(data)),
            Effect::SocketResume { tag } => self.resume_socket(*tag),
            Effect::SocketIdle { tag, span } => self.keep_socket(*tag, *span),
            Effect::Lookup { operation, .. } => {
                self.vm.complete(0, *operation, Err("a test has no name servers"));
            }
            Effect::ReadFile { operation, .. } => {
                self.vm.complete(0, *operation, Err("not found"));
            }
            Effect::OpenDatagrams { socket, .. } => {
                self.vm.datagrams_ended(0, *socket, "a test has no datagrams");
            }
            Effect::SendDatagram { operation, .. } => {
                self.vm.complete(0, *operation, Err("closed"));
            }
            Effect::Log { level, text } => {
                let text = String::from_utf8_lossy(outbox.get(text));
                self.log.push(format!("{level:?}: {text}").to_lowercase());
            }
            Effect::Test { operation, method, arguments, data } => {
                let arguments: Value =
                    serde_json::from_slice(outbox.get(arguments)).unwrap_or_default();
                let method = outbox.get(method);
                let order = (*operation, &arguments, outbox.get(data));
                if let Err(why) = self.execute(method, order) {
                    self.vm.complete(0, *operation, Err(&why));
                }
            }
        }
    }

    /// Executes an order of the test.
    fn execute(
        &mut self,
        method: &[u8],
        (operation, arguments, data): (OperationId, &Value, &[u8]),
    ) -> Result<(), String> {
        let tag = arguments["client"].as_u64().unwrap_or_default();
        match method {
            b"request" | b"access" => {
                self.send_request(method == b"access", operation, arguments, data)
            }
            b"response" => self.run_response(operation, arguments, data),
            b"connect" => self.connect(operation, arguments),
            b"push" => self.decide(operation, arguments, data),
            b"balance" => self.balance(operation, arguments),
            b"certificate" => self.choose_certificate(operation, arguments),
            b"tunnel" => self.open_tunnel(operation, arguments),
            b"frame" => self.show_frame(operation, arguments, data),
            b"sent" => self.take_sent(operation, arguments),
            b"join" => self.join_sockets(operation, arguments),
            b"fail" => {
                self.end = Some(Err(String::from_utf8_lossy(data).into_owned()));
                Ok(())
            }
            b"send" => {
                let client = self.clients.get_mut(&tag).ok_or("there is no such client")?;
                if client.closed.is_some() {
                    return Err("the connection is closed".to_owned());
                }
                client.backlog.push_back((arguments["is_text"] == true, data.to_vec()));
                self.serve_backlog(tag);
                self.complete(operation, &json!({}), b"");
                Ok(())
            }
            b"receive" => {
                let seconds = arguments["seconds"].as_f64().unwrap_or_default().clamp(0.0, 1e6);
                let due = self.now.after(Span::from_secs_f64(seconds));
                let client = self.clients.get_mut(&tag).ok_or("there is no such client")?;
                if client.receiver.replace((operation, due)).is_some() {
                    return Err("two coroutines of the test receive from one client".to_owned());
                }
                self.serve_receiver(tag);
                Ok(())
            }
            b"close" => {
                let code = arguments["code"].as_u64().unwrap_or(1000) as u16;
                let reason = arguments["reason"].as_str().unwrap_or_default().to_owned();
                self.close(tag, code, reason);
                self.complete(operation, &json!({}), b"");
                Ok(())
            }
            b"published" => {
                let calls = core::mem::take(&mut self.calls);
                self.complete(operation, &json!({ "calls": calls }), b"");
                Ok(())
            }
            _ => Err("the test runner does not support this effect".to_owned()),
        }
    }
}

/// Requests.
impl Stage {
    /// Hands a fake request to the VM.
    pub(super) fn open(
        &mut self,
        arguments: &Value,
        data: &[u8],
        tag: u64,
        is_access: bool,
    ) -> Result<ScriptRequestId, String> {
        let text = head_of(arguments, data.len());
        let mut storage = FieldStorage::new();
        let limits = HeadLimits::default();
        let decoded = HeadDecoder::default().decode_request(text.as_bytes(), &limits, &mut storage);
        let head = match decoded {
            Ok(Some((head, _))) => head,
            Ok(None) => return Err("the request is not complete".to_owned()),
            Err(fault) => return Err(format!("the request is not valid: {}", fault.reason())),
        };
        let params = arguments["params"].as_object().into_iter().flatten();
        let params: Vec<(String, String)> =
            params.map(|(name, value)| (name.clone(), text_in(value))).collect();
        let pools = names_in(&arguments["pools"]).into();
        let origin = Origin {
            tag,
            client: ClientName::Text(arguments["client"].as_str().unwrap_or_default()),
            user: arguments["user"].as_str(),
            is_https: arguments["is_https"] == true,
            params: &params,
            pools: is_access.then_some(&pools),
        };
        let exchange = self.vm.open_request(&head, &origin).ok_or("too many requests")?;
        if is_access || !self.is_streamed(data) {
            self.vm.add_body(exchange, data);
        }
        Ok(exchange)
    }

    /// Whether `on_upload` serves a request with this body.
    fn is_streamed(&self, data: &[u8]) -> bool {
        self.vm.has(Handler::Upload) && (!data.is_empty() || !self.vm.has(Handler::Request))
    }

    fn send_request(
        &mut self,
        is_access: bool,
        operation: OperationId,
        arguments: &Value,
        data: &[u8],
    ) -> Result<(), String> {
        let tag = self.take_tag();
        let exchange = self.open(arguments, data, tag, is_access)?;
        let pools = names_in(&arguments["pools"]);
        let (status, fields, body, pieces) = (0, Vec::new(), Vec::new(), VecDeque::new());
        let is_held = false;
        let request = Request {
            exchange,
            operation,
            is_access,
            is_held,
            pools,
            status,
            fields,
            body,
            pieces,
        };
        self.requests.insert(tag, request);
        let verdict = match is_access {
            true => self.vm.access(exchange),
            false if self.is_streamed(data) => {
                self.vm.begin_upload(exchange);
                self.vm.feed_body(exchange, data);
                self.vm.end_body(exchange);
                self.vm.upload(exchange)
            }
            false => self.vm.request(exchange),
        };
        self.note_request(tag, verdict);
        Ok(())
    }

    /// Runs `on_response` for a fake response of a server.
    fn run_response(
        &mut self,
        operation: OperationId,
        arguments: &Value,
        data: &[u8],
    ) -> Result<(), String> {
        if !self.vm.has(Handler::Response) && !self.vm.has(Handler::Body) {
            return Err("the application has no on_response and no on_body".to_owned());
        }
        let exchange = self.open(arguments, b"", NO_TAG, false)?;
        let text = response_head_of(&arguments["response"], data.len());
        let mut storage = ResponseStorage::new();
        let limits = ResponseLimits::default();
        let kind = RequestKind::default();
        let decoded =
            HeadDecoder::default().decode_response(text.as_bytes(), &limits, kind, &mut storage);
        let Ok(Some((head, _))) = decoded else {
            return Err("the response is not valid".to_owned());
        };
        let verdict = match self.vm.has(Handler::Response) {
            true => self.vm.response(exchange, &head),
            false => {
                self.vm.note_response(exchange, ReplyHead::new(&head));
                CallbackEnd::Done
            }
        };
        let pieces = pieces_of(&arguments["response"]["pieces"], data);
        if verdict == CallbackEnd::Waiting {
            let (tag, is_access, is_held) = (self.take_tag(), false, true);
            let (status, fields, body, pools) = (0, Vec::new(), Vec::new(), Vec::new());
            let request = Request {
                exchange,
                operation,
                is_access,
                is_held,
                pools,
                status,
                fields,
                body,
                pieces,
            };
            self.requests.insert(tag, request);
            self.vm.hold_response(exchange, tag);
            return Ok(());
        }
        self.pass_head(operation, exchange, (&verdict, pieces))
    }

    /// `on_response` has ended.
    fn pass_head(
        &mut self,
        operation: OperationId,
        exchange: ScriptRequestId,
        (verdict, pieces): (&CallbackEnd, VecDeque<Vec<u8>>),
    ) -> Result<(), String> {
        let failure = self.note_failure("on_response", verdict);
        let Some(reply) = self.vm.take_reply(exchange).filter(|_| failure.is_none()) else {
            let is_late = failure.as_ref().is_some_and(|it| it.excess == Some(Excess::Wait));
            let status = if is_late { 504 } else { 500 };
            let message = failure.map(|failure| failure.message).unwrap_or_default();
            self.vm.close_request(exchange);
            self.complete(operation, &json!({ "status": status, "error": message }), b"");
            return Ok(());
        };
        self.pass_body(operation, (exchange, reply), pieces)
    }

    /// Passes the head of a response on, and its body through `on_body`, if the application changes it.
    fn pass_body(
        &mut self,
        operation: OperationId,
        (exchange, mut reply): (ScriptRequestId, Box<ReplyHead>),
        pieces: VecDeque<Vec<u8>>,
    ) -> Result<(), String> {
        let has_body = pieces.iter().any(|piece| !piece.is_empty());
        let is_changed = self.vm.has(Handler::Body) && !reply.keeps_body && has_body;
        if is_changed {
            reply.describe_changed_body()?;
        }
        let mut fields = Vec::new();
        let is_stated = |name: &str| !is_changed || !name.eq_ignore_ascii_case("content-length");
        for (name, value) in reply.fields().filter(|(name, _)| is_stated(name)) {
            fields.extend_from_slice(&[name.as_bytes(), b": ", value, b"\n"].concat());
        }
        let (tag, status, body) = (self.take_tag(), reply.status, Vec::new());
        let (is_access, is_held, pools) = (false, false, Vec::new());
        let mut request = Request {
            exchange,
            operation,
            is_access,
            is_held,
            pools,
            status,
            fields,
            body,
            pieces,
        };
        if !is_changed {
            request.body = core::mem::take(&mut request.pieces).into_iter().flatten().collect();
            self.requests.insert(tag, request);
            self.add_to_response(tag, b"", true);
            return Ok(());
        }
        self.requests.insert(tag, request);
        self.vm.begin_body(exchange, tag, reply);
        let verdict = self.vm.body(exchange);
        self.note_request(tag, verdict);
        Ok(())
    }

    /// Gives each `on_body` the next piece. Returns whether there was one.
    fn feed_bodies(&mut self) -> bool {
        let mut is_fed = false;
        for request in self.requests.values_mut() {
            if request.is_held {
                continue;
            }
            let Some(piece) = request.pieces.pop_front() else { continue };
            self.vm.feed_body(request.exchange, &piece);
            if request.pieces.is_empty() {
                self.vm.end_body(request.exchange);
            }
            is_fed = true;
        }
        is_fed
    }

    /// A handler of a request has ended or waits.
    fn note_request(&mut self, tag: u64, verdict: CallbackEnd) {
        if verdict != CallbackEnd::Waiting
            && self.requests.get(&tag).is_some_and(|request| request.is_held)
            && let Some(held) = self.requests.remove(&tag)
        {
            self.carry_out();
            let passed = self.pass_head(held.operation, held.exchange, (&verdict, held.pieces));
            if let Err(why) = passed {
                self.vm.complete(0, held.operation, Err(&why));
            }
            return;
        }
        let failure = self.note_failure("the request", &verdict);
        // Its response, if there is one.
        self.carry_out();
        let Some(request) = self.requests.get(&tag) else { return };
        if let Some(failure) = failure {
            let reply = json!({ "status": 500, "error": failure.message, "forwarded": false });
            return self.finish(tag, &reply);
        }
        if verdict == CallbackEnd::Done && request.is_access && request.status == 0 {
            let mut rewritten = Rewritten::default();
            self.vm.take_request(request.exchange, &mut rewritten);
            let reply = forwarded(&rewritten, &request.pools);
            self.finish(tag, &reply);
        }
    }

    fn begin_response(&mut self, tag: u64, status: u16, fields: &[u8]) {
        if let Some(request) = self.requests.get_mut(&tag) {
            request.status = status;
            request.fields = fields.to_vec();
        }
    }

    fn add_to_response(&mut self, tag: u64, data: &[u8], is_end: bool) {
        let Some(request) = self.requests.get_mut(&tag) else { return };
        request.body.extend_from_slice(data);
        if is_end {
            // What `on_body` has not read passes unchanged.
            request.body.extend(self.vm.take_rest(request.exchange));
            request.body.extend(core::mem::take(&mut request.pieces).into_iter().flatten());
            let fields = fields_of(&request.fields)
                .map(|(name, value)| json!([name, String::from_utf8_lossy(value)]));
            let headers: Vec<Value> = fields.collect();
            let reply = json!({ "status": request.status, "headers": headers, "forwarded": false });
            self.finish(tag, &reply);
        }
    }

    fn finish(&mut self, tag: u64, reply: &Value) {
        let Some(request) = self.requests.remove(&tag) else { return };
        self.vm.close_request(request.exchange);
        self.complete(request.operation, reply, &request.body);
    }

    pub(super) fn take_tag(&mut self) -> u64 {
        self.next_tag += 1;
        self.next_tag - 1
    }
}

/// WebSocket clients.
impl Stage {
    fn connect(&mut self, operation: OperationId, arguments: &Value) -> Result<(), String> {
        let tag = self.take_tag();
        let exchange = self.open(arguments, b"", NO_TAG, false)?;
        let handle = self.vm.open_client(tag).ok_or("too many clients")?;
        let client = Client {
            handle,
            is_waiting: true,
            backlog: VecDeque::new(),
            inbox: VecDeque::new(),
            receiver: None,
            closed: None,
        };
        self.clients.insert(tag, client);
        let verdict = self.vm.opened(handle, exchange);
        self.note_client(tag, verdict);
        self.complete(operation, &json!({ "client": tag }), b"");
        Ok(())
    }

    /// A handler of a client has ended or waits.
    fn note_client(&mut self, tag: u64, verdict: CallbackEnd) {
        self.settle(tag, verdict);
        self.serve_backlog(tag);
    }

    /// Notes how a handler of a client has ended or that it waits, and carries out what it has ordered.
    fn settle(&mut self, tag: u64, verdict: CallbackEnd) {
        let has_failed = self.note_failure("a handler of a client", &verdict).is_some();
        // What it has sent comes before what follows from its end.
        self.carry_out();
        if let Some(client) = self.clients.get_mut(&tag) {
            client.is_waiting = verdict == CallbackEnd::Waiting;
        }
        if has_failed {
            self.close(tag, 1011, String::new());
        }
    }

    /// Hands over the messages that wait for a handler, one after the other.
    fn serve_backlog(&mut self, tag: u64) {
        while let Some(client) = self.clients.get_mut(&tag)
            && !client.is_waiting
            && client.closed.is_none()
            && let Some((is_text, data)) = client.backlog.pop_front()
        {
            let verdict = self.vm.message(client.handle, &data, is_text);
            self.settle(tag, verdict);
        }
    }

    fn deliver(&mut self, tag: u64, is_text: bool, data: &[u8]) {
        if let Some(client) = self.clients.get_mut(&tag) {
            client.inbox.push_back((is_text, data.to_vec()));
            self.serve_receiver(tag);
        }
    }

    /// Gives the test what it waits for, if that is there.
    fn serve_receiver(&mut self, tag: u64) {
        let Some(client) = self.clients.get_mut(&tag) else { return };
        let Some((operation, due)) = client.receiver.take() else { return };
        if let Some((is_text, data)) = client.inbox.pop_front() {
            let kind = if is_text { "text" } else { "binary" };
            self.complete(operation, &json!({ "kind": kind }), &data);
        } else if let Some((code, reason)) = &client.closed {
            let reply = json!({ "what": "closed", "code": code, "reason": reason });
            self.complete(operation, &reply, b"");
        } else {
            client.receiver = Some((operation, due));
        }
    }

    /// Ends a connection, whichever side has closed it.
    fn close(&mut self, tag: u64, code: u16, reason: String) {
        let Some(client) = self.clients.get_mut(&tag) else { return };
        if client.closed.is_some() {
            return;
        }
        client.closed = Some((code, reason.clone()));
        let verdict = self.vm.closed(client.handle, code, &reason);
        self.note_failure("on_close", &verdict);
        self.serve_receiver(tag);
    }
}

/// The request that the server of a proxied route would get.
fn forwarded(rewritten: &Rewritten, pools: &[String]) -> Value {
    let head = rewritten.head.lend();
    let kept = head.fields().filter(|field| !rewritten.fields.drops(field.name));
    let kept = kept.map(|field| (field.name, field.value)).chain(rewritten.fields.written());
    let headers: Vec<Value> =
        kept.map(|(name, value)| json!([name, String::from_utf8_lossy(value)])).collect();
    json!({
        "forwarded": true,
        "path": head.path,
        "query_string": head.query,
        "headers": headers,
        "pool": rewritten.pool.and_then(|pool| pools.get(pool)),
    })
}

/// The head of a request. What does not fit a head is found when it is decoded.
fn head_of(arguments: &Value, body_bytes: usize) -> String {
    let path = text_in(&arguments["path"]);
    let query = arguments["query"].as_str().map(|query| format!("?{query}")).unwrap_or_default();
    let mut text = format!("{} {path}{query} HTTP/1.1\r\n", text_in(&arguments["method"]));
    let fields = fields_in(&arguments["headers"]);
    let has_host = fields.iter().any(|(name, _)| name.eq_ignore_ascii_case("host"));
    for (name, value) in fields {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    if !has_host {
        text.push_str("Host: test\r\n");
    }
    if body_bytes > 0 {
        text.push_str(&format!("Content-Length: {body_bytes}\r\n"));
    }
    text + "\r\n"
}

/// The head of a response. What does not fit a head is found when it is decoded.
fn response_head_of(response: &Value, body_bytes: usize) -> String {
    let status = response["status"].as_u64().unwrap_or(200);
    let mut text = format!("HTTP/1.1 {status} Test\r\n");
    for (name, value) in fields_in(&response["headers"]) {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    if !matches!(status, 204 | 304) {
        text.push_str(&format!("Content-Length: {body_bytes}\r\n"));
    }
    text + "\r\n"
}

/// The fields of a head, by their names; a list repeats one.
fn fields_in(headers: &Value) -> Vec<(String, String)> {
    let mut fields = Vec::new();
    for (name, value) in headers.as_object().into_iter().flatten() {
        match value.as_array() {
            Some(values) => {
                fields.extend(values.iter().map(|value| (name.clone(), text_in(value))));
            }
            None => fields.push((name.clone(), text_in(value))),
        }
    }
    fields
}

/// The pieces of a body, by their lengths.
fn pieces_of(lengths: &Value, data: &[u8]) -> VecDeque<Vec<u8>> {
    let (mut pieces, mut rest) = (VecDeque::new(), data);
    for length in lengths.as_array().into_iter().flatten() {
        let length = length.as_u64().unwrap_or_default() as usize;
        let (piece, others) = rest.split_at(length.min(rest.len()));
        pieces.push_back(piece.to_vec());
        rest = others;
    }
    pieces
}

fn names_in(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().map(text_in).collect()
}

fn text_in(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}
