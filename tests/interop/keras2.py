"""Compares predictions of Keras 2: python keras2.py GIVEN.npz MOST FILE..."""
import os
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import keras
import numpy as np

given, most = np.load(sys.argv[1]), float(sys.argv[2])
assert keras.__version__.startswith("2."), keras.__version__
for file in sys.argv[3:]:
    model = keras.models.load_model(file, compile=False)
    got = model.predict(given["value"], verbose=0)
    distance = np.abs(got - given["expected"]).max()
    print(f"  Keras {keras.__version__}, {os.path.basename(file):<30} {distance:.1e}")
    assert distance <= most, file
