#!/usr/bin/env python3
"""Measures what Lua applications cost, beside Tidegate without Lua, nginx with Lua, Bun and Node.

usage: scripts/lua_costs.py [json] [hook] [echo] [echo-tls] [echo-bun] [client] [memory] [cjson]

Runs the parts that are named, or all. Needs wrk, nginx, node and what scripts/lua_peers.sh installs. The process under test
runs on CPU 0 with one worker, unless stated; the load generator, origins and echo servers run on CPU 1. The cost is all time
in which CPU 0 was not idle, divided by the requests or messages: medians of paired rounds. Run it on a machine that does nothing
else. Prints what is asked and what was reached, and appends each line to benches/results/scripts/lua_costs.jsonl.

json: a table is serialised for each request and sent as JSON, 64 connections; against `respond`, and nginx with lua-cjson.
hook: an access hook that sets one field of proxied requests, 64 connections, against the same route without the hook.
echo: WebSocket messages of 1 KiB are sent back, 100 connections, against the action `echo`.
echo-tls: the same over TLS 1.3, 400 connections, against nginx with lua-resty-websocket.
echo-bun: the same without TLS, 400 connections, against Bun.
client: four workers of an application are WebSocket clients with 100 connections each, which send each echo again, against four
processes of Node with the package ws. The echo server is Tidegate on CPU 1; its counter counts the messages.
memory: 100,000 WebSocket connections to an application that has asked for the table `client:state()` of each; 8 workers.
cjson: an object of 1 KiB is encoded and decoded, in requests with 1,000 such round trips each, against lua-cjson in nginx.

The program is target/release/tidegate, or the value of TIDEGATE. ROUNDS (7) and SECONDS (3) set the length; RECORD=0 appends
nothing. BY=process counts the CPU time of the processes under test instead of all time of CPU 0: for a machine that also does
something else. It misses what the kernel's own threads do for them.
"""
import datetime
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import time
import urllib.request

import http2_costs
import route_costs
from route_costs import FOLDER, PROGRAM, ROOT, ROUNDS, SECONDS, path, start

PEERS = os.path.join(ROOT, "target/peers/lua")
LIBRARIES = os.path.join(PEERS, "root/usr/lib/x86_64-linux-gnu")
RESULTS = os.path.join(ROOT, "benches/results/scripts/lua_costs.jsonl")
# How long connections are opened, and code is compiled, before a load is measured.
WARM_S = 1.5
BY = f"BY={os.environ['BY']} " if "BY" in os.environ else ""
ROWS = []
ECHO = "return { on_message = function(client, message, kind) client:send(message, kind) end }\n"
TLS = 'tls = {{ certificates = [{{ cert = "{}", key = "{}" }}] }}\n'


