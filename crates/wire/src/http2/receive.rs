//! Takes input: decides for each frame what it means for the connection and its streams (RFC 9113 sections 3.4
//! to 6.10).
//! In: received bytes, the time. Out: `Event`s, replies appended to the output, or the fault that ends the
//! connection.
//! Never: calls back; the caller acts on an event and then calls again. Never keeps the data of a body.
//! Limits: `bounds`, `flood`, `Config`.
//! Invariant: every DATA frame is counted in the connection's window with its padding, and credited, before
//! anything else about it is decided. Every header block is decoded, even if its stream is refused or reset.

use super::connection::{Connection, Phase, Role};
use super::fault::{ErrorCode, Fault, FaultKind};
use super::flood::Cost;
use super::frame::{END_STREAM, FrameKind, PREFACE};
use super::head::{BlockKind, Request, Scratch};
use super::reader::{Payload, Reading};
use super::stream::Expected;
use crate::message::{Fields, Method, RequestKind, ResponseHead};
use tidegate_base::Moment;

/// An event for the user of a connection. `token` is the value that `Connection::set_token` or `Connection::send_request`
/// attached to the stream; 0 if nothing was.
#[derive(Clone, Debug)]
pub enum Event<'a> {
    /// A client opened a stream. Attach a token to it.
    Request {
        /// The stream.
        stream: u32,
        /// The head.
        request: Request<'a>,
        /// The request ends with its head.
        ends: bool,
    },
    /// A client opened a stream with a head that exceeds the limits. Respond with `status`; the stream then
    /// ends, and the rest of the request is discarded.
    RequestTooLarge {
        /// The stream.
        stream: u32,
        /// The status of the response.
        status: u16,
    },
    /// The head of a response. Interim responses (`ResponseHead::is_interim`) come before the final one.
    Response {
        /// The stream.
        stream: u32,
        /// Its token.
        token: u64,
        /// The head.
        head: ResponseHead<'a>,
        /// The response ends with its head.
        ends: bool,
    },
    /// Part of a body. Call `Connection::release` when its consumer has taken the bytes.
    Data {
        /// The stream.
        stream: u32,
        /// Its token.
        token: u64,
        /// The data; may be empty if `ends`.
        bytes: &'a [u8],
        /// The message ends here.
        ends: bool,
    },
    /// The trailers of a message, which ends with them. Fields that are not allowed in trailers are omitted.
    Trailers {
        /// The stream.
        stream: u32,
        /// Its token.
        token: u64,
        /// The fields.
        fields: Fields<'a>,
    },
    /// A stream was reset and is gone. A message that has ended before remains valid.
    Reset {
        /// The stream.
        stream: u32,
        /// Its token.
        token: u64,
        /// Why.
        cause: ResetCause,
    },
    /// A request was rejected that the user has not seen. For counters.
    Rejected {
        /// The stream.
        stream: u32,
        /// Why.
        fault: Fault,
    },
    /// The peer closes the connection. A client opens no more streams on it; those that the server does not
    /// process follow as `Reset`.
    GoAway {
        /// The last stream that the peer processes.
        last_stream: u32,
        /// The reason.
        code: ErrorCode,
    },
    /// The peer has sent SETTINGS, and they are in force. More streams may be available.
    Settings,
    /// The reply to `Connection::ping`.
    Pong {
        /// The data of the PING.
        opaque: [u8; 8],
    },
}

/// Why a stream was reset.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ResetCause {
    /// The peer reset it.
    Peer(ErrorCode),
    /// The peer violated the protocol on it, and this side reset it.
    Fault(Fault),
    /// The peer's GOAWAY excludes it.
    GoneAway,
}

impl ResetCause {
    /// Whether the server has certainly not processed the request, so that any method may be retried
    /// (RFC 9113 section 8.7).
    #[must_use]
    pub fn is_unprocessed(self) -> bool {
        matches!(self, Self::GoneAway | Self::Peer(ErrorCode::REFUSED_STREAM))
    }
}

