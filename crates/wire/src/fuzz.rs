//! Bodies of the fuzz targets; the test that replays the corpus runs them too.
//! In: any bytes. Out: nothing; panics if a check fails.
//! Checks: no panic, consumed lengths within the input, the same result however the input is split, and
//! accepted input that decodes to the same after encoding.
//! Never: called on the data path.

use crate::http1::{
    BodyDecoder, HeadDecoder, HeadLimits, ResponseLimits, encode_field, encode_field_u64,
    encode_request_line, encode_status_line,
};
use crate::message::{
    BodyLength, Fault, Field, FieldName, FieldStorage, RequestHead, RequestKind, ResponseHead,
    ResponseStorage,
};
use crate::proxy_protocol::{self, BINARY_BYTES_MAX, Extension};
use tidegate_base::limits::TRAILER_BYTES_MAX;

pub use crate::dns::fuzz::fuzz_dns;
pub use crate::http2::fuzz::{fuzz_http2_connection, fuzz_http2_frames};
pub use crate::http2::hpack::fuzz::fuzz_hpack;
pub use crate::tls::fuzz::{fuzz_client_hello, fuzz_records};
pub use crate::websocket::fuzz::fuzz_websocket;

/// Decodes `data` as a request head, whole and in pieces, and encodes and decodes an accepted head again.
pub fn fuzz_request(data: &[u8]) {
    let whole = feed(data, data.len(), decode_request);
    for step in [1, 2, 7] {
        assert_eq!(feed(data, step, decode_request), whole, "pieces of {step} bytes");
    }
    if let Outcome::Complete(consumed, _) = whole {
        assert!(consumed > 0 && consumed <= data.len());
        check_request_again(data);
    }
}

/// Decodes `data` as a response head, whole and in pieces, for each kind of request, strictly and not. A message that a strict
/// decoder accepts is read in the same way by a lenient one.
pub fn fuzz_response(data: &[u8]) {
    for request in REQUEST_KINDS {
        let [strict, lenient] = [true, false].map(|is_strict| {
            let decode = |decoder: &mut HeadDecoder, input: &[u8]| {
                decode_response(decoder, input, request, is_strict)
            };
            let whole = feed(data, data.len(), decode);
            for step in [1, 2, 7] {
                assert_eq!(feed(data, step, decode), whole, "pieces of {step} bytes");
            }
            whole
        });
        assert!(matches!(strict, Outcome::Rejected(_)) || lenient == strict);
        if matches!(lenient, Outcome::Complete(..)) {
            check_response_again(data, request);
        }
    }
}

/// Decodes `data` as a chunked body, whole and in pieces, strictly and not.
pub fn fuzz_chunked(data: &[u8]) {
    let [strict, lenient] = [false, true].map(|accepts_blanks| {
        let whole = feed_body(data, data.len(), accepts_blanks);
        for step in [1, 2, 7] {
            assert_eq!(feed_body(data, step, accepts_blanks), whole, "pieces of {step} bytes");
        }
        whole
    });
    assert!(strict.end.is_err() || lenient == strict);
}

/// Decodes `data` as a PROXY header, whole and in pieces, and encodes and decodes an accepted header again.
pub fn fuzz_proxy_header(data: &[u8]) {
    let whole = proxy_protocol::decode(data);
    let mut end = 0;
    let cut = loop {
        match proxy_protocol::decode(&data[..end]) {
            Ok(None) if end < data.len() => end += 1,
            outcome => break outcome,
        }
    };
    assert_eq!(cut, whole, "byte by byte");
    assert!(end <= BINARY_BYTES_MAX, "the decoder asked for {end} bytes");
    if let Ok(Some((header, consumed))) = whole {
        assert_eq!(consumed, end);
        check_proxy_header_again(&header);
    }
}

const REQUEST_KINDS: [RequestKind; 4] = [
    RequestKind { is_head: false, is_connect: false, upgrade_asked: false },
    RequestKind { is_head: true, is_connect: false, upgrade_asked: false },
    RequestKind { is_head: false, is_connect: true, upgrade_asked: false },
    RequestKind { is_head: false, is_connect: false, upgrade_asked: true },
];

/// The result of decoding a head.
#[derive(PartialEq, Eq, Debug)]
enum Outcome {
    /// More bytes are needed.
    Incomplete,
    /// The length of the head, and the decoded head as text.
    Complete(usize, String),
    /// The head is invalid.
    Rejected(Fault),
}

