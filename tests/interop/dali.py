"""Reads data sets of trireme with DALI on the CPU: python dali.py TRIREME FOLDER"""
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
from nvidia.dali import fn, pipeline_def, tfrecord, types

from pictures import CLASSES, COUNT, label, png, same


def read(pipeline):
    """Returns (label, pixels) of each sample in one pass."""
    pipeline.build()
    found = []
    while len(found) < COUNT:
        images, labels = pipeline.run()
        found += [(int(labels.at(i).item()), images.at(i)) for i in range(len(images))]
    return found[:COUNT]


def from_records(folder):
    about = json.loads((folder / "dataset.json").read_text())
    shards = [folder / shard["file"] for shard in about["splits"]["train"]["shards"]]
    assert about["classes"] == CLASSES

    @pipeline_def(batch_size=1, num_threads=1, device_id=None)
    def pipeline():
        features = {
            "image/encoded": tfrecord.FixedLenFeature((), tfrecord.string, ""),
            "image/class/label": tfrecord.FixedLenFeature([1], tfrecord.int64, -1),
        }
        record = fn.readers.tfrecord(
            path=[str(shard) for shard in shards], index_path=[f"{shard}.idx" for shard in shards], features=features
        )
        return fn.decoders.image(record["image/encoded"], output_type=types.RGB), record["image/class/label"]

    return read(pipeline())


def from_tars(folder):
    @pipeline_def(batch_size=1, num_threads=1, device_id=None)
    def pipeline():
        paths = sorted(str(path) for path in folder.glob("*.tar"))
        image, number = fn.readers.webdataset(paths=paths, ext=["png", "cls"], missing_component_behavior="error")
        return fn.decoders.image(image, output_type=types.RGB), number

    pipe = pipeline()
    pipe.build()
    found = []
    for _ in range(COUNT):
        images, numbers = pipe.run()
        found.append((int(np.asarray(numbers.at(0)).tobytes().decode()), images.at(0)))
    return found


def main(trireme, folder):
    def run(*arguments):
        subprocess.run([trireme, "data", *map(str, arguments)], check=True, stdout=subprocess.DEVNULL)

    source = folder / "dali"
    for salt in range(COUNT):
        place = source / "train" / CLASSES[label(salt)]
        place.mkdir(parents=True, exist_ok=True)
        (place / f"{salt:05d}.png").write_bytes(png(salt))
    run("convert", "folder", source, folder / "dali-records", "--shards", 3)
    same("trireme's records in DALI", from_records(folder / "dali-records"))
    run("export", "webdataset", folder / "dali-records", folder / "dali-tars")
    same("trireme's webdataset in DALI", from_tars(folder / "dali-tars"))


main(sys.argv[1], Path(sys.argv[2]))
