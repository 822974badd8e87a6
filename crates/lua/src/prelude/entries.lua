-- The functions that Rust calls.
local native, P = ...

local type, error, pairs, ipairs, tostring, setmetatable, rawset, rawget, select =
  type, error, pairs, ipairs, tostring, setmetatable, rawset, rawget, select
local new_request, new_response = P.new_request, P.new_response

-- The handlers of the script, and the number of each.
local NUMBERS = { on_start = 0, on_stop = 1, on_request = 2, on_open = 3, on_message = 4, on_close = 5, on_drain = 6,
  on_access = 7, on_response = 8, on_log = 9, on_handover = 10, on_retire = 11, on_body = 12, on_push = 14, on_balance = 15,
  on_frame = 16, on_frame_end = 17, on_certificate = 18, on_upload = 19 }
local NAMES = "on_request, on_upload, on_access, on_response, on_body, on_log, on_open, on_message, on_close, on_drain, on_start, on_stop, " ..
  "on_handover, on_retire, on_push, on_balance, on_frame, on_frame_end, on_certificate"
local handlers = {}
local entries = {}
local getinfo = debug.getinfo
-- Whether on_access takes its second argument. Most do not, and then there is no need for a table.
local access_responds = false

function entries.load(source, file)
  local chunk, err = P.compile(source, "@" .. file, P.G)
  if not chunk then error(err, 0) end
  -- A layer decides when the script runs.
  local found
  if P.adapt then found = P.adapt(chunk, file) else found = chunk() end
  if type(found) ~= "table" then
    error(file .. ": the script must return a table of handlers (" .. NAMES .. "), it returned: " .. type(found), 0)
  end
  local count = 0
  for name, handler in pairs(found) do
    local number = NUMBERS[name]
    if not number then
      error(file .. ": unknown handler '" .. tostring(name) .. "'; the handlers are " .. NAMES, 0)
    end
    if type(handler) ~= "function" then
      error(file .. ": the handler '" .. name .. "' must be a function, it is: " .. type(handler), 0)
    end
    native.declare(number)
    handlers[name] = handler
    if name == "on_access" then
      local info = getinfo(handler, "u")
      access_responds = info.isvararg or info.nparams > 1
    end
    count = count + 1
  end
  if count == 0 then error(file .. ": the script returned a table without handlers (" .. NAMES .. ")", 0) end
  P.seal()
end

function entries.start() handlers.on_start() end
function entries.stop() handlers.on_stop() end

-- The return of these handlers may complete the response (`AtReturn`).
function entries.request(index, generation)
  handlers.on_request(new_request(index, generation), new_response(index, generation))
end

function entries.upload(index, generation)
  handlers.on_upload(new_request(index, generation), new_response(index, generation))
end

function entries.access(index, generation)
  handlers.on_access(new_request(index, generation), access_responds and new_response(index, generation) or nil)
end

