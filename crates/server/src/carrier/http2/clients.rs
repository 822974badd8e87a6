//! The streams of HTTP/2 clients: the rest of each request that its action does not take yet, the rest of each
//! response that the client's windows do not admit yet.
//! In: events of the streams; pieces and ends of responses. Out: frames in the output of the connection; the steps that the
//! worker must take with the action of a stream, as values.
//! Never: calls an action; ends the record of a request.
//! Limits: `Http2Stream`; as many streams as the worker was created with.
//! Invariant: each stream is in the list of its connection. A stream with unsent bytes of its response (`is_behind`) is in
//! the connection's write queue, so `send_admitted` continues it.

use tidegate_base::{Id, Moment, Slab, Span};
use tidegate_gate::elastic::{Elasticity, Load};
use tidegate_reactor::{Reactor, SockId};
use tidegate_wire::http2::{ErrorCode, Scratch};
use tidegate_wire::message::Fields;

use crate::action::Running;
use crate::buffers::{BufferPool, Input};
use crate::carrier::Progress;
use crate::carrier::http2::client::{id_of, token_of};
use crate::carrier::http2::head::HeadBuffer;
use crate::carrier::http2::links::{Links, settle_client_later};
use crate::carrier::http2::response::write_lines;
use crate::carrier::http2::stream::{Connect, Http2Stream};
use crate::carrier::output::{check_span, is_blocked};
use crate::connection::Connections;
use crate::requester::Requester;
use crate::settings::Era;
use crate::worker::Work;

/// The streams of all clients of a worker, and the memory that they share.
pub(crate) struct Http2Clients {
    /// The streams. Each one belongs to exactly one downstream connection.
    streams: Slab<Http2Stream>,
    /// How many streams a client may have open on a connection.
    elasticity: Elasticity,
    /// Scratch space for a list of the streams of one connection.
    list: Vec<Id<Http2Stream>>,
    /// Scratch space for header blocks. Its contents are meaningless between two events.
    pub(super) scratch: Scratch,
    /// Scratch space for the head of one response.
    pub(super) head: HeadBuffer,
    /// The connections whose output is gathered until the end of the turn, each once (`Http2Client::is_gathering`).
    gathering: Vec<SockId>,
}

/// How received bytes of a request, or its end, are handled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Arrival {
    /// The stream has ended.
    Stale,
    /// The action of this stream takes no more of the request.
    Unwanted(Requester),
    /// They wait for the action of this stream.
    Waits(Requester),
}

/// A piece of a request body that an action gets. The unread rest is returned to the stream by `put_back`.
pub(super) struct Piece {
    /// The data that waited on the stream; the piece is at its beginning.
    pub(super) input: Input,
    /// The length of the piece.
    pub(super) count: usize,
    /// The trailers, as lines, if the request ends with the piece.
    pub(super) end: Option<Vec<u8>>,
}

/// The parts of a removed stream that are still needed.
pub(super) struct Departed {
    /// The generation of settings that the request used.
    pub(super) era: Era,
    /// The action that still serves the request, or `Running::None`.
    pub(super) action: Running,
    /// The record of the request, or `NO_RECORD`.
    pub(super) record: u32,
}

/// How the limit of streams of a connection has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum LimitChange {
    /// The client may have fewer streams.
    Lowered,
    /// The client may have more streams.
    Raised,
}

impl Http2Clients {
    /// No streams; up to `streams_max` of them may exist.
    pub(crate) fn new(streams_max: usize) -> Self {
        Self {
            streams: Slab::new(streams_max),
            elasticity: Elasticity::default(),
            list: Vec::new(),
            scratch: Scratch::new(),
            head: HeadBuffer::default(),
            gathering: Vec::new(),
        }
    }

    /// Notes that the output of a connection is gathered. The list is empty after each turn.
    pub(super) fn note_gathering(&mut self, sock: SockId) {
        self.gathering.push(sock);
    }

    /// Whether output is gathered.
    pub(crate) fn has_gathering(&self) -> bool {
        !self.gathering.is_empty()
    }

    /// A connection whose output was gathered; it may have ended.
    pub(super) fn take_gathering(&mut self) -> Option<SockId> {
        self.gathering.pop()
    }

    /// A stream; `None` if it has ended.
    #[inline]
    pub(crate) fn get(&self, id: Id<Http2Stream>) -> Option<&Http2Stream> {
        self.streams.get(id)
    }

    /// A stream; `None` if it has ended.
    #[inline]
    pub(crate) fn get_mut(&mut self, id: Id<Http2Stream>) -> Option<&mut Http2Stream> {
        self.streams.get_mut(id)
    }

