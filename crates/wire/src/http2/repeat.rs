//! Sends the head of a request again without encoding it again, for clients that send the same request many times.
//! In: the head that a connection sent last. Out: the same frame for another stream.
//! Never: repeats a block whose bytes would differ if it were encoded again: the encoder's state has changed, another head
//! was sent on this connection, or the head belongs to another connection with another number of streams.
//! Limits: `REPEATED_BYTES_MAX`.
//! Invariant: a block that leaves the encoder's state as it was depends only on its fields and on that state.

use super::connection::Connection;
use super::frame::FRAME_HEAD_BYTES;
use super::hpack::EncoderState;
use super::send::{OpenFault, RequestLine};
use super::writer::FieldWriter;

/// Longer heads are encoded each time.
const REPEATED_BYTES_MAX: usize = 1024;
/// The offset of the stream id in a frame (RFC 9113 section 4.1).
const STREAM_ID_AT: core::ops::Range<usize> = 5..9;

/// The head that one connection sent last. Each connection needs its own.
#[derive(Debug, Default)]
pub struct RepeatedHead {
    /// The HEADERS frame; empty if it cannot be repeated.
    frame: Vec<u8>,
    /// The encoder's state before and after the head was encoded.
    state: EncoderState,
    /// The stream that the head was sent on.
    stream: u32,
    /// Whether the request has no body.
    ends: bool,
    /// Whether the method is HEAD or CONNECT, which decide how long the response is.
    is_head_request: bool,
    is_connect: bool,
}

impl RepeatedHead {
    /// The next request differs: its head must be encoded.
    pub fn forget(&mut self) {
        self.frame.clear();
    }
}

impl Connection {
    /// As `send_request`, and keeps the head in `repeated` for `repeat_request`, if it can be repeated.
    ///
    /// # Errors
    /// As `send_request`.
    pub fn send_repeated_request(
        &mut self,
        out: &mut Vec<u8>,
        (line, ends): (&RequestLine<'_>, bool),
        repeated: &mut RepeatedHead,
        write: impl FnOnce(&mut FieldWriter<'_>),
    ) -> Result<u32, OpenFault> {
        repeated.frame.clear();
        let (before, start) = (self.encoder.state(), out.len());
        let stream = self.send_request(out, 0, line, ends, write)?;
        let state = self.encoder.state();
        // One frame only: the limit is lower than that of a frame.
        if state == before && state.is_settled() && out.len() - start <= REPEATED_BYTES_MAX {
            repeated.frame.extend_from_slice(&out[start..]);
            (repeated.state, repeated.stream, repeated.ends) = (state, stream, ends);
            repeated.is_head_request = line.method == "HEAD";
            repeated.is_connect = line.method == "CONNECT";
        }
        Ok(stream)
    }

    /// Sends the head that `send_repeated_request` sent last, on a new stream. Returns its id, or `None` if the head must
    /// be encoded again or no stream can be opened. Nothing was sent then.
    pub fn repeat_request(
        &mut self,
        out: &mut Vec<u8>,
        repeated: &mut RepeatedHead,
    ) -> Option<u32> {
        let is_same = repeated.state == self.encoder.state()
            && repeated.stream.wrapping_add(2) == self.next_local;
        if repeated.frame.len() < FRAME_HEAD_BYTES || !is_same || self.available_streams() == 0 {
            return None;
        }
        let stream = self.open_stream(0, repeated.ends);
        stream.is_head_request = repeated.is_head_request;
        stream.is_connect = repeated.is_connect;
        let id = stream.id;
        repeated.frame[STREAM_ID_AT].copy_from_slice(&id.to_be_bytes());
        repeated.stream = id;
        out.extend_from_slice(&repeated.frame);
        Some(id)
    }
}

#[cfg(test)]
mod tests {
    use super::super::connection::Config;
    use super::*;
    use tidegate_base::Moment;

    const LINE: RequestLine<'static> = RequestLine {
        method: "GET",
        scheme: "http",
        authority: "a.example",
        path: "/json?page=7",
        protocol: None,
    };

    fn connection() -> Connection {
        let config = Config { encoder_table_bytes: 4096, ..Config::client() };
        Connection::new(config, Moment::ZERO)
    }

    fn fields(writer: &mut FieldWriter<'_>) {
        writer.field("accept", b"*/*");
        writer.field("user-agent", b"a load generator");
        writer.sensitive("authorization", b"Bearer secret");
    }

    /// Encodes the head, and returns the frame without the stream id.
    fn send(connection: &mut Connection, repeated: &mut RepeatedHead) -> (u32, Vec<u8>) {
        let mut out = Vec::new();
        let id = connection.send_repeated_request(&mut out, (&LINE, true), repeated, fields);
        let id = id.expect("a stream is free");
        assert_eq!(out[STREAM_ID_AT], id.to_be_bytes());
        out[STREAM_ID_AT].fill(0);
        (id, out)
    }

    fn repeat(connection: &mut Connection, repeated: &mut RepeatedHead) -> Option<(u32, Vec<u8>)> {
        let mut out = Vec::new();
        let id = connection.repeat_request(&mut out, repeated)?;
        assert_eq!(out[STREAM_ID_AT], id.to_be_bytes());
        out[STREAM_ID_AT].fill(0);
        Some((id, out))
    }

    #[test]
    fn repeated_head_is_that_which_would_be_encoded() {
        let (mut connection, mut oracle) = (connection(), connection());
        let (mut repeated, mut unused) = (RepeatedHead::default(), RepeatedHead::default());
        let mut repeats = 0;
        for _ in 0..20 {
            let sent = repeat(&mut connection, &mut repeated);
            repeats += u32::from(sent.is_some());
            let sent = sent.unwrap_or_else(|| send(&mut connection, &mut repeated));
            assert_eq!(sent, send(&mut oracle, &mut unused));
        }
        assert!(repeats >= 16, "after the fields are in the table: {repeats}");
    }

    #[test]
    fn head_is_encoded_again_after_a_change() {
        let mut connection = connection();
        let mut repeated = RepeatedHead::default();
        for _ in 0..4 {
            send(&mut connection, &mut repeated);
        }
        assert!(repeat(&mut connection, &mut repeated).is_some());
        // Another head was sent.
        let mut out = Vec::new();
        let other = RequestLine { path: "/other", ..LINE };
        assert!(connection.send_request(&mut out, 0, &other, true, |_| {}).is_ok());
        assert!(repeat(&mut connection, &mut repeated).is_none());
        send(&mut connection, &mut repeated);
        assert!(repeat(&mut connection, &mut repeated).is_some());
        // The peer has lowered the size of the table.
        connection.encoder.set_peer_table_limit(100);
        assert!(repeat(&mut connection, &mut repeated).is_none());
        // A caller that has another request.
        for _ in 0..4 {
            send(&mut connection, &mut repeated);
        }
        assert!(repeat(&mut connection, &mut repeated).is_some());
        repeated.forget();
        assert!(repeat(&mut connection, &mut repeated).is_none());
    }
}
