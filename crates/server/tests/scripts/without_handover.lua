-- Code that takes over no clients.
return {
  on_message = function(client, message) client:send("other " .. message) end,
  on_request = function(request, response) response:finish("other") end,
}
