//! The client for Redis: commands and replies of both versions of the protocol.
//! In: scripts, replies of a server in pieces. Out: what scripts get, and what they send.

mod harness;

use harness::{App, TIMED};
use tidegate_lua::{CallbackEnd, ScriptRequestId, SocketId};

/// The number of the VM.
const VM: u32 = 2;
/// A script that shows values: `[a,b]` for lists, `{k=v}` for maps.
const SHOW: &str = "local function show(value)
        if value == tide.json.null then return 'null' end
        if type(value) ~= 'table' then return tostring(value) end
        local parts = {}
        if #value > 0 or next(value) == nil then
            for at, one in ipairs(value) do parts[at] = show(one) end
            return '[' .. table.concat(parts, ',') .. ']'
        end
        for key, one in pairs(value) do parts[#parts + 1] = key .. '=' .. show(one) end
        table.sort(parts)
        return '{' .. table.concat(parts, ',') .. '}'
    end";

/// An application that runs `body` in `on_request`, with a connection `r` that was opened with `options`.
fn begin(options: &str, body: &str) -> (App, ScriptRequestId) {
    let text = format!(
        "{SHOW} return {{ on_request = function(request, response)
            local r, err = tide.redis.connect('api', {options})
            if not r then return response:finish('no connection: ' .. err) end
            {body} end }}"
    );
    let mut app = App::load(&text, &TIMED);
    let id = app.open("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(app.vm.request(id), CallbackEnd::Waiting);
    app.effects();
    (app, id)
}

fn connect(app: &mut App) -> SocketId {
    let (socket, what) = app.sockets.last().cloned().expect("an effect");
    assert_eq!(what, "connect 0");
    assert!(app.vm.socket_begun(socket, 5));
    app.vm.socket_connected(VM, socket, false);
    app.advance(0);
    socket
}

/// Delivers `replies`, whole or byte by byte. Returns the response and what the server got.
fn run(options: &str, body: &str, replies: &str) -> (String, String) {
    let mut results = [1, 1 << 20].map(|piece| {
        let (mut app, id) = begin(options, body);
        let socket = connect(&mut app);
        let mut response = app.effects();
        for piece in replies.as_bytes().chunks(piece) {
            app.vm.socket_received(VM, socket, piece);
            app.advance(0);
            response = response.or(app.effects());
        }
        app.advance(61_000);
        let text = response.or(app.effects()).expect("it answers").1;
        app.vm.close_request(id);
        (text, String::from_utf8_lossy(&app.raw).into_owned())
    });
    assert_eq!(results[0], results[1], "pieces make no difference");
    core::mem::take(&mut results[0])
}

#[test]
fn commands_are_sent_with_their_lengths() {
    let body = "r:set('key', 'a b', 'EX', 10) r:call('GET', 1.5) r:whatever(2 ^ 40) response:finish('done')";
    let (text, sent) = run("nil", body, "+OK\r\n$-1\r\n:1\r\n");
    assert_eq!(text, "done");
    let expected = "*5\r\n$3\r\nSET\r\n$3\r\nkey\r\n$3\r\na b\r\n$2\r\nEX\r\n$2\r\n10\r\n\
        *2\r\n$3\r\nGET\r\n$3\r\n1.5\r\n*2\r\n$8\r\nWHATEVER\r\n$13\r\n1099511627776\r\n";
    assert_eq!(sent, expected);
}

#[test]
fn replies_of_both_versions_become_values() {
    let body = "local value, err = r:get('k') response:finish(show(value) .. ' ' .. tostring(err))";
    for (reply, expected) in [
        ("+OK\r\n", "OK nil"),
        ("-ERR wrong\r\n", "nil ERR wrong"),
        (":-12\r\n", "-12 nil"),
        ("$5\r\na\r\nbc\r\n", "a\r\nbc nil"),
        ("$-1\r\n", "nil nil"),
        ("*-1\r\n", "nil nil"),
        ("*0\r\n", "[] nil"),
        ("*4\r\n:1\r\n$-1\r\n*1\r\n+a\r\n-ERR x\r\n", "[1,null,[a],{error=ERR x}] nil"),
        ("_\r\n", "nil nil"),
        ("#t\r\n", "true nil"),
        (",1.5\r\n", "1.5 nil"),
        (",-inf\r\n", "-inf nil"),
        ("(12345678901234567890\r\n", "12345678901234567890 nil"),
        ("!5\r\nERR y\r\n", "nil ERR y"),
        ("=7\r\ntxt:abc\r\n", "abc nil"),
        ("%2\r\n+a\r\n:1\r\n+b\r\n_\r\n", "{a=1,b=null} nil"),
        ("~2\r\n+a\r\n+b\r\n", "[a,b] nil"),
        ("|1\r\n+ttl\r\n:3\r\n+value\r\n", "value nil"),
    ] {
        assert_eq!(run("nil", body, reply).0, expected, "{reply:?}");
    }
}

