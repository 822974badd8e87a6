-- The layer `ngx`: requests, and the variables of nginx.
local native, P = ...

local type, tostring, error, pairs, tonumber, setmetatable, rawget = type, tostring, error, pairs, tonumber, setmetatable, rawget
local concat, lower, sub = table.concat, string.lower, string.sub
local ngx, G, find, unescape, escape = P.ngx, P.G, native.find, native.unescape, native.escape
local current, state_of_run, decode_args = P.ngx_current, P.ngx_state, P.ngx_decode_args
local gsub, gmatch, match = G.string.gsub, G.string.gmatch, G.string.match

local req = {}
ngx.req = req

-- The parts of a request as the script has changed them: the method, the path, the query, the fields.
local function method_of(state) return state.method or state.request.method end

-- A decoded path without the segments `.` and `..` and without empty ones: scripts compare it with the paths that they protect.
local function normalized(path)
  if not (match(path, "/%.?%.?/") or match(path, "/%.%.?$")) then return path end
  local segments = {}
  for segment in gmatch(path, "[^/]+") do
    if segment == ".." then
      segments[#segments] = nil
    elseif segment ~= "." then
      segments[#segments + 1] = segment
    end
  end
  local is_folder = match(path, "/%.?%.?$") and #segments > 0
  return "/" .. concat(segments, "/") .. (is_folder and "/" or "")
end

local function uri_of(state)
  if state.uri then return state.uri end
  return normalized(unescape(state.request.path, false))
end
-- The target as received; `state.target` keeps it once the script changes the path or the query.
local function target_of(state)
  local query = state.request.query_string
  return state.target or state.request.path .. (query and "?" .. query or "")
end

local function args_of(state)
  if state.args ~= nil then return state.args or nil end
  return state.request.query_string
end

-- Names may contain `_` instead of `-`, and are case-insensitive.
local Fields = { __index = function(t, key)
  if type(key) ~= "string" then return nil end
  return rawget(t, (gsub(lower(key), "_", "-")))
end }

-- The fields of the request by name in lower case, with the changes of the script.
local function fields_of(state)
  local fields = state.request_fields
  if not fields then
    fields = {}
    for name, value in pairs(state.request.headers) do fields[name] = value end
    state.request_fields = fields
  end
  return fields
end

local FIELDS_MAX = 100
function req.get_headers(most, is_raw)
  local state = current()
  most = most or FIELDS_MAX
  local fields, count = {}, 0
  for name, value in pairs(fields_of(state)) do
    local values = type(value) == "table" and #value or 1
    if most > 0 and count + values > most then return setmetatable(fields, Fields), "truncated" end
    count = count + values
    if type(value) == "table" then
      local copy = {}
      for at = 1, values do copy[at] = value[at] end
      value = copy
    end
    fields[name] = value
  end
  if is_raw then return fields end
  return setmetatable(fields, Fields)
end

-- Scripts for OpenResty set or remove these; Tidegate keeps them true by itself.
local OF_CONNECTION = { connection = true, ["content-length"] = true, expect = true, host = true, ["http2-settings"] = true,
  ["keep-alive"] = true, ["max-forwards"] = true, ["proxy-connection"] = true, te = true, trailer = true,
  ["transfer-encoding"] = true, upgrade = true, via = true }

local function set_field(state, name, value)
  if type(name) ~= "string" then P.wrong("set_header", 1, "string", name) end
  value = P.ngx_field_value(value)
  if state.is_hook then
    local key = gsub(lower(name), "_", "-")
    if key == "host" and type(value) == "string" then
      state.request:set_host(value)
    elseif OF_CONNECTION[key] then
      ngx.log(ngx.WARN, "the field " .. name .. " of the request is not changed: Tidegate controls the framing and the connection")
      return
    else
      state.request:set_header(name, value)
    end
  end
  fields_of(state)[lower(name)] = value
end
function req.set_header(name, value) set_field(current(), name, value) end
function req.clear_header(name) set_field(current(), name, nil) end

function req.get_method() return method_of(current()) end
local METHODS = { [2] = "GET", [4] = "HEAD", [8] = "POST", [16] = "PUT", [32] = "DELETE", [512] = "OPTIONS",
  [16384] = "PATCH", [32768] = "TRACE" }
function req.set_method(number)
  local state = current()
  local method = METHODS[number]
  if not method then error("unsupported HTTP method: " .. tostring(number), 2) end
  if state.is_hook then state.request:set_method(method) end
  state.method = method
end
function req.http_version() return tonumber(current().request.version) end
function req.is_internal() return false end
function req.start_time()
  return current().began
end
function req.raw_header(without_line)
  local state = current()
  local parts = {}
  if not without_line then
    local query = state.request.query_string
    parts[1] = method_of(state) .. " " .. state.request.path .. (query and "?" .. query or "") .. " HTTP/" ..
      state.request.version .. "\r\n"
  end
  for name, value in pairs(state.request.headers) do
    if type(value) ~= "table" then value = { value } end
    for at = 1, #value do parts[#parts + 1] = name .. ": " .. value[at] .. "\r\n" end
  end
  parts[#parts + 1] = "\r\n"
  return concat(parts)
end

-- The path and the query ---------------------------------------------------------------------------------------------

local function segment(text) return escape(text) end
-- Percent-encodes a path, and leaves its slashes.
local function encode_path(path) return (gsub(path, "[^/]+", segment)) end

function req.set_uri(uri, jumps)
  local state = current()
  if type(uri) ~= "string" then P.wrong("set_uri", 1, "string", uri) end
  if uri == "" then error("attempt to use zero-length uri", 2) end
  if jumps then error("ngx.req.set_uri cannot choose another route", 2) end
  state.target = target_of(state)
  if state.is_hook then state.request:set_path(encode_path(uri)) end
  state.uri = uri
end
local function query_of(name, args)
  if type(args) == "table" then return ngx.encode_args(args) end
  if type(args) == "string" or type(args) == "number" then return tostring(args) end
  return P.wrong(name, 1, "string, number, or table", args)
end
local function set_args(state, query)
  if query == "" then query = nil end
  state.target = target_of(state)
  if state.is_hook then state.request:set_query(query) end
  state.args = query or false
end
function req.set_uri_args(args) set_args(current(), query_of("set_uri_args", args)) end
function req.get_uri_args(most) return decode_args(args_of(current()) or "", most) end

-- The body, which is complete before the content phase begins. The access phase of a forwarded request has no access to it.
function req.read_body() current() end
function req.discard_body() current() end
function req.get_body_file() current() end
function req.get_body_data()
  local body = current().request.body
  if body == "" then return nil end
  return body
end
function req.get_post_args(most)
  local body = current().request.body
  if not body or body == "" then return {} end
  return decode_args(body, most)
end
for _, name in pairs { "socket", "init_body", "append_body", "finish_body", "set_body_data", "set_body_file" } do
  req[name] = function() error("ngx.req." .. name .. " is not supported", 2) end
end

-- ngx.var ----------------------------------------------------------------------------------------------------------

local function without_port(host)
  if not host then return nil end
  return lower(match(host, "^%[.*%]") or match(host, "^[^:]*"))
end
local function cookie(state, name)
  local value = fields_of(state).cookie
  if type(value) == "table" then value = concat(value, "; ") end
  if not value then return nil end
  local at = 1
  while at <= #value do
    local stop = find(value, ";", at, true) or #value + 1
    local from, _, key, content = find(sub(value, at, stop - 1), "^%s*([^=]*)=(.*)$", 1, false, true)
    if from and key == name then return content end
    at = stop + 1
  end
end
-- The first argument of a name in any case, as the client sent it.
local function raw_argument(args, name)
  name = lower(name)
  local at = 1
  while at <= #args do
    local stop = find(args, "&", at, true) or #args + 1
    local equals = find(args, "=", at, true)
    if equals and equals < stop and lower(sub(args, at, equals - 1)) == name then return sub(args, equals + 1, stop - 1) end
    at = stop + 1
  end
end
local function joined(value) return type(value) == "table" and concat(value, ", ") or value end

local variables = {
  uri = uri_of,
  document_uri = uri_of,
  request_uri = function(state) return target_of(state) end,
  args = args_of,
  query_string = args_of,
  is_args = function(state) return args_of(state) and "?" or "" end,
  host = function(state) return without_port(state.request.host) end,
  server_name = function(state) return without_port(state.request.host) end,
  server_port = function(state)
    return match(state.request.host or "", ":(%d+)$") or (state.request.scheme == "https" and "443" or "80")
  end,
  server_protocol = function(state) return "HTTP/" .. state.request.version end,
  scheme = function(state) return state.request.scheme end,
  https = function(state) return state.request.scheme == "https" and "on" or "" end,
  request_method = method_of,
  remote_addr = function(state) return state.request.client end,
  remote_user = function(state) return state.request.user end,
  content_type = function(state) return joined(fields_of(state)["content-type"]) end,
  content_length = function(state) return joined(fields_of(state)["content-length"]) end,
  request_body = function(state)
    local body = state.request.body
    return body ~= "" and body or nil
  end,
  status = function(state) return tostring(P.ngx_status(state)) end,
  request_time = function(state) return ("%.3f"):format(native.now() - state.began) end,
}
-- Variables that need no request.
local general = {
  msec = function() return ("%.3f"):format(native.now()) end,
  time_local = function() return G.os.date("!%d/%b/%Y:%H:%M:%S +0000") end,
  time_iso8601 = function() return G.os.date("!%Y-%m-%dT%H:%M:%S+00:00") end,
  nginx_version = function() return "1.27.1" end,
  pid = function() return tostring(ngx.worker.pid()) end,
  hostname = function() return "" end,
}
-- Variables of the log phase, by members of the record.
local recorded = {
  status = "status", request_method = "method", host = "host", remote_addr = "client", request_id = "request_id",
  scheme = "scheme", server_protocol = "version", request_uri = "target", bytes_sent = "bytes_out",
}

local function of_record(record, name)
  if name == "request_time" then return ("%.3f"):format((record.total_ms or 0) / 1000) end
  if name == "uri" then return unescape(match(tostring(record.target), "^[^?]*"), false) end
  local value = record[recorded[name] or name]
  if value ~= nil and value ~= ngx.null then return tostring(value) end
end

local function of_request(state, name)
  local read = variables[name]
  if read then return read(state) end
  local prefix, rest = match(name, "^(%a+)_(.+)$")
  if prefix == "http" then return joined(fields_of(state)[(gsub(rest, "_", "-"))]) end
  if prefix == "arg" then return raw_argument(args_of(state) or "", rest) end
  if prefix == "cookie" then return cookie(state, rest) end
  if prefix == "sent" then
    local field = match(rest, "^http_(.+)$")
    if field then return joined(ngx.header[(gsub(field, "_", "-"))]) end
  end
end

-- A setting of the application replaces `set $name value` in nginx.conf. A request begins with the value of the setting.
local settings = P.ngx_settings
local function setting(name)
  local value = settings[name]
  if value ~= nil then return tostring(value) end
end

ngx.var = setmetatable({}, {
  __index = function(_, name)
    if type(name) ~= "string" then error("bad variable name", 2) end
    if general[name] then return general[name]() end
    local state = state_of_run()
    if not state or not (state.request or state.record) then error("API disabled in the current context", 2) end
    if state.vars and state.vars[name] ~= nil then return state.vars[name] or nil end
    local value
    if state.request then value = of_request(state, name) else value = of_record(state.record, name) end
    if value == nil then value = setting(name) end
    return value
  end,
  __newindex = function(_, name, value)
    local state = current()
    if value ~= nil then value = tostring(value) end
    if name == "args" then return set_args(state, value) end
    if settings[name] == nil then
      error("variable \"" .. tostring(name) .. "\" not found for writing; maybe it is a built-in variable that is not " ..
        "changeable or you forgot to write it in `settings` of [lua." .. P.tide.app .. "]", 2)
    end
    state.vars = state.vars or {}
    state.vars[name] = value or false
  end,
})

-- Forwards the request of a hook with another path, as an internal redirect does.
function ngx.exec(uri, args)
  local state = current()
  if type(uri) ~= "string" or uri == "" then error("ngx.exec: the URI must be a string", 2) end
  if sub(uri, 1, 1) == "@" then error("ngx.exec: named locations are not supported", 2) end
  if not state.is_hook or state.phase ~= "access" then
    error("ngx.exec is supported in the access phase of forwarded requests only", 2)
  end
  local path, query = match(uri, "^([^?]*)%??(.*)$")
  if args ~= nil then query = query_of("exec", args) end
  state.request:set_path(encode_path(path))
  state.uri = path
  set_args(state, query)
  P.ngx_quit(state)
end

return P
