//! Hooks on responses and the log: what `on_response` reads and changes, and the records of `on_log`.
//! In: scripts, heads of responses, records. Out: the heads as changed.

mod harness;

use harness::{App, TIMED};
use tidegate_lua::{CallbackEnd, CallbackOwner, Excess, ReplyHead, ScriptRequestId};
use tidegate_wire::http1::{HeadDecoder, ResponseLimits};
use tidegate_wire::message::{RequestKind, ResponseStorage};

const GET: &str = "GET /a?b=1 HTTP/1.1\r\nHost: example.com\r\n\r\n";
const OK: &str =
    "HTTP/1.1 200 OK\r\nServer: x\r\nX-One: 1\r\nx-one: 2\r\nContent-Length: 5\r\n\r\n";

/// Runs `body` in `on_response` for the head `text`.
fn run_on(text: &str, body: &str) -> (App, CallbackEnd, Option<Box<ReplyHead>>) {
    let script = format!("return {{ on_response = function(request, response) {body} end }}");
    let mut app = App::load(&script, &TIMED);
    let id = app.open_hook(GET, &[]);
    let mut storage = ResponseStorage::new();
    let (limits, kind) = (ResponseLimits::default(), RequestKind::default());
    let decoded =
        HeadDecoder::default().decode_response(text.as_bytes(), &limits, kind, &mut storage);
    let (head, _) = decoded.expect("the head is valid").expect("the head is complete");
    let verdict = app.vm.response(id, &head);
    let reply = app.vm.take_reply(id);
    app.effects();
    app.vm.close_request(id);
    assert_eq!((app.vm.requests(), app.vm.waiting()), (0, 0), "{body}");
    (app, verdict, reply)
}

/// The status and the changed fields.
fn changes(body: &str) -> String {
    let (_, verdict, reply) = run_on(OK, body);
    assert_eq!(verdict, CallbackEnd::Done, "{body}");
    let reply = reply.expect("there is a head");
    let fields = reply.changes.written();
    let fields = fields.map(|(name, value)| format!(" {name}={}", String::from_utf8_lossy(value)));
    assert_eq!(reply.is_changed(), body.contains("set_") || body.contains("add_"), "{body}");
    format!("{}{}", reply.status, fields.collect::<String>())
}

#[test]
fn hook_changes_the_head() {
    for (body, expected) in [
        ("", "200"),
        ("local a = response.status + #response.headers", "200"),
        ("response:set_status(404)", "404"),
        ("response:set_header('Server', nil)", "200"),
        (
            "response:set_header('X-Two', { 1, 'b' }):set_header('x-three', true)",
            "200 X-Two=1 X-Two=b x-three=true",
        ),
        ("response:add_header('X-One', 3)", "200 X-One=1 X-One=2 X-One=3"),
        ("response:add_header('Set-Cookie', 'a=b')", "200 Set-Cookie=a=b"),
        ("response:set_header('a', response:header('X-One') .. request.path)", "200 a=1, 2/a"),
        ("response:set_header('b', 1):set_header('c', response.headers.b)", "200 b=1 c=1"),
        (
            "response:set_header('t', type(response.headers['x-one']) .. response.status)",
            "200 t=table200",
        ),
    ] {
        assert_eq!(changes(body), expected, "{body}");
    }
    let (_, _, reply) = run_on(OK, "response:set_header('x_one', 'new')");
    assert!(reply.is_some_and(|reply| reply.changes.drops("X-One")));
}

