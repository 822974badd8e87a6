-- WebSocket connections to servers of pools.
local native, P = ...

local type, tostring, error, pairs, setmetatable = type, tostring, error, pairs, setmetatable
local concat = table.concat
local ws_begin, ws_next, ws_send, sock_wait = native.ws_begin, native.ws_next, native.ws_send, native.sock_wait
local wrong, tcp, lines_of, pools, connect_socket = P.wrong, P.tide.tcp, P.lines_of, P.pools, P.connect_socket

local SECONDS, MESSAGE_BYTES = 60, 1024 * 1024
local OPTIONS = { path = "string", host = "string", headers = "table", protocols = "table", timeout = "number",
  message_max = "number" }
local NAMES = "path, host, headers, protocols, timeout, message_max"
-- The kinds of frames of `ws_send`.
local TEXT, BINARY, PONG, CLOSE = 0, 1, 2, 3
-- The fields of a connection: its socket, its timeout in seconds, and, once it is closed, the code and the reason of the server.
local SOCKET, WAIT, CODE, REASON = 1, 2, 3, 4
-- Errors after which a connection stays open.
local STAYS_OPEN = { timeout = true, premature = true, ["socket busy"] = true }

-- Waits for the next frame of the server.
local function next_frame(self, seconds)
  local socket = self[SOCKET]
  while socket[1] do
    local kind, data, reason = ws_next(socket[1], socket[2])
    if kind ~= "more" then return kind, data, reason end
    local ok, err = sock_wait(socket[1], socket[2], true, seconds)
    if not ok then return nil, err end
  end
  return nil, "closed"
end

local function send_frame(self, kind, data, code)
  local socket = self[SOCKET]
  if not socket[1] then return nil, "closed" end
  local ok, err = sock_wait(socket[1], socket[2], false, self[WAIT])
  if not ok then return nil, err end
  return ws_send(socket[1], socket[2], kind, data, code)
end

local connection = {}
local Connection = { __index = connection, __metatable = "websocket" }

function connection:send(data, kind)
  if type(data) ~= "string" then wrong("send", 1, "string", data) end
  if kind ~= nil and kind ~= "text" and kind ~= "binary" then
    error("bad argument #2 to 'send' (\"text\" or \"binary\" expected)", 2)
  end
  return send_frame(self, kind == "binary" and BINARY or TEXT, data)
end

-- The next message and its kind. nil and an error; with "closed", also the code and the reason of the server.
function connection:receive(seconds)
  if seconds ~= nil and type(seconds) ~= "number" then wrong("receive", 1, "number", seconds) end
  if self[CODE] then return nil, "closed", self[CODE], self[REASON] end
  while true do
    local kind, data, reason = next_frame(self, seconds or self[WAIT])
    if kind == "text" or kind == "binary" then return data, kind end
    if kind == "ping" then
      send_frame(self, PONG, data)
    elseif kind == "close" then
      send_frame(self, CLOSE, "", data == 1005 and 1000 or data)
      self[SOCKET]:close()
      self[CODE], self[REASON] = data, reason
      return nil, "closed", data, reason
    elseif not kind then
      if not STAYS_OPEN[data] then self[SOCKET]:close() end
      return nil, data
    end
  end
end

function connection:close(code, reason)
  if code ~= nil and type(code) ~= "number" then wrong("close", 1, "number", code) end
  if reason ~= nil and type(reason) ~= "string" then wrong("close", 2, "string", reason) end
  local ok, err = send_frame(self, CLOSE, reason or "", code or 1000)
  if not ok and err ~= "timeout" and self[SOCKET][1] then return nil, err end
  return self[SOCKET]:close()
end

function P.new_connection(socket, seconds) return setmetatable({ socket, seconds }, Connection) end

local websocket = {}
function websocket.connect(pool, options)
  if not pools[pool] then
    error("the pool '" .. tostring(pool) .. "' is not among `pools` of [lua." .. P.tide.app .. "]", 2)
  end
  if options == nil then options = {} end
  if type(options) ~= "table" then wrong("tide.websocket.connect", 2, "table", options) end
  for name, value in pairs(options) do
    local expected = OPTIONS[name]
    if not expected then
      error("unknown option '" .. tostring(name) .. "' of 'tide.websocket.connect'; the options are " .. NAMES, 2)
    end
    if type(value) ~= expected then
      error("bad option '" .. name .. "' of 'tide.websocket.connect' (" .. expected .. " expected, got " .. type(value) .. ")", 2)
    end
  end
  local seconds, lines = options.timeout or SECONDS, lines_of(options.headers or {})
  local socket = tcp()
  socket:settimeout(seconds * 1000)
  local ok, err = connect_socket(socket, pools[pool], "websocket " .. pool, "websocket")
  if not ok then return nil, err end
  ok, err = ws_begin(socket[1], socket[2], options.path or "/", options.host or pool, lines,
    concat(options.protocols or {}, ","), options.message_max or MESSAGE_BYTES)
  local self = P.new_connection(socket, seconds)
  local kind, protocol
  if ok then
    kind, protocol = next_frame(self, seconds)
    err = protocol
  end
  if kind ~= "open" then
    socket:close()
    return nil, err
  end
  return self, protocol
end
P.tide.websocket = P.sealed("tide.websocket", websocket)

return P
