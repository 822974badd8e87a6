-- The code that runs until a reload.
return {
  on_open = function(client)
    client:state().count = 0
    client:send(client:id())
  end,
  on_message = function(client, message)
    if message == "wait" then tide.sleep(1) end
    local state = client:state()
    state.count = state.count + 1
    local id, text = message:match("^to (%S+) (.*)$")
    if id then tide.client(id):send(text) end
    client:send("before " .. state.count)
  end,
  on_request = function(request, response)
    if request.path == "/short" then tide.sleep(1) end
    if request.path == "/long" then tide.sleep(3600) end
    response:finish("before")
  end,
}
