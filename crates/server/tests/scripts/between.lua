-- Code between two others, whose VM is discarded after /hoard.
local kept = {}
return {
  on_handover = function() end,
  on_open = function(client) client:send(client:id()) end,
  on_message = function(client)
    client:state().count = 7
    tide.sleep(1)
    client:send("between")
  end,
  on_request = function(request, response)
    while request.path == "/hoard" do kept[#kept + 1] = ("x"):rep(100000) .. #kept end
    response:finish("between")
  end,
}
