-- An application that is a client of a WebSocket echo.
local function connect(path) return tide.websocket.connect("p", { path = path, timeout = 5 }) end

return {
  on_open = function(client)
    client:state().echo = assert(connect("/echo"))
    client:send(client:id())
  end,
  on_message = function(client, message)
    local echo = client:state().echo
    assert(echo:send(message))
    client:send("echo " .. assert(echo:receive()))
  end,
  on_request = function(request, response)
    local echo, err = connect(request.path == "/" and "/echo" or "/absent")
    if not echo then return response:status(502):finish(err) end
    assert(echo:send("hello"))
    local text, kind = echo:receive()
    local lines = { kind .. " " .. text }
    assert(echo:send(("x"):rep(200000), "binary"))
    local data
    data, kind = echo:receive()
    lines[2] = kind .. " " .. #data
    assert(echo:close())
    lines[3] = select(2, echo:receive()) .. " 1000"
    response:finish(table.concat(lines, "|"))
  end,
}
