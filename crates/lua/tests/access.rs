//! Hooks: what `on_access` reads, changes and chooses.
//! In: scripts, requests. Out: the request as changed, or a response.

mod harness;

use harness::{App, TIMED};
use tidegate_lua::{CallbackEnd, Rewritten};

const GET: &str =
    "GET /a?b=1 HTTP/1.1\r\nHost: example.com\r\nX-One: 1\r\nx_one: 2\r\nCookie: c\r\n\r\n";

/// Runs `body` in `on_access`.
fn run(body: &str) -> (CallbackEnd, Rewritten, Option<(u16, String)>) {
    let text = format!("return {{ on_access = function(request, response) {body} end }}");
    let mut app = App::load(&text, &TIMED);
    let id = app.open_hook(GET, &["api", "slow"]);
    let verdict = app.vm.access(id);
    let response = app.effects();
    let mut rewritten = Rewritten::default();
    app.vm.take_request(id, &mut rewritten);
    app.vm.close_request(id);
    (verdict, rewritten, response)
}

/// The request line, the changed fields and the pool.
fn changes(rewritten: &Rewritten) -> String {
    let head = rewritten.head.lend();
    let fields = rewritten.fields.written();
    let fields = fields.map(|(name, value)| format!(" {name}={}", String::from_utf8_lossy(value)));
    let query = head.query.map(|query| format!("?{query}")).unwrap_or_default();
    let fields: String = fields.collect();
    format!("{} {}{query}{fields} {:?}", head.method.as_str(), head.path, rewritten.pool)
}

#[test]
fn hook_changes_the_request() {
    for (body, expected) in [
        ("", "GET /a?b=1 None"),
        ("request:set_method('POST')", "POST /a?b=1 None"),
        ("request:set_method('GET')", "GET /a?b=1 None"),
        ("request:set_path('/c')", "GET /c?b=1 None"),
        ("request:set_query(nil)", "GET /a None"),
        ("request:set_query('x=y')", "GET /a?x=y None"),
        ("request:set_query{ b = { 2, 'c d' }, a = true }", "GET /a?a=true&b=2&b=c%20d None"),
        (
            "request:set_header('X-Two', 2):set_header('X-One', { 'a', 'b' })",
            "GET /a?b=1 X-Two=2 X-One=a X-One=b None",
        ),
        (
            "request:set_header('X-One', 1) request:set_header('x_one', ' 3 ')",
            "GET /a?b=1 x_one=3 None",
        ),
        ("request:set_pool('slow')", "GET /a?b=1 Some(1)"),
        ("request:set_pool('slow'):set_pool('api')", "GET /a?b=1 Some(0)"),
    ] {
        let (verdict, rewritten, response) = run(body);
        assert_eq!((verdict, response), (CallbackEnd::Done, None), "{body}");
        assert_eq!(changes(&rewritten), expected, "{body}");
        assert_eq!(rewritten.has_path, body.contains("set_path"), "{body}");
        assert_eq!(rewritten.fields.drops("x-one"), body.contains("One"), "{body}");
    }
}

#[test]
fn hook_changes_the_host() {
    let (verdict, rewritten, _) = run("request:set_host('b.example:8080')");
    assert_eq!(verdict, CallbackEnd::Done);
    assert_eq!(rewritten.head.lend().host, Some("b.example:8080"));
    let read = "request:set_host('[::1]'):set_method('PATCH') response:finish(request.method .. ' ' .. request.host)";
    assert_eq!(run(read).2, Some((200, "PATCH [::1]".to_owned())));
}

#[test]
fn method_that_decides_about_the_content_stays() {
    let text = "return { on_access = function(request) request:set_method('GET') end }";
    let mut app = App::load(text, &TIMED);
    for head in [
        "HEAD / HTTP/1.1\r\nHost: a\r\n\r\n",
        "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
    ] {
        let id = app.open_hook(head, &[]);
        assert!(matches!(app.vm.access(id), CallbackEnd::Failed(_)), "{head}");
        app.vm.close_request(id);
    }
}

#[test]
fn hook_reads_its_own_changes() {
    let body = "local function all()
            return table.concat({ request.path, request.query.b or '-', request:header('x-one') or '-',
                request.headers.cookie or '-' }, ' ')
        end
        local before = all()
        request:set_path('/c'):set_query('b=2'):set_header('X-One', 'x'):set_header('cookie', nil)
        response:finish(before .. ' | ' .. all() .. ' ' .. request.client .. ' ' .. tostring(request.user))";
    let (_, _, response) = run(body);
    let expected = "/a 1 1 c | /c 2 x - 192.0.2.1 nil";
    assert_eq!(response, Some((200, expected.to_owned())));
}

