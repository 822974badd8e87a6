//! Sockets of Lua applications, in a network with faults.
//! In: seeds. Out: what a worker holds although nothing is in progress; bytes of one talk that another one has read.
//! Limits: those of `lua_requests.rs`.
//! Invariant: nothing is random except for the seed.

use tidegate_base::Prng;
use tidegate_reactor::SimServer;
use tidegate_wire::tls::{Acceptor, Version};

use crate::line::Line;
use crate::lua::Process;
use crate::lua_requests::{SEEDS, Server, storm};
use crate::secured::Keys;
use crate::stage::scene;

/// A server that answers `N M` and M bytes with `ok N` and N bytes, each on a line, if it answers.
struct Talker {
    server: SimServer,
    /// The connections, each with what was received and what is still to be sent.
    conns: Vec<(Line, Vec<u8>, Vec<u8>)>,
    acceptor: Option<Acceptor>,
}

impl Server for Talker {
    fn new(server: SimServer, keys: Option<&Keys>) -> Self {
        let acceptor = keys.map(|keys| keys.acceptor.clone());
        Self { server, conns: Vec::new(), acceptor }
    }

    fn step(&mut self, prng: &mut Prng) {
        while let Some(peer) = self.server.accept() {
            let session = self.acceptor.as_ref().map(|of| of.accept().expect("a session"));
            let line = Line::new(peer, session, false, false);
            self.conns.push((line, Vec::new(), Vec::new()));
        }
        for (peer, received, unsent) in &mut self.conns {
            if prng.below(4) > 0 {
                received.extend(peer.receive());
            }
            while let Some((answer, length)) = answer_to(received) {
                received.drain(..length);
                match prng.below(60) {
                    0 => peer.reset(),
                    1 => peer.finish(),
                    // Silence.
                    2 => {}
                    // Bytes that nothing has asked for.
                    3 => unsent.extend_from_slice(&[&answer[..], b"more\n"].concat()),
                    _ => unsent.extend_from_slice(&answer),
                }
            }
            let sent = peer.send(unsent);
            unsent.drain(..sent);
        }
    }
}

/// The answer to the first question, and the bytes of the question; `None` if it is incomplete.
fn answer_to(received: &[u8]) -> Option<(Vec<u8>, usize)> {
    let end = received.iter().position(|byte| *byte == b'\n')?;
    let line = core::str::from_utf8(&received[..end]).expect("a question");
    let (size, length) = line.split_once(' ').expect("two numbers");
    let (size, length): (usize, usize) =
        (size.parse().expect("a number"), length.parse().expect("a number"));
    let whole = end + 1 + length;
    (received.len() >= whole).then(|| (format!("ok {size}\n{}\n", "y".repeat(size)).into(), whole))
}

#[test]
fn sockets_end_with_their_handlers_and_never_mix_talks_whatever_the_network_does() {
    let (mut talks, mut reused, mut secured) = (0, 0, 0);
    for seed in 0..SEEDS {
        let version = [Version::Tls12, Version::Tls13][seed as usize / 2 % 2];
        let keys = (seed % 2 == 1).then(|| Keys::new(seed, version));
        for response in storm::<Talker>(seed, "sockets", keys.as_ref()) {
            let response = String::from_utf8_lossy(&response).into_owned();
            assert!(!response.contains("mixed"), "seed {seed}: {response}");
            talks += usize::from(response.contains("talked"));
            reused += usize::from(response.contains("reused"));
            secured += usize::from(keys.is_some() && response.contains("reused"));
        }
    }
    assert!(talks > 100 && reused > 20, "{talks} talks, {reused} over connections used before");
    assert!(secured > 5, "{secured} over TLS connections used before");
}

/// A handler that talks to the pool of the stage.
const ONE: &str = "[[route]]\npath = \"/talk\"\nlua = \"talk\"\n[lua.talk]\nscript = \"tests/scripts/sockets.lua\"\n\
    pools = [\"p\"]\n";

#[test]
fn end_of_the_server_is_an_error_of_the_script() {
    scene().listener(ONE).run(|stage| {
        let client = stage.dial();
        client.send(b"GET /talk HTTP/1.1\r\nHost: a\r\n\r\n");
        let server = stage.accept();
        stage.receive_until(&server, "\n");
        server.send(b"ok 9");
        server.finish();
        let response = stage.receive_until(&client, "closed");
        assert!(response.starts_with("HTTP/1.1 502"), "{response}");
        assert!(stage.counters().lua_sockets.load() >= 1);
    });
}

/// An application that talks to the echo of its own process.
const RELAY: &str = "[[listener]]\nbind = \"10.0.0.1:80\"\n[[route]]\npath = \"/echo\"\necho = true\n\
    websocket = { origins = [\"*\"], ping-every = \"1s\" }\n[[route]]\npath = [\"/\", \"/none\"]\nlua = \"relay\"\n\
    [lua.relay]\nscript = \"tests/scripts/relay.lua\"\npools = [\"p\"]\n[pool.p]\nservers = [\"10.0.0.1:80\"]\n";

#[test]
fn scripts_are_clients_of_websocket_servers() {
    let mut process = Process::of(RELAY, 1);
    assert_eq!(process.get("/none"), "the server refused the WebSocket handshake (status 404)");
    for _ in 0..3 {
        assert_eq!(process.get("/"), "text hello|binary 200000|closed 1000");
    }
    // Handlers of a client use one connection for as long as the client lasts.
    let (mut client, _) = process.connect();
    for text in ["one", "two"] {
        client.send(text);
        process.turns(40);
        assert_eq!(client.read(), [format!("echo {text}")]);
    }
    assert_eq!(process.sum("lua_sockets"), 5);
    process.finish(vec![client]);
}
