"""Trains on CIFAR-10 to an accuracy in PyTorch, with the same recipe as `bench.py` uses for trireme: AMP bf16, all images, crops and flips on
the device. Reads a data set of `trireme data convert` with pixels or image files (docs/formats.md)."""
import io
import json
import pathlib
import struct
import time

import torch

from networks import NETWORKS

SIDE, PAD = 32, 4


def varint(data, at):
    value, shift = 0, 0
    while True:
        value |= (data[at] & 127) << shift
        at, shift = at + 1, shift + 7
        if data[at - 1] < 128:
            return value, at


def fields(data):
    """Returns numbers and contents of a protobuf message that contains varints and messages."""
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        length, at = varint(data, at)
        if key & 7 == 0:
            yield key >> 3, length
        else:
            yield key >> 3, data[at:at + length]
            at += length


def example(payload):
    """Returns pixels and label of a tf.Example."""
    found = {}
    for _, entry in fields(next(fields(payload))[1]):
        (_, name), (_, feature) = fields(entry)
        kind, values = next(fields(feature))
        # integers are packed
        found[bytes(name)] = next(fields(values))[1] if kind == 1 else varint(next(fields(values))[1], 0)[0]
    return found[b"image/encoded"], found[b"image/class/label"]


def decoded(file):
    """Returns the pixels of an image file."""
    from PIL import Image  # imported here, because data sets of raw pixels do not need PIL

    return Image.open(io.BytesIO(file)).convert("RGB").tobytes()


def split(folder, name, device):
    """Returns (N, 3, 32, 32) bytes and N labels."""
    pixels, labels = bytearray(), []
    for shard in sorted(folder.glob(f"{name}-*.tfrecord")):
        data, at = memoryview(shard.read_bytes()), 0
        while at < len(data):
            (length,) = struct.unpack_from("<Q", data, at)
            image, label = example(data[at + 12:at + 12 + length])
            pixels += image if len(image) == 3 * SIDE * SIDE else decoded(image)
            labels.append(label)
            at += 16 + length
    images = torch.frombuffer(pixels, dtype=torch.uint8).view(-1, SIDE, SIDE, 3).permute(0, 3, 1, 2).contiguous()
    return images.to(device), torch.tensor(labels, device=device)


class Recipe:
    """recipes/cifar10-resnet20.toml with a shorter schedule."""

    def __init__(self, folder, device, epochs, milestones):
        torch.manual_seed(0)
        torch.backends.cudnn.benchmark = True
        self.device, self.epochs = device, epochs
        manifest = json.loads((folder / "dataset.json").read_text())
        self.mean, self.std = (torch.tensor(manifest[key], device=device).view(3, 1, 1) for key in ("mean", "std"))
        self.train, self.test = split(folder, "train", device), split(folder, "test", device)
        self.padded = torch.nn.functional.pad(self.train[0], [PAD] * 4)
        self.network = NETWORKS["resnet20"][0]().to(device, memory_format=torch.channels_last)
        self.optimizer = torch.optim.SGD(self.network.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
        self.schedule = torch.optim.lr_scheduler.MultiStepLR(self.optimizer, milestones)

    def score(self, images):
        x = ((images / 255 - self.mean) / self.std).to(memory_format=torch.channels_last)
        with torch.autocast(self.device, dtype=torch.bfloat16):
            return self.network(x)

    def crops(self, ids):
        n, window = len(ids), torch.arange(SIDE, device=self.device)
        top, left = torch.randint(2 * PAD + 1, (2, n, 1), device=self.device)
        rows, columns = top + window, left + window
        # a mirrored image has its columns in reverse order
        columns = torch.where(torch.rand(n, 1, device=self.device) < 0.5, columns.flip(1), columns)
        return self.padded[ids[:, None, None], :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)

    def epoch(self, most):
        self.network.train()
        for ids in torch.randperm(len(self.padded), device=self.device).split(128)[:most]:
            self.optimizer.zero_grad(set_to_none=True)
            torch.nn.functional.cross_entropy(self.score(self.crops(ids)), self.train[1][ids]).backward()
            self.optimizer.step()
        self.schedule.step()

    @torch.no_grad()
    def top1(self, most):
        self.network.eval()
        images, labels = (part.split(500)[:most] for part in self.test)
        right = sum((self.score(x).argmax(1) == y).sum() for x, y in zip(images, labels)).item()
        return right / sum(map(len, labels))


def accuracy(a):
    """Returns the seconds from `a.began` until the test images reach the required accuracy, or None if they never do, and the best score."""
    recipe = Recipe(pathlib.Path(a.data), a.device, a.epochs, a.milestones)
    best = 0
    for _ in range(a.epochs):
        recipe.epoch(a.max_steps)
        best = max(best, recipe.top1(a.max_steps))
        if best >= a.top1:
            return {"seconds": time.time() - a.began, "best": best}
    return {"seconds": None, "best": best}
