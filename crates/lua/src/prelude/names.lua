-- Lookups of names.
local native, P = ...

local type, find, lower = type, string.find, string.lower
local look_up, is_address = native.look_up, native.is_address
local decode = native.json_decode
local wrong = P.wrong

local KINDS = { A = "127.0.0.1", AAAA = "::1", SRV = false, TXT = false }

-- tide.dns --------------------------------------------------------------------------------------------------------

local dns = {}

-- The records of a name, and how many seconds they may be kept.
function dns.resolve(name, kind)
  if type(name) ~= "string" then wrong("resolve", 1, "string", name) end
  if kind == nil then kind = "A" end
  local loopback = KINDS[kind]
  if loopback == nil then wrong("resolve", 2, '"A", "AAAA", "SRV" or "TXT"', kind) end
  if loopback then
    -- RFC 6761 section 6.3: no server is queried for these names.
    local bare = lower(name)
    if bare == "localhost" or find(bare, "%.localhost%.?$") then return { loopback }, 3600 end
  end
  local ok, reply = look_up(name, kind)
  if not ok then return nil, reply end
  reply = decode(reply)
  return reply.records, reply.seconds
end

-- The address of a host: the host itself if it is an address, else the first record of its name.
function P.address_of(host)
  if is_address(host) then return host end
  local found, err = dns.resolve(host)
  if not found and err == "the name has no such records" then found, err = dns.resolve(host, "AAAA") end
  if not found then return nil, host .. ": " .. err end
  return found[1]
end

P.tide.dns = P.sealed("tide.dns", dns)

return P
