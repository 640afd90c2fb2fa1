"""The pictures that are compared between data sets: without noise, all different, in three classes."""
import io

import numpy as np
from PIL import Image

CLASSES = ["cat", "dog", "fox"]
COUNT = 31


def picture(salt, height=40, width=48):
    y, x = np.mgrid[0:height, 0:width]
    return np.stack([(x * 3 + salt * 37) % 256, (y * 5 + salt * 11) % 256, (x * y + salt) % 256], -1).astype(np.uint8)


def png(salt):
    out = io.BytesIO()
    Image.fromarray(picture(salt)).save(out, "PNG")
    return out.getvalue()


def label(salt):
    return salt % len(CLASSES)


def same(what, found, count=COUNT):
    """Asserts that the (label, pixels) that were found are the pictures, each exactly once."""
    expected = {picture(salt).tobytes(): label(salt) for salt in range(count)}
    assert len(found) == count, (what, len(found))
    assert {np.asarray(pixels).tobytes(): number for number, pixels in found} == expected, what
    print(f"{what}: {count} images, labels and pixels equal")
