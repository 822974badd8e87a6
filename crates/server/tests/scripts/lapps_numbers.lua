-- A service of LAppS with the raw protocol, for the simulation: "in" subscribes, "large" broadcasts a long text, and a number
-- is broadcast.
local service = { onStart = function() end, onShutdown = function() end, onDisconnect = function() end }

function service.onMessage(handler, _, message)
  if message == "in" then return bcast:subscribe(1, handler) end
  if message == "large" then return bcast:send(1, ("x"):rep(400000)) end
  return bcast:send(1, tonumber(message))
end

return service
