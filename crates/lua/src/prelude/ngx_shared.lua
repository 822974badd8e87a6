-- The layer `ngx`: shared dictionaries.
local native, P = ...

local type, tostring, error, pairs, setmetatable = type, tostring, error, pairs, setmetatable
local ngx, G, dictionaries = P.ngx, P.G, P.dictionaries

-- ngx.shared.NAME ---------------------------------------------------------------------------------------------------

local KEY_BYTES_MAX = 4096
-- Keys that are listed unless a script wants more.
local KEYS_MAX = 1024

local shared = {}
local Shared = { __index = shared, __metatable = "dictionary" }

local function key_of(key)
  if key == nil or key == ngx.null then return nil, "nil key" end
  key = tostring(key)
  if key == "" then return nil, "empty key" end
  if #key > KEY_BYTES_MAX then return nil, "key too long" end
  return key
end
-- Without a lifetime, an entry does not expire.
local function lifetime(seconds)
  if seconds == nil or seconds == 0 then return nil end
  if type(seconds) ~= "number" or seconds < 0 then error("bad \"exptime\" argument", 3) end
  return seconds
end
local function is_value(value)
  local kind = type(value)
  return kind == "string" or kind == "number" or kind == "boolean"
end

function shared:get(key)
  local err
  key, err = key_of(key)
  if not key then return nil, err end
  return self[1]:get(key)
end
shared.get_stale = shared.get

-- Stores a value. The third result, whether entries were removed for it, is always false, because removals are not reported.
local function store(method)
  return function(self, key, value, seconds)
    local err
    key, err = key_of(key)
    if not key then return nil, err end
    if value == nil and method ~= "add" then
      self[1]:delete(key)
      return true, nil, false
    end
    if not is_value(value) then return nil, "bad value type" end
    local ok
    ok, err = self[1][method](self[1], key, value, lifetime(seconds))
    if not ok then return false, err, false end
    return true, nil, false
  end
end
shared.set, shared.safe_set = store("set"), store("set")
shared.add, shared.safe_add = store("add"), store("add")
shared.replace = store("replace")

function shared:delete(key)
  local err
  key, err = key_of(key)
  if not key then return nil, err end
  self[1]:delete(key)
  return true
end
function shared:incr(key, by, initial, seconds)
  local err
  key, err = key_of(key)
  if not key then return nil, err end
  if type(by) ~= "number" then error("bad \"value\" argument", 2) end
  if initial ~= nil and type(initial) ~= "number" then error("bad \"init\" argument", 2) end
  -- `init` is the value before the addition.
  local value
  value, err = self[1]:incr(key, by, initial, lifetime(seconds))
  if not value then return nil, err end
  return value, nil, initial ~= nil and false or nil
end
for _, name in pairs { "lpush", "rpush" } do
  shared[name] = function(self, key, value)
    local err
    key, err = key_of(key)
    if not key then return nil, err end
    if type(value) ~= "string" and type(value) ~= "number" then return nil, "bad value type" end
    return self[1][name](self[1], key, value)
  end
end
for _, name in pairs { "lpop", "rpop", "llen" } do
  shared[name] = function(self, key)
    local err
    key, err = key_of(key)
    if not key then return nil, err end
    return self[1][name](self[1], key)
  end
end
function shared:ttl(key)
  local seconds = self[1]:ttl((key_of(key)))
  if not seconds then return nil, "not found" end
  return seconds < 1e300 and seconds or 0
end
function shared:expire(key, seconds)
  if type(seconds) ~= "number" or seconds < 0 then error("bad \"exptime\" argument", 2) end
  if self[1]:get((key_of(key))) == nil then return nil, "not found" end
  self[1]:expire((key_of(key)), lifetime(seconds))
  return true
end
function shared:flush_all() self[1]:clear() end
-- Expired entries are removed when their space is needed.
function shared:flush_expired() return 0 end
function shared:get_keys(most)
  if most == nil then most = KEYS_MAX end
  if type(most) ~= "number" or most < 0 then error("bad \"max_count\" argument", 2) end
  if most > 0 and most <= KEYS_MAX then return self[1]:keys(most) end
  local keys = native.dict_keys(self[1][1], "", nil)
  if most > 0 then
    for at = #keys, most + 1, -1 do keys[at] = nil end
  end
  return keys
end

local views = {}
ngx.shared = setmetatable({}, { __index = function(_, name)
  if not views[name] and G.rawget(dictionaries, name) then
    views[name] = setmetatable({ dictionaries[name] }, Shared)
  end
  return views[name]
end })

return P
