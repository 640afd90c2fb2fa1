#!/usr/bin/env python3
"""Compares the speed of trireme with PyTorch's on the same GPU, alternating, and prints a table at the end. Takes less than ten minutes:
after nine minutes the remaining measurements are skipped, and the table says so.

  bench.py [--trireme BINARY] [--data CIFAR10] [--seconds S] [--device cuda|cpu] [--tiny] [--json FILE]

Run it with a Python that has PyTorch. The sums over two ranks need mpirun. `--data` is CIFAR-10 from `trireme data convert`. Without it the
time to accuracy is not measured. The loader is measured on pictures with noise. `--device cpu --tiny` checks this script on a machine
without a GPU. Its results have no meaning.
"""
import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import threading
import time

import noise

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
# network, batch, PyTorch's modes (peer.py), trireme's precisions
ROWS = [
    ("resnet50", 256, ["eager", "best"], ["bf16"]),
    ("resnet20", 128, ["eager", "compile"], ["bf16", "tf32"]),
    ("lenet", 64, ["eager", "compile"], ["bf16", "tf32"]),
    ("alexnet", 256, ["eager", "compile"], ["bf16"]),
]
# measured last, if time is left
MORE = [
    ("resnet50", 64, ["eager"], ["bf16"]),
    ("resnet50", 256, [], ["f16", "tf32"]),
    ("resnet20", 1024, ["eager"], ["bf16"]),
]
TINY = [("resnet20", 8, ["eager"], ["f32"]), ("lenet", 4, ["eager"], ["f32"])]


