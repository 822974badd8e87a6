-- The environment of an application: Lua's libraries without functions that reach outside of the VM, and with bounds on
-- functions that could run in C for any length of time.
local native = ...

local assert, error, ipairs, next, pairs, pcall = assert, error, ipairs, next, pairs, pcall
local rawequal, rawget, rawset, select, tonumber, tostring = rawequal, rawget, rawset, select, tonumber, tostring
local type, unpack, xpcall, getmetatable, setmetatable = type, unpack, xpcall, getmetatable, setmetatable
local raw_getfenv, raw_setfenv, collectgarbage = getfenv, setfenv, collectgarbage
local concat, sub, rep, byte = table.concat, string.sub, string.rep, string.byte
local floor = math.floor
local find_native = native.find

math.randomseed(native.fact("seed"))

-- What globals are. Scripts get an empty table in its place, whose metatable reads from it, so that each assignment of a global
-- is seen: existing globals can be protected, too.
local G, globals = {}, {}

local function wrong(name, position, expected, value)
  local got = value == nil and "no value" or type(value)
  error("bad argument #" .. position .. " to '" .. name .. "' (" .. expected .. " expected, got " .. got .. ")", 3)
end

local function string_of(name, position, value)
  local kind = type(value)
  if kind == "string" then return value end
  if kind == "number" then return tostring(value) end
  return wrong(name, position, "string", value)
end

-- Strings ---------------------------------------------------------------------------------------------------------

local lib_string = {}
for _, name in ipairs { "byte", "char", "len", "lower", "reverse", "sub", "upper" } do
  lib_string[name] = string[name]
end

-- Tables are converted here: the function in C would call `__tostring`, which can format again and so fill the thread's stack.
local format = string.format
local function converted(count, ...)
  local arguments = { ... }
  for at = 1, count do
    if type(arguments[at]) == "table" then arguments[at] = tostring(arguments[at]) end
  end
  return unpack(arguments, 1, count)
end
-- The error names the line of the script.
local function formatted(ok, text)
  if ok then return text end
  error((lib_string.gsub(text, "to '%?'", "to 'format'", 1)), 3)
end
function lib_string.format(pattern, ...)
  local count = select("#", ...)
  for at = 1, count do
    if type((select(at, ...))) == "table" then
      local text = formatted(pcall(format, pattern, converted(count, ...)))
      return text
    end
  end
  local text = formatted(pcall(format, pattern, ...))
  return text
end

-- The function in C counts to `n`, also for a string without bytes.
function lib_string.rep(s, n, separator)
  if s == "" and (separator == nil or separator == "") then return "" end
  return rep(s, n, separator)
end

local function raise(from, err, ...)
  if from == nil and err ~= nil then error(err, 3) end
  return from, err, ...
end

function lib_string.find(s, pattern, init, plain)
  s, pattern = string_of("find", 1, s), string_of("find", 2, pattern)
  return raise(find_native(s, pattern, init, plain, true))
end

local function captures_of(s, from, to, ...)
  if from == nil then
    if to ~= nil then error(to, 3) end
    return nil
  end
  if select("#", ...) == 0 then return sub(s, from, to) end
  return ...
end

function lib_string.match(s, pattern, init)
  s, pattern = string_of("match", 1, s), string_of("match", 2, pattern)
  return captures_of(s, find_native(s, pattern, init, false, true))
end

function lib_string.gmatch(s, pattern)
  s, pattern = string_of("gmatch", 1, s), string_of("gmatch", 2, pattern)
  local at, last = 1, #s + 1
  local function take(from, to, ...)
    if from == nil then
      if to ~= nil then error(to, 3) end
      at = last + 1
      return nil
    end
    at = to < from and to + 2 or to + 1
    if select("#", ...) == 0 then return sub(s, from, to) end
    return ...
  end
  return function()
    if at > last then return nil end
    return take(find_native(s, pattern, at, false, false))
  end
end

