//! Requests of scripts to servers: the effects of scripts, and how scripts continue.
//! In: scripts, responses. Out: the parts of requests, responses of scripts.

mod harness;

use harness::{App, REQUESTS_MAX, TIMED};
use tidegate_lua::{CallbackEnd, OperationId, Response};

/// An application that runs `body` in `on_request`.
fn app(body: &str) -> App {
    let text = format!("return {{ on_request = function(request, response) {body} end }}");
    App::load(&text, &TIMED)
}

/// Runs `body`, which sends one request, and returns it.
fn request_of(body: &str) -> String {
    let mut app = app(body);
    let id = app.open("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(app.vm.request(id), CallbackEnd::Waiting, "{body}");
    app.effects();
    assert_eq!((app.requests.len(), app.vm.operations()), (1, 1), "{body}");
    app.vm.close_request(id);
    assert_eq!((app.vm.operations(), app.vm.waiting()), (0, 0), "its client has left");
    assert_eq!(app.vm.take_cancelled(), None, "the worker has not begun the request");
    app.requests.remove(0).1
}

fn response(status: u16, fields: &str, body: &[u8]) -> Response {
    Response { status, fields: fields.as_bytes().to_vec(), body: body.to_vec() }
}

/// Runs `body` and gives its request the reply. Returns the response.
fn reply(body: &str, reply: Result<Response, &str>) -> String {
    let mut app = app(body);
    let id = app.open("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(app.vm.request(id), CallbackEnd::Waiting, "{body}");
    app.effects();
    let operation = app.requests[0].0;
    assert!(app.vm.note_begun(operation, 5));
    // A reply for an earlier VM is ignored.
    app.vm.complete_request(1, operation, Err("late"));
    assert!(!app.vm.is_ready());
    app.vm.complete_request(2, operation, reply);
    app.vm.complete_request(2, operation, Err("twice"));
    let resumed = app.advance(0);
    assert_eq!(resumed.len(), 1);
    let text = app.effects().expect("it answers").1;
    app.vm.close_request(id);
    assert_eq!((app.vm.operations(), app.vm.take_cancelled()), (0, None), "it was complete");
    text
}

#[test]
fn request_has_the_parts_of_the_options() {
    for (options, expected) in [
        ("", r#"0 GET / "" "" None 1048576 60s"#),
        (
            "path = '/a?b=1', query = { c = 'x y' }",
            r#"0 GET /a?b=1&c=x%20y "" "" None 1048576 60s"#,
        ),
        ("query = 'q'", r#"0 GET /?q "" "" None 1048576 60s"#),
        ("method = 'DELETE', host = 'a:80'", r#"0 DELETE / "a:80" "" None 1048576 60s"#),
        ("body = ''", r#"0 POST / "" "" Some("") 1048576 60s"#),
        (
            "json = { 1 }, headers = { ['x-b'] = { 1, true }, ['X-A'] = 'y' }",
            r#"0 POST / "" "X-A: y\nx-b: 1\nx-b: true\ncontent-type: application/json\n" Some("[1]") 1048576 60s"#,
        ),
        (
            "json = 1, headers = { ['Content-Type'] = 'text/x' }, timeout = 1.5, body_max = 10",
            r#"0 POST / "" "Content-Type: text/x\n" Some("1") 10 1.5s"#,
        ),
        ("body_max = 1e12", r#"0 GET / "" "" None 16777216 60s"#),
    ] {
        let body = format!("tide.http.request{{ pool = 'api', {options} }}");
        assert_eq!(request_of(&body), expected, "{options}");
    }
    assert!(request_of("tide.http.request{ pool = 'other' }").starts_with("1 GET"));
}

#[test]
fn response_continues_the_script() {
    let body = "local r, err = tide.http.request{ pool = 'api' }
        if not r then return response:finish(err) end
        response:finish(tide.json.encode{ r.status, r.body, r:header('X-A') or 'none', type(r.headers['x-b']) })";
    for (answer, expected) in [
        (Ok(response(200, "", b"")), r#"[200,"","none","nil"]"#),
        (
            Ok(response(404, "x-a: 1\nx-b: 2: 3\nx-a: 4\n", b"a\nb")),
            r#"[404,"a\nb","1, 4","string"]"#,
        ),
        (Err("timeout"), "timeout"),
    ] {
        assert_eq!(reply(body, answer), expected);
    }
    let body = "local r = tide.http.request{ pool = 'api' } local v, err = r:json() response:finish(tostring(v and v.a or err))";
    assert_eq!(reply(body, Ok(response(200, "", b"{\"a\":7}"))), "7");
    assert!(reply(body, Ok(response(200, "", b"{"))).contains("at byte"));
}

#[test]
fn wrong_options_are_errors() {
    for (body, error) in [
        ("tide.http.request()", "bad argument #1 to 'tide.http.request' (table expected"),
        ("tide.http.request{}", "the pool 'nil' is not among `pools` of [lua.test]"),
        ("tide.http.request{ pool = 'x' }", "the pool 'x' is not among `pools` of [lua.test]"),
        ("tide.http.request{ pool = 'api', url = '/' }", "unknown option 'url'"),
        ("tide.http.request{ pool = 'api', path = 1 }", "bad option 'path'"),
        ("tide.http.request{ pool = 'api', query = 1 }", "bad option 'query'"),
        ("tide.http.request{ pool = 'api', body = '', json = 1 }", "either 'body' or 'json'"),
        ("tide.http.request{ pool = 'api', headers = { 'a' } }", "must be strings"),
        (
            "tide.http.request{ pool = 'api', headers = { ['a b'] = 1 } }",
            "not a valid name of a header",
        ),
        ("tide.http.request{ pool = 'api', headers = { a = 'x\\ny' } }", "a control character"),
        ("tide.http.request{ pool = 'api', headers = { Host = 'x' } }", "set by the option `host`"),
        (
            "tide.http.request{ pool = 'api', headers = { Content_Length = 1 } }",
            "computed from the body",
        ),
        ("tide.http.x = 1", "cannot be changed"),
    ] {
        let (verdict, _) = app(body).get("/");
        let CallbackEnd::Failed(failure) = verdict else { panic!("{body}: {verdict:?}") };
        assert!(failure.message.contains(error), "{body}: {failure}");
    }
}

#[test]
fn invalid_parts_are_refused() {
    for (options, error) in [
        ("path = 'a'", "begin with a slash"),
        ("path = '/a b'", "percent-encoded"),
        ("path = '/\\r\\nX: y'", "percent-encoded"),
        ("path = '/#f'", "percent-encoded"),
        ("path = '/' .. ('x'):rep(9000)", "up to 8 KiB"),
        ("method = 'G T'", "the method must be a token"),
        ("method = 'connect'", "CONNECT is not supported"),
        ("host = 'a\\nb'", "the host must be"),
        ("host = 'a/b'", "the host must be"),
        ("headers = { a = ('x'):rep(20000) }", "exceed 16 KiB"),
        ("body = ('x'):rep(17 * 1024 * 1024)", "memory"),
        ("json = print", "functions, coroutines and userdata cannot"),
    ] {
        let body = format!(
            "local ok, r, err = pcall(tide.http.request, {{ pool = 'api', {options} }}) response:finish(tostring(err or r))"
        );
        let (verdict, answer) = app(&body).get("/");
        let text = match (verdict, answer) {
            (CallbackEnd::Failed(failure), _) => failure.message,
            (_, answer) => answer.expect("it answers").1,
        };
        assert!(text.contains(error), "{options}: {text}");
    }
    let mut no_wait = app("local result, err
        xpcall(error, function() result, err = tide.http.request{ pool = 'api' } end)
        response:finish(tostring(err))");
    let (_, response) = no_wait.get("/");
    assert!(response.expect("it answers").1.starts_with("functions that wait cannot"));
    assert_eq!((no_wait.requests.len(), no_wait.vm.operations()), (0, 0));
}

#[test]
fn number_of_requests_is_bounded() {
    let mut app = app("for _ = 1, 4 do
            tide.spawn(function()
                local r, err = tide.http.request{ pool = 'api' }
                if not r then tide.log.info(err) end
            end)
        end
        response:finish('x')");
    app.get("/");
    app.advance(0);
    app.effects();
    assert_eq!((app.requests.len(), app.vm.operations()), (REQUESTS_MAX, REQUESTS_MAX));
    assert_eq!(app.log, ["Info too many requests of the application are in progress"]);
    let operations: Vec<OperationId> = app.requests.drain(..).map(|(id, _)| id).collect();
    for id in operations {
        app.vm.complete_request(2, id, Ok(response(200, "", b"")));
    }
    app.advance(0);
    assert_eq!(app.vm.operations(), 0);
    app.get("/");
    app.advance(0);
    app.effects();
    assert_eq!(app.requests.len(), REQUESTS_MAX, "there is room again");
}

#[test]
fn request_is_cancelled_with_its_coroutine() {
    let mut app = app("tide.http.request{ pool = 'api' }");
    let id = app.open("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    app.vm.request(id);
    app.effects();
    let operation = app.requests[0].0;
    assert!(app.vm.note_begun(operation, 77));
    app.vm.close_request(id);
    assert_eq!((app.vm.take_cancelled(), app.vm.take_cancelled()), (Some(77), None));
    assert!(!app.vm.note_begun(operation, 78), "no coroutine waits for it");
    app.vm.complete_request(2, operation, Ok(response(200, "", b"")));
    assert_eq!((app.vm.operations(), app.vm.is_ready()), (0, false));
}
