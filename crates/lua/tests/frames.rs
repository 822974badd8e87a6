//! Messages of forwarded WebSockets: what scripts decide about them.
//! In: scripts, messages. Out: decisions, effects.

mod harness;

use harness::{App, TIMED};
use tidegate_lua::{CallbackEnd, CallbackOwner, FrameDecision, FrameKind, TunnelId};

const HEAD: &str = "GET /ws?a=1 HTTP/1.1\r\nHost: a\r\n\r\n";
const TAG: u64 = 77;

fn open(body: &str) -> (App, TunnelId) {
    let text = format!(
        "return {{ on_frame = function(frame, tunnel) {body} end, on_frame_end = function(tunnel, code, reason)
            tide.log.info('end', tunnel.request.path, code, reason, tunnel:state().count, tunnel:is_open()) end }}"
    );
    let mut app = App::load(&text, &TIMED);
    let request = app.open_hook(HEAD, &[]);
    let tunnel = app.vm.open_tunnel(request, TAG).expect("there is room");
    (app, tunnel)
}

fn replaced(is_text: bool, data: &[u8]) -> FrameDecision {
    FrameDecision::Replace { is_text, data: data.to_vec() }
}

#[test]
fn results_decide() {
    for (body, decision) in [
        ("", FrameDecision::Pass),
        ("return nil", FrameDecision::Pass),
        ("return true", FrameDecision::Pass),
        ("return false", FrameDecision::Drop),
        ("return frame.data .. frame.from", replaced(true, b"hiclient")),
        ("return 5", replaced(true, b"5")),
        ("return '\\255', 'binary'", replaced(false, b"\xff")),
    ] {
        let (mut app, tunnel) = open(body);
        assert_eq!(
            app.vm.frame(tunnel, true, (FrameKind::Text, b"hi")),
            CallbackEnd::Done,
            "{body}"
        );
        assert_eq!(app.vm.take_frame_decision(tunnel), decision, "{body}");
    }
    let (mut app, tunnel) = open("return frame.data");
    assert_eq!(app.vm.frame(tunnel, true, (FrameKind::Binary, b"\xff")), CallbackEnd::Done);
    assert_eq!(app.vm.take_frame_decision(tunnel), replaced(false, b"\xff"));
    for (body, error) in [
        ("return {}", "must return nil, false or a string, it returned: table"),
        ("return 'a', 'other'", "the second result must be \"text\" or \"binary\""),
        ("return '\\255'", "a text message must be UTF-8"),
    ] {
        let (mut app, tunnel) = open(body);
        let CallbackEnd::Failed(failure) = app.vm.frame(tunnel, false, (FrameKind::Text, b"hi"))
        else {
            panic!("{body}");
        };
        assert!(failure.message.contains(error), "{failure}");
    }
}

#[test]
fn close_frames_cannot_be_dropped() {
    let (mut app, tunnel) = open("tide.log.info(frame.kind, frame.code, frame.reason, frame.data)");
    assert_eq!(app.vm.frame(tunnel, false, (FrameKind::Close(4000), b"bye")), CallbackEnd::Done);
    app.effects();
    assert_eq!(app.log, ["Info close 4000 bye nil"]);
    let (mut app, tunnel) = open("return false");
    let end = app.vm.frame(tunnel, false, (FrameKind::Close(1000), b""));
    assert!(
        matches!(end, CallbackEnd::Failed(failure) if failure.message.contains("use tunnel:close"))
    );
}

#[test]
fn scripts_send_to_both_sides_and_close() {
    let (mut app, tunnel) = open(
        "assert(tunnel:send('client', 'a')) assert(tunnel:send('server', 'b', 'binary'))
        assert(not pcall(tunnel.send, tunnel, 'nobody', 'c'))
        assert(select(2, tunnel:close(1005)):find('the code must be')) assert(tunnel:close(4001, 'why'))
        assert(select(2, tunnel:send('client', 'd')) == 'the connection is closed' and not tunnel:close())",
    );
    assert_eq!(app.vm.frame(tunnel, true, (FrameKind::Text, b"hi")), CallbackEnd::Done);
    app.effects();
    assert_eq!(app.sent, ["77 client true a", "77 server false b", "77 tunnel 4001 why"]);
}

