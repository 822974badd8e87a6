//! Request heads with their verdicts: the rules of RFC 9112 and the known ways to smuggle a request.
//!
//! A verdict is the name of the fault, "more" for an incomplete head, or for an accepted head its
//! method, path with query, host, length, `keep` or `close`, and optionally `expect` and `upgrade`.

use tidegate_base::limits::{EMPTY_LINES_MAX, HOST_BYTES_MAX};
use tidegate_wire::http1::{HeadDecoder, HeadLimits};
use tidegate_wire::message::{BodyLength, FieldStorage, RequestHead};

fn summary(head: &RequestHead<'_>) -> String {
    let query = head.query.map_or(String::new(), |query| format!("?{query}"));
    let length = match head.length {
        BodyLength::None => "none".to_owned(),
        BodyLength::Length(bytes) => bytes.to_string(),
        BodyLength::Streamed => "chunked".to_owned(),
        BodyLength::UntilClose => "until-close".to_owned(),
    };
    let mut text = format!(
        "{} {}{query} {} {length} {}",
        head.method.as_str(),
        head.path,
        head.host.unwrap_or("-"),
        if head.persistent { "keep" } else { "close" }
    );
    for (set, word) in [(head.expect_continue, " expect"), (head.upgrade, " upgrade")] {
        text.push_str(if set { word } else { "" });
    }
    text
}

fn verdict(input: &[u8], cuts: impl Iterator<Item = usize>) -> String {
    let limits = HeadLimits::default();
    let mut decoder = HeadDecoder::default();
    for end in cuts.chain([input.len()]) {
        let mut storage = FieldStorage::new();
        match decoder.decode_request(&input[..end], &limits, &mut storage) {
            Ok(None) => {}
            Ok(Some((head, _))) => return summary(&head),
            Err(fault) => return fault.kind.name().to_owned(),
        }
    }
    "more".to_owned()
}

/// Checks that the verdict on `input` is `wanted`, however the input is split.
fn check(input: &[u8], wanted: &str) {
    let shown = input.escape_ascii().to_string();
    assert_eq!(verdict(input, core::iter::empty()), wanted, "whole: {shown}");
    assert_eq!(verdict(input, 1..input.len()), wanted, "byte by byte: {shown}");
    for cut in 1..input.len() {
        assert_eq!(verdict(input, [cut].into_iter()), wanted, "split at {cut}: {shown}");
    }
}

fn check_all(table: &[(&str, &str)]) {
    for (input, wanted) in table {
        check(input.as_bytes(), wanted);
    }
}

