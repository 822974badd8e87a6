//! The streams of HTTP/2 to servers: the rest of each request that the server's windows do not admit yet, the rest of
//! each response that its client does not take yet.
//! In: events of the streams; stored requests and pieces of their bodies. Out: frames in the output of the connection; the steps
//! that the worker must take with the exchange of a stream, as values.
//! Never: changes an exchange; chooses a server.
//! Limits: `ServerStream`; as many streams as the worker was created with; `SPARE_HEADS_MAX` spare heads.
//! Invariant: a stream with unsent bytes of its request (`is_behind`) is in the connection's write queue, so
//! `send_admitted` continues it.

use tidegate_base::{Id, Moment, Slab};
use tidegate_gate::websocket;
use tidegate_reactor::{OutputProgress, Reactor, SockId};
use tidegate_wire::http1::StoredHead;
use tidegate_wire::http2::{FieldWriter, RequestLine, Scratch};
use tidegate_wire::message::{BodyLength, FieldName, Fields, OwnedResponse, ResponseHead};

use crate::action::proxy::exchange::Exchange;
use crate::buffers::{BufferPool, Input};
use crate::carrier::http2::links::{Links, SEND_BYTES_MAX};
use crate::carrier::http2::response::write_lines;
use crate::carrier::http2::server::{id_of, token_of};
use crate::carrier::http2::server_stream::ServerStream;
use crate::carrier::http2::server_tunnel::Connect;
use crate::carrier::output::is_blocked;
use crate::connection::Connections;
use crate::responder::Responder;
use crate::worker::Work;

/// Maximum number of bytes of a waiting body that are handed over at once. After them, the client may be blocked.
const PIECE_BYTES_MAX: usize = 16 * 1024;
/// Maximum spare memory for heads of responses without a body.
const SPARE_HEADS_MAX: usize = 64;
/// The largest memory of a spare head, in bytes.
const SPARE_HEAD_BYTES_MAX: usize = 16 * 1024;

/// The streams to all servers of a worker, and the memory that they share.
pub(crate) struct Http2Servers {
    /// The streams. Each one belongs to exactly one exchange.
    streams: Slab<ServerStream>,
    /// Scratch space for a list of the streams of one connection.
    list: Vec<Id<ServerStream>>,
    /// The connections whose output is gathered until the end of the turn, each once (`Http2Server::is_gathering`).
    gathering: Vec<SockId>,
    /// Scratch space for header blocks. Its contents are meaningless between two events.
    pub(super) scratch: Scratch,
    /// Memory for `ServerStream::head`. At most `SPARE_HEADS_MAX`, none larger than `SPARE_HEAD_BYTES_MAX`.
    #[expect(clippy::vec_box, reason = "a stream takes the box itself, without an allocation")]
    spare_heads: Vec<Box<OwnedResponse>>,
}

/// The meaning of the head of a response.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum HeadArrival {
    /// The stream has ended.
    Stale,
    /// The head is interim.
    Interim,
    /// The server has agreed to a tunnel.
    Tunnel,
    /// The head waits for the end of the response.
    Kept,
    /// The head is final.
    Final,
}

/// A head that has waited for the end of its response.
pub(super) struct KeptHead {
    /// The exchange of the stream.
    pub(super) exchange: Id<Exchange>,
    /// The head. Its memory returns by `put_head`.
    pub(super) head: Box<OwnedResponse>,
    /// No trailers follow.
    pub(super) is_whole: bool,
}

/// A stream whose next piece of the response, or its end, the exchange may get now.
#[derive(Clone, Copy)]
pub(super) struct Ready {
    /// The exchange of the stream.
    pub(super) exchange: Id<Exchange>,
    /// The bandwidth of the route limits the piece.
    pub(super) is_limited: bool,
}

/// A piece of a response body that an exchange gets. The unread rest is returned to the stream by `put_back`.
pub(super) struct Piece {
    /// The data that waited on the stream; the piece is at its beginning.
    pub(super) input: Input,
    /// The length of the piece.
    pub(super) count: usize,
    /// The response ends with the piece.
    pub(super) ends: bool,
}

