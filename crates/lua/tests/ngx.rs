//! The layer `ngx`: scripts as OpenResty's documentation defines them.
//! In: scripts of phases, requests. Out: responses, changed requests, lines of the log.

mod harness;

use harness::App;
use tidegate_lua::{CallbackEnd, Handler, ReplyHead, Rewritten};
use tidegate_wire::http1::{HeadDecoder, ResponseLimits};
use tidegate_wire::message::{RequestKind, ResponseStorage};

fn load(content: &str, phases: &[(&str, &str)]) -> App {
    App::load_ngx(content, phases, &[]).unwrap_or_else(|failure| panic!("{failure}"))
}

const POST: &str = "POST /a%20b/c?x=1&y&x=2&z=a%2Bb+c HTTP/1.1\r\nHost: Example.com:8080\r\nX-One: a\r\nX-One: b\r\n\
    Cookie: k=v; session=s=1\r\nContent-Type: text/x\r\nContent-Length: 7\r\n\r\n";

/// Runs `content` for `POST`, and returns the status and the body.
fn run(content: &str) -> (u16, String) {
    let mut app = load(content, &[]);
    let (end, response) = app.send(POST, b"p=1&q=%41");
    assert_eq!(end, CallbackEnd::Done, "{content}");
    response.expect("the response is complete")
}

/// Runs statements that contain assertions.
fn check(statements: &str) {
    assert_eq!(run(&format!("{statements}\nngx.print('passed')")), (200, "passed".to_owned()));
}

#[test]
fn output_is_joined_and_the_status_and_the_fields_are_sent() {
    assert_eq!(
        run("ngx.say('a', 1, nil, true, ngx.null, { 'b', { 2, 'c' } }) ngx.print('d')").1,
        "a1niltruenullb2c\nd"
    );
    let mut app = load(
        "ngx.status = 201 ngx.header.x_one = 'a' ngx.header['X-Two'] = { 'b', 'c' } ngx.header.x_gone = 1 ngx.header.X_Gone = nil
        ngx.header.content_length = 99 ngx.header.content_type = 'text/html'
        assert(ngx.header['x-one'] == 'a' and ngx.header.X_Two[2] == 'c' and ngx.header.x_gone == nil)
        assert(ngx.headers_sent == false and ngx.status == 201)
        ngx.resp.add_header('X-One', 'z')
        assert(ngx.resp.get_headers()['x-one'][2] == 'z')
        ngx.say('body')
        assert(ngx.headers_sent)
        ngx.header.late = 'x'
        ngx.status = 500",
        &[],
    );
    let (end, response) = app.get("/");
    assert_eq!((end, response), (CallbackEnd::Done, Some((201, "body\n".to_owned()))));
    let fields: Vec<_> =
        app.head.1.iter().map(|(name, value)| format!("{name}: {value}")).collect();
    assert_eq!(
        fields,
        ["x-one: a", "X-One: z", "X-Two: b", "X-Two: c", "content-type: text/html"]
            .map(|f| f.replace("x-one", "X-One"))
    );
    assert_eq!(app.log.len(), 2, "{:?}", app.log);
    assert!(
        app.log[0].contains("attempt to set ngx.header.late after sending out response headers")
    );
}

#[test]
fn exit_ends_the_script_even_in_pcall_and_in_coroutines() {
    assert_eq!(run("ngx.say('a') pcall(ngx.exit, 200) ngx.say('b')"), (200, "a\n".to_owned()));
    assert_eq!(
        run("coroutine.wrap(function() ngx.exit(403) end)() ngx.say('b')"),
        (403, "403 Forbidden\n".to_owned())
    );
    assert_eq!(run("ngx.status = 202 ngx.exit(ngx.OK)"), (202, String::new()));
    assert_eq!(run("ngx.exit(ngx.ERROR)"), (500, "500 Internal Server Error\n".to_owned()));
    assert_eq!(run("ngx.exit(204)"), (204, String::new()));
    assert_eq!(run("ngx.status = 418 ngx.say('own') ngx.exit(404)"), (418, "own\n".to_owned()));
    let mut app = load("ngx.redirect('/there?x=1', 301)", &[]);
    assert_eq!(app.get("/").1.expect("a response").0, 301);
    assert_eq!(app.head.1, [("Location".to_owned(), "/there?x=1".to_owned())]);
    for _ in 0..1000 {
        assert_eq!(app.get("/").0, CallbackEnd::Done);
    }
    assert_eq!((app.vm.requests(), app.vm.waiting()), (0, 0));
}

#[test]
fn exit_444_drops_the_request() {
    for content in ["ngx.exit(444) ngx.say('b')", "ngx.say('a') ngx.flush() ngx.exit(444)"] {
        let mut app = load(content, &[]);
        let (end, response) = app.get("/");
        assert_eq!((end, response), (CallbackEnd::Done, None), "{content}");
        assert_eq!(app.sent, ["9 dropped"], "{content}");
    }
}

