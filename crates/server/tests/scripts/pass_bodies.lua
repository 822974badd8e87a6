-- The hook of the seeded simulation that has the bodies of responses: passes them in several manners, without a change.
local count = 0
local manners = {
  function(body)
    for data in function() return body:read() end do body:write(data) end
  end,
  function() end,
  function(body)
    tide.sleep(count % 7 / 50)
    body:write(body:read() or "")
    tide.sleep(count % 3 / 50)
  end,
  function(body)
    local text, err, part = body:read_all(10000)
    body:write(text or part)
  end,
  function(body)
    while true do
      local data, err = body:read()
      if not data then return end
      for at = 1, #data, 1000 do body:write(data:sub(at, at + 999)) end
      body:flush()
    end
  end,
}
return {
  on_response = function(_, response)
    count = count + 1
    local number = count
    if number % 5 < 2 then tide.sleep(number % 4 / 50) end
    if number % 6 == 0 then response:keep_body() end
  end,
  on_body = function(request, body)
    assert(request.method and body.status >= 200)
    manners[count % #manners + 1](body)
  end,
}
