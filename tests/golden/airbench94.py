"""Trains airbench94 on CIFAR-10 in PyTorch as published (Jordan 2024, arXiv 2404.00498). recipes/cifar10-airbench94.toml is compared
with it.

    python airbench94.py [--data DIR] [--epochs 10] [--seed 1] [--threads 2] [--bf16]

DIR has the binary files of CIFAR-10. --bf16 computes under autocast; the published program computes in half precision on a GPU.

- Batches of 1,024, without the last short one. SGD with Nesterov momentum 0.85 and rate 11.5 / (1 + 1 / (1 - 0.85)) for the mean loss,
  64 times as much for the biases of the norms. Rate times weight decay is 0.0153 / (1 + 1 / (1 - 0.85)).
- The rate rises from 0.2 to 1 of its peak in the first 23 % of the steps and falls to 0.07 in a straight line. Label smoothing 0.2.
- Reflected crops of 2 pixels. Each image is mirrored or not at random in the first epoch, and the other way round in each next epoch.
- The first convolution whitens 2x2 patches of 5,000 images. Its weights are fixed, and its bias is trained for three epochs.
- Lookahead: every five steps the averages e = d e + (1 - d) w with d = 0.95^5 (t / T)^3 replace all parameters and statistics w.
- Prints the scores of the images (plain), of the images and their mirror images (mirrored), and at the end the published score, half of
  which comes from two views that are shifted by a pixel (shifted).
"""
import json
import pathlib
import time

import torch
import torch.nn.functional as F
from torch import nn

from catalogue_networks import Airbench94
from cifar_resnet20 import read
from training import arguments, moments, normalize

BATCH, MOMENTUM = 1024, 0.85
SCALE = 1 + 1 / (1 - MOMENTUM)  # the published rate and decay are divided by this
RATE, DECAY, BIASES = 11.5 / SCALE, 0.0153 / SCALE, 64
PEAK, FIRST, LAST = 0.23, 0.2, 0.07
PAD, EVERY, WHITENED, EPS = 2, 5, 5000, 5e-4


def start(net, images):
    """Sets the filters that whiten the patches of normalised images. Each other 3x3 filter copies an input channel, while there are any."""
    patches = F.unfold(images, 2).transpose(1, 2).reshape(-1, 12).double()
    values, vectors = torch.linalg.eigh(patches.T @ patches / len(patches))
    filters = (vectors / (values + EPS).sqrt()).T.flip(0).float().view(12, 3, 2, 2)
    with torch.no_grad():
        net.whiten.weight.copy_(torch.cat([filters, -filters]))
    net.whiten.weight.requires_grad = False
    for module in net.modules():
        if isinstance(module, nn.Conv2d) and module is not net.whiten:
            nn.init.dirac_(module.weight[: module.in_channels].data)
        if isinstance(module, nn.BatchNorm2d):
            module.momentum = 0.4


def crops(padded, generator):
    """Returns a random window of each padded image."""
    n, span = len(padded), torch.arange(32)
    top, left = (torch.randint(2 * PAD + 1, (n, 1), generator=generator) for _ in range(2))
    rows, cols = top + span, left + span
    return padded[torch.arange(n)[:, None, None], :, rows[:, :, None], cols[:, None, :]].permute(0, 3, 1, 2)


def factor(step, total):
    """Returns the factor on the rate at a step."""
    peak = PEAK * total
    return FIRST + (1 - FIRST) * step / peak if step < peak else 1 + (LAST - 1) * (step - peak) / (total - peak)


