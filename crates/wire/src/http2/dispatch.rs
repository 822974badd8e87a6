//! The type of each frame against the state of its stream (RFC 9113 sections 5.1 and 6).
//! In: frame heads, whole payloads. Out: how to read a payload, events, replies, or the fault that ends the
//! connection.
//! Never: decides about a frame in two places: `check_frame` checks the head, one `take_` function the payload.
//! Limits: `bounds`, `flood`.

use super::bounds::{CONTINUATIONS_MAX, FRAME_BYTES_MAX, RESET_STREAMS_REMEMBERED, WINDOW_INITIAL};
use super::connection::{Connection, OpenBlock, Phase, Role, STOP_PING, Stop};
use super::fault::{ErrorCode, FaultKind};
use super::flood::Cost;
use super::frame::{
    ACK, END_HEADERS, END_STREAM, FrameHead, FrameKind, PADDED, decode_u31, decode_u32,
    encode_ping, encode_settings_ack, split_headers,
};
use super::head::{BlockKind, Scratch, limits_of};
use super::hpack;
use super::priority::Priority;
use super::reader::Reading;
use super::receive::{Block, ResetCause, Step};
use super::stream::Expected;
use tidegate_base::Moment;

type Checked<'a> = Result<(Reading, Option<Step<'a>>), FaultKind>;

