#!/usr/bin/env python3
"""Measures what conditions, rewrites, limits and TCP mode cost.

usage: scripts/route_costs.py [edits] [many] [rate] [tcp] [bandwidth] [table]

Runs the parts that are named, or all. Needs wrk, and for `tcp` HAProxy and nginx with its stream module. Every server under
test runs on CPU 0 with one worker; wrk and the origin run on CPU 1. The cost is all time in which CPU 0 was not idle,
divided by the requests that wrk counted: medians of paired rounds. Run it on a machine that does nothing else.

The program is target/release/tidegate, or the value of TIDEGATE. ROUNDS (7) and SECONDS (3) set the length. Each line is appended
to the file of benches/results/scripts that is named after the script; RECORD=0 appends nothing.
"""
import datetime
import json
import os
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PROGRAM = os.environ.get("TIDEGATE", os.path.join(ROOT, "target/release/tidegate"))
ROUNDS = int(os.environ.get("ROUNDS", "7"))
SECONDS = int(os.environ.get("SECONDS", "3"))
FOLDER = tempfile.mkdtemp(prefix="route_costs.")
ORIGIN = 19790
SERVERS = []
BODY = '{"message":"Hello, World!"}'


def path(name, text=None):
    where = os.path.join(FOLDER, name)
    if text is not None:
        with open(where, "w", encoding="utf-8") as file:
            file.write(text)
    return where


