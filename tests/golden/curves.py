"""Records reference loss curves in PyTorch with torchvision's transforms: python curves.py CASE --data DIR [--seed 1] [--threads 2]

CASE                epochs  network, data and recipe
wrn16_2             5       WRN-16-2, CIFAR-10: batch 128, SGD 0.9 Nesterov, decay 5e-4; pad_crop(4), flip
resnet20-mix        3       ResNet-20, CIFAR-10: batch 128, SGD 0.9, decay 1e-4; pad_crop(4), flip, RandAugment(2, 9), mixup 0.8
resnet18-photos     3       ResNet-18, folders of photos: batch 64, SGD 0.9 Nesterov, decay 1e-4 but for norms; RandomResizedCrop(112, (0.5, 1)),
                            flip, RandAugment(2, 9), mixup 0.2; scored on Resize(128), CenterCrop(112)

All cases: rate 0.1 (photos 0.05) with cosine decay to 0 over all steps, He normal (fan out) convolutions, normalised images. DIR has the
binary batches of CIFAR-10, or train/CLASS/*.jpg and val/CLASS/*.jpg. curves/CASE.toml is the same recipe for trireme. Prints one JSON line
per epoch.
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

from catalogue_networks import WideResNet
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


CASES = {
    "wrn16_2": dict(net=lambda: WideResNet(16, 2, 10), data=Cifar, epochs=5, batch=128, lr=0.1, nesterov=True, decay=5e-4),
    "resnet20-mix": dict(net=ResNet20, data=Cifar, epochs=3, batch=128, lr=0.1, decay=1e-4, policy=(2, 9), mixup=0.8),
    "resnet18-photos": dict(net=resnet18, data=Photos, epochs=3, batch=64, lr=0.05, nesterov=True, decay=1e-4, policy=(2, 9), mixup=0.2, norms=0.0),
}  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("case", choices=CASES)
    parser.add_argument("--data", required=True, type=pathlib.Path)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    a = parser.parse_args()
    case = CASES[a.case]
    torch.set_num_threads(a.threads)
    torch.manual_seed(a.seed)
    generator, draws = torch.Generator().manual_seed(a.seed), np.random.default_rng(a.seed)
    data = case["data"](a.data, v2.RandAugment(*case["policy"]) if "policy" in case else None)
    net = case["net"]().to(memory_format=torch.channels_last)
    for m in net.modules():
        if isinstance(m, nn.Conv2d):
            nn.init.kaiming_normal_(m.weight, mode="fan_out", nonlinearity="relu")
    norms = {id(p) for m in net.modules() if isinstance(m, nn.BatchNorm2d) for p in m.parameters()}
    groups = [
        {"params": [p for p in net.parameters() if id(p) in norms], "weight_decay": case.get("norms", case["decay"])},
        {"params": [p for p in net.parameters() if id(p) not in norms], "weight_decay": case["decay"]},
    ]
    optimizer = torch.optim.SGD(groups, lr=case["lr"], momentum=0.9, nesterov=case.get("nesterov", False))
    labels, batch = data.labels, case["batch"]
    total, step = case["epochs"] * math.ceil(len(labels) / batch), 0
    print(json.dumps({"torch": torch.__version__, "torchvision": torchvision.__version__, "case": a.case, "seed": a.seed}), flush=True)
    for epoch in range(1, case["epochs"] + 1):
        net.train()
        start, losses, seen = time.perf_counter(), 0.0, 0
        for ids in torch.randperm(len(labels), generator=generator).split(batch):
            for group in optimizer.param_groups:
                group["lr"] = case["lr"] * (1 + math.cos(math.pi * step / total)) / 2
            x, y = data.batch(ids, generator), F.one_hot(labels[ids], 10).float()
            if "mixup" in case:
                kept = float(draws.beta(case["mixup"], case["mixup"]))
                x, y = kept * x + (1 - kept) * x.flip(0), kept * y + (1 - kept) * y.flip(0)
            loss = F.cross_entropy(net(x.contiguous(memory_format=torch.channels_last)), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step, seen, losses = step + 1, seen + len(ids), losses + loss.item() * len(ids)
        seconds = time.perf_counter() - start
        top1, val_loss = data.scored(net)
        line = {"epoch": epoch, "train_loss": losses / seen, "top1": top1, "loss": val_loss, "seconds": seconds}
        print(json.dumps({k: round(v, 4) if isinstance(v, float) else v for k, v in line.items()}), flush=True)


if __name__ == "__main__":
    main()