/// A stream that the server has ended, or whose connection was lost.
#[derive(Clone, Copy)]
pub(super) struct Lost {
    /// The exchange of the stream.
    pub(super) exchange: Id<Exchange>,
    /// The stream carries a tunnel.
    pub(super) is_tunnel: bool,
    /// The response is complete.
    pub(super) is_response_done: bool,
    /// Nothing of the request was given to the connection.
    pub(super) was_waiting: bool,
}

/// The result of opening a stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Opening {
    /// The stream or its exchange has ended.
    Stale,
    /// The stored request cannot be read, or the connection does not exist.
    Broken(SockId),
    /// The connection takes no request: its ids are used up, or the server is closing it.
    Refused(SockId, Id<Exchange>),
    /// The request was sent completely, or its tunnel waits for the server.
    Sent,
    /// The rest of the request is still to come.
    Begun(Id<Exchange>),
}

impl Http2Servers {
    /// No streams; up to `streams_max` of them may exist.
    pub(crate) fn new(streams_max: usize) -> Self {
        Self {
            streams: Slab::new(streams_max),
            list: Vec::new(),
            gathering: Vec::new(),
            scratch: Scratch::new(),
            spare_heads: Vec::new(),
        }
    }

    /// A stream; `None` if it has ended.
    #[inline]
    pub(crate) fn get(&self, id: Id<ServerStream>) -> Option<&ServerStream> {
        self.streams.get(id)
    }

    /// The exchange of a stream.
    pub(crate) fn exchange(&self, id: Id<ServerStream>) -> Option<Id<Exchange>> {
        self.streams.get(id).map(|stream| stream.exchange)
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

    /// The number of streams.
    pub(crate) fn len(&self) -> usize {
        self.streams.len()
    }

    /// Bytes of bodies that all streams hold.
    pub(super) fn held_bytes(&self) -> usize {
        self.streams.iter().map(|(_, stream)| stream.held_bytes()).sum()
    }

    /// The streams of a connection, in the scratch list. The caller returns the list by `put_list`.
    pub(super) fn list(&mut self, conns: &mut Connections, sock: SockId) -> Vec<Id<ServerStream>> {
        let mut list = core::mem::take(&mut self.list);
        list.clear();
        if let Some(http2) = conns.http2_server(sock) {
            list.extend_from_slice(http2.streams());
        }
        list
    }

    /// Takes back the scratch list.
    pub(super) fn put_list(&mut self, list: Vec<Id<ServerStream>>) {
        self.list = list;
    }

    /// Adds a stream for the request of an exchange. `None` if there is no room for it.
    pub(super) fn add(
        &mut self,
        sock: SockId,
        exchange: Id<Exchange>,
        opens_tunnel: bool,
    ) -> Option<Id<ServerStream>> {
        let mut stream = ServerStream::new(sock, exchange);
        if opens_tunnel {
            stream.connect = Connect::Requested;
        }
        self.streams.insert(stream).ok()
    }

    /// Removes a stream. Returns its exchange, and its number on the connection.
    pub(in crate::carrier) fn remove(
        &mut self,
        buffers: &mut BufferPool,
        id: Id<ServerStream>,
    ) -> Option<(Id<Exchange>, u32)> {
        let mut stream = self.streams.remove(id)?;
        stream.release(buffers);
        if let Some(head) = stream.head {
            self.put_head(head);
        }
        Some((stream.exchange, stream.number))
    }

    /// Takes back the memory of a head.
    pub(super) fn put_head(&mut self, head: Box<OwnedResponse>) {
        let is_small = head.memory_bytes() <= SPARE_HEAD_BYTES_MAX;
        if is_small && self.spare_heads.len() < SPARE_HEADS_MAX {
            self.spare_heads.push(head);
        }
    }
}

/// Responses.
impl Http2Servers {
    /// The head of a response arrived.
    pub(super) fn take_head(
        &mut self,
        id: Id<ServerStream>,
        head: &ResponseHead<'_>,
        ends: bool,
    ) -> HeadArrival {
        let Some(stream) = self.streams.get_mut(id) else { return HeadArrival::Stale };
        stream.is_response_done = ends;
        if head.is_interim() {
            return HeadArrival::Interim;
        }
        if stream.is_connect() && matches!(head.status, 200..=299) {
            return HeadArrival::Tunnel;
        }
        if head.length != BodyLength::None || ends {
            return HeadArrival::Final;
        }
        stream.head = Some(match self.spare_heads.pop() {
            Some(mut kept) => {
                kept.replace(head);
                kept
            }
            None => Box::new(OwnedResponse::new(head)),
        });
        HeadArrival::Kept
    }

