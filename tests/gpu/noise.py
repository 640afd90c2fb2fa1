#!/usr/bin/env python3
"""Writes pictures with noise: noise.py cifar10 FOLDER TRAINING TEST, or noise.py photos FOLDER IMAGES SIZE REPEAT"""
import os
import pathlib
import struct
import sys
import zlib


def cifar10(folder, training, test):
    """Writes a data set in CIFAR-10's format."""
    folder.mkdir()
    for name, images in [(f"data_batch_{i}.bin", training // 5) for i in range(1, 6)] + [("test_batch.bin", test)]:
        with open(folder / name, "wb") as file:
            for i in range(images):
                file.write(bytes([i % 10]) + os.urandom(3072))
    (folder / "batches.meta.txt").write_text("".join(f"class{i}\n" for i in range(10)))


def photos(folder, images, size, repeat=1):
    """Writes PNG files in two classes. Repeats each random value, because a JPEG of pure noise is much larger than a photo."""
    chunk = lambda kind, body: struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
    spread = lambda noise: noise if repeat == 1 else b"".join(bytes([b]) * repeat for b in noise)
    for i in range(images):
        place = folder / "train" / f"class{i % 2}"
        place.mkdir(parents=True, exist_ok=True)
        rows = b"".join(b"\0" + spread(os.urandom(3 * size // repeat)) for _ in range(size))
        head = struct.pack(">IIBBBBB", size, size, 8, 2, 0, 0, 0)
        body = chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows, int(repeat > 1))) + chunk(b"IEND", b"")
        (place / f"{i}.png").write_bytes(b"\x89PNG\r\n\x1a\n" + body)


if __name__ == "__main__":
    {"cifar10": cifar10, "photos": photos}[sys.argv[1]](pathlib.Path(sys.argv[2]), *map(int, sys.argv[3:]))
