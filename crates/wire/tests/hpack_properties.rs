//! HPACK properties over generated input: encoded fields decode to the same fields whatever the settings do,
//! and no block makes a decoder panic or exceed its bounds.

use proptest::collection::vec;
use proptest::prelude::*;
use std::ops::ControlFlow;
use tidegate_wire::fuzz::fuzz_hpack;
use tidegate_wire::http2::hpack::{Decoder, Encoder, Field, Indexing, Limits, Scratch};

const LIMITS: Limits = Limits { fields_max: 1000, crumbs_max: 1000, list_bytes_max: 1 << 20 };

const NAMES: &[&str] = &[
    "cookie",
    "set-cookie",
    "content-type",
    ":path",
    ":status",
    "x-a",
    "x-b",
    "x-request-identifier",
    "accept-encoding",
    "",
];

/// Representations that are whole or begin something: indexes, literals, size updates, long integers.
const PIECES: &[&[u8]] = &[
    &[0x82],
    &[0xbe],
    &[0xbf],
    &[0xc0],
    &[0x40, 1, b'a', 1, b'b'],
    &[0x60, 0],
    &[0x7e, 2, b'x', b'y'],
    &[0x7f, 0x00, 0],
    &[0x00, 0, 0],
    &[0x10, 1, b'a', 0],
    &[0x0f, 0x2f, 0],
    &[0x20],
    &[0x3f, 0x01],
    &[0x3f, 0xe1, 0x1f],
    &[0xff, 0x80, 0x00],
    &[0x41, 0x8c, 0xf1, 0xe3, 0xc2, 0xe5, 0xf2, 0x3a, 0x6b, 0xa0, 0xab, 0x90, 0xf4, 0xff],
    &[0x44, 0x81, 0x1f],
    &[0x83, 0xff, 0xff],
    &[0x7f],
    &[0xff],
];

#[derive(Clone, Debug)]
struct OwnedField {
    name: Vec<u8>,
    value: Vec<u8>,
    is_sensitive: bool,
}

#[derive(Clone, Debug)]
enum Step {
    Block(Vec<OwnedField>),
    PeerLimit(u32),
    Idle,
}

fn name() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        8 => prop::sample::select(NAMES).prop_map(|name| name.as_bytes().to_vec()),
        1 => vec(any::<u8>(), 0..40),
    ]
}

fn value() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        6 => prop::sample::select(&["", "200", "a", "gzip, deflate", "a value of some length"][..])
            .prop_map(|value| value.as_bytes().to_vec()),
        3 => vec(any::<u8>(), 0..60),
        1 => (any::<u8>(), 0..5000_usize).prop_map(|(byte, length)| vec![byte; length]),
    ]
}

fn field() -> impl Strategy<Value = OwnedField> {
    (name(), value(), prop::bool::weighted(0.1))
        .prop_map(|(name, value, is_sensitive)| OwnedField { name, value, is_sensitive })
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => vec(field(), 0..20).prop_map(Step::Block),
        1 => prop_oneof![0..300_u32, 0..70_000_u32].prop_map(Step::PeerLimit),
        1 => Just(Step::Idle),
    ]
}

fn hostile() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        8 => prop::sample::select(PIECES).prop_map(<[u8]>::to_vec),
        1 => vec(any::<u8>(), 0..6),
    ];
    let block = vec(piece, 0..40).prop_map(|pieces| {
        let mut block = pieces.concat();
        block.truncate(255);
        [&[0, block.len() as u8], &block[..]].concat()
    });
    let control = (0xf0..0xf4_u8, any::<u8>()).prop_map(|(kind, size)| vec![kind, size]);
    vec(prop_oneof![4 => block, 1 => control], 0..12).prop_map(|steps| steps.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn encoded_fields_decode_to_the_same_fields(
        own_limit in prop_oneof![Just(4096), 0..300_u32, 0..70_000_u32],
        steps in vec(step(), 1..30),
    ) {
        let (mut encoder, mut decoder) = (Encoder::new(own_limit), Decoder::new());
        let (mut out, mut scratch) = (Vec::new(), Scratch::new());
        for step in steps {
            match step {
                Step::PeerLimit(bytes) => {
                    encoder.set_peer_table_limit(bytes);
                    decoder.acknowledge_table_limit(bytes);
                }
                Step::Idle => {
                    encoder.release();
                    decoder.shrink();
                    prop_assert_eq!(encoder.held_bytes(), 0);
                }
                Step::Block(fields) => {
                    out.clear();
                    let mut block = encoder.begin(&mut out);
                    for OwnedField { name, value, is_sensitive } in &fields {
                        let indexing = if *is_sensitive { Indexing::Never } else { Indexing::Auto };
                        block.encode_field(name, value, indexing);
                    }
                    let mut expected = fields.iter();
                    let mut sink = |field: Field<'_>| {
                        let sent = expected.next().expect("no more fields than were encoded");
                        assert_eq!((field.name, field.value), (&sent.name[..], &sent.value[..]));
                        assert!(field.is_sensitive || !sent.is_sensitive);
                        ControlFlow::Continue(())
                    };
                    let decoded = decoder.decode(&out, &LIMITS, &mut scratch, &mut sink);
                    prop_assert_eq!(decoded.map(|decoded| decoded.undelivered), Ok(None));
                    prop_assert_eq!(expected.next().map(|field| &field.name), None);
                    prop_assert!(encoder.held_bytes() <= own_limit as usize + 128);
                }
            }
        }
    }

    #[test]
    fn hostile_blocks_stay_within_the_bounds(data in hostile()) {
        fuzz_hpack(&data);
    }

    #[test]
    fn random_bytes_stay_within_the_bounds(data in vec(any::<u8>(), 0..600)) {
        fuzz_hpack(&data);
    }
}
