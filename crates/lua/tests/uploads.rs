//! Request bodies that a script reads in pieces (`on_upload`).
//! In: pieces of bodies. Out: what the script reads, and its responses.

mod harness;

use harness::{App, TIMED};
use tidegate_lua::{CallbackEnd, Handler, ScriptRequestId};

const HEAD: &str = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n";

/// An application whose `on_upload` runs `body`, and a request for it.
fn begin(body: &str) -> (App, ScriptRequestId, CallbackEnd) {
    let text = format!("return {{ on_upload = function(request, response) {body} end }}");
    let mut app = App::load(&text, &TIMED);
    assert!(app.vm.has(Handler::Upload));
    let id = app.open(HEAD);
    app.vm.begin_upload(id);
    let verdict = app.vm.upload(id);
    (app, id, verdict)
}

/// Continues the handler. Returns the response if it is complete.
fn resume(app: &mut App) -> (CallbackEnd, Option<(u16, String)>) {
    let verdict = app.vm.resume().expect("the handler is ready").verdict;
    (verdict, app.effects())
}

#[test]
fn pieces_are_read_as_they_arrive() {
    let (mut app, id, verdict) = begin(
        "local parts = {}
        for data in function() return request:read() end do parts[#parts + 1] = data end
        response:finish(table.concat(parts, '|') .. #request.body)",
    );
    assert_eq!((verdict, app.effects()), (CallbackEnd::Waiting, None));
    app.vm.feed_body(id, b"one");
    assert_eq!(resume(&mut app), (CallbackEnd::Waiting, None));
    // What arrives before the script continues is one piece.
    app.vm.feed_body(id, b"two");
    app.vm.feed_body(id, b"three");
    assert_eq!(resume(&mut app), (CallbackEnd::Waiting, None));
    app.vm.end_body(id);
    let response = Some((200, "one|twothree0".to_owned()));
    assert_eq!(resume(&mut app), (CallbackEnd::Done, response));
}

#[test]
fn client_waits_while_the_script_does_not_read() {
    let (mut app, id, _) =
        begin("tide.sleep(1) request:read() tide.sleep(1) response:finish('read')");
    assert_eq!(app.vm.body_room(id), 64 * 1024);
    app.vm.feed_body(id, &[b'y'; 60_000]);
    assert_eq!(app.vm.body_room(id), 64 * 1024 - 60_000);
    app.vm.feed_body(id, &[b'y'; 64 * 1024 - 60_000]);
    assert!(!app.vm.has_body_room(id));
    assert_eq!((app.vm.body_room(id), app.rooms), (0, 0));
    app.advance(1001);
    app.effects();
    assert_eq!((app.rooms, app.vm.has_body_room(id)), (1, true), "the script has read");
    app.advance(1001);
    assert_eq!(app.effects(), Some((200, "read".to_owned())));
}

#[test]
fn script_may_wait_for_long() {
    let (mut app, id, _) = begin("tide.sleep(300) response:finish(request:read_all())");
    app.vm.feed_body(id, b"body");
    app.vm.end_body(id);
    assert!(app.advance(100_000).is_empty());
    app.advance(300_000);
    assert_eq!(app.effects(), Some((200, "body".to_owned())));
}

#[test]
fn body_cannot_be_read_after_the_response_has_begun() {
    let (mut app, id, _) = begin(
        "response:write('a'):flush()
        local data, err = request:read() response:finish(tostring(data) .. err)",
    );
    app.effects();
    assert!(core::mem::take(&mut app.awaits_drain));
    app.vm.feed_body(id, b"body");
    app.vm.note_drained(id);
    let response = Some((200, "anilthe response has begun".to_owned()));
    assert_eq!(resume(&mut app), (CallbackEnd::Done, response));
}

#[test]
fn request_with_a_whole_body_cannot_be_read_in_pieces() {
    let text = "return { on_request = function(request, response)
        local data, err = request:read() response:finish(tostring(data) .. ' ' .. err) end }";
    let mut app = App::load(text, &TIMED);
    let response = Some((200, "nil only on_upload reads the body in pieces".to_owned()));
    assert_eq!(app.get("/").1, response);
}

#[test]
fn request_that_ends_cancels_the_handler() {
    let (mut app, id, _) = begin("request:read() tide.log.info('late')");
    app.vm.close_request(id);
    assert_eq!(app.vm.waiting(), 0);
    assert!(app.advance(1000).is_empty());
    app.effects();
    assert_eq!(app.log, [""; 0]);
    let (mut app, _, verdict) = begin("response:drop() return request:read()");
    assert_eq!(verdict, CallbackEnd::Done);
    app.effects();
    assert_eq!(app.sent, ["9 dropped"]);
}
