-- A market ticker: subscribes to the quotes of another WebSocket server and sends them to all clients.
--
--   [[route]]
--   path = "/ticker"
--   lua = "ticker"
--   [lua.ticker]
--   script = "apps/ticker.lua"
--   pools = ["market"]
--   settings = { pool = "market", symbols = "ABC,XYZ" }
--   [pool.market]
--   servers = ["10.0.0.9:9000"]
--
-- The market gets {"subscribe": ["ABC", "XYZ"]} and sends {"symbol": "ABC", "price": 10.5}. A client gets the last quote of
-- each symbol when it connects, then each new one. A client that reads slowly gets the last quotes once it has caught up,
-- instead of all missed quotes. Each worker has a connection of its own.

local QUEUED_BYTES_MAX = 64 * 1024
local PAUSE_MAX = 30

local clients, last, behind = {}, {}, {}

local function publish(symbol, text)
  last[symbol] = text
  for _, client in pairs(clients) do
    if client:queued() < QUEUED_BYTES_MAX then
      client:send(text)
    else
      behind[client:id()] = true
    end
  end
end

local function send_last(client)
  for _, text in pairs(last) do client:send(text) end
end

-- Passes on the quotes of one connection, until it ends. Returns whether there were any, and why it ended.
local function follow()
  local market, err = tide.websocket.connect(tide.config.pool, { path = "/quotes" })
  if not market then return false, err end
  local symbols = tide.json.array()
  for symbol in tide.config.symbols:gmatch("[^,]+") do symbols[#symbols + 1] = symbol end
  market:send(tide.json.encode { subscribe = symbols })
  local has_quotes = false
  while true do
    local text, why = market:receive(60)
    if not text then
      market:close()
      return has_quotes, why
    end
    local quote = tide.json.decode(text)
    if type(quote) == "table" and type(quote.symbol) == "string" then
      has_quotes = true
      publish(quote.symbol, text)
    end
  end
end

-- Follows the market, and connects again after a pause that doubles while the market has no quotes.
local function run()
  local pause = 1
  while not tide.premature() do
    local has_quotes, why = follow()
    pause = has_quotes and 1 or math.min(pause * 2, PAUSE_MAX)
    tide.log.warn("lost the connection to the market:", why)
    if not tide.sleep(pause) then return end
  end
end

local function enter(client)
  clients[client:id()] = client
  send_last(client)
end

return {
  on_start = function() tide.spawn(run) end,
  on_open = enter,
  on_handover = enter,
  on_drain = function(client)
    if behind[client:id()] then
      behind[client:id()] = nil
      send_last(client)
    end
  end,
  on_close = function(client) clients[client:id()], behind[client:id()] = nil, nil end,
}
