//! The cases of the Autobahn test suite that apply to a codec, with their numbers (case/*.py, version 25.10).
//! Cases 10.* are left out: they test how an endpoint fragments the messages that it sends.

use super::transcript::{SERVER, check, check_with, fails_after, masked};
use tidegate_wire::websocket::{FaultKind, Limits};

fn ones(length: usize) -> String {
    "*".repeat(length)
}

#[test]
fn group_1_messages_of_every_length_encoding_are_decoded() {
    for length in [0, 125, 126, 127, 128, 65_535, 65_536] {
        let data = ones(length);
        check(&masked(0x81, data.as_bytes()), &format!("text({data})"));
        check(&masked(0x82, data.as_bytes()), &format!("binary({data})"));
    }
}

#[test]
fn group_2_pings_and_pongs_are_decoded_and_oversized_ones_rejected() {
    check(&masked(0x89, b""), "ping()");
    check(&masked(0x89, b"Hello, world!"), "ping(Hello, world!)");
    check(
        &masked(0x89, b"\x00\xff\xfe\xfd\xfc\xfb\x00\xff"),
        "ping(\\x00\\xff\\xfe\\xfd\\xfc\\xfb\\x00\\xff)",
    );
    check(&masked(0x89, &[0xfe; 125]), &format!("ping({})", "\\xfe".repeat(125)));
    check(&masked(0x89, &[0xfe; 126]), "ControlTooLong");
    check(&masked(0x8a, b""), "pong()");
    check(&masked(0x8a, b"unsolicited"), "pong(unsolicited)");
    let bytes = [masked(0x8a, b"unsolicited"), masked(0x89, b"ping")].concat();
    check(&bytes, "pong(unsolicited) ping(ping)");
    let pings: Vec<u8> = (0..10).flat_map(|n: u8| masked(0x89, &[b'0' + n])).collect();
    let wanted: Vec<String> = (0..10).map(|n| format!("ping({n})")).collect();
    check(&pings, &wanted.join(" "));
}

#[test]
fn group_3_reserved_bits_are_rejected() {
    let hello = masked(0x81, b"Hello");
    for bits in 1..8 {
        check(&masked(0x81 | bits << 4, b"Hello"), "ReservedBit");
        let bytes = [hello.clone(), masked(0x81 | bits << 4, b"Hello"), masked(0x89, b"")];
        check(&bytes.concat(), "text(Hello) ReservedBit");
    }
    check(&masked(0x82 | 5 << 4, b"\x00\xff"), "ReservedBit");
    check(&masked(0x88 | 7 << 4, b""), "ReservedBit");
    check(&masked(0x89 | 6 << 4, b""), "ReservedBit");
}

#[test]
fn group_4_reserved_opcodes_are_rejected() {
    for opcode in [3, 4, 5, 6, 7, 11, 12, 13, 14, 15] {
        check(&masked(0x80 | opcode, b""), "OpcodeReserved");
        let bytes = [masked(0x81, b"Hello"), masked(0x80 | opcode, b"a"), masked(0x89, b"")];
        check(&bytes.concat(), "text(Hello) OpcodeReserved");
    }
}

#[test]
fn group_5_fragments_are_joined_and_wrong_orders_rejected() {
    let (ping, pong) = (masked(0x89, b"ping"), masked(0x8a, b"pong"));
    let (start, middle, end) = (masked(0x01, b"1"), masked(0x00, b"2"), masked(0x80, b"3"));
    for (case, frames, wanted) in [
        ("5.1", vec![masked(0x09, b"1"), masked(0x80, b"2")], "ControlFragmented"),
        ("5.2", vec![masked(0x0a, b"1"), masked(0x80, b"2")], "ControlFragmented"),
        ("5.3", vec![start.clone(), end.clone()], "text(13)"),
        ("5.6", vec![start.clone(), ping.clone(), end.clone()], "ping(ping) text(13)"),
        ("5.9", vec![end.clone(), masked(0x81, b"Hello")], "ContinuationUnexpected"),
        ("5.12", vec![middle.clone(), masked(0x81, b"Hello")], "ContinuationUnexpected"),
        (
            "5.15",
            vec![start.clone(), end.clone(), middle.clone()],
            "text(13) ContinuationUnexpected",
        ),
        ("5.16", vec![middle.clone(), start.clone(), end.clone()], "ContinuationUnexpected"),
        ("5.17", vec![end.clone(), start.clone(), end.clone()], "ContinuationUnexpected"),
        ("5.18", vec![start.clone(), masked(0x81, b"2")], "MessageInterrupted"),
        (
            "5.19",
            vec![start.clone(), middle.clone(), ping.clone(), middle.clone(), ping, pong, end],
            "ping(ping) ping(ping) pong(pong) text(1223)",
        ),
    ] {
        eprintln!("{case}");
        check(&frames.concat(), wanted);
    }
}

