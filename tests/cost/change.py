#!/usr/bin/env python3
"""Measures the time that a change of a recipe adds to a step:
change.py TRIREME RECIPE CHANGE [--ranks 2] [--slices 40] [--steps 8] [-- ARGUMENTS OF train]

Two trainings, without and with `--set CHANGE`, alternate in slices of a few steps while the other is stopped (SIGSTOP). If the speed of the
machine varies, both are slowed equally, which is not the case for alternating whole runs. Prints the median step of both, and the median
increase over neighbouring slices with its quartiles. Use it on a machine without other load.
"""
import argparse
import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
import time

# number of steps at the start of a slice that are not measured: the first includes the pause, and the caches are cold
COLD = 2


class Training:
    """A training whose processes are run or stopped together."""

    def __init__(self, command, out):
        root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        self.metrics, self.log = out / "metrics.jsonl", out.with_suffix(".log")
        self.read, self.steps = 0, []
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [*command, "--out", str(out)], stdout=log, stderr=log, env={**os.environ, **root}, start_new_session=True)

    def pids(self):
        """Returns the processes of the session. mpirun gives each rank its own process group, but keeps all in one session."""
        pids = []
        for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = stat.read_text().rsplit(")", 1)[1].split()
            except (FileNotFoundError, ProcessLookupError):
                continue
            if int(fields[3]) == self.process.pid:
                pids.append(int(stat.parent.name))
        return pids

    def signal(self, number):
        for pid in self.pids():
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                pass

    def more(self):
        """Continues reading, and returns the milliseconds of all steps so far."""
        if self.metrics.exists():
            with self.metrics.open() as file:
                file.seek(self.read)
                lines = file.read().splitlines(keepends=True)
            whole = [line for line in lines if line.endswith("\n")]
            self.read += sum(len(line.encode()) for line in whole)
            events = map(json.loads, whole)
            self.steps += [event["step_ms"] for event in events if event["event"] == "step"]
        return self.steps

    def check(self):
        if self.process.poll() is not None:
            raise SystemExit(f"a training ended with exit status {self.process.returncode}:\n{self.log.read_text()[-2000:]}")

    def slice(self, count):
        """Runs some cold steps and then this number of steps, and returns their median in milliseconds."""
        before = len(self.more()) + COLD
        self.signal(signal.SIGCONT)
        while len(self.more()) < before + count:
            self.check()
            time.sleep(0.01)
        self.signal(signal.SIGSTOP)
        return statistics.median(self.steps[before : before + count])

    def end(self):
        self.signal(signal.SIGKILL)
        self.process.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trireme")
    parser.add_argument("recipe")
    parser.add_argument("change")
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--slices", type=int, default=40)
    parser.add_argument("--steps", type=int, default=8)
    split = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    args = parser.parse_args(sys.argv[1:split])
    mpirun = ["mpirun", "-n", str(args.ranks), "--bind-to", "none"] if args.ranks > 1 else []
    command = [*mpirun, args.trireme, "train", args.recipe, "--set", f"workers={args.ranks}", *sys.argv[split + 1:]]
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        both = []
        try:
            for name, change in ("without", []), ("with", ["--set", args.change]):
                both.append(Training([*command, *change], folder / name))
                while len(both[-1].more()) < COLD:
                    both[-1].check()
                    time.sleep(0.1)
                both[-1].signal(signal.SIGSTOP)
            measure(both, args)
        finally:
            for training in both:
                training.end()


def measure(both, args):
    medians, costs = ([], []), []
    for n in range(args.slices):
        # each training is first in every second pair
        times = {i: both[i].slice(args.steps) for i in ((0, 1) if n % 2 == 0 else (1, 0))}
        for i in 0, 1:
            medians[i].append(times[i])
        costs.append(100 * (times[1] / times[0] - 1))
    low, middle, high = statistics.quantiles(costs, n=4)
    without, changed = map(statistics.median, medians)
    ranks = "1 rank" if args.ranks == 1 else f"{args.ranks} ranks"
    print(f"{pathlib.Path(args.recipe).stem}, {ranks}, {args.change}: {without:.2f} ms per step, {changed:.2f} with the change; "
          f"{middle:+.2f} %, quartiles {low:+.2f} and {high:+.2f} % of {args.slices} pairs of slices of {args.steps} steps")


if __name__ == "__main__":
    main()
