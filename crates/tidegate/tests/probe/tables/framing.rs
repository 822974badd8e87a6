//! The length of a request: Content-Length and Transfer-Encoding in all spellings, RFC 9112 section 6.

use super::{SMUGGLED, post};
use crate::message::Framing;
use crate::vector::{Check, Vector, accept, refuse};

pub fn vectors() -> Vec<Vector> {
    let mut all = lengths();
    all.extend(bad_lengths());
    all.extend(bad_codings());
    all.extend(both());
    all.extend(bodies());
    all
}

const CHUNKS: &str = "1\r\na\r\n0\r\n\r\n";

fn lengths() -> Vec<Vector> {
    let length = |name, fields: &str, body: &str, checks: &[Check]| {
        accept(name, "9110 8.6", post(fields, body)).origin(checks)
    };
    vec![
        length(
            "a length",
            "Content-Length: 3\r\n",
            "abc",
            &[Check::Has("content-length", "3"), Check::Body("abc")],
        ),
        length(
            "a length of zero",
            "Content-Length: 0\r\n",
            "",
            &[Check::Has("content-length", "0")],
        ),
        length(
            "a length with leading zeros",
            "Content-Length: 003\r\n",
            "abc",
            &[Check::Has("content-length", "3"), Check::Body("abc")],
        ),
        length(
            "white space around the length",
            "Content-Length: \t3 \t\r\n",
            "abc",
            &[Check::Has("content-length", "3")],
        ),
        length("no length at all", "", "", &[Check::Framed(Framing::None)]),
        length(
            "a body that looks like a request",
            "Content-Length: 36\r\n",
            "GET /smuggled HTTP/1.1\r\nHost: h\r\n\r\nX",
            &[Check::BodyLength(36)],
        ),
        length(
            "Connection cannot remove Content-Length",
            "Connection: Content-Length\r\nContent-Length: 3\r\n",
            "abc",
            &[Check::Has("content-length", "3"), Check::Body("abc")],
        ),
        accept("a body of a GET", "9110 9.3.1", {
            "GET /x HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc"
        })
        .origin(&[Check::Body("abc")]),
        accept("a body of a DELETE", "9110 9.3.5", {
            "DELETE /x HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc"
        })
        .origin(&[Check::Body("abc")]),
        accept("a body of an OPTIONS", "9110 9.3.7", {
            "OPTIONS /x HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc"
        })
        .origin(&[Check::Body("abc")]),
        accept("a chunked body of a GET", "9110 9.3.1", {
            format!("GET /x HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n{CHUNKS}")
        })
        .origin(&[Check::Body("a"), Check::Framed(Framing::Chunked)]),
        accept("a body of HTTP/1.0", "9112 6.3", {
            "POST /x HTTP/1.0\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc"
        })
        .closes()
        .origin(&[Check::Body("abc")]),
        accept("HTTP/1.0 without a length has no body", "9112 6.3", {
            format!("POST /x HTTP/1.0\r\nHost: h\r\n\r\n{SMUGGLED}")
        })
        .closes()
        .origin(&[Check::Body(""), Check::Start("POST /x HTTP/1.1")]),
    ]
}

