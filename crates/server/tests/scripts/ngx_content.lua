-- The content phase of openresty_scripts_run_unchanged.scene; in its route with `hooks`, the access phase.
local cache = ngx.shared.cache

if ngx.var.uri == "/hello" then
  ngx.header.content_type = "text/html"
  return ngx.say("hello, ", ngx.var.arg_name or "world", " ", ngx.ctx.user)
elseif ngx.var.uri == "/count" then
  return ngx.say(cache:incr("count", 1, 0), limit)
elseif ngx.var.uri == "/away" then
  return ngx.redirect("/hello", ngx.HTTP_MOVED_PERMANENTLY)
elseif ngx.var.uri == "/pieces" then
  for at = 1, 3 do
    ngx.say(at)
    ngx.flush(true)
    ngx.sleep(0.001)
  end
  return ngx.exit(ngx.HTTP_OK)
elseif ngx.var.uri == "/body" then
  ngx.req.read_body()
  local found = ngx.re.match(ngx.req.get_body_data(), [[(\w+)=(\d+)]])
  return ngx.print(found[1], " is ", found[2])
elseif ngx.var.uri == "/redis" then
  local socket = ngx.socket.tcp()
  socket:settimeout(1000)
  assert(socket:connect("127.0.0.1", 6379))
  assert(socket:send("PING\r\n"))
  local line = assert(socket:receive())
  socket:setkeepalive()
  return ngx.say(line)
elseif ngx.var.uri == "/fail" then
  error("it fails")
end
ngx.exit(ngx.HTTP_NOT_FOUND)