#[test]
fn waits_end_with_the_decision_the_deadline_or_the_tunnel() {
    let body = "local state = tunnel:state() state.count = (state.count or 0) + 1
        tide.sleep(frame.data == 'long' and 100 or 1) return tunnel.request.query.a .. state.count";
    let (mut app, tunnel) = open(body);
    assert_eq!(app.vm.frame(tunnel, true, (FrameKind::Text, b"x")), CallbackEnd::Waiting);
    let ended = app.advance(1000);
    assert_eq!(
        (ended[0].owner, &ended[0].verdict),
        (CallbackOwner::Tunnel { tag: TAG }, &CallbackEnd::Done)
    );
    assert_eq!(app.vm.take_frame_decision(tunnel), replaced(true, b"11"));
    assert_eq!(app.vm.frame(tunnel, true, (FrameKind::Text, b"long")), CallbackEnd::Waiting);
    assert_eq!((app.vm.waiting(), app.vm.tunnels(), app.vm.requests()), (1, 1, 0));
    let ended = app.advance(61_000);
    let CallbackEnd::Failed(failure) = &ended[0].verdict else { panic!("{ended:?}") };
    assert_eq!(failure.message, "on_frame has waited for 60 s");
    assert_eq!(app.vm.frame(tunnel, true, (FrameKind::Text, b"long")), CallbackEnd::Waiting);
    assert_eq!(app.vm.end_tunnel(tunnel, 1000, "bye"), CallbackEnd::Done);
    app.effects();
    assert_eq!(app.log, ["Info end /ws 1000 bye 3 false"]);
    assert_eq!((app.vm.waiting(), app.vm.tunnels(), app.vm.requests()), (0, 0, 0));
    // The place of the tunnel is free for another one, with a state of its own.
    let request = app.open_hook(HEAD, &[]);
    let tunnel = app.vm.open_tunnel(request, TAG).expect("there is room");
    assert_eq!(app.vm.frame(tunnel, true, (FrameKind::Text, b"x")), CallbackEnd::Waiting);
    app.advance(1000);
    assert_eq!(app.vm.take_frame_decision(tunnel), replaced(true, b"11"));
}

#[test]
fn replacement_that_fails_is_an_error_in_every_state_of_the_tunnel() {
    let (mut app, tunnel) = open("return '\\255'");
    app.vm.note_tunnel_closing(tunnel);
    let end = app.vm.frame(tunnel, true, (FrameKind::Text, b"hi"));
    assert!(matches!(end, CallbackEnd::Failed(failure) if failure.message.contains("UTF-8")));
}

#[test]
fn cancelled_call_never_continues() {
    let (mut app, tunnel) = open("tide.sleep(1) tide.log.info('late')");
    assert_eq!(app.vm.frame(tunnel, true, (FrameKind::Text, b"x")), CallbackEnd::Waiting);
    app.vm.cancel_frame(tunnel);
    assert_eq!((app.vm.waiting(), app.vm.tunnels()), (0, 1));
    assert!(app.advance(2000).is_empty());
    assert_eq!(app.vm.end_tunnel(tunnel, 1011, ""), CallbackEnd::Done);
    app.effects();
    assert_eq!(app.log, ["Info end /ws 1011  nil false"]);
}

#[test]
fn calls_of_on_frame_end_that_wait_are_bounded() {
    let text = "local count = 0
        return { on_frame = function() end, on_frame_end = function() tide.sleep(1) count = count + 1 tide.log.info(count) end }";
    let mut app = App::load(text, &TIMED);
    for number in 0..1030 {
        let request = app.open_hook(HEAD, &[]);
        let tunnel = app.vm.open_tunnel(request, TAG).expect("there is room");
        let expected = if number < 1024 { CallbackEnd::Waiting } else { CallbackEnd::Done };
        assert_eq!(app.vm.end_tunnel(tunnel, 1000, ""), expected, "{number}");
    }
    assert_eq!((app.vm.tunnels(), app.vm.can_log()), (0, false));
    let mut outbox = tidegate_lua::Outbox::default();
    app.vm.take_outbox(&mut outbox);
    assert_eq!(outbox.refusals, 6);
    app.advance(1000);
    assert!(app.vm.can_log());
    app.effects();
    assert_eq!(app.log.last().map(String::as_str), Some("Info 1024"));
}
