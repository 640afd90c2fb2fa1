"""Writes whiten.json: filters that whiten the 2x2 patches of two small images, from PyTorch's unfold and symmetric eigenvectors.

    python whiten.py [OUT.json]        (in an environment with PyTorch; default: whiten.json in this folder)

The images are noise() of golden.py in float32. The filters are sorted by descending eigenvalue. The largest component of each is
positive. Their negatives follow. The second moments are repeated in plain Python.
"""
import pathlib
import sys

import torch
from golden import close, digits, noise, write

SHAPE, KERNEL, EPS = (2, 3, 7, 6), (2, 2), 5e-4
IMAGES = {"k": 40507, "scale": 0.5, "shift": 0.1}


def by_hand(images):
    n, channels, height, width = SHAPE
    kh, kw = KERNEL
    patches = [
        [float(images[i, c, top + y, left + x]) for c in range(channels) for y in range(kh) for x in range(kw)]
        for i in range(n)
        for top in range(height - kh + 1)
        for left in range(width - kw + 1)
    ]
    size = len(patches[0])
    return [sum(p[i] * p[j] for p in patches) / len(patches) for i in range(size) for j in range(size)]


def main():
    out = sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent / "whiten.json"
    images = noise(SHAPE, **IMAGES)
    patches = torch.nn.functional.unfold(images.double(), KERNEL).transpose(1, 2).reshape(-1, SHAPE[1] * KERNEL[0] * KERNEL[1])
    moments = patches.T @ patches / len(patches)
    close(moments.flatten().tolist(), by_hand(images), 1e-12, 1e-13, "moments")
    values, vectors = torch.linalg.eigh(moments)
    values, vectors = values.flip(0), vectors.T.flip(0)
    assert (values[:-1] / values[1:]).min() > 1.02, "eigenvalues that are almost equal have no vectors of their own"
    signs = vectors.gather(1, vectors.abs().argmax(1, keepdim=True)).sign()
    filters = vectors * signs / (values + EPS).sqrt()[:, None]
    case = {"filters": digits(torch.cat([filters, -filters]))}
    write(out, {"torch": torch.__version__, "shape": SHAPE, "kernel": KERNEL, "images": IMAGES}, "cases", [case])


if __name__ == "__main__":
    main()
