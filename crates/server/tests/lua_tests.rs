//! `tidegate lua test`: how tests of applications run and what is reported.
//! In: applications and their tests. Out: outcomes.

use std::fs;
use std::path::{Path, PathBuf};

use tidegate_base::Span;
use tidegate_server::lua_tests::{Outcome, run};

/// A folder with the application `a.lua` and its tests.
fn folder(name: &str, app: &str, tests: &str) -> PathBuf {
    let folder =
        std::env::temp_dir().join(format!("tidegate-lua-tests-{name}-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("the folder can be created");
    fs::write(folder.join("a.lua"), app).expect("the application can be written");
    fs::write(folder.join("a_test.lua"), tests).expect("the tests can be written");
    folder
}

/// Runs the tests of an application.
fn outcomes(name: &str, app: &str, tests: &str) -> Vec<Outcome> {
    let mut all = Vec::new();
    let ended = run(&folder(name, app, tests), |outcome| all.push(outcome));
    assert_eq!(ended, Ok(()), "{name}");
    all
}

/// Runs tests that must pass.
fn pass(name: &str, app: &str, tests: &str) -> Vec<Outcome> {
    let all = outcomes(name, app, tests);
    for outcome in &all {
        assert_eq!(outcome.failure, None, "{name}: {outcome:?}");
    }
    all
}

#[test]
fn tests_of_the_example_applications_pass() {
    let apps = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../apps"));
    let mut count = 0;
    let ended = run(apps, |outcome| {
        assert_eq!(outcome.failure, None, "{outcome:?}");
        count += 1;
    });
    assert_eq!(ended, Ok(()));
    assert!(count >= 5, "{count} tests");
}

#[test]
fn requests_have_responses_and_time_is_virtual() {
    let app = "local started
        return {
            on_start = function() started = tide.now() end,
            on_request = function(request, response)
                if request.path == '/slow' then tide.sleep(3600) end
                if request.path == '/error' then error('it fails') end
                response:status(201):header('X-A', { 'b', 'c' }):json{
                    body = request.body, q = request.query.q, id = request.params.id,
                    header = request:header('x-in'), scheme = request.scheme, at = tide.now() - started }
            end }";
    let tests = "local test = tide.test
        return {
            a = function()
                local response = test.request{ path = '/x', query = { q = 'a b' }, body = 'hello\\0',
                    params = { id = 7 }, headers = { ['X-In'] = 1 }, scheme = 'https' }
                test.equal(response.status, 201)
                test.equal(response:header('X-A'), { 'b', 'c' })
                test.equal(response:json(), { body = 'hello\\0', q = 'a b', id = '7', header = '1', scheme = 'https', at = 0 })
            end,
            b = function() test.equal(test.request{ path = '/slow' }:json().at, 3600) end,
            c = function()
                local response = test.request{ path = '/error' }
                test.equal(response.status, 500)
                assert(response.error:find('it fails', 1, true))
            end,
            d = function()
                local jobs = { tide.spawn(test.request, { path = '/slow' }), tide.spawn(test.request, { path = '/slow' }) }
                for _, job in ipairs(jobs) do test.equal(tide.wait(job).status, 201) end
                test.equal(tide.elapsed() > 3600, true)
            end,
        }";
    let all = pass("requests", app, tests);
    let names: Vec<&str> = all.iter().map(|outcome| outcome.name.as_str()).collect();
    assert_eq!(names, ["a", "b", "c", "d"]);
    let spans: Vec<Span> = all.iter().map(|outcome| outcome.span).collect();
    assert_eq!(spans[1..], [Span::from_secs(3600), Span::ZERO, Span::from_secs(3600)]);
    assert!(all[2].log[0].contains("it fails"), "{:?}", all[2].log);
}

#[test]
fn hooks_dictionaries_and_hubs_are_within_reach_of_tests() {
    let app = "return { on_access = function(request, response)
            if not tide.shared.keys:get(request:header('x-key') or '') then
                return response:status(403):finish('no')
            end
            request:set_header('X-Key', nil):set_header('X-User', request.user):set_path('/v2' .. request.path)
            request:set_pool('beta')
            tide.push.live:publish('seen', request.path)
        end }";
    let tests = "local test = tide.test
        return { a = function()
            test.equal(test.access{}.status, 403)
            tide.shared.keys:set('k', true)
            local request = test.access{ path = '/x', headers = { ['x-key'] = 'k', Cookie = 'c' }, user = 'ann',
                pools = { 'beta' } }
            test.equal({ request.forwarded, request.path, request.pool }, { true, '/v2/x', 'beta' })
            test.equal(request.headers, { host = 'test', cookie = 'c', ['x-user'] = 'ann' })
            test.equal(test.published(), { { hub = 'live', method = 'publish',
                arguments = { channel = 'seen', data = '/v2/x' } } })
        end }";
    pass("hooks", app, tests);
}

#[test]
fn clients_exchange_messages() {
    let app = "return {
            on_open = function(client, request) tide.sleep(1) client:send(request.query.name) end,
            on_message = function(client, message, kind)
                if message == 'close' then return client:close(4000, 'asked') end
                if message == 'error' then error('it fails') end
                if message == 'slow' then tide.sleep(10) end
                client:send(message, kind)
            end,
            on_close = function(client, code) tide.shared.log:set('code', code) end }";
    let tests = "local test = tide.test
        local function connect() return test.connect{ query = { name = 'ann' } } end
        return {
            order = function()
                local client = connect()
                client:send('slow') client:send('\\0\\255', 'binary')
                test.equal({ client:receive() }, { 'ann', 'text' })
                test.equal({ client:receive(9) }, { nil, 'timeout' })
                test.equal({ client:receive(2) }, { 'slow', 'text' })
                test.equal({ client:receive(0) }, { '\\0\\255', 'binary' })
            end,
            ends = function()
                local client = connect()
                client:receive()
                client:send('close')
                test.equal({ client:receive() }, { nil, 'closed', 4000, 'asked' })
                test.equal(tide.shared.log:get('code'), 4000)
                test.equal(pcall(client.send, client, 'x'), false)
                client = connect()
                client:send('error')
                client:receive()
                test.equal({ client:receive() }, { nil, 'closed', 1011, '' })
                client = connect()
                client:close(1001)
                test.equal(tide.shared.log:get('code'), 1001)
            end,
        }";
    pass("clients", app, tests);
}