#[test]
fn request_lines_get_their_verdicts() {
    let rest = "\r\nHost: h\r\n\r\n";
    for (line, wanted) in [
        ("GET / HTTP/1.1", "GET / h none keep"),
        ("HEAD /a/b HTTP/1.1", "HEAD /a/b h none keep"),
        ("get / HTTP/1.1", "get / h none keep"),
        ("M-SEARCH / HTTP/1.1", "M-SEARCH / h none keep"),
        ("!#$%&'*+-.^_`|~ / HTTP/1.1", "!#$%&'*+-.^_`|~ / h none keep"),
        ("GET /?a=b&c HTTP/1.1", "GET /?a=b&c h none keep"),
        ("GET /?a=\"<b>\" HTTP/1.1", "GET /?a=\"<b>\" h none keep"),
        ("GET /a%20b HTTP/1.1", "GET /a%20b h none keep"),
        ("GET /%zz HTTP/1.1", "GET /%zz h none keep"),
        ("GET /a;b,c:d@e!$&'()*+= HTTP/1.1", "GET /a;b,c:d@e!$&'()*+= h none keep"),
        ("GET //a HTTP/1.1", "GET //a h none keep"),
        ("GET /../.. HTTP/1.1", "GET /../.. h none keep"),
        ("GET / HTTP/1.0", "GET / h none close"),
        ("GET / HTTP/1.2", "GET / h none keep"),
        ("GET / HTTP/1.9", "GET / h none keep"),
        ("OPTIONS * HTTP/1.1", "OPTIONS * h none keep"),
        ("OPTIONS http://x HTTP/1.1", "OPTIONS * x none keep"),
        ("GET http://x HTTP/1.1", "GET / x none keep"),
        ("GET http://x:81/a?b HTTP/1.1", "GET /a?b x:81 none keep"),
        ("GET https://x/a HTTP/1.1", "GET /a x none keep"),
        ("GET HtTp://x/a HTTP/1.1", "GET /a x none keep"),
        ("GET http://[::1]:8080/ HTTP/1.1", "GET / [::1]:8080 none keep"),
        ("CONNECT x:443 HTTP/1.1", "CONNECT  x:443 none keep"),
        ("GET / HTTP/2.0", "VersionUnsupported"),
        ("GET / HTTP/3.0", "VersionUnsupported"),
        ("GET / HTTP/0.9", "VersionUnsupported"),
        ("PRI * HTTP/2.0", "VersionUnsupported"),
        ("GET / HTTP/1.10", "VersionInvalid"),
        ("GET / HTTP/1.", "VersionInvalid"),
        ("GET / HTTP/1", "VersionInvalid"),
        ("GET / HTTP/1,1", "VersionInvalid"),
        ("GET / HTTP/11", "VersionInvalid"),
        ("GET / HTTP/01.1", "VersionInvalid"),
        ("GET / http/1.1", "VersionInvalid"),
        ("GET / HTTP", "VersionInvalid"),
        ("GET / HTTPS/1.1", "VersionInvalid"),
        ("GET / HTTP /1.1", "RequestLineMalformed"),
        ("GET / HTTP/ 1.1", "RequestLineMalformed"),
        ("GET / HTTP/1.1 ", "RequestLineMalformed"),
        ("GET / HTTP/1.1\t", "VersionInvalid"),
        ("GET / HTTP/1.1 x", "RequestLineMalformed"),
        ("GET  / HTTP/1.1", "RequestLineMalformed"),
        ("GET /  HTTP/1.1", "RequestLineMalformed"),
        (" GET / HTTP/1.1", "RequestLineMalformed"),
        ("GET\t/\tHTTP/1.1", "RequestLineMalformed"),
        ("GET\t/ HTTP/1.1", "RequestLineMalformed"),
        ("GET /\tHTTP/1.1", "RequestLineMalformed"),
        ("GET /a b HTTP/1.1", "RequestLineMalformed"),
        ("GET /", "RequestLineMalformed"),
        ("GET", "RequestLineMalformed"),
        ("GET HTTP/1.1", "RequestLineMalformed"),
        ("/ HTTP/1.1", "RequestLineMalformed"),
        ("G(T / HTTP/1.1", "MethodInvalid"),
        ("G\"T / HTTP/1.1", "MethodInvalid"),
        ("GET: / HTTP/1.1", "MethodInvalid"),
        ("\u{fc}GET / HTTP/1.1", "MethodInvalid"),
        ("{} / HTTP/1.1", "MethodInvalid"),
        ("GET /a#b HTTP/1.1", "TargetInvalid"),
        ("GET /\"a\" HTTP/1.1", "TargetInvalid"),
        ("GET /<a> HTTP/1.1", "TargetInvalid"),
        ("GET /a\\b HTTP/1.1", "TargetInvalid"),
        ("GET /\u{e9} HTTP/1.1", "TargetInvalid"),
        ("GET /a?b#c HTTP/1.1", "TargetInvalid"),
        ("GET \u{e9} HTTP/1.1", "TargetInvalid"),
        ("GET http://\u{e9}/ HTTP/1.1", "TargetInvalid"),
        ("GET /a\tb HTTP/1.1", "TargetInvalid"),
        ("GET * HTTP/1.1", "TargetFormInvalid"),
        ("GET a HTTP/1.1", "TargetFormInvalid"),
        ("GET x:80 HTTP/1.1", "TargetFormInvalid"),
        ("GET ?a HTTP/1.1", "TargetFormInvalid"),
        ("GET ../a HTTP/1.1", "TargetFormInvalid"),
        ("GET ftp://x/ HTTP/1.1", "TargetSchemeUnsupported"),
        ("GET ://x/ HTTP/1.1", "TargetSchemeUnsupported"),
        ("GET http://u@x/ HTTP/1.1", "TargetAuthorityInvalid"),
        ("GET http://u:p@x/ HTTP/1.1", "TargetAuthorityInvalid"),
        ("GET http:///a HTTP/1.1", "TargetAuthorityInvalid"),
        ("GET http://x:y/ HTTP/1.1", "TargetAuthorityInvalid"),
        ("GET http://x,y/ HTTP/1.1", "TargetAuthorityInvalid"),
        ("GET http://x\\y/ HTTP/1.1", "TargetAuthorityInvalid"),
        ("CONNECT x HTTP/1.1", "TargetAuthorityInvalid"),
        ("CONNECT / HTTP/1.1", "TargetAuthorityInvalid"),
        ("CONNECT http://x:1/ HTTP/1.1", "TargetAuthorityInvalid"),
        ("CONNECT x:99999 HTTP/1.1", "TargetAuthorityInvalid"),
    ] {
        check(format!("{line}{rest}").as_bytes(), wanted);
    }
}

