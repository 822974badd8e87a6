//! Scripts that run too long or hold too much: each is stopped, and its VM serves the next request.
//! In: scripts. Out: verdicts. Bounded by the budgets themselves.

mod harness;

use std::time::{Duration, Instant};

use harness::{App, COUNTED, TIMED};
use tidegate_base::Span;
use tidegate_lua::{Bounds, Budget, CallbackEnd, Excess};

/// Statements that never end by themselves. LuaJIT compiles most of them.
const ENDLESS: [&str; 14] = [
    "while true do end",
    "repeat until false",
    "for i = 1, math.huge do end",
    "local n = 0; while true do n = n + 1 end",
    "local function f() return f() end f()",
    "local t = {}; while true do t[1] = (t[1] or 0) + 1 end",
    "while true do pcall(error, 'x') end",
    "while true do pcall(function() while true do end end) end",
    "xpcall(function() error('x') end, function() while true do end end)",
    "coroutine.wrap(function() while true do end end)()",
    "while true do coroutine.wrap(function() while true do end end)() end",
    "table.sort({3, 2, 1}, function() while true do end end)",
    "local m = setmetatable({}, {__index = function() while true do end end}); return m.x",
    "for _ in function() return 1 end do end",
];

/// Numbers in an order for which a quick sort by the median of three takes quadratic time (McIlroy, "A Killer Adversary for
/// Quicksort", 1999), in the variant of Lua 5.1.
const SORT_KILLER: &str = "
    local count, order, killer = 30000, {}, {}
    for i = 1, count do order[i] = i end
    local low, high, value = 1, count, 1
    while high - low >= 4 do
        local middle = math.floor((low + high) / 2)
        killer[order[low]], killer[order[middle]] = value, value + 1
        value = value + 2
        order[middle], order[high - 1] = order[high - 1], order[middle]
        order[high - 1], order[low + 1] = order[low + 1], order[high - 1]
        low = low + 2
    end
    for i = low, high do killer[order[i]], value = value, value + 1 end
    table.sort(killer)
    for i = 2, count do assert(killer[i - 1] < killer[i]) end
";

/// Work that LuaJIT would do in C, where no hook runs.
const IN_C: [&str; 7] = [
    "return string.find(string.rep('a', 20000), '.-.-.-.-b')",
    "return string.match(string.rep('a', 20000), '(a*)*b?(a*)*(a*)(a*)c')",
    "return string.gsub(string.rep('a', 20000), '.-.-.-b', 'x')",
    "for w in string.gmatch(string.rep('a', 20000), 'a-a-a-a-b') do end",
    "return string.find(string.rep('(', 200000), '%b()%b()')",
    "local t = {}; for i = 1, 40 do t = {t, t} end; return tide.json.encode(t)",
    "while true do string.find('aaaa', 'a-b') end",
];

#[test]
fn endless_code_stops_within_its_budget_and_the_vm_stays_usable() {
    for code in ENDLESS.iter().chain(&IN_C) {
        for bounds in [TIMED, COUNTED] {
            let text = format!(
                "return {{ on_request = function(request, response)
                    if request.path == '/bad' then {code} end
                    response:finish('good')
                end }}"
            );
            let mut app = App::load(&text, &bounds);
            let begin = Instant::now();
            let verdict = app.get("/bad").0;
            let elapsed = begin.elapsed();
            match (&verdict, *code) {
                (CallbackEnd::Failed(failure), _) if failure.excess == Some(Excess::Time) => {}
                // These end by another bound.
                (CallbackEnd::Failed(failure), _) if failure.excess == Some(Excess::Memory) => {}
                (CallbackEnd::Done, code) if IN_C.contains(&code) && !code.starts_with("while") => {
                }
                _ => panic!("{code}: {verdict:?}"),
            }
            // CPU time bounds the callback; wall time depends on the machine's other work.
            assert!(elapsed < Duration::from_secs(20), "{code} took {elapsed:?}");
            assert_eq!(
                app.get("/good"),
                (CallbackEnd::Done, Some((200, "good".into()))),
                "after {code}"
            );
        }
    }
}

