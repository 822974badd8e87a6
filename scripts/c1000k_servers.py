#!/usr/bin/env python3
"""Measures Tidegate beside the servers of the C1000K article: Netty, Undertow, Jetty, Vert.x and Grizzly.

usage: scripts/c1000k_servers.py [netty] [undertow] [jetty] [vertx] [grizzly]

Measures the servers that are named, or all, and Tidegate. Needs a JDK 17 and Maven: it builds benches/compare/c1000k-java
(as scripts/compare-peers.sh java). Every server runs on CPU 0 with one thread for its sockets; `tidegate bench push` runs on
CPU 1. A round of a server: CONNECTIONS clients connect over WebSocket, BROADCASTS messages of 13 bytes go to all of them, and
the clients leave. All servers run during all rounds and take turns; the first WARM_UPS rounds are not counted, because Java
compiles during them. A pass of its own measures memory: for Java the last one, the live objects after a garbage collection; for
Tidegate the first one, the growth of its resident memory.

CPU time is user and system time of the server's processes: per connection from the first connect to the end of a pause of
1 s after the last one, per message from the first publication to the last receipt.

A process of Java cannot hold more sockets than the limit of descriptors (20,000 on many hosts). Where CONNECTIONS (100,000) are
more than PER_PROCESS (17,000), as many processes of a Java server as needed share them evenly, each with its own port, its own
clients and its own publications. Tidegate is one process with one address and as many workers as the limit requires.

The program is target/release/tidegate, or the value of TIDEGATE. ROUNDS (5), WARM_UPS (2) and HEAP (512m, for each process)
are settings, too. Appends a JSON line to benches/results/scripts/c1000k_servers.jsonl, unless RECORD=0. Run it on a machine
that does nothing else.
"""
import datetime
import glob
import json
import os
import re
import resource
import signal
import statistics
import subprocess
import sys
import time
import urllib.request

import route_costs
from route_costs import PROGRAM, ROOT, path, start

ROUNDS = int(os.environ.get("ROUNDS", "5"))
WARM_UPS = int(os.environ.get("WARM_UPS", "2"))
CONNECTIONS = int(os.environ.get("CONNECTIONS", "100000"))
PER_PROCESS = int(os.environ.get("PER_PROCESS", "17000"))
BROADCASTS = int(os.environ.get("BROADCASTS", "5"))
HEAP = os.environ.get("HEAP", "512m")
RESULTS = os.path.join(ROOT, "benches/results/scripts/c1000k_servers.jsonl")
JAVA = os.path.join(ROOT, "target/peers/c1000k-java")
# The main class and the library whose version the table shows.
CLASSES = {
    "netty": ("Netty", "netty-codec-http-"),
    "undertow": ("Undertow", "undertow-core-"),
    "jetty": ("Jetty", "jetty-websocket-jetty-server-"),
    "vertx": ("Vertx", "vertx-core-"),
    "grizzly": ("Grizzly", "grizzly-websockets-"),
}
KEY = "change-me-0123456789"


class Process:
    """A process of a server: how clients reach it."""

    def __init__(self, arguments, control=None):
        self.arguments, self.control = arguments, control
        self.pid = route_costs.SERVERS[-1].pid

    def ask(self, what):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.control}/{what}", timeout=60) as answer:
            return int(answer.read())

    def await_clients(self, count):
        end = time.monotonic() + 60
        while self.control and self.ask("clients") != count:
            if time.monotonic() > end:
                sys.exit(f"{self.arguments[0]}: {self.ask('clients')} clients, not {count}")
            time.sleep(0.1)

    def bench(self, connections, more):
        command = ["taskset", "-c", "1", PROGRAM, "bench", "push", *self.arguments, "-c", str(connections), *more,
                   "--timeout", "60s", "--server-pid", str(self.pid), "--json"]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


class Server:
    """A running server, and its reports."""

    def __init__(self, name, version, processes):
        self.name, self.version, self.processes = name, version, processes
        self.reports, self.wrong, self.memory = [], {}, {}


