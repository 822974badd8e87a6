//! tungstenite as the other side, in both roles and in memory.

use super::transcript::{CLIENT, SERVER, messages};
use proptest::collection::vec;
use proptest::prelude::*;
use std::io::{self, Read, Write};
use tidegate_wire::websocket::{
    Close, CloseCode, Fragment, Kind, Limits, MaskKey, encode_close, encode_fragment, encode_ping,
    encode_pong,
};
use tungstenite::protocol::{CloseFrame, Role};
use tungstenite::{Error, Message, WebSocket};

/// A stream whose input is given beforehand and whose output is collected.
struct Memory {
    input: io::Cursor<Vec<u8>>,
    output: Vec<u8>,
}

impl Read for Memory {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.input.read(buffer)? {
            0 => Err(io::ErrorKind::WouldBlock.into()),
            bytes => Ok(bytes),
        }
    }
}

impl Write for Memory {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        self.output.write(buffer)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn peer(role: Role, input: Vec<u8>) -> WebSocket<Memory> {
    let memory = Memory { input: io::Cursor::new(input), output: Vec::new() };
    WebSocket::from_raw_socket(memory, role, None)
}

/// What tungstenite receives from `input`.
fn received(role: Role, input: Vec<u8>) -> String {
    let mut peer = peer(role, input);
    let mut words = Vec::new();
    loop {
        match peer.read() {
            Ok(Message::Text(text)) => words.push(format!("text({text})")),
            Ok(Message::Binary(data)) => words.push(format!("binary({})", data.escape_ascii())),
            Ok(Message::Ping(data)) => words.push(format!("ping({})", data.escape_ascii())),
            Ok(Message::Pong(data)) => words.push(format!("pong({})", data.escape_ascii())),
            Ok(Message::Close(Some(close))) => {
                words.push(format!("close({} {})", u16::from(close.code), close.reason));
                break;
            }
            Ok(Message::Close(None)) => {
                words.push("close()".to_owned());
                break;
            }
            Ok(Message::Frame(_)) => unreachable!("reading returns no frames"),
            Err(Error::Io(error)) if error.kind() == io::ErrorKind::WouldBlock => break,
            Err(_) => {
                words.push("fault".to_owned());
                break;
            }
        }
    }
    words.join(" ")
}

/// What we receive from `input`, in the words of `received`.
fn ours(role: Role, input: &[u8]) -> String {
    let rules = if role == Role::Server { SERVER } else { CLIENT };
    messages(rules, &Limits::default(), None, input, input.len().max(1))
}

#[derive(Clone, Debug)]
enum Item {
    Text(String, usize),
    Binary(Vec<u8>, usize),
    Ping(Vec<u8>),
    Pong(Vec<u8>),
}

fn items() -> impl Strategy<Value = Vec<Item>> {
    let item = prop_oneof![
        ("[a-zé€😀]{0,100}", 1..50_usize).prop_map(|(text, cut)| Item::Text(text, cut)),
        (vec(any::<u8>(), 0..300), 1..400_usize).prop_map(|(data, cut)| Item::Binary(data, cut)),
        vec(any::<u8>(), 0..=125).prop_map(Item::Ping),
        vec(any::<u8>(), 0..=125).prop_map(Item::Pong),
    ];
    vec(item, 0..8)
}

fn encode(items: &[Item], key: Option<MaskKey>) -> Vec<u8> {
    let mut out = Vec::new();
    let mut message = |kind, data: &[u8], cut: usize| {
        let count = data.len().div_ceil(cut).max(1);
        for index in 0..count {
            let piece = &data[index * cut..data.len().min((index + 1) * cut)];
            let (is_first, is_last) = (index == 0, index + 1 == count);
            let fragment = Fragment { is_first, is_last, ..Fragment::whole(kind) };
            encode_fragment(&mut out, fragment, piece, key);
        }
    };
    let mut controls = Vec::new();
    for item in items {
        match item {
            Item::Text(text, cut) => message(Kind::Text, text.as_bytes(), *cut),
            Item::Binary(data, cut) => message(Kind::Binary, data, *cut),
            Item::Ping(data) => encode_ping(&mut controls, data, key).unwrap(),
            Item::Pong(data) => encode_pong(&mut controls, data, key).unwrap(),
        }
    }
    controls.extend_from_slice(&out);
    encode_close(&mut controls, Some(Close { code: CloseCode::NORMAL, reason: "bye" }), key);
    controls
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn tungstenite_reads_what_we_send(items in items(), key in any::<MaskKey>()) {
        for (role, key) in [(Role::Server, Some(key)), (Role::Client, None)] {
            let bytes = encode(&items, key);
            prop_assert_eq!(received(role, bytes.clone()), ours(role, &bytes));
        }
    }

    #[test]
    fn we_read_what_tungstenite_sends(items in items()) {
        for (sender, receiver) in [(Role::Server, Role::Client), (Role::Client, Role::Server)] {
            let mut peer = peer(sender, Vec::new());
            let mut wanted = Vec::new();
            for item in &items {
                let message = match item {
                    Item::Text(text, _) => Message::text(text.clone()),
                    Item::Binary(data, _) => Message::binary(data.clone()),
                    Item::Ping(data) => Message::Ping(data.clone().into()),
                    Item::Pong(data) => Message::Pong(data.clone().into()),
                };
                wanted.push(match item {
                    Item::Text(text, _) => format!("text({text})"),
                    Item::Binary(data, _) => format!("binary({})", data.escape_ascii()),
                    Item::Ping(data) => format!("ping({})", data.escape_ascii()),
                    Item::Pong(data) => format!("pong({})", data.escape_ascii()),
                });
                peer.send(message).unwrap();
            }
            peer.close(Some(CloseFrame { code: 1001.into(), reason: "away".into() })).unwrap();
            wanted.push("close(1001 away)".to_owned());
            let bytes = std::mem::take(&mut peer.get_mut().output);
            prop_assert_eq!(
                messages(if receiver == Role::Server { SERVER } else { CLIENT }, &Limits::default(), None, &bytes, 77),
                wanted.join(" ")
            );
        }
    }

    /// Damaged frames: both sides accept the same messages and fail at the same frame.
    #[test]
    fn damaged_frames_have_the_same_verdict(
        items in items(),
        index in any::<prop::sample::Index>(),
        flip in 1..=u8::MAX,
    ) {
        let mut bytes = encode(&items, None);
        let at = index.index(bytes.len());
        bytes[at] ^= flip;
        let (theirs, ours) = (received(Role::Client, bytes.clone()), verdict(&bytes));
        prop_assert!(is_same(&theirs, &ours), "{theirs}\n{ours}\n{bytes:x?}");
    }
}

/// Found by `damaged_frames_have_the_same_verdict`.
#[test]
fn close_code_1014_of_the_registry_is_accepted() {
    let bytes = b"\x88\x05\x03\xf6bye";
    let (theirs, ours) = (received(Role::Client, bytes.to_vec()), verdict(bytes));
    assert!(ours.contains("close(1014 bye)") && is_same(&theirs, &ours), "{theirs}\n{ours}");
}

/// What a client of this crate receives, with faults as one word.
fn verdict(bytes: &[u8]) -> String {
    let all = messages(CLIENT, &Limits::default(), None, bytes, bytes.len());
    match all.rsplit_once(' ') {
        Some((before, last)) if !last.ends_with(')') && last != "more" => format!("{before} fault"),
        Some((before, "more")) => before.to_owned(),
        None if !all.ends_with(')') => {
            if all == "more" {
                String::new()
            } else {
                "fault".to_owned()
            }
        }
        _ => all,
    }
}

/// Whether both results agree, apart from known differences of tungstenite: it accepts lengths that are not minimal and
/// reserved close codes, it repairs invalid reasons, it reports some faults only when the frame or the message is complete,
/// and it does not know the code 1014 of IANA's registry.
fn is_same(theirs: &str, ours: &str) -> bool {
    theirs == ours
        || ours.contains("close(1014 ") && theirs.contains("close(1002 ")
        || ours.strip_suffix("fault").is_some_and(|before| theirs.starts_with(before.trim_end()))
}
