//! Writes a header block as HEADERS and, if it is long, CONTINUATION frames (RFC 9113 sections 4.3, 6.2, 6.10).
//! In: fields, in any case of their names. Out: frames appended to the output.
//! Never: writes a connection-specific field; fields of an HTTP/1 message can be given as they are.
//! Limits: `FRAME_BYTES_MAX` per frame.
//! Invariant: the frames of a block are contiguous.

use super::bounds::FRAME_BYTES_MAX;
use super::frame::{END_HEADERS, END_STREAM, FRAME_HEAD_BYTES, FrameHead, FrameKind};
use super::hpack::{BlockEncoder, Encoder, Indexing};
use crate::message::{Field, FieldName};

/// Names up to this length are converted to lower case without an allocation.
const NAME_BYTES: usize = 64;

/// Takes the fields of a head or of trailers.
#[derive(Debug)]
pub struct FieldWriter<'a> {
    block: BlockEncoder<'a>,
}

impl FieldWriter<'_> {
    /// Writes a field. The name is converted to lower case. Fields that HTTP/2 does not allow are omitted:
    /// Connection, Keep-Alive, Proxy-Connection, Transfer-Encoding, Upgrade, HTTP2-Settings, and TE other
    /// than `trailers`; and Host, which is `:authority`.
    #[inline]
    pub fn field(&mut self, name: &str, value: &[u8]) {
        self.write(FieldName::classify(name.as_bytes()), name, value, Indexing::Auto);
    }

    /// Writes a field that was received.
    #[inline]
    pub fn received(&mut self, field: &Field<'_>) {
        let indexing = if field.is_sensitive { Indexing::Never } else { Indexing::Auto };
        self.write(field.id, field.name, field.value, indexing);
    }

    /// Writes a field whose value is a decimal number.
    pub fn field_u64(&mut self, name: &str, value: u64) {
        self.field(name, itoa::Buffer::new().format(value).as_bytes());
    }

    /// Writes a field that no intermediary may put into a compression table.
    pub fn sensitive(&mut self, name: &str, value: &[u8]) {
        self.write(FieldName::classify(name.as_bytes()), name, value, Indexing::Never);
    }

    fn write(&mut self, id: FieldName, name: &str, value: &[u8], indexing: Indexing) {
        debug_assert!(
            !value.iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0)),
            "the value must be a single line"
        );
        match id {
            FieldName::Connection
            | FieldName::Host
            | FieldName::Http2Settings
            | FieldName::KeepAlive
            | FieldName::ProxyConnection
            | FieldName::TransferEncoding
            | FieldName::Upgrade => return,
            FieldName::Te if !value.eq_ignore_ascii_case(b"trailers") => return,
            _ => {}
        }
        let name = name.as_bytes();
        if !name.iter().any(u8::is_ascii_uppercase) {
            self.block.encode_field(name, value, indexing);
        } else if let Some(lower) = [0; NAME_BYTES].get_mut(..name.len()) {
            lower.copy_from_slice(name);
            lower.make_ascii_lowercase();
            self.block.encode_field(lower, value, indexing);
        } else {
            self.block.encode_field(&name.to_ascii_lowercase(), value, indexing);
        }
    }

    pub(super) fn pseudo(&mut self, name: &[u8], value: &[u8]) {
        self.block.encode_field(name, value, Indexing::Auto);
    }

    pub(super) fn status(&mut self, status: u16) {
        self.block.encode_status(status);
    }
}

/// Appends a header block for `stream` with the fields that `write` writes.
pub(super) fn encode_block(
    out: &mut Vec<u8>,
    encoder: &mut Encoder,
    stream: u32,
    ends: bool,
    write: impl FnOnce(&mut FieldWriter<'_>),
) {
    let start = out.len();
    out.extend_from_slice(&[0; FRAME_HEAD_BYTES]);
    write(&mut FieldWriter { block: encoder.begin(out) });
    let length = out.len() - start - FRAME_HEAD_BYTES;
    let end_stream = if ends { END_STREAM } else { 0 };
    let (first, flags) = if length <= FRAME_BYTES_MAX as usize {
        (length, END_HEADERS | end_stream)
    } else {
        split_block(out, start + FRAME_HEAD_BYTES + FRAME_BYTES_MAX as usize, stream);
        (FRAME_BYTES_MAX as usize, end_stream)
    };
    let head = FrameHead { length: first as u32, kind: FrameKind::Headers, flags, stream };
    if let Some(place) = out.get_mut(start..start + FRAME_HEAD_BYTES) {
        place.copy_from_slice(&head.encode());
    }
}

/// Puts the bytes from `at` into CONTINUATION frames.
#[cold]
fn split_block(out: &mut Vec<u8>, at: usize, stream: u32) {
    let rest = out.split_off(at);
    let mut fragments = rest.chunks(FRAME_BYTES_MAX as usize).peekable();
    while let Some(fragment) = fragments.next() {
        let flags = if fragments.peek().is_none() { END_HEADERS } else { 0 };
        let length = fragment.len() as u32;
        FrameHead { length, kind: FrameKind::Continuation, flags, stream }.append(out);
        out.extend_from_slice(fragment);
    }
}