#[test]
fn compiled_loop_is_stopped_after_about_its_budget_of_cpu_time() {
    let mut app = App::load(
        "return { on_request = function(request, response) while true do end end }",
        &TIMED,
    );
    let begin = harness::cpu_time();
    let verdict = app.get("/").0;
    let spent = harness::cpu_time() - begin;
    assert!(
        matches!(&verdict, CallbackEnd::Failed(failure) if failure.excess == Some(Excess::Time))
    );
    // The budget is 50 ms; a tick of the scheduler may be 10 ms.
    assert!(spent < Duration::from_millis(50 + 30), "{spent:?}");
}

#[test]
fn sort_takes_no_longer_than_its_budget_whatever_the_order() {
    let text = format!(
        "return {{ on_request = function(request, response) {SORT_KILLER} response:finish('sorted') end }}"
    );
    let mut app = App::load(&text, &TIMED);
    let begin = harness::cpu_time();
    let verdict = app.get("/").0;
    let spent = harness::cpu_time() - begin;
    assert!(spent < Duration::from_millis(50 + 30), "{verdict:?} after {spent:?}");
    let mut patient = App::load(&text, &COUNTED);
    let (verdict, response) = patient.get("/");
    match verdict {
        CallbackEnd::Done => assert_eq!(response, Some((200, "sorted".into()))),
        CallbackEnd::Failed(failure) => assert_eq!(failure.excess, Some(Excess::Time)),
        CallbackEnd::Waiting => panic!("it waits for nothing"),
    }
}

#[test]
fn functions_in_c_take_no_longer_than_the_budget_whatever_their_arguments() {
    let long = [
        "pcall(table.insert, {}, -2147483647, nil)",
        "pcall(table.insert, {}, '-2147483647', nil)",
        "pcall(table.insert, {}, 2 ^ 40, nil)",
        "pcall(table.insert, {}, 0 / 0, nil)",
        "pcall(string.rep, '', 2 ^ 31 - 1)",
        "pcall(string.find, ('x'):rep(4096), '[' .. ('y'):rep(200000) .. ']')",
        "pcall(string.find, ('x'):rep(4096), '%f[' .. ('y'):rep(200000) .. ']')",
        "pcall(string.find, ('x'):rep(30000), '(x*)%1y')",
        "pcall(tide.json.encode, ('\\0'):rep(3e6))",
    ];
    for code in long {
        let text = format!(
            "return {{ on_request = function(request, response) {code} response:finish('done') end }}"
        );
        let mut app = App::load(&text, &TIMED);
        let begin = harness::cpu_time();
        let verdict = app.get("/").0;
        let spent = harness::cpu_time() - begin;
        assert!(spent < Duration::from_millis(50 + 50), "{code}: {verdict:?} after {spent:?}");
    }
}

#[test]
fn error_that_names_memory_is_not_an_excess() {
    let text = "return { on_request = function() error('cannot parse: not enough memory') end }";
    let CallbackEnd::Failed(failure) = App::load(text, &TIMED).get("/").0 else {
        panic!("the callback succeeds")
    };
    assert_eq!(failure.excess, None, "{failure:?}");
}

#[test]
fn stopped_callback_has_a_traceback() {
    let text = "local function spin()\n  while true do end\nend\n\
        return { on_request = function() spin() end }";
    let CallbackEnd::Failed(failure) = App::load(text, &TIMED).get("/").0 else {
        panic!("the callback succeeds")
    };
    assert!(failure.trace.contains("app.lua:2:"), "{}", failure.trace);
    assert_eq!(failure.message, "the callback exceeds its time budget");
}

