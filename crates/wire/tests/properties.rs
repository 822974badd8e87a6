//! Properties over generated messages: splitting the input does not change the result, encoded
//! messages decode to the same message, and no input makes a decoder panic.

use proptest::collection::vec;
use proptest::prelude::*;
use tidegate_wire::fuzz::{fuzz_chunked, fuzz_request, fuzz_response};
use tidegate_wire::http1::{
    BodyDecoder, HeadDecoder, HeadLimits, ResponseLimits, encode_chunk_head, encode_chunk_tail,
    encode_field, encode_field_u64, encode_last_chunk, encode_request_line, encode_status_line,
};
use tidegate_wire::message::{BodyLength, FieldStorage, Method, RequestKind, ResponseStorage};

/// Pieces of heads, valid or misplaced.
const HEAD_PIECES: &[&str] = &[
    "GET / HTTP/1.1\r\n",
    "POST /a?b HTTP/1.1\r\n",
    "GET http://x/ HTTP/1.0\r\n",
    "OPTIONS * HTTP/1.1\r\n",
    "HTTP/1.1 200 OK\r\n",
    "HTTP/1.1 101 S\r\n",
    "HTTP/1.0 204\r\n",
    "HTTP/1.7 304 N\r\n",
    "Host: h\r\n",
    "Host: a b\r\n",
    "Content-Length: 5\r\n",
    "Content-Length: 5, 5\r\n",
    "Content-Length: 05\n",
    "Content_Length: 5\r\n",
    "HTTP/1.1 600 H\n",
    "A: c\n",
    "\n\n",
    "Transfer-Encoding: chunked\r\n",
    "Transfer-Encoding: gzip\r\n",
    "Connection: close\r\n",
    "Connection: upgrade\r\n",
    "Upgrade: x\r\n",
    "A: b\r\n",
    "\r\n",
    "\r\n\r\n",
    "\n",
    "\r",
    " ",
    "\t",
    ":",
    "\0",
    "x",
    "GET",
    "/",
    "HTTP/1.1",
    "HTTP/1.",
    "a : b\r\n",
    " fold\r\n",
    "\u{e9}",
    "0",
    "1",
];

/// Pieces of chunked bodies, valid or misplaced.
const CHUNK_PIECES: &[&str] = &[
    "5\r\nhello\r\n",
    "1\r\na\r\n",
    "0\r\n",
    "0\r\n\r\n",
    "\r\n",
    "A: b\r\n",
    "Host: h\r\n",
    ";a=b",
    ";a=\"b\"",
    "5",
    "1 \r\na\r\n",
    "0\t \r\n\r\n",
    "f",
    "F",
    "0",
    "\r",
    "\n",
    " ",
    ";",
    "=",
    "\"",
    "\\",
    "x",
    "\0",
    "ffffffffffffffff",
    "hello",
    "a :b\r\n",
];

fn joined(pieces: &'static [&'static str]) -> impl Strategy<Value = Vec<u8>> {
    vec(prop::sample::select(pieces), 0..14).prop_map(|pieces| pieces.concat().into_bytes())
}

/// `head` with one byte replaced, inserted or removed.
fn nearly_right(head: &'static [u8]) -> impl Strategy<Value = Vec<u8>> {
    (0..head.len(), any::<u8>(), 0..3_u8).prop_map(move |(at, byte, how)| {
        let mut bytes = head.to_vec();
        match how {
            0 => bytes[at] = byte,
            1 => bytes.insert(at, byte),
            _ => drop(bytes.remove(at)),
        }
        bytes
    })
}

const REQUEST: &[u8] = b"POST /a/b?c=d HTTP/1.1\r\nHost: example.com:8080\r\nAccept: */*\r\n\
    Connection: keep-alive, x\r\nTransfer-Encoding: chunked\r\nX: y\r\n\r\nrest";
const RESPONSE: &[u8] = b"HTTP/1.1 200 Fine enough\r\nServer: x\r\nContent-Length: 10\r\n\
    Connection: close\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\n\r\n0123456789";
