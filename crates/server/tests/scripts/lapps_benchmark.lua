-- A standalone service of LAppS, for the simulation: connections that echo to each other through a
-- server, as fast as they can, and a queue for the result.
lapps_benchmark = { count = 0, most = 3 }
local results = mqr.create("results")

function lapps_benchmark.init() print("instance " .. instance_id) end

function lapps_benchmark.run()
  local sockets = {}
  while #sockets < lapps_benchmark.most and not must_stop() do
    local socket, why = cws:new("ws://127.0.0.1:5083/echo", {
      onopen = function(handler) assert(cws:send(handler, "ZZZZ", 2)) end,
      onmessage = function(handler, message, opcode)
        assert(message == "ZZZZ" and opcode == 2)
        lapps_benchmark.count = lapps_benchmark.count + 1
        cws:send(handler, message, opcode)
      end,
      onerror = function(handler, message) print(handler .. " has failed: " .. message) end,
      onclose = function(handler) print(handler .. " is closed") end,
    })
    if socket then sockets[#sockets + 1] = socket else nap:new():usleep(10000) end
  end
  while lapps_benchmark.count < 60 and not must_stop() do cws:eventLoop() end
  for at = 1, #sockets do
    sockets[at]:close()
    cws:eventLoop()
  end
  local ok, why = results:post(nljson.decode('{ "done": true }'))
  assert(ok, why)
  local result = results:recv()
  while not must_stop() do
    nap:new():usleep(20000)
    bcast:send(2000, result)
  end
end

return lapps_benchmark
