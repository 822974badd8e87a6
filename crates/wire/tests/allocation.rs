//! Checks with a counting allocator that decoding heads and chunks does not allocate.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use tidegate_wire::http1::{
    BodyDecoder, HeadDecoder, HeadLimits, ResponseLimits, encode_field, encode_status_line,
};
use tidegate_wire::message::{
    BodyLength, DateField, FieldName, FieldStorage, RequestKind, ResponseStorage,
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
fn data_path_does_not_allocate() {
    let request = b"POST /a?b HTTP/1.1\r\nHost: example.com\r\nConnection: keep-alive, x\r\n\
        Accept: */*\r\nTransfer-Encoding: chunked\r\n\r\n";
    let response =
        b"\nHTTP/1.1 999 Odd\nContent-Length: 5\r\nContent-Length: 5\nConnection: close\r\n\n";
    let body = b"5;a=b\r\nhello\r\n5\r\nworld\r\n0\r\n\r\n";
    let limits = HeadLimits::default();
    let mut out = Vec::with_capacity(1024);
    let mut date = DateField::new(0);
    let before = ALLOCATIONS.get();
    for cut in 1..request.len() {
        let mut decoder = HeadDecoder::default();
        let mut storage = FieldStorage::new();
        assert!(decoder.decode_request(&request[..cut], &limits, &mut storage).unwrap().is_none());
        let mut storage = FieldStorage::new();
        let decoded = decoder.decode_request(request, &limits, &mut storage).unwrap();
        let (head, _) = decoded.unwrap();
        assert!(head.is_nominated("x") && head.find(FieldName::Accept).is_some());
        let mut storage = ResponseStorage::new();
        let sloppy = ResponseLimits::default();
        let kind = RequestKind::new(&head.method, head.upgrade);
        let decoded = decoder.decode_response(response, &sloppy, kind, &mut storage).unwrap();
        assert!(decoded.is_some());
        let mut decoder = BodyDecoder::new(BodyLength::Streamed);
        let mut at = 0;
        while !decoder.is_done() {
            at += decoder.decode(&body[at..]).unwrap().consumed;
        }
        out.clear();
        date.update(cut as u64);
        encode_status_line(&mut out, 404);
        encode_field(&mut out, "Date", date.as_bytes());
    }
    assert_eq!(ALLOCATIONS.get(), before);
}
