#!/usr/bin/env bash
# Installs the third-party programs that tests and comparisons run (Debian and derivatives).
# Needs root or sudo without a password; otherwise it prints the missing packages and exits with 2.
set -euo pipefail

declare -A package=(
  [curl]=curl [wrk]=wrk [h2load]=nghttp2-client [nghttpd]=nghttp2-server [nginx]=nginx-light [haproxy]=haproxy [openssl]=openssl
  [chromium]=chromium [man]=man-db
  [ip]=iproute2 [tc]=iproute2 [dnsmasq]=dnsmasq-base
)
missing=()
for program in "${!package[@]}"; do
  PATH="$PATH:/usr/sbin:/sbin" command -v "$program" >/dev/null || missing+=("${package[$program]}")
done
# The TCP proxy of nginx is a module in a package of its own.
[ -e /usr/lib/nginx/modules/ngx_stream_module.so ] || missing+=(libnginx-mod-stream)
# Tests use the Python of the distribution: another one in PATH does not find the distribution's packages.
[ -x /usr/bin/python3 ] || missing+=(python3)
command -v node >/dev/null || missing+=(nodejs)
command -v npm >/dev/null || missing+=(npm)
# A builtin of the shell has the same name as the program.
[ -n "$(type -P kill)" ] || missing+=(procps)
command -v go >/dev/null || missing+=(golang-go)
/usr/bin/python3 -c 'import websockets' 2>/dev/null || missing+=(python3-websockets)
/usr/bin/python3 -c 'import h2' 2>/dev/null || missing+=(python3-h2)
[ -e /usr/share/nodejs/ws/package.json ] || missing+=(node-ws)
/usr/bin/python3 -c 'import gevent' 2>/dev/null || missing+=(python3-gevent)
/usr/bin/python3 -c 'import ensurepip' 2>/dev/null || missing+=(python3-venv)

# Installs servers from PyPI into a virtual environment for the tests.
install_python_servers() {
  local environment=target/peers/python
  local wanted=(cheroot==11.1.2 eventlet==0.40.4 websocket-client==1.8.0 prometheus-client==0.21.1 hypercorn==0.17.3
    opentelemetry-proto==1.45.2)
  "$environment/bin/python" - "${wanted[@]}" 2>/dev/null <<'CHECK' && return
import importlib.metadata, sys
for wanted in sys.argv[1:]:
    name, version = wanted.split("==")
    assert importlib.metadata.version(name) == version
CHECK
  /usr/bin/python3 -m venv --clear --system-site-packages "$environment"
  "$environment/bin/python" -m pip install --quiet --disable-pip-version-check "${wanted[@]}"
}

# Installs the conformance test of HTTP/2, which no distribution packages.
install_h2spec() {
  [ -x target/peers/go/h2spec ] && return
  mkdir -p target/peers/go
  (cd scripts/h2spec && go build -o ../../target/peers/go/h2spec github.com/summerwind/h2spec/cmd/h2spec)
}

# Lets `go` be version 1.25 or newer, which the client of push hubs needs. If the one in PATH is older, the module that Go
# itself would fetch (golang.org/toolchain) comes into target/peers: versions before 1.21 do not fetch it.
readonly GO_MODULE=golang.org/toolchain@v0.0.1-go1.25.4.linux-amd64
readonly GO_SHA256=f4fa35e13952bae9836a82d8cf077710cd58fee98d31680f94edf435852b1af2
use_new_go() {
  local version folder=$PWD/target/peers/toolchain
  version=$(go env GOVERSION)
  printf '%s\n%s\n' go1.25 "$version" | sort --version-sort --check=quiet && return
  if [ ! -x "$folder/$GO_MODULE/bin/go" ]; then
    [ "$(uname -m)" = x86_64 ] || { echo "install-peers.sh: Go 1.25 or newer is needed: https://go.dev/dl/" >&2; exit 2; }
    mkdir -p "$folder"
    curl -sSfL --max-time 600 -o "$folder/go.zip" "https://proxy.golang.org/${GO_MODULE/@//@v/}.zip"
    echo "$GO_SHA256  $folder/go.zip" | sha256sum --check --quiet
    /usr/bin/python3 -m zipfile -e "$folder/go.zip" "$folder"
    # The archive has no permissions.
    chmod -R a+rX,u+x "$folder/$GO_MODULE/pkg/tool"
    chmod a+x "$folder/$GO_MODULE"/bin/*
    rm "$folder/go.zip"
  fi
  export PATH=$folder/$GO_MODULE/bin:$PATH GOTOOLCHAIN=local
}

# Builds the clients and servers that are written in Go. The client of push hubs is a module of its own, which needs Go
# 1.25.
build_go_programs() {
  local programs=$PWD/target/peers/go
  (cd crates/tidegate/tests/peers/go && go build -o "$programs/" ./...)
  (cd crates/tidegate/tests/peers/go/push_client && go build -o "$programs/" ./...)
}

# Installs the clients that are written in JavaScript: Centrifugo's client library, and the WebSocket that it uses in Node.
install_node_clients() {
  local folder=target/peers/node lock=crates/tidegate/tests/peers/node
  cat "$lock"/package{,-lock}.json | cmp --quiet - "$folder/installed" && return
  mkdir -p "$folder"
  cp "$lock"/package{,-lock}.json "$folder"
  (cd "$folder" && npm ci --silent --no-audit --no-fund --ignore-scripts)
  cat "$lock"/package{,-lock}.json >"$folder/installed"
}

# Installs Centrifugo's client and server libraries for Python.
install_centrifuge() {
  local environment=target/peers/centrifuge requirements=scripts/centrifuge/requirements.txt
  cmp --quiet "$requirements" "$environment/installed" && return
  /usr/bin/python3 -m venv --clear "$environment"
  "$environment/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --only-binary :all: --require-hashes \
    --requirement "$requirements"
  cp "$requirements" "$environment/installed"
}

# Installs the test suite of WebSocket, which is written in Python 2, and converts it.
install_autobahn() {
  local environment=target/peers/autobahn sources=(scripts/autobahn/{build.txt,requirements.txt,convert.py})
  cat "${sources[@]}" | cmp --quiet - "$environment/installed" && return
  /usr/bin/python3 -m venv --clear "$environment"
  local install=("$environment/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --no-compile --require-hashes)
  "${install[@]}" --requirement scripts/autobahn/build.txt
  "${install[@]}" --no-build-isolation --requirement scripts/autobahn/requirements.txt
  "$environment/bin/python" scripts/autobahn/convert.py \
    "$environment"/lib/python3*/site-packages/autobahntestsuite "$environment/suite/autobahntestsuite"
  cat "${sources[@]}" >"$environment/installed"
}

install_from_registries() {
  install_python_servers
  use_new_go
  install_h2spec
  build_go_programs
  install_node_clients
  install_centrifuge
  install_autobahn
}

if [ "${#missing[@]}" -eq 0 ]; then
  install_from_registries
  exit 0
fi

if [ "$(id -u)" -eq 0 ]; then as_root=(); elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then as_root=(sudo)
else
  echo "install-peers.sh: missing packages: ${missing[*]}" >&2
  echo "install-peers.sh: install them with: apt-get install ${missing[*]}" >&2
  exit 2
fi
# Keep packages from starting their servers at installation: tests start them on other ports.
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
install_from_registries
