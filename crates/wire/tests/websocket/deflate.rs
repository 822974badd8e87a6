//! Compressed messages (RFC 7692 sections 6 and 7.2): the examples, the rules of RSV1, limits, and Autobahn's
//! groups 12 and 13.

use super::transcript::{CLIENT, DEFLATE_SERVER, SERVER, check_with, masked, messages, pieces};
use tidegate_base::Prng;
use tidegate_wire::websocket::{
    DeflateParameters, Deflater, Effort, FaultKind, FrameRules, Inflater, Kind, Limits, Role,
    deflated_frame, encode_deflated,
};

const DEFLATE_CLIENT: FrameRules = FrameRules { role: Role::Client, allows_deflate: true };
const EFFORT: Effort = Effort { level: 6, memory_level: 8 };

/// Checks compressed frames with a shared inflater and with one of the connection.
#[track_caller]
fn check(rules: FrameRules, limits: &Limits, bytes: &[u8], wanted: &str) {
    for step in [bytes.len(), 1, 2, 5, 100] {
        let mut shared = Inflater::shared();
        assert_eq!(
            messages(rules, limits, Some(&mut shared), bytes, step),
            wanted,
            "shared {step}"
        );
        let mut own = Inflater::for_connection(15);
        assert_eq!(messages(rules, limits, Some(&mut own), bytes, step), wanted, "own {step}");
    }
}

#[test]
fn examples_of_section_7_2_3_are_decompressed() {
    let limits = Limits::default();
    for (bytes, wanted) in [
        (&b"\xc1\x07\xf2\x48\xcd\xc9\xc9\x07\x00"[..], "text(Hello)"),
        (b"\x41\x03\xf2\x48\xcd\x80\x04\xc9\xc9\x07\x00", "text(Hello)"),
        (b"\xc1\x0b\x00\x05\x00\xfa\xff\x48\x65\x6c\x6c\x6f\x00", "text(Hello)"),
        (b"\xc1\x08\xf3\x48\xcd\xc9\xc9\x07\x00\x00", "text(Hello)"),
        (b"\xc1\x0d\xf2\x48\x05\x00\x00\x00\xff\xff\xca\xc9\xc9\x07\x00", "text(Hello)"),
        (b"\xc1\x01\x00", "text()"),
        // Some senders write an empty payload, or a final block without the byte after it.
        (b"\xc1\x00", "text()"),
        (b"\xc1\x07\xf3\x48\xcd\xc9\xc9\x07\x00", "text(Hello)"),
    ] {
        check(DEFLATE_CLIENT, &limits, bytes, wanted);
        check(DEFLATE_CLIENT, &limits, &bytes.repeat(2), &format!("{wanted} {wanted}"));
    }
}

#[test]
fn context_is_used_only_if_it_is_kept() {
    let limits = Limits::default();
    let bytes = b"\xc1\x07\xf2\x48\xcd\xc9\xc9\x07\x00\xc1\x05\xf2\x00\x11\x00\x00";
    let mut own = Inflater::for_connection(15);
    let got = messages(DEFLATE_CLIENT, &limits, Some(&mut own), bytes, 3);
    assert_eq!(got, "text(Hello) text(Hello)");
    let mut shared = Inflater::shared();
    let got = messages(DEFLATE_CLIENT, &limits, Some(&mut shared), bytes, 3);
    assert_eq!(got, "text(Hello) InflateInvalid");
}

#[test]
fn rsv1_belongs_to_the_first_frame_of_a_data_message() {
    let limits = Limits::default();
    let deflated = b"\xf2\x48\xcd\xc9\xc9\x07\x00";
    let (start, end) = deflated.split_at(3);
    for (bytes, wanted) in [
        ([masked(0x41, start), masked(0x80, end)].concat(), "text(Hello)"),
        (
            [masked(0x41, start), masked(0x89, b"1"), masked(0x80, end)].concat(),
            "ping(1) text(Hello)",
        ),
        ([masked(0x41, start), masked(0xc0, end)].concat(), "CompressionMisplaced"),
        ([masked(0x01, b"a"), masked(0xc0, b"b")].concat(), "CompressionMisplaced"),
        (masked(0xc9, b""), "CompressionMisplaced"),
        (masked(0xca, b""), "CompressionMisplaced"),
        (masked(0xc8, b""), "CompressionMisplaced"),
        (masked(0xd1, deflated), "ReservedBit"),
        // Uncompressed messages are still allowed, even with empty fragments around them.
        ([masked(0x81, b"a"), masked(0xc1, deflated)].concat(), "text(a) text(Hello)"),
        ([masked(0x41, b""), masked(0x00, deflated), masked(0x80, b"")].concat(), "text(Hello)"),
    ] {
        check(DEFLATE_SERVER, &limits, &bytes, wanted);
    }
    check_with(SERVER, &limits, &masked(0xc1, deflated), "ReservedBit");
    check_with(CLIENT, &limits, b"\xc1\x07\xf2\x48\xcd\xc9\xc9\x07\x00", "ReservedBit");
    let got = messages(DEFLATE_SERVER, &limits, None, &masked(0xc1, deflated), 50);
    assert_eq!(got, "InflaterMissing");
    // `decode` returns the compressed data itself.
    let raw = pieces(DEFLATE_SERVER, &limits, &masked(0xc2, deflated), 4);
    assert_eq!(raw, format!("binary({})", deflated.escape_ascii()));
}

