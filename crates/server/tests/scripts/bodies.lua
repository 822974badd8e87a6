-- The application of lua_hooks_change_bodies.scene and of the simulation of bodies.
local handlers = {}

handlers["/upper"] = function(body)
  for data in function() return body:read() end do body:write((data:upper())) end
end
handlers["/whole"] = function(body)
  local text = body:read_all()
  body:write("[", #text, " ", body:header("X-Kind"), " ", body.status, "]")
end
handlers["/prefix"] = function(body) body:write("begin ") end
handlers["/drop"] = function(body)
  while body:read() do end
end
handlers["/sleep"] = function(body)
  local text = body:read_all()
  tide.sleep(0.05)
  body:write(text, "!")
end
handlers["/large"] = function(body)
  local text, err, part = body:read_all(1000)
  assert(text == nil and err == "too large")
  body:write(part)
end
handlers["/fail"] = function(body)
  body:write((body:read()))
  body:flush()
  error("this hook fails")
end
handlers["/loop"] = function() while true do end end
handlers["/sent"] = function(body)
  local ok, err = pcall(function() return body.set_header(body, "a", "b") end)
  body:write(tostring(ok), " ", err:match("nil value") or err)
end
handlers["/hold"] = function(body)
  tide.sleep(50)
  while true do
    local data = body:read()
    if not data then return end
    body:write(data)
  end
end
handlers["/leave"] = function() tide.sleep(1) end
handlers["/grow"] = function(body)
  while true do
    local data = body:read()
    if not data then return end
    for _ = 1, 20 do body:write(data) end
  end
end

return {
  on_access = function(request, response)
    if request.path == "/answer" then response:finish("answer") end
  end,
  on_response = function(request, response)
    if request.path == "/kept" then response:keep_body():set_header("X-Kept", "yes") end
  end,
  on_body = function(request, body)
    local handler = handlers[request.path]
    if handler then return handler(body) end
    for data in function() return body:read() end do body:write(data) end
  end,
}
