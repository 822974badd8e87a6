-- Authentication in front of a proxied pool: a signed cookie names the user, and the servers get the name as X-User.
--
--   [[route]]
--   path = "/login"
--   lua = "gatekeeper"
--   [[route]]
--   path = "/*"
--   hooks = { lua = "gatekeeper", pools = ["beta"] }
--   proxy = "app"
--   [lua.gatekeeper]
--   script = "apps/gatekeeper.lua"
--   settings = { key = "a long random string", user = "ann", password = "change this", beta = "ann" }
--   shared = { attempts = "1MiB" }
--
-- POST /login with user=...&password=... sets the cookie. A user who is named in `beta` is served by the pool "beta".

local LIFETIME = 8 * 3600
local ATTEMPTS_MAX = 10

local function signature(text) return tide.base64.encode_url(tide.hmac.sha256(tide.config.key, text)) end

-- Compares in a time that does not depend on where the strings differ.
local function is_same(one, other)
  return tide.hmac.sha256(tide.config.key, one) == tide.hmac.sha256(tide.config.key, other)
end

local function make_session(user)
  local text = tide.base64.encode_url(user) .. "." .. math.floor(tide.now() + LIFETIME)
  return text .. "." .. signature(text)
end

-- The user of a session; nil if it is forged or has expired.
local function user_of(session)
  local text, signed = (session or ""):match("^(.*)%.([%w_-]+)$")
  if not text or not is_same(signed, signature(text)) then return nil end
  local name, ends = text:match("^([%w_-]+)%.(%d+)$")
  if not name or tonumber(ends) < tide.now() then return nil end
  return tide.base64.decode(name)
end

local function cookie_of(request)
  for name, value in (request:header("cookie") or ""):gmatch("([%w_-]+)=([^;]*)") do
    if name == "session" then return value end
  end
end

return {
  -- The login page posts here.
  on_request = function(request, response)
    if request.method ~= "POST" then
      return response:status(405):header("Allow", "POST"):finish("POST only\n")
    end
    local count = tide.shared.attempts:incr(request.client, 1, 0, 60)
    if count and count > ATTEMPTS_MAX then
      tide.sleep(1)
      return response:status(429):header("Retry-After", 60):finish("too many attempts\n")
    end
    local form = request:form()
    local user, password = tostring(form.user or ""), tostring(form.password or "")
    if not is_same(user, tide.config.user) or not is_same(password, tide.config.password) then
      return response:status(401):finish("wrong name or password\n")
    end
    local flags = "; HttpOnly; SameSite=Lax; Path=/; Max-Age=" .. LIFETIME
    if request.scheme == "https" then flags = flags .. "; Secure" end
    response:header("Set-Cookie", "session=" .. make_session(user) .. flags):redirect("/", 303)
  end,

  -- Runs before a request is forwarded to a server.
  on_access = function(request, response)
    local user = user_of(cookie_of(request))
    if not user then
      return response:status(401):header("Cache-Control", "no-store"):finish("sign in first\n")
    end
    request:set_header("X-User", user)
    if user == tide.config.beta then request:set_pool("beta") end
  end,
}
