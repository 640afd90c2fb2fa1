"""Measures rounding errors of Winograd's filtering on data from training, relative to a direct convolution in float32.

    python winograd.py --data DIR [--steps 1 100 1000] [--images 4] [--threads 2]

Trains ResNet-20 on CIFAR-10 (batch 128, lr 0.1, SGD with momentum) and records inputs, weights and output gradients of some 3x3
convolutions in these steps. Prints a JSON line for each convolution and pass: errors of F(2x2), F(2x4) and F(4x4) against float64,
relative to those of the direct convolution, as norms and as maximum values. All sums are fused multiply-adds in the order of the
kernels: per grid position channel after channel, or for weight gradients tile after tile. The direct convolution sums in the order
blocks of 16 channels, taps, channels, or pixel after pixel.
"""
import argparse
import json
import pathlib

import torch
import torch.nn.functional as F

from cifar_resnet20 import ResNet20, nn, read
from training import moments, normalize, pad_crop_flip

LAYERS = ["layer1.0.conv1", "layer1.2.conv2", "layer2.1.conv1", "layer2.2.conv2", "layer3.1.conv1", "layer3.2.conv2"]
POINTS = {2: [0, 1, -1], 4: [0, 3 / 4, -3 / 4, 3 / 2, -3 / 2]}


def matrices(m):
    """Returns B^T, G and A^T of F(m, 3) with these points and infinity."""
    points = POINTS[m]
    b, g = [], []
    for i, p in enumerate(points):
        others = [q for j, q in enumerate(points) if j != i]
        polynomial, scale = [1.0], 1.0
        for q in others:
            polynomial = [a - q * c for a, c in zip([0.0] + polynomial, polynomial + [0.0])]
            scale *= p - q
        b.append(polynomial + [0.0])
        g.append([p**k / scale for k in range(3)])
    polynomial = [1.0]
    for q in points:
        polynomial = [a - q * c for a, c in zip([0.0] + polynomial, polynomial + [0.0])]
    a = [[p**k for p in points] + [float(k == m - 1)] for k in range(m)]
    return b + [polynomial], g + [[0.0, 0.0, 1.0]], a


def fma(sum, a, b):
    return (sum.double() + a.double() * b.double()).float()


def apply(matrix, x, dim):
    """Multiplies the matrix with the vectors along a dimension, in float32."""
    rows = []
    for row in matrix:
        sum = None
        for k, value in enumerate(row):
            if value != 0:
                factor = torch.tensor(value, dtype=torch.float32)
                sum = x.select(dim, k) * factor if sum is None else fma(sum, x.select(dim, k), factor)
        rows.append(sum)
    return torch.stack(rows, dim)


def winograd(x, w, high, wide):
    n, ci, height, width = x.shape
    rows, columns = matrices(high), matrices(wide)
    x = F.pad(x, (1, 1 + -width % wide, 1, 1 + -height % high))
    d = x.unfold(2, high + 2, high).unfold(3, wide + 2, wide)
    v = apply(columns[0], apply(rows[0], d, 4), 5)
    u = apply(columns[1], apply(rows[1], w, 2), 3)
    m = torch.zeros(n, w.shape[0], *v.shape[2:])
    for i in range(ci):
        m = fma(m, v[:, i, None], u[None, :, i, None, None])
    y = apply(columns[2], apply(rows[2], m, 4), 5)
    return y.permute(0, 1, 2, 4, 3, 5).reshape(n, w.shape[0], y.shape[2] * high, y.shape[3] * wide)[:, :, :height, :width]


def direct(x, w):
    n, ci, height, width = x.shape
    x = F.pad(x, (1, 1, 1, 1))
    y = torch.zeros(n, w.shape[0], height, width)
    for block in range(0, ci, 16):
        for r in range(3):
            for c in range(3):
                for i in range(block, min(ci, block + 16)):
                    y = fma(y, x[:, None, i, r : r + height, c : c + width], w[None, :, i, r, c, None, None])
    return y


def transposed(matrix):
    return [list(column) for column in zip(*matrix)]


