-- Tests of chat.lua: tidegate lua test apps
local test = tide.test
test.settings { history = 2 }

local function enter(room, name)
  return test.connect { path = "/chat/" .. room, params = { room = room }, query = { name = name } }
end

-- The next event that a client gets.
local function event(client) return tide.json.decode(assert(client:receive())) end

return {
  ["members of a room receive each other's messages"] = function()
    local ann, bob = enter("a", "ann"), enter("a", "bob")
    test.equal(event(ann), { event = "joined", name = "ann", members = 1 })
    test.equal(event(ann), { event = "joined", name = "bob", members = 2 })
    test.equal(event(bob).members, 2)
    ann:send("hello")
    for _, client in ipairs { ann, bob } do
      local said = event(client)
      test.equal({ said.event, said.name, said.text }, { "said", "ann", "hello" })
    end
  end,

  ["clients in other rooms receive nothing"] = function()
    local ann, eve = enter("a", "ann"), enter("b", "eve")
    event(ann)
    event(eve)
    ann:send("hello")
    test.equal({ eve:receive(5) }, { nil, "timeout" })
  end,

  ["a new member gets the last messages"] = function()
    local ann = enter("a", "ann")
    for _, text in ipairs { "one", "two", "three" } do
      ann:send(text)
      tide.sleep(60)
    end
    local bob = enter("a", "bob")
    local first, second = event(bob), event(bob)
    test.equal({ first.text, second.text }, { "two", "three" })
    test.equal(second.at - first.at, 60)
    test.equal(event(bob).event, "joined")
  end,

  ["a client that leaves is announced"] = function()
    local ann, bob = enter("a", "ann"), enter("a", "bob")
    event(ann)
    event(ann)
    bob:close(1000, "bye")
    test.equal(event(ann), { event = "left", name = "bob", members = 1 })
  end,

  ["a long message ends the connection"] = function()
    local ann = enter("a", "ann")
    event(ann)
    ann:send(("x"):rep(2001))
    local _, what, code = ann:receive()
    test.equal({ what, code }, { "closed", 1008 })
  end,
}
