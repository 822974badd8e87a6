//! Queues of Lua applications on several workers.
//! In: two applications that share a queue, clients. Out: what each test's name says.
//! Limits: the turns that each test sets.
//! Invariant: after a run the workers hold nothing.

use std::collections::BTreeSet;

use tidegate_reactor::SimPeer;

use crate::lua::Process;

const FILE: &str = "[[listener]]\nbind = \"10.0.0.1:80\"\n[[route]]\npath = \"/b/*\"\nlua = \"b\"\n[[route]]\nlua = \"a\"\n\
    [lua.a]\nscript = \"tests/scripts/queue.lua\"\nqueues = { jobs = \"64KiB\" }\n\
    [lua.b]\nscript = \"tests/scripts/queue.lua\"\nqueues = { jobs = \"64KiB\" }\n";

fn begin(process: &Process, target: &str) -> SimPeer {
    let peer = process.net.dial(&process.workers[0].bound[0]).expect("the workers listen");
    let request = format!("GET {target} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    assert_eq!(peer.send(request.as_bytes()), request.len());
    peer
}

/// The body of a response that has arrived; empty if there is none.
fn body(peer: &SimPeer) -> String {
    let response: Vec<u8> = peer.receive().into_iter().collect();
    let response = String::from_utf8_lossy(&response).into_owned();
    response.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default()
}

#[test]
fn coroutines_of_all_workers_and_applications_get_each_value_once() {
    const COUNT: usize = 24;
    let mut process = Process::of(FILE, 3);
    let targets = ["/pop", "/b/pop"].into_iter().cycle();
    let waiting: Vec<SimPeer> = targets.take(COUNT).map(|target| begin(&process, target)).collect();
    process.turns(20);
    assert!(waiting.iter().all(|peer| body(peer).is_empty()), "nothing is pushed yet");
    for number in 0..COUNT {
        assert_eq!(process.get(&format!("/{number}")), "true");
    }
    process.turns(20);
    let bodies: Vec<String> = waiting.iter().map(body).collect();
    let (mut places, mut values) = (BTreeSet::new(), BTreeSet::new());
    for body in &bodies {
        let (place, value) = body.split_once(" /").unwrap_or_else(|| panic!("{bodies:?}"));
        places.insert(place.to_owned());
        assert!(values.insert(value.to_owned()), "{value} twice: {bodies:?}");
    }
    assert_eq!(values.len(), COUNT);
    assert_eq!(places.len(), 6, "both applications on three workers: {places:?}");
    assert_eq!(process.sum("lua_mail_drops"), 0);
    waiting.iter().for_each(SimPeer::reset);
    process.finish(Vec::new());
}

#[test]
fn value_for_a_client_that_has_left_goes_to_the_next() {
    let mut process = Process::of(FILE, 3);
    let left: Vec<SimPeer> = (0..12).map(|_| begin(&process, "/pop")).collect();
    process.turns(20);
    left.iter().for_each(SimPeer::reset);
    process.turns(20);
    let last = begin(&process, "/b/pop");
    process.turns(20);
    assert_eq!(process.get("/value"), "true");
    process.turns(20);
    assert!(body(&last).ends_with(" /value"));
    last.reset();
    process.finish(Vec::new());
}
