-- The layer `lapps`: runs services that were written for LAppS, by the interface that its documentation defines.
local native, P = ...

local type, tostring, tonumber, error, next, pairs, ipairs, pcall, rawget, setmetatable, getmetatable =
  type, tostring, tonumber, error, next, pairs, ipairs, pcall, rawget, setmetatable, getmetatable
local floor, concat, rep = math.floor, table.concat, string.rep
local json_encode, json_decode, cbor_encode, cbor_decode =
  native.json_encode, native.json_decode, native.cbor_encode, native.cbor_decode
local null, G, tide, settings, clients = native.null, P.G, P.tide, P.settings, P.clients
local sort, remove = G.table.sort, G.table.remove

-- Opcodes of messages, and types of messages of the LAppS protocol.
local TEXT, BINARY = 1, 2
local NOTICE, NOTICE_WITH_PARAMS, REQUEST, REQUEST_WITH_PARAMS = 1, 2, 3, 4
-- A handler is a number: the index of a client, and above it the generation, so that it never names a later client.
local SLOTS = 2 ^ 24
-- Seconds for which a loop of a service waits for events, and between two checks of a queue.
local TICK = 0.01
-- Seconds after which a service that waits for a message of a common queue checks whether it must stop.
local PATIENCE = 1
-- Calls of `must_stop` after which a loop lets others run.
local CALLS = 16
-- Maximum number of events that wait for `eventLoop`, and of messages in a queue without a shared dictionary.
local EVENTS_MAX, MESSAGES_MAX = 1000, 10000
-- Maximum pause after an instance has failed, in seconds.
local PAUSE_MAX = 60

local is_raw = (settings.protocol or "raw") == "raw"

local function handler_of(client) return client[2] * SLOTS + client[1] end
local function client_of(handler)
  if type(handler) ~= "number" then return nil end
  local index = handler % SLOTS
  local client = clients[index]
  if client and client[2] * SLOTS + index == handler then return client end
end

-- True, or false and an error, as LAppS's functions return.
local function outcome(ok, err)
  if ok then return true end
  return false, err
end

-- nljson -----------------------------------------------------------------------------------------------------------

local nljson = {}

local function is_array(value) return getmetatable(value) == "array" or #value > 0 end

-- A member of an object that is null reads as nil.
local function without_nulls(value)
  if type(value) ~= "table" then return value end
  local keeps = is_array(value)
  for key, member in pairs(value) do
    if member == null then
      if not keeps then value[key] = nil end
    else
      without_nulls(member)
    end
  end
  return value
end

local function decoded(value, err)
  if value == nil then error(err, 3) end
  if value == null then return nil end
  return without_nulls(value)
end
function nljson.decode(text) return decoded(json_decode(P.string_argument("nljson.decode", 1, text))) end
function nljson.from_cbor(data) return decoded(cbor_decode(P.string_argument("nljson.from_cbor", 1, data))) end
function nljson.decode_file() error("nljson.decode_file is not supported: services read no files", 2) end

local function encoded(text, err)
  if not text then error(err, 3) end
  return text
end
function nljson.encode(value) return encoded(json_encode(value)) end
function nljson.to_cbor(value) return encoded(cbor_encode(value)) end

