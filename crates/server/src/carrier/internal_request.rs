//! The carrier of requests that Tidegate sends for itself: they belong to no connection of a client. Sockets of applications
//! (`action/lua/tcp.rs`) are such requests, too, without a head and without a response.
//! In: requests with their bodies (`action/lua/request.rs`, `action/push/backend.rs`); what the action `proxy` sends to
//! their requesters. Out: pieces of the bodies for the action; responses for the callers.
//! Never: pauses a server: a response is collected, and a response that is too large ends the request.
//! Limits: `content_bytes_max` of each response, `HELD_BYTES_MAX` of the bodies of all requests of a worker.
//! Invariant: between two turns, each request here names an exchange, which names it. It uses the newest settings.

use std::collections::BTreeSet;

use tidegate_base::{Id, Moment, Slab};
use tidegate_gate::access::Cause;
use tidegate_gate::denial::Denial;
use tidegate_lua::{OperationId, Response, SocketId};
use tidegate_reactor::Reactor;
use tidegate_wire::message::{BodyLength, ResponseHead};

use crate::action::Running;
use crate::action::proxy::exchange::Stage;
use crate::action::push::HubCall;
use crate::answer::{Answer, Head};
use crate::carrier::Progress;
use crate::record::NO_RECORD;
use crate::requester::Requester;
use crate::timers::WorkerTimer;
use crate::worker::Worker;

/// Bytes of the bodies of all own requests of a worker and of their responses. Hubs begin none beyond half of it.
const HELD_BYTES_MAX: usize = 64 * 1024 * 1024;

const TOO_LARGE: &str = "response too large";
const TIMEOUT: &str = "timeout";
/// The reason of a request that the worker holds no memory for.
pub(crate) const NO_MEMORY: &str = "the requests of applications hold too much memory";
const STOPPING: &str = "the process is stopping";

/// Fields of a response that describe its connection (RFC 9110 section 7.6.1).
const OF_CONNECTION: [&str; 6] =
    ["connection", "keep-alive", "proxy-connection", "trailer", "transfer-encoding", "upgrade"];

/// The receiver of the response.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Caller {
    /// The VM of an application.
    App(AppCaller),
    /// A socket of an application: there is no response, and the exchange is a tunnel.
    Socket(AppSocket),
    /// A push hub.
    Hub(HubCall),
}

/// The socket of a VM.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AppSocket {
    /// The index of the application.
    pub(crate) app: u16,
    /// The number of its VM.
    pub(crate) life: u32,
    /// The VM's id of the socket.
    pub(crate) socket: SocketId,
}

impl Caller {
    /// The index of the application, if the request is one of an application.
    fn app(&mut self) -> Option<&mut u16> {
        match self {
            Self::App(caller) => Some(&mut caller.app),
            Self::Socket(socket) => Some(&mut socket.app),
            Self::Hub(_) => None,
        }
    }
}

/// The VM that gets a response.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AppCaller {
    /// The index of the application.
    pub(crate) app: u16,
    /// The number of its VM.
    pub(crate) life: u32,
    /// The VM's id of the request.
    pub(crate) operation: OperationId,
}

/// A request of Tidegate's own; see the module header.
pub(crate) struct InternalRequest {
    /// The receiver of the response.
    caller: Caller,
    /// The action: `Running::Proxy`, except while it begins or ends.
    running: Running,
    /// The content of the request.
    body: Vec<u8>,
    /// How much of it the action has taken.
    taken: usize,
    /// How far the response has progressed.
    progress: Progress,
    /// The response so far.
    response: Response,
    /// Maximum size in bytes of its content.
    content_bytes_max: usize,
    /// The script has to read before a socket takes more.
    is_full: bool,
    /// The response is too large. Its content is dropped, and the request ends in the same turn.
    is_too_large: bool,
    /// Why the response fails, if it does.
    reason: &'static str,
    /// When the caller gives up.
    by: Moment,
    /// The deadline of the action.
    action_by: Moment,
    /// The record of the request; `NO_RECORD` if nothing is recorded.
    record: u32,
}

