"""Compares every pixel that `trireme data convert` stores with tifffile, NumPy, h5py and imagecodecs.

Usage: parity.py TRIREME WORK [FOLDER...]. Reads the TIFF and PNG files of other programs below each FOLDER, and files in
many variants that this script writes into WORK. An image must be equal, or, if it is of another program, the message must
give a reason.
"""

import itertools
import json
import os
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import tifffile

TRIREME, WORK = sys.argv[1], Path(sys.argv[2])
COUNTS = {"equal": 0, "refused": 0, "other program cannot read it": 0}
REASONS, WRONG = {}, []


def trireme(*args):
    return subprocess.run([TRIREME, *map(str, args)], capture_output=True, text=True, timeout=120)


def converted(kind, src, *options):
    """Converts images. Returns the first image of the data set as an array, or trireme's message if the conversion fails."""
    out, npy = WORK / "out", WORK / "image.npy"
    for path in (out, WORK / "out.partial"):
        subprocess.run(["rm", "-rf", path], check=True)
    npy.unlink(missing_ok=True)
    made = trireme("data", "convert", kind, src, out, "--shards", 1, "--limit-memory", "1G", *options)
    if made.returncode != 0:
        assert made.returncode in (1, 2), f"{src}: {made}"
        return made.stderr.strip()
    assert trireme("data", "verify", out).returncode == 0, src
    written = trireme("data", "extract", out, 0, "-o", npy)
    assert written.returncode == 0, written
    return np.load(npy)


def of_file(path, *options):
    table = WORK / "table.csv"
    table.write_text(f'path,label\n"{path}",a\n')
    return converted("csv", table, "--allow-outside", *options)


def check(name, found, expected):
    """Compares and counts one image. `found` is an array (H, W, C) or a message. `expected` is an array, or None if no other program reads
    the image."""
    if isinstance(found, str):
        assert len(found) > 20, found
        reason = found.splitlines()[-1].split(": ", 2)[-1]
        REASONS.setdefault(reason[:100], []).append(name)
        COUNTS["refused"] += 1
        return
    if expected is None:
        COUNTS["other program cannot read it"] += 1
        return
    expected = expected[..., None] if expected.ndim == 2 else expected
    if found.shape == expected.shape and np.array_equal(found.astype(np.float64), expected.astype(np.float64)):
        COUNTS["equal"] += 1
    else:
        WRONG.append(f"{name}: {found.shape} {found.dtype}, expected {expected.shape} {expected.dtype}")


def check_own(name, found, expected):
    """Compares an image that this script has written. Both programs must accept it."""
    assert not isinstance(found, str) and expected is not None, f"{name}: {found}"
    check(name, found, expected)


def page(path, number=0):
    """Returns a page of a TIFF as tifffile reads it, with the bands last."""
    try:
        with tifffile.TiffFile(path) as tiff:
            page = tiff.pages[number]
            image = page.asarray()
            return np.moveaxis(image, 0, -1) if page.planarconfig == 2 and image.ndim == 3 else image
    except Exception:
        return None


def files_of_others(folders):
    """Compares all TIFF files and all 16-bit PNG files in the folders. Returns the number of TIFF files.

    With --nodata, TIFFs with bytes are stored as raw values and not as photos. No file contains the value 1e300, so no pixel is missing."""
    paths = sorted(path for folder in folders for path in Path(folder).rglob("*") if path.suffix.lower() in (".tif", ".tiff"))
    for path in paths:
        check(path.name, of_file(path, "--nodata", "1e300"), page(path))
        # Without --nodata, grey and RGB images of bytes are converted as photos. This must succeed or give a reason.
        found = of_file(path)
        assert not isinstance(found, str) or len(found) > 20, path
    for path in sorted(path for folder in folders for path in Path(folder).rglob("*.png")):
        if path.read_bytes()[24:25] == b"\x10":
            check(path.name, of_file(path), png16(path))
    return len(paths)


def png16(path):
    import imagecodecs

    file = path.read_bytes()
    image = imagecodecs.png_decode(file)
    # imagecodecs adds opacity if the file names a transparent value. This is not a band of the file.
    return image[..., :-1] if b"tRNS" in file else image


def values(dtype, shape, seed=0):
    random = np.random.default_rng(seed)
    dtype = np.dtype(dtype)
    if dtype.kind == "f":
        return (random.standard_normal(shape) * 1000).astype(dtype)
    info = np.iinfo(dtype)
    return random.integers(info.min, info.max, shape, dtype=dtype, endpoint=True)


