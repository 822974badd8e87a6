-- Code whose on_start fails in one of the workers.
return {
  on_start = function()
    if tide.worker.id == 1 then error("no luck") end
  end,
  on_request = function(request, response) response:finish("never") end,
}