-- A replacement string, with %0 to %9 replaced.
local function expand(text, whole, ...)
  local out, count, at = {}, 0, 1
  local captures = select("#", ...)
  while true do
    local mark = find_native(text, "%", at, true)
    if not mark then break end
    count = count + 1
    out[count] = sub(text, at, mark - 1)
    local letter = byte(text, mark + 1)
    count = count + 1
    if letter == 48 then
      out[count] = whole
    elseif letter and letter >= 49 and letter <= 57 then
      local number = letter - 48
      if number == 1 and captures == 0 then
        out[count] = whole
      elseif number > captures then
        error("invalid capture index", 4)
      else
        out[count] = (select(number, ...))
      end
    elseif letter then
      out[count] = sub(text, mark + 1, mark + 1)
    else
      error("invalid use of '%' in replacement string", 4)
    end
    at = mark + 2
  end
  out[count + 1] = sub(text, at)
  return concat(out)
end

local function replaced(with, kind, whole, ...)
  local value
  if kind == "string" then
    return expand(with, whole, ...)
  elseif kind == "table" then
    local key = ...
    if key == nil then key = whole end
    value = with[key]
  elseif select("#", ...) == 0 then
    value = with(whole)
  else
    value = with(...)
  end
  if not value then return whole end
  local of = type(value)
  if of == "string" then return value end
  if of == "number" then return tostring(value) end
  error("invalid replacement value (a " .. of .. ")", 4)
end

function lib_string.gsub(s, pattern, with, most)
  s, pattern = string_of("gsub", 1, s), string_of("gsub", 2, pattern)
  local kind = type(with)
  if kind == "number" then with, kind = tostring(with), "string" end
  if kind ~= "string" and kind ~= "table" and kind ~= "function" then
    wrong("gsub", 3, "string/function/table", with)
  end
  local is_plain = kind == "string" and not find_native(with, "%", 1, true)
  local is_anchored = byte(pattern, 1) == 94
  most = most or #s + 1
  local out, parts, changes, at, last = {}, 0, 0, 1, #s + 1
  local function take(from, to, ...)
    if from == nil then
      if to ~= nil then error(to, 4) end
      return false
    end
    changes = changes + 1
    out[parts + 1] = sub(s, at, from - 1)
    out[parts + 2] = is_plain and with or replaced(with, kind, sub(s, from, to), ...)
    parts = parts + 2
    if to < from then
      parts = parts + 1
      out[parts] = sub(s, from, from)
      at = from + 1
    else
      at = to + 1
    end
    return not is_anchored
  end
  while changes < most and at <= last do
    if not take(find_native(s, pattern, at, false, true)) then break end
  end
  if changes == 0 then return s, 0 end
  out[parts + 1] = sub(s, at)
  return concat(out, "", 1, parts + 1), changes
end

local string_meta = getmetatable("")
string_meta.__index = lib_string
string_meta.__metatable = false

-- Other libraries -------------------------------------------------------------------------------------------------

local lib_table = {}
for _, name in ipairs { "concat", "foreach", "foreachi", "getn", "maxn", "move", "remove" } do
  lib_table[name] = table[name]
end

-- The function in C counts from the length down to the position, where no budget stops it.
local insert = table.insert
function lib_table.insert(t, ...)
  if select("#", ...) == 2 then
    local position = tonumber((...))
    if position and not (position >= 1 and position < 2 ^ 31) then
      error("bad argument #2 to 'insert' (position out of bounds)", 2)
    end
  end
  return insert(t, ...)
end

local function is_less(a, b) return a < b end

-- Moves the item at `root` down until no item below it, up to `last`, comes after it.
local function sift(t, root, last, before)
  local item = t[root]
  while true do
    local child = 2 * root
    if child > last then break end
    if child < last and before(t[child], t[child + 1]) then child = child + 1 end
    if not before(item, t[child]) then break end
    t[root] = t[child]
    root = child
  end
  t[root] = item
end