impl InternalRequest {
    /// A request whose body is `body`.
    pub(crate) fn new(caller: Caller, body: Vec<u8>, content_bytes_max: usize, by: Moment) -> Self {
        Self {
            caller,
            running: Running::None,
            body,
            taken: 0,
            progress: Progress::Expected,
            response: Response { status: 0, fields: Vec::new(), body: Vec::new() },
            content_bytes_max,
            is_full: false,
            is_too_large: false,
            reason: "the request failed",
            by,
            action_by: Moment::NEVER,
            record: NO_RECORD,
        }
    }

    /// A socket, which ends for `reason` unless another reason is known.
    pub(crate) fn of_socket(caller: Caller, reason: &'static str) -> Self {
        Self { reason, ..Self::new(caller, Vec::new(), 0, Moment::NEVER) }
    }

    /// When something has to happen next.
    fn due(&self) -> Moment {
        self.by.min(self.action_by)
    }

    /// Bytes that the request holds.
    fn held(&self) -> usize {
        self.body.len() + self.response.body.len()
    }
}

/// The own requests of a worker.
pub(crate) struct InternalRequests {
    /// The requests.
    slab: Slab<InternalRequest>,
    /// Their deadlines: one entry each.
    due: BTreeSet<(Moment, u32, u32)>,
    /// When `WorkerTimer::OwnRequests` expires; `NEVER` if it is not set.
    armed: Moment,
    /// Bytes that they hold.
    held: usize,
}

impl InternalRequests {
    pub(crate) fn new(capacity_max: usize) -> Self {
        Self { slab: Slab::new(capacity_max), due: BTreeSet::new(), armed: Moment::NEVER, held: 0 }
    }

    /// The number of requests.
    pub(crate) fn len(&self) -> usize {
        self.slab.len()
    }

    /// All requests.
    pub(crate) fn ids(&self) -> Vec<Id<InternalRequest>> {
        self.slab.iter().map(|(id, _)| id).collect()
    }

    /// The index of the record of a request.
    pub(crate) fn record(&self, id: Id<InternalRequest>) -> u32 {
        self.slab.get(id).map_or(NO_RECORD, |own| own.record)
    }

    /// The request has this record.
    pub(crate) fn set_record(&mut self, id: Id<InternalRequest>, record: u32) {
        if let Some(own) = self.slab.get_mut(id) {
            own.record = record;
        }
    }

    /// The action of a request; `None` if the request has ended.
    pub(crate) fn running(&self, id: Id<InternalRequest>) -> Option<Running> {
        self.slab.get(id).map(|own| own.running)
    }

    /// The VM of an application has another index.
    pub(crate) fn rename_app(&mut self, from: usize, to: usize) {
        for id in self.ids() {
            if let Some(own) = self.slab.get_mut(id)
                && let Some(app) = own.caller.app()
                && usize::from(*app) == from
            {
                *app = to as u16;
            }
        }
    }

    /// Adds a request. `None` if the requests hold too much.
    fn insert(&mut self, own: InternalRequest) -> Option<Id<InternalRequest>> {
        let (due, held) = (own.due(), self.held + own.held());
        let most = match own.caller {
            Caller::App(_) | Caller::Socket(_) => HELD_BYTES_MAX,
            Caller::Hub(_) => HELD_BYTES_MAX / 2,
        };
        if held > most {
            return None;
        }
        let id = self.slab.insert(own).ok()?;
        self.due.insert((due, id.index, id.generation));
        self.held = held;
        Some(id)
    }

    fn remove(&mut self, id: Id<InternalRequest>) -> Option<InternalRequest> {
        let own = self.slab.remove(id)?;
        self.due.remove(&(own.due(), id.index, id.generation));
        self.held -= own.held();
        Some(own)
    }