/// The meaning of a frame, before the fields of its header block are examined.
pub(super) enum Step<'a> {
    /// A header block is complete; its fields are in the scratch memory.
    Block(Block),
    /// As `Event::Data`.
    Data { stream: u32, token: u64, bytes: &'a [u8], ends: bool },
    /// As `Event::Reset`.
    Reset { stream: u32, token: u64, cause: ResetCause },
    /// As `Event::GoAway`.
    GoAway { last_stream: u32, code: ErrorCode },
    /// As `Event::Settings`.
    Settings,
    /// As `Event::Pong`.
    Pong { opaque: [u8; 8] },
}

/// A complete header block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Block {
    pub(super) stream: u32,
    pub(super) kind: BlockKind,
    /// The message ends with the block.
    pub(super) ends: bool,
    /// The block exceeds the limits.
    pub(super) is_too_large: bool,
}

impl<'a> Step<'a> {
    /// The event of a step without fields.
    const fn into_event(self) -> Event<'a> {
        match self {
            Self::Data { stream, token, bytes, ends } => Event::Data { stream, token, bytes, ends },
            Self::Reset { stream, token, cause } => Event::Reset { stream, token, cause },
            Self::GoAway { last_stream, code } => Event::GoAway { last_stream, code },
            Self::Pong { opaque } => Event::Pong { opaque },
            // `take_step` handles blocks itself.
            Self::Settings | Self::Block(_) => Event::Settings,
        }
    }
}

