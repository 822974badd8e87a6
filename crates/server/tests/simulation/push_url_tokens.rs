//! Clients that subscribe by URL with a token, in the query or in a cookie.
//! In: valid, foreign and expired tokens. Out: what each test's name says.
//! Invariant: a client gets the messages of a channel only if its token permits it.

use tidegate_base::Span;

use crate::push::{Client, Process};

const SETTINGS: &str = "token-secret = \"0123456789abcdef\"\ntoken-cookie = \"pass\"\n\
    [push.p.namespace.u]\nsubscribe = \"users\"\n";
/// {"sub":"7"}
const USER: &str =
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiI3In0.sAvGxjPYEO8DEqFOlo2f_AAlkKcTgQYD_8nID2TYC-A";
/// {"channels":["a"]}
const CHANNELS: &str =
    "eyJhbGciOiJIUzI1NiJ9.eyJjaGFubmVscyI6WyJhIl19.hsiqT3rRSvmwvWWin962Z3OPapP0w_bUeMeM10YqjAg";
/// {"channel":"a"}
const CHANNEL: &str =
    "eyJhbGciOiJIUzI1NiJ9.eyJjaGFubmVsIjoiYSJ9.jqYVGARS4pXoxf4DUsnHrf80mk9oVDKZdLZ1fzfYbok";
/// {"sub":"7","exp":1000}
const EXPIRED: &str = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiI3IiwiZXhwIjoxMDAwfQ.O_uQthT3iqeG1kTj48CHVHVeCnddBsQJGlN_2HRnMXA";
/// {"sub":"7","expire_at":1000}
const ENDED: &str = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiI3IiwiZXhwaXJlX2F0IjoxMDAwfQ.2oNdMjViuavo2jiw99L9Wn92Wy9AE1ceZEsEYMyRLoI";
/// {"sub":"7","exp":1700000060}: a minute after the beginning of the simulation.
pub(crate) const MINUTE: &str = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiI3IiwiZXhwIjoxNzAwMDAwMDYwfQ.yDcT1HOeSOPYfVMZPFu8ZIK93K8zhifM6h40xjXIiTg";
/// {"sub":"7"}, signed by the public key of the tests.
const PUBLIC: &str = "eyJhbGciOiJFZERTQSIsImtpZCI6IjEifQ.eyJzdWIiOiI3In0.ZzHnlI8y_46JU_gBQCEj61SF-coO2UabGIICLE_0xCaxV2BM\
    0NgSrTVN3g3DaC_mSNcHmmrU-gZU85U0ad2WAg";

#[test]
fn token_in_the_query_or_in_a_cookie_opens_channels() {
    let mut process = Process::new(3, 31, 64, SETTINGS);
    let cookie = format!("Cookie: a=b; pass={USER}\r\n");
    let mut clients = vec![
        Client::raw(&process, &format!("/push/subscribe/u:x?token={USER}")),
        Client::raw_with(&process, "/push/subscribe/u:x", &cookie),
        Client::events(&process, &format!("/push/subscribe/u:x?since=a:1&token={USER}"), None),
        Client::raw(&process, &format!("/push/subscribe/a?token={CHANNELS}")),
        Client::events(&process, &format!("/push/subscribe/a?%74oken={CHANNEL}"), None),
    ];
    process.turns(100);
    process.api("broadcast", "{\"channels\":[\"a\",\"u:x\"],\"data\":1}");
    process.turns(50);
    for (at, client) in clients.iter_mut().enumerate() {
        client.read();
        assert_eq!(client.received, ["1"], "client {at}");
    }
    process.finish(clients);
}

#[test]
fn tokens_that_do_not_permit_the_channel_are_refused() {
    let mut process = Process::new(1, 32, 64, SETTINGS);
    for (target, status) in [
        ("u:x".to_owned(), "403"),
        (format!("u:x?token={CHANNELS}"), "403"),
        (format!("u:x?token={CHANNEL}"), "403"),
        (format!("a?token={USER}"), "403"),
        (format!("u:x?token={EXPIRED}"), "401"),
        (format!("u:x?token={ENDED}"), "401"),
        (format!("u:x?token={}", USER.replace("sAvG", "sAvH")), "401"),
        ("u:x?token=x".to_owned(), "401"),
        ("u:x?token=".to_owned(), "401"),
        (format!("no:x?token={USER}"), "404"),
        (format!("u:*?token={USER}"), "400"),
    ] {
        let request = format!("GET /push/subscribe/{target} HTTP/1.1\r\nHost: a\r\n\r\n");
        let response = process.exchange(&request);
        assert_eq!(response.split(' ').nth(1), Some(status), "{target}: {response}");
    }
    assert_eq!(process.sum("push_subscriptions"), 0);
    process.finish(Vec::new());
}