    /// The number of streams.
    pub(crate) fn len(&self) -> usize {
        self.streams.len()
    }

    /// All streams.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Http2Stream> {
        self.streams.iter().map(|(_, stream)| stream)
    }

    /// Bytes of bodies that all streams hold.
    pub(super) fn held_bytes(&self) -> usize {
        self.iter().map(Http2Stream::held_bytes).sum()
    }

    /// The streams of a connection, in the scratch list. The caller returns the list by `put_list`.
    pub(super) fn list(&mut self, conns: &mut Connections, sock: SockId) -> Vec<Id<Http2Stream>> {
        let mut list = core::mem::take(&mut self.list);
        list.clear();
        if let Some(http2) = conns.http2_client(sock) {
            list.extend_from_slice(http2.streams());
        }
        list
    }

    /// Takes back the scratch list.
    pub(super) fn put_list(&mut self, list: Vec<Id<Http2Stream>>) {
        self.list = list;
    }

    /// Adds a stream to its connection. If there is no room for it, the stream is refused, and the client may retry.
    pub(super) fn add<R: Reactor>(
        &mut self,
        links: &mut Links<'_, R>,
        stream: Http2Stream,
    ) -> Option<Requester> {
        let (sock, number) = (stream.sock, stream.number);
        let (http2, out) = links.client(sock)?;
        match self.streams.insert(stream) {
            Ok(id) => {
                http2.connection.set_token(number, token_of(id));
                http2.begin_stream(id);
                Some(Requester { sock, stream: id })
            }
            Err(_) => {
                http2.connection.reset(out, number, ErrorCode::REFUSED_STREAM);
                None
            }
        }
    }

    /// Forgets a stream. The caller cancels its action.
    pub(super) fn remove(
        &mut self,
        conns: &mut Connections,
        buffers: &mut BufferPool,
        id: Id<Http2Stream>,
    ) -> Option<Departed> {
        let mut stream = self.streams.remove(id)?;
        if let Some(http2) = conns.http2_client(stream.sock) {
            http2.end_stream(id);
        }
        stream.input.release(buffers);
        stream.output.release(buffers);
        let Http2Stream { era, action, record, .. } = stream;
        Some(Departed { era, action, record })
    }

    /// How many streams each connection may have at the current load of the worker. `sockets`: its connections; `slots`: the most
    /// that it may have.
    pub(super) fn allowed(&mut self, now: Moment, sockets: usize, slots: usize) -> u32 {
        let load = Load { streams: self.streams.len(), sockets, slots };
        self.elasticity.look(now, &load)
    }

    /// Tells a client how many streams it may have open, if that has changed.
    pub(super) fn tell_allowed<R: Reactor>(
        &self,
        links: &mut Links<'_, R>,
        sock: SockId,
        streams_max: u32,
    ) -> Option<LimitChange> {
        let http2 = links.conns.http2_client(sock)?;
        let before = http2.connection.config().streams_max;
        if before == streams_max || http2.connection.is_stopping() {
            return None;
        }
        let out = links.reactor.output(sock)?;
        let change = if streams_max < before { LimitChange::Lowered } else { LimitChange::Raised };
        http2.connection.set_streams_max(out, streams_max).then_some(change)
    }
}

/// Requests.
impl Http2Clients {
    /// Bytes of a request body arrived.
    pub(super) fn take_data(
        &mut self,
        buffers: &mut BufferPool,
        id: Id<Http2Stream>,
        bytes: &[u8],
        ends: bool,
    ) -> Arrival {
        let Some(stream) = self.streams.get_mut(id) else { return Arrival::Stale };
        let to = Requester { sock: stream.sock, stream: id };
        stream.awaits_continue = false;
        stream.has_request_ended |= ends;
        if stream.is_request_done {
            return Arrival::Unwanted(to);
        }
        stream.input.push(bytes, buffers);
        Arrival::Waits(to)
    }

    /// The trailers of a request arrived, which ends with them.
    pub(super) fn take_trailers(&mut self, id: Id<Http2Stream>, fields: Fields<'_>) -> Arrival {
        let Some(stream) = self.streams.get_mut(id) else { return Arrival::Stale };
        let to = Requester { sock: stream.sock, stream: id };
        stream.has_request_ended = true;
        for field in fields {
            tidegate_wire::http1::encode_field(
                &mut stream.request_trailers,
                field.name,
                field.value,
            );
        }
        Arrival::Waits(to)
    }

