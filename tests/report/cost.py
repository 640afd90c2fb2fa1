"""Measures the cost of the page, the event file and the stored evaluation in a run: cost.py TRIREME RECIPE [ARGUMENTS OF train ...]

Trains PAIRS (5) times without and with them, alternating, and prints the medians of the total time and of the time at the end, in steps.
Needs an idle machine.
"""

import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

WAYS = {
    "nothing": ["--set", "log.report=false", "--set", "log.tensorboard=false"],
    "all": [],
    "all and layers every 100 steps": ["--set", "log.histograms=100"],
}


def main(trireme, recipe, *arguments):
    walls = {name: [] for name in WAYS}
    steps = {name: [] for name in WAYS}
    for _ in range(int(os.environ.get("PAIRS", "5"))):
        for name, changes in WAYS.items():
            with tempfile.TemporaryDirectory() as folder:
                out = pathlib.Path(folder) / "out"
                begin = time.monotonic()
                subprocess.run([trireme, "train", recipe, *arguments, "--out", out, *changes], check=True, stderr=subprocess.DEVNULL)
                walls[name].append(time.monotonic() - begin)
                lines = map(json.loads, (out / "metrics.jsonl").read_text().splitlines())
                steps[name].append(sum(line["seconds"] for line in lines if line["event"] == "epoch"))
    base, base_steps = statistics.median(walls["nothing"]), statistics.median(steps["nothing"])
    for name in WAYS:
        wall, step = statistics.median(walls[name]), statistics.median(steps[name])
        print(f"{name:32} {wall:8.3f} s ({100 * (wall / base - 1):+.2f} %), in steps {step:8.3f} s ({100 * (step / base_steps - 1):+.2f} %), "
              f"least {min(walls[name]):.3f} s")


if __name__ == "__main__":
    main(*sys.argv[1:])