def written_tiffs():
    types = ["u1", "u2", "i2", "f4", "f2", "i1"]
    codecs = [None, "lzw", "zlib", "packbits", "zstd"]
    for dtype, codec, bands, planar in itertools.product(types, codecs, [1, 2, 4, 13], [False, True]):
        if planar and bands == 1:
            continue
        for tile, order, big in [(None, "<", False), ((32, 48), ">", True)]:
            for predictor in [False, True] if codec not in (None, "packbits") else [False]:
                image = values(dtype, (37, 53, bands) if bands > 1 else (37, 53))
                stored = np.moveaxis(image, -1, 0) if planar else image
                path = WORK / "written.tif"
                name = f"{dtype} {codec} {bands} bands planar={planar} {tile} {order} predictor={predictor}"
                extra = ["unspecified"] * (bands - 1) if bands > 1 else None
                try:
                    tifffile.imwrite(path, stored, compression=codec, tile=tile, byteorder=order, bigtiff=big,
                                     photometric="minisblack", planarconfig=("separate" if planar else "contig") if bands > 1 else None,
                                     extrasamples=extra, predictor=predictor, rowsperstrip=None if tile else 10)
                except Exception as error:
                    print(f"tifffile does not write {name}: {error}")
                    continue
                check_own(name, of_file(path, "--nodata", "1e300"), image)
    for dtype in ["u4", "i4", "u8", "f8"]:
        path = WORK / "written.tif"
        tifffile.imwrite(path, values(dtype, (5, 7)))
        found = of_file(path)
        assert isinstance(found, str) and "expected uint8, uint16, int16 or float32" in found, found
        check(dtype, found, None)
    path = WORK / "pages.tif"
    with tifffile.TiffWriter(path) as tiff:
        for number in range(3):
            tiff.write(values("u2", (9, 8), number), contiguous=False)
    for number in range(3):
        check_own(f"page {number + 1}", of_file(path, "--page", number + 1), page(path, number))
    check_own("all pages", of_file(path, "--page", "all"), np.stack([page(path, n) for n in range(3)], -1))
    image = values("u2", (9, 8, 5))
    tifffile.imwrite(path, image, photometric="rgb", extrasamples=["unspecified"] * 2)
    check_own("RGB with two more bands", of_file(path), image)
    check_own("--bands", of_file(path, "--bands", "5,1"), image[..., [4, 0]])


def written_pngs():
    for channels in (1, 2, 3, 4):
        import imagecodecs

        image = values("u2", (11, 7, channels)) if channels > 1 else values("u2", (11, 7))
        path = WORK / "written.png"
        path.write_bytes(imagecodecs.png_encode(image))
        check_own(f"PNG with {channels} channels", of_file(path), image)


def arrays():
    for dtype, order, fortran in itertools.product(["u1", "u2", "i2", "f4"], "<>", [False, True]):
        dtype = np.dtype(dtype).newbyteorder(order)
        for shape, layout in [((6, 7, 9), "NHW"), ((6, 7, 9, 4), "NHWC"), ((6, 4, 7, 9), "NCHW"), ((6, 3, 7, 9), "NCHW")]:
            images = values(dtype.newbyteorder("="), shape).astype(dtype)
            images = np.asfortranarray(images) if fortran else images
            labels = np.arange(6)
            np.savez(WORK / "a.npz", x_train=images, y_train=labels)
            with h5py.File(WORK / "a.h5", "w") as file:
                options = {"chunks": (4, *shape[1:]), "compression": "gzip", "shuffle": True} if fortran else {}
                file.create_dataset("deep/scans", data=images, **options)
                file["deep/kinds"] = labels
            axes = ["--layout", layout] if 4 in shape else []
            found = converted("npz", WORK / "a.npz", "--seed", 0, *axes)
            from_hdf5 = converted("hdf5", WORK / "a.h5", "--images", "deep/scans", "--labels", "/deep/kinds", *axes)
            pixels = [np.moveaxis(image, 0, -1) if layout == "NCHW" else image for image in images]
            for kind, found in (("npz", found), ("hdf5", from_hdf5)):
                same = [p for p in pixels if np.array_equal(found, p[..., None] if p.ndim == 2 else p)]
                check_own(f"{kind} {dtype} {shape}", found, same[0] if same else pixels[0])
            one = pixels[0]
            np.save(WORK / "one.npy", np.asfortranarray(images[0]) if fortran else images[0])
            check_own(f"npy {dtype} {shape}", of_file(WORK / "one.npy", *axes), one)
            with h5py.File(WORK / "one.h5", "w") as file:
                file["image"] = images[0]
            check_own(f"HDF5 file {dtype} {shape}", of_file(WORK / "one.h5", *axes), one)