#[test]
fn responses_of_servers_pass_the_hook() {
    let app = "return { on_response = function(request, response)
            if request.path == '/error' then error('it fails') end
            response:set_header('Server', nil):add_header('X-A', 'b')
            if response.status == 404 then response:set_status(410) end
        end }";
    let tests = "local test = tide.test
        return { a = function()
            local response = test.response{ path = '/x', response = { status = 404, body = 'gone',
                headers = { Server = 's', ['X-A'] = 'a' } } }
            test.equal({ response.status, response.body }, { 410, 'gone' })
            test.equal(response.headers, { ['content-length'] = '4', ['x-a'] = { 'a', 'b' } })
            test.equal(test.response{}.status, 200)
            response = test.response{ path = '/error', response = { body = 'secret' } }
            test.equal({ response.status, response.body }, { 500, '' })
            assert(response.error:find('it fails', 1, true))
            test.equal(pcall(test.response, { response = { status = 99999 } }), false)
        end }";
    pass("responses", app, tests);
    let none = outcomes(
        "none",
        "return { on_request = function() end }",
        "return { a = function() tide.test.response{} end }",
    );
    assert!(none[0].failure.as_ref().is_some_and(|why| why.contains("has no on_response")));
}

#[test]
fn bodies_of_servers_pass_the_hook_in_pieces() {
    let app = "return {
            on_response = function(request, response)
                if request.path == '/kept' then response:keep_body() end
            end,
            on_body = function(request, body)
                if request.path == '/error' then error('it fails') end
                local first = body:read()
                body:write('<', first, ' ', body.status, '>')
                tide.sleep(60)
                if request.path == '/rest' then return end
                local text = body:read_all()
                body:write(text:upper())
            end }";
    let tests = "local test = tide.test
        return { a = function()
            local response = test.response{ path = '/x', response = { status = 404, body = { 'a', 'b', 'c' },
                headers = { ETag = '\"e\"' } } }
            test.equal({ response.status, response.body }, { 404, '<a 404>BC' })
            test.equal(response.headers, { etag = 'W/\"e\"' })
            test.equal(test.response{ path = '/rest', response = { body = { 'a', 'b', 'c' } } }.body, '<a 200>bc')
            response = test.response{ path = '/kept', response = { body = { 'a', 'b', 'c' } } }
            test.equal({ response.body, response.headers['content-length'] }, { 'abc', '3' })
            test.equal(test.response().body, '')
            response = test.response{ path = '/error', response = { body = 'a' } }
            assert(response.error:find('it fails', 1, true))
        end }";
    pass("bodies", app, tests);
}

