-- A client for Redis and for servers that speak its protocol (RESP2, RESP3), over sockets.
local native, P = ...

local type, error, tostring, tonumber, pairs, next, select, getmetatable, setmetatable =
  type, error, tostring, tonumber, pairs, next, select, getmetatable, setmetatable
local sub, upper, lower, format, concat = string.sub, string.upper, string.lower, string.format, table.concat
local wrong, pools, tcp, connect_socket, null = P.wrong, P.pools, P.tide.tcp, P.connect_socket, P.tide.json.null
local receive_line, is_awaited = P.receive_line, P.is_awaited

local OPTIONS = { timeout = "number", protocol = "number", database = "number", user = "string", password = "string",
  reply_max = "number" }
local NAMES = "timeout, protocol, database, user, password, reply_max"
local SECONDS = 60
-- The default of `reply_max`: what a server sends must not use up the memory of the VM.
local REPLY_BYTES = P.G.math.min(16 * 1024 * 1024, P.G.math.floor(native.fact("memory_max") / 8))
-- What an element and a list take of the room of a reply, in addition to their bytes.
local ELEMENT_BYTES, LIST_BYTES = 16, 40
-- How deep replies are nested, and how many push messages wait for `read`: they may also be as large as one reply together.
local DEPTH_MAX, PUSHES_MAX = 32, 1024
-- The defaults of `keep`: seconds, and connections of a kind.
local IDLE_SECONDS, IDLE_MAX = 60, 30
-- The fields of a connection: its socket, whether a call is in progress, what keeps it from being kept, the push messages that wait,
-- how many bytes a reply may still have, and their number at its beginning; the subscriptions by kind; the version of the
-- protocol; the sizes of the push messages, and their sum.
local SOCKET, IS_BUSY, STATE, PUSHES, ROOM, ROOM_MAX, CHANNELS, PROTOCOL, SIZES, PUSHED = 1, 2, 3, 4, 5, 6, 7, 8, 9, 10
-- What was read: a value, an error of the server, a message that is no reply, or nothing, because the connection is unusable.
local VALUE, ERROR, PUSH, BROKEN = 1, 2, 3, 4

-- States that would reach the next user of a kept connection: until `EXEC`, `DISCARD` or `UNWATCH`; until `EXEC` or `DISCARD`; until
-- the end of the connection. A later one includes the earlier ones.
local WATCHING, IN_MULTI, LASTING = 1, 2, 3
-- The commands that begin them.
local STATES = { WATCH = WATCHING, MULTI = IN_MULTI }
for name in P.G.string.gmatch("SUBSCRIBE PSUBSCRIBE SSUBSCRIBE UNSUBSCRIBE PUNSUBSCRIBE SUNSUBSCRIBE MONITOR SELECT AUTH HELLO CLIENT " ..
  "RESET QUIT READONLY READWRITE ASKING PSYNC SYNC REPLCONF", "%a+") do STATES[name] = LASTING end
STATES["SCRIPT DEBUG"] = LASTING
-- The kind of the subscriptions that a command begins or ends. The server confirms each channel.
local BEGINS = { subscribe = 1, psubscribe = 2, ssubscribe = 3 }
local ENDS = { unsubscribe = 1, punsubscribe = 2, sunsubscribe = 3 }
-- The first elements of messages that are no replies.
local MESSAGES = { message = true, pmessage = true, smessage = true }

-- Errors of the server inside of values. No value of a server has this metatable.
local Failure = { __metatable = "redis error" }
local function new_failure(text) return setmetatable({ error = text }, Failure) end
local function is_failure(value) return type(value) == "table" and getmetatable(value) == Failure.__metatable end

local function broken(what) return BROKEN, "the reply is malformed, at " .. what end

local function length_of(text)
  local length = tonumber(text)
  if length and length >= -1 and length % 1 == 0 and length < 2 ^ 32 then return length end
end

-- Takes the bytes of a reply from its room.
local function take_room(self, bytes)
  self[ROOM] = self[ROOM] - bytes
  return self[ROOM] >= 0
