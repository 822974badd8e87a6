-- The layer `ngx`: runs scripts that were written for OpenResty, by the interface that its documentation defines. This chunk
-- has the module `ngx`, the phases and the state of each request; other chunks have requests, responses, encodings and waits.
local native, P = ...

local type, tostring, error, select, setmetatable, rawset = type, tostring, error, select, setmetatable, rawset
local concat = table.concat
local getinfo, run, leave = debug.getinfo, native.run, native.leave
local G, tide, settings = P.G, P.tide, P.settings

-- The state of each handler, timer and thread by the number of its run, which is the same before and after each wait. The
-- handler's own stack keeps the state alive, so the state of a cancelled handler is collected.
local states = setmetatable({}, { __mode = "v" })
-- The states of requests of hooks between their phases, by the index of the request.
local kept = {}

local ngx = {
  OK = 0, ERROR = -1, AGAIN = -2, DONE = -4, DECLINED = -5,
  STDERR = 0, EMERG = 1, ALERT = 2, CRIT = 3, ERR = 4, WARN = 5, NOTICE = 6, INFO = 7, DEBUG = 8,
  HTTP_GET = 2, HTTP_HEAD = 4, HTTP_POST = 8, HTTP_PUT = 16, HTTP_DELETE = 32, HTTP_MKCOL = 64, HTTP_COPY = 128,
  HTTP_MOVE = 256, HTTP_OPTIONS = 512, HTTP_PROPFIND = 1024, HTTP_PROPPATCH = 2048, HTTP_LOCK = 4096, HTTP_UNLOCK = 8192,
  HTTP_PATCH = 16384, HTTP_TRACE = 32768,
  HTTP_CONTINUE = 100, HTTP_SWITCHING_PROTOCOLS = 101, HTTP_OK = 200, HTTP_CREATED = 201, HTTP_ACCEPTED = 202,
  HTTP_NO_CONTENT = 204, HTTP_PARTIAL_CONTENT = 206, HTTP_SPECIAL_RESPONSE = 300, HTTP_MOVED_PERMANENTLY = 301,
  HTTP_MOVED_TEMPORARILY = 302, HTTP_SEE_OTHER = 303, HTTP_NOT_MODIFIED = 304, HTTP_TEMPORARY_REDIRECT = 307,
  HTTP_PERMANENT_REDIRECT = 308, HTTP_BAD_REQUEST = 400, HTTP_UNAUTHORIZED = 401, HTTP_PAYMENT_REQUIRED = 402,
  HTTP_FORBIDDEN = 403, HTTP_NOT_FOUND = 404, HTTP_NOT_ALLOWED = 405, HTTP_NOT_ACCEPTABLE = 406,
  HTTP_REQUEST_TIMEOUT = 408, HTTP_CONFLICT = 409, HTTP_GONE = 410, HTTP_UPGRADE_REQUIRED = 426,
  HTTP_TOO_MANY_REQUESTS = 429, HTTP_CLOSE = 444, HTTP_ILLEGAL = 451, HTTP_INTERNAL_SERVER_ERROR = 500,
  HTTP_NOT_IMPLEMENTED = 501, HTTP_METHOD_NOT_IMPLEMENTED = 501, HTTP_BAD_GATEWAY = 502,
  HTTP_SERVICE_UNAVAILABLE = 503, HTTP_GATEWAY_TIMEOUT = 504, HTTP_VERSION_NOT_SUPPORTED = 505,
  HTTP_INSUFFICIENT_STORAGE = 507,
  null = native.null,
  config = { subsystem = "http", debug = false, nginx_configure = function() return "" end, prefix = function() return "" end,
    nginx_version = 1027001, ngx_lua_version = 10027 },
  is_subrequest = false,
}

-- Fields of `ngx` that depend on the request.
local getters, setters = {}, {}
setmetatable(ngx, {
  __index = function(_, key)
    local get = getters[key]
    if get then return get() end
  end,
  __newindex = function(t, key, value)
    local set = setters[key]
    if set then return set(value) end
    if getters[key] then error("the field '" .. key .. "' of ngx is read-only", 2) end
    rawset(t, key, value)
  end,
})

