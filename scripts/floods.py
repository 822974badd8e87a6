#!/usr/bin/env python3
"""Compares how Tidegate and HAProxy serve their clients while others waste all connection slots.

For each flood and number of slots, both proxies run with one thread, the same limit of connections and the same origin.
20 clients keep their connections and send 10 requests a second each; all requests are forwarded to the origin. 5 new
clients a second connect, send one request and leave. After a calm second the flood begins: one process opens connections
as fast as the system allows, up to 3000 at a time, and wastes them in one of the ways in FLOODS. The table has the
latencies of kept and new clients during the flood (from the time when a request was due, reconnects included), the
failures, and the number of connections that the flood opened in a second. On a busy machine, `chrt -r 1
scripts/floods.py` (as root) gives everything except the flood priority over other programs.

    scripts/floods.py [--tidegate PATH] [--slots 64,1000] [--floods silent,half,...] [--seconds 5]

With FLOODS_TRACE=1 in the environment, every request that failed or took more than 100 ms is printed.
Needs only the standard library, `haproxy` and `openssl`. Uses free ports of 127.0.0.1 and no other hosts.
"""
import argparse
import asyncio
import errno
import multiprocessing
import os
import pathlib
import resource
import select
import signal
import socket
import struct
import subprocess
import tempfile
import time

from local_ports import free_ports, wait_for

ROOT = pathlib.Path(__file__).resolve().parent.parent
KEPT, KEPT_EVERY_S, NEW_EVERY_S = 20, 0.1, 0.2
OPEN_MAX = 3000
PATIENCE_S = 10
LARGE_BYTES = 16 << 20
SMALL = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
FLOODS = {
    "none": "no flood",
    "silent": "send nothing",
    "half": "send half a head, then nothing",
    "drip": "send a head byte by byte, without end",
    "tls": "send the start of a TLS handshake",
    "again": "send one request, close and connect again",
    "idle": "send one request and stay connected",
    "pools": "send one request to each of two pools and stay connected",
    "slow": "request a large body and do not read it",
    "closed": "send a request with Connection: close, and do not close",
}
TIDEGATE = """
[server]
workers = 1
connections-max = {slots}
[[listener]]
name = "web"
bind = "127.0.0.1:{port}"
backlog = 4096
[[listener]]
name = "tls"
bind = "127.0.0.1:{tls_port}"
backlog = 4096
tls = {{ certificates = [{{ cert = "{pem}", key = "{pem}" }}] }}
[[route]]
path = "/other"
proxy = "other"
[[route]]
proxy = "origin"
[pool.origin]
servers = ["127.0.0.1:{origin}"]
[pool.other]
servers = ["127.0.0.1:{origin}"]
"""
HAPROXY = """
global
    nbthread 1
    maxconn {slots}
defaults
    mode http
    timeout connect 3s
    timeout client 30s
    timeout server 60s
    timeout http-request 10s
    timeout http-keep-alive 60s
    http-reuse always
frontend web
    bind 127.0.0.1:{port} backlog 4096
    bind 127.0.0.1:{tls_port} ssl crt {pem} backlog 4096
    use_backend other if {{ path /other }}
    default_backend origin
backend origin
    server origin 127.0.0.1:{origin}
backend other
    server origin 127.0.0.1:{origin}
"""


def serve_origin(listener):
    """Answers every request at once; /large gets a large body."""
    poll, conns = select.epoll(), {}
    listener.setblocking(False)
    poll.register(listener, select.EPOLLIN)
    large = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % LARGE_BYTES + bytes(LARGE_BYTES)
    while True:
        for fd, _ in poll.poll():
            if fd == listener.fileno():
                try:
                    conn, _ = listener.accept()
                except OSError:
                    continue
                conn.setblocking(False)
                conn.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                conns[conn.fileno()] = [conn, b"", memoryview(b"")]
                poll.register(conn, select.EPOLLIN)
                continue
            entry = conns[fd]
            conn, got, rest = entry
            try:
                if rest:
                    entry[2] = rest[conn.send(rest):]
                else:
                    data = conn.recv(65536)
                    if not data:
                        raise ConnectionError
                    *heads, entry[1] = (got + data).split(b"\r\n\r\n")
                    for head in heads:
                        answer = memoryview(large if b"/large" in head else SMALL)
                        entry[2] = answer[conn.send(answer):]
                poll.modify(conn, select.EPOLLOUT if entry[2] else select.EPOLLIN)
            except BlockingIOError:
                pass
            except OSError:
                poll.unregister(conn)
                conn.close()
                del conns[fd]


