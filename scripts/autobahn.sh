#!/usr/bin/env bash
# Runs the 517 cases of Autobahn's WebSocket test suite (https://github.com/crossbario/autobahn-testsuite) against the
# action `echo` of Tidegate, on loopback. Prints each case: its behaviour, that of its close, the milliseconds. Exits
# with 1 if a behaviour is other than OK and INFORMATIONAL.
#
#   scripts/autobahn.sh                          run all cases; about 20 minutes of one CPU
#   scripts/autobahn.sh '9.*' 12.1.3             run some of them
#   COMPRESSION=dedicated scripts/autobahn.sh    with a context that lasts longer than a message (default: shared)
#
# BINARY (default: the release build, which is made first) is the Tidegate to test. scripts/install-peers.sh installs the
# suite into target/peers/autobahn.
set -euo pipefail
cd "$(dirname "$0")/.."
suite=target/peers/autobahn
if [ ! -e "$suite/installed" ]; then
  scripts/install-peers.sh
fi
if [ -z "${BINARY:-}" ]; then
  cargo build --quiet --release --package tidegate
  BINARY=target/release/tidegate
fi

folder=$(mktemp --directory)
server=
trap '[ -z "$server" ] || kill "$server"; rm -rf "$folder"' EXIT
cat >"$folder/tidegate.toml" <<CONFIG
[[listener]]
bind = "127.0.0.1:0"
[[route]]
path = "/echo"
echo = true
[websocket]
message-max = "16MiB"
compression = "${COMPRESSION:-shared}"
CONFIG
"$BINARY" run -c "$folder/tidegate.toml" 2>"$folder/log" &
server=$!
for _ in {1..300}; do
  address=$(sed -n 's|^tidegate: listening on http://\([^/]*\)/.*|\1|p' "$folder/log")
  [ -z "$address" ] || break
  kill -0 "$server" || { cat "$folder/log" >&2; server=; exit 2; }
  sleep 0.1
done

cases=("$@")
[ "${#cases[@]}" -gt 0 ] || cases=('*')
"$suite/bin/python" scripts/autobahn/run.py "$suite/suite" "ws://$address/echo" 1 "${cases[@]}"
