#!/usr/bin/env python3
"""Upgrades a Tidegate that has many WebSocket connections and serves requests, and checks that none of them is lost.

Half of the WebSockets end at Tidegate (`echo`), half are forwarded to a server, which is a Tidegate of its own. While LOADERS clients
send requests, two over each connection, the process is replaced (SIGUSR2). Each WebSocket must get a Close frame that advises to connect again (1001 or 1012) before the grace period is
over, between two frames: some of the forwarded ones receive messages all the time. Prints how many got which code, and when. Exits with 1 if a request failed, or if a WebSocket ended in another way.

    scripts/upgrade_websockets.py [--tidegate PATH] [--websockets 10000] [--loaders 16] [--grace 20] [--workers N]

Needs only the standard library. Uses free ports of 127.0.0.1 and no other hosts.
"""
import argparse
import asyncio
import collections
import os
import pathlib
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import time

from local_ports import free_ports, wait_for

# The port range of one address suffices for the connections to the server, too.
CLIENT_ADDRESSES = [f"127.0.0.{at}" for at in range(1, 5)]
KEY = "dGhlIHNhbXBsZSBub25jZQ=="
CODES = (1001, 1012)
# Each of these many forwarded WebSockets sends messages of its own all the time.
BUSY_EVERY = 50
SERVER = """
[server]
workers = 2
[[listener]]
bind = "127.0.0.1:{server}"
timeouts = {{ head = "1h" }}
[[route]]
path = "/echo"
echo = true
[[route]]
respond = {{ body = "ok" }}
[websocket]
ping-every = "off"
"""
PROXY = """
[server]
{workers}
shutdown-grace = "{grace}s"
[admin]
bind = "127.0.0.1:{admin}"
[[listener]]
bind = "127.0.0.1:{port}"
[[route]]
path = "/own"
echo = true
[[route]]
proxy = "app"
[pool.app]
servers = ["127.0.0.1:{server}"]
[websocket]
ping-every = "off"
"""


def start(binary, path, text, port):
    path.write_text(text)
    process = subprocess.Popen([binary, "run", str(path)], stderr=open(f"{path}.log", "w"))
    wait_for(port, process, f"{path}.log")
    return process


async def read_frame(reader):
    """The opcode and the payload of a frame of a server."""
    first, second = await reader.readexactly(2)
    length = second & 127
    if length > 125:
        length = int.from_bytes(await reader.readexactly(2 if length == 126 else 8), "big")
    return first & 15, await reader.readexactly(length)


class WebSocket:
    def __init__(self, path, busy):
        self.path, self.busy, self.opened = path, busy, asyncio.Event()
        self.result, self.closed_at = "not opened", None

    async def run(self, port, source):
        try:
            self.result = await self.talk(port, source)
        except (OSError, asyncio.IncompleteReadError, ValueError) as error:
            self.result = f"{type(error).__name__} {'after' if self.opened.is_set() else 'before'} 101"
        self.opened.set()

    async def talk(self, port, source):
        reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(source, 0))
        writer.write(
            f"GET {self.path} HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {KEY}\r\n\r\n".encode()
        )
        head = await reader.readuntil(b"\r\n\r\n")
        if b" 101 " not in head.split(b"\r\n")[0]:
            return head.split(b"\r\n")[0].decode()
        self.opened.set()
        # A frame of 5,000 bytes with a key of zeros, which leaves the payload as it is.
        message = b"\x82\xfe" + (5000).to_bytes(2, "big") + bytes(4) + b"x" * 5000
        if self.busy:
            writer.write(message)
        while True:
            opcode, payload = await read_frame(reader)
            if opcode == 8:
                self.closed_at = time.monotonic()
                writer.write(b"\x88\x82" + bytes(4) + payload[:2])
                if await reader.read() != b"":
                    return "bytes after the Close frame"
                writer.close()
                return int.from_bytes(payload[:2], "big")
            if payload != b"x" * 5000:
                return "a damaged message"
            writer.write(message)


