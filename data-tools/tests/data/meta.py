"""Writes meta.mat with SciPy (1.x): a struct array with the same layout as the file of ILSVRC2012.

A test of data-tools reads it.
"""

import numpy as np
import scipy.io

ROWS = [(1, "n02119789", "kit fox", 0), (4, "n01440764", "tench, Tinca tinca", 0), (1234, "n02084071", "dog", 3)]
FIELDS = ["ILSVRC2012_ID", "WNID", "words", "gloss", "num_children", "children"]

table = np.zeros((len(ROWS), 1), dtype=[(field, "O") for field in FIELDS])
for i, (number, wnid, words, children) in enumerate(ROWS):
    count = np.array([[np.uint8(children)]])
    table[i, 0] = (np.array([[float(number)]]), wnid, words, "glöss", count, np.zeros((1, children)))
scipy.io.savemat("meta.mat", {"synsets": table}, do_compression=True)
