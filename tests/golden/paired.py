"""Compares the training loss in trireme and PyTorch. Both train from the same weights on the same pixel batches.

    python paired.py CASE --trireme BIN --batches BIN --data DIR [--seeds 1-10] [--steps 300] [--last 100] [--threads 1]
                     [--programs ...] >> results.jsonl
    python paired.py --summary results.jsonl

CASE is resnet20 or resnet20-mix (mixup 0.8), both on CIFAR-10 with pad_crop(4) and flip, or lenet (Caffe's, without dropout) on
Fashion-MNIST. DIR is the data set that `trireme data convert` writes. Batch 128, SGD 0.9 with decay 1e-4 at a constant rate of 0.1 (LeNet:
0.02), float32. For each seed the initial weights are trireme's, exported as safetensors, and the batches come from its loader (`cargo build
--release -p loaders --example batches`). Five programs train on them:

    trireme     its own choice of kernels
    onednn      trireme with oneDNN's kernels for every convolution (TRIREME_CPU_TABLE)
    torch       PyTorch
    torch+1e-6  PyTorch, each weight moved by a random 1e-6 of its size, to measure the effect of rounding
    torch64     PyTorch in float64 (only if --programs names it)

Each prints a JSON line with its losses. For each pair, --summary prints the difference in the mean loss of the last steps, averaged over the
seeds, with its 95 % confidence interval.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import numpy as np

SIZES = [(3, 16, 32, 1), (16, 16, 32, 1), (16, 32, 32, 2), (32, 32, 16, 1), (32, 64, 16, 2), (64, 64, 8, 1)]
CASES = {
    "resnet20": dict(model="resnet20", augment=["pad_crop(4)", "flip", "normalize"], mixup=0.0, lr=0.1),
    "resnet20-mix": dict(model="resnet20", augment=["pad_crop(4)", "flip", "normalize"], mixup=0.8, lr=0.1),
    "lenet": dict(model="lenet-caffe", augment=["normalize"], mixup=0.0, lr=0.02),
}
BATCH, MOMENTUM, DECAY = 128, 0.9, 1e-4


def trireme(a, case, seed, folder, table=None):
    """Trains with trireme from random weights and returns the loss in each step."""
    env = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    if table:
        env["TRIREME_CPU_TABLE"] = str(table)
    out = folder / ("onednn" if table else "own")
    command = [a.trireme, "train", str(folder / "recipe.toml"), "--out", str(out), "--threads", str(a.threads), "-q", "--max-steps", str(a.steps)]
    subprocess.run(command, check=True, env=env, stdout=subprocess.DEVNULL)
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    losses = [line["loss"] for line in lines if line["event"] == "step"]
    assert len(losses) == a.steps, f"{len(losses)} losses for {a.steps} steps"
    return losses


def initial(a, folder):
    """Returns the initial weights for this recipe."""
    from safetensors.torch import load_file

    env = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    run, weights = folder / "start", folder / "start.safetensors"
    train = [a.trireme, "train", str(folder / "recipe.toml"), "--out", str(run), "--threads", str(a.threads), "-q", "--max-steps", "0"]
    subprocess.run(train, check=True, env=env, stdout=subprocess.DEVNULL)
    export = [a.trireme, "export", str(run / "model.h5"), "--to", "safetensors", "-o", str(weights)]
    subprocess.run(export, check=True, env=env, stdout=subprocess.DEVNULL)
    return load_file(weights)


def batches(a, case, seed, shape):
    """Yields (weight for each image's own pixels, images, labels) for each batch."""
    command = [a.batches, a.data, str(seed), str(BATCH), str(a.steps), str(case["mixup"]), *case["augment"]]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as program:
        take = lambda count, kind: np.frombuffer(program.stdout.read(4 * count), kind)
        for _ in range(a.steps):
            n = int(take(1, "<u4")[0])
            share = float(take(1, "<f4")[0])
            images = take(n * int(np.prod(shape)), "<f4").reshape(n, *shape)
            yield share, images, take(n, "<u4").astype(np.int64)


def torch_run(a, case, seed, weights, moved=0.0, double=False):
    """Trains with PyTorch and returns the loss in each step."""
    import torch
    import torch.nn.functional as F

    from networks import LeNetCaffe, ResNet20

    torch.set_num_threads(a.threads)
    kind = torch.float64 if double else torch.float32
    net = {"resnet20": ResNet20, "lenet-caffe": LeNetCaffe}[case["model"]]()
    known = net.state_dict()
    net.load_state_dict({**{k: v for k, v in known.items() if k.endswith("num_batches_tracked")}, **weights})
    if moved:
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for p in net.parameters():
                p.mul_(1 + moved * torch.randn(p.shape, generator=generator))
    net = net.to(kind).to(memory_format=torch.channels_last).train()
    optimizer = torch.optim.SGD(net.parameters(), lr=case["lr"], momentum=MOMENTUM, weight_decay=DECAY)
    losses = []
    for share, x, y in batches(a, case, seed, net.shape if hasattr(net, "shape") else (3, 32, 32)):
        x = torch.from_numpy(x.copy()).to(kind).contiguous(memory_format=torch.channels_last)
        y = F.one_hot(torch.from_numpy(y), 10).to(kind)
        loss = F.cross_entropy(net(x), share * y + (1 - share) * y.flip(0))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def recipe(a, case, seed, folder):
    lists = json.dumps(case["augment"])
    text = f"""model = "{case['model']}"
data = "{pathlib.Path(a.data).resolve()}"
epochs = 1000
seed = {seed}
batch = {BATCH}
workers = 1
[optimizer]
kind = "sgd"
momentum = {MOMENTUM}
weight_decay = {DECAY}
[schedule]
kind = "constant"
base_lr = {case['lr']}
[augment]
train = {lists}
eval = ["normalize"]
[eval]
limit = 1
"""
    (folder / "recipe.toml").write_text(text + (f"[mix]\nmixup = {case['mixup']}\n" if case["mixup"] else ""))
    (folder / "onednn.txt").write_text("".join(f"3 {c} {k} {s} {s}{'' if t == 1 else f' {t}'} onednn 1\n" for c, k, s, t in SIZES))


def summary(path):
    """Prints the mean loss of each program and the paired differences from PyTorch's."""
    runs = {}
    for line in map(json.loads, open(path)):
        runs.setdefault(line["case"], {}).setdefault(line["program"], {})[line["seed"]] = np.mean(line["losses"][-line["last"] :])
    # two-sided 95 % quantiles for Student's t distribution, 1 to 20 degrees of freedom
    t95 = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086]
    for case, programs in runs.items():
        print(case)
        for program, losses in programs.items():
            print(f"  {program:10} mean {np.mean(list(losses.values())):.4f} over {len(losses)} seeds")
        for program, other in [("trireme", "torch"), ("onednn", "torch"), ("torch+1e-6", "torch"), ("trireme", "torch+1e-6"), ("trireme", "onednn"), ("torch64", "torch")]:
            seeds = sorted(set(programs.get(program, {})) & set(programs.get(other, {})))
            if len(seeds) > 1:
                d = np.array([programs[program][s] - programs[other][s] for s in seeds])
                half = t95[min(len(d) - 2, 19)] * d.std(ddof=1) / len(d) ** 0.5
                print(f"  {program} - {other}: {d.mean():+.4f} +- {half:.4f} (95 %, {len(d)} seeds, {(d > 0).sum()} above zero)")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("case", nargs="?", choices=CASES)
    parser.add_argument("--summary")
    parser.add_argument("--trireme")
    parser.add_argument("--batches")
    parser.add_argument("--data")
    parser.add_argument("--seeds", default="1-10")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--last", type=int, default=100)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--programs", default="trireme,onednn,torch,torch+1e-6", help="which of the five, with commas")
    a = parser.parse_args()
    if a.summary:
        return summary(a.summary)
    case = CASES[a.case]
    first, _, last = a.seeds.partition("-")
    for seed in range(int(first), int(last or first) + 1):
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            recipe(a, case, seed, folder)
            weights = initial(a, folder)
            programs = {
                "trireme": lambda: trireme(a, case, seed, folder),
                "onednn": lambda: trireme(a, case, seed, folder, folder / "onednn.txt"),
                "torch": lambda: torch_run(a, case, seed, weights),
                "torch+1e-6": lambda: torch_run(a, case, seed, weights, moved=1e-6),
                "torch64": lambda: torch_run(a, case, seed, weights, double=True),
            }
            for name in a.programs.split(","):
                losses = programs[name]()
                print(json.dumps({"case": a.case, "program": name, "seed": seed, "last": a.last, "losses": losses}), flush=True)


if __name__ == "__main__":
    sys.exit(main())
