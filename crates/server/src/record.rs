//! The record of a request: the facts that the access log and the statistics need when the exchange has ended.
//! In: notes of carriers and actions while the exchange is under way. Out: one entry for each request, at its end.
//! Never: reads a clock (the turn's time is the time); costs anything but a test of a flag while nothing is recorded.
//! Limits: a record keeps at most `TEXT_BYTES_MAX` bytes that the client sent.
//! Invariant: each request that is begun ends with exactly one entry. Its requester names the record until then; the first
//! cause that is noted (`blame`) is the one that counts.

mod kept;
mod notes;

use std::io::Write as _;
use std::rc::Rc;
use std::sync::atomic::Ordering;

use tidegate_base::{Id, Moment, Span};
use tidegate_config::model::CaptureNames;
use tidegate_gate::access::{
    Captures, Cause, Entry, FIELD_BYTES_MAX, HOST_BYTES_MAX, Loads, Phase, RequestLine,
    TARGET_BYTES_MAX, Timers, cut, shown_target,
};
use tidegate_gate::client_places::ClientPlace;
use tidegate_gate::counting::{CountTables, Tracked};
use tidegate_gate::identity::{ID_BYTES_MAX, Identity, SpanIds, TRACE_BYTES};
use tidegate_gate::parameters::{find_cookie, find_parameter};
use tidegate_gate::scheme::Scheme;
use tidegate_reactor::{Peer, Reactor, SockId};
use tidegate_wire::message::{RequestHead, Version};

use self::kept::{KeptRoute, KeptServer};
use crate::access_log::LineSender;
use crate::action::push::TOKEN_PARAMETER;
use crate::captured::Captured;
use crate::carrier::internal_request::InternalRequest;
use crate::client::ClientFacts;
use crate::connection::Downstream;
use crate::counting::count_unread;
use crate::outlets::WorkerOutlets;
use crate::requester::Requester;
use crate::snapshot::Snapshot;
use crate::span_export::SpanSender;
use crate::stats::Times;
use crate::worker::Worker;

/// No record.
pub(crate) const NO_RECORD: u32 = u32::MAX;
/// The listener of requests that no listener has accepted.
const NO_LISTENER: u16 = u16::MAX;
/// Maximum number of bytes of a method in a line.
const METHOD_BYTES_MAX: usize = 32;
/// Capacity of `Record::text` that a free record keeps.
const KEPT_BYTES_MAX: usize = 1024;

/// The client ended its connection or stream before it had the whole response.
pub(crate) const CLIENT_LEFT: &str = "the client left before the end of the response";
/// The client did not take its response.
pub(crate) const SLOW_CLIENT: &str = "the client stopped reading its response";
/// The reason of a request that ended although no cause was noted: a bug.
const UNEXPLAINED: &str = "the request ended without a cause";

/// The facts about a request whose exchange has not ended.
struct Record {
    /// The settings that the exchange began with, or later ones; `None` only while the record is free.
    settings: Option<Rc<Snapshot>>,
    /// The route, if it belongs to earlier settings.
    kept_route: Option<Box<KeptRoute>>,
    /// The last server, if it belongs to earlier settings.
    kept_server: Option<Box<KeptServer>>,
    /// The tables with the entries in `tracked`, if they belong to earlier settings.
    kept_tables: Option<CountTables>,
    /// When the head was complete.
    began_at: Moment,
    /// From the first byte of the head to its last.
    head_span: Span,
    /// The client's address; `None` on a unix socket.
    client: Option<core::net::SocketAddr>,
    /// Index of the listener.
    listener: u16,
    /// The version of the request; `None`: a connection in TCP mode.
    version: Option<Version>,
    /// Method, target, host and captured fields, one after another. Empty if the head was not decoded.
    text: Vec<u8>,
    /// Where method, target and host end in `text`.
    ends: [u16; 3],
    /// Where each captured field, and then each cookie, ends in `text`, counted from the end of the host.
    field_ends: Vec<u16>,
    /// The parts of the client's certificate and of the response that the line contains.
    captured: Captured,
    /// Where the id of the request begins and ends in `text`, and where its trace ends; `None` if it has no id. They are
    /// the last parts of `text`.
    identity: Option<[u16; 3]>,
    /// The numbers of the spans of the request; `None` if none are recorded.
    spans: Option<SpanIds>,
    /// The client uses https.
    is_secure: bool,
    /// Index of the route; `None` if there is none in these settings.
    route: Option<u16>,
    /// Indexes of the pool and of the last server; `None` before the first attempt.
    server: Option<(u16, u16)>,
    /// Index of the pool, if the request waits for a server or failed without one.
    pool: Option<u16>,
    /// Attempts so far.
    attempts: u32,
    /// The last attempt uses a connection that had carried a request before.
    is_reused: bool,
    /// When the last server was chosen.
    chosen_at: Option<Moment>,
    /// When the connection to it was established.
    connected_at: Option<Moment>,
    /// When the head of its response was relayed.
    answered_at: Option<Moment>,
    /// The status of the response; 0 before it.
    status: u16,
    /// Bytes of the request body, or those that the client sent after 101 (Switching Protocols).
    bytes_in: u64,
    /// Bytes of the response.
    bytes_out: u64,
    /// Why the exchange ends. Set once.
    cause: Cause,
    /// How far the exchange has progressed. Does not change after `cause` was set.
    phase: Phase,
    /// The reason in the line; empty if nothing is wrong.
    reason: &'static str,
    /// The place of the request among those of its address, if its route limits them.
    place: Option<ClientPlace>,
    /// The entries that the request holds in tables that count it, one for each table.
    tracked: Vec<Tracked>,
}

