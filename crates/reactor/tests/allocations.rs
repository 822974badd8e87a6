//! Tests that the data path does not allocate per request once it is warm.
//! In: an echo and deadlines on real sockets. Out: the number of allocations within turns.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::io::{Read, Write};
use std::net::TcpStream;

use tidegate_base::{Address, Span};
use tidegate_reactor::*;

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: every call is passed to the system's allocator unchanged. The counter is a plain thread-local cell
// without a destructor, so using it does not allocate.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: as the caller promised.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as the caller promised.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

struct Echo;

impl<R: Reactor> Handler<R> for Echo {
    fn handle(&mut self, reactor: &mut R, completion: Completion<'_>) {
        if let Completion::Received { sock, bytes } = completion {
            reactor.set_deadline(sock, reactor.now().after(Span::from_secs(60)));
            if bytes.len() > 1000 {
                reactor.send(sock, bytes);
            } else if let Some(output) = reactor.output(sock) {
                output.extend_from_slice(bytes);
            }
        }
    }
}

#[test]
fn warm_echo_does_not_allocate() {
    let waker = make_wakers(1).expect("an eventfd").remove(0);
    let mut reactor = EpollReactor::new(100, waker).expect("an epoll instance");
    let any = Address::Tcp(([127, 0, 0, 1], 0).into());
    let options = ListenOptions { backlog: 16, reuse_port: false, steer_by_cpu_over: None };
    let listener = reactor.listen(&any, &options).expect("a free port");
    let Some(Address::Tcp(address)) = reactor.listener_address(listener) else {
        panic!("not a TCP listener")
    };
    let mut clients: Vec<TcpStream> =
        (0..8).map(|_| TcpStream::connect(address).expect("the listener is open")).collect();
    for client in &clients {
        client.set_nonblocking(true).expect("a socket can be non-blocking");
    }
    let mut within_turns = 0;
    for round in 0..400 {
        let request = vec![b'x'; if round % 2 == 0 { 100 } else { 6000 }];
        for client in &mut clients {
            client.write_all(&request).expect("the connection is open");
        }
        for client in &mut clients {
            let mut got = 0;
            let mut buffer = [0; 8192];
            while got < request.len() {
                let before = ALLOCATIONS.with(Cell::get);
                reactor.turn(&mut Echo, Span::from_millis(1));
                if round >= 50 {
                    within_turns += ALLOCATIONS.with(Cell::get) - before;
                }
                got += client.read(&mut buffer).unwrap_or(0);
            }
        }
    }
    assert_eq!(within_turns, 0, "allocations in turns after the warm-up");
}

/// Sets a short deadline after each `Received` and counts the deadlines that passed.
struct ShortDeadlines {
    due: usize,
}

impl<R: Reactor> Handler<R> for ShortDeadlines {
    fn handle(&mut self, reactor: &mut R, completion: Completion<'_>) {
        match completion {
            Completion::Received { sock, .. } => {
                reactor.set_deadline(sock, reactor.now().after(Span::from_millis(1)));
            }
            Completion::Due { .. } => self.due += 1,
            _ => {}
        }
    }
}

#[test]
fn first_deadlines_do_not_allocate() {
    const CLIENTS: usize = 50;
    let waker = make_wakers(1).expect("an eventfd").remove(0);
    let mut reactor = EpollReactor::new(100, waker).expect("an epoll instance");
    let any = Address::Tcp(([127, 0, 0, 1], 0).into());
    let options = ListenOptions { backlog: 64, reuse_port: false, steer_by_cpu_over: None };
    let listener = reactor.listen(&any, &options).expect("a free port");
    let Some(Address::Tcp(address)) = reactor.listener_address(listener) else {
        panic!("not a TCP listener")
    };
    let mut clients: Vec<TcpStream> =
        (0..CLIENTS).map(|_| TcpStream::connect(address).expect("the listener is open")).collect();
    let mut handler = ShortDeadlines { due: 0 };
    while reactor.sock_count() < CLIENTS {
        reactor.turn(&mut handler, Span::from_millis(1));
    }
    for client in &mut clients {
        client.write_all(b"x").expect("the connection is open");
    }
    let before = ALLOCATIONS.with(Cell::get);
    while handler.due < CLIENTS {
        reactor.turn(&mut handler, Span::from_millis(1));
    }
    assert_eq!(ALLOCATIONS.with(Cell::get) - before, 0, "allocations before the last deadline");
}
