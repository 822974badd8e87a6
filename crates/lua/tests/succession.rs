//! VMs that replace earlier VMs.
//! In: two scripts. Out: states of clients, verdicts.

mod harness;

use harness::{App, TIMED};
use tidegate_base::Moment;
use tidegate_lua::{CallbackEnd, ClientId};

const NOTHING: &str = "return { on_message = function() end }";

fn open(app: &mut App, tag: u64) -> ClientId {
    let request = app.open("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    let client = app.vm.open_client(tag).expect("there is room");
    assert_eq!(app.vm.opened(client, request), CallbackEnd::Done);
    app.vm.close_request(request);
    client
}

/// Hands a client of the first application over to the second.
fn hand_over(before: &mut App, after: &mut App, client: ClientId, tag: u64) -> Option<CallbackEnd> {
    let mut state = None;
    assert_eq!(before.vm.release_client(client, &mut state), CallbackEnd::Done);
    let verdict = after.vm.adopt_client(client, tag, &state.expect("a state"));
    after.effects();
    verdict
}

/// Starts timers that are not due yet, and logs when they run.
const TIMERS: &str = "local function late(premature, name)
        ngx.log(ngx.INFO, name, ' ', premature, ' ', select(2, ngx.timer.at(1, print)), ' ', ngx.worker.exiting())
    end
    ngx.timer.at(60, late, 'at')
    ngx.timer.every(60, late, 'every')
    ngx.timer.at(30, function() ngx.log(ngx.INFO, 'waits') ngx.sleep(1) ngx.log(ngx.INFO, 'waited') end)
    ngx.timer.at(30, function() ngx.exit(0) end)
    ngx.timer.at(30, function() error('oops') end)
    tide.timer.after(60, ngx.log, ngx.INFO, 'dropped')";
const TIMERS_RUN: [&str; 3] = [
    "app.lua:2: at true process exiting true",
    "app.lua:2: every true process exiting true",
    "app.lua:6: waits",
];

fn begin_timers() -> App {
    let mut app = App::load_ngx(TIMERS, &[], &[]).unwrap_or_else(|failure| panic!("{failure}"));
    assert_eq!(app.get("/").0, CallbackEnd::Done);
    assert_eq!((app.advance(0).len(), app.vm.jobs()), (0, 6));
    app
}

#[test]
fn timers_of_ngx_run_before_their_time_when_the_code_is_replaced() {
    let mut app = begin_timers();
    assert_eq!(app.vm.retire(Moment::from_nanos(30_000_000_000)), CallbackEnd::Done);
    app.advance(0);
    app.advance(1000);
    app.effects();
    assert_eq!(app.log.len(), 4, "{:?}", app.log);
    for line in TIMERS_RUN.iter().chain(&["app.lua:6: waited"]) {
        assert!(app.log.contains(&format!("Info {line}")), "{line}: {:?}", app.log);
    }
    assert!(app.vm.is_idle());
}

#[test]
fn timers_of_ngx_run_before_their_time_when_the_process_stops() {
    for is_noted in [true, false] {
        let mut app = begin_timers();
        if is_noted {
            app.vm.note_stopping(Moment::from_nanos(30_000_000_000));
            assert!(app.vm.is_ready());
        }
        assert_eq!(app.vm.stop(), CallbackEnd::Done);
        app.effects();
        assert_eq!(app.log.len(), 4, "{:?}", app.log);
        for line in TIMERS_RUN {
            assert!(app.log.contains(&format!("Info {line}")), "{line}: {:?}", app.log);
        }
        assert!(app.log.iter().any(|line| line.starts_with("Error app.lua:8: oops")));
        assert!(app.vm.is_idle());
    }
}

#[test]
fn timers_that_run_before_their_time_share_what_is_left() {
    let text = "ngx.timer.at(60, function() while true do end end)
        ngx.timer.at(60, function() ngx.log(ngx.INFO, 'not reached') end)";
    let mut app = App::load_ngx(text, &[], &[]).unwrap_or_else(|failure| panic!("{failure}"));
    app.get("/");
    assert_eq!(app.vm.stop(), CallbackEnd::Done);
    app.effects();
    assert_eq!(app.log.len(), 1, "{:?}", app.log);
    assert!(app.log[0].contains("the callback exceeds its time budget"));
}

#[test]
fn states_of_clients_are_copied_as_plain_data() {
    let before = "return { on_open = function(client)
            local state = client:state()
            state.text, state.bytes, state.number, state.large = 'a', '\\0\\255;}', 0.1, 2^53
            state.yes, state.no, state.null = true, false, tide.json.null
            state.list, state.empty = { 1, 'b', { 3 } }, tide.json.array()
            state[7], state[true] = 'seven', 'yes'
            state.me, state.call, state.job = client, function() end, tide.timer.after(1, print)
            state.round = { state = state, kept = 1 }
            state.marked = setmetatable({}, { __index = state })
            local deep = {}
            state.deep = deep
            for _ = 1, 1000 do deep.deep = {} deep = deep.deep end
        end }";
    let after = "return { on_message = function() end, on_handover = function(client, state)
            assert(state == client:state())
            assert(state.text == 'a' and state.bytes == '\\0\\255;}' and state.number == 0.1 and state.large == 2^53)
            assert(state.yes == true and state.no == false and state.null == tide.json.null)
            assert(#state.list == 3 and state.list[3][1] == 3 and tide.json.encode(state.empty) == '[]')
            assert(state[7] == 'seven' and state[true] == 'yes')
            assert(state.me == nil and state.call == nil and state.job == nil and state.marked == nil)
            assert(state.round.kept == 1 and state.round.state == state)
            local depth, at = 0, state
            while at.deep do depth, at = depth + 1, at.deep end
            client:send(client:id() .. ' ' .. tostring(depth > 10 and depth < 40))
        end }";
    let (mut before, mut after) = (App::load(before, &TIMED), App::load(after, &TIMED));
    let client = open(&mut before, 5);
    after.vm.reserve_clients_of(&before.vm);
    assert_eq!(
        (after.vm.clients(), after.vm.tag_of(2, client)),
        (0, None),
        "the client is not taken over yet"
    );
    assert_eq!(hand_over(&mut before, &mut after, client, 6), Some(CallbackEnd::Done));
    assert_eq!(after.sent, [format!("6 text 1-2-{}-{} true", client.index, client.generation)]);
    assert_eq!((before.vm.clients(), after.vm.clients()), (0, 1));
    assert_eq!((before.vm.tag_of(2, client), after.vm.tag_of(2, client)), (None, Some(6)));
}