local function pretty(value, indent, depth)
  if type(value) ~= "table" or next(value) == nil then return encoded(json_encode(value)) end
  if depth > 100 then error("the value is nested deeper than 100 levels, or contains itself", 3) end
  local inner, parts = "\n" .. rep(" ", indent * depth), {}
  if is_array(value) then
    for at, member in ipairs(value) do parts[at] = inner .. pretty(member, indent, depth + 1) end
    return "[" .. concat(parts, ",") .. "\n" .. rep(" ", indent * (depth - 1)) .. "]"
  end
  local keys = {}
  for key in pairs(value) do keys[#keys + 1] = tostring(key) end
  sort(keys)
  for at, key in ipairs(keys) do
    local member = value[key]
    if member == nil then member = value[tonumber(key)] end
    parts[at] = inner .. encoded(json_encode(key)) .. ": " .. pretty(member, indent, depth + 1)
  end
  return "{" .. concat(parts, ",") .. "\n" .. rep(" ", indent * (depth - 1)) .. "}"
end
function nljson.encode_pretty(value, indent) return pretty(value, indent or 0, 1) end

function nljson.find(value, key)
  if type(value) ~= "table" then error("bad argument #1 to 'nljson.find' (an object expected)", 2) end
  return value[tostring(key)]
end
function nljson.erase(value, key)
  if type(value) ~= "table" then return false end
  if is_array(value) then return remove(value, tonumber(key)) ~= nil end
  local has = value[tostring(key)] ~= nil
  value[tostring(key)] = nil
  return has
end
function nljson.empty(value) return type(value) == "table" and next(value) == nil end
function nljson.typename(value)
  if value == nil or value == null then return "null" end
  if type(value) ~= "table" then return type(value) end
  return is_array(value) and "array" or "object"
end
function nljson.foreach(value, f)
  if is_array(value) then
    for at, member in ipairs(value) do f(at, member) end
  else
    for key, member in pairs(value) do f(key, member) end
  end
end
local function traverse(value, f)
  nljson.foreach(value, function(key, member)
    if type(member) == "table" then traverse(member, f) end
    f(key, member)
  end)
end
nljson.traverse = traverse

-- ws, bcast --------------------------------------------------------------------------------------------------------

local ws = {}
function ws:send(handler, opcode, message)
  local client = client_of(handler)
  if not client then return false, "the connection is closed" end
  if not is_raw then
    if type(opcode) ~= "table" then return false, "a message of the LAppS protocol must be an nljson object" end
    local data, err = cbor_encode(opcode)
    if not data then return false, err end
    return outcome(client:send(data, "binary"))
  end
  if opcode ~= TEXT and opcode ~= BINARY then return false, "the opcode must be 1 (text) or 2 (binary)" end
  if type(message) ~= "string" then return false, "the message must be a string" end
  return outcome(client:send(message, opcode == TEXT and "text" or "binary"))
end
function ws:close(handler, code, reason)
  local client = client_of(handler)
  if not client then return false, "the connection is closed" end
  if type(code) ~= "number" or (reason ~= nil and type(reason) ~= "string") then
    return false, "usage: ws:close(handler, code [, reason])"
  end
  return outcome(client:close(code, reason))
end

-- The subscribers of each channel, by handler. The state of a client keeps its channels, also across a reload.
local bcast, channels = {}, {}
local function subscribe(id, client)
  channels[id] = channels[id] or {}
  channels[id][handler_of(client)] = client
end
local function unsubscribe(id, handler)
  if not channels[id] then return end
  channels[id][handler] = nil
  if next(channels[id]) == nil then channels[id] = nil end
end
local function check_channel(id)
  if type(id) ~= "number" then return false, "the channel must be a number" end
  return true
end
bcast.create = function(_, id) return check_channel(id) end
function bcast:subscribe(id, handler)
  local ok, err = check_channel(id)
  if not ok then return false, err end
  local client = client_of(handler)
  if not client then return false, "the connection is closed" end
  local state = client:state()
  state.channels = state.channels or {}
  state.channels[id] = true
  subscribe(id, client)
  return true
end
function bcast:unsubscribe(id, handler)
  local client = client_of(handler)
  if client and client:state().channels then client:state().channels[id] = nil end
  unsubscribe(id, handler)
  return true
end
function bcast:send(id, message)
  local ok, err = check_channel(id)
  if not ok then return false, err end
  local data
  data, err = cbor_encode(message)
  if not data then return false, err end
  return outcome(native.broadcast(tostring(id), data))
end
-- A broadcast of any service on any worker. The channels of services are numbers.
local take_publication = P.take_broadcast
function P.take_broadcast(id, data)
  if not tonumber(id) then return take_publication(id, data) end
  local subscribers = {}
  for _, client in pairs(channels[tonumber(id)] or {}) do subscribers[#subscribers + 1] = client end
  for _, client in ipairs(subscribers) do
    if not client:send(data, "binary") and client:is_open() then
      -- This callback has reached its output limit. A pause lets the worker send the output.
      tide.sleep(0)
      client:send(data, "binary")
    end
  end
end

-- cws --------------------------------------------------------------------------------------------------------------

local cws, sockets, events = {}, {}, {}
local last_handler, first_event, last_event, waker = 0, 1, 0, nil

local function post(socket, name, ...)
  last_event = last_event + 1
  events[last_event] = { socket, name, ... }
  if waker then waker:cancel() end
end

-- Reads what the server of a connection sends, at the pace of `eventLoop`.
local function receive(socket)
  while sockets[socket.handler] do
    while last_event - first_event >= EVENTS_MAX do tide.sleep(TICK) end
    local data, kind, code, reason = socket.connection:receive()
    if data then
      post(socket, "onmessage", data, kind == "text" and TEXT or BINARY)
    elseif kind == "closed" then
      return post(socket, "onclose", reason ~= "" and reason or nil)
    elseif kind ~= "timeout" then
      return post(socket, "onerror", kind)
    end
  end
end

local function close(socket)
  if not sockets[socket.handler] then return end
  sockets[socket.handler] = nil
  socket.connection:close()
end
local Connection = { __index = { close = close } }

-- The settings of the service map the origins of URLs to pools: `"wss://127.0.0.1:5083" = "NAME"` means the servers of [pool.NAME].
function cws:new(url, callbacks)
  if type(url) ~= "string" or type(callbacks) ~= "table" then return nil, "usage: cws:new(url, callbacks)" end
  local origin, path = G.string.match(url, "^(wss?://[^/?]+)(.*)$")
  local pool = origin and settings[origin]
  if not pool then return nil, "no pool for " .. url .. ": `settings` of [lua." .. tide.app .. "] has no entry for its origin" end
  if path == "" then path = "/" end
  local connection, err = tide.websocket.connect(pool, { path = path })
  if not connection then return nil, err end
  last_handler = last_handler + 1
  local socket = setmetatable({ handler = last_handler, connection = connection, callbacks = callbacks }, Connection)
  sockets[last_handler] = socket
  post(socket, "onopen")
  local job
  job, err = tide.spawn(receive, socket)
  if not job then
    close(socket)
    return nil, err
  end
  return socket
end
function cws:send(handler, data, opcode)
  local socket = sockets[handler]
  if not socket then return false, "the connection is closed" end
  if type(data) ~= "string" then return false, "the message must be a string" end
  return outcome(socket.connection:send(data, opcode == BINARY and "binary" or "text"))
end
function cws:close(handler)
  local socket = sockets[handler]
  if socket then close(socket) end
end

local function call(event)
  local socket, name = event[1], event[2]
  if name == "onclose" or name == "onerror" then close(socket) end
  local callback = socket.callbacks[name]
  if not callback then return end
  local ok, err = pcall(callback, socket.handler, event[3], event[4])
  if not ok then tide.log.error("cws: " .. name .. ": " .. tostring(err)) end
end
-- Handles the events so far; waits for one if there is none.
function cws:eventLoop()
  if first_event > last_event then
    waker = tide.timer.after(TICK, function() end)
    if waker then tide.wait(waker) else tide.sleep(TICK) end
    waker = nil
  end
  for _ = first_event, last_event do
    local event = events[first_event]
    events[first_event] = nil
    first_event = first_event + 1
    call(event)
  end
end

-- mqr, nap, time, murmur, pam_auth ---------------------------------------------------------------------------------

-- Queues by name. All services that list a queue of this name in `queues` share it. Otherwise, all instances of the service share it
-- with a dictionary `mqr` in `shared`; without one, each instance has its own.
local mqr, own_queues = {}, {}
local dictionary = rawget(P.dictionaries, "mqr")
local queue = {}
local Queue = { __index = queue }
function mqr.create(name)
  if type(name) ~= "string" then return nil, "usage: mqr.create(name)" end
  local common = rawget(P.queues, name)
  if common then return setmetatable({ common = common }, Queue) end
  own_queues[name] = own_queues[name] or {}
  return setmetatable({ name = name, messages = own_queues[name] }, Queue)
end
function queue:post(message)
  local data, err = cbor_encode(message)
  if not data then return false, err end
  if self.common then return outcome(self.common:push(data)) end
  if dictionary then return outcome(dictionary:rpush(self.name, data)) end
  if #self.messages >= MESSAGES_MAX then return false, "the queue is full" end
  self.messages[#self.messages + 1] = data
  return true
end
function queue:try_recv()
  local data
  if self.common then
    data = self.common:pop()
  elseif dictionary then
    data = dictionary:lpop(self.name)
  else
    data = remove(self.messages, 1)
  end
  if data == nil then return nil end
  return without_nulls(cbor_decode(data))
end

local nap = {}
local function naps(unit)
  return function(_, count)
    if type(count) ~= "number" then error("the duration of a nap must be a number", 2) end
    tide.sleep(count * unit)
  end
end
local Nap = { __index = { sleep = naps(1), usleep = naps(1e-6), nsleep = naps(1e-9) } }
function nap.new() return setmetatable({}, Nap) end

local time = {}
function time.now() return floor(tide.now() * 1000) end

-- The hashes of LAppS, which are those of the C++ library: of a number, the number itself.
local murmur = {}
function murmur.hashstr(value)
  if type(value) == "number" then return G.string.format("%016x", value) end
  return native.murmur(P.string_argument("murmur.hashstr", 1, value))
end
function murmur.hashnum(value)
  if type(value) == "number" then return value end
  return tonumber(native.murmur(P.string_argument("murmur.hashnum", 1, value)), 16)
end

local pam_auth = {}
function pam_auth.login() return false, "pam_auth is not supported: use `auth` of the route" end
setmetatable(pam_auth, { __index = pam_auth })

-- Services ---------------------------------------------------------------------------------------------------------

local calls = 0
-- Loops of services call this repeatedly, so it lets others run from time to time.
local function must_stop()
  calls = calls + 1
  if calls % CALLS == 0 then tide.sleep(0) end
  return tide.premature() ~= false
end
function queue:recv()
  while true do
    local message = self:try_recv()
    if message ~= nil or tide.premature() then return message end
    local common = self.common
    if common then
      local data = common:pop(PATIENCE)
      if data ~= nil then return without_nulls(cbor_decode(data)) end
    else
      tide.sleep(TICK)
    end
  end
end

-- Services assign globals at any time; also those of LAppS, which have common names such as `time`.
P.seal = P.sealing_names()

local modules = { nljson = nljson, ws = ws, bcast = bcast, cws = cws, mqr = mqr, nap = nap, time = time, murmur = murmur,
  pam_auth = pam_auth }
for name, module in pairs(modules) do
  G[name] = module
  P.loaded[name] = module
end
G.must_stop, G.instance_id = must_stop, tide.worker.id

-- A message of the LAppS protocol and its type; nil for other data.
local function request_of(data)
  local message = cbor_decode(data)
  if type(message) ~= "table" or message.lapps ~= 1 or type(message.method) ~= "string" then return nil end
  without_nulls(message)
  local has_params = message.params ~= nil
  if message.cid ~= nil and message.cid ~= 0 then return message, has_params and NOTICE_WITH_PARAMS or NOTICE end
  return message, has_params and REQUEST_WITH_PARAMS or REQUEST
end

-- LAppS stops a service whose `onMessage` returns false. Here only the client is closed.
local function check(client, result)
  if result == false then client:close(1011, "the service has failed") end
end

local function reactive(service, file)
  for _, name in ipairs { "onStart", "onMessage", "onDisconnect", "onShutdown" } do
    if type(service[name]) ~= "function" then error(file .. ": the service lacks the function '" .. name .. "'", 0) end
  end
  return {
    on_start = function() service.onStart() end,
    on_message = function(client, data, kind)
      if is_raw then
        return check(client, service.onMessage(handler_of(client), kind == "text" and TEXT or BINARY, data))
      end
      local message, what
      if kind == "binary" then message, what = request_of(data) end
      if not message then return client:close(1003, "not a message of the LAppS protocol") end
      check(client, service.onMessage(handler_of(client), what, message))
    end,
    on_close = function(client)
      local handler = handler_of(client)
      for id in pairs(client:state().channels or {}) do unsubscribe(id, handler) end
      service.onDisconnect(handler)
    end,
    on_handover = function(client, state)
      for id in pairs(state.channels or {}) do subscribe(id, client) end
    end,
    on_stop = function() service.onShutdown() end,
  }
end

-- Runs an instance, and restarts it after a failure.
local function run(service)
  local pause = 1
  while not tide.premature() do
    local job, err = tide.spawn(function()
      service.init()
      service.run()
      return true
    end)
    local has_ended
    if job then has_ended, err = tide.wait(job) end
    if has_ended or err == "premature" then return end
    tide.log.error("the instance has failed; it will be restarted in " .. pause .. " s")
    tide.sleep(pause)
    pause = pause * 2 > PAUSE_MAX and PAUSE_MAX or pause * 2
  end
end

local function standalone(service, file)
  for _, name in ipairs { "init", "run" } do
    if type(service[name]) ~= "function" then error(file .. ": the service lacks the function '" .. name .. "'", 0) end
  end
  return {
    on_start = function()
      if tide.worker.id < (settings.instances or 1) then tide.spawn(run, service) end
    end,
  }
end

-- The handlers of a service: the table that the script returns, or assigns to the global with the name of the application.
function P.adapt(chunk, file)
  local found = chunk()
  local service = type(found) == "table" and found or G[tide.app]
  if type(service) ~= "table" then
    error(file .. ": the script must return the table of a service, or assign it to the global '" .. tide.app .. "'", 0)
  end
  if service.run or settings.standalone then return standalone(service, file) end
  return reactive(service, file)
end

native.declare(13)

return P
