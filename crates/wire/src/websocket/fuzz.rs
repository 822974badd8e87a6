//! The body of the fuzz target `websocket`. In: any bytes. Out: a panic if a check fails.
//! The first byte chooses the role, the extension and the sizes of the pieces, the rest is received.

use super::close::Close;
use super::decoder::{Decoder, Event, Kind, Limits};
use super::encoder::{encode_close, encode_message, encode_ping, encode_pong};
use super::extension::DeflateSettings;
use super::fault::Fault;
use super::frame::{FrameRules, Role};
use super::inflate::Inflater;
use super::message::Incoming;

/// Limits that short inputs reach.
const LIMITS: Limits = Limits {
    frame_bytes_max: 1000,
    message_bytes_max: 2000,
    fragments_max: 20,
    inflate_ratio_max: 10,
};

/// The received messages, in order; the last entry may be a fault.
#[derive(PartialEq, Eq, Debug, Default)]
struct Record {
    messages: Vec<(Kind, Vec<u8>)>,
    controls: Vec<Vec<u8>>,
    fault: Option<Fault>,
}

/// Decodes frames in pieces of several sizes and checks that the pieces make no difference, that nothing exceeds its limit, and
/// that the received messages can be sent again. Also negotiates compression with the bytes.
pub fn fuzz_websocket(data: &[u8]) {
    let Some((&choice, data)) = data.split_first() else { return };
    let role = if choice & 1 == 0 { Role::Server } else { Role::Client };
    let rules = FrameRules { role, allows_deflate: choice & 2 != 0 };
    let step = usize::from(choice >> 4) + 1;
    let whole = receive(rules, data, data.len().max(1));
    assert_eq!(receive(rules, data, step), whole);
    assert_eq!(receive(rules, data, 1), whole);
    check_sending(rules, &whole);
    for keeps_context in [false, true] {
        check_messages(rules, data, step, keeps_context);
    }
    check_negotiation(data);
}

/// Decodes `data`, `step` bytes at a time. Compressed messages are recorded as they are.
fn receive(rules: FrameRules, data: &[u8], step: usize) -> Record {
    let mut decoder = Decoder::new(rules);
    let mut record = Record::default();
    let mut message = Vec::new();
    for chunk in data.chunks(step) {
        let mut chunk = chunk.to_vec();
        let mut at = 0;
        while at < chunk.len() {
            let step = match decoder.decode(&mut chunk[at..], &LIMITS) {
                Ok(step) => step,
                Err(fault) => {
                    record.fault = Some(fault);
                    return record;
                }
            };
            assert!(step.consumed > 0);
            at += step.consumed;
            match step.event {
                Some(Event::Data(data)) => {
                    message.extend_from_slice(data.piece.bytes());
                    assert!(message.len() as u32 <= LIMITS.message_bytes_max * 9 / 8 + 64);
                    if data.is_last {
                        record.messages.push((data.kind, core::mem::take(&mut message)));
                    }
                }
                Some(Event::Ping(payload) | Event::Pong(payload)) => {
                    record.controls.push(payload.to_vec());
                }
                Some(Event::Close(close)) => record.controls.push(encoded_close(close)),
                None => {}
            }
        }
    }
    record
}

fn encoded_close(close: Option<Close<'_>>) -> Vec<u8> {
    let mut frame = Vec::new();
    encode_close(&mut frame, close, None);
    frame
}

/// Encodes the received messages again, decodes them in the same role and compares.
fn check_sending(rules: FrameRules, record: &Record) {
    let key = (rules.role == Role::Server).then_some([1, 2, 3, 4]);
    let mut out = Vec::new();
    let mut wanted = Record::default();
    for (kind, message) in &record.messages {
        let kind = if core::str::from_utf8(message).is_ok() { *kind } else { Kind::Binary };
        if message.len() as u32 <= LIMITS.frame_bytes_max {
            encode_message(&mut out, kind, message, key);
            wanted.messages.push((kind, message.clone()));
        }
    }
    for control in &record.controls {
        let sent = encode_ping(&mut out, control, key).and(encode_pong(&mut out, control, key));
        if sent.is_ok() {
            wanted.controls.extend([control.clone(), control.clone()]);
        }
    }
    assert_eq!(receive(rules, &out, out.len().max(1)), wanted);
}

/// Decodes whole messages and checks that they are bounded.
fn check_messages(rules: FrameRules, data: &[u8], step: usize, keeps_context: bool) {
    let mut inflater = if keeps_context { Inflater::for_connection(9) } else { Inflater::shared() };
    let mut decoder = Decoder::new(rules);
    let mut buffer = Vec::new();
    for chunk in data.chunks(step) {
        let mut chunk = chunk.to_vec();
        let mut at = 0;
        while at < chunk.len() {
            let input = &mut chunk[at..];
            let inflater = Some(&mut inflater);
            let Ok(step) = decoder.decode_message(input, &LIMITS, &mut buffer, inflater) else {
                return;
            };
            at += step.consumed;
            if let Some(Incoming::Message(message)) = step.incoming {
                assert!(message.bytes().len() as u32 <= LIMITS.message_bytes_max);
            }
            assert!(buffer.len() as u32 <= LIMITS.message_bytes_max * 9 / 8 + 64);
        }
        decoder.release();
    }
}

/// Reads `data` as the value of an extension field in both roles, and checks that the client accepts what the
/// server answers to the client's own offer.
fn check_negotiation(data: &[u8]) {
    let settings = |byte: u8| DeflateSettings {
        keeps_context: byte & 1 != 0,
        peer_keeps_context: byte & 2 != 0,
        window_bits: byte >> 2 & 0x0f,
        peer_window_bits: byte >> 4,
    };
    let [first, second, ..] = data else { return };
    let (server, client) = (settings(*first), settings(*second));
    let _ = server.accept([data].into_iter());
    let _ = DeflateSettings::check_response(Some(client), [data].into_iter());
    let mut offer = String::new();
    client.encode_offer(&mut offer);
    let Ok(Some(accepted)) = server.accept([offer.as_bytes()].into_iter()) else {
        unreachable!("the server must accept the client's own offer: {offer}")
    };
    let mut answer = String::new();
    accepted.encode_response(&mut answer);
    let agreed = DeflateSettings::check_response(Some(client), [answer.as_bytes()].into_iter());
    let Ok(Some(agreed)) = agreed else {
        unreachable!("the client must accept the server's answer: {offer}: {answer}")
    };
    for role in [Role::Server, Role::Client] {
        assert_eq!(agreed.keeps_context(role), accepted.keeps_context(role));
        assert_eq!(agreed.window_bits(role), accepted.window_bits(role));
    }
}
