//! Checks with a counting allocator that the steady state does not allocate: decoding, encoding, inflating and
//! compressing messages.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use super::transcript::{CLIENT, SERVER, masked};
use tidegate_wire::websocket::{
    Decoder, Deflater, Effort, FrameRules, Incoming, Inflater, Kind, Limits, encode_deflated,
    encode_message, encode_pong,
};

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

#[test]
fn echo_does_not_allocate() {
    let limits = Limits::default();
    let text = "a€".repeat(500);
    let (start, end) = text.as_bytes().split_at(700);
    let frames = [
        masked(0x81, text.as_bytes()),
        masked(0x89, b"ping"),
        masked(0x01, start),
        masked(0x80, end),
    ]
    .concat();
    let mut decoder = Decoder::new(SERVER);
    let mut buffer = Vec::with_capacity(4096);
    let mut out = Vec::with_capacity(8192);
    let mut input = frames.clone();
    let before = ALLOCATIONS.get();
    for _ in 0..10 {
        input.copy_from_slice(&frames);
        out.clear();
        let mut at = 0;
        let mut count = 0;
        while at < input.len() {
            let step =
                decoder.decode_message(&mut input[at..], &limits, &mut buffer, None).unwrap();
            match step.incoming {
                Some(Incoming::Message(message)) => {
                    assert_eq!(message.bytes(), text.as_bytes());
                    encode_message(&mut out, message.kind(), message.bytes(), None);
                    count += 1;
                }
                Some(Incoming::Ping(payload)) => encode_pong(&mut out, payload, None).unwrap(),
                _ => {}
            }
            at += step.consumed;
        }
        assert_eq!(count, 2);
    }
    assert_eq!(ALLOCATIONS.get(), before);
}

#[test]
fn compression_does_not_allocate_once_its_space_exists() {
    let limits = Limits::default();
    let text = "tide and gate, ".repeat(300);
    for keeps_context in [false, true] {
        let (mut deflater, mut inflater) = if keeps_context {
            let deflater = Deflater::for_connection(12, Effort::default()).unwrap();
            (deflater, Inflater::for_connection(12))
        } else {
            (Deflater::shared(15, Effort::default()).unwrap(), Inflater::shared())
        };
        let mut decoder = Decoder::new(FrameRules { allows_deflate: true, ..CLIENT });
        let mut buffer = Vec::with_capacity(1 << 16);
        let mut out = Vec::with_capacity(1 << 16);
        let mut before = 0;
        for round in 0..10 {
            if round == 3 {
                before = ALLOCATIONS.get();
            }
            out.clear();
            encode_deflated(&mut out, Kind::Text, text.as_bytes(), &mut deflater, None).unwrap();
            let (start, end) = out.split_at_mut(20);
            let step = decoder.decode_message(start, &limits, &mut buffer, Some(&mut inflater));
            assert!(step.unwrap().incoming.is_none());
            let step = decoder.decode_message(end, &limits, &mut buffer, Some(&mut inflater));
            let Some(Incoming::Message(message)) = step.unwrap().incoming else {
                panic!("no message")
            };
            assert_eq!(message.bytes(), text.as_bytes());
        }
        assert_eq!(ALLOCATIONS.get(), before, "keeps its context: {keeps_context}");
    }
}
