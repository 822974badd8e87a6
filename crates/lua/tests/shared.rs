//! `tide.shared`: dictionaries that several VMs share.
//! In: scripts. Out: their results.

mod harness;

use std::sync::Arc;

use harness::{App, TIMED};
use tidegate_lua::{CallbackEnd, Dictionary};

/// The value of a Lua expression after `code`, as a string.
fn eval(code: &str, expression: &str) -> String {
    let text = format!(
        "return {{ on_request = function(request, response)
            local d = tide.shared.cache
            {code}
            local results = {{ pcall(function() return {expression} end) }}
            for at = 1, 6 do results[at] = tostring(results[at]) end
            response:finish(table.concat(results, ' '))
        end }}"
    );
    let mut app = App::load(&text, &TIMED);
    match app.get("/") {
        (CallbackEnd::Done, Some((200, body))) => body.trim_end_matches(" nil").to_owned(),
        other => panic!("{expression}: {other:?}"),
    }
}

#[test]
fn values_are_stored_changed_and_removed() {
    let cases = [
        ("", "d:get('a')", "true"),
        ("d:set('a', 'x')", "d:get('a')", "true x"),
        ("d:set('a', false)", "d:get('a')", "true false"),
        ("d:set('a', 1.5)", "d:get('a')", "true 1.5"),
        ("d:set(5, 'x')", "d:get('5')", "true x"),
        ("d:set('a\\0b', 'x\\0y')", "#d:get('a\\0b'), d:get('a')", "true 3"),
        ("d:set('a', 1)", "d:add('a', 2)", "true nil exists"),
        ("", "d:add('a', 2), d:get('a')", "true true 2"),
        ("", "d:replace('a', 2)", "true nil not found"),
        ("d:set('a', 1)", "d:replace('a', 2), d:get('a')", "true true 2"),
        ("", "d:incr('n')", "true nil not found"),
        ("", "d:incr('n', 2, 40), d:incr('n'), d:incr('n', -3)", "true 42 43 40"),
        ("d:set('a', 'x')", "d:incr('a')", "true nil not a number"),
        (
            "",
            "d:compare_and_set('a', nil, 1), d:compare_and_set('a', nil, 2)",
            "true true nil changed",
        ),
        ("d:set('a', 1)", "d:compare_and_set('a', 1, 2), d:get('a')", "true true 2"),
        ("d:set('a', 1)", "d:compare_and_set('a', 1, nil), d:get('a')", "true true"),
        ("d:set('a', 1)", "d:delete('a'), d:delete('a'), d:get('a')", "true true false"),
        (
            "d:rpush('l', 1) d:rpush('l', 2) d:lpush('l', 'a')",
            "d:llen('l'), d:lpop('l'), d:rpop('l')",
            "true 3 a 2",
        ),
        ("d:rpush('l', 1) d:lpop('l')", "d:llen('l'), d:lpop('l'), d:size()", "true 0 nil 0 0"),
        ("d:rpush('l', 1)", "d:get('l')", "true nil the value is a list"),
        ("d:set('a', 1)", "d:rpush('a', 1)", "true nil the value is not a list"),
        (
            "d:set('a', 1) d:set('b', 2) d:get('a')",
            "table.concat(d:keys(), ','), #d:keys(1)",
            "true a,b 1",
        ),
        ("d:set('a', 1) d:clear()", "d:get('a'), d:size()", "true nil 0 0"),
        (
            "",
            "d:set('a', ('x'):rep(100000))",
            "true nil the value is too large for this dictionary",
        ),
        ("", "d:set(('k'):rep(5000), 1)", "true nil the key exceeds 4 KiB"),
    ];
    for (code, expression, expected) in cases {
        assert_eq!(eval(code, expression), expected, "{code} {expression}");
    }
}

#[test]
fn wrong_calls_are_errors() {
    for (expression, expected) in [
        (
            "d:set('a', {})",
            "bad argument #2 to 'set' (string, number or boolean expected, got table)",
        ),
        (
            "d:set('a')",
            "bad argument #2 to 'set' (string, number or boolean expected, got no value)",
        ),
        ("d:get()", "bad argument #1 to 'get' (string expected, got no value)"),
        ("d:set('a', 1, 'x')", "bad argument #3 to 'set' (number expected, got string)"),
        ("tide.shared.other", "there is no dictionary 'other': write it in `shared` of [lua.test]"),
        (
            "(function() tide.shared.cache.x = 1 end)()",
            "a dictionary has no fields; use its method 'set'",
        ),
        ("d.get('a')", "bad argument #1 to 'get'"),
    ] {
        let result = eval("", expression);
        assert!(result.starts_with("false") && result.contains(expected), "{expression}: {result}");
    }
}

#[test]
fn entries_end_after_their_time() {
    let text = "return { on_request = function(request, response)
        local d = tide.shared.cache
        d:set('a', 1, 0.5) d:set('b', 2) d:expire('b', 1.5) d:add('c', 3, 60)
        local first = tostring(d:ttl('a')) .. ' ' .. tostring(d:ttl('c'))
        tide.sleep(1)
        tide.log.info(first, d:get('a'), d:get('b'), d:add('a', 5))
        d:expire('a', nil)
        tide.sleep(1)
        tide.log.info(d:get('a'), d:get('b'), d:ttl('a'), d:ttl('b'))
    end }";
    let mut app = App::load(text, &TIMED);
    let id = app.open("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    app.vm.request(id);
    app.advance(1000);
    app.advance(1000);
    app.effects();
    assert_eq!(app.log, ["Info 0.5 60 nil 2 true", "Info 5 nil inf nil"]);
}

#[test]
fn vms_see_the_entries_of_each_other() {
    let text = "return { on_request = function(request, response)
        response:finish(tostring(tide.shared.cache:incr('visits', 1, 0)))
    end }";
    let dictionary = Arc::new(Dictionary::new(64 * 1024));
    let mut apps = [(); 2].map(|()| App::load_sharing(text, &TIMED, &dictionary));
    let counts = [0, 1, 1, 0].map(|at: usize| apps[at].get("/").1.expect("it answers").1);
    assert_eq!(counts, ["1", "2", "3", "4"]);
}
