"""Writes ops.json: result and gradients of each operation from PyTorch, on small inputs from the formula in golden.py.

    python ops.py [OUT.json]        (default: ops.json in this folder)
    python ops.py --only NAME ...   (replaces only these cases in ops.json)

The numbers are PyTorch's in float64 on inputs that are exact in float32, so their rounding errors are negligible. `float32_error` is the
largest absolute difference of PyTorch's float32 results from them, as a measure for tolerances. Before a case is written, its forward
result is checked against plain.py, and its gradients against central differences.
"""
import math
import pathlib
import sys

import torch
import torch.nn.functional as F

import plain
from golden import FORMULA, close, digits, example, fill, fill_plain, renew, write

# Roles shift the sequence of fill() by 0.382 of its period each (golden.py), so that the tensors of a case differ.
ROLE = {name: 40507 * (i + 1) for i, name in enumerate(["x", "weight", "bias", "dy", "residual", "running_mean", "running_var", "third"])}
INPUTS = ("x", "residual", "third")
NO_PAD = {"top": 0, "bottom": 0, "left": 0, "right": 0}
CASES = []


def spec(role, shape, scale=1.0, shift=0.0):
    return {"shape": list(shape), "k": ROLE[role], "scale": scale, "shift": shift}


def make(s, dtype):
    return fill(s["shape"], s["k"], s["scale"], s["shift"]).to(dtype)


def evaluate(case, forward, dtype, nudge=None):
    """Runs a case in `dtype` and returns the results by name. `nudge` = (name of the input, direction * step) for the difference quotient."""
    names = [n for n in INPUTS if n in case]
    t = {n: make(case[n], dtype) for n in names} | {n: make(s, dtype) for n, s in case.get("params", {}).items()}
    if nudge:
        t[nudge[0]] = t[nudge[0]] + nudge[1]
    for v in t.values():
        v.requires_grad_(True)
    buffers = {n: make(s, dtype) for n, s in case.get("buffers", {}).items()}
    y = forward(t | buffers)
    out = {"y": y.detach()} | {n: b.detach() for n, b in buffers.items()}
    if "dy" in case or case["op"] == "softmax_cross_entropy":
        dy = make(case["dy"], dtype) if "dy" in case else torch.ones((), dtype=dtype)
        out["loss"] = (y * dy).sum().detach()
        y.backward(dy)
        out["grads"] = {n: v.grad for n, v in t.items()}
    return out


def check_gradients(case, forward, result):
    """Compares <gradient, direction> with the central difference of <y, dy> along that direction, in float64."""
    for name, g in result["grads"].items():
        v, eps = fill(g.shape, 77777, 1.0, 0.1).double(), 1e-6
        up, down = (evaluate(case, forward, torch.float64, (name, s * eps * v))["loss"] for s in (1, -1))
        close([((up - down) / (2 * eps)).item()], [(g * v).sum().item()], 1e-6, 1e-6, f"{case['name']}: d{name}")


def add(name, op, forward, witness, config=None, **inputs):
    """Evaluates, checks and appends a case. `witness(lists)` computes the forward result with plain.py, as a flat list."""
    case = {"name": name, "op": op, "config": config or {}} | inputs
    if "dy" in inputs:
        shape = list(evaluate({k: v for k, v in case.items() if k != "dy"}, forward, torch.float64)["y"].shape)
        case["dy"] = spec("dy", shape)
    r64, r32 = (evaluate(case, forward, d) for d in (torch.float64, torch.float32))
    lists = {n: make(s, torch.float64).flatten().tolist() for n, s in
             {k: v for k, v in case.items() if k in INPUTS}.items()}
    lists |= {n: make(s, torch.float64).flatten().tolist() for g in ("params", "buffers") for n, s in case.get(g, {}).items()}
    close(r64["y"].flatten().tolist(), witness(lists), 1e-12, 1e-11, f"{name}: y")
    case["y_shape"], case["y"] = list(r64["y"].shape), digits(r64["y"])
    error = {"y": (r32["y"].double() - r64["y"]).abs().max().item()}
    for n in case.get("buffers", {}) if case["config"].get("mode") == "train" else []:
        case[n + "_after"] = digits(r64[n])
    if "grads" in r64:
        check_gradients(case, forward, r64)
        for n, g in r64["grads"].items():
            error["d" + n] = (r32["grads"][n].double() - g).abs().max().item()
        case["dx"] = digits(r64["grads"].pop("x"))
        for n in INPUTS[1:]:
            if n in r64["grads"]:
                case["d" + n] = digits(r64["grads"].pop(n))
        if r64["grads"]:
            case["dparams"] = {n: digits(g) for n, g in r64["grads"].items()}
    case["float32_error"] = {n: float(f"{e:.2g}") for n, e in error.items()}
    CASES.append(case)


