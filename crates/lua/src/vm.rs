//! A VM of an application: its script, its callbacks, and what they order.
//! In: the script, requests, the server's clock. Out: verdicts on callbacks, and effects (`take_outbox`).
//! Never: reads a file or a clock (except for budgets, see `engine/guard.rs`); moves to another thread.
//! Limits: the budget of each callback, the memory of the VM.
//! Invariant: a VM remains usable after any failure of a script.

use tidegate_base::{Id, Moment};
use tidegate_wire::message::RequestHead;

use crate::engine::{Argument, Budget, Engine, Entry, Excess, Failure, Turn};
use crate::host::{ClientId, ExchangeId, Facts, FindModule, Host, Origin, Outbox};

/// The source of an application.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Script {
    /// The name of the file in messages.
    pub file: String,
    /// Its text.
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
}

/// How a callback ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It has returned.
    Done,
    /// It was stopped by an error or a budget.
    Failed(Failure),
}

/// See the module.
pub struct Vm {
    engine: Engine,
}

/// The chunks of the prelude, in order.
const PRELUDE: [(&core::ffi::CStr, &[u8]); 5] = [
    (c"=tidegate", include_bytes!("prelude/sandbox.lua")),
    (c"=tidegate", include_bytes!("prelude/tide.lua")),
    (c"=tidegate", include_bytes!("prelude/http.lua")),
    (c"=tidegate", include_bytes!("prelude/clients.lua")),
    (c"=tidegate", include_bytes!("prelude/entries.lua")),
];

impl Vm {
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
        let host = Box::new(Host::new(facts, find_module));
        let plain = |message| Failure { excess: None, message, trace: String::new() };
        let mut engine =
            Engine::new(host, bounds.budget, bounds.memory_bytes_max, &PRELUDE).map_err(plain)?;
        engine.set_budget(bounds.load_budget);
        let mut vm = Self { engine };
        let arguments = [Argument::Bytes(&script.text), Argument::Bytes(script.file.as_bytes())];
        match vm.run(Entry::Load, &arguments) {
            Verdict::Done => {
                vm.engine.set_budget(bounds.budget);
                Ok(vm)
            }
            Verdict::Failed(failure) => Err(failure),
        }
    }

    /// Whether the script has this handler.
    #[must_use]
    pub fn has(&mut self, handler: Handler) -> bool {
        self.engine.host().handlers & (1 << handler as u32) != 0
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

    /// Runs `on_start`, if there is one.
    pub fn start(&mut self) -> Verdict {
        match self.has(Handler::Start) {
            true => self.run(Entry::Start, &[]),
            false => Verdict::Done,
        }
    }

    /// Runs `on_stop`, if there is one.
    pub fn stop(&mut self) -> Verdict {
        match self.has(Handler::Stop) {
            true => self.run(Entry::Stop, &[]),
            false => Verdict::Done,
        }
    }

    /// Takes over a request whose body follows with `add_body`. `None` if the VM serves too many.
    pub fn open_request(
        &mut self,
        head: &RequestHead<'_>,
        origin: &Origin<'_>,
    ) -> Option<ExchangeId> {
        self.engine.host().open(head, origin)
    }

    /// Adds to the body of a request. Returns the bytes that it has then.
    pub fn add_body(&mut self, id: ExchangeId, data: &[u8]) -> usize {
        let exchange = self.engine.host().exchanges.get_mut(id);
        exchange.map_or(0, |exchange| exchange.add_body(data))
    }

    /// Runs `on_request` for a request whose body is complete.
    pub fn request(&mut self, id: ExchangeId) -> Verdict {
        self.run(Entry::Request, &numbers(id))
    }

    /// Forgets a request: its response is complete, or its client has left.
    pub fn close_request(&mut self, id: ExchangeId) {
        self.engine.host().close(id);
    }

    /// The number of requests that the VM keeps.
    #[must_use]
    pub fn requests(&self) -> usize {
        self.engine.peek().exchanges.len()
    }

    /// Takes over a WebSocket client. `None` if the VM serves too many.
    pub fn open_client(&mut self, tag: u64) -> Option<ClientId> {
        self.engine.host().open_client(tag)
    }

    /// Runs `on_open` for a client and the request that opened its connection.
    pub fn opened(&mut self, client: ClientId, request: ExchangeId) -> Verdict {
        let ([a, b], [c, d]) = (numbers(client), numbers(request));
        self.run(Entry::Open, &[a, b, c, d])
    }

    /// Runs `on_message`.
    pub fn message(&mut self, client: ClientId, data: &[u8], is_text: bool) -> Verdict {
        let [index, _] = numbers(client);
        self.run(Entry::Message, &[index, Argument::Bytes(data), Argument::Boolean(is_text)])
    }

    /// Runs `on_close` and forgets the client.
    pub fn closed(&mut self, client: ClientId, code: u16, reason: &str) -> Verdict {
        self.engine.host().note_closed(client);
        let [index, _] = numbers(client);
        let code = Argument::Number(f64::from(code));
        let verdict = self.run(Entry::Close, &[index, code, Argument::Bytes(reason.as_bytes())]);
        self.engine.host().clients.remove(client);
        verdict
    }

    /// The number of WebSocket clients.
    #[must_use]
    pub fn clients(&self) -> usize {
        self.engine.peek().clients.len()
    }

    /// Exchanges an empty outbox for the one with the effects since the last call.
    pub fn take_outbox(&mut self, outbox: &mut Outbox) {
        core::mem::swap(outbox, &mut self.engine.host().outbox);
    }

    fn run(&mut self, entry: Entry, arguments: &[Argument<'_>]) -> Verdict {
        self.engine.host().begin_callback();
        match self.engine.call(entry, arguments) {
            Turn::Returned(coroutine) => {
                self.engine.keep(coroutine);
                Verdict::Done
            }
            Turn::Suspended(coroutine) => {
                self.engine.forget(coroutine);
                Verdict::Failed(Failure {
                    excess: None,
                    message: "attempt to yield outside of a coroutine".to_owned(),
                    trace: String::new(),
                })
            }
            Turn::Failed(failure) => Verdict::Failed(failure),
        }
    }
}

/// An id as arguments.
fn numbers<T: ?Sized>(id: Id<T>) -> [Argument<'static>; 2] {
    [Argument::Number(f64::from(id.index)), Argument::Number(f64::from(id.generation))]
}

impl Failure {
    /// Whether a budget of time or memory was exceeded. Such failures count towards the restart of the VM.
    #[must_use]
    pub fn is_excess(&self) -> bool {
        matches!(self.excess, Some(Excess::Time | Excess::Memory))
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
