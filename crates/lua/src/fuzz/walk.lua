-- Walks through the API and calls its functions with arguments of all types and sizes. A request for `/NUMBER` calls the
-- function with this number, `/count` returns the number of functions, `/alive` shows that the VM still answers. A body
-- contains the choices of arguments; without a body, a seed determines them. `/seed/NUMBER` sets the seed. The source of
-- choices: the seed, or the bytes of `choices`.
local seed, choices, place, functions, known = 1, nil, 0, {}, {}
local function random(most)
  if choices then
    place = place + 1
    return (choices:byte(place) or 0) % most + 1
  end
  seed = (seed * 1103515245 + 12345) % 2147483648
  return seed % most + 1
end
local deep = {}
do
  local at = deep
  for _ = 1, 300 do
    at.next = {}
    at = at.next
  end
end
local cycle = {}
cycle[1] = cycle
local makers = {
  function() return nil end, function() return true end, function() return false end, function() return 0 end,
  function() return -1 end, function() return 1e308 end, function() return 0 / 0 end, function() return 1 / 0 end,
  function() return 2 ^ 53 end, function() return 0.5 end, function() return "" end, function() return "api" end,
  function() return ("x"):rep(100000) end, function() return "\0\255\r\n" end, function() return "(" end,
  function() return {} end, function() return { "a", 1, { 2 } } end, function() return { a = 1, [1.5] = 2 } end,
  function() return cycle end, function() return deep end, function() return function() return 1 end end,
  function() return function() error({}) end end, function() return coroutine.create(function() end) end,
  function() return tide.json.null end, function() return tide.tcp() end, function() return "cache" end,
  function() return setmetatable({}, { __index = function() error("index") end, __tostring = function() return 5 end }) end,
}
local function add(name, value, depth)
  if type(value) == "function" then
    if not known[value] then
      known[value] = true
      functions[#functions + 1] = { name, value }
    end
  elseif type(value) == "table" and not known[value] and depth < 5 then
    known[value] = true
    for key, member in pairs(value) do add(name .. "." .. tostring(key), member, depth + 1) end
    local meta = debug and getmetatable(value)
    -- The metatable may be one of the arguments, whose own `__index` fails.
    local members = type(meta) == "table" and rawget(meta, "__index")
    if type(members) == "table" then add(name, members, depth + 1) end
  end
end
local function call(number)
  local entry = functions[number]
  local arguments, count = {}, random(5) - 1
  for at = 1, count do arguments[at] = makers[random(#makers)]() end
  local results = { pcall(entry[2], unpack(arguments, 1, count)) }
  for at = 2, 4 do
    if type(results[at]) == "table" then add(entry[1] .. "()", results[at], 3) end
  end
end

local function serve(path, body, finish)
  if path == "/count" then return finish(tostring(#functions)) end
  if path == "/alive" then return finish("alive") end
  local first = path:match("^/seed/(%d+)$")
  if first then
    seed = tonumber(first)
    return finish("seeded")
  end
  choices, place = body ~= "" and body or nil, 0
  -- An input may choose any number.
  call((tonumber(path:sub(2)) - 1) % #functions + 1)
end
