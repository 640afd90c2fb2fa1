"""Converts data sets between trireme and other packages in both directions: python data.py TRIREME FOLDER [PYTHON WITH MXNET]"""
import json
import subprocess
import sys
from pathlib import Path

import datasets
import numpy as np
import tensorflow as tf
import webdataset as wds

from pictures import CLASSES, COUNT, label, picture, png, same

# writes records in the same way as im2rec.py
MXNET = """
import sys, numpy as np, mxnet as mx
from pathlib import Path
folder = Path(sys.argv[1])
writer = mx.recordio.MXIndexedRecordIO(str(folder / "train.idx"), str(folder / "train.rec"), "w")
for i, file in enumerate(sorted(folder.glob("*.png"))):
    header = mx.recordio.IRHeader(0, float(file.stem.split("_")[1]), i, 0)
    writer.write_idx(i, mx.recordio.pack(header, file.read_bytes()))
writer.close()
"""


def records(folder, split):
    """Returns (label, pixels) of each record in a data set of trireme, read by TensorFlow."""
    about = json.loads((folder / "dataset.json").read_text())
    files = [str(folder / shard["file"]) for shard in about["splits"][split]["shards"]]
    found = []
    for record in tf.data.TFRecordDataset(files):
        features = tf.io.parse_single_example(
            record,
            {
                "image/encoded": tf.io.FixedLenFeature([], tf.string),
                "image/class/label": tf.io.FixedLenFeature([], tf.int64),
                "image/class/text": tf.io.FixedLenFeature([], tf.string),
            },
        )
        number = int(features["image/class/label"])
        assert features["image/class/text"].numpy().decode() == about["classes"][number]
        found.append((number, tf.io.decode_image(features["image/encoded"]).numpy()))
    return found


def bands(folder, split, dtype):
    """Returns (label, pixels) of each RAW record, parsed as docs/formats.md says."""
    about = json.loads((folder / "dataset.json").read_text())
    files = [str(folder / shard["file"]) for shard in about["splits"][split]["shards"]]
    found = []
    for payload in tf.data.TFRecordDataset(files):
        keys = {"encoded": tf.string, "height": tf.int64, "width": tf.int64, "channels": tf.int64, "class/label": tf.int64}
        e = tf.io.parse_single_example(payload, {f"image/{k}": tf.io.FixedLenFeature([], t) for k, t in keys.items()})
        image = tf.reshape(tf.io.decode_raw(e["image/encoded"], dtype), [e[f"image/{k}"] for k in ("height", "width", "channels")])
        found.append((int(e["image/class/label"]), image.numpy()))
    return found