impl Record {
    /// A record that no request uses.
    const fn vacant() -> Self {
        Self {
            settings: None,
            kept_route: None,
            kept_server: None,
            kept_tables: None,
            began_at: Moment::ZERO,
            head_span: Span::ZERO,
            client: None,
            listener: 0,
            version: Some(Version::Http11),
            text: Vec::new(),
            ends: [0; 3],
            field_ends: Vec::new(),
            captured: Captured::new(),
            identity: None,
            spans: None,
            is_secure: false,
            route: None,
            server: None,
            pool: None,
            attempts: 0,
            is_reused: false,
            chosen_at: None,
            connected_at: None,
            answered_at: None,
            status: 0,
            bytes_in: 0,
            bytes_out: 0,
            cause: Cause::None,
            phase: Phase::Request,
            reason: "",
            place: None,
            tracked: Vec::new(),
        }
    }

    fn advance(&mut self, phase: Phase) {
        if self.cause == Cause::None {
            self.phase = phase;
        }
    }

    fn blame(&mut self, cause: Cause, reason: &'static str) {
        if self.cause == Cause::None && cause != Cause::None {
            self.cause = cause;
            self.reason = reason;
        }
    }

    /// Copies the parts of the head that a line contains.
    fn note_head(&mut self, head: &RequestHead<'_>, names: &CaptureNames) {
        let parts = [
            cut(head.method.as_str(), METHOD_BYTES_MAX),
            cut(shown_target(head.target), TARGET_BYTES_MAX),
            cut(head.host.unwrap_or_default(), HOST_BYTES_MAX),
        ];
        for (part, end) in parts.into_iter().zip(&mut self.ends) {
            self.text.extend_from_slice(part.as_bytes());
            *end = self.text.len() as u16;
        }
        let fields = names.request_headers.iter().map(|name| head.find_named(name));
        for value in fields.chain(names.cookies.iter().map(|name| find_cookie(head, name))) {
            let value = value.unwrap_or_default();
            self.text.extend_from_slice(&value[..value.len().min(FIELD_BYTES_MAX)]);
            self.field_ends.push(self.text.len() as u16 - self.ends[2]);
        }
    }

    /// Removes the query from the line if the query contains a token.
    fn hide_token(&mut self) {
        let [start, end, _] = self.ends.map(usize::from);
        let target = self.text.get(start..end).unwrap_or_default();
        let Some(at) = target.iter().position(|byte| *byte == b'?') else { return };
        let query = core::str::from_utf8(&target[at + 1..]).unwrap_or_default();
        if find_parameter(query, TOKEN_PARAMETER).is_none() {
            return;
        }
        let removed = (end - start - at) as u16;
        self.text.drain(start + at..end);
        let later = self.identity.iter_mut().flatten();
        self.ends[1..].iter_mut().chain(later).for_each(|place| *place -= removed);
    }

