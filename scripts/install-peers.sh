#!/usr/bin/env bash
# Installs the foreign programs that tests and comparisons talk to (Debian and its kin).
# As root or by sudo; otherwise says which packages are missing.
set -euo pipefail

declare -A package=(
  [curl]=curl [wrk]=wrk [h2load]=nghttp2-client [nginx]=nginx-light [haproxy]=haproxy [openssl]=openssl
)
missing=()
for program in "${!package[@]}"; do
  PATH="$PATH:/usr/sbin:/sbin" command -v "$program" >/dev/null || missing+=("${package[$program]}")
done
# nginx passes TCP on by a module of its own.
[ -e /usr/lib/nginx/modules/ngx_stream_module.so ] || missing+=(libnginx-mod-stream)
# The distribution's own Python is asked, and used by the tests: another one first in PATH does not see its packages.
[ -x /usr/bin/python3 ] || missing+=(python3)
/usr/bin/python3 -c 'import websockets' 2>/dev/null || missing+=(python3-websockets)
[ "${#missing[@]}" -eq 0 ] && exit 0

if [ "$(id -u)" -eq 0 ]; then as_root=(); elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then as_root=(sudo)
else
  echo "missing packages: ${missing[*]}" >&2
  echo "install them with: apt-get install ${missing[*]}" >&2
  exit 2
fi
# Distributions start installed servers at once; these are started by the tests on their own ports.
policy=/usr/sbin/policy-rc.d
made_policy=
if [ ! -e "$policy" ]; then
  printf '#!/bin/sh\nexit 101\n' | "${as_root[@]}" tee "$policy" >/dev/null
  "${as_root[@]}" chmod +x "$policy"
  made_policy=1
fi
trap '[ -z "$made_policy" ] || "${as_root[@]}" rm -f "$policy"' EXIT
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get update -qq
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "${missing[@]}" >/dev/null
