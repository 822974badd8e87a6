//! A test for leaks: WebSocket clients of an application that connect, send messages and leave, again and again.
//! In: `TIDEGATE_LEAK_CONNECTS`, the number of connects (`make leak`: a million). Out: the memory of the VM at the end.
//! Limits: `CLIENTS` clients at once.
//! Invariant: after the first `WARM_CONNECTS`, the VM and the worker hold no more than before.

use tidegate_reactor::SimPeer;

use crate::lua::Process;

const APP: &str = "[[listener]]\nbind = \"10.0.0.1:80\"\n[[route]]\nlua = \"leak\"\n[lua.leak]\n\
    script = \"tests/scripts/leak.lua\"\n";
/// Clients that are connected at once.
const CLIENTS: usize = 32;
/// Messages of each client.
const MESSAGES: [&str; 3] = ["wait", "two", "three"];
const CONNECTS_DEFAULT: usize = 19_200;
/// Connects after which the VM has compiled what it runs, and has grown to its usual size.
const WARM_CONNECTS: usize = 3200;
/// What the VM may grow by after that, in KiB: it keeps coroutines and compiled code. An empty table for each further connect of
/// the plain run would be 1 MiB.
const GROWTH_KIB_MAX: u64 = 768;

/// A text frame, masked with the key 0; a Close frame without a text.
fn frame(text: &str) -> Vec<u8> {
    let opcode = if text.is_empty() { 0x88 } else { 0x81 };
    let mut frame = vec![opcode, 0x80 | text.len() as u8, 0, 0, 0, 0];
    frame.extend(text.as_bytes());
    frame
}

/// Lets clients connect, send their messages and leave: some by a Close frame, the others at once.
fn round(process: &mut Process) {
    let dial = |name: usize| {
        let peer = process.net.dial(&process.workers[0].bound[0]).expect("the worker listens");
        let request = format!(
            "GET /?name={name} HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        );
        assert_eq!(peer.send(request.as_bytes()), request.len());
        peer
    };
    let peers: Vec<SimPeer> = (0..CLIENTS).map(dial).collect();
    process.turns(2);
    for (at, peer) in peers.iter().enumerate() {
        for message in MESSAGES {
            peer.send(&frame(message));
        }
        if at % 4 == 0 {
            peer.send(&frame(""));
        }
    }
    process.turns(4);
    peers.iter().filter(|peer| !peer.is_finished_by_other()).for_each(SimPeer::reset);
    process.turns(2);
}

/// The clients that have come and left, and the memory of the VM in KiB.
fn report(process: &mut Process) -> [u64; 3] {
    process.turns(50);
    let line = process.get("/");
    let mut numbers = line.split(' ').map(|number| number.parse().expect("a number"));
    core::array::from_fn(|_| numbers.next().expect("three numbers"))
}

#[test]
fn clients_that_come_and_go_leave_nothing_behind() {
    let wanted = std::env::var("TIDEGATE_LEAK_CONNECTS").ok();
    let wanted = wanted.map_or(CONNECTS_DEFAULT, |text| text.parse().expect("a number"));
    let mut process = Process::of(APP, 1);
    let mut connects = 0;
    let mut play = |process: &mut Process, until: usize| {
        while connects < until {
            round(process);
            connects += CLIENTS;
        }
        connects
    };
    play(&mut process, WARM_CONNECTS);
    let [_, _, warm] = report(&mut process);
    let connects = play(&mut process, wanted.max(2 * WARM_CONNECTS));
    let [opened, closed, kib] = report(&mut process);
    assert_eq!(
        (opened, closed),
        (connects as u64, connects as u64),
        "clients that have come and left"
    );
    assert!(kib <= warm + GROWTH_KIB_MAX, "the VM has grown from {warm} to {kib} KiB");
    let leftovers = process.workers[0].worker.leftovers();
    assert_eq!((leftovers.lua_clients, leftovers.scripted, leftovers.lua_waiting), (0, 0, 0));
    assert_eq!((process.sum("lua_failures"), process.sum("lua_restarts")), (0, 0));
    process.finish(Vec::new());
}
