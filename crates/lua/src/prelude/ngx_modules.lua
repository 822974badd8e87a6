-- The layer `ngx`: modules that OpenResty contains, reimplemented where their own code needs FFI.
local native, P = ...

local type, error, setmetatable, tostring, select, ipairs = type, error, setmetatable, tostring, select, ipairs
local char, concat = string.char, table.concat
local cjson_encode, cjson_decode = native.cjson_encode, native.cjson_decode
local G, ngx = P.G, P.ngx

-- cjson, which OpenResty contains ------------------------------------------------------------------------------------

-- Tables with this metatable are arrays if they are empty.
local EmptyArray = {}
local BOOLEANS = { on = true, off = false, [true] = true, [false] = false }

-- A function that reads and changes a setting.
local function switch(settings, name)
  return function(value)
    if value ~= nil then
      if BOOLEANS[value] == nil then P.wrong(name, 1, "boolean", value) end
      settings[name] = BOOLEANS[value]
    end
    return settings[name]
  end
end
local function number_of(name, position, value, least, most)
  if type(value) ~= "number" then P.wrong(name, position, "number", value) end
  if not (value >= least and value <= most) then
    error("bad argument #" .. position .. " to '" .. name .. "' (expected integer between " .. least .. " and " .. most .. ")", 3)
  end
  return value
end
local function limit(settings, name, least, most)
  return function(value)
    if value ~= nil then settings[name] = number_of(name, 1, value, least, most) end
    return settings[name]
  end
end

local INTEGER_MAX = 2147483647
local INVALID = { [false] = 0, [true] = 1, null = 2, on = 1, off = 0 }

-- Scripts for lua-cjson compare and set this metatable.
P.array_meta.__metatable = nil

local function json_module(is_safe)
  local settings = { encode_empty_table_as_object = true, encode_number_precision = 14, encode_max_depth = 1000,
    decode_max_depth = 1000, encode_escape_forward_slash = true, decode_array_with_array_mt = false, encode_keep_buffer = true,
    decode_invalid_numbers = true, encode_invalid_numbers = false }
  local converts_sparse, sparse_ratio, sparse_safe = false, 2, 10
  local cjson = { null = native.null, _NAME = is_safe and "cjson.safe" or "cjson", _VERSION = "2.1.0",
    empty_array = setmetatable({}, P.array_meta), array_mt = P.array_meta, empty_array_mt = EmptyArray }

  function cjson.encode(...)
    local value, err
    if select("#", ...) == 1 then
      local invalid = INVALID[settings.encode_invalid_numbers]
      value, err = cjson_encode((...), settings.encode_empty_table_as_object, settings.encode_number_precision,
        settings.encode_max_depth, converts_sparse, sparse_ratio, sparse_safe, invalid, settings.encode_escape_forward_slash,
        EmptyArray)
    else
      err = "bad argument #1 to 'encode' (expected 1 argument)"
    end
    if value ~= nil then return value end
    if not is_safe then error(err, 2) end
    return nil, err
  end
  function cjson.decode(...)
    local text = ...
    if type(text) == "number" then text = tostring(text) end
    local value, err
    if select("#", ...) ~= 1 then
      err = "bad argument #1 to 'decode' (expected 1 argument)"
    elseif type(text) ~= "string" then
      err = "bad argument #1 to 'decode' (string expected, got " .. type(text) .. ")"
    else
      value, err = cjson_decode(text, settings.decode_array_with_array_mt, settings.decode_max_depth)
    end
    if value ~= nil then return value end
    if not is_safe then error(err, 2) end
    return nil, err
  end

  for _, name in ipairs { "encode_empty_table_as_object", "encode_escape_forward_slash", "decode_array_with_array_mt",
    "encode_keep_buffer", "decode_invalid_numbers" } do
    cjson[name] = switch(settings, name)
  end
  cjson.encode_number_precision = limit(settings, "encode_number_precision", 1, 16)
  cjson.encode_max_depth = limit(settings, "encode_max_depth", 1, INTEGER_MAX)
  cjson.decode_max_depth = limit(settings, "decode_max_depth", 1, INTEGER_MAX)
  function cjson.encode_invalid_numbers(value)
    if value ~= nil then
      if INVALID[value] == nil then error("bad argument #1 to 'encode_invalid_numbers' (invalid option)", 2) end
      settings.encode_invalid_numbers = value
    end
    return settings.encode_invalid_numbers
  end
  function cjson.encode_sparse_array(converts, ratio, safe)
    if converts ~= nil then
      if BOOLEANS[converts] == nil then P.wrong("encode_sparse_array", 1, "boolean", converts) end
      converts_sparse = BOOLEANS[converts]
    end
    if ratio ~= nil then sparse_ratio = number_of("encode_sparse_array", 2, ratio, 0, INTEGER_MAX) end
    if safe ~= nil then sparse_safe = number_of("encode_sparse_array", 3, safe, 0, INTEGER_MAX) end
    return converts_sparse, sparse_ratio, sparse_safe
  end
  function cjson.new() return json_module(is_safe) end
  return cjson
