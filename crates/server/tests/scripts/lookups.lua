-- The application of the simulation of lookups: `/NAME/KIND` resolves a name.
local function show(records, err)
  if not records then return "error: " .. err end
  local parts = {}
  for at, record in ipairs(records) do
    parts[at] = type(record) == "string" and record
      or table.concat({ record.priority, record.weight, record.port, record.target }, " ")
  end
  return table.concat(parts, ",") .. " " .. err
end

local count = 0
return {
  on_request = function(request, response)
    local name, kind = request.path:match("^/([^/]*)/?(%a*)$")
    if name == "many" then
      local jobs, results = {}, {}
      for at = 1, 200 do
        jobs[at] = tide.spawn(function()
          local _, err = tide.dns.resolve("silent" .. at .. ".example")
          results[err] = (results[err] or 0) + 1
        end)
      end
      for _, job in ipairs(jobs) do tide.wait(job) end
      return response:finish(tostring(results.timeout) .. " " .. tostring(results["too many lookups are in progress"]))
    elseif name == "udp" then
      local socket = assert(tide.udp.connect("echo.example", 9000))
      assert(socket:send("hello"))
      return response:finish(socket:receive(1))
    elseif name == "storm" then
      count = count + 1
      local number = count % 20
      local records, err = tide.dns.resolve("n" .. number .. ".example")
      return response:finish(not records and err or records[1] == "10.0.0." .. number and "found" or "mixed")
    end
    response:finish(show(tide.dns.resolve(name, kind ~= "" and kind or nil)))
  end,
  on_access = function(request) request:set_header("X-Address", show(tide.dns.resolve("a.example"))) end,
}
