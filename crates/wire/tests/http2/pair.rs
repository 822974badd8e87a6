//! A client connection and a server connection that talk to each other through pipes that deliver any number of
//! bytes at a time. Whatever the pieces are, every message arrives completely, no window is exceeded (the
//! receiving side would fail), and nothing is left at the end.

use proptest::prelude::*;
use std::collections::BTreeMap;
use tidegate_base::{Moment, Prng};
use tidegate_wire::http2::bounds::WINDOW_INITIAL;
use tidegate_wire::http2::{Config, Connection, ErrorCode, Event, RequestLine, Scratch};

/// One request and its response.
#[derive(Clone, Copy, Debug)]
struct Plan {
    request_bytes: usize,
    response_bytes: usize,
    has_trailers: bool,
    /// The client resets the stream after this many bytes of the response.
    reset_after: Option<usize>,
    /// The urgency that the client sends.
    urgency: u8,
}

fn plan() -> impl Strategy<Value = Plan> {
    let size = prop_oneof![Just(0), 1..100_usize, 1_000..200_000_usize];
    let reset_after = prop_oneof![4 => Just(None), 1 => (0..5_000_usize).prop_map(Some)];
    (size.clone(), size, any::<bool>(), reset_after, 0..8_u8).prop_map(
        |(request_bytes, response_bytes, has_trailers, reset_after, urgency)| Plan {
            request_bytes,
            response_bytes,
            has_trailers,
            reset_after,
            urgency,
        },
    )
}

/// The byte of a body at an offset.
const fn body_byte(stream: u32, at: usize) -> u8 {
    (at as u32).wrapping_mul(31).wrapping_add(stream) as u8
}

/// What one side sends and receives on one stream.
#[derive(Clone, Debug, Default)]
struct Progress {
    to_send: usize,
    sent: usize,
    has_trailers: bool,
    has_ended: bool,
    received: usize,
    unreleased: usize,
    is_complete: bool,
    is_reset: bool,
}

/// One side.
struct Side {
    connection: Connection,
    scratch: Scratch,
    /// Output that the other side has not received.
    out: Vec<u8>,
    streams: BTreeMap<u32, Progress>,
}

impl Side {
    fn new(config: Config) -> Self {
        let mut connection = Connection::new(config, Moment::ZERO);
        let mut out = Vec::new();
        connection.start(&mut out);
        Self { connection, scratch: Scratch::new(), out, streams: BTreeMap::new() }
    }

    /// Takes received bytes. `respond` gives the body of the response to each request.
    fn receive(&mut self, bytes: &[u8], plans: &[Plan]) {
        let mut input = bytes;
        let mut requests = Vec::new();
        loop {
            let event = self
                .connection
                .receive(Moment::ZERO, &mut input, &mut self.scratch, &mut self.out)
                .expect("no side violates the protocol");
            let Some(event) = event else { break };
            match event {
                Event::Request { stream, ends, .. } => {
                    let plan = plans[(stream / 2) as usize];
                    let progress = Progress {
                        to_send: plan.response_bytes,
                        has_trailers: plan.has_trailers,
                        is_complete: ends,
                        ..Progress::default()
                    };
                    self.streams.insert(stream, progress);
                    requests.push(stream);
                }
                Event::Response { stream, ends, .. } => {
                    self.progress(stream).is_complete = ends;
                }
                Event::Data { stream, bytes, ends, .. } => {
                    let progress =
                        self.streams.get_mut(&stream).expect("data is for known streams");
                    for &byte in bytes {
                        assert_eq!(byte, body_byte(stream, progress.received));
                        progress.received += 1;
                    }
                    progress.unreleased += bytes.len();
                    progress.is_complete = ends;
                }
                Event::Trailers { stream, fields, .. } => {
                    assert!(fields.map(|field| field.name).eq(["x-sum"]));
                    self.progress(stream).is_complete = true;
                }
                Event::Reset { stream, .. } => self.progress(stream).is_reset = true,
                Event::Settings => {}
                other => panic!("{other:?}"),
            }
        }
        for stream in requests {
            let has_body = self.streams[&stream].to_send > 0 || self.streams[&stream].has_trailers;
            let sent = self.connection.send_response(&mut self.out, stream, 200, !has_body, |f| {
                f.field("Content-Type", b"text/plain");
            });
            // The client may have reset the stream in the same input.
            let is_reset = self.streams[&stream].is_reset;
            assert!(sent || is_reset);
            self.progress(stream).has_ended = !has_body;
            self.pump(stream);
        }
    }

    fn progress(&mut self, stream: u32) -> &mut Progress {
        self.streams.get_mut(&stream).expect("events are for known streams")
    }

    /// Sends what a stream can send.
    fn pump(&mut self, stream: u32) {
        let Some(progress) = self.streams.get_mut(&stream) else { return };
        if progress.has_ended || progress.is_reset {
            return;
        }
        let rest: Vec<u8> =
            (progress.sent..progress.to_send).map(|at| body_byte(stream, at)).collect();
        let ends = !progress.has_trailers;
        let connection = &mut self.connection;
        let Some(count) = connection.send_data(Moment::ZERO, &mut self.out, stream, &rest, ends)
        else {
            panic!("stream {stream} cannot send")
        };
        progress.sent += count;
        if count == rest.len() {
            progress.has_ended = true;
            if progress.has_trailers {
                let write = |f: &mut tidegate_wire::http2::FieldWriter<'_>| f.field("X-Sum", b"1");
                assert!(connection.send_trailers(&mut self.out, stream, write));
            }
        }
    }

