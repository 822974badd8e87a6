//! Calls of push hubs: the effects of scripts, and how scripts continue.
//! In: scripts, results. Out: the arguments of calls, responses of scripts.

mod harness;

use harness::{App, TIMED};
use tidegate_lua::CallbackEnd;

/// An application that runs `body` in `on_request`.
fn app(body: &str) -> App {
    let text = format!("return {{ on_request = function(request, response) {body} end }}");
    App::load(&text, &TIMED)
}

/// Runs `body`, which makes one call, and returns the call.
fn call_of(body: &str) -> String {
    let mut app = app(body);
    let id = app.open("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(app.vm.request(id), CallbackEnd::Waiting, "{body}");
    app.effects();
    assert_eq!((app.calls.len(), app.vm.operations()), (1, 1), "{body}");
    app.vm.close_request(id);
    assert_eq!((app.vm.operations(), app.vm.waiting()), (0, 0), "its client has left");
    app.calls.remove(0).1
}

/// Runs `body` and replies to its call. Returns the response.
fn reply(body: &str, reply: Result<&[u8], &str>) -> String {
    let mut app = app(body);
    let id = app.open("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(app.vm.request(id), CallbackEnd::Waiting);
    app.effects();
    let operation = app.calls[0].0;
    // A reply for an earlier VM is ignored.
    app.vm.complete(1, operation, Ok(b"{}"));
    assert!(!app.vm.is_ready());
    app.vm.complete(2, operation, reply);
    app.vm.complete(2, operation, Ok(b"{}"));
    assert_eq!(app.advance(0).len(), 1);
    let (_, text) = app.effects().expect("it answers");
    app.vm.close_request(id);
    app.vm.complete(2, operation, Ok(b"{}"));
    assert_eq!((app.vm.operations(), app.vm.is_ready()), (0, false));
    text
}

#[test]
fn calls_have_the_arguments_of_the_server_api() {
    for (body, expected) in [
        ("tide.push.live:publish('a', 'x')", r#"{"channel":"a","data":"x"}"#),
        ("tide.push.live:broadcast({}, false)", r#"{"channels":[],"data":false}"#),
        ("tide.push.live:presence('a')", r#"{"channel":"a"}"#),
        ("tide.push.live:channels()", r#"{"pattern":""}"#),
        ("tide.push.live:disconnect{ user = 'ann' }", r#"{"user":"ann"}"#),
    ] {
        let call = call_of(body);
        let (method, arguments) =
            call.strip_prefix("live ").unwrap_or_default().split_once(' ').expect("two");
        assert!(body.contains(&format!(":{method}")), "{call}");
        let sorted = |text: &str| {
            let mut parts: Vec<String> =
                text.split(',').map(|p| p.trim_matches(['{', '}']).to_owned()).collect();
            parts.sort();
            parts
        };
        assert_eq!(sorted(arguments), sorted(expected), "{body}");
    }
}

#[test]
fn result_continues_the_script() {
    let body = "local result, err, code = tide.push.live:history('a')
        response:finish(tide.json.encode(result) .. ' ' .. tostring(err) .. ' ' .. tostring(code))";
    for (answer, expected) in [
        (Ok(&br#"{"result":{"offset":3}}"#[..]), r#"{"offset":3} nil nil"#),
        (Ok(br#"{"error":{"code":108,"message":"not available"}}"#), "null not available 108"),
        (Err("no hub"), "null no hub nil"),
    ] {
        assert_eq!(reply(body, answer), expected);
    }
}

#[test]
fn wrong_calls_are_errors() {
    for (body, error) in [
        ("tide.push.other:info()", "there is no hub 'other'"),
        ("tide.push.live:publish(1, 2)", "bad argument #1 to 'publish' (string expected"),
        ("tide.push.live:publish('a')", "bad argument #2 to 'publish'"),
        ("tide.push.live:publish('a', 1, 2)", "bad argument #3 to 'publish' (table expected"),
        ("tide.push.live:subscribe()", "bad argument #1 to 'subscribe' (table expected"),
        ("tide.push.live.x = 1", "a hub has no fields"),
        ("tide.push.x = 1", "cannot be changed"),
    ] {
        let (verdict, _) = app(body).get("/");
        let CallbackEnd::Failed(failure) = verdict else { panic!("{body}: {verdict:?}") };
        assert!(failure.message.contains(error), "{body}: {failure}");
    }
    let mut no_wait = app("local result, err
        xpcall(error, function() result, err = tide.push.live:info() end)
        response:finish(tostring(err))");
    let (_, response) = no_wait.get("/");
    assert!(response.expect("it answers").1.starts_with("functions that wait cannot be used here"));
    assert_eq!((no_wait.calls.len(), no_wait.vm.operations()), (0, 0));
}

#[test]
fn call_of_a_job_that_fails_afterwards_ends() {
    let mut app =
        app("tide.spawn(function() tide.push.live:info() error('later') end) response:finish('x')");
    app.get("/");
    app.advance(0);
    app.effects();
    let operation = app.calls[0].0;
    app.vm.complete(2, operation, Ok(b"{\"result\":{}}"));
    let resumed = app.advance(0);
    assert!(matches!(resumed[0].verdict, CallbackEnd::Failed(_)));
    assert_eq!(app.vm.operations(), 0);
    // `stop` cancels all operations.
    app.get("/");
    app.advance(0);
    assert_eq!(app.vm.operations(), 1);
    app.vm.stop();
    assert_eq!(app.vm.operations(), 0);
}
