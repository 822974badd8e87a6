-- The application of the simulation of hooks that choose servers.
return {
  on_access = function(request)
    if request.path:find("^/later") then tide.sleep(0.01) end
    request:set_header("X-Seen", "yes")
  end,
  on_balance = function(request, attempt)
    assert(attempt.pool == "p" and #attempt.servers == 3 and request:header("x-seen") == "yes")
    local wanted = request.path:match("(%d)$")
    if request.path:find("^/next") then
      -- The server after the one that was tried.
      for at, server in ipairs(attempt.servers) do
        if server.was_tried then return at % 3 + 1 end
      end
    end
    if request.path == "/error" then error("it fails") end
    if request.path == "/loop" then while true do end end
    if request.path == "/none" then return "none" end
    return tonumber(wanted)
  end,
  on_response = function(request, response)
    if response:header("x-broken") then response:mark_failed() end
  end,
}