#[test]
fn malformed_large_and_missing_replies_close_the_connection() {
    let body = "local value, err = r:get('k') response:finish(show(value) .. ' ' .. err .. ' ' .. select(2, r:get('k')))";
    let deep = "*1\r\n".repeat(40);
    for (reply, expected) in [
        ("?\r\n", "nil the reply is malformed, at an unknown type closed"),
        ("$x\r\n", "nil the reply is malformed, at a length closed"),
        ("$2\r\nabc\r\n", "nil the reply is malformed, at the end of a string closed"),
        (&deep[..], "nil the reply is malformed, at a value nested too deeply closed"),
        ("$4001\r\n", "nil reply too large closed"),
        // A line without an end, and lists whose elements cost more than their bytes.
        (&"+".repeat(4100)[..], "nil reply too large closed"),
        ("*4000000000\r\n*0\r\n", "nil reply too large closed"),
        (&format!("*80\r\n{}", "*0\r\n".repeat(80))[..], "nil reply too large closed"),
        ("%200\r\n", "nil reply too large closed"),
        (&"|0\r\n".repeat(100)[..], "nil reply too large closed"),
        ("*2\r\n$80\r\n", "nil timeout closed"),
        ("", "nil timeout closed"),
    ] {
        assert_eq!(run("{ reply_max = 4000, timeout = 1 }", body, reply).0, expected, "{reply:?}");
    }
    // The default is an eighth of the memory.
    let large = "$1048577\r\n";
    assert_eq!(run("nil", body, large).0, "nil reply too large closed");
}

#[test]
fn pipeline_sends_all_commands_at_once() {
    let body =
        "response:finish(show(r:pipeline { { 'SET', 'a', 1 }, { 'GET', 'b' }, { 'INCR', 'a' } }))";
    let (text, sent) = run("nil", body, "+OK\r\n$-1\r\n-ERR no\r\n");
    assert_eq!(text, "[OK,null,{error=ERR no}]");
    assert_eq!(sent.matches('*').count(), 3);
}

#[test]
fn new_connections_are_authenticated() {
    let body = "response:finish('connected')";
    for (options, replies, text, sent) in [
        ("{ password = 'p' }", "+OK\r\n", "connected", "*2\r\n$4\r\nAUTH\r\n$1\r\np\r\n"),
        (
            "{ password = 'p', user = 'u', database = 3 }",
            "+OK\r\n-ERR index\r\n",
            "no connection: ERR index",
            "*3\r\n$4\r\nAUTH\r\n$1\r\nu\r\n$1\r\np\r\n*2\r\n$6\r\nSELECT\r\n$1\r\n3\r\n",
        ),
        (
            "{ protocol = 3, reply_max = 1 }",
            "%1\r\n+proto\r\n:3\r\n",
            "connected",
            "*2\r\n$5\r\nHELLO\r\n$1\r\n3\r\n",
        ),
    ] {
        assert_eq!(run(options, body, replies), (text.to_owned(), sent.to_owned()), "{options}");
    }
    let wrong = "response:finish(tostring(pcall(tide.redis.connect, 'api', { name = 1 }))
        .. tostring(pcall(tide.redis.connect, 'none')) .. tostring(pcall(r.get, r, {})))";
    assert_eq!(run("nil", wrong, "").0, "falsefalsefalse");
}

