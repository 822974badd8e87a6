//! Every function of the API, with arguments of wrong types and sizes.
//! In: random arguments. Out: a result, nil and an error, or a Lua error; the VM serves the next request.
//! Limits: `CALLS` calls of each function for each seed.

mod harness;

use harness::{App, COUNTED};
use tidegate_lua::{CallbackEnd, Excess};

/// Calls of each function for each seed.
const CALLS: usize = 8;
const SEEDS: u32 = 3;

/// Walks through a module and calls each function in it, also those of the objects that functions return. `seed` chooses
/// the arguments. Each call is a callback of its own, so that one that waits does not hold up the others.
const WALK: &str = r#"
local seed, functions, known = 1, {}, {}
local function random(most)
  seed = (seed * 1103515245 + 12345) % 2147483648
  return seed % most + 1
end
local deep = {}
do
  local at = deep
  for _ = 1, 300 do
    at.next = {}
    at = at.next
  end
end
local cycle = {}
cycle[1] = cycle
local makers = {
  function() return nil end, function() return true end, function() return false end, function() return 0 end,
  function() return -1 end, function() return 1e308 end, function() return 0 / 0 end, function() return 1 / 0 end,
  function() return 2 ^ 53 end, function() return 0.5 end, function() return "" end, function() return "api" end,
  function() return ("x"):rep(100000) end, function() return "\0\255\r\n" end, function() return "(" end,
  function() return {} end, function() return { "a", 1, { 2 } } end, function() return { a = 1, [1.5] = 2 } end,
  function() return cycle end, function() return deep end, function() return function() return 1 end end,
  function() return function() error({}) end end, function() return coroutine.create(function() end) end,
  function() return tide.json.null end, function() return tide.tcp() end, function() return "cache" end,
  function() return setmetatable({}, { __index = function() error("index") end, __tostring = function() return 5 end }) end,
}
local function add(name, value, depth)
  if type(value) == "function" then
    if not known[value] then
      known[value] = true
      functions[#functions + 1] = { name, value }
    end
  elseif type(value) == "table" and not known[value] and depth < 5 then
    known[value] = true
    for key, member in pairs(value) do add(name .. "." .. tostring(key), member, depth + 1) end
    local meta = debug and getmetatable(value)
    if type(meta) == "table" and type(meta.__index) == "table" then add(name, meta.__index, depth + 1) end
  end
end
local function call(number)
  local entry = functions[number]
  local arguments, count = {}, random(5) - 1
  for at = 1, count do arguments[at] = makers[random(#makers)]() end
  local results = { pcall(entry[2], unpack(arguments, 1, count)) }
  for at = 2, 4 do
    if type(results[at]) == "table" then add(entry[1] .. "()", results[at], 3) end
  end
end
"#;

/// The members of `tide`, which is sealed: their names.
const TIDE: [&str; 21] = [
    "json",
    "cbor",
    "log",
    "hash",
    "hmac",
    "base64",
    "url",
    "timer",
    "http",
    "websocket",
    "push",
    "shared",
    "hex",
    "now",
    "elapsed",
    "sleep",
    "spawn",
    "wait",
    "client",
    "tcp",
    "premature",
];

fn check(load: impl Fn(&str) -> App, roots: &str) {
    let script = format!("{WALK}\n{roots}");
    for first in 1..=SEEDS {
        let mut app = load(
            &script.replace("local seed,", &format!("local seed_, seed = 0, {first} local seed_,")),
        );
        let count = ask(&mut app, "/count").parse::<usize>().expect("a number");
        assert!(count >= 20, "{count} functions");
        for number in 1..=count {
            for _ in 0..CALLS {
                let id = app.open(&format!("GET /{number} HTTP/1.1\r\nHost: a\r\n\r\n"));
                let end = app.vm.request(id);
                if let CallbackEnd::Failed(failure) = &end {
                    let is_budget = matches!(failure.excess, Some(Excess::Time | Excess::Memory));
                    assert!(is_budget, "function {number}, seed {first}: {failure}");
                }
                app.vm.close_request(id);
                app.advance(1);
                app.effects();
                app.requests.clear();
                app.sockets.clear();
                app.log.clear();
            }
        }
        assert_eq!(ask(&mut app, "/alive"), "alive", "seed {first}");
    }
}

fn ask(app: &mut App, target: &str) -> String {
    let (end, response) = app.get(target);
    assert_eq!(end, CallbackEnd::Done);
    response.expect("a response").1
}

#[test]
fn no_argument_of_tide_breaks_the_vm() {
    let roots: String = TIDE
        .map(|name| format!("add('{name}', rawget(tide, '{name}') or tide.{name}, 0)\n"))
        .concat();
    let members = "for _, name in ipairs { 'encode', 'decode', 'array', 'error', 'warn', 'info', 'sha1', 'sha256', 'encode_url',
        'escape', 'unescape', 'after', 'every', 'request', 'connect', 'live' } do
          for _, module in ipairs { 'json', 'cbor', 'log', 'hash', 'hmac', 'base64', 'url', 'timer', 'http', 'websocket', 'udp', 'push' } do
            local ok, member = pcall(function() return tide[module][name] end)
            if ok and member then add(module .. '.' .. name, member, 0) end
          end
        end
        for _, name in ipairs { 'get', 'set', 'add', 'replace', 'incr', 'compare_and_set', 'delete', 'expire', 'ttl', 'lpush', 'rpush',
          'lpop', 'rpop', 'llen', 'keys' } do
          local d = tide.shared.cache
          add('shared.' .. name, function(...) return d[name](d, ...) end, 0)
        end
        for _, name in ipairs { 'connect', 'send', 'receive', 'receiveany', 'receiveuntil', 'settimeout', 'settimeouts',
          'setkeepalive', 'getreusedtimes', 'close' } do
          add('tcp.' .. name, function(...) local s = tide.tcp() return s[name](s, ...) end, 0)
        end
        for _, name in ipairs { 'send', 'receive', 'close' } do
          add('udp.' .. name, function(...)
            local s = tide.udp.connect('127.0.0.1', 9)
            if s then return s[name](s, ...) end
          end, 0)
        end
        for _, library in ipairs { string, table, math, bit, os, coroutine } do
          for _, name in ipairs { 'find', 'match', 'gmatch', 'gsub', 'byte', 'char', 'sub', 'upper', 'insert', 'remove', 'concat',
            'sort', 'unpack', 'floor', 'max', 'band', 'tohex', 'date', 'time', 'create', 'resume', 'wrap', 'status' } do
            if library[name] then add('lib.' .. name, library[name], 0) end
          end
        end
        for _, f in ipairs { load, loadstring, require, setmetatable, getfenv, tonumber, tostring, select, pairs, next, print } do
          add('base', f, 0)
        end";
    let serve = "return { on_request = function(request, response)
        if request.path == '/count' then return response:finish(tostring(#functions)) end
        if request.path == '/alive' then return response:finish('alive') end
        call(tonumber(request.path:sub(2)))
        for _, name in ipairs { 'status', 'header', 'write', 'finish', 'json', 'redirect' } do
          if random(8) == 1 then pcall(response[name], response, makers[random(#makers)](), makers[random(#makers)]()) end
        end
      end }";
    let load = |script: &str| {
        let shared = std::sync::Arc::new(tidegate_lua::Dictionary::new(64 * 1024));
        App::load_sharing(script, &COUNTED, &shared)
    };
    check(load, &format!("{roots}{members}\n{serve}"));
}

#[test]
fn no_argument_of_ngx_breaks_the_vm() {
    let roots = "add('ngx', ngx, 0)
        for _, name in ipairs { 'ngx.re', 'ngx.base64', 'ngx.semaphore', 'resty.md5', 'resty.string', 'resty.lrucache', 'cjson.safe',
          'cjson', 'ffi' } do
          add(name, require(name), 0)
        end
        add('var', function(name, value) ngx.var[name] = value return ngx.var[name] end, 0)
        add('header', function(name, value) ngx.header[name] = value return ngx.header[name] end, 0)
        for _, name in ipairs { 'get', 'set', 'add', 'incr', 'ttl', 'expire', 'get_keys', 'lpush', 'delete' } do
          add('shared.' .. name, function(...) return ngx.shared.cache[name](ngx.shared.cache, ...) end, 0)
        end
        served = { functions = functions, call = call }";
    let content = "if ngx.var.uri == '/count' then return ngx.print(#served.functions) end
        if ngx.var.uri == '/alive' then return ngx.print('alive') end
        served.call(tonumber(ngx.var.uri:sub(2)))";
    let load = |script: &str| {
        App::load_ngx(content, &[("init", script)], &[])
            .unwrap_or_else(|failure| panic!("{failure}"))
    };
    check(load, roots);
}
