//! HPACK against the examples of RFC 7541 Appendix C, and the rules about size updates, limits, broken
//! decoders, sensitive fields and memory.

use std::ops::ControlFlow;
use tidegate_wire::http2::hpack::{
    Decoded, Decoder, Encoder, Fault, Field, Indexing, Limits, OVERRUN_FACTOR, Scratch,
    TABLE_BYTES_INITIAL, TABLE_BYTES_MAX, Undelivered,
};

const ROOMY: Limits = Limits { fields_max: 1000, crumbs_max: 1000, list_bytes_max: 1 << 20 };

type Owned = (String, String, bool);

fn hex(digits: &str) -> Vec<u8> {
    let digits: String = digits.split_whitespace().collect();
    let byte = |at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap();
    (0..digits.len()).step_by(2).map(byte).collect()
}

fn owned(field: Field<'_>) -> Owned {
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    (text(field.name), text(field.value), field.is_sensitive)
}

fn decode_within(
    decoder: &mut Decoder,
    block: &[u8],
    limits: &Limits,
) -> Result<(Decoded, Vec<Owned>), Fault> {
    let mut fields = Vec::new();
    let mut sink = |field: Field<'_>| {
        fields.push(owned(field));
        ControlFlow::Continue(())
    };
    let decoded = decoder.decode(block, limits, &mut Scratch::new(), &mut sink)?;
    Ok((decoded, fields))
}

fn decode(decoder: &mut Decoder, block: &[u8]) -> Result<Vec<Owned>, Fault> {
    let (decoded, fields) = decode_within(decoder, block, &ROOMY)?;
    assert_eq!((decoded.fields + decoded.crumbs, decoded.undelivered), (fields.len(), None));
    Ok(fields)
}

fn plain(fields: &[(&str, &str)]) -> Vec<Owned> {
    fields.iter().map(|&(name, value)| (name.to_owned(), value.to_owned(), false)).collect()
}

/// Checks the entries of the dynamic table, newest first, by a block of indexes.
fn check_table(decoder: &mut Decoder, entries: &[(&str, &str)]) {
    let block: Vec<u8> = (0..entries.len()).map(|index| 0x80 | (62 + index) as u8).collect();
    assert_eq!(decode(decoder, &block).unwrap(), plain(entries));
}

/// A block, its fields, and the table after it.
type Step<'a> = (&'a str, &'a [(&'a str, &'a str)], &'a [(&'a str, &'a str)]);