def attack(kind, port, tls_port, until, opened):
    """Opens connections at full speed and wastes them."""
    request = b"GET %s HTTP/1.1\r\nHost: a\r\n%s\r\n"
    first = {
        "silent": b"",
        "half": b"GET / HTTP/1.1\r\nHo",
        "drip": b"G",
        "again": request % (b"/", b""),
        "tls": bytes([22, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3]),
        "idle": request % (b"/", b""),
        "pools": request % (b"/", b""),
        "slow": request % (b"/large", b""),
        "closed": request % (b"/", b"Connection: close\r\n"),
    }[kind]
    address = ("127.0.0.1", tls_port if kind == "tls" else port)
    poll, conns, dripped = select.epoll(), {}, 0
    read = kind in ("again", "idle", "pools", "closed")

    def drop(fd):
        conns.pop(fd)[0].close()

    while time.monotonic() < until:
        for _ in range(64):
            if len(conns) >= OPEN_MAX:
                # The first ones stay; the last ones are reset, so that the flood continues at full speed.
                conn, _ = conns.popitem()[1]
                conn.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                conn.close()
            conn = socket.socket()
            conn.setblocking(False)
            if kind == "slow":
                conn.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            error = conn.connect_ex(address)
            if error not in (0, errno.EINPROGRESS):
                conn.close()
                break
            conns[conn.fileno()] = [conn, 0]
            opened.value += 1
            poll.register(conn, select.EPOLLIN | select.EPOLLOUT | select.EPOLLET | select.EPOLLRDHUP)
        for fd, event in poll.poll(0, 1024):
            if fd not in conns:
                continue
            entry = conns[fd]
            try:
                if event & (select.EPOLLERR | select.EPOLLHUP):
                    drop(fd)
                elif event & select.EPOLLRDHUP and kind != "closed":
                    drop(fd)
                elif event & select.EPOLLOUT and entry[1] == 0:
                    entry[1] = 1
                    if first:
                        entry[0].send(first)
                elif event & select.EPOLLIN and read:
                    entry[0].recv(4096)
                    if kind == "again":
                        drop(fd)
                    elif kind == "pools" and entry[1] == 1:
                        entry[1] = 2
                        entry[0].send(request % (b"/other", b""))
            except OSError:
                drop(fd)
        if kind == "drip" and conns:
            # The heads are continued byte by byte.
            fds = list(conns)
            for fd in fds[dripped % len(fds) :][:64]:
                entry = conns[fd]
                if 0 < entry[1] < 1000:
                    entry[1] += 1
                    try:
                        entry[0].send(b"G")
                    except OSError:
                        pass
            dripped += 64
    os._exit(0)


async def ask(line):
    reader, writer = line
    writer.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
    head = await reader.readuntil(b"\r\n\r\n")
    length = next(int(f.split(b":")[1]) for f in head.lower().split(b"\r\n") if f.startswith(b"content-length"))
    await reader.readexactly(length)
    return int(head.split()[1])


async def measure_clients(port, began, seconds, results):
    """Sends the requests of kept and new clients; records (kind, due, latency or None, reconnects)."""
    connect = lambda: asyncio.open_connection("127.0.0.1", port)
    end = began + seconds

    async def request(kind, due, line):
        reconnects = 0
        try:
            async with asyncio.timeout(PATIENCE_S):
                while True:
                    try:
                        line = line or await connect()
                        status = await ask(line)
                        break
                    except (OSError, asyncio.IncompleteReadError) as error:
                        if os.environ.get("FLOODS_TRACE"):
                            print(f"{time.monotonic() - began:.3f} {kind} {error!r} after {time.monotonic() - due:.3f}")
                        if line:
                            line[1].close()
                        line, reconnects = None, reconnects + 1
                        if kind == "new":
                            status = 0
                            break
        except TimeoutError:
            status = 0
            if line:
                line[1].close()
            line = None
        latency = time.monotonic() - due
        if os.environ.get("FLOODS_TRACE") and latency > 0.1:
            print(f"{time.monotonic() - began:.3f} {kind} {status} {latency:.3f}")
        results.append((kind, due, latency if status == 200 else None, reconnects))
        return line

    async def kept(index):
        line, due = None, began + index * KEPT_EVERY_S / KEPT
        while due < end:
            await asyncio.sleep(max(0, due - time.monotonic()))
            line = await request("kept", due, line)
            due = max(due + KEPT_EVERY_S, time.monotonic() - PATIENCE_S)

    async def new():
        due, tasks = began + NEW_EVERY_S / 2, []

        async def one(due):
            line = await request("new", due, None)
            if line:
                line[1].close()

        while due < end:
            await asyncio.sleep(max(0, due - time.monotonic()))
            tasks.append(asyncio.create_task(one(due)))
            due += NEW_EVERY_S
        await asyncio.gather(*tasks)

    await asyncio.gather(new(), *(kept(index) for index in range(KEPT)))


