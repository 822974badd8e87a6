#!/usr/bin/env bash
# Installs what scripts/lua_costs.py compares Lua applications with, into target/peers/lua. Nothing is installed into the system.
# Needs Debian's apt-get and npm, and git for lua-resty-websocket (or its folder `lib` in LUA_RESTY_WEBSOCKET).
set -euo pipefail
cd "$(dirname "$0")/.."

folder=$PWD/target/peers/lua
mkdir -p "$folder/packages"
# nginx's Lua module with OpenResty's LuaJIT, as Debian builds them. They are unpacked, because the package of that LuaJIT
# replaces another one that wrk uses.
(
  cd "$folder/packages"
  apt-get download -q libnginx-mod-http-lua libnginx-mod-http-ndk lua-resty-core lua-resty-lrucache lua-cjson \
    libluajit2-5.1-2 libluajit2-5.1-common libpcre3
  for package in *.deb; do dpkg-deb -x "$package" "$folder/root"; done
)
# Bun (with uWebSockets inside), and Node's WebSocket client with the native masking that its author recommends.
printf '{ "name": "lua-peers", "private": true }\n' >"$folder/package.json"
(cd "$folder" && npm install --silent --no-audit --no-fund --ignore-scripts bun@1.4.5 ws@8.18.3 bufferutil@4.1.0)

if [ -n "${LUA_RESTY_WEBSOCKET:-}" ]; then
  mkdir -p "$folder/lib"
  cp -r "$LUA_RESTY_WEBSOCKET/resty" "$folder/lib/"
else
  [ -d "$folder/clone" ] || git clone --quiet https://github.com/openresty/lua-resty-websocket "$folder/clone"
  # The commit that scripts/ngx_modules.sh runs, too.
  git -C "$folder/clone" checkout --quiet 3aef1aa8e3fb74acf5bf77fb644d54835c3db1f6
  cp -r "$folder/clone/lib" "$folder/"
fi