    /// Copies the id and the trace of the request. May be called again; then the last call counts.
    fn note_identity(&mut self, identity: &Identity<'_>) {
        let start = self.identity.map_or(self.text.len(), |[start, ..]| usize::from(start));
        self.text.truncate(start);
        // Writing into a vector cannot fail.
        let _ = write!(self.text, "{identity}");
        let end = self.text.len();
        if let Some(trace) = identity.trace() {
            let _ = write!(self.text, "{trace}");
        }
        self.identity = Some([start, end, self.text.len()].map(|at| at as u16));
    }

    /// The id and the trace; empty if the request has none.
    fn identity(&self) -> (&[u8], &[u8]) {
        let [start, end, last] = self.identity.unwrap_or_default().map(usize::from);
        let part = |start, end| self.text.get(start..end).unwrap_or_default();
        (part(start, end), part(end, last))
    }

    fn request_line(&self) -> Option<RequestLine<'_>> {
        let ends = self.ends.map(usize::from);
        let part = |start: usize, end: usize| self.text.get(start..end);
        let known = if self.version.is_some() { ends[0] } else { ends[2] };
        let method = part(0, ends[0]).filter(|_| known > 0)?;
        Some(RequestLine { method, target: part(ends[0], ends[1])?, host: part(ends[1], ends[2])? })
    }

    fn timers(&self, now: Moment) -> Timers {
        let connected = self.connected_at.zip(self.chosen_at);
        let answered = self.answered_at.zip(self.connected_at);
        Timers {
            request: self.head_span,
            queue: self.chosen_at.or(self.pool.map(|_| now)).map(|at| at.since(self.began_at)),
            connect: connected.map(|(at, chosen_at)| at.since(chosen_at)),
            response: answered.map(|(at, connected_at)| at.since(connected_at)),
            total: now.since(self.began_at) + self.head_span,
        }
    }

    /// Makes the record ready for another request. Its buffers are kept.
    fn clear(&mut self) {
        // Each member by itself: a new value would be built elsewhere and copied, for each request.
        let Self {
            settings,
            kept_route,
            kept_server,
            kept_tables,
            began_at,
            head_span,
            client,
            listener,
            version,
            text,
            ends,
            field_ends,
            captured,
            identity,
            spans,
            is_secure,
            route,
            server,
            pool,
            attempts,
            is_reused,
            chosen_at,
            connected_at,
            answered_at,
            status,
            bytes_in,
            bytes_out,
            cause,
            phase,
            reason,
            place,
            tracked,
        } = self;
        text.clear();
        text.shrink_to(KEPT_BYTES_MAX);
        field_ends.clear();
        captured.clear();
        tracked.clear();
        (*settings, *client, *identity, *spans, *place) = (None, None, None, None, None);
        (*kept_route, *kept_server, *kept_tables) = (None, None, None);
        (*began_at, *head_span) = (Moment::ZERO, Span::ZERO);
        (*listener, *version, *is_secure) = (0, Some(Version::Http11), false);
        (*route, *server, *pool, *attempts, *is_reused) = (None, None, None, 0, false);
        (*chosen_at, *connected_at, *answered_at) = (None, None, None);
        (*ends, *status, *bytes_in, *bytes_out) = ([0; 3], 0, 0, 0);
        (*cause, *phase, *reason) = (Cause::None, Phase::Request, "");
    }
}

/// The facts about a request under way, for readers outside this file.
pub(crate) struct RecordView<'r> {
    /// When the head was complete.
    pub(crate) began_at: Moment,
    /// The request; `None` if its head was not decoded.
    pub(crate) request: Option<RequestLine<'r>>,
    /// The name of the route.
    pub(crate) route: Option<&'r str>,
    /// The names of the pool and of the last server.
    pub(crate) server: Option<(&'r str, &'r str)>,
    /// Attempts so far.
    pub(crate) attempts: u32,
    /// The status of the response; 0 before it.
    pub(crate) status: u16,
    /// Bytes of the request body and of the response.
    pub(crate) bytes: (u64, u64),
}

/// Maximum number of bytes of `Record::text`: its ends fit 16 bits.
const TEXT_BYTES_MAX: usize = METHOD_BYTES_MAX
    + TARGET_BYTES_MAX
    + HOST_BYTES_MAX
    + (16 + 4) * FIELD_BYTES_MAX
    + ID_BYTES_MAX
    + TRACE_BYTES;
