-- The application of lua_sends_requests.scene.
local function show(reply, err)
  if not reply then return "error: " .. err end
  return reply.status .. " " .. reply.body
end

local paths = {
  ["/get"] = function()
    local reply, err = tide.http.request { pool = "api", path = "/x", query = { q = "a b" }, headers = { ["X-Key"] = 7 } }
    return show(reply, err) .. " " .. (reply and reply:header("X-From") or "none")
  end,
  ["/head"] = function() return show(tide.http.request { pool = "api", method = "HEAD", path = "/h" }) end,
  ["/post"] = function()
    return show(tide.http.request { pool = "api", path = "/upload", body = ("x"):rep(400000), host = "upload.example" })
  end,
  ["/two"] = function()
    local one = tide.spawn(tide.http.request, { pool = "api", path = "/one" })
    local other = tide.spawn(tide.http.request, { pool = "other", path = "/other" })
    return show(tide.wait(one)) .. ", " .. show(tide.wait(other))
  end,
  ["/large"] = function() return show(tide.http.request { pool = "other", path = "/large", body_max = 10 }) end,
  ["/chunks"] = function() return show(tide.http.request { pool = "other", path = "/chunks", body_max = 10 }) end,
  ["/late"] = function() return show(tide.http.request { pool = "other", path = "/late", timeout = 0.05 }) end,
  ["/cut"] = function() return show(tide.http.request { pool = "other", path = "/cut" }) end,
  ["/down"] = function() return show(tide.http.request { pool = "down" }) end,
  ["/gone"] = function() return show(tide.http.request { pool = "gone", path = "/slow" }) end,
}

return {
  on_request = function(request, response) response:finish(paths[request.path]()) end,
  on_access = function(request, response)
    local reply = tide.http.request { pool = "api", path = "/may", json = { path = request.path } }
    if not reply or reply.status ~= 200 then return response:status(403):finish("no") end
    request:set_header("X-User", reply:json().user)
  end,
}