fn bad_lengths() -> Vec<Vector> {
    let bad = |name, value: &str| {
        let send = post(&format!("Content-Length: {value}\r\n"), &format!("abc{SMUGGLED}"));
        refuse(name, "9112 6.3 MUST", &[400, 413], send)
    };
    let lines = |name, lines: &str| {
        refuse(name, "9112 6.3 MUST", &[400], post(lines, &format!("abc{SMUGGLED}")))
    };
    vec![
        bad("an empty length", ""),
        bad("a length with a plus", "+3"),
        bad("a length with a minus", "-3"),
        bad("a length of minus zero", "-0"),
        bad("a length in hex", "0x3"),
        bad("a length of hex digits", "a"),
        bad("a length in octal", "0o3"),
        bad("a length with an underscore", "1_0"),
        bad("a length with a fraction", "3.0"),
        bad("a length with an exponent", "3e0"),
        bad("a length with a space inside", "3 4"),
        bad("a length followed by a letter", "3a"),
        bad("a length with a semicolon", "3;"),
        bad("a length in quotes", "\"3\""),
        bad("a length followed by a comma", "3,"),
        bad("a length preceded by a comma", ",3"),
        bad("a length of words", "three"),
        bad("a length with a thousands separator", "1,000"),
        bad("a length in non-ASCII digits", "\u{663}"),
        bad("a length with a NUL", "3\0"),
        bad("a length with a vertical tab", "\x0b3"),
        bad("a length with a bare CR", "3\r0"),
        bad("a length beyond 64 bits", "18446744073709551619"),
        bad("a length beyond 63 bits", "9223372036854775811"),
        bad("a length of a hundred digits", &"9".repeat(100)),
        bad("a list of different lengths", "3, 4"),
        bad("a list of a length and an empty element", "3, "),
        bad("a list of a length and a word", "3, x"),
        lines("two different lengths", "Content-Length: 3\r\nContent-Length: 4\r\n"),
        lines("two lengths, the first empty", "Content-Length:\r\nContent-Length: 3\r\n"),
        lines("two lengths, one with a plus", "Content-Length: 3\r\nContent-Length: +3\r\n"),
        lines(
            "two lengths with a field between them",
            "Content-Length: 3\r\nX: y\r\ncontent-length: 0\r\n",
        ),
        lines("lengths of zero and three", "Content-Length: 0\r\nContent-Length: 3\r\n"),
        refuse("two equal lengths", "9112 6.3 MAY", &[400], {
            post("Content-Length: 3\r\nContent-Length: 3\r\n", "abc")
        }),
        refuse("a list of equal lengths", "9112 6.3 MAY", &[400], {
            post("Content-Length: 3, 3\r\n", "abc")
        }),
    ]
}

