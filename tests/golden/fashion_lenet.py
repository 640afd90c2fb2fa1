"""Trains TF-slim's LeNet on Fashion-MNIST (or MNIST) in PyTorch, as a reference for trireme's score.

    python fashion_lenet.py [--data DIR] [--dropout 0.5] [--epochs 3] [--seed 1] [--threads 2]

Batch 64, lr 0.05 with cosine decay to 0 over all epochs, per step and without warm-up; SGD, momentum 0.9, no Nesterov, weight decay 1e-4
on all parameters; normalize with the moments of the training split, no augmentation; PyTorch's default initialisation. DIR has the four
IDX files, plain or .gz.
"""
import gzip
import pathlib
import struct

import torch

from networks import LeNet
from training import arguments, train


def idx(folder, name):
    """Returns the uint8 array of an IDX file."""
    plain = folder / name
    raw = plain.read_bytes() if plain.exists() else gzip.decompress((folder / (name + ".gz")).read_bytes())
    zero, kind, dims = struct.unpack(">HBB", raw[:4])
    shape = struct.unpack(f">{dims}I", raw[4 : 4 + 4 * dims])
    assert (zero, kind) == (0, 8), f"{name}: not an IDX file of bytes"
    return torch.frombuffer(bytearray(raw[4 + 4 * dims :]), dtype=torch.uint8).view(shape)


def read(folder, split):
    images, labels = idx(folder, f"{split}-images-idx3-ubyte"), idx(folder, f"{split}-labels-idx1-ubyte")
    assert images.shape[1:] == (28, 28) and len(images) == len(labels) and labels.max() == 9
    return images[:, None], labels.long()


def main():
    p = arguments(__doc__.splitlines()[0], 3, "/usr/share/datasets/fashion-mnist")
    p.add_argument("--dropout", type=float, default=0.0, help="probability to drop a unit of the 1024 (TF-slim: 0.5)")
    a = p.parse_args()
    torch.set_num_threads(a.threads)
    torch.manual_seed(a.seed)
    data = pathlib.Path(a.data)
    train(LeNet(a.dropout), read(data, "train"), read(data, "t10k"), a, batch=64, lr=0.05, augment=lambda x, _: x)


if __name__ == "__main__":
    main()
