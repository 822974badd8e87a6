//! Clients of push hubs whose tokens are signed by public keys: how much of a turn they take, and whose turn it is.
//! In: clients with many tokens that are not valid, and some with valid ones. Out: the first broken promise.

use tidegate_base::Span;

use crate::push::{Client, Process};
use crate::push_clients::Stream;
use crate::push_url_tokens::MINUTE;

const SETTINGS: &str = "anonymous = true\ntoken-keys = \"keys.json\"\n";
/// Tokens in both halves of a turn: for events, and for commands that waited.
const TOKENS_PER_TURN_MAX: u64 = 2 * 256;
/// {"sub":"7"}, signed by the key of the tests.
const CONNECT: &str = "eyJhbGciOiJFZERTQSIsImtpZCI6IjEifQ.eyJzdWIiOiI3In0.ZzHnlI8y_46JU_gBQCEj61SF-coO2UabGIICLE_0xCaxV2BM\
    0NgSrTVN3g3DaC_mSNcHmmrU-gZU85U0ad2WAg";
/// {"sub":"7","channel":"a"}
const SUBSCRIBE: &str = "eyJhbGciOiJFZERTQSIsImtpZCI6IjEifQ.eyJzdWIiOiI3IiwiY2hhbm5lbCI6ImEifQ.hD28sFFl0PbAvMpmFGVCkOFkvb0J\
    0lemow0HykWpr6A6Wdsj7ny4E_1jlcR-DdIjkDxXYSek_6Hf1kOHvg5WCA";

/// Commands of a client with a valid token.
fn valid() -> String {
    format!(
        "{{\"id\":1,\"connect\":{{\"token\":\"{CONNECT}\"}}}}\n\
         {{\"id\":2,\"subscribe\":{{\"channel\":\"a\",\"token\":\"{SUBSCRIBE}\"}}}}\n\
         {{\"id\":3,\"unsubscribe\":{{\"channel\":\"a\"}}}}"
    )
}

/// Commands with this many tokens whose signature is wrong.
fn invalid(count: usize) -> String {
    let wrong = SUBSCRIBE.replace("hD28", "hD29");
    let commands = (2..2 + count).map(|id| {
        format!("\n{{\"id\":{id},\"subscribe\":{{\"channel\":\"a\",\"token\":\"{wrong}\"}}}}")
    });
    "{\"id\":1,\"connect\":{}}".to_owned() + &commands.collect::<String>()
}

#[test]
fn tokens_of_public_keys_open_connections_and_channels() {
    let mut process = Process::new(1, 21, 64, SETTINGS);
    let mut stream = Stream::begin(&mut process, "http_stream", &valid());
    let reply = stream.wait_for(&mut process, "{\"id\":3,\"unsubscribe\":{}}");
    assert!(reply.contains("\"connect\":{"), "{reply}");
    assert!(reply.contains("{\"id\":2,\"subscribe\":{}}"), "{reply}");
    let mut socket = Client::raw(&process, "/push/connection/websocket");
    process.turns(20);
    socket.read();
    socket.send(&valid());
    process.turns(20);
    socket.read();
    let replies = socket.received.concat();
    assert_eq!(replies.matches("\"id\"").count(), 3, "{replies}");
    assert!(!replies.contains("\"error\""), "{replies}");
    // A token of another kind is refused.
    let mut wrong = Stream::begin(
        &mut process,
        "http_stream",
        &format!("{{\"id\":1,\"connect\":{{\"token\":\"{SUBSCRIBE}\"}}}}"),
    );
    wrong.wait_for(&mut process, "\"code\":3500,\"reason\":\"invalid token\"");
    drop((stream, wrong));
    process.finish(vec![socket]);
}

#[test]
fn client_that_reads_slowly_is_disconnected_when_its_token_has_expired() {
    let settings = "token-secret = \"0123456789abcdef\"\nsubscribe = \"anyone\"\n";
    let mut process = Process::new(1, 352_240_000, 64, settings);
    let begin = format!(
        "{{\"id\":1,\"connect\":{{\"token\":\"{MINUTE}\"}}}}\n{{\"id\":2,\"subscribe\":{{\"channel\":\"a\"}}}}"
    );
    let mut stream = Stream::begin(&mut process, "http_stream", &begin);
    stream.wait_for(&mut process, "\"subscribe\":{}}");
    let mut socket = Client::raw(&process, "/push/connection/websocket");
    process.turns(20);
    socket.read();
    socket.send(&begin);
    process.turns(20);
    socket.read();
    stream.peer.set_window_bytes(2000);
    socket.peer.set_window_bytes(2000);
    let message = format!("{{\"channel\":\"a\",\"data\":\"{}\"}}", "x".repeat(20_000));
    let mut seconds = 0;
    while process.sum("push_clients_now") > 0 {
        assert!(seconds < 180, "{} clients", process.sum("push_clients_now"));
        process.api("publish", &message);
        // Each of them reads within its time, and never everything.
        for _ in 0..4 {
            process.pass(Span::from_secs(1));
            _ = stream.peer.receive_some(8000);
            socket.read_some(8000);
        }
        seconds += 4;
    }
    assert!(seconds >= 60, "{seconds}");
    drop(stream);
    process.finish(vec![socket]);
}