type Decoded = Result<Option<(usize, String)>, Fault>;

/// Gives `data` to a new decoder, `step` more bytes at each call.
fn feed(data: &[u8], step: usize, decode: impl Fn(&mut HeadDecoder, &[u8]) -> Decoded) -> Outcome {
    let mut decoder = HeadDecoder::default();
    let mut end = 0;
    while end < data.len() {
        end = (end + step).min(data.len());
        match decode(&mut decoder, &data[..end]) {
            Ok(None) => assert!(decoder.has_started()),
            Ok(Some((consumed, text))) => {
                assert!(consumed <= end && !decoder.has_started());
                return Outcome::Complete(consumed, text);
            }
            Err(fault) => return Outcome::Rejected(fault),
        }
    }
    Outcome::Incomplete
}

fn decode_request(decoder: &mut HeadDecoder, input: &[u8]) -> Decoded {
    let mut storage = FieldStorage::new();
    let decoded = decoder.decode_request(input, &HeadLimits::default(), &mut storage)?;
    Ok(decoded.map(|(head, consumed)| (consumed, format!("{head:?}"))))
}

fn decode_response(
    decoder: &mut HeadDecoder,
    input: &[u8],
    request: RequestKind,
    is_strict: bool,
) -> Decoded {
    let mut storage = ResponseStorage::new();
    let limits = ResponseLimits { is_strict, ..ResponseLimits::default() };
    let decoded = decoder.decode_response(input, &limits, request, &mut storage)?;
    Ok(decoded.map(|(head, consumed)| {
        assert!((100..if is_strict { 600 } else { 1000 }).contains(&head.status));
        check_response(&head, request);
        (consumed, format!("{head:?}"))
    }))
}

fn check_response(head: &ResponseHead<'_>, request: RequestKind) {
    assert!(head.status != 101 || request.upgrade_asked);
    assert!(!head.persistent || head.length != BodyLength::UntilClose);
    if request.is_head || matches!(head.status, 100..=199 | 204 | 304) {
        assert_eq!(head.length, BodyLength::None);
    }
    head.fields().for_each(check_field);
}

/// Checks that the canonical form of an accepted response has the same meaning to a strict decoder.
fn check_response_again(data: &[u8], request: RequestKind) {
    let mut storage = ResponseStorage::new();
    let mut decoder = HeadDecoder::default();
    let limits = ResponseLimits::default();
    let Ok(Some((head, _))) = decoder.decode_response(data, &limits, request, &mut storage) else {
        unreachable!("this head was accepted before")
    };
    let mut canonical = Vec::new();
    encode_status_line(&mut canonical, head.status.min(599));
    if let Some(length) = head.content_length {
        encode_field_u64(&mut canonical, "Content-Length", length);
    }
    let is_kept = |field: &Field<'_>| field.id != FieldName::ContentLength;
    for field in head.fields().filter(is_kept) {
        encode_field(&mut canonical, field.name, field.value);
    }
    canonical.extend_from_slice(b"\r\n");
    let mut storage = ResponseStorage::new();
    let strict =
        ResponseLimits { head_bytes_max: 2 * limits.head_bytes_max, is_strict: true, ..limits };
    match decoder.decode_response(&canonical, &strict, request, &mut storage) {
        Ok(Some((again, consumed))) => {
            assert_eq!(consumed, canonical.len());
            assert_eq!(
                (again.status, again.length, again.content_length, again.upgrade),
                (head.status.min(599), head.length, head.content_length, head.upgrade)
            );
            assert!(again.fields().filter(is_kept).eq(head.fields().filter(is_kept)));
        }
        other => unreachable!("the canonical form is not accepted: {other:?}"),
    }
}