#[test]
fn memory_bombs_are_stopped_and_the_vm_stays_usable() {
    let bombs = [
        "local t = {}; for i = 1, math.huge do t[i] = {i} end",
        "local s = 'x'; while true do s = s .. s end",
        "return string.rep('x', 1e9)",
        "return string.rep('x', 2^31 - 1)",
        "local t = {}; while true do t[#t + 1] = string.rep('x', 100000) .. #t end",
        "local t = {}; for i = 1, math.huge do t['k' .. i] = true end",
        "local function f(...) return f(1, ...) end f()",
        "local function f() return 1 + f() end f()",
        "local t = {}; while true do t[#t + 1] = coroutine.create(function() end) end",
        "return unpack({}, 1, 1e7)",
        "return ('x'):rep(3e7):gsub('x', 'yyyyyyyyyyyy')",
        "local t = {}; while true do t[#t + 1] = function() return t end end",
        "return tide.json.decode(('['):rep(99) .. (']'):rep(99)), tide.json.decode(('['):rep(1e6))",
    ];
    for code in bombs {
        for bounds in [TIMED, COUNTED] {
            let text = format!(
                "kept = false
                return {{ on_request = function(request, response)
                    if request.path == '/bad' then {code} end
                    response:finish('good')
                end }}"
            );
            let mut app = App::load(&text, &bounds);
            for _ in 0..3 {
                let (verdict, _) = app.get("/bad");
                let allowed = code.contains("json");
                assert!(
                    allowed || matches!(verdict, CallbackEnd::Failed(_)),
                    "{code}: {verdict:?}"
                );
                let most = bounds.memory_bytes_max * 2;
                assert!(app.vm.used_bytes() < most, "{code}: {} bytes", app.vm.used_bytes());
            }
            assert_eq!(
                app.get("/good"),
                (CallbackEnd::Done, Some((200, "good".into()))),
                "after {code}"
            );
        }
    }
}

#[test]
fn garbage_does_not_count_against_the_memory_limit() {
    // 100 MB of garbage, within a limit of 8 MiB. The time is not limited: it depends on the load of the machine.
    let text = "return { on_request = function(request, response)
        local n = 0
        for i = 1, 1000 do n = n + #(string.rep('x', 100000) .. i) end
        response:finish(tostring(n > 1e8))
    end }";
    let bounds = Bounds { budget: Budget::Time(Span::from_secs(60)), ..TIMED };
    let mut app = App::load(text, &bounds);
    assert_eq!(app.get("/"), (CallbackEnd::Done, Some((200, "true".into()))));
}

#[test]
fn vm_at_its_memory_limit_survives_hot_loops() {
    let text = "local kept = {}
        return { on_request = function(request, response)
            for i = 1, 3000 do kept[#kept + 1] = { i, tostring(i), function() return i end } end
            local n = 0
            for i = 1, 300 do for j = 1, 20 do n = n + j % 3 end end
            response:finish(tostring(n))
        end }";
    let mut app = App::load(text, &TIMED);
    let failed = (0..300).filter(|_| matches!(app.get("/").0, CallbackEnd::Failed(_))).count();
    assert!(failed > 0, "the limit is never reached");
    assert!(app.vm.used_bytes() < TIMED.memory_bytes_max * 2);
}

#[test]
fn counted_budgets_give_the_same_result_in_every_run() {
    let text = "local n = 0
        return { on_request = function(request, response)
            if request.path == '/n' then response:finish(tostring(n)) end
            n = 0
            while true do n = n + 1 end
        end }";
    let count = || {
        let mut app = App::load(text, &COUNTED);
        app.get("/");
        app.get("/n").1
    };
    let first = count();
    assert!(first.is_some());
    assert_eq!(first, count());
}

#[test]
fn script_that_does_not_end_is_refused() {
    let failure = App::try_load("while true do end", &TIMED).err().expect("it does not end");
    assert_eq!(failure.excess, Some(Excess::Time));
}

#[test]
fn compiler_is_stopped_within_a_long_source() {
    let bounds = Bounds { memory_bytes_max: 256 * 1024 * 1024, ..TIMED };
    let text = "return { on_request = function(request, response)
        local source = string.rep('x=#a+#b*#c/#d ', 280000)
        load(source)
        response:finish('compiled')
    end }";
    let mut app = App::load(text, &bounds);
    let begin = harness::cpu_time();
    let (verdict, _) = app.get("/");
    let spent = harness::cpu_time() - begin;
    let CallbackEnd::Failed(failure) = verdict else { panic!("it is compiled in time") };
    assert_eq!(failure.excess, Some(Excess::Time));
    // Without a check, the compiler takes 200 ms.
    assert!(spent < Duration::from_millis(50 + 60), "{spent:?}");

    let text = "return { on_request = function(request, response)
        local source = string.rep('local a = 1 -- a\\n', 100) .. 'return a'
        response:finish(tostring(load(source)()) .. tostring(load('return')) :sub(1, 8) .. select(2, load('x =')))
    end }";
    let body = App::load(text, &TIMED).get("/").1.expect("a response").1;
    assert_eq!(body, "1function[string \"x =\"]:1: unexpected symbol near '<eof>'");
}
