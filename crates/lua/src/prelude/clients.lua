-- WebSocket clients.
local native, P = ...

local type, tostring, tonumber, error, setmetatable = type, tostring, tonumber, error, setmetatable
local find, send, close, is_open = native.find, native.send, native.close, native.is_open
local own_worker = native.fact("worker")
local wrong = P.wrong

-- By index. A client holds its index, its generation, and its state once a script has asked for it.
local clients = {}

local client = {}
function client:send(data, kind)
  if type(data) ~= "string" then
    if type(data) ~= "number" then wrong("send", 1, "string", data) end
    data = tostring(data)
  end
  if kind ~= nil and kind ~= "text" and kind ~= "binary" then
    error("bad argument #2 to 'send' (\"text\" or \"binary\" expected)", 2)
  end
  return send(self[1], self[2], data, kind ~= "binary")
end
function client:close(code, reason)
  if code == nil then code = 1000 end
  if type(code) ~= "number" then wrong("close", 1, "number", code) end
  if reason == nil then reason = "" end
  if type(reason) ~= "string" then wrong("close", 2, "string", reason) end
  return close(self[1], self[2], code, reason)
end
function client:id() return own_worker .. "-" .. self[1] .. "-" .. self[2] end
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

-- The client with this id, if it is on this worker.
function P.tide.client(id)
  if type(id) ~= "string" then wrong("tide.client", 1, "string", id) end
  local from, _, worker, index, generation = find(id, "^(%d+)%-(%d+)%-(%d+)$", 1, false, true)
  if not from then return nil, "this is no id of a client" end
  if tonumber(worker) ~= own_worker then return nil, "the client is on another worker" end
  local found = clients[tonumber(index)]
  if found and found[2] == tonumber(generation) then return found end
  return nil, "the connection is closed"
end

P.clients = clients
P.new_client = function(index, generation)
  local created = setmetatable({ index, generation }, Client)
  clients[index] = created
  return created
end
return P