end

local function read_bulk(self, text)
  local length = length_of(text)
  if not length then return broken("a length") end
  if length < 0 then return VALUE, nil end
  if not take_room(self, length) then return BROKEN, "reply too large" end
  local data, err = self[SOCKET]:receive(length)
  if not data then return BROKEN, err end
  local ending
  ending, err = self[SOCKET]:receive(2)
  if not ending then return BROKEN, err end
  if ending ~= "\r\n" then return broken("the end of a string") end
  return VALUE, data
end

local read_value

-- The elements of an array, or the keys and the values of a map.
local function read_elements(self, text, depth, is_map)
  local length = length_of(text)
  if not length then return broken("a length") end
  if length < 0 then return VALUE, nil end
  if depth >= DEPTH_MAX then return broken("a value nested too deeply") end
  if not take_room(self, LIST_BYTES + ELEMENT_BYTES * length * (is_map and 2 or 1)) then return BROKEN, "reply too large" end
  local elements = {}
  for at = 1, length do
    local kind, key, value
    kind, value = read_value(self, depth + 1)
    if kind == BROKEN then return kind, value end
    if kind == ERROR then value = new_failure(value) end
    if is_map then
      key = value
      kind, value = read_value(self, depth + 1)
      if kind == BROKEN then return kind, value end
      if kind == ERROR then value = new_failure(value) end
      if key == nil or key ~= key then return broken("a key") end
    else
      key = at
    end
    if value == nil then value = null end
    elements[key] = value
  end
  return VALUE, elements
end

local READERS = {
  ["+"] = function(_, text) return VALUE, text end,
  ["-"] = function(_, text) return ERROR, text end,
  [":"] = function(_, text)
    local number = tonumber(text)
    if not number then return broken("a number") end
    return VALUE, number
  end,
  ["$"] = read_bulk,
  ["*"] = function(self, text, depth) return read_elements(self, text, depth) end,
  ["~"] = function(self, text, depth) return read_elements(self, text, depth) end,
  ["%"] = function(self, text, depth) return read_elements(self, text, depth, true) end,
  ["_"] = function() return VALUE, nil end,
  [","] = function(_, text)
    local name = lower(text)
    if name == "inf" or name == "+inf" then return VALUE, 1 / 0 end
    if name == "-inf" then return VALUE, -1 / 0 end
    if name == "nan" or name == "-nan" then return VALUE, 0 / 0 end
    local number = tonumber(text)
    if not number then return broken("a number") end
    return VALUE, number
  end,
  ["#"] = function(_, text)
    if text == "t" or text == "f" then return VALUE, text == "t" end
    return broken("a boolean")
  end,
  -- A number that may exceed what Lua represents.
  ["("] = function(_, text) return VALUE, text end,
  ["!"] = function(self, text)
    local kind, data = read_bulk(self, text)
    if kind ~= VALUE then return kind, data end
    return ERROR, data or ""
  end,
  -- Text after its format: "txt:".
  ["="] = function(self, text)
    local kind, data = read_bulk(self, text)
    if kind ~= VALUE or not data then return kind, data end
    return VALUE, sub(data, 5)
  end,
  [">"] = function(self, text, depth)
    if depth > 0 then return broken("a message inside of a value") end
    local kind, data = read_elements(self, text, depth)
    if kind ~= VALUE then return kind, data end
    return PUSH, data
  end,
}

