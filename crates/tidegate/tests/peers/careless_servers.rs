//! Servers that leave part of a request unread and take it for the next request of the connection.
//! In: attackers that send such requests, victims whose requests share the server's connections with them.
//! Out: every victim gets the response to its own request, and the server never sees the smuggled paths.
//! Limits: `ROUNDS` requests for each client; `PATIENCE` to wait for a response.
//! Invariant: each attack succeeds if the setting that permits it is on, which proves that the tests can fail.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::gate::Gate;
use crate::origins::Script;
use crate::process::Folder;

const ROUNDS: usize = 150;
const ATTACKERS: usize = 4;
const VICTIMS: usize = 4;
const PATIENCE: Duration = Duration::from_secs(20);

/// A chunked request with a trailer that reads as a request line.
const TRAILER_ATTACK: &str = "POST /attack HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n\
    2\r\nhi\r\n0\r\nGET: /evil HTTP/1.1\r\nX-Rest: x\r\n\r\n";
/// A request whose method gives a body no meaning, with a body that is a request.
const BODY_ATTACK: &str = "GET /attack HTTP/1.1\r\nHost: a\r\nContent-Length: 34\r\n\r\n\
    GET /evil HTTP/1.1\r\nHost: attack\r\n\r\n";
/// A chunked body that the application does not read.
const CHUNKED_ATTACK: &str = "POST /attack HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n\
    3\r\nabc\r\n0\r\n\r\n";
/// A chunked body that goes to the server as it arrives, however short it is, because its client waits for 100 (Continue).
const WAITING_ATTACK: &str = "POST /attack HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\
    Expect: 100-continue\r\n\r\n3\r\nabc\r\n0\r\n\r\n";
/// A method that gives a body a meaning, for an application that does not read the body, which is a request.
const POST_ATTACK: &str = "POST /attack HTTP/1.1\r\nHost: a\r\nContent-Length: 34\r\n\r\n\
    GET /evil HTTP/1.1\r\nHost: attack\r\n\r\n";
/// A method that the proxy does not know, with a body that is a request.
const UNKNOWN_METHOD_ATTACK: &str = "PROPFIND /attack HTTP/1.1\r\nHost: a\r\nContent-Length: 34\r\n\r\n\
    GET /evil HTTP/1.1\r\nHost: attack\r\n\r\n";

/// A chunked body longer than `request-buffer`, so that its head is sent before its length is known.
fn long_chunked_attack() -> String {
    let body = "x".repeat(40_000);
    format!(
        "POST /attack HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n{body}\r\n0\r\n\r\n",
        body.len()
    )
}

#[test]
fn chunked_body_that_the_application_leaves_unread_harms_nobody() {
    for request in [CHUNKED_ATTACK, WAITING_ATTACK, &long_chunked_attack()] {
        let outcome = attack("cheroot-unread", request, "");
        assert!(outcome.is_clean(), "{}: {outcome:?}", &request[..60]);
    }
}

#[test]
fn unread_chunked_body_is_read_as_a_request_if_the_pool_reuses_its_connection() {
    let settings = "reuse = { after-chunked-body = true }";
    for request in [WAITING_ATTACK, &long_chunked_attack()] {
        succeeds(|| attack("cheroot-unread", request, settings).wrong > 0);
    }
}

#[test]
fn request_trailers_are_dropped_by_default() {
    for server in ["cheroot", "gevent", "eventlet"] {
        let outcome = attack(server, TRAILER_ATTACK, "");
        assert!(outcome.is_clean(), "{server}: {outcome:?}");
    }
}

#[test]
fn trailers_are_read_as_a_request_if_the_pool_forwards_them() {
    let settings = "trailers = true\nreuse = { after-chunked-body = true }";
    let mut servers = ["cheroot", "gevent", "eventlet"].into_iter().cycle();
    succeeds(|| {
        servers.next().is_some_and(|name| !attack(name, TRAILER_ATTACK, settings).is_clean())
    });
}

#[test]
fn unexpected_body_is_not_read_as_a_request() {
    for request in [BODY_ATTACK, UNKNOWN_METHOD_ATTACK] {
        let outcome = attack("http.server", request, "");
        assert!(outcome.is_clean(), "{request}: {outcome:?}");
    }
}

#[test]
fn unexpected_body_is_read_as_a_request_if_the_pool_reuses_its_connection() {
    for request in [BODY_ATTACK, UNKNOWN_METHOD_ATTACK] {
        let settings = "reuse = { after-unexpected-body = true }";
        succeeds(|| !attack("http.server", request, settings).is_clean());
    }
}