def winograd_weights(x, dy, high, wide):
    height, width = x.shape[2:]
    rows, columns = matrices(high), matrices(wide)
    below, right = -height % high, -width % wide
    d = F.pad(x, (1, 1 + right, 1, 1 + below)).unfold(2, high + 2, high).unfold(3, wide + 2, wide)
    e = F.pad(dy, (0, right, 0, below)).unfold(2, high, high).unfold(3, wide, wide)
    v = apply(columns[0], apply(rows[0], d, 4), 5).permute(0, 2, 3, 1, 4, 5).flatten(0, 2)
    e = apply(transposed(columns[2]), apply(transposed(rows[2]), e, 4), 5).permute(0, 2, 3, 1, 4, 5).flatten(0, 2)
    u = torch.zeros(dy.shape[1], *v.shape[1:])
    for tile in range(len(v)):
        u = fma(u, e[tile, :, None], v[tile, None])
    return apply(transposed(columns[1]), apply(transposed(rows[1]), u, 2), 3)


def direct_weights(x, dy):
    n, _, height, width = x.shape
    windows = F.pad(x, (1, 1, 1, 1)).unfold(2, 3, 1).unfold(3, 3, 1)
    w = torch.zeros(dy.shape[1], x.shape[1], 3, 3)
    for i in range(n):
        for r in range(height):
            for c in range(width):
                w = fma(w, dy[i, :, r, c, None, None, None], windows[i, None, :, r, c])
    return w


def ratios(exact, direct, winograd):
    error = lambda y: torch.stack([(y.double() - exact).norm(), (y.double() - exact).abs().max()])
    unit = error(direct)
    line = {"direct": float(f"{(unit[0] / exact.norm()).item():.2e}")}
    for high, wide in [(2, 2), (2, 4), (4, 4)]:
        line[f"F({high}x{wide})"] = [round(v, 2) for v in (error(winograd(high, wide)) / unit).tolist()]
    return line


def passes(x, dy, w):
    """Returns the errors of each pass."""
    turned = w.transpose(0, 1).flip(2, 3).contiguous()
    for name, x_, w_ in [("forward", x, w), ("dx", dy, turned)]:
        exact = F.conv2d(x_.double(), w_.double(), padding=1)
        yield name, ratios(exact, direct(x_, w_), lambda high, wide: winograd(x_, w_, high, wide))
    exact = torch.nn.grad.conv2d_weight(x.double(), w.shape, dy.double(), padding=1)
    yield "dw", ratios(exact, direct_weights(x, dy), lambda high, wide: winograd_weights(x, dy, high, wide))


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--data", required=True)
    p.add_argument("--steps", type=int, nargs="+", default=[1, 100, 1000])
    p.add_argument("--images", type=int, default=4)
    p.add_argument("--threads", type=int, default=2)
    a = p.parse_args()
    torch.set_num_threads(a.threads)
    torch.manual_seed(1)
    images, labels = read([pathlib.Path(a.data) / f"data_batch_{i}.bin" for i in range(1, 6)])
    mean, std = moments(images)
    net = ResNet20().to(memory_format=torch.channels_last)
    for m in net.modules():
        if isinstance(m, nn.Conv2d):
            nn.init.kaiming_normal_(m.weight, mode="fan_out", nonlinearity="relu")
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    layers, taken = dict(net.named_modules()), {}
    for name in LAYERS:
        layers[name].register_forward_hook(lambda m, x, y, name=name: taken.update({(name, "x"): x[0].detach()}))
        layers[name].register_full_backward_hook(lambda m, dx, dy, name=name: taken.update({(name, "dy"): dy[0].detach()}))
    generator = torch.Generator().manual_seed(1)
    for step in range(1, max(a.steps) + 1):
        chosen = torch.randint(len(labels), (128,), generator=generator)
        x = normalize(pad_crop_flip(images[chosen], 4, generator), mean, std)
        loss = F.cross_entropy(net(x), labels[chosen])
        optimizer.zero_grad()
        loss.backward()
        for name in LAYERS if step in a.steps else []:
            x, dy = (taken[name, key][: a.images].contiguous() for key in ("x", "dy"))
            for of, line in passes(x, dy, layers[name].weight.detach().contiguous()):
                print(json.dumps({"step": step, "loss": round(loss.item(), 4), "layer": name, "pass": of} | line), flush=True)
        optimizer.step()


if __name__ == "__main__":
    main()
