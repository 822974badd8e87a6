//! A connection: its state, its start and its end. `receive.rs` takes input, `send.rs` produces messages.
//! In: a `Config`, the time. Out: the first frames, GOAWAY, facts about the connection and its streams.
//! Never: reads a clock or a socket; all output is appended to the buffer that the caller gives.
//! Limits: `Config`, `bounds`, `flood`.
//! Invariant: a stream is opened in one place (`add_stream`) and removed in one place (`remove_stream`).
//!
//! The caller
//! - calls `start` once, then `receive` until it returns `None` for each piece of input;
//! - after that, and whenever output has drained, calls `output_drained` (if nothing is pending) and
//!   `poll_writable` until it returns `None`;
//! - closes the connection after a fault, once the output is sent, or when `is_finished`;
//! - sets the deadlines: for the peer's SETTINGS, for idle connections, for stalled streams, and for the end
//!   of a graceful stop (`stop_now`).

use super::bounds::{
    CONNECTION_WINDOW_DEFAULT, HEADER_FIELDS_DEFAULT, HEADER_LIST_BYTES_DEFAULT,
    HEADER_TABLE_BYTES_DEFAULT, OUTPUT_PAUSE_DEFAULT, REPLY_BYTES_MAX, STREAM_ID_MAX,
    STREAM_WINDOW_CEILING_DEFAULT, STREAM_WINDOW_DEFAULT, STREAMS_ASSUMED, STREAMS_DEFAULT,
    WINDOW_INITIAL, WINDOW_MAX, WINDOW_POOL_DEFAULT,
};
use super::fault::{ErrorCode, Fault, FaultKind};
use super::flood::{Allowances, Cost};
use super::flow::{ReceiveWindow, SendWindow, first_increment};
use super::frame::{
    FrameKind, PREFACE, encode_goaway, encode_ping, encode_reset, encode_settings,
    encode_window_update,
};
use super::hpack;
use super::priority::Priority;
use super::queue::WriteQueue;
use super::reader::FrameReader;
use super::settings::{Settings, id};
use super::stream::{Expected, Stream, StreamState};
use super::table::Streams;
use tidegate_base::Moment;

/// Which side of a connection this is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// It sends requests.
    Client,
    /// It responds to requests.
    Server,
}

/// The settings of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Config {
    /// Which side this is.
    pub role: Role,
    /// Streams open at once: the number that a server accepts, and that a client opens even if the server allows more.
    pub streams_max: u32,
    /// The first receive window of each stream: the bytes that its consumer must be able to hold. Values below `WINDOW_INITIAL`
    /// have the effect of that value.
    pub stream_window: u32,
    /// The size up to which the window of a stream grows while its consumer keeps up.
    pub stream_window_ceiling: u32,
    /// The bytes by which the windows of all streams may grow in total. All consumers together hold at most
    /// `streams_max * stream_window + window_pool` bytes.
    pub window_pool: u32,
    /// The receive window of the connection.
    pub connection_window: u32,
    /// Maximum size in bytes of the table that decodes the peer's fields: SETTINGS_HEADER_TABLE_SIZE.
    pub header_table_bytes: u32,
    /// Maximum size in bytes of the table that encodes fields; 0 to use none, which saves memory and costs some 10 to 30 bytes,
    /// and the time of their Huffman code, for each field that repeats.
    pub encoder_table_bytes: u32,
    /// Maximum size in bytes of a head, with 32 more for each field: SETTINGS_MAX_HEADER_LIST_SIZE.
    pub header_list_bytes_max: u32,
    /// Maximum number of fields of a head, pseudo-header fields included, cookie fields excluded.
    pub header_fields_max: u16,
    /// A server accepts extended CONNECT (RFC 8441).
    pub connect_protocol: bool,
    /// Pending output at which `send_data` stops accepting. It exceeds this by less than one frame.
    pub output_pause_bytes: u32,
}

impl Config {
    /// The defaults of a server.
    #[must_use]
    pub const fn server() -> Self {
        Self {
            role: Role::Server,
            streams_max: STREAMS_DEFAULT,
            stream_window: STREAM_WINDOW_DEFAULT,
            stream_window_ceiling: STREAM_WINDOW_CEILING_DEFAULT,
            window_pool: WINDOW_POOL_DEFAULT,
            connection_window: CONNECTION_WINDOW_DEFAULT,
            header_table_bytes: HEADER_TABLE_BYTES_DEFAULT,
            encoder_table_bytes: 0,
            header_list_bytes_max: HEADER_LIST_BYTES_DEFAULT,
            header_fields_max: HEADER_FIELDS_DEFAULT,
            connect_protocol: false,
            output_pause_bytes: OUTPUT_PAUSE_DEFAULT,
        }
    }