-- A heap sort. LuaJIT's own sort is in C, where no budget stops it, and takes quadratic time for chosen input: 1.5 s for 20,000
-- numbers.
function lib_table.sort(t, before)
  if type(t) ~= "table" then wrong("sort", 1, "table", t) end
  if before == nil then
    before = is_less
  elseif type(before) ~= "function" then
    wrong("sort", 2, "function", before)
  end
  local last = #t
  for root = floor(last / 2), 1, -1 do sift(t, root, last, before) end
  while last > 1 do
    t[1], t[last] = t[last], t[1]
    last = last - 1
    sift(t, 1, last, before)
  end
end
lib_table.unpack = unpack
function lib_table.pack(...) return { n = select("#", ...), ... } end
function lib_table.new() return {} end
function lib_table.clear(t)
  for key in pairs(t) do t[key] = nil end
end

local lib_math = {}
for name, value in pairs(math) do lib_math[name] = value end

local lib_bit = {}
for name, value in pairs(bit) do lib_bit[name] = value end

local date, time = os.date, os.time
local lib_os = { difftime = os.difftime, clock = native.elapsed }
function lib_os.time(when)
  if when == nil then return floor(native.now()) end
  return time(when)
end
function lib_os.date(format, when)
  return date(format or "%c", when or floor(native.now()))
end

-- What the operator allows this application besides the sandbox. These functions block the worker.
local lib_io
if native.fact("io") then
  lib_io = {}
  for name, value in pairs(io) do lib_io[name] = value end
end
if native.fact("os") then
  for _, name in ipairs { "execute", "getenv", "remove", "rename", "tmpname" } do lib_os[name] = os[name] end
end

local traceback = debug.traceback
local lib_debug = { traceback = traceback }
local lib_jit = { version = jit.version, version_num = jit.version_num, os = jit.os, arch = jit.arch }

-- A table that scripts can read but not change.
local function sealed(name, contents)
  return setmetatable({}, {
    __index = contents,
    __newindex = function(_, key)
      error("the library '" .. name .. "' cannot be changed (field '" .. tostring(key) .. "')", 2)
    end,
    __metatable = false,
  })
end

-- Coroutines: an operation that waits suspends every coroutine between the one that waits and the callback's own.
local create, resume, status, running, yield =
  coroutine.create, coroutine.resume, coroutine.status, coroutine.running, coroutine.yield
local isyieldable = coroutine.isyieldable
local is_waiting, cancel_wait = native.is_waiting, native.cancel_wait
local CANNOT_WAIT = "functions that wait cannot be used here (such as in the error handler of xpcall)"

-- How many coroutines may resume each other. Each of them takes a part of the thread's stack, whose end would end the process.
local NESTING_MAX = 200
-- The coroutines of the script, each with the number of coroutines that it was resumed within; false while it waits for an
-- operation: what others passed to it would be taken for the result.
local depths = setmetatable({}, { __mode = "k" })

local function new_coroutine(f)
  local co = create(f)
  depths[co] = 0
  return co
end

-- Notes that the running coroutine resumes another. Returns why it cannot, or nil.
local function enter(co)
  local depth = depths[co]
  -- It waits, or is that of a callback.
  if not depth then return "cannot resume non-suspended coroutine" end
  local next_depth = (depths[running()] or 0) + 1
  if next_depth > NESTING_MAX then return "C stack overflow" end
  -- Other coroutines cannot be resumed, and keep their depth.
  if depth ~= next_depth and status(co) == "suspended" then depths[co] = next_depth end
end

-- The value that a coroutine yields to leave the phase of its request. The enclosing coroutines of the script yield it, too.
local LEFT = {}

local continue

-- A coroutine waits: suspends the one that has resumed it, too, unless that one cannot be suspended.
local function wait_for(co)
  if not isyieldable() then
    cancel_wait()
    return resume(co, false, CANNOT_WAIT)
  end
  local depth = depths[co]
  depths[co] = false
  return continue(co, depth, yield())
end
function continue(co, depth, ...)
  depths[co] = depth
  return resume(co, ...)
