-- The application of the simulation of datagrams. The server at 10.0.1.1:9000 sends back what it gets.
local function talk(data, seconds, port)
  local socket, err = tide.udp.connect("10.0.1.1", port or 9000)
  if not socket then return nil, err end
  local ok
  ok, err = socket:send(data)
  if not ok then return nil, err end
  return socket:receive(seconds)
end

local count = 0
local paths = {
  ["/echo"] = function() return talk("hello", 1) end,
  ["/empty"] = function() return "[" .. tostring(talk("", 1)) .. "]" end,
  ["/refused"] = function() return talk("hello", 1, 9) end,
  ["/silent"] = function() return talk("silence", 0.5) end,
  ["/late"] = function() return talk("late", 60) end,
  ["/long"] = function() return talk(("x"):rep(65508), 1) end,
  ["/most"] = function() return tostring(#talk(("x"):rep(65507), 1)) end,
  ["/forbidden"] = function() return tide.udp.connect("192.0.2.1", 53) end,
  ["/name"] = function() return tide.udp.connect("not an address", 53) end,
  ["/flood"] = function()
    local socket = assert(tide.udp.connect("10.0.1.1", 9000))
    assert(socket:send("flood"))
    tide.sleep(1)
    local kept = 0
    while socket:receive(0) do kept = kept + 1 end
    return kept .. " kept, then " .. tostring(talk("hello", 1))
  end,
  ["/closed"] = function()
    local socket = assert(tide.udp.connect("10.0.1.1", 9000))
    tide.spawn(function()
      tide.sleep(0.1)
      socket:close()
    end)
    local data, err = socket:receive(10)
    return tostring(data) .. " " .. err .. " " .. select(2, socket:send("late"))
  end,
  ["/busy"] = function()
    local socket = assert(tide.udp.connect("10.0.1.1", 9000))
    tide.spawn(function() socket:receive(0.2) end)
    tide.sleep(0.1)
    return socket:receive(1)
  end,
  ["/many"] = function()
    local sockets = {}
    for at = 1, 100 do
      local socket, err = tide.udp.connect("10.0.1.1", 9000)
      if not socket then return at - 1 .. " " .. err end
      sockets[at] = socket
    end
  end,
  -- Of the storm: any answer is that of the handler's own question, and its end closes the socket.
  ["/storm"] = function()
    count = count + 1
    local question = "q" .. count
    local socket, err = tide.udp.connect("10.0.1.1", 9000)
    if not socket then return "failed: " .. err end
    for _ = 1, 3 do
      local sent = socket:send(question)
      local answer = sent and socket:receive(0.05)
      if answer then return answer == question and "answered" or "mixed" end
    end
    if count % 2 == 0 then socket:close() end
    return "no answer"
  end,
}

return {
  on_start = function()
    tide.timer.every(0.05, function() talk("tick", 0.1) end)
  end,
  on_request = function(request, response)
    local text, err = paths[request.path]()
    response:finish(text or "error: " .. tostring(err))
  end,
  on_access = function(request) request:set_header("X-Answer", talk("hello", 1)) end,
}
