//! Checks with a counting allocator that the client does not allocate for requests over HTTP/2 in the steady state.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use tidegate_base::{Address, Moment, Span};
use tidegate_bench::client::{Client, Shared};
use tidegate_bench::plan::{Plan, Protocol};
use tidegate_bench::target::{RequestMix, RequestOptions, Target, Url};
use tidegate_reactor::{EpollReactor, Reactor as _, make_wakers};
use tidegate_wire::http2::{Config, Connection, Event, Scratch};

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

/// A server that counts requests and responds to each at once.
fn serve() -> (SocketAddr, Arc<AtomicU64>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let requests = Arc::new(AtomicU64::new(0));
    let counter = requests.clone();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let counter = counter.clone();
            thread::spawn(move || serve_connection(stream.unwrap(), &counter));
        }
    });
    (address, requests)
}

fn serve_connection(mut stream: TcpStream, requests: &AtomicU64) {
    let now = Moment::ZERO;
    let mut connection = Connection::new(Config::server(), now);
    let (mut scratch, mut out, mut buffer) = (Scratch::new(), Vec::new(), [0; 16_384]);
    connection.start(&mut out);
    while stream.write_all(&out).is_ok() {
        out.clear();
        connection.output_drained();
        let Ok(count @ 1..) = stream.read(&mut buffer) else { return };
        let mut input = &buffer[..count];
        while let Some(event) = connection.receive(now, &mut input, &mut scratch, &mut out).unwrap()
        {
            if let Event::Request { stream, .. } = event {
                requests.fetch_add(1, Ordering::Relaxed);
                connection.send_response(&mut out, stream, 200, false, |head| {
                    head.field("server", b"test");
                    head.field("content-length", b"2");
                });
                connection.send_data(now, &mut out, stream, b"ok", true);
            }
        }
    }
}

#[test]
fn steady_state_does_not_allocate() {
    let (address, seen) = serve();
    let plan = Plan {
        connections: 4,
        requests: Some(40_000),
        duration: None,
        protocol: Protocol::Http2,
        pipeline: 20,
        ..Plan::default()
    };
    let url = Url::parse(&format!("http://{address}/path")).unwrap();
    let options = RequestOptions {
        headers: vec![("X-Own".to_owned(), "value".to_owned())],
        ..RequestOptions::default()
    };
    let mix = RequestMix::single(&url, &options).unwrap();
    let targets = [Target { address: Address::Tcp(address), is_secure: false }];
    let shared = Shared::default();
    let waker = make_wakers(1).unwrap().remove(0);
    let mut reactor = EpollReactor::new(100, waker).unwrap();
    let now = reactor.read_clock();
    let mut client = Client::new(&plan, plan.share(0), &mix, &targets, &shared, now);
    while seen.load(Ordering::Relaxed) < 20_000 && client.step(&mut reactor, Span::MAX) {}
    let before = ALLOCATIONS.get();
    while client.step(&mut reactor, Span::MAX) {}
    let allocations = ALLOCATIONS.get() - before;
    let tally = client.finish(reactor.read_clock()).tally;
    assert_eq!((tally.requests, tally.errors.total()), (40_000, 0), "{:?}", tally.notes);
    // A buffer may still grow once if more bytes than ever before arrive together; 20,000 requests may not cost more.
    assert!(allocations <= 8, "{allocations} allocations on 4 connections");
}
