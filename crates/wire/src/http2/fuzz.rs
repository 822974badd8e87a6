//! Bodies of the fuzz targets for HTTP/2; the test that replays the corpus runs them too.
//! In: any bytes. Out: nothing; panics if a check fails.
//! Never: called on the data path.

use super::frame::{FRAME_HEAD_BYTES, FrameHead, FrameKind, PREFACE};
use super::{Config, Connection, ErrorCode, Event, Fault, RequestLine, Scratch};
use tidegate_base::Moment;

/// Gives `data` to a connection, whole and in pieces: the events, the replies and the fault must be the same.
/// Bit 0 of the first byte chooses the role. If bit 1 is set, the beginning of the connection is added.
pub fn fuzz_http2_frames(data: &[u8]) {
    let Some((&mode, data)) = data.split_first() else { return };
    let mut input = Vec::new();
    if mode & 2 != 0 {
        if mode & 1 == 0 {
            input.extend_from_slice(PREFACE);
        }
        super::frame::encode_settings(&mut input, &[]);
    }
    input.extend_from_slice(data);
    let whole = feed(&input, input.len(), mode & 1 != 0);
    for step in [1, 2, 7] {
        assert_eq!(feed(&input, step, mode & 1 != 0), whole, "pieces of {step} bytes");
    }
}

/// The events and output of a connection.
#[derive(PartialEq, Eq, Debug)]
struct Outcome {
    /// The events as text; the data of one stream in a row is one event.
    events: Vec<String>,
    /// The output without WINDOW_UPDATE, which depends on how the input is split.
    replies: Vec<(FrameHead, Vec<u8>)>,
    fault: Option<Fault>,
}

/// Gives `input` to a new connection, at most `step` bytes at each call.
fn feed(input: &[u8], step: usize, is_client: bool) -> Outcome {
    let config = if is_client { Config::client() } else { Config::server() };
    let mut connection = Connection::new(Config { connect_protocol: true, ..config }, Moment::ZERO);
    let (mut scratch, mut out) = (Scratch::new(), Vec::new());
    connection.start(&mut out);
    for method in ["GET", "POST", "HEAD"] {
        if is_client {
            let line = RequestLine { method, ..LINE };
            assert!(connection.send_request(&mut out, 0, &line, method == "GET", |_| {}).is_ok());
        }
    }
    out.clear();
    let mut outcome = Outcome { events: Vec::new(), replies: Vec::new(), fault: None };
    let mut open_data: Option<u32> = None;
    for mut piece in input.chunks(step.max(1)) {
        while outcome.fault.is_none() {
            match connection.receive(Moment::ZERO, &mut piece, &mut scratch, &mut out) {
                Ok(Some(event)) => note(&event, &mut open_data, &mut outcome.events),
                Ok(None) => break,
                Err(fault) => outcome.fault = Some(fault),
            }
        }
        assert!(outcome.fault.is_some() || piece.is_empty(), "all input must be taken");
    }
    assert!(connection.open_streams() <= connection.config().streams_max as usize);
    assert_eq!(outcome.fault.is_some(), connection.is_finished() && outcome.fault.is_some());
    outcome.replies = frames(&out);
    outcome
}

fn note(event: &Event<'_>, open_data: &mut Option<u32>, events: &mut Vec<String>) {
    let Event::Data { stream, bytes, ends, .. } = event else {
        *open_data = None;
        events.push(format!("{event:?}"));
        return;
    };
    if *open_data != Some(*stream) {
        events.push(format!("data {stream} "));
    }
    *open_data = if *ends { None } else { Some(*stream) };
    if let Some(last) = events.last_mut() {
        last.push_str(&bytes.escape_ascii().to_string());
        last.push_str(if *ends { " end" } else { "" });
    }
}

/// The frames of an output, which must be whole.
fn frames(mut bytes: &[u8]) -> Vec<(FrameHead, Vec<u8>)> {
    let mut frames = Vec::new();
    while let Some((head, rest)) = bytes.split_first_chunk::<FRAME_HEAD_BYTES>() {
        let head = FrameHead::decode(head);
        let (payload, rest) = rest.split_at(head.length as usize);
        bytes = rest;
        if head.kind != FrameKind::WindowUpdate {
            frames.push((head, payload.to_vec()));
        }
    }
    assert!(bytes.is_empty(), "the output must consist of whole frames");
    frames
}

const LINE: RequestLine<'_> =
    RequestLine { method: "POST", scheme: "http", authority: "a", path: "/", protocol: None };

/// One side of a connection.
struct Side {
    connection: Connection,
    scratch: Scratch,
    out: Vec<u8>,
    /// The latest stream, for operations that need one.
    latest: u32,
}

