//! The choice of a server: what `on_balance` gets, what its results mean, and that it cannot wait.
//! In: requests, servers. Out: choices.

mod harness;

use harness::{App, TIMED};
use tidegate_lua::{BalanceParts, CallbackEnd, Excess, Handler};

const GET: &str = "GET /a?b=1 HTTP/1.1\r\nHost: example.com\r\nX-Server: two\r\n\r\n";
/// The second server is not free, and the third one was tried.
const SERVERS: &[u8] = b"one\t10\ntwo\t00\n10.0.0.3:80\t01\n";

/// Runs `body` as `on_balance`. Returns how it ended, and the index that it has chosen.
fn run(body: &str) -> (CallbackEnd, Option<usize>) {
    let script = format!("return {{ on_balance = function(request, attempt) {body} end }}");
    let mut app = App::load(&script, &TIMED);
    assert!(app.vm.has(Handler::Balance));
    let id = app.open_hook(GET, &[]);
    let parts = BalanceParts { pool: "app", number: 2, servers: SERVERS, count: 3 };
    let verdict = app.vm.balance(id, &parts);
    let choice = app.vm.take_choice(id);
    assert_eq!(app.vm.take_choice(id), None, "a choice is taken once");
    assert_eq!(app.effects(), None, "{body}");
    app.vm.close_request(id);
    assert_eq!((app.vm.requests(), app.vm.waiting()), (0, 0), "{body}");
    (verdict, choice)
}

#[test]
fn script_chooses_a_server_by_index_or_name() {
    for (body, expected) in [
        ("return 1", Some(0)),
        ("return 3", Some(2)),
        ("return '10.0.0.3:80'", Some(2)),
        ("return request:header('x-server')", Some(1)),
        ("return attempt.number", Some(1)),
        ("return #attempt.servers", Some(2)),
        (
            "for _, server in ipairs(attempt.servers) do if server.is_free then return server.index end end",
            Some(0),
        ),
        (
            "for _, server in ipairs(attempt.servers) do if server.was_tried then return server.name end end",
            Some(2),
        ),
        ("return attempt.pool == 'app' and request.path == '/a' and 2 or nil", Some(1)),
        ("return nil", None),
        ("", None),
        ("return attempt.other", None),
    ] {
        assert_eq!(run(body), (CallbackEnd::Done, expected), "{body}");
    }
}

#[test]
fn wrong_choices_are_errors() {
    for (body, error) in [
        ("return 0", "on_balance: the pool has no server 0; it has 3"),
        ("return 4", "the pool has no server 4"),
        ("return 1.5", "the pool has no server 1.5"),
        ("return 0/0", "the pool has no server NaN"),
        ("return 'none'", "on_balance: the pool 'app' has no server 'none'"),
        (
            "return {}",
            "on_balance must return the index or the name of a server, or nil, it returned: table",
        ),
        ("return true", "it returned: boolean"),
        ("error('it fails')", "it fails"),
        ("request:set_path(1)", "bad argument #1 to 'set_path'"),
    ] {
        let (verdict, choice) = run(body);
        let CallbackEnd::Failed(failure) = verdict else { panic!("{body}: {verdict:?}") };
        assert!(failure.message.contains(error), "{body}: {failure}");
        assert_eq!(choice, None, "{body}");
    }
    let (verdict, _) = run("while true do end");
    let CallbackEnd::Failed(failure) = verdict else { panic!("{verdict:?}") };
    assert_eq!(failure.excess, Some(Excess::Time));
}

#[test]
fn hook_cannot_wait() {
    let (verdict, choice) = run("local ok, err = tide.sleep(1)
        assert(not ok and err:find('cannot be used here'))
        return 2");
    assert_eq!((verdict, choice), (CallbackEnd::Done, Some(1)));
}
