"""Records reference loss curves in PyTorch with torchvision's transforms.

    python curves.py CASE --data DIR [--seed 1] [--threads 2] [--bf16]

CASE                epochs  network, data and recipe
wrn16_2             5       WRN-16-2, CIFAR-10: batch 128, SGD 0.9 Nesterov, decay 5e-4; pad_crop(4), flip
resnet20-mix        3       ResNet-20, CIFAR-10: batch 128, SGD 0.9, decay 1e-4; pad_crop(4), flip, RandAugment(2, 9), mixup 0.8
resnet18-photos     3       ResNet-18, folders of photos: batch 64, SGD 0.9 Nesterov, decay 1e-4 but for norms; RandomResizedCrop(112, (0.5, 1)),
                            flip, RandAugment(2, 9), mixup 0.2; scored on Resize(128), CenterCrop(112)
vit_ti_4            5       ViT-Ti with 4x4 patches, CIFAR-10: batch 256, AdamW, decay 0.05 but for norms and biases, gradients clipped to norm 1;
                            pad_crop(4), flip, RandAugment(2, 9), mixup 0.2

ResNets: rate 0.1 (photos 0.05) with cosine decay to 0 over all steps, He normal (fan out) convolutions. ViT: rate 0.001 after a linear warm-up
in the first epoch, cosine decay, torchvision's initial weights, sines and cosines as position embedding. Images are normalised. --bf16
computes under autocast. DIR has the binary batches of CIFAR-10, or train/CLASS/*.jpg and val/CLASS/*.jpg. curves/CASE.toml is the same
recipe for trireme. Prints one JSON line per epoch.
"""
import argparse
import json
import math
import pathlib
import time

import numpy as np
import torch
import torch.nn.functional as F
import torchvision
from PIL import Image
from torch import nn
from torchvision.transforms import v2

from catalogue_networks import AveragedVit, WideResNet
from cifar_resnet20 import read
from networks import ResNet20
from training import evaluate, moments, normalize, pad_crop_flip


class Cifar:
    """Reads the binary batches into memory."""

    def __init__(self, folder, policy):
        self.train = read([folder / f"data_batch_{i}.bin" for i in range(1, 6)])
        self.test = read([folder / "test_batch.bin"])
        self.policy, self.labels = policy, self.train[1]
        self.mean, self.std = moments(self.train[0])

    def batch(self, ids, generator):
        x = pad_crop_flip(self.train[0][ids], 4, generator)
        if self.policy:
            x = torch.stack([self.policy(image) for image in x])
        return normalize(x, self.mean, self.std)

    def scored(self, net):
        return evaluate(net, *self.test, self.mean, self.std)


class Photos:
    """Reads photos from folders of JPEG files. Decodes them again in every epoch."""

    def __init__(self, folder, policy):
        classes = sorted(path.name for path in (folder / "train").iterdir())
        files = lambda split: [(path, i) for i, name in enumerate(classes) for path in sorted((folder / split / name).iterdir())]
        self.train, self.val = files("train"), files("val")
        self.labels = torch.tensor([label for _, label in self.train])
        self.mean, self.std = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
        self.augment = v2.Compose([v2.RandomResizedCrop(112, (0.5, 1.0), antialias=True), v2.RandomHorizontalFlip(), policy])
        self.center = v2.Compose([v2.Resize(128, antialias=True), v2.CenterCrop(112)])

    def image(self, path, transform):
        return torch.from_numpy(np.array(transform(Image.open(path).convert("RGB")))).permute(2, 0, 1)

    def batch(self, ids, _):
        return normalize(torch.stack([self.image(self.train[i][0], self.augment) for i in ids.tolist()]), self.mean, self.std)

    def scored(self, net):
        images = torch.stack([self.image(path, self.center) for path, _ in self.val])
        return evaluate(net, images, torch.tensor([label for _, label in self.val]), self.mean, self.std, batch=100)


def resnet18():
    net = torchvision.models.resnet18(num_classes=10)
    for name, p in net.named_parameters():
        if name.endswith("bn2.weight"):
            nn.init.zeros_(p)
    return net


def he_normal(net):
    for m in net.modules():
        if isinstance(m, nn.Conv2d):
            nn.init.kaiming_normal_(m.weight, mode="fan_out", nonlinearity="relu")
    return net


