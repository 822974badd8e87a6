-- The layer `ngx`: encodings, hashes and times.
local native, P = ...

local type, tostring, error, pairs, tonumber, setmetatable = type, tostring, error, pairs, tonumber, setmetatable
local concat, floor = table.concat, math.floor
local format = string.format
local ngx, G = P.ngx, P.G
local gsub, date = G.string.gsub, G.os.date
local escape, unescape, hash = native.escape, native.unescape, native.hash

-- OpenResty accepts numbers, booleans and nil in place of strings.
local function text_argument(name, position, value)
  local kind = type(value)
  if kind == "string" then return value end
  if kind == "number" or kind == "boolean" then return tostring(value) end
  if value == nil then return "" end
  return P.wrong(name, position, "string", value)
end

-- The string of an output: a list of strings, which may be nested, is joined.
local function output(value, name, position)
  local kind = type(value)
  if kind == "string" then return value end
  if kind == "number" or kind == "boolean" or kind == "nil" then return tostring(value) end
  if value == ngx.null then return "null" end
  if kind ~= "table" then
    error("bad argument #" .. position .. " to '" .. name ..
      "' (string, number, boolean, nil, ngx.null, or array table expected, got " .. kind .. ")", 3)
  end
  local count = 0
  for key in pairs(value) do
    if type(key) ~= "number" or key < 1 or key % 1 ~= 0 then
      error("bad argument #" .. position .. " to '" .. name .. "' (non-array table found)", 3)
    end
    if key > count then count = key end
  end
  -- A sparse list would take memory for its gaps.
  if count > #value then error("bad argument #" .. position .. " to '" .. name .. "' (non-array table found)", 3) end
  local parts = {}
  for at = 1, count do parts[at] = output(value[at], name, position) end
  return concat(parts)
end
P.ngx_text = output

-- URIs -------------------------------------------------------------------------------------------------------------

local function hexadecimal(byte) return format("%%%02X", byte:byte()) end
-- Type 0 escapes a whole URI, type 2 a component.
function ngx.escape_uri(text, kind)
  text = text_argument("escape_uri", 1, text)
  if kind == nil or kind == 2 then return escape(text) end
  if kind ~= 0 then error("\"type\" " .. tostring(kind) .. " is not supported: 0 or 2 expected", 2) end
  return (gsub(text, "[%z\1-\32#%%?\127-\255]", hexadecimal))
end
function ngx.unescape_uri(text) return unescape(text_argument("unescape_uri", 1, text), true) end

