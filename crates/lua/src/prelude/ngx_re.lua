-- The layer `ngx`: regular expressions.
local native, P = ...

local type, tostring, error, setmetatable = type, tostring, error, setmetatable
local sub, byte, concat = string.sub, string.byte, table.concat
local ngx, G, find, re_find = P.ngx, P.G, native.find, native.re_find

local function text_argument(name, position, value)
  local kind = type(value)
  if kind == "string" then return value end
  if kind == "number" then return tostring(value) end
  return P.wrong(name, position, "string", value)
end
local function arguments(name, subject, regex, options)
  subject, regex = text_argument(name, 1, subject), text_argument(name, 2, regex)
  if options == nil then return subject, regex, "" end
  return subject, regex, text_argument(name, 3, options)
end

-- The strings of a match and its groups, by number and by name; false for groups that did not match. `places`: begin and end of each.
local function captures(subject, places, into)
  local found = into or {}
  for group = 0, #places / 2 - 1 do
    local from = places[2 * group + 1]
    found[group] = from and sub(subject, from, places[2 * group + 2])
  end
  for name, group in G.pairs(places.names or {}) do found[name] = found[group] end
  return found
end

local re = {}
ngx.re = re

local function start_of(name, context)
  if context == nil then return 1 end
  if type(context) ~= "table" then P.wrong(name, 4, "table", context) end
  local pos = context.pos or 1
  if type(pos) ~= "number" then error("bad ctx.pos", 3) end
  return pos < 1 and 1 or pos
end
-- Stores where the next search begins.
local function go_on(context, places)
  if context then context.pos = places[2] + 1 end
end

function re.match(subject, regex, options, context, into)
  subject, regex, options = arguments("match", subject, regex, options)
  local start = start_of("match", context)
  if start > #subject + 1 then return nil end
  local places, err = re_find(regex, options, subject, start)
  if not places then return nil, err end
  go_on(context, places)
  return captures(subject, places, into)
end

function re.find(subject, regex, options, context, group)
  subject, regex, options = arguments("find", subject, regex, options)
  local start = start_of("find", context)
  if start > #subject + 1 then return nil end
  local places, err = re_find(regex, options, subject, start)
  if not places then return nil, nil, err end
  go_on(context, places)
  group = group or 0
  local from = places[2 * group + 1]
  if from == nil then return nil, nil, "nth out of bound" end
  if from == false then return nil, nil end
  return from, places[2 * group + 2]
end

-- The places of the next match from `state.at` on. After an empty match, the next search begins a byte later.
local function next_match(subject, regex, options, state)
  if state.at > #subject + 1 then return nil end
  local places, err = re_find(regex, options, subject, state.at)
  if not places then return nil, err end
  state.at = places[2] < places[1] and places[1] + 1 or places[2] + 1
  return places
end

function re.gmatch(subject, regex, options)
  subject, regex, options = arguments("gmatch", subject, regex, options)
  local _, wrong = re_find(regex, options, "", 1)
  if wrong then return nil, wrong end
  local state = { at = 1 }
  return function()
    local places, err = next_match(subject, regex, options, state)
    if not places then
      state.at = #subject + 2
      return nil, err
    end
    return captures(subject, places)
  end
end

-- The parts of a replacement: strings, and numbers of groups. "$$" is a dollar sign.
local function parts_of(replacement)
  local parts, at = {}, 1
  while true do
    local mark = find(replacement, "$", at, true)
    if not mark then
      parts[#parts + 1] = sub(replacement, at)
      return parts
    end
    parts[#parts + 1] = sub(replacement, at, mark - 1)
    if byte(replacement, mark + 1) == 36 then
      parts[#parts + 1] = "$"
      at = mark + 2
    else
      local from, to, number = find(replacement, "^(%d+)", mark + 1, false, true)
      if not from then from, to, number = find(replacement, "^{(%d+)}", mark + 1, false, true) end
      if not from then return nil, "the replace template contains a variable that is not the number of a group" end
      parts[#parts + 1] = G.tonumber(number)
      at = to + 1
    end
  end
end

local function replace(name, subject, regex, with, options, most)
  subject, regex, options = arguments(name, subject, regex, options)
  local parts, wrong
  if type(with) ~= "function" then
    parts, wrong = parts_of(text_argument(name, 3, with))
    if not parts then return nil, nil, wrong end
  end
  local out, count, done, state = {}, 0, 1, { at = 1 }
  while count < most do
    local places, err = next_match(subject, regex, options, state)
    if err then return nil, nil, err end
    if not places then break end
    count = count + 1
    out[#out + 1] = sub(subject, done, places[1] - 1)
    if parts then
      for at = 1, #parts do
        local part = parts[at]
        if type(part) == "number" then
          local from = places[2 * part + 1]
          part = from and sub(subject, from, places[2 * part + 2]) or ""
        end
        out[#out + 1] = part
      end
    else
      out[#out + 1] = tostring(with(captures(subject, places)))
    end
    done = places[2] + 1
  end
  if count == 0 then return subject, 0 end
  out[#out + 1] = sub(subject, done)
  return concat(out), count
end
function re.sub(subject, regex, with, options) return replace("sub", subject, regex, with, options, 1) end
function re.gsub(subject, regex, with, options) return replace("gsub", subject, regex, with, options, #tostring(subject) + 1) end

-- ngx.re, as a module ------------------------------------------------------------------------------------------------

local module = { opt = function() end }
function module.split(subject, regex, options, context, most, into)
  subject, regex, options = arguments("split", subject, regex, options)
  local out, count = into or {}, 0
  local function put(text)
    count = count + 1
    out[count] = text
  end
  if most == nil or most <= 0 then most = #subject + 2 end
  local state = { at = start_of("split", context) }
  local done = state.at
  while count < most - 1 do
    local places, err = next_match(subject, regex, options, state)
    if err then return nil, err end
    if not places then break end
    if places[2] >= places[1] then
      put(sub(subject, done, places[1] - 1))
      for group = 1, #places / 2 - 1 do
        local from = places[2 * group + 1]
        if from then put(sub(subject, from, places[2 * group + 2])) end
      end
      done = places[2] + 1
    elseif places[1] > done and places[1] <= #subject then
      put(sub(subject, done, places[1] - 1))
      done = places[1]
    end
  end
  put(sub(subject, done))
  if into then out[count + 1] = nil end
  return out
end
P.loaded["ngx.re"] = setmetatable(module, nil)

return P
