//! Hooks on bodies: what `on_body` reads and writes, and when the server must wait.
//! In: scripts, pieces of bodies. Out: the body for the client, room for more.

mod harness;

use harness::{App, TIMED};
use tidegate_lua::{CallbackEnd, CallbackOwner, Excess, Handler, ReplyHead, ScriptRequestId};
use tidegate_wire::http1::{HeadDecoder, ResponseLimits};
use tidegate_wire::message::{RequestKind, ResponseStorage};

const OK: &str = "HTTP/1.1 200 OK\r\nX-A: 1\r\nETag: \"e\"\r\nContent-MD5: x\r\n\r\n";
/// Maximum number of bytes that wait for a script.
const BODY_BYTES_MAX: usize = 64 * 1024;

fn head() -> ReplyHead {
    let mut storage = ResponseStorage::new();
    let (limits, kind) = (ResponseLimits::default(), RequestKind::default());
    let decoded =
        HeadDecoder::default().decode_response(OK.as_bytes(), &limits, kind, &mut storage);
    let (head, _) = decoded.expect("the head is valid").expect("the head is complete");
    ReplyHead::new(&head)
}

struct Flow {
    app: App,
    id: ScriptRequestId,
}

impl Flow {
    /// Runs `text` as `on_body`, for a request with a Range field.
    fn begin(text: &str) -> Self {
        let script = format!("return {{ on_body = function(request, body) {text} end }}");
        let mut app = App::load(&script, &TIMED);
        assert!(app.vm.has(Handler::Body) && !app.vm.has(Handler::Response));
        let id = app.open_hook("GET /a HTTP/1.1\r\nHost: a\r\nRange: bytes=1-\r\n\r\n", &[]);
        app.vm.begin_body(id, 9, Box::new(head()));
        Self { app, id }
    }

    fn run(&mut self) -> CallbackEnd {
        self.app.vm.body(self.id)
    }

    /// Delivers a piece, and continues the hook.
    fn feed(&mut self, data: &str) -> Option<(u16, String)> {
        self.app.vm.feed_body(self.id, data.as_bytes());
        self.app.advance(0);
        self.app.effects()
    }

    fn end(&mut self) -> Option<(u16, String)> {
        self.app.vm.end_body(self.id);
        self.app.advance(0);
        self.app.effects()
    }

    fn close(mut self) {
        self.app.vm.close_request(self.id);
        self.app.advance(0);
        assert_eq!((self.app.vm.requests(), self.app.vm.waiting()), (0, 0));
    }
}

/// The body that the client got. The response must be complete.
fn body_of(response: Option<(u16, String)>) -> String {
    response.expect("the response is complete").1
}

#[test]
fn hook_reads_pieces_and_its_output_is_sent_when_it_waits() {
    let mut flow = Flow::begin(
        "assert(request.headers.range == nil and body.status == 200 and body.headers['x-a'] == '1')
        while true do local data = body:read() if not data then return end body:write('<', data, '>') end",
    );
    assert_eq!(flow.run(), CallbackEnd::Waiting);
    assert_eq!(flow.feed("a"), None);
    assert_eq!(flow.app.partial(), "<a>");
    assert_eq!(flow.feed("bc"), None);
    assert_eq!(body_of(flow.end()), "<a><bc>");
    flow.close();
}

#[test]
fn rest_that_the_hook_does_not_read_is_kept_for_the_client() {
    let mut flow = Flow::begin("body:write('x')");
    flow.app.vm.feed_body(flow.id, b"unread");
    assert_eq!(flow.run(), CallbackEnd::Done);
    assert_eq!(body_of(flow.app.effects()), "x");
    assert_eq!(flow.app.vm.take_rest(flow.id), b"unread");
    flow.close();
}

#[test]
fn server_waits_while_the_hook_does_not_read() {
    let mut flow = Flow::begin("tide.sleep(1) body:write(#body:read())");
    assert_eq!(flow.run(), CallbackEnd::Waiting);
    assert_eq!(flow.app.vm.body_room(flow.id), BODY_BYTES_MAX);
    assert_eq!(flow.feed(&"x".repeat(BODY_BYTES_MAX - 1)), None);
    assert_eq!(flow.app.vm.body_room(flow.id), 1);
    flow.feed("x");
    assert_eq!(flow.app.vm.body_room(flow.id), 0);
    assert_eq!(flow.app.vm.unread_bytes(flow.id), BODY_BYTES_MAX);
    assert_eq!(flow.app.rooms, 0);
    flow.app.advance(1000);
    assert_eq!(body_of(flow.app.effects()), "65536");
    assert_eq!(flow.app.rooms, 1);
    flow.close();
}

#[test]
fn read_all_has_a_limit_and_returns_the_part_that_it_has_read() {
    for (most, expected) in
        [("", "abc"), ("3", "abc"), ("2", "nil too large abc"), ("0", "nil too large a")]
    {
        let mut flow = Flow::begin(&format!(
            "local text, err, part = body:read_all({most})
            body:write(text or 'nil ' .. err .. ' ' .. part)"
        ));
        assert_eq!(flow.run(), CallbackEnd::Waiting);
        let mut response = None;
        for piece in ["a", "b", "c"] {
            response = response.or(flow.feed(piece));
        }
        assert_eq!(body_of(response.or(flow.end())), expected, "{most}");
        flow.close();
    }
}