#[test]
fn heads_of_servers_wait_for_the_hook() {
    let app = "return {
            on_response = function(request, response)
                if request.path == '/late' then tide.sleep(61) end
                if request.path == '/error' then tide.sleep(1) error('it fails') end
                local socket = tide.tcp()
                socket:connect('plans')
                socket:send(request.path .. '\\n')
                response:set_header('X-Plan', socket:receive())
                if request.path == '/kept' then response:keep_body() end
            end,
            on_body = function(request, body) body:write((body:read_all():upper())) end }";
    let tests = "local test = tide.test
        return { a = function()
            test.tcp(function(server) tide.sleep(2) server:send('plan of ' .. server:receive() .. '\\n') end)
            local response = test.response{ path = '/a', response = { body = { 'a', 'b' } } }
            test.equal({ response:header('X-Plan'), response.body }, { 'plan of /a', 'AB' })
            response = test.response{ path = '/kept', response = { body = 'abc' } }
            test.equal({ response:header('X-Plan'), response.body }, { 'plan of /kept', 'abc' })
            test.equal(test.response{ path = '/late', response = { body = 'a' } }.status, 504)
            response = test.response{ path = '/error', response = { body = 'a' } }
            test.equal({ response.status, response.body }, { 500, '' })
        end }";
    pass("heads", app, tests);
}

#[test]
fn decisions_about_clients_of_hubs_are_tested() {
    let app = "return { on_push = function(event)
            if event.type == 'disconnect' then return tide.log.info(event.user) end
            if event.data.error then error('it fails') end
            tide.sleep(event.data.seconds)
            return event.headers.cookie and { data = { event.hub, event.channel, event.address } }, 'no cookie'
        end }";
    let tests = "local test = tide.test
        return { a = function()
            local event = { type = 'publish', channel = 'a', data = { seconds = 0.5 }, address = '192.0.2.1' }
            local decision = test.push(event)
            test.equal(decision, { error = { code = 103, message = 'no cookie' } })
            event.headers = { Cookie = 'a=b' }
            test.equal(test.push(event).result.data, { 'test', 'a', '192.0.2.1' })
            event.data.seconds = 2
            assert(test.push(event).failure:find('within the timeout', 1, true))
            event.data.error = true
            assert(test.push(event).failure:find('it fails', 1, true))
            test.equal(test.push{ type = 'disconnect', hub = 'live', events = { { user = '7' } } }, {})
            test.equal(pcall(test.push, { channel = 'a' }), false)
        end }";
    pass("events", app, tests);
}

