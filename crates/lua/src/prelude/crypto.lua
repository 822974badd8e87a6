-- Random bytes and ciphers.
local native, P = ...

local type = type
local wrong, string_argument = P.wrong, P.string_argument
local random_bytes, seal, open, equal = native.random_bytes, native.seal, native.open, native.equal

local function optional_string(name, position, value)
  if value ~= nil and type(value) ~= "string" then wrong(name, position, "string", value) end
  return value
end

-- tide.crypto -----------------------------------------------------------------------------------------------------

local crypto = {}

function crypto.random(count)
  if type(count) ~= "number" then wrong("tide.crypto.random", 1, "number", count) end
  return random_bytes(count)
end

-- Without a nonce, a random one precedes the result, and `open` finds it there.
function crypto.seal(key, data, context, nonce)
  string_argument("tide.crypto.seal", 1, key)
  string_argument("tide.crypto.seal", 2, data)
  optional_string("tide.crypto.seal", 3, context)
  optional_string("tide.crypto.seal", 4, nonce)
  return seal(key, data, nonce, context)
end

function crypto.open(key, sealed, context, nonce)
  string_argument("tide.crypto.open", 1, key)
  string_argument("tide.crypto.open", 2, sealed)
  optional_string("tide.crypto.open", 3, context)
  optional_string("tide.crypto.open", 4, nonce)
  return open(key, sealed, nonce, context)
end

-- Takes the same time wherever two secrets of the same length differ.
function crypto.equal(one, other)
  return equal(string_argument("tide.crypto.equal", 1, one), string_argument("tide.crypto.equal", 2, other))
end

P.tide.crypto = P.sealed("tide.crypto", crypto)

return P
