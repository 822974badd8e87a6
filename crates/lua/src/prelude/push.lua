-- Push hubs.
local native, P = ...

local type, tostring, error, pairs, setmetatable = type, tostring, error, pairs, setmetatable
local push_call = native.push_call
local encode, decode = native.json_encode, native.json_decode
local wrong = P.wrong

-- Calls a method of a hub's server API.
local function call(hub, method, arguments)
  local text, err = encode(arguments)
  if not text then return nil, err end
  local ok, reply = push_call(hub[1], method, text)
  if not ok then return nil, reply end
  reply = decode(reply)
  if reply.error then return nil, reply.error.message, reply.error.code end
  return reply.result
end

local function check(method, position, expected, value)
  if type(value) ~= expected then
    error("bad argument #" .. position .. " to '" .. method .. "' (" .. expected .. " expected, got " ..
      (value == nil and "no value" or type(value)) .. ")", 3)
  end
end

-- Adds `options` to arguments.
local function with(options, method, position, arguments)
  if options == nil then return arguments end
  if type(options) ~= "table" then
    error("bad argument #" .. position .. " to '" .. method .. "' (table expected, got " .. type(options) .. ")", 3)
  end
  for name, value in pairs(options) do
    if arguments[name] == nil then arguments[name] = value end
  end
  return arguments
end

local hub = {}

function hub:publish(channel, data, options)
  check("publish", 1, "string", channel)
  if data == nil then wrong("publish", 2, "value", data) end
  return call(self, "publish", with(options, "publish", 3, { channel = channel, data = data }))
end

function hub:broadcast(channels, data, options)
  check("broadcast", 1, "table", channels)
  if data == nil then wrong("broadcast", 2, "value", data) end
  return call(self, "broadcast", with(options, "broadcast", 3, { channels = P.json.array(channels), data = data }))
end

function hub:history(channel, options)
  check("history", 1, "string", channel)
  return call(self, "history", with(options, "history", 2, { channel = channel }))
end

for _, method in pairs { "presence", "presence_stats", "history_remove" } do
  hub[method] = function(self, channel)
    check(method, 1, "string", channel)
    return call(self, method, { channel = channel })
  end
end

function hub:channels(pattern)
  if pattern ~= nil then check("channels", 1, "string", pattern) end
  return call(self, "channels", { pattern = pattern or "" })
end

function hub:info() return call(self, "info", { pattern = "" }) end

for _, method in pairs { "subscribe", "unsubscribe", "disconnect", "refresh" } do
  hub[method] = function(self, arguments)
    check(method, 1, "table", arguments)
    return call(self, method, arguments)
  end
end

local Hub = { __index = hub, __metatable = "hub", __newindex = function()
  error("a hub has no fields", 2)
end }

local hubs = {}
for _, name in pairs(native.push_names()) do hubs[name] = setmetatable({ name }, Hub) end
setmetatable(hubs, { __index = function(_, name)
  error("there is no hub '" .. tostring(name) .. "': define [push." .. tostring(name) .. "]", 2)
end })
P.hubs, P.Hub = hubs, Hub

-- Decisions about events (on_push) ----------------------------------------------------------------------------------

local PERMISSION_DENIED = 103
-- The members of the protocol, of which each is a decision by itself.
local WHOLE = { "error", "disconnect", "result" }

local function is_whole(granted)
  for _, name in pairs(WHOLE) do
    if granted[name] ~= nil then return true end
  end
  return false
end

-- The decision that the results of on_push mean.
local function decision_of(kind, granted, why)
  if granted == true then return { result = {} } end
  if type(granted) == "table" then
    if is_whole(granted) then return granted end
    -- The protocol has whole seconds.
    if type(granted.expire_at) == "number" then granted.expire_at = P.G.math.floor(granted.expire_at) end
    return { result = granted }
  end
  if granted ~= nil and granted ~= false then
    error("on_push must return true, a table, or nil and the reason, it returned: " .. type(granted), 0)
  end
  -- What is not renewed ends, without an error.
  if kind == "refresh" or kind == "sub_refresh" then return {} end
  if type(why) == "table" then return { error = why } end
  return { error = { code = PERMISSION_DENIED, message = why and tostring(why) or "permission denied" } }
end

function P.decide(index, generation, kind, granted, why)
  local text, err = encode(decision_of(kind, granted, why))
  if not text then error("the decision of on_push cannot be encoded: " .. tostring(err), 0) end
  local ok
  ok, err = native.decide(index, generation, text)
  if not ok then error(err, 0) end
end

-- Adds the address and the header fields of the client's first request to an event.
function P.add_fields(event, fields)
  local headers = {}
  for name, value in P.G.string.gmatch(fields, "([^:\n]+): ([^\n]*)\n") do P.add(headers, name:lower(), value) end
  event.address, headers["x-forwarded-for"] = headers["x-forwarded-for"], nil
  event.headers = headers
end

P.tide.push = P.sealed("tide.push", hubs)

return P
