//! Channels of WebSocket clients (`client:subscribe`, `client:publish`, `tide.publish`).
//! In: scripts and events. Out: messages, publications.

mod harness;

use harness::{App, TIMED};
use tidegate_lua::{CallbackEnd, ClientId};

/// Runs each message of a client as a function of the client.
const RUNS: &str = "return {
    on_message = function(client, message)
        local one, other = assert(load('local client = ... return ' .. message))(client)
        if one ~= true then client:send(tostring(one) .. ' ' .. tostring(other)) end
    end,
    on_handover = function() end,
}";

fn load() -> App {
    App::load(RUNS, &TIMED)
}

fn open(app: &mut App, tag: u64) -> ClientId {
    let request = app.open("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    let client = app.vm.open_client(tag).expect("there is room");
    assert_eq!(app.vm.opened(client, request), CallbackEnd::Done);
    client
}

/// Runs an expression for a client, and delivers the publications. Returns what the clients got.
fn run(app: &mut App, client: ClientId, expression: &str) -> Vec<String> {
    assert_eq!(
        app.vm.message(client, expression.as_bytes(), true),
        CallbackEnd::Done,
        "{expression}"
    );
    deliver(app)
}

fn deliver(app: &mut App) -> Vec<String> {
    app.effects();
    for (channel, data) in core::mem::take(&mut app.broadcasts) {
        let mut end = app.vm.broadcast(&channel, &data);
        while end == CallbackEnd::Waiting {
            app.effects();
            end = app.advance(10).pop().expect("it continues").verdict;
        }
        assert_eq!(end, CallbackEnd::Done);
        app.effects();
    }
    core::mem::take(&mut app.sent)
}

#[test]
fn subscribers_get_what_others_publish() {
    let mut app = load();
    let clients = [1, 2, 3].map(|tag| open(&mut app, tag));
    assert_eq!(run(&mut app, clients[0], "client:publish('a', 'lost')"), [""; 0]);
    for client in &clients[..2] {
        assert_eq!(run(&mut app, *client, "client:subscribe('a')"), [""; 0]);
    }
    assert_eq!(run(&mut app, clients[0], "client:publish('a', 'hi')"), ["2 text hi"]);
    assert_eq!(
        run(&mut app, clients[2], "client:publish('a', 5, 'binary')"),
        ["1 binary 5", "2 binary 5"]
    );
    assert_eq!(run(&mut app, clients[0], "tide.publish('a', 'all')"), ["1 text all", "2 text all"]);
    assert_eq!(run(&mut app, clients[0], "tide.publish('b', 'other')"), [""; 0]);
    assert_eq!(run(&mut app, clients[0], "client:unsubscribe('a')"), [""; 0]);
    assert_eq!(run(&mut app, clients[0], "client:unsubscribe('a')"), ["1 text nil not subscribed"]);
    assert_eq!(run(&mut app, clients[0], "tide.publish('a', 'all')"), ["2 text all"]);
}

#[test]
fn client_that_has_left_gets_nothing_and_neither_does_its_successor() {
    let mut app = load();
    let (gone, stays) = (open(&mut app, 1), open(&mut app, 2));
    for client in [gone, stays] {
        run(&mut app, client, "client:subscribe('a')");
    }
    app.vm.closed(gone, 1006, "");
    let next = open(&mut app, 3);
    assert_eq!(next.index, gone.index, "the place is used again");
    assert_eq!(run(&mut app, stays, "tide.publish('a', 'x')"), ["2 text x"]);
    // Without on_close.
    app.vm.abandon_client(2);
    assert_eq!(run(&mut app, next, "tide.publish('a', 'x')"), [""; 0]);
    assert_eq!(run(&mut app, next, "client:subscribe('a')"), [""; 0]);
    assert_eq!(run(&mut app, next, "tide.publish('a', 'x')"), ["3 text x"]);
}

#[test]
fn publication_that_exceeds_a_callback_continues_after_a_pause() {
    let mut app = load();
    let clients: Vec<ClientId> = (0..2500).map(|tag| open(&mut app, tag)).collect();
    for client in &clients {
        assert_eq!(app.vm.message(*client, b"client:subscribe('a')", true), CallbackEnd::Done);
    }
    app.effects();
    let sent = run(&mut app, clients[0], "tide.publish('a', ('x'):rep(10000))");
    assert_eq!(sent.len(), 2500, "25 MB, of which one callback may send 16 MiB");
}

#[test]
fn channels_of_another_application_are_others() {
    let mut app = load();
    let client = open(&mut app, 1);
    run(&mut app, client, "client:subscribe('a')");
    assert_eq!(app.vm.broadcast("t:other:a", b"t\0x"), CallbackEnd::Done);
    assert_eq!(app.vm.broadcast("7", b"x"), CallbackEnd::Done);
    app.effects();
    assert_eq!(app.sent, [""; 0]);
}

#[test]
fn subscriptions_are_bounded() {
    let mut app = load();
    let client = open(&mut app, 1);
    let many =
        "(function() for n = 1, 1000 do assert(client:subscribe('c' .. n)) end return true end)()";
    assert_eq!(run(&mut app, client, many), [""; 0]);
    assert_eq!(run(&mut app, client, "client:subscribe('c7')"), [""; 0], "it is one of them");
    assert_eq!(
        run(&mut app, client, "client:subscribe('x')"),
        ["1 text nil the client has too many subscriptions"]
    );
}

#[test]
fn wrong_use_is_an_error() {
    let mut app = load();
    for (call, error) in [
        ("client:subscribe(5)", "bad argument #1 to 'subscribe' (string expected, got number)"),
        ("client:subscribe('')", "a channel has 1 to 255 bytes"),
        ("client:subscribe(('x'):rep(256))", "a channel has 1 to 255 bytes"),
        ("client:publish('a')", "bad argument #2 to 'publish' (string expected, got no value)"),
        ("client:publish('a', 'x', 'json')", "bad argument #3 to 'publish'"),
        ("tide.publish('a', {})", "bad argument #2 to 'tide.publish' (string expected, got table)"),
    ] {
        let client = open(&mut app, 1);
        let CallbackEnd::Failed(failure) = app.vm.message(client, call.as_bytes(), true) else {
            panic!("{call}")
        };
        assert!(failure.message.contains(error), "{call}: {failure}");
        app.vm.closed(client, 1006, "");
    }
    let client = open(&mut app, 1);
    assert!(run(&mut app, client, "client:publish('a', '\\255')")[0].contains("must be UTF-8"));
    assert!(run(&mut app, client, "client:publish('\\255', 'a')")[0].contains("must be UTF-8"));
    assert!(
        run(&mut app, client, "(function() client:close() return client:subscribe('a') end)()")
            .len()
            == 1
    );
}

#[test]
fn subscriptions_are_handed_over_with_the_state() {
    for (state, expected) in [("", "nil"), ("client:state().name = 'ann'", "ann")] {
        let (mut before, mut after) = (load(), load());
        let client = open(&mut before, 1);
        let set = format!(
            "(function() {state} client:subscribe('a') return client:subscribe('b') end)()"
        );
        assert_eq!(run(&mut before, client, &set), [""; 0]);
        after.vm.reserve_clients_of(&before.vm);
        let mut handed = None;
        assert_eq!(before.vm.release_client(client, &mut handed), CallbackEnd::Done);
        let handed = handed.expect("the state");
        assert_eq!(after.vm.adopt_client(client, 1, &handed), Some(CallbackEnd::Done));
        assert_eq!(run(&mut after, client, "tide.publish('b', 'x')"), ["1 text x"]);
        assert_eq!(
            run(&mut after, client, "client:state().name"),
            [format!("1 text {expected} nil")]
        );
        // The earlier VM does not send to it.
        assert_eq!(before.vm.broadcast("t:test:a", b"t\0x"), CallbackEnd::Done);
        assert_eq!(deliver(&mut before), [""; 0]);
    }
}
