-- A service of LAppS with its own protocol, for lapps_services_run_unchanged.scene and the simulation: sums, and subscriptions
-- to the time and to the results of the benchmark.
local service = {}

local answer = nljson.decode([[{ "status" : 1, "result" : [], "cid" : 0 }]])
local failure = nljson.decode([[{ "status" : 0, "error" : { "code" : -32601, "message" : "No such method" }, "cid" : 0 }]])

service.onStart = function() assert(bcast:create(1000)) end
service.onShutdown = function() end
service.onDisconnect = function(handler) bcast:unsubscribe(1000, handler) end

service.onMessage = function(handler, what, message)
  if what == 2 and message.method == "subscribe" then
    assert(message.cid == 5 and nljson.typename(message.params) == "array")
    return bcast:subscribe(1000, handler)
  end
  if what == 1 and message.method == "results" then
    return bcast:subscribe(2000, handler)
  end
  if what == 4 and message.method == "sum" then
    local sum = 0
    nljson.foreach(message.params, function(_, number) sum = sum + number end)
    answer.result = { sum, #message.params }
    return ws:send(handler, answer)
  end
  ws:send(handler, failure)
  return ws:close(handler, 1003)
end

lapps_calls = service
