#!/usr/bin/env python3
"""Compares training on CPUs with PyTorch, alternating, on synthetic images in memory. Prints a Markdown table. Needs an idle machine.

  bench.py TRIREME [--rounds 3] [--seconds 6] [--only NAME,...]

A ratio is the median of the ratios of all rounds. Memory is anonymous and shared memory after the last step, without mapped files. The row
with two ranks needs `mpirun`.
"""
import argparse
import datetime
import json
import os
import pathlib
import statistics
import subprocess
import sys

STEP = pathlib.Path(__file__).resolve().parent / "step.py"


class Row:
    """A network, batch, number of threads and number format, on one process or two ranks. `size` is the height and width of the images in
    pixels, if it is not the network's usual size."""

    def __init__(self, network, batch, threads, bf16=False, ranks=1, size=None):
        self.network, self.batch, self.threads, self.bf16, self.ranks = network, batch, threads, bf16, ranks
        self.size = [] if size is None else ["--size", size]

    def __str__(self):
        threads = f"{self.threads} thread{'s' * (self.threads > 1)}"
        where = threads if self.ranks == 1 else f"{self.ranks} ranks, {threads} each (DDP over gloo)"
        pixels = "".join(f", {size} pixels" for size in self.size[1:])
        return f"{self.network}{pixels}, batch {self.batch}, {where}{', bf16' * self.bf16}"

    def peer(self, seconds):
        command = [sys.executable, STEP, self.network, "--batch", self.batch, "--threads", self.threads, "--seconds", seconds]
        command += [*self.size, *["--bf16"] * self.bf16]
        if self.ranks == 1:
            return last_line(command)
        port = 20000 + os.getpid() % 20000
        ranks = [subprocess.Popen(words([*command, "--port", port, "--rank", r]), stdout=subprocess.PIPE, text=True) for r in (0, 1)]
        lines = [json.loads(r.communicate()[0].splitlines()[-1]) for r in ranks]
        return lines[0] | {"img_per_s": sum(line["img_per_s"] for line in lines)}

    def ours(self, trireme, seconds):
        options = ["--device", "cpu", "--model", self.network, "--batch", self.batch, "--threads", self.threads, "--seconds", seconds]
        options += self.size
        if self.ranks > 1:
            return last_line(["mpirun", "-n", self.ranks, "--bind-to", "none", trireme, "bench", "scale", *options])
        return last_line([trireme, "bench", "step", *options, *["--precision", "bf16"] * self.bf16])


ROWS = [
    Row("resnet20", 128, 2),
    Row("resnet20", 128, 1),
    Row("lenet", 64, 2),
    Row("resnet50", 16, 2),
    Row("resnet50", 16, 2, bf16=True),
    Row("alexnet", 64, 2),
    Row("resnet20", 64, 1, ranks=2),
    Row("mobilenet_v2", 16, 2),
    Row("efficientnet_b0", 16, 2),
    Row("inception_v3", 16, 2),
    Row("vgg16", 16, 2),
    Row("convnext_tiny", 16, 2),
    Row("densenet121", 16, 2),
    Row("vit_b_16", 16, 2),
    Row("swin_t", 16, 2),
    Row("regnet_y_400mf", 16, 2),
    Row("regnet_x_1_6gf", 16, 2),
    Row("shufflenet_v2_x1_0", 16, 2),
    Row("efficientnet_v2_s", 16, 2, size=300),
]


def words(command):
    return [str(word) for word in command]


def last_line(command):
    """Returns the last JSON line with a number in the output of a program."""
    root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    done = subprocess.run(words(command), capture_output=True, text=True, env={**os.environ, **root})
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{") and "img_per_s" in line]
    if done.returncode or not lines:
        raise SystemExit(f"{' '.join(words(command))}: exit status {done.returncode}\n{done.stderr[-2000:]}")
    return lines[-1]


def processor():
    with open("/proc/cpuinfo") as file:
        facts = dict(line.split(":", 1) for line in file.read().split("\n\n")[0].splitlines() if ":" in line)
    facts = {name.strip(): value.strip() for name, value in facts.items()}
    sets = [s for s in ("avx2", "avx512f", "avx512_bf16", "amx_bf16") if s in facts["flags"].split()]
    return f"{facts['model name']} (family {facts['cpu family']}, model {facts['model']}; {', '.join(sets)}), {len(os.sched_getaffinity(0))} cores"


def bf16_here(trireme):
    """Returns true if the processor has bf16 products and ONEDNN_MAX_CPU_ISA does not disable them."""
    facts = subprocess.run([trireme, "doctor"], capture_output=True, text=True).stdout
    return any(line.split()[:3] == ["cpu", "bf16", "yes"] for line in facts.splitlines())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trireme")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=6)
    parser.add_argument("--only", type=lambda names: names.split(","), help="networks")
    a = parser.parse_args()
    rows = [row for row in ROWS if not a.only or row.network in a.only]
    lines, backend, version = [], "", ""
    for row in rows:
        if row.bf16 and not bf16_here(a.trireme):
            lines.append(f"| {row} | not measured: no bf16 on the CPU here (`trireme doctor`) | | | |")
            continue
        peers, ours = [], []
        for number in range(a.rounds):
            print(f"{row}: round {number + 1} of {a.rounds}", file=sys.stderr, flush=True)
            turns = [lambda: peers.append(row.peer(a.seconds)), lambda: ours.append(row.ours(a.trireme, a.seconds))]
            for turn in turns if number % 2 == 0 else reversed(turns):
                turn()
        backend, version = ours[0].get("backend", backend), peers[0]["version"]
        ratio = statistics.median(o["img_per_s"] / p["img_per_s"] for o, p in zip(ours, peers))
        rates = [", ".join(f"{m['img_per_s']:,.{0 if m['img_per_s'] >= 100 else 1}f}" for m in side) for side in (peers, ours)]
        memory = [statistics.median(m["memory_mb"] for m in side) for side in (peers, ours)]
        memory = "" if row.ranks > 1 else f"{memory[0]:,.0f}, {memory[1]:,.0f}"
        lines.append(f"| {row} | {rates[0]} | {rates[1]} | {ratio:.2f} | {memory} |")
        print(lines[-1], file=sys.stderr, flush=True)
    print(f"{datetime.date.today()}, {processor()}; PyTorch {version}, channels_last; trireme on {backend}; images per second, {a.rounds} alternating rounds.\n")
    print("| work | PyTorch | trireme | ratio | MB, both |\n|---|---|---|---|---|")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
