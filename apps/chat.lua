-- A chat with rooms: clients of one worker in the same room see each other's messages. A client that enters a room gets the
-- room's last messages.
--
--   [[route]]
--   path = "/chat/{room}"
--   lua = "chat"
--   [lua.chat]
--   script = "apps/chat.lua"
--   settings = { history = 20 }
--
-- Each worker has its own rooms: run with `workers = 1`, or run several such processes behind a load balancer that sends all
-- clients of a room to the same process.

local HISTORY_MAX = tide.config.history or 20
local NAME_BYTES_MAX = 32
local TEXT_BYTES_MAX = 2000

-- The rooms by name. A room has its `members` by the id of their clients, their `count`, and the last messages (`history`).
local rooms = {}

local function enter(name, client)
  local room = rooms[name]
  if not room then
    room = { name = name, members = {}, count = 0, history = {} }
    rooms[name] = room
  end
  room.members[client:id()] = client
  room.count = room.count + 1
  return room
end

local function leave(room, client)
  room.members[client:id()] = nil
  room.count = room.count - 1
  if room.count == 0 then rooms[room.name] = nil end
end

local function tell(room, event)
  local text = tide.json.encode(event)
  for _, member in pairs(room.members) do member:send(text) end
  return text
end

return {
  on_open = function(client, request)
    local state = client:state()
    local name = request.query.name
    state.name = type(name) == "string" and #name <= NAME_BYTES_MAX and name or "guest"
    state.room = enter(request.params.room or "lobby", client)
    for _, text in ipairs(state.room.history) do client:send(text) end
    tell(state.room, { event = "joined", name = state.name, members = state.room.count })
  end,

  on_message = function(client, message, kind)
    local state = client:state()
    if kind ~= "text" or #message > TEXT_BYTES_MAX then
      return client:close(1008, "a message must be text of up to 2000 bytes")
    end
    local text = tell(state.room, { event = "said", name = state.name, text = message, at = tide.now() })
    local history = state.room.history
    history[#history + 1] = text
    if #history > HISTORY_MAX then table.remove(history, 1) end
  end,

  on_close = function(client)
    local state = client:state()
    if not state.room then return end
    leave(state.room, client)
    tell(state.room, { event = "left", name = state.name, members = state.room.count })
  end,

  -- A browser that opens the address gets the number of members.
  on_request = function(request, response)
    local room = rooms[request.params.room or "lobby"]
    response:json({ room = request.params.room, members = room and room.count or 0 })
  end,
}
