"""Writes the sources in this folder with other programs: python sources.py. Needs numpy, Pillow, pyarrow and webdataset.

All sources contain the same pictures, so that tests know the expected result. Labels repeat: 0, 1, 2, 0, ...
"""
import io

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import webdataset as wds
from PIL import Image

from sources_picture import picture


def file(salt, format, **options):
    out = io.BytesIO()
    Image.fromarray(picture(salt)).save(out, format, **options)
    return out.getvalue()


NAMES = ["cat", "dog", "fox"]

for split, count in [("train", 7), ("val", 3)]:
    with wds.TarWriter(f"wds-{split}-000000.tar", mtime=0, user="u", group="g") as writer:
        for i in range(count):
            name = f"{split}/{i:04d}"
            writer.write({"__key__": name, "png": file(i, "PNG"), "cls": i % 3, "json": {"label": NAMES[i % 3]}})

images = np.stack([picture(i) for i in range(7)])
labels = np.arange(7) % 3
np.savez_compressed("arrays.npz", x_train=images, y_train=labels, x_test=images[:2, ..., 0], y_test=labels[:2, None])

for name, codec, version in [("snappy", "snappy", "1.0"), ("zstd", "zstd", "2.0"), ("plain", "none", "1.0")]:
    image = pa.array([{"bytes": file(i, "PNG"), "path": f"{i}.png"} for i in range(7)])
    table = pa.table({"image": image, "label": pa.array(labels)})
    if name == "snappy":
        features = '{"info": {"features": {"image": {"_type": "Image"}, "label": {"names": ["cat", "dog", "fox"], "_type": "ClassLabel"}}}}'
        table = table.replace_schema_metadata({"huggingface": features})
    pq.write_table(table, f"{name}.parquet", compression=codec, row_group_size=3, data_page_version=version)

image = [{"bytes": file(i, "PNG"), "path": f"{i}.png"} for i in range(3)]
pq.write_table(pa.table({"picture": pa.array(image), "label": [0, 1, 2]}), "other.parquet")
image[1]["bytes"] = None
pq.write_table(pa.table({"image": pa.array(image), "label": [0, 1, 2]}), "paths.parquet")
# A row group of 256 KiB in a file of about 13 KiB, because it repeats the same zeros.
zeros = [{"bytes": bytes(1 << 16), "path": None} for _ in range(4)]
pq.write_table(pa.table({"image": pa.array(zeros), "label": [0] * 4}), "bomb.parquet", compression="snappy", use_dictionary=False)

kinds = {"webp": {"lossless": True}, "gif": {}, "tiff": {"compression": "tiff_deflate"}, "bmp": {}}
for ending, options in kinds.items():
    with open(f"picture.{ending}", "wb") as out:
        out.write(file(1, "GIF" if ending == "gif" else ending.upper(), **options))
with open("photo.webp", "wb") as out:
    out.write(file(1, "WEBP", quality=90))
