//! The data path allocates nothing per request once it is warm.

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

// SAFETY: every call goes to the system's allocator unchanged; the counter is a plain thread-local cell
// without a destructor, so touching it allocates nothing.
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
fn a_warm_echo_allocates_nothing() {
    let waker = make_wakers(1).expect("an eventfd").remove(0);
    let mut reactor = EpollReactor::new(100, waker).expect("an epoll instance");
    let any = Address::Tcp(([127, 0, 0, 1], 0).into());
    let options = ListenOptions { backlog: 16, reuse_port: false, steer_by_cpu_over: None };
    let listener = reactor.listen(&any, &options).expect("a free port");
    let Some(Address::Tcp(address)) = reactor.listener_address(listener) else { panic!("TCP") };
    let mut clients: Vec<TcpStream> =
        (0..8).map(|_| TcpStream::connect(address).expect("it listens")).collect();
    for client in &clients {
        client.set_nonblocking(true).expect("a socket can be non-blocking");
    }
    let mut within_turns = 0;
    for round in 0..400 {
        let request = vec![b'x'; if round % 2 == 0 { 100 } else { 6000 }];
        for client in &mut clients {
            client.write_all(&request).expect("it is up");
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

/// Sets a short deadline with whatever comes in, and counts those that came.
struct Hurried {
    due: usize,
}

impl<R: Reactor> Handler<R> for Hurried {
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
fn the_first_deadlines_that_come_due_allocate_nothing() {
    const CLIENTS: usize = 50;
    let waker = make_wakers(1).expect("an eventfd").remove(0);
    let mut reactor = EpollReactor::new(100, waker).expect("an epoll instance");
    let any = Address::Tcp(([127, 0, 0, 1], 0).into());
    let options = ListenOptions { backlog: 64, reuse_port: false, steer_by_cpu_over: None };
    let listener = reactor.listen(&any, &options).expect("a free port");
    let Some(Address::Tcp(address)) = reactor.listener_address(listener) else { panic!("TCP") };
    let mut clients: Vec<TcpStream> =
        (0..CLIENTS).map(|_| TcpStream::connect(address).expect("it listens")).collect();
    let mut handler = Hurried { due: 0 };
    while reactor.sock_count() < CLIENTS {
        reactor.turn(&mut handler, Span::from_millis(1));
    }
    for client in &mut clients {
        client.write_all(b"x").expect("it is up");
    }
    let before = ALLOCATIONS.with(Cell::get);
    while handler.due < CLIENTS {
        reactor.turn(&mut handler, Span::from_millis(1));
    }
    assert_eq!(ALLOCATIONS.with(Cell::get) - before, 0, "allocations before the last deadline");
}
