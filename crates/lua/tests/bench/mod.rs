//! A bench for scripts: loads one, sends it requests and carries out its effects.
//! In: the text of a script. Out: verdicts and responses.
#![allow(dead_code)]

use std::time::Duration;

use tidegate_base::{Moment, Span};
use tidegate_lua::{
    Bounds, Budget, Effect, ExchangeId, Facts, Failure, Origin, Outbox, Script, Verdict, Vm,
};
use tidegate_wire::http1::{HeadDecoder, HeadLimits};
use tidegate_wire::message::FieldStorage;

/// Bounds as in production, with a short budget.
pub const TIMED: Bounds = Bounds {
    budget: Budget::Time(Span::from_millis(50)),
    load_budget: Budget::Time(Span::from_millis(200)),
    memory_bytes_max: 8 * 1024 * 1024,
};
/// Bounds as in the simulator.
pub const COUNTED: Bounds = Bounds {
    budget: Budget::Instructions(2_000_000),
    load_budget: Budget::Instructions(2_000_000),
    memory_bytes_max: 8 * 1024 * 1024,
};

/// An application.
pub struct App {
    pub vm: Vm,
    /// The lines of the log so far.
    pub log: Vec<String>,
    /// The head of the last response: status and fields.
    pub head: (u16, Vec<(String, String)>),
    /// What WebSocket clients got: tag, kind and data.
    pub sent: Vec<String>,
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
        let script = Script { file: "app.lua".to_owned(), text: text.as_bytes().to_vec() };
        let facts = Facts {
            app: "test".to_owned(),
            worker: 1,
            workers: 4,
            settings: br#"{"greeting":"hello","most":3}"#.to_vec(),
            seed: 7,
        };
        let find_module = move |name: &str| {
            let found = modules.iter().find(|(module, _)| *module == name);
            Ok(found.map(|(module, text)| (format!("{module}.lua"), text.as_bytes().to_vec())))
        };
        let vm = Vm::load(&script, bounds, facts, Box::new(find_module))?;
        Ok(Self { vm, log: Vec::new(), head: (0, Vec::new()), sent: Vec::new() })
    }

    /// Sends `GET target`. Returns the status and body, if there was a complete response.
    pub fn get(&mut self, target: &str) -> (Verdict, Option<(u16, String)>) {
        self.send(&format!("GET {target} HTTP/1.1\r\nHost: example.com\r\n\r\n"), b"")
    }

    pub fn send(&mut self, head: &str, body: &[u8]) -> (Verdict, Option<(u16, String)>) {
        let id = self.open(head);
        self.vm.add_body(id, body);
        self.vm.set_time(Moment::from_nanos(1_500_000_000), 1_700_000_000.25);
        let verdict = self.vm.request(id);
        let response = self.effects();
        self.vm.close_request(id);
        (verdict, response)
    }

    pub fn open(&mut self, head: &str) -> ExchangeId {
        let mut storage = FieldStorage::new();
        let mut bytes = head.as_bytes().to_vec();
        let decoded =
            HeadDecoder::default().decode_request(&bytes, &HeadLimits::default(), &mut storage);
        let (head, _) = decoded.expect("the head is valid").expect("the head is complete");
        let params = [("id".to_owned(), "4 2".to_owned())];
        let origin = Origin { tag: 9, client: "192.0.2.1", is_https: false, params: &params };
        let id = self.vm.open_request(&head, &origin).expect("there is room");
        bytes.clear();
        id
    }

    /// Carries out the effects. Returns the response if it is complete.
    pub fn effects(&mut self) -> Option<(u16, String)> {
        let mut outbox = Outbox::default();
        self.vm.take_outbox(&mut outbox);
        let (mut text, mut complete) = (String::new(), false);
        for effect in &outbox.effects {
            match effect {
                Effect::Answer { status, fields, body, .. } => {
                    self.note_head(*status, outbox.get(fields));
                    text.push_str(&String::from_utf8_lossy(outbox.get(body)));
                    complete = true;
                }
                Effect::Begin { status, fields, .. } => self.note_head(*status, outbox.get(fields)),
                Effect::Data { body, is_end, .. } => {
                    text.push_str(&String::from_utf8_lossy(outbox.get(body)));
                    complete |= is_end;
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
                Effect::Log { level, text } => {
                    let text = String::from_utf8_lossy(outbox.get(text)).into_owned();
                    self.log.push(format!("{level:?} {text}"));
                }
            }
        }
        complete.then_some((self.head.0, text))
    }

    fn note_head(&mut self, status: u16, fields: &[u8]) {
        let fields = tidegate_lua::fields_of(fields)
            .map(|(name, value)| (name.to_owned(), String::from_utf8_lossy(value).into_owned()));
        self.head = (status, fields.collect());
    }
}

/// The CPU time of this thread.
pub fn cpu_time() -> Duration {
    // The third and fourth numbers after the name: user and system time in ticks.
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux has it");
    let nanos = text.split(' ').next().and_then(|n| n.parse().ok()).expect("a number");
    Duration::from_nanos(nanos)
}
