-- Requests and responses.
local native, P = ...

local type, tostring, select, error, pairs, ipairs, setmetatable, rawset =
  type, tostring, select, error, pairs, ipairs, setmetatable, rawset
local rawget = rawget
local find, sub = native.find, string.sub
local part, unescape, decode = native.part, native.unescape, native.json_decode
local wrong = P.wrong

-- Requests --------------------------------------------------------------------------------------------------------

local PARTS = {
  method = 0, path = 1, query_string = 2, host = 3, client = 4, version = 5, scheme = 6, body = 7,
  user = 8,
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

-- Calls `take` with `state`, the name and the value of each part of `a=1&b`, until it returns true. The value is nil without a `=`.
local function each_argument(text, take, state)
  local at, last = 1, #text
  while at <= last do
    local stop = find(text, "&", at, true) or last + 1
    if stop > at then
      local pair = sub(text, at, stop - 1)
      local equals = find(pair, "=", 1, true)
      local name = unescape(equals and sub(pair, 1, equals - 1) or pair, true)
      local value
      if equals then value = unescape(sub(pair, equals + 1), true) end
      if take(state, name, value) then return end
    end
    at = stop + 1
  end
end

local function add_argument(t, name, value) add(t, name, value or "") end

-- Decodes `a=1&b=2`.
local function arguments(text)
  local t = {}
  each_argument(text, add_argument, t)
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

-- Changes, which only on_access may make ----------------------------------------------------------------------------

local change_field, set_path, set_query, choose_pool, escape =
  native.change_field, native.set_path, native.set_query, native.choose_pool, native.escape
-- The sort of the sandbox, which the budget can stop.
local sort, concat = P.G.table.sort, table.concat

-- Forgets a value that was read before. A store of nil under a new key would make the table larger.
local function forget(self, key)
  if rawget(self, key) ~= nil then rawset(self, key, nil) end
end

local function check(ok, err)
  if not ok then error(err, 3) end
end

function request:set_header(name, value)
  if type(name) ~= "string" then wrong("set_header", 1, "string", name) end
  if type(value) == "table" then
    check(change_field(self[1], self[2], name, nil))
    for at = 1, #value do check(change_field(self[1], self[2], name, tostring(value[at]), false)) end
  else
    if value ~= nil and type(value) ~= "string" then value = tostring(value) end
    check(change_field(self[1], self[2], name, value, true))
  end
  forget(self, "headers")
  return self
end

function request:set_method(method)
  if type(method) ~= "string" then wrong("set_method", 1, "string", method) end
  check(native.set_method(self[1], self[2], method))
  forget(self, "method")
  return self
end

function request:set_host(host)
  if type(host) ~= "string" then wrong("set_host", 1, "string", host) end
  check(native.set_host(self[1], self[2], host))
  forget(self, "host")
  return self
end

function request:set_path(path)
  if type(path) ~= "string" then wrong("set_path", 1, "string", path) end
  check(set_path(self[1], self[2], path))
  forget(self, "path")
  return self
end

-- Encodes a table of arguments, in the order of their names.
local function encode_arguments(t)
  local names, parts = {}, {}
  for name in pairs(t) do
    if type(name) ~= "string" then error("the names of arguments must be strings", 3) end
    names[#names + 1] = name
  end
  sort(names)
  for _, name in ipairs(names) do
    local values = t[name]
    if type(values) ~= "table" then values = { values } end
    for at = 1, #values do parts[#parts + 1] = escape(name) .. "=" .. escape(tostring(values[at])) end
  end
  return concat(parts, "&")
end

function request:set_query(query)
  if type(query) == "table" then
    query = encode_arguments(query)
  elseif query ~= nil and type(query) ~= "string" then
    wrong("set_query", 1, "string, table or nil", query)
  end
  check(set_query(self[1], self[2], query))
  forget(self, "query")
  forget(self, "query_string")
  return self
end

function request:set_pool(name)
  if type(name) ~= "string" then wrong("set_pool", 1, "string", name) end
  check(choose_pool(self[1], self[2], name))
  return self
end

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

local set_status, set_field, write, finish_json, flush, finish =
  native.status, native.set_field, native.write, native.finish_json, native.flush, native.finish

-- A response that would lack a part of its body must fail: few scripts check the results of `write`.
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
  check(finish_json(self[1], self[2], value))
  return true
end
function response:redirect(target, status)
  if type(target) ~= "string" then wrong("redirect", 1, "string", target) end
  self:status(status or 302)
  self:header("Location", target)
  return finish(self[1], self[2])
end

function response:drop() return native.drop_response(self[1], self[2]) end

local Response = { __index = response, __metatable = "response" }
P.response_methods, P.append = response, append

-- Heads of servers' responses, which only on_response may change ------------------------------------------------------

local set_reply_status, change_reply_field = native.set_reply_status, native.change_reply_field

local head = {}
function head:header(name)
  if type(name) ~= "string" then wrong("header", 1, "string", name) end
  local value = self.headers[lower(name)]
  if type(value) == "table" then return concat(value, ", ") end
  return value
end
function head:set_status(code)
  if type(code) ~= "number" then wrong("set_status", 1, "number", code) end
  check(set_reply_status(self[1], self[2], code))
  return self
end
function head:set_header(name, value)
  if type(name) ~= "string" then wrong("set_header", 1, "string", name) end
  check(change_reply_field(self[1], self[2], name, nil))
  if type(value) == "table" then
    for at = 1, #value do check(change_reply_field(self[1], self[2], name, tostring(value[at]))) end
  elseif value ~= nil then
    check(change_reply_field(self[1], self[2], name, tostring(value)))
  end
  forget(self, "headers")
  return self
end
function head:add_header(name, value)
  if type(name) ~= "string" then wrong("add_header", 1, "string", name) end
  local values = self.headers[lower(name)]
  if type(values) ~= "table" then values = { values } end
  values[#values + 1] = tostring(value)
  return self:set_header(name, values)
end

local Head = {
  __metatable = "head of a response",
  __index = function(self, key)
    if key == "status" then return native.reply_status(self[1], self[2]) end
    if key == "headers" then
      local headers = of_pairs(native.reply_fields(self[1], self[2]))
      rawset(self, "headers", headers)
      return headers
    end
    return head[key]
  end,
}

-- Bodies of servers' responses, for on_body only --------------------------------------------------------------------

local body_take, body_wait = native.body_take, native.body_wait
-- How many bytes `read_all` reads by default.
local ALL_BYTES = 1024 * 1024

function head:keep_body()
  check(native.keep_body(self[1], self[2]))
  return self
end

-- The response counts as a failure of its server (`eject`).
function head:mark_failed()
  check(native.mark_failed(self[1], self[2]))
  return self
end

local body = { header = head.header, write = response.write, flush = response.flush }

-- The next piece; nil at the end. What was written is sent before it waits.
function body:read()
  while true do
    local data, err = body_take(self[1], self[2])
    if data then return data end
    if data == false then return nil end
    if err then return nil, err end
    local ok
    ok, err = body_wait(self[1], self[2])
    if not ok then return nil, err end
  end
end

-- Everything up to the end; nil, an error and what was read, if that is more than `most` bytes.
function body:read_all(most)
  if most == nil then most = ALL_BYTES end
  if type(most) ~= "number" then wrong("read_all", 1, "number", most) end
  local parts, bytes = {}, 0
  while true do
    local data, err = self:read()
    if not data then
      if err then return nil, err, concat(parts) end
      return concat(parts)
    end
    parts[#parts + 1] = data
    bytes = bytes + #data
    if bytes > most then return nil, "too large", concat(parts) end
  end
end

-- Bodies of requests, for on_upload only ----------------------------------------------------------------------------

local upload_take, upload_wait = native.upload_take, native.upload_wait

-- The next piece; nil at the end.
function request:read()
  while true do
    local data, err = upload_take(self[1], self[2])
    if data then return data end
    if data == false then return nil end
    if err then return nil, err end
    local ok
    ok, err = upload_wait(self[1], self[2])
    if not ok then return nil, err end
  end
end
request.read_all = body.read_all

local Body = {
  __metatable = "body of a response",
  __index = function(self, key)
    if key == "status" or key == "headers" then return Head.__index(self, key) end
    return body[key]
  end,
}

P.new_body = function(index, generation) return setmetatable({ index, generation }, Body) end
P.new_head = function(index, generation) return setmetatable({ index, generation }, Head) end
P.new_request = function(index, generation) return setmetatable({ index, generation }, Request) end
P.new_response = function(index, generation) return setmetatable({ index, generation }, Response) end
P.arguments, P.encode_arguments, P.add, P.each_argument = arguments, encode_arguments, add, each_argument
return P
