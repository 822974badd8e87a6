-- The layer `ngx`: modules that OpenResty contains, reimplemented where their own code needs FFI.
local native, P = ...

local type, error, setmetatable, tostring = type, error, setmetatable, tostring
local char, concat = string.char, table.concat
local G, ngx = P.G, P.ngx

-- cjson, which OpenResty contains ------------------------------------------------------------------------------------

local function json_module(is_safe)
  local cjson = { null = native.null, _NAME = "cjson", _VERSION = "2.1.0", empty_array = P.json.array(),
    array_mt = P.array_meta, empty_array_mt = P.array_meta }
  local function result(value, err)
    if value == nil and err ~= nil and not is_safe then error(err, 3) end
    return value, err
  end
  function cjson.encode(value) return result(native.json_encode(value)) end
  function cjson.decode(text)
    if type(text) ~= "string" then return result(nil, "bad argument #1 to 'decode' (string expected)") end
    return result(native.json_decode(text))
  end
  local function setting() return function() end end
  cjson.encode_empty_table_as_object, cjson.decode_array_with_array_mt = setting(), setting()
  cjson.encode_sparse_array, cjson.encode_max_depth, cjson.decode_max_depth = setting(), setting(), setting()
  cjson.encode_number_precision, cjson.encode_keep_buffer = setting(), setting()
  cjson.encode_invalid_numbers, cjson.decode_invalid_numbers = setting(), setting()
  cjson.encode_escape_forward_slash = setting()
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

return P
