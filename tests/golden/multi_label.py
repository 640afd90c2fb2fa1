"""Writes multi_label.json: scores of images with more than one label, from scikit-learn, and their loss, from PyTorch.

    python multi_label.py [OUT.json]        (default: multi_label.json in this folder)

40 images, 7 classes. One class has no image, and one has all. Scores are multiples of 1/8, so that ties are frequent. Average precisions
come from average_precision_score, F1 from f1_score for scores above 0, and the loss from binary_cross_entropy_with_logits. For the mean
over classes this equals multilabel_soft_margin_loss. Each number is checked against its definition in plain loops before it is written.
"""
import json
import math
import pathlib
import sys
import warnings

import torch
import torch.nn.functional as F
from sklearn.metrics import average_precision_score, f1_score

IMAGES, CLASSES = 40, 7


def draw(i, salt):
    return ((i * 2654435761 + salt * 40503) % 2**32 >> 8) / 2**24


def precision_of(truth, scores):
    """Average precision: the sum over scores of images of the class of (fraction of the class among all images with at least this score) *
    (fraction of the class with this score)."""
    images, total = sum(truth), 0.0
    for threshold in sorted(set(scores), reverse=True):
        reached = [t for t, s in zip(truth, scores) if s >= threshold]
        own = sum(t for t, s in zip(truth, scores) if s == threshold)
        total += own / images * sum(reached) / len(reached)
    return total


def main():
    warnings.simplefilter("ignore")
    truth = [[0] * CLASSES for _ in range(IMAGES)]
    scores = [[0.0] * CLASSES for _ in range(IMAGES)]
    for i in range(IMAGES):
        for c in range(CLASSES):
            has = draw(i, 7919 * (c + 1)) < 0.1 + 0.12 * c
            truth[i][c] = 0 if c == 5 else 1 if c == 6 else int(has)
            scores[i][c] = round(8 * (4 * draw(i + 1000, 104729 * (c + 3)) - 2.5 + 1.5 * truth[i][c] * (c < 6))) / 8
    y, z = torch.tensor(truth), torch.tensor(scores, dtype=torch.float64)
    p = torch.sigmoid(z)
    known = [c for c in range(CLASSES) if any(row[c] for row in truth)]
    each = [average_precision_score(y[:, c], p[:, c]) if c in known else None for c in range(CLASSES)]
    for c in known:
        assert abs(each[c] - precision_of([row[c] for row in truth], [row[c] for row in scores])) < 1e-12, c
    map_ = average_precision_score(y[:, known], p[:, known], average="macro")
    assert abs(map_ - sum(each[c] for c in known) / len(known)) < 1e-12
    taken = (z > 0).int()
    some = [c for c in range(CLASSES) if c in known or taken[:, c].any()]
    loss = F.binary_cross_entropy_with_logits(z, y.double())
    assert abs(loss - F.multilabel_soft_margin_loss(z, y.double())) < 1e-12
    plain = [max(s, 0) - s * t + math.log1p(math.exp(-abs(s))) for a, b in zip(scores, truth) for s, t in zip(a, b)]
    assert abs(loss - sum(plain) / len(plain)) < 1e-12
    hits = [1 if t[max(range(CLASSES), key=lambda c: (s[c], -c))] else 0 for s, t in zip(scores, truth)]
    out = {
        "by": "scikit-learn's average_precision_score and f1_score, PyTorch's binary_cross_entropy_with_logits",
        "truth": truth,
        "scores": scores,
        "average_precision": each,
        "map": map_,
        "map_with_absent_as_0": average_precision_score(y, p, average="macro"),
        "micro_f1": f1_score(y, taken, average="micro"),
        "macro_f1": f1_score(y[:, some], taken[:, some], average="macro"),
        "loss": float(loss),
        "top1": sum(hits) / IMAGES,
    }
    path = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).with_suffix(".json")
    lines = ",\n".join(f" {json.dumps(key)}: {json.dumps(value)}" for key, value in out.items())
    path.write_text("{\n" + lines + "\n}\n")


main()