function read_value(self, depth)
  while true do
    local line, err, part = receive_line(self[SOCKET], self[ROOM])
    if err == "line too long" then return BROKEN, "reply too large" end
    if not line then return BROKEN, err, part == "" and err == "timeout" end
    take_room(self, #line)
    local first, text = sub(line, 1, 1), sub(line, 2)
    if first ~= "|" then
      local reader = READERS[first]
      if not reader then return broken("an unknown type") end
      return reader(self, text, depth)
    end
    -- Attributes describe the value that follows.
    local kind, what = read_elements(self, text, depth, true)
    if kind == BROKEN then return kind, what end
  end
end

-- Reads what comes next. A connection that lacks the rest of a reply is of no use, and is closed. `may_be_silent`: nothing has to
-- come.
local function read_next(self, may_be_silent)
  self[ROOM] = self[ROOM_MAX]
  local kind, value, is_silent = read_value(self, 0)
  if kind == BROKEN and not (may_be_silent and is_silent) then self[SOCKET]:close() end
  return kind, value
end

local function text_of(value, at)
  if type(value) == "string" then return value end
  if type(value) ~= "number" then
    error("bad argument #" .. at .. " of a Redis command (string or number expected, got " .. type(value) .. ")", 4)
  end
  -- Every integer up to 2^53 is exact.
  if value % 1 == 0 and value > -2 ^ 53 and value < 2 ^ 53 then return format("%.0f", value) end
  return format("%.17g", value)
end

-- Appends a command to a list of strings. Returns its name, and the number of its arguments.
local function add_command(parts, ...)
  local arguments = select("#", ...)
  if arguments == 0 then error("a Redis command needs a name", 3) end
  parts[#parts + 1] = "*" .. arguments .. "\r\n"
  for at = 1, arguments do
    local text = text_of(select(at, ...), at)
    parts[#parts + 1] = "$" .. #text .. "\r\n"
    parts[#parts + 1] = text
    parts[#parts + 1] = "\r\n"
  end
  local name = upper(text_of((...), 1))
  if name == "SCRIPT" and arguments > 1 and upper(text_of((select(2, ...)), 2)) == "DEBUG" then name = "SCRIPT DEBUG" end
  return name, arguments - 1
end

local function new_channels() return { {}, {}, {} } end

-- A command was sent: a state begins, whatever the reply is.
local function note_sent(self, name)
  local state = STATES[name]
  if state and state > (self[STATE] or 0) then self[STATE] = state end
end

-- A command has succeeded.
local function note_success(self, name, value)
  local state = self[STATE]
  if name == "EXEC" or name == "DISCARD" then
    if state ~= LASTING then self[STATE] = nil end
  elseif name == "UNWATCH" then
    if state == WATCHING then self[STATE] = nil end
  elseif name == "HELLO" then
    self[PROTOCOL] = type(value) == "table" and value.proto or 2
  elseif name == "RESET" then
    self[CHANNELS], self[PROTOCOL] = new_channels(), 2
  end
end

-- A subscription has ended, perhaps without a command.
local function note_end(self, value)
  local kind = type(value) == "table" and ENDS[value[1]]
  if kind and type(value[2]) == "string" then self[CHANNELS][kind][value[2]] = nil end
end

-- Keeps a message for `read`. Returns false if there are too many.
local function keep_push(self, value)
  note_end(self, value)
  local pushes, size = self[PUSHES], self[ROOM_MAX] - self[ROOM]
  if #pushes >= PUSHES_MAX or self[PUSHED] + size > self[ROOM_MAX] then
    self[SOCKET]:close()
    return false
  end
  -- A message without elements is nothing to read.
  if value == nil then return true end
  local at = #pushes + 1
  pushes[at], self[SIZES][at], self[PUSHED] = value, size, self[PUSHED] + size
  return true
end

-- How often the server confirms a command that begins or ends subscriptions.
local function confirmations(self, kind, arguments)
  if arguments > 0 then return arguments end
  -- The command ends all subscriptions of its kind. Without one, there is one confirmation.
  local count = 0
  for _ in pairs(self[CHANNELS][kind]) do count = count + 1 end
  return count > 0 and count or 1
end

-- Whether a value of RESP2 is a message of a subscription. RESP3 marks messages.
local function is_message(self, value)
  if self[PROTOCOL] == 3 or type(value) ~= "table" or not MESSAGES[value[1]] then return false end
  local channels = self[CHANNELS]
  return next(channels[1]) ~= nil or next(channels[2]) ~= nil or next(channels[3]) ~= nil
end

-- Reads the confirmations of the command `name`. Returns the last one.
local function read_confirmations(self, name, kind, arguments)
  local missing = confirmations(self, kind, arguments)
  while true do
    local found, value = read_next(self)
    -- In a transaction, the reply is "QUEUED".
    if found == ERROR or found == BROKEN or found == VALUE and type(value) ~= "table" then return found, value end
    if type(value) == "table" and value[1] == name then
      if BEGINS[name] and type(value[2]) == "string" then self[CHANNELS][kind][value[2]] = true end
      note_end(self, value)
      missing = missing - 1
      if missing == 0 then return VALUE, value end
    elseif not keep_push(self, value) then
      return BROKEN, "too many messages wait for 'read'"
    end
  end
end

-- Reads the reply to the command `name`.
local function read_reply(self, name, arguments)
  local lower_name = lower(name)
  local of_channels = BEGINS[lower_name] or ENDS[lower_name]
  if of_channels then return read_confirmations(self, lower_name, of_channels, arguments) end
  while true do
    local kind, value = read_next(self)
    if kind == ERROR or kind == BROKEN then return kind, value end
    if kind == VALUE and not is_message(self, value) then
      note_success(self, name, value)
      return kind, value
    end
    if not keep_push(self, value) then return BROKEN, "too many messages wait for 'read'" end
  end
end

-- Whether another coroutine uses the connection. If that coroutine was cancelled or has failed, its reply may still arrive: the
-- connection is closed.
local function is_busy(self)
  if not self[IS_BUSY] then return false end
  if is_awaited(self[SOCKET]) then return true end
  self[SOCKET]:close()
  self[IS_BUSY] = nil
  return false
end

-- Sends commands. Two coroutines at once would read each other's replies.
local function send(self, parts)
  if is_busy(self) then return nil, "another coroutine uses the connection" end
  self[IS_BUSY] = true
  local ok, err = self[SOCKET]:send(concat(parts))
  if not ok then
    self[SOCKET]:close()
    self[IS_BUSY] = nil
    return nil, err
  end
  return true
end

local redis_connection = {}

function redis_connection:call(...)
  local parts = {}
  local name, arguments = add_command(parts, ...)
  local ok, err = send(self, parts)
  if not ok then return nil, err end
  note_sent(self, name)
  local kind, value = read_reply(self, name, arguments)
  self[IS_BUSY] = nil
  if kind == ERROR or kind == BROKEN then return nil, value end
  return value
end

-- Sends several commands together. Returns their results: missing values are `tide.json.null`, errors of the server are tables.
function redis_connection:pipeline(commands)
  if type(commands) ~= "table" then wrong("pipeline", 1, "table", commands) end
  local parts, names, arguments = {}, {}, {}
  for at = 1, #commands do
    if type(commands[at]) ~= "table" then
      error("bad argument #1 to 'pipeline' (a list of lists expected)", 2)
    end
    names[at], arguments[at] = add_command(parts, P.G.unpack(commands[at]))
  end
  if #names == 0 then return {} end
  local ok, err = send(self, parts)
  if not ok then return nil, err end
  local results = {}
  for at = 1, #names do
    note_sent(self, names[at])
    local kind, value = read_reply(self, names[at], arguments[at])
    if kind == BROKEN then
      self[IS_BUSY] = nil
      return nil, value
    end
    if kind == ERROR then value = new_failure(value) end
    if value == nil then value = null end
    results[at] = value
  end
  self[IS_BUSY] = nil
  return results
end

-- The next message of a subscription, or of `MONITOR`.
function redis_connection:read()
  local pushes = self[PUSHES]
  if #pushes > 0 then
    self[PUSHED] = self[PUSHED] - P.G.table.remove(self[SIZES], 1)
    return P.G.table.remove(pushes, 1)
  end
  if is_busy(self) then return nil, "another coroutine uses the connection" end
  self[IS_BUSY] = true
  local kind, value = read_next(self, true)
  self[IS_BUSY] = nil
  if kind == ERROR or kind == BROKEN then return nil, value end
  note_end(self, value)
  return value
end

-- Keeps the connection for a later `connect` with the same options.
function redis_connection:keep(seconds, size)
  if seconds == nil then seconds = IDLE_SECONDS end
  if type(seconds) ~= "number" then wrong("keep", 1, "number", seconds) end
  if size ~= nil and type(size) ~= "number" then wrong("keep", 2, "number", size) end
  if self[IS_BUSY] or self[STATE] ~= nil or #self[PUSHES] > 0 then
    self[SOCKET]:close()
    return nil, "the connection has a state that others must not get; it was closed"
  end
  return self[SOCKET]:setkeepalive(seconds * 1000, size or IDLE_MAX)
end

function redis_connection:close() return self[SOCKET]:close() end

-- Other methods are commands: `redis:get("key")`.
local commands = {}
local Redis = {
  __metatable = "redis",
  __index = function(_, name)
    local method = redis_connection[name] or commands[name]
    if method or type(name) ~= "string" then return method end
    local command = upper(name)
    return function(self, ...) return redis_connection.call(self, command, ...) end
  end,
}
for name in P.G.string.gmatch("get set del exists expire ttl incr incrby decr hget hset hdel hgetall lpush rpush lpop rpop " ..
  "llen lrange sadd srem smembers sismember zadd zrem zrange publish eval evalsha mget mset", "%a+") do
  local command = upper(name)
  commands[name] = function(self, ...) return redis_connection.call(self, command, ...) end
end

-- Authenticates a new connection, and chooses the database.
local function greet(self, options)
  local first = {}
  if options.protocol == 3 then
    first[1] = { "HELLO", 3 }
    if options.password then first[1] = { "HELLO", 3, "AUTH", options.user or "default", options.password } end
  elseif options.password then
    first[1] = { "AUTH", options.password }
    if options.user then first[1] = { "AUTH", options.user, options.password } end
  end
  if options.database then first[#first + 1] = { "SELECT", options.database } end
  local results, err = redis_connection.pipeline(self, first)
  self[STATE] = nil
  if not results then return nil, err end
  for at = 1, #results do
    local result = results[at]
    if is_failure(result) then return nil, result.error end
  end
  return true
end

local redis = {}
-- Whether a value in a list or a map is an error of the server: its text is `value.error`.
function redis.is_error(value) return is_failure(value) end

function redis.connect(pool, options)
  if not pools[pool] then
    error("the pool '" .. tostring(pool) .. "' is not among `pools` of [lua." .. P.tide.app .. "]", 2)
  end
  if options == nil then options = {} end
  if type(options) ~= "table" then wrong("tide.redis.connect", 2, "table", options) end
  for name, value in pairs(options) do
    local expected = OPTIONS[name]
    if not expected then
      error("unknown option '" .. tostring(name) .. "' of 'tide.redis.connect'; the options are " .. NAMES, 2)
    end
    if type(value) ~= expected then
      error("bad option '" .. name .. "' of 'tide.redis.connect' (" .. expected .. " expected, got " .. type(value) .. ")", 2)
    end
  end
  local protocol = options.protocol or 2
  if protocol ~= 2 and protocol ~= 3 then error("bad option 'protocol' of 'tide.redis.connect' (2 or 3 expected)", 2) end
  local socket = tcp()
  socket:settimeout((options.timeout or SECONDS) * 1000)
  -- A kept connection has the rights and the database of the options with which it began.
  local key = concat({ "redis", pool, protocol, options.database or 0, options.user or "", options.password or "" }, "\0")
  local ok, err = connect_socket(socket, pools[pool], key, "tcp")
  if not ok then return nil, err end
  -- The greeting is not a reply that the script reads.
  local self = setmetatable({ socket, nil, nil, {}, REPLY_BYTES, REPLY_BYTES, new_channels(), protocol, {}, 0 }, Redis)
  if socket:getreusedtimes() == 0 then
    ok, err = greet(self, options)
    if not ok then
      socket:close()
      return nil, err
    end
  end
  self[ROOM_MAX] = options.reply_max or REPLY_BYTES
  return self
end
P.tide.redis = P.sealed("tide.redis", redis)

return P
