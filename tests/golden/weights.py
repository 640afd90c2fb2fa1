"""Writes small weight files of PyTorch and safetensors and a list of their contents: tests/golden/weights/.

    python weights.py        # needs torch==2.15.0, torchvision==0.29.2 and safetensors==0.8.0; takes seconds

`weights.json` lists every tensor of a file with its shape and its values as float32, computed by PyTorch, and the names and shapes of
torchvision's networks. Also writes pickles that call a function. If Python loaded one of these, it would print "executed".
"""

import collections
import json
import os
import pathlib
import zipfile

import safetensors.torch
import torch
import torchvision

FOLDER = pathlib.Path(__file__).parent / "weights"


def numbers(*shape):
    count = torch.Size(shape).numel()
    return (torch.arange(count, dtype=torch.float32) * 0.37 - 1.5).sin().reshape(shape)


def plain():
    """Returns a tensor of each type, each in its own storage."""
    types = ["float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool"]
    tensors = {f"types.{name}": (numbers(2, 3) * 20).to(getattr(torch, name)) for name in types if name not in ("uint8", "bool")}
    tensors["types.uint8"] = torch.tensor([0, 7, 255], dtype=torch.uint8)
    tensors["types.bool"] = torch.tensor([True, False])
    tensors["scalar"] = torch.tensor(3, dtype=torch.int64)
    tensors["conv.weight"] = numbers(4, 3, 2, 2)
    return tensors


def views():
    """Returns tensors that are views of other tensors: transposed, strided and with offsets."""
    base = numbers(4, 6)
    return {
        "whole": base,
        "transposed": base.t(),
        "part": base[1:3, ::2],
        "row": base[2],
        "last": base[3, 5],
        "channels_last": numbers(4, 3, 2, 2).contiguous(memory_format=torch.channels_last),
        "nothing": torch.zeros(0, 3),
    }


def listed(tensors):
    return {name: {"shape": list(t.shape), "values": t.detach().to(torch.float32).flatten().tolist()} for name, t in tensors.items()}


def training(tensors):
    """Returns the contents of a typical checkpoint of a training script: the state_dict as parameters, together with other objects."""
    parameters = {name: torch.nn.Parameter(t) for name, t in tensors.items() if t.is_floating_point()}
    optimizer = torch.optim.Adam(parameters.values())
    return {"epoch": 3, "best": 0.5, "args": ["a", None, True], "state_dict": parameters, "optimizer": optimizer.state_dict()}


class Evil:
    def __reduce__(self):
        return os.system, ("echo executed",)


def names():
    found = {}
    for name in ["alexnet", "resnet18", "resnet50", "swin_v2_t", "maxvit_t"]:
        state = getattr(torchvision.models, name)(weights=None).state_dict()
        found[name] = {key: list(t.shape) for key, t in state.items()}
    return found


def main():
    FOLDER.mkdir(exist_ok=True)
    save = lambda value, file, new=True: torch.save(value, FOLDER / file, _use_new_zipfile_serialization=new)
    both = {**plain(), **views()}
    save(collections.OrderedDict(both), "views.pth")
    save(both, "old.pth", new=False)
    model = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3), torch.nn.BatchNorm2d(2))
    with torch.no_grad():
        for t in model.parameters():
            t.copy_(numbers(*t.shape))
    save(model.state_dict(), "module.pth")
    save(training(plain()), "training.pth")
    safetensors.torch.save_file(plain(), FOLDER / "plain.safetensors", metadata={"format": "pt"})
    save({"a.weight": numbers(2), "b": Evil()}, "evil.pth")
    save({"a.weight": numbers(2), "b": Evil()}, "evil_old.pth", new=False)
    expected = {
        "views.pth": listed(both),
        "old.pth": listed(both),
        "module.pth": listed(model.state_dict()),
        "training.pth": listed({name: t for name, t in plain().items() if t.is_floating_point()}),
        "plain.safetensors": listed(plain()),
    }
    for file in ["views.pth", "old.pth", "module.pth"]:
        again = torch.load(FOLDER / file, weights_only=True)
        assert listed(again) == expected[file], file
    assert zipfile.ZipFile(FOLDER / "views.pth").testzip() is None
    text = json.dumps({"torch": torch.__version__, "files": expected, "torchvision": names()}, separators=(",", ":"))
    (FOLDER / "weights.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
