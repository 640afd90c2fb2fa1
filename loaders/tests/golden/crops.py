"""Writes crops.json, pictures/* and pictures.json: the results of torchvision and PIL for trireme's random draws.

  python crops.py        needs torch, torchvision, pillow, numpy

crops.json: parts that torchvision's RandomResizedCrop picks when it is given the draws of (seed 1, sample id, epoch 0, op 0).
pictures.json: for each file in pictures/, what comes of it as RGB bytes (hex), by the op named.
"""
import io
import json
import types
from pathlib import Path

import numpy as np
import torch
import torchvision.transforms as T
from PIL import Image, ImageOps

HERE = Path(__file__).parent


def philox(counter, key):
    x, k = list(counter), list(key)
    for _ in range(10):
        a, b = 0xD2511F53 * x[0], 0xCD9E8D57 * x[2]
        x = [(b >> 32) ^ x[1] ^ k[0], b & 0xFFFFFFFF, (a >> 32) ^ x[3] ^ k[1], a & 0xFFFFFFFF]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return x


class Draws:
    """loaders::Draws with seed 1, epoch 0 and op 0."""

    def __init__(self, sample):
        self.words = (word for block in range(1 << 16) for word in philox([sample, 0, 0, block], [1, 0]))

    def uniform(self, low, high):
        unit = (next(self.words) >> 8) * 2.0**-24
        low, high = float(np.float32(low)), float(np.float32(high))
        return torch.tensor([low + unit * (high - low)], dtype=torch.float32)

    def randint(self, low, high, size):
        return torch.tensor([low + (next(self.words) * (high - low) >> 32)])


def give(draws):
    """Lets torchvision draw from `draws`."""
    mine = types.SimpleNamespace(**{name: getattr(torch, name) for name in ("log", "exp", "tensor", "Tensor")})
    mine.empty = lambda n: types.SimpleNamespace(uniform_=lambda low, high: draws.uniform(low, high))
    mine.randint = draws.randint
    T.transforms.torch = mine


def crops():
    rows = []
    sizes = [(375, 500), (500, 375), (333, 500), (64, 64), (7, 5), (1, 1), (1, 40), (1000, 10), (30, 2000), (3000, 4000)]
    for area in (0.08, 0.9):
        for height, width in sizes:
            for sample in range(40):
                give(Draws(sample))
                image = torch.zeros(1, 1, 1).expand(3, height, width)
                part = T.RandomResizedCrop.get_params(image, [area, 1.0], [3 / 4, 4 / 3])
                rows.append([area, height, width, sample, *part])
    return rows


def photo(height, width, seed):
    """Waves, an edge and some noise."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:height, :width]
    image = np.stack([128 + 90 * np.sin(a * x + b * y + c) for a, b, c in rng.uniform(0.02, 0.25, (3, 3))], -1)
    image[(x - width / 2) ** 2 + (y - height / 2) ** 2 < (min(height, width) / 3) ** 2] += 60
    return np.clip(image + rng.normal(0, 6, image.shape), 0, 255).astype(np.uint8)


def exif(orientation):
    tags = Image.Exif()
    tags[0x0112] = orientation
    return tags


def pictures():
    rgb = lambda h, w, seed: Image.fromarray(photo(h, w, seed))
    yield "420.jpg", rgb(75, 101, 1), dict(quality=90)
    yield "422.jpg", rgb(96, 80, 2), dict(quality=85, subsampling="4:2:2")
    yield "444.jpg", rgb(61, 90, 3), dict(quality=95, subsampling="4:4:4")
    yield "progressive.jpg", rgb(70, 93, 4), dict(quality=85, progressive=True)
    yield "grey.jpg", rgb(66, 88, 5).convert("L"), dict(quality=90)
    yield "cmyk.jpg", rgb(72, 81, 6).convert("CMYK"), dict(quality=90)
    yield "rotated.jpg", rgb(60, 85, 7), dict(quality=90, exif=exif(6))
    yield "large.jpg", rgb(260, 340, 8), dict(quality=90)
    yield "rgb.png", rgb(50, 67, 9), {}
    yield "alpha.png", rgb(41, 57, 10).convert("RGBA"), {}
    yield "grey.png", rgb(45, 58, 11).convert("L"), {}
    yield "palette.png", rgb(44, 52, 12).quantize(64), {}


def hexed(image):
    return np.asarray(image).tobytes().hex()


def filtered(image):
    """Other filters, and sizes that are not square."""
    bicubic, lanczos = T.InterpolationMode.BICUBIC, T.InterpolationMode.LANCZOS
    for op, sample, transform in [
        ("random_resized_crop(31, bicubic)", 4, T.RandomResizedCrop(31, interpolation=bicubic)),
        ("random_resized_crop(24x40, lanczos)", 5, T.RandomResizedCrop((24, 40), interpolation=lanczos)),
        ("random_resized_crop(90x70, bicubic)", 6, T.RandomResizedCrop((90, 70), interpolation=bicubic)),
        ("resize(33, lanczos) center_crop(20x30)", 0, T.Compose([T.Resize(33, lanczos), T.CenterCrop((20, 30))])),
        ("resize(20x45)", 0, T.Resize((20, 45))),
        ("resize(60x37, bicubic)", 0, T.Resize((60, 37), bicubic)),
    ]:
        give(Draws(sample))
        yield op, sample, hexed(transform(image))
        T.transforms.torch = torch


def main():
    (HERE / "pictures").mkdir(exist_ok=True)
    (HERE / "crops.json").write_text(json.dumps(crops()).replace("], [", "],\n["))
    rows = []
    for name, image, options in pictures():
        file = io.BytesIO()
        image.save(file, "JPEG" if name.endswith("jpg") else "PNG", **options)
        (HERE / "pictures" / name).write_bytes(file.getvalue())
        # Like torchvision's ImageFolder, with the EXIF orientation applied.
        image = ImageOps.exif_transpose(Image.open(file)).convert("RGB")
        for size, sample in [(16, 0), (16, 1), (31, 2), (50, 3)][: 4 if name == "420.jpg" else 3]:
            transform = T.RandomResizedCrop(size)
            give(Draws(sample))
            rows.append([name, f"random_resized_crop({size})", sample, hexed(transform(image))])
            T.transforms.torch = torch
        transform = T.Compose([T.Resize(33), T.CenterCrop(30)])
        rows.append([name, "resize(33) center_crop(30)", 0, hexed(transform(image))])
        rows += [[name, *row] for row in filtered(image) if name in ("large.jpg", "rgb.png", "rotated.jpg")]
    (HERE / "pictures.json").write_text(json.dumps(rows).replace("], [", "],\n["))


main()
