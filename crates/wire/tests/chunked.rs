//! Chunked bodies with their verdicts (RFC 9112 section 7.1).
//!
//! A verdict is the name of the fault; the data and "more" for an incomplete body; or the data, the
//! number of bytes after the body, and the trailers.

use tidegate_base::limits::{
    CHUNK_EXTENSION_BYTES_MAX, CHUNK_EXTENSION_EXCESS_BYTES_MAX, TRAILER_BYTES_MAX,
};
use tidegate_wire::http1::{BodyDecoder, BodyStep};
use tidegate_wire::message::BodyLength;

fn verdict(input: &[u8], step: usize, accepts_blanks: bool) -> String {
    let mut decoder = BodyDecoder::new(BodyLength::Streamed).accepting_blanks(accepts_blanks);
    let mut data = Vec::new();
    let mut at = 0;
    while at < input.len() && !decoder.is_done() {
        match decoder.decode(&input[at..(at + step).min(input.len())]) {
            Ok(BodyStep { consumed, data: piece, .. }) => {
                assert!(consumed > 0);
                data.extend_from_slice(piece);
                at += consumed;
            }
            Err(fault) => return fault.kind.name().to_owned(),
        }
    }
    let data = String::from_utf8(data).unwrap();
    if !decoder.is_done() {
        assert!(decoder.handle_end().is_err());
        return format!("{data} more");
    }
    assert!(decoder.handle_end().is_ok());
    let trailers = String::from_utf8(decoder.trailers().to_vec()).unwrap();
    format!("{data} {}{}", input.len() - at, trailers.replace("\r\n", ";"))
}

fn check(input: &str, wanted: &str) {
    check_with(false, input, wanted);
}

fn check_with(accepts_blanks: bool, input: &str, wanted: &str) {
    for step in [input.len(), 1, 2, 3, 5] {
        let verdict = verdict(input.as_bytes(), step, accepts_blanks);
        assert_eq!(verdict, wanted, "pieces of {step} bytes: {input:?}");
    }
}

#[test]
fn blanks_may_follow_a_chunk_size_if_the_decoder_accepts_them() {
    let padded = format!("1{}\r\na\r\n0\r\n\r\n", " ".repeat(CHUNK_EXTENSION_BYTES_MAX));
    let too_long = format!("1{}\r\na\r\n0\r\n\r\n", " ".repeat(CHUNK_EXTENSION_BYTES_MAX + 1));
    for (input, strict, lenient) in [
        ("1 \r\na\r\n0\r\n\r\n", "ChunkSizeInvalid", "a 0"),
        ("1\t \r\na\r\n0  \r\n\r\nGET", "ChunkSizeInvalid", "a 3"),
        (&padded, "ChunkSizeInvalid", "a 0"),
        (&too_long, "ChunkExtensionTooLong", "ChunkExtensionTooLong"),
        ("1 ;a\r\na\r\n0\r\n\r\n", "a 0", "a 0"),
        (" 1\r\na\r\n0\r\n\r\n", "ChunkSizeInvalid", "ChunkSizeInvalid"),
        ("1 1\r\na\r\n0\r\n\r\n", "ChunkSizeInvalid", "ChunkSizeInvalid"),
        ("1 \na\r\n0\r\n\r\n", "ChunkSizeInvalid", "ChunkSizeInvalid"),
        ("1 \ra\r\n0\r\n\r\n", "ChunkSizeInvalid", "BareCr"),
        ("1\na\r\n0\r\n\r\n", "BareLf", "BareLf"),
        ("1 \0\r\na\r\n0\r\n\r\n", "ChunkSizeInvalid", "ChunkSizeInvalid"),
    ] {
        check_with(false, input, strict);
        check_with(true, input, lenient);
    }
}

