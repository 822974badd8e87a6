-- Messages of forwarded WebSockets.
local native, P = ...

local type, error, tostring, setmetatable, rawset = type, error, tostring, setmetatable, rawset
local new_request, message_of, ending = P.new_request, P.message_of, P.ending
local drop, replace = native.frame_drop, native.frame_replace

-- Tunnels by index. A tunnel holds its index, its generation, its request's index and generation, and its state once a
-- script has called `state`.
local tunnels = {}

local tunnel = {}
function tunnel:send(to, data, kind)
  if to ~= "client" and to ~= "server" then
    error("bad argument #1 to 'send' (\"client\" or \"server\" expected)", 2)
  end
  local bytes, is_text = message_of("send", 2, data, kind)
  return native.frame_send(self[1], self[2], to == "client", bytes, is_text)
end
function tunnel:close(code, reason)
  code, reason = ending(code, reason)
  return native.tunnel_close(self[1], self[2], code, reason)
end
function tunnel:is_open() return native.tunnel_is_open(self[1], self[2]) end
function tunnel:state()
  local state = self[5]
  if not state then
    state = {}
    self[5] = state
  end
  return state
end

local Tunnel = {
  __metatable = "tunnel",
  __index = function(self, key)
    if key ~= "request" then return tunnel[key] end
    local request = new_request(self[3], self[4])
    rawset(self, "request", request)
    return request
  end,
}

function P.tunnel_of(index, generation, request_index, request_generation)
  local found = tunnels[index]
  if not found or found[2] ~= generation then
    found = setmetatable({ index, generation, request_index, request_generation }, Tunnel)
    tunnels[index] = found
  end
  return found
end

function P.forget_tunnel(index) tunnels[index] = nil end

-- The results of on_frame: what becomes of a message of this kind.
function P.decide_frame(index, generation, kind, result, new_kind)
  if result == nil or result == true then return end
  if kind == "close" then
    error("on_frame must return nothing for a Close frame; use tunnel:close to send another one", 0)
  end
  if result == false then
    drop(index, generation)
    return
  end
  if type(result) == "number" then result = tostring(result) end
  if type(result) ~= "string" then
    error("on_frame must return nil, false or a string, it returned: " .. type(result), 0)
  end
  if new_kind == nil then new_kind = kind end
  if new_kind ~= "text" and new_kind ~= "binary" then
    error("on_frame: the second result must be \"text\" or \"binary\"", 0)
  end
  local ok, err = replace(index, generation, result, new_kind == "text")
  -- The original message must not take the place of one that cannot be sent.
  if not ok then error("on_frame: " .. err, 0) end
end

return P