#[test]
fn line_ends_and_control_bytes_get_their_verdicts() {
    check_all(&[
        ("GET / HTTP/1.1\r\nHost: h\r\n", "more"),
        ("GET / HTTP/1.1\r\nHost: h\r\n\r", "more"),
        ("GET", "more"),
        ("\r", "more"),
        ("\r\n", "more"),
        ("\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n", "GET / h none keep"),
        ("\r\nGET / HTTP/1.1\r\nHost: h\r\n", "more"),
        ("\r\n\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n", "GET / h none keep"),
        ("\r\n\r\n\r\nGET / HTTP/1.2\r\nHost: h\r\n\r\n", "GET / h none keep"),
        ("\r\n\r\n\r", "more"),
        ("\r\n\r\n\nGET / HTTP/1.1\r\nHost: h\r\n\r\n", "BareLf"),
        ("\r\n\r\n\rGET / HTTP/1.1\r\nHost: h\r\n\r\n", "BareCr"),
        ("\nGET / HTTP/1.1\r\nHost: h\r\n\r\n", "BareLf"),
        ("\r\n\nGET / HTTP/1.1\r\nHost: h\r\n\r\n", "BareLf"),
        ("\rGET / HTTP/1.1\r\nHost: h\r\n\r\n", "BareCr"),
        ("GET / HTTP/1.1\nHost: h\r\n\r\n", "BareLf"),
        ("GET / HTTP/1.1\r\nHost: h\n\r\n", "BareLf"),
        ("GET / HTTP/1.1\r\nHost: h\r\n\n", "BareLf"),
        ("GET / HTTP/1.1\r\nHost: h\r\nA: b\nC: d\r\n\r\n", "BareLf"),
        ("GET / HTTP/1.1\n\n", "BareLf"),
        ("GET / HTTP/1.1\rHost: h\r\n\r\n", "BareCr"),
        ("GET / HTTP/1.1\r\nHost: h\rA: b\r\n\r\n", "BareCr"),
        ("GET / HTTP/1.1\r\nHost: h\r\r\n\r\n", "BareCr"),
        ("GET / HTTP/1.1\r\r\nHost: h\r\n\r\n", "BareCr"),
        ("GET / HTTP/1.1\r\nHost: h\r\n\rA: b\r\n\r\n", "BareCr"),
        ("GET / HTTP/1.1\r\nHost: h\r\nA\r: b\r\n\r\n", "BareCr"),
        ("GET /\0 HTTP/1.1\r\nHost: h\r\n\r\n", "ControlByte"),
        ("GET /\x7f HTTP/1.1\r\nHost: h\r\n\r\n", "ControlByte"),
        ("GET\x0b/ HTTP/1.1\r\nHost: h\r\n\r\n", "ControlByte"),
        ("GET\x0c/ HTTP/1.1\r\nHost: h\r\n\r\n", "ControlByte"),
        ("GET / HTTP/1.1\r\nHost: h\0\r\n\r\n", "ControlByte"),
        ("GET / HTTP/1.1\r\nHost: h\r\nA: \0\r\n\r\n", "ControlByte"),
        ("GET / HTTP/1.1\r\nHost: h\r\nA: \x08\r\n\r\n", "ControlByte"),
        ("GET / HTTP/1.1\r\nHost: h\r\nA: \x0b\r\n\r\n", "ControlByte"),
        ("GET / HTTP/1.1\r\nHost: h\r\nA: \x1b[1m\r\n\r\n", "ControlByte"),
        ("GET / HTTP/1.1\r\nHost: h\r\nA: \x7f\r\n\r\n", "ControlByte"),
        ("GET / HTTP/1.1\r\nHost: h\r\n\0A: b\r\n\r\n", "ControlByte"),
        ("\x16\x03\x01", "ControlByte"),
    ]);
    let empty = |lines: usize| format!("{}GET / HTTP/1.1\r\nHost: h\r\n\r\n", "\r\n".repeat(lines));
    check(empty(EMPTY_LINES_MAX).as_bytes(), "GET / h none keep");
    check(empty(EMPTY_LINES_MAX + 1).as_bytes(), "EmptyLine");
    check(b"GET /\xff HTTP/1.1\r\nHost: h\r\n\r\n", "TargetInvalid");
    check(b"GET / HTTP/1.1\r\nHost: h\r\nA: caf\xe9\r\n\r\n", "GET / h none keep");
    check(b"GET / HTTP/1.1\r\nHost: h\xe9\r\n\r\n", "HostInvalid");
    check(b"GET / HTTP/1.1\r\nHost: h\r\n\xe9: a\r\n\r\n", "FieldNameInvalid");
}

