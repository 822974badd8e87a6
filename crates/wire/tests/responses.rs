//! Response heads with their verdicts (RFC 9112 sections 4, 6.3 and 9.3).
//!
//! A verdict is the name of the fault, "more" for an incomplete head, or for an accepted head its
//! status, length, `keep` or `close`, and optionally `upgrade`.

use tidegate_wire::http1::{HeadDecoder, ResponseLimits};
use tidegate_wire::message::{BodyLength, RequestKind, ResponseHead, ResponseStorage};

const GET: RequestKind = RequestKind { is_head: false, is_connect: false, upgrade_asked: false };
const HEAD: RequestKind = RequestKind { is_head: true, ..GET };
const CONNECT: RequestKind = RequestKind { is_connect: true, ..GET };
const UPGRADE: RequestKind = RequestKind { upgrade_asked: true, ..GET };

fn summary(head: &ResponseHead<'_>) -> String {
    let length = match head.length {
        BodyLength::None => "none".to_owned(),
        BodyLength::Length(bytes) => bytes.to_string(),
        BodyLength::Streamed => "chunked".to_owned(),
        BodyLength::UntilClose => "until-close".to_owned(),
    };
    let keep = if head.persistent { "keep" } else { "close" };
    let upgrade = if head.upgrade { " upgrade" } else { "" };
    format!("{} {length} {keep}{upgrade}", head.status)
}

const STRICT: ResponseLimits =
    ResponseLimits { head_bytes_max: 16 * 1024, header_fields_max: 256, is_strict: true };
const LENIENT: ResponseLimits = ResponseLimits { is_strict: false, ..STRICT };

fn verdict(
    input: &[u8],
    limits: &ResponseLimits,
    request: RequestKind,
    cuts: impl Iterator<Item = usize>,
) -> String {
    let mut decoder = HeadDecoder::default();
    for end in cuts.chain([input.len()]) {
        let mut storage = ResponseStorage::new();
        match decoder.decode_response(&input[..end], limits, request, &mut storage) {
            Ok(None) => {}
            Ok(Some((head, _))) => return summary(&head),
            Err(fault) => return fault.kind.name().to_owned(),
        }
    }
    "more".to_owned()
}

/// Checks that the verdict of a strict decoder on `input` is `wanted`, however the input is split.
fn check(input: &[u8], request: RequestKind, wanted: &str) {
    check_with(&STRICT, input, request, wanted);
}

fn check_with(limits: &ResponseLimits, input: &[u8], request: RequestKind, wanted: &str) {
    let shown = input.escape_ascii().to_string();
    let verdict_of = |cuts: &[usize]| verdict(input, limits, request, cuts.iter().copied());
    assert_eq!(verdict_of(&[]), wanted, "whole: {shown}");
    let all: Vec<usize> = (1..input.len()).collect();
    assert_eq!(verdict_of(&all), wanted, "byte by byte: {shown}");
    for cut in 1..input.len() {
        assert_eq!(verdict_of(&[cut]), wanted, "split at {cut}: {shown}");
    }
}

