"""Writes optim.json: ten steps of every optimizer on two tensors of seven and five numbers, with another learning rate at each step.

    python optim.py --tf            (in an environment with TensorFlow: writes its numbers to optim_tf.json in this folder)
    python optim.py [OUT.json]      (in an environment with PyTorch: includes them; default: optim.json in this folder)
    python optim.py --only NAME ... (in an environment with PyTorch: replaces only these runs in optim.json, none of them TensorFlow's)

Start values and gradients are fill() of golden.py. The gradients do not depend on the parameters. Numbers are from float64 runs.
TensorFlow's kernels also run in float64, with decay, momentum and eps rounded to float32. Each run is checked against the update rule
below. `float32_error` is the largest distance of the original's float32 run from its float64 run. Sources:

    torch   torch.optim.{SGD,Adam,AdamW,RMSprop,Adagrad}, torch.nn.utils.clip_grad_norm_ and clip_grad_value_
    timm    timm.optim.{Lion,Lamb} (without Lamb's own limit of the norm); clipping by torch
    tf      tf.compat.v1.train.RMSPropOptimizer (kernels ApplyRMSProp, ApplyCenteredRMSProp); tf.train.ExponentialMovingAverage
    paper   momentum correction, see corrected_by_torch(); LARS of You, Gitman, Ginsburg 2017 (arXiv 1708.03888, algorithm 1). The authors
            published no code, so algorithm 1 is implemented here with torch tensors, independently of the plain Python rule by_hand()
"""
import json
import math
import pathlib
import struct
import sys

TENSORS, STEPS = {"a": 7, "b": 5}, 10
START = {"a": {"k": 40507, "scale": 1.0, "shift": 0.0}, "b": {"k": 11003, "scale": 0.6, "shift": 0.1}}
GRADIENTS = [{"a": {"k": 27211 * (t + 2), "scale": 0.5, "shift": 0.05}, "b": {"k": 31013 * (t + 3), "scale": 0.4, "shift": -0.1}} for t in range(STEPS)]
LRS = [0.02, 0.06, 0.1, 0.1, 0.08, 0.05, 0.01, 0.01, 0.002, 0.0]
SGD = [
    ("plain", {"momentum": 0.0, "nesterov": False}, 0.0),
    ("decay", {"momentum": 0.0, "nesterov": False}, 0.01),
    ("momentum", {"momentum": 0.9, "nesterov": False}, 0.01),
    ("nesterov", {"momentum": 0.9, "nesterov": True}, 0.01),
    ("nesterov_without_decay", {"momentum": 0.9, "nesterov": True}, 0.0),
]
# name, source, [optimizer] keys, weight decay, clipping
RUNS = [(name, "torch", {"kind": "sgd"} | keys, wd, {}) for name, keys, wd in SGD] + [
    ("clip_norm", "torch", {"kind": "sgd", "momentum": 0.9}, 0.01, {"clip_norm": 0.8}),
    ("clip_value", "torch", {"kind": "sgd", "momentum": 0.9}, 0.01, {"clip_value": 0.25}),
    ("adam", "torch", {"kind": "adam"}, 0.0, {}),
    ("adam_l2", "torch", {"kind": "adam", "beta1": 0.8, "beta2": 0.99, "eps": 1e-3}, 0.1, {}),
    ("adam_clip_norm", "torch", {"kind": "adam"}, 0.0, {"clip_norm": 0.8}),
    ("adamw", "torch", {"kind": "adamw"}, 0.1, {}),
    ("rmsprop", "torch", {"kind": "rmsprop"}, 0.0, {}),
    ("rmsprop_momentum", "torch", {"kind": "rmsprop", "momentum": 0.9, "alpha": 0.9, "eps": 1.0}, 0.01, {}),
    ("rmsprop_centered", "torch", {"kind": "rmsprop", "momentum": 0.9, "alpha": 0.9, "eps": 1e-3, "centered": True}, 0.01, {}),
    ("adagrad", "torch", {"kind": "adagrad"}, 0.01, {}),
    ("adagrad_lr_decay", "torch", {"kind": "adagrad", "lr_decay": 0.1, "initial_accumulator_value": 0.1, "eps": 1e-3}, 0.0, {}),
    ("adagrad_clip_norm", "torch", {"kind": "adagrad", "initial_accumulator_value": 0.5}, 0.1, {"clip_norm": 0.8}),
    ("lion", "timm", {"kind": "lion"}, 0.0, {}),
    ("lion_decay", "timm", {"kind": "lion", "beta1": 0.95, "beta2": 0.98}, 0.1, {}),
    ("lion_clip_norm", "timm", {"kind": "lion"}, 0.1, {"clip_norm": 0.8}),
    ("lamb", "timm", {"kind": "lamb"}, 0.05, {}),
    ("lamb_without_decay", "timm", {"kind": "lamb", "beta1": 0.8, "beta2": 0.99, "eps": 1e-3}, 0.0, {}),
    ("lamb_always_adapt", "timm", {"kind": "lamb", "always_adapt": True}, 0.0, {}),
    ("lamb_clip_norm", "timm", {"kind": "lamb"}, 0.05, {"clip_norm": 0.8}),
    ("lars_corrected", "paper", {"kind": "lars", "momentum": 0.9, "eta": 0.1, "momentum_correction": True}, 0.01, {}),
    ("larc_corrected", "paper", {"kind": "lars", "momentum": 0.9, "eta": 0.1, "larc": True, "momentum_correction": True}, 0.01, {}),
    ("rmsprop_tf_corrected", "paper", {"kind": "rmsprop", "form": "tf", "momentum": 0.9, "alpha": 0.9, "eps": 0.1, "momentum_correction": True}, 0.01, {}),
    ("rmsprop_tf", "tf", {"kind": "rmsprop", "form": "tf"}, 0.0, {}),
    ("rmsprop_tf_inception", "tf", {"kind": "rmsprop", "form": "tf", "momentum": 0.9, "alpha": 0.9, "eps": 1.0}, 0.0, {}),
    ("rmsprop_tf_centered", "tf", {"kind": "rmsprop", "form": "tf", "momentum": 0.5, "alpha": 0.8, "eps": 0.01, "centered": True}, 0.0, {}),
    ("lars", "paper", {"kind": "lars", "momentum": 0.9, "eta": 0.1}, 0.01, {}),
    ("lars_without_decay", "paper", {"kind": "lars", "momentum": 0.5, "eta": 0.1}, 0.0, {}),
    ("lars_clip_norm", "paper", {"kind": "lars", "momentum": 0.9, "eta": 0.1}, 0.01, {"clip_norm": 0.8}),
    ("larc", "paper", {"kind": "lars", "momentum": 0.9, "eta": 0.1, "larc": True}, 0.01, {}),
]
EMA_DECAYS = [0.9999, 0.3]