#[test]
fn connections_end_with_their_tokens() {
    let mut process = Process::new(2, 33, 64, SETTINGS);
    let path = format!("/push/subscribe/u:x?token={MINUTE}");
    let mut clients = vec![Client::raw(&process, &path), Client::events(&process, &path, None)];
    process.turns(50);
    for _ in 0..16 {
        assert_eq!(process.sum("push_subscriptions_now"), 2);
        process.pass(Span::from_secs(5));
        clients.iter_mut().for_each(Client::read);
    }
    // The clocks of the issuer and of this process may differ by half a minute.
    process.pass(Span::from_secs(11));
    process.turns(20);
    clients[0].read();
    assert_eq!(process.sum("push_subscriptions_now"), 0);
    assert_eq!(process.sum("push_aged_closes"), 2);
    assert_eq!(clients[0].closed, Some(3011));
    process.finish(clients);
}

#[test]
fn long_poll_ends_with_its_token() {
    let settings = format!("poll-timeout = \"10m\"\n{SETTINGS}");
    let mut process = Process::new(2, 35, 64, &settings);
    let request = format!("GET /push/subscribe/u:x?token={MINUTE} HTTP/1.1\r\nHost: a\r\n\r\n");
    let poll = process.dial();
    process.turns(4);
    assert_eq!(poll.send(request.as_bytes()), request.len());
    process.turns(50);
    for _ in 0..16 {
        assert_eq!(process.sum("push_subscriptions_now"), 1);
        process.pass(Span::from_secs(5));
    }
    assert_eq!(poll.receive(), b"", "the token is valid, with regard to clocks that differ");
    process.pass(Span::from_secs(11));
    process.turns(20);
    assert_eq!(process.sum("push_subscriptions_now"), 0);
    let response = String::from_utf8_lossy(&poll.receive()).into_owned();
    assert!(response.starts_with("HTTP/1.1 200 "), "{response}");
    assert!(response.ends_with("{\"publications\":[]}"), "{response}");
    let next = process.exchange(&request);
    assert!(next.starts_with("HTTP/1.1 401 "), "{next}");
    poll.reset();
    process.finish(Vec::new());
}

#[test]
fn slow_tokens_of_many_clients_wait_for_their_turn() {
    const CLIENTS: usize = 400;
    let settings = SETTINGS.replace("token-secret = \"0123456789abcdef\"", "token-keys = \"keys\"");
    let mut process = Process::new(1, 34, 64, &settings);
    let peers: Vec<_> = (0..CLIENTS).map(|_| process.dial()).collect();
    process.turns(50);
    for (at, peer) in peers.iter().enumerate() {
        let kind = match at % 2 {
            0 => "Accept: text/event-stream\r\n",
            _ => {
                "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                 Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
            }
        };
        let target = format!("/push/subscribe/u:x?token={PUBLIC}");
        peer.send(format!("GET {target} HTTP/1.1\r\nHost: a\r\n{kind}\r\n").as_bytes());
    }
    process.turns(100);
    assert!(process.sum("tokens_put_off") > 0, "the share of a turn is used up");
    assert_eq!(process.sum("tokens_verified"), CLIENTS as u64);
    assert_eq!(process.sum("push_subscriptions_now"), CLIENTS as u64);
    for (at, peer) in peers.iter().enumerate() {
        let status = if at % 2 == 0 { "HTTP/1.1 200 " } else { "HTTP/1.1 101 " };
        let response = String::from_utf8_lossy(&peer.receive()).into_owned();
        assert!(response.starts_with(status), "client {at}: {response}");
        peer.reset();
    }
    process.finish(Vec::new());
}
