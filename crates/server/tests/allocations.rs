//! Checks that the warmed-up data path allocates nothing per request, for local and forwarded responses, even with an
//! access log.
//! In: requests over real sockets, to one worker that runs in this thread. Out: allocations within its turns.
//! Never: counts allocations of the test's own clients and origins.
//! Not covered: trailer sections. They are kept in allocated memory until the body ends.

#[allow(dead_code, reason = "shared by several tests, each of which uses a part")]
#[path = "peer/mod.rs"]
mod peer;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;

use tidegate_base::{Address, Moment, Span};
use tidegate_config::model::{
    AccessFilter, AccessFormat, AccessLog, AccessTarget, CaptureNames, SAMPLE_ALL,
};
use tidegate_reactor::{EpollReactor, make_wakers};
use tidegate_server::access_log::{LineSender, SharedBatch};
use tidegate_server::span_export::SpanSender;
use tidegate_wire::http2::{self, Event, Scratch};

use peer::harness::Harness;

/// The system's allocator, counting each thread's allocations.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
    static LIVE_BYTES: Cell<i64> = const { Cell::new(0) };
}

// SAFETY: every call is passed to the system's allocator unchanged. The counters are thread-local cells
// without destructors, so using them allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        LIVE_BYTES.with(|bytes| bytes.set(bytes.get() + layout.size() as i64));
        // SAFETY: as the caller promised.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE_BYTES.with(|bytes| bytes.set(bytes.get() - layout.size() as i64));
        // SAFETY: as the caller promised.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Rounds before the worker counts as warm.
const WARM_ROUNDS: usize = 40;
/// Rounds in which nothing may be allocated.
const ROUNDS: usize = 150;

/// The beginning of the last request of a batch, and the origin's response to it.
const LAST: &[u8] = b"GET /last ";
const LAST_ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nlast";

/// A worker on real sockets, an origin and clients, all in this thread.
struct Bench {
    harness: Harness<EpollReactor>,
    origin: TcpListener,
    /// The origin's sockets for the worker's connections.
    upstreams: Vec<TcpStream>,
    /// The origin's response.
    answer: Vec<u8>,
    /// The origin answers when a request ends with these bytes.
    mark: &'static [u8],
    /// For each connection in `upstreams`, the request bytes received so far.
    received: Vec<Vec<u8>>,
    /// Allocations within the worker's turns.
    within_turns: u64,
    /// The lines of the access log, if there is one.
    log: Option<Arc<SharedBatch>>,
    /// The number of lines that were taken from `log`.
    lines: usize,
    /// The status of an origin that speaks HTTP/2; `None`: it speaks HTTP/1.
    http2: Option<u16>,
    /// The protocol of each connection in `upstreams`, if the origin speaks HTTP/2.
    connections: Vec<http2::Connection>,
}

impl Bench {
    fn new(answer: &[u8], mark: &'static [u8]) -> Self {
        Self::with_slots(answer, mark, 100)
    }

    /// With an origin of HTTP/2 that responds with `status` and the body `answer`. The body's end is a frame of its own.
    fn with_http2(status: u16, answer: &[u8]) -> Self {
        let mut bench = Self::with_pool(answer, b"", 100, "h2c = true\n");
        bench.http2 = Some(status);
        bench
    }

    fn with_slots(answer: &[u8], mark: &'static [u8], socks_max: usize) -> Self {
        Self::with_pool(answer, mark, socks_max, "")
    }

    fn with_pool(answer: &[u8], mark: &'static [u8], socks_max: usize, pool: &str) -> Self {
        Self::with_sections(answer, mark, socks_max, (pool, ""))
    }

    /// `pool`: settings of the pool. `sections`: further sections.
    fn with_sections(
        answer: &[u8],
        mark: &'static [u8],
        socks_max: usize,
        (pool, sections): (&str, &str),
    ) -> Self {
        let origin = TcpListener::bind("127.0.0.1:0").expect("a free port");
        origin.set_nonblocking(true).expect("a listener can be non-blocking");
        let config = format!(
            "[[listener]]\nbind = \"127.0.0.1:0\"\n\
             [[route]]\npath = \"/hello\"\nrespond = {{ body = \"hello\" }}\n\
             [[route]]\npath = \"/echo\"\necho = true\n\
             [[route]]\nproxy = \"p\"\n\
             [pool.p]\n{pool}servers = [\"{}\"]\n{sections}",
            origin.local_addr().expect("the origin is bound")
        );
        let config = tidegate_config::parse(&config, "the test").expect("a valid configuration");
        let waker = make_wakers(1).expect("an eventfd").remove(0);
        let reactor = EpollReactor::new(socks_max, waker).expect("an epoll instance");
        Self {
            harness: Harness::new(reactor, &config, socks_max, 1),
            origin,
            upstreams: Vec::new(),
            answer: answer.to_vec(),
            mark,
            received: Vec::new(),
            within_turns: 0,
            log: None,
            lines: 0,
            http2: None,
            connections: Vec::new(),
        }
    }