    /// Notes bytes of a response body, and its end if `ends`. Returns the head that has waited for the end.
    pub(super) fn note_data(&mut self, id: Id<ServerStream>, ends: bool) -> Option<KeptHead> {
        let stream = self.streams.get_mut(id)?;
        stream.is_response_done |= ends;
        let head = stream.head.take_if(|_| ends)?;
        let is_whole = stream.trailers.is_empty();
        Some(KeptHead { exchange: stream.exchange, head, is_whole })
    }

    /// Keeps bytes of a response body that the client does not take now, or that wait because `is_paced`. Returns
    /// whether they are kept.
    pub(super) fn keep_data(
        &mut self,
        buffers: &mut BufferPool,
        id: Id<ServerStream>,
        bytes: &[u8],
        is_paced: bool,
    ) -> bool {
        let Some(stream) = self.streams.get_mut(id) else { return true };
        let is_kept = stream.is_held || is_paced || !stream.input.is_empty();
        if is_kept {
            stream.input.push(bytes, buffers);
        }
        is_kept
    }

    /// Keeps the trailers of a response.
    pub(super) fn take_trailers(&mut self, id: Id<ServerStream>, fields: Fields<'_>) {
        let Some(stream) = self.streams.get_mut(id) else { return };
        for field in fields {
            tidegate_wire::http1::encode_field(&mut stream.trailers, field.name, field.value);
        }
    }

    /// Notes that the exchange gets `bytes` now. Returns the exchange, and whether they belong to a tunnel.
    pub(super) fn note_handed(
        &mut self,
        id: Id<ServerStream>,
        bytes: usize,
    ) -> Option<(Id<Exchange>, bool)> {
        let stream = self.streams.get_mut(id)?;
        stream.unreleased += bytes;
        Some((stream.exchange, stream.is_tunnel()))
    }

    /// The trailers of a response that ends now.
    pub(super) fn end_response(&mut self, id: Id<ServerStream>) -> Vec<u8> {
        let stream = self.streams.get_mut(id);
        stream.map_or_else(Vec::new, |stream| core::mem::take(&mut stream.trailers))
    }

    /// Lets the server send more on a stream whose client keeps up.
    pub(super) fn release_window<R: Reactor>(
        &mut self,
        links: &mut Links<'_, R>,
        id: Id<ServerStream>,
    ) {
        let Some(stream) = self.streams.get_mut(id) else { return };
        if stream.is_held || stream.unreleased == 0 {
            return;
        }
        let bytes = core::mem::take(&mut stream.unreleased);
        if let Some((http2, out)) = links.server(stream.sock) {
            http2.connection.release(out, stream.number, bytes);
        }
    }

    /// Whether a part of the response waits that the client may get now.
    pub(super) fn ready(&self, id: Id<ServerStream>) -> Option<Ready> {
        let stream = self.streams.get(id)?;
        let waits = !stream.input.is_empty();
        if stream.is_held || !waits && !stream.is_response_done {
            return None;
        }
        Some(Ready { exchange: stream.exchange, is_limited: waits && !stream.is_tunnel() })
    }

    /// Takes up to `room` bytes of the response body from a stream.
    pub(super) fn take_piece(&mut self, id: Id<ServerStream>, room: usize) -> Option<Piece> {
        let stream = self.streams.get_mut(id)?;
        let input = core::mem::take(&mut stream.input);
        let count = input.len().min(PIECE_BYTES_MAX).min(room);
        let ends = stream.is_response_done && count == input.len();
        Some(Piece { input, count, ends })
    }

