"""Writes the case `silu` of ops.json without PyTorch: the formula that PyTorch documents, x * sigmoid(x), in plain Python float64.

    python silu.py [OUT.json]       (default: ops.json beside this file)

The machine on which the case was added had no PyTorch. ops.py has the same case, and replaces this one when it is run: its numbers must
then agree with these to nine digits. `float32_error` is that of the formula with every step rounded to float32.
"""
import json
import math
import pathlib
import struct
import sys

X = {"shape": [2, 5, 4, 3], "k": 40507, "scale": 4.0, "shift": 0.0}
DY = {"shape": [2, 5, 4, 3], "k": 162028, "scale": 1.0, "shift": 0.0}


def f32(v):
    return struct.unpack("f", struct.pack("f", v))[0]


def fill(s):
    """The formula of golden.py, rounded to float32."""
    h = (((i * 2654435761 + s["k"] * 40503) % 2**32) >> 8 for i in range(math.prod(s["shape"])))
    return [f32(v / 2**24 * 2 * s["scale"] - s["scale"] + s["shift"]) for v in h]


def silu(x, dy, r=float):
    """The value and its gradient times dy, each step rounded by `r`."""
    s = r(1 / r(1 + r(math.exp(-x))))
    return r(x * s), r(dy * r(s * r(1 + r(x * r(1 - s)))))


def main():
    out = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent / "ops.json")
    assert abs(silu(1.0, 1.0)[0] - 0.7310585786300049) < 1e-15 and silu(0.0, 1.0) == (0.0, 0.5)
    pairs = list(zip(fill(X), fill(DY)))
    for x, dy in pairs:
        slope = (silu(x + 1e-6, 0.0)[0] - silu(x - 1e-6, 0.0)[0]) / 2e-6
        assert abs(silu(x, dy)[1] - dy * slope) < 1e-8
    exact, rounded = [silu(*p) for p in pairs], [silu(*p, f32) for p in pairs]
    y, dx = ([float(f"{v[i]:.9g}") for v in exact] for i in (0, 1))
    error = {n: float(f"{max(abs(a[i] - b[i]) for a, b in zip(exact, rounded)):.2g}") for n, i in (("y", 0), ("dx", 1))}
    case = {"name": "silu", "op": "silu", "config": {}, "x": X, "dy": DY, "y_shape": X["shape"], "y": y, "dx": dx, "float32_error": error}
    lines = [line for line in out.read_text().split("\n") if not line.startswith('{"name":"silu"')]
    at = next(i for i, line in enumerate(lines) if line.startswith('{"name":"tanh"'))
    lines.insert(at + 1, json.dumps(case, separators=(",", ":")) + ",")
    out.write_text("\n".join(lines))
    assert sum(c["name"] == "silu" for c in json.loads(out.read_text())["cases"]) == 1


main()
