-- The module `tide`, without requests and connections.
local native, P = ...

local type, tostring, select, error, setmetatable, pairs = type, tostring, select, error, setmetatable, pairs
local concat = table.concat
local wrong, sealed = P.wrong, P.sealed

local function string_argument(name, position, value)
  if type(value) ~= "string" then wrong(name, position, "string", value) end
  return value
end

-- tide.json -------------------------------------------------------------------------------------------------------

local Array = { __metatable = "array" }
native.mark_array(Array)
local json = { null = native.null }
function json.encode(value) return native.json_encode(value) end
function json.decode(text)
  string_argument("tide.json.decode", 1, text)
  return native.json_decode(text)
end
function json.array(t)
  if t == nil then t = {} end
  if type(t) ~= "table" then wrong("tide.json.array", 1, "table", t) end
  local meta = getmetatable(t)
  if meta ~= nil and (meta == Array or meta == Array.__metatable) then return t end
  return setmetatable(t, Array)
end

-- tide.cbor -------------------------------------------------------------------------------------------------------

local cbor = {}
function cbor.encode(value) return native.cbor_encode(value) end
function cbor.decode(data) return native.cbor_decode(string_argument("tide.cbor.decode", 1, data)) end

-- tide.log --------------------------------------------------------------------------------------------------------

local write = native.log
local function line(level, ...)
  local count = select("#", ...)
  if count == 1 then return write(level, tostring((...))) end
  local parts = {}
  for at = 1, count do parts[at] = tostring((select(at, ...))) end
  write(level, concat(parts, " "))
end
local log = {}
function log.error(...) line(0, ...) end
function log.warn(...) line(1, ...) end
function log.info(...) line(2, ...) end

-- tide.hash, tide.hmac, tide.base64, tide.hex, tide.url -----------------------------------------------------------

local hash, hmac = {}, {}
for _, name in pairs { "sha1", "sha256", "sha384", "sha512" } do
  hash[name] = function(data)
    return native.hash(name, string_argument("tide.hash." .. name, 1, data))
  end
  hmac[name] = function(key, data)
    string_argument("tide.hmac." .. name, 1, key)
    return native.hmac(name, key, string_argument("tide.hmac." .. name, 2, data))
  end
end
local base64 = {}
function base64.encode(data) return native.encode_base64(string_argument("tide.base64.encode", 1, data), false) end
function base64.encode_url(data) return native.encode_base64(string_argument("tide.base64.encode_url", 1, data), true) end
function base64.decode(text) return native.decode_base64(string_argument("tide.base64.decode", 1, text)) end
local url = {}
function url.escape(text) return native.escape(string_argument("tide.url.escape", 1, text)) end
function url.unescape(text) return native.unescape(string_argument("tide.url.unescape", 1, text), false) end

local settings = native.json_decode(native.fact("settings"))
local tide = {
  app = native.fact("app"),
  config = sealed("tide.config", settings),
  worker = sealed("tide.worker", { id = native.fact("worker"), count = native.fact("workers") }),
  json = sealed("tide.json", json),
  cbor = sealed("tide.cbor", cbor),
  log = sealed("tide.log", log),
  hash = sealed("tide.hash", hash),
  hmac = sealed("tide.hmac", hmac),
  base64 = sealed("tide.base64", base64),
  url = sealed("tide.url", url),
  now = native.now,
  elapsed = native.elapsed,
}
function tide.hex(data) return native.encode_hex(string_argument("tide.hex", 1, data)) end

P.tide = tide
P.string_argument = string_argument
P.json, P.settings, P.array_meta = json, settings, Array
P.G.tide = sealed("tide", tide)
P.loaded.tide = P.G.tide
return P