def make_certificate(place):
    """Makes key.pem, cert.pem and both.pem in the folder `place`."""
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
         "-subj", "/CN=a.example", "-addext", "subjectAltName=DNS:a.example",
         "-keyout", place / "key.pem", "-out", place / "cert.pem"],
        check=True, stderr=subprocess.DEVNULL,
    )
    (place / "both.pem").write_bytes((place / "cert.pem").read_bytes() + (place / "key.pem").read_bytes())


def play(name, flood, slots, seconds, options, place):
    origin_socket = socket.create_server(("127.0.0.1", 0), backlog=4096)
    port, tls_port = free_ports(2)
    values = {
        "slots": slots, "port": port, "tls_port": tls_port,
        "origin": origin_socket.getsockname()[1], "pem": place / "both.pem",
    }
    config = place / name
    config.write_text((TIDEGATE if name == "tidegate" else HAPROXY).format(**values))
    command = [options.tidegate, "run", "-c", config] if name == "tidegate" else ["haproxy", "-db", "-f", config]
    origin = multiprocessing.Process(target=serve_origin, args=(origin_socket,), daemon=True)
    origin.start()
    log = place / f"{name}.log"
    with open(log, "w", encoding="utf-8") as errors:
        proxy = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=errors)
    try:
        wait_for(port, proxy, log)
        began, results = time.monotonic() + 0.2, []
        until = began + 1 + seconds
        opened = multiprocessing.Value("L", 0, lock=False)

        def flooder():
            os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
            time.sleep(max(0, began + 1 - time.monotonic()))
            attack(flood, port, tls_port, until, opened)

        attacker = multiprocessing.Process(target=flooder, daemon=True)
        if flood != "none":
            attacker.start()
        asyncio.run(measure_clients(port, began, 1 + seconds, results))
        if flood != "none":
            attacker.join(PATIENCE_S)
            attacker.kill()
    finally:
        origin.kill()
        proxy.send_signal(signal.SIGKILL)
        proxy.wait()
        origin_socket.close()
    return [result for result in results if result[1] > began + 1], opened.value / seconds


def describe(results, kind):
    all_of = [result for result in results if result[0] == kind]
    good = sorted(result[2] for result in all_of if result[2] is not None)
    failed, lost = len(all_of) - len(good), sum(result[3] for result in all_of)
    if not good:
        return f"{'-':>8}{'-':>9}{'-':>9}{failed:>7}{lost:>6}{len(all_of):>7}"
    at = lambda share: good[min(len(good) - 1, int(share * len(good)))] * 1000
    return f"{at(0.5):8.1f}{at(0.99):9.1f}{good[-1] * 1000:9.1f}{failed:7}{lost:6}{len(all_of):7}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tidegate", default=str(ROOT / "target/release/tidegate"))
    parser.add_argument("--slots", default="64,1000")
    parser.add_argument("--floods", default=",".join(FLOODS))
    parser.add_argument("--seconds", type=float, default=5)
    options = parser.parse_args()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    heads = f"{'p50':>8}{'p99':>9}{'max ms':>9}{'failed':>7}{'lost':>6}{'asked':>7}"
    print(f"{'flood':8}{'slots':>6} {'proxy':9} kept:{heads}  new:{heads}  flood/s", flush=True)
    with tempfile.TemporaryDirectory() as place:
        place = pathlib.Path(place)
        make_certificate(place)
        for slots in map(int, options.slots.split(",")):
            for flood in options.floods.split(","):
                for name in ("haproxy", "tidegate"):
                    results, rate = play(name, flood, slots, options.seconds, options, place)
                    kept, new = describe(results, "kept"), describe(results, "new")
                    print(f"{flood:8}{slots:6} {name:9}      {kept}      {new}{rate:9.0f}", flush=True)


if __name__ == "__main__":
    main()
