-- The application of the scenes.
local requests = 0
return {
  on_start = function() requests = 0 end,
  on_request = function(request, response)
    requests = requests + 1
    local path = request.path
    if path == "/hello" then
      response:header("X-Worker", tide.worker.id):finish("hello " .. (request.query.name or "nobody"))
    elseif path == "/json" then
      response:json({ message = "Hello, World!" })
    elseif path == "/echo" then
      response:finish(request.body)
    elseif path == "/pieces" then
      response:status(202):write("one,"):flush()
      response:write("two")
    elseif path == "/empty" then
      response:status(204):finish("no content is sent")
    elseif path == "/error" then
      error("this handler fails")
    elseif path == "/late-error" then
      response:write("begun"):flush()
      error("this handler fails after the head")
    elseif path == "/drop" then
      response:drop()
    elseif path == "/loop" then
      while true do end
    elseif path == "/bomb" then
      local t = {}
      while true do t[#t + 1] = string.rep("x", 1000) .. #t end
    else
      response:json({ name = request.params.name }, 404)
    end
  end,
}
