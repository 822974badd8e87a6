-- The application of lua_hooks_change_responses.scene.
local seen = {}

return {
  on_access = function(request, response)
    if request.path == "/refused" then response:status(401):finish("no") end
    request:set_header("X-Changed", "yes")
  end,
  on_response = function(request, response)
    local path = request.path
    if path == "/error" then error("this hook fails") end
    if path == "/loop" then while true do end end
    if path == "/sleep" then response:set_header("X-Wait", tostring(tide.sleep(0.05))) end
    if response.status == 404 then response:set_status(410) end
    if path == "/empty" then
      local ok, err = pcall(response.set_status, response, 200)
      response:set_header("X-Status", ok and "set" or (err:match("the status cannot change.*")))
    end
    response:set_header("Server", nil):set_header("X-Path", path):add_header("Set-Cookie", "b=2")
    response:set_header("X-Was", response:header("x-from"))
  end,
  on_log = function(record) seen[#seen + 1] = record.status .. " " .. record.target end,
  on_request = function(_, response)
    response:finish(table.concat(seen, ", "))
    seen = {}
  end,
}