/// Each line is placed between a valid Host field and the end of the head of a POST.
#[test]
fn field_lines_get_their_verdicts() {
    for (line, wanted) in [
        ("A: b", "POST / h none keep"),
        ("A:b", "POST / h none keep"),
        ("A:\tb\t ", "POST / h none keep"),
        ("A:", "POST / h none keep"),
        ("A:   ", "POST / h none keep"),
        ("A: b: c", "POST / h none keep"),
        ("A: a\tb", "POST / h none keep"),
        ("a_b: c", "POST / h none keep"),
        ("1: c", "POST / h none keep"),
        ("!#$%&'*+-.^_`|~: c", "POST / h none keep"),
        (" A: b", "ObsFold"),
        ("\tA: b", "ObsFold"),
        ("A: b\r\n c", "ObsFold"),
        ("A: b\r\n\tc", "ObsFold"),
        ("A: b\r\n ", "ObsFold"),
        ("A:\r\n b", "ObsFold"),
        ("A : b", "SpaceBeforeColon"),
        ("A\t: b", "SpaceBeforeColon"),
        ("A \t : b", "SpaceBeforeColon"),
        ("Content-Length : 5", "SpaceBeforeColon"),
        ("Transfer-Encoding : chunked", "SpaceBeforeColon"),
        (": b", "FieldNameEmpty"),
        (":", "FieldNameEmpty"),
        ("A", "FieldNameInvalid"),
        ("A b: c", "FieldNameInvalid"),
        ("A b", "FieldNameInvalid"),
        ("A(: b", "FieldNameInvalid"),
        ("A/B: c", "FieldNameInvalid"),
        ("A@B: c", "FieldNameInvalid"),
        ("\"A\": c", "FieldNameInvalid"),
        ("[A]: c", "FieldNameInvalid"),
        ("A;: c", "FieldNameInvalid"),
        ("A=: c", "FieldNameInvalid"),
        ("A,B: c", "FieldNameInvalid"),
        ("GET / HTTP/1.1", "FieldNameInvalid"),
    ] {
        check(format!("POST / HTTP/1.1\r\nHost: h\r\n{line}\r\n\r\n").as_bytes(), wanted);
    }
}

#[test]
fn malformed_first_field_lines_are_rejected() {
    check_all(&[
        ("GET / HTTP/1.1\r\n Host: h\r\n\r\n", "ObsFold"),
        ("GET / HTTP/1.1\r\n\tHost: h\r\n\r\n", "ObsFold"),
        ("GET / HTTP/1.1\r\nHost : h\r\n\r\n", "SpaceBeforeColon"),
        ("GET / HTTP/1.1\r\nHost\r\n\r\n", "FieldNameInvalid"),
        ("GET / HTTP/1.1\r\n: h\r\n\r\n", "FieldNameEmpty"),
    ]);
}

#[test]
fn hosts_get_their_verdicts() {
    check_all(&[
        ("GET / HTTP/1.1\r\n\r\n", "HostMissing"),
        ("GET / HTTP/1.1\r\nA: b\r\n\r\n", "HostMissing"),
        ("GET / HTTP/1.2\r\n\r\n", "HostMissing"),
        ("GET http://x/ HTTP/1.1\r\n\r\n", "HostMissing"),
        ("GET / HTTP/1.0\r\n\r\n", "GET / - none close"),
        ("GET / HTTP/1.0\r\nHost: h\r\n\r\n", "GET / h none close"),
        ("GET http://x/ HTTP/1.0\r\n\r\n", "GET / x none close"),
        ("GET / HTTP/1.1\r\nhOsT: h\r\n\r\n", "GET / h none keep"),
        ("GET / HTTP/1.1\r\nHost:h:8080\r\n\r\n", "GET / h:8080 none keep"),
        ("GET / HTTP/1.1\r\nHost: [::1]:80\r\n\r\n", "GET / [::1]:80 none keep"),
        ("GET / HTTP/1.1\r\nHost:\t h \t\r\n\r\n", "GET / h none keep"),
        ("GET / HTTP/1.1\r\nHost: h\r\nHost: h\r\n\r\n", "HostRepeated"),
        ("GET / HTTP/1.1\r\nHost: h\r\nA: b\r\nhost: i\r\n\r\n", "HostRepeated"),
        ("GET / HTTP/1.0\r\nHost: h\r\nHost: i\r\n\r\n", "HostRepeated"),
        ("GET http://x/ HTTP/1.1\r\nHost: x\r\nHost: x\r\n\r\n", "HostRepeated"),
        ("GET / HTTP/1.1\r\nHost: h, i\r\n\r\n", "HostInvalid"),
        ("GET / HTTP/1.1\r\nHost: h i\r\n\r\n", "HostInvalid"),
        ("GET / HTTP/1.1\r\nHost: u@h\r\n\r\n", "HostInvalid"),
        ("GET / HTTP/1.1\r\nHost: h/a\r\n\r\n", "HostInvalid"),
        ("GET / HTTP/1.1\r\nHost: h?a\r\n\r\n", "HostInvalid"),
        ("GET / HTTP/1.1\r\nHost: h#a\r\n\r\n", "HostInvalid"),
        ("GET / HTTP/1.1\r\nHost: h\\a\r\n\r\n", "HostInvalid"),
        ("GET / HTTP/1.1\r\nHost: h:x\r\n\r\n", "HostInvalid"),
        ("GET / HTTP/1.1\r\nHost: h:65536\r\n\r\n", "HostInvalid"),
        ("GET / HTTP/1.1\r\nHost: h:80:80\r\n\r\n", "HostInvalid"),
        ("GET / HTTP/1.1\r\nHost: h:-1\r\n\r\n", "HostInvalid"),
        ("GET / HTTP/1.1\r\nHost: :80\r\n\r\n", "HostInvalid"),
        ("GET / HTTP/1.1\r\nHost: ::1\r\n\r\n", "HostInvalid"),
        ("GET / HTTP/1.1\r\nHost: [::1\r\n\r\n", "HostInvalid"),
        ("GET / HTTP/1.1\r\nHost: http://h\r\n\r\n", "HostInvalid"),
        ("GET / HTTP/1.1\r\nHost: <h>\r\n\r\n", "HostInvalid"),
        ("GET / HTTP/1.1\r\nHost:\r\n\r\n", "GET / - none keep"),
        ("GET / HTTP/1.1\r\nHost: \t\r\n\r\n", "GET / - none keep"),
        ("GET / HTTP/1.0\r\nHost:\r\n\r\n", "GET / - none close"),
        ("OPTIONS * HTTP/1.1\r\nHost:\r\n\r\n", "OPTIONS * - none keep"),
        ("GET / HTTP/1.1\r\nHost:\r\nHost:\r\n\r\n", "HostRepeated"),
        ("GET / HTTP/1.1\r\nHost:\r\nHost: h\r\n\r\n", "HostRepeated"),
        ("GET http://x/ HTTP/1.1\r\nHost: y\r\n\r\n", "GET / x none keep"),
        ("GET http://x/ HTTP/1.1\r\nHost:\r\n\r\n", "GET / x none keep"),
        ("GET http://x/ HTTP/1.1\r\nHost: a b\r\n\r\n", "HostInvalid"),
        ("CONNECT x:1 HTTP/1.1\r\nHost: y\r\n\r\n", "CONNECT  x:1 none keep"),
    ]);
}