def hostile_hdf5():
    """Checks that HDF5 files cannot make the conversion read values from other files."""
    with h5py.File(WORK / "secret.h5", "w") as file:
        file["x"] = values("u2", (4, 8, 8))
    with h5py.File(WORK / "links.h5", "w") as file:
        file["x"] = h5py.ExternalLink(str(WORK / "secret.h5"), "x")
        file["s"] = h5py.SoftLink("/x")
        file["labels"] = np.arange(4)
        external = [(str(WORK / "raw.bin"), 0, h5py.h5f.UNLIMITED)]
        (WORK / "raw.bin").write_bytes(bytes(4 * 8 * 8 * 2))
        file.create_dataset("e", (4, 8, 8), "u2", external=external)
        layout = h5py.VirtualLayout((4, 8, 8), "u2")
        layout[:] = h5py.VirtualSource(str(WORK / "secret.h5"), "x", (4, 8, 8))
        file.create_virtual_dataset("v", layout)
    for name, word in [(name, "no array") for name in "xsev"]:
        found = converted("hdf5", WORK / "links.h5", "--images", name, "--labels", "labels")
        assert isinstance(found, str) and word in found, (name, found)
        check(f"link {name}", found, None)
    whole = (WORK / "secret.h5").read_bytes()
    for cut in (10, 100, 500, len(whole) - 100):
        (WORK / "cut.h5").write_bytes(whole[:cut])
        found = converted("hdf5", WORK / "cut.h5", "--images", "x", "--labels", "labels")
        assert isinstance(found, str), cut
    with h5py.File(WORK / "bomb.h5", "w") as file:
        file.create_dataset("x", (4, 200_000, 200_000), "u2", chunks=(1, 1000, 1000), compression="gzip")
        file["labels"] = np.arange(4)
    found = converted("hdf5", WORK / "bomb.h5", "--images", "x", "--labels", "labels")
    assert isinstance(found, str) and "limit" in found, found
    check("bomb", found, None)


def statistics():
    """Compares the statistics in dataset.json with NumPy's."""
    for dtype in ("u2", "i2", "f4", "u1"):
        images = values(dtype, (50, 16, 16, 5))
        images[:3, :4, :4, 2] = 7
        np.savez(WORK / "s.npz", x_train=images, y_train=np.arange(50) % 2)
        for nodata in (None, 7):
            out = WORK / "stats"
            subprocess.run(["rm", "-rf", out], check=True)
            made = trireme("data", "convert", "npz", WORK / "s.npz", out, *(["--nodata", nodata] if nodata else []))
            assert made.returncode == 0, made
            told = json.loads((out / "dataset.json").read_text())
            flat = images.reshape(-1, 5).astype(np.float64)
            kept = [flat[:, b][flat[:, b] != nodata] for b in range(5)]
            unit = 255 if dtype == "u1" else 1
            close = lambda key, expected, most=1e-9: np.testing.assert_allclose(told[key], expected, rtol=most, atol=1e-9)
            close("mean", [k.mean() / unit for k in kept])
            close("std", [k.std() / unit for k in kept])
            close("min", [k.min() for k in kept])
            close("max", [k.max() for k in kept])
            for key, found in told["percentiles"].items():
                expected = [np.percentile(k, int(key)) for k in kept]
                np.testing.assert_allclose(found, expected, rtol=1 / 256 if dtype == "f4" else 1e-12, atol=1e-9)
    print("statistics of 8 data sets: as NumPy's")


def main():
    WORK.mkdir(parents=True, exist_ok=True)
    os.environ["RUST_BACKTRACE"] = "0"
    files = files_of_others(sys.argv[3:])
    print(f"{files} TIFF files of other programs: {COUNTS}")
    # Pillow 10.1.0 has 108
    assert files >= 108 and COUNTS["equal"] > 0, "the files of other programs are missing, or trireme refuses all"
    for reason, names in sorted(REASONS.items()):
        print(f"  refused: {reason} ({len(names)}: {names[0]})")
    REASONS.clear()
    for part in (written_tiffs, written_pngs, arrays, hostile_hdf5, statistics):
        part()
        print(f"after {part.__name__}: {COUNTS}")
    for line in WRONG:
        print(f"different: {line}")
    sys.exit(bool(WRONG))


main()
