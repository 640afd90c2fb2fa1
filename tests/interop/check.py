"""Tests models of trireme in PyTorch, ONNX Runtime and Keras: python check.py TRIREME FOLDER [KERAS2'S PYTHON]"""
import os
import subprocess
import sys
from pathlib import Path

import h5py
import keras
import numpy as np
import onnx
import onnxruntime
import torch
import torchvision
from safetensors import safe_open
from safetensors.torch import load_file

from models import CLASSES, NETWORKS, train
from predicted import far, images, module, pixels, probabilities, run, softmax
from vectors import check_all

# Keras has no layer for parts of these networks
NOT_KERAS = {
    "cifarnet": "local response normalisation",
    "alexnet": "bins differ in size",
    "convnext_tiny": "learns a factor for each channel",
    "vit_ti_4": "layers for sequences",
    "swin_t": "layers for sequences",
    "swin_v2_t": "layers for sequences",
}
EXACT, HALF = 1e-5, 3e-3


def check_onnx(export, name, pictures, expected, ema):
    def scores(file, value):
        session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
        (entry,) = session.get_inputs()
        return softmax(session.run(None, {entry.name: value})[0])

    file = export("onnx", "onnx")
    model = onnx.load(str(file))
    onnx.checker.check_model(model, full_check=True)
    assert model.opset_import[0].version == 17
    about = {entry.key: entry.value for entry in model.metadata_props}
    assert about["trireme.network"] == name and "Größe" in about["trireme.classes"]
    value = images(pictures, about)
    far("onnx", scores(file, value), expected, EXACT)
    far("onnx, one image", scores(file, value[:1]), expected[:1], EXACT)
    folded = export("folded.onnx", "onnx", "--fold-batch-norm")
    far("onnx, batch norms folded", scores(folded, value), expected, EXACT)
    kinds = {node.op_type for node in onnx.load(str(folded)).graph.node}
    assert "BatchNormalization" not in kinds, kinds
    half = export("half.onnx", "onnx", "--half")
    onnx.checker.check_model(onnx.load(str(half)), full_check=True)
    far("onnx, 16 bits", scores(half, value), expected, HALF)
    assert half.stat().st_size < 0.6 * file.stat().st_size
    far("onnx, averages", scores(export("ema.onnx", "onnx", "--ema"), value), ema, EXACT)
    bytes_in = export("bytes.onnx", "onnx", "--preprocess")
    onnx.checker.check_model(onnx.load(str(bytes_in)), full_check=True)
    far("onnx, of bytes", scores(bytes_in, pixels(pictures)), expected, EXACT)


def check_torch(export, name, pictures, expected, ema):
    def scores(file):
        net, about = module(file.with_suffix(".py")).load()
        with torch.no_grad():
            return softmax(net(torch.from_numpy(images(pictures, about))).numpy())

    file = export("safetensors", "safetensors")
    with safe_open(str(file), "pt") as opened:
        about = opened.metadata()
    assert about["trireme.network"] == name and "Größe" in about["trireme.classes"]
    far("torch", scores(file), expected, EXACT)
    far("torch, averages", scores(export("ema.safetensors", "safetensors", "--ema")), ema, EXACT)
    folded = export("folded.safetensors", "safetensors", "--fold-batch-norm")
    far("torch, batch norms folded", scores(folded), expected, EXACT)
    far("torch, 16 bits", scores(export("half.safetensors", "safetensors", "--half")), expected, HALF)
    if hasattr(torchvision.models, name):
        more = {"init_weights": False} if name == "googlenet" else {}
        theirs = getattr(torchvision.models, name)(num_classes=len(CLASSES), **more)
        theirs.load_state_dict(load_file(str(file)), strict=True)
        with torch.no_grad():
            got = theirs.eval()(torch.from_numpy(images(pictures, about))).numpy()
        far("torchvision's own", softmax(got), expected, EXACT)


def check_keras(export, name, run_folder, pictures, expected, keras2):
    if name in NOT_KERAS:
        for ending in ("keras", "h5"):
            done = export(f"not.{ending}", "keras", fails=True)
            assert NOT_KERAS[name] in done and "layer " in done, done
        return
    about = {entry.key: entry.value for entry in onnx.load(str(export("about.onnx", "onnx"))).metadata_props}
    value = images(pictures, about).transpose(0, 2, 3, 1)

    def scores(model):
        return np.asarray(model.predict(value, verbose=0))

    own = run_folder / "model.h5"
    files = [own, export("keras", "keras"), export("h5", "keras"), export("folded.keras", "keras", "--fold-batch-norm")]
    halves = [export("half.keras", "keras", "--half"), export("half.h5", "keras", "--half")]
    for file in files:
        far(f"Keras 3, {file.name}", scores(keras.models.load_model(file, compile=False)), expected, EXACT)
    for file in halves:
        far(f"Keras 3, {file.name}", scores(keras.models.load_model(file, compile=False)), expected, HALF)
    for by_name in (False, True):
        again = keras.models.model_from_json(keras.models.load_model(own, compile=False).to_json())
        again.load_weights(own, by_name=by_name)
        far(f"Keras 3, load_weights, by_name={by_name}", scores(again), expected, EXACT)
    if keras2:
        given = run_folder / "given.npz"
        np.savez(given, value=value, expected=expected)
        script = Path(__file__).with_name("keras2.py")
        print(run(keras2, script, given, EXACT, *files).stdout, end="")
        print(run(keras2, script, given, HALF, *halves).stdout, end="")


