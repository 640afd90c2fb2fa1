"""The pictures that the scripts in this folder write with other programs."""
import numpy as np


def picture(salt, height=24, width=20):
    y, x = np.mgrid[0:height, 0:width]
    r, g, b = (x * 5 + salt * 37) % 256, (y * 9 + salt * 11) % 256, (x * y + salt * 3) % 256
    return np.stack([r, g, b], -1).astype(np.uint8)