#[test]
fn test_simulates_the_servers_of_sockets() {
    let app = "local function ask(line)
            local socket = tide.tcp()
            socket:settimeout(5000)
            local ok, err = socket:connect('redis')
            if not ok then return nil, err end
            socket:send{ line, '\\n' }
            local answer
            answer, err = socket:receive()
            if not answer then return nil, err end
            answer = answer .. ' ' .. socket:getreusedtimes()
            socket:setkeepalive(10000)
            return answer
        end
        return { on_request = function(request, response)
            local answer, err = ask(request.path)
            response:finish(answer or err)
        end }";
    let tests = "local test = tide.test
        local function get(path) return test.request{ path = path }.body end
        return {
            kept = function()
                local connections, at = 0
                test.tcp(function(server)
                    connections = connections + 1
                    test.equal(server.pool, 'redis')
                    while true do
                        local line, err = server:receive()
                        if not line then
                            test.equal(err, 'closed')
                            at = tide.elapsed()
                            return
                        end
                        if line == '/slow' then tide.sleep(4) end
                        server:send('got ' .. line .. '\\n')
                    end
                end)
                test.equal(get('/a'), 'got /a 0')
                local began = tide.elapsed()
                test.equal(get('/slow'), 'got /slow 1')
                test.equal(tide.elapsed() - began, 4)
                test.equal(connections, 1)
                local idle = tide.elapsed()
                tide.sleep(60)
                test.equal(at - idle, 10)
                test.equal(get('/b'), 'got /b 0')
                test.equal(connections, 2)
            end,
            refused = function()
                test.equal(get('/a'), 'no server: test.tcp has set no server')
                test.tcp('no server is available')
                test.equal(get('/a'), 'no server is available')
                test.tcp(function() end)
                test.equal(get('/a'), 'closed')
                test.tcp(function() tide.sleep(10) end)
                test.equal(get('/a'), 'timeout')
            end,
            lost = function()
                test.tcp(function(server) server:receive() server:send('half') end)
                test.equal(get('/a'), 'closed')
            end,
        }";
    pass("sockets", app, tests);
}

#[test]
fn sockets_in_tests_wait_for_a_reader() {
    let app = "return { on_request = function(request, response)
            local socket = tide.tcp()
            socket:connect('sink')
            local sent = 0
            for _ = 1, 64 do
                sent = sent + assert(socket:send(('x'):rep(16384)))
                tide.shared.state:set('sent', sent)
                tide.sleep(0.1)
            end
            socket:close()
            response:finish(tostring(sent))
        end }";
    let tests = "local test = tide.test
        return { a = function()
            local total
            test.tcp(function(server)
                tide.sleep(10)
                assert(tide.shared.state:get('sent') <= 128 * 1024)
                total = #server:receive('*a')
            end)
            test.equal(test.request().body, '1048576')
            tide.sleep(1)
            test.equal(total, 1048576)
        end }";
    pass("backpressure", app, tests);
}

#[test]
fn test_simulates_the_servers_of_web_sockets() {
    let app = "return { on_message = function(client, message)
            local ws, protocol = tide.websocket.connect('rooms', { path = '/r?x=1', protocols = { 'a', 'b' },
                headers = { Cookie = 'c' } })
            if not ws then return client:send('no: ' .. protocol) end
            client:send('with ' .. tostring(protocol))
            ws:send(message, 'binary')
            while true do
                local data, kind, code, reason = ws:receive()
                if not data then return client:send(table.concat({ kind, code or '', reason or '' }, ' ')) end
                client:send(data, kind)
            end
        end }";
    let tests = "local test = tide.test
        local function say(text)
            local client = test.connect()
            client:send(text)
            return client
        end
        return {
            talk = function()
                test.websocket(function(server)
                    test.equal({ server.pool, server.path, server.headers.cookie }, { 'rooms', '/r?x=1', 'c' })
                    test.equal({ server:receive() }, { 'hello', 'binary' })
                    server:send('one')
                    tide.sleep(30)
                    server:send(('x'):rep(100000), 'binary')
                    server:close(4001, 'bye')
                end, { protocol = 'b' })
                local client = say('hello')
                test.equal(client:receive(), 'with b')
                test.equal({ client:receive() }, { 'one', 'text' })
                test.equal({ client:receive(60) }, { ('x'):rep(100000), 'binary' })
                test.equal(client:receive(), 'closed 4001 bye')
            end,
            refused = function()
                test.websocket(function() end, { status = 403 })
                assert(say('x'):receive():find('^no: .*403'))
                test.websocket('too busy')
                test.equal(say('x'):receive(), 'no: too busy')
            end,
            closed = function()
                local what
                test.websocket(function(server) what = { server:receive(), server:receive() } end)
                local client = say('x')
                client:receive()
                client:close()
                tide.sleep(1)
                test.equal({ what[1], what[3] }, { 'x', 'closed' })
            end,
        }";
    pass("websocket", app, tests);
}

