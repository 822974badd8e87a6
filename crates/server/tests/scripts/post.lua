-- The application of simulation/lua.rs: clients that reach each other on any worker.
return {
  on_open = function(client)
    tide.shared.clients:rpush("ids", client:id())
    client:send(client:id())
  end,
  on_message = function(client, message)
    local order, id, text = message:match("^(%S+) (%S+) ?(.*)$")
    if order == "to" then
      local other, err = tide.client(id)
      client:send(tostring(other and other:send(text)) .. " " .. tostring(err))
    elseif order == "close" then
      tide.client(id):close(4000, text)
    elseif order == "stuff" then
      local other = tide.client(id)
      local sent, err = other:send(("x"):rep(tonumber(text)))
      client:send(tostring(sent) .. ", " .. tostring(err) .. ", " .. tostring(other:is_open()))
    elseif order == "burst" then
      for _ = 1, tonumber(text) do assert(client:send(("x"):rep(tonumber(id)))) end
    elseif order == "fill" then
      client:send(("x"):rep(tonumber(id)))
    end
  end,
  on_drain = function(client) client:send("drained " .. client:queued()) end,
  on_request = function(request, response) response:finish(tostring(tide.shared.clients:llen("ids"))) end,
}
