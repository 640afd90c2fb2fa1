"""Writes tensorflow.json: tf.image with the loader's own draws. Writes boxes.json with sample_distorted_bounding_box, and objects.json with
objects.

The color orders are those of tensorflow/models research/inception (image_processing.py, distort_color) and of tutorials/image/cifar10
(cifar10_input.py), with adjust_* instead of random_*. TensorFlow uses the range 0 to 1 and the loader 0 to 255, so TensorFlow's results
are multiplied by 255.

    venv/bin/pip install tensorflow-cpu==2.21.0 && cd loaders/tests/golden && python tensorflow_ops.py
"""

import json

import numpy as np
import tensorflow as tf

from draws import Draws, image, line, write

SHAPE = (4, 5, 3)


def planar(values):
    return np.transpose(np.asarray(values), (2, 0, 1))


def inception_distort(sample):
    draws = Draws(sample)
    order = draws.below(2)
    delta = draws.range(-32, 32) / 255.0
    saturation, hue, contrast = draws.range(0.5, 1.5), draws.range(-0.2, 0.2), draws.range(0.5, 1.5)
    x = tf.image.convert_image_dtype(image(sample, *SHAPE), tf.float32)
    x = tf.image.adjust_brightness(x, delta)
    if order == 0:
        x = tf.image.adjust_saturation(x, saturation)
        x = tf.image.adjust_hue(x, hue)
        x = tf.image.adjust_contrast(x, contrast)
    else:
        x = tf.image.adjust_contrast(x, contrast)
        x = tf.image.adjust_saturation(x, saturation)
        x = tf.image.adjust_hue(x, hue)
    x = tf.clip_by_value(x, 0.0, 1.0)
    return line("inception_distort", sample, SHAPE, 255.0 * planar(x), 9)


def cifar_distort(sample):
    draws = Draws(sample)
    x = tf.cast(image(sample, *SHAPE), tf.float32)
    if draws.unit() < 0.5:
        x = tf.image.flip_left_right(x)
    x = tf.image.adjust_brightness(x, draws.range(-63, 63))
    x = tf.image.adjust_contrast(x, draws.range(0.2, 1.8))
    return line("cifar_distort", sample, SHAPE, planar(x), 9)


def single(op, sample, shape):
    draws, x = Draws(sample), tf.cast(image(sample, *shape), tf.float32)
    if op == "brightness(63)":
        x = tf.image.adjust_brightness(x, draws.range(-63, 63))
    elif op == "contrast(0.2, 1.8)":
        x = tf.image.adjust_contrast(x, draws.range(0.2, 1.8))
    else:
        x = tf.image.per_image_standardization(x)
    return line(op, sample, shape, planar(x), 9)


def window(height, width, seed, seed2, objects):
    """Returns the window that TensorFlow's own generator draws, with the seeds (seed, seed2)."""
    begin, size, _ = tf.raw_ops.SampleDistortedBoundingBoxV2(
        image_size=[height, width, 3],
        bounding_boxes=np.array([objects], np.float32).reshape(1, -1, 4),
        min_object_covered=0.1,
        seed=seed,
        seed2=seed2,
        aspect_ratio_range=[0.75, 1.33],
        area_range=[0.05, 1.0],
        max_attempts=100,
        use_image_if_no_bounding_boxes=True,
    )
    (top, left, _), (rows, columns, _) = begin.numpy(), size.numpy()
    return [height, width, seed, seed2, int(top), int(left), int(rows if rows >= 0 else height), int(columns if columns >= 0 else width)]


def box(height, width, seed, seed2):
    return str(window(height, width, seed, seed2, [[0.0, 0.0, 1.0, 1.0]]))


def boxed(height, width, seed, seed2):
    """The same with objects: ymin, xmin, ymax, xmax of each."""
    rng = np.random.default_rng(seed * 1000 + seed2)
    low = rng.uniform(0, 0.9, (seed2 % 4, 2))
    high = np.minimum(low + rng.uniform(0.02, 0.4, low.shape), 1)
    objects = np.concatenate([low, high], 1).astype(np.float32).round(3)
    case = {"case": window(height, width, seed, seed2, objects), "objects": [[round(float(e), 3) for e in o] for o in objects]}
    return json.dumps(case)


def main():
    head = f'"tensorflow": "{tf.__version__}"'
    cases = [inception_distort(sample) for sample in range(20)]
    cases += [cifar_distort(sample) for sample in range(8)]
    for op in ("brightness(63)", "contrast(0.2, 1.8)", "standardize"):
        cases += [single(op, sample, SHAPE) for sample in range(3)]
    # An image with a smaller deviation than the minimum of the divisor.
    cases.append(single("standardize", 3, (1, 1, 3)))
    write("tensorflow.json", head, cases)
    sizes = [(375, 500), (500, 333), (1, 1), (2, 7), (64, 64), (40, 400), (400, 40), (1200, 1600), (17, 23), (3, 2)]
    boxes = [box(*size, 11 + i, 100 * i + k) for i, size in enumerate(sizes) for k in range(1, 31)]
    sizes = [(375, 500), (500, 333), (64, 64), (40, 400), (1200, 1600), (17, 23)]
    objects = [boxed(*size, 31 + i, 100 * i + k) for i, size in enumerate(sizes) for k in range(1, 31)]
    write("objects.json", head + ', "fields": "as boxes.json; ymin, xmin, ymax, xmax of each object"', objects)
    write("boxes.json", head + ', "fields": "height, width, seed, seed2, top, left, rows, columns"', boxes)


main()
