//! Workers on threads of their own share a server's limit: it is never exceeded, and no worker starves.
//! In: real sockets on loopback, one listener for each worker. Out: the most requests that the server had at once.
//! Limits: `WAIT_MAX` for each response.

#[allow(dead_code, reason = "shared by several tests, each of which uses a part")]
#[path = "peer/mod.rs"]
mod peer;

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use peer::harness::Harness;
use tidegate_base::{Address, Span};
use tidegate_reactor::{EpollReactor, Mailbox, make_wakers};
use tidegate_server::permits::PermitPost;

const WORKERS: usize = 4;
const LIMIT: usize = 3;
const CLIENTS_PER_WORKER: usize = 4;
const REQUESTS_PER_CLIENT: usize = 20;
const WAIT_MAX: Duration = Duration::from_secs(60);

/// What the server counts.
#[derive(Default)]
struct Seen {
    requests_now: AtomicUsize,
    requests_most: AtomicUsize,
    connections_now: AtomicUsize,
}

/// Serves one connection: each request takes a millisecond.
fn serve(mut stream: TcpStream, seen: &Seen) {
    let mut head = Vec::new();
    let mut bytes = [0; 1024];
    while let Ok(count @ 1..) = stream.read(&mut bytes) {
        head.extend_from_slice(&bytes[..count]);
        if !head.ends_with(b"\r\n\r\n") {
            continue;
        }
        head.clear();
        let now = seen.requests_now.fetch_add(1, SeqCst) + 1;
        seen.requests_most.fetch_max(now, SeqCst);
        thread::sleep(Duration::from_millis(1));
        seen.requests_now.fetch_sub(1, SeqCst);
        if stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").is_err() {
            return;
        }
    }
}

/// Sends requests one after the other; panics unless each gets its response.
fn request(address: SocketAddr, count: usize) {
    let mut stream = TcpStream::connect(address).expect("the worker listens");
    stream.set_read_timeout(Some(WAIT_MAX)).expect("a timeout above zero");
    for _ in 0..count {
        stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").expect("the worker reads");
        let mut answer = Vec::new();
        let mut bytes = [0; 1024];
        while !answer.ends_with(b"\r\n\r\nok") {
            let count = stream.read(&mut bytes).expect("a response in time");
            answer.extend_from_slice(&bytes[..count]);
            let text = String::from_utf8_lossy(&answer);
            assert!(count > 0 && text.starts_with("HTTP/1.1 200 "), "{text}");
        }
    }
}

#[test]
fn workers_share_the_limit_of_a_server() {
    let origin = TcpListener::bind("127.0.0.1:0").expect("a port");
    let text = format!(
        "[[listener]]\nbind = \"127.0.0.1:0\"\n[[route]]\nproxy = \"p\"\n[pool.p]\n\
         servers = [{{ address = \"{}\", connections-max = {LIMIT} }}]\ntimeouts = {{ queue = \"60s\" }}\n",
        origin.local_addr().expect("a bound socket")
    );
    let Ok(config) = tidegate_config::parse(&text, "the test") else { panic!("{text}") };
    let seen = Arc::new(Seen::default());
    let counted = Arc::clone(&seen);
    thread::spawn(move || {
        for stream in origin.incoming() {
            let (stream, seen) = (stream.expect("a connection"), Arc::clone(&counted));
            seen.connections_now.fetch_add(1, SeqCst);
            thread::spawn(move || {
                serve(stream, &seen);
                seen.connections_now.fetch_sub(1, SeqCst);
            });
        }
    });

    let wakers = make_wakers(WORKERS).expect("wakers");
    // Small mailboxes are full from time to time.
    let mailboxes: Vec<_> = wakers.iter().map(|waker| Mailbox::new(2, waker.clone())).collect();
    let senders: Vec<_> = mailboxes.iter().map(Mailbox::sender).collect();
    let done = Arc::new(AtomicBool::new(false));
    let (report, reported) = mpsc::channel();
    let mut threads = Vec::new();
    for ((own, mailbox), waker) in mailboxes.into_iter().enumerate().zip(wakers) {
        let post = PermitPost::new(own, mailbox, senders.clone());
        let (config, done, report) = (config.clone(), Arc::clone(&done), report.clone());
        threads.push(thread::spawn(move || {
            let reactor = EpollReactor::new(100, waker).expect("an event queue");
            let mut harness = Harness::new(reactor, &config, 100, own as u64);
            harness.worker.join(post);
            report.send(harness.bound[0].clone()).expect("the test waits");
            while !done.load(SeqCst) {
                harness.worker.turn(&mut harness.reactor, Span::from_millis(10));
            }
            harness.accounts.counters.answers_2xx.load() as usize
        }));
    }

    let mut clients = Vec::new();
    for _ in 0..WORKERS {
        let Ok(Address::Tcp(address)) = reported.recv() else { panic!("a worker has ended") };
        let client = move || request(address, REQUESTS_PER_CLIENT);
        clients.extend((0..CLIENTS_PER_WORKER).map(|_| thread::spawn(client)));
    }
    for client in clients {
        client.join().expect("every request is answered");
    }
    assert!(seen.requests_most.load(SeqCst) <= LIMIT, "the limit was exceeded");
    let begun = Instant::now();
    while seen.connections_now.load(SeqCst) > LIMIT {
        assert!(begun.elapsed() < WAIT_MAX, "idle connections exceed the limit");
        thread::sleep(Duration::from_millis(1));
    }
    done.store(true, SeqCst);
    for thread in threads {
        let answers = thread.join().expect("the worker ends");
        assert_eq!(answers, CLIENTS_PER_WORKER * REQUESTS_PER_CLIENT);
    }
}