const _: () = assert!(TEXT_BYTES_MAX <= u16::MAX as usize);

/// A request that was refused before it had a requester.
pub(crate) struct Refusal {
    /// The version, as far as it is known.
    pub(crate) version: Version,
    /// The status of the response; `None` if there was none.
    pub(crate) status: Option<u16>,
    /// Bytes of the response.
    pub(crate) bytes: usize,
    /// The reason in the line.
    pub(crate) reason: &'static str,
}

/// The records of a worker.
#[derive(Default)]
pub(crate) struct Recorder {
    /// Where the lines go; `None`: there is no access log.
    lines: Option<LineSender>,
    /// Where spans go; `None`: no spans are recorded.
    spans: Option<SpanSender>,
    /// Requests are counted by listener, route and server.
    counts: bool,
    /// An application has `on_log`.
    has_hooks: bool,
    /// Records hold the shared state of requests: places of their addresses, entries of tables.
    holds_state: bool,
    /// The names of the captured fields, cookies and certificates.
    names: CaptureNames,
    /// The records, by the index that requesters name.
    records: Vec<Record>,
    /// Records that no requester names.
    free: Vec<u32>,
}

impl Recorder {
    /// No records. `holds_state`: records hold the shared state of requests.
    pub(crate) fn holding(holds_state: bool) -> Self {
        Self { holds_state, ..Self::default() }
    }

    /// From now on, records hold the shared state of requests.
    pub(crate) fn hold_state(&mut self) {
        self.holds_state = true;
    }

    /// From now on, records are kept for `on_log` of applications.
    pub(crate) fn keep_for_hooks(&mut self) {
        self.has_hooks = true;
    }

    /// Whether anything is recorded.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.lines.is_some()
            || self.counts
            || self.holds_state
            || self.has_hooks
            || self.spans.is_some()
    }

    /// Whether lines contain parts of responses.
    #[inline]
    pub(crate) fn captures_responses(&self) -> bool {
        !self.names.response_headers.is_empty() || !self.names.response_cookies.is_empty()
    }

    /// Copies the parts of a response that the line of its request contains. `fields`: the fields of the response.
    pub(crate) fn capture_response<'f>(
        &mut self,
        index: u32,
        fields: impl Iterator<Item = (&'f [u8], &'f [u8])> + Clone,
    ) {
        if let Some(record) = self.records.get_mut(index as usize) {
            record.captured.note_response(&self.names, fields);
        }
    }

    /// Whether requests are counted by listener, route and server: there is an admin interface.
    pub(crate) fn counts(&self) -> bool {
        self.counts
    }

    /// The facts about the request with the record `index`; `None` if nothing is recorded.
    pub(crate) fn view(&self, index: u32) -> Option<RecordView<'_>> {
        let record = self.records.get(index as usize)?;
        record.settings.as_ref()?;
        Some(RecordView {
            began_at: record.began_at,
            request: record.request_line(),
            route: record.route_name(),
            server: record.server_names(),
            attempts: record.attempts,
            status: record.status,
            bytes: (record.bytes_in, record.bytes_out),
        })
    }

    /// The number of records of requests under way.
    pub(crate) fn open_count(&self) -> usize {
        self.records.len() - self.free.len()
    }

    /// The indexes of the records of requests under way, ascending. For tests.
    pub(crate) fn open_records(&self) -> Vec<u32> {
        (0..self.records.len() as u32).filter(|index| !self.free.contains(index)).collect()
    }

    /// Whether lines or spans wait to be handed over.
    pub(crate) fn has_lines(&self) -> bool {
        self.lines.as_ref().is_some_and(LineSender::has_lines)
            || self.spans.as_ref().is_some_and(SpanSender::has_spans)
    }

    fn take_free(&mut self) -> u32 {
        match self.free.pop() {
            Some(index) => index,
            None => {
                self.records.push(Record::vacant());
                (self.records.len() - 1) as u32
            }
        }
    }
}

/// The start of records.
impl Worker {
    /// Makes the worker record requests, and write their lines to `sender`. Called before its first turn.
    pub fn record_to(&mut self, sender: LineSender) {
        self.recorder.names.clone_from(&sender.settings().captures);
        self.recorder.lines = Some(sender);
    }

