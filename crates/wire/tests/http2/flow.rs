//! Flow control: windows in both directions, changes of settings, priorities between streams.

use crate::bytes::{END_STREAM, Frames, GET, PADDED};
use crate::watch::{Watch, frames};
use tidegate_wire::http2::bounds::{DATA_BYTES_MAX, WINDOW_INITIAL};
use tidegate_wire::http2::flood::TINY_SENDS_MAX;
use tidegate_wire::http2::{Config, ErrorCode};

const WINDOW: usize = WINDOW_INITIAL as usize;

/// A server with an open GET request on streams 1, 3, ... up to `count`, its response heads sent, after
/// `settings` of the client.
fn responding(config: Config, count: u32, settings: &[(u16, u32)]) -> Watch {
    let mut watch = Watch::new(config);
    watch.feed(&Frames::client().settings(settings).0, 1 << 20);
    for n in 0..count {
        watch.feed(&Frames::new().get(2 * n + 1).0, 1 << 20);
        assert!(watch.connection.send_response(&mut watch.out, 2 * n + 1, 200, false, |_| {}));
    }
    watch.out.clear();
    watch.events.clear();
    watch
}

const ROOMY: Config = Config { output_pause_bytes: u32::MAX, ..Config::server() };

impl Watch {
    fn send(&mut self, stream: u32, bytes: usize, ends: bool) -> Option<usize> {
        self.connection.send_data(self.now, &mut self.out, stream, &vec![b'x'; bytes], ends)
    }
}

#[test]
fn sent_data_stays_within_both_windows_and_goes_on_after_updates() {
    let mut watch = responding(ROOMY, 2, &[]);
    assert_eq!(watch.send(1, 100_000, true), Some(WINDOW));
    let sizes = [DATA_BYTES_MAX, DATA_BYTES_MAX, DATA_BYTES_MAX, DATA_BYTES_MAX, 35];
    assert_eq!(watch.sent(), sizes.map(|size| format!("data 1 {size}")));
    assert_eq!(watch.send(3, 10, false), Some(0), "the window of the connection is closed");
    assert_eq!(watch.connection.poll_writable(&watch.out), None);
    watch.feed(&Frames::new().window(0, 100_000).0, 100);
    assert_eq!(
        watch.connection.poll_writable(&watch.out),
        Some(3),
        "the window of stream 1 is closed"
    );
    assert_eq!(watch.send(3, 10, true), Some(10));
    assert_eq!(watch.connection.poll_writable(&watch.out), None);
    watch.feed(&Frames::new().window(1, 100_000).0, 100);
    assert_eq!(watch.connection.poll_writable(&watch.out), Some(1));
    assert_eq!(watch.send(1, 100_000 - WINDOW, true), Some(100_000 - WINDOW));
    assert!(watch.sent().last().unwrap().ends_with("end"));
    assert_eq!(watch.connection.open_streams(), 0);
}

#[test]
fn output_pause_bounds_what_is_accepted() {
    let config = Config { output_pause_bytes: 20_000, ..Config::server() };
    let mut watch = responding(config, 2, &[(4, 1 << 20)]);
    assert_eq!(watch.send(1, 60_000, true), Some(2 * DATA_BYTES_MAX));
    assert_eq!(watch.send(3, 60_000, true), Some(0));
    assert_eq!(watch.connection.poll_writable(&watch.out), None);
    watch.out.clear();
    assert_eq!(watch.connection.poll_writable(&watch.out), Some(1));
    assert_eq!(watch.send(1, 60_000 - 2 * DATA_BYTES_MAX, true), Some(60_000 - 2 * DATA_BYTES_MAX));
    watch.out.clear();
    assert_eq!(watch.connection.poll_writable(&watch.out), Some(3));
}

#[test]
fn initial_window_changes_apply_to_open_streams_and_may_make_windows_negative() {
    let mut watch = responding(ROOMY, 1, &[]);
    assert_eq!(watch.send(1, 50_000, false), Some(50_000));
    watch.feed(&Frames::new().window(0, 1 << 20).settings(&[(4, 10_000)]).0, 100);
    assert_eq!(watch.send(1, 10, false), Some(0), "the window is -40000");
    watch.feed(&Frames::new().window(1, 40_000).0, 100);
    assert_eq!(watch.connection.poll_writable(&watch.out), None, "the window is 0");
    watch.feed(&Frames::new().settings(&[(4, 10_005)]).0, 100);
    assert_eq!(watch.connection.poll_writable(&watch.out), Some(1));
    assert_eq!(watch.send(1, 10, false), Some(5));
}

