-- The application of simulation/lua_frames.rs: changes messages of forwarded WebSockets as their text says.
return {
  -- Sends faster than a client that grants no window can take.
  on_message = function(client)
    tide.spawn(function()
      while client:send(("x"):rep(100000)) do tide.sleep(0.01) end
    end)
  end,
  on_request = function(_, response) response:finish(tostring(tide.shared.ends:lpop("ends")) .. "<end>") end,
  on_frame = function(frame, tunnel)
    local text = frame.data
    if frame.kind == "close" then
      assert(frame.code and frame.reason and not frame.data)
    elseif text == "drop" then
      return false
    elseif text == "upper" then
      return "UPPER"
    elseif text == "bytes" then
      return "\1\2", "binary"
    elseif text == "invalid" then
      return "\255", "text"
    elseif text == "open" then
      return tostring(tunnel:is_open())
    elseif text == "many" then
      tunnel:send("client", ("x"):rep(100000))
      return false
    elseif #text > 200000 then
      tide.sleep(30)
    elseif text == "large" then
      return ("x"):rep(1024 * 1024), "binary"
    elseif text == "reply" then
      tunnel:send(frame.from, "no " .. tunnel.request.path)
      return false
    elseif text == "count" then
      local state = tunnel:state()
      state.count = (state.count or 0) + 1
      return frame.from .. " " .. state.count
    elseif text == "close" then
      tunnel:close(4000, "as asked")
      assert(not tunnel:is_open() and tunnel:send("client", "late") == nil)
    elseif text == "error" then
      error("on_frame fails")
    elseif text == "table" then
      return {}
    elseif text == "sleep" then
      tide.sleep(1)
      return "slept"
    elseif text == "forever" then
      tide.sleep(1000)
    elseif text == "job" then
      tide.timer.after(1, function() tunnel:close(4001) end)
      tide.sleep(10)
    end
  end,
  on_frame_end = function(tunnel, code, reason)
    tide.shared.ends:rpush("ends", tunnel.request.path .. " " .. code .. " " .. reason)
  end,
}