    /// Makes the worker record the spans of requests, and hand them to `sender`. Called before its first turn.
    pub fn record_spans(&mut self, sender: SpanSender) {
        self.recorder.spans = Some(sender);
    }

    /// Makes the worker record requests in these outlets.
    pub(crate) fn record_in(&mut self, outlets: WorkerOutlets) {
        if let Some(sender) = outlets.lines {
            self.record_to(sender);
        }
        if let Some(sender) = outlets.spans {
            self.record_spans(sender);
        }
    }

    /// Makes the worker count requests by listener, route and server, in the counters of its settings. Called before
    /// its first turn.
    pub fn count_requests(&mut self) {
        self.recorder.counts = true;
    }

    /// Begins the record of a request of HTTP/1, whose head is complete.
    #[inline]
    pub(crate) fn begin_http1_record<R: Reactor>(
        &mut self,
        reactor: &R,
        sock: SockId,
        head: &RequestHead<'_>,
    ) {
        if self.recorder.is_on() {
            self.begin_record(reactor, Requester::connection(sock), Some(head));
        }
    }

    /// Begins the record of a request. `head`: its head, unless it was too large.
    pub(crate) fn begin_record<R: Reactor>(
        &mut self,
        reactor: &R,
        to: Requester,
        head: Option<&RequestHead<'_>>,
    ) {
        if !self.recorder.is_on() {
            return;
        }
        let Some(index) = self.open_record(reactor, to) else { return };
        let record = &mut self.recorder.records[index as usize];
        if let Some(head) = head {
            record.version = Some(head.version);
            record.note_head(head, &self.recorder.names);
        }
        match self.http2_clients.get_mut(to.stream) {
            Some(stream) => {
                record.version = Some(Version::Http2);
                stream.set_record(index);
            }
            None => {
                if let Some(down) = self.conns.downstream(to.sock) {
                    down.set_record(index);
                }
            }
        }
    }

    /// Begins the record of an internal request. Only the statistics of servers count it; the access log has no line for it.
    pub(crate) fn begin_own_record<R: Reactor>(&mut self, reactor: &R, id: Id<InternalRequest>) {
        if !self.recorder.is_on() {
            return;
        }
        let index = self.recorder.take_free();
        let record = &mut self.recorder.records[index as usize];
        record.settings = Some(Rc::clone(self.settings.newest()));
        record.began_at = reactor.now();
        record.listener = NO_LISTENER;
        if self.own.socket(id).is_some() {
            record.version = None;
        }
        self.own.set_record(id, index);
    }

    /// Begins the record of a connection in TCP mode, whose client requested the server `name`.
    pub(crate) fn begin_tcp_record<R: Reactor>(
        &mut self,
        reactor: &R,
        sock: SockId,
        name: Option<&str>,
    ) {
        let to = Requester::connection(sock);
        self.begin_record(reactor, to, None);
        if let Some(record) = self.record(to) {
            record.version = None;
            record.text.extend_from_slice(cut(name.unwrap_or_default(), HOST_BYTES_MAX).as_bytes());
            record.ends[2] = record.text.len() as u16;
        }
    }

    /// Creates a record of a request of `to`.
    fn open_record<R: Reactor>(&mut self, reactor: &R, to: Requester) -> Option<u32> {
        let head_span = self.head_span(reactor, to.sock);
        let settings = self.settings_of(to);
        let down = self.conns.downstream(to.sock)?;
        let (peer, listener) = (down.peer(), down.listener);
        let is_secure = down.scheme == Scheme::Https;
        let index = self.recorder.take_free();
        let record = &mut self.recorder.records[index as usize];
        if let Some(traffic) = settings.counted.listener(listener) {
            traffic.begin();
        }
        record.settings = Some(settings);
        record.began_at = reactor.now();
        record.head_span = head_span;
        record.listener = listener;
        record.is_secure = is_secure;
        if self.recorder.names.client_certificate {
            record.captured.note_client(down.facts.as_deref().and_then(ClientFacts::certificate));
        }
        record.client = match peer {
            Peer::Tcp(address) => Some(address),
            Peer::Local => None,
        };
        Some(index)
    }