#[test]
fn invalid_and_incomplete_data_is_rejected() {
    let limits = Limits::default();
    // A reserved block type, a wrong length of a stored block, a distance before the start.
    for deflated in [&b"\x06"[..], b"\x00\x05\x00\xfa\xfeHello\x00", b"\xf2\x00\x11\x00\x00"] {
        check(DEFLATE_SERVER, &limits, &masked(0xc1, deflated), "InflateInvalid");
    }
    let truncated = masked(0xc1, b"\xf2\x48\xcd");
    let mut shared = Inflater::shared();
    let got = messages(DEFLATE_SERVER, &limits, Some(&mut shared), &truncated, 50);
    assert_eq!(got, "InflateInvalid");
    let many_ends = masked(0xc2, &b"\x03\x00".repeat(9));
    check(DEFLATE_SERVER, &limits, &many_ends, "InflateInvalid");
    let some_ends = masked(0xc2, &b"\x03\x00".repeat(7));
    check(DEFLATE_SERVER, &limits, &some_ends, "binary()");
}

#[test]
fn text_is_checked_after_decompression() {
    let limits = Limits::default();
    let mut deflater = Deflater::shared(15, EFFORT).unwrap();
    for (text, is_valid) in [(&b"a\xe2\x82\xac"[..], true), (b"a\xe2\x82", false), (b"\xff", false)]
    {
        let deflated = deflater.compress(text).unwrap().to_vec();
        let wanted = if is_valid { "text(a€)" } else { "TextInvalid" };
        check(DEFLATE_SERVER, &limits, &masked(0xc1, &deflated), wanted);
    }
    // The inflater of a connection reports invalid text before the message ends.
    let mut own = Inflater::for_connection(15);
    let deflated = deflater.compress(b"\xff").unwrap().to_vec();
    let start = masked(0x41, &[&deflated[..], b"\x00\x00\xff\xff"].concat());
    let got = messages(DEFLATE_SERVER, &limits, Some(&mut own), &start, start.len());
    assert_eq!(got, "TextInvalid");
}

#[test]
fn size_and_ratio_are_bounded() {
    let mut deflater = Deflater::shared(15, EFFORT).unwrap();
    let zeros = vec![b'0'; 100_000];
    let deflated = masked(0xc2, deflater.compress(&zeros).unwrap());
    let generous = Limits { inflate_ratio_max: 2000, ..Limits::default() };
    let wanted = format!("binary({})", "0".repeat(100_000));
    check(DEFLATE_SERVER, &generous, &deflated, &wanted);
    let exact = Limits { message_bytes_max: 100_000, ..generous };
    check(DEFLATE_SERVER, &exact, &deflated, &wanted);
    let small = Limits { message_bytes_max: 99_999, ..generous };
    check(DEFLATE_SERVER, &small, &deflated, "MessageTooLarge");
    check(DEFLATE_SERVER, &Limits::default(), &deflated, "InflateRatioTooHigh");
    let free = masked(0xc2, deflater.compress(&zeros[..65_536]).unwrap());
    let strict = Limits { inflate_ratio_max: 0, ..Limits::default() };
    check(DEFLATE_SERVER, &strict, &free, &format!("binary({})", "0".repeat(65_536)));
    let beyond = masked(0xc2, deflater.compress(&zeros[..65_537]).unwrap());
    check(DEFLATE_SERVER, &strict, &beyond, "InflateRatioTooHigh");
}

#[test]
fn buffer_never_exceeds_the_limit_while_inflating() {
    let mut deflater = Deflater::shared(15, EFFORT).unwrap();
    let deflated = deflater.compress(&vec![0; 4 << 20]).unwrap().to_vec();
    let limits = Limits { message_bytes_max: 10_000, inflate_ratio_max: 2000, ..Limits::default() };
    let mut own = Inflater::for_connection(15);
    let mut message = Vec::new();
    let result = own.inflate_piece(&deflated, Kind::Binary, true, &mut message, &limits);
    assert_eq!(result, Err(FaultKind::MessageTooLarge));
    assert!(message.capacity() <= 40_000, "{}", message.capacity());
}

/// Text that compresses about as well as a document.
fn document(length: usize) -> String {
    let mut prng = Prng::new(length as u64);
    let words = ["{\"name\":", "\"value\",", "tide", "gate", "1234", "null}, ", "é", "[true] "];
    let mut text = String::new();
    while text.len() < length {
        text.push_str(words[prng.below(words.len() as u64) as usize]);
        text.push_str(&prng.below(100).to_string());
    }
    while text.len() > length || !text.is_char_boundary(text.len()) {
        text.pop();
    }
    text
}