end
P.loaded.cjson, P.loaded["cjson.safe"] = json_module(false), json_module(true)

-- resty.lrucache --------------------------------------------------------------------------------------------------------

local lrucache = { _VERSION = "0.13" }
local Cache = { __index = lrucache }

-- The entries are a ring in the order of their use: `cache.root.after` was used last.
local function detach(entry)
  entry.before.after, entry.after.before = entry.after, entry.before
end
local function put_first(cache, entry)
  local root = cache.root
  entry.before, entry.after = root, root.after
  root.after.before, root.after = entry, entry
end

function lrucache.new(most)
  if type(most) ~= "number" or most < 1 then return nil, "size too small" end
  local root = {}
  root.before, root.after = root, root
  return setmetatable({ most = most, used = 0, entries = {}, root = root }, Cache)
end
function lrucache:get(key)
  local entry = self.entries[key]
  if not entry then return nil end
  detach(entry)
  put_first(self, entry)
  if entry.ends and entry.ends < native.now() then return nil, entry.value, entry.flags end
  return entry.value, nil, entry.flags
end
function lrucache:set(key, value, seconds, flags)
  local entry = self.entries[key]
  if entry then
    detach(entry)
  elseif self.used >= self.most then
    entry = self.root.before
    detach(entry)
    self.entries[entry.key] = nil
  else
    entry = {}
    self.used = self.used + 1
  end
  entry.key, entry.value, entry.flags = key, value, flags or 0
  entry.ends = seconds and native.now() + seconds or nil
  self.entries[key] = entry
  put_first(self, entry)
end
function lrucache:delete(key)
  local entry = self.entries[key]
  if not entry then return false end
  detach(entry)
  self.entries[key] = nil
  self.used = self.used - 1
  return true
end
function lrucache:count() return self.used end
function lrucache:capacity() return self.most end
function lrucache:get_keys(most)
  local keys, entry = {}, self.root.after
  while entry ~= self.root and #keys < (most and most > 0 and most or self.used) do
    keys[#keys + 1] = entry.key
    entry = entry.after
  end
  return keys
end
function lrucache:flush_all()
  self.entries, self.used = {}, 0
  self.root.before, self.root.after = self.root, self.root
end
P.loaded["resty.lrucache"], P.loaded["resty.lrucache.pureffi"] = lrucache, lrucache

-- io, ffi: modules use them while they load ----------------------------------------------------------------------------

G.io = {
  open = function(name) return nil, tostring(name) .. ": files are not available" end,
  write = function(...) return ngx.print(...) end,
}

-- Arrays of characters and nothing else: there is no memory that a script could break.
local NEEDS_FFI = "FFI is not available"
local function refuse() error(NEEDS_FFI, 2) end
P.loaded.ffi = {
  cdef = refuse, load = refuse, cast = refuse, gc = function(value) return value end, abi = function() return false end,
  C = setmetatable({}, { __index = refuse }),
  os = "Linux", arch = "x64", null = nil,
  typeof = function(name)
    if name ~= "char[?]" and name ~= "unsigned char[?]" and name ~= "uint8_t[?]" then error(NEEDS_FFI, 2) end
    return name
  end,
  new = function(name)
    if name ~= "char[?]" and name ~= "unsigned char[?]" and name ~= "uint8_t[?]" then error(NEEDS_FFI, 2) end
    return {}
  end,
  string = function(bytes, count)
    if type(bytes) == "string" then return bytes:sub(1, count) end
    if type(bytes) ~= "table" or type(count) ~= "number" then error(NEEDS_FFI, 2) end
    local parts = {}
    for at = 0, count - 1 do parts[at + 1] = char((bytes[at] or 0) % 256) end
    return concat(parts)
  end,
  copy = refuse, fill = refuse, sizeof = refuse, istype = function() return false end,
}

-- Scripts assign globals at any time, and cannot take away those of the layer.
P.seal = P.sealing_names()

return P
