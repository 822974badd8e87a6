//! WebSocket connections to the action `echo`: random clients, and named cases of backpressure and fairness.
//! In: seeds for these runs only, so that a change of this file does not change the runs of other files. Out: each failing seed.
//! Limits: `TURNS_MAX` turns for each run.
//! Invariant: what a client receives is what it sent, in order; after a run the worker holds nothing.

use std::collections::VecDeque;

use tidegate_base::limits::{
    OUTPUT_BYTES_MAX, OUTPUT_PAUSE_BYTES, READ_BUFFER_BYTES, WEBSOCKET_FRAMES_PER_TURN_MAX,
};
use tidegate_base::{Prng, Span};
use tidegate_reactor::{Faults, Reactor, SimNet, SimPeer, SimReactor};
use tidegate_wire::websocket::{
    Close, CloseCode, Decoder, Deflater, Effort, Fragment, FrameRules, Incoming, Inflater, Kind,
    Limits, Role, WINDOW_BITS_MAX, encode_close, encode_close_reply, encode_deflated,
    encode_fragment, encode_message, encode_ping, encode_pong,
};

use crate::peer::harness::Harness;
use crate::plan::below_skewed;

const SEEDS: u64 = 300;
const TURNS_MAX: usize = 100_000;
/// The longest message of a client.
const MESSAGE_BYTES_MAX: u64 = 70_000;

/// How the connections of a run compress.
const COMPRESSIONS: [&str; 3] = ["off", "shared", "dedicated"];

fn worker(net: &SimNet, settings: &str) -> Harness<SimReactor> {
    let file = format!(
        "[[listener]]\nbind = \"10.0.0.1:80\"\ntimeouts = {{ head = \"1h\", body = \"1h\" }}\n[[route]]\npath = \"/echo\"\necho = true\n\
         [[route]]\npath = \"/hello\"\nrespond = {{ body = \"hello\" }}\n[websocket]\n{settings}\n"
    );
    let config = match tidegate_config::parse(&file, "the test") {
        Ok(config) => config,
        Err(errors) => panic!("{errors}"),
    };
    Harness::simulated(net, &config, 64, 1)
}

fn request(offers: bool) -> String {
    let extensions = if offers { "Sec-WebSocket-Extensions: permessage-deflate\r\n" } else { "" };
    format!(
        "GET /echo HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n{extensions}\r\n"
    )
}

/// How a client ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    /// A Close frame with this code, which must come back.
    Close(u16),
    /// A frame without a mask, which must be answered with 1002.
    Fault,
    Finish,
    Reset,
}

/// A client with random habits.
struct Client {
    peer: SimPeer,
    prng: Prng,
    /// Bytes to send before anything else.
    out: Vec<u8>,
    /// Bytes received and not decoded.
    input: Vec<u8>,
    /// The head of the response is complete.
    is_open: bool,
    decoder: Decoder,
    /// The message being received.
    message: Vec<u8>,
    codecs: Option<(Inflater, Deflater)>,
    /// Messages that must come back, in order.
    expected: VecDeque<(Kind, Vec<u8>)>,
    /// Messages still to be sent.
    left: u64,
    end: End,
    has_ended: bool,
    is_gone: bool,
    /// Maximum number of bytes sent and received at once.
    piece_bytes: u64,
}

impl Client {
    fn new(peer: SimPeer, mut prng: Prng, compression: &str) -> Self {
        let codecs = match compression {
            "shared" => Some((Inflater::shared(), Deflater::shared(15, Effort::default()))),
            "dedicated" => Some((
                Inflater::for_connection(WINDOW_BITS_MAX),
                Deflater::for_connection(15, Effort::default()),
            )),
            _ => None,
        };
        let codecs = codecs.filter(|_| prng.below(4) > 0);
        let codecs = codecs.map(|(inflater, deflater)| (inflater, deflater.expect("15 bits")));
        let end = match prng.below(6) {
            0 => End::Fault,
            1 => End::Finish,
            2 => End::Reset,
            _ => End::Close(1000 + 2000 * prng.below(2) as u16),
        };
        let allows_deflate = codecs.is_some();
        Self {
            out: request(allows_deflate).into_bytes(),
            input: Vec::new(),
            is_open: false,
            decoder: Decoder::new(FrameRules { role: Role::Client, allows_deflate }),
            message: Vec::new(),
            codecs,
            expected: VecDeque::new(),
            left: prng.below(12),
            end,
            has_ended: false,
            is_gone: false,
            piece_bytes: 1 + below_skewed(&mut prng, 100_000, 17),
            peer,
            prng,
        }
    }

