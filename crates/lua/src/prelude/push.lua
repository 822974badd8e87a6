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
P.tide.push = P.sealed("tide.push", hubs)

return P
