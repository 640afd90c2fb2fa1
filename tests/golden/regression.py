"""Trains LeNet (Caffe) to predict three numbers in PyTorch, and runs trireme on the same images with the same recipe.

    python regression.py WORK [--trireme trireme] [--epochs 5] [--seeds 3] [--train 3000] [--test 600] [--losses mse,l1,huber]

The images have 28x28 grey pixels, with a bright blob on a noisy ground. The numbers are the position of its centre in pixels and its radius in
thousandths of a pixel, so their units differ. WORK gets the images as PNG files, a table of them, the data set and the runs.

Batch 50, SGD with momentum 0.9, lr 0.005 with cosine decay to 0 over all steps, weight decay 1e-4 on all parameters, normalize with the
moments of the training split, no augmentation. The targets are standardised by the training split. Losses: mse, l1 and huber(0.5), each
with PyTorch's nn module. There are three kinds of runs:

    pytorch    its own random weights (Caffe's xavier) and its own order
    paired     PyTorch with trireme's first weights and trireme's order of samples
    trireme

The first and the last agree up to the spread of the seeds. The last two compute the same numbers up to rounding. Prints a JSON line for each
run, with the loss of each epoch and RMSE, MAE and R2 of the test split in the units of the targets. For each loss it then prints by how many
standard errors the means of pytorch and trireme differ, and the largest relative difference between paired and trireme.
"""
import argparse
import json
import math
import pathlib
import struct
import subprocess
import zlib

import torch
from torch import nn

NAMES = ["x", "y", "radius"]
BATCH, RATE = 50, 0.005
LOSSES = {"mse": nn.MSELoss(), "l1": nn.L1Loss(), "huber": nn.HuberLoss(delta=0.5)}


def blobs(count, seed):
    """Returns uint8 images (count, 28, 28) and their numbers, float32 (count, 3)."""
    g = torch.Generator().manual_seed(seed)
    centre = 28 * (0.2 + 0.6 * torch.rand(count, 2, generator=g))
    radius = 1.5 + 2.5 * torch.rand(count, generator=g)
    at = torch.arange(28) + 0.5
    away = (at[None, None, :] - centre[:, 0, None, None]) ** 2 + (at[None, :, None] - centre[:, 1, None, None]) ** 2
    bright = 30 + 180 * (-away / (2 * radius[:, None, None] ** 2)).exp() + 40 * torch.rand(count, 28, 28, generator=g)
    return bright.to(torch.uint8), torch.cat([centre, 1000 * radius[:, None]], 1)


def png(image):
    """Returns a grey PNG file."""
    chunk = lambda kind, body: struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
    rows = b"".join(b"\0" + bytes(row.tolist()) for row in image)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 28, 28, 8, 0, 0, 0, 0)) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


class Net(nn.Sequential):
    """The layers of lenet-caffe with three outputs, with Caffe's xavier weights and zero biases."""

    def __init__(self):
        super().__init__(nn.Conv2d(3, 20, 5), nn.MaxPool2d(2), nn.Conv2d(20, 50, 5), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(800, 500), nn.ReLU(), nn.Linear(500, 3))
        for layer in self:
            if hasattr(layer, "weight"):
                bound = math.sqrt(3 / layer.weight[0].numel())
                nn.init.uniform_(layer.weight, -bound, bound)
                nn.init.zeros_(layer.bias)


def scores(predicted, numbers):
    """Returns RMSE, MAE and R2 of each number, in float64."""
    e, own = predicted.double() - numbers.double(), numbers.double()
    r2 = 1 - (e**2).sum(0) / ((own - own.mean(0)) ** 2).sum(0)
    return {"rmse": (e**2).mean(0).sqrt().tolist(), "mae": e.abs().mean(0).tolist(), "r2": r2.tolist()}


def philox(counter, key):
    """Returns the four words of Philox4x32-10."""
    for _ in range(10):
        a, b = 0xD2511F53 * counter[0], 0xCD9E8D57 * counter[2]
        counter = (b >> 32) ^ counter[1] ^ key[0], b & 0xFFFFFFFF, (a >> 32) ^ counter[3] ^ key[1], a & 0xFFFFFFFF
        key = (key[0] + 0x9E3779B9) & 0xFFFFFFFF, (key[1] + 0xBB67AE85) & 0xFFFFFFFF
    return counter