#[test]
fn change_that_would_break_the_message_is_an_error() {
    for (body, error) in [
        ("response:set_status(100)", "the status must be 200 to 599"),
        ("response:set_status('x')", "bad argument #1 to 'set_status'"),
        ("response:set_status(204)", "the status cannot change whether the response has"),
        ("response:set_header('Content-Length', 1)", "frames the message"),
        ("response:set_header('transfer_encoding', nil)", "frames the message"),
        ("response:set_header('Connection', 'close')", "describes the connection"),
        ("response:set_header('a', 'x\\r\\ny')", "a control character"),
        ("response:set_header('a b', 1)", "not a valid name of a header field"),
        ("response:set_header(1, 1)", "bad argument #1 to 'set_header'"),
        ("for n = 1, 100 do response:set_header('a' .. n, n) end", "up to 64 fields"),
        ("coroutine.yield()", "yield"),
    ] {
        let (_, verdict, _) = run_on(OK, body);
        let CallbackEnd::Failed(failure) = verdict else { panic!("{body}: {verdict:?}") };
        assert!(failure.message.contains(error), "{body}: {failure}");
    }
    let (_, verdict, _) = run_on("HTTP/1.1 304 \r\n\r\n", "response:set_status(200)");
    assert!(matches!(verdict, CallbackEnd::Failed(_)), "{verdict:?}");
    let (_, verdict, _) = run_on("HTTP/1.1 304 \r\n\r\n", "response:set_status(304)");
    assert_eq!(verdict, CallbackEnd::Done);
}

/// Runs `body` in `on_response`, which waits.
fn hold(body: &str) -> (App, ScriptRequestId) {
    let script = format!(
        "local kept return {{
            on_access = function(request, response) kept = response end,
            on_response = function(request, response) local kept = kept {body} end }}"
    );
    let mut app = App::load(&script, &TIMED);
    let id = app.open_hook(GET, &[]);
    assert_eq!(app.vm.access(id), CallbackEnd::Done);
    let mut storage = ResponseStorage::new();
    let (limits, kind) = (ResponseLimits::default(), RequestKind::default());
    let decoded =
        HeadDecoder::default().decode_response(OK.as_bytes(), &limits, kind, &mut storage);
    let (head, _) = decoded.expect("the head is valid").expect("the head is complete");
    assert_eq!(app.vm.response(id, &head), CallbackEnd::Waiting, "{body}");
    app.vm.hold_response(id, 77);
    (app, id)
}

#[test]
fn hook_waits_and_changes_the_head_afterwards() {
    let (mut app, id) = hold("tide.sleep(1) response:set_status(202):set_header('a', 'b')");
    app.advance(999);
    let ended = app.advance(1);
    assert_eq!((ended[0].what, &ended[0].verdict), ("on_response", &CallbackEnd::Done));
    assert_eq!(ended[0].owner, CallbackOwner::Request { tag: 77 });
    let reply = app.vm.take_reply(id).expect("there is a head");
    assert_eq!((reply.status, reply.changes.written().count()), (202, 1));
    app.vm.close_request(id);
    assert_eq!((app.vm.requests(), app.vm.waiting()), (0, 0));
}

#[test]
fn hook_cannot_wait_for_longer_than_a_minute_in_all() {
    let (mut app, id) = hold("for n = 1, 100 do tide.sleep(1) end");
    for _ in 0..59 {
        assert!(app.advance(1000).iter().all(|one| one.verdict == CallbackEnd::Waiting));
    }
    let mut ended = app.advance(2000);
    ended.extend(app.advance(1000));
    let last = ended.last().expect("the hook ends");
    let CallbackEnd::Failed(failure) = &last.verdict else { panic!("{last:?}") };
    assert_eq!(failure.excess, Some(Excess::Wait));
    assert_eq!(failure.message, "on_response has waited for 60 s");
    app.vm.close_request(id);
    assert_eq!((app.vm.requests(), app.vm.waiting()), (0, 0));
}

#[test]
fn hook_that_waits_ends_with_its_request() {
    let (mut app, id) = hold("tide.sleep(1) tide.log.info('late')");
    app.vm.close_request(id);
    assert_eq!((app.vm.requests(), app.vm.waiting()), (0, 0));
    assert!(app.advance(2000).is_empty());
    app.effects();
    assert_eq!(app.log, [""; 0]);
}

