#!/usr/bin/env python3
"""Runs every command of README.md as it is printed, and compares what it answers.

    tests/readme/walk.py PROGRAM

It works in a temporary folder with links to the repository's recipes, job scripts and docs and to the output of `make demo`. Commands are
the lines in code blocks that begin with `$ `. The lines after a command are its expected output: the words must match, numbers may differ,
and a line `...` matches anything.
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
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


def place(folder, program):
    """Prepares the folder for the commands and returns their environment."""
    for name in ["recipes", "jobscripts", "docs"]:
        (folder / name).symlink_to(ROOT / name)
    for name in ["data", "runs", "bin", "home"]:
        (folder / name).mkdir()
    for name in ["data/fashion-mnist", "runs/demo"]:
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


def main(program):
    readme = (ROOT / "README.md").read_text()
    wrong = []
    if len(readme.splitlines()) > 110:
        wrong.append("README.md is longer than 110 lines")
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