#[test]
fn an_error_of_a_played_server_fails_the_test() {
    let app = "return { on_request = function(request, response)
            local socket = tide.tcp()
            socket:connect('a')
            socket:receive()
            response:finish('x')
        end }";
    let tests = "return { a = function()
            tide.test.tcp(function(server) tide.test.equal(1, 2) end)
            tide.test.request()
        end }";
    let all = outcomes("server-error", app, tests);
    let failure = all[0].failure.as_deref().expect("the test fails");
    assert!(failure.contains("a_test.lua:2: expected 2, got 1"), "{failure}");
}

#[test]
fn any_number_of_messages_may_wait_for_a_handler() {
    // With a level of the stack for each message, the stack of a test would not be enough.
    let app = "local n = 0\n\
        return { on_open = function() tide.sleep(1) end,\n\
        on_message = function(client) n = n + 1; if n == 20000 then client:send('all') end end }";
    let tests = "return { deep = function()\n\
        local client = tide.test.connect({ path = '/' })\n\
        for _ = 1, 20000 do client:send('x') end\n\
        assert(client:receive(5) == 'all')\nend }";
    pass("deep", app, tests);
}

#[test]
fn failures_are_reported_with_their_reason() {
    let app = "return { on_request = function() tide.log.warn('seen') end }";
    for (name, body, reason) in [
        ("assert", "assert(1 == 2, 'one is not two')", "one is not two"),
        (
            "equal",
            "tide.test.equal({ a = 1 }, { a = 2 }, 'the table')",
            "a_test.lua:1: the table: expected { a = 2 }, got { a = 1 }",
        ),
        ("loop", "while true do end", "time"),
        ("endless", "while true do tide.sleep(3600) end", "24 h of virtual time"),
        ("busy", "while true do tide.wait(tide.spawn(function() end)) end", "never ends"),
        (
            "stuck",
            "local a, b a = tide.spawn(function() tide.wait(b) end) \
             b = tide.spawn(function() tide.wait(a) end) tide.wait(a)",
            "never happens",
        ),
        ("invalid", "tide.test.request{ path = 'a b' }", "not valid"),
        ("argument", "tide.test.request(5)", "table expected"),
    ] {
        let tests = format!("return {{ x = function() tide.test.request() {body} end }}");
        let all = outcomes(name, app, &tests);
        let failure = all[0].failure.as_deref().unwrap_or_else(|| panic!("{name} passes"));
        assert!(failure.contains(reason), "{name}: {failure}");
        assert_eq!(all[0].log[0], "warning: seen", "{name}");
    }
}

#[test]
fn scripts_that_do_not_load_are_errors() {
    let app = "return { on_request = function() end }";
    for (name, app, tests, reason) in [
        ("syntax", "return {", "return { a = function() end }", "a.lua:1:"),
        ("tests", app, "return {", "a_test.lua:1:"),
        ("empty", app, "return {}", "the file has no tests"),
        ("list", app, "return { function() end }", "each test must be a function with a name"),
        ("nothing", app, "local x", "must be a table of functions"),
        ("waits", app, "tide.sleep(1) return {}", "cannot wait while it loads"),
    ] {
        let ended = run(&folder(name, app, tests), |_| {});
        assert!(ended.as_ref().is_err_and(|why| why.contains(reason)), "{name}: {ended:?}");
    }
    let alone = folder("alone", app, "return { a = function() end }");
    fs::remove_file(alone.join("a.lua")).expect("it can be removed");
    assert!(run(&alone, |_| {}).is_err_and(|why| why.contains("a.lua: cannot be read")));
    fs::remove_file(alone.join("a_test.lua")).expect("it can be removed");
    assert!(run(&alone, |_| {}).is_err_and(|why| why.contains("no file ends with _test.lua")));
    assert!(run(Path::new("/nonexistent"), |_| {}).is_err());
}