    /// The defaults of a client.
    #[must_use]
    pub const fn client() -> Self {
        Self { role: Role::Client, ..Self::server() }
    }
}

/// How far the start of a connection has progressed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    /// A server has received this many bytes of the preface.
    Preface(u8),
    /// The peer's first SETTINGS are missing.
    Settings,
    /// The connection is in use.
    Open,
    /// A fault has ended the connection; input is ignored.
    Failed,
}

/// How far a graceful stop has progressed (RFC 9113 section 6.8).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stop {
    /// Not begun.
    None,
    /// GOAWAY with the largest id was sent, and a PING after it. New streams are still accepted, because the
    /// peer may have opened them before it knew.
    Announced,
    /// GOAWAY with the last accepted stream was sent. Later streams are ignored; the peer may retry them.
    Final(u32),
}

/// A header block that began with HEADERS and continues with CONTINUATION.
#[derive(Clone, Copy, Debug)]
pub(super) struct OpenBlock {
    /// The stream of the block.
    pub(super) stream: u32,
    /// HEADERS had END_STREAM.
    pub(super) ends: bool,
    /// CONTINUATION frames so far.
    pub(super) continuations: u8,
}

/// One HTTP/2 connection.
#[derive(Debug)]
pub struct Connection {
    /// The settings of this side.
    pub(super) config: Config,
    /// The settings of the peer.
    pub(super) peer: Settings,
    /// How far the start has progressed.
    pub(super) phase: Phase,
    /// Splits the input into frames.
    pub(super) reader: FrameReader,
    /// The header block that must be continued.
    pub(super) open_block: Option<OpenBlock>,
    /// The fragments of the header block that must be continued. Empty otherwise.
    pub(super) block: Vec<u8>,
    /// Decodes header blocks.
    pub(super) decoder: hpack::Decoder,
    /// Encodes header blocks.
    pub(super) encoder: hpack::Encoder,
    /// The open streams.
    pub(super) streams: Streams,
    /// The streams that wait to send.
    pub(super) queue: WriteQueue,
    /// The connection's window for DATA of this side. Its initial value does not depend on settings.
    pub(super) send: SendWindow,
    /// The connection's window for DATA of the peer.
    pub(super) receive: ReceiveWindow,
    /// Bytes by which the windows of streams may still grow.
    pub(super) window_pool: u32,
    /// The allowances for actions of the peer that serve no request.
    pub(super) allowances: Allowances,
    /// Harmless violations of the peer since `take_glitches`.
    pub(super) new_glitches: u16,
    /// Bytes of replies appended since `output_drained`.
    pub(super) reply_bytes: u32,
    /// SETTINGS frames of this side that the peer has not acknowledged.
    pub(super) unacknowledged: u8,
    /// The streams that the client may have open: those of `config`, or more until it has acknowledged a lower limit.
    pub(super) streams_granted: u32,
    /// The highest stream that the peer has opened.
    pub(super) last_remote: u32,
    /// When the client has last opened a stream, and the first stream that it opened then.
    pub(super) opened: (Moment, u32),
    /// The next stream that this side opens.
    pub(super) next_local: u32,
    /// How far a graceful stop of this side has progressed.
    pub(super) stop: Stop,
    /// The last stream that the peer processes, from its GOAWAY.
    pub(super) peer_last: Option<u32>,
    /// Streams above `peer_last` may be open, which `receive` must end.
    pub(super) must_sweep: bool,
    /// The priority of a stream that is not open yet (RFC 9218 section 7.1).
    pub(super) early_priority: Option<(u32, Priority)>,
    /// The client has stated a priority.
    pub(super) uses_priorities: bool,
}

/// The opaque data of the PING that a graceful stop sends.
pub(super) const STOP_PING: [u8; 8] = *b"tdgtstop";