def note(part, row, asked, reached, is_met, more):
    """Prints and records a figure that a part asks for."""
    ROWS.append((part, row, asked, reached, is_met))
    line = {"date": datetime.date.today().isoformat(),
            "command": f"{BY}ROUNDS={ROUNDS} SECONDS={SECONDS} scripts/lua_costs.py {part}",
            "what": part, "row": row, "asked": asked, "reached": reached, "met": is_met, **more}
    print(json.dumps(line), flush=True)
    if os.environ.get("RECORD") != "0":
        with open(RESULTS, "a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


def cpu_seconds(pid):
    """The CPU time of a process and its children, as far as they run on CPU 0 only."""
    total = 0
    try:
        is_tested = os.sched_getaffinity(pid) == {0}
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/schedstat", encoding="ascii") as file:
                total += int(file.read().split()[0]) / 1e9 if is_tested else 0
            with open(f"/proc/{pid}/task/{task}/children", encoding="ascii") as file:
                total += sum(cpu_seconds(int(child)) for child in file.read().split())
    except OSError:
        # It has ended.
        pass
    return total


def busy():
    if os.environ.get("BY") != "process":
        return route_costs.busy()
    return cpu_seconds(os.getpid())


def measured(loads):
    """The microseconds of CPU 0 for each unit of the loads, by round. A load runs for some seconds; it returns units and CPU seconds."""
    costs = {name: [] for name in loads}
    for turn in range(ROUNDS + 1):
        for name in list(loads) if turn % 2 else list(loads)[::-1]:
            units, spent = loads[name]()
            if turn:
                costs[name].append(spent * 1e6 / units)
    return costs


def compare(part, costs, own, other, most=None, times=None):
    """A figure: `own` costs at most `most` times as much as `other`, or does at least `times` as much in the same CPU time."""
    ratios = [mine / base for mine, base in zip(costs[own], costs[other])]
    if times:
        ratios = [1 / ratio for ratio in ratios]
    middle = round(statistics.median(ratios), 3)
    asked, is_met = (f"<= {most}", middle <= most) if most else (f">= {times}", middle >= times)
    note(part, f"{own} / {other}", asked, middle, is_met, {
        "us": round(statistics.median(costs[own]), 3), "us_of_the_other": round(statistics.median(costs[other]), 3),
        "min": round(min(ratios), 3), "max": round(max(ratios), 3)})


def tidegate(name, port, text, script=None, workers=1, app="", cpu=0):
    """Starts Tidegate with a listener, and an application `app` if there is a script."""
    if script:
        text += f'[lua.app]\nscript = "{path(f"{name}.lua", script)}"\n{app}'
    text = text if "[[listener]]" in text else f'[[listener]]\nbind = "127.0.0.1:{port}"\n{text}'
    start([PROGRAM, "run", path(f"{name}.toml", f"[server]\nworkers = {workers}\n{text}")], port, cpu)


def nginx(name, port, http, server, listen=""):
    """Starts nginx with Lua. The names in `http` and `server` are those of lua-nginx-module."""
    os.environ["LD_LIBRARY_PATH"] = f"{LIBRARIES}:{PEERS}/root/lib/x86_64-linux-gnu"
    modules = f"{PEERS}/root/usr/lib/nginx/modules"
    temporary = "\n".join(f"{kind}_temp_path {FOLDER}/{name}.{kind};"
                          for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    try:
        start(["nginx", "-e", path(f"{name}.log"), "-c", path(f"{name}.conf", f'''load_module {modules}/ndk_http_module.so;
load_module {modules}/ngx_http_lua_module.so;
daemon off; worker_processes 1; user root; pid {FOLDER}/{name}.pid; error_log {FOLDER}/{name}.log crit;
events {{ worker_connections 4096; }}
http {{
    access_log off; keepalive_requests 1000000000; keepalive_timeout 1h; {temporary}
    lua_package_path "{PEERS}/lib/?.lua;{PEERS}/root/usr/share/lua/5.1/?.lua;;";
    lua_package_cpath "{LIBRARIES}/lua/5.1/?.so;;";
    lua_code_cache on;
    {http}
    server {{ listen 127.0.0.1:{port} backlog=4096 {listen}; {server} }}
}}
''')], port, 0)
    finally:
        del os.environ["LD_LIBRARY_PATH"]


def requests(url, connections=64):
    def load():
        before = busy()
        count, _ = route_costs.wrk(url, SECONDS, connections=connections)
        return count, busy() - before
    return load


def body_of(url):
    with urllib.request.urlopen(url, timeout=10) as response:
        return response.read().decode()


def json_part():
    tidegate("respond", 19840, f'''[[route]]
respond = {{ status = 200, headers = {{ content-type = "application/json" }}, body = '{route_costs.BODY}' }}
''')
    tidegate("json", 19841, '[[route]]\nlua = "app"\n', '''return {
  on_request = function(request, response) response:json({ message = "Hello, World!" }) end,
}
''')
    nginx("nginx-json", 19842, 'init_by_lua_block { encode = require("cjson.safe").encode }', '''default_type application/json;
        location / { content_by_lua_block {
            local text = encode({ message = "Hello, World!" })
            ngx.header["Content-Length"] = #text
            ngx.print(text)
        } }''')
    urls = {name: f"http://127.0.0.1:{port}/json" for name, port in (("respond", 19840), ("nginx", 19842), ("lua", 19841))}
    for url in urls.values():
        assert json.loads(body_of(url)) == {"message": "Hello, World!"}
    costs = measured({name: requests(url) for name, url in urls.items()})
    compare("json", costs, "lua", "respond", most=1.30)
    compare("json", costs, "lua", "nginx", most=0.75)


def hook():
    route_costs.origin()
    tidegate("bare", 19843, f'[[route]]\nproxy = "app"\n{route_costs.pool()}')
    tidegate("hook", 19844, f'[[route]]\nhooks = "app"\nproxy = "app"\n{route_costs.pool()}', '''return {
  on_access = function(request) request:set_header("X-Plan", "gold") end,
}
''')
    costs = measured({"bare": requests("http://127.0.0.1:19843/json"), "hook": requests("http://127.0.0.1:19844/json")})
    compare("hook", costs, "hook", "bare", most=1.15)


def messages(url, connections, *options):
    """Echoes of 1 KiB. CPU time is measured while all connections are open: the rate of CPU time by that of messages."""
    command = ["taskset", "-c", "1", PROGRAM, "bench", "ws", url, "-c", str(connections), "--size", "1024", "--json",
               "-d", f"{SECONDS + WARM_S + 0.5}s", "--warm-up", f"{WARM_S}s", *options]

    def load():
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as client:
            time.sleep(WARM_S + 0.3)
            before, begin = busy(), time.monotonic()
            time.sleep(SECONDS - 0.3)
            spent = (busy() - before) / (time.monotonic() - begin)
            report = json.loads(client.communicate()[0])
        wrong = {name: report[name] for name in ("setup_failures", "connection_losses") if report[name]}
        if wrong:
            print("  warning:", url, wrong)
        return report["messages_per_s"], spent
    return load


def echo():
    tidegate("echo", 19845, "[[route]]\necho = true\n")
    tidegate("lua-echo", 19846, '[[route]]\nlua = "app"\n', ECHO)
    costs = measured({"echo": messages("ws://127.0.0.1:19845/", 100), "lua": messages("ws://127.0.0.1:19846/", 100)})
    compare("echo", costs, "lua", "echo", most=1.20)


def by_outstanding(part, urls, times):
    """Messages per CPU second, with one and with 16 messages of each connection under way."""
    for outstanding in (1, 16):
        loads = {name: messages(url, 400, "-k", "-o", str(outstanding)) for name, url in urls.items()}
        costs = measured(loads)
        costs = {name if name != "lua" else f"lua, {outstanding} outstanding": all_of for name, all_of in costs.items()}
        own, other = f"lua, {outstanding} outstanding", next(name for name in urls if name != "lua")
        compare(part, costs, own, other, times=times)


def echo_tls():
    cert, key, _ = http2_costs.certificate()
    tidegate("tls", 19847, f'[[listener]]\nbind = "127.0.0.1:19847"\n{TLS.format(cert, key)}[[route]]\nlua = "app"\n', ECHO)
    nginx("nginx-tls", 19848, "lua_socket_log_errors off;", f'''ssl_certificate {cert}; ssl_certificate_key {key}; ssl_protocols TLSv1.3;
        location / {{ content_by_lua_block {{
            local socket = require("resty.websocket.server"):new({{ timeout = 60000, max_payload_len = 65535 }})
            if not socket then return ngx.exit(444) end
            while true do
                local data, kind = socket:recv_frame()
                if not data or kind == "close" then return end
                if kind == "text" then socket:send_text(data) elseif kind == "binary" then socket:send_binary(data)
                elseif kind == "ping" then socket:send_pong(data) end
            end
        }} }}''', "ssl")
    by_outstanding("echo-tls", {"nginx": "wss://127.0.0.1:19848/", "lua": "wss://127.0.0.1:19847/"}, 8)


def echo_bun():
    bun = f"{PEERS}/node_modules/@oven/bun-linux-x64/bin/bun"
    with open(os.path.join(ROOT, "benches/compare/bun-echo.mjs"), encoding="utf-8") as file:
        source = file.read().replace("{host}", "127.0.0.1").replace("{port}", "19850")
    tidegate("lua-echo", 19849, '[[route]]\nlua = "app"\n', ECHO)
    start([bun, "run", path("bun-echo.mjs", source)], 19850, 0)
    by_outstanding("echo-bun", {"bun": "ws://127.0.0.1:19850/", "lua": "ws://127.0.0.1:19849/"}, 1.2)


CLIENT = '''
local message = ("x"):rep(1024)
local function talk()
  local ws = assert(tide.websocket.connect("echo"))
  ws:send(message, "binary")
  while true do
    local data = assert(ws:receive())
    if #data ~= 1024 then error("an echo of " .. #data .. " bytes") end
    ws:send(data, "binary")
  end
end
return { on_start = function() for _ = 1, 100 do tide.spawn(talk) end end, on_request = function() end }
'''


def counter(port, name):
    found = re.search(rf"^{name}(?:{{[^}}]*}})? (\d+)", body_of(f"http://127.0.0.1:{port}/metrics"), re.M)
    return int(found.group(1))


def client():
    tidegate("echo", 19851, '[admin]\nbind = "127.0.0.1:19852"\n[[listener]]\nbind = "127.0.0.1:19851"\n[[route]]\necho = true\n', cpu=1)
    script, port = path("client.lua", CLIENT), 19853
    config = path("client.toml", f'''[server]
workers = 4
[[listener]]
bind = "127.0.0.1:{port}"
[[route]]
lua = "app"
[lua.app]
script = "{script}"
pools = ["echo"]
[pool.echo]
servers = ["127.0.0.1:19851"]
''')
    node = ["node", os.path.join(ROOT, "benches/compare/node-ws-client.cjs"), "ws://127.0.0.1:19851/", "100", "1024"]
    commands = {"node": [node] * 4, "lua": [[PROGRAM, "run", config]]}
    environment = {**os.environ, "NODE_PATH": f"{PEERS}/node_modules"}

    def load_of(name):
        def load():
            started = [subprocess.Popen(["taskset", "-c", "0", *command], env=environment, stdout=subprocess.DEVNULL)
                       for command in commands[name]]
            time.sleep(WARM_S + 1)
            open_now = counter(19852, "tidegate_websockets_now")
            before, count = busy(), counter(19852, "tidegate_websocket_messages_total")
            time.sleep(SECONDS)
            count, spent = counter(19852, "tidegate_websocket_messages_total") - count, busy() - before
            for process in started:
                process.send_signal(signal.SIGKILL)
                process.wait()
            time.sleep(0.5)
            if open_now != 400:
                print(f"  warning: {name}: {open_now} connections")
            return count, spent
        return load
    costs = measured({name: load_of(name) for name in commands})
    compare("client", costs, "lua", "node", times=2)


def anonymous(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as file:
        return int(re.search(r"RssAnon:\s+(\d+)", file.read()).group(1)) << 10


def memory():
    count, found = 100_000, []
    script = "return { on_open = function(client) client:state() end, on_message = function(client, data) client:send(data) end }\n"
    for _ in range(3):
        tidegate("memory", 19854, '''connections-max = 160000
[admin]
bind = "127.0.0.1:19855"
[websocket]
ping-every = "off"
[[listener]]
bind = "127.0.0.1:19854"
backlog = 65535
[[route]]
lua = "app"
''', script, workers=8, cpu=None)
        pid = route_costs.SERVERS[-1].pid
        time.sleep(1)
        before = anonymous(pid)
        command = [PROGRAM, "bench", "ws", "ws://127.0.0.1:19854/", "-c", str(count), "-R", "1/s", "-d", "8s", "--json", "-w", "60s"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as clients:
            opened, deadline = 0, time.monotonic() + 120
            while opened < count and time.monotonic() < deadline:
                time.sleep(0.5)
                opened = counter(19855, "tidegate_websockets_now")
            time.sleep(2)
            found.append((anonymous(pid) - before) / opened)
            clients.communicate()
        route_costs.stop_all()
    middle = round(statistics.median(found))
    note("memory", "bytes of user memory for a connection", "<= 1536", middle, middle <= 1536, {
        "connections": opened, "min": round(min(found)), "max": round(max(found))})


def text_of_1_kib():
    """JSON as services exchange it: short texts, some beyond ASCII, integers, fractions, lists and objects."""
    value = {"id": 123456, "name": "Ada Lovelace", "email": "ada@example.com", "active": True, "score": 97.25, "parent": None,
             "tags": ["alpha", "beta", "gamma", "delta"], "address": {"street": "12 Example Road", "city": "Zürich", "zip": "8001"},
             "items": [{"sku": f"A-{number:04}", "price": number * 1.5, "count": number, "note": 'the "best" one\n'}
                       for number in range(1, 9)],
             "history": list(range(1000, 1030)), "comment": ""}
    size = lambda: len(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode())
    value["comment"] = "x" * (1024 - size())
    assert size() == 1024
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def cjson():
    text = text_of_1_kib()
    loop = f'''
local value = decode([==[{text}]==])
local function trips()
  local text
  for _ = 1, 1000 do
    text = encode(value)
    value = decode(text)
  end
  return text
end
'''
    tidegate("tide-json", 19856, '[[route]]\nlua = "app"\n', f'''local encode, decode = tide.json.encode, tide.json.decode
{loop}
return {{ on_request = function(_, response) response:finish(trips()) end }}
''', app='time-max = "10s"\n')
    module = path("trips.lua", f'local encode, decode = require("cjson").encode, require("cjson").decode\n{loop}\nreturn trips\n')
    nginx("nginx-cjson", 19857, f'init_by_lua_block {{ trips = dofile("{module}") }}',
          "location / { content_by_lua_block { ngx.print(trips()) } }")
    urls = {name: f"http://127.0.0.1:{port}/" for name, port in (("lua-cjson", 19857), ("tide.json", 19856))}
    for url in urls.values():
        assert json.loads(body_of(url)) == json.loads(text)
    costs = measured({name: requests(url, connections=2) for name, url in urls.items()})
    costs = {name: [cost / 1000 for cost in all_of] for name, all_of in costs.items()}
    compare("cjson", costs, "tide.json", "lua-cjson", times=1)


def main():
    parts = {"json": json_part, "hook": hook, "echo": echo, "echo-tls": echo_tls, "echo-bun": echo_bun, "client": client,
             "memory": memory, "cjson": cjson}
    wanted = sys.argv[1:] or list(parts)
    if any(name not in parts for name in wanted):
        sys.exit(__doc__)
    for name in wanted:
        try:
            parts[name]()
        finally:
            route_costs.stop_all()
    print(f"\n{'part':<10}{'figure':<45}{'asked':>10}{'reached':>10}")
    for part, row, asked, reached, is_met in ROWS:
        print(f"{part:<10}{row:<45}{asked:>10}{reached:>10}{'' if is_met else '  missed'}")


if __name__ == "__main__":
    main()