fn check_steps(decoder: &mut Decoder, steps: &[Step<'_>]) {
    for (block, fields, table) in steps {
        assert_eq!(decode(decoder, &hex(block)).unwrap(), plain(fields), "{block}");
        check_table(decoder, table);
    }
    let after = 0x80 | (62 + steps.last().unwrap().2.len()) as u8;
    assert_eq!(
        decode(decoder, &[after]),
        Err(Fault::IndexInvalid),
        "the table has no more entries"
    );
}

/// Section C.2.
#[test]
fn single_fields_of_the_rfc_decode() {
    let custom = [("custom-key", "custom-header")];
    let literal = "400a 6375 7374 6f6d 2d6b 6579 0d63 7573 746f 6d2d 6865 6164 6572";
    check_steps(&mut Decoder::new(), &[(literal, &custom, &custom)]);
    let path = "040c 2f73 616d 706c 652f 7061 7468";
    check_steps(&mut Decoder::new(), &[(path, &[(":path", "/sample/path")], &[])]);
    check_steps(&mut Decoder::new(), &[("82", &[(":method", "GET")], &[])]);
    let password = hex("1008 7061 7373 776f 7264 0673 6563 7265 74");
    let fields = decode(&mut Decoder::new(), &password).unwrap();
    assert_eq!(fields, [("password".to_owned(), "secret".to_owned(), true)]);
}

const AUTHORITY: (&str, &str) = (":authority", "www.example.com");
const NO_CACHE: (&str, &str) = ("cache-control", "no-cache");
const CUSTOM: (&str, &str) = ("custom-key", "custom-value");

/// Sections C.3 and C.4.
#[test]
fn requests_of_the_rfc_decode() {
    let fields: [&[(&str, &str)]; 3] = [
        &[(":method", "GET"), (":scheme", "http"), (":path", "/"), AUTHORITY],
        &[(":method", "GET"), (":scheme", "http"), (":path", "/"), AUTHORITY, NO_CACHE],
        &[(":method", "GET"), (":scheme", "https"), (":path", "/index.html"), AUTHORITY, CUSTOM],
    ];
    let tables: [&[(&str, &str)]; 3] =
        [&[AUTHORITY], &[NO_CACHE, AUTHORITY], &[CUSTOM, NO_CACHE, AUTHORITY]];
    let without_huffman = [
        "8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
        "8286 84be 5808 6e6f 2d63 6163 6865",
        "8287 85bf 400a 6375 7374 6f6d 2d6b 6579 0c63 7573 746f 6d2d 7661 6c75 65",
    ];
    let with_huffman = [
        "8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff",
        "8286 84be 5886 a8eb 1064 9cbf",
        "8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf",
    ];
    for blocks in [without_huffman, with_huffman] {
        let steps = [0, 1, 2].map(|step| (blocks[step], fields[step], tables[step]));
        check_steps(&mut Decoder::new(), &steps);
    }
}

const PRIVATE: (&str, &str) = ("cache-control", "private");
const DATE: (&str, &str) = ("date", "Mon, 21 Oct 2013 20:13:21 GMT");
const LATER: (&str, &str) = ("date", "Mon, 21 Oct 2013 20:13:22 GMT");
const LOCATION: (&str, &str) = ("location", "https://www.example.com");
const GZIP: (&str, &str) = ("content-encoding", "gzip");
const COOKIE: (&str, &str) =
    ("set-cookie", "foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1");

/// Sections C.5 and C.6: a table of 256 bytes, which evicts. The RFC leaves out the size update that must
/// follow the lowered setting; it is sent alone here.
#[test]
fn responses_of_the_rfc_decode() {
    let fields: [&[(&str, &str)]; 3] = [
        &[(":status", "302"), PRIVATE, DATE, LOCATION],
        &[(":status", "307"), PRIVATE, DATE, LOCATION],
        &[(":status", "200"), PRIVATE, LATER, LOCATION, GZIP, COOKIE],
    ];
    let tables: [&[(&str, &str)]; 3] = [
        &[LOCATION, DATE, PRIVATE, (":status", "302")],
        &[(":status", "307"), LOCATION, DATE, PRIVATE],
        &[COOKIE, GZIP, LATER],
    ];
    let without_huffman = [
        "4803 3330 3258 0770 7269 7661 7465 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133
         2032 303a 3133 3a32 3120 474d 546e 1768 7474 7073 3a2f 2f77 7777 2e65 7861 6d70
         6c65 2e63 6f6d",
        "4803 3330 37c1 c0bf",
        "88c1 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32 3220 474d
         54c0 5a04 677a 6970 7738 666f 6f3d 4153 444a 4b48 514b 425a 584f 5157 454f 5049
         5541 5851 5745 4f49 553b 206d 6178 2d61 6765 3d33 3630 303b 2076 6572 7369 6f6e
         3d31",
    ];
    let with_huffman = [
        "4882 6402 5885 aec3 771a 4b61 96d0 7abe 9410 54d4 44a8 2005 9504 0b81 66e0 82a6
         2d1b ff6e 919d 29ad 1718 63c7 8f0b 97c8 e9ae 82ae 43d3",
        "4883 640e ffc1 c0bf",
        "88c1 6196 d07a be94 1054 d444 a820 0595 040b 8166 e084 a62d 1bff c05a 839b d9ab
         77ad 94e7 821d d7f2 e6c7 b335 dfdf cd5b 3960 d5af 2708 7f36 72c1 ab27 0fb5 291f
         9587 3160 65c0 03ed 4ee5 b106 3d50 07",
    ];
    for blocks in [without_huffman, with_huffman] {
        let mut decoder = Decoder::new();
        decoder.acknowledge_table_limit(256);
        assert_eq!(decode(&mut decoder, &hex("3fe101")), Ok(Vec::new()));
        let steps = [0, 1, 2].map(|step| (blocks[step], fields[step], tables[step]));
        check_steps(&mut decoder, &steps);
    }
}

#[test]
fn malformed_blocks_are_rejected() {
    for (block, fault) in [
        ("80", Fault::IndexInvalid),
        ("be", Fault::IndexInvalid),
        ("7e 01 61", Fault::IndexInvalid),
        ("0f 2f 01 61", Fault::IndexInvalid),
        ("ff", Fault::Truncated),
        ("00", Fault::Truncated),
        ("00 01", Fault::Truncated),
        ("00 01 61", Fault::Truncated),
        ("00 01 61 02 62", Fault::Truncated),
        ("41", Fault::Truncated),
        ("ff ff 80 80", Fault::Truncated),
        ("ff ff ff ff ff 7f", Fault::IntegerTooLarge),
        ("00 7f ff ff ff ff 7f", Fault::IntegerTooLarge),
        ("00 81 ff", Fault::HuffmanInvalid),
        ("00 01 61 84 ff ff ff ff", Fault::HuffmanInvalid),
        ("82 20", Fault::SizeUpdateMisplaced),
        ("20 82 3f e1 1f", Fault::SizeUpdateMisplaced),
        ("3f e2 1f", Fault::SizeUpdateTooLarge),
    ] {
        let mut decoder = Decoder::new();
        assert_eq!(decode(&mut decoder, &hex(block)), Err(fault), "{block}");
        assert_eq!(decode(&mut decoder, &hex("82")), Err(fault), "broken after {block}");
        assert!(!fault.is_excess() && !fault.text().is_empty());
    }
}

#[test]
fn lowered_limit_requires_a_size_update() {
    let lowered = |limits: &[u32], block: &str| {
        let mut decoder = Decoder::new();
        limits.iter().for_each(|&limit| decoder.acknowledge_table_limit(limit));
        decode(&mut decoder, &hex(block)).map(|fields| fields.len())
    };
    assert_eq!(lowered(&[100], "82"), Err(Fault::SizeUpdateMissing));
    assert_eq!(lowered(&[100], "3f 45 82"), Ok(1), "100");
    assert_eq!(lowered(&[100], "20 82"), Ok(1), "0");
    assert_eq!(lowered(&[100], "3f 46 82"), Err(Fault::SizeUpdateTooLarge), "101");
    assert_eq!(lowered(&[0, 4096], "82"), Err(Fault::SizeUpdateMissing));
    assert_eq!(lowered(&[0, 4096], "3f e1 1f 82"), Err(Fault::SizeUpdateMissing), "4096 only");
    assert_eq!(lowered(&[0, 4096], "20 3f e1 1f 82"), Ok(1), "0, then 4096");
    assert_eq!(lowered(&[8192], "82"), Ok(1), "a raised limit needs no update");
    assert_eq!(lowered(&[8192], "3f e1 3f 82"), Ok(1), "8192");
    assert_eq!(lowered(&[u32::MAX], "3f e1 ff 03"), Ok(0), "the largest table");
    assert_eq!(lowered(&[u32::MAX], "3f e2 ff 03"), Err(Fault::SizeUpdateTooLarge));
}

#[test]
fn table_already_below_a_lowered_limit_needs_no_size_update() {
    let mut decoder = Decoder::new();
    assert_eq!(decode(&mut decoder, &hex("20 82")).unwrap().len(), 1);
    decoder.acknowledge_table_limit(100);
    assert_eq!(decode(&mut decoder, &hex("82")).unwrap().len(), 1);
}

/// A block of `crumbs` cookie fields and `others` other fields, all with empty values. The first field of
/// each name is inserted, so each of the others is one byte.
fn bomb(crumbs: usize, others: usize) -> Vec<u8> {
    let mut block = hex("60 00 40 01 61 00");
    block.extend(vec![0xbf; crumbs - 1]);
    block.extend(vec![0xbe; others - 1]);
    block
}

#[test]
fn limits_stop_the_delivery_and_not_the_decoding() {
    let limits = Limits { fields_max: 10, crumbs_max: 20, list_bytes_max: 10 * 33 + 20 * 38 };
    let check = |limits: &Limits, crumbs, others, undelivered, delivered: usize| {
        let mut decoder = Decoder::new();
        let (decoded, fields) = decode_within(&mut decoder, &bomb(crumbs, others), limits).unwrap();
        assert_eq!((decoded.fields, decoded.crumbs), (others, crumbs));
        assert_eq!(decoded.list_bytes, others * 33 + crumbs * 38);
        assert_eq!((decoded.undelivered, fields.len()), (undelivered, delivered));
        check_table(&mut decoder, &[("a", ""), ("cookie", "")]);
    };
    check(&limits, 20, 10, None, 30);
    check(&limits, 1, 11, Some(Undelivered::TooManyFields), 11);
    check(&limits, 21, 1, Some(Undelivered::TooManyCrumbs), 21);
    let narrow = Limits { list_bytes_max: limits.list_bytes_max - 1, ..limits };
    check(&narrow, 20, 10, Some(Undelivered::TooManyBytes), 29);
}

#[test]
fn far_too_large_blocks_break_the_decoder() {
    let limits = Limits { fields_max: 10, crumbs_max: 20, list_bytes_max: 2000 };
    let most = OVERRUN_FACTOR * 30;
    let decoded = |crumbs, others| {
        decode_within(&mut Decoder::new(), &bomb(crumbs, others), &limits)
            .map(|(decoded, _)| decoded)
    };
    assert!(decoded(1, most - 1).is_ok());
    assert_eq!(decoded(1, most), Err(Fault::TooManyFields));
    let wide = Limits { fields_max: 1000, ..limits };
    let far = OVERRUN_FACTOR * 2000 / 33;
    assert!(decode_within(&mut Decoder::new(), &bomb(1, far - 1), &wide).is_ok());
    let fault = decode_within(&mut Decoder::new(), &bomb(1, far + 1), &wide).unwrap_err();
    assert!(fault == Fault::TooManyBytes && fault.is_excess());
}

/// An entry of the whole table that each byte of the block delivers again: the bomb of CVE-2016-6581.
#[test]
fn repeated_large_entry_is_bounded_by_bytes() {
    let mut block = hex("40 01 61 7f");
    block.extend(hex("e0 1e"));
    block.extend(vec![b'x'; 127 + 0x60 + (0x1e << 7)]);
    block.extend(vec![0xbe; 10_000]);
    let limits = Limits { fields_max: 100_000, crumbs_max: 0, list_bytes_max: 64 * 1024 };
    let mut delivered = 0;
    let mut sink = |field: Field<'_>| {
        delivered += field.name.len() + field.value.len();
        ControlFlow::Continue(())
    };
    let result = Decoder::new().decode(&block, &limits, &mut Scratch::new(), &mut sink);
    assert_eq!(result, Err(Fault::TooManyBytes));
    assert!(delivered <= limits.list_bytes_max);
}