def permutation(n, seed, epoch):
    """Returns trireme's permutation of n samples, as docs/draws.md defines it."""
    bits = (n - 1).bit_length()
    low_bits, high_bits = bits // 2, bits - bits // 2

    def once(value):
        high, low = value >> low_bits, value & ((1 << low_bits) - 1)
        for r in range(6):
            word = philox(((high if r % 2 else low), 0, epoch, 0xFFFF << 16 | r), (seed, 0))[0]
            if r % 2:
                low ^= word & ((1 << low_bits) - 1)
            else:
                high ^= word & ((1 << high_bits) - 1)
        return high << low_bits | low

    def walk(value):
        while (value := once(value)) >= n:
            pass
        return value

    return torch.tensor([walk(value) for value in range(n)])


def orders(n, seed, epochs):
    """Yields the indices of each epoch's images in trireme's order. The conversion shuffled the images once."""
    stored = permutation(n, 0, 0)
    for epoch in range(epochs):
        yield stored[permutation(n, seed, epoch)]


def torch_run(kind, seed, epochs, train, test, start=None):
    """Trains with PyTorch. `start` has the first weights, with trireme's order. Without it, PyTorch draws both."""
    torch.manual_seed(seed)
    net, loss = Net(), LOSSES[kind]
    if start is not None:
        # the names differ, the order of the parameters does not
        net.load_state_dict(dict(zip(net.state_dict(), start)))
    pixels = train[0].double() / 255
    # conversion stores PNG files in colour
    prepared = lambda images: ((images.float() / 255 - pixels.mean().float()) / pixels.std(correction=0).float())[:, None].expand(-1, 3, -1, -1)
    mean, std = train[1].double().mean(0), train[1].double().std(0, correction=0)
    x, y = prepared(train[0]), ((train[1].double() - mean) / std).float()
    optimizer = torch.optim.SGD(net.parameters(), RATE, momentum=0.9, weight_decay=1e-4)
    each = math.ceil(len(x) / BATCH)
    losses = []
    order = orders(len(x), seed, epochs) if start is not None else (torch.randperm(len(x)) for _ in range(epochs))
    for epoch, rows_of_epoch in enumerate(order):
        total = 0.0
        for step, rows in enumerate(rows_of_epoch.split(BATCH)):
            optimizer.param_groups[0]["lr"] = RATE * (1 + math.cos(math.pi * (epoch * each + step) / (epochs * each))) / 2
            optimizer.zero_grad()
            value = loss(net(x[rows]), y[rows])
            value.backward()
            optimizer.step()
            total += value.item() * len(rows)
        losses.append(total / len(x))
    with torch.no_grad():
        return losses, scores(net(prepared(test[0])).double() * std + mean, test[1])


def write_recipe(a, kind, work):
    recipe = work / f"{kind}.toml"
    delta = "delta = 0.5\n" if kind == "huber" else ""
    recipe.write_text(
        f'model = "lenet-caffe"\ndata = "{work / "set"}"\nepochs = {a.epochs}\nbatch = {BATCH}\nworkers = 1\n'
        f'[optimizer]\nkind = "sgd"\nmomentum = 0.9\nweight_decay = 1e-4\n[schedule]\nkind = "cosine"\nbase_lr = {RATE}\n'
        f'[augment]\ntrain = ["normalize"]\neval = ["normalize"]\n[loss]\nkind = "{kind}"\n{delta}'
    )
    return recipe


def trireme_train(a, kind, seed, work, out, *options):
    command = [a.trireme, "train", write_recipe(a, kind, work), "--out", out, "--set", f"seed={seed}", "--threads", "1", *options]
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL)