def rectify(y, on, name):
    """Applies ReLU if `on` is set. Refuses values so near to 0 that rounding could change their side, because the case would be useless."""
    if not on:
        return y
    nearest = y.detach().abs().min().item()
    assert nearest > 4e-6, f"{name}: a value {nearest} from ReLU's corner: change its shape or scale"
    return y.relu()


def positive(values, on):
    return [max(v, 0.0) for v in values] if on else values


def pads(top=0, bottom=0, left=0, right=0):
    return {"top": top, "bottom": bottom, "left": left, "right": right}


def torch_pads(p):
    return (p["left"], p["right"], p["top"], p["bottom"])


def conv(name, x, weight, bias=False, stride=(1, 1), pad=NO_PAD, groups=1, relu=False, dilation=(1, 1)):
    fan_in = weight[1] * weight[2] * weight[3]
    params = {"weight": spec("weight", weight, fan_in**-0.5)} | ({"bias": spec("bias", weight[:1], 0.5)} if bias else {})

    def forward(t):
        y = F.conv2d(F.pad(t["x"], torch_pads(pad)), t["weight"], t.get("bias"), stride, 0, dilation, groups)
        return rectify(y, relu, name)

    def witness(v):
        return positive(plain.conv(v["x"], x, v["weight"], weight, v.get("bias"), stride, pad, groups, dilation)[0], relu)

    config = {"stride": list(stride), "pad": pad, "groups": groups, "bias": bias, "relu": relu}
    config |= {"dilation": list(dilation)} if dilation != (1, 1) else {}
    add(name, "conv", forward, witness, config, x=spec("x", x), params=params, dy=None)


