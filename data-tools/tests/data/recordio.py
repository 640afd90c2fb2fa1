"""Writes train.rec with MXNet 1.9.1 (numpy below 1.24): python recordio.py. It contains the same pictures as sources.py.

The PNGs of records 2 and 5 contain RecordIO's magic number at positions where MXNet must split the record.
"""
import io
import struct
import zlib

import mxnet as mx
import numpy as np
from PIL import Image

from sources_picture import picture

MAGIC = struct.pack("<I", 0xCED7230A)


def file(salt, magic):
    out = io.BytesIO()
    Image.fromarray(picture(salt)).save(out, "PNG")
    png = out.getvalue()
    if magic:
        # Three bytes of padding align the magic number to 4: header 24, signature 8, IHDR 25, chunk header 8.
        data = b"123" + MAGIC * magic + b"end"
        chunk = b"trIr" + data
        png = png[:33] + struct.pack(">I", len(data)) + chunk + struct.pack(">I", zlib.crc32(chunk)) + png[33:]
    return png


writer = mx.recordio.MXIndexedRecordIO("train.idx", "train.rec", "w")
for i in range(7):
    label = float(i % 3) if i != 6 else np.array([i % 3], np.float32)
    header = mx.recordio.IRHeader(0, label, i, 0)
    writer.write_idx(i, mx.recordio.pack(header, file(i, {2: 1, 5: 2}.get(i, 0))))
writer.close()
