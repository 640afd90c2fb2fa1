"""Writes optim.json: ten steps of torch.optim.SGD on seven numbers, the learning rate another at each step.

    python optim.py [OUT.json]      (default: optim.json beside this file)

Start and gradients are fill()s of golden.py; step t's gradient does not depend on the parameters. Numbers are float64's; each run is checked
against the update rule written out below, and `float32_error` is the largest distance of PyTorch's float32 run from it.
"""
import pathlib
import sys

import torch

from golden import FORMULA, close, digits, example, fill, fill_plain, write

N, STEPS = 7, 10
START = {"k": 40507, "scale": 1.0, "shift": 0.0}
GRADIENTS = [{"k": 27211 * (t + 2), "scale": 0.5, "shift": 0.05} for t in range(STEPS)]
LRS = [0.02, 0.06, 0.1, 0.1, 0.08, 0.05, 0.01, 0.01, 0.002, 0.0]
RUNS = [
    ("plain", {"momentum": 0.0, "nesterov": False, "weight_decay": 0.0}),
    ("decay", {"momentum": 0.0, "nesterov": False, "weight_decay": 0.01}),
    ("momentum", {"momentum": 0.9, "nesterov": False, "weight_decay": 0.01}),
    ("nesterov", {"momentum": 0.9, "nesterov": True, "weight_decay": 0.01}),
    ("nesterov_without_decay", {"momentum": 0.9, "nesterov": True, "weight_decay": 0.0}),
]


def by_torch(options, dtype):
    """The parameters after each step, and the momentum buffer after the last (None without momentum)."""
    w = torch.nn.Parameter(fill((N,), **START).to(dtype))
    opt = torch.optim.SGD([w], lr=1.0, **options)
    steps = []
    for lr, g in zip(LRS, GRADIENTS):
        opt.param_groups[0]["lr"] = lr
        w.grad = fill((N,), **g).to(dtype)
        opt.step()
        steps.append(w.detach().clone())
    return steps, opt.state[w].get("momentum_buffer")


def by_hand(options):
    """g += wd w; b = g at first, then m b + g; the step is lr (g + m b) with Nesterov, lr b without: lr stays outside the buffer."""
    w, b, steps = fill((N,), **START).double().tolist(), None, []
    m, wd = options["momentum"], options["weight_decay"]
    for lr, spec in zip(LRS, GRADIENTS):
        g = [a + wd * v for a, v in zip(fill((N,), **spec).double().tolist(), w)]
        b = g if b is None else [m * p + q for p, q in zip(b, g)]
        d = [q + m * p for p, q in zip(b, g)] if options["nesterov"] else b
        w = [v - lr * s for v, s in zip(w, d)]
        steps.append(w)
    return steps, b


def main():
    out = sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent / "optim.json"
    entries = []
    for name, options in RUNS:
        (steps, buffer), (want, want_buffer) = by_torch(options, torch.float64), by_hand(options)
        for t in range(STEPS):
            close(steps[t].tolist(), want[t], 1e-13, 1e-14, f"{name}: step {t + 1}")
        single, _ = by_torch(options, torch.float32)
        error = max((a.double() - b).abs().max().item() for a, b in zip(single, steps))
        e = {"name": name} | options | {"params_after": [digits(s) for s in steps], "float32_error": float(f"{error:.2g}")}
        if buffer is not None:
            close(buffer.tolist(), want_buffer, 1e-13, 1e-14, f"{name}: momentum buffer")
            e["momentum_buffer_after"] = digits(buffer)
        entries.append(e)
    head = {"torch": torch.__version__, "fill": FORMULA, "fill_example": example(fill_plain)}
    head |= {"n": N, "start": START, "gradients": GRADIENTS, "lrs": LRS}
    write(out, head, "runs", entries)
    print(f"{len(entries)} runs, {pathlib.Path(out).stat().st_size} bytes: {out}")


if __name__ == "__main__":
    main()