    /// Sets the deadline of the action of a request.
    fn set_action_deadline(&mut self, id: Id<InternalRequest>, at: Moment) {
        if let Some(own) = self.slab.get_mut(id) {
            self.due.remove(&(own.due(), id.index, id.generation));
            own.action_by = at;
            self.due.insert((own.due(), id.index, id.generation));
        }
    }

    /// Sets when the caller gives up.
    fn set_end(&mut self, id: Id<InternalRequest>, by: Moment) {
        if let Some(own) = self.slab.get_mut(id) {
            self.due.remove(&(own.due(), id.index, id.generation));
            own.by = by;
            self.due.insert((own.due(), id.index, id.generation));
        }
    }

    /// The socket of a VM, if the request is one.
    pub(crate) fn socket(&self, id: Id<InternalRequest>) -> Option<AppSocket> {
        match self.slab.get(id)?.caller {
            Caller::Socket(socket) => Some(socket),
            Caller::App(_) | Caller::Hub(_) => None,
        }
    }

    /// Whether a request notifies a backend of an event; the end of a stop waits for such requests.
    fn is_of_events(&self, id: Id<InternalRequest>) -> bool {
        let caller = self.slab.get(id).map(|own| own.caller);
        matches!(caller, Some(Caller::Hub(HubCall::Notices(..))))
    }

    /// The number of sockets.
    pub(crate) fn sockets(&self) -> usize {
        self.slab.iter().filter(|(_, own)| matches!(own.caller, Caller::Socket(_))).count()
    }

    /// Whether the script has to read before a socket takes more.
    pub(crate) fn is_full(&self, id: Id<InternalRequest>) -> bool {
        self.slab.get(id).is_some_and(|own| own.is_full)
    }

    /// Notes whether the script has to read before a socket takes more.
    pub(crate) fn set_full(&mut self, id: Id<InternalRequest>, is_full: bool) {
        if let Some(own) = self.slab.get_mut(id) {
            own.is_full = is_full;
        }
    }

    /// When `WorkerTimer::OwnRequests` has to be set, if it is not set for that time.
    fn arm(&mut self) -> Option<Moment> {
        let first = self.due.first().map_or(Moment::NEVER, |(at, ..)| *at);
        (first != self.armed).then(|| {
            self.armed = first;
            first
        })
    }

    /// A request whose deadline has passed.
    fn first_due(&self, now: Moment) -> Option<Id<InternalRequest>> {
        let (at, index, generation) = *self.due.first()?;
        (at <= now).then(|| Id::new(index, generation))
    }

    /// Adds to the content of a response, as far as there may be content. Returns false if it is too large.
    fn add_content(&mut self, id: Id<InternalRequest>, data: &[u8]) -> bool {
        let Some(own) = self.slab.get_mut(id) else { return true };
        let bytes = own.response.body.len() + data.len();
        if own.is_too_large || bytes > own.content_bytes_max {
            own.is_too_large = true;
        } else if self.held + data.len() > HELD_BYTES_MAX {
            (own.is_too_large, own.reason) = (true, NO_MEMORY);
        } else {
            own.response.body.extend_from_slice(data);
            self.held += data.len();
        }
        !own.is_too_large
    }
}

/// Begin and end.
impl Worker {
    /// Adds a request, whose exchange the caller begins next. `None` if own requests hold too much.
    pub(crate) fn open_own<R: Reactor>(
        &mut self,
        reactor: &mut R,
        own: InternalRequest,
    ) -> Option<Id<InternalRequest>> {
        let id = self.own.insert(own)?;
        self.begin_own_record(reactor, id);
        self.arm_own(reactor);
        Some(id)
    }

