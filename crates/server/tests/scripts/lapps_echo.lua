-- A service of LAppS with the raw protocol, for lapps_services_run_unchanged.scene: sends each message back.
lapps_echo = {}
lapps_echo.__index = lapps_echo

lapps_echo["onStart"] = function() started = os.time() end
lapps_echo["onDisconnect"] = function(handler) end
lapps_echo["onShutdown"] = function() end

lapps_echo["onMessage"] = function(handler, opcode, message)
  if message == "stop" then return false end
  if message == "error" then error("it fails") end
  if message == "leave" then return ws:close(handler, 1000, "bye") end
  local ok, why = ws:send(handler, opcode, message)
  if not ok then print("echo: " .. why) end
  return ok
end

return lapps_echo