#[test]
fn flood_of_tokens_does_not_hold_up_other_clients() {
    const TOKENS: usize = 250;
    const SOCKETS: usize = 16;
    let mut process = Process::new(1, 22, 64, SETTINGS);
    let mut sockets: Vec<_> =
        (0..SOCKETS).map(|_| Client::raw(&process, "/push/connection/websocket")).collect();
    let mut victim = Client::raw(&process, "/push/connection/websocket");
    process.turns(50);
    victim.read();
    let commands = invalid(TOKENS);
    let mut stream = Stream::begin(&mut process, "http_stream", &commands);
    for socket in &mut sockets {
        socket.read();
        socket.send(&commands);
    }
    process.turns(4);
    assert!(process.sum("tokens_put_off") > 0);
    victim.send(&valid());
    let mut turns = 0;
    while victim.received.concat().matches("\"id\"").count() < 3 {
        let before = process.sum("tokens_verified");
        process.turn();
        assert!(process.sum("tokens_verified") - before <= TOKENS_PER_TURN_MAX);
        victim.read();
        turns += 1;
        assert!(turns < 8, "{:?} after {turns} turns", victim.received);
    }
    let verified = process.sum("tokens_verified") as usize;
    assert!(verified < TOKENS * SOCKETS, "the flood continues: {verified} after {turns} turns");
    // Every command is answered once, in order.
    for _ in 0..200 {
        process.turn();
        sockets.iter_mut().for_each(Client::read);
    }
    let mut replies: Vec<String> = sockets.iter().map(|socket| socket.received.concat()).collect();
    replies.push(stream.rest(&mut process).to_owned());
    for text in replies {
        let ids: Vec<usize> = text
            .split("{\"id\":")
            .skip(1)
            .filter_map(|rest| rest.split_once(",\"error\":{\"code\":103,")?.0.parse().ok())
            .collect();
        assert_eq!(ids, (2..2 + TOKENS).collect::<Vec<_>>(), "{}", text.len());
    }
    sockets.push(victim);
    drop(stream);
    process.finish(sockets);
}

/// Signed with `KEY`; {"sub":"7"} and, by another secret, the same.
const OF_SECRET: &str =
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiI3In0.sAvGxjPYEO8DEqFOlo2f_AAlkKcTgQYD_8nID2TYC-A";
const OF_OTHER_SECRET: &str =
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiI3In0.oyLIILrPQtCq8ZYZzeb2X-m_-8K-oPd981xr9Iq_PO4";

fn connect_with(token: &str) -> String {
    format!("{{\"id\":1,\"connect\":{{\"token\":\"{token}\"}}}}")
}

/// How a connection with this token is answered.
fn is_let_in(process: &mut Process, token: &str) -> bool {
    let mut stream = Stream::begin(process, "http_stream", &connect_with(token));
    let text = stream.rest(process);
    assert!(text.contains("\"connect\":{") != text.contains("\"invalid token\""), "{text}");
    text.contains("\"connect\":{")
}

#[test]
fn keys_of_tokens_change_with_a_reload_and_connections_stay() {
    let of = |secret: &str| format!("token-secret = \"{secret}\"\nsubscribe = \"users\"\n");
    let mut process = Process::new(2, 23, 64, &of("0123456789abcdef"));
    let mut stream = Stream::begin(&mut process, "http_stream", &connect_with(OF_SECRET));
    stream.wait_for(&mut process, "\"connect\":{");
    assert!(is_let_in(&mut process, OF_SECRET) && !is_let_in(&mut process, OF_OTHER_SECRET));
    process.reload(&of("fedcba9876543210"), "");
    assert!(!is_let_in(&mut process, OF_SECRET) && is_let_in(&mut process, OF_OTHER_SECRET));
    let set = |number: char| {
        let key = "iojj3XQJ8ZX9UtstPLpdcspnCb8dlBIb83SIAbQPb1w";
        format!(
            "{{\"keys\":[{{\"kty\":\"OKP\",\"crv\":\"Ed25519\",\"kid\":\"{number}\",\"x\":\"{key}\"}}]}}"
        )
    };
    let public = "token-keys = \"keys.json\"\nsubscribe = \"users\"\n";
    // The tokens name key 1.
    process.reload(public, &set('2'));
    assert!(!is_let_in(&mut process, CONNECT) && !is_let_in(&mut process, OF_OTHER_SECRET));
    process.reload(public, &set('1'));
    assert!(is_let_in(&mut process, CONNECT));
    // Other settings of a hub are those of the start.
    process.reload("anonymous = true\n", "");
    assert!(is_let_in(&mut process, CONNECT));
    assert_eq!(stream.rest(&mut process).matches("disconnect").count(), 0, "{}", stream.text);
    drop(stream);
    process.finish(Vec::new());
}
