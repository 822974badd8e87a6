-- Dictionaries that all workers share.
local native, P = ...

local type, tostring, error, pairs, setmetatable = type, tostring, error, pairs, setmetatable
local get, set, compare_and_set, incr = native.dict_get, native.dict_set, native.dict_compare_and_set, native.dict_incr
local push, pop = native.dict_push, native.dict_pop

local function argument(name, position, expected, value)
  local got = value == nil and "no value" or type(value)
  error("bad argument #" .. position .. " to '" .. name .. "' (" .. expected .. " expected, got " .. got .. ")", 4)
end
local function key_of(name, key)
  if type(key) == "string" then return key end
  if type(key) == "number" then return tostring(key) end
  argument(name, 1, "string", key)
end
local function check_value(name, position, value)
  local kind = type(value)
  if kind ~= "string" and kind ~= "number" and kind ~= "boolean" then
    argument(name, position, "string, number or boolean", value)
  end
end
local function check_number(name, position, value)
  if value ~= nil and type(value) ~= "number" then argument(name, position, "number", value) end
end

local dictionary = {}

function dictionary:get(key) return get(self[1], key_of("get", key)) end

for name, condition in pairs { set = 0, add = 1, replace = 2 } do
  dictionary[name] = function(self, key, value, seconds)
    key = key_of(name, key)
    check_value(name, 2, value)
    check_number(name, 3, seconds)
    return set(self[1], key, value, seconds, condition)
  end
end

function dictionary:compare_and_set(key, expected, value, seconds)
  key = key_of("compare_and_set", key)
  if expected ~= nil then check_value("compare_and_set", 2, expected) end
  if value ~= nil then check_value("compare_and_set", 3, value) end
  check_number("compare_and_set", 4, seconds)
  return compare_and_set(self[1], key, expected, value, seconds)
end

function dictionary:incr(key, by, initial, seconds)
  key = key_of("incr", key)
  check_number("incr", 2, by)
  check_number("incr", 3, initial)
  check_number("incr", 4, seconds)
  return incr(self[1], key, by or 1, initial, seconds)
end

function dictionary:delete(key) return native.dict_delete(self[1], key_of("delete", key)) end
function dictionary:expire(key, seconds)
  key = key_of("expire", key)
  check_number("expire", 2, seconds)
  return native.dict_expire(self[1], key, seconds)
end
function dictionary:ttl(key) return native.dict_ttl(self[1], key_of("ttl", key)) end

for name, is_left in pairs { lpush = true, rpush = false } do
  dictionary[name] = function(self, key, value)
    key = key_of(name, key)
    check_value(name, 2, value)
    return push(self[1], key, value, is_left)
  end
end
for name, is_left in pairs { lpop = true, rpop = false } do
  dictionary[name] = function(self, key) return pop(self[1], key_of(name, key), is_left) end
end
function dictionary:llen(key) return native.dict_length(self[1], key_of("llen", key)) end

function dictionary:keys(most)
  check_number("keys", 1, most)
  return native.dict_keys(self[1], "", most or 1024)
end
function dictionary:clear() native.dict_clear(self[1], "") end
function dictionary:size() return native.dict_size(self[1], "") end

local Dictionary = { __index = dictionary, __metatable = "dictionary", __newindex = function()
  error("a dictionary has no fields; use its method 'set'", 2)
end }

local shared = {}
for at, name in pairs(native.dict_names()) do shared[name] = setmetatable({ at - 1 }, Dictionary) end
setmetatable(shared, { __index = function(_, name)
  error("there is no dictionary '" .. tostring(name) .. "': write it in `shared` of [lua." .. native.fact("app") .. "]", 2)
end })
P.dictionaries, P.Dictionary = shared, Dictionary
P.tide.shared = P.sealed("tide.shared", shared)

return P