/// What a strict decoder rejects although it has only one reading, and what no decoder accepts.
#[test]
fn sloppy_responses_with_one_reading_are_accepted_unless_the_decoder_is_strict() {
    let end = "Content-Length: 5\r\n\r\n";
    for (head, strict, lenient) in [
        (format!("\r\nHTTP/1.1 200 OK\r\n{end}"), "EmptyLine", "200 5 keep"),
        (format!("\n\r\n\nHTTP/1.1 200 OK\r\n{end}"), "BareLf", "200 5 keep"),
        (format!("{}HTTP/1.1 200 OK\r\n{end}", "\r\n".repeat(8)), "EmptyLine", "200 5 keep"),
        (format!("{}HTTP/1.1 200 OK\r\n{end}", "\r\n".repeat(9)), "EmptyLine", "EmptyLine"),
        (format!("{}HTTP/1.1 200 OK\r\n{end}", "\n".repeat(9)), "BareLf", "EmptyLine"),
        (format!("\r\nHTTP/1.7 200 OK\r\n{end}"), "EmptyLine", "200 5 keep"),
        (format!("\rHTTP/1.1 200 OK\r\n{end}"), "BareCr", "BareCr"),
        (format!(" \r\nHTTP/1.1 200 OK\r\n{end}"), "StatusLineMalformed", "StatusLineMalformed"),
        (format!("HTTP/1.1 200 OK\n{end}"), "BareLf", "200 5 keep"),
        ("HTTP/1.1 200\nContent-Length: 5\n\n".to_owned(), "BareLf", "200 5 keep"),
        ("HTTP/1.5 200 OK\nContent-Length: 5\n\n".to_owned(), "BareLf", "200 5 keep"),
        ("HTTP/1.1 200 OK\r\nContent-Length: 5\n\r\n".to_owned(), "BareLf", "200 5 keep"),
        ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\n".to_owned(), "BareLf", "200 5 keep"),
        ("HTTP/1.1 200 OK\r\nA: b\nContent-Length: 5\r\n".to_owned(), "BareLf", "more"),
        ("HTTP/1.1 200 OK\nA: b\r\r\n\n".to_owned(), "BareLf", "BareCr"),
        ("HTTP/1.1 200 OK\nA: b\rC: d\n\n".to_owned(), "BareLf", "BareCr"),
        ("HTTP/1.1 200 OK\nA: b\n c\n\n".to_owned(), "BareLf", "ObsFold"),
        ("HTTP/1.1 200 OK\nA : b\n\n".to_owned(), "BareLf", "SpaceBeforeColon"),
        ("HTTP/1.1 200 OK\nA: \0\n\n".to_owned(), "BareLf", "ControlByte"),
        (format!("HTTP/1.1 600 Odd\r\n{end}"), "StatusInvalid", "600 5 keep"),
        (format!("HTTP/1.1 999 Odd\r\n{end}"), "StatusInvalid", "999 5 keep"),
        (format!("HTTP/1.9 999\r\n{end}"), "StatusInvalid", "999 5 keep"),
        (format!("HTTP/1.1 099 Low\r\n{end}"), "StatusInvalid", "StatusInvalid"),
        (format!("HTTP/1.1 000 Low\r\n{end}"), "StatusInvalid", "StatusInvalid"),
        (format!("HTTP/1.1 1000 Odd\r\n{end}"), "StatusLineMalformed", "StatusLineMalformed"),
        (
            format!("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n{end}"),
            "ContentLengthRepeated",
            "200 5 keep",
        ),
        (
            format!("HTTP/1.1 200 OK\r\nContent-Length: 5,5 ,5\r\n{end}"),
            "ContentLengthRepeated",
            "200 5 keep",
        ),
        (
            format!("HTTP/1.1 200 OK\r\nContent-Length: 05\r\n{end}"),
            "ContentLengthRepeated",
            "ContentLengthRepeated",
        ),
        (
            format!("HTTP/1.1 200 OK\r\nContent-Length: 6\r\n{end}"),
            "ContentLengthsDiffer",
            "ContentLengthsDiffer",
        ),
        (
            format!("HTTP/1.1 200 OK\r\nContent-Length: 5,\r\n{end}"),
            "ContentLengthInvalid",
            "ContentLengthInvalid",
        ),
        (
            format!("HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n{end}"),
            "BareLf",
            "ContentLengthWithTransferEncoding",
        ),
        (
            "HTTP/1.0 200 OK\nTransfer-Encoding: chunked\n\n".to_owned(),
            "BareLf",
            "TransferEncodingOnHttp10",
        ),
    ] {
        check_with(&STRICT, head.as_bytes(), GET, strict);
        check_with(&LENIENT, head.as_bytes(), GET, lenient);
    }
}

#[test]
fn responses_may_have_more_fields_than_requests() {
    let head = |count: usize| format!("HTTP/1.1 200 OK\r\n{}\r\n", "A: b\r\n".repeat(count));
    for limits in [STRICT, LENIENT] {
        for (count, wanted) in [(150, "200 until-close close"), (256, "200 until-close close")] {
            assert_eq!(verdict(head(count).as_bytes(), &limits, GET, [50].into_iter()), wanted);
            assert_eq!(verdict(head(count).as_bytes(), &limits, GET, [].into_iter()), wanted);
        }
        let few = ResponseLimits { header_fields_max: 3, ..limits };
        assert_eq!(verdict(head(257).as_bytes(), &limits, GET, [].into_iter()), "TooManyFields");
        check_with(&few, head(4).as_bytes(), GET, "TooManyFields");
        check_with(&few, head(3).as_bytes(), GET, "200 until-close close");
    }
}

