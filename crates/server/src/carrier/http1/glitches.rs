//! Harmless violations of HTTP/1 by clients (`HeadDecoder::glitches`).
//! In: the counts of the decoder of heads. Out: counters; the decision that the request in progress is the last one.
//! Never: rejects a request, or cuts a response off.
//! Limits: `HTTP1_GLITCHES_MAX` on a connection. A message with a more serious fault is rejected at once, and its connection is
//! closed. Chunk extensions are not a violation (RFC 9112 section 7.1.1); they have separate limits.

use tidegate_base::limits::HTTP1_GLITCHES_MAX;
use tidegate_reactor::SockId;

use crate::carrier::http1::client::Http1Client;
use crate::worker::Worker;

impl Http1Client {
    /// Whether the client has violated the protocol too often for another request.
    pub(super) fn is_glitchy(&self) -> bool {
        self.decoder.glitches() >= HTTP1_GLITCHES_MAX
    }
}

impl Worker {
    /// Counts the violations of a request's head; `before`: those of the connection before it.
    #[inline]
    pub(super) fn note_head_glitches(&mut self, sock: SockId, before: u16) {
        let Some(http1) = self.http1_client(sock) else { return };
        let count = http1.decoder.glitches() - before;
        if count > 0 {
            self.accounts.counters.glitches.add(u64::from(count));
        }
    }
}
