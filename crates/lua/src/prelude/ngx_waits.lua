-- The layer `ngx`: timers, threads, semaphores and sockets.
local native, P = ...

local type, tostring, error, pairs, ipairs, setmetatable, unpack =
  type, tostring, error, pairs, ipairs, setmetatable, unpack
local select, remove, pcall, sub, next = select, table.remove, pcall, string.sub, next
local ngx, G, tide = P.ngx, P.G, P.tide
local begin, adopt, state_of_run, exits, quit = P.ngx_begin, P.ngx_adopt, P.ngx_state, P.ngx_exits, P.ngx_quit
local run = native.run
local find = native.find

-- Timers -----------------------------------------------------------------------------------------------------------

local running, pending = 0, 0

local function timer_argument(name, delay, f)
  if type(delay) ~= "number" then P.wrong(name, 1, "number", delay) end
  if type(f) ~= "function" then P.wrong(name, 2, "function", f) end
end

-- The function of a timer gets `premature` and its arguments.
local function run_timer(f, ...)
  local state = begin("timer")
  local function ends() running = running - 1 end
  exits[run()] = ends
  running = running + 1
  local ok, err = pcall(f, tide.premature() ~= false, ...)
  ends()
  -- The stack keeps the state until here.
  state.phase = nil
  if not ok then error(err, 0) end
end
local function run_once(f, ...)
  pending = pending - 1
  run_timer(f, ...)
end

ngx.timer = {
  at = function(delay, f, ...)
    timer_argument("at", delay, f)
    if delay < 0 then return nil, "delay must be non-negative" end
    if delay > 0 and tide.premature() then return nil, "process exiting" end
    local job, err = P.add_owed_timer(delay, nil, run_once, f, ...)
    if not job then return nil, err end
    pending = pending + 1
    return true
  end,
  every = function(delay, f, ...)
    timer_argument("every", delay, f)
    if delay <= 0 then return nil, "delay must be greater than 0" end
    if tide.premature() then return nil, "process exiting" end
    local job, err = P.add_owed_timer(delay, delay, run_timer, f, ...)
    if not job then return nil, err end
    return true
  end,
  running_count = function() return running end,
  pending_count = function() return pending end,
}

-- Threads ----------------------------------------------------------------------------------------------------------

-- A coroutine waits for an event by waiting for a job. The code that causes the event cancels the job.
local function nothing() end
local function wake(waiters)
  local latch = remove(waiters, 1)
  if latch then latch:cancel() end
end
local function forget(waiters, latch)
  for at = #waiters, 1, -1 do
    if waiters[at] == latch then remove(waiters, at) end
  end
end
-- Seconds between two checks of threads, which may have been stopped without a notification.
local CHECK_EVERY = 1

local Thread = { __metatable = "thread" }
local thread = {}
ngx.thread = thread

-- A thread has ended: those that wait for it continue.
local function release(self)
  local state = self.state
  if state then state.threads[self] = nil end
  while self.waiters[1] do wake(self.waiters) end
end
local function end_thread(self, ...)
  self.results = { n = select("#", ...), ... }
  release(self)
end
local function run_thread(self, state, f, ...)
  if self.begins then self.begins:cancel() end
  if state then adopt(state) end
  local function ends()
    self.has_left = true
    if state then state.has_left = true end
    release(self)
  end
  self.run = run()
  exits[self.run] = ends
  end_thread(self, pcall(f, ...))
  -- The stack keeps the state of the request until here.
  return state and ends and nil
end

local function kill(one)
  one.is_killed = true
  one.job:cancel()
  release(one)
