-- The application of lua_handlers_wait.scene.
local ticks = 0
return {
  on_start = function()
    tide.timer.every(0.02, function() ticks = ticks + 1 end)
  end,
  on_request = function(request, response)
    local path = request.path
    if path == "/sleep" then
      tide.sleep(0.05)
      response:finish("slept")
    elseif path == "/turns" then
      for _ = 1, 3 do tide.wait(tide.spawn(function() end)) end
      response:finish("turned")
    elseif path == "/ticks" then
      while ticks < 3 do tide.sleep(0.01) end
      response:finish("ticked")
    elseif path == "/threads" then
      local a = tide.spawn(function() tide.sleep(0.02) return "a" end)
      local b = tide.spawn(function() tide.sleep(0.01) return "b" end)
      response:finish(tide.wait(a) .. tide.wait(b))
    elseif path == "/error" then
      tide.sleep(0.01)
      error("this handler fails after a wait")
    elseif path == "/loop" then
      tide.sleep(0.01)
      while true do end
    elseif path == "/drop" then
      response:drop()
    elseif path == "/wait-and-drop" then
      tide.sleep(0.01)
      response:drop()
    elseif path == "/late-drop" then
      response:write("begun"):flush()
      response:drop()
    elseif path == "/pieces" then
      for piece = 1, 3 do
        tide.sleep(0.01)
        response:write(piece):flush()
      end
    elseif path == "/stream" then
      local body, at = request.body, 1
      while at <= #body do
        assert(response:write(body:sub(at, at + 39999)))
        at = at + 40000
      end
    elseif path == "/large" then
      for _ = 1, 20 do response:write(("x"):rep(40000)) end
    elseif path == "/forever" then
      response:write("begun"):flush()
      tide.sleep(1000000)
    else
      response:finish("at once")
    end
  end,
  on_open = function(client)
    tide.sleep(0.01)
    client:send("open")
  end,
  on_message = function(client, message)
    if message == "forever" then tide.sleep(1000000) end
    if message == "slow" then tide.sleep(0.05) end
    if message == "error" then
      tide.sleep(0.01)
      error("on_message fails after a wait")
    end
    client:send(message)
  end,
}
