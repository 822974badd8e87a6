-- The module `tide.test` of `tidegate lua test`: simulated clients of the application, in virtual time.
local native, P = ...

local type, tostring, error, pairs, pcall, setmetatable = type, tostring, error, pairs, pcall, setmetatable
local find, sub, lower = native.find, string.sub, string.lower
local encode, decode = native.json_encode, native.json_decode
local sorted, concat = P.G.table.sort, table.concat

-- Sends a command to the runner. Returns its result: a table, and bytes.
local function call(method, arguments, body)
  local text, err = encode(arguments)
  if not text then error(err, 3) end
  local ok, reply = native.test_call(method, text, body or "")
  if not ok then error(reply, 3) end
  local stop = find(reply, "\0", 1, true)
  return decode(sub(reply, 1, stop - 1)), sub(reply, stop + 1)
end

local function check(method, position, expected, value)
  if type(value) ~= expected then
    error("bad argument #" .. position .. " to '" .. method .. "' (" .. expected .. " expected, got " .. type(value) .. ")", 3)
  end
end

local test = {}

-- Replaces the values in the same table, because the script may already hold a reference to it.
function test.settings(values)
  check("settings", 1, "table", values)
  for name in pairs(P.settings) do P.settings[name] = nil end
  for name, value in pairs(values) do P.settings[name] = value end
end