    /// Makes the worker log its requests.
    fn record(&mut self, format: AccessFormat) {
        let settings = AccessLog {
            to: AccessTarget::Stdout,
            format,
            captures: CaptureNames {
                request_headers: vec!["user-agent".to_owned()],
                response_headers: vec!["content-type".to_owned(), "date".to_owned()],
                response_cookies: vec!["sid".to_owned()],
                client_certificate: true,
                ..CaptureNames::default()
            },
            only: AccessFilter::All,
            slow: None,
            sample: SAMPLE_ALL,
        };
        let (sender, log) = LineSender::without_writer(&settings);
        self.harness.worker.record_to(sender);
        self.log = Some(log);
    }

    fn dial(&self) -> TcpStream {
        let Address::Tcp(address) = self.harness.bound[0] else { panic!("TCP") };
        let client = TcpStream::connect(address).expect("the worker listens");
        client.set_nonblocking(true).expect("a socket can be non-blocking");
        client
    }

    fn turn(&mut self) {
        let before = ALLOCATIONS.with(Cell::get);
        self.harness.worker.turn(&mut self.harness.reactor, Span::from_millis(1));
        self.within_turns += ALLOCATIONS.with(Cell::get) - before;
        self.lines += self.log.as_ref().map_or(0, |log| log.take_string().lines().count());
    }

    /// Lets the origin accept connections and answer complete requests.
    fn serve(&mut self) {
        while let Ok((stream, _)) = self.origin.accept() {
            stream.set_nonblocking(true).expect("a socket can be non-blocking");
            self.upstreams.push(stream);
            self.received.push(Vec::new());
        }
        if let Some(status) = self.http2 {
            return self.serve_http2(status);
        }
        let mut buffer = [0; 65536];
        for (stream, received) in self.upstreams.iter_mut().zip(&mut self.received) {
            if let Ok(count) = stream.read(&mut buffer) {
                received.extend_from_slice(&buffer[..count]);
            }
            if received.ends_with(self.mark) {
                let answer = if received.starts_with(LAST) { LAST_ANSWER } else { &self.answer };
                received.clear();
                stream.write_all(answer).expect("a short answer fits");
            }
        }
    }

    /// As `serve`, over HTTP/2.
    fn serve_http2(&mut self, status: u16) {
        let (mut buffer, mut scratch, now) = ([0; 65536], Scratch::default(), Moment::ZERO);
        for (at, stream) in self.upstreams.iter_mut().enumerate() {
            let mut out = Vec::new();
            if at == self.connections.len() {
                self.connections.push(http2::Connection::new(http2::Config::server(), now));
                self.connections[at].start(&mut out);
            }
            let connection = &mut self.connections[at];
            let count = stream.read(&mut buffer).unwrap_or(0);
            let mut input = &buffer[..count];
            let mut requests = Vec::new();
            while let Some(event) = connection
                .receive(now, &mut input, &mut scratch, &mut out)
                .expect("the worker obeys the protocol")
            {
                if let Event::Request { stream, .. } = event {
                    requests.push(stream);
                }
            }
            for number in requests {
                // `send_response` would set END_STREAM in the head of a response without a body, so its output is not sent.
                connection.send_response(&mut Vec::new(), number, status, true, |_| {});
                out.extend(http2_response(number, status, &self.answer));
            }
            stream.write_all(&out).expect("short responses fit");
            connection.output_drained();
        }
    }

    /// Sends `request` on every client connection, and reads from each until the bytes end with `ends_with`.
    fn round(&mut self, clients: &mut [TcpStream], request: &[u8], ends_with: &[u8]) {
        for client in clients.iter_mut() {
            client.write_all(request).expect("the connection is open");
        }
        let mut buffer = [0; 65536];
        for client in clients {
            let mut got: Vec<u8> = Vec::new();
            while !got.ends_with(ends_with) {
                self.turn();
                self.serve();
                match client.read(&mut buffer) {
                    Ok(0) => {
                        panic!("closed by the worker after {:?}", String::from_utf8_lossy(&got))
                    }
                    Ok(count) => got.extend_from_slice(&buffer[..count]),
                    Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
                }
            }
        }
    }

