//! Properties: masking equals its definition, splits change nothing, messages survive both directions with any
//! fragmentation and compression, and hostile bytes are bounded.

use super::transcript::{masked, messages, pieces};
use proptest::collection::vec;
use proptest::prelude::*;
use tidegate_wire::fuzz::fuzz_websocket;
use tidegate_wire::websocket::{
    Deflater, Effort, Fragment, FrameRules, Inflater, Kind, Limits, Role, apply_mask,
    encode_fragment, encode_ping,
};

/// First bytes of frames, most of them valid, and payloads.
fn frames() -> impl Strategy<Value = Vec<u8>> {
    let first = prop_oneof![
        8 => prop::sample::select(vec![0x81, 0x82, 0x01, 0x02, 0x00, 0x80, 0x89, 0x8a, 0xc1, 0xc2, 0x41]),
        1 => any::<u8>(),
    ];
    let payload = prop_oneof![
        vec(any::<u8>(), 0..20),
        "[a-zé€😀]{0,60}".prop_map(String::into_bytes),
        vec(Just(b'a'), 120..300),
        Just(b"\xf2\x48\xcd\xc9\xc9\x07\x00".to_vec()),
    ];
    vec((first, payload), 0..8).prop_map(|frames| {
        frames.iter().flat_map(|(first, payload)| masked(*first, payload)).collect()
    })
}

/// A message with its fragments: their lengths, and whether a Ping precedes each of them.
#[derive(Clone, Debug)]
struct Sent {
    text: String,
    is_text: bool,
    is_deflated: bool,
    cuts: Vec<(usize, bool)>,
}

fn sent() -> impl Strategy<Value = Sent> {
    let text = prop_oneof!["[a-zé€😀 ]{0,300}", "(tide|gate|é){0,400}"];
    (text, any::<bool>(), any::<bool>(), vec((0..200_usize, any::<bool>()), 0..6))
        .prop_map(|(text, is_text, is_deflated, cuts)| Sent { text, is_text, is_deflated, cuts })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn masking_equals_the_bytewise_one(
        data in vec(any::<u8>(), 0..400),
        key in any::<[u8; 4]>(),
        cuts in vec(0..100_usize, 0..5),
    ) {
        let wanted: Vec<u8> =
            data.iter().enumerate().map(|(index, byte)| byte ^ key[index % 4]).collect();
        let mut got = data.clone();
        let (mut rest, mut key_now) = (&mut got[..], key);
        for cut in cuts {
            let (piece, after) = rest.split_at_mut(cut.min(rest.len()));
            key_now = apply_mask(piece, key_now);
            rest = after;
        }
        apply_mask(rest, key_now);
        prop_assert_eq!(got, wanted);
    }

    #[test]
    fn splitting_the_bytes_does_not_change_the_events(bytes in frames(), step in 1..40_usize, allows_deflate: bool) {
        let rules = FrameRules { role: Role::Server, allows_deflate };
        let limits = Limits { message_bytes_max: 700, fragments_max: 4, ..Limits::default() };
        let whole = pieces(rules, &limits, &bytes, bytes.len().max(1));
        prop_assert_eq!(&pieces(rules, &limits, &bytes, step), &whole);
        prop_assert_eq!(&pieces(rules, &limits, &bytes, 1), &whole);
        if !allows_deflate {
            prop_assert_eq!(&messages(rules, &limits, None, &bytes, step), &whole);
        }
        let mut shared = Inflater::shared();
        let whole = messages(rules, &limits, Some(&mut shared), &bytes, bytes.len().max(1));
        prop_assert_eq!(messages(rules, &limits, Some(&mut shared), &bytes, step), whole);
    }

    #[test]
    fn messages_survive_both_directions(
        all in vec(sent(), 0..6),
        is_server: bool,
        key in any::<[u8; 4]>(),
        keeps_context: bool,
        window_bits in 9..=15_u8,
        level in 1..=9_u8,
        memory_level in 1..=9_u8,
        step in 1..500_usize,
    ) {
        let receiver = if is_server { Role::Server } else { Role::Client };
        let key = is_server.then_some(key);
        let effort = Effort { level, memory_level };
        let (mut deflater, mut inflater) = if keeps_context {
            (Deflater::for_connection(window_bits, effort), Inflater::for_connection(window_bits))
        } else {
            (Deflater::shared(window_bits, effort), Inflater::shared())
        };
        let mut bytes = Vec::new();
        let mut wanted = Vec::new();
        for message in &all {
            let kind = if message.is_text { Kind::Text } else { Kind::Binary };
            let data = if message.is_deflated {
                deflater.as_mut().unwrap().compress(message.text.as_bytes()).unwrap()
            } else {
                message.text.as_bytes()
            };
            let whole = Fragment { is_deflated: message.is_deflated, ..Fragment::whole(kind) };
            let mut rest = data;
            let mut is_first = true;
            for &(cut, pings) in &message.cuts {
                let (piece, after) = rest.split_at(cut.min(rest.len()));
                encode_fragment(&mut bytes, Fragment { is_first, is_last: false, ..whole }, piece, key);
                if pings {
                    encode_ping(&mut bytes, b"p", key).unwrap();
                    wanted.push("ping(p)".to_owned());
                }
                (rest, is_first) = (after, false);
            }
            encode_fragment(&mut bytes, Fragment { is_first, ..whole }, rest, key);
            wanted.push(match kind {
                Kind::Text => format!("text({})", message.text),
                Kind::Binary => format!("binary({})", message.text.as_bytes().escape_ascii()),
            });
        }
        let rules = FrameRules { role: receiver, allows_deflate: true };
        let got = messages(rules, &Limits::default(), Some(&mut inflater), &bytes, step);
        prop_assert_eq!(got, wanted.join(" "));
    }

    #[test]
    fn memory_for_hostile_bytes_is_bounded(choice: u8, bytes in vec(any::<u8>(), 0..300)) {
        let mut data = vec![choice];
        data.extend_from_slice(&bytes);
        fuzz_websocket(&data);
    }

    #[test]
    fn hostile_frames_are_bounded(choice: u8, bytes in frames(), flips in vec((any::<prop::sample::Index>(), any::<u8>()), 0..4)) {
        let mut data = vec![choice & !1];
        data.extend_from_slice(&bytes);
        for (index, flip) in flips {
            let at = index.index(data.len());
            data[at] ^= flip;
        }
        fuzz_websocket(&data);
    }
}
