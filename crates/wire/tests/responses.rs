//! Response heads with their verdicts (RFC 9112 sections 4, 6.3 and 9.3).
//!
//! A verdict is the name of the fault, "more" for an incomplete head, or for an accepted head its
//! status, length, `keep` or `close`, and optionally `upgrade`.

use tidegate_wire::http1::{
    BodyLength, FieldStorage, HeadDecoder, HeadLimits, RequestKind, ResponseHead,
};

const GET: RequestKind = RequestKind { is_head: false, is_connect: false, upgrade_asked: false };
const HEAD: RequestKind = RequestKind { is_head: true, ..GET };
const CONNECT: RequestKind = RequestKind { is_connect: true, ..GET };
const UPGRADE: RequestKind = RequestKind { upgrade_asked: true, ..GET };

fn summary(head: &ResponseHead<'_>) -> String {
    let length = match head.length {
        BodyLength::None => "none".to_owned(),
        BodyLength::Length(bytes) => bytes.to_string(),
        BodyLength::Chunked => "chunked".to_owned(),
        BodyLength::UntilClose => "until-close".to_owned(),
    };
    let keep = if head.persistent { "keep" } else { "close" };
    let upgrade = if head.upgrade { " upgrade" } else { "" };
    format!("{} {length} {keep}{upgrade}", head.status)
}

fn verdict(input: &[u8], request: RequestKind, cuts: impl Iterator<Item = usize>) -> String {
    let limits = HeadLimits::default();
    let mut decoder = HeadDecoder::default();
    for end in cuts.chain([input.len()]) {
        let mut storage = FieldStorage::new();
        match decoder.decode_response(&input[..end], &limits, request, &mut storage) {
            Ok(None) => {}
            Ok(Some((head, _))) => return summary(&head),
            Err(fault) => return fault.kind.name().to_owned(),
        }
    }
    "more".to_owned()
}

/// Checks that the verdict on `input` is `wanted`, however the input is split.
fn check(input: &[u8], request: RequestKind, wanted: &str) {
    let shown = input.escape_ascii().to_string();
    assert_eq!(verdict(input, request, core::iter::empty()), wanted, "whole: {shown}");
    assert_eq!(verdict(input, request, 1..input.len()), wanted, "byte by byte: {shown}");
    for cut in 1..input.len() {
        assert_eq!(verdict(input, request, [cut].into_iter()), wanted, "split at {cut}: {shown}");
    }
}

#[test]
fn status_lines() {
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