#[test]
fn tables_of_a_state_keep_their_identity() {
    // Written once for each reference, the state would have 2^60 tables.
    let before = "return { on_open = function(client)
            local state = client:state()
            local both = { count = 1 }
            state.one, state.other, state.list = both, both, tide.json.array({ both, both })
            state.also = state.list
            local last = { name = 'last' }
            for _ = 1, 30 do last = { last, last } end
            state.tree = last
            local kept = state
            for _ = 1, 1000 do kept.next = { before = kept } kept = kept.next if _ == 20 then break end end
            local deep, late = state, { at = 'the end' }
            for _ = 1, 40 do deep.deep = {} deep = deep.deep end
            deep.late, state.z_late = late, late
        end }";
    let after = "return { on_message = function() end, on_handover = function(client, state)
            state.one.count = 2
            assert(state.other.count == 2 and state.list[1] == state.one and state.list[2] == state.one)
            assert(state.also == state.list and tide.json.encode(state.also) == '[{\"count\":2},{\"count\":2}]')
            local at, depth = state.tree, 0
            while at[1] do assert(at[1] == at[2]) at, depth = at[1], depth + 1 end
            assert(at.name == 'last' and depth == 30)
            assert(state.next.before == state and state.next.next.before == state.next)
            assert(state.z_late.at == 'the end')
        end }";
    let (mut before, mut after) = (App::load(before, &TIMED), App::load(after, &TIMED));
    let client = open(&mut before, 5);
    after.vm.reserve_clients_of(&before.vm);
    assert_eq!(hand_over(&mut before, &mut after, client, 5), Some(CallbackEnd::Done));
}

#[test]
fn client_without_a_state_gets_an_empty_table() {
    let script = "return { on_message = function() end, on_handover = function(client, state)
        assert(next(state) == nil) state.new = 1 assert(client:state().new == 1) end }";
    let (mut before, mut after) = (App::load(NOTHING, &TIMED), App::load(script, &TIMED));
    let client = open(&mut before, 5);
    after.vm.reserve_clients_of(&before.vm);
    assert_eq!(hand_over(&mut before, &mut after, client, 5), Some(CallbackEnd::Done));
}

