"""trireme's predictions for pictures, and the same pictures in the form that other programs need."""
import importlib.util
import json
import subprocess

import numpy as np
from PIL import Image


def run(*words):
    """Runs a command, which must succeed, and returns its output."""
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True)
    assert done.returncode == 0, f"{words}: {done.stderr}"
    return done


def probabilities(trireme, model, pictures, *options):
    """Returns the output of `trireme predict` as an array with a row per picture and a column per class."""
    lines = run(trireme, "predict", model, *pictures, "--json", "--top", "1000", *options).stdout.splitlines()
    rows = []
    for line in lines:
        classes = sorted(json.loads(line)["classes"], key=lambda entry: entry["label"])
        rows.append([entry["probability"] for entry in classes])
    return np.array(rows)


def pixels(pictures):
    """Returns pictures of equal size as bytes (N, H, W, 3). A data set of image files has three channels for grey pictures, too."""
    return np.stack([np.asarray(Image.open(picture).convert("RGB")) for picture in pictures])


def images(pictures, about):
    """Returns the pictures as network input, float32 (N, C, H, W), using the transforms that an exported file lists."""
    values = pixels(pictures).astype("f8")
    for op in json.loads(about["trireme.preprocess"]):
        name, numbers = op.rstrip(")").split("(")
        numbers = [float(number) for number in numbers.split(",")]
        if name == "center_crop":
            size = int(numbers[0])
            top, left = ((side - size) // 2 for side in values.shape[1:3])
            values = values[:, top : top + size, left : left + size]
        else:
            assert name == "normalize", op
            mean, std = np.split(np.array(numbers), 2)
            values = (values / 255 - mean) / std
    return values.transpose(0, 3, 1, 2).astype("f4")


def softmax(scores):
    """Returns the softmax."""
    powers = np.exp(scores.astype("f8") - scores.max(1, keepdims=True))
    return powers / powers.sum(1, keepdims=True)


def module(file):
    """Loads a Python file as a module."""
    spec = importlib.util.spec_from_file_location(file.stem.replace("-", "_"), file)
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


def far(name, got, expected, most):
    """Fails if two arrays differ by more than `most`, and prints the difference."""
    assert got.shape == expected.shape, f"{name}: {got.shape} and {expected.shape}"
    distance = np.abs(got - expected).max()
    print(f"  {name:<44} {distance:.1e}", flush=True)
    assert distance <= most, f"{name}: {distance} is more than {most}"