def first_weights(a, kind, seed, work, numbers):
    """Returns the parameters that trireme starts with, from the first layer to the last. `numbers` are those of the training split."""
    from safetensors.torch import load_file

    out, weights = work / f"start-{kind}-{seed}", work / f"start_{kind}_{seed}.safetensors"
    trireme_train(a, kind, seed, work, out, "--max-steps", "0")
    subprocess.run([a.trireme, "export", out / "model.h5", "--to", "safetensors", "-o", weights], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    found = load_file(weights)
    layers = ["conv1", "conv2", "fc1", "fc2"]
    assert len(found) == 2 * len(layers), f"expected a weight and a bias of {layers}, found {sorted(found)}"
    # exports return numbers in the units of the targets: their last layer contains the scale
    mean, std = numbers.double().mean(0), numbers.double().std(0, correction=0)
    found["fc2.weight"] = found["fc2.weight"].double() / std[:, None]
    found["fc2.bias"] = (found["fc2.bias"].double() - mean) / std
    return [found[f"{layer}.{field}"].float() for layer in layers for field in ("weight", "bias")]


def trireme_run(a, kind, seed, work):
    out = work / f"{kind}-{seed}"
    trireme_train(a, kind, seed, work, out)
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    found = json.loads(subprocess.run([a.trireme, "eval", out, "--json"], check=True, capture_output=True, text=True).stdout)
    losses = [line["loss"] for line in lines if line["event"] == "epoch"]
    return losses, {key: [target[key] for target in found["targets"]] for key in ("rmse", "mae", "r2")}


def spread(runs):
    """Returns mean and standard deviation over the seeds, of each number."""
    values = torch.tensor(runs, dtype=torch.float64)
    return values.mean(0), values.std(0)


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("work", type=pathlib.Path, help="a new folder for images and runs")
    p.add_argument("--trireme", default="trireme")
    for name, value in (("epochs", 5), ("seeds", 3), ("train", 3000), ("test", 600)):
        p.add_argument(f"--{name}", type=int, default=value)
    p.add_argument("--losses", default=",".join(LOSSES), help="which of the three, with commas")
    a = p.parse_args()
    torch.set_num_threads(1)
    photos = a.work / "photos"
    photos.mkdir(parents=True)
    sets, table = {"train": blobs(a.train, 1), "test": blobs(a.test, 2)}, [",".join(["file", "split", *NAMES])]
    for split, (images, numbers) in sets.items():
        for i, (image, row) in enumerate(zip(images, numbers)):
            (photos / f"{split}-{i}.png").write_bytes(png(image))
            table.append(",".join([f"{split}-{i}.png", split, *(repr(v) for v in row.tolist())]))
    (photos / "table.csv").write_text("\n".join(table) + "\n")
    subprocess.run([a.trireme, "data", "convert", "csv", photos / "table.csv", a.work / "set", "--targets", ",".join(NAMES), "--raw"], check=True)
    for kind in a.losses.split(","):
        curves, tests = {}, {}
        for seed in range(1, a.seeds + 1):
            programs = {
                "pytorch": lambda: torch_run(kind, seed, a.epochs, sets["train"], sets["test"]),
                "paired": lambda: torch_run(kind, seed, a.epochs, sets["train"], sets["test"], first_weights(a, kind, seed, a.work, sets["train"][1])),
                "trireme": lambda: trireme_run(a, kind, seed, a.work),
            }
            for program, run in programs.items():
                losses, scored = run()
                curves.setdefault(program, []).append(losses)
                tests.setdefault(program, []).append(scored["rmse"] + scored["mae"] + scored["r2"])
                print(json.dumps({"program": program, "loss": kind, "seed": seed, "losses": losses, **scored}), flush=True)
        for what, runs in (("training loss of each epoch", curves), ("RMSE, MAE and R2 of each target", tests)):
            (mean, std), (own, own_std) = spread(runs["pytorch"]), spread(runs["trireme"])
            # a mean over n seeds has the deviation std / sqrt(n), and the variances add up for a difference between two
            # means
            noise = ((std**2 + own_std**2) / a.seeds).sqrt()
            off = ((own - mean).abs() / noise).tolist()
            found = {"pytorch": mean.tolist(), "trireme": own.tolist(), "difference_in_standard_errors": off}
            pair, own = torch.tensor(runs["paired"]), torch.tensor(runs["trireme"])
            print(json.dumps({"loss": kind, "what": what, **found, "largest_paired_difference": ((own - pair).abs() / pair.abs()).max().item()}), flush=True)


if __name__ == "__main__":
    main()