/// The fields are placed after a valid Host field in an HTTP/1.1 POST.
#[test]
fn body_lengths_get_their_verdicts() {
    for (fields, wanted) in [
        ("Content-Length: 0", "POST / h 0 keep"),
        ("Content-Length: 5", "POST / h 5 keep"),
        ("content-LENGTH:5", "POST / h 5 keep"),
        ("Content-Length: 0005", "POST / h 5 keep"),
        ("Content-Length: \t5 ", "POST / h 5 keep"),
        ("Content-Length: 9223372036854775807", "POST / h 9223372036854775807 keep"),
        ("Content-Length: 9223372036854775808", "ContentLengthInvalid"),
        ("Content-Length: 18446744073709551616", "ContentLengthInvalid"),
        ("Content-Length: 184467440737095516160000005", "ContentLengthInvalid"),
        ("Content-Length:", "ContentLengthInvalid"),
        ("Content-Length: ", "ContentLengthInvalid"),
        ("Content-Length: +5", "ContentLengthInvalid"),
        ("Content-Length: -5", "ContentLengthInvalid"),
        ("Content-Length: -0", "ContentLengthInvalid"),
        ("Content-Length: 0x5", "ContentLengthInvalid"),
        ("Content-Length: 5a", "ContentLengthInvalid"),
        ("Content-Length: 5 5", "ContentLengthInvalid"),
        ("Content-Length: 5_0", "ContentLengthInvalid"),
        ("Content-Length: 5.0", "ContentLengthInvalid"),
        ("Content-Length: 1e1", "ContentLengthInvalid"),
        ("Content-Length: \"5\"", "ContentLengthInvalid"),
        ("Content-Length: five", "ContentLengthInvalid"),
        ("Content-Length: 5;", "ContentLengthInvalid"),
        ("Content-Length: \u{661}", "ContentLengthInvalid"),
        ("Content-Length: 5,", "ContentLengthInvalid"),
        ("Content-Length: ,5", "ContentLengthInvalid"),
        ("Content-Length: 5, 5", "ContentLengthRepeated"),
        ("Content-Length: 5,5", "ContentLengthRepeated"),
        ("Content-Length: 5, 6", "ContentLengthsDiffer"),
        ("Content-Length: 5\r\nContent-Length: 5", "ContentLengthRepeated"),
        ("Content-Length: 5\r\nContent-Length: 6", "ContentLengthsDiffer"),
        ("Content-Length: 5\r\nA: b\r\ncontent-length: 0", "ContentLengthsDiffer"),
        ("Content-Length: 5\r\nContent-Length: x", "ContentLengthInvalid"),
        ("Content_Length: 5", "FramingFieldMisspelled"),
        ("CONTENT_LENGTH: 5\r\nContent-Length: 5", "FramingFieldMisspelled"),
        ("Content_Lengths: 5", "POST / h none keep"),
        ("Content.Length: 5", "POST / h none keep"),
        ("Content-Length\u{a0}: 5", "FieldNameInvalid"),
        ("Transfer-Encoding: chunked", "POST / h chunked keep"),
        ("Transfer-Encoding: CHUNKED", "POST / h chunked keep"),
        ("transfer-encoding:\tchunked\t", "POST / h chunked keep"),
        ("Transfer-Encoding: chunked\r\nContent-Length: 5", "ContentLengthWithTransferEncoding"),
        ("Content-Length: 5\r\nTransfer-Encoding: chunked", "ContentLengthWithTransferEncoding"),
        ("Content-Length: 0\r\nTransfer-Encoding: identity", "ContentLengthWithTransferEncoding"),
        ("Content-Length: x\r\nTransfer-Encoding: x", "ContentLengthWithTransferEncoding"),
        ("Transfer-Encoding: gzip, chunked", "TransferEncodingUnsupported"),
        ("Transfer-Encoding: gzip;q=1, chunked", "TransferEncodingUnsupported"),
        ("Transfer-Encoding: identity, chunked", "TransferEncodingUnsupported"),
        ("Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked", "TransferEncodingUnsupported"),
        ("Transfer-Encoding: gzip", "TransferEncodingNotChunked"),
        ("Transfer-Encoding: identity", "TransferEncodingNotChunked"),
        ("Transfer-Encoding: xchunked", "TransferEncodingNotChunked"),
        ("Transfer-Encoding: chunkedx", "TransferEncodingNotChunked"),
        ("Transfer-Encoding: chunked-", "TransferEncodingNotChunked"),
        ("Transfer-Encoding: chunked, gzip", "TransferEncodingNotChunked"),
        ("Transfer-Encoding: chunked, gzip, chunked", "TransferEncodingNotChunked"),
        ("Transfer-Encoding: chunked, identity", "TransferEncodingNotChunked"),
        ("Transfer-Encoding: chunked\r\nTransfer-Encoding: x", "TransferEncodingNotChunked"),
        ("Transfer-Encoding: chunked, chunked", "TransferEncodingInvalid"),
        ("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked", "TransferEncodingInvalid"),
        ("Transfer-Encoding: chunked;a=b", "TransferEncodingInvalid"),
        ("Transfer-Encoding: chunked;", "TransferEncodingInvalid"),
        ("Transfer-Encoding: ,chunked", "TransferEncodingInvalid"),
        ("Transfer-Encoding: chunked,", "TransferEncodingInvalid"),
        ("Transfer-Encoding:", "TransferEncodingInvalid"),
        ("Transfer-Encoding: \"chunked\"", "TransferEncodingInvalid"),
        ("Transfer-Encoding: 'chunked'", "TransferEncodingNotChunked"),
        ("Transfer-Encoding: chun ked", "TransferEncodingInvalid"),
        ("Transfer-Encoding: gzip chunked", "TransferEncodingInvalid"),
        ("Transfer-Encoding: x=\"a, chunked", "TransferEncodingInvalid"),
        ("Transfer-Encoding: chunked\u{a0}", "TransferEncodingInvalid"),
        ("Transfer-Encoding: \u{feff}chunked", "TransferEncodingInvalid"),
        ("Transfer-Encoding: chunked\r\nTransfer-Encoding:", "TransferEncodingInvalid"),
        ("Transfer-Encoding: chunked\r\n , identity", "ObsFold"),
        ("Transfer-Encoding:\r\n chunked", "ObsFold"),
        ("Transfer-Encoding: \x0bchunked", "ControlByte"),
        ("Transfer-Encoding: chunked\x0c", "ControlByte"),
        ("Transfer_Encoding: chunked", "FramingFieldMisspelled"),
        ("Transfer-Encoding: chunked\r\ntransfer_encoding: x", "FramingFieldMisspelled"),
        ("X: y\nTransfer-Encoding: chunked", "BareLf"),
    ] {
        check(format!("POST / HTTP/1.1\r\nHost: h\r\n{fields}\r\n\r\n").as_bytes(), wanted);
    }
    check_all(&[
        ("GET / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\n", "GET / h 3 keep"),
        ("POST / HTTP/1.0\r\nContent-Length: 3\r\n\r\n", "POST / - 3 close"),
        ("POST / HTTP/1.0\r\n\r\n", "POST / - none close"),
        ("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", "TransferEncodingOnHttp10"),
        (
            "POST / HTTP/1.0\r\nHost: h\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n",
            "TransferEncodingOnHttp10",
        ),
        (
            "POST / HTTP/1.2\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n",
            "POST / h chunked keep",
        ),
    ]);
}