#[test]
fn chunk_sizes_and_ends_are_decoded_or_rejected() {
    for (input, wanted) in [
        ("0\r\n\r\n", " 0"),
        ("5\r\nhello\r\n0\r\n\r\n", "hello 0"),
        ("5\r\nhello\r\n0\r\n\r\nGET", "hello 3"),
        ("5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n", "hello world 0"),
        ("1\r\n\r\r\n1\r\n\n\r\n0\r\n\r\n", "\r\n 0"),
        ("A\r\n0123456789\r\n0\r\n\r\n", "0123456789 0"),
        ("a\r\n0123456789\r\n0\r\n\r\n", "0123456789 0"),
        ("000a\r\n0123456789\r\n0\r\n\r\n", "0123456789 0"),
        ("0000000000000001\r\na\r\n0\r\n\r\n", "a 0"),
        ("5\r\nhello\r\n0000\r\n\r\n", "hello 0"),
        ("7fffffffffffffff\r\na", "a more"),
        ("5\r\nhello\r\n", "hello more"),
        ("5\r\nhel", "hel more"),
        ("5\r\nhello\r\n0\r\n", "hello more"),
        ("5\r\nhello\r\n0\r\n\r", "hello more"),
        ("8000000000000000\r\n", "ChunkSizeTooLarge"),
        ("ffffffffffffffff\r\n", "ChunkSizeTooLarge"),
        ("10000000000000005\r\n", "ChunkSizeTooLarge"),
        ("00000000000000005\r\n", "ChunkSizeTooLarge"),
        ("\r\n", "ChunkSizeInvalid"),
        ("\n", "ChunkSizeInvalid"),
        (";a\r\n", "ChunkSizeInvalid"),
        ("+5\r\nhello", "ChunkSizeInvalid"),
        ("-5\r\nhello", "ChunkSizeInvalid"),
        ("-0\r\n\r\n", "ChunkSizeInvalid"),
        ("0x5\r\nhello", "ChunkSizeInvalid"),
        ("0X5\r\nhello", "ChunkSizeInvalid"),
        ("5_0\r\nhello", "ChunkSizeInvalid"),
        ("5.\r\nhello", "ChunkSizeInvalid"),
        ("5h\r\nhello", "ChunkSizeInvalid"),
        ("g\r\n", "ChunkSizeInvalid"),
        ("\"5\"\r\nhello", "ChunkSizeInvalid"),
        (" 5\r\nhello", "ChunkSizeInvalid"),
        ("\t5\r\nhello", "ChunkSizeInvalid"),
        ("5 \r\nhello", "ChunkSizeInvalid"),
        ("5\t\r\nhello", "ChunkSizeInvalid"),
        ("5 5\r\nhello", "ChunkSizeInvalid"),
        ("5,5\r\nhello", "ChunkSizeInvalid"),
        ("5\0\r\nhello", "ChunkSizeInvalid"),
        ("5\x0b\r\nhello", "ChunkSizeInvalid"),
        ("\u{ff15}\r\nhello", "ChunkSizeInvalid"),
        ("5\nhello\r\n", "BareLf"),
        ("5\rhello\r\n", "BareCr"),
        ("5\r\r\nhello\r\n", "BareCr"),
        ("5\r\nhelloX", "ChunkEndMissing"),
        ("5\r\nhello\n0\r\n\r\n", "ChunkEndMissing"),
        ("5\r\nhello\r0\r\n\r\n", "ChunkEndMissing"),
        ("5\r\nhello0\r\n\r\n", "ChunkEndMissing"),
        ("5\r\nhello \r\n0\r\n\r\n", "ChunkEndMissing"),
        ("4\r\nhello\r\n0\r\n\r\n", "ChunkEndMissing"),
        ("5\r\nhello\r\n\r\n0\r\n\r\n", "ChunkSizeInvalid"),
        ("5\r\nhello\r\n0\r\n\n", "BareLf"),
        ("5\r\nhello\r\n0\n\r\n", "BareLf"),
        ("0\r\n\rX", "BareCr"),
    ] {
        check(input, wanted);
    }
}

#[test]
fn chunk_extensions_are_skipped_or_rejected() {
    for (extension, wanted) in [
        (";a", "a 0"),
        (";a=b", "a 0"),
        (";a=b;c;d=e", "a 0"),
        (" ; a = b ; c", "a 0"),
        (";a=\"b\"", "a 0"),
        (";a=\"b;\\\"\tc \"", "a 0"),
        (";a=\"\"", "a 0"),
        (";a=\"b\" ;c", "a 0"),
        (";", "ChunkExtensionInvalid"),
        ("; ", "ChunkExtensionInvalid"),
        (";;", "ChunkExtensionInvalid"),
        (";=b", "ChunkExtensionInvalid"),
        (";a=", "ChunkExtensionInvalid"),
        (";a=;b", "ChunkExtensionInvalid"),
        (";a ", "ChunkExtensionInvalid"),
        (";a b", "ChunkExtensionInvalid"),
        (";a=b c", "ChunkExtensionInvalid"),
        (";a=b=c", "ChunkExtensionInvalid"),
        (";a=\"b\"c", "ChunkExtensionInvalid"),
        (";a=\"b", "ChunkExtensionInvalid"),
        (";a,b", "ChunkExtensionInvalid"),
        (";\u{e9}", "ChunkExtensionInvalid"),
        (";a\0", "ControlByte"),
        (";a=\"\0\"", "ControlByte"),
        (";a\x0b", "ControlByte"),
        (";a\n", "BareLf"),
        (";a=\"\n\"", "BareLf"),
        (";\n", "BareLf"),
        (";a\r", "BareCr"),
    ] {
        check(&format!("1{extension}\r\na\r\n0\r\n\r\n"), wanted);
    }
    let longest = "a".repeat(CHUNK_EXTENSION_BYTES_MAX - 1);
    check(&format!("1;{longest}\r\na\r\n1;{longest}\r\nb\r\n0\r\n\r\n"), "ab 0");
    check(&format!("1;{longest}a\r\na\r\n0\r\n\r\n"), "ChunkExtensionTooLong");
    check(&format!("1{}", " ".repeat(CHUNK_EXTENSION_BYTES_MAX + 1)), "ChunkExtensionTooLong");
}

