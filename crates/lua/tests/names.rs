//! Lookups of names by scripts: the effects of scripts, and the results that they get.
//! In: scripts, results. Out: effects, responses of scripts.

mod harness;

use harness::{App, TIMED};
use tidegate_lua::CallbackEnd;

/// The number of the VM.
const LIFE: u32 = 2;

/// Runs `body`, which returns a string. `replies` are the results of its lookups, by their questions.
fn run(body: &str, replies: &[(&str, Result<&str, &str>)]) -> String {
    let text = format!(
        "return {{ on_request = function(request, response)
            local function try() {body} end
            local ok, text = pcall(try)
            response:finish(tostring(text)) end }}"
    );
    let mut app = App::load(&text, &TIMED);
    let id = app.open("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    let mut verdict = app.vm.request(id);
    for (question, reply) in replies {
        assert_eq!(verdict, CallbackEnd::Waiting, "{question}");
        app.effects();
        let (operation, what) = app.lookups.pop().expect("a lookup");
        assert_eq!(what, *question);
        app.vm.complete(LIFE, operation, reply.map(str::as_bytes));
        verdict = app.advance(0).pop().expect("it continues").verdict;
    }
    let response = app.effects().expect("a response").1;
    app.vm.close_request(id);
    assert_eq!((app.vm.operations(), app.lookups.len()), (0, 0));
    response
}

#[test]
fn records_and_their_lifetime_are_returned() {
    let body =
        "local found, seconds = tide.dns.resolve('A.Example.') return found[2] .. ' ' .. seconds";
    let reply = r#"{"records":["10.0.0.1","10.0.0.2"],"seconds":7}"#;
    assert_eq!(run(body, &[("A a.example", Ok(reply))]), "10.0.0.2 7");
    let body = "return tide.dns.resolve('_x._tcp.a', 'SRV')[1].target";
    let reply = r#"{"records":[{"priority":1,"weight":2,"port":3,"target":"b"}],"seconds":7}"#;
    assert_eq!(run(body, &[("SRV _x._tcp.a", Ok(reply))]), "b");
    let body = "return select(2, tide.dns.resolve('a', 'TXT'))";
    assert_eq!(run(body, &[("TXT a", Err("timeout"))]), "timeout");
}

#[test]
fn names_of_this_host_and_invalid_names_are_not_queried() {
    for (call, expected) in [
        ("tide.dns.resolve('LocalHost')[1]", "127.0.0.1"),
        ("tide.dns.resolve('a.localhost.', 'AAAA')[1]", "::1"),
        ("select(2, tide.dns.resolve('a b'))", "not a valid DNS name"),
        ("select(2, tide.dns.resolve(('a'):rep(64)))", "not a valid DNS name"),
        ("select(2, tide.dns.resolve('\\255'))", "not a valid DNS name"),
    ] {
        assert_eq!(run(&format!("return {call}"), &[]), expected, "{call}");
    }
    for (call, expected) in [
        ("tide.dns.resolve()", "bad argument #1 to 'resolve' (string expected, got no value)"),
        (
            "tide.dns.resolve('a', 'MX')",
            "bad argument #2 to 'resolve' (\"A\", \"AAAA\", \"SRV\" or \"TXT\" expected, got string)",
        ),
    ] {
        assert!(run(call, &[]).ends_with(expected), "{call}");
    }
}

#[test]
fn sockets_for_datagrams_accept_names() {
    let body = "local s, err = tide.udp.connect('a', 9) return err";
    let none = Err("the name has no such records");
    let found = run(body, &[("A a", none), ("AAAA a", none)]);
    assert_eq!(found, "a: the name has no such records");
    assert_eq!(run(body, &[("A a", Err("timeout"))]), "a: timeout");
}
