#!/usr/bin/env python3
"""Proves what operators rely on: reloads, failing servers, restarts of servers, many servers, the cost of observation.

    scripts/operate.py [reloads] [faults] [rolling] [many] [cost] [--tidegate PATH] [--seconds N] [--reloads N] [--seed N]

Runs the parts that are named, or all of them. Each prints one line of JSON with its figures and with what is wrong (`wrong`).
Exits with 1 if anything is. Needs only the standard library, and uses free ports of 127.0.0.0/8.

  reloads  reloads the configuration under load, every second time with changes of routes, pools, listeners and certificates:
           no request may fail, no request may be missing in the statistics, memory may not grow, and latencies may not rise
  faults   kills, stalls and corrupts three servers at random, with health checks: no response may belong to another request,
           no POST may be executed twice, no GET may fail, and each server must come back when it is well again
  rolling  restarts three servers one after the other under 500 requests a second: no GET may fail, and a POST only if its
           server had accepted it and died
  many     10,000 servers in 1000 pools with 1000 routes: the time of a reload, memory, and the CPU time of their checks, by TCP
           and by HTTP over kept connections
  cost     the CPU time of a request with metrics, an access log in JSON and profiling accounts, compared with none of them
"""
import argparse
import asyncio
import collections
import itertools
import json
import multiprocessing
import os
import pathlib
import random
import resource
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

from local_ports import free_ports, wait_for

ROOT = pathlib.Path(__file__).resolve().parent.parent
TICK = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")
# What a server sends in place of a response while it is corrupt.
CORRUPT = [b"\x00\xffnonsense\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 1x\r\n\r\n",
           b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n"]
EVERY_S, RISE, FALL = 0.5, 2, 2


# Servers, each a process of its own, so that it can be killed and stopped.

def serve(port, journal, index):
    """Answers each request with the value of its field x-id. Writes the ids of POSTs to `journal` before the response."""
    out = os.open(journal, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    state = {"corrupt": False}

    async def answer(reader, writer):
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:-2])
                body = await reader.readexactly(int(fields.get(b"content-length", b"0")))
                if head.startswith(b"POST"):
                    os.write(out, b"%d %s\n" % (index, body))
                if state["corrupt"]:
                    writer.write(random.choice(CORRUPT))
                    break
                text = fields.get(b"x-id", b"-")
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(text), text))
                await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass
        writer.close()

    async def run():
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGUSR1, lambda: state.update(corrupt=True))
        loop.add_signal_handler(signal.SIGUSR2, lambda: state.update(corrupt=False))
        server = await asyncio.start_server(answer, "0.0.0.0", port, backlog=1024, reuse_address=True)
        await server.serve_forever()

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    asyncio.run(run())


class Server:
    def __init__(self, port, journal, index):
        self.arguments, self.port, self.process = (port, journal, index), port, None
        self.start()

    def start(self):
        self.process = multiprocessing.Process(target=serve, args=self.arguments, daemon=True)
        self.process.start()
        wait_for(self.port)

    def signal(self, number):
        os.kill(self.process.pid, number)

    def kill(self):
        self.process.kill()
        self.process.join()


# The process under test.

class Tidegate:
    def __init__(self, options, folder, text, port, admin):
        self.file, self.admin = folder / "tidegate.toml", admin
        self.file.write_text(text)
        self.errors = folder / "stderr"
        with open(self.errors, "w", encoding="utf-8") as log:
            self.process = subprocess.Popen([options.tidegate, "run", str(self.file)], stderr=log)
        wait_for(port, self.process, self.errors)

    def command(self, line):
        with socket.create_connection(("127.0.0.1", self.admin), timeout=60) as conn:
            conn.sendall(line.encode() + b"\n")
            conn.shutdown(socket.SHUT_WR)
            text = b"".join(iter(lambda: conn.recv(65536), b"")).decode()
        if text.startswith("error"):
            raise RuntimeError(text)
        return text

    def stat(self):
        """The rows of `show stat`, by the names of the proxy and the server."""
        lines = self.command("show stat").removeprefix("# ").strip().splitlines()
        names = lines[0].split(",")
        rows = [dict(zip(names, line.split(","))) for line in lines[1:]]
        return {(row["pxname"], row["svname"]): row for row in rows}

    def cpu_seconds(self):
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / TICK

    def resident_mib(self):
        return int(pathlib.Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]) * PAGE / (1 << 20)

    def stop(self):
        self.process.terminate()
        return self.process.wait(60)


