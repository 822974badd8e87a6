//! `tide.queue`.
//! In: scripts. Out: what each test's name says.

mod harness;

use std::sync::Arc;

use harness::{App, TIMED};
use tidegate_lua::{CallbackEnd, Queue};

/// Runs statements that end with a `return`, and returns the body.
fn run(app: &mut App, statements: &str) -> String {
    let body = format!(
        "local q = tide.queue.jobs local function run() {statements} end
        return function() return run() end"
    );
    let head = format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n", body.len());
    app.send(&head, body.as_bytes()).1.expect("it answers").1
}

/// Runs the body of each request.
const RUNS: &str = "return { on_request = function(request, response)
    local ok, one, other = pcall(assert(load(request.body))())
    response:finish(tostring(one) .. ' ' .. tostring(other))
end }";

#[test]
fn values_are_shared_by_the_applications() {
    let queue = Arc::new(Queue::new(1024));
    let mut apps = [App::load_queued(RUNS, &queue), App::load_queued(RUNS, &queue)];
    assert_eq!(run(&mut apps[0], "return q:push('a'), q:push(1.5)"), "true true");
    assert_eq!(run(&mut apps[0], "return q:push(false), q:length()"), "true 3");
    assert_eq!(run(&mut apps[1], "return q:pop(), q:pop(5)"), "a 1.5");
    assert_eq!(run(&mut apps[1], "return q:pop(), q:length()"), "false 0");
    assert_eq!(run(&mut apps[1], "return q:pop()"), "nil empty");
    assert_eq!(run(&mut apps[1], "return q:pop(0)"), "nil timeout");
    assert_eq!(apps[1].filled, [], "nobody waits");
}

#[test]
fn queue_is_bounded() {
    let mut app = App::load_queued(RUNS, &Arc::new(Queue::new(1024)));
    assert_eq!(
        run(&mut app, "return q:push(('x'):rep(1024))"),
        "nil the value is too large for this queue"
    );
    let fill = "local n = 0 while true do
        local ok, err = q:push(n)
        if not ok then return n, err end
        n = n + 1
    end";
    assert_eq!(run(&mut app, fill), "32 the queue is full");
    assert_eq!(run(&mut app, "q:pop() return q:push('x')"), "nil the queue is full");
    assert_eq!(run(&mut app, "return q:push(7)"), "true nil");
}

#[test]
fn wrong_use_is_an_error() {
    let mut app = App::load(RUNS, &TIMED);
    for (call, error) in [
        ("q:push({})", "bad argument #1 to 'push' (string, number or boolean expected, got table)"),
        ("q:push()", "bad argument #1 to 'push'"),
        ("q:pop('1')", "bad argument #1 to 'pop' (number expected, got string)"),
        ("tide.queue.other:pop()", "there is no queue 'other': write it in `queues` of [lua.test]"),
        ("(function() q.x = 1 end)()", "a queue has no fields"),
    ] {
        let got = run(&mut app, &format!("return {call}"));
        assert!(got.contains(error), "{call}: {got}");
    }
}

const WAITS: &str = "return {
    on_request = function(request, response)
        local value, err = tide.queue.jobs:pop(tonumber(request.query.seconds))
        response:finish(tostring(value) .. ' ' .. tostring(err))
    end,
    on_start = function() tide.spawn(function()
        while true do
            local value, err = tide.queue.jobs:pop(100)
            print(tostring(value) .. ' ' .. tostring(err))
            if not value then return end
        end
    end) end,
}";

fn wait(app: &mut App, seconds: u32) {
    let id = app.open(&format!("GET /?seconds={seconds} HTTP/1.1\r\nHost: a\r\n\r\n"));
    assert_eq!(app.vm.request(id), CallbackEnd::Waiting);
    assert_eq!(app.effects(), None);
}

#[test]
fn pop_waits_for_a_value_and_no_longer_than_its_time() {
    let queue = Arc::new(Queue::new(1024));
    let mut app = App::load_queued(WAITS, &queue);
    let mut other = App::load_queued(RUNS, &queue);
    wait(&mut app, 5);
    assert_eq!(run(&mut other, "return q:push('a')"), "true nil");
    assert_eq!(core::mem::take(&mut other.filled), [(1, 0)], "the worker of both");
    assert!(app.vm.note_queue(&queue));
    assert!(!app.vm.note_queue(&queue), "nothing else waits");
    assert_eq!(app.advance(0).len(), 1);
    assert_eq!(app.effects(), Some((200, "a nil".to_owned())));
    // It looks again from time to time, until its time is over.
    wait(&mut app, 5);
    for _ in 0..6 {
        assert_eq!(app.effects(), None);
        app.advance(900);
    }
    assert_eq!(app.effects(), Some((200, "nil timeout".to_owned())));
    assert_eq!(app.vm.waiting(), 0);
}

#[test]
fn lost_word_costs_a_second() {
    let queue = Arc::new(Queue::new(1024));
    let mut app = App::load_queued(WAITS, &queue);
    wait(&mut app, 5);
    assert_eq!(run(&mut App::load_queued(RUNS, &queue), "return q:push('a')"), "true nil");
    app.advance(999);
    assert_eq!(app.effects(), None);
    app.advance(2);
    assert_eq!(app.effects(), Some((200, "a nil".to_owned())));
}

#[test]
fn cancelled_waits_take_no_value_and_no_memory() {
    let queue = Arc::new(Queue::new(1024));
    let mut app = App::load_queued(WAITS, &queue);
    for _ in 0..10_000 {
        let id = app.open("GET /?seconds=5 HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(app.vm.request(id), CallbackEnd::Waiting);
        app.vm.close_request(id);
    }
    let used = app.vm.used_bytes();
    assert!(used < 2 * 1024 * 1024, "{used}");
    assert!(!app.vm.note_queue(&queue));
    assert_eq!(queue.leave(1), None);
    assert_eq!(
        run(&mut App::load_queued(RUNS, &queue), "return q:push('a'), q:length()"),
        "true 1"
    );
}

#[test]
fn threads_of_earlier_code_learn_of_their_end() {
    let queue = Arc::new(Queue::new(1024));
    let mut app = App::load_queued(WAITS, &queue);
    assert_eq!(app.vm.start(), CallbackEnd::Done);
    app.advance(0);
    app.vm.retire(tidegate_base::Moment::NEVER);
    app.advance(0);
    app.effects();
    assert_eq!(app.log, ["Info nil premature"]);
    assert!(app.vm.is_idle());
}
