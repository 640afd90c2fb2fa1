"""Training loop of the two reference runs (cifar_resnet20.py, fashion_lenet.py): data in memory, one JSON line per epoch."""
import argparse
import json
import math
import time

import torch
import torch.nn.functional as F


def arguments(about, epochs, data):
    p = argparse.ArgumentParser(description=about)
    p.add_argument("--data", default=data, help=f"folder of the data set's files (default: {data})")
    p.add_argument("--epochs", type=int, default=epochs, help="the schedule spans all of them")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--max-steps", type=int, help="stop training after this many steps, then evaluate; the schedule stays as it is")
    return p


def moments(images):
    """Returns mean and standard deviation of pixel / 255 per channel for uint8 NCHW images, in float64 from the 256 counts."""
    value = torch.arange(256, dtype=torch.float64) / 255
    share = [torch.bincount(images[:, c].flatten(), minlength=256).double() / images[:, c].numel() for c in range(images.shape[1])]
    mean = [(s * value).sum().item() for s in share]
    return mean, [((s * (value - m) ** 2).sum()).sqrt().item() for s, m in zip(share, mean)]


def normalize(images, mean, std):
    """Returns (pixel / 255 - mean) / std, stored channels last."""
    m, s = (torch.tensor(v, dtype=torch.float32).view(1, -1, 1, 1) for v in (mean, std))
    return ((images.float() / 255 - m) / s).contiguous(memory_format=torch.channels_last)


def pad_crop_flip(images, pad, generator):
    """Adds a black border of `pad` pixels, crops a random window of the original size and mirrors it with probability 1/2. uint8 in and
    out."""
    n, _, h, w = images.shape
    big = F.pad(images, (pad, pad, pad, pad))
    top, left = (torch.randint(2 * pad + 1, (n, 1), generator=generator) for _ in range(2))
    rows, cols = top + torch.arange(h), left + torch.arange(w)
    mirrored = torch.rand(n, generator=generator) < 0.5
    cols[mirrored] = cols[mirrored].flip(1)
    return big[torch.arange(n)[:, None, None], :, rows[:, :, None], cols[:, None, :]].permute(0, 3, 1, 2)


def evaluate(net, images, labels, mean, std, batch=500):
    net.eval()
    right, loss = 0, 0.0
    with torch.no_grad():
        for x, y in zip(images.split(batch), labels.split(batch)):
            logits = net(normalize(x, mean, std))
            right += (logits.argmax(1) == y).sum().item()
            loss += F.cross_entropy(logits.double(), y, reduction="sum").item()
    return right / len(labels), loss / len(labels)


def train(net, train_set, test_set, a, *, batch, lr, augment, momentum=0.9, weight_decay=1e-4):
    """Trains with SGD without Nesterov, decay on every parameter, lr (1 + cos(pi t / T)) / 2 at step t of T, a short last batch in each epoch.

    Prints one JSON line per epoch: mean training loss over its samples, test top-1 and loss, seconds of training and of evaluation.
    """
    (images, labels), (mean, std) = train_set, moments(train_set[0])
    net = net.to(memory_format=torch.channels_last)
    opt = torch.optim.SGD(net.parameters(), lr=lr, momentum=momentum, weight_decay=weight_decay)
    g = torch.Generator().manual_seed(a.seed)
    total, step = a.epochs * math.ceil(len(labels) / batch), 0
    print(json.dumps({"torch": torch.__version__, "threads": torch.get_num_threads(), "seed": a.seed, "mean": mean, "std": std}), flush=True)
    for epoch in range(1, a.epochs + 1):
        net.train()
        start, loss_sum, seen = time.perf_counter(), 0.0, 0
        for ids in torch.randperm(len(labels), generator=g).split(batch):
            if step == a.max_steps:
                break
            opt.param_groups[0]["lr"] = lr * (1 + math.cos(math.pi * step / total)) / 2
            loss = F.cross_entropy(net(normalize(augment(images[ids], g), mean, std)), labels[ids])
            opt.zero_grad()
            loss.backward()
            opt.step()
            step, seen, loss_sum = step + 1, seen + len(ids), loss_sum + loss.item() * len(ids)
        trained = time.perf_counter()
        top1, test_loss = evaluate(net, *test_set, mean, std)
        line = {"epoch": epoch, "step": step, "train_loss": loss_sum / max(seen, 1), "test_top1": top1, "test_loss": test_loss}
        line |= {"seconds": trained - start, "img_per_s": seen / (trained - start), "eval_seconds": time.perf_counter() - trained}
        print(json.dumps({k: round(v, 4) if isinstance(v, float) else v for k, v in line.items()}), flush=True)
        if step == a.max_steps:
            break


def check():
    """Checks the helpers against plain arithmetic: moments of a few pixels, and that a crop is a window of the padded picture, mirrored or
    not."""
    few = torch.tensor([0, 51, 102, 255], dtype=torch.uint8).view(1, 1, 2, 2)
    (mean,), (std,) = moments(few)
    assert abs(mean - 0.4) < 1e-12 and abs(std - math.sqrt((0.16 + 0.04 + 0.0 + 0.36) / 4)) < 1e-12
    g = torch.Generator().manual_seed(0)
    x = torch.arange(1, 31, dtype=torch.uint8).view(1, 2, 3, 5).expand(64, 2, 3, 5)
    big, mirrored = F.pad(x[0], (1, 1, 1, 1)), 0
    for crop in pad_crop_flip(x, 1, g):
        windows = [big[:, t : t + 3, q : q + 5] for t in range(3) for q in range(3)]
        straight, turned = (any(torch.equal(c, w) for w in windows) for c in (crop, crop.flip(2)))
        assert straight != turned
        mirrored += turned
    assert 10 < mirrored < 54


check()