def tidegate(port):
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    # The kernel spreads connections over the workers at random, and a worker keeps an eighth of its slots for servers.
    workers = 1 if CONNECTIONS <= PER_PROCESS else -(-CONNECTIONS * 4 // 3 // limit)
    start([PROGRAM, "run", path("tidegate.toml", f'''[server]
workers = {workers}
connections-max = {workers * limit}
[websocket]
ping-every = "off"
[[listener]]
bind = "127.0.0.1:{port}"
backlog = 65535
[[route]]
path = "/push/*"
push = "hub"
[push.hub]
api-keys = ["{KEY}"]
subscribe = "anyone"
''')], port, 0)
    version = subprocess.run([PROGRAM, "--version"], capture_output=True, text=True, check=True).stdout.split()[-1]
    return Server("tidegate", version, [Process([f"ws://127.0.0.1:{port}/push/subscribe/all", "--api-key", KEY])])


def java(name, first_port):
    main, library = CLASSES[name]
    processes = []
    for at in range(-(-CONNECTIONS // PER_PROCESS)):
        port = first_port + 2 * at
        # One CPU: the serial collector takes the least CPU time, and the heap never grows during a round.
        start(["java", f"-Xms{HEAP}", f"-Xmx{HEAP}", "-XX:+UseSerialGC", "-cp", f"{JAVA}/classes:{JAVA}/libraries/*",
               f"c1000k.{main}", str(port)], port, 0)
        url = f"http://127.0.0.1:{port + 1}/publish"
        processes.append(Process([f"ws://127.0.0.1:{port}/", "--publish-body", "--publish-url", url], control=port + 1))
    jars = [os.path.basename(jar) for jar in glob.glob(f"{JAVA}/libraries/*.jar")]
    found = (re.fullmatch(re.escape(library) + r"([0-9].*)\.jar", jar) for jar in jars)
    return Server(name, next((match.group(1) for match in found if match), "unknown"), processes)


def reports_of(server, more, meanwhile=lambda process, connections: None):
    """Puts the load on all processes of a server at once. Returns a report for each."""
    share = CONNECTIONS // len(server.processes)
    children = [process.bench(share, more) for process in server.processes]
    for process in server.processes:
        meanwhile(process, share)
    reports = []
    for child in children:
        output, errors = child.communicate()
        if not output:
            sys.exit(f"{' '.join(child.args)}: {errors}")
        reports.append(json.loads(output))
    return reports


def run(server):
    """A round of a server. Returns its figures."""
    reports = reports_of(server, ["-n", str(BROADCASTS), "--pause", "100ms", "--settle", "1s"])
    for report in reports:
        if not report["received"]:
            sys.exit(f"{server.name}: no message arrived: {report['setup_failures']} {report['publish_failures']}")
        for key in ("setup_failed", "publish_failed", "lost", "duplicated", "out_of_order", "foreign"):
            if report[key]:
                server.wrong[key] = server.wrong.get(key, 0) + report[key]
    return {
        "setup": statistics.mean(report["server_cpu_us_per_connection"] for report in reports),
        "message": statistics.mean(report["server_cpu_us_per_message"] for report in reports),
        "connections_per_s": sum(report["setup_per_s"] for report in reports),
        "last_ms": max(report["last_us"]["mean"] for report in reports) / 1000,
        "latency_mean_ms": statistics.mean(report["latency_us"]["mean"] for report in reports) / 1000,
    }


def measure_memory(server):
    """Memory with idle connections: resident, and per connection."""
    for process in server.processes:
        process.await_clients(0)
    heap = -sum(process.ask("heap") for process in server.processes if process.control)

    def add_heap(process, connections):
        nonlocal heap
        process.await_clients(connections)
        heap += process.ask("heap") if process.control else 0

    reports = reports_of(server, ["-n", "0", "--settle", f"{2 + 2 * len(server.processes)}s"], add_heap)
    server.memory["resident_bytes"] = sum(report["memory"]["server_bytes"] for report in reports)
    if heap:
        server.memory["heap_bytes_per_connection"] = round(heap / CONNECTIONS)
    else:
        server.memory["resident_bytes_per_connection"] = round(reports[0]["memory"]["server_bytes_per_connection"])


def summary(server, base):
    """The medians of a server, and Tidegate's figures divided by its own, by round."""
    def over(key):
        ratios = [ours[key] / theirs[key] for ours, theirs in zip(base.reports, server.reports)]
        return {"median": round(statistics.median(ratios), 3), "least": round(min(ratios), 3), "most": round(max(ratios), 3)}

    def middle(key, digits):
        return round(statistics.median(report[key] for report in server.reports), digits)

    return {
        "name": server.name, "version": server.version, "processes": len(server.processes),
        "setup_cpu_us_per_connection": middle("setup", 2), "tidegate_over_this_setup": over("setup"),
        "cpu_us_per_message": middle("message", 3), "tidegate_over_this_message": over("message"),
        "connections_per_s": middle("connections_per_s", 0), "broadcast_ms": middle("last_ms", 1),
        "latency_mean_ms": middle("latency_mean_ms", 1), **server.memory, "wrong": server.wrong,
    }


def show(rows):
    print(f"{CONNECTIONS:,} connections\n{'':<28}{'proc.':>6}{'setup µs':>9}{'÷':>7}{'conn/s':>8}{'µs/msg':>8}{'÷':>7}"
          f"{'last ms':>9}{'RSS MiB':>9}{'B/conn':>8}  wrong")
    for row in rows:
        per_connection = row.get("heap_bytes_per_connection", row.get("resident_bytes_per_connection"))
        print(f"{row['name'] + ' ' + row['version']:<28}{row['processes']:>6}{row['setup_cpu_us_per_connection']:>9}"
              f"{row['tidegate_over_this_setup']['median']:>7}{row['connections_per_s']:>8.0f}{row['cpu_us_per_message']:>8}"
              f"{row['tidegate_over_this_message']['median']:>7}{row['broadcast_ms']:>9}{row['resident_bytes'] >> 20:>9}"
              f"{per_connection:>8}  {row['wrong'] or '-'}")
    print("÷: Tidegate's figure divided by that of the row, median of the rounds")
    print("B/conn: of Java, live objects after a garbage collection; of Tidegate, growth of the resident memory")


def record(rows):
    with open("/proc/cpuinfo", encoding="ascii") as file:
        cpu = next((line.split(":")[1].strip() for line in file if line.startswith("model name")), "unknown")
    runtime = subprocess.run(["java", "-version"], capture_output=True, text=True, check=True).stderr.splitlines()[0]
    line = {
        "date": datetime.date.today().isoformat(), "command": " ".join(["scripts/c1000k_servers.py", *sys.argv[1:]]),
        "connections": CONNECTIONS, "per_process": PER_PROCESS, "rounds": ROUNDS, "warm_ups": WARM_UPS, "broadcasts": BROADCASTS,
        "heap": HEAP, "java": runtime, "rows": rows,
        "environment": {"kernel": os.uname().release, "cpus": f"{os.cpu_count()} × {cpu}"},
    }
    with open(RESULTS, "a", encoding="utf-8") as file:
        file.write(json.dumps(line, ensure_ascii=False) + "\n")


def main():
    wanted = sys.argv[1:] or list(CLASSES)
    if any(name not in CLASSES for name in wanted):
        sys.exit(__doc__)
    if not os.path.isdir(f"{JAVA}/libraries"):
        subprocess.run([os.path.join(ROOT, "scripts/compare-peers.sh"), "java"], check=True)
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    # The servers are stopped then, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))
    try:
        ours = tidegate(19850)
        servers = [ours, *(java(name, 19900 + 50 * at) for at, name in enumerate(wanted))]
        # Memory of an earlier round would serve later connections.
        measure_memory(ours)
        for turn in range(WARM_UPS + ROUNDS):
            for server in servers if turn % 2 else servers[::-1]:
                figures = run(server)
                if turn >= WARM_UPS:
                    server.reports.append(figures)
        for server in servers[1:]:
            measure_memory(server)
        rows = [summary(server, ours) for server in servers]
        show(rows)
        if os.environ.get("RECORD") != "0":
            record(rows)
    finally:
        route_costs.stop_all()


if __name__ == "__main__":
    main()