    /// Runs all rounds. After the warm-up rounds no turn may allocate.
    fn check(&mut self, request: &[u8], ends_with: &[u8]) {
        let clients = (0..8).map(|_| self.dial()).collect();
        self.check_with(clients, request, ends_with);
    }

    /// As `check`, with connections that are open.
    fn check_with(&mut self, mut clients: Vec<TcpStream>, request: &[u8], ends_with: &[u8]) {
        for _ in 0..WARM_ROUNDS {
            self.round(&mut clients, request, ends_with);
        }
        self.within_turns = 0;
        for round in 0..ROUNDS {
            self.round(&mut clients, request, ends_with);
            assert_eq!(self.within_turns, 0, "the turns of round {round} allocated");
        }
    }
}

/// The frames of a response whose end is a frame of its own.
fn http2_response(stream: u32, status: u16, body: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut frame = |kind: u8, flags: u8, payload: &[u8]| {
        out.extend_from_slice(&(payload.len() as u32).to_be_bytes()[1..]);
        out.extend_from_slice(&[kind, flags]);
        out.extend_from_slice(&stream.to_be_bytes());
        out.extend_from_slice(payload);
    };
    // Indexes of the static table (RFC 7541 appendix A), and a literal field.
    let index = match status {
        204 => 0x89,
        304 => 0x8b,
        _ => 0x88,
    };
    frame(1, 4, &[&[index][..], b"\0\x04etag\x03\"a\""].concat());
    if !body.is_empty() {
        frame(0, 0, body);
    }
    frame(0, 1, b"");
    out
}

#[test]
fn respond_allocates_nothing() {
    let mut bench = Bench::new(b"", b"\r\n\r\n");
    bench.check(b"GET /hello HTTP/1.1\r\nHost: a\r\nUser-Agent: x\r\n\r\n", b"hello");
}

#[test]
fn pipelined_respond_allocates_nothing() {
    let mut bench = Bench::new(b"", b"\r\n\r\n");
    let request = b"GET /hello HTTP/1.1\r\nHost: a\r\n\r\n".repeat(15);
    let last = b"HEAD /hello HTTP/1.1\r\nHost: b\r\n\r\n";
    bench.check(&[request.as_slice(), last].concat(), b"\r\n\r\n");
}

#[test]
fn respond_to_a_chunked_body_allocates_nothing() {
    let mut bench = Bench::new(b"", b"\r\n\r\n");
    let request = b"POST /hello HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n\
        4;a=b\r\nbody\r\n0\r\n\r\n";
    bench.check(request, b"hello");
}

