//! Sockets of scripts: the effects of scripts, and what they read from the bytes that arrive.
//! In: scripts, bytes, ends of connections. Out: effects, responses of scripts.

mod harness;

use harness::{App, REQUESTS_MAX, TIMED};
use tidegate_base::Moment;
use tidegate_lua::{CallbackEnd, ScriptRequestId, SocketId};

/// The number of the VM.
const LIFE: u32 = 2;

/// An application that runs `body` in `on_request`, with a socket `s`.
fn app(body: &str) -> App {
    let text = format!(
        "return {{ on_request = function(request, response) local s = tide.tcp() {body} end }}"
    );
    App::load(&text, &TIMED)
}

fn begin(app: &mut App) -> ScriptRequestId {
    let id = app.open("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(app.vm.request(id), CallbackEnd::Waiting);
    app.effects();
    id
}

/// Connects the socket that the application has requested last.
fn connect(app: &mut App, tag: u64) -> SocketId {
    let (socket, what) = app.sockets.last().cloned().expect("an effect");
    assert_eq!(what, "connect 0");
    assert!(app.vm.socket_begun(socket, tag));
    app.vm.socket_connected(LIFE, socket, false);
    app.advance(0);
    socket
}

fn take_effects(app: &mut App) -> Vec<String> {
    core::mem::take(&mut app.sockets).into_iter().map(|(_, what)| what).collect()
}

/// Runs `body` with a connected socket, delivers the pieces of input one after the other, and then the end, if there is one.
/// Returns the response.
fn read(body: &str, pieces: &[&str], end: Option<&str>) -> String {
    let body = format!("assert(s:connect('api')) {body}");
    let mut app = app(&body);
    let id = begin(&mut app);
    let socket = connect(&mut app, 5);
    let mut response = app.effects();
    for piece in pieces {
        assert!(app.vm.socket_received(LIFE, socket, piece.as_bytes()));
        app.advance(0);
        response = response.or(app.effects());
    }
    if let Some(end) = end {
        app.vm.socket_ended(LIFE, socket, end);
        app.advance(0);
        response = response.or(app.effects());
    }
    app.advance(61_000);
    let text = response.or(app.effects()).expect("it answers").1;
    app.vm.close_request(id);
    assert_eq!((app.vm.sockets(), app.vm.waiting()), (0, 0), "its handler has ended");
    text
}

#[test]
fn line_number_of_bytes_and_all_input_are_read() {
    let all =
        "local parts = {} for at = 1, 3 do parts[at] = s:receive(at == 2 and 4 or nil) or '-' end
        response:finish(table.concat(parts, '|'))";
    assert_eq!(read(all, &["+OK\r\nabcdnext\nrest"], None), "+OK|abcd|next");
    assert_eq!(read(all, &["+", "OK\r", "\na", "bc", "dne", "xt\r\n"], None), "+OK|abcd|next");
    let rest = "s:receive() response:finish(s:receive('*a'))";
    assert_eq!(read(rest, &["a\nb", "c\n"], Some("closed")), "bc\n");
    assert_eq!(read("response:finish(s:receive(0) .. s:receive('*l'))", &["\n"], None), "");
}

#[test]
fn incomplete_portions_are_returned_with_the_error() {
    let show = "local a, err, part = %s response:finish(tostring(a) .. ' ' .. tostring(err) .. ' ' .. tostring(part))";
    for (call, pieces, end, expected) in [
        ("s:receive()", &["ab", "c"][..], None, "nil timeout abc"),
        ("s:receive()", &["ab", "c"], Some("closed"), "nil closed abc"),
        ("s:receive(5)", &["abc"], Some("closed"), "nil closed abc"),
        (
            "s:receive('*a')",
            &["abc"],
            Some("the server reset the tunnel"),
            "nil the server reset the tunnel abc",
        ),
        ("s:receiveuntil('--')()", &["abc-"], Some("closed"), "nil closed abc-"),
        ("s:receiveany(2)", &["abc"], None, "ab nil nil"),
    ] {
        assert_eq!(read(&show.replace("%s", call), pieces, end), expected, "{call} {pieces:?}");
    }
}

#[test]
fn delimiter_that_arrives_in_pieces_ends_a_portion() {
    let body =
        "local next, with = s:receiveuntil('--END'), s:receiveuntil('--END', { inclusive = true })
        response:finish(next() .. '|' .. with() .. '|' .. s:receive(1))";
    assert_eq!(read(body, &["a-b--ENDc--", "E", "NDxyz"], None), "a-b|c--END|x");
    assert_eq!(read(body, &["--", "END--", "-", "-ENDx"], None), "|----END|x");
}

#[test]
fn scripts_send_and_close() {
    let mut app =
        app("assert(s:connect('api')) assert(s:send{ 'GET ', 1, { '\\r\\n', 'x' } } == 8)
        assert(s:close()) assert(select(2, s:send('y')) == 'closed') response:finish('done')");
    let id = begin(&mut app);
    assert_eq!(app.vm.sockets(), 1);
    connect(&mut app, 7);
    assert_eq!(app.effects().expect("it answers").1, "done");
    assert_eq!(take_effects(&mut app), ["connect 0", "7 send GET 1\r\nx"]);
    assert_eq!((app.vm.take_closed_socket(), app.vm.take_closed_socket()), (Some(7), None));
    app.vm.close_request(id);
}

#[test]
fn second_connect_of_a_socket_closes_the_connection_of_the_first() {
    let mut app =
        app("for _ = 1, 2 do tide.spawn(function() assert(s:connect('api')) tide.sleep(9) end) end
        tide.sleep(5) s:send('x') response:finish('done')");
    let id = begin(&mut app);
    app.advance(0);
    app.effects();
    let opened: Vec<_> = app.sockets.drain(..).map(|(socket, _)| socket).collect();
    assert_eq!(opened.len(), 2, "both have begun before one of them was connected");
    for (socket, tag) in opened.into_iter().zip([7, 8]) {
        assert!(app.vm.socket_begun(socket, tag));
        app.vm.socket_connected(LIFE, socket, false);
        app.advance(0);
    }
    assert_eq!((app.vm.take_closed_socket(), app.vm.take_closed_socket()), (Some(7), None));
    app.advance(5000);
    assert_eq!(app.effects().expect("it answers").1, "done");
    assert_eq!(take_effects(&mut app), ["8 send x"]);
    app.vm.close_request(id);
}

#[test]
fn send_waits_while_the_server_accepts_nothing() {
    let mut app = app("assert(s:connect('api')) assert(s:send('a')) tide.sleep(1)
        local ok, err = s:send('b') response:finish(tostring(ok) .. tostring(err))");
    let id = begin(&mut app);
    let socket = connect(&mut app, 7);
    app.effects();
    app.vm.note_socket_blocked(LIFE, socket, true);
    app.advance(1000);
    assert_eq!((app.effects(), take_effects(&mut app).len()), (None, 2), "it waits");
    app.vm.note_socket_blocked(LIFE, socket, false);
    app.advance(0);
    assert_eq!(app.effects().expect("it answers").1, "1nil");
    assert_eq!(take_effects(&mut app), ["7 send b"]);
    app.vm.close_request(id);
}

#[test]
fn failed_and_late_connects_are_errors() {
    let body = "s:settimeouts(2000, 1, 1) local ok, err = s:connect('api') response:finish(tostring(ok) .. ' ' .. err)";
    for failure in [Some("no server is available"), None] {
        let mut app = app(body);
        let id = begin(&mut app);
        let (socket, _) = app.sockets[0].clone();
        assert!(app.vm.socket_begun(socket, 9));
        match failure {
            Some(why) => app.vm.socket_ended(LIFE, socket, why),
            None => assert!(app.advance(1_999).is_empty()),
        }
        app.advance(1);
        let expected = format!("nil {}", failure.unwrap_or("timeout"));
        assert_eq!(app.effects().expect("it answers").1, expected);
        assert_eq!(app.vm.take_closed_socket(), failure.is_none().then_some(9));
        app.vm.close_request(id);
        assert_eq!(app.vm.sockets(), 0);
    }
}

#[test]
fn idle_sockets_are_reused_unless_the_server_sends_or_closes() {
    let mut app = app("assert(s:connect('api', { pool = 'k' })) local times = s:getreusedtimes()
        assert(s:setkeepalive(5000, 2)) assert(select(2, s:receive()) == 'closed') response:finish(tostring(times))");
    let id = begin(&mut app);
    let socket = connect(&mut app, 7);
    assert_eq!(app.effects().expect("it answers").1, "0");
    assert_eq!(take_effects(&mut app), ["connect 0", "7 idle Some(5s)"]);
    app.vm.close_request(id);
    assert_eq!((app.vm.sockets(), app.vm.take_closed_socket()), (1, None), "its handler has ended");
    for times in ["1", "2"] {
        assert_eq!(app.get("/").1.expect("it answers").1, times);
        assert_eq!(take_effects(&mut app), ["7 idle None", "7 idle Some(5s)"]);
    }
    // Bytes that do not belong to a request.
    assert!(app.vm.socket_received(LIFE, socket, b"x"));
    assert_eq!((app.vm.sockets(), app.vm.take_closed_socket()), (0, Some(7)));
    let id = begin(&mut app);
    let socket = connect(&mut app, 8);
    assert_eq!(app.effects().expect("it answers").1, "0");
    app.vm.close_request(id);
    app.vm.socket_ended(LIFE, socket, "closed");
    assert_eq!((app.vm.sockets(), app.vm.take_closed_socket()), (0, None));
}

#[test]
fn reload_closes_idle_sockets_and_keeps_no_more() {
    let mut app = app("assert(s:connect('api')) assert(s:setkeepalive()) response:finish('done')");
    for expected in [None, Some(7)] {
        let id = begin(&mut app);
        connect(&mut app, 7);
        assert_eq!(app.effects().expect("it answers").1, "done");
        app.vm.close_request(id);
        assert_eq!(app.vm.take_closed_socket(), expected);
        if expected.is_none() {
            assert_eq!(app.vm.retire(Moment::from_nanos(u64::MAX)), CallbackEnd::Done);
            assert_eq!((app.vm.take_closed_socket(), app.vm.sockets()), (Some(7), 0));
        }
    }
}

#[test]
fn waits_of_jobs_for_sockets_are_premature_after_a_reload() {
    let mut app = App::load(
        "return { on_message = function() end, on_start = function() tide.spawn(function()
            local s = tide.tcp() assert(s:connect('api')) local data, err = s:receive()
            tide.log.info(tostring(data), err, s:send('QUIT'))
        end) end }",
        &TIMED,
    );
    assert_eq!(app.vm.start(), CallbackEnd::Done);
    app.advance(0);
    app.effects();
    let socket = connect(&mut app, 7);
    assert_eq!(app.vm.retire(Moment::from_nanos(u64::MAX)), CallbackEnd::Done);
    app.advance(0);
    app.effects();
    assert_eq!(app.log, ["Info nil premature 4"]);
    assert_eq!(app.vm.take_closed_socket(), Some(7), "the job has ended");
    app.vm.socket_ended(LIFE, socket, "closed");
    assert!(app.vm.is_idle());
}

#[test]
fn sockets_end_with_their_client_or_job_or_request() {
    let mut app = App::load(
        "local function open() local s = tide.tcp() assert(s:connect('api')) return s end
        return {
            on_open = function(client) client:state().s = open() end,
            on_message = function(client, message) assert(client:state().s:send(message)) end,
            on_request = function(request, response) tide.spawn(open) open() tide.sleep(10) end,
        }",
        &TIMED,
    );
    let request = app.open("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    let client = app.vm.open_client(1).expect("there is room");
    assert_eq!(app.vm.opened(client, request), CallbackEnd::Waiting);
    app.effects();
    connect(&mut app, 1);
    assert_eq!(app.vm.message(client, b"hello", true), CallbackEnd::Done);
    app.effects();
    assert_eq!(take_effects(&mut app), ["connect 0", "1 send hello"]);
    assert_eq!(app.vm.take_closed_socket(), None, "the client is still connected");
    assert_eq!(app.vm.closed(client, 1000, ""), CallbackEnd::Done);
    assert_eq!((app.vm.take_closed_socket(), app.vm.sockets()), (Some(1), 0));
    let id = begin(&mut app);
    connect(&mut app, 2);
    app.effects();
    connect(&mut app, 3);
    app.advance(0);
    assert_eq!(app.vm.take_closed_socket(), Some(3), "the job has ended");
    assert_eq!(app.vm.take_closed_socket(), None);
    app.vm.close_request(id);
    assert_eq!(
        (app.vm.take_closed_socket(), app.vm.sockets()),
        (Some(2), 0),
        "its client has left"
    );
}

#[test]
fn number_of_sockets_and_requests_is_limited_and_idle_sockets_are_closed_first() {
    let mut app = App::load(
        "local n = 0 return { on_request = function(request, response)
            local s = tide.tcp() local ok, err = s:connect('api', { pool = 'k' .. n })
            if request.path == '/keep' then n = n + 1 s:setkeepalive() return response:finish('kept') end
            if not ok then return response:finish(err) end
            tide.sleep(100) end }",
        &TIMED,
    );
    let mut held = Vec::new();
    for tag in 0..REQUESTS_MAX as u64 {
        let id = app.open("GET /keep HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(app.vm.request(id), CallbackEnd::Waiting);
        app.effects();
        connect(&mut app, tag);
        app.effects();
        app.vm.close_request(id);
    }
    for tag in 0..REQUESTS_MAX as u64 {
        held.push(begin(&mut app));
        assert_eq!(app.vm.take_closed_socket(), Some(tag), "the oldest idle one");
        connect(&mut app, 10 + tag);
    }
    let (_, refused) = app.get("/");
    assert!(refused.expect("it answers").1.contains("too many sockets and requests"));
    held.into_iter().for_each(|id| app.vm.close_request(id));
    assert_eq!(app.vm.sockets(), 0);
}

#[test]
fn server_waits_while_a_script_does_not_read() {
    let mut app = app(
        "assert(s:connect('api')) tide.sleep(1) local data = s:receive(70000) response:finish(tostring(#data))",
    );
    let id = begin(&mut app);
    let socket = connect(&mut app, 7);
    let piece = vec![b'x'; 35_000];
    assert!(app.vm.socket_received(LIFE, socket, &piece));
    assert!(!app.vm.socket_received(LIFE, socket, &piece), "64 KiB wait");
    app.advance(1000);
    assert_eq!(app.effects().expect("it answers").1, "70000");
    assert_eq!(take_effects(&mut app), ["connect 0", "7 resume"]);
    app.vm.close_request(id);
}

#[test]
fn wrong_use_is_an_error() {
    for (body, error) in [
        ("s:connect('x')", "the pool 'x' is not among `pools` of [lua.test]"),
        ("s:connect('api', 80)", "bad argument #2 to 'connect' (table expected"),
        ("s:receive('*x')", "bad argument #1 to 'receive'"),
        ("s:send(nil)", "bad argument #1 to 'send'"),
        ("s:receiveuntil('')", "bad argument #1 to 'receiveuntil'"),
        ("s:settimeout('1')", "bad argument #1 to 'settimeout'"),
    ] {
        let mut app = app(body);
        let id = app.open("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        let CallbackEnd::Failed(failure) = app.vm.request(id) else { panic!("{body}") };
        assert!(failure.message.contains(error), "{failure}");
    }
    let unconnected =
        "response:finish(tostring(select(2, s:receive())) .. tostring(select(2, s:close())))";
    assert_eq!(app(unconnected).get("/").1.expect("it answers").1, "closedclosed");
}
