-- Always has a coroutine that is ready, until a request stops it.
local runs = false
local function again()
  if runs then tide.spawn(again) end
end
return {
  on_request = function(request, response)
    runs = not runs
    again()
    response:finish(runs and "begun" or "stopped")
  end,
}