#[test]
fn clients_get_publications_and_coroutines_get_values_of_queues() {
    let app = "return {
            on_open = function(client) client:subscribe('room') end,
            on_message = function(client, message) client:publish('room', message) end,
            on_request = function(request, response)
                if request.path == '/drop' then return response:drop() end
                response:finish(tide.queue.jobs:pop(60) or 'nothing')
            end,
        }";
    let tests = "return {
            publish = function()
                local test = tide.test
                local one, other = test.connect(), test.connect()
                one:send('hi')
                test.equal(other:receive(), 'hi')
                test.equal({ one:receive() }, { nil, 'timeout' })
                other:close()
                tide.publish('room', 'all')
                test.equal(one:receive(), 'all')
            end,
            queue = function()
                local test = tide.test
                local job = tide.spawn(test.request, {})
                tide.sleep(5)
                tide.queue.jobs:push('a job')
                test.equal(tide.wait(job).body, 'a job')
                test.equal(test.request {}.body, 'nothing')
            end,
            drop = function()
                tide.test.equal(tide.test.request { path = '/drop' }.dropped, true)
            end,
        }";
    assert_eq!(pass("shared", app, tests).len(), 3);
}

#[test]
fn choices_of_servers_are_tested() {
    let app = "return { on_balance = function(request, attempt)
            if request.path == '/error' then error('it fails') end
            if attempt.number > 1 then
                for _, server in ipairs(attempt.servers) do if server.is_free then return server.name end end
            end
            return request.headers['x-shard'] and tonumber(request.headers['x-shard'])
        end }";
    let tests = "local test = tide.test
        return { a = function()
            local servers = { 'one', { name = 'two', is_free = false }, { name = 'three', was_tried = true } }
            test.equal({ test.balance{ servers = servers, headers = { ['X-Shard'] = 2 } } }, { 2 })
            test.equal({ test.balance{ servers = servers } }, {})
            test.equal({ test.balance{ servers = servers, number = 2 } }, { 1 })
            local server, failure = test.balance{ servers = servers, path = '/error' }
            assert(server == nil and failure:find('it fails', 1, true))
            server, failure = test.balance{ servers = servers, headers = { ['X-Shard'] = 4 } }
            assert(server == nil and failure:find('the pool has no server 4', 1, true))
            test.equal(pcall(test.balance, {}), false)
            test.equal(pcall(test.balance, { servers = { 1 } }), false)
        end }";
    pass("balance", app, tests);
}

