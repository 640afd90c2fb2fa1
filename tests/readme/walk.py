#!/usr/bin/env python3
"""Runs every command of README.md as it is printed, and compares what it answers.

    tests/readme/walk.py PROGRAM

In a folder of its own, with the repository's recipes, job scripts, and what `make demo` has left. Commands are the lines that begin
with `$ ` in code blocks; the lines below one, up to the next, are what it answers: the same words, other numbers. A line `...` stands
for any. A file that the README lets the reader fetch is made small here (CIFAR-10), and sbatch is a stand-in that runs the script's head.
"""

import io
import os
import pathlib
import random
import re
import subprocess
import sys
import tarfile
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
LIMIT = 600
# Stopped by its time limit, as the README says.
STOPPED = 75
NUMBER = re.compile(r"[0-9][0-9.,]*(e-?[0-9]+)?")
# First code blocks of the README: commands without a sign before them, which whoever runs this has run.
BEFORE = {"make demo", "make test"}
# From `git clone` to a prediction on an own photo.
MOST_COMMANDS = 12


def commands(text):
    """Pairs of a command and the lines of its answer, of all indented blocks."""
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
    """A line with any numbers and any blanks."""
    words = (".*" if word == "..." else re.escape(word) for word in NUMBER.sub("\0", line).split())
    return re.compile(r"\s*".join(words).replace("\0", "[0-9.,e-]+"))


def cifar(path):
    """A CIFAR-10 of a few noisy images, in the folders and files of the real one."""
    draws = random.Random(1)
    names = "airplane automobile bird cat deer dog frog horse ship truck".split()
    with tarfile.open(path, "w:gz") as archive:
        files = {"batches.meta.txt": "\n".join(names).encode() + b"\n"}
        for name in [f"data_batch_{i}.bin" for i in range(1, 6)] + ["test_batch.bin"]:
            record = lambda: bytes([draws.randrange(10)]) + draws.randbytes(3072)
            files[name] = b"".join(record() for _ in range(80))
        for name, content in files.items():
            info = tarfile.TarInfo(f"cifar-10-batches-bin/{name}")
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))


def place(folder, program):
    """The folder in which commands are run, and their environment."""
    for name in ["recipes", "jobscripts", "docs"]:
        (folder / name).symlink_to(ROOT / name)
    for name in ["data", "runs", "bin", "home"]:
        (folder / name).mkdir()
    for name in ["data/fashion-mnist", "runs/demo"]:
        if not (ROOT / name).is_dir():
            sys.exit(f"no {name}; run first: make demo")
        (folder / name).symlink_to(ROOT / name)
    cifar(folder / "cifar-10-binary.tar.gz")
    (folder / "bin/trireme").symlink_to(program)
    sbatch = folder / "bin/sbatch"
    sbatch.write_text(
        '#!/bin/bash\nfor word; do case $word in --*) ;; *) [ -f "$word" ] && bash -n "$word" && '
        "grep -q '^#SBATCH' \"$word\" && echo Submitted batch job 1 && exit 0; exit 1 ;; esac; done; exit 2\n"
    )
    sbatch.chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{folder}/bin:{os.environ['PATH']}",
        "HOME": str(folder / "home"),
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    }
    return environment


def run(command, expected, folder, environment):
    """Runs one command, and gives what is wrong with it."""
    line = re.sub(r"^mpirun ", "mpirun --oversubscribe " if os.cpu_count() < 2 else "mpirun ", command)
    ended = subprocess.run(
        ["bash", "-c", line], cwd=folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        timeout=LIMIT, errors="replace",
    )
    said = ended.stdout + ended.stderr
    good = {0, STOPPED} if "--time-limit" in command else {0}
    if ended.returncode not in good:
        return f"exit code {ended.returncode}\n{said}"
    missing = [line for line in expected if line != "..." and not pattern(line).search(said)]
    return "".join(f"it does not answer: {line}\n" for line in missing) + (said if missing else "")


def first_prediction(text):
    """How many commands docs/start.md needs from `git clone` to a prediction: those that make something the next ones need."""
    needed = [command for command, _ in commands(text) if re.match(r"make |export |trireme (data convert|predict)|mpirun .*train", command)]
    last = next(i for i, command in enumerate(needed) if command.startswith("trireme predict"))
    return 2 + last


def main(program):
    readme = (ROOT / "README.md").read_text()
    wrong = []
    if len(readme.splitlines()) > 120:
        wrong.append("README.md is longer than 120 lines")
    if not all(f"    {command}" in readme for command in BEFORE):
        wrong.append(f"README.md does not begin with {BEFORE}")
    steps = first_prediction((ROOT / "docs/start.md").read_text())
    if steps > MOST_COMMANDS:
        wrong.append(f"docs/start.md: {steps} commands from git clone to a prediction, expected {MOST_COMMANDS} at most")
    with tempfile.TemporaryDirectory(prefix="trireme-readme-") as folder:
        folder = pathlib.Path(folder)
        environment = place(folder, pathlib.Path(program).resolve())
        pairs = commands(readme)
        for number, (command, expected) in enumerate(pairs, 1):
            print(f"{number} of {len(pairs)}: {command}", flush=True)
            fault = run(command, expected, folder, environment)
            if fault:
                wrong.append(f"$ {command}\n{fault}")
    if not pairs:
        wrong.append("README.md has no commands")
    sys.exit("\n".join(wrong) if wrong else None)


if __name__ == "__main__":
    main(sys.argv[1])