    /// The request has ended: the caller gets the response.
    fn finish_own<R: Reactor>(&mut self, reactor: &mut R, id: Id<InternalRequest>, is_whole: bool) {
        let Some(own) = self.own.remove(id) else { return };
        let InternalRequest { caller, response, is_too_large, reason, record, .. } = own;
        let result = match (is_too_large, is_whole) {
            (true, _) if reason == NO_MEMORY => Err(NO_MEMORY),
            (true, _) => Err(TOO_LARGE),
            (false, true) => Ok(response),
            (false, false) => Err(reason),
        };
        self.finish_record(reactor, record);
        match caller {
            Caller::App(AppCaller { app, life, operation }) => {
                self.lua.apps.complete_request(usize::from(app), life, operation, result);
            }
            Caller::Socket(socket) => self.end_socket(socket, reason),
            Caller::Hub(call) => self.end_backend_call(call, result),
        }
    }

    /// Ends a request and its exchange. The caller gets an error.
    fn fail_own<R: Reactor>(
        &mut self,
        reactor: &mut R,
        id: Id<InternalRequest>,
        cause: Cause,
        reason: &'static str,
    ) {
        let Some(own) = self.own.slab.get_mut(id) else { return };
        own.reason = reason;
        let running = core::mem::replace(&mut own.running, Running::None);
        self.blame(Requester::own(id), cause, reason);
        self.cancel(reactor, running);
        self.finish_own(reactor, id, false);
    }

    /// Cancels a request: no coroutine waits for the response any more.
    pub(crate) fn cancel_own<R: Reactor>(&mut self, reactor: &mut R, id: Id<InternalRequest>) {
        self.fail_own(
            reactor,
            id,
            Cause::Client,
            "the application no longer waits for the response",
        );
    }

    /// Ends the requests of an application whose VM no longer exists.
    pub(crate) fn cancel_own_of<R: Reactor>(&mut self, reactor: &mut R, app: usize) {
        for id in self.own.ids() {
            let of = self.own.slab.get_mut(id).and_then(|own| own.caller.app().copied());
            if of.is_some_and(|of| usize::from(of) == app) {
                self.cancel_own(reactor, id);
            }
        }
    }

    /// Ends all requests, because the process stops, and serves no client any more; those with events only after the grace
    /// period.
    pub(crate) fn end_own<R: Reactor>(&mut self, reactor: &mut R) {
        let is_over = self.stop.is_grace_over();
        for id in self.own.ids() {
            if is_over || !self.own.is_of_events(id) {
                self.fail_own(reactor, id, Cause::Stopped, STOPPING);
            }
        }
    }

    /// Ends requests for which no coroutine waits any more; all of them at the end of a stop.
    pub(crate) fn end_unwanted_own<R: Reactor>(&mut self, reactor: &mut R) {
        if self.own.len() == 0 {
            return;
        }
        for place in 0..self.lua.apps.len() {
            let app = self.lua.apps.index_at(place);
            while let Some(tag) = self.lua.apps.present(app).and_then(|vm| vm.take_cancelled()) {
                self.cancel_own(reactor, id_of(tag));
            }
            while let Some(tag) = self.lua.apps.present(app).and_then(|vm| vm.take_closed_socket())
            {
                self.close_lua_socket(reactor, id_of(tag));
            }
        }
        if self.stopping && self.conns.downstream_count() == 0 {
            self.end_own(reactor);
        }
        self.settle(reactor);
    }

    /// `WorkerTimer::OwnRequests` has expired.
    pub(crate) fn own_due<R: Reactor>(&mut self, reactor: &mut R) {
        self.own.armed = Moment::NEVER;
        while let Some(id) = self.own.first_due(reactor.now()) {
            let Some(own) = self.own.slab.get(id) else { break };
            let (running, is_late) = (own.running, own.by <= reactor.now());
            let is_socket = self.own.socket(id).is_some();
            if is_late && is_socket {
                // It was idle for as long as the script wanted it kept.
                self.own.set_end(id, Moment::NEVER);
                self.close_lua_socket(reactor, id);
            } else if is_late {
                self.fail_own(reactor, id, Cause::ServerTimeout, TIMEOUT);
            } else {
                self.own.set_action_deadline(id, Moment::NEVER);
                // The deadline of a queue may be that of an exchange which has a server by now.
                let is_connecting = is_socket && self.is_connecting(running);
                if !self.expects_body(running) && !is_connecting {
                    self.action_due(reactor, running);
                }
            }
        }
        self.arm_own(reactor);
    }

