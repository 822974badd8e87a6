-- The hook of the seeded simulation: lets every request and every response pass, some after a wait,
-- and chooses some of the servers.
local count, ended = 0, 0
return {
  on_access = function(request)
    count = count + 1
    if count % 3 == 0 then tide.sleep(count % 5 / 100) end
    request:set_header("X-Hooked", count)
  end,
  on_balance = function(request, attempt)
    assert(request.method and attempt.number >= 1 and #attempt.servers >= 1)
    count = count + 1
    if count % 3 > 0 then return count % #attempt.servers + 1 end
  end,
  on_response = function(request, response)
    assert(request.method and response.status >= 200)
    count = count + 1
    if count % 4 == 0 then tide.sleep(count % 6 / 100) end
    response:set_header("X-Absent", nil)
  end,
  on_log = function(record)
    ended = ended + 1
    assert(record.total_ms and ended <= count + 1000)
  end,
}