#[test]
fn refusing_sink_gets_no_more_fields_and_the_table_stays_in_step() {
    let mut decoder = Decoder::new();
    let mut calls = 0;
    let mut sink = |_: Field<'_>| {
        calls += 1;
        if calls == 2 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let block = hex("8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d");
    let decoded = decoder.decode(&block, &ROOMY, &mut Scratch::new(), &mut sink).unwrap();
    assert_eq!((decoded.fields, decoded.undelivered), (4, Some(Undelivered::Refused)));
    assert_eq!(calls, 2);
    check_table(&mut decoder, &[AUTHORITY]);
}

/// An insertion whose name is that of the entry that it evicts (RFC 7541 section 4.4).
#[test]
fn name_of_an_evicted_entry_is_kept() {
    let mut decoder = Decoder::new();
    let name = "n".repeat(20);
    let first = format!("3f 41 40 14 {} 0a {}", "6e".repeat(20), "78".repeat(10));
    assert_eq!(decode(&mut decoder, &hex(&first)).unwrap(), plain(&[(&name, "xxxxxxxxxx")]));
    let second = format!("7e 0a {}", "79".repeat(10));
    assert_eq!(decode(&mut decoder, &hex(&second)).unwrap(), plain(&[(&name, "yyyyyyyyyy")]));
    check_table(&mut decoder, &[(&name, "yyyyyyyyyy")]);
}

