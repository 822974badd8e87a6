//! WebSocket clients of scripts.
//! In: scripts and events. Out: messages, verdicts.

mod harness;

use harness::{App, TIMED};
use tidegate_lua::{CallbackEnd, ClientId};

/// Opens a client.
fn open(app: &mut App, tag: u64) -> (ClientId, CallbackEnd) {
    let request = app.open("GET /room?name=a HTTP/1.1\r\nHost: a\r\n\r\n");
    let client = app.vm.open_client(tag).expect("there is room");
    let verdict = app.vm.opened(client, request);
    app.effects();
    app.vm.close_request(request);
    (client, verdict)
}

#[test]
fn clients_send_and_close() {
    let text = "return {
            on_open = function(client, request)
                client:state().name = request.query.name
                assert(client:send('welcome ' .. request.query.name))
            end,
            on_message = function(client, message, kind)
                if message == 'bye' then return client:close(4001, 'as asked') end
                client:send(message, kind)
                client:send(client:state().name)
            end,
            on_close = function(client, code, reason)
                tide.log.info(code, reason, client:is_open(), client:send('x'))
            end,
        }";
    let mut app = App::load(text, &TIMED);
    let (client, verdict) = open(&mut app, 5);
    assert_eq!((verdict, app.sent.join(";")), (CallbackEnd::Done, "5 text welcome a".to_owned()));
    assert_eq!(app.vm.message(client, b"\xff", false), CallbackEnd::Done);
    assert_eq!(app.vm.message(client, b"bye", true), CallbackEnd::Done);
    app.effects();
    assert_eq!(app.sent[1..], ["5 binary \u{fffd}", "5 text a", "5 close 4001 as asked"]);
    assert_eq!(app.vm.closed(client, 4001, "as asked"), CallbackEnd::Done);
    app.effects();
    assert_eq!(app.log, ["Info 4001 as asked false nil the connection is closed"]);
    assert_eq!(app.vm.clients(), 0);
    assert_eq!(app.vm.message(client, b"late", true), CallbackEnd::Done);
}

#[test]
fn handle_of_an_earlier_client_never_reaches_a_later_client() {
    let text = "local first, kept
        return {
            on_open = function(client) if not first then first, kept = client, client:id() end end,
            on_message = function(client, message)
                local old, err = tide.client(kept)
                assert(old == nil and err == 'the connection is closed')
                assert(first:send('lost') == nil and first:close() == nil and not first:is_open())
                assert(tide.client(client:id()) == client and tide.client('x') == nil)
                assert(tide.client('4-0-0-1') == nil and tide.client('1-1-0-1') == nil)
                local remote = tide.client('3-7-0-1')
                assert(remote:id() == '3-7-0-1' and remote:send('hello') and remote:close(4000))
                client:send('ok')
            end,
        }";
    let mut app = App::load(text, &TIMED);
    let (first, _) = open(&mut app, 1);
    app.vm.closed(first, 1000, "");
    let (second, _) = open(&mut app, 2);
    assert_eq!(first.index, second.index);
    assert_eq!(app.vm.message(second, b"", true), CallbackEnd::Done);
    app.effects();
    let remote = "RemoteClient { worker: 3, life: 7, client: 0.1 }";
    let (sent, closed) = (format!("{remote} text hello"), format!("{remote} close 4000"));
    assert_eq!(app.sent, [sent, closed, "2 text ok".to_owned()]);
}

#[test]
fn wrong_arguments_are_errors() {
    for code in [
        "client:send()",
        "client:send({})",
        "client:send('a', 'blob')",
        "client.send('a')",
        "client:close('x')",
        "client:close(1000, 5)",
        "tide.client(5)",
    ] {
        let text = format!("return {{ on_message = function(client) {code} end }}");
        let mut app = App::load(&text, &TIMED);
        let (client, _) = open(&mut app, 1);
        let verdict = app.vm.message(client, b"m", true);
        assert!(matches!(verdict, CallbackEnd::Failed(_)), "{code}: {verdict:?}");
    }
    let text = "return { on_message = function(client)
        assert(select(2, client:send('\\255')):find('UTF%-8'))
        for _, code in ipairs { 0, 999, 1005, 1006, 1015, 5000, -1, 0/0 } do
            assert(client:close(code) == nil, code)
        end
        assert(client:close(1000, string.rep('x', 124)) == nil)
        local big = string.rep('x', 3 * 1024 * 1024)
        for at = 1, 5 do assert(client:send(big, 'binary')) end
        assert(client:send(big, 'binary') == nil)
    end }";
    let mut app = App::load(text, &TIMED);
    let (client, _) = open(&mut app, 1);
    assert_eq!(app.vm.message(client, b"m", true), CallbackEnd::Done);
}

#[test]
fn memory_does_not_grow_with_clients_and_messages() {
    let text = "return {
        on_open = function(client, request) client:state().path = request.path end,
        on_message = function(client, message) client:send(message) end,
        on_close = function() end }";
    let mut app = App::load(text, &TIMED);
    let mut most = 0;
    for round in 0..20_000_u64 {
        let (client, _) = open(&mut app, round);
        app.vm.message(client, b"hello", true);
        app.vm.closed(client, 1000, "");
        app.effects();
        app.sent.clear();
        match round {
            0..5000 => most = most.max(app.vm.used_bytes()),
            _ => assert!(app.vm.used_bytes() < most * 2, "{} of {most}", app.vm.used_bytes()),
        }
    }
    assert_eq!(app.vm.clients(), 0);
}