#[test]
fn wrong_use_is_an_error() {
    for (text, error) in [
        ("body:read_all('x')", "bad argument #1 to 'read_all'"),
        ("body:write({})", "bad argument #1 to 'write'"),
        ("body:set_header('a', 'b')", "set_header"),
        ("body:finish()", "finish"),
    ] {
        let mut flow = Flow::begin(text);
        let end = flow.run();
        let CallbackEnd::Failed(failure) = end else { panic!("{text}: {end:?}") };
        assert!(failure.message.contains(error), "{text}: {failure}");
        flow.close();
    }
}

#[test]
fn only_one_coroutine_reads_and_the_end_of_the_client_ends_its_wait() {
    let mut flow = Flow::begin(
        "local job = tide.spawn(function() tide.log.info(tostring((select(2, body:read())))) end)
        tide.sleep(0.01)
        tide.log.info((select(2, body:read())))
        tide.sleep(1)",
    );
    assert_eq!(flow.run(), CallbackEnd::Waiting);
    flow.app.advance(0);
    flow.app.advance(20);
    flow.app.effects();
    assert_eq!(flow.app.log, ["Info another coroutine reads the body"]);
    let Flow { mut app, id } = flow;
    app.vm.close_request(id);
    app.advance(0);
    app.effects();
    assert_eq!(app.log.last().map(String::as_str), Some("Info the response has ended"));
    assert_eq!((app.vm.requests(), app.vm.waiting()), (0, 0));
}

#[test]
fn fields_of_the_unchanged_content_are_not_sent() {
    let mut reply = head();
    assert_eq!(reply.describe_changed_body(), Ok(()));
    let fields: Vec<_> = reply.fields().map(|(name, _)| name.to_ascii_lowercase()).collect();
    assert_eq!(fields, ["x-a", "etag"]);
    let tag = reply.fields().find(|(name, _)| name.eq_ignore_ascii_case("etag"));
    assert_eq!(tag.map(|(_, value)| value), Some(&b"W/\"e\""[..]));
}

#[test]
fn hook_that_neither_reads_nor_writes_for_a_minute_is_stopped() {
    for wait in [
        "tide.sleep(61)",
        "while true do tide.sleep(1) end",
        "tide.wait(tide.spawn(tide.sleep, 100))",
    ] {
        let mut flow = Flow::begin(&format!("body:read() {wait}"));
        assert_eq!(flow.run(), CallbackEnd::Waiting);
        // While the hook waits for the server, only the timeouts of the server apply.
        assert_eq!(flow.app.advance(600_000), []);
        flow.feed("a");
        let mut ends = Vec::new();
        for _ in 0..59 {
            ends.extend(flow.app.advance(1000));
        }
        assert!(ends.iter().all(|end| end.verdict == CallbackEnd::Waiting), "{wait}: {ends:?}");
        let mut ended = flow.app.advance(1000);
        ended.extend(flow.app.advance(1));
        let ended = ended.pop().expect("the hook ends");
        assert_eq!(ended.owner, CallbackOwner::Request { tag: 9 });
        let CallbackEnd::Failed(failure) = ended.verdict else { panic!("{wait}: {ended:?}") };
        assert_eq!(failure.excess, Some(Excess::Wait));
        assert_eq!(failure.message, "on_body has neither read nor written for 60 s");
        assert!(!failure.is_excess(), "a slow server is no reason to restart the VM");
        flow.close();
    }
}

#[test]
fn hook_that_reads_or_writes_continues() {
    let mut flow = Flow::begin(
        "for _ = 1, 9 do tide.sleep(59) body:write('x') end body:read() tide.sleep(59) body:write('y')",
    );
    assert_eq!(flow.run(), CallbackEnd::Waiting);
    flow.app.vm.feed_body(flow.id, b"a");
    for _ in 0..9 {
        assert!(flow.app.advance(59_000).iter().all(|end| end.verdict == CallbackEnd::Waiting));
    }
    flow.app.advance(59_000);
    assert_eq!(body_of(flow.app.effects()), "xxxxxxxxxy");
    flow.close();
}

#[test]
fn request_to_a_server_ends_with_the_hook_that_waits_for_it() {
    let mut flow = Flow::begin("tide.http.request { pool = 'api', timeout = 1000 }");
    assert_eq!(flow.run(), CallbackEnd::Waiting);
    flow.app.effects();
    let (operation, _) = flow.app.requests.remove(0);
    assert!(flow.app.vm.note_begun(operation, 77));
    assert_eq!(flow.app.advance(59_000), []);
    assert_eq!(flow.app.advance(1000).len(), 1);
    assert_eq!((flow.app.vm.take_cancelled(), flow.app.vm.operations()), (Some(77), 0));
    flow.close();
}

#[test]
fn heads_without_content_describe_the_changed_content() {
    let of = |status, is_head, length| {
        let mut storage = ResponseStorage::new();
        let text = OK.replace("200 OK", &format!("{status} X"));
        let (limits, kind) = (ResponseLimits::default(), RequestKind::default());
        let decoded =
            HeadDecoder::default().decode_response(text.as_bytes(), &limits, kind, &mut storage);
        let (head, _) = decoded.expect("the head is valid").expect("the head is complete");
        ReplyHead::new(&head).describes_changed_body(is_head, length)
    };
    assert!(
        of(200, true, Some(5))
            && of(200, true, None)
            && of(304, false, Some(5))
            && of(304, true, None)
    );
    assert!(
        !of(200, true, Some(0))
            && !of(200, false, Some(0))
            && !of(204, true, None)
            && !of(205, true, None)
    );
}
