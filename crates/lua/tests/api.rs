//! The API of scripts: requests, responses, the module `tide`, the sandbox.
//! In: scripts and requests. Out: responses and lines of the log.

mod harness;

use harness::{App, TIMED};
use tidegate_lua::CallbackEnd;

/// The value of a Lua expression, as a string.
fn eval(expression: &str) -> String {
    let text = format!(
        "declared = 1
        return {{ on_request = function(request, response)
            local function value() return {expression} end
            local results = {{ pcall(value) }}
            for at = 1, 8 do
                if results[at] == nil then break end
                results[at] = tostring(results[at])
            end
            response:finish(table.concat(results, ' '))
        end }}"
    );
    let mut app = App::load(&text, &TIMED);
    match app.get("/a%20b?x=1&y=a+b&y=%63&flag") {
        (CallbackEnd::Done, Some((200, body))) => body,
        other => panic!("{expression}: {other:?}"),
    }
}

#[test]
fn requests_have_the_documented_parts() {
    let cases = [
        ("request.method", "true GET"),
        ("request.path", "true /a%20b"),
        ("request.query_string", "true x=1&y=a+b&y=%63&flag"),
        (
            "request.query.x, request.query.y[1], request.query.y[2], request.query.flag",
            "true 1 a b c ",
        ),
        ("request.host", "true example.com"),
        ("request:header('HOST')", "true example.com"),
        ("request.headers.host", "true example.com"),
        ("request.params.id", "true 4 2"),
        ("request.client", "true 192.0.2.1"),
        ("request.version", "true 1.1"),
        ("request.scheme", "true http"),
        ("request.nothing", "true"),
        ("#request.body", "true 0"),
        ("getmetatable(request)", "true request"),
    ];
    for (expression, expected) in cases {
        assert_eq!(eval(expression), expected, "{expression}");
    }
}

#[test]
fn response_that_would_be_incomplete_fails() {
    let text = "return { on_request = function(request, response)
        response:finish(string.rep('x', 17 * 1024 * 1024))
    end }";
    let bounds = tidegate_lua::Bounds { memory_bytes_max: 1 << 28, ..TIMED };
    let CallbackEnd::Failed(failure) = App::load(text, &bounds).get("/").0 else {
        panic!("the response was sent")
    };
    assert!(failure.message.contains("16 MiB"), "{}", failure.message);
}

#[test]
fn sort_orders_any_items() {
    for (expression, expected) in [
        ("table.sort({}), table.sort({1})", "true"),
        (
            "(function() local t = {3, 1, 2, 3, -1} table.sort(t) return table.concat(t, ',') end)()",
            "true -1,1,2,3,3",
        ),
        (
            "(function() local t = {'b', 'a', 'c'} table.sort(t, function(a, b) return a > b end) \
             return table.concat(t, ',') end)()",
            "true c,b,a",
        ),
        (
            "(function() local t = {} for i = 1, 1000 do t[i] = i * 7919 % 1009 end table.sort(t) \
             for i = 2, 1000 do assert(t[i - 1] <= t[i]) end return #t end)()",
            "true 1000",
        ),
        ("table.sort(1)", "false bad argument #1 to 'sort' (table expected, got number)"),
        ("table.sort({}, 1)", "false bad argument #2 to 'sort' (function expected, got number)"),
    ] {
        let found = eval(expression);
        let is_error = expected.starts_with("false ");
        let rest = expected.strip_prefix("false ").unwrap_or(expected);
        assert!(
            if is_error { found.ends_with(rest) } else { found == expected },
            "{expression}: {found}"
        );
    }
    assert!(eval("table.sort({1, 'a'})").contains("attempt to compare"));
}