    /// The action for which a part of the request body, or its end, waits.
    pub(super) fn awaited(&self, id: Id<Http2Stream>) -> Option<Running> {
        let stream = self.streams.get(id)?;
        let waits = !stream.input.is_empty() || stream.has_request_ended;
        (waits && !stream.is_request_done).then_some(stream.action)
    }

    /// Takes up to `room` bytes of the request body from a stream, and its end if that has arrived.
    pub(super) fn take_piece(&mut self, id: Id<Http2Stream>, room: usize) -> Option<Piece> {
        let stream = self.streams.get_mut(id)?;
        let input = core::mem::take(&mut stream.input);
        let count = input.len().min(room);
        let is_end = stream.has_request_ended && count == input.len();
        stream.is_request_done |= is_end;
        let end = is_end.then(|| core::mem::take(&mut stream.request_trailers));
        Some(Piece { input, count, end })
    }

    /// Returns the unread input of a stream's action, of which it has read `count` bytes.
    pub(super) fn put_back(
        &mut self,
        buffers: &mut BufferPool,
        id: Id<Http2Stream>,
        mut input: Input,
        count: usize,
    ) {
        input.consume(count);
        match self.streams.get_mut(id) {
            Some(stream) if !input.is_empty() && !stream.is_released => stream.input = input,
            _ => input.release(buffers),
        }
    }

    /// Lets the client send more on a stream.
    pub(super) fn release_window<R: Reactor>(
        &self,
        links: &mut Links<'_, R>,
        to: Requester,
        bytes: usize,
    ) {
        if let Some(stream) = self.streams.get(to.stream)
            && let Some((http2, out)) = links.client(to.sock)
        {
            http2.connection.release(out, stream.number, bytes);
        }
    }
}

/// Responses.
impl Http2Clients {
    /// Asks the client for the body of its request (RFC 9110 section 10.1.1).
    pub(in crate::carrier) fn send_continue<R: Reactor>(
        &self,
        links: &mut Links<'_, R>,
        to: Requester,
    ) {
        if let Some(stream) = self.streams.get(to.stream)
            && let Some((http2, out)) = links.client(to.sock)
        {
            http2.connection.send_response(out, stream.number, 100, false, |_| {});
        }
    }

    /// Sends the head in `head`. Returns how many bytes it has.
    pub(super) fn send_head<R: Reactor>(
        &self,
        links: &mut Links<'_, R>,
        to: Requester,
        ends: bool,
    ) -> usize {
        let Some(stream) = self.streams.get(to.stream) else { return 0 };
        let Some((http2, out)) = links.client(to.sock) else { return 0 };
        let (head, before) = (&self.head, out.len());
        http2.connection.send_response(out, stream.number, head.status(), ends, |writer| {
            head.fields().for_each(|field| writer.received(&field));
        });
        out.len() - before
    }

    /// Sends the complete response in `head`. Returns how many bytes it has.
    pub(super) fn send_answer<R: Reactor>(
        &mut self,
        links: &mut Links<'_, R>,
        to: Requester,
    ) -> usize {
        let length = self.head.content().len();
        let bytes = self.send_head(links, to, length == 0);
        if length > 0 {
            let head = core::mem::take(&mut self.head);
            self.send(links, to, head.content(), true);
            self.head = head;
        }
        bytes + length
    }

    /// Sends bytes on a stream; `ends`: they are the last ones. Data that exceeds the windows waits.
    pub(in crate::carrier) fn send<R: Reactor>(
        &mut self,
        links: &mut Links<'_, R>,
        to: Requester,
        data: &[u8],
        ends: bool,
    ) {
        let Some(stream) = self.streams.get_mut(to.stream) else { return };
        if !stream.output.is_empty() {
            return stream.output.push(data, links.buffers);
        }
        let ends_with_data = ends && stream.response_trailers.is_empty();
        let admitted = links.admit_to_client(to.sock, stream.number, data, ends_with_data);
        stream.note_admitted(admitted, links.reactor.now());
        if admitted < data.len() {
            stream.output.push(&data[admitted..], links.buffers);
            self.note_behind(links, to);
            return links.settle_client_later(to.sock);
        }
        if ends && !ends_with_data {
            self.send_trailers(links, to);
        }
    }

    /// Sends the last piece of a response body, and ends the response.
    pub(in crate::carrier) fn end<R: Reactor>(
        &mut self,
        links: &mut Links<'_, R>,
        to: Requester,
        data: &[u8],
        trailers: &[u8],
    ) {
        let Some(stream) = self.streams.get_mut(to.stream) else { return };
        stream.progress = Progress::Ended;
        stream.response_trailers.extend_from_slice(trailers);
        self.send(links, to, data, true);
    }