/// Complete text messages, and whether they are valid UTF-8 (cases 6.2 and 6.5 to 6.23).
const SEQUENCES: &[(&[u8], bool)] = &[
    (b"Hello-\xc2\xb5@\xc3\x9f\xc3\xb6\xc3\xa4\xc3\xbc\xc3\xa0\xc3\xa1-UTF-8!!", true),
    (b"\xce\xba\xe1\xbd\xb9\xcf\x83\xce\xbc\xce\xb5", true),
    (b"\xce\xba\xe1\xbd\xb9\xcf\x83\xce\xbc\xce\xb5\xed\xa0\x80edited", false),
    (b"", true),
    (b"\xce", false),
    (b"\xce\xba", true),
    (b"\xce\xba\xe1", false),
    (b"\xce\xba\xe1\xbd", false),
    (b"\xce\xba\xe1\xbd\xb9", true),
    (b"\xce\xba\xe1\xbd\xb9\xcf", false),
    (b"\x00", true),
    (b"\xc2\x80", true),
    (b"\xe0\xa0\x80", true),
    (b"\xf0\x90\x80\x80", true),
    (b"\xf8\x88\x80\x80\x80", false),
    (b"\xfc\x84\x80\x80\x80\x80", false),
    (b"\x7f", true),
    (b"\xdf\xbf", true),
    (b"\xef\xbf\xbf", true),
    (b"\xf4\x8f\xbf\xbf", true),
    (b"\xf7\xbf\xbf\xbf", false),
    (b"\xfb\xbf\xbf\xbf\xbf", false),
    (b"\xfd\xbf\xbf\xbf\xbf\xbf", false),
    (b"\xed\x9f\xbf", true),
    (b"\xee\x80\x80", true),
    (b"\xef\xbf\xbd", true),
    (b"\xf4\x90\x80\x80", false),
    (b"\x80", false),
    (b"\xbf", false),
    (b"\x80\xbf", false),
    (b"\x80\xbf\x80\xbf\x80\xbf", false),
    (b"\xc0 \xc1 \xc2 ", false),
    (b"\xe0 \xe1 ", false),
    (b"\xf0 \xf1 ", false),
    (b"\xf8 ", false),
    (b"\xfc ", false),
    (b"\xc0", false),
    (b"\xe0\x80", false),
    (b"\xf0\x80\x80", false),
    (b"\xdf", false),
    (b"\xef\xbf", false),
    (b"\xf7\xbf\xbf", false),
    (b"\xfe", false),
    (b"\xff", false),
    (b"\xfe\xfe\xff\xff", false),
    (b"\xc0\xaf", false),
    (b"\xe0\x80\xaf", false),
    (b"\xf0\x80\x80\xaf", false),
    (b"\xf8\x80\x80\x80\xaf", false),
    (b"\xc1\xbf", false),
    (b"\xe0\x9f\xbf", false),
    (b"\xf0\x8f\xbf\xbf", false),
    (b"\xc0\x80", false),
    (b"\xe0\x80\x80", false),
    (b"\xf0\x80\x80\x80", false),
    (b"\xed\xa0\x80", false),
    (b"\xed\xad\xbf", false),
    (b"\xed\xae\x80", false),
    (b"\xed\xbf\xbf", false),
    (b"\xed\xa0\x80\xed\xb0\x80", false),
    (b"\xed\xaf\xbf\xed\xbf\xbf", false),
    (b"\xef\xbf\xbe", true),
    (b"\xf0\x9f\xbf\xbe", true),
    (b"\xf3\xaf\xbf\xbf", true),
    (b"\xef\xbf\xb9\xef\xbf\xba\xef\xbf\xbb\xef\xbf\xbc", true),
];

#[test]
fn group_6_texts_are_valid_utf8_in_one_frame_and_in_every_fragmentation() {
    for (text, is_valid) in SEQUENCES {
        let long = [&[b'x'; 100], *text, &[b'y'; 70]].concat();
        for text in [*text, &long] {
            let wanted = match std::str::from_utf8(text) {
                Ok(text) => format!("text({text})"),
                Err(_) => "TextInvalid".to_owned(),
            };
            // A start byte without its continuation bytes is also invalid within a longer text.
            assert_eq!(wanted != "TextInvalid", *is_valid, "{text:x?}");
            check(&masked(0x81, text), &wanted);
            for cut in 0..=text.len() {
                let (start, end) = text.split_at(cut);
                let bytes = [masked(0x01, start), masked(0x89, b""), masked(0x80, end)].concat();
                let got =
                    super::transcript::pieces(SERVER, &Limits::default(), &bytes, bytes.len());
                assert!(got.ends_with(&wanted), "{text:x?} at {cut}: {got}");
            }
        }
    }
}

