//! A request in the form in which it is sent to servers, kept as long as it may have to be sent again.
//! In: the canonical head (`gate::forward`), pieces of the body. Out: head, body and trailers for a carrier.
//! Never: contains the framing of a protocol: the head has its lines, the body is what the client sent.
//! Limits: `REPLAY_BYTES_MAX`. Bytes beyond it are forwarded but not kept.

use tidegate_base::limits::{HEAD_BYTES_MAX, READ_BUFFER_BYTES, REQUEST_BUFFER_BYTES_MAX};
use tidegate_gate::ask::COPIED_BYTES_MAX;
use tidegate_wire::message::BodyLength;

use crate::buffers::BufferPool;

/// Maximum number of bytes kept of a request (head, then body) so that it can be sent again. A head with the fields
/// that the proxy adds always fits, because the length of its host is bounded (`HOST_BYTES_MAX`).
pub(crate) const REPLAY_BYTES_MAX: usize = 4 * HEAD_BYTES_MAX;
/// A request without a server takes no more of its body once this many bytes are stored.
const WAITING_BYTES_MAX: usize = REPLAY_BYTES_MAX / 2;
/// Maximum number of body bytes that a request without a server takes at once. They must fit into the store, because
/// there is no connection to send them to.
pub(crate) const WAITING_PIECE_BYTES_MAX: usize = REPLAY_BYTES_MAX / 8;
const _: () = assert!(REPLAY_BYTES_MAX <= READ_BUFFER_BYTES);
const _: () = assert!(REQUEST_BUFFER_BYTES_MAX <= WAITING_BYTES_MAX);
const _: () =
    assert!(WAITING_BYTES_MAX + WAITING_PIECE_BYTES_MAX + COPIED_BYTES_MAX <= REPLAY_BYTES_MAX);

/// A request that is being sent, and what is kept of it.
pub(crate) struct StoredRequest {
    /// The canonical head, then the body as long as `is_whole`. At most `REPLAY_BYTES_MAX` bytes.
    bytes: Vec<u8>,
    /// The length of the head in `bytes`.
    head_bytes: usize,
    /// The trailers, as lines. Empty until the end of the body, and if there are none.
    trailers: Vec<u8>,
    /// How the end of the body is found.
    length: BodyLength,
    /// `bytes` contains the whole body as far as it has arrived, so that the request can be sent again. Once
    /// false, it stays false.
    is_whole: bool,
    /// The request has arrived completely.
    is_done: bool,
}

impl StoredRequest {
    /// A request whose head is `head`. The body follows.
    pub(crate) fn new(head: Vec<u8>, length: BodyLength) -> Self {
        let is_done = matches!(length, BodyLength::None | BodyLength::Length(0));
        let head_bytes = head.len();
        Self { bytes: head, head_bytes, trailers: Vec::new(), length, is_whole: true, is_done }
    }

    /// The canonical head.
    pub(crate) fn head(&self) -> &[u8] {
        &self.bytes[..self.head_bytes]
    }

    /// The stored part of the body. It is the whole body so far if `is_replayable`.
    pub(crate) fn body(&self) -> &[u8] {
        &self.bytes[self.head_bytes..]
    }

    /// The trailers, as lines.
    pub(crate) fn trailers(&self) -> &[u8] {
        &self.trailers
    }

    /// How the end of the body is found.
    pub(crate) fn length(&self) -> BodyLength {
        self.length
    }

    /// Whether the request has a body, or may have one.
    pub(crate) fn has_body(&self) -> bool {
        !matches!(self.length, BodyLength::None | BodyLength::Length(0))
    }

    /// Whether the request has arrived completely.
    pub(crate) fn is_done(&self) -> bool {
        self.is_done
    }

    /// Whether the request can be sent again.
    pub(crate) fn is_replayable(&self) -> bool {
        self.is_whole
    }

    /// The length of the body if all of it has arrived and is stored.
    pub(crate) fn whole_body_bytes(&self) -> Option<u64> {
        (self.is_done && self.is_whole).then(|| self.body().len() as u64)
    }

    /// Whether the request can be sent again after it has arrived completely, judging by the length in its head.
    pub(crate) fn will_be_replayable(&self) -> bool {
        let room = REPLAY_BYTES_MAX.saturating_sub(self.head_bytes) as u64;
        self.is_whole
            && (self.is_done || matches!(self.length, BodyLength::Length(length) if length <= room))
    }

