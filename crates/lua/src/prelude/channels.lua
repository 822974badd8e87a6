-- Channels of an application: WebSocket clients subscribe, and a publication reaches the subscribers in all workers.
local native, P = ...

local type, error, next, pairs, sub, byte = type, error, next, pairs, string.sub, string.byte
local publish, send, is_open, sleep = native.publish, native.send, native.is_open, native.sleep
local wrong, message_of = P.wrong, P.message_of

-- Maximum number of bytes of a channel, and of channels of a client.
local CHANNEL_BYTES_MAX, SUBSCRIPTIONS_MAX = 255, 1000
-- Messages that are sent between two pauses: the callback keeps to its budget, and other connections are served.
local SENDS_MAX = 1000
-- The number of the handler that takes broadcasts.
local BROADCAST = 13
local TEXT = byte("t")
-- What the names of this application's channels begin with.
local prefix = "t:" .. native.fact("app") .. ":"

-- Subscribers by channel and by the index of the client. A client holds its channels, and their number.
local channels = {}
local CHANNELS, COUNT = 4, 5

local function check(method, channel)
  if type(channel) ~= "string" then wrong(method, 1, "string", channel) end
  if channel == "" or #channel > CHANNEL_BYTES_MAX then
    error("bad argument #1 to '" .. method .. "' (a channel has 1 to 255 bytes)", 3)
  end
end

local function remove(client, channel)
  local subscribers = channels[channel]
  if not subscribers then return end
  if subscribers[client[1]] == client then subscribers[client[1]] = nil end
  if next(subscribers) == nil then channels[channel] = nil end
end

local client = P.client_methods

function client:subscribe(channel)
  check("subscribe", channel)
  if not is_open(self[1], self[2]) then return nil, "the connection is closed" end
  local own = self[CHANNELS]
  if not own then
    own = {}
    self[CHANNELS], self[COUNT] = own, 0
  end
  if own[channel] then return true end
  if self[COUNT] >= SUBSCRIPTIONS_MAX then return nil, "the client has too many subscriptions" end
  own[channel], self[COUNT] = true, self[COUNT] + 1
  local subscribers = channels[channel]
  if not subscribers then
    native.declare(BROADCAST)
    subscribers = {}
    channels[channel] = subscribers
  end
  subscribers[self[1]] = self
  return true
end

function client:unsubscribe(channel)
  check("unsubscribe", channel)
  local own = self[CHANNELS]
  if not own or not own[channel] then return nil, "not subscribed" end
  own[channel], self[COUNT] = nil, self[COUNT] - 1
  remove(self, channel)
  return true
end

function client:publish(channel, data, kind)
  check("publish", channel)
  local bytes, is_text = message_of("publish", 2, data, kind)
  return publish(channel, bytes, is_text, self:id())
end

function P.tide.publish(channel, data, kind)
  check("tide.publish", channel)
  local bytes, is_text = message_of("tide.publish", 2, data, kind)
  return publish(channel, bytes, is_text)
end

-- A client has left.
function P.end_subscriptions(self)
  local own = self[CHANNELS]
  if not own then return end
  self[CHANNELS] = nil
  for channel in pairs(own) do remove(self, channel) end
end

-- Delivers a publication of any worker.
function P.take_broadcast(name, data)
  if sub(name, 1, #prefix) ~= prefix then return end
  local channel = sub(name, #prefix + 1)
  local subscribers = channels[channel]
  if not subscribers then return end
  local is_text, length = byte(data, 1) == TEXT, byte(data, 2)
  local sender = length > 0 and P.tide.client(sub(data, 3, length + 2))
  local text = sub(data, length + 3)
  local list, count = {}, 0
  for _, one in pairs(subscribers) do
    count = count + 1
    list[count] = one
  end
  for at = 1, count do
    local one = list[at]
    local index, generation = one[1], one[2]
    if one ~= sender and subscribers[index] == one then
      local ok = send(index, generation, text, is_text)
      if not ok and not is_open(index, generation) then
        remove(one, channel)
      elseif not ok then
        -- This callback has reached its output limit. A pause lets the worker send the output.
        sleep(0)
        send(index, generation, text, is_text)
      end
    end
    if at % SENDS_MAX == 0 then sleep(0) end
  end
end

return P
