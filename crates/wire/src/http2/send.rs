//! Sends messages: heads, data, trailers, resets, and credit for data that was consumed.
//! In: messages of the caller. Out: frames appended to its output, or how much was accepted.
//! Never: sends DATA beyond a window, or anything on a stream that has ended.
//! Limits: `Config::output_pause_bytes`, `DATA_BYTES_MAX`, `flow::enough`.
//! Invariant: a stream whose data was not accepted completely is in the write queue, and `poll_writable`
//! returns it once it can continue.

use super::bounds::{
    DATA_BYTES_MAX, SEND_BYTES_MIN, STREAM_ID_MAX, WINDOW_INITIAL, WINDOW_POOL_SHARES,
};
use super::connection::{Connection, Phase, Role};
use super::fault::ErrorCode;
use super::flood::Cost;
use super::flow::enough;
use super::frame::{END_STREAM, FrameHead, FrameKind, encode_window_update};
use super::stream::{Expected, Stream};
use super::writer::{FieldWriter, encode_block};
use tidegate_base::Moment;

/// The pseudo-header fields of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RequestLine<'a> {
    /// The method.
    pub method: &'a str,
    /// "http" or "https".
    pub scheme: &'a str,
    /// The host with an optional port; empty to omit `:authority`.
    pub authority: &'a str,
    /// The path with the query, or `*`.
    pub path: &'a str,
    /// The protocol of an extended CONNECT. The server must have enabled it (`Settings::connect_protocol`).
    pub protocol: Option<&'a str>,
}

/// Why a stream cannot be opened. The request can be sent on another connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OpenFault {
    /// As many streams are open as the server or this side allows.
    AtLimit,
    /// The connection is ending, or has used up its stream ids.
    Ending,
}