    /// Returns the part of a piece that an exchange has not taken.
    pub(super) fn put_back(
        &mut self,
        buffers: &mut BufferPool,
        id: Id<ServerStream>,
        piece: Piece,
    ) {
        let Piece { mut input, count, .. } = piece;
        input.consume(count);
        match self.streams.get_mut(id) {
            Some(stream) if !input.is_empty() => stream.input = input,
            _ => input.release(buffers),
        }
    }

    /// Marks a stream that no longer exists on its connection.
    pub(super) fn note_gone(&mut self, id: Id<ServerStream>) -> Option<Lost> {
        let stream = self.streams.get_mut(id)?;
        stream.is_gone = true;
        Some(Lost {
            exchange: stream.exchange,
            is_tunnel: stream.is_tunnel(),
            is_response_done: stream.is_response_done,
            was_waiting: stream.is_waiting(),
        })
    }

    /// Pauses or resumes the response data for the exchange.
    pub(in crate::carrier) fn set_receiving(
        &mut self,
        work: &mut Vec<Work>,
        up: Responder,
        receives: bool,
    ) {
        let Some(stream) = self.streams.get_mut(up.stream) else { return };
        if core::mem::replace(&mut stream.is_held, !receives) && receives {
            work.push(Work::ResumeServer(up));
        }
    }
}

/// Requests.
impl Http2Servers {
    /// Opens a stream and sends the request as far as it has arrived.
    pub(super) fn open<R: Reactor>(
        &mut self,
        links: &mut Links<'_, R>,
        id: Id<ServerStream>,
    ) -> Opening {
        let Some(stream) = self.streams.get_mut(id) else { return Opening::Stale };
        let (sock, exchange_id, connects) = (stream.sock, stream.exchange, stream.is_connect());
        let Some(exchange) = links.exchanges.get(exchange_id) else { return Opening::Stale };
        let (request, is_sensitive) = (&exchange.request, exchange.facts.is_sensitive);
        let Some(head) = StoredHead::parse(request.head()) else { return Opening::Broken(sock) };
        let (is_done, has_body) = (request.is_done(), !request.body().is_empty());
        let ends = is_done && !has_body && request.trailers().is_empty() && !connects;
        let host = head.fields().find(|field| field.id == FieldName::Host);
        let line = RequestLine {
            method: if connects { "CONNECT" } else { head.method },
            // The scheme of the server connection, because several servers reject any other. X-Forwarded-Proto has the
            // client's scheme.
            scheme: if links.is_server_secure(sock) { "https" } else { "http" },
            authority: host.map_or("", |host| core::str::from_utf8(host.value).unwrap_or_default()),
            path: head.target,
            protocol: connects.then_some(websocket::PROTOCOL),
        };
        let Some((http2, out)) = links.server(sock) else { return Opening::Broken(sock) };
        let opened = http2.connection.send_request(out, token_of(id), &line, ends, |writer| {
            for field in head.fields().filter(|field| !connects || !websocket::is_key(field)) {
                match is_sensitive {
                    true => writer.sensitive(field.name, field.value),
                    false => writer.field(field.name, field.value),
                }
            }
        });
        let Ok(number) = opened else { return Opening::Refused(sock, exchange_id) };
        stream.number = number;
        if connects {
            // The bytes that follow belong to the tunnel.
            return Opening::Sent;
        }
        if has_body || (is_done && !ends) {
            self.send(links, id, request.body());
        }
        if is_done { Opening::Sent } else { Opening::Begun(exchange_id) }
    }

    /// Sends a piece of a request body or of a tunnel after the bytes that wait, and the end if it has arrived. Sends
    /// nothing if the stream is not open yet (then `StoredRequest` keeps the piece), or if it no longer exists on its connection.
    pub(in crate::carrier) fn send_after<R: Reactor>(
        &mut self,
        links: &mut Links<'_, R>,
        up: Responder,
        data: &[u8],
    ) {
        let Some(stream) = self.streams.get_mut(up.stream) else { return };
        if stream.is_waiting() || stream.is_gone {
            return;
        }
        if !stream.output.is_empty() {
            return stream.output.push(data, links.buffers);
        }
        self.send(links, up.stream, data);
        links.settle_server_later(up.sock);
    }

