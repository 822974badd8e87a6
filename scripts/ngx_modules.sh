#!/usr/bin/env bash
# Fetches modules that were written for OpenResty, and runs them under the layer `ngx` (docs/ngx.md). Needs git and the network.
# With an argument, takes the modules of that folder instead.
set -euo pipefail
cd "$(dirname "$0")/.."

folder=${1:-}
if [ -z "$folder" ]; then
  folder=$PWD/target/peers/ngx
  mkdir -p "$folder"
  while read -r repository commit; do
    clone=$folder/clones/$(basename "$repository")
    [ -d "$clone" ] || git clone --quiet "https://github.com/$repository" "$clone"
    git -C "$clone" checkout --quiet "$commit"
    cp -r "$clone/lib" "$folder/"
  done <<'MODULES'
openresty/lua-resty-redis f3b9afb0199bc55f26eb92d2ace83aee01a015e1
openresty/lua-resty-mysql 5d46ff656e2b0ec48d957c5ab757d3fc12a8edea
openresty/lua-resty-websocket 3aef1aa8e3fb74acf5bf77fb644d54835c3db1f6
ledgetech/lua-resty-http 55bcc5af4b83ad9df0ad65015a31f5078d480697
bungle/lua-resty-template 2822213d4e0fc0b8b9ac00559a360d099947f002
MODULES
  folder=$folder/lib
fi
cargo run --quiet --package tidegate-lua --example ngx_modules -- "$folder"
