-- Reads the bodies of requests while they arrive.
local answer = {}

function answer.refuse(_, response) response:status(403):finish("refused") end

function answer.slow(request, response)
  tide.sleep(2)
  return answer.count(request, response)
end

function answer.some(request, response)
  local first = request:read()
  response:finish("some " .. tostring(first ~= nil))
end

function answer.early(request, response)
  response:write("early "):flush()
  local data, err = request:read()
  response:finish(tostring(data) .. " " .. tostring(err))
end

function answer.all(request, response)
  local all, err, part = request:read_all(100)
  response:finish((all or tostring(err) .. " " .. #part))
end

function answer.fail(request)
  request:read()
  error("it fails")
end

function answer.count(request, response)
  local count, sum = 0, 0
  for data in function() return request:read() end do
    count, sum = count + #data, (sum * 31 + data:byte(1) + data:byte(-1)) % 65536
  end
  response:finish("read " .. count)
end

return {
  on_request = function(request, response)
    local data, err = request:read()
    response:finish("whole " .. #request.body .. " " .. tostring(err))
  end,
  on_upload = function(request, response) return answer[request.path:match("^/(%a+)")](request, response) end,
}