def norm(name, x, mode="train", relu=False, residual=False, scale=1.0, shift=0.5, eps=1e-5, momentum=0.1, groups=1):
    c = x[1]
    inputs = {
        "x": spec("x", x, scale, shift),
        "params": {"weight": spec("weight", [c], 0.5, 1.0), "bias": spec("bias", [c], 0.5)},
        "buffers": {"running_mean": spec("running_mean", [c], 0.5, shift), "running_var": spec("running_var", [c], 0.5, 1.0)},
    }
    inputs |= {"residual": spec("residual", x)} if residual else {}
    inputs |= {"dy": None} if mode == "train" else {}

    # group g of the batch begins at sample g n / groups, rounded down
    cuts = [x[0] * g // groups for g in range(groups + 1)]

    def forward(t):
        y = F.batch_norm(t["x"], t["running_mean"], t["running_var"], t["weight"], t["bias"], mode == "train", momentum, eps)
        if groups > 1:
            # the running statistics are computed over the whole batch
            parts = [t["x"][a:b] for a, b in zip(cuts, cuts[1:])]
            y = torch.cat([F.batch_norm(part, None, None, t["weight"], t["bias"], True, 0.0, eps) for part in parts])
        return rectify(y + t["residual"] if residual else y, relu, name)

    def witness(v):
        y, each = [], c * x[2] * x[3]
        for a, b in zip(cuts, cuts[1:]):
            part, shape = v["x"][a * each : b * each], [b - a, *x[1:]]
            stats = plain.moments(part, shape) if mode == "train" else list(zip(v["running_mean"], v["running_var"]))
            y += plain.norm(part, shape, stats, v["weight"], v["bias"], eps)
        return positive([a + b for a, b in zip(y, v["residual"])] if residual else y, relu)

    config = {"mode": mode, "eps": eps, "momentum": momentum, "relu": relu, "residual": residual}
    config |= {"bn_groups": groups} if groups > 1 else {}
    add(name, "norm", forward, witness, config, **inputs)
    if mode == "train":
        case, n = CASES[-1], x[0] * x[2] * x[3]
        before = {b: make(s, torch.float64).tolist() for b, s in case["buffers"].items()}
        stats = plain.moments(make(case["x"], torch.float64).flatten().tolist(), x)
        for b, new in (("running_mean", [m for m, _ in stats]), ("running_var", [v * n / (n - 1) for _, v in stats])):
            want = [(1 - momentum) * o + momentum * m for o, m in zip(before[b], new)]
            close(case[b + "_after"], want, 1e-8, 1e-8, f"{name}: {b}")


def pool(name, kind, x, kernel, stride, pad=NO_PAD, ceil=False, count_pad=False):
    symmetric = pad["top"] == pad["bottom"] and pad["left"] == pad["right"]

    def forward(t):
        v, p = t["x"], (pad["top"], pad["left"])
        if not symmetric:
            assert kind == "max" and not ceil
            v, p = F.pad(v, torch_pads(pad), value=float("-inf")), (0, 0)
        if kind == "max":
            return F.max_pool2d(v, kernel, stride, p, 1, ceil)
        return F.avg_pool2d(v, kernel, stride, p, ceil, count_pad)

    def witness(v):
        return plain.pool(v["x"], x, kind, kernel, stride, pad, ceil, count_pad)[0]

    config = {"kernel": list(kernel), "stride": list(stride), "pad": pad, "ceil": ceil}
    config |= {"count_include_pad": count_pad} if kind == "avg" else {}
    add(name, kind + "_pool", forward, witness, config, x=spec("x", x), dy=None)


def linear(name, x, out, relu=False):
    params = {"weight": spec("weight", [out, x[1]], x[1] ** -0.5), "bias": spec("bias", [out], 0.5)}
    add(
        name, "linear",
        lambda t: rectify(F.linear(t["x"], t["weight"], t["bias"]), relu, name),
        lambda v: positive(plain.linear(v["x"], x, v["weight"], [out, x[1]], v["bias"]), relu),
        {"bias": True, "relu": relu}, x=spec("x", x), params=params, dy=None,
    )  # fmt: skip


def lrn(name, x, size, alpha, beta, k, scale):
    """alpha is defined as in PyTorch and Caffe: the formula divides it by size. TensorFlow's is alpha / size."""
    add(
        name, "lrn",
        lambda t: F.local_response_norm(t["x"], size, alpha, beta, k),
        lambda v: plain.lrn(v["x"], x, size, alpha, beta, k),
        {"size": size, "alpha": alpha, "beta": beta, "k": k}, x=spec("x", x, scale), dy=None,
    )  # fmt: skip


def cross_entropy(name, x, smoothing, scale):
    labels = [i * 7 % x[1] for i in range(x[0])]
    add(
        name, "softmax_cross_entropy",
        lambda t: F.cross_entropy(t["x"], torch.tensor(labels), label_smoothing=smoothing),
        lambda v: [plain.cross_entropy(v["x"], x, labels, smoothing)[0]],
        {"label_smoothing": smoothing, "labels": labels}, x=spec("x", x, scale),
    )  # fmt: skip
    rows = make(CASES[-1]["x"], torch.float64).flatten().tolist()
    close(CASES[-1]["dx"], plain.cross_entropy(rows, x, labels, smoothing)[1], 1e-8, 1e-8, f"{name}: dx")


def convolutions():
    one, two = pads(1, 1, 1, 1), pads(2, 2, 2, 2)
    conv("conv_3x3_pad1", [2, 16, 3, 4], [16, 16, 3, 3], pad=one)
    conv("conv_3x3_pad1_from_3_channels", [2, 3, 5, 6], [16, 3, 3, 3], pad=one)
    conv("conv_3x3_pad1_relu", [2, 3, 6, 5], [8, 3, 3, 3], pad=one, relu=True)
    conv("conv_3x3_pad1_bias_relu", [2, 5, 6, 5], [6, 5, 3, 3], bias=True, pad=one, relu=True)
    conv("conv_5x5_pad2_bias", [2, 3, 6, 5], [7, 3, 5, 5], bias=True, pad=two)
    conv("conv_5x5_valid_from_1_channel", [2, 1, 8, 7], [20, 1, 5, 5], bias=True)
    conv("conv_2x2_valid_20_to_50", [2, 20, 3, 4], [50, 20, 2, 2])
    conv("conv_3x3_stride2_pad_after_only", [2, 3, 8, 6], [8, 3, 3, 3], stride=(2, 2), pad=pads(0, 1, 0, 1))
    conv("conv_3x3_stride2_pad1", [2, 16, 5, 6], [4, 16, 3, 3], stride=(2, 2), pad=one)
    conv("conv_3x3_stride2_pad1_odd", [2, 3, 7, 9], [5, 3, 3, 3], stride=(2, 2), pad=one)
    conv("conv_4x3_four_pads_two_strides", [2, 3, 9, 8], [6, 3, 4, 3], bias=True, stride=(2, 1), pad=pads(2, 1, 0, 1))
    conv("conv_3x3_groups2", [2, 16, 4, 3], [16, 8, 3, 3], pad=one, groups=2)
    conv("conv_3x3_groups4_bias", [2, 8, 5, 4], [12, 2, 3, 3], bias=True, pad=one, groups=4)
    conv("conv_1x1", [2, 16, 2, 5], [20, 16, 1, 1])
    conv("conv_1x1_stride2", [2, 8, 5, 6], [16, 8, 1, 1], stride=(2, 2))
    conv("conv_1x7", [2, 8, 4, 9], [16, 8, 1, 7], pad=pads(0, 0, 3, 3))
    conv("conv_7x1_bias", [2, 8, 9, 4], [6, 8, 7, 1], bias=True, pad=pads(3, 3, 0, 0))
    conv("conv_3x3_dilation2", [2, 8, 7, 6], [8, 8, 3, 3], pad=two, dilation=(2, 2))
    conv("conv_3x2_dilation_1_3_stride2", [2, 3, 7, 9], [5, 3, 3, 2], bias=True, stride=(2, 2), pad=pads(0, 1, 1, 2), dilation=(1, 3))
    conv("conv_depthwise_3x3", [2, 16, 5, 4], [16, 1, 3, 3], pad=one, groups=16)
    conv("conv_depthwise_5x5_stride2_bias", [2, 12, 7, 6], [12, 1, 5, 5], bias=True, stride=(2, 2), pad=pads(1, 2, 2, 2), groups=12)
    conv("conv_depthwise_twice_3x3_dilation2", [2, 8, 6, 5], [16, 1, 3, 3], pad=two, groups=8, dilation=(2, 2))


def norms():
    norm("norm_train_3_channels", [5, 3, 5, 4])
    norm("norm_train_16_channels", [5, 16, 3, 2])
    norm("norm_train_20_channels_relu", [5, 20, 2, 2], relu=True)
    norm("norm_train_3_channels_relu", [5, 3, 5, 4], relu=True)
    norm("norm_train_16_channels_residual_relu", [5, 16, 3, 2], relu=True, residual=True)
    norm("norm_train_20_channels_residual_relu", [3, 20, 3, 2], relu=True, residual=True)
    norm("norm_train_3_channels_residual", [5, 3, 3, 5], residual=True)
    norm("norm_train_mean_far_above_deviation", [5, 3, 5, 4], scale=0.5, shift=50.0)
    norm("norm_train_eps_1e-3_momentum_0.01", [4, 3, 5, 5], eps=1e-3, momentum=0.01)
    norm("norm_2_groups_3_channels", [6, 3, 5, 4], groups=2)
    norm("norm_2_uneven_groups_16_channels_relu", [5, 16, 3, 2], relu=True, groups=2)
    norm("norm_3_uneven_groups_20_channels_residual_relu", [7, 20, 3, 2], relu=True, residual=True, groups=3)
    norm("norm_eval_3_channels", [5, 3, 4, 5], mode="eval")
    norm("norm_eval_16_channels_relu", [5, 16, 3, 2], mode="eval", relu=True)
    norm("norm_eval_20_channels_residual_relu", [3, 20, 2, 3], mode="eval", relu=True, residual=True)


def pools():
    one = pads(1, 1, 1, 1)
    pool("max_pool_2_2", "max", [2, 5, 8, 6], (2, 2), (2, 2))
    pool("max_pool_2_2_odd_input", "max", [2, 3, 7, 9], (2, 2), (2, 2))
    pool("max_pool_3_2_same_even_input", "max", [2, 4, 8, 6], (3, 3), (2, 2), pads(0, 1, 0, 1))
    pool("max_pool_3_2_same_mixed_input", "max", [2, 3, 7, 8], (3, 3), (2, 2), pads(1, 1, 0, 1))
    pool("max_pool_3_2_pad1", "max", [2, 5, 8, 7], (3, 3), (2, 2), one)
    pool("max_pool_3_2_ceil", "max", [2, 4, 8, 6], (3, 3), (2, 2), ceil=True)
    pool("max_pool_3_2_pad1_ceil", "max", [2, 3, 8, 6], (3, 3), (2, 2), one, ceil=True)
    pool("max_pool_3_2_ceil_larger_than_input", "max", [2, 3, 2, 3], (3, 3), (2, 2), ceil=True)
    pool("max_pool_2_2_pad1_ceil_last_window_dropped", "max", [2, 3, 7, 5], (2, 2), (2, 2), one, ceil=True)
    pool("max_pool_3_1_pad1", "max", [2, 3, 5, 6], (3, 3), (1, 1), one)
    pool("avg_pool_2_2", "avg", [2, 3, 8, 6], (2, 2), (2, 2))
    for count in (True, False):
        tail = "count_pad" if count else "no_count_pad"
        pool(f"avg_pool_3_2_pad1_{tail}", "avg", [2, 3, 7, 8], (3, 3), (2, 2), one, count_pad=count)
        pool(f"avg_pool_3_2_pad1_ceil_{tail}", "avg", [2, 3, 8, 6], (3, 3), (2, 2), one, ceil=True, count_pad=count)
        pool(f"avg_pool_3_2_ceil_{tail}", "avg", [2, 3, 6, 8], (3, 3), (2, 2), ceil=True, count_pad=count)
        pool(f"avg_pool_3_2_ceil_larger_than_input_{tail}", "avg", [2, 3, 1, 2], (3, 3), (3, 2), ceil=True, count_pad=count)
        pool(f"avg_pool_3_1_pad1_{tail}", "avg", [2, 3, 5, 6], (3, 3), (1, 1), one, count_pad=count)
    x = [2, 20, 5, 3]
    add(
        "global_avg_pool", "global_avg_pool",
        lambda t: t["x"].mean((2, 3), keepdim=True),
        lambda v: plain.pool(v["x"], x, "avg", x[2:], (1, 1), NO_PAD)[0],
        x=spec("x", x), dy=None,
    )  # fmt: skip


def others():
    linear("linear_bias", [5, 37], 10)
    linear("linear_bias_relu", [4, 30], 20, relu=True)
    linear("linear_one_sample", [1, 16], 7)
    four = [2, 5, 4, 3]
    add("relu", "relu", lambda t: rectify(t["x"], True, "relu"), lambda v: positive(v["x"], True), x=spec("x", four), dy=None)
    add("tanh", "tanh", lambda t: t["x"].tanh(), lambda v: [math.tanh(a) for a in v["x"]], x=spec("x", four, 3.0), dy=None)
    add("silu", "silu", lambda t: F.silu(t["x"]), lambda v: [a / (1 + math.exp(-a)) for a in v["x"]], x=spec("x", four, 4.0), dy=None)
    lrn("lrn_size9_cifarnet", [2, 12, 3, 5], 9, 0.001, 0.75, 1.0, scale=20.0)
    lrn("lrn_size9_strong", [2, 16, 3, 4], 9, 1.0, 0.75, 1.0, scale=3.0)
    lrn("lrn_size5_alexnet", [2, 8, 3, 5], 5, 1e-4, 0.75, 2.0, scale=100.0)
    lrn("lrn_fewer_channels_than_window", [2, 3, 3, 5], 9, 0.5, 0.75, 1.0, scale=3.0)
    for name, shape, grow in (("shortcut_a", [2, 4, 8, 6], 4), ("shortcut_a_odd_size", [2, 16, 3, 3], 16)):
        half = grow // 2
        add(
            name, "shortcut_a",
            lambda t: F.pad(t["x"][:, :, ::2, ::2], (0, 0, 0, 0, half, grow - half)),
            lambda v: plain.shortcut_a(v["x"], shape, 2, half, grow - half),
            {"stride": 2, "channels_before": half, "channels_after": grow - half}, x=spec("x", shape), dy=None,
        )  # fmt: skip
    for relu in (False, True):
        name = "add_relu" if relu else "add"
        add(
            name, "add",
            lambda t: rectify(t["x"] + t["residual"], relu, name),
            lambda v: positive([a + b for a, b in zip(v["x"], v["residual"])], relu),
            {"relu": relu}, x=spec("x", four), residual=spec("residual", four), dy=None,
        )  # fmt: skip
    cross_entropy("softmax_cross_entropy", [5, 10], 0.0, 3.0)
    cross_entropy("softmax_cross_entropy_smoothing", [5, 10], 0.1, 3.0)
    cross_entropy("softmax_cross_entropy_large_logits", [4, 7], 0.0, 150.0)
    cross_entropy("softmax_cross_entropy_smoothing_100_classes", [2, 100], 0.1, 5.0)


def logistic(a):
    return 1 / (1 + math.exp(-a))


def ramp(a):
    return min(max(a / 6 + 0.5, 0.0), 1.0)


def functions():
    """Element-wise functions of PyTorch: name, function, formula, half the width of the input interval, positions of corners."""
    relu6 = lambda a: min(max(a, 0.0), 6.0)
    bend = lambda a: math.sqrt(2 / math.pi) * (a + 0.044715 * a**3)
    table = [
        ("relu6", F.relu6, relu6, 9.0, (0, 6)),
        ("scale", lambda x: 0.17 * x, lambda a: 0.17 * a, 6.0, ()),
        ("sigmoid", torch.sigmoid, logistic, 6.0, ()),
        ("hard_sigmoid", F.hardsigmoid, ramp, 5.0, (-3, 3)),
        ("hard_swish", F.hardswish, lambda a: a * ramp(a), 5.0, (-3, 3)),
        ("gelu", F.gelu, lambda a: 0.5 * a * math.erfc(-a / math.sqrt(2)), 4.0, ()),
        ("gelu_tanh", lambda x: F.gelu(x, approximate="tanh"), lambda a: 0.5 * a * (1 + math.tanh(bend(a))), 4.0, ()),
    ]
    for name, function, formula, scale, corners in table:
        add(name, name, function_of_x(function, name, corners), lambda v: [formula(a) for a in v["x"]], x=spec("x", [2, 5, 4, 3], scale), dy=None)
    for slope in (0.01, 0.2):
        add(
            f"leaky_relu_{slope}", "leaky_relu",
            function_of_x(lambda x: F.leaky_relu(x, slope), "leaky_relu", (0,)),
            lambda v: [a if a > 0 else slope * a for a in v["x"]],
            {"slope": slope}, x=spec("x", [2, 5, 4, 3]), dy=None,
        )  # fmt: skip


def function_of_x(function, name, corners):
    def forward(t):
        for corner in corners:
            nearest = (t["x"] - corner).detach().abs().min().item()
            assert nearest > 4e-6, f"{name}: a value {nearest} from a corner: change its shape or scale"
        return function(t["x"])

    return forward


def joins():
    """Concatenations of two and three tensors, and products with a factor per channel."""
    for name, channels in (("concat_2", [16, 8]), ("concat_3_uneven", [5, 16, 3])):
        shapes = {n: [2, c, 3, 4] for n, c in zip(INPUTS, channels)}
        add(
            name, "concat",
            lambda t: torch.cat([t[n] for n in shapes], 1),
            lambda v: [a for b in range(2) for n, s in shapes.items() for a in v[n][b * s[1] * 12 : (b + 1) * s[1] * 12]],
            **{n: spec(n, s) for n, s in shapes.items()}, dy=None,
        )  # fmt: skip
    for name, x in (("multiply", [2, 16, 3, 4]), ("multiply_uneven", [3, 5, 4, 2])):
        plane = x[2] * x[3]
        add(
            name, "multiply",
            lambda t: t["x"] * t["residual"],
            lambda v: [a * v["residual"][i // plane] for i, a in enumerate(v["x"])],
            x=spec("x", x), residual=spec("residual", [x[0], x[1], 1, 1]), dy=None,
        )  # fmt: skip


def sample_norms():
    """Layer norm over the channels of each position, group norm, layer scale, and global max pooling."""
    for name, x, eps, scale, shift in (
        ("layer_norm", [2, 16, 3, 4], 1e-6, 1.0, 0.5),
        ("layer_norm_uneven", [3, 5, 4, 2], 1e-6, 1.0, 0.5),
        ("layer_norm_vector", [4, 12, 1, 1], 1e-3, 1.0, 0.0),
        ("layer_norm_mean_far_above_deviation", [2, 20, 3, 3], 1e-6, 0.5, 20.0),
    ):
        weights = {"weight": spec("weight", [x[1]], 0.5, 1.0), "bias": spec("bias", [x[1]], 0.5)}
        add(
            name, "layer_norm",
            lambda t: F.layer_norm(t["x"].permute(0, 2, 3, 1), [x[1]], t["weight"], t["bias"], eps).permute(0, 3, 1, 2),
            lambda v: plain.group_norm(v["x"], x, None, v["weight"], v["bias"], eps),
            {"eps": eps}, x=spec("x", x, scale, shift), params=weights, dy=None,
        )  # fmt: skip
    for name, x, groups in (("group_norm_4", [2, 16, 3, 4], 4), ("group_norm_1", [3, 5, 4, 2], 1), ("group_norm_uneven", [2, 9, 3, 3], 3)):
        weights = {"weight": spec("weight", [x[1]], 0.5, 1.0), "bias": spec("bias", [x[1]], 0.5)}
        add(
            name, "group_norm",
            lambda t: F.group_norm(t["x"], groups, t["weight"], t["bias"], 1e-5),
            lambda v: plain.group_norm(v["x"], x, groups, v["weight"], v["bias"], 1e-5),
            {"groups": groups, "eps": 1e-5}, x=spec("x", x, 1.0, 0.5), params=weights, dy=None,
        )  # fmt: skip
    for name, x in (("layer_scale", [2, 16, 3, 4]), ("layer_scale_uneven", [3, 5, 4, 2])):
        add(
            name, "layer_scale",
            lambda t: t["x"] * t["weight"][:, None, None],
            lambda v: [a * v["weight"][i // (x[2] * x[3]) % x[1]] for i, a in enumerate(v["x"])],
            x=spec("x", x), params={"weight": spec("weight", [x[1]], 0.5)}, dy=None,
        )  # fmt: skip
    for name, x, size, stride in (("blur_pool_3_2", [2, 5, 8, 7], 3, 2), ("blur_pool_5_2", [2, 3, 7, 6], 5, 2), ("blur_pool_3_1", [1, 3, 4, 5], 3, 1)):
        row = torch.tensor([math.comb(size - 1, i) / 2 ** (size - 1) for i in range(size)])
        pad, kernel = (stride + size - 2) // 2, row[:, None] * row
        add(
            name, "blur_pool",
            lambda t: F.conv2d(F.pad(t["x"], [pad] * 4, mode="reflect"), kernel.to(t["x"].dtype).expand(x[1], 1, size, size), None, stride, 0, 1, x[1]),
            lambda v: plain.blur(v["x"], x, kernel.flatten().tolist(), size, stride, pad),
            {"size": size, "stride": [stride, stride]}, x=spec("x", x), dy=None,
        )  # fmt: skip
    for name, x, heads in (("attention", [2, 48, 1, 9], 2), ("attention_uneven", [2, 45, 3, 4], 3)):
        each = x[1] // 3 // heads
        parts = lambda t: t["x"].reshape(x[0], 3, heads, each, x[2] * x[3]).transpose(3, 4).unbind(1)
        add(
            name, "attention",
            lambda t: F.scaled_dot_product_attention(*parts(t)).transpose(2, 3).reshape(x[0], heads * each, *x[2:]),
            lambda v: plain.attention(v["x"], x, heads),
            {"heads": heads}, x=spec("x", x, 2.0), dy=None,
        )  # fmt: skip
    windowed("attention_shifted_windows", [2, 24, 4, 6], 2, (2, 3), hidden=0, shift=(1, 2))
    windowed("attention_window_spans_rows", [1, 18, 3, 8], 3, (3, 4), hidden=0, shift=(1, 2), crop=(1, 0))
    windowed("attention_grid", [2, 12, 4, 6], 1, (2, 3), hidden=0, grid=True, scale=0.25)
    windowed("attention_cosine", [2, 24, 4, 4], 2, (2, 2), hidden=6, shift=(1, 1), cosine=True)
    for name, x, size in (("space_to_depth", [2, 8, 4, 6], 2), ("space_to_depth_odd", [1, 3, 5, 7], 2)):
        far = [-x[3] % size, -x[2] % size]
        add(
            name, "space_to_depth",
            lambda t: torch.cat([F.pad(t["x"], (0, far[0], 0, far[1]))[:, :, i::size, j::size] for j in range(size) for i in range(size)], 1),
            lambda v: plain.space_to_depth(v["x"], x, size),
            {"size": size}, x=spec("x", x), dy=None,
        )  # fmt: skip
    x = [2, 20, 5, 3]
    add(
        "global_max_pool", "global_max_pool",
        lambda t: t["x"].amax((2, 3), keepdim=True),
        lambda v: plain.pool(v["x"], x, "max", x[2:], (1, 1), NO_PAD)[0],
        x=spec("x", x), dy=None,
    )  # fmt: skip


def windowed(name, x, heads, window, hidden, shift=(0, 0), grid=False, crop=(0, 0), scale=None, cosine=False):
    """Attention in windows as in torchvision's Swin and MaxViT: `hidden` units of the position bias, or 0 for a table."""
    (rows, columns), (h, w), each = window, x[2:], x[1] // 3 // heads
    differences = (2 * rows - 1) * (2 * columns - 1)
    table = {"relative_position_bias_table": spec("weight", [differences, heads])}
    mlp = {"cpb_mlp.0.weight": spec("weight", [hidden, 2]), "cpb_mlp.0.bias": spec("bias", [hidden], 0.5)}
    mlp |= {"cpb_mlp.2.weight": spec("third", [heads, hidden], 0.2)}
    params = ({"logit_scale": spec("residual", [heads], 2.0, 3.0)} if cosine else {}) | (mlp if hidden else table)
    steps = [0 if size >= extent else step for step, size, extent in zip(shift, window, (h, w))]

    def divide(t):
        """Returns (n, windows, cells, channels), from rows that are rolled as in torchvision."""
        t = t.roll((-steps[0], -steps[1]), (2, 3))
        if grid:
            t = t.reshape(len(t), -1, rows, h // rows, columns, w // columns).permute(0, 3, 5, 2, 4, 1)
        else:
            t = t.reshape(len(t), -1, h // rows, rows, w // columns, columns).permute(0, 2, 4, 3, 5, 1)
        return t.flatten(3, 4).flatten(1, 2)

    def forward(t):
        q, k, v = divide(t["x"]).unflatten(3, (3, heads, each)).permute(3, 0, 1, 4, 2, 5)
        if cosine:
            factor = t["logit_scale"].clamp(max=math.log(100.0)).exp()[:, None, None]
            logits = F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).transpose(-2, -1) * factor
        else:
            logits = q @ k.transpose(-2, -1) * (scale or each**-0.5)
        i, j = (g.flatten() for g in torch.meshgrid(torch.arange(rows), torch.arange(columns), indexing="ij"))
        index = (i[:, None] - i + rows - 1) * (2 * columns - 1) + j[:, None] - j + columns - 1
        bias = t.get("relative_position_bias_table")
        if hidden:
            axes = [torch.arange(1 - size, size) / (size - 1) * 8 for size in window]
            r = torch.stack(torch.meshgrid(*axes, indexing="ij"), -1).reshape(-1, 2).to(t["x"].dtype)
            r = r.sign() * (r.abs() + 1).log2() / 3
            units = F.relu(F.linear(r, t["cpb_mlp.0.weight"], t["cpb_mlp.0.bias"]))
            bias = 16 * torch.sigmoid(F.linear(units, t["cpb_mlp.2.weight"]))
        logits = logits + bias[index].permute(2, 0, 1)
        if any(steps):
            part = torch.zeros(h, w)
            slices = [[slice(0, -size), slice(-size, -step), slice(-step, None)] for size, step in zip(window, steps)]
            for number, (a, b) in enumerate((a, b) for a in slices[0] for b in slices[1]):
                part[a, b] = number
            part = divide(part[None, None].roll(steps, (2, 3)))[0, :, :, 0]
            logits = logits - 100.0 * (part[:, None, :, None] != part[:, None, None]).to(logits.dtype)
        y = (logits.softmax(-1) @ v).transpose(2, 3).flatten(3).unflatten(2, (rows, columns)).unflatten(1, (h // rows, w // columns))
        y = y.permute(0, 5, 3, 1, 4, 2) if grid else y.permute(0, 5, 1, 3, 2, 4)
        return y.reshape(len(y), -1, h, w).roll(steps, (2, 3))[:, :, : h - crop[0], : w - crop[1]]

    def witness(v):
        rows_of = lambda flat: [flat[i : i + heads] for i in range(0, len(flat), heads)]
        mlp = [v.get(n) for n in ("cpb_mlp.0.weight", "cpb_mlp.0.bias", "cpb_mlp.2.weight")]
        table = plain.continuous_table(window, heads, *mlp) if hidden else rows_of(v["relative_position_bias_table"])
        return plain.windowed_attention(v["x"], x, heads, window, shift, grid, crop, scale, table, v.get("logit_scale"))

    config = {"heads": heads, "window": list(window), "shift": list(shift), "grid": grid, "crop": list(crop), "scale": scale}
    add(name, "attention", forward, witness, config | {"cosine": cosine, "hidden": hidden}, x=spec("x", x, 2.0), params=params, dy=None)


def main():
    here, only = pathlib.Path(__file__).parent / "ops.json", sys.argv[2:] if sys.argv[1:2] == ["--only"] else []
    for part in (convolutions, norms, pools, others, functions, joins, sample_norms):
        part()
    assert len({c["name"] for c in CASES}) == len(CASES)
    if only:
        return renew(here, "cases", [c for c in CASES if c["name"] in only])
    out = sys.argv[1] if len(sys.argv) > 1 else here
    write(out, {"torch": torch.__version__, "fill": FORMULA, "fill_example": example(fill_plain)}, "cases", CASES)
    print(f"{len(CASES)} cases, {pathlib.Path(out).stat().st_size} bytes: {out}")


if __name__ == "__main__":
    main()
