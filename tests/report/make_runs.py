"""Makes folders of runs like trireme's: a long run, and some with all special cases that a page must support.

make_runs.py FOLDER
"""

import json
import math
import pathlib
import random
import struct
import sys
import zlib

EPOCHS, STEPS = 164, 64_000


def png(width, height, colour):
    """Returns a PNG file as a data: address."""
    row = b"\0" + b"".join(bytes((colour(x), 90, 200 - colour(x))) for x in range(width))

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    whole = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(row * height)) + chunk(b"IEND", b"")
    import base64

    return "data:image/png;base64," + base64.b64encode(whole).decode()


def evaluation(classes, step, images=200, seed=1):
    """Returns the evaluation.json of a network that confuses some images with the next class, and fewer with other classes."""
    rng = random.Random(seed)
    count = len(classes)
    cells = {}
    for label in range(count):
        for _ in range(images):
            r = rng.random()
            taken = label if r < 0.8 else (label + 1) % count if r < 0.93 else rng.randrange(count)
            cells[label, taken] = cells.get((label, taken), 0) + 1
    column = lambda k: sum(n for (_, taken), n in cells.items() if taken == k)
    right = [cells.get((k, k), 0) for k in range(count)]
    predicted = [0] * count
    for (_, taken), n in cells.items():
        predicted[taken] += n
    f1 = [2 * right[k] / (images + predicted[k]) for k in range(count)]
    bins = []
    for k in range(15):
        n = 0 if k < 2 else 10 * k * k
        bins.append({"images": n, "right": int(n * (k + 0.3) / 15), "confidence": (k + 0.5) / 15 if n else None})
    whole = sum(b["images"] for b in bins)
    ece = sum(abs(b["images"] * b["confidence"] - b["right"]) for b in bins if b["images"]) / whole
    worst = []
    for k in range(32):
        label = k % count
        worst.append({"id": 37 * k, "label": label, "place": 2 + k % 5, "loss": 9.75 - k / 8,
                      "guesses": [[(label + 1) % count, 0.99 - k / 100], [label, 0.005]],
                      "picture": png(32, 32, lambda x: (x * (k + 3)) % 200)})
    augmented = [{"id": 5 * k, "label": k % count, "picture": png(32, 32, lambda x: (x * x + k) % 180)} for k in range(24)]
    ordered = sorted(cells.items(), key=lambda cell: -cell[1])
    return {"version": 1, "step": step, "epoch": EPOCHS, "split": "test", "classes": classes, "images": [images] * count,
            "predicted": predicted, "right": right, "macro_f1": sum(f1) / count, "ece": ece, "calibration": bins,
            "confusion": [[a, b, n] for (a, b), n in ordered], "confusion_left_out": 0,
            "mistakes": images * count - sum(right), "worst": worst, "augmented": augmented}


def spread(rng, size):
    return {"mean": rng.gauss(0, size / 10), "deviation": size, "least": -4 * size, "most": 4 * size, "zeros": 0.01}


