//! Servers that send responses without a request, on idle connections: no such response reaches a client, and
//! every request gets its own response, also one that must not be sent twice.
//! In: a seed, and which sides use TLS. Out: the number of unsolicited responses, or the first violation.
//! Limits: `STEPS` steps for each seed.

use tidegate_base::{Address, Prng, Span};
use tidegate_reactor::{Faults, SimNet, SimReactor};
use tidegate_wire::tls::Version;

use crate::line::Line;
use crate::peer::harness::Harness;
use crate::plan::LISTEN;
use crate::secured::Keys;

const STEPS: u32 = 400;
const SEEDS: u64 = 12;
/// They connect at the same moments, so that with TLS some of their handshakes are postponed.
const CLIENTS: usize = 14;
/// Requests of one client connection.
const REQUESTS_MAX: u32 = 3;
const SERVER: ([u8; 4], u16) = ([10, 0, 1, 1], 8000);
const UNSOLICITED: &[u8] = b"HTTP/1.1 200 OK\r\nx-id: 0\r\ncontent-length: 4\r\n\r\nevil";

/// A client that sends one request at a time.
struct Client {
    line: Line,
    /// The id of the request without a response.
    awaited: Option<u64>,
    received: Vec<u8>,
    requests: u32,
}

/// A connection of the worker to the server.
struct Served {
    line: Line,
    received: Vec<u8>,
    /// A response was sent, and no other request has arrived.
    idle: bool,
    /// Unsolicited bytes have arrived at the worker.
    tainted: bool,
}

fn id_of(head: &[u8]) -> Option<u64> {
    let text = core::str::from_utf8(head).ok()?;
    text.lines().find_map(|line| line.strip_prefix("x-id: "))?.trim().parse().ok()
}

fn play(seed: u64, clients_secured: bool, servers_secured: bool) -> Result<u64, String> {
    let tls = |on: bool, line| if on { line } else { "" };
    let (listen, server) = (Address::Tcp(LISTEN.into()), Address::Tcp(SERVER.into()));
    let text = format!(
        "[[listener]]\nbind = \"10.0.0.1:80\"\n{}\n[[route]]\nproxy = \"p\"\n\
         [pool.p]\nservers = [\"10.0.1.1:8000\"]\n{}\n",
        tls(clients_secured, "tls = \"self-signed\""),
        tls(servers_secured, "tls = { server-name = \"a.example\" }"),
    );
    let config = tidegate_config::parse(&text, "the test").map_err(|errors| errors.to_string())?;
    let mut prng = Prng::new(seed);
    let latency_us_max = prng.below(3) as u32 * 100;
    let net = SimNet::new(seed, Faults { latency_us_max, ..Faults::none() });
    let version = [Version::Tls12, Version::Tls13][prng.below(2) as usize];
    let keys = Keys::new(seed, version);
    let plan = keys.plan(clients_secured, &[servers_secured], &[1]);
    let mut harness = Harness::<SimReactor>::simulated(&net, &config, 100, seed).secured(&plan);
    let origin = net.serve(&server).ok_or("the address is taken")?;
    let mut clients: Vec<Option<Client>> = (0..CLIENTS).map(|_| None).collect();
    let mut served: Vec<Served> = Vec::new();
    let (mut next_id, mut intrusions) = (1, 0);
    for step in 0..STEPS {
        let is_ending = step > STEPS - STEPS / 4;
        if clients.iter().all(Option::is_none) {
            clients.fill_with(|| {
                let peer = net.dial(&listen).expect("the worker listens");
                let session = clients_secured
                    .then(|| keys.connector.connect("a.example").expect("a session"));
                let line = Line::new(peer, session, false, false);
                Some(Client { line, awaited: None, received: Vec::new(), requests: 0 })
            });
        }
        for place in &mut clients {
            let Some(client) = place else { continue };
            client.received.extend(client.line.receive());
            if client.received.ends_with(b"ok") || client.received.ends_with(b"evil") {
                let id = id_of(&client.received);
                if id != client.awaited || !client.received.starts_with(b"HTTP/1.1 200") {
                    let text = String::from_utf8_lossy(&client.received).into_owned();
                    return Err(format!("r{:?} got {text}", client.awaited));
                }
                client.awaited = None;
                client.received.clear();
            }
            if !client.received.is_empty() && !client.received.starts_with(b"HTTP/1.1 200") {
                return Err(String::from_utf8_lossy(&client.received).into_owned());
            }
            if client.awaited.is_none() && client.requests == REQUESTS_MAX {
                *place = None;
            } else if client.awaited.is_none()
                && !is_ending
                && (client.requests == 0 || prng.below(3) == 0)
            {
                let request = format!(
                    "POST /{next_id} HTTP/1.1\r\nHost: a\r\nx-id: {next_id}\r\n\
                     Content-Length: 4\r\n\r\nbody"
                );
                if client.line.send(request.as_bytes()) > 0 {
                    (client.awaited, client.requests) = (Some(next_id), client.requests + 1);
                    next_id += 1;
                }
            }
        }
        while let Some(peer) = origin.accept() {
            let session = servers_secured.then(|| keys.acceptor.accept().expect("a session"));
            let line = Line::new(peer, session, false, false);
            served.push(Served { line, received: Vec::new(), idle: false, tainted: false });
        }
        for conn in &mut served {
            conn.received.extend(conn.line.receive());
            if conn.received.ends_with(b"body") {
                let id = id_of(&conn.received).ok_or("a request without an id")?;
                if conn.tainted {
                    return Err(format!("r{id} was sent after an unsolicited response"));
                }
                conn.received.clear();
                let response =
                    format!("HTTP/1.1 200 OK\r\nx-id: {id}\r\ncontent-length: 2\r\n\r\nok");
                conn.line.send(response.as_bytes());
                conn.idle = true;
            } else if conn.idle && prng.below(4) == 0 {
                let part = 1 + prng.below(UNSOLICITED.len() as u64) as usize;
                let count = if prng.below(2) == 0 { usize::MAX } else { part };
                if let Some(rest) = conn.line.send_at_once(UNSOLICITED, count) {
                    conn.line.send_bare(&rest);
                    (conn.idle, conn.tainted) = (false, true);
                    intrusions += 1;
                }
            }
        }
        served.retain(|conn| !conn.line.is_finished_by_other() && !conn.line.was_reset());
        harness.turn();
        net.advance_by(Span::from_micros(prng.below(2) * 50));
    }
    let awaited: Vec<u64> = clients.iter().flatten().filter_map(|c| c.awaited).collect();
    if !awaited.is_empty() {
        return Err(format!("no response to {awaited:?}"));
    }
    Ok(intrusions)
}

fn play_all(clients_secured: bool, servers_secured: bool) {
    let mut intrusions = 0;
    for seed in 0..SEEDS {
        match play(seed, clients_secured, servers_secured) {
            Ok(count) => intrusions += count,
            Err(violation) => panic!("seed {seed}: {violation}"),
        }
    }
    assert!(intrusions > SEEDS, "only {intrusions} unsolicited responses");
}

#[test]
fn unsolicited_response_answers_no_request() {
    play_all(false, false);
}

#[test]
fn unsolicited_response_over_tls_answers_no_request() {
    play_all(false, true);
}

/// Handshakes of clients that were postponed are continued before the worker looks at its sockets.
#[test]
fn unsolicited_response_answers_no_request_of_a_tls_client() {
    play_all(true, false);
    play_all(true, true);
}