fn encode(encoder: &mut Encoder, fields: &[(&str, &str)]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut block = encoder.begin(&mut out);
    for (name, value) in fields {
        block.encode_field(name.as_bytes(), value.as_bytes(), Indexing::Auto);
    }
    out
}

const RESPONSE: &[(&str, &str)] = &[
    (":status", "200"),
    ("content-type", "application/json"),
    ("content-length", "27"),
    ("server", "tidegate"),
    ("x-frame-options", "DENY"),
    ("vary", "accept-encoding"),
];

#[test]
fn repeated_fields_become_one_byte_each() {
    let (mut encoder, mut decoder) = (Encoder::new(TABLE_BYTES_INITIAL), Decoder::new());
    let mut sizes = Vec::new();
    for round in 0..4 {
        let block = encode(&mut encoder, RESPONSE);
        assert_eq!(decode(&mut decoder, &block).unwrap(), plain(RESPONSE), "round {round}");
        sizes.push(block.len());
        assert_eq!(encoder.held_bytes() > 0, round > 0, "memory is taken when a field repeats");
    }
    assert_eq!(&sizes[2..], &[RESPONSE.len(); 2]);
}

#[test]
fn changing_values_do_not_fill_the_table() {
    let (mut encoder, mut decoder) = (Encoder::new(TABLE_BYTES_INITIAL), Decoder::new());
    let mut last = 0;
    for round in 0..200_u64 {
        let id = format!("{:016x}", round.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let fields = [("etag", id.as_str()), ("x-request-id", &id), ("server", "tidegate")];
        let block = encode(&mut encoder, &fields);
        assert_eq!(decode(&mut decoder, &block).unwrap(), plain(&fields));
        last = block.len();
    }
    assert!(encoder.held_bytes() <= 1024, "only the names and the repeated field are in the table");
    assert!(last <= 1 + 2 * (3 + 16), "the name of the identifier is indexed: {last}");
}

#[test]
fn sensitive_fields_are_never_indexed() {
    let long = "session=0123456789abcdef";
    let (mut encoder, mut decoder) = (Encoder::new(TABLE_BYTES_INITIAL), Decoder::new());
    for _ in 0..4 {
        let mut out = Vec::new();
        let mut block = encoder.begin(&mut out);
        for name in ["authorization", "proxy-authorization", "set-cookie"] {
            block.encode_field(name.as_bytes(), long.as_bytes(), Indexing::Auto);
        }
        block.encode_field(b"cookie", b"pin=1234", Indexing::Auto);
        block.encode_field(b"x-token", b"secret", Indexing::Never);
        block.encode_field(b":method", b"GET", Indexing::Never);
        let fields = decode(&mut decoder, &out).unwrap();
        assert!(fields.len() == 6 && fields.iter().all(|(_, _, is_sensitive)| *is_sensitive));
    }
    assert_eq!((encoder.held_bytes(), decoder.held_bytes()), (0, 0));
    let blocks = [0; 3].map(|_| encode(&mut encoder, &[("cookie", long)]).len());
    assert_eq!(blocks[2], 1, "a long cookie is indexed");
}

#[test]
fn every_status_decodes() {
    let (mut encoder, mut decoder) = (Encoder::new(TABLE_BYTES_INITIAL), Decoder::new());
    for status in 100..=999 {
        let mut out = Vec::new();
        encoder.begin(&mut out).encode_status(status);
        assert_eq!(decode(&mut decoder, &out).unwrap(), plain(&[(":status", &status.to_string())]));
    }
    let mut out = Vec::new();
    encoder.begin(&mut out).encode_status(404);
    assert_eq!(out, [0x8d]);
}

#[test]
fn size_updates_follow_the_settings_of_the_peer() {
    let updates = |own, limits: &[u32]| {
        let mut encoder = Encoder::new(own);
        limits.iter().for_each(|&limit| encoder.set_peer_table_limit(limit));
        let block = encode(&mut encoder, &[]);
        assert_eq!(encode(&mut encoder, &[]), b"", "an update is sent once");
        block
    };
    assert_eq!(updates(4096, &[]), b"");
    assert_eq!(updates(4096, &[4096]), b"");
    assert_eq!(updates(4096, &[65536]), b"", "its own limit stays in force");
    assert_eq!(updates(0, &[]), hex("20"), "the peer assumes 4096");
    assert_eq!(updates(4096, &[100]), hex("3f 45"));
    assert_eq!(updates(4096, &[0, 4096]), hex("20 3f e1 1f"));
    assert_eq!(updates(4096, &[0, 100, 50]), hex("20 3f 13"));
    assert_eq!(updates(8192, &[8192]), hex("3f e1 3f"));
    assert_eq!(updates(100, &[3000]), hex("3f 45"));
    assert_eq!(updates(u32::MAX, &[u32::MAX]), hex("3f e1 ff 03"), "{TABLE_BYTES_MAX}");
    let mut encoder = Encoder::new(100);
    assert_eq!(encode(&mut encoder, &[]), hex("3f 45"));
    encoder.set_peer_table_limit(3000);
    assert_eq!(encode(&mut encoder, &[]), hex("3f 45"), "a lowered limit is confirmed");
}

#[test]
fn idle_connection_gives_its_memory_back() {
    let (mut encoder, mut decoder) = (Encoder::new(TABLE_BYTES_INITIAL), Decoder::new());
    for round in 0..12 {
        let block = encode(&mut encoder, RESPONSE);
        assert_eq!(decode(&mut decoder, &block).unwrap(), plain(RESPONSE), "round {round}");
        if round % 4 == 3 {
            encoder.release();
            encoder.release();
            assert_eq!(encoder.held_bytes(), 0);
            decoder.shrink();
            assert!(decoder.held_bytes() < 256, "{}", decoder.held_bytes());
        }
    }
    let block = encode(&mut encoder, &[]);
    assert_eq!(block, hex("20 3f e1 1f"), "the table of the peer is emptied");
    assert_eq!(decode(&mut decoder, &block), Ok(Vec::new()));
    decoder.shrink();
    assert_eq!(decoder.held_bytes(), 0);
}