#[test]
fn error_of_a_script_fails_its_request() {
    for (content, error) in [
        ("error('oops')", "app.lua:1: oops"),
        ("ngx.say(function() end)", "bad argument #1 to 'say'"),
        ("ngx.say({ a = 1 })", "non-array table"),
        ("ngx.exec('/x')", "access phase of forwarded requests"),
        ("ngx.location.capture('/x')", "not supported"),
        ("ngx.var.nothing = 1", "variable \"nothing\" not found for writing"),
        ("ngx.redirect('/', 200)", "are allowed"),
    ] {
        let CallbackEnd::Failed(failure) = load(content, &[]).get("/").0 else {
            panic!("{content}")
        };
        assert!(failure.message.contains(error), "{content}: {failure}");
    }
    let failure = App::load_ngx("x =", &[], &[]).err().expect("it is refused");
    assert!(failure.message.contains("app.lua:1"), "{failure}");
    let failure = App::load_ngx("", &[("access", "\nx =")], &[]).err().expect("it is refused");
    assert!(failure.message.contains("access.lua:2"), "{failure}");
}

#[test]
fn requests_are_read_as_openresty_does() {
    check(
        "local h = ngx.req.get_headers()
        assert(h['x-one'][2] == 'b' and h.X_One[1] == 'a' and h.host == 'Example.com:8080')
        local _, err = ngx.req.get_headers(2)
        assert(err == 'truncated')
        assert(ngx.req.get_headers(0, true)['X-One'] == nil)
        local a = ngx.req.get_uri_args()
        assert(a.x[1] == '1' and a.x[2] == '2' and a.y == true and a.z == 'a+b c')
        assert(select(2, ngx.req.get_uri_args(1)) == 'truncated')
        ngx.req.read_body()
        assert(ngx.req.get_body_data() == 'p=1&q=%41' and ngx.req.get_post_args().q == 'A')
        assert(ngx.var.arg_z == 'a%2Bb+c' and ngx.var.arg_X == '1' and ngx.var.arg_y == nil and ngx.var.arg_none == nil)
        assert(ngx.worker.pid() == tonumber(ngx.var.pid) and #ngx.worker.pids() == ngx.worker.count())
        assert(ngx.req.get_method() == 'POST' and ngx.req.http_version() == 1.1 and not ngx.req.is_internal())
        ngx.req.set_header('X-Two', 5) ngx.req.clear_header('x-one')
        assert(ngx.req.get_headers().x_two == '5' and ngx.var.http_x_one == nil and ngx.var.http_x_two == '5')
        ngx.req.set_uri_args({ n = 1 }) ngx.req.set_method(ngx.HTTP_PUT) ngx.req.set_uri('/new')
        assert(ngx.var.args == 'n=1' and ngx.req.get_method() == 'PUT' and ngx.var.uri == '/new')
        assert(ngx.req.raw_header():find('PUT /a%20b/c?x=1&y', 1, true))",
    );
    check(
        "local v = ngx.var
        assert(v.uri == '/a b/c' and v.request_uri == '/a%20b/c?x=1&y&x=2&z=a%2Bb+c' and v.is_args == '?')
        assert(v.host == 'example.com' and v.server_port == '8080' and v.scheme == 'http' and v.remote_addr == '192.0.2.1')
        assert(v.cookie_session == 's=1' and v.cookie_none == nil and v.arg_x == '1' and v.arg_y == nil and v.http_x_one == 'a, b')
        assert(v.request_method == 'POST' and v.content_type == 'text/x' and v.server_protocol == 'HTTP/1.1')
        assert(v.color == 'red' and v.nothing == nil and tonumber(v.msec) > 0 and v.request_body == 'p=1&q=%41')
        v.color = 'blue'
        assert(v.color == 'blue' and ngx.var.color == 'blue')
        v.args = 'k=2'
        assert(ngx.req.get_uri_args().k == '2')",
    );
}

#[test]
fn uri_is_normalized_and_the_target_is_kept() {
    for (path, uri) in [
        ("/", "/"),
        ("/a.b/..c/d..", "/a.b/..c/d.."),
        ("/x/../admin/y", "/admin/y"),
        ("//admin", "/admin"),
        ("/./admin/.", "/admin/"),
        ("/x/%2e%2E/admin", "/admin"),
        ("/../../a//b/../", "/a/"),
        ("/..", "/"),
    ] {
        let mut app = load("ngx.print(ngx.var.uri, ' ', ngx.var.document_uri)", &[]);
        assert_eq!(app.get(path).1, Some((200, format!("{uri} {uri}"))), "{path}");
    }
    check(
        "ngx.req.set_uri('/new') ngx.req.set_uri_args('k=v')
        assert(ngx.var.request_uri == '/a%20b/c?x=1&y&x=2&z=a%2Bb+c')",
    );
}

#[test]
fn fields_of_the_connection_are_left_to_the_server() {
    let mut app = load(
        "ngx.req.set_header('Host', 'b.example') ngx.req.clear_header('Content-Length') ngx.req.set_header('Connection', 'x')
        ngx.req.set_header('X-User', ngx.var.http_host)",
        &[],
    );
    let (end, response, seen) = access(&mut app, "/");
    assert_eq!((end, response), (CallbackEnd::Done, None));
    assert!(seen.ends_with("Some(\"b.example\")"), "{seen}");
    assert_eq!(app.log.len(), 2, "{:?}", app.log);
}

#[test]
fn arrays_have_the_metatable_of_cjson() {
    check(
        "local cjson = require('cjson')
        cjson.decode_array_with_array_mt(true)
        local list = cjson.decode('[]')
        assert(getmetatable(list) == cjson.array_mt)
        assert(cjson.encode(setmetatable(list, cjson.array_mt)) == '[]')",
    );
}

#[test]
fn variables_and_contexts_belong_to_their_request() {
    let mut app = load(
        "ngx.ctx.id = ngx.var.arg_id
        ngx.var.color = ngx.var.arg_id
        ngx.sleep(tonumber(ngx.var.arg_s))
        local co = coroutine.wrap(function() return ngx.ctx.id .. ngx.var.color .. ngx.var.arg_id end)
        ngx.say(co())",
        &[],
    );
    let of = |app: &mut App, id: usize| {
        let request =
            app.open(&format!("GET /?id={id}&s=0.0{} HTTP/1.1\r\nHost: a\r\n\r\n", 5 - id));
        assert_eq!(app.vm.request(request), CallbackEnd::Waiting);
        request
    };
    let requests: Vec<_> = (1..=4).map(|id| of(&mut app, id)).collect();
    for id in [4, 3, 2, 1] {
        app.advance(10);
        assert_eq!(app.effects(), Some((200, format!("{id}{id}{id}\n"))));
    }
    requests.into_iter().for_each(|id| app.vm.close_request(id));
    assert_eq!((app.vm.requests(), app.vm.waiting()), (0, 0));
}

#[test]
fn encodings_hashes_and_times_are_those_of_the_documentation() {
    check(
        r#"assert(ngx.escape_uri('a b/ü?') == 'a%20b%2F%C3%BC%3F' and ngx.escape_uri('/a b?', 0) == '/a%20b%3F')
        assert(ngx.unescape_uri('b%20r56+7%zz') == 'b r56 7%zz')
        assert(ngx.encode_args({ v = 'b c' }) == 'v=b%20c' and ngx.encode_args({ v = { 1, 2 } }) == 'v=1&v=2')
        assert(ngx.encode_args({ v = true }) == 'v' and ngx.encode_args({ v = false }) == '')
        assert(ngx.decode_args('a=1&b&a=2').a[2] == '2' and select(2, ngx.decode_args('a&b&c', 2)) == 'truncated')
        assert(ngx.encode_base64('a') == 'YQ==' and ngx.encode_base64('a', true) == 'YQ' and ngx.decode_base64('YQ==') == 'a')
        assert(ngx.decode_base64('!') == nil and ngx.encode_base64(5) == 'NQ==')
        local base64 = require('ngx.base64')
        assert(base64.encode_base64url('\255\254') == '__4' and base64.decode_base64url('__4') == '\255\254')
        assert(ngx.md5('hello') == '5d41402abc4b2a76b9719d911017c592' and #ngx.md5_bin('') == 16)
        assert(ngx.crc32_short('hello') == 907060870 and ngx.crc32_long('hello') == 907060870)
        assert(#ngx.sha1_bin('') == 20 and ngx.encode_base64(ngx.hmac_sha1('thisisverysecretstuff', 'some string we want to sign')) ==
            'R/pvxzHC4NLtj7S+kXFg/NePTmk=')
        assert(ngx.quote_sql_str("a'b\n\0") == "'a\\'b\\n\\0'")
        assert(ngx.time() == 1700000000 and ngx.now() >= 1700000000 and ngx.utctime() == '2023-11-14 22:13:20')
        assert(ngx.http_time(1290079655) == 'Thu, 18 Nov 2010 11:27:35 GMT')
        assert(ngx.cookie_time(1290079655) == 'Thu, 18-Nov-10 11:27:35 GMT')
        assert(ngx.parse_http_time('Thu, 18 Nov 2010 11:27:35 GMT') == 1290079655 and ngx.parse_http_time('x') == nil)
        local md5 = require('resty.md5'):new()
        md5:update('hel') md5:update('lo')
        assert(require('resty.string').to_hex(md5:final()) == ngx.md5('hello'))
        assert(#require('resty.sha256'):new():final() == 32 and require('table.nkeys')({ 1, a = 2 }) == 2)"#,
    );
}

#[test]
fn lines_of_the_log_have_their_place_and_level() {
    let mut app = load(
        "ngx.log(ngx.ERR, 'a', 1, nil, ngx.null) ngx.log(ngx.WARN, 'w') ngx.log(ngx.INFO, 'i') ngx.log(ngx.DEBUG, 'd')\nprint('p')",
        &[],
    );
    assert_eq!(app.get("/").0, CallbackEnd::Done);
    let expected = [
        "Error app.lua:1: a1nilnull",
        "Warning app.lua:1: w",
        "Info app.lua:1: i",
        "Info app.lua:2: p",
    ];
    assert_eq!(app.log, expected);
}

#[test]
fn phases_run_in_their_order_and_access_may_answer() {
    let phases = [
        ("init", "assert(ngx.get_phase() == 'init') limit = 5"),
        ("init-worker", "assert(ngx.get_phase() == 'init_worker') started = ngx.worker.id()"),
        (
            "access",
            "assert(ngx.get_phase() == 'access') ngx.ctx.user = ngx.var.arg_user
            if not ngx.ctx.user then ngx.sleep(0.01) return ngx.exit(401) end
            if ngx.ctx.user == 'said' then ngx.say('in access') end
            ngx.exit(ngx.OK)",
        ),
    ];
    let mut app = load(
        "ngx.say(ngx.get_phase(), limit, started, ngx.ctx.user) counter = (counter or 0) + 1",
        &phases,
    );
    assert!(app.vm.has(Handler::Start) && !app.vm.has(Handler::Body) && !app.vm.has(Handler::Log));
    assert_eq!(app.vm.start(), CallbackEnd::Done);
    assert_eq!(app.get("/?user=u").1, Some((200, "content51u\n".to_owned())));
    assert_eq!(app.get("/?user=said").1, Some((200, "in access\n".to_owned())));
    let id = app.open("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(app.vm.request(id), CallbackEnd::Waiting);
    app.advance(20);
    assert_eq!(app.effects(), Some((401, "401 Authorization Required\n".to_owned())));
    app.vm.close_request(id);
}

/// Runs the access phase of a forwarded request. Returns how it ended, the path and the query, and a field.
fn access(app: &mut App, target: &str) -> (CallbackEnd, Option<(u16, String)>, String) {
    let id = app.open_hook(&format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n"), &[]);
    let end = app.vm.access(id);
    let response = app.effects();
    let mut into = Rewritten::default();
    app.vm.take_request(id, &mut into);
    let head = into.head.lend();
    let field = into.fields.find("x-user").map(|value| String::from_utf8_lossy(value).into_owned());
    let seen = format!("{} {:?} {field:?}", head.path, head.query);
    app.vm.close_request(id);
    (end, response, seen)
}

#[test]
fn access_phase_of_a_forwarded_request_changes_or_refuses_it() {
    let mut app = load(
        "if ngx.var.arg_deny then ngx.header.x_why = 'no' return ngx.exit(ngx.HTTP_FORBIDDEN) end
        if ngx.var.arg_exec then return ngx.exec('/e x', { q = 1 }) end
        ngx.req.set_header('X-User', 'u') ngx.req.set_uri('/n w') ngx.req.set_uri_args('k=v')
        ngx.header.x_later = 'kept for the response'
        if ngx.var.arg_ok then ngx.exit(ngx.OK) end",
        &[],
    );
    let forwarded = "/n%20w Some(\"k=v\") Some(\"u\")".to_owned();
    assert_eq!(access(&mut app, "/"), (CallbackEnd::Done, None, forwarded.clone()));
    assert_eq!(access(&mut app, "/?ok=1"), (CallbackEnd::Done, None, forwarded));
    assert_eq!(access(&mut app, "/?exec=1").2, "/e%20x Some(\"q=1\") None");
    assert_eq!(access(&mut app, "/?deny=1").1, Some((403, "403 Forbidden\n".to_owned())));
    assert_eq!(app.head.1[0], ("x-why".to_owned(), "no".to_owned()));
}

#[test]
fn filters_change_the_response_of_the_server_with_the_context_of_the_request() {
    let phases = [
        (
            "header-filter",
            "ngx.header.X_Ctx = ngx.ctx.who ngx.header.server = nil if ngx.status == 200 then ngx.status = 202 end",
        ),
        ("body-filter", "ngx.arg[1] = ngx.arg[1]:upper() .. (ngx.arg[2] and ngx.ctx.who or '')"),
        ("log", "ngx.log(ngx.INFO, ngx.var.status, ' ', ngx.var.request_time)"),
    ];
    let mut app = load("ngx.ctx.who = 'me' ngx.header.x_access = 'a'", &phases);
    let id = app.open_hook("GET / HTTP/1.1\r\nHost: a\r\n\r\n", &[]);
    assert_eq!(app.vm.access(id), CallbackEnd::Done);
    let mut storage = ResponseStorage::new();
    let text = b"HTTP/1.1 200 OK\r\nServer: s\r\nContent-Length: 5\r\n\r\n";
    let (limits, kind) = (ResponseLimits::default(), RequestKind::default());
    let decoded = HeadDecoder::default().decode_response(text, &limits, kind, &mut storage);
    let (head, _) = decoded.expect("the head is valid").expect("the head is complete");
    assert_eq!(app.vm.response(id, &head), CallbackEnd::Done);
    let reply: Box<ReplyHead> = app.vm.take_reply(id).expect("the head is kept");
    let fields: Vec<_> = reply
        .fields()
        .map(|(name, value)| format!("{name}: {}", String::from_utf8_lossy(value)))
        .collect();
    assert_eq!(
        (reply.status, fields),
        (
            202,
            vec!["Content-Length: 5".to_owned(), "x-access: a".to_owned(), "X-Ctx: me".to_owned()]
        )
    );
    app.vm.begin_body(id, 9, reply);
    app.vm.feed_body(id, b"abc");
    assert_eq!(app.vm.body(id), CallbackEnd::Waiting);
    app.vm.end_body(id);
    app.advance(0);
    assert_eq!(app.effects().map(|(_, body)| body), Some("ABCme".to_owned()));
    app.vm.close_request(id);
    assert_eq!(app.vm.log(br#"{"status":202,"total_ms":12}"#), CallbackEnd::Done);
    app.effects();
    assert_eq!(app.log.last().map(String::as_str), Some("Info log.lua:1: 202 0.012"));
}

/// Runs a script that waits, for 10 s at most. Returns the response.
fn wait(content: &str) -> (u16, String) {
    wait_with(content, &[])
}

fn wait_with(content: &str, phases: &[(&str, &str)]) -> (u16, String) {
    let mut app = load(content, phases);
    let id = app.open("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    let mut end = app.vm.request(id);
    let mut response = app.effects();
    for _ in 0..1000 {
        if response.is_some() {
            break;
        }
        assert_eq!(end, CallbackEnd::Waiting, "{content}");
        for resumed in app.advance(10) {
            assert!(!matches!(resumed.verdict, CallbackEnd::Failed(_)), "{content}: {resumed:?}");
            end = CallbackEnd::Waiting;
        }
        response = app.effects();
    }
    app.vm.close_request(id);
    app.advance(5000);
    assert_eq!((app.vm.requests(), app.vm.waiting(), app.vm.jobs()), (0, 0, 0), "{content}");
    response.unwrap_or_else(|| panic!("{content}: no response"))
}

#[test]
fn timers_run_outside_of_requests() {
    let content = "local count = 0
        assert(ngx.timer.at(0.01, function(premature, a, b)
            assert(premature == false and a == 1 and b == 2 and ngx.get_phase() == 'timer')
            assert(not pcall(function() return ngx.var.uri end) and not pcall(ngx.say, 'x'))
            count = count + 1
        end, 1, 2))
        assert(ngx.timer.pending_count() == 1 and ngx.timer.at(-1, print) == nil)
        assert(ngx.timer.at(0, function() ngx.exit(0) end))
        ngx.sleep(0.05)
        ngx.say(count, ngx.timer.pending_count(), ngx.timer.running_count())";
    assert_eq!(wait(content), (200, "100\n".to_owned()));
}

#[test]
fn threads_share_the_request_and_end_with_an_exit() {
    let content = "local t1 = ngx.thread.spawn(function(a) ngx.sleep(0.02) ngx.ctx.x = 1 return a, ngx.var.uri end, 5)
        local t2 = ngx.thread.spawn(function() ngx.sleep(0.01) error('two') end)
        local ok, err = ngx.thread.wait(t1, t2)
        assert(ok == false and err:find('two'))
        local ok, a, uri = ngx.thread.wait(t1)
        ngx.say(ok, a, uri, ngx.ctx.x, ' ', (ngx.thread.wait(t1)))
        local t3 = ngx.thread.spawn(ngx.sleep, 100)
        assert(ngx.thread.kill(t3) == 1 and ngx.thread.kill(t3) == nil)";
    assert_eq!(wait(content), (200, "true5/1 nil\n".to_owned()));
    let content = "ngx.thread.wait(ngx.thread.spawn(function() ngx.sleep(0.01) ngx.exit(404) end)) ngx.say('not reached')";
    assert_eq!(wait(content), (404, "404 Not Found\n".to_owned()));
}

#[test]
fn response_contains_what_threads_write_and_ends_with_the_last_one() {
    let content = "ngx.thread.spawn(function()
            ngx.print('1')
            ngx.sleep(0.01)
            ngx.thread.spawn(function() ngx.sleep(0.01) ngx.print('4') end)
            ngx.print('3')
        end)
        ngx.print('2')";
    assert_eq!(wait(content), (200, "1234".to_owned()));
    let failing = "ngx.thread.spawn(function() ngx.sleep(0.01) error('x') end) ngx.print('a')";
    assert_eq!(wait(failing), (200, "a".to_owned()));
    // `ngx.exit` ends the threads of its request.
    let content = "ngx.thread.spawn(function() ngx.sleep(0.01) ngx.print('late') end)
        ngx.thread.spawn(function() ngx.sleep(0.02) ngx.exit(200) end)
        ngx.thread.spawn(function() ngx.sleep(100) ngx.print('never') end)
        ngx.print('a ')";
    assert_eq!(wait(content), (200, "a late".to_owned()));
    let content = "ngx.thread.spawn(function() ngx.sleep(100) ngx.print('never') end) ngx.say('a') ngx.exit(200)";
    assert_eq!(wait(content), (200, "a\n".to_owned()));
    // As many as there may be, one after the other.
    let content = "for at = 1, 300 do ngx.thread.wait(ngx.thread.spawn(function() ngx.sleep(0.001) end)) end ngx.print('a')";
    assert_eq!(wait(content), (200, "a".to_owned()));
}

#[test]
fn access_phase_ends_with_its_threads() {
    let access = "ngx.thread.spawn(function() ngx.sleep(0.01) ngx.ctx.who = 'me' end)";
    let content = "ngx.print(ngx.ctx.who)";
    assert_eq!(wait_with(content, &[("access", access)]), (200, "me".to_owned()));
    let access = "ngx.thread.spawn(function() ngx.sleep(0.01) ngx.exit(403) end)";
    assert_eq!(wait_with(content, &[("access", access)]), (403, "403 Forbidden\n".to_owned()));
}

#[test]
fn requests_know_when_they_began() {
    let content = "local began = ngx.req.start_time()
        ngx.sleep(0.5)
        assert(ngx.req.start_time() == began and began < ngx.now() - 0.4 and began > ngx.now() - 0.7)
        local passed = tonumber(ngx.var.request_time)
        ngx.print(passed > 0.4 and passed < 0.7)";
    assert_eq!(wait(content), (200, "true".to_owned()));
}

#[test]
fn semaphores_wake_their_waiters_in_order() {
    let content = "local sema = require('ngx.semaphore').new(1)
        assert(sema:wait(0) and select(2, sema:wait(0)) == 'timeout' and select(2, sema:wait(0.02)) == 'timeout')
        local threads = {}
        for at = 1, 3 do
            threads[at] = ngx.thread.spawn(function() assert(sema:wait(1)) ngx.print(at) end)
        end
        ngx.sleep(0.01)
        assert(sema:count() == -3)
        sema:post(2)
        ngx.sleep(0.02)
        ngx.print('-')
        sema:post()
        ngx.thread.wait(threads[3])
        ngx.say(sema:count())";
    assert_eq!(wait(content), (200, "12-30\n".to_owned()));
    // A stopped waiter takes no permit.
    let content = "local sema = require('ngx.semaphore').new()
        local stopped = ngx.thread.spawn(function() sema:wait(1) end)
        local waits = ngx.thread.spawn(function() return sema:wait(1) end)
        ngx.sleep(0.01)
        ngx.thread.kill(stopped)
        sema:post()
        local _, taken = ngx.thread.wait(waits)
        ngx.say(tostring(taken), sema:count())";
    assert_eq!(wait(content), (200, "true0\n".to_owned()));
}

#[test]
fn shared_dictionaries_have_the_results_of_openresty() {
    check(
        "local d = ngx.shared.cache
        assert(d and ngx.shared.other == nil and d == ngx.shared.cache)
        local ok, err, forcible = d:set('a', 1)
        assert(ok == true and err == nil and forcible == false and d:get('a') == 1)
        ok, err = d:add('a', 2) assert(ok == false and err == 'exists')
        ok, err = d:replace('b', 2) assert(ok == false and err == 'not found')
        assert(d:incr('a', 2) == 3 and d:incr('n', 5, 10) == 15 and select(2, d:incr('x', 1)) == 'not found')
        assert(d:lpush('l', 'x') == 1 and d:rpush('l', 'y') == 2 and d:llen('l') == 2 and d:lpop('l') == 'x')
        assert(d:ttl('a') == 0 and d:expire('a', 5) and d:ttl('a') == 5 and select(2, d:ttl('none')) == 'not found')
        assert(d:set('a', nil) and d:get('a') == nil and select(2, d:set('t', {})) == 'bad value type')
        assert(select(2, d:get(nil)) == 'nil key' and select(2, d:get('')) == 'empty key')
        d:set('e', 'v', 0.001) d:delete('n')
        d:flush_all() assert(#d:get_keys() == 0)
        d = ngx.shared.cache
        for at = 1, 1200 do d:set(at, at) end
        local stored = #d:get_keys(0)
        assert(#d:get_keys() == math.min(stored, 1024) and #d:get_keys(3) == 3 and #d:get_keys(5000) == stored)
        ngx.header.stored = stored",
    );
}

#[test]
fn modules_of_the_distribution_can_be_required() {
    check(
        r#"local cjson, safe = require('cjson'), require('cjson.safe')
        assert(cjson.encode({ a = cjson.null, b = cjson.empty_array }) and cjson.decode('[1]')[1] == 1)
        assert(not pcall(cjson.decode, '{') and select(2, safe.decode('{')))
        assert(cjson.encode(setmetatable({}, cjson.empty_array_mt)) == '[]')
        local cache = require('resty.lrucache').new(2)
        cache:set('a', 1) cache:set('b', 2) assert(cache:get('a') == 1)
        cache:set('c', 3)
        assert(cache:get('b') == nil and cache:get('a') == 1 and cache:get('c') == 3 and cache:count() == 2)
        assert(table.concat(cache:get_keys(), ',') == 'c,a')
        cache:set('d', 4, -1) local value, stale = cache:get('d') assert(value == nil and stale == 4)
        cache:delete('d') cache:flush_all() assert(cache:count() == 0)
        require('resty.core')"#,
    );
}

#[test]
fn sockets_reach_the_pools_that_the_settings_name() {
    let content = "local s = ngx.socket.tcp()
        ngx.say((select(2, s:connect('10.0.0.9', 80))))
        s:settimeout(1000)
        local ok, err = s:connect('127.0.0.1', 6379)
        ngx.say(tostring(ok), ' ', err)";
    let mut app = load(content, &[]);
    let id = app.open("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(app.vm.request(id), CallbackEnd::Waiting);
    app.effects();
    let (socket, _) = app.sockets.remove(0);
    app.vm.socket_ended(2, socket, "refused");
    app.advance(0);
    let (_, body) = app.effects().expect("a response");
    assert!(
        body.starts_with("no pool for 10.0.0.9:80: write ") && body.ends_with("nil refused\n"),
        "{body}"
    );
    app.vm.close_request(id);
}

#[test]
fn exit_leaves_the_access_phase_from_any_coroutine() {
    let access = "ngx.ctx.steps = 'a'
        local function leave() ngx.exit(ngx.OK) ngx.ctx.steps = 'wrong' end
        local wrapped = coroutine.wrap(function()
          if ngx.var.arg_deep then coroutine.wrap(leave)() else leave() end
          ngx.ctx.steps = 'wrong'
        end)
        if ngx.var.arg_sleep then ngx.sleep(0.01) end
        if ngx.var.arg_yield then
          local other = coroutine.create(function() coroutine.yield('mine') end)
          local ok, value = coroutine.resume(other)
          assert(ok and value == 'mine' and coroutine.status(other) == 'suspended')
        end
        pcall(wrapped)
        ngx.ctx.steps = 'wrong'";
    for target in ["/", "/?deep=1", "/?yield=1", "/?sleep=1&deep=1"] {
        let mut app = load("ngx.say(ngx.ctx.steps, ngx.get_phase())", &[("access", access)]);
        let id = app.open(&format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n"));
        app.vm.request(id);
        app.advance(10);
        assert_eq!(app.effects(), Some((200, "acontent\n".to_owned())), "{target}");
        app.vm.close_request(id);
    }
    let mut app = load("ngx.say('content')", &[("access", "coroutine.yield(1)")]);
    let (end, _) = app.get("/");
    assert!(matches!(end, CallbackEnd::Failed(_)), "{end:?}");
}

#[test]
fn handshake_succeeds_only_if_the_pool_has_tls() {
    let content = "local s = ngx.socket.tcp()
        assert(s:connect('127.0.0.1', 6379))
        local session, err = s:sslhandshake(nil, 'a')
        ngx.say(type(session), ' ', err)";
    for (is_secured, expected) in [
        (true, "table nil\n"),
        (false, "nil the pool has no TLS: write tls = true in its settings\n"),
    ] {
        let mut app = load(content, &[]);
        let id = app.open("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(app.vm.request(id), CallbackEnd::Waiting);
        app.effects();
        let (socket, _) = app.sockets.remove(0);
        assert!(app.vm.socket_begun(socket, 5));
        app.vm.socket_connected(2, socket, is_secured);
        app.advance(0);
        assert_eq!(app.effects(), Some((200, expected.to_owned())));
        app.vm.close_request(id);
    }
}

#[test]
fn datagrams_have_the_results_of_the_documentation() {
    let content = "local s = ngx.socket.udp()
        assert(not s:send('early') and not s:receive())
        s:settimeout(500)
        assert(s:setpeername('127.0.0.1', '9000') == 1)
        assert(s:send({ 'a', { 1, 'b' } }) == 1)
        ngx.say(s:receive())
        ngx.say(s:receive(2))
        ngx.say((select(2, s:receive())))
        ngx.say(s:close(), ' ', select(2, s:close()), ' ', select(2, s:setpeername('unix:/x')))
        assert(not pcall(s.setpeername, s, 'a', 0) and not pcall(s.receive, s, 0))";
    let mut app = load(content, &[]);
    let id = app.open("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(app.vm.request(id), CallbackEnd::Waiting);
    app.effects();
    let (socket, what) = app.datagrams.remove(0);
    assert_eq!(what, "open 127.0.0.1:9000");
    let socket = socket.expect("a socket");
    assert!(app.vm.datagrams_opened(2, socket, 5));
    app.advance(0);
    app.effects();
    assert_eq!(app.datagrams.remove(0).1, "5 send a1b");
    let operation = app.sends.remove(0);
    app.vm.complete(2, operation, Ok(b""));
    for data in ["whole", "part"] {
        app.vm.datagram_received(2, socket, data.as_bytes());
    }
    app.advance(0);
    app.advance(500);
    let expected = "whole\npa\ntimeout\n1 closed unix sockets for datagrams are not supported\n";
    assert_eq!(app.effects(), Some((200, expected.to_owned())));
    app.vm.close_request(id);
}

#[test]
fn second_peer_of_a_datagram_socket_closes_the_socket_of_the_first() {
    let content = "local s = ngx.socket.udp()
        for port = 9000, 9001 do
            ngx.thread.spawn(function() assert(s:setpeername('127.0.0.1', port)) ngx.sleep(9) end)
        end
        ngx.sleep(5)
        ngx.say(s:close())
        ngx.exit(200)";
    let mut app = load(content, &[]);
    let id = app.open("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(app.vm.request(id), CallbackEnd::Waiting);
    app.effects();
    app.advance(0);
    app.effects();
    let opened: Vec<_> = app.datagrams.drain(..).filter_map(|(socket, _)| socket).collect();
    assert_eq!(opened.len(), 2, "both have begun before one of them was open");
    for (socket, tag) in opened.into_iter().zip([5, 6]) {
        assert!(app.vm.datagrams_opened(2, socket, tag));
        app.advance(0);
    }
    assert_eq!((app.vm.take_closed_datagrams(), app.vm.take_closed_datagrams()), (Some(5), None));
    app.advance(5000);
    assert_eq!(app.effects(), Some((200, "1\n".to_owned())));
    assert_eq!((app.vm.take_closed_datagrams(), app.vm.datagram_sockets()), (Some(6), 0));
    app.vm.close_request(id);
}

#[test]
fn regular_expressions_have_the_results_of_the_documentation() {
    check(
        r#"local m = ngx.re.match('hello, 1234', '([0-9])[0-9]+')
        assert(m[0] == '1234' and m[1] == '1' and ngx.re.match('hello', '[0-9]') == nil)
        m = ngx.re.match('hello, 1234', '([0-9])(?<remaining>[0-9]+)')
        assert(m.remaining == '234' and m[2] == '234')
        m = ngx.re.match('hello, world', '(world)|(hello)|(?<named>howdy)')
        assert(m[0] == 'hello' and m[1] == false and m[2] == 'hello' and m.named == false)
        local ctx = { pos = 2 }
        assert(ngx.re.match('1234, hello', '[0-9]+', '', ctx)[0] == '234' and ctx.pos == 5)
        local nothing, err = ngx.re.match('a', '(a')
        assert(nothing == nil and err:find('pattern'))
        local from, to, err = ngx.re.find('hello, 1234', '([0-9]+)', 'jo')
        assert(from == 8 and to == 11 and err == nil)
        from, to = ngx.re.find('hello, 1234', '([0-9])([0-9]+)', 'jo', nil, 2)
        assert(from == 9 and to == 11)
        local words = {}
        for one in ngx.re.gmatch('hello, world!', '([a-z]+)', 'i') do words[#words + 1] = one[1] end
        assert(table.concat(words, '|') == 'hello|world')
        local s, n = ngx.re.sub('hello, 1234', '([0-9])[0-9]', '[$0][$1]')
        assert(s == 'hello, [12][1]34' and n == 1)
        assert(ngx.re.sub('hello, 1234', '[0-9]', '${0}00') == 'hello, 100234')
        assert(ngx.re.sub('hello, 1234', '[0-9]', '$$') == 'hello, $234')
        assert(ngx.re.sub('hello, 1234', '([0-9])[0-9]', function(m) return '[' .. m[0] .. '][' .. m[1] .. ']' end) == 'hello, [12][1]34')
        s, n = ngx.re.gsub('hello, world', '([a-z])[a-z]+', '[$0,$1]', 'i')
        assert(s == '[hello,h], [world,w]' and n == 2)
        assert(ngx.re.gsub('abc', '', '-') == '-a-b-c-' and ngx.re.gsub('abc', 'x*', '-') == '-a-b-c-')
        assert(select(3, ngx.re.sub('a', 'a', '$x')) ~= nil and select(2, ngx.re.gmatch('a', '(')) ~= nil)
        local split = require('ngx.re').split
        assert(table.concat(split('a,b,c,d', ','), '|') == 'a|b|c|d' and #split('a,b,c,d', '(,)') == 7)
        assert(table.concat(split('a,b,c,d', ',', nil, nil, 2), '|') == 'a|b,c,d' and #split('', ',') == 1)
        assert(table.concat(split('abc', ''), '|') == 'a|b|c')"#,
    );
}

#[test]
fn scripts_have_globals_but_cannot_take_away_those_of_the_layer() {
    let mut app = load(
        "function helper() end
        counter = (counter or 0) + 1
        print = print
        for _, name in ipairs { 'type', 'ngx', 'tide' } do
            assert(not pcall(loadstring(name .. ' = 1')))
            assert(not pcall(rawset, _G, name, nil))
        end
        ngx.print(counter, ' ', type(ngx.var.uri))",
        &[("init", "counter = 10")],
    );
    for expected in ["11 string", "12 string"] {
        assert_eq!(app.get("/").1, Some((200, expected.to_owned())));
    }
}
