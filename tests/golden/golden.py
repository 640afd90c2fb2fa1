"""Functions shared by the golden scripts: inputs that a formula computes, and the format of numbers. No networks and no operations.

Every input is fill(n, k, scale, shift), so that a JSON file describes an input with four numbers instead of listing it:

    h_i = (i * 2654435761 + k * 40503) mod 2^32          integers; i = 0 .. n-1, the index in C order (NCHW, OIHW, (out, in))
    u_i = (h_i >> 8) / 2^24                              in [0, 1), exact
    v_i = u_i * 2 * scale - scale + shift                float64, evaluated from left to right, then rounded to float32

k shifts the sequence by k * 40503 / 2^32 of its period, about k * 1e-5. Tensors that must differ need distant values of k.

noise(n, k, scale, shift) is the same, except that h is scrambled before it becomes u (each product mod 2^32):

    h ^= h >> 15;  h *= 2246822519;  h ^= h >> 13;  h *= 3266489917;  h ^= h >> 16

Whole networks use noise. The plain sequence repeats its local patterns (i and i + 4181 are almost equal), so one ReLU would receive
hundreds of almost equal pixels. A rounding error would then move all of them, and float32 would differ from float64 within three
training steps.
"""
import json
import math

import torch

K1, K2 = 2654435761, 40503
M1, M2, MASK = 2246822519, 3266489917, 0xFFFFFFFF
torch.set_num_threads(1)


def fill_plain(n, k, scale, shift):
    """Returns the formula above in plain Python float64, before rounding to float32."""
    return [((i * K1 + k * K2) % 2**32 >> 8) / 2**24 * 2 * scale - scale + shift for i in range(n)]


def fill(shape, k, scale, shift=0.0):
    """Returns the same values as a float32 tensor of `shape`."""
    return _scaled(_sequence(shape, k), scale, shift).reshape(shape)


def noise_plain(n, k, scale, shift):
    """Returns the scrambled formula in plain Python float64, before rounding to float32."""
    out = []
    for i in range(n):
        h = (i * K1 + k * K2) & MASK
        h = (h ^ h >> 15) * M1 & MASK
        h = (h ^ h >> 13) * M2 & MASK
        out.append(((h ^ h >> 16) >> 8) / 2**24 * 2 * scale - scale + shift)
    return out


def noise(shape, k, scale, shift=0.0):
    """Returns the same values as a float32 tensor of `shape`."""
    h = _sequence(shape, k)
    h = _times(h ^ (h >> 15), M1)
    h = _times(h ^ (h >> 13), M2)
    return _scaled(h ^ (h >> 16), scale, shift).reshape(shape)


def _sequence(shape, k):
    return (torch.arange(math.prod(shape), dtype=torch.int64) * K1 + k * K2) & MASK


def _times(h, factor):
    """Returns h * factor mod 2^32 without exceeding 63 bits."""
    return (h * (factor & 0xFFFF) + ((h * (factor >> 16) & 0xFFFF) << 16)) & MASK


def _scaled(h, scale, shift):
    return ((h >> 8).double() / 2**24 * 2 * scale - scale + shift).float()


def digits(values, significant=9):
    """Returns a flat list of floats, each rounded to nine significant digits (enough to distinguish any two float32)."""
    flat = values.detach().double().flatten().tolist() if isinstance(values, torch.Tensor) else values
    assert all(math.isfinite(v) for v in flat)
    return [float(f"{v:.{significant}g}") for v in flat]


def close(a, b, rtol, atol, what):
    """Asserts |a - b| <= atol + rtol * |b| for each pair of values in two flat lists."""
    assert len(a) == len(b), f"{what}: {len(a)} values against {len(b)}"
    for i, (p, q) in enumerate(zip(a, b)):
        assert abs(p - q) <= atol + rtol * abs(q), f"{what}[{i}]: {p} against {q}"


def write(path, head, key, entries):
    """Returns {**head, key: entries} as JSON with one line per entry, so that a diff shows which entry changed."""
    lines = [json.dumps(k) + ": " + json.dumps(v) for k, v in head.items()]
    body = ",\n".join(json.dumps(e, separators=(",", ":")) for e in entries)
    with open(path, "w") as f:
        f.write("{" + ",\n".join(lines) + f',\n"{key}": [\n{body}\n]}}\n')
    with open(path) as f:
        assert len(json.load(f)[key]) == len(entries)


def renew(path, key, entries):
    """Replaces entries with the same name in the file and appends new entries. Other entries do not change."""
    with open(path) as f:
        head = json.load(f)
    all_of = {e["name"]: e for e in head.pop(key)} | {e["name"]: e for e in entries}
    write(path, head, key, list(all_of.values()))


def check_fill():
    """Checks the tensor forms against the plain forms, including a wrap of i * K1 and a large k, and three values computed by hand."""
    for k, scale, shift in [(0, 1.0, 0.0), (999, 1.5, 0.0), (283549, 0.3, 2.0)]:
        for tensor, plain in ((fill, fill_plain), (noise, noise_plain)):
            want = torch.tensor(plain(5000, k, scale, shift), dtype=torch.float64).float()
            assert tensor((5, 1000), k, scale, shift).flatten().tolist() == want.tolist()
    assert fill_plain(1, 0, 1.0, 0.0) == [-1.0]
    assert fill_plain(2, 0, 0.5, 0.5)[1] == (2654435761 >> 8) / 2**24
    assert fill_plain(1, 1000000, 0.5, 0.5)[0] == (40503000000 % 2**32 >> 8) / 2**24


FORMULA = (
    "fill(n,k,scale,shift)[i] = float32((((i*2654435761 + k*40503) mod 2^32) >> 8) / 2^24 * 2*scale - scale + shift), "
    "float64 inside, i in C order (NCHW, OIHW, (out,in))"
)
NOISE = (
    "noise(n,k,scale,shift): as fill, with h = (i*2654435761 + k*40503) mod 2^32 scrambled before the shift by 8: "
    "h ^= h>>15; h *= 2246822519; h ^= h>>13; h *= 3266489917; h ^= h>>16 (products mod 2^32)"
)


def example(plain):
    """Returns a few elements of fill_plain or noise_plain, with which a reader of the JSON can check its own implementation."""
    at = [0, 1, 2, 3, 4999, 70000]
    values = plain(at[-1] + 1, 999, 1.5, 0.25)
    return {"k": 999, "scale": 1.5, "shift": 0.25, "at": at, "values": digits(torch.tensor([values[i] for i in at]).float())}


check_fill()