# Clients.

class Load:
    """Requests at a fixed rate in all, over connections that are kept. A share of them are POSTs."""

    def __init__(self, port, rate, posts):
        self.port, self.pause, self.posts = port, 16 / rate, posts
        self.ids, self.counts, self.failed, self.wrong = itertools.count(1), collections.Counter(), [], []
        self.latencies, self.stopped, self.tasks = [], False, []

    def begin(self):
        self.tasks = [asyncio.create_task(self.client()) for _ in range(16)]

    async def end(self):
        self.stopped = True
        await asyncio.gather(*self.tasks)

    async def client(self):
        stream, due = None, time.monotonic() + random.random() * self.pause
        while not self.stopped:
            await asyncio.sleep(max(0, due - time.monotonic()))
            due += self.pause
            number = str(next(self.ids)).encode()
            method = b"POST" if random.random() < self.posts else b"GET"
            body = number if method == b"POST" else b""
            request = b"%s /page HTTP/1.1\r\nHost: a\r\nX-Id: %s\r\n" % (method, number)
            request += b"Content-Length: %d\r\n" % len(body) if body else b""
            begun = time.monotonic()
            try:
                stream = stream or await asyncio.open_connection("127.0.0.1", self.port)
                reader, writer = stream
                writer.write(request + b"\r\n" + body)
                head = (await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 60)).lower()
                length = int(head.split(b"content-length: ")[1].split(b"\r\n")[0])
                content = await reader.readexactly(length)
                self.counts[method.decode()] += 1
                self.latencies.append(time.monotonic() - begun)
                if not head.startswith(b"http/1.1 200 "):
                    self.failed.append((method.decode(), int(number), head[9:12].decode() + " " + content.decode().strip()))
                elif content != number:
                    self.wrong.append((int(number), content.decode()))
                if b"connection: close" in head:
                    writer.close()
                    stream = None
            except (OSError, asyncio.IncompleteReadError, asyncio.TimeoutError, ValueError, IndexError) as error:
                self.failed.append((method.decode(), int(number), repr(error)))
                if stream:
                    stream[1].close()
                stream = None


def p99_ms(latencies):
    return round(sorted(latencies)[int(len(latencies) * 0.99)] * 1000, 3) if latencies else None


class Verdict:
    def __init__(self, part):
        self.line = {"part": part}
        self.wrong = []

    def expect(self, holds, text):
        if not holds:
            self.wrong.append(text)

    def done(self, **figures):
        print(json.dumps({**self.line, **figures, "wrong": self.wrong}), flush=True)
        return bool(self.wrong)


# The parts.