    /// Sends bytes of the body, and the end of the request if it is complete. Data that exceeds the windows waits.
    fn send<R: Reactor>(&mut self, links: &mut Links<'_, R>, id: Id<ServerStream>, data: &[u8]) {
        let Some(stream) = self.streams.get_mut(id) else { return };
        let Some(admitted) = admit(stream, links, data) else { return };
        stream.moved_at = links.reactor.now();
        if admitted < data.len() {
            stream.output.push(&data[admitted..], links.buffers);
        }
    }

    /// Ends a tunnel's direction to the server, after the data that waits.
    pub(in crate::carrier) fn finish_tunnel<R: Reactor>(
        &mut self,
        links: &mut Links<'_, R>,
        up: Responder,
    ) {
        let Some(stream) = self.streams.get_mut(up.stream) else { return };
        stream.connect = Connect::Finished;
        if stream.output.is_empty() && !stream.is_gone {
            self.send(links, up.stream, b"");
        }
        links.settle_server_later(up.sock);
    }

    /// Begins the tunnel of a stream to whose extended CONNECT the server has agreed. Returns the exchange.
    pub(super) fn begin_tunnel(&mut self, id: Id<ServerStream>) -> Option<Id<Exchange>> {
        let stream = self.streams.get_mut(id)?;
        stream.connect = Connect::Open;
        Some(stream.exchange)
    }

    /// Sends the data that waits on the streams of a connection, as far as the windows and the output allow. Stops at a stream
    /// that has caught up: the caller tells its exchange and calls again.
    pub(super) fn send_admitted<R: Reactor>(
        &mut self,
        links: &mut Links<'_, R>,
        sock: SockId,
    ) -> Option<Id<ServerStream>> {
        // If a connection is blocked, its streams continue when its output has drained.
        while !is_blocked(links.reactor, sock) {
            let (http2, out) = links.server(sock)?;
            let number = http2.connection.poll_writable(out)?;
            let id = http2.connection.token(number).map_or(Id::NONE, id_of);
            let Some(stream) = self.streams.get_mut(id) else { continue };
            let mut output = core::mem::take(&mut stream.output);
            let admitted = admit(stream, links, output.as_slice());
            output.consume(admitted.unwrap_or(output.len()));
            if admitted.is_some_and(|bytes| bytes > 0) {
                stream.moved_at = links.reactor.now();
            }
            if !output.is_empty() {
                stream.output = output;
                continue;
            }
            output.release(links.buffers);
            return Some(id);
        }
        None
    }

    /// The exchange of a stream that has caught up.
    pub(super) fn caught_up(&self, id: Id<ServerStream>) -> Option<Id<Exchange>> {
        let stream = self.streams.get(id)?;
        (!stream.is_behind() && !stream.is_waiting()).then_some(stream.exchange)
    }
}

/// Backpressure and deadlines.
impl Http2Servers {
    /// Whether no part of the request was sent, so that all of it must be kept.
    pub(in crate::carrier) fn is_unsent<R: Reactor>(&self, reactor: &R, up: Responder) -> bool {
        let stream = self.streams.get(up.stream);
        stream.is_some_and(ServerStream::is_waiting) || reactor.is_guarded(up.sock)
    }

    /// Whether the server has not taken all of the request that was sent.
    pub(in crate::carrier) fn is_behind(&self, up: Responder) -> bool {
        self.streams.get(up.stream).is_some_and(ServerStream::is_behind)
    }

    /// Bytes of the request that the server has not taken.
    pub(in crate::carrier) fn pending(&self, up: Responder) -> usize {
        let stream = self.streams.get(up.stream).filter(|stream| !stream.is_gone);
        stream.map_or(0, |stream| stream.output.len())
    }

    /// Whether bytes of the request that have arrived wait for a stream, for the stream's window or for the connection, whose
    /// gathered output was sent.
    pub(in crate::carrier) fn is_held_up<R: Reactor>(&self, reactor: &R, up: Responder) -> bool {
        let stream = self.streams.get(up.stream);
        stream.is_some_and(|stream| stream.is_waiting() || stream.is_behind())
            || reactor.output_pending(up.sock) > 0
    }

