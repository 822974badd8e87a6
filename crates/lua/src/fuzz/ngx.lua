-- The functions of the layer `ngx` and of its modules. The content phase calls `served`.
add('ngx', ngx, 0)
for _, name in ipairs { 'ngx.re', 'ngx.base64', 'ngx.semaphore', 'resty.md5', 'resty.string', 'resty.lrucache', 'cjson.safe',
  'cjson', 'ffi' } do
  add(name, require(name), 0)
end
add('var', function(name, value) ngx.var[name] = value return ngx.var[name] end, 0)
add('header', function(name, value) ngx.header[name] = value return ngx.header[name] end, 0)
for _, name in ipairs { 'get', 'set', 'add', 'incr', 'ttl', 'expire', 'get_keys', 'lpush', 'delete' } do
  add('shared.' .. name, function(...) return ngx.shared.cache[name](ngx.shared.cache, ...) end, 0)
end
served = serve