    /// Whether an exchange waits for its connect, which has its own deadline.
    fn is_connecting(&self, running: Running) -> bool {
        let Running::Proxy(id) = running else { return false };
        self.exchanges.find(id).is_some_and(|exchange| exchange.stage == Stage::Connecting)
    }

    /// Sets when a request is given up; `None`: never.
    pub(crate) fn set_own_end<R: Reactor>(
        &mut self,
        reactor: &mut R,
        id: Id<InternalRequest>,
        by: Option<Moment>,
    ) {
        self.own.set_end(id, by.unwrap_or(Moment::NEVER));
        self.arm_own(reactor);
    }

    fn arm_own<R: Reactor>(&mut self, reactor: &mut R) {
        if let Some(at) = self.own.arm() {
            WorkerTimer::OwnRequests.set(reactor, at);
        }
    }

    /// Lets all requests use the current settings.
    pub(crate) fn renew_own(&mut self) {
        for id in self.own.ids() {
            if let Some(running) = self.own.running(id) {
                self.adopt_action(running);
            }
        }
    }
}

/// The implementation of the interface to clients (`client.rs`) for an internal request.
impl Worker {
    pub(super) fn set_own_action(&mut self, id: Id<InternalRequest>, running: Running) {
        if let Some(own) = self.own.slab.get_mut(id) {
            own.running = running;
        }
    }

    /// Hands the action more of the body, as far as it has room for it. Ends a request whose response is too large.
    pub(super) fn resume_own<R: Reactor>(&mut self, reactor: &mut R, id: Id<InternalRequest>) {
        loop {
            let Some(own) = self.own.slab.get(id) else { return };
            if own.is_too_large {
                let reason = if own.reason == NO_MEMORY { NO_MEMORY } else { TOO_LARGE };
                return self.fail_own(reactor, id, Cause::Limit, reason);
            }
            let (running, left) = (own.running, own.body.len() - own.taken);
            let Running::Proxy(exchange) = running else { return };
            if left == 0 {
                return;
            }
            let piece = left.min(self.body_room(reactor, running));
            let Some(own) = self.own.slab.get_mut(id) else { return };
            if piece == 0 {
                return;
            }
            let start = own.taken;
            own.taken += piece;
            let body = core::mem::take(&mut own.body);
            if let Some(exchange) = self.exchanges.get_mut(exchange) {
                exchange.intake.note(piece, piece, 0);
            }
            self.note_bytes_in(Requester::own(id), piece);
            let end: Option<&[u8]> = if piece == left { Some(b"") } else { None };
            self.take_body(reactor, running, &body[start..start + piece], end);
            // The failure of an attempt may have ended the request, which held these bytes.
            match self.own.slab.get_mut(id) {
                Some(own) => own.body = body,
                None => self.own.held -= body.len(),
            }
        }
    }

    /// Takes a complete response of Tidegate itself, which is the failure of the request.
    pub(super) fn answer_own<R: Reactor>(
        &mut self,
        reactor: &mut R,
        id: Id<InternalRequest>,
        answer: &Answer<'_>,
    ) {
        // A denial: the queue of the pool is full.
        if let Answer::Error { status, .. } | Answer::Denied(Denial { status, .. }) = answer {
            self.note_answer(Requester::own(id), *status, 0);
        } else {
            debug_assert!(false, "only failures answer own requests");
        }
        self.finish_own(reactor, id, false);
    }

    /// The connection of a socket has ended, and its exchange, too.
    pub(super) fn end_own_socket<R: Reactor>(&mut self, reactor: &mut R, id: Id<InternalRequest>) {
        self.finish_own(reactor, id, false);
    }

