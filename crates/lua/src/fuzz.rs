//! The body of the fuzz target `lua_api`. The test that replays the corpus also runs it; the test of wrong use shares its
//! scripts.
//! In: any bytes: the interface, and then calls: a function, and choices for its arguments. Out: nothing; panics if a check
//! fails.
//! Checks: no panic; a callback fails only by its budget; the VM serves the next request.
//! Limits: `CALLS_MAX` calls of an input, `STEPS_MAX` continuations after a call.
//! Never: called on the data path.

use std::sync::Arc;

use tidegate_base::{Moment, Span};
use tidegate_wire::http1::{HeadDecoder, HeadLimits};
use tidegate_wire::message::FieldStorage;
use tidegate_wire::tls::CertificateFacts;

use crate::{
    Bounds, Budget, CallbackEnd, ClientName, Dictionary, Effect, Excess, Facts, HubEventParts,
    Layer, Origin, Outbox, Permissions, Queue, Randomness, Script, TlsHelloParts, Vm,
};

/// Calls of one input. Further bytes are ignored.
const CALLS_MAX: usize = 64;
/// How often coroutines continue after a call.
const STEPS_MAX: usize = 1000;
/// The number of the VM.
const LIFE: u32 = 2;

const WALK: &str = include_str!("fuzz/walk.lua");
const TIDE: &str = include_str!("fuzz/tide.lua");
const NGX: &str = include_str!("fuzz/ngx.lua");
/// The content phase of the layer `ngx`.
pub const NGX_CONTENT: &str = "served(ngx.var.uri, ngx.req.get_body_data() or '', ngx.print)";

/// A script that calls the functions of the module `tide` that requests choose.
#[must_use]
pub fn tide_script() -> String {
    format!("{WALK}{TIDE}")
}

/// The script of the phase `init`: calls the functions of the layer `ngx` that `NGX_CONTENT` chooses.
#[must_use]
pub fn ngx_script() -> String {
    format!("{WALK}{NGX}")
}

/// Calls the functions that `data` chooses.
pub fn fuzz_lua_api(data: &[u8]) {
    let Some((interface, mut rest)) = data.split_first() else { return };
    let mut walker = Walker::load(interface % 2 == 1);
    for _ in 0..CALLS_MAX {
        let Some(([low, high, length], others)) = rest.split_first_chunk() else { break };
        let (choices, others) = others.split_at(others.len().min(usize::from(*length)));
        walker.call(1 + usize::from(u16::from_le_bytes([*low, *high])), choices);
        walker.decide(choices);
        walker.choose_certificate(choices);
        rest = others;
    }
    walker.check();
}

/// A VM whose functions are called.
struct Walker {
    vm: Vm,
    nanos: u64,
    outbox: Outbox,
    /// The body of the last response.
    answer: Vec<u8>,
}

impl Walker {
    fn load(is_ngx: bool) -> Self {
        let script = |text: String| Script { file: "walk.lua".to_owned(), text: text.into() };
        let budget = Budget::Instructions(500_000);
        let bounds = Bounds {
            budget,
            load_budget: Budget::Instructions(2_000_000),
            memory_bytes_max: 8 * 1024 * 1024,
            jobs_max: 100,
            requests_max: 8,
        };
        let facts = Facts {
            app: "fuzz".to_owned(),
            worker: 0,
            workers: 2,
            settings: br#"{"127.0.0.1:6379":"api"}"#.to_vec(),
            seed: 7,
            randomness: Randomness::new(|bytes| {
                bytes.fill(7);
                true
            }),
            life: LIFE,
            client_life: LIFE,
            shared: vec![("cache".to_owned(), Arc::new(Dictionary::new(64 * 1024)))],
            queues: vec![("jobs".to_owned(), Arc::new(Queue::new(64 * 1024)))],
            hubs: ["live".to_owned()].into(),
            pools: vec!["api".to_owned()],
            permissions: Permissions::default(),
            layer: is_ngx.then_some(Layer::Ngx),
            phases: match is_ngx {
                true => vec![("init".to_owned(), script(ngx_script()))],
                false => Vec::new(),
            },
        };
        let text = if is_ngx { NGX_CONTENT.to_owned() } else { tide_script() };
        let vm = Vm::load(&script(text), &bounds, facts, Box::new(|_| Ok(None)));
        let vm = vm.unwrap_or_else(|failure| panic!("the script does not load: {failure}"));
        Self { vm, nanos: 1_000_000_000, outbox: Outbox::default(), answer: Vec::new() }
    }

    /// Calls the function with this number. `choices` determine its arguments.
    fn call(&mut self, number: usize, choices: &[u8]) {
        let end = self.get(&format!("/{number}"), choices);
        if let CallbackEnd::Failed(failure) = &end {
            assert!(failure.excess.is_some(), "function {number}: {failure}");
        }
    }

    /// Lets `on_push` return what `choices` determine.
    fn decide(&mut self, choices: &[u8]) {
        let by = Moment::from_nanos(self.nanos).after(Span::from_secs(1));
        let Some(event) = self.vm.open_event(5, by) else { return };
        let parts = HubEventParts {
            hub: "live",
            kind: "publish",
            fields: choices,
            body: b"{\"client\":\"c\",\"channel\":\"a\",\"data\":{\"a\":1}}",
            first: 1,
        };
        self.vm.hub_event(event, &parts);
        self.settle();
        self.vm.close_event(event);
        assert_eq!(self.vm.hub_events(), 0, "an event remains in the VM");
    }

