//! Coroutines of scripts: how deep they nest, and which of them can be resumed.
//! In: scripts, time. Out: verdicts and responses. None of the scripts may end the process.

mod harness;

use harness::{App, COUNTED, TIMED};
use tidegate_lua::CallbackEnd;

/// Runs `body` in `on_request` on a thread with the stack of a worker, and returns the response.
fn run(body: &str) -> (CallbackEnd, Option<(u16, String)>) {
    let text = format!("return {{ on_request = function(request, response) {body} end }}");
    let run = move || {
        for bounds in [TIMED, COUNTED] {
            let mut app = App::load(&text, &bounds);
            let outcome = app.get("/");
            if bounds.budget == COUNTED.budget {
                return outcome;
            }
        }
        unreachable!("the last bounds are COUNTED")
    };
    let thread = std::thread::Builder::new().stack_size(2 * 1024 * 1024).spawn(run);
    thread.expect("a thread can be started").join().expect("the thread ends")
}

fn answer(text: &str) -> (CallbackEnd, Option<(u16, String)>) {
    (CallbackEnd::Done, Some((200, text.to_owned())))
}

#[test]
fn nesting_of_coroutines_is_bounded() {
    let nest = |depth: &str, more: &str| {
        format!(
            "local function f(n)
                if n == {depth} then return 'reached' end
                {more}
                return coroutine.wrap(function() return f(n + 1) end)()
            end
            local ok, err = pcall(f, 0)
            response:finish(ok and err or 'error: ' .. tostring(err):match('C stack overflow'))"
        )
    };
    assert_eq!(run(&nest("199", "")), answer("reached"));
    assert_eq!(run(&nest("100000", "")), answer("error: C stack overflow"));
    let handler = "local m = setmetatable({}, { __tostring = function() return 'm' end })
        xpcall(error, function() return string.format('%s', m) end)";
    assert_eq!(run(&nest("199", handler)), answer("reached"));
    let resume = "local function f(n)
            local ok, err = coroutine.resume(coroutine.create(function() return f(n + 1) end))
            if not ok then error(err, 0) end
            return err
        end
        response:finish(tostring(select(2, pcall(f, 0))))";
    assert_eq!(run(resume), answer("C stack overflow"));
}

#[test]
fn resuming_the_resumer_does_not_count_as_nesting() {
    let body = "local outer
        outer = coroutine.create(function()
            for _ = 1, 1000 do coroutine.wrap(function() assert(not coroutine.resume(outer)) end)() end
            return 'done'
        end)
        response:finish(select(2, coroutine.resume(outer)))";
    assert_eq!(run(body), answer("done"));
}

#[test]
fn tables_are_formatted_without_recursion_in_c() {
    let endless = "local m = {}
        m.__tostring = function(self) return 'a' .. string.format('%s', self) end
        local ok, err = pcall(string.format, '%s', setmetatable({}, m))
        response:finish(tostring(ok) .. ' ' .. tostring(err):match('stack overflow'))";
    assert_eq!(run(endless), answer("false stack overflow"));
    let formats = "local m = setmetatable({}, { __tostring = function() return 'm' end })
        response:finish(string.format('%s %d %5s %s %q', m, 3, m, nil, 'x'))";
    assert_eq!(run(formats), answer("m 3     m nil \"x\""));
    let wrong = "local ok, err = pcall(function() local s = string.format('%d', 'x') return s end)
        response:finish(err)";
    let (_, response) = run(wrong);
    let text = response.expect("a response").1;
    assert!(text.starts_with("app.lua:") && text.contains("bad argument #2 to 'format'"), "{text}");
}

#[test]
fn wait_that_cannot_suspend_its_callback_is_refused_and_forgotten() {
    let body = "local seen
        xpcall(error, function()
            seen = { coroutine.wrap(function() return tide.sleep(5) end)() }
        end)
        local each = coroutine.wrap(function() coroutine.yield('b') coroutine.yield('c') end)
        response:finish(tostring(seen[1]) .. ' ' .. tostring(seen[2]):sub(1, 19) .. each() .. each())";
    assert_eq!(run(body), answer("nil functions that waitbc"));
}

#[test]
fn coroutine_that_waits_is_resumed_by_its_callback_only() {
    let text = "local co, main
        return { on_request = function(request, response)
            if request.path == '/wait' then
                main = coroutine.running()
                co = coroutine.create(function() tide.sleep(1) coroutine.yield('one') return 'two' end)
                local _, first = coroutine.resume(co)
                local _, second = coroutine.resume(co)
                return response:finish(first .. second)
            end
            local _, ofco = coroutine.resume(co, 'data')
            local _, ofmain = coroutine.resume(main, 'data')
            response:finish(ofco .. ', ' .. ofmain)
        end }";
    let mut app = App::load(text, &TIMED);
    let first = app.open("GET /wait HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(app.vm.request(first), CallbackEnd::Waiting);
    let refusal = "cannot resume non-suspended coroutine";
    assert_eq!(app.get("/other"), answer(&format!("{refusal}, {refusal}")));
    app.advance(1000);
    assert_eq!(app.effects(), Some((200, "onetwo".to_owned())));
}

#[test]
fn environments_of_levels_are_those_of_the_script() {
    let body = "local function inner() setfenv(2, { mark = 'outer' }) end
        local function outer() inner() return mark end
        local function own() setfenv(1, { mark = 'own' }) return mark end
        response:finish(own() .. ' ' .. outer() .. ' ' .. tostring(mark))";
    assert_eq!(run(body), answer("own outer nil"));
}
