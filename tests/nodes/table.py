#!/usr/bin/env python3
"""Prints the JSON lines of `trireme bench` from stdin as tables: sums by size, and measured steps next to the forecast for the link."""

import json
import sys

lines = [json.loads(line) for line in sys.stdin if line.startswith("{")]
sums = [line for line in lines if line["bench"] == "allreduce"]
if sums:
    print("nodes       MB   sum ms   best ms    MB/s")
for line in sums:
    mb = line["bytes"] / 1e6
    best = line["plain_ms_best"]
    print(f"{line['ranks']:5} {mb:8.2f} {line['plain_ms']:8.2f} {best:9.2f} {mb / best * 1e3:7.1f}")
scale = [line for line in lines if line["bench"] == "scale" and not line.get("held_out")]
forecast = {line["ranks"]: line for line in scale if line["forecast"]}
if scale:
    print("nodes  step ms  sum ms  forecast of the sum at best, at worst   measured / best")
for line in scale:
    if not line["forecast"]:
        best, worst = forecast[line["ranks"]]["comm_ms"] if line["ranks"] in forecast else (0, 0)
        ratio = f"{line['comm_ms'] / best:16.3f}" if best else ""
        print(f"{line['ranks']:5} {line['step_ms']:8.1f} {line['comm_ms']:7.1f} {best:28.1f} {worst:9.1f} {ratio}")
for line in forecast.values():
    print(f"forecast: {line['ranks']} nodes, {line['gb_per_s']:g} GB/s: sum {line['comm_ms'][0]:.1f} to {line['comm_ms'][1]:.1f} ms")
