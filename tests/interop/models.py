"""Small models to export: a data set of synthetic pictures, and a few training steps for each network."""
import subprocess
from pathlib import Path

import numpy as np
from PIL import Image

# network: image size, channels, transforms
NETWORKS = {
    "lenet": (28, 1, ["normalize"]),
    "lenet-caffe": (28, 1, ["normalize(0.5, 0.25)"]),
    "resnet20": (32, 3, ["normalize"]),
    "cifarnet": (32, 3, ["center_crop(24)", "normalize"]),
    "alexnet": (160, 3, ["normalize"]),
    "resnet18": (64, 3, ["normalize"]),
    "resnet50": (64, 3, ["normalize"]),
    "mobilenet_v2": (64, 3, ["normalize"]),
    "mobilenet_v3_small": (64, 3, ["normalize"]),
    "efficientnet_b0": (64, 3, ["normalize"]),
    "squeezenet1_1": (64, 3, ["normalize"]),
    "googlenet": (96, 3, ["normalize"]),
    "convnext_tiny": (64, 3, ["normalize"]),
    "vit_ti_4": (32, 3, ["normalize"]),
    "swin_t": (64, 3, ["normalize"]),
    "swin_v2_t": (64, 3, ["normalize"]),
}

# image size, channels and transforms for networks that are defined in a file
OF_FILES = (32, 3, ["normalize"])

CLASSES = ["cat", "dog, large", "Größe"]

RECIPE = """model = "{model}"
data = "{data}"
epochs = 1
batch = 6
seed = 3
[optimizer]
kind = "sgd"
momentum = 0.9
[ema]
decay = 0.5
[schedule]
kind = "constant"
base_lr = 0.02
[augment]
train = {transforms}
eval = {transforms}
"""


def pictures(folder, size, channels, per_class=6):
    """Writes PNG files with noise around a color per class, in a folder per class."""
    draws = np.random.default_rng(size)
    for label, name in enumerate(CLASSES):
        (folder / name).mkdir(parents=True)
        for i in range(per_class):
            shape = (size, size, 3) if channels == 3 else (size, size)
            values = draws.normal(70 + 50 * label, 45, shape).clip(0, 255).astype("u1")
            Image.fromarray(values).save(folder / name / f"{i}.png")


def train(trireme, folder, network, model=None, steps=2):
    """Trains a network, or the `model` in a file, for a few steps. Returns the folders of the run and of its pictures."""
    size, channels, transforms = NETWORKS.get(network, OF_FILES)
    photos, data = folder / f"photos-{size}-{channels}", folder / f"data-{size}-{channels}"
    run = folder / network
    if not photos.exists():
        pictures(photos, size, channels)
        convert = [trireme, "data", "convert", "folder", photos, data, "--raw", "--shards", "1"]
        subprocess.run(convert, check=True, stdout=subprocess.DEVNULL)
    recipe = folder / f"{network}.toml"
    listed = "[" + ", ".join(f'"{t}"' for t in transforms) + "]"
    recipe.write_text(RECIPE.format(model=model or network, data=data, transforms=listed))
    subprocess.run([trireme, "train", recipe, "--out", run, "--max-steps", str(steps)], check=True, capture_output=True)
    return run, sorted(Path(photos).glob("*/[012].png"))
