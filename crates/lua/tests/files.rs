//! Files that a script sends or reads: the pieces that it requests, and the responses.
//! In: scripts, pieces of files. Out: reads, responses.

mod harness;

use harness::{App, TIMED};
use tidegate_lua::CallbackEnd;

const SCRIPT: &str = "return { on_request = function(request, response)
    local ok, err = response:file(request.path:sub(2))
    if not ok then response:status(404):finish(err) end
  end }";

/// Requests a file. Returns the application, whose handler waits for the first piece.
fn begin(head: &str) -> App {
    let mut app = App::load(SCRIPT, &TIMED);
    let id = app.open(&format!("{head}Host: a\r\n\r\n"));
    assert_eq!(app.vm.request(id), CallbackEnd::Waiting);
    app.effects();
    app
}

/// Gives the script the piece that it waits for, and lets it continue. Returns the response if it is complete.
fn give(app: &mut App, piece: &str) -> (CallbackEnd, Option<(u16, String)>) {
    let (operation, _) = app.reads.pop().expect("a read");
    app.vm.complete(2, operation, Ok(piece.as_bytes()));
    let mut verdict = app.vm.resume().expect("the handler is ready").verdict;
    let mut response = app.effects();
    // The client reads what was sent.
    while verdict == CallbackEnd::Waiting && core::mem::take(&mut app.awaits_drain) {
        app.vm.note_drained(app.opened);
        verdict = app.vm.resume().expect("the handler is ready").verdict;
        response = app.effects();
    }
    (verdict, response)
}

fn field<'a>(app: &'a App, name: &str) -> Option<&'a str> {
    let mut found = app.head.1.iter().filter(|(own, _)| own.eq_ignore_ascii_case(name));
    found.next().map(|(_, value)| value.as_str())
}

#[test]
fn file_in_one_piece_is_a_response_with_its_type_and_version() {
    let mut app = begin("GET /a/page.HTML HTTP/1.1\r\n");
    assert_eq!(app.reads[0].1, "a/page.HTML 0 65536");
    let (verdict, response) = give(&mut app, "5 784111777 1f\nhello");
    assert_eq!((verdict, response), (CallbackEnd::Done, Some((200, "hello".to_owned()))));
    assert_eq!(field(&app, "content-type"), Some("text/html; charset=utf-8"));
    assert_eq!(field(&app, "etag"), Some("\"1f\""));
    assert_eq!(field(&app, "last-modified"), Some("Sun, 06 Nov 1994 08:49:37 GMT"));
}

#[test]
fn client_that_has_the_file_gets_304() {
    for (fields, status) in [
        ("If-None-Match: \"1f\"\r\n", 304),
        ("If-None-Match: \"1e\", W/\"1f\"\r\n", 304),
        ("If-None-Match: *\r\n", 304),
        ("If-None-Match: \"1e\"\r\n", 200),
        // The tag decides.
        ("If-None-Match: \"1e\"\r\nIf-Modified-Since: Sun, 06 Nov 1994 08:49:37 GMT\r\n", 200),
        ("If-Modified-Since: Sun, 06 Nov 1994 08:49:37 GMT\r\n", 304),
        ("If-Modified-Since: Sun, 06 Nov 1994 08:49:38 GMT\r\n", 200),
    ] {
        let mut app = begin(&format!("GET /a HTTP/1.1\r\n{fields}"));
        let (_, response) = give(&mut app, "5 784111777 1f\nhello");
        let body = if status == 200 { "hello" } else { "" };
        assert_eq!(response, Some((status, body.to_owned())), "{fields}");
    }
}

#[test]
fn larger_file_is_sent_in_pieces_of_one_version() {
    let mut app = begin("GET /a.bin HTTP/1.1\r\n");
    assert_eq!(give(&mut app, "9 7 1f\nabcd"), (CallbackEnd::Waiting, None));
    assert_eq!(app.reads[0].1, "a.bin 4 65536");
    assert_eq!(give(&mut app, "9 7 1f\nefgh"), (CallbackEnd::Waiting, None));
    let (verdict, response) = give(&mut app, "9 7 1f\ni");
    assert_eq!((verdict, response), (CallbackEnd::Done, Some((200, "abcdefghi".to_owned()))));
    assert_eq!(field(&app, "content-type"), Some("application/octet-stream"));

    for second in ["9 7 2f\nefgh", "4 7 1f\n"] {
        let mut app = begin("GET /a.bin HTTP/1.1\r\n");
        give(&mut app, "9 7 1f\nabcd");
        let (verdict, response) = give(&mut app, second);
        let CallbackEnd::Failed(failure) = verdict else { panic!("{verdict:?}") };
        let error = "a.bin: the file has changed while it was read";
        assert!(failure.message.contains(error), "{}", failure.message);
        assert_eq!(response, None);
    }
}

#[test]
fn head_of_a_larger_file_needs_one_piece() {
    let mut app = begin("HEAD /a.css HTTP/1.1\r\n");
    let (verdict, response) = give(&mut app, "999999 7 1f\nabcd");
    assert_eq!((verdict, response), (CallbackEnd::Done, Some((200, String::new()))));
    assert!(app.reads.is_empty());
    assert_eq!(field(&app, "content-type"), Some("text/css; charset=utf-8"));
}

#[test]
fn file_that_does_not_exist_leaves_the_response_to_the_script() {
    let mut app = App::load(SCRIPT, &TIMED);
    for path in ["/.a", "/a//b", "/", "/a/"] {
        assert_eq!(app.get(path).1, Some((404, "not found".to_owned())), "{path}");
    }
    let mut app = begin("GET /a HTTP/1.1\r\n");
    let (operation, _) = app.reads.pop().expect("a read");
    app.vm.complete(2, operation, Err("not found"));
    app.vm.resume().expect("the handler is ready");
    assert_eq!(app.effects(), Some((404, "not found".to_owned())));
    assert_eq!(field(&app, "etag"), None);
}

#[test]
fn whole_file_is_read_up_to_a_limit() {
    let script = "return { on_request = function(request, response)
        local text, err = tide.files.read('a', tonumber(request.query.most))
        response:finish(text or err) end }";
    for (target, first, expected) in [
        ("/", "3 7 1f\nabc", Some("abc")),
        ("/?most=3", "3 7 1f\nabc", Some("abc")),
        ("/?most=2", "3 7 1f\nabc", Some("too large")),
        ("/", "1048577 7 1f\nabc", Some("too large")),
        ("/", "6 7 1f\nabc", None),
    ] {
        let mut app = App::load(script, &TIMED);
        let id = app.open(&format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n"));
        app.vm.request(id);
        app.effects();
        let mut response = give(&mut app, first).1;
        if expected.is_none() {
            response = give(&mut app, "6 7 1f\ndef").1;
        }
        let expected = expected.unwrap_or("abcdef");
        assert_eq!(response, Some((200, expected.to_owned())), "{target} {first}");
    }
}