    /// Gives a stream that has just fallen behind its deadline.
    fn note_behind<R: Reactor>(&mut self, links: &mut Links<'_, R>, to: Requester) {
        let Some(patience) = links.client_patience(to.sock) else { return };
        let Some(stream) = self.streams.get_mut(to.stream) else { return };
        let now = links.reactor.now();
        stream.admitted_bytes = 0;
        stream.moved_at = now;
        // The action has set the deadline of a tunnel.
        if !stream.is_tunnel() {
            self.set_deadline(links, to, now.after(patience));
        }
    }

    /// Sends the trailers of a response, which end it.
    fn send_trailers<R: Reactor>(&mut self, links: &mut Links<'_, R>, to: Requester) {
        let Some(stream) = self.streams.get_mut(to.stream) else { return };
        let (number, lines) = (stream.number, core::mem::take(&mut stream.response_trailers));
        if let Some((http2, out)) = links.client(to.sock) {
            http2.connection.send_trailers(out, number, |writer| write_lines(writer, &lines));
        }
    }

    /// Sends the data that waits on the streams of a connection, as far as the windows and the output allow. Stops at a stream
    /// that has nothing more to do: the caller forgets it and calls again.
    pub(super) fn send_admitted<R: Reactor>(
        &mut self,
        links: &mut Links<'_, R>,
        sock: SockId,
    ) -> Option<Requester> {
        // If a connection is blocked, its streams continue when its output has drained.
        while !is_blocked(links.reactor, sock) {
            let (http2, out) = links.client(sock)?;
            let number = http2.connection.poll_writable(out)?;
            let id = http2.connection.token(number).map_or(Id::NONE, id_of);
            let Some(stream) = self.streams.get_mut(id) else { continue };
            let has_ended = stream.progress == Progress::Ended;
            let ends = has_ended && stream.response_trailers.is_empty();
            let admitted = links.admit_to_client(sock, number, stream.output.as_slice(), ends);
            stream.output.consume(admitted);
            stream.note_admitted(admitted, links.reactor.now());
            if !stream.output.is_empty() {
                continue;
            }
            stream.output.release(links.buffers);
            let to = Requester { sock, stream: id };
            if has_ended && !ends {
                self.send_trailers(links, to);
            }
            if self.is_finished(links, to) {
                return Some(to);
            }
            self.note_drained(links.work, to);
        }
        None
    }

    /// Marks a stream whose action has ended, after its response. Returns whether the stream has nothing more to do.
    pub(super) fn release<R: Reactor>(&mut self, links: &mut Links<'_, R>, to: Requester) -> bool {
        let Some(stream) = self.streams.get_mut(to.stream) else { return false };
        stream.action = Running::None;
        stream.is_released = true;
        stream.is_request_done = true;
        let unread = stream.input.len();
        stream.input.release(links.buffers);
        if unread > 0 {
            self.release_window(links, to, unread);
        }
        links.settle_client_later(to.sock);
        self.is_finished(links, to)
    }

    /// Whether the action of a stream has ended and its response is sent. A client that still sends its request is told
    /// to stop, and keeps the response (RFC 9113 section 8.1).
    fn is_finished<R: Reactor>(&self, links: &mut Links<'_, R>, to: Requester) -> bool {
        let Some(stream) = self.streams.get(to.stream) else { return false };
        if !stream.is_released || stream.is_behind() {
            return false;
        }
        // The end of the connection has ended the input of a switched stream, but not the stream of the protocol.
        let is_open = !stream.has_request_ended || stream.connect != Connect::No;
        if let Some((http2, out)) = links.client(to.sock) {
            if is_open {
                http2.connection.reset(out, stream.number, ErrorCode::NO_ERROR);
            }
        } else if let Some(http2) = links.conns.http2_client(to.sock) {
            // The connection is lost, so the end of the response was not sent. Nor is this reset.
            http2.connection.reset(&mut Vec::new(), stream.number, ErrorCode::NO_ERROR);
        }
        true
    }

    /// Sends the reset of a stream. The caller forgets the stream.
    pub(super) fn reset<R: Reactor>(
        &self,
        links: &mut Links<'_, R>,
        to: Requester,
        code: ErrorCode,
    ) {
        if let Some(stream) = self.streams.get(to.stream)
            && let Some((http2, out)) = links.client(to.sock)
        {
            http2.connection.reset(out, stream.number, code);
        }
    }
}