#[test]
fn bodies_are_read_as_text_json_and_forms() {
    let text = "return { on_request = function(request, response)
        if request.path == '/form' then
            local form = request:form()
            return response:finish(form.a .. ',' .. form.b)
        end
        local value, err = request:json()
        if not value then return response:status(400):finish(err) end
        response:json({ sum = value[1] + value[2], body = request.body })
    end }";
    let mut app = App::load(text, &TIMED);
    let head = |path| format!("POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n");
    let (_, response) = app.send(&head("/"), b"[1,2.5]");
    let body = response.expect("a response").1;
    assert!(
        body == r#"{"sum":3.5,"body":"[1,2.5]"}"# || body == r#"{"body":"[1,2.5]","sum":3.5}"#,
        "{body}"
    );
    assert_eq!(app.head.1, [("Content-Type".to_owned(), "application/json".to_owned())]);
    let (_, response) = app.send(&head("/"), b"[1,");
    assert_eq!(response, Some((400, "the text ends too early (at byte 4)".to_owned())));
    let (_, response) = app.send(&head("/form"), b"a=1+2&b=%26");
    assert_eq!(response, Some((200, "1 2,&".to_owned())));
}

#[test]
fn responses_have_status_fields_and_pieces() {
    let text = "return { on_request = function(request, response)
        response:status(201):header('X-One', 'a'):header('x-one', 'b')
        response:header('Set-Cookie', { 'c=1', 'd=2' }):header('Gone', 1):header('gone', nil)
        response:write('first ', 2, ' '):flush()
        assert(not pcall(response.status, response, 500))
        response:write('last')
        assert(response:finish('!'))
        local ok, err = response:write('more')
        assert(ok == nil and err == 'the response has ended', err)
        assert(select(2, response:finish()) == 'the response has ended')
    end }";
    let mut app = App::load(text, &TIMED);
    assert_eq!(app.get("/"), (CallbackEnd::Done, Some((201, "first 2 last!".to_owned()))));
    let fields: Vec<_> = app.head.1.iter().map(|(n, v)| format!("{n}={v}")).collect();
    let expected =
        ["x-one=b", "Set-Cookie=c=1", "Set-Cookie=d=2", "Content-Type=text/plain; charset=utf-8"];
    assert_eq!(fields, expected);
}

#[test]
fn response_of_a_callback_that_returns_is_complete() {
    let mut app = App::load("return { on_request = function() end }", &TIMED);
    assert_eq!(app.get("/"), (CallbackEnd::Done, Some((200, String::new()))));
}

#[test]
fn misuse_of_the_response_is_a_lua_error_and_splits_no_head() {
    let cases = [
        "response:status(99)",
        "response:status(600)",
        "response:status('200')",
        "response:status(0/0)",
        "response:header('a b', 'c')",
        "response:header('', 'c')",
        "response:header('a\\r\\nb', 'c')",
        "response:header('a', 'b\\r\\nc: d')",
        "response:header('a', 'b\\0')",
        "response:header('Content-Length', '5')",
        "response:header('TRANSFER-ENCODING', 'chunked')",
        "response:header('connection', 'close')",
        "response:header('a', string.rep('x', 20000))",
        "response:write({})",
        "response:write(print)",
        "response:finish(true)",
        "response.write(nil, 1)",
        "response:json(print)",
        "response:json({ [true] = 1 })",
        "response:json(0/0)",
        "response:redirect()",
        "request:header()",
    ];
    for code in cases {
        let text = format!("return {{ on_request = function(request, response) {code} end }}");
        let mut app = App::load(&text, &TIMED);
        let (verdict, response) = app.get("/");
        assert!(matches!(verdict, CallbackEnd::Failed(_)), "{code}: {verdict:?}");
        assert_eq!(response, None, "{code}");
    }
}

#[test]
fn handles_of_ended_exchanges_are_invalid() {
    let text = "local kept
        return { on_request = function(request, response)
            if not kept then
                kept = { request, response }
                return response:finish('first')
            end
            local old, gone = unpack(kept)
            assert(old.method == nil and old.headers.host == nil and old.body == nil)
            assert(old:header('host') == nil)
            assert(gone:write('x') == nil and gone:flush() == nil and gone:finish() == nil)
            assert(not pcall(gone.status, gone, 200) and not pcall(gone.header, gone, 'a', 'b'))
            assert(not pcall(gone.json, gone, 1))
            response:finish('second')
        end }";
    let mut app = App::load(text, &TIMED);
    assert_eq!(app.get("/").1, Some((200, "first".to_owned())));
    assert_eq!(app.get("/"), (CallbackEnd::Done, Some((200, "second".to_owned()))));
}

