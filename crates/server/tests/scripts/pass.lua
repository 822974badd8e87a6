-- The hook of the seeded simulation: lets every request pass, some after a wait.
local count = 0
return {
  on_access = function(request)
    count = count + 1
    if count % 3 == 0 then tide.sleep(count % 5 / 100) end
    request:set_header("X-Hooked", count)
  end,
}
