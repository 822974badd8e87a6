//! Handlers that wait, timers and threads.
//! In: scripts, time, events. Out: verdicts, responses, lines of the log.

mod harness;

use harness::{App, COUNTED, JOBS_MAX, TIMED};
use tidegate_lua::{CallbackEnd, CallbackOwner, Excess, ScriptRequestId};

/// Begins `GET target`, whose handler may wait.
fn begin(app: &mut App, target: &str) -> (ScriptRequestId, CallbackEnd) {
    let id = app.open(&format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n"));
    let verdict = app.vm.request(id);
    (id, verdict)
}

/// An application whose `on_request` runs `body`, which may use `log`.
fn app(body: &str) -> App {
    let text = format!(
        "local log = tide.log.info
        return {{ on_request = function(request, response) {body} end }}"
    );
    App::load(&text, &TIMED)
}

/// Runs `body` in `on_request` until nothing is due. Returns the lines of its log.
fn log_of(body: &str) -> Vec<String> {
    let mut app = app(body);
    let (id, _) = begin(&mut app, "/");
    for _ in 0..100 {
        app.effects();
        match app.due_in() {
            Some(millis) => app.advance(millis),
            None => app.advance(0),
        };
    }
    app.effects();
    app.vm.close_request(id);
    app.log.iter().map(|line| line.trim_start_matches("Info ").to_owned()).collect()
}

#[test]
fn handler_sleeps_and_then_answers() {
    let mut app = app("assert(tide.sleep(0.25)) response:finish(tostring(tide.elapsed()))");
    let (id, verdict) = begin(&mut app, "/");
    assert_eq!((verdict, app.effects(), app.vm.waiting()), (CallbackEnd::Waiting, None, 1));
    assert_eq!(app.due_in(), Some(250));
    assert_eq!(app.advance(249), []);
    let resumed = app.advance(1);
    assert_eq!(resumed[0].verdict, CallbackEnd::Done);
    assert_eq!(
        (resumed[0].owner, resumed[0].what),
        (CallbackOwner::Request { tag: 9 }, "on_request")
    );
    assert_eq!(app.effects(), Some((200, "1.75".to_owned())));
    app.vm.close_request(id);
    assert_eq!((app.vm.waiting(), app.vm.requests()), (0, 0));
}

#[test]
fn waits_nest_in_coroutines_and_protected_calls() {
    let mut app = app("local out = {}
        local function step(name) tide.sleep(0.01) out[#out + 1] = name end
        local each = coroutine.wrap(function() step('a') coroutine.yield('b') step('c') return 'd' end)
        for _ = 1, 2 do local value = each() out[#out + 1] = value end
        local ok, err = pcall(function() step('e') error('f', 0) end)
        out[#out + 1] = err
        for word in (function() step('g') return 'h' end) do out[#out + 1] = word break end
        response:finish(table.concat(out))");
    begin(&mut app, "/");
    for _ in 0..4 {
        assert_eq!(app.effects(), None);
        app.advance(10);
    }
    assert_eq!(app.effects(), Some((200, "abcdefgh".to_owned())));
}

#[test]
fn waiting_in_the_handler_of_xpcall_is_an_error_value() {
    let mut app = app("local seen
        xpcall(error, function() seen = { tide.sleep(1) } end)
        response:finish(tostring(seen[1]) .. ' ' .. seen[2])");
    let (_, response) = app.get("/");
    let (_, body) = response.expect("it answers");
    assert!(body.starts_with("nil functions that wait cannot be used here"), "{body}");
}

#[test]
fn each_part_between_waits_has_its_own_budget() {
    let mut app = app("local n = 0
        for part = 1, 5 do
            local until_ = 0
            for at = 1, 300000 do until_ = until_ + at % 7 end
            tide.sleep(0.001)
        end
        if request.path == '/bad' then while true do end end
        response:finish('done')");
    let mut counted = App::load(
        "return { on_request = function(request, response)
        for part = 1, 4 do for at = 1, 300000 do end tide.sleep(0.001) end
        response:finish('done') end }",
        &COUNTED,
    );
    begin(&mut counted, "/");
    for _ in 0..4 {
        counted.advance(1);
    }
    assert_eq!(counted.effects(), Some((200, "done".to_owned())));
    begin(&mut app, "/bad");
    let last = (0..5).flat_map(|_| app.advance(1)).last().expect("it continues");
    let CallbackEnd::Failed(failure) = last.verdict else { panic!("the loop ends by itself") };
    assert_eq!(
        (failure.excess, last.owner),
        (Some(Excess::Time), CallbackOwner::Request { tag: 9 })
    );
}

#[test]
fn handler_of_a_client_that_has_left_never_continues() {
    let mut app = app("tide.sleep(1) log('continued')");
    let (id, _) = begin(&mut app, "/");
    app.vm.close_request(id);
    assert_eq!((app.vm.waiting(), app.vm.requests(), app.due_in()), (0, 0, None));
    assert_eq!(app.advance(2000), []);
    app.effects();
    assert_eq!(app.log, [""; 0]);
}

#[test]
fn handler_continues_after_its_response() {
    let mut app = app("response:finish('ok') tide.sleep(1) log('later', response:write('x'))");
    let (id, verdict) = begin(&mut app, "/");
    assert_eq!((verdict, app.effects()), (CallbackEnd::Waiting, Some((200, "ok".to_owned()))));
    app.vm.close_request(id);
    assert_eq!(app.advance(1000)[0].owner, CallbackOwner::Application);
    app.effects();
    assert_eq!(app.log, ["Info later nil the response has ended"]);
}

#[test]
fn timers_run_once_repeat_and_are_cancelled() {
    let lines = log_of(
        "tide.timer.after(0.2, log, 'after', 200)
        local count = 0
        local every
        every = tide.timer.every(0.1, function(step)
            count = count + step
            log('every', count)
            if count == 3 then assert(every:cancel()) end
        end, 1)
        local never = tide.timer.after(0.3, log, 'never')
        assert(never:cancel() and never:cancel() == nil)
        local stopped = tide.spawn(function() tide.sleep(0.05) log('never') end)
        tide.sleep(0.01)
        assert(stopped:cancel())
        response:finish('ok')",
    );
    assert_eq!(lines, ["every 1", "after 200", "every 2", "every 3"]);
}

#[test]
fn repeated_timer_continues_after_a_failure_and_does_not_overlap() {
    let mut app = app("local count = 0
        tide.timer.every(0.1, function()
            count = count + 1
            log('run', count)
            if count == 1 then error('first') end
            tide.sleep(0.35)
        end)
        response:finish('ok')");
    app.get("/");
    let verdicts: Vec<_> = app.advance(100).into_iter().map(|callback| callback.verdict).collect();
    let [CallbackEnd::Failed(failure)] = &verdicts[..] else { panic!("{verdicts:?}") };
    assert!(failure.message.ends_with("first") && failure.trace.contains("app.lua"));
    for _ in 0..35 {
        app.advance(10);
    }
    app.effects();
    assert_eq!(app.log, ["Info run 1", "Info run 2"]);
    assert_eq!(app.due_in(), Some(100));
}

#[test]
fn threads_return_results_and_errors() {
    let lines = log_of(
        "local slow = tide.spawn(function(a, b) tide.sleep(0.1) return a + b, nil, 'three' end, 1, 2)
        local bad = tide.spawn(function() tide.sleep(0.01) error('broken', 0) end)
        local quick = tide.spawn(function() log('quick runs') return 'q' end)
        log('spawned')
        log(tide.wait(quick))
        log(tide.wait(slow, 0.05))
        log(tide.wait(slow))
        log(tide.wait(slow))
        log(tide.wait(bad))
        local self
        self = tide.spawn(function() return tide.wait(self) end)
        log(tide.wait(self))
        local endless = tide.spawn(function() while true do end end)
        log(tide.wait(endless))
        local cancelled = tide.spawn(tide.sleep, 5)
        tide.spawn(function() cancelled:cancel() end)
        log(tide.wait(cancelled))
        response:finish('ok')",
    );
    assert_eq!(
        lines,
        [
            "spawned",
            "quick runs",
            "q",
            "nil timeout",
            "3 nil three",
            "3 nil three",
            "nil broken",
            "nil a job cannot wait for itself",
            "nil the callback exceeds its time budget",
            "nil cancelled",
        ]
    );
}

#[test]
fn timers_are_bounded_and_generation_checked() {
    let mut app = app("local kept = {}
        for at = 1, 1000 do
            local timer, err = tide.timer.after(10, log)
            if not timer then
                kept.count, kept.err = at - 1, err
                break
            end
            kept[at] = timer
        end
        for at = 1, kept.count do assert(kept[at]:cancel()) end
        local later = assert(tide.spawn(log, 'later'))
        for at = 1, kept.count do assert(kept[at]:cancel() == nil) end
        response:finish(kept.count .. ' ' .. kept.err)");
    let (_, response) = app.get("/");
    let expected = format!("{JOBS_MAX} the application has too many timers and threads");
    assert_eq!(response, Some((200, expected)));
    assert_eq!(app.advance(0).len(), 1, "a stale handle cancelled a later thread");
}

#[test]
fn memory_does_not_grow_with_cancelled_waits() {
    let mut app = app("local thread = tide.spawn(tide.sleep, 1000)
        for round = 1, 100 do assert(tide.wait(thread, 0.001) == nil) end
        thread:cancel()
        tide.sleep(1000)");
    let mut most = 0;
    for round in 0..300 {
        let (id, _) = begin(&mut app, "/");
        for _ in 0..101 {
            app.advance(1);
        }
        app.vm.close_request(id);
        app.effects();
        match round {
            0..100 => most = most.max(app.vm.used_bytes()),
            _ => assert!(app.vm.used_bytes() < most * 2, "{} of {most}", app.vm.used_bytes()),
        }
    }
    assert_eq!((app.vm.waiting(), app.due_in()), (0, None));
}

#[test]
fn write_waits_for_the_client_above_the_high_water_mark() {
    let mut app = app("local piece = string.rep('x', 100 * 1024)
        for at = 1, 6 do assert(response:write(piece)) log(at) end");
    let (id, verdict) = begin(&mut app, "/");
    app.effects();
    assert_eq!((verdict, app.awaits_drain, app.log.len()), (CallbackEnd::Waiting, true, 2));
    assert_eq!(app.advance(60_000), [], "the handler waits for the client");
    app.vm.note_drained(id);
    app.advance(0);
    app.effects();
    assert_eq!(app.log.len(), 5);
    // After the client has left, the handler does not continue.
    app.vm.close_request(id);
    assert_eq!((app.advance(0), app.vm.waiting()), (vec![], 0));
}

#[test]
fn flush_in_a_thread_fails_after_the_client_has_left() {
    let mut app = app("local thread = tide.spawn(function()
            response:write('a')
            log(response:flush())
        end)
        tide.wait(thread)");
    let (id, _) = begin(&mut app, "/");
    app.advance(0);
    app.vm.close_request(id);
    app.advance(0);
    app.effects();
    assert_eq!(app.log, ["Info nil the response has ended"]);
}

#[test]
fn script_cannot_wait_while_it_loads_and_on_stop_cannot_wait() {
    let failure = App::try_load("tide.sleep(1) return {}", &TIMED).err().expect("it waits");
    assert_eq!(failure.message, "app.lua: a script cannot wait while it loads");
    let text = "return {
        on_start = function() tide.timer.every(1, tide.log.info, 'tick') tide.sleep(5) end,
        on_stop = function() tide.log.info('stops') tide.sleep(1) end,
    }";
    let mut app = App::load(text, &TIMED);
    assert_eq!(app.vm.start(), CallbackEnd::Waiting);
    app.advance(1000);
    assert!(matches!(app.vm.stop(), CallbackEnd::Failed(_)));
    app.effects();
    assert_eq!(app.log, ["Info tick", "Info stops"]);
    assert_eq!((app.due_in(), app.vm.is_ready()), (None, false));
}

#[test]
fn handlers_of_clients_wait() {
    let text = "return {
        on_open = function(client, request)
            tide.sleep(1)
            client:send('hello ' .. request.query.name)
        end,
        on_message = function(client, message)
            tide.sleep(1)
            client:send(message)
        end,
        on_close = function(client) tide.sleep(1) tide.log.info('closed', client:send('x')) end,
    }";
    let mut app = App::load(text, &TIMED);
    let request = app.open("GET /?name=a HTTP/1.1\r\nHost: a\r\n\r\n");
    let client = app.vm.open_client(7).expect("there is room");
    assert_eq!(app.vm.opened(client, request), CallbackEnd::Waiting);
    assert_eq!((app.vm.requests(), app.vm.waiting()), (0, 1));
    let resumed = app.advance(1000);
    assert_eq!((resumed[0].owner, resumed[0].what), (CallbackOwner::Client { tag: 7 }, "on_open"));
    assert_eq!(app.vm.message(client, b"one", true), CallbackEnd::Waiting);
    app.advance(1000);
    assert_eq!(app.vm.message(client, b"two", true), CallbackEnd::Waiting);
    assert_eq!(app.vm.closed(client, 1000, ""), CallbackEnd::Waiting);
    app.advance(1000);
    app.effects();
    assert_eq!(app.sent, ["7 text hello a", "7 text one"]);
    assert_eq!(app.log, ["Info closed nil the connection is closed"]);
    assert_eq!((app.vm.clients(), app.vm.waiting()), (0, 0));
}

#[test]
fn wrong_arguments_are_errors() {
    for code in [
        "tide.sleep()",
        "tide.sleep('x')",
        "tide.timer.after(1)",
        "tide.timer.after('x', print)",
        "tide.timer.every(nil, print)",
        "tide.spawn()",
        "tide.spawn(5)",
        "tide.wait()",
        "tide.wait({})",
        "tide.wait(tide.spawn(print), 'x')",
        "tide.timer.extra = 1",
    ] {
        let mut app = app(code);
        let (verdict, _) = app.get("/");
        assert!(matches!(verdict, CallbackEnd::Failed(_)), "{code}: {verdict:?}");
    }
    let mut app = app("tide.sleep(-1) tide.sleep(0/0) tide.timer.after(1e300, print)
        tide.timer.after(-5, print):cancel()
        tide.wait(setmetatable({ 1, 2 }, { __metatable = 'job' }))
        response:finish('ok')");
    begin(&mut app, "/");
    app.advance(0);
    app.advance(0);
    assert_eq!(app.effects(), Some((200, "ok".to_owned())));
}

#[test]
fn interval_of_a_timer_is_positive() {
    let text = "return { on_request = function(request, response)
        for _, seconds in ipairs { 0, -1, 0 / 0 } do
            local ok, err = pcall(tide.timer.every, seconds, print)
            assert(not ok and err:find('the interval must be positive'), err)
        end
        response:finish('refused')
    end }";
    let mut app = App::load(text, &TIMED);
    assert_eq!(app.get("/").1, Some((200, "refused".to_owned())));
    assert_eq!(app.vm.jobs(), 0);
}