#[test]
fn json_keeps_null_empty_arrays_and_numbers() {
    let cases = [
        ("tide.json.encode({ 1, 2, 3 })", "true [1,2,3]"),
        ("tide.json.encode({})", "true {}"),
        ("tide.json.encode(tide.json.array())", "true []"),
        ("tide.json.encode(tide.json.array({ 'a' }))", "true [\"a\"]"),
        ("tide.json.encode(tide.json.decode('[]'))", "true []"),
        ("tide.json.encode(tide.json.decode('{\"a\":[],\"b\":{}}').a)", "true []"),
        ("tide.json.encode(tide.json.null)", "true null"),
        ("tide.json.decode('null') == tide.json.null", "true true"),
        ("tide.json.encode({ tide.json.null, false })", "true [null,false]"),
        ("tide.json.encode({ [3] = 3 })", "true {\"3\":3}"),
        ("tide.json.encode({ x = 1, [1] = 2 }):len()", "true 13"),
        (
            "tide.json.encode(1e15), tide.json.encode(0.1), tide.json.encode(-0.5)",
            "true 1000000000000000 0.1 -0.5",
        ),
        ("tide.json.encode(2^53), tide.json.encode(1e300)", "true 9007199254740992 1e300"),
        ("tide.json.encode('a\"\\\\\\n\\1é')", "true \"a\\\"\\\\\\n\\u0001é\""),
        ("tide.json.decode('\"\\\\u00e9\\\\ud83d\\\\ude00\\\\n\"')", "true é😀\n"),
        ("tide.json.decode('[1,-2.5e3,true]')[2]", "true -2500"),
        ("tide.json.decode(' {\"a\" : {\"b\":[1]} } ').a.b[1]", "true 1"),
        ("tide.json.decode('12345678901234567890')", "true 1.2345678901235e+19"),
        (
            "select(2, tide.json.encode({ print }))",
            "true functions, coroutines and userdata cannot be written as JSON",
        ),
        ("select(2, tide.json.encode(1/0))", "true NaN and infinity cannot be written as JSON"),
    ];
    for (expression, expected) in cases {
        assert_eq!(eval(expression), expected, "{expression}");
    }
    for wrong in [
        "",
        "[",
        "[1",
        "[1,]",
        "{",
        "{\"a\"",
        "{\"a\":",
        "{\"a\":1,}",
        "{a:1}",
        "01",
        "1.",
        "1e",
        "-",
        "+1",
        ".5",
        "nul",
        "tru",
        "\"",
        "\"\\\\x\"",
        "\"\\\\u12\"",
        "\"\\\\ud800\"",
        "\"\\t\"",
        "1 2",
        "[1}",
        "NaN",
        "'a'",
    ] {
        let expression = format!("tide.json.decode('{}')", wrong.replace('\'', "\\'"));
        let result = eval(&format!("select(2, {expression}) ~= nil"));
        assert_eq!(result, "true true", "{wrong}");
    }
    assert_eq!(eval("tide.json.decode(('['):rep(100) .. (']'):rep(100)) ~= nil"), "true true");
    assert_eq!(
        eval(
            "select(2, tide.json.decode(('['):rep(101) .. (']'):rep(101))):match('%w+ %w+ is nested')"
        ),
        "true the text is nested",
    );
    let loops = "(function() local t = {}; t[1] = t; return select(2, tide.json.encode(t)) end)()";
    assert!(eval(loops).contains("contains itself"));
}