#[test]
fn hook_that_uses_the_response_answers_the_request() {
    for (body, status, text) in [
        ("response:finish('no')", 200, "no"),
        ("response:status(403)", 403, ""),
        ("response:write('a') response:write('b')", 200, "ab"),
        ("response:header('X-A', '1')", 200, ""),
        ("response:redirect('/login')", 302, ""),
    ] {
        let (verdict, _, response) = run(body);
        assert_eq!(
            (verdict, response),
            (CallbackEnd::Done, Some((status, text.to_owned()))),
            "{body}"
        );
    }
}

#[test]
fn wrong_changes_are_errors() {
    for (body, error) in [
        ("request:set_method('HEAD')", "HEAD, CONNECT and TRACE can be neither"),
        ("request:set_method('CONNECT')", "HEAD, CONNECT and TRACE can be neither"),
        ("request:set_method('A B')", "must be a token"),
        ("request:set_method('')", "must be a token"),
        ("request:set_method(('A'):rep(33))", "must be a token"),
        ("request:set_host('a b')", "the host must be a name"),
        ("request:set_host('')", "the host must be a name"),
        ("request:set_host('a/b')", "the host must be a name"),
        ("request:set_host('a:70000')", "the host must be a name"),
        ("request:set_host(('a'):rep(2000))", "the host must be a name"),
        ("request:set_path('a')", "one slash"),
        ("request:set_path('/a b')", "percent-encode"),
        ("request:set_path(5)", "bad argument #1 to 'set_path' (string expected"),
        ("request:set_query('a b')", "percent-encode"),
        ("request:set_query{ 'a' }", "the names of arguments must be strings"),
        ("request:set_header('Content-Length', 5)", "Content-Length frames the message"),
        ("request:set_header('transfer_encoding', 'x')", "frames the message"),
        ("request:set_header('Host', 'b')", "set_host"),
        ("request:set_header('X-Client-Cert-Sha256', 'b')", "client certificate"),
        ("request:set_header('X-A', 'a\\r\\nX-B: 1')", "control character"),
        ("request:set_header('X A', 'a')", "not a valid name of a header field"),
        ("for n = 1, 100 do request:set_header('X-' .. n, n) end", "up to 64 fields"),
        ("request:set_pool('other')", "the pool \"other\" is not among `pools` in `hooks`"),
        ("response:finish('x') request:set_path('/b')", "already has a response"),
    ] {
        let (verdict, _, _) = run(body);
        let CallbackEnd::Failed(failure) = verdict else { panic!("{body} succeeds") };
        assert!(failure.message.contains(error), "{body}: {failure}");
        assert!(failure.message.starts_with("app.lua:1:"), "{body}: {failure}");
    }
}

#[test]
fn other_handlers_cannot_change_requests() {
    let text = "return { on_request = function(request) request:set_path('/b') end }";
    let (verdict, _) = App::load(text, &TIMED).get("/");
    let CallbackEnd::Failed(failure) = verdict else { panic!("it succeeds") };
    assert!(failure.message.contains("only on_access can change a request"), "{failure}");
}

#[test]
fn hook_waits_and_then_decides() {
    let text = "return { on_access = function(request)
        tide.sleep(0.1) request:set_header('X-Waited', 'yes') end }";
    let mut app = App::load(text, &TIMED);
    let id = app.open_hook(GET, &[]);
    assert_eq!(app.vm.access(id), CallbackEnd::Waiting);
    assert_eq!(app.advance(99), []);
    let resumed = app.advance(1);
    assert_eq!((resumed[0].what, &resumed[0].verdict), ("on_access", &CallbackEnd::Done));
    let mut rewritten = Rewritten::default();
    app.vm.take_request(id, &mut rewritten);
    assert_eq!(changes(&rewritten), "GET /a?b=1 X-Waited=yes None");
    app.vm.close_request(id);
    assert_eq!((app.vm.requests(), app.vm.waiting()), (0, 0));
    // The buffers of the request before do not leak into the next one.
    let id = app.open_hook("GET /z HTTP/1.1\r\nHost: b\r\n\r\n", &[]);
    app.vm.take_request(id, &mut rewritten);
    assert_eq!(changes(&rewritten), "GET /z None");
    assert!(!rewritten.fields.drops("x-waited"));
}