#[test]
fn messages_of_subscriptions_are_read() {
    let body = "local first = r:subscribe('news')
        local text = show(first) .. show(r:read())
        local value, err = r:read()
        response:finish(text .. tostring(value) .. err .. show(r:read()))";
    let message = |kind: &str, text: &str| format!("{kind}3\r\n+message\r\n+news\r\n+{text}\r\n");
    for kind in ["*", ">"] {
        let (mut app, id) = begin("{ timeout = 1 }", body);
        let socket = connect(&mut app);
        let replies = format!("{kind}3\r\n+subscribe\r\n+news\r\n:1\r\n{}", message(kind, "a"));
        app.vm.socket_received(VM, socket, replies.as_bytes());
        app.advance(0);
        // Silence does not end the connection.
        app.advance(1100);
        app.vm.socket_received(VM, socket, message(kind, "b").as_bytes());
        app.advance(0);
        let text = app.effects().expect("it answers").1;
        let expected = "[subscribe,news,1][message,news,a]niltimeout[message,news,b]";
        assert_eq!(text, expected, "{kind}");
        app.vm.close_request(id);
    }
    // Messages that arrive before a reply wait for `read`.
    let body = "local value = r:get('k') response:finish(show(value) .. show(r:read()))";
    let replies = format!("{}$1\r\nv\r\n", message(">", "a"));
    assert_eq!(run("nil", body, &replies).0, "v[message,news,a]");
}

#[test]
fn errors_in_values_cannot_be_mistaken_for_fields() {
    let body = "local all = r:pipeline { { 'HGETALL', 'a' }, { 'GET', 'b' } }
        local text = ''
        for at = 1, 2 do text = text .. show(all[at]) .. tostring(tide.redis.is_error(all[at])) end
        response:finish(text .. tostring(tide.redis.is_error('x')) .. tostring(tide.redis.is_error(nil)))";
    let (text, _) = run("nil", body, "%1\r\n+error\r\n+mine\r\n-ERR no\r\n");
    assert_eq!(text, "{error=mine}false{error=ERR no}truefalsefalse");
    // A key of a map may be false.
    let body = "local map = r:get('a') response:finish(tostring(map[false]) .. tostring(map[1]))";
    assert_eq!(run("nil", body, "%1\r\n#f\r\n+no\r\n").0, "nonil");
}

#[test]
fn confirmations_of_subscriptions_are_told_from_messages() {
    let lists = |kind: &str, lists: &[&[&str]]| -> String {
        let list = |words: &&[&str]| {
            let words: String = words.iter().map(|word| format!("{word}\r\n")).collect();
            format!("{kind}{}\r\n{words}", words.matches("\r\n").count())
        };
        lists.iter().map(list).collect()
    };
    let body = "r:subscribe('a')
        local text = show(r:subscribe('b', 'c')) .. show(r:read()) .. show(r:ping()) .. show(r:read())
        response:finish(text .. show(r:unsubscribe()) .. show(r:read()) .. show((r:get('k'))))";
    for (options, kind, pong, shown) in [
        ("nil", "*", "*2\r\n+pong\r\n$0\r\n\r\n", "[pong,]"),
        ("{ protocol = 3 }", ">", "+PONG\r\n", "PONG"),
    ] {
        let hello = if kind == ">" { "%1\r\n+proto\r\n:3\r\n" } else { "" };
        let message = |text| ["+message", "+a", text];
        let replies = [
            hello.to_owned(),
            lists(
                kind,
                &[
                    &["+subscribe", "+a", ":1"],
                    &message("+1"),
                    &["+subscribe", "+b", ":2"],
                    &["+subscribe", "+c", ":3"],
                    &message("+2"),
                ],
            ),
            pong.to_owned(),
            lists(
                kind,
                &[
                    &["+unsubscribe", "+a", ":2"],
                    &["+message", "+b", "+3"],
                    &["+unsubscribe", "+b", ":1"],
                    &["+unsubscribe", "+c", ":0"],
                ],
            ),
            // Not a message: nothing is subscribed.
            "*1\r\n+message\r\n".to_owned(),
        ];
        let (text, _) = run(options, body, &replies.concat());
        let expected = format!(
            "[subscribe,c,3][message,a,1]{shown}[message,a,2][unsubscribe,c,0][message,b,3][message]"
        );
        assert_eq!(text, expected, "{options}");
    }
    // They are bounded together.
    let pushes = format!(">2\r\n+message\r\n+{}\r\n", "x".repeat(1000)).repeat(4);
    let body = "response:finish(tostring(select(2, r:get('k'))))";
    let (text, _) = run("{ reply_max = 4000 }", body, &pushes);
    assert_eq!(text, "too many messages wait for 'read'");
    // Without a subscription there is one confirmation; in a transaction the reply is another one.
    let body = "local one = show(r:unsubscribe()) r:multi() response:finish(one .. show(r:subscribe('a', 'b')))";
    let replies = "*3\r\n+unsubscribe\r\n$-1\r\n:0\r\n+OK\r\n+QUEUED\r\n";
    assert_eq!(run("nil", body, replies).0, "[unsubscribe,null,0]QUEUED");
}

