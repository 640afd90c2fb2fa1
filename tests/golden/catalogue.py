"""Writes catalogue.json: results of torchvision, timm or plain PyTorch for each network of the catalogue, with all inputs computed by
formulas.

    python catalogue.py [NETWORK...] [--threads N]        other networks keep their entries
    python catalogue.py --names NETWORK                   parameters and running statistics with their formulas
    needs torchvision==0.29.2 and timm==1.0.31

Two images are noise(k = 999, scale = 1.5), label i is 7 i mod 10. A tensor is noise that depends on its name (`noise` in golden.py). k
is the 32-bit FNV-1a hash of the name mod 1,000,003. Scale and shift depend on its field:

    weight of two dimensions or more     scale sqrt(6 / fan in)          layer_scale     scale 0.1, shift 0.2
    (`weight` or `in_proj_weight`)                                       others          scale 0.1
    weight of one                        scale 0.1, shift 1              bias            scale 0.1
    running_mean                         scale 0.1 sqrt(v)               running_var     scale 0.1 v, shift v

v is the variance of the input of a batch norm. It is measured here layer by layer and recorded, so that activations stay about 1 at any
depth. The file has the scores in eval mode and, in training mode, the loss of the scores and the norms of the gradients of all losses,
summed over the parameters whose names begin with the same parts. Some networks also have the losses of ten SGD steps. All numbers are
float32, because PyTorch needs ten times as long for float64.

Batch norm over a few values makes deep networks chaotic: if the rate is too high, float32 rounding determines the result of the third
step. So each network learns at the highest rate in RATES at which PyTorch's own losses are stable. They must move by at most a tenth of
the test's tolerance when the images are larger by one part in a million. If the first gradients move by more than FIRM, `spread` is the
amount.
"""
import argparse
import functools
import math
import pathlib

import torch
import torch.nn.functional as F
from torch import nn

from catalogue_networks import CLASSES, HEADS, LEARNS, PIXELS, build
from golden import NOISE, digits, example, noise, noise_plain, renew, write

BATCH, STEPS = 2, 10
SGD = {"momentum": 0.9, "nesterov": False, "weight_decay": 1e-4}
FIRM = 5e-3
RATES = [1e-3, 3e-4, 1e-4, 1e-5, 1e-6, 3e-7]
IMAGES = {"k": 999, "scale": 1.5, "shift": 0.0}
LABELS = [i * 7 % 10 for i in range(BATCH)]
OUT = pathlib.Path(__file__).parent / "catalogue.json"


def fnv(text):
    h = 0x811C9DC5
    for byte in text.encode():
        h = (h ^ byte) * 0x01000193 & 0xFFFFFFFF
    return h


def formula(name, shape, v=1.0):
    """Returns k, scale and shift for the tensor with this name."""
    field = name.rsplit(".", 1)[-1]
    if field == "layer_scale":
        scale, shift = 0.1, 0.2
    elif field.endswith("weight") and len(shape) > 1:
        scale, shift = math.sqrt(6.0 / math.prod(shape[1:])), 0.0
    elif field == "running_mean":
        scale, shift = 0.1 * math.sqrt(v), 0.0
    elif field == "running_var":
        scale, shift = 0.1 * v, v
    else:
        scale, shift = 0.1, 1.0 if field == "weight" else 0.0
    return {"k": fnv(name) % 1_000_003, "scale": scale, "shift": shift}


@functools.lru_cache(maxsize=4)
def large(shape, k, scale, shift):
    """Returns noise for the large layers of VGG, cached because they are equal in all VGG networks."""
    return noise(shape, k, scale, shift)


def fill(net):
    """Sets all parameters."""
    with torch.no_grad():
        for name, p in net.named_parameters():
            make = large if p.numel() > 1e7 else noise
            p.copy_(make(tuple(p.shape), **formula(name, p.shape)))


def fill_statistics(net, variances):
    modules = dict(net.named_modules())
    with torch.no_grad():
        for layer, v in variances.items():
            for field in ("running_mean", "running_var"):
                tensor = getattr(modules[layer], field)
                tensor.copy_(noise(tuple(tensor.shape), **formula(f"{layer}.{field}", tensor.shape, v)))


def measure(net, x):
    """Runs in eval mode and sets the statistics of each norm from the variance of its input just before the norm runs."""
    variances = {}

    def before(layer):
        def hook(module, inputs):
            variances[layer] = float(f"{inputs[0].var().item():.3g}")
            fill_statistics(net, {layer: variances[layer]})

        return hook

    norms = [(name, m) for name, m in net.named_modules() if isinstance(m, nn.BatchNorm2d)]
    hooks = [m.register_forward_pre_hook(before(name)) for name, m in norms]
    with torch.no_grad():
        net.eval()(x)
    for hook in hooks:
        hook.remove()
    return variances


