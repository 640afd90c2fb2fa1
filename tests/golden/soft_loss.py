"""Writes soft_loss.json: losses for targets over all classes and their gradients, from PyTorch, torchvision and timm.

    python soft_loss.py [OUT.json]        (default: soft_loss.json in this folder)

Each loss comes from the function that is commonly used: F.cross_entropy with probabilities or class weights, timm's BinaryCrossEntropy and
mixup_target, torchvision's sigmoid_focal_loss, F.kl_div, F.mse_loss, F.l1_loss, F.huber_loss. All values are float64 on inputs that are
exact in float32. Before a case is written, its loss is checked against plain loops, and its gradient against central differences.
"""
import math
import pathlib
import sys

import timm
import torch
import torch.nn.functional as F
import torchvision
from timm.data.mixup import mixup_target
from timm.loss import BinaryCrossEntropy

from golden import FORMULA, close, digits, example, fill, fill_plain, write

CASES = []


def scores(k, rows, classes, scale):
    return {"shape": [rows, classes], "k": 40507 * k, "scale": scale, "shift": 0.0}


def make(s):
    return fill(s["shape"], s["k"], s["scale"], s["shift"]).double()


def plain_row(case, z, t, weight, taught):
    """Returns the loss of a row in plain loops, with the formulas of crates/backend/src/losses.rs."""
    gamma, share = case["gamma"], case["share"]

    def softmax(v, heat):
        top = max(v)
        each = [math.exp((a - top) / heat) for a in v]
        return [e / sum(each) for e in each]

    if case["form"] in ("mse", "l1", "huber"):
        def distance(d):
            if case["form"] == "mse":
                return d * d
            if case["form"] == "l1":
                return abs(d)
            delta = case["delta"]
            return d * d / 2 if abs(d) <= delta else delta * (abs(d) - delta / 2)

        loss = weight * sum(distance(v - a) for a, v in zip(t, z)) / len(z)
    elif case["form"] == "softmax":
        loss = sum(-a * (1 - p) ** gamma * math.log(p) for a, p in zip(t, softmax(z, 1.0)) if p > 0)
    else:
        loss = 0.0
        for a, v in zip(t, z):
            p = 1 / (1 + math.exp(-v))
            right = p * a + (1 - p) * (1 - a)
            balance = 1.0 if case["alpha"] is None else case["alpha"] * a + (1 - case["alpha"]) * (1 - a)
            entropy = math.log1p(math.exp(-abs(v))) + max(v, 0) - v * a
            loss += balance * (1 - right) ** gamma * entropy
        loss *= weight / len(z) if case["mean"] else weight
    if taught is not None:
        heat = case["temperature"]
        pairs = zip(softmax(z, heat), softmax(taught, heat))
        loss = (1 - share) * loss + weight * share * heat**2 * sum(q * math.log(q / p) for p, q in pairs)
    return loss


def add(name, x, table, weights, f, form="softmax", divisor=None, teacher=None, **more):
    """Computes and appends a case. f(x, teacher) is a library's loss: the sum over the rows divided by `divisor` (by default the number of rows)."""
    settings = {"form": form, "gamma": 0.0, "alpha": None, "mean": False, "share": 0.0, "temperature": 1.0} | more
    rows = x["shape"][0]
    case = {"name": name} | settings | {"x": x, "teacher": teacher, "targets": digits(table, 17), "weights": weights, "divisor": divisor or rows}
    taught = make(teacher) if teacher else None
    z = make(x).requires_grad_(True)
    y = f(z, taught)
    y.backward()
    if x["scale"] < 40:
        rows_of = lambda v: v.detach().tolist()
        of = [plain_row(settings, a, t, w, b) for a, t, w, b in zip(rows_of(z), rows_of(table), weights, rows_of(taught) if teacher else [None] * rows)]
        close([y.item()], [sum(of) / case["divisor"]], 1e-11, 1e-11, f"{name}: loss")
    v, eps = fill(z.shape, 77777, 1.0, 0.1).double(), 1e-6
    up, down = (f(z.detach() + s * eps * v, taught) for s in (1, -1))
    close([((up - down) / (2 * eps)).item()], [(z.grad * v).sum().item()], 1e-6, 1e-7, f"{name}: dx")
    CASES.append(case | {"y": digits(y.reshape(1)), "dx": digits(z.grad)})


def focal(x, t, gamma):
    """Returns the focal loss with softmax. No library has it for soft targets, so its gradient comes from autograd on this formula."""
    p, log = x.softmax(1), x.log_softmax(1)
    return (-t * (1 - p) ** gamma * log).sum(1).mean()


def lesson(x, taught, heat):
    """Returns the distillation loss of Hinton et al.: the divergence from the teacher at temperature `heat`."""
    return F.kl_div((x / heat).log_softmax(1), (taught / heat).softmax(1), reduction="batchmean") * heat**2


