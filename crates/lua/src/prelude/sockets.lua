-- Sockets: connections to servers of pools.
local native, P = ...

local type, error, tostring, setmetatable = type, error, tostring, setmetatable
local sub, byte, concat = string.sub, string.byte, table.concat
local sock_wait, sock_send, sock_take = native.sock_wait, native.sock_send, native.sock_take
local sock_close, sock_keep, sock_reuse = native.sock_close, native.sock_keep, native.sock_reuse
local wrong, pools = P.wrong, P.pools
-- Tests replace this function.
P.sock_open = native.sock_open

-- The fields of a socket; the index and the generation are set only while it is connected.
local INDEX, GENERATION, KEY, REUSES, CONNECT, SEND, READ = 1, 2, 3, 4, 5, 6, 7
-- The default timeout in seconds.
local SECONDS = 60
-- The defaults of `setkeepalive`: milliseconds, and connections of a name.
local IDLE_MILLIS, IDLE_MAX = 60000, 30
-- What `sock_take` reads.
local LINE, BYTES, ALL, ANY, UNTIL = 0, 1, 2, 3, 4
local CR = byte("\r")

local function seconds_of(name, position, millis)
  if type(millis) ~= "number" then wrong(name, position, "number", millis) end
  return millis > 0 and millis / 1000 or SECONDS
end

local socket = {}
local Socket = { __index = socket, __metatable = "socket" }

local function forget(self)
  self[INDEX], self[GENERATION] = nil, nil
end

-- Connects to a server of a pool, or takes a connection that was kept under this key. `protocol`: the protocol of the socket.
local function connect(self, pool, key, protocol)
  if self[INDEX] then self:close() end
  local index, generation, reuses = sock_reuse(key)
  if index then
    self[INDEX], self[GENERATION], self[KEY], self[REUSES] = index, generation, key, reuses
    return true
  end
  index, generation = P.sock_open(pool, protocol)
  if not index then return nil, generation end
  local ok, err = sock_wait(index, generation, false, self[CONNECT])
  -- The connection attempt may have failed since.
  if ok then ok, err = sock_wait(index, generation, false, self[CONNECT]) end
  if not ok then
    sock_close(index, generation)
    return nil, err
  end
  -- Another coroutine may have connected the same socket meanwhile. Its connection would have no owner, and would be kept under
  -- the key of this one, which may be that of another pool.
  if self[INDEX] then sock_close(self[INDEX], self[GENERATION]) end
  self[INDEX], self[GENERATION], self[KEY], self[REUSES] = index, generation, key, 0
  return true
end
P.connect_socket = connect

-- `options.pool`: the name under which `setkeepalive` keeps the connection.
function socket:connect(name, options)
  local pool = pools[name]
  if not pool then
    error("the pool '" .. tostring(name) .. "' is not among `pools` of [lua." .. P.tide.app .. "]", 2)
  end
  if options ~= nil and type(options) ~= "table" then wrong("connect", 2, "table", options) end
  local key = options and options.pool or name
  if type(key) ~= "string" then error("bad option 'pool' of 'connect' (string expected, got " .. type(key) .. ")", 2) end
  return connect(self, pool, key, "tcp")
end

-- The bytes of a string, a number, or a list of them.
local function bytes_of(data)
  local kind = type(data)
  if kind == "string" then return data end
  if kind == "number" then return tostring(data) end
  if kind ~= "table" then wrong("send", 1, "string", data) end
  local parts = {}
  for at = 1, #data do parts[at] = bytes_of(data[at]) end
  return concat(parts)
end

function socket:send(data)
  data = bytes_of(data)
  if not self[INDEX] then return nil, "closed" end
  local ok, err = sock_wait(self[INDEX], self[GENERATION], false, self[SEND])
  if ok then ok, err = sock_send(self[INDEX], self[GENERATION], data) end
  if not ok then return nil, err end
  return #data
end

