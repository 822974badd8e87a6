#!/usr/bin/env python3
"""Measures what a message costs a push server, beside nchan and the engine of Centrifugo.

usage: scripts/push_costs.py [fanout] [sustained] [spread]

Runs the parts that are named, or all. Needs nginx with the nchan module, and Go, which builds a hub of the centrifuge library
(benches/compare/centrifuge). Every server runs on CPU 0 with one worker (`spread`: four); `tidegate bench push`
runs on CPU 1 and sends the publications, too. The cost is the CPU time of the server between the first publication and the last receipt, divided by the
messages received: medians of paired rounds. Run it on a machine that does nothing else.

fanout: broadcasts to SUBSCRIBERS subscribers of one channel (default 15,000: other servers have one table of descriptors).
sustained: 10,000 subscribers and 10 publications of 512 bytes a second: deliveries per CPU second, and latencies.
spread: 60,000 subscribers in 600 channels, each of which gets one message every 12 seconds, in turn.

The program is target/release/tidegate, or the value of TIDEGATE. ROUNDS (5) sets the number of rounds.
"""
import json
import os
import statistics
import subprocess
import sys

import route_costs
from route_costs import FOLDER, PROGRAM, ROOT, path, start

ROUNDS = int(os.environ.get("ROUNDS", "5"))
SUBSCRIBERS = int(os.environ.get("SUBSCRIBERS", "15000"))
MODULE = "/usr/share/nginx/modules-available/mod-nchan.conf"


def started(command, port):
    """Starts a server. Returns the number of its process."""
    start(command, port, 0)
    return route_costs.SERVERS[-1].pid


def tidegate(port, workers=1):
    pid = started([PROGRAM, "run", path("tidegate.toml", f'''[server]
workers = {workers}
[[listener]]
bind = "127.0.0.1:{port}"
[[route]]
path = "/push/*"
push = "hub"
[push.hub]
api-keys = ["change-me-0123456789"]
subscribe = "anyone"
anonymous = true
''')], port)
    return pid, {
        "tidegate": [f"ws://127.0.0.1:{port}/push/subscribe/room-{{}}", "--api-key", "change-me-0123456789"],
        "tidegate (client protocol)": [
            f"ws://127.0.0.1:{port}/push/connection/websocket", "--client-protocol", "--channel", "room-{}",
            "--publish-url", f"http://127.0.0.1:{port}/push/api/publish", "--api-key", "change-me-0123456789"],
    }


def nchan(port):
    pid = started(["nginx", "-e", path("nchan.log"), "-c", path("nchan.conf", f'''daemon off; worker_processes 1; user root;
include {MODULE};
pid {FOLDER}/nchan.pid; error_log {FOLDER}/nchan.log crit; worker_rlimit_nofile 20000; events {{ worker_connections 19000; }}
http {{
    access_log off; nchan_shared_memory_size 256m;
    server {{
        listen 127.0.0.1:{port} backlog=65535;
        location ~ /sub/(.*)$ {{ nchan_subscriber websocket; nchan_channel_id $1; nchan_websocket_ping_interval 0; }}
        location ~ /pub/(.*)$ {{ nchan_publisher; nchan_channel_id $1; nchan_store_messages off; }}
    }}
}}
''')], port)
    return pid, {"nchan": [f"ws://127.0.0.1:{port}/sub/room-{{}}", "--publish-body", "--publish-url",
                           f"http://127.0.0.1:{port}/pub/room-{{}}"]}


def centrifuge(port):
    program = path("centrifuge-hub")
    subprocess.run(["go", "build", "-o", program, "."], check=True, cwd=os.path.join(ROOT, "benches/compare/centrifuge"))
    pid = started([program, f"127.0.0.1:{port}"], port)
    return pid, {"centrifuge": [
        f"ws://127.0.0.1:{port}/connection/websocket", "--client-protocol", "--channel", "room-{}", "--publish-url",
        f"http://127.0.0.1:{port}/api/publish", "--api-key", "unused"]}


def bench(pid, arguments, more):
    command = ["taskset", "-c", "1", PROGRAM, "bench", "push", *arguments, *more, "--server-pid", str(pid), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if not done.stdout:
        sys.exit(f"{' '.join(command)}: {done.stderr}")
    report = json.loads(done.stdout)
    wrong = {name: report[name] for name in ("setup_failed", "publish_failed", "lost", "duplicated", "out_of_order", "foreign")
             if report[name]}
    return report, wrong


def rounds(what, servers, more, base="tidegate"):
    """Each round measures every server once; ratios are those of the same round."""
    rows = [(name, pid, arguments) for pid, kinds in servers for name, arguments in kinds.items()]
    reports = {name: [] for name, _, _ in rows}
    wrong = {name: {} for name in reports}
    for turn in range(ROUNDS):
        for name, pid, arguments in rows if turn % 2 else rows[::-1]:
            report, errors = bench(pid, arguments, more)
            reports[name].append(report)
            wrong[name].update(errors)
    cost = {name: [report["server_cpu_us_per_message"] for report in all_of] for name, all_of in reports.items()}
    for name, all_of in reports.items():
        ratios = [own / other for own, other in zip(cost[base], cost[name])]
        middle = lambda key, field: round(statistics.median(report[key][field] or 0 for report in all_of) / 1000, 2)
        print(json.dumps({
            "what": what, "row": name, "us_per_message": round(statistics.median(cost[name]), 3),
            "per_cpu_second": round(1e6 / statistics.median(cost[name])), f"{base} / row": round(statistics.median(ratios), 3),
            "least": round(min(ratios), 3), "most": round(max(ratios), 3), "latency_mean_ms": middle("latency_us", "mean"),
            "latency_p99_9_ms": middle("latency_us", "p99_9"),
            "user_bytes_per_connection": round(statistics.median(report["memory"]["server_bytes_per_connection"] for report in all_of)),
            "wrong": wrong[name]}), flush=True)


def fanout():
    servers = [tidegate(19810), nchan(19811), centrifuge(19812)]
    rounds(f"{SUBSCRIBERS} subscribers of a channel, 13 bytes", servers,
           ["-c", str(SUBSCRIBERS), "--broadcasts", "20", "--pause", "10ms", "--setup-rate", "10000"])


def sustained():
    servers = [tidegate(19820), nchan(19821), centrifuge(19822)]
    rounds("10,000 subscribers, 10 messages of 512 bytes a second", servers,
           ["-c", "10000", "--rate", "10/s", "--duration", "10s", "--size", "512", "--setup-rate", "10000"])


def spread():
    # Each worker has a table of descriptors of its own.
    rounds("60,000 subscribers, each one message every 12 s, spread evenly", [tidegate(19830, workers=4)],
           ["-c", "60000", "--channels", "600", "--rate", "50/s", "--duration", "12s", "--size", "512"])


def main():
    parts = {"fanout": fanout, "sustained": sustained, "spread": spread}
    wanted = sys.argv[1:] or list(parts)
    for name in wanted:
        if name not in parts:
            sys.exit(__doc__)
    for name in wanted:
        try:
            parts[name]()
        finally:
            route_costs.stop_all()


if __name__ == "__main__":
    main()