/// Spellings that published attacks use to hide a Transfer-Encoding from one of two parsers.
fn bad_codings() -> Vec<Vector> {
    let bad = |name, line: &str| {
        let send = post(&format!("{line}\r\n"), &format!("{CHUNKS}{SMUGGLED}"));
        refuse(name, "9112 6.1 MUST", &[400, 501], send)
    };
    vec![
        bad("identity", "Transfer-Encoding: identity"),
        bad("gzip alone", "Transfer-Encoding: gzip"),
        bad("gzip before chunked", "Transfer-Encoding: gzip, chunked"),
        bad("chunked before gzip", "Transfer-Encoding: chunked, gzip"),
        bad("chunked before identity", "Transfer-Encoding: chunked, identity"),
        bad("identity before chunked", "Transfer-Encoding: identity, chunked"),
        bad("chunked twice", "Transfer-Encoding: chunked, chunked"),
        bad("chunked on two lines", "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked"),
        bad(
            "identity on another line",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity",
        ),
        bad(
            "an unknown coding on another line",
            "Transfer-Encoding: x\r\nTransfer-Encoding: chunked",
        ),
        bad("an empty line before", "Transfer-Encoding:\r\nTransfer-Encoding: chunked"),
        bad("an empty coding", "Transfer-Encoding:"),
        bad("a comma alone", "Transfer-Encoding: ,"),
        bad("a comma before chunked", "Transfer-Encoding: , chunked"),
        bad("a comma after chunked", "Transfer-Encoding: chunked,"),
        bad("xchunked", "Transfer-Encoding: xchunked"),
        bad("x-chunked", "Transfer-Encoding: x-chunked"),
        bad("chunkedx", "Transfer-Encoding: chunkedx"),
        bad("chunk", "Transfer-Encoding: chunk"),
        bad("chunked in quotes", "Transfer-Encoding: \"chunked\""),
        bad("chunked in single quotes", "Transfer-Encoding: 'chunked'"),
        bad("chunked with a parameter", "Transfer-Encoding: chunked;a=b"),
        bad("chunked with a semicolon", "Transfer-Encoding: chunked;"),
        bad("chunked with a weight", "Transfer-Encoding: chunked;q=0.5"),
        bad("two words", "Transfer-Encoding: chunked x"),
        bad("two words, chunked last", "Transfer-Encoding: x chunked"),
        bad("two colons", "Transfer-Encoding:: chunked"),
        bad("a vertical tab before chunked", "Transfer-Encoding: \x0bchunked"),
        bad("a form feed after chunked", "Transfer-Encoding: chunked\x0c"),
        bad("a NUL before", "Transfer-Encoding: \0chunked"),
        bad("a NUL after chunked", "Transfer-Encoding: chunked\0"),
        bad("a DEL after chunked", "Transfer-Encoding: chunked\x7f"),
        bad("a non-ASCII byte after chunked", "Transfer-Encoding: chunked\u{80}"),
        bad("a no-break space before chunked", "Transfer-Encoding: \u{a0}chunked"),
        bad("a bare CR before chunked", "Transfer-Encoding: \rchunked"),
        bad("a bare LF before chunked", "Transfer-Encoding:\n chunked"),
        bad("a space before the colon", "Transfer-Encoding : chunked"),
        bad("a tab before the colon", "Transfer-Encoding\t: chunked"),
        bad("a CR before the colon", "Transfer-Encoding\r: chunked"),
        bad("a space before the name", "X: y\r\n Transfer-Encoding: chunked"),
        bad("a fold after the colon", "Transfer-Encoding:\r\n chunked"),
        bad("a fold inside chunked", "Transfer-Encoding: chu\r\n nked"),
        bad("a bare LF before the field name", "X: y\nTransfer-Encoding: chunked"),
        bad("a bare CR before the field name", "X: y\rTransfer-Encoding: chunked"),
        bad("a NUL in the name", "Transfer\0-Encoding: chunked"),
        bad("a space in the name", "Transfer Encoding: chunked"),
        bad("cow", "Transfer-Encoding: cow"),
        refuse("chunked in HTTP/1.0", "9112 6.1 MUST", &[400], {
            format!("POST /x HTTP/1.0\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n{CHUNKS}")
        }),
        refuse("chunked in HTTP/1.0 with keep-alive", "9112 6.1 MUST", &[400], {
            format!(
                "POST /x HTTP/1.0\r\nHost: h\r\nConnection: keep-alive\r\n\
                 Transfer-Encoding: chunked\r\n\r\n{CHUNKS}{SMUGGLED}"
            )
        }),
        // A different field name, but software that maps `_` to `-` takes it for framing.
        refuse("an underscore in Transfer-Encoding", "9112 11.2", &[400], {
            post("Transfer_Encoding: chunked\r\nContent-Length: 3\r\n", "abc")
        }),
        refuse("an underscore in Content-Length", "9112 11.2", &[400], {
            post("CONTENT_LENGTH: 9\r\nContent-Length: 3\r\n", "abc")
        }),
        accept("chunked in capitals", "9112 7", post("Transfer-Encoding: CHUNKED\r\n", CHUNKS))
            .origin(&[Check::Has("transfer-encoding", "chunked"), Check::Body("a")]),
        accept("chunked in mixed case", "9112 7", post("tRANSFER-eNCODING: cHuNkEd\r\n", CHUNKS))
            .origin(&[Check::Has("transfer-encoding", "chunked"), Check::Body("a")]),
        accept("white space around chunked", "9112 5.1", {
            post("Transfer-Encoding: \t chunked \t\r\n", CHUNKS)
        })
        .origin(&[Check::Has("transfer-encoding", "chunked"), Check::Body("a")]),
        accept("Connection cannot remove Transfer-Encoding", "9110 7.6.1", {
            post("Connection: Transfer-Encoding\r\nTransfer-Encoding: chunked\r\n", CHUNKS)
        })
        .origin(&[Check::Has("transfer-encoding", "chunked"), Check::Body("a")]),
    ]
}