    fn step(&mut self) -> bool {
        if self.is_gone {
            return false;
        }
        let most = self.prng.below(self.piece_bytes) as usize + 1;
        let received = self.peer.receive_some(most);
        let mut moved = !received.is_empty();
        self.input.extend(received);
        self.read();
        if self.out.is_empty() && self.is_open && !self.has_ended {
            self.compose();
        }
        if !self.out.is_empty() {
            let most = self.out.len().min(self.prng.below(self.piece_bytes) as usize + 1);
            let sent = self.peer.send(&self.out[..most]);
            self.out.drain(..sent);
            moved |= sent > 0;
        }
        if self.out.is_empty() && self.has_ended {
            match self.end {
                End::Finish => self.peer.finish(),
                End::Reset => {
                    self.peer.reset();
                    self.is_gone = true;
                }
                End::Close(_) | End::Fault => {}
            }
        }
        if self.peer.was_reset() || self.peer.is_finished_by_other() && self.input.is_empty() {
            // Messages may be lost only if the client itself gives up.
            let may_lose = matches!(self.end, End::Fault | End::Reset);
            assert!(self.has_ended, "the worker ended the connection: {:?}", self.end);
            assert!(may_lose || self.expected.is_empty(), "{} messages", self.expected.len());
            self.is_gone = true;
        }
        moved
    }

    fn read(&mut self) {
        if !self.is_open {
            let text = String::from_utf8_lossy(&self.input);
            let Some(end) = text.find("\r\n\r\n") else { return };
            assert!(text.starts_with("HTTP/1.1 101 "), "{text}");
            assert_eq!(text.contains("permessage-deflate"), self.codecs.is_some(), "{text}");
            self.input.drain(..end + 4);
            self.is_open = true;
        }
        let mut input = core::mem::take(&mut self.input);
        let (mut rest, limits) = (&mut input[..], Limits::default());
        while !rest.is_empty() {
            let inflater = self.codecs.as_mut().map(|(inflater, _)| inflater);
            let decoded = self.decoder.decode_message(rest, &limits, &mut self.message, inflater);
            let step = decoded.expect("the worker keeps to the protocol");
            let consumed = step.consumed;
            match step.incoming {
                None | Some(Incoming::Pong(_)) => {}
                Some(Incoming::Message(message)) => {
                    let (kind, data) = self.expected.pop_front().expect("an echo of a message");
                    assert!(kind == message.kind() && data == message.bytes(), "another message");
                }
                Some(Incoming::Ping(payload)) => {
                    encode_pong(&mut self.out, payload, Some([1, 2, 3, 4])).expect("it fits");
                }
                Some(Incoming::Close(close)) => {
                    let code = close.map(|close| close.code.get());
                    match self.end {
                        End::Close(sent) => assert_eq!(code, Some(sent)),
                        End::Fault => assert_eq!(code, Some(1002)),
                        End::Finish | End::Reset => panic!("{close:?} without a reason"),
                    }
                    if self.end == End::Fault {
                        encode_close_reply(&mut self.out, close, Some([0; 4]));
                    }
                }
            }
            rest = &mut rest[consumed..];
        }
    }

    /// Composes the next frames.
    fn compose(&mut self) {
        let prng = &mut self.prng;
        let key = (prng.next_u64() as u32).to_ne_bytes();
        if prng.below(5) == 0 {
            encode_ping(&mut self.out, b"ping", Some(key)).expect("it fits");
        }
        if self.left == 0 {
            self.has_ended = true;
            match self.end {
                End::Close(code) => {
                    let code = CloseCode::new(code).expect("a valid code");
                    encode_close(&mut self.out, Some(Close::new(code)), Some(key));
                }
                End::Fault => encode_message(&mut self.out, Kind::Text, b"not masked", None),
                End::Finish | End::Reset => {}
            }
            return;
        }
        self.left -= 1;
        // A client that sends byte by byte sends only short messages, so that the run ends in time.
        let most = MESSAGE_BYTES_MAX.min(500 * self.piece_bytes);
        let length = below_skewed(prng, most, 16) as usize;
        let kind = if prng.below(2) == 0 { Kind::Text } else { Kind::Binary };
        let data: Vec<u8> = match kind {
            Kind::Text => {
                let chars = ['a', 'b', '\u{e9}', '\u{20ac}', '\u{1f600}'];
                let text: String = (0..length / 3).map(|_| chars[prng.below(5) as usize]).collect();
                text.into_bytes()
            }
            Kind::Binary => (0..length).map(|_| prng.below(256) as u8).collect(),
        };
        match &mut self.codecs {
            Some((_, deflater)) if prng.below(3) > 0 => {
                encode_deflated(&mut self.out, kind, &data, deflater, Some(key)).expect("no bug");
            }
            _ => {
                let mut at = 0;
                loop {
                    let size = (prng.below(data.len() as u64 + 1) as usize).min(data.len() - at);
                    let (is_first, is_last) = (at == 0, at + size == data.len());
                    let fragment = Fragment { kind, is_first, is_last, is_deflated: false };
                    // An empty first fragment would make the next one the first, too.
                    if size > 0 || is_last {
                        encode_fragment(&mut self.out, fragment, &data[at..at + size], Some(key));
                        if prng.below(4) == 0 {
                            encode_pong(&mut self.out, b"", Some(key)).expect("it fits");
                        }
                        at += size;
                    }
                    if is_last {
                        break;
                    }
                }
            }
        }
        self.expected.push_back((kind, data));
    }
}

