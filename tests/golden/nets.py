"""Writes nets.json: ten SGD steps on one batch for each network, with all inputs computed by a formula (`noise` in golden.py).

    python nets.py [OUT.json]       (default: nets.json in this folder)

Parameter j of named_parameters() is noise(k = j + 1), the images are noise(k = 999, scale = 1.5), label i is 7 i mod 10. Each run is
made in float64 and in float32. The loss of a step is the mean cross-entropy before the update, without the weight decay term. The
float32 run sums it in float64 from its float32 logits. Dropout is off, batch norm is in training mode (momentum 0.1, eps 1e-5).

If an activation is within the rounding error of zero, it can be on the other side of its ReLU. This changes the norms of gradients by
more than rounding does. So the norms of step 1 are recorded for every choice of sides of the activations within REACH of zero.
"""
import itertools
import math
import pathlib
import sys

import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode

import plain
from golden import NOISE, close, digits, example, noise, noise_plain, write
from networks import NETWORKS

BATCH, STEPS = 16, 10
SGD = {"lr": 0.005, "momentum": 0.9, "nesterov": False, "weight_decay": 1e-4}
IMAGES = {"k": 999, "scale": 1.5, "shift": 0.0}
LABELS = [i * 7 % 10 for i in range(BATCH)]
PROBED = ["bn1", "layer3.2.bn2"]
# maximum error of the sums of a float32 activation with a magnitude of about 1
REACH = 1.5e-6


class Sided(torch.autograd.Function):
    """ReLU with a gradient that treats some activations as if they were on the other side of zero."""

    @staticmethod
    def forward(ctx, x, turned):
        mask = (x > 0).flatten()
        mask[turned] = ~mask[turned]
        ctx.save_for_backward(mask.view_as(x))
        return x.clamp(min=0)

    @staticmethod
    def backward(ctx, dy):
        return dy * ctx.saved_tensors[0], None


class Sides(TorchFunctionMode):
    """Counts ReLU calls, records activations near zero, and flips those in `turned`: (ReLU, element)."""

    def __init__(self, turned=()):
        super().__init__()
        self.turned, self.count, self.near = turned, 0, []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func not in (torch.relu, F.relu, torch.Tensor.relu):
            return func(*args, **(kwargs or {}))
        x, relu = args[0], self.count
        self.count += 1
        self.near += [(relu, e) for e in (x.detach().abs().flatten() < REACH).nonzero().flatten().tolist()]
        return Sided.apply(x, [e for r, e in self.turned if r == relu])


def first_norms(build, fills, turned=()):
    """Returns the gradient norms of step 1 in float64, and the activations near zero."""
    net = build().double().train()
    fill(net, fills)
    with Sides(turned) as sides:
        F.cross_entropy(net(noise((BATCH, *net.shape), **IMAGES).double()), torch.tensor(LABELS)).backward()
    return [p.grad.norm().item() for p in net.parameters()], sides.near


def sided_norms(build, fills):
    """Returns the norms for every choice of sides except the first, which is the choice of float64."""
    norms, near = first_norms(build, fills)
    assert len(near) <= 5, f"{len(near)} activations are within {REACH} of zero"
    choices = itertools.chain.from_iterable(itertools.combinations(near, n) for n in range(1, len(near) + 1))
    return norms, [first_norms(build, fills, turned)[0] for turned in choices]


def fill(net, fills):
    with torch.no_grad():
        for p, f in zip(net.parameters(), fills):
            p.copy_(noise(f["shape"], f["k"], f["scale"], f["shift"]))