impl Connection {
    /// Creates a connection. It holds no memory on the heap yet.
    #[must_use]
    pub fn new(config: Config, now: Moment) -> Self {
        let stream_window = config.stream_window.clamp(WINDOW_INITIAL, WINDOW_MAX);
        let connection_window = config.connection_window.clamp(WINDOW_INITIAL, WINDOW_MAX);
        let config = Config { stream_window, connection_window, ..config };
        let phase = if config.role == Role::Server { Phase::Preface(0) } else { Phase::Settings };
        Self {
            config,
            peer: Settings::INITIAL,
            phase,
            reader: FrameReader::new(),
            open_block: None,
            block: Vec::new(),
            decoder: hpack::Decoder::new(),
            encoder: hpack::Encoder::new(config.encoder_table_bytes),
            streams: Streams::new(),
            queue: WriteQueue::new(),
            send: SendWindow::new(),
            receive: ReceiveWindow::new(connection_window),
            window_pool: config.window_pool,
            allowances: Allowances::new(now, config.role),
            new_glitches: 0,
            reply_bytes: 0,
            unacknowledged: 0,
            streams_granted: config.streams_max,
            last_remote: 0,
            opened: (Moment::ZERO, 0),
            next_local: 1,
            stop: Stop::None,
            peer_last: None,
            must_sweep: false,
            early_priority: None,
            uses_priorities: false,
        }
    }

    /// Appends the first bytes of this side. A client may append requests at once, without waiting for the server's SETTINGS.
    pub fn start(&mut self, out: &mut Vec<u8>) {
        let config = self.config;
        let mut entries = [(0, 0); 6];
        let mut count = 0;
        let mut add = |is_needed: bool, id: u16, value: u32| {
            if is_needed && let Some(entry) = entries.get_mut(count) {
                *entry = (id, value);
                count += 1;
            }
        };
        let is_server = config.role == Role::Server;
        let table_bytes = config.header_table_bytes;
        add(table_bytes != hpack::TABLE_BYTES_INITIAL, id::HEADER_TABLE_SIZE, table_bytes);
        add(!is_server, id::ENABLE_PUSH, 0);
        add(is_server, id::MAX_CONCURRENT_STREAMS, config.streams_max);
        let window = config.stream_window;
        add(window != WINDOW_INITIAL, id::INITIAL_WINDOW_SIZE, window);
        add(true, id::MAX_HEADER_LIST_SIZE, config.header_list_bytes_max);
        add(is_server && config.connect_protocol, id::ENABLE_CONNECT_PROTOCOL, 1);
        add(true, id::NO_RFC7540_PRIORITIES, 1);
        if !is_server {
            out.extend_from_slice(PREFACE);
        }
        encode_settings(out, entries.get(..count).unwrap_or_default());
        self.unacknowledged = 1;
        let increment = first_increment(config.connection_window);
        if increment > 0 {
            encode_window_update(out, 0, increment);
        }
    }

    /// The settings of this side.
    #[must_use]
    pub const fn config(&self) -> &Config {
        &self.config
    }

    /// The settings of the peer; their initial values before its SETTINGS.
    #[must_use]
    pub const fn peer_settings(&self) -> &Settings {
        &self.peer
    }

    /// Whether the peer's SETTINGS have arrived.
    #[must_use]
    pub const fn has_peer_settings(&self) -> bool {
        matches!(self.phase, Phase::Open)
    }

    /// The number of open streams.
    #[must_use]
    pub const fn open_streams(&self) -> usize {
        self.streams.len()
    }

    /// The state of a stream.
    #[must_use]
    pub fn state(&self, stream: u32) -> StreamState {
        self.streams.get(stream).map_or(StreamState::Absent, Stream::state)
    }

    /// The token of an open stream.
    #[must_use]
    pub fn token(&self, stream: u32) -> Option<u64> {
        self.streams.get(stream).map(|stream| stream.token)
    }

    /// Attaches a token to an open stream, which its later events contain. False if the stream is gone.
    pub fn set_token(&mut self, stream: u32, token: u64) -> bool {
        let Some(stream) = self.streams.get_mut(stream) else { return false };
        stream.token = token;
        true
    }

    /// Received bytes of a stream that its consumer has not released.
    #[must_use]
    pub fn unreleased_bytes(&self, stream: u32) -> usize {
        self.streams.get(stream).map_or(0, |stream| stream.receive.held() as usize)
    }

    /// The open streams with their tokens, by id.
    pub fn streams(&self) -> impl Iterator<Item = (u32, u64)> {
        self.streams.iter().map(|stream| (stream.id, stream.token))
    }