    /// Releases some of the received data.
    fn release(&mut self, prng: &mut Prng) {
        for (&stream, progress) in &mut self.streams {
            let bytes = prng.below(progress.unreleased as u64 + 1) as usize;
            let bytes = if prng.below(3) == 0 { progress.unreleased } else { bytes };
            progress.unreleased -= bytes;
            self.connection.release(&mut self.out, stream, bytes);
        }
    }

    fn pump_all(&mut self) {
        while let Some(stream) = self.connection.poll_writable(&self.out) {
            self.pump(stream);
        }
    }
}

/// Moves up to `max` bytes from one side to the other.
fn deliver(from: &mut Side, to: &mut Side, max: usize, plans: &[Plan]) {
    let count = max.min(from.out.len());
    let bytes: Vec<u8> = from.out.drain(..count).collect();
    if from.out.is_empty() {
        from.connection.output_drained();
    }
    to.receive(&bytes, plans);
}

/// Opens as many streams as possible.
fn open(client: &mut Side, plans: &[Plan], opened: &mut usize) {
    while let Some(plan) = plans.get(*opened) {
        let line = RequestLine {
            method: "POST",
            scheme: "http",
            authority: "a",
            path: "/",
            protocol: None,
        };
        let ends = plan.request_bytes == 0 && !plan.has_trailers;
        let urgency = format!("u={}", plan.urgency);
        let write = |fields: &mut tidegate_wire::http2::FieldWriter<'_>| {
            fields.field("priority", urgency.as_bytes());
        };
        let Ok(stream) = client.connection.send_request(&mut client.out, 0, &line, ends, write)
        else {
            return;
        };
        let progress = Progress {
            to_send: plan.request_bytes,
            has_trailers: plan.has_trailers,
            has_ended: ends,
            ..Progress::default()
        };
        client.streams.insert(stream, progress);
        *opened += 1;
        client.pump(stream);
    }
}

fn reset_due(client: &mut Side, plans: &[Plan]) {
    for (&stream, progress) in &mut client.streams {
        let due = plans[(stream / 2) as usize].reset_after;
        if due.is_some_and(|after| progress.received > after)
            && client.connection.reset(&mut client.out, stream, ErrorCode::CANCEL).is_some()
        {
            progress.is_reset = true;
        }
    }
}

fn run(plans: &[Plan], seed: u64, streams_max: u32, output_pause_bytes: u32, piece: u64) {
    let server = Config {
        streams_max,
        output_pause_bytes,
        connection_window: WINDOW_INITIAL,
        ..Config::server()
    };
    let client = Config { output_pause_bytes, encoder_table_bytes: 4096, ..Config::client() };
    let (mut client, mut server) = (Side::new(client), Side::new(server));
    let mut prng = Prng::new(seed);
    // The client learns the limit first, so that no stream is refused.
    deliver(&mut server, &mut client, usize::MAX, plans);
    let mut opened = 0;
    for _ in 0..200_000 {
        open(&mut client, plans, &mut opened);
        deliver(&mut client, &mut server, prng.below(piece) as usize, plans);
        deliver(&mut server, &mut client, prng.below(piece) as usize, plans);
        reset_due(&mut client, plans);
        client.release(&mut prng);
        server.release(&mut prng);
        client.pump_all();
        server.pump_all();
        let is_quiet = client.out.is_empty() && server.out.is_empty();
        let is_over =
            client.connection.open_streams() == 0 && server.connection.open_streams() == 0;
        if is_quiet && is_over && opened == plans.len() {
            break;
        }
    }
    assert_eq!(opened, plans.len(), "every request was sent");
    for (index, plan) in plans.iter().enumerate() {
        let stream = 2 * index as u32 + 1;
        let (sent, served) = (&client.streams[&stream], &server.streams[&stream]);
        if sent.is_reset || served.is_reset {
            assert!(plan.reset_after.is_some());
            continue;
        }
        assert!(sent.is_complete && served.is_complete, "stream {stream} is complete");
        assert_eq!((served.received, sent.received), (plan.request_bytes, plan.response_bytes));
    }
    for side in [&client, &server] {
        assert_eq!(side.connection.open_streams(), 0);
        assert!(side.connection.may_end());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn messages_arrive_in_whatever_pieces(
        plans in prop::collection::vec(plan(), 1..12),
        seed: u64,
        streams_max in 1..8_u32,
        output_pause_bytes in prop_oneof![Just(1_u32), 1_000..100_000_u32],
        piece in prop_oneof![Just(2_u64), 2..50_u64, 1_000..100_000_u64],
    ) {
        // Small pieces take long for large bodies.
        let mut plans = plans;
        if piece < 1_000 {
            for plan in &mut plans {
                plan.request_bytes /= 50;
                plan.response_bytes /= 50;
            }
        }
        run(&plans, seed, streams_max, output_pause_bytes, piece);
    }
}

#[test]
fn many_large_messages_share_a_connection() {
    let plans: Vec<_> = (0..40)
        .map(|n| Plan {
            request_bytes: 150_000 * (n % 3),
            response_bytes: 300_000 * (n % 4),
            has_trailers: n % 5 == 0,
            reset_after: None,
            urgency: 3,
        })
        .collect();
    run(&plans, 7, 100, 32 * 1024, 100_000);
}
