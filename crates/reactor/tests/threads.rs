//! Tests that need real threads and a real kernel: wakes, descriptor tables, listener groups.
//! In: worker threads and real sockets. Out: what each test's name says.

use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixListener;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};

use tidegate_base::{Address, Span};
use tidegate_reactor::*;

const OPTIONS: ListenOptions =
    ListenOptions { backlog: 128, reuse_port: false, steer_by_cpu_over: None };

/// Makes these tests run one at a time. A thread that unshares its descriptor table while another test has a
/// descriptor open keeps a copy of that descriptor, so it stays open after the other test has closed it.
fn alone() -> std::sync::MutexGuard<'static, ()> {
    static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());
    ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Goal: no wake is lost. Method: each sender waits until its message was read before it sends the next one,
/// so the worker falls asleep between almost any two messages. A lost wake leaves it asleep for the whole
/// wait.
#[test]
fn no_wake_is_lost_among_many_threads() {
    let _alone = alone();
    const SENDERS: usize = 4;
    const MAILS: u64 = 3_000;
    const WAIT: Span = Span::from_secs(20);
    struct Read {
        mailbox: Mailbox<usize>,
        read: Arc<[AtomicU64; SENDERS]>,
    }
    impl<R: Reactor> Handler<R> for Read {
        fn handle(&mut self, _: &mut R, completion: Completion<'_>) {
            assert!(matches!(completion, Completion::Woken));
            while let Some(sender) = self.mailbox.take() {
                self.read[sender].fetch_add(1, Ordering::SeqCst);
            }
        }
    }
    let waker = make_wakers(1).expect("an eventfd").remove(0);
    let mut reactor = EpollReactor::new(1, waker.clone()).expect("an epoll instance");
    let read: Arc<[AtomicU64; SENDERS]> = Arc::default();
    let mut handler = Read { mailbox: Mailbox::new(2, waker), read: Arc::clone(&read) };
    let senders: Vec<_> = (0..SENDERS)
        .map(|number| {
            let (sender, read) = (handler.mailbox.sender(), Arc::clone(&read));
            std::thread::spawn(move || {
                for mail in 0..MAILS {
                    while sender.send(number).is_err() {
                        std::thread::yield_now();
                    }
                    while read[number].load(Ordering::SeqCst) <= mail {
                        std::thread::yield_now();
                    }
                }
            })
        })
        .collect();
    let all_read = || read.iter().all(|count| count.load(Ordering::SeqCst) == MAILS);
    while !all_read() {
        let before = reactor.read_clock();
        reactor.turn(&mut handler, WAIT);
        assert!(
            reactor.now().since(before) < WAIT,
            "the worker slept although a wake-up was pending"
        );
    }
    for sender in senders {
        sender.join().expect("a sender ends");
    }
}

#[derive(Default)]
struct Accepts {
    paused: Vec<Shortage>,
    accepted: Vec<SockId>,
}

impl<R: Reactor> Handler<R> for Accepts {
    fn handle(&mut self, _: &mut R, completion: Completion<'_>) {
        match completion {
            Completion::AcceptPaused { shortage, .. } => self.paused.push(shortage),
            Completion::Accepted { sock, .. } => self.accepted.push(sock),
            _ => {}
        }
    }
}

/// Goal: a full descriptor table pauses accepting, and free descriptors resume it. Method: a worker fills its
/// own table. The client is in the test's table, which must not be affected.
#[test]
fn full_descriptor_table_pauses_accepting_and_recovers() {
    let _alone = alone();
    let waker = make_wakers(1).expect("an eventfd").remove(0);
    let (send_address, receive_address) = mpsc::channel();
    let (dialled, wait_for_dial) = mpsc::channel::<()>();
    let worker = std::thread::spawn(move || {
        worker::unshare_descriptor_table().expect("this system allows unshare");
        let mut reactor = EpollReactor::new(10, waker).expect("an epoll instance");
        let any = Address::Tcp(([127, 0, 0, 1], 0).into());
        let listener = reactor.listen(&any, &OPTIONS).expect("a free port");
        let mut filling = Vec::new();
        while let Ok(descriptor) = rustix::io::dup(std::io::stdin()) {
            filling.push(descriptor);
        }
        send_address.send(reactor.listener_address(listener)).expect("the test waits for it");
        wait_for_dial.recv().expect("the test connects");
        let mut seen = Accepts::default();
        while seen.paused.is_empty() {
            reactor.turn(&mut seen, Span::from_secs(1));
        }
        assert_eq!(seen.paused[0], Shortage::WorkerDescriptors);
        assert!(seen.accepted.is_empty());
        assert_eq!(reactor.connect(&any), Err(Shortage::WorkerDescriptors));
        filling.truncate(1);
        while seen.accepted.is_empty() {
            reactor.turn(&mut seen, Span::from_secs(1));
        }
    });
    let Ok(Some(Address::Tcp(address))) = receive_address.recv() else {
        panic!("the worker sent no TCP address")
    };
    let client = TcpStream::connect(address).expect("the backlog has room");
    dialled.send(()).expect("the worker waits");
    worker.join().expect("the worker ends");
    drop(client);
}

