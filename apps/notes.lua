-- A JSON REST service for notes, which all workers share.
--
--   [[route]]
--   path = ["/notes", "/notes/{id}"]
--   lua = "notes"
--   [lua.notes]
--   script = "apps/notes.lua"
--   shared = { notes = "16MiB" }
--
-- GET /notes, POST /notes, GET /notes/{id}, PUT /notes/{id}, DELETE /notes/{id}. A note is any JSON object. If the dictionary
-- is full, the least recently used notes are removed. All notes are lost when the process ends.

local TEXT_BYTES_MAX = 4096

local function fail(response, status, text) return response:json({ error = text }, status) end

-- The note in the request's body as JSON; nil and an error if it is not valid.
local function note_of(request)
  local note, err = request:json()
  if type(note) ~= "table" then return nil, err or "a note is a JSON object" end
  local text = tide.json.encode(note)
  if #text > TEXT_BYTES_MAX then return nil, "a note has up to " .. TEXT_BYTES_MAX .. " bytes" end
  return text
end

local function list(_, response)
  local ids = tide.json.array()
  for _, key in ipairs(tide.shared.notes:keys(1000)) do
    local id = key:match("^note (%d+)$")
    if id then ids[#ids + 1] = id end
  end
  response:json({ notes = ids })
end

local function create(request, response)
  local text, err = note_of(request)
  if not text then return fail(response, 400, err) end
  local id
  repeat id = tide.shared.notes:incr("last", 1, 0) until tide.shared.notes:add("note " .. id, text)
  response:header("Location", "/notes/" .. id):json({ id = tostring(id) }, 201)
end

local methods = {}

function methods.GET(_, response, key)
  local text = tide.shared.notes:get(key)
  if not text then return fail(response, 404, "there is no such note") end
  response:header("Content-Type", "application/json"):finish(text)
end

function methods.PUT(request, response, key)
  local text, err = note_of(request)
  if not text then return fail(response, 400, err) end
  if not tide.shared.notes:replace(key, text) then return fail(response, 404, "there is no such note") end
  response:status(204):finish()
end

function methods.DELETE(_, response, key)
  if not tide.shared.notes:delete(key) then return fail(response, 404, "there is no such note") end
  response:status(204):finish()
end

return {
  on_request = function(request, response)
    local id = request.params.id
    if not id then
      if request.method == "GET" then return list(request, response) end
      if request.method == "POST" then return create(request, response) end
      return response:header("Allow", "GET, POST"):status(405):finish()
    end
    local method = methods[request.method]
    if not method then return response:header("Allow", "GET, PUT, DELETE"):status(405):finish() end
    method(request, response, "note " .. id)
  end,
}
