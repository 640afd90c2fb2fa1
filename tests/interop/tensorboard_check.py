"""Reads trireme's event files with TensorBoard: python tensorboard_check.py TRIREME FOLDER"""
import io
import json
import subprocess
import sys
from pathlib import Path

from PIL import Image
from tensorboard.backend.event_processing import data_provider, plugin_event_multiplexer
from tensorboard.context import RequestContext
from tensorboard.plugins import base_plugin
from tensorboard.plugins.hparams import backend_context

RECIPE = """
model = "lenet"
data = "given with --data"
epochs = 3
batch = 10
workers = 2
[optimizer]
kind = "sgd"
[schedule]
kind = "constant"
base_lr = 0.03125
[reduce]
codec = "ternary"
[augment]
train = ["flip", "normalize(0.5, 0.25)"]
eval = ["normalize(0.5, 0.25)"]
[log]
histograms = 4
"""


def pictures(folder, count):
    """Writes files in a folder for each class, each with some unique pixels."""
    for label, name in enumerate(["round", "square", "third"]):
        place = folder / name
        place.mkdir(parents=True)
        for k in range(count):
            image = Image.new("L", (28, 28), 60 * label + 20)
            for x in range(28):
                image.putpixel((x, (3 * label + k) % 28), 250)
            image.save(place / f"{k:03}.png")


def train(trireme, folder):
    pictures(folder / "source" / "train", 20)
    pictures(folder / "source" / "test", 10)
    run = lambda *arguments: subprocess.run([trireme, *map(str, arguments)], check=True, stderr=subprocess.DEVNULL)
    run("data", "convert", "folder", folder / "source", folder / "data")
    (folder / "recipe.toml").write_text(RECIPE)
    out = folder / "runs" / "one"
    run("train", folder / "recipe.toml", "--data", folder / "data", "--out", out, "--max-steps", "12")
    return out


def check(out):
    log = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    of = lambda kind: [event for event in log if event["event"] == kind]
    multiplexer = plugin_event_multiplexer.EventMultiplexer().AddRunsFromDirectory(str(out.parent))
    multiplexer.Reload()
    data = data_provider.MultiplexerDataProvider(multiplexer, str(out.parent))
    ctx, args = RequestContext(), dict(experiment_id="")

    scalars = data.read_scalars(ctx, plugin_name="scalars", downsample=10000, **args)["one"]
    for event, got in zip(of("eval"), scalars["test/top1"], strict=True):
        assert (got.step, abs(got.value - event["top1"]) < 1e-6) == (event["step"], True), (event, got)
    measured = of("layers")
    assert [event["step"] for event in measured] == [4, 8, 12]

    histograms = data.read_tensors(ctx, plugin_name="histograms", downsample=1000, **args)["one"]
    names = [tensor["name"] for tensor in measured[0]["tensors"]]
    assert {f"{of}/{name}" for of in ("weight", "gradient") for name in names} <= set(histograms), sorted(histograms)
    for event, got in zip(measured, histograms[f"gradient/{names[0]}"], strict=True):
        tensor, bins = event["tensors"][0], got.numpy
        assert got.step == event["step"] and bins[:, 2].sum() == tensor["elements"], bins
        assert abs(bins[0, 0] - tensor["gradient"]["least"]) <= abs(bins[0, 1] - bins[0, 0]), bins[0]
        assert abs(bins[-1, 1] - tensor["gradient"]["most"]) < 1e-6
    coded = [tensor["name"] for tensor in measured[0]["tensors"] if "zero_codes" in tensor]
    assert coded, "no tensor has codes"
    for event, got in zip(measured, scalars[f"zero_codes/{coded[0]}"], strict=True):
        share = next(tensor["zero_codes"] for tensor in event["tensors"] if tensor["name"] == coded[0])
        assert abs(got.value - share) < 1e-6 and 0 < share < 1

    blobs = data.read_blob_sequences(ctx, plugin_name="images", downsample=100, **args)["one"]
    assert {"test/confusion", "train/images"} <= set(blobs), sorted(blobs)
    files = lambda datum: [data.read_blob(ctx, blob_key=value.blob_key) for value in datum.values][2:]
    shown = [Image.open(io.BytesIO(file)) for file in files(blobs["train/images"][0])]
    assert len(shown) == 24 and all(image.size == (28, 28) for image in shown)
    (matrix,) = files(blobs["test/confusion"][-1])
    matrix = Image.open(io.BytesIO(matrix)).convert("L")
    found = json.loads((out / "evaluation.json").read_text())
    assert blobs["test/confusion"][-1].step == found["step"] == 12
    side = matrix.size[0] - 20 * len(found["classes"])
    for label, taken, images in found["confusion"]:
        assert matrix.getpixel((side + 20 * taken + 5, side + 20 * label + 5)) < 255, (label, taken, images)

    context = backend_context.Context(base_plugin.TBContext(data_provider=data))
    experiment = context.experiment_from_metadata(ctx, "", False, context.hparams_metadata(ctx, ""), [])
    keys = {info.name for info in experiment.hparam_infos}
    assert {"model", "epochs", "schedule.base_lr", "reduce.codec"} <= keys, keys
    print(f"TensorBoard {len(scalars)} curves, {len(histograms)} distributions, {len(blobs)} pictures, {len(keys)} hyperparameters: as logged")


if __name__ == "__main__":
    trireme, folder = sys.argv[1], Path(sys.argv[2])
    check(train(trireme, folder / "tensorboard"))