fn play(seed: u64) {
    let mut prng = Prng::new(seed ^ 0x6563_686f);
    let faults = match prng.below(3) {
        0 => Faults::none(),
        // Without room for a connection, the worker would close clients.
        _ => Faults { accept_shortage_ppm: 0, ..Faults::swarm_harmless(&mut prng) },
    };
    let net = SimNet::new(seed, faults);
    net.set_window_bytes(300 + below_skewed(&mut prng, 64 * 1024, 8) as usize);
    let compression = COMPRESSIONS[prng.below(3) as usize];
    let pings = ["\"off\"", "\"1s\""][prng.below(2) as usize];
    // A client may be as slow as the network allows, so no other timeout may expire.
    let settings =
        format!("compression = \"{compression}\"\nping-every = {pings}\npong-timeout = \"1h\"\n");
    let mut harness = worker(&net, &settings);
    let count = 1 + prng.below(6);
    let mut clients: Vec<Client> = (0..count)
        .map(|at| {
            let peer = net.dial(&harness.bound[0]).expect("the worker listens");
            Client::new(peer, Prng::new(seed ^ (at + 1) << 32), compression)
        })
        .collect();
    for _ in 0..TURNS_MAX {
        let mut moved = false;
        for client in &mut clients {
            moved |= client.step();
        }
        harness.turn();
        let (input, output) = harness.worker.held_bytes_max(&harness.reactor);
        assert!(input <= 2 * READ_BUFFER_BYTES && output <= OUTPUT_BYTES_MAX, "{input} {output}");
        if clients.iter().all(|client| client.is_gone) {
            clients.clear();
            if harness.reactor.sock_count() == 0 {
                assert_eq!(harness.find_leak(), None);
                return;
            }
        }
        if !moved {
            net.advance_to_next_event();
        }
    }
    panic!("the run is stuck: {:?}", harness.worker.leftovers());
}

#[test]
fn random_clients_get_their_messages_back() {
    for seed in 0..SEEDS {
        let outcome = std::panic::catch_unwind(|| play(seed));
        assert!(outcome.is_ok(), "the seed is {seed}");
    }
}

/// A worker and a client whose WebSocket is open.
fn open(settings: &str) -> (SimNet, Harness<SimReactor>, SimPeer) {
    let net = SimNet::new(1, Faults::none());
    let mut harness = worker(&net, settings);
    let client = net.dial(&harness.bound[0]).expect("the worker listens");
    client.send(request(false).as_bytes());
    turns(&net, &mut harness, 20);
    assert!(client.receive().starts_with(b"HTTP/1.1 101 "));
    (net, harness, client)
}

fn turns(net: &SimNet, harness: &mut Harness<SimReactor>, count: usize) {
    for _ in 0..count {
        harness.turn();
        net.advance_by(Span::from_millis(1));
    }
}

#[test]
fn nothing_is_read_from_a_client_that_does_not_read() {
    let (net, mut harness, client) = open("ping-every = \"off\"");
    client.set_window_bytes(1);
    let (data, mut sent, mut frame) = (vec![b'x'; 1000], 0, Vec::new());
    encode_message(&mut frame, Kind::Text, &data, Some([5; 4]));
    for _ in 0..5000 {
        sent += client.send(&frame[sent % frame.len()..]);
        turns(&net, &mut harness, 1);
    }
    let (input, output) = harness.worker.held_bytes_max(&harness.reactor);
    assert!(output <= OUTPUT_PAUSE_BYTES + READ_BUFFER_BYTES, "{output} bytes of output");
    assert!(input <= 2 * READ_BUFFER_BYTES, "{input} bytes of input");
    assert!(sent < 1_000_000, "{sent} bytes were taken");
    client.set_window_bytes(64 * 1024);
    let whole = sent / frame.len();
    let (mut received, wanted) = (0, whole * (4 + data.len()));
    for _ in 0..5000 {
        received += client.receive().len();
        turns(&net, &mut harness, 1);
    }
    assert_eq!(received, wanted, "all {whole} messages come back");
}

#[test]
fn tiny_frames_take_no_more_than_their_share_of_a_turn() {
    let (net, mut harness, client) = open("ping-every = \"off\"");
    net.set_window_bytes(1 << 20);
    client.set_window_bytes(1 << 20);
    let mut frame = Vec::new();
    encode_message(&mut frame, Kind::Binary, b"", Some([5; 4]));
    let frames = frame.repeat(10_000);
    assert_eq!(client.send(&frames), frames.len());
    let (mut before, mut shares) = (0, 0);
    for _ in 0..1000 {
        net.advance_by(Span::from_millis(1));
        harness.turn();
        let after = harness.accounts.counters.websocket_messages.load();
        // The frames that were waiting, and the frames that a read then adds.
        assert!(after - before <= 2 * WEBSOCKET_FRAMES_PER_TURN_MAX as u64, "{}", after - before);
        shares += u64::from(after > before);
        before = after;
    }
    assert_eq!(before, 10_000);
    assert!(shares >= 5, "{shares} turns");
    assert_eq!(client.receive().len(), 2 * 10_000);
}