#[test]
fn hashes_and_encodings_agree_with_known_values() {
    let cases = [
        ("tide.hex(tide.hash.sha1('abc'))", "a9993e364706816aba3e25717850c26c9cd0d89d"),
        (
            "tide.hex(tide.hash.sha256(''))",
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        ),
        (
            "tide.hex(tide.hmac.sha256('key', 'The quick brown fox jumps over the lazy dog'))",
            "f7bc83f430538424b13298e6aa6fb143ef4d59a14946175997479dbc2d1a3cd8",
        ),
        ("#tide.hash.sha384('') + #tide.hash.sha512('')", "112"),
        ("tide.base64.encode('fooba')", "Zm9vYmE="),
        ("tide.base64.encode_url('\\251\\255')", "-_8"),
        ("tide.base64.decode('Zm9vYmE=')", "fooba"),
        ("tide.base64.decode('!') == nil", "true"),
        ("tide.url.escape('a b&c')", "a%20b%26c"),
        ("tide.url.unescape('a%20b')", "a b"),
        ("tide.now()", "1700000000.25"),
        ("tide.elapsed()", "1.5"),
        ("os.time()", "1700000000"),
        ("os.date('!%Y-%m-%d')", "2023-11-14"),
        ("tide.app", "test"),
        ("tide.config.greeting", "hello"),
        ("tide.config.most + 1", "4"),
        ("tide.worker.id + tide.worker.count", "5"),
    ];
    for (expression, expected) in cases {
        assert_eq!(eval(expression), format!("true {expected}"), "{expression}");
    }
}

#[test]
fn string_functions_behave_as_in_lua() {
    let cases = [
        ("('hello'):find('l')", "true 3 3"),
        ("('hello'):find('l', 4)", "true 4 4"),
        ("('hello'):find('(l)(l)')", "true 3 4 l l"),
        ("('hello'):find('.', 1, true)", "true"),
        ("('a.b'):find('.', 1, true)", "true 2 2"),
        ("('hello'):find('', 10)", "true"),
        ("('hello'):find('', 6)", "true 6 5"),
        ("('hello'):find('l', -2)", "true 4 4"),
        ("('key=val'):match('(%w+)=(%w+)')", "true key val"),
        ("('abc'):match('b')", "true b"),
        ("('abc'):match('()b()')", "true 2 3"),
        ("('abc'):gsub('%w', '%0%0')", "true aabbcc 3"),
        ("('abc'):gsub('', '-')", "true -a-b-c- 4"),
        ("('hello world'):gsub('o', 'x', 1)", "true hellx world 1"),
        ("('$name is $age'):gsub('%$(%w+)', { name = 'Bob', age = 7 })", "true Bob is 7 2"),
        ("('abc'):gsub('b', function(c) return c:upper() end)", "true aBc 1"),
        ("('abc'):gsub('b', function() end)", "true abc 1"),
        ("('abc'):gsub('^a', 'x')", "true xbc 1"),
        ("('aaa'):gsub('^a', 'x')", "true xaa 1"),
        ("('a%b'):gsub('%%', '%%%%')", "true a%%b 1"),
        ("('x = 1'):gsub('(%w+) = (%w+)', '%2 = %1')", "true 1 = x 1"),
        (
            "(function() local t = {} for k, v in ('a=1, b=2'):gmatch('(%w+)=(%w+)') do t[#t + 1] = k .. v end \
             return table.concat(t, ' ') end)()",
            "true a1 b2",
        ),
        (
            "(function() local n = 0 for _ in ('abc'):gmatch('') do n = n + 1 end return n end)()",
            "true 4",
        ),
        ("(12):rep(2)", "false"),
        ("string.find(12345, 34)", "true 3 4"),
        ("string.rep('ab', 3)", "true ababab"),
    ];
    for (expression, expected) in cases {
        let result = eval(expression);
        assert!(
            result == expected || (expected == "false" && result.starts_with("false")),
            "{expression}: {result}"
        );
    }
    for wrong in [
        "('x'):find('[a')",
        "('x'):gsub('x', '%2')",
        "('x'):gsub('(', 'a')",
        "('x'):match()",
        "('x'):gsub('x')",
    ] {
        assert!(eval(wrong).starts_with("false "), "{wrong}");
    }
}

