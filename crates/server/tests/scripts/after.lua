-- The code after a reload.
return {
  on_handover = function(client, state)
    if state.count == 13 then error("no luck") end
    client:send("handed over " .. state.count)
  end,
  on_open = function(client)
    client:state().count = 100
    client:send(client:id())
  end,
  on_message = function(client, message)
    local state = client:state()
    state.count = state.count + 1
    local id, text = message:match("^to (%S+) (.*)$")
    if id then tide.client(id):send(text) end
    client:send("after " .. state.count)
  end,
  on_request = function(request, response) response:finish("after") end,
}
