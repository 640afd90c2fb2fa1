"""Writes schedules.json: learning rates of PyTorch's OneCycleLR, CosineAnnealingWarmRestarts and ReduceLROnPlateau for each step.

    python schedules.py [OUT.json]      (in an environment with PyTorch; default: schedules.json in this folder)

The recorded rate of a step is the rate that its update uses. A run has the [schedule] keys of trireme and the arguments of PyTorch.
PyTorch's cosine is called with fractions of an epoch, here step / STEPS_PER_EPOCH. The plateau receives a score after each epoch, from a
sequence that rises and falls.
"""
import json
import pathlib
import sys

import torch
from torch.optim import lr_scheduler as schedulers

STEPS_PER_EPOCH, EPOCHS, BASE = 7, 6, 0.4
MOMENTA = []  # of the steps of the run at hand
ONE_CYCLE = [
    ("one_cycle", {}, {}),
    ("one_cycle_linear", {"pct_start": 0.25, "div_factor": 10.0, "final_div_factor": 100.0, "anneal": "linear"}, {"anneal_strategy": "linear"}),
    ("one_cycle_three_phase", {"pct_start": 0.4, "three_phase": True}, {}),
    ("one_cycle_momentum", {"cycle_momentum": True}, {}),
    ("one_cycle_momentum_linear", {"cycle_momentum": True, "three_phase": True, "base_momentum": 0.5, "max_momentum": 0.9, "anneal": "linear"}, {"anneal_strategy": "linear"}),
]
RESTARTS = [
    ("warm_restarts", {"cycle_epochs": 2.0}, {"T_0": 2}),
    ("warm_restarts_growing", {"cycle_epochs": 1.0, "cycle_factor": 2.0, "end_lr": 0.01}, {"T_0": 1, "T_mult": 2, "eta_min": 0.01}),
]
SCORES = [1.0, 0.9, 0.9, 0.95, 0.91, 0.9, 0.899, 0.8991, 0.89895, 0.7, 0.7, 0.7, 0.7, 0.71, 0.7, 0.69, 0.8, 0.8, 0.8, 0.8]
PLATEAU = [
    ("plateau", {"patience": 2}, {"patience": 2}),
    ("plateau_cooldown", {"patience": 0, "cooldown": 2, "gamma": 0.5, "threshold": 0.05}, {"patience": 0, "cooldown": 2, "factor": 0.5, "threshold": 0.05}),
    ("plateau_end", {"patience": 1, "gamma": 0.2, "end_lr": 0.01, "score": "top1"}, {"patience": 1, "factor": 0.2, "min_lr": 0.01, "mode": "max"}),
]


def optimizer():
    return torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=BASE, momentum=0.9)


def rates(opt, scheduler, values):
    """Returns the rate before each call of the scheduler."""
    out = []
    for value in values:
        MOMENTA.append(opt.param_groups[0]["momentum"])
        out.append(opt.param_groups[0]["lr"])
        opt.step()
        scheduler.step() if value is None else scheduler.step(value)
    return out


def main():
    out = sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent / "schedules.json"
    runs, steps = [], STEPS_PER_EPOCH * EPOCHS
    for name, keys, theirs in ONE_CYCLE:
        opt = optimizer()
        same = {k: v for k, v in keys.items() if k != "anneal"}
        same |= {"cycle_momentum": keys.get("cycle_momentum", False)}
        scheduler = schedulers.OneCycleLR(opt, BASE, total_steps=steps, **same, **theirs)
        MOMENTA.clear()
        # there is no rate after the last step
        lrs = rates(opt, scheduler, [None] * (steps - 1)) + [opt.param_groups[0]["lr"]]
        momenta = MOMENTA + [opt.param_groups[0]["momentum"]] if "cycle_momentum" in keys else []
        runs.append({"name": name, "schedule": {"kind": "one_cycle", "base_lr": BASE} | keys, "lrs": lrs, "momenta": momenta})
    for name, keys, theirs in RESTARTS:
        opt = optimizer()
        scheduler = schedulers.CosineAnnealingWarmRestarts(opt, **theirs)
        lrs = rates(opt, scheduler, [(step + 1) / STEPS_PER_EPOCH for step in range(steps)])
        runs.append({"name": name, "schedule": {"kind": "warm_restarts", "base_lr": BASE} | keys, "lrs": lrs})
    for name, keys, theirs in PLATEAU:
        opt = optimizer()
        scheduler = schedulers.ReduceLROnPlateau(opt, eps=0.0, **theirs)
        scores = [1.5 - s for s in SCORES] if theirs.get("mode") == "max" else SCORES
        lrs = rates(opt, scheduler, scores)
        runs.append({"name": name, "schedule": {"kind": "plateau", "base_lr": BASE} | keys, "scores": scores, "lrs": lrs})
    head = {"torch": torch.__version__, "steps_per_epoch": STEPS_PER_EPOCH, "epochs": EPOCHS}
    lines = ",\n".join(json.dumps(run, separators=(",", ":")) for run in runs)
    pathlib.Path(out).write_text(json.dumps(head)[:-1] + ',\n"runs": [\n' + lines + "\n]}\n")


if __name__ == "__main__":
    main()
