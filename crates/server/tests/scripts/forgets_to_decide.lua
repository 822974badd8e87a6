-- Code that decides about requests only in its first VM, which runs out of memory at /hoard.
local is_first = tide.shared.vms:incr("count", 1, 0) == 1
local kept = {}

local function decide(request, response)
  while request.path == "/hoard" do kept[#kept + 1] = ("x"):rep(100000) .. #kept end
  response:status(403):finish("refused")
end

return { on_access = is_first and decide or nil, on_log = function() end }