impl Connection {
    /// Sends the head of a request on a new stream and returns its id. `ends` if there is no body.
    ///
    /// # Errors
    /// If no stream can be opened. Nothing was sent then.
    pub fn send_request(
        &mut self,
        out: &mut Vec<u8>,
        token: u64,
        line: &RequestLine<'_>,
        ends: bool,
        write: impl FnOnce(&mut FieldWriter<'_>),
    ) -> Result<u32, OpenFault> {
        if self.available_streams() == 0 {
            let is_ending = self.is_stopping()
                || self.config.role == Role::Server
                || self.next_local > STREAM_ID_MAX;
            return Err(if is_ending { OpenFault::Ending } else { OpenFault::AtLimit });
        }
        let stream = self.open_stream(token, ends);
        stream.is_head_request = line.method == "HEAD";
        stream.is_connect = line.method == "CONNECT";
        let id = stream.id;
        encode_block(out, &mut self.encoder, id, ends, |fields| {
            fields.pseudo(b":method", line.method.as_bytes());
            if let Some(protocol) = line.protocol {
                fields.pseudo(b":protocol", protocol.as_bytes());
            }
            fields.pseudo(b":scheme", line.scheme.as_bytes());
            if !line.authority.is_empty() {
                fields.pseudo(b":authority", line.authority.as_bytes());
            }
            fields.pseudo(b":path", line.path.as_bytes());
            write(fields);
        });
        Ok(id)
    }

    /// Opens a stream whose head is sent next. One must be available.
    pub(super) fn open_stream(&mut self, token: u64, ends: bool) -> &mut Stream {
        let id = self.next_local;
        self.next_local += 2;
        let stream = self.add_stream(id, token, Expected::Head);
        stream.has_sent_head = true;
        stream.is_local_open = !ends;
        stream
    }

    /// Sends the head of a response; interim responses (1xx) before the final one. `ends` if there is no body.
    /// A response to HEAD and a 204 or 304 always end with their head. False, without effect, if the stream
    /// is gone or its final head was sent.
    pub fn send_response(
        &mut self,
        out: &mut Vec<u8>,
        id: u32,
        status: u16,
        ends: bool,
        write: impl FnOnce(&mut FieldWriter<'_>),
    ) -> bool {
        debug_assert!((100..=999).contains(&status) && status != 101, "not a status of HTTP/2");
        let Some(stream) = self.sender(id) else { return false };
        if stream.has_sent_head || self.config.role == Role::Client {
            return false;
        }
        let is_final = status >= 200;
        let ends = is_final && (ends || stream.is_head_request || matches!(status, 204 | 304));
        if let Some(stream) = self.streams.get_mut(id) {
            stream.has_sent_head = is_final;
        }
        encode_block(out, &mut self.encoder, id, ends, |fields| {
            fields.status(status);
            write(fields);
        });
        if ends {
            self.end_local(out, id);
        }
        true
    }

    /// Sends trailers, which end the stream. All data must have been accepted before. False, without effect,
    /// if the stream cannot send.
    pub fn send_trailers(
        &mut self,
        out: &mut Vec<u8>,
        id: u32,
        write: impl FnOnce(&mut FieldWriter<'_>),
    ) -> bool {
        if !self.sender(id).is_some_and(|stream| stream.has_sent_head) {
            return false;
        }
        encode_block(out, &mut self.encoder, id, true, write);
        self.end_local(out, id);
        true
    }

    /// Sends data. Returns how many of the bytes were accepted: the windows and the pending output bound them.
    /// If `ends`, the stream ends with the last byte, once all are accepted. Offer the rest again when
    /// `poll_writable` returns the stream. `None` if the stream cannot send: it is gone, it has ended, or its
    /// head was not sent.
    pub fn send_data(
        &mut self,
        now: Moment,
        out: &mut Vec<u8>,
        id: u32,
        bytes: &[u8],
        ends: bool,
    ) -> Option<usize> {
        let stream = self.sender(id).filter(|stream| stream.has_sent_head)?;
        let slot = stream.slot;
        if bytes.is_empty() {
            if ends {
                append_data(out, id, b"", true);
                self.end_local(out, id);
            }
            return Some(0);
        }
        let mut rest = bytes;
        while !rest.is_empty() {
            let Some((piece, after)) = rest.split_at_checked(self.next_piece(now, out, id, rest))
            else {
                break;
            };
            if piece.is_empty() {
                break;
            }
            append_data(out, id, piece, ends && after.is_empty());
            self.send.take(piece.len());
            if let Some(stream) = self.streams.get_mut(id) {
                stream.send.take(piece.len());
            }
            self.allowances.note_data_sent();
            rest = after;
        }
        if !rest.is_empty() {
            self.queue.push(slot, &mut self.streams);
        } else if ends {
            self.end_local(out, id);
        }
        Some(bytes.len() - rest.len())
    }

    /// How many of `rest` the next DATA frame carries; 0 if none can be sent now.
    fn next_piece(&mut self, now: Moment, out: &[u8], id: u32, rest: &[u8]) -> usize {
        if out.len() >= self.config.output_pause_bytes as usize {
            return 0;
        }
        let connection_window = self.send.available(WINDOW_INITIAL);
        let initial_window = self.peer.initial_window;
        let Some(stream) = self.streams.get_mut(id) else { return 0 };
        let window = stream.send.available(initial_window).min(connection_window);
        stream.wanted_window = 1;
        let enough = enough(initial_window);
        if window >= rest.len() || window >= enough {
            return window.min(rest.len()).min(DATA_BYTES_MAX);
        }
        if window > 0 && self.allowances.charge(now, Cost::TinySend).is_err() {
            stream.wanted_window = rest.len().min(enough) as u16;
            return 0;
        }
        window
    }

    /// Asks `poll_writable` to return the stream when it can send, for data that the caller has not offered.
    pub fn wait_writable(&mut self, id: u32) {
        if let Some(slot) = self.sender(id).map(|stream| stream.slot) {
            self.queue.push(slot, &mut self.streams);
        }
    }

    /// The next stream that waits and can send, by priority. `None` if there is none, if the connection's
    /// window is closed, or if `out` has `Config::output_pause_bytes`. A stream that is returned does not wait any
    /// more: offer it data, or call `wait_writable`.
    pub fn poll_writable(&mut self, out: &[u8]) -> Option<u32> {
        let is_paused = out.len() >= self.config.output_pause_bytes as usize;
        if self.queue.is_empty() || is_paused || self.phase == Phase::Failed {
            return None;
        }
        let window = self.send.available(WINDOW_INITIAL);
        let initial = self.peer.initial_window;
        self.queue.pop(&mut self.streams, initial, window, self.uses_priorities)
    }

    /// Whether the connection's window is closed, or nearly, so that all data must wait.
    #[must_use]
    pub fn is_window_closed(&self) -> bool {
        self.send.available(WINDOW_INITIAL) < SEND_BYTES_MIN
    }

    /// Resets a stream and returns its token. Data that was not sent is lost. `None` if the stream is gone.
    /// After a complete response to an incomplete request use `NO_ERROR`; the client keeps the response then
    /// (RFC 9113 section 8.1).
    pub fn reset(&mut self, out: &mut Vec<u8>, id: u32, code: ErrorCode) -> Option<u64> {
        if self.phase == Phase::Failed {
            return self.remove_stream(id).map(|stream| stream.token);
        }
        self.reset_stream(out, id, code).map(|stream| stream.token)
    }

    /// Records that the consumer of a stream has taken `bytes` of its data, so that the peer may send more.
    /// Without effect if the stream is gone.
    pub fn release(&mut self, out: &mut Vec<u8>, id: u32, bytes: usize) {
        if let Some(stream) = self.streams.get_mut(id) {
            stream.receive.release(bytes);
            self.announce_stream_window(out, id);
        }
    }

    /// Announces the receive window of a stream once enough of it is used, and lets it grow.
    pub(super) fn announce_stream_window(&mut self, out: &mut Vec<u8>, id: u32) {
        let ceiling = self.config.stream_window_ceiling;
        let Some(stream) = self.streams.get_mut(id) else { return };
        if stream.expected == Expected::Nothing {
            return;
        }
        let returned = stream.receive.shrink(self.config.stream_window);
        stream.grown -= returned;
        self.window_pool += returned;
        // Streams whose consumers stall later must not have taken all growth from the others.
        let share = (self.window_pool + stream.grown) / WINDOW_POOL_SHARES;
        let growth = stream.receive.grow(ceiling, share.saturating_sub(stream.grown));
        stream.grown += growth;
        self.window_pool -= growth;
        let increment = stream.receive.take_increment();
        if increment > 0 {
            encode_window_update(out, id, increment);
        }
    }

    /// The stream, if it can send.
    fn sender(&self, id: u32) -> Option<&Stream> {
        let stream = self.streams.get(id)?;
        (stream.is_local_open && self.phase != Phase::Failed).then_some(stream)
    }

    /// Ends this side's direction of a stream.
    fn end_local(&mut self, out: &mut Vec<u8>, id: u32) {
        let Some(stream) = self.streams.get_mut(id) else { return };
        stream.is_local_open = false;
        if stream.expected == Expected::Ignored {
            self.reset_stream(out, id, ErrorCode::NO_ERROR);
        } else {
            self.close_if_ended(id);
        }
    }
}

fn append_data(out: &mut Vec<u8>, stream: u32, bytes: &[u8], ends: bool) {
    let flags = if ends { END_STREAM } else { 0 };
    FrameHead { length: bytes.len() as u32, kind: FrameKind::Data, flags, stream }.append(out);
    out.extend_from_slice(bytes);
}
