-- Encodes the states of clients as strings, for the VM of the new code.
local native, P = ...

local type, pairs, getmetatable, tonumber, error = type, pairs, getmetatable, tonumber, error
local format, sub, byte, concat = string.format, string.sub, string.byte, table.concat
local find, null, array = native.find, native.null, P.json.array

-- Deeper tables are left out.
local DEPTH_MAX = 32

-- Adds a value to `out`. Returns whether it is plain data. `known`: the numbers of the tables so far, in the order in which
-- they begin in `out`, and their count. A table that occurs again is written as its number.
local put
local function put_table(value, depth, out, known)
  if known[value] then
    out[#out + 1] = "r" .. known[value] .. ";"
    return true
  end
  local meta = getmetatable(value)
  if depth > DEPTH_MAX or (meta ~= nil and meta ~= "array") then return false end
  known.count = known.count + 1
  known[value] = known.count
  out[#out + 1] = meta and "a" or "{"
  for key, member in pairs(value) do
    local at, kind = #out, type(key)
    local is_plain = kind ~= "table" and put(key, depth + 1, out, known) and put(member, depth + 1, out, known)
    if not is_plain then
      for last = #out, at + 1, -1 do out[last] = nil end
    end
  end
  out[#out + 1] = "}"
  return true
end

function put(value, depth, out, known)
  local kind = type(value)
  if kind == "string" then
    out[#out + 1] = "s" .. #value .. ":"
    out[#out + 1] = value
  elseif kind == "number" then
    out[#out + 1] = format("n%.17g;", value)
  elseif kind == "boolean" then
    out[#out + 1] = value and "t" or "f"
  elseif kind == "table" then
    return put_table(value, depth, out, known)
  elseif value == null then
    out[#out + 1] = "z"
  else
    return false
  end
  return true
end

local LETTERS = { s = byte("s"), n = byte("n"), t = byte("t"), f = byte("f"), z = byte("z"), a = byte("a"),
  r = byte("r") }
local OPEN, CLOSE = byte("{"), byte("}")

-- The value at a place of the string, and the place after it. `tables`: the tables that have begun, by number.
local function take(text, at, tables)
  local letter = byte(text, at)
  if letter == LETTERS.s then
    local colon = find(text, ":", at, true)
    local last = colon + tonumber(sub(text, at + 1, colon - 1))
    return sub(text, colon + 1, last), last + 1
  elseif letter == LETTERS.n then
    local stop = find(text, ";", at, true)
    return tonumber(sub(text, at + 1, stop - 1)), stop + 1
  elseif letter == LETTERS.t then
    return true, at + 1
  elseif letter == LETTERS.f then
    return false, at + 1
  elseif letter == LETTERS.z then
    return null, at + 1
  end
  if letter == LETTERS.r then
    local stop = find(text, ";", at, true)
    return tables[tonumber(sub(text, at + 1, stop - 1))], stop + 1
  end
  local value = letter == LETTERS.a and array({}) or {}
  tables[#tables + 1] = value
  at = at + 1
  while byte(text, at) ~= CLOSE do
    local key, member
    key, at = take(text, at, tables)
    member, at = take(text, at, tables)
    value[key] = member
  end
  return value, at + 1
end

local clients, new_client = P.clients, P.new_client

-- Passes the state of a client to Rust, and forgets the client.
function P.release(index)
  local client, out = clients[index], {}
  -- The state, and the channels of the client.
  local state, subscribed = client and client[3], client and client[4]
  if state or subscribed then put(state or null, 1, out, { count = 0 }) end
  if subscribed then put(subscribed, 1, out, { count = 0 }) end
  local ok, err = native.set_handover_state(concat(out))
  if not ok then error(err, 0) end
  if client then P.end_subscriptions(client) end
  clients[index] = nil
end

-- Creates a client with the state from another VM.
function P.adopt(index, generation, text)
  local client = new_client(index, generation)
  if text ~= "" then
    local state, at = take(text, 1, {})
    if state ~= null then client[3] = state end
    if at <= #text then
      for channel in pairs(take(text, at, {})) do client:subscribe(channel) end
    end
  end
  return client
end

return P
