#!/usr/bin/env python3
"""Prints the result of scripts/c1000k.sh beside the figures that the C1000K article published.

In: a folder with tidegate.json and perhaps floor.json, the reports of `tidegate bench push`. Out: a table and a verdict.
"""
import json
import pathlib
import sys

# The article: 1.2 million connections, AWS c3.4xlarge (16 virtual CPUs, 30 GB), clients on two more machines. Its
# latencies are of one send call to its receipt, not of the broadcast.
ARTICLE = [
    ("Netty (article)", "1,200,000", "13.9 s", "86k", "15,167 MB"),
    ("Undertow (article)", "1,200,000", "15.6 s", "77k", "18,200 MB"),
    ("Spray (article, enqueued only)", "1,200,000", "7.7 s", "-", "22,100 MB"),
]
HEAD = ("", "connections", "broadcast", "messages/s", "memory used")


def seconds(micros):
    if micros is None:
        return "-"
    return f"{micros / 1e6:.2f} s" if micros >= 1e6 else f"{micros / 1e3:.0f} ms"


def row(name, report):
    memory = report["memory"]
    both_ends = memory["kernel_bytes_per_connection"] * report["established"]
    used = ((memory["server_bytes"] or 0) + both_ends) / 1e6
    return (
        name,
        f"{report['established']:,}",
        seconds(report["last_us"]["mean"]),
        f"{report['deliveries_per_s'] / 1e3:.0f}k",
        f"{used:,.0f} MB",
    )


def verdict(report):
    planned, open_count = report["connections"], report["established"]
    if open_count < planned:
        if report["memory_exhausted"]:
            yield f"Stopped at {open_count:,} of {planned:,} connections: no more memory was available."
        for reason, count in report["setup_failures"].items():
            yield f"{count:,} connections failed: {reason}"
    for reason, count in report["connection_losses"].items():
        yield f"{count:,} connections were lost: {reason}"
    for reason, count in report["publish_failures"].items():
        yield f"{count} broadcasts failed: {reason}"
    counts = [report[name] for name in ("lost", "duplicated", "out_of_order")]
    yield (
        f"{report['received']:,} of {report['expected']:,} messages received: "
        f"{counts[0]:,} lost, {counts[1]:,} duplicated, {counts[2]:,} out of order."
    )


def main():
    folder = pathlib.Path(sys.argv[1])
    ours = json.loads((folder / "tidegate.json").read_text())
    rows = [row("Tidegate (this machine)", ours)]
    floor_file = folder / "floor.json"
    floor = json.loads(floor_file.read_text()) if floor_file.exists() else None
    if floor:
        rows.append(row("floor: a bare send loop", floor))
    rows = [HEAD, *rows, *ARTICLE]
    widths = [max(len(line[column]) for line in rows) for column in range(len(HEAD))]
    for line in rows:
        cells = [line[0].ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(line[1:], widths[1:])]
        print("  ".join(cells))
    print("broadcast: publish call to the last subscriber's receipt, mean; memory: server and kernel, here with both ends.")
    print()
    memory = ours["memory"]
    last = ours["last_us"]
    print(f"setup      {ours['setup_s']:.1f} s, {ours['setup_per_s']:,.0f}/s, "
          f"server CPU {ours['server_cpu_us_per_connection']:.1f} µs per connection")
    print(f"memory     server {memory['server_bytes_per_connection']:.0f} bytes per idle connection, "
          f"kernel {memory['kernel_bytes_per_connection']:.0f} bytes (both ends)")
    print(f"broadcast  {seconds(last['min'])} min, {seconds(last['mean'])} mean, {seconds(last['max'])} max; "
          f"server CPU {ours['server_cpu_us_per_message']:.2f} µs per message")
    latency = ours["latency_us"]
    print("latency    " + ", ".join(f"{name} {seconds(latency[name])}" for name in ("p50", "p90", "p99", "p99_9", "max")))
    if floor and floor["last_us"]["mean"] and last["mean"]:
        print(f"floor      broadcast {last['mean'] / floor['last_us']['mean']:.2f} × the floor's, "
              f"server CPU {ours['server_cpu_us_per_message'] / max(floor['server_cpu_us_per_message'], 1e-9):.2f} ×")
        print("           floor: " + " ".join(verdict(floor)))
    for words in verdict(ours):
        print(words)


if __name__ == "__main__":
    main()
