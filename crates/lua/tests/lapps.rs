//! The layer `lapps`: services as LAppS's documentation defines them.
//! In: services. Out: what their clients, queues and servers get.

mod harness;

use harness::App;
use tidegate_base::Moment;
use tidegate_lua::{CallbackEnd, ClientId, Handler};

/// The functions that a reactive service needs, besides `onMessage`.
const REST: &str = "onStart = function() end, onShutdown = function() end, onDisconnect = function(handler) left = handler end";

fn reactive(on_message: &str, settings: &str) -> App {
    let text = format!(
        "return {{ {REST}, onMessage = function(handler, what, message) {on_message} end }}"
    );
    App::load_service(&text, settings).unwrap_or_else(|failure| panic!("{failure}"))
}

fn open(app: &mut App, tag: u64) -> ClientId {
    let request = app.open("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    let client = app.vm.open_client(tag).expect("there is room");
    assert_eq!(app.vm.opened(client, request), CallbackEnd::Done);
    client
}

/// What the client with the tag 1 gets for a message.
fn send(app: &mut App, client: ClientId, data: &[u8], is_text: bool) -> Vec<String> {
    let end = app.vm.message(client, data, is_text);
    assert!(end != CallbackEnd::Waiting, "{end:?}");
    app.effects();
    core::mem::take(&mut app.sent)
}

#[test]
fn raw_services_get_the_opcode_and_the_message() {
    let mut app = reactive(
        "if message == 'close' then return ws:close(handler, 1000, 'bye') end
        if message == 'false' then return false end
        assert(ws:send(handler + 1, 1, 'x') == false and ws:send(handler, 9, 'x') == false)
        return ws:send(handler, what, what .. ' ' .. message)",
        "{}",
    );
    let client = open(&mut app, 1);
    assert_eq!(send(&mut app, client, b"a", true), ["1 text 1 a"]);
    assert_eq!(send(&mut app, client, b"b", false), ["1 binary 2 b"]);
    assert_eq!(send(&mut app, client, b"false", true), ["1 close 1011 the service has failed"]);
    let other = open(&mut app, 2);
    assert_eq!(send(&mut app, other, b"close", true), ["2 close 1000 bye"]);
    assert_eq!(app.vm.closed(other, 1000, ""), CallbackEnd::Done);
}

#[test]
fn messages_of_the_lapps_protocol_are_decoded_and_have_a_type() {
    let mut app = reactive(
        "tide.log.info(what, message.method, tostring(message.cid), nljson.encode(message.params or {}))
        return ws:send(handler, { cid = 0 })",
        r#"{"protocol":"LAppS"}"#,
    );
    let client = open(&mut app, 1);
    let lapps = b"\x65lapps\x01\x66method\x61m";
    for (head, rest, seen) in [
        (0xa2, &b""[..], "Info 3 m nil {}"),
        (0xa3, b"\x66params\x81\x07", "Info 4 m nil [7]"),
        (0xa3, b"\x63cid\x05", "Info 1 m 5 {}"),
        (0xa4, b"\x63cid\x05\x66params\x80", "Info 2 m 5 []"),
        (0xa3, b"\x63cid\x00", "Info 3 m 0 {}"),
    ] {
        let data = [&[head], &lapps[..], rest].concat();
        assert_eq!(send(&mut app, client, &data, false), ["1 binary \u{fffd}ccid\0"]);
        assert_eq!(app.log.pop().as_deref(), Some(seen));
    }
    let closed = ["1 close 1003 not a message of the LAppS protocol"];
    assert_eq!(send(&mut app, client, b"\xa1\x65lapps\x02", false), closed);
    for (tag, (data, is_text)) in
        [(2, (&b"{}"[..], true)), (3, (b"\x80", false)), (4, (b"\xff", false))]
    {
        let client = open(&mut app, tag);
        let sent = send(&mut app, client, data, is_text);
        assert!(sent[0].ends_with("close 1003 not a message of the LAppS protocol"), "{sent:?}");
    }
}

#[test]
fn nljson_has_the_functions_of_the_documentation() {
    let checks = r#"
        local o = nljson.decode('{"a":[1,{"b":null,"c":"x"}],"d":true,"e":null}')
        assert(o.a[1] == 1 and o.a[2].c == 'x' and o.a[2].b == nil and o.e == nil and o.d == true)
        assert(nljson.find(o, 'd') == true and nljson.find(o, 'z') == nil)
        assert(nljson.typename(o) == 'object' and nljson.typename(o.a) == 'array' and nljson.typename('x') == 'string')
        assert(nljson.typename(nljson.find(o, 'z')) == 'null' and nljson.typename(1) == 'number')
        assert(nljson.empty(nljson.decode('[]')) and not nljson.empty(o))
        assert(nljson.erase(o, 'd') and not nljson.erase(o, 'd') and o.d == nil)
        assert(nljson.erase(o.a, 1) and o.a[1].c == 'x' and not nljson.erase(5, 1))
        assert(nljson.encode(nljson.decode('[]')) == '[]' and nljson.encode({ x = {} }) == '{"x":{}}')
        local seen = {}
        nljson.foreach(nljson.decode('[5,6]'), function(key, value) seen[#seen + 1] = key .. '=' .. value end)
        assert(table.concat(seen, ' ') == '1=5 2=6')
        seen = {}
        nljson.traverse(nljson.decode('{"a":[1,[2]]}'), function(key, value) seen[#seen + 1] = key .. type(value) end)
        assert(table.concat(seen, ' ') == '1number 1number 2table atable', table.concat(seen, ' '))
        assert(nljson.from_cbor(nljson.to_cbor({ 1, { a = 'b' } }))[2].a == 'b')
        assert(nljson.encode_pretty(nljson.decode('{"b":[1,"x"],"a":{}}'), 2) ==
            '{\n  "a": {},\n  "b": [\n    1,\n    "x"\n  ]\n}')
        assert(not pcall(nljson.decode, '{') and not pcall(nljson.decode_file, 'x'))
        assert(murmur.hashstr('hello') == '26553298fdbe39c8' and murmur.hashnum(7) == 7)
        assert(murmur.hashstr(255) == '00000000000000ff' and murmur.hashnum('hello') > 2^60)
        assert(pam_auth.login('a', 'b', 'c') == false and require('nljson') == nljson)
        assert(type(time.now()) == 'number' and instance_id == 0)
        other_global = 5
        return true"#;
    let mut app = reactive(checks, "{}");
    let client = open(&mut app, 1);
    assert_eq!(app.vm.message(client, b"x", true), CallbackEnd::Done);
}

#[test]
fn broadcasts_reach_the_subscribers_of_their_channel() {
    let mut app = reactive(
        "if message == 'in' then return bcast:subscribe(1000, handler) end
        if message == 'out' then return bcast:unsubscribe(1000, handler) end
        assert(bcast:create(1000) and bcast:send(1000, { cid = 5 }) and not bcast:send('x', {}))
        return true",
        "{}",
    );
    assert!(app.vm.has(Handler::Broadcast));
    let (one, two) = (open(&mut app, 1), open(&mut app, 2));
    assert_eq!(send(&mut app, one, b"in", true), [""; 0]);
    assert_eq!(send(&mut app, two, b"send", true), [""; 0]);
    let broadcasts = core::mem::take(&mut app.broadcasts);
    assert_eq!(broadcasts, [("1000".to_owned(), b"\xa1\x63cid\x05".to_vec())]);
    let broadcast = |app: &mut App, channel: &str| {
        assert_eq!(app.vm.broadcast(channel, &broadcasts[0].1), CallbackEnd::Done);
        app.effects();
        core::mem::take(&mut app.sent)
    };
    assert_eq!(broadcast(&mut app, "1000"), ["1 binary \u{fffd}ccid\u{5}"]);
    assert_eq!(broadcast(&mut app, "2000"), [""; 0]);
    send(&mut app, two, b"in", true);
    send(&mut app, one, b"out", true);
    assert_eq!(broadcast(&mut app, "1000").len(), 1);
    app.vm.closed(two, 1000, "");
    assert_eq!(broadcast(&mut app, "1000"), [""; 0]);
}

#[test]
fn broadcast_continues_beyond_the_output_limit_and_a_failure_does_not_block_the_next() {
    let mut app = reactive("return bcast:subscribe(7, handler)", "{}");
    let clients: Vec<_> = (1..=3).map(|tag| open(&mut app, tag)).collect();
    for client in &clients {
        send(&mut app, *client, b"in", true);
    }
    let large = vec![b'x'; 7 * 1024 * 1024];
    assert_eq!(app.vm.broadcast("7", &large), CallbackEnd::Waiting);
    assert!(app.vm.is_broadcasting(), "the third client is still to be served");
    app.effects();
    assert_eq!(core::mem::take(&mut app.sent).len(), 2);
    assert_eq!(app.advance(20).len(), 1);
    assert!(!app.vm.is_broadcasting());
    app.effects();
    assert_eq!(core::mem::take(&mut app.sent).len(), 1);
    // A cancelled broadcast does not block the next one.
    assert_eq!(app.vm.broadcast("7", &large), CallbackEnd::Waiting);
    app.vm.stop();
    assert!(!app.vm.is_broadcasting());
}

#[test]
fn queues_keep_messages_in_order() {
    let mut app = reactive(
        "local queue = mqr.create('q')
        if message == 'get' then
            local found = queue:try_recv()
            return ws:send(handler, 1, found and found.n .. '' or 'none')
        end
        return queue:post({ n = message })",
        "{}",
    );
    let client = open(&mut app, 1);
    send(&mut app, client, b"1", true);
    send(&mut app, client, b"2", true);
    assert_eq!(send(&mut app, client, b"get", true), ["1 text 1"]);
    assert_eq!(send(&mut app, client, b"get", true), ["1 text 2"]);
    assert_eq!(send(&mut app, client, b"get", true), ["1 text none"]);
}

#[test]
fn services_share_queues_that_they_list() {
    let mut app = reactive(
        "local queue = mqr.create('jobs')
        if message == 'get' then return ws:send(handler, 1, queue:recv().n) end
        return queue:post({ n = message })",
        "{}",
    );
    let (one, other) = (open(&mut app, 1), open(&mut app, 2));
    assert_eq!(app.vm.message(one, b"get", true), CallbackEnd::Waiting);
    app.effects();
    send(&mut app, other, b"7", true);
    assert_eq!(core::mem::take(&mut app.filled), [(0, 0)]);
    let queue = app.vm.queue(0).cloned().expect("the queue");
    assert!(app.vm.note_queue(&queue));
    app.advance(0);
    app.effects();
    assert_eq!(app.sent, ["1 text 7"]);
}

#[test]
fn standalone_instances_run_and_restart_after_an_error() {
    let text = "test = { runs = 0 }
        function test.init() test.runs = test.runs + 1 end
        function test.run()
            local n = nap:new()
            n:usleep(20000)
            if test.runs == 1 then error('it fails') end
            while not must_stop() do n:sleep(1) print('run ' .. test.runs) end
            print('stopped')
        end";
    let mut app = App::load_service(text, "{}").unwrap_or_else(|failure| panic!("{failure}"));
    assert_eq!(app.vm.start(), CallbackEnd::Done);
    for _ in 0..40 {
        app.advance(100);
        app.effects();
    }
    assert!(app.log.iter().any(|line| line.contains("will be restarted in 1 s")), "{:?}", app.log);
    assert!(app.log.iter().any(|line| line == "Info run 2"), "{:?}", app.log);
    app.vm.note_stopping(Moment::from_nanos(30_000_000_000));
    app.advance(1000);
    app.advance(0);
    app.effects();
    assert_eq!(app.log.last().map(String::as_str), Some("Info stopped"));
    assert!(app.vm.is_idle());
    // Only so many workers as there are instances run the service.
    let mut none =
        App::load_service(text, r#"{"instances":0}"#).unwrap_or_else(|failure| panic!("{failure}"));
    assert_eq!(none.vm.start(), CallbackEnd::Done);
    none.advance(100);
    assert!(none.vm.is_idle());
}

#[test]
fn settings_map_urls_to_pools() {
    let text = "return { init = function() end, run = function()
            tide.log.info((select(2, cws:new('ws://other/', {}))))
            local socket, err = cws:new('wss://host:1/chat?x', {})
            tide.log.info(tostring(socket) .. ' ' .. err)
            tide.sleep(1000)
        end }";
    let mut app = App::load_service(text, r#"{"wss://host:1":"api"}"#)
        .unwrap_or_else(|failure| panic!("{failure}"));
    assert_eq!(app.vm.start(), CallbackEnd::Done);
    app.advance(0);
    app.advance(0);
    app.effects();
    assert_eq!(
        app.log,
        ["Info no pool for ws://other/: `settings` of [lua.test] has no entry for its origin"]
    );
    let (socket, pool) = app.sockets.remove(0);
    assert!(pool.contains('0'), "{pool}");
    app.vm.socket_ended(2, socket, "refused");
    app.advance(0);
    app.effects();
    assert_eq!(app.log[1], "Info nil refused");
}

#[test]
fn scripts_that_are_not_services_are_refused() {
    for (text, error) in [
        ("return 5", "must return the table of a service"),
        ("return { onStart = function() end }", "lacks the function 'onMessage'"),
        ("return { run = function() end }", "lacks the function 'init'"),
        ("return {", "app.lua:1"),
    ] {
        let failure = App::load_service(text, "{}").err().unwrap_or_else(|| panic!("{text} loads"));
        assert!(failure.message.contains(error), "{text}: {failure}");
    }
}
