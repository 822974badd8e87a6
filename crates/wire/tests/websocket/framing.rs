//! Each MUST of RFC 6455 sections 5 to 7 that a receiver can check, and what the encoder must produce.

use super::transcript::{
    CLIENT, DEFLATE_SERVER, SERVER, TEST_KEY, check, check_with, fails_after, masked, pieces,
    unmasked,
};
use tidegate_wire::websocket::{
    Close, CloseCode, Closing, ControlTooLong, Decoder, Event, FaultKind, Fragment, Kind, Limits,
    encode_close, encode_close_reply, encode_fragment, encode_message, encode_ping, encode_pong,
};

#[test]
fn examples_of_section_5_7_are_decoded() {
    let limits = Limits::default();
    for (bytes, wanted) in [
        (&b"\x81\x05Hello"[..], "text(Hello)"),
        (b"\x01\x03Hel\x80\x02lo", "text(Hello)"),
        (b"\x89\x05Hello", "ping(Hello)"),
        (b"\x8a\x05Hello", "pong(Hello)"),
    ] {
        check_with(CLIENT, &limits, bytes, wanted);
    }
    check(b"\x81\x85\x37\xfa\x21\x3d\x7f\x9f\x4d\x51\x58", "text(Hello)");
    check(b"\x8a\x85\x37\xfa\x21\x3d\x7f\x9f\x4d\x51\x58", "pong(Hello)");
    let mut long = b"\x82\x7e\x01\x00".to_vec();
    long.extend([b'a'; 256]);
    check_with(CLIENT, &limits, &long, &format!("binary({})", "a".repeat(256)));
    let mut longer = b"\x82\x7f\0\0\0\0\0\x01\0\0".to_vec();
    longer.extend([b'a'; 65_536]);
    check_with(CLIENT, &limits, &longer, &format!("binary({})", "a".repeat(65_536)));
}

#[test]
fn server_rejects_unmasked_frames_and_client_rejects_masked_frames() {
    check(&unmasked(0x81, b"a"), "MaskMissing");
    check(&unmasked(0x89, b""), "MaskMissing");
    check_with(CLIENT, &Limits::default(), &masked(0x81, b"a"), "MaskUnexpected");
    check_with(CLIENT, &Limits::default(), &masked(0x88, b""), "MaskUnexpected");
}

#[test]
fn reserved_bits_need_an_extension() {
    for bits in [0x10, 0x20, 0x30, 0x40, 0x50, 0x60, 0x70] {
        for first in [0x81, 0x82, 0x88, 0x89, 0x8a, 0x01] {
            check(&masked(first | bits, b""), "ReservedBit");
        }
    }
    let limits = Limits::default();
    for bits in [0x10, 0x20, 0x30, 0x50] {
        let bytes = masked(0x81 | bits, b"");
        assert_eq!(pieces(DEFLATE_SERVER, &limits, &bytes, 9), "ReservedBit");
    }
}

#[test]
fn reserved_opcodes_are_rejected() {
    for opcode in (3..8).chain(11..16) {
        check(&masked(0x80 | opcode, b"a"), "OpcodeReserved");
        check(&masked(opcode, b""), "OpcodeReserved");
        let bytes = [masked(0x01, b"a"), masked(0x80 | opcode, b"")].concat();
        check(&bytes, "OpcodeReserved");
    }
}

#[test]
fn length_must_be_minimal_and_below_two_to_the_63() {
    let limits = Limits::default();
    for (bytes, wanted) in [
        (&b"\x82\x7e\x00\x7d"[..], "LengthNotMinimal"),
        (b"\x82\x7e\x00\x00", "LengthNotMinimal"),
        (b"\x82\x7f\0\0\0\0\0\0\xff\xff", "LengthNotMinimal"),
        (b"\x82\x7f\x80\0\0\0\0\0\0\0", "LengthInvalid"),
        (b"\x82\x7f\xff\xff\xff\xff\xff\xff\xff\xff", "LengthInvalid"),
        (b"\x82\x7f\x7f\xff\xff\xff\xff\xff\xff\xff", "FrameTooLarge"),
    ] {
        check_with(CLIENT, &limits, bytes, wanted);
    }
}

#[test]
fn control_frames_are_short_and_whole() {
    for opcode in [8, 9, 10] {
        check(&masked(0x80 | opcode, &[b'a'; 126]), "ControlTooLong");
        check(&masked(0x80 | opcode, &[b'a'; 70_000]), "ControlTooLong");
        check(&masked(opcode, b""), "ControlFragmented");
    }
    let most = "a".repeat(125);
    check(&masked(0x89, most.as_bytes()), &format!("ping({most})"));
    check(&masked(0x8a, most.as_bytes()), &format!("pong({most})"));
    check(&masked(0x89, b""), "ping()");
}

