-- The application of the test of channels.
return {
  on_open = function(client) client:subscribe("room") end,
  on_message = function(client, message, kind) client:publish("room", message, kind) end,
}
