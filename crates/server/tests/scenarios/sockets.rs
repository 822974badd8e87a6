//! Plays a scene on real sockets of 127.0.0.1. The worker has its own thread; this thread polls all actors.
//! In: a scene. Out: success, or the current step of each actor when the scene failed.
//! Never: uses a fixed port, or fails by timing, except that `PATIENCE` ends a scene that hangs.
//! Invariant: after the scene the worker holds nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SocketType};
use tidegate_base::{Address, Span};
use tidegate_config::model::Config;
use tidegate_reactor::{EpollReactor, Mailbox, Sender, Waker, make_wakers};

use crate::actor::{Actor, Stage, Wire};
use crate::peer::harness::Harness;
use crate::scene::{Scene, Script};

const PATIENCE: Duration = Duration::from_secs(60);
/// How long this thread sleeps when no actor could do anything.
const PAUSE: Duration = Duration::from_millis(1);

/// Real sockets and the worker's mailbox.
struct Real {
    /// The worker's listener.
    address: SocketAddr,
    servers: BTreeMap<String, TcpListener>,
    /// Takes the grace period, in seconds, of a stop.
    worker: Sender<u64>,
}

impl Stage for Real {
    fn dial(&mut self) -> Option<Box<dyn Wire>> {
        Some(Box::new(End::new(TcpStream::connect(self.address).ok()?)))
    }

    fn accept(&mut self, server: &str) -> Option<Box<dyn Wire>> {
        let (stream, _) = self.servers.get(server)?.accept().ok()?;
        Some(Box::new(End::new(stream)))
    }

    fn stop(&mut self, grace_s: u64) {
        let _ = self.worker.send(grace_s);
    }
}

/// One end of a TCP connection.
struct End {
    stream: TcpStream,
    /// The other end has finished.
    finished: bool,
    /// The connection was reset or failed.
    broken: bool,
}

impl End {
    fn new(stream: TcpStream) -> Self {
        // Scripts expect that each send leaves as a segment of its own.
        let _ = stream.set_nodelay(true);
        let broken = stream.set_nonblocking(true).is_err();
        Self { stream, finished: false, broken }
    }
}

impl Wire for End {
    fn send(&mut self, bytes: &[u8]) -> usize {
        match self.stream.write(bytes) {
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
            // Bytes received before the connection broke must still be readable.
            Err(_) => bytes.len(),
        }
    }

    fn receive(&mut self) -> Vec<u8> {
        let mut all = Vec::new();
        let mut buffer = [0; 65536];
        while !self.finished && !self.broken {
            match self.stream.read(&mut buffer) {
                Ok(0) => self.finished = true,
                Ok(count) => all.extend_from_slice(&buffer[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(_) => self.broken = true,
            }
        }
        all
    }

    fn is_finished(&mut self) -> bool {
        self.finished && !self.broken
    }

    fn was_reset(&mut self) -> bool {
        self.broken
    }

    fn finish(&mut self) {
        let _ = self.stream.shutdown(Shutdown::Write);
    }

    fn reset(self: Box<Self>) {
        let linger = Some(Duration::ZERO);
        let _ = rustix::net::sockopt::set_socket_linger(&self.stream, linger);
    }
}

/// Plays the scene once.
pub fn play(scene: Scene) -> Result<(), String> {
    let mut config = scene.config.replace("@listen", "127.0.0.1:0");
    let mut servers = BTreeMap::new();
    for actor in scene.actors.iter().filter(|actor| !actor.is_client) {
        let server = TcpListener::bind("127.0.0.1:0").map_err(|e| e.to_string())?;
        server.set_nonblocking(true).map_err(|e| e.to_string())?;
        let address = server.local_addr().map_err(|e| e.to_string())?;
        config = config.replace(&format!("@{}\"", actor.name), &format!("{address}\""));
        servers.insert(actor.name.clone(), server);
    }
    let mut held = Vec::new();
    for name in &scene.refusing {
        let (port, address) = hold_port().map_err(|e| e.to_string())?;
        config = config.replace(&format!("@{name}\""), &format!("{address}\""));
        held.push(port);
    }
    let config = tidegate_config::parse(&config, "the scene").map_err(|e| e.to_string())?;
    let waker = make_wakers(1).map_err(|e| e.to_string())?.remove(0);
    let mailbox = Mailbox::new(16, waker.clone());
    let worker = mailbox.sender();
    let (report, reported) = mpsc::channel();
    let thread = thread::spawn(move || serve(&config, waker, &mailbox, &report));
    let address = match reported.recv() {
        Ok(Address::Tcp(address)) => address,
        _ => return Err("the worker did not start".to_owned()),
    };
    let mut stage = Real { address, servers, worker };
    let outcome = run(&mut stage, scene.actors);
    stage.stop(0);
    let leak = thread.join().map_err(|_| "the worker panicked".to_owned())?;
    outcome?;
    leak.map_or(Ok(()), |leak| Err(format!("on sockets: {leak}")))
}

/// A bound port without a listener: connections are refused, and no other process can listen on it.
fn hold_port() -> rustix::io::Result<(OwnedFd, SocketAddr)> {
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None)?;
    rustix::net::bind(&socket, &SocketAddr::from(([127, 0, 0, 1], 0)))?;
    let address = SocketAddr::try_from(rustix::net::getsockname(&socket)?)?;
    Ok((socket, address))
}

/// Runs the worker until a stop without grace period; returns what the worker still holds afterwards.
fn serve(
    config: &Config,
    waker: Waker,
    mailbox: &Mailbox<u64>,
    report: &mpsc::Sender<Address>,
) -> Option<String> {
    let reactor = match EpollReactor::new(100, waker) {
        Ok(reactor) => reactor,
        Err(error) => return Some(error.to_string()),
    };
    let mut harness = Harness::new(reactor, config, 100, 1).recording();
    let _ = report.send(harness.bound[0].clone());
    loop {
        harness.worker.turn(&mut harness.reactor, Span::from_secs(1));
        while let Some(grace_s) = mailbox.take() {
            harness.worker.stop(&mut harness.reactor, Span::from_secs(grace_s));
            if grace_s == 0 {
                return wind_up(harness);
            }
        }
    }
}

/// Waits, with all clients and servers gone, until the worker holds nothing.
fn wind_up(mut harness: Harness<EpollReactor>) -> Option<String> {
    let began = Instant::now();
    while harness.find_leak().is_some() && began.elapsed() < PATIENCE {
        harness.worker.turn(&mut harness.reactor, Span::from_millis(10));
    }
    harness.find_leak()
}

fn run(stage: &mut Real, scripts: Vec<Script>) -> Result<(), String> {
    let mut actors: Vec<Actor> = scripts.into_iter().map(Actor::new).collect();
    let mut marks = BTreeSet::new();
    let began = Instant::now();
    loop {
        let mut moved = false;
        for actor in &mut actors {
            moved |= actor.step(stage, &mut marks).map_err(|why| format!("on sockets: {why}"))?;
        }
        if actors.iter().all(Actor::is_done) {
            return Ok(());
        }
        if began.elapsed() > PATIENCE {
            let all: Vec<String> = actors.iter().map(Actor::describe).collect();
            return Err(format!("on sockets: no progress:\n  {}", all.join("\n  ")));
        }
        if !moved {
            thread::sleep(PAUSE);
        }
    }
}