end

local function pass(co, ok, ...)
  if ok and status(co) == "suspended" then
    if is_waiting() then return pass(co, wait_for(co)) end
    if (...) == LEFT then return yield(LEFT) end
  end
  return ok, ...
end

-- Runs a coroutine that may be left: returns true once it has ended or is left, or false and its error.
local function run_phase(co, ok, ...)
  if ok and status(co) == "suspended" then
    if is_waiting() then return run_phase(co, wait_for(co)) end
    if (...) ~= LEFT then return false, "attempt to yield outside of a coroutine" end
    return true
  end
  return ok, ...
end

local lib_coroutine = { status = status, running = running, yield = yield, isyieldable = isyieldable }
function lib_coroutine.create(f)
  if type(f) ~= "function" then wrong("create", 1, "function", f) end
  return new_coroutine(f)
end
function lib_coroutine.resume(co, ...)
  if type(co) ~= "thread" then wrong("resume", 1, "coroutine", co) end
  local err = enter(co)
  if err then return false, err end
  return pass(co, resume(co, ...))
end
local function unwrap(ok, ...)
  if ok then return ... end
  local err = ...
  if type(err) == "string" then error(err, 0) end
  error(err)
end
function lib_coroutine.wrap(f)
  if type(f) ~= "function" then wrong("wrap", 1, "function", f) end
  local co = new_coroutine(f)
  return function(...)
    local err = enter(co)
    if err then error(err, 2) end
    return unwrap(pass(co, resume(co, ...)))
  end
end

-- Environments and modules ----------------------------------------------------------------------------------------

local inner = raw_getfenv(1)

function G.getfenv(what)
  if what == nil then what = 1 end
  if type(what) == "number" then
    if what == 0 then return globals end
    what = what + 1
  elseif type(what) ~= "function" then
    wrong("getfenv", 1, "function", what)
  end
  local env = raw_getfenv(what)
  return env == inner and globals or env
end

function G.setfenv(what, env)
  if type(env) ~= "table" then wrong("setfenv", 2, "table", env) end
  if type(what) == "number" then
    if what == 0 then error("the environment of a coroutine cannot be changed", 2) end
    what = what + 1
  elseif type(what) ~= "function" then
    wrong("setfenv", 1, "function", what)
  end
  if raw_getfenv(what) == inner then error("'setfenv' cannot change the environment of this function", 2) end
  -- Not a tail call, which would remove the frame of this function and so shift the levels.
  local changed = raw_setfenv(what, env)
  return changed
end

local function compile(source, name, env)
  local chunk, err = native.load(source, name)
  if not chunk then return nil, err end
  return raw_setfenv(chunk, env == G and globals or env)
end