async def load(port, counts, stop):
    """Requests one after the other: two over each connection."""
    while not stop.is_set():
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            for last in (False, True):
                close = "Connection: close\r\n" if last else ""
                writer.write(f"GET /page HTTP/1.1\r\nHost: a\r\n{close}\r\n".encode())
                head = await reader.readuntil(b"\r\n\r\n")
                if not head.startswith(b"HTTP/1.1 200 ") or await reader.readexactly(2) != b"ok":
                    raise ValueError(head[:20])
                counts["served"] += 1
                # The old process may end a connection after its response, and states that.
                if b"connection: close" in head.lower():
                    break
            writer.close()
        except (OSError, asyncio.IncompleteReadError, ValueError) as error:
            counts[f"failed: {error!r}"] += 1


def pid_of(port):
    with socket.create_connection(("127.0.0.1", port), timeout=10) as conn:
        conn.sendall(b"show info\n")
        conn.shutdown(socket.SHUT_WR)
        text = b"".join(iter(lambda: conn.recv(65536), b""))
    return int(next(line for line in text.splitlines() if line.startswith(b"Pid: "))[5:])


async def play(options, ports, old):
    port, admin = ports["port"], ports["admin"]
    sockets = [
        WebSocket("/echo" if at % 2 else "/own", at // 2 % BUSY_EVERY == 0) for at in range(options.websockets)
    ]
    tasks = []
    for at, one in enumerate(sockets):
        tasks.append(asyncio.create_task(one.run(port, CLIENT_ADDRESSES[at % len(CLIENT_ADDRESSES)])))
        if at % 500 == 499:
            await asyncio.gather(*(earlier.opened.wait() for earlier in sockets[: at + 1]))
    await asyncio.gather(*(one.opened.wait() for one in sockets))
    counts, stop = collections.Counter(), asyncio.Event()
    loads = [asyncio.create_task(load(port, counts, stop)) for _ in range(options.loaders)]
    await asyncio.sleep(2)
    begun = time.monotonic()
    old.send_signal(signal.SIGUSR2)
    done, pending = await asyncio.wait(tasks, timeout=options.grace + 30)
    while await asyncio.to_thread(pid_of, admin) == old.pid:
        await asyncio.sleep(0.1)
    served = time.monotonic()
    while old.poll() is None and time.monotonic() < served + options.grace + 30:
        await asyncio.sleep(0.1)
    await asyncio.sleep(1)
    stop.set()
    await asyncio.gather(*loads)
    fail = bool(pending) or old.poll() != 0
    print(f"old process: exit status {old.poll()}, {len(pending)} WebSockets still open")
    for path, name in (("/own", "served by Tidegate"), ("/echo", "forwarded")):
        of_kind = [one for one in sockets if one.path == path]
        times = sorted(one.closed_at - begun for one in of_kind if one.closed_at)
        results = collections.Counter(str(one.result) for one in of_kind)
        shown = ", ".join(f"{count} x {result}" for result, count in results.most_common())
        spread = f"{times[0]:.1f} to {times[-1]:.1f} s after the signal" if times else "never"
        print(f"{len(of_kind)} WebSockets {name}: {shown}; closed {spread}")
        fail |= any(one.result not in CODES for one in of_kind)
    print("requests: " + ", ".join(f"{count} {what}" for what, count in sorted(counts.items())))
    fail |= len(counts) != 1
    return fail


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tidegate", default="target/release/tidegate")
    parser.add_argument("--websockets", type=int, default=10_000)
    parser.add_argument("--loaders", type=int, default=16)
    parser.add_argument("--grace", type=int, default=20)
    parser.add_argument("--workers", type=int)
    options = parser.parse_args()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    ports = dict(zip(("port", "admin", "server"), free_ports(3)))
    workers = f"workers = {options.workers}" if options.workers else ""
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        server = start(options.tidegate, folder / "server.toml", SERVER.format(**ports), ports["server"])
        text = PROXY.format(workers=workers, grace=options.grace, **ports)
        old = start(options.tidegate, folder / "proxy.toml", text, ports["port"])
        try:
            fail = asyncio.run(play(options, ports, old))
            if fail:
                print((folder / "proxy.toml.log").read_text()[-4000:], file=sys.stderr)
        finally:
            for pid in {old.pid, pid_of(ports["admin"]), server.pid}:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
    sys.exit(1 if fail else 0)


if __name__ == "__main__":
    main()
