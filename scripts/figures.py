#!/usr/bin/env python3
"""Writes the table of figures in README.md from the newest runs in benches/results/*.jsonl."""
import json
import pathlib
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
BEGIN, END = "<!-- figures: begin -->\n", "<!-- figures: end -->\n"
TITLES = {
    "json": "27 bytes of JSON, {connections} connections",
    "proxy": "proxy with one origin, {connections} connections",
    "proxy-fields": "proxy, peers adding the header fields that Tidegate adds, {connections} connections",
    "bodies": "1 MiB bodies through the proxy, {connections} connections",
    "pipeline": "plaintext, {pipeline} in flight on each of {connections} connections",
    "latency": "p99.9 through the proxy at {rate_per_s:.0f} requests/s",
    "memory": "user memory an idle connection, {connections} held",
    "start": "start to first answer",
    "client": "{connections} connections to {server}",
    "tls-proxy": "TLS 1.3 proxy with one origin, {connections} connections",
    "tls-handshakes": "connection, full TLS 1.3 handshake (ECDSA P-256), one request",
    "tls-handshakes-rsa": "connection, full TLS 1.3 handshake (RSA-2048), one request",
    "tls-resumed": "connection, resumed TLS 1.3 handshake, one request",
    "tls-bodies": "64 KiB bodies through the TLS 1.3 proxy, {connections} connections",
    "tls-memory": "user memory an idle TLS connection, {connections} held",
    "tls-flood": "p99 of {connections} TLS connections in a flood of handshakes, over its quiet value",
}
GROUPS = {
    "As a server and proxy": lambda what: what != "client" and not what.startswith("tls-"),
    "With TLS 1.3 (AES-256-GCM); `plain` is Tidegate without TLS": lambda what: what.startswith("tls-"),
    "As a load generator": lambda what: what == "client",
}
UNITS = {
    "cpu_us_per_request": "µs CPU/request",
    "process_us_per_request": "µs CPU/request (process only)",
    "cpu_ns_per_kib": "ns CPU/KiB",
    "process_ns_per_kib": "ns CPU/KiB (process only)",
    "client_cpu_us_per_request": "µs client CPU/request",
    "cpu_us_per_handshake": "µs CPU/handshake",
    "p99_9_us": "µs",
    "p99_flooded_over_quiet": "ratio",
    "bytes_per_connection": "bytes",
    "start_ms": "ms",
}
NOTHING = """\
No run is recorded in `benches/results/` yet. On your machine: `make compare WHAT=json`, `make compare WHAT=proxy`, then `make figures`.
"""


def newest_runs():
    runs = {}
    for path in sorted((ROOT / "benches/results").glob("*.jsonl")):
        for line in path.read_text().splitlines():
            run = json.loads(line)
            runs[run["what"], run["connections"], run["pipeline"], run.get("server")] = run
    order = list(TITLES)
    return sorted(runs.values(), key=lambda run: (order.index(run["what"]), run["connections"]))


def cell(contender, measure):
    value = contender.get(measure)
    if not value:
        return "n/a"
    if not isinstance(value, dict):
        value = {"median": value}
    text = f"{value['median']:.3g}" if value["median"] < 1000 else f"{value['median']:.0f}"
    over = contender.get("over_floor")
    return f"{text} ({over['median']:.2f} ±{(over['high'] - over['low']) / 2:.2f})" if over else text


def table(runs):
    names = []
    for run in runs:
        names += [c["name"] for c in run["contenders"] if c["name"] not in names]
    lines = ["| work | unit | " + " | ".join(names) + " | command |", "|---" * (len(names) + 3) + "|"]
    for run in runs:
        measure = run["measure"]
        by_name = {contender["name"]: contender for contender in run["contenders"]}
        cells = [cell(by_name[name], measure) if name in by_name else "" for name in names]
        title = TITLES[run["what"]].format(**run)
        if run.get("disturbed"):
            title += " (disturbed by other programs)"
        # A closed loop on one CPU keeps it busy; a plan that the client could not keep taints its figures.
        saturated = max(contender.get("rounds_saturated", 0) for contender in run["contenders"])
        if saturated and measure in ("p99_9_us", "p99_flooded_over_quiet"):
            title += f" (**client saturated** in {saturated} of {run['rounds']} rounds: indicative only)"
        command = f"`make compare WHAT={run['what']}`"
        lines.append(f"| {title} | {UNITS[measure]} | " + " | ".join(cells) + f" | {command} |")
    return lines


def tables(runs):
    lines = []
    for title, is_of in GROUPS.items():
        chosen = [run for run in runs if is_of(run["what"])]
        if chosen:
            lines += [f"{title}:", "", *table(chosen), ""]
    day = time.strftime("%Y-%m-%d", time.gmtime(max(run["unix_seconds"] for run in runs)))
    lines += [f"Medians of paired rounds; in brackets the multiple of the floor and half of its 95 % interval. Newest run: {day}; all that was measured,"
              " with spreads, versions and the machine, is in `benches/results/`.", ""]
    return "\n".join(lines)


def main():
    readme = ROOT / "README.md"
    text = readme.read_text()
    before, rest = text.split(BEGIN, 1)
    _, after = rest.split(END, 1)
    runs = newest_runs()
    anew = before + BEGIN + (tables(runs) if runs else NOTHING) + END + after
    if "--check" in sys.argv[1:] and anew != text:
        sys.exit("README.md does not show the newest figures: run make figures")
    readme.write_text(anew)


main()