impl Connection {
    /// Checks the head of a frame: whether it is allowed now, and how to read its payload.
    pub(super) fn check_frame<'a>(
        &mut self,
        now: Moment,
        head: FrameHead,
        out: &mut Vec<u8>,
    ) -> Checked<'a> {
        if head.length > FRAME_BYTES_MAX {
            return Err(FaultKind::FrameTooLarge);
        }
        let is_settings = head.kind == FrameKind::Settings && !head.has(ACK);
        if self.phase == Phase::Settings && !is_settings {
            return Err(FaultKind::SettingsMissing);
        }
        if let Some(block) = self.open_block {
            if head.kind != FrameKind::Continuation || head.stream != block.stream {
                return Err(FaultKind::ContinuationExpected);
            }
            return Ok((Reading::Whole, None));
        }
        let reading = match head.kind {
            FrameKind::Data => return self.check_data(now, head, out),
            FrameKind::Headers => {
                self.check_headers(head)?;
                Reading::Whole
            }
            FrameKind::Priority => return self.check_priority(now, head, out),
            FrameKind::RstStream => self.check_stream_frame(head, 4)?,
            FrameKind::Settings => check_settings(head)?,
            FrameKind::PushPromise => return Err(FaultKind::PushNotAllowed),
            FrameKind::Ping => check_connection_frame(head, head.length == 8)?,
            FrameKind::GoAway => check_connection_frame(head, head.length >= 8)?,
            FrameKind::WindowUpdate if head.stream == 0 => {
                check_connection_frame(head, head.length == 4)?
            }
            FrameKind::WindowUpdate => self.check_stream_frame(head, 4)?,
            FrameKind::Continuation => return Err(FaultKind::ContinuationUnexpected),
            FrameKind::PriorityUpdate => {
                if !self.is_server() {
                    return Err(FaultKind::PriorityUpdateInvalid);
                }
                check_connection_frame(head, head.length >= 4)?
            }
            FrameKind::Unknown(_) => {
                self.charge(now, Cost::Unknown, out)?;
                Reading::Skipped
            }
        };
        Ok((reading, None))
    }

    /// Whether no frame has opened the stream yet.
    fn is_idle(&self, id: u32) -> bool {
        if id.is_multiple_of(2) {
            // Only servers open even streams, by push, which is disabled.
            return true;
        }
        match self.config.role {
            Role::Server => id > self.last_remote,
            Role::Client => id >= self.next_local,
        }
    }

    /// Checks a frame that must name a stream that was opened.
    fn check_stream_frame(&self, head: FrameHead, length: u32) -> Result<Reading, FaultKind> {
        match head.stream {
            0 => Err(FaultKind::StreamIdMissing),
            _ if head.length != length => Err(FaultKind::FrameLengthInvalid),
            id if self.is_idle(id) => Err(FaultKind::StreamIdle),
            _ => Ok(Reading::Whole),
        }
    }

    fn check_data<'a>(&mut self, now: Moment, head: FrameHead, out: &mut Vec<u8>) -> Checked<'a> {
        let id = head.stream;
        if id == 0 {
            return Err(FaultKind::StreamIdMissing);
        }
        if self.is_idle(id) {
            return Err(FaultKind::StreamIdle);
        }
        if head.has(PADDED) && head.length == 0 {
            return Err(FaultKind::FrameLengthInvalid);
        }
        if !self.receive.receive(head.length) {
            return Err(FaultKind::ConnectionWindowExceeded);
        }
        self.receive.release(head.length as usize);
        let Some(stream) = self.streams.get_mut(id) else {
            if !self.streams.was_reset(id) && !self.is_excluded(id) {
                self.charge_glitch(now, out)?;
                self.reset_unknown(id, ErrorCode::STREAM_CLOSED, out)?;
            }
            return Ok((Reading::Skipped, None));
        };
        let fault = match stream.expected {
            Expected::Nothing => FaultKind::FrameOnClosedStream,
            Expected::Head => FaultKind::DataBeforeHead,
            Expected::Body | Expected::Ignored => {
                if stream.receive.receive(head.length) {
                    return Ok((Reading::Data, None));
                }
                FaultKind::StreamWindowExceeded
            }
        };
        let event = self.fail_stream(now, id, fault, out)?;
        Ok((Reading::Skipped, Some(event)))
    }

    /// PRIORITY is ignored, but must have the right form (RFC 9113 section 6.3).
    fn check_priority<'a>(
        &mut self,
        now: Moment,
        head: FrameHead,
        out: &mut Vec<u8>,
    ) -> Checked<'a> {
        self.allowances.charge(now, Cost::Priority)?;
        if head.stream == 0 {
            return Err(FaultKind::StreamIdMissing);
        }
        if head.length == 5 {
            return Ok((Reading::Skipped, None));
        }
        if self.streams.get(head.stream).is_none() {
            return Err(FaultKind::FrameLengthInvalid);
        }
        let event = self.fail_stream(now, head.stream, FaultKind::PriorityLengthInvalid, out)?;
        Ok((Reading::Skipped, Some(event)))
    }

    /// Checks the stream of HEADERS (RFC 9113 sections 5.1 and 5.1.1).
    fn check_headers(&self, head: FrameHead) -> Result<(), FaultKind> {
        let id = head.stream;
        if id == 0 {
            return Err(FaultKind::StreamIdMissing);
        }
        if id.is_multiple_of(2) {
            return Err(FaultKind::StreamIdInvalid);
        }
        if self.is_idle(id) {
            return if self.is_server() { Ok(()) } else { Err(FaultKind::StreamIdle) };
        }
        if self.streams.find(id).is_some() || self.streams.was_reset(id) {
            return Ok(());
        }
        if self.streams.was_closed(id) {
            return Err(FaultKind::HeadersOnClosedStream);
        }
        // A client may have forgotten that it reset the stream; a server never opens one out of order.
        if self.is_server() && !self.is_beyond_stop(id) {
            return Err(FaultKind::StreamIdInvalid);
        }
        Ok(())
    }

    /// Whether the stream was opened after the last one that this side accepts.
    fn is_beyond_stop(&self, id: u32) -> bool {
        matches!(self.stop, Stop::Final(last) if id > last)
    }

    /// Whether a GOAWAY excludes the stream: that of this side, or that of a server.
    fn is_excluded(&self, id: u32) -> bool {
        let is_gone = !self.is_server() && self.peer_last.is_some_and(|last| id > last);
        is_gone || self.is_beyond_stop(id)
    }

    /// Takes HEADERS.
    pub(super) fn take_headers(
        &mut self,
        head: FrameHead,
        payload: &[u8],
        scratch: &mut Scratch,
    ) -> Result<Option<Block>, FaultKind> {
        let (fragment, _) = split_headers(head, payload)?;
        let ends = head.has(END_STREAM);
        if head.has(END_HEADERS) {
            return self.end_block(head.stream, ends, fragment, scratch);
        }
        self.open_block = Some(OpenBlock { stream: head.stream, ends, continuations: 0 });
        self.block.extend_from_slice(fragment);
        Ok(None)
    }

    /// Takes CONTINUATION (CVE-2024-27316).
    pub(super) fn take_continuation(
        &mut self,
        now: Moment,
        head: FrameHead,
        fragment: &[u8],
        scratch: &mut Scratch,
    ) -> Result<Option<Block>, FaultKind> {
        let Some(mut block) = self.open_block else {
            return Err(FaultKind::ContinuationUnexpected);
        };
        block.continuations += 1;
        if block.continuations > CONTINUATIONS_MAX {
            return Err(FaultKind::TooManyContinuations);
        }
        if fragment.is_empty() && !head.has(END_HEADERS) {
            self.allowances.charge(now, Cost::Empty)?;
        }
        // A compressed block is hardly ever larger than the list that it decodes to.
        let bytes_max = (self.config.header_list_bytes_max + FRAME_BYTES_MAX) as usize;
        if self.block.len() + fragment.len() > bytes_max {
            return Err(FaultKind::HeaderBlockTooLarge);
        }
        self.block.extend_from_slice(fragment);
        if !head.has(END_HEADERS) {
            self.open_block = Some(block);
            return Ok(None);
        }
        self.open_block = None;
        let mut bytes = core::mem::take(&mut self.block);
        let ended = self.end_block(block.stream, block.ends, &bytes, scratch);
        bytes.clear();
        self.block = bytes;
        ended
    }

    /// Decodes a complete block and determines its kind.
    fn end_block(
        &mut self,
        stream: u32,
        ends: bool,
        bytes: &[u8],
        scratch: &mut Scratch,
    ) -> Result<Option<Block>, FaultKind> {
        let kind = self.open_message(stream);
        let limits = limits_of(kind, &self.config);
        let Scratch { hpack, fields, latest } = scratch;
        if latest.is(bytes, kind, &limits) && self.decoder.may_skip(latest.table_use()) {
            return Ok(Some(Block { stream, kind, ends, is_too_large: false }));
        }
        latest.forget();
        fields.begin(kind);
        let decoded = self.decoder.decode(bytes, &limits, hpack, fields).map_err(|fault| {
            if fault.is_excess() {
                FaultKind::HeaderBlockTooLarge
            } else {
                FaultKind::CompressionFailed
            }
        })?;
        fields.finish();
        latest.keep(bytes, (kind, &limits), &decoded);
        let is_too_large =
            decoded.undelivered.is_some_and(|why| why != hpack::Undelivered::Refused);
        match kind {
            BlockKind::Discarded => {
                self.end_ignored(stream, ends);
                Ok(None)
            }
            _ => Ok(Some(Block { stream, kind, ends, is_too_large })),
        }
    }

    /// The kind of header block on this stream.
    fn open_message(&mut self, id: u32) -> BlockKind {
        if let Some(stream) = self.streams.get(id) {
            return match stream.expected {
                Expected::Head => BlockKind::Response,
                Expected::Body | Expected::Nothing => BlockKind::Trailers,
                Expected::Ignored => BlockKind::Discarded,
            };
        }
        if !self.is_server() || id <= self.last_remote {
            return BlockKind::Discarded;
        }
        self.last_remote = id;
        if self.is_beyond_stop(id) { BlockKind::Discarded } else { BlockKind::Request }
    }

    /// Ends a request that is ignored, with its trailers.
    fn end_ignored(&mut self, id: u32, ends: bool) {
        if let Some(stream) = self.streams.get_mut(id).filter(|_| ends) {
            stream.expected = Expected::Nothing;
            self.close_if_ended(id);
        }
    }

    /// Takes any other frame.
    pub(super) fn take_control<'a>(
        &mut self,
        now: Moment,
        head: FrameHead,
        payload: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Option<Step<'a>>, FaultKind> {
        match head.kind {
            FrameKind::RstStream => {
                self.take_reset(now, head.stream, ErrorCode(decode_u32(payload)), out)
            }
            FrameKind::Settings if head.has(ACK) => {
                self.take_settings_ack(now, out)?;
                Ok(None)
            }
            FrameKind::Settings => self.take_settings(now, payload, out),
            FrameKind::Ping => self.take_ping(now, head, payload, out),
            FrameKind::GoAway => self.take_goaway(payload),
            FrameKind::WindowUpdate => self.take_window_update(now, head.stream, payload, out),
            FrameKind::PriorityUpdate => {
                self.take_priority_update(now, payload)?;
                Ok(None)
            }
            _ => Ok(None),
        }
    }

    /// Takes RST_STREAM. Each one costs a server the work of a stream (CVE-2023-44487), unless the response was sent completely.
    /// A response that the client cannot have seen, because it opened the stream at the same time, was only faster.
    fn take_reset<'a>(
        &mut self,
        now: Moment,
        id: u32,
        code: ErrorCode,
        out: &mut Vec<u8>,
    ) -> Result<Option<Step<'a>>, FaultKind> {
        let is_blind = self.is_server() && self.opened.0 == now && id >= self.opened.1;
        let Some(stream) = self.remove_stream(id) else {
            if is_blind && !self.streams.was_reset(id) {
                // The end of the stream has restored a reset, too.
                self.allowances.charge(now, Cost::Reset)?;
                self.allowances.charge(now, Cost::Reset)?;
            } else {
                self.charge(now, Cost::Unknown, out)?;
            }
            return Ok(None);
        };
        self.streams.remember_closed(id);
        if is_blind || self.is_server() && stream.is_local_open {
            self.allowances.charge(now, Cost::Reset)?;
        }
        let cause = ResetCause::Peer(code);
        Ok(Some(Step::Reset { stream: id, token: stream.token, cause }))
    }

    fn take_settings<'a>(
        &mut self,
        now: Moment,
        payload: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Option<Step<'a>>, FaultKind> {
        self.allowances.charge(now, Cost::Settings)?;
        let before = self.peer.initial_window;
        let sender = if self.is_server() { Role::Client } else { Role::Server };
        let smallest_table = self.peer.apply(payload, sender)?;
        self.phase = Phase::Open;
        let initial = self.peer.initial_window;
        if initial > before && !self.streams.iter().all(|stream| stream.send.fits(initial)) {
            return Err(FaultKind::StreamWindowsOverflow);
        }
        // The next block must state the smallest size, too (RFC 7541 section 4.2).
        self.encoder.set_peer_table_limit(smallest_table);
        self.encoder.set_peer_table_limit(self.peer.header_table_bytes);
        self.count_reply(9)?;
        encode_settings_ack(out);
        Ok(Some(Step::Settings))
    }

    fn take_settings_ack(&mut self, now: Moment, out: &mut Vec<u8>) -> Result<(), FaultKind> {
        let Some(left) = self.unacknowledged.checked_sub(1) else {
            return self.charge_glitch(now, out);
        };
        self.unacknowledged = left;
        if left == 0 {
            self.streams_granted = self.config.streams_max;
        }
        // Only the first SETTINGS state the size of the table; repeating the call changes nothing.
        self.decoder.acknowledge_table_limit(self.config.header_table_bytes);
        Ok(())
    }

    fn take_ping<'a>(
        &mut self,
        now: Moment,
        head: FrameHead,
        payload: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Option<Step<'a>>, FaultKind> {
        let Some(&opaque) = payload.first_chunk::<8>() else {
            return Err(FaultKind::FrameLengthInvalid);
        };
        if !head.has(ACK) {
            self.allowances.charge(now, Cost::Ping)?;
            self.count_reply(17)?;
            encode_ping(out, true, opaque);
            return Ok(None);
        }
        if opaque == STOP_PING && self.stop == Stop::Announced {
            self.stop_now(out);
            return Ok(None);
        }
        self.allowances.charge(now, Cost::Ping)?;
        Ok(Some(Step::Pong { opaque }))
    }

    fn take_goaway<'a>(&mut self, payload: &[u8]) -> Result<Option<Step<'a>>, FaultKind> {
        let last_stream = decode_u31(payload);
        let code = ErrorCode(decode_u32(payload.get(4..).unwrap_or_default()));
        if self.peer_last.is_some_and(|before| last_stream > before) {
            return Err(FaultKind::GoAwayIdIncreased);
        }
        self.peer_last = Some(last_stream);
        self.must_sweep = !self.is_server();
        Ok(Some(Step::GoAway { last_stream, code }))
    }

    fn take_window_update<'a>(
        &mut self,
        now: Moment,
        id: u32,
        payload: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Option<Step<'a>>, FaultKind> {
        self.allowances.charge_window_update(now)?;
        let increment = decode_u31(payload);
        if id == 0 {
            if increment == 0 {
                return Err(FaultKind::ConnectionWindowIncrementZero);
            }
            let fits = self.send.credit(increment, WINDOW_INITIAL);
            return if fits { Ok(None) } else { Err(FaultKind::ConnectionWindowOverflow) };
        }
        let initial = self.peer.initial_window;
        let Some(stream) = self.streams.get_mut(id) else { return Ok(None) };
        let fault = match increment {
            0 => FaultKind::StreamWindowIncrementZero,
            _ if stream.send.credit(increment, initial) => return Ok(None),
            _ => FaultKind::StreamWindowOverflow,
        };
        self.fail_stream(now, id, fault, out).map(Some)
    }

    /// Takes PRIORITY_UPDATE (RFC 9218 section 7.1). One update for a stream that is not open yet is kept.
    fn take_priority_update(&mut self, now: Moment, payload: &[u8]) -> Result<(), FaultKind> {
        self.allowances.charge(now, Cost::Priority)?;
        let id = decode_u31(payload);
        if id == 0 || id.is_multiple_of(2) {
            return Err(FaultKind::PriorityUpdateInvalid);
        }
        let priority = Priority::parse(payload.get(4..).unwrap_or_default());
        if let Some(stream) = self.streams.get_mut(id) {
            stream.priority = priority;
            self.uses_priorities = true;
        } else if self.is_idle(id) {
            self.early_priority = Some((id, priority));
        }
        Ok(())
    }
}

/// Checks a frame that must not name a stream.
const fn check_connection_frame(head: FrameHead, fits: bool) -> Result<Reading, FaultKind> {
    if head.stream != 0 {
        return Err(FaultKind::StreamIdUnexpected);
    }
    if fits { Ok(Reading::Whole) } else { Err(FaultKind::FrameLengthInvalid) }
}

fn check_settings(head: FrameHead) -> Result<Reading, FaultKind> {
    let fits = if head.has(ACK) { head.length == 0 } else { head.length.is_multiple_of(6) };
    check_connection_frame(head, fits)
}

const _: () = assert!(RESET_STREAMS_REMEMBERED <= 256, "looked up one by one");