#[test]
fn control_frames_may_come_between_fragments() {
    let bytes = [
        masked(0x01, "a\u{20ac}".as_bytes().split_at(2).0),
        masked(0x89, b"1"),
        masked(0x00, b""),
        masked(0x8a, b"2"),
        masked(0x80, "a\u{20ac}".as_bytes().split_at(2).1),
    ];
    check(&bytes.concat(), "ping(1) pong(2) text(a\u{20ac})");
    let bytes = [masked(0x02, b"a"), masked(0x88, b"")].concat();
    check(&bytes, "close() more");
}

#[test]
fn fragments_out_of_order_are_rejected() {
    check(&masked(0x80, b"a"), "ContinuationUnexpected");
    check(&masked(0x00, b"a"), "ContinuationUnexpected");
    for first in [0x01, 0x81, 0x02, 0x82] {
        let bytes = [masked(0x01, b"a"), masked(first, b"b")].concat();
        check(&bytes, "MessageInterrupted");
    }
    let bytes = [masked(0x82, b"a"), masked(0x80, b"b")].concat();
    check(&bytes, "binary(a) ContinuationUnexpected");
}

#[test]
fn close_body_is_checked() {
    for (payload, wanted) in [
        (&b""[..], "close()"),
        (b"\x03", "CloseTruncated"),
        (b"\x03\xe8", "close(1000 )"),
        (b"\x03\xe8bye", "close(1000 bye)"),
        (b"\x03\xed", "CloseCodeInvalid"),
        (b"\x03\xe8\xff", "CloseReasonInvalid"),
        (b"\x03\xe8\xe2\x82", "CloseReasonInvalid"),
    ] {
        check(&masked(0x88, payload), wanted);
    }
}

#[test]
fn nothing_is_read_after_a_close_frame() {
    let bytes = [masked(0x88, b""), masked(0x81, b"a"), b"\xff\xff".to_vec()].concat();
    check(&bytes, "close()");
}

#[test]
fn closing_handshake_is_done_after_both_close_frames() {
    let limits = Limits::default();
    let mut decoder = Decoder::new(SERVER);
    assert_eq!(decoder.closing(), Closing::No);
    decoder.decode(&mut masked(0x88, b""), &limits).unwrap();
    assert_eq!(decoder.closing(), Closing::Received);
    decoder.note_close_sent();
    assert_eq!(decoder.closing(), Closing::Done);
    decoder.note_close_sent();
    assert_eq!(decoder.closing(), Closing::Done);

    let mut decoder = Decoder::new(SERVER);
    decoder.note_close_sent();
    assert_eq!(decoder.closing(), Closing::Sent);
    let mut message = masked(0x81, b"late");
    let step = decoder.decode(&mut message, &limits).unwrap();
    assert!(matches!(step.event, Some(Event::Data(_))), "messages may arrive until the Close");
    decoder.decode(&mut masked(0x88, b"\x03\xe8"), &limits).unwrap();
    assert_eq!(decoder.closing(), Closing::Done);
    decoder.fail();
    assert_eq!(decoder.closing(), Closing::Failed);
}

#[test]
fn faults_do_not_wait_for_further_bytes() {
    for (bytes, after, kind) in [
        (vec![0xc1], 1, FaultKind::ReservedBit),
        (vec![0x83], 1, FaultKind::OpcodeReserved),
        (vec![0x80], 1, FaultKind::ContinuationUnexpected),
        (vec![0x09], 1, FaultKind::ControlFragmented),
        (vec![0x81, 0x01], 2, FaultKind::MaskMissing),
        (vec![0x89, 0xfe], 2, FaultKind::ControlTooLong),
        (vec![0x81, 0xfe, 0, 125], 4, FaultKind::LengthNotMinimal),
        ([masked(0x01, b""), vec![0x81]].concat(), 7, FaultKind::MessageInterrupted),
    ] {
        assert_eq!(fails_after(&bytes), Some((after, kind)), "{bytes:x?}");
    }
}