-- The servers of a pool, as the worker describes them: `BalanceParts::servers`.
local function servers_of(text)
  local servers = {}
  for name, free, tried in P.G.string.gmatch(text, "([^\t]*)\t(%d)(%d)\n") do
    servers[#servers + 1] = { name = name, index = #servers + 1, is_free = free == "1", was_tried = tried == "1" }
  end
  return servers
end

-- Most scripts need only some of the fields.
local Attempt = {
  __metatable = "attempt",
  __index = function(self, key)
    if key ~= "servers" then return nil end
    local servers = servers_of(self[1])
    rawset(self, "servers", servers)
    return servers
  end,
}

local function server_named(attempt, name)
  for at, server in ipairs(attempt.servers) do
    if server.name == name then return at end
  end
  error("on_balance: the pool '" .. attempt.pool .. "' has no server '" .. name .. "'", 0)
end

function entries.balance(index, generation, pool, number, servers)
  local attempt = setmetatable({ servers, pool = pool, number = number }, Attempt)
  local chosen = handlers.on_balance(new_request(index, generation), attempt)
  if chosen == nil then return end
  if type(chosen) == "string" then chosen = server_named(attempt, chosen) end
  if type(chosen) ~= "number" then
    error("on_balance must return the index or the name of a server, or nil, it returned: " .. type(chosen), 0)
  end
  local ok, err = native.choose_server(index, generation, chosen)
  if not ok then error("on_balance: " .. err, 0) end
end

local new_head, new_body, decode = P.new_head, P.new_body, native.json_decode

function entries.response(index, generation)
  handlers.on_response(new_request(index, generation), new_head(index, generation))
end
-- The part of the body that the handler has not read is sent unchanged.
function entries.body(index, generation)
  handlers.on_body(new_request(index, generation), new_body(index, generation))
end

local tunnel_of, decide_frame = P.tunnel_of, P.decide_frame
function entries.frame(index, generation, request_index, request_generation, from_client, kind, data, code)
  local tunnel = tunnel_of(index, generation, request_index, request_generation)
  local frame = { from = from_client and "client" or "server", kind = kind }
  if kind == "close" then
    frame.code, frame.reason = code, data
  else
    frame.data = data
  end
  decide_frame(index, generation, kind, handlers.on_frame(frame, tunnel))
end
function entries.frame_end(index, generation, request_index, request_generation, code, reason)
  local tunnel = tunnel_of(index, generation, request_index, request_generation)
  P.forget_tunnel(index)
  -- Without a code, too many calls wait.
  if code and handlers.on_frame_end then handlers.on_frame_end(tunnel, code, reason) end
end

function entries.certificate(index, generation, name, listener, client)
  local hello = { name = name ~= "" and name or nil, listener = listener, client = client }
  local chosen = handlers.on_certificate(hello)
  local kind = type(chosen)
  if chosen ~= nil and chosen ~= false and kind ~= "string" and kind ~= "number" then
    error("on_certificate must return a name or the number of a certificate, false or nil, it returned: " .. kind, 0)
  end
  local ok, err = native.choose_certificate(index, generation, chosen)
  if not ok then error("on_certificate: " .. err, 0) end
end

function entries.log(text) handlers.on_log(decode(text)) end

-- Events of hubs that need no decision arrive in lists. `first`: the place of the first event that the handler gets. The event before
-- it has failed.
function entries.push(index, generation, hub, kind, fields, text, first)
  local event = decode(text)
  local list = event.events
  if list then
    -- Events that fail share the turns with others.
    if first > 1 then native.sleep(0) end
    for at = first, #list do
      native.begin_event(index, generation, at)
      local one = list[at]
      one.hub, one.type = hub, kind
      handlers.on_push(one)
    end
    return native.decide(index, generation, "{}")
  end
  event.hub, event.type = hub, kind
  P.add_fields(event, fields)
  P.decide(index, generation, kind, handlers.on_push(event))
end

local clients, new_client = P.clients, P.new_client

function entries.open(index, generation, request_index, request_generation)
  local client = new_client(index, generation)
  if handlers.on_open then handlers.on_open(client, new_request(request_index, request_generation)) end
end

function entries.message(index, data, is_text)
  local client = clients[index]
  if client and handlers.on_message then handlers.on_message(client, data, is_text and "text" or "binary") end
end

function entries.close(index, code, reason)
  local client = clients[index]
  clients[index] = nil
  if client then P.end_subscriptions(client) end
  if client and handlers.on_close then handlers.on_close(client, code, reason) end
end

function entries.drain(index)
  local client = clients[index]
  if client then handlers.on_drain(client) end
end

function entries.retire(seconds) handlers.on_retire(seconds) end
entries.release = P.release
function entries.adopt(index, generation, text)
  local client = P.adopt(index, generation, text)
  handlers.on_handover(client, client:state())
end

-- Code of the console ------------------------------------------------------------------------------------------------

-- How deep tables are shown, and how many of their entries.
local DEPTH_MAX, ENTRIES_MAX = 4, 100
local sort, concat, format = P.G.table.sort, table.concat, string.format

local function shown(value, depth)
  if type(value) == "string" then return format("%q", value) end
  if type(value) ~= "table" then return tostring(value) end
  if depth > DEPTH_MAX then return "{ ... }" end
  local keys, parts = {}, {}
  -- The raw entries: `__pairs` does not exist, and `__index` may fail.
  for key in pairs(value) do
    if #keys >= ENTRIES_MAX then break end
    keys[#keys + 1] = key
  end
  sort(keys, function(one, other) return tostring(one) < tostring(other) end)
  for _, key in ipairs(keys) do
    local name = type(key) == "string" and key or "[" .. tostring(key) .. "]"
    parts[#parts + 1] = name .. " = " .. shown(rawget(value, key), depth + 1)
  end
  if #keys >= ENTRIES_MAX then parts[#parts + 1] = "..." end
  return "{ " .. concat(parts, ", ") .. " }"
end

local function show_all(...)
  local lines = {}
  for at = 1, select("#", ...) do lines[at] = shown((select(at, ...)), 1) end
  native.show(concat(lines, "\n"))
end

function entries.evaluate(code)
  -- An expression, or statements.
  local chunk = P.compile("return " .. code, "=console", P.G)
  local err
  if not chunk then chunk, err = P.compile(code, "=console", P.G) end
  if not chunk then error(err, 0) end
  show_all(chunk())
end

entries.job, entries.job_failed = P.run_job, P.fail_job
entries.broadcast = P.take_broadcast
entries.load_tests, entries.test = P.load_tests, P.run_test

return entries
