//! Decodes bytes in pieces and writes down what they contain, one word for each message, control frame or fault.

use tidegate_wire::websocket::{
    Close, Closing, Data, Decoder, Event, FaultKind, FrameRules, Incoming, Inflater, Kind, Limits,
    MaskKey, Message, Piece, Role, apply_mask,
};

/// The key of the frames that the tests build.
pub const TEST_KEY: MaskKey = [0x37, 0xfa, 0x21, 0x3d];

pub const SERVER: FrameRules = FrameRules { role: Role::Server, allows_deflate: false };
pub const CLIENT: FrameRules = FrameRules { role: Role::Client, allows_deflate: false };
pub const DEFLATE_SERVER: FrameRules = FrameRules { role: Role::Server, allows_deflate: true };

/// A frame of a client whose first byte is `first`.
pub fn masked(first: u8, payload: &[u8]) -> Vec<u8> {
    frame(first, payload, Some(TEST_KEY))
}

/// A frame of a server whose first byte is `first`.
pub fn unmasked(first: u8, payload: &[u8]) -> Vec<u8> {
    frame(first, payload, None)
}

fn frame(first: u8, payload: &[u8], key: Option<MaskKey>) -> Vec<u8> {
    let bit = if key.is_some() { 0x80 } else { 0 };
    let mut bytes = vec![first];
    match payload.len() {
        length @ 0..126 => bytes.push(bit | length as u8),
        length @ 126..0x1_0000 => {
            bytes.push(bit | 126);
            bytes.extend_from_slice(&(length as u16).to_be_bytes());
        }
        length => {
            bytes.push(bit | 127);
            bytes.extend_from_slice(&(length as u64).to_be_bytes());
        }
    }
    bytes.extend_from_slice(&key.unwrap_or_default()[..if key.is_some() { 4 } else { 0 }]);
    let start = bytes.len();
    bytes.extend_from_slice(payload);
    apply_mask(&mut bytes[start..], key.unwrap_or_default());
    bytes
}

fn show(kind: Kind, bytes: &[u8]) -> String {
    match kind {
        Kind::Text => format!("text({})", std::str::from_utf8(bytes).unwrap()),
        Kind::Binary => format!("binary({})", bytes.escape_ascii()),
    }
}

fn show_close(close: Option<Close<'_>>) -> String {
    match close {
        Some(close) => format!("close({} {})", close.code.get(), close.reason),
        None => "close()".to_owned(),
    }
}

/// What `input` contains, read `step` bytes at a time with `decode`.
pub fn pieces(rules: FrameRules, limits: &Limits, input: &[u8], step: usize) -> String {
    let mut decoder = Decoder::new(rules);
    let mut words: Vec<String> = Vec::new();
    let mut message = Vec::new();
    for chunk in input.chunks(step.max(1)) {
        let mut chunk = chunk.to_vec();
        let mut at = 0;
        while at < chunk.len() {
            let step = match decoder.decode(&mut chunk[at..], limits) {
                Ok(step) => step,
                Err(fault) => {
                    words.push(fault.kind.name().to_owned());
                    check_silence(&mut decoder, limits);
                    return words.join(" ");
                }
            };
            assert!(step.consumed > 0);
            match step.event {
                Some(Event::Data(Data { kind, is_first, is_last, piece })) => {
                    assert_eq!(is_first, message.is_empty(), "an empty piece is the last one");
                    let is_deflated = matches!(piece, Piece::Deflated(_));
                    assert!(is_deflated || matches!(piece, Piece::Text(_)) == (kind == Kind::Text));
                    let kind = if is_deflated { Kind::Binary } else { kind };
                    message.extend_from_slice(piece.bytes());
                    if is_last {
                        words.push(show(kind, &message));
                        message.clear();
                    }
                }
                Some(Event::Ping(payload)) => {
                    words.push(format!("ping({})", payload.escape_ascii()))
                }
                Some(Event::Pong(payload)) => {
                    words.push(format!("pong({})", payload.escape_ascii()))
                }
                Some(Event::Close(close)) => words.push(show_close(close)),
                None => {}
            }
            at += step.consumed;
        }
    }
    if decoder.is_in_message() {
        words.push("more".to_owned());
    }
    words.join(" ")
}

fn check_silence(decoder: &mut Decoder, limits: &Limits) {
    assert_eq!(decoder.closing(), Closing::Failed);
    let mut more = masked(0x81, b"more");
    let step = decoder.decode(&mut more, limits).unwrap();
    assert_eq!((step.consumed, step.event), (more_bytes(), None));
}

fn more_bytes() -> usize {
    masked(0x81, b"more").len()
}

/// As `pieces`, but with `decode_message`.
pub fn messages(
    rules: FrameRules,
    limits: &Limits,
    mut inflater: Option<&mut Inflater>,
    input: &[u8],
    step: usize,
) -> String {
    let mut decoder = Decoder::new(rules);
    let mut buffer = Vec::new();
    let mut words: Vec<String> = Vec::new();
    for chunk in input.chunks(step.max(1)) {
        let mut chunk = chunk.to_vec();
        let mut at = 0;
        while at < chunk.len() {
            let inflater = inflater.as_deref_mut();
            match decoder.decode_message(&mut chunk[at..], limits, &mut buffer, inflater) {
                Ok(step) => {
                    assert!(step.consumed > 0);
                    at += step.consumed;
                    match step.incoming {
                        Some(Incoming::Message(message)) => {
                            words.push(show(message.kind(), message.bytes()));
                            assert_eq!(
                                matches!(message, Message::Text(_)),
                                message.kind() == Kind::Text
                            );
                        }
                        Some(Incoming::Ping(payload)) => {
                            words.push(format!("ping({})", payload.escape_ascii()));
                        }
                        Some(Incoming::Pong(payload)) => {
                            words.push(format!("pong({})", payload.escape_ascii()));
                        }
                        Some(Incoming::Close(close)) => words.push(show_close(close)),
                        None => {}
                    }
                }
                Err(fault) => {
                    words.push(fault.kind.name().to_owned());
                    return words.join(" ");
                }
            }
        }
        decoder.release();
    }
    if decoder.is_in_message() {
        words.push("more".to_owned());
    }
    words.join(" ")
}

/// Checks what `input` contains, with both ways to decode and several sizes of pieces.
#[track_caller]
pub fn check_with(rules: FrameRules, limits: &Limits, input: &[u8], wanted: &str) {
    let mut steps = vec![input.len().max(1), 1, 2, 3, 7, 64];
    if input.len() > 4096 {
        steps.truncate(1);
        steps.extend([997, 1460, 4096]);
    }
    for step in steps {
        let got = pieces(rules, limits, input, step);
        assert!(got == wanted, "pieces of {step} bytes: {}, wanted {}", cut(&got), cut(wanted));
        let got = messages(rules, limits, None, input, step);
        assert!(got == wanted, "messages in {step} bytes: {}, wanted {}", cut(&got), cut(wanted));
    }
}

fn cut(text: &str) -> String {
    text.chars().take(300).collect()
}

/// Checks frames that a server receives.
#[track_caller]
pub fn check(input: &[u8], wanted: &str) {
    check_with(SERVER, &Limits::default(), input, wanted);
}

/// The number of bytes after which a server fails, and the fault, if the bytes arrive one by one.
pub fn fails_after(input: &[u8]) -> Option<(usize, FaultKind)> {
    let mut decoder = Decoder::new(SERVER);
    for (index, &byte) in input.iter().enumerate() {
        if let Err(fault) = decoder.decode(&mut [byte], &Limits::default()) {
            return Some((index + 1, fault.kind));
        }
    }
    None
}
