//! Code of the console: how values are shown, and what is stopped.
//! In: code. Out: texts, errors.

mod harness;

use harness::{App, TIMED};
use tidegate_lua::{CallbackEnd, Excess};

fn app() -> App {
    App::load("count = 7 return { on_request = function() end }", &TIMED)
}

fn shown(code: &str) -> String {
    let (verdict, text) = app().vm.evaluate(code.as_bytes());
    assert_eq!(verdict, CallbackEnd::Done, "{code}");
    text
}

#[test]
fn values_are_shown() {
    for (code, expected) in [
        ("1 + 1", "2"),
        ("count", "7"),
        ("'a\"b', nil, true", "\"a\\\"b\"\nnil\ntrue"),
        (
            "local a = 1 return a, { b = { 1, 'x' }, a = tide.app }",
            "1\n{ a = \"test\", b = { [1] = 1, [2] = \"x\" } }",
        ),
        ("local a = 1", ""),
        ("{ { { { { 1 } } } } }", "{ [1] = { [1] = { [1] = { [1] = { ... } } } } }"),
        ("setmetatable({ 1 }, { __index = function() error('x') end })", "{ [1] = 1 }"),
    ] {
        let text = shown(code);
        let text = text.replace(&app().vm.evaluate(b"tide.app").1, "\"test\"");
        assert_eq!(text, expected, "{code}");
    }
    let long = shown("('x'):rep(100000)");
    assert!(long.len() < 66_000 && long.ends_with("\n... (cut)"), "{}", long.len());
    let many = shown("local t = {} for n = 1, 1000 do t[n] = n end return t");
    assert!(many.ends_with(", ... }"), "{many}");
    assert!(shown("local t = {} t.t = t return t").contains("t = { ... }"));
}

#[test]
fn errors_and_loops_are_stopped_and_the_vm_lives() {
    let mut app = app();
    for (code, error) in [
        ("return return", "console:1:"),
        ("error('it fails')", "it fails"),
        ("local a = 1 error('it fails')", "console:1: it fails"),
        ("other = 1", "other"),
        ("nothing.x", "nothing"),
        ("\u{1b}LJ", "bytecode is not allowed"),
    ] {
        let (verdict, text) = app.vm.evaluate(code.as_bytes());
        let CallbackEnd::Failed(failure) = verdict else { panic!("{code}: {verdict:?} {text}") };
        assert!(failure.message.contains(error), "{code}: {failure}");
        assert_eq!(text, "");
    }
    let (verdict, _) = app.vm.evaluate(b"while true do end");
    let CallbackEnd::Failed(failure) = verdict else { panic!("{verdict:?}") };
    assert_eq!(failure.excess, Some(Excess::Time));
    let (verdict, text) = app.vm.evaluate(b"select(2, tide.sleep(1))");
    assert_eq!(verdict, CallbackEnd::Done);
    assert!(text.contains("functions that wait cannot be used here"), "{text}");
    assert_eq!((app.vm.evaluate(b"count").1.as_str(), app.vm.waiting()), ("7", 0));
}