def check_seal(trireme, run_folder, pictures, expected):
    """Checks that a file that h5py changed still opens, with a warning that names the change."""
    changed = run_folder / "changed.h5"
    changed.write_bytes((run_folder / "model.h5").read_bytes())
    with h5py.File(changed, "r+") as file:
        file["model_weights/fc/fc/bias:0"][0] += 10
        file.attrs["note"] = "edited"
    done = run(trireme, "predict", changed, pictures[0], "--json")
    assert "another program" in done.stderr and "weights of fc" in done.stderr, done.stderr
    assert "conv1" not in done.stderr and "cut short" not in done.stderr, done.stderr
    far("changed by h5py: one class wins", probabilities(trireme, changed, pictures)[:, 0], np.ones(len(pictures)), 0.05)
    for command in (["predict", changed, pictures[0]], ["export", changed, "--to", "onnx", "-o", run_folder / "no.onnx"]):
        done = subprocess.run([trireme, *map(str, command), "--sealed"], capture_output=True, text=True)
        assert done.returncode == 1 and "weights of fc" in done.stderr, done.stderr
    copied = run_folder / "copied.h5"
    with h5py.File(run_folder / "model.h5") as source, h5py.File(copied, "w") as target:
        target.attrs.update(source.attrs)
        for key in source:
            source.copy(key, target)
    done = run(trireme, "predict", copied, pictures[0], "--json")
    assert "but the model is unchanged" in done.stderr, done.stderr
    far("copied by h5py", probabilities(trireme, copied, pictures), expected, 0)


def check_means(export, name, pictures, features):
    """Compares features with torchvision's for a network whose last layer is a convolution: the channel means of this layer's input."""
    file = export("features.safetensors", "safetensors")
    with safe_open(str(file), "pt") as opened:
        about = opened.metadata()
    theirs = getattr(torchvision.models, name)(num_classes=len(CLASSES))
    theirs.load_state_dict(load_file(str(file)), strict=True)
    with torch.no_grad():
        got = theirs.eval().features(torch.from_numpy(images(pictures, about))).mean((2, 3)).numpy()
    far("torchvision: means of what the last layer reads", features, got, EXACT)


def check(trireme, folder, name, keras2):
    print(name, flush=True)
    run_folder, pictures = train(trireme, folder, name)
    expected = probabilities(trireme, run_folder, pictures)
    ema = probabilities(trireme, run_folder, pictures, "--ema")
    if name == "resnet20":
        assert np.abs(ema - expected).max() > 1e-4, "the averages equal the weights, so they test nothing"

    def export(ending, to, *options, fails=False):
        file = run_folder / f"{name}.{ending}"
        words = [str(word) for word in [trireme, "export", run_folder, "--to", to, "-o", file, "--force", *options]]
        done = subprocess.run(words, capture_output=True, text=True)
        assert (done.returncode == 0) != fails, done.stderr
        return done.stderr if fails else file

    check_onnx(export, name, pictures, expected, ema)
    check_torch(export, name, pictures, expected, ema)
    check_keras(export, name, run_folder, pictures, expected, keras2)
    features = run_folder / "features.npy"
    run(trireme, "predict", run_folder, *pictures, "--embed", features)
    with h5py.File(run_folder / "model.h5") as file:
        last = file["model_weights"][file["model_weights"].attrs["layer_names"][-1]]
        kernel, bias = (last[name][()] for name in last.attrs["weight_names"])
    if kernel.ndim == 2:
        far("numpy: features times the last layer", softmax(np.load(features) @ kernel + bias), expected, EXACT)
    else:
        check_means(export, name, pictures, np.load(features))
    if name == "resnet20":
        check_seal(trireme, run_folder, pictures, expected)


def main():
    trireme, folder = os.path.abspath(sys.argv[1]), Path(sys.argv[2])
    keras2 = sys.argv[3] if len(sys.argv) > 3 else None
    print(f"torch {torch.__version__}, onnx {onnx.__version__}, onnxruntime {onnxruntime.__version__}, keras {keras.__version__}")
    for name in os.environ.get("NETWORKS", "").split() or NETWORKS:
        check(trireme, folder, name, keras2)
    check_all(trireme, folder)
    print("all agree")


main()