#[test]
fn groups_12_and_13_messages_with_all_parameters() {
    let limits = Limits::default();
    for keeps_context in [false, true] {
        for window_bits in [9, 11, 15] {
            for length in [16, 64, 256, 1024, 4096, 8192, 16_384, 32_768, 65_536, 131_072] {
                let mut deflater = if keeps_context {
                    Deflater::for_connection(window_bits, EFFORT).unwrap()
                } else {
                    Deflater::shared(window_bits, EFFORT).unwrap()
                };
                let mut inflater = if keeps_context {
                    Inflater::for_connection(window_bits)
                } else {
                    Inflater::shared()
                };
                let text = document(length);
                let mut bytes = Vec::new();
                for round in 0..5 {
                    let kind = if round % 2 == 0 { Kind::Text } else { Kind::Binary };
                    encode_deflated(&mut bytes, kind, text.as_bytes(), &mut deflater, None)
                        .unwrap();
                }
                assert!(length < 64 || bytes.len() < 5 * length);
                let binary = format!("binary({})", text.as_bytes().escape_ascii());
                let wanted = format!("text({text}) {binary} text({text}) {binary} text({text})");
                let got = messages(DEFLATE_CLIENT, &limits, Some(&mut inflater), &bytes, 1400);
                assert!(got == wanted, "{keeps_context} {window_bits} {length}");
            }
        }
    }
}

#[test]
fn message_that_does_not_shrink_is_sent_as_it_is_unless_the_context_is_kept() {
    let mut out = Vec::new();
    let mut shared = Deflater::shared(15, Effort::default()).unwrap();
    encode_deflated(&mut out, Kind::Text, b"ab", &mut shared, None).unwrap();
    assert_eq!(out, b"\x81\x02ab");
    out.clear();
    let mut own = Deflater::for_connection(15, Effort::default()).unwrap();
    encode_deflated(&mut out, Kind::Text, b"ab", &mut own, None).unwrap();
    assert_eq!(out[0], 0xc1);
    assert_eq!(own.compress(b"").unwrap(), [0]);
    assert!(Deflater::shared(8, EFFORT).is_none() && Deflater::shared(16, EFFORT).is_none());
}

fn parameters(server_window_bits: u8, server_keeps_context: bool) -> DeflateParameters {
    DeflateParameters {
        server_keeps_context,
        client_keeps_context: false,
        server_window_bits,
        client_window_bits: None,
    }
}

#[test]
fn shared_frame_fits_the_window_of_each_connection() {
    let text = document(1000);
    for window_bits in 9..=15 {
        let of_connection = parameters(window_bits, false);
        let bits = of_connection.shared_window_bits(Role::Server, text.len());
        assert_eq!(bits, Some(if window_bits == 9 { 9 } else { 15 }), "window {window_bits}");
        let mut deflater = Deflater::shared(bits.unwrap(), EFFORT).unwrap();
        let frame = deflated_frame(Kind::Text, text.as_bytes(), &mut deflater).unwrap().unwrap();
        assert!(frame.len() < text.len());
        let mut inflater = Inflater::for_connection(window_bits);
        let got = messages(DEFLATE_CLIENT, &Limits::default(), Some(&mut inflater), &frame, 99);
        assert_eq!(got, format!("text({text})"));
    }
    let bits_of =
        |window_bits, bytes| parameters(window_bits, false).shared_window_bits(Role::Server, bytes);
    assert_eq!(bits_of(8, 256), Some(15), "no reference reaches before the message");
    assert_eq!(bits_of(8, 257), None, "no compressor has such a small window");
    assert_eq!((bits_of(12, 4096), bits_of(12, 4097)), (Some(15), Some(12)));
    assert_eq!(bits_of(15, 1 << 20), Some(15));
}

#[test]
fn message_that_compression_does_not_shorten_has_no_shared_frame() {
    let mut deflater = Deflater::shared(15, EFFORT).unwrap();
    for data in ["", "a", "ab"] {
        assert_eq!(deflated_frame(Kind::Text, data.as_bytes(), &mut deflater).unwrap(), None);
    }
}

#[test]
fn shared_frame_may_come_between_messages_that_keep_the_context() {
    let limits = Limits::default();
    let text = document(3000);
    let mut own = Deflater::for_connection(15, EFFORT).unwrap();
    let mut shared = Deflater::shared(15, EFFORT).unwrap();
    let frame = deflated_frame(Kind::Text, text.as_bytes(), &mut shared).unwrap().unwrap();
    let mut bytes = Vec::new();
    for _ in 0..3 {
        encode_deflated(&mut bytes, Kind::Text, text.as_bytes(), &mut own, None).unwrap();
        encode_deflated(&mut bytes, Kind::Text, text.as_bytes(), &mut own, None).unwrap();
        bytes.extend_from_slice(&frame);
        own.forget();
    }
    let mut inflater = Inflater::for_connection(15);
    let got = messages(DEFLATE_CLIENT, &limits, Some(&mut inflater), &bytes, 500);
    assert_eq!(got, vec![format!("text({text})"); 9].join(" "));
}