    /// The time from the first byte of the head that is complete now. The deadline of a head that arrives in parts was set when
    /// its first bytes had arrived.
    fn head_span<R: Reactor>(&mut self, reactor: &R, sock: SockId) -> Span {
        let Some(down) = self.conns.downstream(sock) else { return Span::ZERO };
        if !down.has_started_head() {
            return Span::ZERO;
        }
        let timeout = self.settings.of(down.era()).listener(down.listener).timeouts.head;
        timeout.saturating_sub(reactor.deadline(sock).since(reactor.now()))
    }

    /// The record of a requester; `None` if nothing is recorded.
    #[inline]
    fn record(&mut self, to: Requester) -> Option<&mut Record> {
        if !self.recorder.is_on() {
            return None;
        }
        let index = self.record_index(to)?;
        self.recorder.records.get_mut(index as usize)
    }

    #[inline]
    fn record_index(&mut self, to: Requester) -> Option<u32> {
        Some(match (self.http2_clients.get(to.stream), to.as_own()) {
            (Some(stream), _) => stream.record(),
            (None, None) => self.conns.downstream(to.sock)?.record(),
            (None, Some(id)) => self.own.record(id),
        })
    }

    /// Whether a profile is limited to the route of a request; `None` if the route is not known.
    pub(crate) fn is_of_marked_route(&mut self, to: Requester) -> Option<bool> {
        let index = self.record_index(to)?;
        let record = self.recorder.records.get(index as usize)?;
        let traffic = record.route_traffic()?;
        Some(traffic.is_profiled.load(Ordering::Relaxed))
    }
}

/// The end of an exchange.
impl Worker {
    /// The exchange of a requester has ended; the requester still exists.
    #[inline]
    pub(crate) fn end_record<R: Reactor>(&mut self, reactor: &R, to: Requester) {
        if !self.recorder.is_on() {
            return;
        }
        let Some(down) = self.conns.downstream(to.sock) else { return };
        let record = take_record(down);
        self.finish_record(reactor, record);
    }

    /// Turns a record that no requester names any more into an entry. Every exchange ends here.
    #[inline]
    pub(crate) fn finish_record<R: Reactor>(&mut self, reactor: &R, index: u32) {
        if index != NO_RECORD {
            self.write_entry(reactor, index);
        }
    }

    /// A request was refused before it had a requester.
    pub(crate) fn record_refusal<R: Reactor>(
        &mut self,
        reactor: &R,
        sock: SockId,
        refusal: &Refusal,
    ) {
        if !self.recorder.is_on() {
            return;
        }
        let Some(index) = self.open_record(reactor, Requester::connection(sock)) else { return };
        let record = &mut self.recorder.records[index as usize];
        record.version = Some(refusal.version);
        record.status = refusal.status.unwrap_or_default();
        record.bytes_out = refusal.bytes as u64;
        record.blame(Cause::of_status(refusal.status.unwrap_or(400)), refusal.reason);
        if let Some(settings) = &record.settings {
            let peer = record.client.map(|client| client.ip());
            count_unread(reactor, &mut record.tracked, settings, record.listener, peer);
        }
        self.finish_record(reactor, index);
    }

    /// Counts a request whose head was refused in the tables of its listener.
    pub(crate) fn count_refused<R: Reactor>(&mut self, reactor: &R, to: Requester) {
        if let Some(record) = self.record(to)
            && let Some(settings) = &record.settings
        {
            let peer = record.client.map(|client| client.ip());
            count_unread(reactor, &mut record.tracked, settings, record.listener, peer);
        }
    }

    /// A stream of HTTP/2 was reset before its request had a requester.
    pub(crate) fn record_refused_stream<R: Reactor>(
        &mut self,
        reactor: &R,
        sock: SockId,
        reason: &'static str,
    ) {
        let refusal = Refusal { version: Version::Http2, status: None, bytes: 0, reason };
        self.record_refusal(reactor, sock, &refusal);
    }