#[test]
fn proxied_get_allocates_nothing() {
    let mut bench = Bench::new(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nend", b"\r\n\r\n");
    bench.check(b"GET /p HTTP/1.1\r\nHost: a\r\nCookie: a=b\r\n\r\n", b"end");
}

#[test]
fn proxied_post_with_a_chunked_response_allocates_nothing() {
    let answer = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nend\r\n0\r\n\r\n";
    let mut bench = Bench::new(answer, b"request");
    let request = b"POST /p HTTP/1.1\r\nHost: a\r\nContent-Length: 7\r\n\r\nrequest";
    bench.check(request, b"\r\n0\r\n\r\n");
}

#[test]
fn proxied_chunked_post_allocates_nothing() {
    let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nend";
    let mut bench = Bench::new(answer, b"requestbody");
    let request = b"POST /p HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n\
        7;a=b\r\nrequest\r\n4\r\nbody\r\n0\r\n\r\n";
    bench.check(request, b"end");
}

#[test]
fn pipelined_proxied_requests_allocate_nothing() {
    let mut bench = Bench::new(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nend", b"\r\n\r\n");
    let requests = b"GET /p HTTP/1.1\r\nHost: a\r\n\r\n".repeat(7);
    let last = b"GET /last HTTP/1.1\r\nHost: a\r\n\r\n";
    bench.check(&[requests.as_slice(), last].concat(), b"last");
}

#[test]
fn proxied_response_of_64_kib_allocates_nothing() {
    let mut answer = b"HTTP/1.1 200 OK\r\nContent-Length: 65536\r\n\r\n".to_vec();
    answer.resize(answer.len() + 65533, b'.');
    answer.extend(b"end");
    let mut bench = Bench::new(&answer, b"\r\n\r\n");
    bench.check(b"GET /p HTTP/1.1\r\nHost: a\r\n\r\n", b"end");
}

#[test]
fn response_without_a_body_over_http2_allocates_nothing() {
    for (status, method) in [(204, "GET"), (304, "GET"), (200, "HEAD")] {
        let mut bench = Bench::with_http2(status, b"");
        let request = format!("{method} /p HTTP/1.1\r\nHost: a\r\n\r\n");
        bench.check(request.as_bytes(), b"\r\n\r\n");
    }
}

#[test]
fn response_with_a_body_over_http2_allocates_nothing() {
    let mut bench = Bench::with_http2(200, b"12345");
    bench.check(b"GET /p HTTP/1.1\r\nHost: a\r\n\r\n", b"5\r\n12345\r\n0\r\n\r\n");
}

#[test]
fn access_log_allocates_nothing() {
    for format in [AccessFormat::Json, AccessFormat::Http] {
        let mut bench = Bench::new(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nend", b"\r\n\r\n");
        bench.record(format);
        bench.check(b"GET /p?q HTTP/1.1\r\nHost: a\r\nUser-Agent: x\r\n\r\n", b"end");
        assert_eq!(bench.lines, 8 * (WARM_ROUNDS + ROUNDS), "a line for each request");
    }
}

#[test]
fn spans_allocate_nothing() {
    let sections = "[server]\ntrace = true\n[traces]\nendpoint = \"http://127.0.0.1:4318/\"\n";
    let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nend";
    let mut bench = Bench::with_sections(answer, b"\r\n\r\n", 100, ("", sections));
    let (sender, spans) = SpanSender::without_exporter();
    bench.harness.worker.record_spans(sender);
    bench.log = Some(Arc::clone(&spans));
    bench.check(b"GET /p?q HTTP/1.1\r\nHost: a\r\n\r\n", b"end");
    assert!(bench.lines > 0, "spans were encoded");
}

const UPGRADE: &[u8] = b"GET /echo HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\n\
    Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
    Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";

/// Opens WebSocket connections.
fn open_websockets(bench: &mut Bench, count: usize) -> Vec<TcpStream> {
    let mut clients: Vec<TcpStream> = (0..count).map(|_| bench.dial()).collect();
    bench.round(&mut clients, UPGRADE, b"\r\n\r\n");
    clients
}

/// A masked frame whose first byte is `first`; the mask is 0.
fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![first, 0x80 | 126];
    bytes.extend((payload.len() as u16).to_be_bytes());
    bytes.extend([0; 4]);
    bytes.extend(payload);
    bytes
}

#[test]
fn echo_of_a_message_allocates_nothing() {
    let mut bench = Bench::new(b"", b"\r\n\r\n");
    let clients = open_websockets(&mut bench, 8);
    bench.check_with(clients, &frame(0x81, &[b'x'; 200]), &[b'x'; 200]);
}

#[test]
fn echo_of_a_fragmented_message_allocates_nothing() {
    let mut bench = Bench::new(b"", b"\r\n\r\n");
    let clients = open_websockets(&mut bench, 8);
    let message = [frame(0x02, &[1; 5000]), frame(0x80, &[2; 3000])].concat();
    bench.check_with(clients, &message, &[2; 3000]);
}

/// Maximum size in bytes of an idle WebSocket connection, everything included: 160 of the worker's table of connections, which
/// are reserved at the start, 64 of the reactor and 32 of the WebSocket.
const IDLE_WEBSOCKET_BYTES_MAX: i64 = 256;
/// Bytes of a connection that are reserved at the start.
const RESERVED_BYTES: i64 = 160;

/// The allocated bytes of a worker with `count` idle WebSocket connections.
fn bytes_with_websockets(count: usize) -> i64 {
    let before = LIVE_BYTES.with(Cell::get);
    let mut bench = Bench::with_slots(b"", b"\r\n\r\n", 1024);
    let clients = open_websockets(&mut bench, count);
    for _ in 0..10 {
        bench.turn();
    }
    let bytes = LIVE_BYTES.with(Cell::get) - before;
    drop(clients);
    bytes
}

#[test]
fn idle_websocket_takes_no_more_than_its_bytes() {
    // Powers of two: tables that double their capacity are full. The difference leaves out everything fixed.
    let (few, many) = (128, 256);
    let bytes = bytes_with_websockets(many) - bytes_with_websockets(few);
    let each = RESERVED_BYTES + bytes / (many - few) as i64;
    assert!(each <= IDLE_WEBSOCKET_BYTES_MAX, "{each} bytes for each idle WebSocket connection");
}