/// Lets a client and a server connection talk; each byte of `steps` chooses an operation. Whatever the two
/// users do and however their bytes are delivered, neither side may find fault with the other.
pub fn fuzz_http2_connection(steps: &[u8]) {
    let side = |config| {
        let mut connection = Connection::new(config, Moment::ZERO);
        let mut out = Vec::new();
        connection.start(&mut out);
        Side { connection, scratch: Scratch::new(), out, latest: 1 }
    };
    let small = Config { streams_max: 5, connection_window: 1, ..Config::server() };
    let mut server = side(Config { encoder_table_bytes: 100, ..small });
    let mut client = side(Config { encoder_table_bytes: 4096, ..Config::client() });
    for (index, &step) in steps.iter().enumerate() {
        // Time passes, so that the steps use up no allowance.
        let now = Moment::from_nanos(index as u64 * 1_000_000_000);
        let amount = 1 << (step >> 4);
        match step & 15 {
            0 | 1 => deliver(now, &mut client, &mut server, amount),
            2 | 3 => deliver(now, &mut server, &mut client, amount),
            4 | 5 => {
                let ends = step & 16 != 0;
                let sent = client.connection.send_request(&mut client.out, 0, &LINE, ends, |f| {
                    f.field("X-Step", &[b'a' + (step >> 4)]);
                });
                client.latest = sent.unwrap_or(client.latest);
            }
            6 => send(now, &mut client, amount, step),
            7 => send(now, &mut server, amount, step),
            8 | 9 => {
                let stream = server.latest;
                let status = if step & 16 != 0 { 103 } else { 200 };
                server.connection.send_response(&mut server.out, stream, status, false, |f| {
                    f.field("Via", b"fuzz");
                });
            }
            10 => {
                client
                    .connection
                    .send_trailers(&mut client.out, client.latest, |f| f.field("a", b"b"));
            }
            11 => {
                server
                    .connection
                    .send_trailers(&mut server.out, server.latest, |f| f.field("a", b"b"));
            }
            12 => {
                let side = if step & 16 != 0 { &mut client } else { &mut server };
                side.connection.reset(&mut side.out, side.latest, ErrorCode::CANCEL);
            }
            13 => {
                let side = if step & 16 != 0 { &mut client } else { &mut server };
                let bytes = side.connection.unreleased_bytes(side.latest);
                side.connection.release(&mut side.out, side.latest, bytes.min(amount));
            }
            14 => {
                server.connection.set_streams_max(&mut server.out, 3 + u32::from(step >> 5));
            }
            _ => match step >> 4 {
                0 => server.connection.stop(&mut server.out),
                1 => server.connection.stop_now(&mut server.out),
                2 => client.connection.shrink(),
                3 => server.connection.shrink(),
                _ => {
                    client.latest = 1.max(client.latest.saturating_sub(2));
                    server.latest = 1.max(server.latest.saturating_sub(2));
                }
            },
        }
    }
    finish(steps.len(), &mut client, &mut server);
}

fn send(now: Moment, side: &mut Side, amount: usize, step: u8) {
    let bytes = vec![step; amount];
    if let Some(stream) = side.connection.poll_writable(&side.out) {
        side.latest = stream;
    }
    let ends = step & 16 != 0;
    let sent = side.connection.send_data(now, &mut side.out, side.latest, &bytes, ends);
    assert!(sent.is_none_or(|sent| sent <= bytes.len()));
}

/// Moves up to `max` bytes from one side to the other.
fn deliver(now: Moment, from: &mut Side, to: &mut Side, max: usize) {
    let count = max.min(from.out.len());
    let bytes: Vec<u8> = from.out.drain(..count).collect();
    from.connection.output_drained();
    let mut input = &bytes[..];
    loop {
        let Side { connection, scratch, out, latest } = to;
        match connection.receive(now, &mut input, scratch, out) {
            Ok(None) => break,
            Ok(Some(Event::Request { stream, .. })) => *latest = stream,
            Ok(Some(Event::Reset { cause, .. })) => {
                let is_ours = matches!(cause, super::ResetCause::Fault(_));
                assert!(!is_ours, "a side found fault with a stream: {cause:?}");
            }
            Ok(Some(Event::Rejected { fault, .. })) => {
                assert_eq!(fault.kind, super::FaultKind::StreamRefused);
            }
            Ok(Some(_)) => {}
            Err(fault) => unreachable!("a side found fault with the other: {fault:?}"),
        }
    }
}

/// Delivers everything and resets every stream: nothing is left then.
fn finish(second: usize, client: &mut Side, server: &mut Side) {
    let now = Moment::from_nanos((second as u64 + 1_000) * 1_000_000_000);
    for _ in 0..4 {
        deliver(now, client, server, usize::MAX);
        deliver(now, server, client, usize::MAX);
    }
    let open: Vec<_> = client.connection.streams().map(|(stream, _)| stream).collect();
    for stream in open {
        assert!(client.connection.reset(&mut client.out, stream, ErrorCode::CANCEL).is_some());
    }
    deliver(now, client, server, usize::MAX);
    deliver(now, server, client, usize::MAX);
    assert_eq!((client.connection.open_streams(), server.connection.open_streams()), (0, 0));
    assert!(client.connection.may_end() && server.connection.may_end());
    for side in [client, server] {
        side.connection.shrink();
        assert!(side.connection.held_bytes() < 8 * 1024);
    }
}