    /// Records that the transport has taken all output. Call it whenever nothing is
    /// pending; replies that the peer does not read are bounded by it.
    pub const fn output_drained(&mut self) {
        self.reply_bytes = 0;
    }

    /// Whether the output contains replies that count as not taken by the transport; see `output_drained`.
    #[must_use]
    pub const fn has_replies(&self) -> bool {
        self.reply_bytes > 0
    }

    /// The streams that a client can open now.
    #[must_use]
    pub fn available_streams(&self) -> u32 {
        let is_stopped = self.peer_last.is_some() || self.stop != Stop::None;
        if self.config.role == Role::Server || is_stopped || self.phase == Phase::Failed {
            return 0;
        }
        let allowed = match (self.phase, self.peer.streams_max) {
            (_, Some(max)) => max,
            (Phase::Open, None) => u32::MAX,
            _ => STREAMS_ASSUMED,
        };
        let ids = (STREAM_ID_MAX - self.next_local.min(STREAM_ID_MAX)).div_ceil(2);
        let open = self.streams.len() as u32;
        allowed.min(self.config.streams_max).saturating_sub(open).min(ids)
    }

    /// Changes how many streams the client may have open. Streams above a lowered limit continue, and the client may open more up
    /// to the earlier limit until it has acknowledged the lower one. Later ones are refused until enough have ended. False,
    /// without effect, while the client has not acknowledged earlier SETTINGS: call it again then. So a client that acknowledges
    /// none keeps the limit that was announced first.
    pub fn set_streams_max(&mut self, out: &mut Vec<u8>, streams_max: u32) -> bool {
        let may_change = self.unacknowledged == 0 && self.phase == Phase::Open;
        if self.config.role == Role::Client || self.config.streams_max == streams_max || !may_change
        {
            return false;
        }
        self.streams_granted = self.config.streams_max.max(streams_max);
        self.config.streams_max = streams_max;
        encode_settings(out, &[(id::MAX_CONCURRENT_STREAMS, streams_max)]);
        self.unacknowledged = 1;
        true
    }

    /// The harmless violations of the peer since the last call. Many of them have begun a graceful stop (`is_stopping`).
    pub const fn take_glitches(&mut self) -> u16 {
        core::mem::replace(&mut self.new_glitches, 0)
    }

    /// Sends a PING; `Event::Pong` follows with the same data.
    pub fn ping(&mut self, out: &mut Vec<u8>, opaque: [u8; 8]) {
        if self.phase != Phase::Failed {
            encode_ping(out, false, opaque);
        }
    }

    /// Begins a graceful stop. A server announces it and accepts the streams that the client opens before
    /// it knows; the last one is fixed when the client has replied to a PING. A client opens no more streams.
    pub fn stop(&mut self, out: &mut Vec<u8>) {
        if self.stop != Stop::None || self.phase == Phase::Failed {
            return;
        }
        if self.config.role == Role::Client {
            self.stop_now(out);
            return;
        }
        self.stop = Stop::Announced;
        encode_goaway(out, STREAM_ID_MAX, ErrorCode::NO_ERROR, "");
        encode_ping(out, false, STOP_PING);
    }

    /// Ends a graceful stop without the client's reply: no more streams are accepted.
    pub fn stop_now(&mut self, out: &mut Vec<u8>) {
        if matches!(self.stop, Stop::Final(_)) || self.phase == Phase::Failed {
            return;
        }
        self.stop = Stop::Final(self.last_remote);
        encode_goaway(out, self.last_remote, ErrorCode::NO_ERROR, "");
    }