#[test]
fn response_of_a_server_cannot_be_answered_by_the_script() {
    for call in [
        "kept:write('x')",
        "kept:finish('x')",
        "kept:flush()",
        "kept:drop()",
        "kept:json({})",
        "kept:redirect('/')",
        "kept:status(404)",
        "kept:header('a', 'b')",
    ] {
        let (mut app, id) = hold(&format!(
            "tide.sleep(1) local ok, a, b = pcall(function() return {call} end) tide.log.info(b or a)"
        ));
        app.advance(1000);
        assert_eq!(app.effects(), None, "{call}");
        assert!(!app.log.is_empty() && !app.log[0].contains("table"), "{call}: {:?}", app.log);
        assert!(app.vm.take_reply(id).is_some(), "{call}");
        app.vm.close_request(id);
    }
}

#[test]
fn hook_may_start_threads() {
    let body = "tide.spawn(function() tide.sleep(0.01) tide.log.info('later') end)";
    let (mut app, verdict, _) = run_on(OK, body);
    assert_eq!(verdict, CallbackEnd::Done);
    app.advance(0);
    app.advance(20);
    app.effects();
    assert_eq!(app.log.last().map(String::as_str), Some("Info later"));
}

#[test]
fn head_cannot_be_used_after_the_hook() {
    let script = "local kept return {
        on_response = function(request, response) kept = response response:header('a') end,
        on_request = function(_, response)
            local ok, err = pcall(kept.set_header, kept, 'a', 1)
            response:finish(tostring(kept.status) .. ' ' .. tostring(err:match('the .*')))
        end }";
    let mut app = App::load(script, &TIMED);
    let id = app.open_hook(GET, &[]);
    let mut storage = ResponseStorage::new();
    let (limits, kind) = (ResponseLimits::default(), RequestKind::default());
    let decoded =
        HeadDecoder::default().decode_response(OK.as_bytes(), &limits, kind, &mut storage);
    let (head, _) = decoded.expect("the head is valid").expect("the head is complete");
    assert_eq!(app.vm.response(id, &head), CallbackEnd::Done);
    app.vm.take_reply(id);
    app.vm.close_request(id);
    let (_, response) = app.get("/");
    assert_eq!(response.expect("it answers").1, "nil the response has ended");
}

#[test]
fn log_hook_gets_the_record_and_may_wait() {
    let script = "return { on_log = function(record)
        if record.status == 500 then error('x') end
        tide.sleep(1)
        tide.log.info(record.status + 1, record.target)
    end }";
    let mut app = App::load(script, &TIMED);
    assert_eq!(app.vm.log(b"{\"status\":200,\"target\":\"/a\"}"), CallbackEnd::Waiting);
    assert!(matches!(app.vm.log(b"{\"status\":500}"), CallbackEnd::Failed(_)));
    app.advance(999);
    app.effects();
    assert_eq!(app.log, [""; 0]);
    assert_eq!(app.advance(1)[0].what, "on_log");
    app.effects();
    assert_eq!(app.log, ["Info 201 /a"]);
    assert_eq!(app.vm.waiting(), 0);
}

#[test]
fn calls_of_the_log_hook_that_wait_are_bounded() {
    let script = "return { on_log = function(record) tide.sleep(record.seconds) end }";
    let mut app = App::load(script, &TIMED);
    for seconds in ["1", "100"] {
        let record = format!("{{\"seconds\":{seconds}}}");
        for _ in 0..1024 {
            assert!(app.vm.can_log());
            assert_eq!(app.vm.log(record.as_bytes()), CallbackEnd::Waiting);
        }
        assert!(!app.vm.can_log());
        app.advance(1000);
        assert_eq!(app.vm.can_log(), seconds == "1");
    }
    app.vm.stop();
    assert!(app.vm.can_log());
    assert_eq!(app.vm.waiting(), 0);
}
