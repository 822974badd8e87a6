-- The application of the test for leaks: clients with state, subscriptions, timers and threads, which come and go.
local opened, closed = 0, 0

return {
  on_open = function(client, request)
    opened = opened + 1
    client:state().name = request.query.name
    client:subscribe("room" .. opened % 7)
    client:state().job = tide.timer.after(1000, function() client:send("never") end)
    if opened % 5 == 0 then tide.spawn(function() tide.sleep(0.0005) client:send("later") end) end
  end,
  on_message = function(client, message)
    if message == "wait" then tide.sleep(0.0002) end
    client:publish("room1", message)
    client:send(client:state().name .. " " .. message)
  end,
  on_close = function(client)
    closed = closed + 1
    client:state().job:cancel()
  end,
  on_request = function(_, response)
    collectgarbage()
    collectgarbage()
    response:finish(opened .. " " .. closed .. " " .. math.floor(collectgarbage("count")))
  end,
}
