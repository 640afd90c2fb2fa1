"""Trains ResNet-20 on CIFAR-10 in PyTorch, as a reference for trireme's loss curve and score.

    python cifar_resnet20.py [--data DIR] [--epochs 5] [--seed 1] [--threads 2]

Batch 128, lr 0.1 with cosine decay to 0 over all epochs, per step and without warm-up; SGD, momentum 0.9, no Nesterov, weight decay 1e-4
on all parameters; pad_crop(4), flip, normalize with the moments of the training split. Convolutions start as He normal (fan out). DIR
has data_batch_1..5.bin and test_batch.bin of the binary version.
"""
import pathlib

import torch
from torch import nn

from networks import ResNet20
from training import arguments, pad_crop_flip, train

RECORD = 1 + 3 * 32 * 32


def read(paths):
    """Returns uint8 NCHW images and int64 labels from files of (label, 3072 pixels in planes)."""
    raw = b"".join(p.read_bytes() for p in paths)
    assert len(raw) % RECORD == 0, f"{paths[0]}: not records of {RECORD} bytes"
    r = torch.frombuffer(bytearray(raw), dtype=torch.uint8).view(-1, RECORD)
    labels = r[:, 0].long()
    assert labels.max() == 9 and labels.bincount().unique().numel() == 1, f"{paths[0]}: not ten equally frequent classes"
    return r[:, 1:].reshape(-1, 3, 32, 32).contiguous(), labels


def main():
    a = arguments(__doc__.splitlines()[0], 5, "cifar-10-batches-bin").parse_args()
    torch.set_num_threads(a.threads)
    torch.manual_seed(a.seed)
    data = pathlib.Path(a.data)
    train_set, test_set = read([data / f"data_batch_{i}.bin" for i in range(1, 6)]), read([data / "test_batch.bin"])
    assert (len(train_set[1]), len(test_set[1])) == (50000, 10000)
    net = ResNet20()
    for m in net.modules():
        if isinstance(m, nn.Conv2d):
            nn.init.kaiming_normal_(m.weight, mode="fan_out", nonlinearity="relu")
    train(net, train_set, test_set, a, batch=128, lr=0.1, augment=lambda x, g: pad_crop_flip(x, 4, g))


if __name__ == "__main__":
    main()