-- A value as a string, with sorted keys.
local function show(value, depth)
  if type(value) == "string" then return ("%q"):format(value) end
  if type(value) ~= "table" or depth > 8 then return tostring(value) end
  local keys, parts = {}, {}
  for key in pairs(value) do keys[#keys + 1] = key end
  sorted(keys, function(one, other) return tostring(one) < tostring(other) end)
  for _, key in ipairs(keys) do parts[#parts + 1] = tostring(key) .. " = " .. show(value[key], depth + 1) end
  return "{ " .. concat(parts, ", ") .. " }"
end

local function is_equal(one, other, depth)
  if one == other then return true end
  if type(one) ~= "table" or type(other) ~= "table" or depth > 100 then return false end
  for key, value in pairs(one) do
    if not is_equal(value, other[key], depth + 1) then return false end
  end
  for key in pairs(other) do
    if one[key] == nil then return false end
  end
  return true
end

function test.equal(actual, expected, what)
  if not is_equal(actual, expected, 0) then
    error((what and what .. ": " or "") .. "expected " .. show(expected, 0) .. ", got " .. show(actual, 0), 2)
  end
end

-- The arguments of a simulated request.
local function arguments_of(method, what)
  if what == nil then what = {} end
  check(method, 1, "table", what)
  local query = what.query
  if type(query) == "table" then query = P.encode_arguments(query) end
  return {
    method = what.method or (what.body and "POST" or "GET"), path = what.path or "/", query = query,
    headers = what.headers or {}, params = what.params or {}, client = what.client or "192.0.2.1",
    user = what.user, is_https = what.scheme == "https", pools = what.pools and P.json.array(what.pools) or P.json.array(),
  }
end

local response = {}
function response:json() return decode(self.body) end
function response:header(name) return self.headers[lower(name)] end
local Response = { __index = response }

local function respond(reply, body)
  local headers = {}
  for _, pair in ipairs(reply.headers or {}) do P.add(headers, lower(pair[1]), pair[2]) end
  reply.headers, reply.body = headers, body
  return setmetatable(reply, Response)
end

function test.request(what)
  local arguments = arguments_of("request", what)
  return respond(call("request", arguments, what and what.body))
end

function test.response(what)
  local arguments = arguments_of("response", what)
  local served = what and what.response or {}
  check("response{ response }", 1, "table", served)
  -- A list is a body that arrives in these pieces.
  local body, lengths = served.body, P.json.array()
  if type(body) ~= "table" then body = { body } end
  for at, piece in ipairs(body) do
    check("response{ body }", 1, "string", piece)
    lengths[at] = #piece
  end
  arguments.response = { status = served.status, headers = served.headers, pieces = lengths }
  return respond(call("response", arguments, concat(body)))
end

function test.access(what)
  local arguments = arguments_of("access", what)
  return respond(call("access", arguments, what and what.body))
end

local client = {}
function client:send(data, kind)
  check("send", 1, "string", data)
  call("send", { client = self.tag, is_text = kind ~= "binary" }, data)
end
function client:receive(seconds)
  local reply, data = call("receive", { client = self.tag, seconds = seconds or 1 })
  if reply.kind then return data, reply.kind end
  return nil, reply.what, reply.code, reply.reason
end
function client:close(code, reason) call("close", { client = self.tag, code = code or 1000, reason = reason or "" }) end
local Client = { __index = client }

function test.connect(what)
  return setmetatable({ tag = call("connect", arguments_of("connect", what)).client }, Client)
end

-- Runs on_push for an event; returns the decision.
function test.push(what)
  check("push", 1, "table", what)
  if type(what.type) ~= "string" then error("test.push: the event needs a `type`, such as \"publish\"", 2) end
  local event, lines = {}, {}
  for name, value in pairs(what) do event[name] = value end
  event.headers, event.address, event.hub, event.type = nil, nil, nil, nil
  if what.address then lines[1] = "x-forwarded-for: " .. what.address .. "\n" end
  for name, value in pairs(what.headers or {}) do lines[#lines + 1] = name .. ": " .. tostring(value) .. "\n" end
  local data, err = native.json_encode(event)
  if not data then error("test.push: " .. err, 2) end
  local reply, decision = call("push", { hub = what.hub or "test", kind = what.type, fields = concat(lines) }, data)
  if reply.failure then return { failure = reply.failure } end
  return native.json_decode(decision)
end

-- Runs on_balance; returns the number of the server that it chooses, or nil, and the error if it has failed.
function test.balance(what)
  check("balance", 1, "table", what)
  check("balance{ servers }", 1, "table", what.servers)
  local arguments, lines = arguments_of("balance", what), {}
  for at, server in ipairs(what.servers) do
    if type(server) == "string" then server = { name = server } end
    if type(server) ~= "table" or type(server.name) ~= "string" then
      error("test.balance: each server is a name, or a table with a `name`", 2)
    end
    local free = server.is_free ~= false and not server.was_tried
    lines[at] = server.name .. "\t" .. (free and 1 or 0) .. (server.was_tried and 1 or 0) .. "\n"
  end
  arguments.pool, arguments.number, arguments.servers = what.pool or "test", what.number or 1, concat(lines)
  local reply = call("balance", arguments)
  if reply.failure == native.null then reply.failure = nil end
  if reply.server == native.null then reply.server = nil end
  return reply.server, reply.failure
end

-- Runs on_certificate; returns its choice, or nil and the error if it has failed.
function test.certificate(what)
  check("certificate", 1, "table", what)
  local certificates = P.json.array()
  for at, names in ipairs(what.certificates or {}) do
    if type(names) == "string" then names = { names } end
    check("certificate{ certificates }", 1, "table", names)
    certificates[at] = P.json.array(names)
  end
  local reply = call("certificate", {
    name = what.name or "", listener = what.listener or "test", client = what.client or "192.0.2.1",
    certificates = certificates,
  })
  return reply.choice, reply.failure
end

-- Forwarded WebSockets, whose messages on_frame sees.
local tunnel = {}
local function side(method, position, name)
  if name ~= "client" and name ~= "server" then
    error("bad argument #" .. position .. " to '" .. method .. "' (\"client\" or \"server\" expected)", 3)
  end
  return name == "client"
end
-- Sends a message as one side. Returns the message that the other side gets, and its kind.
function tunnel:send(from, data, kind)
  local from_client = side("send", 1, from)
  check("send", 2, "string", data)
  local reply, bytes = call("frame", { tunnel = self.tag, from_client = from_client, is_text = kind ~= "binary" }, data)
  if not reply.kind then return nil, reply.failure end
  return bytes, reply.kind
end
-- The next message that the script itself has sent to one side; nil, and how the connection has ended.
function tunnel:receive(by)
  local reply, bytes = call("sent", { tunnel = self.tag, to_client = side("receive", 1, by) })
  if reply.kind then return bytes, reply.kind end
  if reply.code then return nil, "closed", reply.code, reply.reason end
  return nil
end
-- Ends the connection as one side.
function tunnel:close(from, code, reason)
  local from_client = side("close", 1, from)
  call("frame", { tunnel = self.tag, from_client = from_client, code = code or 1000 }, reason or "")
end
local Tunnel = { __index = tunnel }

function test.tunnel(what)
  return setmetatable({ tag = call("tunnel", arguments_of("tunnel", what)).tunnel }, Tunnel)
end

-- The files of the application, by path.
local contents = {}
function test.files(files)
  check("files", 1, "table", files)
  for path, text in pairs(files) do
    if type(path) ~= "string" or type(text) ~= "string" then error("test.files: a path and a text are strings", 2) end
    contents[path] = text
  end
end
function P.read_piece(path, offset, most)
  local text = contents[path]
  if not text then return false, "not found" end
  return true, #text .. " 1700000000 a" .. #text .. "\n" .. sub(text, offset + 1, offset + most)
end

function test.published() return (call("published", {})).calls end

-- Answers the requests of tide.http in place of servers.
local answer
function test.http(handler)
  check("http", 1, "function", handler)
  answer = handler
end
function P.send_request(pool, method, target, host, lines, body)
  if not answer then return false, "no server: test.http has set no handler" end
  local function lowered(fields)
    local headers = {}
    for name, value in pairs(fields) do headers[lower(name)] = value end
    return headers
  end
  local headers = lowered(P.headers_of(lines))
  local reply, err = answer { pool = pool, method = method, path = target, host = host, headers = headers, body = body }
  if type(reply) ~= "table" then return false, tostring(err or "the handler of test.http has returned no response") end
  return true, reply.body or "", reply.status or 200, (P.lines_of(lowered(reply.headers or {})))
end
-- Any pool exists.
setmetatable(P.pools, { __index = function(_, name) return name end })

-- The simulated servers of sockets, by protocol: a function that gets the socket of the server, or the error of `connect`.
local servers = {}

local function set_server(protocol, server, position)
  if type(server) ~= "function" and type(server) ~= "string" then
    P.wrong(protocol, position, "function or string", server)
  end
  servers[protocol] = server
end
function test.tcp(server) set_server("tcp", server, 1) end

-- The server's side of a WebSocket connection, after the handshake; nil if it is refused.
local function accept(peer, options)
  local head = peer:receiveuntil("\r\n\r\n")()
  if not head then return nil end
  head = head .. "\r\n"
  local headers = {}
  for name, value in head:gmatch("\r\n([^:\r\n]+):[ \t]*([^\r\n]*)") do P.add(headers, lower(name), value) end
  if options.status then
    peer:send("HTTP/1.1 " .. options.status .. " Refused\r\nContent-Length: 0\r\n\r\n")
    return nil
  end
  local key, err = native.ws_serve(peer[1], peer[2], headers["sec-websocket-key"] or "")
  if not key then error(err, 0) end
  local protocol = options.protocol and "Sec-WebSocket-Protocol: " .. options.protocol .. "\r\n" or ""
  peer:send("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: " ..
    key .. "\r\n" .. protocol .. "\r\n")
  local connection = P.new_connection(peer, 60)
  connection.path, connection.headers, connection.pool = head:match("^%S+ (%S+)"), headers, peer.pool
  return connection
end
function test.websocket(server, options)
  if options ~= nil then check("websocket", 2, "table", options) end
  if type(server) ~= "function" then return set_server("websocket", server, 1) end
  servers.websocket = function(peer)
    local connection = accept(peer, options or {})
    if connection then server(connection) end
  end
end

-- Runs the server of a socket, which belongs to the coroutine of the application. An error fails the test.
local function serve(server, pool, index, generation)
  local peer_index, peer_generation = native.sock_open(0)
  if not peer_index then error(peer_generation, 0) end
  call("join", { socket = { index, generation }, peer = { peer_index, peer_generation } })
  local peer = P.new_socket(peer_index, peer_generation)
  peer.pool = pool
  local ok, err = pcall(server, peer)
  if not ok then call("fail", {}, tostring(err)) end
  peer:close()
end
function P.sock_open(pool, protocol)
  local server = servers[protocol]
  if type(server) ~= "function" then return nil, server or "no server: test." .. protocol .. " has set no server" end
  local index, generation = native.sock_open(0)
  if not index then return nil, generation end
  local job, err = P.tide.spawn(serve, server, pool, index, generation)
  if job then return index, generation end
  native.sock_close(index, generation)
  return nil, err
end

P.tide.test = P.sealed("tide.test", test)

-- Any dictionary, any queue and any hub exists.
setmetatable(P.dictionaries, { __index = function(dictionaries, name)
  local created = setmetatable({ native.test_dictionary(name) }, P.Dictionary)
  rawset(dictionaries, name, created)
  return created
end })
setmetatable(P.queues, { __index = function(queues, name)
  local created = setmetatable({ native.test_queue(name) }, P.Queue)
  rawset(queues, name, created)
  return created
end })
setmetatable(P.hubs, { __index = function(_, name) return setmetatable({ name }, P.Hub) end })

-- Loads the tests, before the application.
local tests = {}
function P.load_tests(source, file)
  local chunk, err = P.compile(source, "@" .. file, P.G)
  if not chunk then error(err, 0) end
  local found = chunk()
  if type(found) ~= "table" then error(file .. ": the tests must be a table of functions", 0) end
  for name, run in pairs(found) do
    if type(name) ~= "string" or type(run) ~= "function" then
      error(file .. ": each test must be a function with a name; invalid entry: " .. tostring(name), 0)
    end
    native.test_name(name)
    tests[name] = run
  end
end
function P.run_test(name) tests[name]() end

return P
