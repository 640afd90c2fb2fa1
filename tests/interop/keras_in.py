"""Imports weights from Keras files and checks the messages for unsupported files: python keras_in.py TRIREME FOLDER"""
import os
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
from keras import layers

from models import RECIPE, pictures
from predicted import far, pixels, probabilities, run, softmax

SIDE = 32
FILE = """input = [3, 32, 32]
classes = 3
nodes = [
    { name = "c", op = "conv", channels = 4, kernel = 3, pad = 1, bias = true, stride = 4 },
    { name = "n", op = "norm", SCALE },
    { name = "flat", op = "flatten" },
    { name = "fc", op = "linear", features = "classes" },
]
"""
# layers in .weights.h5 have the names of their classes
RULES = """match = [['conv2d\\.(.*)', 'c.$1'], ['batch_normalization\\.(.*)', 'n.$1'], ['dense\\.(.*)', 'fc.$1']]
"""


def model(norm, permute=None):
    """Returns a network with its own weights. Scales are about 1, shifts about 0."""
    draws = np.random.default_rng(5)
    padded = layers.ZeroPadding2D(1)
    turn = [layers.Permute(permute)] if permute else []
    conv = layers.Conv2D(4, 3, strides=4, name="c")
    net = keras.Sequential([keras.Input((SIDE, SIDE, 3)), padded, conv, norm, *turn, layers.Flatten(), layers.Dense(3, name="fc")])
    for weight in net.weights:
        values = 0.1 * draws.standard_normal(weight.shape)
        about_one = weight.name in ("gamma", "moving_variance")
        weight.assign(1 + values if about_one else values)
    return net


def check(trireme, folder, name, ending, norm, scale="", permute=None, says="", taken=True):
    net = model(norm, permute)
    file, out, definition = folder / f"{name}.{ending}", folder / f"{name}-{ending}", folder / f"{name}.net.toml"
    net.save_weights(file) if ending == "weights.h5" else net.save(file)
    definition.write_text(FILE.replace(", SCALE", scale))
    recipe = folder / f"{name}.toml"
    text = RECIPE.format(model=definition, data=folder / "data", transforms='["normalize(0.5,0.25)"]')
    recipe.write_text(f'{text}[init]\nfrom = "{file}"\n{RULES if ending == "weights.h5" else ""}')
    words = [str(word) for word in [trireme, "train", recipe, "--out", out, "--max-steps", "0"]]
    done = subprocess.run(words, capture_output=True, text=True)
    assert (done.returncode == 0) == taken and says in done.stderr, f"{name}: {done.stderr}"
    assert says or f"warning: {file}" not in done.stderr, f"{name}: {done.stderr}"
    if taken:
        shown = sorted((folder / f"noise-{SIDE}").glob("*/[012].png"))
        scores = net.predict(((pixels(shown) / 255 - 0.5) / 0.25).astype("f4"), verbose=0)
        far(f"{name}, {ending}", probabilities(trireme, out, shown), softmax(scores), 2e-5)


def main():
    trireme, folder = os.path.abspath(sys.argv[1]), Path(sys.argv[2]).resolve() / "keras-in"
    print(f"weights in: keras {keras.__version__}", flush=True)
    pictures(folder / f"noise-{SIDE}", SIDE, 3)
    run(trireme, "data", "convert", "folder", folder / f"noise-{SIDE}", folder / "data", "--raw", "--shards", "1")

    def norm(**settings):
        return layers.BatchNormalization(name="n", **{"epsilon": 1e-5, **settings})

    whole, weights = "h5", "weights.h5"
    check(trireme, folder, "plain", whole, norm())
    check(trireme, folder, "plain", weights, norm())
    check(trireme, folder, "no-scale", whole, norm(scale=False), ", scale = false")
    check(trireme, folder, "no-scale", weights, norm(scale=False), ", scale = false", says="weights of batch_normalization")
    check(trireme, folder, "no-shift", weights, norm(center=False), ", scale = false", says="center=False", taken=False)
    check(trireme, folder, "epsilon", whole, norm(epsilon=1e-3), ", eps = 0.001", says="epsilon of 0.001")
    for name, permute in [("turned", (3, 1, 2)), ("turned-once", (2, 3, 1))]:
        check(trireme, folder, name, whole, norm(), permute=permute, says="its layer flatten", taken=False)
    print("weights of keras in: all agree")


main()
