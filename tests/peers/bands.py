#!/usr/bin/env python3
"""Compares the loader with PyTorch's DataLoader, alternating, on images that are not RGB photos. Prints a Markdown table.

  bands.py TRIREME FOLDER [--rounds 3] [--epochs 4] [--images 2000] [--only NAME,...]

Makes noise images in FOLDER and converts them: uint16 with 13 bands and 64x64 pixels, and float32 with one band and 128x128 pixels. Both
programs deliver shuffled batches of 64 normalised f32 images (N, C, H, W) from the page cache. trireme has one thread, and the DataLoader
two workers that read an array with np.memmap or one TIFF per image with tifffile. A row "stored" is trireme with `--bytes`: it delivers
stored values, as for a GPU. The last column is the speed of trireme in bytes per second, divided by the speed of copying the records, which
trireme measures in the same run. Needs an idle machine with 4 GB of free memory.
"""
import argparse
import datetime
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

import numpy as np

from bench import processor

BATCH = 64
SETS = {"bands": ((64, 64, 13), np.uint16), "floats": ((128, 128, 1), np.float32)}


def make(trireme, folder, name, count):
    """Makes the images as an array, as TIFFs and as a data set. Returns the folder of the data set."""
    shape, dtype = SETS[name]
    data = folder / f"{name}-{count}"
    if (data / "done").exists():
        return data
    (data / "tiff").mkdir(parents=True, exist_ok=True)
    (data / "arrays").mkdir(exist_ok=True)
    random = np.random.default_rng(1)
    images = np.lib.format.open_memmap(data / "arrays/x_train.npy", "w+", dtype, (count, *shape))
    for i in range(count):
        images[i] = random.integers(0, 10000, shape) if dtype == np.uint16 else random.standard_normal(shape)
    images.flush()
    np.save(data / "arrays/y_train.npy", random.integers(0, 10, count))
    try:
        import tifffile

        for i in range(count):
            # a single band is written as (H, W), because tifffile writes (H, W, 1) as H images
            image = images[i] if shape[2] > 1 else images[i, :, :, 0]
            tifffile.imwrite(data / f"tiff/{i}.tif", image, photometric="minisblack", planarconfig="contig" if shape[2] > 1 else None)
    except ImportError:
        print("no tifffile: its rows are left out", file=sys.stderr)
    command = [trireme, "data", "convert", "npz", data / "arrays", data / "set", "--layout", "NHWC"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    (data / "done").touch()
    return data


def peer(data, how, epochs):
    """Prints images per second of PyTorch's DataLoader with two workers, as the median of all epochs except the first. Ends the program."""
    import torch

    torch.set_num_threads(1)
    stored = np.load(data / "arrays/x_train.npy", mmap_mode="r")
    labels = np.load(data / "arrays/y_train.npy")
    part = stored[:200].astype(np.float32)
    mean, std = (torch.from_numpy(f(part, axis=(0, 1, 2), dtype=np.float64).astype(np.float32))[:, None, None] for f in (np.mean, np.std))

    class Images(torch.utils.data.Dataset):
        def __len__(self):
            return len(stored)

        def __getitem__(self, i):
            if how == "memmap":
                image = stored[i]
            else:
                import tifffile

                image = tifffile.imread(data / f"tiff/{i}.tif").reshape(stored.shape[1:])
            image = torch.from_numpy(image.astype(np.float32)).permute(2, 0, 1)
            return (image - mean) / std, labels[i]

    loader = torch.utils.data.DataLoader(Images(), BATCH, shuffle=True, num_workers=2, persistent_workers=True)
    rates = []
    for _ in range(epochs):
        start, seen = time.perf_counter(), 0
        for images, _ in loader:
            seen += len(images)
        assert seen == len(stored) and images.dtype == torch.float32 and images.is_contiguous()
        rates.append(seen / (time.perf_counter() - start))
    print(json.dumps({"img_per_s": statistics.median(rates[1:]), "version": torch.__version__}), flush=True)
    # the workers can take minutes to end
    os._exit(0)


def ours(trireme, data, how, epochs):
    command = [trireme, "bench", "loader", data / "set", "--transform", "normalize", "--batch", BATCH, "--threads", 1, "--epochs", epochs]
    done = subprocess.run([str(word) for word in command] + ["--bytes"] * (how == "stored"), capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"bench loader: exit status {done.returncode}\n{done.stderr[-2000:]}")
    line = json.loads(done.stdout.splitlines()[-1])
    record = sum(file.stat().st_size for file in (data / "set").glob("*.tfrecord")) / len(np.load(data / "arrays/y_train.npy"))
    return line | {"of_copy": line["img_per_s"] * record / line["copy_bytes_per_s"]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trireme")
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--images", type=int, default=2000)
    parser.add_argument("--only", type=lambda names: names.split(","), default=list(SETS), help="bands or floats")
    parser.add_argument("--peer", help=argparse.SUPPRESS)
    a = parser.parse_args()
    if a.peer:
        peer(a.folder, a.peer, a.epochs)
    lines, version = [], ""
    for name in a.only:
        data = make(a.trireme, a.folder, name, a.images)
        found = {}
        hows = ["memmap", "tifffile"] if any((data / "tiff").iterdir()) else ["memmap"]
        for number in range(a.rounds):
            print(f"{name}: round {number + 1} of {a.rounds}", file=sys.stderr, flush=True)
            for how in hows:
                command = [sys.executable, __file__, a.trireme, data, "--peer", how, "--epochs", a.epochs]
                done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
                if done.returncode:
                    raise SystemExit(f"{how}: exit status {done.returncode}\n{done.stderr[-2000:]}")
                found.setdefault(how, []).append(json.loads(done.stdout.splitlines()[-1]))
            for how in ("values", "stored"):
                found.setdefault(how, []).append(ours(a.trireme, data, how, a.epochs))
        version = found["memmap"][0]["version"]
        rates = {how: [run["img_per_s"] for run in runs] for how, runs in found.items()}
        shape, dtype = SETS[name]
        what = f"{np.dtype(dtype).name} {'x'.join(map(str, shape))}"
        for how in ("values", "stored"):
            ratios = [f"{statistics.median(o / p for o, p in zip(rates[how], rates[other])):.1f}" for other in hows]
            copy = statistics.median(run["of_copy"] for run in found[how])
            cells = [", ".join(f"{rate:,.0f}" for rate in rates[column]) for column in (*hows, how)]
            lines.append(f"| {what}, {how} | " + " | ".join(cells + ratios + [f"{copy:.2f}"]) + " |")
            print(lines[-1], file=sys.stderr, flush=True)
    columns = ["images", *(f"DataLoader, {how}" for how in hows), "trireme", *(f"ratio to {how}" for how in hows), "of the copy rate"]
    print(f"{datetime.date.today()}, {processor()}; PyTorch {version}, 2 workers; trireme with 1 thread; images per second, {a.rounds} alternating rounds.\n")
    print(f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