def start(command, port, cpu):
    """Starts a server on a CPU. Returns the seconds until it accepted a connection."""
    with socket.socket() as probe:
        if probe.connect_ex(("127.0.0.1", port)) == 0:
            sys.exit(f"port {port} is taken")
    begin = time.monotonic()
    pin = [] if cpu is None else ["taskset", "-c", str(cpu)]
    SERVERS.append(subprocess.Popen(pin + command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
    while time.monotonic() < begin + 30:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return time.monotonic() - begin
        time.sleep(0.002)
    sys.exit(f"nothing listens on port {port}: {' '.join(command)}")


def stop_all():
    for server in SERVERS:
        server.terminate()
    for server in SERVERS:
        server.wait()
    SERVERS.clear()


def tidegate(name, text, cpu=0, workers=1):
    port = int(re.search(r"bind = \"127\.0\.0\.1:(\d+)\"", text).group(1))
    file = path(f"{name}.toml", f"[server]\nworkers = {workers}\n{text}")
    return start([PROGRAM, "run", file], port, cpu)


def busy():
    """The seconds in which CPU 0 was not idle."""
    with open("/proc/stat", encoding="ascii") as file:
        fields = next(line for line in file if line.startswith("cpu0 ")).split()[1:]
    user, nice, system, _idle, _wait, irq, softirq = map(int, fields[:7])
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")


def wrk(url, seconds, script=None, connections=64):
    command = ["taskset", "-c", "1", "wrk", "-t1", f"-c{connections}", f"-d{seconds}s"]
    command += ["-s", script] if script else []
    out = subprocess.run(command + [url], capture_output=True, text=True, check=True).stdout
    errors = re.search(r"Socket errors.*|Non-2xx.*", out)
    if errors and "Non-2xx" in errors.group(0) and "429" not in url:
        print("  warning:", errors.group(0))
    return int(re.search(r"(\d+) requests in", out).group(1)), out


def note(line):
    """Prints and records a line of figures."""
    print(json.dumps(line), flush=True)
    if os.environ.get("RECORD") == "0":
        return
    script = os.path.basename(sys.argv[0])
    line = {"date": datetime.date.today().isoformat(),
            "command": f"ROUNDS={ROUNDS} SECONDS={SECONDS} scripts/{' '.join([script] + sys.argv[1:])}", **line}
    with open(os.path.join(ROOT, "benches/results/scripts", script.replace(".py", ".jsonl")), "a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


def pair(title, urls, script=None):
    """Rounds over all URLs; the first one is the base."""
    costs = {name: [] for name in urls}
    for turn in range(ROUNDS + 1):
        for name in list(urls) if turn % 2 else list(urls)[::-1]:
            before = busy()
            count, _ = wrk(urls[name], SECONDS, script)
            if turn:
                costs[name].append((busy() - before) * 1e6 / count)
    names = list(urls)
    for name in names:
        ratios = [one / base for one, base in zip(costs[name], costs[names[0]])]
        line = {"what": title, "row": name, "us_per_request": round(statistics.median(costs[name]), 2),
                "ratio": round(statistics.median(ratios), 3), "min": round(min(ratios), 3), "max": round(max(ratios), 3)}
        note(line)


def origin():
    start(["taskset", "-c", "1", PROGRAM, "bench", "floor", "--listen", f"127.0.0.1:{ORIGIN}"], ORIGIN, None)


def pool():
    return f'[pool.app]\nservers = ["127.0.0.1:{ORIGIN}"]\n'


def edits():
    origin()
    listen = '[[listener]]\nbind = "127.0.0.1:{}"\n'
    tidegate("bare", listen.format(19700) + '[[route]]\nproxy = "app"\n' + pool())
    tidegate("edits", listen.format(19701) + '''[[route]]
path = "/v1/*"
proxy = { pool = "app", path = "/{rest}" }
request-headers = { set = { x-real-ip = "{client}" }, remove = ["x-debug"] }
rate = { limit = "100000000/1s", by = "client-address" }
''' + pool())
    pair("two edits, a path strip and a rate by address", {
        "bare": "http://127.0.0.1:19700/json", "edits": "http://127.0.0.1:19701/v1/json"})


def many():
    origin()
    path("hosts.map", "".join(f"host{n}.example app\n" for n in range(100_000)))
    path("office.txt", "".join(f"10.{n >> 16}.{n >> 8 & 255}.{n & 255}/32\n" for n in range(0, 200_000, 2)))
    kinds = ['headers = { user-agent = { contains = "bot%d", ignore-case = true } }', 'query = { debug = "%d" }',
             'cookies = { beta = "%d" }', 'client = ["set:office"]\nquery = { a = "%d" }', 'method = "PUT"\nquery = { b = "%d" }']

    def routes(port, place):
        text = f'[[listener]]\nbind = "127.0.0.1:{port}"\n[map.hosts]\nfile = "hosts.map"\n[set.office]\naddresses = "office.txt"\n'
        for number in range(1000):
            text += f'[[route]]\n{place % (number // 5)}{kinds[number % 5] % number}\nrespond = {{ status = 404 }}\n'
        return text + '[[route]]\nproxy = { pool = { map = "hosts", key = "{host}", default = "app" } }\n' + pool()

    tidegate("bare", '[[listener]]\nbind = "127.0.0.1:19710"\n[[route]]\nproxy = "app"\n' + pool())
    # 200 hosts with five routes each, and the same routes for every host, so that each request is tested against all.
    hosts = routes(19711, 'host = "host%d.example"\n')
    tidegate("all", routes(19712, "# %d\n"))
    loads = [tidegate("hosts", hosts)]
    for _ in range(4):
        SERVERS[-1].terminate()
        SERVERS.pop().wait()
        loads.append(tidegate("hosts", hosts))
    note({"what": "start with 1,000 routes, 100,000 keys, 100,000 networks", "ms": round(statistics.median(loads) * 1000)})
    script = path("host.lua", 'wrk.headers["Host"] = "host47.example"\nwrk.headers["User-Agent"] = "wrk"\nwrk.headers["Cookie"] = "a=b"\n')
    pair("1,000 routes on five kinds of conditions, a map, a set", {
        "bare": "http://127.0.0.1:19710/json?q=1", "five for each host": "http://127.0.0.1:19711/json?q=1",
        "all for each host": "http://127.0.0.1:19712/json?q=1"}, script)


def rate():
    tidegate("rate", f'''[[listener]]
bind = "127.0.0.1:19720"
[[route]]
path = "/429"
rate = {{ limit = "1000/1s", by = "header:x-key", burst = 20 }}
respond = {{ body = '{BODY}' }}
''', cpu=None, workers=8)
    script = path("keys.lua", '''
hot, admitted = 0, 0
local turn = 0
function request()
  turn = turn + 1
  local key = "hot"
  if turn % 4 == 0 then key = "cold" .. math.random(1000000) end
  return wrk.format("GET", nil, { ["x-key"] = key, ["x-kind"] = key == "hot" and "h" or "c" })
end
local threads = {}
function setup(thread) table.insert(threads, thread) end
function response(status) if status == 200 then admitted = admitted + 1 else hot = hot + 1 end end
function done(summary)
  local yes, no = 0, 0
  for _, thread in ipairs(threads) do yes = yes + thread:get("admitted"); no = no + thread:get("hot") end
  print("admitted " .. yes .. " refused " .. no .. " seconds " .. summary.duration / 1e6)
end
''')
    # Cold keys are always admitted: a quarter of all requests. The burst makes up for milliseconds in which the scheduler runs
    # neither wrk nor a worker: with a burst of 1, each of them loses an admission.
    seconds = 20
    _, out = wrk("http://127.0.0.1:19720/429", seconds, script)
    admitted, refused, span = map(float, re.search(r"admitted (\d+) refused (\d+) seconds ([\d.]+)", out).groups())
    hot = admitted - (admitted + refused) / 4
    resident = int(re.search(r"VmRSS:\s+(\d+)", open(f"/proc/{SERVERS[-1].pid}/status", encoding="ascii").read()).group(1))
    note({"what": "rate of 1,000/s, 8 workers, one hot key and a million cold ones", "requests": int(admitted + refused),
          "hot_per_second": round(hot / span, 1), "of_limit": round(hot / span / 1000, 4), "rss_mib": resident >> 10})


def tcp():
    start([PROGRAM, "run", path("synthetic.toml", f'[server]\nworkers = 1\n[[listener]]\nbind = "127.0.0.1:{ORIGIN}"\n[[route]]\nsynthetic = true\n')],
          ORIGIN, 1)
    tidegate("tcp", '[[listener]]\nbind = "127.0.0.1:19730"\nforward = "app"\n' + pool())
    urls = {"tidegate": 19730}
    if shutil.which("haproxy"):
        start(["haproxy", "-db", "-f", path("haproxy.cfg", f'''global
    nbthread 1
    maxconn 4000
defaults
    mode tcp
    timeout connect 5s
    timeout client 60s
    timeout server 60s
    option splice-auto
listen web
    bind 127.0.0.1:19731
    server app 127.0.0.1:{ORIGIN}
''')], 19731, 0)
        urls["haproxy"] = 19731
    if os.path.exists("/usr/lib/nginx/modules/ngx_stream_module.so"):
        start(["nginx", "-e", path("nginx.log"), "-c", path("nginx.conf", f'''load_module /usr/lib/nginx/modules/ngx_stream_module.so;
daemon off; worker_processes 1; pid {FOLDER}/nginx.pid; error_log {FOLDER}/nginx.log;
events {{ worker_connections 4096; }}
stream {{ server {{ listen 127.0.0.1:19732 reuseport; proxy_pass 127.0.0.1:{ORIGIN}; proxy_buffer_size 64k; }} }}
''')], 19732, 0)
        urls["nginx"] = 19732
    script = path("body.lua", 'wrk.method = "POST"\nwrk.body = string.rep("x", 16384)\n')
    pair("TCP mode, 64 connections, 16 KiB both ways",
         {name: f"http://127.0.0.1:{port}/s?s=16k" for name, port in reversed(list(urls.items()))}, script)


def bandwidth():
    origin()
    for number, more in enumerate(["", 'bandwidth = { down = "1024GiB/s" }\n']):
        tidegate(f"bandwidth{number}", f'[[listener]]\nbind = "127.0.0.1:{19740 + number}"\n[[route]]\nproxy = "app"\n{more}{pool()}')
    pair("bandwidth of a route, never reached", {
        "bare": "http://127.0.0.1:19740/json", "bandwidth": "http://127.0.0.1:19741/json"})


def table():
    origin()
    for number, (tables, more) in enumerate([("", ""), (
            '[table.abuse]\nkey = "client-address"\ncounts = ["requests/10s", "errors/1m", "connections"]\n',
            'table = { abuse = { requests = "< 1000000000" } }\n')]):
        count = 'count = "abuse"\n' if more else ""
        tidegate(f"table{number}", f'[[listener]]\nbind = "127.0.0.1:{19750 + number}"\n{count}{tables}[[route]]\nproxy = "app"\n{more}{pool()}')
    pair("a table of three counts by address, and a condition", {
        "bare": "http://127.0.0.1:19750/json", "table": "http://127.0.0.1:19751/json"})


PARTS = {"edits": edits, "many": many, "rate": rate, "tcp": tcp, "bandwidth": bandwidth, "table": table}


def main():
    wanted = sys.argv[1:] or list(PARTS)
    unknown = [name for name in wanted if name not in PARTS]
    if unknown or not os.path.exists(PROGRAM):
        sys.exit(__doc__ if unknown else f"{PROGRAM} does not exist: cargo build --release -p tidegate")
    try:
        for name in wanted:
            PARTS[name]()
            stop_all()
    finally:
        stop_all()
        shutil.rmtree(FOLDER)


if __name__ == "__main__":
    main()