#[test]
fn states_that_others_must_not_get_end_with_a_success_only() {
    for (calls, replies, is_kept) in [
        ("r:get('a')", "$-1\r\n", true),
        ("r:watch('a')", "+OK\r\n", false),
        ("r:watch('a') r:unwatch()", "+OK\r\n+OK\r\n", true),
        ("r:watch('a') r:multi() r:exec()", "+OK\r\n+OK\r\n*0\r\n", true),
        ("r:multi() r:call('discard')", "+OK\r\n+OK\r\n", true),
        // It is queued in the transaction.
        ("r:multi() r:unwatch()", "+OK\r\n+QUEUED\r\n", false),
        ("r:multi() r:call('DISCARD', 'x')", "+OK\r\n-ERR wrong number\r\n", false),
        ("r:multi() r:exec('x')", "+OK\r\n-ERR wrong number\r\n", false),
        (
            "r:pipeline { { 'MULTI' }, { 'INCR', 'a' }, { 'EXEC' } }",
            "+OK\r\n+QUEUED\r\n*1\r\n:1\r\n",
            true,
        ),
        ("r:pipeline { { 'EXEC' }, { 'MULTI' } }", "*0\r\n+OK\r\n", false),
        ("r:call('SELECT', 1) r:multi() r:exec()", "+OK\r\n+OK\r\n*0\r\n", false),
        ("r:unsubscribe('a')", "*3\r\n+unsubscribe\r\n+a\r\n:0\r\n", false),
        ("r:script('debug', 'YES')", "+OK\r\n", false),
        ("r:script('LOAD', 'x')", "+abc\r\n", true),
        ("r:psync('?', -1)", "+CONTINUE\r\n", false),
        ("r:call('readwrite')", "+OK\r\n", false),
    ] {
        let body = format!("{calls} response:finish(tostring((r:keep())))");
        let expected = if is_kept { "true" } else { "nil" };
        assert_eq!(run("nil", &body, replies).0, expected, "{calls}");
    }
}

#[test]
fn connection_whose_call_was_cancelled_is_closed_by_the_next_call() {
    let text = "local r
        return { on_start = function() r = tide.redis.connect('api') end,
        on_request = function(request, response)
            local value, err = r:get('k') response:finish(tostring(value) .. ' ' .. tostring(err)) end }";
    let mut app = App::load(text, &TIMED);
    assert_eq!(app.vm.start(), CallbackEnd::Waiting);
    app.effects();
    connect(&mut app);
    let open = |app: &mut App| {
        let id = app.open("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        let verdict = app.vm.request(id);
        (id, verdict, app.effects().map(|(_, text)| text))
    };
    let (first, ..) = open(&mut app);
    let (second, _, text) = open(&mut app);
    assert_eq!(text.expect("it answers"), "nil another coroutine uses the connection");
    app.vm.close_request(second);
    // The client of the first call leaves.
    app.vm.close_request(first);
    let (third, verdict, text) = open(&mut app);
    assert_eq!((verdict, &text.expect("it answers")[..]), (CallbackEnd::Done, "nil closed"));
    app.vm.close_request(third);
    assert_eq!(app.vm.sockets(), 0);
}

#[test]
fn connections_are_kept_unless_they_have_a_state() {
    let body = "r:get('k') local kept = r:keep(10, 5)
        local again = assert(tide.redis.connect('api', { password = 'p' }))
        again:multi()
        local ok, err = again:keep()
        response:finish(tostring(kept) .. tostring(ok) .. err:sub(1, 22))";
    let (text, sent) = run("{ password = 'p' }", body, "+OK\r\n$-1\r\n");
    // The reply to MULTI is missing: the connection is unusable.
    assert!(text.starts_with("truenil"), "{text}");
    assert_eq!(sent.matches("AUTH").count(), 1, "a kept connection is authenticated");
}