#[test]
fn stated_length_is_known_without_a_body() {
    for (request, lines, wanted) in [
        (HEAD, "Content-Length: 7\r\nContent-Length: 7\r\n", Some(7)),
        (HEAD, "Content-Length: 07\r\n", Some(7)),
        (GET, "Content-Length: 7\r\n", Some(7)),
        (HEAD, "Transfer-Encoding: chunked\r\n", None),
        (HEAD, "", None),
    ] {
        let bytes = format!("HTTP/1.1 200 OK\r\n{lines}\r\n");
        let mut storage = ResponseStorage::new();
        let mut decoder = HeadDecoder::default();
        let decoded = decoder.decode_response(bytes.as_bytes(), &LENIENT, request, &mut storage);
        assert_eq!(decoded.unwrap().unwrap().0.content_length, wanted, "{lines:?}");
    }
}

#[test]
fn status_lines_are_decoded_or_rejected() {
    for (line, wanted) in [
        ("HTTP/1.1 200 OK", "200 0 keep"),
        ("HTTP/1.1 200 ", "200 0 keep"),
        ("HTTP/1.1 200", "200 0 keep"),
        ("HTTP/1.1 200 a  b\tc", "200 0 keep"),
        ("HTTP/1.1 200 caf\u{e9}", "200 0 keep"),
        ("HTTP/1.1 599 Odd", "599 0 keep"),
        ("HTTP/1.1 299 Odd", "299 0 keep"),
        ("HTTP/1.0 200 OK", "200 0 close"),
        ("HTTP/1.3 200 OK", "200 0 keep"),
        ("HTTP/1.1 099 Low", "StatusInvalid"),
        ("HTTP/1.1 000 Low", "StatusInvalid"),
        ("HTTP/1.1 600 High", "StatusInvalid"),
        ("HTTP/1.1 999 High", "StatusInvalid"),
        ("HTTP/1.1 20x OK", "StatusInvalid"),
        ("HTTP/1.1 -20 OK", "StatusInvalid"),
        ("HTTP/1.1 20 OK", "StatusLineMalformed"),
        ("HTTP/1.1 2000 OK", "StatusLineMalformed"),
        ("HTTP/1.1  200 OK", "StatusLineMalformed"),
        ("HTTP/1.1\t200 OK", "StatusLineMalformed"),
        ("HTTP/1.1 200\tOK", "StatusLineMalformed"),
        ("HTTP/1.1 200OK", "StatusLineMalformed"),
        ("HTTP/1.1", "StatusLineMalformed"),
        ("HTTP/1.1 ", "StatusLineMalformed"),
        ("HTTP/2.0 200 OK", "VersionUnsupported"),
        ("HTTP/2 200 OK", "VersionInvalid"),
        ("http/1.1 200 OK", "VersionInvalid"),
        ("HTTP/1.10 200 OK", "StatusLineMalformed"),
        ("ICY 200 OK", "VersionInvalid"),
        (" HTTP/1.1 200 OK", "VersionInvalid"),
        ("GET / HTTP/1.1", "VersionInvalid"),
        ("\r\nHTTP/1.1 200 OK", "EmptyLine"),
        ("\nHTTP/1.1 200 OK", "BareLf"),
        ("HTTP/1.1 200 O\0K", "ControlByte"),
        ("HTTP/1.1 200 O\rK", "BareCr"),
        ("HTTP/1.1 200 OK\n", "BareLf"),
    ] {
        check(format!("{line}\r\nContent-Length: 0\r\n\r\n").as_bytes(), GET, wanted);
    }
}

#[test]
fn fields_are_as_strict_as_in_requests() {
    for (fields, wanted) in [
        ("A: b\nC: d", "BareLf"),
        ("A: b\rC: d", "BareCr"),
        ("A : b", "SpaceBeforeColon"),
        (" A: b", "ObsFold"),
        ("A: b\r\n c", "ObsFold"),
        (": b", "FieldNameEmpty"),
        ("A b: c", "FieldNameInvalid"),
        ("A", "FieldNameInvalid"),
        ("A: \0", "ControlByte"),
        ("A: \x01", "ControlByte"),
        ("A: \u{e9}", "200 until-close close"),
        ("Content-Length: 5", "200 5 keep"),
        ("Content-Length: 5, 5", "ContentLengthRepeated"),
        ("Content-Length: 5\r\nContent-Length: 5", "ContentLengthRepeated"),
        ("Content-Length: 5\r\nContent-Length: 6", "ContentLengthsDiffer"),
        ("Content-Length: -1", "ContentLengthInvalid"),
        ("Content-Length: 99999999999999999999", "ContentLengthInvalid"),
        ("Content-Length: 5\r\nTransfer-Encoding: chunked", "ContentLengthWithTransferEncoding"),
        ("Transfer-Encoding: chunked", "200 chunked keep"),
        ("Transfer-Encoding: gzip, chunked", "TransferEncodingUnsupported"),
        ("Transfer-Encoding: gzip", "TransferEncodingNotChunked"),
        ("Transfer-Encoding: identity", "TransferEncodingNotChunked"),
        ("Transfer-Encoding: chunked, chunked", "TransferEncodingInvalid"),
        ("Transfer-Encoding: ,chunked", "TransferEncodingInvalid"),
        ("Server: x", "200 until-close close"),
        ("Connection: close", "200 until-close close"),
        ("Connection: close\r\nContent-Length: 1", "200 1 close"),
    ] {
        check(format!("HTTP/1.1 200 OK\r\n{fields}\r\n\r\n").as_bytes(), GET, wanted);
    }
}