def fill_plain(n, k, scale, shift):
    """Returns fill() of golden.py rounded to float32, without torch."""
    values = [((i * 2654435761 + k * 40503) % 2**32 >> 8) / 2**24 * 2 * scale - scale + shift for i in range(n)]
    return list(struct.unpack(f"{n}f", struct.pack(f"{n}f", *values)))


def tensors(specs):
    return {name: fill_plain(n, **specs[name]) for name, n in TENSORS.items()}


def by_torch(keys, weight_decay, clip, dtype):
    """Returns the parameters after each step, gradient norms before clipping, and slots after the last step."""
    import torch

    timm = __import__("timm.optim").optim if keys["kind"] in ("lion", "lamb") else None
    w = {name: torch.nn.Parameter(torch.tensor(v, dtype=torch.float32).to(dtype)) for name, v in tensors(START).items()}
    options = {k: v for k, v in keys.items() if k not in ("kind", "beta1", "beta2")}
    if keys["kind"] == "lamb":
        options |= {"max_grad_norm": None, "eps": keys.get("eps", 1e-6)}
    if keys["kind"] in ("adam", "adamw", "lamb"):
        options["betas"] = (keys.get("beta1", 0.9), keys.get("beta2", 0.999))
    if keys["kind"] == "lion":
        options["betas"] = (keys.get("beta1", 0.9), keys.get("beta2", 0.99))
    kind = {"lion": timm and timm.Lion, "lamb": timm and timm.Lamb, "sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "rmsprop": torch.optim.RMSprop, "adagrad": torch.optim.Adagrad}[keys["kind"]]
    opt = kind(w.values(), lr=1.0, weight_decay=weight_decay, **options)
    steps, norms = [], []
    for lr, spec in zip(LRS, GRADIENTS):
        opt.param_groups[0]["lr"] = lr
        for name, g in tensors(spec).items():
            w[name].grad = torch.tensor(g, dtype=torch.float32).to(dtype)
        if "clip_norm" in clip:
            norms.append(torch.nn.utils.clip_grad_norm_(w.values(), clip["clip_norm"]).item())
        if "clip_value" in clip:
            torch.nn.utils.clip_grad_value_(w.values(), clip["clip_value"])
        opt.step()
        steps.append([v for p in w.values() for v in p.detach().double().tolist()])
    names = [k for k, v in opt.state[w["a"]].items() if k != "step" and v is not None]
    slots = {k: [v for p in w.values() for v in opt.state[p][k].double().tolist()] for k in names}
    return steps, norms, slots


def by_tf(keys, dtype):
    """Returns the same values as by_torch, from TensorFlow 1's optimizer. Slots have PyTorch's names."""
    import tensorflow as tf

    v1 = tf.compat.v1
    with tf.Graph().as_default(), v1.Session() as session:
        w = [v1.Variable(tf.constant(v, dtype), use_resource=False) for v in tensors(START).values()]
        g = [v1.placeholder(dtype, [n]) for n in TENSORS.values()]
        lr = v1.placeholder(dtype, [])
        opt = v1.train.RMSPropOptimizer(lr, decay=keys.get("alpha", 0.9), momentum=keys.get("momentum", 0.0), epsilon=keys.get("eps", 1e-10), centered=keys.get("centered", False))
        train = opt.apply_gradients(zip(g, w))
        session.run(v1.global_variables_initializer())
        steps = []
        for rate, spec in zip(LRS, GRADIENTS):
            session.run(train, dict(zip(g, tensors(spec).values())) | {lr: rate})
            steps.append([float(x) for v in session.run(w) for x in v])
        names = {"rms": "square_avg", "momentum": "momentum_buffer"} | ({"mg": "grad_avg"} if keys.get("centered") else {})
        slots = {ours: [float(x) for v in w for x in session.run(opt.get_slot(v, theirs))] for theirs, ours in names.items()}
    return steps, [], slots


def ema_by_tf(decay):
    """Averages of `a` after each of ten steps. The value at step t is the formula of gradient t, and TensorFlow's num_updates is t from 1."""
    import tensorflow as tf

    v1 = tf.compat.v1
    with tf.Graph().as_default(), v1.Session() as session:
        w = v1.Variable(tf.constant(tensors(START)["a"], tf.float64), use_resource=False)
        step = v1.Variable(tf.constant(0, tf.int64), use_resource=False)
        value = v1.placeholder(tf.float64, [TENSORS["a"]])
        with tf.control_dependencies([v1.assign(w, value), v1.assign_add(step, 1)]):
            ema = tf.train.ExponentialMovingAverage(decay, num_updates=step.read_value())
            update = ema.apply([w])
        session.run([w.initializer, step.initializer])  # the averages start from w, so w comes first
        session.run(v1.global_variables_initializer())
        out = []
        for spec in GRADIENTS:
            session.run(update, {value: tensors(spec)["a"]})
            out.append([float(x) for x in session.run(ema.average(w))])
    return out


def lars_by_torch(keys, weight_decay, clip, dtype):
    """Algorithm 1 of the paper over tensors. torch clips the gradients."""
    import torch

    w = {name: torch.tensor(v, dtype=torch.float32).to(dtype) for name, v in tensors(START).items()}
    velocity = {name: torch.zeros_like(v) for name, v in w.items()}
    steps, norms = [], []
    for lr, spec in zip(LRS, GRADIENTS):
        holders = {name: torch.nn.Parameter(w[name].clone()) for name in w}
        for name, g in tensors(spec).items():
            holders[name].grad = torch.tensor(g, dtype=torch.float32).to(dtype)
        if "clip_norm" in clip:
            norms.append(torch.nn.utils.clip_grad_norm_(holders.values(), clip["clip_norm"]).item())
        for name, holder in holders.items():
            g = holder.grad
            local = keys["eta"] * torch.linalg.vector_norm(w[name]) / (torch.linalg.vector_norm(g) + weight_decay * torch.linalg.vector_norm(w[name]))
            rate = torch.clamp(local, max=lr) if keys.get("larc") else lr * local
            velocity[name] = keys["momentum"] * velocity[name] + rate * (g + weight_decay * w[name])
            w[name] = w[name] - velocity[name]
        steps.append([v for p in w.values() for v in p.double().tolist()])
    return steps, norms, {"momentum_buffer": [v for p in velocity.values() for v in p.double().tolist()]}


def corrected_by_torch(keys, weight_decay, clip, dtype):
    """Momentum correction of Goyal et al. 2017 (arXiv 1706.02677, remark 2): a buffer that contains the rate is multiplied by the
    ratio of the rates when the rate changes. The rules are the LARS of the paper and TensorFlow 1's RMSProp."""
    import torch

    w = {name: torch.tensor(v, dtype=torch.float32).to(dtype) for name, v in tensors(START).items()}
    velocity = {name: torch.zeros_like(v) for name, v in w.items()}
    square = {name: torch.ones_like(v) for name, v in w.items()}
    steps, before = [], LRS[0]
    for lr, spec in zip(LRS, GRADIENTS):
        for name, values in tensors(spec).items():
            g = torch.tensor(values, dtype=torch.float32).to(dtype)
            long = torch.linalg.vector_norm
            if keys["kind"] == "lars":
                local = keys["eta"] * long(w[name]) / (long(g) + weight_decay * long(w[name]))
                move = (torch.clamp(local, max=lr) if keys.get("larc") else lr * local) * (g + weight_decay * w[name])
            else:
                d = g + weight_decay * w[name]
                square[name] = keys["alpha"] * square[name] + (1 - keys["alpha"]) * d * d
                move = lr * d / torch.sqrt(square[name] + keys["eps"])
            velocity[name] = keys["momentum"] * (lr / before) * velocity[name] + move
            w[name] = w[name] - velocity[name]
        before = lr
        steps.append([v for p in w.values() for v in p.double().tolist()])
    return steps, [], {}


def by_hand(keys, wd, clip):
    """Returns the same values as by_torch, from each update rule in plain Python floats."""
    kind, m = keys["kind"], keys.get("momentum", 0.0)
    tf = keys.get("form") == "tf"
    alpha, eps = keys.get("alpha", 0.9 if tf else 0.99), keys.get("eps", 1e-10 if tf or kind == "adagrad" else 1e-6 if kind == "lamb" else 1e-8)
    b1, b2 = keys.get("beta1", 0.9), keys.get("beta2", 0.99 if kind == "lion" else 0.999)
    w, steps, start = tensors(START), [], 1.0 if tf else keys.get("initial_accumulator_value", 0.0)
    state = {name: [[start, 0.0, 0.0] for _ in v] for name, v in w.items()}
    norm = lambda v: math.sqrt(sum(x * x for x in v))
    for t, (lr, spec) in enumerate(zip(LRS, GRADIENTS), 1):
        gs = tensors(spec)
        total = norm([x for v in gs.values() for x in v])
        scale = min(1.0, clip.get("clip_norm", math.inf) / (total + 1e-6))
        limit = clip.get("clip_value", math.inf)
        for name, g in gs.items():
            g = [max(-limit, min(limit, x * scale)) for x in g]
            if kind == "lars":
                local = keys["eta"] * norm(w[name]) / (norm(g) + wd * norm(w[name]))
                rate = min(lr, local) if keys.get("larc") else lr * local
            outside = "momentum_correction" in keys
            if kind == "lamb":
                for i, s in enumerate(state[name]):
                    s[0], s[1] = b1 * s[0] + (1 - b1) * g[i], b2 * s[1] + (1 - b2) * g[i] ** 2
                    s[2] = s[0] / (1 - b1**t) / (math.sqrt(s[1] / (1 - b2**t)) + eps) + wd * w[name][i]
                long = norm([s[2] for s in state[name]])
                trust = norm(w[name]) / long if wd or keys.get("always_adapt") else 1.0
                w[name] = [x - lr * trust * s[2] for x, s in zip(w[name], state[name])]
                continue
            for i, s in enumerate(state[name]):
                x, d = w[name][i], g[i] + wd * w[name][i]
                if kind == "sgd":
                    s[0] = m * s[0] + d
                    x -= lr * (d + m * s[0] if keys.get("nesterov") else s[0])
                elif kind == "lars" and outside:
                    # at a rate of 0 nothing changes
                    s[0] = m * s[0] + (rate / lr if lr else 0.0) * d
                    x -= lr * s[0]
                elif kind == "lars":
                    s[0] = m * s[0] + rate * d
                    x -= s[0]
                elif kind == "lion":
                    c = b1 * s[0] + (1 - b1) * g[i]
                    x = x * (1 - lr * wd) - lr * ((c > 0) - (c < 0))
                    s[0] = b2 * s[0] + (1 - b2) * g[i]
                elif kind == "adagrad":
                    s[0] += d * d
                    x -= lr / (1 + (t - 1) * keys.get("lr_decay", 0.0)) * d / (math.sqrt(s[0]) + eps)
                elif kind == "rmsprop":
                    s[0] = alpha * s[0] + (1 - alpha) * d * d
                    s[2] = alpha * s[2] + (1 - alpha) * d
                    v = s[0] - s[2] ** 2 if keys.get("centered") else s[0]
                    within = tf and not outside
                    s[1] = m * s[1] + ((lr if within else 1.0) * d / math.sqrt(v + eps) if tf else d / (math.sqrt(v) + eps))
                    x -= s[1] if within else lr * s[1]
                else:
                    if kind == "adamw":
                        x, d = x * (1 - lr * wd), g[i]
                    s[0], s[1] = b1 * s[0] + (1 - b1) * d, b2 * s[1] + (1 - b2) * d * d
                    x -= lr * s[0] / (1 - b1**t) / (math.sqrt(s[1] / (1 - b2**t)) + eps)
                w[name][i] = x
        steps.append([x for v in w.values() for x in v])
    return steps


def record(name, by, keys, weight_decay, clip, runs):
    """Returns an entry after checking it against the update rule."""
    from golden import close, digits

    (steps, norms, slots), single = runs
    for t, want in enumerate(by_hand(keys, weight_decay, clip)):
        # TensorFlow's Python code passes decay, momentum and eps to its kernels as float32, regardless of the type of the variables
        close(steps[t], want, *((1e-7, 1e-8) if by == "tf" else (1e-12, 1e-13)), f"{name}: step {t + 1}")
    error = max(abs(a - b) for s, d in zip(single[0], steps) for a, b in zip(s, d))
    e = {"name": name, "by": by, "optimizer": keys | {"weight_decay": weight_decay} | clip, "params_after": [digits(s) for s in steps]}
    e |= {"float32_error": float(f"{error:.2g}"), "slots_after": {k: digits(v) for k, v in slots.items()}}
    return e | ({"grad_norms": digits(norms)} if norms else {})


def torch_entry(name, by, keys, weight_decay, clip):
    """Returns an entry for a run with PyTorch, or with the formula of a paper."""
    import torch

    of_paper = corrected_by_torch if "momentum_correction" in keys else lars_by_torch
    run = of_paper if by == "paper" else by_torch
    runs = [run(keys, weight_decay, clip, dtype) for dtype in (torch.float64, torch.float32)]
    return record(name, by, keys, weight_decay, clip, runs)


def tf_part(path):
    """Writes TensorFlow's numbers to a separate file, because golden.py needs torch, which may be missing."""
    import tensorflow as tf

    runs = {r[0]: [by_tf(r[2], dtype) for dtype in (tf.float64, tf.float32)] for r in RUNS if r[1] == "tf"}
    emas = [{"decay": d, "averages": ema_by_tf(d)} for d in EMA_DECAYS]
    pathlib.Path(path).write_text(json.dumps({"tensorflow": tf.__version__, "runs": runs, "emas": emas}))


def main():
    here = pathlib.Path(__file__).parent
    args = [a for a in sys.argv[1:] if a != "--tf"]
    tf_file = here / "optim_tf.json"
    if "--tf" in sys.argv:
        return tf_part(args[0] if args else tf_file)
    if sys.argv[1:2] == ["--only"]:
        from golden import renew

        return renew(here / "optim.json", "runs", [torch_entry(*run) for run in RUNS if run[0] in sys.argv[2:]])
    import torch
    from golden import FORMULA, close, digits, example, write
    from golden import fill_plain as formula

    out = args[0] if args else here / "optim.json"
    theirs = json.loads(tf_file.read_text())
    entries = [record(*run, theirs["runs"][run[0]]) if run[1] == "tf" else torch_entry(*run) for run in RUNS]
    for ema in theirs["emas"]:
        average = tensors(START)["a"]
        for t, (spec, got) in enumerate(zip(GRADIENTS, ema["averages"]), 1):
            d = min(ema["decay"], (1 + t) / (10 + t))
            average = [d * a + (1 - d) * v for a, v in zip(average, tensors(spec)["a"])]
            close(got, average, 1e-7, 1e-7, f"average with decay {ema['decay']}, step {t}")
        ema["averages"] = [digits(a) for a in ema["averages"]]
    head = {"torch": torch.__version__, "tensorflow": theirs["tensorflow"], "fill": FORMULA, "fill_example": example(formula)}
    head |= {"sizes": TENSORS, "start": START, "gradients": GRADIENTS, "lrs": LRS, "emas": theirs["emas"]}
    write(out, head, "runs", entries)
    print(f"{len(entries)} runs, {pathlib.Path(out).stat().st_size} bytes: {out}")


if __name__ == "__main__":
    main()