    /// Takes the head of a response.
    pub(super) fn begin_own_response<R: Reactor>(
        &mut self,
        reactor: &mut R,
        id: Id<InternalRequest>,
        head: &Head<'_>,
    ) {
        let Some(own) = self.own.slab.get_mut(id) else { return };
        let Head::Relayed(head, _) = head else {
            debug_assert!(false, "only servers answer own requests");
            return;
        };
        own.progress = Progress::Begun;
        own.response.status = head.status;
        append_fields(&mut own.response.fields, head);
        if matches!(head.length, BodyLength::Length(length) if length > own.content_bytes_max as u64)
        {
            own.is_too_large = true;
            self.resume_request(Requester::own(id));
        }
        self.note_head(Requester::own(id), head.status, 0, reactor.now());
    }

    /// Takes a piece of the content.
    pub(super) fn take_own_data(&mut self, id: Id<InternalRequest>, data: &[u8]) {
        if !self.own.add_content(id, data) {
            // The action is in the middle of its work.
            self.resume_request(Requester::own(id));
        }
    }

    /// The response is complete.
    pub(super) fn end_own_response(&mut self, id: Id<InternalRequest>, data: &[u8]) {
        self.take_own_data(id, data);
        if let Some(own) = self.own.slab.get_mut(id) {
            own.progress = Progress::Ended;
        }
    }

    /// The action has ended, after the end of the response.
    pub(super) fn release_own<R: Reactor>(&mut self, reactor: &mut R, id: Id<InternalRequest>) {
        self.finish_own(reactor, id, true);
    }

    /// The response cannot be completed.
    pub(super) fn cut_own<R: Reactor>(&mut self, reactor: &mut R, id: Id<InternalRequest>) {
        self.finish_own(reactor, id, false);
    }

    /// How far the response has progressed.
    pub(super) fn own_progress(&self, id: Id<InternalRequest>) -> Progress {
        self.own.slab.get(id).map_or(Progress::Ended, |own| own.progress)
    }

    /// Sets when `action_due` is called.
    pub(super) fn set_own_deadline<R: Reactor>(
        &mut self,
        reactor: &mut R,
        id: Id<InternalRequest>,
        at: Moment,
    ) {
        self.own.set_action_deadline(id, at);
        self.arm_own(reactor);
    }

    /// The request fails for this reason.
    pub(crate) fn blame_own(&mut self, id: Id<InternalRequest>, reason: &'static str) {
        if let Some(own) = self.own.slab.get_mut(id) {
            own.reason = reason;
        }
    }

    /// Ends the request of a requester whose state cannot be trusted.
    pub(crate) fn reset_own<R: Reactor>(&mut self, reactor: &mut R, id: Id<InternalRequest>) {
        if let Some(own) = self.own.slab.get_mut(id)
            && let Running::Proxy(exchange) = own.running
            && self.exchanges.find(exchange).is_none()
        {
            own.running = Running::None;
        }
        self.fail_own(reactor, id, Cause::Bug, "an invariant of the proxy was broken");
    }
}

/// The name by which a VM addresses a request.
pub(crate) fn tag_of(id: Id<InternalRequest>) -> u64 {
    u64::from(id.generation) << 32 | u64::from(id.index)
}

/// The request that a VM addresses by this name.
pub(crate) fn id_of(tag: u64) -> Id<InternalRequest> {
    Id::new(tag as u32, (tag >> 32) as u32)
}

/// Appends the fields of a response, except those that describe its connection.
fn append_fields(out: &mut Vec<u8>, head: &ResponseHead<'_>) {
    for field in head.fields() {
        let start = out.len();
        out.extend(field.name.bytes().map(|byte| byte.to_ascii_lowercase()));
        if OF_CONNECTION.iter().any(|name| name.as_bytes() == &out[start..]) {
            out.truncate(start);
            continue;
        }
        out.extend_from_slice(b": ");
        out.extend_from_slice(field.value);
        out.push(b'\n');
    }
}