/// Checks that an accepted request is safe to forward and that its canonical form has the same meaning.
fn check_request_again(data: &[u8]) {
    let mut storage = FieldStorage::new();
    let mut decoder = HeadDecoder::default();
    let limits = HeadLimits::default();
    let Ok(Some((head, _))) = decoder.decode_request(data, &limits, &mut storage) else {
        unreachable!("this head was accepted before")
    };
    assert!(head.length != BodyLength::UntilClose);
    assert!(head.target.bytes().all(|byte| byte.is_ascii_graphic()));
    assert!(head.host.is_none_or(|host| !host.is_empty()));
    let mut canonical = Vec::new();
    encode_request_line(&mut canonical, head.method.as_str(), head.target);
    for field in head.fields() {
        check_field(field);
        encode_field(&mut canonical, field.name, field.value);
    }
    canonical.extend_from_slice(b"\r\n");
    let mut storage = FieldStorage::new();
    let roomy = HeadLimits { head_bytes_max: limits.head_bytes_max * 2, ..limits };
    // The canonical line is always HTTP/1.1, which requires Host and allows Transfer-Encoding.
    match decoder.decode_request(&canonical, &roomy, &mut storage) {
        Ok(Some((again, consumed))) => {
            assert_eq!(consumed, canonical.len());
            check_same(&again, &head);
        }
        Err(_) => assert!(head.host.is_none() || head.find_named("host").is_none()),
        Ok(None) => unreachable!("a canonical head is complete"),
    }
}

fn check_same(again: &RequestHead<'_>, head: &RequestHead<'_>) {
    assert_eq!(
        (again.method, again.path, again.query, again.host, again.length),
        (head.method, head.path, head.query, head.host, head.length)
    );
    assert!(again.fields().eq(head.fields()));
}

fn check_field(field: Field<'_>) {
    assert!(!field.name.is_empty() && field.name.bytes().all(|byte| byte.is_ascii_graphic()));
    assert!(!field.name.contains(':'));
    assert!(!field.value.iter().any(|&byte| byte < 0x20 && byte != b'\t' || byte == 0x7f));
    assert_eq!(field.value.trim_ascii(), field.value);
}

/// Checks that an accepted header has the same meaning when encoded again, with and without a checksum.
fn check_proxy_header_again(header: &proxy_protocol::Header<'_>) {
    let own = |extension: &Extension<'_>| !matches!(extension, Extension::Checksum(_));
    let extensions: Vec<_> = header.extensions.filter(own).collect();
    for checksummed in [false, true] {
        let mut bytes = Vec::new();
        proxy_protocol::encode_binary(
            &mut bytes,
            &header.endpoints,
            extensions.clone(),
            checksummed,
        );
        assert!(bytes.len() <= BINARY_BYTES_MAX);
        let Ok(Some((again, consumed))) = proxy_protocol::decode(&bytes) else {
            unreachable!("an encoded header is complete: {bytes:?}")
        };
        assert_eq!((consumed, again.endpoints), (bytes.len(), header.endpoints));
        let kept: Vec<_> = again.extensions.filter(own).collect();
        // The checksum takes space that the last extensions may have used.
        assert!(kept == extensions || checksummed && kept.len() < extensions.len());
    }
    let mut line = Vec::new();
    proxy_protocol::encode_text(&mut line, &header.endpoints);
    assert!(matches!(proxy_protocol::decode(&line), Ok(Some((_, all))) if all == line.len()));
}

/// The result of decoding a body.
#[derive(PartialEq, Eq, Debug)]
struct BodyOutcome {
    data: Vec<u8>,
    trailers: Vec<u8>,
    /// The length of the body in bytes, framing included; `None` if it is incomplete.
    end: Result<Option<usize>, Fault>,
}

/// Gives `data` to a new decoder, at most `step` bytes at each call.
fn feed_body(data: &[u8], step: usize, accepts_blanks: bool) -> BodyOutcome {
    let mut decoder = BodyDecoder::new(BodyLength::Streamed).accepting_blanks(accepts_blanks);
    let mut outcome = BodyOutcome { data: Vec::new(), trailers: Vec::new(), end: Ok(None) };
    let mut at = 0;
    while at < data.len() {
        let piece = &data[at..(at + step).min(data.len())];
        match decoder.decode(piece) {
            Ok(taken) => {
                assert!(taken.consumed > 0 && taken.consumed <= piece.len());
                assert!(taken.data.len() <= taken.consumed);
                assert_eq!(taken.done, decoder.is_done());
                outcome.data.extend_from_slice(taken.data);
                at += taken.consumed;
            }
            Err(fault) => {
                outcome.end = Err(fault);
                return outcome;
            }
        }
        if decoder.is_done() {
            outcome.trailers = decoder.trailers().to_vec();
            outcome.end = Ok(Some(at));
            break;
        }
    }
    assert!(outcome.trailers.len() <= 2 * TRAILER_BYTES_MAX);
    assert_eq!(decoder.handle_end().is_ok(), outcome.end != Ok(None));
    outcome
}
