//! Checks with a counting allocator that HPACK does not allocate in the steady state, with full tables and with
//! values that change.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ops::ControlFlow;
use tidegate_wire::http2::hpack::{Decoder, Encoder, Field, Indexing, Limits, Scratch};

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
fn steady_state_does_not_allocate() {
    let limits = Limits { fields_max: 100, crumbs_max: 100, list_bytes_max: 64 * 1024 };
    let (mut encoder, mut decoder) = (Encoder::new(4096), Decoder::new());
    let (mut out, mut scratch) = (Vec::with_capacity(4096), Scratch::new());
    let mut before = 0;
    for round in 0..1000_u32 {
        if round == 500 {
            before = ALLOCATIONS.get();
        }
        let changing = [b'0' + (round % 10) as u8; 60];
        out.clear();
        let mut block = encoder.begin(&mut out);
        block.encode_status(200);
        for name in ["server", "x-a", "x-b", "date", "etag", "vary", "x-c", "x-d"] {
            // Each pair repeats at once, so that it is inserted and evicts an old one.
            block.encode_field(name.as_bytes(), &changing, Indexing::Auto);
            block.encode_field(name.as_bytes(), &changing, Indexing::Auto);
        }
        let mut fields = 0;
        let mut sink = |_: Field<'_>| {
            fields += 1;
            ControlFlow::Continue(())
        };
        decoder.decode(&out, &limits, &mut scratch, &mut sink).unwrap();
        assert_eq!(fields, 17);
    }
    assert_eq!(ALLOCATIONS.get(), before);
    assert_eq!((encoder.held_bytes(), decoder.held_bytes()), (4096 + 128, 4096));
}