    /// Whether a request without a server may take more of its body.
    pub(crate) fn has_waiting_room(&self) -> bool {
        self.is_whole && self.bytes.len() < WAITING_BYTES_MAX
    }

    /// Keeps a piece of the body if there is room for it.
    pub(crate) fn push(&mut self, data: &[u8]) {
        if self.is_whole && self.bytes.len() + data.len() <= REPLAY_BYTES_MAX {
            self.bytes.extend_from_slice(data);
        } else {
            self.is_whole &= data.is_empty();
        }
    }

    /// Adds lines to the head. Up to `COPIED_BYTES_MAX` bytes fit in addition to all that a request without a server stores.
    pub(crate) fn add_lines(&mut self, lines: &[u8]) {
        // The head ends with an empty line.
        let at = self.head_bytes.saturating_sub(2);
        self.bytes.splice(at..at, lines.iter().copied());
        self.head_bytes += lines.len();
    }

    /// Notes the end of the body.
    pub(crate) fn end(&mut self, trailers: &[u8]) {
        self.is_done = true;
        self.trailers.extend_from_slice(trailers);
    }

    /// Returns the buffer to the pool.
    pub(crate) fn release(self, pool: &mut BufferPool) {
        pool.put(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_beyond_the_limit_is_not_replayable() {
        let mut request = StoredRequest::new(b"head".to_vec(), BodyLength::Streamed);
        request.push(&[b'x'; REPLAY_BYTES_MAX - 4]);
        assert!(request.is_replayable() && !request.has_waiting_room());
        request.push(b"");
        assert!(request.is_replayable());
        request.push(b"y");
        assert!(!request.is_replayable());
        request.push(b"");
        assert!(!request.is_replayable(), "once false, it stays false");
        assert_eq!((request.head(), request.body().len()), (&b"head"[..], REPLAY_BYTES_MAX - 4));
    }

    #[test]
    fn length_of_a_body_is_known_once_all_of_it_is_stored() {
        let mut request = StoredRequest::new(b"head".to_vec(), BodyLength::Streamed);
        request.push(b"hello");
        assert_eq!(request.whole_body_bytes(), None, "more may follow");
        request.end(b"");
        assert_eq!(request.whole_body_bytes(), Some(5));
        let mut request = StoredRequest::new(b"head".to_vec(), BodyLength::Streamed);
        request.push(&[b'x'; REPLAY_BYTES_MAX]);
        request.end(b"");
        assert_eq!(request.whole_body_bytes(), None, "not all of it is stored");
    }

    #[test]
    fn lines_are_added_before_the_end_of_the_head() {
        let mut request =
            StoredRequest::new(b"GET / HTTP/1.1\r\nA: b\r\n\r\n".to_vec(), BodyLength::Length(4));
        request.push(b"body");
        request.add_lines(b"x-user: bob\r\n");
        assert_eq!(request.head(), b"GET / HTTP/1.1\r\nA: b\r\nx-user: bob\r\n\r\n");
        assert_eq!(request.body(), b"body");
        request.add_lines(b"");
        assert_eq!(request.body(), b"body");
    }

    #[test]
    fn request_without_a_body_is_done() {
        for (length, is_done) in [
            (BodyLength::None, true),
            (BodyLength::Length(0), true),
            (BodyLength::Length(1), false),
            (BodyLength::Streamed, false),
        ] {
            assert_eq!(StoredRequest::new(Vec::new(), length).is_done(), is_done, "{length:?}");
        }
    }

    #[test]
    fn head_beyond_the_limit_leaves_no_room_for_a_body() {
        let request = StoredRequest::new(vec![b'x'; REPLAY_BYTES_MAX + 1], BodyLength::Length(1));
        assert!(!request.has_waiting_room() && !request.will_be_replayable());
    }

    #[test]
    fn length_determines_whether_a_request_is_replayable() {
        let most = REPLAY_BYTES_MAX as u64 - 4;
        for (length, expected) in [
            (BodyLength::None, true),
            (BodyLength::Length(most), true),
            (BodyLength::Length(most + 1), false),
            (BodyLength::Streamed, false),
        ] {
            let mut request = StoredRequest::new(b"head".to_vec(), length);
            assert_eq!(request.will_be_replayable(), expected, "{length:?}");
            request.end(b"");
            assert!(request.will_be_replayable(), "{length:?}");
        }
    }
}