#[test]
fn group_6_1_empty_fragments_of_a_text_are_joined() {
    check(&masked(0x81, b""), "text()");
    let bytes = [masked(0x01, b""), masked(0x00, b""), masked(0x80, b"")].concat();
    check(&bytes, "text()");
    let bytes = [masked(0x01, b""), masked(0x00, b"middle"), masked(0x80, b"")].concat();
    check(&bytes, "text(middle)");
}

#[test]
fn group_6_4_invalid_text_fails_at_its_first_invalid_byte() {
    let kosme = "\u{3ba}\u{1f79}\u{3c3}\u{3bc}\u{3b5}".as_bytes();
    // 6.4.1: the second fragment is invalid. 6.4.2: the second byte of that fragment is invalid.
    for (second, third, invalid_at) in [
        (&b"\xf4\x90\x80\x80"[..], &b"edited"[..], 2),
        (b"\xf4", b"\x90\x80\x80edited", 2),
        (b"\xed\xa0\x80", b"edited", 2),
        (b"\xff", b"", 1),
    ] {
        let first = masked(0x01, kosme);
        let second_frame = masked(0x00, second);
        let bytes = [first.clone(), second_frame.clone(), masked(0x80, third)].concat();
        let wanted = if invalid_at <= second.len() {
            first.len() + 6 + invalid_at
        } else {
            first.len() + second_frame.len() + 6 + invalid_at - second.len()
        };
        assert_eq!(fails_after(&bytes), Some((wanted, FaultKind::TextInvalid)));
    }
    // 6.4.3 and 6.4.4: the same within one frame that arrives in pieces.
    let text = [kosme, b"\xf4\x90\x80\x80edited"].concat();
    let bytes = masked(0x81, &text);
    assert_eq!(fails_after(&bytes), Some((6 + kosme.len() + 2, FaultKind::TextInvalid)));
}

#[test]
fn group_7_close_frames_are_decoded_and_invalid_ones_rejected() {
    let close = |code: u16, reason: &str| {
        masked(0x88, &[&code.to_be_bytes()[..], reason.as_bytes()].concat())
    };
    let normal = close(1000, "");
    let hello = masked(0x81, b"Hello");
    for (case, bytes, wanted) in [
        ("7.1.1", [hello.clone(), normal.clone()].concat(), "text(Hello) close(1000 )"),
        ("7.1.2", [normal.clone(), normal.clone()].concat(), "close(1000 )"),
        ("7.1.3", [normal.clone(), masked(0x89, b"")].concat(), "close(1000 )"),
        ("7.1.4", [normal.clone(), hello].concat(), "close(1000 )"),
        (
            "7.1.5",
            [masked(0x01, b"1"), normal.clone(), masked(0x80, b"2")].concat(),
            "close(1000 ) more",
        ),
        ("7.3.1", masked(0x88, b""), "close()"),
        ("7.3.2", masked(0x88, b"a"), "CloseTruncated"),
        ("7.3.3", normal, "close(1000 )"),
        ("7.3.4", close(1000, "Hello World!"), "close(1000 Hello World!)"),
        ("7.5.1", masked(0x88, b"\x03\xe8\xce\xba\xe1\xbd\xb9\xed\xa0\x80"), "CloseReasonInvalid"),
    ] {
        eprintln!("{case}");
        check(&bytes, wanted);
    }
    check(&close(1000, &ones(123)), &format!("close(1000 {})", ones(123)));
    check(&close(1000, &ones(124)), "ControlTooLong");
    for code in [1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 3000, 3999, 4000, 4999] {
        check(&close(code, ""), &format!("close({code} )"));
    }
    for code in [0, 999, 1004, 1005, 1006, 1016, 1100, 2000, 2999, 5000, 65_535] {
        check(&close(code, ""), "CloseCodeInvalid");
    }
}

#[test]
fn group_9_large_messages_are_decoded_whole_and_in_fragments() {
    const MIB: usize = 1 << 20;
    let limits = Limits {
        frame_bytes_max: 16 * MIB as u32,
        message_bytes_max: 16 * MIB as u32,
        ..Limits::default()
    };
    for length in [MIB / 16, MIB / 4, MIB, 4 * MIB, 16 * MIB] {
        let data = ones(length);
        check_with(SERVER, &limits, &masked(0x81, data.as_bytes()), &format!("text({data})"));
        check_with(SERVER, &limits, &masked(0x82, data.as_bytes()), &format!("binary({data})"));
    }
    let data = ones(4 * MIB);
    for fragment in [64, 256, 1024, 4096, 16_384, 65_536, 262_144, MIB, 4 * MIB] {
        let mut bytes = Vec::new();
        for (index, piece) in data.as_bytes().chunks(fragment).enumerate() {
            let opcode = if index == 0 { 1 } else { 0 };
            let fin = if (index + 1) * fragment == data.len() { 0x80 } else { 0 };
            bytes.extend(masked(fin | opcode, piece));
        }
        check_with(SERVER, &limits, &bytes, &format!("text({data})"));
    }
}