#[test]
fn window_of_one_byte_is_used_but_not_forever() {
    let mut watch = responding(ROOMY, 1, &[(4, 1)]);
    assert_eq!(watch.send(1, 5_000, false), Some(1), "RFC 9113 section 6.9.1 allows tiny windows");
    let mut sent = 1;
    loop {
        watch.feed(&Frames::new().window(1, 1).0, 100);
        match watch.connection.poll_writable(&watch.out) {
            Some(1) => {}
            _ => break,
        }
        match watch.send(1, 5_000, false) {
            Some(1) => sent += 1,
            other => {
                assert_eq!(other, Some(0));
                break;
            }
        }
    }
    assert_eq!(sent, usize::from(TINY_SENDS_MAX));
    assert_eq!(watch.connection.poll_writable(&watch.out), None, "the stream must not spin");
    watch.feed(&Frames::new().window(1, 2_000).0, 100);
    assert_eq!(watch.connection.poll_writable(&watch.out), Some(1));
    assert_eq!(watch.send(1, 1_500, false), Some(1_500));
}

#[test]
fn stream_that_waits_for_a_large_window_goes_on_after_the_peer_has_made_its_windows_small() {
    let mut watch = responding(ROOMY, 1, &[(4, 2_048)]);
    assert_eq!(watch.send(1, 5_000, false), Some(2_048));
    for _ in 0..TINY_SENDS_MAX {
        watch.feed(&Frames::new().window(1, 1).0, 100);
        assert_eq!(watch.send(1, 5_000, false), Some(1));
    }
    watch.feed(&Frames::new().window(1, 1).0, 100);
    assert_eq!(watch.send(1, 5_000, false), Some(0));
    watch.feed(&Frames::new().settings(&[(4, 512)]).0, 100);
    assert_eq!(watch.connection.poll_writable(&watch.out), None, "the window is negative");
    watch.feed(&Frames::new().window(1, 2_047).0, 100);
    assert_eq!(watch.connection.poll_writable(&watch.out), Some(1), "the window is 512");
    assert_eq!(watch.send(1, 5_000, false), Some(512));
}

#[test]
fn last_bytes_are_sent_once_the_window_holds_them() {
    let mut watch = responding(ROOMY, 1, &[(4, 1)]);
    for _ in 0..TINY_SENDS_MAX {
        assert_eq!(watch.send(1, 5_000, false), Some(1));
        watch.feed(&Frames::new().window(1, 1).0, 100);
    }
    assert_eq!(watch.send(1, 50, true), Some(0));
    watch.feed(&Frames::new().window(1, 48).0, 100);
    assert_eq!(watch.connection.poll_writable(&watch.out), None);
    watch.feed(&Frames::new().window(1, 1).0, 100);
    assert_eq!(watch.connection.poll_writable(&watch.out), Some(1));
    assert_eq!(watch.send(1, 50, true), Some(50));
}

#[test]
fn peer_with_small_windows_gets_everything_if_it_returns_half_of_them() {
    const PIECES: usize = 4 * TINY_SENDS_MAX as usize;
    for (initial, returned) in [(2_000, 1_000), (1_023, 1_023), (1_023, 512), (200, 100), (128, 64)]
    {
        let mut watch = responding(ROOMY, 1, &[(4, initial)]);
        let mut left = initial as usize + returned as usize * PIECES;
        left -= watch.send(1, left, true).unwrap();
        for _ in 0..PIECES {
            watch.feed(&Frames::new().window(0, returned).window(1, returned).0, 100);
            assert_eq!(watch.connection.poll_writable(&watch.out), Some(1), "{initial} {returned}");
            left -= watch.send(1, left, true).unwrap();
        }
        assert_eq!(left, 0, "{initial} {returned}");
        assert_eq!(watch.connection.open_streams(), 0);
    }
}

