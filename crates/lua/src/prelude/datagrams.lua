-- Datagrams: sockets, each of which talks to one address.
local native, P = ...

local type, tostring, setmetatable = type, tostring, setmetatable
local udp_open, udp_wait, udp_send, udp_take, udp_close =
  native.udp_open, native.udp_wait, native.udp_send, native.udp_take, native.udp_close
local wrong = P.wrong

-- The fields of an open socket.
local INDEX, GENERATION = 1, 2
-- How long `receive` waits by default.
local SECONDS = 60

local datagrams = {}
local Datagrams = { __index = datagrams, __metatable = "datagram socket" }

-- Fills the table of a socket, or returns nil and an error.
local function open(self, host, port)
  local address, err = P.address_of(host)
  if not address then return nil, err end
  local index, generation = udp_open(address, port)
  if not index then return nil, generation end
  local ok
  ok, err = udp_wait(index, generation, false, SECONDS)
  -- The worker may have refused the socket since.
  if ok then ok, err = udp_wait(index, generation, false, SECONDS) end
  if not ok then
    udp_close(index, generation)
    return nil, err
  end
  -- Another coroutine may have opened the same table meanwhile: its socket would have no owner.
  if self[INDEX] then udp_close(self[INDEX], self[GENERATION]) end
  self[INDEX], self[GENERATION] = index, generation
  return true
end

-- Sends one datagram.
function datagrams:send(data)
  if type(data) == "number" then data = tostring(data) end
  if type(data) ~= "string" then wrong("send", 1, "string", data) end
  if not self[INDEX] then return nil, "closed" end
  local ok, err = udp_send(self[INDEX], self[GENERATION], data)
  if not ok then return nil, err end
  return true
end

-- The next datagram.
function datagrams:receive(seconds)
  if seconds == nil then seconds = SECONDS end
  if type(seconds) ~= "number" then wrong("receive", 1, "number", seconds) end
  local ends = native.elapsed() + seconds
  while self[INDEX] do
    local data, err = udp_take(self[INDEX], self[GENERATION])
    if data then return data end
    if err then return nil, err end
    local left = ends - native.elapsed()
    if not (left > 0) then return nil, "timeout" end
    local ok
    ok, err = udp_wait(self[INDEX], self[GENERATION], true, left)
    if not ok then return nil, err end
  end
  return nil, "closed"
end

function datagrams:close()
  if not self[INDEX] then return nil, "closed" end
  udp_close(self[INDEX], self[GENERATION])
  self[INDEX], self[GENERATION] = nil, nil
  return true
end

-- tide.udp --------------------------------------------------------------------------------------------------------

local udp = {}

function udp.connect(host, port)
  if type(host) ~= "string" then wrong("connect", 1, "string", host) end
  if type(port) ~= "number" or not (port >= 1 and port <= 65535) or port % 1 ~= 0 then
    wrong("connect", 2, "port number", port)
  end
  local self = setmetatable({}, Datagrams)
  local ok, err = open(self, host, port)
  if not ok then return nil, err end
  return self
end

P.datagram_methods, P.open_datagrams = datagrams, open
P.tide.udp = P.sealed("tide.udp", udp)

return P