def scores(net, images, labels, shifted, cast):
    """Returns top-1 for each kind of views. `shifted` adds the published one, which takes three times as long."""
    net.eval()
    right = {}
    with torch.no_grad(), cast():
        for x, y in zip(images.split(500), labels.split(500)):
            logits = {"plain": net(x)}
            logits["mirrored"] = (logits["plain"] + net(x.flip(3))) / 2
            if shifted:
                big = F.pad(x, (1, 1, 1, 1), "reflect")
                views = [view for part in (big[:, :, :32, :32], big[:, :, 2:, 2:]) for view in (part, part.flip(3))]
                logits["shifted"] = logits["mirrored"] / 2 + sum(net(view) for view in views) / 8
            for name, given in logits.items():
                right[name] = right.get(name, 0) + (given.argmax(1) == y).sum().item()
    return {name: count / len(labels) for name, count in right.items()}


def main():
    parser = arguments("airbench94 on CIFAR-10 in PyTorch, as published", 10, "cifar-10-batches-bin")
    parser.add_argument("--bf16", action="store_true", help="compute under autocast")
    a = parser.parse_args()
    cast = lambda: torch.autocast("cpu", torch.bfloat16, enabled=a.bf16)
    torch.set_num_threads(a.threads)
    torch.manual_seed(a.seed)
    generator = torch.Generator().manual_seed(a.seed)
    folder = pathlib.Path(a.data)
    images, labels = read([folder / f"data_batch_{i}.bin" for i in range(1, 6)])
    test_images, test_labels = read([folder / "test_batch.bin"])
    mean, std = moments(images)
    images, test_images = normalize(images, mean, std), normalize(test_images, mean, std)
    net = Airbench94(10).to(memory_format=torch.channels_last)
    start(net, images[:WHITENED])
    biases = [p for name, p in net.named_parameters() if "norm" in name and p.requires_grad]
    known = {id(p) for p in biases}
    others = [p for p in net.parameters() if p.requires_grad and id(p) not in known]
    groups = [
        {"params": biases, "rate": RATE * BIASES, "weight_decay": DECAY / (RATE * BIASES)},
        {"params": others, "rate": RATE, "weight_decay": DECAY / RATE},
    ]
    optimizer = torch.optim.SGD(groups, lr=RATE, momentum=MOMENTUM, nesterov=True)
    average = [value.clone() for value in net.state_dict().values()]

    def look_ahead(decay):
        with torch.no_grad():
            for kept, value in zip(average, net.state_dict().values()):
                if value.is_floating_point():
                    kept.lerp_(value, 1 - decay)
                    value.copy_(kept)

    mirrored = torch.rand(len(images), generator=generator) < 0.5
    padded = F.pad(images, (PAD,) * 4, "reflect")
    steps = len(images) // BATCH
    total, step = a.epochs * steps, 0
    print(json.dumps({"torch": torch.__version__, "threads": torch.get_num_threads(), "seed": a.seed}), flush=True)
    for epoch in range(1, a.epochs + 1):
        net.train()
        net.whiten.bias.requires_grad = epoch <= 3
        begun, losses = time.perf_counter(), 0.0
        for ids in torch.randperm(len(images), generator=generator)[: steps * BATCH].split(BATCH):
            if step == a.max_steps:
                break
            for group in optimizer.param_groups:
                group["lr"] = group["rate"] * factor(step, total)
            x = crops(padded[ids], generator)
            turned = mirrored[ids] ^ (epoch % 2 == 0)
            x = torch.where(turned[:, None, None, None], x.flip(3), x).contiguous(memory_format=torch.channels_last)
            with cast():
                loss = F.cross_entropy(net(x), labels[ids], label_smoothing=0.2)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step, losses = step + 1, losses + loss.item()
            if step % EVERY == 0:
                look_ahead(0.95**EVERY * (step / total) ** 3)
        if epoch == a.epochs:
            look_ahead(1.0)
        seconds = time.perf_counter() - begun
        line = {"epoch": epoch, "step": step, "train_loss": losses / steps, "seconds": seconds}
        line |= scores(net, test_images, test_labels, epoch == a.epochs, cast)
        print(json.dumps({k: round(v, 4) if isinstance(v, float) else v for k, v in line.items()}), flush=True)
        if step == a.max_steps:
            break


if __name__ == "__main__":
    main()
