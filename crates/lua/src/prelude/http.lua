-- Requests and responses.
local native, P = ...

local type, tostring, select, error, setmetatable, rawset = type, tostring, select, error, setmetatable, rawset
local find, sub = native.find, string.sub
local part, unescape, decode = native.part, native.unescape, native.json_decode
local wrong = P.wrong

-- Requests --------------------------------------------------------------------------------------------------------

local PARTS = {
  method = 0, path = 1, query_string = 2, host = 3, client = 4, version = 5, scheme = 6, body = 7,
}

-- Adds a value under a name; several values become a list.
local function add(t, name, value)
  local old = t[name]
  if old == nil then
    t[name] = value
  elseif type(old) == "table" then
    old[#old + 1] = value
  else
    t[name] = { old, value }
  end
end

-- Decodes `a=1&b=2`.
local function arguments(text)
  local t, at, last = {}, 1, #text
  while at <= last do
    local stop = find(text, "&", at, true) or last + 1
    if stop > at then
      local pair = sub(text, at, stop - 1)
      local equals = find(pair, "=", 1, true)
      if equals then
        add(t, unescape(sub(pair, 1, equals - 1), true), unescape(sub(pair, equals + 1), true))
      else
        add(t, unescape(pair, true), "")
      end
    end
    at = stop + 1
  end
  return t
end

local function of_pairs(list)
  local t = {}
  for at = 1, #list, 2 do add(t, list[at], list[at + 1]) end
  return t
end

local lower = string.lower
local request = {}
function request:header(name)
  if type(name) ~= "string" then wrong("header", 1, "string", name) end
  return native.field(self[1], self[2], lower(name))
end
function request:json()
  local body = self.body
  if not body or body == "" then return nil, "the request has no body" end
  return decode(body)
end
function request:form() return arguments(self.body or "") end

local DERIVED = {
  query = function(self) return arguments(part(self[1], self[2], 2) or "") end,
  headers = function(self) return of_pairs(native.fields(self[1], self[2])) end,
  params = function(self) return of_pairs(native.params(self[1], self[2])) end,
}

local Request = {
  __metatable = "request",
  __index = function(self, key)
    local method = request[key]
    if method then return method end
    local value
    local number = PARTS[key]
    if number then
      value = part(self[1], self[2], number)
    else
      local derive = DERIVED[key]
      if derive then value = derive(self) end
    end
    if value ~= nil then rawset(self, key, value) end
    return value
  end,
}

-- Responses -------------------------------------------------------------------------------------------------------

local set_status, set_field, write, write_json, flush, finish =
  native.status, native.set_field, native.write, native.write_json, native.flush, native.finish

local function check(ok, err)
  if not ok then error(err, 3) end
end

-- A response that would lack a part of its body must fail: few scripts look at the results of `write`.
local function append(self, data)
  local ok, result, is_incomplete = write(self[1], self[2], data)
  if is_incomplete then error(result, 3) end
  return ok, result
end

local response = {}
function response:status(code)
  if type(code) ~= "number" then wrong("status", 1, "number", code) end
  check(set_status(self[1], self[2], code))
  return self
end
function response:header(name, value)
  if type(name) ~= "string" then wrong("header", 1, "string", name) end
  if type(value) == "table" then
    check(set_field(self[1], self[2], name, nil, true))
    for at = 1, #value do check(set_field(self[1], self[2], name, tostring(value[at]), false)) end
    return self
  end
  if value ~= nil then value = tostring(value) end
  check(set_field(self[1], self[2], name, value, true))
  return self
end
function response:write(...)
  for at = 1, select("#", ...) do
    local data = (select(at, ...))
    local kind = type(data)
    if kind == "number" then
      data = tostring(data)
    elseif kind ~= "string" then
      wrong("write", at, "string", data)
    end
    local ok, must_flush = append(self, data)
    if not ok then return nil, must_flush end
    if must_flush then
      local sent, err = flush(self[1], self[2])
      if not sent then return nil, err end
    end
  end
  return self
end
function response:flush()
  local ok, err = flush(self[1], self[2])
  if not ok then return nil, err end
  return self
end
function response:finish(data)
  if data ~= nil then
    if type(data) == "number" then data = tostring(data) end
    if type(data) ~= "string" then wrong("finish", 1, "string", data) end
    local ok, err = append(self, data)
    if not ok then return nil, err end
  end
  return finish(self[1], self[2])
end
function response:json(value, status)
  if status ~= nil then self:status(status) end
  check(write_json(self[1], self[2], value))
  return finish(self[1], self[2])
end
function response:redirect(target, status)
  if type(target) ~= "string" then wrong("redirect", 1, "string", target) end
  self:status(status or 302)
  self:header("Location", target)
  return finish(self[1], self[2])
end

local Response = { __index = response, __metatable = "response" }

P.new_request = function(index, generation) return setmetatable({ index, generation }, Request) end
P.new_response = function(index, generation) return setmetatable({ index, generation }, Response) end
P.arguments = arguments
return P
