#!/usr/bin/env python3
"""Writes the tables of figures in README.md from the newest runs in benches/results/*.jsonl.

ROWS selects the runs to show: each is one claim that a reader of README.md can check with the command beside it. A run
that is not a sound basis for a claim (other programs used the CPUs, or the client could not keep to its plan) is passed
over in favour of an older one. benches/results has all runs.

`figures.py --check` changes nothing and fails if README.md does not have the newest figures.
"""
import json
import pathlib
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
BEGIN, END = "<!-- figures: begin -->\n", "<!-- figures: end -->\n"
# The rows by table: the comparison, its connections, the server (of `client` alone), and the title of the row.
ROWS = {
    "As a server and proxy": [
        ("json", 64, None, "27 bytes of JSON, 64 connections"),
        ("json", 4000, None, "27 bytes of JSON, 4000 connections"),
        ("proxy", 64, None, "proxy, 64 connections"),
        ("proxy-fields", 64, None, "proxy, all adding the same header fields, 64 connections"),
        ("bodies", 16, None, "proxy, 1 MiB bodies, 16 connections"),
        ("memory", 18000, None, "memory for an idle connection, 18,000 open"),
    ],
    "With TLS 1.3; `plain` is Tidegate without TLS": [
        ("tls-proxy", 64, None, "TLS proxy, 64 connections"),
        ("tls-handshakes", 64, None, "new connection, full handshake (ECDSA P-256), one request"),
        ("tls-memory", 15000, None, "memory for an idle TLS connection, 15,000 open"),
    ],
    "As a load generator": [
        ("client", 64, "floor", "requests to the floor, 64 connections"),
    ],
}
UNITS = {
    "cpu_us_per_request": "µs CPU/request",
    "cpu_ns_per_kib": "ns CPU/KiB",
    "client_cpu_us_per_request": "µs client CPU/request",
    "cpu_us_per_handshake": "µs CPU/handshake",
    "bytes_per_connection": "bytes",
}
NOTHING = """\
No run is recorded in `benches/results/` yet. On your machine: `make compare WHAT=json`, `make compare WHAT=proxy`,
then `make figures`.
"""


def is_sound(run):
    """Whether the figures of this run support a claim."""
    # A client in a closed loop is always busy; only a client that has to keep to a rate or a plan can fall behind.
    is_kept = all(not contender.get("rounds_saturated") for contender in run["contenders"])
    return run["measure"] in UNITS and is_kept and not run.get("disturbed")


def newest_runs():
    runs = {}
    for path in sorted((ROOT / "benches/results").glob("*.jsonl")):
        for line in path.read_text().splitlines():
            run = json.loads(line)
            if is_sound(run):
                runs[run["what"], run["connections"], run.get("server")] = run
    return runs


def cell(contender, measure):
    value = contender.get(measure)
    if not value:
        return "n/a"
    if not isinstance(value, dict):
        value = {"median": value}
    text = f"{value['median']:.3g}" if value["median"] < 1000 else f"{value['median']:.0f}"
    over = contender.get("over_floor")
    return f"{text} ({over['median']:.2f} ±{(over['high'] - over['low']) / 2:.2f})" if over else text


def table(rows):
    names = []
    for _, run in rows:
        names += [c["name"] for c in run["contenders"] if c["name"] not in names]
    lines = ["| work | unit | " + " | ".join(names) + " | command |", "|---" * (len(names) + 3) + "|"]
    for title, run in rows:
        by_name = {contender["name"]: contender for contender in run["contenders"]}
        cells = [cell(by_name[name], run["measure"]) if name in by_name else "" for name in names]
        command = f"`make compare WHAT={run['what']}`"
        lines.append(f"| {title} | {UNITS[run['measure']]} | " + " | ".join(cells) + f" | {command} |")
    return lines


def tables(runs):
    lines, shown = [], []
    for heading, wanted in ROWS.items():
        keys = [(title, (what, connections, server)) for what, connections, server, title in wanted]
        rows = [(title, runs[key]) for title, key in keys if key in runs]
        if rows:
            lines += [f"{heading}:", "", *table(rows), ""]
            shown += [run for _, run in rows]
    if not shown:
        return NOTHING
    day = time.strftime("%Y-%m-%d", time.gmtime(max(run["unix_seconds"] for run in shown)))
    lines += [
        "Medians of paired rounds. In parentheses: the ratio to the floor, ± half the width of its 95 % confidence",
        "interval. Newest run:",
        f"{day}. `benches/results/` has all measurements with spreads, program versions and the machine.",
        "",
    ]
    return "\n".join(lines)


def main():
    readme = ROOT / "README.md"
    text = readme.read_text()
    before, rest = text.split(BEGIN, 1)
    _, after = rest.split(END, 1)
    updated = before + BEGIN + tables(newest_runs()) + END + after
    if "--check" in sys.argv[1:]:
        if updated != text:
            sys.exit("README.md does not have the newest figures: run make figures")
        return
    readme.write_text(updated)


main()