def parameter_fills(net):
    """Scale and shift by kind: weights uniform within sqrt(3 / fan_in), biases within 0.05, batch norm 1 +- 0.1 and 0 +- 0.1."""
    fills = []
    for j, (name, p) in enumerate(net.named_parameters()):
        norm = name.split(".")[-2].startswith("bn")
        if p.dim() > 1:
            scale, shift = math.sqrt(3.0 / (p.numel() // p.shape[0])), 0.0
        elif norm:
            scale, shift = 0.1, 1.0 if name.endswith("weight") else 0.0
        else:
            scale, shift = 0.05, 0.0
        fills.append({"name": name, "shape": list(p.shape), "k": j + 1, "scale": scale, "shift": shift})
    return fills


def train(build, fills, dtype):
    """Trains ten steps in `dtype`. Returns the losses, the logits and gradient norms of step 1, the batch norm statistics after 1 and 10
    steps, the norms of the final parameters, and the final loss in eval mode."""
    net = build().to(dtype).train()
    fill(net, fills)
    x, y = noise((BATCH, *net.shape), **IMAGES).to(dtype), torch.tensor(LABELS)
    opt = torch.optim.SGD(net.parameters(), **SGD)
    out = {"losses": []}
    for step in range(STEPS):
        opt.zero_grad()
        logits = net(x)
        F.cross_entropy(logits, y).backward()
        out["losses"].append(F.cross_entropy(logits.detach().double(), y).item())
        if step == 0:
            out["logits"] = logits.detach()
            out["gradient_norms"] = [p.grad.double().norm().item() for p in net.parameters()]
            out["stats_first"] = statistics(net)
        opt.step()
    out["stats_last"] = statistics(net)
    out["parameter_norms"] = [p.detach().double().norm().item() for p in net.parameters()]
    with torch.no_grad():
        out["eval_loss"] = F.cross_entropy(net.eval()(x).double(), y).item()
    return out


def statistics(net):
    modules = dict(net.named_modules())
    return {
        f"{m}.{s}": getattr(modules[m], s).detach().clone()
        for m in PROBED if m in modules for s in ("running_mean", "running_var")
    }  # fmt: skip


def entry(name, build):
    """Trains in float64 and in float32, checks the losses without PyTorch, and returns both runs as one JSON entry."""
    fills = parameter_fills(build())
    r64, r32 = train(build, fills, torch.float64), train(build, fills, torch.float32)
    again, _ = plain.cross_entropy(r64["logits"].flatten().tolist(), [BATCH, 10], LABELS, 0.0)
    close([again], r64["losses"][:1], 1e-12, 0.0, f"{name}: loss")
    close(r32["losses"][:1], r64["losses"][:1], 1e-5, 0.0, f"{name}: float32 loss of step 1")
    close(r32["losses"], r64["losses"], 1e-3, 0.0, f"{name}: float32 losses")
    close([r32["eval_loss"]], [r64["eval_loss"]], 2e-3, 0.0, f"{name}: float32 loss in eval mode")
    norms, sided = sided_norms(build, fills)
    close(norms, r64["gradient_norms"], 1e-12, 0.0, f"{name}: gradient norms")
    nearest = min([norms, *sided], key=lambda n: abs(torch.tensor(n) / torch.tensor(r32["gradient_norms"]) - 1).max())
    close(r32["gradient_norms"], nearest, 1e-4, 1e-7, f"{name}: float32 gradient norms")
    assert 0.5 < r64["losses"][0] < 10 and min(r64["losses"]) < 0.95 * r64["losses"][0], f"{name} does not train: {r64['losses']}"
    e = {"name": name, "image_shape": list(build.shape), "params": fills}
    e |= {f"losses_float{b}": digits(r["losses"], 12) for b, r in ((64, r64), (32, r32))}
    e |= {"eval_loss_after_float64": r64["eval_loss"], "eval_loss_after_float32": r32["eval_loss"]}
    e |= {"logits_float64": digits(r64["logits"])}
    names = [f["name"] for f in fills]
    e |= {"gradient_norms_float64": dict(zip(names, digits(r64["gradient_norms"])))}
    if sided:
        e |= {"gradient_norms_sided_float64": [dict(zip(names, digits(n))) for n in sided]}
    e |= {"parameter_norms_after_float64": dict(zip(names, digits(r64["parameter_norms"])))}
    e |= {"logits_float32_error": (r32["logits"].double() - r64["logits"]).abs().max().item()}
    if r64["stats_last"]:
        e |= {f"{k}_float64": {n: digits(v) for n, v in r64[s].items()}
              for k, s in (("statistics_after_1", "stats_first"), ("statistics_after_10", "stats_last"))}
        e["statistics_after_10_float32"] = {n: digits(v) for n, v in r32["stats_last"].items()}
    return e


def main():
    out = sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent / "nets.json"
    entries = [entry(n, b) for n, b in NETWORKS.items()]
    head = {"torch": torch.__version__, "noise": NOISE, "noise_example": example(noise_plain)}
    head |= {"batch": BATCH, "images": IMAGES, "labels": LABELS, "sgd": SGD, "steps": STEPS}
    write(out, head, "networks", entries)
    for e in entries:
        print(e["name"], *(f"{a:.5f}/{b:.5f}" for a, b in zip(e["losses_float64"], e["losses_float32"])))
    print(f"{pathlib.Path(out).stat().st_size} bytes: {out}")


if __name__ == "__main__":
    main()