/// Backpressure and deadlines.
impl Http2Clients {
    /// Whether the client does not take its response fast enough.
    pub(in crate::carrier) fn is_blocked<R: Reactor>(
        &self,
        reactor: &mut R,
        to: Requester,
    ) -> bool {
        self.streams.get(to.stream).is_some_and(Http2Stream::is_behind)
            || is_blocked(reactor, to.sock)
    }

    /// Suspends a response until the output of the stream has drained.
    pub(in crate::carrier) fn hold<R: Reactor>(&mut self, links: &mut Links<'_, R>, to: Requester) {
        let Some(patience) = links.client_patience(to.sock) else { return };
        if let Some(stream) = self.streams.get_mut(to.stream) {
            stream.is_held = true;
            stream.admitted_bytes = 0;
        }
        let at = links.reactor.now().after(patience);
        self.set_deadline(links, to, at);
        links.settle_client_later(to.sock);
    }

    /// Resumes the action of a stream whose output has drained, if the action was told to pause.
    pub(super) fn note_drained(&mut self, work: &mut Vec<Work>, to: Requester) {
        if let Some(stream) = self.streams.get_mut(to.stream)
            && !stream.is_behind()
            && core::mem::take(&mut stream.is_held)
        {
            work.push(Work::Drained(to));
        }
    }

    /// Sets the deadline of a stream.
    pub(in crate::carrier) fn set_deadline<R: Reactor>(
        &mut self,
        links: &mut Links<'_, R>,
        to: Requester,
        at: Moment,
    ) {
        let Some(stream) = self.streams.get_mut(to.stream) else { return };
        stream.due_at = at;
        links.hasten_client(to.sock, at);
    }
}

/// Streams that belong to their action (RFC 8441).
impl Http2Clients {
    /// Sends bytes of the action.
    pub(in crate::carrier) fn send_switched<R: Reactor>(
        &mut self,
        links: &mut Links<'_, R>,
        to: Requester,
        bytes: &[u8],
    ) {
        self.send(links, to, bytes, false);
        links.settle_client_later(to.sock);
    }

    /// Sends the bytes that `encode` appends. Returns how many.
    pub(in crate::carrier) fn encode_switched<R: Reactor>(
        &mut self,
        links: &mut Links<'_, R>,
        to: Requester,
        encode: impl FnOnce(&mut Vec<u8>),
    ) -> usize {
        let mut bytes = links.buffers.take();
        encode(&mut bytes);
        self.send_switched(links, to, &bytes);
        let count = bytes.len();
        links.buffers.put(bytes);
        count
    }

    /// Pauses or resumes the data for a duplex action.
    pub(in crate::carrier) fn pause(
        &mut self,
        work: &mut Vec<Work>,
        to: Requester,
        is_paused: bool,
    ) {
        if let Some(stream) = self.streams.get_mut(to.stream) {
            stream.connect = Connect::Switched { is_paused };
            if !is_paused {
                work.push(Work::Resume(to));
            }
        }
    }

    /// Makes the carrier call the action's `client_drained` once the output of the stream has drained. The deadline of the stream
    /// stays that of the action.
    pub(in crate::carrier) fn await_drain(
        &mut self,
        conns: &mut Connections,
        work: &mut Vec<Work>,
        to: Requester,
    ) {
        if let Some(stream) = self.streams.get_mut(to.stream) {
            stream.is_held = true;
        }
        settle_client_later(conns, work, to.sock);
    }

    /// Ends the direction to the client.
    pub(in crate::carrier) fn finish_switched<R: Reactor>(
        &mut self,
        links: &mut Links<'_, R>,
        to: Requester,
    ) {
        let Some(stream) = self.streams.get_mut(to.stream) else { return };
        if core::mem::replace(&mut stream.progress, Progress::Ended) != Progress::Ended {
            self.send(links, to, b"", true);
            links.settle_client_later(to.sock);
        }
    }

    /// When to check again whether the client takes a stream's output. `None` if the client's windows have admitted
    /// nothing for `timeout`. While the connection itself takes nothing, its own deadline decides.
    pub(in crate::carrier) fn look<R: Reactor>(
        &self,
        reactor: &mut R,
        to: Requester,
        timeout: Span,
    ) -> Option<Moment> {
        let stream = self.streams.get(to.stream)?;
        let (now, expires_at) = (reactor.now(), stream.moved_at.after(timeout));
        let is_conn_blocked = !stream.is_behind() && is_blocked(reactor, to.sock);
        let check_at = now.after(check_span(timeout));
        match expires_at > now {
            true => Some(expires_at.min(check_at)),
            false => is_conn_blocked.then_some(check_at),
        }
    }
}
