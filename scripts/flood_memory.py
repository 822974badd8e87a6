#!/usr/bin/env python3
"""Measures how much memory a flood of slow readers costs Tidegate, and how much of it is released.

Once over plain TCP and once over TLS, with a fresh process each: some clients send one request, then READERS clients request
a response of 16 MiB each and read BYTES of it a second, then all of them disconnect. The table has the resident memory (VmRSS) of
Tidegate in MiB before the flood, at its end, and 5, 15, 30 and 60 seconds after the clients left. Exits with 1 if the
memory after 60 seconds exceeds the memory before by more than KEPT_MIB_MAX.

    scripts/flood_memory.py [--tidegate PATH] [--readers 2000] [--seconds 20] [--workers N]

Needs only the standard library and `openssl`. Uses free ports of 127.0.0.1 and no other hosts.
"""
import argparse
import multiprocessing
import pathlib
import re
import resource
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time

import floods

READ_BYTES = 8
KEPT_MIB_MAX = 30
WAITS_S = (5, 15, 30, 60)
WARM_UP_REQUESTS = 200


def resident_mib(pid):
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+) kB", status)[1]) / 1024


def connect(port, context):
    conn = socket.socket()
    conn.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    conn.settimeout(30)
    conn.connect(("127.0.0.1", port))
    return context.wrap_socket(conn) if context else conn


def warm_up(port, context):
    """Sends requests one after the other, so that the memory before the flood is that of a process in use."""
    for _ in range(WARM_UP_REQUESTS):
        conn = connect(port, context)
        conn.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        while not conn.recv(4096).endswith(b"ok"):
            pass
        conn.close()


def read_slowly(port, context, readers, seconds, begun, leave):
    """The slow readers, as one process: they leave when `leave` is set."""
    conns = []
    for _ in range(readers):
        conn = connect(port, context)
        conn.sendall(b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n")
        conns.append(conn)
    begun.set()
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        for conn in conns:
            conn.recv(READ_BYTES)
        time.sleep(1)
    leave.wait()
    for conn in conns:
        conn.close()


def play(options, place, secured):
    """The memory before, during, and at the times of WAITS_S after the flood."""
    origin_socket = socket.create_server(("127.0.0.1", 0), backlog=4096)
    origin_socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 65536)
    port, tls_port = floods.free_ports(2)
    text = floods.TIDEGATE.format(
        slots=4 * options.readers, port=port, tls_port=tls_port, origin=origin_socket.getsockname()[1],
        pem=place / "both.pem",
    )
    config = place / "tidegate.toml"
    config.write_text(text.replace("workers = 1", f"workers = {options.workers}"))
    origin = multiprocessing.Process(target=floods.serve_origin, args=(origin_socket,), daemon=True)
    origin.start()
    proxy = subprocess.Popen([options.tidegate, "run", config], stderr=subprocess.PIPE, text=True)
    context = None
    if secured:
        port = tls_port
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    begun, leave = multiprocessing.Event(), multiprocessing.Event()
    arguments = (port, context, options.readers, options.seconds, begun, leave)
    flood = multiprocessing.Process(target=read_slowly, args=arguments, daemon=True)
    try:
        for line in proxy.stderr:
            if f"127.0.0.1:{tls_port}" in line:
                break
        warm_up(port, context)
        time.sleep(1)
        figures = [resident_mib(proxy.pid)]
        flood.start()
        if not begun.wait(300):
            raise SystemExit("the readers did not connect")
        time.sleep(options.seconds)
        figures.append(resident_mib(proxy.pid))
        leave.set()
        flood.join()
        left = time.monotonic()
        for wait in WAITS_S:
            time.sleep(max(0, left + wait - time.monotonic()))
            figures.append(resident_mib(proxy.pid))
    finally:
        flood.kill()
        origin.kill()
        proxy.send_signal(signal.SIGKILL)
        proxy.wait()
        origin_socket.close()
    return figures


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tidegate", default=str(floods.ROOT / "target/release/tidegate"))
    parser.add_argument("--readers", type=int, default=2000)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--workers", type=int, default=1)
    options = parser.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    print("MiB   before  during" + "".join(f"{f'+{wait} s':>8}" for wait in WAITS_S), flush=True)
    is_good = True
    with tempfile.TemporaryDirectory() as place:
        place = pathlib.Path(place)
        floods.make_certificate(place)
        for secured in (False, True):
            figures = play(options, place, secured)
            is_good &= figures[-1] <= figures[0] + KEPT_MIB_MAX
            print("tls  " if secured else "plain", "".join(f"{figure:8.1f}" for figure in figures), flush=True)
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