/// The fields are placed after a valid Host field in a GET of this version.
#[test]
fn connection_expect_and_upgrade_fields_get_their_verdicts() {
    for (minor, fields, wanted) in [
        (1, "Connection: close", "GET / h none close"),
        (1, "Connection: Close", "GET / h none close"),
        (1, "Connection: a,\tclose ,b", "GET / h none close"),
        (1, "Connection: keep-alive, close", "GET / h none close"),
        (1, "Connection: keep-alive\r\nConnection: close", "GET / h none close"),
        (1, "Connection: closed", "GET / h none keep"),
        (1, "Connection: \"close\"", "GET / h none keep"),
        (1, "Connection:", "GET / h none keep"),
        (1, "Proxy-Connection: close", "GET / h none keep"),
        (0, "Connection: keep-alive", "GET / h none keep"),
        (0, "Connection: Keep-Alive, x", "GET / h none keep"),
        (0, "Connection: keep-alive, close", "GET / h none close"),
        (0, "Proxy-Connection: keep-alive", "GET / h none close"),
        (0, "Keep-Alive: timeout=5", "GET / h none close"),
        (1, "Expect: 100-continue", "GET / h none keep expect"),
        (1, "Expect: 100-Continue", "GET / h none keep expect"),
        (1, "Expect: 100-continue, x", "GET / h none keep expect"),
        (1, "Expect: x", "GET / h none keep"),
        (0, "Expect: 100-continue", "GET / h none close"),
        (1, "Connection: Upgrade\r\nUpgrade: websocket", "GET / h none keep upgrade"),
        (1, "Upgrade: websocket\r\nConnection: keep-alive, upgrade", "GET / h none keep upgrade"),
        (1, "Upgrade: websocket", "GET / h none keep"),
        (1, "Connection: upgrade", "GET / h none keep"),
        (0, "Connection: upgrade\r\nUpgrade: websocket", "GET / h none close"),
        (1, "Connection: upgrade\r\nUpgrade: a\r\nContent-Length: 1", "GET / h 1 keep"),
        (1, "Connection: upgrade\r\nUpgrade: a\r\nContent-Length: 0", "GET / h 0 keep upgrade"),
        (
            1,
            "Connection: upgrade\r\nUpgrade: a\r\nTransfer-Encoding: chunked",
            "GET / h chunked keep",
        ),
    ] {
        check(format!("GET / HTTP/1.{minor}\r\nHost: h\r\n{fields}\r\n\r\n").as_bytes(), wanted);
    }
}

