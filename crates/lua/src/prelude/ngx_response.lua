-- The layer `ngx`: responses.
local native, P = ...

local type, tostring, error, select, setmetatable, ipairs = type, tostring, error, select, setmetatable, ipairs
local concat, lower, remove = table.concat, string.lower, table.remove
local ngx, G = P.ngx, P.G
local current, state_of_run, output = P.ngx_current, P.ngx_state, P.ngx_text
local gsub = G.string.gsub
local set_status, set_native_field, finish = native.status, native.set_field, native.finish
local has_ended = native.has_ended

-- Fields that Tidegate sets: values from a script are dropped. `OWN_OF_TIDEGATE` may be changed in responses of servers.
local OWN = { ["content-length"] = true, ["transfer-encoding"] = true, connection = true, ["keep-alive"] = true,
  te = true, trailer = true, upgrade = true, ["proxy-connection"] = true }
local OWN_OF_TIDEGATE = { date = true, server = true }

-- The status: set by the script, or that of the server's response.
function P.ngx_status(state)
  if state.status then return state.status end
  if state.head then return state.head.status end
  return state.response and 200 or 0
end

local function status_argument(value)
  local number = G.tonumber(value)
  if not number then error("bad argument to 'ngx.status' (number expected, got " .. type(value) .. ")", 3) end
  return number
end

P.ngx_getters.status = function() return P.ngx_status(current()) end
P.ngx_setters.status = function(value)
  local state = current()
  if state.is_sent then
    return ngx.log(ngx.ERR, "attempt to set ngx.status after sending out response headers")
  end
  local status = status_argument(value)
  state.status = status
  if state.head then state.head:set_status(status) end
end
P.ngx_getters.headers_sent = function() return current().is_sent == true end

-- ngx.header -------------------------------------------------------------------------------------------------------

-- The value of a field that the script has set: `{ name, lower name, value }` in `state.fields`.
local function find_field(state, key)
  for at, field in ipairs(state.fields) do
    if field[2] == key then return field, at end
  end
end