#[test]
fn sandbox_has_no_way_out() {
    for name in [
        "io",
        "ffi",
        "dofile",
        "loadfile",
        "module",
        "newproxy",
        "gcinfo",
        "os.execute",
        "os.exit",
        "os.getenv",
        "os.remove",
        "os.rename",
        "os.tmpname",
        "os.setlocale",
        "debug.getinfo",
        "debug.getregistry",
        "debug.sethook",
        "debug.getupvalue",
        "debug.setmetatable",
        "string.dump",
        "package.loadlib",
        "package.loaders",
        "jit.on",
        "jit.off",
        "jit.opt",
        "jit.util",
    ] {
        assert_eq!(eval(name), "true", "{name}");
    }
    let bytecode = "load('\\27LJ\\2\\2\\0\\0')";
    assert_eq!(eval(&format!("select(2, {bytecode})")), "true bytecode is not allowed");
    for wrong in [
        "require('ffi')",
        "require('io')",
        "require('jit.util')",
        "require('../../etc/passwd')",
        "setfenv(0, {})",
        "setfenv(string.find, {})",
        "collectgarbage('stop')",
        "(function() string.find = nil end)()",
        "(function() tide.now = nil end)()",
        "(function() undeclared = 1 end)()",
        "(function() type = 1 end)()",
        "(function() tide = nil end)()",
        "(function() declared = 2 end)()",
        "(function() _G.tostring = 1 end)()",
        "(function() getfenv(1).tide = 1 end)()",
        "(function() getfenv(print).tide = 1 end)()",
        "(function() package.loaded._G.tide = 1 end)()",
        "rawset(_G, 'tide', nil)",
        "(function() local _, t = pairs(_G) rawset(t, 'tide', nil) end)()",
        "rawset(_G, 'other', 1)",
        "load('type = 1')()",
        "setmetatable(_G, {})",
    ] {
        assert!(eval(wrong).starts_with("false "), "{wrong}: {}", eval(wrong));
    }
    let cases = [
        ("getmetatable('')", "false"),
        ("getmetatable(_G)", "false"),
        ("getmetatable(string)", "false"),
        ("getfenv(0) == _G and getfenv(print) == _G and getfenv(tide.json.encode) == _G", "true"),
        ("getfenv(1) == _G", "true"),
        ("(function() type = type return type(1) end)()", "number"),
        ("rawget(_G, 'tide') == tide and _G.tide == tide and declared", "1"),
        (
            "(function() local n = 0 for k, v in pairs(_G) do if k == 'tide' and v == tide then n = n + 1 end end return n end)()",
            "1",
        ),
        ("rawget(rawset({}, 1, 2), 1)", "2"),
        ("load('return 1 + 1')()", "2"),
        ("load('return x', 'c', 't', { x = 5 })()", "5"),
        ("loadstring('return 3')()", "3"),
        ("setfenv(function() return y end, { y = 6 })()", "6"),
        ("type(debug.traceback())", "string"),
        ("collectgarbage('count') > 0", "true"),
        ("#arg", ""),
    ];
    for (expression, expected) in cases {
        if expression != "#arg" {
            assert_eq!(eval(expression), format!("true {expected}"), "{expression}");
        }
    }
}

