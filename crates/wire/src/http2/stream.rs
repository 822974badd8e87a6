//! One stream: its state (RFC 9113 section 5.1) and its counts.
//! In: heads, data and ends in both directions. Out: the state, faults of the message framing.
//! Never: exists while idle or closed; `table.rs` holds only streams that are open in at least one direction.
//! Invariant: a body whose length is stated ends with exactly that length, or the stream is reset.

use super::bounds::INTERIMS_MAX;
use super::fault::FaultKind;
use super::flow::{ReceiveWindow, SendWindow};
use super::priority::Priority;
use crate::message::{BodyLength, ResponseHead};

/// The state of a stream (RFC 9113 section 5.1). There are no reserved streams, because push is disabled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StreamState {
    /// Never used, or closed and forgotten.
    Absent,
    /// Both sides may send.
    Open,
    /// This side has ended its direction.
    HalfClosedLocal,
    /// The peer has ended its direction.
    HalfClosedRemote,
}

/// The next part that the peer sends on a stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Expected {
    /// The head of a response, interim or final.
    Head,
    /// Data or trailers.
    Body,
    /// The rest of the request is ignored, because its head was too large.
    Ignored,
    /// Nothing: the peer has ended its direction.
    Nothing,
}

/// Stands for the length of a body whose message does not state it.
const UNSTATED: u64 = u64::MAX;

/// One stream.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stream {
    /// The stream's place in the table.
    pub(super) slot: u32,
    /// The id; odd, as clients open all streams.
    pub(super) id: u32,
    /// The caller's name of the exchange on this stream.
    pub(super) token: u64,
    /// The next part that the peer sends.
    pub(super) expected: Expected,
    /// This side has not ended its direction.
    pub(super) is_local_open: bool,
    /// This side has sent its request or its final response head.
    pub(super) has_sent_head: bool,
    /// The request was HEAD, so the response has no body.
    pub(super) is_head_request: bool,
    /// The request was CONNECT.
    pub(super) is_connect: bool,
    /// The peer's message cannot have a body, whatever Content-Length says.
    pub(super) has_no_body: bool,
    /// The stream is in the write queue.
    pub(super) is_queued: bool,
    /// Interim responses received.
    pub(super) interims: u8,
    /// The window that is worth another attempt to send; 1, or more after the allowance for tiny frames was
    /// used up.
    pub(super) wanted_window: u16,
    /// The priority of the response.
    pub(super) priority: Priority,
    /// The window for DATA of this side.
    pub(super) send: SendWindow,
    /// The window for DATA of the peer.
    pub(super) receive: ReceiveWindow,
    /// Bytes by which `receive` grew; returned to the connection's pool when the stream ends.
    pub(super) grown: u32,
    /// Bytes of the peer's body that are missing; `UNSTATED` if it has no length.
    missing: u64,
}

impl Stream {
    pub(super) const fn new(id: u32, token: u64, expected: Expected, receive_window: u32) -> Self {
        Self {
            slot: 0,
            id,
            token,
            expected,
            is_local_open: true,
            has_sent_head: false,
            is_head_request: false,
            is_connect: false,
            has_no_body: false,
            is_queued: false,
            interims: 0,
            wanted_window: 1,
            priority: Priority { urgency: 3, incremental: false },
            send: SendWindow::new(),
            receive: ReceiveWindow::new(receive_window),
            grown: 0,
            missing: UNSTATED,
        }
    }

    /// The state in RFC 9113's terms.
    pub(super) const fn state(&self) -> StreamState {
        match (self.is_local_open, matches!(self.expected, Expected::Nothing)) {
            (true, false) => StreamState::Open,
            (false, false) => StreamState::HalfClosedLocal,
            (true, true) => StreamState::HalfClosedRemote,
            (false, true) => StreamState::Absent,
        }
    }

    /// Whether both directions have ended.
    pub(super) const fn is_closed(&self) -> bool {
        matches!(self.state(), StreamState::Absent)
    }

    /// Sets the length of the peer's body.
    pub(super) fn set_length(&mut self, length: Option<u64>) {
        self.missing = length.unwrap_or(UNSTATED);
    }

    /// Takes the head of a response.
    pub(super) fn take_response(
        &mut self,
        head: &ResponseHead<'_>,
        ends: bool,
    ) -> Result<(), FaultKind> {
        if head.is_interim() {
            self.interims += 1;
            let is_flood = self.interims > INTERIMS_MAX;
            return if is_flood { Err(FaultKind::TooManyInterims) } else { Ok(()) };
        }
        self.expected = if ends { Expected::Nothing } else { Expected::Body };
        self.has_no_body = head.length == BodyLength::None && !head.upgrade;
        if let BodyLength::Length(length) = head.length {
            self.set_length(Some(length));
        }
        Ok(())
    }

    /// Counts data of the peer's body. `is_last` if no data follows.
    pub(super) const fn take_data(&mut self, bytes: u32, is_last: bool) -> Result<(), FaultKind> {
        if self.has_no_body {
            return if bytes == 0 { Ok(()) } else { Err(FaultKind::DataWithoutBody) };
        }
        if self.missing == UNSTATED {
            return Ok(());
        }
        match self.missing.checked_sub(bytes as u64) {
            Some(missing) if missing == 0 || !is_last => {
                self.missing = missing;
                Ok(())
            }
            _ => Err(FaultKind::ContentLengthMismatch),
        }
    }

    /// Ends the peer's direction. The body must be complete (RFC 9113 section 8.1.1).
    pub(super) const fn end_remote(&mut self) -> Result<(), FaultKind> {
        if !self.has_no_body && self.missing != UNSTATED && self.missing != 0 {
            return Err(FaultKind::ContentLengthMismatch);
        }
        self.expected = Expected::Nothing;
        Ok(())
    }
}

const _: () = assert!(size_of::<Stream>() <= 88, "a stream must stay small");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directions_end_independently() {
        let mut stream = Stream::new(1, 0, Expected::Body, 10);
        assert_eq!(stream.state(), StreamState::Open);
        stream.end_remote().unwrap();
        assert_eq!(stream.state(), StreamState::HalfClosedRemote);
        stream.is_local_open = false;
        assert!(stream.is_closed());
        let mut stream = Stream::new(1, 0, Expected::Body, 10);
        stream.is_local_open = false;
        assert_eq!(stream.state(), StreamState::HalfClosedLocal);
    }

    #[test]
    fn body_must_have_the_stated_length() {
        for (length, pieces, wanted) in [
            (None, &[5, 7][..], true),
            (Some(0), &[], true),
            (Some(12), &[5, 0, 7], true),
            (Some(12), &[5, 6], false),
            (Some(12), &[5, 8], false),
            (Some(0), &[1], false),
        ] {
            let mut stream = Stream::new(1, 0, Expected::Body, 10);
            stream.set_length(length);
            let taken = pieces.iter().try_for_each(|&bytes| stream.take_data(bytes, false));
            let outcome = taken.and_then(|()| stream.end_remote());
            assert_eq!(outcome.is_ok(), wanted, "{length:?} {pieces:?}");
        }
        let mut stream = Stream::new(1, 0, Expected::Body, 10);
        stream.set_length(Some(12));
        stream.has_no_body = true;
        assert_eq!(stream.take_data(1, true), Err(FaultKind::DataWithoutBody));
        assert_eq!(stream.end_remote(), Ok(()), "a response to HEAD may state a length");
    }
}
