-- The application of the simulation of heads that wait.
local WAITS = { ["/hold"] = 5, ["/upper"] = 5, ["/late"] = 100, ["/fail"] = 1 }

return {
  on_response = function(request, response)
    local path = request.path
    local seconds = WAITS[path]
    if seconds then tide.sleep(seconds) end
    if path == "/fail" then error("this hook fails") end
    response:set_header("X-Held", path)
    if path ~= "/upper" then response:keep_body() end
  end,
  on_body = function(_, body)
    for data in function() return body:read() end do body:write((data:upper())) end
  end,
}