function G.load(source, name, mode, ...)
  if type(source) == "function" then
    local parts = {}
    while true do
      local part = source()
      if part == nil or part == "" then break end
      if type(part) ~= "string" then return nil, "reader function must return a string" end
      parts[#parts + 1] = part
    end
    source = concat(parts)
    name = name or "=(load)"
  end
  source = string_of("load", 1, source)
  if mode == "b" then return nil, "bytecode is not allowed" end
  local env = G
  if select("#", ...) > 0 then env = (...) end
  if env ~= nil and type(env) ~= "table" then wrong("load", 4, "table", env) end
  return compile(source, name and string_of("load", 2, name) or source, env or {})
end
function G.loadstring(source, name)
  return G.load(string_of("loadstring", 1, source), name)
end

local loaded, preload, loading = {}, {}, {}

function G.require(name)
  if type(name) ~= "string" then wrong("require", 1, "string", name) end
  local value = loaded[name]
  if value ~= nil then return value end
  if loading[name] then error("loop in the modules: '" .. name .. "' requires itself", 2) end
  local chunk, file = preload[name], nil
  if not chunk then
    local source
    source, file = native.source(name)
    if source == nil then error("module '" .. name .. "': " .. file, 2) end
    if source == false then
      error("module '" .. name .. "' not found in the folder of the application", 2)
    end
    local err
    chunk, err = compile(source, "@" .. file, G)
    if not chunk then error(err, 0) end
  end
  loading[name] = true
  local ok, result = xpcall(function() return chunk(name, file) end, function(err)
    return type(err) == "string" and { traceback(err, 2), err } or { err, err }
  end)
  loading[name] = nil
  if not ok then
    local err = type(result) == "table" and result[2] or result
    if type(err) == "string" then error(err, 0) end
    error(err)
  end
  if result == nil then
    result = loaded[name]
    if result == nil then result = true end
  end
  loaded[name] = result
  return result
end

function G.collectgarbage(what, ...)
  if what == "count" then return native.memory() / 1024 end
  if what == nil or what == "collect" or what == "step" then return collectgarbage(what or "collect", ...) end
  error("collectgarbage(\"" .. tostring(what) .. "\") is not allowed", 2)
end

local info = native.log
function G.print(...)
  local parts = {}
  for at = 1, select("#", ...) do parts[at] = tostring((select(at, ...))) end
  info(2, concat(parts, "\t"))
end

-- The functions that pass by metatables see what the globals are, too. `next` does not: it is too frequent.
function G.rawget(t, key)
  if t == globals then t = G end
  return rawget(t, key)
end
function G.rawset(t, key, value)
  if t == globals then
    t[key] = value
    return t
  end
  return rawset(t, key, value)
end
-- The loop gets no reference to the real table, which `rawset` would change.
local function next_global(_, key) return next(G, key) end
function G.pairs(t)
  if t == globals then return next_global, globals, nil end
  return pairs(t)
end

G.assert, G.error, G.ipairs, G.next, G.pcall = assert, error, ipairs, next, pcall
G.rawequal, G.select, G.tonumber, G.tostring = rawequal, select, tonumber, tostring
G.type, G.unpack, G.xpcall, G.setmetatable = type, unpack, xpcall, setmetatable
G.getmetatable = getmetatable
G._VERSION = _VERSION
G._G = globals
local libraries = {
  string = lib_string, table = lib_table, math = lib_math, bit = lib_bit, os = lib_os,
  debug = lib_debug, jit = lib_jit, coroutine = lib_coroutine, io = lib_io,
}
for name, contents in pairs(libraries) do
  G[name] = sealed(name, contents)
  loaded[name] = G[name]
end
G.package = { loaded = loaded, preload = preload, path = "", cpath = "", config = "/\n;\n?\n!\n-\n" }
loaded._G, loaded.package = globals, G.package
loaded["table.new"], loaded["table.clear"] = lib_table.new, lib_table.clear

-- After the script has been loaded, an assignment to a global is most often a `local` that was forgotten: the global would be
-- shared by all connections of the worker, and the name of a function would be lost for all of them.
local is_sealed = false
-- The names that a layer protects in which scripts assign globals at any time; nil without one.
local protected
setmetatable(globals, {
  __index = G,
  __newindex = function(_, key, value)
    -- A `print = print` changes nothing.
    if (is_sealed or protected and protected[key]) and not rawequal(rawget(G, key), value) then
      error("assignment to the global '" .. tostring(key) .. "' after the script was loaded (write 'local', or keep the value " ..
        "in a table)", 2)
    end
    rawset(G, key, value)
  end,
  __metatable = false,
})

-- A function that seals the names of this moment only: for layers in which scripts assign other globals at any time.
local function sealing_names()
  local names = {}
  for name in pairs(G) do names[name] = true end
  return function() protected = names end
end

return {
  G = G,
  loaded = loaded,
  preload = preload,
  compile = compile,
  sealed = sealed,
  wrong = wrong,
  seal = function() is_sealed = true end,
  sealing_names = sealing_names,
  run_phase = function(f)
    local co = new_coroutine(f)
    local err = enter(co)
    if err then return false, err end
    return run_phase(co, resume(co))
  end,
  leave_phase = function() return yield(LEFT) end,
}