const CHUNKED: &[u8] = b"5;a=\"b\\\"c\" ; d=e;f\r\nhello\r\n0010\r\n0123456789abcdef\r\n\
    00;g\r\nX-Sum: 1\r\nHost: h\r\n\r\nrest";

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_bytes_pass_the_fuzz_checks(data in vec(any::<u8>(), 0..300)) {
        fuzz_request(&data);
        fuzz_response(&data);
        fuzz_chunked(&data);
    }

    #[test]
    fn random_pieces_pass_the_fuzz_checks(head in joined(HEAD_PIECES), body in joined(CHUNK_PIECES)) {
        fuzz_request(&head);
        fuzz_response(&head);
        fuzz_chunked(&body);
    }

    #[test]
    fn nearly_valid_messages_pass_the_fuzz_checks(
        request in nearly_right(REQUEST),
        response in nearly_right(RESPONSE),
        body in nearly_right(CHUNKED),
    ) {
        fuzz_request(&request);
        fuzz_response(&response);
        fuzz_chunked(&body);
    }

    #[test]
    fn encoded_requests_decode_to_the_same_request(
        method in "[A-Z]{1,10}",
        path in "/[a-zA-Z0-9._~!$&'()*+,;=:@%/-]{0,40}",
        query in prop::option::of("[a-z0-9=&?/]{0,20}"),
        fields in vec(("[Xx]-[a-zA-Z0-9!#$%&'*+.^_`|~-]{1,20}", "([!-~]([ -~\t]{0,30}[!-~])?)?"), 0..20),
        length in prop::option::of(0..1_u64 << 63),
    ) {
        prop_assume!(method != "CONNECT");
        let target = query.as_ref().map_or(path.clone(), |query| format!("{path}?{query}"));
        let mut bytes = Vec::new();
        encode_request_line(&mut bytes, &method, &target);
        encode_field(&mut bytes, "Host", b"example.com");
        if let Some(length) = length {
            encode_field_u64(&mut bytes, "Content-Length", length);
        }
        for (name, value) in &fields {
            encode_field(&mut bytes, name, value.as_bytes());
        }
        bytes.extend_from_slice(b"\r\n");
        let mut storage = FieldStorage::new();
        let decoded = HeadDecoder::default()
            .decode_request(&bytes, &HeadLimits::default(), &mut storage)
            .unwrap();
        let (head, consumed) = decoded.unwrap();
        prop_assert_eq!(consumed, bytes.len());
        prop_assert_eq!(head.method, Method::from_token(&method));
        prop_assert_eq!((head.path, head.query), (path.as_str(), query.as_deref()));
        prop_assert_eq!(head.host, Some("example.com"));
        prop_assert_eq!(head.length, length.map_or(BodyLength::None, BodyLength::Length));
        let start = head.fields().len() - fields.len();
        for (field, (name, value)) in head.fields().skip(start).zip(&fields) {
            prop_assert_eq!((field.name, field.value), (name.as_str(), value.as_bytes()));
        }
    }

    #[test]
    fn encoded_responses_decode_to_the_same_response(status in 200..600_u16, length in 0..1_u64 << 63) {
        let mut bytes = Vec::new();
        encode_status_line(&mut bytes, status);
        encode_field_u64(&mut bytes, "content-length", length);
        bytes.extend_from_slice(b"\r\n");
        let mut storage = ResponseStorage::new();
        let limits = ResponseLimits::default();
        let decoded = HeadDecoder::default()
            .decode_response(&bytes, &limits, RequestKind::default(), &mut storage)
            .unwrap();
        let (head, consumed) = decoded.unwrap();
        prop_assert_eq!((head.status, consumed), (status, bytes.len()));
        if !matches!(status, 204 | 304) {
            prop_assert_eq!(head.length, BodyLength::Length(length));
        }
    }

    #[test]
    fn encoded_chunks_decode_to_the_same_data(
        chunks in vec(vec(any::<u8>(), 1..40), 0..10),
        trailers in prop::sample::select(vec!["", "A: b\r\n", "A: b\r\nC: d\r\n"]),
        cuts in vec(1..30_usize, 1..10),
    ) {
        let mut bytes = Vec::new();
        for chunk in &chunks {
            encode_chunk_head(&mut bytes, chunk.len());
            bytes.extend_from_slice(chunk);
            encode_chunk_tail(&mut bytes);
        }
        encode_last_chunk(&mut bytes, trailers.as_bytes());
        let body_end = bytes.len();
        bytes.extend_from_slice(b"GET /");
        let mut decoder = BodyDecoder::new(BodyLength::Streamed);
        let mut data = Vec::new();
        let mut at = 0;
        let mut cuts = cuts.iter().cycle();
        while !decoder.is_done() {
            let end = (at + cuts.next().unwrap()).min(bytes.len());
            let step = decoder.decode(&bytes[at..end]).unwrap();
            prop_assert!(step.consumed > 0);
            data.extend_from_slice(step.data);
            at += step.consumed;
        }
        prop_assert_eq!(at, body_end, "the next message must not be consumed");
        prop_assert_eq!(data, chunks.concat());
        prop_assert_eq!(decoder.trailers(), trailers.as_bytes());
    }
}

#[test]
fn work_is_linear_if_a_head_arrives_byte_by_byte() {
    // A head longer than the limit, one more byte at each call. If each call began at the first
    // byte, a head would take 2^27 steps instead of 2^14.
    let head = [b"GET / HTTP/1.1\r\nHost: h\r\nA: ".to_vec(), vec![b'a'; 20_000]].concat();
    let limits = HeadLimits::default();
    for _ in 0..50 {
        let mut decoder = HeadDecoder::default();
        let refused = (1..=head.len()).find_map(|end| {
            let mut storage = FieldStorage::new();
            let decoded = decoder.decode_request(&head[..end], &limits, &mut storage);
            decoded.err().map(|fault| (end, fault.kind.name()))
        });
        assert_eq!(refused, Some((limits.head_bytes_max, "HeadTooLarge")));
    }
}
