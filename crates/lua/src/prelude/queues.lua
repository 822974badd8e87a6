-- Queues that all VMs of the process share.
local native, P = ...

local type, tostring, error, pairs, setmetatable = type, tostring, error, pairs, setmetatable
local take, push, wait, elapsed = native.queue_pop, native.queue_push, native.queue_wait, native.elapsed

local queue = {}

function queue:push(value)
  local kind = type(value)
  if kind ~= "string" and kind ~= "number" and kind ~= "boolean" then
    P.wrong("push", 1, "string, number or boolean", value)
  end
  return push(self[1], value)
end

-- The oldest value. Without `seconds`, it does not wait for one.
function queue:pop(seconds)
  if seconds == nil then
    local value = take(self[1])
    if value == nil then return nil, "empty" end
    return value
  end
  if type(seconds) ~= "number" then P.wrong("pop", 1, "number", seconds) end
  local by = elapsed() + seconds
  while true do
    local value = take(self[1], true)
    if value ~= nil then return value end
    local left = by - elapsed()
    if not (left > 0) then return nil, "timeout" end
    local ok, err = wait(self[1], left)
    -- After a timeout, it looks again: a wait is shorter than the whole time.
    if not ok and err ~= "timeout" then return nil, err end
  end
end

function queue:length() return native.queue_length(self[1]) end

local Queue = { __index = queue, __metatable = "queue", __newindex = function()
  error("a queue has no fields; use its method 'push'", 2)
end }

local queues = {}
for at, name in pairs(native.queue_names()) do queues[name] = setmetatable({ at - 1 }, Queue) end
setmetatable(queues, { __index = function(_, name)
  error("there is no queue '" .. tostring(name) .. "': write it in `queues` of [lua." .. native.fact("app") .. "]", 2)
end })
P.queues, P.Queue = queues, Queue
P.tide.queue = P.sealed("tide.queue", queues)

return P
