-- The application of the simulation of requests to servers.
local count = 0

local function fetch(path)
  count = count + 1
  local body = count % 3 == 0 and ("x"):rep(count * 7919 % 150000) or nil
  return tide.http.request { pool = "p", path = path, body = body, timeout = 0.05 + count % 5 / 5, body_max = 20000 }
end

return {
  on_start = function() tide.timer.every(0.03, fetch, "/timer") end,
  on_request = function(request, response)
    local job = tide.spawn(fetch, "/spawned")
    local reply, err = fetch(request.path)
    if job and count % 4 == 0 then job:cancel() elseif job then tide.wait(job, 0.5) end
    response:status(reply and 200 or 502):finish(reply and reply.body or err)
  end,
}