#[test]
fn worker_with_its_own_table_is_woken_by_another_thread() {
    let _alone = alone();
    let wakers = make_wakers(2).expect("two eventfds");
    let workers: Vec<_> = wakers
        .iter()
        .cloned()
        .map(|waker| {
            std::thread::spawn(move || {
                worker::unshare_descriptor_table().expect("this system allows unshare");
                let mut reactor = EpollReactor::new(1, waker).expect("an epoll instance");
                struct Woken(bool);
                impl<R: Reactor> Handler<R> for Woken {
                    fn handle(&mut self, _: &mut R, completion: Completion<'_>) {
                        self.0 |= matches!(completion, Completion::Woken);
                    }
                }
                let mut woken = Woken(false);
                while !woken.0 {
                    reactor.turn(&mut woken, Span::MAX);
                }
            })
        })
        .collect();
    for (waker, worker) in wakers.iter().zip(workers) {
        waker.wake();
        worker.join().expect("the worker ends");
    }
}

#[test]
fn accepted_sockets_inherit_nodelay_from_their_listener() {
    let _alone = alone();
    // The driver sets TCP_NODELAY on the listener only and relies on this behaviour of the kernel.
    let kind = rustix::net::SocketType::STREAM;
    let server = rustix::net::socket(rustix::net::AddressFamily::INET, kind, None);
    let server = server.expect("a socket");
    rustix::net::sockopt::set_tcp_nodelay(&server, true).expect("a TCP socket");
    rustix::net::bind(&server, &SocketAddr::from(([127, 0, 0, 1], 0))).expect("a free port");
    rustix::net::listen(&server, 1).expect("the socket is bound");
    let name = rustix::net::getsockname(&server).expect("the socket is bound");
    let _client = TcpStream::connect(SocketAddr::try_from(name).expect("an IP address"));
    let accepted = rustix::net::accept(&server).expect("a client waits");
    assert!(rustix::net::sockopt::tcp_nodelay(&accepted).expect("a TCP socket"));
}

#[test]
fn stale_socket_path_is_replaced_and_one_in_use_is_not() {
    let _alone = alone();
    let name = format!("tidegate-left-behind-{}.sock", std::process::id());
    let path = std::env::temp_dir().join(name);
    let address = Address::Unix(path.to_string_lossy().into_owned());
    // A dropped listener leaves its path in the file system.
    drop(UnixListener::bind(&path).expect("a free path"));
    let waker = make_wakers(1).expect("an eventfd").remove(0);
    let mut reactor = EpollReactor::new(10, waker).expect("an epoll instance");
    reactor.listen(&address, &OPTIONS).expect("a stale path is replaced");
    let error = reactor.listen(&address, &OPTIONS).expect_err("this reactor already listens there");
    assert_eq!(error.cause.kind(), std::io::ErrorKind::AddrInUse);
    assert!(error.to_string().starts_with("cannot listen on unix:"), "{error}");
    std::fs::remove_file(&path).expect("the path exists");
}

/// Opens a listener that joins the group on `address`, in its own reactor.
fn join_group(address: SocketAddr) -> (EpollReactor, ListenerId, SocketAddr) {
    let waker = make_wakers(1).expect("an eventfd").remove(0);
    let mut reactor = EpollReactor::new(8, waker).expect("an epoll instance");
    let options = ListenOptions { reuse_port: true, ..OPTIONS };
    let id = reactor.listen(&Address::Tcp(address), &options).expect("SO_REUSEPORT is supported");
    let Some(Address::Tcp(bound)) = reactor.listener_address(id) else {
        panic!("not a TCP listener")
    };
    (reactor, id, bound)
}

#[test]
fn group_is_balanced_after_a_smaller_process_leaves() {
    struct Nothing;
    impl<R: Reactor> Handler<R> for Nothing {
        fn handle(&mut self, _: &mut R, _: Completion<'_>) {}
    }
    const OLD: usize = 2;
    let _alone = alone();
    // Both an orderly stop of the old process and a plain drop of its reactors.
    for orderly in [true, false] {
        let (reactor, id, address) = join_group(([127, 0, 0, 1], 0).into());
        let mut old = vec![(reactor, id)];
        old.extend((1..OLD).map(|_| join_group(address)).map(|(reactor, id, _)| (reactor, id)));
        let new: Vec<std::net::TcpListener> = (0..4).map(|_| share_port(address)).collect();
        let leaving = Arc::new(LeavingListeners::new(OLD as u32));
        for (reactor, id) in &mut old {
            reactor.steer_away(*id, &leaving);
        }
        for (reactor, id) in old.iter_mut().filter(|_| orderly) {
            reactor.stop_listening(*id);
            while reactor.listener_count() > 0 {
                reactor.turn(&mut Nothing, Span::ZERO);
            }
        }
        drop(old);
        let clients: Vec<_> = (0..256)
            .map(|_| TcpStream::connect(address).expect("four listeners are open"))
            .collect();
        let counts: Vec<usize> = new
            .iter()
            .map(|listener| std::iter::from_fn(|| listener.accept().ok()).count())
            .collect();
        assert_eq!(counts.iter().sum::<usize>(), clients.len());
        assert!(counts.iter().all(|count| *count > 0), "orderly: {orderly}, {counts:?}");
    }
}

/// Opens a listener that represents another process of the group.
fn share_port(address: SocketAddr) -> std::net::TcpListener {
    use rustix::net::{AddressFamily, SocketType, bind, listen, socket, sockopt};
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None).expect("a socket");
    sockopt::set_socket_reuseport(&socket, true).expect("SO_REUSEPORT is supported");
    bind(&socket, &address).expect("the group's address");
    listen(&socket, 512).expect("the listener is open");
    let listener = std::net::TcpListener::from(socket);
    listener.set_nonblocking(true).expect("a listener can be non-blocking");
    listener
}
