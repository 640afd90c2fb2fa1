"""Tests networks that mix vectors and images of one pixel, and other networks unlike the catalogue's, in all three programs."""
import subprocess

import keras
import numpy as np
import onnx
import onnxruntime
import torch

from models import train
from predicted import far, images, module, probabilities, softmax

FILE = """input = [3, 32, 32]
classes = 3
nodes = [
    {{ name = "c", op = "conv", channels = 6, kernel = 3, pad = 1, bias = true }},
    {{ name = "mean", op = "avgpool" }},
    {{ name = "flat", op = "flatten" }},
    {nodes}
]
"""
FULL = '{ name = "fc", op = "linear", features = "classes" }'
HIDDEN = '{ name = "hidden", op = "linear", features = 8 }'


def joined(op, inputs, more=""):
    return f'{{ name = "op", op = "{op}", inputs = {inputs}{more} }}'.replace("'", '"')


def behind(op):
    """Returns an op after a linear layer, and the last layer."""
    return [HIDDEN, f'{{ name = "op", {op} }}', FULL]


NETWORKS = {
    "conv of a vector": behind('op = "conv", channels = 4, kernel = 1, bias = true'),
    "mean of a vector": behind('op = "avgpool"'),
    "shortcut of a vector": behind('op = "shortcut", channels = 12'),
    "response norm of a vector": behind('op = "lrn", radius = 2, k = 1.0, alpha = 0.5, beta = 0.75'),
    "layer scale of a vector": behind('op = "layer_scale", start = 0.3'),
    "vector + image": [joined("add", ["flat", "mean"]), FULL],
    "image + vector": [joined("add", ["mean", "flat"]), FULL],
    "vector * image": [joined("multiply", ["flat", "mean"]), FULL],
    "image * vector": [joined("multiply", ["mean", "flat"]), FULL],
    "factors of an image": [joined("multiply", ["c", "flat"]), FULL],
    "vector beside image": [HIDDEN, joined("concat", ["hidden", "mean", "flat"]), FULL],
    "norm of a vector + image": [joined("norm", ["flat", "mean"], ", residual = true"), FULL],
    "norm of an image + vector": [joined("norm", ["mean", "flat"], ", residual = true, relu = true"), FULL],
    "scores of a convolution": [
        joined("multiply", ["mean", "flat"]),
        '{ name = "last", op = "conv", channels = "classes", kernel = 1 }',
    ],
    "slope below zero": [
        joined("multiply", ["c", "flat"]),
        '{ name = "leaky", op = "leaky_relu", slope = -0.2 }',
        FULL,
    ],
}
NOT_KERAS = {
    "response norm of a vector": "local response normalisation",
    "layer scale of a vector": "learns a factor for each channel",
    "slope below zero": "does not allow a negative slope",
}
EXACT = 1e-5


def check_onnx(file, value, name, expected):
    onnx.checker.check_model(onnx.load(str(file)), full_check=True)
    session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    far(f"{name}: onnx", softmax(session.run(None, {"input": value})[0]), expected, EXACT)


def check_torch(file, pictures, name, expected):
    net, about = module(file.with_suffix(".py")).load()
    value = images(pictures, about)
    with torch.no_grad():
        far(f"{name}: torch", softmax(net(torch.from_numpy(value)).numpy()), expected, EXACT)
    return value


def check_keras(file, value, name, expected):
    model = keras.models.load_model(file, compile=False)
    far(f"{name}: Keras", np.asarray(model.predict(value.transpose(0, 2, 3, 1), verbose=0)), expected, EXACT)


def check(trireme, folder, number, name):
    """Trains, exports and compares a network, and reads its graph again."""
    net = folder / f"vectors{number}.net.toml"
    net.write_text(FILE.format(nodes=",\n    ".join(NETWORKS[name])))
    run_folder, pictures = train(trireme, folder, f"vectors{number}", net)
    expected = probabilities(trireme, run_folder, pictures)

    def export(to, ending, model=run_folder, *options, fails=None):
        file = folder / f"vectors{number}.{ending}"
        words = [str(word) for word in [trireme, "export", model, "--to", to, "-o", file, "--force", *options]]
        done = subprocess.run(words, capture_output=True, text=True)
        assert (done.returncode == 0) != bool(fails) and (fails or "") in done.stderr, f"{name}: {done.stderr}"
        return file

    value = check_torch(export("safetensors", "safetensors"), pictures, name, expected)
    graph = export("onnx", "onnx")
    check_onnx(graph, value, name, expected)
    if name in NOT_KERAS:
        export("keras", "keras", fails=NOT_KERAS[name])
    else:
        check_keras(export("keras", "keras"), value, name, expected)
        check_keras(run_folder / "model.h5", value, f"{name}, model.h5", expected)
    if '"norm"' in str(NETWORKS[name]):
        check_onnx(export("onnx", "folded.onnx", run_folder, "--fold-batch-norm"), value, f"{name}, folded", expected)
    else:
        # a norm changes during training; without a norm the network imported from the graph gives the same scores after zero steps
        again = train(trireme, folder, f"vectors{number}-again", graph, steps=0)[0]
        far(f"{name}: back from onnx", probabilities(trireme, again, pictures), expected, EXACT)
        check_onnx(export("onnx", "again.onnx", again), value, f"{name}, again", expected)


def check_all(trireme, folder):
    print("vectors and images of one pixel", flush=True)
    for number, name in enumerate(NETWORKS):
        check(trireme, folder, number, name)
