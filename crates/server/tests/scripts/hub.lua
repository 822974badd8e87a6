-- The application of the simulation of hubs whose backend is in Lua.
local left, emptied = 0, 0

local handlers = {}

function handlers.connect(event)
  local data = event.data or {}
  if data.wait then tide.sleep(data.wait) end
  if data.banned then return { disconnect = { code = 4403, reason = "banned" } } end
  if data.unknown then return nil end
  if data.broken then error("it fails") end
  return { user = data.user or "7", data = { cookie = event.headers.cookie }, expire_at = data.ends and tide.now() + 1 }
end

function handlers.subscribe(event) return event.channel ~= "closed", "closed to " .. event.user end

function handlers.publish(event)
  if type(event.data) ~= "table" then return true end
  if event.data.wait then tide.sleep(event.data.wait) end
  if event.data.large then return { data = ("x"):rep(100000) } end
  return { data = { from = event.user, text = event.data.text:upper() }, tags = { by = event.hub } }
end

function handlers.rpc(event)
  if event.method == "counts" then return { data = { left, emptied } } end
  if event.method == "tell" then
    local ok, err = tide.push.p:publish("r", "told by " .. event.user)
    return { data = ok and "told" or err }
  end
  return nil, { code = 1000, message = "there is no " .. event.method }
end

function handlers.refresh(event) return event.user ~= "old" and { expire_at = tide.now() + 1000 } end
function handlers.disconnect(event)
  if event.user == "bad" then error("it fails") end
  left = left + 1
end
function handlers.channel_empty(event) emptied = emptied + #event.channel end

return { on_push = function(event) return handlers[event.type](event) end }