    /// Checks whether the server takes the request, after gathered output was sent. Bytes in the output of the connection
    /// count as taken. They do not if a part of the request is still to come (`has_rest`), because its client may wait until
    /// the output has drained.
    pub(in crate::carrier) fn look<R: Reactor>(
        &mut self,
        reactor: &mut R,
        up: Responder,
        has_rest: bool,
    ) -> OutputProgress {
        let Some(stream) = self.streams.get_mut(up.stream) else { return OutputProgress::Idle };
        if has_rest && !stream.is_behind() && reactor.output_pending(up.sock) > 0 {
            return reactor.check_output_progress(up.sock);
        }
        let is_pending = stream.is_behind();
        match core::mem::replace(&mut stream.was_pending, is_pending) {
            _ if is_pending => OutputProgress::Pending { moved_at: stream.moved_at },
            true => OutputProgress::Emptied,
            false => OutputProgress::Idle,
        }
    }

    /// Sets when `server_due` is called.
    pub(in crate::carrier) fn set_deadline<R: Reactor>(
        &mut self,
        links: &mut Links<'_, R>,
        up: Responder,
        at: Moment,
    ) {
        let Some(stream) = self.streams.get_mut(up.stream) else { return };
        stream.due_at = at;
        links.hasten_server(up.sock, at);
    }

    /// Takes the deadline of a stream if it has passed. Returns the exchange.
    pub(super) fn take_due(&mut self, id: Id<ServerStream>, now: Moment) -> Option<Id<Exchange>> {
        let stream = self.streams.get_mut(id)?;
        if stream.due_at > now {
            return None;
        }
        stream.due_at = Moment::NEVER;
        Some(stream.exchange)
    }
}

/// Sends as much of `data` as the windows and the output admit, and the end of the request after it. Returns how many
/// bytes that were; `None` if the stream cannot send any more.
fn admit<R: Reactor>(
    stream: &ServerStream,
    links: &mut Links<'_, R>,
    data: &[u8],
) -> Option<usize> {
    let now = links.reactor.now();
    let (sock, number) = (stream.sock, stream.number);
    let request = &links.exchanges.get(stream.exchange)?.request;
    let (is_done, has_trailers) = match stream.connect {
        Connect::No => (request.is_done(), !request.trailers().is_empty()),
        Connect::Requested | Connect::Open => (false, false),
        Connect::Finished => (true, false),
    };
    let mut admitted = 0;
    loop {
        let piece = &data[admitted..data.len().min(admitted + SEND_BYTES_MAX)];
        let is_last = admitted + piece.len() == data.len();
        let is_full = is_blocked(links.reactor, sock);
        let (http2, out) = links.server(sock)?;
        if is_full && !piece.is_empty() {
            http2.connection.wait_writable(number);
            return Some(admitted);
        }
        let ends = is_done && is_last && !has_trailers;
        let sent = match piece.is_empty() && !ends {
            true => 0,
            false => http2.connection.send_data(now, out, number, piece, ends)?,
        };
        admitted += sent;
        if sent < piece.len() {
            return Some(admitted);
        }
        if is_last {
            break;
        }
    }
    if is_done && has_trailers {
        send_trailers(stream, links);
    }
    Some(admitted)
}

/// Sends the trailers of a request, which end it.
fn send_trailers<R: Reactor>(stream: &ServerStream, links: &mut Links<'_, R>) {
    let Some(exchange) = links.exchanges.get(stream.exchange) else { return };
    let settings = links.settings.of(exchange.era);
    let fields = &settings.client_address_fields[usize::from(exchange.listener)];
    let Some((http2, out)) = links.server(stream.sock) else { return };
    let trailers = exchange.request.trailers();
    http2.connection.send_trailers(out, stream.number, |writer: &mut FieldWriter<'_>| {
        for line in fields.admitted_lines(trailers) {
            write_lines(writer, line);
        }
    });
}