def vit_ti_4():
    """ViT-Ti with a fixed position embedding, computed as Big Vision's `posemb_sincos_2d`."""
    net, patches, width = AveragedVit(32, 4, 192, 3), 8, 192
    frequencies = 1 / 10_000 ** (torch.arange(width // 4) / (width // 4 - 1))
    y, x = (place.flatten()[:, None] * frequencies for place in torch.meshgrid(torch.arange(patches), torch.arange(patches), indexing="ij"))
    embedding = torch.cat([x.sin(), x.cos(), y.sin(), y.cos()], 1)
    net.encoder.pos_embedding = nn.Parameter(embedding[None], requires_grad=False)
    return net


def exempt(net, biases):
    """Returns the parameters of norms, and the biases if `biases` is set. They have a decay of their own."""
    norms = [p for m in net.modules() if isinstance(m, (nn.BatchNorm2d, nn.LayerNorm)) for p in m.parameters()]
    return norms + [p for name, p in net.named_parameters() if biases and name.endswith("bias")]


def rate_factor(step, warmup, total):
    """Returns the factor on the rate: a linear warm-up from 0, then cosine decay to 0."""
    return step / warmup if step < warmup else (1 + math.cos(math.pi * (step - warmup) / (total - warmup))) / 2


CASES = {
    "wrn16_2": dict(net=lambda: he_normal(WideResNet(16, 2, 10)), data=Cifar, epochs=5, batch=128, lr=0.1, nesterov=True, decay=5e-4),
    "resnet20-mix": dict(net=lambda: he_normal(ResNet20()), data=Cifar, epochs=3, batch=128, lr=0.1, decay=1e-4, policy=(2, 9), mixup=0.8),
    "resnet18-photos": dict(net=lambda: he_normal(resnet18()), data=Photos, epochs=3, batch=64, lr=0.05, nesterov=True, decay=1e-4, policy=(2, 9), mixup=0.2, exempt=0.0),
    "vit_ti_4": dict(net=vit_ti_4, data=Cifar, epochs=5, batch=256, lr=1e-3, adamw=True, decay=0.05, policy=(2, 9), mixup=0.2, exempt=0.0, biases=True, warmup=1, clip=1.0),
}  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("case", choices=CASES)
    parser.add_argument("--data", required=True, type=pathlib.Path)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--bf16", action="store_true")
    a = parser.parse_args()
    case = CASES[a.case]
    torch.set_num_threads(a.threads)
    torch.manual_seed(a.seed)
    generator, draws = torch.Generator().manual_seed(a.seed), np.random.default_rng(a.seed)
    data = case["data"](a.data, v2.RandAugment(*case["policy"]) if "policy" in case else None)
    net = case["net"]().to(memory_format=torch.channels_last)
    apart = {id(p) for p in exempt(net, case.get("biases", False))}
    trained = [p for p in net.parameters() if p.requires_grad]
    groups = [
        {"params": [p for p in trained if id(p) in apart], "weight_decay": case.get("exempt", case["decay"])},
        {"params": [p for p in trained if id(p) not in apart], "weight_decay": case["decay"]},
    ]
    if case.get("adamw"):
        optimizer = torch.optim.AdamW(groups, lr=case["lr"])
    else:
        optimizer = torch.optim.SGD(groups, lr=case["lr"], momentum=0.9, nesterov=case.get("nesterov", False))
    labels, batch = data.labels, case["batch"]
    steps, step = math.ceil(len(labels) / batch), 0
    warmup, total = case.get("warmup", 0) * steps, case["epochs"] * steps
    print(json.dumps({"torch": torch.__version__, "torchvision": torchvision.__version__, "case": a.case, "seed": a.seed}), flush=True)
    for epoch in range(1, case["epochs"] + 1):
        net.train()
        start, losses, seen = time.perf_counter(), 0.0, 0
        for ids in torch.randperm(len(labels), generator=generator).split(batch):
            for group in optimizer.param_groups:
                group["lr"] = case["lr"] * rate_factor(step, warmup, total)
            x, y = data.batch(ids, generator), F.one_hot(labels[ids], 10).float()
            if "mixup" in case:
                kept = float(draws.beta(case["mixup"], case["mixup"]))
                x, y = kept * x + (1 - kept) * x.flip(0), kept * y + (1 - kept) * y.flip(0)
            with torch.autocast("cpu", torch.bfloat16, enabled=a.bf16):
                scores = net(x.contiguous(memory_format=torch.channels_last))
            loss = F.cross_entropy(scores.float(), y)
            optimizer.zero_grad()
            loss.backward()
            if "clip" in case:
                nn.utils.clip_grad_norm_(trained, case["clip"])
            optimizer.step()
            step, seen, losses = step + 1, seen + len(ids), losses + loss.item() * len(ids)
        seconds = time.perf_counter() - start
        top1, val_loss = data.scored(net)
        line = {"epoch": epoch, "train_loss": losses / seen, "top1": top1, "loss": val_loss, "seconds": seconds}
        print(json.dumps({k: round(v, 4) if isinstance(v, float) else v for k, v in line.items()}), flush=True)


if __name__ == "__main__":
    main()