local function argument(parts, name, value)
  local kind = type(value)
  if value == true then
    parts[#parts + 1] = escape(name)
  elseif kind == "string" or kind == "number" then
    parts[#parts + 1] = escape(name) .. "=" .. escape(tostring(value))
  elseif value ~= false then
    error("attempt to use " .. kind .. " as query arg value", 3)
  end
end
function ngx.encode_args(arguments)
  if type(arguments) ~= "table" then P.wrong("encode_args", 1, "table", arguments) end
  local parts = {}
  for name, value in pairs(arguments) do
    if type(name) ~= "string" then error("attempt to use a non-string key in the \"args\" arg table", 2) end
    if type(value) == "table" then
      for at = 1, #value do argument(parts, name, value[at]) end
    else
      argument(parts, name, value)
    end
  end
  return concat(parts, "&")
end

local ARGUMENTS_MAX = 100
local function take_argument(state, name, value)
  if state.most > 0 and state.count >= state.most then
    state.err = "truncated"
    return true
  end
  if name ~= "" then
    P.add(state.values, name, value == nil or value)
    state.count = state.count + 1
  end
end
-- Decodes `a=1&b`. An argument without `=` is true. Returns the arguments, and "truncated" if there are more than `most`.
local function decode_args(text, most)
  local state = { values = {}, count = 0, most = most or ARGUMENTS_MAX }
  P.each_argument(text, take_argument, state)
  return state.values, state.err
end
function ngx.decode_args(text, most)
  if type(text) ~= "string" then P.wrong("decode_args", 1, "string", text) end
  if most ~= nil and type(most) ~= "number" then P.wrong("decode_args", 2, "number", most) end
  return decode_args(text, most)
end
P.ngx_decode_args = decode_args

-- base64, hashes ---------------------------------------------------------------------------------------------------

function ngx.encode_base64(text, without_padding)
  local encoded = native.encode_base64(text_argument("encode_base64", 1, text), false)
  if without_padding then encoded = gsub(encoded, "=+$", "") end
  return encoded
end
function ngx.decode_base64(text)
  if type(text) ~= "string" then P.wrong("decode_base64", 1, "string", text) end
  -- The padding is optional.
  local decoded = native.decode_base64(text)
  return decoded
end
local base64 = {}
function base64.encode_base64url(text)
  if type(text) ~= "string" then return nil, "must provide a string" end
  return native.encode_base64(text, true)
end
function base64.decode_base64url(text)
  if type(text) ~= "string" then return nil, "must provide a string" end
  local decoded = native.decode_base64(text)
  if not decoded then return nil, "invalid input" end
  return decoded
end
P.loaded["ngx.base64"] = base64

function ngx.md5_bin(text) return native.md5(text_argument("md5_bin", 1, text)) end
function ngx.md5(text) return native.encode_hex(native.md5(text_argument("md5", 1, text))) end
function ngx.sha1_bin(text) return hash("sha1", text_argument("sha1_bin", 1, text)) end
function ngx.hmac_sha1(key, text)
  return native.hmac("sha1", text_argument("hmac_sha1", 1, key), text_argument("hmac_sha1", 2, text))
end
function ngx.crc32_short(text) return native.crc32(text_argument("crc32_short", 1, text)) end
function ngx.crc32_long(text) return native.crc32(text_argument("crc32_long", 1, text)) end

-- The escapes in quoted strings of MySQL.
local QUOTED = { ["\0"] = "\\0", ["\b"] = "\\b", ["\n"] = "\\n", ["\r"] = "\\r", ["\t"] = "\\t", ["\26"] = "\\Z",
  ["\\"] = "\\\\", ["'"] = "\\'", ['"'] = '\\"' }
function ngx.quote_sql_str(text)
  return "'" .. gsub(text_argument("quote_sql_str", 1, text), "[%z\b\n\r\t\26\\'\"]", QUOTED) .. "'"
end

-- Times ------------------------------------------------------------------------------------------------------------

function ngx.now() return floor(native.now() * 1000) / 1000 end
function ngx.time() return floor(native.now()) end
function ngx.update_time() end
function ngx.today() return date("%Y-%m-%d") end
function ngx.localtime() return date("%Y-%m-%d %H:%M:%S") end
function ngx.utctime() return date("!%Y-%m-%d %H:%M:%S") end
local function seconds_argument(name, seconds)
  if type(seconds) ~= "number" then P.wrong(name, 1, "number", seconds) end
  return floor(seconds)
end
function ngx.http_time(seconds) return date("!%a, %d %b %Y %H:%M:%S GMT", seconds_argument("http_time", seconds)) end
function ngx.cookie_time(seconds) return date("!%a, %d-%b-%y %H:%M:%S GMT", seconds_argument("cookie_time", seconds)) end

local MONTHS = { Jan = 1, Feb = 2, Mar = 3, Apr = 4, May = 5, Jun = 6, Jul = 7, Aug = 8, Sep = 9, Oct = 10, Nov = 11, Dec = 12 }
-- The days from 1970-01-01 to a day of the Gregorian calendar.
local function days(year, month, day)
  if month <= 2 then year = year - 1 end
  local era = floor(year / 400)
  local of_era = year - era * 400
  local of_year = floor((153 * ((month + 9) % 12) + 2) / 5) + day - 1
  return era * 146097 + of_era * 365 + floor(of_era / 4) - floor(of_era / 100) + of_year - 719468
end
function ngx.parse_http_time(text)
  if type(text) ~= "string" then P.wrong("parse_http_time", 1, "string", text) end
  local match = G.string.match
  local day, month, year, hour, minute, second = match(text, "^%a+, (%d%d) (%a%a%a) (%d%d%d%d) (%d%d):(%d%d):(%d%d) GMT$")
  if not day then
    day, month, year, hour, minute, second = match(text, "^%a+, (%d%d)%-(%a%a%a)%-(%d%d) (%d%d):(%d%d):(%d%d) GMT$")
    if year then year = tonumber(year) + (tonumber(year) < 70 and 2000 or 1900) end
  end
  if not day then
    month, day, hour, minute, second, year = match(text, "^%a+ (%a%a%a) +(%d+) (%d%d):(%d%d):(%d%d) (%d%d%d%d)$")
  end
  if not day or not MONTHS[month] then return nil end
  return days(tonumber(year), MONTHS[month], tonumber(day)) * 86400 + hour * 3600 + minute * 60 + second
end

-- Modules of OpenResty's distribution -------------------------------------------------------------------------------

local function digest_module(hashed)
  local digest = {}
  digest.__index = digest
  function digest.new() return setmetatable({ parts = {} }, digest) end
  function digest:update(text)
    self.parts[#self.parts + 1] = text_argument("update", 1, text)
    return true
  end
  function digest:final() return hashed(concat(self.parts)) end
  function digest:reset()
    self.parts = {}
    return true
  end
  return digest
end
P.loaded["resty.md5"] = digest_module(native.md5)
for _, name in pairs { "sha1", "sha256", "sha384", "sha512" } do
  P.loaded["resty." .. name] = digest_module(function(text) return hash(name, text) end)
end
P.loaded["resty.string"] = {
  to_hex = function(text) return native.encode_hex(text_argument("to_hex", 1, text)) end,
  atoi = function(text) return tonumber(text) end,
}
-- This layer contains the functions that lua-resty-core replaces.
for _, name in pairs { "resty.core", "resty.core.base", "resty.core.regex", "resty.core.shdict" } do
  P.loaded[name] = { version = "0.1.29" }
end
P.loaded["table.nkeys"] = function(t)
  local count = 0
  for _ in pairs(t) do count = count + 1 end
  return count
end
P.loaded["table.isempty"] = function(t) return G.next(t) == nil end
P.loaded["table.isarray"] = function(t)
  local count = 0
  for key in pairs(t) do
    if type(key) ~= "number" then return false end
    count = count + 1
  end
  return count == #t
end
P.loaded["table.clone"] = function(t)
  local copy = {}
  for key, value in pairs(t) do copy[key] = value end
  return copy
end
return P