#[test]
fn lengths_depend_on_status_and_request() {
    for (request, head, wanted) in [
        (GET, "HTTP/1.1 100 Continue\r\n", "100 none keep"),
        (GET, "HTTP/1.1 103 Early Hints\r\nLink: x\r\n", "103 none keep"),
        (GET, "HTTP/1.1 100 Continue\r\nContent-Length: 5\r\n", "100 none close"),
        (GET, "HTTP/1.1 100 Continue\r\nTransfer-Encoding: chunked\r\n", "100 none close"),
        (GET, "HTTP/1.1 204 No Content\r\n", "204 none keep"),
        (GET, "HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n", "204 none keep"),
        (GET, "HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n", "204 none close"),
        (GET, "HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n", "204 none close"),
        (GET, "HTTP/1.0 204 No Content\r\n", "204 none close"),
        (GET, "HTTP/1.1 304 Not Modified\r\n", "304 none keep"),
        (GET, "HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n", "304 none keep"),
        (GET, "HTTP/1.1 304 Not Modified\r\nTransfer-Encoding: chunked\r\n", "304 none keep"),
        (GET, "HTTP/1.1 205 Reset\r\nContent-Length: 0\r\n", "205 0 keep"),
        (HEAD, "HTTP/1.1 200 OK\r\n", "200 none keep"),
        (HEAD, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n", "200 none keep"),
        (HEAD, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n", "200 none keep"),
        (HEAD, "HTTP/1.1 200 OK\r\nConnection: close\r\n", "200 none close"),
        (HEAD, "HTTP/1.1 200 OK\r\nContent-Length: x\r\n", "ContentLengthInvalid"),
        (
            HEAD,
            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n",
            "ContentLengthWithTransferEncoding",
        ),
        (GET, "HTTP/1.0 200 OK\r\nContent-Length: 5\r\n", "200 5 close"),
        (GET, "HTTP/1.0 200 OK\r\nContent-Length: 5\r\nConnection: keep-alive\r\n", "200 5 keep"),
        (GET, "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\n", "200 until-close close"),
        (GET, "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n", "TransferEncodingOnHttp10"),
        (GET, "HTTP/1.1 200 OK\r\nConnection: upgrade\r\nUpgrade: x\r\n", "200 until-close close"),
        (
            GET,
            "HTTP/1.1 101 Switching\r\nConnection: upgrade\r\nUpgrade: x\r\n",
            "SwitchNotRequested",
        ),
        (GET, "HTTP/1.1 101 Switching\r\n", "SwitchNotRequested"),
        (
            UPGRADE,
            "HTTP/1.1 101 Switching\r\nConnection: upgrade\r\nUpgrade: x\r\n",
            "101 none keep upgrade",
        ),
        (UPGRADE, "HTTP/1.1 101 Switching\r\nConnection: upgrade\r\n", "SwitchProtocolMissing"),
        (UPGRADE, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n", "200 0 keep"),
        (CONNECT, "HTTP/1.1 200 OK\r\n", "200 none keep upgrade"),
        (CONNECT, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n", "200 none close upgrade"),
        (CONNECT, "HTTP/1.1 407 Auth\r\nContent-Length: 5\r\n", "407 5 keep"),
    ] {
        check(format!("{head}\r\n").as_bytes(), request, wanted);
    }
    check(b"HTTP/1.1 200 OK\r\nA: b\r\n", GET, "more");
    check(b"H", GET, "more");
}