local function set_field(state, name, value)
  if type(name) ~= "string" then error("bad name of a header field (string expected, got " .. type(name) .. ")", 3) end
  name = gsub(name, "_", "-")
  local key = lower(name)
  value = P.ngx_field_value(value)
  if OWN[key] or OWN_OF_TIDEGATE[key] and not state.head then return end
  if state.head then
    state.head:set_header(name, value)
    return
  end
  local field, at = find_field(state, key)
  if value == nil then
    if field then remove(state.fields, at) end
  elseif field then
    field[1], field[3] = name, value
  else
    state.fields[#state.fields + 1] = { name, key, value }
  end
end

local function field_of(state, name)
  local key = lower((gsub(name, "_", "-")))
  if state.head then return state.head.headers[key] end
  local field = find_field(state, key)
  if field then return field[3] end
  if key == "content-type" and state.response then return "text/plain; charset=utf-8" end
end

ngx.header = setmetatable({}, {
  __index = function(_, name)
    if type(name) ~= "string" then return nil end
    return field_of(current(), name)
  end,
  __newindex = function(_, name, value)
    local state = current()
    if state.is_sent or state.phase == "body_filter" then
      return ngx.log(ngx.ERR, "attempt to set ngx.header." .. tostring(name) .. " after sending out response headers")
    end
    set_field(state, name, value)
  end,
})

ngx.resp = {
  get_headers = function(most)
    local state = current()
    most = most or 100
    local fields, count = {}, 0
    local function add(name, value)
      if most > 0 and count >= most then return false end
      fields[name] = value
      count = count + 1
      return true
    end
    if state.head then
      for name, value in G.pairs(state.head.headers) do
        if not add(name, value) then return fields, "truncated" end
      end
    else
      for _, field in ipairs(state.fields) do
        if not add(field[2], field[3]) then return fields, "truncated" end
      end
      if not fields["content-type"] then fields["content-type"] = field_of(state, "content-type") end
    end
    return fields
  end,
  add_header = function(name, value)
    local state = current()
    local values = field_of(state, name)
    if not find_field(state, lower((gsub(name, "_", "-")))) and not state.head then values = nil end
    if values == nil then values = {} elseif type(values) ~= "table" then values = { values } end
    if type(value) ~= "table" then value = { value } end
    local all = {}
    for _, one in ipairs(values) do all[#all + 1] = one end
    for _, one in ipairs(value) do all[#all + 1] = one end
    ngx.header[name] = all
  end,
}

-- Sets the fields and the status that the access phase has set for the response of the server.
function P.ngx_add_fields(state)
  for _, field in ipairs(state.fields) do state.head:set_header(field[1], field[3]) end
  state.fields = {}
  if state.status then state.head:set_status(state.status) end
  state.status = nil
end

-- Bodies -----------------------------------------------------------------------------------------------------------

-- Sets the status and the fields of the response, which has not begun.
local function begin(state)
  if state.is_sent then return end
  state.is_sent = true
  local response = state.response
  local index, generation = response[1], response[2]
  local ok, err = set_status(index, generation, state.status or 200)
  if not ok then error(err, 3) end
  for _, field in ipairs(state.fields) do
    local value = field[3]
    ok, err = set_native_field(index, generation, field[1], nil, true)
    for at = 1, type(value) == "table" and #value or 1 do
      if ok then
        ok, err = set_native_field(index, generation, field[1], type(value) == "table" and value[at] or value, false)
      end
    end
    if not ok then ngx.log(ngx.ERR, "the field " .. field[1] .. " is not set: " .. err) end
  end
end

-- The state of a request that can be answered.
local function answering(name)
  local state = state_of_run()
  if not state or not state.response then error("API disabled in the context of " .. ngx.get_phase() .. ": " .. name, 3) end
  return state
end

local function send(state, text)
  begin(state)
  if text == "" then return 1 end
  local ok, err = state.response:write(text)
  if not ok then return nil, err end
  return 1
end

local function joined_output(name, ...)
  local count = select("#", ...)
  if count == 1 then return output((...), name, 1) end
  local parts = {}
  for at = 1, count do parts[at] = output((select(at, ...)), name, at) end
  return concat(parts)
end

function ngx.print(...)
  local state = answering("ngx.print")
  return send(state, joined_output("print", ...))
end
function ngx.say(...)
  local state = answering("ngx.say")
  return send(state, joined_output("say", ...) .. "\n")
end
function ngx.flush()
  local state = answering("ngx.flush")
  if has_ended(state.response[1], state.response[2]) then return nil, "seen eof" end
  begin(state)
  local ok, err = state.response:flush()
  if not ok then return nil, err end
  return 1
end
function ngx.send_headers()
  begin(answering("ngx.send_headers"))
  return 1
end

-- Completes the response of a request, unless it is complete.
function P.ngx_finish(state)
  local response = state.response
  if has_ended(response[1], response[2]) then return end
  begin(state)
  finish(response[1], response[2])
  P.ngx_forget(state)
end
function ngx.eof()
  local state = answering("ngx.eof")
  P.ngx_finish(state)
  return 1
end

local REASONS = { [300] = "Multiple Choices", [400] = "Bad Request", [401] = "Authorization Required", [402] = "Payment Required",
  [403] = "Forbidden", [404] = "Not Found", [405] = "Not Allowed", [406] = "Not Acceptable", [408] = "Request Time-out",
  [409] = "Conflict", [410] = "Gone", [413] = "Request Entity Too Large", [415] = "Unsupported Media Type",
  [416] = "Requested Range Not Satisfiable", [421] = "Misdirected Request", [429] = "Too Many Requests",
  [500] = "Internal Server Error", [501] = "Not Implemented", [502] = "Bad Gateway", [503] = "Service Temporarily Unavailable",
  [504] = "Gateway Time-out" }

function ngx.exit(status)
  if type(status) ~= "number" then P.wrong("exit", 1, "number", status) end
  local state = state_of_run()
  if not state or not state.response or state.phase == "timer" then
    if state and state.head and status >= 200 then state.head:set_status(status) end
    return P.ngx_quit(state)
  end
  if status == ngx.ERROR then status = 500 end
  local leaves_phase = state.leaves_phase
  if status >= 200 then
    state.leaves_phase = nil
    if status == ngx.HTTP_CLOSE then
      -- No response: the client gets to know nothing.
      state.response:drop()
      P.ngx_forget(state)
      return P.ngx_quit(state)
    end
    if not state.is_sent then
      if status ~= 200 then state.status = status end
      if status >= 400 or status == 300 then
        local text = status .. " " .. (REASONS[status] or "Error")
        send(state, text .. "\n")
      end
    end
    P.ngx_finish(state)
  elseif state.phase == "content" then
    P.ngx_finish(state)
  elseif leaves_phase and state.is_sent then
    -- The access phase has answered the request.
    state.leaves_phase = nil
    P.ngx_finish(state)
  elseif state.is_sent then
    P.ngx_finish(state)
  end
  P.ngx_quit(state)
end

local REDIRECTS = { [301] = true, [302] = true, [303] = true, [307] = true, [308] = true }
function ngx.redirect(uri, status)
  local state = answering("ngx.redirect")
  if type(uri) ~= "string" then P.wrong("redirect", 1, "string", uri) end
  status = status or 302
  if not REDIRECTS[status] then
    error("only ngx.HTTP_MOVED_TEMPORARILY, ngx.HTTP_MOVED_PERMANENTLY, ngx.HTTP_PERMANENT_REDIRECT, ngx.HTTP_SEE_OTHER, and " ..
      "ngx.HTTP_TEMPORARY_REDIRECT are allowed", 2)
  end
  if state.is_sent then error("attempt to call ngx.redirect after sending out the headers", 2) end
  set_field(state, "Location", uri)
  state.status, state.leaves_phase = status, nil
  P.ngx_finish(state)
  P.ngx_quit(state)
end

function ngx.on_abort() return nil, "lua_check_client_abort is off" end

return P
