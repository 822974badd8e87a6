-- The functions of the module `tide` and of its objects, and the libraries.
for _, name in ipairs {
  "json", "cbor", "log", "hash", "hmac", "base64", "url", "timer", "http", "websocket", "udp", "dns", "push", "shared", "hex", "now",
  "elapsed", "sleep", "spawn", "wait", "client", "tcp", "premature", "crypto", "publish",
  "worker", "queue",
} do
  add(name, rawget(tide, name) or tide[name], 0)
end
for _, name in ipairs { 'encode', 'decode', 'array', 'error', 'warn', 'info', 'sha1', 'sha256', 'encode_url',
'escape', 'unescape', 'after', 'every', 'request', 'connect', 'resolve', 'live', 'random', 'seal', 'open', 'equal' } do
  for _, module in ipairs { 'json', 'cbor', 'log', 'hash', 'hmac', 'base64', 'url', 'timer', 'http', 'websocket', 'udp', 'dns', 'push',
    'crypto' } do
    local ok, member = pcall(function() return tide[module][name] end)
    if ok and member then add(module .. '.' .. name, member, 0) end
  end
end
for _, name in ipairs { 'get', 'set', 'add', 'replace', 'incr', 'compare_and_set', 'delete', 'expire', 'ttl', 'lpush', 'rpush',
  'lpop', 'rpop', 'llen', 'keys' } do
  local d = tide.shared.cache
  add('shared.' .. name, function(...) return d[name](d, ...) end, 0)
end
for _, name in ipairs { 'publish', 'broadcast', 'history', 'presence', 'presence_stats', 'history_remove', 'channels', 'info',
  'subscribe', 'unsubscribe', 'disconnect', 'refresh' } do
  local hub = tide.push.live
  add('push.' .. name, function(...) return hub[name](hub, ...) end, 0)
end
for _, name in ipairs { 'push', 'pop', 'length' } do
  local q = tide.queue.jobs
  add('queue.' .. name, function(...) return q[name](q, ...) end, 0)
end
for _, name in ipairs { 'connect', 'send', 'receive', 'receiveany', 'receiveuntil', 'settimeout', 'settimeouts',
  'setkeepalive', 'getreusedtimes', 'close' } do
  add('tcp.' .. name, function(...) local s = tide.tcp() return s[name](s, ...) end, 0)
end
for _, name in ipairs { 'send', 'receive', 'close' } do
  add('udp.' .. name, function(...)
    local s = tide.udp.connect('127.0.0.1', 9)
    if s then return s[name](s, ...) end
  end, 0)
end
for _, library in ipairs { string, table, math, bit, os, coroutine } do
  for _, name in ipairs { 'find', 'match', 'gmatch', 'gsub', 'byte', 'char', 'sub', 'upper', 'insert', 'remove', 'concat',
    'sort', 'unpack', 'floor', 'max', 'band', 'tohex', 'date', 'time', 'create', 'resume', 'wrap', 'status' } do
    if library[name] then add('lib.' .. name, library[name], 0) end
  end
end
for _, f in ipairs { load, loadstring, require, setmetatable, getfenv, tonumber, tostring, select, pairs, next, print } do
  add('base', f, 0)
end

return {
  on_push = function(event)
    if random(3) == 1 then tide.sleep(random(9) / 1000) end
    if random(4) == 1 then return { [makers[random(3)]() or "data"] = makers[random(#makers)]() } end
    return makers[random(#makers)](), makers[random(#makers)]()
  end,
  on_certificate = function(hello)
    if random(3) == 1 then tide.sleep(random(9) / 1000) end
    return makers[random(#makers)]()
  end,
  on_request = function(request, response)
    serve(request.path, request.body or "", function(text) response:finish(text) end)
    for _, name in ipairs { "status", "header", "write", "finish", "json", "redirect", "drop" } do
      if random(8) == 1 then pcall(response[name], response, makers[random(#makers)](), makers[random(#makers)]()) end
    end
  end,
}
