"""Writes agc.json: one SGD step of a convolution with bias and a linear layer, with timm's adaptive_clip_grad, which limits gradients per
unit.

    python agc.py [OUT.json]        (in an environment with PyTorch and timm; default: agc.json in this folder)

Weights and gradients are noise() of golden.py. One unit has weights with norm 0, and one has a gradient within its limit. The step is
repeated in plain Python.
"""
import math
import pathlib
import sys

import timm
import torch
from golden import close, digits, noise, noise_plain, write
from timm.utils.agc import adaptive_clip_grad

SHAPES = {"conv1.weight": (5, 3, 3, 3), "conv1.bias": (5,), "fc.weight": (4, 80), "fc.bias": (4,)}
LR, PARTS = 0.5, [0.01, 0.3, 5.0]


def spec(number, scale):
    return {"k": 40507 * (number + 1), "scale": scale, "shift": 0.0}


def start():
    """Returns weights and gradients. The weights of the convolution's second output are 0. The gradients of the linear layer's third
    output are small."""
    w = {name: noise(shape, **spec(i, 0.5)).double() for i, (name, shape) in enumerate(SHAPES.items())}
    g = {name: noise(shape, **spec(i + 10, 1.0)).double() for i, (name, shape) in enumerate(SHAPES.items())}
    w["conv1.weight"][1] = 0.0
    g["fc.weight"][2] *= 2.0**-10
    return w, g


def by_hand(part):
    w, g = start()
    for name, shape in SHAPES.items():
        rows = shape[0] if len(shape) > 1 else 1
        for p, q in zip(w[name].reshape(rows, -1), g[name].reshape(rows, -1)):
            norm = lambda v: math.sqrt(sum(x * x for x in v.tolist()))
            most, gradient = part * max(norm(p), 1e-3), norm(q)
            q *= most / max(gradient, 1e-6) if gradient >= most else 1.0
        w[name] -= LR * g[name]
    return [x for v in w.values() for x in v.flatten().tolist()]


def run(part):
    w, g = start()
    w = {name: torch.nn.Parameter(v) for name, v in w.items()}
    for name, p in w.items():
        p.grad = g[name]
    adaptive_clip_grad(w.values(), clip_factor=part)
    torch.optim.SGD(w.values(), lr=LR).step()
    after = [x for v in w.values() for x in v.detach().flatten().tolist()]
    close(after, by_hand(part), 1e-12, 1e-13, f"part {part}")
    return {"part": part, "params_after": digits(after)}


def main():
    out = sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent / "agc.json"
    for i, shape in enumerate(SHAPES.values()):
        close(noise(shape, **spec(i, 0.5)).double().flatten().tolist(), noise_plain(math.prod(shape), **spec(i, 0.5)), 1e-6, 1e-7, "noise")
    head = {"torch": torch.__version__, "timm": timm.__version__, "lr": LR}
    head |= {"start": [spec(i, 0.5) for i in range(4)], "gradients": [spec(i + 10, 1.0) for i in range(4)]}
    write(out, head, "runs", [run(part) for part in PARTS])


if __name__ == "__main__":
    main()
