-- Tests of ticker.lua: tidegate lua test apps
local test = tide.test
test.settings { pool = "market", symbols = "ABC,XYZ" }

local function quote(symbol, price) return tide.json.encode { symbol = symbol, price = price } end

-- The next price that a client gets.
local function price(client, seconds) return tide.json.decode(assert(client:receive(seconds))).price end

return {
  ["a client gets the last quotes and those that follow"] = function()
    test.websocket(function(market)
      test.equal({ market.pool, market.path }, { "market", "/quotes" })
      test.equal(tide.json.decode(market:receive()), { subscribe = { "ABC", "XYZ" } })
      market:send(quote("ABC", 10))
      market:send("no quote")
      tide.sleep(5)
      market:send(quote("ABC", 11))
      market:receive(3600)
    end)
    tide.sleep(1)
    local client = test.connect { path = "/ticker" }
    test.equal(price(client), 10)
    test.equal(price(client, 10), 11)
    test.equal(price(test.connect { path = "/ticker" }), 11)
  end,

  ["the ticker connects again after growing pauses"] = function()
    local times = {}
    test.websocket(function() times[#times + 1] = tide.elapsed() end)
    tide.sleep(100)
    test.equal({ times[2] - times[1], times[3] - times[2], times[6] - times[5] }, { 2, 4, 30 })
  end,

  ["clients get quotes once the market can be reached"] = function()
    test.websocket("no server is available")
    local client = test.connect { path = "/ticker" }
    tide.sleep(60)
    test.websocket(function(market)
      market:send(quote("ABC", 12))
      market:receive(3600)
    end)
    test.equal(price(client, 60), 12)
  end,
}
