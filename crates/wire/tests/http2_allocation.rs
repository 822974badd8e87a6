//! Checks with a counting allocator that exchanges on an HTTP/2 connection do not allocate in the steady state.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use tidegate_base::Moment;
use tidegate_wire::http2::{Config, Connection, Event, RequestLine, Scratch};

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: every call is passed to the system allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller upholds the contract of `alloc`, which is that of the system allocator.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the pointer came from `alloc` above, so from the system allocator.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Runs one turn: the client sends `count` requests with a body, the server responds to each with a body.
fn turn(client: &mut Connection, server: &mut Connection, memory: &mut Memory, count: usize) {
    let line = RequestLine {
        method: "POST",
        scheme: "https",
        authority: "example.com",
        path: "/path?query",
        protocol: None,
    };
    for _ in 0..count {
        let sent = client.send_request(&mut memory.requests, 1, &line, false, |fields| {
            fields.field("User-Agent", b"tidegate");
            fields.field("Cookie", b"a=1");
            fields.field("Cookie", b"b=2");
        });
        let stream = sent.expect("the server has room");
        let accepted =
            client.send_data(Moment::ZERO, &mut memory.requests, stream, &[0; 500], true);
        assert_eq!(accepted, Some(500));
    }
    // In pieces, so that frames are incomplete at the end of some of them.
    for mut input in memory.requests.chunks(333) {
        loop {
            let scratch = &mut memory.scratch;
            let event = server.receive(Moment::ZERO, &mut input, scratch, &mut memory.responses);
            match event.expect("the client is in order") {
                None => break,
                Some(Event::Data { stream, bytes, ends, .. }) => {
                    server.release(&mut memory.responses, stream, bytes.len());
                    if ends {
                        let out = &mut memory.responses;
                        assert!(server.send_response(out, stream, 200, false, |fields| {
                            fields.field("Content-Type", b"text/plain");
                            fields.field_u64("Content-Length", 1_000);
                        }));
                        let sent = server.send_data(Moment::ZERO, out, stream, &[0; 1_000], true);
                        assert_eq!(sent, Some(1_000));
                    }
                }
                Some(_) => {}
            }
        }
    }
    memory.requests.clear();
    let mut responses = 0;
    for mut input in memory.responses.chunks(777) {
        loop {
            let scratch = &mut memory.scratch;
            let event = client.receive(Moment::ZERO, &mut input, scratch, &mut memory.requests);
            match event.expect("the server is in order") {
                None => break,
                Some(Event::Data { stream, bytes, ends, .. }) => {
                    client.release(&mut memory.requests, stream, bytes.len());
                    responses += usize::from(ends);
                }
                Some(_) => {}
            }
        }
    }
    memory.responses.clear();
    client.output_drained();
    server.output_drained();
    assert_eq!(responses, count);
}

#[derive(Default)]
struct Memory {
    scratch: Scratch,
    requests: Vec<u8>,
    responses: Vec<u8>,
}

#[test]
fn exchanges_do_not_allocate_in_the_steady_state() {
    for encoder_table_bytes in [0, 4096] {
        let server = Config { output_pause_bytes: u32::MAX, ..Config::server() };
        let client = Config { output_pause_bytes: u32::MAX, ..Config::client() };
        let mut server = Connection::new(Config { encoder_table_bytes, ..server }, Moment::ZERO);
        let mut client = Connection::new(Config { encoder_table_bytes, ..client }, Moment::ZERO);
        let mut memory = Memory::default();
        server.start(&mut memory.responses);
        client.start(&mut memory.requests);
        for _ in 0..10 {
            turn(&mut client, &mut server, &mut memory, 20);
        }
        let before = ALLOCATIONS.get();
        for _ in 0..100 {
            turn(&mut client, &mut server, &mut memory, 20);
        }
        assert_eq!(ALLOCATIONS.get() - before, 0, "table of {encoder_table_bytes} bytes");
    }
}
