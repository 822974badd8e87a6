-- Waiting, timers and threads.
local native, P = ...

local type, error, select, unpack, setmetatable, getmetatable = type, error, select, unpack, setmetatable, getmetatable
local add_job, cancel_job, is_last_run, wait_job, sleep =
  native.add_job, native.cancel_job, native.is_last_run, native.wait_job, native.sleep
local wrong, tide = P.wrong, P.tide

-- Jobs by index. A job holds its index, its generation, its function and arguments, and, once it is over, true, an error or
-- nil, and its results.
local INDEX, GENERATION, RUN, ARGUMENTS, IS_OVER, ERROR, RESULTS = 1, 2, 3, 4, 5, 6, 7
local jobs = {}

local job = {}
local Job = { __index = job, __metatable = "job" }

local function finish(self, err, results)
  jobs[self[INDEX]] = nil
  self[RUN], self[ARGUMENTS] = nil, nil
  self[IS_OVER], self[ERROR], self[RESULTS] = true, err, results
end

function job:cancel()
  local is_gone = cancel_job(self[INDEX], self[GENERATION])
  if is_gone == nil then return nil, "the job is over" end
  if is_gone then finish(self, "cancelled") end
  return true
end

local function add(name, position, f, delay, interval, is_owed, ...)
  if type(f) ~= "function" then
    error("bad argument #" .. position .. " to '" .. name .. "' (function expected, got " .. type(f) .. ")", 3)
  end
  local index, generation = add_job(delay, interval, is_owed)
  if not index then return nil, generation end
  local created = setmetatable({ index, generation, f, { n = select("#", ...), ... } }, Job)
  jobs[index] = created
  return created
end

local function number(name, value)
  if type(value) ~= "number" then
    error("bad argument #1 to '" .. name .. "' (number expected, got " .. type(value) .. ")", 3)
  end
end

local timer = {}
function timer.after(seconds, f, ...)
  number("tide.timer.after", seconds)
  return add("tide.timer.after", 2, f, seconds, nil, false, ...)
end
function timer.every(seconds, f, ...)
  number("tide.timer.every", seconds)
  if not (seconds > 0) then error("bad argument #1 to 'tide.timer.every' (the interval must be positive)", 2) end
  return add("tide.timer.every", 2, f, seconds, seconds, false, ...)
end
tide.timer = P.sealed("tide.timer", timer)

function tide.spawn(f, ...) return add("tide.spawn", 1, f, 0, nil, false, ...) end

function tide.sleep(seconds)
  number("tide.sleep", seconds)
  local ok, err = sleep(seconds)
  if not ok then return nil, err end
  return true
end

function tide.wait(waited, seconds)
  if type(waited) ~= "table" or getmetatable(waited) ~= "job" then wrong("tide.wait", 1, "job", waited) end
  if seconds ~= nil and type(seconds) ~= "number" then wrong("tide.wait", 2, "number", seconds) end
  if not waited[IS_OVER] then
    local ok, err = wait_job(waited[INDEX], waited[GENERATION], seconds)
    if not ok then return nil, err end
    if not waited[IS_OVER] then return nil, "the function was stopped" end
  end
  if waited[ERROR] then return nil, waited[ERROR] end
  local results = waited[RESULTS]
  return unpack(results, 1, results.n)
end

-- A timer that runs before its time, rather than never, if the VM ends.
function P.add_owed_timer(seconds, interval, f, ...) return add("timer", 3, f, seconds, interval, true, ...) end

-- False; the seconds until this VM ends, if other code has taken its place or the process stops.
tide.premature = native.premature

local function ended(self, ...)
  if is_last_run(self[INDEX], self[GENERATION]) then
    finish(self, nil, { n = select("#", ...), ... })
  end
end

-- Runs a job.
function P.run_job(index)
  local self = jobs[index]
  if not self then return end
  local arguments = self[ARGUMENTS]
  ended(self, self[RUN](unpack(arguments, 1, arguments.n)))
end

-- A job is over because its function has failed.
function P.fail_job(index, message)
  local self = jobs[index]
  if self then finish(self, message) end
end

return P
