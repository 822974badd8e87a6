-- The application of `applications_call_hubs_of_all_workers`: runs calls of a hub and answers with their results.
local hub = tide.push.p

local function line(result, err, code)
  if not result then return tostring(err) .. " " .. tostring(code) .. "\n" end
  return tide.json.encode(result) .. "\n"
end

return {
  on_request = function(request, response)
    local channel = request.query.channel
    if request.path == "/run" then
      -- Calls of several threads wait concurrently.
      local jobs = {}
      for at = 1, 3 do jobs[at] = tide.spawn(hub.publish, hub, channel, { at = at }) end
      for at = 1, 3 do response:write(tide.wait(jobs[at]).offset > 0 and "published\n" or "lost\n") end
      local history = hub:history(channel, { limit = -1 })
      response:write(#history.publications, " in the history\n")
      response:write(line(hub:history(channel, { limit = 1, reverse = true }) and { ok = true }))
    elseif request.path == "/errors" then
      response:write(line(hub:publish("none:a", 1)))
      response:write(line(hub:presence("h:a")))
      response:write(line(hub:disconnect({ user = "nobody" })))
      response:write(line(hub:info() and { ok = true }))
    elseif request.path == "/leave" then
      tide.timer.after(0, function() hub:publish(channel, "from a timer") end)
      hub:publish(channel, "from a request")
      tide.sleep(1000)
    end
  end,
}
