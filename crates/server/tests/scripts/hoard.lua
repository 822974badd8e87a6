-- Each request of /hoard keeps 200 kB while its handler waits.
local count = 0
return {
  on_request = function(request, response)
    if request.path == "/short" then return response:finish("short") end
    count = count + 1
    local kept = count .. ("x"):rep(200000)
    tide.sleep(1000000)
    response:finish(kept)
  end,
}