/// A server that receives bodies on streams 1, 3, ... up to `count`.
fn receiving(config: Config, count: u32) -> Watch {
    let mut watch = Watch::new(config);
    watch.feed(&Frames::client().0, 1 << 20);
    for n in 0..count {
        watch.feed(&Frames::new().post(2 * n + 1).0, 1 << 20);
    }
    watch.out.clear();
    watch.events.clear();
    watch
}

/// `bytes` of data on a stream, in frames of the largest size.
fn data(stream: u32, bytes: usize) -> Frames {
    let mut frames = Frames::new();
    for piece in vec![0; bytes].chunks(16_384) {
        frames = frames.data(stream, 0, piece);
    }
    frames
}

/// The increments in the output for the connection and for the streams; empties the output.
fn increments(watch: &mut Watch) -> (u64, u64) {
    let (mut connection, mut streams) = (0, 0);
    for frame in frames(&core::mem::take(&mut watch.out)) {
        match frame.split(' ').collect::<Vec<_>>()[..] {
            ["window", "0", increment] => connection += increment.parse::<u64>().unwrap(),
            ["window", _, increment] => streams += increment.parse::<u64>().unwrap(),
            _ => {}
        }
    }
    (connection, streams)
}

#[test]
fn stalled_stream_holds_its_own_window_and_not_that_of_the_connection() {
    let config = Config { connection_window: WINDOW_INITIAL, ..Config::server() };
    let mut watch = receiving(config, 3);
    let mut credited = 0;
    for stream in [1, 3, 5] {
        assert!(watch.feed(&data(stream, WINDOW).0, 1 << 20), "the connection has credit again");
        let (connection, streams) = increments(&mut watch);
        assert_eq!(streams, 0, "no consumer has taken anything");
        credited += connection;
        assert_eq!(watch.connection.unreleased_bytes(stream), WINDOW);
    }
    assert_eq!(credited as usize, 3 * WINDOW);
    assert!(watch.feed(&Frames::new().data(1, 0, b"x").0, 100));
    assert_eq!(watch.events.last().unwrap(), "reset 1 StreamWindowExceeded");
}

#[test]
fn connection_window_is_enforced() {
    let config = Config { connection_window: WINDOW_INITIAL, ..Config::server() };
    let mut watch = receiving(config, 2);
    // All in one input: no credit can be announced in between.
    let bytes = [data(1, 40_000).0, data(3, 40_000).0].concat();
    assert!(!watch.feed(&bytes, 1 << 20));
    assert_eq!(watch.events.last().unwrap(), "fault ConnectionWindowExceeded");
}

#[test]
fn credit_is_announced_when_half_a_window_was_consumed() {
    let mut watch = receiving(Config::server(), 1);
    watch.feed(&data(1, 40_000).0, 1 << 20);
    watch.connection.release(&mut watch.out, 1, 30_000);
    assert_eq!(increments(&mut watch).1, 0);
    watch.connection.release(&mut watch.out, 1, 2_767);
    assert_eq!(increments(&mut watch).1, 32_767);
    watch.connection.release(&mut watch.out, 1, 1 << 30);
    assert_eq!((increments(&mut watch).1, watch.connection.unreleased_bytes(1)), (0, 0));
}

#[test]
fn windows_grow_for_fast_consumers_out_of_a_shared_pool() {
    let config =
        Config { window_pool: 200_000, stream_window_ceiling: 1 << 20, ..Config::server() };
    let mut watch = receiving(config, 2);
    let (mut windows, mut largest) = ([WINDOW; 2], [WINDOW; 2]);
    for _ in 0..20 {
        for (index, stream) in [1, 3].into_iter().enumerate() {
            for _ in 0..2 {
                windows[index] -= WINDOW / 2;
                windows[index] += receive_and_release(&mut watch, stream);
                largest[index] = largest[index].max(windows[index]);
            }
        }
    }
    // A quarter of what is left.
    assert_eq!(largest, [WINDOW + 50_000, WINDOW + 37_500]);
}

/// Receives half a window on a stream whose consumer takes it at once. Returns the increment of the window.
fn receive_and_release(watch: &mut Watch, stream: u32) -> usize {
    assert!(watch.feed(&data(stream, WINDOW / 2).0, 1 << 20));
    watch.connection.release(&mut watch.out, stream, WINDOW / 2);
    increments(watch).1 as usize
}

