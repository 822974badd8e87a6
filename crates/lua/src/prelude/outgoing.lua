-- Requests to the servers of pools.
local native, P = ...

local type, tostring, error, pairs, ipairs, setmetatable = type, tostring, error, pairs, ipairs, setmetatable
local find, sub, lower = native.find, string.sub, string.lower
-- The sort of the sandbox, which the budget can stop.
local sort, concat = P.G.table.sort, table.concat
local encode, decode, check_field = native.json_encode, native.json_decode, native.check_field
local wrong, add = P.wrong, P.add

local SECONDS, RESPONSE_BYTES = 60, 1024 * 1024
local OPTIONS = { pool = "string", path = "string", query = "any", method = "string", host = "string", headers = "table",
  body = "string", json = "any", timeout = "number", body_max = "number" }
local NAMES = "pool, path, query, method, host, headers, body, json, timeout, body_max"

local function check_options(options)
  for name, value in pairs(options) do
    local expected = OPTIONS[name]
    if not expected then
      error("unknown option '" .. tostring(name) .. "' of 'tide.http.request'; the options are " .. NAMES, 3)
    end
    if expected ~= "any" and type(value) ~= expected then
      error("bad option '" .. name .. "' of 'tide.http.request' (" .. expected .. " expected, got " .. type(value) .. ")", 3)
    end
  end
end

-- The fields as lines, in the order of their names; whether Content-Type is among them.
local function lines_of(headers)
  local names, lines, has_type = {}, {}, false
  for name in pairs(headers) do
    if type(name) ~= "string" then error("the names of headers must be strings", 3) end
    names[#names + 1] = name
  end
  sort(names)
  for _, name in ipairs(names) do
    local values = headers[name]
    if type(values) ~= "table" then values = { values } end
    has_type = has_type or lower(name) == "content-type"
    for at = 1, #values do
      local value = tostring(values[at])
      local ok, err = check_field(name, value)
      if not ok then error(err, 3) end
      lines[#lines + 1] = name .. ": " .. value .. "\n"
    end
  end
  return concat(lines), has_type
end

-- The fields of a response by their names.
local function headers_of(lines)
  local headers, at = {}, 1
  while at <= #lines do
    local colon, stop = find(lines, ": ", at, true), find(lines, "\n", at, true)
    add(headers, sub(lines, at, colon - 1), sub(lines, colon + 2, stop - 1))
    at = stop + 1
  end
  return headers
end

local reply = {}
function reply:json() return decode(self.body) end
function reply:header(name)
  if type(name) ~= "string" then wrong("header", 1, "string", name) end
  local value = self.headers[lower(name)]
  if type(value) == "table" then return concat(value, ", ") end
  return value
end
local Reply = { __index = reply }

local pools = {}
for at, name in ipairs(native.pool_names()) do pools[name] = at - 1 end
P.pools, P.send_request = pools, native.send_request

local function target_of(options)
  local path, query = options.path or "/", options.query
  if type(query) == "table" then
    query = P.encode_arguments(query)
  elseif query ~= nil and type(query) ~= "string" then
    error("bad option 'query' of 'tide.http.request' (string or table expected, got " .. type(query) .. ")", 3)
  end
  if query == nil or query == "" then return path end
  return path .. (find(path, "?", 1, true) and "&" or "?") .. query
end

local http = {}
function http.request(options)
  if type(options) ~= "table" then wrong("tide.http.request", 1, "table", options) end
  check_options(options)
  local pool = pools[options.pool]
  if not pool then
    error("the pool '" .. tostring(options.pool) .. "' is not among `pools` of [lua." .. P.tide.app .. "]", 2)
  end
  local target, body = target_of(options), options.body
  local lines, has_type = lines_of(options.headers or {})
  if options.json ~= nil then
    if body then error("a request has either 'body' or 'json'", 2) end
    local text, err = encode(options.json)
    if not text then return nil, err end
    body = text
    if not has_type then lines = lines .. "content-type: application/json\n" end
  end
  local ok, content, status, fields = P.send_request(pool, options.method or (body and "POST" or "GET"), target,
    options.host, lines, body, options.timeout or SECONDS, options.body_max or RESPONSE_BYTES)
  if not ok then return nil, content end
  return setmetatable({ status = status, headers = headers_of(fields), body = content }, Reply)
end
P.tide.http = P.sealed("tide.http", http)
P.headers_of, P.lines_of = headers_of, lines_of

return P