#[test]
fn ids_of_earlier_clients_stay_free_until_they_have_ended() {
    let (mut before, mut after) = (App::load(NOTHING, &TIMED), App::load(NOTHING, &TIMED));
    let kept = [open(&mut before, 1), open(&mut before, 2), open(&mut before, 3)];
    after.vm.reserve_clients_of(&before.vm);
    let added = open(&mut after, 4);
    assert!(!kept.contains(&added), "{added:?}");
    after.vm.free_reserved(kept[1]);
    let again = open(&mut after, 5);
    assert_eq!((again.index, after.vm.clients()), (kept[1].index, 2));
    assert_ne!(again, kept[1]);
    after.vm.free_reserved(again);
    assert_eq!(after.vm.clients(), 2, "the VM's own client is not freed");
    // A third VM reserves the ids that the second VM has not taken over.
    let mut last = App::load(NOTHING, &TIMED);
    last.vm.reserve_clients_of(&after.vm);
    assert_eq!(after.vm.retire(Moment::from_nanos(u64::MAX)), CallbackEnd::Done);
    assert_eq!(after.vm.adopt_client(kept[0], 1, b""), None, "the last VM has its id now");
    assert_eq!((after.vm.clients(), last.vm.clients()), (2, 0));
}

#[test]
fn state_that_is_too_large_is_refused_and_the_client_stays() {
    let script =
        "return { on_open = function(client) client:state().text = ('x'):rep(1024 * 1024) end }";
    let mut before = App::load(script, &TIMED);
    let client = open(&mut before, 1);
    let mut state = None;
    let verdict = before.vm.release_client(client, &mut state);
    let CallbackEnd::Failed(failure) = verdict else { panic!("{verdict:?}") };
    assert!(failure.message.contains("exceeds 1 MiB"), "{failure}");
    assert_eq!((state, before.vm.clients()), (None, 1));
    assert_eq!(before.vm.message(client, b"x", true), CallbackEnd::Done);
}

#[test]
fn jobs_of_earlier_code_get_premature_and_end() {
    let script = "local log = tide.log.info
        return { on_retire = function(seconds) log('retire', seconds, tide.premature()) end,
            on_start = function()
                assert(tide.premature() == false)
                tide.timer.every(1, function() log('tick') end)
                tide.timer.after(5, function() log('soon', tide.premature()) end)
                tide.timer.after(50, function() log('late') end)
                tide.spawn(function()
                    local ok, err = tide.sleep(3600)
                    log('slept', ok, err)
                    log('again', tide.sleep(2))
                end)
                local job = tide.spawn(tide.sleep, 3600)
                log('waited', tide.wait(job))
            end,
            on_request = function(request, response) tide.sleep(3) response:finish('done') end }";
    let mut app = App::load(script, &TIMED);
    assert_eq!(app.vm.start(), CallbackEnd::Waiting);
    app.advance(0);
    let request = app.open("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(app.vm.request(request), CallbackEnd::Waiting);
    assert!(!app.vm.is_idle());
    // The clock of the harness begins at 1.5 s.
    assert_eq!(app.vm.retire(Moment::from_nanos(21_500_000_000)), CallbackEnd::Done);
    app.effects();
    let lines = core::mem::take(&mut app.log);
    assert_eq!(lines, ["Info retire 20 20"]);
    app.advance(0);
    app.effects();
    let mut lines = core::mem::take(&mut app.log);
    lines.sort();
    assert_eq!(lines, ["Info slept nil premature", "Info waited nil premature"]);
    app.advance(3000);
    assert_eq!(app.effects(), Some((200, "done".to_owned())), "requests continue");
    app.vm.close_request(request);
    app.advance(3000);
    app.effects();
    assert_eq!(app.log, ["Info again true", "Info soon 14"]);
    assert!(app.vm.is_idle(), "the late timer is gone");
}

#[test]
fn failed_on_handover_is_a_failure_of_the_client() {
    let script = "return { on_message = function() end, on_handover = function() error('no') end }";
    let (mut before, mut after) = (App::load(NOTHING, &TIMED), App::load(script, &TIMED));
    let client = open(&mut before, 5);
    after.vm.reserve_clients_of(&before.vm);
    let verdict = hand_over(&mut before, &mut after, client, 5);
    assert!(matches!(verdict, Some(CallbackEnd::Failed(_))), "{verdict:?}");
    assert_eq!(after.vm.clients(), 1, "the worker closes the client");
    assert_eq!(after.vm.closed(client, 1011, ""), CallbackEnd::Done);
}
