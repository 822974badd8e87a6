//! Channels of WebSocket clients on several workers.
//! In: an application, clients. Out: what each test's name says.
//! Limits: the turns that each test sets.
//! Invariant: after a run the workers hold nothing.

use crate::lua::{Client, Process};

const FILE: &str = "[[listener]]\nbind = \"10.0.0.1:80\"\n[[route]]\nlua = \"room\"\n\
    [lua.room]\nscript = \"tests/scripts/room.lua\"\n";

#[test]
fn publications_reach_the_subscribers_of_all_workers_in_order() {
    let mut process = Process::of(FILE, 3);
    let mut clients: Vec<Client> = (0..12).map(|_| process.open()).collect();
    process.turns(20);
    for number in 0..20 {
        clients[0].send(&number.to_string());
    }
    process.turns(100);
    let all: Vec<String> = (0..20).map(|number| number.to_string()).collect();
    assert_eq!(clients[0].read(), [""; 0], "the sender");
    for client in &mut clients[1..] {
        assert_eq!(client.read(), all);
    }
    clients[5].peer.reset();
    process.turns(20);
    clients[1].send("last");
    process.turns(20);
    let got: Vec<String> = clients.iter_mut().flat_map(Client::read).collect();
    assert_eq!(got, ["last"; 10], "all but the sender and the one that has left");
    assert_eq!(process.sum("lua_mail_drops"), 0);
    process.finish(clients);
}