def main():
    labels = torch.tensor([0, 7, 4, 1, 8, 5])
    one = [1.0] * 6
    x, wide, taught = scores(1, 6, 10, 3.0), scores(2, 6, 10, 100.0), scores(3, 6, 10, 4.0)
    hard = F.one_hot(labels, 10).double()
    mixed = mixup_target(labels, 10, 0.3, 0.1).double()
    add("mixed and smoothed", x, mixed, one, lambda z, _: F.cross_entropy(z, mixed))
    add("large scores", wide, mixed, one, lambda z, _: F.cross_entropy(z, mixed))
    of = torch.tensor([0.5, 1.0, 2.0, 0.25, 3.0, 1.5, 0.75, 1.0, 4.0, 0.1], dtype=torch.float64)
    smooth = hard * 0.9 + 0.01
    weight = of[labels].tolist()
    add("class weights", x, hard * of, weight, lambda z, _: F.cross_entropy(z, labels, weight=of), divisor=sum(weight))
    add("class weights and smoothing", x, smooth * of, weight, lambda z, _: F.cross_entropy(z, labels, weight=of, label_smoothing=0.1), divisor=sum(weight))
    for gamma in (0.5, 2.0):
        add(f"focal, gamma {gamma}", x, mixed, one, lambda z, _: focal(z, mixed, gamma), gamma=gamma)
    bce = BinaryCrossEntropy(smoothing=0.1)
    add("bce, mean", x, smooth, one, lambda z, _: bce(z, labels), "sigmoid", mean=True)
    summed = BinaryCrossEntropy(smoothing=0.0, sum_classes=True)
    add("bce, sum of mixed targets", x, mixed, one, lambda z, _: summed(z, mixed), "sigmoid")
    add("bce, large scores", wide, mixed, one, lambda z, _: summed(z, mixed), "sigmoid")
    spread = torch.tensor(weight, dtype=torch.float64)[:, None]
    balanced = lambda z, _: F.binary_cross_entropy_with_logits(z, hard, weight=spread, reduction="sum") / sum(weight)
    add("bce, class-balanced", x, hard, weight, balanced, "sigmoid", divisor=sum(weight))
    for gamma, alpha in ((2.0, 0.25), (0.5, 0.6), (1.5, None)):
        a = -1 if alpha is None else alpha
        f = lambda z, _: torchvision.ops.sigmoid_focal_loss(z, mixed, alpha=a, gamma=gamma).sum(1).mean()
        add(f"sigmoid focal, gamma {gamma}, alpha {alpha}", x, mixed, one, f, "sigmoid", gamma=gamma, alpha=alpha)
    f = lambda z, t: 0.3 * F.cross_entropy(z, mixed) + 0.7 * lesson(z, t, 4.0)
    add("distillation", x, mixed, one, f, teacher=taught, share=0.7, temperature=4.0)
    f = lambda z, t: 0.5 * bce(z, labels) + 0.5 * lesson(z, t, 1.0)
    add("distillation beside bce", x, smooth, one, f, "sigmoid", mean=True, teacher=taught, share=0.5, temperature=1.0)
    add("the teacher alone", x, hard, one, lambda z, t: lesson(z, t, 2.0), teacher=taught, share=1.0, temperature=2.0)
    many = scores(4, 2, 100, 5.0)
    t = mixup_target(torch.tensor([3, 99]), 100, 0.6, 0.1).double()
    add("100 classes", many, t, [1.0, 1.0], lambda z, _: F.cross_entropy(z, t))
    numbers = fill([6, 3], 40507 * 5, 2.0, 0.0).double()
    predicted = scores(6, 6, 3, 3.0)
    add("mse", predicted, numbers, one, lambda z, _: F.mse_loss(z, numbers), "mse")
    add("l1", predicted, numbers, one, lambda z, _: F.l1_loss(z, numbers), "l1")
    for delta in (1.0, 0.3):
        add(f"huber, delta {delta}", predicted, numbers, one, lambda z, _: F.huber_loss(z, numbers, delta=delta), "huber", delta=delta)
    rows = torch.tensor(weight, dtype=torch.float64)[:, None]
    spread = lambda z, _: (F.mse_loss(z, numbers, reduction="none") * rows).sum() / 3 / sum(weight)
    add("mse, weighted images", predicted, numbers, weight, spread, "mse", divisor=sum(weight))
    single = numbers[:, :1]
    add("mse, one number", scores(7, 6, 1, 3.0), single, one, lambda z, _: F.mse_loss(z, single), "mse")
    versions = {"torch": torch.__version__, "torchvision": torchvision.__version__, "timm": timm.__version__}
    out = sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).with_name("soft_loss.json")
    write(out, versions | {"fill": FORMULA, "fill_example": example(fill_plain)}, "cases", CASES)
    for share, smoothing in ((0.25, 0.0), (0.75, 0.1)):
        print("mixup_target", share, smoothing, mixup_target(torch.tensor([0, 2, 2]), 4, share, smoothing).tolist())
    print(len(CASES), "cases")


if __name__ == "__main__":
    main()
