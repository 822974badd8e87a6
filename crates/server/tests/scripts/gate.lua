-- The application of lua_hooks_decide_about_requests.scene.
return {
  on_access = function(request, response)
    local path = request.path
    if path == "/refused" then
      return response:status(401):header("WWW-Authenticate", "Bearer"):finish("no token\n")
    elseif path == "/forgotten" then
      response:status(403)
    elseif path == "/error" then
      error("this hook fails")
    elseif path == "/loop" then
      while true do end
    elseif path == "/dropped" then
      response:drop()
    elseif path == "/dots" then
      request:set_path("/a/%2e%2e/b")
    elseif path == "/changed" then
      request:set_path("/new/" .. request.query.id)
      request:set_query({ q = "a b", n = { 1, 2 } })
      request:set_header("X-User", "ann"):set_header("X-Debug", nil)
      request:set_header("X-Forwarded-For", "203.0.113.9")
    elseif path == "/moved" then
      request:set_method("PUT"):set_host("b.example:81")
    elseif path == "/other" then
      request:set_pool("other")
    elseif path == "/upload" then
      tide.sleep(0.05)
      request:set_header("X-User", "bob")
      request:set_pool("other")
    elseif path == "/streamed" then
      response:write("one "):flush()
      tide.sleep(0.01)
      response:finish("two")
    elseif path == "/forever" then
      tide.sleep(1000000)
    end
  end,
}