#[test]
fn heads_are_rejected_at_the_byte_that_exceeds_a_limit() {
    let limits =
        HeadLimits { request_line_bytes_max: 20, head_bytes_max: 60, header_fields_max: 3 };
    let outcome = |input: &[u8], step: usize| {
        let mut decoder = HeadDecoder::default();
        let mut end = 0;
        while end < input.len() {
            end = (end + step).min(input.len());
            let mut storage = FieldStorage::new();
            match decoder.decode_request(&input[..end], &limits, &mut storage) {
                Ok(None) => {}
                Ok(Some(_)) => return "ok".to_owned(),
                Err(fault) => return format!("{} {end}", fault.kind.name()),
            }
        }
        "more".to_owned()
    };
    let line_fits = b"GET /aaaaaa HTTP/1.1\r\nHost: h\r\n\r\n".to_vec();
    let line_long = b"GET /aaaaaaa HTTP/1.1\r\nHost: h\r\n\r\n".to_vec();
    let head_fits =
        [b"GET / HTTP/1.0\r\na: ".to_vec(), vec![b'b'; 37], b"\r\n\r\n".to_vec()].concat();
    let head_long =
        [b"GET / HTTP/1.0\r\na: ".to_vec(), vec![b'b'; 38], b"\r\n\r\n".to_vec()].concat();
    assert_eq!(head_fits.len(), 60);
    for (input, wanted, wanted_at) in [
        (&line_fits, "ok", 0),
        (&line_long, "RequestLineTooLong", 21),
        (&vec![b'A'; 100], "RequestLineTooLong", 21),
        (&[b"\r\n".to_vec(), line_fits.clone()].concat(), "ok", 0),
        (&[b"\r\n".to_vec(), line_long.clone()].concat(), "RequestLineTooLong", 23),
        (&head_fits, "ok", 0),
        (&head_long, "HeadTooLarge", 60),
        (&b"GET / HTTP/1.0\r\na:\r\nb:\r\nc:\r\n\r\n".to_vec(), "ok", 0),
        (&b"GET / HTTP/1.0\r\na:\r\nb:\r\nc:\r\nd:\r\n\r\n".to_vec(), "TooManyFields", 32),
    ] {
        let shown = input.escape_ascii();
        let whole = outcome(input, input.len());
        assert_eq!(whole.split(' ').next(), Some(wanted), "{shown}");
        if wanted_at > 0 {
            assert_eq!(outcome(input, 1), format!("{wanted} {wanted_at}"), "{shown}");
        } else {
            assert_eq!(outcome(input, 1), wanted, "{shown}");
        }
    }
}