#[test]
fn unread_body_of_a_post_is_not_read_as_a_request_if_the_pool_closes_its_connection() {
    let outcome = attack("http.server", POST_ATTACK, "reuse = { after-body = false }");
    assert!(outcome.is_clean(), "{outcome:?}");
    succeeds(|| !attack("http.server", POST_ATTACK, "").is_clean());
}

/// The attack succeeds: the other tests would see it. It does only if a victim's request reaches the connection before the
/// response that tells the proxy of it, so that it is tried again.
fn succeeds(mut attack: impl FnMut() -> bool) {
    assert!((0..12).any(|_| attack()), "the attack never succeeds");
}

/// The result of one attack.
#[derive(Debug)]
struct Outcome {
    /// Responses to victims that belong to another request.
    wrong: usize,
    /// The server saw the smuggled request, which no client sent as a request.
    evil_seen: bool,
}

impl Outcome {
    fn is_clean(&self) -> bool {
        self.wrong == 0 && !self.evil_seen
    }
}

/// Runs attackers and victims against `server` behind a pool with the additional `settings`.
fn attack(server: &str, request: &str, settings: &str) -> Outcome {
    let method = request.split(' ').next().unwrap_or_default();
    let folder = Folder::new(&format!("careless-{server}-{method}-{}", settings.len()));
    let origin = Script::careless(&folder, server);
    let gate = Gate::start(
        &folder,
        &format!(
            "[server]\nworkers = 1\n[[listener]]\nbind = \"127.0.0.1:0\"\n[[route]]\nproxy = \"app\"\n\
             [pool.app]\nservers = [\"{}\"]\n{settings}\n",
            origin.address
        ),
    );
    let address = gate.address();
    let wrong = std::thread::scope(|scope| {
        for _ in 0..ATTACKERS {
            scope.spawn(move || {
                let mut client = Client::new(address);
                for _ in 0..ROUNDS {
                    // The response to the attacker does not matter.
                    let _ = client.ask(request);
                }
            });
        }
        let victims: Vec<_> = (0..VICTIMS)
            .map(|victim| scope.spawn(move || count_wrong_answers(address, victim)))
            .collect();
        victims.into_iter().map(|victim| victim.join().expect("a victim's count")).sum()
    });
    let seen =
        Client::new(address).ask("GET /seen HTTP/1.1\r\nHost: a\r\n\r\n").unwrap_or_default();
    Outcome { wrong, evil_seen: seen.contains("/evil") }
}

fn count_wrong_answers(address: SocketAddr, victim: usize) -> usize {
    let mut client = Client::new(address);
    let wrong = (0..ROUNDS).filter(|round| {
        let path = format!("/victim-{victim}-{round}");
        let answer = client.ask(&format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
        answer.as_deref() != Some(&format!("GET {path}"))
    });
    wrong.count()
}

/// A client with one connection, which it opens again after each failure.
struct Client {
    address: SocketAddr,
    connection: Option<TcpStream>,
}

impl Client {
    fn new(address: SocketAddr) -> Self {
        Self { address, connection: None }
    }

    /// Sends `request` and returns the body of the response; `None` unless it is a complete 200.
    fn ask(&mut self, request: &str) -> Option<String> {
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => {
                let connection = TcpStream::connect(self.address).ok()?;
                connection.set_read_timeout(Some(PATIENCE)).ok()?;
                connection
            }
        };
        connection.write_all(request.as_bytes()).ok()?;
        let mut received = Vec::new();
        let mut buffer = [0; 4096];
        loop {
            if received.starts_with(b"HTTP/1.1 100")
                && let Some(end) = head_end(&received)
            {
                received.drain(..end);
            }
            if let Some((body, length)) = split_answer(&received)
                && body.len() >= length
            {
                let is_good = received.starts_with(b"HTTP/1.1 200") && body.len() == length;
                let text = String::from_utf8_lossy(body).into_owned();
                self.connection = is_good.then_some(connection);
                return is_good.then_some(text);
            }
            match connection.read(&mut buffer) {
                Ok(count) if count > 0 => received.extend_from_slice(&buffer[..count]),
                Ok(_) | Err(_) => return None,
            }
        }
    }
}

/// The body so far and its whole length, once the head is complete.
fn split_answer(received: &[u8]) -> Option<(&[u8], usize)> {
    let end = head_end(received)?;
    let head = String::from_utf8_lossy(&received[..end]).to_ascii_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "))?;
    Some((&received[end..], length.parse().ok()?))
}

/// The length of the head with its empty line, once it is complete.
fn head_end(received: &[u8]) -> Option<usize> {
    Some(received.windows(4).position(|window| window == b"\r\n\r\n")? + 4)
}
