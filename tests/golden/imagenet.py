"""Writes imagenet.json: torchvision's ImageNet networks with ten classes, with all inputs computed by a formula (`noise` in golden.py).

    python imagenet.py [OUT.json]       (default: imagenet.json in this folder; needs torchvision)

Parameter j of named_parameters() is noise(k = j + 1), the images are noise(k = 999, scale = 1.5), label i is 7 i mod 10. A run takes two
SGD steps on one batch with label smoothing 0.1, then computes the loss of the batch in eval mode. Each run is made in float64 and in
float32. Dropout is off.
"""
import math
import pathlib
import sys

import torch
import torch.nn.functional as F
import torchvision.models as tv
from torch import nn

import plain
from golden import NOISE, close, digits, example, noise, noise_plain, write

BATCH, STEPS, CLASSES, SMOOTHING = 4, 2, 10, 0.1
SGD = {"lr": 0.001, "momentum": 0.9, "nesterov": False, "weight_decay": 1e-4}
IMAGES = {"k": 999, "scale": 1.5, "shift": 0.0}
LABELS = [i * 7 % 10 for i in range(BATCH)]
# name, pixels, torchvision's published parameters with 1,000 classes, batch norms with recorded statistics
NETWORKS = [
    ("resnet18", 64, 11_689_512, ["bn1", "layer2.0.downsample.1", "layer4.1.bn2"]),
    ("resnet50", 64, 25_557_032, ["bn1", "layer2.0.downsample.1", "layer4.2.bn3"]),
    ("alexnet", 96, 61_100_840, []),
    ("alexnet", 224, 61_100_840, []),
]


def parameter_fills(net):
    """Scale and shift by kind: weights uniform within sqrt(3 / fan_in), biases within 0.05, batch norm 1 +- 0.1 and 0 +- 0.1; the
    last norm of a block 0.2 +- 0.02, because with 1 rounding errors would grow tenfold in a few blocks."""
    norms = {name for name, module in net.named_modules() if isinstance(module, nn.BatchNorm2d)}
    last = {f"{name}.bn{3 if hasattr(block, 'conv3') else 2}" for name, block in net.named_modules() if hasattr(block, "downsample")}
    fills = []
    for j, (name, p) in enumerate(net.named_parameters()):
        layer, field = name.rsplit(".", 1)
        scale, shift = 0.05, 0.0
        if p.dim() > 1:
            scale = math.sqrt(3.0 / (p.numel() // p.shape[0]))
        elif layer in norms:
            scale, shift = 0.1, 1.0 if field == "weight" else 0.0
            if layer in last and field == "weight":
                scale, shift = 0.02, 0.2
        fills.append({"name": name, "shape": list(p.shape), "k": j + 1, "scale": scale, "shift": shift})
    return fills


def build(name):
    return getattr(tv, name)(weights=None, num_classes=CLASSES)


def train(name, pixels, probed, dtype):
    """Trains in `dtype`. Returns the losses, the logits and gradient norms of step 1, statistics after step 1, and the final loss in eval mode."""
    net = build(name).to(dtype).train()
    for m in net.modules():
        if isinstance(m, nn.Dropout):
            m.p = 0.0
    with torch.no_grad():
        for p, f in zip(net.parameters(), parameter_fills(net)):
            p.copy_(noise(f["shape"], f["k"], f["scale"], f["shift"]))
    x, y = noise((BATCH, 3, pixels, pixels), **IMAGES).to(dtype), torch.tensor(LABELS)
    opt = torch.optim.SGD(net.parameters(), **SGD)
    modules = dict(net.named_modules())
    out = {"losses": []}
    for step in range(STEPS):
        opt.zero_grad()
        logits = net(x)
        F.cross_entropy(logits, y, label_smoothing=SMOOTHING).backward()
        out["losses"].append(F.cross_entropy(logits.detach().double(), y, label_smoothing=SMOOTHING).item())
        if step == 0:
            out["logits"] = logits.detach()
            out["gradient_norms"] = {n: p.grad.double().norm().item() for n, p in net.named_parameters()}
            out["statistics"] = {
                f"{m}.{s}": getattr(modules[m], s).detach().clone() for m in probed for s in ("running_mean", "running_var")
            }
        opt.step()
    with torch.no_grad():
        out["eval_loss"] = F.cross_entropy(net.eval()(x).double(), y, label_smoothing=SMOOTHING).item()
        out["parameter_norms"] = {n: p.detach().double().norm().item() for n, p in net.named_parameters()}
    return out


def entry(name, pixels, count, probed):
    """Trains in float64 and in float32, checks the losses without PyTorch, and returns both runs as one JSON entry."""
    with torch.device("meta"):
        assert sum(p.numel() for p in getattr(tv, name)().parameters()) == count, name
    r64, r32 = (train(name, pixels, probed, dtype) for dtype in (torch.float64, torch.float32))
    again, _ = plain.cross_entropy(r64["logits"].flatten().tolist(), [BATCH, CLASSES], LABELS, SMOOTHING)
    close([again], r64["losses"][:1], 1e-12, 0.0, f"{name}: loss")
    names = list(r64["gradient_norms"])
    strayed = {
        "logits": (r32["logits"].double() - r64["logits"]).abs().max().item() / r64["logits"].abs().max().item(),
        "losses": max(abs(a / b - 1) for a, b in zip(r32["losses"], r64["losses"])),
        "eval_loss": abs(r32["eval_loss"] / r64["eval_loss"] - 1),
        "gradient_norms": max(abs(r32["gradient_norms"][n] / r64["gradient_norms"][n] - 1) for n in names),
    }
    print(name, pixels, r64["losses"], r64["eval_loss"], {k: f"{v:.1e}" for k, v in strayed.items()})
    # rounding before a ReLU can turn one of few pixels on or off, which affects the gradients but not the scores
    assert max(strayed["logits"], strayed["losses"]) < 5e-5 and strayed["gradient_norms"] < 2e-3, f"{name}: {strayed}"
    e = {"name": name, "image_shape": [3, pixels, pixels], "params": parameter_fills(build(name))}
    e |= {"losses_float64": digits(r64["losses"], 12), "eval_loss_after_float64": r64["eval_loss"]}
    e |= {"logits_float64": digits(r64["logits"]), "float32_error": strayed}
    e |= {"gradient_norms_float64": dict(zip(names, digits(r64["gradient_norms"].values())))}
    e |= {"parameter_norms_after_float64": dict(zip(names, digits(r64["parameter_norms"].values())))}
    if probed:
        e["statistics_after_1_float64"] = {n: digits(v) for n, v in r64["statistics"].items()}
    return e


def main():
    out = sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent / "imagenet.json"
    torch.set_num_threads(2)
    entries = [entry(*n) for n in NETWORKS]
    head = {"torch": torch.__version__, "noise": NOISE, "noise_example": example(noise_plain)}
    head |= {"batch": BATCH, "images": IMAGES, "labels": LABELS, "label_smoothing": SMOOTHING, "sgd": SGD, "steps": STEPS}
    write(out, head, "networks", entries)
    print(f"{pathlib.Path(out).stat().st_size} bytes: {out}")


if __name__ == "__main__":
    main()