#[test]
fn default_limits_allow_100_fields() {
    let head = |fields: usize| format!("GET / HTTP/1.0\r\n{}\r\n", "a: b\r\n".repeat(fields));
    assert_eq!(verdict(head(100).as_bytes(), core::iter::empty()), "GET / - none close");
    assert_eq!(verdict(head(101).as_bytes(), core::iter::empty()), "TooManyFields");
    assert_eq!(verdict(head(101).as_bytes(), 1..600), "TooManyFields");
}

#[test]
fn hosts_longer_than_the_limit_are_rejected() {
    let fits = format!("{}:8080", "h".repeat(HOST_BYTES_MAX - ":8080".len()));
    let in_field = |host: &str| format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n");
    let in_target = |host: &str| format!("GET http://{host}/ HTTP/1.1\r\nHost: h\r\n\r\n");
    let wanted = format!("GET / {fits} none keep");
    assert_eq!(verdict(in_field(&fits).as_bytes(), core::iter::empty()), wanted);
    assert!(verdict(in_target(&fits).as_bytes(), core::iter::empty()).contains(&fits));
    for longer in [format!("h{fits}"), "h".repeat(7_000)] {
        check(in_field(&longer).as_bytes(), "HostTooLong");
        check(in_target(&longer).as_bytes(), "HostTooLong");
    }
}

#[test]
fn pipelined_heads_are_decoded_one_by_one() {
    let input = b"GET /1 HTTP/1.1\r\nHost: h\r\n\r\nGET /2 HTTP/1.1\r\nHost: h\r\n\r\n\0";
    let limits = HeadLimits::default();
    let mut decoder = HeadDecoder::default();
    let mut rest = &input[..];
    for path in ["/1", "/2"] {
        let mut storage = FieldStorage::new();
        let (head, consumed) =
            decoder.decode_request(rest, &limits, &mut storage).unwrap().unwrap();
        assert_eq!((head.path, consumed), (path, 28));
        rest = &rest[consumed..];
    }
    assert_eq!(rest, b"\0");
}

#[test]
fn fields_are_found_by_id_by_name_and_by_nomination() {
    use tidegate_wire::message::FieldName;
    let input =
        b"GET / HTTP/1.1\r\nHost: h\r\nX-One: 1\r\nx-one: 2\r\nConnection: X-One , close\r\n\
        connection: te\r\nTE: trailers\r\n\r\n";
    let mut storage = FieldStorage::new();
    let mut decoder = HeadDecoder::default();
    let limits = HeadLimits::default();
    let (head, _) = decoder.decode_request(input, &limits, &mut storage).unwrap().unwrap();
    assert_eq!(head.find(FieldName::Te), Some(&b"trailers"[..]));
    assert!(head.has(FieldName::Te) && !head.has(FieldName::Via));
    assert_eq!(head.find(FieldName::Via), None);
    assert_eq!(head.find_named("x-one"), Some(&b"1"[..]));
    assert!(head.is_nominated("x-one") && head.is_nominated("TE") && head.is_nominated("Close"));
    assert!(!head.is_nominated("host") && !head.is_nominated(""));
    let names: Vec<_> = head.fields().map(|field| (field.id, field.name)).collect();
    assert_eq!(names.len(), 6);
    assert_eq!(names[2], (FieldName::Other, "x-one"));
    assert_eq!(names[3], (FieldName::Connection, "Connection"));
}

#[test]
fn harmless_violations_are_counted_however_the_head_is_split() {
    let limits = HeadLimits::default();
    for (input, wanted) in [
        ("GET / HTTP/1.1\r\nHost: h\r\n\r\n", 0),
        ("GET http://h/ HTTP/1.1\r\nHost: H\r\n\r\n", 0),
        ("OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n", 0),
        ("GET / HTTP/1.0\r\n\r\n", 0),
        ("GET http://h/ HTTP/1.0\r\n\r\n", 0),
        ("GET http://h:80/ HTTP/1.1\r\nHost: h\r\n\r\n", 0),
        ("GET http://h:81/ HTTP/1.1\r\nHost: h\r\n\r\n", 1),
        ("\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n", 1),
        ("\r\n\r\n\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n", 3),
        ("GET / HTTP/1.7\r\nHost: h\r\n\r\n", 1),
        ("GET http://other/ HTTP/1.1\r\nHost: h\r\n\r\n", 1),
        ("\r\nGET http://other/ HTTP/1.2\r\nHost:\r\n\r\n", 3),
    ] {
        for cut in 1..=input.len() {
            let mut decoder = HeadDecoder::default();
            // The violations of all requests of a connection add up.
            for round in 1..=2 {
                for end in [cut, input.len()] {
                    let mut storage = FieldStorage::new();
                    let input = &input.as_bytes()[..end];
                    let decoded = decoder.decode_request(input, &limits, &mut storage);
                    if decoded.expect("the request is accepted").is_some() {
                        break;
                    }
                }
                assert_eq!(decoder.glitches(), round * wanted, "{input:?} split at {cut}");
            }
        }
    }
}
