-- The WebSocket application of the scenes.
local first
return {
  on_open = function(client, request)
    client:state().name = request.query.name or "nobody"
    client:send("hello " .. client:state().name)
    if request.query.name == "broken" then error("on_open fails") end
    first = first or client
  end,
  on_message = function(client, message, kind)
    if message == "loop" then while true do end end
    if message == "bye" then return client:close(4000, "as asked") end
    if message == "error" then error("on_message fails") end
    client:send(message, kind)
    client:send(client:state().name)
  end,
  on_close = function(client, code, reason)
    assert(not client:is_open() and client:send("too late") == nil)
  end,
}
