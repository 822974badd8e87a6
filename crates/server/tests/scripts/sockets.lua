-- The application of the simulation of sockets: questions, whose answers begin with the number that was asked for.
local count = 0

-- Asks once. Returns true, or nil and an error.
local function ask(socket)
  count = count + 1
  local size, length = count * 7919 % 100000, count % 4 == 0 and count * 6151 % 150000 or 0
  local sent, err = socket:send { size, " ", length, "\n", ("x"):rep(length) }
  if not sent then return nil, err end
  local line, data
  line, err = socket:receive()
  if not line then return nil, err end
  if line ~= "ok " .. size then return nil, line == "more" and "unasked" or "mixed: " .. line end
  data, err = socket:receive(size)
  if not data then return nil, err end
  if data ~= ("y"):rep(size) or socket:receive("*l") ~= "" then return nil, "cut" end
  return true
end

local function talk()
  local socket = tide.tcp()
  socket:settimeouts(60, 100, 60 + count % 5 * 40)
  local ok, err = socket:connect("p", { pool = "k" .. count % 2 })
  local times = ok and socket:getreusedtimes()
  for _ = 1, 1 + count % 3 do
    if ok then ok, err = ask(socket) end
  end
  -- Otherwise the end of the handler closes it, even in the middle of an answer.
  if ok and count % 4 > 0 then socket:setkeepalive(50 + count % 100, 2) elseif count % 2 == 0 then socket:close() end
  return ok, err, times
end

return {
  on_start = function() tide.timer.every(0.03, talk) end,
  on_request = function(request, response)
    local job = tide.spawn(talk)
    local ok, err, times = talk()
    if job and count % 4 == 0 then job:cancel() end
    local text = not ok and err or times > 0 and "talked, reused" or "talked"
    response:status(ok and 200 or 502):finish(text)
  end,
}