-- The phase outside of requests.
local phase_now = "init"

local function state_of_run() return states[run()] end

-- The state of the request that the calling code serves.
local function current()
  local state = states[run()]
  if not state or not state.request then error("no request found", 3) end
  return state
end

local function begin(phase, request, response)
  local number = run()
  local state = { phase = phase, request = request, response = response, fields = {}, run = number, began = native.now() }
  states[number] = state
  return state
end

-- A thread acts for the request of its parent.
local function adopt(state) states[run()] = state end

function ngx.get_phase()
  local state = states[run()]
  return state and state.phase or phase_now
end

function getters.ctx()
  local state = states[run()]
  if not state then error("no request found", 2) end
  if not state.ctx then state.ctx = {} end
  return state.ctx
end
function setters.ctx(value)
  if type(value) ~= "table" then error("ctx should be a table while getting a " .. type(value), 3) end
  local state = states[run()]
  if not state then error("no request found", 3) end
  state.ctx = value
end

-- ngx.log, print ---------------------------------------------------------------------------------------------------

local function line_of(...)
  local parts = {}
  for at = 1, select("#", ...) do
    local value = (select(at, ...))
    if value == ngx.null then parts[at] = "null" else parts[at] = tostring(value) end
  end
  return concat(parts)
end

-- Levels of `tide.log`: 0 error, 1 warning, 2 information.
local function write(level, depth, ...)
  local from = getinfo(depth + 1, "Sl")
  local place = ""
  if from and from.currentline > 0 then place = from.short_src .. ":" .. from.currentline .. ": " end
  native.log(level, place .. line_of(...))
end

function ngx.log(level, ...)
  if type(level) ~= "number" then P.wrong("log", 1, "number", level) end
  if level < 0 or level > 8 then error("bad log level: " .. level, 2) end
  if level == ngx.DEBUG then return end
  write(level <= ngx.ERR and 0 or level == ngx.WARN and 1 or 2, 2, ...)
end
function G.print(...) write(2, 2, ...) end

-- Phases -----------------------------------------------------------------------------------------------------------

-- The chunks of the phases.
local chunks = {}

-- Functions to call when `ngx.exit` ends a timer or thread, by the number of its run.
local exits = setmetatable({}, { __mode = "v" })

-- The value of a field: a string, a list of strings, or nil.
function P.ngx_field_value(value)
  if type(value) == "table" then
    local copy = {}
    for at = 1, #value do copy[at] = tostring(value[at]) end
    return #copy > 0 and copy or nil
  end
  if value == nil then return nil end
  return tostring(value)
end

-- Ends the calling handler, timer or thread. A `pcall` cannot catch this.
local function quit(state)
  local number = run()
  if state then P.ngx_kill_threads(state, number) end
  if state and state.leaves_phase and state.run == number then return P.leave_phase() end
  local ends = exits[number]
  if ends then ends() end
  leave()
  error("ngx.exit cannot be used here (such as in the error handler of xpcall)", 3)
end

-- Runs the access phase of a request that the content phase answers.
local function run_access(state)
  state.phase, state.leaves_phase = "access", true
  local ok, err = P.run_phase(function()
    chunks.access()
    P.ngx_wait_threads(state)
  end)
  state.phase, state.leaves_phase = "content", nil
  if not ok then error(err, 0) end
end

local handlers = {}

function handlers.on_request(request, response)
  local state = begin("content", request, response)
  if chunks.access then run_access(state) end
  chunks.content()
  P.ngx_wait_threads(state)
  P.ngx_finish(state)
end

function handlers.on_access(request, response)
  local state = begin("access", request, response)
  state.is_hook = true
  kept[request[1]] = state
  local access = chunks.access or chunks.content
  access()
  P.ngx_wait_threads(state)
  if state.is_sent then P.ngx_finish(state) end
end

-- Drops the state of a hooked request that is answered, not forwarded.
function P.ngx_forget(state)
  if state.is_hook then kept[state.request[1]] = nil end
end