impl Connection {
    /// Takes input until an event occurs, and removes the taken bytes from `input`. Call it again until it returns `None`; all
    /// input is taken then. Replies are appended to `out`, which must be sent in any case.
    ///
    /// # Errors
    /// The connection must be closed after `out`, which ends with GOAWAY, was sent. All streams are lost.
    pub fn receive<'a, 'b: 'a>(
        &mut self,
        now: Moment,
        input: &mut &'b [u8],
        scratch: &'a mut Scratch,
        out: &mut Vec<u8>,
    ) -> Result<Option<Event<'a>>, Fault> {
        if self.phase == Phase::Failed {
            *input = &[];
            return Ok(None);
        }
        let event = match self.advance(now, input, scratch, out) {
            Ok(None) => {
                self.announce_window(out);
                return Ok(None);
            }
            Ok(Some(step)) => self.take_step(now, step, scratch, out),
            Err(kind) => Err(kind),
        };
        event.map(Some).map_err(|kind| self.fail_with(out, kind))
    }

    /// Takes frames until one of them has a meaning for the user.
    fn advance<'a>(
        &mut self,
        now: Moment,
        input: &mut &'a [u8],
        scratch: &mut Scratch,
        out: &mut Vec<u8>,
    ) -> Result<Option<Step<'a>>, FaultKind> {
        if let Phase::Preface(received) = self.phase
            && !self.take_preface(received, input)?
        {
            return Ok(None);
        }
        loop {
            if let Some(step) = self.sweep_excluded() {
                return Ok(Some(step));
            }
            let step = match self.reader.reading() {
                None => {
                    let Some(head) = self.reader.next_head(input) else { return Ok(None) };
                    let (reading, step) = self.check_frame(now, head, out)?;
                    self.reader.begin(head, reading);
                    step
                }
                Some(Reading::Skipped) => {
                    if !self.reader.skip(input) {
                        return Ok(None);
                    }
                    None
                }
                Some(Reading::Data) => {
                    let Some(piece) = self.reader.data(input)? else { return Ok(None) };
                    self.take_data(now, piece, out)?
                }
                Some(Reading::Whole) => {
                    let Some(payload) = self.reader.whole(input) else { return Ok(None) };
                    self.take_frame(now, payload, scratch, out)?
                }
            };
            if step.is_some() {
                return Ok(step);
            }
        }
    }

    /// Compares the input with the preface. True once it is complete.
    fn take_preface(&mut self, received: u8, input: &mut &[u8]) -> Result<bool, FaultKind> {
        let wanted = PREFACE.get(usize::from(received)..).unwrap_or_default();
        let count = wanted.len().min(input.len());
        let (taken, rest) = input.split_at(count);
        if wanted.get(..count) != Some(taken) {
            return Err(FaultKind::PrefaceInvalid);
        }
        *input = rest;
        let is_complete = count == wanted.len();
        self.phase =
            if is_complete { Phase::Settings } else { Phase::Preface(received + count as u8) };
        Ok(is_complete)
    }

    /// Ends one of the streams that the peer's GOAWAY excludes.
    fn sweep_excluded<'a>(&mut self) -> Option<Step<'a>> {
        if !self.must_sweep {
            return None;
        }
        let excluded = self.streams.first_above(self.peer_last?).map(|stream| stream.id);
        let Some(stream) = excluded.and_then(|id| self.remove_stream(id)) else {
            self.must_sweep = false;
            return None;
        };
        // The server may have sent frames on it before, or may still send some: they are ignored.
        self.streams.remember_reset(stream.id);
        let (stream, token) = (stream.id, stream.token);
        Some(Step::Reset { stream, token, cause: ResetCause::GoneAway })
    }

    /// Takes part of a DATA frame, whose head `check_frame` has accepted.
    fn take_data<'a>(
        &mut self,
        now: Moment,
        piece: super::reader::DataPiece<'a>,
        out: &mut Vec<u8>,
    ) -> Result<Option<Step<'a>>, FaultKind> {
        let head = self.reader.current();
        let ends_stream = head.has(END_STREAM);
        let ends = piece.ends_frame && ends_stream;
        if piece.frame_bytes == Some(0) && !ends_stream {
            self.charge(now, Cost::Empty, out)?;
        }
        let padding = if piece.ends_frame { self.reader.padding_bytes() } else { 0 };
        let Some(stream) = self.streams.get_mut(head.stream) else {
            // The user has reset the stream since the frame began.
            self.reader.skip_rest();
            return Ok(None);
        };
        let is_ignored = stream.expected == Expected::Ignored;
        let token = stream.token;
        let mut bytes = piece.bytes;
        stream.receive.release(padding);
        if is_ignored {
            stream.receive.release(bytes.len());
            bytes = &[];
        }
        // A frame is checked as a whole, so that it does not matter in which pieces it arrives.
        if let Some(length) = piece.frame_bytes.filter(|_| !is_ignored)
            && let Err(fault) = stream.take_data(length, ends_stream)
        {
            self.reader.skip_rest();
            return self.fail_stream(now, head.stream, fault, out).map(Some);
        }
        if ends {
            stream.expected = Expected::Nothing;
        }
        if padding > 0 || is_ignored {
            self.announce_stream_window(out, head.stream);
        }
        if ends {
            self.close_if_ended(head.stream);
        }
        let has_meaning = !is_ignored && (ends || !bytes.is_empty());
        Ok(has_meaning.then_some(Step::Data { stream: head.stream, token, bytes, ends }))
    }

    /// Takes a whole frame other than DATA, whose head `check_frame` has accepted.
    fn take_frame<'a>(
        &mut self,
        now: Moment,
        payload: Payload<'a>,
        scratch: &mut Scratch,
        out: &mut Vec<u8>,
    ) -> Result<Option<Step<'a>>, FaultKind> {
        let head = self.reader.current();
        let bytes = payload.bytes();
        let step = match head.kind {
            FrameKind::Headers => self.take_headers(head, bytes, scratch)?.map(Step::Block),
            FrameKind::Continuation => {
                self.take_continuation(now, head, bytes, scratch)?.map(Step::Block)
            }
            _ => self.take_control(now, head, bytes, out)?,
        };
        self.reader.reuse(payload);
        Ok(step)
    }

    /// Turns a step into an event; checks the fields of a complete block.
    fn take_step<'a>(
        &mut self,
        now: Moment,
        step: Step<'a>,
        scratch: &'a Scratch,
        out: &mut Vec<u8>,
    ) -> Result<Event<'a>, FaultKind> {
        let block = match step {
            Step::Block(block) => block,
            other => return Ok(other.into_event()),
        };
        match block.kind {
            BlockKind::Request => self.take_request(now, block, scratch, out),
            BlockKind::Response => self.take_response(now, block, scratch, out),
            BlockKind::Trailers | BlockKind::Discarded => {
                self.take_trailers(now, block, scratch, out)
            }
        }
    }

    fn take_request<'a>(
        &mut self,
        now: Moment,
        block: Block,
        scratch: &'a Scratch,
        out: &mut Vec<u8>,
    ) -> Result<Event<'a>, FaultKind> {
        let (id, ends) = (block.stream, block.ends);
        if self.streams.len() >= self.streams_granted as usize {
            return self.reject(now, id, FaultKind::StreamRefused, out);
        }
        if self.opened.0 != now {
            self.opened = (now, id);
        }
        let arena = &scratch.fields;
        if block.is_too_large && arena.fault().is_none() {
            let expected = if ends { Expected::Nothing } else { Expected::Ignored };
            self.add_stream(id, 0, expected);
            return Ok(Event::RequestTooLarge { stream: id, status: 431 });
        }
        let request = match arena.fault().map_or_else(|| arena.request(&self.config, ends), Err) {
            Ok(request) => request,
            Err(fault) => return self.reject(now, id, fault, out),
        };
        let priority = self.priority_of(id, arena.priority);
        let stream = self.add_stream(id, 0, Expected::Body);
        stream.is_head_request = request.head.method == Method::Head;
        stream.is_connect = request.head.method == Method::Connect;
        stream.priority = priority;
        if ends {
            stream.expected = Expected::Nothing;
        } else if let crate::message::BodyLength::Length(length) = request.head.length {
            stream.set_length(Some(length));
        }
        Ok(Event::Request { stream: id, request, ends })
    }

    fn take_response<'a>(
        &mut self,
        now: Moment,
        block: Block,
        scratch: &'a Scratch,
        out: &mut Vec<u8>,
    ) -> Result<Event<'a>, FaultKind> {
        let (id, ends) = (block.stream, block.ends);
        let Some(stream) = self.streams.get_mut(id) else {
            // `check_frame` found the stream, and nothing has removed it since.
            return Err(FaultKind::StreamIdle);
        };
        let kind = RequestKind {
            is_head: stream.is_head_request,
            is_connect: stream.is_connect,
            upgrade_asked: false,
        };
        let arena = &scratch.fields;
        let checked = match (arena.fault(), block.is_too_large) {
            (Some(fault), _) => Err(fault),
            (None, true) => Err(FaultKind::ResponseTooLarge),
            (None, false) => arena.response(kind, ends),
        };
        let checked = checked.and_then(|head| stream.take_response(&head, ends).map(|()| head));
        let token = stream.token;
        match checked {
            Ok(head) => {
                if ends {
                    self.close_if_ended(id);
                }
                Ok(Event::Response { stream: id, token, head, ends })
            }
            Err(fault) => self.fail_stream(now, id, fault, out).map(Step::into_event),
        }
    }

    fn take_trailers<'a>(
        &mut self,
        now: Moment,
        block: Block,
        scratch: &'a Scratch,
        out: &mut Vec<u8>,
    ) -> Result<Event<'a>, FaultKind> {
        let id = block.stream;
        let Some(stream) = self.streams.get_mut(id) else {
            return Err(FaultKind::StreamIdle);
        };
        let token = stream.token;
        let is_ended = stream.expected == Expected::Nothing;
        // RFC 9113 section 8.5. A response that refuses CONNECT may have trailers.
        let is_connect = stream.is_connect && self.config.role == Role::Server;
        let checked = match (scratch.fields.fault(), block.is_too_large, block.ends) {
            _ if is_ended => Err(FaultKind::FrameOnClosedStream),
            _ if is_connect => Err(FaultKind::TrailersOfConnect),
            (Some(fault), ..) => Err(fault),
            (None, true, _) => Err(FaultKind::TrailersTooLarge),
            (None, false, false) => Err(FaultKind::TrailersWithoutEnd),
            (None, false, true) => stream.end_remote(),
        };
        if let Err(fault) = checked {
            return self.fail_stream(now, id, fault, out).map(Step::into_event);
        }
        self.close_if_ended(id);
        Ok(Event::Trailers { stream: id, token, fields: scratch.fields.trailers() })
    }

    /// Rejects a request that the user has not seen.
    fn reject<'a>(
        &mut self,
        now: Moment,
        id: u32,
        fault: FaultKind,
        out: &mut Vec<u8>,
    ) -> Result<Event<'a>, FaultKind> {
        self.allowances.charge(now, Cost::Reset)?;
        self.reset_unknown(id, fault.code(), out)?;
        Ok(Event::Rejected { stream: id, fault: fault.into() })
    }

    /// Resets a stream because of a fault of the peer (CVE-2025-8671). A server can be at fault only once for each request of
    /// this side, so that is not charged.
    pub(super) fn fail_stream<'a>(
        &mut self,
        now: Moment,
        id: u32,
        fault: FaultKind,
        out: &mut Vec<u8>,
    ) -> Result<Step<'a>, FaultKind> {
        if self.is_server() {
            self.allowances.charge(now, Cost::Reset)?;
        }
        self.count_reply(13)?;
        let token = self.reset_stream(out, id, fault.code()).map_or(0, |stream| stream.token);
        Ok(Step::Reset { stream: id, token, cause: ResetCause::Fault(fault.into()) })
    }

    /// Resets a stream that is not in the table.
    pub(super) fn reset_unknown(
        &mut self,
        id: u32,
        code: ErrorCode,
        out: &mut Vec<u8>,
    ) -> Result<(), FaultKind> {
        self.count_reply(13)?;
        self.streams.remember_reset(id);
        super::frame::encode_reset(out, id, code);
        Ok(())
    }

    /// Charges a harmless violation. Many of them stop the connection gracefully, more end it.
    pub(super) fn charge_glitch(
        &mut self,
        now: Moment,
        out: &mut Vec<u8>,
    ) -> Result<(), FaultKind> {
        self.new_glitches = self.new_glitches.saturating_add(1);
        self.charge(now, Cost::Glitch, out)
    }

    /// Charges an action that concerns one stream. Before the connection ends, it is stopped gracefully if the action is harmless,
    /// or if the peer is a server: the exchanges of other clients use the connection, too.
    pub(super) fn charge(
        &mut self,
        now: Moment,
        cost: Cost,
        out: &mut Vec<u8>,
    ) -> Result<(), FaultKind> {
        self.allowances.charge(now, cost)?;
        if self.allowances.is_excessive(cost) {
            self.stop(out);
        }
        Ok(())
    }

    /// The priority of a new stream: that of a PRIORITY_UPDATE that came before, or else of its fields.
    fn priority_of(
        &mut self,
        id: u32,
        stated: Option<super::priority::Priority>,
    ) -> super::priority::Priority {
        let early = self.early_priority.filter(|&(stream, _)| stream <= id);
        if early.is_some() {
            self.early_priority = None;
        }
        let early = early.filter(|&(stream, _)| stream == id).map(|(_, priority)| priority);
        self.uses_priorities |= early.is_some() || stated.is_some();
        early.or(stated).unwrap_or_default()
    }

    /// Whether this side is a server.
    pub(super) fn is_server(&self) -> bool {
        self.config.role == Role::Server
    }
}