fn both() -> Vec<Vector> {
    let both = |name, lines: &str, body: &str| {
        refuse(name, "9112 6.1", &[400], post(lines, &format!("{body}{SMUGGLED}")))
    };
    vec![
        both("CL.TE", "Content-Length: 6\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\nG"),
        both("TE.CL", "Transfer-Encoding: chunked\r\nContent-Length: 4\r\n", "5c\r\nG"),
        both("CL of zero with TE", "Content-Length: 0\r\nTransfer-Encoding: chunked\r\n", CHUNKS),
        both("CL with gzip", "Content-Length: 3\r\nTransfer-Encoding: gzip\r\n", "abc"),
        both("CL with identity", "Content-Length: 3\r\nTransfer-Encoding: identity\r\n", "abc"),
        both("CL with an unknown coding", "Content-Length: 3\r\nTransfer-Encoding: x\r\n", "abc"),
        both("CL with an empty TE", "Content-Length: 3\r\nTransfer-Encoding:\r\n", "abc"),
        both(
            "CL with two TE lines",
            "Transfer-Encoding: chunked\r\nContent-Length: 3\r\nTransfer-Encoding: x\r\n",
            "abc",
        ),
        both(
            "two CLs with TE",
            "Content-Length: 3\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n",
            CHUNKS,
        ),
        both(
            "CL with TE that Connection names",
            {
                "Connection: Transfer-Encoding\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n"
            },
            CHUNKS,
        ),
        both(
            "CL that Connection names with TE",
            "Connection: Content-Length\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n",
            CHUNKS,
        ),
        refuse("CL and TE in HTTP/1.0", "9112 6.1 MUST", &[400], {
            "POST /x HTTP/1.0\r\nHost: h\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\nabc"
        }),
        refuse("CL and TE of a GET", "9112 6.1", &[400], {
            "GET /x HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
        }),
    ]
}

fn bodies() -> Vec<Vector> {
    let next = "GET /next HTTP/1.1\r\nHost: h\r\n\r\n";
    vec![
        accept("a request after a body", "9112 9.3.2", {
            format!("{}{next}", post("Content-Length: 3\r\n", "abc"))
        })
        .statuses(&[200, 200])
        .seen(2),
        accept("a request after chunks", "9112 9.3.2", {
            format!("{}{next}", post("Transfer-Encoding: chunked\r\n", CHUNKS))
        })
        .statuses(&[200, 200])
        .seen(2),
        accept("a request after trailers", "9112 7.1.2", {
            let body = "1\r\na\r\n0\r\nX: y\r\n\r\n";
            format!("{}{next}", post("Transfer-Encoding: chunked\r\n", body))
        })
        .statuses(&[200, 200])
        .seen(2),
        refuse("bytes after a body that are not a request", "9112 6.3", &[200], {
            post("Content-Length: 3\r\n", "abcdef\r\n\r\n")
        })
        .statuses(&[200, 400])
        .seen(1),
        refuse("a body that ends early", "9112 8", &[400], post("Content-Length: 9\r\n", "abc"))
            .half_closed()
            .ends(crate::vector::End::Any)
            .to(crate::vector::Routes::Proxy)
            .optional(),
        refuse("chunks that end early", "9112 8", &[400], {
            post("Transfer-Encoding: chunked\r\n", "5\r\nabc")
        })
        .half_closed()
        .ends(crate::vector::End::Any)
        .to(crate::vector::Routes::Proxy)
        .optional(),
        refuse("chunks without a last one", "9112 8", &[400], {
            post("Transfer-Encoding: chunked\r\n", "1\r\na\r\n")
        })
        .half_closed()
        .ends(crate::vector::End::Any)
        .to(crate::vector::Routes::Proxy)
        .optional(),
        refuse("a head that ends early", "9112 8", &[400], "GET / HTTP/1.1\r\nHost: h\r\n")
            .half_closed()
            .ends(crate::vector::End::Any)
            .optional(),
    ]
}