    fn write_entry<R: Reactor>(&mut self, reactor: &R, index: u32) {
        let shows_loads = self.recorder.lines.as_ref().is_some_and(LineSender::shows_loads);
        let loads = match shows_loads {
            true => self.loads(self.recorder.records[index as usize].server),
            false => Loads::default(),
        };
        let Recorder { lines, spans, names, records, free, .. } = &mut self.recorder;
        let record = &mut records[index as usize];
        if record.cause == Cause::None && record.phase != Phase::Last {
            debug_assert!(false, "{UNEXPLAINED}: {:?}", record.request_line());
            record.blame(Cause::Bug, UNEXPLAINED);
        }
        let now = reactor.now();
        let timers = record.timers(now);
        record.end_tracked(now);
        let (id, trace) = record.identity();
        if let Some(settings) = record.settings.as_deref() {
            let unserved = record.pool.filter(|_| record.server.is_none());
            let pool_of = |index: u16| settings.config.pools.get(usize::from(index));
            let entry = Entry {
                unix_millis: reactor.unix_millis().saturating_sub(timers.total.as_millis() as u64),
                client: record.client,
                listener: match record.listener {
                    NO_LISTENER => "",
                    index => &settings.listener(index).name,
                },
                request: record.request_line(),
                id,
                trace,
                version: record.version,
                route: record.route_name(),
                server: record.server_names(),
                pool: unserved.and_then(pool_of).map(|pool| pool.name.as_str()),
                attempts: record.attempts,
                is_reused: record.is_reused,
                status: (record.status > 0).then_some(record.status),
                bytes_in: record.bytes_in,
                bytes_out: record.bytes_out,
                timers,
                cause: record.cause,
                phase: record.phase,
                reason: record.reason,
                loads,
                captures: Captures {
                    names: &names.request_headers,
                    cookies: &names.cookies,
                    bytes: record.text.get(usize::from(record.ends[2])..).unwrap_or_default(),
                    ends: &record.field_ends,
                },
                response_captures: record.captured.of_response(names),
                subject: names.client_certificate.then(|| record.captured.subject()),
            };
            let counted = &settings.counted;
            let (of_route, of_server) = (record.route_traffic(), record.server_traffic());
            let of_listener = counted.listener(record.listener);
            let of_pool = unserved.and_then(|pool| counted.pool(pool));
            of_pool.inspect(|traffic| traffic.begin());
            let times = Times::of(&entry.timers);
            for traffic in [of_listener, of_route, of_pool, of_server].into_iter().flatten() {
                traffic.end(&entry, &times);
            }
            if let Some(app) = record.hooked_app()
                && !self.lua.log_hooks.note(app, &entry)
            {
                self.accounts.counters.lua_log_drops.add(1);
            }
            if let Some(lines) = lines
                && record.listener != NO_LISTENER
            {
                lines.write(&entry);
            }
            if let Some((sender, ids)) = spans.as_mut().zip(record.spans.as_ref()) {
                sender.write(&entry, ids, record.is_secure);
            }
        }
        record.clear();
        free.push(index);
    }

    /// The load of the worker, with one exchange that has just ended.
    fn loads(&self, server: Option<(u16, u16)>) -> Loads {
        let counters = &self.accounts.counters;
        let (clients, exchanges) =
            (counters.downstream_now.load().max(1), counters.exchanges_now.load());
        let Some((pool, server)) = server else {
            return Loads { clients, exchanges, ..Loads::default() };
        };
        let Some(pool) = self.pools.get(usize::from(pool)) else { return Loads::default() };
        Loads {
            clients,
            exchanges: exchanges + 1,
            pool: pool.state.in_use_total() + 1,
            server: u64::from(pool.state.in_use(usize::from(server))) + 1,
            queued: pool.queue.len() as u64,
        }
    }

    /// Hands over the lines of the turn.
    #[inline]
    pub(crate) fn deliver_lines(&mut self) {
        if let Some(lines) = &mut self.recorder.lines {
            let lost = lines.deliver();
            if lost > 0 {
                self.accounts.counters.access_lines_lost.add(lost);
            }
        }
        if let Some(sender) = &mut self.recorder.spans {
            let counts = sender.deliver();
            self.accounts.counters.spans_exported.add(counts.exported);
            self.accounts.counters.spans_lost.add(counts.lost);
        }
    }

    /// Hands over the last lines, after the worker has stopped. May wait for the writer.
    pub fn deliver_last_lines(&mut self) {
        if let Some(lines) = &mut self.recorder.lines {
            lines.deliver_last();
        }
        if let Some(sender) = &mut self.recorder.spans {
            sender.deliver_last();
        }
    }
}

/// Takes the record from a connection without streams.
fn take_record(down: &mut Downstream) -> u32 {
    let record = down.record();
    if record != NO_RECORD {
        down.set_record(NO_RECORD);
    }
    record
}