#[test]
fn modules_come_from_the_folder_of_the_application() {
    const MODULES: &[(&str, &str)] = &[
        (
            "greet",
            "local n = ...; return { name = n, hello = function(x) return 'hello ' .. x end }",
        ),
        ("broken", "return {"),
        ("throws", "error('no luck')"),
        ("self", "return require('self')"),
        ("nothing", "loaded_nothing = (loaded_nothing or 0) + 1"),
    ];
    let text = "
        local greet = require('greet')
        require('nothing'); require('nothing')
        local errors = {}
        for _, name in ipairs { 'broken', 'throws', 'self', 'missing' } do
            local ok, err = pcall(require, name)
            assert(not ok)
            errors[#errors + 1] = tostring(err)
        end
        return { on_request = function(request, response)
            response:write(greet.hello(greet.name), ' ', loaded_nothing)
            for _, err in ipairs(errors) do response:write('\\n', err) end
        end }";
    let mut app = App::load_with(text, &TIMED, MODULES).unwrap_or_else(|f| panic!("{f}"));
    let body = app.get("/").1.expect("a response").1;
    let lines: Vec<&str> = body.lines().collect();
    assert_eq!(lines[0], "hello greet 1");
    assert!(lines[1].starts_with("broken.lua:1:"), "{body}");
    assert!(lines[2].starts_with("throws.lua:1: no luck"), "{body}");
    assert!(lines[3].contains("requires itself"), "{body}");
    assert!(lines[4].contains("module 'missing' not found"), "{body}");
}

#[test]
fn wrong_scripts_are_refused_with_file_and_line() {
    let cases = [
        ("local x =\nreturn {", "app.lua:2:"),
        ("return 5", "must return a table of handlers"),
        ("return {}", "without handlers"),
        ("return { on_requst = function() end }", "unknown handler 'on_requst'"),
        ("return { on_request = 5 }", "must be a function"),
        ("error('boom')", "app.lua:1: boom"),
        ("local t = nil\nlocal x = t.y", "app.lua:2: attempt to index"),
        ("\x1bLJ", "bytecode is not allowed"),
        ("coroutine.yield()", "attempt to yield"),
    ];
    for (text, expected) in cases {
        let failure =
            App::try_load(text, &TIMED).err().unwrap_or_else(|| panic!("accepted: {text}"));
        assert!(failure.message.contains(expected), "{text:?}: {failure:?}");
    }
}

#[test]
fn logs_have_levels_and_bounds() {
    let text = "return { on_request = function(request, response)
        tide.log.error('one', 2, nil)
        tide.log.warn('two')
        tide.log.info({} ~= nil)
        print('three', 4)
        for i = 1, 1000 do print(i) end
        tide.log.info(string.rep('x', 100000))
    end }";
    let mut app = App::load(text, &TIMED);
    app.get("/");
    assert_eq!(app.log[..4], ["Error one 2 nil", "Warning two", "Info true", "Info three\t4"]);
    assert_eq!(app.log.len(), 100);
    assert!(app.log[99].contains("logs too many lines"));
}

#[test]
fn error_in_a_handler_has_a_traceback_and_the_vm_stays_usable() {
    let text = "local function deep(request) return request.missing.field end
        return { on_request = function(request, response)
            if request.path == '/bad' then local v = deep(request) response:finish(v) end
            if request.path == '/table' then error({ code = 1 }) end
            response:finish('good')
        end }";
    let mut app = App::load(text, &TIMED);
    let CallbackEnd::Failed(failure) = app.get("/bad").0 else { panic!("the handler succeeds") };
    assert!(
        failure.message.starts_with("app.lua:1: attempt to index field 'missing'"),
        "{failure}"
    );
    assert!(failure.trace.contains("app.lua:3:"), "{failure}");
    let CallbackEnd::Failed(failure) = app.get("/table").0 else { panic!("the handler succeeds") };
    assert_eq!(failure.message, "(the error is a value of the type table)");
    assert_eq!(app.get("/").1, Some((200, "good".to_owned())));
}

#[test]
fn memory_does_not_grow_with_requests() {
    let text = "return { on_request = function(request, response)
        response:json({ path = request.path, headers = request.headers })
    end }";
    let mut app = App::load(text, &TIMED);
    let mut most = 0;
    for round in 0..20 {
        for _ in 0..500 {
            assert_eq!(app.get("/x").0, CallbackEnd::Done);
        }
        match round {
            0..5 => most = most.max(app.vm.used_bytes()),
            _ => assert!(app.vm.used_bytes() < most * 2, "{} of {most}", app.vm.used_bytes()),
        }
    }
    assert_eq!(app.vm.requests(), 0);
}