def losses(net, name, x, y):
    """Returns the loss of the scores, and the weighted sum that is trained."""
    out = net(x)
    if name not in HEADS:
        loss = F.cross_entropy(out, y)
        return loss, loss
    main = F.cross_entropy(out[0], y)
    return main, main + sum(w * F.cross_entropy(head, y) for w, head in zip(HEADS[name], out[1:]))


def group(name):
    """Returns the first parts of a parameter's name, and its field. Gradient norms are summed over parameters with the same key."""
    layer, _, field = name.rpartition(".")
    return ".".join(layer.split(".")[:2]) + "." + field


def prepared(name, x):
    """Returns the network with its weights and statistics, and the variances of the inputs of the norms."""
    net = build(name)
    fill(net)
    variances = measure(net, x)
    # statistics of auxiliary classifiers have no effect in eval mode
    variances |= {n: 1.0 for n, m in net.named_modules() if isinstance(m, nn.BatchNorm2d) and n not in variances}
    return net, variances


def learn(net, name, x, y, lr, steps):
    """Returns the losses of the steps and the norms of the first gradients."""
    net.train()
    opt = torch.optim.SGD(net.parameters(), lr, **SGD)
    seen, squares = [], {}
    for step in range(steps):
        opt.zero_grad()
        loss, total = losses(net, name, x, y)
        total.backward()
        seen.append(loss.item())
        if step == 0:
            for n, p in net.named_parameters():
                squares[group(n)] = squares.get(group(n), 0.0) + p.grad.double().square().sum().item()
        opt.step()
    return seen, {n: float(f"{math.sqrt(s):.6g}") for n, s in squares.items()}


def spread_of(name, x, y):
    """Returns how far the gradient norms move, as the test measures it, if the images grow or shrink by one part in a million."""
    of = lambda factor: learn(prepared(name, x)[0], name, x * factor, y, 0.0, 1)[1]
    still, others = of(1.0), [of(1 + 1e-6), of(1 - 1e-6)]
    least = 0.01 * max(still.values())
    return max(abs(other[n] - still[n]) / max(still[n], least) for other in others for n in still)


def learn_calmly(name, x, y):
    """Returns the rate (see above), the losses of the steps at this rate, and the norms of the first gradients."""
    for lr in RATES:
        seen, gradients = learn(prepared(name, x)[0], name, x, y, lr, STEPS)
        moved, _ = learn(prepared(name, x)[0], name, x * (1 + 1e-6), y, lr, STEPS)
        spread = max(abs(a - b) for a, b in zip(seen, moved)) / seen[0]
        print(name, f"rate {lr}: losses {seen[0]:.3f} to {seen[-1]:.3f}, moved by {spread:.1e} of the first", flush=True)
        if spread < 2e-3:
            assert min(seen) < 0.9 * seen[0], f"{name} does not learn at rate {lr}"
            return lr, seen, gradients
    raise SystemExit(f"{name}: chaotic at every rate; use larger images in PIXELS")


def entry(name):
    x, y = noise((BATCH, 3, PIXELS[name], PIXELS[name]), **IMAGES), torch.tensor(LABELS)
    net, variances = prepared(name, x)
    names = sorted(f"{n} {p.numel()}" for n, p in net.named_parameters())
    count = sum(p.numel() for p in net.parameters())
    with torch.no_grad():
        logits = net.eval()(x)
    lr, seen, gradients = learn_calmly(name, x, y) if name in LEARNS else (None, *learn(net, name, x, y, 0.0, 1))
    print(name, PIXELS[name], f"scores {logits.abs().mean():.2f}, loss {seen[0]:.3f} to {seen[-1]:.3f}", flush=True)
    assert (logits[0] - logits[1]).abs().max() > 0.01, f"{name}: the two images get the same scores"
    e = {"name": name, "pixels": PIXELS[name], "parameters": count, "names_fnv": fnv("\n".join(names)), "variances": variances}
    extra, spread = {"lr": lr} if lr else {}, spread_of(name, x, y)
    extra |= {"spread": float(f"{spread:.2g}")} if spread > FIRM else {}
    return e | {"logits": digits(logits)} | extra | {"losses": digits(torch.tensor(seen)), "gradients": gradients}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("networks", nargs="*", default=list(PIXELS))
    parser.add_argument("--names", metavar="NETWORK")
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    if args.names:
        for name, p in build(args.names).named_parameters():
            print(name, tuple(p.shape), formula(name, p.shape))
        return
    torch.set_num_threads(args.threads)
    if not OUT.exists():
        head = {"torch": torch.__version__, "noise": NOISE, "noise_example": example(noise_plain)}
        write(OUT, head | {"batch": BATCH, "images": IMAGES, "labels": LABELS, "sgd": SGD, "classes": CLASSES}, "networks", [])
    for name in args.networks:
        renew(OUT, "networks", [entry(name)])
    print(f"{OUT.stat().st_size} bytes: {OUT}")


if __name__ == "__main__":
    main()