    /// Lets `on_certificate` return what `choices` determine.
    fn choose_certificate(&mut self, choices: &[u8]) {
        let by = Moment::from_nanos(self.nanos).after(Span::from_secs(1));
        let parts = TlsHelloParts {
            name: String::from_utf8_lossy(choices).into_owned(),
            listener: "front".to_owned(),
            client: "192.0.2.1".to_owned(),
            certificates: [CertificateFacts { names: vec!["*.a".to_owned()], not_after: None }]
                .into(),
        };
        let Some(hello) = self.vm.open_hello(6, by, parts) else { return };
        self.vm.hello(hello);
        self.settle();
        self.vm.close_hello(hello);
        assert_eq!(self.vm.hellos(), 0, "a handshake remains in the VM");
    }

    /// Checks that the VM answers, unless the script keeps too much memory.
    fn check(&mut self) {
        self.vm.collect_garbage();
        let end = self.get("/alive", b"");
        let is_full =
            matches!(&end, CallbackEnd::Failed(failure) if failure.excess == Some(Excess::Memory));
        assert!(is_full || self.answer == b"alive", "the VM does not answer: {end:?}");
    }

    fn get(&mut self, target: &str, body: &[u8]) -> CallbackEnd {
        let head =
            format!("POST {target} HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n", body.len());
        let mut storage = FieldStorage::new();
        let limits = HeadLimits::default();
        let decoded = HeadDecoder::default().decode_request(head.as_bytes(), &limits, &mut storage);
        let Ok(Some((head, _))) = decoded else { panic!("the request is not valid") };
        let (client, is_https) = (ClientName::Text("192.0.2.1"), false);
        let origin = Origin { tag: 9, client, user: None, is_https, params: &[], pools: None };
        self.answer.clear();
        let Some(id) = self.vm.open_request(&head, &origin) else {
            panic!("ended requests remain in the VM");
        };
        self.vm.add_body(id, body);
        let end = self.vm.request(id);
        self.settle();
        self.vm.close_request(id);
        self.settle();
        end
    }

    /// Carries out the effects, and continues the coroutines that are ready.
    fn settle(&mut self) {
        for _ in 0..STEPS_MAX {
            self.reply();
            self.nanos += 1_000_000;
            let now = Moment::from_nanos(self.nanos);
            self.vm.set_time(now, 1.7e9 + Span::from_nanos(self.nanos).as_secs_f64());
            self.vm.collect_due();
            if self.vm.resume().is_none() {
                break;
            }
        }
        while self.vm.take_cancelled().is_some() || self.vm.take_closed_socket().is_some() {}
        while self.vm.take_closed_datagrams().is_some() {}
    }

    /// Acts as the worker: opens connections and sockets and sends data to them; lets everything else fail.
    fn reply(&mut self) {
        let mut outbox = core::mem::take(&mut self.outbox);
        self.vm.take_outbox(&mut outbox);
        for effect in &outbox.effects {
            match effect {
                Effect::Answer { body, .. } | Effect::Data { body, .. } => {
                    self.answer.extend_from_slice(outbox.get(body));
                }
                Effect::Push { operation, .. } | Effect::Lookup { operation, .. } => {
                    self.vm.complete(LIFE, *operation, Err("timeout"));
                }
                Effect::Http { operation, .. } => {
                    self.vm.complete_request(LIFE, *operation, Err("timeout"));
                }
                Effect::Connect { socket, .. } => {
                    if self.vm.socket_begun(*socket, 1) {
                        self.vm.socket_connected(LIFE, *socket, false);
                        self.vm.socket_received(LIFE, *socket, b"one\r\ntwo");
                    }
                }
                Effect::OpenDatagrams { socket, .. } => {
                    if self.vm.datagrams_opened(LIFE, *socket, 1) {
                        self.vm.datagram_received(LIFE, *socket, b"data");
                    }
                }
                Effect::SendDatagram { operation, .. } => {
                    self.vm.complete(LIFE, *operation, Ok(b""));
                }
                Effect::ReadFile { operation, .. } => {
                    self.vm.complete(LIFE, *operation, Ok(b"4 1700000000 a1\ntext"));
                }
                Effect::Begin { .. }
                | Effect::Drop { .. }
                | Effect::Send { .. }
                | Effect::Close { .. }
                | Effect::SendRemote { .. }
                | Effect::CloseRemote { .. }
                | Effect::AwaitDrain { .. }
                | Effect::BodyRoom { .. }
                | Effect::Decide { .. }
                | Effect::ChooseCertificate { .. }
                | Effect::Broadcast { .. }
                | Effect::QueueFilled { .. }
                | Effect::SocketSend { .. }
                | Effect::SocketResume { .. }
                | Effect::SocketIdle { .. }
                | Effect::Test { .. }
                | Effect::SendFrame { .. }
                | Effect::CloseTunnel { .. }
                | Effect::Log { .. } => {}
            }
        }
        outbox.clear();
        self.outbox = outbox;
    }
}