-- The state of a request that was forwarded after the access phase.
local function recall(phase, request, head)
  local state = kept[request[1]]
  if not state or state.request[2] ~= request[2] then state = { fields = {}, began = native.now() } end
  state.run = run()
  state.phase, state.request, state.response, state.head, state.is_hook = phase, request, nil, head, true
  states[run()] = state
  return state
end

function handlers.on_response(request, head)
  local state = recall("header_filter", request, head)
  P.ngx_add_fields(state)
  if chunks.header_filter then
    chunks.header_filter()
    P.ngx_wait_threads(state)
  end
  if not chunks.body_filter then kept[request[1]] = nil end
end

local function body_filter(request, body)
  local state = recall("body_filter", request, nil)
  state.body = body
  local is_end
  repeat
    local data = body:read()
    is_end = data == nil
    state.arg = { data or "", is_end }
    chunks.body_filter()
    local out = state.arg[1]
    if type(out) == "table" then out = P.ngx_text(out, "arg", 1) end
    if out ~= nil and out ~= "" then body:write(out) end
    if state.arg[2] and not is_end then
      -- The script ends the body: the rest is dropped.
      while body:read() do end
      is_end = true
    end
  until is_end
  kept[request[1]] = nil
end

local function log(record)
  local state = { phase = "log", record = record, fields = {} }
  states[run()] = state
  chunks.log()
  -- The stack keeps the state until here.
  state.phase = nil
end

local arg = setmetatable({}, {
  __index = function(_, key)
    local state = states[run()]
    if not state or not state.arg then error("API disabled in the current context", 2) end
    return state.arg[key]
  end,
  __newindex = function(_, key, value)
    local state = states[run()]
    if not state or not state.arg then error("API disabled in the current context", 2) end
    state.arg[key] = value
  end,
})
rawset(ngx, "arg", arg)

-- Compiles the file of a phase; nil without one.
local function chunk_of(phase)
  local text, file = native.phase(phase)
  if not text then return nil end
  local chunk, err = P.compile(text, "@" .. file, G)
  if not chunk then error(err, 0) end
  return chunk
end

-- The script is the content phase of routes with `lua`, and the access phase of routes with `hooks` unless `phases` has one.
function P.adapt(chunk)
  chunks.content = chunk
  chunks.access, chunks.header_filter = chunk_of("access"), chunk_of("header-filter")
  chunks.body_filter, chunks.log = chunk_of("body-filter"), chunk_of("log")
  local init, init_worker = chunk_of("init"), chunk_of("init-worker")
  if init then init() end
  if chunks.body_filter then handlers.on_body = body_filter end
  if chunks.log then handlers.on_log = log end
  if init_worker then
    handlers.on_start = function()
      phase_now = "init_worker"
      init_worker()
      phase_now = "timer"
    end
  end
  return handlers
end
ngx.worker = {
  id = function() return tide.worker.id end,
  count = function() return tide.worker.count end,
  -- Workers are threads of one process.
  pid = function() return native.fact("pid") end,
  pids = function()
    local pids = {}
    for at = 1, tide.worker.count do pids[at] = native.fact("pid") end
    return pids
  end,
  exiting = function() return tide.premature() ~= false end,
}

function ngx.sleep(seconds)
  if type(seconds) ~= "number" then P.wrong("sleep", 1, "number", seconds) end
  if seconds < 0 then error("invalid sleep duration \"" .. seconds .. "\"", 2) end
  local ok, err = tide.sleep(seconds)
  if not ok and err ~= "premature" then error(err, 2) end
end

-- Functions that depend on nginx.conf.
ngx.location = {
  capture = function() error("ngx.location.capture is not supported: use tide.http.request", 2) end,
  capture_multi = function() error("ngx.location.capture_multi is not supported: use tide.http.request", 2) end,
}

P.ngx, P.ngx_current, P.ngx_state, P.ngx_begin, P.ngx_adopt, P.ngx_quit = ngx, current, state_of_run, begin, adopt, quit
P.ngx_getters, P.ngx_setters, P.ngx_exits = getters, setters, exits
P.ngx_settings = settings
G.ngx = ngx
P.loaded.ngx = ngx

return P
