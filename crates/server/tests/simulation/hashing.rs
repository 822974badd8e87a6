//! Hash balancing by the address of the client behind a trusted proxy.
//! In: requests of one connection that name clients. Out: the server that received each of them.

use tidegate_base::Address;

use crate::stage::{Stage, assert_status, scene};

/// Named clients.
const CLIENTS: u8 = 16;
const POOL: &str =
    "servers = [\"10.0.1.1:8000\", \"10.0.1.2:8000\"]\nbalance = { hash = \"client-address\" }";
/// Each request gets a connection of its own, so that its server is known.
const CLOSE: &[u8] = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok";

/// Sends a request for each named client over one connection; returns the number of the server for each of them.
fn servers_of_clients(stage: &mut Stage) -> Vec<usize> {
    let second = Address::Tcp(([10, 0, 1, 2], 8000).into());
    let second = stage.net.serve(&second).expect("the address is free");
    let client = stage.dial();
    let mut chosen = Vec::new();
    for number in (0..CLIENTS).chain(0..CLIENTS) {
        let request =
            format!("GET /p HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 192.0.2.{number}\r\n\r\n");
        client.send(request.as_bytes());
        let (server, origin) = stage.until(|stage| {
            let first = stage.try_accept().map(|origin| (0, origin));
            first.or_else(|| second.accept().map(|origin| (1, origin)))
        });
        stage.receive_until(&origin, "\r\n\r\n");
        origin.send(CLOSE);
        assert_status(200, &stage.receive_until(&client, "ok"));
        chosen.push(server);
    }
    let (once, again) = chosen.split_at(usize::from(CLIENTS));
    assert_eq!(once, again, "a client changed its server");
    once.to_vec()
}

#[test]
fn address_that_a_trusted_proxy_states_selects_the_server() {
    scene().listener("trusted = [\"0.0.0.0/0\"]").pool(POOL).run(|stage| {
        let chosen = servers_of_clients(stage);
        assert!(chosen.contains(&0) && chosen.contains(&1), "{chosen:?}");
    });
}

#[test]
fn address_that_another_client_states_does_not_select_the_server() {
    scene().pool(POOL).run(|stage| {
        let chosen = servers_of_clients(stage);
        assert!(chosen.iter().all(|server| *server == chosen[0]), "{chosen:?}");
    });
}
