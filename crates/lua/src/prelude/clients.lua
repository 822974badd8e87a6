-- WebSocket clients.
local native, P = ...

local type, tostring, tonumber, error, setmetatable = type, tostring, tonumber, error, setmetatable
local find, send, close, is_open = native.find, native.send, native.close, native.is_open
local send_remote, close_remote, queued = native.send_remote, native.close_remote, native.queued
local own_worker, own_life, workers = native.fact("worker"), native.fact("life"), native.fact("workers")
local wrong = P.wrong

-- Clients by index. A client holds its index, its generation, its state once a script has called `state`, and its subscriptions
-- (`channels.lua`).
local clients = {}

-- The data and kind of a message, which are the arguments `at` and `at + 1` of a method.
local function message_of(method, at, data, kind)
  if type(data) ~= "string" then
    if type(data) ~= "number" then wrong(method, at, "string", data) end
    data = tostring(data)
  end
  if kind ~= nil and kind ~= "text" and kind ~= "binary" then
    error("bad argument #" .. at + 1 .. " to '" .. method .. "' (\"text\" or \"binary\" expected)", 3)
  end
  return data, kind ~= "binary"
end

-- The code and reason of a Close frame.
local function ending(code, reason)
  if code == nil then code = 1000 end
  if type(code) ~= "number" then wrong("close", 1, "number", code) end
  if reason == nil then reason = "" end
  if type(reason) ~= "string" then wrong("close", 2, "string", reason) end
  return code, reason
end

local client = {}
function client:send(data, kind)
  local bytes, is_text = message_of("send", 1, data, kind)
  return send(self[1], self[2], bytes, is_text)
end
function client:close(code, reason)
  code, reason = ending(code, reason)
  return close(self[1], self[2], code, reason)
end
function client:id() return own_worker .. "-" .. own_life .. "-" .. self[1] .. "-" .. self[2] end
function client:queued() return queued(self[1], self[2]) end
function client:is_open() return is_open(self[1], self[2]) end
function client:state()
  local state = self[3]
  if not state then
    state = {}
    self[3] = state
  end
  return state
end

local Client = { __index = client, __metatable = "client" }

-- A client of another VM, of another worker or after a reload: its index, its generation, the worker and the VM of its id.
local remote = {}
function remote:send(data, kind)
  local bytes, is_text = message_of("send", 1, data, kind)
  return send_remote(self[1], self[2], bytes, is_text, self[3], self[4])
end
function remote:close(code, reason)
  code, reason = ending(code, reason)
  return close_remote(self[1], self[2], code, reason, self[3], self[4])
end
function remote:id() return self[3] .. "-" .. self[4] .. "-" .. self[1] .. "-" .. self[2] end
local RemoteClient = { __index = remote, __metatable = "client of another VM" }

-- The client with this id.
function P.tide.client(id)
  if type(id) ~= "string" then wrong("tide.client", 1, "string", id) end
  local from, _, worker, life, index, generation = find(id, "^(%d+)%-(%d+)%-(%d+)%-(%d+)$", 1, false, true)
  if not from then return nil, "this is not the id of a client" end
  worker, life, index, generation = tonumber(worker), tonumber(life), tonumber(index), tonumber(generation)
  if worker >= workers then return nil, "this is not the id of a client" end
  if worker ~= own_worker then return setmetatable({ index, generation, worker, life }, RemoteClient) end
  local found = clients[index]
  if life == own_life and found and found[2] == generation then return found end
  -- The VM before or after a reload may have the client.
  if native.has_other_vms() then return setmetatable({ index, generation, worker, life }, RemoteClient) end
  return nil, "the connection is closed"
end

P.clients, P.client_methods, P.message_of, P.ending = clients, client, message_of, ending
P.new_client = function(index, generation)
  local created = setmetatable({ index, generation }, Client)
  clients[index] = created
  return created
end
return P