class Bench:
    def __init__(self, a):
        self.a = a
        self.start = time.monotonic()
        self.log = []
        self.environment = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}

    def run(self, what, command, limit):
        """Returns the output of a program, or records the reason and returns None, so that a failure does not lose the other results."""
        left = 540 - (time.monotonic() - self.start)
        if left < 10:
            return self.failed(what, "no time left")
        print(f"[{time.monotonic() - self.start:4.0f} s] {what}", file=sys.stderr, flush=True)
        try:
            done = subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=min(limit, left), env=self.environment)
        except subprocess.TimeoutExpired:
            return self.failed(what, f"not finished after {min(limit, left):.0f} s")
        except OSError as error:
            return self.failed(what, str(error))
        if done.returncode != 0:
            lines = done.stderr.strip().splitlines() or ["no message"]
            return self.failed(what, " / ".join(lines[-3:])[:400])
        return done.stdout

    def device_memory(self, done, most):
        """Writes the largest memory use of the GPU in MiB to `most` until `done` is set."""
        query = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
        while self.a.device == "cuda" and shutil.which(query[0]) and not done.wait(0.3):
            used = subprocess.run(query, capture_output=True, text=True, check=False).stdout.split()
            most[:] = [max([*most, *(int(u) for u in used if u.isdigit())], default=0)]

    def failed(self, what, why):
        self.log.append(f"skipped: {what}: {why}")
        print(self.log[-1], file=sys.stderr, flush=True)

    def json(self, what, command, limit):
        done, most = threading.Event(), []
        watch = threading.Thread(target=self.device_memory, args=(done, most))
        watch.start()
        text = self.run(what, command, limit)
        done.set()
        watch.join()
        lines = [line for line in (text or "").splitlines() if line.startswith("{")]
        if not lines:
            return None
        figures = json.loads(lines[-1])
        if most:
            figures.setdefault("gpu_memory_mb", most[0])
        # print each result at once, to keep it even if the script is stopped
        print(json.dumps({"what": what, **figures}), file=sys.stderr, flush=True)
        return figures

    def peer(self, network, way, batch):
        limit = {"compile": 150, "best": 300}.get(way, 60)
        command = [sys.executable, HERE / "peer.py", network, way, "--device", self.a.device, "--batch", batch, "--seconds", self.a.seconds]
        return self.json(f"PyTorch {way}, {network}, batch {batch}", command, limit)

    def ours(self, network, batch, precision):
        command = [self.a.trireme, "bench", "step", "--model", network, "--batch", batch, "--device", self.a.device,
                   "--seconds", self.a.seconds, "--precision", "f32" if precision == "tf32" else precision]
        return self.json(f"trireme {precision}, {network}, batch {batch}", command + ["--tf32"] * (precision == "tf32"), 90)

    def train(self, what, recipe, data, out, extra, ranks=1, limit=120):
        """Returns the step lines of a run's metrics without the first fifth, which includes planning, recording and changing clocks."""
        command = [self.a.trireme, "train", recipe, "--data", data, "--out", out, "--device", self.a.device, *extra]
        if ranks > 1:
            command = ["mpirun", "-n", ranks, "--bind-to", "none", "--oversubscribe", *command, "--share-gpu"]
        if self.run(what, command, limit) is None:
            return None
        lines = [json.loads(line) for line in open(out / "metrics.jsonl")]
        steps = [line for line in lines if line["event"] == "step"]
        return steps[len(steps) // 5:], lines


def median(values):
    values = sorted(values)
    return values[len(values) // 2]


def networks(bench, rows, peaks):
    """Measures each network and precision and returns a row for each: trireme, PyTorch, ratios, the lower bound."""
    table = []
    for network, batch, ways, precisions in rows:
        peers = {way: bench.peer(network, way, batch) for way in ways}
        eager, known = peers.get("eager"), [result for result in peers.values() if result]
        best = max(known, key=lambda result: result["img_per_s"], default=None)
        for precision in precisions:
            own = bench.ours(network, batch, precision)
            floor = None
            if eager and peaks:
                # 16 bits per value; f32 moves twice as much
                wide = 1 if precision == "bf16" else 2
                seconds = max(eager["flops"] / peaks["flops_per_s"], wide * eager["traffic"] / peaks["bytes_per_s"])
                floor = 1 / seconds
            table.append({"what": f"{network}, batch {batch}, {precision}", "trireme": own and own["img_per_s"],
                          "eager": eager and eager["img_per_s"], "best": best and best["img_per_s"], "way": best and best["way"],
                          "memory": own and own.get("gpu_memory_mb"), "best memory": best and best.get("gpu_memory_mb"), "floor": floor})
    return table


def loader(bench, work, table):
    """Measures resnet20 fed by the real loader, and the same network on pictures in memory."""
    precision, images, steps = ("f32", 200, 6) if bench.a.tiny else ("bf16", 50000, 1500)
    batch = 8 if bench.a.tiny else 128
    noise.cifar10(work / "cifar", images, max(images // 5, 1))
    if bench.run("pictures of noise as CIFAR-10", [bench.a.trireme, "data", "convert", "cifar10", work / "cifar", work / "c10"], 60) is None:
        return
    extra = ["--max-steps", steps, "--set", f"precision={precision}", "--set", f"batch={batch}"]
    done = bench.train("resnet20 with the real loader", ROOT / "recipes/cifar10-resnet20.toml", work / "c10", work / "loader", extra)
    synthetic = next((row["trireme"] for row in table if row["what"].startswith("resnet20") and row["what"].endswith(precision)), None)
    if done:
        table.append({"what": f"resnet20, batch {batch}, {precision}, real loader", "trireme": median([s["img_per_s"] for s in done[0]]),
                      "synthetic": synthetic})


def staged(bench, work, table):
    """Measures how much of a step of two ranks on one GPU waits for sums on the host: resnet50 has 102 MB of gradients."""
    size, images, batch, steps = (32, 16, 8, 3) if bench.a.tiny else (224, 512, 128, 24)
    network = "resnet20" if bench.a.tiny else "resnet50"
    noise.photos(work / "photos", images, size)
    convert = [bench.a.trireme, "data", "convert", "folder", work / "photos", work / "raw", "--raw"]
    if bench.run("photos of noise", convert, 90) is None:
        return
    recipe = work / "staged.toml"
    recipe.write_text(f"""model = "{network}"
data = "given with --data"
epochs = 100
batch = {batch}
workers = 2
[optimizer]
kind = "sgd"
momentum = 0.9
[schedule]
kind = "constant"
base_lr = 0.001
[augment]
train = ["random_crop({size})", "normalize"]
eval = ["normalize"]
""")
    path = [] if bench.a.device == "cpu" else ["--set", "reduce.path=staged", "--set", "precision=bf16"]
    done = bench.train("two ranks on the GPU, sums through the host", recipe, work / "raw", work / "staged", ["--max-steps", steps, *path], 2)
    if done:
        step, wait = median([s["step_ms"] for s in done[0]]), median([s["comm_wait_ms"] for s in done[0]])
        bench.log.append(f"two ranks, {network}, {batch} images a step, gradients through the host: step {step:.1f} ms, "
                         f"waiting for sums {wait:.1f} ms = {100 * wait / step:.1f} % of it (goal: below 15 %)")


def moment(log, top1, found, stop):
    """Watches the metrics file `log` of a run until `stop` is set. Adds the time at which top-1 first reaches `top1` to the list `found`."""
    while not stop.wait(0.05):
        lines = log.read_text().splitlines() if log.exists() else []
        scores = [json.loads(line) for line in lines if '"event":"eval"' in line and line.endswith("}")]
        if any(score["top1"] >= top1 for score in scores):
            found.append(time.time())
            return


def accuracy(bench, work):
    """Measures the seconds until the test images are classified to 90 % for the first time, including the start of the program, for
    trireme and PyTorch."""
    if not bench.a.data:
        return bench.failed("CIFAR-10's time to accuracy", "no --data")
    epochs, milestones, top1 = (1, [1], 0.01) if bench.a.tiny else (30, [18, 25], 0.9)
    extra = ["--set", f"epochs={epochs}", "--set", f"schedule.milestones={milestones}"]
    extra += ["--max-steps", 2] if bench.a.tiny else ["--set", "precision=bf16"]
    out, found, stop = work / "accuracy", [], threading.Event()
    watch = threading.Thread(target=moment, args=(out / "metrics.jsonl", top1, found, stop))
    watch.start()
    began = time.time()
    done = bench.train(f"CIFAR-10 to {100 * top1:.0f} %", ROOT / "recipes/cifar10-resnet20.toml", bench.a.data, out, extra, limit=150)
    time.sleep(0.1)
    stop.set()
    watch.join()
    best = max((line["top1"] for line in done[1] if line["event"] == "eval"), default=0) if done else None
    own = found[0] - began if found else None
    command = [sys.executable, HERE / "peer.py", "accuracy", "--device", bench.a.device, "--data", bench.a.data, "--top1", top1,
               "--epochs", epochs, "--milestones", *milestones, *(["--max-steps", 2] if bench.a.tiny else [])]
    peer = bench.json(f"PyTorch eager, CIFAR-10 to {100 * top1:.0f} %", command, 240) or {"seconds": None, "best": None}
    words = lambda seconds, best: f"{seconds:.1f} s" if seconds else "no score" if best is None else f"not reached (best {100 * best:.2f} %)"
    times = f", {peer['seconds'] / own:.2f} times" if own and peer["seconds"] else ""
    bench.log.append(f"CIFAR-10, resnet20, {epochs} epochs, to {100 * top1:.0f} %, start included: trireme {words(own, best)}, "
                     f"PyTorch eager {words(peer['seconds'], peer['best'])}{times}")


def show(table, peaks):
    """Prints the notes, then the table."""
    for row in table:
        if row.get("synthetic") and row.get("trireme"):
            print(f"{row['what']}: {row['trireme'] / row['synthetic']:.3f} of the rate on pictures in memory (goal: 0.95)")
    if peaks:
        print(f"{peaks['device']}, PyTorch {peaks['torch']}: bf16 products {peaks['flops_per_s'] / 1e12:.3g} TFLOP/s, copies "
              f"{peaks['bytes_per_s'] / 1e12:.3g} TB/s; floor = the longer of FLOPs and bytes of a step at these rates (networks.py)")
    number = lambda v: f"{v:,.0f}" if v else "-"
    ratio = lambda row, peer: f"{row['trireme'] / row[peer]:.2f}" if row.get("trireme") and row.get(peer) else "-"
    heads = ["img/s", "trireme", "PyTorch eager", "best", "way", "floor", "x eager", "x best", "of floor", "MiB", "MiB of best"]
    lines = [[row["what"], number(row.get("trireme")), number(row.get("eager")), number(row.get("best")), row.get("way") or "-",
              number(row.get("floor")), ratio(row, "eager"), ratio(row, "best"), ratio(row, "floor"), number(row.get("memory")),
              number(row.get("best memory"))] for row in table]
    widths = [max(len(line[i]) for line in [heads, *lines]) for i in range(len(heads))]
    for line in [heads, *lines]:
        print("  ".join(text.ljust(w) if i == 0 else text.rjust(w) for i, (text, w) in enumerate(zip(line, widths))))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trireme", type=pathlib.Path, default=ROOT / "target/release/trireme")
    parser.add_argument("--data", type=pathlib.Path)
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--json", type=pathlib.Path)
    a = parser.parse_args()
    if not shutil.which(str(a.trireme)):
        sys.exit(f"{a.trireme}: no such program; run `make build`, or give --trireme")
    bench, rows = Bench(a), TINY if a.tiny else ROWS
    peaks = bench.json("the GPU's floors", [sys.executable, HERE / "peer.py", "floors", "--device", a.device, "--seconds", 1], 60)
    table = networks(bench, rows, peaks)
    with tempfile.TemporaryDirectory(prefix="trireme-bench-") as folder:
        work = pathlib.Path(folder)
        loader(bench, work, table)
        staged(bench, work, table)
        accuracy(bench, work)
    if not a.tiny:
        table += networks(bench, MORE, peaks)
    if a.json:
        a.json.write_text(json.dumps({"table": table, "peaks": peaks, "notes": bench.log}, indent=1))
    print("\n".join(bench.log))
    show(table, peaks)
    if a.tiny:
        print("--tiny: this checked the script; the results have no meaning")
    if not all(row.get("trireme") for row in table):
        sys.exit(1)


if __name__ == "__main__":
    main()