#[test]
fn messages_of_forwarded_websockets_are_seen_by_hooks() {
    let app = "return {
            on_frame = function(frame, tunnel)
                if frame.kind == 'close' then tide.shared.log:set('close', frame.from .. frame.code .. frame.reason) return end
                if frame.data == 'drop' then return false end
                if frame.data == 'slow' then tide.sleep(30) return frame.from, 'binary' end
                if frame.data == 'error' then error('it fails') end
                if frame.data == 'leave' then return tunnel:close(4000, 'asked') end
                if frame.data == 'more' then
                    tunnel:send('client', 'to the client')
                    tunnel:send('server', 'to the server', 'binary')
                end
                local state = tunnel:state()
                state.count = (state.count or 0) + 1
                if frame.data == 'count' then return tunnel.request.path .. state.count end
            end,
            on_frame_end = function(tunnel, code, reason)
                tide.shared.log:set('end', code .. reason .. (tunnel:state().count or 0))
            end }";
    let tests = "local test = tide.test
        local function ending() return tide.shared.log:get('end') end
        return {
            decisions = function()
                local tunnel = test.tunnel{ path = '/ws' }
                test.equal({ tunnel:send('client', 'hello') }, { 'hello', 'text' })
                test.equal({ tunnel:send('server', '\\0\\255', 'binary') }, { '\\0\\255', 'binary' })
                test.equal({ tunnel:send('client', 'count') }, { '/ws3', 'text' })
                test.equal({ tunnel:send('client', 'drop') }, {})
                test.equal({ tunnel:send('server', 'slow') }, { 'server', 'binary' })
                test.equal(tide.elapsed() >= 30, true)
                test.equal({ tunnel:send('client', 'more') }, { 'more', 'text' })
                test.equal({ tunnel:receive('server') }, { 'to the server', 'binary' })
                test.equal({ tunnel:receive('client') }, { 'to the client', 'text' })
                test.equal({ tunnel:receive('client') }, {})
                tunnel:close('server', 1001, 'bye')
                test.equal(tide.shared.log:get('close'), 'server1001bye')
                test.equal({ tunnel:receive('client') }, { nil, 'closed', 1001, 'bye' })
                test.equal(ending(), '1001bye4')
            end,
            ends = function()
                local tunnel = test.tunnel{}
                test.equal({ tunnel:send('client', 'leave') }, { 'leave', 'text' })
                test.equal(ending(), '4000asked0')
                test.equal(pcall(tunnel.send, tunnel, 'client', 'x'), false)
            end,
            failures = function()
                local tunnel = test.tunnel{}
                local data, err = tunnel:send('client', 'error')
                test.equal(data, nil)
                assert(err:find('it fails', 1, true), err)
                test.equal(ending(), '10110')
            end,
        }";
    pass("tunnels", app, tests);
}

#[test]
fn certificates_are_chosen() {
    let app = "return { on_certificate = function(hello)
            if hello.name == 'slow.example' then tide.sleep(2) return 2 end
            if hello.name == 'late.example' then tide.sleep(4) return 2 end
            if hello.name == 'no.example' then return false end
            if hello.name then return 'x.b.example' end
        end }";
    let tests = "local test = tide.test
        local certificates = { 'a.example', { '*.b.example', 'c.example' } }
        local function choose(name) return test.certificate{ name = name, certificates = certificates } end
        return { a = function()
            test.equal({ choose('slow.example') }, { 2 })
            test.equal({ choose('no.example') }, { false })
            test.equal({ choose('a.example') }, { 'x.b.example' })
            test.equal({ choose() }, {})
            local choice, err = choose('late.example')
            test.equal({ choice, err }, { nil, 'on_certificate has not chosen in time' })
            choice, err = test.certificate{ name = 'a.example', certificates = {} }
            assert(err:find(\"no certificate for the name 'x.b.example'\", 1, true), err)
        end }";
    pass("certificates", app, tests);
}

#[test]
fn files_and_uploads_are_simulated() {
    let app = "return {
            on_request = function(request, response)
                if not response:file(request.path:sub(2)) then response:status(404):finish('none') end
            end,
            on_upload = function(request, response)
                response:finish(request:read_all() .. #request.body .. tostring(request:read()))
            end }";
    let tests = "local test = tide.test
        test.files{ ['a.css'] = ('x'):rep(300000) }
        return { a = function()
            local response = test.request{ path = '/a.css' }
            test.equal({ response.status, #response.body }, { 200, 300000 })
            test.equal(response:header('content-type'), 'text/css; charset=utf-8')
            local tag = response:header('etag')
            test.equal(test.request{ path = '/a.css', headers = { ['If-None-Match'] = tag } }.status, 304)
            test.equal(test.request{ path = '/b.css' }.status, 404)
            test.equal(test.request{ body = 'hello' }.body, 'hello0nil')
        end }";
    pass("files", app, tests);
}