def lines(epochs, steps, classes, seed, layers):
    """Returns all lines of a log."""
    rng = random.Random(seed)
    each, start = steps // epochs, 1_700_000_000
    facts = {"device": "cpu, 16 threads", "mpi": "Open MPI v4.1.4", "version": "0.1.0", "machine": "node1, 2 ranks", "schedule": "cosine"}
    yield {"event": "start", "step": 0, "epoch": 0, "epochs": epochs, "steps_per_epoch": each, "last_step": steps, "model": "resnet20",
           "parameters": 269722, "images": 50000, "batch": 128, "workers": 2, "ranks": 2, "facts": facts, "t": 0.2}
    yield {"event": "exchange", "step": 11, "epoch": 0, "codec": "ternary", "steps": 8, "bytes": 70000, "float_bytes": 1078888,
           "encode_ms": 0.8, "wire_ms": 0.4, "decode_ms": 0.3, "float_ms": 1.1}
    for step in range(1, steps + 1):
        part = step / steps
        loss = 2.3 * math.exp(-4 * part) + 0.05 + abs(rng.gauss(0, 0.08))
        wait = abs(rng.gauss(0.4, 0.3))
        yield {"event": "step", "step": step, "epoch": (step - 1) // each, "loss": loss, "top1": 1 - loss / 3, "lr": 0.1 * (1 + math.cos(math.pi * part)) / 2,
               "img_per_s": 1400 + rng.gauss(0, 60), "data_wait_ms": wait, "comm_wait_ms": 2 * wait, "step_ms": 91 + rng.gauss(0, 4),
               "data_wait_ranks": [0.1, 0.2, wait], "comm_wait_ranks": [0.2, 0.4, 2 * wait], "step_ranks": [90.1, 90.6, 91.2],
               "samples": step * 7919, "grad_norm": 1 + 3 * math.exp(-9 * part) + abs(rng.gauss(0, 0.2)), "t": 0.2 + 0.091 * step}
        if step % layers == 0:
            yield {"event": "layers", "step": step, "epoch": (step - 1) // each, "t": 0.2 + 0.091 * step, "tensors": [
                {"name": f"layer{k}.conv.weight", "elements": 2304, "weight": spread(rng, 0.1), "gradient": spread(rng, 0.01 / (1 + k)),
                 "zero_codes": 0.7 + 0.2 * rng.random()} for k in range(20)]}
        if step % each == 0 and step // each <= epochs:
            done = step // each
            loader = {"skipped": 0, "data_wait_s": 1.2, "queue_depth": 3.0, "bytes": 10 ** 8, "read_us": 2.5, "decode_us": 0.0, "transform_us": 14.0, "slot_wait_us": 300.0}
            yield {"event": "epoch", "step": step, "epoch": done - 1, "loss": loss, "top1": 1 - loss / 3, "lr": 0.1, "img_per_s": 1400.0,
                   "seconds": 35.5, "loader": loader, "t": 0.2 + 0.091 * step}
            top1 = 0.92 * (1 - math.exp(-6 * part)) + rng.gauss(0, 0.004)
            yield {"event": "eval", "step": step, "epoch": done, "split": "test", "top1": top1, "top5": min(1.0, top1 + 0.07),
                   "loss": 2.3 - 2 * top1, "count": 10000, "t": 0.2 + 0.091 * step}
    yield {"event": "end", "step": steps, "epoch": epochs, "seconds": 5824.7, "img_per_s": 1402.3, "model": "out/model.h5",
           "digest": "00c0ffee-00c0ffee-%08x" % seed, "t": 5824.7}


RECIPE = 'model = "resnet20"\ndata = "data/cifar10"\nepochs = %d\nbatch = 128\nworkers = 2\n[optimizer]\nkind = "sgd"\n[schedule]\nbase_lr = %s\n'


def write(folder, events, recipe, found, tail=""):
    folder.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(event, separators=(",", ":")) + "\n" for event in events)
    (folder / "metrics.jsonl").write_text(text.replace("NaN", "null") + tail, encoding="utf-8")
    (folder / "recipe.toml").write_text(recipe, encoding="utf-8")
    if found:
        (folder / "evaluation.json").write_text(json.dumps(found), encoding="utf-8")


CIFAR = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
# names that would be markup, that end an attribute or a script, that reverse the direction of text, that are empty or equal
EVIL = ["<img src=x onerror=\"document.title='owned'\">", "a\"b'c", "</script><b id=evil>", "שלום עולם", "\u202eabc", "", "", "&amp;", "=1+1", "x" * 300]


def main(root):
    epochs, steps = EPOCHS, STEPS
    write(root / "long", lines(epochs, steps, CIFAR, 1, 100), RECIPE % (epochs, 0.1), evaluation(CIFAR, steps))
    few = list(lines(4, 400, CIFAR, 2, 40))
    write(root / "other", few, RECIPE % (4, 0.2), evaluation(CIFAR[:8] + ["lorry", "ship "], 400, seed=2))
    evil = [dict(event) for event in few]
    evil[0]["model"], evil[0]["facts"] = EVIL[0], {EVIL[2]: EVIL[0]}
    write(root / "evil", evil, 'model = "</script><b id=evil>"\n', evaluation(EVIL, 400, images=40))
    many = [f"n{k:08d} class {k}" for k in range(1000)]
    write(root / "many", few, RECIPE % (4, 0.1), evaluation(many, 400, images=50))
    names = [f"class {k}" for k in range(1200)]
    for name, seed in [("wide", 3), ("wider", 4)]:
        found = evaluation(names, 400, images=20, seed=seed)
        found["right"][1199] = 0
        write(root / name, few, RECIPE % (4, 0.1), found)
    lost = [dict(event, loss=math.nan if event["event"] == "step" and 100 < event["step"] < 200 else event.get("loss"))
            for event in few if event["event"] not in ("eval", "layers")]
    cut = 'no event\n{"event":"weather","sun":true}\n{"event":"step","step":401,"lo'
    write(root / "lost", lost, "epochs = = 3", None, cut)
    (root / "lost" / "evaluation.json").write_text('{"version":1,"step":')


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