-- Reads a portion. Returns nil, an error and what has arrived of it, if it does not arrive completely.
local function read(self, kind, argument)
  if not self[INDEX] then return nil, "closed", "" end
  local parts, count = {}, 0
  while true do
    local data, is_complete = sock_take(self[INDEX], self[GENERATION], kind, argument)
    if not data then return nil, is_complete, concat(parts) end
    if data ~= "" then
      count = count + 1
      parts[count] = data
      if kind == BYTES or kind == LINE and argument then argument = argument - #data end
    end
    if is_complete then return count == 1 and parts[1] or concat(parts) end
    if data == "" then
      local ok, err = sock_wait(self[INDEX], self[GENERATION], true, self[READ])
      if not ok then return nil, err, concat(parts) end
      -- Another coroutine may have closed the socket.
      if not self[INDEX] then return nil, "closed", concat(parts) end
    end
  end
end

local function without_cr(line)
  if line and byte(line, #line) == CR then return sub(line, 1, -2) end
  return line
end

-- A line of up to `most` bytes, without its end. A longer one is the error "line too long".
function P.receive_line(self, most)
  local line, err, partial = read(self, LINE, most)
  if not line then return nil, err, partial end
  return without_cr(line)
end

-- Whether a coroutine waits for a socket.
function P.is_awaited(self)
  return self[INDEX] ~= nil and native.sock_is_awaited(self[INDEX], self[GENERATION])
end

-- "*l" (a line, without its end), "*a" (everything up to the end of the connection) or a number of bytes.
function socket:receive(what)
  if what == nil or what == "*l" or what == "l" then
    local line, err, partial = read(self, LINE)
    if not line then return nil, err, partial end
    return without_cr(line)
  elseif what == "*a" or what == "a" then
    local data, err, partial = read(self, ALL)
    if data or err ~= "closed" then return data, err, partial end
    return partial
  elseif type(what) == "number" and what >= 0 then
    if what < 1 then return "" end
    return read(self, BYTES, what - what % 1)
  end
  error("bad argument #1 to 'receive' (\"*l\", \"*a\" or a number of bytes expected, got " .. tostring(what) .. ")", 2)
end

-- What has arrived: at least one byte, up to `most`.
function socket:receiveany(most)
  if type(most) ~= "number" or most < 1 then wrong("receiveany", 1, "number of bytes", most) end
  return read(self, ANY, most - most % 1)
end

-- A function that reads up to `pattern` each time. The result omits `pattern`, unless `options.inclusive` is set.
function socket:receiveuntil(pattern, options)
  if type(pattern) ~= "string" or pattern == "" then wrong("receiveuntil", 1, "string", pattern) end
  if options ~= nil and type(options) ~= "table" then wrong("receiveuntil", 2, "table", options) end
  local ending = options and options.inclusive and pattern or ""
  return function()
    local data, err, partial = read(self, UNTIL, pattern)
    if not data then return nil, err, partial end
    return data .. ending
  end
end

function socket:settimeout(millis)
  local seconds = seconds_of("settimeout", 1, millis)
  self[CONNECT], self[SEND], self[READ] = seconds, seconds, seconds
end

function socket:settimeouts(connect, send, receive)
  self[CONNECT] = seconds_of("settimeouts", 1, connect)
  self[SEND] = seconds_of("settimeouts", 2, send)
  self[READ] = seconds_of("settimeouts", 3, receive)
end

-- Keeps the connection for a later `connect`, for at most `millis`, and at most `size` connections of its name.
function socket:setkeepalive(millis, size)
  if millis == nil then millis = IDLE_MILLIS end
  if size == nil then size = IDLE_MAX end
  local seconds = seconds_of("setkeepalive", 1, millis)
  if type(size) ~= "number" then wrong("setkeepalive", 2, "number", size) end
  if not self[INDEX] then return nil, "closed" end
  local index, generation = self[INDEX], self[GENERATION]
  forget(self)
  return sock_keep(index, generation, self[KEY], seconds, size)
end

function socket:getreusedtimes()
  if not self[INDEX] then return nil, "closed" end
  return self[REUSES]
end

function socket:close()
  if not self[INDEX] then return nil, "closed" end
  sock_close(self[INDEX], self[GENERATION])
  forget(self)
  return true
end

-- The fields of a socket, and its methods, for layers.
function P.socket_fields(index, generation)
  return { index, generation, [CONNECT] = SECONDS, [SEND] = SECONDS, [READ] = SECONDS }
end
P.socket_methods, P.bytes_of = socket, bytes_of
function P.new_socket(index, generation) return setmetatable(P.socket_fields(index, generation), Socket) end
function P.tide.tcp() return P.new_socket() end

return P
