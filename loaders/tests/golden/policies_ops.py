"""Writes policies.json: torchvision's policies and byte operations with the loader's own draws.

The original classes run. Only torch's generators are replaced by the numbers that loaders::random draws. `bytes` are the planes of the
result in hex.

    venv/bin/pip install torch==2.15.0 torchvision==0.29.0 && cd loaders/tests/golden && python policies_ops.py
"""

import contextlib
import math
from unittest.mock import patch

import torch
import torchvision
from torchvision.transforms import AutoAugmentPolicy, v2

from draws import Draws, image, write

SHAPE = (16, 20, 3)
GREY = (16, 20, 1)
BLURS = [("gaussian_blur(5)", 5), ("gaussian_blur(3, 0.7)", 3, 0.7), ("gaussian_blur(9, 1.5, 4)", 9, (1.5, 4))]


class Uniform:
    """Replaces `torch.empty(1)`: `uniform_` uses the next draw."""

    def __init__(self, draws):
        self.draws = draws

    def uniform_(self, low, high):
        return torch.tensor([self.draws.range(float(low), float(high))], dtype=torch.float64)


@contextlib.contextmanager
def given(draws):
    """Lets torchvision draw from `draws`."""
    real = torch.empty

    def empty(*size, **others):
        return Uniform(draws) if size == (1,) and not others else real(*size, **others)

    def randint(*bounds, low=0, high=None, size=None):
        bounds = list(bounds)
        if bounds and isinstance(bounds[-1], tuple):
            size = bounds.pop()
        if len(bounds) == 2:
            low = bounds.pop(0)
        high = bounds.pop() if bounds else high
        return torch.full(size, low + draws.below(high - low))

    rand = lambda *_: torch.tensor(draws.unit())
    with patch.multiple(torch, rand=rand, randint=randint, empty=empty):
        yield


def gamma(alpha, draws):
    """The method of Marsaglia and Tsang, with the draws of loaders::transform::dirichlet."""
    if alpha < 1.0:
        return gamma(alpha + 1.0, draws) * (1.0 - draws.unit()) ** (1.0 / alpha)
    d = alpha - 1.0 / 3.0
    c = 1.0 / math.sqrt(9.0 * d)
    while True:
        x, u = draws.normals()[0], 1.0 - draws.unit()
        v = (1.0 + c * x) * (1.0 + c * x) * (1.0 + c * x)
        if v > 0.0 and math.log(u) < 0.5 * x * x + d - d * v + d * math.log(v):
            return d * v


def augmix(sample, *arguments, **others):
    """AugMix with the draws of its distribution replaced, too."""
    draws = Draws(sample)

    def dirichlet(parameters):
        gammas = [gamma(float(parameters[0, 0]), draws) for _ in parameters[0]]
        return torch.tensor([[share / sum(gammas) for share in gammas]], dtype=torch.float32)

    transform = v2.AugMix(*arguments, **others)
    transform._sample_dirichlet = dirichlet
    return transform, draws


def mixed():
    for sample in range(10):
        yield "augmix", sample, *augmix(sample)
        yield "augmix(7, 2, 2, 0.5, nearest)", sample, *augmix(sample, 7, 2, 2, 0.5, interpolation="nearest")
    for sample in range(4):
        yield "augmix(3, partial)", sample, *augmix(sample, 3, all_ops=False)


def case(op, transform, sample, shape=SHAPE, draws=None):
    tensor = torch.from_numpy(image(sample, *shape)).permute(2, 0, 1).contiguous()
    with given(draws or Draws(sample)):
        out = transform(tensor)
    assert out.shape == tensor.shape and out.dtype == torch.uint8
    data = out.contiguous().numpy().tobytes().hex()
    return f'{{"op": "{op}", "sample": {sample}, "shape": {list(shape)}, "bytes": "{data}"}}'


def probable():
    """Operations with a probability, and operations that always run."""
    yield "invert(0.5)", v2.RandomInvert()
    yield "autocontrast(1)", v2.RandomAutocontrast(1)
    yield "equalize(1)", v2.RandomEqualize(1)
    yield "posterize(3, 1)", v2.RandomPosterize(3, 1)
    yield "solarize(100.5, 0.5)", v2.RandomSolarize(100.5)
    yield "sharpness(1.7, 1)", v2.RandomAdjustSharpness(1.7, 1)
    yield "sharpness(0, 1)", v2.RandomAdjustSharpness(0, 1)
    yield "grayscale(0.5)", v2.RandomGrayscale(0.5)


def moving():
    for name in ("nearest", "bilinear"):
        yield f"rotation(30, {name})", v2.RandomRotation(30, interpolation=name)
        yield f"rotation(90, 200, {name})", v2.RandomRotation((90, 200), interpolation=name)
        arguments = dict(translate=(0.2, 0.1), scale=(0.7, 1.4), shear=(-9, 9, -5, 5), interpolation=name)
        yield f"affine(20, 0.2, 0.1, 0.7, 1.4, 9, 5, {name})", v2.RandomAffine(20, **arguments)
        yield f"perspective(0.6, 0.9, {name})", v2.RandomPerspective(0.6, 0.9, interpolation=name)


def policies():
    yield "rand_augment", v2.RandAugment(), 24
    yield "rand_augment(3, 14)", v2.RandAugment(3, 14), 12
    yield "rand_augment(2, 5, 11, bilinear)", v2.RandAugment(2, 5, 11, interpolation="bilinear"), 8
    yield "trivial_augment", v2.TrivialAugmentWide(), 24
    yield "trivial_augment(7, bilinear)", v2.TrivialAugmentWide(7, interpolation="bilinear"), 6
    for policy in AutoAugmentPolicy:
        yield f"auto_augment({policy.value})", v2.AutoAugment(policy), 14


def main():
    torch.set_num_threads(1)
    cases = [case(op, transform, sample) for op, transform in probable() for sample in (0, 1)]
    cases += [case(op, transform, 2, GREY) for op, transform in probable()]
    cases += [case(op, transform, sample) for op, transform in moving() for sample in (3, 4, 5)]
    cases += [case(op, v2.GaussianBlur(*arguments), 6) for op, *arguments in BLURS]
    cases += [case(op, transform, sample) for op, transform, count in policies() for sample in range(count)]
    cases += [case("rand_augment(4, 20)", v2.RandAugment(4, 20), sample, GREY) for sample in range(6)]
    cases += [case(op, transform, sample, SHAPE, draws) for op, sample, transform, draws in mixed()]
    write("policies.json", f'"torch": "{torch.__version__}", "torchvision": "{torchvision.__version__}"', cases)


if __name__ == "__main__":
    main()
