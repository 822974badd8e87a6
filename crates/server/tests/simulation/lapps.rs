//! Services of LAppS: one that is a client of another one; broadcasts of several workers and across a reload.
//! In: services. Out: what subscribers get.

use tidegate_base::Span;
use tidegate_wire::websocket::{Kind, encode_message};

use crate::lua::{Client, Process};
use crate::lua_reload::Reloaded;
use crate::stage::scene;

/// The servers of the pool are the listener itself.
const LISTENER: &str = "[[route]]\npath = \"/echo\"\nlua = \"lapps_echo\"\n\
    [[route]]\npath = \"/calls\"\nlua = \"lapps_calls\"\n\
    [lua.lapps_echo]\nscript = \"tests/scripts/lapps_echo.lua\"\nlayer = \"lapps\"\n\
    [lua.lapps_calls]\nscript = \"tests/scripts/lapps_calls.lua\"\nlayer = \"lapps\"\n\
    settings = { protocol = \"LAppS\" }\n\
    [lua.lapps_benchmark]\nscript = \"tests/scripts/lapps_benchmark.lua\"\nlayer = \"lapps\"\n\
    pools = [\"echo\"]\nsettings = { \"ws://127.0.0.1:5083\" = \"echo\" }\nshared = { mqr = \"1MiB\" }\n\
    [pool.echo]\nservers = [\"10.0.0.1:80\"]\n";
const UPGRADE: &[u8] =
    b"GET /calls HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
    Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
/// A client notification: subscribes to the results.
const RESULTS: &[u8] = b"\xa3\x65lapps\x01\x66method\x67results\x63cid\x06";

#[test]
fn benchmark_echoes_through_the_server_and_broadcasts_that_it_is_done() {
    scene().listener(LISTENER).run(|stage| {
        let client = stage.dial();
        client.send(UPGRADE);
        stage.receive_until(&client, "\r\n\r\n");
        let mut message = Vec::new();
        encode_message(&mut message, Kind::Binary, RESULTS, Some([1, 2, 3, 4]));
        client.send(&message);
        stage.receive_until(&client, "done");
        let counters = stage.counters();
        assert_eq!(counters.lua_failures.load(), 0);
        assert!(counters.lua_sockets.load() >= 3, "{}", counters.lua_sockets.load());
    });
}

fn numbers(version: u32) -> String {
    format!(
        "[[listener]]\nbind = \"10.0.0.1:80\"\ntimeouts = {{ head = \"1h\", idle = \"1h\" }}\n[[route]]\nlua = \"n\"\n\
        [lua.n]\nscript = \"tests/scripts/lapps_numbers.lua\"\nlayer = \"lapps\"\nsettings = {{ version = {version} }}\n"
    )
}

/// Connects clients that subscribe.
fn subscribers(process: &mut Process, count: usize) -> Vec<Client> {
    let clients: Vec<Client> = (0..count).map(|_| process.open()).collect();
    clients.iter().for_each(|client| client.send("in"));
    process.turns(20);
    clients
}

/// The numbers that a client has got: each is a byte of CBOR.
fn received(client: &mut Client) -> Vec<u8> {
    client.read().into_iter().flat_map(String::into_bytes).collect()
}

#[test]
fn broadcasts_reach_the_subscribers_of_all_workers_in_order() {
    let mut process = Process::of(&numbers(1), 3);
    let mut clients = subscribers(&mut process, 12);
    for number in 1..=20 {
        clients[0].send(&number.to_string());
    }
    process.turns(100);
    let expected: Vec<u8> = (1..=20).collect();
    for client in &mut clients {
        assert_eq!(received(client), expected);
    }
    assert_eq!(process.sum("lua_mail_drops"), 0);
    process.finish(clients);
}

/// More than a callback may send: the broadcast continues in a later turn.
#[test]
fn broadcast_does_not_overtake_one_that_takes_several_turns() {
    let mut process = Process::of(&numbers(1), 1);
    let clients = subscribers(&mut process, 50);
    clients[0].send("large");
    clients[0].send("7");
    let mut inputs = vec![Vec::new(); clients.len()];
    for _ in 0..400 {
        process.turns(1);
        for (input, client) in inputs.iter_mut().zip(&clients) {
            input.extend(client.peer.receive());
        }
        process.net.advance_by(Span::from_millis(1));
    }
    for (at, input) in inputs.iter().enumerate() {
        assert!(input.len() > 400_000, "client {at}: {} bytes", input.len());
        assert_eq!(input[input.len() - 3..], [0x82, 1, 7], "client {at}");
    }
    process.finish(clients);
}

#[test]
fn each_subscriber_gets_each_broadcast_once_across_a_reload() {
    for (workers, pause) in [(1, 0), (1, 3), (3, 1), (3, 7)] {
        let mut run = Reloaded::of(&numbers(1), workers);
        let mut clients = subscribers(&mut run.process, 9);
        for number in 1..=20_u8 {
            clients[usize::from(number) % 2].send(&number.to_string());
            run.process.turns(pause);
            if number % 8 == 0 {
                assert_eq!(run.reload(&numbers(u32::from(number))), Ok(()));
            }
        }
        run.process.turns(100);
        for client in &mut clients {
            let mut numbers = received(client);
            assert!(pause == 0 || workers > 1 || numbers.is_sorted(), "{numbers:?}");
            numbers.sort_unstable();
            assert_eq!(numbers, (1..=20).collect::<Vec<u8>>(), "{workers} workers, {pause} turns");
        }
        assert!(run.process.sum("lua_handovers") >= 9);
        run.process.finish(clients);
    }
}
