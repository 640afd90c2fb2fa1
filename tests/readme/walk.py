#!/usr/bin/env python3
"""Runs every command of README.md or of docs/bands.md as it is printed, and compares what it answers.

    tests/readme/walk.py PROGRAM [README.md|docs/bands.md]

It works in a temporary folder with links to the repository's recipes, job scripts and docs. README.md also gets links to the output of
`make demo`, and docs/bands.md a folder of small GeoTIFFs with 13 bands, whose class is only visible in band 9. Commands are
the lines in code blocks that begin with `$ `. The lines after a command are its expected output: the words must match, numbers may differ,
and a line `...` matches anything.
"""

import os
import pathlib
import random
import re
import struct
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
README = "README.md"
LIMIT = 600
NUMBER = re.compile(r"[0-9][0-9.,]*(e-?[0-9]+)?")
# Commands of the first code block, which have no `$`. They must have run before.
BEFORE = {"make demo", "make test"}
# Limit for the commands from `git clone` to a prediction for a photo.
MOST_COMMANDS = 12


def commands(text):
    """Returns pairs of a command and its expected output lines from all indented blocks."""
    found = []
    for line in text.splitlines():
        if line.startswith("    $ "):
            found.append((re.split(r"\s{2,}#", line[6:])[0].strip(), []))
        elif line.startswith("    ") and found and found[-1] is not None:
            found[-1][1].append(line.strip())
        elif found and found[-1] is not None:
            # the block is over
            found.append(None)
    return [pair for pair in found if pair]


def pattern(line):
    """Returns a regular expression for a line that allows other numbers and other spaces."""
    words = (".*" if word == "..." else re.escape(word) for word in NUMBER.sub("\0", line).split())
    return re.compile(r"\s*".join(words).replace("\0", "[0-9.,e-]+"))


def geotiff(bands, side, value):
    """Returns a GeoTIFF with 16 bits and interleaved bands, in one strip. `value` returns the value of a pixel in a band."""
    pixels = b"".join(struct.pack("<H", value(y, x, band)) for y in range(side) for x in range(side) for band in range(bands))
    numbers = {256: (4, [side]), 257: (4, [side]), 258: (3, [16] * bands), 259: (3, [1]), 262: (3, [1]), 273: (4, [8]), 277: (3, [bands])}
    numbers |= {278: (4, [side]), 279: (4, [len(pixels)]), 284: (3, [1]), 338: (3, [0] * (bands - 1)), 339: (3, [1] * bands)}
    # GeoTIFF tags: a pixel has 10 x 10 metres, and the first pixel is at (600000, 5300000)
    numbers |= {33550: (12, [10.0, 10.0, 0.0]), 33922: (12, [0.0, 0.0, 0.0, 600000.0, 5300000.0, 0.0])}
    start = 8 + len(pixels)
    after, entries, more = start + 2 + 12 * len(numbers) + 4, b"", b""
    for tag, (kind, values) in sorted(numbers.items()):
        packed = struct.pack(f"<{len(values)}{ {3: 'H', 4: 'I', 12: 'd'}[kind]}", *values)
        place = packed.ljust(4, b"\0")
        if len(packed) > 4:
            place, more = struct.pack("<I", after + len(more)), more + packed
        entries += struct.pack("<HHI", tag, kind, len(values)) + place
    return struct.pack("<2sHI", b"II", 42, start) + pixels + struct.pack("<H", len(numbers)) + entries + bytes(4) + more


def tiles(folder):
    """Writes 40 tiles of 24x24 pixels for each of two classes. All bands are noise, and band 9 of water is darker."""
    draws = random.Random(1)
    for name, level in [("forest", 3000), ("water", 1500)]:
        (folder / name).mkdir(parents=True)
        for number in range(1, 41):
            file = geotiff(13, 24, lambda y, x, band: draws.randrange(4000) + (level if band == 8 else 1000))
            (folder / name / f"{number:04}.tif").write_bytes(file)


def place(folder, program, page):
    """Prepares the folder for the commands and returns their environment."""
    for name in ["recipes", "jobscripts", "docs"]:
        (folder / name).symlink_to(ROOT / name)
    for name in ["data", "runs", "bin", "home"]:
        (folder / name).mkdir()
    if page != README:
        tiles(folder / "tiles")
    for name in ["data/fashion-mnist", "runs/demo"] if page == README else []:
        if not (ROOT / name).is_dir():
            sys.exit(f"no {name}; run first: make demo")
        (folder / name).symlink_to(ROOT / name)
    (folder / "bin/trireme").symlink_to(program)
    environment = {
        **os.environ,
        "PATH": f"{folder}/bin:{os.environ['PATH']}",
        "HOME": str(folder / "home"),
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    }
    return environment


def run(command, expected, folder, environment):
    """Runs a command and returns a description of the failure, or None."""
    line = re.sub(r"^mpirun ", "mpirun --oversubscribe " if os.cpu_count() < 2 else "mpirun ", command)
    ended = subprocess.run(
        ["bash", "-c", line], cwd=folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        timeout=LIMIT, errors="replace",
    )
    said = ended.stdout + ended.stderr
    if ended.returncode != 0:
        return f"exit code {ended.returncode}\n{said}"
    missing = [line for line in expected if line != "..." and not pattern(line).search(said)]
    return "".join(f"it does not answer: {line}\n" for line in missing) + (said if missing else "")


def first_prediction(text):
    """Counts the commands of docs/start.md that are necessary from `git clone` to a prediction."""
    needed = [command for command, _ in commands(text) if re.match(r"make |export |trireme (data convert|predict)|mpirun .*train", command)]
    last = next(i for i, command in enumerate(needed) if command.startswith("trireme predict"))
    return 2 + last


def check_readme(readme):
    """Returns what is wrong with the first commands of README.md and the number of commands in docs/start.md."""
    wrong = []
    if not all(f"    {command}" in readme for command in BEFORE):
        wrong.append(f"README.md does not begin with {BEFORE}")
    steps = first_prediction((ROOT / "docs/start.md").read_text())
    if steps > MOST_COMMANDS:
        wrong.append(f"docs/start.md: {steps} commands from git clone to a prediction, expected {MOST_COMMANDS} at most")
    return wrong


def main(program, page=README):
    text = (ROOT / page).read_text()
    wrong = check_readme(text) if page == README else []
    with tempfile.TemporaryDirectory(prefix="trireme-readme-") as folder:
        folder = pathlib.Path(folder)
        environment = place(folder, pathlib.Path(program).resolve(), page)
        pairs = commands(text)
        for number, (command, expected) in enumerate(pairs, 1):
            print(f"{number} of {len(pairs)}: {command}", flush=True)
            fault = run(command, expected, folder, environment)
            if fault:
                wrong.append(f"$ {command}\n{fault}")
    if not pairs:
        wrong.append(f"{page} has no commands")
    sys.exit("\n".join(wrong) if wrong else None)


if __name__ == "__main__":
    main(*sys.argv[1:])
