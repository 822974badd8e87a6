#!/usr/bin/env bash
# The C1000K test on one machine: WebSocket connections to the push hub, and broadcasts of 13 bytes to all of them.
#   make c1000k                       1,200,000 connections, as in the article
#   make c1000k CONNECTIONS=200000    fewer, for a first look
# In: TIDEGATE (the program), CONNECTIONS, BROADCASTS, PAUSE, FLOOR=0 (leave out the bare send loop).
# Out: a table beside the article's figures; the reports in RESULTS (default: target/c1000k).
# Changes sysctls while it runs, if it may, and restores them at the end, even after Ctrl-C.
set -euo pipefail
cd "$(dirname "$0")/.."

TIDEGATE=${TIDEGATE:-target/release/tidegate}
CONNECTIONS=${CONNECTIONS:-1200000}
BROADCASTS=${BROADCASTS:-10}
PAUSE=${PAUSE:-5s}
FLOOR=${FLOOR:-1}
RESULTS=${RESULTS:-target/c1000k}
# Memory that must stay free, so that the kernel does not end programs. MiB.
MEMORY_MIN=${MEMORY_MIN:-1024}
KEY=c1000k-0123456789

folder=$(mktemp -d)
mkdir -p "$RESULTS"
saved=()
child=

finish() {
    trap '' INT TERM HUP
    stop_child
    for setting in "${saved[@]}"; do
        sysctl -q -w "$setting" || echo "c1000k: could not restore $setting" >&2
    done
    rm -rf "$folder"
}
trap finish EXIT
trap 'exit 130' INT TERM HUP

stop_child() {
    [ -z "$child" ] && return
    kill "$child" 2>/dev/null || true
    # A server with a million connections takes a moment to close them.
    for _ in $(seq 600); do
        kill -0 "$child" 2>/dev/null || break
        sleep 0.1
    done
    kill -9 "$child" 2>/dev/null || true
    wait "$child" 2>/dev/null || true
    child=
}

# tune NAME VALUE: sets a sysctl, and remembers its value.
tune() {
    local old
    old=$(sysctl -n "$1" 2>/dev/null | tr -s '\t ' ' ') || return 0
    [ "$old" = "$2" ] && return 0
    if sysctl -q -w "$1=$2" 2>/dev/null; then
        saved+=("$1=$old")
    else
        echo "c1000k: may not set $1 = $2 (now: $old)" >&2
    fi
}

# raise NAME VALUE: as tune, but only upwards.
raise() {
    local old
    old=$(sysctl -n "$1" 2>/dev/null) || return 0
    if [ "$old" -lt "$2" ]; then tune "$1" "$2"; fi
}

# Each worker, and each thread of the clients, has a descriptor table, and so a limit, of its own.
limit=$(ulimit -Hn)
[ "$limit" = unlimited ] && limit=$((CONNECTIONS + 1000))
ulimit -Sn "$limit"
cpus=$(nproc)
# The kernel spreads connections over the workers at random, and a worker keeps an eighth of its slots for connections to
# servers: a quarter of the room is left.
workers=$(( (CONNECTIONS * 4 / 3 + limit - 1) / limit ))
[ "$workers" -lt "$cpus" ] && workers=$cpus
pages=$(( $(awk '/^MemTotal:/ { print $2 }' /proc/meminfo) / 4 ))

tune net.ipv4.tcp_mem "$((pages / 2)) $((pages * 5 / 8)) $((pages * 3 / 4))"
tune net.ipv4.ip_local_port_range "1024 65535"
raise net.core.somaxconn 65535
raise net.ipv4.tcp_max_syn_backlog 65535
raise net.core.netdev_max_backlog 65535
raise fs.file-max $((CONNECTIONS * 2 + 100000))
raise fs.epoll.max_user_watches $((CONNECTIONS * 2 + 100000))

cat > "$folder/tidegate.toml" <<END
[server]
workers = $workers
connections-max = $((workers * limit))

[websocket]
ping-every = "off"

[[listener]]
bind = "127.0.0.1:0"
backlog = 65535

[[route]]
path = "/push/*"
push = "c1000k"

[push.c1000k]
api-keys = ["$KEY"]
subscribe = "anyone"
END

# start NAME COMMAND...: starts a server, and waits for the address that it prints.
start() {
    local name=$1
    shift
    "$@" > "$folder/$name.log" 2>&1 &
    child=$!
    address=
    for _ in $(seq 300); do
        address=$(sed -n 's/.*listening on \(http:\/\/\)\?\([0-9.]*:[0-9]*\).*/\2/p' "$folder/$name.log" | head -1)
        [ -n "$address" ] && return
        kill -0 "$child" 2>/dev/null || break
        sleep 0.1
    done
    echo "c1000k: the $name did not start:" >&2
    cat "$folder/$name.log" >&2
    exit 1
}

# load NAME ARGUMENTS...: runs the clients; a failed run is part of the result.
load() {
    local name=$1
    shift
    "$TIDEGATE" bench push "$@" -c "$CONNECTIONS" -n "$BROADCASTS" --pause "$PAUSE" --timeout 60s --settle 3s \
        --memory-min "$MEMORY_MIN" --server-pid "$child" --json > "$RESULTS/$name.json" || true
    [ -s "$RESULTS/$name.json" ] || { echo "c1000k: no report of the $name" >&2; exit 1; }
}

echo "c1000k: $CONNECTIONS connections, $workers workers, $BROADCASTS broadcasts; this takes minutes" >&2
start server "$TIDEGATE" run "$folder/tidegate.toml"
load tidegate "ws://$address/push/subscribe/c1000k" --api-key "$KEY"
stop_child
if [ "$FLOOR" = 1 ]; then
    echo "c1000k: the floor: a bare loop of send over as many plain connections" >&2
    start floor "$TIDEGATE" bench floor --push --listen 127.0.0.1:0 --threads "$workers"
    load floor "ws://$address/subscribe/c1000k" --plain
    stop_child
else
    rm -f "$RESULTS/floor.json"
fi
python3 scripts/c1000k_table.py "$RESULTS"
