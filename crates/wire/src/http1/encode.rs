//! Encodes start lines, fields and chunk framing in their one canonical form (RFC 9112).
//! In: parts that a decoder or the configuration has checked. Out: bytes appended to a buffer.
//! Never: emits bytes that this crate's decoders would reject; never formats through `core::fmt`.

use crate::message::reason_phrase;

/// Appends `HTTP/1.1 status reason` with its CRLF.
#[inline]
pub fn encode_status_line(out: &mut Vec<u8>, status: u16) {
    if status == 200 {
        out.extend_from_slice(b"HTTP/1.1 200 OK\r\n");
        return;
    }
    debug_assert!((100..=999).contains(&status), "the status must have three digits");
    out.extend_from_slice(b"HTTP/1.1 ");
    out.extend_from_slice(itoa::Buffer::new().format(status).as_bytes());
    out.push(b' ');
    out.extend_from_slice(reason_phrase(status).as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// Appends `method target HTTP/1.1` with its CRLF.
#[inline]
pub fn encode_request_line(out: &mut Vec<u8>, method: &str, target: &str) {
    debug_assert!(!method.is_empty() && !target.is_empty(), "method and target must not be empty");
    out.extend_from_slice(method.as_bytes());
    out.push(b' ');
    out.extend_from_slice(target.as_bytes());
    out.extend_from_slice(b" HTTP/1.1\r\n");
}

/// Appends a field line with its CRLF.
#[inline]
pub fn encode_field(out: &mut Vec<u8>, name: &str, value: &[u8]) {
    debug_assert!(
        !value.iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0)),
        "the value must be a single line"
    );
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

/// Appends a field line whose value is a decimal number.
#[inline]
pub fn encode_field_u64(out: &mut Vec<u8>, name: &str, value: u64) {
    encode_field(out, name, itoa::Buffer::new().format(value).as_bytes());
}

/// Appends the line before the data of a chunk. An empty chunk would end the body: callers skip
/// empty chunks, or call [`encode_last_chunk`].
#[inline]
pub fn encode_chunk_head(out: &mut Vec<u8>, length: usize) {
    debug_assert!(length > 0, "an empty chunk ends the body");
    let mut digits = [0_u8; 18];
    digits[16..].copy_from_slice(b"\r\n");
    let mut at = 16;
    let mut rest = length as u64;
    while at == 16 || rest > 0 {
        at -= 1;
        digits[at] = b"0123456789abcdef"[(rest & 15) as usize];
        rest >>= 4;
    }
    out.extend_from_slice(&digits[at..]);
}

/// Appends the CRLF after the data of a chunk.
#[inline]
pub fn encode_chunk_tail(out: &mut Vec<u8>) {
    out.extend_from_slice(b"\r\n");
}

/// Appends the end of a chunked body: the last chunk, `trailers` and the empty line. `trailers` are
/// field lines, each with its CRLF, as `BodyDecoder::trailers` returns them; usually empty.
#[inline]
pub fn encode_last_chunk(out: &mut Vec<u8>, trailers: &[u8]) {
    debug_assert!(
        trailers.is_empty() || trailers.ends_with(b"\r\n"),
        "trailers must be whole lines"
    );
    out.extend_from_slice(b"0\r\n");
    out.extend_from_slice(trailers);
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_is_encoded_in_canonical_form() {
        let mut out = Vec::new();
        encode_status_line(&mut out, 200);
        encode_status_line(&mut out, 404);
        encode_request_line(&mut out, "GET", "/a?b");
        encode_field(&mut out, "Host", b"a");
        encode_field_u64(&mut out, "Content-Length", u64::MAX);
        encode_chunk_head(&mut out, 1);
        encode_chunk_tail(&mut out);
        encode_chunk_head(&mut out, usize::MAX);
        encode_last_chunk(&mut out, b"");
        encode_last_chunk(&mut out, b"a: b\r\n");
        let wanted = "HTTP/1.1 200 OK\r\nHTTP/1.1 404 Not Found\r\nGET /a?b HTTP/1.1\r\nHost: a\r\n\
            Content-Length: 18446744073709551615\r\n1\r\n\r\nffffffffffffffff\r\n0\r\n\r\n\
            0\r\na: b\r\n\r\n";
        assert_eq!(String::from_utf8(out).unwrap(), wanted);
    }
}
