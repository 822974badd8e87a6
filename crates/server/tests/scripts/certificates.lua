-- Chooses certificates by the first label of the name that a client requests.
local choose = {}

function choose.other() return "b.example" end
function choose.second() return 2 end
function choose.refused() return false end

function choose.later()
  tide.sleep(0.5)
  return "b.example"
end

function choose.never()
  tide.sleep(60)
  return "b.example"
end

function choose.fails() error("it fails") end
function choose.loops() while true do end end
function choose.missing() return "c.example" end
function choose.third() return 3 end
function choose.wrong() return {} end

function choose.facts(hello)
  tide.log.info(hello.name, hello.listener, hello.client)
end

return {
  on_certificate = function(hello)
    local handler = choose[(hello.name or ""):match("^%w+")]
    if handler then return handler(hello) end
  end,
}
