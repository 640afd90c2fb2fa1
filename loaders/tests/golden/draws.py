"""The loader's random draws (loaders::random) and the test's images, in Python.

Used by torchvision_ops.py and tensorflow_ops.py, which feed these draws to the other libraries.
"""

import math

import numpy as np

MASK = 0xFFFFFFFF
SEED = 1  # the seed of every pipeline in the tests


def philox(counter, key):
    """One block of Philox4x32-10."""
    x, k = list(counter), list(key)
    for _ in range(10):
        low, high = 0xD2511F53 * x[0], 0xCD9E8D57 * x[2]
        x = [(high >> 32) ^ x[1] ^ k[0], high & MASK, (low >> 32) ^ x[3] ^ k[1], low & MASK]
        k = [(k[0] + 0x9E3779B9) & MASK, (k[1] + 0xBB67AE85) & MASK]
    return x


class Draws:
    """The draws of the first op of a list for one sample in epoch 0."""

    def __init__(self, sample, seed=SEED):
        self.key, self.sample = [seed & MASK, seed >> 32], sample
        self.block, self.words = 0, []

    def word(self):
        if not self.words:
            self.words = philox([self.sample & MASK, self.sample >> 32, 0, self.block], self.key)
            self.block += 1
        return self.words.pop(0)

    def unit(self):
        return (self.word() >> 8) * 2.0**-24

    def range(self, low, high):
        low, high = float(np.float32(low)), float(np.float32(high))
        return float(np.float32(low + self.unit() * (high - low)))

    def below(self, n):
        return (self.word() * n) >> 32

    def normals(self):
        radius = math.sqrt(-2.0 * math.log(1.0 - self.unit()))
        angle = 2.0 * math.pi * self.unit()
        return [float(np.float32(radius * math.cos(angle))), float(np.float32(radius * math.sin(angle)))]


# Greys, full colours and ties: the corner cases of the formulas.
CORNERS = [0, 0, 0, 255, 255, 255, 128, 128, 128, 200, 200, 10, 10, 200, 200, 200, 10, 200, 0, 0, 7, 255, 0, 0]


def image(sample, height, width, channels):
    """Bytes (H, W, C): noise. The first 24 bytes are CORNERS."""
    draws = Draws(sample, seed=99)
    values = [draws.word() & 0xFF for _ in range(height * width * channels)]
    values[: len(CORNERS)] = CORNERS[: len(values)]
    return np.array(values, dtype=np.uint8).reshape(height, width, channels)


def line(op, sample, shape, values, digits=None):
    """Returns a case as a line of JSON with planar values (C, H, W)."""
    values = [float(v) for v in np.asarray(values, dtype=np.float64).ravel()]
    words = ", ".join(f"{v:.{digits}g}" if digits else f"{v:g}" for v in values)
    return f'{{"op": "{op}", "sample": {sample}, "shape": {list(shape)}, "values": [{words}]}}'


def write(path, head, cases):
    with open(path, "w", encoding="ascii") as file:
        file.write("{%s,\n\"cases\": [\n%s\n]}\n" % (head, ",\n".join(cases)))
    print(f"{path}: {len(cases)} cases")