end
-- A request ends before its threads, except for the thread of this run, which ends it.
function P.ngx_kill_threads(state, number)
  local living = {}
  for one in pairs(state.threads or {}) do
    if one.run ~= number then living[#living + 1] = one end
  end
  for _, one in ipairs(living) do kill(one) end
end
-- A phase has ended when its threads have.
function P.ngx_wait_threads(state)
  local threads = state.threads
  while threads and next(threads) do
    local one = next(threads)
    tide.wait(one.job)
    threads[one] = nil
  end
  if state.has_left then quit(state) end
end

-- The thread begins at once: the caller waits until it waits or ends.
function thread.spawn(f, ...)
  if type(f) ~= "function" then P.wrong("spawn", 1, "function", f) end
  local state = state_of_run()
  local self = setmetatable({ waiters = {}, state = state, begins = tide.timer.after(CHECK_EVERY, nothing) }, Thread)
  local err
  self.job, err = tide.spawn(run_thread, self, state, f, ...)
  if not self.job then
    if self.begins then self.begins:cancel() end
    error(err, 2)
  end
  if state then
    state.threads = state.threads or {}
    state.threads[self] = true
  end
  if self.begins then
    tide.wait(self.begins)
    -- Where the caller cannot wait, the thread begins later.
    self.begins:cancel()
    self.begins = nil
  end
  return self
end
function thread.wait(...)
  local threads = { ... }
  for at, one in ipairs(threads) do
    if G.getmetatable(one) ~= "thread" then P.wrong("wait", at, "thread", one) end
  end
  if #threads == 0 then error("at least one coroutine should be specified", 2) end
  while true do
    for _, one in ipairs(threads) do
      if one.results and not one.is_taken then
        one.is_taken = true
        return unpack(one.results, 1, one.results.n)
      end
      -- `ngx.exit` in a thread ends the request.
      local state = state_of_run()
      if one.has_left or state and state.has_left then quit(state) end
      if one.is_killed then return false, "killed" end
      if one.job[5] and not one.results then return false, one.job[6] end
      if one.is_taken then return nil, "already waited or killed" end
    end
    local latch, err = tide.timer.after(CHECK_EVERY, nothing)
    if not latch then return nil, err end
    for _, one in ipairs(threads) do one.waiters[#one.waiters + 1] = latch end
    local _, why = tide.wait(latch)
    for _, one in ipairs(threads) do forget(one.waiters, latch) end
    if why == "premature" then return nil, why end
  end
end
function thread.kill(one)
  if G.getmetatable(one) ~= "thread" then P.wrong("kill", 1, "thread", one) end
  if one.results or one.is_killed then return nil, "already terminated" end
  kill(one)
  return 1
end

-- Semaphores -------------------------------------------------------------------------------------------------------

local semaphore = {}
local Semaphore = { __index = semaphore }
P.loaded["ngx.semaphore"] = {
  new = function(count)
    if count == nil then count = 0 end
    if type(count) ~= "number" or count < 0 then error("no negative number", 2) end
    return setmetatable({ free = count, waiters = {} }, Semaphore)
  end,
}
function semaphore:post(count)
  if count == nil then count = 1 end
  if type(count) ~= "number" or count < 1 then error("positive number required", 2) end
  self.free = self.free + count
  -- A waiter may have been stopped without a notification, so all waiters check.
  for _ = 1, #self.waiters do wake(self.waiters) end
  return true
end
function semaphore:wait(seconds)
  if type(seconds) ~= "number" or seconds < 0 then error("invalid timeout", 2) end
  local ends = tide.now() + seconds
  while self.free < 1 do
    local left = ends - tide.now()
    if left <= 0 then return nil, "timeout" end
    local latch, err = tide.timer.after(left, nothing)
    if not latch then return nil, err end
    self.waiters[#self.waiters + 1] = latch
    local _, why = tide.wait(latch)
    forget(self.waiters, latch)
    if why ~= "cancelled" and self.free < 1 then return nil, "timeout" end
  end
  self.free = self.free - 1
  return true
end
-- The number of free resources; negative if more coroutines wait.
function semaphore:count() return self.free - #self.waiters end

-- Sockets ----------------------------------------------------------------------------------------------------------

-- The settings of the application name a pool for each address: `"127.0.0.1:6379" = "redis"`. The pool's settings determine TLS.
local settings, connect = P.ngx_settings, P.connect_socket
local plain = P.socket_methods
local socket = {}
for name, method in pairs(plain) do socket[name] = method end
local Socket = { __index = socket, __metatable = "socket" }

function socket:connect(host, port, options)
  if type(host) ~= "string" then P.wrong("connect", 1, "string", host) end
  local address = host
  if not find(host, "unix:", 1, true) then
    if type(port) == "string" then port = G.tonumber(port) end
    if type(port) ~= "number" then P.wrong("connect", 2, "number", port) end
    address = host .. ":" .. port
  elseif type(port) == "table" then
    options = port
  end
  local name = settings[address]
  if name == nil then
    return nil, "no pool for " .. address .. ": write \"" .. address .. "\" = \"POOL\" in `settings` of [lua." .. tide.app .. "]"
  end
  local pool = P.pools[name]
  if not pool then return nil, "the pool '" .. tostring(name) .. "' is not among `pools` of [lua." .. tide.app .. "]" end
  local key = type(options) == "table" and options.pool or address
  if type(key) ~= "string" then error("bad \"pool\" option type: " .. type(key), 2) end
  local ok, err = connect(self, pool, key, "tcp")
  if ok then return 1 end
  return nil, err
end
-- The connection is encrypted already if its pool has TLS, which verifies the server, too.
function socket:sslhandshake(reused_session)
  if not self[1] then return nil, "closed" end
  if not native.sock_is_secured(self[1], self[2]) then return nil, "the pool has no TLS: write tls = true in its settings" end
  if reused_session == false then return true end
  return {}
end
function socket:setclientcert() return true end
function socket:setoption() return true end
function socket:setkeepalive(...)
  local ok, err = plain.setkeepalive(self, ...)
  if ok then return 1 end
  return nil, err
end
function socket:close()
  local ok, err = plain.close(self)
  if ok then return 1 end
  return nil, err
end
function socket:settimeout(millis)
  if millis == nil then millis = 0 end
  return plain.settimeout(self, millis)
end
function socket:settimeouts(of_connect, of_send, of_read)
  return plain.settimeouts(self, of_connect or 0, of_send or 0, of_read or 0)
end
function socket:receive(what)
  if type(what) == "string" then what = G.tonumber(what) or what end
  return plain.receive(self, what)
end

-- Datagrams, to the addresses that `udp` of the application lists.
local plain_datagrams = P.datagram_methods
local datagrams = {}
local Datagrams = { __index = datagrams, __metatable = "datagram socket" }
-- The field of a socket that holds the seconds of `receive`.
local TIMEOUT = 3

-- OpenResty's functions return 1 for true.
local function one(ok, err)
  if ok then return 1 end
  return nil, err
end

function datagrams:setpeername(host, port)
  if type(host) ~= "string" then P.wrong("setpeername", 1, "string", host) end
  if find(host, "unix:", 1, true) then return nil, "unix sockets for datagrams are not supported" end
  if type(port) == "string" then port = G.tonumber(port) end
  if type(port) ~= "number" or not (port >= 1 and port <= 65535) or port % 1 ~= 0 then
    error("bad port number: " .. tostring(port), 2)
  end
  if self[1] then plain_datagrams.close(self) end
  return one(P.open_datagrams(self, host, port))
end
function datagrams:settimeout(millis)
  if millis ~= nil and type(millis) ~= "number" then P.wrong("settimeout", 1, "number", millis) end
  self[TIMEOUT] = millis and millis > 0 and millis / 1000 or nil
end
function datagrams:send(data) return one(plain_datagrams.send(self, P.bytes_of(data))) end
function datagrams:receive(size)
  if size ~= nil and (type(size) ~= "number" or size < 1) then error("bad size argument", 2) end
  local data, err = plain_datagrams.receive(self, self[TIMEOUT])
  if not data then return nil, err end
  return size and sub(data, 1, size) or data
end
function datagrams:close() return one(plain_datagrams.close(self)) end

local function tcp() return setmetatable(P.socket_fields(), Socket) end
ngx.socket = {
  tcp = tcp,
  stream = tcp,
  connect = function(...)
    local created = tcp()
    local ok, err = created:connect(...)
    if not ok then return nil, err end
    return created
  end,
  udp = function() return setmetatable({}, Datagrams) end,
}

return P
