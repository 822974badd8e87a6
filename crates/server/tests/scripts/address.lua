-- Sends the client's address back.
return {
  on_request = function(request, response) response:finish(request.client) end,
  on_message = function(client, message) client:send(message) end,
}