    /// Whether a stop of either side has begun, so that the connection must not get new requests.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.stop != Stop::None || self.peer_last.is_some() || self.phase == Phase::Failed
    }

    /// Whether this side has announced a graceful stop that the peer has not acknowledged.
    #[must_use]
    pub fn has_announced_stop(&self) -> bool {
        self.stop == Stop::Announced
    }

    /// Whether the connection is no longer needed: close it once its output is sent.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        let is_stopped = matches!(self.stop, Stop::Final(_)) || self.peer_last.is_some();
        self.phase == Phase::Failed || (is_stopped && self.streams.len() == 0)
    }

    /// Whether the input may end now: no stream is open and no frame is incomplete.
    #[must_use]
    pub const fn may_end(&self) -> bool {
        self.streams.len() == 0 && self.open_block.is_none() && !self.reader.is_inside_frame()
    }

    /// Whether a header block has begun and is incomplete. Until it ends, the peer can send nothing else.
    #[must_use]
    pub fn is_inside_block(&self) -> bool {
        self.open_block.is_some() || self.reader.is_inside_payload(FrameKind::Headers)
    }

    /// Ends the connection with an error of this side. Open streams are lost.
    pub fn fail(&mut self, out: &mut Vec<u8>, code: ErrorCode) {
        self.end_with(out, code, "");
    }

    /// Ends the connection because of a fault.
    pub(super) fn fail_with(&mut self, out: &mut Vec<u8>, kind: FaultKind) -> Fault {
        self.end_with(out, kind.code(), kind.reason());
        Fault { kind }
    }

    fn end_with(&mut self, out: &mut Vec<u8>, code: ErrorCode, debug: &str) {
        if self.phase != Phase::Failed {
            self.phase = Phase::Failed;
            let last = if let Stop::Final(last) = self.stop { last } else { self.last_remote };
            encode_goaway(out, last, code, debug);
        }
    }

    /// Frees memory that an idle connection does not need. Call it when a connection has had no stream for
    /// a while; buffers and tables grow again with use.
    pub fn shrink(&mut self) {
        self.reader.shrink();
        if self.block.is_empty() {
            self.block = Vec::new();
        }
        self.streams.shrink();
        self.queue.shrink();
        self.decoder.shrink();
        self.encoder.release();
    }

    /// Bytes of memory that the connection takes, on the heap too.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        size_of::<Self>()
            + self.reader.held_bytes()
            + self.block.capacity()
            + self.streams.held_bytes()
            + self.queue.held_bytes()
            + self.decoder.held_bytes()
            + self.encoder.held_bytes()
    }

    /// Opens a stream.
    pub(super) fn add_stream(&mut self, id: u32, token: u64, expected: Expected) -> &mut Stream {
        let slot = self.streams.add(Stream::new(id, token, expected, self.config.stream_window));
        self.allowances.refund(Cost::Priority, super::flood::PRIORITIES_PER_REQUEST);
        if self.config.role == Role::Client {
            self.allowances.refund(Cost::Empty, super::flood::EMPTY_FRAMES_PER_RESPONSE);
            self.allowances.refund(Cost::Unknown, super::flood::UNKNOWN_FRAMES_PER_RESPONSE);
        }
        self.allowances.refund(Cost::WindowUpdate, super::flood::WINDOW_UPDATES_PER_FRAME);
        self.streams.slot_mut(slot)
    }

    /// Removes a stream that has ended, and returns it.
    pub(super) fn remove_stream(&mut self, id: u32) -> Option<Stream> {
        let stream = self.streams.remove(id)?;
        if stream.is_queued {
            self.queue.remove(stream.slot);
        }
        self.window_pool += stream.grown;
        Some(stream)
    }

    /// Removes a stream if both directions have ended.
    pub(super) fn close_if_ended(&mut self, id: u32) {
        if self.streams.get(id).is_some_and(Stream::is_closed) {
            self.remove_stream(id);
            self.streams.remember_closed(id);
            self.allowances.refund(Cost::Reset, 1);
            self.allowances.refund(Cost::Unknown, 1);
        }
    }

    /// Removes a stream and tells the peer.
    pub(super) fn reset_stream(
        &mut self,
        out: &mut Vec<u8>,
        id: u32,
        code: ErrorCode,
    ) -> Option<Stream> {
        let stream = self.remove_stream(id)?;
        self.streams.remember_reset(id);
        encode_reset(out, id, code);
        Some(stream)
    }

    /// Counts the bytes of a reply to the peer.
    pub(super) const fn count_reply(&mut self, bytes: u32) -> Result<(), FaultKind> {
        self.reply_bytes += bytes;
        if self.reply_bytes > REPLY_BYTES_MAX {
            return Err(FaultKind::TooManyReplies);
        }
        Ok(())
    }

    /// Announces the connection's receive window once enough of it is used.
    pub(super) fn announce_window(&mut self, out: &mut Vec<u8>) {
        let increment = self.receive.take_increment();
        if increment > 0 {
            encode_window_update(out, 0, increment);
        }
    }
}
