#!/usr/bin/env python3
"""Counts the requests that a proxy loses when its server closes connections or restarts: Tidegate beside HAProxy.

    scripts/lost_requests.py [--seconds N] [--tidegate PROGRAM] [--haproxy PROGRAM]

Everything runs on 127.0.0.1, on ports that the kernel chooses. There are three servers:

  closing    sends each response, waits 0-2 ms without reading, and closes the connection. Clients send POSTs,
             which no proxy may repeat.
  restart    resets its connections, refuses new ones for 0.5 s, and serves again, every 3 s. Clients send GETs.
  patient    never closes a connection. Clients send POSTs. `connections` shows what the caution costs.

A request is lost if its client gets no response, or a response with another status than 200. HAProxy is configured as
its manual advises for such servers: `retries 3`, `option redispatch`, `http-reuse safe`. Tidegate has its defaults.
"""
import argparse
import asyncio
import multiprocessing
import pathlib
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
CLIENTS = 16
# The longest pause of a client between two requests.
THINK_S_MAX = 0.003
CLOSE_S_MAX = 0.002
DOWN_S = 0.5
UP_S = 2.5
# The most time that one request may take, pauses of the proxy included.
PATIENCE_S = 20
REQUESTS = {
    "POST": b"POST /p HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi",
    "GET": b"GET /p HTTP/1.1\r\nHost: a\r\n\r\n",
}
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
CASES = [("closing", "POST"), ("restart", "GET"), ("patient", "POST")]

HAPROXY = """
global
    maxconn 2000
defaults
    mode http
    retries 3
    option redispatch
    http-reuse safe
    timeout connect 3s
    timeout client 30s
    timeout server 30s
listen l
    bind 127.0.0.1:{port}
    server s 127.0.0.1:{server}
"""
TIDEGATE = """
[[listener]]
bind = "127.0.0.1:{port}"
[[route]]
proxy = "p"
[pool.p]
servers = ["127.0.0.1:{server}"]
"""


class Server:
    """The server of one case, in a process of its own."""

    def __init__(self, kind):
        self.accepted = multiprocessing.Value("q", 0)
        # The socket is bound here, so that its port stays taken while the server refuses connections.
        self.holder = socket.socket()
        self.holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        self.holder.bind(("127.0.0.1", 0))
        self.port = self.holder.getsockname()[1]
        self.process = multiprocessing.Process(target=self.run, args=(kind,), daemon=True)
        self.process.start()

    def run(self, kind):
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        asyncio.run(self.serve(kind))

    async def serve(self, kind):
        writers = set()

        async def handle(reader, writer):
            self.accepted.value += 1
            writers.add(writer)
            try:
                while True:
                    head = await reader.readuntil(b"\r\n\r\n")
                    if head.startswith(b"POST"):
                        await reader.readexactly(2)
                    writer.write(OK)
                    if kind == "closing":
                        await asyncio.sleep(random.uniform(0, CLOSE_S_MAX))
                        return
            except (asyncio.IncompleteReadError, ConnectionError):
                pass
            finally:
                writers.discard(writer)
                writer.close()

        while True:
            sock = socket.socket()
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            sock.bind(("127.0.0.1", self.port))
            server = await asyncio.start_server(handle, sock=sock, backlog=1024)
            await asyncio.sleep(UP_S if kind == "restart" else 3600)
            server.close()
            for writer in list(writers):
                writer.transport.abort()
            await asyncio.sleep(DOWN_S)

    def stop(self):
        self.process.kill()
        self.process.join()
        self.holder.close()


class Client:
    """One client. It sends its next request when it has the response to the last one."""

    def __init__(self, port, method, counts):
        self.port, self.request, self.counts = port, REQUESTS[method], counts
        self.reader = self.writer = None

    async def run(self, end):
        while time.monotonic() < end:
            try:
                good = await asyncio.wait_for(self.send(), PATIENCE_S)
            except (OSError, asyncio.IncompleteReadError, asyncio.TimeoutError):
                good = False
                self.drop()
            self.counts["lost"] += not good
            self.counts["requests"] += 1
            await asyncio.sleep(random.uniform(0, THINK_S_MAX))
        self.drop()

    async def send(self):
        if self.writer is None:
            self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port)
        self.writer.write(self.request)
        head = (await self.reader.readuntil(b"\r\n\r\n")).lower()
        lengths = [line[15:] for line in head.split(b"\r\n") if line.startswith(b"content-length:")]
        if lengths:
            await self.reader.readexactly(int(lengths[0]))
        if b"\r\nconnection: close" in head or not lengths:
            self.drop()
        return head.startswith(b"http/1.1 200")

    def drop(self):
        if self.writer is not None:
            self.writer.close()
        self.reader = self.writer = None


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def start(name, program, server, folder):
    """Starts a proxy in front of `server`; returns its process and its port."""
    port = free_port()
    path = pathlib.Path(folder) / name
    text = HAPROXY if name == "haproxy" else TIDEGATE
    path.write_text(text.format(port=port, server=server.port))
    command = [program, "-db", "-f", str(path)] if name == "haproxy" else [program, "run", str(path)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    for _ in range(200):
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return process, port
        except OSError:
            time.sleep(0.05)
    process.kill()
    sys.exit(f"{name} does not listen")


async def load(port, method, seconds):
    counts = {"requests": 0, "lost": 0}
    end = time.monotonic() + seconds
    await asyncio.gather(*(Client(port, method, counts).run(end) for _ in range(CLIENTS)))
    return counts


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--tidegate", default=str(ROOT / "target/release/tidegate"))
    parser.add_argument("--haproxy", default=shutil.which("haproxy"))
    options = parser.parse_args()
    if not options.haproxy:
        sys.exit("haproxy is not installed")
    worse = False
    print(f"{'server':8} {'proxy':9} {'requests':>9} {'lost':>7} {'share':>8} {'connections':>12}")
    for kind, method in CASES:
        shares = {}
        for name, program in (("haproxy", options.haproxy), ("tidegate", options.tidegate)):
            server = Server(kind)
            with tempfile.TemporaryDirectory() as folder:
                process, port = start(name, program, server, folder)
                try:
                    counts = asyncio.run(load(port, method, options.seconds))
                finally:
                    process.kill()
                    process.wait()
                    server.stop()
            shares[name] = counts["lost"] / max(counts["requests"], 1)
            print(
                f"{kind:8} {name:9} {counts['requests']:9} {counts['lost']:7} {shares[name]:8.2%}"
                f" {server.accepted.value:12}",
                flush=True,
            )
        worse |= shares["tidegate"] > shares["haproxy"]
    sys.exit(1 if worse else 0)


if __name__ == "__main__":
    main()
