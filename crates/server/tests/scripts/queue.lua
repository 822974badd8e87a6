-- The applications of the tests of queues: a path that ends with `pop` waits for a value; any other path is pushed.
local queue = tide.queue.jobs
return {
  on_request = function(request, response)
    if request.path:find("pop$") then
      local value, err = queue:pop(30)
      return response:finish(tide.app .. tide.worker.id .. " " .. tostring(value or err))
    end
    response:finish(tostring(queue:push(request.path)))
  end,
}
