"""Writes bands.json: torchvision's v2 functions on float tensors of five bands, made of float32 and of uint16 images.

    venv/bin/pip install torch==2.15.0 torchvision==0.29.2 && cd loaders/tests/golden && python bands_ops.py
"""

import json

import numpy as np
import torch
from torchvision.transforms import InterpolationMode
from torchvision.transforms.v2 import functional as F

from draws import Draws

HEIGHT, WIDTH, BANDS = 9, 7, 5


def image(sample, dtype):
    """Stored values (H, W, C): any uint16, or floats from -500 to 3500."""
    draws = Draws(sample, seed=99)
    count = HEIGHT * WIDTH * BANDS
    if dtype == "uint16":
        values = np.array([draws.word() & 0xFFFF for _ in range(count)], np.float32)
    else:
        values = np.array([draws.range(-500, 3500) for _ in range(count)], np.float32)
    return torch.from_numpy(values.reshape(HEIGHT, WIDTH, BANDS)).permute(2, 0, 1).contiguous()


MODES = {"bilinear": InterpolationMode.BILINEAR, "bicubic": InterpolationMode.BICUBIC, "nearest": InterpolationMode.NEAREST}
NUMBERS = [1000, 2000, 3000.5, 4000, 5000, 10, 20, 30, 40.25, 50]


def resize(height, width, mode):
    suffix = ", bicubic" if mode == "bicubic" else ""
    return f"resize({height}x{width}{suffix})", lambda x: F.resize(x, [height, width], MODES[mode], antialias=True)


OPS = [
    resize(5, 4, "bilinear"),
    resize(14, 11, "bilinear"),
    resize(5, 4, "bicubic"),
    resize(14, 4, "bicubic"),
    ("rotation(30, 30, bilinear)", lambda x: F.rotate(x, 30.0, MODES["bilinear"], fill=0)),
    ("rotation(77, 77)", lambda x: F.rotate(x, 77.0, MODES["nearest"], fill=0)),
    ("gaussian_blur(3, 1.2)", lambda x: F.gaussian_blur(x, [3, 3], [1.2, 1.2])),
    ("normalize(%s)" % ", ".join(map(str, NUMBERS)), lambda x: F.normalize(x, NUMBERS[:5], NUMBERS[5:])),
]

cases = []
for index, (op, function) in enumerate(OPS):
    for dtype in ("uint16", "float32"):
        values = function(image(index, dtype)).flatten()
        cases.append({"op": op, "dtype": dtype, "sample": index, "values": [float(f"{v:.9g}") for v in values.tolist()]})
with open("bands.json", "w") as out:
    lines = ",\n".join(json.dumps(case) for case in cases)
    out.write('{"cases": [\n%s\n]}\n' % lines)
