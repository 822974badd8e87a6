//! Sockets of scripts for datagrams: the effects of scripts, and the datagrams that they get.
//! In: scripts, datagrams, refusals. Out: effects, responses of scripts.

mod harness;

use harness::{App, REQUESTS_MAX, TIMED};
use tidegate_lua::{CallbackEnd, DatagramSocketId, ScriptRequestId};

/// The number of the VM.
const LIFE: u32 = 2;
const TAG: u64 = 1 << 32 | 5;

/// An application that runs `body` in `on_request`, with a socket `s`.
fn app(body: &str) -> App {
    let text = format!(
        "return {{ on_request = function(request, response)
            local s, err = tide.udp.connect('127.0.0.1', 9000) {body} end }}"
    );
    App::load(&text, &TIMED)
}

fn begin(app: &mut App) -> ScriptRequestId {
    let id = app.open("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(app.vm.request(id), CallbackEnd::Waiting);
    app.effects();
    id
}

/// The socket that the application has requested last.
fn requested(app: &App) -> DatagramSocketId {
    let (socket, what) = app.datagrams.last().cloned().expect("an effect");
    assert_eq!(what, "open 127.0.0.1:9000");
    socket.expect("a socket")
}

/// Opens the socket that the application has requested last. Returns its id and the response, if there is one.
fn open(app: &mut App) -> (DatagramSocketId, Option<(u16, String)>) {
    let socket = requested(app);
    assert!(app.vm.datagrams_opened(LIFE, socket, TAG));
    app.advance(0);
    (socket, app.effects())
}

/// Runs `body` with an open socket. `act` simulates the worker. Returns the response.
fn talk(body: &str, act: impl FnOnce(&mut App, DatagramSocketId)) -> String {
    let mut app = app(body);
    let id = begin(&mut app);
    let (socket, mut response) = open(&mut app);
    act(&mut app, socket);
    app.advance(0);
    response = response.or(app.effects());
    app.vm.close_request(id);
    assert_eq!(app.vm.datagram_sockets(), 0, "the socket ends with its handler");
    response.expect("a response").1
}

#[test]
fn each_datagram_is_received_as_a_whole() {
    let body = "tide.sleep(0.1)
        local parts = {}
        for at = 1, 4 do parts[at] = tostring(s:receive(0)) end
        response:finish(table.concat(parts, ','))";
    let response = talk(body, |app, socket| {
        for data in ["one", "", "three"] {
            assert!(app.vm.datagram_received(LIFE, socket, data.as_bytes()));
        }
        assert!(app.vm.datagram_received(LIFE + 1, socket, b"of another VM"));
        app.advance(100);
    });
    assert_eq!(response, "one,,three,nil");
}

#[test]
fn receive_waits_for_a_datagram_a_refusal_the_end_or_the_timeout() {
    let body =
        "response:finish(tostring(s:receive(0.5)) .. ' ' .. tostring(select(2, s:receive(0))))";
    let mut results = Vec::new();
    results.push(talk(body, |app, socket| {
        app.vm.datagram_received(LIFE, socket, b"data");
    }));
    results.push(talk(body, |app, socket| app.vm.datagram_failed(LIFE, socket, "refused")));
    results.push(talk(body, |app, socket| app.vm.datagrams_ended(LIFE, socket, "stopped")));
    results.push(talk(body, |app, _| {
        app.advance(499);
        assert_eq!(app.effects(), None);
        app.advance(1);
    }));
    assert_eq!(results, ["data timeout", "nil timeout", "nil stopped", "nil timeout"]);
    let error = "response:finish(select(2, s:receive()))";
    for why in ["connection refused", "the address is unreachable"] {
        assert_eq!(talk(error, |app, socket| app.vm.datagram_failed(LIFE, socket, why)), why);
    }
}

#[test]
fn send_returns_the_result_of_the_kernel() {
    let body =
        "local ok, err = s:send('data') response:finish(tostring(ok) .. ' ' .. tostring(err))";
    let result_for = |reply: Result<&'static [u8], &'static str>| {
        talk(body, |app, _| {
            assert_eq!(app.datagrams.pop().map(|(_, what)| what), Some(format!("{TAG} send data")));
            let operation = app.sends.pop().expect("a send");
            app.vm.complete(LIFE, operation, reply);
        })
    };
    assert_eq!(result_for(Ok(b"")), "true nil");
    assert_eq!(result_for(Err("the send buffer is full")), "nil the send buffer is full");
    let long = "response:finish(select(2, s:send(('x'):rep(65508))))";
    assert_eq!(talk(long, |_, _| {}), "a datagram has up to 65507 bytes");
}

#[test]
fn socket_that_cannot_be_opened_is_an_error() {
    let mut app = app("response:finish(tostring(s) .. ' ' .. err)");
    let id = begin(&mut app);
    let socket = requested(&app);
    app.vm.datagrams_ended(LIFE, socket, "unreachable");
    app.advance(0);
    assert_eq!(app.effects().expect("a response").1, "nil unreachable");
    assert_eq!((app.vm.datagram_sockets(), app.vm.take_closed_datagrams()), (0, None));
    app.vm.close_request(id);
}

#[test]
fn socket_of_a_cancelled_handler_is_not_opened_or_closed() {
    let mut app = app("s:receive()");
    let id = begin(&mut app);
    let socket = requested(&app);
    app.vm.close_request(id);
    assert!(!app.vm.datagrams_opened(LIFE, socket, TAG));
    let id = begin(&mut app);
    open(&mut app);
    app.vm.close_request(id);
    assert_eq!((app.vm.take_closed_datagrams(), app.vm.take_closed_datagrams()), (Some(TAG), None));
    assert_eq!(app.vm.open_datagram_sockets(), 0);
}

#[test]
fn sockets_and_waiting_datagrams_are_bounded() {
    let mut app = app("tide.sleep(1) response:finish(tostring(s:receive(0)))");
    let requests: Vec<_> = (0..REQUESTS_MAX)
        .map(|_| {
            let id = begin(&mut app);
            open(&mut app);
            id
        })
        .collect();
    let socket = app.datagrams.iter().rev().find_map(|(socket, _)| *socket).expect("a socket");
    let kept = (0..200).filter(|_| app.vm.datagram_received(LIFE, socket, b"x")).count();
    assert_eq!(kept, 64);
    let text = "return { on_request = function(request, response)
        response:finish(select(2, tide.udp.connect('127.0.0.1', 9000))) end }";
    let mut full = App::load(
        &text.replace("request, response)", "request, response)
            for _ = 1, 3 do tide.spawn(function() tide.udp.connect('127.0.0.1', 9000) end) end tide.sleep(1)"),
        &TIMED,
    );
    let id = full.open("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(full.vm.request(id), CallbackEnd::Waiting);
    full.advance(1000);
    let response = full.effects().expect("a response").1;
    assert_eq!(response, "too many sockets and requests of the application are in progress");
    // A few large datagrams fill a socket, too.
    let socket = app.datagrams.iter().find_map(|(socket, _)| *socket).expect("a socket");
    let large = vec![0; 60_000];
    assert_eq!((0..9).filter(|_| app.vm.datagram_received(LIFE, socket, &large)).count(), 2);
    for id in requests {
        app.vm.close_request(id);
    }
}

#[test]
fn wrong_arguments_are_errors() {
    for (call, expected) in [
        ("tide.udp.connect()", "bad argument #1 to 'connect' (string expected, got no value)"),
        (
            "tide.udp.connect('::1', 0)",
            "bad argument #2 to 'connect' (port number expected, got number)",
        ),
        (
            "tide.udp.connect('::1', 1.5)",
            "bad argument #2 to 'connect' (port number expected, got number)",
        ),
        (
            "tide.udp.connect('::1', 0/0)",
            "bad argument #2 to 'connect' (port number expected, got number)",
        ),
    ] {
        let text = format!(
            "return {{ on_request = function(request, response)
                response:finish(select(2, pcall(function() {call} end))) end }}"
        );
        let response = App::load(&text, &TIMED).get("/").1.expect("a response").1;
        assert!(response.ends_with(expected), "{response}");
    }
}
