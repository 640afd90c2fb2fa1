"""Writes torchvision.json: torchvision's ColorJitter and RandomErasing with the loader's own draws.

The original classes run. Only torch's generators are replaced by the numbers that loaders::random draws. Lighting has no class in
torchvision. Its formula is evaluated in float64.

    venv/bin/pip install torch==2.15.0 torchvision==0.29.0 && cd loaders/tests/golden && python torchvision_ops.py
"""

from unittest.mock import patch

import numpy as np
import torch
import torchvision
from torchvision.transforms import RandomErasing, v2

from draws import Draws, image, line, write

SHAPE = (4, 5, 3)


class Uniform:
    """Replaces `torch.empty(1)`: `uniform_` uses the next draw."""

    def __init__(self, draw):
        self.draw = draw

    def uniform_(self, low, high):
        return torch.tensor([self.draw(float(low), float(high))], dtype=torch.float64)


def tensor(sample, shape=SHAPE):
    return torch.from_numpy(image(sample, *shape)).permute(2, 0, 1).contiguous()


def color_jitter(sample, arguments):
    draws, order = Draws(sample), [0, 1, 2, 3]
    for last in (3, 2, 1):
        other = draws.below(last + 1)
        order[last], order[other] = order[other], order[last]
    # torchvision draws no number for an argument of 0; the loader always draws four.
    ranges = [(max(0.0, 1.0 - x), 1.0 + x) for x in arguments[:3]] + [(-arguments[3], arguments[3])]
    drawn = [draws.range(low, high) for low, high in ranges]
    drawn = [value for value, argument in zip(drawn, arguments) if argument > 0]
    empty = lambda *_, **__: Uniform(lambda low, high: drawn.pop(0))
    with patch.object(torch, "randperm", lambda n: torch.tensor(order)), patch.object(torch, "empty", empty):
        params = v2.ColorJitter(*arguments).make_params([])
    out = tensor(sample)
    for index in params["fn_idx"]:
        name = ("brightness", "contrast", "saturation", "hue")[int(index)]
        if params[name + "_factor"] is not None:
            out = getattr(v2.functional, "adjust_" + name)(out, params[name + "_factor"])
    assert not drawn
    name = "color_jitter(%s)" % ", ".join(f"{x:g}" for x in arguments)
    return line(name, sample, SHAPE, out)


def lighting(sample, std):
    draws = Draws(sample)
    alpha = np.array((draws.normals() + draws.normals())[:3]) * std
    vectors = [[-0.5675, 0.7192, 0.4009], [-0.5808, -0.0045, -0.8140], [-0.5836, -0.6948, 0.4203]]
    shift = 255.0 * np.array(vectors) @ (alpha * np.array([0.2175, 0.0188, 0.0045]))
    return line(f"lighting({std:g})", sample, SHAPE, tensor(sample).double().numpy() + shift[:, None, None], 9)


def random_erasing(sample, shape, p):
    draws = Draws(sample)
    rand = lambda *_: torch.tensor([draws.unit()])
    empty = lambda *_, **__: Uniform(lambda low, high: low + draws.unit() * (high - low))
    randint = lambda low, high, size: torch.tensor([low + draws.below(high - low)])
    with patch.multiple(torch, rand=rand, empty=empty, randint=randint):
        out = RandomErasing(p=p)(tensor(sample, shape).float())
    return line(f"random_erasing({p:g})", sample, shape, out)


def main():
    torch.set_num_threads(1)
    cases = []
    for arguments in [(0.4, 0.4, 0.4, 0.1), (1, 1.5, 1, 0.5), (0, 0, 0, 0.5), (0, 1, 0, 0), (0, 0, 3, 0), (2, 0, 0, 0)]:
        cases += [color_jitter(sample, arguments) for sample in range(6)]
    cases += [lighting(sample, 0.1) for sample in range(3)]
    cases += [random_erasing(sample, (13, 9, 1), 0.8) for sample in range(10)]
    # An image with only two rows, so that most attempts fail.
    cases += [random_erasing(sample, (2, 30, 1), 1) for sample in range(20, 30)]
    write("torchvision.json", f'"torch": "{torch.__version__}", "torchvision": "{torchvision.__version__}"', cases)


main()