async def reloads(options, folder):
    port, admin, origin, spare, extra = free_ports(5)
    servers = [Server(origin, folder / "journal", 0), Server(spare, folder / "journal", 1)]
    for name in ("one", "two"):
        command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", f"/CN={name}",
                   "-days", "2", "-keyout", str(folder / f"{name}.key"), "-out", str(folder / f"{name}.pem")]
        subprocess.run(command, check=True, capture_output=True)
    (tls_port,) = free_ports(1)

    def text(turn):
        """An odd turn has further routes, another server, another listener and another certificate."""
        is_odd = turn % 2 == 1
        name = "two" if is_odd else "one"
        more = f'[[listener]]\nname = "extra"\nbind = "127.0.0.1:{extra}"\n' if is_odd else ""
        routes = "".join(f'[[route]]\npath = "/{turn}/{n}"\nrespond = {{}}\n' for n in range(20)) if is_odd else ""
        pool = f', "127.0.0.1:{spare}"' if is_odd else ""
        return (f'[admin]\nbind = "127.0.0.1:{admin}"\n[[listener]]\nname = "web"\nbind = "127.0.0.1:{port}"\n'
                f'[[listener]]\nname = "tls"\nbind = "127.0.0.1:{tls_port}"\n'
                f'tls = {{ certificates = [{{ cert = "{name}.pem", key = "{name}.key" }}] }}\n{more}{routes}'
                f'[[route]]\nproxy = "app"\n[pool.app]\nservers = ["127.0.0.1:{origin}"{pool}]\n')

    verdict = Verdict("reloads")
    proxy = Tidegate(options, folder, text(0), port, admin)
    load = Load(port, options.rate, 0.3)
    load.begin()
    await asyncio.sleep(options.seconds)
    quiet, before, memory = len(load.latencies), proxy.resident_mib(), []
    took = []
    for turn in range(options.reloads):
        # Two reloads with the same file follow each other, so that half of them change something.
        proxy.file.write_text(text(turn // 2))
        begun = time.monotonic()
        await asyncio.to_thread(proxy.command, "reload")
        took.append(time.monotonic() - begun)
        memory.append(proxy.resident_mib())
        await asyncio.sleep(0.05)
    under = load.latencies[quiet:]
    await load.end()
    await asyncio.sleep(1)
    counted = int(proxy.stat()[("web", "FRONTEND")]["req_tot"])
    sent = sum(load.counts.values())
    quiet_p99, reload_p99 = p99_ms(load.latencies[:quiet]), p99_ms(under)
    # The first tenth of the reloads fills what is kept for later.
    settled = statistics.median(memory[len(memory) // 10: len(memory) // 10 + 10] or memory)
    growth = statistics.median(memory[-10:]) - settled
    verdict.expect(not load.failed, f"requests failed: {load.failed[:5]}")
    verdict.expect(not load.wrong, f"responses of other requests: {load.wrong[:5]}")
    verdict.expect(counted == sent, f"{sent} requests were sent, {counted} are in the statistics")
    verdict.expect(growth <= 4, "memory grows")
    verdict.expect(reload_p99 <= 1.5 * quiet_p99, "the 99th percentile is above 1.5 times that without reloads")
    status = proxy.stop()
    verdict.expect(status == 0, f"exit status {status}")
    [one.kill() for one in servers]
    return verdict.done(reloads=options.reloads, requests=sent, failed=len(load.failed), quiet_p99_ms=quiet_p99,
                        reload_p99_ms=reload_p99, reload_ms=round(statistics.median(took) * 1000, 1),
                        mib_before=round(before, 1), mib_growth=round(growth, 1))


def three_servers(folder, options, more=""):
    port, admin, *origins = free_ports(5)
    journal = folder / "journal"
    servers = [Server(origin, journal, index) for index, origin in enumerate(origins)]
    names = ", ".join(f'"127.0.0.1:{origin}"' for origin in origins)
    text = (f'[admin]\nbind = "127.0.0.1:{admin}"\n[log]\naccess = {{ to = "file:{folder}/access", request-headers = ["x-id"] }}\n'
            f'[[listener]]\nname = "web"\nbind = "127.0.0.1:{port}"\n[[route]]\nproxy = "app"\n[pool.app]\nservers = [{names}]\n'
            f'health = {{ http = "/healthz", every = "{EVERY_S * 1000:.0f}ms", timeout = "{EVERY_S * 1000:.0f}ms", rise = {RISE}, fall = {FALL} }}\n{more}')
    return Tidegate(options, folder, text, port, admin), servers, port, journal


def executed(journal):
    """How often each POST was executed, and by which servers."""
    found = collections.defaultdict(list)
    for line in journal.read_text().splitlines() if journal.exists() else []:
        server, number = line.split()
        found[int(number)].append(int(server))
    return found


async def until_well(server):
    """Waits until a server answers again. A request is sent again only once after it broke a connection or got a malformed head, so
    that it cannot crash a whole pool: two servers that are ill at once may let it fail."""
    well = b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n"
    head = b""
    while head != well:
        await asyncio.sleep(0.05)
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(b"GET /well HTTP/1.1\r\nX-Id: -\r\n\r\n")
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 5)
            writer.close()
        except (OSError, asyncio.IncompleteReadError, asyncio.TimeoutError):
            pass
    # The last ill responses have arrived.
    await asyncio.sleep(0.1)


async def until_up(proxy, server):
    """The seconds until a server is up."""
    begun, name = time.monotonic(), ("app", f"127.0.0.1:{server.port}")
    while time.monotonic() < begun + 60:
        if (await asyncio.to_thread(proxy.stat))[name]["status"].startswith("UP"):
            return time.monotonic() - begun
        await asyncio.sleep(0.05)
    return 60.0


async def faults(options, folder):
    more = 'retries = 5\nretry-on = ["connect", "reset", "timeout", "malformed", 502, 503, 504]\ntimeouts = { connect = "1s", response-head = "1s" }\n'
    proxy, servers, port, journal = three_servers(folder, options, more)
    verdict, prng, kinds, recoveries = Verdict("faults"), random.Random(options.seed), collections.Counter(), []
    load = Load(port, options.rate, 0.3)
    load.begin()
    end = time.monotonic() + options.seconds
    while time.monotonic() < end:
        server, kind = prng.choice(servers), prng.choice(["killed", "stalled", "corrupt"])
        kinds[kind] += 1
        pause = prng.uniform(0.5, 4)
        match kind:
            case "killed":
                server.kill()
                await asyncio.sleep(pause)
                await asyncio.to_thread(server.start)
            case "stalled":
                server.signal(signal.SIGSTOP)
                await asyncio.sleep(pause)
                server.signal(signal.SIGCONT)
            case "corrupt":
                server.signal(signal.SIGUSR1)
                await asyncio.sleep(pause)
                server.signal(signal.SIGUSR2)
        well_at = time.monotonic()
        await until_well(server)
        await until_up(proxy, server)
        recoveries.append(time.monotonic() - well_at)
    await load.end()
    twice = {number: by for number, by in executed(journal).items() if len(by) > 1}
    gets = [one for one in load.failed if one[0] == "GET"]
    await asyncio.sleep(1)
    status = proxy.stop()
    # The access log names the server as the cause of each failure.
    causes = collections.Counter()
    failed = {number for _, number, _ in load.failed}
    for line in (folder / "access").read_text().splitlines():
        entry = json.loads(line)
        if int(entry.get("request_headers", {}).get("x-id", 0)) in failed:
            causes[entry.get("fault", "none")] += 1
    # Half an interval of jitter, and the duration of a check.
    most = RISE * EVERY_S + 2 * EVERY_S
    verdict.expect(not load.wrong, f"responses of other requests: {load.wrong[:5]}")
    verdict.expect(not twice, f"POSTs were executed twice: {dict(list(twice.items())[:5])}")
    verdict.expect(not gets, f"GETs failed: {gets[:5]}")
    verdict.expect(set(causes) <= {"server"} and causes.total() == len(failed), f"failures have other causes: {dict(causes)}")
    verdict.expect(max(recoveries) <= most, f"a server was up only {max(recoveries):.2f} s after it was well, not {most} s")
    verdict.expect(status == 0, f"exit status {status}")
    [one.kill() for one in servers]
    return verdict.done(faults=dict(kinds), requests=sum(load.counts.values()), posts_failed=len(load.failed) - len(gets),
                        gets_failed=len(gets), recovery_s_max=round(max(recoveries), 2), seed=options.seed)


async def rolling(options, folder):
    proxy, servers, port, journal = three_servers(folder, options)
    verdict, load, restarts = Verdict("rolling"), Load(port, 500, 0.5), 0
    load.begin()
    end = time.monotonic() + options.seconds
    while time.monotonic() < end:
        for server in servers:
            server.kill()
            await asyncio.sleep(1)
            await asyncio.to_thread(server.start)
            await until_up(proxy, server)
            restarts += 1
    await load.end()
    known = executed(journal)
    gets = [one for one in load.failed if one[0] == "GET"]
    unaccepted = [one for one in load.failed if one[0] == "POST" and one[1] not in known]
    verdict.expect(not load.wrong, f"responses of other requests: {load.wrong[:5]}")
    verdict.expect(not gets, f"GETs failed: {gets[:5]}")
    # A server that dies between the receipt of a POST and its journal accepted it, too: at most one of each restart and client.
    verdict.expect(len(unaccepted) <= restarts, f"POSTs failed that no server had accepted: {unaccepted[:5]}")
    verdict.expect(not [by for by in known.values() if len(by) > 1], "POSTs were executed twice")
    status = proxy.stop()
    verdict.expect(status == 0, f"exit status {status}")
    [one.kill() for one in servers]
    return verdict.done(restarts=restarts, requests=sum(load.counts.values()), gets_failed=len(gets),
                        posts_failed=len(load.failed) - len(gets), posts_unaccepted=len(unaccepted))


# Checks of 10,000 servers, and how long they take until as many connections are renewed in each second.
CHECKS = {"tcp": ('{ tcp = true, every = "2s" }', 6), "kept": ('{ http = "/json", every = "2s", keep-alive = "1m" }', 75)}


async def many(options, folder):
    # Tidegate keeps connections in three quarters of the descriptors.
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    verdict, figures = Verdict("many"), {}
    for kind in CHECKS:
        figures |= await many_servers(options, folder, verdict, kind)
    verdict.expect(hard == resource.RLIM_INFINITY or hard >= 13_600, f"the limit of descriptors is {hard}: too few connections are kept")
    # A check by TCP is a connection, which takes more than that in the kernel alone.
    verdict.expect(figures["kept_cpu_share"] <= 0.1, "the checks over kept connections take more than 10 % of a CPU")
    return verdict.done(**figures)


async def many_servers(options, folder, verdict, kind):
    """The time of a reload, memory and the CPU time of checks of this kind."""
    port, admin, origin = free_ports(3)
    health, settle = CHECKS[kind]
    # The least work for a connection and for a request, so that the server answers 5000 checks a second.
    server = subprocess.Popen([options.tidegate, "bench", "floor", "--listen", f"0.0.0.0:{origin}"],
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_for(origin)
    pools, each = 1000, 10

    def text(count, path):
        out = f'[admin]\nbind = "127.0.0.1:{admin}"\n[[listener]]\nbind = "127.0.0.1:{port}"\n'
        for pool in range(count):
            names = ", ".join(f'"127.{pool >> 8}.{pool & 255}.{n + 1}:{origin}"' for n in range(each))
            out += f'[[route]]\npath = "/{path}/{pool}/*"\nproxy = "p{pool}"\n[pool.p{pool}]\nservers = [{names}]\nhealth = {health}\n'
        return out

    proxy = Tidegate(options, folder, text(1, "a"), port, admin)
    await asyncio.sleep(1)
    few = proxy.resident_mib()
    took = []
    for turn in range(5):
        proxy.file.write_text(text(pools, "ab"[turn % 2]))
        begun = time.monotonic()
        await asyncio.to_thread(proxy.command, "reload")
        took.append(time.monotonic() - begun)
        await asyncio.sleep(1)
    # Each server has been checked.
    await asyncio.sleep(settle)
    before, begun = proxy.cpu_seconds(), time.monotonic()
    await asyncio.sleep(options.seconds)
    share = (proxy.cpu_seconds() - before) / (time.monotonic() - begun)
    memory = proxy.resident_mib()
    rows = [row for (_, name), row in proxy.stat().items() if name.startswith("127.")]
    up = sum(row["status"].startswith("UP") for row in rows)
    verdict.expect(len(rows) == up == pools * each, f"{kind}: {up} of {len(rows)} servers are up")
    verdict.expect(max(took) <= 0.25, f"{kind}: a reload takes more than 250 ms")
    verdict.expect(memory <= 64, f"{kind}: more than 64 MiB of memory")
    status = proxy.stop()
    verdict.expect(status == 0, f"{kind}: exit status {status}")
    server.terminate()
    server.wait()
    return {f"{kind}_servers": len(rows), f"{kind}_reload_ms": [round(one * 1000) for one in took], f"{kind}_mib": round(memory, 1),
            f"{kind}_mib_of_10_servers": round(few, 1), f"{kind}_cpu_share": round(share, 3)}


async def cost(options, folder):
    """Paired rounds of two processes; the generator runs on the other CPU, if there is one."""
    verdict, proxies, ports = Verdict("cost"), {}, {}
    (origin,) = free_ports(1)
    cpus = sorted(os.sched_getaffinity(0))
    pin = ["taskset", "-c", str(cpus[-1])]
    floor = subprocess.Popen(pin + [options.tidegate, "bench", "floor", "--listen", f"127.0.0.1:{origin}"],
                             stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_for(origin)
    for name in ("off", "on"):
        port, admin = free_ports(2)
        (folder / name).mkdir()
        on = f'[admin]\nbind = "127.0.0.1:{admin}"\n[log]\naccess = {{ to = "file:{folder}/{name}/access" }}\n' if name == "on" else ""
        text = (f'[server]\nworkers = 1\ncpus = "{cpus[0]}"\n{on}[[listener]]\nbind = "127.0.0.1:{port}"\n'
                f'[[route]]\nproxy = "app"\n[pool.app]\nservers = ["127.0.0.1:{origin}"]\n')
        proxies[name], ports[name] = Tidegate(options, folder / name, text, port, admin), port
    costs = {"off": [], "on": []}
    for turn in range(8):
        for name in ("off", "on") if turn % 2 else ("on", "off"):
            before = proxies[name].cpu_seconds()
            command = pin + ["wrk", "-t1", "-c64", f"-d{max(1, round(options.seconds))}s", f"http://127.0.0.1:{ports[name]}/json"]
            out = (await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=True)).stdout
            count = int(out.split(" requests in")[0].split()[-1])
            if turn:
                costs[name].append((proxies[name].cpu_seconds() - before) * 1e6 / count)
    ratios = [on / off for on, off in zip(costs["on"], costs["off"])]
    verdict.expect(statistics.median(ratios) <= 1.04, "more than 4 % of CPU time")
    floor.terminate()
    floor.wait()
    for proxy in proxies.values():
        proxy.stop()
    return verdict.done(us_off=round(statistics.median(costs["off"]), 2), us_on=round(statistics.median(costs["on"]), 2),
                        ratio=round(statistics.median(ratios), 4), least=round(min(ratios), 4), most=round(max(ratios), 4))


PARTS = {"reloads": reloads, "faults": faults, "rolling": rolling, "many": many, "cost": cost}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--tidegate", default=str(ROOT / "target/release/tidegate"))
    parser.add_argument("--seconds", type=float, default=None, help="the length of each part")
    parser.add_argument("--reloads", type=int, default=200)
    parser.add_argument("--rate", type=float, default=500, help="requests a second")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    unknown = [part for part in options.parts if part not in PARTS]
    if unknown:
        parser.error(f"{unknown[0]} is no part; allowed: {', '.join(PARTS)}")
    lengths = {"reloads": 10, "faults": 600, "rolling": 60, "many": 10, "cost": 4}
    failed, seconds = False, options.seconds
    for part in options.parts or PARTS:
        options.seconds = seconds or lengths[part]
        with tempfile.TemporaryDirectory(prefix="operate.") as folder:
            failed |= asyncio.run(PARTS[part](options, pathlib.Path(folder)))
    return failed


if __name__ == "__main__":
    sys.exit(main())