#[test]
fn values_at_a_limit_are_accepted_and_one_beyond_is_rejected() {
    let limits = Limits { frame_bytes_max: 10, message_bytes_max: 15, ..Limits::default() };
    let sized = |sizes: &[usize]| {
        let frame = |(index, &size): (usize, &usize)| {
            let opcode = if index == 0 { 2 } else { 0 };
            let fin = if index + 1 == sizes.len() { 0x80 } else { 0 };
            masked(fin | opcode, &vec![b'a'; size])
        };
        sizes.iter().enumerate().flat_map(frame).collect::<Vec<u8>>()
    };
    check_with(SERVER, &limits, &sized(&[10]), "binary(aaaaaaaaaa)");
    check_with(SERVER, &limits, &sized(&[11]), "FrameTooLarge");
    check_with(SERVER, &limits, &sized(&[10, 5]), "binary(aaaaaaaaaaaaaaa)");
    check_with(SERVER, &limits, &sized(&[10, 6]), "MessageTooLarge");
    check_with(
        SERVER,
        &limits,
        &[sized(&[10, 5]), sized(&[10, 5])].concat(),
        "binary(aaaaaaaaaaaaaaa) binary(aaaaaaaaaaaaaaa)",
    );
    let limits = Limits { fragments_max: 3, ..Limits::default() };
    check_with(SERVER, &limits, &sized(&[1, 0, 0]), "binary(a)");
    check_with(SERVER, &limits, &sized(&[1, 0, 0, 0]), "TooManyFragments");
    let limits =
        Limits { frame_bytes_max: u32::MAX, message_bytes_max: u32::MAX, ..Limits::default() };
    check_with(SERVER, &limits, b"\x82\xff\0\0\0\0\xff\xff\xff\xff\0\0\0\0", "more");
    check_with(SERVER, &limits, b"\x82\xff\0\0\0\x01\0\0\0\0\0\0\0\0", "FrameTooLarge");
}

#[test]
fn limit_is_checked_before_the_payload_arrives() {
    let limits = Limits { message_bytes_max: 10, ..Limits::default() };
    let mut head = masked(0x82, &[0; 11]);
    head.truncate(6);
    assert_eq!(pieces(SERVER, &limits, &head, 6), "MessageTooLarge");
}

#[test]
fn encoder_uses_the_shortest_length_and_the_given_key() {
    for length in [0, 1, 125, 126, 65_535, 65_536] {
        let data = vec![b'x'; length];
        let mut out = Vec::new();
        encode_message(&mut out, Kind::Binary, &data, None);
        assert_eq!(out, unmasked(0x82, &data));
        out.clear();
        encode_message(&mut out, Kind::Text, &data, Some(TEST_KEY));
        assert_eq!(out, masked(0x81, &data));
    }
}

#[test]
fn fragments_are_encoded_as_continuations() {
    let mut out = Vec::new();
    let whole = Fragment::whole(Kind::Text);
    encode_fragment(&mut out, Fragment { is_last: false, ..whole }, b"a", None);
    encode_fragment(&mut out, Fragment { is_first: false, is_last: false, ..whole }, b"b", None);
    encode_fragment(&mut out, Fragment { is_first: false, ..whole }, b"c", None);
    assert_eq!(out, b"\x01\x01a\x00\x01b\x80\x01c");
    check_with(CLIENT, &Limits::default(), &out, "text(abc)");
}

#[test]
fn control_frames_are_encoded_and_long_payloads_refused() {
    let mut out = Vec::new();
    encode_ping(&mut out, b"1", None).unwrap();
    encode_pong(&mut out, b"2", Some(TEST_KEY)).unwrap();
    encode_close(&mut out, None, None);
    encode_close(&mut out, Some(Close { code: CloseCode::NORMAL, reason: "bye" }), None);
    let wanted =
        [&b"\x89\x011"[..], &masked(0x8a, b"2"), b"\x88\x00", b"\x88\x05\x03\xe8bye"].concat();
    assert_eq!(out, wanted);
    assert_eq!(encode_ping(&mut out, &[0; 126], None), Err(ControlTooLong));
    assert_eq!(encode_pong(&mut out, &[0; 126], None), Err(ControlTooLong));
    assert_eq!(out, wanted);
    out.clear();
    let long = "é".repeat(200);
    encode_close(&mut out, Some(Close { code: CloseCode::NORMAL, reason: &long }), None);
    assert_eq!(out[1], 124);
    out.clear();
    let received = Close { code: CloseCode::GOING_AWAY, reason: "bye" };
    encode_close_reply(&mut out, Some(received), None);
    encode_close_reply(&mut out, None, None);
    assert_eq!(out, b"\x88\x02\x03\xe9\x88\x00");
}

#[test]
fn decoder_between_messages_is_small_and_holds_no_buffer() {
    assert!(size_of::<Decoder>() <= 32);
    let limits = Limits::default();
    let mut decoder = Decoder::new(SERVER);
    let mut ping = masked(0x89, b"12");
    let (start, end) = ping.split_at_mut(7);
    assert!(decoder.decode(start, &limits).unwrap().event.is_none());
    assert!(!decoder.is_between_messages());
    assert_eq!(decoder.decode(end, &limits).unwrap().event, Some(Event::Ping(b"12")));
    assert!(decoder.is_between_messages());
    decoder.release();
    assert!(decoder.is_between_messages());
    decoder.decode(&mut [0x81], &limits).unwrap();
    assert!(!decoder.is_between_messages() && !decoder.is_in_message());
}