#[test]
fn extensions_may_not_exceed_the_data_by_more_than_the_limit() {
    let extension = "a".repeat(CHUNK_EXTENSION_BYTES_MAX - 1);
    // Each of these chunks has 256 bytes of extension, including the semicolon, and one byte of data.
    let most = CHUNK_EXTENSION_EXCESS_BYTES_MAX / CHUNK_EXTENSION_BYTES_MAX;
    let flood = |count: usize| format!("1;{extension}\r\nx\r\n").repeat(count);
    check(&format!("{}0\r\n\r\n", flood(most)), &format!("{} 0", "x".repeat(most)));
    check(&flood(most + 2), "ChunkExtensionTooLong");
    let data = "y".repeat(300);
    let balanced = format!("12c;{extension}\r\n{data}\r\n").repeat(4 * most);
    check(&format!("{balanced}0\r\n\r\n"), &format!("{} 0", data.repeat(4 * most)));
}

#[test]
fn trailers_are_decoded_or_rejected() {
    for (section, wanted) in [
        ("A: b\r\n", "a 0A: b;"),
        ("A:b\r\nC:\t d \r\n", "a 0A: b;C: d;"),
        ("A:\r\n", "a 0A: ;"),
        ("Content-Length: 5\r\nTransfer-Encoding: chunked\r\nA: b\r\n", "a 0A: b;"),
        ("host: x\r\nAuthorization: y\r\nSet-Cookie: z\r\n", "a 0"),
        ("X-Forwarded-For: x\r\nif-none-match: y\r\n", "a 0"),
        ("A : b\r\n", "SpaceBeforeColon"),
        ("A\r\n", "FieldNameInvalid"),
        (": b\r\n", "FieldNameEmpty"),
        (" A: b\r\n", "ObsFold"),
        ("A: b\r\n c\r\n", "ObsFold"),
        ("A: b\n", "BareLf"),
        ("A: b\rC: d\r\n", "BareCr"),
        ("A: \0\r\n", "ControlByte"),
        ("GET / HTTP/1.1\r\n", "FieldNameInvalid"),
    ] {
        check(&format!("1\r\na\r\n0\r\n{section}\r\n"), wanted);
    }
    let line = format!("A: {}\r\n", "b".repeat(TRAILER_BYTES_MAX));
    check(&format!("0\r\n{line}\r\n"), "TrailerTooLarge");
    check(&format!("0\r\n{}\r\n", "A: b\r\n".repeat(101)), "TooManyFields");
    let all = "A: b;".repeat(100);
    check(&format!("0\r\n{}\r\n", "A: b\r\n".repeat(100)), &format!(" 0{all}"));
}

#[test]
fn bodies_with_a_length_and_bodies_until_close_end_correctly() {
    let mut none = BodyDecoder::new(BodyLength::None);
    assert!(none.is_done() && none.handle_end().is_ok());
    assert!(BodyDecoder::new(BodyLength::Length(0)).is_done());

    let mut counted = BodyDecoder::new(BodyLength::Length(5));
    let step = counted.decode(b"hel").unwrap();
    assert_eq!(step, BodyStep { consumed: 3, data: b"hel", done: false });
    let step = counted.decode(b"loGET").unwrap();
    assert_eq!(step, BodyStep { consumed: 2, data: b"lo", done: true });
    assert_eq!(counted.decode(b"GET").unwrap(), BodyStep { consumed: 0, data: b"", done: true });

    let mut cut = BodyDecoder::new(BodyLength::Length(5));
    cut.decode(b"hel").unwrap();
    assert_eq!(cut.handle_end().unwrap_err().kind.name(), "BodyTruncated");

    let mut open = BodyDecoder::new(BodyLength::UntilClose);
    assert_eq!(open.decode(b"x").unwrap(), BodyStep { consumed: 1, data: b"x", done: false });
    assert!(open.handle_end().is_ok() && open.is_done());
}

#[test]
fn last_chunk_is_consumed_with_the_last_data() {
    let mut decoder = BodyDecoder::new(BodyLength::Streamed);
    let step = decoder.decode(b"5\r\nhello\r\n0\r\n\r\nGET").unwrap();
    assert_eq!(step, BodyStep { consumed: 15, data: b"hello", done: true });
}

#[test]
fn dropped_trailers_are_still_validated() {
    let whole = |input: &[u8]| {
        let mut decoder = BodyDecoder::new(BodyLength::Streamed).dropping_trailers(true);
        let step = decoder.decode(input).map_err(|fault| fault.kind.name());
        step.map(|step| (step.consumed, decoder.is_done(), decoder.trailers().to_vec()))
    };
    assert_eq!(whole(b"0\r\nX-Sum: 1\r\n\r\nGET"), Ok((15, true, Vec::new())));
    assert_eq!(whole(b"0\r\nX-Sum : 1\r\n\r\n"), Err("SpaceBeforeColon"));
}