def main(trireme, folder, mxnet=None):
    def run(*arguments):
        subprocess.run([trireme, "data", *map(str, arguments)], check=True, stdout=subprocess.DEVNULL)

    # webdataset writes and trireme reads, then the reverse
    tars = folder / "tars"
    tars.mkdir()
    with wds.ShardWriter(str(tars / "train-%06d.tar"), maxcount=10, verbose=0) as writer:
        for salt in range(COUNT):
            writer.write({"__key__": f"{salt:05d}", "png": png(salt), "cls": label(salt)})
    (tars / "classes.txt").write_text("\n".join(CLASSES))
    run("convert", "webdataset", tars, folder / "wds", "--shards", 3)
    same("webdataset to trireme, read by tensorflow", records(folder / "wds", "train"))
    run("export", "webdataset", folder / "wds", folder / "tars-out")
    files = sorted(str(path) for path in (folder / "tars-out").glob("*.tar"))
    read = wds.WebDataset(files, shardshuffle=False, empty_check=False).decode("rgb8").to_tuple("cls", "png", "json")
    samples = list(read)
    same("trireme to webdataset", [(int(number), pixels) for number, pixels, _ in samples])
    assert all(about["class_name"] == CLASSES[int(number)] for number, _, about in samples)

    # Hugging Face's datasets
    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=CLASSES)})
    rows = {"image": [{"bytes": png(s), "path": None} for s in range(COUNT)], "label": [label(s) for s in range(COUNT)]}
    (folder / "hf" / "data").mkdir(parents=True)
    table = datasets.Dataset.from_dict(rows, features=features)
    table.to_parquet(str(folder / "hf" / "data" / "train-00000-of-00001.parquet"), batch_size=7)
    run("convert", "parquet", folder / "hf", folder / "parquet")
    same("datasets to trireme", records(folder / "parquet", "train"))
    assert json.loads((folder / "parquet" / "dataset.json").read_text())["classes"] == CLASSES

    # compressed TFRecords, with the keys of TensorFlow Datasets
    for kind in ["GZIP", "ZLIB"]:
        source = folder / f"tf-{kind}"
        source.mkdir()
        for shard in range(2):
            path = str(source / f"pets-train.tfrecord-{shard:05d}-of-00002")
            with tf.io.TFRecordWriter(path, tf.io.TFRecordOptions(compression_type=kind)) as writer:
                for salt in range(shard, COUNT, 2):
                    image = tf.train.Feature(bytes_list=tf.train.BytesList(value=[png(salt)]))
                    number = tf.train.Feature(int64_list=tf.train.Int64List(value=[label(salt)]))
                    features = tf.train.Features(feature={"image": image, "label": number})
                    writer.write(tf.train.Example(features=features).SerializeToString())
        (source / "label.labels.txt").write_text("\n".join(CLASSES) + "\n")
        run("convert", "tfrecord", source, folder / f"plain-{kind}")
        run("verify", folder / f"plain-{kind}")
        files = sorted(str(path) for path in (folder / f"plain-{kind}").glob("*.tfrecord"))
        keys = {"image": tf.io.FixedLenFeature([], tf.string), "label": tf.io.FixedLenFeature([], tf.int64)}
        read = [tf.io.parse_single_example(record, keys) for record in tf.data.TFRecordDataset(files)]
        same(f"tensorflow, {kind}", [(int(r["label"]), tf.io.decode_image(r["image"]).numpy()) for r in read])

    # NumPy arrays
    np.savez_compressed(
        folder / "arrays.npz",
        x_train=np.stack([picture(s) for s in range(COUNT)]),
        y_train=np.array([label(s) for s in range(COUNT)]),
    )
    run("convert", "npz", folder / "arrays.npz", folder / "npz")
    run("export", "webdataset", folder / "npz", folder / "npz-tars")
    files = sorted(str(path) for path in (folder / "npz-tars").glob("*.tar"))
    read = wds.WebDataset(files, shardshuffle=False, empty_check=False).decode("rgb8").to_tuple("cls", "png")
    same("numpy to trireme to webdataset", [(int(number), pixels) for number, pixels in read])

    # images of five bands that are not bytes
    generator = np.random.default_rng(1)
    for dtype in [np.uint16, np.int16, np.float32]:
        name = np.dtype(dtype).name
        images = generator.integers(-30_000 if dtype != np.uint16 else 0, 30_000, (COUNT, 6, 4, 5)).astype(dtype)
        labels = np.array([label(s) for s in range(COUNT)])
        np.savez(folder / f"{name}.npz", x_train=images, y_train=labels)
        run("convert", "npz", folder / f"{name}.npz", folder / name, "--layout", "NHWC", "--shards", 3)
        found = bands(folder / name, "train", tf.as_dtype(dtype))
        expected = {image.tobytes(): int(number) for image, number in zip(images, labels)}
        assert len(found) == COUNT and {image.tobytes(): number for number, image in found} == expected, name
        assert all(image.dtype == dtype and image.shape == (6, 4, 5) for _, image in found), name
        print(f"trireme to tensorflow, {name}: {COUNT} images of 5 bands are equal")

    if mxnet:
        source = folder / "mxnet"
        source.mkdir()
        for salt in range(COUNT):
            (source / f"{salt:05d}_{label(salt)}.png").write_bytes(png(salt))
        subprocess.run([mxnet, "-c", MXNET, str(source)], check=True)
        (source / "classes.txt").write_text("\n".join(CLASSES))
        run("convert", "recordio", source, folder / "rec")
        same("mxnet to trireme", records(folder / "rec", "train"))
    else:
        print("NOT CHECKED with mxnet: needs a Python with mxnet (1.9.1, numpy below 1.24)")


main(sys.argv[1], Path(sys.argv[2]), *sys.argv[3:4])