/// Receives on a stream whose consumer keeps up, until the window has grown. Then the consumer stalls, and holds the window.
/// Returns how many bytes it holds.
fn grow_and_stall(watch: &mut Watch, stream: u32) -> usize {
    let mut window = WINDOW;
    for _ in 0..100 {
        window -= WINDOW / 2;
        window += receive_and_release(watch, stream);
    }
    assert!(watch.feed(&data(stream, window).0, 1 << 20));
    assert_eq!(watch.connection.unreleased_bytes(stream), window);
    window
}

#[test]
fn stalled_streams_leave_room_to_grow_and_return_it_when_they_drain() {
    let mut watch = receiving(Config::server(), 10);
    let stalled: Vec<u32> = (0..8).map(|n| 2 * n + 1).collect();
    for &stream in &stalled {
        grow_and_stall(&mut watch, stream);
    }
    let window = grow_and_stall(&mut watch, 17);
    assert!(window > WINDOW, "{window} bytes while others stall");
    for &stream in &stalled {
        while watch.connection.unreleased_bytes(stream) > WINDOW / 2 {
            watch.connection.release(&mut watch.out, stream, 1_000);
        }
    }
    watch.out.clear();
    let window = grow_and_stall(&mut watch, 19);
    assert!(window > 7 * WINDOW, "{window} bytes after the others have drained");
}

#[test]
fn padding_and_data_of_reset_streams_are_credited() {
    let config = Config { connection_window: WINDOW_INITIAL, ..Config::server() };
    let mut watch = receiving(config, 2);
    let padded = [&[255][..], &[0; 300]].concat();
    let mut connection = 0;
    for _ in 0..2_000 {
        assert!(watch.feed(&Frames::new().data(1, PADDED, &padded).0, 1 << 20));
        let held = watch.connection.unreleased_bytes(1);
        watch.connection.release(&mut watch.out, 1, held);
        connection += increments(&mut watch).0;
    }
    assert!(connection > 1_900 * 301);
    watch.connection.reset(&mut watch.out, 3, ErrorCode::CANCEL);
    watch.out.clear();
    for _ in 0..100 {
        assert!(watch.feed(&Frames::new().data(3, 0, &[0; 16_000]).0, 1 << 20));
    }
    assert!(increments(&mut watch).0 > 1_500_000);
}

#[test]
fn reset_stream_no_longer_waits_and_its_queued_data_is_dropped() {
    let mut watch = responding(ROOMY, 2, &[]);
    assert_eq!(watch.send(1, 100_000, true), Some(WINDOW));
    watch.feed(&Frames::new().window(0, 1 << 20).window(1, 1 << 20).reset(1, 8).0, 100);
    assert_eq!(watch.connection.poll_writable(&watch.out), None);
    assert_eq!(watch.send(1, 10, true), None);
    assert!(!watch.connection.send_trailers(&mut watch.out, 1, |_| {}));
    assert_eq!(watch.connection.open_streams(), 1);
}

#[test]
fn responses_are_sent_by_priority() {
    let priority = |value| [&GET[..], &[("priority", value)]].concat();
    let mut watch = Watch::new(ROOMY);
    let requests = Frames::client()
        .settings(&[(4, 0)])
        .headers(1, END_STREAM, &priority("u=5"))
        .headers(3, END_STREAM, &priority("u=1"))
        .priority_update(5, b"u=0")
        .headers(5, END_STREAM, &priority("u=7"))
        .headers(7, END_STREAM, &GET);
    watch.feed(&requests.0, 1 << 20);
    for stream in [1, 3, 5, 7] {
        assert!(watch.connection.send_response(&mut watch.out, stream, 200, false, |_| {}));
        assert_eq!(watch.send(stream, 10, true), Some(0));
    }
    watch.feed(&Frames::new().settings(&[(4, 100)]).priority_update(7, b"u=2").0, 100);
    let mut order = Vec::new();
    while let Some(stream) = watch.connection.poll_writable(&watch.out) {
        order.push(stream);
    }
    assert_eq!(order, [5, 3, 7, 1]);
}
